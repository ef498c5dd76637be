//! `uroce sim --scenario`: flows that meet in a switch, as a table, pictures or JSON.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;
use uroce::engine::CongestionOptions;
use uroce::sim::{FabricPlan, FabricReport, FabricScenario, FlowReport, PfcPlan};
use uroce::time::{Instant, SECOND};

use super::super::output::{Failure, print};
use super::super::text::{Palette, Tone, count, hanging};

/// Options that go with --scenario.
#[derive(Args, Debug)]
#[command(next_help_heading = "Flows that meet in a switch")]
pub struct FabricArgs {
    /// Runs flows through a switch instead of seeds; `list` tells which scenarios there are
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["seeds", "faults", "exhaustive", "schedule", "pcap"])]
    pub scenario: Option<String>,
    /// How many hosts send, instead of the scenario's own number
    #[arg(long, value_name = "N", requires = "scenario",
          value_parser = clap::value_parser!(u8).range(1..=200))]
    senders: Option<u8>,
    /// Whether the switch pauses who fills it (priority flow control) [default: off]
    #[arg(long, value_name = "WHETHER", requires = "scenario")]
    pfc: Option<Switch>,
    /// Bits a second of each line, such as 40G [default: 10G]
    #[arg(long, value_name = "RATE", requires = "scenario", value_parser = rate)]
    rate: Option<u64>,
    /// Virtual time to run, such as 200ms [default: 50ms]
    #[arg(long, value_name = "TIME", requires = "scenario", value_parser = time)]
    time: Option<u64>,
    /// Parameters of congestion control, as UROCE_CONGESTION has them: off, or such as
    /// rpg_ai_rate=5,dce_tcp_g=1019
    #[arg(long, value_name = "LIST", requires = "scenario")]
    congestion: Option<CongestionOptions>,
    /// Bytes in a queue up to which nothing is marked [default: 5000]
    #[arg(long, value_name = "BYTES", requires = "scenario")]
    kmin: Option<u64>,
    /// Bytes in a queue above which everything is marked [default: 100000]
    #[arg(long, value_name = "BYTES", requires = "scenario")]
    kmax: Option<u64>,
    /// Percent of packets that are marked at kmax, rising from none at kmin [default: 20]
    #[arg(long, value_name = "PERCENT", requires = "scenario",
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pmax: Option<u8>,
    /// Bytes that a queue holds before packets are dropped [default: 1000000]
    #[arg(long, value_name = "BYTES", requires = "scenario")]
    buffer: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Reads a rate; k, M and G count in thousands.
