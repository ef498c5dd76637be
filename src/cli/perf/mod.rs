//! `uroce perf`: bandwidth and latency, beside the raw ceiling of the same link in the same run.
//!
//! ```text
//!   mod (options) ─▶ measure (a row, in slices) ─┬─▶ asker ◀═ messages ═▶ service
//!                        │                       └─▶ raw, raw_memory: the ceiling
//!                        ▼                              │
//!                    report ◀── statistics      other: in this thread, or a process (peer)
//! ```

mod asker;
mod end;
mod measure;
mod other;
mod peer;
mod plan;
mod raw;
mod raw_memory;
mod report;
mod service;
mod statistics;
mod usage;
mod volley;

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use uroce::link::memory::pair;
use uroce::software::{DeviceOptions, Drive};
use uroce::verbs::{Context, PathMtu};

use super::device::{DeviceArgs, check_capture};
use super::output::{Failure, progress};
use super::pingpong::parse_mtu;
use super::text::ColorChoice;
use super::waiting::Waiting;
use asker::{POSTS, Until};
use other::{Here, Other, Process};
use plan::{Measure, Operation, Row, WORD};
use report::{Setting, Teller};

/// The interface, unless one is named.
const LOOPBACK: &str = "lo";
/// Addresses of the two processes there, so that they need not share one.
const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))];
/// Bytes of a message unless told otherwise.
const BANDWIDTH_SIZE: usize = 64 << 10;
const LATENCY_SIZE: usize = 8;
/// Messages of a queue pair under way unless told otherwise.
const DEPTH: usize = 128;
/// Entries of a completion queue at most.
const MOST_COMPLETIONS: usize = 1 << 22;
/// Exponent of the local ACK timeout unless told otherwise.
const TIMEOUT: u8 = 14;
/// Sizes of --all: powers of two up to this one.
const LARGEST_OF_ALL: u32 = 23;
/// Bytes of a message at most.
const MOST_SIZE: usize = 1 << 30;
const MOST_QUEUE_PAIRS: i64 = 16_384;

/// Bandwidth and latency, beside what the same link does without RDMA
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct PerfArgs {
    /// What to measure; without, all
    #[arg(value_enum, value_name = "OPERATION")]
    operations: Vec<Operation>,
    /// Only bandwidth: as many messages as fit under way
    #[arg(short = 'b', long)]
    bandwidth: bool,
    /// Only latency: one round trip after another
    #[arg(short = 'l', long, conflicts_with = "bandwidth")]
    latency: bool,
    /// What is between the two ends
    #[arg(long, value_enum, default_value = "udp", value_name = "LINK")]
    link: LinkChoice,
    /// Bytes of a message, such as 8, 64K or 1M [default: 64K; 8 for latency]
    #[arg(short = 's', long, value_name = "BYTES", value_parser = parse_size,
          conflicts_with_all = ["sizes", "all"])]
    size: Option<usize>,
    /// Several sizes, with commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_size,
          conflicts_with = "all")]
    sizes: Vec<usize>,
    /// All powers of two from 1 byte to 8 MiB
    #[arg(short = 'a', long)]
    all: bool,
    /// Messages of a queue pair under way (bandwidth)
    #[arg(short = 't', long, visible_alias = "tx-depth", default_value_t = DEPTH as u32,
          value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=8192))]
    depth: u32,
    /// Queue pairs (bandwidth)
    #[arg(short = 'q', long = "qps", visible_alias = "qp", default_value_t = 1, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=MOST_QUEUE_PAIRS))]
    queue_pairs: u32,
    /// Messages of all queue pairs under way together, posted to one queue pair after the other
    /// (bandwidth) [default: as many as fit]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    in_flight: Option<u32>,
    /// Memory at each end that WRITEs and READs walk through, message after message (bandwidth)
    /// [default: one message]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    buffer: Option<usize>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the largest that the device has]
    #[arg(short = 'm', long, value_parser = parse_mtu, value_name = "BYTES")]
    mtu: Option<PathMtu>,
    /// Local ACK timeout, as its exponent: 4.096 us * 2^N; 0 for none
    #[arg(long, default_value_t = TIMEOUT, value_name = "EXPONENT",
          value_parser = clap::value_parser!(u8).range(0..=31))]
    timeout: u8,
    /// Post WRITEs and SENDs of up to so many bytes inline
    #[arg(short = 'I', long, default_value_t = 0, value_name = "BYTES", value_parser = parse_inline)]
    inline: u32,
    /// What the ends watch while they wait: the completion queue, which drives the device, or only
    /// the memory that a WRITE changes, while the device's thread does the work (write latency);
    /// that wants a processor more at each end
    #[arg(long, value_enum, default_value = "cq", value_name = "WHAT")]
    poll: PollChoice,
    /// Sleep on completion events instead of polling
    #[arg(short = 'e', long, conflicts_with = "poll")]
    events: bool,
    /// Seconds for each row, and as long again for the ceiling
    #[arg(short = 'D', long, default_value_t = 1.0, value_name = "SECONDS", value_parser = parse_seconds,
          conflicts_with = "iterations")]
    duration: f64,
    /// Messages of a row instead of a duration; the ceiling carries as many packets
    #[arg(short = 'n', long, visible_alias = "iters", value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Slices that a row is cut into, with the ceiling's between them
    #[arg(long, default_value_t = 5, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    slices: u32,
    /// Leave the ceiling out
    #[arg(long)]
    no_raw: bool,
    /// Give up when nothing has completed for so many seconds, or the other end has not prepared its
    /// memory within them, or a minute if they are fewer
    #[arg(long, default_value_t = 30, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// When to use colours; auto heeds NO_COLOR
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    color: ColorChoice,
    /// Be the other end, as uroce perf starts it
    #[arg(long, hide = true)]
    as_peer: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

