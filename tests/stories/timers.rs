//! The requester's timers: exact times of probes and of the local ACK timeout.

use uroce::engine::Counter;
use uroce::queue::CompletionStatus::{Success, TransportRetryExceeded, WorkRequestFlushed};
use uroce::queue::{QueuePairAttributes, QueuePairState};
use uroce::time::{Instant, MICROSECOND, MILLISECOND};

use crate::harness::{
    Frame, SOURCE, Setup, Story, ack, fetch_add, ms, ours, peer_reth, read_request,
    read_response_only, read_responses, sequence_nak, story, theirs, us, write_first, write_last,
    write_middle, write_only,
};

const MTU: usize = 1024;
/// Timeout 14.
const TIMEOUT: u64 = 4_096 << 14;

const fn at(nanoseconds: u64) -> Instant {
    Instant::from_nanos(nanoseconds)
}

fn write(psn: i32) -> Frame {
    write_only(psn, peer_reth(0, 8), &ours(SOURCE, 8)).asking()
}

/// `count` WRITEs of 8 bytes with PSNs from `psn` on, under way.
fn writes(s: &mut Story, psn: i32, count: i32) {
    for psn in psn..psn + count {
        s.post_write(psn as u64, 8);
        s.expect(write(psn));
    }
}

#[test]
fn what_is_never_answered_is_sent_at_exactly_these_times_and_then_fails() {
    story(|s| {
        writes(s, 0, 2);
        s.post_receive(9, 8);
        // Probes, doubling; nothing is known of the round trip, so the first after 1 ms.
        for milliseconds in [1, 3, 7, 15, 31, 63] {
            s.expect_at(ms(milliseconds), write(0));
        }
        // Three retries (the probes between them are further away than that).
        for retry in 1..=3 {
            s.expect_at(at(retry * TIMEOUT), write(0));
        }
        s.expect_nothing_until(at(4 * TIMEOUT - 1));
        s.pass_until(at(4 * TIMEOUT));
        s.expect_sent(0, TransportRetryExceeded);
        s.expect_sent(1, WorkRequestFlushed);
        s.expect_received(9, WorkRequestFlushed);
        assert_eq!(s.count(Counter::Probe), 6);
        assert_eq!(s.count(Counter::LocalAckTimeout), 4);
        assert_eq!(s.count(Counter::RetryExceeded), 1);
        s.expect_dead();
    });
}

#[test]
fn a_probe_that_was_not_needed_sends_one_packet_and_nothing_else() {
    story(|s| {
        writes(s, 0, 4);
        s.expect_at(ms(1), write(0));
        // Late answers, and that to the probe; nothing behind it was lost.
        s.deliver(ack(1, 2));
        s.expect_sent(0, Success);
        s.expect_sent(1, Success);
        writes(s, 4, 1);
        s.deliver(ack(3, 4));
        s.expect_sent(2, Success);
        s.expect_sent(3, Success);
        s.deliver(ack(4, 5));
        s.expect_sent(4, Success);
        assert_eq!(s.count(Counter::Probe), 1);
        assert_eq!(s.count(Counter::RetransmittedPackets), 1);
        s.expect_nothing();
    });
}

#[test]
fn an_answer_that_acknowledges_a_probe_alone_tells_that_the_rest_was_lost() {
    story(|s| {
        writes(s, 0, 4);
        s.expect_at(ms(1), write(0));
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
        s.expect_all([write(1), write(2), write(3)]);
        s.deliver(ack(3, 4));
        for id in 1..4 {
            s.expect_sent(id, Success);
        }
        assert_eq!(s.count(Counter::LocalAckTimeout), 0);
        s.expect_nothing();
    });
}

#[test]
fn a_late_response_right_behind_a_probe_tells_of_no_loss() {
    story(|s| {
        writes(s, 0, 1);
        s.post_read(1, 8);
        s.expect(read_request(1, peer_reth(0, 8)));
        s.expect_at(ms(1), write(0));
        s.deliver(read_response_only(1, 2, &theirs(0, 8)));
        s.expect_sent(0, Success);
        s.expect_sent(1, Success);
        assert_eq!(s.count(Counter::RetransmittedPackets), 1);
        s.expect_nothing();
    });
}

#[test]
fn while_a_probe_is_out_nothing_new_is_sent() {
    story(|s| {
        writes(s, 0, 2);
        s.expect_at(ms(1), write(0));
        s.post_write(2, 8);
        s.expect_nothing();
        s.deliver(sequence_nak(1, 1));
        s.expect_sent(0, Success);
        s.expect_all([write(1), write(2)]);
        s.deliver(ack(2, 3));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
    });
}

