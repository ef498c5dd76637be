//! What a flight recorder records.

use std::fmt;

use crate::queue::{CompletionStatus, QueuePairState};
use crate::time::Instant;
use crate::transport::counters::Counter;
use crate::wire::{Message, Psn, Syndrome};

/// What a packet is for, whichever part of its message it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum PacketKind {
    /// A part of a SEND.
    Send = 0,
    /// A part of an RDMA WRITE.
    Write = 1,
    /// An RDMA READ request; it takes the PSNs of all its responses.
    ReadRequest = 2,
    /// Compare and swap.
    CompareSwap = 3,
    /// Fetch and add.
    FetchAdd = 4,
    /// ATOMIC WRITE.
    AtomicWrite = 5,
    /// FLUSH.
    Flush = 6,
    /// A part of an RDMA READ response.
    ReadResponse = 7,
    /// The answer to an atomic.
    AtomicResponse = 8,
    /// ACK, NAK or RNR NAK.
    Acknowledge = 9,
    /// Everything else.
    Other = 10,
}

impl PacketKind {
    const ALL: [Self; 11] = [
        Self::Send,
        Self::Write,
        Self::ReadRequest,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::AtomicWrite,
        Self::Flush,
        Self::ReadResponse,
        Self::AtomicResponse,
        Self::Acknowledge,
        Self::Other,
    ];

    /// What a message's packets are for.
    pub const fn of(message: &Message) -> Self {
        match message {
            Message::SendFirst
            | Message::SendMiddle
            | Message::SendLast(_)
            | Message::SendOnly(_) => Self::Send,
            Message::WriteFirst(_)
            | Message::WriteMiddle
            | Message::WriteLast(_)
            | Message::WriteOnly(..) => Self::Write,
            Message::ReadRequest(_) => Self::ReadRequest,
            Message::CompareSwap(_) => Self::CompareSwap,
            Message::FetchAdd(_) => Self::FetchAdd,
            Message::AtomicWrite(_) => Self::AtomicWrite,
            Message::Flush(..) => Self::Flush,
            Message::ReadResponseFirst(_)
            | Message::ReadResponseMiddle
            | Message::ReadResponseLast(_)
            | Message::ReadResponseOnly(_) => Self::ReadResponse,
            Message::AtomicAcknowledge(..) => Self::AtomicResponse,
            Message::Acknowledge(_) => Self::Acknowledge,
            Message::Resync | Message::CongestionNotification(_) => Self::Other,
        }
    }

    pub(super) fn from_number(number: u8) -> Self {
        Self::ALL[usize::from(number).min(Self::ALL.len() - 1)]
    }

    /// The name that the specification has for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::Write => "RDMA WRITE",
            Self::ReadRequest => "RDMA READ request",
            Self::CompareSwap => "CMP&SWAP",
            Self::FetchAdd => "FETCH&ADD",
            Self::AtomicWrite => "ATOMIC WRITE",
            Self::Flush => "FLUSH",
            Self::ReadResponse => "RDMA READ response",
            Self::AtomicResponse => "ATOMIC response",
            Self::Acknowledge => "ACK",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for PacketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which of the requester's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TimerKind {
    /// The probe below the local ACK timeout: one packet asks again, and no retry is used up.
    Probe = 0,
    /// The local ACK timeout, which uses up a retry.
    AckTimeout = 1,
    /// The pause that a receiver asked for which was not ready.
    NotReady = 2,
}

impl TimerKind {
    pub(super) const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Probe,
            1 => Self::AckTimeout,
            _ => Self::NotReady,
        }
    }
}

/// One thing that happened, or several of a kind in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryEvent {
    /// Packets were sent for the first time.
    Sent {
        /// What for.
        kind: PacketKind,
        /// First PSN.
        first: Psn,
        /// Last PSN.
        last: Psn,
    },
    /// Packets were sent that had been sent before.
    SentAgain {
        /// What for.
        kind: PacketKind,
        /// First PSN.
        first: Psn,
        /// Last PSN.
        last: Psn,
    },
    /// Packets came that this queue pair looked at.
    Received {
        /// What for.
        kind: PacketKind,
        /// First PSN.
        first: Psn,
        /// Last PSN.
        last: Psn,
    },
    /// The peer answered with NAK or RNR NAK.
    ReceivedNak {
        /// Which.
        syndrome: Syndrome,
        /// At which PSN.
        psn: Psn,
    },
    /// We answered with NAK or RNR NAK.
    SentNak {
        /// Which.
        syndrome: Syndrome,
        /// At which PSN.
        psn: Psn,
    },
    /// A packet was dropped or ignored.
    Dropped {
        /// Why.
        reason: Counter,
        /// Its PSN.
        psn: Psn,
    },
    /// A timer has run out.
    TimerExpired {
        /// Which.
        timer: TimerKind,
        /// How long it ran, in microseconds; `u32::MAX` stands for everything above.
        microseconds: u32,
        /// The oldest unacknowledged PSN.
        oldest: Psn,
    },
    /// The queue pair went from one state to another.
    StateChanged {
        /// From.
        from: QueuePairState,
        /// To.
        to: QueuePairState,
    },
    /// Work requests completed with an error.
    Completed {
        /// Which.
        status: CompletionStatus,
        /// The application's number of the last of them.
        id: u64,
    },
    /// The network asked to send less (CNP).
    CongestionNotified,
}

/// An event with its time and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it happened first.
    pub first: Instant,
    /// When it happened last, to about a microsecond.
    pub last: Instant,
    /// How often; 65535 stands for everything above.
    pub count: u16,
    /// What.
    pub event: HistoryEvent,
}

impl HistoryEvent {
    pub(super) const SENT: u8 = 1;
    pub(super) const SENT_AGAIN: u8 = 2;
    pub(super) const RECEIVED: u8 = 3;
    pub(super) const RECEIVED_NAK: u8 = 4;
    pub(super) const SENT_NAK: u8 = 5;
    pub(super) const DROPPED: u8 = 6;
    pub(super) const TIMER: u8 = 7;
    pub(super) const STATE: u8 = 8;
    pub(super) const COMPLETED: u8 = 9;
    pub(super) const CONGESTION: u8 = 10;
}
