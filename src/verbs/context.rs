//! An opened device.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use super::futures::NextEvent;
use super::{
    CompletionQueue, Counter, DeviceAttributes, DeviceInfo, PortAttributes, PortState,
    ProtectionDomain, VerbsError,
};
use crate::engine::{AsyncEvent, CongestionOptions, ControlError, Engine, FlowRate, Limits};
use crate::host::{Gid, interface_named};
use crate::link::Link;
use crate::memory::OnDemandCapabilities;
use crate::queue::PlacementCapabilities;
use crate::software::{Device, DeviceCounters, DeviceOptions};
use crate::time::Instant;

/// An opened device. Clones are the same one; it closes with the last of them and of what was
/// created on it.
#[derive(Clone)]
pub struct Context {
    device: Arc<Device>,
}

impl Context {
    /// Opens the device that the environment names (`UROCE_DEVICE` and the others), else the first.
    ///
    /// # Errors
    /// A variable is wrong, or there is no such interface, or its port cannot be had.
    pub fn from_environment() -> Result<Self, VerbsError> {
        Self::open(&DeviceOptions::from_environment()?)
    }

    /// Opens a device.
    ///
    /// # Errors
    /// There is no such interface, or its port cannot be had; the error says what to do.
    pub fn open(options: &DeviceOptions) -> Result<Self, VerbsError> {
        Ok(Self { device: Arc::new(Device::open(options)?) })
    }

    /// Opens a device over a link that is there already, such as an end of an in-memory network
    /// ([`crate::link::memory`]). What `options` say of interface, addresses and sharing has no
    /// effect; faults and capture have.
    ///
    /// # Errors
    /// The capture cannot be written, or the process has no descriptors or threads left.
    pub fn over(options: &DeviceOptions, link: Box<dyn Link>) -> Result<Self, VerbsError> {
        Ok(Self { device: Arc::new(Device::over(options, link)?) })
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn is_same_device(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.device, &other.device)
    }

    /// What on-demand memory can be used for; see
    /// [`ProtectionDomain::register_on_demand`].
    pub fn on_demand(&self) -> OnDemandCapabilities {
        OnDemandCapabilities::query()
    }

    /// What the device has of ATOMIC WRITE and FLUSH.
    pub fn placement(&self) -> PlacementCapabilities {
        PlacementCapabilities::SOFTWARE
    }

    pub(super) fn control<R>(
        &self,
        call: impl FnOnce(&mut Engine, Instant) -> R,
    ) -> Result<R, VerbsError> {
        Ok(self.device.control(call)?)
    }

    /// Tells a call and what came of it, if somebody wants to know (`UROCE_TRACE`).
    pub(super) fn told<T, E: std::fmt::Display>(
        &self,
        call: impl FnOnce() -> String,
        outcome: Result<T, E>,
    ) -> Result<T, E> {
        if let Some(tracer) = self.device.tracer() {
            tracer.call(call, outcome.as_ref().map(drop));
        }
        outcome
    }

    /// The same for a control call of the engine.
    pub(super) fn tell_control<R>(
        &self,
        call: impl FnOnce() -> String,
        control: impl FnOnce(&mut Engine, Instant) -> Result<R, ControlError>,
    ) -> Result<R, VerbsError> {
        let outcome = self.control(control).and_then(|outcome| Ok(outcome?));
        self.told(call, outcome)
    }

    /// What the device is.
    pub fn info(&self) -> DeviceInfo {
        DeviceInfo::of_device(&self.device)
    }

    /// The device's limits.
    pub fn limits(&self) -> &Limits {
        self.device.limits()
    }

    /// What the device is and gives out (`ibv_query_device`).
    pub fn query_device(&self) -> DeviceAttributes {
        DeviceAttributes::of_interface(self.device.interface(), self.device.limits())
    }

