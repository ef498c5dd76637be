//! Bytes to types and back: RoCE headers, the invariant CRC, management datagrams, plain
//! Ethernet, IP and UDP. Pure, and never panics on input.

mod burst;
mod ids;
mod psn;

pub use burst::{Flow, Identification, ROCE_PORT, ReceivedBurst, SentBurst};
pub use ids::{Lkey, Msn, PKey, QKey, Qpn, Rkey, Srqn};
pub use psn::Psn;
