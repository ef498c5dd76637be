//! Packets that are held back: a bounded buffer, ordered by when each is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Instant;
use crate::wire::{Flow, Identification, ReceivedBurst};

/// Bytes for one packet: more than any RoCEv2 packet has (4096 of payload, and its headers).
const STRIDE: usize = 4352;

/// What is known of a packet beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub(super) flow: Flow,
    pub(super) traffic_class: u8,
    pub(super) identification: Identification,
}

struct Held {
    label: Label,
    length: usize,
}

/// Orders by time, then by arrival.
type Place = Reverse<(Instant, u64, usize)>;

/// A bounded buffer of packets with deadlines. All memory is reserved when it is made.
pub(super) struct Hold {
    bytes: Box<[u8]>,
    held: Vec<Held>,
    free: Vec<usize>,
    queue: BinaryHeap<Place>,
    arrivals: u64,
}

impl Hold {
    /// Room for `capacity` packets.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            bytes: vec![0; capacity * STRIDE].into(),
            held: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            queue: BinaryHeap::with_capacity(capacity),
            arrivals: 0,
        }
    }

    /// Packets that find room.
    pub(super) fn room(&self) -> usize {
        self.held.capacity() - self.queue.len()
    }

    /// When the first packet is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse((deadline, ..))| *deadline)
    }

    /// Whether a packet is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Holds a packet until `deadline` and gives out its copy for changes; nothing if the buffer is
    /// full or the packet too large.
    pub(super) fn push(
        &mut self,
        deadline: Instant,
        label: Label,
        packet: &[u8],
    ) -> Option<&mut [u8]> {
        if self.room() == 0 || packet.len() > STRIDE {
            return None;
        }
        let held = Held { label, length: packet.len() };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.held[slot] = held;
                slot
            }
            None => {
                self.held.push(held);
                self.held.len() - 1
            }
        };
        self.queue.push(Reverse((deadline, self.arrivals, slot)));
        self.arrivals += 1;
        let copy = &mut self.bytes[slot * STRIDE..slot * STRIDE + packet.len()];
        copy.copy_from_slice(packet);
        Some(copy)
    }

    /// The packet that has been due longest, as a burst of one. It must be used before the next
    /// push, which may take its place.
    pub(super) fn pop(&mut self, now: Instant) -> Option<ReceivedBurst<'_>> {
        if !self.is_due(now) {
            return None;
        }
        let Reverse((_, _, slot)) = self.queue.pop()?;
        self.free.push(slot);
        Some(self.burst_in(slot))
    }

    /// The packet that [`Self::pop`] would give.
    pub(super) fn peek(&self, now: Instant) -> Option<ReceivedBurst<'_>> {
        let Reverse((deadline, _, slot)) = self.queue.peek()?;
        (*deadline <= now).then(|| self.burst_in(*slot))
    }

    fn burst_in(&self, slot: usize) -> ReceivedBurst<'_> {
        let Held { label, length } = &self.held[slot];
        ReceivedBurst {
            flow: label.flow,
            traffic_class: label.traffic_class,
            identification: label.identification,
            segment: (*length).max(1),
            bytes: &self.bytes[slot * STRIDE..slot * STRIDE + length],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn label() -> Label {
        let address = IpAddr::from([10, 0, 0, 1]);
        let flow = Flow { source: address, destination: address, source_port: 0xc000 };
        Label { flow, traffic_class: 2, identification: Identification::Unseen }
    }

    #[test]
    fn packets_leave_by_deadline_and_then_by_arrival() {
        let mut hold = Hold::new(8);
        for (deadline, name) in [(30, b"c"), (10, b"a"), (30, b"d"), (20, b"b")] {
            assert!(hold.push(Instant::from_nanos(deadline), label(), name).is_some());
        }
        assert_eq!(hold.next_deadline(), Some(Instant::from_nanos(10)));
        assert!(hold.pop(Instant::from_nanos(9)).is_none());
        let mut order = Vec::new();
        while let Some(burst) = hold.pop(Instant::from_nanos(30)) {
            order.extend_from_slice(burst.bytes);
        }
        assert_eq!(order, b"abcd");
    }

    #[test]
    fn a_full_buffer_takes_nothing_and_recovers() {
        let mut hold = Hold::new(2);
        for round in 0..5u8 {
            let due = Instant::from_nanos(u64::from(round));
            assert!(hold.push(due, label(), &[round]).is_some());
            assert!(hold.push(due, label(), &[round, round]).is_some());
            assert!(hold.push(due, label(), &[9]).is_none());
            assert_eq!(hold.pop(due).unwrap().bytes, [round]);
            assert_eq!(hold.pop(due).unwrap().bytes, [round, round]);
        }
        assert!(hold.push(Instant::ZERO, label(), &[0; STRIDE + 1]).is_none());
        assert_eq!(hold.room(), 2);
    }
}
