//! A packet on the fabric.

use crate::wire::{Flow, Identification, ReceivedBurst};

/// What a packet takes of a line beside its UDP payload: IPv4, UDP, Ethernet, preamble and gap.
const OVERHEAD: usize = 20 + 8 + 14 + 4 + 8 + 12;

/// Traffic classes as a switch treats them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Goes first, and is never paused: DSCP 48 and above.
    Control,
    /// Everything else.
    Data,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct FabricPacket {
    pub(super) from: usize,
    pub(super) to: usize,
    flow: Flow,
    traffic_class: u8,
    identification: u16,
    /// BTH to ICRC.
    pub(super) bytes: Vec<u8>,
}

impl FabricPacket {
    pub(super) fn new(
        (from, to): (usize, usize),
        flow: Flow,
        traffic_class: u8,
        identification: u16,
        bytes: Vec<u8>,
    ) -> Self {
        Self { from, to, flow, traffic_class, identification, bytes }
    }

    /// One of so many bytes on the line.
    #[cfg(test)]
    pub(super) fn test(from: usize, to: usize, size: usize, traffic_class: u8) -> Self {
        let address = std::net::IpAddr::from([10, 0, 0, 1]);
        let flow = Flow { source: address, destination: address, source_port: 0xc000 };
        Self::new((from, to), flow, traffic_class, 0, vec![0; size - OVERHEAD])
    }

    /// Bytes on the line.
    pub(super) fn size(&self) -> u64 {
        (self.bytes.len() + OVERHEAD) as u64
    }

    pub(super) fn class(&self) -> Class {
        if self.traffic_class >> 2 >= 48 { Class::Control } else { Class::Data }
    }

    /// Marks it "congestion experienced", if it is ECN-capable. Returns whether it was.
    pub(super) fn mark(&mut self) -> bool {
        let capable = self.traffic_class & 3 != 0;
        if capable {
            self.traffic_class |= 3;
        }
        capable
    }

    /// The queue pair that it is for.
    pub(super) fn destination(&self) -> u32 {
        let number = |place: usize| u32::from(self.bytes.get(place).copied().unwrap_or(0));
        number(5) << 16 | number(6) << 8 | number(7)
    }

    /// As its receiver sees it.
    pub(super) fn as_received(&self) -> ReceivedBurst<'_> {
        ReceivedBurst {
            flow: self.flow,
            traffic_class: self.traffic_class,
            identification: Identification::Seen { first: self.identification, flags: 0x4000 },
            segment: self.bytes.len(),
            bytes: &self.bytes,
        }
    }
}
