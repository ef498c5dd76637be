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
