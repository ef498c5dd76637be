//! Queue pair states and kinds.

use std::fmt;

/// State of a queue pair (specification, section 10.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QueuePairState {
    /// Created; nothing can be posted, packets are dropped.
    Reset = 0,
    /// Receives can be posted; packets are dropped.
    Init = 1,
    /// Ready to receive: requests of the peer are served.
    Rtr = 2,
    /// Ready to send: both queues work.
    Rts = 3,
    /// Send queue draining or drained: started messages finish, no new one starts.
    Sqd = 4,
    /// Send queue in error (UC and UD): sends are flushed, receives go on.
    Sqe = 5,
    /// Error: both queues are flushed.
    Error = 6,
}

impl QueuePairState {
    /// All states in the order of their numbers.
    pub const ALL: [Self; 7] =
        [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Error];

    pub(crate) fn from_number(number: u8) -> Self {
        Self::ALL[usize::from(number).min(Self::ALL.len() - 1)]
    }

    /// Whether packets of the peer are served.
    pub const fn receives(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }
}

impl fmt::Display for QueuePairState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Error => "ERR",
        })
    }
}

/// Transport of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueuePairKind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Sending end of an extended reliable connection (XRC INI): it has a send queue only, and each
    /// of its requests names a shared receive queue of the peer.
    XrcInitiator,
    /// Receiving end of an extended reliable connection (XRC TGT): it has no queue of its own, and
    /// serves the XRC shared receive queues of its XRC domain.
    XrcTarget,
}

impl QueuePairKind {
    /// Whether requests are acknowledged, and repeated until they are.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcInitiator | Self::XrcTarget)
    }

    /// Whether queue pairs of this kind carry out send requests.
    pub const fn sends(self) -> bool {
        !matches!(self, Self::XrcTarget)
    }

    /// Whether queue pairs of this kind serve requests of a peer.
    pub const fn serves(self) -> bool {
        !matches!(self, Self::XrcInitiator)
    }
}

impl fmt::Display for QueuePairKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::XrcInitiator => "XRC INI",
            Self::XrcTarget => "XRC TGT",
        })
    }
}
