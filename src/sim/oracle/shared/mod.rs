//! Shared receive queues: several queue pairs take their receives from one, in the order in which
//! their messages begin.
//!
//! ```text
//!   queue    every receive that was posted is completed once, or still posted at the end: none is
//!            lost, whatever becomes of the queue pairs that took from it; a receive that is older
//!            than a completed one is in the hands of another queue pair
//!   limit    one event for each arming: none while enough receives are posted, and none is missing
//!            once too few are
//!   link     a one-way way to such a queue: messages arrive once and in order (reliable ones), or at
//!            most once, whole, in the queue that they name; WRITEs, READs and atomics beside them
//!   end      a receiver in error gives back what it holds as flushed, and says once that it takes
//!            no more
//! ```

mod model;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub use model::{LinkDefect, LinkEffect, LinkId, LinkPort, LinkSend, SharedId};

use super::{Oracle, Place, Rule, Violation};
use crate::queue::{Completion, CompletionKind, CompletionStatus as Status};
pub(super) use model::Shared;
use model::{AREA, LinkMessage, LinkModel, Outstanding, PostedReceive, SharedModel};

impl Oracle {
    /// A shared receive queue was made.
    pub fn open_shared(&mut self) -> SharedId {
        self.shared.queues.push(SharedModel::default());
        SharedId(self.shared.queues.len() - 1)
    }

    /// A link was made ready.
    pub fn open_link(&mut self, port: LinkPort) -> LinkId {
        self.shared.links.push(LinkModel {
            port,
            sends: VecDeque::new(),
            messages: Vec::new(),
            newest: 0,
            failed: false,
            has_defect: false,
            stopped: false,
            given_back: 0,
            last_reached: 0,
            word: 0,
        });
        LinkId(self.shared.links.len() - 1)
    }

    /// A word that only one link's atomics change: what they bring back tells what it held.
    pub fn watch_word(&mut self, word: Place) {
        self.memories[word.memory.0].open_landing(u64::MAX, word.offset, word.length);
    }

    /// Receives of a queue that have not completed, those that a message has begun to fill included.
    pub fn outstanding_shared(&self, queue: SharedId) -> usize {
        self.shared.queues[queue.0].posted.len()
    }

    /// Requests of a link that no completion has covered.
    pub fn outstanding_link(&self, link: LinkId) -> usize {
        self.shared.links[link.0].sends.len()
    }

    /// Whether a link works no more.
    pub fn has_link_failed(&self, link: LinkId) -> bool {
        self.shared.links[link.0].failed
    }

    /// The application posted a receive.
    pub fn post_shared_receive(&mut self, queue: SharedId, id: u64, place: Place) {
        self.now += 1;
        let token = self.now;
        self.memories[place.memory.0].open_landing(token, place.offset, place.length);
        self.shared.queues[queue.0].posted.push_back(PostedReceive { id, token, place });
    }

    /// The application is about to ask for one event when fewer than `limit` receives are posted.
    pub fn arm_limit(&mut self, queue: SharedId, limit: u32) {
        let model = &mut self.shared.queues[queue.0];
        (model.limit, model.armed) = (limit, limit > 0);
    }

    /// The event of a queue's limit came; so many receives are posted.
    pub fn limit_reached(&mut self, queue: SharedId, posted: u32) -> Result<(), Violation> {
        let model = &mut self.shared.queues[queue.0];
        let deserved = model.armed && posted < model.limit;
        model.armed = false;
        if deserved {
            return Ok(());
        }
        let text = format!("{queue}: a limit event with {posted} receives posted, not asked for");
        Err(Violation::new(Rule::Event, text))
    }

    /// Nothing has happened since a turn: whether the event of a queue's limit is missing.
    pub fn check_limit(&self, queue: SharedId, posted: u32) -> Result<(), Violation> {
        let model = &self.shared.queues[queue.0];
        if !model.armed || posted >= model.limit {
            return Ok(());
        }
        let limit = model.limit;
        let text = format!("{queue}: no limit event with {posted} receives posted, limit {limit}");
        Err(Violation::new(Rule::Event, text))
    }

    /// The application posted a request of a link.
    pub fn post_link_send(&mut self, link: LinkId, send: LinkSend) {
        self.now += 1;
        let token = self.now;
        match &send.effect {
            LinkEffect::None => {}
            LinkEffect::Write(place)
            | LinkEffect::Read(place, _)
            | LinkEffect::Atomic(place, _) => {
                self.memories[place.memory.0].open_landing(token, place.offset, place.length);
            }
        }
        let model = &mut self.shared.links[link.0];
        model.has_defect |= send.defect.is_some();
        let is_write = send.kind == CompletionKind::Write;
        let message = send.message.map(|(queue, attachment)| {
            model.messages.push(LinkMessage {
                queue: queue.or(model.port.queue),
                data: send.data.clone(),
                filled: if is_write { 0 } else { send.data.len() },
                kind: match is_write {
                    true => CompletionKind::ReceiveWriteWithImmediate,
                    false => CompletionKind::Receive,
                },
                attachment,
                solicited: send.solicited,
                defect: send.defect,
                succeeded: false,
                failed: false,
                arrivals: 0,
            });
            model.messages.len() - 1
        });
        model.sends.push_back(Outstanding { send, token, message });
    }

