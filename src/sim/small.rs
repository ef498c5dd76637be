//! Small scenarios, each with one idea, for schedules that are tried exhaustively.

use crate::fault::{FaultPlan, Share};
use crate::queue::{Access, PathMtu, QueuePairKind};
use crate::time::{Instant, MICROSECOND, MILLISECOND, SECOND};
use crate::wire::IdentificationRule;

use super::exhaustive::Exhaustive;
use super::oracle::{Defect, LinkDefect};
use super::scenario::{
    ConnectionPlan, Drain, EndPlan, NetworkPlan, NodePlan, Operation, Planned, Polling, Scenario,
    Span,
};
use super::script::{ScriptedFate, Selection};
use super::shared::{LinkKind, LinkPlan, LinkRequest, SharedPlan, SharedQueuePlan};
use super::unacked::{PlannedReceive, UnackedPlan, UnackedRequest};

const MTU: usize = 256;
/// The third packet is the last before the wrap.
const BEFORE_WRAP: u32 = 0x00ff_fffd;

/// All small scenarios.
pub(super) fn all() -> Vec<Exhaustive> {
    let two_packets = 2 * MTU;
    let plain = Planned::new;
    let three = |operation| vec![plain(operation, two_packets); 3];
    let mut all = vec![
        exhaustive("three_sends", three(Operation::Send), vec![]),
        exhaustive("three_writes", three(Operation::Write), vec![]),
        exhaustive("three_reads", three(Operation::Read), vec![]),
        exhaustive("three_atomics", atomics(), vec![]),
        exhaustive("one_of_each", one_of_each(), vec![]),
        exhaustive("both_ways", both_ways(), both_ways()),
        exhaustive("unsignaled", unsignaled(), vec![]),
        exhaustive("invalidate", vec![plain(Operation::SendInvalidate, 300); 2], vec![]),
        exhaustive("empty_messages", empty_messages(), vec![]),
        exhaustive("remote_error", wrong(Operation::Write, Defect::RemoteKey), vec![]),
        exhaustive("read_error", wrong(Operation::Read, Defect::RemoteBounds), vec![]),
        exhaustive("atomic_error", wrong(Operation::FetchAdd, Defect::Misaligned), vec![]),
        exhaustive("receive_too_small", wrong(Operation::Send, Defect::ReceiveTooSmall), vec![]),
        exhaustive("local_error", wrong(Operation::Send, Defect::LocalKey), vec![]),
    ];
    all.push(late_receives("receiver_not_ready", three(Operation::Send)));
    all.push(late_receives("write_not_ready", three(Operation::WriteImmediate)));
    all.push(only_answers("answers_to_sends", three(Operation::Send), 0));
    all.push(only_answers("answers_to_reads", three(Operation::Read), 0));
    all.push(only_answers("fence", fenced(), 0));
    all.push(only_answers("answers_to_a_gap", three(Operation::Write), 1));
    all.push(only_answers("answers_to_atomics", atomics(), 1));
    all.push(long_delays("ghosts_of_writes", three(Operation::Write)));
    all.push(long_delays("ghosts_of_atomics", atomics()));
    all.push(exhaustive("atomic_writes", atomic_writes(), vec![]));
    all.push(exhaustive("write_and_flush", write_and_flush(), vec![]));
    all.push(only_answers("atomic_write_answers", atomic_writes(), 1));
    all.push(long_delays("atomic_write_ghosts", atomic_writes()));
    all.push(exhaustive("flush_error", wrong(Operation::Flush, Defect::RemoteBounds), vec![]));
    all.push(exhaustive(
        "atomic_write_error",
        wrong(Operation::AtomicWrite, Defect::Misaligned),
        vec![],
    ));
    all.push(with_credits(exhaustive("credits", messages(), vec![])));
    all.push(with_credits(late_receives("credits_not_ready", messages())));
    all.push(drained("drained", true));
    all.push(drained("drained_in_silence", false));
    all.push(starts_late());
    all.push(retries_exhausted());
    all.push(window_used_and_ended());
    all.push(exhaustive("bind_between_writes", bind_between_writes(), vec![]));
    all.extend(without_acknowledgements());
    all.extend(with_shared_queues());
    all
}

