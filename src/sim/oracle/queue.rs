//! One queue pair as its application sees it: what is outstanding, and how it may end.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::queue::{Attachment, Completion, CompletionKind, CompletionStatus as Status};

use super::notice::Life;
use super::{Allowance, Defect, Place, QueueId, Rule, Violation};

/// What a send request holds open.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// Nothing but its message, if it makes one.
    None,
    /// A claim on the peer's memory.
    Write(Place),
    /// A reading of the peer's memory, and where its answer lands; without a source, nothing lands.
    Read(Option<Place>, Vec<Place>),
    /// An operation on a word, and where the old value lands.
    Atomic(Place, Vec<Place>),
}

#[derive(Clone, Debug)]
pub(super) struct PendingSend {
    pub(super) id: u64,
    pub(super) token: u64,
    pub(super) kind: CompletionKind,
    pub(super) signaled: bool,
    pub(super) length: usize,
    pub(super) defect: Option<Defect>,
    /// Number of its message on this connection, if it consumes a receive.
    pub(super) message: Option<usize>,
    pub(super) effect: Effect,
}

#[derive(Clone, Debug)]
pub(super) struct PendingReceive {
    pub(super) id: u64,
    pub(super) token: u64,
    pub(super) places: Vec<Place>,
    pub(super) defect: Option<Defect>,
}

/// A message on its way to a receive.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// What arrives in the receive's memory.
    pub(super) data: Arc<Vec<u8>>,
    /// Bytes that the whole message has.
    pub(super) length: usize,
    pub(super) kind: CompletionKind,
    pub(super) attachment: Attachment,
    pub(super) solicited: bool,
    pub(super) defect: Option<Defect>,
    /// Whether the peer's receive had been posted when the message was.
    pub(super) awaited: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct QueuePairModel {
    pub(super) peer: QueueId,
    pub(super) allowance: Allowance,
    pub(super) sends: VecDeque<PendingSend>,
    pub(super) receives: VecDeque<PendingReceive>,
    /// Messages that this end has posted, since the connection began.
    pub(super) messages: Vec<Message>,
    /// Receives that this end has posted, since the connection began.
    pub(super) receives_posted: usize,
    /// Receives that have completed, in whatever way.
    pub(super) receives_completed: usize,
    /// Receives that have completed with success: so many of the peer's messages have arrived.
    pub(super) received: usize,
    /// Messages of this end that are known to have arrived.
    pub(super) delivered: usize,
    /// The application moved it to the error state.
    pub(super) stopped: bool,
    /// An error was seen on it.
    pub(super) send_failed: bool,
    pub(super) receive_failed: bool,
    /// What was wrong with requests that it has posted.
    pub(super) posted_defects: Vec<Defect>,
    /// A receive was flushed before anything explained it. A failed send request has to.
    pub(super) unexplained: Option<Violation>,
    /// A request of its own can bring its peer into the error state.
    pub(super) breaks_peer: bool,
    pub(super) life: Life,
}

impl QueuePairModel {
    pub(super) fn new(peer: QueueId, allowance: Allowance) -> Self {
        Self {
            peer,
            allowance,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            messages: Vec::new(),
            receives_posted: 0,
            receives_completed: 0,
            received: 0,
            delivered: 0,
            stopped: false,
            send_failed: false,
            receive_failed: false,
            posted_defects: Vec::new(),
            unexplained: None,
            breaks_peer: false,
            life: Life::default(),
        }
    }

    /// Whether its own doing, or what was seen of it, can have brought it into the error state.
    fn may_have_failed(&self) -> bool {
        self.stopped
            || self.send_failed
            || self.receive_failed
            || !self.posted_defects.is_empty()
            || self.allowance.retry_exhaustion
            || self.allowance.receiver_not_ready_exhaustion
    }

