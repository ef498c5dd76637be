//! Memory windows: keys of their own for a part of a region, given and taken back by work requests.
//!
//! A window is allocated in a protection domain and grants nothing until it is bound to a region
//! that was registered with [`Access::MW_BIND`]. Two types exist (specification, section 10.6.7.2):
//!
//! | | type 1 | type 2B |
//! | --- | --- | --- |
//! | bound by | the bind call | a posted work request |
//! | key | the next one, which the call returns | its low 8 bits are the application's choice |
//! | who may use it | any queue pair of the domain | the peer of the queue pair that bound it |
//! | bound again | at any time; with length 0 it grants nothing | only after it was invalidated |
//! | ended by | the next bind, deallocation | invalidation by either side, RESET or end of the queue pair, deallocation |
//! | addresses | those of the region | those of the region, or from 0 on |

use super::access::Access;
use super::error::KeyFault;
use super::keys::{DomainId, KeyTable};
use crate::wire::{Lkey, Qpn, Rkey};

/// Which rules a window follows; see [`crate::memory`]. Type 2A (any queue pair of the domain may
/// use it) does not exist beside 2B: a device has one of them (o10-37.2.31).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowKind {
    /// Bound by a call, usable over any queue pair of its protection domain.
    Type1,
    /// Bound by a posted request, usable over the queue pair that bound it.
    Type2B,
}

impl WindowKind {
    /// The types that a device here has.
    pub const ALL: [Self; 2] = [Self::Type1, Self::Type2B];
}

/// A window of a device: the upper 24 bits of all its keys, and which of the windows that have them
/// one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowId {
    index: u32,
    /// Which window of this index, counted over all windows of the device modulo 2^31 and never 0;
    /// 0 is the one that there is at the time.
    incarnation: u32,
}

impl WindowId {
    /// The largest incarnation.
    const LAST: u32 = u32::MAX >> 1;

    /// The window to which a key belongs at the time of its use, if it is a window's. An
    /// application that deallocates windows while bind requests wait should name them as
    /// `Engine::window_of` does, or such a request binds the next window with the same number.
    pub const fn of_key(key: Rkey) -> Self {
        Self { index: key.value() >> 8, incarnation: 0 }
    }

    /// The window of a key that is the `incarnation`th of its device; 0 as [`Self::of_key`].
    pub(crate) const fn new(key: Rkey, incarnation: u32) -> Self {
        Self { index: key.value() >> 8, incarnation: incarnation & Self::LAST }
    }

    /// Which of the windows with its number; 0 if that was not asked for.
    pub(crate) const fn incarnation(self) -> u32 {
        self.incarnation
    }

    /// Its key with these low 8 bits.
    pub const fn key(self, portion: u8) -> Rkey {
        Rkey::new(self.index << 8 | portion as u32)
    }
}

/// What a bind request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowBind {
    /// Which window.
    pub window: WindowId,
    /// The rules by which it is bound, which must be the window's own.
    pub kind: WindowKind,
    /// The low 8 bits of the key that it will have. Any value is allowed.
    pub portion: u8,
    /// The region, by its local key; without meaning if `length` is 0.
    pub region: Lkey,
    /// The window's first byte, in the region's address space.
    pub address: u64,
    /// Bytes. 0 makes a window of type 1 grant nothing.
    pub length: u64,
    /// What peers may do: any of REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, and of the FLUSH rights
    /// those that the region has; and for type 2B
    /// ZERO_BASED, with which peers name the first byte by 0.
    pub access: Access,
}

impl WindowBind {
    /// The key that the window has once it is bound.
    pub const fn key(&self) -> Rkey {
        self.window.key(self.portion)
    }
}

/// Why a window could not be bound. The request completes with "memory window bind error".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindFault {
    /// There is no such window.
    NoSuchWindow,
    /// A window of type 1 is bound by the call, one of type 2B by a posted request.
    WrongKind,
    /// Queue pair, window and region do not lie in one protection domain (C10-72).
    WrongDomain,
    /// A window of type 2B that was bound and not invalidated since (o10-37.2.30).
    AlreadyBound,
    /// Length 0 unbinds type 1 only (o10-37.2.40).
    NoLength,
    /// The rights hold one that windows do not have.
    Rights,
    /// There is no such region, or its key was invalidated.
    NoSuchRegion,
    /// The region was registered without [`Access::MW_BIND`] (C10-73).
    NotBindable,
    /// Peers are to change memory that was registered without LOCAL_WRITE (C10-74).
    NeedsLocalWrite,
    /// The range is not inside the region (C10-75).
    OutOfBounds,
    /// Peers are to flush memory that was not registered for it.
    NotFlushable,
    /// Atomic operations cannot reach on-demand memory.
    OnDemandAtomic,
}

