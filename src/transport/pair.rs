//! A queue pair: its attributes, and the two halves that work for it.

use std::net::IpAddr;

use super::burst::{BurstRules, BurstWriter};
use super::congestion::{CongestionOptions, FlowRate, Notification, Notified, Pacer};
use super::context::{Base, Context, Peer};
use super::counters::Counter;
use super::effects::AsyncEvent;
use super::fault::{Fault, FaultEvent};
use super::halves::{ReceivingHalf, SendingHalf};
use super::history::{FlushCause, PacketKind, Told};
use super::rc::{Outcome, QueueOverrun};
use super::settings::{Device, check_values, merge};
use super::shared::Target;
use super::table::{self, ModifyError};
use super::unacked::Arrival;
use crate::memory::DomainId;
use crate::queue::sync::Arc;
use crate::queue::{
    CompletionKind, CompletionStatus, PathMtu, QueuePairAttributes, QueuePairKind, QueuePairQueues,
    QueuePairState, ReceiveQueue, XrcDomainId,
};
use crate::time::Instant;
use crate::wire::{Flow, Headers, Message, NakCode, Psn, SentBurst, Service, Xrceth};

/// READ requests ask for at most so many bytes, rounded down to a multiple of the path MTU (which
/// divides it). The window decides when the next chunk starts.
const READ_CHUNK: u32 = 64 * 1024;

/// See the module's text.
pub(crate) struct QueuePair {
    pub(crate) base: Base,
    sending: SendingHalf,
    receiving: ReceivingHalf,
    /// The last burst held requests: replies may go before the next ones.
    requested_last: bool,
    /// The event for the end of draining is still owed.
    drain_event_owed: bool,
    /// The peer has been heard in RTR.
    established: bool,
    /// The rate of what goes to the peer, once it has sent congestion notifications (where the
    /// transport acknowledges; elsewhere the path has it).
    pacer: Pacer,
    /// When the peer was last notified of congestion.
    notified: Notified,
}

impl QueuePair {
    pub(crate) fn new(
        slot: u32,
        queues: Arc<QueuePairQueues>,
        domain: DomainId,
        signal_all: bool,
        migration: bool,
        source_port: u16,
        xrc_domain: Option<XrcDomainId>,
    ) -> Self {
        let kind = queues.kind();
        let base = Base {
            slot,
            queues,
            domain,
            signal_all,
            migration,
            finite_credits: false,
            attributes: QueuePairAttributes::default(),
            chunk: READ_CHUNK,
            peer: None,
            source_port,
            xrc_domain,
            target: Target::Own,
        };
        Self {
            base,
            sending: SendingHalf::new(kind, 0),
            receiving: ReceivingHalf::new(kind),
            requested_last: false,
            drain_event_owed: false,
            established: false,
            pacer: Pacer::default(),
            notified: Notified::default(),
        }
    }

    pub(crate) fn state(&self) -> QueuePairState {
        self.base.queues.state()
    }

    /// Changes attributes, all or none.
    pub(crate) fn modify(
        &mut self,
        ctx: &mut Context<'_>,
        device: &Device<'_>,
        attributes: &QueuePairAttributes,
    ) -> Result<(), ModifyError> {
        let from = self.state();
        let to = table::check(self.base.queues.kind(), from, attributes)?;
        check_values(device, attributes)?;
        if to == QueuePairState::Reset {
            self.reset(ctx);
            return Ok(());
        }
        if to == QueuePairState::Error {
            ctx.history.flushed_by(FlushCause::Modified { from });
            self.enter_error(ctx, None, None);
            self.receiving.forget_replies();
            return Ok(());
        }
        merge(&mut self.base.attributes, attributes);
        if self.base.queues.kind() == QueuePairKind::Ud {
            // A datagram is one packet of any size that the interface carries.
            self.base.attributes.path_mtu = Some(PathMtu::largest_within(device.mtu));
        }
        if attributes.address.is_some() {
            self.resolve_peer(ctx, device);
        }
        if attributes.retry_count.is_some() || attributes.rnr_retry.is_some() {
            self.sending.reload_retries(&self.base);
        }
        match (from, to) {
            (QueuePairState::Init, QueuePairState::Rtr) => {
                self.receiving.begin(attributes.receive_psn.unwrap_or_default());
            }
            (QueuePairState::Rtr, QueuePairState::Rts) => {
                self.sending.begin(&self.base, attributes.send_psn.unwrap_or_default());
            }
            (QueuePairState::Rts, QueuePairState::Sqd) => {
                self.drain_event_owed = attributes.drain_notification == Some(true);
            }
            (QueuePairState::Sqe, QueuePairState::Rts) => ctx.history.recovered(),
            _ => {}
        }
        self.change_state(ctx, to);
        ctx.ready.push(self.base.slot);
        self.settle(ctx);
        Ok(())
    }

