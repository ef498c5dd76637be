//! What passes a network interface now: a packet socket (packet(7)).
//!
//! The kernel takes VLAN tags out of received frames and tells them beside; they are put back, so
//! that a frame looks as it was on the wire. Frames that segmentation offload has not cut yet come
//! whole, and are cut like those of a file.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use uroce::dissect::Dissector;
use uroce::host::{Capability, Privileges};
use uroce::pcap::{LinkType, Record, Timestamp};

use super::super::output::Failure;
use super::DumpArgs;
use super::output::{Output, Source};

/// Longer than any frame: segmentation offload makes 64 KiB, with headers more.
const LARGEST_FRAME: usize = 256 * 1024;
/// Bytes of Ethernet addresses, behind which a VLAN tag belongs.
const ADDRESSES: usize = 12;
const TAG: usize = 4;
/// How long to wait for a frame before what has gathered is shown.
const QUIET: Duration = Duration::from_millis(20);

/// Shows frames until interrupted, or until enough have come.
pub fn run(args: &DumpArgs, interface: &str, output: &mut Output<'_>) -> Result<u8, Failure> {
    let mut socket = PacketSocket::open(interface).map_err(|error| refused(interface, &error))?;
    let mut dissector = Dissector::with_ports(&args.port);
    let mut source = Source::new(interface, false);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        if !socket.is_readable(QUIET)? {
            output.flush()?;
            socket.wait()?;
        }
        let Some(record) = socket.receive()? else { continue };
        left -= 1;
        if !output.record(&mut source, &mut dissector, &record)? {
            break;
        }
    }
    output.end_of_file(&source)?;
    Ok(0)
}

fn refused(interface: &str, error: &io::Error) -> Failure {
    let privileges = Privileges::current();
    match (error.raw_os_error(), privileges.has(Capability::NetRaw)) {
        (Some(libc::EPERM | libc::EACCES), false) => {
            let (user, name) = (privileges.user, Capability::NetRaw.name());
            Failure::usage(format!(
                "cannot follow {interface}: this process (user id {user}) has no {name}: run it as \
                 root, or give the program the capability with `setcap {}+ep PROGRAM`",
                name.to_ascii_lowercase()
            ))
        }
        (Some(libc::ENODEV), _) => Failure::usage(format!(
            "no network interface `{interface}`; `ip link` or `uroce devices` lists them"
        )),
        _ => Failure::usage(format!("cannot follow {interface}: {error}")),
    }
}

struct PacketSocket {
    descriptor: OwnedFd,
    /// Room for a tag that is put back, then a frame.
    buffer: Vec<u8>,
}

/// What the kernel tells beside a frame.
#[derive(Default)]
struct Beside {
    time: Option<Timestamp>,
    /// Tag protocol and tag.
    tag: Option<[u16; 2]>,
}

