//! Many seeds on all cores.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::endings::Endings;
use super::matrix::Matrix;
use super::report::RunReport;
use super::scenario::Scenario;

/// What many runs add up to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Runs.
    pub runs: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets that met a fault, or found no receive.
    pub disturbances: u64,
    /// Requests posted.
    pub requests: u64,
    /// Completions polled.
    pub completions: u64,
    /// Connections made anew after an error.
    pub reconnections: u64,
    /// Virtual nanoseconds.
    pub virtual_ns: u64,
    /// Which operation met which fault.
    pub matrix: Matrix,
    /// How requests ended.
    pub endings: Endings,
    /// The runs that broke a promise, in order of their seeds.
    pub failures: Vec<RunReport>,
}

/// Failing runs that are kept.
const KEPT_FAILURES: usize = 16;

impl Summary {
    /// Adds a run.
    pub fn add(&mut self, report: RunReport) {
        self.runs += 1;
        self.packets += report.tally.packets();
        self.disturbances += report.tally.disturbances();
        self.requests += report.requests;
        self.completions += report.completions;
        self.reconnections += report.reconnections;
        self.virtual_ns += report.ended.as_nanos();
        self.matrix.merge(&report.matrix);
        self.endings.merge(&report.endings);
        if report.failure.is_some() && self.failures.len() < KEPT_FAILURES {
            self.failures.push(report);
            self.failures.sort_by_key(|failed| failed.seed);
        }
    }
}

/// Runs the scenarios `make(first)`, `make(first + 1)`, … on `threads` threads. `progress` is told
/// after each how many are done. After a failure no new run is started.
pub fn run_many(
    first: u64,
    count: u64,
    threads: usize,
    make: impl Fn(u64) -> Scenario + Sync,
    progress: impl Fn(u64) + Sync,
) -> Summary {
    let next = AtomicU64::new(0);
    let summary = Mutex::new(Summary::default());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let report = make(first.wrapping_add(index)).run();
            if report.failure.is_some() {
                next.store(count, Ordering::Relaxed);
            }
            let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            summary.add(report);
            progress(summary.runs);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            // Fewer threads than wanted do the same.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    summary.into_inner().unwrap_or_else(PoisonError::into_inner)
}
