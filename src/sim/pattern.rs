//! Bytes that tell places, messages and runs apart, many at a time.

use std::array;

use crate::rng::Rng;

/// Words that are made side by side: as many as a processor adds at once.
const LANES: usize = 8;
/// Bytes of these words.
const BLOCK: usize = 8 * LANES;

/// Words of a random sequence, each the one before plus a random odd number: no two words within
/// reach of each other are equal, and no two sequences.
struct Pattern {
    lanes: [u64; LANES],
    stride: u64,
}

impl Pattern {
    fn new(rng: &mut Rng) -> Self {
        let (first, step) = (rng.next_u64(), rng.next_u64() | 1);
        let lanes = array::from_fn(|lane| first.wrapping_add(step.wrapping_mul(lane as u64)));
        Self { lanes, stride: step.wrapping_mul(LANES as u64) }
    }

    fn next(&mut self) -> [[u8; 8]; LANES] {
        let block = self.lanes.map(u64::to_le_bytes);
        self.lanes.iter_mut().for_each(|lane| *lane = lane.wrapping_add(self.stride));
        block
    }
}

/// Fills `bytes`.
pub(super) fn fill(rng: &mut Rng, bytes: &mut [u8]) {
    let mut pattern = Pattern::new(rng);
    let (blocks, rest) = bytes.as_chunks_mut::<BLOCK>();
    for block in blocks {
        block.copy_from_slice(pattern.next().as_flattened());
    }
    let length = rest.len();
    rest.copy_from_slice(&pattern.next().as_flattened()[..length]);
}

/// So many new bytes.
pub(super) fn bytes(rng: &mut Rng, length: usize) -> Vec<u8> {
    let mut pattern = Pattern::new(rng);
    let mut bytes = Vec::with_capacity(length.next_multiple_of(BLOCK));
    while bytes.len() < length {
        bytes.extend_from_slice(pattern.next().as_flattened());
    }
    bytes.truncate(length);
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_words_are_equal_whatever_the_length() {
        let mut rng = Rng::new(7);
        let mut seen = HashSet::new();
        let mut words = 0;
        for length in [0, 1, 7, 8, 63, 64, 65, 200, 4096, 70_001] {
            let mut bytes = vec![0; length];
            fill(&mut rng, &mut bytes);
            let (whole, rest) = bytes.as_chunks::<8>();
            seen.extend(whole.iter().copied());
            words += whole.len();
            assert!(rest.is_empty() || length < 8 || *rest != [0; 8][..rest.len()]);
        }
        assert_eq!(seen.len(), words);
    }

    #[test]
    fn a_longer_one_begins_like_a_shorter_one_and_both_ways_to_make_them_agree() {
        let (mut short, mut long) = ([0; 75], [0; 1000]);
        fill(&mut Rng::new(3), &mut short);
        fill(&mut Rng::new(3), &mut long);
        assert_eq!(short[..], long[..75]);
        assert_eq!(bytes(&mut Rng::new(3), 75), short);
        assert_eq!(bytes(&mut Rng::new(3), 1000), long);
        assert!(bytes(&mut Rng::new(3), 0).is_empty());
    }
}
