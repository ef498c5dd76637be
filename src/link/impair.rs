//! Any link with faults: each packet meets the fate that [`crate::fault`] decides.
//!
//! ```text
//!   engine ─► burst ─► packets ─► fate ─► hold, by deadline ─► bursts ─► link
//!   engine ◄─ packet ◄─ hold, by deadline ◄─ fate ◄─ packets ◄─ burst ◄─ link
//! ```
//!
//! A burst that no fault touches passes as it is, or a link with a fault in a million packets would
//! be a third as fast as one without faults. The packets of another one leave in bursts again, as
//! far as they are due together and fit; the identification that their ICRC covers depends on their
//! place in a burst, and is made right then. A received burst that is cut loses the index of its
//! packets: a receiver on a socket then recovers the identifications, and one that is told to be
//! strict drops those packets.
//!
//! Time enters by [`Link::set_now`]; without it nothing that is held back ever leaves.

use std::net::IpAddr;
use std::os::fd::RawFd;

use super::hold::{Hold, Label};
use super::{JoinError, Link, LinkStatistics, is_sendable};
use crate::engine::{IdentificationRule, Port, PortCapabilities, UnreachableKind};
use crate::fault::{Delivery, Direction, Fate, Faults, PacketView};
use crate::time::Instant;
use crate::wire::{Identification, ReceivedBurst, SentBurst, icrc};

/// Packets held back in each direction; further ones are lost and counted.
const HELD: usize = 4096;
/// Flags of a sent packet; only the identification of it is used.
const DONT_FRAGMENT: u16 = icrc::DONT_FRAGMENT;

/// A link whose packets meet faults.
pub struct Impaired<L> {
    inner: L,
    /// Those of the link within, which do not change; kept, as both are needed while it sends.
    capabilities: PortCapabilities,
    faults: Faults,
    now: Instant,
    incoming: Hold,
    outgoing: Hold,
    /// The fates of one burst.
    fates: Vec<Fate>,
    /// Packets lost because too many were held back.
    crowded: Crowded,
}

#[derive(Clone, Copy, Debug, Default)]
struct Crowded {
    incoming: u64,
    outgoing: u64,
}

impl<L: Link> Impaired<L> {
    /// Puts faults before `inner`.
    pub fn new(inner: L, faults: Faults) -> Self {
        let capabilities = inner.capabilities().clone();
        Self {
            fates: Vec::with_capacity(capabilities.max_segments.max(128)),
            inner,
            capabilities,
            faults,
            now: Instant::ZERO,
            incoming: Hold::new(HELD),
            outgoing: Hold::new(HELD),
            crowded: Crowded::default(),
        }
    }

    /// The faults, with what they have done so far.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The link without faults. What is held back is lost.
    pub fn into_inner(self) -> L {
        self.inner
    }
}

/// Holds the packets of a burst for as long as their fates say. Returns how many were lost because
/// too many are held back.
fn take_apart(
    outgoing: &mut Hold,
    now: Instant,
    (burst, bytes): (&SentBurst, &[u8]),
    rule: IdentificationRule,
    fates: &[Fate],
) -> u64 {
    let segments = bytes[..burst.length].chunks(burst.segment);
    let mut lost = 0;
    for (index, (segment, fate)) in segments.zip(fates).enumerate() {
        let Fate::Deliver(delivery) = fate else { continue };
        let first = rule.of_segment(burst.first_identification, index);
        let label = Label {
            flow: burst.flow,
            traffic_class: burst.traffic_class,
            identification: Identification::Seen { first, flags: DONT_FRAGMENT },
        };
        lost += hold_back(outgoing, now, label, segment, *delivery);
    }
    lost
}

