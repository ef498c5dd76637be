//! Doorbells: which queue pairs have new work, told by any thread to whoever runs the engine.
//!
//! Three levels of bits, one for each queue pair, for each 64 of them and for each 64 of these groups,
//! so that ringing is three atomic operations and collecting costs what was rung and not what exists.
//! A bell that is rung again before it was collected stays one bell.

use super::sync::{AtomicU64, Ordering};

/// See the module's text.
pub struct Doorbells {
    bells: Box<[AtomicU64]>,
    summary: Box<[AtomicU64]>,
    top: Box<[AtomicU64]>,
}

impl Doorbells {
    /// Bells for the queue pair slots 0 up to, not including, `count`.
    pub fn new(count: usize) -> Self {
        let groups = count.div_ceil(64).max(1);
        let summaries = groups.div_ceil(64);
        let words = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect();
        Self { bells: words(groups), summary: words(summaries), top: words(summaries.div_ceil(64)) }
    }

    /// Rings the bell of `slot`. Everything stored before is seen by who collects it.
    pub fn ring(&self, slot: usize) {
        set(&self.bells, slot);
        set(&self.summary, slot / 64);
        set(&self.top, slot / (64 * 64));
    }

    /// Whether any bell is rung.
    pub fn any(&self) -> bool {
        self.top.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Takes all rung bells, in rising order of slots.
    pub fn collect(&self, mut rung: impl FnMut(usize)) {
        for (index, top) in self.top.iter().enumerate() {
            if top.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // Each level is taken before the one below it: a bell that is rung meanwhile is seen, or
            // leaves its bit above.
            for summary in take(top, index) {
                for group in take(&self.summary[summary], summary) {
                    take(&self.bells[group], group).for_each(&mut rung);
                }
            }
        }
    }
}

fn set(words: &[AtomicU64], bit: usize) {
    words[bit / 64].fetch_or(1 << (bit % 64), Ordering::Release);
}

/// Takes the bits of the word at `index`: their numbers among those of all words.
fn take(word: &AtomicU64, index: usize) -> impl Iterator<Item = usize> {
    bits(word.swap(0, Ordering::Acquire)).map(move |bit| index * 64 + bit)
}

/// The positions of the set bits of `word`, rising.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let position = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            position
        })
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_rung_bell_is_collected_once_in_rising_order() {
        let bells = Doorbells::new(700_000);
        for slot in [699_999, 3, 64, 3, 4096, 262_144] {
            bells.ring(slot);
        }
        assert!(bells.any());
        let mut seen = Vec::new();
        bells.collect(|slot| seen.push(slot));
        assert_eq!(seen, [3, 64, 4096, 262_144, 699_999]);
        assert!(!bells.any());
        bells.collect(|_| panic!("collected twice"));
    }
}
