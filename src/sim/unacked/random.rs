//! Random plans for queue pairs without acknowledgements.

use crate::queue::{PathMtu, QueuePairKind};
use crate::rng::Rng;
use crate::time::MICROSECOND;

use super::super::oracle::UnackedDefect;
use super::super::random::pick;
use super::super::scenario::{NodePlan, Operation, Span};
use super::plan::{PlannedReceive, UnackedPlan, UnackedRequest};

/// Bytes of a message, at most.
pub(super) const LONGEST: usize = 16 * 1024;
/// Bytes of a request that names what it may not use, at most: it must fit small memories.
const SMALL: u64 = 192;
/// Bytes before a received datagram.
const AREA: usize = 40;

/// Unreliable connections and datagram queue pairs for a scenario.
pub(in super::super) fn plans(rng: &mut Rng, nodes: &[NodePlan], mtu: usize) -> Vec<UnackedPlan> {
    let mut plans = Vec::new();
    for _ in 0..rng.between(1, 2) {
        connection(rng, nodes, mtu, &mut plans);
    }
    let (first, count) = (plans.len(), rng.between(2, 3) as usize);
    for number in first..first + count {
        let peers = (first..first + count).filter(|peer| *peer != number).collect();
        plans.push(end(rng, nodes, QueuePairKind::Ud, peers, PathMtu::largest_within(mtu)));
    }
    for number in 0..plans.len() {
        let receives = receives(rng, &plans, number);
        plans[number].receives = receives;
        if plans[number].is_ample {
            plans[number].receive_depth = plans[number].receives.len().max(1) as u32;
            plans[number].late_receives = None;
        }
    }
    plans
}

fn connection(rng: &mut Rng, nodes: &[NodePlan], mtu: usize, plans: &mut Vec<UnackedPlan>) {
    let fitting = |path: &PathMtu| *path <= PathMtu::largest_within(mtu);
    let path_mtus: Vec<PathMtu> = PathMtu::ALL.into_iter().filter(fitting).collect();
    let path_mtu = *pick(rng, &path_mtus);
    let number = plans.len();
    for peer in [number + 1, number] {
        let plan = end(rng, nodes, QueuePairKind::Uc, vec![peer], path_mtu);
        plans.push(plan);
    }
}

fn end(
    rng: &mut Rng,
    nodes: &[NodePlan],
    kind: QueuePairKind,
    peers: Vec<usize>,
    path_mtu: PathMtu,
) -> UnackedPlan {
    let node = rng.below(nodes.len() as u64) as usize;
    let queues = nodes[node].completion_queues.len() as u64;
    let psn =
        if rng.chance(1, 2) { 0x0100_0000 - rng.between(1, 60) as u32 } else { rng.next_u32() };
    let late = *pick(rng, &[5, 50, 500]) * MICROSECOND;
    let has_defects = rng.chance(1, 3);
    let requests = (0..rng.between(12, 36)).map(|_| {
        let peer = rng.below(peers.len() as u64) as usize;
        let request = match has_defects && rng.chance(1, 8) {
            true => defective(rng, kind, path_mtu),
            false => request(rng, kind, path_mtu),
        };
        UnackedRequest { peer, ..request }
    });
    let requests = requests.collect();
    UnackedPlan {
        kind,
        node,
        peers,
        joins: kind == QueuePairKind::Ud && rng.chance(2, 3),
        path_mtu,
        psn: psn & 0x00ff_ffff,
        ecn: rng.chance(3, 4),
        depth: *pick(rng, &[2, 5, 16, 64]),
        signal_all: rng.chance(1, 10),
        completion_queues: [rng.below(queues) as usize, rng.below(queues) as usize],
        receive_depth: *pick(rng, &[1, 4, 16]),
        late_receives: rng.chance(1, 3).then_some(Span(0, late)),
        is_ample: rng.chance(1, 2),
        receives: Vec::new(),
        requests,
        resume: Span(0, *pick(rng, &[0, 5, 300]) * MICROSECOND),
    }
}

