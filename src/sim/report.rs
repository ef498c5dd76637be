//! What is told of a run.

use std::fmt;

use crate::time::Instant;

use super::endings::Endings;
use super::matrix::Matrix;
use super::network::Tally;
use super::oracle::Violation;

/// A run that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was broken.
    pub violation: Violation,
    /// When, in virtual time.
    pub at: Instant,
    /// What happened before, one event a line, oldest first.
    pub events: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} s: {}", self.at, self.violation)?;
        self.events.iter().try_for_each(|event| write!(f, "\n  {event}"))
    }
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Its seed.
    pub seed: u64,
    /// A hash over every frame with its time and fate.
    pub hash: u64,
    /// What was sent, and what disturbed it.
    pub tally: Tally,
    /// Which operation met which fault.
    pub matrix: Matrix,
    /// How requests ended.
    pub endings: Endings,
    /// Requests posted.
    pub requests: u64,
    /// Completions polled.
    pub completions: u64,
    /// Connections made anew after an error.
    pub reconnections: u64,
    /// Virtual time at the end.
    pub ended: Instant,
    /// What went wrong, if anything did.
    pub failure: Option<Failure>,
}
