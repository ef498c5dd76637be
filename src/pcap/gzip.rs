//! Captures compressed by gzip, read as if they were not.

use std::io::{self, Chain, Cursor, Read};

use flate2::read::MultiGzDecoder;

const MAGIC: [u8; 2] = [0x1f, 0x8b];

type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// A reader of plain bytes over a file that may be compressed by gzip, in one or several members.
///
/// What is wrong with the compressed data comes as an error of kind `UnexpectedEof` (cut),
/// `InvalidInput` or `InvalidData` (damaged); all other kinds are the reader's own.
#[derive(Debug)]
pub struct Decompressed<R>(Kind<R>);

#[derive(Debug)]
enum Kind<R> {
    Plain(Whole<R>),
    Gzip(Box<MultiGzDecoder<Whole<R>>>),
}

impl<R: Read> Decompressed<R> {
    /// Reads two bytes to see what the file is.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn new(mut read: R) -> io::Result<Self> {
        let mut magic = Vec::with_capacity(MAGIC.len());
        read.by_ref().take(MAGIC.len() as u64).read_to_end(&mut magic)?;
        let is_gzip = magic == MAGIC;
        let whole = Cursor::new(magic).chain(read);
        Ok(Self(match is_gzip {
            true => Kind::Gzip(Box::new(MultiGzDecoder::new(whole))),
            false => Kind::Plain(whole),
        }))
    }
}

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(read) => read.read(buffer),
            Kind::Gzip(read) => read.read(buffer),
        }
    }
}
