//! Which story tells which rule: `tests/data/rules.csv` has a line for each row of the tables of
//! faults, states and keys and of the order of checks, with the stories that tell it.
//!
//! A story is named by its function, or by file and function where two files have one of that name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const RULES: &str = include_str!("../data/rules.csv");
/// Every section of the table, so that none can be lost as a whole.
const SECTIONS: [&str; 8] =
    ["credits", "fault", "keys", "order", "rnr wait", "states", "ud receive", "unacked"];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the stories").map(|entry| entry.unwrap().path());
    let parts = entries.map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    parts.flatten().collect()
}

/// The tests of all stories, each with the files that have one of its name.
fn stories() -> BTreeMap<String, Vec<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files(&folder) {
        let text = fs::read_to_string(&file).expect("source files are text");
        let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
        let mut is_test = false;
        for line in text.lines() {
            if is_test && let Some(rest) = line.strip_prefix("fn ") {
                let name = rest.split('(').next().unwrap_or_default();
                found.entry(name.to_owned()).or_default().push(stem.clone());
            }
            is_test = line == "#[test]";
        }
    }
    found
}

#[test]
fn each_rule_names_stories_that_exist() {
    let stories = stories();
    let (mut sections, mut rows) = (BTreeSet::new(), BTreeSet::new());
    for line in RULES.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [section, row, named] = fields[..] else { panic!("three fields: {line}") };
        assert!(rows.insert((section, row)), "{section}, {row} stands there twice");
        sections.insert(section);
        assert!(!named.trim().is_empty(), "{section}, {row} has no story");
        for story in named.split(' ') {
            let (file, name) = match story.split_once("::") {
                Some((file, name)) => (Some(file), name),
                None => (None, story),
            };
            let places = stories.get(name).map_or(&[][..], Vec::as_slice);
            let is_one = match file {
                Some(file) => places.iter().any(|place| place == file),
                None => places.len() == 1,
            };
            assert!(is_one, "{section}, {row}: {story} is no story, or one of {places:?}");
        }
    }
    assert_eq!(sections.into_iter().collect::<Vec<_>>(), SECTIONS);
    assert!(rows.len() >= 80, "{} rows: one was lost", rows.len());
}
