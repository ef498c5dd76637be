//! The requester's other half: what the peer's answers and the passing of time do to it.

use super::clock::{Asked, Due, ack_timeout, asked_timeout};
use super::requester::Requester;
use crate::memory::{Access, scatter};
use crate::queue::{CompletionStatus, SegmentList, SendData};
use crate::transport::context::{Base, Context};
use crate::transport::counters::Counter;
use crate::transport::history::{
    Cause, NotReady, PacketKind, Refused, TimerKind, Unanswered, WrongResponse,
};
use crate::transport::requests::{local_fault, packet_kind, remote_of};
use crate::transport::segment::Class;
use crate::wire::{Aeth, Headers, Message, NakCode, Psn, RnrTimer, Syndrome};

impl Requester {
    /// An answer of the peer.
    pub(crate) fn handle_response(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: &[u8],
    ) {
        let psn = headers.psn;
        // Also an ACK of what is acknowledged already may bring credits.
        if psn.is_within(self.oldest.previous(), self.highest) {
            self.learn_credits(base, ctx, &headers.message);
        }
        if !psn.is_within(self.oldest, self.highest) {
            self.clock.attempt.answered_outside(psn);
            ctx.count(match headers.message {
                Message::Acknowledge(Aeth { syndrome: Syndrome::Ack(_), .. }) => {
                    Counter::IgnoredResponse
                }
                Message::Acknowledge(_) => Counter::IgnoredNak,
                _ => Counter::IgnoredResponse,
            });
            return;
        }
        match headers.message {
            Message::Acknowledge(aeth) => self.on_acknowledge(base, ctx, psn, aeth),
            Message::ReadResponseFirst(_) | Message::ReadResponseMiddle => {
                self.on_read_response(base, ctx, psn, payload, false);
            }
            Message::ReadResponseOnly(_) if self.awaits_confirmation(psn) => {
                self.on_confirmation(base, ctx, psn, payload);
            }
            Message::ReadResponseLast(_) | Message::ReadResponseOnly(_) => {
                self.on_read_response(base, ctx, psn, payload, true);
            }
            Message::AtomicAcknowledge(_, original) => {
                self.on_atomic_response(base, ctx, psn, original);
            }
            _ => ctx.count(Counter::DropUnexpectedOpcode),
        }
    }

    fn learn_credits(&mut self, base: &Base, ctx: &mut Context<'_>, message: &Message) {
        let (Message::Acknowledge(aeth)
        | Message::AtomicAcknowledge(aeth, _)
        | Message::ReadResponseFirst(aeth)
        | Message::ReadResponseLast(aeth)
        | Message::ReadResponseOnly(aeth)) = *message
        else {
            return;
        };
        if self.credit_limit.learn(aeth) {
            ctx.ready.push(base.slot);
        }
    }

    fn on_acknowledge(&mut self, base: &Base, ctx: &mut Context<'_>, psn: Psn, aeth: Aeth) {
        match aeth.syndrome.meaning() {
            Syndrome::Ack(_) => self.on_ack(base, ctx, psn),
            Syndrome::RnrNak(timer) => self.on_rnr_nak(base, ctx, psn, timer),
            Syndrome::Nak(code) => self.on_nak(base, ctx, psn, code),
            Syndrome::Reserved(_) => ctx.count(Counter::IgnoredNak),
        }
    }

    /// The ACK of a probe in place would acknowledge what was sent behind it as well, had that
    /// arrived. Responses and NAKs tell of what is behind in their own way.
    fn on_ack(&mut self, base: &Base, ctx: &mut Context<'_>, psn: Psn) {
        let is_alone = self.clock.has_repeated() && psn == self.oldest;
        self.advance_or_ask_again(base, ctx, psn.next());
        if is_alone && self.next != self.oldest {
            self.note_loss(base, ctx);
            self.clock.sends_again(ctx.now, self.highest);
            self.go_back(base, ctx);
        }
    }

    /// Everything before `target` is acknowledged; but a READ or atomic is finished only by its own
    /// response. Returns whether `target` was reached.
    fn advance(&mut self, base: &Base, ctx: &mut Context<'_>, target: Psn) -> bool {
        let mut at = self.oldest;
        let start = self.index_at(at).unwrap_or(0);
        for entry in self.outstanding.range(start..) {
            if at == target || entry.needs_response() {
                break;
            }
            let within = target.distance_from(entry.first).min(entry.packets);
            at = entry.first.add(within);
        }
        self.progress_to(base, ctx, at);
        at == target
    }

