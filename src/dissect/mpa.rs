//! iWARP, recognised: RDMA over TCP (RFC 5044, MPA). It is not decoded further.
//!
//! ```text
//!   start:  "MPA ID Req Frame" or "MPA ID Rep Frame", flags, revision, length, private data
//!   later:  ┌────────┬──────────────┬─────┬─────────┐   FPDU: length of the ULPDU, DDP and RDMAP
//!           │ length │ ULPDU        │ pad │ CRC-32C │   headers with data, whole words
//!           └────────┴──────────────┴─────┴─────────┘
//! ```
//!
//! Whether a TCP connection is one of iWARP shows only at its start. A dissector keeps the
//! connections whose start it saw, up to a limit, and where in each stream the next frame begins:
//! segments may begin anywhere, and what follows one that was not captured is not judged. For other
//! connections a segment counts as iWARP only if all of it is frames with right CRCs, which chance
//! gives once in 2^32.

use std::collections::HashMap;
use std::net::IpAddr;

use super::frame::{Frame, Kind};
use super::span::Span;
use super::{Issue, crc32c};

/// What iWARP was recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpa {
    /// The connection's first frame from its initiator; whether CRCs are asked for.
    Request {
        /// Flag C.
        crc: bool,
        /// Flag M: markers in the stream.
        markers: bool,
    },
    /// The answer.
    Reply {
        /// Flag C.
        crc: bool,
        /// Flag M.
        markers: bool,
        /// Flag R: the connection is refused.
        rejected: bool,
    },
    /// Data: whole frames in this TCP segment, and how many of them have a right CRC.
    Frames {
        /// Frames that are whole in the segment.
        whole: u32,
        /// Those with a right CRC.
        right: u32,
    },
}

impl Mpa {
    /// As in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request { .. } => "request",
            Self::Reply { .. } => "reply",
            Self::Frames { .. } => "fpdu",
        }
    }
}

/// More connections than this are not kept: frames of further ones count only by their CRCs.
const MAX_CONNECTIONS: usize = 4096;

/// Flags of TCP.
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
/// Bytes of a start frame before its private data.
const START_LENGTH: u32 = 20;

type End = (IpAddr, u16);

/// What is known of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// Either side asked for CRCs, so both make them.
    crc: bool,
    /// Markers lie in the stream: frames are not where their lengths say.
    markers: bool,
    /// The sequence number at which the next frame begins, as far as the stream was followed; first
    /// that of the stream from the smaller end.
    next: [Option<u32>; 2],
}

/// Connections whose start was seen.
#[derive(Debug, Default)]
pub(super) struct Connections(HashMap<(End, End), Connection>);

impl Connections {
    /// Looks whether a TCP segment is iWARP's.
    pub(super) fn look<'a>(&mut self, frame: &mut Frame<'a>, mut segment: Span<'a>) {
        let Some((source, destination)) = frame.envelope.addresses() else { return };
        let Some(header) = segment.bytes.first_chunk::<20>() else { return };
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let length = usize::from(header[12] >> 4) * 4;
        let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let flags = header[13];
        let ends = ((source, port(0)), (destination, port(2)));
        let direction = usize::from(ends.0 >= ends.1);
        let key = if direction == 0 { ends } else { (ends.1, ends.0) };
        if flags & (SYN | RST) != 0 {
            // Whatever these ends say next, it is another connection.
            self.0.remove(&key);
        }
        if length < 20 || segment.take_slice(length).is_none() || segment.bytes.is_empty() {
            return;
        }
        if let Some((mpa, length)) = start(segment.bytes) {
            self.remember(key, mpa, direction, sequence.wrapping_add(length));
            frame.mpa = Some(mpa);
        } else if let Some(connection) = self.0.get_mut(&key) {
            frame.mpa = Some(connection.data(direction, sequence, segment));
        } else {
            frame.mpa = proven(segment);
        }
        let Some(mpa) = frame.mpa else { return };
        frame.kind = Kind::Iwarp;
        if matches!(mpa, Mpa::Frames { whole, right } if right < whole) {
            frame.issues.add(Issue::BadCrc32c);
        }
    }

    fn remember(&mut self, key: (End, End), mpa: Mpa, direction: usize, next: u32) {
        let is_known = self.0.contains_key(&key);
        if !is_known && self.0.len() >= MAX_CONNECTIONS {
            return;
        }
        let connection = self.0.entry(key).or_default();
        if let Mpa::Request { crc, markers } | Mpa::Reply { crc, markers, .. } = mpa {
            connection.crc |= crc;
            connection.markers |= markers;
        }
        connection.next[direction] = Some(next);
    }
}

