//! What a turn did that concerns others than the peer: completions to announce, events to report.
//! Collected under the engine's lock, carried out after it is released.

use crate::queue::sync::Arc;
use crate::queue::{CompletionQueue, ReceiveQueue};
use crate::wire::Qpn;

/// An event that belongs to no work request (specification, section 11.6.3).
#[derive(Clone)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// The queue pair went into error for a reason that no completion tells.
    QueuePairFatal(Qpn),
    /// A peer's request was invalid; the queue pair is in error.
    RequestError(Qpn),
    /// A peer's request violated memory rights; the queue pair is in error.
    AccessError(Qpn),
    /// A peer's request named no XRC shared receive queue of this device, or changed it within a
    /// message; the queue pair is in error. Verbs have no event of their own for it: Linux drivers
    /// report an access error.
    InvalidXrceth(Qpn),
    /// A peer's request named a shared receive queue of another XRC domain; the queue pair is in
    /// error. To verbs it is an access error, too.
    XrcDomainViolation(Qpn),
    /// The first packet arrived while the queue pair was still in RTR.
    CommunicationEstablished(Qpn),
    /// All started messages are finished after a transition to SQD.
    SendQueueDrained(Qpn),
    /// A shared receive queue has fewer receives than its limit.
    SharedReceiveQueueLimit(Arc<ReceiveQueue>),
    /// The queue pair, in error, will take no more receives from its shared queue.
    LastReceiveReached(Qpn),
    /// A completion queue had no room; its queue pairs go into error.
    CompletionQueueOverrun(Arc<CompletionQueue>),
}

impl std::fmt::Debug for AsyncEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::QueuePairFatal(number) => write!(f, "queue pair {number}: fatal error"),
            Self::RequestError(number) => {
                write!(f, "queue pair {number}: the peer's request was invalid")
            }
            Self::AccessError(number) => {
                write!(f, "queue pair {number}: the peer's request violated memory rights")
            }
            Self::InvalidXrceth(number) => write!(
                f,
                "queue pair {number}: the peer's request named no XRC shared receive queue of this \
                 device"
            ),
            Self::XrcDomainViolation(number) => write!(
                f,
                "queue pair {number}: the peer's request named a shared receive queue of another \
                 XRC domain"
            ),
            Self::CommunicationEstablished(number) => {
                write!(f, "queue pair {number}: the first packet of the peer has arrived")
            }
            Self::SendQueueDrained(number) => write!(f, "queue pair {number}: send queue drained"),
            Self::SharedReceiveQueueLimit(queue) => {
                write!(f, "a shared receive queue has only {} receives left", queue.posted())
            }
            Self::LastReceiveReached(number) => {
                write!(f, "queue pair {number}: takes no more receives from its shared queue")
            }
            Self::CompletionQueueOverrun(queue) => {
                write!(f, "a completion queue of {} entries overran", queue.capacity())
            }
        }
    }
}

/// See the module's text.
#[derive(Default)]
pub struct Effects {
    /// Completion queues whose notifier is to be called.
    pub notifications: Vec<Arc<CompletionQueue>>,
    /// Events, oldest first.
    pub events: Vec<AsyncEvent>,
}

impl Effects {
    /// Events kept at most; what a peer can cause without bound must not grow without bound.
    const MAX_EVENTS: usize = 4096;

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.notifications.is_empty() && self.events.is_empty()
    }

    /// Calls the notifiers. Outside all locks. Events stay.
    pub fn notify(&mut self) {
        for queue in self.notifications.drain(..) {
            queue.notify();
        }
    }

    pub(crate) fn event(&mut self, event: AsyncEvent) {
        if self.events.len() < Self::MAX_EVENTS {
            self.events.push(event);
        }
    }
}