    fn resolve_peer(&mut self, ctx: &mut Context<'_>, device: &Device<'_>) {
        let Some(address) = self.base.address().copied() else { return };
        let Some(source) = device.gids.get(usize::from(address.gid_index)).copied() else { return };
        let other = self.base.attributes.destination.unwrap_or_default();
        let flow = Flow {
            source,
            destination: address.destination,
            source_port: device.source_port(self.base.number(), other),
        };
        self.leave_path(ctx);
        let path = ctx.paths.join(address.destination);
        let traffic_class = ctx.congestion.traffic_class(address.traffic_class);
        self.base.peer = Some(Peer { flow, traffic_class, path });
    }

    /// Gives the path back with everything that is charged to it.
    pub(crate) fn leave_path(&mut self, ctx: &mut Context<'_>) {
        let Some(peer) = self.base.peer else { return };
        self.sending.uncharge(&self.base, ctx);
        self.base.peer = None;
        ctx.paths.leave(peer.path, self.base.slot);
    }

    fn reset(&mut self, ctx: &mut Context<'_>) {
        let kind = self.base.queues.kind();
        self.sending.give_up(&self.base, ctx);
        self.leave_path(ctx);
        ctx.keys.unbind_all_over(self.base.number());
        self.base.queues.set_state(QueuePairState::Reset);
        self.base.queues.send.clear();
        if !self.base.queues.shares_receives() {
            self.base.queues.receive.clear();
        }
        self.base.attributes = QueuePairAttributes::default();
        self.sending = SendingHalf::new(kind, self.base.queues.send.tail());
        self.receiving.forget_claim(&self.base);
        self.receiving = ReceivingHalf::new(kind);
        self.base.target = Target::Own;
        self.requested_last = false;
        self.drain_event_owed = false;
        self.established = false;
        self.pacer = Pacer::default();
        self.notified = Notified::default();
        ctx.history.clear();
    }

    fn change_state(&self, ctx: &mut Context<'_>, to: QueuePairState) {
        let from = self.state();
        if from != to {
            ctx.history.ring.state(ctx.now, from, to);
            self.base.queues.set_state(to);
        }
    }

    /// The bell was rung: something was posted.
    pub(crate) fn handle_doorbell(&mut self, ctx: &mut Context<'_>) {
        match self.state() {
            QueuePairState::Error => self.flush_posted(ctx),
            QueuePairState::Sqe => {
                // A queue that has no room was reported when it overran.
                let _ = self.sending.flush_posted(&self.base, ctx);
            }
            state if state >= QueuePairState::Rts => ctx.ready.push(self.base.slot),
            _ => {}
        }
    }

    fn flush_posted(&mut self, ctx: &mut Context<'_>) {
        // A queue that has no room was reported when it overran.
        let _ = self.sending.flush_posted(&self.base, ctx);
        self.receiving.flush(&self.base, ctx, None);
    }

    /// A request of the peer, in a state that receives.
    pub(crate) fn handle_request(
        &mut self,
        ctx: &mut Context<'_>,
        headers: &Headers,
        arrival: &Arrival,
        payload: &[u8],
    ) {
        self.note_first_packet(ctx);
        ctx.history.begin_step();
        let kind = PacketKind::of(&headers.message);
        ctx.history.received(ctx.now, kind, headers.psn, payload.len());
        count_request(ctx, &headers.message);
        if let Service::XrcRequest(Xrceth { srqn, .. }) = headers.service {
            self.base.target = ctx.shared.target(srqn, self.base.xrc_domain);
        }
        let outcome = self.receiving.handle_request(&self.base, ctx, headers, arrival, payload);
        self.act_on(ctx, outcome);
    }

