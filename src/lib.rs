//! uroce: RoCEv2 in userspace.

#![warn(unreachable_pub)]

pub mod engine;
pub mod memory;
pub mod pcap;
pub mod queue;
pub mod rng;
pub mod time;
mod transport;
pub mod wire;