    /// The oldest unacknowledged PSN moves on to `at`.
    fn progress_to(&mut self, base: &Base, ctx: &mut Context<'_>, at: Psn) {
        let Some(peer) = &base.peer else { return };
        if at == self.oldest {
            return;
        }
        let charged_end = if self.next.is_before(at) { self.next } else { at };
        let acknowledged = self.cost_between(self.oldest, charged_end);
        ctx.path(peer.path).grow(acknowledged);
        ctx.release(peer.path, acknowledged);
        self.oldest = at;
        if self.next.is_before(at) {
            self.next = at;
        }
        let waiting = self.is_waiting();
        self.clock.progress(base, ctx, at, waiting);
        ctx.ready.push(base.slot);
    }

    fn on_read_response(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        psn: Psn,
        payload: &[u8],
        ends: bool,
    ) {
        let Some(index) = self.responding_entry(base, ctx, psn, Class::Read) else { return };
        let entry = self.outstanding[index];
        let packet = psn.distance_from(entry.first);
        let piece = entry.shape.piece(packet);
        if payload.len() != piece.length as usize || ends != entry.shape.ends_chunk(packet) {
            ctx.count(Counter::BadResponse);
            let cause = Cause::WrongResponse(WrongResponse {
                psn,
                expected: piece.length,
                received: payload.len() as u32,
                path_mtu: base.mtu(),
                must_end: entry.shape.ends_chunk(packet),
                ends,
            });
            self.fail(base, ctx, index, CompletionStatus::BadResponse, cause);
            return;
        }
        if !payload.is_empty() {
            let segments = segments_of(base, entry.position);
            let written =
                scatter(ctx.keys, base.domain, segments.iter(), piece.offset.into(), payload);
            if written.is_err() {
                let cause = local_fault(base, ctx, entry.position, Access::LOCAL_WRITE);
                self.fail(base, ctx, index, CompletionStatus::LocalProtectionError, cause);
                return;
            }
        }
        if ends {
            self.reads_in_flight = self.reads_in_flight.saturating_sub(1);
        }
        self.progress_to(base, ctx, psn.next());
    }

    fn on_atomic_response(&mut self, base: &Base, ctx: &mut Context<'_>, psn: Psn, original: u64) {
        let Some(index) = self.responding_entry(base, ctx, psn, Class::Atomic) else { return };
        let position = self.outstanding[index].position;
        let segments = segments_of(base, position);
        let value = original.to_ne_bytes();
        if scatter(ctx.keys, base.domain, segments.iter(), 0, &value).is_err() {
            let cause = local_fault(base, ctx, position, Access::LOCAL_WRITE);
            self.fail(base, ctx, index, CompletionStatus::LocalProtectionError, cause);
            return;
        }
        self.reads_in_flight = self.reads_in_flight.saturating_sub(1);
        self.progress_to(base, ctx, psn.next());
    }

    /// Whether an ATOMIC WRITE or a FLUSH owns `psn`: their answer looks like that to an empty READ.
    fn awaits_confirmation(&self, psn: Psn) -> bool {
        let class = self.index_at(psn).map(|index| self.outstanding[index].shape.class);
        matches!(class, Some(Class::AtomicWrite | Class::Flush))
    }

    /// An ATOMIC WRITE or a FLUSH was carried out.
    fn on_confirmation(&mut self, base: &Base, ctx: &mut Context<'_>, psn: Psn, payload: &[u8]) {
        let class = self.index_at(psn).map_or(Class::Flush, |at| self.outstanding[at].shape.class);
        let Some(index) = self.responding_entry(base, ctx, psn, class) else { return };
        if !payload.is_empty() {
            ctx.count(Counter::BadResponse);
            let cause = Cause::WrongResponse(WrongResponse {
                psn,
                expected: 0,
                received: payload.len() as u32,
                path_mtu: base.mtu(),
                must_end: true,
                ends: true,
            });
            self.fail(base, ctx, index, CompletionStatus::BadResponse, cause);
            return;
        }
        self.reads_in_flight = self.reads_in_flight.saturating_sub(1);
        self.progress_to(base, ctx, psn.next());
    }

    /// The outstanding request that a data response at `psn` answers. All before it is thereby
    /// acknowledged, if no response is missing.
    fn responding_entry(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        psn: Psn,
        class: Class,
    ) -> Option<usize> {
        if !self.advance_or_ask_again(base, ctx, psn) {
            return None;
        }
        let index = self.index_at(psn)?;
        let entry = &self.outstanding[index];
        if entry.failure.is_some() {
            return None;
        }
        if entry.shape.class != class {
            ctx.count(Counter::BadResponse);
            let request = packet_kind(&entry.operation);
            let received = match class {
                Class::Atomic => PacketKind::AtomicResponse,
                _ => PacketKind::ReadResponse,
            };
            let cause = Cause::WrongKind { psn, request, received };
            self.fail(base, ctx, index, CompletionStatus::BadResponse, cause);
            return None;
        }
        Some(index)
    }

