//! The key table: which keys name which memory, and what may be done with it.
//!
//! A key is an index (24 bits) and a generation (8 bits) that changes whenever the index is used
//! anew, and a freed index rests until others have been freed, so that a stale key finds nothing
//! for a long time ([`RESTING`] × 256 registrations). One number serves as local and as remote key. A key is
//! looked up for each packet, and nothing is kept between packets.

use std::collections::VecDeque;

use super::access::Access;
use super::denial::Grant;
use super::region::{AtomicChange, Backing};
use crate::rng::Rng;

/// Protection domain: what a queue pair may touch is what lies in its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainId(pub(crate) u32);

/// Why a key did not give access. The same for local and remote keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// No memory has this key (never had, or no longer).
    Unknown,
    /// The memory lies in another protection domain.
    WrongDomain,
    /// The range is not inside the memory.
    OutOfBounds,
    /// The memory was not registered for this kind of access.
    Permission,
    /// An atomic access is not aligned to 8 bytes.
    Misaligned,
    /// The key's memory cannot be invalidated.
    NotInvalidatable,
}

/// Why memory could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The device's limit is reached.
    #[error("the device's limit of {0} memory regions is reached: deregister some first")]
    TooMany(u32),
    /// Rights that make no sense together.
    #[error("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE (specification, section 10.6.3.1)")]
    RemoteWithoutLocalWrite,
    /// The address range wraps around.
    #[error(
        "{length} bytes from address {address:#x} on reach beyond the end of the address space"
    )]
    AddressOverflow {
        /// First address.
        address: u64,
        /// Bytes.
        length: usize,
    },
}

#[derive(Debug)]
struct Region {
    backing: Backing,
    /// The address by which work requests name the first byte.
    base: u64,
    domain: DomainId,
    access: Access,
    /// Cleared by an invalidation; the region still exists until it is deregistered.
    valid: bool,
}

#[derive(Debug)]
struct Entry {
    generation: u8,
    region: Option<Region>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct KeyTable {
    entries: Vec<Entry>,
    /// Oldest first.
    free: VecDeque<u32>,
    limit: u32,
    rng: Rng,
}

/// A checked range of registered memory, usable until the table changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    backing: &'a Backing,
    offset: usize,
    length: usize,
}

impl KeyTable {
    pub(crate) fn new(limit: u32, rng: Rng) -> Self {
        // Index 0 stays empty, so that no key is below 256 and key 0 is never valid.
        let reserved = Entry { generation: 0, region: None };
        Self { entries: vec![reserved], free: VecDeque::new(), limit, rng }
    }

