//! What links to shared receive queues will do: plain data, as all of a scenario.

use crate::queue::{PathMtu, QueuePairKind};

use super::super::oracle::LinkDefect;
use super::super::scenario::Operation;

/// A shared receive queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedQueuePlan {
    /// Requests of extended reliable connections name it; else it belongs to queue pairs.
    pub is_xrc: bool,
    /// Receives that it holds.
    pub depth: u32,
    /// Bytes of each receive.
    pub capacity: usize,
    /// Below so many posted receives an event comes, and more are posted only then; 0: they are
    /// posted whenever some have completed.
    pub limit: u32,
    /// Number, within the node, of the completion queue for receives.
    pub completion_queue: usize,
}

/// The transport of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Datagrams.
    Ud,
    /// Extended reliable connection.
    Xrc,
}

impl LinkKind {
    /// Kinds of the sending and of the receiving queue pair.
    pub(super) const fn pair(self) -> [QueuePairKind; 2] {
        match self {
            Self::Rc => [QueuePairKind::Rc; 2],
            Self::Uc => [QueuePairKind::Uc; 2],
            Self::Ud => [QueuePairKind::Ud; 2],
            Self::Xrc => [QueuePairKind::XrcInitiator, QueuePairKind::XrcTarget],
        }
    }

    /// Whether requests are acknowledged.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc)
    }
}

/// A request of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRequest {
    /// SEND with immediate data or without; on reliable links also WRITE, READ, fetch and add.
    pub operation: Operation,
    /// Which queue it names (XRC).
    pub queue: usize,
    /// Bytes.
    pub length: usize,
    /// Gives a completion on success.
    pub signaled: bool,
    /// Solicited event.
    pub solicited: bool,
    /// What is wrong with it.
    pub defect: Option<LinkDefect>,
}

impl LinkRequest {
    /// A plain request for queue `queue`.
    pub const fn new(operation: Operation, queue: usize, length: usize) -> Self {
        Self { operation, queue, length, signaled: true, solicited: false, defect: None }
    }
}

/// A way from a node to the shared receive queues of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPlan {
    /// Transport.
    pub kind: LinkKind,
    /// Node that sends.
    pub node: usize,
    /// The queue that its receiver belongs to (all but XRC).
    pub queue: usize,
    /// Largest payload of a packet.
    pub path_mtu: PathMtu,
    /// First PSN.
    pub psn: u32,
    /// Code of the local ACK timeout.
    pub timeout: u8,
    /// Code of the wait that is asked for when no receive is posted.
    pub min_rnr_timer: u8,
    /// Whether the network may stay dead for longer than all retries.
    pub may_exhaust: bool,
    /// Send requests that its queue holds.
    pub depth: u32,
    /// Numbers, within the nodes, of the completion queues for sends and, but for XRC, receives.
    pub completion_queues: [usize; 2],
    /// The receiver goes into error when so many of its receives have completed.
    pub stops_after: Option<u32>,
    /// What it posts, in order.
    pub requests: Vec<LinkRequest>,
}

/// Everything about shared receive queues in a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPlan {
    /// The node that has the queues.
    pub node: usize,
    /// The queues.
    pub queues: Vec<SharedQueuePlan>,
    /// The ways to them.
    pub links: Vec<LinkPlan>,
}

impl SharedPlan {
    /// Queue pairs that a node has for them.
    pub(in super::super) fn pairs_of(&self, node: usize) -> usize {
        let senders = self.links.iter().filter(|link| link.node == node).count();
        senders + if node == self.node { self.links.len() } else { 0 }
    }

    /// How many requests can be outstanding on this node.
    pub(in super::super) fn requests_of(&self, node: usize) -> u32 {
        let senders = self.links.iter().filter(|link| link.node == node);
        let receives: u32 = self.queues.iter().map(|queue| queue.depth).sum();
        senders.map(|link| link.depth).sum::<u32>() + if node == self.node { receives } else { 0 }
    }

    /// Whether some request is wrong, or some receiver stops, on purpose.
    pub(in super::super) fn breaks(&self) -> bool {
        let breaks = |link: &LinkPlan| {
            link.stops_after.is_some() || link.requests.iter().any(|one| one.defect.is_some())
        };
        self.links.iter().any(breaks)
    }
}
