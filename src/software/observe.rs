//! Looking at the devices of running processes from outside.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::attendant::PREFIX;
use super::report::{DeviceReport, Line, PairReport};
use super::{clock, system};
use crate::time::{Instant, SECOND};

/// How long a device may take to begin, and from then on for each part. It answers one at a time.
const PATIENCE: Duration = Duration::from_secs(12);
/// How long a whole answer may take, in nanoseconds: longer than a device takes for one.
const LONGEST_TIME: u64 = 30 * SECOND;
/// Bytes of the longest line that a device sends, by far: who sends more is none.
const LONGEST_LINE: u64 = 1 << 20;
/// Bytes of the longest answer, of as many queue pairs as a device can have.
const LONGEST_ANSWER: u64 = 1 << 28;
/// Flag of a socket that listens, in the kernel's list.
const LISTENING: u32 = 0x1_0000;

/// A device of a running process that can be asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Observed {
    /// The process's number.
    pub process: u32,
    /// The program's name; empty if the process cannot be looked up.
    pub program: String,
    /// The device's name as the socket has it: without characters that do not show, and with `#2`
    /// for the second of the same name.
    pub device: String,
    socket: String,
}

/// What to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The device alone.
    Device,
    /// The device and all queue pairs.
    All,
    /// The device and this queue pair.
    QueuePair(u32),
}

/// Why a device did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// It could not be reached, or stopped in the middle.
    #[error("device {device} of process {process} does not answer: {error}")]
    Silent {
        /// Process.
        process: u32,
        /// Device.
        device: String,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// It answers its own user and root only.
    #[error(
        "device {device} of process {process} belongs to another user (id {user}), and answers only \
         to that one and to root: run this with sudo"
    )]
    Foreign {
        /// Process.
        process: u32,
        /// Device.
        device: String,
        /// Whose it is.
        user: u32,
    },
    /// The answer was none.
    #[error(
        "device {device} of process {process} gave no sensible answer ({why}): is it of another \
         version?"
    )]
    Nonsense {
        /// Process.
        process: u32,
        /// Device.
        device: String,
        /// What was wrong.
        why: String,
    },
}

/// The devices of all processes in the calling thread's network namespace, by process and name.
///
/// # Errors
/// The kernel's list of sockets cannot be read.
pub fn observable() -> io::Result<Vec<Observed>> {
    let list = fs::read_to_string("/proc/thread-self/net/unix")?;
    let mut found: Vec<Observed> = list.lines().filter_map(observed).collect();
    found.sort();
    found.dedup();
    Ok(found)
}

/// One line of the kernel's list: `Num: RefCount Protocol Flags Type St Inode @name`.
fn observed(line: &str) -> Option<Observed> {
    let mut fields = line.split_ascii_whitespace();
    let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
    let socket = fields.nth(3)?.strip_prefix('@')?;
    let (process, device) = socket.strip_prefix(PREFIX)?.split_once('-')?;
    let process = process.parse().ok()?;
    (flags & LISTENING != 0).then(|| Observed {
        process,
        program: program_of(process),
        device: showing(device),
        socket: socket.to_owned(),
    })
}

fn program_of(process: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    showing(name.trim_end())
}

/// A name that another process has chosen, without what would do something to a terminal.
fn showing(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
}

/// Reads an answer for as long as one may take, whoever gives it and however slowly.
struct Hearing {
    stream: UnixStream,
    until: Instant,
}

impl Hearing {
    fn new(stream: UnixStream) -> Self {
        Self { stream, until: clock::now() + LONGEST_TIME }
    }
}

impl Read for Hearing {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = Duration::from_nanos(self.until - clock::now());
        if left.is_zero() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.stream.set_read_timeout(Some(left.min(PATIENCE)))?;
        self.stream.read(bytes)
    }
}

/// The next line of an answer; nothing at its end.
fn next_line(answer: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let count = answer.take(LONGEST_LINE).read_line(&mut line)?;
    if count as u64 == LONGEST_LINE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer does not end"));
    }
    Ok((count > 0).then_some(line))
}

impl Observed {
    /// Asks the device. Queue pairs come one by one, since there may be many.
    ///
    /// # Errors
    /// [`ObserveError`].
    pub fn ask(
        &self,
        question: Question,
        mut each: impl FnMut(PairReport),
    ) -> Result<DeviceReport, ObserveError> {
        let stream = self.connect(question)?;
        let mut device = None;
        let mut answer = BufReader::new(Hearing::new(stream).take(LONGEST_ANSWER));
        while let Some(line) = next_line(&mut answer).map_err(|error| self.silent(error))? {
            let line: Line =
                serde_json::from_str(&line).map_err(|error| self.nonsense(&error.to_string()))?;
            match line {
                Line::Device(report) => device = Some(report.showing(showing)),
                Line::QueuePair(report) => each(report.showing(showing)),
                Line::Refused(why) => return Err(self.nonsense(&showing(&why))),
                Line::End => return device.ok_or_else(|| self.nonsense("no device")),
            }
        }
        Err(self.silent(io::ErrorKind::UnexpectedEof.into()))
    }

    fn connect(&self, question: Question) -> Result<UnixStream, ObserveError> {
        let open = || -> io::Result<(UnixStream, u32)> {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            // Connecting waits too, for who listens and takes nobody.
            socket.set_write_timeout(Some(PATIENCE))?;
            socket.connect(&SockAddr::unix(format!("\0{}", self.socket))?)?;
            let stream = UnixStream::from(OwnedFd::from(socket));
            let user = system::peer_user(stream.as_fd())?;
            Ok((stream, user))
        };
        let (mut stream, user) = open().map_err(|error| self.silent(error))?;
        let own = system::effective_user();
        if own != 0 && user != own {
            let (process, device) = (self.process, self.device.clone());
            return Err(ObserveError::Foreign { process, device, user });
        }
        let text = match question {
            Question::Device => "device\n".to_owned(),
            Question::All => "all\n".to_owned(),
            Question::QueuePair(number) => format!("qp {number}\n"),
        };
        let asked =
            stream.write_all(text.as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write));
        asked.map_err(|error| self.silent(error))?;
        Ok(stream)
    }

    fn silent(&self, error: io::Error) -> ObserveError {
        let error = match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::TimedOut, "it took too long; is it stopped?")
            }
            _ => error,
        };
        let (process, device) = (self.process, self.device.clone());
        ObserveError::Silent { process, device, error }
    }

    fn nonsense(&self, why: &str) -> ObserveError {
        let (process, device, why) = (self.process, self.device.clone(), why.to_owned());
        ObserveError::Nonsense { process, device, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_of_devices_are_found_in_the_kernels_list() {
        let line = |flags: &str, name: &str| {
            format!("0000000000000000: 00000002 00000000 {flags} 0001 01 1234 {name}")
        };
        let found = observed(&line("00010000", "@uroce-counters-1234567890-a-b#2")).unwrap();
        assert_eq!((found.process, found.device.as_str()), (1_234_567_890, "a-b#2"));
        for other in [
            line("00000000", "@uroce-counters-12-lo"),
            line("00010000", "uroce-counters-12-lo"),
            line("00010000", "@uroce-counters-lo"),
            line("00010000", "@uroce-counters-x-lo"),
            line("00010000", ""),
            "Num       RefCount Protocol Flags    Type St Inode Path".to_owned(),
        ] {
            assert_eq!(observed(&other), None, "{other}");
        }
    }
}
