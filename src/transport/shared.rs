//! Shared receive queues of a device, and where the request at hand is served.
//!
//! With XRC each request names a shared receive queue. It gives the receive that a message takes,
//! the completion queue where that ends, and the protection domain in which the request's keys
//! count; the queue pair itself has none of them (specification, annex A14).

use std::collections::HashMap;

use super::fault::Fault;
use crate::memory::DomainId;
use crate::queue::sync::Arc;
use crate::queue::{CompletionQueue, ReceiveQueue, XrcDomainId};
use crate::wire::Srqn;

/// All shared receive queues of a device.
#[derive(Default)]
pub(crate) struct SharedQueues {
    /// By address, which is who they are: there can be tens of thousands.
    queues: HashMap<usize, Arc<ReceiveQueue>>,
    /// Those of kind XRC.
    by_number: HashMap<Srqn, Arc<ReceiveQueue>>,
}

impl SharedQueues {
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    pub(crate) fn contains(&self, queue: &Arc<ReceiveQueue>) -> bool {
        self.queues.contains_key(&identity(queue))
    }

    /// Whether an XRC shared receive queue has this number.
    pub(crate) fn has_number(&self, number: Srqn) -> bool {
        self.by_number.contains_key(&number)
    }

    pub(crate) fn insert(&mut self, queue: Arc<ReceiveQueue>) {
        if let Some(number) = queue.number() {
            self.by_number.insert(number, Arc::clone(&queue));
        }
        self.queues.insert(identity(&queue), queue);
    }

    pub(crate) fn remove(&mut self, queue: &Arc<ReceiveQueue>) {
        self.queues.remove(&identity(queue));
        if let Some(number) = queue.number() {
            self.by_number.remove(&number);
        }
    }

    /// How many there are in a protection domain.
    pub(crate) fn count_in(&self, domain: DomainId) -> usize {
        self.queues.values().filter(|queue| queue.domain() == Some(domain)).count()
    }

    /// How many there are in an XRC domain.
    pub(crate) fn count_in_xrc(&self, domain: XrcDomainId) -> usize {
        self.by_number.values().filter(|queue| queue.xrc_domain() == Some(domain)).count()
    }

    /// How many there are whose completions go to a queue.
    pub(crate) fn count_with(&self, completions: &Arc<CompletionQueue>) -> usize {
        let uses = |queue: &&Arc<ReceiveQueue>| {
            queue.completions().is_some_and(|used| Arc::ptr_eq(used, completions))
        };
        self.by_number.values().filter(uses).count()
    }

    /// Where a request that names `number` is served by a target in `domain`.
    pub(crate) fn target(&self, number: Srqn, domain: Option<XrcDomainId>) -> Target {
        match self.by_number.get(&number) {
            None => Target::Faulty(Fault::NoSuchSharedQueue),
            Some(queue) if queue.xrc_domain() != domain => Target::Faulty(Fault::XrcDomain),
            Some(queue) => Target::Shared(Arc::clone(queue)),
        }
    }
}

/// Nobody else has this address while the queue is known.
fn identity(queue: &Arc<ReceiveQueue>) -> usize {
    Arc::as_ptr(queue) as usize
}

/// Where the request at hand takes its receive, and in which domain its keys count.
#[derive(Default)]
pub(crate) enum Target {
    /// The queue pair's own, as on every transport but XRC.
    #[default]
    Own,
    /// The XRC shared receive queue that the request names.
    Shared(Arc<ReceiveQueue>),
    /// The request names none that the queue pair may reach.
    Faulty(Fault),
}
