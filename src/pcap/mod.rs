//! Capture files, read and written: pcap and pcapng. Bytes only; whoever opens files is above.
//!
//! ```text
//!   io::Read ─► Source (whole records, bounded memory) ─► classic │ blocks ─► Record
//!   frames   ─► Writer (whole records) ─► io::Write
//! ```
//!
//! A damaged or cut file gives every record before the damage and then one error. No length in a
//! file is believed before that many bytes have arrived.

#![forbid(unsafe_code)]

mod blocks;
mod classic;
mod gzip;
mod reader;
mod source;
mod time;
mod writer;

pub use gzip::Decompressed;
pub use reader::{Format, Interface, LinkType, ReadError, Reader, Record};
pub use time::Timestamp;
pub use writer::Writer;