/// The packets that are due, as far as they fit in one burst.
fn pop_burst(
    outgoing: &mut Hold,
    now: Instant,
    limits: &PortCapabilities,
    slot: &mut [u8],
) -> Option<SentBurst> {
    let mut burst = begin(&outgoing.pop(now)?, slot);
    renumber(&mut slot[..burst.length], &burst, burst.first_identification, limits, 0);
    while let Some(packet) = outgoing.peek(now).filter(|next| fits(&burst, next, limits)) {
        let (index, start) = (burst.packets(), burst.length);
        burst.length += packet.bytes.len();
        let place = &mut slot[start..burst.length];
        place.copy_from_slice(packet.bytes);
        renumber(place, &burst, identification_of(&packet), limits, index);
        outgoing.pop(now);
    }
    Some(burst)
}

/// A packet of a burst gets the ICRC for its place there.
fn renumber(
    packet: &mut [u8],
    burst: &SentBurst,
    from: u16,
    limits: &PortCapabilities,
    index: usize,
) {
    let to = limits.identification.of_segment(burst.first_identification, index);
    icrc::renumber(&burst.flow, packet, from, to);
}

/// A burst of one packet, in a slot.
fn begin(packet: &ReceivedBurst<'_>, slot: &mut [u8]) -> SentBurst {
    let length = packet.bytes.len();
    slot[..length].copy_from_slice(packet.bytes);
    SentBurst {
        flow: packet.flow,
        traffic_class: packet.traffic_class,
        first_identification: identification_of(packet),
        segment: length,
        length,
    }
}

/// Whether a packet may follow those of a burst.
fn fits(burst: &SentBurst, packet: &ReceivedBurst<'_>, limits: &PortCapabilities) -> bool {
    let length = packet.bytes.len();
    let next = burst.first_identification.wrapping_add(burst.packets() as u16);
    let is_numbered = limits.identification != IdentificationRule::BasePlusIndex
        || identification_of(packet) == next;
    (burst.flow, burst.traffic_class) == (packet.flow, packet.traffic_class)
        && burst.length.is_multiple_of(burst.segment)
        && (1..=burst.segment).contains(&length)
        && burst.packets() < limits.max_segments
        && burst.length + length <= limits.max_burst_bytes
        && is_numbered
}

fn identification_of(packet: &ReceivedBurst<'_>) -> u16 {
    match packet.identification {
        Identification::Seen { first, .. } => first,
        Identification::Unseen => 0,
    }
}

/// Whether nothing happens to the packets.
fn are_clean(fates: &[Fate]) -> bool {
    fates.iter().all(|fate| matches!(fate, Fate::Deliver(delivery) if delivery.is_clean()))
}

/// Holds a packet, and its copy if it has one, for as long as its fate says. Returns how many
/// were lost because too many are held back.
fn hold_back(
    hold: &mut Hold,
    now: Instant,
    label: Label,
    packet: &[u8],
    delivery: Delivery,
) -> u64 {
    let mut lost = 0;
    let marked = Label {
        traffic_class: if delivery.mark_ce {
            mark(label.traffic_class)
        } else {
            label.traffic_class
        },
        ..label
    };
    match hold.push(now + delivery.delay, marked, packet) {
        Some(held) => delivery.corruption.into_iter().for_each(|flip| flip.apply(held)),
        None => lost += 1,
    }
    if let Some(delay) = delivery.duplicate
        && hold.push(now + delay, label, packet).is_none()
    {
        lost += 1;
    }
    lost
}

/// Sets "congestion experienced" where the sender said that it understands it.
fn mark(traffic_class: u8) -> u8 {
    const ECN: u8 = 0b11;
    if traffic_class & ECN == 0 { traffic_class } else { traffic_class | ECN }
}

