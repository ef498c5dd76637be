#![allow(unsafe_code)]
//! Asks the kernel for an interface's MTU. Not from /sys, which in a container may show another
//! network namespace than the thread's.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

/// Bytes of the largest IP packet of the interface `name`.
///
/// # Errors
/// What the kernel answers; no such device when there is no interface of that name.
pub(super) fn mtu_of(name: &str) -> io::Result<usize> {
    // SAFETY: zero is a valid value of the structure.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)
        .or_else(|_| Socket::new(Domain::IPV6, Type::DGRAM, None))?;
    // SAFETY: `request` names an interface with a terminating zero and outlives the call.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled in the MTU, and every bit pattern is an int.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_an_mtu_and_an_unknown_interface_an_error() {
        assert!(mtu_of("lo").unwrap() >= 1280);
        assert_eq!(mtu_of("absent0").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(mtu_of("a-name-longer-than-linux-allows").is_err());
    }
}
