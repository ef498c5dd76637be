//! Values of attributes: which are possible on a device, and how they are taken over.

use std::net::IpAddr;

use super::table::ModifyError;
use crate::queue::{AddressVector, Attribute, PathMtu, QueuePairAttributes};
use crate::wire::Qpn;

/// What a queue pair has to know of its device.
pub(crate) struct Device<'a> {
    /// Own addresses.
    pub(crate) gids: &'a [IpAddr],
    /// Bytes of the largest IP packet.
    pub(crate) mtu: usize,
    /// READs and atomics under way at most.
    pub(crate) rd_atomic: u8,
    /// Source ports to choose from; empty if any from 0xc000 up will do.
    pub(crate) source_ports: &'a [u16],
}

impl Device<'_> {
    /// A source port, constant for a connection: entropy for the network (RoCEv2, annex A17).
    /// Numbers of both ends often count up together, which must not cancel out.
    pub(crate) fn source_port(&self, own: Qpn, other: Qpn) -> u16 {
        let own = own.value().wrapping_mul(0x9e37_79b1);
        let other = other.value().wrapping_mul(0x85eb_ca6b);
        let mixed = own.wrapping_add(other) >> 16;
        match self.source_ports {
            [] => 0xc000 | (mixed as u16 & 0x3fff),
            ports => ports[mixed as usize % ports.len()],
        }
    }

    /// Whether an address can be reached from our address of its index.
    pub(crate) fn check_address(&self, address: &AddressVector) -> Result<(), ModifyError> {
        let (index, peer) = (address.gid_index, address.destination);
        let own = self
            .gids
            .get(usize::from(index))
            .ok_or(ModifyError::NoSuchGid { index, count: self.gids.len() })?;
        if peer.is_unspecified() {
            return Err(ModifyError::NotAPeer(peer));
        }
        if own.is_ipv4() == peer.is_ipv4() {
            Ok(())
        } else {
            Err(ModifyError::AddressFamily { index, own: *own, peer })
        }
    }
}

/// Checks each value that is given.
pub(crate) fn check_values(
    device: &Device<'_>,
    attributes: &QueuePairAttributes,
) -> Result<(), ModifyError> {
    let at_most = |attribute, value: Option<u8>, limit: u8, allowed| match value {
        Some(value) if value > limit => {
            Err(ModifyError::Value { attribute, value: value.into(), allowed })
        }
        _ => Ok(()),
    };
    at_most(Attribute::Timeout, attributes.timeout, 31, "0 to 31")?;
    at_most(Attribute::RetryCount, attributes.retry_count, 7, "0 to 7")?;
    at_most(Attribute::RnrRetry, attributes.rnr_retry, 7, "0 to 7")?;
    at_most(Attribute::MinRnrTimer, attributes.min_rnr_timer, 31, "0 to 31")?;
    only(Attribute::Port, attributes.port.map(u64::from), 1, "1, the only port")?;
    let pkey = attributes.pkey_index.map(u64::from);
    only(Attribute::PkeyIndex, pkey, 0, "0, the only partition key")?;
    within(Attribute::MaxRdAtomic, attributes.max_rd_atomic, device.rd_atomic)?;
    let served = attributes.max_destination_rd_atomic;
    within(Attribute::MaxDestinationRdAtomic, served, device.rd_atomic)?;
    attributes.address.as_ref().map_or(Ok(()), |address| check_peer(device, address))?;
    attributes.path_mtu.map_or(Ok(()), |path_mtu| check_path_mtu(device, path_mtu))
}

/// A connection has one peer, so a group's address is none.
fn check_peer(device: &Device<'_>, address: &AddressVector) -> Result<(), ModifyError> {
    let peer = address.destination;
    let broadcast = matches!(peer, IpAddr::V4(peer) if peer.is_broadcast());
    if peer.is_multicast() || broadcast {
        return Err(ModifyError::NotAPeer(peer));
    }
    device.check_address(address)
}

fn only(
    attribute: Attribute,
    value: Option<u64>,
    right: u64,
    allowed: &'static str,
) -> Result<(), ModifyError> {
    match value {
        Some(value) if value != right => Err(ModifyError::Value { attribute, value, allowed }),
        _ => Ok(()),
    }
}

fn within(attribute: Attribute, value: Option<u8>, limit: u8) -> Result<(), ModifyError> {
    match value {
        Some(value) if value > limit => {
            Err(ModifyError::OverLimit { attribute, value: value.into(), limit: limit.into() })
        }
        _ => Ok(()),
    }
}

fn check_path_mtu(device: &Device<'_>, path_mtu: PathMtu) -> Result<(), ModifyError> {
    let largest = PathMtu::largest_within(device.mtu);
    if path_mtu <= largest {
        return Ok(());
    }
    Err(ModifyError::PathMtuTooLarge {
        path: path_mtu.bytes(),
        interface: device.mtu,
        largest: largest.bytes(),
    })
}

/// Takes over what is given; the state is no attribute of this kind.
pub(crate) fn merge(into: &mut QueuePairAttributes, given: &QueuePairAttributes) {
    *into = QueuePairAttributes {
        state: None,
        current_state: None,
        drain_notification: given.drain_notification.or(into.drain_notification),
        access: given.access.or(into.access),
        pkey_index: given.pkey_index.or(into.pkey_index),
        port: given.port.or(into.port),
        qkey: given.qkey.or(into.qkey),
        address: given.address.or(into.address),
        path_mtu: given.path_mtu.or(into.path_mtu),
        timeout: given.timeout.or(into.timeout),
        retry_count: given.retry_count.or(into.retry_count),
        rnr_retry: given.rnr_retry.or(into.rnr_retry),
        receive_psn: given.receive_psn.or(into.receive_psn),
        max_rd_atomic: given.max_rd_atomic.or(into.max_rd_atomic),
        alternate_path: None,
        min_rnr_timer: given.min_rnr_timer.or(into.min_rnr_timer),
        send_psn: given.send_psn.or(into.send_psn),
        max_destination_rd_atomic: given
            .max_destination_rd_atomic
            .or(into.max_destination_rd_atomic),
        path_migration_state: None,
        destination: given.destination.or(into.destination),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_no_address_at_all_are_no_peers() {
        let gids = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let device = Device { gids: &gids, mtu: 9000, rd_atomic: 16, source_ports: &[] };
        for (index, peer) in
            [(0, "0.0.0.0"), (0, "224.0.0.9"), (0, "255.255.255.255"), (1, "::"), (1, "ff02::1")]
        {
            let address = AddressVector::new(index, peer.parse().unwrap());
            let refused = Err(ModifyError::NotAPeer(address.destination));
            assert_eq!(check_peer(&device, &address), refused);
        }
        let host = AddressVector::new(0, "10.0.0.2".parse().unwrap());
        assert_eq!(check_peer(&device, &host), Ok(()));
        // Datagrams do go to groups.
        let group = AddressVector::new(0, "224.0.0.9".parse().unwrap());
        assert_eq!(device.check_address(&group), Ok(()));
    }
}
