//! No test, bench or example touches the machine's own network: they name `lo` or interfaces
//! that they made.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

/// This file holds the names that it looks for.
const OWN_NAME: &str = "uplink_guard.rs";

/// Files that write interface names into captures; they can open none, which is checked.
const NAMES_ONLY: [&str; 1] = ["tests/pcap.rs"];

/// Whether a word is what Linux calls a physical interface: `eth0`, `eno1`, `enp3s0`, `wlan0`, ….
fn is_uplink(word: &str) -> bool {
    const PREFIXES: [&str; 10] =
        ["eth", "eno", "ens", "enp", "enx", "wlan", "wlp", "bond", "ib", "em"];
    PREFIXES.iter().any(|prefix| {
        word.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// The uplink names in string literals of a source, with their line numbers from 1.
fn uplinks_in(source: &str) -> Vec<(usize, String)> {
    let lines = source.lines().enumerate();
    lines
        .flat_map(|(index, line)| {
            let literals = line.split('"').skip(1).step_by(2);
            let words = literals.flat_map(|text| text.split(|c: char| !c.is_alphanumeric()));
            words.filter(|word| is_uplink(word)).map(move |word| (index + 1, word.to_owned()))
        })
        .collect()
}

fn sources_under(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .map(|entry| entry.path())
        .flat_map(|path| if path.is_dir() { sources_under(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

#[test]
fn no_test_bench_or_example_names_an_uplink() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources: Vec<PathBuf> = ["tests", "benches", "examples"]
        .iter()
        .flat_map(|f| sources_under(&root.join(f)))
        .collect();
    assert!(sources.iter().any(|path| path.ends_with("tests/links.rs")), "the scan finds files");
    for path in sources.iter().filter(|path| !path.ends_with(OWN_NAME)) {
        let source = fs::read_to_string(path).unwrap();
        if NAMES_ONLY.iter().any(|file| path.ends_with(file)) {
            let openers = ["uroce::link", "uroce::software", "uroce::verbs", "pnet", "Command"];
            let used = openers.iter().find(|opener| source.contains(**opener));
            assert_eq!(used, None, "{} must not open interfaces", path.display());
            continue;
        }
        let found = uplinks_in(&source);
        assert!(found.is_empty(), "{}: {found:?}: use lo or a veth pair", path.display());
    }
}

#[test]
fn the_guard_sees_what_it_must_see() {
    let source = "let lo = open(\"lo\");\nlet up = open(\"eth0\", \"enp3s0:1\");\n";
    assert_eq!(uplinks_in(source), [(2, "eth0".to_owned()), (2, "enp3s0".to_owned())]);
    assert!(uplinks_in("// eth0 in a comment, and \"ethernet\", \"ibv0\", \"lo\"").is_empty());
}

#[test]
fn only_lo_and_interfaces_of_our_own_pass_at_run_time() {
    let made = vec!["uroce0".to_owned()];
    assert!(common::network::is_ours("lo", &made) && common::network::is_ours("uroce0", &made));
    assert!(!common::network::is_ours("eth0", &made));
    assert!(std::panic::catch_unwind(|| common::network::assert_ours("eth0")).is_err());
}

#[test]
fn a_required_need_turns_a_skip_into_a_failure() {
    assert!(common::is_required("lab, root,tshark", "root"));
    assert!(!common::is_required("lab,rooted", "root"));
    assert!(!common::is_required("", "root"));
}
