//! Bytes to types and back: RoCE headers, the invariant CRC, management datagrams, plain
//! Ethernet, IP and UDP. Pure, and never panics on input.

#![forbid(unsafe_code)]

mod aeth;
mod atomic;
mod bth;
mod burst;
mod crc;
mod datagram;
mod feth;
mod field;
pub mod icrc;
mod ids;
mod immediate;
mod message;
mod opcode;
mod packet;
mod psn;
mod reth;

pub use aeth::{Aeth, Credits, NakCode, RnrTimer, Syndrome};
pub use atomic::AtomicEth;
pub use bth::Bth;
pub use burst::{Flow, Identification, ROCE_PORT, ReceivedBurst, SentBurst};
pub use datagram::{Deth, Rdeth, Xrceth};
pub use feth::Feth;
pub use ids::{Lkey, Msn, PKey, QKey, Qpn, Rkey, Srqn};
pub use immediate::Immediate;
pub use message::{Message, SendTail, Service};
pub use opcode::{ExtendedHeader, Opcode, Operation, Transport};
pub use packet::{Headers, ICRC_LENGTH, MAX_HEADER, Packet, ParseError, pad};
pub use psn::Psn;
pub use reth::Reth;
