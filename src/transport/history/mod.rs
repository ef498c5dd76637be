//! A queue pair's flight recorder: its last events in a ring of fixed size, and the facts of its
//! errors, taken down when they happen.
//!
//! ```text
//!   every step ──▶ ring of 32 entries of 24 bytes; an event that continues one of the last three
//!                  is added to that one, so a whole stream of WRITEs and ACKs is two entries
//!   an error   ──▶ Failure: which work request, and the Cause with every number that matters
//! ```
//!
//! Nothing here is text: [`crate::words`] makes sentences of it, long after the lock is released.

mod cause;
mod event;
mod ring;

pub use cause::{Cause, FlushCause, MessagePart, NotReady, Refused, Unanswered, WrongResponse};
pub use event::{HistoryEvent, PacketKind, Record, TimerKind};
pub(crate) use ring::Ring;

use crate::queue::{CompletionKind, CompletionStatus, PathMtu, QueuePairKind};
use crate::time::Instant;
use crate::wire::{Aeth, Headers, Message, NakCode, Psn, Qpn, Syndrome};
use std::net::IpAddr;

use super::context::Base;
use super::counters::Counter;

/// Failures that are kept: the last of a queue pair's life. RC has one, UC and UD may go on.
const KEPT: usize = 4;

/// A work request or a connection that has failed, with the facts as they were then.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// When.
    pub at: Instant,
    /// How the work request completed that tells of it; nothing if an event alone does.
    pub status: Option<CompletionStatus>,
    /// The application's number for that work request.
    pub id: Option<u64>,
    /// What kind of work request it was.
    pub kind: Option<CompletionKind>,
    /// What we answered the peer, if its request was at fault.
    pub answered: Option<NakCode>,
    /// Why.
    pub cause: Cause,
    /// Between whom.
    pub ends: Ends,
    /// Its place in the send queue.
    pub(crate) position: Option<u32>,
}

/// The two ends of a queue pair, and what they send each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Our queue pair.
    pub number: Qpn,
    /// Transport.
    pub transport: QueuePairKind,
    /// Our address, if the queue pair has a peer.
    pub own: Option<IpAddr>,
    /// The peer's address.
    pub peer: Option<IpAddr>,
    /// The peer's queue pair.
    pub peer_number: Option<Qpn>,
    /// Our path MTU.
    pub path_mtu: Option<PathMtu>,
    /// Bytes of the largest payload that a packet from the peer has had; 0 if none had any.
    pub largest_received: u32,
    /// Whether any packet has come from the peer at all.
    pub heard: bool,
}

/// Who is told of a failure, and how.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub(crate) status: Option<CompletionStatus>,
    pub(crate) id: Option<u64>,
    pub(crate) kind: Option<CompletionKind>,
    pub(crate) answered: Option<NakCode>,
}

/// What a queue pair remembers, as it is handed out.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// Its last events, oldest first.
    pub records: Vec<Record>,
    /// Its last failures, oldest first.
    pub failures: Vec<Failure>,
    /// The failure that has ended the queue pair, if one has: others of its work requests were
    /// flushed because of it.
    pub root: Option<usize>,
    /// When and why queues were flushed without any failure.
    pub flushed: Option<FlushCause>,
    /// Why a faulty message was last dropped (UC and UD, where that is no failure).
    pub dropped: Option<Cause>,
    /// Between whom.
    pub ends: Ends,
}

/// The recorder itself.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) ring: Ring,
    /// What the step in progress has found wrong; taken by the failure that follows from it.
    found: Option<Box<Cause>>,
    /// What was found when a faulty message was last dropped.
    dropped: Option<Box<Cause>>,
    failures: Vec<Failure>,
    root: Option<u8>,
    flushed: Option<FlushCause>,
    largest_received: u32,
    heard: bool,
}

impl Recorder {
    /// Forgets everything (RESET).
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A packet of the peer has come to this queue pair.
    pub(crate) fn received(&mut self, now: Instant, kind: PacketKind, psn: Psn, payload: usize) {
        self.heard = true;
        self.largest_received = self.largest_received.max(payload as u32);
        self.ring.at_hand(psn);
        self.ring.packet(now, HistoryEvent::RECEIVED, kind, psn, 1);
    }

