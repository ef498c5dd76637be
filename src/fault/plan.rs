//! What shall go wrong, as the comma list that people write: `loss=1%,delay=2ms,seed=7`.

use std::fmt;
use std::str::FromStr;

use super::{Direction, PacketView};
use crate::time::{MICROSECOND, MILLISECOND, SECOND};
use crate::wire::{Opcode, Qpn};

/// Every word with the form of its value, as errors list them.
const ALLOWED: &str = "loss=P%, duplicate=P%, reorder=P%, corrupt=P%, ce=P%, delay=T, rate=R, \
                       direction=in|out|both, qp=N, opcode=NAME, seed=N";

const TIMES: [(&str, u64); 4] =
    [("s", SECOND), ("ms", MILLISECOND), ("us", MICROSECOND), ("ns", 1)];
const RATES: [(&str, u64); 4] =
    [("Gbit", 1_000_000_000), ("Mbit", 1_000_000), ("Kbit", 1_000), ("bit", 1)];
const PERCENT: u64 = 10_000;

/// A share of all packets, in steps of a millionth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// No packet.
    pub const NONE: Self = Self(0);
    /// Every packet.
    pub const ALL: Self = Self(1_000_000);

    /// So many packets of a million, at most all.
    pub const fn from_parts_per_million(parts: u32) -> Self {
        if parts > Self::ALL.0 { Self::ALL } else { Self(parts) }
    }

    /// So many percent, at most all.
    pub const fn percent(percent: u32) -> Self {
        Self::from_parts_per_million(percent.saturating_mul(PERCENT as u32))
    }

    /// Packets of a million.
    pub const fn parts_per_million(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for Share {
    /// `5%`, `0.01%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (u64::from(self.0) / PERCENT, u64::from(self.0) % PERCENT);
        let fraction = format!("{rest:04}");
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            digits => write!(f, "{whole}.{digits}%"),
        }
    }
}

/// The directions that a plan concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Directions {
    /// Received packets only.
    In,
    /// Sent packets only.
    Out,
    /// Both.
    #[default]
    Both,
}

/// What shall go wrong with which packets. The default is nothing. Parsed from and printed as a
/// comma list, the one of the environment variable `UROCE_FAULT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Packets that never arrive.
    pub loss: Share,
    /// Packets that arrive twice.
    pub duplicate: Share,
    /// Packets that are held back so that later ones pass them.
    pub reorder: Share,
    /// Packets in which one bit is turned over.
    pub corrupt: Share,
    /// Packets marked "congestion experienced", if they are ECN-capable.
    pub ce: Share,
    /// Nanoseconds that every packet is held back.
    pub delay: u64,
    /// Bits per second, in each direction, counting Ethernet's overhead.
    pub rate: Option<u64>,
    /// The directions concerned.
    pub direction: Directions,
    /// Only packets to this queue pair.
    pub qp: Option<Qpn>,
    /// Only packets with this opcode.
    pub opcode: Option<Opcode>,
    /// What the fates are drawn from.
    pub seed: u64,
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self {
            loss: Share::NONE,
            duplicate: Share::NONE,
            reorder: Share::NONE,
            corrupt: Share::NONE,
            ce: Share::NONE,
            delay: 0,
            rate: None,
            direction: Directions::Both,
            qp: None,
            opcode: None,
            seed: 1,
        }
    }
}

/// Why a text is no fault plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultPlanError {
    /// No fault has this name.
    #[error("unknown fault `{word}`; allowed are {ALLOWED}")]
    UnknownWord {
        /// The word before the `=`.
        word: String,
    },
    /// The value has another form.
    #[error("`{word}={value}`: expected {expected}; allowed are {ALLOWED}")]
    BadValue {
        /// The word before the `=`.
        word: String,
        /// What stands after it.
        value: String,
        /// The form of a value.
        expected: &'static str,
    },
    /// A word is given twice.
    #[error("`{word}` is given twice; leave one out")]
    Repeated {
        /// The word.
        word: String,
    },
}

impl FaultPlan {
    /// Whether the faults concern a packet.
    pub fn selects(&self, packet: &PacketView) -> bool {
        let direction = match self.direction {
            Directions::Both => true,
            Directions::In => packet.direction == Direction::In,
            Directions::Out => packet.direction == Direction::Out,
        };
        direction
            && self.qp.is_none_or(|qp| qp == packet.destination)
            && self.opcode.is_none_or(|opcode| opcode.to_byte() == packet.opcode)
    }

    /// Whether nothing ever goes wrong.
    pub fn is_empty(&self) -> bool {
        let shares = [self.loss, self.duplicate, self.reorder, self.corrupt, self.ce];
        shares == [Share::NONE; 5] && self.delay == 0 && self.rate.is_none()
    }

