//! What was on the wire: the recorded frames of both ends, and which of them never arrived.
//!
//! ```text
//!   Alice's capture ─ what she sent ──────┐
//!                                         ├─ aligned ─▶ each packet with what became of it
//!   Bob's capture ─ what came to him,     │
//!       and what he made of it ───────────┘
//! ```
//!
//! A recorder stands below the faults, so a frame that a fault plan takes from a receiver is in the
//! captures of both ends. Which ones it takes follows from its seed alone: here the same plan is
//! asked again, with the same packets in the same order.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use uroce::fault::{Direction, Fate, Faults, PacketView};
use uroce::time::Instant;
use uroce::wire::{Frame, Headers, Message, Opcode, Packet, Psn, Qpn};

use super::capture::{Recorded, frames};
use super::stage::{End, PATH_MTU, Stage};
use crate::cli::output::Failure;

/// How often, and how long each time, late arrivals are waited for.
const PATIENCE: usize = 40;
const PAUSE: Duration = Duration::from_millis(5);

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Arrival {
    /// It did what it should.
    Arrived,
    /// The fault plan took it.
    Lost,
    /// It came to Bob while an earlier one was missing, so he dropped it.
    OutOfOrder,
    /// Bob had had it already.
    Duplicate,
    /// It never came to Bob's device: a socket's buffer was full, or a process that shared the port
    /// ended with it in its hands.
    Missing,
}

/// A packet on the wire, as Alice's end saw it go or come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    pub(super) from_alice: bool,
    pub(super) headers: Headers,
    /// Bytes of payload.
    pub(super) length: usize,
    /// Bytes of the whole frame.
    pub(super) frame: usize,
    pub(super) arrival: Arrival,
    /// A request that had been sent before.
    pub(super) resent: bool,
}

impl Step {
    /// The opcode's name.
    pub(super) fn opcode(&self) -> &'static str {
        self.headers.opcode().and_then(Opcode::from_byte).map_or("UNKNOWN", Opcode::name)
    }
}

/// Follows the conversation of a stage.
pub(super) struct Watch {
    alice: View,
    bob: View,
    /// What Bob expects next, and what Alice has not sent before.
    expected: Psn,
    fresh: Psn,
}

/// A packet that came to Bob's device.
struct Arrived {
    bytes: Vec<u8>,
    arrival: Arrival,
}

/// One end's capture, and its fault plan run again.
struct View {
    capture: PathBuf,
    seen: usize,
    address: IpAddr,
    number: Qpn,
    faults: Option<Faults>,
}

impl View {
    fn of(end: &End, stage: &Stage) -> Self {
        Self {
            capture: end.capture.clone(),
            seen: 0,
            address: end.address(),
            number: end.pair.number(),
            faults: stage.fault.clone().map(Faults::new),
        }
    }

    /// Frames recorded since the last call.
    fn next(&mut self) -> Result<Vec<Recorded>, Failure> {
        let frames = frames(&self.capture, self.seen)?;
        self.seen += frames.len();
        Ok(frames)
    }

    /// Whether the fault plan takes a packet that has come to this end.
    fn takes(&mut self, packet: &[u8]) -> bool {
        let view = PacketView::of(packet, Direction::In);
        let fate = self.faults.as_mut().map(|faults| faults.fate(Instant::ZERO, &view));
        matches!(fate, Some(Fate::Drop(_)))
    }

    fn is_for(&self, recorded: &Recorded) -> Result<bool, Failure> {
        let flow = Frame::parse(&recorded.bytes)?.flow();
        Ok(flow.is_some_and(|flow| flow.destination == self.address))
    }
}

impl Watch {
    /// Begins with a stage that nothing has happened on.
    pub(super) fn new(stage: &Stage) -> Self {
        let first = stage.alice.endpoint.psn;
        Self {
            alice: View::of(&stage.alice, stage),
            bob: View::of(&stage.bob, stage),
            expected: first,
            fresh: first,
        }
    }

    /// What has been on the wire since the last call.
    pub(super) fn steps(&mut self, stage: &Stage) -> Result<Vec<Step>, Failure> {
        let mut steps = Vec::new();
        let mut sent = Vec::new();
        stage.alice.finish_turn()?;
        for recorded in self.alice.next()? {
            let Some(step) = self.step(&recorded)? else { continue };
            if step.from_alice {
                sent.push((steps.len(), packet_of(&recorded)?.to_vec()));
            }
            steps.push(step);
        }
        let arrived = self.arrivals(stage, sent.len())?;
        let both = align(
            &sent.iter().map(|(_, bytes)| &bytes[..]).collect::<Vec<_>>(),
            &arrived.iter().map(|arrived| &arrived.bytes[..]).collect::<Vec<_>>(),
        );
        for ((place, _), arrival) in sent.iter().zip(both) {
            steps[*place].arrival = arrival.map_or(Arrival::Missing, |at| arrived[at].arrival);
        }
        Ok(steps)
    }

