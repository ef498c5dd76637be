//! The reaction point: the rate of a flow that was asked to slow down (the paper's figure 7).
//!
//! ```text
//!   rate ┐ notification                      ╭──────── hyper increase: both counters past F
//!        │╲                           ╭──────╯
//!   target ┄╲┄┄┄┄┄┄┄┄┄┄┄┄╭────────────╯  additive increase: one counter past F
//!        │   ╲      ╭────╯
//!        │    ╰─────╯  fast recovery: each step halves the way to the target
//! ```
//!
//! Nothing runs by itself: whoever looks tells the time, and what has been due since the last look is
//! made up for, step by step. Rates are bits a second.

use super::options::{CongestionOptions, megabits};
use crate::time::{Instant, MICROSECOND};

/// Alpha of 1; it fades by small steps for long, so it needs its many bits.
const ONE: u64 = 1 << 40;

/// Steps by bytes that one burst can bring: with a reset of a few bytes it would bring thousands.
const MOST_STEPS_BY_BYTES: u32 = 64;

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReactionPoint {
    current: u64,
    target: u64,
    alpha: u64,
    cut_at: Instant,
    /// When alpha was last updated.
    alpha_at: Instant,
    /// When the last step by time was.
    step_at: Instant,
    steps_by_time: u32,
    steps_by_bytes: u32,
    bytes: u64,
}

impl ReactionPoint {
    /// A flow that gets its first notification.
    pub(crate) fn new(now: Instant, options: &CongestionOptions) -> Self {
        let line = options.line_rate();
        let first = megabits(options.rate_to_set_on_first_cnp);
        let alpha = u64::from(options.initial_alpha_value) * ONE / 1023;
        let mut point = Self {
            current: line,
            target: line,
            alpha,
            cut_at: now,
            alpha_at: now,
            step_at: now,
            steps_by_time: 0,
            steps_by_bytes: 0,
            bytes: 0,
        };
        if first == 0 {
            point.cut(now, options);
        } else {
            point.current = first.min(line);
            point.target = point.current;
        }
        point
    }

    /// A notification came. Returns whether it cut the rate: those that follow at once do not.
    pub(crate) fn notify(&mut self, now: Instant, options: &CongestionOptions) -> bool {
        self.fade(now, options);
        let wait = u64::from(options.rate_reduce_monitor_period) * MICROSECOND;
        let cuts = now - self.cut_at >= wait;
        if cuts {
            self.cut(now, options);
        }
        cuts
    }

    fn cut(&mut self, now: Instant, options: &CongestionOptions) {
        if options.clamp_tgt_rate || self.has_risen(options) {
            self.target = self.current;
        }
        let taken =
            (u128::from(self.current) * u128::from(self.alpha) / u128::from(2 * ONE)) as u64;
        let least = self.current / 100 * u64::from(options.rpg_min_dec_fac);
        let floor = megabits(options.rpg_min_rate).min(self.current);
        self.current = (self.current - taken).max(least).max(floor);
        let kept = u64::from(options.dce_tcp_g);
        self.alpha = keep(self.alpha, kept) + (1024 - kept) * (ONE / 1024);
        self.cut_at = now;
        self.alpha_at = now;
        self.step_at = now;
        self.steps_by_time = 0;
        self.steps_by_bytes = 0;
        self.bytes = 0;
    }

    fn has_risen(&self, options: &CongestionOptions) -> bool {
        self.steps_by_bytes > 0 || (options.clamp_tgt_rate_after_time_inc && self.steps_by_time > 0)
    }

    /// Alpha fades with each of its periods that passed without notification.
    fn fade(&mut self, now: Instant, options: &CongestionOptions) {
        let period = u64::from(options.dce_tcp_rtt) * MICROSECOND;
        let periods = (now - self.alpha_at) / period;
        self.alpha_at += periods * period;
        for _ in 0..periods {
            let faded = keep(self.alpha, options.dce_tcp_g.into());
            if faded == self.alpha {
                break;
            }
            self.alpha = faded;
        }
    }

    /// When the next step by time is due.
    pub(crate) fn next_step(&self, options: &CongestionOptions) -> Instant {
        self.step_at + u64::from(options.rpg_time_reset) * MICROSECOND
    }

