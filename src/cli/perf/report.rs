//! What `uroce perf` says, to people and to machines.

use std::net::IpAddr;
use std::process::ExitCode;

use serde::Serialize;

use super::measure::{Figures, Outcome};
use super::other::Totals;
use super::plan::{Measure, Operation, Row};
use super::statistics::{Percentiles, Slices};
use super::{LinkChoice, PerfArgs, TIMEOUT};
use crate::cli::output::{Failure, print};
use crate::cli::text::{Palette, Tone, count, hanging};

/// The share of a processor from which on it counts as a whole one.
const WHOLE: f64 = 0.9;
/// The share of raw's datagrams up to which nobody needs to know that they were lost.
const HARDLY: f64 = 0.05;

/// Under what conditions the figures were taken.
#[derive(Serialize)]
pub(super) struct Setting {
    pub(super) link: LinkChoice,
    pub(super) device: String,
    pub(super) path_mtu: usize,
    pub(super) depth: u32,
    pub(super) queue_pairs: u32,
    /// Messages under way together at most, if that was asked for.
    pub(super) in_flight: Option<u32>,
    /// Bytes of memory that messages walk through, if that was asked for.
    pub(super) buffer: Option<usize>,
    /// Exponent of the local ACK timeout.
    pub(super) timeout: u8,
    /// Addresses of the two ends.
    pub(super) addresses: [IpAddr; 2],
    pub(super) inline: u32,
    pub(super) polling: &'static str,
    pub(super) slices: u32,
    #[serde(skip)]
    pub(super) has_bandwidth: bool,
    /// Bytes that were asked for; nothing for the device's own choice, or in memory.
    pub(super) receive_buffer: Option<usize>,
    pub(super) fault: Option<String>,
    /// Of this program.
    pub(super) version: &'static str,
    /// Processors that this process may use.
    pub(super) processors: usize,
}

/// Everything that is told.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    setting: &'a Setting,
    rows: &'a [RowReport],
    /// What ended the run before all rows were measured.
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct RowReport {
    operation: Operation,
    measure: Measure,
    /// Of a message.
    size: usize,
    messages: u64,
    bytes: u64,
    seconds: f64,
    verified: bool,
    gigabits_per_second: Option<Slices>,
    messages_per_second: Option<Slices>,
    round_trip_us: Option<Percentiles>,
    processor_ns_per_byte: f64,
    processor_ns_per_message: f64,
    /// The lesser of the two ends' shares of a processor; nothing where they sleep.
    processor_share: Option<f64>,
    packets: Packets,
    raw: Option<RawReport>,
    /// Ours by raw: of rates in bandwidth rows, of median times in latency rows.
    ratio: Option<Slices>,
}

#[derive(Serialize)]
struct Packets {
    sent: u64,
    received: u64,
    retransmitted: u64,
    per_burst: f64,
    answered: u64,
    overflowed: u64,
}

#[derive(Serialize)]
struct RawReport {
    datagram: usize,
    datagrams_per_send: usize,
    sent: u64,
    arrived: u64,
    gigabits_per_second: Option<Slices>,
    round_trip_us: Option<Percentiles>,
    processor_ns_per_byte: f64,
}

impl RowReport {
    fn of(outcome: &Outcome, sleeps: bool) -> Self {
        let Outcome { row, ours, raw, totals } = outcome;
        let is_bandwidth = row.measure == Measure::Bandwidth;
        let messages = ours.messages();
        let rates = is_bandwidth.then(|| rates(ours));
        let raw_report = raw.as_ref().map(|raw| RawReport {
            datagram: row.datagram(),
            datagrams_per_send: row.batch(),
            sent: raw.sent,
            arrived: if is_bandwidth { raw.messages() } else { 0 },
            gigabits_per_second: is_bandwidth.then(|| rates_in_gigabits(raw, raw_payload(row))),
            round_trip_us: raw.times,
            processor_ns_per_byte: per_byte(raw.processor(), raw.messages(), raw_payload(row)),
        });
        let ratio = raw.as_ref().and_then(|raw| ratio(row, ours, raw));
        Self {
            operation: row.operation,
            measure: row.measure,
            size: row.size,
            messages,
            bytes: messages * row.size as u64,
            seconds: ours.nanoseconds() as f64 / 1e9,
            verified: true,
            gigabits_per_second: is_bandwidth.then(|| rates_in_gigabits(ours, row.size)),
            messages_per_second: rates,
            round_trip_us: ours.times,
            processor_ns_per_byte: per_byte(ours.processor(), messages, row.size),
            processor_ns_per_message: per_byte(ours.processor(), messages, 1),
            processor_share: ours.least_share().filter(|_| !sleeps),
            packets: Packets::of(totals),
            raw: raw_report,
            ratio,
        }
    }
}

