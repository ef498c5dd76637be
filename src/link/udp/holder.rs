//! Who keeps the RoCE port from us, so that the error can say it.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Who holds a UDP port that we cannot share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortHolder {
    /// The kernel's own RoCE driver, with these devices.
    KernelRxe(Vec<String>),
    /// A process of the user with this id.
    User(u32),
    /// Nobody that this process can see.
    Unknown,
}

impl PortHolder {
    /// Looks for the holder of `port` on `address` or on all addresses, which must have one.
    pub(super) fn find(address: IpAddr, port: u16) -> Self {
        let devices = rxe_devices();
        if port == crate::wire::ROCE_PORT && !devices.is_empty() {
            return Self::KernelRxe(devices);
        }
        user_on(address, port).map_or(Self::Unknown, Self::User)
    }

    /// Looks who holds `port` on `address` or on all addresses, from the kernel's tables, without
    /// opening anything; nothing if nobody does.
    pub fn look(address: IpAddr, port: u16) -> Option<Self> {
        let user = user_on(address, port)?;
        let devices = rxe_devices();
        // The driver's socket counts as root's.
        let is_rxe = port == crate::wire::ROCE_PORT && user == 0 && !devices.is_empty();
        Some(if is_rxe { Self::KernelRxe(devices) } else { Self::User(user) })
    }
}

impl fmt::Display for PortHolder {
    /// The holder and what to do about it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KernelRxe(devices) => write!(
                f,
                "the kernel's rxe driver ({}); remove the device with `rdma link delete`, or use \
                 another network namespace",
                devices.join(", ")
            ),
            Self::User(user) => write!(
                f,
                "a process of user id {user} that does not share it; stop that one (`ss -uanp` \
                 lists it), or use another address (on lo any of 127.0.0.0/8) or another network \
                 namespace"
            ),
            Self::Unknown => write!(
                f,
                "something that this process cannot see; use another address or network namespace"
            ),
        }
    }
}

/// The user of a socket on `port` of `address` or of all addresses.
fn user_on(address: IpAddr, port: u16) -> Option<u32> {
    let tables = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
    let tables = tables.iter().filter_map(|table| fs::read_to_string(table).ok());
    tables.into_iter().find_map(|table| user_of(&table, address, port))
}

/// RDMA devices that sit on a network interface: only software drivers tell their `parent`.
fn rxe_devices() -> Vec<String> {
    let Ok(devices) = fs::read_dir("/sys/class/infiniband") else { return Vec::new() };
    let mut names: Vec<String> = devices
        .flatten()
        .filter(|device| device.path().join("parent").exists())
        .map(|device| device.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The user of the first socket in a /proc/net/udp table that is bound to the port on `address`
/// or on all addresses.
fn user_of(table: &str, address: IpAddr, port: u16) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (bound, bound_port) = parse_local(fields.nth(1)?)?;
        // After the local address: remote, state, queues, timer, retransmits.
        let user = fields.nth(5)?.parse().ok()?;
        (bound_port == port && (bound.is_unspecified() || bound == address)).then_some(user)
    })
}

/// Reads `0100007F:12B7`: words of the address as the processor stores them, then the port.
fn parse_local(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |index: usize| {
        let digits = address.get(8 * index..8 * index + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let address = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (index, place) in bytes.chunks_mut(4).enumerate() {
                place.copy_from_slice(&word(index)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some((address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 8311: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 50607 2 000000000 0
 8312: 00000000:12B8 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 50608 2 000000000 0
";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_user_of_a_bound_port_is_found() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(user_of(TABLE, loopback, 4791), Some(1000));
        assert_eq!(user_of(TABLE, IpAddr::from([127, 0, 0, 2]), 4791), None);
        assert_eq!(user_of(TABLE, loopback, 4792), Some(0), "a wildcard holds every address");
        assert_eq!(user_of("garbage\n1: zz:zz\n", loopback, 4791), None);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn an_ipv6_address_is_read_word_by_word() {
        let parsed = parse_local("00000000000000000000000001000000:12B7");
        assert_eq!(parsed, Some((Ipv6Addr::LOCALHOST.into(), 4791)));
    }
}
