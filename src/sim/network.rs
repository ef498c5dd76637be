//! The network: carries bursts between nodes, each packet with its own fate.
//!
//! ```text
//!  engine ─ transmit ─▶ line (rate) ─▶ fate ─▶ way (latency) ─▶ in flight ─▶ inbox ─ receive ─▶ engine
//!                                       └ lost, late, twice, damaged, marked
//! ```
//!
//! Without faults a pair of nodes is in order, so whatever is out of order is a fault that was
//! counted. Packets in flight are bounded; a full network loses what comes next.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::engine::PortCapabilities;
use crate::fault::{Delivery, Direction, DropCause, Fate, Faults, PacketView};
use crate::memory::WindowId;
use crate::queue::QueuePairQueues;
use crate::rng::Rng;
use crate::time::{Instant, SECOND};
use crate::wire::{Qpn, SentBurst};

use super::channel::Channel;
use super::classify::{Seen, classify, through_window};
use super::credits::{Ledger, Told};
use super::flights::{Arrival, Flight, Ticket};
use super::matrix::{Column, Matrix, Row};
use super::oracle::{Rule, Violation};
use super::port::NodePort;
use super::scenario::{NetworkPlan, Operation};
use super::script::Script;
use super::trace::{Trace, identification};

/// Requests of a queue pair of which the kind is remembered.
const REMEMBERED: usize = 1024;
/// Bytes on the wire beside the UDP payload.
const OVERHEAD: usize = 66;

/// What was sent, and what disturbed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets by kind, in the order of [`Row::ALL`].
    pub sent: [u64; Row::ALL.len()],
    /// Packets of other kinds: congestion notifications.
    pub other: u64,
    /// Packets that arrive marked "congestion experienced", copies included.
    pub marked: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets damaged.
    pub corrupted: u64,
    /// Packets held back, or that took the way round.
    pub late: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// "Receiver not ready" answers.
    pub not_ready: u64,
}

impl Tally {
    /// Packets in all.
    pub fn packets(&self) -> u64 {
        self.sent.iter().sum::<u64>() + self.other
    }

    /// Packets of a kind.
    pub fn of(&self, row: Row) -> u64 {
        self.sent[row as usize]
    }

    /// Whatever can make something be sent again.
    pub fn disturbances(&self) -> u64 {
        self.lost + self.corrupted + self.late + self.duplicated + self.not_ready
    }
}

/// See the module's text.
pub(super) struct Network {
    pub(super) plan: NetworkPlan,
    pub(super) capabilities: PortCapabilities,
    faults: Option<Faults>,
    script: Option<Script>,
    is_faulty: bool,
    rng: Rng,
    addresses: Vec<IpAddr>,
    lines: Vec<Instant>,
    /// When the last packet of a pair of nodes arrives.
    last_arrivals: Vec<Instant>,
    /// All flights there ever were at a time; those that are over are in `free`.
    pub(super) flights: Vec<Flight>,
    pub(super) free: Vec<usize>,
    /// Flights that have arrived and were not yet taken.
    pub(super) inboxes: Vec<VecDeque<usize>>,
    pub(super) scheduled: Vec<Arrival>,
    pub(super) channels: Vec<Channel>,
    /// The end that has a queue pair number.
    ends: FxHashMap<Qpn, usize>,
    /// Flights towards the group.
    pub(super) inbound_to_group: usize,
    pub(super) slot: Vec<u8>,
    /// Packets that came when no receive was posted, since the last look.
    pub(super) unready: Vec<Row>,
    /// A packet that must not have been sent.
    violation: Option<Violation>,
    pub(super) tally: Tally,
    pub(super) matrix: Matrix,
    pub(super) trace: Trace,
}

