//! A host's network card: one packet at a time on its line, the next from the engine when it has
//! room, nothing while the switch asks to pause.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::packet::{Class, FabricPacket};
use crate::engine::{IdentificationRule, Port, PortCapabilities, SourcePorts, UnreachableKind};
use crate::wire::{ReceivedBurst, SentBurst};

/// Bytes that wait for the line at most when more is taken from the engine.
const ENOUGH: u64 = 2_048;
/// Packets in a burst at most: engines of cards take turns after few.
const SEGMENTS: usize = 4;

/// See the module's text.
pub(super) struct Nic {
    host: usize,
    addresses: Vec<IpAddr>,
    capabilities: PortCapabilities,
    slot: Vec<u8>,
    control: VecDeque<FabricPacket>,
    data: VecDeque<FabricPacket>,
    waiting: u64,
    paused: bool,
    busy: bool,
    pub(super) arrived: VecDeque<FabricPacket>,
}

impl Nic {
    /// The card of host number `host` of those with these addresses.
    pub(super) fn new(host: usize, addresses: Vec<IpAddr>, mtu: usize) -> Self {
        let capabilities = PortCapabilities {
            mtu,
            max_segments: SEGMENTS,
            max_burst_bytes: SEGMENTS * mtu,
            identification: IdentificationRule::BasePlusIndex,
            source_ports: SourcePorts::Any,
        };
        Self {
            host,
            addresses,
            slot: vec![0; capabilities.max_burst_bytes],
            capabilities,
            control: VecDeque::new(),
            data: VecDeque::new(),
            waiting: 0,
            paused: false,
            busy: false,
            arrived: VecDeque::new(),
        }
    }

    /// Whether more can be taken from the engine.
    pub(super) fn has_room(&self) -> bool {
        self.waiting < ENOUGH
    }

    /// The switch asks for a pause, or ends it.
    pub(super) fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// The next packet for the line, if that is free.
    pub(super) fn next(&mut self) -> Option<FabricPacket> {
        if self.busy {
            return None;
        }
        let packet = match self.control.pop_front() {
            Some(packet) => packet,
            None if self.paused => return None,
            None => self.data.pop_front()?,
        };
        if packet.class() == Class::Data {
            self.waiting -= packet.size();
        }
        self.busy = true;
        Some(packet)
    }

    /// The packet on the line is through.
    pub(super) fn line_free(&mut self) {
        self.busy = false;
    }

    /// Takes over the burst that lies in the slot.
    fn take(&mut self, burst: &SentBurst) {
        let to = self.addresses.iter().position(|address| *address == burst.flow.destination);
        let Some(to) = to else { return };
        for (index, bytes) in self.slot[..burst.length].chunks(burst.segment.max(1)).enumerate() {
            let identification = burst.first_identification.wrapping_add(index as u16);
            let ends = (self.host, to);
            let class = burst.traffic_class;
            let packet = FabricPacket::new(ends, burst.flow, class, identification, bytes.to_vec());
            match packet.class() {
                Class::Control => self.control.push_back(packet),
                Class::Data => {
                    self.waiting += packet.size();
                    self.data.push_back(packet);
                }
            }
        }
    }
}

impl Port for Nic {
    fn capabilities(&self) -> &PortCapabilities {
        &self.capabilities
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        let mut packets = 0;
        while packets < budget
            && let Some(packet) = self.arrived.pop_front()
        {
            packets += 1;
            sink(&packet.as_received());
        }
        packets
    }

    fn is_pressed(&mut self) -> bool {
        false
    }

    /// Silence is all that the fabric tells.
    fn take_unreachable(&mut self, _: bool, _: &mut dyn FnMut(IpAddr, UnreachableKind)) {}

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        let mut packets = 0;
        while packets < budget && self.has_room() {
            let Some(burst) = fill(&mut self.slot) else { break };
            packets += burst.packets();
            self.take(&burst);
        }
        packets
    }
}
