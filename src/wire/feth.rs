//! FLUSH extended transport header.
//!
//! ```text
//!    31                        6   5 4           3 2 1 0
//!   ┌──────────────────────────┬─────────────┬───────────┐
//!   │ reserved                 │ selectivity │ placement │
//!   └──────────────────────────┴─────────────┴───────────┘
//! ```

use super::field::{put_u32, u32_at};

/// FLUSH extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feth {
    /// 26 reserved bits.
    pub reserved: u32,
    /// 2 bits: [`Feth::RANGE`], [`Feth::REGION`], or a reserved value.
    pub selectivity: u8,
    /// 4 bits, any union of [`Feth::GLOBAL_VISIBILITY`] and [`Feth::PERSISTENCE`].
    pub placement: u8,
}

impl Feth {
    /// Bytes in the header.
    pub const LENGTH: usize = 4;
    /// Selectivity: the range that the RETH names.
    pub const RANGE: u8 = 0;
    /// Selectivity: the whole region that the RETH's key names.
    pub const REGION: u8 = 1;
    /// Placement: earlier writes become visible to every reader.
    pub const GLOBAL_VISIBILITY: u8 = 1;
    /// Placement: earlier writes survive a loss of power.
    pub const PERSISTENCE: u8 = 2;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        let word = u32_at(bytes, 0);
        Self {
            reserved: word >> 6,
            selectivity: (word >> 4 & 3) as u8,
            placement: (word & 0x0f) as u8,
        }
    }

    /// Writes the header; fields are cut to their widths.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        let selectivity = u32::from(self.selectivity & 3) << 4;
        let placement = u32::from(self.placement & 0x0f);
        put_u32(bytes, 0, self.reserved << 6 | selectivity | placement);
    }
}
