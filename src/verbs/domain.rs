//! Protection domains.

use std::sync::Arc;

use super::SharedReceiveQueue;
use super::{
    AddressHandle, CompletionQueue, Context, ForeignRegion, MemoryRegion, MemoryWindow, QueuePair,
    VerbsError,
};
use crate::engine::{self, ControlError, Engine};
use crate::host;
use crate::memory::{DomainId, OwnedMemory, WindowKind};
use crate::queue::{Access, AddressVector, QueueCapacities, QueuePairKind};
use crate::words;

/// A protection domain: a queue pair reaches only memory of its own one. Clones are the same
/// domain; it ends with the last of them and of what was made in it.
#[derive(Clone)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    id: DomainId,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Everything in it holds this value, so nothing is left in it.
        let call = || "dealloc_pd()".to_owned();
        let _ = self.context.tell_control(call, |engine, _| engine.release_domain(self.id));
    }
}

/// What a queue pair is created with.
#[derive(Clone, Copy)]
pub struct QueuePairOptions<'a> {
    /// Transport.
    pub kind: QueuePairKind,
    /// Where completions of sends go.
    pub send_completions: &'a CompletionQueue,
    /// Where completions of receives go.
    pub receive_completions: &'a CompletionQueue,
    /// Sizes; rounded up to powers of two.
    pub capacities: QueueCapacities,
    /// Every send gives a completion, whether it asks or not.
    pub signal_all: bool,
    /// Where receives come from, if not from a queue of the queue pair's own.
    pub shared_receives: Option<&'a SharedReceiveQueue>,
}

impl<'a> QueuePairOptions<'a> {
    /// An RC queue pair of usual size with one queue for all completions.
    pub fn new(completions: &'a CompletionQueue) -> Self {
        Self {
            kind: QueuePairKind::Rc,
            send_completions: completions,
            receive_completions: completions,
            capacities: QueueCapacities::default(),
            signal_all: false,
            shared_receives: None,
        }
    }
}

impl ProtectionDomain {
    pub(super) fn new(context: Context, id: DomainId) -> Self {
        Self { inner: Arc::new(Inner { context, id }) }
    }

    pub(super) fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(super) fn id(&self) -> DomainId {
        self.inner.id
    }

    /// The number of another domain, if it is one of the same device.
    pub(super) fn id_beside(&self, other: &Self) -> Result<DomainId, VerbsError> {
        let same = self.context().is_same_device(other.context());
        same.then_some(other.inner.id).ok_or(VerbsError::Control(ControlError::NoSuchDomain))
    }

    /// Registers memory; its address is that of its first byte, or with [`Access::ZERO_BASED`] 0.
    ///
    /// # Errors
    /// A limit of the device, or rights that make no sense together.
    pub fn register(
        &self,
        memory: Arc<OwnedMemory>,
        access: Access,
    ) -> Result<MemoryRegion, VerbsError> {
        let registered = Arc::clone(&memory);
        let call =
            || format!("reg_mr({} bytes at {:#x}, {access})", memory.len(), memory.address());
        let keys = self
            .context()
            .tell_control(call, |engine, _| engine.register(self.inner.id, registered, access))?;
        Ok(MemoryRegion::new(self.clone(), memory, keys, access))
    }

    /// Allocates and registers `length` zero bytes.
    ///
    /// # Errors
    /// There is not that much memory, or as [`ProtectionDomain::register`].
    pub fn allocate(&self, length: usize, access: Access) -> Result<MemoryRegion, VerbsError> {
        let memory = OwnedMemory::try_new(length).ok_or(VerbsError::OutOfMemory { length })?;
        self.register(memory, access)
    }

    /// A new shared receive queue, for at least `requests` receives of at most `segments` segments.
    ///
    /// # Errors
    /// Sizes out of range, or a limit of the device.
    pub fn create_shared_receive_queue(
        &self,
        requests: u32,
        segments: u32,
    ) -> Result<SharedReceiveQueue, VerbsError> {
        let call = || format!("create_srq({requests} receives, {segments} segments)");
        let queue = self.context().tell_control(call, |engine, _| {
            engine.create_shared_receive_queue(self.inner.id, requests, segments)
        })?;
        Ok(SharedReceiveQueue::new(self.clone(), queue, None))
    }

    /// A new address handle: how datagrams reach the port at an address.
    ///
    /// # Errors
    /// We have no address of that index, or it is of another family than the destination; or a
    /// limit of the device.
    pub fn create_address_handle(
        &self,
        address: &AddressVector,
    ) -> Result<AddressHandle, VerbsError> {
        let call = || format!("create_ah({})", words::call::address(address));
        let id = self
            .context()
            .tell_control(call, |engine, _| engine.create_address_handle(self.inner.id, address))?;
        Ok(AddressHandle::new(self.clone(), id))
    }

