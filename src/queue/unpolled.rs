//! Completions that nobody has polled yet.
//!
//! A work request takes up an entry of its queue until its completion has been polled, not only
//! until it has been carried out, as with hardware. Otherwise an application that posts until a
//! queue is full would overrun a completion queue that has room for all work requests.

use super::sync::{Arc, AtomicU32, Ordering};
use crate::wire::Qpn;

/// How many completions of one work queue wait to be polled.
pub(crate) struct Unpolled(AtomicU32);

impl Unpolled {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(0)))
    }

    /// To be read after the tail of the work queue: the engine adds here before it releases there.
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self) {
        let less = |count: u32| count.checked_sub(1);
        // Nothing to take off if the completion is that of an earlier queue pair of this number.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
    }
}

/// The queue pairs whose completions a completion queue holds, rising by number.
#[derive(Default)]
pub(super) struct Users {
    list: Vec<User>,
    /// Where the last one was found: completions of one queue pair often follow one another.
    last: usize,
}

struct User {
    number: Qpn,
    send: Option<Arc<Unpolled>>,
    receive: Option<Arc<Unpolled>>,
}

impl Users {
    /// Completions of sends of queue pair `number`, of receives, or of both come here from now on.
    pub(super) fn join(
        &mut self,
        number: Qpn,
        send: Option<Arc<Unpolled>>,
        receive: Option<Arc<Unpolled>>,
    ) {
        self.leave(number);
        let place = self.list.partition_point(|user| user.number < number);
        self.list.insert(place, User { number, send, receive });
    }

    /// The queue pair has ended; what is left of its completions counts for nothing.
    pub(super) fn leave(&mut self, number: Qpn) {
        self.list.retain(|user| user.number != number);
    }

    /// A completion was polled.
    pub(super) fn polled(&mut self, number: Qpn, is_receive: bool) {
        if self.list.get(self.last).is_none_or(|user| user.number != number) {
            let Ok(place) = self.list.binary_search_by_key(&number, |user| user.number) else {
                return;
            };
            self.last = place;
        }
        let user = &self.list[self.last];
        if let Some(unpolled) = if is_receive { &user.receive } else { &user.send } {
            unpolled.remove();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn completions_count_for_the_queue_that_they_come_from() {
        let mut users = Users::default();
        let queues: Vec<[Arc<Unpolled>; 2]> =
            (0..5).map(|_| [Unpolled::new(), Unpolled::new()]).collect();
        // Not in the order of their numbers.
        for index in [3, 0, 4, 2, 1] {
            let [send, receive] = queues[index].clone();
            let receive = (index != 2).then_some(receive);
            users.join(Qpn::new(100 + index as u32), Some(send), receive);
        }
        queues.iter().flatten().for_each(|unpolled| (0..3).for_each(|_| unpolled.add()));
        for (number, is_receive) in [(101, false), (101, false), (104, true), (102, true)] {
            users.polled(Qpn::new(number), is_receive);
        }
        users.polled(Qpn::new(7), false);
        users.leave(Qpn::new(103));
        users.polled(Qpn::new(103), false);
        let counts: Vec<u32> = queues.iter().flatten().map(|unpolled| unpolled.count()).collect();
        assert_eq!(counts, [3, 3, 1, 3, 3, 3, 3, 3, 3, 2]);
        (0..9).for_each(|_| users.polled(Qpn::new(101), false));
        assert_eq!(queues[1][0].count(), 0, "never below zero");
    }
}
