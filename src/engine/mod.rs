//! One device's worth of RoCE, without a link: plain data that is given turns.
//!
//! ```text
//!   control calls ─▶ ┌────────────── Engine ──────────────┐ ◀─ doorbells
//!                    │ queue pairs   keys   paths         │
//!   bursts in ─────▶ │ ready list    held   deadlines     │ ─▶ bursts out
//!                    └──────────── counters, effects ─────┘
//! ```
//!
//! The engine has no lock, no clock and no thread. `software` puts it behind a lock and gives it
//! turns when something happens; the simulator gives it the same turns in virtual time.

mod congestion;
mod control;
mod data;
mod deadlines;
mod groups;
mod limits;
mod port;
mod regions;
mod senders;
mod xrc;

use std::collections::HashSet;
use std::net::IpAddr;

use rustc_hash::FxHashMap;

use crate::memory::{AccessError, DomainId, KeyTable, RegisterError};
use crate::queue::sync::Arc;
use crate::queue::{
    CompletionQueue, Doorbells, QueueCapacities, QueuePairAttributes, QueuePairKind, XrcDomainId,
};
use crate::rng::Rng;
use crate::time::Instant;
use crate::transport::{
    AddressHandles, NotificationPoint, PairCounters, PathId, PathTable, QueuePair, ReadyList,
    Recorder, SharedQueues,
};
use crate::wire::{Lkey, Qpn, Rkey};

pub use crate::memory::{Denial, Grant};
pub use crate::transport::{
    AsyncEvent, AsyncEventKind, AttributeList, Cause, CongestionError, CongestionOptions, Counter,
    Counters, Dropped, Effects, Ends, EventSubject, Failure, FlowRate, FlushCause, Flushed,
    History, HistoryEvent, MessagePart, ModifyError, NotReady, PacketKind, Record, Refused,
    TimerKind, Unanswered, Unreachable, UnreachableKind, WrongResponse,
};
pub use crate::wire::IdentificationRule;
pub use data::TurnReport;
pub use groups::GroupError;
pub use limits::{EngineOptions, Limits};
pub use port::{Port, PortCapabilities, SourcePorts};
pub use regions::Translation;
pub use xrc::{XrcFile, XrcOpen, XrcQueueOptions};

pub(crate) use deadlines::Deadlines;
use groups::GroupTable;
use xrc::XrcDomains;

/// Keys of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryKeys {
    /// For our own work requests.
    pub local: Lkey,
    /// For a peer.
    pub remote: Rkey,
}

/// What a queue pair is created with.
#[derive(Clone)]
pub struct QueuePairOptions {
    /// Transport.
    pub kind: QueuePairKind,
    /// What it may touch.
    pub domain: DomainId,
    /// Where completions of sends go.
    pub send_completions: Arc<CompletionQueue>,
    /// Where completions of receives go.
    pub receive_completions: Arc<CompletionQueue>,
    /// Sizes, rounded up to powers of two.
    pub capacities: QueueCapacities,
    /// Every send gives a completion, whether it asks or not.
    pub signal_all: bool,
}

/// What a queue pair is at the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueuePairStatus {
    /// State, and the attributes that were set, none in RESET. The PSNs are those of the next packet
    /// that will be sent for the first time, and of the next one that is expected (UD expects none).
    pub attributes: QueuePairAttributes,
    /// Sizes as they are. Those of receives are 0 if they come from a shared queue.
    pub capacities: QueueCapacities,
    /// Transport.
    pub kind: QueuePairKind,
    /// Protection domain; [`DomainId::NONE`] for an XRC TGT queue pair, which has none.
    pub domain: DomainId,
    /// XRC domain of an XRC TGT queue pair; others have none.
    pub xrc_domain: Option<XrcDomainId>,
    /// Whether every send gives a completion.
    pub signal_all: bool,
    /// Whether messages are still under way in SQD; the event for the end of draining comes when
    /// this ends.
    pub is_draining: bool,
}

