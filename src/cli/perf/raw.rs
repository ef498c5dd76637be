//! The ceiling: the same datagrams over plain UDP sockets, without any protocol.
//!
//! The sockets have the options of those that the device has. A stream is not held back by any
//! window: what the receiver cannot take is lost, and does not count. Who waits polls, or with
//! `--events` sleeps in the kernel.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::time::Duration;

use socket2::SockAddr;
use uroce::link::{BareSocket, UdpOptions};
use uroce::software::clock;
use uroce::verbs::Context;

use super::asker::{Moved, Times, Until};
use super::plan::{Exchange, batch};
use crate::cli::output::Failure;

/// More than the largest merged datagrams.
const BUFFER: usize = 1 << 16;
/// How long a sleep in the kernel lasts at most.
const NAP: Duration = Duration::from_millis(5);
/// A round trip of bare datagrams that takes longer has lost one.
const LOST: u64 = 10_000_000_000;

/// Looks at the socket between two at the clock and the other end.
const LOOKS: u32 = 1024;

/// A bare socket.
pub(super) struct Raw {
    socket: BareSocket,
    /// What is sent, whose content does not matter.
    bytes: Vec<u8>,
    /// Who receives sleeps in the kernel.
    naps: bool,
}

/// Sees whether the other end is still there.
pub(super) type Look<'l> = &'l dyn Fn() -> Result<(), Failure>;

/// What a receiver of a stream has counted.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, serde::Serialize)]
pub(super) struct Arrived {
    pub(super) bytes: u64,
    /// From the first arrival to the last.
    pub(super) nanoseconds: u64,
}

impl Raw {
    /// A socket at the device's address, with the options of the device's own.
    pub(super) fn open(
        context: &Context,
        receive_buffer: Option<usize>,
        events: bool,
    ) -> Result<Self, Failure> {
        let address = context.gid(0)?.address();
        let interface = uroce::host::interface_of(address);
        let mut options = UdpOptions::new(address, interface.as_ref().map_or(0, |found| found.mtu));
        options.receive_buffer = receive_buffer.unwrap_or(options.receive_buffer);
        options.scope = interface.map_or(0, |interface| interface.index);
        let socket = BareSocket::open(options, events.then_some(NAP)).map_err(|error| {
            Failure::usage(format!("no ceiling: {error}; --no-raw leaves the ceiling out"))
        })?;
        Ok(Self { socket, bytes: vec![0; BUFFER], naps: events })
    }

    /// The port that it receives on.
    pub(super) fn port(&self) -> Result<u16, Failure> {
        Ok(self.socket.port()?)
    }

    /// From now on a send is cut into datagrams of so many bytes.
    fn cut(&self, segment: usize) -> Result<(), Failure> {
        let told = |error: io::Error| {
            Failure::usage(format!(
                "the kernel does not cut sends into datagrams (UDP_SEGMENT): {error}; --no-raw \
                 leaves the ceiling out"
            ))
        };
        self.socket.cut(u16::try_from(segment).unwrap_or(u16::MAX)).map_err(told)
    }

    /// Sends datagrams as fast as the socket takes them. Returns how many, and the time it took.
    pub(super) fn stream(
        &mut self,
        peer: (IpAddr, u16),
        segment: usize,
        until: Until,
        look: Look<'_>,
    ) -> Result<Moved, Failure> {
        self.cut(segment)?;
        let to = self.socket.destination(peer.0, peer.1);
        let most = batch(segment) as u64;
        let (start, mut sent) = (clock::now(), 0);
        while until.goes_on(start, sent) {
            let count = match until {
                Until::Count(all) => most.min(all - sent),
                Until::Time(_) => most,
            };
            self.send(&to, segment * count as usize)?;
            look()?;
            sent += count;
        }
        Ok(Moved { messages: sent, nanoseconds: clock::now().since(start) })
    }

