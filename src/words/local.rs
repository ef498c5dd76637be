//! Work requests of ours that were wrong in themselves.

use super::number::bytes;
use super::{Explanation, denial};
use crate::engine::{Cause, Failure};
use crate::memory::{BindFault, WindowBind};

/// The sentence, if the failure is one of these.
pub(super) fn local(failure: &Failure) -> Option<Explanation> {
    Some(match &failure.cause {
        Cause::LocalMemory(denied) => denial::facts(
            Explanation::new(
                "local_memory",
                format!(
                    "work request {} names {}, but {}",
                    failure.id.unwrap_or_default(),
                    denial::asked(denied),
                    denial::reason(denied)
                ),
            )
            .advice("correct the segment, or register the memory with what it needs"),
            denied,
        ),
        Cause::CannotInvalidate(denied) => denial::facts(
            Explanation::new(
                "cannot_invalidate",
                format!("key 0x{:08x} cannot be invalidated: {}", denied.key, denial::reason(denied)),
            )
            .advice("only fast-registered regions and type 2 windows can be invalidated"),
            denied,
        ),
        Cause::CannotBind { fault, bind } => cannot_bind(*fault, bind),
        Cause::AtomicLength { length } => Explanation::new(
            "atomic_length",
            format!("an atomic operation needs segments of 8 bytes for the old value, not of {length}"),
        )
        .fact("length", *length),
        Cause::NoReads { kind } => Explanation::new(
            "no_reads",
            format!("{kind} cannot be sent: max_rd_atomic of this queue pair is 0"),
        )
        .advice("set max_rd_atomic to 1 or more on the way to RTS, as the peer's max_dest_rd_atomic"),
        Cause::TooManyPackets { length, path_mtu } => too_many_packets(*length, *path_mtu),
        Cause::DatagramTooLong { length, path_mtu } => Explanation::new(
            "datagram_too_long",
            format!("a datagram of {} does not fit one packet of {path_mtu}", bytes(u64::from(*length))),
        )
        .because("UD messages are one packet each; the interface's MTU decides how large")
        .advice("send less at a time, or use RC or UC")
        .fact("length", *length),
        Cause::NoAddressHandle => Explanation::new(
            "no_address_handle",
            "the datagram's address handle does not exist any more, or belongs to another protection domain".to_owned(),
        )
        .advice("keep the address handle until the send has completed"),
        _ => return None,
    })
}

fn cannot_bind(fault: BindFault, bind: &WindowBind) -> Explanation {
    let (reason, advice) = why_not_bound(fault);
    let what = super::call::window(bind);
    Explanation::new("cannot_bind", format!("{what} cannot be bound: {reason}"))
        .advice(advice)
        .fact("window", bind.key().to_string())
        .fact("region", bind.region.to_string())
        .fact("length", bind.length)
}

/// The rule that forbids it, and what to do.
fn why_not_bound(fault: BindFault) -> (&'static str, &'static str) {
    match fault {
        BindFault::NoSuchWindow => ("there is no such window", "bind it while it is allocated"),
        BindFault::WrongKind => (
            "windows of type 1 are bound by the call, those of type 2B by a posted request",
            "use the way of the window's type",
        ),
        BindFault::WrongDomain => (
            "queue pair, window and region do not lie in one protection domain",
            "make all three in one protection domain",
        ),
        BindFault::AlreadyBound => (
            "it is bound already, and type 2B must be invalidated first",
            "invalidate the window's key before binding anew",
        ),
        BindFault::NoLength => (
            "length 0 unbinds windows of type 1 only",
            "give a length, or invalidate the window's key to end what it grants",
        ),
        BindFault::Rights => (
            "windows do not have one of these rights",
            "give only rights of peers, and ZERO_BASED only for type 2B",
        ),
        BindFault::NoSuchRegion => (
            "there is no such region, or its key was invalidated",
            "name the local key of a region that is registered",
        ),
        BindFault::NotBindable => (
            "the region was registered without MW_BIND",
            "register the region with MW_BIND, and with LOCAL_WRITE if peers are to change it",
        ),
        BindFault::NeedsLocalWrite => (
            "peers are to change memory that was registered without LOCAL_WRITE",
            "register the region with LOCAL_WRITE",
        ),
        BindFault::OutOfBounds => {
            ("the range is not inside the region", "give a range that is inside")
        }
        BindFault::NotFlushable => (
            "peers are to flush memory that was not registered for it",
            "register the region with the FLUSH right, or leave that out of the window's",
        ),
        BindFault::OnDemandAtomic => (
            "atomic operations cannot reach on-demand memory",
            "leave REMOTE_ATOMIC out, or register the memory without ON_DEMAND",
        ),
    }
}

fn too_many_packets(length: u32, path_mtu: u32) -> Explanation {
    let packets = length.div_ceil(path_mtu.max(1));
    Explanation::new(
        "too_many_packets",
        format!(
            "a message of {} is {packets} packets of {path_mtu} bytes, and at most 8388607 can be told apart",
            bytes(length.into())
        ),
    )
    .advice("use a larger path MTU, or send less at a time")
    .fact("length", length)
    .fact("packets", packets)
}
