//! The engine's way to the simulated network.

use std::net::IpAddr;

use crate::engine::{Port, PortCapabilities, UnreachableKind};
use crate::time::Instant;
use crate::wire::{Identification, ReceivedBurst, SentBurst};

use super::flights::Flight;
use super::network::Network;

/// One node's port during one turn.
pub(super) struct NodePort<'a> {
    pub(super) network: &'a mut Network,
    pub(super) node: usize,
    pub(super) now: Instant,
}

impl Port for NodePort<'_> {
    fn capabilities(&self) -> &PortCapabilities {
        &self.network.capabilities
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        let mut packets = 0;
        while packets < budget {
            let Some(index) = self.network.inboxes[self.node].pop_front() else { break };
            let Flight { ticket, bytes, told } = &mut self.network.flights[index];
            let (ticket, bytes, told) = (*ticket, std::mem::take(bytes), std::mem::take(told));
            if ticket.flow.destination.is_multicast() {
                self.network.receive_for_group(self.node, &ticket);
            } else if let Some(end) = ticket.end {
                self.network.receive(self.now, end, &ticket, &told);
            }
            let is_v4 = ticket.flow.destination.is_ipv4();
            let identification = if is_v4 && self.network.plan.sees_identification {
                Identification::Seen { first: ticket.first_identification, flags: 0x4000 }
            } else {
                Identification::Unseen
            };
            sink(&ReceivedBurst {
                flow: ticket.flow,
                traffic_class: ticket.traffic_class,
                identification,
                segment: ticket.segment,
                bytes: &bytes,
            });
            packets += bytes.len().div_ceil(ticket.segment.max(1));
            self.network.land(index, bytes, told);
        }
        packets
    }

    fn is_pressed(&mut self) -> bool {
        false
    }

    /// Silence is all that this network tells.
    fn take_unreachable(&mut self, _: bool, _: &mut dyn FnMut(IpAddr, UnreachableKind)) {}

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        let mut packets = 0;
        while packets < budget {
            let Some(burst) = fill(&mut self.network.slot) else { break };
            packets += burst.packets();
            self.network.send(self.now, self.node, &burst);
        }
        packets
    }
}