impl Packets {
    fn of([asker, service]: &[Totals; 2]) -> Self {
        let [sent, bursts] = [asker.sent_packets, asker.sent_bursts];
        Self {
            sent,
            received: asker.received_packets,
            retransmitted: asker.retransmitted_packets + service.retransmitted_packets,
            per_burst: if bursts == 0 { 0.0 } else { sent as f64 / bursts as f64 },
            answered: service.sent_packets,
            overflowed: asker.overflowed + service.overflowed,
        }
    }
}

/// Bytes of messages that a bare datagram, or round trip, stands for.
fn raw_payload(row: &Row) -> usize {
    if row.measure == Measure::Bandwidth { row.payload() } else { row.size }
}

/// Messages a second.
fn rates(figures: &Figures) -> Slices {
    let there = figures.slices.iter().filter(|slice| slice.nanoseconds > 0);
    Slices::of_rates(
        there.map(|slice| slice.messages as f64 * 1e9 / slice.nanoseconds as f64).collect(),
    )
}

fn rates_in_gigabits(figures: &Figures, size: usize) -> Slices {
    rates(figures).times(size as f64 * 8.0 / 1e9)
}

fn per_byte(processor: u64, messages: u64, size: usize) -> f64 {
    let bytes = messages * size as u64;
    if bytes == 0 { 0.0 } else { processor as f64 / bytes as f64 }
}

fn ratio(row: &Row, ours: &Figures, raw: &Figures) -> Option<Slices> {
    match row.measure {
        Measure::Bandwidth => {
            rates_in_gigabits(ours, row.size).over(rates_in_gigabits(raw, raw_payload(row)))
        }
        Measure::Latency => {
            let [ours, raw] = [ours, raw].map(|one| Slices::of_times(one.medians.clone()));
            ours.over(raw)
        }
    }
}

/// Tells people each row as soon as it is measured, and machines all of them in the end.
pub(super) struct Teller<'a> {
    args: &'a PerfArgs,
    setting: &'a Setting,
    palette: Palette,
    rows: Vec<RowReport>,
}

impl<'a> Teller<'a> {
    pub(super) fn new(args: &'a PerfArgs, setting: &'a Setting) -> Self {
        Self { args, setting, palette: Palette::new(args.color), rows: Vec::new() }
    }

