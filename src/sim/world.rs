//! The world: virtual time, a calendar, and whose turn it is.
//!
//! ```text
//!   calendar ─┬─ arrival ──────▶ inbox, then the node's engine gets a turn
//!             ├─ turn ─────────▶ deadline or doorbell: the engine gets a turn
//!             ├─ application ──▶ polls, posts
//!             └─ control ──────▶ lets go of a broken connection, connects anew
//! ```
//!
//! The engine cannot tell it from the real world: it is given the same turns through the same port.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::engine::{Counter, Effects, PortCapabilities, SourcePorts};
use crate::queue::Completion;
use crate::rng::Rng;
use crate::time::{Instant, MICROSECOND, MILLISECOND, SECOND};
use crate::wire::Qpn;

use super::end::End;
use super::endings::Endings;
use super::flights::Arrival;
use super::network::Network;
use super::node::{Due, Node, address};
use super::oracle::{Notice, Oracle, Rule, Violation};
use super::scenario::{Scenario, Span};
use super::shared::{SharedStage, SharedWorld};
use super::states::notice;
use super::trace::{Keep, Trace};
use super::unacked::{Stage, UnackedEnd};

/// After faults have ended, everything must end within this.
const PATIENCE: u64 = 20 * SECOND;
/// When all work has ended, the network must fall silent within this.
const SILENCE: u64 = 2 * SECOND;
/// More events than any run has; more means that it goes round in circles.
const EVENT_LIMIT: u64 = 4_000_000;

/// Turns from one look at all of an engine's state to the next: what contradicts itself does not
/// mend itself. What a turn changed is looked at after it.
const FULL_CHECK: u64 = 16;

/// What is on the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Arrival(usize),
    /// Of these two, and of each node, only the next one is kept, and not on the calendar.
    Turn(usize),
    Application(usize),
    Teardown(usize),
    Reconnect(usize),
    /// An end that only receives becomes ready to send.
    StartSending(usize),
    /// A drained send queue goes on.
    GoOn(usize),
    /// Brings the send queue of a queue pair without acknowledgements back.
    Resume(usize),
    /// A look at how far the queue pairs without acknowledgements are.
    Round,
    /// A look at how far the links to shared receive queues are.
    SharedRound,
    /// The receiver of a link to shared receive queues goes into error.
    StopLink(usize),
    EndFaults,
}

impl Event {
    /// Applications may have come to their end with it; not so with what the network and engines do
    /// alone.
    fn is_of_applications(self) -> bool {
        !matches!(self, Self::Arrival(_) | Self::Turn(_))
    }
}

/// An event on the calendar. The greatest is the one that is due first, and no two are due alike, so
/// that what they are need not be compared.
struct Entry {
    due: Due,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        other.due.cmp(&self.due)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Entry {}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Up,
    /// An error was seen; the application will let go of it.
    Broken,
    /// Both ends are in error and being emptied.
    Emptying,
    /// Nothing is left to do.
    Down,
}

/// See the module's text.
pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) now: Instant,
    calendar: BinaryHeap<Entry>,
    /// How often anything was put on it: what comes first at a time was put there first.
    entries: u64,
    /// Turns that engines were given.
    turns: u64,
    /// Room for completions.
    pub(super) batch: Vec<Completion>,
    /// Room for arrivals.
    arrivals: Vec<Arrival>,
    pub(super) rng: Rng,
    pub(super) nodes: Vec<Node>,
    /// Ends `2k` and `2k + 1` are those of connection `k`.
    pub(super) ends: Vec<End>,
    pub(super) phases: Vec<Phase>,
    /// Queue pairs without acknowledgements, and how far they are.
    pub(super) unacked: Vec<UnackedEnd>,
    pub(super) stage: Stage,
    /// Shared receive queues, if the scenario has any.
    pub(super) shared: Option<SharedWorld>,
    /// The least and the most packets that they may have sent.
    pub(super) unacked_packets: (u64, u64),
    pub(super) network: Network,
    pub(super) oracle: Oracle,
    effects: Effects,
    /// What applications were told and have not heard yet: node, queue pair, what.
    pub(super) notices: VecDeque<(usize, Qpn, Notice)>,
    /// What events said that must not be, until somebody can complain.
    unheard: Option<Violation>,
    faults_ended: Option<Instant>,
    pub(super) requests: u64,
    pub(super) completions: u64,
    pub(super) reconnections: u64,
    pub(super) endings: Endings,
}

