//! Replies: what the responder owes, sent in PSN order.
//!
//! READ responses and atomic replies come first; a NAK or ACK, whose PSN lies behind them, waits,
//! since a requester takes an ACK beyond an outstanding READ as a missing response. An ACK that is
//! due before such a reply is absorbed by it.
//!
//! A plain ACK is held until the application's next post, the end of the next turn, or 5 µs,
//! whichever comes first: an ACK datagram before the answer doubles a ping-pong (measured: 11.8 µs
//! against 6.9 with the ACK after it). One that is asked for inside of a message is not held.

use super::responder::Responder;
use crate::memory::{Accessor, KeyFault};
use crate::queue::Access;
use crate::time::{Instant, MICROSECOND};
use crate::transport::burst::BurstWriter;
use crate::transport::context::{Base, Context};
use crate::transport::counters::Counter;
use crate::transport::fault::Fault;
use crate::transport::history::{Cause, PacketKind};
use crate::transport::segment::packets_of;
use crate::wire::{Aeth, Crc, Headers, Message, Msn, NakCode, Psn, Reth, RnrTimer, Syndrome};

/// How long a plain ACK is held at most.
pub(crate) const ACK_HOLD: u64 = 5 * MICROSECOND;

/// A reply that carries data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// PSN of its first packet.
    pub(super) psn: Psn,
    /// Messages finished with this one. Not those that came later: a requester may complete
    /// requests by this number, and must not complete one whose data is still to come.
    pub(super) msn: Msn,
    /// The request was answered before. Its requester may have seen that answer and gone on, so it
    /// does not count among those that may be open.
    pub(super) repeated: bool,
    pub(super) answer: Answer,
}

/// What a reply carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// READ responses, `next` of `packets` still to send, as far as `access` reaches.
    Read { reth: Reth, access: Accessor, packets: u32, next: u32 },
    /// What an atomic found.
    Atomic { original: u64 },
    /// An ATOMIC WRITE or a FLUSH is done.
    Done,
}

impl Answer {
    /// The answer to the READ at hand.
    pub(super) fn read(base: &Base, reth: Reth) -> Self {
        let packets = packets_of(reth.length, base.mtu());
        Self::Read { reth, access: base.peer_access(), packets, next: 0 }
    }
}

impl Job {
    /// PSN after its last packet.
    const fn end(&self) -> Psn {
        match self.answer {
            Answer::Read { packets, .. } => self.psn.add(packets),
            Answer::Atomic { .. } | Answer::Done => self.psn.next(),
        }
    }
}

/// A negative acknowledgement that is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nak {
    Sequence { psn: Psn },
    NotReady { psn: Psn },
    Error { psn: Psn, code: NakCode },
}

/// A plain acknowledgement that is owed; what it acknowledges is decided when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingAck {
    /// What it has to acknowledge at least.
    pub(super) psn: Psn,
    /// The message goes on: the application has nothing to post yet, and the peer's window waits.
    pub(super) at_once: bool,
    turn: u64,
    due: Instant,
}

impl PendingAck {
    pub(super) fn new(ctx: &Context<'_>, psn: Psn) -> Self {
        Self { psn, at_once: false, turn: ctx.turn, due: ctx.now + ACK_HOLD }
    }

    fn may_leave(&self, ctx: &Context<'_>) -> bool {
        self.at_once || self.turn < ctx.turn || self.due <= ctx.now
    }
}

impl Responder {
    /// Whether a reply can leave now.
    pub(crate) fn has_reply(&self, ctx: &Context<'_>) -> bool {
        !self.jobs.is_empty()
            || self.nak.is_some()
            || self.ack.is_some_and(|ack| ack.may_leave(ctx))
    }

    /// Whether anything is owed, now or later.
    pub(crate) fn owes_reply(&self) -> bool {
        !self.jobs.is_empty() || self.nak.is_some() || self.ack.is_some()
    }

    /// Whether one of the replies that are owed carries the payload of a READ.
    pub(crate) fn owes_payload(&self) -> bool {
        self.jobs.iter().any(|job| matches!(job.answer, Answer::Read { .. }))
    }

    /// Whether something is owed that does not wait for the application.
    pub(crate) fn owes_urgent(&self) -> bool {
        !self.jobs.is_empty() || self.nak.is_some() || self.ack.is_some_and(|ack| ack.at_once)
    }

    /// Puts replies into the burst. A READ whose data cannot be read any more is a fault.
    pub(crate) fn fill(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        writer: &mut BurstWriter<'_>,
    ) -> Result<(), Fault> {
        while let Some(job) = self.jobs.front().copied() {
            let finished = match job.answer {
                Answer::Read { .. } => self.fill_read(base, ctx, writer)?,
                Answer::Atomic { original } => {
                    let kind = PacketKind::AtomicResponse;
                    let message = Message::AtomicAcknowledge(self.acks(base, job.msn), original);
                    self.add_answer(base, ctx, writer, message, kind, &job)
                }
                Answer::Done => {
                    let kind = PacketKind::ReadResponse;
                    let message = Message::ReadResponseOnly(self.acks(base, job.msn));
                    self.add_answer(base, ctx, writer, message, kind, &job)
                }
            };
            if !finished {
                return Ok(());
            }
            self.jobs.pop_front();
            if self.ack.is_some_and(|ack| ack.psn.is_before(job.end())) {
                self.ack = None;
            }
        }
        self.fill_acknowledgement(base, ctx, writer);
        Ok(())
    }

