//! The environment variables, for programs that cannot be changed. The options of `uroce` have the
//! same names and go through the same parsers.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::engine::{CongestionError, CongestionOptions};
use crate::fault::{FaultPlan, FaultPlanError};

/// Which link carries the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// The best that this process may use.
    #[default]
    Auto,
    /// UDP sockets.
    Udp,
    /// AF_PACKET.
    Packet,
    /// AF_XDP.
    Xdp,
    /// A TAP interface.
    Tap,
}

impl LinkKind {
    const NAMES: [(&'static str, Self); 5] = [
        ("auto", Self::Auto),
        ("udp", Self::Udp),
        ("packet", Self::Packet),
        ("xdp", Self::Xdp),
        ("tap", Self::Tap),
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }
}

/// Whose devices are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProviderKind {
    /// Hardware if there is some, else software.
    #[default]
    Auto,
    /// This crate's own devices.
    Software,
    /// Real devices.
    Hardware,
}

impl ProviderKind {
    const NAMES: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("software", Self::Software), ("hardware", Self::Hardware)];
}

fn name_of<T: PartialEq + Copy>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, named)| *named == value).map_or("", |(name, _)| name)
}

/// What is told in words on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Why work requests and calls failed.
    pub errors: bool,
    /// Each call.
    pub verbs: bool,
    /// Each packet.
    pub packets: bool,
}

/// An interface, and the name that its device is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName {
    /// The network interface.
    pub interface: String,
    /// The device's name if it is not the interface's: `lo=mlx5_0`.
    pub alias: Option<String>,
}

/// A variable whose value makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}=`{value}`: {problem}")]
pub struct EnvironmentError {
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

/// The values of all variables; the default is that none is set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environment {
    /// `UROCE_DEVICE`: the interface to use.
    pub device: Option<DeviceName>,
    /// `UROCE_LINK`.
    pub link: LinkKind,
    /// `UROCE_PROVIDER`.
    pub provider: ProviderKind,
    /// `UROCE_PCAP`: the file to record every frame in.
    pub capture: Option<PathBuf>,
    /// `UROCE_FAULT`: what shall go wrong.
    pub fault: Option<FaultPlan>,
    /// `UROCE_TRACE`.
    pub trace: Trace,
    /// `UROCE_STRICT`: no recovery of unseen IP identifications.
    pub strict: bool,
    /// `UROCE_RECEIVE_BUFFER`: bytes of socket receive buffer.
    pub receive_buffer: Option<usize>,
    /// `UROCE_CONGESTION`: congestion control and its parameters.
    pub congestion: CongestionOptions,
}

impl Environment {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// [`EnvironmentError`] for the first variable whose value makes no sense.
    pub fn read() -> Result<Self, EnvironmentError> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// Reads variables that `get` looks up. An empty value counts as not set.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn from_variables(
        get: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, EnvironmentError> {
        let get = |name| get(name).filter(|value| !value.is_empty());
        let text = |variable: &'static str| match get(variable).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(value)) => {
                let value = value.to_string_lossy().into_owned();
                Err(EnvironmentError { variable, value, problem: "no valid UTF-8".to_owned() })
            }
        };
        Ok(Self {
            device: parse(text, "UROCE_DEVICE", parse_device)?,
            link: parse(text, "UROCE_LINK", |v| one_of(&LinkKind::NAMES, v))?.unwrap_or_default(),
            provider: parse(text, "UROCE_PROVIDER", |v| one_of(&ProviderKind::NAMES, v))?
                .unwrap_or_default(),
            capture: get("UROCE_PCAP").map(PathBuf::from),
            fault: parse(text, "UROCE_FAULT", |value| {
                FaultPlan::from_str(value).map_err(|error: FaultPlanError| error.to_string())
            })?,
            trace: parse(text, "UROCE_TRACE", parse_trace)?.unwrap_or_default(),
            strict: parse(text, "UROCE_STRICT", parse_switch)?.unwrap_or_default(),
            receive_buffer: parse(text, "UROCE_RECEIVE_BUFFER", parse_buffer_size)?,
            congestion: parse(text, "UROCE_CONGESTION", |value| {
                CongestionOptions::from_str(value)
                    .map_err(|error: CongestionError| error.to_string())
            })?
            .unwrap_or_default(),
        })
    }
}

