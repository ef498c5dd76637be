//! One side of a round trip by WRITE or SEND: both ends post alike, each from its own sources.

use uroce::verbs::{Completion, Payload, SendFlags, SendOperation, SendRequest};

use super::PerfArgs;
use super::end::End;
use super::plan::Operation;
use crate::cli::output::Failure;

/// Receives and sends of this one queue pair count.
pub(super) const PAIR: usize = 0;
/// Completions that are taken at once: hardly ever is there more than one.
const FEW: usize = 8;
/// The number that receives have; sends have their round's.
pub(super) const RECEIVE: u64 = u64::MAX;

/// What this side has posted, and what has come.
#[derive(Debug, Default)]
pub(super) struct Volley {
    /// Messages posted so far.
    pub(super) posted: u64,
    /// Of these, those that have not been acknowledged.
    pub(super) pending: usize,
    /// Messages received so far (SEND).
    pub(super) received: u64,
    /// Receives used up since the last were posted.
    used: u32,
}

impl Volley {
    /// Whether another message may be posted: a source is not written while a message from it may
    /// still have to be repeated.
    pub(super) fn has_room(&self, args: &PerfArgs, end: &End) -> bool {
        self.pending < end.sources().min(args.depth as usize)
    }

    /// Posts the next message.
    pub(super) fn post(&mut self, args: &PerfArgs, end: &End) -> Result<(), Failure> {
        self.posted += 1;
        let source = self.posted as usize % end.sources();
        let operation = match end.row.operation {
            Operation::Write => {
                end.set_mark(source, mark(self.posted))?;
                SendOperation::Write(end.remote_target(PAIR, 0))
            }
            _ => SendOperation::Send,
        };
        let segments = [end.source(source)];
        let copied = args.is_inline(&end.row).then(|| end.copy_of_source(source)).transpose()?;
        let payload = copied.as_deref().map_or(Payload::Segments(&segments), Payload::Inline);
        let request =
            SendRequest { id: self.posted, operation, flags: SendFlags::SIGNALED, payload };
        end.pairs[PAIR].post_send(&request)?;
        self.pending += 1;
        Ok(())
    }

    /// Takes what has completed without waiting. Returns how many did.
    pub(super) fn poll(&mut self, args: &PerfArgs, end: &End) -> Result<usize, Failure> {
        let mut batch = [Completion::default(); FEW];
        let count = end.completions.poll(&mut batch)?;
        batch[..count].iter().try_for_each(|completion| self.take(args, end, completion))?;
        Ok(count)
    }

    /// Counts a completion, and posts receives again in good time.
    pub(super) fn take(
        &mut self,
        args: &PerfArgs,
        end: &End,
        completion: &Completion,
    ) -> Result<(), Failure> {
        end.check(completion)?;
        if !completion.kind.is_receive() {
            self.pending -= 1;
            return Ok(());
        }
        self.received += 1;
        self.used += 1;
        if self.used > args.receives() / 2 {
            post_receives(end, PAIR, self.used)?;
            self.used = 0;
        }
        Ok(())
    }
}

/// The last byte of message `number`: never the same in two messages that follow each other.
pub(super) const fn mark(number: u64) -> u8 {
    number as u8
}

/// Posts receives of a queue pair, all for its one target.
pub(super) fn post_receives(end: &End, pair: usize, count: u32) -> Result<(), Failure> {
    let segment = [end.target(pair, 0)];
    for _ in 0..count {
        end.pairs[pair].post_receive(RECEIVE, &segment)?;
    }
    Ok(())
}