fn atomics() -> Vec<Planned> {
    let add = Planned::new(Operation::FetchAdd, 8);
    vec![add, Planned::new(Operation::CompareSwap, 8), add]
}

fn one_of_each() -> Vec<Planned> {
    vec![
        Planned::new(Operation::Send, 100),
        Planned::new(Operation::Read, 2 * MTU),
        Planned::new(Operation::FetchAdd, 8),
        Planned::new(Operation::WriteImmediate, MTU + 1),
    ]
}

fn both_ways() -> Vec<Planned> {
    vec![Planned::new(Operation::Send, MTU + 4), Planned::new(Operation::Read, 30)]
}

/// A READ, and a WRITE over the same bytes that must not come before it, even if the READ's answer
/// is lost and asked for again.
fn fenced() -> Vec<Planned> {
    let whole = TARGET;
    let write = Planned { fence: true, overlap: true, ..Planned::new(Operation::Write, whole) };
    vec![Planned::new(Operation::Read, whole), write]
}

/// One after the other to a few words: a second execution of an earlier one shows.
fn atomic_writes() -> Vec<Planned> {
    let write = Planned { segments: 0, ..Planned::new(Operation::AtomicWrite, 8) };
    vec![write; 5]
}

/// What a log does: the record, made durable, then the word that says so.
fn write_and_flush() -> Vec<Planned> {
    let flush = Planned { segments: 0, ..Planned::new(Operation::Flush, 600) };
    let commit = Planned { segments: 0, ..Planned::new(Operation::AtomicWrite, 8) };
    vec![Planned::new(Operation::Write, 2 * MTU), flush, commit, flush]
}

/// Some that consume receives among others that only count.
fn messages() -> Vec<Planned> {
    vec![
        Planned::new(Operation::Send, 2 * MTU),
        Planned::new(Operation::Send, 10),
        Planned::new(Operation::Write, 20),
        Planned::new(Operation::WriteImmediate, MTU + 1),
        Planned::new(Operation::Send, 30),
    ]
}

/// The send queue is drained when two messages are out, and goes on with the others.
fn drained(name: &str, notify: bool) -> Exhaustive {
    let requests = vec![Planned::new(Operation::Write, 2 * MTU); 4];
    let mut scenario = scenario(name, requests, vec![]);
    scenario.posts_at_once = 2;
    scenario.application_delay = Span(5_000, 5_000);
    scenario.connections[0].ends[0].drains =
        vec![Drain { after: 2, notify, rest: 50_000 }, Drain { after: 4, notify, rest: 50_000 }];
    Exhaustive::new(scenario, Selection::All)
}

/// The second end sends only when it has heard of the first one.
fn starts_late() -> Exhaustive {
    let mut scenario = scenario("starts_late", both_ways(), both_ways());
    scenario.connections[0].starts_late = Some(10_000_000);
    Exhaustive::new(scenario, Selection::All)
}

/// The receiver has few receives, and says so.
fn with_credits(mut exhaustive: Exhaustive) -> Exhaustive {
    exhaustive.scenario.nodes[1].finite_credits = true;
    exhaustive.scenario.connections[0].ends[1].receive_depth = 1;
    exhaustive
}

fn unsignaled() -> Vec<Planned> {
    let quiet = Planned { signaled: false, ..Planned::new(Operation::Write, 2 * MTU) };
    vec![quiet, Planned { operation: Operation::Send, ..quiet }, Planned::new(Operation::Write, 10)]
}

fn empty_messages() -> Vec<Planned> {
    let empty = [
        Operation::Send,
        Operation::Write,
        Operation::Read,
        Operation::WriteImmediate,
        Operation::SendImmediate,
    ];
    empty.into_iter().map(|operation| Planned::new(operation, 0)).collect()
}

