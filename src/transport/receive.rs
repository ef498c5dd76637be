//! Receives: claimed by the first packet of a message, completed by the last.
//!
//! A claim is taken out of the queue at once, since a shared queue serves other messages meanwhile;
//! a message that is given up leaves its claim to the next one.

use super::context::{Base, Context};
use super::effects::AsyncEvent;
use crate::memory::Sge;
use crate::queue::sync::Arc;
use crate::queue::{Attachment, Completion, CompletionKind, CompletionStatus};
use crate::wire::Qpn;

/// A receive that a message has claimed, or none. Its storage is used again.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    held: bool,
    id: u64,
    length: u32,
    segments: Vec<Sge>,
}

impl Claim {
    /// Makes sure that a receive is claimed. Returns its size in bytes; nothing if none is posted.
    pub(crate) fn claim(&mut self, base: &Base, ctx: &mut Context<'_>) -> Option<u32> {
        if !self.held {
            let receive = base.queues.receive.first()?;
            self.segments.clear();
            self.segments.extend(base.queues.receive.first_segments().iter());
            // It takes up its entry until the completion has been polled.
            base.queues.receive.unpolled().add();
            base.queues.receive.release_first();
            if base.queues.receive.take_limit_event() {
                ctx.event(AsyncEvent::SharedReceiveQueueLimit(Arc::clone(&base.queues.receive)));
            }
            (self.held, self.id, self.length) = (true, receive.id, receive.length);
        }
        Some(self.length)
    }

    /// Where the claimed receive's bytes go.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Sge> + Clone {
        self.segments.iter().copied()
    }

    /// The claimed receive's identifier; it is not claimed any more.
    pub(crate) fn take(&mut self) -> Option<u64> {
        std::mem::take(&mut self.held).then_some(self.id)
    }

    /// Forgets the claimed receive, as RESET does; it gives no completion.
    pub(crate) fn forget(&mut self, base: &Base) {
        if self.take().is_some() {
            base.queues.receive.unpolled().remove();
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
        while let Some(id) = self.next(base, ctx) {
            let completion = Completion {
                id,
                status,
                kind: CompletionKind::Receive,
                length: 0,
                attachment: Attachment::None,
                queue_pair: base.number(),
                source: Qpn::default(),
                solicited: false,
            };
            room &= ctx.complete(base, &completion);
            status = CompletionStatus::WorkRequestFlushed;
        }
        room
    }

    /// The next receive to end. What lies in a shared queue serves other queue pairs.
    fn next(&mut self, base: &Base, ctx: &mut Context<'_>) -> Option<u64> {
        if !base.queues.shares_receives() {
            self.claim(base, ctx)?;
        }
        self.take()
    }
}
