//! End-to-end credits: honoured when we ask, told when we serve.

use uroce::engine::{Counter, QueuePairOptions};
use uroce::queue::CompletionStatus::Success;
use uroce::queue::{QueuePairKind, QueuePairState, ReceiveRequest, SendFlags, SendOperation};
use uroce::wire::{Aeth, Credits, Immediate, Message, Msn, Syndrome};

use crate::harness::{
    Frame, SERVED, SOURCE, Setup, Story, TARGET, ack, ack_with_credits, atomic_write, fetch_add,
    ours, peer, peer_reth, read_request, read_responses, rnr_nak, send_first, send_last,
    send_middle, send_only, story, theirs, us, write_first, write_last_immediate, write_only,
    write_only_immediate,
};

const MTU: usize = 1024;
/// Credit codes.
const NONE: u8 = 0;
const ONE: u8 = 1;
const TWO: u8 = 2;
const UNLIMITED: u8 = 31;

fn small(psn: i32) -> Frame {
    send_only(psn, &ours(SOURCE, 8)).asking()
}

fn small_write(psn: i32) -> Frame {
    write_only(psn, peer_reth(0, 8), &ours(SOURCE, 8)).asking()
}

/// A WRITE of 8 bytes, which is answered with this credit code: from then on there is a limit.
fn learn(s: &mut Story, code: u8) {
    s.post_write(100, 8);
    s.expect(small_write(0));
    s.deliver(ack_with_credits(0, 1, code));
    s.expect_sent(100, Success);
}

#[test]
fn there_is_no_limit_until_the_first_finite_code() {
    story(|s| {
        for id in 0..40 {
            s.post_send(id, 8);
            s.expect(small(id as i32));
        }
        s.deliver(ack(39, 40));
        for id in 0..40 {
            s.expect_sent(id, Success);
        }
    });
}

#[test]
fn the_limit_is_the_number_of_messages_finished_and_the_credits() {
    story(|s| {
        learn(s, TWO);
        for id in 1..=5 {
            s.post_send(id, 8);
        }
        s.expect(small(1));
        s.expect(small(2));
        s.expect_nothing();
        // One message more is finished, with two receives left.
        s.deliver(ack_with_credits(1, 2, TWO));
        s.expect_sent(1, Success);
        s.expect(small(3));
        s.expect_nothing();
        s.deliver(ack_with_credits(3, 4, TWO));
        s.expect_sent(2, Success);
        s.expect_sent(3, Success);
        s.expect_all([small(4), small(5)]);
        s.deliver(ack_with_credits(5, 6, NONE));
        s.expect_sent(4, Success);
        s.expect_sent(5, Success);
    });
}

#[test]
fn every_code_stands_for_its_count() {
    let counts = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
    for (code, count) in counts.into_iter().enumerate() {
        story(|s| {
            learn(s, code as u8);
            for id in 1..=80 {
                s.post_send(id, 8);
            }
            let sent = std::iter::from_fn(|| s.next_sent()).count();
            // At zero one packet may go.
            assert_eq!(sent, count.max(1), "code {code}");
        });
    }
}

#[test]
fn at_zero_one_packet_that_asks_may_go_and_brings_new_credits() {
    story(|s| {
        learn(s, NONE);
        for id in 1..=4 {
            s.post_send(id, 8);
        }
        s.expect(small(1));
        s.expect_nothing();
        s.deliver(ack_with_credits(1, 2, NONE));
        s.expect_sent(1, Success);
        s.expect(small(2));
        s.expect_nothing();
        s.deliver(ack_with_credits(2, 3, TWO));
        s.expect_sent(2, Success);
        s.expect_all([small(3), small(4)]);
        s.deliver(ack_with_credits(4, 5, NONE));
        s.expect_sent(3, Success);
        s.expect_sent(4, Success);
    });
}

#[test]
fn at_zero_the_one_packet_of_a_long_send_asks_and_the_rest_follows_its_ack() {
    story(|s| {
        learn(s, NONE);
        s.post_send(1, 3 * MTU);
        s.post_send(2, 8);
        s.expect(send_first(1, &ours(SOURCE, MTU)).asking());
        s.expect_nothing();
        // The message has its receive now, though it is not finished.
        s.deliver(ack_with_credits(1, 1, NONE));
        s.expect(send_middle(2, &ours(SOURCE + MTU, MTU)));
        s.expect(send_last(3, &ours(SOURCE + 2 * MTU, MTU)).asking());
        s.expect_nothing();
        s.deliver(ack_with_credits(3, 2, NONE));
        s.expect_sent(1, Success);
        s.expect(small(4));
        s.deliver(ack_with_credits(4, 3, NONE));
        s.expect_sent(2, Success);
    });
}

