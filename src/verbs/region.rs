//! Memory regions: memory that the device may access.

use std::ops::Deref;
use std::sync::Arc;

use super::{ProtectionDomain, VerbsError};
use crate::engine::{Engine, MemoryKeys, Translation};
use crate::host;
use crate::memory::OwnedMemory;
use crate::queue::{Access, Remote, Sge};
use crate::wire::{Lkey, Rkey};

/// Keys that are deregistered when this is dropped. Windows that are bound to the region then grant
/// nothing any more.
struct Registration {
    domain: ProtectionDomain,
    keys: MemoryKeys,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let key = self.keys.local;
        // The key is live: nothing else deregisters it.
        let call = || format!("dereg_mr({key})");
        let deregister = |engine: &mut Engine, _| engine.deregister_with_windows(key);
        let _ = self.domain.context().tell_control(call, deregister);
    }
}

/// Registered memory. Its bytes are reached through the methods of [`OwnedMemory`], which copy or
/// are atomic, since a peer may change them at any time. Dropping it ends the registration.
pub struct MemoryRegion {
    registration: Registration,
    memory: Arc<OwnedMemory>,
    /// The address by which work requests name the first byte.
    base: u64,
    access: Access,
}

impl MemoryRegion {
    pub(super) fn new(
        domain: ProtectionDomain,
        memory: Arc<OwnedMemory>,
        keys: MemoryKeys,
        access: Access,
    ) -> Self {
        let base = base_of(&memory, access);
        Self { registration: Registration { domain, keys }, memory, base, access }
    }

    /// The key for our own work requests.
    pub fn local_key(&self) -> Lkey {
        self.registration.keys.local
    }

    /// The key to give to a peer.
    pub fn remote_key(&self) -> Rkey {
        self.registration.keys.remote
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// `length` bytes from `offset` on, for a work request. A range that is not inside is refused
    /// when the request is carried out, and more bytes than a message can have when it is posted.
    pub fn segment(&self, offset: usize, length: usize) -> Sge {
        segment(self.base, offset, length, self.local_key())
    }

    /// The place `offset` bytes in, as a peer names it.
    pub fn remote(&self, offset: usize) -> Remote {
        let address = self.base.wrapping_add(offset as u64);
        Remote { address, key: self.registration.keys.remote }
    }

    /// Changes the registration: its memory, its protection domain, its rights, whichever is given.
    /// It has new keys then, and the old ones are dead. If that is refused, all is as it was.
    ///
    /// # Errors
    /// Memory windows are bound to it, nothing is given, the domain is of another device, or what
    /// results could not be registered.
    pub fn reregister(&mut self, change: RegionChange<'_>) -> Result<(), VerbsError> {
        let RegionChange { memory, domain, access } = change;
        let translation = memory.as_ref().map(|memory| Translation::owned(Arc::clone(memory)));
        self.registration.reregister(translation, domain, access)?;
        self.access = access.unwrap_or(self.access);
        self.memory = memory.unwrap_or_else(|| Arc::clone(&self.memory));
        self.base = base_of(&self.memory, self.access);
        Ok(())
    }

    /// Ends the registration and gives the memory back, unless memory windows are bound to it.
    ///
    /// # Errors
    /// The region as it was, and why.
    pub fn try_deregister(self) -> Result<Arc<OwnedMemory>, (Self, VerbsError)> {
        match self.registration.check_unused() {
            Ok(()) => Ok(self.deregister()),
            Err(error) => Err((self, error)),
        }
    }

    /// Ends the registration and gives the memory back. Memory windows that are bound to it grant
    /// nothing any more.
    pub fn deregister(self) -> Arc<OwnedMemory> {
        Arc::clone(&self.memory)
    }
}

impl Deref for MemoryRegion {
    type Target = OwnedMemory;
    fn deref(&self) -> &OwnedMemory {
        &self.memory
    }
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("memory", &self.memory)
            .field("key", &self.registration.keys.local)
            .field("access", &self.access)
            .finish()
    }
}

/// What [`MemoryRegion::reregister`] changes; what is not given stays.
#[derive(Debug, Default)]
pub struct RegionChange<'a> {
    /// Other memory.
    pub memory: Option<Arc<OwnedMemory>>,
    /// Another protection domain of the same device.
    pub domain: Option<&'a ProtectionDomain>,
    /// Other rights.
    pub access: Option<Access>,
}

