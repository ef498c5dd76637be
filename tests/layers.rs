//! The layers hold: a folder of `src` uses only folders that stand above it in the list, and the
//! simulator's oracle knows nothing of the protocol. Read from the source text.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders and files of `src` in layer order (ARCHITECTURE.md).
const LAYERS: &[&str] = &[
    "time",
    "rng",
    "wire",
    "pcap",
    "memory",
    "queue",
    "transport",
    "engine",
    "words",
    "fault",
    "link",
    "host",
    "software",
    "hardware",
    "verbs",
    "cm",
    "abi",
    "dissect",
    "explain",
    "sim",
    "cli",
];

/// Layers that a layer must not use although they stand above it.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("sim/oracle", &["wire", "transport", "engine"]),
    ("sim", &["link", "host", "software", "verbs"]),
    ("abi", &["hardware"]),
];

#[test]
fn a_layer_uses_only_layers_above_it() {
    let mut violations = Vec::new();
    for (file, text) in sources() {
        let layer = layer_of(&file);
        let Some(own) = LAYERS.iter().position(|name| *name == layer) else { continue };
        for used in used_layers(&text) {
            let position = LAYERS.iter().position(|name| *name == used);
            let above = position.is_some_and(|position| position <= own);
            if !above {
                violations.push(format!("{}: {layer} uses {used}", file.display()));
            }
        }
    }
    assert!(violations.is_empty(), "against the layer order:\n{}", violations.join("\n"));
}

#[test]
fn some_layers_are_kept_from_others_altogether() {
    let mut violations = Vec::new();
    for (file, text) in sources() {
        let path = file.to_string_lossy().replace('\\', "/");
        for (folder, forbidden) in FORBIDDEN {
            if !path.starts_with(&format!("{folder}/")) {
                continue;
            }
            for used in used_layers(&text).iter().filter(|used| forbidden.contains(used)) {
                violations.push(format!("{path}: {folder} must not use {used}"));
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn every_folder_has_its_place() {
    for (file, _) in sources() {
        let layer = layer_of(&file);
        let root = ["lib", "main", "parts"].contains(&layer.as_str());
        assert!(root || LAYERS.contains(&layer.as_str()), "{} has no layer", file.display());
    }
}

#[test]
fn the_check_sees_what_it_should() {
    let text =
        "use crate::engine::{Port, Engine};\nlet x = crate::link::udp::open();\n// crate::sim";
    assert_eq!(used_layers(text), ["engine", "link"]);
    assert_eq!(
        used_layers("use crate::{\n    wire::Psn,\n    queue::{Sge, Access},\n};"),
        ["wire", "queue"]
    );
    assert_eq!(used_layers("use crate::{memory, time::Instant};"), ["memory", "time"]);
}

/// All Rust files below `src`, with their path from there and their text.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&root).unwrap().to_owned(), text));
            }
        }
    }
    assert!(found.len() > 50, "the sources were found");
    found
}

fn layer_of(file: &Path) -> String {
    let first = file.iter().next().unwrap().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// The top-level modules that a text names after `crate::`, comments left out.
fn used_layers(text: &str) -> Vec<&str> {
    let mut used = Vec::new();
    for line_start in text.match_indices("crate::") {
        let line = text[..line_start.0].rsplit('\n').next().unwrap_or("");
        if line.trim_start().starts_with("//") || line.ends_with("(in ") {
            continue;
        }
        let rest = &text[line_start.0 + "crate::".len()..];
        if let Some(list) = rest.strip_prefix('{') {
            used.extend(first_names(list));
        } else {
            used.push(name_at_start(rest));
        }
    }
    used.retain(|name| !name.is_empty());
    used
}

/// The first name of each item of a braced list.
fn first_names(list: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut at_item = true;
    for (index, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_item = true,
            _ if at_item && depth == 0 && character.is_alphabetic() => {
                names.push(name_at_start(&list[index..]));
                at_item = false;
            }
            _ => {}
        }
    }
    names
}

fn name_at_start(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}
