//! What a queue pair's state machine may touch beside itself, and when it is.

use super::counters::{Counter, Counters};
use super::effects::{AsyncEvent, Effects};
use super::fault::Fault;
use super::handles::AddressHandles;
use super::history::{Cause, Failure, Recorder, Told};
use super::path::{Path, PathId, PathTable};
use super::ready::ReadyList;
use crate::memory::{DomainId, KeyFault, KeyTable};
use crate::queue::sync::Arc;
use crate::queue::{
    Access, AddressVector, Completion, PathMtu, QueuePairAttributes, QueuePairQueues,
};
use crate::time::Instant;
use crate::wire::{Flow, Headers, Message, Psn, QKey, Qpn, Service};

/// Everything around a queue pair, lent for one step.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    /// Number of the engine's turn.
    pub(crate) turn: u64,
    pub(crate) keys: &'a mut KeyTable,
    pub(crate) paths: &'a mut PathTable,
    pub(crate) handles: &'a AddressHandles,
    pub(crate) effects: &'a mut Effects,
    pub(crate) counters: &'a mut Counters,
    pub(crate) ready: &'a mut ReadyList,
    /// The queue pair's flight recorder.
    pub(crate) history: &'a mut Recorder,
}

impl Context<'_> {
    /// Puts a completion into its queue; the work queue has counted it as unpolled already. Returns
    /// whether there was room; if not, the queue pair has to go into error.
    #[must_use]
    pub(crate) fn complete(&mut self, base: &Base, completion: &Completion) -> bool {
        let queues = &base.queues;
        if !completion.status.is_success() {
            self.history.ring.completed(self.now, completion.status, completion.id);
            self.effects.ended(completion);
        }
        let (queue, unpolled) = match completion.kind.is_receive() {
            true => (&queues.receive_completions, queues.receive.unpolled()),
            false => (&queues.send_completions, queues.send.unpolled()),
        };
        match queue.push(completion) {
            Ok(notify) => {
                if notify {
                    self.effects.notifications.push(Arc::clone(queue));
                }
                true
            }
            Err(lost) => {
                unpolled.remove();
                self.history.find(Cause::CompletionQueueFull { capacity: queue.capacity() });
                if lost.first {
                    self.effects.event(AsyncEvent::CompletionQueueOverrun(Arc::clone(queue)));
                }
                false
            }
        }
    }

    pub(crate) fn count(&mut self, counter: Counter) {
        self.counters.count(counter);
        self.history.counted(self.now, counter);
    }

    /// Takes a failure down, and tells it if somebody listens.
    #[cold]
    pub(crate) fn file(&mut self, failure: Failure) {
        self.effects.failure(&failure);
        self.history.file(failure);
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
    /// Attributes that were set; what was not is `None`.
    pub(crate) attributes: QueuePairAttributes,
    /// Bytes of a READ request at most; fixed at RTR.
    pub(crate) chunk: u32,
    pub(crate) peer: Option<Peer>,
    /// The UDP source port of our datagrams (UD).
    pub(crate) source_port: u16,
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

    /// The queue key that is sent for a work request's value: with bit 31 set, our own.
    pub(crate) fn sent_qkey(&self, asked: QKey) -> QKey {
        match self.attributes.qkey {
            Some(own) if asked.value() >> 31 != 0 => own,
            _ => asked,
        }
    }

    /// Headers of an RC packet to the peer.
    pub(crate) fn headers(&self, message: Message, psn: Psn) -> Headers {
        let destination = self.attributes.destination.unwrap_or_default();
        let mut headers = Headers::request(Service::Rc, message, destination, psn);
        headers.migration = self.migration;
        headers
    }
}
