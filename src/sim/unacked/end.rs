//! A queue pair without acknowledgements, as its application keeps it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::engine::QueuePairOptions;
use crate::queue::{
    Access, AddressHandleId, AddressVector, QueueCapacities, QueuePairAttributes, QueuePairKind,
    QueuePairQueues, QueuePairState,
};
use crate::time::Instant;
use crate::wire::{Psn, QKey};

use super::super::connection::{INLINE, SEGMENTS};
use super::super::matrix::Row;
use super::super::node::{GUARD, Registered, address};
use super::super::oracle::{UnackedDefect, UnackedId, UnackedPort, Violation};
use super::super::world::{Event, World};
use super::plan::UnackedPlan;
use super::stages::{ROUND, Stage};

/// Queue key of all datagram queue pairs.
pub(super) const QKEY: QKey = QKey::new(0x1357_9bdf);
/// Bytes from which requests are sent, and bytes that a peer may write.
pub(super) const SOURCES: usize = 64 * 1024;
pub(super) const TARGETS: usize = 64 * 1024;
/// Bytes of a receive for a farewell.
pub(super) const FAREWELL: usize = 64;

/// A send request that no completion has covered.
#[derive(Clone, Copy, Debug)]
pub(super) struct PostedUnacked {
    pub(super) id: u64,
    pub(super) row: Row,
    pub(super) packets: u64,
    pub(super) defect: Option<UnackedDefect>,
}

/// See the module's text.
pub(in super::super) struct UnackedEnd {
    pub(in super::super) plan: UnackedPlan,
    pub(in super::super) queues: Arc<QueuePairQueues>,
    pub(in super::super) id: UnackedId,
    /// Sources, then what the peer may write, then receives.
    pub(super) region: Registered,
    /// By number of peer, and the group's behind them; none for an unreliable connection.
    pub(super) handles: Vec<AddressHandleId>,
    /// Next request and next receive of the plan.
    pub(in super::super) cursor: usize,
    pub(super) receive_cursor: usize,
    pub(super) sends: VecDeque<PostedUnacked>,
    /// Where the next source and the next receive begin.
    pub(super) source_at: usize,
    pub(super) receive_at: usize,
    pub(super) next_receive_at: Instant,
    pub(super) unsignaled: u32,
    pub(super) next_id: u64,
    /// Requests that may still be posted although the send queue is in error; nothing while it is
    /// not.
    pub(super) posts_in_error: Option<u32>,
}

impl UnackedEnd {
    /// Whether everything planned has been posted, and the send queue works.
    pub(super) fn is_exhausted(&self) -> bool {
        self.cursor == self.plan.requests.len() && self.posts_in_error.is_none()
    }
}

impl World {
    /// Makes all queue pairs without acknowledgements.
    pub(in super::super) fn create_unacked(&mut self) {
        let plans = self.scenario.unacked.clone();
        if plans.is_empty() {
            return;
        }
        for plan in &plans {
            let end = self.create_unacked_end(plan, plans.len());
            self.unacked.push(end);
        }
        for (number, plan) in plans.iter().enumerate() {
            let peer = self.channel_of(plan.peers[0]);
            let queues = Arc::clone(&self.unacked[number].queues);
            let channel = self.channel_of(number);
            self.network.name_end(channel, peer, queues.number(), true);
            self.network.watch_receives(channel, queues);
        }
        for number in 0..plans.len() {
            self.start_unacked(number);
        }
        self.stage = Stage::Busy;
        self.put(self.now + ROUND, Event::Round);
    }

    /// Everybody who sends at once finds ample receives.
    pub(in super::super) fn post_ample_receives(&mut self) -> Result<(), Violation> {
        for number in 0..self.unacked.len() {
            if self.unacked[number].plan.is_ample {
                self.post_unacked_receives(number)?;
            }
            let node = self.unacked[number].plan.node;
            let delay = self.choose(self.scenario.application_delay);
            self.run_application_at(node, self.now + delay.max(1));
        }
        Ok(())
    }

    /// Number of its channel on the network: behind those of the connections.
    pub(super) fn channel_of(&self, number: usize) -> usize {
        2 * self.scenario.connections.len() + number
    }

