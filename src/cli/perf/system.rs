#![allow(unsafe_code)]
//! What std does not offer: socket options, and the processor time of this process.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets a socket option whose value is an int.
pub(super) fn set_option(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Nanoseconds of processor time that all threads of this process have used.
pub(super) fn processor_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call, which writes nothing else.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "every Linux has this clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_with_work() {
        let before = processor_time();
        let sum = (0..1_000_000u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
        assert!(processor_time() > before, "{sum}");
    }
}
