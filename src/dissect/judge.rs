//! The ICRC of a packet, from the headers around it as they stand in the frame.

use super::frame::{Frame, Kind};
use super::{Icrc, Issue, Verdict};
use crate::wire::icrc::{self, Outer};
use crate::wire::{Bth, ICRC_LENGTH, Ipv4Header, Ipv6Header, Network, UdpHeader};

/// Judges a packet that is whole in the frame; `bytes` is BTH to ICRC.
pub(super) fn whole(frame: &Frame<'_>, bytes: &[u8]) -> Icrc {
    let Some((covered, wire)) = bytes.split_last_chunk::<ICRC_LENGTH>() else {
        return Icrc::default();
    };
    if covered.len() < Bth::LENGTH {
        return Icrc::default();
    }
    let wire = Some(*wire);
    let unchecked = Icrc { wire, ..Icrc::default() };
    if frame.issues.contains(Issue::Fragment) {
        return unchecked;
    }
    let Some(outer) = outer(frame) else { return unchecked };
    let computed = icrc::of(&outer, covered);
    let verdict = if Some(computed) == wire { Verdict::Ok } else { Verdict::Bad };
    Icrc { verdict, wire, computed: Some(computed) }
}

/// What the ICRC covers before the BTH.
pub(super) fn outer<'a>(frame: &Frame<'a>) -> Option<Outer<'a>> {
    if frame.kind == Kind::RoceV2 {
        let header = frame.envelope.network_bytes;
        let udp = frame.envelope.udp_bytes?;
        return Some(match frame.envelope.network? {
            Network::V4(_) => Outer::Ipv4 { header, udp },
            Network::V6(..) => {
                let (header, extensions) = header.split_first_chunk()?;
                Outer::Ipv6 { header, extensions, udp }
            }
        });
    }
    match (frame.grh_bytes, frame.lrh_bytes) {
        (Some(grh), _) => Some(Outer::Global(grh)),
        (None, Some(lrh)) => Some(Outer::Local(lrh)),
        (None, None) => None,
    }
}

/// Judges one packet of a datagram that the card was to cut: its lengths and identification are
/// not those of the frame's headers.
///
/// Linux numbers the packets upwards from the frame's identification, or gives all the same one;
/// merged on receive, each had its own, of which the frame shows only the first. Right are those two
/// and what sockets have; with any other one that explains the ICRC nobody can tell.
/// Returns the identification with which the ICRC is right, else the one that was to be expected.
pub(super) fn segment(frame: &Frame<'_>, index: u16, bytes: &[u8]) -> (Icrc, Option<u16>) {
    let Some(ip) = frame.envelope.ipv4() else {
        return (with_lengths(frame, None, bytes), None);
    };
    let counted = ip.identification.wrapping_add(index);
    let icrc = with_lengths(frame, Some(counted), bytes);
    let (Verdict::Bad, Some(wire), Some(computed), 1..) =
        (icrc.verdict, icrc.wire, icrc.computed, index)
    else {
        return (icrc, Some(counted));
    };
    let following = ip.length() - BEHIND_FLAGS + UdpHeader::LENGTH + bytes.len() - ICRC_LENGTH;
    match icrc::identification_of(wire, computed, counted, following) {
        Some(own) if own == ip.identification || is_of_socket(&ip, own) => {
            (Icrc { verdict: Verdict::Ok, computed: icrc.wire, ..icrc }, Some(own))
        }
        Some(_) => (Icrc { verdict: Verdict::Unchecked, computed: None, ..icrc }, None),
        None => (icrc, Some(counted)),
    }
}

/// Where identification, flags and fragment offset end in an IPv4 header.
const BEHIND_FLAGS: usize = 8;

fn is_of_socket(ip: &Ipv4Header<'_>, identification: u16) -> bool {
    ip.flags == icrc::DONT_FRAGMENT && identification < icrc::SOCKET_IDENTIFICATIONS
}

/// Judges a packet with the lengths that its own headers have once the card has cut it off.
fn with_lengths(frame: &Frame<'_>, identification: Option<u16>, bytes: &[u8]) -> Icrc {
    let Some((covered, wire)) = bytes.split_last_chunk::<ICRC_LENGTH>() else {
        return Icrc::default();
    };
    let wire = Some(*wire);
    let unchecked = Icrc { wire, ..Icrc::default() };
    let (Some(mut udp), Some(network)) = (frame.envelope.udp, frame.envelope.network) else {
        return unchecked;
    };
    if covered.len() < Bth::LENGTH {
        return Icrc::default();
    }
    udp.length = (UdpHeader::LENGTH + bytes.len()) as u16;
    let mut udp_bytes = [0; UdpHeader::LENGTH];
    udp.emit(&mut udp_bytes);
    let computed = match network {
        Network::V4(mut ip) => {
            ip.total_length = udp.length.wrapping_add(ip.length() as u16);
            ip.identification = identification.unwrap_or(ip.identification);
            let mut header = [0; Ipv4Header::MAX_LENGTH];
            let length = ip.emit(&mut header);
            icrc::of(&Outer::Ipv4 { header: &header[..length], udp: &udp_bytes }, covered)
        }
        Network::V6(mut ip, extensions) => {
            ip.payload_length = udp.length.wrapping_add(extensions.len() as u16);
            let mut header = [0; Ipv6Header::LENGTH];
            ip.emit(&mut header);
            icrc::of(&Outer::Ipv6 { header: &header, extensions, udp: &udp_bytes }, covered)
        }
    };
    let verdict = if Some(computed) == wire { Verdict::Ok } else { Verdict::Bad };
    Icrc { verdict, wire, computed: Some(computed) }
}