/// The first frame of a stream, and its length.
fn start(bytes: &[u8]) -> Option<(Mpa, u32)> {
    let (key, rest) = bytes.split_first_chunk::<16>()?;
    let &[flags, _, high, low] = rest.first_chunk::<4>()?;
    let private = u32::from(u16::from_be_bytes([high, low]));
    let (markers, crc) = (flags & 0x80 != 0, flags & 0x40 != 0);
    let mpa = match key {
        b"MPA ID Req Frame" => Mpa::Request { crc, markers },
        b"MPA ID Rep Frame" => Mpa::Reply { crc, markers, rejected: flags & 0x20 != 0 },
        _ => return None,
    };
    Some((mpa, START_LENGTH + private))
}

impl Connection {
    /// Judges the frames that lie whole in a segment, where the stream tells where they begin.
    fn data(&mut self, direction: usize, sequence: u32, segment: Span<'_>) -> Mpa {
        let nothing = Mpa::Frames { whole: 0, right: 0 };
        if !self.crc || self.markers {
            return nothing;
        }
        let next = &mut self.next[direction];
        let ahead = next.map(|next| next.wrapping_sub(sequence) as i32);
        let Some(skipped) = ahead.and_then(|ahead| usize::try_from(ahead).ok()) else {
            // Something before it is missing: only right CRCs tell where frames begin.
            let found = proven(segment);
            *next = found.map(|_| sequence.wrapping_add(segment.length() as u32));
            return found.unwrap_or(nothing);
        };
        if skipped >= segment.length() {
            // The middle of a frame, or sent once more.
            return nothing;
        }
        let (whole, right, rest) = judge(segment.bytes.get(skipped..).unwrap_or_default());
        let passed = segment.bytes.len().saturating_sub(rest.len()).max(skipped);
        let begin = sequence.wrapping_add(passed as u32);
        *next = if rest.is_empty() { Some(begin) } else { after(rest, begin) };
        Mpa::Frames { whole, right }
    }
}

/// Where the frame after one that begins at `begin` and is not whole does, if that can be seen.
fn after(frame: &[u8], begin: u32) -> Option<u32> {
    Some(begin.wrapping_add(frame_length(frame)? as u32))
}

/// How many whole frames there are from the start on, how many are right, and what is left.
fn judge(mut rest: &[u8]) -> (u32, u32, &[u8]) {
    let (mut whole, mut right) = (0, 0);
    while let Some((is_right, after)) = first_frame(rest) {
        whole += 1;
        right += u32::from(is_right);
        rest = after;
    }
    (whole, right, rest)
}

/// A segment that is nothing but right frames.
fn proven(segment: Span<'_>) -> Option<Mpa> {
    let mut whole = 0;
    let mut rest = segment.bytes;
    // The first wrong one decides: other TCP may look like frames for long.
    while let Some((true, after)) = first_frame(rest) {
        whole += 1;
        rest = after;
    }
    let is_all = whole > 0 && rest.is_empty() && segment.missing == 0;
    is_all.then_some(Mpa::Frames { whole, right: whole })
}

/// Whether the CRC of the first frame is right, and what follows it; nothing if it is not whole.
fn first_frame(bytes: &[u8]) -> Option<(bool, &[u8])> {
    let (frame, after) = bytes.split_at_checked(frame_length(bytes)?)?;
    let (covered, found) = frame.split_last_chunk::<4>()?;
    Some((crc32c::of([covered]) == u32::from_le_bytes(*found), after))
}

/// The length of the frame that begins here, with its CRC. A tagged or untagged DDP header of version
/// 1 must be in it (RFC 5041).
fn frame_length(bytes: &[u8]) -> Option<usize> {
    let &[high, low, ddp, ..] = bytes.first_chunk::<4>()?;
    let length = 2 + usize::from(u16::from_be_bytes([high, low]));
    let is_ddp = ddp & 0x03 == 1 && length >= 2 + 14;
    is_ddp.then(|| length.next_multiple_of(4) + 4)
}
