//! The message that is arriving: SENDs go to posted receives, WRITEs to memory. RC and UC share
//! this; they differ in what a PSN out of order and a refusal lead to.

use super::context::{Base, Context};
use super::fault::Fault;
use super::history::{Cause, MessagePart as Part, PacketKind};
use super::receive::Claim;
use crate::memory::{Accessor, KeyFault, denied, scatter};
use crate::queue::{Access, Attachment, Completion, CompletionKind, CompletionStatus, MAX_MESSAGE};
use crate::wire::{Immediate, Message, Operation, Qpn, Reth, Rkey, SendTail, Srqn};

/// The message of which some packets have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inbound {
    /// None: the next packet starts one.
    Idle,
    /// A SEND into the claimed receive, so many bytes so far.
    Send { received: u32 },
    /// A WRITE, so many bytes so far.
    Write { reth: Reth, received: u32 },
}

/// Why a packet was not taken. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No receive is posted.
    NotReady,
    /// It is faulty.
    Fault(Fault),
    /// The completion queue had no room.
    Overrun,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// What a packet was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A part of a message.
    Part,
    /// The end of a message.
    Message,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Assembly {
    inbound: Inbound,
    claim: Claim,
    /// The shared receive queue that the arriving message names (XRC).
    named: Option<Srqn>,
}

impl Assembly {
    pub(crate) fn new() -> Self {
        Self { inbound: Inbound::Idle, claim: Claim::default(), named: None }
    }

    /// The receive that the arriving message has claimed.
    pub(crate) fn claim(&mut self) -> &mut Claim {
        &mut self.claim
    }

    /// Whether a receive is claimed.
    pub(crate) fn has_claimed(&self) -> bool {
        self.claim.is_held()
    }

    /// Forgets a message of which parts are missing; its receive serves the next one.
    pub(crate) fn abandon(&mut self) {
        self.inbound = Inbound::Idle;
    }

    /// Whether a message has begun and not ended.
    pub(crate) fn is_inside_message(&self) -> bool {
        self.inbound != Inbound::Idle
    }

    /// What is arriving.
    const fn inside(&self) -> Option<PacketKind> {
        match self.inbound {
            Inbound::Idle => None,
            Inbound::Send { .. } => Some(PacketKind::Send),
            Inbound::Write { .. } => Some(PacketKind::Write),
        }
    }

    /// Whether the packet fits where the arriving message stands.
    pub(crate) fn check_sequence(
        &self,
        ctx: &mut Context<'_>,
        message: &Message,
    ) -> Result<(), Fault> {
        let fits = match self.inbound {
            Inbound::Send { .. } => {
                matches!(message, Message::SendMiddle | Message::SendLast(_))
            }
            Inbound::Write { .. } => {
                matches!(message, Message::WriteMiddle | Message::WriteLast(_))
            }
            Inbound::Idle => starts_message(message),
        };
        let cause = || Cause::OpcodeSequence {
            received: PacketKind::of(message),
            starts: starts_message(message),
            inside: self.inside(),
        };
        fits.then_some(()).ok_or_else(|| ctx.blame(Fault::OpcodeSequence, cause()))
    }

    /// Whether the packet names a shared receive queue that it may reach (XRC), the same one as the
    /// packets of its message before it.
    pub(crate) fn check_named_queue(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
    ) -> Result<(), Fault> {
        let named = base.named_queue().map_err(|fault| {
            let other_domain = fault == Fault::XrcDomain;
            ctx.blame(fault, Cause::SharedQueue { other_domain, changed: false })
        })?;
        if self.is_inside_message() && named != self.named {
            let cause = Cause::SharedQueue { other_domain: false, changed: true };
            return Err(ctx.blame(Fault::NoSuchSharedQueue, cause));
        }
        self.named = named;
        Ok(())
    }

    /// Takes a packet of a SEND or WRITE that fits the sequence.
    pub(crate) fn take(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        message: &Message,
        solicited: bool,
        payload: &[u8],
    ) -> Result<Taken, Refusal> {
        match *message {
            Message::SendFirst | Message::SendMiddle => {
                self.check_send(base, ctx, payload, Part::Full)?;
                self.place_send(base, ctx, payload)?;
                return Ok(Taken::Part);
            }
            Message::SendLast(tail) => {
                self.send_end(base, ctx, payload, Part::Last, tail, solicited)?;
            }
            Message::SendOnly(tail) => {
                self.send_end(base, ctx, payload, Part::Only, tail, solicited)?;
            }
            Message::WriteFirst(reth) => {
                self.write_first(base, ctx, reth, payload)?;
                return Ok(Taken::Part);
            }
            Message::WriteMiddle => {
                self.write_part(base, ctx, payload, Part::Full)?;
                return Ok(Taken::Part);
            }
            Message::WriteLast(immediate) => {
                self.write_last(base, ctx, payload, immediate, solicited)?;
            }
            Message::WriteOnly(reth, immediate) => {
                self.write_only(base, ctx, reth, payload, immediate, solicited)?;
            }
            _ => {
                let cause = Cause::UnsupportedOpcode { opcode: None };
                return Err(ctx.blame(Fault::UnsupportedOpcode, cause).into());
            }
        }
        Ok(Taken::Message)
    }

