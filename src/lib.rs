//! uroce: RoCEv2 in userspace.

pub mod engine;
pub mod fault;
pub mod host;
pub mod link;
pub mod pcap;
pub mod rng;
pub mod time;
pub mod wire;
