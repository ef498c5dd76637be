//! Laws of packet sequence numbers: a circle of 2^24, on which each number has as many before it as
//! after it, and one that is neither.

use proptest::prelude::*;
use uroce::wire::Psn;

const ALL: u32 = 1 << 24;
const HALF: u32 = 1 << 23;

/// Any number; often one near the wrap.
fn psn() -> impl Strategy<Value = Psn> {
    prop_oneof![2 => any::<u32>(), 1 => 0u32..4, 1 => ALL - 4..ALL].prop_map(Psn::new)
}

/// Any distance; often one near the ends and the middle of the circle.
fn distance() -> impl Strategy<Value = u32> {
    prop_oneof![
        3 => 0..ALL,
        1 => 0u32..4,
        1 => HALF - 3..HALF + 4,
        1 => ALL - 4..ALL,
    ]
}

proptest! {
    #[test]
    fn numbers_are_a_circle(start in psn(), some in any::<u32>(), more in any::<u32>()) {
        prop_assert!(start.value() < ALL);
        prop_assert_eq!(start.add(some).sub(some), start);
        prop_assert_eq!(start.sub(some).add(some), start);
        prop_assert_eq!(start.add(some).add(more), start.add(some.wrapping_add(more)));
        prop_assert_eq!(start.add(some).add(more), start.add(more).add(some));
        prop_assert_eq!((start.add(ALL), start.sub(ALL), start.add(0)), (start, start, start));
        prop_assert_eq!(start.add(some), start.sub(some.wrapping_neg()));
        prop_assert_eq!((start.next(), start.previous()), (start.add(1), start.sub(1)));
        prop_assert_eq!((start.next().previous(), start.previous().next()), (start, start));
        let expected = (u64::from(start.value()) + u64::from(some)) % u64::from(ALL);
        prop_assert_eq!(u64::from(start.add(some).value()), expected);
    }

    #[test]
    fn a_distance_leads_from_one_to_the_other(a in psn(), b in psn(), by in distance()) {
        let there = b.distance_from(a);
        prop_assert!(there < ALL);
        prop_assert_eq!(a.add(there), b);
        prop_assert_eq!((there + a.distance_from(b)) % ALL, 0, "there and back is once around");
        prop_assert_eq!(a.add(by).distance_from(a), by);
        prop_assert_eq!(a.distance_from(a.sub(by)), by);
        prop_assert_eq!(b.add(by).distance_from(a.add(by)), there, "only the difference counts");
    }

    #[test]
    fn of_two_numbers_one_is_before_the_other_unless_they_are_opposite(a in psn(), by in distance()) {
        let b = a.add(by);
        let order = (a.is_before(b), a.is_after(b));
        prop_assert_eq!((b.is_after(a), b.is_before(a)), order, "antisymmetric");
        let expected = match by {
            0 | HALF => (false, false),
            by => (by < HALF, by > HALF),
        };
        prop_assert_eq!(order, expected);
        prop_assert_eq!(expected.0, (1..=Psn::MAX_SPAN).contains(&by));
    }

    #[test]
    fn order_goes_on_within_half_of_the_circle(
        a in psn(),
        first in 1..HALF,
        second in 1..HALF,
        by in any::<u32>(),
    ) {
        let (b, c) = (a.add(first), a.add(first).add(second));
        prop_assert!(a.is_before(b) && b.is_before(c));
        prop_assert_eq!(a.is_before(c), first + second < HALF, "as far as all three are in one half");
        prop_assert!(a.add(by).is_before(b.add(by)), "wherever the circle is turned to");
        prop_assert!(a.is_before(a.next()) && b.previous().is_before(b));
    }

    #[test]
    fn a_window_has_each_of_its_numbers_and_no_other(
        start in psn(),
        size in distance(),
        at in distance(),
        by in any::<u32>(),
    ) {
        let (end, psn) = (start.add(size), start.add(at));
        prop_assert_eq!(psn.is_within(start, end), at < size);
        prop_assert_eq!(psn.add(by).is_within(start.add(by), end.add(by)), at < size);
        prop_assert!(!end.is_within(start, end) && !psn.is_within(start, start));
        // What is not in it is in the rest of the circle, unless that has nothing.
        prop_assert_eq!(psn.is_within(end, start), size > 0 && at >= size);
        if (1..=HALF).contains(&size) && at < size {
            prop_assert!(!psn.is_before(start) && (psn.is_before(end) || size - at == HALF));
        }
    }

    #[test]
    fn a_number_is_printed_as_people_and_as_headers_write_it(psn in psn()) {
        prop_assert_eq!(psn.to_string(), psn.value().to_string());
        prop_assert_eq!(format!("{psn:?}"), format!("Psn(0x{:06x})", psn.value()));
    }
}
