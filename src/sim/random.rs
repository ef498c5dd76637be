//! Random scenarios: everything follows from a seed.

use crate::fault::{FaultPlan, Share};
use crate::queue::{Access, PathMtu};
use crate::rng::Rng;
use crate::time::{Instant, MICROSECOND, MILLISECOND};
use crate::wire::IdentificationRule;

use super::oracle::Defect;
use super::scenario::{
    ConnectionPlan, Drain, EndPlan, NetworkPlan, NodePlan, Operation, Planned, Polling, Scenario,
    Span,
};
use super::shared;
use super::unacked;

/// Requests of a run, at least: so many that setting it up, and looking at all of its memory in the
/// end, take little of its time.
const REQUESTS: usize = 480;
/// Bytes of a message, at most; only READs are longer, to cross the boundary of their chunks.
const MESSAGE: u64 = 64 * 1024;
const LONG_READ: u64 = 136 * 1024;
/// Bytes of defective requests, at most: they must fit the small memories that they may not use.
const DEFECTIVE: usize = 192;
/// Bytes of what goes through a window, nearly.
const WINDOWED: u64 = 6000;
/// Room for the longest message, or READ, and some others beside it. What a run has of memory has to
/// be filled and compared, so it has not more.
const ZONES: [usize; 3] = [88 * 1024, 88 * 1024, 144 * 1024];
const TARGET: usize = 144 * 1024;
/// One seed in so many has queue pairs without acknowledgements too.
const UNACKED: u64 = 3;
/// One seed in so many has shared receive queues.
const SHARED: u64 = 3;

/// What a seed is mainly about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Theme {
    /// No faults.
    Clean,
    /// Some of one fault.
    Single,
    /// A little of everything.
    Mixed,
    /// A lot of everything.
    Heavy,
    /// The network is dead for a while.
    Outage,
}

/// The scenario of a seed.
pub(super) fn scenario(seed: u64) -> Scenario {
    // The world draws from the seed too: keep both sequences apart.
    let mut rng = Rng::new(seed ^ 0x5eed_0f5c_e4a7_1055);
    let theme = theme(&mut rng);
    let nodes = rng.between(2, 3) as usize;
    let ipv6 = rng.chance(1, 4);
    let identification = match rng.below(3) {
        0 => IdentificationRule::BasePlusIndex,
        1 => IdentificationRule::ZeroPlusIndex,
        _ => IdentificationRule::Zero,
    };
    let mtu = if rng.chance(1, 3) { 1500 } else { 4500 };
    let max_segments = *pick(&mut rng, &[1, 2, 8, 64]);
    let network = network(theme, seed, ipv6, &mut rng);
    let node_plans: Vec<NodePlan> = (0..nodes).map(|_| node(&mut rng)).collect();
    let count = rng.between(2, 4) as usize;
    let exhausts = theme == Theme::Outage && rng.chance(1, 2);
    // One packet in five is lost on its way or its answer's: seven times in a row, now and then.
    let is_hopeless = theme == Theme::Heavy;
    let connections = (0..count)
        .map(|_| connection(&mut rng, &node_plans, mtu, count, (exhausts, is_hopeless)))
        .collect();
    let mut scenario = Scenario {
        seed,
        name: name(theme).to_owned(),
        nodes: node_plans,
        connections,
        unacked: Vec::new(),
        shared: None,
        network,
        ipv6,
        identification,
        mtu,
        max_segments,
        faults_end: Instant::ZERO + rng.between(20, 400) * MILLISECOND,
        turn_budget: *pick(&mut rng, &[1, 4, 32, 256]),
        application_delay: Span(0, *pick(&mut rng, &[0, 5, 40]) * MICROSECOND),
        doorbell_delay: Span(0, *pick(&mut rng, &[0, 500, 5000])),
        posts_at_once: rng.between(1, 16),
        zones: ZONES,
        target: TARGET,
    };
    add_variety(&mut scenario, &mut Rng::new(seed ^ 0x00ca_110f_5a11_5075));
    if rng.chance(1, 4) {
        add_defects(&mut scenario, &mut rng);
    }
    if seed.is_multiple_of(UNACKED) {
        scenario.unacked = unacked::plans(&mut rng, &scenario.nodes, mtu);
    }
    if seed % SHARED == 1 {
        let may_exhaust = exhausts || is_hopeless;
        scenario.shared = Some(shared::plan(&mut rng, &scenario.nodes, mtu, may_exhaust));
    }
    scenario
}

