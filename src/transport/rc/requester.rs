//! The requester: turns send work requests into packets, in order.
//!
//! ```text
//!   send queue:   … released │ outstanding (started)        │ posted, not started …
//!   PSNs:           acknowledged │ oldest … next … highest  … end
//!                                  └─ in flight ┘
//! ```
//!
//! `next` moves back to `oldest` for a retransmission (go-back-N); `highest` remembers how far it
//! has been, since answers to what was sent before still count.

use std::collections::VecDeque;

use super::clock::RetryClock;
use super::credit::CreditLimit;
use crate::queue::{CompletionStatus, QueuePairState, SendFlags, SendHead, SendOperation};
use crate::transport::burst::BurstWriter;
use crate::transport::context::{Base, Context};
use crate::transport::counters::Counter;
use crate::transport::history::{Cause, PacketKind};
use crate::transport::local;
use crate::transport::path::cost;
use crate::transport::requests::{
    class_of, consumes_receive, file, message_of, packet_kind, read_payload, unreadable,
};
use crate::transport::segment::{Class, Shape};
use crate::wire::{Headers, Message, Msn, Psn, Reth, Srqn};

/// A work request that has been started: it has its PSNs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// Its position in the send queue.
    pub(super) position: u32,
    pub(super) id: u64,
    pub(super) operation: SendOperation,
    pub(super) flags: SendFlags,
    /// The peer's shared receive queue (XRC).
    pub(super) shared: Srqn,
    pub(super) shape: Shape,
    pub(super) first: Psn,
    pub(super) packets: u32,
    /// Number of its message, by which the responder counts; of a READ, that of its last chunk.
    pub(super) message: Msn,
    /// It will end with this status once all before it are finished; nothing more of it is sent.
    pub(super) failure: Option<CompletionStatus>,
}

impl Outstanding {
    pub(super) fn end(&self) -> Psn {
        self.first.add(self.packets)
    }

    #[inline]
    fn owns(&self, psn: Psn) -> bool {
        psn.distance_from(self.first) < self.packets
    }

    /// Whether its PSNs are finished by responses that carry data, and not by a plain ACK.
    #[inline]
    pub(super) fn needs_response(&self) -> bool {
        self.packets > 0 && self.shape.class.has_response()
    }
}

/// Why nothing can be sent: computed when asked, never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Nothing is posted.
    Idle,
    /// The state starts no new request (SQD), or sends nothing.
    State,
    /// The peer has no receive for it, as far as is known, and one packet that asks is on its way.
    Credits,
    /// The peer asked for a pause.
    ReceiverNotReady,
    /// A probe is on its way; more would be guesswork.
    Probing,
    /// A fenced request waits for earlier READs and atomics.
    Fence,
    /// As many READs and atomics are under way as are allowed.
    ReadLimit,
    /// The window to the destination is full.
    Window,
    /// No more PSNs may be outstanding.
    Span,
    /// A request has failed locally and waits for its turn to say so.
    Failed,
}

/// State of the requester.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(super) outstanding: VecDeque<Outstanding>,
    /// Send queue position of the next request to start.
    pub(super) next_position: u32,
    pub(super) oldest: Psn,
    pub(super) next: Psn,
    pub(super) highest: Psn,
    pub(super) end: Psn,
    /// READ requests and atomics sent and not answered, since the last step back.
    pub(super) reads_in_flight: u32,
    /// Started READs and atomics that are not finished.
    pub(super) unfinished_reads: u32,
    /// Number of the message that was started last.
    last_message: Msn,
    /// How many messages the peer has receives for.
    pub(super) credit_limit: CreditLimit,
    /// Cost sent since a packet last asked for an acknowledgement.
    unasked_cost: u64,
    pub(super) clock: RetryClock,
}

/// The next packet to send.
struct Next {
    index: usize,
    psn: Psn,
    headers: Headers,
    payload: usize,
    offset: u32,
    psns: u32,
    cost: u64,
}

impl Requester {
    /// Idle, with nothing posted before `position` of the send queue.
    pub(crate) fn new(position: u32) -> Self {
        let start = Psn::default();
        Self {
            outstanding: VecDeque::new(),
            next_position: position,
            oldest: start,
            next: start,
            highest: start,
            end: start,
            reads_in_flight: 0,
            unfinished_reads: 0,
            last_message: Msn::default(),
            credit_limit: CreditLimit::default(),
            unasked_cost: 0,
            clock: RetryClock::default(),
        }
    }

    /// Starts at a PSN and at the send queue's present position (RTR to RTS).
    pub(crate) fn begin(&mut self, base: &Base, psn: Psn) {
        *self = Self::new(base.queues.send.tail());
        self.oldest = psn;
        self.next = psn;
        self.highest = psn;
        self.end = psn;
        self.clock.reload(base);
    }

