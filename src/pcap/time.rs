//! Times in captures: seconds since 1970 and a fraction, as fine as the file has it.

use std::fmt;

const ATTOSECONDS: u128 = 1_000_000_000_000_000_000;
/// Digits of an attosecond.
const MOST_DIGITS: u8 = 18;

/// When a packet was captured, since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// Rest in attoseconds (10^-18), under a second.
    pub attoseconds: u64,
    /// Decimal digits after the point that the file's resolution gives, at most 18.
    pub digits: u8,
}

/// How many ticks a file has in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolution(u8);

impl Resolution {
    pub(super) const MICROSECONDS: Self = Self(6);
    pub(super) const NANOSECONDS: Self = Self(9);

    /// The value of the option `if_tsresol`: a negative power of ten, or of two with the top bit.
    pub(super) const fn from_option(value: u8) -> Self {
        Self(value)
    }

    fn exponent(self) -> u32 {
        u32::from(self.0 & 0x7f)
    }

    /// Ticks in a second; nothing if they are too many for any tick to matter.
    fn per_second(self) -> Option<u128> {
        if self.0 & 0x80 != 0 {
            1u128.checked_shl(self.exponent())
        } else {
            10u128.checked_pow(self.exponent())
        }
    }

    fn digits(self) -> u8 {
        (self.0 & 0x7f).min(MOST_DIGITS)
    }
}

impl Timestamp {
    /// The time that lies `ticks` of `resolution` after `offset` seconds.
    pub(super) fn new(ticks: u64, resolution: Resolution, offset: i64) -> Self {
        let (seconds, attoseconds) = match resolution.per_second() {
            // Both products fit: ticks is under 2^64 and 10^18 under 2^60.
            Some(per_second) => (
                u128::from(ticks) / per_second,
                u128::from(ticks) % per_second * ATTOSECONDS / per_second,
            ),
            None => (0, 0),
        };
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_add(offset);
        Self { seconds, attoseconds: attoseconds as u64, digits: resolution.digits() }
    }

    /// A time in nanoseconds since 1970, as a running capture has it.
    pub fn from_nanos(nanos: u64) -> Self {
        Self::new(nanos, Resolution::NANOSECONDS, 0)
    }

    /// How long after `earlier` this is, in microseconds; negative if it is before.
    pub fn micros_since(self, earlier: Self) -> i64 {
        let seconds = i128::from(self.seconds) - i128::from(earlier.seconds);
        let rest = i128::from(self.attoseconds) - i128::from(earlier.attoseconds);
        let micros = (seconds * 1_000_000) + rest.div_euclid(1_000_000_000_000);
        micros.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Nanoseconds, rounded down; 0 for times before 1970, the largest number for times after
    /// the year 2554.
    pub fn as_nanos(self) -> u64 {
        let Ok(seconds) = u64::try_from(self.seconds) else { return 0 };
        let nanoseconds = self.attoseconds / 1_000_000_000;
        seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
    }
}

impl fmt::Display for Timestamp {
    /// Seconds with as many digits as the file has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, whole, fraction) = if self.seconds < 0 && self.attoseconds > 0 {
            let below = ATTOSECONDS as u64 - self.attoseconds;
            ("-", (self.seconds + 1).unsigned_abs(), below)
        } else {
            (if self.seconds < 0 { "-" } else { "" }, self.seconds.unsigned_abs(), self.attoseconds)
        };
        write!(f, "{sign}{whole}")?;
        let digits = self.digits.min(MOST_DIGITS);
        if digits == 0 {
            return Ok(());
        }
        let shown = fraction / 10u64.pow(u32::from(MOST_DIGITS - digits));
        write!(f, ".{shown:0width$}", width = usize::from(digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(ticks: u64, resolution: u8, offset: i64) -> String {
        Timestamp::new(ticks, Resolution::from_option(resolution), offset).to_string()
    }

    #[test]
    fn every_resolution_keeps_all_its_digits() {
        assert_eq!(shown(1_700_000_000_123_456, 6, 0), "1700000000.123456");
        assert_eq!(shown(1_700_000_000_123_456_789, 9, 0), "1700000000.123456789");
        assert_eq!(shown(1_700_000_000_123_456_789, 12, 0), "1700000.000123456789");
        assert_eq!(shown(1_700_000_000, 0, 0), "1700000000");
        assert_eq!(shown(1_000_000_000_000_000_001, 18, 0), "1.000000000000000001");
    }

    #[test]
    fn powers_of_two_are_exact() {
        assert_eq!(shown(0b1011, 0x82, 0), "2.75");
        let time = Timestamp::new(3 << 31, Resolution::from_option(0xa0), 0);
        assert_eq!((time.seconds, time.attoseconds), (1, 500_000_000_000_000_000));
        assert_eq!(shown(u64::MAX, 0xff, 0), "0.000000000000000000");
    }

    #[test]
    fn offsets_move_whole_seconds_and_may_be_negative() {
        assert_eq!(shown(2_250_000, 6, 1_000), "1002.250000");
        assert_eq!(shown(1_750_000, 6, -2), "-0.250000");
        assert_eq!(shown(250_000, 6, -2), "-1.750000");
        assert_eq!(shown(2_000_000, 6, -3), "-1.000000");
        assert_eq!(Timestamp::new(1, Resolution::from_option(6), -2).as_nanos(), 0);
    }

    #[test]
    fn differences_are_exact_to_the_microsecond() {
        let at = |ticks| Timestamp::new(ticks, Resolution::MICROSECONDS, 0);
        assert_eq!(at(2_000_001).micros_since(at(999_999)), 1_000_002);
        assert_eq!(at(999_999).micros_since(at(2_000_001)), -1_000_002);
        assert_eq!(Timestamp::from_nanos(1_500).micros_since(at(0)), 1);
        let far = Timestamp::new(u64::MAX, Resolution::from_option(0), i64::MAX);
        assert_eq!(far.micros_since(at(0)), i64::MAX);
    }

    #[test]
    fn no_resolution_or_offset_overflows() {
        for resolution in 0..=255 {
            for offset in [i64::MIN, -1, 0, i64::MAX] {
                let time = Timestamp::new(u64::MAX, Resolution::from_option(resolution), offset);
                assert!(u128::from(time.attoseconds) < ATTOSECONDS);
                assert!(time.digits <= MOST_DIGITS);
                let whole = time.to_string();
                let whole = whole.split('.').next().and_then(|whole| whole.parse::<i64>().ok());
                assert!(whole.is_some_and(|whole| whole.abs_diff(time.seconds) <= 1));
                if time.seconds < 0 {
                    assert_eq!(time.as_nanos(), 0);
                }
            }
        }
    }
}