    /// Hands bytes to the kernel, and again for as long as it has no room.
    fn send(&self, to: &SockAddr, length: usize) -> Result<(), Failure> {
        loop {
            match self.socket.send(&self.bytes[..length], to) {
                Ok(()) => return Ok(()),
                Err(error) if is_busy(&error) => std::hint::spin_loop(),
                Err(error) => return Err(Failure::usage(format!("cannot send: {error}"))),
            }
        }
    }

    /// Receives once, without waiting or for a nap. Returns how many bytes, and where an answer goes.
    fn receive(&mut self) -> Result<Option<(usize, Option<SockAddr>)>, Failure> {
        let received = self.socket.receive();
        let received =
            received.map_err(|error| Failure::usage(format!("cannot receive: {error}")))?;
        Ok(received.map(|(bytes, source)| (bytes.len(), source.map(SockAddr::from))))
    }

    /// Receives a stream until `stopped`, and then what still waits.
    pub(super) fn sink(
        &mut self,
        mut stopped: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<Arrived, Failure> {
        let mut arrived = Arrived::default();
        let (mut first, mut last) = (None, clock::now());
        loop {
            // What was sent before the end was told has arrived before it.
            let was_stopped = stopped()?;
            while let Some((length, _)) = self.receive()? {
                last = clock::now();
                first.get_or_insert(last);
                arrived.bytes += length as u64;
            }
            if was_stopped {
                arrived.nanoseconds = last.since(first.unwrap_or(last));
                return Ok(arrived);
            }
        }
    }

    /// Answers each request until `stopped`.
    pub(super) fn echo(
        &mut self,
        exchange: Exchange,
        mut stopped: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        self.cut(exchange.segment)?;
        let mut had = 0;
        while !stopped()? {
            let Some((length, Some(from))) = self.receive()? else {
                std::hint::spin_loop();
                continue;
            };
            had += length;
            if had >= exchange.request {
                had = 0;
                self.send_all(&from, exchange, exchange.reply)?;
            }
        }
        Ok(())
    }

    fn send_all(&self, to: &SockAddr, exchange: Exchange, total: usize) -> Result<(), Failure> {
        let most = batch(exchange.segment) * exchange.segment;
        let mut left = total;
        while left > 0 {
            let length = most.min(left);
            self.send(to, length)?;
            left -= length;
        }
        Ok(())
    }

    /// Round trips, one after another; the time of each is added to `times`.
    pub(super) fn ping(
        &mut self,
        peer: (IpAddr, u16),
        exchange: Exchange,
        until: Until,
        times: &mut Times,
        look: Look<'_>,
    ) -> Result<Moved, Failure> {
        self.cut(exchange.segment)?;
        let to = self.socket.destination(peer.0, peer.1);
        let mut moved = Moved::default();
        let start = clock::now();
        let mut before = start;
        while until.goes_on(start, moved.messages) {
            self.send_all(&to, exchange, exchange.request)?;
            self.await_reply(exchange.reply, look)?;
            let now = clock::now();
            times.add(now.since(before));
            before = now;
            moved.messages += 1;
        }
        moved.nanoseconds = before.since(start);
        Ok(moved)
    }

    fn await_reply(&mut self, length: usize, look: Look<'_>) -> Result<(), Failure> {
        let (mut sent, mut had, mut looks) = (None, 0, 0u32);
        while had < length {
            if let Some((arrived, _)) = self.receive()? {
                had += arrived;
                continue;
            }
            looks = looks.wrapping_add(1);
            if self.naps || looks.is_multiple_of(LOOKS) {
                look()?;
                let now = clock::now();
                if now.since(*sent.get_or_insert(now)) > LOST {
                    return Err(Failure::bad(
                        "the bare UDP socket has lost a datagram of a round trip, or the other end \
                         stands still; --no-raw leaves the ceiling out",
                    ));
                }
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// The kernel has no room.
fn is_busy(error: &io::Error) -> bool {
    let kinds = [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(libc::ENOBUFS)
}
