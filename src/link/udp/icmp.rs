#![allow(unsafe_code)]
//! What ICMP tells the sockets that are sent from.
//!
//! ```text
//!   datagram ──▶ closed port, or no way there
//!   socket   ◀── ICMP destination unreachable: the next send fails once (that is cleared), and the
//!                error queue has who cannot be reached, and why
//! ```
//!
//! Without IP_RECVERR a socket that is not connected never hears of it. With it, the error queue
//! says which datagram's destination it was, so nobody else is blamed and nothing else is lost.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::Socket;

use super::control::Control;
use super::receive::address_of;
use super::sys;
use crate::engine::UnreachableKind;

/// Errors read from one socket at a time; the kernel's queue may hold more.
const AT_ONCE: usize = 64;
/// Notices that wait for the engine; more are counted only.
const WAITING: usize = 256;

/// A socket asks to be told.
pub(super) fn ask_for_errors(socket: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    match ipv6 {
        true => sys::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
        false => sys::set_option(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1),
    }
}

/// Notices that were read and that nobody has taken yet.
#[derive(Default)]
pub(super) struct Notices {
    waiting: VecDeque<(IpAddr, UnreachableKind)>,
    /// All that were read, since they were last counted.
    pub(super) read: u64,
    /// Storage that is used again.
    polls: Vec<libc::pollfd>,
}

impl Notices {
    /// Reads the error queue of a socket, which clears the error that its next send would give.
    #[cold]
    pub(super) fn read(&mut self, socket: BorrowedFd<'_>) {
        for _ in 0..AT_ONCE {
            match next_error(socket) {
                Ok(Some(notice)) => {
                    self.read += 1;
                    if self.waiting.len() < WAITING {
                        self.waiting.push_back(notice);
                    }
                }
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }

    /// Reads the error queues of the sockets that have something in theirs.
    #[cold]
    pub(super) fn look(&mut self, sockets: &[Socket]) {
        let poll = |socket: &Socket| libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 };
        let mut polls = std::mem::take(&mut self.polls);
        polls.clear();
        polls.extend(sockets.iter().map(poll));
        // SAFETY: pointer and length describe the vector; no time is waited.
        let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 0) };
        let told = |poll: &libc::pollfd| ready > 0 && poll.revents & libc::POLLERR != 0;
        for (socket, _) in sockets.iter().zip(&polls).filter(|(_, poll)| told(poll)) {
            self.read(socket.as_fd());
        }
        self.polls = polls;
    }

    /// Hands out what was read.
    pub(super) fn take(&mut self, sink: &mut dyn FnMut(IpAddr, UnreachableKind)) {
        while let Some((address, kind)) = self.waiting.pop_front() {
            sink(address, kind);
        }
    }
}

/// The next entry of the error queue: the address that a datagram was sent to, and why it did not
/// come there; nothing if the entry is of another kind.
fn next_error(socket: BorrowedFd<'_>) -> io::Result<Option<(IpAddr, UnreachableKind)>> {
    // SAFETY: zero is a valid value of both structures.
    let (mut name, mut header) = unsafe {
        (
            MaybeUninit::<libc::sockaddr_storage>::zeroed().assume_init(),
            MaybeUninit::<libc::msghdr>::zeroed().assume_init(),
        )
    };
    let mut control = Control::new();
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of_val(&name) as libc::socklen_t;
    header.msg_control = control.as_mut_ptr();
    header.msg_controllen = Control::SIZE as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to `name` and `control`, which outlive the call; no bytes of the
    // datagram are asked for.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    #[allow(clippy::unnecessary_cast, reason = "some C libraries have a smaller type here")]
    let length = header.msg_controllen as usize;
    let error = [(libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)]
        .into_iter()
        .find_map(|(level, kind)| control.find(length, level, kind));
    let kind = error.and_then(kind_of);
    Ok(address_of(&name).zip(kind).map(|((address, _), kind)| (address, kind)))
}

/// From the kernel's `struct sock_extended_err`: error (4 bytes), origin, type, code (1 each).
fn kind_of(error: &[u8]) -> Option<UnreachableKind> {
    const ICMP: u8 = 2;
    const ICMP6: u8 = 3;
    match *error.get(4..7)? {
        [ICMP, 3, code] => match code {
            0 | 6 | 11 => Some(UnreachableKind::Network),
            1 | 7 | 8 | 12 => Some(UnreachableKind::Host),
            3 => Some(UnreachableKind::Port),
            9 | 10 | 13 => Some(UnreachableKind::Prohibited),
            // 4 is a packet too large for a part of the way.
            _ => None,
        },
        [ICMP6, 1, code] => match code {
            0 => Some(UnreachableKind::Network),
            2 | 3 => Some(UnreachableKind::Host),
            4 => Some(UnreachableKind::Port),
            1 | 5 | 6 => Some(UnreachableKind::Prohibited),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(origin: u8, kind: u8, code: u8) -> Option<UnreachableKind> {
        kind_of(&[111, 0, 0, 0, origin, kind, code, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    #[test]
    fn only_destinations_that_cannot_be_reached_are_told() {
        assert_eq!(kind(2, 3, 0), Some(UnreachableKind::Network));
        assert_eq!(kind(2, 3, 1), Some(UnreachableKind::Host));
        assert_eq!(kind(2, 3, 3), Some(UnreachableKind::Port));
        assert_eq!(kind(2, 3, 13), Some(UnreachableKind::Prohibited));
        assert_eq!(kind(3, 1, 4), Some(UnreachableKind::Port));
        assert_eq!(kind(3, 1, 0), Some(UnreachableKind::Network));
        assert_eq!(kind(2, 3, 4), None, "too large");
        assert_eq!(kind(2, 11, 0), None, "time exceeded");
        assert_eq!(kind(1, 0, 0), None, "our own");
        assert_eq!(kind_of(&[0; 6]), None, "cut");
    }
}
