//! The two halves of a queue pair, by transport: one that sends and one that receives.

use super::burst::BurstWriter;
use super::context::{Base, Context};
use super::counters::Counter;
use super::fault::Fault;
use super::rc::{Outcome, QueueOverrun, Requester, Responder};
use super::receive::Claim;
use super::unacked::{Arrival, DatagramReceiver, Sender, UcReceiver};
use crate::queue::sync::Arc;
use crate::queue::{CompletionStatus, QueuePairKind, ReceiveQueue};
use crate::time::Instant;
use crate::wire::{Headers, Psn, Service};

/// The half that carries out our work requests.
#[derive(Debug)]
pub(crate) enum SendingHalf {
    /// RC and XRC: until the peer has acknowledged.
    Acknowledged(Requester),
    /// UC and UD: until the packets have left.
    Unacknowledged(Sender),
}

/// The half that serves the peer.
#[derive(Debug)]
pub(crate) enum ReceivingHalf {
    /// RC and XRC.
    Rc(Responder),
    Uc(UcReceiver),
    Ud(DatagramReceiver),
}

impl SendingHalf {
    /// For a queue pair whose send queue stands at `position`.
    pub(crate) fn new(kind: QueuePairKind, position: u32) -> Self {
        match kind {
            // To a target nothing can be posted, so it never has anything to send.
            QueuePairKind::Rc | QueuePairKind::XrcInitiator | QueuePairKind::XrcTarget => {
                Self::Acknowledged(Requester::new(position))
            }
            QueuePairKind::Uc | QueuePairKind::Ud => Self::Unacknowledged(Sender::new(position)),
        }
    }

    pub(crate) fn begin(&mut self, base: &Base, psn: Psn) {
        match self {
            Self::Acknowledged(requester) => requester.begin(base, psn),
            Self::Unacknowledged(sender) => sender.begin(base, psn),
        }
    }

    pub(crate) fn fill(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        writer: &mut BurstWriter<'_>,
    ) {
        match self {
            Self::Acknowledged(requester) => requester.fill(base, ctx, writer),
            Self::Unacknowledged(sender) => sender.fill(base, ctx, writer),
        }
    }

    /// An answer of the peer. Without acknowledgements there is none.
    pub(crate) fn handle_response(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: &[u8],
    ) {
        match self {
            Self::Acknowledged(requester) => requester.handle_response(base, ctx, headers, payload),
            Self::Unacknowledged(_) => ctx.count(Counter::DropUnexpectedOpcode),
        }
    }