/// Why a control call was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// A limit of the device.
    #[error("the device's limit of {limit} {what} is reached: destroy some first")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How many there can be.
        limit: u32,
    },
    /// A size out of range.
    #[error("{value} {what} asked for; possible are {least} to {most}")]
    Range {
        /// Of what.
        what: &'static str,
        /// What was asked for.
        value: u32,
        /// The least.
        least: u32,
        /// The most.
        most: u32,
    },
    /// The protection domain is not of this device, or was released.
    #[error("there is no such protection domain on this device")]
    NoSuchDomain,
    /// The protection domain is in use.
    #[error(
        "the protection domain is in use by {regions} memory regions, {windows} memory windows, \
         {pairs} queue pairs, {queues} shared receive queues and {handles} address handles: end \
         them first"
    )]
    DomainBusy {
        /// Memory regions in it.
        regions: usize,
        /// Memory windows in it.
        windows: usize,
        /// Queue pairs in it.
        pairs: usize,
        /// Shared receive queues in it.
        queues: usize,
        /// Address handles in it.
        handles: usize,
    },
    /// No memory has this key.
    #[error("no memory is registered under key {0}")]
    NoSuchKey(Lkey),
    /// Memory windows are bound to the region.
    #[error(
        "{windows} memory windows are bound to the region: invalidate, unbind or deallocate them \
         first"
    )]
    RegionBusy {
        /// How many.
        windows: u32,
    },
    /// The memory window was deallocated, or is of another device.
    #[error("there is no such memory window on this device")]
    NoSuchWindow,
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A part of memory that is not inside it.
    #[error(transparent)]
    Part(#[from] AccessError),
    /// The completion queue is not of this device, or was destroyed.
    #[error("there is no such completion queue on this device")]
    NoSuchQueue,
    /// The completion queue is in use.
    #[error(
        "the completion queue is in use by {users} queue pairs and XRC shared receive queues: \
         destroy them first"
    )]
    CompletionQueueBusy {
        /// Queue pairs and XRC shared receive queues that use it.
        users: usize,
    },
    /// The shared receive queue is not of this device, or was destroyed.
    #[error("there is no such shared receive queue on this device")]
    NoSuchSharedQueue,
    /// The shared receive queue is in use.
    #[error("the shared receive queue is in use by {users} queue pairs: destroy them first")]
    SharedQueueBusy {
        /// Queue pairs that use it.
        users: usize,
    },
    /// An XRC shared receive queue belongs to no queue pair.
    #[error(
        "queue pairs take no receives from an XRC shared receive queue of their own accord: give \
         them one made with create_shared_receive_queue"
    )]
    XrcSharedQueue,
    /// The XRC domain is not of this device, or was closed.
    #[error("there is no such XRC domain on this device")]
    NoSuchXrcDomain,
    /// Nobody has opened an XRC domain with this file.
    #[error("no XRC domain stands for this file yet: ask for it to be created")]
    NoXrcDomainOfFile,
    /// The file's XRC domain exists, and exclusive creation was asked for.
    #[error("an XRC domain stands for this file already: open it without asking for exclusiveness")]
    XrcDomainExists,
    /// The XRC domain is in use.
    #[error(
        "the XRC domain is in use by {queues} shared receive queues and {targets} XRC TGT queue \
         pairs: destroy them first"
    )]
    XrcDomainBusy {
        /// XRC shared receive queues in it.
        queues: usize,
        /// XRC TGT queue pairs in it.
        targets: usize,
    },
    /// The XRC domain has no target of this number.
    #[error("there is no XRC TGT queue pair {0} in this XRC domain")]
    NoSuchTarget(Qpn),
    /// A target was asked for as if it were a queue pair with queues of its own.
    #[error("XRC TGT queue pairs belong to an XRC domain: make them with create_xrc_target")]
    TargetWithoutXrcDomain,
    /// An XRC INI queue pair was to have receives.
    #[error("XRC INI queue pairs receive nothing: create them without a shared receive queue")]
    InitiatorWithReceives,
    /// No queue pair has this number.
    #[error("there is no queue pair {0} on this device")]
    NoSuchPair(Qpn),
    /// The address handle was destroyed, or is of another device.
    #[error("there is no such address handle on this device")]
    NoSuchHandle,
    /// Attributes were refused.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// A parameter of congestion control was refused.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// Attaching to a multicast group or detaching was refused, or is still needed.
    #[error(transparent)]
    Group(#[from] GroupError),
}

