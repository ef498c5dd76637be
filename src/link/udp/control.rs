#![allow(unsafe_code)]
//! Control messages: what travels beside a datagram between us and the kernel.

use std::mem::MaybeUninit;

/// Room for every control message that we ask for or give, aligned as the kernel wants it.
#[repr(C, align(8))]
#[derive(Clone)]
pub(super) struct Control {
    bytes: [u8; Self::SIZE],
    used: usize,
}

/// What the kernel says beside a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// IPv4 TOS or IPv6 traffic class.
    pub(super) traffic_class: u8,
    /// Bytes of a segment, if several datagrams were merged.
    pub(super) segment: Option<usize>,
    /// Datagrams that the socket had dropped when this one was queued, modulo 2^32.
    pub(super) dropped: Option<u32>,
}

impl Control {
    /// Enough for four control messages of four bytes.
    pub(super) const SIZE: usize = 128;

    pub(super) const fn new() -> Self {
        Self { bytes: [0; Self::SIZE], used: 0 }
    }

    /// Where the kernel reads and writes.
    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    /// Bytes of the messages written by [`Control::write`].
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Writes the traffic class, unless it is the socket's, and the segment size, if the kernel is to
    /// cut the bytes.
    pub(super) fn write(&mut self, ipv6: bool, traffic_class: Option<u8>, segment: Option<u16>) {
        self.used = 0;
        if let Some(traffic_class) = traffic_class {
            let (level, kind) = traffic_class_option(ipv6);
            self.push(level, kind, &libc::c_int::from(traffic_class).to_ne_bytes());
        }
        if let Some(segment) = segment {
            self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
    }

    fn push(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        // SAFETY: both only compute with their argument.
        let (space, length) = unsafe {
            (libc::CMSG_SPACE(data.len() as u32) as usize, libc::CMSG_LEN(data.len() as u32))
        };
        assert!(self.used + space <= Self::SIZE, "two messages of four bytes fit");
        // SAFETY: zero is a valid value of every field.
        let mut header: libc::cmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.cmsg_len = length as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        let place = &mut self.bytes[self.used..self.used + space];
        place.fill(0);
        // SAFETY: `place` has room for the header, whose start is aligned because the array is
        // and every CMSG_SPACE is a multiple of the alignment.
        unsafe { place.as_mut_ptr().cast::<libc::cmsghdr>().write(header) };
        let start = length as usize - data.len();
        place[start..start + data.len()].copy_from_slice(data);
        self.used += space;
    }

    /// The data of the first message of a kind among the first `length` bytes.
    pub(super) fn find(
        &self,
        length: usize,
        level: libc::c_int,
        kind: libc::c_int,
    ) -> Option<&[u8]> {
        let mut rest = &self.bytes[..length.min(Self::SIZE)];
        while let Some((found_level, found_kind, data, following)) = split_message(rest) {
            if (found_level, found_kind) == (level, kind) {
                return Some(data);
            }
            rest = following;
        }
        None
    }

    /// Reads what the kernel wrote into the first `length` bytes.
    pub(super) fn read(&self, length: usize) -> Received {
        let mut received = Received::default();
        let mut rest = &self.bytes[..length.min(Self::SIZE)];
        while let Some((level, kind, data, following)) = split_message(rest) {
            received.note(level, kind, data);
            rest = following;
        }
        received
    }
}

impl Received {
    fn note(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        let number = data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                self.traffic_class = data.first().copied().unwrap_or(0);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.traffic_class = number.unwrap_or(0) as u8;
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                self.segment = number.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => self.dropped = number.map(|n| n as u32),
            _ => {}
        }
    }
}

pub(super) const fn traffic_class_option(ipv6: bool) -> (libc::c_int, libc::c_int) {
    if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) }
}

/// Level, type and data of the first message, and the messages after it.
fn split_message(bytes: &[u8]) -> Option<(libc::c_int, libc::c_int, &[u8], &[u8])> {
    if bytes.len() < size_of::<libc::cmsghdr>() {
        return None;
    }
    // SAFETY: the slice has a header's worth of bytes, every pattern of which is a valid header.
    let header = unsafe { bytes.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
    // SAFETY: only computes with its argument.
    let data_start = unsafe { libc::CMSG_LEN(0) } as usize;
    #[allow(clippy::unnecessary_cast, reason = "some C libraries have a smaller type here")]
    let end = header.cmsg_len as usize;
    let data = bytes.get(data_start..end)?;
    // SAFETY: only computes with its argument.
    let space = unsafe { libc::CMSG_SPACE(data.len() as u32) } as usize;
    let following = bytes.get(space..).unwrap_or(&[]);
    Some((header.cmsg_level, header.cmsg_type, data, following))
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_for_the_kernel_can_be_walked_like_what_it_writes() {
        let mut control = Control::new();
        control.write(false, Some(0x6b), Some(4200));
        let mut seen = Vec::new();
        let mut rest = &control.bytes[..control.used()];
        while let Some((level, kind, data, following)) = split_message(rest) {
            seen.push((level, kind, data.to_vec()));
            rest = following;
        }
        assert_eq!(
            seen,
            [
                (libc::IPPROTO_IP, libc::IP_TOS, 0x6bi32.to_ne_bytes().to_vec()),
                (libc::SOL_UDP, libc::UDP_SEGMENT, 4200u16.to_ne_bytes().to_vec()),
            ]
        );
    }

    #[test]
    fn every_message_that_the_kernel_sends_is_understood() {
        let mut control = Control::new();
        control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &0x6ai32.to_ne_bytes());
        control.push(libc::SOL_UDP, libc::UDP_GRO, &1100i32.to_ne_bytes());
        control.push(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &u32::MAX.to_ne_bytes());
        let expected =
            Received { traffic_class: 0x6a, segment: Some(1100), dropped: Some(u32::MAX) };
        assert_eq!(control.read(control.used()), expected);
    }

    #[test]
    fn a_cut_or_absurd_message_ends_the_walk() {
        let mut control = Control::new();
        control.push(libc::IPPROTO_IP, libc::IP_TOS, &[3]);
        assert_eq!(control.read(10), Received::default());
        assert_eq!(control.read(control.used()).traffic_class, 3);
        control.bytes[..8].fill(0xff);
        assert_eq!(control.read(Control::SIZE), Received::default());
        control.bytes[..8].fill(0);
        assert_eq!(control.read(Control::SIZE), Received::default());
    }
}
