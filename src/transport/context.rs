//! What a queue pair's state machine may touch beside itself, and when it is.

use super::congestion::CongestionOptions;
use super::counters::{Counter, Counters, OwnCounters};
use super::effects::{AsyncEvent, Dropped, Effects};
use super::fault::Fault;
use super::handles::AddressHandles;
use super::history::{Cause, Failure, Recorder, Told};
use super::path::{Path, PathId, PathTable};
use super::ready::ReadyList;
use super::shared::{SharedQueues, Target};
use crate::memory::{Accessor, DomainId, KeyFault, KeyTable};
use crate::queue::sync::Arc;
use crate::queue::{
    Access, AddressVector, Completion, CompletionQueue, CompletionStatus, Occupied, Origin,
    PathMtu, QueuePairAttributes, QueuePairKind, QueuePairQueues, ReceiveQueue, XrcDomainId,
};
use crate::time::Instant;
use crate::wire::{Flow, Headers, Message, Psn, QKey, Qpn, Service, Srqn, Xrceth};

/// Everything around a queue pair, lent for one step.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    /// Number of the engine's turn.
    pub(crate) turn: u64,
    pub(crate) keys: &'a mut KeyTable,
    pub(crate) paths: &'a mut PathTable,
    pub(crate) handles: &'a AddressHandles,
    pub(crate) congestion: &'a CongestionOptions,
    pub(crate) shared: &'a SharedQueues,
    pub(crate) effects: &'a mut Effects,
    /// The device's.
    pub(crate) counters: &'a mut Counters,
    /// The queue pair's.
    pub(crate) own_counters: &'a mut OwnCounters,
    pub(crate) ready: &'a mut ReadyList,
    /// The queue pair's flight recorder.
    pub(crate) history: &'a mut Recorder,
}

