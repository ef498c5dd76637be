//! One end of a connection, as its application keeps it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::MemoryKeys;
use crate::queue::{QueuePairAttributes, QueuePairQueues};
use crate::time::Instant;
use crate::wire::Rkey;

use super::grants::Grant;
use super::node::{Node, Registered};
use super::oracle::{Defect, QueueId};
use super::scenario::{EndPlan, Operation, Scenario};
use super::zone::Zone;

/// A send request that no completion has covered.
#[derive(Clone, Copy, Debug)]
pub(super) struct PostedSend {
    pub(super) id: u64,
    pub(super) operation: Operation,
    pub(super) defect: Option<Defect>,
    /// A READ of the peer's window: an invalidation has to wait for it.
    pub(super) reads_window: bool,
    /// It goes through the peer's memory window.
    pub(super) uses_grant: bool,
    /// A local operation on the own memory window, or a SEND that ends the peer's.
    pub(super) on_grant: bool,
}

/// Memory that SENDs with invalidate, or local invalidations, make unreachable again and again.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) region: Registered,
    /// A request that invalidates it is under way.
    pub(super) is_claimed: bool,
    /// Keys that were invalidated but are still registered.
    pub(super) previous: Option<MemoryKeys>,
}

impl Window {
    pub(super) fn new(region: Registered) -> Self {
        Self { region, is_claimed: false, previous: None }
    }

    /// The key was invalidated: registers the memory under a new one, and keeps the old one, which
    /// must stay useless.
    pub(super) fn renew(&mut self, node: &mut Node) {
        if let Some(previous) = self.previous.take() {
            node.engine.deregister(previous.local).expect("it is registered, though invalid");
        }
        self.previous = Some(self.region.keys);
        self.region.keys = node.register_again(&self.region);
        self.is_claimed = false;
    }

    /// Nobody knows whether the key was invalidated: everything is deregistered, and registered
    /// afresh.
    pub(super) fn start_over(&mut self, node: &mut Node) {
        self.renew(node);
        if let Some(previous) = self.previous.take() {
            node.engine.deregister(previous.local).expect("it is registered, valid or not");
        }
    }

    /// A key that was invalidated, if there was one.
    pub(super) fn stale_key(&self) -> Option<Rkey> {
        self.previous.map(|keys| keys.remote)
    }
}

/// See the module's text.
pub(super) struct End {
    pub(super) plan: EndPlan,
    /// The queue pair; replaced when the application destroys it.
    pub(super) queues: Arc<QueuePairQueues>,
    pub(super) id: QueueId,
    /// Next request of the plan.
    pub(super) cursor: usize,
    /// Next request of the peer's plan for which a receive may be missing.
    pub(super) receive_cursor: usize,
    pub(super) sends: VecDeque<PostedSend>,
    pub(super) receives: VecDeque<u64>,
    pub(super) sources: Zone,
    pub(super) buffers: Zone,
    pub(super) landings: Zone,
    /// For the peer's SENDs with invalidate.
    pub(super) window: Window,
    /// For own local invalidations.
    pub(super) own_window: Window,
    /// The memory window that its requests bind.
    pub(super) grant: Grant,
    pub(super) next_receive_at: Instant,
    pub(super) unsignaled: u32,
    pub(super) next_id: u64,
    /// The step to ready-to-send, as long as that waits.
    pub(super) last_step: Option<QueuePairAttributes>,
    pub(super) next_drain: usize,
    /// It was drained and has not gone on.
    pub(super) is_draining: bool,
}

impl End {
    pub(super) fn new(
        scenario: &Scenario,
        plan: EndPlan,
        index_on_node: usize,
        queues: Arc<QueuePairQueues>,
        windows: [Registered; 2],
        grant: Grant,
    ) -> Self {
        let starts = Node::zones_of(index_on_node, scenario.zones);
        let zone = |number: usize| Zone::new(starts[number], scenario.zones[number]);
        let [window, own_window] = windows.map(Window::new);
        Self {
            plan,
            queues,
            id: QueueId(usize::MAX),
            cursor: 0,
            receive_cursor: 0,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            sources: zone(0),
            buffers: zone(1),
            landings: zone(2),
            window,
            own_window,
            grant,
            next_receive_at: Instant::ZERO,
            unsignaled: 0,
            next_id: 0,
            last_step: None,
            next_drain: 0,
            is_draining: false,
        }
    }

    /// A key of this end that was invalidated, by the peer or by itself.
    pub(super) fn stale_key(&self) -> Option<Rkey> {
        let regions = self.window.stale_key().or_else(|| self.own_window.stale_key());
        // Which of them it is changes from time to time.
        if self.next_id.is_multiple_of(2) { self.grant.stale_key().or(regions) } else { regions }
    }

    /// Whether everything planned has been posted.
    pub(super) fn is_exhausted(&self) -> bool {
        self.cursor == self.plan.requests.len()
    }

    /// A new connection begins: nothing is under way.
    pub(super) fn start_over(&mut self, id: QueueId, receive_cursor: usize) {
        self.id = id;
        self.receive_cursor = receive_cursor;
        self.sends.clear();
        self.receives.clear();
        self.sources.clear();
        self.buffers.clear();
        self.landings.clear();
        self.unsignaled = 0;
        self.last_step = None;
        self.is_draining = false;
    }
}
