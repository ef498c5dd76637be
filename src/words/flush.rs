//! Work requests that ended because of others.

use super::{Explanation, explain, with_ends};
use crate::engine::{Failure, FlushCause, History};
use crate::queue::{CompletionKind, CompletionStatus};

/// Why a work request was flushed.
pub(super) fn flushed(history: &History, id: u64) -> Explanation {
    let root = history.root.and_then(|root| history.failures.get(root));
    let explanation = match (root, history.flushed) {
        (Some(root), _) => by_failure(id, root),
        (None, Some(FlushCause::Modified { from })) => Explanation::new(
            "flushed.modified",
            format!(
                "work request {id} was flushed: the application took the queue pair from {from} to ERR"
            ),
        ),
        (None, None) => Explanation::new(
            "flushed.unknown",
            format!(
                "work request {id} was flushed, and the queue pair does not remember why: it was reset since"
            ),
        ),
    };
    let status = CompletionStatus::WorkRequestFlushed;
    with_ends(explanation.status(Some(status)).fact("work_request", id), &history.ends)
}

fn by_failure(id: u64, root: &Failure) -> Explanation {
    let why = explain(root);
    let (code, first) = match (root.status, root.id) {
        (Some(status), Some(first)) => {
            let kind =
                if root.kind == Some(CompletionKind::Receive) { "receive" } else { "work request" };
            (
                "flushed.failure",
                format!("{kind} {first} had failed with {status} ({})", status as u8),
            )
        }
        _ => ("flushed.fault", "a request of the peer was at fault".to_owned()),
    };
    let mut explanation = Explanation::new(
        code,
        format!("work request {id} was flushed because {first} before it: {}", why.headline),
    );
    explanation.causes = why.causes;
    explanation.advice = why.advice;
    explanation.detail = why.detail;
    explanation.fact("first_failure", why.code.to_owned())
}

/// A failure that is not remembered any more.
pub(super) fn forgotten(history: &History, id: u64, status: CompletionStatus) -> Explanation {
    let headline = if status.is_success() {
        format!("work request {id} has succeeded")
    } else {
        format!(
            "work request {id} ended with {status} ({}), and the queue pair does not remember more: it was reset since, or has failed several times",
            status as u8
        )
    };
    let code = if status.is_success() { "success" } else { "forgotten" };
    let explanation = Explanation::new(code, headline).status(Some(status));
    with_ends(explanation.fact("work_request", id), &history.ends)
}
