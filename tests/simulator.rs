//! Random worlds and exhaustive schedules, judged by an oracle that knows verbs and not the
//! protocol. `UROCE_SIM_SEEDS` runs another number of seeds.

use std::num::NonZero;
use std::thread::available_parallelism;

use uroce::queue::CompletionStatus;
use uroce::sim::oracle::{Defect, LinkDefect, Notice, UnackedDefect};
use uroce::sim::{Endings, Exhaustive, Scenario, Summary, run_many};

const SEEDS: u64 = 1000;
const DEPTH: usize = 5;

fn threads() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

#[test]
fn a_thousand_seeds_keep_every_promise_and_meet_every_fault() {
    let wanted = std::env::var("UROCE_SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    let seeds = wanted.unwrap_or(SEEDS);
    let summary = run_many(1, seeds, threads(), Scenario::random, |_| {});
    if let Some(failed) = summary.failures.first() {
        let failure = failed.failure.as_ref().expect("it is among the failures");
        panic!("replay with: uroce sim --seed {}\n{failure}", failed.seed);
    }
    println!("{}", summary.matrix);
    assert_eq!(summary.runs, seeds);
    assert!(summary.requests >= 200 * seeds, "{} requests", summary.requests);
    if seeds >= SEEDS {
        check_coverage(&summary);
    }
}

/// What no seed has met is not tested.
fn check_coverage(summary: &Summary) {
    let empty = summary.matrix.empty_cells();
    assert!(empty.is_empty(), "no packet of the operation met the fault: {empty:?}");
    let endings = &summary.endings;
    for defect in Defect::ALL {
        assert!(endings.found(defect) > 0, "never found out: {defect}");
    }
    for status in [
        CompletionStatus::Success,
        CompletionStatus::WorkRequestFlushed,
        CompletionStatus::TransportRetryExceeded,
        CompletionStatus::ReceiverNotReadyRetryExceeded,
    ] {
        assert!(endings.sends(None, status) > 0, "no legal request ended with: {status}");
    }
    for status in [
        CompletionStatus::Success,
        CompletionStatus::WorkRequestFlushed,
        CompletionStatus::LocalLengthError,
        CompletionStatus::LocalProtectionError,
        CompletionStatus::LocalAccessError,
    ] {
        assert!(endings.receives(status) > 0, "no receive ended with: {status}");
    }
    for notice in [Notice::Established, Notice::RequestError, Notice::AccessError, Notice::Drained]
    {
        assert!(endings.notices(notice) > 0, "nobody ever heard: {notice}");
    }
    assert!(summary.reconnections > 0);
    check_unacked_coverage(&summary.endings);
}

/// The same for queue pairs without acknowledgements: what only the receiver finds, it drops in
/// silence.
fn check_unacked_coverage(endings: &Endings) {
    for defect in UnackedDefect::ALL {
        let status = defect.failure().unwrap_or(CompletionStatus::Success);
        assert!(endings.unacked(Some(defect), status) > 0, "never met: {defect}");
    }
    for defect in LinkDefect::ALL {
        assert!(endings.links(Some(defect), defect.status()) > 0, "never refused: {defect:?}");
    }
    for status in [
        CompletionStatus::Success,
        CompletionStatus::WorkRequestFlushed,
        CompletionStatus::TransportRetryExceeded,
    ] {
        assert!(endings.links(None, status) > 0, "no link's request ended with: {status}");
    }
    for status in [CompletionStatus::Success, CompletionStatus::WorkRequestFlushed] {
        assert!(endings.unacked(None, status) > 0, "no datagram or the like ended with: {status}");
    }
}

#[test]
fn every_fate_of_the_first_packets_is_survived() {
    let reports = Exhaustive::run_all(DEPTH, threads(), |_| {});
    assert_eq!(reports.len(), Exhaustive::all().len());
    for report in &reports {
        println!("{report}");
        if let Some((fates, failure)) = &report.failure {
            panic!("replay with: uroce sim --schedule {}:{fates}\n{failure}", report.name);
        }
        assert!(report.runs > 100, "{report}: too few schedules make a difference");
    }
}

#[test]
fn a_seed_gives_the_same_frames_at_the_same_times() {
    let mut hashes = Vec::new();
    for seed in 1..=20 {
        let (first, second) = (Scenario::random(seed).run(), Scenario::random(seed).run());
        assert!(first.failure.is_none(), "seed {seed}: {}", first.failure.unwrap());
        assert_eq!(first.hash, second.hash, "seed {seed} differs from itself");
        assert_eq!(first.tally, second.tally);
        assert_eq!(first.ended, second.ended);
        hashes.push(first.hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 20, "two seeds gave the same frames");
}

#[test]
fn a_schedule_can_be_replayed_from_its_letters() {
    let scenarios = Exhaustive::all();
    let scenario = scenarios.iter().find(|one| one.name() == "three_sends").unwrap();
    assert!(scenario.schedule("x.?").is_none());
    let lost = scenario.schedule("xx").unwrap().run();
    assert!(lost.failure.is_none());
    assert_eq!(lost.tally.lost, 2);
    let clean = scenario.schedule("").unwrap().run();
    assert_eq!(clean.tally.disturbances(), 0);
    assert!(clean.tally.packets() < lost.tally.packets());
}