impl Network {
    pub(super) fn new(
        plan: &NetworkPlan,
        capabilities: PortCapabilities,
        addresses: Vec<IpAddr>,
        rng: Rng,
        trace: Trace,
    ) -> Self {
        let nodes = addresses.len();
        let script = plan.script.clone();
        Self {
            faults: Some(Faults::new(plan.faults.clone())).filter(|_| script.is_none()),
            script,
            is_faulty: true,
            plan: plan.clone(),
            slot: vec![0; capabilities.max_burst_bytes],
            capabilities,
            rng,
            lines: vec![Instant::ZERO; nodes],
            last_arrivals: vec![Instant::ZERO; nodes * nodes],
            addresses,
            flights: Vec::new(),
            free: Vec::new(),
            inboxes: (0..nodes).map(|_| VecDeque::new()).collect(),
            scheduled: Vec::new(),
            channels: Vec::new(),
            ends: FxHashMap::default(),
            inbound_to_group: 0,
            unready: Vec::new(),
            violation: None,
            tally: Tally::default(),
            matrix: Matrix::default(),
            trace,
        }
    }

    /// End `end` has this queue pair number from now on, and is connected to `peer`.
    /// `only_messages`: it sends no READs and no atomics.
    pub(super) fn name_end(&mut self, end: usize, peer: usize, number: Qpn, only_messages: bool) {
        if self.channels.len() <= end {
            self.channels.resize_with(end + 1, Channel::default);
        }
        self.ends.retain(|_, named| *named != end);
        self.ends.insert(number, end);
        self.channels[end].peer = peer;
        self.channels[end].requests.clear();
        self.channels[end].not_before = None;
        self.channels[end].is_resting = false;
        self.channels[end].only_messages = only_messages;
    }

    /// The end sends nothing, or may go on.
    pub(super) fn rest(&mut self, end: usize, is_resting: bool) {
        self.channels[end].is_resting = is_resting;
    }

    /// A connection of this end begins.
    pub(super) fn begin_ledger(&mut self, end: usize, first_psn: u32, path_mtu: u32) {
        self.channels[end].ledger = Ledger::new(first_psn, path_mtu);
    }

    /// The end has a memory window: what goes through it is counted apart.
    pub(super) fn name_window(&mut self, end: usize, window: WindowId) {
        self.channels[end].window = Some(window);
    }

    /// What a packet is about, whose request it belongs to, and whether it goes through the
    /// receiver's window.
    fn look_at(&self, bytes: &[u8]) -> Option<Seen> {
        let mut seen = classify(bytes)?;
        let receiver = self.end_of(seen.destination);
        seen.requester = match (seen.source, receiver) {
            (Some(source), _) => self.end_of(source),
            (None, Some(receiver)) if seen.is_request => Some(self.channels[receiver].peer),
            (None, receiver) => receiver,
        };
        if let (Some(key), Some(receiver)) = (seen.key, receiver)
            && self.channels[receiver].window == Some(WindowId::of_key(key))
        {
            seen.row = seen.row.map(through_window);
        }
        Some(seen)
    }

    /// The end has no acknowledgements: packets that find none of these receives are lost.
    pub(super) fn watch_receives(&mut self, end: usize, queues: Arc<QueuePairQueues>) {
        self.channels[end].receives = Some(queues);
    }

    /// From now on all that this end sends arrives.
    pub(super) fn spare(&mut self, end: usize) {
        self.channels[end].is_spared = true;
    }

    /// Whether nothing is on its way to an end.
    pub(super) fn is_silent_to(&self, end: usize) -> bool {
        self.channels[end].inbound == 0
    }

    /// Of each message that an end without acknowledgements has sent, to which machines the network
    /// carried all its packets: a bit each, and all bits for what is for one machine.
    pub(super) fn intact(&self, end: usize) -> &[u64] {
        &self.channels[end].intact
    }

    /// So many packets have just been dropped for want of a receive.
    pub(super) fn found_no_receive(&mut self, dropped: u64) {
        for row in self.unready.drain(..).take(dropped as usize) {
            self.matrix.meet(row, Column::Rnr);
        }
    }

