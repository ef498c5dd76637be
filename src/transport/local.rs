//! Local operations: requests that change our own keys and send nothing.
//!
//! They are carried out once, when their turn in the queue comes, and are no part of what a retry
//! sends again.

use super::context::{Base, Context};
use crate::queue::{CompletionStatus, SendOperation};

/// Carries out a local operation. Returns the status that it fails with; nothing for all other
/// operations.
pub(super) fn carry_out(
    base: &Base,
    ctx: &mut Context<'_>,
    operation: &SendOperation,
) -> Option<CompletionStatus> {
    let over = base.number();
    match operation {
        SendOperation::LocalInvalidate(key) => {
            let invalidated = ctx.keys.invalidate(key.value(), base.domain, over);
            invalidated.err().map(|_| CompletionStatus::LocalQueuePairOperationError)
        }
        SendOperation::BindWindow(bind) => {
            let bound = ctx.keys.bind(bind, base.domain, over);
            bound.err().map(|_| CompletionStatus::MemoryWindowBindError)
        }
        _ => None,
    }
}
