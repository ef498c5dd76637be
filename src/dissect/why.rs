//! "Why is my CRC different?" An ICRC in steps, and the usual mistakes tried when it is wrong.
//!
//! A sender that makes one of these mistakes makes it in every packet: if one of them gives exactly
//! the bytes found, it is the cause (chance gives that once in millions of packets).

use super::judge;
use super::{Frame, RdmaPacket, crc32c};
use crate::wire::icrc::Outer;
use crate::wire::{Ethernet, ICRC_LENGTH, Lrh, VlanTag};

/// A stretch of what an ICRC covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is: `IPv4 header`.
    pub name: &'static str,
    /// The bytes as sent.
    pub bytes: Vec<u8>,
    /// For each byte the bits that count as ones.
    pub masks: Vec<u8>,
    /// The CRC so far, as the register stands, without the final complement.
    pub running: u32,
}

/// An ICRC in steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What is covered, in order.
    pub parts: Vec<Part>,
    /// The result in wire order.
    pub computed: [u8; 4],
    /// What is explained: what the packet has, or a value given.
    pub wire: [u8; 4],
    /// The mistakes that give `wire`; empty if it is right or if none does.
    pub mistakes: Vec<Mistake>,
}

/// A way to get an ICRC wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mistake {
    /// The pad bytes were left out (Linux rxe until 2019).
    PadLeftOut,
    /// The four bytes were stored most significant first.
    ByteOrder,
    /// TOS or traffic class with flow label was not masked.
    ClassNotMasked,
    /// TTL or hop limit was not masked.
    HopLimitNotMasked,
    /// The IPv4 header checksum was not masked.
    HeaderChecksumNotMasked,
    /// The UDP checksum was not masked.
    UdpChecksumNotMasked,
    /// Byte 4 of the BTH (FECN, BECN, reserved) was not masked.
    CongestionNotMasked,
    /// Fields were masked with zeros.
    ZeroMasks,
    /// The eight bytes 0xff for the local route header were left out.
    LinkHeaderLeftOut,
    /// The Ethernet header was covered.
    EthernetIncluded,
    /// The VLAN tags were covered.
    VlanIncluded,
    /// The ICRC was looked for at the end of the frame, behind padding or frame check sequence.
    TrailerIncluded,
    /// The frame check sequence of Ethernet stands in its place.
    FrameCheckSequence,
    /// CRC-32C was used.
    Castagnoli,
    /// The final complement was left out.
    NotComplemented,
    /// IP total length (or payload length) was still 0 when the CRC was made.
    IpLengthZero,
    /// The UDP length was still 0 when the CRC was made.
    UdpLengthZero,
    /// The IPv4 identification was still 0 when the CRC was made.
    IdentificationZero,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::PadLeftOut,
        Self::ByteOrder,
        Self::ClassNotMasked,
        Self::HopLimitNotMasked,
        Self::HeaderChecksumNotMasked,
        Self::UdpChecksumNotMasked,
        Self::CongestionNotMasked,
        Self::ZeroMasks,
        Self::LinkHeaderLeftOut,
        Self::EthernetIncluded,
        Self::VlanIncluded,
        Self::TrailerIncluded,
        Self::FrameCheckSequence,
        Self::Castagnoli,
        Self::NotComplemented,
        Self::IpLengthZero,
        Self::UdpLengthZero,
        Self::IdentificationZero,
    ];

    /// What was done wrong.
    pub const fn text(self) -> &'static str {
        match self {
            Self::PadLeftOut => "the pad bytes were left out",
            Self::ByteOrder => "the bytes were stored in the other order",
            Self::ClassNotMasked => "TOS, or traffic class and flow label, was not masked",
            Self::HopLimitNotMasked => "TTL or hop limit was not masked",
            Self::HeaderChecksumNotMasked => "the IPv4 header checksum was not masked",
            Self::UdpChecksumNotMasked => "the UDP checksum was not masked",
            Self::CongestionNotMasked => "byte 4 of the BTH was not masked",
            Self::ZeroMasks => "fields were masked with zeros, not with ones",
            Self::LinkHeaderLeftOut => "the eight bytes 0xff before the header were left out",
            Self::EthernetIncluded => "the Ethernet header was covered",
            Self::VlanIncluded => "the VLAN tags were covered",
            Self::TrailerIncluded => "what follows the datagram (padding, FCS) was covered",
            Self::FrameCheckSequence => "it is the frame check sequence of Ethernet",
            Self::Castagnoli => "CRC-32C was used in place of CRC-32",
            Self::NotComplemented => "the final complement was left out",
            Self::IpLengthZero => "the IP length was still 0 when it was made",
            Self::UdpLengthZero => "the UDP length was still 0 when it was made",
            Self::IdentificationZero => "the IPv4 identification was still 0 when it was made",
        }
    }
}

