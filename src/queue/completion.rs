//! Completion queues: filled by the engine, emptied by the application.

use std::sync::OnceLock;

use super::occupied::{Occupied, Users};
use super::ring::{WordRing, get, halves, pair, put};
use super::shared::Origin;
use super::sync::{Arc, AtomicBool, AtomicU8, Mutex, Ordering, fence, lock};
use super::wakers::Wakers;
use crate::wire::{Immediate, Qpn, Rkey, Srqn};

/// How a work request ended. Numbers and meanings are those of verbs (`ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum CompletionStatus {
    /// Done.
    Success = 0,
    /// A receive was too small for the message, or a local buffer did not fit the operation.
    LocalLengthError = 1,
    /// The request itself was wrong.
    LocalQueuePairOperationError = 2,
    /// A local key does not allow what was asked.
    LocalProtectionError = 4,
    /// Not carried out: the queue pair was in error, or became so before its turn.
    WorkRequestFlushed = 5,
    /// A window could not be bound.
    MemoryWindowBindError = 6,
    /// The peer answered with something that makes no sense.
    BadResponse = 7,
    /// Atomic or write with immediate could not reach local memory.
    LocalAccessError = 8,
    /// The peer refused the request as invalid (NAK 0x61).
    RemoteInvalidRequest = 9,
    /// The peer's key does not allow it (NAK 0x62).
    RemoteAccessError = 10,
    /// The peer failed while carrying it out (NAK 0x63).
    RemoteOperationError = 11,
    /// No answer within the retries (timeout, retry_cnt).
    TransportRetryExceeded = 12,
    /// The peer had no receive posted, for longer than the retries (rnr_retry).
    ReceiverNotReadyRetryExceeded = 13,
    /// The peer ended the operation (SRQ or XRC).
    RemoteAborted = 16,
    /// The device failed.
    Fatal = 19,
    /// None of the above.
    General = 21,
}

impl CompletionStatus {
    const ALL: [Self; 16] = [
        Self::Success,
        Self::LocalLengthError,
        Self::LocalQueuePairOperationError,
        Self::LocalProtectionError,
        Self::WorkRequestFlushed,
        Self::MemoryWindowBindError,
        Self::BadResponse,
        Self::LocalAccessError,
        Self::RemoteInvalidRequest,
        Self::RemoteAccessError,
        Self::RemoteOperationError,
        Self::TransportRetryExceeded,
        Self::ReceiverNotReadyRetryExceeded,
        Self::RemoteAborted,
        Self::Fatal,
        Self::General,
    ];

    pub(crate) fn from_number(number: u8) -> Self {
        Self::ALL.into_iter().find(|status| *status as u8 == number).unwrap_or(Self::General)
    }

    /// Whether the work request was carried out.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

impl std::fmt::Display for CompletionStatus {
    /// A short sentence part, as `ibv_wc_status_str` gives.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::LocalLengthError => "local length error",
            Self::LocalQueuePairOperationError => "local queue pair operation error",
            Self::LocalProtectionError => "local protection error",
            Self::WorkRequestFlushed => "work request flushed",
            Self::MemoryWindowBindError => "memory window bind error",
            Self::BadResponse => "bad response",
            Self::LocalAccessError => "local access error",
            Self::RemoteInvalidRequest => "remote invalid request",
            Self::RemoteAccessError => "remote access error",
            Self::RemoteOperationError => "remote operation error",
            Self::TransportRetryExceeded => "transport retry counter exceeded",
            Self::ReceiverNotReadyRetryExceeded => "receiver not ready retry counter exceeded",
            Self::RemoteAborted => "remote aborted",
            Self::Fatal => "fatal error",
            Self::General => "general error",
        })
    }
}

/// What kind of work request a completion stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum CompletionKind {
    /// A SEND of ours, in any form.
    Send = 0,
    /// A WRITE of ours, in any form.
    Write = 1,
    /// A READ of ours.
    Read = 2,
    /// A compare-and-swap of ours.
    CompareSwap = 3,
    /// A fetch-and-add of ours.
    FetchAdd = 4,
    /// A local invalidation.
    LocalInvalidate = 5,
    /// A receive that a peer's SEND filled.
    Receive = 6,
    /// A receive that a peer's WRITE with immediate consumed.
    ReceiveWriteWithImmediate = 7,
    /// A memory window was bound.
    BindWindow = 8,
    /// An ATOMIC WRITE of ours.
    AtomicWrite = 9,
    /// A FLUSH of ours.
    Flush = 10,
}

impl CompletionKind {
    const ALL: [Self; 11] = [
        Self::Send,
        Self::Write,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::LocalInvalidate,
        Self::Receive,
        Self::ReceiveWriteWithImmediate,
        Self::BindWindow,
        Self::AtomicWrite,
        Self::Flush,
    ];

