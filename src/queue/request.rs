//! Work requests: what an application posts.

use super::flush::{FlushPlacement, FlushSelectivity};
use crate::memory::{Sge, WindowBind};
use crate::wire::{Immediate, QKey, Qpn, Rkey};

/// A place in a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// First byte's address, in the peer region's address space.
    pub address: u64,
    /// The key that the peer gave for it.
    pub key: Rkey,
}

/// Number of an address handle, which says how to reach a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressHandleId(pub(crate) u32);

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// How to reach it.
    pub address: AddressHandleId,
    /// Which queue pair there; [`Qpn::MULTICAST`] for a group.
    pub queue_pair: Qpn,
    /// Its queue key; with bit 31 set, our queue pair's own one is sent instead.
    pub qkey: QKey,
}

/// What a send work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOperation {
    /// Fills the peer's next receive buffer.
    Send,
    /// The same, and its completion carries four bytes.
    SendWithImmediate(Immediate),
    /// The same, and the peer's key is invalidated when the message has arrived.
    SendWithInvalidate(Rkey),
    /// Writes to the peer's memory; the peer's application is not told.
    Write(Remote),
    /// The same, and the peer's next receive completes with four bytes.
    WriteWithImmediate(Remote, Immediate),
    /// Reads from the peer's memory.
    Read(Remote),
    /// Replaces eight bytes of the peer if they equal `compare`; the old value comes back.
    CompareSwap {
        /// Where, aligned to 8 bytes.
        remote: Remote,
        /// The value that must be there.
        compare: u64,
        /// The value to put there.
        swap: u64,
    },
    /// Adds to eight bytes of the peer, wrapping; the old value comes back.
    FetchAdd {
        /// Where, aligned to 8 bytes.
        remote: Remote,
        /// What to add.
        add: u64,
    },
    /// Fills a receive buffer of a datagram queue pair (UD), one packet at most: as many bytes as the
    /// interface's path MTU. The message lies there behind 40 bytes, see
    /// [`start_datagrams`](crate::verbs::QueuePair::start_datagrams).
    SendTo {
        /// Whose.
        to: Datagram,
        /// Four bytes for its completion.
        immediate: Option<Immediate>,
    },
    /// Stores eight bytes of the peer's memory at once: whoever looks sees all of them or none. Needs
    /// the right [`REMOTE_WRITE`](crate::memory::Access::REMOTE_WRITE). Has no local segments; RC
    /// only.
    AtomicWrite {
        /// Where, aligned to 8 bytes.
        remote: Remote,
        /// The bytes, in the order in which they lie in memory.
        value: [u8; 8],
    },
    /// Completes when all earlier WRITEs of the queue are placed as it says. Needs the FLUSH right of
    /// that placement ([`FlushPlacement::needs`]). Has no local segments; RC only.
    Flush {
        /// First byte of the range.
        remote: Remote,
        /// Bytes of the range.
        length: u32,
        /// How far the WRITEs must have come.
        placement: FlushPlacement,
        /// Whether the range counts, or the whole memory of the key.
        selectivity: FlushSelectivity,
    },
    /// Makes a local key invalid: that of a region registered with
    /// [`Access::INVALIDATE`](crate::memory::Access::INVALIDATE), or of a window of type 2 that this
    /// queue pair bound. No packet is sent.
    LocalInvalidate(Rkey),
    /// Binds a memory window to a part of a region. No packet is sent. Later requests of the queue
    /// may carry its new key to the peer.
    BindWindow(WindowBind),
}

impl SendOperation {
    /// Whether a transport has it.
    pub const fn is_supported_by(&self, kind: super::QueuePairKind) -> bool {
        use super::QueuePairKind::{Rc, Uc, Ud, XrcInitiator};
        match self {
            Self::SendTo { .. } => matches!(kind, Ud),
            Self::LocalInvalidate(_)
            | Self::BindWindow(_)
            | Self::Send
            | Self::SendWithImmediate(_)
            | Self::Write(_)
            | Self::WriteWithImmediate(..) => matches!(kind, Rc | Uc | XrcInitiator),
            Self::SendWithInvalidate(_)
            | Self::Read(_)
            | Self::CompareSwap { .. }
            | Self::FetchAdd { .. } => matches!(kind, Rc | XrcInitiator),
            Self::AtomicWrite { .. } | Self::Flush { .. } => matches!(kind, Rc),
        }
    }

