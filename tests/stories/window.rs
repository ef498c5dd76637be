//! The window of a destination, which all queue pairs share that send there.

use uroce::queue::CompletionStatus::{Success, WorkRequestFlushed};
use uroce::queue::{QueuePairAttributes, QueuePairState};

use crate::harness::{
    Frame, SOURCE, Setup, Story, ack, ms, ours, peer_reth, sequence_nak, write_only,
};

const MTU: usize = 1024;
/// What a full packet costs, and how large the window is at first.
const COST: usize = 832 + 2 * MTU;
const WINDOW: usize = 128 * 1024;
const FULL: usize = WINDOW / COST;

fn two_pairs() -> Setup {
    Setup { pairs: 2, ..Setup::default() }
}

/// Everything that queue pair `pair` can send now.
fn drain(s: &mut Story) -> Vec<(usize, Frame)> {
    std::iter::from_fn(|| s.next_sent().map(|sent| (sent.pair, sent.frame))).collect()
}

/// The first queue pair fills the window.
fn filled(s: &mut Story) {
    s.pair = 0;
    s.post_write(1, 100 * MTU);
    let sent = drain(s);
    assert_eq!(sent.len(), FULL);
    assert!(sent.iter().all(|(pair, _)| *pair == 0));
}

#[test]
fn a_queue_pair_that_finds_the_window_full_may_have_one_packet_out_and_waits() {
    two_pairs().tell(|s| {
        filled(s);
        s.pair = 1;
        s.post_write(2, 3 * MTU);
        let sent = drain(s);
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].0, 1);
        assert!(sent[0].1.headers.ack_request, "it has nothing else to learn from");
        s.expect_nothing();
        // Its own ACK lets the next one go, and so on, whatever the other one holds.
        for psn in 0..3 {
            s.deliver(ack(psn, 0));
            let own = drain(s).into_iter().filter(|(pair, _)| *pair == 1).count();
            assert_eq!(own, usize::from(psn < 2), "after the ACK of {psn}");
        }
        s.expect_sent(2, Success);
    });
}

#[test]
fn room_that_one_queue_pair_gives_back_wakes_the_one_that_waits() {
    two_pairs().tell(|s| {
        filled(s);
        s.pair = 1;
        s.post_write(2, 3 * MTU);
        assert_eq!(drain(s).len(), 1);
        s.pair = 0;
        // They take turns: the first ACK's room may go to the one that it is for.
        let mut left = 0;
        for psn in [9, 19] {
            s.deliver(ack(psn, 0));
            left += drain(s).into_iter().filter(|(pair, _)| *pair == 1).count();
        }
        assert_eq!(left, 2, "both that were left");
        s.pair = 1;
        s.deliver(ack(2, 1));
        s.expect_sent(2, Success);
        assert!(drain(s).iter().all(|(pair, _)| *pair == 0), "the rest of the room");
    });
}

/// However the first queue pair ends, the second goes on.
fn gives_the_window_back(end: fn(&mut Story)) {
    two_pairs().tell(|s| {
        filled(s);
        s.pair = 1;
        s.post_write(2, 20 * MTU);
        assert_eq!(drain(s).len(), 1);
        s.pair = 0;
        end(s);
        let sent = drain(s);
        assert_eq!(sent.len(), 19);
        s.pair = 1;
        s.deliver(ack(19, 1));
        s.expect_sent(2, Success);
    });
}

#[test]
fn a_queue_pair_that_is_destroyed_while_in_flight_gives_its_window_back() {
    gives_the_window_back(|s| {
        let number = s.number();
        s.engine.destroy_queue_pair(number).unwrap();
    });
}

#[test]
fn a_queue_pair_that_is_reset_while_in_flight_gives_its_window_back() {
    gives_the_window_back(|s| {
        s.modify(&QueuePairAttributes::to_state(QueuePairState::Reset)).unwrap();
    });
}

