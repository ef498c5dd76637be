//! Registered memory: a range of this process's addresses that the engine may access.
//!
//! Two kinds. An [`OwnedMemory`] is allocated here, and the application reaches it only through
//! methods that copy or are atomic. Foreign memory belongs to someone else (a C program, mostly)
//! who promises to keep it.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::copy::{copy_in, copy_out, equals};
use super::demand::{self, Unmapped};
use super::file;
use super::sum::copy_out_summed;
use crate::wire::Crc;

/// Memory for registration, zeroed, aligned to a page. Peers may change it at any time, so it is
/// read and written by copying; a 64-bit word at an aligned offset can be accessed atomically,
/// also against RDMA atomics.
pub struct OwnedMemory {
    start: NonNull<u8>,
    origin: Origin,
    length: usize,
}

/// Where memory comes from, and goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Allocated(Layout),
    File,
}

// SAFETY: the bytes are only touched by the copy routines and by atomics, which any threads may
// use at once; allocation and release happen once each.
unsafe impl Send for OwnedMemory {}
// SAFETY: as above.
unsafe impl Sync for OwnedMemory {}

/// An access that lies outside the memory, or is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Beyond the end.
    #[error("offset {offset} and {length} bytes reach beyond the region's {size} bytes")]
    OutOfBounds {
        /// First byte asked for.
        offset: usize,
        /// Bytes asked for.
        length: usize,
        /// Bytes there are.
        size: usize,
    },
    /// A 64-bit access needs an offset that is a multiple of 8.
    #[error("offset {0} is not a multiple of 8")]
    Misaligned(usize),
}

impl OwnedMemory {
    /// `length` zero bytes.
    ///
    /// # Panics
    /// If there is not that much memory; see [`OwnedMemory::try_new`].
    pub fn new(length: usize) -> Arc<Self> {
        Self::try_new(length).unwrap_or_else(|| panic!("{length} bytes cannot be allocated"))
    }

    /// `length` zero bytes; nothing if there is not that much memory.
    pub fn try_new(length: usize) -> Option<Arc<Self>> {
        let layout = Layout::from_size_align(length.max(1), 4096).ok()?;
        // SAFETY: the layout has at least one byte.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Arc::new(Self { start, origin: Origin::Allocated(layout), length }))
    }

    /// The first `length` bytes of a file, which it shares with everyone who has mapped it. Can be
    /// registered with [`super::Access::FLUSH_PERSISTENT`].
    ///
    /// Whoever makes the file shorter while it is mapped takes the memory away: the next access,
    /// a peer's included, ends the process with SIGBUS, as with every mapping.
    ///
    /// # Errors
    /// The file is shorter than `length` or `length` is 0, it was not opened for reading and
    /// writing, or the system refuses.
    pub fn map_file(file: &File, length: usize) -> io::Result<Arc<Self>> {
        let start = file::map(file, length)?;
        Ok(Arc::new(Self { start, origin: Origin::File, length }))
    }

    /// Whether a file backs it.
    pub fn is_persistent(&self) -> bool {
        self.origin == Origin::File
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Address of the first byte, which is also its address in work requests.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Copies bytes from `offset` on into `target`.
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), AccessError> {
        self.check(offset, target.len())?;
        // SAFETY: the range was checked, and the allocation lives as long as `self`.
        unsafe { copy_out(target.as_mut_ptr(), self.start.as_ptr().add(offset), target.len()) };
        Ok(())
    }

    /// A copy of `length` bytes from `offset` on.
    pub fn to_vec(&self, offset: usize, length: usize) -> Result<Vec<u8>, AccessError> {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes, offset, length)?;
        Ok(bytes)
    }

    /// Copies `length` bytes from `offset` on to the end of `bytes`.
    pub fn append_to(
        &self,
        bytes: &mut Vec<u8>,
        offset: usize,
        length: usize,
    ) -> Result<(), AccessError> {
        self.check(offset, length)?;
        bytes.reserve(length);
        let room = &mut bytes.spare_capacity_mut()[..length];
        // SAFETY: the range was checked, and the allocation lives as long as `self`; all `length`
        // bytes of the room are written before they count as bytes of the vector.
        unsafe {
            copy_out(room.as_mut_ptr().cast(), self.start.as_ptr().add(offset), length);
            bytes.set_len(bytes.len() + length);
        }
        Ok(())
    }

    /// Whether the memory holds `bytes` from `offset` on. What others change meanwhile may be seen
    /// as it was or as it is.
    pub fn holds(&self, offset: usize, bytes: &[u8]) -> Result<bool, AccessError> {
        self.check(offset, bytes.len())?;
        // SAFETY: as in `read`.
        Ok(unsafe { equals(self.start.as_ptr().add(offset), bytes) })
    }

    /// Copies `source` to `offset`.
    pub fn write(&self, offset: usize, source: &[u8]) -> Result<(), AccessError> {
        self.check(offset, source.len())?;
        // SAFETY: as in `read`.
        unsafe { copy_in(self.start.as_ptr().add(offset), source) };
        Ok(())
    }

    /// Loads the 64-bit word at `offset` (host byte order), acquiring what was written before it.
    pub fn load_u64(&self, offset: usize) -> Result<u64, AccessError> {
        Ok(self.word(offset)?.load(Ordering::Acquire))
    }

    /// Stores the 64-bit word at `offset` (host byte order), releasing what was written before.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), AccessError> {
        self.word(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Adds to the 64-bit word at `offset`, wrapping. Returns the old value.
    pub fn fetch_add(&self, offset: usize, value: u64) -> Result<u64, AccessError> {
        Ok(self.word(offset)?.fetch_add(value, Ordering::SeqCst))
    }

    /// Replaces the 64-bit word at `offset` by `new` if it is `current`. Returns the old value.
    pub fn compare_exchange(
        &self,
        offset: usize,
        current: u64,
        new: u64,
    ) -> Result<u64, AccessError> {
        let word = self.word(offset)?;
        let order = Ordering::SeqCst;
        Ok(word.compare_exchange(current, new, order, order).unwrap_or_else(|old| old))
    }

    fn word(&self, offset: usize) -> Result<&AtomicU64, AccessError> {
        self.check(offset, 8)?;
        if !offset.is_multiple_of(8) {
            return Err(AccessError::Misaligned(offset));
        }
        // SAFETY: eight bytes inside the allocation, aligned since the start is page-aligned.
        Ok(unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) })
    }

    fn check(&self, offset: usize, length: usize) -> Result<(), AccessError> {
        let size = self.length;
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(AccessError::OutOfBounds { offset, length, size }),
        }
    }
}

