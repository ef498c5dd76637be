//! The outside world: whatever carries bursts between an engine and its peers.
//!
//! ```text
//!             engine (through `Port`)          background thread
//!                │ receive   │ transmit           │ descriptors, next_deadline
//!   ┌────────────▼───────────▼────────────────────▼──────────┐
//!   │ Recorded    every frame into a pcapng file             │  wrappers, in any
//!   │ Impaired    each packet's fate from `fault`            │  order, or none
//!   ├──────────────┬─────────────────────────────────────────┤
//!   │ MemoryLink   │ UdpLink                                 │
//!   │ one process, │ one receiving socket, a few sending     │
//!   │ no kernel    │ ones; UDP_SEGMENT and UDP_GRO           │
//!   └──────────────┴─────────────────────────────────────────┘
//! ```
//!
//! A link moves bytes and knows neither queue pairs nor headers. Buffers are allocated when it is
//! made; receiving and transmitting allocate nothing. What it drops, it counts.

mod event;
mod group;
mod hold;
mod impair;
pub mod memory;
mod record;
mod udp;

use std::net::IpAddr;
use std::os::fd::RawFd;

use crate::engine::{Port, PortCapabilities, UnreachableKind};
use crate::time::Instant;
use crate::wire::{ReceivedBurst, SentBurst};

pub use event::Event;
pub use group::JoinError;
pub use impair::Impaired;
pub use memory::{MemoryLink, MemoryOptions};
pub use record::Recorded;
pub use udp::{
    BareSocket, GroupSockets, PortHolder, ReceiveQueue, UdpError, UdpLink, UdpOptions,
    open_group_socket,
};

/// Packets, bytes and bursts in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Segments.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Bursts: system calls' worth of segments, not packets.
    pub bursts: u64,
}

impl Traffic {
    /// Counts one burst.
    fn add(&mut self, packets: usize, bytes: usize) {
        self.packets += packets as u64;
        self.bytes += bytes as u64;
        self.bursts += 1;
    }
}

/// What a link has carried and what it has lost, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Handed to the engine.
    pub received: Traffic,
    /// Taken over by the network below.
    pub sent: Traffic,
    /// Packets that the network below refused to send: full queue, no route, larger than the MTU.
    pub refused: u64,
    /// Of the refused ones, those larger than the path allows.
    pub oversized: u64,
    /// Packets to an address that nobody has (in-memory links only; elsewhere nobody can know).
    pub unreachable: u64,
    /// ICMP errors that told of addresses, networks or ports that cannot be reached (sockets only).
    pub icmp_unreachable: u64,
    /// Arrivals lost because the receive queue was full: packets in memory; for a socket what the
    /// kernel counts, where a merged burst is one, and which it tells with the next arrival.
    pub overflowed: u64,
    /// Arrivals larger than a receive buffer, discarded.
    pub truncated: u64,
    /// Arrivals without a single byte or a sender, discarded.
    pub empty: u64,
    /// Bursts that went out packet by packet because the kernel refused to segment them.
    pub split: u64,
    /// Packets that are missing in the capture because its file could not be written further.
    pub unrecorded: u64,
}

impl Traffic {
    fn plus(&self, other: &Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            bursts: self.bursts + other.bursts,
        }
    }
}

impl LinkStatistics {
    /// Those of two links together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            received: self.received.plus(&other.received),
            sent: self.sent.plus(&other.sent),
            refused: self.refused + other.refused,
            oversized: self.oversized + other.oversized,
            unreachable: self.unreachable + other.unreachable,
            icmp_unreachable: self.icmp_unreachable + other.icmp_unreachable,
            overflowed: self.overflowed + other.overflowed,
            truncated: self.truncated + other.truncated,
            empty: self.empty + other.empty,
            split: self.split + other.split,
            unrecorded: self.unrecorded + other.unrecorded,
        }
    }
}

/// A [`Port`] that a background thread can sleep on.
pub trait Link: Port + Send {
    /// The address that bursts arrive at and are sent from.
    fn local_address(&self) -> IpAddr;

    /// Descriptors that poll as readable while something waits to be received. Empty if there is
    /// nothing to sleep on: such a link must be polled.
    fn descriptors(&self) -> &[RawFd];

    /// From now on also receives what is sent to a multicast group; at most once for each group.
    /// Datagrams that this link itself sends to the group come back, too.
    ///
    /// # Errors
    /// [`JoinError`]; the link goes on as before.
    fn join(&mut self, group: IpAddr) -> Result<(), JoinError>;

    /// Ends that for a group that was joined; for another one nothing happens.
    fn leave(&mut self, group: IpAddr);

    /// Traffic and losses so far.
    fn statistics(&self) -> LinkStatistics;

    /// When [`Port::receive`] and [`Port::transmit`] must be called even if no descriptor becomes
    /// readable and the engine has nothing to send, because the link holds packets back.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Tells the time of the turn that begins; a link that holds packets back needs it.
    fn set_now(&mut self, _now: Instant) {}
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn capabilities(&self) -> &PortCapabilities {
        (**self).capabilities()
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        (**self).receive(budget, sink)
    }

    fn is_pressed(&mut self) -> bool {
        (**self).is_pressed()
    }

    fn take_unreachable(&mut self, look: bool, sink: &mut dyn FnMut(IpAddr, UnreachableKind)) {
        (**self).take_unreachable(look, sink);
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        (**self).transmit(budget, fill)
    }
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn local_address(&self) -> IpAddr {
        (**self).local_address()
    }

    fn descriptors(&self) -> &[RawFd] {
        (**self).descriptors()
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        (**self).join(group)
    }

    fn leave(&mut self, group: IpAddr) {
        (**self).leave(group);
    }

    fn statistics(&self) -> LinkStatistics {
        (**self).statistics()
    }

    fn next_deadline(&self) -> Option<Instant> {
        (**self).next_deadline()
    }

    fn set_now(&mut self, now: Instant) {
        (**self).set_now(now);
    }
}

/// Whether the engine kept to the capabilities: a burst that does not is never sent.
fn is_sendable(burst: &SentBurst, capabilities: &PortCapabilities) -> bool {
    burst.segment > 0
        && burst.length > 0
        && burst.length <= capabilities.max_burst_bytes
        && burst.packets() <= capabilities.max_segments
        && burst.flow.source.is_ipv4() == burst.flow.destination.is_ipv4()
}
