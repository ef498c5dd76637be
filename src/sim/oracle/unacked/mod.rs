//! Queue pairs without acknowledgements: unreliable connections and datagrams.
//!
//! What is promised of them is little, so what is checked is exact:
//!
//! ```text
//!   send      completes once and in order: when it has left, or with the fault that its own side
//!             finds, and then everything behind it is flushed until the application resumes
//!   message   arrives whole or not at all; twice only where the network itself makes copies (an
//!             unreliable connection takes a message from its first packet on, whatever the
//!             packet's number: a copy is as good as the original); in order where the network
//!             keeps order; never if its request failed, was flushed or names what is forbidden
//!   receive   consumed by a whole message that fits, the oldest first; what lies behind the
//!             message are bytes of messages that were given up, or the old ones
//!   WRITE     may arrive, in part, as long as anything of it can be on its way
//! ```

mod arrival;
mod defect;
mod queue;
#[cfg(test)]
mod tests;

pub use defect::UnackedDefect;
pub use queue::{UnackedId, UnackedPort, UnackedSend};

use super::memory::Bytes;
use super::queue::PendingReceive;
use super::{Oracle, ReceiveModel, Rule, Violation};
use crate::queue::{Attachment, Completion, CompletionStatus};
pub(super) use queue::UnackedQueue;
use queue::{Message, PendingUnacked, SendEnd};

impl Oracle {
    /// A queue pair without acknowledgements was made ready.
    pub fn open_unacked(&mut self, port: UnackedPort) -> UnackedId {
        self.unacked.push(UnackedQueue::new(port));
        UnackedId(self.unacked.len() - 1)
    }

    /// Its send requests that no completion has covered.
    pub fn outstanding_unacked_sends(&self, queue: UnackedId) -> usize {
        self.unacked[queue.0].sends.len()
    }

    /// Its receives that have not completed.
    pub fn outstanding_unacked_receives(&self, queue: UnackedId) -> usize {
        self.unacked[queue.0].receives.len()
    }

    /// The application posted a send request.
    pub fn post_unacked_send(&mut self, queue: UnackedId, model: &UnackedSend) {
        self.now += 1;
        let token = self.now;
        let data = self.local_bytes(&model.local);
        if let Some(place) = model.target {
            let bytes = Bytes::new(data.clone(), 0, data.len().min(place.length));
            let memory = &mut self.memories[place.memory.0];
            memory.claim(token, model.to[0].claimant(), place.offset, bytes, false);
            // Nobody will ever know whether it arrived.
            memory.abandon(token);
        }
        let deliver = |to: &UnackedId| {
            let inbox = &mut self.unacked[to.0].inbox;
            inbox.push(Message::new(queue, token, model, data.clone()));
            (*to, inbox.len() - 1)
        };
        let messages = model.to.iter().map(deliver).collect();
        self.unacked[queue.0].sends.push_back(PendingUnacked {
            id: model.id,
            kind: model.kind,
            signaled: model.signaled,
            defect: model.defect,
            messages,
        });
    }

    /// The application posted a receive.
    pub fn post_unacked_receive(&mut self, queue: UnackedId, model: &ReceiveModel) {
        self.now += 1;
        let token = self.now;
        for place in &model.places {
            self.memories[place.memory.0].open_landing(token, place.offset, place.length);
        }
        let (id, places, defect) = (model.id, model.places.clone(), model.defect);
        self.unacked[queue.0].receives.push_back(PendingReceive { id, token, places, defect });
    }

    /// The application polled a completion.
    pub fn unacked_completed(
        &mut self,
        queue: UnackedId,
        completion: &Completion,
    ) -> Result<(), Violation> {
        self.now += 1;
        if completion.kind.is_receive() {
            self.unacked_receive_completed(queue, completion)
        } else {
            self.unacked_send_completed(queue, completion)
        }
    }

    /// The application brought the send queue back after an error.
    pub fn resume_unacked(&mut self, queue: UnackedId) {
        self.unacked[queue.0].has_failed = false;
    }

    /// All its requests have ended. `intact` says of each message that it sent to which machines the
    /// network carried all of it, a bit each, and where packets do not pass each other it then has to
    /// arrive.
    pub fn carried_unacked(&mut self, queue: UnackedId, intact: &[u64]) -> Result<(), Violation> {
        let left = self.unacked[queue.0].left.clone();
        if left.len() != intact.len() {
            let (left, carried) = (left.len(), intact.len());
            let text = format!("{queue}: {left} messages left, but {carried} were carried");
            return Err(Violation::new(Rule::Completion, text));
        }
        for (messages, intact) in left.into_iter().zip(intact) {
            for (to, number) in messages {
                let receiver = &mut self.unacked[to.0];
                let is_intact = intact >> receiver.port.machine & 1 == 1;
                receiver.inbox[number].is_intact = is_intact && receiver.port.keeps_order;
            }
        }
        Ok(())
    }

