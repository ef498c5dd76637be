//! `uroce pingpong`: messages to and fro, with another `uroce pingpong` or with `ibv_rc_pingpong`.

mod common;
pub(super) mod handshake;
mod run;
mod shared;
mod shared_handshake;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use uroce::verbs::{PathMtu, QueuePairKind};

use super::device::DeviceArgs;
use super::output::Failure;

/// Messages to and fro, with this program or an ibv_*_pingpong at the other end.
#[derive(Args, Debug)]
#[command(after_help = "Without HOST this is the server, which waits for one client.\n\n\
    Try it in two terminals:\n  \
    uroce pingpong --device lo\n  \
    uroce pingpong --device lo localhost\n\n\
    Against the kernel's or a real device on another host:\n  \
    ibv_rc_pingpong -d rxe0 -g 1          (there)\n  \
    uroce pingpong --device eth0 HOST     (here)\n\n\
    Both ends need the same transport, size, iterations and path MTU.")]
pub struct PingpongArgs {
    /// Server to connect to; without it, be the server
    host: Option<String>,
    /// Transport: the program at the other end is ibv_rc_, ibv_uc_, ibv_ud_, ibv_srq_ or
    /// ibv_xsrq_pingpong
    #[arg(short = 'T', long, default_value = "rc", value_enum)]
    transport: Transport,
    /// TCP port of the exchange of addresses
    #[arg(short = 'p', long, default_value_t = 18_515, value_name = "PORT")]
    port: u16,
    /// Bytes of a message
    #[arg(short = 's', long, default_value_t = 4096, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    size: u32,
    /// Path MTU: 256, 512, 1024, 2048 or 4096
    #[arg(short = 'm', long, default_value = "1024", value_parser = parse_mtu, value_name = "BYTES")]
    mtu: PathMtu,
    /// Receives to post at a time
    #[arg(short = 'r', long, default_value_t = 500, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    rx_depth: u32,
    /// Queue pairs with one shared receive queue (srq)
    #[arg(short = 'q', long, default_value_t = 16, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    num_qp: u32,
    /// Exchanges, of all queue pairs together (ibv_xsrq_pingpong itself does 5)
    #[arg(short = 'n', long, default_value_t = 1000, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..))]
    iters: u64,
    /// Sleep on completion events instead of polling
    #[arg(short = 'e', long)]
    events: bool,
    /// Index of our address (see `uroce devices`)
    #[arg(short = 'g', long, default_value_t = 0, value_name = "INDEX")]
    gid_idx: u16,
    /// Check the data of each message
    #[arg(short = 'c', long)]
    chk: bool,
    /// Port of the device; RoCE devices here have port 1
    #[arg(short = 'i', long, default_value_t = 1, value_name = "PORT",
          value_parser = clap::value_parser!(u8).range(1..=1))]
    ib_port: u8,
    /// Service level: without meaning on RoCE, taken for compatibility
    #[arg(short = 'l', long, default_value_t = 0, value_name = "SL")]
    sl: u8,
    /// Post through the newer call of verbs: here the same, taken for compatibility
    #[arg(short = 'N', long)]
    new_send: bool,
    /// Give up when nothing has completed for so many seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..))]
    patience: u64,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Transport of the queue pair.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    /// Reliable connection: nothing is lost
    Rc,
    /// Unreliable connection: a lost message stops the exchange
    Uc,
    /// Unreliable datagram: the same, and a message is one packet
    Ud,
    /// Reliable connections that take their receives from one shared queue
    Srq,
    /// Extended reliable connections (XRC), one in each direction, with one client
    Xsrq,
}

impl Transport {
    const fn kind(self) -> QueuePairKind {
        match self {
            Self::Rc | Self::Srq => QueuePairKind::Rc,
            Self::Uc => QueuePairKind::Uc,
            Self::Ud => QueuePairKind::Ud,
            Self::Xsrq => QueuePairKind::XrcInitiator,
        }
    }

    /// Bytes before a received message that tell where it came from.
    const fn area(self) -> usize {
        match self {
            Self::Ud => 40,
            _ => 0,
        }
    }
}

/// Reads a path MTU.
pub(super) fn parse_mtu(text: &str) -> Result<PathMtu, String> {
    let bytes = text.parse().ok().and_then(PathMtu::from_bytes);
    bytes.ok_or_else(|| "possible are 256, 512, 1024, 2048 and 4096".to_owned())
}

impl PingpongArgs {
    fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }
}

/// Runs the subcommand.
pub fn run(args: &PingpongArgs) -> Result<ExitCode, Failure> {
    run::run(args)
}
