//! The command line: one file a subcommand.

mod demo;
mod device;
mod devices;
mod output;
mod pingpong;
mod text;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// RDMA without RDMA hardware: RoCEv2 in userspace.
#[derive(Parser, Debug)]
#[command(name = "uroce", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(demo::DemoArgs),
    Devices(devices::DevicesArgs),
    Pingpong(pingpong::PingpongArgs),
}

/// Runs what the command line asks for.
pub(crate) fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Pingpong(args) => pingpong::run(&args),
    };
    outcome.unwrap_or_else(|failure| {
        failure.tell();
        failure.exit_code()
    })
}

/// Whether this program has a subcommand.
fn has_subcommand(name: &str) -> bool {
    Cli::command().find_subcommand(name).is_some()
}
