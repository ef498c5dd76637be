//! Bytes from any reader, as many at once as a record needs.

use std::io::{self, ErrorKind, Read};

use super::ReadError;

/// The least that is asked of the reader at once.
const CHUNK: usize = 64 * 1024;

/// A reader with a window on its coming bytes. The window grows as bytes arrive, never because a
/// length was read.
#[derive(Debug)]
pub(super) struct Source<R> {
    read: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of the file before `start`.
    offset: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(read: R) -> Self {
        Self { read, buffer: vec![0; CHUNK], start: 0, end: 0, offset: 0 }
    }

    /// Bytes passed so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that have arrived, of those not passed.
    pub(super) fn available(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Waits for `length` bytes. Whether they came; if not, the file ends before.
    pub(super) fn fill(&mut self, length: usize) -> io::Result<bool> {
        while self.end - self.start < length {
            if self.buffer.len() - self.end < CHUNK.min(length) {
                self.make_room();
            }
            match self.read.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Moves what is left to the front, and if that leaves under a chunk, adds one.
    fn make_room(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() - self.end < CHUNK {
            self.buffer.resize(self.end + CHUNK, 0);
        }
    }

    /// Waits for `length` bytes that belong to a record.
    pub(super) fn need(&mut self, length: usize) -> Result<(), ReadError> {
        match self.fill(length)? {
            true => Ok(()),
            false => Err(ReadError::Cut { offset: self.offset }),
        }
    }

    /// The next `length` bytes, which [`Source::need`] has waited for, and passes them.
    pub(super) fn take(&mut self, length: usize) -> &[u8] {
        let start = self.start;
        self.pass(length);
        &self.buffer[start..start + length]
    }

    fn pass(&mut self, length: usize) {
        self.start += length;
        self.offset += length as u64;
    }

    /// Passes `length` bytes without keeping them.
    pub(super) fn skip(&mut self, length: usize) -> Result<(), ReadError> {
        let begin = self.offset;
        let mut left = length;
        while left > 0 {
            if !self.fill(left.min(CHUNK))? {
                return Err(ReadError::Cut { offset: begin });
            }
            let step = left.min(self.end - self.start);
            self.pass(step);
            left -= step;
        }
        Ok(())
    }
}
