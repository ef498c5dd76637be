//! What the oracle objects to.

use std::fmt;

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Each request completes once, in the order of posting.
    Completion,
    /// A request that fits is taken.
    Posting,
    /// Memory has the bytes that completed requests brought, and no others.
    Memory,
    /// A READ brings what memory held while it was under way.
    ReadValue,
    /// Messages fill receives in order, whole.
    Receive,
    /// An atomic operation happens once and brings the old value.
    Atomic,
    /// A request fails only for a reason, with the status of that reason, and all after it too.
    Status,
    /// An armed completion queue notifies.
    Event,
    /// All work ends once the network works.
    Liveness,
    /// No more packets than the losses explain.
    Economy,
    /// A sender waits as long as a receiver that is not ready asks.
    Pause,
    /// A sender that knows how many receives there are sends no more.
    Credits,
    /// A drained send queue rests until it is told to go on.
    Drain,
    /// Asynchronous events come for a reason, and when there is one.
    Notice,
    /// A memory window gives what it was bound to give, as long as it is bound.
    Grant,
    /// The engine's own invariants hold.
    Invariant,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completion => "completions in order, once each",
            Self::Posting => "what fits is taken",
            Self::Memory => "memory as the model's",
            Self::ReadValue => "READ brings a value that memory held",
            Self::Receive => "messages fill receives in order",
            Self::Atomic => "atomics happen once",
            Self::Status => "only allowed statuses",
            Self::Event => "completion events are not lost",
            Self::Liveness => "all work ends",
            Self::Economy => "packets bounded by losses",
            Self::Pause => "a sender waits while the receiver is not ready",
            Self::Credits => "no more messages than receives are known of",
            Self::Drain => "a drained send queue rests",
            Self::Notice => "asynchronous events for a reason",
            Self::Grant => "windows grant what they are bound to",
            Self::Invariant => "engine invariants",
        })
    }
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {text}")]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// What happened.
    pub text: String,
}

impl Violation {
    /// A broken promise with its circumstances.
    pub fn new(rule: Rule, text: String) -> Self {
        Self { rule, text }
    }
}
