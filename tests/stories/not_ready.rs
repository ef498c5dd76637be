//! No receive is posted: RNR NAKs sent, and the pause that one received brings.

use uroce::engine::Counter;
use uroce::queue::CompletionStatus::{ReceiverNotReadyRetryExceeded, Success, WorkRequestFlushed};
use uroce::time::Instant;
use uroce::wire::RnrTimer;

use crate::harness::{
    Frame, RECEIVE, SERVED, SOURCE, Setup, Story, ack, ms, nak, ours, read_request,
    read_response_only, rnr_nak, send_first, send_last, send_middle, send_only, sequence_nak,
    story, theirs, us, write_first, write_last_immediate, write_only, write_only_immediate,
};

const MTU: usize = 1024;

#[test]
fn without_a_receive_a_send_gets_an_rnr_nak_and_later_packets_silence_until_it_comes_again() {
    story(|s| {
        let reth = s.reth(SERVED, 8);
        s.deliver(send_only(0, &theirs(0, 8)).asking());
        s.expect(rnr_nak(0, 0, 12));
        s.deliver(send_only(1, &theirs(8, 8)).asking());
        s.deliver(write_only(2, reth, &theirs(0, 8)).asking());
        s.deliver(read_request(3, reth));
        s.expect_nothing();
        s.deliver(send_only(0, &theirs(0, 8)).asking());
        s.expect(rnr_nak(0, 0, 12));
        s.post_receive(1, 64);
        s.deliver(send_only(1, &theirs(8, 8)).asking());
        s.expect_nothing();
        s.deliver(send_only(0, &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
        s.expect_received(1, Success);
        assert_eq!(s.bytes(RECEIVE, 8), theirs(0, 8));
        assert_eq!(s.bytes(SERVED, 8), ours(SERVED, 8));
        s.deliver(send_only(1, &theirs(8, 8)).asking());
        s.expect(rnr_nak(1, 1, 12));
        assert_eq!(s.count(Counter::SentRnrNak), 3);
    });
}

#[test]
fn an_rnr_nak_carries_the_timer_that_the_application_set() {
    for min_rnr_timer in 0..32 {
        let setup = Setup { min_rnr_timer, ..Setup::default() };
        setup.tell(|s| {
            s.deliver(send_only(0, &[]));
            s.expect(rnr_nak(0, 0, min_rnr_timer));
        });
    }
}

#[test]
fn a_write_with_immediate_needs_its_receive_at_the_packet_with_the_immediate() {
    story(|s| {
        let reth = s.reth(SERVED, MTU + 8);
        s.deliver(write_first(0, reth, &theirs(0, MTU)));
        s.deliver(write_last_immediate(1, &theirs(MTU, 8), [1; 4]).asking());
        s.expect(rnr_nak(1, 0, 12));
        assert_eq!(s.bytes(SERVED, MTU), theirs(0, MTU));
        assert_eq!(s.bytes(SERVED + MTU, 8), ours(SERVED + MTU, 8));
        s.post_receive(1, 0);
        s.deliver(write_last_immediate(1, &theirs(MTU, 8), [1; 4]).asking());
        s.expect(ack(1, 1));
        assert_eq!(s.expect_received(1, Success).length as usize, MTU + 8);
        let reth = s.reth(SERVED, 8);
        s.deliver(write_only_immediate(2, reth, &[5; 8], [1; 4]).asking());
        s.expect(rnr_nak(2, 1, 12));
        assert_eq!(s.bytes(SERVED, 8), theirs(0, 8));
    });
}

#[test]
fn an_rnr_nak_acknowledges_what_came_before_and_repetitions_still_get_their_ack() {
    story(|s| {
        let reth = s.reth(SERVED, 8);
        s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
        s.deliver(send_only(1, &theirs(0, 8)).asking());
        s.expect(rnr_nak(1, 1, 12));
        s.expect_nothing();
        s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
    });
}

#[test]
fn a_message_that_has_its_receive_needs_no_other() {
    story(|s| {
        s.post_receive(1, 4096);
        s.deliver(send_first(0, &theirs(0, MTU)));
        s.deliver(send_middle(1, &theirs(MTU, MTU)));
        s.deliver(send_last(2, &theirs(2 * MTU, 1)).asking());
        s.expect(ack(2, 1));
        s.expect_received(1, Success);
        s.deliver(send_first(3, &theirs(0, MTU)));
        s.expect(rnr_nak(3, 1, 12));
    });
}

/// `count` SENDs of 8 bytes, PSNs from 0 on, under way.
fn sends(s: &mut Story, count: i32) -> Vec<Frame> {
    for id in 0..count {
        s.post_send(id as u64, 8);
    }
    let frames: Vec<_> = (0..count).map(|psn| send_only(psn, &ours(SOURCE, 8)).asking()).collect();
    s.expect_all(frames.clone());
    frames
}

#[test]
fn an_rnr_nak_pauses_exactly_as_long_as_it_says_then_one_packet_asks_and_the_rest_follows() {
    for code in 0..32 {
        story(|s| {
            let frames = sends(s, 3);
            s.pass_until(us(100));
            s.deliver(rnr_nak(1, 1, code));
            s.expect_sent(0, Success);
            let end = us(100) + RnrTimer::new(code).nanos();
            s.expect_nothing_until(Instant::from_nanos(end.as_nanos() - 1));
            s.expect_at(end, frames[1].clone());
            s.expect_nothing();
            s.deliver(ack(1, 2));
            s.expect_sent(1, Success);
            s.expect(frames[2].clone());
            s.deliver(ack(2, 3));
            s.expect_sent(2, Success);
            assert_eq!(s.count(Counter::ReceivedRnrNak), 1);
        });
    }
}

#[test]
fn what_is_posted_during_the_pause_waits_for_its_end() {
    story(|s| {
        let frames = sends(s, 1);
        s.deliver(rnr_nak(0, 0, 14));
        s.expect_nothing_until(us(500));
        s.post_write(5, 8);
        s.expect_nothing_until(us(1_279));
        s.expect_at(us(1_280), frames[0].clone());
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
        let write = s.next_sent().expect("the WRITE").frame;
        assert_eq!(write.payload, ours(SOURCE, 8));
        s.deliver(ack(1, 2));
        s.expect_sent(5, Success);
    });
}

#[test]
fn during_the_pause_sequence_naks_and_further_rnr_naks_are_ignored_and_counted() {
    story(|s| {
        let frames = sends(s, 2);
        s.deliver(rnr_nak(0, 0, 14));
        s.expect_nothing_until(us(300));
        s.deliver(sequence_nak(0, 0));
        s.deliver(rnr_nak(0, 0, 14));
        s.deliver(rnr_nak(0, 0, 0));
        s.expect_nothing();
        assert_eq!(s.count(Counter::IgnoredNak), 3);
        s.expect_nothing_until(us(1_279));
        s.expect_at(us(1_280), frames[0].clone());
        s.expect_nothing();
    });
}

#[test]
fn an_ack_that_acknowledges_nothing_does_not_end_the_pause() {
    story(|s| {
        let frames = sends(s, 3);
        s.deliver(rnr_nak(1, 1, 14));
        s.expect_sent(0, Success);
        s.expect_nothing_until(us(300));
        s.deliver(ack(0, 1));
        s.deliver(ack(-1, 1));
        s.deliver(ack(3, 1));
        s.expect_nothing_until(us(1_279));
        s.expect_at(us(1_280), frames[1].clone());
        s.expect_nothing();
    });
}

#[test]
fn an_ack_of_the_paused_request_ends_the_pause() {
    story(|s| {
        let frames = sends(s, 3);
        s.deliver(rnr_nak(0, 0, 0));
        s.expect_nothing_until(us(300));
        // The request had been sent twice, and the second copy found a receive.
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
        s.expect_at(us(300), frames[1].clone());
        s.expect_at(us(300), frames[2].clone());
        s.deliver(ack(2, 3));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
        s.expect_nothing_until(ms(5_000));
    });
}

#[test]
fn an_error_nak_of_the_paused_request_ends_it_at_once() {
    story(|s| {
        sends(s, 2);
        s.deliver(rnr_nak(0, 0, 0));
        s.expect_nothing_until(us(300));
        s.deliver(nak(0, 0, uroce::wire::NakCode::InvalidRequest));
        s.expect_sent(0, uroce::queue::CompletionStatus::RemoteInvalidRequest);
        s.expect_sent(1, WorkRequestFlushed);
        s.expect_dead();
    });
}

#[test]
fn no_timer_runs_during_the_pause() {
    let setup = Setup { timeout: 8, retry_count: 0, ..Setup::default() };
    setup.tell(|s| {
        let frames = sends(s, 1);
        s.deliver(rnr_nak(0, 0, 0));
        let end = RnrTimer::new(0).nanos();
        s.expect_nothing_until(Instant::from_nanos(end - 1));
        s.expect_at(Instant::from_nanos(end), frames[0].clone());
        assert_eq!(s.count(Counter::LocalAckTimeout), 0);
        assert_eq!(s.count(Counter::Probe), 0);
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
    });
}

#[test]
fn rnr_retry_counts_how_often_a_request_is_sent_again_before_it_fails() {
    for rnr_retry in 0..=6 {
        let setup = Setup { rnr_retry, ..Setup::default() };
        setup.tell(|s| {
            let frames = sends(s, 2);
            for round in 1..=u64::from(rnr_retry) {
                s.deliver(rnr_nak(0, 0, 1));
                s.expect_at(us(10 * round), frames[0].clone());
                s.expect_nothing();
            }
            s.deliver(rnr_nak(0, 0, 1));
            s.expect_sent(0, ReceiverNotReadyRetryExceeded);
            s.expect_sent(1, WorkRequestFlushed);
            assert_eq!(s.count(Counter::RnrRetryExceeded), 1);
            s.expect_dead();
        });
    }
}

#[test]
fn rnr_retry_7_has_no_end() {
    let setup = Setup { rnr_retry: 7, retry_count: 0, ..Setup::default() };
    setup.tell(|s| {
        let frames = sends(s, 1);
        for round in 1..=300 {
            s.deliver(rnr_nak(0, 0, 1));
            s.expect_at(us(10 * round), frames[0].clone());
        }
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
    });
}

#[test]
fn any_progress_gives_all_rnr_retries_back() {
    let setup = Setup { rnr_retry: 1, ..Setup::default() };
    setup.tell(|s| {
        let frames = sends(s, 3);
        s.deliver(rnr_nak(0, 0, 1));
        s.expect_at(us(10), frames[0].clone());
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
        s.expect_all(frames[1..].to_vec());
        s.deliver(rnr_nak(1, 1, 1));
        s.expect_at(us(20), frames[1].clone());
        s.deliver(ack(1, 2));
        s.expect_sent(1, Success);
        s.expect(frames[2].clone());
        s.deliver(rnr_nak(2, 2, 1));
        s.expect_at(us(30), frames[2].clone());
        s.deliver(rnr_nak(2, 2, 1));
        s.expect_sent(2, ReceiverNotReadyRetryExceeded);
        s.expect_dead();
    });
}

#[test]
fn rnr_naks_do_not_use_up_retry_count() {
    let setup = Setup { rnr_retry: 7, retry_count: 1, timeout: 0, ..Setup::default() };
    setup.tell(|s| {
        let frames = sends(s, 2);
        for round in 1..=5 {
            s.deliver(rnr_nak(0, 0, 1));
            s.expect_at(us(10 * round), frames[0].clone());
            s.expect_nothing();
        }
        s.deliver(sequence_nak(0, 0));
        s.expect_all(frames);
        s.deliver(ack(1, 2));
        s.expect_sent(0, Success);
        s.expect_sent(1, Success);
    });
}

#[test]
fn an_rnr_nak_beyond_a_read_shows_that_its_response_is_missing() {
    story(|s| {
        s.post_read(1, 8);
        s.post_send(2, 8);
        let read = s.next_sent().expect("the READ").frame;
        let send = s.next_sent().expect("the SEND").frame;
        s.deliver(rnr_nak(1, 1, 14));
        s.expect(read);
        s.expect(send.clone());
        s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        s.deliver(rnr_nak(1, 1, 14));
        s.expect_sent(1, Success);
        s.expect_nothing_until(us(1_279));
        s.expect_at(us(1_280), send);
    });
}

#[test]
fn where_the_receive_is_still_missing_after_the_pause_one_packet_finds_out_and_not_the_window() {
    let setup = Setup { timeout: 0, rnr_retry: 7, ..Setup::default() };
    setup.tell(|s| {
        let frames = sends(s, 20);
        for round in 1..=10 {
            s.deliver(rnr_nak(0, 0, 1));
            s.expect_at(us(10 * round), frames[0].clone());
        }
        s.expect_nothing();
        assert_eq!(s.count(Counter::RetransmittedPackets), 10);
        // Lost: probes go on with the one packet.
        s.expect_at(us(100) + 1_000_000, frames[0].clone());
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
        s.expect_all(frames[1..].to_vec());
        s.deliver(ack(19, 20));
        for id in 1..20 {
            s.expect_sent(id, Success);
        }
    });
}

#[test]
fn after_the_pause_the_first_packet_of_a_message_asks_although_it_did_not_before() {
    story(|s| {
        s.post_send(1, 3 * MTU);
        let first = send_first(0, &ours(SOURCE, MTU));
        let rest = [
            send_middle(1, &ours(SOURCE + MTU, MTU)),
            send_last(2, &ours(SOURCE + 2 * MTU, MTU)).asking(),
        ];
        s.expect(first.clone());
        s.expect_all(rest.clone());
        s.deliver(rnr_nak(0, 0, 1));
        s.expect_at(us(10), first.asking());
        s.expect_nothing();
        s.deliver(ack(0, 0));
        s.expect_all(rest);
        s.deliver(ack(2, 1));
        s.expect_sent(1, Success);
    });
}
