//! Waiting: time limits, completion channels, descriptors.

use std::os::fd::AsRawFd;
use std::time::Duration;

use uroce::queue::Payload;
use uroce::software::clock;
use uroce::time::MILLISECOND;
use uroce::verbs::{
    AsyncEvent, Completion, CompletionChannel, ConnectOptions, Remote, Rkey, SendFlags,
    SendOperation, SendRequest, VerbsError, connect_pair,
};

use super::common::wait_readable;
use super::setup::{End, LONG, context, ends};

const SHORT: Duration = Duration::from_millis(30);

#[test]
fn a_wait_without_completion_ends_in_time_and_says_so() {
    let completions = context(30).create_completion_queue(4).unwrap();
    let start = clock::now();
    assert_eq!(completions.wait(&mut [Completion::default(); 4], Some(SHORT)).unwrap(), 0);
    assert!(clock::now() - start >= 30 * MILLISECOND);
    let error = completions.wait_one(SHORT).unwrap_err();
    assert_eq!(error.to_string(), "no completion within 30ms");
    assert_eq!(completions.wait(&mut [], Some(Duration::ZERO)).unwrap(), 0);
    let channel = CompletionChannel::new().unwrap();
    let start = clock::now();
    assert_eq!((channel.wait_event(SHORT), channel.poll_event()), (None, None));
    assert!(clock::now() - start >= 30 * MILLISECOND);
}

#[test]
fn a_wait_takes_as_many_as_there_is_room_for() {
    let (one, other) = ends(31);
    for id in 0..5 {
        let operation = SendOperation::Write(other.memory.remote(0));
        one.pair.post(id, operation, one.memory.segment(0, 10)).unwrap();
    }
    let mut ids = Vec::new();
    while ids.len() < 5 {
        let mut room = [Completion::default(); 2];
        let count = one.completions.wait(&mut room, Some(LONG)).unwrap();
        assert!((1..=2).contains(&count));
        ids.extend(room[..count].iter().map(|completion| completion.id));
    }
    assert_eq!(ids, [0, 1, 2, 3, 4]);
}

#[test]
fn an_endless_wait_ends_when_another_thread_brings_the_completion() {
    let (one, other) = ends(32);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut room = [Completion::default()];
            other.completions.wait(&mut room, None).unwrap();
            room[0].id
        });
        other.receive(42);
        one.pair.post(1, SendOperation::Send, one.memory.segment(0, 10)).unwrap();
        assert_eq!(waiting.join().unwrap(), 42);
    });
}

#[test]
fn the_channels_descriptor_is_readable_exactly_while_an_event_waits() {
    let (one, other) = ends(33);
    let channel = CompletionChannel::new().unwrap();
    channel.attach(&other.completions, 7).unwrap();
    channel.attach(&one.completions, 8).unwrap();
    assert!(matches!(channel.attach(&one.completions, 9), Err(VerbsError::HasChannel)));
    let descriptor = [channel.as_raw_fd()];
    let send = |id| one.pair.post(id, SendOperation::Send, one.memory.segment(0, 10)).unwrap();

    other.receive(1);
    send(1);
    assert_eq!((other.good(), one.good()), (1, 1));
    assert!(!wait_readable(&descriptor, 0), "nobody asked for an event");

    other.completions.request_notification(false);
    other.receive(2);
    send(2);
    assert!(wait_readable(&descriptor, 30_000));
    assert_eq!(channel.poll_event(), Some(7));
    assert!(!wait_readable(&descriptor, 0));
    assert_eq!(channel.poll_event(), None);
    assert_eq!((other.good(), one.good()), (2, 2));

    // One event for each time that it was asked for, whatever completes meanwhile.
    other.receive(3);
    send(3);
    assert_eq!((other.good(), one.good()), (3, 3));
    assert!(!wait_readable(&descriptor, 0));
}

#[test]
fn an_event_that_was_asked_for_too_late_is_found_by_the_poll_after_it() {
    let (one, other) = ends(34);
    let channel = CompletionChannel::new().unwrap();
    channel.attach(&other.completions, 0).unwrap();
    for id in 0..200 {
        other.receive(id);
        one.pair.post(id, SendOperation::Send, one.memory.segment(0, 10)).unwrap();
        let mut found = other.completions.poll_one().unwrap();
        while found.is_none() {
            other.completions.request_notification(false);
            found = other.completions.poll_one().unwrap();
            if found.is_none() {
                assert!(channel.wait_event(LONG).is_some(), "a completion was missed");
            }
        }
        assert_eq!(found.unwrap().id, id);
        assert_eq!(one.good(), id);
    }
}

#[test]
fn only_solicited_completions_wake_who_asked_for_such() {
    let (one, other) = ends(35);
    let channel = CompletionChannel::new().unwrap();
    channel.attach(&other.completions, 0).unwrap();
    let send = |solicited| {
        one.pair
            .post_send(&SendRequest {
                id: 1,
                operation: SendOperation::Send,
                flags: SendFlags { solicited, ..SendFlags::SIGNALED },
                payload: Payload::Segments(&[one.memory.segment(0, 10)]),
            })
            .unwrap();
        one.good();
    };
    other.completions.request_notification(true);
    other.receive(1);
    send(false);
    assert_eq!(other.good(), 1);
    assert_eq!(channel.poll_event(), None);
    other.receive(2);
    send(true);
    assert_eq!(channel.wait_event(LONG), Some(0));
    assert_eq!(other.good(), 2);
}

#[test]
fn asynchronous_events_come_with_a_readable_descriptor() {
    let context = context(36);
    let (one, other) = (End::new(&context), End::new(&context));
    connect_pair(&one.pair, &other.pair, &ConnectOptions::default()).unwrap();
    assert_eq!(context.poll_event().map(|_| ()), None);
    let wrong = Remote { address: 0, key: Rkey::new(1) };
    one.pair.post(1, SendOperation::Write(wrong), one.memory.segment(0, 10)).unwrap();
    assert!(wait_readable(&[context.as_raw_fd()], 30_000));
    let event = context.poll_event().unwrap();
    let number = other.pair.number();
    assert!(matches!(event, AsyncEvent::AccessError(n) if n == number), "{event:?}");
    assert!(!wait_readable(&[context.as_raw_fd()], 0));
}
