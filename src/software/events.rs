//! Asynchronous events on their way to the application.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use super::fork::Local;
use crate::engine::{AsyncEvent, EventSubject};
use crate::link::Event;
use crate::queue::Wakers;

/// Events that wait at most; a peer can cause them, so there must be an end.
const MOST: usize = 4096;

/// A queue of events with a descriptor that is readable while it is not empty.
///
/// Events are stored under the engine's lock and announced after it. So once an object has been
/// destroyed under that lock no event about it can come any more, and those that nobody has taken
/// yet can be removed: [`Self::forget`].
pub(super) struct EventQueue {
    waiting: Mutex<VecDeque<AsyncEvent>>,
    event: Local<Event>,
    wakers: Wakers,
    /// Whether events were stored since they were last announced.
    unannounced: AtomicBool,
    /// Events beyond the limit.
    lost: AtomicU64,
}

impl EventQueue {
    /// An empty queue.
    ///
    /// # Errors
    /// That the process has no descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        let event = Local::open(Event::new, |event| vec![event.descriptor()])?;
        Ok(Self {
            waiting: Mutex::new(VecDeque::new()),
            event,
            wakers: Wakers::default(),
            unannounced: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        })
    }

    /// Adds events; what goes beyond the limit is lost. [`Self::announce`] has to be called once
    /// the engine's lock is released.
    pub(super) fn store(&self, events: &mut Vec<AsyncEvent>) {
        if events.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST - waiting.len();
        let lost = events.len().saturating_sub(room);
        self.lost.fetch_add(lost as u64, Ordering::Relaxed);
        waiting.extend(events.drain(..).take(room));
        self.unannounced.store(true, Ordering::Release);
    }

    /// Tells who waits that there are events, if there are new ones.
    pub(super) fn announce(&self) {
        if !self.unannounced.load(Ordering::Relaxed)
            || !self.unannounced.swap(false, Ordering::Acquire)
        {
            return;
        }
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have taken them already.
        if !waiting.is_empty() {
            self.event.signal();
        }
        drop(waiting);
        fence(Ordering::SeqCst);
        if self.wakers.must_wake() {
            self.wakers.wake();
        }
    }

    /// Removes the events about an object that was destroyed.
    pub(super) fn forget(&self, subject: &EventSubject) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|event| !event.is_about(subject));
        if waiting.is_empty() {
            self.event.clear();
        }
    }

    /// Events that were lost because too many waited.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Tasks that wait for events.
    pub(super) fn wakers(&self) -> &Wakers {
        &self.wakers
    }

    /// Takes the oldest event out.
    pub(super) fn pop(&self) -> Option<AsyncEvent> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let event = waiting.pop_front();
        if waiting.is_empty() {
            // Under the lock: a push after it signals again.
            self.event.clear();
        }
        event
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.event.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::software::system;
    use crate::wire::Qpn;

    fn is_readable(queue: &EventQueue) -> bool {
        let mut polls = [system::readable(queue.descriptor())];
        system::sleep_on(&mut polls, Some(0));
        polls[0].revents != 0
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_an_event_waits() {
        let queue = EventQueue::new().unwrap();
        assert!(!is_readable(&queue));
        let mut events: Vec<AsyncEvent> =
            (0..MOST as u32 + 5).map(|n| AsyncEvent::QueuePairFatal(Qpn::new(n))).collect();
        queue.store(&mut events);
        assert!(events.is_empty());
        queue.announce();
        assert_eq!(queue.lost(), 5);
        for number in 0..MOST as u32 {
            assert!(is_readable(&queue));
            let event = queue.pop();
            assert!(
                matches!(event, Some(AsyncEvent::QueuePairFatal(n)) if n == Qpn::new(number)),
                "{event:?}"
            );
        }
        assert!(!is_readable(&queue), "the rest was beyond the limit");
        assert!(queue.pop().is_none());
        queue.announce();
        assert!(!is_readable(&queue), "what was taken before is not announced any more");
    }

    #[test]
    fn what_is_destroyed_leaves_no_events_behind() {
        let queue = EventQueue::new().unwrap();
        let (gone, other) = (Qpn::new(7), Qpn::new(8));
        let mut events = vec![
            AsyncEvent::QueuePairFatal(gone),
            AsyncEvent::RequestError(other),
            AsyncEvent::LastReceiveReached(gone),
            AsyncEvent::PortError,
        ];
        queue.store(&mut events);
        queue.announce();
        queue.forget(&EventSubject::QueuePair(gone));
        assert!(matches!(queue.pop(), Some(AsyncEvent::RequestError(number)) if number == other));
        assert!(is_readable(&queue));
        queue.forget(&EventSubject::QueuePair(other));
        assert!(matches!(queue.pop(), Some(AsyncEvent::PortError)));
        assert!(!is_readable(&queue));
        queue.store(&mut vec![AsyncEvent::AccessError(other)]);
        queue.announce();
        queue.forget(&EventSubject::QueuePair(other));
        assert!(!is_readable(&queue), "nothing is left");
    }
}