/// A good request, a wrong one, and one that must be flushed.
fn wrong(operation: Operation, defect: Defect) -> Vec<Planned> {
    let length = if operation.needs_alignment() { 8 } else { MTU + 50 };
    let good = Planned::new(Operation::Send, 40);
    let segments = usize::from(!operation.carries_itself());
    let wrong = Planned { segments, ..Planned::new(operation, length) };
    vec![good, wrong.defective(defect), good]
}

const ZONE: usize = 4096;
const TARGET: usize = 1024;

fn exhaustive(name: &str, first: Vec<Planned>, second: Vec<Planned>) -> Exhaustive {
    Exhaustive::new(scenario(name, first, second), Selection::All)
}

fn late_receives(name: &str, requests: Vec<Planned>) -> Exhaustive {
    let mut scenario = scenario(name, requests, vec![]);
    scenario.connections[0].ends[1].late_receives = Some(Span(30_000, 30_000));
    Exhaustive::new(scenario, Selection::All)
}

/// Only answers meet a fate; so many of the first requests are lost in any case.
fn only_answers(name: &str, requests: Vec<Planned>, lost_requests: usize) -> Exhaustive {
    let mut exhaustive = Exhaustive::new(scenario(name, requests, vec![]), Selection::Answers);
    exhaustive.lost_requests = lost_requests;
    exhaustive
}

/// What is delayed comes after the retransmission, and second copies too.
fn long_delays(name: &str, requests: Vec<Planned>) -> Exhaustive {
    let mut exhaustive = Exhaustive::new(scenario(name, requests, vec![]), Selection::All);
    exhaustive.hold = 5 * MILLISECOND;
    exhaustive
}

/// After the first packets nothing gets through any more.
fn retries_exhausted() -> Exhaustive {
    let requests = vec![Planned::new(Operation::Write, 2 * MTU); 2];
    let mut scenario = scenario("retries_exhausted", requests, vec![]);
    scenario.connections[0].timeout = 6;
    scenario.connections[0].retry_count = 2;
    scenario.connections[0].may_exhaust_retries = true;
    let mut exhaustive = Exhaustive::new(scenario, Selection::All);
    exhaustive.rest = ScriptedFate::Drop;
    exhaustive
}

/// One request after the other: the peer's window is written, read and ended, and the peer binds it
/// again.
fn window_used_and_ended() -> Exhaustive {
    let through = |operation, length| Planned { window: true, ..Planned::new(operation, length) };
    let requests = vec![
        Planned::new(Operation::Send, 10),
        through(Operation::Write, 300),
        through(Operation::Read, 300),
        through(Operation::SendInvalidate, 10),
    ];
    let binds = vec![Planned::new(Operation::BindWindow, 0); 2];
    let mut scenario = scenario("window_used_and_ended", requests, binds);
    scenario.connections[0].ends[0].depth = 1;
    Exhaustive::new(scenario, Selection::All)
}

/// A retry sends the WRITEs again, and must not bind again.
fn bind_between_writes() -> Vec<Planned> {
    let write = Planned::new(Operation::Write, 2 * MTU);
    vec![write, Planned::new(Operation::BindWindow, 0), write]
}

