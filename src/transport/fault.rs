//! Faults of an RC request at the responder, and what each entails: one table.

use crate::queue::CompletionStatus;
use crate::wire::NakCode;

/// What is wrong with a request of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The receive buffer is too small for the message.
    ReceiveTooSmall,
    /// The receive's own keys do not allow writing there.
    ReceiveProtection,
    /// The peer's key, its domain, bounds or rights.
    RemoteAccess,
    /// A WRITE with immediate whose key failed after its receive was claimed.
    RemoteAccessWithReceive,
    /// The queue pair does not allow the operation.
    NotAllowed,
    /// An opcode that is reserved or that we do not support.
    UnsupportedOpcode,
    /// FIRST inside a message, MIDDLE outside, or of the wrong kind.
    OpcodeSequence,
    /// FIRST or MIDDLE not of path MTU, LAST empty or over it, ONLY over it.
    PacketLength,
    /// The packets' sum is not the DMA length, or that is over 2^31.
    MessageLength,
    /// An atomic whose address is not a multiple of 8.
    Misaligned,
    /// More READs and atomics than max_dest_rd_atomic.
    TooManyReads,
    /// The XRC extended header names no shared receive queue, or another one than the message began
    /// with.
    NoSuchSharedQueue,
    /// The shared receive queue that it names is not in the queue pair's XRC domain.
    XrcDomain,
    /// READ data could not be read after the request had been accepted.
    ReadFailed,
    /// Written bytes could not be made to survive a loss of power.
    FlushFailed,
}

/// The event at the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultEvent {
    None,
    RequestError,
    AccessError,
    InvalidXrceth,
    XrcDomainViolation,
    /// The fault is on our side.
    Fatal,
}

impl Fault {
    /// The answer; after it our queue pair is in error.
    pub(crate) const fn nak(self) -> NakCode {
        match self {
            Self::ReceiveTooSmall
            | Self::NotAllowed
            | Self::UnsupportedOpcode
            | Self::OpcodeSequence
            | Self::PacketLength
            | Self::MessageLength
            | Self::Misaligned
            | Self::TooManyReads => NakCode::InvalidRequest,
            // That XRC violations count as such of access agrees with the answer that was proposed
            // for rxe (linux-rdma, July 2021, "Enable receiving XRC packets") and with the event
            // that Linux makes of them for hns hardware (hns_roce_qp.c: IB_EVENT_QP_ACCESS_ERR).
            Self::RemoteAccess
            | Self::RemoteAccessWithReceive
            | Self::NoSuchSharedQueue
            | Self::XrcDomain => NakCode::RemoteAccessError,
            Self::ReceiveProtection | Self::ReadFailed | Self::FlushFailed => {
                NakCode::RemoteOperationalError
            }
        }
    }

    /// How the receive completes that the message had claimed.
    pub(crate) const fn receive_status(self) -> Option<CompletionStatus> {
        match self {
            Self::ReceiveTooSmall => Some(CompletionStatus::LocalLengthError),
            Self::ReceiveProtection => Some(CompletionStatus::LocalProtectionError),
            Self::RemoteAccessWithReceive => Some(CompletionStatus::LocalAccessError),
            _ => None,
        }
    }

    /// What the application is told where no completion tells it.
    pub(crate) const fn event(self) -> FaultEvent {
        match self {
            Self::ReceiveTooSmall | Self::ReceiveProtection | Self::RemoteAccessWithReceive => {
                FaultEvent::None
            }
            Self::RemoteAccess => FaultEvent::AccessError,
            Self::NoSuchSharedQueue => FaultEvent::InvalidXrceth,
            Self::XrcDomain => FaultEvent::XrcDomainViolation,
            Self::ReadFailed | Self::FlushFailed => FaultEvent::Fatal,
            _ => FaultEvent::RequestError,
        }
    }
}
