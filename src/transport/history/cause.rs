//! Why something failed: typed, with the numbers of that moment.

use super::event::PacketKind;
use crate::memory::{Access, BindFault, Denial, WindowBind};
use crate::queue::QueuePairState;
use crate::transport::Unreachable;
use crate::wire::{NakCode, Psn, RnrTimer};

/// A request of ours to which no sufficient answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// What was sent.
    pub kind: PacketKind,
    /// First PSN of the request.
    pub first: Psn,
    /// Its last PSN.
    pub last: Psn,
    /// The oldest PSN without answer.
    pub oldest: Psn,
    /// How often the packet at `oldest` was sent.
    pub tries: u32,
    /// Nanoseconds since it was sent first, or since the peer last acknowledged something.
    pub waited: u64,
    /// The exponent of the local ACK timeout.
    pub timeout: u8,
    /// Nanoseconds that this means: 4.096 µs × 2^timeout.
    pub timeout_asked: u64,
    /// Nanoseconds that were used; more than asked for where that was too short.
    pub timeout_used: u64,
    /// The retries that the application allowed.
    pub retry_count: u8,
    /// Sequence error NAKs that came meanwhile.
    pub sequence_naks: u32,
    /// Answers that came meanwhile and were outside of what is unacknowledged, with the last PSN.
    pub outside: u32,
    /// The PSN of the last of these.
    pub outside_psn: Psn,
    /// Whether the peer has acknowledged anything since the connection was made.
    pub acknowledged: bool,
    /// What ICMP has told of the peer's address meanwhile.
    pub unreachable: Option<Unreachable>,
}

/// A request of ours for which the peer had no receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// What was sent.
    pub kind: PacketKind,
    /// The PSN that found no receive.
    pub psn: Psn,
    /// How often it was refused.
    pub refusals: u32,
    /// The pause that the peer asked for last.
    pub timer: RnrTimer,
    /// The retries that the application allowed.
    pub retry_count: u8,
    /// Nanoseconds since the first refusal.
    pub waited: u64,
}

/// A request of ours that the peer refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its answer.
    pub code: NakCode,
    /// What was sent.
    pub kind: PacketKind,
    /// First PSN of the request.
    pub first: Psn,
    /// Its last PSN.
    pub last: Psn,
    /// The PSN that was refused.
    pub psn: Psn,
    /// Bytes of the request.
    pub length: u32,
    /// The place in the peer's memory that it named: key and address.
    pub remote: Option<(u32, u64)>,
    /// Our path MTU in bytes.
    pub path_mtu: u32,
    /// READs and atomics that were under way, this one included.
    pub reads: u32,
}

/// A READ response that is not what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongResponse {
    /// Its PSN.
    pub psn: Psn,
    /// Bytes that it had to carry.
    pub expected: u32,
    /// Bytes that it carried.
    pub received: u32,
    /// Our path MTU in bytes.
    pub path_mtu: u32,
    /// Whether it had to be the last of its request.
    pub must_end: bool,
    /// Whether it was.
    pub ends: bool,
}

/// The part of its message that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePart {
    /// FIRST or MIDDLE: exactly the path MTU.
    Full,
    /// LAST: 1 byte to the path MTU.
    Last,
    /// ONLY: 0 bytes to the path MTU.
    Only,
}

/// Why queues were flushed though nothing has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushCause {
    /// The application moved the queue pair to ERR.
    Modified {
        /// The state before.
        from: QueuePairState,
    },
}

/// Why something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Retries used up without the answer that was needed.
    Unanswered(Unanswered),
    /// The peer had no receive for longer than the retries last.
    NotReady(NotReady),
    /// The peer refused the request.
    Refused(Refused),
    /// A READ response of a wrong size or at a wrong place.
    WrongResponse(WrongResponse),
    /// An answer of another kind than the request's.
    WrongKind {
        /// Its PSN.
        psn: Psn,
        /// What the request was.
        request: PacketKind,
        /// What came.
        received: PacketKind,
    },
    /// Our own memory cannot be reached as the work request says.
    LocalMemory(Denial),
    /// An atomic whose segments are not 8 bytes.
    AtomicLength {
        /// Bytes of its segments.
        length: u32,
    },
    /// READs and atomics are switched off: max_rd_atomic is 0.
    NoReads {
        /// What was posted.
        kind: PacketKind,
    },
    /// A message of more packets than can be told apart.
    TooManyPackets {
        /// Bytes.
        length: u32,
        /// Path MTU in bytes.
        path_mtu: u32,
    },
    /// A datagram larger than a packet.
    DatagramTooLong {
        /// Bytes.
        length: u32,
        /// Bytes that fit.
        path_mtu: u32,
    },
    /// A key that a local request cannot invalidate.
    CannotInvalidate(Denial),
    /// A memory window that cannot be bound.
    CannotBind {
        /// Which rule is broken.
        fault: BindFault,
        /// What was asked.
        bind: WindowBind,
    },
    /// The address handle of a datagram does not exist any more.
    NoAddressHandle,
    /// The peer's message is larger than the receive.
    ReceiveTooSmall {
        /// Bytes of the receive.
        capacity: u32,
        /// Bytes of the message so far.
        arrived: u64,
    },
    /// The receive's own memory cannot be written.
    ReceiveMemory(Denial),
    /// The peer's key does not allow what its request says.
    RemoteMemory(Denial),
    /// The queue pair does not allow the peer's operation.
    NotAllowed {
        /// The right that it takes.
        need: Access,
        /// What the queue pair was given.
        allowed: Access,
    },
    /// An opcode that is reserved or not supported.
    UnsupportedOpcode {
        /// Which, if it is known.
        opcode: Option<u8>,
    },
    /// A packet that does not follow the one before.
    OpcodeSequence {
        /// What came.
        received: PacketKind,
        /// Whether it starts a message.
        starts: bool,
        /// What was being received, if anything.
        inside: Option<PacketKind>,
    },
    /// A packet of a length that its place in the message does not have.
    PacketLength {
        /// Bytes of payload.
        length: u32,
        /// Our path MTU in bytes.
        path_mtu: u32,
        /// Its place.
        part: MessagePart,
    },
    /// A message whose bytes are not those that it announced.
    MessageLength {
        /// Announced in its first packet.
        announced: u32,
        /// Bytes that came.
        arrived: u64,
    },
    /// An atomic at an address that is not a multiple of 8.
    Misaligned {
        /// The address.
        address: u64,
    },
    /// More READs and atomics than we serve at a time.
    TooManyReads {
        /// How many we serve.
        limit: u8,
    },
    /// The packet names no shared receive queue that it may reach (XRC).
    SharedQueue {
        /// It is in another XRC domain.
        other_domain: bool,
        /// It is not the one that the message began with.
        changed: bool,
    },
    /// Written bytes could not be made to survive a loss of power.
    FlushFailed(Denial),
    /// READ data could not be read after the request had been accepted.
    ReadFailed(Denial),
    /// A completion queue had no room.
    CompletionQueueFull {
        /// Its entries.
        capacity: u32,
    },
    /// Something that left no details.
    Unknown,
}
