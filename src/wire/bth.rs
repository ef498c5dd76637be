//! Base transport header.
//!
//! ```text
//!    0               1               2               3
//!   ┌───────────────┬─┬─┬───┬───────┬───────────────────────────────┐
//!   │ opcode        │S│M│pad│version│ P_Key                         │
//!   ├─┬─┬───────────┼─┴─┴───┴───────┴───────────────────────────────┤
//!   │F│B│ reserved  │ destination queue pair                        │
//!   ├─┼─┴───────────┼───────────────────────────────────────────────┤
//!   │A│ reserved    │ packet sequence number                        │
//!   └─┴─────────────┴───────────────────────────────────────────────┘
//!   S solicited event, M MigReq, F FECN, B BECN, A acknowledge request
//! ```

use super::field::{put_u16, put_u24, u16_at, u24_at};
use super::{PKey, Psn, Qpn};

mod at {
    pub(super) const OPCODE: usize = 0;
    pub(super) const FLAGS: usize = 1;
    pub(super) const P_KEY: usize = 2;
    pub(super) const CONGESTION: usize = 4;
    pub(super) const DESTINATION: usize = 5;
    pub(super) const ACKNOWLEDGE: usize = 8;
    pub(super) const PSN: usize = 9;
}

/// Base transport header, every bit of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Operation, as a byte because not every byte is known; see [`super::Opcode`].
    pub opcode: u8,
    /// Solicited event: the receiver wakes who waits for solicited completions.
    pub solicited: bool,
    /// MigReq: the path's migration state is "migrated".
    pub migration: bool,
    /// Pad bytes after the payload, 0 to 3.
    pub pad: u8,
    /// Transport version, 4 bits; only 0 exists.
    pub version: u8,
    /// Partition key.
    pub pkey: PKey,
    /// Forward congestion notification. Not covered by the ICRC.
    pub fecn: bool,
    /// Backward congestion notification. Not covered by the ICRC.
    pub becn: bool,
    /// Six reserved bits after BECN; real equipment sets them. Not covered by the ICRC.
    pub reserved: u8,
    /// Queue pair that receives the packet.
    pub destination: Qpn,
    /// The requester asks for an acknowledgement.
    pub ack_request: bool,
    /// Seven reserved bits after AckReq.
    pub reserved_after_ack: u8,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes in the header.
    pub const LENGTH: usize = 12;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        let flags = bytes[at::FLAGS];
        let congestion = bytes[at::CONGESTION];
        let acknowledge = bytes[at::ACKNOWLEDGE];
        Self {
            opcode: bytes[at::OPCODE],
            solicited: flags & 0x80 != 0,
            migration: flags & 0x40 != 0,
            pad: flags >> 4 & 3,
            version: flags & 0x0f,
            pkey: PKey::new(u16_at(bytes, at::P_KEY)),
            fecn: congestion & 0x80 != 0,
            becn: congestion & 0x40 != 0,
            reserved: congestion & 0x3f,
            destination: Qpn::new(u24_at(bytes, at::DESTINATION)),
            ack_request: acknowledge & 0x80 != 0,
            reserved_after_ack: acknowledge & 0x7f,
            psn: Psn::new(u24_at(bytes, at::PSN)),
        }
    }

    /// Writes the header; fields are cut to their widths.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        bytes[at::OPCODE] = self.opcode;
        bytes[at::FLAGS] = u8::from(self.solicited) << 7
            | u8::from(self.migration) << 6
            | (self.pad & 3) << 4
            | (self.version & 0x0f);
        put_u16(bytes, at::P_KEY, self.pkey.value());
        bytes[at::CONGESTION] =
            u8::from(self.fecn) << 7 | u8::from(self.becn) << 6 | (self.reserved & 0x3f);
        put_u24(bytes, at::DESTINATION, self.destination.value());
        bytes[at::ACKNOWLEDGE] = u8::from(self.ack_request) << 7 | (self.reserved_after_ack & 0x7f);
        put_u24(bytes, at::PSN, self.psn.value());
    }
}
