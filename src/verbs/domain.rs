//! Protection domains.

use std::net::IpAddr;
use std::sync::Arc;

use super::SharedReceiveQueue;
use super::{
    AddressHandle, CompletionQueue, Context, ForeignRegion, MemoryRegion, MemoryWindow, QueuePair,
    VerbsError,
};
use crate::engine::{self, ControlError};
use crate::host;
use crate::memory::{DomainId, OwnedMemory, WindowKind};
use crate::queue::{Access, AddressVector, QueueCapacities, QueuePairKind};
use crate::wire::NetworkArea;
use crate::words;

/// The bits of a traffic class that routers write.
const ECN: u8 = 0b11;

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

    /// A new address handle to whoever sent a datagram: `area` is the first 40 bytes of the receive
    /// that it came in. [`Completion::source`] is the queue pair there. As ibv_create_ah_from_wc: the
    /// answer leaves from the address that the datagram was sent to, in its traffic class but for
    /// the ECN bits; to a multicast group's member from the first address of the family.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use uroce::verbs::{self, Access, AddressVector, CompletionKind, Psn, QKey, QueuePairKind};
    /// # use uroce::verbs::{QueuePairOptions, SendOperation};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // Datagrams can be lost where others come and go at the same address.
    /// # let options = uroce::software::DeviceOptions::at([127, 88, 14, 1].into());
    /// # let device = verbs::Context::open(&options)?;
    /// # let domain = device.allocate_domain()?;
    /// # let (ours, theirs) = (device.create_completion_queue(16)?, device.create_completion_queue(16)?);
    /// # let options = |completions| QueuePairOptions {
    /// #     kind: QueuePairKind::Ud, ..QueuePairOptions::new(completions)
    /// # };
    /// # let server = domain.create_queue_pair(&options(&ours))?;
    /// # let client = domain.create_queue_pair(&options(&theirs))?;
    /// # let qkey = QKey::new(0x1111_1111);
    /// # server.start_datagrams(qkey, Psn::new(1))?;
    /// # client.start_datagrams(qkey, Psn::new(2))?;
    /// # let memory = domain.allocate(4096, Access::LOCAL_WRITE)?;
    /// # server.post_receive(1, &[memory.segment(0, 100)])?;
    /// # client.post_receive(2, &[memory.segment(100, 100)])?;
    /// # let address = server.endpoint(0, Psn::new(1))?.gid.address();
    /// # let known = domain.create_address_handle(&AddressVector::new(0, address))?;
    /// # let to = known.datagram(server.number(), qkey);
    /// # client.post(3, SendOperation::SendTo { to, immediate: None }, memory.segment(200, 5))?;
    /// let request = ours.wait_one(Duration::from_secs(5))?;
    /// let area = memory.to_vec(0, 40)?;
    /// let handle = domain.create_address_handle_of_sender(area.first_chunk().unwrap())?;
    /// let to = handle.datagram(request.source, qkey);
    /// server.post(4, SendOperation::SendTo { to, immediate: None }, memory.segment(40, 5))?;
    /// # loop {
    /// #     let completion = theirs.wait_one(Duration::from_secs(5))?;
    /// #     if completion.id == 2 { break; }
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Completion::source`]: super::Completion::source
    ///
    /// # Errors
    /// The bytes hold no network header, or that of a datagram to somebody else; or a limit of the
    /// device.
    pub fn create_address_handle_of_sender(
        &self,
        area: &[u8; NetworkArea::LENGTH],
    ) -> Result<AddressHandle, VerbsError> {
        let area = NetworkArea::parse(area).ok_or(VerbsError::NoNetworkHeader)?;
        let destination = area.destination;
        let is_ours = |own: &IpAddr| match destination.is_multicast() {
            true => own.is_ipv4() == destination.is_ipv4(),
            false => *own == destination,
        };
        let own = self.context().device().addresses().iter().position(is_ours);
        let gid_index = own.ok_or(VerbsError::SentElsewhere { destination })? as u16;
        self.create_address_handle(&AddressVector {
            traffic_class: area.traffic_class & !ECN,
            flow_label: area.flow_label,
            ..AddressVector::new(gid_index, area.source)
        })
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
        let call = || format!("reg_mr(all memory on demand, {access})");
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
        let (key, id) = self.context().tell_control(call, |engine, _| {
            let key = engine.allocate_window(self.inner.id, kind)?;
            Ok((key, engine.window_of(key).ok_or(ControlError::NoSuchWindow)?))
        })?;
        Ok(MemoryWindow::new(self.clone(), kind, id, key))
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
