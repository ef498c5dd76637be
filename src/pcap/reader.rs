//! Reading either format.

use std::fmt;
use std::io::{self, Read};

use super::blocks::Blocks;
use super::classic::Classic;
use super::source::Source;
use super::time::Timestamp;

/// The longest packet that is believed; segmentation offload makes 64 KiB, jumbograms are not
/// captured. Longer ones are taken for damage.
pub(super) const MAX_PACKET: usize = 4 * 1024 * 1024;

/// The two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pcap: one interface, one resolution.
    Pcap,
    /// pcapng: sections, interfaces, options.
    PcapNg,
}

/// What the bytes of a record begin with, a number of the registry at tcpdump.org.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkType(pub u32);

impl LinkType {
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// An IPv4 or IPv6 header at once.
    pub const RAW: Self = Self(101);
    /// Endace's extensible record format, which carries Ethernet or InfiniBand.
    pub const ERF: Self = Self(197);
    /// Linux "cooked" capture, as of the interface `any`.
    pub const LINUX_SLL: Self = Self(113);
    /// The same, second version.
    pub const LINUX_SLL2: Self = Self(276);
    /// Native InfiniBand: a local route header at once.
    pub const INFINIBAND: Self = Self(247);
}

impl fmt::Debug for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkType({})", self.0)
    }
}

/// An interface that packets were captured on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, if the file tells.
    pub name: Option<String>,
    /// What its packets begin with.
    pub link_type: LinkType,
    /// The most bytes kept of a packet; 0 means no limit.
    pub snap_length: u32,
}

/// A captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When; pcapng's simple packets have no time.
    pub time: Option<Timestamp>,
    /// Position in [`Reader::interfaces`]; counted over all sections of the file.
    pub interface: usize,
    /// What the bytes begin with.
    pub link_type: LinkType,
    /// Bytes in the packet on the wire. More than `data` has if the capture cut it.
    pub original_length: u32,
    /// The bytes kept.
    pub data: &'a [u8],
}

/// Why no more records come from a file. All records given before are whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is no byte at all.
    #[error("the file is empty: a capture begins with a header even if it has no packets")]
    Empty,
    /// It begins like no capture.
    #[error("neither pcap nor pcapng: it begins with {}", hexadecimal(.0))]
    NotACapture([u8; 4]),
    /// It begins like a compressed file.
    #[error("a compressed file: decompress it first, with `gunzip`, `unzstd` or the like")]
    Compressed,
    /// It ends inside a header or a record.
    #[error("cut: {}", where_cut(*.offset))]
    Cut {
        /// First byte of what is not whole.
        offset: u64,
    },
    /// Something in it cannot be.
    #[error("damaged at byte {offset}: {what}")]
    Damaged {
        /// First byte of the damaged header, record or block.
        offset: u64,
        /// What cannot be.
        what: &'static str,
    },
    /// The reader failed.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

fn where_cut(offset: u64) -> String {
    match offset {
        0 => "the file ends inside its first header".to_owned(),
        _ => {
            format!("the file ends inside what begins at byte {offset}; what lies before is whole")
        }
    }
}

/// Whether a file begins as gzip, zstd, xz, bzip2 or lz4 make it.
fn is_compressed(bytes: &[u8]) -> bool {
    let magics: [&[u8]; 5] = [
        &[0x1f, 0x8b],
        &[0x28, 0xb5, 0x2f, 0xfd],
        &[0xfd, b'7', b'z', b'X'],
        b"BZh",
        &[0x04, 0x22, 0x4d, 0x18],
    ];
    magics.iter().any(|magic| bytes.starts_with(magic))
}

fn hexadecimal(bytes: &[u8; 4]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(" ")
}

/// Reads records one after another from either format.
///
/// ```
/// use uroce::pcap::{Format, Reader, Writer};
///
/// let mut file = Vec::new();
/// Writer::new(&mut file, Format::PcapNg)?.write(1_000, &[b"a frame"])?;
///
/// let mut reader = Reader::new(file.as_slice())?;
/// while let Some(record) = reader.next() {
///     assert_eq!(record?.data, b"a frame");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    layout: Layout,
    /// Nothing follows: the file has ended or an error was given.
    finished: bool,
}

#[derive(Debug)]
enum Layout {
    Classic(Classic),
    Blocks(Blocks),
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of a capture and finds out which format it is. Reads no more than is
    /// there, so that a pipe from a running capture works.
    ///
    /// # Errors
    /// If it is no capture, or its header is cut or damaged.
    pub fn new(read: R) -> Result<Self, ReadError> {
        let mut source = Source::new(read);
        if !source.fill(1)? {
            return Err(ReadError::Empty);
        }
        source.need(4)?;
        let layout = match source.available() {
            [0x0a, 0x0d, 0x0d, 0x0a, ..] => Layout::Blocks(Blocks::new(&mut source)?),
            bytes if is_compressed(bytes) => return Err(ReadError::Compressed),
            _ => Layout::Classic(Classic::new(&mut source)?),
        };
        Ok(Self { source, layout, finished: false })
    }

    /// Which format the file has.
    pub fn format(&self) -> Format {
        match self.layout {
            Layout::Classic(_) => Format::Pcap,
            Layout::Blocks(_) => Format::PcapNg,
        }
    }

    /// The interfaces seen so far; pcapng describes them as they come to be used.
    pub fn interfaces(&self) -> &[Interface] {
        match &self.layout {
            Layout::Classic(classic) => std::slice::from_ref(classic.interface()),
            Layout::Blocks(blocks) => blocks.interfaces(),
        }
    }

    /// The next record, which lies in the reader's buffer. Nothing at the end of the file and
    /// after an error.
    // Not an iterator: a record borrows from the reader.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Result<Record<'_>, ReadError>> {
        if self.finished {
            return None;
        }
        // Set until it is known that the file goes on, because the record below keeps `self`
        // borrowed to the end.
        self.finished = true;
        let record = match &mut self.layout {
            Layout::Classic(classic) => classic.next(&mut self.source),
            Layout::Blocks(blocks) => blocks.next(&mut self.source),
        };
        self.finished = !matches!(record, Ok(Some(_)));
        record.transpose()
    }
}
