//! uroce: RoCEv2 in userspace.

pub mod engine;
pub mod memory;
pub mod queue;
pub mod rng;
pub mod software;
pub mod time;
pub mod wire;
