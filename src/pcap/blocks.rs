//! The block format, pcapng.
//!
//! ```text
//!   ┌──────┬────────┬──────┬─────────┬────────┐
//!   │ type │ length │ body │ options │ length │   section header │ interface │ packet │ …
//!   └──────┴────────┴──────┴─────────┴────────┘
//! ```
//!
//! Blocks are cut out here, whole and of checked length, before anything in them is parsed.

use std::io::Read;

use pcap_parser::pcapng::{
    Block, EnhancedPacketBlock, InterfaceDescriptionBlock, SimplePacketBlock, parse_block_be,
    parse_block_le,
};
use pcap_parser::{OptionCode, PcapNGOption};

use super::reader::MAX_PACKET;
use super::source::Source;
use super::time::{Resolution, Timestamp};
use super::{Interface, LinkType, ReadError, Record};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
/// Written by old programs in place of the enhanced packet.
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// Type, length and length again.
const FRAME: usize = 12;
/// A packet and room for its options.
const MAX_BLOCK: usize = MAX_PACKET + 64 * 1024;
/// Bytes of an interface's name that are kept: all interfaces are, whatever their number, and a name
/// may have 64 KiB.
const MAX_NAME: usize = 256;
/// More interfaces than this are taken for damage.
const MAX_INTERFACES: usize = 65_536;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self == Self::Big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self == Self::Big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn i64(self, bytes: &[u8]) -> Option<i64> {
        let bytes = *bytes.first_chunk()?;
        Some(if self == Self::Big { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) })
    }
}

/// How an interface counts time.
#[derive(Clone, Copy, Debug)]
struct Clock {
    resolution: Resolution,
    offset: i64,
}

/// What a packet block says, whichever kind it is.
struct Found<'s> {
    /// Number within the section.
    interface: usize,
    ticks: Option<u64>,
    original_length: u32,
    data: &'s [u8],
}

#[derive(Debug)]
pub(super) struct Blocks {
    order: Order,
    interfaces: Vec<Interface>,
    clocks: Vec<Clock>,
    /// Interfaces of earlier sections.
    section_start: usize,
}

impl Blocks {
    /// Reads the first section header; its type has arrived.
    pub(super) fn new(source: &mut Source<impl Read>) -> Result<Self, ReadError> {
        let mut blocks = Self {
            order: Order::Little,
            interfaces: Vec::new(),
            clocks: Vec::new(),
            section_start: 0,
        };
        blocks.begin_section(source)?;
        Ok(blocks)
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    pub(super) fn next<'s>(
        &mut self,
        source: &'s mut Source<impl Read>,
    ) -> Result<Option<Record<'s>>, ReadError> {
        loop {
            if !source.fill(1)? {
                return Ok(None);
            }
            source.need(8)?;
            let kind = self.order.u32(source.available(), 0).unwrap_or_default();
            match kind {
                SECTION_HEADER => self.begin_section(source)?,
                INTERFACE_DESCRIPTION => self.describe_interface(source)?,
                SIMPLE_PACKET | ENHANCED_PACKET | OBSOLETE_PACKET => {
                    return self.packet(kind, source).map(Some);
                }
                _ => self.skip(source)?,
            }
        }
    }

    /// The length of the next block, checked for what holds of every block.
    fn length(&self, source: &Source<impl Read>) -> Result<usize, ReadError> {
        let length = self.order.u32(source.available(), 4).unwrap_or_default() as usize;
        if length < FRAME || !length.is_multiple_of(4) {
            return Err(damage(source.offset(), "a block length that cannot be"));
        }
        Ok(length)
    }

    /// The next block, whole; both its lengths agree.
    fn whole<'s>(&self, source: &'s mut Source<impl Read>) -> Result<&'s [u8], ReadError> {
        let (offset, length) = (source.offset(), self.length(source)?);
        if length > MAX_BLOCK {
            return Err(damage(offset, "a block longer than a packet of 4 MiB"));
        }
        source.need(length)?;
        let block = source.take(length);
        if self.order.u32(block, length - 4) != Some(length as u32) {
            return Err(damage(offset, "a block whose two lengths differ"));
        }
        Ok(block)
    }

    /// Passes a block that says nothing about packets.
    fn skip(&self, source: &mut Source<impl Read>) -> Result<(), ReadError> {
        let (offset, length) = (source.offset(), self.length(source)?);
        let at_block = |error| match error {
            ReadError::Cut { .. } => ReadError::Cut { offset },
            other => other,
        };
        source.skip(length - 4).map_err(at_block)?;
        source.need(4).map_err(at_block)?;
        if self.order.u32(source.take(4), 0) != Some(length as u32) {
            return Err(damage(offset, "a block whose two lengths differ"));
        }
        Ok(())
    }

    fn begin_section(&mut self, source: &mut Source<impl Read>) -> Result<(), ReadError> {
        const MAGIC: u32 = 0x1a2b_3c4d;
        source.need(FRAME)?;
        let offset = source.offset();
        self.order = match Order::Little.u32(source.available(), 8) {
            Some(MAGIC) => Order::Little,
            Some(magic) if magic == MAGIC.swap_bytes() => Order::Big,
            _ => return Err(damage(offset, "a section header without byte-order magic")),
        };
        let block = self.whole(source)?;
        let Some(Block::SectionHeader(section)) = parse(self.order, block) else {
            return Err(damage(offset, "a section header"));
        };
        if section.major_version != 1 {
            return Err(damage(offset, "a section of an unknown version"));
        }
        self.section_start = self.interfaces.len();
        Ok(())
    }

    fn describe_interface(&mut self, source: &mut Source<impl Read>) -> Result<(), ReadError> {
        let offset = source.offset();
        let block = self.whole(source)?;
        let Some(Block::InterfaceDescription(description)) = parse(self.order, block) else {
            return Err(damage(offset, "an interface description"));
        };
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(damage(offset, "more than 65536 interfaces"));
        }
        self.interfaces.push(interface(&description));
        self.clocks.push(clock(self.order, &description.options));
        Ok(())
    }

    fn packet<'s>(
        &self,
        kind: u32,
        source: &'s mut Source<impl Read>,
    ) -> Result<Record<'s>, ReadError> {
        let offset = source.offset();
        let block = self.whole(source)?;
        let found = match (kind, parse(self.order, block)) {
            (OBSOLETE_PACKET, _) => obsolete(self.order, block),
            (_, Some(Block::EnhancedPacket(packet))) => enhanced(&packet),
            (_, Some(Block::SimplePacket(packet))) => self.simple(&packet),
            _ => None,
        };
        let found = found.ok_or_else(|| damage(offset, "a packet block"))?;
        let index = self.section_start + found.interface;
        let (Some(interface), Some(clock)) = (self.interfaces.get(index), self.clocks.get(index))
        else {
            return Err(damage(offset, "a packet of an interface that was not described"));
        };
        let time = found.ticks.map(|ticks| Timestamp::new(ticks, clock.resolution, clock.offset));
        Ok(Record {
            time,
            interface: index,
            link_type: interface.link_type,
            original_length: found.original_length,
            data: found.data,
        })
    }

    /// A simple packet has no captured length: it follows from the first interface's limit.
    fn simple<'s>(&self, packet: &SimplePacketBlock<'s>) -> Option<Found<'s>> {
        let limit = self.interfaces.get(self.section_start).map_or(0, |first| first.snap_length);
        let limit = if limit == 0 { u32::MAX } else { limit };
        let captured = packet.origlen.min(limit) as usize;
        let (interface, ticks, original_length) = (0, None, packet.origlen);
        Some(Found { interface, ticks, original_length, data: packet.data.get(..captured)? })
    }
}

