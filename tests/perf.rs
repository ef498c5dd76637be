//! `uroce perf`: every operation over both links at small counts. Figures are never judged, only
//! counts, bytes and what was checked.

mod common;

use common::program::{assert_success, json, run, status, stderr, stdout};
use serde_json::Value;

/// The report of a run that succeeds.
fn report(options: &[&str]) -> Value {
    let output = run(&[&["perf", "--json"], options].concat());
    assert_success(&output);
    json(&output)
}

/// The only row.
fn row(report: &Value) -> &Value {
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{report}");
    &rows[0]
}

#[test]
fn every_operation_is_measured_and_checked_over_both_links() {
    for link in ["udp", "memory"] {
        let report = report(&["--link", link, "-n", "60", "--slices", "3", "--size", "5000"]);
        assert_eq!((&report["link"], &report["slices"]), (&link.into(), &3.into()));
        let rows = report["rows"].as_array().unwrap();
        let names: Vec<_> = rows.iter().map(|row| row["operation"].as_str().unwrap()).collect();
        let four = ["write", "read", "send", "atomic"];
        assert_eq!(names, [four, four].concat());
        for (index, row) in rows.iter().enumerate() {
            let is_latency = index >= 4;
            let size = if row["operation"] == "atomic" { 8 } else { 5000 };
            assert_eq!(row["measure"], if is_latency { "latency" } else { "bandwidth" });
            assert_eq!((&row["size"], &row["messages"]), (&size.into(), &60.into()), "{row}");
            assert_eq!((&row["bytes"], &row["verified"]), (&(size * 60).into(), &true.into()));
            assert!(row["packets"]["sent"].as_u64().unwrap() >= 60, "{row}");
            assert_eq!(row["round_trip_us"].is_null(), !is_latency, "{row}");
            assert_eq!(row["gigabits_per_second"].is_null(), is_latency, "{row}");
            assert!(row["raw"].is_object() && row["ratio"]["median"].is_f64(), "{row}");
        }
    }
}

#[test]
fn round_trips_have_percentiles_in_order() {
    for operation in ["write", "read", "send", "atomic"] {
        let report = report(&[operation, "-l", "--link", "memory", "-n", "300"]);
        let times = &row(&report)["round_trip_us"];
        let names = ["min", "p50", "p90", "p99", "p999", "max"];
        let times: Vec<_> = names.iter().map(|name| times[name].as_f64().unwrap()).collect();
        assert!(times[0] > 0.0 && times.is_sorted(), "{times:?}");
    }
}

#[test]
fn the_ceiling_has_the_same_datagrams() {
    // A WRITE of 10000 bytes at a path MTU of 1024 is ten packets.
    let options = ["write", "-b", "-n", "40", "-s", "10000", "-m", "1024", "--slices", "2"];
    let report = report(&options);
    let (row, raw) = (row(&report), &row(&report)["raw"]);
    assert_eq!((&raw["datagram"], &raw["datagrams_per_send"]), (&1040.into(), &62.into()));
    assert_eq!(raw["sent"], 400);
    assert!(raw["arrived"].as_u64().unwrap() <= 400, "{raw}");
    let sent = row["packets"]["sent"].as_u64().unwrap();
    let resent = row["packets"]["retransmitted"].as_u64().unwrap();
    assert_eq!(sent - resent, 400, "{row}");
}

#[test]
fn without_the_ceiling_there_is_none() {
    let report = report(&["send", "-b", "-n", "10", "--no-raw", "--link", "memory"]);
    assert!(row(&report)["raw"].is_null() && row(&report)["ratio"].is_null());
}

#[test]
fn what_is_asked_for_counts_exactly_however_it_is_cut() {
    for count in ["1", "7", "33", "129"] {
        for operation in ["write", "send", "atomic"] {
            let options = [operation, "--link", "memory", "-b", "-n", count, "-q", "3", "-t", "4"];
            let report = report(&options);
            assert_eq!(row(&report)["messages"].to_string(), count, "{operation}");
        }
    }
}

#[test]
fn events_inline_data_and_watched_memory_work_between_processes() {
    let events = report(&["read", "send", "atomic", "-e", "-n", "50"]);
    assert_eq!(events["polling"], "events");
    assert_eq!(events["rows"].as_array().unwrap().len(), 6);
    let memory = report(&["write", "-l", "--poll", "memory", "-n", "300", "-s", "100"]);
    assert_eq!((&memory["polling"], &row(&memory)["messages"]), (&"memory".into(), &300.into()));
    let inline = report(&["write", "send", "-I", "256", "-s", "256", "-n", "100"]);
    assert_eq!(inline["inline"], 256);
    assert_eq!(inline["rows"].as_array().unwrap().len(), 4);
}

