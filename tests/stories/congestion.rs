//! Congestion notifications: who sends them and when, and what they do to who gets them.

use uroce::engine::{CongestionOptions, Counter};
use uroce::queue::CompletionStatus::Success;
use uroce::queue::{AddressVector, QueuePairAttributes, QueuePairState};
use uroce::time::Instant;
use uroce::wire::{Flow, Message, Service};

use crate::harness::{
    Event, Frame, SERVED, Setup, Story, ack, fetch_add, ms, read_request, read_response_only,
    story, theirs, us, write_only,
};

/// "Congestion experienced".
const CE: u8 = 3;

/// As it arrives and as it leaves.
fn notification() -> Frame {
    let mut frame =
        Frame::of(Service::Congestion, Message::CongestionNotification([0; 16]), 0, &[]);
    frame.headers.becn = true;
    frame.migration(false)
}

/// The peer writes four bytes, marked on the way or not. The answer is expected by the caller.
fn write(s: &mut Story, psn: i32, traffic_class: u8) {
    let reth = s.reth(SERVED, 4);
    s.traffic_class = traffic_class;
    s.deliver(write_only(psn, reth, &theirs(0, 4)).asking());
    s.traffic_class = 0;
}

fn rate(s: &Story) -> Option<u64> {
    s.engine.flow_rate(s.now, s.number()).unwrap().map(|rate| rate.current)
}

#[test]
fn the_first_marked_packet_is_answered_at_once_and_before_the_acknowledgement() {
    story(|s| {
        write(s, 0, CE);
        let sent = s.expect(notification());
        assert_eq!(sent.at, Instant::ZERO);
        assert_eq!(sent.traffic_class, 0xc2, "DSCP 48, ECT(0)");
        assert_eq!(sent.bytes[..12], [0x81, 0, 0xff, 0xff, 0x40, 0, 0x0b, 0, 0, 0, 0, 0]);
        assert_eq!(sent.bytes[12..28], [0; 16]);
        assert_eq!(sent.bytes.len(), 32);
        s.expect(ack(0, 1));
        assert_eq!(s.count(Counter::SentCongestionNotification), 1);
        assert_eq!(s.count(Counter::ReceivedCongestionMark), 1);
    });
}

#[test]
fn marks_are_answered_once_in_fifty_microseconds() {
    story(|s| {
        s.now = us(7);
        write(s, 0, CE);
        s.expect(notification());
        s.expect(ack(0, 1));
        for (psn, nanoseconds, answered) in
            [(1, 7_001, false), (2, 56_999, false), (3, 57_000, true), (4, 106_999, false)]
        {
            s.now = Instant::from_nanos(nanoseconds);
            write(s, psn, CE);
            if answered {
                s.expect(notification());
            }
            s.expect(ack(psn, psn as u32 + 1));
        }
        // A mark that was not answered is not made up for.
        s.expect_nothing_until(ms(5));
        assert_eq!(s.count(Counter::SentCongestionNotification), 2);
        assert_eq!(s.count(Counter::ReceivedCongestionMark), 5);
    });
}

#[test]
fn the_time_between_notifications_and_their_dscp_can_be_set() {
    let congestion =
        CongestionOptions { min_time_between_cnps: 4, cnp_dscp: 6, ..CongestionOptions::default() };
    Setup { congestion, ..Setup::default() }.tell(|s| {
        for (psn, microseconds, answered) in [(0, 0, true), (1, 3, false), (2, 4, true)] {
            s.now = us(microseconds);
            write(s, psn, CE);
            if answered {
                assert_eq!(s.expect(notification()).traffic_class, 6 << 2 | 2);
            }
            s.expect(ack(psn, psn as u32 + 1));
        }
    });
}

#[test]
fn only_congestion_experienced_is_a_mark() {
    story(|s| {
        for (psn, traffic_class) in [(0, 0), (1, 1), (2, 2), (3, 0xfc)] {
            write(s, psn, traffic_class);
            s.expect(ack(psn, psn as u32 + 1));
        }
        assert_eq!(s.count(Counter::ReceivedCongestionMark), 0);
        write(s, 4, 0x6b);
        s.expect(notification());
        s.expect(ack(4, 5));
    });
}

#[test]
fn each_queue_pair_is_a_flow_of_its_own() {
    Setup { pairs: 2, ..Setup::default() }.tell(|s| {
        for pair in [0, 1] {
            s.pair = pair;
            write(s, 0, CE);
            s.expect(notification());
            s.expect(ack(0, 1));
        }
    });
}

#[test]
fn what_is_not_paced_is_not_answered() {
    story(|s| {
        s.post_write(1, 4);
        assert!(s.next_sent().is_some());
        s.post_fetch_add(2, 1);
        assert!(s.next_sent().is_some());
        s.traffic_class = CE;
        s.deliver(ack(0, 1));
        s.deliver(crate::harness::atomic_ack(1, 2, 5));
        s.deliver(notification());
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
        s.expect_nothing();
        assert_eq!(s.count(Counter::ReceivedCongestionMark), 3);
    });
}

