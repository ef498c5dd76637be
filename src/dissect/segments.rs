//! Datagrams of several packets: what segmentation offload leaves for the card to cut, or has
//! merged on receive.
//!
//! ```text
//!   IP, UDP │ packet │ packet │ packet │ shorter one │    all of one size but the last
//! ```
//!
//! The size is written nowhere in the capture. It counts as proven if at each multiple of it there
//! is a BTH that continues the one before: same queue pair, partition and transport, the next PSN,
//! and headers that fit. Chance gives that for one size in 2^64; if several sizes pass (a payload
//! made for it), none is taken. Packets merged on receive may be of several queue pairs, and
//! acknowledgements leave PSNs out: there the size is proven by the ICRCs, if all are right.

use super::check::{self, MAX_PATH_MTU};
use super::frame::{Frame, Kind};
use super::span::Span;
use super::{Icrc, Issue, RdmaPacket, Verdict, judge};
use crate::wire::{Bth, ICRC_LENGTH, MAX_HEADER, Opcode, UdpHeader};

/// The longest packet: headers, payload of the largest path MTU, ICRC.
const MAX_PACKET: usize = MAX_HEADER + MAX_PATH_MTU + ICRC_LENGTH;
/// The shortest: BTH and ICRC.
const MIN_PACKET: usize = Bth::LENGTH + ICRC_LENGTH;
/// More than any kernel puts into a datagram.
const MAX_SEGMENTS: usize = 4096;

/// How a datagram is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    /// Bytes of each packet but the last, BTH to ICRC.
    size: usize,
    /// How many packets.
    pub(super) count: u16,
}

impl<'a> Frame<'a> {
    /// Reads and judges the packet, and if it cannot be one, looks for several.
    pub(super) fn find_packets(&mut self) {
        let Some(body) = self.body else { return };
        self.first = Some(self.single(body));
        if self.kind != Kind::RoceV2 || self.issues.contains(Issue::Fragment) {
            return;
        }
        if self.may_be_several(body) {
            self.split(body);
        }
    }

    fn single(&self, body: Span<'a>) -> RdmaPacket<'a> {
        let mut packet = RdmaPacket::read(body);
        packet.identification = self.envelope.ipv4().map(|ip| ip.identification);
        if body.missing == 0 && !self.issues.contains(Issue::Fragment) && !self.udp_is_too_long() {
            packet.icrc = judge::whole(self, body.bytes);
        } else if self.issues.contains(Issue::Fragment) || self.udp_is_too_long() {
            // The last bytes here are not those that the UDP length makes the ICRC.
            packet.icrc.wire = None;
        }
        packet.issues = packet.issues.union(check::check(&packet));
        packet
    }

    /// Whether UDP promises more than IP holds, or no payload at all: then nobody knows where the
    /// packet ends.
    fn udp_is_too_long(&self) -> bool {
        let said = self.envelope.udp.map_or(0, |udp| usize::from(udp.length));
        let room = UdpHeader::LENGTH + self.body.map_or(0, Span::length);
        let is_wrong = said > room || said < UdpHeader::LENGTH;
        self.issues.contains(Issue::UdpLengthMismatch) && is_wrong
    }

    /// Whether one packet does not explain the datagram: no ICRC is looked for inside a packet
    /// whose own is right.
    fn may_be_several(&self, body: Span<'a>) -> bool {
        let first = self.first.unwrap_or_default();
        body.length() >= 2 * MIN_PACKET
            && first.icrc.verdict != Verdict::Ok
            && !self.issues.contains(Issue::UdpLengthMismatch)
    }

    fn split(&mut self, body: Span<'a>) {
        if let Some(burst) = proven(body).or_else(|| self.proven_by_icrc(body)) {
            self.burst = Some(burst);
            return;
        }
        if self.is_offloaded() {
            self.take_as_one(body);
        } else if body.length() > MAX_PACKET {
            self.leave_unsplit();
        }
    }

    /// Nobody knows where the first packet ends: what stands at the end of all is not its ICRC.
    fn leave_unsplit(&mut self) {
        self.issues.add(Issue::UnsplitSegments);
        if let Some(first) = &mut self.first {
            first.icrc = Icrc::default();
        }
    }

    /// An IP length of 0 and one packet: its lengths may have been filled in only on the wire, or
    /// UDP's length tells what is packet and what is padding.
    fn take_as_one(&mut self, body: Span<'a>) {
        let said = self.envelope.udp.map_or(0, |udp| usize::from(udp.length));
        let inside = said.checked_sub(UdpHeader::LENGTH).filter(|said| *said < body.length());
        let body = inside.map_or(body, |inside| body.split(inside).0);
        if body.length() > MAX_PACKET {
            self.leave_unsplit();
            return;
        }
        let mut packet = self.single(body);
        if packet.icrc.verdict == Verdict::Bad {
            let (filled, _) = judge::segment(self, 0, body.bytes);
            if filled.verdict == Verdict::Ok {
                packet.icrc = filled;
            }
        }
        self.body = Some(body);
        self.first = Some(packet);
    }

    /// The size for which every packet is without fault and has its right ICRC.
    fn proven_by_icrc(&self, body: Span<'a>) -> Option<Burst> {
        if body.missing > 0 {
            return None;
        }
        // Nearly always there is no such second BTH, and no ICRC has to be made.
        let is_likely = |size: &usize| {
            bth_at(body, *size).is_some_and(|second| Opcode::from_byte(second.opcode).is_some())
        };
        sizes(body).filter(is_likely).find_map(|size| {
            let count = u16::try_from(body.length().div_ceil(size)).ok()?;
            let burst = Burst { size, count };
            let is_right = |packet: RdmaPacket<'_>| {
                packet.icrc.verdict == Verdict::Ok && packet.issues.is_empty()
            };
            (0..count).all(|index| is_right(self.cut_out(body, burst, index))).then_some(burst)
        })
    }

