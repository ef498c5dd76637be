#![allow(unsafe_code)]
//! Socket options that neither std nor socket2 offers.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an option whose value is an int.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Datagrams to groups leave through the interface with this index, or that of the address if 0.
pub(super) fn send_groups_through(
    socket: BorrowedFd<'_>,
    address: Ipv4Addr,
    interface: u32,
) -> io::Result<()> {
    set_group_option(socket, libc::IP_MULTICAST_IF, Ipv4Addr::UNSPECIFIED, address, interface)
}

/// Joins a group on the interface with this index, or that of the address if 0.
pub(super) fn join_group_v4(
    socket: BorrowedFd<'_>,
    group: Ipv4Addr,
    address: Ipv4Addr,
    interface: u32,
) -> io::Result<()> {
    set_group_option(socket, libc::IP_ADD_MEMBERSHIP, group, address, interface)
}

/// Ends [`join_group_v4`] with the same arguments.
pub(super) fn leave_group_v4(
    socket: BorrowedFd<'_>,
    group: Ipv4Addr,
    address: Ipv4Addr,
    interface: u32,
) -> io::Result<()> {
    set_group_option(socket, libc::IP_DROP_MEMBERSHIP, group, address, interface)
}

fn set_group_option(
    socket: BorrowedFd<'_>,
    name: libc::c_int,
    group: Ipv4Addr,
    address: Ipv4Addr,
    interface: u32,
) -> io::Result<()> {
    let in_network_order = |address: Ipv4Addr| libc::in_addr { s_addr: u32::from(address).to_be() };
    let request = libc::ip_mreqn {
        imr_multiaddr: in_network_order(group),
        imr_address: in_network_order(address),
        imr_ifindex: interface as libc::c_int,
    };
    // SAFETY: pointer and length describe `request`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            name,
            (&raw const request).cast(),
            size_of_val(&request) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the kernel discard every datagram that arrives at a socket which nobody reads.
pub(super) fn discard_arrivals(socket: BorrowedFd<'_>) -> io::Result<()> {
    const RETURN_CONSTANT: u16 = 0x06;
    let mut program = [libc::sock_filter { code: RETURN_CONSTANT, jt: 0, jf: 0, k: 0 }];
    let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    // SAFETY: `filter` points to one instruction, and both outlive the call, which copies them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of_val(&filter) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How full a socket's receive queue is, in bytes as the kernel charges them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveQueue {
    /// Charged for what waits.
    pub used: u32,
    /// The limit beyond which arrivals are dropped.
    pub limit: u32,
    /// Arrivals dropped since the socket was made, modulo 2^32.
    pub dropped: u32,
}

/// Asks the kernel for the state of a socket's receive queue.
pub(super) fn receive_queue(socket: BorrowedFd<'_>) -> io::Result<ReceiveQueue> {
    // Places in the array that SO_MEMINFO fills (linux/sock_diag.h).
    const USED: usize = 0;
    const LIMIT: usize = 1;
    const DROPPED: usize = 8;
    let mut values = [0u32; 9];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: pointer and length describe `values`, into which the kernel writes at most that.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ReceiveQueue { used: values[USED], limit: values[LIMIT], dropped: values[DROPPED] })
}
