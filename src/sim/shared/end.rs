//! Shared receive queues and links as their applications keep them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::{AsyncEvent, QueuePairOptions, XrcOpen, XrcQueueOptions};
use crate::memory::DomainId;
use crate::queue::{
    Access, AddressHandleId, AddressVector, CompletionQueue, QueueCapacities, QueuePairAttributes,
    QueuePairKind, QueuePairQueues, QueuePairState, ReceiveQueue,
};
use crate::time::MICROSECOND;
use crate::wire::{Psn, QKey, Qpn, Srqn};

use super::super::node::{GUARD, Registered, address};
use super::super::oracle::{LinkDefect, LinkId, LinkPort, SharedId, Violation};
use super::super::scenario::Operation;
use super::super::world::{Event, World};
use super::plan::{LinkKind, LinkPlan, SharedPlan, SharedQueuePlan};

/// Queue key of the datagram links.
pub(super) const QKEY: QKey = QKey::new(0x0246_8ace);
/// Time between two looks at how far the links are.
const ROUND: u64 = 150 * MICROSECOND;
/// Bytes of a word that a link's atomics change, and of the area that its READs read.
pub(super) const WORD: usize = 8;
pub(super) const LIBRARY: usize = 24 * 1024;

/// How far they are, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum SharedStage {
    /// Requests are posted as planned.
    Busy,
    /// All receivers are in the error state.
    Emptying,
    /// There are none, or all have ended.
    Over,
}

/// A shared receive queue.
pub(super) struct SharedQueue {
    pub(super) plan: SharedQueuePlan,
    pub(super) queue: Arc<ReceiveQueue>,
    pub(super) id: SharedId,
    /// Slots of its receives.
    pub(super) region: Registered,
    pub(super) free: Vec<usize>,
    pub(super) next_id: u64,
    /// The limit's event has come, or there is no limit: receives may be posted.
    pub(super) may_refill: bool,
    pub(super) is_armed: bool,
}

/// A request that no completion has covered.
#[derive(Clone, Copy, Debug)]
pub(super) struct PostedLink {
    pub(super) id: u64,
    pub(super) operation: Operation,
    pub(super) packets: u64,
    pub(super) defect: Option<LinkDefect>,
}

/// A link.
pub(super) struct Link {
    pub(super) plan: LinkPlan,
    pub(super) id: LinkId,
    pub(super) sender: Arc<QueuePairQueues>,
    pub(super) receiver: Arc<QueuePairQueues>,
    /// Sources, then what READs and atomics bring.
    pub(super) sources: Registered,
    pub(super) source_at: usize,
    /// At the receiver: a word, what READs read, what WRITEs write.
    pub(super) targets: Registered,
    pub(super) target_at: usize,
    pub(super) handle: Option<AddressHandleId>,
    pub(super) cursor: usize,
    pub(super) posted: VecDeque<PostedLink>,
    pub(super) unsignaled: u32,
    pub(super) next_id: u64,
    pub(super) received: u32,
    pub(super) is_stopped: bool,
}

/// See the module's text.
pub(in super::super) struct SharedWorld {
    pub(super) plan: SharedPlan,
    pub(super) queues: Vec<SharedQueue>,
    pub(super) links: Vec<Link>,
    /// Number of an XRC shared receive queue of another XRC domain.
    pub(super) foreign: Srqn,
    pub(in super::super) stage: SharedStage,
}

impl World {
    /// Makes everything that the scenario has of them.
    pub(in super::super) fn create_shared(&mut self) {
        let Some(plan) = self.scenario.shared.clone() else { return };
        let node = &mut self.nodes[plan.node];
        let domain = node.domain;
        let engine = &mut node.engine;
        let xrc_domain = engine.open_xrc_domain(&XrcOpen::default()).expect("the limits allow it");
        let elsewhere = engine.open_xrc_domain(&XrcOpen::default()).expect("the limits allow it");
        let mut queues = Vec::new();
        for queue in &plan.queues {
            queues.push(self.create_shared_queue(&plan, queue, domain, xrc_domain));
        }
        let foreign = XrcQueueOptions {
            domain,
            xrc_domain: elsewhere,
            completions: Arc::clone(&self.nodes[plan.node].queues[0].queue),
            requests: 1,
            segments: 1,
        };
        let engine = &mut self.nodes[plan.node].engine;
        let foreign =
            engine.create_xrc_shared_receive_queue(&foreign).expect("the limits allow it");
        let foreign = foreign.number().expect("it is an XRC queue");
        let mut links = Vec::new();
        for link in &plan.links {
            links.push(self.create_link(&plan, link, &queues, xrc_domain));
        }
        let stage = SharedStage::Busy;
        self.shared = Some(SharedWorld { plan, queues, links, foreign, stage });
        for link in 0..self.shared().links.len() {
            self.name_link(link);
            self.connect_link(link);
        }
        for node in 0..self.nodes.len() {
            self.run_application_at(node, self.now + 1);
        }
        self.put(self.now + ROUND, Event::SharedRound);
    }