const HELP: &str = "\
Both ends are on this host. --link udp: two processes with a device each, over lo unless --device or
UROCE_DEVICE names another interface. --link memory: both ends in one thread, so what a message
costs in all, without a kernel.

  uroce perf                                            every operation, both ways: 20 seconds
  uroce perf write -b -s 1M                             one row
  uroce perf write -b -s 1M --receive-buffer 208K       as an unprivileged process has it
  uroce perf write send -l --sizes 8,1K,4K              round trips
  uroce perf write -b --link memory -s 8                messages a second of one processor
  uroce perf write -b -s 8 -q 1000 --in-flight 64       one queue pair after the other
  uroce perf read -b --sizes 1M,16M --buffer 64M        data that no cache holds
  uroce perf write -b -t 16 --fault loss=1%             with losses, in both directions

The ceiling (raw) has the same datagrams, buffers and polling, but no protocol and no faults; its
slices lie between ours. ours/raw is the best slice of ours by the best of raw: of rates for
bandwidth, where more is better, of median times for latency, where less is. On a busy machine
neither figures nor ratios mean much, and a note says so.

Round trips are whole; ib_write_lat and ib_send_lat of perftest print half. As there: -a -d -D -e -I
-m -n -q -s -t. Otherwise: -b is bandwidth, not both directions, and -l latency, not a post list.

--fault and --pcap are at the end that asks: what it sends and what it receives is lost, or written
to the file, which slows it. The connections are RC; atomic is fetch and add of 8 bytes.

Exit status: 0 if all came out right, 1 if a message failed or data was wrong, 2 for wrong usage or
input/output. Text has each row as soon as it is measured; --json has all in one object, after a
failure those until then and the error. docs/perf-json.md describes its members.";

/// What is between the two ends.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum LinkChoice {
    /// UDP sockets, between two processes
    Udp,
    /// Memory, within one thread
    Memory,
}

/// What is looked at while waiting.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum PollChoice {
    /// The completion queue
    Cq,
    /// The memory that is written
    Memory,
}

fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: Option<usize> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|bytes| (1..=MOST_SIZE).contains(bytes))
        .ok_or_else(|| "expected 1 to 1G bytes; K, M and G count in 1024s".to_owned())
}

fn parse_inline(text: &str) -> Result<u32, String> {
    let bytes = if text == "0" { Some(0) } else { parse_size(text).ok() };
    let fitting = bytes.and_then(|bytes| u32::try_from(bytes).ok()).filter(|bytes| *bytes <= 1024);
    fitting.ok_or_else(|| "expected 0 to 1024 bytes, or 1K".to_owned())
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "expected 0.01 to 3600 seconds".to_owned())
}