/// The mistakes of masks: any of them may go together.
const MASKS: [Mistake; 5] = [
    Mistake::ClassNotMasked,
    Mistake::HopLimitNotMasked,
    Mistake::HeaderChecksumNotMasked,
    Mistake::UdpChecksumNotMasked,
    Mistake::CongestionNotMasked,
];

/// Explains the ICRC of a packet that is whole in its frame; nothing for others, and for packets
/// that segmentation offload left in one frame.
pub fn explain_icrc(frame: &Frame<'_>, packet: &RdmaPacket<'_>) -> Option<Explanation> {
    explain_value(frame, packet, packet.icrc.wire?)
}

/// The same for a value, in wire order, that somebody else has come to for this packet.
pub fn explain_value(
    frame: &Frame<'_>,
    packet: &RdmaPacket<'_>,
    wire: [u8; 4],
) -> Option<Explanation> {
    let computed = packet.icrc.computed?;
    if packet.segment.is_some() {
        return None;
    }
    let covered = Covered::of(frame, packet)?;
    let parts = covered.parts();
    let mistakes = if wire == computed { Vec::new() } else { covered.find(&wire) };
    Some(Explanation { parts, computed, wire, mistakes })
}

/// What an ICRC covers, and what it should not.
struct Covered<'a> {
    network: &'a [u8],
    is_ipv4: bool,
    udp: &'a [u8],
    /// BTH to pad.
    packet: &'a [u8],
    pad: usize,
    ethernet: &'a [u8],
    vlans: &'a [u8],
    /// ICRC and what follows, without the last four bytes.
    trailer: &'a [u8],
    is_local: bool,
}

impl<'a> Covered<'a> {
    fn of(frame: &Frame<'a>, packet: &RdmaPacket<'a>) -> Option<Self> {
        let (network, udp, is_ipv4, is_local): (&[u8], &[u8], bool, bool) =
            match judge::outer(frame)? {
                Outer::Ipv4 { header, udp } => (header, udp, true, false),
                Outer::Ipv6 { udp, .. } => (frame.envelope.network_bytes, udp, false, false),
                Outer::Global(header) => (header, &[], false, false),
                Outer::Local(header) => (header, &[], false, true),
            };
        let end = packet.bytes.len().checked_sub(ICRC_LENGTH)?;
        let start = offset_in(frame.data, network)?;
        let ethernet = ethernet(frame, start);
        let vlans = if ethernet.is_empty() { ethernet } else { &ethernet[12..ethernet.len() - 2] };
        let icrc = offset_in(frame.data, packet.bytes)? + end;
        let trailer = &frame.data[icrc..frame.data.len() - 4];
        let pad = usize::from(packet.bth?.pad).min(end);
        let packet = &packet.bytes[..end];
        Some(Self { network, is_ipv4, udp, packet, pad, ethernet, vlans, trailer, is_local })
    }

