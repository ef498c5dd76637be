//! What makes a receive queue a shared one, and a shared one an XRC one.
//!
//! ```text
//!   shared receive queue ── protection domain: the keys of its receives
//!     └─ of kind XRC ────── number (requests name it), XRC domain (whose targets may reach it),
//!                           completion queue (an XRC target has none)
//! ```

use super::CompletionQueue;
use super::sync::Arc;
use crate::memory::DomainId;
use crate::wire::Srqn;

/// An XRC domain of a device: XRC targets reach the XRC shared receive queues of their own one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XrcDomainId(pub(crate) u32);

/// What a shared receive queue has beside its receives.
pub(crate) struct Sharing {
    /// Where the keys of its receives count; with XRC also those of the requests that name it.
    pub(crate) domain: DomainId,
    pub(crate) xrc: Option<XrcPart>,
}

/// What an XRC shared receive queue has beside that (annex A14 of the specification).
pub(crate) struct XrcPart {
    pub(crate) number: Srqn,
    pub(crate) domain: XrcDomainId,
    pub(crate) completions: Arc<CompletionQueue>,
}

/// Where a completion comes from, so that polling it frees an entry of the right work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A queue of the queue pair that the completion names.
    Pair,
    /// An XRC shared receive queue: its completions name the targets that took from it.
    Shared(Srqn),
}

impl Origin {
    /// As half of a word in a completion queue: no shared receive queue has number 0.
    pub(super) const fn to_word(self) -> u32 {
        match self {
            Self::Pair => 0,
            Self::Shared(number) => number.value(),
        }
    }

    pub(super) const fn from_word(word: u32) -> Self {
        if word == 0 { Self::Pair } else { Self::Shared(Srqn::new(word)) }
    }
}