    /// Advances to `target`; if responses before it are missing, asks for them again. Returns
    /// whether none is missing.
    fn advance_or_ask_again(&mut self, base: &Base, ctx: &mut Context<'_>, target: Psn) -> bool {
        let before = self.oldest;
        if self.advance(base, ctx, target) {
            return true;
        }
        if self.clock.may_step_back(base, ctx, self.oldest, Asked::Implied) {
            ctx.count(Counter::ImpliedNak);
            self.step_back(base, ctx, self.oldest != before);
        } else {
            ctx.count(Counter::IgnoredResponse);
        }
        false
    }

    fn on_nak(&mut self, base: &Base, ctx: &mut Context<'_>, psn: Psn, code: NakCode) {
        let before = self.oldest;
        if !self.advance_or_ask_again(base, ctx, psn) {
            return;
        }
        let status = match code {
            NakCode::PsnSequenceError => {
                self.clock.attempt.asked_again();
                if self.clock.may_step_back(base, ctx, self.oldest, Asked::Explicit) {
                    ctx.count(Counter::PacketSequenceError);
                    self.step_back(base, ctx, self.oldest != before);
                } else {
                    ctx.count(Counter::IgnoredNak);
                }
                return;
            }
            NakCode::InvalidRequest | NakCode::InvalidRdRequest => {
                CompletionStatus::RemoteInvalidRequest
            }
            NakCode::RemoteAccessError => CompletionStatus::RemoteAccessError,
            NakCode::RemoteOperationalError => CompletionStatus::RemoteOperationError,
            NakCode::Reserved(_) => {
                ctx.count(Counter::IgnoredNak);
                return;
            }
        };
        if let Some(index) = self.index_at(psn) {
            let cause = Cause::Refused(self.refused(base, index, psn, code));
            self.fail(base, ctx, index, status, cause);
        }
    }

    /// Goes on from the oldest unacknowledged packet. Uses up a retry, unless the answer that asks
    /// for it also brought progress.
    fn step_back(&mut self, base: &Base, ctx: &mut Context<'_>, progress: bool) {
        if !progress && !self.clock.take_retry() {
            self.unanswered(base, ctx);
            return;
        }
        self.note_loss(base, ctx);
        self.clock.stepped_back(base, ctx, self.oldest, self.highest);
        self.go_back(base, ctx);
    }

    fn note_loss(&self, base: &Base, ctx: &mut Context<'_>) {
        if let Some(peer) = &base.peer {
            let now = ctx.now;
            ctx.path(peer.path).shrink(now);
        }
    }

    /// All retries were in vain.
    #[cold]
    fn unanswered(&mut self, base: &Base, ctx: &mut Context<'_>) {
        ctx.count(Counter::RetryExceeded);
        let Some(index) = self.index_at(self.oldest) else { return };
        let (entry, attempt) = (&self.outstanding[index], &self.clock.attempt);
        let path = base.peer.as_ref().map(|peer| ctx.path(peer.path));
        let unreachable = path.and_then(|path| path.unreachable(attempt.since));
        let cause = Cause::Unanswered(Unanswered {
            kind: packet_kind(&entry.operation),
            first: entry.first,
            last: entry.end().previous(),
            oldest: self.oldest,
            tries: attempt.tries,
            waited: ctx.now - attempt.since,
            timeout: base.attributes.timeout.unwrap_or(0),
            timeout_asked: asked_timeout(&base.attributes).unwrap_or(0),
            timeout_used: ack_timeout(&base.attributes).unwrap_or(0),
            retry_count: base.attributes.retry_count.unwrap_or(0),
            sequence_naks: attempt.sequence_naks,
            outside: attempt.outside,
            outside_psn: attempt.outside_psn,
            acknowledged: self.clock.acknowledged,
            unreachable,
        });
        self.fail(base, ctx, index, CompletionStatus::TransportRetryExceeded, cause);
    }