fn rate(text: &str) -> Result<u64, String> {
    amount(text, &[("", 1), ("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)])
        .filter(|rate| (1_000_000..=400_000_000_000).contains(rate))
        .ok_or_else(|| "expected 1M to 400G bits a second".to_owned())
}

/// Reads a time in nanoseconds.
fn time(text: &str) -> Result<u64, String> {
    amount(text, &[("us", 1_000), ("ms", 1_000_000), ("s", SECOND)])
        .filter(|time| (10_000..=60 * SECOND).contains(time))
        .ok_or_else(|| "expected 10us to 60s, such as 50ms".to_owned())
}

fn amount(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Runs the scenario called `name`, or tells which there are.
pub(super) fn run(
    args: &FabricArgs,
    name: &str,
    seed: u64,
    json: bool,
    palette: Palette,
) -> Result<ExitCode, Failure> {
    if name == "list" {
        return list(json);
    }
    let Some(scenario) = FabricScenario::find(name) else {
        let names: Vec<&str> = FabricScenario::all().iter().map(|one| one.name).collect();
        let names = names.join(", ");
        return Err(Failure::usage(format!("no scenario `{name}`; there are {names}, and list")));
    };
    let report = plan(args, scenario, seed)?.run();
    if json {
        print(&serde_json::to_string(&Json::of(&report))?)?;
    } else {
        print(&picture(&report, scenario, palette))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) -> Result<ExitCode, Failure> {
    if json {
        let all: Vec<_> = FabricScenario::all().iter().map(Listed::of).collect();
        print(&serde_json::to_string(&all)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for FabricScenario { name, text, senders, .. } in FabricScenario::all() {
        print(&hanging(&format!("{name:12}"), &format!("{text} ({senders} senders)")))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    text: &'static str,
    senders: usize,
}

impl Listed {
    fn of(scenario: &FabricScenario) -> Self {
        Self { name: scenario.name, text: scenario.text, senders: scenario.senders }
    }
}

fn plan(args: &FabricArgs, scenario: &FabricScenario, seed: u64) -> Result<FabricPlan, Failure> {
    let senders = args.senders.map_or(scenario.senders, usize::from);
    let end = Instant::from_nanos(args.time.unwrap_or(50_000_000));
    let mut plan = scenario.plan_until(senders, seed, end);
    plan.rate = args.rate.unwrap_or(plan.rate);
    plan.congestion = args.congestion.unwrap_or(plan.congestion);
    plan.switch.pfc = (args.pfc == Some(Switch::On)).then(PfcPlan::default);
    plan.switch.kmin = args.kmin.unwrap_or(plan.switch.kmin);
    plan.switch.kmax = args.kmax.unwrap_or(plan.switch.kmax);
    plan.switch.buffer = args.buffer.unwrap_or(plan.switch.buffer);
    plan.switch.pmax = args.pmax.map_or(plan.switch.pmax, |percent| f64::from(percent) / 100.0);
    if plan.switch.kmin > plan.switch.kmax {
        let (kmin, kmax) = (plan.switch.kmin, plan.switch.kmax);
        return Err(Failure::usage(format!("--kmin {kmin} is above --kmax {kmax}")));
    }
    Ok(plan)
}

/// The steps of a bar.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of a picture.
const COLUMNS: usize = 50;

/// One column for each of at most 50 parts of the series, as high as its mean is of `full`.
fn bars(series: &[f64], full: f64) -> String {
    let columns = series.len().clamp(1, COLUMNS);
    let column = |index: usize| {
        let part = &series[index * series.len() / columns..(index + 1) * series.len() / columns];
        let mean = part.iter().sum::<f64>() / part.len().max(1) as f64;
        let share = (mean / full.max(1.0)).clamp(0.0, 1.0);
        // Anything at all is to be seen.
        let step = (share * 8.0).round().max(if mean > 0.0 { 1.0 } else { 0.0 });
        BARS[step as usize]
    };
    (0..columns).map(column).collect()
}

fn picture(report: &FabricReport, scenario: &FabricScenario, palette: Palette) -> String {
    let plan = &report.plan;
    let mut text = hanging(&format!("{}: ", scenario.name), scenario.text);
    let pfc = if plan.switch.pfc.is_some() { "on" } else { "off" };
    let control = if plan.congestion.ecn { "DCQCN" } else { "no congestion control" };
    let milliseconds = plan.end.as_nanos() as f64 / 1e6;
    let _ = write!(
        text,
        "\n{}, {control}, lines of {}bit/s, PFC {pfc}, {milliseconds} ms, seed {}\n\n",
        count(plan.flows.len() as u64, "flow"),
        short(plan.rate as f64),
        plan.seed
    );
    // Of the fastest flow: of a line that many share each has too little to see it move.
    let rates = report.flows.iter().flat_map(|flow| flow.rates.iter().copied());
    let full = rates.fold(1.0, f64::max);
    let what = format!("over time, full height is {}bit/s", short(full));
    let heading = format!("{:<22}{:>9}  {what}", "flow", "goodput");
    let _ = writeln!(text, "{}", palette.paint(Tone::Title, &heading));
    for flow in &report.flows {
        let (from, to, carrier) = (flow.plan.from, flow.plan.to, flow.plan.carrier.name());
        let name = format!("{from} → {to} {carrier}");
        let goodput = short(flow.goodput());
        let _ = writeln!(text, "{name:<22}{goodput:>9}  {}", bars(&flow.rates, full));
    }
    let depths: Vec<f64> = report.depths.iter().map(|depth| *depth as f64).collect();
    let most = report.depths.iter().copied().max().unwrap_or(0);
    let queue = format!("queue to host {}", report.port);
    let _ = writeln!(text, "{queue:<22}{:>9}  {}", short(most as f64), bars(&depths, most as f64));
    for (name, series) in [
        ("packets marked", &report.marks),
        ("CNPs heeded", &report.notifications),
        ("packets dropped", &report.drops),
        ("pauses", &report.pauses),
    ] {
        let values: Vec<f64> = series.iter().map(|value| *value as f64).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let sum: u64 = series.iter().sum();
        let _ = writeln!(text, "{name:<22}{sum:>9}  {}", bars(&values, most));
    }
    let share = report.goodput() / plan.rate as f64 * 100.0;
    let again = count(report.repeated, "packet");
    let _ = write!(
        text,
        "\ngoodput of all flows: {share:.1} % of one line; {again} sent again; the queue's picture is \
         of its\npeaks, full height is the highest"
    );
    text
}

/// Three digits and a letter for thousands.
fn short(value: f64) -> String {
    let units = [(1e9, " G"), (1e6, " M"), (1e3, " k")];
    match units.into_iter().find(|(unit, _)| value >= *unit) {
        Some((unit, letter)) => format!("{:.2}{letter}", value / unit),
        None => format!("{value:.0} "),
    }
}

/// Everything of a run; fields stay.
#[derive(Serialize)]
struct Json<'a> {
    scenario: &'a str,
    seed: u64,
    hosts: usize,
    line_rate: u64,
    line_delay: f64,
    duration: f64,
    bin: f64,
    kmin: u64,
    kmax: u64,
    pmax: f64,
    buffer: u64,
    pfc: Option<Pfc>,
    congestion: String,
    flows: Vec<Flow<'a>>,
    queue: Queue<'a>,
    marks: &'a [u64],
    cnps: &'a [u64],
    drops: &'a [u64],
    pauses: &'a [u64],
    repeated: u64,
    goodput: f64,
}

#[derive(Serialize)]
struct Pfc {
    xoff: u64,
    xon: u64,
}

#[derive(Serialize)]
struct Flow<'a> {
    from: usize,
    to: usize,
    carrier: &'static str,
    start: f64,
    stop: f64,
    goodput: f64,
    payload_bytes: u64,
    line_bytes: u64,
    rates: &'a [f64],
    limits: &'a [f64],
}

#[derive(Serialize)]
struct Queue<'a> {
    host: usize,
    depths: &'a [u64],
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

impl<'a> Json<'a> {
    fn of(report: &'a FabricReport) -> Self {
        let FabricPlan { switch, congestion, .. } = &report.plan;
        Self {
            scenario: report.plan.name,
            seed: report.plan.seed,
            hosts: report.plan.hosts,
            line_rate: report.plan.rate,
            line_delay: seconds(report.plan.delay),
            duration: seconds(report.plan.end.as_nanos()),
            bin: seconds(report.plan.bin),
            kmin: switch.kmin,
            kmax: switch.kmax,
            pmax: switch.pmax,
            buffer: switch.buffer,
            pfc: switch.pfc.map(|PfcPlan { xoff, xon }| Pfc { xoff, xon }),
            congestion: congestion.to_string(),
            flows: report.flows.iter().map(Flow::of).collect(),
            queue: Queue { host: report.port, depths: &report.depths },
            marks: &report.marks,
            cnps: &report.notifications,
            drops: &report.drops,
            pauses: &report.pauses,
            repeated: report.repeated,
            goodput: report.goodput(),
        }
    }
}

impl<'a> Flow<'a> {
    fn of(flow: &'a FlowReport) -> Self {
        Self {
            from: flow.plan.from,
            to: flow.plan.to,
            carrier: flow.plan.carrier.name(),
            start: seconds(flow.plan.start.as_nanos()),
            stop: seconds(flow.plan.stop.as_nanos()),
            goodput: flow.goodput(),
            payload_bytes: flow.payload,
            line_bytes: flow.bytes,
            rates: &flow.rates,
            limits: &flow.limits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_have_units() {
        assert_eq!(rate("40G"), Ok(40_000_000_000));
        assert_eq!(rate("2500M"), Ok(2_500_000_000));
        assert!(rate("1").is_err() && rate("fast").is_err() && rate("99999999999G").is_err());
        assert_eq!(time("50ms"), Ok(50_000_000));
        assert!(time("50").is_err() && time("0s").is_err() && time("ms").is_err());
    }

    #[test]
    fn bars_are_as_high_as_the_share_and_never_empty_for_something() {
        assert_eq!(bars(&[0.0, 0.01, 4.0, 8.0, 9.0], 8.0), " ▁▄██");
        assert_eq!(bars(&[8.0; 500], 8.0).chars().count(), COLUMNS);
        assert_eq!(bars(&[], 8.0).chars().count(), 1);
    }
}