    pub(super) fn from_number(number: u8) -> Self {
        Self::ALL[usize::from(number).min(Self::ALL.len() - 1)]
    }

    /// Whether a receive work request completed, and not a send one.
    pub const fn is_receive(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveWriteWithImmediate)
    }
}

/// What came with a received message besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// Nothing.
    None,
    /// Four bytes of the peer.
    Immediate(Immediate),
    /// The key of ours that the peer invalidated.
    Invalidated(Rkey),
}

/// The end of a work request. On an error only `id`, `status`, `kind` and `queue_pair` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number that the application gave to the work request.
    pub id: u64,
    /// How it ended.
    pub status: CompletionStatus,
    /// What it was.
    pub kind: CompletionKind,
    /// Bytes received, or written by a WRITE with immediate, or read.
    pub length: u32,
    /// What came along.
    pub attachment: Attachment,
    /// The queue pair it belongs to.
    pub queue_pair: Qpn,
    /// The sender, where the transport tells (UD); else 0.
    pub source: Qpn,
    /// Whether the sender asked for a solicited event.
    pub solicited: bool,
}

impl Default for Completion {
    /// A place for a completion to be polled into.
    fn default() -> Self {
        Self {
            id: 0,
            status: CompletionStatus::Success,
            kind: CompletionKind::Send,
            length: 0,
            attachment: Attachment::None,
            queue_pair: Qpn::default(),
            source: Qpn::default(),
            solicited: false,
        }
    }
}

/// The queue had no room: completions are lost, and the queue is unusable from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the completion queue overran ({capacity} entries): create it with at least as many entries as \
     all its queues' work requests together"
)]
pub struct Overrun {
    /// Entries of the queue.
    pub capacity: u32,
}

/// A completion found no room; `first` if no other had been lost before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) first: bool,
}

/// Who is to be told of a completion, once no lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// The notifier: the queue was armed.
    pub(crate) notify: bool,
    /// Waiting tasks.
    pub(crate) wake: bool,
}

/// Told, outside all locks, that an armed completion queue has something.
pub trait Notify: Send + Sync {
    /// Called once for each arming. Must not block.
    fn notify(&self);
}

const ID: usize = 0;
const SHAPE: usize = 1;
const EXTRA: usize = 2;
const SOURCE: usize = 3;
const WORDS: usize = 4;

const QUIET: u8 = 0;
const ARMED_SOLICITED: u8 = 1;
const ARMED_ANY: u8 = 2;

/// A completion queue of fixed capacity.
///
/// Notification follows verbs: arm, poll until empty, then wait. A completion pushed after the
/// arming notifies once and disarms.
pub struct CompletionQueue {
    ring: WordRing,
    /// Held while polling.
    users: Mutex<Users>,
    armed: AtomicU8,
    overrun: AtomicBool,
    notifier: OnceLock<Box<dyn Notify>>,
    wakers: Wakers,
}