#[test]
fn marked_read_responses_are_answered() {
    story(|s| {
        s.post_read(1, 4);
        assert!(s.next_sent().is_some());
        s.traffic_class = CE;
        s.deliver(read_response_only(0, 1, &theirs(0, 4)));
        s.expect(notification());
        s.expect_sent(1, Success);
    });
}

#[test]
fn a_marked_packet_that_is_dropped_is_not_answered() {
    story(|s| {
        // Not from the peer.
        let reth = s.reth(SERVED, 4);
        let foreign = Flow { source: "10.0.0.99".parse().unwrap(), ..s.flow() };
        s.traffic_class = CE;
        s.deliver_on(foreign, write_only(0, reth, &theirs(0, 4)));
        assert_eq!(
            {
                s.expect_nothing();
                s.count(Counter::DropWrongAddress)
            },
            1
        );
        // A wrong ICRC.
        let bytes = [s.encode(write_only(0, reth, &theirs(0, 4))), vec![0; 4]].concat();
        s.deliver_raw(s.flow(), bytes);
        assert_eq!(
            {
                s.expect_nothing();
                s.count(Counter::DropBadIcrc)
            },
            1
        );
        // A wrong partition.
        s.deliver(write_only(0, reth, &theirs(0, 4)).pkey(0x1234));
        assert_eq!(
            {
                s.expect_nothing();
                s.count(Counter::DropPkeyMismatch)
            },
            1
        );
        assert_eq!(s.count(Counter::SentCongestionNotification), 0);
    });
}

#[test]
fn marks_are_answered_in_every_state_that_receives() {
    for state in [QueuePairState::Rtr, QueuePairState::Rts, QueuePairState::Sqd] {
        Setup { state, ..Setup::default() }.tell(|s| {
            write(s, 0, CE);
            s.expect(notification());
            s.expect(ack(0, 1));
            if state == QueuePairState::Rtr {
                s.expect_event(Event::Established(0));
            }
        });
    }
    for state in [QueuePairState::Reset, QueuePairState::Init, QueuePairState::Error] {
        Setup { state, ..Setup::default() }.tell(|s| {
            write(s, 0, CE);
            s.deliver(notification());
            s.expect_nothing();
            assert_eq!(s.count(Counter::DropWrongState), 2);
            assert_eq!(s.count(Counter::ReceivedCongestionNotification), 0);
        });
    }
}

#[test]
fn a_full_receive_queue_is_no_congestion_where_a_window_is() {
    story(|s| {
        s.port.pressed = true;
        write(s, 0, 0);
        s.expect(ack(0, 1));
    });
}

#[test]
fn without_congestion_control_marks_and_notifications_are_counted_only() {
    let congestion = CongestionOptions::off();
    Setup { congestion, ..Setup::default() }.tell(|s| {
        write(s, 0, CE);
        assert_eq!(s.expect(ack(0, 1)).traffic_class, 0);
        s.deliver(notification());
        s.expect_nothing();
        assert_eq!(s.count(Counter::ReceivedCongestionMark), 1);
        assert_eq!(s.count(Counter::IgnoredCongestionNotification), 1);
        assert_eq!(s.count(Counter::ReceivedCongestionNotification), 0);
        assert_eq!(rate(s), None);
    });
}

#[test]
fn packets_are_ecn_capable_and_keep_their_dscp() {
    Setup { state: QueuePairState::Init, ..Setup::default() }.tell(|s| {
        let address = AddressVector {
            traffic_class: 26 << 2,
            ..AddressVector::new(0, s.setup.peer_address(0))
        };
        let rtr =
            QueuePairAttributes { address: Some(address), ..s.attributes(QueuePairState::Rtr) };
        s.modify(&rtr).unwrap();
        s.modify(&s.attributes(QueuePairState::Rts)).unwrap();
        s.post_send(1, 4);
        assert_eq!(s.next_sent().unwrap().traffic_class, 0x6a);
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
    });
}

/// Bits that a packet of 1024 bytes takes of the line.
const PACKET_BITS: u64 = (1024 + 12 + 4 + 66) * 8;