fn parse<T>(
    text: impl Fn(&'static str) -> Result<Option<String>, EnvironmentError>,
    variable: &'static str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, EnvironmentError> {
    let Some(value) = text(variable)? else { return Ok(None) };
    match parse(value.trim()) {
        Ok(parsed) => Ok(Some(parsed)),
        Err(problem) => Err(EnvironmentError { variable, value, problem }),
    }
}

fn one_of<T: Copy>(names: &[(&'static str, T)], value: &str) -> Result<T, String> {
    let found = names.iter().find(|(name, _)| *name == value).map(|(_, named)| *named);
    found.ok_or_else(|| format!("unknown; allowed are {}", Words(names)))
}

/// Names in a list.
struct Words<'a, T>(&'a [(&'static str, T)]);

impl<T> fmt::Display for Words<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
        f.write_str(&names.join(", "))
    }
}

fn parse_device(value: &str) -> Result<DeviceName, String> {
    let (interface, alias) = match value.split_once('=') {
        Some((interface, alias)) => (interface, Some(alias)),
        None => (value, None),
    };
    if interface.is_empty() || alias == Some("") {
        return Err("expected an interface, or interface=name, such as lo=mlx5_0".to_owned());
    }
    Ok(DeviceName { interface: interface.to_owned(), alias: alias.map(str::to_owned) })
}

/// Reads what is to be told: `errors`, `verbs` and `packets`, with commas.
///
/// # Errors
/// The sentence that names the unknown word.
pub fn parse_trace(value: &str) -> Result<Trace, String> {
    let mut trace = Trace::default();
    for word in value.split(',').map(str::trim) {
        match word {
            "errors" => trace.errors = true,
            "verbs" => trace.verbs = true,
            "packets" => trace.packets = true,
            _ => return Err(format!("unknown `{word}`; allowed are errors, verbs, packets")),
        }
    }
    Ok(trace)
}

fn parse_switch(value: &str) -> Result<bool, String> {
    match value {
        "1" | "yes" | "true" | "on" => Ok(true),
        "0" | "no" | "false" | "off" => Ok(false),
        _ => Err("expected 1 or 0, yes or no, true or false, on or off".to_owned()),
    }
}

/// Reads a size of a socket buffer: 4096 to 2G bytes, `K`, `M` and `G` count in 1024s.
///
/// # Errors
/// The sentence that says so.
pub fn parse_buffer_size(value: &str) -> Result<usize, String> {
    const UNITS: [(char, usize); 3] = [('K', 10), ('M', 20), ('G', 30)];
    let unit = UNITS.iter().find(|(letter, _)| value.ends_with(*letter));
    let digits = unit.map_or(value, |_| &value[..value.len() - 1]);
    let shift = unit.map_or(0, |(_, shift)| *shift);
    let number: Option<usize> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|bytes| (4096..=1 << 31).contains(bytes))
        .ok_or_else(|| "expected 4096 to 2G bytes; K, M and G count in 1024s".to_owned())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, EnvironmentError> {
        Environment::from_variables(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn nothing_set_is_the_default() {
        assert_eq!(read(&[]), Ok(Environment::default()));
        assert_eq!(read(&[("UROCE_DEVICE", ""), ("UROCE_STRICT", "")]), read(&[]));
    }

    #[test]
    fn every_variable_has_its_effect() {
        let environment = read(&[
            ("UROCE_DEVICE", "lo=mlx5_0"),
            ("UROCE_LINK", "udp"),
            ("UROCE_PROVIDER", "software"),
            ("UROCE_PCAP", "/tmp/x.pcapng"),
            ("UROCE_FAULT", "loss=5%,seed=3"),
            ("UROCE_TRACE", "errors, packets"),
            ("UROCE_STRICT", "1"),
            ("UROCE_RECEIVE_BUFFER", "8M"),
            ("UROCE_CONGESTION", "off,rpg_ai_rate=5"),
        ])
        .unwrap();
        let device = environment.device.unwrap();
        assert_eq!((device.interface.as_str(), device.alias.as_deref()), ("lo", Some("mlx5_0")));
        assert_eq!(environment.link, LinkKind::Udp);
        assert_eq!(environment.link.name(), "udp");
        assert_eq!(environment.provider, ProviderKind::Software);
        assert_eq!(environment.capture, Some(PathBuf::from("/tmp/x.pcapng")));
        assert_eq!(environment.fault.unwrap().seed, 3);
        assert_eq!(environment.trace, Trace { errors: true, verbs: false, packets: true });
        assert!(environment.strict);
        assert_eq!(environment.receive_buffer, Some(8 << 20));
        let expected = CongestionOptions { rpg_ai_rate: 5, ..CongestionOptions::off() };
        assert_eq!(environment.congestion, expected);
    }

    #[test]
    fn an_unknown_word_is_an_error_that_names_variable_value_and_what_is_allowed() {
        for (variable, value, allowed) in [
            ("UROCE_DEVICE", "lo=", "interface=name"),
            ("UROCE_LINK", "tcp", "auto, udp, packet, xdp, tap"),
            ("UROCE_PROVIDER", "hard", "auto, software, hardware"),
            ("UROCE_FAULT", "los=5%", "loss=P%"),
            ("UROCE_TRACE", "errors,all", "errors, verbs, packets"),
            ("UROCE_STRICT", "maybe", "yes or no"),
            ("UROCE_RECEIVE_BUFFER", "12", "4096"),
            ("UROCE_RECEIVE_BUFFER", "99999999999G", "4096"),
            ("UROCE_RECEIVE_BUFFER", "K", "4096"),
            ("UROCE_CONGESTION", "slow", "rpg_ai_rate"),
            ("UROCE_CONGESTION", "rpg_threshold=0", "1 to 31"),
        ] {
            let text = read(&[(variable, value)]).unwrap_err().to_string();
            for part in [variable, value, allowed] {
                assert!(text.contains(part), "{text} lacks {part}");
            }
        }
        let error = Environment::from_variables(|name| {
            (name == "UROCE_LINK").then(|| OsStr::from_bytes(b"\xff").to_owned())
        });
        assert!(error.unwrap_err().to_string().contains("UTF-8"));
    }
}