impl CompletionQueue {
    /// A queue for at least `capacity` completions.
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            ring: WordRing::new(capacity, WORDS),
            users: Mutex::new(Users::default()),
            armed: AtomicU8::new(QUIET),
            overrun: AtomicBool::new(false),
            notifier: OnceLock::new(),
            wakers: Wakers::default(),
        }
    }

    /// Entries in all.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Completions waiting to be polled.
    pub fn waiting(&self) -> u32 {
        self.ring.len()
    }

    /// Sets who is told when an armed queue gets a completion. Only the first call counts; returns
    /// whether this was it.
    pub fn set_notifier(&self, notifier: Box<dyn Notify>) -> bool {
        self.notifier.set(notifier).is_ok()
    }

    /// Completions of a queue pair's sends, of its receives, or of both come here from now on.
    pub(crate) fn join(
        &self,
        number: Qpn,
        send: Option<Arc<Occupied>>,
        receive: Option<Arc<Occupied>>,
    ) {
        lock(&self.users).join(number, send, receive);
    }

    /// The queue pair has ended. Its completions can still be polled, and free nothing then: the
    /// entries of a shared receive queue, which goes on, are free now.
    pub(crate) fn leave(&self, number: Qpn) {
        let mut users = lock(&self.users);
        let (tail, waiting) = (self.ring.tail(), self.ring.len());
        for index in 0..waiting {
            let (completion, origin) = read(self.ring.entry(tail.wrapping_add(index)));
            let is_receive = completion.kind.is_receive();
            if completion.queue_pair == number && is_receive && origin == Origin::Pair {
                users.polled(number, true);
            }
        }
        users.leave(number);
    }

    /// Completions of an XRC shared receive queue come here from now on.
    pub(crate) fn join_shared(&self, number: Srqn, receive: Arc<Occupied>) {
        lock(&self.users).join_shared(number, receive);
    }

    /// The XRC shared receive queue has ended.
    pub(crate) fn leave_shared(&self, number: Srqn) {
        lock(&self.users).leave_shared(number);
    }

    /// Asks for one notification at the next completion; with `solicited_only`, at the next
    /// solicited or failed one. A wider request that is already pending stays.
    pub fn arm(&self, solicited_only: bool) {
        let wanted = if solicited_only { ARMED_SOLICITED } else { ARMED_ANY };
        self.armed.fetch_max(wanted, Ordering::SeqCst);
        // The caller's next poll must not see an older state than the engine's next look at `armed`.
        fence(Ordering::SeqCst);
    }

    /// Takes completions out, oldest first, and passes them to `taken`. Returns how many; at most
    /// `limit`. After the last completion of an overrun queue: the error.
    pub fn poll(
        &self,
        limit: usize,
        mut taken: impl FnMut(usize, Completion),
    ) -> Result<usize, Overrun> {
        let mut users = lock(&self.users);
        let tail = self.ring.tail();
        let available = self.ring.head().wrapping_sub(tail) as usize;
        let count = available.min(limit);
        for index in 0..count {
            let (completion, origin) = read(self.ring.entry(tail.wrapping_add(index as u32)));
            match origin {
                Origin::Pair => {
                    users.polled(completion.queue_pair, completion.kind.is_receive());
                }
                Origin::Shared(number) => users.polled_shared(number),
            }
            taken(index, completion);
        }
        if count > 0 {
            self.ring.release(tail.wrapping_add(count as u32));
        } else if self.overrun.load(Ordering::Acquire) {
            return Err(Overrun { capacity: self.capacity() });
        }
        Ok(count)
    }

    /// Adds a completion. Only the engine calls this, under its lock. Returns who has to be told
    /// once the lock is released.
    pub(crate) fn push(&self, completion: &Completion, origin: Origin) -> Result<Told, Lost> {
        if self.overrun.load(Ordering::Relaxed) {
            return Err(Lost { first: false });
        }
        if !self.ring.has_room() {
            self.overrun.store(true, Ordering::Release);
            return Err(Lost { first: true });
        }
        let head = self.ring.head();
        write(self.ring.entry(head), completion, origin);
        self.ring.publish(head.wrapping_add(1));
        // Either the application's poll after arming or registering sees the entry, or this sees
        // the arming or registration.
        fence(Ordering::SeqCst);
        let notify = self.disarm(completion.solicited || !completion.status.is_success());
        Ok(Told { notify, wake: self.wakers.must_wake() })
    }

    fn disarm(&self, solicited: bool) -> bool {
        match self.armed.load(Ordering::SeqCst) {
            QUIET => false,
            ARMED_SOLICITED if !solicited => false,
            _ => self.armed.swap(QUIET, Ordering::SeqCst) != QUIET,
        }
    }

    /// Tasks that wait for completions.
    pub(crate) fn wakers(&self) -> &Wakers {
        &self.wakers
    }

    /// Calls the notifier. Outside all locks.
    pub(crate) fn notify(&self) {
        if let Some(notifier) = self.notifier.get() {
            notifier.notify();
        }
    }
}

fn write(entry: &[super::sync::AtomicU64], completion: &Completion, origin: Origin) {
    let (tag, extra) = match completion.attachment {
        Attachment::None => (0, 0),
        Attachment::Immediate(immediate) => (1, u32::from_le_bytes(immediate.0)),
        Attachment::Invalidated(key) => (2, key.value()),
    };
    let shape = u32::from(completion.status as u8)
        | u32::from(completion.kind as u8) << 8
        | tag << 16
        | u32::from(completion.solicited) << 24;
    put(entry, ID, completion.id);
    put(entry, SHAPE, pair(completion.length, shape));
    put(entry, EXTRA, pair(extra, completion.queue_pair.value()));
    put(entry, SOURCE, pair(completion.source.value(), origin.to_word()));
}

fn read(entry: &[super::sync::AtomicU64]) -> (Completion, Origin) {
    let (length, shape) = halves(get(entry, SHAPE));
    let (extra, queue_pair) = halves(get(entry, EXTRA));
    let attachment = match (shape >> 16) as u8 {
        0 => Attachment::None,
        1 => Attachment::Immediate(Immediate(extra.to_le_bytes())),
        _ => Attachment::Invalidated(Rkey::new(extra)),
    };
    let (source, origin) = halves(get(entry, SOURCE));
    let completion = Completion {
        id: get(entry, ID),
        status: CompletionStatus::from_number(shape as u8),
        kind: CompletionKind::from_number((shape >> 8) as u8),
        length,
        attachment,
        queue_pair: Qpn::new(queue_pair),
        source: Qpn::new(source),
        solicited: shape >> 24 != 0,
    };
    (completion, Origin::from_word(origin))
}
