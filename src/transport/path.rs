//! Flow control by destination address, shared by all queue pairs that send there.
//!
//! Below a software stack no fabric is lossless: a socket drops silently when its buffer is full.
//! Linux charges a buffer about 832 bytes a packet and twice its bytes, so that is the currency: a
//! window of cost, which grows while nothing is lost and shrinks when something is.

use std::collections::HashMap;
use std::net::IpAddr;

use super::congestion::{CongestionOptions, FlowRate};
use super::pace::Pace;
use super::ready::ReadyList;
use super::unreachable::{Notices, Unreachable, UnreachableKind};
use crate::time::{Instant, MICROSECOND, MILLISECOND};

/// What a receiving socket is charged for so many packets with so many bytes.
pub(crate) const fn cost(packets: u32, bytes: u64) -> u64 {
    packets as u64 * 832 + bytes * 2
}

const INITIAL_WINDOW: u64 = 128 * 1024;
/// One small burst.
const MIN_WINDOW: u64 = 32 * 1024;
const MAX_WINDOW: u64 = 4 * 1024 * 1024;
/// Growth for each window that is acknowledged.
const GROWTH: u64 = 32 * 1024;
/// So much slower it grows about the size at which something was lost last, if that was not soon
/// after an earlier loss.
const CAUTION: u64 = 16;
const MIN_PROBE: u64 = 200 * MICROSECOND;
/// Windows that are acknowledged between two losses of which the second still has to do with its
/// size.
const CALM: u64 = 4;
/// Before the first measurement.
const FIRST_PROBE: u64 = MILLISECOND;

/// Number of a path in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathId(u32);

/// State of the way to one address.
#[derive(Debug)]
pub(crate) struct Path {
    destination: IpAddr,
    users: u32,
    window: u64,
    /// The window when something was lost last, 0 if that was soon after an earlier loss.
    lost_at: u64,
    /// Cost that was acknowledged since something was lost.
    acknowledged: u64,
    in_flight: u64,
    smoothed_rtt: Option<u64>,
    /// No second reduction for losses of the same time.
    reduced_at: Option<Instant>,
    /// For what gets no acknowledgements.
    pub(crate) pace: Pace,
    /// What ICMP has told of the address.
    notices: Option<Notices>,
    /// Queue pairs that found the window full.
    waiting: ReadyList,
}

impl Path {
    fn new(destination: IpAddr) -> Self {
        Self {
            destination,
            pace: Pace::default(),
            notices: None,
            users: 0,
            window: INITIAL_WINDOW,
            lost_at: 0,
            acknowledged: 0,
            in_flight: 0,
            smoothed_rtt: None,
            reduced_at: None,
            waiting: ReadyList::default(),
        }
    }

    /// ICMP has told that the address cannot be reached.
    pub(crate) fn note_unreachable(&mut self, now: Instant, kind: UnreachableKind) {
        self.notices = Some(Notices::note(self.notices, now, kind));
    }

    /// What ICMP has told of the address since a time.
    pub(crate) fn unreachable(&self, since: Instant) -> Option<Unreachable> {
        self.notices?.since(since)
    }

    /// Whether so much more fits the window.
    pub(crate) fn has_room(&self, cost: u64) -> bool {
        self.in_flight + cost <= self.window
    }

    pub(crate) fn charge(&mut self, cost: u64) {
        self.in_flight += cost;
    }

