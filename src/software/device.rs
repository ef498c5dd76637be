//! A device: what the verbs layer opens, posts through, polls and closes.

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::Waker;
use std::thread::{self, JoinHandle};

use super::attendant::Attendant;
use super::driver::{Driver, Forked};
use super::error::OpenError;
use super::opening::{self, Opened};
use super::options::{self, DeviceOptions, Drive};
use super::sharing::{SharingCounters, SharingStatistics};
use super::trace::Tracer;
use crate::engine::{AsyncEvent, Counters, Engine, EngineOptions, EventSubject, Limits};
use crate::host::Interface;
use crate::link::{Link, LinkStatistics};
use crate::queue::{
    Completion, CompletionQueue, Overrun, QueuePairQueues, QueuePairState, WakerKey,
};
use crate::rng::Rng;
use crate::time::Instant;

/// An engine over a link. All methods may be called from any thread; dropping it stops its thread
/// and closes everything.
pub struct Device {
    driver: Arc<Driver>,
    /// Nothing if the device has no thread.
    thread: Option<JoinHandle<()>>,
    attendant: Option<Attendant>,
    name: String,
    interface: Option<Interface>,
    addresses: Vec<IpAddr>,
    limits: Limits,
    mtu: usize,
    slot: u8,
    is_guest: bool,
    sharing: Arc<SharingCounters>,
}

/// Everything that a device counts, at one moment.
#[derive(Clone, Debug)]
pub struct DeviceCounters {
    /// The engine's.
    pub engine: Counters,
    /// Those of the links together.
    pub link: LinkStatistics,
    /// What sharing the port with other processes has cost.
    pub sharing: SharingStatistics,
    /// Asynchronous events that were lost because the application left too many waiting.
    pub lost_events: u64,
}

impl Device {
    /// Opens a software device on an interface of this host.
    ///
    /// # Errors
    /// [`OpenError`], which names what is missing and what to do.
    pub fn open(options: &DeviceOptions) -> Result<Self, OpenError> {
        let place = options::place(options)?;
        let mut random = Rng::new(seed(options));
        let tracer = Tracer::start(options.trace)?;
        let opened = opening::open(options, &place, &mut random, tracer.as_ref())?;
        let name = options.name.clone().unwrap_or_else(|| place.interface.name.clone());
        Self::start(options, (name, Some(place.interface)), opened, tracer, random.next_u64())
    }

