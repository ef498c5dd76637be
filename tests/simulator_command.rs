//! `uroce sim` as people and machines use it.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output};

use uroce::pcap::Reader;

fn sim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uroce"));
    command.arg("sim").args(arguments).output().expect("the command can be started")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("output is UTF-8")
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = sim(arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Without what depends on the machine.
fn but_for_time(mut report: serde_json::Value) -> serde_json::Value {
    for name in ["processor_seconds", "packets_per_processor_second"] {
        let removed = report.as_object_mut().and_then(|fields| fields.remove(name));
        assert!(removed.and_then(|value| value.as_f64()) > Some(0.0), "{name}");
    }
    report
}

#[test]
fn a_seed_is_told_in_words_that_fit_the_screen() {
    let output = sim(&["--seed", "3"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = text(&output);
    assert!(text.contains("every promise was kept"), "{text}");
    assert!(text.contains("compare_swap"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn many_seeds_add_up_the_same_on_any_number_of_threads() {
    let one = json(&["--seed", "5", "--seeds", "6", "--threads", "1", "--json"]);
    let two = json(&["--seed", "5", "--seeds", "6", "--threads", "2", "--json"]);
    let number = |name: &str| one[name].as_f64().unwrap();
    let speed = number("packets") / number("processor_seconds");
    assert!((number("packets_per_processor_second") / speed - 1.0).abs() < 1e-9, "{one}");
    let (one, two) = (but_for_time(one), but_for_time(two));
    assert_eq!(one, two);
    assert_eq!(one["runs"], 6);
    assert!(one["requests"].as_u64() >= Some(1200), "{one}");
    assert_eq!(one["failures"], serde_json::json!([]));
    let cells = one["matrix"].as_array().unwrap();
    assert!(cells.iter().any(|cell| cell["count"].as_u64() > Some(0)), "{one}");
}

#[test]
fn chosen_faults_replace_those_of_the_seed() {
    let count = |report: &serde_json::Value, fault: &str| -> u64 {
        let cells = report["matrix"].as_array().unwrap().iter();
        let counts = cells.filter(|cell| cell["fault"] == fault);
        counts.map(|cell| cell["count"].as_u64().unwrap()).sum()
    };
    let report = json(&["--seed", "3", "--faults", "reorder=5%", "--json"]);
    assert!(count(&report, "reorder") > 0, "{report}");
    assert_eq!(count(&report, "loss") + count(&report, "corrupt") + count(&report, "detour"), 0);
    // Who comes from the other commands writes --fault.
    let other = json(&["--seed", "3", "--fault", "reorder=5%", "--json"]);
    assert_eq!(but_for_time(report), but_for_time(other));
}

#[test]
fn a_capture_has_every_packet_that_was_sent() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("simulated.pcapng");
    let report = json(&["--seed", "2", "--json", "--pcap", path.to_str().unwrap()]);
    let mut reader = Reader::new(File::open(&path).unwrap()).unwrap();
    let mut frames = 0;
    while let Some(record) = reader.next() {
        let record = record.unwrap();
        assert!(record.data.len() >= 14 + 20 + 8 + 16);
        frames += 1;
    }
    assert_eq!(Some(frames), report["packets"].as_u64());
}

#[test]
fn a_schedule_of_a_small_scenario_can_be_replayed() {
    let report = json(&["--schedule", "three_sends:x.2", "--json"]);
    assert_eq!(report["runs"], 1);
    assert_eq!(report["disturbances"], 2);
    let all = json(&["--exhaustive", "--depth", "1", "--json"]);
    let scenarios = all["scenarios"].as_array().unwrap();
    assert!(scenarios.iter().any(|one| one["name"] == "three_sends" && one["schedules"] == 5));
}

#[test]
fn wrong_usage_says_what_to_do_and_exits_2() {
    for (arguments, hint) in [
        (&["--faults", "los=1%"][..], "loss=P%"),
        (&["--seed", "1", "--faults", "direction=in"], "leave it out"),
        (&["--seed", "18446744073709551615", "--seeds", "2"], "beyond the last seed"),
        (&["--seeds", "5", "--pcap", "x.pcapng"], "give --seed"),
        (&["--schedule", "nothing"], "three_sends"),
        (&["--schedule", "three_sends:q"], "fates are"),
        (&["--exhaustive", "--seed", "1"], "cannot be used with"),
        (&["--seed", "1", "--pcap", "/no/such/folder/x.pcapng"], "/no/such/folder"),
    ] {
        let output = sim(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(hint), "{arguments:?}: {message}");
    }
}

#[test]
fn flows_in_a_switch_are_drawn_and_counted() {
    let output = sim(&["--scenario", "incast", "--senders", "3", "--time", "5ms"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let drawn = text(&output);
    assert!(drawn.contains("3 → 0 RC write") && drawn.contains("packets marked"), "{drawn}");
    assert!(drawn.lines().all(|line| line.chars().count() <= 100), "{drawn}");

    let arguments = ["--scenario", "incast", "--senders", "3", "--time", "5ms", "--json"];
    let report = json(&arguments);
    assert_eq!(report["flows"].as_array().unwrap().len(), 3);
    let series = [&report["flows"][0]["rates"], &report["flows"][0]["limits"]];
    let series = series.into_iter().chain([&report["queue"]["depths"]]);
    let counts = ["marks", "cnps", "drops", "pauses"].map(|name| &report[name]);
    assert!(series.chain(counts).all(|one| one.as_array().unwrap().len() == 50), "{report}");
    assert!(report["goodput"].as_f64() > Some(5e9), "{report}");
    assert_eq!(report, json(&arguments), "virtual time");

    let paused = json(&[&arguments[..], &["--pfc", "on", "--congestion", "off"]].concat());
    assert!(paused["pauses"].as_array().unwrap().iter().any(|count| count.as_u64() > Some(0)));
    assert!(paused["marks"].as_array().unwrap().iter().all(|count| count == 0));
}

#[test]
fn the_fields_of_a_scenario_are_all_documented() {
    let documented = include_str!("../docs/congestion.md");
    let report = json(&["--scenario", "two-flows", "--time", "1ms", "--pfc", "on", "--json"]);
    let keys = |value: &serde_json::Value| {
        value.as_object().unwrap().keys().cloned().collect::<Vec<String>>()
    };
    let parts = [&report, &report["flows"][0], &report["queue"], &report["pfc"]];
    for key in parts.into_iter().flat_map(keys) {
        assert!(documented.contains(&format!("`{key}`")), "{key} is not documented");
    }
    for (name, _) in uroce::engine::CongestionOptions::default().iter() {
        assert!(documented.contains(&format!("| `{name}` |")), "{name} is not documented");
    }
    let scenarios = json(&["--scenario", "list", "--json"]);
    let listed = text(&sim(&["--scenario", "list"]));
    assert!(listed.lines().all(|line| line.chars().count() <= 100), "{listed}");
    for scenario in scenarios.as_array().unwrap() {
        assert!(listed.contains(scenario["name"].as_str().unwrap()));
    }
}

#[test]
fn a_scenario_that_cannot_be_says_what_can() {
    for (arguments, hint) in [
        (&["--scenario", "outcast"][..], "incast"),
        (&["--senders", "3"], "--scenario"),
        (&["--scenario", "incast", "--seeds", "3"], "cannot be used with"),
        (&["--scenario", "incast", "--rate", "10"], "1M to 400G"),
        (&["--scenario", "incast", "--congestion", "rpg_ai=3"], "rpg_ai_rate"),
        (&["--scenario", "incast", "--kmin", "9", "--kmax", "3"], "--kmax 3"),
    ] {
        let output = sim(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(hint), "{arguments:?}: {message}");
    }
}

/// Faults that nothing survives are not a broken promise: requests fail, as they may.
#[test]
fn hopeless_faults_break_no_promise() {
    for seed in ["1", "4", "5", "7"] {
        let output = sim(&["--seed", seed, "--seeds", "2", "--faults", "loss=100%,seed=1"]);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.contains(&format!("2 runs (seeds {seed} to ")), "{text}");
    }
}