    /// What has come to Bob since the last call. The last repetitions may be on their way still,
    /// so this waits a little for as many as there are to come.
    fn arrivals(&mut self, stage: &Stage, count: usize) -> Result<Vec<Arrived>, Failure> {
        let mut arrived = Vec::new();
        for _ in 0..PATIENCE {
            stage.bob.finish_turn()?;
            for recorded in self.bob.next()? {
                let packet = packet_of(&recorded)?;
                if self.bob.is_for(&recorded)? {
                    arrived.extend(self.arrival(packet));
                }
            }
            if arrived.len() >= count {
                break;
            }
            stage.bob.idle(PAUSE)?;
        }
        Ok(arrived)
    }

    /// What Bob makes of a packet that has come; nothing if it is for somebody who had the address
    /// before.
    fn arrival(&mut self, bytes: &[u8]) -> Option<Arrived> {
        let lost = self.bob.takes(bytes);
        let headers = Packet::parse(bytes).ok()?.headers;
        if headers.destination != self.bob.number {
            return None;
        }
        let arrival = match headers.psn {
            _ if lost => Arrival::Lost,
            psn if psn == self.expected => {
                self.expected = psn.add(span(&headers.message));
                Arrival::Arrived
            }
            psn if psn.is_after(self.expected) => Arrival::OutOfOrder,
            _ => Arrival::Duplicate,
        };
        Some(Arrived { bytes: bytes.to_vec(), arrival })
    }

    /// Reads one frame of Alice's capture; nothing if it does not belong to this conversation.
    fn step(&mut self, recorded: &Recorded) -> Result<Option<Step>, Failure> {
        let from_alice = !self.alice.is_for(recorded)?;
        let bytes = packet_of(recorded)?;
        let lost = !from_alice && self.alice.takes(bytes);
        let ours =
            |packet: &Packet<'_>| from_alice || packet.headers.destination == self.alice.number;
        let Some(packet) = Packet::parse(bytes).ok().filter(ours) else { return Ok(None) };
        if Frame::parse(&recorded.bytes)?.computed_icrc() != bytes.last_chunk().copied() {
            return Err(Failure::bad("a frame of the capture has a wrong ICRC"));
        }
        let headers = packet.headers;
        Ok(Some(Step {
            time: recorded.time,
            from_alice,
            headers,
            length: packet.payload.len(),
            frame: recorded.bytes.len(),
            arrival: if lost { Arrival::Lost } else { Arrival::Arrived },
            resent: from_alice && self.is_repeated(&headers),
        }))
    }

    /// Whether Alice had sent a request before.
    fn is_repeated(&mut self, headers: &Headers) -> bool {
        let after = headers.psn.add(span(&headers.message));
        let repeated = headers.psn.is_before(self.fresh);
        if after.is_after(self.fresh) {
            self.fresh = after;
        }
        repeated
    }
}

/// The RoCE packet in a frame.
fn packet_of(recorded: &Recorded) -> Result<&[u8], Failure> {
    Ok(Frame::parse(&recorded.bytes)?.payload)
}

/// For each packet that was sent its place among those that arrived: the longest common
/// subsequence, and of equal ones the later.
fn align(sent: &[&[u8]], arrived: &[&[u8]]) -> Vec<Option<usize>> {
    let (rows, columns) = (sent.len() + 1, arrived.len() + 1);
    // The common length of the first i and the first j; the walk back from the ends then finds what
    // is later first.
    let mut common = vec![0u32; rows * columns];
    for i in 1..rows {
        for j in 1..columns {
            common[i * columns + j] = if sent[i - 1] == arrived[j - 1] {
                common[(i - 1) * columns + j - 1] + 1
            } else {
                common[(i - 1) * columns + j].max(common[i * columns + j - 1])
            };
        }
    }
    let mut places = vec![None; sent.len()];
    let (mut i, mut j) = (sent.len(), arrived.len());
    while i > 0 && j > 0 {
        if sent[i - 1] == arrived[j - 1] {
            places[i - 1] = Some(j - 1);
            (i, j) = (i - 1, j - 1);
        } else if common[(i - 1) * columns + j] >= common[i * columns + j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    places
}

/// How many PSNs a request takes: a READ has as many as its answer has packets.
fn span(message: &Message) -> u32 {
    match message {
        Message::ReadRequest(reth) => reth.length.div_ceil(PATH_MTU.bytes() as u32).max(1),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(sent: &str, arrived: &str) -> String {
        fn bytes(text: &str) -> Vec<&[u8]> {
            text.as_bytes().chunks(1).collect()
        }
        let places = align(&bytes(sent), &bytes(arrived));
        places.iter().map(|place| place.map_or('-', |at| (b'0' + at as u8) as char)).collect()
    }

    #[test]
    fn what_was_sent_is_found_among_what_arrived() {
        assert_eq!(places("abcd", "abcd"), "0123");
        assert_eq!(places("abcd", "ad"), "0--1");
        assert_eq!(places("abcbcd", "abcd"), "0--123", "of equal ones the later");
        assert_eq!(places("abc", "xabyc"), "124", "what others sent is passed over");
        assert_eq!(places("", "ab"), "");
        assert_eq!(places("ab", ""), "--");
    }
}
