//! Requests that the peer refused, and answers that make no sense.

use super::number::bytes;
use super::{Explanation, peer};
use crate::engine::{Ends, PacketKind, Refused, WrongResponse};
use crate::queue::{PathMtu, QueuePairKind};
use crate::wire::{NakCode, Psn};

/// NAK 0x61 to 0x63.
pub(super) fn refused(facts: &Refused, ends: &Ends) -> Explanation {
    let explanation = match facts.code {
        NakCode::RemoteAccessError => access(facts, ends),
        NakCode::RemoteOperationalError => operation(facts, ends),
        _ => invalid(facts, ends),
    };
    let explanation = explanation
        .fact("operation", facts.kind.to_string())
        .fact("nak", format!("0x{:02x}", 0x60 | facts.code.to_code()))
        .fact("psn", facts.psn.to_string())
        .fact("first_psn", facts.first.to_string())
        .fact("last_psn", facts.last.to_string())
        .fact("length", facts.length);
    match facts.remote {
        Some((key, address)) => {
            explanation.fact("key", format!("0x{key:08x}")).fact("address", format!("{address:#x}"))
        }
        None => explanation,
    }
}

/// Which packet of how many was refused.
fn place(facts: &Refused) -> String {
    let index = facts.psn.distance_from(facts.first) + 1;
    let count = facts.last.distance_from(facts.first) + 1;
    format!("PSN {} (packet {index} of {count})", facts.psn)
}

fn invalid(facts: &Refused, ends: &Ends) -> Explanation {
    let Refused { kind, length, path_mtu, reads, .. } = *facts;
    let right = right_of(kind);
    let several = facts.first != facts.last;
    let headline = format!(
        "{kind} of {} was refused by {} as an invalid request (NAK 0x61) at {}",
        bytes(length.into()),
        peer(ends),
        place(facts)
    );
    let is_read = kind == PacketKind::ReadRequest;
    let is_atomic = matches!(
        kind,
        PacketKind::CompareSwap
            | PacketKind::FetchAdd
            | PacketKind::AtomicWrite
            | PacketKind::Flush
    );
    Explanation::new("refused.invalid_request", headline)
        .detail(format!("our path MTU is {path_mtu}, {}", largest(ends)))
        .because_if(several && !is_read, || {
            format!(
                "path MTU mismatch: the peer's is not {path_mtu}, so our packets have a wrong size \
                 there"
            )
        })
        .because_if(kind == PacketKind::Send, || {
            format!("the receive posted at the peer is smaller than {}", bytes(length.into()))
        })
        .because_if(!several && !is_read && length > PathMtu::Mtu256.bytes() as u32, || {
            format!("path MTU mismatch: the peer's is smaller than {length}, so that our packet is too large there")
        })
        .because_if(right.is_some(), || {
            let right = right.unwrap_or_default();
            format!("the peer's queue pair does not allow it: its access flags lack {right}")
        })
        .because_if(is_read || is_atomic, || {
            format!(
                "more READs and atomics were under way ({reads}) than the peer's \
                 max_dest_rd_atomic: our max_rd_atomic must not be larger"
            )
        })
        .because_if(is_atomic && kind != PacketKind::Flush, || {
            "the address is not a multiple of 8".to_owned()
        })
        .advice("the other end's history names the rule (QueuePair::history, UROCE_TRACE=errors)")
        .fact("reads_under_way", reads)
}

/// What is known of the packets that the peer makes.
fn largest(ends: &Ends) -> String {
    match ends.largest_received {
        0 => "and no data of the peer has come yet that shows its own".to_owned(),
        largest => format!("the largest packet of the peer so far had {}", bytes(largest.into())),
    }
}

/// The access flag that an operation takes at the peer.
const fn right_of(kind: PacketKind) -> Option<&'static str> {
    match kind {
        PacketKind::Write | PacketKind::AtomicWrite => Some("REMOTE_WRITE"),
        PacketKind::ReadRequest => Some("REMOTE_READ"),
        PacketKind::CompareSwap | PacketKind::FetchAdd => Some("REMOTE_ATOMIC"),
        PacketKind::Flush => Some("FLUSH_GLOBAL or FLUSH_PERSISTENT"),
        _ => None,
    }
}

fn access(facts: &Refused, ends: &Ends) -> Explanation {
    let Refused { kind, length, remote, .. } = *facts;
    let peer = peer(ends);
    let at = place(facts);
    let what = match remote {
        Some((key, 0)) if kind == PacketKind::Send => {
            format!("key 0x{key:08x}, which it would invalidate")
        }
        Some((key, address)) => {
            format!("key 0x{key:08x} for {} at {address:#x}", bytes(length.into()))
        }
        None => "its key".to_owned(),
    };
    let headline =
        format!("{kind} was refused by {peer} at {at}: remote access error (NAK 0x62) for {what}");
    let right = right_of(kind).unwrap_or("this right");
    Explanation::new("refused.access", headline)
        .because_if(ends.transport == QueuePairKind::XrcInitiator, || {
            "the shared receive queue that the request names does not exist at the peer, or not in \
             its target's XRC domain"
                .to_owned()
        })
        .because("the range is not inside the memory that the peer registered under this key")
        .because(format!("the peer registered it without {right}"))
        .because("the key is stale: the peer has deregistered or invalidated it since")
        .because("the memory lies in another protection domain than the peer's queue pair")
        .advice(
            "compare key, address and length with what the peer has told; its history says which \
             it was",
        )
}

