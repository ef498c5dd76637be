//! Shared receive queues.

use std::sync::Arc;

use super::{CompletionQueue, ProtectionDomain, VerbsError, XrcDomain};
use crate::engine::{Engine, EventSubject};
use crate::queue::{PostError, ReceiveQueue, ReceiveRequest, Sge};
use crate::wire::Srqn;

/// Receives for several queue pairs. Clones are the same queue; it is destroyed with the last of
/// them and of the queue pairs that use it.
#[derive(Clone)]
pub struct SharedReceiveQueue {
    inner: Arc<Inner>,
}

struct Inner {
    domain: ProtectionDomain,
    queue: Arc<ReceiveQueue>,
    /// Kept alive as long as the engine uses them (XRC).
    _keeps: Option<(XrcDomain, CompletionQueue)>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Queue pairs that use it hold this value, so none is left.
        let context = self.domain.context();
        let call = || "destroy_srq()".to_owned();
        let destroy = |engine: &mut Engine, _| engine.destroy_shared_receive_queue(&self.queue);
        let _ = context.tell_control(call, destroy);
        let subject = EventSubject::SharedReceiveQueue(Arc::clone(&self.queue));
        context.device().forget_events(&subject);
    }
}

impl SharedReceiveQueue {
    pub(super) fn new(
        domain: ProtectionDomain,
        queue: Arc<ReceiveQueue>,
        keeps: Option<(XrcDomain, CompletionQueue)>,
    ) -> Self {
        Self { inner: Arc::new(Inner { domain, queue, _keeps: keeps }) }
    }

    pub(super) fn shared(&self) -> &Arc<ReceiveQueue> {
        &self.inner.queue
    }

    /// Entries in all.
    pub fn capacity(&self) -> u32 {
        self.inner.queue.capacity()
    }

    /// The most segments in a receive.
    pub fn max_segments(&self) -> usize {
        self.inner.queue.max_segments()
    }

    /// Below how many posted receives an event comes; 0 if none will.
    pub fn limit(&self) -> u32 {
        self.inner.queue.limit()
    }

    /// The number by which requests name it; only XRC shared receive queues have one.
    pub fn number(&self) -> Option<Srqn> {
        self.inner.queue.number()
    }

    /// Receives that wait for messages.
    pub fn posted(&self) -> u32 {
        self.inner.queue.posted()
    }

    /// Queues one receive request.
    ///
    /// # Errors
    /// The queue is full, or there are too many segments.
    pub fn post_receive(&self, id: u64, segments: &[Sge]) -> Result<(), PostError> {
        let request = ReceiveRequest { id, segments };
        self.post_receives(std::slice::from_ref(&request)).map_err(|(_, error)| error)
    }

    /// Queues receive requests in order.
    ///
    /// # Errors
    /// As [`SharedReceiveQueue::post_receive`], with how many were queued before the one that was
    /// refused.
    pub fn post_receives(&self, requests: &[ReceiveRequest<'_>]) -> Result<(), (usize, PostError)> {
        let (queued, outcome) = self.inner.queue.post(requests);
        let call = || format!("post_srq_recv({} requests, {queued} queued)", requests.len());
        let outcome = self.inner.domain.context().told(call, outcome);
        outcome.map_err(|error| (queued, error))
    }

    /// Asks for one asynchronous event when fewer than `limit` receives are left; 0 asks for none.
    ///
    /// # Errors
    /// The queue has fewer entries than that.
    pub fn set_limit(&self, limit: u32) -> Result<(), VerbsError> {
        let context = self.inner.domain.context();
        let call = || format!("modify_srq(limit {limit})");
        context.tell_control(call, |engine, _| engine.set_shared_limit(&self.inner.queue, limit))
    }
}

impl std::fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("capacity", &self.capacity())
            .field("posted", &self.posted())
            .finish_non_exhaustive()
    }
}
