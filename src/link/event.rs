#![allow(unsafe_code)]
//! An event that threads can sleep on with poll(2), and that can be signalled without blocking.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A kernel event counter (eventfd), non-blocking and close-on-exec: readable from the first
/// [`Event::signal`] until [`Event::clear`].
#[derive(Debug)]
pub struct Event {
    file: File,
}

impl Event {
    /// A new event, not signalled.
    ///
    /// # Errors
    /// What the kernel answers, usually that the process has too many open descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us, and nobody else owns it.
        let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self { file: File::from(owned) })
    }

    /// Makes the descriptor readable.
    pub fn signal(&self) {
        // The only failure of a non-blocking eventfd is a counter at its limit: still readable.
        let _ = (&self.file).write(&1u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable until the next signal.
    pub fn clear(&self) {
        // The only failure is that it was not signalled.
        let _ = (&self.file).read(&mut [0; 8]);
    }

    /// The descriptor to sleep on.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
