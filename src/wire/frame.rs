//! A whole Ethernet frame around a UDP datagram, read for what a link and an ICRC need, and the
//! headers of one of our own.
//!
//! ```text
//!   ┌──────────┬──────────────────┬─────┬─────────┬─────────┐
//!   │ Ethernet │ IPv4, or IPv6    │ UDP │ payload │ trailer │
//!   └──────────┴──────────────────┴─────┴─────────┴─────────┘
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet};
use super::icrc::{self, DONT_FRAGMENT};
use super::ip::{Ipv4Header, Ipv6Header, PROTOCOL_UDP};
use super::message::{room, take};
use super::udp::UdpHeader;
use super::{Flow, Identification, ROCE_PORT, ReceivedBurst};

/// The network header, with what lies between it and the UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network<'a> {
    /// IPv4.
    V4(Ipv4Header<'a>),
    /// IPv6, and its extension headers as sent.
    V6(Ipv6Header, &'a [u8]),
}

/// An Ethernet frame with a whole UDP datagram in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Ethernet header with VLAN tags.
    pub ethernet: Ethernet,
    /// IP header.
    pub network: Network<'a>,
    /// UDP header.
    pub udp: UdpHeader,
    /// UDP payload: for RoCEv2 from the BTH to the ICRC, or many such of one size in a frame that
    /// segmentation offload has left whole.
    pub payload: &'a [u8],
    /// What follows the IP packet: Ethernet padding, a frame check sequence.
    pub trailer: &'a [u8],
}

/// Why bytes are not a frame with a whole UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The bytes end inside a header, or before the IP packet does.
    #[error("the frame ends before its headers or its IP packet do")]
    Truncated,
    /// Neither IPv4 nor IPv6.
    #[error("neither IPv4 nor IPv6")]
    NotIp,
    /// The IP header contradicts itself or its Ethernet header.
    #[error("malformed IP header")]
    BadIpHeader,
    /// A part of a larger packet.
    #[error("an IP fragment")]
    Fragment,
    /// An IP packet of something else.
    #[error("not UDP")]
    NotUdp,
    /// The UDP length is not what the IP header leaves for it.
    #[error("UDP length does not agree with the IP length")]
    UdpLengthMismatch,
}