fn operation(facts: &Refused, ends: &Ends) -> Explanation {
    let (kind, peer, at) = (facts.kind, peer(ends), place(facts));
    let headline = format!(
        "{kind} could not be carried out by {peer}: remote operational error (NAK 0x63) at {at}"
    );
    let is_read = kind == PacketKind::ReadRequest;
    let is_flush = kind == PacketKind::Flush;
    Explanation::new("refused.operation", headline)
        .because_if(is_read, || {
            "the peer deregistered the memory while the READ was being answered".to_owned()
        })
        .because_if(is_flush, || {
            "the peer's file system could not write the memory back to its file".to_owned()
        })
        .because_if(!is_read && !is_flush, || {
            "the receive posted at the peer names memory with a wrong key or without LOCAL_WRITE"
                .to_owned()
        })
        .advice("look at the peer's completions: it is told what was wrong with its own memory")
}

/// READ data of a wrong size.
pub(super) fn wrong_response(facts: &WrongResponse, ends: &Ends) -> Explanation {
    let WrongResponse { psn, expected, received, path_mtu, must_end, ends: ended } = *facts;
    let code = if expected == received { "wrong_response.end" } else { "wrong_response.length" };
    let headline = if expected == received {
        let (is, should) = if ended {
            ("the last", "more was asked for")
        } else {
            ("not the last", "no more was asked for")
        };
        format!(
            "RDMA READ response at PSN {psn} from {} says that it is {is}, but {should}",
            peer(ends)
        )
    } else {
        format!(
            "RDMA READ response at PSN {psn} from {} has {} where {} were asked for",
            peer(ends),
            bytes(received.into()),
            expected
        )
    };
    let advice = if received == expected {
        "report it to who makes the peer"
    } else {
        "give both ends the same path MTU"
    };
    let is_mtu = received != expected && PathMtu::from_bytes(received as usize).is_some();
    Explanation::new(code, headline)
        .detail(format!("our path MTU is {path_mtu}"))
        .because_if(received != expected, || {
            if is_mtu {
                format!("path MTU mismatch: ours is {path_mtu}, the peer's is {received}")
            } else {
                format!("path MTU mismatch: ours is {path_mtu}, the peer's is another")
            }
        })
        .because("the peer is at fault")
        .advice(advice)
        .fact("psn", psn.to_string())
        .fact("expected", expected)
        .fact("received", received)
        .fact("must_end", u32::from(must_end))
}

/// An answer of another kind.
pub(super) fn wrong_kind(
    psn: Psn,
    request: PacketKind,
    received: PacketKind,
    ends: &Ends,
) -> Explanation {
    let peer = peer(ends);
    let headline = format!("{request} at PSN {psn} was answered by {peer} with {received}");
    Explanation::new("wrong_response.kind", headline)
        .because("PSNs differ between the ends, after one of them was reset alone")
        .because("the peer is at fault")
        .advice("take both ends through RESET and connect them anew")
        .fact("psn", psn.to_string())
        .fact("request", request.to_string())
        .fact("received", received.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::QueuePairKind::{Rc, XrcInitiator};
    use crate::wire::Qpn;

    fn causes(kind: PacketKind, code: NakCode, transport: QueuePairKind) -> Vec<String> {
        let psn = Psn::new(5);
        let facts = Refused {
            code,
            kind,
            first: psn,
            last: psn,
            psn,
            length: 8,
            remote: None,
            path_mtu: 1024,
            reads: 0,
        };
        let ends = Ends {
            number: Qpn::new(2),
            transport,
            own: None,
            peer: None,
            peer_number: None,
            path_mtu: None,
            largest_received: 0,
            heard: true,
        };
        refused(&facts, &ends).causes
    }

    #[test]
    fn causes_are_those_that_the_operation_and_the_transport_can_have() {
        let operational = |kind| causes(kind, NakCode::RemoteOperationalError, Rc);
        for (kind, word) in [
            (PacketKind::Flush, "file system"),
            (PacketKind::ReadRequest, "deregistered"),
            (PacketKind::Send, "receive posted"),
        ] {
            let causes = operational(kind);
            assert!(causes.len() == 1 && causes[0].contains(word), "{kind}: {causes:?}");
        }
        for (transport, first) in [(Rc, "range"), (XrcInitiator, "shared receive queue")] {
            let causes = causes(PacketKind::Send, NakCode::RemoteAccessError, transport);
            assert!(causes[0].contains(first), "{transport}: {causes:?}");
        }
    }
}
