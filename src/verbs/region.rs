//! Memory regions: memory that the device may access.

use std::ops::Deref;
use std::sync::Arc;

use super::ProtectionDomain;
use crate::engine::MemoryKeys;
use crate::memory::OwnedMemory;
use crate::queue::{Access, Remote, Sge};
use crate::wire::{Lkey, Rkey};

/// Registered memory. Its bytes are reached through the methods of [`OwnedMemory`], which copy or
/// are atomic, since a peer may change them at any time. Dropping it ends the registration.
pub struct MemoryRegion {
    domain: ProtectionDomain,
    memory: Arc<OwnedMemory>,
    keys: MemoryKeys,
    access: Access,
}

impl MemoryRegion {
    pub(super) fn new(
        domain: ProtectionDomain,
        memory: Arc<OwnedMemory>,
        keys: MemoryKeys,
        access: Access,
    ) -> Self {
        Self { domain, memory, keys, access }
    }

    /// The key for our own work requests.
    pub fn local_key(&self) -> Lkey {
        self.keys.local
    }

    /// The key to give to a peer.
    pub fn remote_key(&self) -> Rkey {
        self.keys.remote
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// `length` bytes from `offset` on, for a work request. A range that is not inside is refused
    /// when the request is carried out.
    pub fn segment(&self, offset: usize, length: usize) -> Sge {
        let address = self.memory.address().wrapping_add(offset as u64);
        Sge { address, length: length as u32, key: self.keys.local }
    }

    /// The place `offset` bytes in, as a peer names it.
    pub fn remote(&self, offset: usize) -> Remote {
        let address = self.memory.address().wrapping_add(offset as u64);
        Remote { address, key: self.keys.remote }
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

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let key = self.keys.local;
        // The key is live: nothing else deregisters it.
        let _ = self.domain.context().control(|engine, _| engine.deregister(key));
    }
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("memory", &self.memory)
            .field("key", &self.keys.local)
            .field("access", &self.access)
            .finish()
    }
}