    pub(super) fn shared(&self) -> &SharedWorld {
        self.shared.as_ref().expect("the scenario has shared receive queues")
    }

    pub(super) fn shared_mut(&mut self) -> &mut SharedWorld {
        self.shared.as_mut().expect("the scenario has shared receive queues")
    }

    fn create_shared_queue(
        &mut self,
        plan: &SharedPlan,
        queue: &SharedQueuePlan,
        domain: DomainId,
        xrc_domain: crate::queue::XrcDomainId,
    ) -> SharedQueue {
        let size = queue.depth as usize * queue.capacity;
        let node = &mut self.nodes[plan.node];
        let region = node.region(plan.node, size, &mut self.rng, &mut self.oracle);
        let completions = Arc::clone(&node.queues[queue.completion_queue].queue);
        let (requests, segments) = (queue.depth, 2);
        let made = if queue.is_xrc {
            let options = XrcQueueOptions { domain, xrc_domain, completions, requests, segments };
            node.engine.create_xrc_shared_receive_queue(&options)
        } else {
            node.engine.create_shared_receive_queue(domain, requests, segments)
        };
        SharedQueue {
            plan: queue.clone(),
            queue: made.expect("the limits allow it"),
            id: self.oracle.open_shared(),
            region,
            free: (0..queue.depth as usize).collect(),
            next_id: 0,
            may_refill: true,
            is_armed: false,
        }
    }

    fn create_link(
        &mut self,
        plan: &SharedPlan,
        link: &LinkPlan,
        queues: &[SharedQueue],
        xrc_domain: crate::queue::XrcDomainId,
    ) -> Link {
        let [sending, receiving] = link.kind.pair();
        let sends = Arc::clone(&self.nodes[link.node].queues[link.completion_queues[0]].queue);
        let sender = self.create_link_pair(link.node, sending, link.depth, sends, None);
        let receiver = if link.kind == LinkKind::Xrc {
            let engine = &mut self.nodes[plan.node].engine;
            engine.create_xrc_target(xrc_domain).expect("the limits allow it")
        } else {
            let receives = &self.nodes[plan.node].queues[link.completion_queues[1]].queue;
            let (receives, shared) = (Arc::clone(receives), Arc::clone(&queues[link.queue].queue));
            self.create_link_pair(plan.node, receiving, 1, receives, Some(&shared))
        };
        let bytes: usize = link.requests.iter().map(|request| request.length).sum();
        let (from, to) = (link.node, plan.node);
        let sources = self.nodes[from].region(from, bytes + WORD, &mut self.rng, &mut self.oracle);
        let size = WORD + LIBRARY + bytes;
        let targets = self.nodes[to].region(to, size, &mut self.rng, &mut self.oracle);
        self.oracle.store(targets.place(GUARD, WORD), &[0; WORD]);
        targets.memory.write(GUARD, &[0; WORD]).expect("it is inside");
        let network = &self.scenario.network;
        let id = self.oracle.open_link(LinkPort {
            is_reliable: link.kind.is_reliable(),
            is_datagram: link.kind == LinkKind::Ud,
            sender: sender.number().value(),
            queue: (link.kind != LinkKind::Xrc).then(|| queues[link.queue].id),
            completions: if link.kind == LinkKind::Xrc { 0 } else { link.completion_queues[1] },
            keeps_order: network.keeps_order(),
            may_repeat: network.repeats(),
            may_exhaust: link.may_exhaust,
        });
        self.oracle.watch_word(targets.place(GUARD, WORD));
        Link {
            plan: link.clone(),
            id,
            sender,
            receiver,
            sources,
            source_at: GUARD,
            targets,
            target_at: GUARD + WORD + LIBRARY,
            handle: None,
            cursor: 0,
            posted: VecDeque::new(),
            unsignaled: 0,
            next_id: 0,
            received: 0,
            is_stopped: false,
        }
    }