impl PacketSocket {
    fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface)?;
        // SAFETY: the name is a C string; the call reads nothing else.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let every_protocol = (libc::ETH_P_ALL as u16).to_be();
        // Protocol 0 first: nothing of other interfaces comes in before the socket is bound.
        // SAFETY: takes no pointer.
        let raw = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and owned by nobody else.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        set_option(&descriptor, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        set_option(&descriptor, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // More than the usual limit needs a capability; what the limit gives is taken.
        let _ = set_option(&descriptor, libc::SOL_SOCKET, libc::SO_RCVBUF, 8 << 20);
        // SAFETY: a sockaddr_ll of zeros is valid.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = every_protocol;
        address.sll_ifindex = index as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: pointer and length describe `address`.
        let bound =
            unsafe { libc::bind(descriptor.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { descriptor, buffer: vec![0; TAG + LARGEST_FRAME] })
    }

    /// Waits for a frame at most so long; whether one is there.
    fn is_readable(&self, wait: Duration) -> io::Result<bool> {
        self.poll(wait.as_millis() as i32)
    }

    /// Waits for a frame, however long it takes.
    fn wait(&self) -> io::Result<()> {
        self.poll(-1).map(|_| ())
    }

    fn poll(&self, milliseconds: i32) -> io::Result<bool> {
        let mut poll =
            libc::pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: pointer and count describe one pollfd.
        match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
            ready => Ok(ready > 0),
        }
    }

    /// The next frame; nothing for the second copy that `lo` gives of each, and if none is there.
    fn receive(&mut self) -> io::Result<Option<Record<'_>>> {
        // SAFETY: a sockaddr_ll of zeros is valid.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        let mut control = [0u64; 32];
        let room = &mut self.buffer[TAG..];
        let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        // SAFETY: a msghdr of zeros is valid.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
        // SAFETY: every pointer of `message` is to a live buffer of the length beside it.
        let received =
            unsafe { libc::recvmsg(self.descriptor.as_raw_fd(), &raw mut message, flags) };
        let Ok(length) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        };
        let is_loopback = address.sll_hatype == libc::ARPHRD_LOOPBACK;
        if is_loopback && address.sll_pkttype == libc::PACKET_OUTGOING {
            return Ok(None);
        }
        // SAFETY: recvmsg has filled `message` and its control buffer, which is still alive.
        let beside = unsafe { beside(&message) };
        let link_type = match address.sll_hatype {
            libc::ARPHRD_NONE | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 => LinkType::RAW,
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => LinkType::ETHERNET,
            other => {
                let reason = format!("its hardware type {other} is not known: it is no Ethernet");
                return Err(io::Error::other(reason));
            }
        };
        Ok(Some(self.record(length, link_type, beside)))
    }

    /// The frame in the buffer, with its tag put back.
    fn record(&mut self, length: usize, link_type: LinkType, beside: Beside) -> Record<'_> {
        let captured = length.min(self.buffer.len() - TAG);
        let (mut start, mut length) = (TAG, length);
        if let Some([protocol, tag]) = beside.tag.filter(|_| captured >= ADDRESSES) {
            self.buffer.copy_within(TAG..TAG + ADDRESSES, 0);
            self.buffer[ADDRESSES..ADDRESSES + 2].copy_from_slice(&protocol.to_be_bytes());
            self.buffer[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&tag.to_be_bytes());
            (start, length) = (0, length + TAG);
        }
        Record {
            time: beside.time,
            interface: 0,
            link_type,
            original_length: u32::try_from(length).unwrap_or(u32::MAX),
            data: &self.buffer[start..TAG + captured],
        }
    }
}

/// Reads what came beside a frame.
///
/// # Safety
/// recvmsg has filled `message`, and its control buffer is alive.
unsafe fn beside(message: &libc::msghdr) -> Beside {
    let mut found = Beside::default();
    // SAFETY: the caller promises a filled control buffer.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers inside the buffer, or null.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        // SAFETY: the same; the data follow the header.
        let data = unsafe { libc::CMSG_DATA(header) };
        if (level, kind) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
            // SAFETY: the kernel puts a tpacket_auxdata there; it may be unaligned.
            let auxiliary = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
            found.tag = tag(&auxiliary);
        } else if (level, kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
            // SAFETY: the kernel puts a timespec there; it may be unaligned.
            let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
            let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
            found.time = u64::try_from(nanos).ok().map(Timestamp::from_nanos);
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    found
}

fn tag(auxiliary: &libc::tpacket_auxdata) -> Option<[u16; 2]> {
    const CUSTOMER_TAG: u16 = 0x8100;
    let has = |flag: libc::__u32| auxiliary.tp_status & flag != 0;
    let protocol = match has(libc::TP_STATUS_VLAN_TPID_VALID) {
        true => auxiliary.tp_vlan_tpid,
        false => CUSTOMER_TAG,
    };
    has(libc::TP_STATUS_VLAN_VALID).then_some([protocol, auxiliary.tp_vlan_tci])
}

fn set_option(descriptor: &OwnedFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`.
    let set = unsafe {
        libc::setsockopt(descriptor.as_raw_fd(), level, name, (&raw const value).cast(), length)
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
