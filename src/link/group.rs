//! Joining a multicast group on the network, and why that can fail.

use std::io;
use std::net::IpAddr;

/// Why a link does not receive what is sent to a group. It goes on as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The link's own address is of the other family.
    #[error(
        "multicast group {group} cannot be joined from {address}, an address of the other family"
    )]
    Family {
        /// The group asked for.
        group: IpAddr,
        /// The link's address.
        address: IpAddr,
    },
    /// Nothing that is sent to the group would leave, so nobody here could be reached either.
    #[error(
        "the interface of {address} has no route to multicast group {group}; Linux gives none to \
         loopback interfaces for IPv6: `ip -6 route add local ff00::/8 dev lo` adds it"
    )]
    NoRoute {
        /// The group asked for.
        group: IpAddr,
        /// The link's address.
        address: IpAddr,
    },
    /// Somebody receives on the port of the group and does not share it.
    #[error(
        "UDP port {port} of multicast group {group} is held by a program that does not share it; \
         `ss -uanp` lists it"
    )]
    PortHeld {
        /// The group asked for.
        group: IpAddr,
        /// The port.
        port: u16,
    },
    /// The kernel refused something, such as one more descriptor.
    #[error("cannot receive from multicast group {group}: {error}")]
    System {
        /// The group asked for.
        group: IpAddr,
        /// The kernel's answer.
        #[source]
        error: io::Error,
    },
}
