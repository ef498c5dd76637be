//! The seeded fate of a packet: the only fault model. The simulator's network and the `impair`
//! link both ask it, packet by packet, so a fault seen in one can be replayed in the other.
//!
//! ```text
//!   packet ─► selected? ─► lost? ─► rate queue ─► delay ─► held back? ─► duplicated? ─► delivered
//!             direction,            full: lost             (reorder)     corrupted?
//!             qp, opcode                                                 CE marked?
//! ```
//!
//! Every selected packet draws the same count of random numbers, whatever becomes of it: changing
//! one percentage changes nothing else in the run.

mod plan;

use crate::rng::Rng;
use crate::time::{Instant, MICROSECOND, SECOND};
use crate::wire::{Bth, Qpn};

pub use plan::{Directions, FaultPlan, FaultPlanError, Share};

/// How long a reordered packet is held back beyond the others, in nanoseconds: long enough for
/// others to pass it, shorter than any retransmission timer.
pub const REORDER_HOLD: (u64, u64) = (20 * MICROSECOND, 200 * MICROSECOND);
/// Bytes that wait for a limited rate before further packets are lost.
pub const RATE_QUEUE: u64 = 1 << 20;
/// Bytes on an Ethernet beside the UDP payload: preamble, headers, checksum, gap.
pub const WIRE_OVERHEAD: u64 = 66;

/// Which way a packet goes, seen from the endpoint that the faults belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// What the fate of a packet may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketView {
    /// Bytes of UDP payload: BTH to ICRC.
    pub length: usize,
    /// First byte of the BTH.
    pub opcode: u8,
    /// Queue pair that the packet is for.
    pub destination: Qpn,
    /// Which way it goes.
    pub direction: Direction,
}

impl PacketView {
    /// Reads a UDP payload; one too short for a BTH counts as opcode 0xff for queue pair 0.
    pub fn of(bytes: &[u8], direction: Direction) -> Self {
        let whole = bytes.len() >= Bth::LENGTH;
        let (opcode, destination) = match bytes {
            [opcode, _, _, _, _, high, middle, low, ..] if whole => {
                (*opcode, u32::from_be_bytes([0, *high, *middle, *low]))
            }
            _ => (0xff, 0),
        };
        Self { length: bytes.len(), opcode, destination: Qpn::new(destination), direction }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It never arrives.
    Drop(DropCause),
    /// It arrives, perhaps late, twice or changed.
    Deliver(Delivery),
}

/// Why a packet never arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropCause {
    /// Lost by chance.
    Loss,
    /// The queue in front of the limited rate was full.
    QueueFull,
}

/// How a packet arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Nanoseconds that it is held back.
    pub delay: u64,
    /// A second, undamaged copy, and the nanoseconds that it is held back.
    pub duplicate: Option<u64>,
    /// Damage to the packet.
    pub corruption: Option<BitFlip>,
    /// Whether its ECN bits become CE, if they said that the transport is capable of ECN.
    pub mark_ce: bool,
}

impl Delivery {
    /// Whether the packet arrives as if there were no faults.
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

/// One bit that is turned over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitFlip {
    /// Offset in the UDP payload.
    pub byte: usize,
    /// Bit, 0 is the least significant.
    pub bit: u8,
}

impl BitFlip {
    /// Damages the packet; nothing happens beyond its end.
    pub fn apply(self, bytes: &mut [u8]) {
        if let Some(byte) = bytes.get_mut(self.byte) {
            *byte ^= 1 << (self.bit & 7);
        }
    }
}

/// How many packets met which fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultStatistics {
    /// Packets whose fate was asked.
    pub packets: u64,
    /// Of these, those that the plan selects by direction, queue pair and opcode.
    pub selected: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost to a full rate queue.
    pub queue_full: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Held back so that others pass.
    pub reordered: u64,
    /// Damaged.
    pub corrupted: u64,
    /// Chosen for a CE mark, whether or not they could carry it.
    pub marked: u64,
}

