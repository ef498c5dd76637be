//! What a flow may send at its rate: a bucket of bits that fills with time.
//!
//! The bucket holds what the rate brings in [`DEPTH`]. A flow sends while there is anything in it,
//! and what is too much becomes a debt; who has found it empty comes again when it is half full, so
//! that packets leave in bursts and not one by one.

use super::options::CongestionOptions;
use super::reaction::ReactionPoint;
use crate::time::{Instant, MICROSECOND, SECOND};

/// The bucket's depth, as a time at the present rate.
const DEPTH: u64 = 50 * MICROSECOND;

/// Steps by time that are made up for at a look. With the paper's parameters a flow is back at the
/// speed of a line of 10 Gbit/s after fewer than 300.
const MOST_STEPS: u32 = 4096;

/// The rate of a flow, to be shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowRate {
    /// What the flow may send now, in bits a second of the line.
    pub current: u64,
    /// What it recovers to first, in bits a second.
    pub target: u64,
    /// DCQCN's congestion estimate, 0 to 1.
    pub alpha: f64,
}

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limiter {
    point: ReactionPoint,
    /// In bits × nanoseconds a second: a rate times a time. Negative is a debt.
    tokens: i64,
    filled_at: Instant,
}

impl Limiter {
    /// For a flow that gets its first notification.
    pub(crate) fn new(now: Instant, options: &CongestionOptions) -> Self {
        Self { point: ReactionPoint::new(now, options), tokens: 0, filled_at: now }
    }

    /// A notification came for the flow of `limiter`, its first if there is none yet.
    pub(crate) fn notify(limiter: &mut Option<Self>, now: Instant, options: &CongestionOptions) {
        match limiter {
            Some(limiter) => limiter.notify_again(now, options),
            None => *limiter = Some(Self::new(now, options)),
        }
    }

    /// A notification came where there is a rate already.
    pub(super) fn notify_again(&mut self, now: Instant, options: &CongestionOptions) {
        self.advance(now, options);
        self.point.notify(now, options);
        // The bucket of a lower rate is smaller, at once and not at the next look.
        self.tokens = self.tokens.min(self.depth());
    }

    /// Makes up for the time since the last look, [`MOST_STEPS`] at most: parameters can be so slow,
    /// and a flow idle for so long, that all of it would hold the device up.
    fn advance(&mut self, now: Instant, options: &CongestionOptions) {
        let mut left = MOST_STEPS;
        while self.point.next_step(options) <= now && !self.point.is_full(options) {
            if left == 0 {
                self.point.forgo_steps(now);
                break;
            }
            left -= 1;
            self.fill(self.point.next_step(options));
            self.point.step(options);
        }
        self.fill(now);
    }

    fn fill(&mut self, until: Instant) {
        let passed = until - self.filled_at;
        if passed == 0 {
            return;
        }
        let earned = i128::from(passed) * i128::from(self.point.rate());
        let depth = self.depth();
        let tokens = (i128::from(self.tokens) + earned).min(i128::from(depth));
        self.tokens = tokens as i64;
        self.filled_at = until;
    }

    fn depth(&self) -> i64 {
        (self.point.rate() * DEPTH) as i64
    }

    /// Bytes that may go out now; the first packet may be larger. No limit if the flow is back at
    /// the line's speed.
    ///
    /// # Errors
    /// When to come again.
    pub(crate) fn budget(
        &mut self,
        now: Instant,
        options: &CongestionOptions,
    ) -> Result<usize, Instant> {
        self.advance(now, options);
        if self.point.is_full(options) {
            return Ok(usize::MAX);
        }
        if self.tokens > 0 {
            return Ok((self.tokens as u64 / (8 * SECOND)) as usize);
        }
        let missing = (self.depth() / 2 - self.tokens).max(1) as u64;
        Err(now + missing.div_ceil(self.point.rate()))
    }

    /// So many bytes went out.
    pub(crate) fn charge(&mut self, bytes: usize, options: &CongestionOptions) {
        if !self.point.is_full(options) {
            self.tokens = self.tokens.saturating_sub(bytes as i64 * 8 * SECOND as i64);
        }
        self.point.sent(bytes as u64, options);
    }

    /// Whether there is nothing to limit and nothing to remember any more.
    pub(crate) fn is_over(&mut self, now: Instant, options: &CongestionOptions) -> bool {
        self.point.is_full(options) && self.point.has_forgotten(now, options)
    }

    /// The rate as it is.
    pub(crate) fn rate(&self, now: Instant, options: &CongestionOptions) -> FlowRate {
        let mut copy = *self;
        copy.advance(now, options);
        let (current, target) = (copy.point.rate(), copy.point.target());
        FlowRate { current, target, alpha: copy.point.alpha() }
    }
}

