//! Global route header: the network header of RoCEv1 and of routed InfiniBand, and the 40 bytes
//! before a received datagram. Laid out as an IPv6 header.
//!
//! ```text
//!   ┌─┬────┬────────────┐ version 6, traffic class, flow label
//!   ├───────────┬───┬───┤ payload length, next header 0x1b, hop limit
//!   │ SGID              │ 16
//!   │ DGID              │ 16
//!   └───────────────────┘
//! ```

use std::net::Ipv6Addr;

use super::field::{put_u16, put_u32, u16_at, u32_at};
use super::ip::address_at;

/// Global route header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// 6.
    pub version: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes from the BTH to the ICRC.
    pub payload_length: u16,
    /// [`Grh::NEXT_HEADER`].
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Sender's GID.
    pub source: Ipv6Addr,
    /// Receiver's GID.
    pub destination: Ipv6Addr,
}

impl Grh {
    /// Bytes in the header.
    pub const LENGTH: usize = 40;
    /// The next header that stands for a BTH.
    pub const NEXT_HEADER: u8 = 0x1b;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        let first = u32_at(bytes, 0);
        Self {
            version: (first >> 28) as u8,
            traffic_class: (first >> 20 & 0xff) as u8,
            flow_label: first & 0x000f_ffff,
            payload_length: u16_at(bytes, 4),
            next_header: bytes[6],
            hop_limit: bytes[7],
            source: address_at(bytes, 8),
            destination: address_at(bytes, 24),
        }
    }

    /// Writes the header; fields are cut to their widths.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        let version = u32::from(self.version) << 28;
        let class = u32::from(self.traffic_class) << 20;
        put_u32(bytes, 0, version | class | (self.flow_label & 0x000f_ffff));
        put_u16(bytes, 4, self.payload_length);
        bytes[6] = self.next_header;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.source.octets());
        bytes[24..40].copy_from_slice(&self.destination.octets());
    }
}
