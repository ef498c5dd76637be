//! The sender of UC and UD: work requests become packets in order, and are done when the last is in
//! the link's slot.

use crate::queue::{CompletionStatus, QueuePairState, SendFlags, SendHead, SendOperation};
use crate::time::Instant;
use crate::transport::burst::{BurstWriter, packet_size};
use crate::transport::congestion::on_the_line;
use crate::transport::context::{Base, Context, Peer};
use crate::transport::counters::Counter;
use crate::transport::history::{Cause, PacketKind};
use crate::transport::local;
use crate::transport::path::cost;
use crate::transport::rc::QueueOverrun;
use crate::transport::requests::{
    class_of, complete_send, consumes_receive, count_finished, file, message_of, read_payload,
    release, unreadable,
};
use crate::transport::segment::{Class, Shape};
use crate::wire::{Deth, Headers, Message, Psn, Qpn, SendTail, Service};

/// The request that is being sent.
#[derive(Clone, Copy, Debug)]
struct Sending {
    position: u32,
    id: u64,
    operation: SendOperation,
    flags: SendFlags,
    shape: Shape,
    packet: u32,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Sender {
    next_position: u32,
    psn: Psn,
    sending: Option<Sending>,
    /// The request at the front has failed with this.
    failure: Option<CompletionStatus>,
    /// Nothing goes out before.
    paced_until: Option<Instant>,
    overrun: bool,
}

impl Sender {
    pub(crate) fn new(position: u32) -> Self {
        Self {
            next_position: position,
            psn: Psn::default(),
            sending: None,
            failure: None,
            paced_until: None,
            overrun: false,
        }
    }

    /// Starts at a PSN (RTR to RTS).
    pub(crate) fn begin(&mut self, base: &Base, psn: Psn) {
        *self = Self { psn, ..Self::new(base.queues.send.tail()) };
    }

    /// PSN of the next packet.
    pub(crate) fn next_psn(&self) -> Psn {
        self.psn
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.sending.is_none()
    }

    /// Whether everything that was posted has been sent.
    #[inline]
    pub(crate) fn is_idle(&self, base: &Base) -> bool {
        self.sending.is_none() && self.next_position == base.queues.send.head()
    }

    pub(crate) fn due_failure(&self) -> Option<CompletionStatus> {
        self.failure
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.paced_until.unwrap_or(Instant::NEVER)
    }

    pub(crate) fn handle_deadline(&mut self, base: &Base, ctx: &mut Context<'_>) {
        if self.paced_until.is_some_and(|until| until <= ctx.now) {
            self.paced_until = None;
            ctx.ready.push(base.slot);
        }
    }

    /// Whether the completion queue has had no room.
    pub(crate) fn take_overrun(&mut self) -> bool {
        std::mem::take(&mut self.overrun)
    }

    /// Adds packets to the burst until it is full, or nothing may be sent.
    pub(crate) fn fill(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        writer: &mut BurstWriter<'_>,
    ) {
        while let Some(sending) = self.current(base, ctx) {
            if sending.shape.class == Class::Local {
                self.finish(base, ctx, &sending);
                continue;
            }
            let Some((headers, payload, peer)) = self.build(base, ctx, &sending) else {
                let status = CompletionStatus::LocalQueuePairOperationError;
                return self.fail(base, ctx, &sending, status, Cause::NoAddressHandle);
            };
            let piece = sending.shape.piece(sending.packet);
            if !writer.bind(&peer.flow, peer.traffic_class) || !writer.fits(&headers, payload) {
                return;
            }
            let price = cost(1, payload as u64);
            let bytes = packet_size(&headers, payload);
            let bytes = on_the_line(bytes, 1, peer.flow.destination.is_ipv6());
            let (now, options) = (ctx.now, ctx.congestion);
            if let Err(until) = ctx.path(peer.path).pace.pay(now, options, price, bytes) {
                self.paced_until = Some(until);
                return;
            }
            let gathered = writer.add(&headers, payload, |target, sum| {
                read_payload(base, ctx, sending.position, piece.offset, target, sum)
            });
            if gathered.is_err() {
                let cause = unreadable(base, ctx, sending.position);
                let status = CompletionStatus::LocalProtectionError;
                return self.fail(base, ctx, &sending, status, cause);
            }
            ctx.history.sent(ctx.now, PacketKind::of(&headers.message), self.psn, 1, false);
            ctx.count(Counter::SentPackets);
            self.psn = self.psn.next();
            self.advance(base, ctx, piece.last);
        }
    }

    /// The request at the front has failed.
    #[cold]
    fn fail(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        sending: &Sending,
        status: CompletionStatus,
        cause: Cause,
    ) {
        self.failure = Some(status);
        let request = (sending.position, sending.id, &sending.operation);
        file(base, ctx, request, status, cause);
    }

    /// Where in the send queue the request at the front is.
    pub(crate) fn position(&self) -> Option<u32> {
        Some(self.sending?.position)
    }

    fn advance(&mut self, base: &Base, ctx: &mut Context<'_>, last: bool) {
        let Some(sending) = &mut self.sending else { return };
        sending.packet += 1;
        if last {
            let done = *sending;
            self.finish(base, ctx, &done);
        }
    }

