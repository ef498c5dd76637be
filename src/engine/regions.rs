//! Control of memory: regions and windows.

use std::ops::Range;
use std::sync::Arc;

use super::{ControlError, Engine, MemoryKeys};
use crate::memory::{
    Backing, DomainId, OwnedMemory, RegionChange, RegisterError, WindowId, WindowKind,
};
use crate::queue::Access;
use crate::wire::{Lkey, Rkey};

/// Memory that a re-registration puts in the place of what was registered.
#[derive(Debug)]
pub struct Translation {
    backing: Backing,
    base: u64,
}

impl Translation {
    /// Memory of our own, which is named by its real address.
    pub fn owned(memory: Arc<OwnedMemory>) -> Self {
        let base = memory.address();
        Self { backing: Backing::owned(memory), base }
    }

    /// The part `range` of memory, named by `base`.
    ///
    /// # Errors
    /// The part does not lie inside the memory.
    pub fn part(
        memory: Arc<OwnedMemory>,
        range: Range<usize>,
        base: u64,
    ) -> Result<Self, ControlError> {
        Ok(Self { backing: Backing::part(memory, range)?, base })
    }

    /// Memory that someone else keeps, named by `base`.
    ///
    /// # Safety
    /// As [`Engine::register_foreign`].
    #[allow(unsafe_code, reason = "passes the caller's promise on")]
    pub unsafe fn foreign(start: *mut u8, length: usize, base: u64, access: Access) -> Self {
        // SAFETY: the caller promises what is asked for.
        let backing = unsafe { foreign(start, length, access) };
        Self { backing, base }
    }

    /// The address by which its first byte is named, unless from 0 on, and how many there are.
    pub fn range(&self) -> (u64, usize) {
        (self.base, self.backing.len())
    }
}

#[allow(unsafe_code, reason = "passes the caller's promise on")]
unsafe fn foreign(start: *mut u8, length: usize, access: Access) -> Backing {
    // SAFETY: the caller promises what both ask for.
    unsafe {
        match access.contains(Access::ON_DEMAND) {
            true => Backing::on_demand(start, length),
            false => Backing::foreign(start, length),
        }
    }
}

impl Engine {
    /// Registers memory, which is named by its real address, or with [`Access::ZERO_BASED`] from 0
    /// on.
    ///
    /// # Errors
    /// Unknown domain, limit reached, or rights that make no sense together.
    pub fn register(
        &mut self,
        domain: DomainId,
        memory: Arc<OwnedMemory>,
        access: Access,
    ) -> Result<MemoryKeys, ControlError> {
        let base = memory.address();
        self.register_backing(domain, Backing::owned(memory), base, access)
    }

    /// Registers the part `range` of memory; work requests and peers name its first byte by `base`,
    /// or with [`Access::ZERO_BASED`] by 0.
    ///
    /// # Errors
    /// As [`Engine::register`], or the part does not lie inside the memory.
    pub fn register_part(
        &mut self,
        domain: DomainId,
        memory: Arc<OwnedMemory>,
        range: Range<usize>,
        base: u64,
        access: Access,
    ) -> Result<MemoryKeys, ControlError> {
        let backing = Backing::part(memory, range)?;
        self.register_backing(domain, backing, base, access)
    }

    /// Registers memory that someone else keeps; work requests name its first byte by `base`, or
    /// with [`Access::ZERO_BASED`] by 0.
    ///
    /// With [`Access::ON_DEMAND`] the range need not be mapped: an access where it is not, or not
    /// with the right that is needed, fails (locally with a protection error, for a peer with a
    /// remote access error).
    ///
    /// # Errors
    /// As [`Engine::register`]; or on-demand memory is not possible here or asked to serve atomics.
    ///
    /// # Safety
    /// Until the key is deregistered, the range must stay mapped, readable, and writable if
    /// `access` allows anyone to write, except for on-demand memory; and no Rust reference may
    /// claim that it does not change.
    #[allow(unsafe_code, reason = "passes the caller's promise on")]
    pub unsafe fn register_foreign(
        &mut self,
        domain: DomainId,
        start: *mut u8,
        length: usize,
        base: u64,
        access: Access,
    ) -> Result<MemoryKeys, ControlError> {
        // SAFETY: the caller promises what `foreign` asks for.
        let backing = unsafe { foreign(start, length, access) };
        self.register_backing(domain, backing, base, access)
    }

