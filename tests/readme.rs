//! What README.md claims holds: its example is the crate's, its commands and variables exist.

mod common;

use std::fs;
use std::path::Path;

use common::program::{Running, run, status, stderr, stdout, uroce};

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The first code block that begins with this line.
fn block(text: &str, begin: &str) -> String {
    let mut lines = text.lines().skip_while(|line| *line != begin).skip(1);
    let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
    assert!(!block.is_empty(), "there is a block that begins with {begin}");
    block.join("\n")
}

#[test]
fn its_example_is_the_one_that_the_crate_tests() {
    let library = read("src/lib.rs");
    let documentation: Vec<&str> = library
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    let tested = block(&documentation.join("\n"), "```");
    let shown = block(&read("README.md"), "```rust");
    assert_eq!(shown, tested);
    assert!(shown.lines().count() <= 35, "it is short");
}

#[test]
fn the_two_commands_come_first() {
    let readme = read("README.md");
    let top: Vec<&str> = readme.lines().take(12).collect();
    for command in ["cargo run --release -- demo", "cargo test --workspace"] {
        assert!(top.iter().any(|line| line.contains(command)), "{command}");
    }
}

#[test]
fn the_texts_fit_100_columns_but_for_tables() {
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        for line in read(name).lines().filter(|line| !line.starts_with('|')) {
            assert!(line.chars().count() <= 100, "{name}: {line}");
        }
    }
}

#[test]
fn every_help_text_fits_100_columns() {
    for command in ["counters", "demo", "devices", "dump", "perf", "pingpong", "sim"] {
        let help = stdout(&run(&[command, "--help"]));
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "uroce {command} --help: {line}");
        }
    }
}

#[test]
fn every_command_is_described() {
    let readme = read("README.md");
    let help = stdout(&run(&["--help"]));
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.contains(&"demo") && names.contains(&"pingpong"), "{help}");
    for name in names {
        assert!(
            readme.contains(&format!("\n### uroce {name}\n")),
            "README.md lacks `uroce {name}`"
        );
    }
}

#[test]
fn every_variable_of_the_table_is_understood_and_none_is_left_out() {
    let readme = read("README.md");
    let source = read("src/software/environment.rs");
    let variables = readme.lines().filter_map(|line| line.strip_prefix("| `UROCE_"));
    let variables: Vec<String> = variables
        .filter_map(|rest| rest.split('`').next())
        .map(|name| format!("UROCE_{name}"))
        .collect();
    assert!(variables.len() >= 7);
    for variable in &variables {
        assert!(source.contains(&format!("\"{variable}\"")), "{variable}");
    }
    for part in source.split("\"UROCE_").skip(1) {
        let name = format!("UROCE_{}", part.split('"').next().unwrap());
        assert!(variables.contains(&name), "README.md lacks {name}");
    }
    // Those that are to come are refused by name rather than ignored.
    for (variable, value) in [("UROCE_LINK", "xdp"), ("UROCE_PROVIDER", "hardware")] {
        let mut command = uroce(&["pingpong", "-d", "lo"]);
        command.env(variable, value);
        let output = Running::start(command).finish();
        assert_eq!(status(&output), 2, "{}", stderr(&output));
        assert!(stderr(&output).contains(value), "{}", stderr(&output));
    }
}