    /// A request with an opcode that does not exist, in a state that receives.
    pub(crate) fn handle_unsupported(&mut self, ctx: &mut Context<'_>, psn: Psn, opcode: u8) {
        self.note_first_packet(ctx);
        ctx.history.begin_step();
        ctx.history.received(ctx.now, PacketKind::Other, psn, 0);
        let outcome = self.receiving.handle_unsupported(ctx, psn, opcode);
        self.act_on(ctx, outcome);
    }

    fn note_first_packet(&mut self, ctx: &mut Context<'_>) {
        if !self.established && self.state() == QueuePairState::Rtr {
            ctx.event(AsyncEvent::CommunicationEstablished(self.base.number()));
        }
        self.established = true;
    }

    fn act_on(&mut self, ctx: &mut Context<'_>, outcome: Outcome) {
        match outcome {
            Outcome::Fine => {}
            Outcome::Fault(fault) => self.on_fault(ctx, fault),
            Outcome::Overrun => self.on_overrun(ctx),
        }
        if self.receiving.owes_urgent() {
            ctx.ready.push(self.base.slot);
        }
    }

    /// The peer's request was faulty: the NAK is noted, everything else ends.
    fn on_fault(&mut self, ctx: &mut Context<'_>, fault: Fault) {
        let number = self.base.number();
        if fault.nak() == NakCode::RemoteAccessError {
            ctx.count(Counter::ResponderAccessError);
        }
        match fault.event() {
            FaultEvent::None => {}
            FaultEvent::RequestError => ctx.event(AsyncEvent::RequestError(number)),
            FaultEvent::Fatal => ctx.event(AsyncEvent::QueuePairFatal(number)),
            FaultEvent::AccessError => ctx.event(AsyncEvent::AccessError(number)),
            FaultEvent::InvalidXrceth => ctx.event(AsyncEvent::InvalidXrceth(number)),
            FaultEvent::XrcDomainViolation => ctx.event(AsyncEvent::XrcDomainViolation(number)),
        }
        self.file(ctx, fault.receive_status(), Some(fault.nak()));
        self.enter_error(ctx, None, fault.receive_status());
        ctx.ready.push(self.base.slot);
    }

    /// Takes down why the connection ends, and who is told: the receive that the message has
    /// claimed, or else the application by an event.
    fn file(
        &mut self,
        ctx: &mut Context<'_>,
        status: Option<CompletionStatus>,
        answered: Option<NakCode>,
    ) {
        let id = status.and_then(|_| self.receiving.claimed());
        let kind = status.map(|_| CompletionKind::Receive);
        ctx.file_found(&self.base, Told { status, id, kind, answered });
    }

    fn on_overrun(&mut self, ctx: &mut Context<'_>) {
        self.file(ctx, None, None);
        ctx.event(AsyncEvent::QueuePairFatal(self.base.number()));
        self.flush(ctx, None, None);
        self.receiving.forget_replies();
    }

    /// An answer of the peer, in a state that sends.
    pub(crate) fn handle_response(
        &mut self,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: &[u8],
    ) {
        ctx.history.answered(ctx.now, headers, payload.len());
        self.sending.handle_response(&self.base, ctx, headers, payload);
        self.settle(ctx);
    }

    /// The network, by way of the host at `from`, asks us to send less.
    pub(crate) fn handle_congestion(&mut self, ctx: &mut Context<'_>, from: &IpAddr) {
        ctx.history.ring.congestion(ctx.now);
        let heeded = ctx.congestion.roce_rp && self.slow_down(ctx, from);
        ctx.count(match heeded {
            true => Counter::ReceivedCongestionNotification,
            false => Counter::IgnoredCongestionNotification,
        });
    }

