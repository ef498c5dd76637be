//! What the integration tests share: skipping aloud, waiting, networks of their own.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

pub mod network;
pub mod program;

use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Says on standard error, past the harness's capture, that the running test does not run.
pub fn skip(reason: &str) {
    let line = format!("SKIPPED {}: {reason}\n", test_name());
    std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
}

/// Skips the running test for want of `need`, such as `root` or `tshark`; fails it if the
/// environment variable `UROCE_REQUIRE`, a comma list, says that `need` is there.
pub fn skip_unless(need: &str, reason: &str) {
    let required = std::env::var("UROCE_REQUIRE").unwrap_or_default();
    assert!(!is_required(&required, need), "UROCE_REQUIRE names {need}, but: {reason}");
    skip(&format!("needs {need}: {reason}"));
}

/// Whether a comma list names `need`.
pub fn is_required(list: &str, need: &str) -> bool {
    list.split(',').any(|word| word.trim() == need)
}

fn test_name() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

/// Waits until one of the descriptors is readable; false after `milliseconds` without.
pub fn wait_readable(descriptors: &[RawFd], milliseconds: i32) -> bool {
    let mut polls: Vec<libc::pollfd> = descriptors
        .iter()
        .map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 })
        .collect();
    #[allow(unsafe_code)]
    // SAFETY: pointer and length describe the vector.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as _, milliseconds) };
    ready > 0
}

/// Sets a socket option whose value is an int.
pub fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) {
    #[allow(unsafe_code)]
    // SAFETY: pointer and length describe `value`, which outlives the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), 4) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