    /// The bits that count as ones, but for those that mistakes forget.
    fn masks(&self, forgotten: &[Mistake]) -> [Vec<u8>; 3] {
        let mut masks = [self.network, self.udp, self.packet].map(|bytes| vec![0; bytes.len()]);
        let mut set = |part: usize, mistake: Mistake, bytes: &[(usize, u8)]| {
            for (at, bits) in bytes.iter().filter(|_| !forgotten.contains(&mistake)) {
                if let Some(mask) = masks[part].get_mut(*at) {
                    *mask |= bits;
                }
            }
        };
        if self.is_local {
            set(0, Mistake::ClassNotMasked, &[(0, 0xf0)]);
        } else if self.is_ipv4 {
            set(0, Mistake::ClassNotMasked, &[(1, 0xff)]);
            set(0, Mistake::HopLimitNotMasked, &[(8, 0xff)]);
            set(0, Mistake::HeaderChecksumNotMasked, &[(10, 0xff), (11, 0xff)]);
        } else {
            set(0, Mistake::ClassNotMasked, &[(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff)]);
            set(0, Mistake::HopLimitNotMasked, &[(7, 0xff)]);
        }
        set(1, Mistake::UdpChecksumNotMasked, &[(6, 0xff), (7, 0xff)]);
        set(2, Mistake::CongestionNotMasked, &[(4, 0xff)]);
        masks
    }

    fn parts(&self) -> Vec<Part> {
        let [network, udp, packet] = self.masks(&[]);
        let name = match (self.is_local, self.is_ipv4, self.udp.is_empty()) {
            (true, ..) => "local route header",
            (_, true, _) => "IPv4 header",
            (_, _, false) => "IPv6 header",
            (_, _, true) => "global route header",
        };
        let ones = if self.is_local { 0 } else { Lrh::LENGTH };
        let mut hasher = crc32fast::Hasher::new();
        let mut parts = Vec::new();
        let mut add = |name, bytes: &[u8], masks: Vec<u8>| {
            if bytes.is_empty() {
                return;
            }
            hasher.update(&masked(bytes, &masks, false));
            let running = !hasher.clone().finalize();
            parts.push(Part { name, bytes: bytes.to_vec(), masks, running });
        };
        add("ones for the local route header", &vec![0xff; ones], vec![0xff; ones]);
        add(name, self.network, network);
        add("UDP header", self.udp, udp);
        let (front, pad) = self.packet.split_at(self.packet.len() - self.pad);
        let (front_masks, pad_masks) = packet.split_at(front.len());
        let header = front.len().min(12);
        add("base transport header", &front[..header], front_masks[..header].to_vec());
        add("headers and payload", &front[header..], front_masks[header..].to_vec());
        add("pad", pad, pad_masks.to_vec());
        parts
    }

    /// The fewest mistakes that give `wire`: one, any of the masks, or two.
    fn find(&self, wire: &[u8; 4]) -> Vec<Mistake> {
        let fits = |mistakes: &[Mistake]| self.with(mistakes) == Some(*wire);
        let singles = Mistake::ALL.iter().map(|one| vec![*one]);
        let pairs = Mistake::ALL.iter().flat_map(|one| {
            let later = Mistake::ALL.iter().filter(move |other| *other > one);
            later.map(move |other| vec![*one, *other])
        });
        let forgotten = (3u8..32).filter(|set| set.count_ones() > 1).map(|set| {
            let chosen = MASKS.iter().enumerate().filter(move |(bit, _)| set >> bit & 1 == 1);
            chosen.map(|(_, mistake)| *mistake).collect()
        });
        let mut forgotten: Vec<Vec<Mistake>> = forgotten.collect();
        forgotten.sort_by_key(Vec::len);
        let with_order = forgotten.clone().into_iter().map(|mut mistakes| {
            mistakes.push(Mistake::ByteOrder);
            mistakes
        });
        singles
            .chain(pairs)
            .chain(forgotten)
            .chain(with_order)
            .find(|m| fits(m))
            .unwrap_or_default()
    }