impl World {
    /// The world of a scenario, with all connections made.
    pub(super) fn new(scenario: &Scenario, keep: Keep) -> Self {
        let mut rng = Rng::new(scenario.seed);
        let mut oracle = Oracle::new();
        let capabilities = capabilities(scenario);
        let count = scenario.nodes.len();
        let nodes: Vec<Node> = (0..count)
            .map(|node| Node::new(scenario, node, &capabilities, &mut rng, &mut oracle))
            .collect();
        let addresses = (0..count).map(|node| address(node, scenario.ipv6)).collect();
        let network =
            Network::new(&scenario.network, capabilities, addresses, rng.fork(), Trace::new(keep));
        let mut world = Self {
            scenario: scenario.clone(),
            now: Instant::ZERO,
            calendar: BinaryHeap::new(),
            entries: 0,
            turns: 0,
            batch: Vec::new(),
            arrivals: Vec::new(),
            rng,
            nodes,
            ends: Vec::new(),
            phases: Vec::new(),
            unacked: Vec::new(),
            stage: Stage::Over,
            shared: None,
            unacked_packets: (0, 0),
            network,
            oracle,
            effects: Effects::default(),
            notices: VecDeque::new(),
            unheard: None,
            faults_ended: None,
            requests: 0,
            completions: 0,
            reconnections: 0,
            endings: Endings::default(),
        };
        world.create_connections();
        world.create_unacked();
        world.create_shared();
        world.put(scenario.faults_end, Event::EndFaults);
        world
    }

    /// Lets time pass until everything has ended and the network is silent.
    pub(super) fn run(&mut self) -> Result<(), Violation> {
        let mut events = 0;
        let mut finished = None;
        self.post_ample_receives()?;
        while let Some((at, event)) = self.next_event() {
            if finished.is_some() && event == Event::EndFaults {
                continue;
            }
            self.now = at;
            self.check_time(events, finished)?;
            events += 1;
            self.handle(event)?;
            let may_finish = self.hear_notices()? || event.is_of_applications();
            if finished.is_none() && may_finish && self.is_finished() {
                finished = Some(self.now);
                // What is still on its way arrives, late or not, but nothing new happens to it.
                self.end_faults();
            }
        }
        if finished.is_none() {
            return Err(self.unfinished("nothing is left on the calendar"));
        }
        self.check_end()
    }

    fn check_time(&self, events: u64, finished: Option<Instant>) -> Result<(), Violation> {
        if events >= EVENT_LIMIT {
            return Err(self.unfinished("events never end"));
        }
        if finished.is_some_and(|at| self.now.since(at) > SILENCE) {
            let text = "all work has ended, but an engine still wants turns".to_owned();
            return Err(Violation::new(Rule::Liveness, text));
        }
        if self.faults_ended.is_some_and(|at| self.now.since(at) > PATIENCE) {
            return Err(self.unfinished("faults ended 20 s ago"));
        }
        Ok(())
    }

    /// What has not ended, in words.
    fn unfinished(&self, why: &str) -> Violation {
        let mut text = format!("{why}, but work has not ended:");
        for (number, end) in self.ends.iter().enumerate() {
            let outstanding = self.oracle.outstanding_sends(end.id);
            let receives = self.oracle.outstanding_receives(end.id);
            let left = end.plan.requests.len() - end.cursor;
            if outstanding + receives + left > 0 {
                text += &format!(
                    " end {number} ({}, {:?}) has {outstanding} sends and {receives} receives \
                     outstanding, {left} not posted{};",
                    end.queues.state(),
                    self.phases[number / 2],
                    self.next_in_words(number),
                );
            }
        }
        text += &self.unfinished_unacked();
        text += &self.unfinished_shared();
        Violation::new(Rule::Liveness, text)
    }

