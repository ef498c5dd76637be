//! The ends of send work requests: in order, each exactly once.

use super::requester::{Outstanding, Requester};
use crate::queue::{CompletionStatus, SendOperation};
use crate::transport::context::{Base, Context};
use crate::transport::requests::{complete_send, count_finished, release};
use crate::wire::Psn;

/// The completion queue had no room.
pub(crate) struct QueueOverrun;

impl Requester {
    /// Completes what is finished, oldest first.
    pub(crate) fn complete_finished(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
    ) -> Result<(), QueueOverrun> {
        while let Some(front) = self.outstanding.front() {
            let finished = self.oldest.distance_from(front.first) >= front.packets;
            if front.failure.is_some() || !finished {
                break;
            }
            let front = *front;
            self.outstanding.pop_front();
            self.unfinished_reads -= u32::from(front.needs_response());
            let signaled = front.flags.signaled || base.signal_all;
            release(base, front.position.wrapping_add(1), signaled);
            count_finished(ctx, &front.operation);
            if signaled {
                complete(base, ctx, &front, CompletionStatus::Success)?;
            }
            // A fenced request may have waited for this one.
            ctx.ready.push(base.slot);
        }
        Ok(())
    }

    /// Ends everything: the oldest request with `first`, if there is one, all others as flushed.
    /// That the completion queue has no room leaves nothing behind.
    pub(crate) fn flush(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        first: Option<CompletionStatus>,
    ) -> Result<(), QueueOverrun> {
        self.give_up(base, ctx);
        let mut status = first.unwrap_or(CompletionStatus::WorkRequestFlushed);
        let mut outcome = Ok(());
        while let Some(entry) = self.outstanding.pop_front() {
            release(base, entry.position.wrapping_add(1), true);
            let completed = complete(base, ctx, &entry, status);
            outcome = outcome.and(completed);
            status = CompletionStatus::WorkRequestFlushed;
        }
        let flushed = self.flush_posted(base, ctx);
        outcome.and(flushed)
    }

    /// Ends what was posted and not started.
    pub(crate) fn flush_posted(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
    ) -> Result<(), QueueOverrun> {
        let mut outcome = Ok(());
        while self.next_position != base.queues.send.head() {
            let head = base.queues.send.read(self.next_position);
            self.next_position = self.next_position.wrapping_add(1);
            release(base, self.next_position, true);
            let status = CompletionStatus::WorkRequestFlushed;
            let pushed = push(base, ctx, head.id, &head.operation, head.length, status);
            outcome = outcome.and(pushed);
        }
        outcome
    }

    /// Gives the window back that is in use; what was sent counts as lost.
    pub(crate) fn uncharge(&mut self, base: &Base, ctx: &mut Context<'_>) {
        if self.next != self.oldest {
            self.go_back(base, ctx);
        }
    }

    /// Cost that is under way.
    pub(crate) fn in_flight(&self) -> u64 {
        self.cost_between(self.oldest, self.next)
    }

    /// Forgets what is in flight and gives its window back.
    pub(crate) fn give_up(&mut self, base: &Base, ctx: &mut Context<'_>) {
        if let Some(peer) = &base.peer {
            let in_flight = self.in_flight();
            ctx.release(peer.path, in_flight);
        }
        self.oldest = self.end;
        self.next = self.end;
        self.highest = self.end;
        self.reads_in_flight = 0;
        self.unfinished_reads = 0;
        self.clock.stop_all();
    }
}

impl Requester {
    /// Panics if the state contradicts itself; for tests.
    pub(crate) fn check_invariants(&self) {
        let ahead = |psn: Psn| psn.distance_from(self.oldest);
        assert!(ahead(self.next) <= ahead(self.highest), "next is not beyond highest");
        assert!(ahead(self.highest) <= ahead(self.end), "highest is not beyond the end");
        assert!(ahead(self.end) <= Psn::MAX_SPAN, "no more PSNs are out than can be told apart");
        let mut position = self.outstanding.front().map_or(self.end, |entry| entry.first);
        let mut reads = 0;
        for entry in &self.outstanding {
            assert_eq!(entry.first, position, "PSNs of requests join");
            position = entry.end();
            reads += u32::from(entry.needs_response());
        }
        assert_eq!(self.unfinished_reads, reads, "unfinished READs are counted right");
        assert_eq!(position, self.end, "the last request ends where the next one begins");
    }
}

fn complete(
    base: &Base,
    ctx: &mut Context<'_>,
    entry: &Outstanding,
    status: CompletionStatus,
) -> Result<(), QueueOverrun> {
    push(base, ctx, entry.id, &entry.operation, entry.shape.length, status)
}

fn push(
    base: &Base,
    ctx: &mut Context<'_>,
    id: u64,
    operation: &SendOperation,
    length: u32,
    status: CompletionStatus,
) -> Result<(), QueueOverrun> {
    let room = complete_send(base, ctx, id, operation, length, status);
    room.then_some(()).ok_or(QueueOverrun)
}
