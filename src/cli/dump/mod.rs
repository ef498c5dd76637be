//! `uroce dump`: captures, decoded and judged.

mod files;
mod filter;
mod follow;
mod interrupt;
mod live;
mod output;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::output::Failure;
use super::text::ColorChoice;
use filter::{FrameRange, OpcodePattern};
use output::Output;

/// Decodes captures and judges every ICRC: a line, a block or a JSON object a packet
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct DumpArgs {
    /// Captures: pcap or pcapng, plain or compressed by gzip; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present = "follow")]
    files: Vec<PathBuf>,
    /// Decode what passes a network interface now, until Ctrl-C
    #[arg(long, value_name = "INTERFACE", conflicts_with = "files")]
    follow: Option<String>,
    /// Stop --follow after so many frames; of a file, --frames shows so many
    #[arg(long, value_name = "FRAMES", requires = "follow",
          conflicts_with = "files", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// One JSON object a packet, one a line; with --summary one a file
    #[arg(long)]
    json: bool,
    /// Only counts: frames, opcodes, ICRC verdicts, issues
    #[arg(long)]
    summary: bool,
    /// A block a packet, with every header and bit
    #[arg(short = 'v', long, conflicts_with_all = ["json", "summary"])]
    verbose: bool,
    /// The bytes that the ICRC covers, masked ones marked, the CRC as it runs, and the cause if it
    /// is wrong
    #[arg(short = 'x', long, conflicts_with_all = ["json", "summary"])]
    hex: bool,
    /// With -x: explain this value, eight digits in wire order, that you compute for the packet
    #[arg(long, value_name = "HEX", requires = "hex", value_parser = filter::icrc)]
    my_icrc: Option<[u8; 4]>,
    /// Only packets to this queue pair, or datagrams from it; may be given several times
    #[arg(long, value_name = "NUMBER", value_parser = filter::queue_pair)]
    qp: Vec<u32>,
    /// Only packets from or to this IP address or GID; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    host: Vec<std::net::IpAddr>,
    /// Only packets of this opcode, such as RC_SEND_ONLY, SEND_ONLY (of any transport) or 0x81;
    /// may be given several times
    #[arg(long, value_name = "NAME")]
    opcode: Vec<OpcodePattern>,
    /// Only packets with a wrong ICRC
    #[arg(long)]
    bad_icrc: bool,
    /// Only frames with these numbers: 7, 7-20, 7- or -20
    #[arg(long, value_name = "A-B", allow_hyphen_values = true)]
    frames: Option<FrameRange>,
    /// Take this UDP destination port for RoCEv2 too; may be given several times
    #[arg(long, value_name = "NUMBER")]
    port: Vec<u16>,
    /// Exit with status 1 if a frame shown is wrong: by its ICRC or by an issue
    #[arg(long)]
    check: bool,
    /// When to use colours; auto heeds NO_COLOR
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    color: ColorChoice,
}

const HELP: &str = "\
Reads link types Ethernet, raw IP, Linux cooked (SLL, SLL2), ERF and InfiniBand, with VLAN tags,
MPLS, VXLAN, Geneve, GRE, ERSPAN and IP in IP around RoCE. Only UDP destination port 4791 makes a
datagram RoCEv2; --port adds others.

An ICRC is unchecked, neither right nor wrong, where a frame is cut or a fragment. Identifiers of
issues are explained in docs/dump-json.md, and in the output of -v.

-x answers \"why is my CRC different?\": where the ICRC in a packet (or that of --my-icrc) is not the
right one, the usual mistakes are tried, and the one that gives exactly these bytes is named.

Ctrl-C ends --follow, and a pipe, as the end of a file does: what came by then is shown, with the
summary. Frames that came too fast for it are counted on standard error.

Exit status: 0 whatever the frames hold; 1 if a file is damaged or cut (what lies before is shown),
or with --check if a frame is wrong; 2 if a file cannot be read or for wrong usage.

--json, whose fields stay: see docs/dump-json.md.";

/// Runs the subcommand.
pub fn run(args: &DumpArgs) -> Result<ExitCode, Failure> {
    let mut output = Output::new(args);
    let status = match &args.follow {
        Some(interface) => follow::run(args, interface, &mut output)?,
        None => files::run(args, &mut output)?,
    };
    output.finish()?;
    let is_bad = args.check && output.has_wrong();
    Ok(ExitCode::from(status.max(u8::from(is_bad))))
}
