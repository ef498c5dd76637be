//! The command line: one file a subcommand.

mod counters;
mod demo;
mod device;
mod devices;
mod dump;
mod output;
mod perf;
mod pingpong;
mod processor;
mod sim;
mod text;
mod waiting;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use output::Failure;

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
    Perf(perf::PerfArgs),
    Counters(counters::CountersArgs),
    Dump(dump::DumpArgs),
    Sim(sim::SimArgs),
}

/// Runs what the command line asks for.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let outcome = match cli.command {
        Command::Counters(args) => counters::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Perf(args) => perf::run(&args),
        Command::Pingpong(args) => pingpong::run(&args),
        Command::Sim(args) => sim::run(&args),
    };
    outcome.unwrap_or_else(|failure| {
        failure.tell();
        failure.exit_code()
    })
}

/// Help and version as they are; what is wrong with the arguments in one line.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return match error.print().and_then(|()| std::io::stdout().flush()) {
            Err(refused) if refused.kind() != std::io::ErrorKind::BrokenPipe => {
                Failure::usage(format!("cannot write to standard output: {refused}")).tell();
                ExitCode::from(2)
            }
            _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
        };
    }
    let text = error.render().to_string();
    let sentence = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = text.split("\n\n").map(sentence);
    let told = parts.filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more"));
    let message = told.collect::<Vec<_>>().join("; ");
    let message = in_plain_words(message.trim_start_matches("error: "));
    Failure::usage(format!("{message}; --help tells more")).tell();
    ExitCode::from(2)
}

/// Number errors without what only a Rust programmer understands.
fn in_plain_words(message: &str) -> String {
    message
        .replace("invalid digit found in string", "it must be a whole number")
        .replace("number too large to fit in target type", "it is too large")
        .replace("is not in 1..18446744073709551615", "is too small: it must be 1 or more")
}

/// Whether this program has a subcommand.
fn has_subcommand(name: &str) -> bool {
    Cli::command().find_subcommand(name).is_some()
}