    /// The request whose packets are next, started if it has to be.
    fn current(&mut self, base: &Base, ctx: &mut Context<'_>) -> Option<Sending> {
        if self.failure.is_some() || self.paced_until.is_some() {
            return None;
        }
        let state = base.queues.state();
        if self.sending.is_none() && state == QueuePairState::Rts {
            self.start(base, ctx);
        }
        let sends = matches!(state, QueuePairState::Rts | QueuePairState::Sqd);
        self.sending.filter(|_| sends && self.failure.is_none())
    }

    fn start(&mut self, base: &Base, ctx: &mut Context<'_>) {
        if self.next_position == base.queues.send.head() {
            return;
        }
        let head = base.queues.send.read(self.next_position);
        let class = class_of(&head.operation);
        let length = class.length(head.length);
        let mtu = base.mtu();
        let shape = Shape { class, length, mtu, chunk: mtu };
        let refused = refusal(base, ctx, &head, &shape);
        let sending = Sending {
            position: self.next_position,
            id: head.id,
            operation: head.operation,
            flags: head.flags,
            shape,
            packet: 0,
        };
        self.sending = Some(sending);
        if let Some((status, cause)) = refused {
            self.fail(base, ctx, &sending, status, cause);
        }
        self.next_position = self.next_position.wrapping_add(1);
    }

    /// Headers and payload length of the next packet, and where it goes; nothing if its address
    /// handle does not exist any more.
    fn build(
        &self,
        base: &Base,
        ctx: &Context<'_>,
        sending: &Sending,
    ) -> Option<(Headers, usize, Peer)> {
        let piece = sending.shape.piece(sending.packet);
        let payload = piece.length as usize;
        if let SendOperation::SendTo { to, immediate } = sending.operation {
            let mut peer = *ctx.handles.get(to.address, base.domain)?;
            peer.flow.source_port = base.source_port;
            let qkey = base.sent_qkey(to.qkey);
            let deth = Deth { qkey, reserved: 0, source: base.number() };
            let tail = immediate.map_or(SendTail::Plain, SendTail::Immediate);
            let message = Message::SendOnly(tail);
            // A group is no queue pair: whatever the request says, the number is that of groups.
            let group = peer.flow.destination.is_multicast();
            let destination = if group { Qpn::MULTICAST } else { to.queue_pair };
            let mut headers = Headers::request(Service::Ud(deth), message, destination, self.psn);
            headers.migration = base.migration;
            headers.solicited = sending.flags.solicited;
            return Some((headers, payload, peer));
        }
        let length = sending.shape.length;
        let message = message_of(&sending.operation, length, &piece);
        let mut headers = base.headers(message, self.psn);
        headers.service = Service::Uc;
        headers.solicited =
            piece.last && sending.flags.solicited && consumes_receive(&sending.operation);
        Some((headers, payload, base.peer?))
    }

    fn finish(&mut self, base: &Base, ctx: &mut Context<'_>, done: &Sending) {
        self.sending = None;
        let completes = done.flags.signaled || base.signal_all;
        release(base, done.position.wrapping_add(1), completes);
        count_finished(ctx, &done.operation);
        if completes {
            self.complete(base, ctx, done, CompletionStatus::Success);
        }
    }

    fn complete(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        done: &Sending,
        status: CompletionStatus,
    ) {
        let length = done.shape.length;
        self.overrun |= !complete_send(base, ctx, done.id, &done.operation, length, status);
    }

    /// Ends everything: the request at the front with `first`, if given, all others as flushed.
    pub(crate) fn flush(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        first: Option<CompletionStatus>,
    ) -> Result<(), QueueOverrun> {
        self.failure = None;
        self.paced_until = None;
        if let Some(sending) = self.sending.take() {
            release(base, sending.position.wrapping_add(1), true);
            let status = first.unwrap_or(CompletionStatus::WorkRequestFlushed);
            self.complete(base, ctx, &sending, status);
        }
        self.flush_posted(base, ctx)
    }

    /// Ends what was posted and not started.
    pub(crate) fn flush_posted(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
    ) -> Result<(), QueueOverrun> {
        while self.next_position != base.queues.send.head() {
            let SendHead { id, operation, length, .. } = base.queues.send.read(self.next_position);
            self.next_position = self.next_position.wrapping_add(1);
            release(base, self.next_position, true);
            let status = CompletionStatus::WorkRequestFlushed;
            self.overrun |= !complete_send(base, ctx, id, &operation, length, status);
        }
        if self.take_overrun() { Err(QueueOverrun) } else { Ok(()) }
    }
}

/// Why a request cannot be sent.
fn refusal(
    base: &Base,
    ctx: &mut Context<'_>,
    head: &SendHead,
    shape: &Shape,
) -> Option<(CompletionStatus, Cause)> {
    let (length, path_mtu) = (shape.length, shape.mtu);
    match head.operation {
        SendOperation::SendTo { .. } if length > path_mtu => {
            let cause = Cause::DatagramTooLong { length, path_mtu };
            Some((CompletionStatus::LocalLengthError, cause))
        }
        SendOperation::LocalInvalidate(_) | SendOperation::BindWindow(_) => {
            local::carry_out(base, ctx, &head.operation)
        }
        _ if shape.packets() > Psn::MAX_SPAN => {
            let cause = Cause::TooManyPackets { length, path_mtu };
            Some((CompletionStatus::LocalLengthError, cause))
        }
        _ => None,
    }
}
