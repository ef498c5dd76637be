//! Opening the sockets of a UDP link, and saying why one cannot be opened.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::control::traffic_class_option;
use super::holder::PortHolder;
use super::sys;
use crate::wire::ROCE_PORT;

/// The first source port of RoCEv2: the top two bits are set, the others are entropy.
const FIRST_SOURCE_PORT: u16 = 0xc000;
/// Asked for when nothing else is wanted: the usual limit of 208 KiB holds 50 datagrams of 4 KiB.
const DEFAULT_RECEIVE_BUFFER: usize = 4 << 20;
/// Enough for every burst that one flush holds.
const SEND_BUFFER: usize = 4 << 20;

/// Binds a socket to the interface with an index (asm-generic/socket.h).
const SO_BINDTOIFINDEX: libc::c_int = 62;

/// How to open a [`super::UdpLink`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// The address to receive on and send from; one of this host.
    pub address: IpAddr,
    /// The index of the interface, needed for link-local IPv6 addresses and 0 otherwise.
    pub scope: u32,
    /// Bytes of the largest IP packet of the interface; cut to 65535.
    pub mtu: usize,
    /// The UDP port to receive on and send to. Anything but 4791 is for tests only.
    pub port: u16,
    /// Whether to receive at all. Without, the link only sends, and what arrives at the port must
    /// come from the process that holds it.
    pub receive: bool,
    /// Bytes of socket receive buffer, as the kernel charges them; it may give less.
    pub receive_buffer: usize,
    /// Sockets to send from, each with a source port of its own, at least 1.
    pub send_sockets: usize,
    /// The source ports to use; empty to choose `send_sockets` free ones. Links of one device on
    /// several addresses must have the same, because a queue pair's port is chosen before its
    /// address.
    pub source_ports: Vec<u16>,
    /// Whether to let the kernel cut bursts into datagrams where it can (UDP_SEGMENT).
    pub segmentation: bool,
    /// Whether to let the kernel merge arrivals into bursts where it can (UDP_GRO).
    pub coalescing: bool,
}

impl UdpOptions {
    /// What a RoCEv2 endpoint on `address` wants, on an interface with `mtu`.
    pub fn new(address: IpAddr, mtu: usize) -> Self {
        Self {
            address,
            scope: 0,
            mtu,
            port: ROCE_PORT,
            receive: true,
            receive_buffer: DEFAULT_RECEIVE_BUFFER,
            send_sockets: 8,
            source_ports: Vec::new(),
            segmentation: true,
            coalescing: true,
        }
    }

    /// `address` with a port and, where it needs one, the interface.
    pub(super) fn socket_address(&self, address: IpAddr, port: u16) -> SocketAddr {
        match address {
            IpAddr::V4(address) => SocketAddr::from((address, port)),
            IpAddr::V6(address) => {
                let scope = if address.is_unicast_link_local() || address.is_multicast() {
                    self.scope
                } else {
                    0
                };
                SocketAddrV6::new(address, port, 0, scope).into()
            }
        }
    }
}

/// Why a UDP link cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// The address belongs to no interface.
    #[error("{address} is not an address of this host; `ip address` lists those that are")]
    NotLocal {
        /// The address asked for.
        address: IpAddr,
    },
    /// Somebody else receives on the port and does not share it.
    #[error("UDP port {port} of {address} is held by {holder}")]
    PortHeld {
        /// The address asked for.
        address: IpAddr,
        /// The port asked for.
        port: u16,
        /// Who has it.
        holder: PortHolder,
    },
    /// All ports that a RoCEv2 sender may use are taken.
    #[error(
        "no UDP port from 49152 to 65535 is free on {address}, so nothing can be sent; `ss -uanp` \
         lists who has them"
    )]
    NoSourcePort {
        /// The address asked for.
        address: IpAddr,
    },
    /// A source port that was asked for is taken.
    #[error("UDP port {port} of {address}, to be sent from, is taken by another socket")]
    SourcePortHeld {
        /// The address asked for.
        address: IpAddr,
        /// The port asked for.
        port: u16,
    },
    /// The kernel refused something that every kernel in use offers.
    #[error("cannot {action} for {address}: {error}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The address asked for.
        address: IpAddr,
        /// The kernel's answer.
        #[source]
        error: io::Error,
    },
}

/// A socket to receive with, and whether it merges.
pub(super) struct ReceiveSocket {
    pub(super) socket: Socket,
    pub(super) coalescing: bool,
}