/// Bytes that a UDP payload takes of an Ethernet line: headers, check sequence, preamble and gap.
pub(crate) const fn on_the_line(payload: usize, packets: usize, ipv6: bool) -> usize {
    const ETHERNET: usize = 14 + 4 + 8 + 12;
    const UDP: usize = 8;
    let ip = if ipv6 { 40 } else { 20 };
    payload + packets * (ETHERNET + ip + UDP)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(SECOND);

    /// Rates that do not move by themselves.
    fn still() -> CongestionOptions {
        CongestionOptions { rpg_time_reset: u32::MAX, ..CongestionOptions::default() }
    }

    /// Bytes that a flow sends in packets of 1000 until `end`, taking what it gets.
    fn send_until(limiter: &mut Limiter, mut now: Instant, end: Instant) -> (u64, u64) {
        let (mut bytes, mut looks) = (0, 0);
        while now <= end {
            looks += 1;
            match limiter.budget(now, &still()) {
                Ok(budget) => {
                    let sent = budget.max(1_000) / 1_000 * 1_000;
                    limiter.charge(sent, &still());
                    bytes += sent as u64;
                }
                Err(later) => {
                    assert!(later > now);
                    now = later;
                }
            }
        }
        (bytes, looks)
    }

    #[test]
    fn what_goes_out_is_the_rate_in_bursts_of_half_a_bucket() {
        let mut limiter = Limiter::new(START, &still());
        let end = START + 10 * 1_000 * MICROSECOND;
        let (bytes, looks) = send_until(&mut limiter, START, end);
        // 5 Gbit/s for 10 ms.
        let ideal = 6_250_000;
        assert!((ideal - 16_000..=ideal + 16_000).contains(&bytes), "{bytes}");
        assert!(looks <= 3 * 10_000 / 25 + 3, "{looks} looks for 400 half buckets");
    }

    #[test]
    fn a_cut_makes_the_bucket_smaller_at_once() {
        let mut limiter = Limiter::new(START, &still());
        let now = START + 50 * MICROSECOND;
        assert_eq!(limiter.budget(now, &still()), Ok(31_250), "5 Gbit/s for 50 µs");
        limiter.notify_again(now, &still());
        let rate = limiter.rate(now, &still()).current;
        assert_eq!(limiter.budget(now, &still()), Ok((rate / 8 / 20_000) as usize));
    }

    #[test]
    fn a_packet_larger_than_the_bucket_goes_out_and_is_paid_for_afterwards() {
        let mut limiter = Limiter::new(START, &still());
        let mut now = START;
        for _ in 0..20 {
            now += 50 * MICROSECOND;
            Limiter::notify(&mut Some(limiter), now, &still());
            let mut some = Some(limiter);
            Limiter::notify(&mut some, now, &still());
            limiter = some.unwrap();
        }
        assert_eq!(limiter.rate(now, &still()).current, 10_000_000);
        let later = now + 50 * MICROSECOND;
        assert_eq!(limiter.budget(later, &still()), Ok(62), "10 Mbit/s for 50 µs");
        limiter.charge(1_000, &still());
        let again = limiter.budget(later, &still()).unwrap_err();
        // 938 bytes of debt and half a bucket.
        assert_eq!((again - later) / MICROSECOND, (8_000 - 500 + 250) / 10);
    }

    #[test]
    fn however_long_a_flow_was_idle_a_look_makes_up_for_few_steps_and_the_next_goes_on() {
        let options = CongestionOptions {
            rpg_ai_rate: 1,
            rpg_hai_rate: 1,
            rpg_time_reset: 1,
            rpg_max_rate: 4_000_000,
            ..CongestionOptions::default()
        };
        let mut limiter = Limiter::new(START, &options);
        for _ in 0..100 {
            limiter.point.notify(limiter.filled_at + 50 * MICROSECOND, &options);
            limiter.filled_at += 50 * MICROSECOND;
        }
        let first = limiter.rate(limiter.filled_at, &options);
        let mut now = START + 1_000_000 * SECOND;
        limiter.advance(now, &options);
        // Each step past the threshold adds a megabit a second to the target.
        let added = limiter.point.target() - first.target;
        let most = u64::from(MOST_STEPS) * 1_000_000;
        assert!(added <= most && added >= most - 10_000_000, "{added}");
        assert_eq!(limiter.filled_at, now);
        now += 10 * MICROSECOND;
        limiter.advance(now, &options);
        assert_eq!(limiter.point.target() - first.target, added + 10_000_000);
    }

    #[test]
    fn a_flow_at_the_lines_speed_is_not_limited_and_after_a_while_forgotten() {
        let options = CongestionOptions::default();
        let mut limiter = Limiter::new(START, &options);
        let later = START + 2_000 * MICROSECOND;
        assert!(limiter.budget(START, &options).is_err());
        assert_eq!(limiter.budget(later, &options), Ok(usize::MAX));
        assert!(!limiter.is_over(later, &options));
        assert!(limiter.is_over(START + SECOND, &options));
    }

    #[test]
    fn looking_often_or_rarely_comes_to_the_same() {
        let options = CongestionOptions::default();
        let mut often = Limiter::new(START, &options);
        let mut rarely = Limiter::new(START, &options);
        for step in 1..=500 {
            let _ = often.budget(START + step * MICROSECOND, &options);
        }
        let end = START + 500 * MICROSECOND;
        let _ = rarely.budget(end, &options);
        assert_eq!(often.rate(end, &options), rarely.rate(end, &options));
        assert_eq!(often.tokens, rarely.tokens);
    }

    #[test]
    fn a_packet_takes_its_headers_of_the_line() {
        assert_eq!(on_the_line(1_064, 1, false), 1_130);
        assert_eq!(on_the_line(2 * 1_064, 2, true), 2 * 1_150);
    }
}
