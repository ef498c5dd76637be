//! Address handles.

use super::ProtectionDomain;
use crate::engine::Engine;
use crate::queue::{AddressHandleId, Datagram};
use crate::wire::{QKey, Qpn};

/// How datagrams reach the port at an address. Dropping it destroys it; requests that name it and
/// were not sent yet then fail.
pub struct AddressHandle {
    domain: ProtectionDomain,
    id: AddressHandleId,
}

impl AddressHandle {
    pub(super) fn new(domain: ProtectionDomain, id: AddressHandleId) -> Self {
        Self { domain, id }
    }

    /// A queue pair there, as a work request names it.
    pub fn datagram(&self, queue_pair: Qpn, qkey: QKey) -> Datagram {
        Datagram { address: self.id, queue_pair, qkey }
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // It exists: nothing else destroys it.
        let call = || "destroy_ah()".to_owned();
        let destroy = |engine: &mut Engine, _| engine.destroy_address_handle(self.id);
        let _ = self.domain.context().tell_control(call, destroy);
    }
}

impl std::fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AddressHandle").field(&self.id).finish()
    }
}