/// What chance says about one packet.
struct Draw {
    lost: bool,
    duplicated: bool,
    reordered: bool,
    corrupted: bool,
    marked: bool,
    /// How long the packet is held back if it is reordered.
    hold: u64,
    /// How long its copy is held back beyond it: half of the copies follow at once.
    copy_hold: u64,
    /// Where it is damaged if it is.
    flip: BitFlip,
}

/// Decides fates according to a plan. The same plan and the same packets at the same times give
/// the same fates.
#[derive(Clone, Debug)]
pub struct Faults {
    plan: FaultPlan,
    rng: Rng,
    /// When the rate queue of each direction is empty.
    idle_at: [Instant; 2],
    statistics: FaultStatistics,
}

impl Faults {
    /// The fates that `plan` and its seed stand for.
    pub fn new(plan: FaultPlan) -> Self {
        let rng = Rng::new(plan.seed);
        Self { plan, rng, idle_at: [Instant::ZERO; 2], statistics: FaultStatistics::default() }
    }

    /// The plan.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// What has happened so far.
    pub fn statistics(&self) -> FaultStatistics {
        self.statistics
    }

    /// The fate of the next packet.
    pub fn fate(&mut self, now: Instant, packet: &PacketView) -> Fate {
        self.statistics.packets += 1;
        if !self.plan.selects(packet) {
            return Fate::Deliver(Delivery::default());
        }
        self.statistics.selected += 1;
        let draw = self.draw(packet.length);
        if draw.lost {
            self.statistics.lost += 1;
            return Fate::Drop(DropCause::Loss);
        }
        let Some(queued) = self.pass_rate_queue(now, packet) else {
            self.statistics.queue_full += 1;
            return Fate::Drop(DropCause::QueueFull);
        };
        self.count(&draw);
        let on_time = queued.saturating_add(self.plan.delay);
        let delay = on_time.saturating_add(if draw.reordered { draw.hold } else { 0 });
        Fate::Deliver(Delivery {
            delay,
            duplicate: draw.duplicated.then_some(on_time.saturating_add(draw.copy_hold)),
            corruption: draw.corrupted.then_some(draw.flip),
            mark_ce: draw.marked,
        })
    }

    fn draw(&mut self, length: usize) -> Draw {
        let rng = &mut self.rng;
        let mut happens = |share: Share| rng.chance(share.parts_per_million(), 1_000_000);
        let (lost, duplicated) = (happens(self.plan.loss), happens(self.plan.duplicate));
        let (reordered, corrupted) = (happens(self.plan.reorder), happens(self.plan.corrupt));
        let marked = happens(self.plan.ce);
        let hold = rng.between(REORDER_HOLD.0, REORDER_HOLD.1);
        let copy_hold = rng.between(REORDER_HOLD.0, REORDER_HOLD.1);
        let at_once = rng.chance(1, 2);
        let bit = rng.below(length as u64 * 8);
        Draw {
            lost,
            duplicated,
            reordered,
            corrupted: corrupted && length > 0,
            marked,
            hold,
            copy_hold: if at_once { 0 } else { copy_hold },
            flip: BitFlip { byte: (bit / 8) as usize, bit: (bit % 8) as u8 },
        }
    }

    fn count(&mut self, draw: &Draw) {
        self.statistics.duplicated += u64::from(draw.duplicated);
        self.statistics.reordered += u64::from(draw.reordered);
        self.statistics.corrupted += u64::from(draw.corrupted);
        self.statistics.marked += u64::from(draw.marked);
    }

    /// Nanoseconds until the packet has been serialised at the plan's rate, behind those before
    /// it; nothing if too much waits already.
    fn pass_rate_queue(&mut self, now: Instant, packet: &PacketView) -> Option<u64> {
        let Some(rate) = self.plan.rate else { return Some(0) };
        let idle_at = &mut self.idle_at[packet.direction as usize];
        if idle_at.since(now) > serialisation(RATE_QUEUE, rate) {
            return None;
        }
        let start = now.max(*idle_at);
        *idle_at = start + serialisation(packet.length as u64 + WIRE_OVERHEAD, rate);
        Some(idle_at.since(now))
    }
}

