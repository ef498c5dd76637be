//! What passes a network interface now: a packet socket (packet(7)).
//!
//! The kernel takes VLAN tags out of received frames and tells them beside; they are put back, so
//! that a frame looks as it was on the wire. Frames that segmentation offload has not cut yet come
//! whole, and are cut like those of a file.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use uroce::dissect::Dissector;
use uroce::host::{Capability, Privileges};
use uroce::pcap::{LinkType, Record, Timestamp};

use super::super::output::{Failure, complain};
use super::super::text::count;
use super::DumpArgs;
use super::interrupt::{Interrupt, Ready};
use super::output::{Output, Source};

/// Longer than any frame: segmentation offload makes 64 KiB, with headers more.
const LARGEST_FRAME: usize = 256 * 1024;
/// Bytes of Ethernet addresses, behind which a VLAN tag belongs.
const ADDRESSES: usize = 12;
const TAG: usize = 4;
/// Socket option: no copies of what the interface sends.
const PACKET_IGNORE_OUTGOING: i32 = 23;
/// Milliseconds without a frame after which what has gathered is shown.
const QUIET: i32 = 20;

/// Shows frames until interrupted, or until enough have come.
pub fn run(args: &DumpArgs, interface: &str, output: &mut Output<'_>) -> Result<u8, Failure> {
    // First, so that nothing is lost from here on.
    let interrupt = Interrupt::new()?;
    let socket = PacketSocket::open(interface).map_err(|error| refused(interface, &error))?;
    let mut follower = Follower {
        socket,
        source: Source::new(interface, false),
        dissector: Dissector::with_ports(&args.port),
        left: args.count.unwrap_or(u64::MAX),
        broken: None,
        output,
    };
    follower.follow(&interrupt)?;
    follower.output.end_of_file(&follower.source)?;
    follower.socket.ask_kernel()?;
    if follower.socket.lost > 0 {
        let frames = count(follower.socket.lost, "frame");
        complain(&format!("{interface}: {frames} came faster than they could be shown: left out"));
    }
    match follower.broken {
        Some(error) => {
            Err(Failure::usage(format!("{interface} cannot be followed any further: {error}")))
        }
        None => Ok(0),
    }
}

/// From the interface to the output.
struct Follower<'f, 'a> {
    socket: PacketSocket,
    source: Source<'f>,
    dissector: Dissector,
    /// How many frames are still wanted.
    left: u64,
    /// Why the interface gives no more.
    broken: Option<io::Error>,
    output: &'f mut Output<'a>,
}

impl Follower<'_, '_> {
    fn follow(&mut self, interrupt: &Interrupt) -> Result<(), Failure> {
        loop {
            match self.wait(interrupt)? {
                Ready::Nothing => {}
                Ready::Interrupted => break,
                Ready::Readable if self.one()? => {}
                Ready::Readable => return Ok(()),
            }
        }
        // What had come by then is shown too, and nothing later.
        self.socket.ask_kernel()?;
        for _ in 0..self.socket.pending() {
            if !self.one()? {
                break;
            }
        }
        Ok(())
    }

    /// Waits, and shows what has gathered before that takes long.
    fn wait(&mut self, interrupt: &Interrupt) -> Result<Ready, Failure> {
        let ready = interrupt.wait_readable(self.socket.descriptor.as_fd(), QUIET)?;
        if ready != Ready::Nothing {
            return Ok(ready);
        }
        self.output.flush()?;
        Ok(interrupt.wait_readable(self.socket.descriptor.as_fd(), -1)?)
    }

    /// Shows the next frame, if one is there; false if no more come or are wanted.
    fn one(&mut self) -> Result<bool, Failure> {
        let record = match self.socket.receive() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(true),
            Err(error) => {
                self.broken = Some(error);
                return Ok(false);
            }
        };
        self.left -= 1;
        let goes_on = self.output.record(&mut self.source, &mut self.dissector, &record)?;
        Ok(goes_on && self.left > 0)
    }
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
    link_type: LinkType,
    is_loopback: bool,
    /// Frames that the kernel has received for the socket, lost ones too, when it was last asked.
    arrived: u64,
    /// Those of them that it had no room for.
    lost: u64,
    /// Those that have been taken from it.
    taken: u64,
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
        let address = bind(&descriptor, index)?;
        let is_loopback = address.sll_hatype == libc::ARPHRD_LOOPBACK;
        if is_loopback {
            // Old kernels do not know it, and give both copies of each frame.
            let _ = set_option(&descriptor, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
        }
        let link_type = link_type(address.sll_hatype)?;
        let buffer = vec![0; TAG + LARGEST_FRAME];
        Ok(Self { descriptor, link_type, is_loopback, arrived: 0, lost: 0, taken: 0, buffer })
    }

    /// Brings the kernel's counts up to date.
    fn ask_kernel(&mut self) -> io::Result<()> {
        // SAFETY: tpacket_stats of zeros are valid.
        let mut statistics: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: pointer and length describe `statistics`.
        let got = unsafe {
            libc::getsockopt(
                self.descriptor.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        // They start anew each time.
        self.arrived += u64::from(statistics.tp_packets);
        self.lost += u64::from(statistics.tp_drops);
        Ok(())
    }

    /// Frames that had come when the kernel was last asked, and have not been taken.
    fn pending(&self) -> u64 {
        self.arrived.saturating_sub(self.lost + self.taken)
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
        self.taken += 1;
        if self.is_loopback && address.sll_pkttype == libc::PACKET_OUTGOING {
            return Ok(None);
        }
        // SAFETY: recvmsg has filled `message` and its control buffer, which is still alive.
        let beside = unsafe { beside(&message) };
        Ok(Some(self.record(length, beside)))
    }

    /// The frame in the buffer, with its tag put back.
    fn record(&mut self, length: usize, beside: Beside) -> Record<'_> {
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
            link_type: self.link_type,
            original_length: u32::try_from(length).unwrap_or(u32::MAX),
            data: &self.buffer[start..TAG + captured],
        }
    }
}

/// Binds a packet socket to an interface for every protocol; returns what the kernel says of it.
fn bind(descriptor: &OwnedFd, index: u32) -> io::Result<libc::sockaddr_ll> {
    // SAFETY: a sockaddr_ll of zeros is valid.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: pointers and lengths describe `address`.
    let done = unsafe {
        let descriptor = descriptor.as_raw_fd();
        let bound = libc::bind(descriptor, (&raw const address).cast(), length);
        if bound < 0 {
            bound
        } else {
            libc::getsockname(descriptor, (&raw mut address).cast(), &raw mut length)
        }
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(address) }
}

/// What frames of a kind of interface begin with.
fn link_type(hardware: u16) -> io::Result<LinkType> {
    match hardware {
        libc::ARPHRD_NONE | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 => Ok(LinkType::RAW),
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(LinkType::ETHERNET),
        other => Err(io::Error::other(format!("hardware type {other} is not supported"))),
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
