//! A switch with a queue before each of its ports' lines: marks, drops, pauses.
//!
//! ```text
//!   port of sender ──▶ ┌ queue of the port that leads to the receiver ┐ ──▶ line
//!     ▲ pause: XOFF    │ control (CNPs) first │ data: marked, dropped  │
//!     └────────────────┴ bytes by sender ─────────────────────────────┘
//! ```

use std::collections::VecDeque;

use super::packet::{Class, FabricPacket};
use super::plan::SwitchPlan;
use crate::rng::Rng;

/// One port: the queue before its line, and what its sender has in the switch.
#[derive(Debug, Default)]
struct SwitchPort {
    control: VecDeque<FabricPacket>,
    data: VecDeque<FabricPacket>,
    /// Bytes in `data`.
    depth: u64,
    /// Bytes of this port's sender in all queues.
    held: u64,
    /// Its sender was told to pause.
    pauses: bool,
    /// A packet is on its line.
    busy: bool,
}

/// What became of a packet that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) dropped: bool,
    pub(super) marked: bool,
    /// The sender has to be told to pause.
    pub(super) pause: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Switch {
    plan: SwitchPlan,
    ports: Vec<SwitchPort>,
    rng: Rng,
}

impl Switch {
    pub(super) fn new(plan: SwitchPlan, ports: usize, rng: Rng) -> Self {
        Self { plan, ports: (0..ports).map(|_| SwitchPort::default()).collect(), rng }
    }

    /// Bytes of data in a port's queue.
    pub(super) fn depth(&self, port: usize) -> u64 {
        self.ports[port].depth
    }

    /// A packet comes in.
    pub(super) fn arrive(&mut self, mut packet: FabricPacket) -> Verdict {
        let (from, to, size) = (packet.from, packet.to, packet.size());
        let nothing = Verdict { dropped: false, marked: false, pause: false };
        if packet.class() == Class::Control {
            self.ports[to].control.push_back(packet);
            return nothing;
        }
        let depth = self.ports[to].depth;
        if depth + size > self.plan.buffer {
            return Verdict { dropped: true, ..nothing };
        }
        let marked = self.marks(depth) && packet.mark();
        let queue = &mut self.ports[to];
        queue.depth += size;
        queue.data.push_back(packet);
        let sender = &mut self.ports[from];
        sender.held += size;
        let full = self.plan.pfc.is_some_and(|pfc| sender.held > pfc.xoff);
        let pause = full && !sender.pauses;
        sender.pauses |= full;
        Verdict { dropped: false, marked, pause }
    }

    /// Random early detection.
    fn marks(&mut self, depth: u64) -> bool {
        let SwitchPlan { kmin, kmax, pmax, .. } = self.plan;
        if depth <= kmin {
            return false;
        }
        if depth > kmax {
            return true;
        }
        let share = (depth - kmin) as f64 / (kmax - kmin).max(1) as f64 * pmax;
        let millionths = (share.clamp(0.0, 1.0) * 1e6) as u64;
        self.rng.chance(millionths, 1_000_000)
    }

    /// The next packet for a port's line, if that is free; and whether its sender may go on.
    pub(super) fn next(&mut self, port: usize) -> Option<(FabricPacket, bool)> {
        let queue = &mut self.ports[port];
        if queue.busy {
            return None;
        }
        if let Some(packet) = queue.control.pop_front() {
            queue.busy = true;
            return Some((packet, false));
        }
        let packet = queue.data.pop_front()?;
        queue.busy = true;
        queue.depth -= packet.size();
        let sender = &mut self.ports[packet.from];
        sender.held -= packet.size();
        let empty = self.plan.pfc.is_some_and(|pfc| sender.held <= pfc.xon);
        let resume = empty && sender.pauses;
        sender.pauses &= !empty;
        Some((packet, resume))
    }

    /// The packet on a port's line is through.
    pub(super) fn line_free(&mut self, port: usize) {
        self.ports[port].busy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::PfcPlan;
    use super::*;

    /// 1000 bytes on the line, from host 1 to host 0.
    fn packet(traffic_class: u8) -> FabricPacket {
        FabricPacket::test(1, 0, 1_000, traffic_class)
    }

    fn switch(plan: SwitchPlan) -> Switch {
        Switch::new(plan, 2, Rng::new(1))
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_notifications_always_fit_and_go_first() {
        let mut switch = switch(SwitchPlan { buffer: 3_000, ..SwitchPlan::default() });
        for index in 0..5 {
            assert_eq!(switch.arrive(packet(2)).dropped, index >= 3);
        }
        assert_eq!(switch.depth(0), 3_000);
        assert!(!switch.arrive(packet(0xc2)).dropped);
        assert_eq!(switch.next(0).unwrap().0.class(), Class::Control);
        assert!(switch.next(0).is_none(), "the line is busy");
        switch.line_free(0);
        assert_eq!(switch.next(0).unwrap().0.class(), Class::Data);
        assert_eq!(switch.depth(0), 2_000);
    }

    #[test]
    fn marks_rise_from_none_to_the_share_at_kmax_and_then_to_all() {
        let plan = SwitchPlan {
            kmin: 10_000,
            kmax: 110_000,
            pmax: 0.5,
            buffer: u64::MAX,
            ..SwitchPlan::default()
        };
        let mut switch = switch(plan);
        let mut marked = Vec::new();
        for _ in 0..150 {
            marked.push(switch.arrive(packet(2)).marked);
        }
        let count =
            |range: std::ops::Range<usize>| marked[range].iter().filter(|one| **one).count();
        assert_eq!(count(0..11), 0);
        assert!((14..=36).contains(&count(11..111)), "{}", count(11..111));
        assert!(count(11..61) < count(61..111));
        assert_eq!(count(111..150), 39);
    }

    #[test]
    fn who_is_not_ecn_capable_is_not_marked() {
        let mut switch = switch(SwitchPlan { kmin: 0, kmax: 0, ..SwitchPlan::default() });
        switch.arrive(packet(0));
        assert!(!switch.arrive(packet(0)).marked);
        assert!(switch.arrive(packet(0x68 | 1)).marked);
    }

    #[test]
    fn a_sender_is_paused_once_above_xoff_and_goes_on_at_xon() {
        let pfc = Some(PfcPlan { xoff: 3_000, xon: 1_000 });
        let mut switch = switch(SwitchPlan { pfc, ..SwitchPlan::default() });
        let pauses: Vec<bool> = (0..5).map(|_| switch.arrive(packet(2)).pause).collect();
        assert_eq!(pauses, [false, false, false, true, false]);
        let mut resumes = Vec::new();
        while let Some((_, resume)) = switch.next(0) {
            resumes.push(resume);
            switch.line_free(0);
        }
        assert_eq!(resumes, [false, false, false, true, false]);
    }
}