/// Receives for everything that is sent to a queue pair, in one way or another.
fn receives(rng: &mut Rng, plans: &[UnackedPlan], number: usize) -> Vec<PlannedReceive> {
    let this = &plans[number];
    let area = if this.is_datagram() { AREA } else { 0 };
    let senders = plans.iter().flat_map(|plan| {
        let is_for_this = move |one: &&UnackedRequest| match one.to_group {
            true => this.joins,
            false => plan.peers[one.peer] == number,
        };
        plan.requests.iter().filter(is_for_this)
    });
    let lengths: Vec<usize> = senders
        .filter(|one| one.operation.is_message())
        .map(|one| if one.operation.is_send() { one.length } else { 0 })
        .collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let spoils = !this.is_ample && rng.chance(1, 6);
    let each = lengths.iter().enumerate().map(|(position, length)| {
        let capacity = match rng.below(8) {
            _ if this.is_ample => longest + area,
            // Too small for many, at times for the area alone.
            0 => rng.below((length + area) as u64 + 1) as usize,
            1..=4 => length + area,
            _ => longest + area,
        };
        // In the second half: hardly anything gets past it.
        let spoiled = spoils && position == lengths.len() * 3 / 4;
        PlannedReceive { capacity, segments: rng.between(1, 4) as usize, spoiled }
    });
    each.collect()
}

fn request(rng: &mut Rng, kind: QueuePairKind, path_mtu: PathMtu) -> UnackedRequest {
    let is_datagram = kind == QueuePairKind::Ud;
    let operation = match rng.below(if is_datagram { 6 } else { 11 }) {
        0..=3 => Operation::Send,
        4..=5 => Operation::SendImmediate,
        6..=8 => Operation::Write,
        _ => Operation::WriteImmediate,
    };
    let mtu = path_mtu.bytes() as u64;
    let most = if is_datagram { mtu } else { LONGEST as u64 };
    let length = match rng.below(10) {
        0 => 0,
        1..=2 => rng.between(1, 16),
        3..=5 => rng.between(1, mtu),
        6 => mtu,
        _ => rng.between(1, 5) * mtu + rng.between(0, 2) - 1,
    };
    let length = length.min(most) as usize;
    let is_inline = length <= 128 && rng.chance(1, 3);
    UnackedRequest {
        to_group: is_datagram && rng.chance(1, 3),
        segments: if is_inline { 0 } else { rng.between(1, 5) as usize },
        signaled: rng.chance(2, 3),
        solicited: operation.is_message() && rng.chance(1, 3),
        own_key: is_datagram && rng.chance(1, 6),
        ..UnackedRequest::new(operation, length)
    }
}

fn defective(rng: &mut Rng, kind: QueuePairKind, path_mtu: PathMtu) -> UnackedRequest {
    use UnackedDefect as Defect;
    let is_datagram = kind == QueuePairKind::Ud;
    let connection = [
        Defect::RemoteKey,
        Defect::RemoteStaleKey,
        Defect::RemoteBounds,
        Defect::RemoteRights,
        Defect::RemoteDomain,
        Defect::LocalKey,
        Defect::LocalBounds,
    ];
    let datagram = [
        Defect::QueueKey,
        Defect::TooLong,
        Defect::HandleDestroyed,
        Defect::LocalKey,
        Defect::LocalBounds,
    ];
    let defect = if is_datagram { *pick(rng, &datagram) } else { *pick(rng, &connection) };
    let operations: &[Operation] = match defect {
        Defect::LocalKey | Defect::LocalBounds if !is_datagram => &[
            Operation::Send,
            Operation::SendImmediate,
            Operation::Write,
            Operation::WriteImmediate,
        ],
        _ if is_datagram => &[Operation::Send, Operation::SendImmediate],
        _ => &[Operation::Write, Operation::WriteImmediate],
    };
    let mtu = path_mtu.bytes() as u64;
    let length = match defect {
        Defect::TooLong => rng.between(mtu + 1, 2 * mtu),
        Defect::LocalKey | Defect::LocalBounds if !is_datagram && rng.chance(1, 2) => {
            rng.between(1, 4 * mtu).min(LONGEST as u64)
        }
        // Over the end of a memory, or past its keys, in the first packet or a later one.
        Defect::RemoteKey | Defect::RemoteBounds => rng.between(1, 3 * mtu),
        _ => rng.between(1, SMALL),
    };
    UnackedRequest {
        to_group: is_datagram && defect != Defect::HandleDestroyed && rng.chance(1, 3),
        segments: rng.between(1, 4) as usize,
        signaled: rng.chance(1, 2),
        defect: Some(defect),
        ..UnackedRequest::new(*pick(rng, operations), length as usize)
    }
}
