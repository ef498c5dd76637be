//! What can be registered, and how a registration is changed.

use super::access::Access;
use super::demand;
use super::error::RegisterError;
use super::keys::{Content, DomainId, KeyTable, Kind, Region};
use super::region::Backing;

/// What a re-registration changes; what is not given stays.
#[derive(Debug, Default)]
pub(crate) struct RegionChange {
    /// The memory, and the address by which its first byte is named.
    pub(crate) translation: Option<(Backing, u64)>,
    pub(crate) domain: Option<DomainId>,
    pub(crate) access: Option<Access>,
}

/// Rights that say how memory is reached and named, and nothing of who may.
pub(super) const ADDRESSING: Access = Access::ON_DEMAND.union(Access::ZERO_BASED);

impl KeyTable {
    /// Changes a registration, which gets a new key; the old one is dead. If that is refused, the
    /// registration is as it was. The caller has made sure that no windows are bound to it.
    pub(crate) fn reregister(
        &mut self,
        key: u32,
        change: RegionChange,
    ) -> Result<u32, RegisterError> {
        if change.translation.is_none() && change.domain.is_none() && change.access.is_none() {
            return Err(RegisterError::NothingToChange);
        }
        let old = self.registered(key).ok_or(RegisterError::NoSuchRegion)?;
        let domain = change.domain.unwrap_or(old.domain);
        let access = change.access.unwrap_or(old.access);
        match &change.translation {
            Some((backing, base)) => check(backing, base_of(*base, access), access)?,
            None => {
                if old.addressing() != access.bits() & ADDRESSING.bits() {
                    return Err(RegisterError::AddressingChanged);
                }
                check(&old.backing, old.base, access)?;
            }
        }
        // Where no other index is left, the generation alone tells old and new apart.
        let old_index = key >> 8;
        let index = self.take_index(Kind::Region).unwrap_or(old_index);
        let Some(Content::Region(old)) = self.take(old_index) else {
            return Err(RegisterError::NoSuchRegion);
        };
        let (backing, base) = change.translation.unwrap_or((old.backing, old.base));
        if index != old_index {
            self.rest(old_index);
        }
        let base = base_of(base, access);
        let region = Region { backing, base, domain, access, valid: true, windows: 0 };
        Ok(self.put(index, Content::Region(region)))
    }
}

/// The address by which the first byte is named.
pub(super) const fn base_of(base: u64, access: Access) -> u64 {
    if access.contains(Access::ZERO_BASED) { 0 } else { base }
}

/// Whether memory can be registered by this address with these rights.
pub(super) fn check(backing: &Backing, base: u64, access: Access) -> Result<(), RegisterError> {
    let changes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if changes && !access.contains(Access::LOCAL_WRITE) {
        return Err(RegisterError::RemoteWithoutLocalWrite);
    }
    if access.contains(Access::FLUSH_PERSISTENT) && !backing.is_persistent() {
        return Err(RegisterError::NotPersistent);
    }
    let length = backing.len();
    if base.checked_add(length as u64).is_none() {
        return Err(RegisterError::AddressOverflow { address: base, length });
    }
    if !backing.is_on_demand() {
        return Ok(());
    }
    if backing.wraps() {
        return Err(RegisterError::AddressOverflow { address: backing.address(), length });
    }
    if access.contains(Access::REMOTE_ATOMIC) {
        return Err(RegisterError::OnDemandAtomic);
    }
    if demand::is_possible() { Ok(()) } else { Err(RegisterError::NoOnDemand) }
}
