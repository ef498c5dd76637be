//! How a device is to be opened, and which interface and addresses that means.

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use super::environment::{Environment, LinkKind, ProviderKind, Trace};
use super::error::OpenError;
use super::variables::unknown_variables;
use crate::engine::{CongestionOptions, Limits};
use crate::fault::FaultPlan;
use crate::host::{self, Interface};

/// The smallest MTU that carries RoCE's smallest packets: 256 bytes of payload with all headers.
const LEAST_MTU: usize = 256 + 64;

/// Who runs the engine's turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drive {
    /// The application's calls, and a thread of the device while none comes.
    #[default]
    Thread,
    /// The application's calls alone: nothing happens between them, also not for other devices on
    /// the same address whose packets have arrived here. Without threads nobody watches the
    /// interface for events or answers `uroce counters` either.
    Caller,
}

/// How to open a [`super::Device`]. The default is every address of the first interface.
#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    /// The network interface; without one that of the first of `addresses`, or else the first with
    /// an address: that of the default route, another one, loopback.
    pub interface: Option<String>,
    /// The device's name; without one the interface's.
    pub name: Option<String>,
    /// Addresses of the interface to use, in the order of GID indexes; empty for all.
    pub addresses: Vec<IpAddr>,
    /// What carries the packets.
    pub link: LinkKind,
    /// Who runs the turns.
    pub drive: Drive,
    /// The most of each thing.
    pub limits: Limits,
    /// File to record every frame in, as pcapng.
    pub capture: Option<PathBuf>,
    /// What shall go wrong.
    pub fault: Option<FaultPlan>,
    /// Whether packets are dropped whose IPv4 identification can only be recovered.
    pub strict: bool,
    /// Whether peers are told how many receives a queue pair has posted, and send no more.
    pub finite_credits: bool,
    /// Bytes of socket receive buffer for each address; without, the link's own choice.
    pub receive_buffer: Option<usize>,
    /// Congestion control; on by default.
    pub congestion: CongestionOptions,
    /// Where all randomness comes from; without, the system.
    pub seed: Option<u64>,
    /// What is told in words on standard error.
    pub trace: Trace,
    /// Leaves the sorting of arrivals among processes to forwarding. For tests: it is slower.
    pub without_steering: bool,
}

impl DeviceOptions {
    /// The options that the environment asks for; the rest is as by default.
    ///
    /// # Errors
    /// [`OpenError::Environment`] for a value that makes no sense, [`OpenError::NoProvider`] for
    /// hardware.
    pub fn from_environment() -> Result<Self, OpenError> {
        warn_of_unknown_variables();
        let environment = Environment::read()?;
        match environment.provider {
            ProviderKind::Auto | ProviderKind::Software => Ok(Self::from(&environment)),
            ProviderKind::Hardware => Err(OpenError::NoProvider("hardware")),
        }
    }

    /// The options of this interface, otherwise the default.
    pub fn on(interface: &str) -> Self {
        Self { interface: Some(interface.to_owned()), ..Self::default() }
    }

    /// Whether there is an interface with these addresses that a device can be on. Opens nothing,
    /// so it does not know whether the port can be had.
    ///
    /// # Errors
    /// The error that opening a device would give.
    pub fn check(&self) -> Result<(), OpenError> {
        place(self).map(drop)
    }

    /// The options of this one address, otherwise the default.
    pub fn at(address: IpAddr) -> Self {
        Self { addresses: vec![address], ..Self::default() }
    }
}

impl From<&Environment> for DeviceOptions {
    fn from(environment: &Environment) -> Self {
        let device = environment.device.clone();
        let (interface, name) = device.map_or((None, None), |d| (Some(d.interface), d.alias));
        Self {
            interface,
            name,
            link: environment.link,
            capture: environment.capture.clone(),
            fault: environment.fault.clone(),
            strict: environment.strict,
            receive_buffer: environment.receive_buffer,
            trace: environment.trace,
            congestion: environment.congestion,
            ..Self::default()
        }
    }
}

/// A variable with a misspelt name would have no effect without a word. Said once in a process.
fn warn_of_unknown_variables() {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for sentence in unknown_variables(names) {
            // Who has no standard error gets no warning, and nothing worse.
            let _ = writeln!(std::io::stderr().lock(), "uroce: {sentence}");
        }
    });
}

/// An interface and the addresses of it that a device uses.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) interface: Interface,
    pub(super) addresses: Vec<IpAddr>,
}

/// Where a device with these options is.
///
/// # Errors
/// [`OpenError`] that names what is not there.
pub(super) fn place(options: &DeviceOptions) -> Result<Place, OpenError> {
    place_among(options, host::interfaces())
}

