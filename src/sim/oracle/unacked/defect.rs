//! What can be wrong with a request that nobody acknowledges.

use std::fmt;

use crate::queue::CompletionStatus as Status;

/// A fault that the application put into a request on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnackedDefect {
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
    /// The queue key is not the receiver's.
    QueueKey,
    /// The datagram is longer than a packet.
    TooLong,
    /// The address handle does not exist any more.
    HandleDestroyed,
    /// A local key is unknown.
    LocalKey,
    /// A local range leaves its memory.
    LocalBounds,
}

impl UnackedDefect {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::RemoteKey,
        Self::RemoteStaleKey,
        Self::RemoteBounds,
        Self::RemoteRights,
        Self::RemoteDomain,
        Self::QueueKey,
        Self::TooLong,
        Self::HandleDestroyed,
        Self::LocalKey,
        Self::LocalBounds,
    ];

    /// How the request fails where it was posted. Nothing: it leaves, and its receiver drops it in
    /// silence.
    pub const fn failure(self) -> Option<Status> {
        match self {
            Self::RemoteKey
            | Self::RemoteStaleKey
            | Self::RemoteBounds
            | Self::RemoteRights
            | Self::RemoteDomain
            | Self::QueueKey => None,
            Self::TooLong => Some(Status::LocalLengthError),
            Self::HandleDestroyed => Some(Status::LocalQueuePairOperationError),
            Self::LocalKey | Self::LocalBounds => Some(Status::LocalProtectionError),
        }
    }
}

impl fmt::Display for UnackedDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RemoteKey => "unknown remote key",
            Self::RemoteStaleKey => "remote key no longer valid",
            Self::RemoteBounds => "remote range out of bounds",
            Self::RemoteRights => "remote memory without the right",
            Self::RemoteDomain => "remote memory in another protection domain",
            Self::QueueKey => "queue key of another",
            Self::TooLong => "datagram longer than a packet",
            Self::HandleDestroyed => "address handle destroyed",
            Self::LocalKey => "unknown local key",
            Self::LocalBounds => "local range out of bounds",
        })
    }
}
