//! Writing either format: Ethernet frames with times in nanoseconds.

use std::io::{self, Write};

use super::{Format, LinkType};

/// Bytes that are gathered before they are handed on without being asked for.
const BATCH: usize = 64 * 1024;
/// The snap length of classic files: the most that readers accept.
const SNAP_LENGTH: u32 = 262_144;

/// Writes a capture of Ethernet frames.
///
/// Records are handed on whole and together: after [`Writer::flush`] the file is readable to its
/// end, whatever becomes of the process. Dropping the writer flushes it too, but cannot tell of
/// an error.
#[derive(Debug)]
pub struct Writer<W: Write> {
    write: W,
    format: Format,
    batch: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a capture and writes its header at once.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn new(write: W, format: Format) -> io::Result<Self> {
        Self::named(write, format, "")
    }

    /// The same with the name of the interface that the frames belong to, which only pcapng
    /// keeps. A name of no or over 65535 bytes is left out.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn named(write: W, format: Format, interface: &str) -> io::Result<Self> {
        let mut batch = Vec::with_capacity(BATCH);
        match format {
            Format::Pcap => put_file_header(&mut batch),
            Format::PcapNg => {
                put_section_header(&mut batch);
                put_interface(&mut batch, interface);
            }
        }
        let mut writer = Self { write, format, batch };
        writer.flush()?;
        Ok(writer)
    }

    /// Adds a frame, given in parts that follow one another, captured `time_ns` nanoseconds
    /// after 1970. It is handed on with the next flush, or when enough have gathered.
    ///
    /// # Errors
    /// Those of the underlying writer; [`io::ErrorKind::InvalidInput`] for a frame of more than
    /// 262144 bytes, of which nothing is written.
    pub fn write(&mut self, time_ns: u64, parts: &[&[u8]]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let length = u32::try_from(length).ok().filter(|length| *length <= SNAP_LENGTH);
        let length = length.ok_or_else(|| {
            let reason = "a frame of more than 262144 bytes cannot be captured";
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        })?;
        match self.format {
            Format::Pcap => put_record(&mut self.batch, time_ns, length, parts),
            Format::PcapNg => put_packet(&mut self.batch, time_ns, length, parts),
        }
        if self.batch.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    /// Hands on everything written so far.
    ///
    /// # Errors
    /// Those of the underlying writer. What could not be written is given up, so that an error
    /// is told once and memory stays bounded.
    pub fn flush(&mut self) -> io::Result<()> {
        let written = self.write.write_all(&self.batch);
        self.batch.clear();
        written.and_then(|()| self.write.flush())
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        if !self.batch.is_empty() {
            // Nobody is left to tell; who wants to know calls flush.
            let _ = self.flush();
        }
    }
}

fn put_u16(batch: &mut Vec<u8>, value: u16) {
    batch.extend(value.to_le_bytes());
}

fn put_u32(batch: &mut Vec<u8>, value: u32) {
    batch.extend(value.to_le_bytes());
}

/// Adds `bytes` and zeros up to a multiple of 4.
fn put_padded(batch: &mut Vec<u8>, parts: &[&[u8]]) {
    let start = batch.len();
    for part in parts {
        batch.extend_from_slice(part);
    }
    let length = batch.len() - start;
    batch.resize(start + length.next_multiple_of(4), 0);
}

fn put_file_header(batch: &mut Vec<u8>) {
    const NANOSECONDS: u32 = 0xa1b2_3c4d;
    put_u32(batch, NANOSECONDS);
    put_u16(batch, 2);
    put_u16(batch, 4);
    put_u32(batch, 0);
    put_u32(batch, 0);
    put_u32(batch, SNAP_LENGTH);
    put_u32(batch, LinkType::ETHERNET.0);
}

fn put_record(batch: &mut Vec<u8>, time_ns: u64, length: u32, parts: &[&[u8]]) {
    let seconds = time_ns / 1_000_000_000;
    put_u32(batch, u32::try_from(seconds).unwrap_or(u32::MAX));
    put_u32(batch, (time_ns % 1_000_000_000) as u32);
    put_u32(batch, length);
    put_u32(batch, length);
    for part in parts {
        batch.extend_from_slice(part);
    }
}

/// Adds a block around what `body` writes.
fn put_block(batch: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = batch.len();
    put_u32(batch, kind);
    put_u32(batch, 0);
    body(batch);
    let length = (batch.len() - start + 4) as u32;
    put_u32(batch, length);
    batch[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
}

fn put_option(batch: &mut Vec<u8>, code: u16, value: &[u8]) {
    let Ok(length) = u16::try_from(value.len()) else { return };
    put_u16(batch, code);
    put_u16(batch, length);
    put_padded(batch, &[value]);
}

fn put_section_header(batch: &mut Vec<u8>) {
    const USER_APPLICATION: u16 = 4;
    put_block(batch, 0x0a0d_0d0a, |batch| {
        put_u32(batch, 0x1a2b_3c4d);
        put_u16(batch, 1);
        put_u16(batch, 0);
        // The section's length is not known in advance.
        batch.extend(u64::MAX.to_le_bytes());
        put_option(batch, USER_APPLICATION, b"uroce");
        put_option(batch, 0, &[]);
    });
}

fn put_interface(batch: &mut Vec<u8>, name: &str) {
    const NAME: u16 = 2;
    const TIME_RESOLUTION: u16 = 9;
    put_block(batch, 1, |batch| {
        put_u16(batch, LinkType::ETHERNET.0 as u16);
        put_u16(batch, 0);
        put_u32(batch, 0);
        if !name.is_empty() {
            put_option(batch, NAME, name.as_bytes());
        }
        put_option(batch, TIME_RESOLUTION, &[9]);
        put_option(batch, 0, &[]);
    });
}

fn put_packet(batch: &mut Vec<u8>, time_ns: u64, length: u32, parts: &[&[u8]]) {
    put_block(batch, 6, |batch| {
        put_u32(batch, 0);
        put_u32(batch, (time_ns >> 32) as u32);
        put_u32(batch, time_ns as u32);
        put_u32(batch, length);
        put_u32(batch, length);
        put_padded(batch, parts);
    });
}
