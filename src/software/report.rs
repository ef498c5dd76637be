//! What a device tells of itself to `uroce counters` and to whoever else may ask, line by line as
//! JSON.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::device::DeviceCounters;
use crate::engine::{Counters, Engine, QueuePairStatus};
use crate::link::LinkStatistics;
use crate::wire::Qpn;

/// Counts by their own names.
pub type Counts = BTreeMap<String, u64>;

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The device: the first line.
    Device(DeviceReport),
    /// A queue pair.
    QueuePair(PairReport),
    /// Why the question was not answered.
    Refused(String),
    /// The last line.
    End,
}

/// A device and what it has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// The process's number as it sees itself.
    pub process: u32,
    /// The program's name, 15 bytes at most.
    pub program: String,
    /// The device's name.
    pub device: String,
    /// The network interface; none if the device was opened over a link.
    pub interface: Option<String>,
    /// Nanoseconds since the process opened its first device; for rates.
    pub time: u64,
    /// Queue pairs at the moment.
    pub queue_pairs: usize,
    /// All counts, zero or not: the engine's, those of the link (`link_…`) and of sharing the port
    /// with other processes (`sharing_…`).
    pub counters: Counts,
}

/// A queue pair and what it has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairReport {
    /// Number.
    pub number: u32,
    /// Transport.
    pub kind: String,
    /// State.
    pub state: String,
    /// The peer's queue pair, if there is one.
    pub destination: Option<u32>,
    /// The peer's address, if there is one.
    pub peer: Option<IpAddr>,
    /// Counts that are not zero.
    pub counters: Counts,
}

/// Counts with names that `showing` has made fit to be shown.
fn shown(counts: Counts, showing: fn(&str) -> String) -> Counts {
    counts.into_iter().map(|(name, count)| (showing(&name), count)).collect()
}

impl PairReport {
    /// The same with texts that `showing` has made fit to be shown.
    pub(super) fn showing(self, showing: fn(&str) -> String) -> Self {
        let (kind, state) = (showing(&self.kind), showing(&self.state));
        Self { kind, state, counters: shown(self.counters, showing), ..self }
    }
}

impl DeviceReport {
    /// The same with texts that `showing` has made fit to be shown.
    pub(super) fn showing(self, showing: fn(&str) -> String) -> Self {
        Self {
            program: showing(&self.program),
            device: showing(&self.device),
            interface: self.interface.as_deref().map(showing),
            counters: shown(self.counters, showing),
            ..self
        }
    }

    /// All counts of a device by name.
    pub fn counts(counters: &DeviceCounters) -> Counts {
        let own = counters.engine.iter().map(|(name, count)| (name.to_owned(), count));
        let mut counts: Counts = own.collect();
        for (name, count) in link_counts(&counters.link) {
            counts.insert(format!("link_{name}"), count);
        }
        for (name, count) in counters.sharing.iter() {
            counts.insert(format!("sharing_{name}"), count);
        }
        *counts.entry("lost_async_events".to_owned()).or_default() += counters.lost_events;
        counts
    }
}

impl PairReport {
    /// The words for what was read.
    pub(super) fn of(read: &PairReading) -> Self {
        let attributes = &read.status.attributes;
        Self {
            number: read.number.value(),
            kind: read.status.kind.to_string(),
            state: attributes.state.map(|state| state.to_string()).unwrap_or_default(),
            destination: attributes.destination.map(Qpn::value),
            peer: attributes.address.map(|address| address.destination),
            counters: nonzero(&read.counters),
        }
    }
}

/// What is copied of a queue pair under the engine's lock; words are made of it afterwards.
pub(super) struct PairReading {
    number: Qpn,
    status: QueuePairStatus,
    counters: Counters,
}

impl PairReading {
    /// What the engine knows of a queue pair; nothing if it has ended.
    pub(super) fn take(engine: &Engine, number: Qpn) -> Option<Self> {
        let status = engine.query_queue_pair(number).ok()?;
        let counters = engine.queue_pair_counters(number).ok()?.clone();
        Some(Self { number, status, counters })
    }
}

fn nonzero(counters: &Counters) -> Counts {
    let counts = counters.iter().filter(|(_, count)| *count > 0);
    counts.map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Counts of a link by name, and nothing that the engine counts too.
fn link_counts(link: &LinkStatistics) -> [(&'static str, u64); 9] {
    [
        ("refused", link.refused),
        ("oversized", link.oversized),
        ("unreachable", link.unreachable),
        ("icmp_unreachable", link.icmp_unreachable),
        ("overflowed", link.overflowed),
        ("truncated", link.truncated),
        ("empty", link.empty),
        ("split", link.split),
        ("unrecorded", link.unrecorded),
    ]
}

/// The names that [`DeviceReport::counts`] adds to the engine's, with their meanings.
pub const OUTER_COUNTS: [(&str, &str); 17] = [
    (
        "link_refused",
        "Packets that the network below refused to send: full queue, no route, too large.",
    ),
    ("link_oversized", "Of the refused ones, those larger than the path allows."),
    ("link_unreachable", "Packets to an address that nobody has (in-memory links only)."),
    (
        "link_icmp_unreachable",
        "ICMP errors that came back: the peer's port is closed, or no way leads to it.",
    ),
    ("link_overflowed", "Arrivals lost because the socket's receive buffer was full."),
    ("link_truncated", "Arrivals larger than a receive buffer, discarded."),
    ("link_empty", "Arrivals without a single byte or a sender, discarded."),
    ("link_split", "Bursts sent packet by packet because the kernel refused to segment them."),
    ("link_unrecorded", "Packets missing in the capture because its file could not be written."),
    ("sharing_forwarded", "Packets that arrived here for another process and were handed over."),
    ("sharing_forward_overflowed", "Packets for another process that did not keep up: lost."),
    ("sharing_unclaimed", "Packets for a slot that no process owns."),
    ("sharing_received_forwarded", "Packets that another process handed over to this one."),
    ("sharing_misdirected", "Messages of other processes that were not for this one, dropped."),
    ("sharing_refused_connections", "Connections of users who have no business here, or too many."),
    ("sharing_programs_attached", "Steering programs that this process attached."),
    ("sharing_takeovers", "Times that this process took over the port as its owner's guest."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkStatistics;
    use crate::software::SharingStatistics;

    #[test]
    fn every_count_around_the_engine_has_a_meaning() {
        let counts = DeviceReport::counts(&DeviceCounters {
            engine: Counters::default(),
            link: LinkStatistics::default(),
            sharing: SharingStatistics::default(),
            lost_events: 3,
        });
        assert_eq!(counts["lost_async_events"], 3);
        let outer =
            counts.keys().filter(|name| name.starts_with("link_") && *name != "link_downed");
        let outer = outer.chain(counts.keys().filter(|name| name.starts_with("sharing_")));
        let mut found: Vec<&str> = outer.map(String::as_str).collect();
        let mut told: Vec<&str> = OUTER_COUNTS.iter().map(|(name, _)| *name).collect();
        found.sort_unstable();
        told.sort_unstable();
        assert_eq!(found, told);
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for line in [Line::End, Line::Refused("why".to_owned())] {
            let text = serde_json::to_string(&line).unwrap();
            assert!(!text.contains('\n'));
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
        }
    }
}
