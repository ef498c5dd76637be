//! Asynchronous events, and the states of a queue pair that they are about.

use std::fmt;

use crate::queue::CompletionStatus as Status;

use super::queue::PendingSend;
use super::{Defect, Oracle, QueueId, Rule, Violation};

/// What an application is told beside completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// The peer was heard before the queue pair was ready to send.
    Established,
    /// The peer's request was invalid.
    RequestError,
    /// The peer's request violated memory rights.
    AccessError,
    /// Everything that had been started is finished.
    Drained,
    /// The queue pair failed for a reason of its own.
    Fatal,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Established => "communication established",
            Self::RequestError => "request error",
            Self::AccessError => "access error",
            Self::Drained => "send queue drained",
            Self::Fatal => "fatal error",
        })
    }
}

/// What the application has asked of a queue pair and was told of it.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// It is ready to receive and not yet to send.
    only_receives: bool,
    is_established: bool,
    /// Asked to drain, and whether it shall say when it has.
    drain: Option<bool>,
    is_drained: bool,
    /// Told of a peer's wrong request.
    error: Option<Notice>,
}

impl Oracle {
    /// The queue pair is ready to receive, and not yet to send.
    pub fn only_receives(&mut self, queue: QueueId) {
        self.queues[queue.0].life.only_receives = true;
    }

    /// The queue pair is ready to send.
    pub fn may_send(&mut self, queue: QueueId) {
        self.queues[queue.0].life.only_receives = false;
    }

    /// The application asked the send queue to drain; `notify`: and to say when it has.
    pub fn drain(&mut self, queue: QueueId, notify: bool) {
        let life = &mut self.queues[queue.0].life;
        (life.drain, life.is_drained) = (Some(notify), false);
    }

    /// The application lets the send queue go on.
    pub fn resume(&mut self, queue: QueueId) {
        let life = &mut self.queues[queue.0].life;
        (life.drain, life.is_drained) = (None, false);
    }

    /// The application was told this; of the end of draining, after it had polled all completions.
    pub fn notice(&mut self, queue: QueueId, notice: Notice) -> Result<(), Violation> {
        let peer = self.queues[queue.0].peer;
        let explains = |defect: &Defect| defect.notice() == Some(notice);
        let is_explained = self.queues[peer.0].posted_defects.iter().any(explains);
        let life = &mut self.queues[queue.0].life;
        let is_right = match notice {
            Notice::Established => {
                life.only_receives && !std::mem::replace(&mut life.is_established, true)
            }
            Notice::RequestError | Notice::AccessError => {
                is_explained && life.error.replace(notice).is_none()
            }
            Notice::Drained => {
                life.drain == Some(true) && !std::mem::replace(&mut life.is_drained, true)
            }
            Notice::Fatal => false,
        };
        if is_right {
            return Ok(());
        }
        let text = format!("{queue}: \"{notice}\" for no reason, or once more");
        Err(Violation::new(Rule::Notice, text))
    }

    /// After the end of draining nothing completes until the queue goes on.
    pub(super) fn check_rest(&self, queue: QueueId, request: u64) -> Result<(), Violation> {
        if !self.queues[queue.0].life.is_drained {
            return Ok(());
        }
        let text = format!("{queue}: request {request} succeeded after the send queue was drained");
        Err(Violation::new(Rule::Drain, text))
    }

    /// Whoever receives before it may send has been told that the peer is there.
    pub(super) fn check_established(&self, queue: QueueId) -> Result<(), Violation> {
        let life = &self.queues[queue.0].life;
        if !life.only_receives || life.is_established {
            return Ok(());
        }
        let text = format!("{queue}: a message arrived, but \"{}\" did not", Notice::Established);
        Err(Violation::new(Rule::Notice, text))
    }

    /// A request that the peer refused, and that consumes no receive which tells of it, was told to
    /// the peer's application.
    pub(super) fn check_told(
        &self,
        queue: QueueId,
        request: &PendingSend,
        status: Status,
    ) -> Result<(), Violation> {
        let refused = matches!(status, Status::RemoteAccessError | Status::RemoteInvalidRequest);
        let expected = request.defect.and_then(Defect::notice).filter(|_| refused);
        let Some(expected) = expected.filter(|_| request.message.is_none()) else { return Ok(()) };
        let peer = self.queues[queue.0].peer;
        if self.queues[peer.0].life.error == Some(expected) {
            return Ok(());
        }
        let text = format!(
            "{peer}: \"{expected}\" did not come, though request {} of the peer was refused",
            request.id
        );
        Err(Violation::new(Rule::Notice, text))
    }
}

impl Defect {
    /// What the peer's application is told, unless a receive tells it.
    pub const fn notice(self) -> Option<Notice> {
        match self {
            Self::RemoteKey
            | Self::RemoteStaleKey
            | Self::RemoteBounds
            | Self::RemoteRights
            | Self::RemoteDomain
            | Self::WindowBounds
            | Self::WindowRights
            | Self::WindowOfAnother
            | Self::InvalidateKey => Some(Notice::AccessError),
            Self::NotAllowed | Self::Misaligned => Some(Notice::RequestError),
            _ => None,
        }
    }
}
