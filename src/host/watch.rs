#![allow(unsafe_code)]
//! What happens to a network interface while it is in use, as the kernel tells it (rtnetlink(7)).

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Multicast groups of the kernel's: links, IPv4 addresses, IPv6 addresses (linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
const HEADER: usize = 16;
/// Bytes that one look takes in at most; the kernel's messages are smaller than a page.
const BUFFER: usize = 16 * 1024;

/// Something that has happened to the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its flags were told, changed or not.
    Link {
        /// Whether the administrator has switched it on.
        is_up: bool,
        /// Whether it has a carrier.
        is_running: bool,
    },
    /// It got or lost an address, or one of them changed in some way.
    Address,
    /// It is gone.
    Removed,
    /// So much has happened that the kernel could not tell all: look for yourself.
    Missed,
}

/// A socket that the kernel tells of changes to one interface of the network namespace in which it
/// was opened.
#[derive(Debug)]
pub struct InterfaceWatch {
    socket: Socket,
    index: u32,
}

impl InterfaceWatch {
    /// Watches the interface of the kernel's number `index`, from now on.
    ///
    /// # Errors
    /// What the kernel answers: no descriptor is left, or there is no netlink in this sandbox.
    pub fn open(index: u32) -> io::Result<Self> {
        let route = Some(Protocol::from(libc::NETLINK_ROUTE));
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, route)?;
        socket.set_nonblocking(true)?;
        socket.bind(&group_address())?;
        Ok(Self { socket, index })
    }

    /// Takes out what the kernel has told, oldest first, without waiting.
    pub fn take(&self, mut changed: impl FnMut(Change)) {
        let mut buffer = [0; BUFFER];
        loop {
            match (&self.socket).read(&mut buffer) {
                Ok(length) => changes(&buffer[..length], self.index, &mut changed),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    changed(Change::Missed);
                }
                Err(_) => return,
            }
        }
    }
}

impl AsRawFd for InterfaceWatch {
    /// Readable while there is something to take.
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn group_address() -> SockAddr {
    // SAFETY: zero is a valid value of the structure.
    let mut address: libc::sockaddr_nl = unsafe { MaybeUninit::zeroed().assume_init() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = GROUPS;
    // SAFETY: the storage is as large as any address and zeroed, and a netlink address is written
    // to its start, whose length is then given.
    unsafe {
        let mut storage: libc::sockaddr_storage = MaybeUninit::zeroed().assume_init();
        (&raw mut storage).cast::<libc::sockaddr_nl>().write(address);
        let storage =
            std::mem::transmute::<libc::sockaddr_storage, socket2::SockAddrStorage>(storage);
        SockAddr::new(storage, size_of::<libc::sockaddr_nl>() as libc::socklen_t)
    }
}

/// The messages of a datagram that concern the interface. What does not parse ends the datagram.
fn changes(mut bytes: &[u8], index: u32, changed: &mut impl FnMut(Change)) {
    while let Some((kind, body, rest)) = message(bytes) {
        changed_by(kind, body, index).into_iter().for_each(&mut *changed);
        bytes = rest;
    }
}

/// Type, body and what follows of the first message.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, rest))
}

fn changed_by(kind: u16, body: &[u8], index: u32) -> Option<Change> {
    // Both structures have the interface's number there: ifinfomsg and ifaddrmsg.
    let about = u32::from_ne_bytes(*body.get(4..)?.first_chunk()?);
    if about != index {
        return None;
    }
    match kind {
        libc::RTM_NEWLINK => {
            let flags = i32::from_ne_bytes(*body.get(8..)?.first_chunk()?);
            let has = |flag| flags & flag != 0;
            Some(Change::Link { is_up: has(libc::IFF_UP), is_running: has(libc::IFF_RUNNING) })
        }
        libc::RTM_DELLINK => Some(Change::Removed),
        libc::RTM_NEWADDR | libc::RTM_DELADDR => Some(Change::Address),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: u16, index: u32, flags: i32) -> Vec<u8> {
        let body = [&[0; 4][..], &index.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 4]].concat();
        let length = (HEADER + body.len()) as u32;
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], &body].concat()
    }

    fn all(bytes: &[u8]) -> Vec<Change> {
        let mut found = Vec::new();
        changes(bytes, 7, &mut |change| found.push(change));
        found
    }

    #[test]
    fn messages_about_the_interface_become_changes() {
        let messages = [
            told(libc::RTM_NEWLINK, 7, libc::IFF_UP | libc::IFF_RUNNING),
            told(libc::RTM_NEWLINK, 8, 0),
            told(libc::RTM_NEWLINK, 7, libc::IFF_UP),
            told(libc::RTM_NEWADDR, 7, 0),
            told(libc::RTM_DELADDR, 9, 0),
            told(libc::RTM_NEWROUTE, 7, 0),
            told(libc::RTM_DELLINK, 7, 0),
        ];
        assert_eq!(
            all(&messages.concat()),
            [
                Change::Link { is_up: true, is_running: true },
                Change::Link { is_up: true, is_running: false },
                Change::Address,
                Change::Removed,
            ]
        );
    }

    #[test]
    fn what_does_not_parse_is_the_end() {
        let good = told(libc::RTM_DELLINK, 7, 0);
        for length in 0..good.len() {
            assert_eq!(all(&good[..length]), []);
        }
        let mut short = good.clone();
        short[..4].copy_from_slice(&4_u32.to_ne_bytes());
        assert_eq!(all(&short), []);
        let mut empty = good;
        empty[..4].copy_from_slice(&0_u32.to_ne_bytes());
        assert_eq!(all(&empty), []);
    }

    #[test]
    fn loopback_can_be_watched_and_nothing_happens_to_it() {
        let watch = InterfaceWatch::open(1).unwrap();
        watch.take(|change| assert_ne!(change, Change::Removed));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_do_harm(
            heads in proptest::collection::vec((0u32..40, 14u16..26, 5u32..9), 0..6),
            rest in proptest::collection::vec(proptest::num::u8::ANY, 0..60),
        ) {
            let mut bytes = Vec::new();
            for (length, kind, index) in heads {
                bytes.extend([&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 14]].concat());
                bytes.extend([&index.to_ne_bytes()[..], &rest[..rest.len().min(9)]].concat());
            }
            bytes.extend(&rest);
            let found = all(&bytes);
            // Each message has a header at least.
            proptest::prop_assert!(found.len() * HEADER <= bytes.len());
        }
    }
}
