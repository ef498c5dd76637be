//! The parameters of congestion control, under the names that mlx5 and the paper give them.

use std::fmt;
use std::str::FromStr;

/// What a device assumes of a line whose speed nobody knows, in Mbit/s.
const UNKNOWN_LINE: u32 = 10_000;

/// Congestion control of a device: DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA
/// Deployments", SIGCOMM 2015).
///
/// Names are those of mlx5 (`/sys/class/net/*/ecn/roce_{np,rp}`, debugfs `cc_params`), and so are
/// the units. The defaults are the paper's (section 5), but for [`Self::rpg_min_rate`]; a card's are
/// those of [`Self::connectx`]. Rates count all bits that a packet takes of an Ethernet line.
///
/// In text, as `UROCE_CONGESTION` and `uroce sim --congestion` have it: `on`, `off`, or a comma list
/// of `name=value` that changes single ones; switches are 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionOptions {
    /// Whether packets say that they are ECN-capable, ECT(0), where the address vector's traffic
    /// class leaves its two ECN bits at 0. Its DSCP is kept.
    pub ecn: bool,
    /// Notification point: whether marked packets are answered by congestion notifications.
    pub roce_np: bool,
    /// Reaction point: whether notifications are heeded.
    pub roce_rp: bool,
    /// Time from one notification to the next of the same flow at least, in microseconds (the
    /// paper's N). A flow is a connected queue pair, or a sender of datagrams.
    pub min_time_between_cnps: u32,
    /// DSCP of notifications, 0 to 63: switches should prefer it.
    pub cnp_dscp: u8,
    /// Where a flow's rate ends to rise and nothing is limited any more, in Mbit/s: the line's speed.
    /// A socket does not tell it; 0 assumes 10 Gbit/s.
    pub rpg_max_rate: u32,
    /// The least that cuts leave, in Mbit/s, at least 1.
    pub rpg_min_rate: u32,
    /// What a cut leaves of the rate at least, in percent, 1 to 100.
    pub rpg_min_dec_fac: u32,
    /// Additive increase: what a step adds to the target rate, in Mbit/s (the paper's R_AI).
    pub rpg_ai_rate: u32,
    /// Hyper increase: the same for each step after both counters have passed the threshold, in
    /// Mbit/s.
    pub rpg_hai_rate: u32,
    /// Steps of fast recovery, which halve the way to the target rate, before additive increase (the
    /// paper's F).
    pub rpg_threshold: u32,
    /// A step of increase is due after so many microseconds, at least 1 (the paper's T).
    pub rpg_time_reset: u32,
    /// A step of increase is due after so many bytes, at least 1 (the paper's B).
    pub rpg_byte_reset: u64,
    /// The rate on which a flow is set by its first notification, in Mbit/s; 0 cuts from
    /// [`Self::rpg_max_rate`] as any other notification does.
    pub rate_to_set_on_first_cnp: u32,
    /// Time from one cut to the next at least, in microseconds.
    pub rate_reduce_monitor_period: u32,
    /// The congestion estimate alpha at the first notification, 0 to 1023 for 0 to 1; a cut takes
    /// half of alpha away.
    pub initial_alpha_value: u32,
    /// How much of alpha an update keeps, 0 to 1024 for 0 to 1 (1 minus the paper's g).
    pub dce_tcp_g: u32,
    /// Alpha is updated after so many microseconds without notification, at least 1 (the paper's K).
    pub dce_tcp_rtt: u32,
    /// Whether each cut makes the rate before it the target, as in the paper. If not, one does only
    /// if the rate has risen since the last cut.
    pub clamp_tgt_rate: bool,
    /// Without [`Self::clamp_tgt_rate`]: whether rises by time count, beside those by bytes.
    pub clamp_tgt_rate_after_time_inc: bool,
}

impl Default for CongestionOptions {
    fn default() -> Self {
        Self {
            ecn: true,
            roce_np: true,
            roce_rp: true,
            min_time_between_cnps: 50,
            cnp_dscp: 48,
            rpg_max_rate: 0,
            rpg_min_rate: 10,
            rpg_min_dec_fac: 50,
            rpg_ai_rate: 40,
            rpg_hai_rate: 400,
            rpg_threshold: 5,
            rpg_time_reset: 55,
            rpg_byte_reset: 10_000_000,
            rate_to_set_on_first_cnp: 0,
            rate_reduce_monitor_period: 50,
            initial_alpha_value: 1023,
            dce_tcp_g: 1020,
            dce_tcp_rtt: 55,
            clamp_tgt_rate: true,
            clamp_tgt_rate_after_time_inc: true,
        }
    }
}