    /// Registers the whole address space of the process, on demand: work requests and peers name
    /// memory by its real address.
    ///
    /// # Errors
    /// As [`Engine::register_foreign`]; or zero-based.
    ///
    /// # Safety
    /// With LOCAL_WRITE, work requests and peers that hold the key can change anything in the
    /// process: nothing that they name may be behind a Rust reference.
    #[allow(unsafe_code, reason = "passes the caller's promise on")]
    pub unsafe fn register_implicit(
        &mut self,
        domain: DomainId,
        access: Access,
    ) -> Result<MemoryKeys, ControlError> {
        if access.contains(Access::ZERO_BASED) {
            return Err(RegisterError::ImplicitZeroBased.into());
        }
        // SAFETY: the caller promises it.
        let backing = unsafe { Backing::implicit() };
        self.register_backing(domain, backing, 0, access | Access::ON_DEMAND)
    }

    fn register_backing(
        &mut self,
        domain: DomainId,
        backing: Backing,
        base: u64,
        access: Access,
    ) -> Result<MemoryKeys, ControlError> {
        self.check_domain(domain)?;
        let key = self.keys.register(backing, base, domain, access)?;
        Ok(keys(key))
    }

    /// Changes a registration: the memory, the protection domain, the rights, whichever is given.
    /// The old key is dead from the return on; if the call is refused, all is as it was.
    ///
    /// # Errors
    /// There is no such key, windows are bound to the region, nothing is given, or what results
    /// could not be registered.
    pub fn reregister(
        &mut self,
        key: Lkey,
        translation: Option<Translation>,
        domain: Option<DomainId>,
        access: Option<Access>,
    ) -> Result<MemoryKeys, ControlError> {
        self.check_free_of_windows(key)?;
        domain.map_or(Ok(()), |domain| self.check_domain(domain))?;
        let translation = translation.map(|Translation { backing, base }| (backing, base));
        let change = RegionChange { translation, domain, access };
        Ok(keys(self.keys.reregister(key.value(), change)?))
    }

    /// Ends a registration. From the return on nothing touches the memory.
    ///
    /// # Errors
    /// There is no such key, or windows are bound to the region.
    pub fn deregister(&mut self, key: Lkey) -> Result<(), ControlError> {
        self.check_free_of_windows(key)?;
        if self.keys.deregister(key.value()) { Ok(()) } else { Err(ControlError::NoSuchKey(key)) }
    }

    /// The same, and windows that are bound to the region are unbound before: for an owner who can
    /// wait for nobody.
    ///
    /// # Errors
    /// There is no such key.
    pub fn deregister_with_windows(&mut self, key: Lkey) -> Result<(), ControlError> {
        if self.keys.windows_on(key.value()).is_some_and(|windows| windows > 0) {
            self.keys.unbind_all_of(key.value());
        }
        self.deregister(key)
    }

    /// Whether a region could be deregistered.
    pub(crate) fn check_free_of_windows(&self, key: Lkey) -> Result<(), ControlError> {
        match self.keys.windows_on(key.value()) {
            None => Err(ControlError::NoSuchKey(key)),
            Some(0) => Ok(()),
            Some(windows) => Err(ControlError::RegionBusy { windows }),
        }
    }

    /// A new memory window, which grants nothing until it is bound. Its key's low 8 bits may be
    /// chosen anew with each binding of a window of type 2.
    ///
    /// # Errors
    /// Unknown domain, or a limit of the device.
    pub fn allocate_window(
        &mut self,
        domain: DomainId,
        kind: WindowKind,
    ) -> Result<Rkey, ControlError> {
        self.check_domain(domain)?;
        Ok(self.keys.allocate_window(kind, domain)?)
    }

    /// The window that a key belongs to now. Unlike with [`WindowId::of_key`], a bind request that
    /// names it fails once this window has ended, also where another one has its number by then.
    pub fn window_of(&self, key: Rkey) -> Option<WindowId> {
        self.keys.window_of(key)
    }

    /// Ends a memory window, bound or not. From the return on none of its keys grants anything.
    ///
    /// # Errors
    /// There is no such window.
    pub fn deallocate_window(&mut self, window: WindowId) -> Result<(), ControlError> {
        if self.keys.deallocate_window(window) { Ok(()) } else { Err(ControlError::NoSuchWindow) }
    }
}

const fn keys(key: u32) -> MemoryKeys {
    MemoryKeys { local: Lkey::new(key), remote: Rkey::new(key) }
}