    /// The application moved a link's receiver to the error state.
    pub fn stop_link(&mut self, link: LinkId) {
        self.shared.links[link.0].stopped = true;
    }

    /// A link's receiver says that it takes no more receives.
    pub fn last_receive_reached(&mut self, link: LinkId) -> Result<(), Violation> {
        let model = &mut self.shared.links[link.0];
        model.last_reached += 1;
        if model.last_reached == 1 && (model.stopped || model.has_defect) {
            return Ok(());
        }
        let text = format!("{link}: last-receive event number {}", model.last_reached);
        Err(Violation::new(Rule::Event, text))
    }

    /// The application polled a completion of a link's send request.
    pub fn link_send_completed(
        &mut self,
        link: LinkId,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let id = completion.id;
        let complain =
            |rule, what: String| Err(Violation::new(rule, format!("{link}: request {id} {what}")));
        let model = &mut self.shared.links[link.0];
        let Some(position) = model.sends.iter().position(|one| one.send.id == id) else {
            return complain(Rule::Completion, "completed, but is not outstanding".to_owned());
        };
        if let Some(skipped) = model.sends.iter().take(position).find(|one| one.send.signaled) {
            let skipped = skipped.send.id;
            return complain(Rule::Completion, format!("completed before {skipped}"));
        }
        let taken: Vec<Outstanding> = model.sends.drain(..=position).collect();
        let last = &taken[position];
        if last.send.kind != completion.kind {
            return complain(Rule::Completion, format!("completed as {:?}", completion.kind));
        }
        if completion.status.is_success() && !last.send.signaled {
            return complain(Rule::Completion, "is unsignaled, but completed".to_owned());
        }
        let (last, covered) = taken.split_last().expect("the completed request itself");
        for one in covered {
            self.link_succeeded(link, one)?;
        }
        if completion.status.is_success() {
            return self.link_succeeded(link, last);
        }
        self.link_failed(link, last, completion.status)
    }

    fn link_succeeded(&mut self, link: LinkId, one: &Outstanding) -> Result<(), Violation> {
        let complain = |rule, what: String| {
            Err(Violation::new(rule, format!("{link}: request {} {what}", one.send.id)))
        };
        let model = &mut self.shared.links[link.0];
        if model.failed {
            return complain(Rule::Status, "succeeded after an error".to_owned());
        }
        if let Some(defect) = one.send.defect {
            return complain(Rule::Status, format!("succeeded in spite of: {defect:?}"));
        }
        if let Some(number) = one.message {
            model.messages[number].succeeded = true;
        }
        let (place, wanted) = match &one.send.effect {
            LinkEffect::None => return Ok(()),
            LinkEffect::Write(place) => (*place, one.send.data.clone()),
            LinkEffect::Read(place, bytes) => (*place, bytes.clone()),
            LinkEffect::Atomic(place, change) => {
                let old = model.word;
                model.word = change.apply(old);
                (*place, old.to_ne_bytes().to_vec())
            }
        };
        let memory = &mut self.memories[place.memory.0];
        let actual = memory.actual(place.offset, place.length);
        memory.close_landing(one.token);
        if actual == wanted {
            return Ok(());
        }
        let rule = if matches!(one.send.effect, LinkEffect::Atomic(..)) {
            Rule::Atomic
        } else {
            Rule::Memory
        };
        complain(rule, format!("succeeded, but its {} bytes are not there", wanted.len()))
    }

    fn link_failed(
        &mut self,
        link: LinkId,
        one: &Outstanding,
        status: Status,
    ) -> Result<(), Violation> {
        match &one.send.effect {
            LinkEffect::None => {}
            LinkEffect::Write(place)
            | LinkEffect::Read(place, _)
            | LinkEffect::Atomic(place, _) => {
                self.memories[place.memory.0].close_landing(one.token);
            }
        }
        let model = &mut self.shared.links[link.0];
        let allowed = if model.failed {
            status == Status::WorkRequestFlushed
        } else {
            let by_defect = one.send.defect.is_some_and(|defect| defect.status() == status);
            let given_up = status == Status::TransportRetryExceeded;
            // A refusal may be lost, and what comes after it meets a queue pair in error.
            let unheard = model.stopped || model.port.may_exhaust || model.has_defect;
            model.port.is_reliable && (by_defect || (given_up && unheard))
        };
        model.failed = true;
        if let Some(number) = one.message {
            model.messages[number].failed = true;
        }
        if allowed {
            return Ok(());
        }
        let text = format!(
            "{link}: request {} ({:?}, wrong: {:?}) failed with: {status}",
            one.send.id, one.send.kind, one.send.defect
        );
        Err(Violation::new(Rule::Status, text))
    }

