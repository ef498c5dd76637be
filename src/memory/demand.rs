//! Memory that may not be there: on-demand and implicit regions.
//!
//! The application may unmap such memory at any time, also while a packet is copied, and a plain
//! copy would then end the process with a signal. So the kernel copies, as it does between
//! processes (process_vm_readv, process_vm_writev), with ourselves as the other process: where
//! nothing is mapped, or not with the right that is needed, the call fails (1.7 µs per 4 KiB).
//!
//! The last byte is stored by a second call, after all others: programs poll it. That is all there
//! is of order; a 64-bit word is not stored as a whole. RDMA atomics are real processor atomics and
//! cannot fail without a signal, so on-demand memory has none of them ([`OnDemandCapabilities`]).
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

/// Nothing is mapped there, or without the right that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unmapped;

/// What on-demand memory can be used for, as `ibv_odp_caps` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDemandCapabilities {
    /// On-demand memory can be registered: the kernel lets us copy within our own process.
    pub supported: bool,
    /// A region can cover the whole address space.
    pub implicit: bool,
    /// SENDs may come from there, and receives lie there, on any transport.
    pub send_and_receive: bool,
    /// Peers may write there, and our WRITEs come from there.
    pub write: bool,
    /// Peers may read there, and our READs land there.
    pub read: bool,
    /// Peers may use atomic operations there: never.
    pub atomic: bool,
}

impl OnDemandCapabilities {
    /// Those of this process. Asked of the kernel once.
    pub fn query() -> Self {
        let supported = is_possible();
        Self {
            supported,
            implicit: supported,
            send_and_receive: supported,
            write: supported,
            read: supported,
            atomic: false,
        }
    }
}

/// Whether the kernel copies for us. Some sandboxes do not allow it.
pub(super) fn is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let (source, mut target) = ([0x5a_u8; 2], [0_u8; 2]);
        let address = target.as_mut_ptr() as usize;
        let written = write(address, &source).is_ok();
        let mut back = [0_u8; 2];
        written && read(address, &mut back).is_ok() && back == source
    })
}

/// Copies `source` to `target`, the last byte last. If a part is not mapped, what lies before it
/// may have been written.
pub(super) fn write(target: usize, source: &[u8]) -> Result<(), Unmapped> {
    let Some((last, bulk)) = source.split_last() else { return Ok(()) };
    write_part(target, bulk)?;
    fence(Ordering::Release);
    write_part(target + bulk.len(), std::slice::from_ref(last))
}

fn write_part(target: usize, source: &[u8]) -> Result<(), Unmapped> {
    if source.is_empty() {
        return Ok(());
    }
    let local = libc::iovec { iov_base: source.as_ptr().cast_mut().cast(), iov_len: source.len() };
    let remote = libc::iovec { iov_base: target as *mut libc::c_void, iov_len: source.len() };
    // SAFETY: both lists have one entry; the kernel reads `source` and checks `target`. The process
    // is asked for anew each time: a forked child must not write into its parent.
    let done = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    whole(done, source.len())
}

/// Copies from `source` to all of `target`.
pub(super) fn read(source: usize, target: &mut [u8]) -> Result<(), Unmapped> {
    if target.is_empty() {
        return Ok(());
    }
    let local = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
    let remote = libc::iovec { iov_base: source as *mut libc::c_void, iov_len: target.len() };
    // SAFETY: as in `write_part`; the kernel writes only to `target`.
    let done = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    fence(Ordering::Acquire);
    whole(done, target.len())
}

/// Whether a part of a range cannot be read, as far as the first pages show it. For whoever asks why
/// a copy failed.
pub(super) fn has_hole(start: usize, length: usize) -> bool {
    const PAGE: usize = 4096;
    const LOOKED_AT: usize = 1024;
    let pages = (start / PAGE * PAGE..start + length).step_by(PAGE).take(LOOKED_AT);
    pages.map(|page| read(page.max(start), &mut [0])).any(|looked| looked.is_err())
}

/// The kernel stops at the first page that is not there and tells how far it came.
fn whole(done: isize, length: usize) -> Result<(), Unmapped> {
    if usize::try_from(done) == Ok(length) { Ok(()) } else { Err(Unmapped) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_copied_and_nothing_beside_it() {
        let source: Vec<u8> = (0..9000_usize).map(|index| (index % 251) as u8).collect();
        for length in [0, 1, 2, 7, 8, 9, 4095, 4096, 4097, 9000] {
            let mut target = vec![0xee_u8; 9020];
            let start = target.as_mut_ptr() as usize + 5;
            assert_eq!(write(start, &source[..length]), Ok(()));
            let mut back = vec![0; length];
            assert_eq!(read(start, &mut back), Ok(()));
            assert_eq!(back, source[..length]);
            assert!(target[..5].iter().chain(&target[5 + length..]).all(|byte| *byte == 0xee));
        }
        assert!(is_possible());
    }

    #[test]
    fn what_is_not_mapped_is_an_error_and_no_signal() {
        assert_eq!(write(8, &[1, 2, 3]), Err(Unmapped));
        assert_eq!(read(usize::MAX - 10, &mut [0; 4]), Err(Unmapped));
        let text: &'static str = "read-only, so that nobody may write here";
        assert_eq!(write(text.as_ptr() as usize, b"X"), Err(Unmapped));
        let mut bytes = [0; 9];
        assert_eq!(read(text.as_ptr() as usize, &mut bytes), Ok(()));
        assert_eq!(&bytes, b"read-only");
    }
    #[test]
    fn a_forked_child_reaches_its_own_memory_and_not_its_parents() {
        let mut byte = Box::new(1_u8);
        let address = &raw mut *byte as usize;
        assert_eq!(write(address, &[2]), Ok(()));
        // SAFETY: the child calls only what is safe after a fork, and ends without returning.
        match unsafe { libc::fork() } {
            0 => {
                let written = write(address, &[3]).is_ok();
                // SAFETY: the byte lives; the child has its own copy of it.
                let seen = unsafe { (address as *const u8).read_volatile() };
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!(written && seen == 3))) }
            }
            child => {
                let mut status = -1;
                // SAFETY: waits for our own child.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0, "the child wrote to its own memory");
                // SAFETY: the byte lives.
                assert_eq!(unsafe { (address as *const u8).read_volatile() }, 2);
            }
        }
    }
}