    /// Opens a device over a link that is there already, such as an end of an in-memory network.
    /// Interface, addresses and sharing of `options` have no effect; faults and capture have.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn over(options: &DeviceOptions, link: Box<dyn Link>) -> Result<Self, OpenError> {
        let mut random = Rng::new(seed(options));
        let name = options.name.clone().unwrap_or_else(|| "memory".to_owned());
        let tracer = Tracer::start(options.trace)?;
        let opened = Opened {
            addresses: vec![link.local_address()],
            link: opening::wrap(options, &name, link, tracer.as_ref())?,
            slot: random.between(1, 254) as u8,
            counters: Arc::default(),
            is_guest: false,
        };
        Self::start(options, (name, None), opened, tracer, random.next_u64())
    }

    fn start(
        options: &DeviceOptions,
        (name, interface): (String, Option<Interface>),
        opened: Opened,
        tracer: Option<Arc<Tracer>>,
        seed: u64,
    ) -> Result<Self, OpenError> {
        let Opened { link, slot, addresses, counters, is_guest } = opened;
        let engine_options = EngineOptions {
            slot,
            limits: options.limits,
            strict: options.strict,
            finite_credits: options.finite_credits,
            congestion: options.congestion,
            ..EngineOptions::new(seed, addresses.clone())
        };
        let mtu = link.capabilities().mtu;
        let mut engine = Engine::new(engine_options, link.capabilities());
        if options.trace.errors {
            engine.tell_failures();
        }
        // Not those that were asked for: what is possible.
        let limits = *engine.limits();
        let has_thread = options.drive == Drive::Thread;
        let driver = Arc::new(Driver::new(engine, link, has_thread, tracer)?);
        let attend = || Attendant::start(&name, interface.as_ref(), &driver, &counters);
        let attendant = has_thread.then(attend).transpose()?;
        let thread = has_thread.then(|| start_thread(&name, &driver)).transpose()?;
        Ok(Self {
            driver,
            thread,
            attendant,
            name,
            interface,
            addresses,
            limits,
            mtu,
            slot,
            is_guest,
            sharing: counters,
        })
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The name that it was opened under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The network interface as it was when the device was opened; none if the device was opened
    /// over a link.
    pub fn interface(&self) -> Option<&Interface> {
        self.interface.as_ref()
    }

    /// Own addresses, by GID index.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Who tells what happens, if anything is to be told.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.driver.tracer.as_deref()
    }

    /// The most of each thing.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Bytes of the largest IP packet.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// The top 8 bits of all its queue pair numbers.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Whether another user's processes held the port when the device was opened, so that arrivals
    /// come through them.
    pub fn is_guest(&self) -> bool {
        self.is_guest
    }

    /// Calls `change` with the engine and the time, then everything that it caused. Blocks until
    /// no turn is under way; must not be called from within another one, or from a notifier.
    ///
    /// # Errors
    /// [`Forked`] in a child of the process that opened the device.
    pub fn control<R>(&self, change: impl FnOnce(&mut Engine, Instant) -> R) -> Result<R, Forked> {
        self.driver.control(|core, now| change(&mut core.engine, now))
    }

    /// Sends what is owed to peers, such as acknowledgements that wait for the application's next
    /// post. To be called before a queue pair is reset, put in error or destroyed: a peer whose
    /// message has been completed here must not be left to retry until it fails.
    ///
    /// # Errors
    /// As [`Self::control`].
    pub fn settle(&self) -> Result<(), Forked> {
        self.driver.settle()
    }

    /// To be called after posting: runs a turn at once if nobody else does. Never blocks.
    pub fn kick(&self) {
        self.driver.assist(false);
    }

    /// To be called after posting receives alone, instead of [`Self::kick`]: the peer's next packet
    /// finds them without a turn, unless the queue pair is in error and they have to be flushed.
    pub fn kick_for_receives(&self, queues: &QueuePairQueues) {
        // Either the state is seen here, or whoever sets it sees the bell before leaving the lock.
        fence(Ordering::SeqCst);
        if queues.state() == QueuePairState::Error {
            self.kick();
        }
    }

    /// Takes completions out of `queue` into `completions`, oldest first; returns how many. Runs
    /// a turn if there are none. Never blocks.
    ///
    /// # Errors
    /// [`Overrun`] once the completions of an overrun queue have been taken.
    pub fn poll(
        &self,
        queue: &CompletionQueue,
        completions: &mut [Completion],
    ) -> Result<usize, Overrun> {
        let limit = completions.len();
        self.poll_with(queue, limit, |index, completion| completions[index] = completion)
    }

    /// As [`Self::poll`], with at most `limit` completions passed to `taken`, numbered from 0.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn poll_with(
        &self,
        queue: &CompletionQueue,
        limit: usize,
        mut taken: impl FnMut(usize, Completion),
    ) -> Result<usize, Overrun> {
        match queue.poll(limit, &mut taken) {
            Ok(0) => {
                self.driver.assist(true);
                queue.poll(limit, taken)
            }
            outcome => {
                self.driver.polled();
                outcome
            }
        }
    }

    /// As [`Self::poll`], but blocks until there is a completion, or until `deadline` on
    /// [`super::clock::now`]; then 0 is returned.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn wait(
        &self,
        queue: &CompletionQueue,
        completions: &mut [Completion],
        deadline: Instant,
    ) -> Result<usize, Overrun> {
        let limit = completions.len();
        self.wait_with(queue, limit, |index, completion| completions[index] = completion, deadline)
    }

    /// As [`Self::wait`], with at most `limit` completions passed to `taken`, numbered from 0.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn wait_with(
        &self,
        queue: &CompletionQueue,
        limit: usize,
        mut taken: impl FnMut(usize, Completion),
        deadline: Instant,
    ) -> Result<usize, Overrun> {
        let done = || match queue.poll(limit, &mut taken) {
            Ok(0) => None,
            outcome => Some(outcome),
        };
        self.driver.wait(deadline, done).unwrap_or(Ok(0))
    }

    /// Takes the oldest event out.
    pub fn next_event(&self) -> Option<AsyncEvent> {
        if self.driver.is_ours() { self.driver.events.pop() } else { None }
    }

    /// As [`Self::next_event`] for a task that has no thread of its own: if there is no event, the
    /// task is woken when there is one. `key` holds its registration until
    /// [`Self::forget_event_waiter`].
    pub(crate) fn poll_event(&self, key: &mut WakerKey, waker: &Waker) -> Option<AsyncEvent> {
        self.driver.events.wakers().register(key, waker);
        let event = self.next_event()?;
        self.forget_event_waiter(key);
        Some(event)
    }

    /// A task does not wait for events any more.
    pub(crate) fn forget_event_waiter(&self, key: &mut WakerKey) {
        self.driver.events.wakers().forget(key);
    }

    /// Removes the events about an object that was destroyed, so that nobody is told of it later.
    pub(crate) fn forget_events(&self, subject: &EventSubject) {
        if self.driver.is_ours() {
            self.driver.events.forget(subject);
        }
    }

    /// As [`Self::poll`] with room for one, for a task that has no thread of its own: if there is no
    /// completion, the task is woken when there is one or the queue overruns. `key` holds its
    /// registration until it is forgotten.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub(crate) fn poll_task(
        &self,
        queue: &CompletionQueue,
        completions: &mut [Completion],
        key: &mut WakerKey,
        waker: &Waker,
    ) -> Result<Option<usize>, Overrun> {
        let count = self.poll(queue, completions)?;
        if count > 0 {
            queue.wakers().forget(key);
            return Ok(Some(count));
        }
        queue.wakers().register(key, waker);
        let limit = completions.len();
        let count = queue.poll(limit, |index, completion| completions[index] = completion)?;
        if count > 0 {
            queue.wakers().forget(key);
            return Ok(Some(count));
        }
        self.driver.gone();
        Ok(None)
    }

    /// A descriptor that is readable while an event waits; the device's, not to be closed.
    pub fn event_descriptor(&self) -> RawFd {
        self.driver.events.descriptor()
    }

    /// Everything that has been counted.
    ///
    /// # Errors
    /// As [`Self::control`].
    pub fn counters(&self) -> Result<DeviceCounters, Forked> {
        count_all(&self.driver, &self.sharing)
    }
}