#[test]
fn retry_count_is_how_often_the_timeout_sends_again() {
    // Timeout 8: 1.048576 ms, just after the first probe.
    let timeout = 4_096 << 8;
    for retry_count in 0..=7 {
        let setup = Setup { retry_count, timeout: 8, ..Setup::default() };
        setup.tell(|s| {
            writes(s, 0, 1);
            s.expect_at(ms(1), write(0));
            for retry in 1..=u64::from(retry_count) {
                s.expect_at(at(retry * timeout), write(0));
            }
            let end = (u64::from(retry_count) + 1) * timeout;
            s.expect_nothing_until(at(end - 1));
            s.pass_until(at(end));
            s.expect_sent(0, TransportRetryExceeded);
            let sent = u64::from(retry_count) + 2;
            assert_eq!(s.count(Counter::SentPackets), sent);
            assert_eq!(s.count(Counter::LocalAckTimeout), u64::from(retry_count) + 1);
            s.expect_dead();
        });
    }
}

#[test]
fn the_timeout_doubles_with_each_step_of_its_exponent() {
    for exponent in 8..=31 {
        let setup = Setup { retry_count: 0, timeout: exponent, ..Setup::default() };
        setup.tell(|s| {
            writes(s, 0, 1);
            let end = 4_096_u64 << exponent;
            s.pass_until(at(end - 1));
            while s.next_sent().is_some() {}
            s.expect_nothing();
            assert_eq!(s.state(), QueuePairState::Rts);
            s.pass_until(at(end));
            s.expect_sent(0, TransportRetryExceeded);
            s.expect_dead();
        });
    }
}

#[test]
fn timeouts_under_a_millisecond_are_a_millisecond() {
    for exponent in 1..8 {
        let setup = Setup { retry_count: 1, timeout: exponent, ..Setup::default() };
        setup.tell(|s| {
            writes(s, 0, 1);
            s.expect_at(ms(1), write(0));
            s.expect_nothing_until(at(2 * MILLISECOND - 1));
            s.pass_until(ms(2));
            s.expect_sent(0, TransportRetryExceeded);
            s.expect_dead();
        });
    }
}

#[test]
fn timeout_0_never_gives_up_and_goes_on_probing_once_a_second() {
    let setup = Setup { retry_count: 0, timeout: 0, ..Setup::default() };
    setup.tell(|s| {
        writes(s, 0, 1);
        let mut time = 0;
        for doubling in 0..10 {
            time += MILLISECOND << doubling;
            s.expect_at(at(time), write(0));
        }
        for _ in 0..100 {
            time += 1_000 * MILLISECOND;
            s.expect_at(at(time), write(0));
        }
        assert_eq!(s.count(Counter::LocalAckTimeout), 0);
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
    });
}

/// A WRITE that is answered after `rtt`. The story goes on at the time of the answer.
fn measured(s: &mut Story, psn: i32, rtt: u64) {
    writes(s, psn, 1);
    let answer = s.now + rtt;
    s.expect_nothing_until(answer);
    s.deliver(ack(psn, psn as u32 + 1));
    s.expect_sent(psn as u64, Success);
}

#[test]
fn the_first_probe_waits_four_round_trips_and_at_least_200_microseconds() {
    for (rtt, probe) in [(1, 200), (10, 200), (50, 200), (51, 204), (100, 400), (900, 3_600)] {
        story(|s| {
            measured(s, 0, rtt * MICROSECOND);
            let start = s.now;
            writes(s, 1, 1);
            let mut time = start;
            for doubling in 0..4 {
                time += (probe * MICROSECOND) << doubling;
                s.expect_at(time, write(1));
            }
            s.deliver(ack(1, 2));
            s.expect_sent(1, Success);
        });
    }
}

#[test]
fn the_round_trip_is_smoothed_by_an_eighth() {
    story(|s| {
        measured(s, 0, 100 * MICROSECOND);
        measured(s, 1, 200 * MICROSECOND);
        let start = s.now;
        writes(s, 2, 1);
        // 100 - 100 / 8 + 200 / 8 = 112.5 µs, four times that.
        s.expect_at(start + 450 * MICROSECOND, write(2));
        s.deliver(ack(2, 3));
        s.expect_sent(2, Success);
    });
}

#[test]
fn what_was_sent_twice_tells_nothing_about_the_round_trip() {
    story(|s| {
        writes(s, 0, 1);
        s.expect_at(ms(1), write(0));
        s.pass_until(us(1_010));
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
        writes(s, 1, 1);
        // Nothing was measured, so the interval stays doubled (Karn's rule).
        s.expect_at(us(3_010), write(1));
        s.deliver(ack(1, 2));
        s.expect_sent(1, Success);
    });
}

