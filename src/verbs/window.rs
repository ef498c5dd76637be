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
    pub(super) fn new(domain: ProtectionDomain, kind: WindowKind, id: WindowId, key: Rkey) -> Self {
        Self { domain, kind, id, key: Mutex::new(key) }
    }

    /// Its type.
    pub fn kind(&self) -> WindowKind {
        self.kind
    }

    /// Its number: the upper 24 bits of its keys. No later window is meant by it: a bind request that
    /// still waits when the window is dropped fails.
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
    /// window. To take the rights back, [`SendOperation::LocalInvalidate`] there, or the peer's
    /// [`SendOperation::SendWithInvalidate`].
    ///
    /// [`SendOperation::LocalInvalidate`]: super::SendOperation::LocalInvalidate
    /// [`SendOperation::SendWithInvalidate`]: super::SendOperation::SendWithInvalidate
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use uroce::verbs::{self, Access, ConnectOptions, FlushPlacement, FlushSelectivity};
    /// # use uroce::verbs::{MemoryWindow, Payload, QueuePairOptions, SendFlags, SendOperation};
    /// # use uroce::verbs::{SendRequest, WindowKind, connect_pair};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = verbs::open("lo")?;
    /// # let domain = device.allocate_domain()?;
    /// # let completions = device.create_completion_queue(16)?;
    /// # let options = QueuePairOptions::new(&completions);
    /// # let alice = domain.create_queue_pair(&options)?;
    /// # let bob = domain.create_queue_pair(&options)?;
    /// # connect_pair(&alice, &bob, &ConnectOptions::default())?;
    /// // Bob lets Alice write 64 bytes of his, and FLUSH them.
    /// let region = domain.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND | Access::FLUSH_GLOBAL)?;
    /// let window = domain.allocate_window(WindowKind::Type2B)?;
    /// let bind = window.bind(&region, 64..128, Access::REMOTE_WRITE | Access::FLUSH_GLOBAL, 1);
    ///
    /// // What has no local data is posted without segments.
    /// let request = |id, operation| SendRequest {
    ///     id,
    ///     operation,
    ///     flags: SendFlags::SIGNALED,
    ///     payload: Payload::Segments(&[]),
    /// };
    /// bob.post_send(&request(1, SendOperation::BindWindow(bind)))?;
    /// let completion = completions.wait_one(Duration::from_secs(5))?;
    /// assert!(completion.status.is_success(), "{}", bob.explain(&completion));
    ///
    /// // Alice has got the address and the key of `remote`, in a message for example.
    /// let remote = MemoryWindow::remote(&bind, 8);
    /// let (placement, selectivity) = (FlushPlacement::GlobalVisibility, FlushSelectivity::Range);
    /// alice.post_sends(&[
    ///     request(2, SendOperation::AtomicWrite { remote, value: *b"at once!" }),
    ///     request(3, SendOperation::Flush { remote, length: 8, placement, selectivity }),
    /// ]).map_err(|(_, error)| error)?;
    /// for _ in 0..2 {
    ///     let completion = completions.wait_one(Duration::from_secs(5))?;
    ///     assert!(completion.status.is_success(), "{}", alice.explain(&completion));
    /// }
    /// assert_eq!(region.to_vec(64 + 8, 8)?, b"at once!");
    /// # Ok(())
    /// # }
    /// ```
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
    // A range that ends before it starts must not become an empty one, which binds to nothing: it
    // is longer than any region, and refused as that.
    let length = range.end.wrapping_sub(range.start) as u64;
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
        let free = |engine: &mut Engine, _| engine.deallocate_window(self.id);
        let _ = self.domain.context().tell_control(call, free);
    }
}

impl std::fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryWindow({:?}, {})", self.kind, self.key())
    }
}
