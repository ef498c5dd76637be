//! The responder: serves the peer's requests in PSN order, in the specification's order of checks.
//!
//! ```text
//!   request ─▶ PSN ─▶ opcode sequence ─▶ allowed ─▶ resources ─▶ lengths ─▶ keys ─▶ carried out
//!               │ behind: duplicate        │ fault: NAK, queue pair in error      │
//!               │ ahead: NAK once          │ no receive: RNR NAK                  ▼
//!               ▼                          ▼                        MSN, completion, reply noted
//! ```
//!
//! Nothing is sent from here: replies are noted, and `reply.rs` makes them when asked.

use std::collections::VecDeque;

use super::reply::{Answer, Job, Nak, PendingAck};
use crate::memory::{AtomicChange, KeyFault};
use crate::queue::Access;
use crate::transport::assembly::{Assembly, Refusal, Taken, check_allowed};
use crate::transport::context::{Base, Context};
use crate::transport::counters::Counter;
use crate::transport::fault::Fault;
use crate::transport::history::Cause;
use crate::transport::receive::Claim;
use crate::transport::segment::packets_of;
use crate::wire::{AtomicEth, Headers, Message, Msn, Psn, Reth};

/// Whether a NAK has told the peer where to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaiting {
    /// Nothing was lost.
    Next,
    /// A NAK was sent; packets ahead are dropped in silence until the expected one comes.
    AfterNak,
}

/// An answered READ or atomic, kept for duplicates. Never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    first: Psn,
    packets: u32,
    /// Messages finished with this one.
    msn: Msn,
    kind: RecordKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    Read(Reth),
    Atomic {
        original: u64,
    },
    /// ATOMIC WRITE or FLUSH.
    Done,
}

/// What became of a request, for the queue pair to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing to do.
    Fine,
    /// The queue pair goes into error.
    Fault(Fault),
    /// The completion queue had no room.
    Overrun,
}

/// State of the responder.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(in crate::transport) expected: Psn,
    pub(super) msn: Msn,
    awaiting: Awaiting,
    assembly: Assembly,
    records: VecDeque<Record>,
    pub(super) jobs: VecDeque<Job>,
    pub(super) nak: Option<Nak>,
    pub(super) ack: Option<PendingAck>,
}

impl Responder {
    pub(crate) fn new() -> Self {
        Self {
            expected: Psn::default(),
            msn: Msn::default(),
            awaiting: Awaiting::Next,
            assembly: Assembly::new(),
            records: VecDeque::new(),
            jobs: VecDeque::new(),
            nak: None,
            ack: None,
        }
    }

    /// Starts at a PSN (INIT to RTR).
    pub(crate) fn begin(&mut self, psn: Psn) {
        *self = Self::new();
        self.expected = psn;
    }

    /// A request of the peer.
    pub(crate) fn handle_request(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: &[u8],
    ) -> Outcome {
        if headers.psn != self.expected {
            self.handle_other_psn(base, ctx, headers);
            return Outcome::Fine;
        }
        let refusal = match self.carry_out(base, ctx, headers, payload) {
            Ok(()) => {
                self.awaiting = Awaiting::Next;
                self.nak = None;
                if headers.ack_request {
                    self.owe_ack(ctx);
                }
                return Outcome::Fine;
            }
            Err(refusal) => refusal,
        };
        match refusal {
            Refusal::NotReady => {
                self.awaiting = Awaiting::AfterNak;
                self.nak = Some(Nak::NotReady { psn: self.expected });
                Outcome::Fine
            }
            Refusal::Fault(fault) => self.fault(fault),
            Refusal::Overrun => Outcome::Overrun,
        }
    }

    /// An opcode that no request has.
    pub(crate) fn handle_unsupported(
        &mut self,
        ctx: &mut Context<'_>,
        psn: Psn,
        opcode: u8,
    ) -> Outcome {
        if psn == self.expected {
            let cause = Cause::UnsupportedOpcode { opcode: Some(opcode) };
            let fault = ctx.blame(Fault::UnsupportedOpcode, cause);
            return self.fault(fault);
        }
        if psn.is_after(self.expected) {
            self.sequence_error(ctx);
        } else {
            ctx.count(Counter::DropUnexpectedOpcode);
        }
        Outcome::Fine
    }