    fn set(&mut self, word: &str, value: &str) -> Result<(), FaultPlanError> {
        let expected = match word {
            "loss" | "duplicate" | "reorder" | "corrupt" | "ce" => {
                "a percentage from 0% to 100% with at most four decimals, such as 0.5%"
            }
            "delay" => "a time such as 10us, 2ms or 1s",
            "rate" => "a rate such as 100Mbit or 10Gbit",
            "direction" => "in, out or both",
            "qp" => "a queue pair number from 0 to 16777215, or 0x and hexadecimal digits",
            "opcode" => "an opcode such as RC_SEND_ONLY, RC_ACKNOWLEDGE or CNP",
            "seed" => "a number from 0 to 18446744073709551615",
            _ => return Err(FaultPlanError::UnknownWord { word: word.to_owned() }),
        };
        self.try_set(word, value).ok_or_else(|| FaultPlanError::BadValue {
            word: word.to_owned(),
            value: value.to_owned(),
            expected,
        })
    }

    /// Nothing if the value has not the form that the word wants.
    fn try_set(&mut self, word: &str, value: &str) -> Option<()> {
        match word {
            "loss" => self.loss = share(value)?,
            "duplicate" => self.duplicate = share(value)?,
            "reorder" => self.reorder = share(value)?,
            "corrupt" => self.corrupt = share(value)?,
            "ce" => self.ce = share(value)?,
            "delay" => self.delay = with_unit(value, &TIMES)?,
            "rate" => self.rate = Some(with_unit(value, &RATES).filter(|rate| *rate > 0)?),
            "direction" => self.direction = directions(value)?,
            "qp" => self.qp = Some(queue_pair(value)?),
            "opcode" => self.opcode = Some(opcode(value)?),
            _ => self.seed = value.parse().ok()?,
        }
        Some(())
    }
}

impl FromStr for FaultPlan {
    type Err = FaultPlanError;

    /// Reads a comma list; spaces around words do no harm, and an empty text is an empty plan.
    fn from_str(text: &str) -> Result<Self, FaultPlanError> {
        let mut plan = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (word, value) = entry.split_once('=').unwrap_or((entry, ""));
            let (word, value) = (word.trim(), value.trim());
            if seen.contains(&word) {
                return Err(FaultPlanError::Repeated { word: word.to_owned() });
            }
            plan.set(word, value)?;
            seen.push(word);
        }
        Ok(plan)
    }
}

impl fmt::Display for FaultPlan {
    /// The comma list that parses to this plan; the seed is always in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
            ("ce", self.ce),
        ];
        for (word, share) in shares.iter().filter(|(_, share)| *share != Share::NONE) {
            write!(f, "{word}={share},")?;
        }
        if self.delay > 0 {
            write!(f, "delay={},", Quantity(self.delay, &TIMES))?;
        }
        if let Some(rate) = self.rate {
            write!(f, "rate={},", Quantity(rate, &RATES))?;
        }
        match self.direction {
            Directions::In => f.write_str("direction=in,")?,
            Directions::Out => f.write_str("direction=out,")?,
            Directions::Both => {}
        }
        if let Some(qp) = self.qp {
            write!(f, "qp={qp},")?;
        }
        if let Some(opcode) = self.opcode {
            write!(f, "opcode={},", opcode.name())?;
        }
        write!(f, "seed={}", self.seed)
    }
}

/// A number in the largest unit that divides it.
struct Quantity(u64, &'static [(&'static str, u64)]);

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fitting = self.1.iter().find(|(_, size)| self.0.is_multiple_of(*size));
        fitting.map_or(Ok(()), |(unit, size)| write!(f, "{}{unit}", self.0 / size))
    }
}

fn share(text: &str) -> Option<Share> {
    let parts = decimal(text.strip_suffix('%')?, PERCENT)?;
    let parts = u32::try_from(parts).ok()?;
    (parts <= Share::ALL.0).then_some(Share(parts))
}

/// Reads a number with a unit, the unit in any case.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let start = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(start);
    let (_, size) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    decimal(number, *size)
}

/// Reads `12.5` as so many of `scale`, exactly; nothing if it does not come out even.
fn decimal(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    if text.contains('.') && fraction.is_empty() {
        return None;
    }
    let divisor = 10u128.pow(fraction.len() as u32);
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let scaled = (u128::from(whole) * divisor + u128::from(fraction)) * u128::from(scale);
    scaled.is_multiple_of(divisor).then_some(scaled / divisor).and_then(|n| n.try_into().ok())
}

fn directions(text: &str) -> Option<Directions> {
    match text {
        "in" => Some(Directions::In),
        "out" => Some(Directions::Out),
        "both" => Some(Directions::Both),
        _ => None,
    }
}

fn queue_pair(text: &str) -> Option<Qpn> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let number = match hexadecimal {
        // The standard library would take a sign.
        Some(digits) if digits.starts_with('+') => return None,
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    (number <= Qpn::MULTICAST.value()).then_some(Qpn::new(number))
}

