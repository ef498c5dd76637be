//! `uroce demo`: both ends of a conversation in one process, over real UDP sockets on `lo`, told
//! in words and drawn from the packets that were really sent.
//!
//! ```text
//!   acts ── what happens, and whether it came out right
//!     ├── stage ── two devices with a queue pair each, every frame recorded
//!     ├── watch ── the recorded frames, and which of them the fault plan took
//!     ├── ladder ── those frames as a drawing
//!     └── narrator ── everything that is printed
//! ```

mod acts;
mod capture;
mod ladder;
mod narrator;
mod stage;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use uroce::fault::FaultPlan;
use uroce::software::clock;

use super::output::Failure;
use super::text::{ColorChoice, Palette};
use acts::Act;
use capture::Captures;
use narrator::Narrator;

/// Seed of the losses, chosen so that both ways of noticing a loss are seen.
const SEED: u64 = 1;
/// Packets of a hundred that are lost in the last act.
const LOSS_PERCENT: u32 = 5;

/// See RDMA at work: connect, send, write, read, atomics, and all of it with packets lost.
#[derive(Args, Debug)]
#[command(after_help = "Both ends run in this process and talk over UDP sockets on lo: no RDMA \
    hardware, no kernel\nmodule, no root. Takes under ten seconds, and no time to speak of with \
    --fast or when standard\noutput is no terminal.\n\n\
    Exit status: 0 if all came out right, 1 if anything did not, 2 if it could not be run.\n\n\
    The variables of the environment do not count here: the demo has its own devices and faults.\n\n\
    --json, whose fields stay: verified, seed, fault, capture, seconds, and acts, a list of \
    {number,\ntitle, seconds, packets, bytes, lost, resent, verified, alice and bob (counters by \
    name), steps:\nlist of {microseconds, from, opcode, psn, length, fate (arrived, lost, \
    out_of_order, duplicate,\nmissing), resent, text}}.")]
pub struct DemoArgs {
    /// Write the capture to this file [default: uroce-demo-PID.pcapng in the temporary folder]
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Which packets are lost in the last act
    #[arg(long, default_value_t = SEED, value_name = "NUMBER")]
    seed: u64,
    /// No pauses for reading
    #[arg(long)]
    fast: bool,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// When to use colours; auto heeds NO_COLOR
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    color: ColorChoice,
}

/// What came out. An act that did not come out right ends the demo, so this exists only if all did.
#[derive(Serialize)]
struct Report<'a> {
    verified: bool,
    seed: u64,
    fault: String,
    capture: &'a Path,
    seconds: f64,
    acts: Vec<Act>,
}

/// Runs the subcommand.
pub fn run(args: &DemoArgs) -> Result<ExitCode, Failure> {
    let start = clock::now();
    let narrator = if args.json {
        Narrator::silent()
    } else {
        Narrator::new(Palette::new(args.color), !args.fast)
    };
    let captures = Captures::new(args.pcap.as_deref())?;
    let fault = plan(args.seed)?;
    let acts = acts::play(&narrator, &captures, &fault)?;
    let capture = captures.finish()?;
    let seconds = (clock::now() - start) as f64 / 1e9;
    if args.json {
        let (seed, fault) = (args.seed, fault.to_string());
        let report = Report { verified: true, seed, fault, capture, seconds, acts };
        super::output::print(&serde_json::to_string(&report)?)?;
    } else {
        narrator.epilogue(capture, seconds)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The losses of the last act, at the receiving side of each end.
fn plan(seed: u64) -> Result<FaultPlan, Failure> {
    Ok(format!("loss={LOSS_PERCENT}%,direction=in,seed={seed}").parse()?)
}
