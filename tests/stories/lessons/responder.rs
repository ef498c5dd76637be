//! Lessons about requests that are served.

use std::collections::BTreeSet;
use std::sync::Arc;

use uroce::engine::Counter;
use uroce::queue::CompletionStatus::{
    LocalAccessError, RemoteOperationError, Success, WorkRequestFlushed,
};
use uroce::queue::{Access, CompletionKind};
use uroce::wire::{Message, NakCode, Reth, Rkey};

use crate::harness::{
    BASE, Event, Frame, MEMORY, RECEIVE, SERVED, Setup, Story, ack, atomic_ack, fetch_add, nak,
    ours, peer_reth, read_request, read_response_first, read_response_only, read_responses,
    send_first, send_middle, send_only, sequence_nak, story, theirs, write_first, write_last,
    write_last_immediate, write_middle, write_only, write_only_immediate,
};

const MTU: usize = 1024;

#[test]
fn lesson_08_the_responder_checks_every_length() {
    let cases: [fn(&Story) -> Vec<Frame>; 6] = [
        |_| vec![send_first(0, &theirs(0, MTU - 1))],
        |_| vec![send_first(0, &theirs(0, MTU)), send_middle(1, &theirs(0, MTU + 1))],
        |s| vec![write_first(0, s.reth(SERVED, 2 * MTU), &theirs(0, MTU)), write_last(1, &[])],
        |s| {
            let first = write_first(0, s.reth(SERVED, 2 * MTU), &theirs(0, MTU));
            vec![first, write_last(1, &theirs(0, MTU + 1))]
        },
        |_| vec![send_only(0, &theirs(0, MTU + 1))],
        |s| vec![write_only(0, s.reth(SERVED, 9), &theirs(0, 8))],
    ];
    for case in cases {
        story(|s| {
            s.post_receive(1, 8 * MTU);
            let frames = case(s);
            let last = frames.len() as i32 - 1;
            s.deliver_all(frames);
            s.expect(nak(last, 0, NakCode::InvalidRequest));
            s.expect_event(Event::RequestError(0));
            s.expect_received(1, WorkRequestFlushed);
        });
    }
}

#[test]
fn lesson_13_a_repeated_atomic_gets_the_original_value_and_takes_effect_once() {
    story(|s| {
        s.memory.store_u64(SERVED, 100).unwrap();
        let reth = s.reth(SERVED, 8);
        for psn in 0..3 {
            s.deliver(fetch_add(psn, reth, 1));
            s.expect(atomic_ack(psn, psn as u32 + 1, 100 + psn as u64));
        }
        for psn in [1, 0, 2, 1] {
            s.deliver(fetch_add(psn, reth, 1));
            s.expect(atomic_ack(psn, psn as u32 + 1, 100 + psn as u64));
        }
        assert_eq!(s.memory.load_u64(SERVED).unwrap(), 103);
    });
}

#[test]
fn lesson_14_faults_that_consume_no_receive_are_answered_too() {
    let cases: [fn(Reth) -> Frame; 3] = [
        |reth| write_only(0, reth, &[1; 8]),
        |reth| read_request(0, reth),
        |reth| fetch_add(0, reth, 1),
    ];
    for case in cases {
        story(|s| {
            let reth = Reth { address: 0, ..s.reth(SERVED, 8) };
            s.deliver(case(reth));
            s.expect(nak(0, 0, NakCode::RemoteAccessError));
            s.expect_event(Event::AccessError(0));
        });
    }
}

#[test]
fn lesson_15_a_key_violation_is_an_event_except_where_a_receive_tells_it() {
    story(|s| {
        s.post_receive(1, 8);
        let reth = Reth { key: Rkey::new(1), ..s.reth(SERVED, 8) };
        s.deliver(write_only(0, reth, &[1; 8]));
        s.expect(nak(0, 0, NakCode::RemoteAccessError));
        s.expect_event(Event::AccessError(0));
        s.expect_received(1, WorkRequestFlushed);
    });
    story(|s| {
        s.post_receive(1, 8);
        let memory = Arc::clone(&s.memory);
        let keys = s.engine.register_part(s.domain, memory, 0..MEMORY, BASE, Access::ALL).unwrap();
        let reth = Reth { key: keys.remote, ..s.reth(SERVED, MTU + 8) };
        s.deliver(write_first(0, reth, &theirs(0, MTU)));
        s.settle();
        s.engine.deregister(keys.local).unwrap();
        s.deliver(write_last_immediate(1, &theirs(0, 8), [1; 4]));
        s.expect(nak(1, 0, NakCode::RemoteAccessError));
        s.expect_received(1, LocalAccessError);
    });
}

#[test]
fn lesson_22_data_that_cannot_be_read_any_more_ends_a_read_with_0x63_at_both_ends() {
    story(|s| {
        let memory = Arc::clone(&s.memory);
        let keys = s.engine.register_part(s.domain, memory, 0..MEMORY, BASE, Access::ALL).unwrap();
        s.port.room = 16;
        s.deliver(read_request(0, Reth { key: keys.remote, ..s.reth(0, 40 * MTU) }));
        let sent = s.turn().sent;
        s.engine.deregister(keys.local).unwrap();
        s.port.room = usize::MAX;
        let answers = read_responses(0, 1, &ours(0, 40 * MTU), MTU);
        s.expect_all(answers.into_iter().take(sent));
        s.expect(nak(sent as i32, 1, NakCode::RemoteOperationalError));
        s.expect_event(Event::Fatal(0));
        s.expect_dead();
    });
    story(|s| {
        s.post_read(1, 3 * MTU);
        s.expect(read_request(0, peer_reth(0, 3 * MTU)));
        s.deliver(read_response_first(0, 1, &theirs(0, MTU)));
        s.deliver(nak(1, 1, NakCode::RemoteOperationalError));
        s.expect_sent(1, RemoteOperationError);
        s.expect_dead();
    });
}

