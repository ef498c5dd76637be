//! The one place that reads the clock.

use std::sync::OnceLock;
use std::time::Instant as SystemInstant;

use crate::time::Instant;

/// The monotonic clock, in nanoseconds since the process first asked.
#[expect(clippy::disallowed_methods, reason = "this is the owner of the clock")]
pub fn now() -> Instant {
    static START: OnceLock<SystemInstant> = OnceLock::new();
    let now = SystemInstant::now();
    let start = *START.get_or_init(|| now);
    let elapsed = now.saturating_duration_since(start).as_nanos();
    // One nanosecond at least: zero is "the start of the run" for whoever stores a time.
    Instant::from_nanos(u64::try_from(elapsed).unwrap_or(u64::MAX).max(1))
}

/// Nanoseconds from 1970 to [`Instant::ZERO`] of [`now`], for captures.
#[expect(clippy::disallowed_methods, reason = "this is the owner of the clock")]
pub fn epoch() -> u64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since_1970 = since_1970.map_or(0, |time| time.as_nanos() as u64);
    since_1970.saturating_sub(now().as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back_and_does_go_on() {
        let first = now();
        let mut last = first;
        while last == first {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }
}
