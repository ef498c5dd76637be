//! Completion queues and channels.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::futures::{NextChannelEvent, NextCompletion, NextCompletions};
use super::{Context, VerbsError};
use crate::engine::{Engine, EventSubject};
use crate::link::Event;
use crate::queue::{self, Completion, Notify, Overrun, WakerKey, Wakers};
use crate::software::clock;
use crate::time::Instant;
use crate::words;

/// A completion queue. Clones are the same queue; it is destroyed with the last of them and of the
/// queue pairs that use it.
#[derive(Clone)]
pub struct CompletionQueue {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    shared: Arc<queue::CompletionQueue>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Queue pairs that use it hold this value, so none is left.
        let call = || "destroy_cq()".to_owned();
        let destroy = |engine: &mut Engine, _| engine.destroy_completion_queue(&self.shared);
        let _ = self.context.tell_control(call, destroy);
        let subject = EventSubject::CompletionQueue(Arc::clone(&self.shared));
        self.context.device().forget_events(&subject);
    }
}

impl CompletionQueue {
    pub(super) fn new(context: Context, shared: Arc<queue::CompletionQueue>) -> Self {
        Self { inner: Arc::new(Inner { context, shared }) }
    }

    pub(super) fn shared(&self) -> &Arc<queue::CompletionQueue> {
        &self.inner.shared
    }

    /// Entries in all.
    pub fn capacity(&self) -> u32 {
        self.inner.shared.capacity()
    }

    /// Completions that wait to be polled, at this moment.
    pub fn waiting(&self) -> u32 {
        self.inner.shared.waiting()
    }

    /// Takes completions out into `completions`, oldest first, without waiting. Returns how many.
    ///
    /// # Errors
    /// The queue overran; what came before has been polled.
    pub fn poll(&self, completions: &mut [Completion]) -> Result<usize, VerbsError> {
        let polled = self.inner.context.device().poll(&self.inner.shared, completions);
        Ok(self.tell_polled(completions, polled)?)
    }

    /// Takes one completion out, if there is one.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    pub fn poll_one(&self) -> Result<Option<Completion>, VerbsError> {
        let mut completion = [Completion::default()];
        let count = self.poll(&mut completion)?;
        Ok((count == 1).then_some(completion[0]))
    }

    /// Waits for completions and takes them out; at least one, unless `timeout` passes first.
    /// `None` waits without end.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    pub fn wait(
        &self,
        completions: &mut [Completion],
        timeout: Option<Duration>,
    ) -> Result<usize, VerbsError> {
        let deadline = timeout.map_or(Instant::NEVER, |timeout| {
            clock::now() + u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)
        });
        let waited = self.inner.context.device().wait(&self.inner.shared, completions, deadline);
        Ok(self.tell_polled(completions, waited)?)
    }

    /// Each completion that was taken out; an empty queue is not worth a word.
    fn tell_polled(
        &self,
        completions: &[Completion],
        polled: Result<usize, Overrun>,
    ) -> Result<usize, Overrun> {
        let Some(tracer) = self.inner.context.device().tracer() else { return polled };
        match &polled {
            Ok(count) => completions.iter().take(*count).for_each(|completion| {
                let call = || format!("poll_cq() {}", words::call::completion(completion));
                tracer.call(call, Ok::<(), &Overrun>(()));
            }),
            Err(overrun) => tracer.call(|| "poll_cq()".to_owned(), Err(overrun)),
        }
        polled
    }

    /// Waits for one completion.
    ///
    /// # Errors
    /// None came within `timeout`, or as [`CompletionQueue::poll`].
    pub fn wait_one(&self, timeout: Duration) -> Result<Completion, VerbsError> {
        let mut completion = [Completion::default()];
        match self.wait(&mut completion, Some(timeout))? {
            0 => Err(VerbsError::NoCompletion { waited: timeout }),
            _ => Ok(completion[0]),
        }
    }

    /// The next completion, for any executor; see [`NextCompletion`].
    pub fn next(&self) -> NextCompletion<'_> {
        NextCompletion::new(self)
    }

    /// The next completions, at least one and at most as many as `room` has places, for any
    /// executor; see [`NextCompletions`].
    pub fn next_into<'a>(&'a self, room: &'a mut [Completion]) -> NextCompletions<'a> {
        NextCompletions::new(self, room)
    }

    /// Tries to take completions for a task, which is woken when there are some.
    pub(super) fn poll_task(
        &self,
        room: &mut [Completion],
        key: &mut WakerKey,
        waker: &Waker,
    ) -> Poll<Result<usize, VerbsError>> {
        match self.inner.context.device().poll_task(&self.inner.shared, room, key, waker) {
            Ok(None) => Poll::Pending,
            Ok(Some(count)) => Poll::Ready(Ok(count)),
            Err(overrun) => {
                self.forget_task(key);
                Poll::Ready(Err(overrun.into()))
            }
        }
    }

    pub(super) fn forget_task(&self, key: &mut WakerKey) {
        self.inner.shared.wakers().forget(key);
    }

    /// Asks for one event at the next completion; with `solicited_only`, at the next solicited or
    /// failed one. Poll until empty after this, and then wait for the channel's event.
    pub fn request_notification(&self, solicited_only: bool) {
        self.inner.shared.arm(solicited_only);
    }
}

