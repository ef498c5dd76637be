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
use crate::memory::{AtomicChange, KeyFault, scatter};
use crate::queue::{Access, Attachment, Completion, CompletionKind, CompletionStatus, ReceiveHead};
use crate::transport::context::{Base, Context};
use crate::transport::counters::Counter;
use crate::transport::fault::Fault;
use crate::transport::segment::packets_of;
use crate::wire::{
    AtomicEth, Headers, Immediate, Message, Msn, Operation, Psn, Qpn, Reth, Rkey, SendTail,
};

/// The message of which some packets have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inbound {
    /// None: the next request packet starts one.
    Idle,
    /// A SEND into the oldest posted receive, so many bytes so far.
    Send { received: u32 },
    /// A WRITE, so many bytes so far.
    Write { reth: Reth, received: u32 },
}

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
enum RecordKind {
    Read(Reth),
    Atomic { original: u64 },
}

/// Why a request was not carried out.
enum Refusal {
    /// No receive is posted.
    NotReady,
    Fault(Fault),
    /// The completion queue had no room.
    Overrun,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
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
    pub(super) expected: Psn,
    pub(super) msn: Msn,
    awaiting: Awaiting,
    inbound: Inbound,
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
            inbound: Inbound::Idle,
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
    pub(crate) fn handle_unsupported(&mut self, ctx: &mut Context<'_>, psn: Psn) -> Outcome {
        if psn == self.expected {
            return self.fault(Fault::UnsupportedOpcode);
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
            Message::AtomicWrite(_) | Message::Flush(..) => None,
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

    fn record_at(&self, psn: Psn) -> Option<&Record> {
        self.records
            .iter()
            .find(|record| psn.is_within(record.first, record.first.add(record.packets)))
    }

    /// A READ may be repeated from any of its packets on, and only within what was asked first. If
    /// it is not allowed any more there is no answer, and no fault either: most likely its requester
    /// has had the data, the memory's owner knows, and the repetition was long on its way.
    fn repeated_read(&self, base: &Base, ctx: &Context<'_>, psn: Psn, reth: &Reth) -> Option<Job> {
        let record = self.record_at(psn)?;
        let RecordKind::Read(original) = record.kind else { return None };
        let skipped = u64::from(psn.distance_from(record.first)) * u64::from(base.mtu());
        let address = original.address.wrapping_add(skipped);
        let fits = skipped + u64::from(reth.length) <= u64::from(original.length);
        if reth.address != address || reth.key != original.key || !fits {
            return None;
        }
        check_read_allowed(base).and_then(|()| check_read(base, ctx, reth)).ok()?;
        let answer = Answer::read(*reth, base.mtu());
        Some(Job { psn, msn: record.msn, repeated: true, answer })
    }

    fn repeated_atomic(&self, psn: Psn) -> Option<Job> {
        let record = self.record_at(psn)?;
        let RecordKind::Atomic { original } = record.kind else { return None };
        let answer = Answer::Atomic { original };
        Some(Job { psn, msn: record.msn, repeated: true, answer })
    }

    /// Jobs stay in PSN order. A repeated request replaces the job that it repeats; if that was the
    /// first answer, the new job still is.
    fn insert_job(&mut self, mut job: Job) {
        if let Some(record) = self.record_at(job.psn).copied() {
            let end = record.first.add(record.packets);
            let replaced = |pending: &Job| pending.psn.is_within(record.first, end);
            job.repeated = self.jobs.iter().filter(|job| replaced(job)).all(|job| job.repeated);
            self.jobs.retain(|pending| !replaced(pending));
        }
        let position = self.jobs.iter().position(|pending| job.psn.is_before(pending.psn));
        self.jobs.insert(position.unwrap_or(self.jobs.len()), job);
    }

    fn owe_ack(&mut self, ctx: &Context<'_>) {
        let newest = self.expected.previous();
        let ack = self.ack.get_or_insert_with(|| PendingAck::new(ctx, newest));
        ack.psn = newest;
        ack.at_once |= self.inbound != Inbound::Idle;
    }

    /// Carries out the expected request, or refuses it before anything was changed.
    fn carry_out(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        self.check_sequence(&headers.message)?;
        let solicited = headers.solicited;
        match headers.message {
            Message::SendFirst | Message::SendMiddle => {
                self.send_part(base, ctx, payload, Part::Full)?;
            }
            Message::SendLast(tail) => {
                self.send_end(base, ctx, payload, Part::Last, tail, solicited)?;
            }
            Message::SendOnly(tail) => {
                self.send_end(base, ctx, payload, Part::Only, tail, solicited)?;
            }
            Message::WriteFirst(reth) => self.write_first(base, ctx, reth, payload)?,
            Message::WriteMiddle => self.write_part(base, ctx, payload, Part::Full)?,
            Message::WriteLast(immediate) => {
                self.write_last(base, ctx, payload, immediate, solicited)?;
            }
            Message::WriteOnly(reth, immediate) => {
                self.write_only(base, ctx, reth, payload, immediate, solicited)?;
            }
            Message::ReadRequest(reth) => return self.read(base, ctx, reth),
            Message::CompareSwap(eth) => {
                let (compare, swap) = (eth.compare, eth.swap_or_add);
                self.atomic(base, ctx, &eth, AtomicChange::CompareSwap { compare, swap })?;
            }
            Message::FetchAdd(eth) => {
                self.atomic(base, ctx, &eth, AtomicChange::FetchAdd(eth.swap_or_add))?;
            }
            _ => return Err(Fault::UnsupportedOpcode.into()),
        }
        self.expected = self.expected.next();
        Ok(())
    }

    fn check_sequence(&self, message: &Message) -> Result<(), Fault> {
        let operation = message.operation();
        let fits = match self.inbound {
            Inbound::Send { .. } => {
                matches!(message, Message::SendMiddle | Message::SendLast(_))
            }
            Inbound::Write { .. } => {
                matches!(message, Message::WriteMiddle | Message::WriteLast(_))
            }
            Inbound::Idle => !matches!(
                operation,
                Some(
                    Operation::SendMiddle
                        | Operation::SendLast
                        | Operation::SendLastWithImmediate
                        | Operation::SendLastWithInvalidate
                        | Operation::WriteMiddle
                        | Operation::WriteLast
                        | Operation::WriteLastWithImmediate
                )
            ),
        };
        fits.then_some(()).ok_or(Fault::OpcodeSequence)
    }

    /// Puts a packet of a SEND into the oldest posted receive.
    fn send_part(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        payload: &[u8],
        part: Part,
    ) -> Result<(), Refusal> {
        self.check_send(base, payload, part)?;
        self.place_send(base, ctx, payload)
    }

    /// The oldest posted receive, if it takes so much more.
    fn check_send(&self, base: &Base, payload: &[u8], part: Part) -> Result<ReceiveHead, Refusal> {
        let receive = base.queues.receive.first().ok_or(Refusal::NotReady)?;
        part.check(payload.len(), base.mtu())?;
        let total = u64::from(self.received()) + payload.len() as u64;
        let fits = total <= u64::from(receive.length);
        if fits { Ok(receive) } else { Err(Fault::ReceiveTooSmall.into()) }
    }

    /// Bytes of the SEND that is arriving.
    const fn received(&self) -> u32 {
        match self.inbound {
            Inbound::Send { received } => received,
            _ => 0,
        }
    }

    fn place_send(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        let received = self.received();
        let segments = base.queues.receive.first_segments().iter();
        scatter(ctx.keys, base.domain, segments, received.into(), payload)
            .map_err(|_| Fault::ReceiveProtection)?;
        self.inbound = Inbound::Send { received: received + payload.len() as u32 };
        Ok(())
    }

    fn send_end(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        payload: &[u8],
        part: Part,
        tail: SendTail,
        solicited: bool,
    ) -> Result<(), Refusal> {
        let receive = self.check_send(base, payload, part)?;
        if let SendTail::Invalidate(key) = tail {
            check_invalidation(base, ctx, key)?;
        }
        self.place_send(base, ctx, payload)?;
        let received = self.received();
        self.inbound = Inbound::Idle;
        let attachment = match tail {
            SendTail::Plain => Attachment::None,
            SendTail::Immediate(immediate) => Attachment::Immediate(immediate),
            SendTail::Invalidate(key) => {
                // Checked above, and nothing has run in between.
                let _ = ctx.keys.invalidate(key.value(), base.domain);
                Attachment::Invalidated(key)
            }
        };
        self.msn = self.msn.next();
        let kind = CompletionKind::Receive;
        self.complete_receive(base, ctx, receive, kind, received, attachment, solicited)
    }

    fn write_first(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        reth: Reth,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        check_write_allowed(base)?;
        Part::Full.check(payload.len(), base.mtu())?;
        check_write(base, ctx, &reth)?;
        self.inbound = Inbound::Write { reth, received: 0 };
        let written = self.write_part(base, ctx, payload, Part::Full);
        if written.is_err() {
            self.inbound = Inbound::Idle;
        }
        written
    }

    fn write_last(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        payload: &[u8],
        immediate: Option<Immediate>,
        solicited: bool,
    ) -> Result<(), Refusal> {
        let receive = claim_receive(base, immediate)?;
        let Inbound::Write { reth, received } = self.inbound else { return Ok(()) };
        if u64::from(received) + payload.len() as u64 != u64::from(reth.length) {
            return Err(Fault::MessageLength.into());
        }
        self.write_part(base, ctx, payload, Part::Last)
            .map_err(|refusal| claimed(refusal, receive))?;
        self.inbound = Inbound::Idle;
        self.write_done(base, ctx, receive, reth.length, solicited)
    }

    fn write_only(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        reth: Reth,
        payload: &[u8],
        immediate: Option<Immediate>,
        solicited: bool,
    ) -> Result<(), Refusal> {
        check_write_allowed(base)?;
        let receive = claim_receive(base, immediate)?;
        Part::Only.check(payload.len(), base.mtu())?;
        if payload.len() as u64 != u64::from(reth.length) {
            return Err(Fault::MessageLength.into());
        }
        check_write(base, ctx, &reth).map_err(|refusal| claimed(refusal, receive))?;
        write_at(base, ctx, &reth, 0, payload).map_err(|fault| claimed(fault.into(), receive))?;
        self.write_done(base, ctx, receive, reth.length, solicited)
    }

    /// Writes one packet of the WRITE that is arriving.
    fn write_part(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        payload: &[u8],
        part: Part,
    ) -> Result<(), Refusal> {
        part.check(payload.len(), base.mtu())?;
        let Inbound::Write { reth, received } = self.inbound else { return Ok(()) };
        let total = u64::from(received) + payload.len() as u64;
        if total > u64::from(reth.length) {
            return Err(Fault::MessageLength.into());
        }
        write_at(base, ctx, &reth, received, payload)?;
        self.inbound = Inbound::Write { reth, received: total as u32 };
        Ok(())
    }

    fn write_done(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        receive: Option<(ReceiveHead, Immediate)>,
        length: u32,
        solicited: bool,
    ) -> Result<(), Refusal> {
        self.msn = self.msn.next();
        let Some((receive, immediate)) = receive else { return Ok(()) };
        let kind = CompletionKind::ReceiveWriteWithImmediate;
        let attachment = Attachment::Immediate(immediate);
        self.complete_receive(base, ctx, receive, kind, length, attachment, solicited)
    }

    fn read(&mut self, base: &Base, ctx: &mut Context<'_>, reth: Reth) -> Result<(), Refusal> {
        check_read_allowed(base)?;
        self.check_read_resources(base)?;
        if u64::from(reth.length) > crate::queue::MAX_MESSAGE {
            return Err(Fault::MessageLength.into());
        }
        let packets = packets_of(reth.length, base.mtu());
        if packets > Psn::MAX_SPAN {
            return Err(Fault::MessageLength.into());
        }
        check_read(base, ctx, &reth)?;
        let first = self.expected;
        self.msn = self.msn.next();
        let msn = self.msn;
        self.remember(base, Record { first, packets, msn, kind: RecordKind::Read(reth) });
        let answer = Answer::read(reth, base.mtu());
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
        if !base.access().contains(Access::REMOTE_ATOMIC) {
            return Err(Fault::NotAllowed.into());
        }
        self.check_read_resources(base)?;
        if !eth.address.is_multiple_of(8) {
            return Err(Fault::Misaligned.into());
        }
        let original = ctx.keys.atomic(eth.key.value(), base.domain, eth.address, change);
        let original = original.map_err(|fault| match fault {
            KeyFault::Misaligned => Fault::Misaligned,
            _ => Fault::RemoteAccess,
        })?;
        let psn = self.expected;
        let kind = RecordKind::Atomic { original };
        self.msn = self.msn.next();
        let msn = self.msn;
        self.remember(base, Record { first: psn, packets: 1, msn, kind });
        let answer = Answer::Atomic { original };
        self.jobs.push_back(Job { psn, msn, repeated: false, answer });
        Ok(())
    }

    /// A peer may have as many unanswered READs and atomics as max_dest_rd_atomic says.
    fn check_read_resources(&self, base: &Base) -> Result<(), Fault> {
        let limit = usize::from(base.attributes.max_destination_rd_atomic.unwrap_or(0));
        let open = self.jobs.iter().filter(|job| !job.repeated).count();
        if open >= limit { Err(Fault::TooManyReads) } else { Ok(()) }
    }

    /// Keeps a record for duplicates. The peer has seen the answer to the one that it displaces, so
    /// nobody waits for a repeated answer to that.
    fn remember(&mut self, base: &Base, record: Record) {
        let limit = usize::from(base.attributes.max_destination_rd_atomic.unwrap_or(0));
        while self.records.len() >= limit.max(1) {
            let Some(Record { first, packets, .. }) = self.records.pop_front() else { break };
            self.jobs.retain(|job| !job.psn.is_within(first, first.add(packets)));
        }
        self.records.push_back(record);
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one completion")]
    fn complete_receive(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        receive: ReceiveHead,
        kind: CompletionKind,
        length: u32,
        attachment: Attachment,
        solicited: bool,
    ) -> Result<(), Refusal> {
        base.queues.receive.release_first();
        let completion = Completion {
            id: receive.id,
            status: CompletionStatus::Success,
            kind,
            length,
            attachment,
            queue_pair: base.number(),
            source: Qpn::default(),
            solicited,
        };
        let room = ctx.complete(&base.queues.receive_completions, &completion);
        room.then_some(()).ok_or(Refusal::Overrun)
    }

    /// Ends all receives: the oldest with `first` if a message had claimed it, all others as
    /// flushed. Returns whether the completion queue had room.
    pub(crate) fn flush(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        first: Option<CompletionStatus>,
    ) -> bool {
        let mut status = first.unwrap_or(CompletionStatus::WorkRequestFlushed);
        let mut room = true;
        while let Some(receive) = base.queues.receive.first() {
            base.queues.receive.release_first();
            let completion = Completion {
                id: receive.id,
                status,
                kind: CompletionKind::Receive,
                length: 0,
                attachment: Attachment::None,
                queue_pair: base.number(),
                source: Qpn::default(),
                solicited: false,
            };
            room &= ctx.complete(&base.queues.receive_completions, &completion);
            status = CompletionStatus::WorkRequestFlushed;
        }
        room
    }

    /// Nothing more is owed to the peer.
    pub(crate) fn forget_replies(&mut self) {
        self.jobs.clear();
        self.nak = None;
        self.ack = None;
    }
}

/// Which packet of a message a length belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// FIRST or MIDDLE: exactly the path MTU.
    Full,
    /// LAST: 1 byte to the path MTU.
    Last,
    /// ONLY: 0 bytes to the path MTU.
    Only,
}

impl Part {
    fn check(self, length: usize, mtu: u32) -> Result<(), Fault> {
        let mtu = mtu as usize;
        let right = match self {
            Self::Full => length == mtu,
            Self::Last => (1..=mtu).contains(&length),
            Self::Only => length <= mtu,
        };
        right.then_some(()).ok_or(Fault::PacketLength)
    }
}

/// The receive that a WRITE with immediate will consume.
fn claim_receive(
    base: &Base,
    immediate: Option<Immediate>,
) -> Result<Option<(ReceiveHead, Immediate)>, Refusal> {
    let Some(immediate) = immediate else { return Ok(None) };
    let receive = base.queues.receive.first().ok_or(Refusal::NotReady)?;
    Ok(Some((receive, immediate)))
}

/// A key fault after a receive was claimed also ends that receive.
fn claimed(refusal: Refusal, receive: Option<(ReceiveHead, Immediate)>) -> Refusal {
    match (refusal, receive) {
        (Refusal::Fault(Fault::RemoteAccess), Some(_)) => {
            Refusal::Fault(Fault::RemoteAccessWithReceive)
        }
        (refusal, _) => refusal,
    }
}

fn check_write_allowed(base: &Base) -> Result<(), Fault> {
    let allowed = base.access().contains(Access::REMOTE_WRITE);
    allowed.then_some(()).ok_or(Fault::NotAllowed)
}

fn check_read_allowed(base: &Base) -> Result<(), Fault> {
    let allowed = base.access().contains(Access::REMOTE_READ);
    allowed.then_some(()).ok_or(Fault::NotAllowed)
}

/// Range of a whole READ. The key of an empty one does not matter.
fn check_read(base: &Base, ctx: &Context<'_>, reth: &Reth) -> Result<(), Fault> {
    let (key, length) = (reth.key.value(), reth.length as usize);
    if length > 0 {
        ctx.keys
            .span(key, base.domain, reth.address, length, Access::REMOTE_READ)
            .map_err(|_| Fault::RemoteAccess)?;
    }
    Ok(())
}

/// Range of a whole WRITE. The key of an empty one does not matter.
fn check_write(base: &Base, ctx: &Context<'_>, reth: &Reth) -> Result<(), Refusal> {
    if u64::from(reth.length) > crate::queue::MAX_MESSAGE {
        return Err(Fault::MessageLength.into());
    }
    if reth.length > 0 {
        let (key, length) = (reth.key.value(), reth.length as usize);
        ctx.keys
            .span(key, base.domain, reth.address, length, Access::REMOTE_WRITE)
            .map_err(|_| Fault::RemoteAccess)?;
    }
    Ok(())
}

/// Writes one packet's payload `offset` bytes into a WRITE's target, whose key is looked up anew:
/// it may have been invalidated since the first packet.
fn write_at(
    base: &Base,
    ctx: &Context<'_>,
    reth: &Reth,
    offset: u32,
    payload: &[u8],
) -> Result<(), Fault> {
    if payload.is_empty() {
        return Ok(());
    }
    let address = reth.address.checked_add(offset.into()).ok_or(Fault::RemoteAccess)?;
    let key = reth.key.value();
    let span = ctx
        .keys
        .span(key, base.domain, address, payload.len(), Access::REMOTE_WRITE)
        .map_err(|_| Fault::RemoteAccess)?;
    span.write(payload);
    Ok(())
}

fn check_invalidation(base: &Base, ctx: &Context<'_>, key: Rkey) -> Result<(), Refusal> {
    ctx.keys
        .can_invalidate(key.value(), base.domain)
        .map_err(|_| Refusal::Fault(Fault::RemoteAccess))
}
