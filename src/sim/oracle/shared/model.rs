//! What is known of shared receive queues and links to them.

use std::collections::VecDeque;
use std::fmt;

use super::super::{Change, Place, Rule, Violation};
use crate::queue::{Attachment, Completion, CompletionKind, CompletionStatus as Status};

/// Bytes before the payload of a received datagram.
pub(super) const AREA: usize = 40;

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedId(pub usize);

/// A way to shared receive queues: who sends, and whose queue pair takes the receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub usize);

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link #{}", self.0)
    }
}

impl fmt::Display for SharedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared queue #{}", self.0)
    }
}

/// What a link promises, and what it may suffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPort {
    /// Requests are acknowledged.
    pub is_reliable: bool,
    /// It carries datagrams, which come behind 40 bytes.
    pub is_datagram: bool,
    /// Number of the sender's queue pair.
    pub sender: u32,
    /// The queue that its receiver belongs to; nothing if each message names one.
    pub queue: Option<SharedId>,
    /// Where completions of its receives go, if the queue pair says so and not the queue.
    pub completions: usize,
    /// Packets do not pass each other.
    pub keeps_order: bool,
    /// A packet may arrive more than once.
    pub may_repeat: bool,
    /// The network may stay dead for longer than all retries.
    pub may_exhaust: bool,
}

/// What is wrong with a message on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkDefect {
    /// It names a shared receive queue that does not exist.
    NoSuchQueue,
    /// It names one of another XRC domain.
    ForeignQueue,
    /// It is longer than all receives.
    TooLong,
    /// Its remote key counts in another protection domain than the named queue's.
    RemoteDomain,
}

impl LinkDefect {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::NoSuchQueue, Self::ForeignQueue, Self::TooLong, Self::RemoteDomain];

    /// How the request fails where it was posted.
    pub const fn status(self) -> Status {
        match self {
            Self::NoSuchQueue | Self::ForeignQueue | Self::RemoteDomain => {
                Status::RemoteAccessError
            }
            Self::TooLong => Status::RemoteInvalidRequest,
        }
    }
}

/// What a request does beside its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEffect {
    /// Nothing.
    None,
    /// Its bytes land here.
    Write(Place),
    /// These bytes land here.
    Read(Place, Vec<u8>),
    /// The word's old value lands here; nobody else changes the word.
    Atomic(Place, Change),
}

/// A request of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSend {
    /// The application's number.
    pub id: u64,
    /// How its completion names it.
    pub kind: CompletionKind,
    /// The queue that its message is for, and what comes along; nothing if it takes no receive.
    pub message: Option<(Option<SharedId>, Attachment)>,
    /// A success gives a completion.
    pub signaled: bool,
    /// The receiver's completion counts as solicited.
    pub solicited: bool,
    /// The message's bytes.
    pub data: Vec<u8>,
    /// What it does beside that.
    pub effect: LinkEffect,
    /// What is wrong with it.
    pub defect: Option<LinkDefect>,
}

#[derive(Debug)]
pub(super) struct Outstanding {
    pub(super) send: LinkSend,
    pub(super) token: u64,
    pub(super) message: Option<usize>,
}

#[derive(Debug)]
pub(super) struct LinkMessage {
    pub(super) queue: Option<SharedId>,
    pub(super) data: Vec<u8>,
    /// Bytes that it fills of a receive: a WRITE fills none.
    pub(super) filled: usize,
    pub(super) kind: CompletionKind,
    pub(super) attachment: Attachment,
    pub(super) solicited: bool,
    pub(super) defect: Option<LinkDefect>,
    pub(super) succeeded: bool,
    pub(super) failed: bool,
    pub(super) arrivals: u32,
}

#[derive(Debug)]
pub(super) struct LinkModel {
    pub(super) port: LinkPort,
    pub(super) sends: VecDeque<Outstanding>,
    pub(super) messages: Vec<LinkMessage>,
    /// The last message that has arrived.
    pub(super) newest: usize,
    pub(super) failed: bool,
    pub(super) has_defect: bool,
    pub(super) stopped: bool,
    /// Receives that it gave back: it holds at most one at a time.
    pub(super) given_back: u32,
    pub(super) last_reached: u32,
    /// What its atomics have added.
    pub(super) word: u64,
}

#[derive(Debug)]
pub(super) struct PostedReceive {
    pub(super) id: u64,
    pub(super) token: u64,
    pub(super) place: Place,
}

#[derive(Debug, Default)]
pub(super) struct SharedModel {
    pub(super) posted: VecDeque<PostedReceive>,
    pub(super) limit: u32,
    /// The application asked for an event that has not come.
    pub(super) armed: bool,
}

/// Models of all of them.
#[derive(Debug, Default)]
pub(in super::super) struct Shared {
    pub(super) queues: Vec<SharedModel>,
    pub(super) links: Vec<LinkModel>,
}

impl LinkMessage {
    pub(super) fn is_told_by(&self, completion: &Completion, port: &LinkPort, area: usize) -> bool {
        let source = if port.is_datagram { port.sender } else { 0 };
        completion.kind == self.kind
            && completion.length as usize == self.data.len() + area
            && completion.attachment == self.attachment
            && completion.solicited == self.solicited
            && completion.source.value() == source
    }
}

impl LinkModel {
    /// Numbers of the messages that may arrive in a queue now. Messages for different queues are not
    /// polled in the order in which they arrived.
    pub(super) fn candidates(&self, queue: SharedId) -> impl Iterator<Item = usize> + '_ {
        let oldest = self.oldest(queue);
        (0..self.messages.len()).filter(move |number| {
            let message = &self.messages[*number];
            if message.queue != Some(queue) || message.defect.is_some() {
                return false;
            }
            if self.port.is_reliable {
                return Some(*number) == oldest && !self.is_behind_defect(*number);
            }
            let is_new = message.arrivals == 0 || self.port.may_repeat;
            let in_order = !self.port.keeps_order || *number >= self.newest;
            is_new && in_order && !message.failed
        })
    }

    /// The first message for a queue that has not arrived.
    pub(super) fn oldest(&self, queue: SharedId) -> Option<usize> {
        let waits = |one: &LinkMessage| one.queue == Some(queue) && one.arrivals == 0;
        self.messages.iter().position(waits)
    }

    fn is_behind_defect(&self, number: usize) -> bool {
        self.messages[..number].iter().any(|one| one.defect.is_some())
    }

    pub(super) fn close(&self, name: LinkId) -> Result<(), Violation> {
        let complain = |rule, text: String| Err(Violation::new(rule, format!("{name}: {text}")));
        if !self.sends.is_empty() {
            return complain(Rule::Completion, format!("{} requests left", self.sends.len()));
        }
        let lost = |one: &LinkMessage| one.succeeded && one.arrivals == 0;
        if let Some(number) = self.messages.iter().position(lost).filter(|_| self.port.is_reliable)
        {
            return complain(Rule::Receive, format!("message {number} succeeded and is not there"));
        }
        if self.last_reached != 1 {
            return complain(Rule::Event, "no last-receive event".to_owned());
        }
        Ok(())
    }
}