/// Nanoseconds that `bytes` take at `rate` bits per second, rounded up.
fn serialisation(bytes: u64, rate: u64) -> u64 {
    let nanoseconds =
        (u128::from(bytes) * 8 * u128::from(SECOND)).div_ceil(u128::from(rate.max(1)));
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MILLISECOND;

    fn packet(direction: Direction) -> PacketView {
        PacketView { length: 1000, opcode: 0x04, destination: Qpn::new(0x11), direction }
    }

    fn fates(plan: &str, count: usize) -> (Vec<Fate>, FaultStatistics) {
        let mut faults = Faults::new(plan.parse().unwrap());
        let out = packet(Direction::Out);
        let fates = (0..count).map(|_| faults.fate(Instant::ZERO, &out)).collect();
        (fates, faults.statistics())
    }

    #[test]
    fn without_a_plan_every_packet_arrives_as_it_is() {
        let (fates, statistics) = fates("", 100);
        assert!(fates.iter().all(|fate| *fate == Fate::Deliver(Delivery::default())));
        assert_eq!(statistics, FaultStatistics { packets: 100, selected: 100, ..statistics });
        assert_eq!(statistics.lost + statistics.corrupted + statistics.marked, 0);
    }

    #[test]
    fn each_fault_happens_as_often_as_asked_and_is_counted() {
        let plan = "loss=10%,duplicate=5%,reorder=20%,corrupt=2%,ce=50%,seed=4";
        let (fates, statistics) = fates(plan, 20_000);
        let deliveries: Vec<Delivery> = fates
            .iter()
            .filter_map(|fate| match fate {
                Fate::Deliver(delivery) => Some(*delivery),
                Fate::Drop(_) => None,
            })
            .collect();
        let share = |hits: usize| hits as f64 / deliveries.len() as f64;
        let lost = fates.len() - deliveries.len();
        assert!((1850..2150).contains(&lost), "{lost}");
        let copies = deliveries.iter().filter(|delivery| delivery.duplicate.is_some()).count();
        let late = deliveries.iter().filter(|delivery| delivery.delay > 0).count();
        let damaged = deliveries.iter().filter(|delivery| delivery.corruption.is_some()).count();
        let marked = deliveries.iter().filter(|delivery| delivery.mark_ce).count();
        assert!((share(copies) - 0.05).abs() < 0.01, "{copies}");
        assert!((share(late) - 0.20).abs() < 0.015, "{late}");
        assert!((share(damaged) - 0.02).abs() < 0.006, "{damaged}");
        assert!((share(marked) - 0.50).abs() < 0.02, "{marked}");
        let counted = [statistics.lost, statistics.duplicated, statistics.reordered];
        assert_eq!(counted, [lost as u64, copies as u64, late as u64]);
        assert_eq!([statistics.corrupted, statistics.marked], [damaged as u64, marked as u64]);
    }

    #[test]
    fn damage_reaches_every_part_of_the_packet_and_stays_inside() {
        let (fates, _) = fates("corrupt=100%", 20_000);
        let mut hit = [false; 1000];
        for fate in fates {
            let Fate::Deliver(Delivery { corruption: Some(flip), .. }) = fate else {
                panic!("{fate:?}");
            };
            let mut bytes = [0u8; 1000];
            flip.apply(&mut bytes);
            assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
            hit[flip.byte] = true;
        }
        assert!(hit.iter().all(|byte| *byte));
    }

    #[test]
    fn a_seed_gives_the_same_fates_and_another_seed_others() {
        let plan = "loss=30%,reorder=30%,seed=";
        assert_eq!(fates(&format!("{plan}7"), 500), fates(&format!("{plan}7"), 500));
        assert_ne!(fates(&format!("{plan}7"), 500), fates(&format!("{plan}8"), 500));
    }

    #[test]
    fn one_percentage_changes_nothing_about_the_other_faults() {
        let copies = |plan: &str| -> Vec<bool> {
            let is_copied = |fate: &Fate| matches!(fate, Fate::Deliver(d) if d.duplicate.is_some());
            fates(plan, 500).0.iter().map(is_copied).collect()
        };
        let plain = copies("duplicate=20%");
        assert!(plain.contains(&true));
        assert_eq!(plain, copies("duplicate=20%,corrupt=50%,reorder=10%,ce=9%"));
    }

    #[test]
    fn only_selected_packets_meet_faults() {
        let mut faults =
            Faults::new("loss=100%,direction=in,qp=0x11,opcode=RC_SEND_ONLY".parse().unwrap());
        let selected = packet(Direction::In);
        let other = [
            PacketView { direction: Direction::Out, ..selected },
            PacketView { opcode: 0x11, ..selected },
            PacketView { destination: Qpn::new(0x12), ..selected },
        ];
        assert_eq!(faults.fate(Instant::ZERO, &selected), Fate::Drop(DropCause::Loss));
        for view in other {
            assert_eq!(faults.fate(Instant::ZERO, &view), Fate::Deliver(Delivery::default()));
        }
        assert_eq!(faults.statistics().selected, 1);
        assert_eq!(faults.statistics().packets, 4);
    }

    fn delay_of(fate: Fate) -> u64 {
        match fate {
            Fate::Deliver(delivery) => delivery.delay,
            Fate::Drop(cause) => panic!("{cause:?}"),
        }
    }

    #[test]
    fn a_rate_spaces_packets_by_their_time_on_the_wire() {
        let mut faults = Faults::new("rate=100Mbit,delay=1ms".parse().unwrap());
        let out = packet(Direction::Out);
        // 1066 bytes at 100 Mbit/s.
        let time = 85_280;
        assert_eq!(delay_of(faults.fate(Instant::ZERO, &out)), MILLISECOND + time);
        assert_eq!(delay_of(faults.fate(Instant::ZERO, &out)), MILLISECOND + 2 * time);
        let incoming = packet(Direction::In);
        let other_way = delay_of(faults.fate(Instant::ZERO, &incoming));
        assert_eq!(other_way, MILLISECOND + time, "each direction has a queue of its own");
        let later = Instant::ZERO + 2 * time;
        assert_eq!(delay_of(faults.fate(later, &out)), MILLISECOND + time, "the queue has drained");
    }

    #[test]
    fn a_rate_queue_is_bounded() {
        let (fates, statistics) = fates("rate=1Mbit", 2000);
        let delivered = fates.iter().filter(|fate| matches!(fate, Fate::Deliver(_))).count() as u64;
        assert_eq!(delivered, RATE_QUEUE / 1066 + 1);
        assert_eq!(statistics.queue_full, 2000 - delivered);
        assert_eq!(fates[1999], Fate::Drop(DropCause::QueueFull));
    }

    #[test]
    fn a_view_reads_opcode_and_queue_pair_and_survives_runts() {
        let mut bytes = [0u8; 12];
        bytes[0] = 0x64;
        bytes[5..8].copy_from_slice(&[1, 2, 3]);
        let view = PacketView::of(&bytes, Direction::In);
        assert_eq!((view.opcode, view.destination.value(), view.length), (0x64, 0x01_0203, 12));
        for length in 0..12 {
            let runt = PacketView::of(&bytes[..length], Direction::In);
            assert_eq!((runt.opcode, runt.destination.value(), runt.length), (0xff, 0, length));
        }
        let mut faults = Faults::new("corrupt=100%".parse().unwrap());
        let empty = PacketView::of(&[], Direction::In);
        assert_eq!(faults.fate(Instant::ZERO, &empty), Fate::Deliver(Delivery::default()));
    }
}
