//! Asynchronous events on their way to the application.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

use super::fork::Local;
use crate::engine::AsyncEvent;
use crate::link::Event;

/// Events that wait at most; a peer can cause them, so there must be an end.
const MOST: usize = 4096;

/// A queue of events with a descriptor that is readable while it is not empty.
pub(super) struct EventQueue {
    waiting: Mutex<VecDeque<AsyncEvent>>,
    event: Local<Event>,
}

impl EventQueue {
    /// An empty queue.
    ///
    /// # Errors
    /// That the process has no descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        let event = Local::open(Event::new, |event| vec![event.descriptor()])?;
        Ok(Self { waiting: Mutex::new(VecDeque::new()), event })
    }

    /// Adds events; what goes beyond the limit is lost.
    pub(super) fn push(&self, events: &mut Vec<AsyncEvent>) {
        if events.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST - waiting.len();
        waiting.extend(events.drain(..).take(room));
        self.event.signal();
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
        queue.push(&mut events);
        assert!(events.is_empty());
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
    }
}
