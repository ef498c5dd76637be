//! The data path: one turn, and its parts.

use super::Engine;
use super::port::Port;
use crate::queue::QueuePairKind;
use crate::queue::sync::Arc;
use crate::time::{Instant, MILLISECOND};
use crate::transport::{ACK_HOLD, Arrival, BurstRules, CE, Context, Counter, QueuePair};
use crate::wire::{
    Bth, Headers, Identification, IdentificationRule, Message, PKey, Packet, ParseError, Qpn,
    ReceivedBurst, SentBurst, Service, Srqn, Transport, Xrceth, icrc,
};

/// What a turn did, and when the next one is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnReport {
    /// Packets received.
    pub received: usize,
    /// Packets sent.
    pub sent: usize,
    /// Another turn has something to do at once: a budget was exhausted, or an acknowledgement
    /// waits for the application's next post.
    pub more: bool,
    /// When the next turn is due if nothing happens; [`Instant::NEVER`] if never.
    pub next_deadline: Instant,
}

/// From one question what ICMP has told to the next at least.
const ASK_PORT: u64 = MILLISECOND;
/// Packets that a turn sends before it receives: bursts until there are so many.
const FIRST: usize = 2;

/// Packets in a row that name the same queue pair, or none that exists.
#[derive(Default)]
struct Run {
    slot: Option<u32>,
    packets: u64,
    bytes: u64,
}

/// In place of the XRC extended header of a packet that cannot be read further.
const NO_QUEUE: Xrceth = Xrceth { reserved: 0, srqn: Srqn::new(0) };

impl Engine {
    /// One turn: doorbells, receive burst, deadlines, transmit burst. `budget` bounds the packets in
    /// each direction.
    ///
    /// One burst of what was posted goes out before anything is received: whoever waits for it
    /// should not wait for that too. If it is one packet a second one may go with it in the same call,
    /// often the acknowledgement of what the application has answered.
    pub fn turn(&mut self, now: Instant, port: &mut dyn Port, budget: usize) -> TurnReport {
        self.turn += 1;
        let rung = self.take_doorbells(now);
        self.release_held();
        let mut sent = if rung && self.has_ready() { self.transmit(now, port, FIRST) } else { 0 };
        self.pressed = port.is_pressed();
        let received = port.receive(budget, &mut |burst| self.handle_burst(now, burst));
        self.note_unreachable(now, port);
        self.handle_deadlines(now);
        sent += self.transmit(now, port, budget.saturating_sub(sent));
        let holds = !self.held.is_empty();
        let hold_end = if holds { now + ACK_HOLD } else { Instant::NEVER };
        TurnReport {
            received,
            sent,
            more: received >= budget || self.has_ready() || holds,
            next_deadline: self.deadlines.next().min(hold_end),
        }
    }

    /// When the next turn is due if nothing happens, held acknowledgements aside.
    pub fn next_deadline(&self) -> Instant {
        self.deadlines.next()
    }

    /// Whether acknowledgements wait for the application's next post: another turn sends them. A
    /// queue pair should not be destroyed before, or its peer repeats what has arrived.
    pub fn holds_replies(&self) -> bool {
        !self.held.is_empty()
    }

    fn transmit(&mut self, now: Instant, port: &mut dyn Port, budget: usize) -> usize {
        port.transmit(budget, &mut |slot| self.poll_transmit(now, slot))
    }

    /// Returns whether there were any.
    fn take_doorbells(&mut self, now: Instant) -> bool {
        let doorbells = Arc::clone(&self.doorbells);
        let mut any = false;
        doorbells.collect(|slot| {
            any = true;
            self.with_pair(slot as u32, now, |pair, ctx| pair.handle_doorbell(ctx));
        });
        any
    }

    /// Acknowledgements that were held during the last turn may leave in this one, behind what the
    /// application has posted since.
    fn release_held(&mut self) {
        while let Some(slot) = self.held.pop() {
            self.ready.push(slot);
        }
    }