#[test]
fn lesson_24_answers_wait_for_the_network_below_and_none_is_lost() {
    story(|s| {
        s.port.room = 0;
        s.deliver(read_request(0, s.reth(0, 100 * MTU)));
        for _ in 0..3 {
            assert_eq!(s.turn().sent, 0);
        }
        let expected = read_responses(0, 1, &ours(0, 100 * MTU), MTU);
        s.port.room = 20;
        s.turn();
        s.turn();
        s.port.room = usize::MAX;
        s.expect_all(expected);
        assert_eq!(s.count(Counter::SentPackets), 100);
    });
}

#[test]
fn lesson_25_the_msn_counts_finished_messages() {
    story(|s| {
        let reth = s.reth(SERVED, 3 * MTU);
        s.deliver(write_first(0, reth, &theirs(0, MTU)).asking());
        s.expect(ack(0, 0));
        s.deliver(write_middle(1, &theirs(0, MTU)).asking());
        s.expect(ack(1, 0));
        s.deliver(write_last(2, &theirs(0, MTU)).asking());
        s.expect(ack(2, 1));
        s.deliver(write_last(2, &theirs(0, MTU)).asking());
        s.expect(ack(2, 1));
        s.deliver(write_only(4, s.reth(SERVED, 8), &theirs(0, 8)));
        s.expect(sequence_nak(3, 1));
        s.deliver(read_request(3, s.reth(SERVED, 2 * MTU)));
        let expected = [theirs(0, MTU), theirs(0, MTU)].concat();
        s.expect_all(read_responses(3, 2, &expected, MTU));
    });
}

#[test]
fn lesson_26_the_key_of_an_empty_read_or_write_does_not_matter() {
    story(|s| {
        let reth = Reth { address: u64::MAX, key: Rkey::new(0xdead_beef), length: 0 };
        s.deliver(write_only(0, reth, &[]).asking());
        s.expect(ack(0, 1));
        s.deliver(read_request(1, reth));
        s.expect(read_response_only(1, 2, &[]));
        s.post_receive(1, 0);
        s.deliver(write_only_immediate(2, reth, &[], [1; 4]).asking());
        s.expect(ack(2, 3));
        s.expect_received(1, Success);
    });
}

#[test]
fn lesson_28_a_write_with_immediate_tells_how_much_was_written() {
    story(|s| {
        s.post_receive(1, 0);
        s.post_receive(2, 0);
        let reth = s.reth(SERVED, 2 * MTU + 5);
        s.deliver(write_first(0, reth, &theirs(0, MTU)));
        s.deliver(write_middle(1, &theirs(0, MTU)));
        s.deliver(write_last_immediate(2, &theirs(0, 5), [9; 4]));
        s.deliver(write_only_immediate(3, s.reth(SERVED, 7), &theirs(0, 7), [9; 4]));
        for (id, length) in [(1, 2 * MTU + 5), (2, 7)] {
            let completion = s.expect_received(id, Success);
            assert_eq!(completion.kind, CompletionKind::ReceiveWriteWithImmediate);
            assert_eq!(completion.length as usize, length);
        }
    });
}

#[test]
fn lesson_29_a_receive_that_a_message_had_taken_always_completes() {
    let breaks: [fn(&Story) -> Vec<u8>; 3] = [
        |s| s.encode(send_only(1, &[])),
        |s| s.encode(Frame::new(Message::AtomicWrite(s.reth(SERVED, 8)), 1, &[0; 8])),
        |s| {
            let mut bytes = s.encode(send_middle(1, &theirs(0, MTU)));
            bytes[0] = 0x1f;
            bytes
        },
    ];
    for frame in breaks {
        story(|s| {
            s.post_receive(1, 4096);
            s.deliver(send_first(0, &theirs(0, MTU)));
            let flow = s.flow();
            let bytes = frame(s);
            s.deliver_bytes(flow, bytes);
            s.expect(nak(1, 0, NakCode::InvalidRequest));
            s.expect_event(Event::RequestError(0));
            s.expect_received(1, WorkRequestFlushed);
            s.expect_dead();
        });
    }
}

#[test]
fn lesson_31_a_packet_whose_completion_breaks_the_queue_pair_is_carried_out_once() {
    let setup = Setup { completions: 1, ..Setup::default() };
    setup.tell(|s| {
        for id in 0..4 {
            s.post_receive(id, 8);
        }
        for psn in 0..4 {
            s.deliver(send_only(psn, &theirs(psn as usize * 8, 8)).asking());
        }
        s.expect_event(Event::Overrun);
        s.expect_event(Event::Fatal(0));
        assert_eq!(s.receive_completions.waiting(), 1);
        s.expect_received(0, Success);
        assert_eq!(s.bytes(RECEIVE, 8), theirs(8, 8), "the third was not carried out");
        assert_eq!(s.count(Counter::DropWrongState), 2);
        s.expect_dead();
    });
}

#[test]
fn lesson_34_more_than_65536_registrations_have_keys_of_their_own() {
    let mut s = Story::new(Setup::default());
    let mut keys = BTreeSet::from([s.keys.remote]);
    let mut last = s.keys;
    for _ in 0..70_000 {
        let memory = Arc::clone(&s.memory);
        last = s.engine.register_part(s.domain, memory, 0..64, BASE, Access::ALL).unwrap();
        assert!(keys.insert(last.remote), "{} was given twice", last.remote);
    }
    let reth = Reth { address: BASE, key: last.remote, length: 8 };
    s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
    s.expect(ack(0, 1));
}