    /// The step by time that was due at [`Self::next_step`].
    pub(crate) fn step(&mut self, options: &CongestionOptions) {
        self.step_at = self.next_step(options);
        self.steps_by_time = self.steps_by_time.saturating_add(1);
        self.increase(options);
    }

    /// Steps that were due are not made up for: the next one is a period from now.
    #[cold]
    pub(crate) fn forgo_steps(&mut self, now: Instant) {
        self.step_at = now;
    }

    /// So many bytes were sent.
    pub(crate) fn sent(&mut self, bytes: u64, options: &CongestionOptions) {
        self.bytes += bytes;
        for _ in 0..MOST_STEPS_BY_BYTES {
            if self.bytes < options.rpg_byte_reset || self.is_full(options) {
                return;
            }
            self.bytes -= options.rpg_byte_reset;
            self.steps_by_bytes = self.steps_by_bytes.saturating_add(1);
            self.increase(options);
        }
        self.bytes %= options.rpg_byte_reset;
    }

    fn increase(&mut self, options: &CongestionOptions) {
        let threshold = options.rpg_threshold;
        let most = self.steps_by_time.max(self.steps_by_bytes);
        let least = self.steps_by_time.min(self.steps_by_bytes);
        if least > threshold {
            self.target += megabits(options.rpg_hai_rate) * u64::from(least - threshold);
        } else if most >= threshold {
            self.target += megabits(options.rpg_ai_rate);
        }
        let line = options.line_rate();
        self.target = self.target.min(line);
        // Half the way, and the last bit of it too.
        self.current = self.current.midpoint(self.target + 1).min(line);
    }

    /// The present rate, in bits a second.
    pub(crate) fn rate(&self) -> u64 {
        self.current
    }

    /// The rate at which recovery aims, in bits a second.
    pub(crate) fn target(&self) -> u64 {
        self.target
    }

    /// The congestion estimate, 0 to 1.
    pub(crate) fn alpha(&self) -> f64 {
        self.alpha as f64 / ONE as f64
    }

    /// Whether the flow is back at the line's speed.
    pub(crate) fn is_full(&self, options: &CongestionOptions) -> bool {
        self.current >= options.line_rate()
    }

    /// Whether nothing is left of what the flow has met.
    pub(crate) fn has_forgotten(&mut self, now: Instant, options: &CongestionOptions) -> bool {
        self.fade(now, options);
        self.is_full(options) && self.alpha < ONE / 1024
    }
}