    /// The receiver was not ready for longer than the retries last.
    #[cold]
    fn never_ready(&mut self, base: &Base, ctx: &mut Context<'_>, psn: Psn, timer: RnrTimer) {
        ctx.count(Counter::RnrRetryExceeded);
        let Some(index) = self.index_at(self.oldest) else { return };
        let attempt = &self.clock.attempt;
        let cause = Cause::NotReady(NotReady {
            kind: packet_kind(&self.outstanding[index].operation),
            psn,
            refusals: attempt.refusals,
            timer,
            retry_count: base.attributes.rnr_retry.unwrap_or(0),
            waited: ctx.now - attempt.refused_since,
        });
        self.fail(base, ctx, index, CompletionStatus::ReceiverNotReadyRetryExceeded, cause);
    }

    /// The facts of a refusal by the peer.
    #[cold]
    fn refused(&self, base: &Base, index: usize, psn: Psn, code: NakCode) -> Refused {
        let entry = &self.outstanding[index];
        Refused {
            code,
            kind: packet_kind(&entry.operation),
            first: entry.first,
            last: entry.end().previous(),
            psn,
            length: entry.shape.length,
            remote: remote_of(&entry.operation),
            path_mtu: base.mtu(),
            reads: self.reads_in_flight,
        }
    }

    fn on_rnr_nak(&mut self, base: &Base, ctx: &mut Context<'_>, psn: Psn, timer: RnrTimer) {
        if !self.advance_or_ask_again(base, ctx, psn) {
            return;
        }
        if self.clock.is_pausing() {
            ctx.count(Counter::IgnoredNak);
            return;
        }
        ctx.count(Counter::ReceivedRnrNak);
        self.clock.attempt.refused(ctx.now);
        if !self.clock.take_rnr_retry(base) {
            return self.never_ready(base, ctx, psn, timer);
        }
        self.go_back(base, ctx);
        self.clock.pause(ctx.now + timer.nanos(), timer.nanos());
    }

    /// When something will be due.
    pub(crate) fn deadline(&self) -> crate::time::Instant {
        self.clock.deadline()
    }

    /// Time has passed; everything that is due happens.
    pub(crate) fn handle_deadline(&mut self, base: &Base, ctx: &mut Context<'_>) {
        loop {
            match self.clock.take_due(ctx.now) {
                Due::Nothing => return,
                Due::RnrOver => {
                    self.record(ctx, TimerKind::NotReady, self.clock.attempt.pause);
                    self.clock.resume_with_one();
                    ctx.ready.push(base.slot);
                }
                Due::Probe => {
                    ctx.count(Counter::Probe);
                    self.record(ctx, TimerKind::Probe, self.clock.probe_interval(base, ctx));
                    self.on_probe(base, ctx);
                }
                Due::AckTimeout => self.on_ack_timeout(base, ctx),
            }
        }
    }

    /// The first time that nothing is heard the answer is more likely late than lost: the oldest
    /// packet asks again, and the answer shows. The responses to READs and atomics are many or
    /// cost much; they are asked for anew, from the one that is missing.
    fn on_probe(&mut self, base: &Base, ctx: &mut Context<'_>) {
        let entry = self.index_at(self.oldest).map(|index| &self.outstanding[index]);
        let is_plain =
            entry.is_some_and(|entry| !entry.needs_response() && entry.failure.is_none());
        let is_under_way = self.next != self.oldest;
        if is_plain && is_under_way && !self.clock.has_repeated() {
            self.clock.probe_in_place(base, ctx);
            ctx.ready.push(base.slot);
        } else {
            self.send_again(base, ctx);
        }
    }

    fn on_ack_timeout(&mut self, base: &Base, ctx: &mut Context<'_>) {
        ctx.count(Counter::LocalAckTimeout);
        let used = ack_timeout(&base.attributes).unwrap_or(0);
        self.record(ctx, TimerKind::AckTimeout, used);
        if !self.clock.take_retry() {
            self.clock.stop();
            return self.unanswered(base, ctx);
        }
        self.send_again(base, ctx);
        self.clock.restart_ack_timeout(base, ctx);
    }

    fn record(&self, ctx: &mut Context<'_>, timer: TimerKind, nanoseconds: u64) {
        ctx.history.ring.timer(ctx.now, timer, nanoseconds, self.oldest);
    }

    /// The oldest packet goes out again and asks for an acknowledgement; the rest follows when the
    /// answer shows what is missing.
    fn send_again(&mut self, base: &Base, ctx: &mut Context<'_>) {
        self.note_loss(base, ctx);
        self.clock.probe(base, ctx);
        self.go_back(base, ctx);
    }
}

/// Where the answer of a READ or atomic goes. Inline data cannot be a target: post refuses it.
fn segments_of(base: &Base, position: u32) -> SegmentList<'_> {
    match base.queues.send.data(position) {
        SendData::Segments(segments) => segments,
        SendData::Inline(words) => SegmentList::new(words, 0),
    }
}
