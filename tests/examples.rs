//! The examples run to their end by themselves.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::program::{Running, assert_success, stdout};

/// The example beside the folder of this test's program.
fn example(name: &str) -> String {
    let own: PathBuf = std::env::current_exe().unwrap();
    let path = own.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name);
    assert!(
        path.exists(),
        "{} was not built: plain `cargo test` builds the examples, `cargo test --test examples` \
         needs `cargo build --examples` before",
        path.display()
    );
    let output = Running::start(Command::new(path)).finish();
    assert_success(&output);
    stdout(&output)
}

#[test]
fn write_puts_the_bytes_there() {
    let text = example("write");
    assert!(text.contains("work request 7: success"), "{text}");
    assert!(text.contains("Bob's memory holds: written by a peer"), "{text}");
}

#[test]
fn rpc_answers_every_question_and_keeps_its_credits() {
    let text = example("rpc");
    for line in [
        "-> REMOTE PROCEDURE CALL",
        "-> nolem on ,nomel on",
        "-> 3 words",
        "-> no idea what `sing a song` means",
        "-> bye",
        "client: 8 answers",
        "server: 8 questions",
        "0 without a receive",
    ] {
        assert!(text.contains(line), "{line} is missing: {text}");
    }
}

#[test]
fn futures_run_on_an_executor_of_a_few_lines() {
    let text = example("futures");
    assert!(text.contains("8 clients in one thread added up to 200"), "{text}");
    assert!(text.contains("first came work request Some(7)"), "{text}");
}

#[test]
fn futures_run_on_tokio() {
    let text = example("on_tokio");
    assert!(text.contains("4 clients and 4 servers in one thread: 40 answers"), "{text}");
    assert!(text.contains("first came work request 9"), "{text}");
}
