//! Posting in each state, flushing, resetting, destroying, completion queues and their
//! notifications.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use uroce::engine::{ControlError, Counter, Engine, EngineOptions, Port, QueuePairOptions};
use uroce::queue::CompletionStatus::{RemoteAccessError, Success, WorkRequestFlushed};
use uroce::queue::QueuePairState::{Error, Init, Reset, Rtr, Rts, Sqd};
use uroce::queue::{
    CompletionKind, Notify, Payload, PostError, QueueCapacities, QueuePairAttributes,
    QueuePairKind, QueuePairState, ReceiveRequest, SendFlags, SendOperation, SendRequest,
};
use uroce::wire::NakCode;

use crate::harness::{
    Event, RECEIVE, SERVED, SOURCE, Setup, Story, ack, nak, ours, peer, peer_reth, send_only,
    story, theirs, write_only,
};

fn in_state(state: QueuePairState) -> Setup {
    Setup { state, ..Setup::default() }
}

fn to(s: &mut Story, state: QueuePairState) {
    s.modify(&QueuePairAttributes::to_state(state)).unwrap();
}

#[test]
fn sends_can_be_posted_from_rts_on_and_receives_from_init_on() {
    for state in [Reset, Init, Rtr, Rts, Sqd, Error] {
        in_state(state).tell(|s| {
            let segments = [s.sge(SOURCE, 8)];
            let request = SendRequest {
                id: 1,
                operation: SendOperation::Send,
                flags: SendFlags::NONE,
                payload: Payload::Segments(&segments),
            };
            let posted = s.pairs[0].post_one_send(&request);
            if [Reset, Init, Rtr].contains(&state) {
                assert_eq!(posted, Err(PostError::WrongState(state, "send requests")));
                let sentence = posted.unwrap_err().to_string();
                assert!(sentence.contains(&state.to_string()), "{sentence}");
            } else {
                posted.unwrap();
            }
            let received =
                s.pairs[0].post_one_receive(&ReceiveRequest { id: 2, segments: &segments });
            if state == Reset {
                assert_eq!(received, Err(PostError::WrongState(state, "receive requests")));
            } else {
                received.unwrap();
            }
            match state {
                Rts => _ = s.expect(send_only(0, &ours(SOURCE, 8)).asking()),
                Error => {
                    s.expect_sent(1, WorkRequestFlushed);
                    s.expect_received(2, WorkRequestFlushed);
                }
                _ => s.expect_nothing(),
            }
        });
    }
}

