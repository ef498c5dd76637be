//! Pacing by destination for transports that get no acknowledgements.
//!
//! A bucket of cost that fills with time: what cannot be paid for waits. Congestion notifications
//! cut the rate; without them it recovers.

use crate::time::{Instant, MICROSECOND, SECOND};

/// Cost a second at first and at most: about 10 Gbit/s in full-size packets.
const FULL_RATE: u64 = 2_750_000_000;
/// The least that a cut leaves: about 10 Mbit/s.
const LEAST_RATE: u64 = 2_750_000;
/// Cost that may go out at once.
const DEPTH: u64 = 128 * 1024;
/// A cut counts once in this time.
const CUT_INTERVAL: u64 = 50 * MICROSECOND;
/// The rate recovers by a sixteenth of the full rate in this time.
const RECOVERY_STEP: u64 = 300 * MICROSECOND;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: u64,
    tokens: u64,
    filled_at: Instant,
    cut_at: Instant,
    recovered_at: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            rate: FULL_RATE,
            tokens: DEPTH,
            filled_at: Instant::ZERO,
            cut_at: Instant::ZERO,
            recovered_at: Instant::ZERO,
        }
    }
}

impl Pace {
    /// Pays for something of this cost.
    ///
    /// # Errors
    /// When it can be paid for, if that is later than now.
    pub(crate) fn pay(&mut self, now: Instant, cost: u64) -> Result<(), Instant> {
        self.recover(now);
        self.fill(now);
        // What costs more than the bucket holds goes out when the bucket is full.
        let price = cost.min(DEPTH);
        if self.tokens >= price {
            self.tokens -= price;
            return Ok(());
        }
        let wait =
            (u128::from(price - self.tokens) * u128::from(SECOND)).div_ceil(self.rate.into());
        Err(now + wait as u64)
    }

    /// A congestion notification came.
    pub(crate) fn cut(&mut self, now: Instant) {
        if now - self.cut_at >= CUT_INTERVAL || self.cut_at == Instant::ZERO {
            self.rate = (self.rate / 2).max(LEAST_RATE);
            self.cut_at = now;
            self.recovered_at = now;
        }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now - self.filled_at;
        let earned = (u128::from(passed) * u128::from(self.rate) / u128::from(SECOND)) as u64;
        if earned > 0 || self.tokens >= DEPTH {
            self.tokens = (self.tokens + earned).min(DEPTH);
            self.filled_at = now;
        }
    }

    fn recover(&mut self, now: Instant) {
        let steps = (now - self.recovered_at) / RECOVERY_STEP;
        if steps > 0 {
            self.rate = (self.rate + steps.min(16) * (FULL_RATE / 16)).min(FULL_RATE);
            self.recovered_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_is_spent_at_once_and_then_at_the_rate() {
        let mut pace = Pace::default();
        let start = Instant::from_nanos(SECOND);
        assert_eq!(pace.pay(start, DEPTH), Ok(()));
        let later = pace.pay(start, 2_750).unwrap_err();
        assert_eq!(later - start, 1_000, "2750 at 2.75 a nanosecond");
        assert_eq!(pace.pay(later, 2_750), Ok(()));
    }

    #[test]
    fn a_cut_halves_the_rate_once_in_its_time_and_it_recovers() {
        let mut pace = Pace::default();
        let start = Instant::from_nanos(SECOND);
        pace.cut(start);
        pace.cut(start + 10 * MICROSECOND);
        assert_eq!(pace.rate, FULL_RATE / 2);
        pace.cut(start + CUT_INTERVAL);
        assert_eq!(pace.rate, FULL_RATE / 4);
        pace.recover(start + SECOND);
        assert_eq!(pace.rate, FULL_RATE);
    }
}