#[test]
fn several_sizes_are_several_rows() {
    let report = report(&["read", "-b", "--link", "memory", "--sizes", "1,3,4K,1M", "-n", "3"]);
    let rows = report["rows"].as_array().unwrap();
    let sizes: Vec<_> = rows.iter().map(|row| row["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [1, 3, 4096, 1 << 20]);
    let all = run(&["perf", "write", "-b", "--link", "memory", "--all", "-n", "2", "--json"]);
    assert_success(&all);
    assert_eq!(json(&all)["rows"].as_array().unwrap().len(), 24);
}

/// Each place of the memory that is walked through has data of its own, inline or not.
#[test]
fn inline_data_walks_through_memory_too() {
    for link in ["udp", "memory"] {
        for (buffer, pairs) in [("128", "1"), ("256", "3"), ("8K", "2"), ("1M", "1")] {
            let options = ["write", "-b", "-n", "300", "-s", "64", "-I", "64", "--buffer", buffer];
            let report = report(&[&options[..], &["-q", pairs, "--link", link]].concat());
            assert_eq!(row(&report)["messages"], 300, "{buffer} over {link}");
        }
    }
}

#[test]
fn rows_that_were_measured_are_told_after_a_failure() {
    // The second row cannot be: it wants too much memory.
    let options = ["perf", "write", "-b", "-n", "3", "--link", "memory", "--no-raw", "-q", "9"];
    let sizes = ["--sizes", "1K,1G"];
    let output = run(&[&options[..], &sizes, &["--json"]].concat());
    assert_eq!(status(&output), 2, "{}", stderr(&output));
    let report = json(&output);
    assert_eq!(row(&report)["size"], 1024);
    assert!(report["error"].as_str().unwrap().contains("MiB of memory"), "{report}");
    let output = run(&[&options[..], &sizes].concat());
    let text = stdout(&output);
    assert_eq!(text.lines().filter(|line| line.starts_with("write ")).count(), 1, "{text}");
    assert!(stderr(&output).contains("MiB of memory"), "{}", stderr(&output));
}

#[test]
fn every_member_of_the_json_is_described() {
    let page = include_str!("../docs/perf-json.md");
    let report = report(&["write", "-n", "20", "--link", "memory"]);
    let mut members = Vec::new();
    names(&report, &mut members);
    assert!(members.len() > 40, "{members:?}");
    for member in members {
        assert!(page.contains(&format!("`{member}`")), "docs/perf-json.md lacks `{member}`");
    }
}

/// The names of all members.
fn names(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            into.push(name.clone());
            names(member, into);
        }),
        Value::Array(values) => values.iter().for_each(|value| names(value, into)),
        _ => {}
    }
}

