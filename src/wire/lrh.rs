//! Local route header: the link header of native InfiniBand.
//!
//! ```text
//!   ┌────┬─────────┬────┬──────────┬─────┬──────────────────┐
//!   │ VL │ version │ SL │ reserved │ LNH │ DLID             │
//!   ├────┴────┬────┴────┴──────────┴─────┼──────────────────┤
//!   │ reserved│ packet length (words)    │ SLID             │
//!   └─────────┴──────────────────────────┴──────────────────┘
//! ```

use super::field::{put_u16, u16_at};

/// Local route header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lrh {
    /// Virtual lane, 4 bits. Not covered by the ICRC.
    pub virtual_lane: u8,
    /// Link version, 4 bits.
    pub version: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// 2 reserved bits.
    pub reserved: u8,
    /// 2 bits: [`Lrh::NEXT_BTH`], [`Lrh::NEXT_GRH`], or raw (0 and 1).
    pub next_header: u8,
    /// Receiver's local identifier.
    pub destination: u16,
    /// 5 reserved bits before the length.
    pub reserved_before_length: u8,
    /// 11 bits: 4-byte words from this header to the ICRC, both included.
    pub length: u16,
    /// Sender's local identifier.
    pub source: u16,
}

impl Lrh {
    /// Bytes in the header.
    pub const LENGTH: usize = 8;
    /// Next header: a BTH.
    pub const NEXT_BTH: u8 = 2;
    /// Next header: a GRH.
    pub const NEXT_GRH: u8 = 3;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        let length = u16_at(bytes, 4);
        Self {
            virtual_lane: bytes[0] >> 4,
            version: bytes[0] & 0x0f,
            service_level: bytes[1] >> 4,
            reserved: bytes[1] >> 2 & 3,
            next_header: bytes[1] & 3,
            destination: u16_at(bytes, 2),
            reserved_before_length: (length >> 11) as u8,
            length: length & 0x07ff,
            source: u16_at(bytes, 6),
        }
    }

    /// Writes the header; fields are cut to their widths.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        bytes[0] = self.virtual_lane << 4 | (self.version & 0x0f);
        bytes[1] = self.service_level << 4 | (self.reserved & 3) << 2 | (self.next_header & 3);
        put_u16(bytes, 2, self.destination);
        let reserved = u16::from(self.reserved_before_length) << 11;
        put_u16(bytes, 4, reserved | (self.length & 0x07ff));
        put_u16(bytes, 6, self.source);
    }
}
