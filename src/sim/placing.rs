//! ATOMIC WRITE and FLUSH: where they go.

use crate::queue::{FlushPlacement, FlushSelectivity, Remote, SendOperation};

use super::oracle::{Action, Defect, Place};
use super::posting::{Source, TRIES, Target};
use super::scenario::Planned;
use super::world::World;

/// Words that ATOMIC WRITEs share, so that one that is carried out late, or again, meets another's
/// value.
const SHARED_WORDS: u64 = 4;
const WORD: usize = 8;

impl World {
    /// Eight bytes to one of a few words.
    pub(super) fn atomic_write(
        &mut self,
        end: usize,
        planned: &Planned,
        source: &Source,
    ) -> Target {
        let bytes = source.inline.as_deref().unwrap_or_default();
        let value = bytes.try_into().expect("an ATOMIC WRITE is planned with eight bytes inline");
        let (remote, place) = match (planned.defect, self.wrong_remote(end, planned)) {
            (_, Some(remote)) => (remote, None),
            (Some(Defect::Misaligned), None) => {
                let (remote, _) = self.word(end);
                (Remote { address: remote.address + 1 + self.rng.below(7), ..remote }, None)
            }
            (_, None) => {
                let (remote, place) = self.word(end);
                (remote, Some(place))
            }
        };
        let operation = SendOperation::AtomicWrite { remote, value };
        Target::new(operation, Action::Write(place), None)
    }

    /// A shared word of the peer; another one where a failed request may have left its traces.
    fn word(&mut self, end: usize) -> (Remote, Place) {
        let node = &self.nodes[self.ends[end ^ 1].plan.node];
        let start = node.target_start(self.scenario.target);
        let all = (self.scenario.target / WORD) as u64;
        let mut offset = start;
        for attempt in 0..TRIES {
            let words = if attempt < TRIES / 4 { SHARED_WORDS.min(all) } else { all };
            offset = start + self.rng.below(words) as usize * WORD;
            if !self.oracle.is_tainted(node.arena.place(offset, WORD)) {
                break;
            }
        }
        (node.arena.remote(offset), node.arena.place(offset, WORD))
    }

    /// A range of what all peers may use, or all of it.
    pub(super) fn flush(&mut self, end: usize, planned: &Planned) -> Target {
        let remote = self.wrong_remote(end, planned).unwrap_or_else(|| {
            let node = &self.nodes[self.ends[end ^ 1].plan.node];
            let room = (self.scenario.target - planned.length) as u64;
            let start = node.target_start(self.scenario.target);
            node.arena.remote(start + self.rng.below(room + 1) as usize)
        });
        let is_whole = planned.defect.is_none() && self.rng.chance(1, 3);
        let operation = SendOperation::Flush {
            remote,
            length: planned.length as u32,
            placement: FlushPlacement::GlobalVisibility,
            selectivity: if is_whole { FlushSelectivity::Region } else { FlushSelectivity::Range },
        };
        Target::new(operation, Action::Flush, None)
    }
}