    pub(crate) fn complete_finished(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
    ) -> Result<(), QueueOverrun> {
        match self {
            Self::Acknowledged(requester) => requester.complete_finished(base, ctx),
            Self::Unacknowledged(sender) => {
                if sender.take_overrun() {
                    Err(QueueOverrun)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// The status of the request whose turn it is, if it has failed.
    pub(crate) fn due_failure(&self) -> Option<CompletionStatus> {
        match self {
            Self::Acknowledged(requester) => requester.due_failure(),
            Self::Unacknowledged(sender) => sender.due_failure(),
        }
    }

    /// Where in the send queue that request is.
    pub(crate) fn position(&self) -> Option<u32> {
        match self {
            Self::Acknowledged(requester) => requester.position(),
            Self::Unacknowledged(sender) => sender.position(),
        }
    }

    pub(crate) fn is_drained(&self) -> bool {
        match self {
            Self::Acknowledged(requester) => requester.is_drained(),
            Self::Unacknowledged(sender) => sender.is_drained(),
        }
    }

    /// Whether everything that was posted has been sent, and nothing shall be sent again.
    #[inline]
    pub(crate) fn is_idle(&self, base: &Base) -> bool {
        match self {
            Self::Acknowledged(requester) => requester.is_idle(base),
            Self::Unacknowledged(sender) => sender.is_idle(base),
        }
    }

    /// The retries that are left follow a change of their numbers.
    pub(crate) fn reload_retries(&mut self, base: &Base) {
        if let Self::Acknowledged(requester) = self {
            requester.reload_retries(base);
        }
    }

    /// PSN of the next packet that will be sent for the first time.
    pub(crate) fn next_psn(&self) -> Psn {
        match self {
            Self::Acknowledged(requester) => requester.next_psn(),
            Self::Unacknowledged(sender) => sender.next_psn(),
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        match self {
            Self::Acknowledged(requester) => requester.deadline(),
            Self::Unacknowledged(sender) => sender.deadline(),
        }
    }

    pub(crate) fn handle_deadline(&mut self, base: &Base, ctx: &mut Context<'_>) {
        match self {
            Self::Acknowledged(requester) => requester.handle_deadline(base, ctx),
            Self::Unacknowledged(sender) => sender.handle_deadline(base, ctx),
        }
    }

    pub(crate) fn flush(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        first: Option<CompletionStatus>,
    ) -> Result<(), QueueOverrun> {
        match self {
            Self::Acknowledged(requester) => requester.flush(base, ctx, first),
            Self::Unacknowledged(sender) => sender.flush(base, ctx, first),
        }
    }

    pub(crate) fn flush_posted(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
    ) -> Result<(), QueueOverrun> {
        match self {
            Self::Acknowledged(requester) => requester.flush_posted(base, ctx),
            Self::Unacknowledged(sender) => sender.flush_posted(base, ctx),
        }
    }

    /// Forgets what is in flight and gives its window back.
    pub(crate) fn give_up(&mut self, base: &Base, ctx: &mut Context<'_>) {
        if let Self::Acknowledged(requester) = self {
            requester.give_up(base, ctx);
        }
    }

    /// Gives the window back that is in use; what was sent counts as lost.
    pub(crate) fn uncharge(&mut self, base: &Base, ctx: &mut Context<'_>) {
        if let Self::Acknowledged(requester) = self {
            requester.uncharge(base, ctx);
        }
    }

    /// Cost that is under way.
    pub(crate) fn in_flight(&self) -> u64 {
        match self {
            Self::Acknowledged(requester) => requester.in_flight(),
            Self::Unacknowledged(_) => 0,
        }
    }

    /// Panics if the state contradicts itself; for tests.
    pub(crate) fn check_invariants(&self) {
        if let Self::Acknowledged(requester) = self {
            requester.check_invariants();
        }
    }
}

impl ReceivingHalf {
    pub(crate) fn new(kind: QueuePairKind) -> Self {
        match kind {
            // Requests are never for an initiator, which the engine checks.
            QueuePairKind::Rc | QueuePairKind::XrcInitiator | QueuePairKind::XrcTarget => {
                Self::Rc(Responder::new())
            }
            QueuePairKind::Uc => Self::Uc(UcReceiver::new()),
            QueuePairKind::Ud => Self::Ud(DatagramReceiver::new()),
        }
    }

    pub(crate) fn begin(&mut self, psn: Psn) {
        match self {
            Self::Rc(responder) => responder.begin(psn),
            Self::Uc(receiver) => receiver.begin(psn),
            Self::Ud(_) => {}
        }
    }

    /// PSN of the next packet that is expected; none if every one is taken.
    pub(crate) fn expected_psn(&self) -> Option<Psn> {
        match self {
            Self::Rc(responder) => Some(responder.expected),
            Self::Uc(receiver) => Some(receiver.expected()),
            Self::Ud(_) => None,
        }
    }

    /// A request of the peer.
    pub(crate) fn handle_request(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        headers: &Headers,
        arrival: &Arrival,
        payload: &[u8],
    ) -> Outcome {
        match (self, headers.service) {
            (Self::Rc(responder), _) => responder.handle_request(base, ctx, headers, payload),
            (Self::Uc(receiver), _) => receiver.handle_request(base, ctx, headers, payload),
            (Self::Ud(receiver), Service::Ud(deth)) => {
                receiver.handle_request(base, ctx, headers, &deth, arrival, payload)
            }
            (Self::Ud(_), _) => Outcome::Fine,
        }
    }

    /// An opcode that no request has.
    pub(crate) fn handle_unsupported(
        &mut self,
        ctx: &mut Context<'_>,
        psn: Psn,
        opcode: u8,
    ) -> Outcome {
        match self {
            Self::Rc(responder) => responder.handle_unsupported(ctx, psn, opcode),
            Self::Uc(_) | Self::Ud(_) => {
                ctx.count(Counter::DropUnexpectedOpcode);
                Outcome::Fine
            }
        }
    }

    /// The receive that a message has claimed.
    fn claim(&mut self) -> &mut Claim {
        match self {
            Self::Rc(responder) => responder.claim(),
            Self::Uc(receiver) => receiver.claim(),
            Self::Ud(receiver) => receiver.claim(),
        }
    }

    /// The number of the receive that a message has claimed.
    pub(crate) fn claimed(&mut self) -> Option<u64> {
        self.claim().id()
    }

    /// Forgets the receive that a message has claimed.
    pub(crate) fn forget_claim(&mut self, base: &Base) {
        self.claim().forget(base);
    }

    /// Forgets the receive that a message has claimed from a shared queue that ends.
    pub(crate) fn forget_claim_from(&mut self, queue: &Arc<ReceiveQueue>) {
        self.claim().forget_from(queue);
    }

    /// Ends all receives: the claimed one, or the oldest, with `first` if given, all others as
    /// flushed. Returns whether the completion queue had room.
    pub(crate) fn flush(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        first: Option<CompletionStatus>,
    ) -> bool {
        self.claim().flush(base, ctx, first)
    }

    fn responder(&self) -> Option<&Responder> {
        match self {
            Self::Rc(responder) => Some(responder),
            Self::Uc(_) | Self::Ud(_) => None,
        }
    }

    /// Nothing more is owed to the peer.
    pub(crate) fn forget_replies(&mut self) {
        if let Self::Rc(responder) = self {
            responder.forget_replies();
        }
    }

    /// Whether something is owed that does not wait for the application.
    pub(crate) fn owes_urgent(&self) -> bool {
        self.responder().is_some_and(Responder::owes_urgent)
    }

    /// Whether anything is owed, now or later.
    pub(crate) fn owes_reply(&self) -> bool {
        self.responder().is_some_and(Responder::owes_reply)
    }

    /// Whether one of the replies that are owed carries the payload of a READ.
    pub(crate) fn owes_payload(&self) -> bool {
        self.responder().is_some_and(Responder::owes_payload)
    }

    /// Whether a reply can leave now.
    pub(crate) fn has_reply(&self, ctx: &Context<'_>) -> bool {
        self.responder().is_some_and(|responder| responder.has_reply(ctx))
    }

    /// Puts replies into the burst.
    pub(crate) fn fill(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        writer: &mut BurstWriter<'_>,
    ) -> Result<(), Fault> {
        match self {
            Self::Rc(responder) => responder.fill(base, ctx, writer),
            Self::Uc(_) | Self::Ud(_) => Ok(()),
        }
    }
}