/// A parameter that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CongestionError {
    /// A value out of range.
    #[error("congestion parameter {name}: {value} is out of range; possible are {least} to {most}")]
    Range {
        /// Which one.
        name: &'static str,
        /// What was asked for.
        value: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// No value of this kind.
    #[error("congestion parameter {name}: `{value}` is no number from {least} to {most}")]
    NoNumber {
        /// Which one.
        name: &'static str,
        /// What was given.
        value: String,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// No such parameter.
    #[error("unknown congestion parameter `{word}`; known are on, off and NAME=VALUE with {known}")]
    Unknown {
        /// What was given.
        word: String,
        /// All names.
        known: String,
    },
}

/// One parameter: its name, its range, and how to get at it.
struct Parameter {
    name: &'static str,
    least: u64,
    most: u64,
    get: fn(&CongestionOptions) -> u64,
    set: fn(&mut CongestionOptions, u64),
}

macro_rules! parameters {
    ($($name:ident: $least:expr, $most:expr, $from:expr;)*) => {
        &[$(Parameter {
            name: stringify!($name),
            least: $least,
            most: $most,
            get: |options| u64::from(options.$name),
            #[allow(clippy::redundant_closure_call, reason = "each type has its own conversion")]
            set: |options, value| options.$name = ($from)(value),
        },)*]
    };
}

/// A day in microseconds: no time here makes sense beyond it.
const DAY: u64 = 86_400_000_000;
const LONGEST: u64 = if DAY > u32::MAX as u64 { u32::MAX as u64 } else { DAY };
/// 4 Tbit/s.
const FASTEST: u64 = 4_000_000;

const fn word(value: u64) -> u32 {
    value as u32
}

const PARAMETERS: &[Parameter] = parameters! {
    ecn: 0, 1, |value| value != 0;
    roce_np: 0, 1, |value| value != 0;
    roce_rp: 0, 1, |value| value != 0;
    min_time_between_cnps: 0, LONGEST, word;
    cnp_dscp: 0, 63, |value| value as u8;
    rpg_max_rate: 0, FASTEST, word;
    rpg_min_rate: 1, FASTEST, word;
    rpg_min_dec_fac: 1, 100, word;
    rpg_ai_rate: 1, FASTEST, word;
    rpg_hai_rate: 1, FASTEST, word;
    rpg_threshold: 1, 31, word;
    rpg_time_reset: 1, LONGEST, word;
    rpg_byte_reset: 1, 1 << 40, |value| value;
    rate_to_set_on_first_cnp: 0, FASTEST, word;
    rate_reduce_monitor_period: 0, LONGEST, word;
    initial_alpha_value: 0, 1023, word;
    dce_tcp_g: 0, 1024, word;
    dce_tcp_rtt: 1, LONGEST, word;
    clamp_tgt_rate: 0, 1, |value| value != 0;
    clamp_tgt_rate_after_time_inc: 0, 1, |value| value != 0;
};

impl CongestionOptions {
    /// No congestion control: nothing says that it is ECN-capable, no mark is answered, no
    /// notification heeded.
    pub fn off() -> Self {
        Self { ecn: false, roce_np: false, roce_rp: false, ..Self::default() }
    }

    /// What a ConnectX comes with, for comparisons (documented by its vendor for mlx5).
    pub fn connectx() -> Self {
        Self {
            min_time_between_cnps: 4,
            rpg_min_rate: 1,
            rpg_ai_rate: 5,
            rpg_hai_rate: 50,
            rpg_threshold: 1,
            rpg_time_reset: 300,
            rpg_byte_reset: 32_767,
            rate_reduce_monitor_period: 4,
            dce_tcp_g: 1019,
            dce_tcp_rtt: 1,
            clamp_tgt_rate: false,
            ..Self::default()
        }
    }

    /// Whether each value is possible.
    ///
    /// # Errors
    /// [`CongestionError::Range`] names the first that is not.
    pub fn check(&self) -> Result<(), CongestionError> {
        for Parameter { name, least, most, get, .. } in PARAMETERS {
            let value = get(self);
            if value < *least || value > *most {
                return Err(CongestionError::Range { name, value, least: *least, most: *most });
            }
        }
        Ok(())
    }

    /// The same with each value out of range moved to the nearest possible one.
    pub(crate) fn possible(mut self) -> Self {
        for Parameter { least, most, get, set, .. } in PARAMETERS {
            let value = get(&self);
            set(&mut self, value.clamp(*least, *most));
        }
        self
    }

    /// Names and values of all parameters, in the order of their declaration; switches are 0 or 1.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        PARAMETERS.iter().map(|parameter| (parameter.name, (parameter.get)(self)))
    }

    /// The rate at which flows are not limited, in bits a second.
    pub fn line_rate(&self) -> u64 {
        megabits(if self.rpg_max_rate == 0 { UNKNOWN_LINE } else { self.rpg_max_rate })
    }

    /// The traffic class of packets for which an address vector asks for `asked`.
    pub(crate) const fn traffic_class(&self, asked: u8) -> u8 {
        if self.ecn && asked & ECN_BITS == 0 { asked | ECT0 } else { asked }
    }

    /// The traffic class of notifications.
    pub(crate) const fn notification_class(&self) -> u8 {
        self.traffic_class(self.cnp_dscp << 2)
    }
}

