//! The next deadline of each queue pair, in an indexed heap: one entry a queue pair.
//!
//! Re-arming is lazy: a deadline that moves later leaves its entry where it is, and only when the
//! entry comes up is it put in its new place. Timers that never fire thus cost almost nothing.

use crate::time::Instant;

/// No entry.
const NONE: u32 = u32::MAX;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    /// A binary heap, earliest first.
    heap: Vec<(Instant, u32)>,
    /// Where each slot's entry stands in the heap.
    position: Vec<u32>,
}

impl Deadlines {
    /// `slot` wants to be looked at no later than at `at`.
    pub(crate) fn set(&mut self, slot: u32, at: Instant) {
        let index = slot as usize;
        if index >= self.position.len() {
            self.position.resize(index + 1, NONE);
        }
        match self.position[index] {
            NONE if at == Instant::NEVER => {}
            NONE => {
                self.heap.push((at, slot));
                self.sift_up(self.heap.len() - 1);
            }
            place if at < self.heap[place as usize].0 => {
                self.heap[place as usize].0 = at;
                self.sift_up(place as usize);
            }
            _ => {}
        }
    }

    /// The earliest entry. It may be earlier than its queue pair's deadline, never later.
    pub(crate) fn next(&self) -> Instant {
        self.heap.first().map_or(Instant::NEVER, |entry| entry.0)
    }

    /// Takes out an entry that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let (at, slot) = *self.heap.first()?;
        if at > now {
            return None;
        }
        self.remove(slot);
        Some(slot)
    }

    /// Takes out a queue pair's entry.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(place) = self.position.get(slot as usize).copied().filter(|p| *p != NONE) else {
            return;
        };
        let place = place as usize;
        self.position[slot as usize] = NONE;
        let last = self.heap.len() - 1;
        self.heap.swap(place, last);
        self.heap.pop();
        if place < self.heap.len() {
            self.position[self.heap[place].1 as usize] = place as u32;
            self.sift_up(place);
            self.sift_down(place);
        }
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].0 <= self.heap[place].0 {
                break;
            }
            self.swap(place, parent);
            place = parent;
        }
        self.position[self.heap[place].1 as usize] = place as u32;
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let earliest = [left, left + 1]
                .into_iter()
                .filter(|child| *child < self.heap.len())
                .min_by_key(|child| self.heap[*child].0);
            match earliest {
                Some(child) if self.heap[child].0 < self.heap[place].0 => {
                    self.swap(place, child);
                    place = child;
                }
                _ => break,
            }
        }
        self.position[self.heap[place].1 as usize] = place as u32;
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.position[self.heap[a].1 as usize] = a as u32;
        self.position[self.heap[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn entries_come_out_in_order_and_lazily_moved_ones_not_too_late() {
        let mut rng = Rng::new(5);
        let mut deadlines = Deadlines::default();
        let mut model: BTreeMap<u32, Instant> = BTreeMap::new();
        for step in 0..20_000_u64 {
            let slot = rng.below(40) as u32;
            if rng.chance(1, 4) {
                deadlines.remove(slot);
                model.remove(&slot);
            } else {
                let at = Instant::from_nanos(step + rng.below(500));
                deadlines.set(slot, at);
                let earlier = model.get(&slot).map_or(at, |old| (*old).min(at));
                model.insert(slot, earlier);
            }
            let earliest = model.values().min().copied().unwrap_or(Instant::NEVER);
            assert_eq!(deadlines.next(), earliest);
            let now = Instant::from_nanos(step);
            while let Some(slot) = deadlines.pop_due(now) {
                let at = model.remove(&slot).expect("the model has the entry");
                assert!(at <= now);
            }
            assert!(model.values().all(|at| *at > now));
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, u64),
        Remove(u32),
        /// As [`Deadlines::pop_due`] is used: all that is due by then.
        Pop(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few times, so that many are the same; and the ends.
        let at = prop_oneof![8 => 0u64..50, 1 => Just(0), 1 => (u64::MAX - 3)..=u64::MAX];
        prop_oneof![
            8 => (0u32..30, at.clone()).prop_map(|(slot, at)| Step::Set(slot, at)),
            2 => (0u32..40).prop_map(Step::Remove),
            3 => at.prop_map(Step::Pop),
        ]
    }

    /// By time, then by slot: a heap of an entry for each slot gives the times of this set.
    #[derive(Default)]
    struct Model(BTreeSet<(Instant, u32)>);

    impl Model {
        fn at(&self, slot: u32) -> Option<Instant> {
            self.0.iter().find(|(_, known)| *known == slot).map(|(at, _)| *at)
        }

        fn remove(&mut self, slot: u32) -> Option<Instant> {
            let at = self.at(slot)?;
            self.0.remove(&(at, slot));
            Some(at)
        }

        fn set(&mut self, slot: u32, at: Instant) {
            let earlier = self.remove(slot).unwrap_or(at).min(at);
            if earlier != Instant::NEVER {
                self.0.insert((earlier, slot));
            }
        }
    }

    proptest! {
        #[test]
        fn the_heap_is_an_ordered_set(steps in proptest::collection::vec(step(), 1..200)) {
            let (mut deadlines, mut model) = (Deadlines::default(), Model::default());
            for step in steps {
                match step {
                    Step::Set(slot, at) => {
                        deadlines.set(slot, Instant::from_nanos(at));
                        model.set(slot, Instant::from_nanos(at));
                    }
                    Step::Remove(slot) => {
                        deadlines.remove(slot);
                        model.remove(slot);
                    }
                    Step::Pop(now) => {
                        let now = Instant::from_nanos(now);
                        let mut last = Instant::ZERO;
                        while let Some(slot) = deadlines.pop_due(now) {
                            let at = model.remove(slot).expect("an entry that there is");
                            prop_assert!(last <= at && at <= now, "in order, and only what is due");
                            last = at;
                        }
                        prop_assert!(model.0.iter().all(|(at, _)| *at > now), "all that is due");
                    }
                }
                let next = model.0.first().map_or(Instant::NEVER, |(at, _)| *at);
                prop_assert_eq!(deadlines.next(), next);
                prop_assert_eq!(deadlines.heap.len(), model.0.len());
                for (place, (at, slot)) in deadlines.heap.iter().enumerate() {
                    prop_assert!(model.0.contains(&(*at, *slot)));
                    prop_assert_eq!(deadlines.position[*slot as usize] as usize, place);
                }
            }
        }
    }
}
