//! What ICMP has told of addresses that cannot be reached.

use std::fmt;

use crate::time::{Instant, SECOND};

/// Notices that are farther apart belong to different troubles.
const PAUSE: u64 = 60 * SECOND;

/// What cannot be reached (ICMP type 3, RFC 792 and RFC 1812; ICMPv6 type 1, RFC 4443).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreachableKind {
    /// A router has no way to the network.
    Network,
    /// A router or this host found nobody at the address.
    Host,
    /// The host is there, and nobody has the UDP port.
    Port,
    /// A filter forbids it and says so.
    Prohibited,
}

impl fmt::Display for UnreachableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "network unreachable",
            Self::Host => "host unreachable",
            Self::Port => "port unreachable",
            Self::Prohibited => "communication prohibited",
        })
    }
}

/// Notices about one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// What the last one said.
    pub kind: UnreachableKind,
    /// How many there were, as far as the kernel tells: it sends, and hosts send, only so many a
    /// second.
    pub times: u32,
}

/// The notices about the address of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notices {
    last: Instant,
    heard: Unreachable,
}

impl Notices {
    /// One more notice.
    pub(crate) fn note(before: Option<Self>, now: Instant, kind: UnreachableKind) -> Self {
        let times = match before {
            Some(Self { last, heard }) if now.since(last) < PAUSE => heard.times.saturating_add(1),
            _ => 1,
        };
        Self { last: now, heard: Unreachable { kind, times } }
    }

    /// What was heard, if the last notice is not older than `since`.
    pub(crate) fn since(&self, since: Instant) -> Option<Unreachable> {
        (self.last >= since).then_some(self.heard)
    }
}
