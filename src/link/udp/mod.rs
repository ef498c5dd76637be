//! RoCEv2 over UDP sockets: no privilege, any kernel, and the fastest link of all where the
//! kernel cuts and merges bursts.
//!
//! ```text
//!    engine's bursts ─► slots ─► socket by source port ─► sendmmsg, UDP_SEGMENT ──► network
//!    engine          ◄─ buffers ◄─ socket on port 4791 ◄─ recvmmsg, UDP_GRO ◄────── network
//! ```
//!
//! The sender must know the IPv4 header that the kernel will write, because the ICRC covers it.
//! An unconnected socket with path MTU discovery PROBE sets DF and identification 0; datagrams
//! that the kernel cut from one burst count up from 0. A receiver cannot see either.

mod bare;
mod control;
mod group;
mod holder;
mod icmp;
mod open;
mod receive;
mod send;
mod sender;
mod sys;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use socket2::Socket;

use self::receive::{Datagram, ReceiveBatch};
use self::send::{Cut, MAX_BURST_BYTES, MAX_SEGMENTS};
use self::sender::Sender;
use super::{JoinError, Link, LinkStatistics, is_sendable};
use crate::engine::{IdentificationRule, Port, PortCapabilities, SourcePorts, UnreachableKind};
use crate::wire::{Flow, Identification, ReceivedBurst, SentBurst};

pub use self::bare::BareSocket;
pub use self::group::{GroupSockets, open_group_socket};
pub use self::holder::PortHolder;
pub use self::open::{UdpError, UdpOptions};
pub use self::sys::ReceiveQueue;

/// Bytes in one call that say that much is waiting, as a full batch does.
const MUCH: usize = 64 * 1024;
/// The largest IP packet, whatever the interface says.
const MAX_MTU: usize = 65_535;

/// A link over UDP sockets of one address.
pub struct UdpLink {
    options: UdpOptions,
    capabilities: PortCapabilities,
    receiver: Option<Receiver>,
    groups: GroupSockets<Socket>,
    sender: Sender,
    descriptors: Vec<RawFd>,
    statistics: LinkStatistics,
}

struct Receiver {
    socket: Socket,
    batch: ReceiveBatch,
    coalescing: bool,
    /// The socket's own count of drops when it was last told.
    dropped: u32,
    /// The queue was more than half full when a call that took much out of it had ended.
    is_pressed: bool,
}

impl UdpLink {
    /// Opens the sockets. All are non-blocking and close-on-exec.
    ///
    /// # Errors
    /// [`UdpError`], which says what to do.
    pub fn open(options: UdpOptions) -> Result<Self, UdpError> {
        // The receiver last: joining those who share the port is not done in vain.
        let sender = Sender::open(&options)?;
        let receiver = options.receive.then(|| Receiver::open(&options)).transpose()?;
        let capabilities = PortCapabilities {
            mtu: options.mtu.min(MAX_MTU),
            max_segments: MAX_SEGMENTS,
            max_burst_bytes: MAX_BURST_BYTES,
            identification: match sender.cut {
                Cut::ByKernel => IdentificationRule::ZeroPlusIndex,
                Cut::ByUs => IdentificationRule::Zero,
            },
            source_ports: SourcePorts::Only(sender.ports.clone()),
        };
        let descriptors = receiver.iter().map(|receiver| receiver.socket.as_raw_fd()).collect();
        let (groups, statistics) = (GroupSockets::default(), LinkStatistics::default());
        Ok(Self { options, capabilities, receiver, groups, sender, descriptors, statistics })
    }

    /// How it was opened.
    pub fn options(&self) -> &UdpOptions {
        &self.options
    }

    /// Whether the kernel cuts bursts into datagrams.
    pub fn segments(&self) -> bool {
        self.sender.cut == Cut::ByKernel
    }

    /// Whether the kernel merges arrivals into bursts.
    pub fn coalesces(&self) -> bool {
        self.receiver.as_ref().is_some_and(|receiver| receiver.coalescing)
    }

    /// The socket on the shared port, for attaching a program that spreads arrivals; nothing if
    /// the link only sends.
    pub fn receive_socket(&self) -> Option<BorrowedFd<'_>> {
        self.receiver.as_ref().map(|receiver| receiver.socket.as_fd())
    }

    /// The sockets that are sent from, with their source ports.
    pub fn send_sockets(&self) -> impl Iterator<Item = (u16, BorrowedFd<'_>)> {
        let sockets = self.sender.sockets.iter();
        self.sender.ports.iter().copied().zip(sockets.map(AsFd::as_fd))
    }

    /// Opens the socket on the shared port of a link that only sends until now.
    ///
    /// # Errors
    /// [`UdpError`]; the link goes on as before.
    pub fn start_receiving(&mut self) -> Result<(), UdpError> {
        if self.receiver.is_none() {
            let receiver = Receiver::open(&self.options)?;
            self.descriptors.push(receiver.socket.as_raw_fd());
            self.receiver = Some(receiver);
        }
        Ok(())
    }

    /// How full the receive queue is; nothing if the link only sends.
    ///
    /// # Errors
    /// What the kernel answers; kernels before 4.12 do not know the question.
    pub fn receive_queue(&self) -> io::Result<Option<ReceiveQueue>> {
        self.receive_socket().map(sys::receive_queue).transpose()
    }

    /// Takes over a burst from the engine, or counts it as refused.
    fn accept(&mut self, burst: SentBurst) {
        let socket = self.sender.socket_of(burst.flow.source_port);
        match socket.filter(|_| is_sendable(&burst, &self.capabilities)) {
            Some(socket) => {
                let destination =
                    self.options.socket_address(burst.flow.destination, self.options.port);
                self.sender.batch.push(burst, socket, self.sender.cut, destination);
            }
            None => {
                debug_assert!(false, "the engine made a burst that breaks the port's limits");
                self.statistics.refused += burst.packets() as u64;
            }
        }
    }
}

