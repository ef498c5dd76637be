//! What an application and the engine share of a queue pair: its queues, its state, its bell.

use super::request::{Payload, PostError, ReceiveRequest, SendRequest};
use super::sync::{Arc, AtomicU8, Ordering};
use super::{CompletionQueue, Doorbells, QueuePairKind, QueuePairState, ReceiveQueue, SendQueue};
use crate::wire::{Qpn, Srqn};

/// Sizes of a queue pair's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCapacities {
    /// Send work requests.
    pub send_requests: u32,
    /// Receive work requests.
    pub receive_requests: u32,
    /// Segments in a send work request.
    pub send_segments: u32,
    /// Segments in a receive work request.
    pub receive_segments: u32,
    /// Inline bytes in a send work request.
    pub inline_bytes: u32,
}

impl QueueCapacities {
    /// No queues at all.
    pub const NONE: Self = Self {
        send_requests: 0,
        receive_requests: 0,
        send_segments: 0,
        receive_segments: 0,
        inline_bytes: 0,
    };
}

impl Default for QueueCapacities {
    fn default() -> Self {
        Self {
            send_requests: 128,
            receive_requests: 128,
            send_segments: 4,
            receive_segments: 4,
            inline_bytes: 64,
        }
    }
}

/// The shared part of a queue pair. Posting takes no lock of the engine.
pub struct QueuePairQueues {
    number: Qpn,
    kind: QueuePairKind,
    slot: usize,
    /// Written by the engine only; this is the queue pair's one state.
    state: AtomicU8,
    pub(crate) send: SendQueue,
    pub(crate) receive: Arc<ReceiveQueue>,
    /// Whether other queue pairs take their receives from the same queue. An XRC target takes them
    /// from where each request says; its own queue stays empty.
    shares_receives: bool,
    pub(crate) send_completions: Arc<CompletionQueue>,
    pub(crate) receive_completions: Arc<CompletionQueue>,
    doorbells: Arc<Doorbells>,
}

impl QueuePairQueues {
    pub(crate) fn new(
        number: Qpn,
        kind: QueuePairKind,
        slot: usize,
        capacities: &QueueCapacities,
        completions: (Arc<CompletionQueue>, Arc<CompletionQueue>),
        doorbells: Arc<Doorbells>,
        shared: Option<Arc<ReceiveQueue>>,
    ) -> Self {
        let shares_receives = shared.is_some() || kind == QueuePairKind::XrcTarget;
        let own = || {
            Arc::new(ReceiveQueue::new(
                capacities.receive_requests,
                capacities.receive_segments as usize,
            ))
        };
        let pair = Self {
            number,
            kind,
            slot,
            state: AtomicU8::new(QueuePairState::Reset as u8),
            send: SendQueue::new(
                capacities.send_requests,
                capacities.send_segments as usize,
                capacities.inline_bytes as usize,
            ),
            receive: shared.unwrap_or_else(own),
            shares_receives,
            send_completions: completions.0,
            receive_completions: completions.1,
            doorbells,
        };
        pair.join_completions();
        pair
    }

    fn join_completions(&self) {
        let send = Some(Arc::clone(self.send.occupied()));
        let receive = Some(Arc::clone(self.receive.occupied()));
        if Arc::ptr_eq(&self.send_completions, &self.receive_completions) {
            return self.send_completions.join(self.number, send, receive);
        }
        self.send_completions.join(self.number, send, None);
        self.receive_completions.join(self.number, None, receive);
    }

    /// The queue pair has ended: its completions count for nobody.
    pub(crate) fn leave_completions(&self) {
        self.send_completions.leave(self.number);
        self.receive_completions.leave(self.number);
    }

    /// Sizes as they are; of a queue that is not the queue pair's own, or that it lacks, 0.
    pub fn capacities(&self) -> QueueCapacities {
        let mut capacities = QueueCapacities::NONE;
        if self.kind.sends() {
            capacities.send_requests = self.send.capacity();
            capacities.send_segments = self.send.max_segments() as u32;
            capacities.inline_bytes = self.send.max_inline() as u32;
        }
        if self.kind.serves() && !self.shares_receives {
            capacities.receive_requests = self.receive.capacity();
            capacities.receive_segments = self.receive.max_segments() as u32;
        }
        capacities
    }

    /// The queue pair's number.
    pub fn number(&self) -> Qpn {
        self.number
    }

    /// The queue pair's transport.
    pub fn kind(&self) -> QueuePairKind {
        self.kind
    }

