//! The key table as a plain list: every rule is asked in the order of the specification, nothing is
//! indexed, and memory is a vector of bytes.

use std::collections::{BTreeMap, BTreeSet};

use crate::memory::access::Access;
use crate::memory::error::{KeyFault, RegisterError};
use crate::memory::keys::DomainId;
use crate::memory::window::{BindFault, WindowBind, WindowId, WindowKind};
use crate::wire::Qpn;

/// Places in memory: which one, and its first byte there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) memory: usize,
    pub(super) offset: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) place: Place,
    pub(super) length: usize,
    pub(super) base: u64,
    pub(super) domain: DomainId,
    pub(super) access: Access,
    pub(super) valid: bool,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    region: u32,
    base: u64,
    place: Place,
    length: usize,
    access: Access,
    over: Option<Qpn>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) id: WindowId,
    pub(super) key: u32,
    pub(super) kind: WindowKind,
    pub(super) domain: DomainId,
    bound: Option<Bound>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub(super) domain: DomainId,
    pub(super) over: Option<Qpn>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// By key.
    pub(super) regions: BTreeMap<u32, Region>,
    pub(super) windows: Vec<Window>,
}

/// What registration says of a region, whatever is registered already.
pub(super) fn check(region: &Region) -> Result<(), RegisterError> {
    let changes = [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    let can_change = changes.into_iter().any(|right| region.access.contains(right));
    if can_change && !region.access.contains(Access::LOCAL_WRITE) {
        return Err(RegisterError::RemoteWithoutLocalWrite);
    }
    if region.access.contains(Access::FLUSH_PERSISTENT) {
        return Err(RegisterError::NotPersistent);
    }
    let (address, length) = (region.base, region.length);
    if u128::from(address) + length as u128 > u128::from(u64::MAX) {
        return Err(RegisterError::AddressOverflow { address, length });
    }
    Ok(())
}

/// Where `length` bytes from `address` on lie within what begins at `base`.
fn inside(base: u64, size: usize, address: u64, length: usize) -> Option<usize> {
    let (base, address) = (u128::from(base), u128::from(address));
    let fits = address >= base && address + length as u128 <= base + size as u128;
    fits.then(|| (address - base) as usize)
}

impl Model {
    pub(super) fn windows_on(&self, region: u32) -> Option<u32> {
        self.regions.get(&region)?;
        let bound = |window: &&Window| window.bound.is_some_and(|bound| bound.region == region);
        Some(self.windows.iter().filter(bound).count() as u32)
    }

    pub(super) fn count_in(&self, domain: DomainId) -> (usize, usize) {
        let regions = self.regions.values().filter(|region| region.domain == domain).count();
        (regions, self.windows.iter().filter(|window| window.domain == domain).count())
    }

    /// The address by which a key names its first byte.
    pub(super) fn base_of(&self, key: u32) -> Option<u64> {
        let region = self.regions.get(&key).map(|region| region.base);
        region.or_else(|| Some(self.window_of_key(key)?.bound?.base))
    }

    pub(super) fn domain_of(&self, key: u32) -> Option<DomainId> {
        let region = self.regions.get(&key).map(|region| region.domain);
        region.or_else(|| Some(self.window_of_key(key)?.domain))
    }

    pub(super) fn window_of_key(&self, key: u32) -> Option<&Window> {
        self.windows.iter().find(|window| window.key == key)
    }

    /// Where the bytes are that `key` gives, and everything that is wrong before.
    pub(super) fn span(
        &self,
        key: u32,
        who: Who,
        address: u64,
        length: usize,
        need: Access,
    ) -> Result<Place, KeyFault> {
        let (base, size, place, access) = if let Some(region) = self.regions.get(&key) {
            if !region.valid {
                return Err(KeyFault::Unknown);
            }
            if region.domain != who.domain {
                return Err(KeyFault::WrongDomain);
            }
            (region.base, region.length, region.place, region.access)
        } else {
            let window = self.window_of_key(key).ok_or(KeyFault::Unknown)?;
            let (Some(over), Some(bound)) = (who.over, window.bound) else {
                return Err(KeyFault::Unknown);
            };
            if window.domain != who.domain {
                return Err(KeyFault::WrongDomain);
            }
            if bound.over.is_some_and(|own| own != over) {
                return Err(KeyFault::WrongQueuePair);
            }
            (bound.base, bound.length, bound.place, bound.access)
        };
        if !access.contains(need) {
            return Err(KeyFault::Permission);
        }
        let inside = inside(base, size, address, length).ok_or(KeyFault::OutOfBounds)?;
        Ok(Place { offset: place.offset + inside, ..place })
    }

    pub(super) fn allocate(&mut self, id: WindowId, key: u32, kind: WindowKind, domain: DomainId) {
        self.windows.push(Window { id, key, kind, domain, bound: None });
    }

    /// The window of that name, or the present one of that number if it names no other.
    fn named(&self, id: WindowId) -> Option<usize> {
        let number = id.key(0).value();
        self.windows.iter().position(|window| {
            window.id == id || (window.id.key(0).value() == number && id == window.unnamed())
        })
    }

    pub(super) fn deallocate(&mut self, id: WindowId) -> bool {
        let found = self.named(id);
        if let Some(place) = found {
            self.windows.remove(place);
        }
        found.is_some()
    }

    pub(super) fn bind(
        &mut self,
        bind: &WindowBind,
        domain: DomainId,
        over: Qpn,
    ) -> Result<(), BindFault> {
        let place = self.named(bind.window).ok_or(BindFault::NoSuchWindow)?;
        let window = self.windows[place];
        let is_type_2 = window.kind == WindowKind::Type2B;
        let mut rights = Access::REMOTE_WRITE.union(Access::REMOTE_READ);
        rights = rights.union(Access::REMOTE_ATOMIC).union(Access::FLUSH);
        if is_type_2 {
            rights = rights.union(Access::ZERO_BASED);
        }
        let refusals = [
            (window.kind != bind.kind, BindFault::WrongKind),
            (window.domain != domain, BindFault::WrongDomain),
            (is_type_2 && window.bound.is_some(), BindFault::AlreadyBound),
            (!rights.contains(bind.access), BindFault::Rights),
            (is_type_2 && bind.length == 0, BindFault::NoLength),
        ];
        if let Some((_, fault)) = refusals.into_iter().find(|(refused, _)| *refused) {
            return Err(fault);
        }
        let bound = match bind.length {
            0 => None,
            _ => Some(self.bound(bind, domain, is_type_2.then_some(over))?),
        };
        let window = &mut self.windows[place];
        window.key = bind.key().value();
        window.bound = bound;
        Ok(())
    }

    fn bound(
        &self,
        bind: &WindowBind,
        domain: DomainId,
        over: Option<Qpn>,
    ) -> Result<Bound, BindFault> {
        let key = bind.region.value();
        let region = self.regions.get(&key).filter(|region| region.valid);
        let region = region.ok_or(BindFault::NoSuchRegion)?;
        let has = |right| region.access.contains(right);
        let wants = |right| bind.access.contains(right);
        let changes = wants(Access::REMOTE_WRITE) || wants(Access::REMOTE_ATOMIC);
        let flushes = [Access::FLUSH_GLOBAL, Access::FLUSH_PERSISTENT];
        let refusals = [
            (region.domain != domain, BindFault::WrongDomain),
            (!has(Access::MW_BIND), BindFault::NotBindable),
            (changes && !has(Access::LOCAL_WRITE), BindFault::NeedsLocalWrite),
            (flushes.iter().any(|f| wants(*f) && !has(*f)), BindFault::NotFlushable),
        ];
        if let Some((_, fault)) = refusals.into_iter().find(|(refused, _)| *refused) {
            return Err(fault);
        }
        let length = bind.length as usize;
        let offset = inside(region.base, region.length, bind.address, length);
        let offset = offset.ok_or(BindFault::OutOfBounds)?;
        let base = if wants(Access::ZERO_BASED) { 0 } else { bind.address };
        let place = Place { offset: region.place.offset + offset, ..region.place };
        Ok(Bound { region: key, base, place, length, access: bind.access, over })
    }

    pub(super) fn invalidate(
        &mut self,
        key: u32,
        domain: DomainId,
        over: Qpn,
    ) -> Result<(), KeyFault> {
        let windows = self.windows_on(key);
        if let Some(region) = self.regions.get_mut(&key) {
            let refusals = [
                (!region.valid, KeyFault::Unknown),
                (region.domain != domain, KeyFault::WrongDomain),
                (!region.access.contains(Access::INVALIDATE), KeyFault::NotInvalidatable),
                (windows != Some(0), KeyFault::WindowsBound),
            ];
            let refused = refusals.into_iter().find(|(refused, _)| *refused);
            region.valid &= refused.is_some();
            return refused.map_or(Ok(()), |(_, fault)| Err(fault));
        }
        let window = self.windows.iter_mut().find(|window| window.key == key);
        let window = window.ok_or(KeyFault::Unknown)?;
        let refusals = [
            (window.bound.is_none(), KeyFault::Unknown),
            (window.domain != domain, KeyFault::WrongDomain),
            (window.kind == WindowKind::Type1, KeyFault::NotInvalidatable),
            (window.bound.is_some_and(|b| b.over != Some(over)), KeyFault::WrongQueuePair),
        ];
        if let Some((_, fault)) = refusals.into_iter().find(|(refused, _)| *refused) {
            return Err(fault);
        }
        window.bound = None;
        Ok(())
    }

    /// The queue pairs over which windows are bound.
    pub(super) fn bound_over(&self) -> BTreeSet<Qpn> {
        self.windows.iter().filter_map(|window| window.bound?.over).collect()
    }

    pub(super) fn unbind_if(&mut self, condition: impl Fn(u32, Option<Qpn>) -> bool) {
        for window in &mut self.windows {
            if window.bound.is_some_and(|bound| condition(bound.region, bound.over)) {
                window.bound = None;
            }
        }
    }
}

impl Window {
    /// The name that stands for whichever window has this number.
    fn unnamed(&self) -> WindowId {
        WindowId::of_key(self.id.key(0))
    }
}
