//! Network interfaces in the order in which devices are listed, and the GIDs that each has.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use pnet_datalink::NetworkInterface;

use super::Gid;
use super::mtu::mtu_of;
use super::route::default_interface;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, such as `lo`.
    pub name: String,
    /// The kernel's number for it, at least 1.
    pub index: u32,
    /// Ethernet address, if it has one; that of `lo` is zero.
    pub mac: Option<[u8; 6]>,
    /// Addresses, the most useful first: routable IPv4, other IPv4, routable IPv6, link-local.
    pub addresses: Vec<IpAddr>,
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    /// Whether the administrator has switched it on.
    pub is_up: bool,
    /// Whether it has a carrier.
    pub is_running: bool,
    /// Whether it is the loopback interface.
    pub is_loopback: bool,
    /// Whether the default route uses it.
    pub has_default_route: bool,
}

impl Interface {
    /// The GID table: one entry for each address and nothing else, the routable IPv4-mapped one at
    /// index 0.
    pub fn gids(&self) -> Vec<Gid> {
        self.addresses.iter().map(|address| Gid::from(*address)).collect()
    }

    /// Whether the host receives packets to `address` on this interface. On loopback that is any
    /// address of 127.0.0.0/8, listed or not.
    pub fn has(&self, address: IpAddr) -> bool {
        let is_loopback = matches!(address, IpAddr::V4(address) if address.is_loopback());
        self.addresses.contains(&address) || (self.is_loopback && is_loopback)
    }
}

/// All interfaces: that of the default route, the others as the kernel numbers them, loopback
/// last. Empty if the kernel does not tell.
pub fn interfaces() -> Vec<Interface> {
    let default = default_interface();
    let mut found: Vec<Interface> = Vec::new();
    for part in pnet_datalink::interfaces() {
        // An IPv4 address with a label comes under the name `eth0:label`.
        let name = part.name.split(':').next().unwrap_or_default();
        match found.iter_mut().find(|interface| interface.name == name) {
            Some(interface) => interface.addresses.extend(part.ips.iter().map(|ip| ip.ip())),
            None => found.extend(interface(&part, name, default.as_deref())),
        }
    }
    for interface in &mut found {
        // One with two prefix lengths is listed twice.
        let mut seen = HashSet::new();
        interface.addresses.retain(|address| seen.insert(*address));
        interface.addresses.sort_by_key(|address| rank(*address));
    }
    found.sort_by_key(place);
    found
}

/// The interface of that name.
pub fn interface_named(name: &str) -> Option<Interface> {
    interfaces().into_iter().find(|interface| interface.name == name)
}

/// The interface that has an address, see [`Interface::has`].
pub fn interface_of(address: IpAddr) -> Option<Interface> {
    interfaces().into_iter().find(|interface| interface.has(address))
}

/// Nothing if the interface has gone in the meantime.
fn interface(part: &NetworkInterface, name: &str, default: Option<&str>) -> Option<Interface> {
    Some(Interface {
        name: name.to_owned(),
        index: part.index,
        mac: part.mac.map(|mac| mac.octets()),
        addresses: part.ips.iter().map(|network| network.ip()).collect(),
        mtu: mtu_of(name).ok()?,
        is_up: part.is_up(),
        is_running: part.is_running(),
        is_loopback: part.is_loopback(),
        has_default_route: default == Some(name),
    })
}

/// Where an interface stands in the list.
fn place(interface: &Interface) -> (bool, bool, u32) {
    (interface.is_loopback, !interface.has_default_route, interface.index)
}

/// How useful an address is for reaching peers; the smallest is the most useful.
fn rank(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) if is_routable(address) => 0,
        IpAddr::V4(_) => 1,
        IpAddr::V6(address) if address.is_unicast_link_local() => 3,
        IpAddr::V6(_) => 2,
    }
}

fn is_routable(address: Ipv4Addr) -> bool {
    !address.is_link_local() && !address.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(name: &str, index: u32, addresses: &[&str]) -> Interface {
        Interface {
            name: name.to_owned(),
            index,
            mac: None,
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            mtu: 1500,
            is_up: true,
            is_running: true,
            is_loopback: name == "lo",
            has_default_route: name == "up7",
        }
    }

    #[test]
    fn the_default_route_comes_first_and_loopback_last() {
        let mut all =
            [("lo", 1), ("b7", 3), ("a7", 4), ("up7", 9)].map(|(name, i)| example(name, i, &[]));
        all.sort_by_key(place);
        assert_eq!(all.map(|interface| interface.name), ["up7", "b7", "a7", "lo"]);
    }

    #[test]
    fn the_first_gid_is_the_routable_ipv4_one() {
        let mut interface =
            example("a7", 2, &["fe80::1", "2001:db8::1", "169.254.1.1", "10.77.0.1"]);
        interface.addresses.sort_by_key(|address| rank(*address));
        let gids: Vec<String> = interface.gids().iter().map(Gid::to_string).collect();
        assert_eq!(
            gids,
            [
                "0000:0000:0000:0000:0000:ffff:0a4d:0001",
                "0000:0000:0000:0000:0000:ffff:a9fe:0101",
                "2001:0db8:0000:0000:0000:0000:0000:0001",
                "fe80:0000:0000:0000:0000:0000:0000:0001",
            ]
        );
    }

    #[test]
    fn only_loopback_has_addresses_that_it_does_not_list() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let loopback = example("lo", 1, &["127.0.0.1", "::1"]);
        assert!(loopback.has(address("127.9.8.7")) && loopback.has(address("::1")));
        assert!(!loopback.has(address("10.0.0.1")) && !loopback.has(address("::2")));
        let other = example("a7", 2, &["10.0.0.1"]);
        assert!(other.has(address("10.0.0.1")) && !other.has(address("127.0.0.1")));
    }

    #[test]
    fn this_host_has_a_loopback_interface_at_the_end_of_its_list() {
        let all = interfaces();
        let loopback = all.last().unwrap();
        assert_eq!((loopback.name.as_str(), loopback.is_loopback), ("lo", true));
        assert!(loopback.mtu >= 1280 && loopback.index >= 1);
        assert!(loopback.gids().contains(&Gid::from(IpAddr::from([127, 0, 0, 1]))));
        assert_eq!(interface_of(IpAddr::from([127, 47, 0, 9])).as_ref(), Some(loopback));
        assert_eq!(interface_named("lo").as_ref(), Some(loopback));
        assert!(all.iter().filter(|interface| interface.has_default_route).count() <= 1);
        assert!(interface_named("absent0").is_none());
    }
}
