//! What `uroce perf` says, to people and to machines.

use std::process::ExitCode;

use serde::Serialize;

use super::measure::{Figures, Outcome};
use super::other::Totals;
use super::plan::{Measure, Operation, Row};
use super::statistics::{Percentiles, Slices};
use super::{LinkChoice, PerfArgs};
use crate::cli::output::{Failure, print};
use crate::cli::text::{Palette, Tone, count, hanging};

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
    pub(super) inline: u32,
    pub(super) polling: &'static str,
    pub(super) slices: u32,
    /// Bytes that were asked for; nothing for the device's own choice, or in memory.
    pub(super) receive_buffer: Option<usize>,
    pub(super) fault: Option<String>,
}

/// Everything that is told.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    setting: &'a Setting,
    rows: Vec<RowReport>,
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
    fn of(outcome: &Outcome) -> Self {
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
            processor_ns_per_byte: per_byte(raw.processor, raw.messages(), raw_payload(row)),
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
            processor_ns_per_byte: per_byte(ours.processor, messages, row.size),
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

/// Tells what has come out.
pub(super) fn tell(
    args: &PerfArgs,
    setting: &Setting,
    outcomes: &[Outcome],
) -> Result<ExitCode, Failure> {
    let rows: Vec<RowReport> = outcomes.iter().map(RowReport::of).collect();
    if args.json {
        print(&serde_json::to_string(&Report { setting, rows })?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let palette = Palette::new(args.color);
    print(&describe(setting))?;
    table(palette, &rows, Measure::Bandwidth, &bandwidth_title(), bandwidth_line)?;
    table(palette, &rows, Measure::Latency, LATENCY_TITLE, latency_line)?;
    print("")?;
    print(&hanging("", &explanation(setting, args.no_raw)))?;
    Ok(ExitCode::SUCCESS)
}

fn describe(setting: &Setting) -> String {
    let mut parts = vec![
        match setting.link {
            LinkChoice::Udp => format!("two processes over UDP on {}", setting.device),
            LinkChoice::Memory => "both ends in one thread, in memory".to_owned(),
        },
        format!("path MTU {}", setting.path_mtu),
        count(setting.queue_pairs.into(), "queue pair"),
        format!("{} deep", setting.depth),
        match setting.polling {
            "events" => "asleep until events".to_owned(),
            polled => format!("polling {polled}"),
        },
    ];
    parts.extend(setting.receive_buffer.map(|bytes| format!("receive buffer {bytes} bytes")));
    parts.extend(setting.fault.as_ref().map(|fault| format!("fault {fault}")));
    hanging("uroce perf: ", &parts.join(", "))
}

fn table(
    palette: Palette,
    rows: &[RowReport],
    measure: Measure,
    title: &str,
    line: fn(&RowReport) -> String,
) -> Result<(), Failure> {
    let mut rows = rows.iter().filter(|row| row.measure == measure).peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    print("")?;
    print(&palette.paint(Tone::Title, title))?;
    rows.try_for_each(|row| print(&line(row)))
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
    let times: String = times.iter().map(|time| format!("{:>9}", figure(*time))).collect();
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

fn explanation(setting: &Setting, no_raw: bool) -> String {
    let rest = "The first of two figures is the best slice, the second the median. ns/byte is \
                processor time of both ends. Latency is of a whole round trip. All data was checked.";
    if no_raw {
        return rest.to_owned();
    }
    let raw = match setting.link {
        LinkChoice::Udp => {
            "raw: the same datagrams over plain UDP sockets, as fast as they go and without any \
             protocol, in slices between ours; its Gbit/s are of the payload."
        }
        LinkChoice::Memory => {
            "raw: the same datagrams copied into and out of the bare link, without headers, checks \
             or a protocol, in slices between ours; its Gbit/s are of the payload."
        }
    };
    format!("{raw} {rest}")
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
