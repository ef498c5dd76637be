//! Requests of the peer that were at fault, as the responder sees it.

use super::number::bytes;
use super::{Explanation, denial, peer};
use crate::engine::{Cause, Denial, Ends, Failure, MessagePart};
use crate::queue::{PathMtu, QueuePairKind};

/// The sentence of a fault.
pub(super) fn fault(failure: &Failure) -> Explanation {
    answered(of_cause(&failure.cause, failure.id, &failure.ends), failure)
}

/// The sentence of what was wrong with a message, whatever came of it; `receive` is the work
/// request that met it, if one was spent.
pub(super) fn of_cause(cause: &Cause, receive: Option<u64>, ends: &Ends) -> Explanation {
    match cause {
        Cause::ReceiveTooSmall { capacity, arrived } => receive_too_small(*capacity, *arrived, ends),
        Cause::ReceiveMemory(denied) => receive_memory(receive, denied),
        Cause::RemoteMemory(denied) => remote_memory(denied, ends),
        Cause::ReadFailed(denied) => read_failed(denied, ends),
        Cause::FlushFailed(denied) => flush_failed(denied, ends),
        Cause::SharedQueue { other_domain, changed } => shared_queue(*other_domain, *changed, ends),
        Cause::NotAllowed { need, allowed } => Explanation::new(
            "not_allowed",
            format!("{} asked for what this queue pair does not allow: {need} is needed, its access flags are {allowed}", peer(ends)),
        )
        .advice(format!("give the queue pair {need} with modify (ACCESS_FLAGS)")),
        Cause::UnsupportedOpcode { opcode } => {
            let name = opcode.map_or_else(String::new, |opcode| format!(" 0x{opcode:02x}"));
            Explanation::new("unsupported_opcode", format!("{} sent opcode{name}, which is reserved or not supported here", peer(ends)))
        }
        Cause::OpcodeSequence { received, starts, inside } => {
            let place = if *starts { "the start of" } else { "a later part of" };
            let state = match inside {
                Some(kind) => format!("in the middle of a {kind}"),
                None => "though none had begun".to_owned(),
            };
            Explanation::new("opcode_sequence", format!("{} sent {place} a {received} {state}", peer(ends)))
                .because("the peer is at fault")
                .because("PSNs were set alike by chance after one end was reset alone")
        }
        Cause::PacketLength { length, path_mtu, part } => packet_length(*length, *path_mtu, *part, ends),
        Cause::MessageLength { announced, arrived } => Explanation::new(
            "message_length",
            format!("{} announced {} and sent {arrived}, or more than 2147483648", peer(ends), bytes(u64::from(*announced))),
        )
        .because("the peer is at fault"),
        Cause::Misaligned { address } => Explanation::new(
            "misaligned",
            format!("{} asked for an atomic operation at {address:#x}, which is not a multiple of 8", peer(ends)),
        ),
        Cause::TooManyReads { limit } => Explanation::new(
            "too_many_reads",
            format!("{} has more READs and atomics under way than the {limit} that this queue pair serves (max_dest_rd_atomic)", peer(ends)),
        )
        .advice("the peer's max_rd_atomic must not be larger than max_dest_rd_atomic here")
        .fact("max_dest_rd_atomic", *limit),
        Cause::CompletionQueueFull { capacity } => Explanation::new(
            "completion_queue_full",
            format!("a completion queue of {capacity} entries had no room"),
        )
        .advice("make it as large as all its work queues together, or poll it more often")
        .fact("capacity", *capacity),
        _ => Explanation::new("unknown", "it left no details".to_owned()),
    }
}

/// What the peer was told.
fn answered(explanation: Explanation, failure: &Failure) -> Explanation {
    let Some(code) = failure.answered else { return explanation };
    let nak = format!("0x{:02x}", 0x60 | code.to_code());
    let told = format!("the peer was answered with NAK {nak}, and this queue pair is in error");
    let detail = match &explanation.detail {
        Some(detail) => format!("{detail}; {told}"),
        None => told,
    };
    explanation.detail(detail).fact("nak", nak)
}

