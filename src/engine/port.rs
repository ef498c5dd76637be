//! The border between the engine and whatever carries its bursts: a link, or the simulator's
//! network.

use std::net::IpAddr;

use crate::transport::UnreachableKind;
use crate::wire::{IdentificationRule, ReceivedBurst, SentBurst};

/// The UDP source ports that a port can send from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourcePorts {
    /// Any from 0xc000 to 0xffff.
    Any,
    /// Only these, at least one.
    Only(Vec<u16>),
}

/// What a port can do; fixed while an engine uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortCapabilities {
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    /// The most segments in a sent burst, at least 1.
    pub max_segments: usize,
    /// The most bytes in a sent burst, at least one packet of `mtu`.
    pub max_burst_bytes: usize,
    /// What becomes of the IPv4 identification.
    pub identification: IdentificationRule,
    /// The source ports to choose from.
    pub source_ports: SourcePorts,
}

/// Something that carries bursts.
pub trait Port {
    /// What it can do.
    fn capabilities(&self) -> &PortCapabilities;

    /// Hands each burst that has arrived to `sink`, at most about `budget` packets, without
    /// waiting. Returns the number of packets; as many as `budget` means that there may be more.
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize;

    /// Whether arrivals wait in a receive queue that is more than half full, as far as this can be
    /// told for nothing: senders that get no acknowledgements should be slowed down.
    fn is_pressed(&mut self) -> bool;

    /// Hands what ICMP has told of addresses that cannot be reached to `sink`, as far as the port has
    /// noticed it; with `look` it asks, which may cost a system call.
    fn take_unreachable(&mut self, look: bool, sink: &mut dyn FnMut(IpAddr, UnreachableKind));

    /// Hands out one slot after another, each of `max_burst_bytes`, as long as `fill` puts a burst
    /// into it, at most about `budget` packets, and sends what was put there. A burst that the
    /// network below refuses is a counted loss, never an error: the transport recovers it.
    /// Returns the number of packets.
    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize;
}
