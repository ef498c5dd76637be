#![allow(unsafe_code)]
//! Sending several bursts with one system call, cut into datagrams by the kernel or by us.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use socket2::SockAddr;

use super::control::Control;
use crate::wire::SentBurst;
use crate::wire::icrc::SOCKET_IDENTIFICATIONS;

/// Bursts collected before they are sent.
pub(super) const SLOTS: usize = 16;
/// Segments in a burst: what every kernel with UDP_SEGMENT takes, and what receivers expect.
pub(super) const MAX_SEGMENTS: usize = SOCKET_IDENTIFICATIONS as usize;
/// Bytes in a burst: the UDP payload of the largest IPv4 packet.
pub(super) const MAX_BURST_BYTES: usize = 65_507;
/// From one slot to the next: slots whose addresses differ by a power of two would share the same few
/// places in the processor's caches.
const STRIDE: usize = MAX_BURST_BYTES.next_multiple_of(4096) + 17 * 64;
/// Bytes that are sent at once: the kernel's copy finds them in the nearest cache, and the receiver
/// can begin while the next burst is being made.
const FULL: usize = 48 * 1024;
/// Messages in one call, at most what sendmmsg takes.
const MESSAGES: usize = SLOTS * MAX_SEGMENTS;

/// Who cuts a burst into datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// The kernel (UDP_SEGMENT): one message a burst.
    ByKernel,
    /// We: one message a segment.
    ByUs,
}

/// A burst in a slot, the socket that it leaves through, and who cuts it.
struct Queued {
    burst: SentBurst,
    socket: usize,
    cut: Cut,
    name: SockAddr,
    control: Control,
}

/// One message of a call: a burst that the kernel cuts, or a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) slot: usize,
    pub(super) packets: usize,
    pub(super) bytes: usize,
}

/// Slots and message headers for one call, made once.
pub(super) struct SendBatch {
    bytes: Box<[u8]>,
    queued: Vec<Queued>,
    headers: Vec<libc::mmsghdr>,
    vectors: Box<[libc::iovec]>,
    /// The slot of each message.
    slots: Vec<usize>,
    /// Bytes in all slots.
    queued_bytes: usize,
}

// SAFETY: the raw pointers in headers and vectors point into the other parts of the same value,
// are written anew by each `build` and are used only by the `send`s that follow it.
unsafe impl Send for SendBatch {}

impl SendBatch {
    pub(super) fn new() -> Self {
        // SAFETY: zero is a valid value of the structure.
        let vector: libc::iovec = unsafe { MaybeUninit::zeroed().assume_init() };
        Self {
            bytes: vec![0; SLOTS * STRIDE].into(),
            queued: Vec::with_capacity(SLOTS),
            headers: Vec::with_capacity(MESSAGES),
            vectors: vec![vector; MESSAGES].into(),
            slots: Vec::with_capacity(MESSAGES),
            queued_bytes: 0,
        }
    }

    /// Whether it should be sent: all slots are taken, or there is much in them.
    pub(super) fn is_full(&self) -> bool {
        self.queued.len() == SLOTS || self.queued_bytes >= FULL
    }

    /// The next free slot; call only while not full.
    pub(super) fn free_slot(&mut self) -> &mut [u8] {
        let start = self.queued.len() * STRIDE;
        &mut self.bytes[start..start + MAX_BURST_BYTES]
    }

