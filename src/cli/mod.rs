//! The command line: one file a subcommand.

mod device;
mod devices;
mod output;
mod pingpong;
mod text;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// RDMA without RDMA hardware: RoCEv2 in userspace.
#[derive(Parser, Debug)]
#[command(name = "uroce", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Devices(devices::DevicesArgs),
    Pingpong(pingpong::PingpongArgs),
}

/// Runs what the command line asks for.
pub(crate) fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Devices(args) => devices::run(&args),
        Command::Pingpong(args) => pingpong::run(&args),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("uroce: {failure}");
        failure.exit_code()
    })
}
