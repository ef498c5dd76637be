//! The oracle: a model of what verbs promise, and of nothing else.
//!
//! It knows requests, completions and bytes. It knows no packet, no sequence number and no
//! acknowledgement, and uses nothing of `wire`, `transport` or `engine`: it cannot share a mistake
//! with them. The application tells it what it posts and what it polls; it answers whether that can
//! be.
//!
//! ```text
//!  application ── post_send, post_receive ──▶ queues   order, statuses, messages and receives
//!              ── completed ────────────────▶ memories bytes settled, claimed, being read
//!                                             words    one order of all atomic operations
//!                                             grants   what windows give, to whom, until when
//! ```

mod atomics;
mod defect;
mod grants;
mod memory;
mod model;
mod notice;
mod queue;
mod shared;
#[cfg(test)]
mod tests;
mod unacked;
mod violation;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use defect::Defect;
pub use grants::{WindowNumber, WindowUse};
pub use model::{
    Action, Allowance, Change, Local, MemoryId, Place, QueueId, ReceiveModel, SendModel,
};

pub use notice::Notice;
pub use shared::{LinkDefect, LinkEffect, LinkId, LinkPort, LinkSend, SharedId};
pub use unacked::{UnackedDefect, UnackedId, UnackedPort, UnackedSend};
pub use violation::{Rule, Violation};

use atomics::Word;
use grants::Grants;
use memory::{Bytes, MemoryModel};
use queue::{Effect, Message, PendingReceive, PendingSend, QueuePairModel, check_message};
use unacked::UnackedQueue;

use crate::memory::OwnedMemory;
use crate::queue::{Attachment, Completion, CompletionKind, CompletionStatus};
use crate::sim::recycled;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Oracle {
    /// Counts what it is told: the order of events.
    now: u64,
    memories: Vec<MemoryModel>,
    queues: Vec<QueuePairModel>,
    words: BTreeMap<(MemoryId, usize), Word>,
    unacked: Vec<UnackedQueue>,
    grants: Grants,
    shared: shared::Shared,
}

impl Oracle {
    /// An oracle that watches nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches the first `length` bytes of a memory from its present content on.
    pub fn watch(&mut self, name: String, memory: Arc<OwnedMemory>, length: usize) -> MemoryId {
        let mut content = recycled::bytes(length);
        let present = memory.read(0, &mut content[..length]);
        present.expect("the memory has what is to be watched");
        self.watch_filled(name, memory, content, length)
    }

    /// The same where the caller knows the present content, and perhaps more behind it.
    pub(in crate::sim) fn watch_filled(
        &mut self,
        name: String,
        memory: Arc<OwnedMemory>,
        content: Vec<u8>,
        length: usize,
    ) -> MemoryId {
        self.memories.push(MemoryModel::new(name, memory, content, length));
        MemoryId(self.memories.len() - 1)
    }

    /// Two queue pairs were connected.
    pub fn connect(&mut self, allowances: [Allowance; 2]) -> [QueueId; 2] {
        let first = QueueId(self.queues.len());
        let second = QueueId(first.0 + 1);
        self.queues.push(QueuePairModel::new(second, allowances[0]));
        self.queues.push(QueuePairModel::new(first, allowances[1]));
        [first, second]
    }

    /// The application is about to write its own memory.
    pub fn store(&mut self, place: Place, bytes: &[u8]) {
        self.memories[place.memory.0].store(place.offset, bytes);
    }

    /// Whether anything under way touches a place; reads count only for who wants to write.
    pub fn is_busy(&self, place: Place, for_writing: bool) -> bool {
        self.memories[place.memory.0].is_busy(place.offset, place.length, for_writing)
    }

    /// Whether a failed operation may have left traces at a place.
    pub fn is_tainted(&self, place: Place) -> bool {
        self.memories[place.memory.0].is_tainted(place.offset, place.length)
    }

    /// How many atomic operations on a word have failed, so that nobody knows whether they happened.
    pub fn failed_atomics(&self, word: Place) -> usize {
        self.words.get(&(word.memory, word.offset)).map_or(0, Word::failed)
    }

    /// Send requests of a queue that no completion has covered.
    pub fn outstanding_sends(&self, queue: QueueId) -> usize {
        self.queues[queue.0].sends.len()
    }

