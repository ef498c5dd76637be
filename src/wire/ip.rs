//! IPv4 and IPv6 headers, every bit of them, and the Internet checksum.
//!
//! ```text
//!   IPv4                                      IPv6
//!   ┌─┬─┬───┬───────┐ version, IHL, TOS, len  ┌─┬────┬────────┐ version, class, flow label
//!   ├───────┼───────┤ identification, flags   ├───────┬──┬────┤ payload length, next, hops
//!   ├───┬───┼───────┤ TTL, protocol, checksum │ source        │ 16
//!   │ source        │ 4                       │ destination   │ 16
//!   │ destination   │ 4                       └───────────────┘
//!   │ options       │ 0 to 40
//!   └───────────────┘
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use super::field::{put_u16, put_u32, u16_at, u32_at};
use super::message::{room, take};

/// The IP protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

/// IPv4 header. The header length follows from the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header<'a> {
    /// DSCP (6 bits) and ECN (2 bits): the old TOS.
    pub traffic_class: u8,
    /// Bytes from the start of this header to the end of the payload.
    pub total_length: u16,
    /// Identification.
    pub identification: u16,
    /// Reserved bit, DF, MF (3 bits) and fragment offset (13 bits).
    pub flags: u16,
    /// Time to live.
    pub hop_limit: u8,
    /// What follows.
    pub protocol: u8,
    /// Header checksum as it stands in the packet; see [`Ipv4Header::computed_checksum`].
    pub checksum: u16,
    /// Sender's address.
    pub source: Ipv4Addr,
    /// Receiver's address.
    pub destination: Ipv4Addr,
    /// Options with their padding, 0 to 40 bytes, a multiple of 4.
    pub options: &'a [u8],
}

impl<'a> Ipv4Header<'a> {
    /// Bytes in the header without options.
    pub const LENGTH: usize = 20;
    /// Bytes in the longest header.
    pub const MAX_LENGTH: usize = 60;

    /// Reads the header and returns what follows it; nothing if `bytes` end inside it, the
    /// version is not 4 or the header length is under 20.
    pub fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut rest = bytes;
        let fixed: &[u8; Ipv4Header::LENGTH] = take(&mut rest)?;
        if fixed[0] >> 4 != 4 {
            return None;
        }
        let options = (usize::from(fixed[0] & 0x0f) * 4).checked_sub(Self::LENGTH)?;
        let (options, payload) = rest.split_at_checked(options)?;
        let header = Self {
            traffic_class: fixed[1],
            total_length: u16_at(fixed, 2),
            identification: u16_at(fixed, 4),
            flags: u16_at(fixed, 6),
            hop_limit: fixed[8],
            protocol: fixed[9],
            checksum: u16_at(fixed, 10),
            source: Ipv4Addr::from_bits(u32_at(fixed, 12)),
            destination: Ipv4Addr::from_bits(u32_at(fixed, 16)),
            options,
        };
        Some((header, payload))
    }

    /// Bytes in the header, 20 to 60.
    pub fn length(&self) -> usize {
        Self::LENGTH + self.options.len()
    }

    /// Whether the packet is a part of a larger one.
    pub fn is_fragment(&self) -> bool {
        const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;
        self.flags & MORE_FRAGMENTS_AND_OFFSET != 0
    }

    /// Writes the header, with its checksum as the field says, to the front of `buffer` and
    /// returns its length.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`Ipv4Header::length`], or the options are over 40 bytes or no
    /// multiple of 4.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let length = self.length();
        assert!(
            length <= Self::MAX_LENGTH && length.is_multiple_of(4),
            "{length} bytes of IPv4 header"
        );
        let mut rest = buffer;
        let fixed: &mut [u8; Ipv4Header::LENGTH] = room(&mut rest);
        fixed[0] = 0x40 | (length / 4) as u8;
        fixed[1] = self.traffic_class;
        put_u16(fixed, 2, self.total_length);
        put_u16(fixed, 4, self.identification);
        put_u16(fixed, 6, self.flags);
        fixed[8] = self.hop_limit;
        fixed[9] = self.protocol;
        put_u16(fixed, 10, self.checksum);
        put_u32(fixed, 12, self.source.to_bits());
        put_u32(fixed, 16, self.destination.to_bits());
        rest[..self.options.len()].copy_from_slice(self.options);
        length
    }

    /// The right header checksum, whatever the field says.
    ///
    /// # Panics
    /// If the options are over 40 bytes or no multiple of 4.
    pub fn computed_checksum(&self) -> u16 {
        let mut bytes = [0; Self::MAX_LENGTH];
        let length = Self { checksum: 0, ..*self }.emit(&mut bytes);
        internet_checksum(&bytes[..length])
    }
}

/// The Internet checksum (RFC 1071) of `bytes`; an odd last byte counts as followed by 0. Of a
/// header with a right checksum in it the result is 0.
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    let (words, odd) = bytes.as_chunks::<2>();
    for word in words {
        sum += u64::from(u16::from_be_bytes(*word));
    }
    for byte in odd {
        sum += u64::from(*byte) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// IPv6 header. Its version is always 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after this header.
    pub payload_length: u16,
    /// What follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Sender's address.
    pub source: Ipv6Addr,
    /// Receiver's address.
    pub destination: Ipv6Addr,
}

impl Ipv6Header {
    /// Bytes in the header.
    pub const LENGTH: usize = 40;

    /// Reads the header; nothing if the version is not 6.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Option<Self> {
        let first = u32_at(bytes, 0);
        (first >> 28 == 6).then(|| Self {
            traffic_class: (first >> 20 & 0xff) as u8,
            flow_label: first & 0x000f_ffff,
            payload_length: u16_at(bytes, 4),
            next_header: bytes[6],
            hop_limit: bytes[7],
            source: address_at(bytes, 8),
            destination: address_at(bytes, 24),
        })
    }

    /// Writes the header; the flow label is cut to 20 bits.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        let class = u32::from(self.traffic_class) << 20;
        put_u32(bytes, 0, 6 << 28 | class | (self.flow_label & 0x000f_ffff));
        put_u16(bytes, 4, self.payload_length);
        bytes[6] = self.next_header;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.source.octets());
        bytes[24..40].copy_from_slice(&self.destination.octets());
    }
}

/// The 16 bytes at `at`.
pub(super) fn address_at(bytes: &[u8; 40], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|index| bytes[at + index]))
}
