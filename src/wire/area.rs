//! The 40 bytes before a received datagram: its network header, as the receiver's memory shows it.
//!
//! ```text
//!   IPv6:  │ the whole header (40)                │
//!   IPv4:  │ 20 zeros │ the header, no options (20) │
//! ```
//!
//! The version in the first byte tells them apart, and an IPv4 header must have its checksum.

use std::net::IpAddr;

use super::icrc::DONT_FRAGMENT;
use super::{Flow, Ipv4Header, Ipv6Header, PROTOCOL_UDP, internet_checksum};

/// What a socket does not show of a header is as usual: this hop limit, identification 0, DF.
const HOP_LIMIT: u8 = 64;
const UDP_HEADER: usize = 8;

/// Where a datagram came from and went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkArea {
    /// Sender's address.
    pub source: IpAddr,
    /// Receiver's address, or a multicast group's.
    pub destination: IpAddr,
    /// DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits; 0 for IPv4.
    pub flow_label: u32,
}

impl NetworkArea {
    /// Bytes of the area.
    pub const LENGTH: usize = 40;

    /// That of a datagram of `flow` whose flow label is not known.
    pub fn new(flow: &Flow, traffic_class: u8) -> Self {
        let Flow { source, destination, .. } = *flow;
        Self { source, destination, traffic_class, flow_label: 0 }
    }

    /// The bytes for a UDP payload of `length` bytes; zeros if the addresses are of two families. A
    /// length that does not fit into an IP packet is cut to 16 bits.
    pub fn emit(&self, length: usize) -> [u8; Self::LENGTH] {
        let mut area = [0; Self::LENGTH];
        let length = length.wrapping_add(UDP_HEADER) as u16;
        match (self.source, self.destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => Ipv6Header {
                traffic_class: self.traffic_class,
                flow_label: self.flow_label,
                payload_length: length,
                next_header: PROTOCOL_UDP,
                hop_limit: HOP_LIMIT,
                source,
                destination,
            }
            .emit(&mut area),
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = Ipv4Header {
                    traffic_class: self.traffic_class,
                    total_length: length.wrapping_add(Ipv4Header::LENGTH as u16),
                    identification: 0,
                    flags: DONT_FRAGMENT,
                    hop_limit: HOP_LIMIT,
                    protocol: PROTOCOL_UDP,
                    checksum: 0,
                    source,
                    destination,
                    options: &[],
                };
                header.checksum = header.computed_checksum();
                header.emit(&mut area[Self::LENGTH - Ipv4Header::LENGTH..]);
            }
            _ => {}
        }
        area
    }

    /// Reads the area; nothing if it holds no header, as one that no datagram was received into.
    pub fn parse(area: &[u8; Self::LENGTH]) -> Option<Self> {
        if let Some(header) = Ipv6Header::parse(area) {
            return Some(Self {
                source: header.source.into(),
                destination: header.destination.into(),
                traffic_class: header.traffic_class,
                flow_label: header.flow_label,
            });
        }
        let v4 = &area[Self::LENGTH - Ipv4Header::LENGTH..];
        let (header, _) = Ipv4Header::parse(v4)?;
        (header.options.is_empty() && internet_checksum(v4) == 0).then_some(Self {
            source: header.source.into(),
            destination: header.destination.into(),
            traffic_class: header.traffic_class,
            flow_label: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn area(source: impl Into<IpAddr>, destination: impl Into<IpAddr>) -> NetworkArea {
        let (source, destination) = (source.into(), destination.into());
        NetworkArea { source, destination, traffic_class: 0x6a, flow_label: 0 }
    }

    #[test]
    fn ipv4_is_a_header_with_the_right_checksum_behind_twenty_zeros() {
        let area = area(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let bytes = area.emit(40);
        assert_eq!(bytes[..20], [0; 20]);
        assert_eq!(bytes[20..22], [0x45, 0x6a]);
        assert_eq!(u16::from_be_bytes([bytes[22], bytes[23]]), 68);
        assert_eq!(internet_checksum(&bytes[20..]), 0, "over a header with its checksum");
        assert_eq!(NetworkArea::parse(&bytes), Some(area));
    }

    #[test]
    fn ipv6_is_its_header() {
        let area =
            NetworkArea { flow_label: 0x12345, ..area(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST) };
        let bytes = area.emit(40);
        assert_eq!(bytes[..8], [0x66, 0xa1, 0x23, 0x45, 0, 48, 17, 64]);
        assert_eq!(bytes[24..40], Ipv6Addr::LOCALHOST.octets());
        assert_eq!(NetworkArea::parse(&bytes), Some(area));
    }

    #[test]
    fn what_is_no_header_is_nobodys() {
        let mut damaged = area(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)).emit(40);
        damaged[39] ^= 1;
        for bytes in [[0; 40], [0xff; 40], damaged] {
            assert_eq!(NetworkArea::parse(&bytes), None);
        }
    }

    #[test]
    fn a_length_beyond_every_ip_packet_is_cut() {
        let area = area(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        for length in [65_520, 65_528, usize::MAX] {
            let bytes = area.emit(length);
            let total = u16::from_be_bytes([bytes[22], bytes[23]]);
            assert_eq!(total, length.wrapping_add(28) as u16);
            assert_eq!(NetworkArea::parse(&bytes), Some(area));
        }
    }

    /// Its last 20 bytes can be anything.
    #[test]
    fn an_ipv6_header_that_ends_like_one_of_ipv4_is_still_ipv6() {
        let v4 = area(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)).emit(40);
        let mut bytes = area(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST).emit(40);
        bytes[20..].copy_from_slice(&v4[20..]);
        assert!(NetworkArea::parse(&bytes).is_some_and(|area| area.source.is_ipv6()));
    }
}
