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
//! connections whose start it saw, up to a limit; for others a segment counts as iWARP only if all
//! of it is frames with right CRCs, which chance gives once in 2^32.

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

type End = (IpAddr, u16);

/// What is known of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// Either side asked for CRCs, so both make them.
    crc: bool,
    /// Markers lie in the stream: frames are not where their lengths say.
    markers: bool,
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
        let ends = ((source, port(0)), (destination, port(2)));
        let key = if ends.0 < ends.1 { ends } else { (ends.1, ends.0) };
        if length < 20 || segment.take_slice(length).is_none() || segment.bytes.is_empty() {
            return;
        }
        if let Some(mpa) = start(segment.bytes) {
            self.remember(key, mpa);
            frame.mpa = Some(mpa);
        } else {
            let known = self.0.get(&key).copied();
            frame.mpa = frames(segment, known);
        }
        let Some(mpa) = frame.mpa else { return };
        frame.kind = Kind::Iwarp;
        if matches!(mpa, Mpa::Frames { whole, right } if right < whole) {
            frame.issues.add(Issue::BadCrc32c);
        }
    }

    fn remember(&mut self, key: (End, End), mpa: Mpa) {
        let is_known = self.0.contains_key(&key);
        if !is_known && self.0.len() >= MAX_CONNECTIONS {
            return;
        }
        let connection = self.0.entry(key).or_default();
        if let Mpa::Request { crc, markers } | Mpa::Reply { crc, markers, .. } = mpa {
            connection.crc |= crc;
            connection.markers |= markers;
        }
    }
}

fn start(bytes: &[u8]) -> Option<Mpa> {
    let (key, rest) = bytes.split_first_chunk::<16>()?;
    let &[flags, ..] = rest.first_chunk::<4>()?;
    let (markers, crc) = (flags & 0x80 != 0, flags & 0x40 != 0);
    match key {
        b"MPA ID Req Frame" => Some(Mpa::Request { crc, markers }),
        b"MPA ID Rep Frame" => Some(Mpa::Reply { crc, markers, rejected: flags & 0x20 != 0 }),
        _ => None,
    }
}

/// Reads a segment as frames.
fn frames(segment: Span<'_>, known: Option<Connection>) -> Option<Mpa> {
    let is_judged = known.is_none_or(|connection| connection.crc && !connection.markers);
    let (mut whole, mut right) = (0u32, 0u32);
    let mut rest = segment.bytes;
    while let Some((frame, after)) = split_frame(rest).filter(|_| is_judged) {
        let (covered, found) = frame.split_last_chunk::<4>()?;
        whole += 1;
        right += u32::from(crc32c::of([covered]) == u32::from_le_bytes(*found));
        if known.is_none() && right < whole {
            // Other TCP whose first bytes look like a length: no need to look at all of it.
            return None;
        }
        rest = after;
    }
    let proven = whole > 0 && right == whole && rest.is_empty() && segment.missing == 0;
    // A segment that does not begin with a frame is the middle of one, and says nothing.
    (known.is_some() || proven).then_some(Mpa::Frames { whole, right })
}

/// The first frame with its CRC, and what follows it. A tagged or untagged DDP header of version 1
/// must be in it (RFC 5041).
fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let &[high, low, ddp, ..] = bytes.first_chunk::<4>()?;
    let length = 2 + usize::from(u16::from_be_bytes([high, low]));
    let is_ddp = ddp & 0x03 == 1 && length >= 2 + 14;
    is_ddp.then(|| bytes.split_at_checked(length.next_multiple_of(4) + 4))?
}