impl Receiver {
    fn open(options: &UdpOptions) -> Result<Self, UdpError> {
        let opened = open::receive_socket(options)?;
        Ok(Self {
            socket: opened.socket,
            batch: ReceiveBatch::new(),
            coalescing: opened.coalescing,
            dropped: 0,
            is_pressed: false,
        })
    }

    /// Notes whether the queue is more than half full. Asking costs a system call, so it is done only
    /// where so much was waiting that this hardly counts.
    fn look(&mut self, was_deep: bool) {
        self.is_pressed = was_deep
            && sys::receive_queue(self.socket.as_fd())
                .is_ok_and(|queue| queue.used > queue.limit / 2);
    }

    /// Adds the drops that the kernel tells of to `overflowed`.
    fn note_drops(&mut self, index: usize, overflowed: &mut u64) {
        if let Some(dropped) = self.batch.datagram(index).control.dropped {
            *overflowed += u64::from(dropped.wrapping_sub(self.dropped));
            self.dropped = dropped;
        }
    }
}

impl Port for UdpLink {
    fn capabilities(&self) -> &PortCapabilities {
        &self.capabilities
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        // A flood to a group, which anybody can send, must leave room for connections.
        let mut packets = self.groups.receive(budget.div_ceil(2), |_| true, sink);
        let Some(receiver) = &mut self.receiver else { return packets };
        let (mut bytes, mut more) = (0, true);
        while more && packets < budget {
            let count;
            (count, more) = receiver.batch.fetch(receiver.socket.as_fd(), budget - packets);
            for index in 0..count {
                receiver.note_drops(index, &mut self.statistics.overflowed);
                let datagram = receiver.batch.datagram(index);
                bytes += datagram.bytes.len();
                let delivered =
                    deliver(&datagram, self.options.address, &mut self.statistics, sink);
                // One that is discarded counts too: a flood of them must not keep us here.
                packets += delivered.max(1);
            }
        }
        receiver.look(more || bytes >= MUCH);
        packets
    }

    fn is_pressed(&mut self) -> bool {
        self.receiver.as_ref().is_some_and(|receiver| receiver.is_pressed)
    }

    fn take_unreachable(&mut self, look: bool, sink: &mut dyn FnMut(IpAddr, UnreachableKind)) {
        self.sender.take_unreachable(look, &mut self.statistics, sink);
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        let mut packets = 0;
        while packets < budget
            && let Some(burst) = fill(self.sender.batch.free_slot())
        {
            packets += burst.packets();
            self.accept(burst);
            if self.sender.batch.is_full() {
                self.sender.flush(&mut self.statistics);
            }
        }
        self.sender.flush(&mut self.statistics);
        packets
    }
}

impl Link for UdpLink {
    fn local_address(&self) -> IpAddr {
        self.options.address
    }

    fn descriptors(&self) -> &[RawFd] {
        &self.descriptors
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        if self.groups.socket_of(group).is_none() {
            let socket = open_group_socket(&self.options, group)?;
            self.descriptors.push(socket.as_raw_fd());
            self.groups.add(group, socket);
        }
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) {
        if let Some(socket) = self.groups.remove(&self.options, group) {
            self.descriptors.retain(|descriptor| *descriptor != socket.as_raw_fd());
        }
    }

    fn statistics(&self) -> LinkStatistics {
        self.statistics.plus(&self.groups.statistics())
    }
}

/// Hands one datagram, which may hold several packets, to `sink`, or counts why it does not.
/// Returns the number of packets.
fn deliver(
    datagram: &Datagram<'_>,
    destination: IpAddr,
    statistics: &mut LinkStatistics,
    sink: &mut dyn FnMut(&ReceivedBurst<'_>),
) -> usize {
    if datagram.truncated {
        statistics.truncated += 1;
        return 0;
    }
    let (Some((source, source_port)), false) = (datagram.source, datagram.bytes.is_empty()) else {
        statistics.empty += 1;
        return 0;
    };
    let length = datagram.bytes.len();
    let burst = ReceivedBurst {
        flow: Flow { source, destination, source_port },
        traffic_class: datagram.control.traffic_class,
        identification: Identification::Unseen,
        segment: datagram.control.segment.unwrap_or(length).min(length),
        bytes: datagram.bytes,
    };
    let packets = length.div_ceil(burst.segment);
    statistics.received.add(packets, length);
    sink(&burst);
    packets
}
