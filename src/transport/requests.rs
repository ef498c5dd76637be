//! Send work requests as packets and completions: what all transports share.

use super::context::{Base, Context};
use super::counters::Counter;
use super::history::{Cause, Failure, PacketKind};
use super::segment::{Class, Piece};
use crate::memory::{Access, Accessor, KeyFault, denied, gather};
use crate::queue::{
    Attachment, Completion, CompletionKind, CompletionStatus, Remote, SendData, SendOperation,
};
use crate::wire::{AtomicEth, Crc, Feth, Immediate, Message, Qpn, Reth, SendTail};

/// What a request is on the wire.
pub(super) const fn class_of(operation: &SendOperation) -> Class {
    match operation {
        SendOperation::Send
        | SendOperation::SendWithImmediate(_)
        | SendOperation::SendWithInvalidate(_)
        | SendOperation::SendTo { .. } => Class::Send,
        SendOperation::Write(_) | SendOperation::WriteWithImmediate(..) => Class::Write,
        SendOperation::Read(_) => Class::Read,
        SendOperation::CompareSwap { .. } | SendOperation::FetchAdd { .. } => Class::Atomic,
        SendOperation::AtomicWrite { .. } => Class::AtomicWrite,
        SendOperation::Flush { .. } => Class::Flush,
        SendOperation::LocalInvalidate(_) | SendOperation::BindWindow(_) => Class::Local,
    }
}

/// Whether the peer's receive completes, and the solicited flag thus means something.
pub(super) const fn consumes_receive(operation: &SendOperation) -> bool {
    matches!(
        operation,
        SendOperation::Send
            | SendOperation::SendWithImmediate(_)
            | SendOperation::SendWithInvalidate(_)
            | SendOperation::SendTo { .. }
            | SendOperation::WriteWithImmediate(..)
    )
}

/// The message of one piece of a request of `length` bytes.
pub(super) fn message_of(operation: &SendOperation, length: u32, piece: &Piece) -> Message {
    match *operation {
        SendOperation::Send => send_message(piece, SendTail::Plain),
        SendOperation::SendWithImmediate(immediate) => {
            send_message(piece, SendTail::Immediate(immediate))
        }
        SendOperation::SendWithInvalidate(key) => send_message(piece, SendTail::Invalidate(key)),
        SendOperation::Write(remote) => write_message(length, piece, remote, None),
        SendOperation::WriteWithImmediate(remote, immediate) => {
            write_message(length, piece, remote, Some(immediate))
        }
        SendOperation::CompareSwap { remote, compare, swap } => Message::CompareSwap(AtomicEth {
            address: remote.address,
            key: remote.key,
            swap_or_add: swap,
            compare,
        }),
        SendOperation::FetchAdd { remote, add } => Message::FetchAdd(AtomicEth {
            address: remote.address,
            key: remote.key,
            swap_or_add: add,
            compare: 0,
        }),
        SendOperation::AtomicWrite { remote, .. } => {
            Message::AtomicWrite(Reth { address: remote.address, key: remote.key, length: 8 })
        }
        SendOperation::Flush { remote, length, placement, selectivity } => {
            let (placement, selectivity) = (placement.bits(), selectivity.code());
            let feth = Feth { reserved: 0, selectivity, placement };
            Message::Flush(feth, Reth { address: remote.address, key: remote.key, length })
        }
        SendOperation::SendTo { immediate, .. } => {
            send_message(piece, immediate.map_or(SendTail::Plain, SendTail::Immediate))
        }
        SendOperation::Read(_)
        | SendOperation::LocalInvalidate(_)
        | SendOperation::BindWindow(_) => {
            unreachable!("a READ is built from its part, a local operation has no packet")
        }
    }
}

const fn send_message(piece: &Piece, tail: SendTail) -> Message {
    match (piece.first, piece.last) {
        (true, true) => Message::SendOnly(tail),
        (true, false) => Message::SendFirst,
        (false, true) => Message::SendLast(tail),
        (false, false) => Message::SendMiddle,
    }
}

fn write_message(
    length: u32,
    piece: &Piece,
    remote: Remote,
    immediate: Option<Immediate>,
) -> Message {
    let reth = Reth { address: remote.address, key: remote.key, length };
    match (piece.first, piece.last) {
        (true, true) => Message::WriteOnly(reth, immediate),
        (true, false) => Message::WriteFirst(reth),
        (false, true) => Message::WriteLast(immediate),
        (false, false) => Message::WriteMiddle,
    }
}

/// How a request's completion names it.
const fn kind_of(operation: &SendOperation) -> CompletionKind {
    match operation {
        SendOperation::Send
        | SendOperation::SendWithImmediate(_)
        | SendOperation::SendWithInvalidate(_)
        | SendOperation::SendTo { .. } => CompletionKind::Send,
        SendOperation::Write(_) | SendOperation::WriteWithImmediate(..) => CompletionKind::Write,
        SendOperation::Read(_) => CompletionKind::Read,
        SendOperation::CompareSwap { .. } => CompletionKind::CompareSwap,
        SendOperation::FetchAdd { .. } => CompletionKind::FetchAdd,
        SendOperation::AtomicWrite { .. } => CompletionKind::AtomicWrite,
        SendOperation::Flush { .. } => CompletionKind::Flush,
        SendOperation::LocalInvalidate(_) => CompletionKind::LocalInvalidate,
        SendOperation::BindWindow(_) => CompletionKind::BindWindow,
    }
}