    fn create_link_pair(
        &mut self,
        node: usize,
        kind: QueuePairKind,
        depth: u32,
        completions: Arc<CompletionQueue>,
        shared: Option<&Arc<ReceiveQueue>>,
    ) -> Arc<QueuePairQueues> {
        let node = &mut self.nodes[node];
        let options = QueuePairOptions {
            kind,
            domain: node.domain,
            send_completions: Arc::clone(&completions),
            receive_completions: completions,
            capacities: QueueCapacities {
                send_requests: depth,
                receive_requests: 1,
                send_segments: 2,
                receive_segments: 2,
                inline_bytes: 0,
            },
            signal_all: false,
        };
        let made = node.engine.create_queue_pair_sharing(&options, shared);
        made.expect("the limits allow it")
    }

    /// Channel of a link's sender; that of its receiver is the next.
    pub(super) fn link_channel(&self, link: usize) -> usize {
        2 * self.scenario.connections.len() + self.scenario.unacked.len() + 2 * link
    }

    fn name_link(&mut self, number: usize) {
        let channel = self.link_channel(number);
        let link = &self.shared().links[number];
        let (sender, receiver) = (link.sender.number(), Arc::clone(&link.receiver));
        let is_reliable = link.plan.kind.is_reliable();
        let only_messages = link.plan.requests.iter().all(|one| !one.operation.brings_data());
        self.network.name_end(channel, channel + 1, sender, only_messages);
        self.network.name_end(channel + 1, channel, receiver.number(), true);
        if !is_reliable {
            self.network.watch_receives(channel + 1, receiver);
        }
    }

    /// Both ends from RESET to RTS.
    fn connect_link(&mut self, number: usize) {
        let link = &self.shared().links[number];
        let (plan, to) = (link.plan.clone(), self.shared().plan.node);
        let numbers = [link.sender.number(), link.receiver.number()];
        let nodes = [plan.node, to];
        for side in 0..2 {
            let peer = AddressVector::new(0, address(nodes[side ^ 1], self.scenario.ipv6));
            for attributes in steps(&plan, side, peer, numbers[side ^ 1]) {
                self.modify_pair(nodes[side], numbers[side], &attributes);
            }
        }
        if plan.kind == LinkKind::Ud {
            let peer = AddressVector::new(0, address(to, self.scenario.ipv6));
            let node = &mut self.nodes[plan.node];
            let handle = node.engine.create_address_handle(node.domain, &peer);
            self.shared_mut().links[number].handle = Some(handle.expect("the limits allow it"));
        }
    }

    /// Goes on to the next stage if this one has ended.
    pub(in super::super) fn look_at_shared(&mut self) -> Result<(), Violation> {
        match self.shared().stage {
            SharedStage::Busy if self.are_links_done() => self.stop_links()?,
            SharedStage::Emptying => self.close_shared()?,
            _ => {}
        }
        if self.shared().stage != SharedStage::Over {
            self.put(self.now + ROUND, Event::SharedRound);
        }
        Ok(())
    }

    fn are_links_done(&self) -> bool {
        (0..self.shared().links.len()).all(|number| {
            let (link, channel) = (&self.shared().links[number], self.link_channel(number));
            let has_failed = self.oracle.has_link_failed(link.id);
            let is_exhausted = link.cursor == link.plan.requests.len() || has_failed;
            let quiet =
                self.network.is_silent_to(channel) && self.network.is_silent_to(channel + 1);
            is_exhausted && self.oracle.outstanding_link(link.id) == 0 && quiet
        })
    }

    fn stop_links(&mut self) -> Result<(), Violation> {
        for node in 0..self.nodes.len() {
            self.poll_all(node)?;
        }
        for link in 0..self.shared().links.len() {
            self.stop_link(link)?;
        }
        self.shared_mut().stage = SharedStage::Emptying;
        Ok(())
    }

    /// Moves a link's receiver to the error state, if it is not there.
    pub(in super::super) fn stop_link(&mut self, number: usize) -> Result<(), Violation> {
        let node = self.shared().plan.node;
        let link = &mut self.shared_mut().links[number];
        link.is_stopped = true;
        let (id, receiver) = (link.id, Arc::clone(&link.receiver));
        self.oracle.stop_link(id);
        if receiver.state() != QueuePairState::Error {
            let error = QueuePairAttributes::to_state(QueuePairState::Error);
            self.modify_pair(node, receiver.number(), &error);
        }
        Ok(())
    }

