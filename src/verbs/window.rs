//! Memory windows.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::{ForeignRegion, MemoryRegion, ProtectionDomain, QueuePair, VerbsError};
use crate::engine::Engine;
use crate::memory::{WindowBind, WindowId, WindowKind};
use crate::queue::{Access, Payload, Remote, SendFlags, SendOperation, SendRequest, Sge};
use crate::wire::Rkey;

/// A region that windows can be bound to, if it was registered with [`Access::MW_BIND`].
pub trait Bindable {
    /// An empty segment that begins `offset` bytes in.
    fn start(&self, offset: usize) -> Sge;
}

impl Bindable for MemoryRegion {
    fn start(&self, offset: usize) -> Sge {
        self.segment(offset, 0)
    }
}

impl Bindable for ForeignRegion {
    fn start(&self, offset: usize) -> Sge {
        self.segment(offset, 0)
    }
}

/// A memory window: a key of its own for a part of a region, given and taken back without
/// registering anew. Dropping it deallocates it, bound or not.
///
/// Type 1 is bound by [`QueuePair::bind_window`], type 2 by posting what [`MemoryWindow::bind`]
/// makes.
pub struct MemoryWindow {
    domain: ProtectionDomain,
    kind: WindowKind,
    id: WindowId,
    /// The key that it has, or will have when the bind request that was posted last is carried out.
    key: Mutex<Rkey>,
}

impl MemoryWindow {
    pub(super) fn new(domain: ProtectionDomain, kind: WindowKind, key: Rkey) -> Self {
        Self { domain, kind, id: WindowId::of_key(key), key: Mutex::new(key) }
    }

    /// Its type.
    pub fn kind(&self) -> WindowKind {
        self.kind
    }

    /// Its number: the upper 24 bits of its keys.
    pub fn id(&self) -> WindowId {
        self.id
    }

    /// The key that it was allocated with, or for type 1 the one that the last bind call gave. Those
    /// of type 2 are the application's choice: [`WindowBind::key`].
    pub fn key(&self) -> Rkey {
        *self.key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A work request's operation that binds this window of type 2 to `range` of a region, with
    /// `portion` as the low 8 bits of its key. Post it on the queue pair whose peer shall use the
    /// window.
    pub fn bind(
        &self,
        region: &impl Bindable,
        range: Range<usize>,
        access: Access,
        portion: u8,
    ) -> WindowBind {
        bind_of(self.id, WindowKind::Type2B, region.start(range.start), &range, access, portion)
    }

    /// The place `offset` bytes in, as a peer names it: `bind` is what the window was bound with.
    pub fn remote(bind: &WindowBind, offset: usize) -> Remote {
        let base = if bind.access.contains(Access::ZERO_BASED) { 0 } else { bind.address };
        Remote { address: base.wrapping_add(offset as u64), key: bind.key() }
    }
}

fn bind_of(
    window: WindowId,
    kind: WindowKind,
    start: Sge,
    range: &Range<usize>,
    access: Access,
    portion: u8,
) -> WindowBind {
    let length = range.end.saturating_sub(range.start) as u64;
    WindowBind { window, kind, portion, region: start.key, address: start.address, length, access }
}

impl QueuePair {
    /// Binds a window of type 1 to `range` of a region, or with an empty range to nothing: posts the
    /// request, whose completion bears `id`, and returns what it asks for, the new key with it. From
    /// the completion on the key serves any queue pair of the window's protection domain, and the
    /// old one nobody.
    ///
    /// # Errors
    /// The window is of type 2, or the request was not taken; the key is then as it was.
    pub fn bind_window(
        &self,
        id: u64,
        window: &MemoryWindow,
        region: &impl Bindable,
        range: Range<usize>,
        access: Access,
        flags: SendFlags,
    ) -> Result<WindowBind, VerbsError> {
        if window.kind != WindowKind::Type1 {
            return Err(VerbsError::WindowKind);
        }
        let mut key = window.key.lock().unwrap_or_else(PoisonError::into_inner);
        let portion = (key.value() as u8).wrapping_add(1);
        let start = region.start(range.start);
        let bind = bind_of(window.id, WindowKind::Type1, start, &range, access, portion);
        let operation = SendOperation::BindWindow(bind);
        let request = SendRequest { id, operation, flags, payload: Payload::EMPTY };
        self.post_send(&request)?;
        *key = bind.key();
        Ok(bind)
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        // The window is live: nothing else deallocates it.
        let call = || format!("dealloc_mw({})", self.key());
        let deallocate = |engine: &mut Engine, _| engine.deallocate_window(self.id);
        let _ = self.domain.context().tell_control(call, deallocate);
    }
}

impl std::fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryWindow({:?}, {})", self.kind, self.key())
    }
}
