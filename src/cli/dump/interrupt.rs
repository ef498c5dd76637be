//! The wish to end, from Ctrl-C or `kill`, as a descriptor that poll(2) can wait for.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Where the handler writes.
static WAKE: AtomicI32 = AtomicI32::new(-1);

/// Catches the first signal of each kind that asks for the end; the second one ends the process at
/// once, should it hang in something else. There may be one at a time.
pub struct Interrupt {
    descriptor: OwnedFd,
    caught: Vec<libc::c_int>,
}

impl Interrupt {
    /// Catches signals from now on, but for those that the process was started to ignore.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and owned by nobody else.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        WAKE.store(raw, Ordering::SeqCst);
        let mut caught = Vec::new();
        for signal in SIGNALS {
            if catch(signal)? {
                caught.push(signal);
            }
        }
        Ok(Self { descriptor, caught })
    }

    /// Waits until `other` has something to read or the end is wished for, at most so many
    /// milliseconds; a negative number has no limit.
    pub fn wait_readable(&self, other: BorrowedFd<'_>, milliseconds: i32) -> io::Result<Ready> {
        let [other, wake] = poll([other.as_raw_fd(), self.descriptor.as_raw_fd()], milliseconds)?;
        Ok(match (other, wake) {
            (_, true) => Ready::Interrupted,
            (true, false) => Ready::Readable,
            (false, false) => Ready::Nothing,
        })
    }

    /// Waits until `other` has something to read, whatever is wished for; whether it has.
    pub fn is_readable(other: BorrowedFd<'_>, longest: Duration) -> io::Result<bool> {
        let [readable] = poll([other.as_raw_fd()], longest.as_millis() as i32)?;
        Ok(readable)
    }
}

/// Which descriptors have something to read; hang-up and error count, since reading tells of them.
/// None does if a signal comes: the next look tells which.
fn poll<const N: usize>(descriptors: [RawFd; N], milliseconds: i32) -> io::Result<[bool; N]> {
    let mut polls = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: pointer and count describe the array.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as _, milliseconds) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        let is_signal = error.kind() == io::ErrorKind::Interrupted;
        return if is_signal { Ok([false; N]) } else { Err(error) };
    }
    Ok(polls.map(|poll| poll.revents != 0))
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for signal in &self.caught {
            // SAFETY: the default action needs no handler.
            unsafe { libc::signal(*signal, libc::SIG_DFL) };
        }
        WAKE.store(-1, Ordering::SeqCst);
    }
}

/// What waiting has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The time is over, or it has to be waited for again.
    Nothing,
    /// There is something to read, an end or an error.
    Readable,
    /// The end is wished for.
    Interrupted,
}

/// Catches a signal once; false if it is ignored, as under `nohup`.
fn catch(signal: libc::c_int) -> io::Result<bool> {
    // SAFETY: sigactions of zeros are valid; both pointers are to live ones, and the handler calls
    // only what is allowed in one.
    unsafe {
        let mut before: libc::sigaction = zeroed();
        if libc::sigaction(signal, std::ptr::null(), &raw mut before) < 0 {
            return Err(io::Error::last_os_error());
        }
        if before.sa_sigaction == libc::SIG_IGN {
            return Ok(false);
        }
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = wake as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(true)
}

extern "C" fn wake(_signal: libc::c_int) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: write is allowed in handlers, the pointer is to live bytes; errno is put back for
    // whoever was interrupted. A closed descriptor gives an error, which nobody needs.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(WAKE.load(Ordering::SeqCst), one.as_ptr().cast(), one.len());
        *libc::__errno_location() = errno;
    }
}