/// See the module's text.
pub struct Engine {
    options: EngineOptions,
    mtu: usize,
    max_segments: usize,
    source_ports: Vec<u16>,
    /// Identification of the next burst's first packet.
    identification: u16,
    identification_rule: IdentificationRule,
    turn: u64,
    doorbells: Arc<Doorbells>,
    domains: HashSet<DomainId>,
    next_domain: u32,
    completion_queues: Vec<Arc<CompletionQueue>>,
    shared_queues: SharedQueues,
    xrc: XrcDomains,
    pairs: Vec<Option<Box<QueuePair>>>,
    /// The queue pairs' flight recorders, by slot.
    histories: Vec<Option<Box<Recorder>>>,
    free_slots: Vec<u32>,
    by_number: FxHashMap<Qpn, u32>,
    next_index: u16,
    keys: KeyTable,
    paths: PathTable,
    handles: AddressHandles,
    groups: GroupTable,
    /// Queue pairs that may have something to send.
    ready: ReadyList,
    /// Queue pairs whose acknowledgement waits for the application.
    held: ReadyList,
    deadlines: Deadlines,
    /// Congestion notifications that are owed.
    notifications: NotificationPoint,
    /// Arrivals wait in a receive queue that is more than half full.
    pressed: bool,
    /// When the port was last asked what ICMP has told.
    asked_port: Instant,
    effects: Effects,
    counters: Counters,
    pair_counters: PairCounters,
    senders: senders::KnownSenders,
    /// Slots of queue pairs to which something was done, if that is to be noted.
    changed: Option<Vec<u32>>,
}

impl Engine {
    /// An engine that will be given turns with a port of these capabilities.
    pub fn new(mut options: EngineOptions, port: &PortCapabilities) -> Self {
        options.limits = options.limits.possible(options.numbers());
        options.congestion = options.congestion.possible();
        let mut rng = Rng::new(options.seed);
        let next_index = rng.next_u32() as u16;
        let keys = KeyTable::new(options.limits.regions, options.limits.windows, rng.fork());
        let rises = port.identification == IdentificationRule::BasePlusIndex;
        let source_ports = match &port.source_ports {
            SourcePorts::Any => Vec::new(),
            SourcePorts::Only(ports) => ports.clone(),
        };
        Self {
            mtu: port.mtu,
            max_segments: port.max_segments.max(1),
            source_ports,
            identification: if rises { rng.next_u32() as u16 } else { 0 },
            identification_rule: port.identification,
            turn: 0,
            doorbells: Arc::new(Doorbells::new(options.limits.queue_pairs as usize)),
            domains: HashSet::new(),
            next_domain: 0,
            completion_queues: Vec::new(),
            shared_queues: SharedQueues::default(),
            xrc: XrcDomains::new(&mut rng),
            pairs: Vec::new(),
            histories: Vec::new(),
            free_slots: Vec::new(),
            by_number: FxHashMap::default(),
            next_index,
            keys,
            paths: PathTable::default(),
            handles: AddressHandles::default(),
            groups: GroupTable::default(),
            ready: ReadyList::default(),
            held: ReadyList::default(),
            deadlines: Deadlines::default(),
            notifications: NotificationPoint::default(),
            pressed: false,
            asked_port: Instant::ZERO,
            effects: Effects::default(),
            counters: Counters::default(),
            pair_counters: PairCounters::default(),
            senders: senders::KnownSenders::default(),
            changed: None,
            options,
        }
    }

