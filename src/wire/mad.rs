//! The common header of management datagrams, which queue pairs 0 and 1 exchange.
//!
//! ```text
//!    0       1       2              3
//!   ┌───────┬───────┬──────────────┬────────┐
//!   │ base  │ class │ class version│ method │
//!   ├───────┴───────┼──────────────┴────────┤
//!   │ status        │ class specific        │  4
//!   ├───────────────┴───────────────────────┤
//!   │ transaction                           │  8
//!   ├───────────────┬───────────────────────┤
//!   │ attribute     │ reserved              │ 16
//!   ├───────────────┴───────────────────────┤
//!   │ modifier                              │ 20
//!   └───────────────────────────────────────┘
//! ```

use super::field::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

/// Common header of management datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mad {
    /// 1.
    pub base_version: u8,
    /// Management class; see [`Mad::CONNECTION_MANAGEMENT`].
    pub class: u8,
    /// Version of the class.
    pub class_version: u8,
    /// Method; the top bit marks a response.
    pub method: u8,
    /// Status of a response.
    pub status: u16,
    /// For the class to use.
    pub class_specific: u16,
    /// Ties a response to its request.
    pub transaction: u64,
    /// What is managed: for connection management, the kind of message.
    pub attribute: u16,
    /// Reserved.
    pub reserved: u16,
    /// Selects a part of the attribute.
    pub modifier: u32,
}

impl Mad {
    /// Bytes in the header.
    pub const LENGTH: usize = 24;
    /// Bytes in a whole management datagram.
    pub const DATAGRAM_LENGTH: usize = 256;
    /// Class of connection management.
    pub const CONNECTION_MANAGEMENT: u8 = 7;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self {
            base_version: bytes[0],
            class: bytes[1],
            class_version: bytes[2],
            method: bytes[3],
            status: u16_at(bytes, 4),
            class_specific: u16_at(bytes, 6),
            transaction: u64_at(bytes, 8),
            attribute: u16_at(bytes, 16),
            reserved: u16_at(bytes, 18),
            modifier: u32_at(bytes, 20),
        }
    }

    /// Writes the header.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        bytes[0] = self.base_version;
        bytes[1] = self.class;
        bytes[2] = self.class_version;
        bytes[3] = self.method;
        put_u16(bytes, 4, self.status);
        put_u16(bytes, 6, self.class_specific);
        put_u64(bytes, 8, self.transaction);
        put_u16(bytes, 16, self.attribute);
        put_u16(bytes, 18, self.reserved);
        put_u32(bytes, 20, self.modifier);
    }
}
