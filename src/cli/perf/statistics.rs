//! Numbers made of many: percentiles, the best and the median.

use serde::Serialize;

/// How times are spread, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Percentiles {
    pub(super) min: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
}

impl Percentiles {
    /// Of times in nanoseconds; nothing if there are none.
    pub(super) fn of(times: &mut [u64]) -> Option<Self> {
        times.sort_unstable();
        let last = times.len().checked_sub(1)?;
        // The nearest rank: the least time that this share of all does not exceed.
        let at = |per_mille: usize| {
            let rank = (times.len() * per_mille).div_ceil(1000);
            times[rank.saturating_sub(1).min(last)] as f64 / 1e3
        };
        let [min, max] = [0, last].map(|index| times[index] as f64 / 1e3);
        Some(Self { min, p50: at(500), p90: at(900), p99: at(990), p999: at(999), max })
    }
}

/// The best of some slices, and the one in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Slices {
    pub(super) best: f64,
    pub(super) median: f64,
}

impl Slices {
    /// Of rates, of which the highest is the best. Zeros if there are none.
    pub(super) fn of_rates(mut values: Vec<f64>) -> Self {
        values.sort_by(|one, other| other.total_cmp(one));
        Self::of_sorted(&values)
    }

    /// Of times, of which the least is the best.
    pub(super) fn of_times(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self::of_sorted(&values)
    }

    fn of_sorted(values: &[f64]) -> Self {
        let Some(best) = values.first().copied() else { return Self { best: 0.0, median: 0.0 } };
        let (half, is_odd) = (values.len() / 2, values.len() % 2 == 1);
        let median =
            if is_odd { values[half] } else { f64::midpoint(values[half - 1], values[half]) };
        Self { best, median }
    }

    /// Each multiplied by `factor`.
    pub(super) fn times(self, factor: f64) -> Self {
        Self { best: self.best * factor, median: self.median * factor }
    }

    /// Each divided by that of `other`; nothing if that is 0.
    pub(super) fn over(self, other: Self) -> Option<Self> {
        let is_there = other.best > 0.0 && other.median > 0.0;
        is_there.then(|| Self { best: self.best / other.best, median: self.median / other.median })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut times: Vec<u64> = (1..=1000).rev().map(|number| number * 1000).collect();
        let found = Percentiles::of(&mut times).unwrap();
        let expected =
            Percentiles { min: 1.0, p50: 500.0, p90: 900.0, p99: 990.0, p999: 999.0, max: 1000.0 };
        assert_eq!(found, expected);
        let single = Percentiles::of(&mut [2000]).unwrap();
        assert_eq!((single.min, single.p50, single.p999, single.max), (2.0, 2.0, 2.0, 2.0));
        assert_eq!(Percentiles::of(&mut []), None);
    }

    #[test]
    fn the_best_rate_is_the_highest_and_the_best_time_the_least() {
        let values = vec![3.0, 1.0, 2.0, 10.0];
        assert_eq!(Slices::of_rates(values.clone()), Slices { best: 10.0, median: 2.5 });
        assert_eq!(Slices::of_times(values), Slices { best: 1.0, median: 2.5 });
        assert_eq!(Slices::of_times(vec![7.0]), Slices { best: 7.0, median: 7.0 });
    }

    #[test]
    fn nothing_is_divided_by_zero() {
        let none = Slices::of_rates(Vec::new());
        let some = Slices { best: 4.0, median: 2.0 };
        assert_eq!(some.over(none), None);
        assert_eq!(some.over(some), Some(Slices { best: 1.0, median: 1.0 }));
    }
}