pub(super) fn pick<'a, T>(rng: &mut Rng, choices: &'a [T]) -> &'a T {
    &choices[rng.below(choices.len() as u64) as usize]
}

fn pick_mut<'a, T>(rng: &mut Rng, choices: &'a mut [T]) -> &'a mut T {
    let chosen = rng.below(choices.len() as u64) as usize;
    &mut choices[chosen]
}

fn theme(rng: &mut Rng) -> Theme {
    match rng.below(20) {
        0..=1 => Theme::Clean,
        2..=8 => Theme::Single,
        9..=13 => Theme::Mixed,
        14..=17 => Theme::Heavy,
        _ => Theme::Outage,
    }
}

const fn name(theme: Theme) -> &'static str {
    match theme {
        Theme::Clean => "no faults",
        Theme::Single => "one fault",
        Theme::Mixed => "mixed faults",
        Theme::Heavy => "heavy faults",
        Theme::Outage => "outage",
    }
}

fn node(rng: &mut Rng) -> NodePlan {
    let count = rng.between(1, 3);
    let polling = |rng: &mut Rng| match rng.below(4) {
        0 | 1 => Polling::Polled,
        2 => Polling::AnyEvent,
        _ => Polling::SolicitedEvent,
    };
    let completion_queues = (0..count).map(|_| polling(rng)).collect();
    NodePlan { completion_queues, finite_credits: false }
}

fn network(theme: Theme, seed: u64, ipv6: bool, rng: &mut Rng) -> NetworkPlan {
    let least = *pick(rng, &[500, 2_000, 10_000, 60_000]);
    // Where receivers do not see the identification, an ICRC is right for several of them: a
    // damaged packet can pass for a good one with another identification.
    let sees_identification = ipv6 || rng.chance(3, 4);
    let mut plan = NetworkPlan {
        latency: Span(least, least + *pick(rng, &[0, 1_000, 20_000])),
        rate: *pick(rng, &[1, 10, 100]) * 1_000_000_000,
        detour: Share::NONE,
        detour_time: Span(MICROSECOND, 20 * MILLISECOND),
        outage: None,
        faults: FaultPlan { seed, ..FaultPlan::default() },
        script: None,
        bursts: rng.chance(3, 4),
        sees_identification,
    };
    let most = match theme {
        Theme::Clean => 0,
        Theme::Single | Theme::Mixed | Theme::Outage => 20_000,
        Theme::Heavy => 80_000,
    };
    let only = (theme == Theme::Single).then(|| rng.below(7));
    let mut share = |number: u64| {
        let parts = rng.below(most + 1) as u32;
        let is_chosen = only.is_none_or(|only| only == number);
        Share::from_parts_per_million(if is_chosen { parts } else { 0 })
    };
    plan.faults.loss = share(0);
    plan.faults.duplicate = share(1);
    plan.faults.reorder = share(2);
    plan.faults.corrupt = if sees_identification { share(3) } else { Share::NONE };
    plan.faults.ce = share(4);
    plan.detour = Share::from_parts_per_million(share(5).parts_per_million() as u32 / 4);
    let is_delayed =
        only == Some(6) || (matches!(theme, Theme::Mixed | Theme::Heavy) && rng.chance(1, 4));
    if is_delayed {
        plan.faults.delay = rng.between(1, 2_000) * MICROSECOND;
    }
    if theme == Theme::Outage {
        let start = Instant::ZERO + rng.between(50, 5_000) * MICROSECOND;
        // Shorter than three of the shortest timeouts that do not allow exhaustion: "receiver not
        // ready" does not give retries back, so what is lost after it needs some too.
        plan.outage = Some((start, start + rng.between(1_000, 24_000) * MICROSECOND));
    }
    plan
}

