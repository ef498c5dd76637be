//! RDMA without RDMA hardware: RoCEv2 in userspace.
//!
//! uroce speaks the InfiniBand transport over UDP port 4791 from ordinary sockets: no RDMA card, no
//! kernel module, no root. [`verbs`] is what applications use:
//!
//! ```
//! use std::time::Duration;
//! use uroce::verbs::{
//!     self, Access, ConnectOptions, QueuePairOptions, SendOperation, connect_pair,
//! };
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Any network interface is a device; here the one that reaches only this host.
//!     let device = verbs::open("lo")?;
//!     let domain = device.allocate_domain()?;
//!     let completions = device.create_completion_queue(16)?;
//!
//!     // Two ends in one process. Two processes would exchange their `endpoint()` and `connect()`.
//!     let options = QueuePairOptions::new(&completions);
//!     let alice = domain.create_queue_pair(&options)?;
//!     let bob = domain.create_queue_pair(&options)?;
//!     connect_pair(&alice, &bob, &ConnectOptions::default())?;
//!
//!     // Alice writes into Bob's memory; Bob does nothing.
//!     let source = domain.allocate(4096, Access::NONE)?;
//!     let target = domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!     source.write(0, b"over the wire")?;
//!     alice.post(1, SendOperation::Write(target.remote(0)), source.segment(0, 13))?;
//!
//!     let completion = completions.wait_one(Duration::from_secs(5))?;
//!     assert!(completion.status.is_success(), "{}", completion.status);
//!     assert_eq!(target.to_vec(0, 13)?, b"over the wire");
//!     Ok(())
//! }
//! ```
//!
//! The parts can be used by themselves: [`wire`] reads and writes packets, [`pcap`] captures,
//! [`fault`] decides fates, [`engine`] runs on any [`link`], and in virtual time on none.
//!
//! # A tour, from the bottom up
//!
//! Each module uses only those before it (`tests/layers.rs` checks that):
//!
//! | module | what it is | where to begin |
//! | --- | --- | --- |
//! | [`time`], [`rng`] | the only clock type and the only randomness of what follows | [`time::Instant`] |
//! | [`wire`] | bytes to types that cannot be wrong, and back | [`wire::Packet`], [`wire::icrc`] |
//! | [`pcap`] | captures, read and written | [`pcap::Reader`] |
//! | [`memory`] | registered memory: regions, keys, rights | [`memory::OwnedMemory`] |
//! | [`queue`] | work queues and completion queues, shared with the application | [`queue::SendRequest`] |
//! | `transport` | the queue pair's state machines; private | `src/transport/pair.rs` |
//! | [`engine`] | one device's worth of them, as plain data that is given turns | [`engine::Engine::turn`] |
//! | [`words`] | failures, flight recorders and packets in sentences | [`words::explain`] |
//! | [`fault`] | the seeded fate of each packet | [`fault::FaultPlan`] |
//! | [`link`] | what carries packets: UDP sockets, memory; recorded, impaired | [`link::Link`] |
//! | [`host`] | interfaces, addresses, GIDs, privileges | [`host::interfaces`] |
//! | [`software`] | engine, link, lock and thread: a device; several processes on one port | [`software::Device`] |
//! | [`verbs`] | what applications see | [`verbs::open`], [`verbs::QueuePair`] |
//! | [`dissect`] | tolerant decode of any captured frame: outer layers, RoCE, ICRC, MADs | [`dissect::Dissector`] |
//! | [`sim`] | whole worlds in virtual time, judged by an oracle that models verbs | [`sim::Scenario`] |
//!
//! # Rules that hold everywhere
//!
//! - What comes from the network never panics, never allocates without bound, and changes nothing
//!   before it has been checked. What is dropped is counted, with its reason ([`engine::Counter`]).
//! - What comes from the caller is refused with a typed error that names what is wrong and what to
//!   do, and then nothing has changed.
//! - Memory that peers may write is never seen through a reference: [`memory::OwnedMemory`] copies.
//! - Up to [`engine`] nothing knows a clock, a socket or a thread: time is an argument.

#![warn(unreachable_pub)]

pub mod dissect;
pub mod engine;
pub mod fault;
pub mod host;
pub mod link;
pub mod memory;
#[cfg(feature = "parts")]
#[doc(hidden)]
pub mod parts;
pub mod pcap;
pub mod queue;
pub mod rng;
#[cfg(not(loom))]
pub mod sim;
pub mod software;
pub mod time;
mod transport;
#[cfg(not(loom))]
pub mod verbs;
pub mod wire;
pub mod words;

/// What the targets in `fuzz/` cannot reach otherwise.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    /// A message of another process that shares our port.
    pub fn forwarded(message: &[u8]) {
        crate::software::fuzz_forwarded(message);
    }
}
