//! What queue pairs without acknowledgements will do: plain data, as all of a scenario.

use crate::queue::{PathMtu, QueuePairKind};

use super::super::oracle::UnackedDefect;
use super::super::scenario::{Operation, Span};

/// A send request that will be posted. Its places are chosen when it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnackedRequest {
    /// SEND or WRITE, with immediate data or without; a datagram queue pair has SENDs only.
    pub operation: Operation,
    /// Which of the plan's peers it is for.
    pub peer: usize,
    /// It is for the group and not for a peer (datagrams).
    pub to_group: bool,
    /// Bytes of the message.
    pub length: usize,
    /// Local segments; 0 means inline.
    pub segments: usize,
    /// Gives a completion on success.
    pub signaled: bool,
    /// Solicited event.
    pub solicited: bool,
    /// The queue pair's own queue key is asked for by the top bit (datagrams).
    pub own_key: bool,
    /// What is wrong with it.
    pub defect: Option<UnackedDefect>,
}

impl UnackedRequest {
    /// A plain request that is signaled and has one segment.
    pub const fn new(operation: Operation, length: usize) -> Self {
        Self {
            operation,
            peer: 0,
            to_group: false,
            length,
            segments: 1,
            signaled: true,
            solicited: false,
            own_key: false,
            defect: None,
        }
    }
}

/// A receive that will be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedReceive {
    /// Bytes.
    pub capacity: usize,
    /// Segments.
    pub segments: usize,
    /// Its local key is wrong: only a message without bytes can consume it.
    pub spoiled: bool,
}

/// A queue pair without acknowledgements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnackedPlan {
    /// UC or UD.
    pub kind: QueuePairKind,
    /// Which node it is on.
    pub node: usize,
    /// Numbers of the scenario's plans that it sends to: one for an unreliable connection, and that
    /// one names it in turn.
    pub peers: Vec<usize>,
    /// It is attached to the group (datagrams).
    pub joins: bool,
    /// Largest payload of a packet of an unreliable connection.
    pub path_mtu: PathMtu,
    /// PSN of its first packet.
    pub psn: u32,
    /// Whether packets say that they are ECN-capable.
    pub ecn: bool,
    /// Send requests that its queue holds.
    pub depth: u32,
    /// All send requests are signaled, whatever they say.
    pub signal_all: bool,
    /// Numbers, within the node, of the completion queues for sends and receives.
    pub completion_queues: [usize; 2],
    /// Receives that it keeps posted.
    pub receive_depth: u32,
    /// If given: receives are posted one by one, so long after one another.
    pub late_receives: Option<Span>,
    /// All receives are posted before anything is sent, enough for everything.
    pub is_ample: bool,
    /// What it posts to its receive queue, in order.
    pub receives: Vec<PlannedReceive>,
    /// What it posts to its send queue, in order.
    pub requests: Vec<UnackedRequest>,
    /// How long after an error the application brings the send queue back.
    pub resume: Span,
}

impl UnackedPlan {
    /// Whether it is a datagram queue pair.
    pub fn is_datagram(&self) -> bool {
        self.kind == QueuePairKind::Ud
    }
}
