//! Errors of the verbs calls.

use std::net::IpAddr;
use std::time::Duration;

use crate::engine::ControlError;
use crate::host::MappingError;
use crate::link::JoinError;
use crate::queue::{Overrun, PostError};
use crate::software::{AttachError, Forked, OpenError};

/// Why a call failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The device could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device refused a control call.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A completion queue overran.
    #[error(transparent)]
    Overrun(#[from] Overrun),
    /// Nothing completed in time.
    #[error("no completion within {waited:?}")]
    NoCompletion {
        /// How long was waited.
        waited: Duration,
    },
    /// The device has no such address.
    #[error(
        "GID index {index} does not exist: the device has {count}, counted from 0; `uroce devices` lists them"
    )]
    NoSuchGid {
        /// What was asked for.
        index: u16,
        /// How many there are.
        count: usize,
    },
    /// The sender of a datagram cannot be told.
    #[error(
        "these 40 bytes hold no IPv4 or IPv6 header: they must be the first of a receive that a datagram queue pair completed, as they were written"
    )]
    NoNetworkHeader,
    /// The sender of a datagram sent it to another host.
    #[error(
        "the datagram was sent to {destination}, which is no address of this device: an answer has to leave from there"
    )]
    SentElsewhere {
        /// To whom.
        destination: IpAddr,
    },
    /// Foreign memory cannot be registered.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The file that stands for an XRC domain cannot be looked at.
    #[error("the file of the XRC domain cannot be looked at: {0}")]
    XrcFile(#[source] std::io::Error),
    /// A completion channel could not be made.
    #[error("no completion channel: {0}; a channel needs one free file descriptor")]
    Channel(#[source] std::io::Error),
    /// A completion queue has one completion channel at most.
    #[error("the completion queue has a completion channel already, with which it stays")]
    HasChannel,
    /// A window of type 2 is bound by posting what [`MemoryWindow::bind`](super::MemoryWindow::bind)
    /// makes.
    #[error("only a memory window of type 1 is bound by this call: post a bind request instead")]
    WindowKind,
    /// A work request was not taken.
    #[error(transparent)]
    Post(#[from] PostError),
    /// There is not that much memory.
    #[error("{length} bytes of memory cannot be allocated: ask for less")]
    OutOfMemory {
        /// Bytes asked for.
        length: usize,
    },
    /// The device belongs to another process.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// A multicast group could not be joined on the interface.
    #[error(transparent)]
    Join(#[from] JoinError),
}

impl From<crate::engine::ModifyError> for VerbsError {
    fn from(error: crate::engine::ModifyError) -> Self {
        Self::Control(error.into())
    }
}

impl From<AttachError> for VerbsError {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::Control(error) => Self::Control(error),
            AttachError::Join(error) => Self::Join(error),
            AttachError::Forked(error) => Self::Forked(error),
        }
    }
}
