//! What holds of DCQCN's rates whatever comes when, and with any parameters.

use proptest::prelude::*;

use super::limiter::Limiter;
use super::options::{CongestionOptions, megabits};
use super::pacer::Pacer;
use super::reaction::ReactionPoint;
use crate::time::{Instant, MICROSECOND, SECOND};

const START: Instant = Instant::from_nanos(7 * SECOND);

/// Any parameters: around the paper's, and as far off as they may be.
fn options() -> impl Strategy<Value = CongestionOptions> {
    let rate = || prop_oneof![3 => 1u32..20_000, 1 => any::<u32>()];
    let time = || prop_oneof![3 => 0u32..400, 1 => any::<u32>()];
    let bytes = prop_oneof![3 => 1u64..20_000_000, 1 => any::<u64>()];
    let rates = (rate(), rate(), rate(), rate(), prop_oneof![2 => Just(0), 1 => rate()]);
    let times = (time(), time(), time());
    (rates, times, bytes, any::<[u8; 2]>(), any::<[u16; 2]>(), any::<[bool; 2]>()).prop_map(
        |(
            (max, min, ai, hai, first),
            (reset, monitor, rtt),
            bytes,
            [fac, threshold],
            alphas,
            clamps,
        )| {
            let options = CongestionOptions {
                rpg_max_rate: max,
                rpg_min_rate: min,
                rpg_ai_rate: ai,
                rpg_hai_rate: hai,
                rate_to_set_on_first_cnp: first,
                rpg_time_reset: reset,
                rate_reduce_monitor_period: monitor,
                dce_tcp_rtt: rtt,
                rpg_byte_reset: bytes,
                rpg_min_dec_fac: fac.into(),
                rpg_threshold: threshold.into(),
                initial_alpha_value: (alphas[0] % 1100).into(),
                dce_tcp_g: (alphas[1] % 1100).into(),
                clamp_tgt_rate: clamps[0],
                clamp_tgt_rate_after_time_inc: clamps[1],
                ..CongestionOptions::default()
            };
            options.possible()
        },
    )
}