impl std::fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("capacity", &self.capacity())
            .field("waiting", &self.inner.shared.waiting())
            .finish_non_exhaustive()
    }
}

/// Where events of completion queues arrive. Its descriptor is readable while there are any.
#[derive(Clone)]
pub struct CompletionChannel {
    inner: Arc<Channel>,
}

struct Channel {
    event: Event,
    tokens: Mutex<VecDeque<u64>>,
    arrived: Condvar,
    wakers: Wakers,
}

impl Channel {
    fn tokens(&self) -> std::sync::MutexGuard<'_, VecDeque<u64>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a channel about one completion queue.
struct Announcer {
    channel: Arc<Channel>,
    token: u64,
}

impl Notify for Announcer {
    fn notify(&self) {
        // Each arming gives one event, so the number of tokens is bounded by the number of armings.
        self.channel.tokens().push_back(self.token);
        self.channel.event.signal();
        self.channel.arrived.notify_one();
        fence(Ordering::SeqCst);
        if self.channel.wakers.must_wake() {
            self.channel.wakers.wake();
        }
    }
}

impl CompletionChannel {
    /// A channel without queues.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> Result<Self, VerbsError> {
        let event = Event::new().map_err(VerbsError::Channel)?;
        let tokens = Mutex::new(VecDeque::new());
        let (arrived, wakers) = (Condvar::new(), Wakers::default());
        Ok(Self { inner: Arc::new(Channel { event, tokens, arrived, wakers }) })
    }

    /// Connects a completion queue; `token` will name it in events.
    ///
    /// # Errors
    /// The queue has a channel already, with which it stays.
    pub fn attach(&self, queue: &CompletionQueue, token: u64) -> Result<(), VerbsError> {
        let channel = Arc::clone(&self.inner);
        let attached = queue.shared().set_notifier(Box::new(Announcer { channel, token }));
        if attached { Ok(()) } else { Err(VerbsError::HasChannel) }
    }

    /// The oldest event's token, if there is one, without waiting.
    pub fn poll_event(&self) -> Option<u64> {
        self.take(&mut self.inner.tokens())
    }

    /// The oldest event's token; waits for one at most for `timeout`. The device's thread drives
    /// the protocol meanwhile; on a device without one ([`crate::software::Drive::Caller`])
    /// somebody else has to poll.
    pub fn wait_event(&self, timeout: Duration) -> Option<u64> {
        let tokens = self.inner.tokens();
        let empty = |tokens: &mut VecDeque<u64>| tokens.is_empty();
        let waited = self.inner.arrived.wait_timeout_while(tokens, timeout, empty);
        self.take(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// The next event's token, for any executor; see [`NextChannelEvent`].
    pub fn next_event(&self) -> NextChannelEvent<'_> {
        NextChannelEvent::new(self)
    }

    /// Takes an event for a task, which is woken when there is one.
    pub(super) fn poll_task(&self, key: &mut WakerKey, waker: &Waker) -> Option<u64> {
        self.inner.wakers.register(key, waker);
        let token = self.poll_event()?;
        self.forget_task(key);
        Some(token)
    }

    pub(super) fn forget_task(&self, key: &mut WakerKey) {
        self.inner.wakers.forget(key);
    }

    fn take(&self, tokens: &mut VecDeque<u64>) -> Option<u64> {
        let token = tokens.pop_front();
        if tokens.is_empty() {
            self.inner.event.clear();
        }
        token
    }
}

impl AsRawFd for CompletionChannel {
    /// Readable while there are events.
    fn as_raw_fd(&self) -> RawFd {
        self.inner.event.descriptor()
    }
}