#[test]
fn a_queue_pair_that_goes_into_error_while_in_flight_gives_its_window_back() {
    gives_the_window_back(|s| {
        s.modify(&QueuePairAttributes::to_state(QueuePairState::Error)).unwrap();
        s.expect_sent(1, WorkRequestFlushed);
    });
    gives_the_window_back(|s| {
        s.deliver(crate::harness::nak(0, 0, uroce::wire::NakCode::RemoteAccessError));
        s.expect_sent(1, uroce::queue::CompletionStatus::RemoteAccessError);
    });
}

#[test]
fn a_waiting_queue_pair_that_ends_leaves_no_trace() {
    two_pairs().tell(|s| {
        filled(s);
        s.pair = 1;
        s.post_write(2, 20 * MTU);
        assert_eq!(drain(s).len(), 1);
        let number = s.number();
        s.engine.destroy_queue_pair(number).unwrap();
        s.pair = 0;
        s.deliver(ack(FULL as i32 - 1, 0));
        let sent = drain(s);
        assert!(sent.len() >= FULL && sent.iter().all(|(pair, _)| *pair == 0));
    });
}

#[test]
fn another_destination_has_a_window_of_its_own() {
    let setup = Setup { separate_peers: true, ..two_pairs() };
    setup.tell(|s| {
        filled(s);
        s.pair = 1;
        s.post_write(2, 100 * MTU);
        assert_eq!(drain(s).len(), FULL);
    });
}

#[test]
fn acknowledged_without_loss_the_window_grows() {
    two_pairs().tell(|s| {
        filled(s);
        s.deliver(ack(FULL as i32 - 1, 0));
        let grown = WINDOW + 32 * 1024 * (FULL * COST) / WINDOW;
        assert_eq!(drain(s).len(), (100 - FULL).min(grown / COST));
        assert_eq!(grown / COST, 56);
    });
}

#[test]
fn a_loss_shrinks_the_window_to_seven_tenths_once_a_round_trip() {
    two_pairs().tell(|s| {
        filled(s);
        s.deliver(sequence_nak(0, 0));
        let mut window = WINDOW * 7 / 10;
        assert_eq!(drain(s).len(), window / COST);
        // Another loss so soon is most likely of the same time.
        s.deliver(sequence_nak(1, 0));
        window += 32 * 1024 * COST / window;
        assert_eq!(drain(s).len(), window / COST);
        s.pass_until(crate::harness::us(999));
        s.expect_nothing();
        s.deliver(sequence_nak(2, 0));
        window += 32 * 1024 * COST / window;
        assert_eq!(drain(s).len(), window / COST);
        // A round trip later it is another one. (The probe came at the same time.)
        s.pass_until(ms(1));
        window = window * 7 / 10;
        s.deliver(sequence_nak(3, 0));
        window += 32 * 1024 * COST / window;
        assert_eq!(window / COST, 23);
        assert_eq!(drain(s).len(), window / COST);
    });
}

#[test]
fn the_window_never_shrinks_below_a_small_burst() {
    let setup = Setup { timeout: 0, ..two_pairs() };
    setup.tell(|s| {
        filled(s);
        // One probe after the other finds nothing.
        for time in [10, 100, 1_000, 10_000, 20_000, 30_000] {
            s.pass_until(ms(time));
        }
        while s.next_sent().is_some() {}
        s.deliver(ack(0, 0));
        // The ACK has let it grow by one packet's cost already.
        assert_eq!(drain(s).len(), (32 * 1024 + COST) / COST);
    });
}

#[test]
fn small_requests_cost_by_the_packet() {
    let mut setup = two_pairs();
    setup.capacities.send_requests = 256;
    setup.tell(|s| {
        for id in 0..200 {
            s.post_write(id, 8);
        }
        let sent = drain(s);
        let cost = 832 + 2 * 8;
        assert_eq!(sent.len(), WINDOW / cost);
        let frame = write_only(0, peer_reth(0, 8), &ours(SOURCE, 8)).asking();
        assert_eq!(sent[0].1, frame);
    });
}
