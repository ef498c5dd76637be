//! uroce: RoCEv2 in userspace.

pub mod engine;
pub mod pcap;
pub mod rng;
pub mod time;
pub mod wire;