fn place_among(options: &DeviceOptions, interfaces: Vec<Interface>) -> Result<Place, OpenError> {
    let interface = choose(options, interfaces)?;
    let name = interface.name.clone();
    if !interface.is_up {
        return Err(OpenError::Down { name });
    }
    if interface.mtu < LEAST_MTU {
        return Err(OpenError::SmallMtu { name, mtu: interface.mtu });
    }
    let foreign = options.addresses.iter().find(|address| !interface.has(**address));
    if let Some(address) = foreign {
        return Err(OpenError::ForeignAddress { name, address: *address });
    }
    let addresses = if options.addresses.is_empty() {
        interface.addresses.clone()
    } else {
        options.addresses.clone()
    };
    if addresses.is_empty() {
        return Err(OpenError::NoAddress { name });
    }
    Ok(Place { interface, addresses })
}

fn choose(options: &DeviceOptions, interfaces: Vec<Interface>) -> Result<Interface, OpenError> {
    let available = || interfaces.iter().map(|interface| interface.name.clone()).collect();
    match (&options.interface, options.addresses.first()) {
        (Some(name), _) => {
            let missing = OpenError::NoInterface { name: name.clone(), available: available() };
            interfaces.into_iter().find(|interface| interface.name == *name).ok_or(missing)
        }
        (None, Some(address)) => {
            let missing = OpenError::NotHere { address: *address };
            interfaces.into_iter().find(|interface| interface.has(*address)).ok_or(missing)
        }
        (None, None) => interfaces
            .into_iter()
            .find(|interface| interface.is_up && !interface.addresses.is_empty())
            .ok_or(OpenError::NoInterfaces),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, addresses: &[&str], is_up: bool) -> Interface {
        Interface {
            name: name.to_owned(),
            index: 1,
            mac: None,
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            mtu: 1500,
            is_up,
            is_running: is_up,
            is_loopback: name == "lo",
            has_default_route: false,
        }
    }

    fn host() -> Vec<Interface> {
        vec![
            interface("down7", &["10.7.0.1"], false),
            interface("bare7", &[], true),
            interface("a7", &["10.8.0.1", "fe80::1"], true),
            interface("lo", &["127.0.0.1", "::1"], true),
        ]
    }

    fn at(name: Option<&str>, addresses: &[&str]) -> Result<(String, Vec<String>), String> {
        let options = DeviceOptions {
            interface: name.map(str::to_owned),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            ..DeviceOptions::default()
        };
        let place = place_among(&options, host()).map_err(|error| error.to_string())?;
        let addresses = place.addresses.iter().map(IpAddr::to_string).collect();
        Ok((place.interface.name, addresses))
    }

    fn found(name: &str, addresses: &[&str]) -> Result<(String, Vec<String>), String> {
        Ok((name.to_owned(), addresses.iter().map(|text| (*text).to_owned()).collect()))
    }

    #[test]
    fn the_first_interface_with_an_address_is_used_unless_another_is_named() {
        assert_eq!(at(None, &[]), found("a7", &["10.8.0.1", "fe80::1"]));
        assert_eq!(at(Some("lo"), &[]), found("lo", &["127.0.0.1", "::1"]));
        assert_eq!(at(Some("lo"), &["127.3.2.1"]), found("lo", &["127.3.2.1"]));
        assert_eq!(at(None, &["127.0.0.9", "::1"]), found("lo", &["127.0.0.9", "::1"]));
        assert_eq!(at(None, &["fe80::1"]), found("a7", &["fe80::1"]));
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (name, addresses, parts) in [
            (Some("b7"), &[][..], &["b7", "a7, lo"][..]),
            (Some("down7"), &[], &["down7", "is down"]),
            (Some("bare7"), &[], &["bare7", "no IP address"]),
            (Some("lo"), &["127.0.0.1", "10.8.0.1"], &["lo", "10.8.0.1"]),
            (None, &["10.9.9.9"], &["10.9.9.9"]),
        ] {
            let text = at(name, addresses).unwrap_err();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }

    #[test]
    fn the_environment_fills_the_options() {
        let environment = Environment::from_variables(|name| match name {
            "UROCE_DEVICE" => Some("lo=mlx5_0".into()),
            "UROCE_STRICT" => Some("1".into()),
            "UROCE_FAULT" => Some("loss=1%".into()),
            _ => None,
        });
        let options = DeviceOptions::from(&environment.unwrap());
        assert_eq!(options.interface.as_deref(), Some("lo"));
        assert_eq!(options.name.as_deref(), Some("mlx5_0"));
        assert!(options.strict && options.fault.is_some() && options.capture.is_none());
    }
}
