//! The headers that a transport puts before those of the operation: datagram, reliable datagram
//! and extended reliable connection.
//!
//! ```text
//!   DETH                                    RDETH, XRCETH
//!   ┌───────────────────────────────┐       ┌───────┬───────────────────────┐
//!   │ Q_Key                         │       │ res.  │ EE context, or SRQ    │
//!   ├───────┬───────────────────────┤       └───────┴───────────────────────┘
//!   │ res.  │ source queue pair     │
//!   └───────┴───────────────────────┘
//! ```

use super::field::{put_u24, put_u32, u24_at, u32_at};
use super::{QKey, Qpn, Srqn};

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Must equal the receiving queue pair's.
    pub qkey: QKey,
    /// Reserved byte.
    pub reserved: u8,
    /// Queue pair that sent the packet.
    pub source: Qpn,
}

/// Reliable datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rdeth {
    /// Reserved byte.
    pub reserved: u8,
    /// End-to-end context of the receiver, 24 bits.
    pub context: u32,
}

/// Extended reliable connection extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xrceth {
    /// Reserved byte.
    pub reserved: u8,
    /// Shared receive queue that the message is for.
    pub srqn: Srqn,
}

impl Deth {
    /// Bytes in the header.
    pub const LENGTH: usize = 8;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self {
            qkey: QKey::new(u32_at(bytes, 0)),
            reserved: bytes[4],
            source: Qpn::new(u24_at(bytes, 5)),
        }
    }

    /// Writes the header.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        put_u32(bytes, 0, self.qkey.value());
        bytes[4] = self.reserved;
        put_u24(bytes, 5, self.source.value());
    }
}

impl Rdeth {
    /// Bytes in the header.
    pub const LENGTH: usize = 4;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self { reserved: bytes[0], context: u24_at(bytes, 1) }
    }

    /// Writes the header; the context is cut to 24 bits.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        bytes[0] = self.reserved;
        put_u24(bytes, 1, self.context);
    }
}

impl Xrceth {
    /// Bytes in the header.
    pub const LENGTH: usize = 4;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self { reserved: bytes[0], srqn: Srqn::new(u24_at(bytes, 1)) }
    }

    /// Writes the header.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        bytes[0] = self.reserved;
        put_u24(bytes, 1, self.srqn.value());
    }
}
