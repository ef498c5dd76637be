//! What the requester does with each answer of the peer.

use uroce::engine::Counter;
use uroce::queue::CompletionStatus::{
    self, BadResponse, LocalProtectionError, RemoteAccessError, RemoteInvalidRequest,
    RemoteOperationError, Success, WorkRequestFlushed,
};
use uroce::queue::{CompletionKind, SendFlags, SendOperation, Sge};
use uroce::wire::{Aeth, Credits, Lkey, Message, Msn, NakCode, Syndrome};

use crate::harness::{
    BASE, Frame, MEMORY, SOURCE, Setup, Story, TARGET, ack, acknowledging, atomic_ack, fetch_add,
    nak, ours, peer, peer_reth, read_request, read_response_first, read_response_last,
    read_response_middle, read_response_only, send_only, sequence_nak, story, theirs, write_only,
};

const MTU: usize = 1024;

/// Three WRITEs of 8 bytes are under way, and two receives are posted.
fn three_writes(s: &mut Story) {
    s.post_receive(1, 64);
    s.post_receive(2, 64);
    for index in 0..3 {
        s.post_write(10 + index, 8);
    }
    for psn in 0..3 {
        s.expect(write_only(psn, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
    }
}

/// The second of three requests failed with `status`: both queues are flushed in order.
fn second_failed(s: &mut Story, status: CompletionStatus) {
    s.expect_sent(10, Success);
    s.expect_sent(11, status);
    s.expect_sent(12, WorkRequestFlushed);
    s.expect_received(1, WorkRequestFlushed);
    s.expect_received(2, WorkRequestFlushed);
    s.expect_dead();
}

#[test]
fn each_error_nak_fails_its_request_with_its_status_and_flushes_the_rest_in_order() {
    let answers = [
        (NakCode::InvalidRequest, RemoteInvalidRequest),
        (NakCode::RemoteAccessError, RemoteAccessError),
        (NakCode::RemoteOperationalError, RemoteOperationError),
        (NakCode::InvalidRdRequest, RemoteInvalidRequest),
    ];
    for (code, status) in answers {
        story(|s| {
            three_writes(s);
            s.deliver(nak(1, 1, code));
            second_failed(s, status);
        });
    }
}

#[test]
fn an_error_nak_of_a_read_or_atomic_fails_it_too() {
    story(|s| {
        s.post_read(1, 8);
        s.post_fetch_add(2, 1);
        s.expect(read_request(0, peer_reth(0, 8)));
        s.expect(fetch_add(1, peer_reth(0, 8), 1));
        s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        s.deliver(nak(1, 1, NakCode::RemoteAccessError));
        s.expect_sent(1, Success);
        s.expect_sent(2, RemoteAccessError);
        s.expect_dead();
    });
}

#[test]
fn an_error_nak_in_the_middle_of_read_responses_fails_the_read() {
    story(|s| {
        s.post_read(1, 3 * MTU);
        s.expect(read_request(0, peer_reth(0, 3 * MTU)));
        s.deliver(read_response_first(0, 1, &theirs(0, MTU)));
        s.deliver(nak(1, 1, NakCode::RemoteOperationalError));
        s.expect_sent(1, RemoteOperationError);
        assert_eq!(s.bytes(TARGET, MTU), theirs(0, MTU));
        assert_eq!(s.bytes(TARGET + MTU, MTU), ours(TARGET + MTU, MTU));
        s.expect_dead();
    });
}

#[test]
fn an_error_nak_beyond_a_read_first_shows_that_its_response_is_missing() {
    story(|s| {
        s.post_read(1, 8);
        s.post_write(2, 8);
        s.expect(read_request(0, peer_reth(0, 8)));
        s.expect(write_only(1, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.deliver(nak(1, 1, NakCode::RemoteAccessError));
        s.expect(read_request(0, peer_reth(0, 8)));
        s.expect(write_only(1, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        s.deliver(nak(1, 1, NakCode::RemoteAccessError));
        s.expect_sent(1, Success);
        s.expect_sent(2, RemoteAccessError);
        s.expect_dead();
    });
}

#[test]
fn an_ack_finishes_everything_up_to_its_psn_and_nothing_more() {
    story(|s| {
        three_writes(s);
        s.deliver(ack(1, 2));
        s.expect_sent(10, Success);
        s.expect_sent(11, Success);
        s.expect_nothing();
        s.deliver(ack(2, 3));
        s.expect_sent(12, Success);
    });
}

#[test]
fn an_ack_inside_of_a_message_finishes_nothing_but_is_progress() {
    story(|s| {
        s.post_write(1, 3 * MTU);
        let frames: Vec<_> = (0..3).map(|_| s.next_sent().expect("a packet").frame).collect();
        s.deliver(ack(1, 0));
        s.expect_nothing();
        s.deliver(sequence_nak(2, 0));
        s.expect(frames[2].clone());
        s.deliver(ack(2, 1));
        s.expect_sent(1, Success);
    });
}

#[test]
fn answers_outside_of_what_is_unacknowledged_are_ignored_and_counted() {
    story(|s| {
        s.post_write(9, 8);
        s.expect(write_only(0, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.deliver(ack(0, 1));
        s.expect_sent(9, Success);
        s.post_write(10, 8);
        s.expect(write_only(1, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        for psn in [-1, 0, 2, 3, 0x40_0000, -0x40_0000] {
            s.deliver(ack(psn, 1));
            s.deliver(read_response_only(psn, 1, &theirs(0, 8)));
            s.deliver(atomic_ack(psn, 1, 5));
        }
        s.expect_nothing();
        assert_eq!(s.count(Counter::IgnoredResponse), 18);
        for psn in [-1, 0, 2, 3, 0x40_0000, -0x40_0000] {
            s.deliver(sequence_nak(psn, 1));
            s.deliver(nak(psn, 1, NakCode::RemoteAccessError));
        }
        s.expect_nothing();
        assert_eq!(s.count(Counter::IgnoredNak), 12);
        s.deliver(ack(1, 2));
        s.expect_sent(10, Success);
    });
}

#[test]
fn reserved_naks_are_ignored_and_counted() {
    story(|s| {
        three_writes(s);
        for code in 5..32 {
            s.deliver(nak(1, 1, NakCode::Reserved(code)));
        }
        for byte in [0x40, 0x5f, 0xc0, 0xdf] {
            let syndrome = Syndrome::Reserved(byte);
            let aeth = Aeth { syndrome, msn: Msn::new(1) };
            s.deliver(Frame::new(Message::Acknowledge(aeth), 1, &[]));
        }
        assert_eq!(s.next_sent(), None);
        assert_eq!(s.count(Counter::IgnoredNak), 31);
        s.deliver(ack(2, 3));
        for id in 10..13 {
            s.expect_sent(id, Success);
        }
    });
}

#[test]
fn the_reserved_top_bit_of_a_syndrome_means_nothing() {
    story(|s| {
        three_writes(s);
        let aeth = Aeth { syndrome: Syndrome::Reserved(0x9f), msn: Msn::new(1) };
        s.deliver(Frame::new(Message::Acknowledge(aeth), 0, &[]));
        let aeth = Aeth { syndrome: Syndrome::Reserved(0xe2), msn: Msn::new(1) };
        s.deliver(Frame::new(Message::Acknowledge(aeth), 1, &[]));
        second_failed(s, RemoteAccessError);
    });
}

#[test]
fn every_credit_code_acknowledges_alike() {
    for code in 0..32 {
        story(|s| {
            s.post_write(1, 8);
            s.expect(write_only(0, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
            let syndrome = Syndrome::Ack(Credits::new(code));
            let aeth = Aeth { syndrome, msn: Msn::new(1) };
            s.deliver(Frame::new(Message::Acknowledge(aeth), 0, &[]));
            s.expect_sent(1, Success);
        });
    }
}

#[test]
fn read_data_goes_to_its_segments_and_the_completion_tells_the_length() {
    story(|s| {
        let segments =
            [s.sge(TARGET, 100), s.sge(TARGET + 0x1000, 0), s.sge(TARGET + 0x2000, 2000)];
        s.post(1, SendOperation::Read(peer(16)), SendFlags::NONE, &segments);
        let data = theirs(0, 2100);
        s.expect(read_request(0, peer_reth(16, 2100)));
        s.deliver(read_response_first(0, 1, &data[..MTU]));
        s.deliver(read_response_middle(1, &data[MTU..2 * MTU]));
        s.deliver(read_response_last(2, 1, &data[2 * MTU..]));
        let completion = s.expect_sent(1, Success);
        assert_eq!((completion.kind, completion.length), (CompletionKind::Read, 2100));
        assert_eq!(s.bytes(TARGET, 100), data[..100]);
        assert_eq!(s.bytes(TARGET + 0x2000, 2000), data[100..]);
        assert_eq!(s.bytes(TARGET + 100, 100), ours(TARGET + 100, 100));
    });
}

#[test]
fn an_atomic_answer_is_the_value_before_in_host_order() {
    story(|s| {
        s.post_fetch_add(1, 5);
        s.expect(fetch_add(0, peer_reth(0, 8), 5));
        s.deliver(atomic_ack(0, 1, 0x0102_0304_0506_0708));
        let completion = s.expect_sent(1, Success);
        assert_eq!((completion.kind, completion.length), (CompletionKind::FetchAdd, 8));
        assert_eq!(s.memory.load_u64(TARGET).unwrap(), 0x0102_0304_0506_0708);
    });
}

/// A READ of `length` bytes answered with this ends as a bad response.
fn bad_read_response(length: usize, answers: fn() -> Vec<Frame>) {
    story(|s| {
        s.post_receive(7, 8);
        s.post_read(1, length);
        s.post_write(2, 8);
        s.expect(read_request(0, peer_reth(0, length)));
        s.next_sent().expect("the WRITE");
        s.deliver_all(answers());
        s.expect_sent(1, BadResponse);
        s.expect_sent(2, WorkRequestFlushed);
        s.expect_received(7, WorkRequestFlushed);
        assert!(s.count(Counter::BadResponse) >= 1);
        assert_eq!(s.bytes(TARGET + MTU, MTU), ours(TARGET + MTU, MTU));
        s.expect_dead();
    });
}

#[test]
fn a_response_of_the_wrong_length_or_place_is_a_bad_response() {
    bad_read_response(8, || vec![read_response_only(0, 1, &theirs(0, 7))]);
    bad_read_response(8, || vec![read_response_only(0, 1, &theirs(0, 9))]);
    bad_read_response(8, || vec![read_response_only(0, 1, &[])]);
    bad_read_response(0, || vec![read_response_only(0, 1, &theirs(0, 1))]);
    bad_read_response(8, || vec![read_response_first(0, 1, &theirs(0, 8))]);
    bad_read_response(3 * MTU, || vec![read_response_first(0, 1, &theirs(0, MTU - 4))]);
    bad_read_response(3 * MTU, || vec![read_response_only(0, 1, &theirs(0, MTU))]);
    bad_read_response(3 * MTU, || {
        let first = read_response_first(0, 1, &theirs(0, MTU));
        vec![first, read_response_last(1, 1, &theirs(MTU, MTU))]
    });
    bad_read_response(2 * MTU, || {
        let first = read_response_first(0, 1, &theirs(0, MTU));
        vec![first, read_response_middle(1, &theirs(MTU, MTU))]
    });
}

#[test]
fn a_response_of_the_wrong_kind_is_a_bad_response() {
    bad_read_response(8, || vec![atomic_ack(0, 1, 5)]);
    story(|s| {
        s.post_fetch_add(1, 1);
        s.next_sent().expect("the atomic");
        s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        s.expect_sent(1, BadResponse);
        s.expect_dead();
    });
    story(|s| {
        s.post_send(1, 8);
        s.expect(send_only(0, &ours(SOURCE, 8)).asking());
        s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        s.expect_sent(1, BadResponse);
        s.expect_dead();
    });
}

#[test]
fn a_response_of_a_later_read_acknowledges_the_writes_before_it() {
    story(|s| {
        s.post_write(1, 8);
        s.post_read(2, 8);
        s.expect(write_only(0, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.expect(read_request(1, peer_reth(0, 8)));
        s.deliver(read_response_only(1, 2, &theirs(0, 8)));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
    });
}

#[test]
fn an_answer_that_local_memory_cannot_take_fails_its_request_only_when_its_turn_comes() {
    story(|s| {
        s.post_write(1, 8);
        let bad = Sge { address: BASE, length: 8, key: Lkey::new(77) };
        s.post(2, SendOperation::Read(peer(0)), SendFlags::NONE, &[bad]);
        s.post_write(3, 8);
        for _ in 0..3 {
            s.next_sent().expect("a request");
        }
        s.deliver(read_response_only(1, 2, &theirs(0, 8)));
        s.expect_sent(1, Success);
        s.expect_sent(2, LocalProtectionError);
        s.expect_sent(3, WorkRequestFlushed);
        s.expect_dead();
    });
    story(|s| {
        let bad = s.sge(MEMORY - 4, 8);
        let operation = SendOperation::FetchAdd { remote: peer(0), add: 1 };
        s.post(2, operation, SendFlags::NONE, &[bad]);
        s.next_sent().expect("the atomic");
        s.deliver(atomic_ack(0, 1, 5));
        s.expect_sent(2, LocalProtectionError);
        s.expect_dead();
    });
}

#[test]
fn unsignaled_requests_complete_only_if_they_fail() {
    let setup = Setup { signal_all: false, ..Setup::default() };
    setup.tell(|s| {
        s.post_write(1, 8);
        let segment = s.sge(SOURCE, 8);
        s.post(2, SendOperation::Write(peer(0)), SendFlags::SIGNALED, &[segment]);
        s.post_write(3, 8);
        s.post_write(4, 8);
        for _ in 0..4 {
            s.next_sent().expect("a WRITE");
        }
        s.deliver(ack(1, 2));
        s.expect_sent(2, Success);
        s.expect_nothing();
        s.deliver(nak(2, 2, NakCode::RemoteAccessError));
        s.expect_sent(3, RemoteAccessError);
        s.expect_sent(4, WorkRequestFlushed);
        s.expect_dead();
    });
}

#[test]
fn the_msn_of_an_answer_does_not_matter() {
    story(|s| {
        three_writes(s);
        let aeth = Aeth { msn: Msn::new(0xabcdef), ..acknowledging(0) };
        s.deliver(Frame::new(Message::Acknowledge(aeth), 2, &[]));
        for id in 10..13 {
            s.expect_sent(id, Success);
        }
    });
}
