//! The invariant CRC: what every router on the way leaves alone.
//!
//! ```text
//!   8 bytes ff │ IP header │ UDP header │ BTH … payload, pad │ ICRC
//!              └─ TOS, TTL, checksums, flow label, BTH byte 4 count as ff ─┘
//! ```
//!
//! CRC-32 of Ethernet, stored little-endian. It covers the IPv4 identification, which a socket
//! neither chooses nor shows; [`judge`] therefore can recover it.

use std::net::{IpAddr, Ipv6Addr};

use super::crc::{Crc, x_to_minus_8};
use super::prefix::{CONGESTION_BYTE, Prefix};
use super::{Bth, Flow, ICRC_LENGTH, Identification, ReceivedBurst};

/// Flags and fragment offset of a packet that must not be fragmented.
pub const DONT_FRAGMENT: u16 = 0x4000;

/// How many IPv4 identifications, from 0 on, Linux gives to what a socket sends with DF: 0, and
/// where it cuts a burst (UDP_SEGMENT) the index in it. A burst of ours has no more segments.
pub const SOCKET_IDENTIFICATIONS: u16 = 64;

const IPV4_LENGTH: usize = 20;
const UDP_LENGTH: usize = 8;
/// The longest UDP payload that an IPv4 packet can carry; IPv6 takes 20 bytes more.
const MAX_UDP_PAYLOAD: usize = 65_535 - IPV4_LENGTH - UDP_LENGTH;

/// What the ICRC of a received packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is right.
    Right,
    /// It is right if the sender's IPv4 identification was this, which the link could not see and
    /// which no sender of ours on a socket has. Two damages in 2^16 look like that, too, among them
    /// single flipped bits at fixed places.
    Recovered(u16),
    /// The packet is damaged.
    Wrong,
}

/// The ICRC, in wire order, of a datagram without IP options. `bytes` is the UDP payload without
/// the ICRC: BTH to pad. `identification` and `flags` (with fragment offset) count for IPv4 only.
pub fn of_datagram(flow: &Flow, identification: u16, flags: u16, bytes: &[u8]) -> [u8; 4] {
    datagram_crc(flow, identification, flags, bytes).to_le_bytes()
}

/// Makes the ICRC of a packet right for another IPv4 identification. `packet` goes from BTH to ICRC.
/// One that was wrong before stays as it is: somebody wanted it so.
pub(crate) fn renumber(flow: &Flow, packet: &mut [u8], from: u16, to: u16) {
    if from == to || flow.destination.is_ipv6() {
        return;
    }
    let Some((covered, icrc)) = packet.split_last_chunk_mut::<ICRC_LENGTH>() else { return };
    if *icrc == of_datagram(flow, from, DONT_FRAGMENT, covered) {
        *icrc = of_datagram(flow, to, DONT_FRAGMENT, covered);
    }
}

