//! What a run consists of: a scenario is plain data, and with it everything is decided.

use crate::fault::{FaultPlan, Share};
use crate::queue::{Access, PathMtu};
use crate::time::Instant;
use crate::wire::IdentificationRule;

use super::oracle::Defect;
use super::script::{Script, ScriptedFate};
use super::shared::SharedPlan;
use super::unacked::UnackedPlan;

/// What a planned request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImmediate,
    /// SEND that invalidates a key of the peer.
    SendInvalidate,
    /// WRITE.
    Write,
    /// WRITE with immediate data.
    WriteImmediate,
    /// READ.
    Read,
    /// Atomic compare and swap.
    CompareSwap,
    /// Atomic fetch and add.
    FetchAdd,
    /// Invalidation of an own key.
    LocalInvalidate,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// FLUSH, of a range or of everything.
    Flush,
    /// Binding of the own memory window; if that is bound, its invalidation.
    BindWindow,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Send,
        Self::SendImmediate,
        Self::SendInvalidate,
        Self::Write,
        Self::WriteImmediate,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::LocalInvalidate,
        Self::AtomicWrite,
        Self::Flush,
        Self::BindWindow,
    ];

    /// Whether it consumes a receive of the peer.
    pub const fn is_message(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImmediate | Self::SendInvalidate | Self::WriteImmediate
        )
    }

    /// Whether its message fills the peer's receive.
    pub const fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendImmediate | Self::SendInvalidate)
    }

    /// Whether the peer's answer brings data.
    pub const fn brings_data(self) -> bool {
        matches!(self, Self::Read | Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether an answer of its own finishes it, and not an acknowledgement of what came behind.
    pub const fn is_answered(self) -> bool {
        self.brings_data() || self.carries_itself()
    }

    /// Whether it has no local bytes in memory.
    pub const fn carries_itself(self) -> bool {
        matches!(self, Self::AtomicWrite | Self::Flush)
    }

    /// Whether its place has to be a whole word.
    pub const fn needs_alignment(self) -> bool {
        self.is_atomic() || matches!(self, Self::AtomicWrite)
    }

    /// What the peer's queue pair must allow for it.
    pub const fn needs(self) -> Access {
        match self {
            Self::Write | Self::WriteImmediate | Self::AtomicWrite => Access::REMOTE_WRITE,
            Self::Flush => Access::FLUSH_GLOBAL,
            Self::Read => Access::REMOTE_READ,
            Self::CompareSwap | Self::FetchAdd => Access::REMOTE_ATOMIC,
            Self::Send
            | Self::SendImmediate
            | Self::SendInvalidate
            | Self::LocalInvalidate
            | Self::BindWindow => Access::NONE,
        }
    }

    /// Whether it sends nothing.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::LocalInvalidate | Self::BindWindow)
    }

    /// Whether it is an atomic operation.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }
}

/// A request that will be posted. Places and keys are chosen when it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// What it does.
    pub operation: Operation,
    /// Bytes of the message; 8 for an atomic operation or an ATOMIC WRITE; of a FLUSH, of its range.
    pub length: usize,
    /// Local segments; 0 means inline.
    pub segments: usize,
    /// Segments of the receive that the message meets.
    pub receive_segments: usize,
    /// Bytes that the receive has beyond the message.
    pub receive_slack: usize,
    /// Gives a completion on success.
    pub signaled: bool,
    /// Solicited event.
    pub solicited: bool,
    /// Waits for earlier READs and atomics.
    pub fence: bool,
    /// May overlap other accesses of the peer's memory.
    pub overlap: bool,
    /// A WRITE or READ of memory whose key can be invalidated, or through the peer's window if that
    /// is bound; a SEND that invalidates that window rather than the memory's key.
    pub window: bool,
    /// What is wrong with it.
    pub defect: Option<Defect>,
}

impl Planned {
    /// A plain request that is signaled and has one segment.
    pub const fn new(operation: Operation, length: usize) -> Self {
        Self {
            operation,
            length,
            segments: 1,
            receive_segments: 1,
            receive_slack: 0,
            signaled: true,
            solicited: false,
            fence: false,
            overlap: false,
            window: false,
            defect: None,
        }
    }

    /// The same with something wrong.
    pub const fn defective(self, defect: Defect) -> Self {
        Self { defect: Some(defect), ..self }
    }
}

/// A range of nanoseconds to choose from, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub u64, pub u64);

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndPlan {
    /// Which node it is on.
    pub node: usize,
    /// PSN of its first packet.
    pub psn: u32,
    /// READs and atomics that it has under way at most.
    pub rd_atomic: u8,
    /// What its queue pair allows the peer.
    pub access: Access,
    /// Send requests that its queue holds.
    pub depth: u32,
    /// Receives that it keeps posted.
    pub receive_depth: u32,
    /// If given: receives are posted one by one, so long after one another.
    pub late_receives: Option<Span>,
    /// Numbers, within the node, of the completion queues for sends and receives.
    pub completion_queues: [usize; 2],
    /// What it posts, in order.
    pub requests: Vec<Planned>,
    /// When it drains its send queue, in the order of `after`.
    pub drains: Vec<Drain>,
}

