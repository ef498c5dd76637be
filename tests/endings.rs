//! What the end of a receiver leaves to its sender. A test program of its own, which starts no other
//! process: a child that has not called exec yet has copies of the sockets that close here, the
//! kernel goes on giving them what is for the next ones, and an acknowledgement that is lost so is
//! lost for good where the receiver has gone.

use uroce::queue::QueuePairState;
use uroce::verbs::{QueuePairAttributes, SendOperation};

#[path = "verbs/setup.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod setup;

use setup::{End, ends};

#[test]
fn a_completed_message_is_acknowledged_even_if_its_receiver_ends_at_once() {
    for round in 0..150 {
        let (one, other) = ends(52);
        other.receive(1);
        one.pair.post(2, SendOperation::Send, one.memory.segment(0, 100)).unwrap();
        assert_eq!(other.good(), 1);
        match round % 3 {
            0 => drop(other),
            1 => set_state(&other, QueuePairState::Error),
            _ => set_state(&other, QueuePairState::Reset),
        }
        assert_eq!(one.good(), 2);
    }
}

fn set_state(end: &End, state: QueuePairState) {
    end.pair.modify(&QueuePairAttributes::to_state(state)).unwrap();
}
