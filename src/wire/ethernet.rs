//! Ethernet header with up to two VLAN tags.
//!
//! ```text
//!   ┌─────────────┬────────┬──────────────────────────┬───────────┐
//!   │ destination │ source │ (protocol, tag) 0 to 2 × │ ethertype │
//!   └─────────────┴────────┴──────────────────────────┴───────────┘
//!    6             6        4 each                     2
//! ```

use super::field::{put_u16, u16_at};
use super::message::{room, take};

/// Ethertype of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Ethertype of RoCEv1: a GRH follows.
pub const ETHERTYPE_ROCE_V1: u16 = 0x8915;

const TAG_PROTOCOLS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// The tag's ethertype: 0x8100, 0x88a8 or 0x9100.
    pub protocol: u16,
    /// Priority code point, 3 bits.
    pub priority: u8,
    /// Drop eligible indicator.
    pub drop_eligible: bool,
    /// VLAN, 12 bits.
    pub id: u16,
}

/// Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Receiver's address.
    pub destination: [u8; 6],
    /// Sender's address.
    pub source: [u8; 6],
    /// VLAN tags, outermost first. A third tag counts as the ethertype and is left alone.
    pub tags: [Option<VlanTag>; 2],
    /// What follows.
    pub ethertype: u16,
}

impl VlanTag {
    /// Bytes in the tag with its protocol.
    pub const LENGTH: usize = 4;

    /// Whether an ethertype is that of a tag.
    pub fn is_protocol(ethertype: u16) -> bool {
        TAG_PROTOCOLS.contains(&ethertype)
    }

    /// Reads a tag with its protocol.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        let tag = u16_at(bytes, 2);
        Self {
            protocol: u16_at(bytes, 0),
            priority: (tag >> 13) as u8,
            drop_eligible: tag & 0x1000 != 0,
            id: tag & 0x0fff,
        }
    }

    fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        put_u16(bytes, 0, self.protocol);
        let priority = u16::from(self.priority & 7) << 13;
        put_u16(bytes, 2, priority | u16::from(self.drop_eligible) << 12 | (self.id & 0x0fff));
    }
}

impl Ethernet {
    /// Bytes in the header without tags.
    pub const LENGTH: usize = 14;

    /// Reads the header and returns what follows it; nothing if `bytes` end inside it.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut rest = bytes;
        let addresses: &[u8; 12] = take(&mut rest)?;
        let mut tags = [None; 2];
        for tag in &mut tags {
            let next = rest.first_chunk::<2>().map(|protocol| u16::from_be_bytes(*protocol));
            if next.is_some_and(VlanTag::is_protocol) {
                *tag = Some(VlanTag::parse(take(&mut rest)?));
            }
        }
        let ethertype = u16::from_be_bytes(*take(&mut rest)?);
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *addresses;
        let destination = [d0, d1, d2, d3, d4, d5];
        let source = [s0, s1, s2, s3, s4, s5];
        Some((Self { destination, source, tags, ethertype }, rest))
    }

    /// Bytes in the header with its tags, 14 to 22.
    pub fn length(&self) -> usize {
        Self::LENGTH + VlanTag::LENGTH * self.tags.iter().flatten().count()
    }

    /// Writes the header to the front of `buffer` and returns its length.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`Ethernet::length`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut rest = buffer;
        *room(&mut rest) = self.destination;
        *room(&mut rest) = self.source;
        for tag in self.tags.iter().flatten() {
            tag.emit(room(&mut rest));
        }
        *room(&mut rest) = self.ethertype.to_be_bytes();
        self.length()
    }
}