/// What happens to a flow, and nanoseconds before it.
#[derive(Clone, Debug)]
enum Step {
    Notify(u64),
    Look(u64),
    Sent(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let time = || prop_oneof![5 => 0u64..200_000, 1 => 0u64..3_000_000_000, 1 => Just(0)];
    let step = prop_oneof![
        2 => time().prop_map(Step::Notify),
        4 => time().prop_map(Step::Look),
        3 => prop_oneof![8 => 0u64..70_000, 1 => 0u64..100_000_000].prop_map(Step::Sent),
    ];
    proptest::collection::vec(step, 1..80)
}

/// What holds at any time.
fn is_sound(point: &ReactionPoint, options: &CongestionOptions) -> bool {
    point.rate() > 0
        && point.rate() <= point.target()
        && point.target() <= options.line_rate()
        && (0.0..=1.0).contains(&point.alpha())
        && point.is_full(options) == (point.rate() == options.line_rate())
}

proptest! {
    #[test]
    fn rates_stay_between_their_bounds_and_only_cuts_lower_them(
        options in options(),
        steps in steps(),
    ) {
        let mut point = ReactionPoint::new(START, &options);
        let (mut now, mut cut_at) = (START, START);
        prop_assert!(is_sound(&point, &options), "{point:?}");
        for step in steps {
            let before = point;
            match step {
                Step::Notify(wait) => {
                    now += wait;
                    let due = now - cut_at
                        >= u64::from(options.rate_reduce_monitor_period) * MICROSECOND;
                    prop_assert_eq!(point.notify(now, &options), due);
                    if due {
                        cut_at = now;
                        prop_assert!(point.rate() <= before.rate());
                        let least = before.rate() / 100 * u64::from(options.rpg_min_dec_fac);
                        let floor = megabits(options.rpg_min_rate).min(before.rate());
                        prop_assert!(point.rate() >= least.max(floor));
                        prop_assert_eq!(point.next_step(&options) - now,
                            u64::from(options.rpg_time_reset) * MICROSECOND);
                    } else {
                        prop_assert_eq!(point.rate(), before.rate());
                    }
                }
                Step::Look(_) => {
                    now = now.max(point.next_step(&options));
                    point.step(&options);
                    prop_assert!(point.rate() >= before.rate() && point.target() >= before.target());
                    prop_assert!(point.next_step(&options) > before.next_step(&options));
                }
                Step::Sent(bytes) => {
                    point.sent(bytes, &options);
                    prop_assert!(point.rate() >= before.rate() && point.target() >= before.target());
                }
            }
            prop_assert!(is_sound(&point, &options), "{point:?}");
        }
    }

    #[test]
    fn a_flow_that_is_left_alone_comes_back_to_the_line(options in options()) {
        let mut point = ReactionPoint::new(START, &options);
        // Each step adds a megabit a second at least, and halves what is left.
        let most = options.line_rate() / megabits(options.rpg_ai_rate) + 31 + 64;
        prop_assume!(most < 100_000);
        for _ in 0..most {
            point.step(&options);
        }
        prop_assert!(point.is_full(&options), "{point:?}");
    }

    #[test]
    fn a_limited_flow_never_sends_more_than_its_rates_and_a_bucket(
        options in options(),
        steps in steps(),
        packet in 64usize..5000,
    ) {
        let mut limiter = Limiter::new(START, &options);
        let (mut now, mut bits, mut allowed) = (START, 0u128, 0u128);
        for step in steps {
            let (wait, notify) = match step {
                Step::Notify(wait) => (wait, true),
                Step::Look(wait) => (wait, false),
                Step::Sent(bytes) => (bytes, false),
            };
            now += wait;
            // What is under way may all go at the rate that there is in the end, for it only rises.
            let rate = limiter.rate(now, &options).current;
            allowed += u128::from(wait) * u128::from(rate);
            if notify {
                limiter.notify_again(now, &options);
            }
            match limiter.budget(now, &options) {
                Ok(usize::MAX) => break,
                Ok(budget) => {
                    // However long nothing was sent, the bucket holds what comes in 50 µs.
                    let rate = limiter.rate(now, &options).current;
                    prop_assert!(budget as u64 <= rate / 8 / 20_000);
                    let sent = (budget / packet).max(1) * packet;
                    limiter.charge(sent, &options);
                    bits += sent as u128 * 8 * u128::from(SECOND);
                    // The last packet of a budget may be larger than what is left.
                    let slack = packet as u128 * 8 * u128::from(SECOND);
                    prop_assert!(bits <= allowed + slack, "{bits} of {allowed}");
                }
                Err(later) => {
                    prop_assert!(later > now);
                    let mut copy = limiter;
                    prop_assert!(copy.budget(later, &options).is_ok(), "it comes when it was told");
                }
            }
        }
    }

    #[test]
    fn looking_often_or_rarely_comes_to_the_same(
        options in options(),
        looks in proptest::collection::vec(0u64..100_000, 1..40),
    ) {
        prop_assume!(options.rpg_time_reset > 1);
        let (mut often, mut rarely) =
            (Limiter::new(START, &options), Limiter::new(START, &options));
        let mut now = START;
        for wait in looks {
            now += wait;
            let _ = often.budget(now, &options);
        }
        prop_assert_eq!(often.budget(now, &options), rarely.budget(now, &options));
        prop_assert_eq!(often.rate(now, &options), rarely.rate(now, &options));
    }

    #[test]
    fn a_pacer_tells_when_to_look_again_exactly_while_it_holds_something_back(
        options in options(),
        steps in steps(),
    ) {
        let mut pacer = Pacer::default();
        let mut now = START;
        for step in steps {
            match step {
                Step::Notify(wait) => {
                    now += wait;
                    pacer.notify(now, &options);
                    prop_assert!(pacer.is_limited());
                }
                Step::Sent(bytes) => pacer.charge(bytes as usize, &options),
                Step::Look(wait) => {
                    now += wait;
                    let due = pacer.deadline() <= now;
                    prop_assert_eq!(pacer.take_due(now), due);
                    let was_limited = pacer.is_limited();
                    let budget = pacer.budget(now, &options);
                    prop_assert!(was_limited || budget == Some(usize::MAX));
                    prop_assert_eq!(pacer.holds(), budget.is_none());
                    prop_assert_eq!(pacer.deadline() > now, true, "{:?}", pacer.deadline());
                }
            }
            prop_assert_eq!(pacer.holds(), pacer.deadline() != Instant::NEVER);
            prop_assert!(pacer.is_limited() || pacer.rate(now, &options).is_none());
        }
    }

    #[test]
    fn parameters_that_were_moved_into_their_ranges_are_possible_and_come_back_from_text(
        options in options(),
        switches in any::<[bool; 3]>(),
        dscp in any::<u8>(),
        pause in any::<u32>(),
    ) {
        let [ecn, roce_np, roce_rp] = switches;
        let options = CongestionOptions {
            ecn, roce_np, roce_rp, cnp_dscp: dscp, min_time_between_cnps: pause, ..options
        }
        .possible();
        prop_assert_eq!(options.check(), Ok(()));
        prop_assert_eq!(options.possible(), options);
        prop_assert_eq!(options.to_string().parse(), Ok(options));
    }

    #[test]
    fn no_text_makes_the_parameters_panic(text in "([a-z_]{0,12}=?[0-9.+-]{0,22},?){0,4}") {
        let _ = text.parse::<CongestionOptions>();
    }
}
