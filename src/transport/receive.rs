//! Receives: claimed by the first packet of a message, completed by the last.
//!
//! A claim is taken out of the queue at once, since a shared queue serves other messages meanwhile;
//! a message that is given up leaves its claim to the next one. A claim knows the queue that it was
//! taken from: with XRC that is not the queue pair's, and other requests may have named other ones
//! since.

use super::context::{Base, Context};
use super::effects::AsyncEvent;
use crate::memory::{DomainId, Sge};
use crate::queue::sync::Arc;
use crate::queue::{Completion, CompletionKind, CompletionStatus, ReceiveQueue};

/// A receive that a message has claimed, or none. Its storage is used again.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    held: bool,
    id: u64,
    length: u32,
    segments: Vec<Sge>,
    /// The XRC shared receive queue that it was taken from; nothing if it is the queue pair's.
    from: Option<Arc<ReceiveQueue>>,
}

impl Claim {
    /// Makes sure that a receive is claimed. Returns its size in bytes; nothing if none is posted.
    pub(crate) fn claim(&mut self, base: &Base, ctx: &mut Context<'_>) -> Option<u32> {
        if !self.held {
            let queue = base.receives();
            let receive = queue.first()?;
            self.segments.clear();
            self.segments.extend(queue.first_segments().iter());
            queue.release_first();
            if queue.take_limit_event() {
                ctx.event(AsyncEvent::SharedReceiveQueueLimit(Arc::clone(queue)));
            }
            self.from = queue.number().map(|_| Arc::clone(queue));
            (self.held, self.id, self.length) = (true, receive.id, receive.length);
        }
        Some(self.length)
    }

    /// Whether a receive is claimed.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Where the claimed receive's bytes go.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Sge> + Clone {
        self.segments.iter().copied()
    }

    /// The claimed receive's identifier.
    pub(crate) fn id(&self) -> Option<u64> {
        self.held.then_some(self.id)
    }

    /// The protection domain in which the keys of the claimed receive count.
    pub(crate) fn domain(&self, base: &Base) -> DomainId {
        self.queue(base).domain().unwrap_or(base.domain)
    }

    fn queue<'a>(&'a self, base: &'a Base) -> &'a Arc<ReceiveQueue> {
        self.from.as_ref().unwrap_or(&base.queues.receive)
    }

    /// Completes the claimed receive, whose identifier is filled in here. Returns whether the
    /// completion queue had room.
    #[must_use]
    pub(crate) fn complete(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        completion: Completion,
    ) -> bool {
        self.held = false;
        ctx.complete_receive(base, self.queue(base), &Completion { id: self.id, ..completion })
    }

    /// Forgets the claimed receive, as RESET does; it gives no completion.
    pub(crate) fn forget(&mut self, base: &Base) {
        if std::mem::take(&mut self.held) {
            self.queue(base).occupied().remove();
        }
    }

    /// Forgets the claimed receive if it is one of `queue`, which ends.
    pub(crate) fn forget_from(&mut self, queue: &Arc<ReceiveQueue>) {
        if self.from.as_ref().is_some_and(|from| Arc::ptr_eq(from, queue)) {
            self.held = false;
            self.from = None;
        }
    }

    /// Ends all receives: the claimed one, or the oldest, with `first` if given, all others as
    /// flushed. Returns whether the completion queue had room.
    pub(crate) fn flush(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        first: Option<CompletionStatus>,
    ) -> bool {
        let mut status = first.unwrap_or(CompletionStatus::WorkRequestFlushed);
        let mut room = true;
        while self.next(base, ctx) {
            let completion = Completion {
                status,
                kind: CompletionKind::Receive,
                queue_pair: base.number(),
                ..Completion::default()
            };
            room &= self.complete(base, ctx, completion);
            status = CompletionStatus::WorkRequestFlushed;
        }
        room
    }

    /// Whether there is a receive to end, which is claimed then. What lies in a shared queue serves
    /// other queue pairs.
    fn next(&mut self, base: &Base, ctx: &mut Context<'_>) -> bool {
        self.held || (!base.queues.shares_receives() && self.claim(base, ctx).is_some())
    }
}