fn connection(
    rng: &mut Rng,
    nodes: &[NodePlan],
    mtu: usize,
    count: usize,
    (exhausts, is_hopeless): (bool, bool),
) -> ConnectionPlan {
    let first = rng.below(nodes.len() as u64) as usize;
    // Now and then a node talks to itself.
    let second = if rng.chance(1, 16) {
        first
    } else {
        (first + 1 + rng.below(nodes.len() as u64 - 1) as usize) % nodes.len()
    };
    let fitting = |path: &PathMtu| *path <= PathMtu::largest_within(mtu);
    let path_mtus: Vec<PathMtu> = PathMtu::ALL.into_iter().filter(fitting).collect();
    let path_mtu = *pick(rng, &path_mtus);
    let per_end = (REQUESTS / (2 * count)).max(1) as u64;
    let mut end = |node: usize| end(rng, nodes, node, path_mtu, per_end);
    let ends = [end(first), end(second)];
    let is_late = ends.iter().any(|end| end.late_receives.is_some());
    ConnectionPlan {
        ends,
        path_mtu,
        // 1 ms to 33 ms; longer than the slowest round trip, detours aside.
        timeout: if exhausts { 8 } else { rng.between(11, 13) as u8 },
        retry_count: if exhausts { rng.between(0, 3) as u8 } else { 7 },
        rnr_retry: if is_late && rng.chance(1, 8) { rng.between(0, 6) as u8 } else { 7 },
        min_rnr_timer: rng.between(1, 18) as u8,
        may_exhaust_retries: exhausts || is_hopeless,
        starts_late: None,
        ecn: rng.chance(3, 4),
        signal_all: rng.chance(1, 10),
        teardown: Span(0, *pick(rng, &[0, 2, 200]) * MILLISECOND),
    }
}

fn end(rng: &mut Rng, nodes: &[NodePlan], node: usize, path_mtu: PathMtu, per_end: u64) -> EndPlan {
    let queues = nodes[node].completion_queues.len() as u64;
    let wraps = rng.chance(1, 2);
    let psn = if wraps { 0x0100_0000 - rng.between(1, 400) as u32 } else { rng.next_u32() };
    let late = *pick(rng, &[20, 200, 1500]) * MICROSECOND;
    let count = rng.between(per_end, per_end + per_end / 2);
    let only_messages = rng.chance(1, 6);
    let first = rng.chance(3, 4).then(|| Planned::new(Operation::BindWindow, 0));
    let others = (0..count).map(|_| request(rng, path_mtu, only_messages)).collect::<Vec<_>>();
    EndPlan {
        node,
        psn: psn & 0x00ff_ffff,
        rd_atomic: rng.between(1, 16) as u8,
        access: Access::ALL,
        depth: *pick(rng, &[2, 5, 16, 64]),
        receive_depth: *pick(rng, &[1, 4, 16, 64]),
        late_receives: rng.chance(1, 3).then_some(Span(0, late)),
        completion_queues: [rng.below(queues) as usize, rng.below(queues) as usize],
        requests: first.into_iter().chain(others).collect(),
        drains: Vec::new(),
    }
}

fn request(rng: &mut Rng, path_mtu: PathMtu, only_messages: bool) -> Planned {
    let operation = match rng.below(if only_messages { 22 } else { 36 }) {
        0..=5 => Operation::Send,
        6..=9 => Operation::SendImmediate,
        10..=12 => Operation::SendInvalidate,
        13..=17 => Operation::Write,
        18..=21 => Operation::WriteImmediate,
        22..=25 => Operation::Read,
        26..=28 => Operation::CompareSwap,
        29..=30 => Operation::FetchAdd,
        31 => Operation::LocalInvalidate,
        _ => Operation::BindWindow,
    };
    let length = match operation {
        Operation::CompareSwap | Operation::FetchAdd => 8,
        Operation::LocalInvalidate | Operation::BindWindow => 0,
        Operation::Read if rng.chance(1, 16) => rng.between(MESSAGE - 2, LONG_READ) as usize,
        _ => length(rng, path_mtu),
    };
    let window = rng.chance(1, 2) && may_use_window(operation);
    // Most of what goes through a window must fit it.
    let length = if window { length.min(rng.below(WINDOWED) as usize) } else { length };
    let can_inline =
        length <= 128 && !matches!(operation, Operation::Read) && !operation.is_atomic();
    let is_inline = can_inline && rng.chance(1, 3);
    Planned {
        operation,
        length,
        segments: if is_inline {
            0
        } else if operation.is_atomic() {
            1
        } else {
            rng.between(1, 5) as usize
        },
        receive_segments: rng.between(1, 5) as usize,
        receive_slack: if rng.chance(1, 2) { 0 } else { rng.below(300) as usize },
        signaled: rng.chance(2, 3),
        solicited: operation.is_message() && rng.chance(1, 3),
        fence: rng.chance(1, 8),
        overlap: rng.chance(1, 4),
        window,
        defect: None,
    }
}