impl Context<'_> {
    /// Puts a completion into its queue; the work queue has counted it as occupied already. Returns
    /// whether there was room; if not, the queue pair has to go into error.
    #[must_use]
    pub(crate) fn complete(&mut self, base: &Base, completion: &Completion) -> bool {
        let queues = &base.queues;
        let (queue, occupied) = match completion.kind.is_receive() {
            true => (&queues.receive_completions, queues.receive.occupied()),
            false => (&queues.send_completions, queues.send.occupied()),
        };
        self.deliver(queue, occupied, Origin::Pair, completion)
    }

    /// The same for a receive that came from `queue`.
    #[must_use]
    pub(crate) fn complete_receive(
        &mut self,
        base: &Base,
        queue: &ReceiveQueue,
        completion: &Completion,
    ) -> bool {
        let completions = queue.completions().unwrap_or(&base.queues.receive_completions);
        self.deliver(completions, queue.occupied(), queue.origin(), completion)
    }

    fn deliver(
        &mut self,
        queue: &Arc<CompletionQueue>,
        occupied: &Occupied,
        origin: Origin,
        completion: &Completion,
    ) -> bool {
        self.count_completion(completion);
        if !completion.status.is_success() {
            self.history.ring.completed(self.now, completion.status, completion.id);
            self.effects.ended(completion);
        }
        match queue.push(completion, origin) {
            Ok(told) => {
                if told.notify {
                    self.effects.notifications.push(Arc::clone(queue));
                }
                if told.wake {
                    self.effects.wakes.push(Arc::clone(queue));
                }
                true
            }
            Err(lost) => {
                occupied.remove();
                self.history.find(Cause::CompletionQueueFull { capacity: queue.capacity() });
                self.count(Counter::LostCompletion);
                if lost.first {
                    // Who waits is told that nothing will come.
                    self.effects.wakes.push(Arc::clone(queue));
                    self.event(AsyncEvent::CompletionQueueOverrun(Arc::clone(queue)));
                }
                false
            }
        }
    }

    #[inline]
    fn count_completion(&mut self, completion: &Completion) {
        match (completion.status, completion.kind.is_receive()) {
            (CompletionStatus::Success, true) => self.count(Counter::FilledReceive),
            (CompletionStatus::Success, false) => {}
            (status, is_receive) => self.count_unsuccessful(status, is_receive),
        }
    }

    #[cold]
    fn count_unsuccessful(&mut self, status: CompletionStatus, is_receive: bool) {
        use CompletionStatus as Status;
        match (status, is_receive) {
            (Status::WorkRequestFlushed, true) => self.count(Counter::FlushedReceive),
            (Status::WorkRequestFlushed, false) => self.count(Counter::FlushedSend),
            (_, true) => self.count(Counter::FailedReceive),
            (_, false) => self.count(Counter::FailedSend),
        }
        match (status, is_receive) {
            (Status::RemoteInvalidRequest, false) => self.count(Counter::RemoteInvalidRequest),
            (Status::RemoteAccessError, false) => self.count(Counter::RemoteAccessError),
            (Status::LocalLengthError, true) => self.count(Counter::ReceiveTooSmall),
            _ => {}
        }
    }

    #[inline]
    pub(crate) fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
        self.history.counted(self.now, counter);
    }

    /// Counts for the device and for the queue pair.
    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, amount: u64) {
        self.counters.add(counter, amount);
        self.own_counters.add(counter, amount);
    }

    /// Reports an event of the queue pair.
    pub(crate) fn event(&mut self, event: AsyncEvent) {
        let counter = if self.effects.event(event) { Counter::Event } else { Counter::LostEvent };
        self.count(counter);
    }

    /// Takes a failure down, and tells it if somebody listens.
    #[cold]
    pub(crate) fn file(&mut self, failure: Failure) {
        self.effects.failure(&failure);
        self.history.file(failure);
    }

    /// A message of UC or UD was dropped for what was found, which fails nothing. If somebody
    /// listens it is told, once as long as the reason is of one kind.
    #[cold]
    pub(crate) fn dropped_for_found(&mut self, base: &Base) {
        if let Some(cause) = self.history.dropped_for_found() {
            let ends = self.history.ends(base);
            self.effects.dropped(Dropped { at: self.now, cause, ends });
        }
    }

    /// Takes down that the connection has failed for what was found.
    #[cold]
    pub(crate) fn file_found(&mut self, base: &Base, told: Told) {
        let cause = self.history.take_found().unwrap_or(Cause::Unknown);
        let ends = self.history.ends(base);
        let Told { status, id, kind, answered } = told;
        let at = self.now;
        self.file(Failure { at, status, id, kind, answered, cause, ends, position: None });
        self.history.settle_on(None);
    }

    /// A request of the peer is at fault: what was found is taken down for whoever asks.
    #[cold]
    pub(crate) fn blame(&mut self, fault: Fault, cause: Cause) -> Fault {
        self.history.find(cause);
        fault
    }

    /// The same for a key of ours, which the peer has named with a place of so many bytes.
    #[cold]
    pub(crate) fn deny(
        &mut self,
        key: u32,
        asked: (u64, u64),
        need: Access,
        found: KeyFault,
    ) -> Fault {
        let denial = self.keys.denial(key, asked, need, found);
        self.blame(Fault::RemoteAccess, Cause::RemoteMemory(denial))
    }

    pub(crate) fn path(&mut self, id: PathId) -> &mut Path {
        self.paths.get_mut(id)
    }

    /// Gives back window of a path, and lets those try again that wait for it.
    pub(crate) fn release(&mut self, id: PathId, cost: u64) {
        let path = self.paths.get_mut(id);
        path.release(cost);
        while let Some(slot) = path.next_waiting() {
            self.ready.push(slot);
        }
    }
}

/// The connection's other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) flow: Flow,
    pub(crate) traffic_class: u8,
    pub(crate) path: PathId,
}