impl<'a> Frame<'a> {
    /// Reads an Ethernet frame. Checksums are not looked at: a link knows whether they are
    /// filled in at all.
    ///
    /// # Errors
    /// What is wrong first, from outside in.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let (ethernet, rest) = Ethernet::parse(bytes).ok_or(FrameError::Truncated)?;
        let (network, datagram, trailer) = match ethernet.ethertype {
            ETHERTYPE_IPV4 => split_ipv4(rest)?,
            ETHERTYPE_IPV6 => split_ipv6(rest)?,
            _ => return Err(FrameError::NotIp),
        };
        let mut payload = datagram;
        let udp = UdpHeader::parse(take(&mut payload).ok_or(FrameError::UdpLengthMismatch)?);
        if usize::from(udp.length) != datagram.len() {
            return Err(FrameError::UdpLengthMismatch);
        }
        Ok(Self { ethernet, network, udp, payload, trailer })
    }

    /// Addresses and source port, if the datagram is for the port of RoCEv2.
    pub fn flow(&self) -> Option<Flow> {
        let (source, destination) = match self.network {
            Network::V4(ip) => (IpAddr::V4(ip.source), IpAddr::V4(ip.destination)),
            Network::V6(ip, _) => (IpAddr::V6(ip.source), IpAddr::V6(ip.destination)),
        };
        let source_port = self.udp.source_port;
        let is_roce = self.udp.destination_port == ROCE_PORT;
        is_roce.then_some(Flow { source, destination, source_port })
    }

    /// IPv4 TOS or IPv6 traffic class.
    pub fn traffic_class(&self) -> u8 {
        match self.network {
            Network::V4(ip) => ip.traffic_class,
            Network::V6(ip, _) => ip.traffic_class,
        }
    }

    /// The payload as a burst of packets of `segment` bytes, as an endpoint takes it: nothing
    /// unless it is RoCEv2 with a payload and without IP options or extension headers, whose
    /// ICRC [`icrc::judge`] could not make.
    pub fn burst(&self, segment: usize) -> Option<ReceivedBurst<'a>> {
        let (identification, plain) = match self.network {
            Network::V4(ip) => {
                let seen = Identification::Seen { first: ip.identification, flags: ip.flags };
                (seen, ip.options.is_empty())
            }
            Network::V6(_, extensions) => (Identification::Unseen, extensions.is_empty()),
        };
        let flow = self.flow().filter(|_| plain && segment > 0 && !self.payload.is_empty())?;
        let traffic_class = self.traffic_class();
        Some(ReceivedBurst { flow, traffic_class, identification, segment, bytes: self.payload })
    }

    /// The ICRC that the headers as they were sent ask for, in wire order; nothing if there is no
    /// room for one in the payload.
    pub fn computed_icrc(&self) -> Option<[u8; 4]> {
        let (packet, _) = self.payload.split_last_chunk::<{ super::ICRC_LENGTH }>()?;
        let mut udp = [0; UdpHeader::LENGTH];
        self.udp.emit(&mut udp);
        Some(match self.network {
            Network::V4(ip) => {
                let mut header = [0; Ipv4Header::MAX_LENGTH];
                let length = ip.emit(&mut header);
                let outer = icrc::Outer::Ipv4 { header: &header[..length], udp: &udp };
                icrc::of(&outer, packet)
            }
            Network::V6(ip, extensions) => {
                let mut header = [0; Ipv6Header::LENGTH];
                ip.emit(&mut header);
                let outer = icrc::Outer::Ipv6 { header: &header, extensions, udp: &udp };
                icrc::of(&outer, packet)
            }
        })
    }

    /// Bytes in the whole frame.
    pub fn length(&self) -> usize {
        let network = match self.network {
            Network::V4(ip) => ip.length(),
            Network::V6(_, extensions) => Ipv6Header::LENGTH + extensions.len(),
        };
        let inner = UdpHeader::LENGTH + self.payload.len() + self.trailer.len();
        self.ethernet.length() + network + inner
    }

    /// Writes the frame to the front of `buffer`, each header from its fields, and returns its
    /// length.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`Frame::length`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let ethernet = self.ethernet.emit(buffer);
        let mut rest = &mut buffer[ethernet..];
        match self.network {
            Network::V4(ip) => {
                let length = ip.emit(rest);
                rest = &mut rest[length..];
            }
            Network::V6(ip, extensions) => {
                ip.emit(room(&mut rest));
                rest = put(rest, extensions);
            }
        }
        self.udp.emit(room(&mut rest));
        put(put(rest, self.payload), self.trailer);
        self.length()
    }
}

fn put<'b>(buffer: &'b mut [u8], bytes: &[u8]) -> &'b mut [u8] {
    let (room, rest) = buffer.split_at_mut(bytes.len());
    room.copy_from_slice(bytes);
    rest
}

type Split<'a> = (Network<'a>, &'a [u8], &'a [u8]);

/// Splits an IPv4 packet and what follows it into header, datagram and trailer.
fn split_ipv4(bytes: &[u8]) -> Result<Split<'_>, FrameError> {
    if bytes.len() < Ipv4Header::LENGTH {
        return Err(FrameError::Truncated);
    }
    let (ip, rest) = Ipv4Header::parse(bytes).ok_or(FrameError::BadIpHeader)?;
    let length = usize::from(ip.total_length);
    let length = length.checked_sub(ip.length()).ok_or(FrameError::BadIpHeader)?;
    let (datagram, trailer) = rest.split_at_checked(length).ok_or(FrameError::Truncated)?;
    if ip.is_fragment() {
        return Err(FrameError::Fragment);
    }
    if ip.protocol != PROTOCOL_UDP {
        return Err(FrameError::NotUdp);
    }
    Ok((Network::V4(ip), datagram, trailer))
}

/// Splits an IPv6 packet and what follows it into headers, datagram and trailer.
fn split_ipv6(bytes: &[u8]) -> Result<Split<'_>, FrameError> {
    let mut rest = bytes;
    let header = take(&mut rest).ok_or(FrameError::Truncated)?;
    let ip = Ipv6Header::parse(header).ok_or(FrameError::BadIpHeader)?;
    let length = usize::from(ip.payload_length);
    let (packet, trailer) = rest.split_at_checked(length).ok_or(FrameError::Truncated)?;
    let datagram = skip_extensions(ip.next_header, packet)?;
    let extensions = &packet[..packet.len() - datagram.len()];
    Ok((Network::V6(ip, extensions), datagram, trailer))
}