    fn fault(&mut self, fault: Fault) -> Outcome {
        self.nak = Some(Nak::Error { psn: self.expected, code: fault.nak() });
        self.ack = None;
        Outcome::Fault(fault)
    }

    fn handle_other_psn(&mut self, base: &Base, ctx: &mut Context<'_>, headers: &Headers) {
        if headers.psn.is_after(self.expected) {
            self.sequence_error(ctx);
        } else {
            ctx.count(Counter::DuplicateRequest);
            self.handle_duplicate(base, ctx, headers);
        }
    }

    fn sequence_error(&mut self, ctx: &mut Context<'_>) {
        ctx.count(Counter::OutOfSequence);
        if self.awaiting == Awaiting::Next {
            self.awaiting = Awaiting::AfterNak;
            self.nak = Some(Nak::Sequence { psn: self.expected });
        }
    }

    /// Seen before: SEND and WRITE are acknowledged, READ is carried out again, an atomic is
    /// answered from its record.
    fn handle_duplicate(&mut self, base: &Base, ctx: &mut Context<'_>, headers: &Headers) {
        let job = match headers.message {
            Message::ReadRequest(reth) => self.repeated_read(base, ctx, headers.psn, &reth),
            Message::CompareSwap(_) | Message::FetchAdd(_) => self.repeated_atomic(headers.psn),
            Message::AtomicWrite(_) | Message::Flush(..) => self.repeated_confirmation(headers.psn),
            _ => {
                self.owe_ack(ctx);
                return;
            }
        };
        match job {
            Some(job) => self.insert_job(job),
            None => ctx.count(Counter::DropDuplicateWithoutRecord),
        }
    }

    /// The newest record counts: PSNs come again after 2^24 packets, and an old record may still be
    /// kept then.
    fn record_at(&self, psn: Psn) -> Option<&Record> {
        self.records
            .iter()
            .rev()
            .find(|record| psn.is_within(record.first, record.first.add(record.packets)))
    }

    /// A READ may be repeated from any of its packets on, and only within what was asked first. If
    /// it is not allowed any more there is no answer, and no fault either: most likely its requester
    /// has had the data, the memory's owner knows, and the repetition was long on its way.
    fn repeated_read(
        &self,
        base: &Base,
        ctx: &mut Context<'_>,
        psn: Psn,
        reth: &Reth,
    ) -> Option<Job> {
        let record = self.record_at(psn)?;
        let RecordKind::Read(original) = record.kind else { return None };
        let skipped = u64::from(psn.distance_from(record.first)) * u64::from(base.mtu());
        let address = original.address.wrapping_add(skipped);
        let fits = skipped + u64::from(reth.length) <= u64::from(original.length);
        if reth.address != address || reth.key != original.key || !fits {
            return None;
        }
        check_allowed(base, ctx, Access::REMOTE_READ).ok()?;
        check_read(base, ctx, reth).ok()?;
        let answer = Answer::read(base, *reth);
        Some(Job { psn, msn: record.msn, repeated: true, answer })
    }

    fn repeated_atomic(&self, psn: Psn) -> Option<Job> {
        let record = self.record_at(psn)?;
        let RecordKind::Atomic { original } = record.kind else { return None };
        let answer = Answer::Atomic { original };
        Some(Job { psn, msn: record.msn, repeated: true, answer })
    }

    fn repeated_confirmation(&self, psn: Psn) -> Option<Job> {
        let record = self.record_at(psn).filter(|record| record.kind == RecordKind::Done)?;
        Some(Job { psn, msn: record.msn, repeated: true, answer: Answer::Done })
    }

