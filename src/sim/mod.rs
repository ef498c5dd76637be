//! A deterministic world for the engine: virtual time, a network with faults, applications with
//! random work, and an oracle that judges.
//!
//! ```text
//!   seed ─▶ scenario ─▶ world ── turns ──▶ engines ◀── packets, each with its fate ──▶ network
//!                         │
//!                         └─ what was posted, what was polled ─▶ oracle ─▶ violation or none
//! ```
//!
//! A run is decided by its scenario alone: the same seed gives the same frames at the same times
//! on any machine. It has two phases. In the first, packets are lost, damaged, doubled and delayed
//! and every promise but progress must hold; in the second the network works, and everything that
//! is left must end soon.

mod application;
mod channel;
mod classify;
mod connection;
mod credits;
mod economy;
mod end;
mod endings;
mod exhaustive;
mod fabric;
mod flights;
mod grants;
mod group;
mod many;
mod matrix;
mod network;
mod node;
pub mod oracle;
mod pattern;
mod placing;
mod port;
mod posting;
mod random;
mod recycled;
mod report;
mod scenario;
mod script;
mod shared;
mod small;
mod states;
mod trace;
mod unacked;
mod world;
mod zone;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use endings::Endings;
pub use exhaustive::{Exhaustive, ExhaustiveReport};
pub use fabric::{
    Carrier, FabricPlan, FabricReport, FabricScenario, FlowPlan, FlowReport, PfcPlan, SwitchPlan,
};
pub use many::{Summary, run_many};
pub use matrix::{Column, Matrix, Row};
pub use network::Tally;
pub use report::{Failure, RunReport};
pub use scenario::{
    ConnectionPlan, Drain, EndPlan, NetworkPlan, NodePlan, Operation, Planned, Polling, Scenario,
    Span,
};
pub use script::{Script, ScriptedFate, Selection};
pub use shared::{LinkKind, LinkPlan, LinkRequest, SharedPlan, SharedQueuePlan};
pub use trace::{CapturedFrame, Keep};
pub use unacked::{PlannedReceive, UnackedPlan, UnackedRequest};

use oracle::{Rule, Violation};
use world::World;

impl Scenario {
    /// The scenario that a seed stands for.
    pub fn random(seed: u64) -> Self {
        random::scenario(seed)
    }

    /// Runs it. A panic of the engine counts as a violation of its invariants.
    ///
    /// A run is the same each time, so only one that failed is asked what happened: in a second run.
    pub fn run(&self) -> RunReport {
        let report = self.play(Keep::NOTHING).0;
        if report.failure.is_none() {
            return report;
        }
        let again = self.play(Keep::default()).0;
        if again.failure.is_some() { again } else { report }
    }

    /// Runs it and keeps more than usual: every frame that was sent, whatever became of it, or a
    /// longer list of events.
    pub fn run_keeping(&self, keep: Keep) -> (RunReport, Vec<CapturedFrame>) {
        let (report, frames, _) = self.play(keep);
        (report, frames)
    }

    /// Runs it and tells how many fates of its script packets met.
    fn run_scripted(&self) -> (RunReport, usize) {
        let (report, _, used) = self.play(Keep::NOTHING);
        if report.failure.is_none() {
            return (report, used);
        }
        (self.run(), used)
    }

    fn play(&self, keep: Keep) -> (RunReport, Vec<CapturedFrame>, usize) {
        let mut world = World::new(self, keep);
        let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
        let outcome = outcome.unwrap_or_else(|panic| Err(from_panic(panic.as_ref())));
        let failure = outcome.err().map(|violation| Failure {
            violation,
            at: world.now,
            events: world.network.trace.last_events(),
        });
        let report = RunReport {
            seed: self.seed,
            hash: world.network.trace.hash(),
            tally: world.network.tally,
            matrix: world.network.matrix.clone(),
            endings: world.endings.clone(),
            requests: world.requests,
            completions: world.completions,
            reconnections: world.reconnections,
            ended: world.now,
            failure,
        };
        let used = world.network.script_used();
        (report, world.network.trace.take_capture(), used)
    }
}

fn from_panic(panic: &(dyn Any + Send)) -> Violation {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Violation::new(Rule::Invariant, text.unwrap_or_else(|| "a panic without text".to_owned()))
}
