//! One queue pair without acknowledgements: what is outstanding, and what was sent to it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::super::queue::PendingReceive;
use super::super::{Local, Place, QueueId, Rule, Violation};
use super::{UnackedDefect, attachment_of};
use crate::queue::{Attachment, Completion, CompletionKind};

/// Bytes before the payload of a received datagram.
pub(super) const AREA: usize = 40;

/// One queue pair without acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnackedId(pub usize);

impl UnackedId {
    /// Whose claims on memory the WRITEs to it are. Queue pairs with acknowledgements count up from
    /// zero.
    pub(super) const fn claimant(self) -> QueueId {
        QueueId(usize::MAX - self.0)
    }
}

impl fmt::Display for UnackedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unacknowledged queue pair #{}", self.0)
    }
}

/// Who it is, and what the network does to what is sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnackedPort {
    /// Its number.
    pub number: u32,
    /// Its machine's address.
    pub address: IpAddr,
    /// Its machine's number, at most 63.
    pub machine: usize,
    /// It takes datagrams of anybody; else it has one peer.
    pub is_datagram: bool,
    /// Packets do not pass each other.
    pub keeps_order: bool,
    /// A packet may arrive more than once.
    pub may_repeat: bool,
}

/// A send request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnackedSend {
    /// The application's number.
    pub id: u64,
    /// Whose receive, or memory, it is for: one, or all members of a group.
    pub to: Vec<UnackedId>,
    /// The group's address, if it is for one.
    pub group: Option<IpAddr>,
    /// How its completion names it.
    pub kind: CompletionKind,
    /// What a WRITE writes; nothing for a SEND, and for a WRITE of what it cannot reach.
    pub target: Option<Place>,
    /// What comes along with the message, if it consumes a receive.
    pub message: Option<Attachment>,
    /// A success gives a completion.
    pub signaled: bool,
    /// The receiver's completion counts as solicited.
    pub solicited: bool,
    /// Local bytes: of a request whose keys are wrong, what lies before the first wrong one.
    pub local: Local,
    /// Bytes of the whole message.
    pub length: usize,
    /// What is wrong with it.
    pub defect: Option<UnackedDefect>,
    /// It is sent when nothing is lost any more: it has to arrive unless the oldest receive cannot
    /// take it.
    pub must_arrive: bool,
}

#[derive(Clone, Debug)]
pub(super) struct PendingUnacked {
    pub(super) id: u64,
    pub(super) kind: CompletionKind,
    pub(super) signaled: bool,
    pub(super) defect: Option<UnackedDefect>,
    /// Whose inboxes its message is in, and which one it is there.
    pub(super) messages: Vec<(UnackedId, usize)>,
}

/// What is known of a request's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendEnd {
    Open,
    Left,
    /// Failed or flushed: it has not left as a whole.
    Failed,
}

/// What was sent to a queue pair.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) from: UnackedId,
    /// The group's address, if it was sent to one.
    pub(super) group: Option<IpAddr>,
    pub(super) token: u64,
    pub(super) data: Arc<Vec<u8>>,
    pub(super) length: usize,
    /// How the receive that it consumes completes; nothing for a plain WRITE.
    pub(super) kind: Option<CompletionKind>,
    pub(super) attachment: Attachment,
    pub(super) solicited: bool,
    pub(super) target: Option<Place>,
    pub(super) defect: Option<UnackedDefect>,
    pub(super) end: SendEnd,
    pub(super) arrivals: u32,
    pub(super) must_arrive: bool,
    /// The network carried all of it, and nothing else was under way that could pass it.
    pub(super) is_intact: bool,
}

impl Message {
    pub(super) fn new(
        from: UnackedId,
        token: u64,
        model: &UnackedSend,
        data: Arc<Vec<u8>>,
    ) -> Self {
        let kind = model.message.map(|_| match model.kind {
            CompletionKind::Write => CompletionKind::ReceiveWriteWithImmediate,
            _ => CompletionKind::Receive,
        });
        Self {
            from,
            group: model.group,
            token,
            data,
            length: model.length,
            kind,
            attachment: attachment_of(model),
            solicited: model.solicited,
            target: model.target,
            defect: model.defect,
            end: SendEnd::Open,
            arrivals: 0,
            must_arrive: model.must_arrive,
            is_intact: false,
        }
    }

