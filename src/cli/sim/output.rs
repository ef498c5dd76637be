//! What `uroce sim` says, to people and to machines.

use std::process::ExitCode;

use serde::Serialize;
use uroce::sim::{
    Column, ExhaustiveReport, Failure as Broken, Matrix, Row, RunReport, Scenario, Summary,
};

use super::super::output::{Failure, print};
use super::super::text::{Palette, Tone, count, hanging};
use super::{SimArgs, first_seed};

/// Everything that is told.
#[derive(Serialize, Default)]
struct Report {
    runs: u64,
    requests: u64,
    completions: u64,
    reconnections: u64,
    packets: u64,
    disturbances: u64,
    virtual_seconds: f64,
    processor_seconds: f64,
    packets_per_processor_second: f64,
    matrix: Vec<Cell>,
    scenarios: Vec<Small>,
    failures: Vec<BrokenPromise>,
}

impl Report {
    /// `processor`: nanoseconds that all threads have used.
    fn with_speed(self, processor: u64) -> Self {
        Self {
            processor_seconds: processor as f64 / 1e9,
            packets_per_processor_second: speed(self.packets, processor),
            ..self
        }
    }
}

/// Packets a second of one core.
fn speed(packets: u64, processor: u64) -> f64 {
    packets as f64 * 1e9 / processor.max(1) as f64
}

fn speed_in_words(packets: u64, processor: u64) -> String {
    let (seconds, speed) = (processor as f64 / 1e9, speed(packets, processor) / 1e6);
    format!("{seconds:.3} s of processor time, {speed:.3} million packets a second of a processor")
}

#[derive(Serialize)]
struct Cell {
    operation: &'static str,
    fault: &'static str,
    count: u64,
}

#[derive(Serialize)]
struct Small {
    name: String,
    schedules: u64,
    packets: u64,
}

#[derive(Serialize)]
struct BrokenPromise {
    /// The command that shows it again.
    replay: String,
    rule: String,
    text: String,
    /// Virtual seconds.
    time: String,
    events: Vec<String>,
}

/// Tells of one run.
pub(super) fn one(
    args: &SimArgs,
    scenario: &Scenario,
    report: RunReport,
    processor: u64,
    palette: Palette,
) -> Result<ExitCode, Failure> {
    let (hash, tally) = (report.hash, report.tally);
    let mut summary = Summary::default();
    summary.add(report);
    if !args.json {
        print(&describe(scenario))?;
        print(&format!(
            "faults met: {} lost, {} corrupted, {} late, {} twice, {} not ready; frames hash {hash:016x}",
            tally.lost, tally.corrupted, tally.late, tally.duplicated, tally.not_ready
        ))?;
    }
    many(args, &summary, processor, palette)
}

fn describe(scenario: &Scenario) -> String {
    let connections: Vec<String> = scenario
        .connections
        .iter()
        .map(|connection| {
            let [first, second] = &connection.ends;
            format!(
                "{}-{} (path MTU {}, {}+{} requests)",
                first.node,
                second.node,
                connection.path_mtu.bytes(),
                first.requests.len(),
                second.requests.len()
            )
        })
        .collect();
    let unacked = scenario
        .unacked
        .iter()
        .map(|plan| format!("{} on {} ({} requests)", plan.kind, plan.node, plan.requests.len()));
    let shared = scenario.shared.iter().flat_map(|shared| {
        shared.links.iter().map(|link| {
            let requests = link.requests.len();
            let kind = format!("{:?}", link.kind).to_uppercase();
            format!("{kind} from {} to shared queues ({requests} requests)", link.node)
        })
    });
    let connections: Vec<String> = connections.into_iter().chain(unacked).chain(shared).collect();
    let family = if scenario.ipv6 { "IPv6" } else { "IPv4" };
    let nodes = count(scenario.nodes.len() as u64, "node");
    let connections = connections.join(", ");
    let name = &scenario.name;
    hanging("scenario: ", &format!("{name}, {nodes} over {family}; connections {connections}"))
}

