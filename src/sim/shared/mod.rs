//! Shared receive queues in the simulated world: one node has some, plain and XRC ones, and links
//! from all nodes take receives from them: reliable and unreliable connections, datagrams, and
//! extended reliable connections, whose requests name a queue.
//!
//! ```text
//!   busy ─▶ emptying ─▶ over
//!    │        └ every receiver is in error: what it held is flushed, and nothing is missing
//!    └ random requests; receives are posted when limit events or completions ask for it
//! ```

mod completing;
mod end;
mod plan;
mod posting;
mod random;

pub use plan::{LinkKind, LinkPlan, LinkRequest, SharedPlan, SharedQueuePlan};

pub(super) use end::{SharedStage, SharedWorld};
pub(super) use random::plan;
