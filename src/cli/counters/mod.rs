//! `uroce counters`: what the devices of running processes have counted.

mod names;
mod prometheus;
mod text;
mod watch;

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;
use uroce::software::{
    CounterName, DeviceReport, NameSet, ObserveError, Observed, PairReport, Question, observable,
};

use super::output::{self, Failure};
use super::text::{ColorChoice, Palette};

/// What the devices of running processes have counted: packets, drops by reason, errors.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct CountersArgs {
    /// Process number, program name or device name; without one, all processes are listed
    #[arg(value_name = "PID|NAME")]
    process: Option<String>,
    /// Only this queue pair, such as 0x12000a or 1179658
    #[arg(long, value_name = "NUMBER", value_parser = parse_number)]
    qp: Option<u32>,
    /// Whose names: uroce's own, those of Linux's rxe driver, those of mlx5 (ConnectX), or all
    #[arg(long, value_enum, default_value_t, value_name = "SET")]
    names: Names,
    /// Counts that are zero, too
    #[arg(short = 'a', long)]
    all: bool,
    /// Show what changes, again and again, with rates
    #[arg(long, conflicts_with_all = ["json", "prometheus"])]
    watch: bool,
    /// Seconds between looks with --watch
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Looks with --watch; without, until interrupted
    #[arg(long, value_name = "NUMBER")]
    looks: Option<u32>,
    /// One JSON object a device and line instead of text
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Prometheus text format, for a scraper such as node_exporter's textfile collector
    #[arg(long)]
    prometheus: bool,
    /// When to use colours; auto heeds NO_COLOR
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    color: ColorChoice,
}

/// Which names to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Names {
    /// Our own.
    #[default]
    Uroce,
    /// Those of rxe.
    Rxe,
    /// Those of mlx5.
    Mlx5,
    /// Everything.
    All,
}

impl Names {
    /// The sets of other drivers that are shown.
    fn sets(self) -> &'static [NameSet] {
        match self {
            Self::Uroce => &[],
            Self::Rxe => &[NameSet::Rxe],
            Self::Mlx5 => &[NameSet::Mlx5],
            Self::All => &[NameSet::Rxe, NameSet::Mlx5],
        }
    }

    /// Whether our own are.
    fn own(self) -> bool {
        matches!(self, Self::Uroce | Self::All)
    }
}

const HELP: &str = "\
Every process with a software device answers, to its own user and to root. Asking costs the process
next to nothing and never delays its packets. docs/counters.md explains each name.

Examples:
  uroce counters                         which processes there are
  uroce counters 4711                    what process 4711 has counted
  uroce counters ib_write_bw --watch     rates, once a second
  uroce counters 4711 --qp 0x12000a -a   one queue pair, zero counts too
  uroce counters --names mlx5 --json     all processes, as monitoring of ConnectX knows it

Exit status: 0 if a device answered, 1 if there is none, 2 for wrong usage or no answer.

--json, whose fields stay, one object a device: process, program, device, interface (null without),
time (nanoseconds, for rates), counters {name: count} of the device; queue_pairs: list of {number,
kind, state, destination, peer, counters (those that are not zero)}. With --names rxe or mlx5 the
counters have those names; with all, {uroce, rxe, mlx5}: {name: count}.";

/// What one device answered.
#[derive(Debug)]
struct Answer {
    device: DeviceReport,
    pairs: Vec<PairReport>,
}