    /// Receives of a queue that have not completed.
    pub fn outstanding_receives(&self, queue: QueueId) -> usize {
        self.queues[queue.0].receives.len()
    }

    /// The application posted a send request.
    pub fn post_send(&mut self, queue: QueueId, model: &SendModel) {
        self.now += 1;
        let token = self.now;
        let brings = matches!(model.action, Action::Read(_) | Action::Atomic(..));
        let data = if brings { Arc::default() } else { self.local_bytes(&model.local) };
        let effect = self.open_effect(queue, token, model, &data);
        let message = self.open_message(queue, model, data);
        let this = &mut self.queues[queue.0];
        this.posted_defects.extend(model.defect);
        this.breaks_peer |= model.defect.is_some_and(|defect| !defect.is_local());
        this.sends.push_back(PendingSend {
            id: model.id,
            token,
            kind: model.kind,
            signaled: model.signaled,
            length: model.length,
            defect: model.defect,
            message,
            effect,
        });
        if let Some(number) = message {
            self.meet(queue, number);
        }
    }

    /// The application posted a receive.
    pub fn post_receive(&mut self, queue: QueueId, model: &ReceiveModel) {
        self.now += 1;
        let token = self.now;
        let this = &mut self.queues[queue.0];
        let number = this.receives_posted;
        this.receives_posted += 1;
        let (id, places, defect) = (model.id, model.places.clone(), model.defect);
        this.receives.push_back(PendingReceive { id, token, places, defect });
        let peer = this.peer;
        self.meet(peer, number);
    }

    /// The application moved a queue pair to the error state.
    pub fn stop(&mut self, queue: QueueId) -> Result<(), Violation> {
        let this = &mut self.queues[queue.0];
        this.stopped = true;
        this.unexplained.take().map_or(Ok(()), Err)
    }

    /// The application polled a completion.
    pub fn completed(&mut self, queue: QueueId, completion: &Completion) -> Result<(), Violation> {
        self.now += 1;
        if completion.kind.is_receive() {
            self.receive_completed(queue, completion)
        } else {
            self.send_completed(queue, completion)
        }
    }

    /// Both ends of a connection are idle, and none of its packets is under way.
    pub fn disconnect(&mut self, queue: QueueId) -> Result<(), Violation> {
        self.now += 1;
        let peer = self.queues[queue.0].peer;
        for side in [queue, peer] {
            self.grants.disconnected(side, self.now);
        }
        self.check_claimed()?;
        self.finish_queue(queue)?;
        self.finish_queue(peer)
    }

    /// Whether every memory has the bytes that it may have now.
    pub fn check_memory(&mut self) -> Result<(), Violation> {
        self.memories.iter_mut().try_for_each(MemoryModel::check)
    }

    /// Whether every memory has, where anything under way may write, the bytes that it may have.
    pub fn check_claimed(&mut self) -> Result<(), Violation> {
        self.memories.iter_mut().try_for_each(MemoryModel::check_claimed)
    }

    /// Nothing of `queue`'s failed operations can arrive any more, and what may be there was just
    /// found right.
    fn settle_abandoned(&mut self, queue: QueueId) {
        self.memories.iter_mut().for_each(|memory| memory.settle_abandoned(queue));
    }

    /// Nothing is under way: every word's history must make sense.
    pub fn check_words(&self) -> Result<(), Violation> {
        self.words.iter().try_for_each(|(&(memory, offset), word)| {
            let actual = self.memories[memory.0].actual(offset, 8);
            let last = u64::from_ne_bytes(actual.try_into().expect("eight bytes"));
            word.check(last, &format!("word at {offset} of memory {}", memory.0))
        })
    }

    /// The bytes that the request takes from its own memory, as far as it can.
    fn local_bytes(&self, local: &Local) -> Arc<Vec<u8>> {
        match local {
            Local::Inline(bytes) => Arc::new(bytes.clone()),
            Local::Places(places) => Arc::new(self.settled_bytes(places)),
            Local::Stored(_, bytes) => Arc::clone(bytes),
        }
    }

    fn settled_bytes(&self, places: &[Place]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(places.iter().map(|place| place.length).sum());
        for place in places {
            let memory = &self.memories[place.memory.0];
            bytes.extend_from_slice(memory.settled(place.offset, place.length));
        }
        bytes
    }

    fn actual_bytes(&self, places: &[Place]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(places.iter().map(|place| place.length).sum());
        for place in places {
            self.memories[place.memory.0].append_actual(place.offset, place.length, &mut bytes);
        }
        bytes
    }

