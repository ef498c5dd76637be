//! What a turn did that concerns others than the peer: completions to announce, events to report.
//! Collected under the engine's lock, carried out after it is released.

use super::history::{Cause, Ends, Failure};
use crate::queue::sync::Arc;
use crate::queue::{Completion, CompletionQueue, CompletionStatus, ReceiveQueue};
use crate::time::Instant;
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
    /// The interface is gone: nothing can be sent or received any more.
    DeviceFatal,
    /// The interface is up and has a carrier again.
    PortActive,
    /// The interface was switched off or lost its carrier.
    PortError,
    /// The interface got or lost an address. The device keeps the addresses that it was opened with.
    GidChange,
}

/// What an event is about, for finding those of an object that ends.
#[derive(Clone)]
pub enum EventSubject {
    /// A queue pair.
    QueuePair(Qpn),
    /// A completion queue.
    CompletionQueue(Arc<CompletionQueue>),
    /// A shared receive queue.
    SharedReceiveQueue(Arc<ReceiveQueue>),
}

impl AsyncEvent {
    /// Whether it is about this object. Events of port and device are about none.
    pub fn is_about(&self, subject: &EventSubject) -> bool {
        match (self, subject) {
            (
                Self::QueuePairFatal(number)
                | Self::RequestError(number)
                | Self::AccessError(number)
                | Self::CommunicationEstablished(number)
                | Self::SendQueueDrained(number)
                | Self::InvalidXrceth(number)
                | Self::XrcDomainViolation(number)
                | Self::LastReceiveReached(number),
                EventSubject::QueuePair(other),
            ) => number == other,
            (Self::CompletionQueueOverrun(queue), EventSubject::CompletionQueue(other)) => {
                Arc::ptr_eq(queue, other)
            }
            (Self::SharedReceiveQueueLimit(queue), EventSubject::SharedReceiveQueue(other)) => {
                Arc::ptr_eq(queue, other)
            }
            _ => false,
        }
    }
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
            Self::DeviceFatal => write!(f, "the device is gone with its network interface"),
            Self::PortActive => write!(f, "the port is active"),
            Self::PortError => write!(f, "the port is down"),
            Self::GidChange => write!(f, "the interface's addresses have changed"),
        }
    }
}

/// See the module's text.
#[derive(Default)]
pub struct Effects {
    /// Completion queues whose notifier is to be called.
    pub notifications: Vec<Arc<CompletionQueue>>,
    /// Completion queues that tasks wait for, which are to be woken.
    pub wakes: Vec<Arc<CompletionQueue>>,
    /// Events, oldest first.
    pub events: Vec<AsyncEvent>,
    /// Failures, oldest first, if somebody has asked for them (`Engine::tell_failures`).
    pub failures: Vec<Failure>,
    /// Work requests flushed since, with the same condition.
    pub flushed: Vec<Flushed>,
    /// Messages dropped without anybody's failure (UC and UD), with the same condition.
    pub dropped: Vec<Dropped>,
    /// Whether somebody has asked for failures.
    pub(crate) tells: bool,
}

/// A message that was dropped where that fails nothing (UC and UD).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// When.
    pub at: Instant,
    /// Why.
    pub cause: Cause,
    /// Between whom.
    pub ends: Ends,
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
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.notifications.is_empty()
            && self.wakes.is_empty()
            && self.events.is_empty()
            && self.failures.is_empty()
            && self.flushed.is_empty()
            && self.dropped.is_empty()
    }

    /// Calls the notifiers and wakes waiting tasks. Outside all locks. Events stay.
    pub fn notify(&mut self) {
        if self.notifications.is_empty() && self.wakes.is_empty() {
            return;
        }
        for queue in self.notifications.drain(..) {
            queue.notify();
        }
        for queue in self.wakes.drain(..) {
            queue.wakers().wake();
        }
    }

    pub(crate) fn failure(&mut self, failure: &Failure) {
        if self.tells && self.failures.len() < Self::MAX_FAILURES {
            self.failures.push(failure.clone());
        }
    }

    pub(crate) fn dropped(&mut self, dropped: Dropped) {
        if self.tells && self.dropped.len() < Self::MAX_FAILURES {
            self.dropped.push(dropped);
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

    /// Notes an event. Returns whether there was room.
    pub(crate) fn event(&mut self, event: AsyncEvent) -> bool {
        let room = self.events.len() < Self::MAX_EVENTS;
        if room {
            self.events.push(event);
        }
        room
    }
}
