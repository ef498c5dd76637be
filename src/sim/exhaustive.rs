//! Every fate of the first packets of a small scenario: what random runs meet once in a while is
//! tried here without gaps.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::report::{Failure, RunReport};
use super::scenario::Scenario;
use super::script::{Script, ScriptedFate, Selection};
use super::small;

/// A small scenario, and which of its packets meet which fates.
#[derive(Clone, Debug, PartialEq)]
pub struct Exhaustive {
    pub(super) scenario: Scenario,
    selection: Selection,
    pub(super) rest: ScriptedFate,
    pub(super) lost_requests: usize,
    pub(super) hold: u64,
}

/// What trying all schedules of a scenario came to.
#[derive(Clone, Debug)]
pub struct ExhaustiveReport {
    /// The scenario's name.
    pub name: String,
    /// Schedules tried.
    pub runs: u64,
    /// Packets sent.
    pub packets: u64,
    /// The first schedule that broke a promise, as letters, and how.
    pub failure: Option<(String, Failure)>,
}

impl fmt::Display for ExhaustiveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match &self.failure {
            None => "ok".to_owned(),
            Some((fates, failure)) => format!("{fates}: {}", failure.violation),
        };
        write!(
            f,
            "{:<22}{:>8} schedules {:>9} packets  {verdict}",
            self.name, self.runs, self.packets
        )
    }
}

impl Exhaustive {
    /// All small scenarios.
    pub fn all() -> Vec<Self> {
        small::all()
    }

    pub(super) fn new(scenario: Scenario, selection: Selection) -> Self {
        let model = Script::new(selection, Vec::new());
        let (rest, hold) = (model.rest, model.hold);
        Self { scenario, selection, rest, lost_requests: 0, hold }
    }

    /// The scenario's name.
    pub fn name(&self) -> &str {
        &self.scenario.name
    }

    /// One schedule, given as the letters of its fates: `.` delivered, `x` dropped, `2` duplicated,
    /// `d` delayed, `c` corrupted. Nothing if there is another letter.
    pub fn schedule(&self, letters: &str) -> Option<Scenario> {
        let fates: Option<Vec<_>> = letters.chars().map(ScriptedFate::from_letter).collect();
        Some(self.with(fates?))
    }

    fn with(&self, fates: Vec<ScriptedFate>) -> Scenario {
        let mut scenario = self.scenario.clone();
        let mut script = Script::new(self.selection, fates);
        script.rest = self.rest;
        script.hold = self.hold;
        script.lost_requests = self.lost_requests;
        scenario.network.script = Some(script);
        scenario
    }

    /// Tries every fate of the first `depth` packets. Ends at the first broken promise.
    pub fn run(&self, depth: usize) -> ExhaustiveReport {
        let mut report =
            ExhaustiveReport { name: self.name().to_owned(), runs: 0, packets: 0, failure: None };
        let mut fates = vec![0; depth];
        loop {
            let chosen: Vec<_> = fates.iter().map(|fate| ScriptedFate::ALL[*fate]).collect();
            let (run, used): (RunReport, usize) = self.with(chosen.clone()).run_scripted();
            report.runs += 1;
            report.packets += run.tally.packets();
            if let Some(failure) = run.failure {
                let letters = chosen.iter().map(|fate| fate.letter()).collect();
                report.failure = Some((letters, failure));
                return report;
            }
            // Fates that no packet met make no difference: count up from the last one that did.
            if !next(&mut fates, used) {
                return report;
            }
        }
    }

    /// Tries all scenarios, on `threads` threads. `progress` is told of each that is done.
    pub fn run_all(
        depth: usize,
        threads: usize,
        progress: impl Fn(&ExhaustiveReport) + Sync,
    ) -> Vec<ExhaustiveReport> {
        let scenarios = Self::all();
        let next = AtomicUsize::new(0);
        let reports = Mutex::new(Vec::new());
        let work = || {
            while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                let report = scenario.run(depth);
                progress(&report);
                reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.max(1) {
                // Fewer threads than wanted do the same.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let mut reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
        let position = |report: &ExhaustiveReport| {
            scenarios.iter().position(|scenario| scenario.name() == report.name)
        };
        reports.sort_by_key(position);
        reports
    }
}

/// Counts up at the last of the first `used` positions. False if that was the last value.
fn next(fates: &mut [usize], used: usize) -> bool {
    let used = used.min(fates.len());
    fates[used..].fill(0);
    for fate in fates[..used].iter_mut().rev() {
        *fate += 1;
        if *fate < ScriptedFate::ALL.len() {
            return true;
        }
        *fate = 0;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_skips_what_makes_no_difference() {
        let mut fates = vec![0; 3];
        let mut seen = 1;
        while next(&mut fates, 3) {
            seen += 1;
        }
        assert_eq!(seen, 125);
        let mut seen = 1;
        while next(&mut fates, 2) {
            assert_eq!(fates[2], 0);
            seen += 1;
        }
        assert_eq!(seen, 25);
        assert!(!next(&mut fates, 0));
    }
}
