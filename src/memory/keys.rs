//! The key table: which keys name which memory, and what may be done with it.
//!
//! A key is an index (24 bits) and a generation (8 bits) that changes whenever the index is used
//! anew, and a freed index rests until others have been freed, so that a stale key finds nothing
//! for a long time ([`RESTING`] × 256 registrations). One number serves as local and as remote key. A key is
//! looked up for each packet, and nothing is kept between packets.
//!
//! Regions and windows have indexes of their own: the generation of a window is what an application
//! chooses, so an index that was a window's once must never become a region's.

use std::collections::{HashMap, VecDeque};

use super::access::Access;
use super::denial::Grant;
use super::error::{KeyFault, RegisterError};
use super::region::{AtomicChange, Backing};
use super::registration::{ADDRESSING, base_of, check};
use super::window::{Window, WindowKind, next_incarnation};
use crate::rng::Rng;
use crate::wire::{Crc, Qpn, Rkey};

/// Protection domain: what a queue pair may touch is what lies in its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainId(pub(crate) u32);

impl DomainId {
    /// No domain: nothing lies in it. Queue pairs that have none of their own (XRC TGT) show it.
    pub const NONE: Self = Self(0);
}

/// Who wants to reach memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accessor {
    /// The queue pair's protection domain.
    pub(crate) domain: DomainId,
    /// The queue pair, if its peer asks; nothing for our own work requests, which windows do not
    /// serve.
    pub(crate) peer_over: Option<Qpn>,
}

impl Accessor {
    /// Our own work requests in a domain.
    pub(crate) const fn local(domain: DomainId) -> Self {
        Self { domain, peer_over: None }
    }

    /// The peer of a queue pair.
    pub(crate) const fn peer(domain: DomainId, over: Qpn) -> Self {
        Self { domain, peer_over: Some(over) }
    }
}

#[derive(Debug)]
pub(super) struct Region {
    pub(super) backing: Backing,
    /// The address by which work requests name the first byte.
    pub(super) base: u64,
    pub(super) domain: DomainId,
    pub(super) access: Access,
    /// Cleared by an invalidation; the region still exists until it is deregistered.
    pub(super) valid: bool,
    /// Windows that are bound to it.
    pub(super) windows: u32,
}

impl Region {
    pub(super) fn addressing(&self) -> u32 {
        self.access.bits() & ADDRESSING.bits()
    }

    /// Where `length` bytes from `address` on lie.
    pub(super) fn offset_of(&self, address: u64, length: usize) -> Result<usize, KeyFault> {
        let offset = address.checked_sub(self.base).ok_or(KeyFault::OutOfBounds)?;
        let offset = usize::try_from(offset).map_err(|_| KeyFault::OutOfBounds)?;
        let end = offset.checked_add(length).ok_or(KeyFault::OutOfBounds)?;
        if end > self.backing.len() { Err(KeyFault::OutOfBounds) } else { Ok(offset) }
    }
}

#[derive(Debug)]
pub(super) enum Content {
    Region(Region),
    Window(Window),
}

#[derive(Debug)]
struct Entry {
    generation: u8,
    kind: Kind,
    content: Option<Content>,
}

/// What an index is used for, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Region = 0,
    Window = 1,
}

/// Indexes of one kind.
#[derive(Debug)]
struct Pool {
    what: &'static str,
    limit: u32,
    indexes: u32,
    /// Oldest first.
    free: VecDeque<u32>,
}

