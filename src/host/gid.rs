//! Global identifiers: what RDMA calls an address. On RoCEv2 every GID is an IP address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A global identifier, 16 bytes in network order. An IPv4 address is written as an IPv4-mapped
/// IPv6 one: `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid([u8; 16]);

impl Gid {
    /// The identifier that these bytes, in network order, are.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes in network order.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Whether all bytes are zero: an empty place in a table.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// The IP address; an IPv4-mapped one comes out as IPv4.
    pub fn address(self) -> IpAddr {
        let address = Ipv6Addr::from(self.0);
        address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        address.to_ipv6_mapped().into()
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl fmt::Display for Gid {
    /// As the verbs tools print it: `0000:0000:0000:0000:0000:ffff:0a4d:0001`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in self.0.chunks(2).enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(f, "{separator}{:02x}{:02x}", group[0], group[1])?;
        }
        Ok(())
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({})", self.address())
    }
}

impl fmt::LowerHex for Gid {
    /// 32 hexadecimal digits, as the pingpong programs send them to each other.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is no GID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no GID: expected 32 hexadecimal digits, eight groups of four with colons, or an \
     IP address"
)]
pub struct GidParseError {
    text: String,
}

impl FromStr for Gid {
    type Err = GidParseError;

    /// Reads 32 hexadecimal digits, the printed form, or any IP address.
    fn from_str(text: &str) -> Result<Self, GidParseError> {
        let digits = || {
            let is_digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            let value = u128::from_str_radix(text, 16).ok()?;
            is_digits.then_some(Self(value.to_be_bytes()))
        };
        let address = || text.parse::<IpAddr>().ok().map(Self::from);
        digits().or_else(address).ok_or_else(|| GidParseError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_is_mapped_and_comes_back() {
        let address = IpAddr::from([10, 77, 0, 1]);
        let gid = Gid::from(address);
        assert_eq!(gid.to_string(), "0000:0000:0000:0000:0000:ffff:0a4d:0001");
        assert_eq!(format!("{gid:x}"), "00000000000000000000ffff0a4d0001");
        assert_eq!(gid.address(), address);
        assert_eq!(Gid::from_bytes(gid.to_bytes()), gid);
    }

    #[test]
    fn an_ipv6_address_stays_itself() {
        let address: IpAddr = "fe80::0211:22ff:fe33:4455".parse().unwrap();
        assert_eq!(Gid::from(address).to_string(), "fe80:0000:0000:0000:0211:22ff:fe33:4455");
        assert_eq!(Gid::from(address).address(), address);
        assert!(Gid::from(IpAddr::from([0u16; 8])).is_zero());
    }

    #[test]
    fn every_printed_form_is_read() {
        let gid = Gid::from(IpAddr::from([10, 77, 0, 1]));
        for text in [
            "00000000000000000000ffff0a4d0001",
            "00000000000000000000FFFF0A4D0001",
            "0000:0000:0000:0000:0000:ffff:0a4d:0001",
            "::ffff:10.77.0.1",
            "10.77.0.1",
        ] {
            assert_eq!(text.parse(), Ok(gid), "{text}");
        }
        for text in
            ["", "0000", "00000000000000000000ffff0a4d000g", "+0000000000000000000ffff0a4d0001"]
        {
            assert!(text.parse::<Gid>().unwrap_err().to_string().contains("32 hex"), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_gid_comes_back_from_each_of_its_forms(bytes: [u8; 16], v4: [u8; 4], is_v4: bool) {
            let bytes = if is_v4 { Ipv4Addr::from(v4).to_ipv6_mapped().octets() } else { bytes };
            let gid = Gid::from_bytes(bytes);
            proptest::prop_assert_eq!(gid.to_bytes(), bytes);
            proptest::prop_assert_eq!(Gid::from(gid.address()), gid);
            let forms = [
                gid.to_string(),
                format!("{gid:x}"),
                format!("{gid:x}").to_uppercase(),
                gid.address().to_string(),
                Ipv6Addr::from(bytes).to_string(),
            ];
            for form in forms {
                proptest::prop_assert_eq!(form.parse(), Ok(gid), "{}", form);
                for end in 0..form.len() {
                    // A part may be another address, but is never this one's 32 digits.
                    let part = form[..end].parse::<Gid>();
                    proptest::prop_assert!(form.contains([':', '.']) || part.is_err());
                }
            }
        }

        #[test]
        fn what_is_read_is_read_again_from_what_is_printed(text in "[0-9a-fA-F:.+ gé]{0,40}") {
            if let Ok(gid) = text.parse::<Gid>() {
                proptest::prop_assert_eq!(gid.to_string().parse(), Ok(gid));
            }
        }
    }
}