    fn open_effect(
        &mut self,
        queue: QueueId,
        token: u64,
        model: &SendModel,
        data: &Arc<Vec<u8>>,
    ) -> Effect {
        let landing = || match &model.local {
            Local::Places(places) | Local::Stored(places, _) => places.clone(),
            Local::Inline(_) => Vec::new(),
        };
        match model.action {
            Action::Send | Action::Local | Action::Flush | Action::Write(None) => Effect::None,
            Action::Write(Some(place)) => {
                let bytes = Bytes::new(data.clone(), 0, data.len().min(place.length));
                let memory = &mut self.memories[place.memory.0];
                memory.claim(token, queue, place.offset, bytes, model.fence);
                Effect::Write(place)
            }
            Action::Read(source) => {
                if let Some(source) = source {
                    let memory = &mut self.memories[source.memory.0];
                    memory.open_reading(token, queue, source.offset, source.length);
                }
                self.open_landings(token, &landing());
                Effect::Read(source, landing())
            }
            Action::Atomic(None, _) => Effect::Read(None, Vec::new()),
            Action::Atomic(Some(word), change) => {
                self.open_landings(token, &landing());
                self.open_word(queue, token, word, change);
                Effect::Atomic(word, landing())
            }
        }
    }

    fn open_landings(&mut self, token: u64, places: &[Place]) {
        for place in places {
            self.memories[place.memory.0].open_landing(token, place.offset, place.length);
        }
    }

    fn open_word(&mut self, queue: QueueId, token: u64, word: Place, change: Change) {
        let memory = &mut self.memories[word.memory.0];
        let settled = memory.settled(word.offset, 8);
        let initial = u64::from_ne_bytes(settled.try_into().expect("eight bytes"));
        let entry = self.words.entry((word.memory, word.offset));
        let history = entry.or_insert_with(|| {
            // From now on the word's own history says what it may hold.
            memory.open_landing(u64::MAX, word.offset, 8);
            Word::new(initial)
        });
        history.open(token, queue, change, self.now);
    }

    fn open_message(
        &mut self,
        queue: QueueId,
        model: &SendModel,
        data: Arc<Vec<u8>>,
    ) -> Option<usize> {
        let attachment = model.message?;
        let is_write = matches!(model.action, Action::Write(_));
        let kind = if is_write {
            CompletionKind::ReceiveWriteWithImmediate
        } else {
            CompletionKind::Receive
        };
        let number = self.queues[queue.0].messages.len();
        let peer = self.queues[queue.0].peer;
        let awaited = self.queues[peer.0].receives_posted > number;
        self.queues[queue.0].messages.push(Message {
            data: if is_write { Arc::default() } else { data },
            length: model.length,
            kind,
            attachment,
            solicited: model.solicited,
            defect: model.defect,
            awaited,
        });
        Some(number)
    }

    /// If message `number` of `sender` and the receive that it will meet are both posted, the
    /// message claims the receive's memory.
    fn meet(&mut self, sender: QueueId, number: usize) {
        let peer = self.queues[sender.0].peer;
        let receiver = &self.queues[peer.0];
        let Some(message) = self.queues[sender.0].messages.get(number) else { return };
        let Some(index) = number.checked_sub(receiver.receives_completed) else { return };
        let Some(receive) = receiver.receives.get(index) else { return };
        let (data, token) = (message.data.clone(), receive.token);
        let mut from = 0;
        for place in &receive.places {
            let length = place.length.min(data.len() - from);
            let bytes = Bytes::new(data.clone(), from, length);
            self.memories[place.memory.0].claim(token, sender, place.offset, bytes, false);
            from += length;
        }
    }

    fn send_completed(&mut self, queue: QueueId, completion: &Completion) -> Result<(), Violation> {
        let mut covered = self.queues[queue.0].take_sends(queue, completion)?;
        let last = covered.pop().expect("the completed request itself");
        for request in &covered {
            self.succeed(queue, request, None)?;
        }
        if completion.status.is_success() {
            return self.succeed(queue, &last, Some(completion));
        }
        self.fail(queue, &last, completion.status)
    }

