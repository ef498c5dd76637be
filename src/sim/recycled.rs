//! Large rooms that one run leaves to the next on the same thread.
//!
//! A run needs some megabytes of memory for its machines, and as much for what the oracle knows of
//! them. To ask the system for them anew would take as long as a third of the packets: it clears
//! every page.

use std::cell::RefCell;
use std::sync::Arc;

use crate::memory::OwnedMemory;

/// Bytes of each kind that a thread keeps at most.
const KEPT: usize = 64 << 20;
/// Smaller rooms are not worth keeping.
const SMALL: usize = 32 << 10;
/// Bytes of a piece from which on the C library always returns it.
const LARGEST: usize = 31 << 20;
/// Rooms have sizes that are multiples of this, so that they fit many runs.
const STEP: usize = 256 << 10;

thread_local! {
    static ROOMS: RefCell<Rooms> = RefCell::new(Rooms::new());
}

struct Rooms {
    /// All memories of this thread's runs, in use or not.
    memories: Vec<Arc<OwnedMemory>>,
    bytes: Vec<Vec<u8>>,
}

impl Rooms {
    fn new() -> Self {
        // The C library gives freed memory back to the system, which clears it again for the next
        // run, unless larger pieces than any that it then keeps were freed before.
        drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGEST)));
        Self { memories: Vec::new(), bytes: Vec::new() }
    }

    fn memory(&mut self, length: usize) -> Arc<OwnedMemory> {
        let size = length.next_multiple_of(STEP);
        let is_free = |one: &Arc<OwnedMemory>| one.len() == size && Arc::strong_count(one) == 1;
        if let Some(free) = self.memories.iter().find(|one| is_free(one)) {
            return Arc::clone(free);
        }
        if self.memories.iter().map(|one| one.len()).sum::<usize>() + size > KEPT {
            self.memories.retain(|one| Arc::strong_count(one) > 1);
        }
        let memory = OwnedMemory::new(size);
        self.memories.push(Arc::clone(&memory));
        memory
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        match self.bytes.iter().position(|one| one.len() >= length) {
            Some(index) => self.bytes.swap_remove(index),
            None => vec![0; length.next_multiple_of(STEP)],
        }
    }

    fn give_back(&mut self, bytes: Vec<u8>) {
        if self.bytes.iter().map(Vec::len).sum::<usize>() + bytes.len() <= KEPT {
            self.bytes.push(bytes);
        }
    }
}

/// A memory that nobody uses, of at least `length` bytes, with whatever it had in it.
pub(super) fn memory(length: usize) -> Arc<OwnedMemory> {
    if length < SMALL {
        return OwnedMemory::new(length);
    }
    ROOMS.with_borrow_mut(|rooms| rooms.memory(length))
}

/// At least so many bytes, of whatever value.
pub(super) fn bytes(length: usize) -> Vec<u8> {
    if length < SMALL {
        return vec![0; length];
    }
    ROOMS.with_borrow_mut(|rooms| rooms.bytes(length))
}

/// They are no longer needed.
pub(super) fn give_back(bytes: Vec<u8>) {
    if bytes.len() >= SMALL {
        // At the end of a thread there is nobody to keep them.
        let _ = ROOMS.try_with(|rooms| rooms.borrow_mut().give_back(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_comes_back_when_nobody_uses_it_and_not_before() {
        let mut rooms = Rooms::new();
        let first = rooms.memory(300 << 10);
        let second = rooms.memory(300 << 10);
        assert_ne!(first.address(), second.address());
        let address = first.address();
        drop(first);
        assert_eq!(rooms.memory(290 << 10).address(), address);
        assert!(rooms.memory(600 << 10).len() >= 600 << 10);
    }

    #[test]
    fn a_thread_keeps_no_more_than_its_share() {
        let mut rooms = Rooms::new();
        for index in 1..100 {
            drop(rooms.memory(index * STEP));
            rooms.give_back(vec![0; index * STEP]);
            assert!(rooms.memories.iter().map(|one| one.len()).sum::<usize>() <= KEPT);
            assert!(rooms.bytes.iter().map(Vec::len).sum::<usize>() <= KEPT);
        }
        assert!(rooms.bytes(3 * STEP).len() >= 3 * STEP);
    }
}
