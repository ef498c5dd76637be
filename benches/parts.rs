//! Private parts of the data path alone: copies into and out of registered memory, timers, the ready
//! list. Needs the feature `parts`. Reports bytes or steps a second.

#![allow(missing_docs, reason = "the group macro makes a public function")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use uroce::memory::{OwnedMemory, Sge};
use uroce::parts::{Ready, Registered, Timers};
use uroce::rng::Rng;
use uroce::time::{Instant, MICROSECOND};

const SIZES: [usize; 5] = [8, 64, 256, 1024, 4096];
const QUEUE_PAIRS: [u32; 3] = [100, 10_000, 100_000];
/// More than one region, as applications have: the table is not one entry.
const REGIONS: usize = 1000;

/// Memory of 8 KiB, registered last of many.
fn registered() -> (Registered, Arc<OwnedMemory>, Sge) {
    let mut table = Registered::default();
    let memory = OwnedMemory::new(8192);
    for _ in 1..REGIONS {
        table.register(&OwnedMemory::new(64));
    }
    let key = table.register(&memory);
    let whole = Sge { address: memory.address(), length: 8192, key };
    (table, memory, whole)
}

fn copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memory");
    let (table, memory, whole) = registered();
    for size in SIZES {
        group.throughput(Throughput::Bytes(size as u64));
        let source: Vec<u8> = (0..size).map(|at| (at * 3) as u8).collect();
        let mut target = vec![0; size];
        table.write(&whole, &source).unwrap();
        table.read(&whole, &mut target).unwrap();
        assert_eq!((&memory.to_vec(0, size).unwrap(), &target), (&source, &source));
        group.bench_function(BenchmarkId::new("write", size), |bencher| {
            bencher.iter(|| table.write(black_box(&whole), black_box(&source)).unwrap());
        });
        group.bench_function(BenchmarkId::new("read", size), |bencher| {
            bencher.iter(|| table.read(black_box(&whole), black_box(&mut target)).unwrap());
        });
    }
    for (count, size) in [1, 2, 8].into_iter().flat_map(|count| [(count, 64), (count, 4096)]) {
        group.throughput(Throughput::Bytes(size as u64));
        // Each in a part of its own, with a gap behind.
        let segment = |index| Sge {
            address: whole.address + index as u64 * 8192 / count as u64,
            length: (size / count) as u32,
            key: whole.key,
        };
        let segments: Vec<Sge> = (0..count).map(segment).collect();
        let source: Vec<u8> = (0..size).map(|at| (at * 5) as u8).collect();
        let mut target = vec![0; size];
        table.scatter(&segments, &source).unwrap();
        table.gather(&segments, &mut target).unwrap();
        assert_eq!(source, target);
        let name = format!("{count} of {size}");
        group.bench_function(BenchmarkId::new("scatter", &name), |bencher| {
            bencher.iter(|| table.scatter(black_box(&segments), black_box(&source)).unwrap());
        });
        group.bench_function(BenchmarkId::new("gather", &name), |bencher| {
            bencher.iter(|| table.gather(black_box(&segments), black_box(&mut target)).unwrap());
        });
    }
    group.finish();
}

/// A deadline for each queue pair, within a second of `now`.
fn armed(count: u32, now: Instant) -> Timers {
    let mut timers = Timers::default();
    let mut random = Rng::new(3);
    (0..count).for_each(|slot| timers.set(slot, now + random.below(1_000_000) * MICROSECOND));
    timers
}

fn timers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("timers");
    group.throughput(Throughput::Elements(1));
    for count in QUEUE_PAIRS {
        // Moved later, as each acknowledgement does it: the entry stays where it is.
        let (mut timers, mut now) = (armed(count, Instant::ZERO), Instant::ZERO);
        let mut random = Rng::new(4);
        group.bench_function(BenchmarkId::new("move later", count), |bencher| {
            bencher.iter(|| {
                now += 10;
                let slot = random.below(count.into()) as u32;
                timers.set(slot, now + 2_000_000 * MICROSECOND);
                black_box(timers.next())
            });
        });
        // Ended, and set anew.
        let (mut timers, mut random) = (armed(count, Instant::ZERO), Rng::new(5));
        group.bench_function(BenchmarkId::new("cancel and set", count), |bencher| {
            bencher.iter(|| {
                let slot = random.below(count.into()) as u32;
                timers.remove(slot);
                timers.set(slot, Instant::from_nanos(random.below(1_000_000_000)));
                black_box(timers.next())
            });
        });
        // The earliest is due, and set a second later.
        let (mut timers, mut random) = (armed(count, Instant::ZERO), Rng::new(6));
        group.bench_function(BenchmarkId::new("pop and set", count), |bencher| {
            bencher.iter(|| {
                let now = timers.next();
                let slot = timers.pop_due(now).expect("all are armed");
                timers.set(slot, now + 1_000_000_000 + random.below(1_000_000));
                black_box(slot)
            });
        });
    }
    group.finish();
}

fn ready(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ready");
    group.throughput(Throughput::Elements(1));
    for count in QUEUE_PAIRS {
        let mut list = Ready::default();
        (0..count).for_each(|slot| list.push(slot));
        group.bench_function(BenchmarkId::new("pop and push", count), |bencher| {
            bencher.iter(|| {
                let slot = list.pop().expect("all are in it");
                // The doorbell rings again meanwhile.
                list.push(slot);
                list.push(slot);
                black_box(slot)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, copies, timers, ready);
criterion_main!(benches);