    /// A request was carried out: with its own completion, or covered by a later one.
    fn succeed(
        &mut self,
        queue: QueueId,
        request: &PendingSend,
        completion: Option<&Completion>,
    ) -> Result<(), Violation> {
        let complain = |rule, what: String| {
            Err(Violation::new(rule, format!("{queue}: request {}: {what}", request.id)))
        };
        if self.queues[queue.0].send_failed {
            return complain(Rule::Status, "succeeded after an error of the queue".to_owned());
        }
        if let Some(defect) = request.defect {
            return complain(Rule::Status, format!("succeeded in spite of: {defect}"));
        }
        if completion.is_some() && !request.signaled {
            return complain(Rule::Completion, "is unsignaled, but has a completion".to_owned());
        }
        // What is unsignaled may have ended long before it is known to.
        if completion.is_some() {
            self.check_rest(queue, request.id)?;
        }
        let peer = self.queues[queue.0].peer;
        self.grants.succeeded(queue, peer, request.id, self.now)?;
        if let Some(number) = request.message {
            self.check_delivery(queue, number)?;
        }
        match &request.effect {
            Effect::None => Ok(()),
            Effect::Write(place) => self.memories[place.memory.0].close(request.token),
            Effect::Read(Some(source), landing) => {
                if completion.is_some_and(|completion| completion.length as usize != request.length)
                {
                    return complain(Rule::Completion, "READ with a wrong length".to_owned());
                }
                self.finish_read(queue, request, *source, landing)
            }
            Effect::Read(None, _) => Ok(()),
            Effect::Atomic(word, landing) => {
                let old = self.actual_bytes(landing);
                self.close_landings(request.token, landing);
                let old = u64::from_ne_bytes(old.try_into().expect("eight bytes"));
                self.close_word(request.token, *word, Some(old));
                Ok(())
            }
        }
    }

    /// A message that its sender knows to be delivered must lie in the peer's memory.
    fn check_delivery(&mut self, queue: QueueId, number: usize) -> Result<(), Violation> {
        let peer = self.queues[queue.0].peer;
        self.queues[queue.0].delivered = number + 1;
        let receiver = &self.queues[peer.0];
        if receiver.receives_posted <= number {
            let text = format!("{queue}: message {number} succeeded, but no receive was posted");
            return Err(Violation::new(Rule::Receive, text));
        }
        let Some(index) = number.checked_sub(receiver.receives_completed) else { return Ok(()) };
        let receive = &receiver.receives[index];
        let mut places = receive.places.iter();
        places.try_for_each(|place| self.memories[place.memory.0].verify(receive.token))
    }

    fn finish_read(
        &mut self,
        queue: QueueId,
        request: &PendingSend,
        source: Place,
        landing: &[Place],
    ) -> Result<(), Violation> {
        let got = self.actual_bytes(landing);
        let reading = self.memories[source.memory.0].close_reading(request.token);
        self.close_landings(request.token, landing);
        let Some(at) = reading.and_then(|reading| reading.mismatch(&got)) else { return Ok(()) };
        let text = format!(
            "{queue}: request {} read {:#04x} as byte {at}, which memory did not hold meanwhile",
            request.id, got[at]
        );
        Err(Violation::new(Rule::ReadValue, text))
    }

    fn close_landings(&mut self, token: u64, places: &[Place]) {
        for place in places {
            self.memories[place.memory.0].close_landing(token);
        }
    }

    fn close_word(&mut self, token: u64, word: Place, old: Option<u64>) {
        let now = self.now;
        if let Some(history) = self.words.get_mut(&(word.memory, word.offset)) {
            history.close(token, old, now);
        }
    }

    /// A request failed, or was flushed.
    fn fail(
        &mut self,
        queue: QueueId,
        request: &PendingSend,
        status: CompletionStatus,
    ) -> Result<(), Violation> {
        let this = &self.queues[queue.0];
        if !this.send_failed {
            let peer = &self.queues[this.peer.0];
            this.check_first_failure(queue, peer, request, status)?;
            self.check_told(queue, request, status)?;
            self.queues[queue.0].unexplained = None;
        } else if status != CompletionStatus::WorkRequestFlushed {
            let text = format!(
                "{queue}: request {} after an error ended with: {status}, not flushed",
                request.id
            );
            return Err(Violation::new(Rule::Status, text));
        }
        self.queues[queue.0].send_failed = true;
        self.grants.failed(queue, request.id);
        match &request.effect {
            Effect::None => {}
            Effect::Write(place) => self.memories[place.memory.0].abandon(request.token),
            Effect::Read(source, landing) => {
                return self.abandon_read(queue, request, *source, landing);
            }
            Effect::Atomic(word, landing) => {
                self.close_landings(request.token, landing);
                self.close_word(request.token, *word, None);
            }
        }
        Ok(())
    }

