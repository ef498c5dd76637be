//! The ceiling: the same datagrams over plain UDP sockets, without any protocol.
//!
//! The sockets have the options of those that the device has. A stream is not held back by any
//! window: what the receiver cannot take is lost, and does not count. Who waits polls, or with
//! `--events` sleeps in the kernel.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::Duration;

use socket2::SockRef;
use uroce::software::clock;
use uroce::verbs::Context;

use super::asker::{Moved, Times, Until};
use super::plan::{Exchange, batch};
use super::system::set_option;
use crate::cli::output::Failure;

/// More than the largest merged datagrams.
const BUFFER: usize = 1 << 16;
/// As the device's sending sockets have it.
const SEND_BUFFER: libc::c_int = 4 << 20;
/// As the device's receiving sockets have it unless told otherwise.
const RECEIVE_BUFFER: usize = 4 << 20;
/// How long a sleep in the kernel lasts at most.
const NAP: Duration = Duration::from_millis(5);
/// A round trip of bare datagrams that takes longer has lost one.
const LOST: u64 = 10_000_000_000;

/// A bare socket.
pub(super) struct Raw {
    socket: UdpSocket,
    buffer: Vec<u8>,
}

/// What a receiver of a stream has counted.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, serde::Serialize)]
pub(super) struct Arrived {
    pub(super) bytes: u64,
    /// From the first arrival to the last.
    pub(super) nanoseconds: u64,
}

/// The bare sockets' options.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawOptions {
    pub(super) address: IpAddr,
    /// The interface's number, for link-local addresses.
    pub(super) scope: u32,
    pub(super) receive_buffer: Option<usize>,
    pub(super) events: bool,
}

impl RawOptions {
    /// As the device has them.
    pub(super) fn of(
        context: &Context,
        receive_buffer: Option<usize>,
        events: bool,
    ) -> Result<Self, Failure> {
        let address = context.gid(0)?.address();
        let interface = uroce::host::interface_of(address);
        let scope = interface.map_or(0, |interface| interface.index);
        Ok(Self { address, scope, receive_buffer, events })
    }

    fn bound_to(&self, address: IpAddr, port: u16) -> SocketAddr {
        match address {
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                SocketAddrV6::new(address, port, 0, self.scope).into()
            }
            address => SocketAddr::new(address, port),
        }
    }
}

impl Raw {
    /// A socket at the device's address.
    pub(super) fn open(options: &RawOptions) -> Result<Self, Failure> {
        let told = |error: io::Error| {
            Failure::usage(format!(
                "cannot open a UDP socket on {} for the ceiling: {error}; --no-raw leaves it out",
                options.address
            ))
        };
        let socket = UdpSocket::bind(options.bound_to(options.address, 0)).map_err(told)?;
        Self::prepare(&socket, options).map_err(told)?;
        Ok(Self { socket, buffer: vec![0; BUFFER] })
    }

    fn prepare(socket: &UdpSocket, options: &RawOptions) -> io::Result<()> {
        let (level, name, value) = match options.address {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            IpAddr::V6(_) => {
                (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
            }
        };
        set_option(socket, level, name, value)?;
        // Kernels without it give one datagram at a time, as they do to the device.
        let _ = set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        let bytes = options.receive_buffer.unwrap_or(RECEIVE_BUFFER);
        let forced = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, forced).is_err() {
            SockRef::from(socket).set_recv_buffer_size(bytes)?;
        }
        if set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER).is_err() {
            SockRef::from(socket).set_send_buffer_size(SEND_BUFFER as usize)?;
        }
        socket.set_nonblocking(!options.events)?;
        socket.set_read_timeout(Some(NAP))
    }

    /// The port that it receives on.
    pub(super) fn port(&self) -> Result<u16, Failure> {
        Ok(self.socket.local_addr()?.port())
    }

    /// From now on a send is cut into datagrams of so many bytes.
    fn cut(&self, segment: usize) -> Result<(), Failure> {
        let told = |error: io::Error| {
            Failure::usage(format!(
                "the kernel does not cut sends into datagrams (UDP_SEGMENT): {error}; --no-raw \
                 leaves the ceiling out"
            ))
        };
        set_option(&self.socket, libc::SOL_UDP, libc::UDP_SEGMENT, segment as libc::c_int)
            .map_err(told)
    }

    /// Sends datagrams as fast as the socket takes them. Returns how many, and the time it took.
    pub(super) fn stream(
        &mut self,
        options: &RawOptions,
        peer: (IpAddr, u16),
        segment: usize,
        until: Until,
    ) -> Result<Moved, Failure> {
        self.cut(segment)?;
        let to = options.bound_to(peer.0, peer.1);
        let most = batch(segment) as u64;
        let (start, mut sent) = (clock::now(), 0);
        while until.goes_on(start, sent) {
            let count = match until {
                Until::Count(all) => most.min(all - sent),
                Until::Time(_) => most,
            };
            self.send(&to, segment * count as usize)?;
            sent += count;
        }
        Ok(Moved { messages: sent, nanoseconds: clock::now().since(start) })
    }

    /// Hands bytes to the kernel, and again for as long as it has no room.
    fn send(&self, to: &SocketAddr, length: usize) -> Result<(), Failure> {
        loop {
            match self.socket.send_to(&self.buffer[..length], to) {
                Ok(_) => return Ok(()),
                Err(error) if is_busy(&error) => std::hint::spin_loop(),
                Err(error) => return Err(Failure::usage(format!("cannot send to {to}: {error}"))),
            }
        }
    }

    /// Receives once, without waiting or for a nap.
    fn receive(&mut self) -> Result<Option<(usize, SocketAddr)>, Failure> {
        match self.socket.recv_from(&mut self.buffer) {
            Ok(arrived) => Ok(Some(arrived)),
            Err(error) if is_busy(&error) => Ok(None),
            Err(error) => Err(Failure::usage(format!("cannot receive: {error}"))),
        }
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
            let Some((length, from)) = self.receive()? else {
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

    fn send_all(&self, to: &SocketAddr, exchange: Exchange, total: usize) -> Result<(), Failure> {
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
        options: &RawOptions,
        peer: (IpAddr, u16),
        exchange: Exchange,
        until: Until,
        times: &mut Times,
    ) -> Result<Moved, Failure> {
        self.cut(exchange.segment)?;
        let to = options.bound_to(peer.0, peer.1);
        let mut moved = Moved::default();
        let start = clock::now();
        let mut before = start;
        while until.goes_on(start, moved.messages) {
            self.send_all(&to, exchange, exchange.request)?;
            self.await_reply(exchange.reply)?;
            let now = clock::now();
            times.add(now.since(before));
            before = now;
            moved.messages += 1;
        }
        moved.nanoseconds = before.since(start);
        Ok(moved)
    }

    fn await_reply(&mut self, length: usize) -> Result<(), Failure> {
        let (sent, mut had) = (clock::now(), 0);
        while had < length {
            match self.receive()? {
                Some((arrived, _)) => had += arrived,
                None if clock::now().since(sent) > LOST => {
                    return Err(Failure::bad(
                        "the bare UDP socket has lost a datagram of a round trip; --no-raw leaves \
                         the ceiling out",
                    ));
                }
                None => std::hint::spin_loop(),
            }
        }
        Ok(())
    }
}

/// The kernel has no room, or nothing to give.
fn is_busy(error: &io::Error) -> bool {
    let kinds = [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(libc::ENOBUFS)
}
