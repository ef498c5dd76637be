//! The unit that crosses the border to a link: a burst of UDP payloads of one flow.
//!
//! ```text
//!   flow, traffic class │ segment 0 │ segment 1 │ … │ last (may be shorter) │
//!                         every segment: BTH … payload, pad, ICRC
//! ```
//!
//! Consecutive packets of one message have one size, and handing the kernel many of them at once
//! (UDP_SEGMENT, UDP_GRO) is the only thing that changes its cost per packet.

use std::net::IpAddr;

/// The UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// Addresses and source port of a datagram; the destination port is always [`ROCE_PORT`].
/// Both addresses are of one family; an IPv4 address is never written as an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Sender's address.
    pub source: IpAddr,
    /// Receiver's address.
    pub destination: IpAddr,
    /// Sender's UDP port: entropy for the network, constant for a queue pair.
    pub source_port: u16,
}

/// What the link can tell of the IPv4 identification, which the ICRC covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identification {
    /// IPv6, which has none, or a socket, which does not show it. A sender of ours on a socket
    /// uses the segment's index in its burst; any other value can be recovered from the ICRC.
    Unseen,
    /// The first segment's identification, counted up by one a segment, and the 16 bits of flags
    /// and fragment offset.
    Seen {
        /// Identification of the first segment.
        first: u16,
        /// Flags (3 bits) and fragment offset (13 bits).
        flags: u16,
    },
}

/// A burst as a link received it.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedBurst<'a> {
    /// Addresses and source port.
    pub flow: Flow,
    /// IPv4 TOS or IPv6 traffic class; the low two bits are ECN.
    pub traffic_class: u8,
    /// What is known of the IPv4 identification.
    pub identification: Identification,
    /// Bytes in each segment but the last, which has 1 to this many. At least 1.
    pub segment: usize,
    /// All segments, one after another.
    pub bytes: &'a [u8],
}

impl<'a> ReceivedBurst<'a> {
    /// The segments in order.
    pub fn segments(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment.max(1))
    }
}

/// What was written into a slot: everything of a burst but its bytes, which lie in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentBurst {
    /// Addresses and source port.
    pub flow: Flow,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 identification of the first segment for which the ICRC was computed; segment `k` has
    /// this plus `k`. DF is set. Without meaning for IPv6.
    pub first_identification: u16,
    /// Bytes in each segment but the last.
    pub segment: usize,
    /// Bytes in all.
    pub length: usize,
}

impl SentBurst {
    /// How many packets the burst holds.
    pub fn packets(&self) -> usize {
        self.length.div_ceil(self.segment.max(1))
    }

    /// The same burst as its receiver would see it, if it sees the identification.
    pub fn as_received<'a>(&self, bytes: &'a [u8]) -> ReceivedBurst<'a> {
        let identification = match self.flow.destination {
            IpAddr::V4(_) => {
                Identification::Seen { first: self.first_identification, flags: 0x4000 }
            }
            IpAddr::V6(_) => Identification::Unseen,
        };
        ReceivedBurst {
            flow: self.flow,
            traffic_class: self.traffic_class,
            identification,
            segment: self.segment,
            bytes: &bytes[..self.length],
        }
    }
}

/// How the IPv4 identification of segment `k` of a burst comes out on the wire. The ICRC covers
/// it, so whoever fills a slot computes with [`IdentificationRule::of_segment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentificationRule {
    /// The base that the engine wrote into [`SentBurst::first_identification`], plus `k`.
    BasePlusIndex,
    /// The base is always 0 (a socket with path MTU discovery PROBE), plus `k`.
    ZeroPlusIndex,
    /// Always 0, whatever `k` (such a socket where the kernel does not cut bursts).
    Zero,
}

impl IdentificationRule {
    /// The identification of segment `index` of a burst whose
    /// [`SentBurst::first_identification`] is `first`.
    pub const fn of_segment(self, first: u16, index: usize) -> u16 {
        match self {
            Self::BasePlusIndex => first.wrapping_add(index as u16),
            Self::ZeroPlusIndex => index as u16,
            Self::Zero => 0,
        }
    }
}
