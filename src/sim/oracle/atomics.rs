//! Words changed by atomic operations: each operation that succeeded happened exactly once, and the
//! old values that came back must fit one order of all of them.
//!
//! Adds and swaps use random 64-bit numbers, so a word never has the same value twice, and the old
//! values alone tell the order: it is followed like a chain, from the first value to the last.

use super::{Change, QueueId, Rule, Violation};

#[derive(Clone, Copy, Debug)]
struct Operation {
    token: u64,
    queue: QueueId,
    change: Change,
    opened: u64,
    /// When its completion was seen.
    closed: Option<u64>,
    /// The value that came back. Nothing: the operation failed, and may or may not have happened.
    old: Option<u64>,
}

/// The life of one word.
#[derive(Debug)]
pub(super) struct Word {
    initial: u64,
    operations: Vec<Operation>,
}

impl Word {
    pub(super) fn new(initial: u64) -> Self {
        Self { initial, operations: Vec::new() }
    }

    pub(super) fn open(&mut self, token: u64, queue: QueueId, change: Change, now: u64) {
        let (closed, old) = (None, None);
        self.operations.push(Operation { token, queue, change, opened: now, closed, old });
    }

    /// The operation ended, with the old value if it succeeded.
    pub(super) fn close(&mut self, token: u64, old: Option<u64>, now: u64) {
        let found = self.operations.iter_mut().find(|operation| operation.token == token);
        if let Some(operation) = found {
            operation.closed = Some(now);
            operation.old = old;
        }
    }

    /// How many operations failed: each doubles the number of possible histories.
    pub(super) fn failed(&self) -> usize {
        self.operations.iter().filter(|one| one.closed.is_some() && one.old.is_none()).count()
    }

    /// Whether one order of the operations explains all old values and the word's last value.
    /// Only when nothing is under way.
    pub(super) fn check(&self, last: u64, name: &str) -> Result<(), Violation> {
        let mut done = vec![false; self.operations.len()];
        if self.explain(self.initial, last, &mut done) {
            return Ok(());
        }
        let known = self.operations.iter().filter(|operation| operation.old.is_some()).count();
        let initial = self.initial;
        let text = format!(
            "{name}: no order of its {known} successful atomic operations leads from {initial:#x} \
             to {last:#x} with the old values that came back"
        );
        Err(Violation::new(Rule::Atomic, text))
    }

    /// Follows the chain from `value`, marking what was used in `done`.
    fn explain(&self, mut value: u64, last: u64, done: &mut [bool]) -> bool {
        while let Some(index) = self.next_known(value, done) {
            done[index] = true;
            value = self.operations[index].change.apply(value);
        }
        let all_known = (0..done.len()).all(|at| done[at] || self.operations[at].old.is_none());
        if all_known && value == last {
            return true;
        }
        (0..done.len()).filter(|&at| self.is_possible_failure(at, value, done)).any(|index| {
            let mut branch = done.to_vec();
            branch[index] = true;
            self.explain(self.operations[index].change.apply(value), last, &mut branch)
        })
    }

    /// A successful operation that found `value`: first one that leaves it as it is.
    fn next_known(&self, value: u64, done: &[bool]) -> Option<usize> {
        let fits = |&index: &usize| {
            !done[index]
                && self.operations[index].old == Some(value)
                && self.predecessors_done(index, done)
        };
        let keeps = |&index: &usize| self.operations[index].change.apply(value) == value;
        let candidates = || (0..done.len()).filter(fits);
        candidates().find(keeps).or_else(|| candidates().next())
    }

    /// A failed operation that would change the value now.
    fn is_possible_failure(&self, index: usize, value: u64, done: &[bool]) -> bool {
        let operation = &self.operations[index];
        !done[index]
            && operation.old.is_none()
            && operation.change.apply(value) != value
            && self.predecessors_done(index, done)
    }

    /// Whether all that surely came before has been used: what had completed before this one was
    /// posted, and what was posted earlier to the same queue.
    fn predecessors_done(&self, index: usize, done: &[bool]) -> bool {
        let operation = &self.operations[index];
        self.operations.iter().enumerate().all(|(at, other)| {
            let earlier = other.closed.is_some_and(|closed| closed < operation.opened)
                || (other.queue == operation.queue && other.opened < operation.opened);
            done[at] || other.old.is_none() || !earlier
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: QueueId = QueueId(0);
    const B: QueueId = QueueId(1);

    #[test]
    fn an_operation_that_happened_twice_is_found() {
        let mut word = Word::new(100);
        word.open(1, A, Change::Add(7), 1);
        word.close(1, Some(100), 2);
        assert!(word.check(107, "word").is_ok());
        assert!(word.check(114, "word").is_err());
        assert!(word.check(100, "word").is_err());
    }

    #[test]
    fn two_queues_may_come_in_either_order_but_only_in_one() {
        let mut word = Word::new(0);
        word.open(1, A, Change::Add(7), 1);
        word.open(2, B, Change::CompareSwap { compare: 7, swap: 50 }, 2);
        word.close(1, Some(0), 3);
        word.close(2, Some(7), 4);
        assert!(word.check(50, "word").is_ok());
        let mut wrong = Word::new(0);
        wrong.open(1, A, Change::Add(7), 1);
        wrong.open(2, B, Change::Add(9), 2);
        wrong.close(1, Some(0), 3);
        wrong.close(2, Some(0), 4);
        assert!(wrong.check(16, "word").is_err(), "both cannot have found 0");
    }

    #[test]
    fn order_in_time_binds() {
        let mut word = Word::new(0);
        word.open(1, A, Change::Add(7), 1);
        word.close(1, Some(9), 2);
        word.open(2, B, Change::Add(9), 3);
        word.close(2, Some(0), 4);
        assert!(word.check(16, "word").is_err(), "the second was posted after the first ended");
    }

    #[test]
    fn a_failed_operation_may_have_happened_once() {
        let mut word = Word::new(0);
        word.open(1, A, Change::Add(7), 1);
        word.close(1, None, 2);
        word.open(2, B, Change::Add(9), 3);
        word.close(2, Some(7), 4);
        assert!(word.check(16, "word").is_ok());
        assert!(word.check(9, "word").is_err());
        let mut lost = Word::new(0);
        lost.open(1, A, Change::Add(7), 1);
        lost.close(1, None, 2);
        assert!(lost.check(0, "word").is_ok());
        assert!(lost.check(7, "word").is_ok());
        assert!(lost.check(14, "word").is_err());
    }
}