    /// The queue pair's state.
    pub fn state(&self) -> QueuePairState {
        QueuePairState::from_number(self.state.load(Ordering::Acquire))
    }

    /// The send queue.
    pub fn send_queue(&self) -> &SendQueue {
        &self.send
    }

    /// The receive queue.
    pub fn receive_queue(&self) -> &ReceiveQueue {
        &self.receive
    }

    /// Where the send queue's completions go.
    pub fn send_completions(&self) -> &Arc<CompletionQueue> {
        &self.send_completions
    }

    /// Where the receive queue's completions go.
    pub fn receive_completions(&self) -> &Arc<CompletionQueue> {
        &self.receive_completions
    }

    /// Whether receives come from a shared queue; they are posted there then.
    pub fn shares_receives(&self) -> bool {
        self.shares_receives
    }

    pub(crate) fn set_state(&self, state: QueuePairState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Queues send requests in order until one is refused, and rings the bell. Returns how many
    /// were queued, and why the next one was not. The engine has to be given a turn afterwards.
    pub fn post_send(&self, requests: &[SendRequest<'_>]) -> (usize, Result<(), PostError>) {
        if self.kind == QueuePairKind::XrcInitiator {
            return (0, Err(PostError::NoSharedQueueNamed));
        }
        self.post_send_of(requests, Srqn::default())
    }

    /// The same for an XRC INI queue pair: the requests name the peer's shared receive queue
    /// `shared`, whose receives their messages take and in whose protection domain their remote
    /// keys count.
    pub fn post_send_to(
        &self,
        shared: Srqn,
        requests: &[SendRequest<'_>],
    ) -> (usize, Result<(), PostError>) {
        if self.kind != QueuePairKind::XrcInitiator {
            return (0, Err(PostError::SharedQueueNamed(self.kind)));
        }
        self.post_send_of(requests, shared)
    }

    fn post_send_of(
        &self,
        requests: &[SendRequest<'_>],
        shared: Srqn,
    ) -> (usize, Result<(), PostError>) {
        if let Err(error) = self.may_post_send() {
            return (0, Err(error));
        }
        let foreign = |request: &SendRequest<'_>| !request.operation.is_supported_by(self.kind);
        if let Some(place) = requests.iter().position(foreign) {
            // What stands before it is queued, as with every other refusal.
            let (queued, outcome) = self.post_supported(&requests[..place], shared);
            return (queued, outcome.and(Err(PostError::NotSupported(self.kind))));
        }
        self.post_supported(requests, shared)
    }

    fn may_post_send(&self) -> Result<(), PostError> {
        if !self.kind.sends() {
            return Err(PostError::NoSendQueue(self.kind));
        }
        match self.state() {
            state if state < QueuePairState::Rts => {
                Err(PostError::WrongState(state, "send requests"))
            }
            _ => Ok(()),
        }
    }

    fn may_post_receive(&self) -> Result<(), PostError> {
        match self.state() {
            state @ QueuePairState::Reset => Err(PostError::WrongState(state, "receive requests")),
            _ => Ok(()),
        }
    }

    fn post_supported(
        &self,
        requests: &[SendRequest<'_>],
        shared: Srqn,
    ) -> (usize, Result<(), PostError>) {
        let outcome = self.send.post(requests, shared, || self.may_post_send());
        if outcome.0 > 0 {
            self.doorbells.ring(self.slot);
        }
        outcome
    }

    /// Queues receive requests in order until one is refused. Returns how many were queued, and
    /// why the next one was not.
    pub fn post_receive(&self, requests: &[ReceiveRequest<'_>]) -> (usize, Result<(), PostError>) {
        if !self.kind.serves() {
            return (0, Err(PostError::NoReceives(self.kind)));
        }
        if self.shares_receives {
            return (0, Err(PostError::SharedReceiveQueue));
        }
        let outcome = self.receive.post_if(requests, || self.may_post_receive());
        if outcome.0 > 0 {
            // In the error state the engine has to flush what was posted, and only it knows whether
            // that state began meanwhile.
            self.doorbells.ring(self.slot);
        }
        outcome
    }

    /// Queues one send request; see [`Self::post_send`].
    pub fn post_one_send(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post_send(std::slice::from_ref(request)).1
    }

    /// Queues one receive request; see [`Self::post_receive`].
    pub fn post_one_receive(&self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.post_receive(std::slice::from_ref(request)).1
    }
}

impl<'a> Payload<'a> {
    /// No local data at all.
    pub const EMPTY: Self = Payload::Segments(&[]);
}