pub(super) fn count_all(
    driver: &Driver,
    sharing: &SharingCounters,
) -> Result<DeviceCounters, Forked> {
    driver.control(|core, _| DeviceCounters {
        engine: core.engine.counters().clone(),
        link: core.link.statistics(),
        sharing: sharing.snapshot(),
        lost_events: driver.events.lost(),
    })
}

impl Drop for Device {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.driver.is_ours() {
            // The threads are the parent's; nothing here can be waited for.
            self.attendant.iter_mut().for_each(Attendant::forget);
            return std::mem::forget(thread);
        }
        // It makes control calls.
        self.attendant = None;
        self.driver.stop();
        // A panic of the thread has been told on standard error.
        let _ = thread.join();
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, addresses, mtu, slot, is_guest, .. } = self;
        f.debug_struct("Device")
            .field("name", name)
            .field("addresses", addresses)
            .field("mtu", mtu)
            .field("slot", slot)
            .field("is_guest", is_guest)
            .finish_non_exhaustive()
    }
}

fn start_thread(name: &str, driver: &Arc<Driver>) -> std::io::Result<JoinHandle<()>> {
    let driver = Arc::clone(driver);
    // The kernel shows 15 bytes of it.
    let name = format!("uroce-{name}");
    thread::Builder::new().name(name).spawn(move || driver.run_thread())
}

fn seed(options: &DeviceOptions) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // The standard library's hash maps get their seeds from the system.
    options.seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()))
}
