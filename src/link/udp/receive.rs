#![allow(unsafe_code)]
//! Receiving several datagrams, each perhaps a merged burst, with one system call.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::control::{Control, Received};

/// Datagrams in one call: more gain nothing, because a merged one already holds many packets.
const BATCH: usize = 16;
/// Bytes for one datagram: no IP packet is larger, merged or not.
const BUFFER: usize = 65_536;
/// From one buffer to the next: a power of two would bring all into the same few places of the
/// processor's caches.
const STRIDE: usize = BUFFER + 17 * 64;
/// Datagrams that a call asks for when little is waiting or they are large.
const FEW: usize = 4;
/// Datagrams that a call asks for when nothing was waiting: looking for a second one takes longer
/// than it is likely to be there, and whoever waits for the first one waits for that, too.
const ONE: usize = 1;
/// So many calls in a row for one datagram that find one say that more is waiting. Fewer do not: where
/// two ends answer each other as fast as they can, a message and an acknowledgement come after each
/// other, and neither waits for the look at the other.
const OFTEN: u32 = 16;
/// Bytes that shall lie in the nearest cache between a call and the look at them.
const MUCH: usize = 64 * 1024;

/// Buffers for one call, made once.
pub(super) struct ReceiveBatch {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
    bytes: Box<[u8]>,
    /// What the next call asks for: the more, the more small datagrams were waiting.
    appetite: usize,
    /// Calls for one datagram that found one, without one in between that found none.
    ones: u32,
}

// SAFETY: the raw pointers in headers and vectors point into the other boxes of the same value,
// are written anew before each call and are not read after it.
unsafe impl Send for ReceiveBatch {}

/// One datagram of the last call.
pub(super) struct Datagram<'a> {
    /// Who sent it; nothing if the kernel gave no IP address.
    pub(super) source: Option<(IpAddr, u16)>,
    /// Its bytes.
    pub(super) bytes: &'a [u8],
    /// What the kernel says beside it.
    pub(super) control: Received,
    /// Whether it was larger than the buffer.
    pub(super) truncated: bool,
}

impl ReceiveBatch {
    pub(super) fn new() -> Self {
        // SAFETY: zero is a valid value of all three structures.
        let (header, vector, name) = unsafe {
            (
                MaybeUninit::<libc::mmsghdr>::zeroed().assume_init(),
                MaybeUninit::<libc::iovec>::zeroed().assume_init(),
                MaybeUninit::<libc::sockaddr_storage>::zeroed().assume_init(),
            )
        };
        Self {
            headers: vec![header; BATCH].into(),
            vectors: vec![vector; BATCH].into(),
            names: vec![name; BATCH].into(),
            controls: vec![Control::new(); BATCH].into(),
            bytes: vec![0; BATCH * STRIDE].into(),
            appetite: FEW,
            ones: 0,
        }
    }

    /// Receives up to `wanted` datagrams, at most [`BATCH`], without waiting.
    ///
    /// # Errors
    /// What the kernel answers; `WouldBlock` when nothing waits.
    fn receive(&mut self, socket: BorrowedFd<'_>, wanted: usize) -> io::Result<usize> {
        let wanted = wanted.min(BATCH);
        if wanted == ONE {
            return self.receive_one(socket, false);
        }
        self.prepare(wanted);
        // SAFETY: `prepare` has pointed the first `wanted` headers at memory of this value that
        // nothing else uses during the call.
        let result = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                wanted as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// Receives one datagram, on a shorter way through the kernel; with `waits` for as long as the
    /// socket does. Returns how many, as [`Self::receive`].
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub(super) fn receive_one(&mut self, socket: BorrowedFd<'_>, waits: bool) -> io::Result<usize> {
        self.prepare(ONE);
        let header = &mut self.headers[0];
        let flags = if waits { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: `prepare` has pointed the first header at memory of this value that nothing else
        // uses during the call.
        let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header.msg_hdr, flags) };
        header.msg_len = u32::try_from(result).map_err(|_| io::Error::last_os_error())?;
        Ok(ONE)
    }

    /// Receives up to `wanted` datagrams, or fewer; 0 when none waits. Also tells whether more are
    /// likely to be waiting.
    pub(super) fn fetch(&mut self, socket: BorrowedFd<'_>, wanted: usize) -> (usize, bool) {
        let wanted = wanted.min(self.appetite);
        let count = self.fetch_all(socket, wanted);
        let bytes: usize = self.headers[..count].iter().map(|header| header.msg_len as usize).sum();
        let is_full = count == wanted;
        self.ones = if count == ONE && wanted == ONE { self.ones + 1 } else { 0 };
        self.appetite = match count {
            0 => ONE,
            ONE if wanted == ONE && self.ones < OFTEN => ONE,
            _ if wanted > ONE && is_full && bytes < MUCH => BATCH,
            _ => FEW,
        };
        (count, is_full && wanted > ONE)
    }

    fn fetch_all(&mut self, socket: BorrowedFd<'_>, wanted: usize) -> usize {
        // An error other than "nothing waits" is one that ICMP left on the socket: it is told
        // once, and the datagrams are behind it.
        let attempts = [(); 2];
        attempts
            .iter()
            .find_map(|()| match self.receive(socket, wanted) {
                Ok(count) => Some(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(0),
                Err(_) => None,
            })
            .unwrap_or(0)
    }

    fn prepare(&mut self, wanted: usize) {
        let buffers = self.bytes.chunks_exact_mut(STRIDE);
        let parts = self.vectors.iter_mut().zip(buffers).zip(&mut self.names);
        let parts = parts.zip(&mut self.controls).zip(&mut self.headers);
        for ((((vector, buffer), name), control), header) in parts.take(wanted) {
            vector.iov_base = buffer.as_mut_ptr().cast();
            vector.iov_len = BUFFER;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = ptr::from_mut(name).cast();
            header.msg_hdr.msg_namelen = size_of_val(name) as libc::socklen_t;
            header.msg_hdr.msg_control = control.as_mut_ptr();
            header.msg_hdr.msg_controllen = Control::SIZE as _;
            header.msg_hdr.msg_flags = 0;
            header.msg_len = 0;
        }
    }

    /// Datagram `index` of the last call.
    pub(super) fn datagram(&self, index: usize) -> Datagram<'_> {
        let header = &self.headers[index];
        let length = (header.msg_len as usize).min(BUFFER);
        #[allow(clippy::unnecessary_cast, reason = "some C libraries have a smaller type here")]
        let control_length = header.msg_hdr.msg_controllen as usize;
        Datagram {
            source: address_of(&self.names[index]),
            bytes: &self.bytes[index * STRIDE..index * STRIDE + length],
            control: self.controls[index].read(control_length),
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        }
    }
}

pub(super) fn address_of(name: &libc::sockaddr_storage) -> Option<(IpAddr, u16)> {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is larger than, and aligned for, any socket address, and every
            // bit pattern is a valid one.
            let name = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some((address.into(), u16::from_be(name.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in6>() };
            let address = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some((address.into(), u16::from_be(name.sin6_port)))
        }
        _ => None,
    }
}