/// Hands what is due to `sink`, up to `budget` packets; returns how many.
fn release(
    hold: &mut Hold,
    now: Instant,
    budget: usize,
    sink: &mut dyn FnMut(&ReceivedBurst<'_>),
) -> usize {
    let mut packets = 0;
    while packets < budget
        && let Some(burst) = hold.pop(now)
    {
        sink(&burst);
        packets += 1;
    }
    packets
}

/// What is known of packet `index` of a burst.
fn label_of(burst: &ReceivedBurst<'_>, index: usize) -> Label {
    let identification = match burst.identification {
        Identification::Unseen => Identification::Unseen,
        Identification::Seen { first, flags } => {
            Identification::Seen { first: first.wrapping_add(index as u16), flags }
        }
    };
    Label { flow: burst.flow, traffic_class: burst.traffic_class, identification }
}

impl<L: Link> Port for Impaired<L> {
    fn capabilities(&self) -> &PortCapabilities {
        &self.capabilities
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        let Self { inner, faults, incoming, fates, crowded, now, .. } = self;
        let released = release(incoming, *now, budget, sink);
        if released >= budget {
            return released;
        }
        let received = inner.receive(budget - released, &mut |burst| {
            fates.clear();
            let views = burst.segments().map(|segment| PacketView::of(segment, Direction::In));
            fates.extend(views.map(|view| faults.fate(*now, &view)));
            if are_clean(fates) && !incoming.is_due(*now) {
                return sink(burst);
            }
            for (index, (segment, fate)) in burst.segments().zip(fates.iter()).enumerate() {
                if let Fate::Deliver(delivery) = fate {
                    let label = label_of(burst, index);
                    crowded.incoming += hold_back(incoming, *now, label, segment, *delivery);
                }
            }
            release(incoming, *now, usize::MAX, sink);
        });
        released + received
    }

    fn is_pressed(&mut self) -> bool {
        self.inner.is_pressed()
    }

    fn take_unreachable(&mut self, look: bool, sink: &mut dyn FnMut(IpAddr, UnreachableKind)) {
        self.inner.take_unreachable(look, sink);
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        let Self { inner, capabilities: limits, faults, outgoing, fates, crowded, now, .. } = self;
        let mut packets = 0;
        inner.transmit(usize::MAX, &mut |slot| {
            loop {
                let due = pop_burst(outgoing, *now, limits, slot);
                if due.is_some() || packets >= budget {
                    return due;
                }
                let burst = fill(slot)?;
                packets += burst.packets();
                if !is_sendable(&burst, limits) {
                    debug_assert!(false, "the engine made a burst that breaks the port's limits");
                    crowded.outgoing += burst.packets() as u64;
                    continue;
                }
                fates.clear();
                let segments = slot[..burst.length].chunks(burst.segment);
                let views = segments.map(|segment| PacketView::of(segment, Direction::Out));
                fates.extend(views.map(|view| faults.fate(*now, &view)));
                if are_clean(fates) {
                    return Some(burst);
                }
                let bytes = (&burst, &*slot);
                crowded.outgoing += take_apart(outgoing, *now, bytes, limits.identification, fates);
            }
        });
        packets
    }
}

impl<L: Link> Link for Impaired<L> {
    fn local_address(&self) -> IpAddr {
        self.inner.local_address()
    }

    fn descriptors(&self) -> &[RawFd] {
        self.inner.descriptors()
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        self.inner.join(group)
    }

    fn leave(&mut self, group: IpAddr) {
        self.inner.leave(group);
    }

    /// Those of the link within. Packets that were lost because too many were held back count as
    /// overflowed or refused; those that a fault took are in [`Faults::statistics`].
    fn statistics(&self) -> LinkStatistics {
        let mut statistics = self.inner.statistics();
        statistics.overflowed += self.crowded.incoming;
        statistics.refused += self.crowded.outgoing;
        statistics
    }

    fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [
            self.incoming.next_deadline(),
            self.outgoing.next_deadline(),
            self.inner.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn set_now(&mut self, now: Instant) {
        self.now = now;
        self.inner.set_now(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::REORDER_HOLD;
    use crate::link::memory::{self, MemoryLink, MemoryOptions};
    use crate::time::MILLISECOND;
    use crate::wire::Flow;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn ends(plan: &str) -> (Impaired<MemoryLink>, MemoryLink) {
        let options = MemoryOptions { queue: 4096, max_burst_bytes: 9000, ..Default::default() };
        let (a, b) = memory::pair([address(1), address(2)], &options).unwrap();
        (Impaired::new(a, Faults::new(plan.parse().unwrap())), b)
    }

    /// Sends `bursts` of `packets` packets, each of 40 bytes that begin with its number.
    fn send(link: &mut dyn Link, to: u8, traffic_class: u8, bursts: u8, packets: usize) {
        let source = link.local_address();
        let mut made = 0;
        link.transmit(usize::MAX, &mut |slot| {
            if made == bursts {
                return None;
            }
            for index in 0..packets {
                slot[40 * index..40 * (index + 1)].fill(0);
                slot[40 * index] = made * packets as u8 + index as u8;
            }
            made += 1;
            let flow = Flow { source, destination: address(to), source_port: 0xc000 };
            let length = 40 * packets;
            Some(SentBurst { flow, traffic_class, first_identification: 500, segment: 40, length })
        });
    }

    /// Number, identification and traffic class of each packet that has arrived.
    fn arrived(link: &mut dyn Link) -> Vec<(u8, u16, u8)> {
        let mut packets = Vec::new();
        link.receive(usize::MAX, &mut |burst| {
            let Identification::Seen { first, .. } = burst.identification else {
                panic!("memory links show the identification");
            };
            let label = |(index, segment): (usize, &[u8])| {
                (segment[0], first + index as u16, burst.traffic_class)
            };
            packets.extend(burst.segments().enumerate().map(label));
        });
        packets
    }

    fn numbers(link: &mut dyn Link) -> Vec<u8> {
        arrived(link).into_iter().map(|(number, ..)| number).collect()
    }

    #[test]
    fn packets_of_a_sent_burst_keep_their_identification() {
        let (mut a, mut b) = ends("");
        send(&mut a, 2, 0x6a, 1, 3);
        assert_eq!(arrived(&mut b), [(0, 500, 0x6a), (1, 501, 0x6a), (2, 502, 0x6a)]);
        assert_eq!(b.statistics().received.bursts, 1, "nothing touches it");
    }

    #[test]
    fn loss_takes_packets_not_bursts_in_both_directions() {
        let (mut a, mut b) = ends("loss=50%,seed=3");
        send(&mut a, 2, 0, 10, 10);
        let out = numbers(&mut b);
        assert!((30..70).contains(&out.len()), "{}", out.len());
        let in_first_burst = out.iter().filter(|number| **number < 10).count();
        assert!((1..10).contains(&in_first_burst), "a burst is hit packet by packet");
        send(&mut b, 1, 0, 10, 10);
        let incoming = arrived(&mut a);
        assert!((30..70).contains(&incoming.len()));
        assert!(incoming.iter().all(|(number, identification, _)| {
            *identification == 500 + u16::from(*number % 10)
        }));
        let lost = a.faults().statistics().lost as usize;
        assert_eq!(out.len() + incoming.len() + lost, 200);
    }

    #[test]
    fn what_is_left_of_a_burst_leaves_in_as_few_as_its_numbers_allow() {
        let (mut a, mut b) = ends("loss=10%,seed=3");
        send(&mut a, 2, 0, 1, 60);
        let mut runs: Vec<Vec<u8>> = Vec::new();
        b.receive(usize::MAX, &mut |burst| {
            runs.push(burst.segments().map(|packet| packet[0]).collect());
        });
        let gaps = runs.concat().windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert!(gaps > 1, "some are lost");
        assert_eq!(
            runs.len(),
            gaps + 1,
            "identifications that a link in memory has to keep: {runs:?}"
        );
    }

    #[test]
    fn an_untouched_burst_is_received_whole() {
        let (mut a, mut b) = ends("loss=100%,direction=out");
        send(&mut b, 1, 0, 2, 5);
        let mut sizes = Vec::new();
        a.receive(64, &mut |burst| sizes.push(burst.segments().count()));
        assert_eq!(sizes, [5, 5]);
    }

    #[test]
    fn delayed_packets_leave_at_their_deadline_and_not_before() {
        let (mut a, mut b) = ends("delay=1ms");
        send(&mut a, 2, 0, 1, 4);
        assert!(numbers(&mut b).is_empty());
        let deadline = Instant::ZERO + MILLISECOND;
        assert_eq!(a.next_deadline(), Some(deadline));
        a.set_now(Instant::from_nanos(MILLISECOND - 1));
        a.transmit(64, &mut |_| None);
        assert!(numbers(&mut b).is_empty());
        a.set_now(deadline);
        a.transmit(64, &mut |_| None);
        assert_eq!(numbers(&mut b), [0, 1, 2, 3]);
        send(&mut b, 1, 0, 1, 4);
        assert!(numbers(&mut a).is_empty());
        assert_eq!(a.next_deadline(), Some(deadline + MILLISECOND));
        a.set_now(deadline + MILLISECOND);
        assert_eq!(numbers(&mut a), [0, 1, 2, 3]);
        assert_eq!(a.next_deadline(), None);
    }

    #[test]
    fn reordered_packets_arrive_late_and_all_arrive() {
        let (mut a, mut b) = ends("reorder=30%,seed=5");
        send(&mut a, 2, 0, 10, 10);
        let first = numbers(&mut b);
        assert!((50..90).contains(&first.len()));
        assert!(first.is_sorted(), "those that are not held back keep their order");
        a.set_now(Instant::from_nanos(REORDER_HOLD.1));
        a.transmit(64, &mut |_| None);
        let late = numbers(&mut b);
        let mut all = [first, late].concat();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<u8>>());
    }

    #[test]
    fn duplicates_and_damage_reach_the_receiver_as_counted() {
        let (mut a, mut b) = ends("duplicate=100%,corrupt=100%");
        send(&mut a, 2, 0, 1, 10);
        a.set_now(Instant::from_nanos(REORDER_HOLD.1));
        a.transmit(64, &mut |_| None);
        let mut ones = Vec::new();
        b.receive(usize::MAX, &mut |burst| {
            ones.extend(burst.segments().map(|packet| {
                let sum: u32 = packet[1..].iter().map(|byte| byte.count_ones()).sum();
                sum + u32::from(packet[0] >= 10)
            }));
        });
        assert_eq!(ones.len(), 20);
        let damaged = ones.iter().filter(|sum| **sum > 0).count();
        assert!((8..=10).contains(&damaged), "{damaged}: each original and no copy");
        assert_eq!(a.faults().statistics().duplicated, 10);
    }

    #[test]
    fn only_ecn_capable_packets_are_marked() {
        let (mut a, mut b) = ends("ce=100%");
        for class in [0x68, 0x69, 0x6a, 0x6b] {
            send(&mut a, 2, class, 1, 1);
        }
        let classes: Vec<u8> = arrived(&mut b).iter().map(|packet| packet.2).collect();
        assert_eq!(classes, [0x68, 0x6b, 0x6b, 0x6b]);
        send(&mut b, 1, 0x69, 1, 2);
        assert!(arrived(&mut a).iter().all(|packet| packet.2 == 0x6b));
    }

    #[test]
    fn the_buffer_of_held_packets_is_bounded() {
        let (mut a, _b) = ends("delay=1s");
        for _ in 0..50 {
            send(&mut a, 2, 0, 10, 10);
        }
        assert_eq!(a.statistics().refused, 5000 - HELD as u64);
    }

    #[test]
    fn a_budget_is_kept_when_much_is_due() {
        let (mut a, mut b) = ends("delay=1us,direction=in");
        send(&mut b, 1, 0, 10, 10);
        assert_eq!(a.receive(100, &mut |_| panic!("nothing is due")), 100);
        a.set_now(Instant::from_nanos(1000));
        let mut seen = 0;
        assert_eq!(a.receive(30, &mut |_| seen += 1), 30);
        assert_eq!(seen, 30);
        assert!(a.next_deadline().is_some());
    }

    #[test]
    fn a_seed_replays_a_run() {
        let run = |seed: u64| {
            let (mut a, mut b) = ends(&format!("loss=20%,reorder=20%,duplicate=20%,seed={seed}"));
            send(&mut a, 2, 0, 10, 10);
            a.set_now(Instant::from_nanos(REORDER_HOLD.1));
            a.transmit(64, &mut |_| None);
            numbers(&mut b)
        };
        assert_eq!(run(11), run(11));
        assert_ne!(run(11), run(12));
    }
}
