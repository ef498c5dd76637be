//! RDMA extended transport header: where a WRITE, READ, ATOMIC WRITE or FLUSH goes.
//!
//! ```text
//!    0       8           12          16
//!   ┌───────┬───────────┬───────────┐
//!   │address│ R_Key     │ length    │
//!   └───────┴───────────┴───────────┘
//! ```

use super::Rkey;
use super::field::{put_u32, put_u64, u32_at, u64_at};

mod at {
    pub(super) const ADDRESS: usize = 0;
    pub(super) const KEY: usize = 8;
    pub(super) const LENGTH: usize = 12;
}

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// First byte, as the responder's region names it.
    pub address: u64,
    /// Key of the responder's region or window.
    pub key: Rkey,
    /// Bytes of the whole message, at most 2^31.
    pub length: u32,
}

impl Reth {
    /// Bytes in the header.
    pub const LENGTH: usize = 16;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self {
            address: u64_at(bytes, at::ADDRESS),
            key: Rkey::new(u32_at(bytes, at::KEY)),
            length: u32_at(bytes, at::LENGTH),
        }
    }

    /// Writes the header.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        put_u64(bytes, at::ADDRESS, self.address);
        put_u32(bytes, at::KEY, self.key.value());
        put_u32(bytes, at::LENGTH, self.length);
    }
}
