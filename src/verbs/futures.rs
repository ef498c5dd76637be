//! Waiting for completions and events without a thread, on any executor.
//!
//! ```
//! # use uroce::verbs;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = verbs::open("lo")?;
//! # let completions = device.create_completion_queue(16)?;
//! # let _ = async {
//! while let Ok(completion) = completions.next().await {
//!     println!("work request {}: {}", completion.id, completion.status);
//! }
//! # };
//! # Ok(()) }
//! ```
//!
//! What is asked for is taken out only by the poll that returns it: a future that is dropped before
//! has taken nothing. Any number of tasks may wait for one queue; each completion goes to one of
//! them. Wakers are called by whoever runs the protocol's turn, outside all locks. The device's own
//! thread drives the protocol while nobody polls; a device without one
//! ([`crate::software::Drive::Caller`]) moves only while somebody does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use super::{AsyncEvent, Completion, CompletionChannel, CompletionQueue, Context, VerbsError};
use crate::queue::WakerKey;

/// The next completion of a queue: [`CompletionQueue::next`].
///
/// Gives an error if the queue overran; what came before has been taken then.
#[must_use = "a future does nothing unless it is awaited"]
pub struct NextCompletion<'a> {
    queue: &'a CompletionQueue,
    key: WakerKey,
}

impl<'a> NextCompletion<'a> {
    pub(super) fn new(queue: &'a CompletionQueue) -> Self {
        Self { queue, key: WakerKey::default() }
    }
}

impl Future for NextCompletion<'_> {
    type Output = Result<Completion, VerbsError>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let mut room = [Completion::default()];
        let taken = this.queue.poll_task(&mut room, &mut this.key, task.waker());
        taken.map_ok(|_| room[0])
    }
}

impl Drop for NextCompletion<'_> {
    fn drop(&mut self) {
        self.queue.forget_task(&mut self.key);
    }
}

/// The next completions of a queue: [`CompletionQueue::next_into`].
///
/// Gives how many were put into the room, at least one unless there is no room. Gives an error if
/// the queue overran; what came before has been taken then.
#[must_use = "a future does nothing unless it is awaited"]
pub struct NextCompletions<'a> {
    queue: &'a CompletionQueue,
    room: &'a mut [Completion],
    key: WakerKey,
}

impl<'a> NextCompletions<'a> {
    pub(super) fn new(queue: &'a CompletionQueue, room: &'a mut [Completion]) -> Self {
        Self { queue, room, key: WakerKey::default() }
    }
}

impl Future for NextCompletions<'_> {
    type Output = Result<usize, VerbsError>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.room.is_empty() {
            return Poll::Ready(Ok(0));
        }
        this.queue.poll_task(this.room, &mut this.key, task.waker())
    }
}

impl Drop for NextCompletions<'_> {
    fn drop(&mut self) {
        self.queue.forget_task(&mut self.key);
    }
}

/// The next asynchronous event of a device: [`Context::next_event`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct NextEvent<'a> {
    context: &'a Context,
    key: WakerKey,
}

impl<'a> NextEvent<'a> {
    pub(super) fn new(context: &'a Context) -> Self {
        Self { context, key: WakerKey::default() }
    }
}

impl Future for NextEvent<'_> {
    type Output = AsyncEvent;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<AsyncEvent> {
        let this = self.get_mut();
        let event = this.context.device().poll_event(&mut this.key, task.waker());
        event.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for NextEvent<'_> {
    fn drop(&mut self) {
        self.context.device().forget_event_waiter(&mut self.key);
    }
}

/// The token of a channel's next event: [`CompletionChannel::next_event`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct NextChannelEvent<'a> {
    channel: &'a CompletionChannel,
    key: WakerKey,
}

impl<'a> NextChannelEvent<'a> {
    pub(super) fn new(channel: &'a CompletionChannel) -> Self {
        Self { channel, key: WakerKey::default() }
    }
}

impl Future for NextChannelEvent<'_> {
    type Output = u64;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<u64> {
        let this = self.get_mut();
        let token = this.channel.poll_task(&mut this.key, task.waker());
        token.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for NextChannelEvent<'_> {
    fn drop(&mut self) {
        self.channel.forget_task(&mut self.key);
    }
}
