//! The document's tables, and what must be in them, both read from text.

use std::fs;
use std::path::PathBuf;

/// `docs/errors.md`.
pub struct Document {
    rows: Vec<Row>,
    never: Vec<u8>,
    impossible: Vec<String>,
}

struct Row {
    code: String,
    sentence: String,
    statuses: Vec<u8>,
}

fn file(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Document {
    pub fn read() -> Self {
        let text = file("docs/errors.md");
        let mut rows = Vec::new();
        let (mut never, mut impossible) = (Vec::new(), Vec::new());
        for line in text.lines() {
            if let Some(list) = line.strip_prefix("Never given by a software device:") {
                never = numbers(list);
            }
            if let Some((name, why)) =
                line.strip_prefix("- `").and_then(|rest| rest.split_once("`: "))
            {
                assert!(why.len() > 20, "{name} has no reason");
                impossible.push(name.to_owned());
            }
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let code = cells[0].strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
            if let (Some(code), true) = (code, line.starts_with("| `")) {
                assert!(cells.len() == 5, "five columns, or an unexpected bar: {line}");
                rows.push(Row {
                    code: code.to_owned(),
                    sentence: cells[2].replace("<br>", "\n").replace("\\|", "|"),
                    statuses: numbers(cells[1]),
                });
            }
        }
        Self { rows, never, impossible }
    }

    pub fn codes(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| row.code.as_str())
    }

    fn row(&self, code: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.code == code)
    }

    pub fn sentence(&self, code: &str) -> Option<&str> {
        Some(self.row(code)?.sentence.as_str())
    }

    pub fn status_of(&self, code: &str) -> &[u8] {
        self.row(code).map_or(&[], |row| row.statuses.as_slice())
    }

    /// Errors that no test can bring about, with a reason each.
    pub fn impossible(&self) -> &[String] {
        &self.impossible
    }

    pub fn never_given(&self) -> &[u8] {
        &self.never
    }
}