#[test]
fn the_interval_stays_doubled_until_a_round_trip_is_measured() {
    story(|s| {
        measured(s, 0, 100 * MICROSECOND);
        let mut start = s.now;
        writes(s, 1, 1);
        s.expect_at(start + 400 * MICROSECOND, write(1));
        s.expect_at(start + 1_200 * MICROSECOND, write(1));
        s.deliver(ack(1, 2));
        s.expect_sent(1, Success);
        // Two doublings are left of what was sent twice; this one is answered and measured.
        start = s.now;
        writes(s, 2, 1);
        s.expect_nothing_until(start + 1_599 * MICROSECOND);
        s.deliver(ack(2, 3));
        s.expect_sent(2, Success);
        start = s.now;
        writes(s, 3, 1);
        let smoothed = 100 * MICROSECOND - 12_500 + 1_599 * MICROSECOND / 8;
        s.expect_at(start + 4 * smoothed, write(3));
        s.deliver(ack(3, 4));
        s.expect_sent(3, Success);
    });
}

#[test]
fn once_a_round_trip_is_known_the_doubling_ends_at_64_times_its_interval() {
    let setup = Setup { timeout: 0, ..Setup::default() };
    setup.tell(|s| {
        measured(s, 0, 10 * MICROSECOND);
        let mut time = s.now;
        writes(s, 1, 1);
        for doubling in 0..20 {
            time += (200 * MICROSECOND) << doubling.min(6);
            s.expect_at(time, write(1));
        }
        s.deliver(ack(1, 2));
        s.expect_sent(1, Success);
    });
}

#[test]
fn when_everything_is_acknowledged_no_timer_runs() {
    story(|s| {
        writes(s, 0, 3);
        s.pass_until(us(500));
        s.deliver(ack(2, 3));
        for id in 0..3 {
            s.expect_sent(id, Success);
        }
        // The deadline that was armed comes, finds nothing to do, and is the last.
        s.expect_nothing_until(ms(1));
        assert_eq!(s.engine.next_deadline(), Instant::NEVER);
        assert_eq!(s.count(Counter::Probe), 0);
    });
}

#[test]
fn progress_starts_both_timers_anew_and_gives_all_retries_back() {
    let setup = Setup { retry_count: 1, timeout: 8, ..Setup::default() };
    let timeout = 4_096 << 8;
    setup.tell(|s| {
        writes(s, 0, 2);
        s.expect_at(ms(1), write(0));
        s.expect_at(at(timeout), write(0));
        s.pass_until(ms(2));
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
        // The second goes out again behind the probe, and has all of its time.
        s.expect_at(ms(2), write(1));
        s.expect_at(at(2 * MILLISECOND + timeout), write(1));
        s.expect_nothing_until(at(2 * MILLISECOND + 2 * timeout - 1));
        s.pass_until(at(2 * MILLISECOND + 2 * timeout));
        s.expect_sent(1, TransportRetryExceeded);
        s.expect_dead();
    });
}

#[test]
fn an_answer_that_is_no_progress_starts_no_timer_anew() {
    story(|s| {
        writes(s, 0, 1);
        s.pass_until(us(900));
        s.deliver(ack(-1, 0));
        s.deliver(ack(5, 0));
        s.expect_at(ms(1), write(0));
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
    });
}

#[test]
fn each_response_of_a_long_read_is_progress() {
    let setup = Setup { retry_count: 0, timeout: 8, ..Setup::default() };
    setup.tell(|s| {
        s.post_read(1, 10 * MTU);
        s.expect(read_request(0, peer_reth(0, 10 * MTU)));
        let mut time = Instant::ZERO;
        for response in read_responses(0, 1, &theirs(0, 10 * MTU), MTU) {
            time += 999 * MICROSECOND;
            s.expect_nothing_until(time);
            s.deliver(response);
        }
        s.expect_sent(1, Success);
        assert_eq!(s.count(Counter::LocalAckTimeout), 0);
        s.expect_nothing_until(ms(1_000));
    });
}

#[test]
fn a_probe_is_one_packet_that_asks_and_the_rest_waits_for_its_answer() {
    story(|s| {
        let length = 4 * MTU;
        let data = ours(SOURCE, length);
        s.post_write(1, length);
        let frames = [
            write_first(0, peer_reth(0, length), &data[..MTU]),
            write_middle(1, &data[MTU..2 * MTU]),
            write_middle(2, &data[2 * MTU..3 * MTU]),
            write_last(3, &data[3 * MTU..]).asking(),
        ];
        s.expect_all(frames.clone());
        s.expect_at(ms(1), frames[0].clone().asking());
        s.expect_nothing_until(us(2_999));
        s.expect_at(ms(3), frames[0].clone().asking());
        s.expect_nothing_until(us(3_100));
        s.deliver(ack(0, 0));
        s.expect_at(us(3_100), frames[1].clone());
        s.expect_all(frames[2..].to_vec());
        s.deliver(ack(3, 1));
        s.expect_sent(1, Success);
    });
}

