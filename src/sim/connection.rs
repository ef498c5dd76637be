//! Connections: made, let go of after an error, made anew.

use std::sync::Arc;

use crate::engine::QueuePairOptions;
use crate::queue::{
    AddressVector, QueueCapacities, QueuePairAttributes, QueuePairKind, QueuePairQueues,
    QueuePairState,
};
use crate::time::MICROSECOND;
use crate::wire::{Psn, Qpn};

use super::end::End;
use super::node::address;
use super::oracle::{Allowance, Violation};
use super::scenario::{ConnectionPlan, EndPlan};
use super::world::{Event, Phase, World};

/// Time between two looks whether a broken connection is empty.
const EMPTYING: u64 = 100 * MICROSECOND;
/// Segments that a work request may have.
pub(super) const SEGMENTS: u32 = 6;
/// Bytes that a request may carry inline.
pub(super) const INLINE: u32 = 128;

impl World {
    pub(super) fn create_connections(&mut self) {
        let mut on_node = vec![0; self.nodes.len()];
        for plan in self.scenario.connections.clone() {
            for end in &plan.ends {
                let queues = self.create_queue_pair(&plan, end);
                let mut window = || {
                    let node = &mut self.nodes[end.node];
                    node.window(end.node, &mut self.rng, &mut self.oracle)
                };
                let windows = [window(), window()];
                let node = &mut self.nodes[end.node];
                let grant = node.grant(end.node, &mut self.rng, &mut self.oracle);
                let index = on_node[end.node];
                on_node[end.node] += 1;
                self.ends.push(End::new(
                    &self.scenario,
                    end.clone(),
                    index,
                    queues,
                    windows,
                    grant,
                ));
            }
            let connection = self.phases.len();
            self.phases.push(Phase::Down);
            self.connect(connection);
        }
    }

    fn create_queue_pair(&mut self, plan: &ConnectionPlan, end: &EndPlan) -> Arc<QueuePairQueues> {
        let node = &mut self.nodes[end.node];
        let queue = |index: usize| Arc::clone(&node.queues[index].queue);
        let options = QueuePairOptions {
            kind: QueuePairKind::Rc,
            domain: node.domain,
            send_completions: queue(end.completion_queues[0]),
            receive_completions: queue(end.completion_queues[1]),
            capacities: QueueCapacities {
                send_requests: end.depth,
                receive_requests: end.receive_depth,
                send_segments: SEGMENTS,
                receive_segments: SEGMENTS,
                inline_bytes: INLINE,
            },
            signal_all: plan.signal_all,
        };
        node.engine.create_queue_pair(&options).expect("the limits allow it")
    }

    /// Brings both ends of a connection to RTS.
    fn connect(&mut self, connection: usize) {
        let plan = self.scenario.connections[connection].clone();
        let ends = [2 * connection, 2 * connection + 1];
        let allowances = [allowance(&plan); 2];
        let ids = self.oracle.connect(allowances);
        for side in [0, 1] {
            let peer_cursor = self.ends[ends[side ^ 1]].cursor;
            self.ends[ends[side]].start_over(ids[side], peer_cursor);
            let number = self.ends[ends[side]].queues.number();
            let requests = &self.ends[ends[side]].plan.requests;
            let only_messages = requests.iter().all(|one| !one.operation.is_answered());
            self.network.name_end(ends[side], ends[side ^ 1], number, only_messages);
            self.network.name_window(ends[side], self.ends[ends[side]].grant.window());
        }
        let first_psns = self.first_psns(&plan);
        for side in [0, 1] {
            let mtu = plan.path_mtu.bytes() as u32;
            self.network.begin_ledger(ends[side], first_psns[side].value(), mtu);
            let peer = self.ends[ends[side ^ 1]].queues.number();
            let steps = steps(&plan, side, peer, first_psns, self.scenario.ipv6);
            self.take_steps(ends[side], &steps, plan.starts_late.filter(|_| side == 1));
        }
        self.phases[connection] = Phase::Up;
        for side in [0, 1] {
            let delay = self.choose(self.scenario.application_delay);
            self.run_application_at(plan.ends[side].node, self.now + delay);
        }
    }

    /// RESET to RTS; with a last step that waits for the peer, or for a time.
    fn take_steps(&mut self, end: usize, steps: &[QueuePairAttributes; 3], late: Option<u64>) {
        let [init, receive, send] = steps;
        self.modify(end, init);
        self.modify(end, receive);
        let Some(late) = late else { return self.modify(end, send) };
        self.ends[end].last_step = Some(*send);
        self.oracle.only_receives(self.ends[end].id);
        self.put(self.now + late, Event::StartSending(end));
    }

    /// As planned for the first connection; later ones begin anywhere.
    fn first_psns(&mut self, plan: &ConnectionPlan) -> [Psn; 2] {
        if self.reconnections == 0 {
            return [0, 1].map(|side| Psn::new(plan.ends[side].psn));
        }
        [0, 1].map(|_| Psn::new(self.rng.next_u32()))
    }