    /// Notes what ICMP has told. The port is asked where a timer is due, which may be one of a
    /// request that nobody answers, and not too often.
    fn note_unreachable(&mut self, now: Instant, port: &mut dyn Port) {
        let look = self.deadlines.next() <= now && now.since(self.asked_port) >= ASK_PORT;
        if look {
            self.asked_port = now;
        }
        let paths = &mut self.paths;
        port.take_unreachable(look, &mut |address, kind| {
            // An address without path is one that nobody of ours sends requests to.
            if let Some(path) = paths.find(&address) {
                path.note_unreachable(now, kind);
            }
        });
    }

    fn handle_deadlines(&mut self, now: Instant) {
        while let Some(slot) = self.deadlines.pop_due(now) {
            self.with_pair(slot, now, |pair, ctx| {
                if pair.deadline() <= now {
                    pair.handle_deadline(ctx);
                }
            });
        }
    }

    /// Lends everything around a queue pair for one step, and notes what it wants afterwards. A
    /// slot without queue pair is left alone (a bell can ring as its queue pair ends).
    pub(super) fn with_pair<R>(
        &mut self,
        slot: u32,
        now: Instant,
        step: impl FnOnce(&mut QueuePair, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let pair = self.pairs.get_mut(slot as usize)?.as_mut()?;
        let history = self.histories.get_mut(slot as usize)?.as_mut()?;
        let own_counters = self.pair_counters.get_mut(slot)?;
        let mut ctx = Context {
            now,
            turn: self.turn,
            keys: &mut self.keys,
            paths: &mut self.paths,
            handles: &self.handles,
            congestion: &self.options.congestion,
            shared: &self.shared_queues,
            effects: &mut self.effects,
            counters: &mut self.counters,
            own_counters,
            ready: &mut self.ready,
            history,
        };
        let result = step(pair, &mut ctx);
        if let Some(changed) = &mut self.changed
            && changed.last() != Some(&slot)
        {
            changed.push(slot);
        }
        if pair.holds_reply() {
            self.held.push(slot);
        }
        self.deadlines.set(slot, pair.deadline());
        Some(result)
    }

    /// A burst that has arrived. What is counted for every packet is added up as long as the packets
    /// are for one queue pair.
    pub(crate) fn handle_burst(&mut self, now: Instant, burst: &ReceivedBurst<'_>) {
        let mut known = None;
        let mut run = Run::default();
        for (index, segment) in burst.segments().enumerate() {
            let slot = self.addressed(segment, &mut known);
            if slot != run.slot {
                self.count_run(std::mem::take(&mut run), burst.traffic_class);
                run.slot = slot;
            }
            run.packets += 1;
            run.bytes += segment.len() as u64;
            if let Err(reason) = self.handle_segment(now, burst, index, segment, slot) {
                self.count_for(slot, reason, 1);
                self.record_drop(now, reason, slot, segment);
            }
        }
        self.count_run(run, burst.traffic_class);
    }

    fn count_run(&mut self, run: Run, traffic_class: u8) {
        if run.packets == 0 {
            return;
        }
        self.count_for(run.slot, Counter::ReceivedPackets, run.packets);
        self.count_for(run.slot, Counter::ReceivedBytes, run.bytes);
        if traffic_class & CE == CE {
            self.count_for(run.slot, Counter::ReceivedCongestionMark, run.packets);
        }
    }

    /// A dropped packet is remembered by the queue pair that it seems to be for.
    #[cold]
    fn record_drop(&mut self, now: Instant, reason: Counter, slot: Option<u32>, segment: &[u8]) {
        let Some(bth) = segment.first_chunk().map(Bth::parse) else { return };
        let history = slot.and_then(|slot| self.histories.get_mut(slot as usize)?.as_mut());
        if let Some(history) = history {
            history.ring.dropped_before(now, reason, bth.psn);
        }
    }

    /// The queue pair whose number a packet carries, if there is one. `known` spares the search for
    /// the further packets of a burst.
    #[inline]
    fn addressed(&self, segment: &[u8], known: &mut Option<(Qpn, Option<u32>)>) -> Option<u32> {
        let number = Bth::parse(segment.first_chunk()?).destination;
        if let Some((_, slot)) = known.filter(|(known, _)| *known == number) {
            return slot;
        }
        let slot = self.by_number.get(&number).copied();
        *known = Some((number, slot));
        slot
    }

    /// Counts for the device, and for the queue pair in a slot.
    #[inline]
    pub(super) fn count_for(&mut self, slot: Option<u32>, counter: Counter, amount: u64) {
        self.counters.add(counter, amount);
        if let Some(counters) = slot.and_then(|slot| self.pair_counters.get_mut(slot)) {
            counters.add(counter, amount);
        }
    }

    /// One packet, in the specification's order of checks; what is wrong is a reason to drop it.
    fn handle_segment(
        &mut self,
        now: Instant,
        burst: &ReceivedBurst<'_>,
        index: usize,
        segment: &[u8],
        addressed: Option<u32>,
    ) -> Result<(), Counter> {
        let packet = match Packet::parse(segment) {
            Ok(packet) => packet,
            Err(ParseError::UnknownOpcode) => {
                return self.handle_unsupported(now, burst, index, segment, addressed);
            }
            Err(_) => return Err(Counter::DropMalformed),
        };
        let headers = &packet.headers;
        self.check_icrc(burst, index, segment, addressed)?;
        let arrival =
            Arrival { flow: burst.flow, traffic_class: burst.traffic_class, length: segment.len() };
        if headers.destination == Qpn::MULTICAST && burst.flow.destination.is_multicast() {
            return self.handle_group_packet(now, burst, headers, &arrival, packet.payload);
        }
        let slot = self.admit(burst, addressed, headers.service, headers.pkey)?;
        let marked = burst.traffic_class & CE == CE;
        if marked || self.pressed {
            self.note_congestion(now, slot, headers, &burst.flow, marked);
        }
        self.with_pair(slot, now, |pair, ctx| {
            dispatch(pair, ctx, headers, &arrival, packet.payload)
        })
        .unwrap_or(Err(Counter::DropUnknownQueuePair))
    }

    /// The queue pair that a packet is for, by the number that it carries, if that may receive from
    /// its sender.
    fn admit(
        &self,
        burst: &ReceivedBurst<'_>,
        addressed: Option<u32>,
        service: Service,
        pkey: PKey,
    ) -> Result<u32, Counter> {
        let slot = addressed.ok_or(Counter::DropUnknownQueuePair)?;
        let pair = self.pairs[slot as usize].as_ref().ok_or(Counter::DropUnknownQueuePair)?;
        let kind = pair.base.queues.kind();
        if !fits(service, kind) {
            return Err(Counter::DropWrongTransport);
        }
        if !pair.state().receives() {
            return Err(Counter::DropWrongState);
        }
        if kind == QueuePairKind::Ud {
            if !self.options.gids.contains(&burst.flow.destination) {
                return Err(Counter::DropWrongAddress);
            }
        } else {
            let flow = pair.base.peer.ok_or(Counter::DropWrongState)?.flow;
            if burst.flow.source != flow.destination || burst.flow.destination != flow.source {
                return Err(Counter::DropWrongAddress);
            }
        }
        if !PKey::DEFAULT.admits(pkey) {
            return Err(Counter::DropPkeyMismatch);
        }
        Ok(slot)
    }

    fn check_icrc(
        &mut self,
        burst: &ReceivedBurst<'_>,
        index: usize,
        segment: &[u8],
        addressed: Option<u32>,
    ) -> Result<(), Counter> {
        match icrc::judge(burst, index, segment, self.options.strict) {
            icrc::Verdict::Right => {
                if burst.identification == Identification::Unseen {
                    self.senders.was_right(burst.flow.source);
                }
                Ok(())
            }
            icrc::Verdict::Recovered(_) if !self.senders.may_differ(burst.flow.source) => {
                Err(Counter::DropBadIcrc)
            }
            icrc::Verdict::Recovered(_) => {
                self.count_for(addressed, Counter::RecoveredIdentification, 1);
                Ok(())
            }
            icrc::Verdict::Wrong => Err(Counter::DropBadIcrc),
        }
    }

    /// An unknown opcode is dropped, except that an RC or XRC responder refuses a reserved one of its
    /// own transport where a request was expected.
    fn handle_unsupported(
        &mut self,
        now: Instant,
        burst: &ReceivedBurst<'_>,
        index: usize,
        segment: &[u8],
        addressed: Option<u32>,
    ) -> Result<(), Counter> {
        let bytes = segment.first_chunk().ok_or(Counter::DropMalformed)?;
        let bth = Bth::parse(bytes);
        let service = match Transport::of_byte(bth.opcode) {
            Some(Transport::Rc) => Service::Rc,
            Some(Transport::Xrc) => Service::XrcRequest(NO_QUEUE),
            _ => return Err(Counter::DropUnexpectedOpcode),
        };
        if bth.version != 0 {
            return Err(Counter::DropUnexpectedOpcode);
        }
        self.check_icrc(burst, index, segment, addressed)?;
        let slot = self.admit(burst, addressed, service, bth.pkey).map_err(|reason| {
            let stray = service != Service::Rc && reason == Counter::DropWrongTransport;
            if stray { Counter::DropUnexpectedOpcode } else { reason }
        })?;
        self.with_pair(slot, now, |pair, ctx| pair.handle_unsupported(ctx, bth.psn, bth.opcode));
        Ok(())
    }

    /// Makes the next burst, from the next queue pair in turn that has something to send.
    #[must_use]
    pub(crate) fn poll_transmit(&mut self, now: Instant, slot: &mut [u8]) -> Option<SentBurst> {
        let rules = BurstRules {
            max_segments: self.max_segments,
            identification: self.identification_rule,
        };
        if let Some(burst) = self.emit_notification(slot, rules) {
            return Some(burst);
        }
        while let Some(pair) = self.ready.pop() {
            if self.rests(pair) {
                continue;
            }
            let identification = self.identification;
            let burst = self.with_pair(pair, now, |pair, ctx| {
                pair.poll_transmit(ctx, slot, rules, identification)
            });
            if let Some(burst) = burst.flatten() {
                self.use_up_identifications(burst.packets());
                self.ready.push(pair);
                return Some(burst);
            }
        }
        None
    }

    /// Whether a listed queue pair has nothing to send after all, which is seen much faster than by
    /// asking it for a burst: after the last one of a message, and after an acknowledgement.
    fn rests(&mut self, slot: u32) -> bool {
        let pair = self.pairs.get_mut(slot as usize).and_then(Option::as_mut);
        pair.is_none_or(|pair| pair.rests())
    }

    fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.notifications.is_empty()
    }

