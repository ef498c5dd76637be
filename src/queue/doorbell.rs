//! Doorbells: which queue pairs have new work, told by any thread to whoever runs the engine.
//!
//! Two levels of bits, one for each queue pair and one for each 64 of them, so that ringing is two
//! atomic operations and collecting costs what was rung and not what exists. A bell that is rung
//! again before it was collected stays one bell.

use super::sync::{AtomicU64, Ordering};

/// See the module's text.
pub struct Doorbells {
    bells: Box<[AtomicU64]>,
    summary: Box<[AtomicU64]>,
}

impl Doorbells {
    /// Bells for the queue pair slots 0 up to, not including, `count`.
    pub fn new(count: usize) -> Self {
        let groups = count.div_ceil(64).max(1);
        let words = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect();
        Self { bells: words(groups), summary: words(groups.div_ceil(64)) }
    }

    /// Rings the bell of `slot`. Everything stored before is seen by who collects it.
    pub fn ring(&self, slot: usize) {
        let group = slot / 64;
        self.bells[group].fetch_or(1 << (slot % 64), Ordering::Release);
        self.summary[group / 64].fetch_or(1 << (group % 64), Ordering::Release);
    }

    /// Whether any bell is rung.
    pub fn any(&self) -> bool {
        self.summary.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Takes all rung bells, in rising order of slots.
    pub fn collect(&self, mut rung: impl FnMut(usize)) {
        for (index, summary) in self.summary.iter().enumerate() {
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for group in bits(summary.swap(0, Ordering::Acquire)) {
                let group = index * 64 + group;
                for slot in bits(self.bells[group].swap(0, Ordering::Acquire)) {
                    rung(group * 64 + slot);
                }
            }
        }
    }
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
        let bells = Doorbells::new(70_000);
        for slot in [69_999, 3, 64, 3, 4096] {
            bells.ring(slot);
        }
        assert!(bells.any());
        let mut seen = Vec::new();
        bells.collect(|slot| seen.push(slot));
        assert_eq!(seen, [3, 64, 4096, 69_999]);
        assert!(!bells.any());
        bells.collect(|_| panic!("collected twice"));
    }
}