    /// A row was measured.
    pub(super) fn row(&mut self, outcome: &Outcome) -> Result<(), Failure> {
        let row = RowReport::of(outcome, self.args.events);
        if !self.args.json {
            if self.rows.is_empty() {
                print(&describe(self.setting))?;
            }
            if self.rows.last().is_none_or(|last| last.measure != row.measure) {
                print(&format!("\n{}", self.palette.paint(Tone::Title, &title(row.measure))))?;
            }
            print(&line(&row))?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// All rows were measured, or a failure has ended it before.
    pub(super) fn end(&self, outcome: Result<(), Failure>) -> Result<ExitCode, Failure> {
        let error = outcome.as_ref().err().map(|failure| failure.parts().1);
        if self.args.json {
            let report = Report { setting: self.setting, rows: &self.rows, error };
            print(&serde_json::to_string(&report)?)?;
        } else if !self.rows.is_empty() {
            print(&format!("\n{}", hanging("", &explanation(self.setting, &self.rows))))?;
            notes(&self.rows).iter().try_for_each(|note| print(&hanging("note: ", note)))?;
        }
        outcome.map(|()| ExitCode::SUCCESS)
    }
}

fn describe(setting: &Setting) -> String {
    let mut parts = vec![
        match setting.link {
            LinkChoice::Udp => format!("two processes over UDP on {}", setting.device),
            LinkChoice::Memory => "both ends in one thread, in memory".to_owned(),
        },
        format!("path MTU {}", setting.path_mtu),
        match setting.polling {
            "events" => "asleep until events".to_owned(),
            polled => format!("polling {polled}"),
        },
    ];
    if let LinkChoice::Udp = setting.link {
        let [own, peer] = setting.addresses;
        parts.insert(1, format!("{own} to {peer}"));
    }
    if setting.has_bandwidth {
        parts.push(count(setting.queue_pairs.into(), "queue pair"));
        parts.push(format!("{} deep", setting.depth));
        parts.extend(setting.in_flight.map(|most| format!("{most} in flight")));
        parts.extend(setting.buffer.map(|bytes| format!("through {bytes} bytes")));
    }
    if setting.inline > 0 {
        parts.push(format!("inline up to {} bytes", setting.inline));
    }
    if setting.timeout != TIMEOUT {
        parts.push(format!("timeout exponent {}", setting.timeout));
    }
    parts.extend(setting.receive_buffer.map(|bytes| format!("receive buffer {bytes} bytes")));
    parts.extend(setting.fault.as_ref().map(|fault| format!("fault {fault}")));
    hanging("uroce perf: ", &parts.join(", "))
}

fn title(measure: Measure) -> String {
    match measure {
        Measure::Bandwidth => bandwidth_title(),
        Measure::Latency => LATENCY_TITLE.to_owned(),
    }
}

fn line(row: &RowReport) -> String {
    match row.measure {
        Measure::Bandwidth => bandwidth_line(row),
        Measure::Latency => latency_line(row),
    }
}

fn bandwidth_title() -> String {
    format!(
        "{:<9}{:>9}{:>9}{:>9}{:>12}{:>10}{:>9}{:>10}{:>9}{:>8}",
        "bandwidth",
        "bytes",
        "Gbit/s",
        "median",
        "messages/s",
        "raw",
        "median",
        "ours/raw",
        "ns/byte",
        "resent"
    )
}

fn bandwidth_line(row: &RowReport) -> String {
    let number = |slices: Option<Slices>, which: fn(Slices) -> f64| {
        slices.map_or_else(|| "-".to_owned(), |slices| figure(which(slices)))
    };
    let raw = row.raw.as_ref().and_then(|raw| raw.gigabits_per_second);
    format!(
        "{:<9}{:>9}{:>9}{:>9}{:>12}{:>10}{:>9}{:>10}{:>9}{:>8}",
        row.operation.name(),
        row.size,
        number(row.gigabits_per_second, |slices| slices.best),
        number(row.gigabits_per_second, |slices| slices.median),
        row.messages_per_second.map_or(0, |slices| slices.best as u64),
        number(raw, |slices| slices.best),
        number(raw, |slices| slices.median),
        number(row.ratio, |slices| slices.best),
        figure(row.processor_ns_per_byte),
        row.packets.retransmitted
    )
}

const LATENCY_TITLE: &str = "latency      bytes   min us     50 %     90 %     99 %   99.9 %      max  raw 50 %  \
     ours/raw  resent";

fn latency_line(row: &RowReport) -> String {
    let times = row.round_trip_us.map_or([0.0; 6], |times| {
        [times.min, times.p50, times.p90, times.p99, times.p999, times.max]
    });
    // Of too few times a percentile is the longest, and says nothing else.
    let needed = [1, 1, 10, 100, 1000, 1];
    let times: String = times
        .iter()
        .zip(needed)
        .map(|(time, needed)| match row.messages >= needed {
            true => format!("{:>9}", figure(*time)),
            false => format!("{:>9}", "-"),
        })
        .collect();
    let raw = row.raw.as_ref().and_then(|raw| raw.round_trip_us);
    let raw = raw.map_or_else(|| "-".to_owned(), |times| figure(times.p50));
    let ratio = row.ratio.map_or_else(|| "-".to_owned(), |ratio| figure(ratio.best));
    format!(
        "{:<9}{:>9}{times}{raw:>10}{ratio:>10}{:>8}",
        row.operation.name(),
        row.size,
        row.packets.retransmitted
    )
}

/// A number with about four digits.
fn figure(value: f64) -> String {
    match value {
        value if value >= 1000.0 => format!("{value:.0}"),
        value if value >= 100.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.4}"),
    }
}

fn explanation(setting: &Setting, rows: &[RowReport]) -> String {
    let has = |measure: Measure| rows.iter().any(|row| row.measure == measure);
    let mut sentences = Vec::new();
    if rows.iter().any(|row| row.raw.is_some()) {
        sentences.push(match setting.link {
            LinkChoice::Udp => {
                "raw: the same datagrams over plain UDP sockets, as fast as they go and without any \
                 protocol, in slices between ours; its Gbit/s are those of the payload that arrived."
            }
            LinkChoice::Memory => {
                "raw: the same datagrams copied into and out of the bare link, without headers, \
                 checks or a protocol, in slices between ours; its Gbit/s are of the payload."
            }
        });
        if setting.fault.is_some() {
            sentences.push("raw has no faults.");
        }
    }
    if has(Measure::Bandwidth) {
        sentences.push(
            "Bandwidth: the first of two figures is the best slice, the second (median) the one in \
             the middle; messages/s and ours/raw are of the best, and more is better. ns/byte is \
             processor time of both ends.",
        );
    }
    if has(Measure::Latency) {
        sentences.push(
            "Latency is of whole round trips (ib_write_lat and ib_send_lat print half); ours/raw is \
             the time of the best slice's median by that of raw, and less is better.",
        );
    }
    sentences.push(
        "resent: packets sent again, because they or their answers were lost or late. All data was \
         checked.",
    );
    sentences.join(" ")
}

/// What makes figures other than they seem.
fn notes(rows: &[RowReport]) -> Vec<String> {
    let share = rows.iter().filter_map(|row| row.processor_share).fold(1.0, f64::min);
    let mut notes = Vec::new();
    if share < WHOLE {
        notes.push(format!(
            "an end that polls had a processor for only {:.0} % of the time, so these figures are \
             not of uroce alone: two processors that nobody else uses give better ones",
            share * 100.0
        ));
    }
    let lost = rows.iter().filter_map(|row| row.raw.as_ref()).map(RawReport::lost);
    let lost = lost.fold(0.0, f64::max);
    if lost > HARDLY {
        notes.push(format!(
            "the receiver of raw, which nobody holds back, lost up to {:.0} % of what was sent",
            lost * 100.0
        ));
    }
    let is_bare = |row: &RowReport| row.measure == Measure::Latency && row.raw.is_none();
    if rows.iter().any(is_bare) && rows.iter().any(|row| row.raw.is_some()) {
        notes.push(
            "round trips of messages that a socket need not hold as a whole have no raw beside them"
                .to_owned(),
        );
    }
    notes
}

impl RawReport {
    /// The share of the datagrams of a stream that did not arrive.
    fn lost(&self) -> f64 {
        let lost = self.sent.saturating_sub(self.arrived);
        if self.sent == 0 { 0.0 } else { lost as f64 / self.sent as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_about_four_digits() {
        let cases = [(12_345.6, "12346"), (123.45, "123.5"), (1.234, "1.23"), (0.123_45, "0.1235")];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn titles_stand_above_their_columns() {
        assert_eq!(LATENCY_TITLE.len(), 9 + 9 + 6 * 9 + 10 + 10 + 8);
    }
}
