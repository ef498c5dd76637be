//! What the oracle is told: requests in terms of bytes and places, without keys or packets.

use std::fmt;
use std::sync::Arc;

use crate::queue::{Attachment, CompletionKind};

use super::Defect;

/// One of the memories that the oracle watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryId(pub usize);

/// One queue pair during one connection. A queue pair that is connected anew gets a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub usize);

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue pair #{}", self.0)
    }
}

/// Some bytes of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which memory.
    pub memory: MemoryId,
    /// Offset of the first byte.
    pub offset: usize,
    /// Bytes.
    pub length: usize,
}

/// What an atomic operation does to its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds, wrapping.
    Add(u64),
    /// Replaces if equal.
    CompareSwap {
        /// The value that must be there.
        compare: u64,
        /// The value to put there.
        swap: u64,
    },
}

impl Change {
    /// The word's value afterwards.
    pub fn apply(self, value: u64) -> u64 {
        match self {
            Self::Add(add) => value.wrapping_add(add),
            Self::CompareSwap { compare, swap } if value == compare => swap,
            Self::CompareSwap { .. } => value,
        }
    }
}

/// What a send request does beside taking or bringing local bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fills the peer's next receive.
    Send,
    /// Writes the peer's memory; nowhere if the request cannot reach it.
    Write(Option<Place>),
    /// Reads the peer's memory.
    Read(Option<Place>),
    /// Changes a word of the peer.
    Atomic(Option<Place>, Change),
    /// Completes when the WRITEs before it are in the peer's memory, as they have to be anyway when
    /// they complete.
    Flush,
    /// Changes keys of our own.
    Local,
}

/// Local bytes of a send request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// Registered memory, in order. Of a request whose keys are wrong: what lies before the first
    /// wrong one.
    Places(Vec<Place>),
    /// The same, and the bytes that the application has just stored there.
    Stored(Vec<Place>, Arc<Vec<u8>>),
    /// Bytes taken over when the request was posted.
    Inline(Vec<u8>),
}

/// A send request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendModel {
    /// The application's number.
    pub id: u64,
    /// What it does.
    pub action: Action,
    /// How its completion names it.
    pub kind: CompletionKind,
    /// What comes along with the message that it makes, if it consumes a receive.
    pub message: Option<Attachment>,
    /// A success gives a completion.
    pub signaled: bool,
    /// Waits for earlier READs and atomics.
    pub fence: bool,
    /// The peer's completion counts as solicited.
    pub solicited: bool,
    /// Local bytes.
    pub local: Local,
    /// Bytes that the whole message has, including those that cannot be reached.
    pub length: usize,
    /// What is wrong with it.
    pub defect: Option<Defect>,
}

/// A receive request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveModel {
    /// The application's number.
    pub id: u64,
    /// Where the message goes, in order.
    pub places: Vec<Place>,
    /// What is wrong with it.
    pub defect: Option<Defect>,
}

/// What a connection's end may legally suffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// The network may stay dead for longer than all retries.
    pub retry_exhaustion: bool,
    /// The peer may post its receives later than all "receiver not ready" retries.
    pub receiver_not_ready_exhaustion: bool,
}