impl Registration {
    fn reregister(
        &mut self,
        translation: Option<Translation>,
        domain: Option<&ProtectionDomain>,
        access: Option<Access>,
    ) -> Result<(), VerbsError> {
        let id = domain.map(|domain| self.domain.id_beside(domain)).transpose()?;
        let key = self.keys.local;
        let call = || format!("rereg_mr({key})");
        self.keys = self
            .domain
            .context()
            .tell_control(call, |engine, _| engine.reregister(key, translation, id, access))?;
        if let Some(domain) = domain {
            self.domain = domain.clone();
        }
        Ok(())
    }

    fn check_unused(&self) -> Result<(), VerbsError> {
        let key = self.keys.local;
        Ok(self.domain.context().control(|engine, _| engine.check_free_of_windows(key))??)
    }
}

/// The address by which the first byte of our own memory is named.
fn base_of(memory: &OwnedMemory, access: Access) -> u64 {
    if access.contains(Access::ZERO_BASED) { 0 } else { memory.address() }
}

/// Registered memory that someone else owns and accesses. Dropping it ends the registration; from
/// then on nothing of ours touches the memory.
pub struct ForeignRegion {
    registration: Registration,
    start: usize,
    /// The address by which work requests name the first byte.
    base: u64,
    length: usize,
    access: Access,
}

impl ForeignRegion {
    pub(super) fn new(
        domain: ProtectionDomain,
        (start, length): (usize, usize),
        keys: MemoryKeys,
        access: Access,
    ) -> Self {
        let base = if access.contains(Access::ZERO_BASED) { 0 } else { start as u64 };
        Self { registration: Registration { domain, keys }, start, base, length, access }
    }

    /// The key for our own work requests.
    pub fn local_key(&self) -> Lkey {
        self.registration.keys.local
    }

    /// The key to give to a peer.
    pub fn remote_key(&self) -> Rkey {
        self.registration.keys.remote
    }

    /// Changes the registration: its memory, its protection domain, its rights, whichever is given.
    /// It has new keys then, and the old ones are dead. If that is refused, all is as it was.
    ///
    /// # Errors
    /// As [`MemoryRegion::reregister`], and for the memory as
    /// [`ProtectionDomain::register_foreign`].
    ///
    /// # Safety
    /// As [`ProtectionDomain::register_foreign`], with the memory and rights that result.
    #[allow(unsafe_code, reason = "passes the caller's promise on")]
    pub unsafe fn reregister(
        &mut self,
        memory: Option<(*mut u8, usize)>,
        domain: Option<&ProtectionDomain>,
        access: Option<Access>,
    ) -> Result<(), VerbsError> {
        let access_then = access.unwrap_or(self.access);
        let (start, length) = memory.unwrap_or((self.start as *mut u8, self.length));
        if !access_then.contains(Access::ON_DEMAND) {
            host::check_mapped(start as usize, length, access_then.contains(Access::LOCAL_WRITE))?;
        }
        let translation = memory.map(|(start, length)| {
            // SAFETY: the caller promises what is asked for.
            unsafe { Translation::foreign(start, length, start as u64, access_then) }
        });
        self.registration.reregister(translation, domain, access)?;
        self.access = access_then;
        (self.start, self.length) = (start as usize, length);
        self.base = if access_then.contains(Access::ZERO_BASED) { 0 } else { start as u64 };
        Ok(())
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// `length` bytes from `offset` on, for a work request; see [`MemoryRegion::segment`].
    pub fn segment(&self, offset: usize, length: usize) -> Sge {
        segment(self.base, offset, length, self.local_key())
    }

    /// The place `offset` bytes in, as a peer names it.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { address: self.base.wrapping_add(offset as u64), key: self.remote_key() }
    }
}

impl std::fmt::Debug for ForeignRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ForeignRegion({} bytes at {:#x}, {})", self.length, self.base, self.local_key())
    }
}

fn segment(base: u64, offset: usize, length: usize, key: Lkey) -> Sge {
    let address = base.wrapping_add(offset as u64);
    // What does not fit the field must not become something small that does.
    Sge { address, length: u32::try_from(length).unwrap_or(u32::MAX), key }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::MAX_MESSAGE;

    #[test]
    fn a_length_beyond_32_bits_does_not_become_a_short_segment() {
        let length = |length| segment(0, 0, length, Lkey::new(1)).length;
        assert_eq!(length(1 << 20), 1 << 20);
        assert!(u64::from(length(1 << 32)) > MAX_MESSAGE);
    }
}