    /// Registers memory that someone else owns, of any alignment. With [`Access::ON_DEMAND`] it need
    /// not be mapped, see [`ProtectionDomain::register_on_demand`].
    ///
    /// # Errors
    /// A part of the range is not mapped, or not writable though `access` allows writing; a limit
    /// of the device; or rights that make no sense together.
    ///
    /// # Safety
    /// As long as the region exists the range must stay mapped with the same rights, and no Rust
    /// reference may claim that its bytes do not change.
    #[allow(unsafe_code, reason = "passes the caller's promise on")]
    pub unsafe fn register_foreign(
        &self,
        start: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<ForeignRegion, VerbsError> {
        let base = start as u64;
        let call = || format!("reg_mr({length} bytes at {base:#x}, {access})");
        if !access.contains(Access::ON_DEMAND) {
            let writes = access.contains(Access::LOCAL_WRITE);
            self.context().told(call, host::check_mapped(start as usize, length, writes))?;
        }
        let keys = self.context().tell_control(call, |engine, _| {
            // SAFETY: the caller promises what the engine asks for.
            unsafe { engine.register_foreign(self.inner.id, start, length, base, access) }
        })?;
        Ok(ForeignRegion::new(self.clone(), (start as usize, length), keys, access))
    }

    /// Registers a range of addresses that need not be mapped, now or later: where nothing is
    /// mapped, or not with the right that is needed, a work request ends with a local protection
    /// error and a peer's with a remote access error. Nothing signals.
    ///
    /// # Errors
    /// On-demand memory is not possible here, or asked to serve atomic operations (see
    /// [`OnDemandCapabilities`](super::OnDemandCapabilities)); a limit of the device; or rights that
    /// make no sense together.
    ///
    /// # Safety
    /// As long as the region exists no Rust reference may claim that bytes in the range do not
    /// change.
    #[allow(unsafe_code, reason = "passes the caller's promise on")]
    pub unsafe fn register_on_demand(
        &self,
        start: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<ForeignRegion, VerbsError> {
        // SAFETY: the caller promises what is asked for.
        unsafe { self.register_foreign(start, length, access | Access::ON_DEMAND) }
    }

    /// Registers the whole address space of the process, on demand. Offsets of the region are real
    /// addresses.
    ///
    /// # Errors
    /// As [`ProtectionDomain::register_on_demand`]; or zero-based.
    ///
    /// # Safety
    /// With LOCAL_WRITE, work requests and peers that hold the key can change anything in the
    /// process: nothing that they name may be behind a Rust reference.
    #[allow(unsafe_code, reason = "passes the caller's promise on")]
    pub unsafe fn register_implicit(&self, access: Access) -> Result<ForeignRegion, VerbsError> {
        let call = || format!("reg_mr(everything, {access})");
        let keys = self.context().tell_control(call, |engine, _| {
            // SAFETY: the caller promises what the engine asks for.
            unsafe { engine.register_implicit(self.inner.id, access) }
        })?;
        let access = access | Access::ON_DEMAND;
        Ok(ForeignRegion::new(self.clone(), (0, usize::MAX), keys, access))
    }

    /// Allocates a memory window, which grants nothing until it is bound.
    ///
    /// # Errors
    /// A limit of the device.
    pub fn allocate_window(&self, kind: WindowKind) -> Result<MemoryWindow, VerbsError> {
        let call = || format!("alloc_mw({kind:?})");
        let allocate = |engine: &mut Engine, _| engine.allocate_window(self.inner.id, kind);
        let key = self.context().tell_control(call, allocate)?;
        Ok(MemoryWindow::new(self.clone(), kind, key))
    }

    /// Creates a queue pair, in RESET.
    ///
    /// # Errors
    /// A transport that is not supported, sizes over the device's limits, or completion queues of
    /// another device.
    pub fn create_queue_pair(
        &self,
        options: &QueuePairOptions<'_>,
    ) -> Result<QueuePair, VerbsError> {
        let request = engine::QueuePairOptions {
            kind: options.kind,
            domain: self.inner.id,
            send_completions: Arc::clone(options.send_completions.shared()),
            receive_completions: Arc::clone(options.receive_completions.shared()),
            capacities: options.capacities,
            signal_all: options.signal_all,
        };
        let shared = options.shared_receives.map(SharedReceiveQueue::shared);
        let call = || {
            let sizes = words::call::capacities(&request.capacities);
            format!("create_qp({}, {sizes})", request.kind)
        };
        let queues = self
            .context()
            .tell_control(call, |engine, _| engine.create_queue_pair_sharing(&request, shared))?;
        let completions = [options.send_completions.clone(), options.receive_completions.clone()];
        let shared = options.shared_receives.cloned();
        Ok(QueuePair::new(self.clone(), queues, completions, shared))
    }
}

impl std::fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ProtectionDomain").field(&self.inner.id).finish()
    }
}