    /// The bells that posting rings.
    pub fn doorbells(&self) -> &Arc<Doorbells> {
        &self.doorbells
    }

    /// The device's limits.
    pub fn limits(&self) -> &Limits {
        &self.options.limits
    }

    /// Own addresses, by GID index.
    pub fn gids(&self) -> &[IpAddr] {
        &self.options.gids
    }

    /// Bytes of the largest IP packet.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// What has been counted for the device and all queue pairs that it has had.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many queue pairs there are.
    pub fn queue_pair_count(&self) -> usize {
        self.by_number.len()
    }

    /// Their numbers, rising.
    pub fn queue_pair_numbers(&self) -> Vec<Qpn> {
        let mut numbers: Vec<Qpn> = self.by_number.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// What has been counted for a queue pair since it was created. Packets that could be matched
    /// to none (malformed, or of an unknown number) count for the device only; one with a wrong
    /// ICRC counts for the queue pair whose number it carries, right or not; one to a multicast
    /// group counts for each member, and once for the device.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn queue_pair_counters(&self, number: Qpn) -> Result<&Counters, ControlError> {
        let slot = self.slot_of(number)?;
        self.pair_counters.get(slot).ok_or(ControlError::NoSuchPair(number))
    }

    /// Moves what turns and control calls have collected to `into`, keeping both sides' storage.
    pub fn take_effects(&mut self, into: &mut Effects) {
        if self.effects.is_empty() {
            return;
        }
        into.notifications.append(&mut self.effects.notifications);
        into.wakes.append(&mut self.effects.wakes);
        into.events.append(&mut self.effects.events);
        into.failures.append(&mut self.effects.failures);
        into.flushed.append(&mut self.effects.flushed);
        into.dropped.append(&mut self.effects.dropped);
    }

    /// From here on failures of work requests are told with the effects, for a trace; they can be
    /// asked for with [`Engine::history`] in any case.
    pub fn tell_failures(&mut self) {
        self.effects.tells = true;
    }

    /// Panics with a sentence if the engine's state contradicts itself. For tests and the
    /// simulator.
    pub fn check_invariants(&self) {
        self.live_pairs().for_each(QueuePair::check_invariants);
        self.check_windows();
        assert!(
            self.ready.len() <= self.by_number.len(),
            "the ready list holds each queue pair once"
        );
    }

    /// From now on it is noted what is done to queue pairs, for [`Engine::check_changed`].
    pub fn note_changes(&mut self) {
        self.changed = Some(Vec::new());
    }

    /// The same as [`Engine::check_invariants`] for each queue pair to which something was done since
    /// the last time, and no more: what the simulator can afford after every turn.
    pub fn check_changed(&mut self) {
        let Some(mut changed) = self.changed.take() else { return };
        for slot in changed.drain(..) {
            if let Some(Some(pair)) = self.pairs.get(slot as usize) {
                pair.check_invariants();
            }
        }
        self.changed = Some(changed);
    }

    /// Each path's window is charged by what the queue pairs that use it have under way.
    fn check_windows(&self) {
        // Few: looked through faster than hashed.
        let mut charged: Vec<(PathId, u64)> = Vec::with_capacity(4);
        for pair in self.live_pairs() {
            let Some(peer) = &pair.base.peer else { continue };
            let in_flight = pair.in_flight();
            match charged.iter_mut().find(|(path, _)| *path == peer.path) {
                Some((_, sum)) => *sum += in_flight,
                None => charged.push((peer.path, in_flight)),
            }
        }
        for (path, pairs) in charged {
            let on_path = self.paths.get(path).in_flight();
            assert_eq!(pairs, on_path, "a path's window is charged by its queue pairs only");
        }
    }
}
