//! Which parts of an end's own memory its requests use.

use crate::rng::Rng;

/// A range from which pieces are taken at random places.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    start: usize,
    size: usize,
    /// Owner, start and length of each piece, in order of start.
    pieces: Vec<(u64, usize, usize)>,
}

impl Zone {
    pub(super) fn new(start: usize, size: usize) -> Self {
        Self { start, size, pieces: Vec::new() }
    }

    /// Takes `length` bytes for `owner`; nothing if there is no gap of that size.
    pub(super) fn take(&mut self, owner: u64, length: usize, rng: &mut Rng) -> Option<usize> {
        let fitting = || self.gaps().filter(|(_, _, size)| *size >= length);
        let count = fitting().count();
        if count == 0 {
            return None;
        }
        let (position, from, size) = fitting().nth(rng.below(count as u64) as usize)?;
        let start = from + rng.below((size - length + 1) as u64) as usize;
        self.pieces.insert(position, (owner, start, length));
        Some(start)
    }

    /// Gives back all pieces of `owner`.
    pub(super) fn release(&mut self, owner: u64) {
        self.pieces.retain(|(holder, _, _)| *holder != owner);
    }

    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }

    /// Position among the pieces, start and size of each gap.
    fn gaps(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let ends = [self.start].into_iter();
        let starts = self.pieces.iter().map(|(_, start, _)| *start);
        let ends = ends.chain(self.pieces.iter().map(|(_, start, length)| start + length));
        let starts = starts.chain([self.start + self.size]);
        ends.zip(starts).enumerate().map(|(position, (end, start))| (position, end, start - end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_never_overlap_and_come_back() {
        let mut zone = Zone::new(100, 1000);
        let mut rng = Rng::new(1);
        let mut taken: Vec<(u64, usize, usize)> = Vec::new();
        for owner in 0..200 {
            let length = rng.below(120) as usize;
            if let Some(start) = zone.take(owner, length, &mut rng) {
                assert!(start >= 100 && start + length <= 1100);
                let meets = |(_, other, size): &(u64, usize, usize)| {
                    *other < start + length && start < other + size
                };
                assert!(length == 0 || !taken.iter().any(meets));
                taken.push((owner, start, length));
            }
            if rng.chance(1, 2) && !taken.is_empty() {
                let (owner, _, _) = taken.swap_remove(rng.below(taken.len() as u64) as usize);
                zone.release(owner);
            }
        }
        zone.clear();
        assert_eq!(zone.take(1, 1000, &mut rng), Some(100));
        assert_eq!(zone.take(2, 1, &mut rng), None);
    }
}