    /// Jobs stay in PSN order. A repeated request replaces the job that it repeats; if that was the
    /// first answer, the new job still is.
    fn insert_job(&mut self, mut job: Job) {
        let replaced = |pending: &&Job| pending.msn == job.msn;
        job.repeated = self.jobs.iter().filter(replaced).all(|pending| pending.repeated);
        self.jobs.retain(|pending| pending.msn != job.msn);
        let position = self.jobs.iter().position(|pending| job.psn.is_before(pending.psn));
        self.jobs.insert(position.unwrap_or(self.jobs.len()), job);
    }

    fn owe_ack(&mut self, ctx: &Context<'_>) {
        let newest = self.expected.previous();
        let ack = self.ack.get_or_insert_with(|| PendingAck::new(ctx, newest));
        ack.psn = newest;
        ack.at_once |= self.assembly.is_inside_message();
    }

    /// Carries out the expected request, or refuses it before anything was changed.
    fn carry_out(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        let message = &headers.message;
        self.assembly.check_sequence(ctx, message)?;
        self.assembly.check_named_queue(base, ctx)?;
        match *message {
            Message::ReadRequest(reth) => return self.read(base, ctx, reth),
            Message::CompareSwap(eth) => {
                let (compare, swap) = (eth.compare, eth.swap_or_add);
                self.atomic(base, ctx, &eth, AtomicChange::CompareSwap { compare, swap })?;
            }
            Message::FetchAdd(eth) => {
                self.atomic(base, ctx, &eth, AtomicChange::FetchAdd(eth.swap_or_add))?;
            }
            Message::AtomicWrite(reth) => self.atomic_write(base, ctx, &reth, payload)?,
            Message::Flush(feth, reth) => self.flush(base, ctx, &feth, &reth)?,
            _ => {
                let taken = self.assembly.take(base, ctx, message, headers.solicited, payload)?;
                if taken == Taken::Message {
                    self.msn = self.msn.next();
                }
            }
        }
        self.expected = self.expected.next();
        Ok(())
    }

    fn read(&mut self, base: &Base, ctx: &mut Context<'_>, reth: Reth) -> Result<(), Refusal> {
        check_allowed(base, ctx, Access::REMOTE_READ)?;
        self.check_read_resources(base, ctx)?;
        let packets = packets_of(reth.length, base.mtu());
        if u64::from(reth.length) > crate::queue::MAX_MESSAGE || packets > Psn::MAX_SPAN {
            let (announced, arrived) = (reth.length, reth.length.into());
            let cause = Cause::MessageLength { announced, arrived };
            return Err(ctx.blame(Fault::MessageLength, cause).into());
        }
        check_read(base, ctx, &reth)?;
        let first = self.expected;
        self.msn = self.msn.next();
        let msn = self.msn;
        self.remember(base, Record { first, packets, msn, kind: RecordKind::Read(reth) });
        let answer = Answer::read(base, reth);
        self.jobs.push_back(Job { psn: first, msn, repeated: false, answer });
        self.expected = first.add(packets);
        Ok(())
    }

    fn atomic(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        eth: &AtomicEth,
        change: AtomicChange,
    ) -> Result<(), Refusal> {
        check_allowed(base, ctx, Access::REMOTE_ATOMIC)?;
        self.check_read_resources(base, ctx)?;
        let (key, address) = (eth.key.value(), eth.address);
        let original = match address.is_multiple_of(8) {
            true => ctx.keys.atomic(key, base.peer_access(), address, change),
            false => Err(KeyFault::Misaligned),
        };
        let original = original.map_err(|found| match found {
            KeyFault::Misaligned => ctx.blame(Fault::Misaligned, Cause::Misaligned { address }),
            _ => ctx.deny(key, (address, 8), Access::REMOTE_ATOMIC, found),
        })?;
        self.carried_out(base, RecordKind::Atomic { original }, Answer::Atomic { original });
        Ok(())
    }

    /// The expected request, of one packet, was carried out: it is answered, now and for duplicates.
    pub(super) fn carried_out(&mut self, base: &Base, kind: RecordKind, answer: Answer) {
        let psn = self.expected;
        self.msn = self.msn.next();
        let msn = self.msn;
        self.remember(base, Record { first: psn, packets: 1, msn, kind });
        self.jobs.push_back(Job { psn, msn, repeated: false, answer });
    }