const fn may_use_window(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Write | Operation::WriteImmediate | Operation::Read | Operation::SendInvalidate
    )
}

fn length(rng: &mut Rng, path_mtu: PathMtu) -> usize {
    let mtu = path_mtu.bytes() as u64;
    let length = match rng.below(20) {
        0 => 0,
        1..=3 => rng.between(1, 16),
        4..=8 => rng.between(1, mtu),
        9..=13 => rng.between(1, 6) * mtu + rng.between(0, 2) - 1,
        14..=17 => rng.between(1, 12_000),
        18 => rng.between(12_000, MESSAGE),
        _ => MESSAGE - rng.below(2),
    };
    length.min(MESSAGE) as usize
}

/// Requests and ways of working that came later, from a sequence of their own.
fn add_variety(scenario: &mut Scenario, rng: &mut Rng) {
    for node in &mut scenario.nodes {
        node.finite_credits = rng.chance(1, 3);
    }
    for connection in &mut scenario.connections {
        connection.starts_late = rng.chance(1, 6).then(|| rng.between(1, 5_000) * MICROSECOND);
    }
    let ends = scenario.connections.iter_mut().flat_map(|connection| &mut connection.ends);
    for end in ends {
        if rng.chance(1, 6) {
            end.drains = drains(rng, end.requests.len());
        }
        let only_messages = end.requests.iter().all(|one| !one.operation.is_answered());
        if only_messages || rng.chance(1, 2) {
            continue;
        }
        for request in &mut end.requests {
            if rng.chance(1, 8) {
                *request = placing(rng, request);
            }
        }
    }
}

fn drains(rng: &mut Rng, requests: usize) -> Vec<Drain> {
    let count = rng.between(1, 3);
    let mut drains: Vec<Drain> = (0..count)
        .map(|_| Drain {
            after: rng.below(requests as u64 + 1) as usize,
            notify: rng.chance(3, 4),
            rest: rng.below(400) * MICROSECOND,
        })
        .collect();
    drains.sort_by_key(|drain| drain.after);
    drains
}

/// An ATOMIC WRITE or a FLUSH in place of a request.
fn placing(rng: &mut Rng, request: &Planned) -> Planned {
    let is_flush = rng.chance(1, 2);
    Planned {
        operation: if is_flush { Operation::Flush } else { Operation::AtomicWrite },
        length: if is_flush { rng.below(20_000) as usize } else { 8 },
        segments: 0,
        solicited: false,
        window: false,
        ..*request
    }
}

/// Makes some requests wrong.
fn add_defects(scenario: &mut Scenario, rng: &mut Rng) {
    let ends = scenario.connections.iter_mut().flat_map(|connection| &mut connection.ends);
    for end in ends {
        let mut is_chosen = rng.chance(1, 2);
        while is_chosen && !end.requests.is_empty() {
            let position = rng.below(end.requests.len() as u64) as usize;
            end.requests[position] = defective(rng);
            is_chosen = rng.chance(1, 2);
        }
    }
    let connection = pick_mut(rng, &mut scenario.connections);
    if rng.chance(1, 3) {
        forbid(connection, rng);
    }
}

