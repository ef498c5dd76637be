//! From the first byte of a frame to the RDMA packet in it.
//!
//! ```text
//!   Ethernet ─ VLAN* ─┬─ IPv4, IPv6 ─┬─ UDP ─┬─ 4791: RoCEv2
//!   SLL, SLL2, ERF ───┤              ├─ TCP  └─ VXLAN, Geneve ─► Ethernet again
//!   raw IP ───────────┘              └─ GRE, ERSPAN, IP in IP, MPLS ─► again
//!   Ethernet ─ 0x8915 ─ GRH: RoCEv1       InfiniBand ─ LRH ─ (GRH): native
//! ```
//!
//! Each step takes its header off the rest and names the next one. What cannot be is an issue, and
//! the walk ends there with what it has.

use super::frame::{Addresses, FlowControl, Frame, Kind, Outer};
use super::span::Span;
use super::tunnel::{self, Inner, Tunnel};
use super::{Issue, vcrc};
use crate::pcap::LinkType;
use crate::wire::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE_V1, Grh, Ipv4Header, Ipv6Header, Lrh, Network,
    PROTOCOL_UDP, UdpHeader, VlanTag,
};

const ETHERTYPE_MAC_CONTROL: u16 = 0x8808;
const ETHERTYPES_MPLS: [u16; 2] = [0x8847, 0x8848];

const PROTOCOL_IPV4: u8 = 4;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_IPV6: u8 = 41;
const PROTOCOL_GRE: u8 = 47;
const PROTOCOL_MPLS: u8 = 137;

/// The most headers that are taken off a frame; only a frame made for it has more.
const MAX_STEPS: usize = 32;

/// Which header comes next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ethernet,
    Ethertype(u16),
    /// An IP header of either version.
    Ip,
    Protocol(u8),
    Lrh,
    End,
}

/// How a link type begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Ethernet,
    Ip,
    Sll,
    Sll2,
    Erf,
    InfiniBand,
}

impl Start {
    fn of(link_type: LinkType) -> Option<Self> {
        Some(match link_type.0 {
            1 => Self::Ethernet,
            // The registry's numbers for raw IP; 12 and 14 are old files' values of the same.
            12 | 14 | 101 | 228 | 229 => Self::Ip,
            113 => Self::Sll,
            197 => Self::Erf,
            247 => Self::InfiniBand,
            276 => Self::Sll2,
            _ => return None,
        })
    }
}

/// Whether frames of this link type can be read.
pub fn is_supported(link_type: LinkType) -> bool {
    Start::of(link_type).is_some()
}

/// Whether an ethertype is one of those that are looked into.
pub(super) fn is_known(ethertype: u16) -> bool {
    let plain = [ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE_V1, ETHERTYPE_MAC_CONTROL];
    plain.contains(&ethertype)
        || ETHERTYPES_MPLS.contains(&ethertype)
        || VlanTag::is_protocol(ethertype)
}

/// A frame on its way inwards.
pub(super) struct Walk<'a, 'p> {
    pub(super) frame: Frame<'a>,
    rest: Span<'a>,
    /// UDP ports of RoCEv2.
    ports: &'p [u16],
    /// The innermost TCP segment.
    pub(super) tcp: Option<Span<'a>>,
}

impl<'a, 'p> Walk<'a, 'p> {
    /// Takes all headers off a frame.
    pub(super) fn new(link_type: LinkType, length: u32, data: &'a [u8], ports: &'p [u16]) -> Self {
        let frame = Frame { data, length, ..Frame::default() };
        let rest = Span::new(data, length as usize);
        let mut walk = Self { frame, rest, ports, tcp: None };
        if rest.missing > 0 {
            walk.frame.issues.add(Issue::Truncated);
        }
        let Some(start) = Start::of(link_type) else {
            walk.frame.issues.add(Issue::UnsupportedLinkType);
            return walk;
        };
        let mut step = walk.start(start);
        for _ in 0..MAX_STEPS {
            match step {
                Some(Step::End) | None => return walk,
                Some(next) => step = walk.take(next),
            }
        }
        walk.frame.issues.add(Issue::TooDeep);
        walk
    }

