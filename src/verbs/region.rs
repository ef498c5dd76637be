//! Memory regions: memory that the device may access.

use std::ops::Deref;
use std::sync::Arc;

use super::ProtectionDomain;
use crate::engine::MemoryKeys;
use crate::memory::OwnedMemory;
use crate::queue::{Access, Remote, Sge};
use crate::wire::{Lkey, Rkey};

/// Keys that are deregistered when this is dropped.
struct Registration {
    domain: ProtectionDomain,
    keys: MemoryKeys,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let key = self.keys.local;
        // The key is live: nothing else deregisters it.
        let call = || format!("dereg_mr({key})");
        let _ = self.domain.context().tell_control(call, |engine, _| engine.deregister(key));
    }
}

/// Registered memory. Its bytes are reached through the methods of [`OwnedMemory`], which copy or
/// are atomic, since a peer may change them at any time. Dropping it ends the registration.
pub struct MemoryRegion {
    registration: Registration,
    memory: Arc<OwnedMemory>,
    access: Access,
}

impl MemoryRegion {
    pub(super) fn new(
        domain: ProtectionDomain,
        memory: Arc<OwnedMemory>,
        keys: MemoryKeys,
        access: Access,
    ) -> Self {
        Self { registration: Registration { domain, keys }, memory, access }
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
        segment(self.memory.address(), offset, length, self.local_key())
    }

    /// The place `offset` bytes in, as a peer names it.
    pub fn remote(&self, offset: usize) -> Remote {
        let address = self.memory.address().wrapping_add(offset as u64);
        Remote { address, key: self.registration.keys.remote }
    }

    /// Ends the registration and gives the memory back.
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

/// Registered memory that someone else owns and accesses. Dropping it ends the registration; from
/// then on nothing of ours touches the memory.
pub struct ForeignRegion {
    registration: Registration,
    base: u64,
    length: usize,
}

impl ForeignRegion {
    pub(super) fn new(
        domain: ProtectionDomain,
        base: u64,
        length: usize,
        keys: MemoryKeys,
    ) -> Self {
        Self { registration: Registration { domain, keys }, base, length }
    }

    /// The key for our own work requests.
    pub fn local_key(&self) -> Lkey {
        self.registration.keys.local
    }

    /// The key to give to a peer.
    pub fn remote_key(&self) -> Rkey {
        self.registration.keys.remote
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