/// A window in the key table.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) kind: WindowKind,
    pub(super) domain: DomainId,
    pub(super) bound: Option<Bound>,
    /// Which of the windows with its number; never 0.
    incarnation: u32,
    /// Neighbours in the list of windows that are bound over the same queue pair (type 2B).
    previous: Option<u32>,
    next: Option<u32>,
}

/// What a window grants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// Index of the region.
    pub(super) region: u32,
    /// The window's first byte, from the region's on.
    offset: usize,
    /// The address by which peers name it.
    base: u64,
    length: usize,
    access: Access,
    /// The only queue pair over which it can be used (type 2B).
    over: Option<Qpn>,
}

impl Bound {
    /// The address of the first byte, as peers name it, and how many there are.
    pub(super) const fn addresses(&self) -> (u64, usize) {
        (self.base, self.length)
    }

    /// What peers may do with it.
    pub(super) const fn rights(&self) -> Access {
        self.access
    }

    /// Where in the region `length` bytes from `address` on lie, if a peer may have `need` there
    /// over queue pair `over`.
    pub(super) fn offset_of(
        &self,
        over: Qpn,
        address: u64,
        length: usize,
        need: Access,
    ) -> Result<usize, KeyFault> {
        if self.over.is_some_and(|own| own != over) {
            return Err(KeyFault::WrongQueuePair);
        }
        if !self.access.contains(need) {
            return Err(KeyFault::Permission);
        }
        let inside = address.checked_sub(self.base).ok_or(KeyFault::OutOfBounds)?;
        let inside = usize::try_from(inside).map_err(|_| KeyFault::OutOfBounds)?;
        let end = inside.checked_add(length).ok_or(KeyFault::OutOfBounds)?;
        if end > self.length {
            return Err(KeyFault::OutOfBounds);
        }
        Ok(self.offset + inside)
    }
}

/// The incarnation after one.
pub(super) const fn next_incarnation(last: u32) -> u32 {
    if last >= WindowId::LAST { 1 } else { last + 1 }
}

impl Window {
    pub(super) fn new(kind: WindowKind, domain: DomainId, incarnation: u32) -> Self {
        Self { kind, domain, bound: None, incarnation, previous: None, next: None }
    }
}

impl KeyTable {
    /// Carries out a bind request that was posted on queue pair `over` of `domain`. On a fault
    /// nothing is changed.
    pub(crate) fn bind(
        &mut self,
        bind: &WindowBind,
        domain: DomainId,
        over: Qpn,
    ) -> Result<(), BindFault> {
        let bound = self.check_bind(bind, domain, over)?;
        let index = bind.window.index;
        self.unbind(index);
        self.set_generation(index, bind.portion);
        if let Some(bound) = bound {
            self.set_bound(index, bound);
        }
        Ok(())
    }

    /// A window, unless it has ended and another one has its number.
    fn named(&self, id: WindowId) -> Option<&Window> {
        let window = self.window(id.index)?;
        [0, window.incarnation].contains(&id.incarnation).then_some(window)
    }

    /// The window that has the number of a key now, and no later one.
    pub(crate) fn window_of(&self, key: Rkey) -> Option<WindowId> {
        let incarnation = self.window(key.value() >> 8)?.incarnation;
        Some(WindowId::new(key, incarnation))
    }

    /// What the window will grant; nothing if it is to be unbound.
    fn check_bind(
        &self,
        bind: &WindowBind,
        domain: DomainId,
        over: Qpn,
    ) -> Result<Option<Bound>, BindFault> {
        let window = self.named(bind.window).ok_or(BindFault::NoSuchWindow)?;
        if window.kind != bind.kind {
            return Err(BindFault::WrongKind);
        }
        if window.domain != domain {
            return Err(BindFault::WrongDomain);
        }
        let is_type_2 = window.kind == WindowKind::Type2B;
        if is_type_2 && window.bound.is_some() {
            return Err(BindFault::AlreadyBound);
        }
        check_rights(window.kind, bind.access)?;
        match bind.length {
            0 if is_type_2 => Err(BindFault::NoLength),
            0 => Ok(None),
            _ => self.check_region(bind, domain, is_type_2.then_some(over)).map(Some),
        }
    }