    /// Whether a receive is there that takes so much more; it is claimed then.
    fn check_send(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        payload: &[u8],
        part: Part,
    ) -> Result<(), Refusal> {
        let capacity = self.claim.claim(base, ctx).ok_or(Refusal::NotReady)?;
        part.check(ctx, payload.len(), base.mtu())?;
        let total = u64::from(self.received()) + payload.len() as u64;
        let fits = total <= u64::from(capacity);
        fits.then_some(()).ok_or_else(|| {
            let cause = Cause::ReceiveTooSmall { capacity, arrived: total };
            ctx.blame(Fault::ReceiveTooSmall, cause).into()
        })
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
    ) -> Result<(), Fault> {
        let received = self.received();
        let segments = self.claim.segments();
        let domain = self.claim.domain(base);
        scatter(ctx.keys, domain, segments, received.into(), payload)
            .map_err(|_| blame_receive(base, ctx, &self.claim))?;
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
        self.check_send(base, ctx, payload, part)?;
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
                let domain = base.served_domain();
                let _ = ctx.keys.invalidate(key.value(), domain, base.number());
                Attachment::Invalidated(key)
            }
        };
        let kind = CompletionKind::Receive;
        self.complete(base, ctx, kind, received, attachment, solicited)
    }

    fn write_first(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        reth: Reth,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        check_write_allowed(base, ctx)?;
        Part::Full.check(ctx, payload.len(), base.mtu())?;
        check_write(base, ctx, &reth)?;
        self.inbound = Inbound::Write { reth, received: 0 };
        let written = self.write_part(base, ctx, payload, Part::Full);
        if written.is_err() {
            self.inbound = Inbound::Idle;
        }
        written
    }

    /// Writes one packet of the WRITE that is arriving.
    fn write_part(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        payload: &[u8],
        part: Part,
    ) -> Result<(), Refusal> {
        part.check(ctx, payload.len(), base.mtu())?;
        let Inbound::Write { reth, received } = self.inbound else { return Ok(()) };
        let total = u64::from(received) + payload.len() as u64;
        if total > u64::from(reth.length) {
            return Err(blame_length(ctx, &reth, total));
        }
        write_at(base, ctx, &reth, received, payload)?;
        self.inbound = Inbound::Write { reth, received: total as u32 };
        Ok(())
    }

    fn write_last(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        payload: &[u8],
        immediate: Option<Immediate>,
        solicited: bool,
    ) -> Result<(), Refusal> {
        self.claim_for(base, ctx, immediate)?;
        let Inbound::Write { reth, received } = self.inbound else { return Ok(()) };
        let total = u64::from(received) + payload.len() as u64;
        if total != u64::from(reth.length) {
            return Err(blame_length(ctx, &reth, total));
        }
        self.write_part(base, ctx, payload, Part::Last)
            .map_err(|refusal| claimed(refusal, immediate))?;
        self.inbound = Inbound::Idle;
        self.write_done(base, ctx, immediate, reth.length, solicited)
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
        check_write_allowed(base, ctx)?;
        self.claim_for(base, ctx, immediate)?;
        Part::Only.check(ctx, payload.len(), base.mtu())?;
        if payload.len() as u64 != u64::from(reth.length) {
            return Err(blame_length(ctx, &reth, payload.len() as u64));
        }
        // The packet is the whole message, so checking it as it is written checks everything.
        write_at(base, ctx, &reth, 0, payload).map_err(|fault| claimed(fault.into(), immediate))?;
        self.write_done(base, ctx, immediate, reth.length, solicited)
    }

    /// Claims the receive that a WRITE with immediate will consume.
    fn claim_for(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        immediate: Option<Immediate>,
    ) -> Result<(), Refusal> {
        if immediate.is_some() {
            self.claim.claim(base, ctx).ok_or(Refusal::NotReady)?;
        }
        Ok(())
    }

    fn write_done(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        immediate: Option<Immediate>,
        length: u32,
        solicited: bool,
    ) -> Result<(), Refusal> {
        let Some(immediate) = immediate else { return Ok(()) };
        let kind = CompletionKind::ReceiveWriteWithImmediate;
        let attachment = Attachment::Immediate(immediate);
        self.complete(base, ctx, kind, length, attachment, solicited)
    }

    fn complete(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        kind: CompletionKind,
        length: u32,
        attachment: Attachment,
        solicited: bool,
    ) -> Result<(), Refusal> {
        let completion = Completion {
            id: 0,
            status: CompletionStatus::Success,
            kind,
            length,
            attachment,
            queue_pair: base.number(),
            source: Qpn::default(),
            solicited,
        };
        let room = self.claim.complete(base, ctx, completion);
        room.then_some(()).ok_or(Refusal::Overrun)
    }
}

