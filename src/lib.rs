//! uroce: RoCEv2 in userspace.

#![warn(unreachable_pub)]

pub mod engine;
pub mod fault;
pub mod host;
pub mod link;
pub mod memory;
pub mod pcap;
pub mod queue;
pub mod rng;
pub mod software;
pub mod time;
mod transport;
#[cfg(not(loom))]
pub mod verbs;
pub mod wire;