/// Steps over hop-by-hop, routing and destination options, each of which begins with the next
/// header's number and its own length in 8-byte words, less one.
fn skip_extensions(mut next: u8, mut rest: &[u8]) -> Result<&[u8], FrameError> {
    const FRAGMENT: u8 = 44;
    while next != PROTOCOL_UDP {
        if next == FRAGMENT {
            return Err(FrameError::Fragment);
        }
        if !matches!(next, 0 | 43 | 60) {
            return Err(FrameError::NotUdp);
        }
        let [following, words] = *rest.first_chunk().ok_or(FrameError::BadIpHeader)?;
        let length = (usize::from(words) + 1) * 8;
        rest = rest.get(length..).ok_or(FrameError::BadIpHeader)?;
        next = following;
    }
    Ok(rest)
}

/// Ethernet, IP and UDP headers of a RoCEv2 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeaders {
    bytes: [u8; Self::MAX_LENGTH],
    length: usize,
}

impl FrameHeaders {
    /// Bytes in the longest: Ethernet, IPv6, UDP.
    pub const MAX_LENGTH: usize = Ethernet::LENGTH + Ipv6Header::LENGTH + UdpHeader::LENGTH;

    /// The headers.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The headers of a frame that carries `udp_payload_length` bytes, BTH to ICRC, in `flow`: for
/// captures of packets that never had any. Ethernet addresses follow from the IP addresses; the
/// UDP checksum is 0 (none); IPv4 has DF and a right header checksum. A length that does not fit
/// into an IP packet is cut to 16 bits.
pub fn frame_headers(
    flow: &Flow,
    identification: u16,
    traffic_class: u8,
    hop_limit: u8,
    udp_payload_length: usize,
) -> FrameHeaders {
    let length = udp_payload_length.wrapping_add(UdpHeader::LENGTH) as u16;
    let mut bytes = [0; FrameHeaders::MAX_LENGTH];
    let ethernet_at = |ethertype| Ethernet {
        destination: ethernet_address(flow.destination),
        source: ethernet_address(flow.source),
        tags: [None; 2],
        ethertype,
    };
    let mut rest = bytes.as_mut_slice();
    match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total_length = length.wrapping_add(Ipv4Header::LENGTH as u16);
            let ip = Ipv4Header {
                traffic_class,
                total_length,
                identification,
                flags: DONT_FRAGMENT,
                hop_limit,
                protocol: PROTOCOL_UDP,
                checksum: 0,
                source,
                destination,
                options: &[],
            };
            ethernet_at(ETHERTYPE_IPV4).emit(room::<{ Ethernet::LENGTH }>(&mut rest));
            Ipv4Header { checksum: ip.computed_checksum(), ..ip }
                .emit(room::<{ Ipv4Header::LENGTH }>(&mut rest));
        }
        (source, destination) => {
            let ip = Ipv6Header {
                traffic_class,
                flow_label: 0,
                payload_length: length,
                next_header: PROTOCOL_UDP,
                hop_limit,
                source: icrc::as_ipv6(source),
                destination: icrc::as_ipv6(destination),
            };
            ethernet_at(ETHERTYPE_IPV6).emit(room::<{ Ethernet::LENGTH }>(&mut rest));
            ip.emit(room(&mut rest));
        }
    }
    let (source_port, destination_port) = (flow.source_port, ROCE_PORT);
    UdpHeader { source_port, destination_port, length, checksum: 0 }.emit(room(&mut rest));
    let length = FrameHeaders::MAX_LENGTH - rest.len();
    FrameHeaders { bytes, length }
}

/// An Ethernet address for an IP address: locally administered, the same for the same address;
/// for multicast the one that belongs to it.
fn ethernet_address(address: IpAddr) -> [u8; 6] {
    match address {
        IpAddr::V4(address) => ethernet_address_v4(address),
        IpAddr::V6(address) => ethernet_address_v6(address),
    }
}

fn ethernet_address_v4(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    if address.is_multicast() {
        [0x01, 0x00, 0x5e, b & 0x7f, c, d]
    } else if address.is_broadcast() {
        [0xff; 6]
    } else {
        [0x02, 0x00, a, b, c, d]
    }
}

fn ethernet_address_v6(address: Ipv6Addr) -> [u8; 6] {
    let octets = address.octets();
    let [.., a, b, c, d] = octets;
    if address.is_multicast() {
        return [0x33, 0x33, a, b, c, d];
    }
    let folded = octets[..12].iter().fold(0u8, |sum, byte| sum.rotate_left(3) ^ byte);
    [0x02, folded, a, b, c, d]
}