/// Messages of five packets in all on an unreliable connection, and as many datagrams.
fn without_acknowledgements() -> Vec<Exhaustive> {
    let plain = UnackedRequest::new;
    let (two, three) = (2 * MTU, 3 * MTU);
    let roomy = [three; 5];
    let sends = vec![plain(Operation::Send, three), plain(Operation::SendImmediate, two)];
    let writes = vec![plain(Operation::WriteImmediate, three), plain(Operation::Write, two)];
    let both = vec![plain(Operation::Write, two), plain(Operation::Send, three)];
    let late = vec![plain(Operation::SendImmediate, two), plain(Operation::WriteImmediate, three)];
    let datagrams = vec![plain(Operation::Send, 100); 5];
    let uneven = [50, 100, 150, 300, 20].map(|length| plain(Operation::SendImmediate, length));
    let (uc, ud) = (QueuePairKind::Uc, QueuePairKind::Ud);
    let mut all = vec![
        unacked("uc_sends", uc, sends.clone(), &roomy),
        unacked("uc_writes", uc, writes, &roomy),
        unacked("uc_write_and_send", uc, both, &roomy),
        unacked("uc_receive_too_small", uc, sends, &[two, three]),
        unacked("ud_datagrams", ud, datagrams, &roomy),
        unacked("ud_receive_too_small", ud, uneven.to_vec(), &[140, 60, 400, 140]),
    ];
    let mut late = unacked_scenario("uc_late_receives", uc, late, &roomy);
    late.unacked[1].late_receives = Some(Span(30_000, 30_000));
    all.push(Exhaustive::new(late, Selection::All));
    all
}

/// Ways to shared receive queues: extended reliable connections, and connections that take their
/// receives from one queue.
fn with_shared_queues() -> Vec<Exhaustive> {
    let plain = LinkRequest::new;
    let (one, two) = (100, 2 * MTU);
    let sends = vec![plain(Operation::Send, 0, two), plain(Operation::SendImmediate, 1, two)];
    let mixed = vec![
        plain(Operation::Write, 0, two),
        plain(Operation::Send, 1, one),
        plain(Operation::FetchAdd, 0, 8),
    ];
    let reads = vec![plain(Operation::Read, 1, two), plain(Operation::Send, 0, two)];
    let wrong = |defect| {
        let bad = LinkRequest { defect: Some(defect), ..plain(Operation::Send, 0, one) };
        vec![plain(Operation::Send, 1, one), bad, plain(Operation::Send, 1, one)]
    };
    let srq = |length| vec![plain(Operation::Send, 0, length), plain(Operation::Send, 0, one)];
    let (rc, xrc) = (LinkKind::Rc, LinkKind::Xrc);
    let both = vec![(rc, srq(two)), (rc, srq(one))];
    let mut stopped = shared_scenario("srq_receiver_stops", vec![(rc, srq(two)), (rc, srq(two))]);
    if let Some(shared) = &mut stopped.shared {
        shared.links[0].stops_after = Some(0);
    }
    vec![
        shared("xrc_sends", vec![(xrc, sends)]),
        shared("xrc_mixed", vec![(xrc, mixed)]),
        shared("xrc_reads", vec![(xrc, reads)]),
        shared("xrc_two_connections", vec![(xrc, srq(two)), (xrc, srq(one))]),
        shared("xrc_no_such_queue", vec![(xrc, wrong(LinkDefect::NoSuchQueue))]),
        shared("xrc_foreign_queue", vec![(xrc, wrong(LinkDefect::ForeignQueue))]),
        shared("srq_sends", both),
        shared(
            "srq_of_every_transport",
            vec![(rc, srq(two)), (LinkKind::Uc, srq(two)), (LinkKind::Ud, srq(one))],
        ),
        Exhaustive::new(stopped, Selection::All),
    ]
}

fn shared(name: &str, links: Vec<(LinkKind, Vec<LinkRequest>)>) -> Exhaustive {
    Exhaustive::new(shared_scenario(name, links), Selection::All)
}

/// Two queues, of XRC if the first link is.
fn shared_scenario(name: &str, links: Vec<(LinkKind, Vec<LinkRequest>)>) -> Scenario {
    let mut scenario = scenario(name, vec![], vec![]);
    scenario.connections.clear();
    let is_xrc = links[0].0 == LinkKind::Xrc;
    // One link may keep a receive that it has begun to fill.
    let queue =
        |limit| SharedQueuePlan { is_xrc, depth: 4, capacity: 3 * MTU, limit, completion_queue: 0 };
    let link = |(kind, requests)| LinkPlan {
        kind,
        node: 0,
        queue: 0,
        path_mtu: PathMtu::Mtu256,
        psn: BEFORE_WRAP,
        timeout: 9,
        min_rnr_timer: 1,
        may_exhaust: false,
        depth: 8,
        completion_queues: [0, 0],
        stops_after: None,
        requests,
    };
    let links = links.into_iter().map(link).collect();
    scenario.shared = Some(SharedPlan { node: 1, queues: vec![queue(3), queue(0)], links });
    scenario
}

