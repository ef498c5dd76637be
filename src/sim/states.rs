//! States that an application puts a connected queue pair into: it starts late, and drains now and
//! then; and the events that tell of it.

use crate::engine::AsyncEvent;
use crate::queue::{QueuePairAttributes, QueuePairState};
use crate::wire::Qpn;

use super::oracle::{Notice, Rule, Violation};
use super::world::{Event, Phase, World};

/// What is told to a node's application, and of which queue pair.
pub(super) fn notice(event: &AsyncEvent) -> Option<(Qpn, Notice)> {
    Some(match event {
        AsyncEvent::CommunicationEstablished(number) => (*number, Notice::Established),
        AsyncEvent::RequestError(number) => (*number, Notice::RequestError),
        AsyncEvent::AccessError(number) => (*number, Notice::AccessError),
        AsyncEvent::SendQueueDrained(number) => (*number, Notice::Drained),
        AsyncEvent::QueuePairFatal(number) => (*number, Notice::Fatal),
        _ => return None,
    })
}

impl World {
    /// Applications hear what they were told since the last time. Returns whether there was anything.
    pub(super) fn hear_notices(&mut self) -> Result<bool, Violation> {
        let is_anything = !self.notices.is_empty();
        while let Some((node, number, notice)) = self.notices.pop_front() {
            let words = [4, u64::from(number.value()), (node as u64) << 8 | notice as u64];
            let text = || format!("node {node} hears of {number}: {notice}");
            self.network.trace.tell(self.now, words, text);
            let is_it =
                |end: &super::end::End| end.plan.node == node && end.queues.number() == number;
            let Some(end) = self.ends.iter().position(is_it) else {
                let text = format!("node {node}: \"{notice}\" of {number}, which answers nobody");
                return Err(Violation::new(Rule::Notice, text));
            };
            if notice == Notice::Drained {
                // What completed before has to be seen before.
                self.poll_all(node)?;
            }
            self.oracle.notice(self.ends[end].id, notice)?;
            self.endings.note_notice(notice);
            match notice {
                Notice::Established => self.start_sending(end),
                Notice::Drained => self.rest(end),
                _ => self.break_connection(end / 2),
            }
        }
        Ok(is_anything)
    }

    /// The end becomes ready to send, if it is not yet.
    pub(super) fn start_sending(&mut self, end: usize) {
        if self.ends[end].queues.state() != QueuePairState::Rtr {
            return;
        }
        let Some(attributes) = self.ends[end].last_step.take() else { return };
        self.oracle.may_send(self.ends[end].id);
        self.modify(end, &attributes);
        let delay = self.choose(self.scenario.application_delay);
        self.run_application_at(self.ends[end].plan.node, self.now + delay);
    }

    /// Drains the send queue if the plan says so at this point.
    pub(super) fn drain(&mut self, end: usize) {
        let this = &self.ends[end];
        let Some(plan) = this.plan.drains.get(this.next_drain).copied() else { return };
        let is_ready = this.queues.state() == QueuePairState::Rts && !this.is_draining;
        if !is_ready || this.cursor < plan.after {
            return;
        }
        self.ends[end].next_drain += 1;
        self.ends[end].is_draining = true;
        self.oracle.drain(self.ends[end].id, plan.notify);
        let attributes = QueuePairAttributes {
            drain_notification: Some(plan.notify),
            ..QueuePairAttributes::to_state(QueuePairState::Sqd)
        };
        self.modify(end, &attributes);
        if !plan.notify {
            self.put(self.now + plan.rest, Event::GoOn(end));
        }
    }

    /// The send queue is drained: nothing is sent until it goes on.
    fn rest(&mut self, end: usize) {
        self.network.rest(end, true);
        let rest = self.ends[end].plan.drains[self.ends[end].next_drain - 1].rest;
        self.put(self.now + rest, Event::GoOn(end));
    }

    /// The send queue goes on, with another attribute.
    pub(super) fn go_on(&mut self, end: usize) {
        let is_resting = std::mem::take(&mut self.ends[end].is_draining);
        let state = self.ends[end].queues.state();
        if !is_resting || state != QueuePairState::Sqd || self.phases[end / 2] != Phase::Up {
            return;
        }
        let timer = self.scenario.connections[end / 2].min_rnr_timer;
        let changed = QueuePairAttributes {
            min_rnr_timer: Some(timer % 18 + 1),
            ..QueuePairAttributes::to_state(QueuePairState::Sqd)
        };
        self.modify(end, &changed);
        self.oracle.resume(self.ends[end].id);
        self.network.rest(end, false);
        self.modify(end, &QueuePairAttributes::to_state(QueuePairState::Rts));
        let delay = self.choose(self.scenario.application_delay);
        self.run_application_at(self.ends[end].plan.node, self.now + delay);
    }
}
