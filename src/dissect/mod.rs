//! Tolerant decode of any captured frame: outer layers, RoCE, ICRC, management datagrams. What
//! cannot be read further keeps what was read and gets an [`Issue`]; nothing panics, nothing is
//! guessed, nothing is kept but a bounded table of iWARP connections.
//!
//! ```text
//!   Record ─► Dissector ─► Frame ─► packets(): RdmaPacket, ICRC judged
//!                            │         ├─► json::FrameObject   one line a packet
//!                            │         ├─► text                one line, a block, or bytes
//!                            │         └─► Summary
//!                            └─ envelope, tunnels, flow control
//! ```
//!
//! ```
//! use uroce::dissect::{Dissector, Kind, Verdict};
//! use uroce::pcap::LinkType;
//!
//! // A congestion notification of a ConnectX-4 Lx.
//! let frame: Vec<u8> = (0..148)
//!     .step_by(2)
//!     .map(|at| u8::from_str_radix(&concat!(
//!         "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a00",
//!         "1201000012b7002800008100ffff400001180000000000000000000000000000",
//!         "00000000000082fd002a",
//!     )[at..at + 2], 16).unwrap())
//!     .collect();
//! let mut dissector = Dissector::new();
//! let frame = dissector.dissect(LinkType::ETHERNET, frame.len() as u32, &frame);
//! assert_eq!(frame.kind, Kind::RoceV2);
//! let packet = frame.packets().next().unwrap();
//! assert_eq!(packet.opcode_name(), "CNP");
//! assert_eq!(packet.icrc.verdict, Verdict::Ok);
//! ```

#![forbid(unsafe_code)]

mod check;
mod cm;
mod crc32c;
pub mod fields;
mod frame;
mod issue;
pub mod json;
mod judge;
mod layers;
mod mad;
mod mpa;
mod packet;
mod segments;
mod span;
mod summary;
pub mod text;
mod tunnel;
mod vcrc;
mod why;

pub use cm::{CmMessage, CmValue};
pub use frame::{Addresses, Envelope, FlowControl, Frame, Kind, Outer, Stack, Vlans};
pub use issue::{Issue, Issues};
pub use layers::is_supported;
pub use mad::Management;
pub use mpa::Mpa;
pub use packet::{ExtendedHeaders, Icrc, RdmaPacket, Verdict};
pub use summary::Summary;
pub use tunnel::Tunnel;
pub use why::{Explanation, Mistake, explain_icrc, explain_value};

use crate::pcap::LinkType;
use crate::wire::ROCE_PORT;

/// Takes frames apart.
#[derive(Debug)]
pub struct Dissector {
    ports: Vec<u16>,
    connections: mpa::Connections,
}

impl Default for Dissector {
    fn default() -> Self {
        Self::new()
    }
}

impl Dissector {
    /// Takes UDP destination port 4791 for RoCEv2, and no other.
    pub fn new() -> Self {
        Self::with_ports(&[])
    }

    /// Takes further UDP destination ports for RoCEv2 too.
    pub fn with_ports(ports: &[u16]) -> Self {
        let ports = std::iter::once(ROCE_PORT).chain(ports.iter().copied()).collect();
        Self { ports, connections: mpa::Connections::default() }
    }

    /// Takes a frame apart. `length` is that on the wire, `data` what the capture has of it.
    pub fn dissect<'a>(&mut self, link_type: LinkType, length: u32, data: &'a [u8]) -> Frame<'a> {
        let walk = layers::Walk::new(link_type, length, data, &self.ports);
        let (mut frame, tcp) = (walk.frame, walk.tcp);
        if let Some(segment) = tcp
            && !frame.issues.contains(Issue::Fragment)
        {
            self.connections.look(&mut frame, segment);
        }
        frame.find_packets();
        frame
    }
}

impl Frame<'_> {
    /// Whether the frame, or `packet` of it, is wrong: an issue that says so, or a wrong ICRC.
    /// What could not be judged is not wrong.
    pub fn is_wrong(&self, packet: Option<&RdmaPacket<'_>>) -> bool {
        let (issues, icrc) = packet.map_or_else(Default::default, |p| (p.issues, p.icrc));
        frame::is_wrong(self.issues.union(issues), icrc)
    }
}