/// Runs the subcommand.
pub fn run(args: &CountersArgs) -> Result<ExitCode, Failure> {
    let chosen = choose(observable()?, args.process.as_deref())?;
    let palette = Palette::new(args.color);
    if args.watch {
        return watch::run(args, &chosen, palette);
    }
    if args.process.is_none() && args.qp.is_none() && !args.json && !args.prometheus {
        return list(&chosen, palette);
    }
    let answers = ask_all(&chosen, args.qp)?;
    let text = if args.json {
        json(&answers, args.names)?
    } else if args.prometheus {
        prometheus::text(&answers, args.names)
    } else {
        let shown = |answer| text::lines(answer, args, palette).join("\n");
        answers.iter().map(shown).collect::<Vec<_>>().join("\n\n")
    };
    output::print(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// The devices that are meant.
fn choose(found: Vec<Observed>, wanted: Option<&str>) -> Result<Vec<Observed>, Failure> {
    if found.is_empty() {
        return Err(Failure::bad(
            "no process with a RoCE device is running in this network namespace. Start one, for \
             example `uroce pingpong -d lo` in another terminal, and look again",
        ));
    }
    let Some(wanted) = wanted else { return Ok(found) };
    let is_meant = |device: &Observed| {
        wanted.parse() == Ok(device.process)
            || [&device.program, &device.device].contains(&&wanted.to_owned())
    };
    let (chosen, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_meant);
    if chosen.is_empty() {
        let mut list: Vec<String> =
            others.iter().map(|other| format!("{} ({})", other.process, other.program)).collect();
        list.dedup();
        return Err(Failure::bad(format!(
            "no process or device `{wanted}`; these have RoCE devices: {}",
            list.join(", ")
        )));
    }
    Ok(chosen)
}

/// Asks each device; the answers of those that give one, or the first error if none does.
fn ask_all(devices: &[Observed], qp: Option<u32>) -> Result<Vec<Answer>, Failure> {
    let mut answers = Vec::new();
    let mut errors: Vec<(&Observed, ObserveError)> = Vec::new();
    for device in devices {
        match ask(device, qp.map_or(Question::All, Question::QueuePair)) {
            Ok(answer) => answers.push(answer),
            Err(error) => errors.push((device, error)),
        }
    }
    if !answers.is_empty() && !errors.is_empty() {
        // Whoever has ended since the list was made is no failure beside those who answer.
        let left = observable()?;
        errors.retain(|(device, _)| left.contains(device));
    }
    let mut errors = errors.into_iter().map(|(_, error)| error);
    if let Some(number) = qp {
        answers.retain(|answer| !answer.pairs.is_empty());
        if answers.is_empty() && errors.len() == 0 {
            return Err(Failure::bad(format!(
                "there is no queue pair {number:#x} there; without --qp all are listed"
            )));
        }
    }
    if answers.is_empty() {
        return Err(errors.next().map_or_else(|| Failure::bad("nobody answers"), Failure::from));
    }
    errors.for_each(|error| Failure::from(error).tell());
    Ok(answers)
}

fn ask(device: &Observed, question: Question) -> Result<Answer, ObserveError> {
    let mut pairs = Vec::new();
    let device = device.ask(question, |pair| pairs.push(pair))?;
    Ok(Answer { device, pairs })
}

/// The processes, when none was named.
fn list(devices: &[Observed], palette: Palette) -> Result<ExitCode, Failure> {
    let mut lines = vec![text::list_head(palette)];
    let mut answered = false;
    for device in devices {
        match ask(device, Question::Device) {
            Ok(answer) => {
                answered = true;
                lines.push(text::list_line(&answer.device));
            }
            Err(error) => lines.push(text::list_failure(device, &error)),
        }
    }
    lines.push(String::new());
    lines.push("`uroce counters PROCESS` shows what one has counted.".to_owned());
    output::print(&lines.join("\n"))?;
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

#[derive(Serialize)]
struct Json<'a> {
    process: u32,
    program: &'a str,
    device: &'a str,
    interface: Option<&'a str>,
    time: u64,
    counters: serde_json::Value,
    queue_pairs: Vec<JsonPair<'a>>,
}

#[derive(Serialize)]
struct JsonPair<'a> {
    number: u32,
    kind: &'a str,
    state: &'a str,
    destination: Option<u32>,
    peer: Option<std::net::IpAddr>,
    counters: serde_json::Value,
}

fn json(answers: &[Answer], names: Names) -> Result<String, Failure> {
    let lines = answers.iter().map(|Answer { device, pairs }| {
        let pairs = pairs.iter().map(|pair| JsonPair {
            number: pair.number,
            kind: &pair.kind,
            state: &pair.state,
            destination: pair.destination,
            peer: pair.peer,
            counters: names::json(&pair.counters, names, false),
        });
        serde_json::to_string(&Json {
            process: device.process,
            program: &device.program,
            device: &device.device,
            interface: device.interface.as_deref(),
            time: device.time,
            counters: names::json(&device.counters, names, true),
            queue_pairs: pairs.collect(),
        })
    });
    Ok(lines.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// A queue pair number as people write it: decimal, or hexadecimal after `0x`.
fn parse_number(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // The standard library would take a sign.
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number
        .filter(|number| *number < 1 << 24)
        .ok_or_else(|| "a queue pair number is below 2^24, decimal or as 0x1a".to_owned())
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "give seconds from 0.01 to 86400".to_owned())
}

/// What a name of another driver stands for.
fn entry(set: NameSet, name: &str) -> Option<&'static CounterName> {
    CounterName::all(set).iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_intervals_are_read_as_people_write_them() {
        assert_eq!((parse_number("0x1A"), parse_number("26")), (Ok(26), Ok(26)));
        assert_eq!(parse_number("0X1a"), Ok(26));
        for wrong in ["", "0x", "0x+1", "x", "-1", "16777216", "0x1000000"] {
            assert!(parse_number(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_interval("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "x", "NaN", "1e9"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
        assert!(entry(NameSet::Rxe, "sent_pkts").is_some());
    }
}
