//! What runs on a fabric: hosts around one switch, and the flows between them.

use crate::engine::CongestionOptions;
use crate::time::{Instant, MICROSECOND, MILLISECOND};

/// How the switch marks packets, and when it drops them or pauses senders. Sizes are bytes that
/// packets take of the line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchPlan {
    /// A queue of up to so many bytes marks nothing.
    pub kmin: u64,
    /// A queue of more than so many bytes marks everything.
    pub kmax: u64,
    /// The share of packets that is marked at `kmax`, rising evenly from 0 at `kmin`; 0 to 1.
    pub pmax: f64,
    /// Bytes that a port's queue holds; what comes beyond is dropped.
    pub buffer: u64,
    /// Priority flow control, if there is any.
    pub pfc: Option<PfcPlan>,
}

/// When a switch pauses who sends to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfcPlan {
    /// Once so many bytes of one sender are queued, it is told to pause.
    pub xoff: u64,
    /// Once no more than so many are left, it may go on.
    pub xon: u64,
}

impl Default for PfcPlan {
    fn default() -> Self {
        Self { xoff: 64 * 1024, xon: 48 * 1024 }
    }
}

impl Default for SwitchPlan {
    /// For lines of 10 Gbit/s. What the paper recommends (5 KB, 200 KB, 1 %) is for 40 Gbit/s and
    /// hundreds of flows; few flows on a slow line fill the queue up to `kmax` before the first mark
    /// then, and all are cut at once (incast of 8: 77 % of the line instead of 90).
    fn default() -> Self {
        Self { kmin: 5_000, kmax: 100_000, pmax: 0.2, buffer: 1_000_000, pfc: None }
    }
}

/// What a flow is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// RDMA WRITEs on a reliable connection.
    Write,
    /// RDMA READs on a reliable connection: the receiver of the data asks for it.
    Read,
    /// RDMA WRITEs on an unreliable connection.
    UnreliableWrite,
    /// Datagrams.
    Datagram,
}

impl Carrier {
    /// The transport and what is done over it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "RC write",
            Self::Read => "RC read",
            Self::UnreliableWrite => "UC write",
            Self::Datagram => "UD send",
        }
    }
}

/// Data from one host to another, as much as the network takes, from `start` to `stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPlan {
    /// Number of the host that has the data.
    pub from: usize,
    /// Number of the host that gets it.
    pub to: usize,
    /// What it is made of.
    pub carrier: Carrier,
    /// When it begins.
    pub start: Instant,
    /// When nothing more is asked for.
    pub stop: Instant,
}

/// A whole run, decided by this alone.
#[derive(Clone, Debug, PartialEq)]
pub struct FabricPlan {
    /// Name of the scenario.
    pub name: &'static str,
    /// Hosts around the switch.
    pub hosts: usize,
    /// Who sends to whom.
    pub flows: Vec<FlowPlan>,
    /// Bits a second of each line, in each direction.
    pub rate: u64,
    /// Nanoseconds along a line.
    pub delay: u64,
    /// The switch.
    pub switch: SwitchPlan,
    /// Congestion control of all hosts. Its line rate is that of the lines if it names none.
    pub congestion: CongestionOptions,
    /// When the run ends.
    pub end: Instant,
    /// Nanoseconds of one figure in the report's series.
    pub bin: u64,
    /// Where all randomness comes from.
    pub seed: u64,
}

/// A kind of run that can be asked for by name.
#[derive(Clone, Copy, Debug)]
pub struct FabricScenario {
    /// Its name.
    pub name: &'static str,
    /// What happens and what there is to see.
    pub text: &'static str,
    /// Senders, if nobody asks for another number.
    pub senders: usize,
    flows: fn(usize, Instant) -> Vec<FlowPlan>,
}

const SCENARIOS: &[FabricScenario] = &[
    FabricScenario {
        name: "two-flows",
        text: "two hosts write to a third one: both get half of its line",
        senders: 2,
        flows: |senders, end| all_to_first(senders, end, Carrier::Write),
    },
    FabricScenario {
        name: "incast",
        text: "many hosts write to one at once, which is what storage and shuffles do: the queue \
               before its line fills, marks slow the senders down",
        senders: 8,
        flows: |senders, end| all_to_first(senders, end, Carrier::Write),
    },
    FabricScenario {
        name: "late-start",
        text: "flows to one host begin one after another, while the earlier ones go on: those that \
               have must give, until all have the same",
        senders: 4,
        flows: late_start,
    },
    FabricScenario {
        name: "relief",
        text: "all senders but one stop when half of the time is over: the one that is left gets \
               the whole line back",
        senders: 4,
        flows: relief,
    },
    FabricScenario {
        name: "reads",
        text: "one host reads from many: the responders are slowed down",
        senders: 8,
        flows: |senders, end| all_to_first(senders, end, Carrier::Read),
    },
    FabricScenario {
        name: "datagrams",
        text: "many hosts send datagrams to one: nothing is acknowledged, marks alone keep them from \
               sending what is dropped",
        senders: 4,
        flows: |senders, end| all_to_first(senders, end, Carrier::Datagram),
    },
    FabricScenario {
        name: "victim",
        text: "an incast, and one of its senders also writes to a host that nobody else writes to: \
               with --pfc on --congestion off this flow suffers with the others, though its way is \
               free",
        senders: 8,
        flows: victim,
    },
];

impl FabricScenario {
    /// All there are.
    pub fn all() -> &'static [Self] {
        SCENARIOS
    }

    /// The one of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }

    /// The usual run of it: lines of 10 Gbit/s and 1 µs, 50 ms in bins of 1 ms, no flow control.
    /// `senders` is at least 1.
    pub fn plan(&self, senders: usize, seed: u64) -> FabricPlan {
        self.plan_until(senders, seed, Instant::from_nanos(50 * MILLISECOND))
    }

    /// The same with another end.
    pub fn plan_until(&self, senders: usize, seed: u64, end: Instant) -> FabricPlan {
        let flows = (self.flows)(senders.max(1), end);
        let hosts = flows.iter().map(|flow| flow.from.max(flow.to) + 1).max().unwrap_or(0);
        FabricPlan {
            name: self.name,
            hosts,
            flows,
            rate: 10_000_000_000,
            delay: MICROSECOND,
            switch: SwitchPlan::default(),
            congestion: CongestionOptions::default(),
            end,
            bin: (end.as_nanos() / 50).max(1),
            seed,
        }
    }
}

fn all_to_first(senders: usize, end: Instant, carrier: Carrier) -> Vec<FlowPlan> {
    let flow = |from| FlowPlan { from, to: 0, carrier, start: Instant::ZERO, stop: end };
    (1..=senders).map(flow).collect()
}

fn late_start(senders: usize, end: Instant) -> Vec<FlowPlan> {
    let mut flows = all_to_first(senders, end, Carrier::Write);
    let step = end.as_nanos() / 2 / senders as u64;
    for (index, flow) in flows.iter_mut().enumerate() {
        flow.start = Instant::from_nanos(index as u64 * step);
    }
    flows
}

fn relief(senders: usize, end: Instant) -> Vec<FlowPlan> {
    let mut flows = all_to_first(senders, end, Carrier::Write);
    for flow in &mut flows[1..] {
        flow.stop = Instant::from_nanos(end.as_nanos() / 2);
    }
    flows
}

fn victim(senders: usize, end: Instant) -> Vec<FlowPlan> {
    let mut flows = all_to_first(senders, end, Carrier::Write);
    flows.push(FlowPlan { from: 1, to: senders + 1, ..flows[0] });
    flows
}
