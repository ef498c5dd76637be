//! What a turn did that concerns others than the peer: completions to announce, events to report.
//! Collected under the engine's lock, carried out after it is released.

use super::history::Failure;
use crate::queue::sync::Arc;
use crate::queue::{Completion, CompletionQueue, CompletionStatus, ReceiveQueue};
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
    /// Failures, oldest first, if somebody has asked for them (`Engine::tell_failures`).
    pub failures: Vec<Failure>,
    /// Work requests flushed since, with the same condition.
    pub flushed: Vec<Flushed>,
    /// Whether somebody has asked for failures.
    pub(crate) tells: bool,
}

/// How many work requests of a queue pair were flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// Whose.
    pub queue_pair: Qpn,
    /// Sends.
    pub sends: u32,
    /// Receives.
    pub receives: u32,
}

impl Effects {
    /// Events kept at most; what a peer can cause without bound must not grow without bound.
    const MAX_EVENTS: usize = 4096;

    /// Failures kept at most until somebody takes them; the same for queue pairs with flushes.
    const MAX_FAILURES: usize = 256;

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.notifications.is_empty()
            && self.events.is_empty()
            && self.failures.is_empty()
            && self.flushed.is_empty()
    }

    /// Calls the notifiers. Outside all locks. Events stay.
    pub fn notify(&mut self) {
        for queue in self.notifications.drain(..) {
            queue.notify();
        }
    }

    pub(crate) fn failure(&mut self, failure: &Failure) {
        if self.tells && self.failures.len() < Self::MAX_FAILURES {
            self.failures.push(failure.clone());
        }
    }

    /// A work request ended with an error: flushes are counted by queue pair.
    pub(crate) fn ended(&mut self, completion: &Completion) {
        if !self.tells || completion.status != CompletionStatus::WorkRequestFlushed {
            return;
        }
        let queue_pair = completion.queue_pair;
        if self.flushed.last().is_none_or(|last| last.queue_pair != queue_pair) {
            if self.flushed.len() == Self::MAX_FAILURES {
                return;
            }
            self.flushed.push(Flushed { queue_pair, sends: 0, receives: 0 });
        }
        if let Some(last) = self.flushed.last_mut() {
            let is_receive = completion.kind.is_receive();
            *(if is_receive { &mut last.receives } else { &mut last.sends }) += 1;
        }
    }

    pub(crate) fn event(&mut self, event: AsyncEvent) {
        if self.events.len() < Self::MAX_EVENTS {
            self.events.push(event);
        }
    }
}