    /// Returns whether there is anything that sends to `from`.
    fn slow_down(&mut self, ctx: &mut Context<'_>, from: &IpAddr) -> bool {
        let (now, options) = (ctx.now, ctx.congestion);
        if self.base.queues.kind().is_reliable() {
            self.pacer.notify(now, options);
            return true;
        }
        let path = ctx.paths.find(from);
        path.map(|path| path.pace.notify(now, options)).is_some()
    }

    /// Where to notify the peer of congestion, and when that was last done; nothing if this is no
    /// connection.
    pub(crate) fn notification(&mut self) -> Option<(Notification, &mut Notified)> {
        let flow = self.base.peer?.flow;
        let destination = self.base.attributes.destination?;
        let slot = self.base.slot;
        Some((Notification { slot, flow, destination }, &mut self.notified))
    }

    /// The rate to which congestion notifications have brought this queue pair; nothing if it is
    /// not limited, or only by its destinations.
    pub(crate) fn rate(&self, now: Instant, options: &CongestionOptions) -> Option<FlowRate> {
        self.pacer.rate(now, options)
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.sending.deadline().min(self.pacer.deadline())
    }

    pub(crate) fn handle_deadline(&mut self, ctx: &mut Context<'_>) {
        if self.pacer.take_due(ctx.now) {
            ctx.ready.push(self.base.slot);
        }
        self.sending.handle_deadline(&self.base, ctx);
        self.settle(ctx);
    }

    /// Completes what is finished and acts on what has failed.
    fn settle(&mut self, ctx: &mut Context<'_>) {
        if let Err(QueueOverrun) = self.sending.complete_finished(&self.base, ctx) {
            self.on_overrun(ctx);
        } else if let Some(status) = self.sending.due_failure() {
            self.on_send_failure(ctx, status);
        }
        let drained = self.state() == QueuePairState::Sqd && !self.is_draining();
        if drained && std::mem::take(&mut self.drain_event_owed) {
            ctx.event(AsyncEvent::SendQueueDrained(self.base.number()));
        }
    }

    /// A send request has failed. Without acknowledgements only the send queue stops, and modify
    /// brings it back (SQE); with them the connection is over.
    fn on_send_failure(&mut self, ctx: &mut Context<'_>, status: CompletionStatus) {
        ctx.history.settle_on(self.sending.position());
        if self.base.queues.kind().is_reliable() {
            self.enter_error(ctx, Some(status), None);
            self.receiving.forget_replies();
            return;
        }
        self.change_state(ctx, QueuePairState::Sqe);
        if self.sending.flush(&self.base, ctx, Some(status)).is_err() {
            self.on_overrun(ctx);
        }
    }

    /// As [`Self::flush`]; if that finds no room for completions, an event says so.
    fn enter_error(
        &mut self,
        ctx: &mut Context<'_>,
        send: Option<CompletionStatus>,
        receive: Option<CompletionStatus>,
    ) {
        if !self.flush(ctx, send, receive) {
            ctx.event(AsyncEvent::QueuePairFatal(self.base.number()));
        }
    }

    /// Into error, and both queues are flushed: the oldest send ends with `send`, the oldest receive
    /// with `receive`, if given. Replies that are owed stay. Returns whether there was room for all
    /// completions.
    fn flush(
        &mut self,
        ctx: &mut Context<'_>,
        send: Option<CompletionStatus>,
        receive: Option<CompletionStatus>,
    ) -> bool {
        let before = self.state();
        self.change_state(ctx, QueuePairState::Error);
        let sends = self.sending.flush(&self.base, ctx, send);
        let receives = self.receiving.flush(&self.base, ctx, receive);
        if before != QueuePairState::Error && self.base.queues.shares_receives() {
            // From here on this queue pair takes nothing from the shared queue (o11-5.2.5).
            ctx.event(AsyncEvent::LastReceiveReached(self.base.number()));
        }
        sends.is_ok() && receives
    }