/// The two bits of a traffic class that are ECN's.
pub(crate) const ECN_BITS: u8 = 0b11;
/// "ECN-capable".
const ECT0: u8 = 0b10;
/// "Congestion experienced".
pub(crate) const CE: u8 = 0b11;

/// Bits a second of so many Mbit/s.
pub(super) const fn megabits(rate: u32) -> u64 {
    rate as u64 * 1_000_000
}

impl fmt::Display for CongestionOptions {
    /// As it can be read again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

impl FromStr for CongestionOptions {
    type Err = CongestionError;

    /// See the type's text.
    fn from_str(text: &str) -> Result<Self, CongestionError> {
        let mut options = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "on" => options = Self { ecn: true, roce_np: true, roce_rp: true, ..options },
                "off" => options = Self { ecn: false, roce_np: false, roce_rp: false, ..options },
                _ => options.set(word)?,
            }
        }
        Ok(options)
    }
}

impl CongestionOptions {
    fn set(&mut self, word: &str) -> Result<(), CongestionError> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let found = PARAMETERS.iter().find(|parameter| parameter.name == name.trim());
        let Some(Parameter { name, least, most, set, .. }) = found else {
            let known: Vec<&str> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
            return Err(CongestionError::Unknown {
                word: word.to_owned(),
                known: known.join(", "),
            });
        };
        let (least, most) = (*least, *most);
        let Ok(number) = value.trim().parse::<u64>() else {
            return Err(CongestionError::NoNumber { name, value: value.to_owned(), least, most });
        };
        if !(least..=most).contains(&number) {
            return Err(CongestionError::Range { name, value: number, least, most });
        }
        set(self, number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parameters_can_be_named_and_come_back_as_they_were() {
        let options = CongestionOptions::connectx();
        assert_eq!(options.to_string().parse(), Ok(options));
        assert_eq!("".parse(), Ok(CongestionOptions::default()));
        assert_eq!("off".parse(), Ok(CongestionOptions::off()));
        assert_eq!("off, on".parse(), Ok(CongestionOptions::default()));
        let changed: CongestionOptions = "rpg_ai_rate=7,ecn=0".parse().unwrap();
        assert_eq!((changed.rpg_ai_rate, changed.ecn), (7, false));
        let names: Vec<_> = options.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 20);
        assert_eq!(CongestionOptions::default().check(), Ok(()));
        assert_eq!(options.check(), Ok(()));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (text, parts) in [
            ("rpg_min_rate=0", ["rpg_min_rate", "1 to 4000000"]),
            ("rpg_ai_rate=fast", ["rpg_ai_rate", "fast"]),
            ("rpg_ai_rate", ["rpg_ai_rate", "1 to"]),
            ("cnp_dscp=64", ["cnp_dscp", "0 to 63"]),
            ("speed=1", ["speed", "rpg_hai_rate"]),
        ] {
            let error = text.parse::<CongestionOptions>().unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "{error}");
            }
        }
        let wrong = CongestionOptions { rpg_min_dec_fac: 101, ..CongestionOptions::default() };
        assert!(matches!(
            wrong.check(),
            Err(CongestionError::Range { name: "rpg_min_dec_fac", .. })
        ));
    }

    #[test]
    fn ecn_bits_are_set_where_none_are_and_dscp_is_kept() {
        let on = CongestionOptions::default();
        let off = CongestionOptions::off();
        assert_eq!(on.traffic_class(0x68), 0x6a);
        assert_eq!(on.traffic_class(0x69), 0x69, "who asks for ECT(1) gets it");
        assert_eq!(off.traffic_class(0x68), 0x68);
        assert_eq!(on.notification_class(), 0xc2, "as a ConnectX sends it");
        assert_eq!(off.notification_class(), 0xc0);
    }
}