    /// Packet `index` of a burst.
    pub(super) fn segment(&self, burst: Burst, index: u16) -> RdmaPacket<'a> {
        self.cut_out(self.body.unwrap_or_default(), burst, index)
    }

    fn cut_out(&self, body: Span<'a>, burst: Burst, index: u16) -> RdmaPacket<'a> {
        let (_, from) = body.split(burst.size * usize::from(index));
        let (span, _) = from.split(burst.size);
        let mut packet = RdmaPacket::read(span);
        packet.segment = Some(index);
        if span.missing == 0 {
            (packet.icrc, packet.identification) = judge::segment(self, index, span.bytes);
        }
        packet.issues = packet.issues.union(check::check(&packet));
        packet
    }
}

/// The sizes that a first packet can have: those behind which there may be a BTH of transport version
/// 0 and the same partition. Of a damaged packet that is nearly always none, and costs little.
fn sizes(body: Span<'_>) -> impl Iterator<Item = usize> {
    const VERSION_AND_PARTITION: u32 = 0x000f_ffff;
    const PARTITION: u32 = 0x0000_ffff;
    let largest = (body.length() - MIN_PACKET).min(MAX_PACKET);
    let (words, _) = body.bytes.as_chunks::<4>();
    let words = &words[..words.len().min(largest / 4 + 1)];
    let wanted = words.first().map(|word| u32::from_be_bytes(*word) & PARTITION);
    let is_alike =
        move |word: &[u8; 4]| Some(u32::from_be_bytes(*word) & VERSION_AND_PARTITION) == wanted;
    (MIN_PACKET / 4..words.len()).filter(move |at| is_alike(&words[*at])).map(|at| at * 4)
}

/// The only size for which the BTHs continue one another.
fn proven(body: Span<'_>) -> Option<Burst> {
    let first = bth_at(body, 0)?;
    let mut found = None;
    for size in sizes(body) {
        // The second BTH decides nearly always; the rest is looked at only then.
        let second = bth_at(body, size);
        if !second.is_some_and(|second| continues(&first, 1, &second)) {
            continue;
        }
        let Some(burst) = checked(body, &first, size) else { continue };
        if found.is_some() {
            return None;
        }
        found = Some(burst);
    }
    found
}

fn bth_at(body: Span<'_>, offset: usize) -> Option<Bth> {
    body.bytes.get(offset..)?.first_chunk().map(Bth::parse)
}

/// Whether `bth` is that of the packet `index` places after `first`.
fn continues(first: &Bth, index: u32, bth: &Bth) -> bool {
    let known = |bth: &Bth| Opcode::from_byte(bth.opcode);
    bth.psn == first.psn.add(index)
        && bth.destination == first.destination
        && bth.pkey == first.pkey
        && bth.version == 0
        && known(bth).is_some_and(|opcode| {
            known(first).is_some_and(|first| first.transport() == opcode.transport())
        })
}

/// Checks every packet of a burst of this size.
fn checked(body: Span<'_>, first: &Bth, size: usize) -> Option<Burst> {
    let count = body.length().div_ceil(size);
    if count > MAX_SEGMENTS {
        return None;
    }
    for index in 0..count {
        let (span, _) = body.split(size * index).1.split(size);
        if span.bytes.len() < Bth::LENGTH && span.missing > 0 {
            // The capture ends here; what was seen agrees.
            break;
        }
        let packet = RdmaPacket::read(span);
        if !continues(first, index as u32, &packet.bth?) || !packet.issues.is_empty_but_cut() {
            return None;
        }
    }
    Some(Burst { size, count: count as u16 })
}
