//! Multicast groups: which datagram queue pairs get a copy of what is sent to a group.
//!
//! A group is a GID of 224.0.0.0/4 (IPv4-mapped) or ff00::/8. Packets to it carry the destination
//! [`Qpn::MULTICAST`], and every attached queue pair whose queue key they carry gets a copy of its
//! own, one that sent the packet included: blocking that is a flag which a queue pair has to ask for
//! (`IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK`), and rxe delivers to all members of the group without
//! looking at the sender. The engine keeps the members; joining on the interface is the link's.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{ControlError, Engine};
use crate::queue::QueuePairKind;
use crate::time::Instant;
use crate::transport::{Arrival, CE, Counter};
use crate::wire::{Headers, PKey, Qpn, ReceivedBurst, Service};

/// Why a queue pair was not attached to a group, or not detached. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The address is no group's.
    #[error("{0} is no multicast group: give an address of 224.0.0.0/4 or ff00::/8")]
    NotAGroup(IpAddr),
    /// We could not send to the group, and nobody could reach it through us.
    #[error("the device has no address of the family of group {0}")]
    NoAddressOfFamily(IpAddr),
    /// Only datagrams go to groups.
    #[error("{kind} queue pair {number} cannot be attached to a multicast group: only UD ones can")]
    NotDatagrams {
        /// The queue pair.
        number: Qpn,
        /// Its transport.
        kind: QueuePairKind,
    },
    /// There is nothing to detach.
    #[error("queue pair {number} is not attached to multicast group {group}")]
    NotAttached {
        /// The queue pair.
        number: Qpn,
        /// The group.
        group: IpAddr,
    },
    /// The queue pair cannot be destroyed yet (C11-17, o10-2.2.3).
    #[error("queue pair {number} is attached to {groups} multicast groups: detach it first")]
    Attached {
        /// The queue pair.
        number: Qpn,
        /// In how many groups it is.
        groups: usize,
    },
}

/// The members of all groups, by the slots of their queue pairs. A group without members is not
/// kept.
#[derive(Debug, Default)]
pub(super) struct GroupTable {
    members: HashMap<IpAddr, Vec<u32>>,
    /// Members of all groups together.
    attachments: u32,
}

impl GroupTable {
    fn contains(&self, group: IpAddr, slot: u32) -> bool {
        self.members.get(&group).is_some_and(|members| members.contains(&slot))
    }

    fn members_of(&self, group: IpAddr) -> usize {
        self.members.get(&group).map_or(0, Vec::len)
    }

    fn groups_of(&self, slot: u32) -> impl Iterator<Item = IpAddr> {
        let groups = self.members.iter();
        groups.filter(move |(_, members)| members.contains(&slot)).map(|(group, _)| *group)
    }
}

impl Engine {
    /// Attaches a datagram queue pair to a group. Being attached twice is being attached once, as
    /// with `ibv_attach_mcast`. An IPv4-mapped address stands for the IPv4 one. Returns whether this
    /// is the group's first member: then the link has to join the group.
    ///
    /// # Errors
    /// There is no such queue pair, [`GroupError`], or a limit of the device.
    pub fn attach_multicast(&mut self, number: Qpn, group: IpAddr) -> Result<bool, ControlError> {
        let (slot, group) = (self.slot_of(number)?, group.to_canonical());
        self.check_group(number, slot, group)?;
        if self.groups.contains(group, slot) {
            return Ok(false);
        }
        self.check_group_limits(group)?;
        let members = self.groups.members.entry(group).or_default();
        members.push(slot);
        self.groups.attachments += 1;
        Ok(members.len() == 1)
    }

    fn check_group(&self, number: Qpn, slot: u32, group: IpAddr) -> Result<(), ControlError> {
        let pair = self.pairs[slot as usize].as_ref().ok_or(ControlError::NoSuchPair(number))?;
        let kind = pair.base.queues.kind();
        if kind != QueuePairKind::Ud {
            return Err(GroupError::NotDatagrams { number, kind }.into());
        }
        if !group.is_multicast() {
            return Err(GroupError::NotAGroup(group).into());
        }
        if !self.options.gids.iter().any(|gid| gid.is_ipv4() == group.is_ipv4()) {
            return Err(GroupError::NoAddressOfFamily(group).into());
        }
        Ok(())
    }

