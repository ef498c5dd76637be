//! The classic format.
//!
//! ```text
//!   magic, version, zone, figures, snap length, link type │ (header, packet) …
//!   24 bytes                                              │ 16 bytes each, or 24
//! ```

use std::io::Read;

use pcap_parser::{LegacyPcapBlock, PcapHeader, pcap};

use super::reader::MAX_PACKET;
use super::source::Source;
use super::time::{Resolution, Timestamp};
use super::{Interface, LinkType, ReadError, Record};

/// The field's top bits tell of a frame check sequence.
const LINK_TYPE_BITS: u32 = 0x03ff_ffff;

#[derive(Debug)]
pub(super) struct Classic {
    header: PcapHeader,
    resolution: Resolution,
    interface: Interface,
}

impl Classic {
    /// Reads the file header; 4 bytes have arrived.
    pub(super) fn new(source: &mut Source<impl Read>) -> Result<Self, ReadError> {
        let mut magic = [0; 4];
        magic.copy_from_slice(source.take(4));
        let mut bytes = [0; 24];
        bytes[..4].copy_from_slice(&magic);
        // Only the magic decides whether it is a capture; a short file that is none says so.
        if pcap::parse_pcap_header(&bytes).is_err() {
            return Err(ReadError::NotACapture(magic));
        }
        if !source.fill(20)? {
            return Err(ReadError::Cut { offset: 0 });
        }
        bytes[4..].copy_from_slice(source.take(20));
        let damaged = |_| ReadError::Damaged { offset: 0, what: "the file header" };
        let (_, header) = pcap::parse_pcap_header(&bytes).map_err(damaged)?;
        let resolution = if header.is_nanosecond_precision() {
            Resolution::NANOSECONDS
        } else {
            Resolution::MICROSECONDS
        };
        let link_type = LinkType(header.network.0 as u32 & LINK_TYPE_BITS);
        let interface = Interface { name: None, link_type, snap_length: header.snaplen };
        Ok(Self { header, resolution, interface })
    }

    pub(super) fn interface(&self) -> &Interface {
        &self.interface
    }

    pub(super) fn next<'s>(
        &self,
        source: &'s mut Source<impl Read>,
    ) -> Result<Option<Record<'s>>, ReadError> {
        if !source.fill(1)? {
            return Ok(None);
        }
        let offset = source.offset();
        let header_length = if self.header.is_modified_format() { 24 } else { 16 };
        source.need(header_length)?;
        let captured = self.captured_length(source.available());
        if captured > MAX_PACKET {
            return Err(ReadError::Damaged { offset, what: "a packet longer than 4 MiB" });
        }
        source.need(header_length + captured)?;
        let packet = self.parse(source.take(header_length + captured));
        let packet = packet.ok_or(ReadError::Damaged { offset, what: "a record header" })?;
        Ok(Some(self.record(&packet)))
    }

    fn captured_length(&self, header: &[u8]) -> usize {
        let bytes = header.get(8..12).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
        let length = match self.header.is_bigendian() {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        };
        length as usize
    }

    fn parse<'s>(&self, bytes: &'s [u8]) -> Option<LegacyPcapBlock<'s>> {
        let parsed = match (self.header.is_modified_format(), self.header.is_bigendian()) {
            (true, _) => pcap::parse_pcap_frame_modified(bytes),
            (false, true) => pcap::parse_pcap_frame_be(bytes),
            (false, false) => pcap::parse_pcap_frame(bytes),
        };
        parsed.ok().map(|(_, packet)| packet)
    }

    fn record<'s>(&self, packet: &LegacyPcapBlock<'s>) -> Record<'s> {
        let (ticks, seconds) = (u64::from(packet.ts_usec), i64::from(packet.ts_sec));
        Record {
            time: Some(Timestamp::new(ticks, self.resolution, seconds)),
            interface: 0,
            link_type: self.interface.link_type,
            original_length: packet.origlen,
            data: packet.data,
        }
    }
}