impl Pool {
    fn new(what: &'static str, limit: u32) -> Self {
        Self { what, limit, indexes: 0, free: VecDeque::new() }
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct KeyTable {
    entries: Vec<Entry>,
    /// By [`Kind`].
    pools: [Pool; 2],
    /// The first window in the list of those that are bound over a queue pair.
    pub(super) bound_over: HashMap<Qpn, u32>,
    /// The incarnation of the window that was allocated last; 0 before the first.
    incarnation: u32,
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
    /// For so many regions and windows.
    pub(crate) fn new(regions: u32, windows: u32, rng: Rng) -> Self {
        // Index 0 stays empty, so that no key is below 256 and key 0 is never valid.
        let reserved = Entry { generation: 0, kind: Kind::Region, content: None };
        let pools = [Pool::new("regions", regions), Pool::new("windows", windows)];
        Self { entries: vec![reserved], pools, bound_over: HashMap::new(), incarnation: 0, rng }
    }

    /// Registers memory; `base` is the address by which it will be named.
    pub(crate) fn register(
        &mut self,
        backing: Backing,
        base: u64,
        domain: DomainId,
        access: Access,
    ) -> Result<u32, RegisterError> {
        let base = base_of(base, access);
        check(&backing, base, access)?;
        let index = self.take_index(Kind::Region)?;
        let region = Region { backing, base, domain, access, valid: true, windows: 0 };
        Ok(self.put(index, Content::Region(region)))
    }

    /// A new window, which grants nothing yet. Its key's low 8 bits are where the application may
    /// go on from.
    pub(crate) fn allocate_window(
        &mut self,
        kind: WindowKind,
        domain: DomainId,
    ) -> Result<Rkey, RegisterError> {
        let index = self.take_index(Kind::Window)?;
        self.incarnation = next_incarnation(self.incarnation);
        let window = Window::new(kind, domain, self.incarnation);
        Ok(Rkey::new(self.put(index, Content::Window(window))))
    }

    pub(super) fn put(&mut self, index: u32, content: Content) -> u32 {
        let entry = &mut self.entries[index as usize];
        entry.content = Some(content);
        index << 8 | u32::from(entry.generation)
    }

    /// Empties an entry; keys that named it name nothing.
    pub(super) fn take(&mut self, index: u32) -> Option<Content> {
        let entry = self.entries.get_mut(index as usize)?;
        let content = entry.content.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        Some(content)
    }

    pub(super) fn take_index(&mut self, kind: Kind) -> Result<u32, RegisterError> {
        let pool = &mut self.pools[kind as usize];
        if pool.indexes >= pool.limit || pool.free.len() > RESTING {
            let (what, limit) = (pool.what, pool.limit);
            return pool.free.pop_front().ok_or(RegisterError::TooMany { what, limit });
        }
        pool.indexes += 1;
        let index = self.entries.len() as u32;
        let generation = self.rng.next_u32() as u8;
        self.entries.push(Entry { generation, kind, content: None });
        Ok(index)
    }

    /// Empties an entry, whose index rests from now on.
    pub(super) fn free(&mut self, index: u32) {
        if self.take(index).is_some() {
            self.rest(index);
        }
    }

    /// An index that is empty will be used again, but not soon.
    pub(super) fn rest(&mut self, index: u32) {
        let kind = self.entries[index as usize].kind;
        self.pools[kind as usize].free.push_back(index);
    }

    /// Ends a registration. Returns whether the key was a live one, without windows.
    pub(crate) fn deregister(&mut self, key: u32) -> bool {
        let ends = self.windows_on(key) == Some(0);
        if ends {
            self.free(key >> 8);
        }
        ends
    }

    /// How many windows are bound to a region; nothing if there is no such region.
    pub(crate) fn windows_on(&self, key: u32) -> Option<u32> {
        Some(self.registered(key)?.windows)
    }

    /// How many regions and windows exist in `domain`.
    pub(crate) fn count_in(&self, domain: DomainId) -> (usize, usize) {
        let mut counts = (0, 0);
        for content in self.entries.iter().filter_map(|entry| entry.content.as_ref()) {
            match content {
                Content::Region(region) => counts.0 += usize::from(region.domain == domain),
                Content::Window(window) => counts.1 += usize::from(window.domain == domain),
            }
        }
        counts
    }

    /// Indexes in use, those that rest included.
    pub(super) fn length(&self) -> u32 {
        self.entries.len() as u32
    }

    fn content(&self, key: u32) -> Option<&Content> {
        let entry = self.entries.get((key >> 8) as usize)?;
        entry.content.as_ref().filter(|_| entry.generation == key as u8)
    }

    /// The region of a key, valid or not.
    pub(super) fn registered(&self, key: u32) -> Option<&Region> {
        match self.content(key)? {
            Content::Region(region) => Some(region),
            Content::Window(_) => None,
        }
    }

    /// The region that a key names.
    pub(super) fn region(&self, key: u32) -> Option<&Region> {
        self.registered(key).filter(|region| region.valid)
    }

    /// The window of an index.
    pub(super) fn window(&self, index: u32) -> Option<&Window> {
        match self.entries.get(index as usize)?.content.as_ref()? {
            Content::Window(window) => Some(window),
            Content::Region(_) => None,
        }
    }

    pub(super) fn window_mut(&mut self, index: u32) -> Option<&mut Window> {
        match self.entries.get_mut(index as usize)?.content.as_mut()? {
            Content::Window(window) => Some(window),
            Content::Region(_) => None,
        }
    }

    /// The low 8 bits of an index's key.
    pub(super) fn set_generation(&mut self, index: u32, generation: u8) {
        if let Some(entry) = self.entries.get_mut(index as usize) {
            entry.generation = generation;
        }
    }

    fn region_mut(&mut self, index: u32) -> Option<&mut Region> {
        match self.entries.get_mut(index as usize)?.content.as_mut()? {
            Content::Region(region) => Some(region),
            Content::Window(_) => None,
        }
    }

    /// One window more, or less, is bound to the region of an index.
    pub(super) fn count_window(&mut self, region: u32, change: i32) {
        if let Some(region) = self.region_mut(region) {
            region.windows = region.windows.wrapping_add_signed(change);
        }
    }

    /// The memory from `address` on for `length` bytes, if `key` gives `need` there to `who`.
    pub(crate) fn span(
        &self,
        key: u32,
        who: Accessor,
        address: u64,
        length: usize,
        need: Access,
    ) -> Result<Span<'_>, KeyFault> {
        match self.content(key).ok_or(KeyFault::Unknown)? {
            Content::Region(region) => {
                if !region.valid {
                    return Err(KeyFault::Unknown);
                }
                if region.domain != who.domain {
                    return Err(KeyFault::WrongDomain);
                }
                if !region.access.contains(need) {
                    return Err(KeyFault::Permission);
                }
                let offset = region.offset_of(address, length)?;
                Ok(Span { backing: &region.backing, offset, length })
            }
            Content::Window(window) => self.window_span(window, who, address, length, need),
        }
    }

    fn window_span(
        &self,
        window: &Window,
        who: Accessor,
        address: u64,
        length: usize,
        need: Access,
    ) -> Result<Span<'_>, KeyFault> {
        let over = who.peer_over.ok_or(KeyFault::Unknown)?;
        let bound = window.bound.as_ref().ok_or(KeyFault::Unknown)?;
        if window.domain != who.domain {
            return Err(KeyFault::WrongDomain);
        }
        let offset = bound.offset_of(over, address, length, need)?;
        let content = self.entries[bound.region as usize].content.as_ref();
        match content.ok_or(KeyFault::Unknown)? {
            Content::Region(region) => Ok(Span { backing: &region.backing, offset, length }),
            Content::Window(_) => Err(KeyFault::Unknown),
        }
    }