    /// Whether whoever receives them cannot tell them apart.
    fn looks_like(&self, other: &Self) -> bool {
        let seen = |message: &Self| {
            (message.from, message.group, message.kind, message.attachment, message.solicited)
        };
        seen(self) == seen(other) && self.received_bytes() == other.received_bytes()
    }

    /// What lies in the receive's memory behind the area of datagrams.
    pub(super) fn received_bytes(&self) -> &[u8] {
        if self.kind == Some(CompletionKind::Receive) { &self.data } else { &[] }
    }
}

/// See the module's text.
#[derive(Debug)]
pub(in super::super) struct UnackedQueue {
    pub(super) port: UnackedPort,
    pub(super) sends: VecDeque<PendingUnacked>,
    /// What has left, in order: whose inboxes it is in, and which one it is there.
    pub(super) left: Vec<Vec<(UnackedId, usize)>>,
    pub(super) receives: VecDeque<PendingReceive>,
    /// Everything that was sent to it, in order of posting.
    pub(super) inbox: Vec<Message>,
    /// The last message of each sender that has arrived.
    pub(super) last: BTreeMap<UnackedId, usize>,
    /// A send request failed, and the application has not resumed.
    pub(super) has_failed: bool,
    /// The application moved it to the error state.
    pub(super) is_stopped: bool,
}

impl UnackedQueue {
    pub(super) fn new(port: UnackedPort) -> Self {
        Self {
            port,
            sends: VecDeque::new(),
            left: Vec::new(),
            receives: VecDeque::new(),
            inbox: Vec::new(),
            last: BTreeMap::new(),
            has_failed: false,
            is_stopped: false,
        }
    }

    /// Bytes of a receive that come before the message.
    pub(super) const fn area(&self) -> usize {
        if self.port.is_datagram { AREA } else { 0 }
    }

    /// Takes the send request that `completion` ends, and those before it, which it covers.
    pub(super) fn take_sends(
        &mut self,
        name: UnackedId,
        completion: &Completion,
    ) -> Result<Vec<PendingUnacked>, Violation> {
        let id = completion.id;
        let complain = |text: String| {
            Err(Violation::new(Rule::Completion, format!("{name}: request {id} {text}")))
        };
        let Some(position) = self.sends.iter().position(|send| send.id == id) else {
            return complain("completed, but is not outstanding".to_owned());
        };
        if let Some(skipped) = self.sends.iter().take(position).find(|send| send.signaled) {
            return complain(format!("completed before {}, which is signaled", skipped.id));
        }
        if self.has_failed && position > 0 {
            return complain("was flushed before older ones".to_owned());
        }
        let taken: Vec<PendingUnacked> = self.sends.drain(..=position).collect();
        let kind = taken[position].kind;
        if kind != completion.kind {
            return complain(format!("is {kind:?}, not {:?}", completion.kind));
        }
        Ok(taken)
    }

    /// Whether everything arrived that had to.
    pub(super) fn check_arrivals(&self, name: UnackedId, awaited: bool) -> Result<(), Violation> {
        let must_come = |message: &&Message| {
            message.end == SendEnd::Left
                && message.kind.is_some()
                && message.defect.is_none()
                && ((awaited && message.is_intact)
                    || (message.must_arrive && self.can_take(message)))
        };
        // Which of several messages that look alike came, nobody can tell: as many as had to.
        let lacks = |message: &&Message| {
            let twins = || self.inbox.iter().filter(|other| other.looks_like(message));
            must_come(message)
                && message.arrivals == 0
                && twins().filter(|twin| twin.arrivals > 0).count()
                    < twins().filter(must_come).count()
        };
        let Some(message) = self.inbox.iter().find(lacks) else { return Ok(()) };
        let text = format!(
            "{name}: a message of {} bytes from #{} left, was not lost, a receive waits, but it \
             did not arrive",
            message.length, message.from.0
        );
        Err(Violation::new(Rule::Receive, text))
    }

    /// Whether the oldest receive takes a message.
    fn can_take(&self, message: &Message) -> bool {
        let needed = message.received_bytes().len() + self.area();
        self.receives.front().is_some_and(|receive| capacity(receive) >= needed)
    }
}

/// Bytes that a receive takes.
pub(super) fn capacity(receive: &PendingReceive) -> usize {
    receive.places.iter().map(|place| place.length).sum()
}