/// So many 1024ths of alpha.
const fn keep(alpha: u64, kept: u64) -> u64 {
    alpha / 1024 * kept + alpha % 1024 * kept / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: u64 = 1_000_000_000;

    fn at(microseconds: u64) -> Instant {
        Instant::from_nanos(microseconds * MICROSECOND)
    }

    fn options() -> CongestionOptions {
        CongestionOptions::default()
    }

    /// Everything that time brings up to `now`.
    fn advance(point: &mut ReactionPoint, now: Instant, options: &CongestionOptions) {
        while point.next_step(options) <= now && !point.is_full(options) {
            point.step(options);
        }
    }

    #[test]
    fn the_first_notification_halves_the_line_and_recovery_halves_the_way_back() {
        let options = options();
        let mut point = ReactionPoint::new(at(100), &options);
        assert_eq!(point.rate(), 5 * GIGABIT);
        for (step, rate) in [(1, 7_500), (2, 8_750), (3, 9_375)] {
            advance(&mut point, at(100 + step * 55 - 1), &options);
            assert!(point.rate() < rate * 1_000_000, "not before step {step}");
            advance(&mut point, at(100 + step * 55), &options);
            assert_eq!(point.rate() / 1_000_000, rate);
        }
    }

    #[test]
    fn a_cut_takes_half_of_alpha_which_rises_with_each_and_fades_between() {
        let options = options();
        let mut point = ReactionPoint::new(at(0), &options);
        assert!((point.alpha() - 1.0).abs() < 1e-9);
        // 100 periods later alpha is (1020/1024)^100.
        let now = at(5_500);
        advance(&mut point, now, &options);
        let before = point.rate();
        assert!(point.notify(now, &options));
        let alpha = (1020.0_f64 / 1024.0).powi(100);
        let expected = before as f64 * (1.0 - alpha / 2.0);
        assert!((point.rate() as f64 / expected - 1.0).abs() < 1e-6, "{}", point.rate());
        let expected = alpha * 1020.0 / 1024.0 + 4.0 / 1024.0;
        assert!((point.alpha() - expected).abs() < 1e-9);
        assert_eq!(point.target(), before);
    }

    #[test]
    fn notifications_that_follow_at_once_cut_once() {
        let options = options();
        let mut point = ReactionPoint::new(at(0), &options);
        assert!(!point.notify(at(49), &options));
        assert_eq!(point.rate(), 5 * GIGABIT);
        assert!(point.notify(at(50), &options));
        assert_eq!((point.rate(), point.target()), (5 * GIGABIT / 2, 5 * GIGABIT));
    }

    #[test]
    fn no_cut_goes_below_the_least_rate_or_takes_more_than_is_allowed() {
        let options = CongestionOptions { rpg_min_dec_fac: 80, ..options() };
        let mut point = ReactionPoint::new(at(0), &options);
        assert_eq!(point.rate(), 8 * GIGABIT, "a fifth at most");
        for time in 1..100 {
            point.notify(at(time * 50), &options);
        }
        assert_eq!(point.rate(), 10_000_000);
    }

    #[test]
    fn without_clamping_cuts_in_a_row_keep_the_target() {
        let options = CongestionOptions { clamp_tgt_rate: false, ..options() };
        let mut point = ReactionPoint::new(at(0), &options);
        point.notify(at(50), &options);
        assert_eq!((point.rate(), point.target()), (5 * GIGABIT / 2, 10 * GIGABIT));
        advance(&mut point, at(105), &options);
        let risen = point.rate();
        point.notify(at(106), &options);
        assert_eq!(point.target(), risen);
        // Rises by time may be told not to count.
        let options = CongestionOptions { clamp_tgt_rate_after_time_inc: false, ..options };
        advance(&mut point, at(161), &options);
        point.notify(at(162), &options);
        assert_eq!(point.target(), risen);
    }

    #[test]
    fn after_fast_recovery_the_target_rises_and_faster_when_both_counters_say_so() {
        let options = CongestionOptions { rpg_max_rate: 100_000, ..options() };
        let mut point = ReactionPoint::new(at(0), &options);
        point.notify(at(50), &options);
        let target = point.target();
        advance(&mut point, at(50 + 4 * 55), &options);
        assert_eq!(point.target(), target, "four steps are below the threshold");
        advance(&mut point, at(50 + 5 * 55), &options);
        assert_eq!(point.target(), target + 40_000_000);
        point.sent(5 * 10_000_000, &options);
        assert_eq!(point.target(), target + 6 * 40_000_000, "each step adds as much");
        advance(&mut point, at(50 + 6 * 55), &options);
        point.sent(10_000_000, &options);
        assert_eq!(point.target(), target + 7 * 40_000_000 + 400_000_000);
    }

    #[test]
    fn a_flow_comes_back_to_the_line_and_forgets() {
        let options = options();
        let mut point = ReactionPoint::new(at(0), &options);
        for time in 1..100 {
            point.notify(at(time * 50), &options);
        }
        assert!(!point.is_full(&options));
        // 10 Gbit/s at 40 Mbit/s a step of 55 µs; the first four add nothing, and the last ones halve
        // what is left.
        advance(&mut point, at(4_950 + 253 * 55), &options);
        assert!(!point.is_full(&options));
        advance(&mut point, at(4_950 + 290 * 55), &options);
        assert!(point.is_full(&options), "{}", point.rate());
        assert!(!point.has_forgotten(at(21_000), &options));
        assert!(point.has_forgotten(at(200_000), &options), "{}", point.alpha());
    }

    #[test]
    fn a_cut_never_raises_a_rate_that_was_set_below_the_least() {
        let options =
            CongestionOptions { rate_to_set_on_first_cnp: 1, rpg_min_rate: 100, ..options() };
        let mut point = ReactionPoint::new(at(0), &options);
        assert!(point.notify(at(50), &options));
        assert_eq!(point.rate(), 1_000_000);
    }

    #[test]
    fn a_first_rate_can_be_set() {
        let options = CongestionOptions { rate_to_set_on_first_cnp: 1_000, ..options() };
        let point = ReactionPoint::new(at(0), &options);
        assert_eq!((point.rate(), point.target()), (GIGABIT, GIGABIT));
    }
}