    /// Fills the slot with one burst, if there is something to send.
    pub(crate) fn poll_transmit(
        &mut self,
        ctx: &mut Context<'_>,
        slot: &mut [u8],
        rules: BurstRules,
        identification: u16,
    ) -> Option<SentBurst> {
        let mut writer = BurstWriter::new(slot, rules, identification);
        if let Some(peer) = &self.base.peer {
            writer.bind(&peer.flow, peer.traffic_class);
        }
        let budget = self.pacer.budget(ctx.now, ctx.congestion);
        let may_send = budget.is_some();
        writer.limit(budget.unwrap_or(0));
        // Acknowledgements are free: a debt of them could keep our own requests back for long.
        let pays = self.pacer.is_limited() && self.receiving.owes_payload();
        let reply_first = self.requested_last && self.receiving.has_reply(ctx);
        if !reply_first && may_send {
            self.sending.fill(&self.base, ctx, &mut writer);
            self.requested_last = writer.packets() > 0;
        }
        if writer.packets() == 0 && (may_send || !self.receiving.owes_payload()) {
            let filled = self.receiving.fill(&self.base, ctx, &mut writer);
            self.requested_last = false;
            if let Err(fault) = filled {
                self.on_fault(ctx, fault);
            }
        }
        if writer.packets() == 0 && reply_first && may_send {
            self.sending.fill(&self.base, ctx, &mut writer);
            self.requested_last = writer.packets() > 0;
        }
        if self.pacer.is_limited() && (self.requested_last || pays) {
            self.pacer.charge(writer.on_the_line(), ctx.congestion);
        }
        self.settle(ctx);
        let burst = writer.finish()?;
        ctx.add(Counter::SentBytes, burst.length as u64);
        Some(burst)
    }

    /// The queue pair ends: the receive of a message that is still arriving gives no completion, and
    /// takes up its entry of a shared queue no longer.
    pub(crate) fn forget_claim(&mut self) {
        self.receiving.forget_claim(&self.base);
    }

    /// A shared receive queue ends: what it gave to a message that is still arriving is forgotten.
    pub(crate) fn leave_shared_queue(&mut self, queue: &Arc<ReceiveQueue>) {
        self.receiving.forget_claim_from(queue);
        self.base.target = Target::Own;
    }

    /// Whether there is nothing to send, and will not be before something else happens to the queue
    /// pair. Then it does not matter any more what went last.
    #[inline]
    pub(crate) fn rests(&mut self) -> bool {
        let rests = self.sending.is_idle(&self.base) && !self.receiving.owes_reply();
        self.requested_last &= !rests;
        rests
    }

    /// Whether a reply is owed that may leave as soon as the application had its chance.
    pub(crate) fn holds_reply(&self) -> bool {
        let is_paced = self.pacer.holds() && self.receiving.owes_payload();
        self.receiving.owes_reply() && !is_paced
    }

    /// What `query` shows.
    pub(crate) fn attributes(&self) -> QueuePairAttributes {
        let state = self.state();
        QueuePairAttributes {
            state: Some(state),
            current_state: Some(state),
            send_psn: self.base.attributes.send_psn.map(|_| self.sending.next_psn()),
            receive_psn: self
                .base
                .attributes
                .receive_psn
                .and_then(|_| self.receiving.expected_psn()),
            ..self.base.attributes
        }
    }

    /// Whether messages are still under way after a transition to SQD.
    pub(crate) fn is_draining(&self) -> bool {
        self.state() == QueuePairState::Sqd && !self.sending.is_drained()
    }

    /// Panics if the state contradicts itself; for tests.
    pub(crate) fn check_invariants(&self) {
        self.sending.check_invariants();
    }

    /// The cost that this queue pair has under way on its path.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sending.in_flight()
    }
}

/// Counts a request of the peer by its kind; a message counts with its first packet.
fn count_request(ctx: &mut Context<'_>, message: &Message) {
    match message {
        Message::WriteFirst(_) | Message::WriteOnly(..) => {
            ctx.count(Counter::ReceivedWriteRequest);
        }
        Message::ReadRequest(_) => ctx.count(Counter::ReceivedReadRequest),
        Message::CompareSwap(_) | Message::FetchAdd(_) => {
            ctx.count(Counter::ReceivedAtomicRequest);
        }
        Message::AtomicWrite(_) => ctx.count(Counter::ReceivedAtomicWriteRequest),
        Message::Flush(..) => ctx.count(Counter::ReceivedFlushRequest),
        _ => {}
    }
}