#[test]
fn a_write_with_immediate_needs_its_receive_at_its_end_and_goes_packet_by_packet() {
    story(|s| {
        learn(s, NONE);
        let operation = SendOperation::WriteWithImmediate(peer(0), Immediate([9; 4]));
        let segment = s.sge(SOURCE, 2 * MTU);
        s.post(1, operation, SendFlags::NONE, &[segment]);
        s.expect(write_first(1, peer_reth(0, 2 * MTU), &ours(SOURCE, MTU)).asking());
        s.expect_nothing();
        s.deliver(ack_with_credits(1, 1, NONE));
        let last = write_last_immediate(2, &ours(SOURCE + MTU, MTU), [9; 4]).asking();
        s.expect(last.clone());
        s.deliver(rnr_nak(2, 1, 1));
        s.expect_at(us(10), last);
        s.deliver(ack_with_credits(2, 2, NONE));
        s.expect_sent(1, Success);
    });
}

#[test]
fn what_consumes_no_receive_needs_no_credit_but_waits_for_its_turn() {
    let setup = Setup { max_rd_atomic: 8, ..Setup::default() };
    setup.tell(|s| {
        learn(s, NONE);
        s.post_write(1, 8);
        s.post_read(2, 8);
        s.post_fetch_add(3, 1);
        let store = SendOperation::AtomicWrite { remote: peer(0), value: [1; 8] };
        s.post(4, store, SendFlags::NONE, &[]);
        s.post_send(5, 8);
        s.post_write(6, 8);
        s.expect(small_write(1));
        s.expect(read_request(2, peer_reth(0, 8)));
        s.expect(fetch_add(3, peer_reth(0, 8), 1));
        s.expect(atomic_write(4, peer_reth(0, 8), &[1; 8]));
        // The SEND may go when nothing else is under way.
        s.expect_nothing();
        s.deliver(ack_with_credits(1, 2, NONE));
        s.expect_sent(1, Success);
        s.expect_nothing();
        s.deliver_all(read_responses(2, 3, &theirs(0, 8), MTU));
        s.expect_sent(2, Success);
        // Code 31 in an answer with data counts as well.
        s.expect_all([small(5), small_write(6)]);
        s.deliver(crate::harness::atomic_ack(3, 4, 0));
        s.deliver(crate::harness::done(4, 5));
        s.deliver(ack(6, 7));
        (3..=6).for_each(|id| {
            s.expect_sent(id, Success);
        });
    });
}

#[test]
fn messages_of_all_kinds_are_counted_and_a_read_by_its_chunks() {
    story(|s| {
        // Three chunks of 64 KiB or less, one WRITE, one SEND: messages 2 to 6.
        learn(s, ONE);
        let length = 2 * 65_536 + 5;
        let segment = s.sge(TARGET, length);
        s.post(1, SendOperation::Read(peer(0)), SendFlags::NONE, &[segment]);
        s.post_write(2, 8);
        s.post_send(3, 8);
        let packets = 65_536 / MTU as i32;
        let data = theirs(0, length);
        for (chunk, msn) in data.chunks(65_536).zip(2_i32..) {
            let psn = 1 + (msn - 2) * packets;
            let start = 65_536 * (msn as usize - 2);
            s.expect(read_request(psn, peer_reth(start, chunk.len())));
            let mut responses = read_responses(psn, msn as u32, chunk, MTU);
            // The last response of all promises one receive: message 5, which is the WRITE.
            for response in &mut responses {
                let aeth =
                    Aeth { syndrome: Syndrome::Ack(Credits::new(ONE)), msn: Msn::new(msn as u32) };
                match &mut response.headers.message {
                    Message::ReadResponseFirst(it)
                    | Message::ReadResponseLast(it)
                    | Message::ReadResponseOnly(it) => *it = aeth,
                    _ => {}
                }
            }
            s.deliver_all(responses);
        }
        s.expect_sent(1, Success);
        let (write, send) = (2 + 2 * packets, 3 + 2 * packets);
        s.expect(small_write(write));
        s.expect_nothing();
        s.deliver(ack_with_credits(write, 5, ONE));
        s.expect_sent(2, Success);
        s.expect(small(send));
        s.deliver(ack_with_credits(send, 6, ONE));
        s.expect_sent(3, Success);
    });
}

#[test]
fn code_31_ends_the_limit() {
    story(|s| {
        learn(s, NONE);
        for id in 1..=3 {
            s.post_send(id, 8);
        }
        s.expect(small(1));
        s.deliver(ack_with_credits(1, 2, UNLIMITED));
        s.expect_sent(1, Success);
        s.expect_all([small(2), small(3)]);
        s.deliver(ack(3, 4));
        s.expect_sent(2, Success);
        s.expect_sent(3, Success);
    });
}

#[test]
fn credits_come_with_an_ack_of_what_is_acknowledged_already() {
    story(|s| {
        learn(s, NONE);
        for id in 1..=3 {
            s.post_send(id, 8);
        }
        s.expect(small(1));
        s.expect_nothing();
        s.deliver(ack_with_credits(0, 1, 4));
        s.expect_all([small(2), small(3)]);
        s.deliver(ack_with_credits(3, 4, NONE));
        (1..=3).for_each(|id| {
            s.expect_sent(id, Success);
        });
        // One that is older than that is a late copy.
        s.post_send(4, 8);
        s.expect(small(4));
        s.post_send(5, 8);
        s.deliver(ack_with_credits(2, 3, 8));
        s.expect_nothing();
        s.deliver(ack_with_credits(4, 5, NONE));
        s.expect_sent(4, Success);
        s.expect(small(5));
        s.deliver(ack_with_credits(5, 6, NONE));
        s.expect_sent(5, Success);
    });
}