fn unacked(
    name: &str,
    kind: QueuePairKind,
    requests: Vec<UnackedRequest>,
    receives: &[usize],
) -> Exhaustive {
    let mut scenario = unacked_scenario(name, kind, requests, receives);
    let longest = scenario.unacked[0].requests.iter().map(|one| one.length).max().unwrap_or(0);
    let fits = |receive: &usize| *receive >= longest + 40;
    scenario.unacked[1].is_ample = receives.len() > 2 && receives.iter().all(fits);
    Exhaustive::new(scenario, Selection::All)
}

fn unacked_scenario(
    name: &str,
    kind: QueuePairKind,
    requests: Vec<UnackedRequest>,
    receives: &[usize],
) -> Scenario {
    let mut scenario = scenario(name, vec![], vec![]);
    scenario.connections.clear();
    let receives = receives.iter().map(|capacity| PlannedReceive {
        capacity: *capacity,
        segments: 1,
        spoiled: false,
    });
    let end = |node: usize| UnackedPlan {
        joins: false,
        kind,
        node,
        peers: vec![1 - node],
        path_mtu: PathMtu::Mtu256,
        psn: BEFORE_WRAP,
        ecn: false,
        depth: 8,
        signal_all: false,
        completion_queues: [0, 0],
        receive_depth: 8,
        late_receives: None,
        is_ample: false,
        receives: Vec::new(),
        requests: Vec::new(),
        resume: Span(1_000, 1_000),
    };
    let receiver = UnackedPlan { receives: receives.collect(), ..end(1) };
    scenario.unacked = vec![UnackedPlan { requests, ..end(0) }, receiver];
    scenario
}

fn scenario(name: &str, first: Vec<Planned>, second: Vec<Planned>) -> Scenario {
    let node = NodePlan { completion_queues: vec![Polling::AnyEvent], finite_credits: false };
    Scenario {
        seed: 1,
        name: name.to_owned(),
        nodes: vec![node.clone(), node],
        connections: vec![connection(first, second)],
        unacked: Vec::new(),
        shared: None,
        network: network(),
        ipv6: false,
        identification: IdentificationRule::BasePlusIndex,
        mtu: 1500,
        max_segments: 4,
        faults_end: Instant::ZERO + SECOND,
        turn_budget: 32,
        application_delay: Span(1_000, 1_000),
        doorbell_delay: Span(0, 0),
        posts_at_once: 16,
        zones: [ZONE; 3],
        target: TARGET,
    }
}

fn connection(first: Vec<Planned>, second: Vec<Planned>) -> ConnectionPlan {
    let end = |node, requests| EndPlan {
        node,
        psn: BEFORE_WRAP,
        rd_atomic: 2,
        access: Access::ALL,
        depth: 8,
        receive_depth: 8,
        late_receives: None,
        completion_queues: [0, 0],
        requests,
        drains: Vec::new(),
    };
    ConnectionPlan {
        ends: [end(0, first), end(1, second)],
        path_mtu: PathMtu::Mtu256,
        timeout: 9,
        retry_count: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        ecn: false,
        signal_all: false,
        may_exhaust_retries: false,
        starts_late: None,
        teardown: Span(MICROSECOND, MICROSECOND),
    }
}

fn network() -> NetworkPlan {
    NetworkPlan {
        latency: Span(2_000, 2_000),
        rate: 100_000_000_000,
        detour: Share::NONE,
        detour_time: Span(0, 0),
        outage: None,
        faults: FaultPlan::default(),
        script: None,
        bursts: true,
        sees_identification: true,
    }
}
