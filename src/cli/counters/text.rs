//! The counts for people.

use uroce::software::{CounterSource, DeviceReport, ObserveError, Observed, PairReport};

use super::names::{self, Row};
use super::{Answer, CountersArgs, entry};
use crate::cli::text::{Palette, Tone, count, hanging};

/// Head of the list of processes.
pub fn list_head(palette: Palette) -> String {
    let head = format!(
        "{:>8}  {:<16} {:<16} {:>11} {:>14} {:>14}",
        "process", "program", "device", "queue pairs", "packets out", "packets in"
    );
    palette.paint(Tone::Title, &head)
}

/// A process in the list.
pub fn list_line(device: &DeviceReport) -> String {
    let packets = |name: &str| device.counters.get(name).copied().unwrap_or_default();
    format!(
        "{:>8}  {:<16} {:<16} {:>11} {:>14} {:>14}",
        device.process,
        cut(&device.program, 16),
        cut(&device.device, 16),
        device.queue_pairs,
        packets("sent_packets"),
        packets("received_packets"),
    )
}

/// A process in the list that does not answer.
pub fn list_failure(device: &Observed, error: &ObserveError) -> String {
    let head = format!("{:>8}  {:<16} ", device.process, cut(&device.program, 16));
    hanging(&head, &error.to_string())
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// Everything that one device answered.
pub fn lines(answer: &Answer, args: &CountersArgs, palette: Palette) -> Vec<String> {
    let mut lines = vec![device_head(&answer.device, palette)];
    if args.qp.is_none() {
        lines.extend(table(&names::rows(&answer.device.counters, args.names), args, palette));
        if !answer.pairs.is_empty() {
            lines.push(String::new());
            lines.push(palette.paint(Tone::Title, &pair_row(PAIR_HEAD.map(str::to_owned))));
            lines.extend(answer.pairs.iter().map(pair_line));
        }
        return lines;
    }
    for pair in &answer.pairs {
        lines.push(pair_head(pair));
        lines.extend(table(&names::rows(&pair.counters, args.names), args, palette));
    }
    lines
}

/// The line that names process and device.
pub fn device_head(device: &DeviceReport, palette: Palette) -> String {
    let pairs = count(device.queue_pairs as u64, "queue pair");
    let (process, program) = (device.process, &device.program);
    let device = &device.device;
    let title =
        palette.paint(Tone::Title, &format!("process {process} ({program}), device {device}"));
    format!("{title}: {pairs}")
}

fn pair_head(pair: &PairReport) -> String {
    let PairReport { number, kind, state, destination, peer, .. } = pair;
    let to = match (destination, peer) {
        (Some(number), Some(peer)) => format!(", to {number:#x} at {peer}"),
        _ => String::new(),
    };
    format!("    queue pair {number:#x}: {kind}, {state}{to}")
}

fn table(rows: &[Row], args: &CountersArgs, palette: Palette) -> Vec<String> {
    let shown: Vec<&Row> = rows.iter().filter(|row| args.all || row.count > 0).collect();
    let mut lines: Vec<String> = shown.iter().map(|row| line(row, palette)).collect();
    let hidden = rows.len() - shown.len();
    if hidden > 0 {
        let text = format!(
            "    {} hidden; -a shows them",
            count(hidden as u64, "count of zero").replace("zeros", "zero")
        );
        lines.push(palette.paint(Tone::Quiet, &text));
    }
    lines
}

fn line(row: &Row, palette: Palette) -> String {
    let set = row.set.map_or(String::new(), |_| format!("{}.", names::set_name(row.set)));
    let head = format!("    {:<32} {:>14}  ", format!("{set}{}", row.name), row.count);
    let never =
        row.set.and_then(|set| entry(set, &row.name)).and_then(|entry| match entry.source {
            CounterSource::Never(why) => Some(why),
            CounterSource::Sum(_) => None,
        });
    let text = match never {
        Some(why) => hanging(&head, &format!("{} Always zero: {why}.", row.meaning)),
        None => hanging(&head, row.meaning),
    };
    let is_bad = row.count > 0 && (row.name.starts_with("drop_") || row.name.contains("exceeded"));
    if is_bad { palette.paint(Tone::Notable, &text) } else { text }
}

const PAIR_HEAD: [&str; 8] =
    ["queue pair", "kind", "state", "peer", "sent", "received", "again", "dropped"];

fn pair_row(fields: [String; 8]) -> String {
    let [number, kind, state, peer, sent, received, again, dropped] = fields;
    format!(
        "    {number:<10} {kind:<5} {state:<5} {:<29} {sent:>10} {received:>10} {again:>8} {dropped:>8}",
        cut(&peer, 29)
    )
}

fn pair_line(pair: &PairReport) -> String {
    let get = |name: &str| pair.counters.get(name).copied().unwrap_or_default();
    let drops = pair.counters.iter().filter(|(name, _)| name.starts_with("drop_"));
    pair_row([
        format!("{:#x}", pair.number),
        pair.kind.clone(),
        pair.state.clone(),
        match (pair.peer, pair.destination) {
            (Some(peer), Some(number)) => format!("{number:#x} at {peer}"),
            _ => "-".to_owned(),
        },
        get("sent_packets").to_string(),
        get("received_packets").to_string(),
        get("retransmitted_packets").to_string(),
        drops.map(|(_, count)| count).sum::<u64>().to_string(),
    ])
}
