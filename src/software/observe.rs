//! Looking at the devices of running processes from outside.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use super::attendant::PREFIX;
use super::report::{DeviceReport, Line, PairReport};
use super::system;

/// How long a device may take for its next line. It answers one at a time.
const PATIENCE: Duration = Duration::from_secs(12);
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
        "device {device} of process {process} gave no sensible answer ({why}): is it of another version?"
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
        device: device.to_owned(),
        socket: socket.to_owned(),
    })
}

fn program_of(process: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
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
        for line in BufReader::new(stream).lines() {
            let line = line.map_err(|error| self.silent(error))?;
            let line: Line =
                serde_json::from_str(&line).map_err(|error| self.nonsense(&error.to_string()))?;
            match line {
                Line::Device(report) => device = Some(report),
                Line::QueuePair(report) => each(report),
                Line::Refused(why) => return Err(self.nonsense(&why)),
                Line::End => return device.ok_or_else(|| self.nonsense("no device")),
            }
        }
        Err(self.silent(io::ErrorKind::UnexpectedEof.into()))
    }

    fn connect(&self, question: Question) -> Result<UnixStream, ObserveError> {
        let open = || -> io::Result<(UnixStream, u32)> {
            let address = SocketAddr::from_abstract_name(&self.socket)?;
            let stream = UnixStream::connect_addr(&address)?;
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
        let asked = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.write_all(text.as_bytes()))
            .and_then(|()| stream.shutdown(Shutdown::Write));
        asked.map_err(|error| self.silent(error))?;
        Ok(stream)
    }

    fn silent(&self, error: io::Error) -> ObserveError {
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