/// What a queue pair is, as opposed to what it is doing: the attributes in force.
pub(crate) struct Base {
    pub(crate) slot: u32,
    pub(crate) queues: Arc<QueuePairQueues>,
    pub(crate) domain: DomainId,
    pub(crate) signal_all: bool,
    /// The MigReq bit that we send.
    pub(crate) migration: bool,
    /// Answers tell how many receives are posted.
    pub(crate) finite_credits: bool,
    /// Attributes that were set; what was not is `None`.
    pub(crate) attributes: QueuePairAttributes,
    /// Bytes of a READ request at most; fixed at RTR.
    pub(crate) chunk: u32,
    pub(crate) peer: Option<Peer>,
    /// The UDP source port of our datagrams (UD).
    pub(crate) source_port: u16,
    /// Whose shared receive queues requests may name (XRC targets).
    pub(crate) xrc_domain: Option<XrcDomainId>,
    /// Where the request at hand is served.
    pub(crate) target: Target,
}

impl Base {
    pub(crate) fn mtu(&self) -> u32 {
        self.attributes.path_mtu.unwrap_or(PathMtu::Mtu256).bytes() as u32
    }

    pub(crate) fn access(&self) -> Access {
        self.attributes.access.unwrap_or(Access::NONE)
    }

    pub(crate) fn address(&self) -> Option<&AddressVector> {
        self.attributes.address.as_ref()
    }

    pub(crate) fn number(&self) -> Qpn {
        self.queues.number()
    }

    /// The peer, as one who wants to reach our memory.
    pub(crate) fn peer_access(&self) -> Accessor {
        Accessor::peer(self.served_domain(), self.number())
    }

    /// The queue key that is sent for a work request's value: with bit 31 set, our own.
    pub(crate) fn sent_qkey(&self, asked: QKey) -> QKey {
        match self.attributes.qkey {
            Some(own) if asked.value() >> 31 != 0 => own,
            _ => asked,
        }
    }

    /// Where the request at hand takes its receive.
    pub(crate) fn receives(&self) -> &Arc<ReceiveQueue> {
        match &self.target {
            Target::Shared(queue) => queue,
            Target::Own | Target::Faulty(_) => &self.queues.receive,
        }
    }

    /// The domain in which the keys of the request at hand count.
    pub(crate) fn served_domain(&self) -> DomainId {
        match &self.target {
            Target::Shared(queue) => queue.domain().unwrap_or(self.domain),
            Target::Own | Target::Faulty(_) => self.domain,
        }
    }

    /// The shared receive queue that the request at hand names, if its transport does so.
    pub(crate) fn named_queue(&self) -> Result<Option<Srqn>, Fault> {
        match &self.target {
            Target::Own => Ok(None),
            Target::Shared(queue) => Ok(queue.number()),
            Target::Faulty(fault) => Err(*fault),
        }
    }

    /// Headers of an answer to the peer, RC or XRC.
    pub(crate) fn headers(&self, message: Message, psn: Psn) -> Headers {
        let service = match self.queues.kind() {
            QueuePairKind::XrcTarget => Service::XrcResponse,
            _ => Service::Rc,
        };
        self.headers_of(service, message, psn)
    }

    /// Headers of a request to the peer, RC or XRC; with XRC it names the peer's queue `shared`.
    pub(crate) fn request(&self, shared: Srqn, message: Message, psn: Psn) -> Headers {
        let service = match self.queues.kind() {
            QueuePairKind::XrcInitiator => {
                Service::XrcRequest(Xrceth { reserved: 0, srqn: shared })
            }
            _ => Service::Rc,
        };
        self.headers_of(service, message, psn)
    }

    fn headers_of(&self, service: Service, message: Message, psn: Psn) -> Headers {
        let destination = self.attributes.destination.unwrap_or_default();
        let mut headers = Headers::request(service, message, destination, psn);
        headers.migration = self.migration;
        headers
    }
}
