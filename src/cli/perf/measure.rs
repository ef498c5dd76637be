//! Measuring a row: slices of ours and of the bare link in turn.

use indicatif::ProgressBar;
use uroce::verbs::Context;

use super::PerfArgs;
use super::asker::{Asker, Moved, Times, Until};
use super::end::End;
use super::other::{Command, Other, Totals};
use super::plan::{Measure, Operation, Row};
use super::raw::Raw;
use super::statistics::Percentiles;
use super::usage::{Usage, Watch};
use crate::cli::output::Failure;

/// Bytes of a bare round trip one way at most: more than that a socket need not hold.
const MOST_BARE: usize = 128 << 10;

/// What one side of the comparison has come to.
#[derive(Default)]
pub(super) struct Figures {
    /// Each slice: messages of ours, datagrams of a bare stream, round trips.
    pub(super) slices: Vec<Moved>,
    /// The median time of each slice (latency).
    pub(super) medians: Vec<f64>,
    pub(super) times: Option<Percentiles>,
    /// What the end that asks has used, and the other one where it is a process of its own.
    pub(super) usage: [Usage; 2],
    /// Datagrams of a bare stream that were sent, arrived or not.
    pub(super) sent: u64,
}

impl Figures {
    /// Nanoseconds of processor time, both ends together.
    pub(super) fn processor(&self) -> u64 {
        self.usage.iter().map(|usage| usage.processor).sum()
    }

    /// The lesser of the two ends' shares of a processor.
    pub(super) fn least_share(&self) -> Option<f64> {
        self.usage.iter().filter_map(Usage::share).min_by(f64::total_cmp)
    }

    pub(super) fn messages(&self) -> u64 {
        self.slices.iter().map(|slice| slice.messages).sum()
    }

    pub(super) fn nanoseconds(&self) -> u64 {
        self.slices.iter().map(|slice| slice.nanoseconds).sum()
    }

    /// Takes in the times of a slice; `all` has those of all slices.
    fn add_times(&mut self, mut times: Times, all: &mut Vec<u64>) {
        if let Some(percentiles) = Percentiles::of(&mut times.kept) {
            self.medians.push(percentiles.p50);
        }
        all.append(&mut times.kept);
    }
}

/// A row with its figures.
pub(super) struct Outcome {
    pub(super) row: Row,
    pub(super) ours: Figures,
    pub(super) raw: Option<Figures>,
    /// What the two devices have counted, the asking one's first.
    pub(super) totals: [Totals; 2],
}

/// Measures one row.
pub(super) fn measure(
    args: &PerfArgs,
    context: &Context,
    other: &mut Other<'_>,
    (number, row): (usize, Row),
    bar: &ProgressBar,
) -> Result<Outcome, Failure> {
    let mut end = End::new(args, context, row)?;
    let before = Totals::of(context)?;
    let (card, other_before) = other.prepare(number, row)?;
    let own = end.card()?;
    end.connect(args, &card)?;
    let mut asker = Asker::new(args, end)?;
    other.connect(own)?;
    let has_raw = !args.no_raw
        && (row.measure == Measure::Bandwidth
            || row.exchange().request.max(row.exchange().reply) <= MOST_BARE);
    let mut ours = Figures::default();
    let mut raw = has_raw.then(Figures::default);
    let [mut all, mut all_raw] = [Vec::new(), Vec::new()];
    for slice_number in 0..args.slices() {
        let until = args.until(slice_number);
        slice(until, &mut asker, other, &mut ours, &mut all)?;
        bar.inc(1);
        if let Some(raw) = &mut raw {
            bare_slice(args, context, other, (row, until), raw, &mut all_raw)?;
        }
        bar.inc(1);
    }
    let other_after = other.check(&asker.messages)?;
    check_arrivals(&asker)?;
    ours.times = Percentiles::of(&mut all);
    if let Some(raw) = &mut raw {
        raw.times = Percentiles::of(&mut all_raw);
    }
    let totals = [Totals::of(context)?.since(&before), other_after.since(&other_before)];
    Ok(Outcome { row, ours, raw, totals })
}

