//! `uroce sim`: the simulator, one seed or many, or every schedule of small scenarios.

mod fabric;
mod output;

use std::fs::File;
use std::io::BufWriter;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;

use clap::Args;
use uroce::fault::{Directions, FaultPlan, Share};
use uroce::pcap::{Format, Writer};
use uroce::sim::{Exhaustive, ExhaustiveReport, Keep, Scenario, Summary, run_many};

use super::output::{Failure, progress};
use super::processor::processor_time;
use super::text::{ColorChoice, Palette};

/// Runs engines in a deterministic world with faults and judges them by an oracle
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct SimArgs {
    /// First seed, which decides everything in a run [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many seeds to run: 1 if --seed is given, else 100
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Faults instead of the seed's own, such as loss=1%,reorder=2%,delay=50us
    #[arg(long, visible_alias = "fault", value_name = "LIST")]
    faults: Option<FaultPlan>,
    /// Every fate of the first packets of small scenarios, instead of seeds
    #[arg(long, conflicts_with_all = ["seed", "seeds", "faults"])]
    exhaustive: bool,
    /// How many packets --exhaustive tries all five fates for
    #[arg(long, value_name = "PACKETS", default_value_t = 5,
          value_parser = clap::value_parser!(u8).range(1..=8), requires = "exhaustive")]
    depth: u8,
    /// One schedule of a small scenario, as a failure of --exhaustive names it
    #[arg(long, value_name = "NAME:FATES", conflicts_with_all = ["seed", "seeds", "exhaustive", "faults"])]
    schedule: Option<String>,
    /// Write every frame that is sent, with virtual times, to a pcapng file (one run only)
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// How many of the last events to show when a promise is broken
    #[arg(long, value_name = "COUNT", default_value_t = 40)]
    events: usize,
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// When to use colours; auto heeds NO_COLOR
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    color: ColorChoice,
    #[command(flatten)]
    fabric: fabric::FabricArgs,
}

const HELP: &str = "\
A seed decides machines, connections, requests and what happens to each packet; the same seed gives
the same frames at the same times everywhere. The oracle models verbs, not the protocol: completions
in order and once, memory byte for byte, atomics once, only the statuses that the application's own
faults allow, an end of all work when faults stop, no more packets than losses explain.

The table counts, for each operation, how often one of its packets met a fault and the operation
completed all the same: it was lost, came twice (duplicate), after later ones (reorder), later than
timers wait (detour), late (delay), damaged (corrupt), marked \"congestion experienced\" (ce), before
a receive was posted (rnr), or its PSN was near the wrap; \"-\" is what cannot be.

--faults knows loss=P%, duplicate=P%, reorder=P%, corrupt=P%, ce=P%, delay=T, rate=R, qp=N,
opcode=NAME, seed=N.

Packets a second are those of one core: packets by the processor time that all threads have used.

--scenario runs flows through one switch, with marks (ECN), congestion notifications (CNPs) and
rates (DCQCN), and shows what each flow gets over time. --scenario list explains them; the fields of
its --json are in docs/congestion.md.

Fates of --schedule: . delivered, x lost, 2 twice, d late, c corrupt.

Exit status: 0 if every promise was kept, 1 if one was broken, 2 for wrong usage or input/output.

--json, whose fields stay: runs, requests, completions, reconnections, packets, disturbances,
virtual_seconds, processor_seconds and packets_per_processor_second (which no two runs have alike),
matrix: list of {operation, fault, count}, scenarios: list of {name, schedules, packets}, failures:
list of {replay, rule, text, time, events}.";

/// Runs the subcommand.
pub fn run(args: &SimArgs) -> Result<ExitCode, Failure> {
    check(args)?;
    let palette = Palette::new(args.color);
    if let Some(name) = &args.fabric.scenario {
        return fabric::run(&args.fabric, name, first_seed(args), args.json, palette);
    }
    let before = processor_time();
    if args.exhaustive {
        let reports = run_exhaustive(args);
        return output::exhaustive(args, &reports, processor_time() - before, palette);
    }
    if let Some(schedule) = &args.schedule {
        return run_one(args, &find_schedule(schedule)?, palette);
    }
    let count = seeds(args);
    if count == 1 {
        return run_one(args, &scenario(args, first_seed(args)), palette);
    }
    let summary = run_seeds(args, count);
    output::many(args, &summary, processor_time() - before, palette)
}