/// Runs the subcommand.
pub fn run(args: &PerfArgs) -> Result<ExitCode, Failure> {
    args.check()?;
    if args.as_peer {
        return peer::run(args);
    }
    let (context, mut other, fault) = args.open()?;
    let rows = args.rows(&context);
    let bar = progress(rows.len() as u64 * u64::from(args.slices()) * 2, "slices");
    let setting = args.setting(&context, fault)?;
    let mut teller = Teller::new(args, &setting);
    let measured = rows.into_iter().enumerate().try_for_each(|numbered| {
        let outcome = measure::measure(args, &context, &mut other, numbered, &bar)?;
        bar.suspend(|| teller.row(&outcome))
    });
    bar.finish_and_clear();
    let measured = measured.and_then(|()| check_capture(&context));
    teller.end(measured.map_err(|failure| args.with_faults(failure, &setting)))
}

impl PerfArgs {
    /// What clap cannot check.
    fn check(&self) -> Result<(), Failure> {
        let is_write_latency = self.latency && self.operations == [Operation::Write];
        if self.poll == PollChoice::Memory && !is_write_latency {
            return Err(Failure::usage(
                "--poll memory: only a WRITE that arrives is seen in memory; use it as `uroce perf \
                 write --latency --poll memory`",
            ));
        }
        if self.events && !self.bandwidth && self.chosen().contains(&Operation::Write) {
            return Err(Failure::usage(
                "--events: a WRITE that arrives gives no completion to sleep on; give --bandwidth, \
                 or other operations (`uroce perf read send atomic --events`)",
            ));
        }
        self.check_effects()?;
        if self.link == LinkChoice::Udp {
            return Ok(());
        }
        let refused = [
            (self.poll == PollChoice::Memory, "--poll memory", "a device with a thread"),
            (self.events, "--events", "a device with a thread"),
            (self.device.device.is_some(), "--device", "an interface"),
            (self.device.receive_buffer.is_some(), "--receive-buffer", "a socket"),
        ];
        match refused.iter().find(|(is_given, ..)| *is_given) {
            None => Ok(()),
            Some((_, option, needed)) => Err(Failure::usage(format!(
                "{option} needs {needed}, which --link memory has not: leave one of them out"
            ))),
        }
    }