    /// From now on everything arrives.
    pub(super) fn end_faults(&mut self) {
        self.is_faulty = false;
    }

    /// Whether nothing is on its way to either end of a connection.
    pub(super) fn is_quiet(&self, connection: usize) -> bool {
        self.channels[2 * connection].inbound + self.channels[2 * connection + 1].inbound == 0
    }

    /// Packets or bursts on their way, or arrived and not yet taken.
    pub(super) fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// How many fates of the script have been given.
    pub(super) fn script_used(&self) -> usize {
        self.script.as_ref().map_or(0, Script::used)
    }

    /// Exchanges what has to be put on the calendar for an empty list.
    pub(super) fn take_scheduled(&mut self, empty: Vec<Arrival>) -> Vec<Arrival> {
        std::mem::replace(&mut self.scheduled, empty)
    }

    /// Whether an engine sent what it must not send.
    pub(super) fn check(&mut self) -> Result<(), Violation> {
        self.violation.take().map_or(Ok(()), Err)
    }

    /// A flight has arrived. Returns the node.
    pub(super) fn arrive(&mut self, flight: usize) -> usize {
        let node = self.flights[flight].ticket.to;
        self.inboxes[node].push_back(flight);
        node
    }

    /// An operation of `end` completed with success.
    pub(super) fn prove(&mut self, end: usize, operation: Operation) {
        self.channels[end].met.prove(operation, &mut self.matrix);
    }

    /// A request of `end` that makes packets of this kind has left.
    pub(super) fn prove_row(&mut self, end: usize, row: Row) {
        self.channels[end].met.prove_row(row, &mut self.matrix);
    }