/// Opens a socket on a free port with the options of both kinds below; see [`super::BareSocket`].
pub(super) fn bare_socket(options: &UdpOptions, nap: Option<Duration>) -> Result<Socket, UdpError> {
    let address = options.address;
    let refused = |action| move |error| UdpError::System { action, address, error };
    let socket = new_socket(options)?;
    if nap.is_some() {
        socket.set_nonblocking(false).map_err(refused("let a socket sleep"))?;
        socket.set_read_timeout(nap).map_err(refused("let a socket sleep"))?;
    }
    prepare_receiver(options, &socket)?;
    grow_send_buffer(&socket).map_err(refused("set the send buffer"))?;
    let local = SockAddr::from(options.socket_address(address, 0));
    socket.bind(&local).map_err(|error| bind_error(options, error))?;
    Ok(socket)
}

/// Opens the socket on the shared port.
pub(super) fn receive_socket(options: &UdpOptions) -> Result<ReceiveSocket, UdpError> {
    let address = options.address;
    let refused = |action| move |error| UdpError::System { action, address, error };
    let socket = new_socket(options)?;
    socket.set_reuse_port(true).map_err(refused("share the receive port"))?;
    let coalescing = prepare_receiver(options, &socket)?;
    let local = SockAddr::from(options.socket_address(address, options.port));
    socket.bind(&local).map_err(|error| bind_error(options, error))?;
    Ok(ReceiveSocket { socket, coalescing })
}

/// Returns whether the kernel merges what the socket receives.
fn prepare_receiver(options: &UdpOptions, socket: &Socket) -> Result<bool, UdpError> {
    let address = options.address;
    let refused = |action| move |error| UdpError::System { action, address, error };
    report_arrivals(socket, address).map_err(refused("ask for traffic classes and drops"))?;
    grow_receive_buffer(socket, options.receive_buffer)
        .map_err(refused("set the receive buffer"))?;
    Ok(options.coalescing
        && sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok())
}

/// Opens a socket that receives on the port of a group, which it has joined on the interface of our
/// address. What is sent to the group elsewhere on this host is not ours.
pub(super) fn group_socket(options: &UdpOptions, group: IpAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(SocketAddr::new(group, 0)), Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    report_arrivals(&socket, group)?;
    grow_receive_buffer(&socket, options.receive_buffer)?;
    if options.coalescing {
        // Without it datagrams come one by one.
        let _ = sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
    }
    let descriptor = socket.as_fd();
    if group.is_ipv6() {
        socket.set_only_v6(true)?;
        if options.scope != 0 {
            // An IPv6 membership does not look at the interface, so the socket has to.
            let interface = options.scope as libc::c_int;
            sys::set_option(descriptor, libc::SOL_SOCKET, SO_BINDTOIFINDEX, interface)?;
        }
    } else {
        sys::set_option(descriptor, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
    }
    socket.bind(&SockAddr::from(options.socket_address(group, options.port)))?;
    match (group, options.address) {
        (IpAddr::V4(group), IpAddr::V4(own)) => {
            sys::join_group_v4(socket.as_fd(), group, own, options.scope)?;
        }
        (IpAddr::V6(group), _) => socket.join_multicast_v6(&group, options.scope)?,
        (IpAddr::V4(_), IpAddr::V6(_)) => return Err(io::ErrorKind::InvalidInput.into()),
    }
    Ok(socket)
}

/// Whether the kernel knows a way to the group from our address and interface.
pub(super) fn check_route(options: &UdpOptions, group: IpAddr) -> io::Result<()> {
    let local = options.socket_address(options.address, 0);
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, None)?;
    socket.bind(&SockAddr::from(local))?;
    super::group::prepare_sender(options, &socket)?;
    socket.connect(&SockAddr::from(options.socket_address(group, options.port)))
}

/// Opens the sockets to send from, each with its source port, at least one.
pub(super) fn send_sockets(options: &UdpOptions) -> Result<Vec<(u16, Socket)>, UdpError> {
    if !options.source_ports.is_empty() {
        return named_send_sockets(options);
    }
    let wanted = options.send_sockets.max(1);
    let mut sockets = Vec::with_capacity(wanted);
    let mut ports = FIRST_SOURCE_PORT..=u16::MAX;
    while sockets.len() < wanted {
        match next_send_socket(options, &mut ports)? {
            Some(opened) => sockets.push(opened),
            None if sockets.is_empty() => {
                return Err(UdpError::NoSourcePort { address: options.address });
            }
            None => break,
        }
    }
    Ok(sockets)
}