/// Checks what has come to the asking end.
fn check_arrivals(asker: &Asker<'_>) -> Result<(), Failure> {
    let row = &asker.end.row;
    let arrives = match row.operation {
        Operation::Read => true,
        Operation::Write | Operation::Send => row.measure == Measure::Latency,
        Operation::Atomic => false,
    };
    for (pair, messages) in asker.messages.iter().enumerate() {
        if arrives && *messages > 0 {
            asker.end.check_target(pair, true, *messages)?;
        }
        if row.operation == Operation::Atomic && *messages > 0 {
            // What a fetch and add returns is what was there before it.
            let found = asker.end.word(pair)?;
            if found != messages - 1 {
                return Err(Failure::bad(format!(
                    "atomic: the last of {messages} additions found {found} instead of {}",
                    messages - 1
                )));
            }
        }
    }
    Ok(())
}

fn slice(
    until: Until,
    asker: &mut Asker<'_>,
    other: &mut Other<'_>,
    ours: &mut Figures,
    all: &mut Vec<u64>,
) -> Result<(), Failure> {
    other.serve()?;
    let watch = Watch::start();
    let mut times = Times::new();
    let mut drive = || other.drive();
    let moved = match asker.end.row.measure {
        Measure::Bandwidth => asker.bandwidth(until, &mut drive)?,
        Measure::Latency => asker.latency(until, &mut times, &mut drive)?,
    };
    ours.usage[0].add(watch.stop());
    ours.usage[1].add(other.stop()?);
    ours.slices.push(moved);
    ours.add_times(times, all);
    Ok(())
}

fn bare_slice(
    args: &PerfArgs,
    context: &Context,
    other: &mut Other<'_>,
    (row, until): (Row, Until),
    raw: &mut Figures,
    all: &mut Vec<u64>,
) -> Result<(), Failure> {
    let mut times = Times::new();
    let until = match (until, row.measure) {
        (Until::Count(count), Measure::Bandwidth) => Until::Count(count * row.packets() as u64),
        (until, _) => until,
    };
    let watch = Watch::start();
    match other {
        Other::Here(here) => {
            let moved = match row.measure {
                Measure::Bandwidth => here.raw.stream(row.datagram(), until),
                Measure::Latency => here.raw.ping(row.exchange(), until, &mut times),
            };
            raw.sent += if row.measure == Measure::Bandwidth { moved.messages } else { 0 };
            raw.slices.push(moved);
        }
        Other::Process(process) => {
            let mut socket = Raw::open(context, args.receive_buffer()?, args.events)?;
            let address = process.address();
            let command = match row.measure {
                Measure::Bandwidth => Command::Sink,
                Measure::Latency => Command::Echo(row.exchange()),
            };
            let peer = (address, process.receive_bare(&command)?);
            let look = || process.look();
            let moved = match row.measure {
                Measure::Bandwidth => socket.stream(peer, row.datagram(), until, &look)?,
                Measure::Latency => socket.ping(peer, row.exchange(), until, &mut times, &look)?,
            };
            let (usage, arrived) = process.stop()?;
            raw.usage[1].add(usage);
            raw.sent += if row.measure == Measure::Bandwidth { moved.messages } else { 0 };
            raw.slices.push(match row.measure {
                // A stream is as fast as the slower of the two: a buffer can be emptied faster than
                // it was filled.
                Measure::Bandwidth => Moved {
                    messages: arrived.bytes / row.datagram() as u64,
                    nanoseconds: arrived.nanoseconds.max(moved.nanoseconds),
                },
                Measure::Latency => moved,
            });
        }
    }
    raw.usage[0].add(watch.stop());
    raw.add_times(times, all);
    Ok(())
}