/// One side of a connection does not allow what the other one sometimes asks: the first such
/// request is wrong, and its application does not try again.
fn forbid(connection: &mut ConnectionPlan, rng: &mut Rng) {
    let side = rng.below(2) as usize;
    let rights = [Access::REMOTE_READ, Access::REMOTE_ATOMIC, Access::FLUSH_GLOBAL];
    let without = *pick(rng, &rights);
    let allowed = Access::ALL.bits() & !without.bits();
    connection.ends[side].access = Access::from_bits(allowed).unwrap_or(Access::ALL);
    let asking = connection.ends[side ^ 1].requests.iter_mut();
    let mut is_first = true;
    for request in asking.filter(|request| request.operation.needs() == without) {
        let defect = is_first.then_some(Defect::NotAllowed);
        let was = request.operation;
        let operation = if is_first { was } else { Operation::Send };
        // What carries itself has no segments, and more bytes than may be inline; a READ may be
        // longer than any message.
        let length = match is_first {
            true => request.length,
            false if was.carries_itself() => 8,
            false => request.length.min(MESSAGE as usize),
        };
        *request = Planned { operation, defect, length, ..*request };
        is_first = false;
    }
}

const WINDOW_DEFECTS: [Defect; 4] =
    [Defect::WindowBounds, Defect::WindowRights, Defect::WindowOfAnother, Defect::Binding];

fn defective(rng: &mut Rng) -> Planned {
    // What a queue pair does not allow is decided for the connection.
    // Windows have many rules, and requests that come down to another defect if none is bound.
    let kinds = if rng.chance(1, 4) { &WINDOW_DEFECTS[..] } else { &Defect::ALL[..] };
    let defect = match *pick(rng, kinds) {
        Defect::NotAllowed => Defect::RemoteKey,
        other => other,
    };
    let operations: &[Operation] = match defect {
        Defect::RemoteKey
        | Defect::NotAllowed
        | Defect::RemoteStaleKey
        | Defect::RemoteBounds
        | Defect::RemoteRights
        | Defect::RemoteDomain => &[
            Operation::Write,
            Operation::WriteImmediate,
            Operation::Read,
            Operation::CompareSwap,
            Operation::FetchAdd,
            Operation::AtomicWrite,
            Operation::Flush,
        ],
        Defect::Misaligned => {
            &[Operation::CompareSwap, Operation::FetchAdd, Operation::AtomicWrite]
        }
        Defect::InvalidateKey => &[Operation::SendInvalidate],
        Defect::ReceiveTooSmall | Defect::ReceiveKey => {
            &[Operation::Send, Operation::SendImmediate]
        }
        Defect::LocalKey | Defect::LocalBounds => &[
            Operation::Send,
            Operation::SendImmediate,
            Operation::Write,
            Operation::WriteImmediate,
            Operation::Read,
            Operation::FetchAdd,
        ],
        Defect::LocalRights => &[Operation::Read, Operation::CompareSwap],
        Defect::LocalInvalidateKey => &[Operation::LocalInvalidate],
        Defect::WindowBounds | Defect::WindowRights | Defect::WindowOfAnother => {
            &[Operation::Write, Operation::WriteImmediate, Operation::Read]
        }
        Defect::Binding => &[Operation::BindWindow],
    };
    let operation = *pick(rng, operations);
    let most = if rng.chance(1, 3) { 20_000 } else { DEFECTIVE as u64 };
    let any = rng.between(1, most) as usize;
    let length = match operation {
        _ if operation.needs_alignment() => 8,
        Operation::LocalInvalidate | Operation::BindWindow => 0,
        _ if defect == Defect::LocalRights || WINDOW_DEFECTS.contains(&defect) => {
            any.min(DEFECTIVE)
        }
        _ => any,
    };
    let segments = match operation {
        _ if operation.carries_itself() => 0,
        _ if operation.is_atomic() => 1,
        _ => rng.between(1, 4) as usize,
    };
    let signaled = rng.chance(1, 2);
    let receive_segments = rng.between(1, 3) as usize;
    let planned =
        Planned { segments, receive_segments, signaled, ..Planned::new(operation, length) };
    planned.defective(defect)
}