    fn check_group_limits(&self, group: IpAddr) -> Result<(), ControlError> {
        let limits = &self.options.limits;
        let members = self.groups.members_of(group);
        let (groups, each, all) =
            (limits.multicast_groups, limits.multicast_members, limits.multicast_attachments);
        if members == 0 && self.groups.members.len() >= groups as usize {
            return Err(ControlError::Limit { what: "multicast groups", limit: groups });
        }
        if members >= each as usize {
            return Err(ControlError::Limit { what: "queue pairs in one group", limit: each });
        }
        if self.groups.attachments >= all {
            return Err(ControlError::Limit { what: "members of multicast groups", limit: all });
        }
        Ok(())
    }

    /// Detaches a queue pair from a group. Returns whether it was the last member: then the link has
    /// to leave the group.
    ///
    /// # Errors
    /// There is no such queue pair, or it is not attached to the group.
    pub fn detach_multicast(&mut self, number: Qpn, group: IpAddr) -> Result<bool, ControlError> {
        let (slot, group) = (self.slot_of(number)?, group.to_canonical());
        let members = self.groups.members.get_mut(&group);
        let place = members.and_then(|members| {
            let place = members.iter().position(|member| *member == slot)?;
            Some((members, place))
        });
        let Some((members, place)) = place else {
            return Err(GroupError::NotAttached { number, group }.into());
        };
        members.remove(place);
        let last = members.is_empty();
        self.groups.attachments -= 1;
        if last {
            self.groups.members.remove(&group);
        }
        Ok(last)
    }

    /// The groups that a queue pair is attached to, in no particular order.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn multicast_groups_of(&self, number: Qpn) -> Result<Vec<IpAddr>, ControlError> {
        Ok(self.groups.groups_of(self.slot_of(number)?).collect())
    }

    /// A queue pair in a group must not be destroyed.
    pub(super) fn check_detached(&self, number: Qpn, slot: u32) -> Result<(), ControlError> {
        match self.groups.groups_of(slot).count() {
            0 => Ok(()),
            groups => Err(GroupError::Attached { number, groups }.into()),
        }
    }

    /// A packet to a group, whose ICRC is right: every member gets a copy. What a member cannot take
    /// is counted as it would be if the packet had come to it alone. A congestion mark is counted and
    /// not answered: there is no one way to a group that its sender could be slow on.
    pub(super) fn handle_group_packet(
        &mut self,
        now: Instant,
        burst: &ReceivedBurst<'_>,
        headers: &Headers,
        arrival: &Arrival,
        payload: &[u8],
    ) -> Result<(), Counter> {
        if !matches!(headers.service, Service::Ud(_)) {
            return Err(Counter::DropWrongTransport);
        }
        if !PKey::DEFAULT.admits(headers.pkey) {
            return Err(Counter::DropPkeyMismatch);
        }
        let members = self.groups.members.get_mut(&burst.flow.destination);
        // Lent out, so that each member can be given its step; nothing in a step changes groups.
        let lent = members.map(std::mem::take).ok_or(Counter::DropNoGroupMember)?;
        for slot in &lent {
            if let Err(reason) = self.handle_member_copy(now, *slot, headers, arrival, payload) {
                self.count_for(Some(*slot), reason, 1);
            }
        }
        if let Some(members) = self.groups.members.get_mut(&burst.flow.destination) {
            *members = lent;
        }
        Ok(())
    }

    fn handle_member_copy(
        &mut self,
        now: Instant,
        slot: u32,
        headers: &Headers,
        arrival: &Arrival,
        payload: &[u8],
    ) -> Result<(), Counter> {
        self.with_pair(slot, now, |pair, ctx| {
            // The device has got one packet, and counted it.
            ctx.own_counters.add(Counter::ReceivedPackets, 1);
            ctx.own_counters.add(Counter::ReceivedBytes, arrival.length as u64);
            if arrival.traffic_class & CE == CE {
                ctx.own_counters.add(Counter::ReceivedCongestionMark, 1);
            }
            if !pair.state().receives() {
                return Err(Counter::DropWrongState);
            }
            pair.handle_request(ctx, headers, arrival, payload);
            Ok(())
        })
        .unwrap_or(Err(Counter::DropUnknownQueuePair))
    }
}
