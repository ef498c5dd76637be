//! The port of a story: hands in what the story delivers, keeps what the engine sends.

use std::collections::VecDeque;
use std::net::IpAddr;

use uroce::engine::{IdentificationRule, Port, PortCapabilities, SourcePorts};
use uroce::wire::{Flow, Identification, ReceivedBurst, SentBurst};

/// One packet on its way to the engine.
pub struct Arrival {
    pub flow: Flow,
    pub identification: Identification,
    pub traffic_class: u8,
    /// BTH to ICRC.
    pub bytes: Vec<u8>,
}

/// See the module's text.
pub struct ScriptPort {
    capabilities: PortCapabilities,
    slot: Vec<u8>,
    pub arrived: VecDeque<Arrival>,
    /// Packets that the network below takes at the moment.
    pub room: usize,
    pub sent: Vec<(SentBurst, Vec<u8>)>,
    /// Whether its receive queue is more than half full.
    pub pressed: bool,
}

impl ScriptPort {
    pub fn new(mtu: usize, max_segments: usize) -> Self {
        Self {
            capabilities: PortCapabilities {
                mtu,
                max_segments,
                max_burst_bytes: 65_507,
                identification: IdentificationRule::BasePlusIndex,
                source_ports: SourcePorts::Any,
            },
            slot: vec![0xee; 65_507],
            arrived: VecDeque::new(),
            room: usize::MAX,
            sent: Vec::new(),
            pressed: false,
        }
    }
}

impl Port for ScriptPort {
    fn capabilities(&self) -> &PortCapabilities {
        &self.capabilities
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        let mut packets = 0;
        while packets < budget {
            let Some(arrival) = self.arrived.pop_front() else { break };
            packets += 1;
            sink(&ReceivedBurst {
                flow: arrival.flow,
                traffic_class: arrival.traffic_class,
                identification: arrival.identification,
                segment: arrival.bytes.len(),
                bytes: &arrival.bytes,
            });
        }
        packets
    }

    fn is_pressed(&mut self) -> bool {
        self.pressed
    }

    /// There is no ICMP here.
    fn take_unreachable(
        &mut self,
        _: bool,
        _: &mut dyn FnMut(IpAddr, uroce::engine::UnreachableKind),
    ) {
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        let mut packets = 0;
        while packets < budget && self.room > 0 {
            let Some(burst) = fill(&mut self.slot) else { break };
            packets += burst.packets();
            self.room = self.room.saturating_sub(burst.packets());
            self.sent.push((burst, self.slot[..burst.length].to_vec()));
        }
        packets
    }
}