    /// Adds responses of the READ at the front. Returns whether all of them are sent.
    fn fill_read(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        writer: &mut BurstWriter<'_>,
    ) -> Result<bool, Fault> {
        loop {
            let Some(aeth) = self.jobs.front().map(|job| self.acks(base, job.msn)) else {
                return Ok(true);
            };
            let Some(Job { psn, repeated, answer, .. }) = self.jobs.front_mut() else {
                return Ok(true);
            };
            let Answer::Read { reth, access, packets, next } = answer else { return Ok(true) };
            let access = *access;
            let offset = *next * base.mtu();
            let length = (reth.length - offset).min(base.mtu()) as usize;
            let message = response_message(*next, *packets, aeth);
            let headers = base.headers(message, psn.add(*next));
            if !writer.fits(&headers, length) {
                return Ok(false);
            }
            let added = writer.add(&headers, length, |target, sum| {
                read_response(ctx, access, reth, offset, target, sum)
            });
            if added.is_err() && *repeated {
                self.jobs.pop_front();
                ctx.count(Counter::DropDuplicateWithoutRecord);
                return Ok(false);
            }
            if let Err(fault) = added {
                let (key, asked) = (reth.key.value(), (reth.address, u64::from(reth.length)));
                let length = reth.length as usize;
                let need = Access::REMOTE_READ;
                let span = ctx.keys.span(key, access, reth.address, length, need);
                let found = span.err().unwrap_or(KeyFault::Unmapped);
                let denial = ctx.keys.denial(key, asked, need, found);
                ctx.history.find(Cause::ReadFailed(denial));
                let psn = headers.psn;
                self.jobs.clear();
                self.nak = Some(Nak::Error { psn, code: fault.nak() });
                return Err(fault);
            }
            ctx.count(Counter::SentPackets);
            ctx.history.sent(ctx.now, PacketKind::ReadResponse, headers.psn, 1, *repeated);
            *next += 1;
            if *next == *packets {
                return Ok(true);
            }
        }
    }

    fn fill_acknowledgement(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        writer: &mut BurstWriter<'_>,
    ) {
        if let Some(nak) = self.nak {
            let timer = RnrTimer::new(base.attributes.min_rnr_timer.unwrap_or(0));
            let (psn, syndrome, counter) = match nak {
                Nak::Sequence { psn } => {
                    (psn, Syndrome::Nak(NakCode::PsnSequenceError), Counter::SentSequenceNak)
                }
                Nak::NotReady { psn } => (psn, Syndrome::RnrNak(timer), Counter::SentRnrNak),
                Nak::Error { psn, code } => (psn, Syndrome::Nak(code), Counter::SentErrorNak),
            };
            let message = Message::Acknowledge(Aeth { syndrome, msn: self.msn });
            if self.add(base, ctx, writer, message, psn) {
                ctx.history.ring.sent_nak(ctx.now, syndrome, psn);
                ctx.count(counter);
                self.nak = None;
                self.ack = None;
            }
        } else if self.ack.is_some_and(|ack| ack.may_leave(ctx)) {
            let message = Message::Acknowledge(self.acks(base, self.msn));
            if self.add(base, ctx, writer, message, self.expected.previous()) {
                ctx.count(Counter::SentAck);
                let newest = self.expected.previous();
                ctx.history.sent(ctx.now, PacketKind::Acknowledge, newest, 1, false);
                self.ack = None;
            }
        }
    }

    /// What an answer says that acknowledges up to message `msn`.
    fn acks(&self, base: &Base, msn: Msn) -> Aeth {
        Aeth { syndrome: Syndrome::Ack(self.credits(base, msn)), msn }
    }

    /// Adds the answer of a job, which is one packet, if it fits.
    fn add_answer(
        &self,
        base: &Base,
        ctx: &mut Context<'_>,
        writer: &mut BurstWriter<'_>,
        message: Message,
        kind: PacketKind,
        job: &Job,
    ) -> bool {
        let added = self.add(base, ctx, writer, message, job.psn);
        if added {
            ctx.history.sent(ctx.now, kind, job.psn, 1, job.repeated);
        }
        added
    }

    /// Adds a packet without payload if it fits.
    fn add(
        &self,
        base: &Base,
        ctx: &mut Context<'_>,
        writer: &mut BurstWriter<'_>,
        message: Message,
        psn: Psn,
    ) -> bool {
        let headers: Headers = base.headers(message, psn);
        if !writer.fits(&headers, 0) {
            return false;
        }
        let added: Result<(), std::convert::Infallible> = writer.add(&headers, 0, |_, _| Ok(()));
        ctx.count(Counter::SentPackets);
        added.is_ok()
    }
}

const fn response_message(index: u32, packets: u32, aeth: Aeth) -> Message {
    match (index == 0, index + 1 == packets) {
        (true, true) => Message::ReadResponseOnly(aeth),
        (true, false) => Message::ReadResponseFirst(aeth),
        (false, true) => Message::ReadResponseLast(aeth),
        (false, false) => Message::ReadResponseMiddle,
    }
}

/// Copies response data into a packet; the key is looked up for each packet. On-demand memory that
/// is not mapped is an access error as long as no response has left, as a wrong key is.
fn read_response(
    ctx: &Context<'_>,
    access: Accessor,
    reth: &Reth,
    offset: u32,
    target: &mut [u8],
    sum: Option<&mut Crc>,
) -> Result<(), Fault> {
    if target.is_empty() {
        return Ok(());
    }
    let address = reth.address.checked_add(offset.into()).ok_or(Fault::ReadFailed)?;
    let key = reth.key.value();
    let span = ctx.keys.span(key, access, address, target.len(), Access::REMOTE_READ);
    let read = span.map_err(|_| Fault::ReadFailed)?.read(target, sum);
    read.map_err(|_| if offset == 0 { Fault::RemoteAccess } else { Fault::ReadFailed })
}
