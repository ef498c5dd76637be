//! No more packets than the requests need and the disturbances explain.

use super::matrix::Row;
use super::network::Tally;
use super::oracle::{Rule, Violation};
use super::scenario::{Operation, Scenario};

/// Packets that one disturbance may cost at most: what can be under way of a connection, whose
/// window has grown.
const COST_OF_DISTURBANCE: u64 = 300;

/// Where a line is slower or a way longer, a full queue may outlast the probe timer.
const FAST_LINE: u64 = 10_000_000_000;
const SHORT_WAY: u64 = 12_000;
/// Where a way is as long as this, probes come before answers.
const LONG_WAY: u64 = 100_000;

/// Packets with payload, or that ask for it, if each is sent once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ideal {
    /// Of SENDs and WRITEs.
    payload: u64,
    /// READ responses, those to ATOMIC WRITE and FLUSH included.
    responses: u64,
    /// Atomic operations.
    atomics: u64,
    /// READs, ATOMIC WRITEs and FLUSHes.
    reads: u64,
}

fn ideal(scenario: &Scenario) -> Ideal {
    let mut ideal = Ideal::default();
    for connection in &scenario.connections {
        let mtu = connection.path_mtu.bytes();
        for request in connection.ends.iter().flat_map(|end| &end.requests) {
            ideal.add(request.operation, request.length, mtu);
        }
    }
    let links = scenario.shared.iter().flat_map(|shared| &shared.links);
    for link in links.filter(|link| link.kind.is_reliable()) {
        for request in &link.requests {
            ideal.add(request.operation, request.length, link.path_mtu.bytes());
        }
    }
    ideal
}

impl Ideal {
    fn add(&mut self, operation: Operation, length: usize, mtu: usize) {
        let packets = length.div_ceil(mtu).max(1) as u64;
        match operation {
            Operation::Read => {
                self.reads += 1;
                self.responses += packets;
            }
            Operation::CompareSwap | Operation::FetchAdd => self.atomics += 1,
            Operation::AtomicWrite | Operation::Flush => {
                self.reads += 1;
                self.responses += 1;
            }
            Operation::LocalInvalidate | Operation::BindWindow => {}
            _ => self.payload += packets,
        }
    }
}

/// Checks a finished run.
pub(super) fn check(
    scenario: &Scenario,
    tally: &Tally,
    reconnections: u64,
) -> Result<(), Violation> {
    let ideal = ideal(scenario);
    let complain = |text: String| Err(Violation::new(Rule::Economy, text));
    let fillers = requests(scenario);
    let needed = ideal.payload + ideal.responses + 2 * ideal.atomics + 2 * ideal.reads;
    let disturbances = tally.disturbances() + 4 * reconnections;
    let is_far = scenario.network.latency.1 + scenario.network.faults.delay >= LONG_WAY;
    // Half again for acknowledgements and fillers; where a way is long, for early probes too.
    let undisturbed = if is_far { 2 * needed } else { needed + needed / 2 };
    let bound = undisturbed + 2 * fillers + disturbances * COST_OF_DISTURBANCE;
    let carried = Row::UNACKED.iter().fold(tally.packets(), |left, row| left - tally.of(*row));
    if carried > bound {
        return complain(format!(
            "{carried} packets for {needed} that are needed and {disturbances} disturbances"
        ));
    }
    if tally.other > tally.marked {
        let (notifications, marks) = (tally.other, tally.marked);
        return complain(format!("{notifications} congestion notifications for {marks} marks"));
    }
    let is_fast = scenario.network.rate >= FAST_LINE && scenario.network.latency.1 <= SHORT_WAY;
    let is_plain = scenario.is_clean() && !scenario.has_defects() && reconnections == 0;
    if !is_plain || !is_fast || tally.not_ready > 0 {
        return Ok(());
    }
    let answered = tally.of(Row::ReadResponse);
    if answered != ideal.responses {
        return complain(format!("{answered} READ responses instead of {}", ideal.responses));
    }
    let atomics = tally.of(Row::CompareSwap) + tally.of(Row::FetchAdd) + tally.of(Row::XrcAtomic);
    if atomics != ideal.atomics || tally.of(Row::AtomicAnswer) != ideal.atomics {
        return complain(format!("{atomics} atomic requests instead of {}", ideal.atomics));
    }
    if tally.of(Row::Nak) > 0 {
        return complain(format!("{} NAKs though nothing was lost", tally.of(Row::Nak)));
    }
    Ok(())
}

/// Each request may be followed by an empty WRITE that covers unsignaled ones.
fn requests(scenario: &Scenario) -> u64 {
    let ends = scenario.connections.iter().flat_map(|connection| &connection.ends);
    ends.map(|end| end.requests.len() as u64).sum()
}
