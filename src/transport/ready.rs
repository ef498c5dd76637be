//! Queue pairs that may have something to send, each once, served in turn.

use std::collections::VecDeque;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    order: VecDeque<u32>,
    listed: Vec<bool>,
}

impl ReadyList {
    /// Appends a queue pair that is not yet in the list.
    pub(crate) fn push(&mut self, slot: u32) {
        let index = slot as usize;
        if index >= self.listed.len() {
            self.listed.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.listed[index], true) {
            self.order.push_back(slot);
        }
    }

    /// Takes the first one out.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let slot = self.order.pop_front()?;
        self.listed[slot as usize] = false;
        Some(slot)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Takes out a queue pair that ends.
    pub(crate) fn remove(&mut self, slot: u32) {
        if self.listed.get(slot as usize) == Some(&true) {
            self.listed[slot as usize] = false;
            self.order.retain(|listed| *listed != slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32),
        /// One that has more to send: it goes to the end.
        Serve(bool),
        Remove(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u32..20).prop_map(Step::Push),
            5 => any::<bool>().prop_map(Step::Serve),
            1 => (0u32..30).prop_map(Step::Remove),
        ]
    }

    proptest! {
        #[test]
        fn the_list_is_a_queue_in_which_nobody_stands_twice(
            steps in proptest::collection::vec(step(), 1..200),
        ) {
            let (mut list, mut model) = (ReadyList::default(), Vec::new());
            for step in steps {
                match step {
                    Step::Push(slot) => {
                        list.push(slot);
                        if !model.contains(&slot) {
                            model.push(slot);
                        }
                    }
                    Step::Serve(again) => {
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(list.pop(), first);
                        if let Some(slot) = first.filter(|_| again) {
                            list.push(slot);
                            model.push(slot);
                        }
                    }
                    Step::Remove(slot) => {
                        list.remove(slot);
                        model.retain(|listed| *listed != slot);
                    }
                }
                prop_assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
            }
        }

        /// Whatever the others do, between two turns of one that always has something to send each
        /// other has one at most.
        #[test]
        fn nobody_waits_for_more_than_one_turn_of_each_other(
            count in 2u32..40,
            pushes in proptest::collection::vec(0u32..40, 1..400),
        ) {
            let mut list = ReadyList::default();
            (0..count).for_each(|slot| list.push(slot));
            let mut since = vec![0; count as usize];
            for other in pushes {
                list.push(other % count);
                let served = list.pop().expect("all are always in it");
                list.push(served);
                for (slot, waited) in since.iter_mut().enumerate() {
                    *waited = if slot as u32 == served { 0 } else { *waited + 1 };
                    prop_assert!(*waited < count, "slot {slot} waits for {waited} turns");
                }
            }
        }
    }
}