    /// Registers memory; `base` is the address by which it will be named.
    pub(crate) fn register(
        &mut self,
        backing: Backing,
        base: u64,
        domain: DomainId,
        access: Access,
    ) -> Result<u32, RegisterError> {
        let remote_change =
            access.bits() & (Access::REMOTE_WRITE.bits() | Access::REMOTE_ATOMIC.bits());
        if remote_change != 0 && !access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::RemoteWithoutLocalWrite);
        }
        let length = backing.len();
        if base.checked_add(length as u64).is_none() {
            return Err(RegisterError::AddressOverflow { address: base, length });
        }
        let index = self.take_index()?;
        let entry = &mut self.entries[index as usize];
        entry.region = Some(Region { backing, base, domain, access, valid: true });
        Ok(index << 8 | u32::from(entry.generation))
    }

    fn take_index(&mut self) -> Result<u32, RegisterError> {
        let index = self.entries.len() as u32;
        let full = index > self.limit;
        if full || self.free.len() > RESTING {
            return self.free.pop_front().ok_or(RegisterError::TooMany(self.limit));
        }
        let generation = self.rng.next_u32() as u8;
        self.entries.push(Entry { generation, region: None });
        Ok(index)
    }

    /// Ends a registration. Returns whether the key was a live one.
    pub(crate) fn deregister(&mut self, key: u32) -> bool {
        let index = key >> 8;
        let Some(entry) = self.entries.get_mut(index as usize) else { return false };
        if entry.region.is_none() || entry.generation != key as u8 {
            return false;
        }
        entry.region = None;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push_back(index);
        true
    }

    /// How many regions exist in `domain`.
    pub(crate) fn count_in(&self, domain: DomainId) -> usize {
        let regions = self.entries.iter().filter_map(|entry| entry.region.as_ref());
        regions.filter(|region| region.domain == domain).count()
    }

    fn region(&self, key: u32) -> Option<&Region> {
        let entry = self.entries.get((key >> 8) as usize)?;
        let region = entry.region.as_ref()?;
        (entry.generation == key as u8 && region.valid).then_some(region)
    }

    /// The memory from `address` on for `length` bytes, if `key` gives `need` there in `domain`.
    pub(crate) fn span(
        &self,
        key: u32,
        domain: DomainId,
        address: u64,
        length: usize,
        need: Access,
    ) -> Result<Span<'_>, KeyFault> {
        let region = self.region(key).ok_or(KeyFault::Unknown)?;
        if region.domain != domain {
            return Err(KeyFault::WrongDomain);
        }
        if !region.access.contains(need) {
            return Err(KeyFault::Permission);
        }
        let offset = address.checked_sub(region.base).ok_or(KeyFault::OutOfBounds)?;
        let offset = usize::try_from(offset).map_err(|_| KeyFault::OutOfBounds)?;
        let end = offset.checked_add(length).ok_or(KeyFault::OutOfBounds)?;
        if end > region.backing.len() {
            return Err(KeyFault::OutOfBounds);
        }
        Ok(Span { backing: &region.backing, offset, length })
    }

    /// The word at `address` for a remote atomic operation. Both the wire's address and the real
    /// one must be aligned.
    pub(crate) fn atomic(
        &self,
        key: u32,
        domain: DomainId,
        address: u64,
        change: AtomicChange,
    ) -> Result<u64, KeyFault> {
        let span = self.span(key, domain, address, 8, Access::REMOTE_ATOMIC)?;
        if !address.is_multiple_of(8) || !span.backing.is_aligned(span.offset) {
            return Err(KeyFault::Misaligned);
        }
        Ok(span.backing.atomic(span.offset, change))
    }

    /// What a live key stands for.
    pub(super) fn grant_of(&self, key: u32) -> Option<Grant> {
        let region = self.region(key)?;
        let length = region.backing.len() as u64;
        Some(Grant { address: region.base, length, access: region.access })
    }

    /// Whether [`Self::invalidate`] would succeed.
    pub(crate) fn can_invalidate(&self, key: u32, domain: DomainId) -> Result<(), KeyFault> {
        let region = self.region(key).ok_or(KeyFault::Unknown)?;
        if region.domain != domain {
            Err(KeyFault::WrongDomain)
        } else if !region.access.contains(Access::INVALIDATE) {
            Err(KeyFault::NotInvalidatable)
        } else {
            Ok(())
        }
    }

    /// Makes a key invalid; its memory stays registered, unreachable, until it is deregistered.
    pub(crate) fn invalidate(&mut self, key: u32, domain: DomainId) -> Result<(), KeyFault> {
        self.can_invalidate(key, domain)?;
        if let Some(region) = self.entries[(key >> 8) as usize].region.as_mut() {
            region.valid = false;
        }
        Ok(())
    }
}

impl Span<'_> {
    /// Writes `source`, which must have the span's length.
    pub(crate) fn write(&self, source: &[u8]) {
        assert_eq!(source.len(), self.length, "a span is written as a whole");
        self.backing.copy_in(self.offset, source);
    }

    /// Reads into `target`, which must have the span's length.
    pub(crate) fn read(&self, target: &mut [u8]) {
        assert_eq!(target.len(), self.length, "a span is read as a whole");
        self.backing.copy_out(self.offset, target);
    }
}

/// Freed indexes that are kept from use, as long as the limit allows.
const RESTING: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::OwnedMemory;

    const DOMAIN: DomainId = DomainId(1);

    fn register(table: &mut KeyTable) -> Result<u32, RegisterError> {
        let backing = Backing::owned(OwnedMemory::new(8));
        table.register(backing, 0x1000, DOMAIN, Access::NONE)
    }

    #[test]
    fn a_stale_key_does_not_become_valid_again_for_a_long_time() {
        let mut table = KeyTable::new(1000, Rng::new(1));
        let stale = register(&mut table).unwrap();
        assert!(table.deregister(stale));
        for _ in 0..RESTING * 256 {
            let key = register(&mut table).unwrap();
            let found = table.span(stale, DOMAIN, 0x1000, 8, Access::NONE);
            assert_eq!(found.err(), Some(KeyFault::Unknown));
            assert!(table.deregister(key));
        }
        assert!(table.entries.len() <= RESTING + 3, "indexes are used again");
    }

    #[test]
    fn the_limit_is_exact_and_resting_indexes_serve_when_it_is_reached() {
        let mut table = KeyTable::new(3, Rng::new(1));
        let keys = [0; 3].map(|_| register(&mut table).unwrap());
        assert_eq!(register(&mut table), Err(RegisterError::TooMany(3)));
        assert!(table.deregister(keys[1]));
        assert!(!table.deregister(keys[1]), "only once");
        let key = register(&mut table).unwrap();
        assert_eq!((key >> 8, key == keys[1]), (keys[1] >> 8, false));
        assert_eq!(register(&mut table), Err(RegisterError::TooMany(3)));
    }
}