    fn next_in_words(&self, end: usize) -> String {
        let this = &self.ends[end];
        let Some(next) = this.plan.requests.get(this.cursor) else { return String::new() };
        let claimed = self.ends[end ^ 1].window.is_claimed;
        format!(
            " (next is {:?} of {} bytes, window claimed: {claimed})",
            next.operation, next.length
        )
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Arrival(flight) => {
                let node = self.network.arrive(flight);
                self.turn(node)
            }
            Event::Turn(node) => self.turn(node),
            Event::Application(node) => self.run_application(node),
            Event::Teardown(connection) => self.let_go(connection),
            Event::Reconnect(connection) => self.try_reconnect(connection),
            Event::StartSending(end) => {
                self.start_sending(end);
                Ok(())
            }
            Event::GoOn(end) => {
                self.go_on(end);
                Ok(())
            }
            Event::Resume(end) => self.resume_unacked(end),
            Event::Round => self.look_round(),
            Event::SharedRound => self.look_at_shared(),
            Event::StopLink(link) => self.stop_link(link),
            Event::EndFaults => {
                self.end_faults();
                self.oracle.check_claimed()
            }
        }
    }

    fn end_faults(&mut self) {
        if self.faults_ended.is_none() {
            self.faults_ended = Some(self.now);
            self.network.end_faults();
        }
    }

    /// Gives a node's engine one turn.
    fn turn(&mut self, node: usize) -> Result<(), Violation> {
        let engine = &mut self.nodes[node].engine;
        let dropped = engine.counters().get(Counter::DropNoReceive);
        let mut port = self.network.port(node, self.now);
        let report = engine.turn(self.now, &mut port, self.scenario.turn_budget);
        engine.check_changed();
        self.turns += 1;
        if self.turns.is_multiple_of(FULL_CHECK) {
            engine.check_invariants();
        }
        let dropped = engine.counters().get(Counter::DropNoReceive) - dropped;
        self.network.found_no_receive(dropped);
        self.network.check()?;
        self.hear_applications(node)?;
        let mut arrivals = self.network.take_scheduled(std::mem::take(&mut self.arrivals));
        for arrival in arrivals.drain(..) {
            self.put(arrival.at, Event::Arrival(arrival.flight));
        }
        self.arrivals = arrivals;
        let next = if report.more {
            self.now + MICROSECOND
        } else {
            // A deadline that has passed is due now, but time must go on.
            report.next_deadline.max(self.now + 1)
        };
        self.set_turn(node, next);
        self.notice_completions(node);
        Ok(())
    }

    /// Whoever waits for what the engine has done is told, as the last thing of every call to it.
    pub(super) fn tell_applications(&mut self, node: usize) {
        let told = self.hear_applications(node);
        if let Err(violation) = told {
            self.unheard.get_or_insert(violation);
        }
    }

    /// The same; what events say that must not be is told at once.
    pub(super) fn hear_applications(&mut self, node: usize) -> Result<(), Violation> {
        self.nodes[node].engine.take_effects(&mut self.effects);
        if self.effects.is_empty() && self.unheard.is_none() {
            return Ok(());
        }
        self.effects.notify();
        let mut events = std::mem::take(&mut self.effects.events);
        let outcome = self.note_shared_events(node, &events);
        let told = events.drain(..).filter_map(|event| notice(&event));
        let is_end = |number: Qpn| {
            self.ends.iter().any(|end| end.plan.node == node && end.queues.number() == number)
        };
        let told = told.filter(|(number, _)| is_end(*number));
        self.notices.extend(told.map(|(number, notice)| (node, number, notice)));
        self.effects.events = events;
        outcome.and_then(|()| self.unheard.take().map_or(Ok(()), Err))
    }

    /// Whoever polls looks soon after there is something; whoever was told, too.
    fn notice_completions(&mut self, node: usize) {
        let wakes = self.nodes[node].queues.iter().any(|queue| match queue.polling {
            super::scenario::Polling::Polled => queue.queue.waiting() > 0,
            _ => queue.is_told(),
        });
        if wakes {
            let delay = self.choose(self.scenario.application_delay);
            self.run_application_at(node, self.now + delay);
        }
    }

    pub(super) fn choose(&mut self, span: Span) -> u64 {
        self.rng.between(span.0, span.1)
    }

    pub(super) fn put(&mut self, at: Instant, event: Event) {
        self.entries += 1;
        self.calendar.push(Entry { due: Due::new(at, self.entries), event });
    }

    /// Takes what is next: from the calendar, or of what nodes wait for, which changes with nearly
    /// every packet.
    fn next_event(&mut self) -> Option<(Instant, Event)> {
        let first = self.calendar.peek();
        let mut due = first.map_or(Due::NEVER, |first| first.due);
        let mut event = first.map_or(Event::EndFaults, |first| first.event);
        for (number, node) in self.nodes.iter().enumerate() {
            if node.turn_at < due {
                (due, event) = (node.turn_at, Event::Turn(number));
            }
            if node.application_at < due {
                (due, event) = (node.application_at, Event::Application(number));
            }
        }
        if due.at() == Instant::NEVER {
            return None;
        }
        match event {
            Event::Turn(node) => self.nodes[node].turn_at = Due::NEVER,
            Event::Application(node) => self.nodes[node].application_at = Due::NEVER,
            _ => drop(self.calendar.pop()),
        }
        Some((due.at(), event))
    }

    /// The engine's next turn is at this time and no other.
    fn set_turn(&mut self, node: usize, at: Instant) {
        if self.nodes[node].turn_at.at() != at {
            self.nodes[node].turn_at = self.due(at);
        }
    }

    fn due(&mut self, at: Instant) -> Due {
        self.entries += 1;
        if at == Instant::NEVER { Due::NEVER } else { Due::new(at, self.entries) }
    }

    /// The engine's next turn is at this time or before.
    pub(super) fn turn_by(&mut self, node: usize, at: Instant) {
        if at < self.nodes[node].turn_at.at() {
            self.set_turn(node, at);
        }
    }

    /// The application runs at this time or before.
    pub(super) fn run_application_at(&mut self, node: usize, at: Instant) {
        if at < self.nodes[node].application_at.at() {
            self.nodes[node].application_at = self.due(at);
        }
    }

    /// Something was posted: the engine gets a turn soon.
    pub(super) fn ring(&mut self, node: usize) {
        let delay = self.choose(self.scenario.doorbell_delay);
        self.turn_by(node, self.now + delay);
    }

    fn is_finished(&self) -> bool {
        let mut phases = self.phases.iter().enumerate();
        let connections = phases.all(|(connection, phase)| match phase {
            Phase::Down => true,
            Phase::Up => self.ends[2 * connection..2 * connection + 2].iter().all(|end| {
                end.is_exhausted()
                    && !end.is_draining
                    && self.oracle.outstanding_sends(end.id) == 0
                    && self.oracle.outstanding_receives(end.id) == 0
            }),
            Phase::Broken | Phase::Emptying => false,
        });
        let is_shared_over = self.shared.as_ref().is_none_or(|one| one.stage == SharedStage::Over);
        self.stage == Stage::Over && is_shared_over && connections
    }

    fn check_end(&mut self) -> Result<(), Violation> {
        self.nodes.iter().for_each(|node| node.engine.check_invariants());
        for node in 0..self.nodes.len() {
            self.poll_all(node)?;
        }
        for connection in 0..self.phases.len() {
            if self.phases[connection] == Phase::Up {
                self.oracle.disconnect(self.ends[2 * connection].id)?;
            }
        }
        self.oracle.check_memory()?;
        self.oracle.check_words()?;
        self.check_counters()?;
        self.check_unacked_economy()?;
        super::economy::check(&self.scenario, &self.network.tally, self.reconnections)
    }

    /// What engines say that they sent is what the network carried.
    fn check_counters(&self) -> Result<(), Violation> {
        let engines = self.nodes.iter().map(|node| node.engine.counters());
        let sent: u64 = engines.map(|counters| counters.get(Counter::SentPackets)).sum();
        let carried = self.network.tally.packets();
        if sent == carried && self.network.in_flight() == 0 {
            return Ok(());
        }
        let text = format!("engines count {sent} packets sent, the network carried {carried}");
        Err(Violation::new(Rule::Invariant, text))
    }
}

fn capabilities(scenario: &Scenario) -> PortCapabilities {
    PortCapabilities {
        mtu: scenario.mtu,
        max_segments: scenario.max_segments,
        max_burst_bytes: (scenario.mtu * scenario.max_segments).min(65_507).max(scenario.mtu),
        identification: scenario.identification,
        source_ports: SourcePorts::Any,
    }
}

/// How long until the application looks again although nothing told it to.
pub(super) const LOOK_AGAIN: u64 = MILLISECOND;
