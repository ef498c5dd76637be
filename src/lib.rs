//! uroce: RoCEv2 in userspace.

pub mod engine;
pub mod fault;
pub mod host;
pub mod link;
pub mod memory;
pub mod queue;
pub mod rng;
pub mod software;
pub mod time;
pub mod wire;
