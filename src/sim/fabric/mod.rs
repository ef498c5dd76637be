//! Hosts around one switch, where flows meet: congestion control at work, in virtual time.
//!
//! ```text
//!   host: engine ─ card ─ line ─▶ ┌─ switch ──────────────┐ ─ line ─▶ host
//!   host: engine ─ card ─ line ─▶ │ a queue for each port │ ─ line ─▶ host
//!     ▲                           └───────────────────────┘
//!     └──────── pause (PFC) ──────────────┘
//! ```
//!
//! Everything of a run is in its [`FabricPlan`]: the same plan gives the same report, to the bit.
//! Applications always have more to send, and payload is not looked at; that it arrives unharmed is
//! what [`super::Scenario`]s are for.

mod host;
mod nic;
mod packet;
mod plan;
mod report;
mod switch;
mod world;

pub use plan::{Carrier, FabricPlan, FabricScenario, FlowPlan, PfcPlan, SwitchPlan};
pub use report::{FabricReport, FlowReport};

impl FabricPlan {
    /// Runs it.
    ///
    /// # Panics
    /// A host that a flow names does not exist, there are more than 250 hosts, the line's rate or
    /// the bins are 0, or a flow on a reliable connection fails for good.
    pub fn run(&self) -> FabricReport {
        assert!(self.hosts <= 250 && self.rate > 0 && self.bin > 0, "see the method's text");
        world::World::new(self).run()
    }
}
