//! A captured frame, taken apart from outside in.

use std::net::{IpAddr, Ipv6Addr};

use super::mpa::Mpa;
use super::segments::Burst;
use super::span::Span;
use super::{Icrc, Issues, RdmaPacket, Tunnel};
use crate::wire::{Grh, Ipv4Header, Ipv6Header, Lrh, Network, UdpHeader, VlanTag};

/// What a frame carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RoCE over UDP port 4791, whatever lies around it.
    RoceV2,
    /// RoCE behind a GRH, ethertype 0x8915.
    RoceV1,
    /// Native InfiniBand.
    InfiniBand,
    /// Priority flow control.
    Pfc,
    /// The older pause of a whole link.
    Pause,
    /// RDMA over TCP, recognised.
    Iwarp,
    /// Something else.
    #[default]
    Other,
}

impl Kind {
    /// As in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoceV2 => "rocev2",
            Self::RoceV1 => "rocev1",
            Self::InfiniBand => "infiniband",
            Self::Pfc => "pfc",
            Self::Pause => "pause",
            Self::Iwarp => "iwarp",
            Self::Other => "other",
        }
    }
}

/// A short list without a heap: what is beyond its room is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack<T, const N: usize> {
    items: [Option<T>; N],
    length: usize,
}

impl<T: Copy, const N: usize> Default for Stack<T, N> {
    fn default() -> Self {
        Self { items: [None; N], length: 0 }
    }
}

impl<T: Copy, const N: usize> Stack<T, N> {
    /// Adds an item; false if there is no room.
    pub(super) fn push(&mut self, item: T) -> bool {
        match self.items.get_mut(self.length) {
            Some(place) => *place = Some(item),
            None => return false,
        }
        self.length += 1;
        true
    }

    /// The items, first to last.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.items[..self.length].iter().map(|item| {
            let Some(item) = item else { unreachable!("places below `length` are filled") };
            item
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Ethernet addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Sender.
    pub source: [u8; 6],
    /// Receiver.
    pub destination: [u8; 6],
}

/// VLAN tags, outermost first.
pub type Vlans = Stack<VlanTag, 4>;

/// The headers around one network packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Ethernet header, if this level has its own.
    pub ethernet: Option<Addresses>,
    /// Its VLAN tags.
    pub vlans: Vlans,
    /// IP header.
    pub network: Option<Network<'a>>,
    /// The IP header and its extension headers as they stand in the frame.
    pub network_bytes: &'a [u8],
    /// UDP header.
    pub udp: Option<UdpHeader>,
    /// The UDP header as it stands in the frame.
    pub udp_bytes: Option<&'a [u8; 8]>,
}

impl<'a> Envelope<'a> {
    /// Addresses of the IP header.
    pub fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        Some(match self.network? {
            Network::V4(ip) => (ip.source.into(), ip.destination.into()),
            Network::V6(ip, _) => (ip.source.into(), ip.destination.into()),
        })
    }

    /// The IPv4 header.
    pub fn ipv4(&self) -> Option<Ipv4Header<'a>> {
        match self.network? {
            Network::V4(ip) => Some(ip),
            Network::V6(..) => None,
        }
    }

    /// The IPv6 header.
    pub fn ipv6(&self) -> Option<Ipv6Header> {
        match self.network? {
            Network::V4(_) => None,
            Network::V6(ip, _) => Some(ip),
        }
    }

    /// TOS or traffic class.
    pub fn traffic_class(&self) -> Option<u8> {
        Some(match self.network? {
            Network::V4(ip) => ip.traffic_class,
            Network::V6(ip, _) => ip.traffic_class,
        })
    }

    /// Time to live or hop limit.
    pub fn hop_limit(&self) -> Option<u8> {
        Some(match self.network? {
            Network::V4(ip) => ip.hop_limit,
            Network::V6(ip, _) => ip.hop_limit,
        })
    }
}

/// A tunnel with the headers that it stands behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer<'a> {
    /// The headers outside.
    pub envelope: Envelope<'a>,
    /// What lies between them and the inner frame.
    pub tunnel: Tunnel,
}

/// What a MAC control frame asks for, in quanta of 512 bit times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControl {
    /// PFC.
    Priority {
        /// Bit n: the timer of class n counts.
        enabled: u8,
        /// One timer a class.
        quanta: [u16; 8],
    },
    /// Pause of the whole link.
    Pause {
        /// For how long.
        quanta: u16,
    },
}

/// A captured frame, taken apart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame<'a> {
    /// The bytes as captured.
    pub data: &'a [u8],
    /// Bytes on the wire.
    pub length: u32,
    /// What it carries.
    pub kind: Kind,
    /// What is wrong outside of the RDMA packet.
    pub issues: Issues,
    /// The headers around the innermost packet. Of a tunnel without an Ethernet header of its own
    /// the Ethernet header is the outer one.
    pub envelope: Envelope<'a>,
    /// The tunnels around it, outermost first.
    pub tunnels: Stack<Outer<'a>, 8>,
    /// Local route header of native InfiniBand.
    pub lrh: Option<Lrh>,
    /// Global route header.
    pub grh: Option<Grh>,
    /// What a MAC control frame asks for.
    pub flow_control: Option<FlowControl>,
    /// What iWARP was recognised by.
    pub mpa: Option<Mpa>,
    /// Variant CRC of native InfiniBand, as found and as it should be.
    pub vcrc: Option<([u8; 2], [u8; 2])>,
    /// Bytes after the datagram: Ethernet padding, a frame check sequence.
    pub trailer: &'a [u8],
    pub(super) lrh_bytes: Option<&'a [u8; 8]>,
    pub(super) grh_bytes: Option<&'a [u8; 40]>,
    /// Where the RDMA packet lies.
    pub(super) body: Option<Span<'a>>,
    /// The first packet, or the only one.
    pub(super) first: Option<RdmaPacket<'a>>,
    /// How segmentation offload has cut the datagram.
    pub(super) burst: Option<Burst>,
}

impl<'a> Frame<'a> {
    /// The RDMA packets in it: none, one, or, in a frame that segmentation offload has left whole,
    /// several. Each is read and judged as it is asked for.
    pub fn packets(&self) -> impl Iterator<Item = RdmaPacket<'a>> {
        let count = self.burst.map_or(1, |burst| burst.count);
        let first = self.first;
        (0..count).filter_map(move |index| match self.burst {
            Some(burst) => Some(self.segment(burst, index)),
            None => first,
        })
    }

    /// Whether it is RDMA of the kinds that have a BTH.
    pub const fn is_rdma(&self) -> bool {
        matches!(self.kind, Kind::RoceV2 | Kind::RoceV1 | Kind::InfiniBand)
    }

    /// Sender and receiver: IP addresses of RoCEv2, GIDs where there is a GRH.
    pub fn hosts(&self) -> Option<(IpAddr, IpAddr)> {
        match self.grh {
            Some(grh) => Some((unmapped(grh.source), unmapped(grh.destination))),
            None => self.envelope.addresses(),
        }
    }
}

/// The IPv4 address that a GID stands for, or the GID.
fn unmapped(gid: Ipv6Addr) -> IpAddr {
    gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4)
}

/// Whether any packet or the frame itself is wrong.
pub(super) fn is_wrong(issues: Issues, icrc: Icrc) -> bool {
    issues.is_wrong() || icrc.verdict == super::Verdict::Bad
}