fn receive_too_small(capacity: u32, arrived: u64, ends: &Ends) -> Explanation {
    let headline = format!(
        "a message from {} has at least {}, and the receive for it only {capacity}",
        peer(ends),
        bytes(arrived)
    );
    let explanation = Explanation::new("receive_too_small", headline);
    let explanation = if ends.transport == QueuePairKind::Ud {
        explanation.because("a UD receive needs 40 bytes more than the message, which count here")
    } else {
        explanation
    };
    explanation
        .because("the peer sends more than was agreed")
        .advice("post receives as large as the largest message")
        .fact("capacity", capacity)
        .fact("arrived", arrived)
}

fn receive_memory(receive: Option<u64>, denied: &Denial) -> Explanation {
    let (asked, reason) = (denial::asked(denied), denial::reason(denied));
    let receive = receive.map_or_else(|| "a receive".to_owned(), |id| format!("receive {id}"));
    let headline = format!("{receive} names {asked}, but {reason}");
    let explanation = Explanation::new("receive_memory", headline)
        .advice("correct the segment, or register the memory with LOCAL_WRITE");
    denial::facts(explanation, denied)
}

fn remote_memory(denied: &Denial, ends: &Ends) -> Explanation {
    let (peer, asked, reason) = (peer(ends), denial::asked(denied), denial::reason(denied));
    let headline = format!("{peer} asked for {asked}, but {reason}");
    let explanation = Explanation::new("remote_memory", headline)
        .advice("tell the peer the right key, address and length, and register with what it needs");
    denial::facts(explanation, denied)
}

fn read_failed(denied: &Denial, ends: &Ends) -> Explanation {
    let (peer, asked, reason) = (peer(ends), denial::asked(denied), denial::reason(denied));
    let headline = format!(
        "a READ of {peer} was being answered, {asked}, when its memory went away: {reason}"
    );
    let explanation = Explanation::new("read_failed", headline)
        .advice("deregister memory only when no peer reads it any more");
    denial::facts(explanation, denied)
}

fn flush_failed(denied: &Denial, ends: &Ends) -> Explanation {
    let headline = format!(
        "{} asked to make {} survive a loss of power, and the system could not write it back",
        peer(ends),
        denial::asked(denied)
    );
    let explanation = Explanation::new("flush_failed", headline)
        .advice("see whether the disk behind the memory is full or damaged");
    denial::facts(explanation, denied)
}

/// XRC.
fn shared_queue(other_domain: bool, changed: bool, ends: &Ends) -> Explanation {
    let what = match (other_domain, changed) {
        (true, _) => "a shared receive queue of another XRC domain than this queue pair's",
        (_, true) => "another shared receive queue than the message began with",
        _ => "a shared receive queue that does not exist",
    };
    Explanation::new("shared_queue", format!("{} named {what}", peer(ends)))
        .advice("tell the peer the number of a shared receive queue of this XRC domain")
}

/// Nearly always a path MTU that differs.
fn packet_length(length: u32, path_mtu: u32, part: MessagePart, ends: &Ends) -> Explanation {
    let (place, rule) = match part {
        MessagePart::Full => ("a first or middle packet", format!("must have exactly {path_mtu}")),
        MessagePart::Last => ("a last packet", format!("must have 1 to {path_mtu}")),
        MessagePart::Only => ("an only packet", format!("may have up to {path_mtu}")),
    };
    let headline =
        format!("{} sent {place} with {}, which {rule}", peer(ends), bytes(length.into()));
    let theirs = match (part, PathMtu::from_bytes(length as usize)) {
        (MessagePart::Full, Some(mtu)) => format!("the peer's is {}", mtu.bytes()),
        _ => "the peer's is another".to_owned(),
    };
    Explanation::new("packet_length", headline)
        .because(format!("path MTU mismatch: ours is {path_mtu}, {theirs}"))
        .advice("give both ends the same path MTU")
        .fact("packet_length", length)
}