/// A failure is told by the exit status even where nobody can read why.
#[test]
fn a_full_standard_error_changes_no_exit_status() {
    let cases: [(&[&str], i32); 3] = [
        (&["perf", "write", "-d", "nowhere7"], 2),
        (&["perf", "write", "-b", "-n", "3", "--link", "memory", "--fault", "loss=100%"], 1),
        (&["sim", "--scenario", "none"], 2),
    ];
    for (options, expected) in cases {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = common::program::uroce(options);
        assert_eq!(command.stderr(full).status().unwrap().code(), Some(expected), "{options:?}");
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = common::program::uroce(&["perf", "--help"]).stdout(full).status().unwrap();
    assert_eq!(status.code(), Some(2), "help that was not printed");
}

#[test]
fn a_failure_under_faults_names_them() {
    let options = ["perf", "atomic", "-b", "-n", "3", "--link", "memory", "--fault", "loss=100%"];
    let output = run(&options);
    assert_eq!(status(&output), 1);
    let text = stderr(&output);
    assert!(text.contains("this run has the faults loss=100%"), "{text}");
    assert!(text.starts_with("uroce: atomic of 8 bytes failed"), "{text}");
}

#[test]
fn losses_are_repaired_and_told() {
    let fault = ["--fault", "loss=3%,duplicate=1%,reorder=1%,seed=3"];
    for link in ["udp", "memory"] {
        for operation in ["write", "read", "send", "atomic"] {
            let options = [operation, "-b", "-n", "400", "-t", "16", "--link", link];
            let size: &[&str] = if operation == "atomic" { &[] } else { &["-s", "8192"] };
            let report = report(&[&options[..], size, &fault].concat());
            let row = row(&report);
            assert_eq!((&row["messages"], &row["verified"]), (&400.into(), &true.into()));
            assert!(row["packets"]["retransmitted"].as_u64().unwrap() > 0, "{row}");
            assert!(report["fault"].as_str().unwrap().contains("loss=3%"), "{report}");
        }
    }
}

#[test]
fn a_small_receive_buffer_is_what_both_have() {
    let report = report(&["write", "-b", "-s", "1M", "-n", "20", "--receive-buffer", "208K"]);
    assert_eq!(report["receive_buffer"], 208 << 10);
    assert_eq!(row(&report)["bytes"], 20u64 << 20);
}

#[test]
fn a_time_may_be_given_in_place_of_a_count() {
    let report = report(&["send", "--link", "memory", "-D", "0.05", "--slices", "1"]);
    for row in report["rows"].as_array().unwrap() {
        assert!(row["messages"].as_u64().unwrap() > 0 && row["seconds"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn people_get_tables_that_fit() {
    for options in [&["-n", "20"][..], &["-n", "20", "--link", "memory", "--no-raw"]] {
        let output = run(&[&["perf"], options].concat());
        assert_success(&output);
        let text = stdout(&output);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let lines = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        for operation in ["write ", "read ", "send ", "atomic "] {
            assert_eq!(lines(operation), 2, "{text}");
        }
        assert!(text.contains("data was checked"), "{text}");
        assert_eq!(text.contains("raw: the same datagrams"), options.len() == 2, "{text}");
    }
}

#[test]
fn a_capture_holds_both_directions() {
    let folder = common::program::Folder::new();
    let file = folder.path("perf.pcapng");
    let report = report(&["read", "-b", "-n", "10", "-s", "1K", "--pcap", &file, "--no-raw"]);
    let packets = &row(&report)["packets"];
    let summary = json(&run(&["dump", "--summary", "--json", &file]));
    let opcodes = &summary["opcodes"];
    assert!(packets["sent"].as_u64().unwrap() >= 10, "{report}");
    assert_eq!(opcodes["RC_RDMA_READ_REQUEST"], packets["sent"], "{summary}");
    assert_eq!(opcodes["RC_RDMA_READ_RESPONSE_ONLY"], packets["received"], "{summary}");
    assert_eq!(summary["icrc"]["bad"], 0, "{summary}");
}

#[test]
fn wrong_options_say_what_to_do() {
    for (options, words) in [
        (&["read", "--latency", "--poll", "memory"][..], "write --latency --poll memory"),
        (&["write", "--events"], "--bandwidth"),
        (&["read", "--events", "--link", "memory"], "--link memory has not"),
        (&["write", "--link", "memory", "--device", "lo"], "--device needs an interface"),
        (&["write", "--link", "memory", "--receive-buffer", "1M"], "needs a socket"),
        (&["write", "-s", "2G"], "expected 1 to 1G bytes"),
        (&["write", "-s", "0"], "expected 1 to 1G bytes"),
        (&["write", "-D", "0"], "0.01 to 3600"),
        (&["write", "-D", "1", "-n", "5"], "cannot be used with"),
        (&["write", "-s", "1K", "--all"], "cannot be used with"),
        (&["write", "-m", "1500"], "256, 512, 1024, 2048 and 4096"),
        (&["write", "-q", "20000"], "not in 1..=16384"),
        (&["write", "--timeout", "32"], "not in 0..=31"),
        (&["write", "--in-flight", "0"], "not in 1..=1048576"),
        (&["write", "-I", "2K"], "expected 0 to 1024 bytes"),
        (&["read", "-I", "64"], "--inline: only WRITEs and SENDs"),
        (&["write", "-l", "-q", "2"], "--qps is for bandwidth"),
        (&["write", "-l", "-t", "2"], "--depth is for bandwidth"),
        (&["write", "-l", "--in-flight", "2"], "--in-flight is for bandwidth"),
        (&["write", "-l", "--buffer", "1M"], "--buffer is for bandwidth"),
        (&["send", "--buffer", "1M"], "--buffer: only WRITEs and READs"),
        (&["write", "--buffer", "1K"], "--buffer does not hold one message"),
        (&["write", "-b", "-q", "16384", "-t", "8192"], "--depth times --qps"),
        (&["atomic", "-s", "8"], "atomic is always of 8 bytes"),
        (&["write", "-t", "4", "-q", "2", "--in-flight", "9"], "--in-flight is more than"),
        (&["erase"], "possible values: write, read, send, atomic"),
        (
            &["write", "-b", "-q", "256", "-s", "512M", "--link", "memory"],
            "smaller --size, --buffer or --qps",
        ),
        (&["write", "-d", "nowhere7"], "nowhere7"),
    ] {
        let output = run(&[&["perf"], options].concat());
        assert_eq!(status(&output), 2, "{options:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{options:?}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn a_peer_that_nobody_talks_to_ends() {
    let output = run(&["perf", "--as-peer"]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
}

#[test]
fn an_end_that_loses_everything_gives_up_and_says_why() {
    let options = ["perf", "write", "-b", "-n", "5", "--fault", "loss=100%", "--patience", "30"];
    let output = run(&options);
    assert_eq!(status(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("write of 65536 bytes failed"), "{}", stderr(&output));
}
