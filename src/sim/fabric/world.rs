//! The run: events in virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::host::{Finished, Host};
use super::packet::FabricPacket;
use super::plan::{Carrier, FabricPlan, FlowPlan};
use super::report::FabricReport;
use super::switch::Switch;
use crate::engine::Counter;
use crate::rng::Rng;
use crate::time::{Instant, SECOND};
use crate::wire::Packet;

/// Something that happens.
enum Event {
    /// A host's turn is due.
    Turn(usize),
    /// A packet has left a host's card.
    Left(usize),
    /// A packet has come to the switch.
    AtSwitch(FabricPacket),
    /// A packet has left a port of the switch.
    Passed(usize),
    /// A packet has come to its host.
    AtHost(FabricPacket),
    /// The switch tells a host to pause, or to go on.
    Pause(usize, bool),
    /// A bin of the report ends.
    BinEnds,
}

struct Entry {
    at: Instant,
    /// Of two at one time the older comes first.
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// See the module's text.
pub(super) struct World<'a> {
    plan: &'a FabricPlan,
    now: Instant,
    order: u64,
    calendar: BinaryHeap<Reverse<Entry>>,
    hosts: Vec<Host>,
    switch: Switch,
    /// The flow whose data a queue pair gets.
    receivers: HashMap<u32, usize>,
    report: FabricReport,
    finished: Vec<Finished>,
    /// The deepest that each port's queue has been in each bin.
    depths: Vec<Vec<u64>>,
    /// Notifications until the end of the last bin.
    notified: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(plan: &'a FabricPlan) -> Self {
        let mut rng = Rng::new(plan.seed);
        let hosts = (0..plan.hosts).map(|host| Host::new(plan, host, rng.next_u64())).collect();
        let mut world = Self {
            now: Instant::ZERO,
            order: 0,
            calendar: BinaryHeap::new(),
            hosts,
            switch: Switch::new(plan.switch, plan.hosts, rng.fork()),
            receivers: HashMap::new(),
            report: FabricReport::new(plan),
            finished: Vec::new(),
            depths: vec![vec![0; plan.end.as_nanos().div_ceil(plan.bin) as usize]; plan.hosts],
            notified: 0,
            plan,
        };
        for (index, flow) in plan.flows.iter().enumerate() {
            world.connect(index, flow);
            world.schedule(flow.start, Event::Turn(flow.from));
            world.schedule(flow.start, Event::Turn(flow.to));
        }
        world
    }

    fn connect(&mut self, index: usize, flow: &FlowPlan) {
        let FlowPlan { from, to, carrier, start, stop } = *flow;
        let source = self.hosts[from].add_end(index, carrier);
        let target = self.hosts[to].add_end(index, carrier);
        self.receivers.insert(target.number().value(), index);
        self.hosts[from].connect(carrier, to, &target);
        self.hosts[to].connect(carrier, from, &source);
        let (asking, asked, peer) =
            if carrier == Carrier::Read { (to, from, source) } else { (from, to, target) };
        let remote = self.hosts[asked].remote();
        let peer = Arc::clone(&peer);
        self.hosts[asking].set_to_work(carrier, (asked, &peer, remote), (start, stop));
    }