    fn create_unacked_end(&mut self, plan: &UnackedPlan, ends: usize) -> UnackedEnd {
        let receives: usize = plan.receives.iter().map(|receive| receive.capacity).sum();
        let size = SOURCES + TARGETS + receives + ends * FAREWELL;
        let node = &mut self.nodes[plan.node];
        let queue = |index: usize| Arc::clone(&node.queues[index].queue);
        let options = QueuePairOptions {
            kind: plan.kind,
            domain: node.domain,
            send_completions: queue(plan.completion_queues[0]),
            receive_completions: queue(plan.completion_queues[1]),
            capacities: QueueCapacities {
                send_requests: plan.depth,
                receive_requests: plan.receive_depth + ends as u32,
                send_segments: SEGMENTS,
                receive_segments: SEGMENTS,
                inline_bytes: INLINE,
            },
            signal_all: plan.signal_all,
        };
        let queues = node.engine.create_queue_pair(&options).expect("the limits allow it");
        let region = node.region(plan.node, size, &mut self.rng, &mut self.oracle);
        let network = &self.scenario.network;
        let id = self.oracle.open_unacked(UnackedPort {
            number: queues.number().value(),
            address: address(plan.node, self.scenario.ipv6),
            machine: plan.node,
            is_datagram: plan.is_datagram(),
            keeps_order: network.keeps_order(),
            may_repeat: network.repeats(),
        });
        UnackedEnd {
            plan: plan.clone(),
            queues,
            id,
            region,
            handles: Vec::new(),
            cursor: 0,
            receive_cursor: 0,
            sends: VecDeque::new(),
            source_at: 0,
            receive_at: GUARD + SOURCES + TARGETS,
            next_receive_at: Instant::ZERO,
            unsignaled: 0,
            next_id: 0,
            posts_in_error: None,
        }
    }

    /// From RESET to RTS.
    fn start_unacked(&mut self, number: usize) {
        let plan = self.unacked[number].plan.clone();
        let steps = match plan.kind {
            QueuePairKind::Ud => datagram_steps(&plan),
            _ => self.connection_steps(&plan),
        };
        let queue_pair = self.unacked[number].queues.number();
        for attributes in &steps {
            self.modify_pair(plan.node, queue_pair, attributes);
        }
        if plan.is_datagram() {
            let handles = (0..=plan.peers.len()).map(|peer| self.address_handle(number, peer));
            self.unacked[number].handles = handles.collect();
        }
        if plan.joins {
            let group = group(self.scenario.ipv6);
            let engine = &mut self.nodes[plan.node].engine;
            engine.attach_multicast(queue_pair, group).expect("the limits allow it");
            self.network.join(self.channel_of(number), plan.node);
        }
    }

    /// The queue pairs that are attached to the group.
    pub(super) fn group_members(&self) -> Vec<UnackedId> {
        self.unacked.iter().filter(|end| end.plan.joins).map(|end| end.id).collect()
    }

    /// A new address handle for the way to a peer, or behind the last to the group.
    pub(super) fn address_handle(&mut self, number: usize, peer: usize) -> AddressHandleId {
        let plan = &self.unacked[number].plan;
        let to = match plan.peers.get(peer) {
            Some(peer) => address(self.unacked[*peer].plan.node, self.scenario.ipv6),
            None => group(self.scenario.ipv6),
        };
        let vector = way(to, plan.ecn);
        let node = &mut self.nodes[plan.node];
        node.engine.create_address_handle(node.domain, &vector).expect("the limits allow it")
    }

    fn connection_steps(&self, plan: &UnackedPlan) -> [QueuePairAttributes; 3] {
        let peer = &self.unacked[plan.peers[0]];
        [
            QueuePairAttributes {
                pkey_index: Some(0),
                port: Some(1),
                access: Some(Access::ALL),
                ..QueuePairAttributes::to_state(QueuePairState::Init)
            },
            QueuePairAttributes {
                address: Some(way(address(peer.plan.node, self.scenario.ipv6), plan.ecn)),
                path_mtu: Some(plan.path_mtu),
                destination: Some(peer.queues.number()),
                receive_psn: Some(Psn::new(peer.plan.psn)),
                ..QueuePairAttributes::to_state(QueuePairState::Rtr)
            },
            QueuePairAttributes {
                send_psn: Some(Psn::new(plan.psn)),
                ..QueuePairAttributes::to_state(QueuePairState::Rts)
            },
        ]
    }
}

fn datagram_steps(plan: &UnackedPlan) -> [QueuePairAttributes; 3] {
    [
        QueuePairAttributes {
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(QKEY),
            ..QueuePairAttributes::to_state(QueuePairState::Init)
        },
        QueuePairAttributes::to_state(QueuePairState::Rtr),
        QueuePairAttributes {
            send_psn: Some(Psn::new(plan.psn)),
            ..QueuePairAttributes::to_state(QueuePairState::Rts)
        },
    ]
}

fn way(to: IpAddr, ecn: bool) -> AddressVector {
    let traffic_class = if ecn { 2 } else { 0 };
    AddressVector { traffic_class, ..AddressVector::new(0, to) }
}

/// The group of all scenarios.
pub(super) fn group(ipv6: bool) -> IpAddr {
    match ipv6 {
        true => Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x51).into(),
        false => Ipv4Addr::new(239, 5, 1, 1).into(),
    }
}