/// What lies before the BTH, as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer<'a> {
    /// RoCEv2 over IPv4.
    Ipv4 {
        /// IPv4 header with its options, 20 to 60 bytes.
        header: &'a [u8],
        /// UDP header.
        udp: &'a [u8; 8],
    },
    /// RoCEv2 over IPv6.
    Ipv6 {
        /// IPv6 header.
        header: &'a [u8; 40],
        /// Extension headers.
        extensions: &'a [u8],
        /// UDP header.
        udp: &'a [u8; 8],
    },
    /// RoCEv1, and native InfiniBand with a GRH, whose LRH counts as ones.
    Global(&'a [u8; 40]),
    /// Native InfiniBand without a GRH: the LRH counts but for its virtual lane.
    Local(&'a [u8; 8]),
}

/// The ICRC, in wire order, of a packet behind any network header. `bytes` is the packet without
/// the ICRC: BTH to pad.
pub fn of(outer: &Outer<'_>, bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc::after_masked_link_header();
    match *outer {
        Outer::Ipv4 { header, udp } => {
            update_masked(&mut crc, header, &[(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff)]);
            update_masked(&mut crc, udp, &UDP_MASK);
        }
        Outer::Ipv6 { header, extensions, udp } => {
            update_masked(&mut crc, header, &IPV6_MASK);
            crc.update(extensions);
            update_masked(&mut crc, udp, &UDP_MASK);
        }
        Outer::Global(header) => update_masked(&mut crc, header, &IPV6_MASK),
        Outer::Local(header) => {
            crc = Crc::default();
            update_masked(&mut crc, header, &[(0, 0xf0)]);
        }
    }
    update_masked(&mut crc, bytes, &[(CONGESTION_BYTE, 0xff)]);
    crc.value().to_le_bytes()
}

/// Offsets and bits of traffic class, flow label and hop limit.
const IPV6_MASK: [(usize, u8); 5] = [(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)];
/// Offsets and bits of the checksum.
const UDP_MASK: [(usize, u8); 2] = [(6, 0xff), (7, 0xff)];

/// Goes on over `bytes` with some bits, all within the first 12 bytes, counted as ones.
fn update_masked(crc: &mut Crc, bytes: &[u8], ones: &[(usize, u8)]) {
    let mut start = [0; 12];
    let (front, rest) = bytes.split_at(bytes.len().min(start.len()));
    let start = &mut start[..front.len()];
    start.copy_from_slice(front);
    for &(offset, bits) in ones {
        if let Some(byte) = start.get_mut(offset) {
            *byte |= bits;
        }
    }
    crc.update(start);
    crc.update(rest);
}

/// Checks the ICRC of segment `index` of `burst`; `segment` is its bytes, BTH to ICRC.
///
/// Where the identification is not seen, DF and one below [`SOCKET_IDENTIFICATIONS`] count as right,
/// which senders of ours on a socket have: a segment can come apart from its burst, so that its
/// index there is not known. Any other one is recovered, with DF set or clear, unless `strict`.
pub fn judge(burst: &ReceivedBurst<'_>, index: usize, segment: &[u8], strict: bool) -> Verdict {
    let Some((bytes, icrc)) = segment.split_last_chunk::<ICRC_LENGTH>() else {
        return Verdict::Wrong;
    };
    if segment.len() > MAX_UDP_PAYLOAD {
        return Verdict::Wrong;
    }
    let received = u32::from_le_bytes(*icrc);
    let (first, flags, seen) = match burst.identification {
        Identification::Seen { first, flags } => (first, flags, true),
        Identification::Unseen => (0, DONT_FRAGMENT, burst.flow.destination.is_ipv6()),
    };
    let expected = first.wrapping_add(index as u16);
    let difference = datagram_crc(&burst.flow, expected, flags, bytes) ^ received;
    if difference == 0 {
        return Verdict::Right;
    }
    if seen {
        return Verdict::Wrong;
    }
    match recover(expected, difference, bytes.len()) {
        Some((0..SOCKET_IDENTIFICATIONS, DONT_FRAGMENT)) => Verdict::Right,
        Some((identification, _)) if !strict => Verdict::Recovered(identification),
        _ => Verdict::Wrong,
    }
}

/// The identification and flags that would explain by how much an ICRC, made with the expected
/// identification and DF, differs from the received one.
///
/// A CRC is linear: changing the four bytes of identification and flags by `d` changes it by
/// `d * x^(8n + 32)`, where n bytes follow. So there is exactly one `d` for each difference, and
/// a damaged packet's is all 32 bits: it passes only if its low 16 look like DF clear or set.
fn recover(expected: u16, difference: u32, length: usize) -> Option<(u16, u16)> {
    let following = IPV4_LENGTH - 8 + UDP_LENGTH + length;
    let [high, low, flags, offset] = change_before(following, difference);
    let flags = DONT_FRAGMENT ^ u16::from_be_bytes([flags, offset]);
    let possible = flags == DONT_FRAGMENT || flags == 0;
    possible.then_some((expected ^ u16::from_be_bytes([high, low]), flags))
}

/// The identification with which the ICRC of an IPv4 packet would be `found`, where it is `computed`
/// with `expected`; nothing if none explains the difference, as with all but two in 2^16 damages.
/// `following` is how many bytes, fewer than 2^16, the ICRC covers behind flags and fragment offset.
pub fn identification_of(
    found: [u8; 4],
    computed: [u8; 4],
    expected: u16,
    following: usize,
) -> Option<u16> {
    let difference = u32::from_le_bytes(found) ^ u32::from_le_bytes(computed);
    match change_before(following, difference) {
        [high, low, 0, 0] => Some(expected ^ u16::from_be_bytes([high, low])),
        _ => None,
    }
}

/// The bits of the four bytes before the last `following` ones that, turned over, change a CRC by
/// `difference`.
fn change_before(following: usize, difference: u32) -> [u8; 4] {
    super::crc::multiply(difference, x_to_minus_8(following + 4)).to_le_bytes()
}

fn datagram_crc(flow: &Flow, identification: u16, flags: u16, bytes: &[u8]) -> u32 {
    let (bth, rest) = bytes.split_at(bytes.len().min(Bth::LENGTH));
    let mut crc = begin(flow, identification, flags, bth, bytes.len());
    crc.update(rest);
    crc.value()
}

/// The sum up to the BTH, or what there is of it, of a packet of so many bytes, BTH to pad.
pub(crate) fn begin(
    flow: &Flow,
    identification: u16,
    flags: u16,
    bth: &[u8],
    length: usize,
) -> Crc {
    let udp_length = length + ICRC_LENGTH + UDP_LENGTH;
    let prefix = match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let lengths = ((udp_length + IPV4_LENGTH) as u16, udp_length as u16);
            let identity = (identification, flags);
            Prefix::ipv4((source, destination), lengths, identity, flow.source_port)
        }
        (source, destination) => {
            let addresses = (as_ipv6(source), as_ipv6(destination));
            Prefix::ipv6(addresses, udp_length as u16, flow.source_port)
        }
    };
    match bth.try_into() {
        Ok(bth) => prefix.then(bth),
        Err(_) => {
            let mut crc = prefix.crc();
            update_masked(&mut crc, bth, &[(CONGESTION_BYTE, 0xff)]);
            crc
        }
    }
}