    /// The four bytes that these mistakes give; nothing if one of them cannot be made here.
    fn with(&self, mistakes: &[Mistake]) -> Option<[u8; 4]> {
        let has = |mistake: Mistake| mistakes.contains(&mistake);
        if (has(Mistake::PadLeftOut) && self.pad == 0)
            || (has(Mistake::EthernetIncluded) && self.ethernet.is_empty())
            || (has(Mistake::FrameCheckSequence) && self.ethernet.is_empty())
            || (has(Mistake::VlanIncluded) && self.vlans.is_empty())
            || (has(Mistake::TrailerIncluded) && self.trailer.is_empty())
        {
            return None;
        }
        let [mut network, mut udp, packet] = {
            let masks = self.masks(mistakes);
            let zeros = has(Mistake::ZeroMasks);
            [
                masked(self.network, &masks[0], zeros),
                masked(self.udp, &masks[1], zeros),
                masked(self.packet, &masks[2], zeros),
            ]
        };
        self.zero_fields(mistakes, &mut network, &mut udp)?;
        let end = packet.len() - if has(Mistake::PadLeftOut) { self.pad } else { 0 };
        let ones: &[u8] = match has(Mistake::LinkHeaderLeftOut) || self.is_local {
            true => &[],
            false => &[0xff; 8],
        };
        let mut parts: Vec<&[u8]> = vec![ones];
        if has(Mistake::EthernetIncluded) {
            parts.push(self.ethernet);
        }
        if has(Mistake::VlanIncluded) {
            parts.push(self.vlans);
        }
        parts.extend([&network[..], &udp, &packet[..end]]);
        if has(Mistake::TrailerIncluded) {
            parts.push(self.trailer);
        }
        if has(Mistake::FrameCheckSequence) {
            parts = vec![self.ethernet, self.network, self.udp, self.packet];
        }
        let mut value = if has(Mistake::Castagnoli) { crc32c::of(parts) } else { crc32(&parts) };
        if has(Mistake::NotComplemented) {
            value = !value;
        }
        Some(if has(Mistake::ByteOrder) { value.to_be_bytes() } else { value.to_le_bytes() })
    }

    fn zero_fields(&self, mistakes: &[Mistake], network: &mut [u8], udp: &mut [u8]) -> Option<()> {
        let length = if self.is_ipv4 { 2..4 } else { 4..6 };
        if mistakes.contains(&Mistake::IpLengthZero) {
            network.get_mut(length).filter(|_| !self.is_local)?.fill(0);
        }
        if mistakes.contains(&Mistake::IdentificationZero) {
            network.get_mut(4..6).filter(|_| self.is_ipv4)?.fill(0);
        }
        if mistakes.contains(&Mistake::UdpLengthZero) {
            udp.get_mut(4..6)?.fill(0);
        }
        Some(())
    }
}

fn masked(bytes: &[u8], masks: &[u8], zeros: bool) -> Vec<u8> {
    let one = |(byte, mask): (&u8, &u8)| if zeros { byte & !mask } else { byte | mask };
    bytes.iter().zip(masks).map(one).collect()
}

fn crc32(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// The Ethernet header with its tags that ends at `end`, if there is one: more may lie before it (an
/// ERF record, a tunnel), and MPLS or a tunnel of IP behind it.
fn ethernet<'a>(frame: &Frame<'a>, end: usize) -> &'a [u8] {
    let Some(addresses) = frame.envelope.ethernet else { return &[] };
    let length = Ethernet::LENGTH + VlanTag::LENGTH * frame.envelope.vlans.iter().len();
    let header = end.checked_sub(length).and_then(|start| frame.data.get(start..end));
    let begins = [addresses.destination, addresses.source].concat();
    header.filter(|header| header.starts_with(&begins)).unwrap_or_default()
}

/// Where `part`, a slice of `whole`, begins in it.
fn offset_in(whole: &[u8], part: &[u8]) -> Option<usize> {
    let offset = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (offset + part.len() <= whole.len()).then_some(offset)
}