    /// The application polled a completion of a queue's receive, of a link's receiver.
    pub fn shared_receive_completed(
        &mut self,
        link: LinkId,
        queue: SharedId,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let id = completion.id;
        let complain = |rule, what: String| {
            Err(Violation::new(rule, format!("{link}, {queue}: receive {id:#x} {what}")))
        };
        let posted = &mut self.shared.queues[queue.0].posted;
        let Some(position) = posted.iter().position(|one| one.id == id) else {
            return complain(Rule::Completion, "completed, but is not posted".to_owned());
        };
        let receive = posted.remove(position).expect("it was just found");
        let model = &self.shared.links[link.0];
        if model.port.queue.is_some_and(|own| own != queue) {
            return complain(Rule::Receive, "is not of its queue".to_owned());
        }
        // Whatever is older and not completed is in the hands of another that can reach the queue,
        // unless it lies in a completion queue that was not polled yet.
        let (own, completions) = (model.port.queue, model.port.completions);
        let reach = || self.shared.links.iter().filter(|one| one.port.queue == own);
        let in_one = reach().all(|one| one.port.completions == completions);
        if in_one && position >= reach().count() {
            return complain(Rule::Receive, format!("completed, but {position} are older"));
        }
        if completion.status.is_success() {
            return self.shared_filled(link, queue, &receive, completion);
        }
        self.shared_failed(link, queue, &receive, completion)
    }

    fn shared_filled(
        &mut self,
        link: LinkId,
        queue: SharedId,
        receive: &PostedReceive,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let complain = |rule, what: String| {
            Err(Violation::new(rule, format!("{link}, {queue}: receive {:#x} {what}", receive.id)))
        };
        let (place, model) = (receive.place, &self.shared.links[link.0]);
        let memory = &self.memories[place.memory.0];
        let actual = memory.actual(place.offset, place.length);
        let area = if model.port.is_datagram { AREA } else { 0 };
        let is_it = |number: &usize| {
            let message = &model.messages[*number];
            message.is_told_by(completion, &model.port, area)
                && actual.get(area..area + message.filled) == message.data.get(..message.filled)
        };
        let Some(number) = model.candidates(queue).find(is_it) else {
            let arrived = model.messages.iter().filter(|one| one.arrivals > 0).count();
            let what = format!(
                "was filled with {} bytes ({:?}, {:?}), which is none of the messages that may \
                 arrive now ({arrived} of {} have)",
                completion.length,
                completion.kind,
                completion.attachment,
                model.messages.len()
            );
            return complain(Rule::Receive, what);
        };
        let behind = area + model.messages[number].filled;
        let before = memory.settled(place.offset, place.length);
        // An unreliable connection leaves what it has given up behind the next message.
        let is_exact = model.port.is_reliable || model.port.is_datagram;
        if is_exact && actual[behind..] != before[behind..] {
            return complain(Rule::Memory, "was written behind its message".to_owned());
        }
        self.memories[place.memory.0].close_landing(receive.token);
        let model = &mut self.shared.links[link.0];
        model.messages[number].arrivals += 1;
        model.newest = number;
        Ok(())
    }

    fn shared_failed(
        &mut self,
        link: LinkId,
        queue: SharedId,
        receive: &PostedReceive,
        completion: &Completion,
    ) -> Result<(), Violation> {
        self.memories[receive.place.memory.0].close_landing(receive.token);
        let model = &mut self.shared.links[link.0];
        model.given_back += 1;
        let next = model.oldest(queue).map(|number| &model.messages[number]);
        let too_long = next.is_some_and(|one| one.defect == Some(LinkDefect::TooLong));
        let domain = next.is_some_and(|one| one.defect == Some(LinkDefect::RemoteDomain));
        let allowed = model.given_back == 1
            && match completion.status {
                Status::WorkRequestFlushed => model.stopped || model.has_defect,
                Status::LocalLengthError => too_long,
                Status::LocalAccessError => domain,
                _ => false,
            };
        if allowed {
            return Ok(());
        }
        let text = format!(
            "{link}, {queue}: receive {:#x} failed with: {} ({} given back)",
            receive.id, completion.status, model.given_back
        );
        Err(Violation::new(Rule::Status, text))
    }

    /// All receivers are in error, and everything is polled: `posted` says of each queue how many
    /// receives are still in it.
    pub fn close_shared(&mut self, posted: &[u32]) -> Result<(), Violation> {
        for (index, (model, left)) in self.shared.queues.iter().zip(posted).enumerate() {
            if model.posted.len() != *left as usize {
                let (queue, known) = (SharedId(index), model.posted.len());
                let text = format!("{queue}: {known} receives never ended, but {left} are posted");
                return Err(Violation::new(Rule::Completion, text));
            }
            for receive in &model.posted {
                self.memories[receive.place.memory.0].close_landing(receive.token);
            }
        }
        self.shared.links.iter().enumerate().try_for_each(|(index, link)| link.close(LinkId(index)))
    }
}
