//! Tunnels: what lies between an outer packet and the inner one.
//!
//! ```text
//!   outer headers │ VXLAN 8 B │ Geneve 8 B + options │ GRE 4..16 B (ERSPAN 0, 8, 12, 20 B) │ MPLS │ inner
//! ```

use super::layers::is_known;
use super::span::Span;

/// A tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// VXLAN with its network identifier (RFC 7348).
    Vxlan(u32),
    /// Geneve with its network identifier (RFC 8926).
    Geneve(u32),
    /// GRE with its key, if it has one (RFC 2784, 2890).
    Gre(Option<u32>),
    /// ERSPAN, version 1 to 3, with its session.
    Erspan(u8, u16),
    /// MPLS labels, outermost first, as far as there is room.
    Mpls([Option<u32>; 4]),
    /// IP in IP, either version in either.
    IpInIp,
}

impl Tunnel {
    /// As in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vxlan(_) => "vxlan",
            Self::Geneve(_) => "geneve",
            Self::Gre(_) => "gre",
            Self::Erspan(..) => "erspan",
            Self::Mpls(_) => "mpls",
            Self::IpInIp => "ipip",
        }
    }
}

/// UDP port of VXLAN, and the one that Linux had before it was assigned.
const VXLAN_PORTS: [u16; 2] = [4789, 8472];
const GENEVE_PORT: u16 = 6081;
const TRANSPARENT_ETHERNET: u16 = 0x6558;
const ERSPAN_1_AND_2: u16 = 0x88be;
const ERSPAN_3: u16 = 0x22eb;

/// What a tunnel carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inner {
    Ethernet,
    /// By ethertype.
    Protocol(u16),
    /// IP of the version that its first bits tell.
    Ip,
}

/// The tunnel that a UDP port stands for, its header taken off `rest`.
pub(super) fn of_udp(port: u16, rest: &mut Span<'_>) -> Option<(Tunnel, Inner)> {
    if VXLAN_PORTS.contains(&port) {
        let header = rest.take::<8>()?;
        let has_identifier = header[0] & 0x08 != 0;
        return has_identifier.then(|| (Tunnel::Vxlan(u24(header, 4)), Inner::Ethernet));
    }
    if port != GENEVE_PORT {
        return None;
    }
    let header = rest.take::<8>()?;
    if header[0] >> 6 != 0 {
        return None;
    }
    rest.take_slice(usize::from(header[0] & 0x3f) * 4)?;
    let inner = match u16::from_be_bytes([header[2], header[3]]) {
        TRANSPARENT_ETHERNET => Inner::Ethernet,
        ethertype => Inner::Protocol(ethertype),
    };
    Some((Tunnel::Geneve(u24(header, 4)), inner))
}

fn u24(header: &[u8; 8], at: usize) -> u32 {
    u32::from_be_bytes([0, header[at], header[at + 1], header[at + 2]])
}

/// GRE, version 0, its header and that of ERSPAN taken off `rest`.
pub(super) fn gre(rest: &mut Span<'_>) -> Option<(Tunnel, Inner)> {
    const CHECKSUM: u8 = 0x80;
    const ROUTING: u8 = 0x40;
    const KEY: u8 = 0x20;
    const SEQUENCE: u8 = 0x10;
    let &[flags, version, high, low] = rest.take()?;
    // A source route (RFC 1701) is of any length, and nobody sends it any more.
    if version & 7 != 0 || flags & ROUTING != 0 {
        return None;
    }
    if flags & CHECKSUM != 0 {
        rest.take::<4>()?;
    }
    let key = if flags & KEY != 0 { Some(u32::from_be_bytes(*rest.take()?)) } else { None };
    let sequenced = flags & SEQUENCE != 0;
    if sequenced {
        rest.take::<4>()?;
    }
    match u16::from_be_bytes([high, low]) {
        ERSPAN_1_AND_2 => Some((erspan_1_or_2(sequenced, rest)?, Inner::Ethernet)),
        ERSPAN_3 => erspan_3(rest),
        TRANSPARENT_ETHERNET => Some((Tunnel::Gre(key), Inner::Ethernet)),
        ethertype => Some((Tunnel::Gre(key), Inner::Protocol(ethertype))),
    }
}

/// Type I has no header; it is told from type II by the GRE header without sequence number.
fn erspan_1_or_2(sequenced: bool, rest: &mut Span<'_>) -> Option<Tunnel> {
    if !sequenced {
        return Some(Tunnel::Erspan(1, 0));
    }
    let header = rest.take::<8>()?;
    Some(Tunnel::Erspan(2, session(header[2], header[3])))
}

fn erspan_3(rest: &mut Span<'_>) -> Option<(Tunnel, Inner)> {
    let header = rest.take::<12>()?;
    let inner = match header[10] >> 2 & 0x1f {
        0 => Inner::Ethernet,
        2 => Inner::Ip,
        _ => return None,
    };
    if header[11] & 1 != 0 {
        // A platform-specific sub-header.
        rest.take::<8>()?;
    }
    Some((Tunnel::Erspan(3, session(header[2], header[3])), inner))
}

fn session(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low]) & 0x03ff
}

/// The labels of an MPLS stack, taken off `rest`. What is inside is not written anywhere: IP tells
/// itself by its version; Ethernet by an ethertype that is known at its place, behind a control
/// word of two zero bytes and a sequence number (RFC 4448) or without; anything else is left alone.
pub(super) fn mpls(rest: &mut Span<'_>) -> Option<(Tunnel, Inner)> {
    const BOTTOM: u32 = 0x100;
    let mut labels = [None; 4];
    for depth in 0..16 {
        let label = u32::from_be_bytes(*rest.take()?);
        if let Some(place) = labels.get_mut(depth) {
            *place = Some(label >> 12);
        }
        if label & BOTTOM != 0 {
            return Some((Tunnel::Mpls(labels), inside_mpls(rest)?));
        }
    }
    None
}

fn inside_mpls(rest: &mut Span<'_>) -> Option<Inner> {
    const CONTROL_WORD: usize = 4;
    match *rest.bytes.first()? >> 4 {
        4 => return Some(Inner::Protocol(crate::wire::ETHERTYPE_IPV4)),
        6 => return Some(Inner::Protocol(crate::wire::ETHERTYPE_IPV6)),
        _ => {}
    }
    let is_ethernet = |start: usize| {
        let ethertype = rest.bytes.get(start + 12..).and_then(|bytes| bytes.first_chunk());
        ethertype.is_some_and(|ethertype| is_known(u16::from_be_bytes(*ethertype)))
    };
    if rest.bytes.starts_with(&[0, 0]) && is_ethernet(CONTROL_WORD) {
        rest.take::<CONTROL_WORD>()?;
        return Some(Inner::Ethernet);
    }
    is_ethernet(0).then_some(Inner::Ethernet)
}