#[test]
fn a_limited_packet_that_is_lost_is_probed_for() {
    story(|s| {
        learn(s, NONE);
        s.post_send(1, 8);
        s.post_send(2, 8);
        s.expect(small(1));
        // Nothing was measured but a round trip of no time.
        s.expect_at(us(200), small(1));
        s.deliver(ack_with_credits(1, 2, ONE));
        s.expect_sent(1, Success);
        s.expect(small(2));
        s.deliver(ack_with_credits(2, 3, NONE));
        s.expect_sent(2, Success);
        assert_eq!(s.count(Counter::Probe), 1);
    });
}

fn telling() -> Setup {
    Setup { finite_credits: true, ..Setup::default() }
}

fn post_receives(s: &mut Story, count: u64) {
    (0..count).for_each(|id| s.post_receive(id, 2 * MTU));
}

#[test]
fn by_default_no_limit_is_told() {
    story(|s| {
        let reth = s.reth(SERVED, 8);
        s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
        s.expect(ack_with_credits(0, 1, UNLIMITED));
    });
}

#[test]
fn an_ack_tells_the_largest_code_that_the_posted_receives_cover() {
    for (receives, code) in [(0, 0), (1, 1), (4, 4), (5, 4), (6, 5), (7, 5), (8, 6), (13, 7)] {
        telling().tell(|s| {
            post_receives(s, receives);
            let reth = s.reth(SERVED, 8);
            s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
            s.expect(ack_with_credits(0, 1, code));
        });
    }
}

#[test]
fn a_message_takes_a_credit_when_it_is_finished_and_not_while_it_arrives() {
    telling().tell(|s| {
        post_receives(s, 2);
        s.deliver(send_first(0, &theirs(0, MTU)).asking());
        s.expect(ack_with_credits(0, 0, TWO));
        s.deliver(send_last(1, &theirs(MTU, 8)).asking());
        s.expect(ack_with_credits(1, 1, ONE));
        s.expect_received(0, Success);
        s.deliver(write_only_immediate(2, s.reth(SERVED, 8), &theirs(0, 8), [1; 4]).asking());
        s.expect(ack_with_credits(2, 2, NONE));
        s.expect_received(1, Success);
        s.deliver(send_only(3, &[]).asking());
        s.expect(rnr_nak(3, 2, 12));
        post_receives(s, 1);
        s.deliver(send_only(3, &[]).asking());
        s.expect(ack_with_credits(3, 3, NONE));
        s.expect_received(0, Success);
    });
}

#[test]
fn answers_with_data_tell_credits_for_the_number_that_they_carry() {
    telling().tell(|s| {
        post_receives(s, 3);
        s.port.room = 0;
        s.deliver(read_request(0, s.reth(SERVED, 8)));
        s.deliver(fetch_add(1, s.reth(SERVED, 8), 1));
        s.deliver(atomic_write(2, s.reth(SERVED, 8), &[1; 8]));
        s.deliver(send_only(3, &[]).asking());
        s.turn();
        s.port.room = usize::MAX;
        // Four messages are finished and two receives left: six in all, whatever the number.
        let told =
            std::iter::from_fn(|| s.next_sent()).map(|sent| match sent.frame.headers.message {
                Message::ReadResponseOnly(aeth)
                | Message::AtomicAcknowledge(aeth, _)
                | Message::Acknowledge(aeth) => match aeth.syndrome {
                    Syndrome::Ack(credits) => (aeth.msn.value(), credits.code()),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            });
        // Five credits are told as four.
        assert_eq!(told.collect::<Vec<_>>(), [(1, 4), (2, 4), (3, 3), (4, 2)]);
        s.expect_received(0, Success);
    });
}

#[test]
fn with_a_shared_receive_queue_no_limit_is_ever_told() {
    telling().tell(|s| {
        let shared = s.engine.create_shared_receive_queue(s.domain, 8, 1).unwrap();
        let options = QueuePairOptions {
            kind: QueuePairKind::Rc,
            domain: s.domain,
            send_completions: std::sync::Arc::clone(&s.send_completions),
            receive_completions: std::sync::Arc::clone(&s.receive_completions),
            capacities: s.setup.capacities,
            signal_all: true,
        };
        let pair = s.engine.create_queue_pair_sharing(&options, Some(&shared)).unwrap();
        s.pairs.push(pair);
        s.pair = 1;
        s.bring_to(QueuePairState::Rts);
        let segments = [s.sge(TARGET, 64)];
        shared.post(&[ReceiveRequest { id: 5, segments: &segments }]).1.unwrap();
        s.deliver(send_only(0, &[]).asking());
        s.expect(ack_with_credits(0, 1, UNLIMITED));
        s.expect_received(5, Success);
    });
}
