//! Errors explain themselves: each one happens here, and its sentence is the one that
//! `docs/errors.md` promises, numbers aside.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/pages.rs"]
mod pages;
#[path = "../pair/mod.rs"]
mod pair;
#[path = "../xrc/mod.rs"]
mod xrc;

mod binding;
mod calls;
mod document;
mod ends;
mod events;
mod extended;
mod history;
mod local;
mod requester;
mod responder;
mod sockets;
mod system;
mod told;
mod world;

use document::{Document, normal};

/// A row's name, and what happens.
pub type Case = (&'static str, fn() -> String);

/// Every case of every kind.
fn cases() -> Vec<Case> {
    let kinds = [requester::CASES, responder::CASES, local::CASES, ends::CASES];
    let more = [calls::CASES, events::CASES, extended::CASES, binding::CASES, system::CASES];
    [&kinds[..], &more].concat().concat()
}

#[test]
fn every_row_of_the_document_is_what_happens() {
    compare(&cases());
}

/// The same for interfaces as no test machine has them: in a network of our own.
#[test]
fn every_row_of_an_unusable_interface_is_what_happens() {
    if let Err(reason) = common::network::enter_new_namespace() {
        return common::skip_unless("root", &reason);
    }
    compare(system::IN_A_NEW_NETWORK);
}

fn compare(cases: &[Case]) {
    let document = Document::read();
    let mut wrong = Vec::new();
    for (code, happen) in cases {
        let text = happen();
        match document.sentence(code) {
            None => wrong.push(format!("{code}: no row; it says\n{text}")),
            Some(row) if normal(row) != normal(&text) => {
                wrong.push(format!("{code}: the row says\n{row}\nand it is\n{text}"));
            }
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n\n{}", wrong.len(), wrong.join("\n\n"));
    println!("{} errors happened, each with the sentence of its row", cases.len());
}

#[test]
fn every_row_has_a_case_and_every_error_has_a_row() {
    let document = Document::read();
    let all = [&cases()[..], system::IN_A_NEW_NETWORK].concat();
    let mut names: Vec<&str> = all.iter().map(|(code, _)| *code).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None, "a case has one name");
    let mut sentences: Vec<String> =
        document.codes().filter_map(|code| document.sentence(code)).map(normal).collect();
    sentences.sort_unstable();
    let same = sentences.windows(2).find(|pair| pair[0] == pair[1]);
    assert!(same.is_none(), "two rows say the same: {same:?}");
    let without: Vec<&str> =
        document.codes().filter(|code| names.binary_search(code).is_err()).collect();
    assert!(without.is_empty(), "rows without a case: {without:?}");
    let expected = document::expected_codes();
    let impossible = document.impossible();
    let is_told = |code: &&String| document.sentence(code).is_some() || impossible.contains(code);
    let missing: Vec<&String> = expected.iter().filter(|code| !is_told(code)).collect();
    assert!(missing.is_empty(), "errors without a row: {missing:?}");
    let both: Vec<&String> =
        impossible.iter().filter(|code| document.sentence(code).is_some()).collect();
    assert!(both.is_empty(), "listed as impossible, and a row: {both:?}");
    let rows = document.codes().count() + impossible.len();
    assert_eq!(rows, expected.len(), "no row is of something that does not exist");
}

#[test]
fn every_status_has_a_row_or_is_never_given() {
    let document = Document::read();
    for status in document::statuses() {
        let given = document.codes().any(|code| document.status_of(code).contains(&status));
        let never = document.never_given().contains(&status);
        assert!(given != never, "status {status}: rows {given}, listed as never given {never}");
    }
}