fn damage(offset: u64, what: &'static str) -> ReadError {
    ReadError::Damaged { offset, what }
}

fn parse(order: Order, block: &[u8]) -> Option<Block<'_>> {
    let parsed = if order == Order::Big { parse_block_be(block) } else { parse_block_le(block) };
    parsed.ok().map(|(_, block)| block)
}

fn interface(description: &InterfaceDescriptionBlock<'_>) -> Interface {
    let name = value(&description.options, OptionCode::IfName);
    let name = name.map(|name| &name[..name.len().min(MAX_NAME)]);
    let name = name.map(|name| String::from_utf8_lossy(name).into_owned());
    let link_type = LinkType(description.linktype.0 as u32);
    Interface { name, link_type, snap_length: description.snaplen }
}

/// Read from the raw options: the parser's own values are little-endian whatever the section is,
/// and have no resolution for powers of two.
fn clock(order: Order, options: &[PcapNGOption<'_>]) -> Clock {
    let resolution = value(options, OptionCode::IfTsresol).and_then(<[u8]>::first);
    let offset = value(options, OptionCode::IfTsoffset).and_then(|bytes| order.i64(bytes));
    Clock {
        resolution: resolution
            .map_or(Resolution::MICROSECONDS, |value| Resolution::from_option(*value)),
        offset: offset.unwrap_or(0),
    }
}

/// The bytes of the first option of a kind, without padding.
fn value<'o>(options: &'o [PcapNGOption<'_>], code: OptionCode) -> Option<&'o [u8]> {
    let option = options.iter().find(|option| option.code == code)?;
    option.value.get(..usize::from(option.len))
}

fn enhanced<'s>(packet: &EnhancedPacketBlock<'s>) -> Option<Found<'s>> {
    Some(Found {
        interface: packet.if_id as usize,
        ticks: Some(u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low)),
        original_length: packet.origlen,
        data: packet.data.get(..packet.caplen as usize)?,
    })
}

/// Interface and dropped packets (16 bits each), time, captured and original length, packet.
fn obsolete(order: Order, block: &[u8]) -> Option<Found<'_>> {
    let ticks_high = order.u32(block, 12)?;
    let ticks_low = order.u32(block, 16)?;
    let captured = order.u32(block, 20)? as usize;
    let body = block.get(28..block.len() - 4)?;
    Some(Found {
        interface: usize::from(order.u16(block, 8)?),
        ticks: Some(u64::from(ticks_high) << 32 | u64::from(ticks_low)),
        original_length: order.u32(block, 24)?,
        data: body.get(..captured)?,
    })
}
