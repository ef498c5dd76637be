//! The CRC of what lies before a RoCEv2 payload: link, network and UDP headers, and BTH, with what
//! routers may change counted as ones.
//!
//! A CRC is linear: each byte adds what it would add alone among zeros, and that depends only on its
//! value and on how many bytes follow. Most bytes of these headers are always the same, so a look-up
//! for each of the others is all there is to do, and none has to wait for another.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::crc::{AFTER_EIGHT_ONES, Crc, GENERATOR};
use super::{Bth, ROCE_PORT};

const UDP_PROTOCOL: u8 = 17;
const UDP_LENGTH: usize = 8;
const IPV4_HEADERS: usize = 20 + UDP_LENGTH;
const IPV6_HEADERS: usize = 40 + UDP_LENGTH;
/// The byte of the BTH that is masked: FECN, BECN and six reserved bits.
pub(super) const CONGESTION_BYTE: usize = 4;

/// What a byte adds to a register if so many bytes follow it.
static ADDED: [[u32; 256]; IPV6_HEADERS] = {
    let mut added = [[0; 256]; IPV6_HEADERS];
    let (mut following, mut byte) = (0, 0);
    while following < IPV6_HEADERS {
        while byte < 256 {
            let before = if following == 0 { byte as u32 } else { added[following - 1][byte] };
            added[following][byte] = after_zero(before);
            byte += 1;
        }
        byte = 0;
        following += 1;
    }
    added
};

/// The register after a byte of zeros.
const fn after_zero(mut register: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        register = register >> 1 ^ GENERATOR & (register & 1).wrapping_neg();
        bit += 1;
    }
    register
}

/// The register after a masked link header and these bytes.
const fn after<const N: usize>(bytes: [u8; N]) -> u32 {
    let (mut register, mut index) = (AFTER_EIGHT_ONES, 0);
    while index < N {
        register = after_zero(register ^ bytes[index] as u32);
        index += 1;
    }
    register
}

/// The register after headers in which all that differs from packet to packet is zero.
const IPV4_ZEROS: u32 = after({
    let mut headers = [0; IPV4_HEADERS];
    (headers[0], headers[1], headers[8], headers[9]) = (0x45, 0xff, 0xff, UDP_PROTOCOL);
    (headers[10], headers[11]) = (0xff, 0xff);
    with_udp(headers)
});
const IPV6_ZEROS: u32 = after({
    let mut headers = [0; IPV6_HEADERS];
    (headers[0], headers[1], headers[2], headers[3]) = (0x6f, 0xff, 0xff, 0xff);
    (headers[6], headers[7]) = (UDP_PROTOCOL, 0xff);
    with_udp(headers)
});

const fn with_udp<const N: usize>(mut headers: [u8; N]) -> [u8; N] {
    let port = ROCE_PORT.to_be_bytes();
    (headers[N - 6], headers[N - 5], headers[N - 2], headers[N - 1]) =
        (port[0], port[1], 0xff, 0xff);
    headers
}

/// What a field adds behind which so many bytes follow.
fn field<const N: usize>(bytes: [u8; N], following: usize) -> u32 {
    let tables = ADDED[following..following + N].iter().rev();
    bytes.iter().zip(tables).fold(0, |sum, (byte, added)| sum ^ added[usize::from(*byte)])
}

/// A sum over headers, up to the BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix(u32);

impl Prefix {
    /// Over IPv4, without options. Lengths as their fields have them.
    pub(super) fn ipv4(
        (source, destination): (Ipv4Addr, Ipv4Addr),
        (total_length, udp_length): (u16, u16),
        (identification, flags): (u16, u16),
        source_port: u16,
    ) -> Self {
        Self(
            IPV4_ZEROS
                ^ field(total_length.to_be_bytes(), IPV4_HEADERS - 4)
                ^ field(identification.to_be_bytes(), IPV4_HEADERS - 6)
                ^ field(flags.to_be_bytes(), IPV4_HEADERS - 8)
                ^ field(source.octets(), IPV4_HEADERS - 16)
                ^ field(destination.octets(), IPV4_HEADERS - 20)
                ^ udp(source_port, udp_length),
        )
    }

    /// Over IPv6, without extension headers.
    pub(super) fn ipv6(
        (source, destination): (Ipv6Addr, Ipv6Addr),
        udp_length: u16,
        source_port: u16,
    ) -> Self {
        Self(
            IPV6_ZEROS
                ^ field(udp_length.to_be_bytes(), IPV6_HEADERS - 6)
                ^ field(source.octets(), IPV6_HEADERS - 24)
                ^ field(destination.octets(), IPV6_HEADERS - 40)
                ^ udp(source_port, udp_length),
        )
    }

    /// Goes on over a BTH.
    pub(super) fn then(self, bth: &[u8; Bth::LENGTH]) -> Crc {
        let mut bytes = *bth;
        bytes[CONGESTION_BYTE] = 0xff;
        // The register is what four bytes add that come next.
        let register = self.0.to_le_bytes();
        register.iter().zip(&mut bytes).for_each(|(held, byte)| *byte ^= held);
        Crc::of_register(field(bytes, 0))
    }

    /// The sum so far, for what is too short to have a BTH.
    pub(super) fn crc(self) -> Crc {
        Crc::of_register(self.0)
    }
}

fn udp(source_port: u16, length: u16) -> u32 {
    field(source_port.to_be_bytes(), UDP_LENGTH - 2) ^ field(length.to_be_bytes(), UDP_LENGTH - 6)
}