    /// A READ that failed may have brought a part.
    fn abandon_read(
        &mut self,
        queue: QueueId,
        request: &PendingSend,
        source: Option<Place>,
        landing: &[Place],
    ) -> Result<(), Violation> {
        let (got, before) = (self.actual_bytes(landing), self.settled_bytes(landing));
        self.close_landings(request.token, landing);
        let reading =
            source.and_then(|place| self.memories[place.memory.0].close_reading(request.token));
        let wrong = match reading {
            Some(reading) => reading.partial_mismatch(&got, &before),
            None => (0..got.len()).find(|&at| got[at] != before[at]),
        };
        let Some(at) = wrong else { return Ok(()) };
        let text = format!(
            "{queue}: request {} failed, but brought {:#04x} as byte {at}",
            request.id, got[at]
        );
        Err(Violation::new(Rule::ReadValue, text))
    }

    fn receive_completed(
        &mut self,
        queue: QueueId,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let this = &mut self.queues[queue.0];
        let number = this.receives_completed;
        let receive = this.take_receive(queue, completion)?;
        let sender = this.peer;
        if let Some(message) = self.queues[sender.0].messages.get_mut(number) {
            // Whatever still claims memory for it has its bytes.
            message.data = Arc::default();
        }
        if completion.status.is_success() {
            return self.received(queue, number, &receive, completion);
        }
        let this = &self.queues[queue.0];
        if !this.receive_failed {
            let peer = &self.queues[this.peer.0];
            let status = completion.status;
            let check = this.check_receive_failure(queue, peer, &receive, status);
            if status != CompletionStatus::WorkRequestFlushed {
                check?;
            } else if !this.send_failed {
                self.queues[queue.0].unexplained = check.err();
            }
        } else if completion.status != CompletionStatus::WorkRequestFlushed {
            let (id, status) = (completion.id, completion.status);
            let text = format!("{queue}: receive {id} after an error ended with: {status}");
            return Err(Violation::new(Rule::Status, text));
        }
        self.queues[queue.0].receive_failed = true;
        for place in &receive.places {
            self.memories[place.memory.0].abandon(receive.token);
        }
        Ok(())
    }

    /// A receive was filled.
    fn received(
        &mut self,
        queue: QueueId,
        number: usize,
        receive: &PendingReceive,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let this = &self.queues[queue.0];
        let complain = |rule, what: String| {
            Err(Violation::new(rule, format!("{queue}: receive {}: {what}", receive.id)))
        };
        if this.receive_failed {
            return complain(Rule::Status, "succeeded after an error of the queue".to_owned());
        }
        let Some(message) = self.queues[this.peer.0].messages.get(number) else {
            return complain(Rule::Receive, "filled, but nobody sent a message".to_owned());
        };
        if let Some(defect) = receive.defect.filter(|_| message.length > 0) {
            return complain(Rule::Status, format!("succeeded in spite of: {defect}"));
        }
        check_message(queue, message, completion)?;
        self.check_established(queue)?;
        if let Attachment::Invalidated(key) = completion.attachment {
            self.grants.invalidated(queue, key.value(), self.now);
        }
        self.queues[queue.0].received = number + 1;
        for place in &receive.places {
            self.memories[place.memory.0].close(receive.token)?;
        }
        Ok(())
    }

    /// What may be there was just found right.
    fn finish_queue(&mut self, queue: QueueId) -> Result<(), Violation> {
        self.settle_abandoned(queue);
        let this = &self.queues[queue.0];
        let (sends, receives) = (this.sends.len(), this.receives.len());
        if sends > 0 || (receives > 0 && this.stopped) {
            let text = format!("{queue}: {sends} send and {receives} receive requests never ended");
            return Err(Violation::new(Rule::Completion, text));
        }
        let arrived = self.queues[this.peer.0].received;
        if arrived < this.delivered {
            let text = format!(
                "{queue}: {} messages succeeded, but only {arrived} arrived",
                this.delivered
            );
            return Err(Violation::new(Rule::Receive, text));
        }
        Ok(())
    }
}