    /// Takes the send request that `completion` ends, and those before it, which it covers.
    pub(super) fn take_sends(
        &mut self,
        name: QueueId,
        completion: &Completion,
    ) -> Result<Vec<PendingSend>, Violation> {
        let id = completion.id;
        let Some(position) = self.sends.iter().position(|send| send.id == id) else {
            let text = format!("{name}: completion of send request {id}, which is not outstanding");
            return Err(Violation::new(Rule::Completion, text));
        };
        if let Some(skipped) = self.sends.iter().take(position).find(|send| send.signaled) {
            let text = format!(
                "{name}: send request {id} completed before request {}, which is signaled",
                skipped.id
            );
            return Err(Violation::new(Rule::Completion, text));
        }
        let taken: Vec<PendingSend> = self.sends.drain(..=position).collect();
        let last = &taken[position];
        if last.kind != completion.kind {
            let text =
                format!("{name}: request {id} is {:?}, not {:?}", last.kind, completion.kind);
            return Err(Violation::new(Rule::Completion, text));
        }
        Ok(taken)
    }

    /// Whether `request`, the first that fails on its queue, may fail like this.
    pub(super) fn check_first_failure(
        &self,
        name: QueueId,
        peer: &Self,
        request: &PendingSend,
        status: Status,
    ) -> Result<(), Violation> {
        let own_defect =
            request.defect.is_some_and(|defect| defect.send_statuses().contains(&status));
        let allowed = own_defect
            || match status {
                Status::WorkRequestFlushed => {
                    let by_receive = self.receive_failed && self.unexplained.is_none();
                    self.stopped || by_receive || peer.breaks_peer
                }
                Status::TransportRetryExceeded => {
                    self.allowance.retry_exhaustion || peer.may_have_failed() || self.breaks_peer
                }
                Status::ReceiverNotReadyRetryExceeded => {
                    let late = |message: usize| !self.messages[message].awaited;
                    self.allowance.receiver_not_ready_exhaustion
                        && request.message.is_some_and(late)
                }
                _ => false,
            };
        if allowed {
            return Ok(());
        }
        let legal = || "legal".to_owned();
        let wrong = request.defect.map_or_else(legal, |defect| defect.to_string());
        let text = format!(
            "{name}: request {} ({wrong}, {:?}) failed with: {status}",
            request.id, request.kind
        );
        Err(Violation::new(Rule::Status, text))
    }

    /// Takes the receive that `completion` ends: always the oldest.
    pub(super) fn take_receive(
        &mut self,
        name: QueueId,
        completion: &Completion,
    ) -> Result<PendingReceive, Violation> {
        let id = completion.id;
        let oldest = self.receives.front().map(|receive| receive.id);
        if oldest != Some(id) {
            let text = format!("{name}: receive {id} completed, but the oldest is {oldest:?}");
            return Err(Violation::new(Rule::Receive, text));
        }
        self.receives_completed += 1;
        Ok(self.receives.pop_front().expect("there is an oldest"))
    }

    /// Whether the oldest receive may fail like this, as the first that fails.
    pub(super) fn check_receive_failure(
        &self,
        name: QueueId,
        peer: &Self,
        receive: &PendingReceive,
        status: Status,
    ) -> Result<(), Violation> {
        let message = peer.messages.get(self.receives_completed - 1);
        let by = |defect: Option<Defect>| {
            defect.is_some_and(|defect| defect.receive_statuses().contains(&status))
        };
        let allowed = (message.is_some() && by(receive.defect))
            || by(message.and_then(|message| message.defect))
            || (status == Status::WorkRequestFlushed
                && (self.may_have_failed() || peer.may_have_failed()));
        if allowed {
            return Ok(());
        }
        let text = format!("{name}: receive {} failed with: {status}", receive.id);
        Err(Violation::new(Rule::Status, text))
    }
}

/// Whether a successful receive tells what the message said.
pub(super) fn check_message(
    name: QueueId,
    message: &Message,
    completion: &Completion,
) -> Result<(), Violation> {
    let complain = |what: String| {
        let text = format!("{name}: receive {}: {what}", completion.id);
        Err(Violation::new(Rule::Receive, text))
    };
    if let Some(defect) = message.defect {
        return complain(format!("succeeded in spite of: {defect}"));
    }
    if completion.kind != message.kind {
        return complain(format!("is {:?} instead of {:?}", completion.kind, message.kind));
    }
    if completion.length as usize != message.length {
        return complain(format!("{} bytes instead of {}", completion.length, message.length));
    }
    if completion.attachment != message.attachment {
        let (is, should) = (completion.attachment, message.attachment);
        return complain(format!("came with {is:?} instead of {should:?}"));
    }
    if completion.solicited != message.solicited {
        return complain(format!("solicited is {}", completion.solicited));
    }
    Ok(())
}
