//! A file in memory: what is written there can be made to survive a loss of power.
//!
//! The kernel writes pages of a shared mapping back when it likes, and at once when asked
//! (msync(2), MS_SYNC), which returns when the file system says that they are on its medium.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// Bytes of a page: ranges for msync begin at a multiple of it.
fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Maps the first `length` bytes of `file`, shared, for reading and writing.
pub(super) fn map(file: &File, length: usize) -> io::Result<NonNull<u8>> {
    let there = file.metadata()?.len();
    if length == 0 || there < length as u64 {
        let text = format!("the file has {there} bytes, and {length} are to be mapped");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let descriptor = file.as_raw_fd();
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe {
        libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, descriptor, 0)
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

/// Ends a mapping.
///
/// # Safety
/// It was made by [`map`] with this length, and nothing uses it any more.
pub(super) unsafe fn unmap(start: NonNull<u8>, length: usize) {
    // SAFETY: as the caller vouches for. An error cannot be acted on, and leaves the mapping there.
    let _ = unsafe { libc::munmap(start.as_ptr().cast(), length) };
}

/// Writes the pages that hold `length` bytes from the address `start` on back to their file, and
/// waits for it.
///
/// The kernel looks at nothing but whether they are mapped: an error comes back, never a signal.
pub(super) fn sync(start: usize, length: usize) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    let first = start / page_size() * page_size();
    let bytes = start + length - first;
    // SAFETY: msync changes no memory, and fails where nothing is mapped.
    let outcome = unsafe { libc::msync(first as *mut libc::c_void, bytes, libc::MS_SYNC) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
