//! Queue pairs without acknowledgements in the simulated world: unreliable connections and
//! datagrams, beside the connections that are reliable.
//!
//! ```text
//!   busy ─▶ farewell ─▶ emptying ─▶ over
//!    │        │            └ moved to the error state: what receives are left is flushed
//!    │        └ nothing is lost any more: one small message to each must arrive, so that a
//!    │          receiver which has stopped to listen after some loss is found
//!    └ random requests; a local error stops the send queue, the application brings it back
//! ```

mod completing;
mod end;
mod plan;
mod posting;
mod random;
mod stages;

pub use plan::{PlannedReceive, UnackedPlan, UnackedRequest};

pub(super) use end::UnackedEnd;
pub(super) use random::plans;
pub(super) use stages::Stage;