#[test]
fn receives_posted_in_init_are_there_in_rtr() {
    in_state(Init).tell(|s| {
        s.post_receive(7, 64);
        s.modify(&s.attributes(Rtr)).unwrap();
        s.deliver(send_only(0, &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
        s.expect_event(Event::Established(0));
        let completion = s.expect_received(7, Success);
        assert_eq!((completion.kind, completion.length), (CompletionKind::Receive, 8));
    });
}

#[test]
fn sends_posted_in_sqd_start_in_rts() {
    in_state(Sqd).tell(|s| {
        s.post_write(1, 8);
        s.expect_nothing();
        to(s, Rts);
        s.expect(write_only(0, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
    });
}

#[test]
fn a_move_to_err_flushes_both_queues_in_order_and_so_are_all_later_posts() {
    story(|s| {
        for id in 0..3 {
            s.post_receive(id, 64);
            s.post_write(id + 10, 8);
        }
        s.expect(write_only(0, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.next_sent().expect("the second");
        s.next_sent().expect("the third");
        s.post_write(13, 8);
        to(s, Error);
        for id in 10..14 {
            let completion = s.expect_sent(id, WorkRequestFlushed);
            assert_eq!(completion.kind, CompletionKind::Write);
        }
        for id in 0..3 {
            s.expect_received(id, WorkRequestFlushed);
        }
        s.expect_dead();
        for id in 20..22 {
            s.post_send(id, 8);
            s.post_receive(id, 8);
        }
        s.expect_sent(20, WorkRequestFlushed);
        s.expect_sent(21, WorkRequestFlushed);
        s.expect_received(20, WorkRequestFlushed);
        s.expect_received(21, WorkRequestFlushed);
        s.expect_dead();
    });
}

#[test]
fn unsignaled_sends_are_flushed_with_a_completion_each() {
    let setup = Setup { signal_all: false, ..Setup::default() };
    setup.tell(|s| {
        s.post_write(1, 8);
        s.post_write(2, 8);
        to(s, Error);
        s.expect_sent(1, WorkRequestFlushed);
        s.expect_sent(2, WorkRequestFlushed);
    });
}

#[test]
fn a_move_to_err_before_rtr_flushes_the_receives() {
    in_state(Init).tell(|s| {
        s.post_receive(1, 8);
        to(s, Error);
        s.expect_received(1, WorkRequestFlushed);
    });
}

#[test]
fn answers_that_were_owed_are_forgotten_in_err() {
    story(|s| {
        s.deliver(write_only(0, s.reth(SERVED, 8), &theirs(0, 8)).asking());
        s.turn();
        to(s, Error);
        s.expect_nothing();
    });
}

#[test]
fn reset_forgets_everything_that_was_posted_and_gives_no_completion() {
    story(|s| {
        for id in 0..3 {
            s.post_receive(id, 64);
            s.post_write(id, 8);
        }
        while s.next_sent().is_some() {}
        s.post_write(9, 8);
        to(s, Reset);
        s.expect_nothing_until(crate::harness::ms(1_000));
        assert_eq!(s.pairs[0].receive_queue().posted(), 0);
        let attributes = s.engine.query_queue_pair(s.number()).unwrap().attributes;
        let expected = QueuePairAttributes {
            current_state: Some(Reset),
            ..QueuePairAttributes::to_state(Reset)
        };
        assert_eq!(attributes, expected);
        s.deliver(ack(2, 3));
        s.expect_nothing();
    });
}

#[test]
fn after_reset_a_queue_pair_begins_anew() {
    story(|s| {
        s.post_receive(1, 64);
        s.post_write(2, 8);
        s.next_sent().expect("the WRITE");
        s.deliver(write_only(0, s.reth(SERVED, 8), &theirs(0, 8)));
        s.expect_nothing();
        to(s, Reset);
        s.bring_to(Rts);
        s.post_write(3, 8);
        s.expect(write_only(0, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.deliver(ack(0, 1));
        s.expect_sent(3, Success);
        s.deliver(send_only(0, &theirs(0, 8)));
        s.expect(crate::harness::rnr_nak(0, 0, 12));
    });
}

#[test]
fn what_reset_forgot_is_not_flushed_later() {
    story(|s| {
        for id in 0..3 {
            s.post_receive(id, 64);
            s.post_write(id, 8);
        }
        while s.next_sent().is_some() {}
        to(s, Reset);
        s.bring_to(Init);
        to(s, Error);
        s.expect_nothing();
        s.post_send(7, 8);
        s.expect_sent(7, WorkRequestFlushed);
        to(s, Reset);
        s.bring_to(Rtr);
        s.post_receive(8, 8);
        s.deliver(crate::harness::write_last(0, &[]));
        s.expect(nak(0, 0, NakCode::InvalidRequest));
        s.expect_event(Event::Established(0));
        s.expect_event(Event::RequestError(0));
        s.expect_received(8, WorkRequestFlushed);
    });
}

#[test]
fn completions_given_before_a_reset_stay() {
    story(|s| {
        s.post_write(1, 8);
        s.next_sent().expect("the WRITE");
        s.deliver(ack(0, 1));
        s.settle();
        to(s, Reset);
        s.expect_sent(1, Success);
    });
}

#[test]
fn a_full_queue_says_so_and_has_room_again_after_completions() {
    let mut setup = Setup::default();
    setup.capacities.send_requests = 2;
    setup.capacities.receive_requests = 2;
    setup.tell(|s| {
        let segments = [s.sge(SOURCE, 8)];
        let request = SendRequest {
            id: 5,
            operation: SendOperation::Send,
            flags: SendFlags::NONE,
            payload: Payload::Segments(&segments),
        };
        let full = Err(PostError::QueueFull { capacity: 2 });
        assert_eq!(s.pairs[0].post_send(&[request; 3]), (2, full));
        while s.next_sent().is_some() {}
        assert_eq!(s.pairs[0].post_one_send(&request), full);
        s.deliver(ack(0, 1));
        s.expect_sent(5, Success);
        assert_eq!(s.pairs[0].post_send(&[request; 2]), (1, full));
        while s.next_sent().is_some() {}
        let receive = ReceiveRequest { id: 6, segments: &segments };
        assert_eq!(s.pairs[0].post_receive(&[receive; 3]), (2, full));
    });
}

#[test]
fn a_request_that_cannot_be_queued_is_refused_with_the_reason() {
    story(|s| {
        let long = [s.sge(0, 8); 5];
        let huge = [uroce::queue::Sge { length: 1 << 31, ..s.sge(0, 0) }, s.sge(0, 1)];
        let bytes = [0; 65];
        let send =
            |operation, payload| SendRequest { id: 1, operation, flags: SendFlags::NONE, payload };
        let pair = &s.pairs[0];
        let post = |operation, payload| pair.post_one_send(&send(operation, payload)).unwrap_err();
        let plain = SendOperation::Send;
        assert_eq!(
            post(plain, Payload::Segments(&long)),
            PostError::TooManySegments { given: 5, limit: 4 }
        );
        assert_eq!(
            post(plain, Payload::Inline(&bytes)),
            PostError::InlineTooLong { given: 65, limit: 64 }
        );
        let read = SendOperation::Read(peer(0));
        assert_eq!(post(read, Payload::Inline(&bytes[..8])), PostError::InlineTarget);
        assert_eq!(post(plain, Payload::Segments(&huge)), PostError::MessageTooLong((1 << 31) + 1));
        assert_eq!(
            pair.post_one_receive(&ReceiveRequest { id: 1, segments: &long }),
            Err(PostError::TooManySegments { given: 5, limit: 4 })
        );
        s.expect_nothing();
    });
}

#[test]
fn what_is_in_use_cannot_be_destroyed() {
    let setup = Setup { pairs: 2, ..Setup::default() };
    setup.tell(|s| {
        let queue = Arc::clone(&s.send_completions);
        let busy = ControlError::CompletionQueueBusy { users: 2 };
        assert_eq!(s.engine.destroy_completion_queue(&queue), Err(busy));
        let busy =
            ControlError::DomainBusy { regions: 1, windows: 0, pairs: 2, queues: 0, handles: 0 };
        assert_eq!(s.engine.release_domain(s.domain), Err(busy));
        let numbers: Vec<_> = s.pairs.iter().map(|pair| pair.number()).collect();
        s.engine.destroy_queue_pair(numbers[0]).unwrap();
        let busy = ControlError::CompletionQueueBusy { users: 1 };
        assert_eq!(s.engine.destroy_completion_queue(&queue), Err(busy));
        s.engine.destroy_queue_pair(numbers[1]).unwrap();
        s.engine.destroy_completion_queue(&queue).unwrap();
        assert_eq!(s.engine.destroy_completion_queue(&queue), Err(ControlError::NoSuchQueue));
        s.engine.deregister(s.keys.local).unwrap();
        s.engine.release_domain(s.domain).unwrap();
        assert_eq!(s.engine.release_domain(s.domain), Err(ControlError::NoSuchDomain));
    });
}

#[test]
fn every_queue_pair_number_can_be_given_and_then_the_limit_is_told() {
    // 0, 1 and 0xffffff are never given.
    for (slot, numbers) in [(0, 65_534), (7, 65_536), (0xff, 65_535)] {
        let options = EngineOptions { slot, ..Setup::default().engine_options() };
        let mut engine = Engine::new(options, Story::new(in_state(Reset)).port.capabilities());
        assert_eq!(engine.limits().queue_pairs, numbers);
        let domain = engine.allocate_domain().unwrap();
        let completions = engine.create_completion_queue(1).unwrap();
        let options = QueuePairOptions {
            kind: QueuePairKind::Rc,
            domain,
            send_completions: Arc::clone(&completions),
            receive_completions: completions,
            capacities: QueueCapacities {
                send_requests: 1,
                receive_requests: 1,
                send_segments: 0,
                receive_segments: 0,
                inline_bytes: 0,
            },
            signal_all: false,
        };
        let mut given = BTreeSet::new();
        for _ in 0..numbers {
            let number = engine.create_queue_pair(&options).unwrap().number().value();
            assert!(given.insert(number) && number >> 16 == u32::from(slot));
        }
        assert!(![0, 1, 0xff_ffff].iter().any(|number| given.contains(number)));
        let full = engine.create_queue_pair(&options).err().map(|error| error.to_string());
        let sentence = format!("the device's limit of {numbers} queue pairs is reached");
        assert!(full.is_some_and(|error| error.starts_with(&sentence)));
    }
}

#[test]
fn a_destroyed_queue_pair_is_gone() {
    story(|s| {
        s.post_receive(1, 64);
        s.post_write(2, 8);
        s.next_sent().expect("the WRITE");
        let number = s.number();
        s.engine.destroy_queue_pair(number).unwrap();
        s.deliver(send_only(0, &theirs(0, 8)).asking());
        s.deliver(ack(0, 1));
        s.expect_nothing_until(crate::harness::ms(1_000));
        assert_eq!(s.count(Counter::DropUnknownQueuePair), 2);
        let gone = ControlError::NoSuchPair(number);
        assert_eq!(s.engine.destroy_queue_pair(number), Err(gone.clone()));
        assert_eq!(s.engine.query_queue_pair(number), Err(gone.clone()));
        assert_eq!(s.modify(&QueuePairAttributes::to_state(Error)), Err(gone));
        let late = s.pairs[0].post_one_receive(&ReceiveRequest { id: 1, segments: &[] });
        assert_eq!(late, Err(PostError::WrongState(Reset, "receive requests")));
    });
}

#[test]
fn a_new_queue_pair_in_an_old_ones_place_has_another_number_and_none_of_its_past() {
    story(|s| {
        s.post_write(2, 8);
        s.next_sent().expect("the WRITE");
        s.deliver(write_only(1, s.reth(SERVED, 8), &theirs(0, 8)));
        let number = s.number();
        s.engine.destroy_queue_pair(number).unwrap();
        s.pairs.clear();
        s.add_pair();
        assert_ne!(s.number(), number);
        s.expect_nothing_until(crate::harness::ms(10));
        s.deliver(write_only(0, s.reth(SERVED, 8), &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
    });
}

#[test]
fn a_completion_queue_that_overruns_is_told_once_and_its_queue_pair_ends() {
    let setup = Setup { completions: 2, ..Setup::default() };
    setup.tell(|s| {
        for id in 0..5 {
            s.post_write(id, 8);
        }
        while s.next_sent().is_some() {}
        s.deliver(ack(1, 2));
        s.settle();
        assert_eq!(s.state(), Rts);
        s.deliver(ack(2, 3));
        s.expect_event(Event::Overrun);
        s.expect_event(Event::Fatal(0));
        assert_eq!(s.state(), Error);
        s.expect_sent(0, Success);
        s.expect_sent(1, Success);
        let overrun = s.send_completions.poll(1, |_, completion| panic!("{completion:?}"));
        assert_eq!(overrun.unwrap_err().capacity, 2);
        s.expect_dead();
    });
}

#[test]
fn a_receive_queue_that_overruns_ends_its_queue_pair_and_nothing_is_carried_out_any_more() {
    let setup = Setup { completions: 2, ..Setup::default() };
    setup.tell(|s| {
        for id in 0..5 {
            s.post_receive(id, 64);
        }
        for psn in 0..4 {
            s.deliver(send_only(psn, &theirs(psn as usize, 8)).asking());
        }
        s.expect_event(Event::Overrun);
        s.expect_event(Event::Fatal(0));
        assert_eq!(s.state(), Error);
        s.expect_received(0, Success);
        s.expect_received(1, Success);
        assert_ne!(s.bytes(RECEIVE, 8), theirs(3, 8), "the fourth came after the error");
        s.expect_dead();
    });
}

/// Counts its calls.
struct Bell(Arc<AtomicUsize>);

impl Notify for Bell {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The number of notifications of the receive completion queue so far.
fn bell(s: &Story) -> impl Fn() -> usize + use<> {
    let calls = Arc::new(AtomicUsize::new(0));
    s.receive_completions.set_notifier(Box::new(Bell(Arc::clone(&calls))));
    move || calls.load(Ordering::SeqCst)
}

/// The peer sends an empty message; the receive completes.
fn message(s: &mut Story, psn: i32, solicited: bool) {
    s.post_receive(psn as u64, 8);
    let frame = send_only(psn, &[]);
    s.deliver(if solicited { frame.solicited() } else { frame });
    let completion = s.expect_received(psn as u64, Success);
    assert_eq!(completion.solicited, solicited);
}

#[test]
fn an_armed_completion_queue_notifies_exactly_once() {
    story(|s| {
        let calls = bell(s);
        message(s, 0, true);
        assert_eq!(calls(), 0, "not armed");
        s.receive_completions.arm(false);
        assert_eq!(calls(), 0, "an old completion does not count");
        message(s, 1, false);
        assert_eq!(calls(), 1);
        message(s, 2, true);
        assert_eq!(calls(), 1, "not armed again");
        s.receive_completions.arm(false);
        s.receive_completions.arm(false);
        for psn in 3..6 {
            message(s, psn, false);
        }
        assert_eq!(calls(), 2, "armed twice is armed once");
    });
}

#[test]
fn a_queue_armed_for_solicited_completions_waits_for_one_or_for_an_error() {
    story(|s| {
        let calls = bell(s);
        s.receive_completions.arm(true);
        message(s, 0, false);
        message(s, 1, false);
        assert_eq!(calls(), 0);
        message(s, 2, true);
        assert_eq!(calls(), 1);
        s.receive_completions.arm(true);
        s.post_receive(9, 8);
        to(s, Error);
        s.expect_received(9, WorkRequestFlushed);
        assert_eq!(calls(), 2);
    });
}

#[test]
fn a_wider_arming_stays_and_a_narrower_one_does_not_weaken_it() {
    story(|s| {
        let calls = bell(s);
        s.receive_completions.arm(false);
        s.receive_completions.arm(true);
        message(s, 0, false);
        assert_eq!(calls(), 1);
        s.receive_completions.arm(true);
        s.receive_completions.arm(false);
        message(s, 1, false);
        assert_eq!(calls(), 2);
    });
}

#[test]
fn a_failed_send_counts_as_solicited() {
    story(|s| {
        let calls = Arc::new(AtomicUsize::new(0));
        s.send_completions.set_notifier(Box::new(Bell(Arc::clone(&calls))));
        s.send_completions.arm(true);
        s.post_write(1, 8);
        s.post_write(2, 8);
        while s.next_sent().is_some() {}
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        s.deliver(nak(1, 1, NakCode::RemoteAccessError));
        s.expect_sent(2, RemoteAccessError);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn one_completion_of_several_at_once_notifies_once() {
    story(|s| {
        let calls = bell(s);
        s.receive_completions.arm(false);
        for id in 0..4 {
            s.post_receive(id, 8);
        }
        for psn in 0..4 {
            s.deliver(send_only(psn, &[]));
        }
        for id in 0..4 {
            s.expect_received(id, Success);
        }
        assert_eq!(calls(), 1);
    });
}
