//! Numbers as people read them.

use crate::time::{MICROSECOND, MILLISECOND, SECOND};

/// `640 ns`, `4.1 µs`, `67.1 ms`, `8.6 s`: three digits at most, and what they count.
pub fn duration(nanoseconds: u64) -> String {
    let (unit, name) = match nanoseconds {
        0..MICROSECOND => return format!("{nanoseconds} ns"),
        MICROSECOND..MILLISECOND => (MICROSECOND, "µs"),
        MILLISECOND..SECOND => (MILLISECOND, "ms"),
        _ => (SECOND, "s"),
    };
    let value = nanoseconds as f64 / unit as f64;
    let digits = usize::from(value < 100.0);
    let text = format!("{value:.digits$}");
    format!("{} {name}", text.strip_suffix(".0").unwrap_or(&text))
}

/// A time in milliseconds, exactly enough for a timer of verbs: `0.64 ms`, `67.109 ms`.
pub fn milliseconds(nanoseconds: u64) -> String {
    let text = format!("{:.3}", nanoseconds as f64 / MILLISECOND as f64);
    format!("{} ms", text.trim_end_matches('0').trim_end_matches('.'))
}

/// `once`, `twice`, `7 times`.
pub(super) fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

/// `1 byte`, `2 bytes`.
pub(super) fn bytes(count: u64) -> String {
    if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let texts = [640, 4_096, 67_108_864, 536_870_912, 8_600_000_000, 1_000_000, 99_960_000];
        assert_eq!(
            texts.map(duration),
            ["640 ns", "4.1 µs", "67.1 ms", "537 ms", "8.6 s", "1 ms", "100 ms"]
        );
        assert_eq!(
            [640_000, 67_108_864, 10_000, 655_360_000].map(milliseconds),
            ["0.64 ms", "67.109 ms", "0.01 ms", "655.36 ms"]
        );
    }
}
