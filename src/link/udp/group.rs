//! Receiving what is sent to multicast groups.
//!
//! ```text
//!   datagram to group:4791 ─▶ kernel ─▶ every socket bound to the group that has joined it on the
//!                                       interface: one of each process, of whatever user
//! ```
//!
//! A socket bound to a unicast address gets nothing that is sent to a group, so each group has a
//! socket of its own. Those of all processes share the port by SO_REUSEADDR, not by SO_REUSEPORT:
//! the kernel hands a multicast datagram to each of them, no program steers it, the user does not
//! matter, and nothing has to be forwarded between processes.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use super::open::{self, UdpOptions};
use super::receive::ReceiveBatch;
use super::{deliver, sys};
use crate::link::{JoinError, LinkStatistics};
use crate::wire::ReceivedBurst;

/// The sockets of the groups that a link has joined, each an `S` that is one socket.
pub struct GroupSockets<S> {
    members: Vec<Member<S>>,
    /// Made for the first group.
    batch: Option<ReceiveBatch>,
    statistics: LinkStatistics,
}

struct Member<S> {
    group: IpAddr,
    socket: S,
    /// The socket's own count of drops when it was last told.
    dropped: u32,
}

/// A socket that has joined `group` on the interface of a link's address, bound to the link's port
/// of the group.
///
/// # Errors
/// [`JoinError`].
pub fn open_group_socket(options: &UdpOptions, group: IpAddr) -> Result<Socket, JoinError> {
    let address = options.address;
    if address.is_ipv4() != group.is_ipv4() {
        return Err(JoinError::Family { group, address });
    }
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => JoinError::PortHeld { group, port: options.port },
        io::ErrorKind::NetworkUnreachable => JoinError::NoRoute { group, address },
        _ => JoinError::System { group, error },
    };
    open::check_route(options, group).map_err(refused)?;
    open::group_socket(options, group).map_err(refused)
}

impl<S> Default for GroupSockets<S> {
    fn default() -> Self {
        Self { members: Vec::new(), batch: None, statistics: LinkStatistics::default() }
    }
}

impl<S: AsFd> GroupSockets<S> {
    /// From now on `socket`, opened by [`open_group_socket`], receives for `group`.
    pub fn add(&mut self, group: IpAddr, socket: S) {
        self.batch.get_or_insert_with(ReceiveBatch::new);
        self.members.push(Member { group, socket, dropped: 0 });
    }

    /// The socket of a group that was added.
    pub fn socket_of(&self, group: IpAddr) -> Option<&S> {
        self.members.iter().find(|member| member.group == group).map(|member| &member.socket)
    }

    /// Takes out the socket of a group, which leaves the group: closing it is not enough while a
    /// child of this process that has not called exec yet has a copy of it.
    pub fn remove(&mut self, options: &UdpOptions, group: IpAddr) -> Option<S> {
        let place = self.members.iter().position(|member| member.group == group)?;
        let Member { socket, .. } = self.members.swap_remove(place);
        // It fails if the interface has gone, and the membership with it.
        let _ = leave_group(options, socket.as_fd(), group);
        Some(socket)
    }

    /// Whether no group was added.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// What was received and lost.
    pub fn statistics(&self) -> LinkStatistics {
        self.statistics
    }

    /// Hands what waits at the sockets that `wanted` picks to `sink`, at most about `budget` packets.
    /// Returns the number of packets.
    pub fn receive(
        &mut self,
        budget: usize,
        wanted: impl Fn(&S) -> bool,
        sink: &mut dyn FnMut(&ReceivedBurst<'_>),
    ) -> usize {
        let Self { members, batch: Some(batch), statistics } = self else { return 0 };
        let mut packets = 0;
        for member in members.iter_mut().filter(|member| wanted(&member.socket)) {
            if packets < budget {
                packets += member.receive(batch, budget - packets, statistics, sink);
            }
        }
        packets
    }
}

impl<S: AsFd> Member<S> {
    fn receive(
        &mut self,
        batch: &mut ReceiveBatch,
        budget: usize,
        statistics: &mut LinkStatistics,
        sink: &mut dyn FnMut(&ReceivedBurst<'_>),
    ) -> usize {
        let (mut packets, mut more) = (0, true);
        while more && packets < budget {
            let count;
            (count, more) = batch.fetch(self.socket.as_fd(), budget - packets);
            for index in 0..count {
                let datagram = batch.datagram(index);
                if let Some(dropped) = datagram.control.dropped {
                    statistics.overflowed += u64::from(dropped.wrapping_sub(self.dropped));
                    self.dropped = dropped;
                }
                // One that is discarded counts too: a flood of them must not keep us here.
                packets += deliver(&datagram, self.group, statistics, sink).max(1);
            }
        }
        packets
    }
}

fn leave_group(options: &UdpOptions, socket: BorrowedFd<'_>, group: IpAddr) -> io::Result<()> {
    match (group, options.address) {
        (IpAddr::V6(group), _) => {
            socket2::SockRef::from(&socket).leave_multicast_v6(&group, options.scope)
        }
        (IpAddr::V4(group), IpAddr::V4(own)) => {
            sys::leave_group_v4(socket, group, own, options.scope)
        }
        (IpAddr::V4(_), IpAddr::V6(_)) => Ok(()),
    }
}

/// A socket to send from sends to groups through the interface of its address, with the hop limit
/// of unicast datagrams, and to the members on this host as well: every process of the host gets its
/// copy from the kernel, the sending one included (that is what the kernel does unless told not to).
pub(super) fn prepare_sender(options: &UdpOptions, socket: &Socket) -> io::Result<()> {
    const HOP_LIMIT: libc::c_int = 64;
    let socket = socket.as_fd();
    match options.address {
        IpAddr::V4(address) => {
            sys::send_groups_through(socket, address, options.scope)?;
            sys::set_option(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, HOP_LIMIT)
        }
        IpAddr::V6(_) => {
            let (level, interface) = (libc::IPPROTO_IPV6, options.scope as libc::c_int);
            sys::set_option(socket, level, libc::IPV6_MULTICAST_IF, interface)?;
            sys::set_option(socket, level, libc::IPV6_MULTICAST_HOPS, HOP_LIMIT)
        }
    }
}