    fn start(&mut self, start: Start) -> Option<Step> {
        match start {
            Start::Ethernet => Some(Step::Ethernet),
            Start::Ip => Some(Step::Ip),
            Start::InfiniBand => Some(Step::Lrh),
            Start::Sll => {
                let header = self.header::<16>()?;
                Some(Step::Ethertype(u16::from_be_bytes([header[14], header[15]])))
            }
            Start::Sll2 => {
                let header = self.header::<20>()?;
                Some(Step::Ethertype(u16::from_be_bytes([header[0], header[1]])))
            }
            Start::Erf => self.erf(),
        }
    }

    fn take(&mut self, step: Step) -> Option<Step> {
        match step {
            Step::Ethernet => self.ethernet(),
            Step::Ethertype(ethertype) => self.ethertype(ethertype),
            Step::Ip => match self.rest.bytes.first().map(|first| first >> 4) {
                Some(4) => self.ipv4(),
                Some(6) => self.ipv6(),
                Some(_) => self.wrong(Issue::BadIpHeader),
                None => {
                    self.cut_or_short(1);
                    None
                }
            },
            Step::Protocol(protocol) => self.protocol(protocol),
            Step::Lrh => self.lrh(),
            Step::End => None,
        }
    }

    /// The next `N` bytes. If they are not there an issue says why, and the walk ends.
    fn header<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let header = self.rest.take();
        if header.is_none() {
            self.cut_or_short(N);
        }
        header
    }

    /// As [`Self::header`], and leaves the bytes where they are.
    fn peek<const N: usize>(&mut self) -> Option<[u8; N]> {
        let before = self.rest;
        let header = self.header::<N>().copied();
        self.rest = before;
        header
    }

    /// The issue of a header of `length` bytes that is not there.
    fn cut_or_short(&mut self, length: usize) {
        let was_sent = self.rest.length() >= length;
        self.frame.issues.add(if was_sent { Issue::Truncated } else { Issue::MissingHeader });
    }

    fn wrong<T>(&mut self, issue: Issue) -> Option<T> {
        self.frame.issues.add(issue);
        None
    }

    /// An ERF record: 16 bytes, extension headers, then what its type says.
    fn erf(&mut self) -> Option<Step> {
        const MORE: u8 = 0x80;
        let header = self.header::<16>()?;
        let kind = header[8];
        let wire_length = usize::from(u16::from_be_bytes([header[14], header[15]]));
        let mut more = kind & MORE != 0;
        while more {
            more = self.header::<8>()?[0] & MORE != 0;
        }
        match kind & !MORE {
            21 => {
                // The record is padded to eight bytes; only the wire length tells what was sent.
                self.limit_to(wire_length);
                Some(Step::Lrh)
            }
            2 | 11 | 16 | 20 => {
                self.header::<2>()?;
                self.limit_to(wire_length);
                Some(Step::Ethernet)
            }
            22 | 23 => Some(Step::Ip),
            _ => None,
        }
    }

    fn limit_to(&mut self, wire_length: usize) {
        let captured = self.rest.bytes;
        self.rest = Span::new(&captured[..captured.len().min(wire_length)], wire_length);
        if self.rest.missing > 0 {
            self.frame.issues.add(Issue::Truncated);
        }
    }

    fn ethernet(&mut self) -> Option<Step> {
        let &[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = self.header()?;
        let (destination, source) = ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
        self.frame.envelope.ethernet = Some(Addresses { source, destination });
        self.frame.envelope.vlans = Default::default();
        Some(Step::Ethertype(u16::from_be_bytes(*self.header()?)))
    }

    fn ethertype(&mut self, ethertype: u16) -> Option<Step> {
        match ethertype {
            ETHERTYPE_IPV4 => self.ipv4(),
            ETHERTYPE_IPV6 => self.ipv6(),
            ETHERTYPE_ROCE_V1 => {
                self.frame.kind = Kind::RoceV1;
                self.grh()
            }
            ETHERTYPE_MAC_CONTROL => self.mac_control(),
            tag if VlanTag::is_protocol(tag) => self.vlan(tag),
            label if ETHERTYPES_MPLS.contains(&label) => {
                let found = tunnel::mpls(&mut self.rest);
                self.enter(found)
            }
            _ => None,
        }
    }

    fn vlan(&mut self, protocol: u16) -> Option<Step> {
        let &[high, low, next_high, next_low] = self.header()?;
        let [first, second] = protocol.to_be_bytes();
        let tag = VlanTag::parse(&[first, second, high, low]);
        if !self.frame.envelope.vlans.push(tag) {
            return self.wrong(Issue::TooDeep);
        }
        Some(Step::Ethertype(u16::from_be_bytes([next_high, next_low])))
    }

    /// Pause and PFC (IEEE 802.3 annex 31B, 802.1Qbb).
    fn mac_control(&mut self) -> Option<Step> {
        match u16::from_be_bytes(*self.header()?) {
            0x0001 => {
                self.frame.kind = Kind::Pause;
                let quanta = u16::from_be_bytes(*self.header()?);
                self.frame.flow_control = Some(FlowControl::Pause { quanta });
            }
            0x0101 => {
                self.frame.kind = Kind::Pfc;
                let fields = self.header::<18>()?;
                let (words, _) = fields.as_chunks::<2>();
                let mut quanta = [0; 8];
                for (timer, word) in quanta.iter_mut().zip(&words[1..]) {
                    *timer = u16::from_be_bytes(*word);
                }
                // The upper half of the vector is reserved.
                let enabled = fields[1];
                self.frame.flow_control = Some(FlowControl::Priority { enabled, quanta });
            }
            _ => {}
        }
        None
    }

    /// Keeps what is outside and goes on with what is inside.
    fn enter(&mut self, found: Option<(Tunnel, Inner)>) -> Option<Step> {
        let (tunnel, inner) = found?;
        let envelope = self.frame.envelope;
        if !self.frame.tunnels.push(Outer { envelope, tunnel }) {
            return self.wrong(Issue::TooDeep);
        }
        let inside = &mut self.frame.envelope;
        (inside.network, inside.network_bytes) = (None, &[]);
        (inside.udp, inside.udp_bytes) = (None, None);
        Some(match inner {
            Inner::Ethernet => Step::Ethernet,
            Inner::Protocol(ethertype) => Step::Ethertype(ethertype),
            Inner::Ip => Step::Ip,
        })
    }

    fn ipv4(&mut self) -> Option<Step> {
        let whole = self.rest;
        let first = *self.rest.bytes.first().unwrap_or(&0x45);
        let header_length = usize::from(first & 0x0f) * 4;
        if first >> 4 != 4 || header_length < Ipv4Header::LENGTH {
            return self.wrong(Issue::BadIpHeader);
        }
        let Some((ip, _)) = Ipv4Header::parse(whole.bytes) else {
            self.cut_or_short(header_length);
            return None;
        };
        let envelope = &mut self.frame.envelope;
        envelope.network = Some(Network::V4(ip));
        envelope.network_bytes = &whole.bytes[..header_length];
        let (_, after_header) = whole.split(header_length);
        // Total length 0: the card was to cut this frame into packets and fill it in.
        let length = match usize::from(ip.total_length) {
            0 => after_header.length(),
            total if total < header_length => return self.wrong(Issue::BadIpHeader),
            total => total - header_length,
        };
        self.leave_trailer(after_header, length);
        if ip.is_fragment() {
            self.frame.issues.add(Issue::Fragment);
            if ip.flags & 0x1fff != 0 {
                return None;
            }
        }
        Some(Step::Protocol(ip.protocol))
    }

    /// Goes on with the `length` bytes that a header gives its payload.
    fn leave_trailer(&mut self, rest: Span<'a>, length: usize) {
        if rest.length() < length {
            self.frame.issues.add(Issue::Truncated);
            self.rest = Span::new(rest.bytes, length);
            self.frame.trailer = &[];
        } else {
            let (inside, trailer) = rest.split(length);
            self.rest = inside;
            self.frame.trailer = trailer.bytes;
        }
    }

    fn ipv6(&mut self) -> Option<Step> {
        let whole = self.rest;
        let header = self.header::<{ Ipv6Header::LENGTH }>()?;
        let Some(ip) = Ipv6Header::parse(header) else {
            return self.wrong(Issue::BadIpHeader);
        };
        self.frame.envelope.network = Some(Network::V6(ip, &[]));
        self.frame.envelope.network_bytes = header;
        // Payload length 0 has the same reason as in IPv4; jumbograms are not RoCE.
        let length = match usize::from(ip.payload_length) {
            0 => self.rest.length(),
            length => length,
        };
        let rest = self.rest;
        self.leave_trailer(rest, length);
        let before = self.rest.bytes;
        let protocol = self.ipv6_extensions(ip.next_header);
        let extensions = &before[..before.len() - self.rest.bytes.len()];
        self.frame.envelope.network = Some(Network::V6(ip, extensions));
        self.frame.envelope.network_bytes = &whole.bytes[..header.len() + extensions.len()];
        protocol.map(Step::Protocol)
    }

    /// Steps over the extension headers; nothing if what follows cannot be read.
    fn ipv6_extensions(&mut self, mut next: u8) -> Option<u8> {
        const FRAGMENT: u8 = 44;
        const AUTHENTICATION: u8 = 51;
        for _ in 0..MAX_STEPS {
            let (following, length) = match next {
                // Hop by hop, routing, destination, mobility, host identity, shim6.
                0 | 43 | 60 | 135 | 139 | 140 => {
                    let [following, words] = self.peek()?;
                    (following, (usize::from(words) + 1) * 8)
                }
                AUTHENTICATION => {
                    let [following, words] = self.peek()?;
                    (following, (usize::from(words) + 2) * 4)
                }
                FRAGMENT => {
                    let [following, _, high, low, ..] = self.peek::<8>()?;
                    let field = u16::from_be_bytes([high, low]);
                    // Offset 0 and no more to come: a whole packet all the same (RFC 6946).
                    if field & 0xfff9 != 0 {
                        self.frame.issues.add(Issue::Fragment);
                    }
                    if field & 0xfff8 != 0 {
                        self.rest.take::<8>()?;
                        return None;
                    }
                    (following, 8)
                }
                protocol => return Some(protocol),
            };
            if self.rest.take_slice(length).is_none() {
                self.cut_or_short(length);
                return None;
            }
            next = following;
        }
        self.wrong(Issue::TooDeep)
    }

    fn protocol(&mut self, protocol: u8) -> Option<Step> {
        match protocol {
            PROTOCOL_UDP => self.udp(),
            PROTOCOL_TCP => {
                self.tcp = Some(self.rest);
                None
            }
            PROTOCOL_IPV4 => self.enter(Some((Tunnel::IpInIp, Inner::Protocol(ETHERTYPE_IPV4)))),
            PROTOCOL_IPV6 => self.enter(Some((Tunnel::IpInIp, Inner::Protocol(ETHERTYPE_IPV6)))),
            PROTOCOL_GRE => {
                let found = tunnel::gre(&mut self.rest);
                self.enter(found)
            }
            PROTOCOL_MPLS => {
                let found = tunnel::mpls(&mut self.rest);
                self.enter(found)
            }
            _ => None,
        }
    }

    fn udp(&mut self) -> Option<Step> {
        let datagram = self.rest;
        let bytes = self.header::<{ UdpHeader::LENGTH }>()?;
        let udp = UdpHeader::parse(bytes);
        self.frame.envelope.udp = Some(udp);
        self.frame.envelope.udp_bytes = Some(bytes);
        let is_fragment = self.frame.issues.contains(Issue::Fragment);
        let length = self.udp_length(udp, datagram.length(), is_fragment);
        if self.ports.contains(&udp.destination_port) {
            self.frame.kind = Kind::RoceV2;
            self.frame.body = Some(match is_fragment {
                // Parts of the datagram are elsewhere.
                true => Span::new(self.rest.bytes, length - UdpHeader::LENGTH),
                false => self.rest.split(length - UdpHeader::LENGTH).0,
            });
            return Some(Step::End);
        }
        if is_fragment {
            return None;
        }
        let found = tunnel::of_udp(udp.destination_port, &mut self.rest);
        self.enter(found)
    }

    /// Bytes in the datagram, header included: what UDP says, if IP leaves room for it.
    fn udp_length(&mut self, udp: UdpHeader, room: usize, is_fragment: bool) -> usize {
        let said = usize::from(udp.length);
        if is_fragment && said > room {
            return said;
        }
        // Left to the card, like the IP length: 0, or the length of each segment, which shows once
        // the packets in it are looked at.
        let is_open = said == 0 || (UdpHeader::LENGTH..room).contains(&said);
        if said == room || (self.frame.is_offloaded() && is_open) {
            return room;
        }
        self.frame.issues.add(Issue::UdpLengthMismatch);
        if (UdpHeader::LENGTH..room).contains(&said) { said } else { room }
    }

    fn grh(&mut self) -> Option<Step> {
        let bytes = self.header::<{ Grh::LENGTH }>()?;
        let grh = Grh::parse(bytes);
        self.frame.grh = Some(grh);
        self.frame.grh_bytes = Some(bytes);
        let rest = self.rest;
        self.leave_trailer(rest, grh.payload_length.into());
        if grh.version != 6 || grh.next_header != Grh::NEXT_HEADER {
            return self.wrong(Issue::BadGrh);
        }
        self.frame.body = Some(self.rest);
        None
    }

    /// Native InfiniBand: the packet, then its variant CRC.
    fn lrh(&mut self) -> Option<Step> {
        self.frame.kind = Kind::InfiniBand;
        let whole = self.rest;
        let bytes = self.header::<{ Lrh::LENGTH }>()?;
        let lrh = Lrh::parse(bytes);
        self.frame.lrh = Some(lrh);
        self.frame.lrh_bytes = Some(bytes);
        let length = usize::from(lrh.length) * 4;
        let Some(inside) = length.checked_sub(Lrh::LENGTH) else {
            return self.wrong(Issue::BadLrh);
        };
        let rest = self.rest;
        self.leave_trailer(rest, inside);
        self.variant_crc(whole, length);
        match lrh.next_header {
            Lrh::NEXT_BTH => self.frame.body = Some(self.rest),
            Lrh::NEXT_GRH => {
                let (vcrc, after) = (self.frame.trailer, self.rest);
                self.rest = after;
                self.grh();
                self.frame.trailer = vcrc;
            }
            // Raw packets, of IPv6 or of an ethertype, have no transport of InfiniBand's.
            _ => {}
        }
        None
    }

    fn variant_crc(&mut self, whole: Span<'a>, length: usize) {
        let Some(found) = self.frame.trailer.first_chunk::<2>() else { return };
        let Some(covered) = whole.bytes.get(..length) else { return };
        let expected = vcrc::of(covered);
        self.frame.vcrc = Some((*found, expected));
        if *found != expected {
            self.frame.issues.add(Issue::BadVcrc);
        }
    }
}

impl Frame<'_> {
    /// Whether the IP header's length was left to the card to fill in.
    pub(super) fn is_offloaded(&self) -> bool {
        match self.envelope.network {
            Some(Network::V4(ip)) => ip.total_length == 0,
            Some(Network::V6(ip, _)) => ip.payload_length == 0,
            None => false,
        }
    }
}