    fn close_shared(&mut self) -> Result<(), Violation> {
        for node in 0..self.nodes.len() {
            self.poll_all(node)?;
        }
        let posted: Vec<u32> = self.shared().queues.iter().map(|one| one.queue.posted()).collect();
        self.oracle.close_shared(&posted)?;
        self.shared_mut().stage = SharedStage::Over;
        Ok(())
    }

    /// What the engine's events say of shared receive queues, right after it was called.
    pub(in super::super) fn note_shared_events(
        &mut self,
        node: usize,
        events: &[AsyncEvent],
    ) -> Result<(), Violation> {
        let Some(shared) = self.shared.as_mut().filter(|shared| shared.plan.node == node) else {
            return Ok(());
        };
        for event in events {
            match event {
                AsyncEvent::SharedReceiveQueueLimit(queue) => {
                    let mut queues = shared.queues.iter_mut();
                    let of = queues.find(|one| Arc::ptr_eq(&one.queue, queue));
                    let of = of.expect("only these have limits");
                    (of.may_refill, of.is_armed) = (true, false);
                    self.oracle.limit_reached(of.id, queue.posted())?;
                }
                AsyncEvent::LastReceiveReached(number) => {
                    let mut links = shared.links.iter();
                    let of = links.find(|link| link.receiver.number() == *number);
                    self.oracle.last_receive_reached(of.expect("a receiver").id)?;
                }
                _ => {}
            }
        }
        let wants_more = shared.queues.iter().any(|queue| queue.may_refill);
        let queues = shared.queues.iter();
        let mut stale = queues.filter(|queue| queue.is_armed);
        stale.try_for_each(|queue| self.oracle.check_limit(queue.id, queue.queue.posted()))?;
        if wants_more && !events.is_empty() {
            self.run_application_at(node, self.now + MICROSECOND);
        }
        Ok(())
    }

    /// What never ended, in words.
    pub(in super::super) fn unfinished_shared(&self) -> String {
        let Some(shared) = self.shared.as_ref().filter(|one| one.stage != SharedStage::Over) else {
            return String::new();
        };
        let mut text = format!(" shared receive queues are {:?};", shared.stage);
        for link in &shared.links {
            let left = link.plan.requests.len() - link.cursor;
            let outstanding = self.oracle.outstanding_link(link.id);
            text += &format!(
                " {} {:?} {} ({} to {}): {outstanding} outstanding, {left} not posted;",
                link.id,
                link.plan.kind,
                link.sender.number(),
                link.sender.state(),
                link.receiver.state()
            );
        }
        text
    }
}

/// The attributes of each step of a link's end from RESET to RTS. Side 0 sends.
fn steps(plan: &LinkPlan, side: usize, way: AddressVector, peer: Qpn) -> [QueuePairAttributes; 3] {
    let kind = plan.kind.pair()[side];
    let is_datagram = kind == QueuePairKind::Ud;
    let (acts, serves) = (kind.is_reliable() && kind.sends(), kind.is_reliable() && kind.serves());
    [
        QueuePairAttributes {
            pkey_index: Some(0),
            port: Some(1),
            access: (!is_datagram).then_some(Access::ALL),
            qkey: is_datagram.then_some(QKEY),
            ..QueuePairAttributes::to_state(QueuePairState::Init)
        },
        QueuePairAttributes {
            address: (!is_datagram).then_some(way),
            path_mtu: (!is_datagram).then_some(plan.path_mtu),
            destination: (!is_datagram).then_some(peer),
            receive_psn: (!is_datagram).then_some(Psn::new(plan.psn)),
            max_destination_rd_atomic: serves.then_some(4),
            min_rnr_timer: serves.then_some(plan.min_rnr_timer),
            ..QueuePairAttributes::to_state(QueuePairState::Rtr)
        },
        QueuePairAttributes {
            timeout: kind.is_reliable().then_some(plan.timeout),
            retry_count: acts.then_some(7),
            rnr_retry: acts.then_some(7),
            send_psn: Some(Psn::new(plan.psn)),
            max_rd_atomic: acts.then_some(4),
            ..QueuePairAttributes::to_state(QueuePairState::Rts)
        },
    ]
}