impl Drop for OwnedMemory {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: allocated by `new` with this layout, released once.
            Origin::Allocated(layout) => unsafe { dealloc(self.start.as_ptr(), layout) },
            // SAFETY: mapped by `map_file` with this length, and ended once.
            Origin::File => unsafe { file::unmap(self.start, self.length) },
        }
    }
}

impl std::fmt::Debug for OwnedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnedMemory({} bytes at {:#x})", self.length, self.address())
    }
}

/// A range of memory as the key table holds it: real addresses, and who keeps them alive.
#[derive(Debug)]
pub(crate) struct Backing {
    start: usize,
    length: usize,
    /// It may be unmapped at any time, and is reached through the kernel.
    on_demand: bool,
    /// Keeps it alive.
    owner: Option<Arc<OwnedMemory>>,
}

impl Backing {
    /// Memory that we own.
    pub(crate) fn owned(memory: Arc<OwnedMemory>) -> Self {
        let (start, length) = (memory.start.as_ptr() as usize, memory.length);
        Self { start, length, on_demand: false, owner: Some(memory) }
    }

    /// A part of memory that we own, if it lies inside.
    pub(crate) fn part(memory: Arc<OwnedMemory>, range: Range<usize>) -> Result<Self, AccessError> {
        let length = range.end.saturating_sub(range.start);
        memory.check(range.start, length)?;
        let start = memory.start.as_ptr() as usize + range.start;
        Ok(Self { start, length, on_demand: false, owner: Some(memory) })
    }

    /// Memory that someone else keeps.
    ///
    /// # Safety
    /// The range must stay mapped, readable, and writable if anything may write to it, until this
    /// value is dropped, and must not be behind Rust references that forbid concurrent access.
    pub(crate) unsafe fn foreign(start: *mut u8, length: usize) -> Self {
        Self { start: start as usize, length, on_demand: false, owner: None }
    }

    /// Addresses of this process behind which there may be memory or not.
    ///
    /// # Safety
    /// What is mapped there must not be behind Rust references that forbid concurrent access, as
    /// far as anything will read or write it.
    pub(crate) unsafe fn on_demand(start: *mut u8, length: usize) -> Self {
        Self { start: start as usize, length, on_demand: true, owner: None }
    }

    /// Every address of this process but the very last.
    ///
    /// # Safety
    /// As [`Backing::on_demand`], for everything.
    pub(crate) unsafe fn implicit() -> Self {
        // SAFETY: the caller promises it.
        unsafe { Self::on_demand(std::ptr::null_mut(), usize::MAX) }
    }

    /// Whether it may be unmapped at any time.
    pub(super) fn is_on_demand(&self) -> bool {
        self.on_demand
    }

    /// Whether a part of a range that lies inside is not mapped, as far as that can happen.
    pub(super) fn has_hole(&self, offset: usize, length: usize) -> bool {
        self.assert_inside(offset, length);
        self.on_demand && demand::has_hole(self.start + offset, length)
    }

    /// Real address of the first byte.
    pub(super) fn address(&self) -> u64 {
        self.start as u64
    }

