//! Local operations: requests that change our own keys and send nothing.
//!
//! They are carried out once, when their turn in the queue comes, and are no part of what a retry
//! sends again.

use super::context::{Base, Context};
use super::history::Cause;
use crate::memory::Access;
use crate::queue::{CompletionStatus, SendOperation};

/// Carries out a local operation. Returns the status that it fails with, and why; nothing for
/// all other operations.
pub(super) fn carry_out(
    base: &Base,
    ctx: &mut Context<'_>,
    operation: &SendOperation,
) -> Option<(CompletionStatus, Cause)> {
    let over = base.number();
    match operation {
        SendOperation::LocalInvalidate(key) => {
            let invalidated = ctx.keys.invalidate(key.value(), base.domain, over);
            invalidated.err().map(|found| {
                let need = Access::INVALIDATE;
                let denial = ctx.keys.denial(key.value(), (0, 0), need, found);
                let status = CompletionStatus::LocalQueuePairOperationError;
                (status, Cause::CannotInvalidate(denial))
            })
        }
        SendOperation::BindWindow(bind) => {
            let bound = ctx.keys.bind(bind, base.domain, over);
            bound.err().map(|fault| {
                (CompletionStatus::MemoryWindowBindError, Cause::CannotBind { fault, bind: *bind })
            })
        }
        _ => None,
    }
}
