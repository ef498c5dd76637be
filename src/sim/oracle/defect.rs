//! What can be wrong with a request, and how it may then end.

use std::fmt;

use crate::queue::CompletionStatus as Status;

/// A fault that the application put into a request on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Defect {
    /// The peer never gave out this key.
    RemoteKey,
    /// The peer's key was valid once, and is no longer.
    RemoteStaleKey,
    /// The range leaves the peer's memory.
    RemoteBounds,
    /// The peer's memory was registered without the right that is needed.
    RemoteRights,
    /// The peer's memory lies in another protection domain than the peer's queue pair.
    RemoteDomain,
    /// The peer's queue pair does not allow the operation.
    NotAllowed,
    /// The word of an atomic operation is not aligned.
    Misaligned,
    /// The key that a SEND wants to invalidate is unknown.
    InvalidateKey,
    /// The receive that the message will meet is shorter than the message.
    ReceiveTooSmall,
    /// The receive that the message will meet names a wrong local key.
    ReceiveKey,
    /// A local key is unknown.
    LocalKey,
    /// A local range leaves its memory.
    LocalBounds,
    /// The local memory may not be written, and the operation brings data.
    LocalRights,
    /// The key that a local invalidation names is unknown.
    LocalInvalidateKey,
    /// The range leaves the peer's window, but perhaps not the memory behind it.
    WindowBounds,
    /// The peer's window does not grant the right that is needed.
    WindowRights,
    /// The window was bound over another queue pair.
    WindowOfAnother,
    /// A window cannot be bound like this.
    Binding,
}

impl Defect {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::RemoteKey,
        Self::RemoteStaleKey,
        Self::RemoteBounds,
        Self::RemoteRights,
        Self::RemoteDomain,
        Self::NotAllowed,
        Self::Misaligned,
        Self::InvalidateKey,
        Self::ReceiveTooSmall,
        Self::ReceiveKey,
        Self::LocalKey,
        Self::LocalBounds,
        Self::LocalRights,
        Self::LocalInvalidateKey,
        Self::WindowBounds,
        Self::WindowRights,
        Self::WindowOfAnother,
        Self::Binding,
    ];

    /// The statuses that the send request may end with.
    pub const fn send_statuses(self) -> &'static [Status] {
        match self {
            Self::RemoteKey
            | Self::RemoteStaleKey
            | Self::RemoteBounds
            | Self::RemoteRights
            | Self::RemoteDomain
            | Self::WindowBounds
            | Self::WindowRights
            | Self::WindowOfAnother => &[Status::RemoteAccessError],
            Self::Binding => &[Status::MemoryWindowBindError],
            Self::NotAllowed | Self::Misaligned | Self::ReceiveTooSmall => {
                &[Status::RemoteInvalidRequest]
            }
            Self::InvalidateKey => &[Status::RemoteAccessError, Status::RemoteOperationError],
            Self::ReceiveKey => &[Status::RemoteOperationError],
            Self::LocalKey | Self::LocalBounds | Self::LocalRights => {
                &[Status::LocalProtectionError]
            }
            Self::LocalInvalidateKey => {
                &[Status::LocalProtectionError, Status::LocalQueuePairOperationError]
            }
        }
    }

    /// The statuses that the receive which the message meets may end with.
    pub const fn receive_statuses(self) -> &'static [Status] {
        match self {
            Self::ReceiveTooSmall => &[Status::LocalLengthError],
            Self::ReceiveKey => &[Status::LocalProtectionError],
            Self::InvalidateKey => &[
                Status::LocalAccessError,
                Status::LocalProtectionError,
                Status::LocalQueuePairOperationError,
                Status::WorkRequestFlushed,
            ],
            // A WRITE with immediate may fail the receive that it would have consumed.
            Self::RemoteKey
            | Self::RemoteStaleKey
            | Self::RemoteBounds
            | Self::RemoteRights
            | Self::RemoteDomain
            | Self::WindowBounds
            | Self::WindowRights
            | Self::WindowOfAnother => &[Status::LocalAccessError, Status::WorkRequestFlushed],
            _ => &[Status::WorkRequestFlushed],
        }
    }

    /// Whether the requester itself finds it, so that the peer hears nothing of it.
    pub const fn is_local(self) -> bool {
        matches!(
            self,
            Self::LocalKey
                | Self::LocalBounds
                | Self::LocalRights
                | Self::LocalInvalidateKey
                | Self::Binding
        )
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RemoteKey => "unknown remote key",
            Self::RemoteStaleKey => "remote key no longer valid",
            Self::RemoteBounds => "remote range out of bounds",
            Self::RemoteRights => "remote memory without the right",
            Self::RemoteDomain => "remote memory in another protection domain",
            Self::NotAllowed => "operation that the peer's queue pair does not allow",
            Self::Misaligned => "misaligned atomic",
            Self::InvalidateKey => "unknown key to invalidate",
            Self::ReceiveTooSmall => "receive shorter than the message",
            Self::ReceiveKey => "receive with a wrong local key",
            Self::LocalKey => "unknown local key",
            Self::LocalBounds => "local range out of bounds",
            Self::LocalRights => "local memory may not be written",
            Self::LocalInvalidateKey => "local invalidation of an unknown key",
            Self::WindowBounds => "remote range leaves the memory window",
            Self::WindowRights => "memory window without the right",
            Self::WindowOfAnother => "memory window of another queue pair",
            Self::Binding => "binding of a memory window that cannot be",
        })
    }
}