/// What clap cannot check.
fn check(args: &SimArgs) -> Result<(), Failure> {
    if let Some(plan) = &args.faults
        && plan.direction != Directions::Both
    {
        return Err(Failure::usage(
            "direction: a packet in the simulator is one node's outgoing and another's incoming \
             one; leave it out",
        ));
    }
    let is_one = args.schedule.is_some() || (!args.exhaustive && seeds(args) == 1);
    if args.pcap.is_some() && !is_one {
        return Err(Failure::usage("--pcap records one run: give --seed, and no --seeds"));
    }
    if first_seed(args).checked_add(seeds(args) - 1).is_none() {
        return Err(Failure::usage(
            "--seed and --seeds go beyond the last seed, 18446744073709551615: lower one of them",
        ));
    }
    Ok(())
}

fn first_seed(args: &SimArgs) -> u64 {
    args.seed.unwrap_or(1)
}

/// 1 if a seed was chosen, else many.
fn seeds(args: &SimArgs) -> u64 {
    let default = if args.seed.is_some() { 1 } else { 100 };
    args.seeds.unwrap_or(default)
}

fn threads(args: &SimArgs) -> usize {
    let all = available_parallelism().map_or(1, NonZero::get);
    args.threads.map_or(all, usize::from)
}

/// The scenario of a seed, with the faults that the caller wants.
fn scenario(args: &SimArgs, seed: u64) -> Scenario {
    let mut scenario = Scenario::random(seed);
    let Some(plan) = &args.faults else { return scenario };
    scenario.name = "chosen faults".to_owned();
    scenario.network.faults = plan.clone();
    scenario.network.detour = Share::NONE;
    scenario.network.outage = None;
    if plan.corrupt != Share::NONE {
        // A receiver that does not see it finds an identification for some damaged packets.
        scenario.network.sees_identification = true;
    }
    // They may be more than retries can mend.
    for connection in &mut scenario.connections {
        connection.may_exhaust_retries = true;
    }
    for link in scenario.shared.iter_mut().flat_map(|shared| &mut shared.links) {
        link.may_exhaust = true;
    }
    scenario
}

fn find_schedule(text: &str) -> Result<Scenario, Failure> {
    let all = Exhaustive::all();
    let names = || all.iter().map(Exhaustive::name).collect::<Vec<_>>().join(", ");
    let (name, fates) = text.split_once(':').unwrap_or((text, ""));
    let Some(found) = all.iter().find(|one| one.name() == name) else {
        return Err(Failure::usage(format!("no small scenario `{name}`; there are {}", names())));
    };
    found.schedule(fates).ok_or_else(|| {
        Failure::usage(format!("`{fates}`: fates are . x 2 d c (see uroce sim --help)"))
    })
}

fn run_one(args: &SimArgs, scenario: &Scenario, palette: Palette) -> Result<ExitCode, Failure> {
    // The file is opened first: nobody wants to learn afterwards that it cannot be.
    let file = args.pcap.as_deref().map(create).transpose()?;
    let keep = Keep { frames: args.pcap.is_some(), events: args.events };
    let before = processor_time();
    let (report, frames) = scenario.run_keeping(keep);
    let processor = processor_time() - before;
    if let (Some(file), Some(path)) = (file, &args.pcap) {
        let mut writer = Writer::named(BufWriter::new(file), Format::PcapNg, "uroce-sim")
            .map_err(|error| unwritable(path, &error))?;
        frames
            .iter()
            .try_for_each(|frame| writer.write(frame.time.as_nanos(), &[&frame.bytes]))
            .and_then(|()| writer.flush())
            .map_err(|error| unwritable(path, &error))?;
    }
    output::one(args, scenario, report, processor, palette)
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{}: {error}", path.display()))
}

fn run_seeds(args: &SimArgs, count: u64) -> Summary {
    let bar = progress(count, "seeds");
    let make = |seed| scenario(args, seed);
    let summary =
        run_many(first_seed(args), count, threads(args), make, |done| bar.set_position(done));
    bar.finish_and_clear();
    summary
}

fn run_exhaustive(args: &SimArgs) -> Vec<ExhaustiveReport> {
    let bar = progress(Exhaustive::all().len() as u64, "scenarios");
    let reports = Exhaustive::run_all(args.depth.into(), threads(args), |_| bar.inc(1));
    bar.finish_and_clear();
    reports
}
