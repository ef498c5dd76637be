//! Rates, again and again.

use std::process::ExitCode;
use std::time::Duration;

use uroce::software::Observed;

use super::names::{self, Row};
use super::{Answer, CountersArgs, ask_all, text};
use crate::cli::output::{self, Failure};
use crate::cli::text::Palette;

/// Looks at the devices until the looks are used up or nobody answers any more.
pub fn run(
    args: &CountersArgs,
    devices: &[Observed],
    palette: Palette,
) -> Result<ExitCode, Failure> {
    let mut last = ask_all(devices, args.qp)?;
    let mut looks = 0;
    while args.looks.is_none_or(|limit| looks < limit) {
        pause(Duration::from_secs_f64(args.interval));
        let Ok(now) = ask_all(devices, args.qp) else {
            output::print("nobody answers any more: the processes have ended")?;
            break;
        };
        output::print(&lines(&last, &now, args, palette).join("\n"))?;
        last = now;
        looks += 1;
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::disallowed_methods, reason = "a person watches: nothing else can end the wait")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn lines(last: &[Answer], now: &[Answer], args: &CountersArgs, palette: Palette) -> Vec<String> {
    let mut lines = Vec::new();
    for answer in now {
        let same = |other: &&Answer| {
            (other.device.process, &other.device.device)
                == (answer.device.process, &answer.device.device)
        };
        let Some(before) = last.iter().find(same) else { continue };
        lines.push(text::device_head(&answer.device, palette));
        let seconds = answer.device.time.saturating_sub(before.device.time) as f64 / 1e9;
        let rates = rates(&rows(before, args), &rows(answer, args), seconds, args.all);
        if rates.is_empty() {
            lines.push("    nothing has changed".to_owned());
        }
        lines.extend(rates);
    }
    lines
}

/// The counts of the device, or of the queue pair that was asked for.
fn rows(answer: &Answer, args: &CountersArgs) -> Vec<Row> {
    let pair = answer.pairs.first().filter(|_| args.qp.is_some());
    names::rows(pair.map_or(&answer.device.counters, |pair| &pair.counters), args.names)
}

/// A line for each count that has changed: the count, and by how much it changes in a second.
fn rates(before: &[Row], now: &[Row], seconds: f64, all: bool) -> Vec<String> {
    let earlier = |row: &Row| {
        let same = |other: &&Row| (other.set, &other.name) == (row.set, &row.name);
        before.iter().find(same).map_or(0, |other| other.count)
    };
    let change = |row: &Row| row.count.saturating_sub(earlier(row));
    let shown = now.iter().filter(|row| all || change(row) > 0);
    let line = |row: &Row| {
        let rate = if seconds > 0.0 { change(row) as f64 / seconds } else { 0.0 };
        let set = row.set.map_or(String::new(), |_| format!("{}.", names::set_name(row.set)));
        format!("    {:<32} {:>20} {rate:>18.1}/s", format!("{set}{}", row.name), row.count)
    };
    shown.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_change_in_a_second() {
        let row = |name: &str, count| Row { set: None, name: name.to_owned(), count, meaning: "" };
        let (before, now) = ([row("a", 10), row("b", 5)], [row("a", 30), row("b", 5)]);
        let lines = rates(&before, &now, 2.0, false);
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].contains(" a ") && lines[0].contains("30") && lines[0].ends_with("10.0/s")
        );
        assert_eq!(rates(&before, &now, 2.0, true).len(), 2);
        assert!(rates(&before, &now, 0.0, false)[0].ends_with(" 0.0/s"));
    }
}