    /// Runs to the end.
    pub(super) fn run(mut self) -> FabricReport {
        self.schedule(Instant::from_nanos(self.plan.bin), Event::BinEnds);
        while let Some(Reverse(Entry { at, event, .. })) = self.calendar.pop() {
            if at > self.plan.end {
                break;
            }
            self.now = at;
            self.happen(event);
        }
        self.finish()
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.order += 1;
        self.calendar.push(Reverse(Entry { at, order: self.order, event }));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turn(host) => self.turn(host),
            Event::Left(host) => {
                self.hosts[host].nic.line_free();
                self.turn(host);
            }
            Event::AtSwitch(packet) => self.at_switch(packet),
            Event::Passed(port) => {
                self.switch.line_free(port);
                self.pass(port);
            }
            Event::AtHost(packet) => {
                let host = packet.to;
                self.hosts[host].nic.arrived.push_back(packet);
                self.turn(host);
            }
            Event::Pause(host, paused) => {
                self.hosts[host].nic.pause(paused);
                self.leave(host);
            }
            Event::BinEnds => self.end_bin(),
        }
    }

    fn turn(&mut self, host: usize) {
        let before = self.hosts[host].turn_at;
        let mut finished = std::mem::take(&mut self.finished);
        self.hosts[host].turn(self.now, &mut finished);
        for (flow, bytes) in finished.drain(..) {
            if !is_silent(self.plan.flows[flow].carrier) {
                self.report.flows[flow].payload += bytes;
            }
        }
        self.finished = finished;
        let next = self.hosts[host].turn_at;
        // An earlier entry that is still in the calendar leads here again, and on.
        if before <= self.now || next < before {
            self.schedule(next, Event::Turn(host));
        } else {
            self.hosts[host].turn_at = before;
        }
        self.leave(host);
    }

    /// The next packet of a host takes its line.
    fn leave(&mut self, host: usize) {
        if let Some(packet) = self.hosts[host].nic.next() {
            let through = self.now + self.time_of(packet.size());
            self.schedule(through, Event::Left(host));
            self.schedule(through + self.plan.delay, Event::AtSwitch(packet));
        }
    }

    fn at_switch(&mut self, packet: FabricPacket) {
        let (from, to, bin) = (packet.from, packet.to, self.bin());
        let verdict = self.switch.arrive(packet);
        self.report.marks[bin] += u64::from(verdict.marked);
        self.report.drops[bin] += u64::from(verdict.dropped);
        self.report.pauses[bin] += u64::from(verdict.pause);
        if verdict.pause {
            self.schedule(self.now + self.plan.delay, Event::Pause(from, true));
        }
        let depth = &mut self.depths[to][bin];
        *depth = self.switch.depth(to).max(*depth);
        self.pass(to);
    }

    /// The next packet of a port takes its line.
    fn pass(&mut self, port: usize) {
        let Some((packet, resume)) = self.switch.next(port) else { return };
        if resume {
            self.schedule(self.now + self.plan.delay, Event::Pause(packet.from, false));
        }
        self.note(&packet);
        let through = self.now + self.time_of(packet.size());
        self.schedule(through, Event::Passed(port));
        self.schedule(through + self.plan.delay, Event::AtHost(packet));
    }

    /// Counts a packet on its way to the host that gets a flow's data.
    fn note(&mut self, packet: &FabricPacket) {
        let Some(flow) = self.receivers.get(&packet.destination()) else { return };
        let (bin, size) = (self.bin(), packet.size());
        let report = &mut self.report.flows[*flow];
        report.bytes += size;
        report.rates[bin] += size as f64 * 8.0 * SECOND as f64 / self.plan.bin as f64;
        if is_silent(report.plan.carrier) {
            let payload = Packet::parse(&packet.bytes).map_or(0, |packet| packet.payload.len());
            report.payload += payload as u64;
        }
    }

    fn end_bin(&mut self) {
        for (index, flow) in self.plan.flows.iter().enumerate() {
            let rate = self.hosts[flow.from].rate(self.now, index, flow.to);
            let limit = rate.map_or(self.plan.rate, |rate| rate.current);
            self.report.flows[index].limits.push(limit as f64);
        }
        let all = self.sum(Counter::ReceivedCongestionNotification);
        let bin = (self.now.as_nanos() / self.plan.bin) as usize - 1;
        self.report.notifications[bin] = all - self.notified;
        self.notified = all;
        self.schedule(self.now + self.plan.bin, Event::BinEnds);
    }

    fn sum(&self, counter: Counter) -> u64 {
        self.hosts.iter().map(|host| host.count(counter)).sum()
    }

    fn bin(&self) -> usize {
        let last = self.report.marks.len() - 1;
        ((self.now.as_nanos() / self.plan.bin) as usize).min(last)
    }

    /// Nanoseconds that so many bytes take of a line.
    fn time_of(&self, bytes: u64) -> u64 {
        (bytes * 8 * SECOND).div_ceil(self.plan.rate)
    }

    fn finish(mut self) -> FabricReport {
        for host in &self.hosts {
            host.engine.check_invariants();
        }
        let deepest = |depths: &Vec<u64>| depths.iter().copied().max().unwrap_or(0);
        let port = (0..self.plan.hosts).max_by_key(|port| deepest(&self.depths[*port]));
        self.report.port = port.unwrap_or(0);
        self.report.depths = std::mem::take(&mut self.depths[self.report.port]);
        self.report.repeated = self.sum(Counter::RetransmittedPackets);
        self.report
    }
}

/// Whether nobody tells the sender what has arrived.
fn is_silent(carrier: Carrier) -> bool {
    matches!(carrier, Carrier::UnreliableWrite | Carrier::Datagram)
}
