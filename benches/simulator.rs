//! Whole worlds from a few seeds, on this thread: engines at both ends, the network with its faults,
//! applications, and the oracle that judges everything. Reports packets a second.

#![allow(missing_docs, reason = "the group macro makes a public function")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use uroce::sim::Scenario;

/// Enough for every kind of scenario to be among them.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=24;

/// Packets of all runs. Each must keep every promise, or what is measured is something else.
fn run(scenarios: &[Scenario]) -> u64 {
    let packets = scenarios.iter().map(|scenario| {
        let report = scenario.run();
        assert!(report.failure.is_none(), "seed {} failed", report.seed);
        report.tally.packets()
    });
    packets.sum()
}

fn simulator(criterion: &mut Criterion) {
    let scenarios: Vec<Scenario> = SEEDS.map(Scenario::random).collect();
    let mut group = criterion.benchmark_group("simulator");
    group.sample_size(20);
    group.throughput(Throughput::Elements(run(&scenarios)));
    group.bench_function("seeds", |bencher| bencher.iter(|| black_box(run(&scenarios))));
    group.finish();
}

criterion_group!(benches, simulator);
criterion_main!(benches);
