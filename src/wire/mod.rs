//! Bytes to types and back: RoCE headers, the invariant CRC, management datagrams, plain
//! Ethernet, IP and UDP. Pure, and never panics on input.

#![forbid(unsafe_code)]

mod aeth;
mod area;
mod atomic;
mod bth;
mod burst;
mod crc;
mod datagram;
mod ethernet;
mod feth;
mod field;
mod frame;
mod grh;
pub mod icrc;
mod ids;
mod immediate;
mod ip;
mod lrh;
mod mad;
mod message;
mod opcode;
mod packet;
mod prefix;
mod psn;
mod reth;
mod udp;

pub(crate) use crc::{Crc, power_of_x};

pub use aeth::{Aeth, Credits, NakCode, RnrTimer, Syndrome};
pub use area::NetworkArea;
pub use atomic::AtomicEth;
pub use bth::Bth;
pub use burst::{Flow, Identification, IdentificationRule, ROCE_PORT, ReceivedBurst, SentBurst};
pub use datagram::{Deth, Rdeth, Xrceth};
pub use ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE_V1, Ethernet, VlanTag};
pub use feth::Feth;
pub use frame::{Frame, FrameError, FrameHeaders, Network, frame_headers};
pub use grh::Grh;
pub use ids::{Lkey, Msn, PKey, QKey, Qpn, Rkey, Srqn};
pub use immediate::Immediate;
pub use ip::{Ipv4Header, Ipv6Header, PROTOCOL_UDP, internet_checksum};
pub use lrh::Lrh;
pub use mad::Mad;
pub use message::{Message, SendTail, Service};
pub use opcode::{ExtendedHeader, Opcode, Operation, Transport};
pub use packet::{Headers, ICRC_LENGTH, MAX_HEADER, Packet, ParseError, pad};
pub use psn::Psn;
pub use reth::Reth;
pub use udp::UdpHeader;
