//! Forty-four faults of a shipping software RoCE over ten years, each with a test named after what
//! is right, or with the reason why it has none yet. The last test counts them.

mod queues;
mod requester;
mod responder;
mod unacked;
mod windows;
mod wire;

use std::collections::BTreeSet;

/// Lessons without a test here, and why.
const LISTED: [(u32, &str); 0] = [];

#[test]
fn every_lesson_is_tested_or_listed_with_a_reason() {
    let sources = [
        include_str!("queues.rs"),
        include_str!("requester.rs"),
        include_str!("responder.rs"),
        include_str!("unacked.rs"),
        include_str!("../groups.rs"),
        include_str!("windows.rs"),
        include_str!("wire.rs"),
        include_str!("../placing.rs"),
    ];
    let tested: Vec<u32> = sources
        .iter()
        .flat_map(|source| source.lines())
        .filter_map(|line| line.strip_prefix("fn lesson_"))
        .map(|rest| rest[..2].parse().expect("two digits follow lesson_"))
        .collect();
    let listed = LISTED.iter().map(|(number, _)| *number);
    let all: Vec<u32> = tested.iter().copied().chain(listed).collect();
    let distinct: BTreeSet<u32> = all.iter().copied().collect();
    assert_eq!(distinct, (1..=44).collect());
    assert_eq!(all.len(), 44, "no lesson twice");
}
