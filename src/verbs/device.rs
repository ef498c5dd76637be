//! The devices of a host: its network interfaces.

use super::{Context, VerbsError};
use crate::host::{Gid, Interface, interfaces};
use crate::queue::PathMtu;
use crate::software::{Device, DeviceOptions};

/// State of a device's one port, which is that of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// Up, with a carrier.
    Active,
    /// Up, without a carrier.
    Down,
    /// Not up.
    Disabled,
}

impl PortState {
    /// That of an interface.
    pub fn of(interface: &Interface) -> Self {
        match (interface.is_up, interface.is_running) {
            (true, true) => Self::Active,
            (true, false) => Self::Down,
            (false, _) => Self::Disabled,
        }
    }
}

impl std::fmt::Display for PortState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Down => "down (no carrier)",
            Self::Disabled => "disabled (interface is not up)",
        })
    }
}

/// A device: a network interface that has addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The device's name, usually the interface's.
    pub name: String,
    /// The network interface.
    pub interface: String,
    /// Its addresses, by GID index: the routable IPv4 one first.
    pub gids: Vec<Gid>,
    /// Bytes of its largest IP packet.
    pub mtu: usize,
    /// The largest path MTU whose packets fit.
    pub path_mtu: PathMtu,
    /// State of its port.
    pub state: PortState,
    /// Whether it is the loopback interface.
    pub is_loopback: bool,
}

impl DeviceInfo {
    /// What an interface is as a device.
    pub fn of_interface(interface: &Interface) -> Self {
        Self {
            name: interface.name.clone(),
            interface: interface.name.clone(),
            gids: interface.gids(),
            mtu: interface.mtu,
            path_mtu: PathMtu::largest_within(interface.mtu),
            state: PortState::of(interface),
            is_loopback: interface.is_loopback,
        }
    }

    pub(super) fn of_device(device: &Device) -> Self {
        let gids = device.addresses().iter().copied().map(Gid::from).collect();
        let name = device.name().to_owned();
        match device.interface() {
            Some(interface) => Self { name, gids, ..Self::of_interface(interface) },
            None => Self {
                interface: name.clone(),
                name,
                gids,
                mtu: device.mtu(),
                path_mtu: PathMtu::largest_within(device.mtu()),
                state: PortState::Active,
                is_loopback: false,
            },
        }
    }

    /// Opens the device, with a background thread and nothing special.
    ///
    /// # Errors
    /// As [`Context::open`].
    pub fn open(&self) -> Result<Context, VerbsError> {
        open(&self.interface)
    }
}

/// The host's devices: the interface of the default route first, loopback last. Interfaces without
/// an address are none.
pub fn devices() -> Vec<DeviceInfo> {
    let all = interfaces().iter().map(DeviceInfo::of_interface).collect::<Vec<_>>();
    all.into_iter().filter(|device| !device.gids.is_empty()).collect()
}

/// Opens the device of a network interface, such as `lo`.
///
/// # Errors
/// As [`Context::open`].
pub fn open(interface: &str) -> Result<Context, VerbsError> {
    Context::open(&DeviceOptions::on(interface))
}
