//! What an application does when it runs: polls, lets the oracle judge, posts.

use crate::queue::{Attachment, Completion};

use super::end::PostedSend;
use super::node::Completions;
use super::oracle::{Rule, Violation};
use super::scenario::{Operation, Polling};
use super::trace::Note;
use super::world::{LOOK_AGAIN, Phase, World};

/// Completions taken at a time.
const BATCH: usize = 16;

impl World {
    /// One run of a node's application.
    pub(super) fn run_application(&mut self, node: usize) -> Result<(), Violation> {
        self.poll_all(node)?;
        for end in 0..self.ends.len() {
            if self.ends[end].plan.node == node && self.phases[end / 2] == Phase::Up {
                self.post_receives(end)?;
                if self.ends[end].last_step.is_none() {
                    self.post_sends(end)?;
                    self.drain(end);
                }
            }
        }
        self.run_unacked(node)?;
        self.run_shared(node)?;
        if self.nodes[node].engine.doorbells().any() {
            self.ring(node);
        }
        self.look_again_later(node);
        Ok(())
    }

    /// Takes everything out of a node's completion queues.
    pub(super) fn poll_all(&mut self, node: usize) -> Result<(), Violation> {
        for queue in 0..self.nodes[node].queues.len() {
            let was_told = self.nodes[node].queues[queue].was_told();
            let polling = self.nodes[node].queues[queue].polling;
            let taken = self.take_completions(node, queue)?;
            if polling == Polling::Polled {
                continue;
            }
            let completions = &mut self.nodes[node].queues[queue];
            if completions.is_armed && !was_told {
                check_silence(completions, &taken, polling)?;
            }
            completions.queue.arm(polling == Polling::SolicitedEvent);
            completions.is_armed = true;
            // What came before the arming was already taken; the rule of verbs is to look again.
            self.take_completions(node, queue)?;
        }
        Ok(())
    }

    fn take_completions(
        &mut self,
        node: usize,
        queue: usize,
    ) -> Result<Vec<Completion>, Violation> {
        let mut all = Vec::new();
        let mut batch = std::mem::take(&mut self.batch);
        loop {
            batch.clear();
            let queue = &self.nodes[node].queues[queue].queue;
            let outcome = queue.poll(BATCH, |_, completion| batch.push(completion));
            if let Err(overrun) = outcome {
                return Err(Violation::new(Rule::Completion, overrun.to_string()));
            }
            if batch.is_empty() {
                self.batch = batch;
                return Ok(all);
            }
            for completion in &batch {
                self.handle_completion(node, completion)?;
            }
            all.extend_from_slice(&batch);
        }
    }

    fn handle_completion(&mut self, node: usize, completion: &Completion) -> Result<(), Violation> {
        self.completions += 1;
        let number = completion.queue_pair;
        self.network.trace.note(self.now, Note::Polled { node, completion: *completion });
        if let Some(end) = self.find_unacked(node, number) {
            return self.handle_unacked(end, completion);
        }
        if let Some(link) = self.find_link(node, number) {
            return self.handle_link(link, completion);
        }
        let is_it = |end: &super::end::End| end.plan.node == node && end.queues.number() == number;
        let Some(end) = self.ends.iter().position(is_it) else {
            let text = format!("node {node}: completion of {number}, which does not exist");
            return Err(Violation::new(Rule::Completion, text));
        };
        self.oracle.completed(self.ends[end].id, completion)?;
        if completion.kind.is_receive() {
            self.finish_receive(end, completion);
        } else {
            self.finish_sends(end, completion);
        }
        if !completion.status.is_success() {
            self.break_connection(end / 2);
        }
        Ok(())
    }

    /// The oracle agreed: everything up to the completed request has ended.
    fn finish_sends(&mut self, end: usize, completion: &Completion) {
        while let Some(posted) = self.ends[end].sends.pop_front() {
            let this = &mut self.ends[end];
            this.sources.release(posted.id);
            this.landings.release(posted.id);
            let is_last = posted.id == completion.id;
            if !is_last || completion.status.is_success() {
                self.network.prove(end, posted.operation);
                self.finish_local(end, &posted);
            }
            if posted.uses_grant {
                // The peer may have waited to end what it grants.
                self.wake(end ^ 1);
            }
            if is_last {
                self.endings.note_send(posted.defect, completion.status);
                return;
            }
        }
    }

    /// An operation on own keys was carried out, if it was one.
    fn finish_local(&mut self, end: usize, posted: &PostedSend) {
        if posted.operation.is_local() && posted.on_grant {
            self.ends[end].grant.carried_out(posted.operation);
        } else if posted.operation == Operation::LocalInvalidate {
            let node = self.ends[end].plan.node;
            self.ends[end].own_window.renew(&mut self.nodes[node]);
        }
    }

    /// The application of this end runs soon.
    fn wake(&mut self, end: usize) {
        let delay = self.choose(self.scenario.application_delay);
        self.run_application_at(self.ends[end].plan.node, self.now + delay);
    }

    fn finish_receive(&mut self, end: usize, completion: &Completion) {
        self.endings.note_receive(completion.status);
        let this = &mut self.ends[end];
        this.receives.pop_front();
        this.buffers.release(completion.id);
        if !completion.status.is_success() {
            return;
        }
        if let Attachment::Invalidated(key) = completion.attachment {
            let node = this.plan.node;
            if this.grant.is_ending(key) {
                this.grant.invalidated();
            } else {
                this.window.renew(&mut self.nodes[node]);
            }
            // The peer may have waited for a key that is valid.
            self.wake(end ^ 1);
        }
    }

    /// Looks again after a while even if nothing tells it to: whoever waits for solicited
    /// completions only has to, and the others check that nothing was kept from them.
    fn look_again_later(&mut self, node: usize) {
        let waits = self.ends.iter().any(|end| {
            end.plan.node == node
                && (self.oracle.outstanding_sends(end.id) > 0
                    || self.oracle.outstanding_receives(end.id) > 0)
        });
        if waits || self.unacked_waits(node) || self.shared_waits(node) {
            self.run_application_at(node, self.now + LOOK_AGAIN);
        }
    }
}

/// An armed queue that did not notify must have had nothing to notify of.
fn check_silence(
    queue: &Completions,
    taken: &[Completion],
    polling: Polling,
) -> Result<(), Violation> {
    let deserves = |completion: &&Completion| match polling {
        Polling::SolicitedEvent => completion.solicited || !completion.status.is_success(),
        _ => true,
    };
    let Some(completion) = taken.iter().find(deserves) else { return Ok(()) };
    let text = format!(
        "a queue of {} entries, armed for {polling:?}, kept completion {} of {} to itself",
        queue.queue.capacity(),
        completion.id,
        completion.queue_pair
    );
    Err(Violation::new(Rule::Event, text))
}
