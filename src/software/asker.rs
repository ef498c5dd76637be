//! Somebody who asks a device's attendant: read from and written to without waiting for longer than
//! he deserves, and not at all once the device ends.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use super::report::Line;
use super::{clock, system};
use crate::link::Event;
use crate::time::{Instant, SECOND};

/// Bytes of a question.
const QUESTION: usize = 64;
/// How long a whole question may take, and one write of the answer, in nanoseconds.
const PATIENCE: u64 = SECOND;
/// How long a whole answer may take, in nanoseconds.
const LONGEST_ANSWER: u64 = 10 * SECOND;

/// See the module's text.
pub(super) struct Asker<'a> {
    stream: &'a UnixStream,
    /// Readable once the device ends.
    stop: &'a Event,
    until: Instant,
}

impl<'a> Asker<'a> {
    /// # Errors
    /// The system refuses.
    pub(super) fn new(stream: &'a UnixStream, stop: &'a Event) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, stop, until: clock::now() + LONGEST_ANSWER })
    }

    /// The question: one line, or what comes of it.
    ///
    /// # Errors
    /// It takes too long, or the device ends.
    pub(super) fn question(&self) -> io::Result<String> {
        let until = clock::now() + PATIENCE;
        let mut bytes = Vec::new();
        while bytes.len() < QUESTION && bytes.last() != Some(&b'\n') {
            let mut some = [0; QUESTION];
            let mut stream = self.stream;
            let read = stream.read(&mut some[..QUESTION - bytes.len()]);
            match self.waited(read, libc::POLLIN, until)? {
                Some(0) => break,
                Some(count) => bytes.extend_from_slice(&some[..count]),
                None => {}
            }
        }
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    /// Tells one line.
    ///
    /// # Errors
    /// Nobody reads it in time, or the device ends.
    pub(super) fn line(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let until = self.until.min(clock::now() + PATIENCE);
        let mut rest = &text[..];
        while !rest.is_empty() {
            let mut stream = self.stream;
            let written = stream.write(rest);
            if let Some(count) = self.waited(written, libc::POLLOUT, until)? {
                rest = &rest[count..];
            }
        }
        Ok(())
    }

    /// What a read or write has done; nothing if it shall be tried again, since the stream was not
    /// ready and now may be.
    fn waited(
        &self,
        done: io::Result<usize>,
        wanted: libc::c_short,
        until: Instant,
    ) -> io::Result<Option<usize>> {
        let now = clock::now();
        let mut polls = [
            system::readable(self.stop.descriptor()),
            libc::pollfd { fd: self.stream.as_raw_fd(), events: wanted, revents: 0 },
        ];
        let rest = match done {
            // Who goes on a byte at a time gets no more time for it.
            Ok(count) if now <= until => return Ok(Some(count)),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => system::until(now, until).filter(|rest| *rest > 0),
        };
        let rest = rest.ok_or(io::ErrorKind::TimedOut)?;
        system::sleep_on(&mut polls, Some(rest));
        if polls[0].revents != 0 {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(None)
    }
}