/// The address in IPv6 form, for flows that mix the families against their promise.
pub(super) fn as_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::rng::Rng;
    use crate::wire::ROCE_PORT;

    /// The sum that is looked up for the fields that differ is that of all bytes in a row, which
    /// [`of`] takes from the headers as they are sent.
    #[test]
    fn looked_up_headers_sum_as_all_their_bytes_do() {
        let mut rng = Rng::new(11);
        for round in 0..2000 {
            let mut random = [0; 48];
            rng.fill(&mut random);
            let length = rng.below(60) as usize + 1000 * usize::from(round % 3 == 0);
            let mut bytes = vec![0; length];
            rng.fill(&mut bytes);
            let (identification, flags) = (rng.next_u32() as u16, rng.next_u32() as u16);
            let udp_length = (length + ICRC_LENGTH + UDP_LENGTH) as u16;
            let source_port = rng.next_u32() as u16;
            let mut udp = [0xa5; 8];
            udp[0..2].copy_from_slice(&source_port.to_be_bytes());
            udp[2..4].copy_from_slice(&ROCE_PORT.to_be_bytes());
            udp[4..6].copy_from_slice(&udp_length.to_be_bytes());

            let mut header: [u8; 20] = *random.first_chunk().unwrap();
            (header[0], header[9]) = (0x45, 17);
            header[2..4].copy_from_slice(&(udp_length + 20).to_be_bytes());
            header[4..6].copy_from_slice(&identification.to_be_bytes());
            header[6..8].copy_from_slice(&flags.to_be_bytes());
            let address = |at: usize| Ipv4Addr::from(*header[at..].first_chunk::<4>().unwrap());
            let (source, destination) = (IpAddr::V4(address(12)), IpAddr::V4(address(16)));
            let flow = Flow { source, destination, source_port };
            let all = of(&Outer::Ipv4 { header: &header, udp: &udp }, &bytes);
            assert_eq!(of_datagram(&flow, identification, flags, &bytes), all);

            let mut header: [u8; 40] = *random.first_chunk().unwrap();
            (header[0], header[6]) = (0x60 | header[0] & 0xf, 17);
            header[4..6].copy_from_slice(&udp_length.to_be_bytes());
            let address = |at: usize| Ipv6Addr::from(*header[at..].first_chunk::<16>().unwrap());
            let (source, destination) = (IpAddr::V6(address(8)), IpAddr::V6(address(24)));
            let flow = Flow { source, destination, source_port };
            let all = of(&Outer::Ipv6 { header: &header, extensions: &[], udp: &udp }, &bytes);
            assert_eq!(of_datagram(&flow, identification, flags, &bytes), all);
        }
    }

    /// A UC SEND_ONLY over IPv4: BTH, 18 bytes of payload, 2 of pad, ICRC.
    const SEND_ONLY: [u8; 36] = [
        0x24, 0x60, 0xff, 0xff, 0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10, 0x46, 0x30, 0x81,
        0x8b, 0xe2, 0x89, 0x35, 0xd9, 0x0e, 0x9a, 0x95, 0x50, 0x54, 0x01, 0xbe, 0x88, 0x5e, 0x50,
        0x00, 0x00, 0x78, 0xf3, 0x53, 0xf3,
    ];

    fn flow() -> Flow {
        let address = IpAddr::V4(Ipv4Addr::new(192, 168, 0, 7));
        Flow { source: address, destination: address, source_port: 0xc000 }
    }

    fn burst(identification: Identification, bytes: &[u8]) -> ReceivedBurst<'_> {
        let segment = bytes.len().max(1);
        ReceivedBurst { flow: flow(), traffic_class: 0, identification, segment, bytes }
    }

    #[test]
    fn a_published_packet_has_the_published_icrc() {
        assert_eq!(of_datagram(&flow(), 1144, DONT_FRAGMENT, &SEND_ONLY[..32]), SEND_ONLY[32..]);
    }

    #[test]
    fn a_seen_identification_must_be_the_one_that_was_signed() {
        let seen = |first| Identification::Seen { first, flags: DONT_FRAGMENT };
        let at = |first, index| judge(&burst(seen(first), &SEND_ONLY), index, &SEND_ONLY, false);
        assert_eq!(at(1144, 0), Verdict::Right);
        assert_eq!(at(1140, 4), Verdict::Right);
        assert_eq!(at(1143, 0), Verdict::Wrong);
    }

    #[test]
    fn an_unseen_identification_is_recovered_unless_strict() {
        let unseen = burst(Identification::Unseen, &SEND_ONLY);
        for index in [0, 1, 63] {
            assert_eq!(judge(&unseen, index, &SEND_ONLY, false), Verdict::Recovered(1144));
            assert_eq!(judge(&unseen, index, &SEND_ONLY, true), Verdict::Wrong);
        }
    }

    #[test]
    fn every_identification_is_recovered_with_and_without_dont_fragment() {
        for (length, flags) in [(16, 0), (16, DONT_FRAGMENT), (32, 0), (32, DONT_FRAGMENT)] {
            for identification in (0..=u16::MAX).step_by(7) {
                let mut packet = SEND_ONLY[..length + 4].to_vec();
                let icrc = of_datagram(&flow(), identification, flags, &packet[..length]);
                packet[length..].copy_from_slice(&icrc);
                let verdict = judge(&burst(Identification::Unseen, &packet), 2, &packet, false);
                let exact = flags == DONT_FRAGMENT && identification < SOCKET_IDENTIFICATIONS;
                let expected =
                    if exact { Verdict::Right } else { Verdict::Recovered(identification) };
                assert_eq!(verdict, expected, "identification {identification}, flags {flags:#x}");
            }
        }
    }

    #[test]
    fn an_identification_is_found_behind_any_header() {
        let udp = [0xc0, 0, 0x12, 0xb7, 0, 44, 0, 0];
        for options in (0..=40).step_by(4) {
            let icrc = |identification: u16| {
                let mut header = vec![0x45 + options as u8 / 4];
                header.resize(20 + options, 1);
                header[4..6].copy_from_slice(&identification.to_be_bytes());
                of(&Outer::Ipv4 { header: &header, udp: &udp }, &SEND_ONLY[..32])
            };
            let following = 12 + options + udp.len() + 32;
            for own in [0, 1, 0x1234, u16::MAX] {
                let found = identification_of(icrc(own), icrc(0x8000), 0x8000, following);
                assert_eq!(found, Some(own), "{options} bytes of options");
                let mut damaged = icrc(own);
                damaged[0] ^= 1;
                assert_eq!(identification_of(damaged, icrc(0x8000), 0x8000, following), None);
            }
        }
    }

    /// A burst whose segments arrive one by one, as after a router without segmentation.
    #[test]
    fn a_segment_apart_from_its_burst_is_right_in_strict_mode_too() {
        let unseen = burst(Identification::Unseen, &[]);
        for identification in [0, 1, 63, 64] {
            let mut packet = SEND_ONLY.to_vec();
            let icrc = of_datagram(&flow(), identification, DONT_FRAGMENT, &packet[..32]);
            packet[32..].copy_from_slice(&icrc);
            let right = judge(&unseen, 0, &packet, true) == Verdict::Right;
            assert_eq!(right, identification < SOCKET_IDENTIFICATIONS, "{identification}");
        }
    }

    /// Among the damages that look like another identification are single flipped bits; none looks
    /// like one that a socket of ours may have, wherever it lies before the end of a packet.
    #[test]
    fn no_single_flipped_bit_looks_like_an_identification_of_ours() {
        let crc_of = |byte: u8| {
            let mut crc = Crc::default();
            crc.update(&[byte]);
            crc.value()
        };
        let mut alike = 0;
        // What follows the damaged byte moves the CRC and its difference alike, so that the last of
        // `length` bytes stands for the byte at this place of any longer packet.
        for (bit, length) in (0..8).flat_map(|bit| (1..=MAX_UDP_PAYLOAD).map(move |n| (bit, n))) {
            match recover(0, crc_of(1 << bit) ^ crc_of(0), length) {
                Some((0..SOCKET_IDENTIFICATIONS, DONT_FRAGMENT)) => {
                    panic!("bit {bit} of the last of {length} bytes")
                }
                Some(_) => alike += 1,
                None => {}
            }
        }
        assert!(alike > 0, "single flipped bits do look like identifications of others");
    }

    #[test]
    fn recovery_works_for_the_longest_packet_and_no_bytes_panic() {
        let mut longest = vec![0x5a; MAX_UDP_PAYLOAD];
        let end = longest.len() - ICRC_LENGTH;
        let icrc = of_datagram(&flow(), 0xbeef, DONT_FRAGMENT, &longest[..end]);
        longest[end..].copy_from_slice(&icrc);
        let unseen = burst(Identification::Unseen, &longest);
        assert_eq!(judge(&unseen, 0, &longest, false), Verdict::Recovered(0xbeef));
        for length in 0..20 {
            judge(&unseen, 0, &longest[..length], false);
        }
        assert_eq!(judge(&unseen, 0, &vec![0; 70_000], false), Verdict::Wrong);
    }
}