    /// A peer may have as many unanswered READs and atomics as max_dest_rd_atomic says.
    pub(super) fn check_read_resources(
        &self,
        base: &Base,
        ctx: &mut Context<'_>,
    ) -> Result<(), Fault> {
        let limit = base.attributes.max_destination_rd_atomic.unwrap_or(0);
        let open = self.jobs.iter().filter(|job| !job.repeated).count();
        if open < usize::from(limit) {
            return Ok(());
        }
        Err(ctx.blame(Fault::TooManyReads, Cause::TooManyReads { limit }))
    }

    /// Keeps a record for duplicates. The peer has seen the answer to the one that it displaces, so
    /// nobody waits for a repeated answer to that.
    fn remember(&mut self, base: &Base, record: Record) {
        let limit = usize::from(base.attributes.max_destination_rd_atomic.unwrap_or(0)).max(1);
        while self.records.len() >= limit {
            let Some(Record { msn, .. }) = self.records.pop_front() else { break };
            self.jobs.retain(|job| job.msn != msn);
        }
        // From the first one on there is room for all: a job belongs to a record.
        self.records.reserve(limit - self.records.len());
        self.jobs.reserve(limit.saturating_sub(self.jobs.len()));
        self.records.push_back(record);
    }

    /// Whether a message, arriving or still to come, has claimed a receive.
    pub(super) fn has_claimed(&self) -> bool {
        self.assembly.has_claimed()
    }

    /// The receive that the arriving message has claimed.
    pub(crate) fn claim(&mut self) -> &mut Claim {
        self.assembly.claim()
    }

    /// Nothing more is owed to the peer.
    pub(crate) fn forget_replies(&mut self) {
        self.jobs.clear();
        self.nak = None;
        self.ack = None;
    }
}

/// Range of a whole READ. The key of an empty one does not matter.
fn check_read(base: &Base, ctx: &mut Context<'_>, reth: &Reth) -> Result<(), Fault> {
    let (key, length) = (reth.key.value(), reth.length as usize);
    if length > 0 {
        ctx.keys
            .span(key, base.peer_access(), reth.address, length, Access::REMOTE_READ)
            .map(drop)
            .map_err(|found| {
                let asked = (reth.address, reth.length.into());
                ctx.deny(key, asked, Access::REMOTE_READ, found)
            })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(first: u32, msn: u32, kind: RecordKind) -> Record {
        Record { first: Psn::new(first), packets: 1, msn: Msn::new(msn), kind }
    }

    #[test]
    fn when_psns_come_again_a_duplicate_is_answered_from_the_newest_record() {
        let mut responder = Responder::new();
        for (msn, original) in [(1, 10), (9_000_000, 20)] {
            responder.records.push_back(record(5, msn, RecordKind::Atomic { original }));
        }
        let job = responder.repeated_atomic(Psn::new(5)).expect("there is a record");
        assert_eq!(job.answer, Answer::Atomic { original: 20 });
        assert_eq!(job.msn, Msn::new(9_000_000));
    }

    #[test]
    fn a_repeated_request_replaces_the_answer_to_it_and_no_other_of_the_same_psn() {
        let mut responder = Responder::new();
        let job = |psn, msn, repeated, original| {
            let answer = Answer::Atomic { original };
            Job { psn: Psn::new(psn), msn: Msn::new(msn), repeated, answer }
        };
        responder.jobs.extend([job(5, 1, false, 10), job(6, 2, false, 11)]);
        responder.insert_job(job(6, 2, true, 11));
        assert_eq!(responder.jobs, [job(5, 1, false, 10), job(6, 2, false, 11)]);
        responder.insert_job(job(4, 7, true, 12));
        assert_eq!(responder.jobs[0], job(4, 7, true, 12));
        assert_eq!(responder.jobs.len(), 3);
    }
}
