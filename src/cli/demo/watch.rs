//! What was on the wire: the recorded frames of both ends, and which of them never arrived.
//!
//! A recorder stands below the faults, so a frame that a fault plan takes from a receiver is in the
//! captures of both ends. Which ones it takes follows from its seed alone: here the same plan is
//! asked again, with the same packets in the same order.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::Serialize;
use uroce::fault::{Direction, Fate, Faults, PacketView};
use uroce::time::Instant;
use uroce::wire::{Frame, Headers, Message, Opcode, Packet, Psn, Qpn};

use super::capture::{Recorded, frames};
use super::stage::{End, PATH_MTU, Stage};
use crate::cli::output::Failure;

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
    /// Of the packets that came to Bob's device and were not yet matched with those that Alice
    /// sent: bytes, and whether they were lost.
    arrivals: VecDeque<(Vec<u8>, bool)>,
    /// What Bob expects next, and what Alice has not sent before.
    expected: Psn,
    fresh: Psn,
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

    fn is_for(&self, frame: &Frame<'_>) -> bool {
        frame.flow().is_some_and(|flow| flow.destination == self.address)
    }
}

impl Watch {
    /// Begins with a stage that nothing has happened on.
    pub(super) fn new(stage: &Stage) -> Self {
        let first = stage.alice.endpoint.psn;
        Self {
            alice: View::of(&stage.alice, stage),
            bob: View::of(&stage.bob, stage),
            arrivals: VecDeque::new(),
            expected: first,
            fresh: first,
        }
    }

    /// What has been on the wire since the last call.
    pub(super) fn steps(&mut self, stage: &Stage) -> Result<Vec<Step>, Failure> {
        // A control call waits for the turn under way, which ends by handing frames to the files.
        stage.alice.context.counters()?;
        stage.bob.context.counters()?;
        let sent = self.alice.next()?;
        self.note_arrivals()?;
        sent.iter().filter_map(|frame| self.step(frame).transpose()).collect()
    }

    fn note_arrivals(&mut self) -> Result<(), Failure> {
        for recorded in self.bob.next()? {
            let frame = Frame::parse(&recorded.bytes)?;
            if self.bob.is_for(&frame) {
                let lost = self.bob.takes(frame.payload);
                self.arrivals.push_back((frame.payload.to_vec(), lost));
            }
        }
        Ok(())
    }

    /// Reads one frame of Alice's capture; nothing if it does not belong to this conversation.
    fn step(&mut self, recorded: &Recorded) -> Result<Option<Step>, Failure> {
        let frame = Frame::parse(&recorded.bytes)?;
        let from_alice = !self.alice.is_for(&frame);
        let ours =
            |packet: &Packet<'_>| from_alice || packet.headers.destination == self.alice.number;
        let Some(packet) = Packet::parse(frame.payload).ok().filter(ours) else {
            // Somebody's who had our address before; the plan is asked about it all the same.
            self.alice.takes(frame.payload);
            return Ok(None);
        };
        if frame.computed_icrc() != frame.payload.last_chunk().copied() {
            return Err(Failure::bad("a frame of the capture has a wrong ICRC"));
        }
        let (arrival, resent) = if from_alice {
            self.request(frame.payload, &packet.headers)
        } else {
            let lost = self.alice.takes(frame.payload);
            (if lost { Arrival::Lost } else { Arrival::Arrived }, false)
        };
        Ok(Some(Step {
            time: recorded.time,
            from_alice,
            headers: packet.headers,
            length: packet.payload.len(),
            frame: recorded.bytes.len(),
            arrival,
            resent,
        }))
    }

    /// What became of a request of Alice, and whether she had sent it before.
    fn request(&mut self, bytes: &[u8], headers: &Headers) -> (Arrival, bool) {
        let after = headers.psn.add(span(&headers.message));
        let resent = headers.psn.is_before(self.fresh);
        if after.is_after(self.fresh) {
            self.fresh = after;
        }
        // Before it may be what came late for somebody who had our address before.
        let place = self.arrivals.iter().position(|(arrived, _)| *arrived == bytes);
        let arrived = place.and_then(|place| self.arrivals.drain(..=place).next_back());
        let arrival = match arrived {
            Some((_, true)) => Arrival::Lost,
            // Not there yet: a repetition that nobody waits for any more.
            None => Arrival::Arrived,
            Some((_, false)) if headers.psn == self.expected => {
                self.expected = after;
                Arrival::Arrived
            }
            Some((_, false)) if headers.psn.is_after(self.expected) => Arrival::OutOfOrder,
            Some((_, false)) => Arrival::Duplicate,
        };
        (arrival, resent)
    }
}

/// How many PSNs a request takes: a READ has as many as its answer has packets.
fn span(message: &Message) -> u32 {
    match message {
        Message::ReadRequest(reth) => reth.length.div_ceil(PATH_MTU.bytes() as u32).max(1),
        _ => 1,
    }
}
