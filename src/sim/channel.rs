//! What the network knows of the packets of one end of a connection.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::memory::WindowId;
use crate::queue::QueuePairQueues;
use crate::time::Instant;
use crate::wire::Psn;

use super::credits::{Ledger, Told};
use super::matrix::{Met, Row};

/// See the module's text.
#[derive(Default)]
pub(super) struct Channel {
    /// The end that it is connected to.
    pub(super) peer: usize,
    /// Its memory window.
    pub(super) window: Option<WindowId>,
    /// Nothing happens to what it sends.
    pub(super) is_spared: bool,
    /// Without acknowledgements: where its receives are.
    pub(super) receives: Option<Arc<QueuePairQueues>>,
    /// Without acknowledgements: of each message at which machines all its packets will arrive, one
    /// bit each (all bits for what is for one machine), and those of the one that is being sent.
    pub(super) intact: Vec<u64>,
    is_intact: u64,
    /// The machine on which it is attached to the group.
    pub(super) joined_on: Option<usize>,
    pub(super) met: Met,
    pub(super) requests: VecDeque<(u32, Row)>,
    /// Flights towards it.
    pub(super) inbound: usize,
    /// It has no READs and no atomics: no answer of theirs can be missing before a pause.
    pub(super) only_messages: bool,
    /// Its send queue is drained and rests.
    pub(super) is_resting: bool,
    /// What it was told of its peer's receives.
    pub(super) ledger: Ledger,
    /// A PSN that it was asked not to send before a time.
    pub(super) not_before: Option<(u32, Instant)>,
}

impl Channel {
    pub(super) fn receive(&mut self, now: Instant, pause: Option<(u32, u64)>, told: &[Told]) {
        self.inbound -= 1;
        told.iter().for_each(|told| self.ledger.answered(*told));
        let Some((psn, wait)) = pause else { return };
        // What comes before the packet is sent again is about the same attempt; and what asks for an
        // earlier packet is a late copy, for that one has been received.
        let is_after = |paused: u32| Psn::new(psn).is_after(Psn::new(paused));
        let is_new = self.not_before.is_none_or(|(paused, _)| is_after(paused));
        if is_new && self.only_messages {
            self.not_before = Some((psn, now + wait));
        }
    }

    /// Notes which messages arrive whole, where nobody tells the sender. `edges`: the packet begins,
    /// and ends, a message; `arrives`: at which machines.
    pub(super) fn follow(&mut self, edges: (bool, bool), arrives: u64) {
        let (begins, ends) = edges;
        self.is_intact = arrives & if begins { u64::MAX } else { self.is_intact };
        if ends {
            self.intact.push(self.is_intact);
        }
    }

    /// Whether its receives are watched, and none is posted.
    pub(super) fn lacks_receives(&self) -> bool {
        self.receives.as_ref().is_some_and(|queues| queues.receive_queue().posted() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_copy_that_asks_for_an_earlier_packet_starts_no_pause() {
        let at = |time: u64| Instant::ZERO + time;
        let mut channel = Channel { inbound: 5, only_messages: true, ..Channel::default() };
        channel.receive(at(0), Some((0xff_fffe, 40)), &[]);
        assert_eq!(channel.not_before, Some((0xff_fffe, at(40))));
        channel.receive(at(50), Some((3, 40)), &[]);
        assert_eq!(channel.not_before, Some((3, at(90))), "behind the wrap is ahead");
        channel.receive(at(60), Some((0xff_fffe, 40)), &[]);
        channel.receive(at(70), Some((3, 40)), &[]);
        assert_eq!(channel.not_before, Some((3, at(90))));
    }
}