    /// The word at `address` for a remote atomic operation. Both the wire's address and the real
    /// one must be aligned.
    pub(crate) fn atomic(
        &self,
        key: u32,
        who: Accessor,
        address: u64,
        change: AtomicChange,
    ) -> Result<u64, KeyFault> {
        let span = self.span(key, who, address, 8, Access::REMOTE_ATOMIC)?;
        if span.backing.is_on_demand() {
            // Registration and binding refuse it; a real atomic here could end the process.
            return Err(KeyFault::Permission);
        }
        if !address.is_multiple_of(8) || !span.backing.is_aligned(span.offset) {
            return Err(KeyFault::Misaligned);
        }
        Ok(span.backing.atomic(span.offset, change))
    }

    /// What a live key stands for.
    pub(super) fn grant_of(&self, key: u32) -> Option<Grant> {
        match self.content(key)? {
            Content::Region(region) => region.valid.then(|| Grant {
                address: region.base,
                length: region.backing.len() as u64,
                access: region.access,
            }),
            Content::Window(window) => window.bound.as_ref().map(|bound| {
                let (address, length) = bound.addresses();
                Grant { address, length: length as u64, access: bound.rights() }
            }),
        }
    }

    /// Everything that `key` names, if it gives `need` there to `who`.
    pub(crate) fn whole(
        &self,
        key: u32,
        who: Accessor,
        need: Access,
    ) -> Result<Span<'_>, KeyFault> {
        let (address, length) = match self.content(key).ok_or(KeyFault::Unknown)? {
            Content::Region(region) => (region.base, region.backing.len()),
            Content::Window(window) => window.bound.as_ref().ok_or(KeyFault::Unknown)?.addresses(),
        };
        self.span(key, who, address, length, need)
    }

    /// Stores the word at `address` for a remote ATOMIC WRITE, all bytes at once. Both the wire's
    /// address and the real one must be aligned.
    pub(crate) fn store(
        &self,
        key: u32,
        who: Accessor,
        address: u64,
        value: [u8; 8],
    ) -> Result<(), KeyFault> {
        let span = self.span(key, who, address, 8, Access::REMOTE_WRITE)?;
        if span.backing.is_on_demand() {
            // The kernel, which reaches it for us, promises no single store.
            return Err(KeyFault::Permission);
        }
        if !address.is_multiple_of(8) || !span.backing.is_aligned(span.offset) {
            return Err(KeyFault::Misaligned);
        }
        span.backing.store(span.offset, value);
        Ok(())
    }

    /// Whether [`Self::invalidate`] would succeed.
    pub(crate) fn can_invalidate(
        &self,
        key: u32,
        domain: DomainId,
        over: Qpn,
    ) -> Result<(), KeyFault> {
        let region = match self.content(key).ok_or(KeyFault::Unknown)? {
            Content::Region(region) => region,
            Content::Window(window) => return Self::can_invalidate_window(window, domain, over),
        };
        if !region.valid {
            Err(KeyFault::Unknown)
        } else if region.domain != domain {
            Err(KeyFault::WrongDomain)
        } else if !region.access.contains(Access::INVALIDATE) {
            Err(KeyFault::NotInvalidatable)
        } else if region.windows > 0 {
            Err(KeyFault::WindowsBound)
        } else {
            Ok(())
        }
    }

    /// Makes a key invalid, by a request on queue pair `over` of `domain` or of its peer. A region
    /// stays registered, unreachable, until it is deregistered; a window can be bound again.
    pub(crate) fn invalidate(
        &mut self,
        key: u32,
        domain: DomainId,
        over: Qpn,
    ) -> Result<(), KeyFault> {
        self.can_invalidate(key, domain, over)?;
        match self.region_mut(key >> 8) {
            Some(region) => region.valid = false,
            None => self.invalidate_window(key),
        }
        Ok(())
    }
}