    /// What was charged is acknowledged, or given up.
    pub(crate) fn release(&mut self, cost: u64) {
        assert!(self.in_flight >= cost, "a path is released of no more than it was charged");
        self.in_flight -= cost;
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Current window, in cost.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// So much was acknowledged without loss. What is lost is mostly what a full socket buffer could
    /// not take, whose size does not change: about the window of the last loss it grows slowly, or
    /// there would be a loss every few round trips. Losses that follow each other have nothing to do
    /// with the window's size.
    pub(crate) fn grow(&mut self, acknowledged: u64) {
        self.acknowledged += acknowledged;
        let near = (self.lost_at * 11 / 16..self.lost_at * 9 / 8).contains(&self.window);
        let growth = if near { GROWTH / CAUTION } else { GROWTH };
        let step = growth * acknowledged / self.window.max(1);
        self.window = (self.window + step).min(MAX_WINDOW);
    }

    /// Something was lost.
    pub(crate) fn shrink(&mut self, now: Instant) {
        let quiet = self.smoothed_rtt.unwrap_or(FIRST_PROBE);
        if self.reduced_at.is_some_and(|at| now - at < quiet) {
            return;
        }
        self.reduced_at = Some(now);
        let is_calm = self.acknowledged >= CALM * self.window;
        self.acknowledged = 0;
        self.lost_at = if is_calm { self.window } else { 0 };
        self.window = (self.window * 7 / 10).max(MIN_WINDOW);
    }

    /// A round trip was measured.
    pub(crate) fn measured(&mut self, rtt: u64) {
        self.smoothed_rtt = Some(self.smoothed_rtt.map_or(rtt, |old| old - old / 8 + rtt / 8));
    }

    /// Wait before a probe for something unanswered, after `backoff` probes that were in vain. Once
    /// a round trip is known the doubling ends at 64 times its interval: where most packets are
    /// lost none may be measured for long, and probes must not fall behind the local ACK timeout.
    pub(crate) fn probe_interval(&self, backoff: u32) -> u64 {
        match self.smoothed_rtt {
            Some(rtt) => (4 * rtt).max(MIN_PROBE) << backoff.min(6),
            None => FIRST_PROBE << backoff.min(20),
        }
    }

    /// How long after a step back no answer can speak of what was sent by it. Sequence NAKs come
    /// once, so that one too many that is ignored costs a probe: for them half a round trip is
    /// taken, which none falls below for long, and nothing before one was measured.
    pub(crate) fn answer_time(&self, explicit: bool) -> u64 {
        match (explicit, self.smoothed_rtt) {
            (true, rtt) => rtt.unwrap_or(0) / 2,
            (false, rtt) => rtt.unwrap_or(MIN_PROBE),
        }
    }

    /// Remembers a queue pair that waits for room, once.
    pub(crate) fn wait(&mut self, slot: u32) {
        self.waiting.push(slot);
    }

    /// The next queue pair to try again, while there is room.
    pub(crate) fn next_waiting(&mut self) -> Option<u32> {
        if self.in_flight < self.window { self.waiting.pop() } else { None }
    }

    fn forget(&mut self, slot: u32) {
        self.waiting.remove(slot);
    }
}

/// All paths of a device.
#[derive(Debug, Default)]
pub(crate) struct PathTable {
    paths: Vec<Path>,
    by_address: HashMap<IpAddr, u32>,
    free: Vec<u32>,
}

impl PathTable {
    /// The path to `destination`, for one more user.
    pub(crate) fn join(&mut self, destination: IpAddr) -> PathId {
        let index = match self.by_address.get(&destination) {
            Some(index) => *index,
            None => self.add(destination),
        };
        self.paths[index as usize].users += 1;
        PathId(index)
    }

    fn add(&mut self, destination: IpAddr) -> u32 {
        let path = Path::new(destination);
        let index = if let Some(index) = self.free.pop() {
            self.paths[index as usize] = path;
            index
        } else {
            self.paths.push(path);
            self.paths.len() as u32 - 1
        };
        self.by_address.insert(destination, index);
        index
    }

    /// One user less: the queue pair in `slot`.
    pub(crate) fn leave(&mut self, id: PathId, slot: u32) {
        let path = &mut self.paths[id.0 as usize];
        path.forget(slot);
        path.users -= 1;
        if path.users == 0 {
            self.by_address.remove(&path.destination);
            self.free.push(id.0);
        }
    }

    /// The path to `destination`, if anyone sends there.
    pub(crate) fn find(&mut self, destination: &IpAddr) -> Option<&mut Path> {
        let index = *self.by_address.get(destination)?;
        Some(&mut self.paths[index as usize])
    }

    /// The rate to which notifications have brought the path to `destination`.
    pub(crate) fn rate_to(
        &self,
        now: Instant,
        destination: &IpAddr,
        options: &CongestionOptions,
    ) -> Option<FlowRate> {
        let path = &self.paths[*self.by_address.get(destination)? as usize];
        path.pace.limiter.as_ref().map(|limiter| limiter.rate(now, options))
    }

    pub(crate) fn get(&self, id: PathId) -> &Path {
        &self.paths[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: PathId) -> &mut Path {
        &mut self.paths[id.0 as usize]
    }
}
