//! The counts in Prometheus's text exposition format, version 0.0.4.
//!
//! `uroce_NAME_total` is a device's count with the labels `process`, `program` and `device`;
//! `uroce_qp_NAME_total` a queue pair's with `qp` besides, given if it is not zero. They are
//! different metrics so that a sum over one does not count twice. Names of other drivers follow as
//! `uroce_rxe_…` and `uroce_mlx5_…`.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::names::{self, Row};
use super::{Answer, Names};

/// A metric: help text and samples.
#[derive(Default)]
struct Metric {
    help: String,
    samples: Vec<(String, u64)>,
}

/// All metrics of all devices.
pub fn text(answers: &[Answer], names: Names) -> String {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut gauge = Metric::default();
    for answer in answers {
        let device = device_labels(answer);
        gauge.samples.push((device.clone(), answer.device.queue_pairs as u64));
        for row in names::rows(&answer.device.counters, names) {
            add(&mut metrics, "", &row, device.clone());
        }
        for pair in &answer.pairs {
            let labels = format!("{device},qp=\"{:#x}\"", pair.number);
            let rows = names::rows(&pair.counters, names);
            for row in rows.iter().filter(|row| row.count > 0) {
                add(&mut metrics, "qp_", row, labels.clone());
            }
        }
    }
    gauge.help = "Queue pairs that exist.".to_owned();
    let mut text = String::new();
    put(&mut text, "uroce_queue_pairs", "gauge", &gauge);
    for (name, metric) in &metrics {
        put(&mut text, name, "counter", metric);
    }
    text
}

fn add(metrics: &mut BTreeMap<String, Metric>, scope: &str, row: &Row, labels: String) {
    let set = match row.set {
        None => String::new(),
        Some(_) => format!("{}_", names::set_name(row.set)),
    };
    let metric = metrics.entry(format!("uroce_{scope}{set}{}_total", row.name)).or_default();
    metric.help = row.meaning.to_owned();
    metric.samples.push((labels, row.count));
}

fn put(text: &mut String, name: &str, kind: &str, metric: &Metric) {
    let help = metric.help.replace('\\', "\\\\").replace('\n', "\\n");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in &metric.samples {
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    }
}

fn device_labels(answer: &Answer) -> String {
    let device = &answer.device;
    format!(
        "process=\"{}\",program=\"{}\",device=\"{}\"",
        device.process,
        escape(&device.program),
        escape(&device.device)
    )
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use uroce::software::{DeviceReport, PairReport};

    use super::*;

    #[test]
    fn labels_are_escaped_and_each_metric_has_one_head() {
        let counters = |count| [("sent_packets".to_owned(), count)].into();
        let pair = PairReport {
            number: 0x1a,
            kind: "RC".to_owned(),
            state: "RTS".to_owned(),
            destination: None,
            peer: None,
            counters: counters(3),
        };
        let device = DeviceReport {
            process: 7,
            program: "a\"b\\".to_owned(),
            device: "lo".to_owned(),
            interface: None,
            time: 1,
            queue_pairs: 1,
            counters: counters(4),
        };
        let text = text(
            &[
                Answer { device: device.clone(), pairs: vec![pair] },
                Answer { device, pairs: Vec::new() },
            ],
            Names::Uroce,
        );
        let labels = r#"process="7",program="a\"b\\",device="lo""#;
        assert!(text.contains(&format!("\nuroce_sent_packets_total{{{labels}}} 4\n")), "{text}");
        let own = format!("\nuroce_qp_sent_packets_total{{{labels},qp=\"0x1a\"}} 3\n");
        assert!(text.contains(&own), "{text}");
        assert_eq!(text.matches("# TYPE uroce_sent_packets_total counter").count(), 1);
        assert_eq!(text.matches("# HELP uroce_sent_packets_total Packets made.").count(), 1);
    }
}
