//! The core's only notion of time: nanoseconds since an arbitrary start, given by the caller.
//!
//! The engine never reads a clock. The simulator passes virtual time, `software` passes the
//! monotonic clock, and a run can be replayed because nothing else knows what time it is.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// One microsecond in nanoseconds.
pub const MICROSECOND: u64 = 1_000;
/// One millisecond in nanoseconds.
pub const MILLISECOND: u64 = 1_000_000;
/// One second in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;

/// A point in time, in nanoseconds since the start of the run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than any deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `nanoseconds` after the start.
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to here; 0 if `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Instant {
    type Output = Self;
    /// The point `nanoseconds` later, at most [`Instant::NEVER`].
    fn add(self, nanoseconds: u64) -> Self {
        Self(self.0.saturating_add(nanoseconds))
    }
}

impl AddAssign<u64> for Instant {
    fn add_assign(&mut self, nanoseconds: u64) {
        *self = *self + nanoseconds;
    }
}

impl Sub for Instant {
    type Output = u64;
    fn sub(self, earlier: Self) -> u64 {
        self.since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Instant {
    /// Seconds with microseconds, as a capture shows them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / SECOND, self.0 % SECOND / MICROSECOND)
    }
}
