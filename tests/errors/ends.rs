//! Work requests that ended because of others, or of which nothing is remembered.

use uroce::queue::{CompletionStatus, QueuePairAttributes, QueuePairState, SendOperation};
use uroce::words::explain_status;

use crate::Case;
use crate::pair::Pair;
use crate::world::{all, destroy, explained, explained_as, history, impatient, post, rc, run};

pub const CASES: &[Case] = &[
    ("flushed.failure", after_a_failure),
    ("flushed.fault", after_a_fault),
    ("flushed.modified", after_modify),
    ("flushed.unknown", after_reset),
    ("forgotten", forgotten),
    ("success", success),
];

fn modify(pair: &mut Pair, state: QueuePairState) {
    let side = &mut pair.sides[0];
    let attributes = QueuePairAttributes::to_state(state);
    side.engine.modify_queue_pair(pair.now, side.queues.number(), &attributes).unwrap();
}

fn after_a_failure() -> String {
    let mut pair = impatient();
    destroy(&mut pair, 1);
    let operation = SendOperation::Write(pair.remote(1, 0));
    post(&mut pair, operation, 8);
    post(&mut pair, operation, 8);
    run(&mut pair, all);
    assert_eq!(pair.completion(0).status, CompletionStatus::TransportRetryExceeded);
    explained(&mut pair, 0)
}

/// The receiver's other receives go down with a bad request of the peer.
fn after_a_fault() -> String {
    let mut pair = rc(&|_, _| {});
    pair.post_receive(1, 5, 0, 64);
    let operation = SendOperation::FetchAdd { remote: pair.remote(1, 4), add: 1 };
    post(&mut pair, operation, 8);
    run(&mut pair, all);
    explained(&mut pair, 1)
}

fn after_modify() -> String {
    let mut pair = rc(&|_, _| {});
    pair.post_receive(0, 5, 0, 64);
    modify(&mut pair, QueuePairState::Error);
    explained(&mut pair, 0)
}

fn after_reset() -> String {
    let mut pair = rc(&|_, _| {});
    pair.post_receive(0, 5, 0, 64);
    modify(&mut pair, QueuePairState::Error);
    let completion = pair.completion(0);
    modify(&mut pair, QueuePairState::Reset);
    explained_as(&pair, 0, &completion)
}

fn forgotten() -> String {
    let mut pair = impatient();
    destroy(&mut pair, 1);
    let operation = SendOperation::Write(pair.remote(1, 0));
    post(&mut pair, operation, 8);
    run(&mut pair, all);
    let completion = pair.completion(0);
    modify(&mut pair, QueuePairState::Reset);
    explained_as(&pair, 0, &completion)
}

fn success() -> String {
    let pair = rc(&|_, _| {});
    explain_status(&history(&pair, 0), 7, CompletionStatus::Success).to_string()
}