    /// The application is about to move it to the error state; everything sent to it has arrived or
    /// is lost, and all completions are polled. `awaited`: receives waited for everything.
    pub fn stop_unacked(&mut self, queue: UnackedId, awaited: bool) -> Result<(), Violation> {
        let this = &mut self.unacked[queue.0];
        this.is_stopped = true;
        this.check_arrivals(queue, awaited)?;
        let all_intact = this.inbox.iter().all(|one| one.is_intact || one.end != SendEnd::Left);
        if awaited && all_intact { self.check_writes(queue) } else { Ok(()) }
    }

    /// They are empty, and nothing that was sent to them is under way.
    pub fn close_unacked(&mut self, queues: &[UnackedId]) -> Result<(), Violation> {
        self.check_claimed()?;
        queues.iter().try_for_each(|queue| self.finish_unacked(*queue))
    }

    fn finish_unacked(&mut self, queue: UnackedId) -> Result<(), Violation> {
        let this = &self.unacked[queue.0];
        let (sends, receives) = (this.sends.len(), this.receives.len());
        if sends + receives > 0 {
            let text = format!("{queue}: {sends} send and {receives} receive requests never ended");
            return Err(Violation::new(Rule::Completion, text));
        }
        self.settle_abandoned(queue.claimant());
        Ok(())
    }

    fn unacked_send_completed(
        &mut self,
        queue: UnackedId,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let mut covered = self.unacked[queue.0].take_sends(queue, completion)?;
        let last = covered.pop().expect("the completed request itself");
        for request in &covered {
            self.unacked_left(queue, request)?;
        }
        if !completion.status.is_success() {
            return self.unacked_failed(queue, &last, completion.status);
        }
        if !last.signaled {
            let text = format!("{queue}: request {} is unsignaled, but has a completion", last.id);
            return Err(Violation::new(Rule::Completion, text));
        }
        self.unacked_left(queue, &last)
    }

    /// A request left: with its own completion, or covered by a later one.
    fn unacked_left(
        &mut self,
        queue: UnackedId,
        request: &PendingUnacked,
    ) -> Result<(), Violation> {
        let complain = |what: String| {
            let text = format!("{queue}: request {} {what}", request.id);
            Err(Violation::new(Rule::Status, text))
        };
        if self.unacked[queue.0].has_failed {
            return complain("succeeded after an error of the send queue".to_owned());
        }
        if let Some(defect) = request.defect.filter(|defect| defect.failure().is_some()) {
            return complain(format!("succeeded in spite of: {defect}"));
        }
        for (to, number) in &request.messages {
            self.unacked[to.0].inbox[*number].end = SendEnd::Left;
        }
        self.unacked[queue.0].left.push(request.messages.clone());
        Ok(())
    }

    fn unacked_failed(
        &mut self,
        queue: UnackedId,
        request: &PendingUnacked,
        status: CompletionStatus,
    ) -> Result<(), Violation> {
        let this = &mut self.unacked[queue.0];
        let own = request.defect.and_then(UnackedDefect::failure);
        let allowed = if this.has_failed || this.is_stopped {
            status == CompletionStatus::WorkRequestFlushed
        } else {
            own == Some(status)
        };
        if !allowed {
            let after = if this.has_failed { " after an error" } else { "" };
            let text = format!("{queue}: request {}{after} failed with: {status}", request.id);
            return Err(Violation::new(Rule::Status, text));
        }
        this.has_failed = true;
        let mut arrivals = 0;
        for (to, number) in &request.messages {
            let message = &mut self.unacked[to.0].inbox[*number];
            message.end = SendEnd::Failed;
            arrivals += message.arrivals;
        }
        if arrivals == 0 {
            return Ok(());
        }
        let text = format!("{queue}: request {} ended with: {status}, but arrived", request.id);
        Err(Violation::new(Rule::Receive, text))
    }

    /// Without losses all WRITEs have come, the later over the earlier.
    fn check_writes(&self, queue: UnackedId) -> Result<(), Violation> {
        let left = |message: &&Message| message.end == SendEnd::Left && message.defect.is_none();
        let writes: Vec<_> = self.unacked[queue.0]
            .inbox
            .iter()
            .filter(left)
            .filter_map(|message| Some((message.target?, &message.data)))
            .collect();
        let Some((first, _)) = writes.first() else { return Ok(()) };
        let memory = &self.memories[first.memory.0];
        let size = writes.iter().map(|(place, _)| place.offset + place.length).max().unwrap_or(0);
        let mut wanted = memory.settled(0, size).to_vec();
        let mut written = vec![false; size];
        for (place, data) in &writes {
            let range = place.offset..place.offset + place.length;
            wanted[range.clone()].copy_from_slice(data);
            written[range].fill(true);
        }
        let actual = memory.actual(0, size);
        let wrong = (0..size).find(|&at| written[at] && actual[at] != wanted[at]);
        let Some(at) = wrong else { return Ok(()) };
        let text = format!(
            "{queue}: nothing was lost, but byte {at} is {:#04x} instead of {:#04x}",
            actual[at], wanted[at]
        );
        Err(Violation::new(Rule::Memory, text))
    }
}

/// What comes along with a message that consumes a receive.
fn attachment_of(model: &UnackedSend) -> Attachment {
    model.message.unwrap_or(Attachment::None)
}