    /// The retries that are left follow a change of their numbers (SQD).
    pub(crate) fn reload_retries(&mut self, base: &Base) {
        self.clock.reload(base);
    }

    /// PSN of the next packet that will be sent for the first time.
    pub(crate) fn next_psn(&self) -> Psn {
        self.highest
    }

    /// Whether all that was started is finished.
    pub(crate) fn is_drained(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Whether everything that was posted has been sent, and nothing shall be sent again.
    #[inline]
    pub(crate) fn is_idle(&self, base: &Base) -> bool {
        self.next == self.end
            && self.next_position == base.queues.send.head()
            && !self.clock.must_repeat()
    }

    /// Whether packets are unacknowledged.
    pub(super) fn is_waiting(&self) -> bool {
        self.oldest != self.highest
    }

    /// The started request that owns `psn`.
    pub(super) fn index_at(&self, psn: Psn) -> Option<usize> {
        // Packets are sent for the newest request and answered for the oldest.
        if self.outstanding.back()?.owns(psn) {
            return Some(self.outstanding.len() - 1);
        }
        let front = self.outstanding.front()?;
        if front.owns(psn) {
            return Some(0);
        }
        let start = front.first;
        let distance = psn.distance_from(start);
        let index =
            self.outstanding.partition_point(|entry| entry.end().distance_from(start) <= distance);
        (index < self.outstanding.len()).then_some(index)
    }

    /// Cost of the packets `from .. to`, which belong to outstanding requests.
    pub(super) fn cost_between(&self, from: Psn, to: Psn) -> u64 {
        let mut total = 0;
        let mut at = from;
        let start = self.index_at(from).unwrap_or(self.outstanding.len());
        for entry in self.outstanding.range(start..) {
            if at == to {
                break;
            }
            let wanted = to.distance_from(entry.first).min(entry.packets);
            let done = at.distance_from(entry.first);
            let bytes = entry.shape.bytes_between(done, wanted);
            total += cost(wanted - done, bytes);
            at = entry.first.add(wanted);
        }
        total
    }

    /// Adds packets to the burst until it or the requester is full. Why it stopped is left to be
    /// computed again.
    pub(crate) fn fill(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        writer: &mut BurstWriter<'_>,
    ) {
        loop {
            let next = match self.next_packet(base, ctx) {
                Ok(next) => next,
                Err(Blocked::Window) => {
                    self.wait_for_window(base, ctx, writer);
                    return;
                }
                Err(_) => return,
            };
            if !writer.fits(&next.headers, next.payload) {
                return;
            }
            let Outstanding { position, operation, .. } = self.outstanding[next.index];
            let gathered = writer.add(&next.headers, next.payload, |target, sum| match operation {
                SendOperation::AtomicWrite { value, .. } => {
                    target.copy_from_slice(&value);
                    debug_assert!(sum.is_none(), "eight bytes are not worth it");
                    Ok(())
                }
                _ => read_payload(base, ctx, position, next.offset, target, sum),
            });
            match gathered {
                Ok(()) => self.sent(base, ctx, &next),
                Err(_) => {
                    let cause = unreadable(base, ctx, position);
                    let status = CompletionStatus::LocalProtectionError;
                    self.fail(base, ctx, next.index, status, cause);
                }
            }
        }
    }

    /// Who has just sent something will be asked again after all others that are ready, and waits
    /// only then: behind those for whom it has left no room.
    fn wait_for_window(&self, base: &Base, ctx: &mut Context<'_>, writer: &BurstWriter<'_>) {
        if let Some(peer) = &base.peer
            && writer.packets() == 0
        {
            ctx.path(peer.path).wait(base.slot);
        }
    }

    /// The next packet, or why there is none.
    fn next_packet(&mut self, base: &Base, ctx: &mut Context<'_>) -> Result<Next, Blocked> {
        let state = base.queues.state();
        if !matches!(state, QueuePairState::Rts | QueuePairState::Sqd) {
            return Err(Blocked::State);
        }
        if self.clock.must_repeat() {
            return self.repetition(base);
        }
        self.clock.may_send(self.next == self.oldest)?;
        while self.next == self.end {
            self.start(base, ctx, state)?;
        }
        let index = self.index_at(self.next).ok_or(Blocked::Idle)?;
        let entry = &self.outstanding[index];
        if entry.failure.is_some() {
            return Err(Blocked::Failed);
        }
        let limit = u32::from(base.attributes.max_rd_atomic.unwrap_or(0));
        if entry.needs_response() && self.reads_in_flight >= limit {
            return Err(Blocked::ReadLimit);
        }
        let packet = self.next.distance_from(entry.first);
        let limited = self.credit_limit.holds(entry, packet, self.oldest);
        if limited && self.next != self.oldest {
            return Err(Blocked::Credits);
        }
        let mut next = build(base, entry, index, packet, self.next);
        next.cost = self.cost_of(entry, packet, next.psns);
        let fills = self.check_window(base, ctx, next.cost)?;
        next.headers.ack_request |= (fills || limited) && !entry.needs_response();
        Ok(next)
    }

    /// The oldest packet, which goes out once more and asks whether it had arrived. It has its place in the
    /// window already.
    fn repetition(&self, base: &Base) -> Result<Next, Blocked> {
        let psn = self.oldest;
        let index = self.index_at(psn).ok_or(Blocked::Idle)?;
        let entry = &self.outstanding[index];
        if entry.failure.is_some() {
            return Err(Blocked::Failed);
        }
        let mut next = build(base, entry, index, psn.distance_from(entry.first), psn);
        next.headers.ack_request = true;
        Ok(next)
    }

    fn cost_of(&self, entry: &Outstanding, packet: u32, psns: u32) -> u64 {
        cost(psns, entry.shape.bytes_between(packet, packet + psns))
    }

    /// Whether the window takes the next packet; and if it does, whether that packet should ask for
    /// an acknowledgement: it fills the window, or a quarter of one went out without asking.
    fn check_window(&self, base: &Base, ctx: &mut Context<'_>, cost: u64) -> Result<bool, Blocked> {
        let Some(peer) = &base.peer else { return Err(Blocked::State) };
        let path = ctx.path(peer.path);
        // One packet of a queue pair may always be under way.
        if !path.has_room(cost) && self.next != self.oldest {
            return Err(Blocked::Window);
        }
        let fills = !path.has_room(cost + cost);
        Ok(fills || self.unasked_cost + cost > path.window() / 4 || self.clock.asks())
    }

    /// Gives the next posted request its PSNs.
    fn start(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        state: QueuePairState,
    ) -> Result<(), Blocked> {
        if self.outstanding.back().is_some_and(|entry| entry.failure.is_some()) {
            return Err(Blocked::Failed);
        }
        if self.next_position == base.queues.send.head() {
            return Err(Blocked::Idle);
        }
        if state != QueuePairState::Rts {
            return Err(Blocked::State);
        }
        let head = base.queues.send.read(self.next_position);
        if head.flags.fence && self.is_fenced(&head.operation) {
            return Err(Blocked::Fence);
        }
        let (mut entry, mut cause) = self.entry_for(base, &head);
        let span = self.end.distance_from(self.oldest) + entry.packets;
        if span > Psn::MAX_SPAN {
            return Err(Blocked::Span);
        }
        let failed = local::carry_out(base, ctx, &head.operation);
        if let (None, Some((status, found))) = (entry.failure, failed) {
            entry.failure = Some(status);
            cause = Some(found);
        }
        if let (Some(status), Some(cause)) = (entry.failure, cause) {
            file(base, ctx, (entry.position, entry.id, &entry.operation), status, cause);
        }
        self.unfinished_reads += u32::from(entry.needs_response());
        self.end = entry.end();
        self.last_message = entry.message;
        self.next_position = self.next_position.wrapping_add(1);
        if self.outstanding.capacity() == 0 {
            // From the first one on there is room for all that can be posted.
            self.outstanding.reserve(base.queues.send.capacity() as usize);
        }
        self.outstanding.push_back(entry);
        Ok(())
    }

    /// A fence waits for READs and atomics; that of a local invalidation for everything.
    fn is_fenced(&self, operation: &SendOperation) -> bool {
        match operation {
            SendOperation::LocalInvalidate(_) => !self.outstanding.is_empty(),
            _ => self.unfinished_reads > 0,
        }
    }

    /// A posted request with its PSNs, and why it cannot start if it cannot.
    fn entry_for(&self, base: &Base, head: &SendHead) -> (Outstanding, Option<Cause>) {
        let class = class_of(&head.operation);
        let length = class.length(head.length);
        let shape = Shape { class, length, mtu: base.mtu(), chunk: base.chunk };
        let refused = refusal(base, &shape, packet_kind(&head.operation));
        let failure = refused.map(|(status, _)| status);
        let entry = Outstanding {
            position: self.next_position,
            id: head.id,
            operation: head.operation,
            flags: head.flags,
            shared: head.shared,
            shape,
            first: self.end,
            message: Msn::new(self.last_message.value().wrapping_add(shape.messages())),
            packets: if failure.is_some() { 0 } else { shape.packets() },
            failure,
        };
        (entry, refused.map(|(_, cause)| cause))
    }

    fn sent(&mut self, base: &Base, ctx: &mut Context<'_>, next: &Next) {
        let Some(peer) = &base.peer else { return };
        if self.clock.must_repeat() {
            return self.sent_once_more(ctx, next);
        }
        ctx.path(peer.path).charge(next.cost);
        ctx.count(Counter::SentPackets);
        let again = self.next.is_before(self.highest);
        if again {
            ctx.count(Counter::RetransmittedPackets);
        }
        self.unasked_cost += next.cost;
        if next.headers.ack_request {
            self.unasked_cost = 0;
        }
        let entry = &self.outstanding[next.index];
        let needs_response = entry.needs_response();
        self.reads_in_flight += u32::from(needs_response);
        let psn = self.next;
        let kind = PacketKind::of(&next.headers.message);
        ctx.history.sent(ctx.now, kind, psn, next.psns, again);
        self.clock.attempt.sent(psn == self.oldest);
        self.next = psn.add(next.psns);
        if self.highest.is_before(self.next) {
            self.highest = self.next;
        }
        let answered = next.headers.ack_request || needs_response;
        self.clock.sent(base, ctx, psn, answered && !again);
    }

    fn sent_once_more(&mut self, ctx: &mut Context<'_>, next: &Next) {
        ctx.count(Counter::SentPackets);
        ctx.count(Counter::RetransmittedPackets);
        let kind = PacketKind::of(&next.headers.message);
        ctx.history.sent(ctx.now, kind, next.psn, next.psns, true);
        self.clock.attempt.sent(true);
        self.clock.repeated();
    }

    /// Steps back to the oldest unacknowledged packet. What is in flight counts as lost.
    pub(super) fn go_back(&mut self, base: &Base, ctx: &mut Context<'_>) {
        let Some(peer) = &base.peer else { return };
        let lost = self.cost_between(self.oldest, self.next);
        ctx.release(peer.path, lost);
        self.next = self.oldest;
        self.reads_in_flight = 0;
        self.unasked_cost = 0;
        self.clock.forget_sample();
        self.clock.forget_repetition();
        ctx.ready.push(base.slot);
    }

    /// The request at `index` has failed; it says so when its turn comes.
    #[cold]
    pub(super) fn fail(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        index: usize,
        status: CompletionStatus,
        cause: Cause,
    ) {
        let Some(entry) = self.outstanding.get_mut(index) else { return };
        if entry.failure.is_none() {
            entry.failure = Some(status);
            file(base, ctx, (entry.position, entry.id, &entry.operation), status, cause);
        }
    }

    /// Where in the send queue the request is whose turn it is.
    pub(crate) fn position(&self) -> Option<u32> {
        Some(self.outstanding.front()?.position)
    }

    /// The status of the request whose turn it is, if it has failed.
    pub(crate) fn due_failure(&self) -> Option<CompletionStatus> {
        self.outstanding.front()?.failure
    }
}

/// Why a request cannot even start.
fn refusal(base: &Base, shape: &Shape, kind: PacketKind) -> Option<(CompletionStatus, Cause)> {
    let length = shape.length;
    match shape.class {
        Class::Atomic if length != 8 => {
            Some((CompletionStatus::LocalLengthError, Cause::AtomicLength { length }))
        }
        class if class.has_response() && base.attributes.max_rd_atomic.unwrap_or(0) == 0 => {
            Some((CompletionStatus::LocalQueuePairOperationError, Cause::NoReads { kind }))
        }
        _ if shape.packets() > Psn::MAX_SPAN => {
            let cause = Cause::TooManyPackets { length, path_mtu: shape.mtu };
            Some((CompletionStatus::LocalLengthError, cause))
        }
        _ => None,
    }
}

/// Packet `packet` of a request. Its cost is filled in by the caller.
fn build(base: &Base, entry: &Outstanding, index: usize, packet: u32, psn: Psn) -> Next {
    if let SendOperation::Read(remote) = entry.operation {
        let part = entry.shape.read_part(packet);
        let reth = Reth {
            address: remote.address.wrapping_add(part.offset.into()),
            key: remote.key,
            length: part.length,
        };
        let headers = base.request(entry.shared, Message::ReadRequest(reth), psn);
        return Next { index, psn, headers, payload: 0, offset: 0, psns: part.packets, cost: 0 };
    }
    let piece = entry.shape.piece(packet);
    let message = message_of(&entry.operation, entry.shape.length, &piece);
    let mut headers = base.request(entry.shared, message, psn);
    let is_atomic = entry.shape.class == Class::Atomic;
    headers.ack_request = piece.last && !entry.shape.class.has_response();
    headers.solicited = piece.last && entry.flags.solicited && consumes_receive(&entry.operation);
    let payload = if is_atomic { 0 } else { piece.length as usize };
    Next { index, psn, headers, payload, offset: piece.offset, psns: 1, cost: 0 }
}
