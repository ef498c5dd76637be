//! Address handles: how datagrams reach a port. Resolved once, when they are made.

use super::context::Peer;
use crate::memory::DomainId;
use crate::queue::AddressHandleId;

#[derive(Debug)]
struct Handle {
    domain: DomainId,
    peer: Peer,
}

/// All address handles of a device. A number is an index and a generation, so that a stale one
/// finds nothing.
#[derive(Debug, Default)]
pub(crate) struct AddressHandles {
    entries: Vec<(u8, Option<Handle>)>,
    free: Vec<u32>,
    live: u32,
}

impl AddressHandles {
    /// A new handle.
    pub(crate) fn create(&mut self, domain: DomainId, peer: Peer) -> AddressHandleId {
        let handle = Some(Handle { domain, peer });
        self.live += 1;
        let index = if let Some(index) = self.free.pop() {
            self.entries[index as usize].1 = handle;
            index
        } else {
            self.entries.push((0, handle));
            self.entries.len() as u32 - 1
        };
        AddressHandleId(index << 8 | u32::from(self.entries[index as usize].0))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u32 {
        self.live
    }

    /// How many there are in a domain.
    pub(crate) fn count_in(&self, domain: DomainId) -> usize {
        let handles = self.entries.iter().filter_map(|(_, handle)| handle.as_ref());
        handles.filter(|handle| handle.domain == domain).count()
    }

    fn find(&self, id: AddressHandleId) -> Option<&Handle> {
        let (generation, handle) = self.entries.get((id.0 >> 8) as usize)?;
        handle.as_ref().filter(|_| *generation == id.0 as u8)
    }

    /// Where a handle leads, for a queue pair of `domain`.
    pub(crate) fn get(&self, id: AddressHandleId, domain: DomainId) -> Option<&Peer> {
        self.find(id).filter(|handle| handle.domain == domain).map(|handle| &handle.peer)
    }

    /// Ends a handle; gives back where it led.
    pub(crate) fn destroy(&mut self, id: AddressHandleId) -> Option<Peer> {
        let peer = self.find(id)?.peer;
        let index = id.0 >> 8;
        let entry = &mut self.entries[index as usize];
        *entry = (entry.0.wrapping_add(1), None);
        self.free.push(index);
        self.live -= 1;
        Some(peer)
    }
}