    /// Takes over what was put into the free slot.
    pub(super) fn push(
        &mut self,
        burst: SentBurst,
        socket: usize,
        cut: Cut,
        destination: SocketAddr,
    ) {
        debug_assert!(!self.is_full(), "a slot was free");
        let name = SockAddr::from(destination);
        self.queued_bytes += burst.length;
        self.queued.push(Queued { burst, socket, cut, name, control: Control::new() });
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Forgets all bursts.
    pub(super) fn clear(&mut self) {
        self.queued.clear();
        self.queued_bytes = 0;
    }

    /// From now on we cut the burst in `slot`; its description and bytes, because datagrams that
    /// leave one by one have another identification.
    pub(super) fn cut_by_us(&mut self, slot: usize) -> (SentBurst, &mut [u8]) {
        let queued = &mut self.queued[slot];
        queued.cut = Cut::ByUs;
        (queued.burst, &mut self.bytes[slot * STRIDE..slot * STRIDE + queued.burst.length])
    }

    /// The traffic class of the first burst from slot `first` on that leaves through `socket`.
    pub(super) fn traffic_class(&self, socket: usize, first: usize) -> Option<u8> {
        let queued = self.queued[first..].iter().find(|queued| queued.socket == socket)?;
        Some(queued.burst.traffic_class)
    }

    /// Makes messages of the bursts from slot `first` on that leave through `socket`, which gives
    /// `traffic_class` to those that say nothing else; returns how many messages.
    pub(super) fn build(&mut self, socket: usize, first: usize, traffic_class: u8) -> usize {
        self.headers.clear();
        self.slots.clear();
        for slot in first..self.queued.len() {
            if self.queued[slot].socket == socket {
                self.add_messages(slot, traffic_class);
            }
        }
        self.headers.len()
    }

    fn add_messages(&mut self, slot: usize, of_socket: u8) {
        let Queued { burst, cut, name, control, .. } = &mut self.queued[slot];
        let by_kernel = *cut == Cut::ByKernel && burst.packets() > 1;
        let segment = by_kernel.then_some(burst.segment as u16);
        let traffic_class = (burst.traffic_class != of_socket).then_some(burst.traffic_class);
        control.write(burst.flow.destination.is_ipv6(), traffic_class, segment);
        let step = if by_kernel { burst.length } else { burst.segment };
        let bytes = &mut self.bytes[slot * STRIDE..slot * STRIDE + burst.length];
        for piece in bytes.chunks_mut(step) {
            let vector = &mut self.vectors[self.headers.len()];
            vector.iov_base = piece.as_mut_ptr().cast();
            vector.iov_len = piece.len();
            // SAFETY: zero is a valid value of the structure.
            let mut header: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = name.len();
            header.msg_hdr.msg_control = control.as_mut_ptr();
            header.msg_hdr.msg_controllen = control.used() as _;
            self.headers.push(header);
            self.slots.push(slot);
        }
    }

    /// What message `index` carries.
    pub(super) fn message(&self, index: usize) -> Message {
        let (slot, bytes) = (self.slots[index], self.vectors[index].iov_len);
        Message { slot, packets: bytes.div_ceil(self.queued[slot].burst.segment), bytes }
    }

    /// Sends the messages from `first` on; returns how many the kernel took.
    ///
    /// # Errors
    /// What the kernel answers to message `first`; the ones after it are untouched.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, first: usize) -> io::Result<usize> {
        let headers = &mut self.headers[first..];
        if let [only] = headers {
            return send_one(socket, only);
        }
        // SAFETY: `build` has pointed these headers at slots, names and
        // controls of this value, none of which has moved or changed since.
        let result = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
            )
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

/// As `sendmmsg` for one message: a shorter way through the kernel, and the shortest for one that has
/// nothing beside its bytes.
fn send_one(socket: BorrowedFd<'_>, message: &libc::mmsghdr) -> io::Result<usize> {
    let (socket, header) = (socket.as_raw_fd(), &message.msg_hdr);
    // SAFETY: only `SendBatch::send` calls this, with a header that `build` has pointed at slots,
    // names and controls of the same value, none of which has moved or changed since; each has one
    // vector.
    let result = unsafe {
        if header.msg_controllen == 0 {
            let vector = &*header.msg_iov;
            libc::sendto(
                socket,
                vector.iov_base,
                vector.iov_len,
                libc::MSG_DONTWAIT,
                header.msg_name.cast(),
                header.msg_namelen,
            )
        } else {
            libc::sendmsg(socket, header, libc::MSG_DONTWAIT)
        }
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(1) }
}