/// Tells of many runs, which may be one.
pub(super) fn many(
    args: &SimArgs,
    summary: &Summary,
    processor: u64,
    palette: Palette,
) -> Result<ExitCode, Failure> {
    let failures: Vec<BrokenPromise> = summary
        .failures
        .iter()
        .filter_map(|run| Some(broken(replay_seed(args, run.seed), run.failure.as_ref()?)))
        .collect();
    let virtual_seconds = summary.virtual_ns as f64 / 1e9;
    if !args.json {
        let totals = format!(
            "{}, {}, {}, {}, {virtual_seconds:.3} s of virtual time, {}",
            count(summary.requests, "request"),
            count(summary.completions, "completion"),
            count(summary.reconnections, "reconnection"),
            count(summary.packets, "packet"),
            speed_in_words(summary.packets, processor),
        );
        let last = first_seed(args).saturating_add(summary.runs.saturating_sub(1));
        let seeds = match (&args.schedule, summary.runs) {
            (Some(_), _) | (_, 0 | 1) => String::new(),
            _ => format!(" (seeds {} to {last})", first_seed(args)),
        };
        let runs = format!("{}{seeds}: ", count(summary.runs, "run"));
        print(&format!("{}\n", hanging(&runs, &totals)))?;
        print(&summary.matrix.to_string())?;
        return verdict(&failures, palette);
    }
    let report = Report {
        runs: summary.runs,
        requests: summary.requests,
        completions: summary.completions,
        reconnections: summary.reconnections,
        packets: summary.packets,
        disturbances: summary.disturbances,
        virtual_seconds,
        matrix: cells(&summary.matrix),
        scenarios: Vec::new(),
        failures,
        ..Report::default()
    };
    print_json(&report.with_speed(processor))
}

/// Tells of exhaustive schedules.
pub(super) fn exhaustive(
    args: &SimArgs,
    reports: &[ExhaustiveReport],
    processor: u64,
    palette: Palette,
) -> Result<ExitCode, Failure> {
    let failures: Vec<BrokenPromise> = reports
        .iter()
        .filter_map(|report| {
            let (fates, failure) = report.failure.as_ref()?;
            Some(broken(format!("uroce sim --schedule {}:{fates}", report.name), failure))
        })
        .collect();
    let runs = reports.iter().map(|report| report.runs).sum();
    let packets = reports.iter().map(|report| report.packets).sum();
    if !args.json {
        for report in reports {
            print(&report.to_string())?;
        }
        let (schedules, sent) = (count(runs, "schedule"), count(packets, "packet"));
        print(&format!("\n{schedules}, {sent}, {}", speed_in_words(packets, processor)))?;
        return verdict(&failures, palette);
    }
    let small = |report: &ExhaustiveReport| Small {
        name: report.name.clone(),
        schedules: report.runs,
        packets: report.packets,
    };
    let scenarios = reports.iter().map(small).collect();
    let report = Report { runs, packets, scenarios, failures, ..Report::default() };
    print_json(&report.with_speed(processor))
}

fn print_json(report: &Report) -> Result<ExitCode, Failure> {
    print(&serde_json::to_string(report)?)?;
    Ok(ExitCode::from(u8::from(!report.failures.is_empty())))
}

/// Prints each failure: the line that replays it, what was broken, what came before.
fn verdict(failures: &[BrokenPromise], palette: Palette) -> Result<ExitCode, Failure> {
    for failure in failures {
        print(&format!("\n{} {}", palette.paint(Tone::Bad, "replay:"), failure.replay))?;
        print(&hanging(&format!("after {} s: ", failure.time), &failure.text))?;
        print(&format!("broken promise: {}", failure.rule))?;
        for event in &failure.events {
            print(&format!("  {event}"))?;
        }
    }
    if failures.is_empty() {
        print(&format!("\n{}", palette.paint(Tone::Good, "every promise was kept")))?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

fn broken(replay: String, failure: &Broken) -> BrokenPromise {
    BrokenPromise {
        replay,
        rule: failure.violation.rule.to_string(),
        text: failure.violation.text.clone(),
        time: failure.at.to_string(),
        events: failure.events.clone(),
    }
}

fn replay_seed(args: &SimArgs, seed: u64) -> String {
    if let Some(schedule) = &args.schedule {
        return format!("uroce sim --schedule {schedule}");
    }
    match &args.faults {
        Some(faults) => format!("uroce sim --seed {seed} --faults {faults}"),
        None => format!("uroce sim --seed {seed}"),
    }
}

fn cells(matrix: &Matrix) -> Vec<Cell> {
    let cells = Row::ALL.iter().flat_map(|row| Column::ALL.iter().map(|column| (*row, *column)));
    cells
        .filter(|(row, column)| Matrix::applies(*row, *column))
        .map(|(row, column)| Cell {
            operation: row.name(),
            fault: column.name(),
            count: matrix.count(row, column),
        })
        .collect()
}