    /// What would change nothing is not what was meant.
    fn check_effects(&self) -> Result<(), Failure> {
        let (depth, pairs) = (self.depth as usize, self.queue_pairs as usize);
        let is_only = |some: &[Operation]| self.chosen().iter().all(|one| some.contains(one));
        let is_sized = self.size.is_some() || !self.sizes.is_empty() || self.all;
        let in_flight = self.in_flight.map_or(0, |count| count as usize);
        let wrong = [
            (
                self.latency && depth != DEPTH,
                "--depth is for bandwidth: one round trip is under way",
            ),
            (self.latency && pairs != 1, "--qps is for bandwidth: round trips have one queue pair"),
            (
                self.latency && in_flight > 0,
                "--in-flight is for bandwidth: one round trip is under way",
            ),
            (self.latency && self.buffer.is_some(), "--buffer is for bandwidth"),
            (
                self.buffer.is_some() && is_only(&[Operation::Send, Operation::Atomic]),
                "--buffer: only WRITEs and READs walk through memory",
            ),
            (
                self.inline > 0 && is_only(&[Operation::Read, Operation::Atomic]),
                "--inline: only WRITEs and SENDs bring data that could be inline",
            ),
            (
                pairs * (depth + self.receives() as usize) > MOST_COMPLETIONS,
                "--depth times --qps is more than a completion queue holds (4194304 entries, and \
                 receives are twice as many): lower one of them",
            ),
            (
                is_sized && is_only(&[Operation::Atomic]),
                "atomic is always of 8 bytes: give no size",
            ),
            (
                in_flight > depth * pairs,
                "--in-flight is more than --depth and --qps allow together: raise one of them",
            ),
            (
                self.buffer.is_some_and(|buffer| self.largest() > buffer),
                "--buffer does not hold one message: give at least its size",
            ),
        ];
        match wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, why)) => Err(Failure::usage(*why)),
            None => Ok(()),
        }
    }

    /// The largest message of the bandwidth rows.
    fn largest(&self) -> usize {
        let sizes =
            self.chosen().into_iter().flat_map(|one| self.sizes_of(one, Measure::Bandwidth));
        sizes.max().unwrap_or(0)
    }

    /// What failed, with the faults that were asked for: they come first to mind.
    fn with_faults(&self, failure: Failure, setting: &Setting) -> Failure {
        let (status, message) = failure.parts();
        match &setting.fault {
            Some(fault) if status == 1 => Failure::bad(format!(
                "{message}\nthis run has the faults {fault}: if they lose or hold back too much, a \
                 longer --timeout or fewer of them may let it through"
            )),
            _ => failure,
        }
    }

    /// Opens a device of one end.
    fn open_device(&self, options: &DeviceOptions) -> Result<Context, Failure> {
        Context::open(options).map_err(|error| match options.addresses.first() {
            Some(address) if options.interface.as_deref() == Some(LOOPBACK) => {
                Failure::usage(format!(
                    "{error}; the ends of uroce perf are at {} and {} of {LOOPBACK} (this one at \
                     {address}): `ip address add 127.0.0.1/8 dev {LOOPBACK}` gives it both, and \
                     --device names another interface",
                    ADDRESSES[0], ADDRESSES[1]
                ))
            }
            _ => Failure::from(error),
        })
    }

    /// The operations to measure.
    fn chosen(&self) -> Vec<Operation> {
        let is_chosen =
            |one: &Operation| self.operations.is_empty() || self.operations.contains(one);
        Operation::ALL.into_iter().filter(is_chosen).collect()
    }

    /// Everything to measure, on a device.
    fn rows(&self, context: &Context) -> Vec<Row> {
        let path_mtu = self.path_mtu(context);
        let measures = [(Measure::Bandwidth, !self.latency), (Measure::Latency, !self.bandwidth)];
        let mut rows = Vec::new();
        for (measure, _) in measures.into_iter().filter(|(_, is_wanted)| *is_wanted) {
            for operation in self.chosen() {
                let sizes = self.sizes_of(operation, measure);
                let row = |size| Row { operation, measure, size, path_mtu, buffer: self.buffer };
                rows.extend(sizes.into_iter().map(row));
            }
        }
        rows
    }

    fn sizes_of(&self, operation: Operation, measure: Measure) -> Vec<usize> {
        match (operation, self.size) {
            (Operation::Atomic, _) => vec![WORD],
            (_, Some(size)) => vec![size],
            (_, None) if self.all => (0..=LARGEST_OF_ALL).map(|power| 1 << power).collect(),
            (_, None) if !self.sizes.is_empty() => self.sizes.clone(),
            _ => match measure {
                Measure::Bandwidth => vec![BANDWIDTH_SIZE],
                Measure::Latency => vec![LATENCY_SIZE],
            },
        }
    }

    fn path_mtu(&self, context: &Context) -> usize {
        self.mtu.unwrap_or_else(|| context.info().path_mtu).bytes()
    }

    /// Receives that an end has posted: as many again as can be under way.
    fn receives(&self) -> u32 {
        (self.depth * 2).max(16)
    }

    /// Messages under way together at most.
    fn under_way(&self) -> usize {
        let fitting = self.depth as usize * self.queue_pairs as usize;
        self.in_flight.map_or(fitting, |count| fitting.min(count as usize))
    }

    /// Requests that are posted with one call at most.
    fn posted_at_once(&self) -> usize {
        if self.in_flight.is_some() { 1 } else { POSTS }
    }

    fn is_inline(&self, row: &Row) -> bool {
        let sends_data = matches!(row.operation, Operation::Write | Operation::Send);
        sends_data && row.size <= self.inline as usize
    }

    /// Whether the asking end gets messages, too.
    fn is_answered_by_send(&self, row: &Row) -> bool {
        row.operation == Operation::Send && row.measure == Measure::Latency
    }

    fn polls_queue(&self) -> bool {
        self.poll == PollChoice::Cq
    }

    fn waiting(&self) -> Waiting {
        Waiting { events: self.events, patience: Duration::from_secs(self.patience) }
    }

    /// Slices of a row: no more than there are messages.
    fn slices(&self) -> u32 {
        let most = self.iterations.unwrap_or(u64::MAX);
        self.slices.min(u32::try_from(most).unwrap_or(u32::MAX))
    }

    /// When slice `number` of a row ends.
    fn until(&self, number: u32) -> Until {
        let slices = u64::from(self.slices());
        match self.iterations {
            // The first ones have what does not go into whole parts.
            Some(all) => Until::Count(all / slices + u64::from(u64::from(number) < all % slices)),
            None => Until::Time((self.duration * 1e9) as u64 / slices),
        }
    }

    fn receive_buffer(&self) -> Result<Option<usize>, Failure> {
        Ok(self.device.options()?.receive_buffer)
    }

    /// The asking end's device.
    fn own_options(&self) -> Result<DeviceOptions, Failure> {
        Ok(placed(self.device.options()?, ADDRESSES[0]))
    }

    /// The other end's device: capture and faults are at one end, where both directions pass.
    fn peer_options(&self) -> Result<DeviceOptions, Failure> {
        let options = placed(self.device.options()?, ADDRESSES[1]);
        Ok(DeviceOptions { capture: None, fault: None, ..options })
    }

    /// Opens both ends. Also returns the faults, in words.
    fn open(&self) -> Result<(Context, Other<'_>, Option<String>), Failure> {
        let own = self.own_options()?;
        let fault = own.fault.as_ref().filter(|plan| !plan.is_empty()).map(ToString::to_string);
        if self.link == LinkChoice::Udp {
            let context = self.open_device(&own)?;
            let process = Process::start(Duration::from_secs(self.patience))?;
            return Ok((context, Other::Process(process), fault));
        }
        let (first, second) = pair(raw_memory::ADDRESSES, &raw_memory::options())?;
        let driven = |options| DeviceOptions { drive: Drive::Caller, name: None, ..options };
        let context = Context::over(&driven(own), Box::new(first))?;
        let other = Context::over(&driven(self.peer_options()?), Box::new(second))?;
        let here = Here {
            args: self,
            context: other,
            end: None,
            service: None,
            raw: raw_memory::RawMemory::open()?,
        };
        Ok((context, Other::Here(Box::new(here)), fault))
    }

    fn setting(&self, context: &Context, fault: Option<String>) -> Result<Setting, Failure> {
        Ok(Setting {
            link: self.link,
            device: context.info().name,
            path_mtu: self.path_mtu(context),
            depth: self.depth,
            queue_pairs: self.queue_pairs,
            in_flight: self.in_flight,
            buffer: self.buffer,
            timeout: self.timeout,
            addresses: match self.link {
                LinkChoice::Udp => [context.gid(0)?.address(), self.peer_address(context)?],
                LinkChoice::Memory => raw_memory::ADDRESSES,
            },
            inline: self.inline,
            polling: match (self.events, self.poll) {
                (true, _) => "events",
                (_, PollChoice::Cq) => "cq",
                (_, PollChoice::Memory) => "memory",
            },
            slices: self.slices(),
            has_bandwidth: !self.latency,
            receive_buffer: match self.link {
                LinkChoice::Udp => self.receive_buffer()?,
                LinkChoice::Memory => None,
            },
            fault,
            version: env!("CARGO_PKG_VERSION"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
        })
    }

    /// Where the other end is: on loopback at an address of its own, elsewhere at the same one.
    fn peer_address(&self, context: &Context) -> Result<IpAddr, Failure> {
        match self.peer_options()?.addresses.first() {
            Some(address) => Ok(*address),
            None => Ok(context.gid(0)?.address()),
        }
    }
}

/// On loopback unless an interface is named; there each end has an address of its own.
fn placed(options: DeviceOptions, address: IpAddr) -> DeviceOptions {
    let interface = options.interface.clone().unwrap_or_else(|| LOOPBACK.to_owned());
    let addresses = if interface == LOOPBACK { vec![address] } else { Vec::new() };
    DeviceOptions { interface: Some(interface), addresses, ..options }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        let cases = [("8", 8), ("64K", 65_536), ("1M", 1 << 20), ("1g", 1 << 30)];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for wrong in ["", "K", "0", "-1", "2G", "1.5K", "18446744073709551615M", "8 "] {
            assert!(parse_size(wrong).unwrap_err().contains("1 to 1G"), "{wrong}");
        }
    }

    #[test]
    fn seconds_are_a_time_that_somebody_can_wait_for() {
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "NaN", "inf", "1e9", "x"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
