//! Which entries of a work queue are taken up.
//!
//! A work request takes up an entry of its queue until its completion has been polled, not only
//! until it has been carried out, as with hardware. Otherwise an application that posts until a
//! queue is full would overrun a completion queue that has room for all work requests.
//!
//! One number says how many entries are taken up, so that none counts twice or not at all while it
//! passes from the queue to a message and on to a completion:
//!
//! ```text
//!   post: +1 ──▶ in the queue ──▶ claimed, carried out ──▶ completion waits ──▶ polled: -1
//!                    └── RESET, or carried out without a completion: -1
//! ```

use super::sync::{Arc, AtomicU32, Ordering};
use crate::wire::{Qpn, Srqn};

/// How many entries of one work queue are taken up.
pub(crate) struct Occupied(AtomicU32);

impl Occupied {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(0)))
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// An entry is about to be published.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// An entry is free, and may be overwritten by whoever sees it.
    pub(crate) fn remove(&self) {
        self.remove_all(1);
    }

    /// As [`Self::remove`] for several.
    pub(crate) fn remove_all(&self, entries: u32) {
        if entries > 0 {
            let less = |count: u32| Some(count.saturating_sub(entries));
            // Nothing to take off if the completion is that of an earlier queue pair of this number.
            let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
        }
    }
}

/// The queue pairs whose completions a completion queue holds, rising by number.
#[derive(Default)]
pub(super) struct Users {
    list: Vec<User>,
    /// Where the last one was found: completions of one queue pair often follow one another.
    last: usize,
    /// XRC shared receive queues, rising by number: their completions name queue pairs that take
    /// from many such queues.
    shared: Vec<(Srqn, Arc<Occupied>)>,
}

struct User {
    number: Qpn,
    send: Option<Arc<Occupied>>,
    receive: Option<Arc<Occupied>>,
}

impl Users {
    /// Completions of sends of queue pair `number`, of receives, or of both come here from now on.
    pub(super) fn join(
        &mut self,
        number: Qpn,
        send: Option<Arc<Occupied>>,
        receive: Option<Arc<Occupied>>,
    ) {
        self.leave(number);
        let place = self.list.partition_point(|user| user.number < number);
        self.list.insert(place, User { number, send, receive });
    }

    /// The queue pair has ended; what is left of its completions counts for nothing.
    pub(super) fn leave(&mut self, number: Qpn) {
        self.list.retain(|user| user.number != number);
    }

    /// Completions of XRC shared receive queue `number` come here from now on.
    pub(super) fn join_shared(&mut self, number: Srqn, receive: Arc<Occupied>) {
        self.leave_shared(number);
        let place = self.shared.partition_point(|(known, _)| *known < number);
        self.shared.insert(place, (number, receive));
    }

    /// The XRC shared receive queue has ended.
    pub(super) fn leave_shared(&mut self, number: Srqn) {
        self.shared.retain(|(known, _)| *known != number);
    }

    /// A completion of an XRC shared receive queue was polled.
    pub(super) fn polled_shared(&self, number: Srqn) {
        if let Ok(place) = self.shared.binary_search_by_key(&number, |(known, _)| *known) {
            self.shared[place].1.remove();
        }
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
        if let Some(occupied) = if is_receive { &user.receive } else { &user.send } {
            occupied.remove();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn completions_count_for_the_queue_that_they_come_from() {
        let mut users = Users::default();
        let queues: Vec<[Arc<Occupied>; 2]> =
            (0..5).map(|_| [Occupied::new(), Occupied::new()]).collect();
        // Not in the order of their numbers.
        for index in [3, 0, 4, 2, 1] {
            let [send, receive] = queues[index].clone();
            let receive = (index != 2).then_some(receive);
            users.join(Qpn::new(100 + index as u32), Some(send), receive);
        }
        queues.iter().flatten().for_each(|occupied| (0..3).for_each(|_| occupied.add()));
        for (number, is_receive) in [(101, false), (101, false), (104, true), (102, true)] {
            users.polled(Qpn::new(number), is_receive);
        }
        users.polled(Qpn::new(7), false);
        users.leave(Qpn::new(103));
        users.polled(Qpn::new(103), false);
        let counts: Vec<u32> = queues.iter().flatten().map(|occupied| occupied.count()).collect();
        assert_eq!(counts, [3, 3, 1, 3, 3, 3, 3, 3, 3, 2]);
        (0..9).for_each(|_| users.polled(Qpn::new(101), false));
        assert_eq!(queues[1][0].count(), 0, "never below zero");
    }

    #[test]
    fn completions_of_xrc_queues_count_by_their_own_numbers_which_queue_pairs_may_have_too() {
        let mut users = Users::default();
        let [pair, first, second] = [0; 3].map(|_| Occupied::new());
        users.join(Qpn::new(7), None, Some(Arc::clone(&pair)));
        users.join_shared(Srqn::new(9), Arc::clone(&second));
        users.join_shared(Srqn::new(7), Arc::clone(&first));
        for occupied in [&pair, &first, &second] {
            occupied.add();
        }
        users.polled_shared(Srqn::new(7));
        assert_eq!([&pair, &first, &second].map(|occupied| occupied.count()), [1, 0, 1]);
        users.leave_shared(Srqn::new(9));
        users.polled_shared(Srqn::new(9));
        assert_eq!(second.count(), 1, "the queue has ended");
    }
}