    /// Whether it reaches beyond the end of the address space.
    pub(super) fn wraps(&self) -> bool {
        self.start.checked_add(self.length).is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Copies `source` to `offset`, all of which must lie inside.
    pub(super) fn copy_in(&self, offset: usize, source: &[u8]) -> Result<(), Unmapped> {
        self.assert_inside(offset, source.len());
        if self.on_demand {
            return demand::write(self.start + offset, source);
        }
        // SAFETY: inside the range, which whoever made this value vouches for.
        unsafe { copy_in((self.start + offset) as *mut u8, source) };
        Ok(())
    }

    /// Copies from `offset` to all of `target`, and goes on with a sum over the copy if there is one;
    /// the range must lie inside.
    pub(super) fn copy_out(
        &self,
        offset: usize,
        target: &mut [u8],
        sum: Option<&mut Crc>,
    ) -> Result<(), Unmapped> {
        self.assert_inside(offset, target.len());
        let source = (self.start + offset) as *const u8;
        match sum {
            _ if self.on_demand => {
                demand::read(self.start + offset, target)?;
                if let Some(sum) = sum {
                    sum.update(target);
                }
            }
            // SAFETY: as above.
            Some(sum) => unsafe { copy_out_summed(target, source, sum) },
            // SAFETY: as above.
            None => unsafe { copy_out(target.as_mut_ptr(), source, target.len()) },
        }
        Ok(())
    }

    /// Whether it can be made to survive a loss of power. Of memory that someone else keeps nobody
    /// knows what backs it.
    pub(super) fn is_persistent(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.is_persistent())
    }

    /// Makes a range that lies inside survive a loss of power. Waits until it does.
    pub(super) fn persist(&self, offset: usize, length: usize) -> io::Result<()> {
        self.assert_inside(offset, length);
        file::sync(self.start + offset, length)
    }

    /// Stores the aligned word at `offset`, all bytes at once, after everything before.
    pub(super) fn store(&self, offset: usize, value: [u8; 8]) {
        self.word(offset).store(u64::from_ne_bytes(value), Ordering::Release);
    }

    /// Whether a 64-bit atomic access at `offset` would be aligned.
    pub(super) fn is_aligned(&self, offset: usize) -> bool {
        (self.start + offset).is_multiple_of(8)
    }

    /// Applies `change` to the aligned 64-bit word at `offset`.
    pub(super) fn atomic(&self, offset: usize, change: AtomicChange) -> u64 {
        let word = self.word(offset);
        let order = Ordering::SeqCst;
        match change {
            AtomicChange::FetchAdd(add) => word.fetch_add(add, order),
            AtomicChange::CompareSwap { compare, swap } => {
                word.compare_exchange(compare, swap, order, order).unwrap_or_else(|old| old)
            }
        }
    }

    /// The aligned word at `offset`.
    fn word(&self, offset: usize) -> &AtomicU64 {
        self.assert_inside(offset, 8);
        assert!(self.is_aligned(offset), "an atomic access was not checked for alignment");
        assert!(!self.on_demand, "memory that may be unmapped has no atomic access");
        // SAFETY: eight aligned bytes inside the range.
        unsafe { AtomicU64::from_ptr((self.start + offset) as *mut u64) }
    }

    /// The last guard before memory is touched; callers check against keys and bounds before.
    fn assert_inside(&self, offset: usize, length: usize) {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(inside, "access of {length} bytes at {offset} outside of {} bytes", self.length);
    }
}

/// What an RDMA atomic does to its word, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicChange {
    /// Adds, wrapping.
    FetchAdd(u64),
    /// Replaces if equal.
    CompareSwap {
        /// The value that must be there.
        compare: u64,
        /// The value to put there.
        swap: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_memory_refuses_what_lies_outside() {
        let memory = OwnedMemory::new(16);
        memory.write(8, &[1; 8]).unwrap();
        assert_eq!(memory.to_vec(0, 16).unwrap()[7..9], [0, 1]);
        assert_eq!(
            memory.write(9, &[0; 8]),
            Err(AccessError::OutOfBounds { offset: 9, length: 8, size: 16 })
        );
        assert!(memory.to_vec(usize::MAX, 2).is_err());
        assert_eq!(memory.load_u64(4), Err(AccessError::Misaligned(4)));
        assert_eq!(memory.fetch_add(0, 5).unwrap(), 0);
        assert_eq!(memory.compare_exchange(0, 5, 9).unwrap(), 5);
        assert_eq!(memory.compare_exchange(0, 5, 11).unwrap(), 9);
        assert_eq!(memory.load_u64(0).unwrap(), 9);
    }

    #[test]
    fn a_mapped_file_holds_what_was_written_and_only_such_memory_is_persistent() {
        let path = std::env::temp_dir().join(format!("uroce-map-{}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.unwrap();
        file.set_len(10_000).unwrap();
        assert!(OwnedMemory::map_file(&file, 10_001).is_err());
        assert!(OwnedMemory::map_file(&file, 0).is_err());
        let memory = OwnedMemory::map_file(&file, 10_000).unwrap();
        memory.write(9_998, b"ok").unwrap();
        let backing = Backing::owned(Arc::clone(&memory));
        assert!(backing.is_persistent() && !Backing::owned(OwnedMemory::new(8)).is_persistent());
        backing.persist(5_000, 5_000).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[9_998..], *b"ok");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn more_memory_than_there_is_is_refused_and_ends_nothing() {
        assert!(OwnedMemory::try_new(usize::MAX).is_none());
        assert!(OwnedMemory::try_new(1 << 60).is_none());
    }
}