/// A send queue is drained (SQD), rests, and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// When so many requests of the plan are posted.
    pub after: usize,
    /// Waits for the event that tells the end of draining; else the time of rest alone counts.
    pub notify: bool,
    /// Nanoseconds of rest.
    pub rest: u64,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionPlan {
    /// Both ends.
    pub ends: [EndPlan; 2],
    /// Largest payload of a packet.
    pub path_mtu: PathMtu,
    /// Code of the local ACK timeout.
    pub timeout: u8,
    /// Retries after a timeout or sequence error.
    pub retry_count: u8,
    /// Retries when no receive is posted; 7 is without end.
    pub rnr_retry: u8,
    /// Code of the wait that is asked for when no receive is posted.
    pub min_rnr_timer: u8,
    /// Whether packets say that they are ECN-capable.
    pub ecn: bool,
    /// All send requests are signaled, whatever they say.
    pub signal_all: bool,
    /// Whether the network may stay dead for longer than all retries.
    pub may_exhaust_retries: bool,
    /// If given: the second end is ready to receive only, until it hears of the first one, or so
    /// many nanoseconds.
    pub starts_late: Option<u64>,
    /// How long after an error the application lets go of the connection.
    pub teardown: Span,
}

/// How an application learns of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// It looks whenever it runs.
    Polled,
    /// It arms the queue for any completion and looks when it is told.
    AnyEvent,
    /// It arms the queue for solicited ones, and looks from time to time besides.
    SolicitedEvent,
}

/// A machine on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// How the application uses each completion queue.
    pub completion_queues: Vec<Polling>,
    /// Whether its engine tells peers how many receives are posted.
    pub finite_credits: bool,
}

/// What packets meet on their way.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkPlan {
    /// Time on the way.
    pub latency: Span,
    /// Bits per second of each node's outgoing line.
    pub rate: u64,
    /// Packets that take a way round, so that others pass them.
    pub detour: Share,
    /// How much longer the way round is.
    pub detour_time: Span,
    /// From when to when nothing gets through.
    pub outage: Option<(Instant, Instant)>,
    /// Random faults.
    pub faults: FaultPlan,
    /// Fates of the first packets, one by one; random faults then do not apply.
    pub script: Option<Script>,
    /// Whether packets that were sent as a burst may arrive as one.
    pub bursts: bool,
    /// Whether receivers see the IPv4 identification.
    pub sees_identification: bool,
}

impl NetworkPlan {
    /// Whether packets from one node to another never pass each other.
    pub fn keeps_order(&self) -> bool {
        let faults = &self.faults;
        let some_only = faults.qp.is_some() || faults.opcode.is_some() || faults.rate.is_some();
        let delays = some_only || self.has_scripted(ScriptedFate::Delay);
        let passes = faults.reorder != Share::NONE || self.detour != Share::NONE || delays;
        !passes && !self.repeats()
    }

    /// Whether a packet may arrive more than once.
    pub fn repeats(&self) -> bool {
        self.faults.duplicate != Share::NONE || self.has_scripted(ScriptedFate::Duplicate)
    }

    fn has_scripted(&self, fate: ScriptedFate) -> bool {
        let has = |script: &Script| script.rest == fate || script.fates.contains(&fate);
        self.script.as_ref().is_some_and(has)
    }
}

/// Everything of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What all random choices follow from.
    pub seed: u64,
    /// A word for people: which kind of scenario.
    pub name: String,
    /// The machines.
    pub nodes: Vec<NodePlan>,
    /// The connections.
    pub connections: Vec<ConnectionPlan>,
    /// Queue pairs without acknowledgements.
    pub unacked: Vec<UnackedPlan>,
    /// Shared receive queues of a node, and the ways to them.
    pub shared: Option<SharedPlan>,
    /// The network.
    pub network: NetworkPlan,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// What becomes of the IPv4 identification when a packet is sent.
    pub identification: IdentificationRule,
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    /// The most packets in a burst.
    pub max_segments: usize,
    /// When faults end, and the second phase begins, in which everything must end.
    pub faults_end: Instant,
    /// Packets that an engine may receive, and send, in a turn.
    pub turn_budget: usize,
    /// Time from a completion, or a post, until the application runs again.
    pub application_delay: Span,
    /// Time from a post to the engine's turn.
    pub doorbell_delay: Span,
    /// The most requests that an end posts when its application runs.
    pub posts_at_once: u64,
    /// Bytes of each end's zones: sources, receives, landings.
    pub zones: [usize; 3],
    /// Bytes that all peers of a node may write and read.
    pub target: usize,
}

impl Scenario {
    /// Whether nothing on the network can make a packet be sent twice.
    pub fn is_clean(&self) -> bool {
        self.network.faults.is_empty()
            && self.network.detour == Share::NONE
            && self.network.outage.is_none()
            && self.network.script.is_none()
    }

    /// Whether a request is wrong on purpose.
    pub fn has_defects(&self) -> bool {
        let ends = self.connections.iter().flat_map(|connection| &connection.ends);
        let in_links = self.shared.as_ref().is_some_and(SharedPlan::breaks);
        in_links || ends.flat_map(|end| &end.requests).any(|request| request.defect.is_some())
    }

    /// Whether receives may be posted too late.
    pub fn has_late_receives(&self) -> bool {
        let ends = self.connections.iter().flat_map(|connection| &connection.ends);
        ends.into_iter().any(|end| end.late_receives.is_some())
    }
}
