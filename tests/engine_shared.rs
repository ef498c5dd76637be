//! Shared receive queues between two engines.

mod pair;

use std::sync::Arc;

use pair::Pair;
use uroce::engine::{AsyncEvent, ControlError};
use uroce::queue::{
    CompletionStatus, PathMtu, PostError, QueuePairAttributes, QueuePairKind, QueuePairState,
    ReceiveRequest, SendFlags, SendOperation,
};

fn rc() -> Pair {
    Pair::sharing_receives(QueuePairKind::Rc, PathMtu::Mtu1024, 16)
}

#[test]
fn messages_take_receives_of_the_shared_queue_in_order() {
    let mut pair = rc();
    for id in 0..4 {
        pair.post_receive(1, id, id as usize * 8192, 8192);
    }
    for (id, length) in [(0, 5000), (1, 0), (2, 1024), (3, 8192)] {
        pair.memory(0).write(0, &vec![id as u8 + 1; length]).unwrap();
        pair.post(0, id, SendOperation::Send, SendFlags::SIGNALED, (0, length));
        pair.run();
        assert_eq!(pair.completion(0).status, CompletionStatus::Success);
        let received = pair.completion(1);
        assert_eq!((received.id, received.length as usize), (id, length));
        let arrived = pair.memory(1).to_vec(id as usize * 8192, length).unwrap();
        assert_eq!(arrived, vec![id as u8 + 1; length]);
    }
}

#[test]
fn receives_are_posted_to_the_shared_queue_and_nowhere_else() {
    let pair = rc();
    let request = ReceiveRequest { id: 1, segments: &[] };
    let refused = pair.sides[1].queues.post_one_receive(&request);
    assert_eq!(refused, Err(PostError::SharedReceiveQueue));
}

#[test]
fn an_empty_shared_queue_is_waited_for() {
    let mut pair = rc();
    pair.post(0, 1, SendOperation::Send, SendFlags::SIGNALED, (0, 100));
    pair.run_for(3_000_000);
    assert!(pair.try_completion(0).is_none());
    pair.post_receive(1, 2, 0, 100);
    pair.run();
    assert_eq!(pair.completion(0).status, CompletionStatus::Success);
    assert_eq!(pair.completion(1).id, 2);
}

#[test]
fn the_limit_gives_one_event_when_too_few_receives_are_left() {
    let mut pair = rc();
    for id in 0..3 {
        pair.post_receive(1, id, 0, 100);
    }
    let shared = Arc::clone(pair.sides[1].shared.as_ref().unwrap());
    pair.sides[1].engine.set_shared_limit(&shared, 2).unwrap();
    for id in 0..3 {
        pair.post(0, id, SendOperation::Send, SendFlags::NONE, (0, 10));
        pair.run();
        let effects = pair.effects(1);
        let reached = |event: &&AsyncEvent| matches!(event, AsyncEvent::SharedReceiveQueueLimit(queue) if Arc::ptr_eq(queue, &shared));
        let events = effects.events.iter().filter(reached).count();
        assert_eq!(events, usize::from(id == 1), "after message {id}");
    }
    assert_eq!(shared.limit(), 0, "the limit is for one event");
    // Set when it is reached already, it comes at once.
    pair.sides[1].engine.set_shared_limit(&shared, 1).unwrap();
    assert_eq!(pair.effects(1).events.len(), 1);
    let refused = pair.sides[1].engine.set_shared_limit(&shared, 17);
    assert!(matches!(refused, Err(ControlError::Range { most: 16, .. })));
}

#[test]
fn a_queue_pair_in_error_leaves_the_shared_receives_alone_and_says_so() {
    let mut pair = rc();
    for id in 0..3 {
        pair.post_receive(1, id, 0, 4096);
    }
    let number = pair.sides[1].queues.number();
    let error = QueuePairAttributes::to_state(QueuePairState::Error);
    pair.sides[1].engine.modify_queue_pair(pair.now, number, &error).unwrap();
    assert!(pair.try_completion(1).is_none());
    let effects = pair.effects(1);
    assert!(matches!(effects.events[..], [AsyncEvent::LastReceiveReached(of)] if of == number));
    assert_eq!(pair.sides[1].shared.as_ref().unwrap().posted(), 3);
}

#[test]
fn a_claimed_receive_ends_with_its_queue_pair() {
    let mut pair = rc();
    pair.post_receive(1, 7, 0, 1500);
    pair.post_receive(1, 8, 0, 4096);
    pair.post(0, 1, SendOperation::Send, SendFlags::SIGNALED, (0, 3000));
    pair.run();
    assert_eq!(pair.completion(0).status, CompletionStatus::RemoteInvalidRequest);
    let failed = pair.completion(1);
    assert_eq!((failed.id, failed.status), (7, CompletionStatus::LocalLengthError));
    assert!(pair.try_completion(1).is_none());
    assert_eq!(pair.sides[1].shared.as_ref().unwrap().posted(), 1);
}

#[test]
fn a_shared_queue_in_use_cannot_be_destroyed() {
    let mut pair = rc();
    let side = &mut pair.sides[1];
    let shared = Arc::clone(side.shared.as_ref().unwrap());
    let busy = side.engine.destroy_shared_receive_queue(&shared);
    assert_eq!(busy, Err(ControlError::SharedQueueBusy { users: 1 }));
    side.engine.destroy_queue_pair(side.queues.number()).unwrap();
    side.engine.destroy_shared_receive_queue(&shared).unwrap();
    let gone = side.engine.destroy_shared_receive_queue(&shared);
    assert_eq!(gone, Err(ControlError::NoSuchSharedQueue));
}

/// What a queue pair that ends has taken of the shared queue is free again: receives that are
/// claimed, and those whose completions nobody has polled yet.
#[test]
fn a_queue_pair_that_ends_gives_back_what_it_has_taken() {
    let mut pair = rc();
    for id in 0..16 {
        pair.post_receive(1, id, 0, 4096);
    }
    for id in 0..3 {
        pair.post(0, id, SendOperation::Send, SendFlags::SIGNALED, (0, 100));
    }
    pair.run();
    // The first packets of a message that will never be whole.
    pair.post(0, 3, SendOperation::Send, SendFlags::SIGNALED, (0, 4096));
    pair.run_for(1);
    let side = &mut pair.sides[1];
    let shared = Arc::clone(side.shared.as_ref().unwrap());
    let request = ReceiveRequest { id: 99, segments: &[] };
    assert_eq!(shared.post(&[request]).0, 0, "completions that wait take up their entries");
    side.engine.destroy_queue_pair(side.queues.number()).unwrap();
    let free = 16 - shared.posted() as usize;
    assert!(free >= 3);
    assert_eq!(shared.post(&vec![request; 17]).0, free);
    for id in 0..3 {
        assert_eq!(pair.completion(1).id, id, "they can still be polled");
    }
    assert_eq!(shared.post(&[request]).0, 0, "and free nothing more then");
}
