//! A ring of fixed-size entries made of atomic words, shared by one producer and one consumer.
//!
//! ```text
//!        tail (consumer)          head (producer)
//!          │ published entries …    │ free entries …
//!          ▼                        ▼
//!   ┌────┬────┬────┬────┬────┬────┬────┬────┐
//!   │    │ ██ │ ██ │ ██ │ ██ │ ██ │    │    │   each entry: `stride` words
//!   └────┴────┴────┴────┴────┴────┴────┴────┘
//! ```
//!
//! The consumer may read any published entry, any number of times, until it releases it: a
//! retransmission reads a work request again. Because every word is atomic there is no data race
//! to argue about; the release store of `head` and `tail` orders the words around it.

use super::sync::{AtomicU32, AtomicU64, Ordering};

/// A value on a cache line of its own. 64 bytes and not the 128 of crossbeam's `CachePadded`, which
/// would make two rings of a queue pair half a kilobyte larger than a small ring is itself.
#[repr(align(64))]
struct Line(AtomicU32);

/// See the module's text.
pub(crate) struct WordRing {
    words: Box<[AtomicU64]>,
    stride: usize,
    mask: u32,
    head: Line,
    tail: Line,
}

impl WordRing {
    /// A ring of at least `capacity` entries (rounded up to a power of two) of `stride` words.
    pub(crate) fn new(capacity: u32, stride: usize) -> Self {
        let capacity = capacity.max(1).next_power_of_two();
        let words = (0..capacity as usize * stride).map(|_| AtomicU64::new(0)).collect();
        Self {
            words,
            stride,
            mask: capacity - 1,
            head: Line(AtomicU32::new(0)),
            tail: Line(AtomicU32::new(0)),
        }
    }

    /// How many entries fit.
    pub(crate) fn capacity(&self) -> u32 {
        self.mask + 1
    }

    /// Position of the next entry to produce. Positions count up for ever, modulo 2^32.
    pub(crate) fn head(&self) -> u32 {
        self.head.0.load(Ordering::Acquire)
    }

    /// Position of the oldest entry not yet released.
    pub(crate) fn tail(&self) -> u32 {
        self.tail.0.load(Ordering::Acquire)
    }

    /// Entries published and not yet released. Exact for the producer's and the consumer's own
    /// purposes; a third thread may see a number that is a moment old.
    pub(crate) fn len(&self) -> u32 {
        // The tail first: it never overtakes a head that is read after it. Both may have moved in
        // between, which must not make more than there can be.
        let tail = self.tail();
        self.head().wrapping_sub(tail).min(self.capacity())
    }

    /// Producer: whether another entry fits.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < self.capacity()
    }

    /// The words of the entry at `position`. The producer writes only between tail + capacity and
    /// head, the consumer reads only between tail and head.
    pub(crate) fn entry(&self, position: u32) -> &[AtomicU64] {
        let start = (position & self.mask) as usize * self.stride;
        &self.words[start..start + self.stride]
    }

    /// Producer: everything before `head` is complete and may be read.
    pub(crate) fn publish(&self, head: u32) {
        self.head.0.store(head, Ordering::Release);
    }

    /// Consumer: everything before `tail` is done with and may be overwritten.
    pub(crate) fn release(&self, tail: u32) {
        self.tail.0.store(tail, Ordering::Release);
    }

    /// Forgets all entries. Only while neither side is active (queue pair reset).
    pub(crate) fn clear(&self) {
        self.tail.0.store(self.head(), Ordering::Release);
    }
}

/// Stores one word of an entry that is not yet published.
pub(crate) fn put(entry: &[AtomicU64], word: usize, value: u64) {
    entry[word].store(value, Ordering::Relaxed);
}

/// Reads one word of a published entry.
pub(crate) fn get(entry: &[AtomicU64], word: usize) -> u64 {
    entry[word].load(Ordering::Relaxed)
}

/// Two 32-bit numbers in one word, high half first.
pub(crate) const fn pair(high: u32, low: u32) -> u64 {
    ((high as u64) << 32) | low as u64
}

/// The halves of a word that [`pair`] made.
pub(crate) const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}
