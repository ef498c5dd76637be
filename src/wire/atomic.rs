//! Atomic extended transport header.
//!
//! ```text
//!    0       8           12          20          28
//!   ┌───────┬───────────┬───────────┬───────────┐
//!   │address│ R_Key     │ swap, add │ compare   │
//!   └───────┴───────────┴───────────┴───────────┘
//! ```
//!
//! The answer's AtomicAckETH is one 64-bit number, the value before, and has no type of its own.

use super::Rkey;
use super::field::{put_u32, put_u64, u32_at, u64_at};

mod at {
    pub(super) const ADDRESS: usize = 0;
    pub(super) const KEY: usize = 8;
    pub(super) const SWAP_OR_ADD: usize = 12;
    pub(super) const COMPARE: usize = 20;
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// The eight bytes, as the responder's region names them; must be a multiple of 8.
    pub address: u64,
    /// Key of the responder's region or window.
    pub key: Rkey,
    /// Value to store (compare and swap) or to add (fetch and add).
    pub swap_or_add: u64,
    /// Value to compare with; without meaning for fetch and add.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes in the header.
    pub const LENGTH: usize = 28;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self {
            address: u64_at(bytes, at::ADDRESS),
            key: Rkey::new(u32_at(bytes, at::KEY)),
            swap_or_add: u64_at(bytes, at::SWAP_OR_ADD),
            compare: u64_at(bytes, at::COMPARE),
        }
    }

    /// Writes the header.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        put_u64(bytes, at::ADDRESS, self.address);
        put_u32(bytes, at::KEY, self.key.value());
        put_u64(bytes, at::SWAP_OR_ADD, self.swap_or_add);
        put_u64(bytes, at::COMPARE, self.compare);
    }
}