    /// The port of `node`, for one turn.
    pub(super) fn port(&mut self, node: usize, now: Instant) -> NodePort<'_> {
        NodePort { network: self, node, now }
    }

    pub(super) fn end_of(&self, number: Qpn) -> Option<usize> {
        self.ends.get(&number).copied()
    }

    /// Sends the burst that lies in the slot.
    pub(super) fn send(&mut self, now: Instant, from: usize, burst: &SentBurst) {
        let slot = std::mem::take(&mut self.slot);
        let to = self.addresses.iter().position(|address| *address == burst.flow.destination);
        // Consecutive packets that nothing happens to may stay together.
        let mut together: Option<(Instant, usize)> = None;
        for (index, bytes) in slot[..burst.length].chunks(burst.segment.max(1)).enumerate() {
            let identification = identification(self.capabilities.identification, burst, index);
            let seen = self.look_at(bytes);
            if burst.flow.destination.is_multicast() {
                self.send_to_group(now, from, (burst, identification, bytes), seen);
                continue;
            }
            let on_time = self.leave(now, from, to.unwrap_or(from), bytes.len());
            let fate = self.fate(now, bytes, seen);
            self.count(now, seen, fate);
            self.trace.frame(now, from, burst, identification, bytes, fate);
            let Some(to) = to else { continue };
            let is_clean = matches!(fate, Fate::Deliver(delivery) if delivery.is_clean());
            if let Some((at, train)) = &mut together
                && is_clean
                && self.may_follow(*train, identification)
            {
                *at = on_time;
                self.join_train(*train, bytes, seen);
                continue;
            }
            self.launch_together(&mut together);
            let Fate::Deliver(delivery) = fate else { continue };
            let flight = self.board(to, burst, identification, bytes, seen);
            if is_clean && self.plan.bursts {
                together = flight.map(|flight| (on_time, flight));
            } else if let Some(flight) = flight {
                self.deliver(on_time, flight, delivery);
            }
        }
        self.launch_together(&mut together);
        self.slot = slot;
    }

    /// The packet passes the node's line. Returns when it arrives if nothing happens to it.
    fn leave(&mut self, now: Instant, from: usize, to: usize, length: usize) -> Instant {
        self.occupy_line(now, from, length);
        self.travel(from, to)
    }

    /// The packet takes its time on the node's line.
    pub(super) fn occupy_line(&mut self, now: Instant, from: usize, length: usize) {
        let bits = (length + OVERHEAD) as u64 * 8;
        let line = &mut self.lines[from];
        *line = now.max(*line) + (bits * SECOND).div_ceil(self.plan.rate.max(1));
    }

    /// What has just left the node's line arrives at this time if nothing happens to it.
    pub(super) fn travel(&mut self, from: usize, to: usize) -> Instant {
        let latency = self.rng.between(self.plan.latency.0, self.plan.latency.1);
        let arrival = self.lines[from] + latency;
        let last = &mut self.last_arrivals[from * self.addresses.len() + to];
        *last = arrival.max(*last);
        *last
    }

    pub(super) fn fate(&mut self, now: Instant, bytes: &[u8], seen: Option<Seen>) -> Fate {
        let sender = seen.and_then(|seen| seen.requester);
        let is_spared = sender.is_some_and(|end| self.channels[end].is_spared);
        if !self.is_faulty || is_spared {
            // What holds all packets back is a long way rather than a fault: if it became short at
            // once, all that is sent would pass all that is under way.
            let delay = self.plan.faults.delay;
            return Fate::Deliver(Delivery { delay, ..Delivery::default() });
        }
        let outage = self.plan.outage;
        if outage.is_some_and(|(start, end)| start <= now && now < end) {
            return Fate::Drop(DropCause::Loss);
        }
        if let Some(script) = &mut self.script {
            return script.fate(seen.is_some_and(|seen| seen.is_request), bytes.len());
        }
        let view = PacketView::of(bytes, Direction::Out);
        let faults = self.faults.as_mut().expect("there is a script, or there are faults");
        let reordered = faults.statistics().reordered;
        let fate = faults.fate(now, &view);
        let is_reordered = faults.statistics().reordered > reordered;
        self.on_the_way_round(fate, is_reordered, seen)
    }

    /// Some packets take a longer way.
    fn on_the_way_round(&mut self, fate: Fate, is_reordered: bool, seen: Option<Seen>) -> Fate {
        let Fate::Deliver(mut delivery) = fate else { return fate };
        if is_reordered {
            self.meet(seen, Column::Reorder);
        }
        if self.plan.faults.delay > 0 {
            self.meet(seen, Column::Delay);
        }
        if self.rng.chance(self.plan.detour.parts_per_million(), 1_000_000) {
            let (least, most) = (self.plan.detour_time.0, self.plan.detour_time.1);
            delivery.delay += self.rng.between(least, most);
            self.meet(seen, Column::Detour);
        }
        Fate::Deliver(delivery)
    }

    fn meet(&mut self, seen: Option<Seen>, column: Column) {
        let Some(seen) = seen else { return };
        let Some(row) = seen.row else { return };
        if let Some(end) = seen.requester {
            self.channels[end].met.meet(row, column);
        }
    }

    fn count(&mut self, now: Instant, seen: Option<Seen>, fate: Fate) {
        match seen.and_then(|seen| seen.row) {
            Some(row) => self.tally.sent[row as usize] += 1,
            None => self.tally.other += 1,
        }
        if let Some(seen) = seen {
            self.check_pause(now, seen);
            self.check_silence(seen);
            self.check_credits(seen);
            self.check_rest(seen);
            self.follow(seen, fate);
            self.remember(seen);
        }
        self.count_fate(seen, fate);
    }

    pub(super) fn count_fate(&mut self, seen: Option<Seen>, fate: Fate) {
        let Fate::Deliver(delivery) = fate else {
            self.tally.lost += 1;
            return self.meet(seen, Column::Loss);
        };
        if delivery.delay > self.plan.faults.delay {
            self.tally.late += 1;
        }
        if delivery.duplicate.is_some() {
            self.tally.duplicated += 1;
            self.meet(seen, Column::Duplicate);
        }
        if delivery.corruption.is_some() {
            self.tally.corrupted += 1;
            self.meet(seen, Column::Corrupt);
        }
        if delivery.mark_ce {
            self.meet(seen, Column::Mark);
        }
    }

    /// Whoever was asked to wait until a receive is posted has to wait.
    fn check_pause(&mut self, now: Instant, seen: Seen) {
        let Some(end) = seen.requester.filter(|_| seen.is_request) else { return };
        let Some((psn, until)) = self.channels[end].not_before else { return };
        if seen.psn == psn && until <= now {
            self.channels[end].not_before = None;
        } else if seen.psn == psn {
            let early = until.since(now);
            let text = format!("PSN {psn:#08x} was sent {early} ns before the pause was over");
            self.violation.get_or_insert_with(|| Violation::new(Rule::Pause, text));
        }
    }

    /// Whoever knows how many receives its peer has begins one message more at most.
    fn check_credits(&mut self, seen: Seen) {
        let Some(end) = seen.requester.filter(|_| seen.is_request) else { return };
        if seen.is_unacked || self.channels[end].ledger.sent(seen.psn, seen.begins) {
            return;
        }
        let text = format!("PSN {:#08x} begins a second message beyond the credits", seen.psn);
        self.violation.get_or_insert_with(|| Violation::new(Rule::Credits, text));
    }

    /// A drained send queue sends nothing, not even again.
    fn check_rest(&mut self, seen: Seen) {
        let Some(end) = seen.requester.filter(|_| seen.is_request) else { return };
        if self.channels[end].is_resting {
            let text = format!("PSN {:#08x} was sent by a drained send queue", seen.psn);
            self.violation.get_or_insert_with(|| Violation::new(Rule::Drain, text));
        }
    }

    /// Where nobody acknowledges, nobody answers.
    pub(super) fn check_silence(&mut self, seen: Seen) {
        if seen.is_unacked && seen.row.is_none() {
            let text = format!("an answer to {} on a transport that has none", seen.destination);
            self.violation.get_or_insert_with(|| Violation::new(Rule::Economy, text));
        }
    }

    /// Notes which messages arrive whole, where nobody tells the sender.
    fn follow(&mut self, seen: Seen, fate: Fate) {
        let Some(end) = seen.requester.filter(|_| seen.is_unacked) else { return };
        let arrives = arrives(fate);
        self.channels[end].follow(seen.edges, if arrives { u64::MAX } else { 0 });
    }

    /// Keeps what later answers are about.
    pub(super) fn remember(&mut self, seen: Seen) {
        let Some(end) = seen.requester else { return };
        if seen.psn >= 0xff_fff0 || seen.psn < 0x10 {
            self.meet(Some(seen), Column::Wrap);
        }
        let channel = &mut self.channels[end];
        if let (true, false, Some(row)) = (seen.is_request, seen.is_unacked, seen.row) {
            if channel.requests.len() == REMEMBERED {
                channel.requests.pop_front();
            }
            channel.requests.push_back((seen.psn, row));
        }
        if seen.pause.is_some() {
            self.tally.not_ready += 1;
            let mut requests = channel.requests.iter().rev();
            if let Some((_, row)) = requests.find(|(psn, _)| *psn == seen.psn) {
                channel.met.meet(*row, Column::Rnr);
            }
        }
    }

    /// A flight is handed to its end.
    pub(super) fn receive(&mut self, now: Instant, end: usize, ticket: &Ticket, told: &[Told]) {
        let channel = &mut self.channels[end];
        channel.receive(now, ticket.pause, told);
        if channel.lacks_receives() {
            self.unready.extend(ticket.needs_receive);
        }
    }
}

/// Whether what has this fate reaches its receiver whole.
pub(super) const fn arrives(fate: Fate) -> bool {
    matches!(fate, Fate::Deliver(delivery) if delivery.corruption.is_none())
}