/// The whole numbers in a text.
fn numbers(text: &str) -> Vec<u8> {
    let words = text.split(|letter: char| !letter.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// A sentence with a mark in place of each number or address, and spaces made equal.
pub fn normal(text: &str) -> String {
    let word = |word: &str| {
        if !word.contains(|letter: char| letter.is_ascii_digit()) {
            return word.to_owned();
        }
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || ".:".contains(letter);
        let mut result = String::new();
        let mut rest = word;
        while !rest.is_empty() {
            let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
            let (run, behind) = rest.split_at(end.max(1).min(rest.len()));
            let has_digit = run.contains(|letter: char| letter.is_ascii_digit());
            let tail = run.trim_end_matches(['.', ':']).len();
            if has_digit {
                result.push('#');
                result.push_str(&run[tail..]);
            } else {
                result.push_str(run);
            }
            rest = behind;
        }
        result
    };
    // The unit of a time depends on the number.
    let units = |text: String| {
        ["ns", "µs", "ms", "s"].iter().fold(text, |text, unit| {
            text.replace(&format!("# {unit} "), "# time ")
                .replace(&format!("# {unit},"), "# time,")
                .replace(&format!("# {unit};"), "# time;")
        })
    };
    units(text.split_whitespace().map(word).collect::<Vec<_>>().join(" "))
}

/// Every sentence that the source can make: the names in `src/words`, and the variants with a text
/// of their own of the errors that calls give and of the events.
pub fn expected_codes() -> Vec<String> {
    let mut codes = Vec::new();
    for name in ["fault", "flush", "local", "refused", "unanswered"] {
        codes.extend(code_literals(&file(&format!("src/words/{name}.rs"))));
    }
    for (name, list) in [
        ("src/transport/table.rs", "ModifyError"),
        ("src/queue/request.rs", "PostError"),
        ("src/engine/mod.rs", "ControlError"),
        ("src/memory/error.rs", "RegisterError"),
        ("src/memory/region.rs", "AccessError"),
        ("src/host/mapping.rs", "MappingError"),
        ("src/verbs/error.rs", "VerbsError"),
        ("src/engine/groups.rs", "GroupError"),
        ("src/transport/congestion/options.rs", "CongestionError"),
        ("src/link/group.rs", "JoinError"),
        ("src/software/error.rs", "OpenError"),
    ] {
        codes.extend(error_variants(&file(name), list));
    }
    codes.extend(variants(&file("src/transport/effects.rs"), "AsyncEvent"));
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// String literals that name a sentence: lower-case words with dots.
fn code_literals(text: &str) -> Vec<String> {
    let literals = text.split('"').skip(1).step_by(2);
    let is_code = |literal: &&str| {
        let letters =
            literal.chars().all(|letter| letter.is_ascii_lowercase() || "._".contains(letter));
        letters
            && (literal.contains('_')
                || literal.contains('.')
                || ["misaligned", "unknown", "forgotten", "success"].contains(literal))
    };
    let facts = [
        "first_psn",
        "last_psn",
        "oldest_psn",
        "waited_ns",
        "timeout_ns",
        "timeout_used_ns",
        "retry_cnt",
        "sequence_naks",
        "answers_outside",
        "icmp_unreachable",
        "pause_ns",
        "min_rnr_timer",
        "rnr_retry",
        "reads_under_way",
        "must_end",
        "max_dest_rd_atomic",
        "packet_length",
        "work_request",
        "first_failure",
    ];
    let codes = literals.filter(is_code).filter(|code| {
        // A fact and a sentence may have the same name.
        !facts.contains(code) || *code == "packet_length"
    });
    codes.map(str::to_owned).collect()
}

/// The body of an enum.
fn body<'a>(text: &'a str, name: &str) -> &'a str {
    let start = text.find(&format!("pub enum {name} {{")).expect("the enum is there");
    let end = text[start..].find("\n}").expect("it ends") + start;
    &text[start..end]
}

/// Names of variants that have a sentence of their own.
fn error_variants(text: &str, name: &str) -> Vec<String> {
    let parts = body(text, name).split("#[error(").skip(1);
    let own = parts.filter(|part| !part.starts_with("transparent"));
    own.map(|part| {
        let behind = part
            .find("\n    )]\n")
            .map_or_else(|| part.find(")]\n").expect("an attribute ends") + 3, |place| place + 8);
        format!("{name}.{}", first_word(&part[behind..]))
    })
    .collect()
}

fn first_word(text: &str) -> &str {
    let text = text.trim_start();
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(text.len());
    &text[..end]
}

/// Names of all variants.
fn variants(text: &str, name: &str) -> Vec<String> {
    let lines = body(text, name).lines().skip(1).map(str::trim);
    let names = lines.filter(|line| line.starts_with(|letter: char| letter.is_ascii_uppercase()));
    names.map(|line| format!("{name}.{}", first_word(line))).collect()
}

/// Numbers of all statuses but success.
pub fn statuses() -> Vec<u8> {
    let text = file("src/queue/completion.rs");
    let lines = body(&text, "CompletionStatus").lines().filter_map(|line| line.split_once(" = "));
    let numbers = lines.filter_map(|(_, number)| number.trim_end_matches(',').parse().ok());
    numbers.filter(|number: &u8| *number != 0).collect()
}

#[test]
fn numbers_and_addresses_do_not_count_and_words_do() {
    let one = "PSN 0x00fff0 was sent 8 times in 537 ms, at 10.0.0.2: x";
    let other = "PSN 0x000001 was sent 12 times in 3 s, at fe80::1: x";
    assert_eq!(normal(one), normal(other));
    assert_eq!(normal("sent 8 times"), "sent # times");
    assert_ne!(normal("8 bytes"), normal("8 packets"));
    assert_ne!(normal("WRITE of 8"), normal("READ of 8"));
}

#[test]
fn the_source_is_read_right() {
    let codes = expected_codes();
    for code in [
        "unanswered.silence",
        "ModifyError.Missing",
        "PostError.QueueFull",
        "AsyncEvent.RequestError",
        "misaligned",
    ] {
        assert!(codes.iter().any(|found| found == code), "{code} in {codes:?}");
    }
    assert!(!codes.iter().any(|code| code.contains("psn")), "{codes:?}");
    assert_eq!(statuses().len(), 15);
}