    /// Whether the peer's answer carries data, which goes to the request's segments.
    pub const fn returns_data(&self) -> bool {
        matches!(self, Self::Read(_) | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether all that it needs is in the operation itself, so that it has no local data.
    pub const fn is_self_contained(&self) -> bool {
        matches!(self, Self::AtomicWrite { .. } | Self::Flush { .. })
    }
}

/// Modifiers of a send work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// A success gives a completion. Errors always do.
    pub signaled: bool,
    /// The peer's completion counts as solicited (it can wake a waiter that waits for such only).
    pub solicited: bool,
    /// Starts only when all earlier READs and atomics of the queue are finished.
    pub fence: bool,
}

impl SendFlags {
    /// Signaled, nothing else.
    pub const SIGNALED: Self = Self { signaled: true, solicited: false, fence: false };
    /// Unsignaled, nothing else.
    pub const NONE: Self = Self { signaled: false, solicited: false, fence: false };
}

/// The local data of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Registered memory, in order; read when the packets are made.
    Segments(&'a [Sge]),
    /// Bytes taken over at once; the buffer can be reused when the call returns.
    Inline(&'a [u8]),
}

/// A send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest<'a> {
    /// The application's number for it, given back in the completion.
    pub id: u64,
    /// What to do.
    pub operation: SendOperation,
    /// Modifiers.
    pub flags: SendFlags,
    /// Local data: the source of SEND and WRITE, the target of READ and atomics.
    pub payload: Payload<'a>,
}

/// A receive work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest<'a> {
    /// The application's number for it, given back in the completion.
    pub id: u64,
    /// Where the message goes, in order.
    pub segments: &'a [Sge],
}

/// Why a work request was not taken. Nothing of it was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// All entries are in use.
    #[error("the queue is full ({capacity} entries): poll completions first, or create it larger")]
    QueueFull {
        /// Entries of the queue.
        capacity: u32,
    },
    /// The queue pair's state does not allow it.
    #[error("a queue pair in state {0} takes no {1}; sends need RTS, receives INIT or later")]
    WrongState(super::QueuePairState, &'static str),
    /// More segments than the queue was created for.
    #[error("{given} segments, but the queue was created for {limit}: create it for more")]
    TooManySegments {
        /// In the request.
        given: usize,
        /// At creation.
        limit: usize,
    },
    /// More inline bytes than the queue was created for.
    #[error("{given} inline bytes, but the queue was created for {limit}: create it for more")]
    InlineTooLong {
        /// In the request.
        given: usize,
        /// At creation.
        limit: usize,
    },
    /// READ and atomics need a place for the answer.
    #[error("inline data cannot be the target of a READ or an atomic operation")]
    InlineTarget,
    /// ATOMIC WRITE carries its value in the operation, and FLUSH has none.
    #[error("ATOMIC WRITE and FLUSH have no local data: {0} bytes of it were given")]
    NoLocalData(u64),
    /// The segments' sum is over the transport's limit.
    #[error("a message of {0} bytes is over the limit of 2147483648: send it in parts")]
    MessageTooLong(u64),
    /// The queue pair takes its receives from a shared queue.
    #[error("the queue pair has no receive queue of its own: post to its shared receive queue")]
    SharedReceiveQueue,
    /// The transport has no such operation.
    #[error(
        "{0} queue pairs have no such operation: READ, atomics and SEND with invalidate need RC or \
         XRC, ATOMIC WRITE and FLUSH need RC, and UD has SendTo only, which nothing else has"
    )]
    NotSupported(super::QueuePairKind),
    /// Requests of an XRC INI queue pair have to say which shared receive queue they are for.
    #[error(
        "a request of an XRC INI queue pair names a shared receive queue of the peer: post it with \
         post_send_to"
    )]
    NoSharedQueueNamed,
    /// Only requests of XRC INI queue pairs name a shared receive queue.
    #[error("requests of {0} queue pairs name no shared receive queue: post them with post_send")]
    SharedQueueNamed(super::QueuePairKind),
    /// An XRC TGT queue pair only serves its peer.
    #[error("{0} queue pairs have no send queue: post to an XRC INI queue pair")]
    NoSendQueue(super::QueuePairKind),
    /// An XRC INI queue pair only sends.
    #[error(
        "{0} queue pairs receive nothing: post to the XRC shared receive queue that the peer names"
    )]
    NoReceives(super::QueuePairKind),
}

/// The largest message: 2^31 bytes (specification, section 9.7.7).
pub const MAX_MESSAGE: u64 = 1 << 31;

/// Bytes in all segments together.
pub fn total_length(segments: &[Sge]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.length)).sum()
}