fn starts_message(message: &Message) -> bool {
    !matches!(
        message.operation(),
        Some(
            Operation::SendMiddle
                | Operation::SendLast
                | Operation::SendLastWithImmediate
                | Operation::SendLastWithInvalidate
                | Operation::WriteMiddle
                | Operation::WriteLast
                | Operation::WriteLastWithImmediate
        )
    )
}

impl Part {
    fn check(self, ctx: &mut Context<'_>, length: usize, path_mtu: u32) -> Result<(), Fault> {
        let mtu = path_mtu as usize;
        let right = match self {
            Self::Full => length == mtu,
            Self::Last => (1..=mtu).contains(&length),
            Self::Only => length <= mtu,
        };
        right.then_some(()).ok_or_else(|| {
            let cause = Cause::PacketLength { length: length as u32, path_mtu, part: self };
            ctx.blame(Fault::PacketLength, cause)
        })
    }
}

/// A key fault after a receive was claimed also ends that receive.
fn claimed(refusal: Refusal, immediate: Option<Immediate>) -> Refusal {
    match (refusal, immediate) {
        (Refusal::Fault(Fault::RemoteAccess), Some(_)) => {
            Refusal::Fault(Fault::RemoteAccessWithReceive)
        }
        (refusal, _) => refusal,
    }
}

fn check_write_allowed(base: &Base, ctx: &mut Context<'_>) -> Result<(), Fault> {
    check_allowed(base, ctx, Access::REMOTE_WRITE)
}

/// Whether the queue pair lets the peer do what takes this right.
pub(crate) fn check_allowed(base: &Base, ctx: &mut Context<'_>, need: Access) -> Result<(), Fault> {
    let allowed = base.access();
    allowed
        .contains(need)
        .then_some(())
        .ok_or_else(|| ctx.blame(Fault::NotAllowed, Cause::NotAllowed { need, allowed }))
}

/// The message's bytes are not as many as it has announced.
#[cold]
fn blame_length(ctx: &mut Context<'_>, reth: &Reth, arrived: u64) -> Refusal {
    let cause = Cause::MessageLength { announced: reth.length, arrived };
    ctx.blame(Fault::MessageLength, cause).into()
}

/// The claimed receive's own memory cannot be written.
#[cold]
fn blame_receive(base: &Base, ctx: &mut Context<'_>, claim: &Claim) -> Fault {
    let who = Accessor::local(claim.domain(base));
    let denial = denied(ctx.keys, who, claim.segments(), Access::LOCAL_WRITE);
    let cause = denial.map_or(Cause::Unknown, Cause::ReceiveMemory);
    ctx.blame(Fault::ReceiveProtection, cause)
}

/// Range of a whole WRITE. The key of an empty one does not matter.
fn check_write(base: &Base, ctx: &mut Context<'_>, reth: &Reth) -> Result<(), Refusal> {
    if u64::from(reth.length) > MAX_MESSAGE {
        return Err(blame_length(ctx, reth, reth.length.into()));
    }
    if reth.length > 0 {
        let (key, length) = (reth.key.value(), reth.length as usize);
        ctx.keys
            .span(key, base.peer_access(), reth.address, length, Access::REMOTE_WRITE)
            .map(drop)
            .map_err(|found| {
                let asked = (reth.address, reth.length.into());
                ctx.deny(key, asked, Access::REMOTE_WRITE, found)
            })?;
    }
    Ok(())
}

/// Writes one packet's payload `offset` bytes into a WRITE's target, whose key is looked up anew:
/// it may have been invalidated since the first packet.
fn write_at(
    base: &Base,
    ctx: &mut Context<'_>,
    reth: &Reth,
    offset: u32,
    payload: &[u8],
) -> Result<(), Fault> {
    if payload.is_empty() {
        return Ok(());
    }
    let (key, length) = (reth.key.value(), payload.len());
    let written = match reth.address.checked_add(offset.into()) {
        Some(address) => ctx
            .keys
            .span(key, base.peer_access(), address, length, Access::REMOTE_WRITE)
            .and_then(|span| span.write(payload)),
        None => Err(KeyFault::OutOfBounds),
    };
    written.map_err(|found| {
        let asked = (reth.address, reth.length.into());
        ctx.deny(key, asked, Access::REMOTE_WRITE, found)
    })
}

fn check_invalidation(base: &Base, ctx: &mut Context<'_>, key: Rkey) -> Result<(), Refusal> {
    let key = key.value();
    ctx.keys
        .can_invalidate(key, base.served_domain(), base.number())
        .map_err(|found| ctx.deny(key, (0, 0), Access::INVALIDATE, found).into())
}