    /// So many packets were made, and each has an identification of its own.
    pub(super) fn use_up_identifications(&mut self, packets: usize) {
        if self.identification_rule == IdentificationRule::BasePlusIndex {
            self.identification = self.identification.wrapping_add(packets as u16);
        }
    }
}

/// Whether packets of a service are for queue pairs of a kind.
const fn fits(service: Service, kind: QueuePairKind) -> bool {
    matches!(
        (service, kind),
        (Service::Rc, QueuePairKind::Rc)
            | (Service::Uc, QueuePairKind::Uc)
            | (Service::Ud(_), QueuePairKind::Ud)
            | (Service::XrcRequest(_), QueuePairKind::XrcTarget)
            | (Service::XrcResponse, QueuePairKind::XrcInitiator)
            | (Service::Congestion, _)
    )
}

/// Hands a packet to the half of the queue pair that it is for.
fn dispatch(
    pair: &mut QueuePair,
    ctx: &mut Context<'_>,
    headers: &Headers,
    arrival: &Arrival,
    payload: &[u8],
) -> Result<(), Counter> {
    match headers.message {
        Message::CongestionNotification(_) => pair.handle_congestion(ctx, &arrival.flow.source),
        Message::ReadResponseFirst(_)
        | Message::ReadResponseMiddle
        | Message::ReadResponseLast(_)
        | Message::ReadResponseOnly(_)
        | Message::Acknowledge(_)
        | Message::AtomicAcknowledge(..) => {
            if pair.state() < crate::queue::QueuePairState::Rts {
                return Err(Counter::DropWrongState);
            }
            pair.handle_response(ctx, headers, payload);
        }
        _ => pair.handle_request(ctx, headers, arrival, payload),
    }
    Ok(())
}