impl Span<'_> {
    /// Writes `source`, which must have the span's length. Fails in on-demand memory only, and may
    /// then have written a part.
    pub(crate) fn write(&self, source: &[u8]) -> Result<(), KeyFault> {
        assert_eq!(source.len(), self.length, "a span is written as a whole");
        self.backing.copy_in(self.offset, source).map_err(|_| KeyFault::Unmapped)
    }

    /// Whether it lies in memory that may be unmapped, and whether a part of it is.
    pub(super) fn may_fail(&self) -> (bool, bool) {
        (self.backing.is_on_demand(), self.backing.has_hole(self.offset, self.length))
    }

    /// Makes what was written here survive a loss of power. Waits until it does.
    pub(crate) fn persist(&self) -> std::io::Result<()> {
        self.backing.persist(self.offset, self.length)
    }

    /// Reads into `target`, which must have the span's length, and goes on with a sum over it if
    /// there is one. Fails in on-demand memory only.
    pub(crate) fn read(&self, target: &mut [u8], sum: Option<&mut Crc>) -> Result<(), KeyFault> {
        assert_eq!(target.len(), self.length, "a span is read as a whole");
        self.backing.copy_out(self.offset, target, sum).map_err(|_| KeyFault::Unmapped)
    }
}

/// Freed indexes that are kept from use, as long as the limit allows.
const RESTING: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::OwnedMemory;

    const DOMAIN: DomainId = DomainId(1);
    const TOO_MANY: RegisterError = RegisterError::TooMany { what: "regions", limit: 3 };

    fn register(table: &mut KeyTable) -> Result<u32, RegisterError> {
        let backing = Backing::owned(OwnedMemory::new(8));
        table.register(backing, 0x1000, DOMAIN, Access::NONE)
    }

    #[test]
    fn a_stale_key_does_not_become_valid_again_for_a_long_time() {
        let mut table = KeyTable::new(1000, 0, Rng::new(1));
        let stale = register(&mut table).unwrap();
        assert!(table.deregister(stale));
        for _ in 0..RESTING * 256 {
            let key = register(&mut table).unwrap();
            let found = table.span(stale, Accessor::local(DOMAIN), 0x1000, 8, Access::NONE);
            assert_eq!(found.err(), Some(KeyFault::Unknown));
            assert!(table.deregister(key));
        }
        assert!(table.entries.len() <= RESTING + 3, "indexes are used again");
    }

    #[test]
    fn the_limit_is_exact_and_resting_indexes_serve_when_it_is_reached() {
        let mut table = KeyTable::new(3, 0, Rng::new(1));
        let keys = [0; 3].map(|_| register(&mut table).unwrap());
        assert_eq!(register(&mut table), Err(TOO_MANY));
        assert!(table.deregister(keys[1]));
        assert!(!table.deregister(keys[1]), "only once");
        let key = register(&mut table).unwrap();
        assert_eq!((key >> 8, key == keys[1]), (keys[1] >> 8, false));
        assert_eq!(register(&mut table), Err(TOO_MANY));
    }
}