/// Counts a request that was carried out, whether it gives a completion or not.
pub(super) fn count_finished(ctx: &mut Context<'_>, operation: &SendOperation) {
    match kind_of(operation) {
        CompletionKind::Send => ctx.count(Counter::FinishedSend),
        CompletionKind::Write => ctx.count(Counter::FinishedWrite),
        CompletionKind::Read => ctx.count(Counter::FinishedRead),
        CompletionKind::CompareSwap | CompletionKind::FetchAdd => {
            ctx.count(Counter::FinishedAtomic);
        }
        CompletionKind::AtomicWrite => ctx.count(Counter::FinishedAtomicWrite),
        CompletionKind::Flush => ctx.count(Counter::FinishedFlush),
        _ => {}
    }
}

/// Copies payload of the request at `position`, from `offset` on, into a packet, and sums it if
/// there is a sum.
#[inline]
pub(super) fn read_payload(
    base: &Base,
    ctx: &Context<'_>,
    position: u32,
    offset: u32,
    target: &mut [u8],
    sum: Option<&mut Crc>,
) -> Result<(), KeyFault> {
    if target.is_empty() {
        return Ok(());
    }
    match base.queues.send.data(position) {
        SendData::Inline(words) => {
            SendData::copy_inline(words, offset as usize, target);
            if let Some(sum) = sum {
                sum.update(target);
            }
            Ok(())
        }
        SendData::Segments(segments) => {
            gather(ctx.keys, base.domain, segments.iter(), offset.into(), target, sum)
        }
    }
}

/// Frees the entries before `position`; the last of them stays taken until its completion has been
/// polled, if it gives one.
pub(super) fn release(base: &Base, position: u32, completes: bool) {
    base.queues.send.release(position, completes);
}

/// Puts the completion of a send request into its queue. Returns whether there was room.
#[must_use]
pub(super) fn complete_send(
    base: &Base,
    ctx: &mut Context<'_>,
    id: u64,
    operation: &SendOperation,
    length: u32,
    status: CompletionStatus,
) -> bool {
    let completion = Completion {
        id,
        status,
        kind: kind_of(operation),
        length,
        attachment: Attachment::None,
        queue_pair: base.number(),
        source: Qpn::default(),
        solicited: false,
    };
    ctx.complete(base, &completion)
}

/// What a request's packets are for.
pub(super) const fn packet_kind(operation: &SendOperation) -> PacketKind {
    match kind_of(operation) {
        CompletionKind::Send => PacketKind::Send,
        CompletionKind::Write => PacketKind::Write,
        CompletionKind::Read => PacketKind::ReadRequest,
        CompletionKind::CompareSwap => PacketKind::CompareSwap,
        CompletionKind::FetchAdd => PacketKind::FetchAdd,
        CompletionKind::AtomicWrite => PacketKind::AtomicWrite,
        CompletionKind::Flush => PacketKind::Flush,
        _ => PacketKind::Other,
    }
}

/// The place in the peer's memory that a request names: key and address.
pub(super) const fn remote_of(operation: &SendOperation) -> Option<(u32, u64)> {
    match operation {
        SendOperation::Write(remote)
        | SendOperation::WriteWithImmediate(remote, _)
        | SendOperation::Read(remote)
        | SendOperation::CompareSwap { remote, .. }
        | SendOperation::FetchAdd { remote, .. }
        | SendOperation::AtomicWrite { remote, .. }
        | SendOperation::Flush { remote, .. } => Some((remote.key.value(), remote.address)),
        SendOperation::SendWithInvalidate(key) => Some((key.value(), 0)),
        _ => None,
    }
}

/// Why the payload of the request at `position` cannot be read.
#[cold]
pub(super) fn unreadable(base: &Base, ctx: &Context<'_>, position: u32) -> Cause {
    local_fault(base, ctx, position, Access::NONE)
}

/// Why the memory of the request at `position` cannot be used.
#[cold]
pub(super) fn local_fault(base: &Base, ctx: &Context<'_>, position: u32, need: Access) -> Cause {
    let SendData::Segments(segments) = base.queues.send.data(position) else {
        return Cause::Unknown;
    };
    let denial = denied(ctx.keys, Accessor::local(base.domain), segments.iter(), need);
    denial.map_or(Cause::Unknown, Cause::LocalMemory)
}

/// Takes down that the request at a position, with a number, has failed.
#[cold]
pub(super) fn file(
    base: &Base,
    ctx: &mut Context<'_>,
    (position, id, operation): (u32, u64, &SendOperation),
    status: CompletionStatus,
    cause: Cause,
) {
    let ends = ctx.history.ends(base);
    ctx.file(Failure {
        at: ctx.now,
        status: Some(status),
        id: Some(id),
        kind: Some(kind_of(operation)),
        answered: None,
        cause,
        ends,
        position: Some(position),
    });
}