fn opcode(text: &str) -> Option<Opcode> {
    (0..=u8::MAX)
        .filter_map(Opcode::from_byte)
        .find(|opcode| opcode.name().eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_understood() {
        let text = "loss=1%, duplicate=0.5%,reorder=100%,corrupt=0.0001%,ce=12.25%,delay=1.5ms,\
                    rate=2.5Gbit,direction=out,qp=0x1a2b3c,opcode=rc_rdma_write_only,seed=99";
        let plan: FaultPlan = text.parse().unwrap();
        let expected = FaultPlan {
            loss: Share::percent(1),
            duplicate: Share::from_parts_per_million(5_000),
            reorder: Share::ALL,
            corrupt: Share::from_parts_per_million(1),
            ce: Share::from_parts_per_million(122_500),
            delay: 1_500_000,
            rate: Some(2_500_000_000),
            direction: Directions::Out,
            qp: Some(Qpn::new(0x1a_2b3c)),
            opcode: Opcode::from_byte(0x0a),
            seed: 99,
        };
        assert_eq!(plan, expected);
        let printed = "loss=1%,duplicate=0.5%,reorder=100%,corrupt=0.0001%,ce=12.25%,\
                       delay=1500us,rate=2500Mbit,direction=out,qp=0x1a2b3c,\
                       opcode=RC_RDMA_WRITE_ONLY,seed=99";
        assert_eq!(plan.to_string(), printed);
        assert_eq!(printed.parse(), Ok(plan));
    }

    #[test]
    fn an_empty_text_is_an_empty_plan() {
        let plan: FaultPlan = " ".parse().unwrap();
        assert_eq!(plan, FaultPlan::default());
        assert!(plan.is_empty());
        assert_eq!(plan.to_string(), "seed=1");
        assert!(!"rate=1bit".parse::<FaultPlan>().unwrap().is_empty());
    }

    #[test]
    fn units_come_in_any_size_and_case() {
        let delay = |text: &str| format!("delay={text}").parse::<FaultPlan>().unwrap().delay;
        assert_eq!(
            [delay("7ns"), delay("10us"), delay("2ms"), delay("1s")],
            [7, 10_000, 2_000_000, 1_000_000_000]
        );
        let rate = |text: &str| format!("rate={text}").parse::<FaultPlan>().unwrap().rate;
        assert_eq!(rate("100mbit"), Some(100_000_000));
        assert_eq!(rate("64Kbit"), Some(64_000));
    }

    #[test]
    fn an_error_names_the_word_and_lists_what_is_allowed() {
        for bad in ["los=1%", "loss", "loss=1", "loss=101%", "loss=-1%", "loss=1.00001%", "loss=%"]
        {
            let error = bad.parse::<FaultPlan>().unwrap_err().to_string();
            assert!(error.contains(bad.split('=').next().unwrap()), "{error}");
            assert!(error.contains("duplicate=P%") && error.contains("seed=N"), "{error}");
        }
        for bad in [
            "delay=5",
            "delay=ms",
            "delay=1.ms",
            "delay=99999999999999999999s",
            "delay=18446744073709551615.999999999s",
            "rate=0Mbit",
            "rate=10Gbyte",
            "direction=up",
            "qp=0x1000000",
            "qp=0x+1",
            "qp=-1",
            "opcode=RC_SEND",
            "opcode=UNKNOWN",
            "seed=x",
            "seed=",
        ] {
            let error = bad.parse::<FaultPlan>().unwrap_err();
            assert!(matches!(error, FaultPlanError::BadValue { .. }), "{bad}: {error}");
        }
        let error = "loss=1%,loss=2%".parse::<FaultPlan>().unwrap_err();
        assert_eq!(error, FaultPlanError::Repeated { word: "loss".to_owned() });
    }

    #[test]
    fn every_opcode_can_be_named() {
        for known in (0..=u8::MAX).filter_map(Opcode::from_byte) {
            let plan = FaultPlan { opcode: Some(known), ..FaultPlan::default() };
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
    }

    proptest::proptest! {
        #[test]
        fn printing_and_parsing_are_inverse(
            shares: [u32; 5],
            delay: u64,
            rate in proptest::option::of(1u64..),
            direction in 0usize..3,
            qp in proptest::option::of(0u32..1 << 24),
            opcode in proptest::option::of(proptest::num::u8::ANY),
            seed: u64,
        ) {
            let [loss, duplicate, reorder, corrupt, ce] =
                shares.map(|parts| Share::from_parts_per_million(parts % 1_000_001));
            let direction = [Directions::In, Directions::Out, Directions::Both][direction];
            let (qp, opcode) = (qp.map(Qpn::new), opcode.and_then(Opcode::from_byte));
            let plan = FaultPlan {
                loss, duplicate, reorder, corrupt, ce, delay, rate, direction, qp, opcode, seed,
            };
            proptest::prop_assert_eq!(plan.to_string().parse(), Ok(plan));
        }

        #[test]
        fn no_text_makes_the_parser_panic_and_what_it_takes_is_printed_the_same(
            text in "([a-z]{0,9}=?[0-9.]{0,21}(%|ms|us|s|bit|Gbit|xé)?,?){0,4}|(delay|rate|loss|ce|qp|seed)=[-+x0-9.a-fé%]{0,24}",
        ) {
            if let Ok(plan) = text.parse::<FaultPlan>() {
                proptest::prop_assert_eq!(plan.to_string().parse(), Ok(plan));
            }
        }
    }
}