#[test]
fn what_is_posted_while_a_probe_is_out_waits_for_its_answer() {
    story(|s| {
        writes(s, 0, 1);
        s.expect_at(ms(1), write(0));
        s.post_write(1, 8);
        s.expect_nothing_until(us(1_500));
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
        s.expect_at(us(1_500), write(1));
        s.deliver(ack(1, 2));
        s.expect_sent(1, Success);
    });
}

#[test]
fn a_probe_that_is_answered_with_the_newest_ack_repeats_nothing_else() {
    story(|s| {
        writes(s, 0, 4);
        s.expect_at(ms(1), write(0));
        s.deliver(ack(3, 4));
        for id in 0..4 {
            s.expect_sent(id, Success);
        }
        s.expect_nothing_until(ms(1_000));
    });
}

#[test]
fn a_probe_that_is_answered_with_a_sequence_nak_goes_on_from_there() {
    story(|s| {
        writes(s, 0, 4);
        s.expect_at(ms(1), write(0));
        s.deliver(sequence_nak(2, 2));
        s.expect_sent(0, Success);
        s.expect_sent(1, Success);
        s.expect(write(2));
        s.expect(write(3));
        s.deliver(ack(3, 4));
        s.expect_sent(2, Success);
        s.expect_sent(3, Success);
    });
}

#[test]
fn a_retry_that_is_lost_again_is_found_by_the_probe() {
    story(|s| {
        measured(s, 0, 10 * MICROSECOND);
        writes(s, 1, 3);
        s.deliver(sequence_nak(1, 1));
        for psn in 1..4 {
            s.expect(write(psn));
        }
        let start = s.now;
        // The peer tells of a gap once; the second loss it does not tell.
        s.expect_at(start + 200 * MICROSECOND, write(1));
        s.deliver(ack(3, 4));
        for id in 1..4 {
            s.expect_sent(id, Success);
        }
    });
}

#[test]
fn a_read_is_probed_from_its_first_missing_response() {
    story(|s| {
        let length = 4 * MTU;
        let data = theirs(0, length);
        s.post_read(1, length);
        s.expect(read_request(0, peer_reth(0, length)));
        s.pass_until(us(10));
        s.deliver_all(read_responses(0, 1, &data, MTU).into_iter().take(2));
        s.expect_nothing();
        s.expect_at(us(210), read_request(2, peer_reth(2 * MTU, 2 * MTU)));
        s.deliver_all(read_responses(2, 1, &data[2 * MTU..], MTU));
        s.expect_sent(1, Success);
    });
}

#[test]
fn an_atomic_is_probed_by_itself() {
    story(|s| {
        s.post_fetch_add(1, 4);
        let atomic = fetch_add(0, peer_reth(0, 8), 4);
        s.expect(atomic.clone());
        s.expect_at(ms(1), atomic.clone());
        s.expect_at(ms(3), atomic);
        s.deliver(crate::harness::atomic_ack(0, 1, 5));
        s.expect_sent(1, Success);
    });
}

#[test]
fn probes_use_up_no_retry() {
    let setup = Setup { retry_count: 0, ..Setup::default() };
    setup.tell(|s| {
        writes(s, 0, 1);
        for milliseconds in [1, 3, 7, 15, 31, 63] {
            s.expect_at(ms(milliseconds), write(0));
        }
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
    });
}

#[test]
fn error_and_reset_stop_all_timers() {
    for state in [QueuePairState::Error, QueuePairState::Reset] {
        story(|s| {
            writes(s, 0, 1);
            s.modify(&QueuePairAttributes::to_state(state)).unwrap();
            if state == QueuePairState::Error {
                s.expect_sent(0, WorkRequestFlushed);
            }
            s.expect_nothing_until(ms(100_000));
        });
    }
}

#[test]
fn timers_of_a_read_stop_with_its_last_response() {
    story(|s| {
        s.post_read(1, 8);
        s.expect(read_request(0, peer_reth(0, 8)));
        s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        s.expect_sent(1, Success);
        s.expect_nothing_until(ms(1));
        assert_eq!(s.engine.next_deadline(), Instant::NEVER);
    });
}