    /// An answer of the peer has come.
    pub(crate) fn answered(&mut self, now: Instant, headers: &Headers, payload: usize) {
        if let Message::Acknowledge(Aeth { syndrome, .. }) = headers.message
            && !matches!(syndrome.meaning(), Syndrome::Ack(_))
        {
            self.heard = true;
            self.ring.at_hand(headers.psn);
            return self.ring.received_nak(now, syndrome, headers.psn);
        }
        self.received(now, PacketKind::of(&headers.message), headers.psn, payload);
    }

    /// Packets have gone out: the one at `psn`, which stands for `psns` of them.
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        kind: PacketKind,
        psn: Psn,
        psns: u32,
        again: bool,
    ) {
        let event = if again { HistoryEvent::SENT_AGAIN } else { HistoryEvent::SENT };
        self.ring.packet(now, event, kind, psn, psns);
    }

    /// Counts that say why a packet was dropped or ignored are events; others are not.
    #[inline]
    pub(crate) fn counted(&mut self, now: Instant, counter: Counter) {
        if counter.is_drop() {
            self.ring.dropped(now, counter, None);
        }
    }

    /// The step has found something wrong; what follows from it is decided further up.
    #[cold]
    pub(crate) fn find(&mut self, cause: Cause) {
        self.found = Some(Box::new(cause));
    }

    /// A step begins, which has found nothing yet.
    #[inline]
    pub(crate) fn begin_step(&mut self) {
        self.found = None;
    }

    /// What was found wrong in this step.
    pub(crate) fn take_found(&mut self) -> Option<Cause> {
        self.found.take().map(|cause| *cause)
    }

    /// A message was dropped for what was found. Returns the reason if the last one was of another
    /// kind.
    #[cold]
    pub(crate) fn dropped_for_found(&mut self) -> Option<Cause> {
        let last = std::mem::replace(&mut self.dropped, self.found.take());
        let kind = |cause: &Option<Box<Cause>>| cause.as_deref().map(std::mem::discriminant);
        self.dropped.as_deref().copied().filter(|_| kind(&last) != kind(&self.dropped))
    }

    /// Takes a failure down.
    #[cold]
    pub(crate) fn file(&mut self, failure: Failure) {
        if self.failures.len() == KEPT {
            // The root is the newest when there is one, so the oldest is none.
            self.failures.remove(0);
            self.root = self.root.and_then(|index| index.checked_sub(1));
        }
        self.failures.push(failure);
    }

    /// The failure of the request at this place of the send queue, or else the newest one, is why
    /// everything else is flushed.
    pub(crate) fn settle_on(&mut self, position: Option<u32>) {
        let of_request = |failure: &Failure| failure.position == position;
        let found = self.failures.iter().rposition(of_request);
        let root = found.or_else(|| self.failures.len().checked_sub(1));
        self.root = root.map(|index| index as u8);
        self.flushed = None;
    }

    /// The queues are flushed, and no failure is why.
    pub(crate) fn flushed_by(&mut self, cause: FlushCause) {
        if self.root.is_none() {
            self.flushed = Some(cause);
        }
    }

    /// The queue pair works again (SQE to RTS): what fails from here on has other reasons.
    pub(crate) fn recovered(&mut self) {
        self.root = None;
        self.flushed = None;
    }

    /// The ends of the queue pair of `base`.
    pub(crate) fn ends(&self, base: &Base) -> Ends {
        let flow = base.peer.map(|peer| peer.flow);
        let asked = base.attributes.address.map(|address| address.destination);
        Ends {
            number: base.number(),
            transport: base.queues.kind(),
            own: flow.map(|flow| flow.source),
            peer: flow.map(|flow| flow.destination).or(asked),
            peer_number: base.attributes.destination,
            path_mtu: base.attributes.path_mtu,
            largest_received: self.largest_received,
            heard: self.heard,
        }
    }

    /// A copy for others.
    pub(crate) fn snapshot(&self, base: &Base) -> History {
        History {
            records: self.ring.records().collect(),
            failures: self.failures.clone(),
            root: self.root.map(usize::from),
            flushed: self.flushed,
            dropped: self.dropped.as_deref().copied(),
            ends: self.ends(base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_is_small() {
        assert_eq!(size_of::<Ring>(), 32 * 24 + 8, "32 entries of 24 bytes, and where it stands");
        let all = size_of::<Recorder>();
        println!("Ring {} bytes, Recorder {all} bytes", size_of::<Ring>());
        assert!(all <= 1024, "{all} bytes for each queue pair");
    }
}