    pub(super) fn modify(&mut self, end: usize, attributes: &QueuePairAttributes) {
        let (node, number) = (self.ends[end].plan.node, self.ends[end].queues.number());
        self.modify_pair(node, number, attributes);
    }

    pub(super) fn modify_pair(
        &mut self,
        node: usize,
        number: Qpn,
        attributes: &QueuePairAttributes,
    ) {
        let outcome = self.nodes[node].engine.modify_queue_pair(self.now, number, attributes);
        outcome.unwrap_or_else(|error| panic!("modify of queue pair {number}: {error}"));
        self.tell_applications(node);
        self.turn_by(node, self.now);
    }

    /// An error was seen on a connection.
    pub(super) fn break_connection(&mut self, connection: usize) {
        if self.phases[connection] == Phase::Up {
            self.phases[connection] = Phase::Broken;
            let delay = self.choose(self.scenario.connections[connection].teardown);
            self.put(self.now + delay, Event::Teardown(connection));
        }
    }

    /// The application moves both ends to the error state.
    pub(super) fn let_go(&mut self, connection: usize) -> Result<(), Violation> {
        for end in [2 * connection, 2 * connection + 1] {
            self.oracle.stop(self.ends[end].id)?;
            if self.ends[end].queues.state() != QueuePairState::Error {
                self.modify(end, &QueuePairAttributes::to_state(QueuePairState::Error));
            }
        }
        self.phases[connection] = Phase::Emptying;
        self.put(self.now + EMPTYING, Event::Reconnect(connection));
        Ok(())
    }

    /// Connects anew once everything of the old connection has ended.
    pub(super) fn try_reconnect(&mut self, connection: usize) -> Result<(), Violation> {
        let ends = [2 * connection, 2 * connection + 1];
        let is_empty = ends.iter().all(|end| {
            let id = self.ends[*end].id;
            self.oracle.outstanding_sends(id) == 0 && self.oracle.outstanding_receives(id) == 0
        });
        if !is_empty || !self.network.is_quiet(connection) {
            for end in ends {
                self.post_marker(end)?;
                self.run_application_at(self.ends[end].plan.node, self.now + MICROSECOND);
            }
            self.put(self.now + EMPTYING, Event::Reconnect(connection));
            return Ok(());
        }
        self.oracle.disconnect(self.ends[ends[0]].id)?;
        self.reconnections += 1;
        if ends.iter().all(|end| self.ends[*end].is_exhausted()) {
            self.phases[connection] = Phase::Down;
            return Ok(());
        }
        for end in ends {
            self.renew(end, connection);
        }
        self.connect(connection);
        Ok(())
    }

    /// A fresh queue pair, or the old one reset; and windows whose keys are surely valid.
    fn renew(&mut self, end: usize, connection: usize) {
        let node = self.ends[end].plan.node;
        if self.rng.chance(1, 2) {
            self.modify(end, &QueuePairAttributes::to_state(QueuePairState::Reset));
        } else {
            let number = self.ends[end].queues.number();
            let engine = &mut self.nodes[node].engine;
            engine.destroy_queue_pair(number).expect("it exists");
            let plan = self.scenario.connections[connection].clone();
            let end_plan = self.ends[end].plan.clone();
            self.ends[end].queues = self.create_queue_pair(&plan, &end_plan);
        }
        let end = &mut self.ends[end];
        end.window.start_over(&mut self.nodes[node]);
        end.own_window.start_over(&mut self.nodes[node]);
        end.grant.start_over(&mut self.nodes[node]);
    }
}

fn allowance(plan: &ConnectionPlan) -> Allowance {
    Allowance {
        retry_exhaustion: plan.may_exhaust_retries,
        receiver_not_ready_exhaustion: plan.rnr_retry < 7,
    }
}

/// The attributes of each step from RESET to RTS.
fn steps(
    plan: &ConnectionPlan,
    side: usize,
    peer: Qpn,
    psns: [Psn; 2],
    ipv6: bool,
) -> [QueuePairAttributes; 3] {
    let (own, other) = (&plan.ends[side], &plan.ends[side ^ 1]);
    let mut way = AddressVector::new(0, address(other.node, ipv6));
    way.traffic_class = if plan.ecn { 2 } else { 0 };
    [
        QueuePairAttributes {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(own.access),
            ..QueuePairAttributes::to_state(QueuePairState::Init)
        },
        QueuePairAttributes {
            address: Some(way),
            path_mtu: Some(plan.path_mtu),
            destination: Some(peer),
            receive_psn: Some(psns[side ^ 1]),
            max_destination_rd_atomic: Some(other.rd_atomic),
            min_rnr_timer: Some(plan.min_rnr_timer),
            ..QueuePairAttributes::to_state(QueuePairState::Rtr)
        },
        QueuePairAttributes {
            timeout: Some(plan.timeout),
            retry_count: Some(plan.retry_count),
            rnr_retry: Some(plan.rnr_retry),
            send_psn: Some(psns[side]),
            max_rd_atomic: Some(own.rd_atomic),
            ..QueuePairAttributes::to_state(QueuePairState::Rts)
        },
    ]
}