#[test]
fn a_notification_halves_the_line_and_requests_leave_at_that_rate() {
    Setup { timeout: 0, ..Setup::default() }.tell(|s| {
        s.deliver(notification());
        s.expect_nothing();
        assert_eq!(s.count(Counter::ReceivedCongestionNotification), 1);
        assert_eq!(rate(s), Some(5_000_000_000));
        s.post_send(1, 60 * 1024);
        // Half of what 5 Gbit/s bring in 50 µs.
        s.expect_nothing_until(Instant::from_nanos(24_999));
        s.pass_until(us(25));
        let mut sent = 0;
        while let Some(packet) = s.next_sent() {
            assert_eq!(packet.at, us(25));
            sent += 1;
        }
        // The last one on credit: the bucket may not hold all of it.
        let half = 25_000 * 5;
        assert_eq!(sent, half / PACKET_BITS + 1);
        let debt = sent * PACKET_BITS - half;
        let next = 25_000 + (half + debt).div_ceil(5);
        s.expect_nothing_until(Instant::from_nanos(next - 1));
        s.pass_until(Instant::from_nanos(next));
        assert!(s.next_sent().is_some(), "at {next} ns");
        while s.next_sent().is_some() {}
    });
}

#[test]
fn read_responses_leave_at_the_rate_and_what_is_no_payload_at_once() {
    story(|s| {
        s.deliver(notification());
        let reth = s.reth(SERVED, 8);
        s.deliver(fetch_add(0, reth, 1));
        write(s, 1, 0);
        let sent = [s.next_sent().unwrap(), s.next_sent().unwrap()];
        assert!(sent.iter().all(|sent| sent.at == Instant::ZERO), "{sent:?}");
        let data = s.bytes(SERVED, 8);
        s.deliver(read_request(2, reth));
        s.expect_nothing();
        // An acknowledgement behind it waits with it.
        write(s, 3, 0);
        s.expect_at(us(25), read_response_only(2, 3, &data));
        s.expect(ack(3, 4));
    });
}

#[test]
fn notifications_that_come_together_cut_once() {
    story(|s| {
        s.deliver_all([notification(), notification()]);
        s.expect_nothing();
        s.now = Instant::from_nanos(49_999);
        s.deliver(notification());
        s.expect_nothing();
        assert_eq!(rate(s), Some(5_000_000_000));
        s.now = us(50);
        s.deliver(notification());
        s.expect_nothing();
        assert_eq!(rate(s), Some(2_500_000_000));
        assert_eq!(s.count(Counter::ReceivedCongestionNotification), 4);
    });
}

#[test]
fn a_notification_from_elsewhere_is_ignored() {
    Setup { pairs: 2, separate_peers: true, ..Setup::default() }.tell(|s| {
        s.pair = 1;
        let other = s.flow();
        s.pair = 0;
        s.deliver_on(other, notification());
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropWrongAddress), 1);
        assert_eq!(s.count(Counter::ReceivedCongestionNotification), 0);
        assert_eq!(rate(s), None);
    });
}

#[test]
fn only_the_queue_pair_that_is_named_slows_down() {
    Setup { pairs: 2, ..Setup::default() }.tell(|s| {
        s.pair = 1;
        s.deliver(notification());
        s.expect_nothing();
        assert!(rate(s).is_some());
        s.pair = 0;
        assert_eq!(rate(s), None);
        s.post_send(1, 1024);
        assert_eq!(s.next_sent().unwrap().at, Instant::ZERO);
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
    });
}

#[test]
fn the_rate_recovers_step_by_step_and_is_forgotten() {
    story(|s| {
        s.deliver(notification());
        s.expect_nothing();
        for (microseconds, megabits) in [(54, 5_000), (55, 7_500), (110, 8_750), (165, 9_375)] {
            s.now = us(microseconds);
            assert_eq!(rate(s).map(|rate| rate / 1_000_000), Some(megabits));
        }
        s.now = ms(10);
        assert_eq!(rate(s), Some(10_000_000_000));
        s.now = ms(200);
        s.post_write(1, 4);
        assert!(s.next_sent().is_some());
        assert_eq!(rate(s), None, "nothing is left to remember");
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
    });
}

#[test]
fn a_reset_forgets_the_rate() {
    story(|s| {
        s.deliver(notification());
        s.expect_nothing();
        s.modify(&QueuePairAttributes::to_state(QueuePairState::Reset)).unwrap();
        s.bring_to(QueuePairState::Rts);
        assert_eq!(rate(s), None);
    });
}

#[test]
fn parameters_are_set_and_told_and_wrong_ones_refused() {
    story(|s| {
        let slow = CongestionOptions { rpg_max_rate: 1_000, ..CongestionOptions::default() };
        s.engine.set_congestion(slow).unwrap();
        assert_eq!(*s.engine.congestion(), slow);
        let wrong = CongestionOptions { dce_tcp_rtt: 0, ..slow };
        let error = s.engine.set_congestion(wrong).unwrap_err().to_string();
        assert!(error.contains("dce_tcp_rtt") && error.contains("1 to"), "{error}");
        assert_eq!(*s.engine.congestion(), slow);
        s.deliver(notification());
        s.expect_nothing();
        assert_eq!(rate(s), Some(500_000_000));
    });
}
