//! Completions of queue pairs without acknowledgements.

use crate::queue::{Completion, QueuePairState};
use crate::wire::Qpn;

use super::super::oracle::{Rule, Violation};
use super::super::world::{Event, World};
use super::stages::Stage;

/// Requests that are posted at most after the application has seen an error: they are flushed.
const POSTS_IN_ERROR: u64 = 3;

impl World {
    /// The queue pair without acknowledgements of this number, if it is one.
    pub(in super::super) fn find_unacked(&self, node: usize, number: Qpn) -> Option<usize> {
        let mut ends = self.unacked.iter();
        ends.position(|end| end.plan.node == node && end.queues.number() == number)
    }

    /// One run of a node's application, as far as it concerns them.
    pub(in super::super) fn run_unacked(&mut self, node: usize) -> Result<(), Violation> {
        if self.stage != Stage::Busy {
            return Ok(());
        }
        for number in 0..self.unacked.len() {
            if self.unacked[number].plan.node == node {
                self.post_unacked_receives(number)?;
                self.post_unacked_sends(number)?;
            }
        }
        Ok(())
    }

    /// Whether anything of a node's queue pairs is outstanding.
    pub(in super::super) fn unacked_waits(&self, node: usize) -> bool {
        self.unacked.iter().any(|end| {
            end.plan.node == node
                && (self.oracle.outstanding_unacked_sends(end.id) > 0
                    || self.oracle.outstanding_unacked_receives(end.id) > 0)
        })
    }

    pub(in super::super) fn handle_unacked(
        &mut self,
        number: usize,
        completion: &Completion,
    ) -> Result<(), Violation> {
        self.oracle.unacked_completed(self.unacked[number].id, completion)?;
        if completion.kind.is_receive() {
            self.endings.note_receive(completion.status);
            return Ok(());
        }
        self.finish_unacked_sends(number, completion);
        if completion.status.is_success() || self.unacked[number].posts_in_error.is_some() {
            return Ok(());
        }
        self.note_send_error(number)
    }

    /// The oracle agreed: everything up to the completed request has ended.
    fn finish_unacked_sends(&mut self, number: usize, completion: &Completion) {
        while let Some(posted) = self.unacked[number].sends.pop_front() {
            let is_last = posted.id == completion.id;
            let has_left = !is_last || completion.status.is_success();
            if has_left {
                let channel = self.channel_of(number);
                self.network.prove_row(channel, posted.row);
                self.unacked_packets.0 += posted.packets;
            }
            self.unacked_packets.1 += posted.packets;
            if is_last {
                self.endings.note_unacked(posted.defect, completion.status);
                return;
            }
        }
    }

    /// A local error stops the send queue and nothing else.
    fn note_send_error(&mut self, number: usize) -> Result<(), Violation> {
        let queues = &self.unacked[number].queues;
        let (name, state) = (queues.number(), queues.state());
        if state != QueuePairState::Sqe {
            let text = format!("{name} is in {state} after an error of its send queue, not SQE");
            return Err(Violation::new(Rule::Status, text));
        }
        self.unacked[number].posts_in_error = Some(self.rng.below(POSTS_IN_ERROR + 1) as u32);
        let delay = self.choose(self.unacked[number].plan.resume);
        self.put(self.now + delay.max(1), Event::Resume(number));
        Ok(())
    }
}
