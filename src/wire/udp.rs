//! UDP header.
//!
//! ```text
//!   ┌─────────────┬──────────────────┬────────┬──────────┐
//!   │ source port │ destination port │ length │ checksum │
//!   └─────────────┴──────────────────┴────────┴──────────┘
//! ```

use super::field::{put_u16, u16_at};

/// UDP header. The checksum is kept as it stands: many senders leave it 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// Sender's port.
    pub source_port: u16,
    /// Receiver's port.
    pub destination_port: u16,
    /// Bytes of header and payload.
    pub length: u16,
    /// Checksum; 0 means none.
    pub checksum: u16,
}

impl UdpHeader {
    /// Bytes in the header.
    pub const LENGTH: usize = 8;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self {
            source_port: u16_at(bytes, 0),
            destination_port: u16_at(bytes, 2),
            length: u16_at(bytes, 4),
            checksum: u16_at(bytes, 6),
        }
    }

    /// Writes the header.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        put_u16(bytes, 0, self.source_port);
        put_u16(bytes, 2, self.destination_port);
        put_u16(bytes, 4, self.length);
        put_u16(bytes, 6, self.checksum);
    }
}