    /// What the port is at this moment (`ibv_query_port`): its state and MTU are the interface's,
    /// its GID table that with which the device was opened.
    ///
    /// # Errors
    /// The device belongs to the process that this one was forked from.
    pub fn query_port(&self) -> Result<PortAttributes, VerbsError> {
        let mut info = self.info();
        if let Some(interface) = self.device.interface() {
            let now = interface_named(&interface.name).filter(|now| now.index == interface.index);
            // One that is gone carries nothing.
            info.state = now.map_or(PortState::Disabled, |now| PortState::of(&now));
        }
        let counters = self.counters()?.engine;
        Ok(PortAttributes {
            bad_partition_keys: counters.get(Counter::DropPkeyMismatch),
            bad_queue_keys: counters.get(Counter::DropQkeyMismatch),
            ..PortAttributes::of(&info)
        })
    }

    /// Our own address number `index`.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn gid(&self, index: u16) -> Result<Gid, VerbsError> {
        let gids = self.device.addresses();
        let address = gids.get(usize::from(index)).copied();
        address.map(Gid::from).ok_or(VerbsError::NoSuchGid { index, count: gids.len() })
    }

    /// A new protection domain.
    ///
    /// # Errors
    /// The device's limit is reached.
    pub fn allocate_domain(&self) -> Result<ProtectionDomain, VerbsError> {
        let call = || "alloc_pd()".to_owned();
        let id = self.tell_control(call, |engine, _| engine.allocate_domain())?;
        Ok(ProtectionDomain::new(self.clone(), id))
    }

    /// A new completion queue for at least `capacity` completions: as many as all its queues can
    /// have work requests is always enough.
    ///
    /// # Errors
    /// Capacity 0, or a limit of the device.
    pub fn create_completion_queue(&self, capacity: u32) -> Result<CompletionQueue, VerbsError> {
        let call = || format!("create_cq({capacity} entries)");
        let shared =
            self.tell_control(call, |engine, _| engine.create_completion_queue(capacity))?;
        Ok(CompletionQueue::new(self.clone(), shared))
    }

    /// The oldest asynchronous event, if there is one. The descriptor of this context is readable
    /// while there are any.
    ///
    /// An event that was taken needs no acknowledgement: it names its queue pair by number and keeps
    /// the queue that it is about alive, so nothing in it dangles, and destroying never waits for
    /// who has taken events. Events about an object that nobody has taken when it is destroyed are
    /// removed with it, as in libibverbs.
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        self.device.next_event()
    }

    /// The next asynchronous event, for any executor; see [`NextEvent`].
    pub fn next_event(&self) -> NextEvent<'_> {
        NextEvent::new(self)
    }

    /// The rate to which congestion notifications have brought all UC and UD queue pairs together that
    /// send to an address; nothing if they are not limited.
    ///
    /// # Errors
    /// As [`Context::congestion`].
    pub fn rate_to(&self, destination: IpAddr) -> Result<Option<FlowRate>, VerbsError> {
        self.control(|engine, now| engine.path_rate(now, destination))
    }

    /// Parameters of the device's congestion control.
    ///
    /// # Errors
    /// The device belongs to the process that this one was forked from.
    pub fn congestion(&self) -> Result<CongestionOptions, VerbsError> {
        self.control(|engine, _| *engine.congestion())
    }

    /// Changes the parameters of the device's congestion control, from now on.
    ///
    /// # Errors
    /// A value is out of range; the error names it. Or as [`Context::congestion`].
    pub fn set_congestion(&self, options: CongestionOptions) -> Result<(), VerbsError> {
        Ok(self.control(|engine, _| engine.set_congestion(options))??)
    }

    /// What the device has counted.
    ///
    /// # Errors
    /// The device belongs to the process that this one was forked from.
    pub fn counters(&self) -> Result<DeviceCounters, VerbsError> {
        Ok(self.device.counters()?)
    }
}

impl AsRawFd for Context {
    /// Readable while there are asynchronous events.
    fn as_raw_fd(&self) -> RawFd {
        self.device.event_descriptor()
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Context").field(&self.info().name).finish()
    }
}
