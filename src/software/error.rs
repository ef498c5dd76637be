//! Why a software device cannot be opened.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use super::slots::SlotError;
use crate::link::UdpError;

/// Why a software device cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No interface has the name.
    #[error("there is no network interface {name}; there are: {}", .available.join(", "))]
    NoInterface {
        /// The name asked for.
        name: String,
        /// Names of the interfaces that there are.
        available: Vec<String>,
    },
    /// No interface has the address.
    #[error("{address} is not an address of this host; `ip address` lists those that are")]
    NotHere {
        /// The address asked for.
        address: IpAddr,
    },
    /// No interface has an address.
    #[error("no network interface has an address; `ip link set lo up` gives at least loopback")]
    NoInterfaces,
    /// The interface is switched off.
    #[error("network interface {name} is down; `ip link set {name} up` switches it on")]
    Down {
        /// The interface.
        name: String,
    },
    /// The interface has no address.
    #[error("network interface {name} has no IP address, so the device would have no GID")]
    NoAddress {
        /// The interface.
        name: String,
    },
    /// The interface does not have an address that was asked for.
    #[error("network interface {name} does not have the address {address}")]
    ForeignAddress {
        /// The interface.
        name: String,
        /// The address asked for.
        address: IpAddr,
    },
    /// The interface's packets are too small for RoCE.
    #[error("network interface {name} has an MTU of {mtu}; RoCE needs at least 320")]
    SmallMtu {
        /// The interface.
        name: String,
        /// Bytes of its largest IP packet.
        mtu: usize,
    },
    /// This kind of link does not exist in this build.
    #[error("link `{0}` is not available; use `udp`")]
    NoLink(&'static str),
    /// Such devices do not exist in this build.
    #[error("provider `{0}` is not available; use `software`")]
    NoProvider(&'static str),
    /// The sockets could not be opened.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// No place among the processes that share the address.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The capture file cannot be written.
    #[error("cannot write the capture {}: {error}", .path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        #[source]
        error: io::Error,
    },
    /// An environment variable's value makes no sense.
    #[error(transparent)]
    Environment(#[from] super::EnvironmentError),
    /// The kernel refused something that every kernel in use offers.
    #[error("cannot set up a device: {0}")]
    System(#[from] io::Error),
}
