//! Pacing by destination for transports that get no acknowledgements.
//!
//! Two buckets. One of cost, which fills as fast as a software receiver can be expected to empty its
//! socket, is always there: what cannot be paid for waits. The other one is DCQCN's, and only there
//! once the destination has sent congestion notifications.

use super::congestion::{CongestionOptions, Limiter};
use crate::time::{Instant, SECOND};

/// Cost a second at most: about 10 Gbit/s in full-size packets.
const FULL_RATE: u64 = 2_750_000_000;
/// Cost that may go out at once.
const DEPTH: u64 = 128 * 1024;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Pace {
    tokens: u64,
    filled_at: Instant,
    pub(super) limiter: Option<Limiter>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { tokens: DEPTH, filled_at: Instant::ZERO, limiter: None }
    }
}

impl Pace {
    /// Pays for a packet of this cost, with so many bytes on the line.
    ///
    /// # Errors
    /// When it can be paid for, if that is later than now.
    pub(crate) fn pay(
        &mut self,
        now: Instant,
        options: &CongestionOptions,
        cost: u64,
        bytes: usize,
    ) -> Result<(), Instant> {
        self.fill(now);
        // What costs more than the bucket holds goes out when the bucket is full.
        let price = cost.min(DEPTH);
        if self.tokens < price {
            let wait =
                (u128::from(price - self.tokens) * u128::from(SECOND)).div_ceil(FULL_RATE.into());
            return Err(now + wait as u64);
        }
        if let Some(limiter) = &mut self.limiter {
            limiter.budget(now, options)?;
            limiter.charge(bytes, options);
            if limiter.is_over(now, options) {
                self.limiter = None;
            }
        }
        self.tokens -= price;
        Ok(())
    }

    /// A congestion notification came.
    pub(crate) fn notify(&mut self, now: Instant, options: &CongestionOptions) {
        Limiter::notify(&mut self.limiter, now, options);
    }

    fn fill(&mut self, now: Instant) {
        let passed = now - self.filled_at;
        let earned = (u128::from(passed) * u128::from(FULL_RATE) / u128::from(SECOND)) as u64;
        if earned > 0 || self.tokens >= DEPTH {
            self.tokens = (self.tokens + earned).min(DEPTH);
            self.filled_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MICROSECOND;

    const START: Instant = Instant::from_nanos(SECOND);

    #[test]
    fn the_bucket_is_spent_at_once_and_then_at_the_rate() {
        let options = CongestionOptions::default();
        let mut pace = Pace::default();
        assert_eq!(pace.pay(START, &options, DEPTH, 60_000), Ok(()));
        let later = pace.pay(START, &options, 2_750, 1_000).unwrap_err();
        assert_eq!(later - START, 1_000, "2750 at 2.75 a nanosecond");
        assert_eq!(pace.pay(later, &options, 2_750, 1_000), Ok(()));
    }

    #[test]
    fn a_notification_slows_down_and_is_forgotten_after_a_while() {
        let options = CongestionOptions::default();
        let mut pace = Pace::default();
        pace.notify(START, &options);
        let mut now = START;
        let mut sent = 0;
        while now < START + 50 * MICROSECOND {
            match pace.pay(now, &options, 2_750, 1_000) {
                Ok(()) => sent += 1_000,
                Err(later) => now = later,
            }
        }
        assert!((15_000..=32_000).contains(&sent), "{sent} bytes at 5 Gbit/s in 50 µs");
        assert_eq!(pace.pay(START + SECOND, &options, 2_750, 1_000), Ok(()));
        assert!(pace.limiter.is_none());
    }

    proptest::proptest! {
        /// Whoever comes when: never more than the bucket and what has flowed into it, and whoever is
        /// told a time gets his packet then.
        #[test]
        fn no_more_is_paid_for_than_was_earned(
            packets in proptest::collection::vec((0u64..60_000, 1u64..200_000), 1..200),
        ) {
            let options = CongestionOptions::default();
            let mut pace = Pace::default();
            let (mut now, mut spent) = (START, 0u64);
            for (wait, cost) in packets {
                now += wait;
                let paid = match pace.pay(now, &options, cost, 1_000) {
                    Ok(()) => true,
                    Err(later) => {
                        proptest::prop_assert!(later > now);
                        let mut copy = Pace { limiter: None, ..pace };
                        proptest::prop_assert_eq!(copy.pay(later, &options, cost, 1_000), Ok(()));
                        false
                    }
                };
                spent += if paid { cost.min(DEPTH) } else { 0 };
                let flowed = u128::from(now - START) * u128::from(FULL_RATE) / u128::from(SECOND);
                proptest::prop_assert!(u128::from(spent) <= u128::from(DEPTH) + flowed);
            }
        }
    }
}