    fn check_region(
        &self,
        bind: &WindowBind,
        domain: DomainId,
        over: Option<Qpn>,
    ) -> Result<Bound, BindFault> {
        let region = self.region(bind.region.value()).ok_or(BindFault::NoSuchRegion)?;
        if region.domain != domain {
            return Err(BindFault::WrongDomain);
        }
        if !region.access.contains(Access::MW_BIND) {
            return Err(BindFault::NotBindable);
        }
        let changes = bind.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if changes && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(BindFault::NeedsLocalWrite);
        }
        if !region.access.contains(bind.access.only(Access::FLUSH)) {
            return Err(BindFault::NotFlushable);
        }
        if bind.access.contains(Access::REMOTE_ATOMIC) && region.backing.is_on_demand() {
            return Err(BindFault::OnDemandAtomic);
        }
        let length = usize::try_from(bind.length).map_err(|_| BindFault::OutOfBounds)?;
        let offset = region.offset_of(bind.address, length).map_err(|_| BindFault::OutOfBounds)?;
        // What lies inside of the region cannot wrap: its own addresses do not.
        let base = if bind.access.contains(Access::ZERO_BASED) { 0 } else { bind.address };
        let region = bind.region.value() >> 8;
        Ok(Bound { region, offset, base, length, access: bind.access, over })
    }

    /// Puts what a window grants into force, and the window into its queue pair's list.
    fn set_bound(&mut self, index: u32, bound: Bound) {
        self.count_window(bound.region, 1);
        let first = bound.over.and_then(|over| self.bound_over.insert(over, index));
        if let Some(next) = first.and_then(|first| self.window_mut(first)) {
            next.previous = Some(index);
        }
        if let Some(window) = self.window_mut(index) {
            (window.previous, window.next) = (None, first);
            window.bound = Some(bound);
        }
    }

    /// From here on the window grants nothing.
    fn unbind(&mut self, index: u32) {
        let Some(window) = self.window_mut(index) else { return };
        let Some(bound) = window.bound.take() else { return };
        let (previous, next) = (window.previous.take(), window.next.take());
        self.count_window(bound.region, -1);
        if let Some(next) = next.and_then(|next| self.window_mut(next)) {
            next.previous = previous;
        }
        if let Some(previous) = previous.and_then(|previous| self.window_mut(previous)) {
            previous.next = next;
        } else if let Some(over) = bound.over {
            match next {
                Some(next) => self.bound_over.insert(over, next),
                None => self.bound_over.remove(&over),
            };
        }
    }

    /// A queue pair was reset or has ended: its windows of type 2B grant nothing any more.
    pub(crate) fn unbind_all_over(&mut self, over: Qpn) {
        while let Some(first) = self.bound_over.get(&over).copied() {
            self.unbind(first);
        }
    }

    /// Unbinds all windows of a region, so that it can be deregistered.
    pub(crate) fn unbind_all_of(&mut self, region: u32) {
        let of_region = |bound: &Bound| bound.region == region >> 8;
        for index in 0..self.length() {
            let bound = self.window(index).and_then(|window| window.bound.as_ref());
            if bound.is_some_and(of_region) {
                self.unbind(index);
            }
        }
    }

    /// Ends a window, bound or not. Returns whether there was one.
    pub(crate) fn deallocate_window(&mut self, id: WindowId) -> bool {
        if self.named(id).is_none() {
            return false;
        }
        self.unbind(id.index);
        self.free(id.index);
        true
    }

    /// Whether [`Self::invalidate`] would succeed for a window.
    pub(super) fn can_invalidate_window(
        window: &Window,
        domain: DomainId,
        over: Qpn,
    ) -> Result<(), KeyFault> {
        let bound = window.bound.as_ref().ok_or(KeyFault::Unknown)?;
        if window.domain != domain {
            Err(KeyFault::WrongDomain)
        } else if window.kind == WindowKind::Type1 {
            Err(KeyFault::NotInvalidatable)
        } else if bound.over != Some(over) {
            Err(KeyFault::WrongQueuePair)
        } else {
            Ok(())
        }
    }

    /// Makes a window grant nothing, which was checked before.
    pub(super) fn invalidate_window(&mut self, key: u32) {
        self.unbind(key >> 8);
    }
}

/// Rights that a window can have.
fn check_rights(kind: WindowKind, access: Access) -> Result<(), BindFault> {
    let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC | Access::FLUSH;
    let possible = match kind {
        // o10-36.2.2
        WindowKind::Type1 => remote,
        WindowKind::Type2B => remote | Access::ZERO_BASED,
    };
    possible.contains(access).then_some(()).ok_or(BindFault::Rights)
}
