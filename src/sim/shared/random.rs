//! Random plans for shared receive queues.

use crate::queue::PathMtu;
use crate::rng::Rng;

use super::super::oracle::LinkDefect;
use super::super::random::pick;
use super::super::scenario::{NodePlan, Operation};
use super::plan::{LinkKind, LinkPlan, LinkRequest, SharedPlan, SharedQueuePlan};

/// Bytes of a receive, the area of datagrams included.
const CAPACITY: usize = 8 * 1024;
/// Bytes before a received datagram.
const AREA: usize = 40;
/// Bytes of a READ or WRITE, at most.
const LONGEST: u64 = 20_000;

/// Queues of one node and links to them.
pub(in super::super) fn plan(
    rng: &mut Rng,
    nodes: &[NodePlan],
    mtu: usize,
    may_exhaust: bool,
) -> SharedPlan {
    let node = rng.below(nodes.len() as u64) as usize;
    let queues_there = nodes[node].completion_queues.len() as u64;
    let queue = |rng: &mut Rng, is_xrc| {
        // A link without acknowledgements keeps the receive of a message that it gives up for its
        // next one: there must be enough for the others.
        let depth = if is_xrc { *pick(rng, &[1, 4, 16]) } else { *pick(rng, &[6, 16]) };
        SharedQueuePlan {
            is_xrc,
            depth,
            capacity: CAPACITY,
            limit: if rng.chance(1, 2) { rng.between(1, u64::from(depth)) as u32 } else { 0 },
            completion_queue: rng.below(queues_there) as usize,
        }
    };
    let queues = vec![queue(rng, false), queue(rng, false), queue(rng, true), queue(rng, true)];
    let fitting = |path: &PathMtu| *path <= PathMtu::largest_within(mtu);
    let path_mtus: Vec<PathMtu> = PathMtu::ALL.into_iter().filter(fitting).collect();
    let kinds = [LinkKind::Rc, LinkKind::Uc, LinkKind::Ud, LinkKind::Xrc, LinkKind::Xrc];
    let mut links = Vec::new();
    for kind in kinds {
        let path_mtu = match kind {
            LinkKind::Ud => PathMtu::largest_within(mtu),
            _ => *pick(rng, &path_mtus),
        };
        for _ in 0..rng.between(1, 2) {
            let mut one = link(rng, nodes, kind, path_mtu, queues_there);
            one.may_exhaust = may_exhaust;
            links.push(one);
        }
    }
    SharedPlan { node, queues, links }
}

fn link(
    rng: &mut Rng,
    nodes: &[NodePlan],
    kind: LinkKind,
    path_mtu: PathMtu,
    queues_there: u64,
) -> LinkPlan {
    let node = rng.below(nodes.len() as u64) as usize;
    let queues_here = nodes[node].completion_queues.len() as u64;
    let psn =
        if rng.chance(1, 2) { 0x0100_0000 - rng.between(1, 60) as u32 } else { rng.next_u32() };
    let only_messages = rng.chance(1, 3);
    let count = rng.between(8, 24);
    let mut requests: Vec<LinkRequest> =
        (0..count).map(|_| request(rng, kind, path_mtu, only_messages)).collect();
    if kind.is_reliable() && rng.chance(1, 4) {
        let position = rng.below(count) as usize;
        requests[position] = defective(rng, kind, requests[position]);
    }
    LinkPlan {
        kind,
        node,
        queue: rng.below(2) as usize,
        path_mtu,
        psn: psn & 0x00ff_ffff,
        timeout: rng.between(11, 13) as u8,
        min_rnr_timer: rng.between(1, 14) as u8,
        may_exhaust: false,
        depth: *pick(rng, &[1, 4, 16]),
        completion_queues: [rng.below(queues_here) as usize, rng.below(queues_there) as usize],
        stops_after: rng.chance(1, 4).then(|| rng.below(count) as u32),
        requests,
    }
}

fn request(rng: &mut Rng, kind: LinkKind, path_mtu: PathMtu, only_messages: bool) -> LinkRequest {
    let choices = if only_messages || !kind.is_reliable() { 2 } else { 6 };
    let operation = match rng.below(choices) {
        0 => Operation::Send,
        1 => Operation::SendImmediate,
        2 => Operation::Write,
        3 => Operation::WriteImmediate,
        4 => Operation::Read,
        _ => Operation::FetchAdd,
    };
    let packet = path_mtu.bytes() as u64;
    let length = match operation {
        Operation::FetchAdd => 8,
        _ if kind == LinkKind::Ud => rng.below(packet.min((CAPACITY - AREA) as u64) + 1),
        Operation::Send | Operation::SendImmediate => match rng.below(4) {
            0 => rng.below(32),
            1 => packet * rng.between(1, 3) + rng.below(3) - 1,
            _ => rng.below(CAPACITY as u64 + 1),
        }
        .min(CAPACITY as u64),
        _ => rng.below(LONGEST),
    };
    LinkRequest {
        operation,
        queue: 2 + rng.below(2) as usize,
        length: length as usize,
        signaled: rng.chance(2, 3),
        solicited: operation.is_message() && rng.chance(1, 3),
        defect: None,
    }
}

fn defective(rng: &mut Rng, kind: LinkKind, request: LinkRequest) -> LinkRequest {
    let defect = match kind {
        LinkKind::Xrc => *pick(rng, &LinkDefect::ALL),
        _ => LinkDefect::TooLong,
    };
    let operation = match defect {
        LinkDefect::RemoteDomain => *pick(rng, &[Operation::Write, Operation::WriteImmediate]),
        LinkDefect::TooLong => Operation::Send,
        _ => request.operation,
    };
    let length = match defect {
        LinkDefect::TooLong => CAPACITY + rng.between(1, 5000) as usize,
        LinkDefect::RemoteDomain => rng.between(1, 200) as usize,
        _ => request.length,
    };
    LinkRequest { operation, length, defect: Some(defect), ..request }
}