/// Opens the sockets to send from with exactly the ports that the options name.
fn named_send_sockets(options: &UdpOptions) -> Result<Vec<(u16, Socket)>, UdpError> {
    let (address, ports) = (options.address, options.source_ports.iter());
    ports
        .map(|port| {
            next_send_socket(options, &mut std::iter::once(*port))?
                .ok_or(UdpError::SourcePortHeld { address, port: *port })
        })
        .collect()
}

/// Whether the kernel knows UDP_SEGMENT. Zero, "do not segment", changes nothing.
pub(super) fn can_segment(socket: &Socket) -> bool {
    sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok()
}

/// Gives a socket the traffic class of what it sends from now on.
pub(super) fn set_traffic_class(socket: &Socket, traffic_class: u8) -> io::Result<()> {
    let ipv6 = socket.domain()? == Domain::IPV6;
    let (level, name) = traffic_class_option(ipv6);
    sys::set_option(socket.as_fd(), level, name, traffic_class.into())
}

fn next_send_socket(
    options: &UdpOptions,
    ports: &mut impl Iterator<Item = u16>,
) -> Result<Option<(u16, Socket)>, UdpError> {
    let address = options.address;
    let socket = new_socket(options)?;
    let refused = |action| move |error| UdpError::System { action, address, error };
    sys::discard_arrivals(socket.as_fd()).map_err(refused("close a sending socket to arrivals"))?;
    super::group::prepare_sender(options, &socket).map_err(|error| group_error(options, error))?;
    grow_send_buffer(&socket).map_err(refused("set the send buffer"))?;
    super::icmp::ask_for_errors(socket.as_fd(), address.is_ipv6())
        .map_err(refused("ask for ICMP errors"))?;
    for port in ports {
        let local = SockAddr::from(options.socket_address(address, port));
        match socket.bind(&local) {
            Ok(()) => return Ok(Some((port, socket))),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(bind_error(options, error)),
        }
    }
    Ok(None)
}

/// A socket that never fragments and never connects: its IPv4 headers have DF set and
/// identification 0, so that the sender can compute the ICRC.
fn new_socket(options: &UdpOptions) -> Result<Socket, UdpError> {
    let address = options.address;
    let refused = |action| move |error| UdpError::System { action, address, error };
    let socket = Socket::new(Domain::for_address(SocketAddr::new(address, 0)), Type::DGRAM, None)
        .map_err(refused("make a UDP socket"))?;
    socket.set_nonblocking(true).map_err(refused("make a socket non-blocking"))?;
    let (level, name, value) = if address.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
    } else {
        socket.set_only_v6(true).map_err(refused("keep IPv4 off an IPv6 socket"))?;
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
    };
    sys::set_option(socket.as_fd(), level, name, value).map_err(refused("forbid fragmentation"))?;
    Ok(socket)
}

/// Asks for what must come beside each datagram, and lets datagrams without checksum in, which
/// NICs and kernel drivers send.
fn report_arrivals(socket: &Socket, address: IpAddr) -> io::Result<()> {
    let socket = socket.as_fd();
    sys::set_option(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    if address.is_ipv4() {
        return sys::set_option(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    }
    sys::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
    sys::set_option(socket, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)
}

/// As large as asked for if the process may exceed the system's limit, else up to that limit.
fn grow_receive_buffer(socket: &Socket, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    match sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value) {
        Ok(()) => Ok(()),
        Err(_) => socket.set_recv_buffer_size(value as usize),
    }
}

/// A smaller buffer than asked for only means that the kernel refuses sends earlier.
fn grow_send_buffer(socket: &Socket) -> io::Result<()> {
    let forced = libc::SO_SNDBUFFORCE;
    match sys::set_option(socket.as_fd(), libc::SOL_SOCKET, forced, SEND_BUFFER as libc::c_int) {
        Ok(()) => Ok(()),
        Err(_) => socket.set_send_buffer_size(SEND_BUFFER),
    }
}

/// Without an interface of this address there is no way out for groups: the address is not ours.
fn group_error(options: &UdpOptions, error: io::Error) -> UdpError {
    let address = options.address;
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => UdpError::NotLocal { address },
        _ => UdpError::System { action: "choose the interface for groups", address, error },
    }
}

fn bind_error(options: &UdpOptions, error: io::Error) -> UdpError {
    let (address, port) = (options.address, options.port);
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => UdpError::NotLocal { address },
        io::ErrorKind::AddrInUse => {
            UdpError::PortHeld { address, port, holder: PortHolder::find(address, port) }
        }
        _ => UdpError::System { action: "bind a UDP socket", address, error },
    }
}
