//! The flight recorder: what a queue pair remembers, and for how long.

use uroce::engine::{Counter, HistoryEvent, PacketKind, TimerKind};
use uroce::queue::{CompletionStatus, PathMtu, QueuePairAttributes, QueuePairState, SendOperation};
use uroce::time::Instant;
use uroce::wire::{NakCode, Psn, Syndrome};
use uroce::words::record;

use crate::world::{Passing, all, destroy, history, impatient, post, rc, run};

fn events(pair: &crate::pair::Pair, side: usize) -> Vec<HistoryEvent> {
    history(pair, side).records.iter().map(|record| record.event).collect()
}

#[test]
fn both_ends_remember_a_refusal_and_its_end() {
    let mut pair = rc(&|side, attributes| {
        if side == 1 {
            attributes.path_mtu = Some(PathMtu::Mtu512);
        }
    });
    let operation = SendOperation::Write(pair.remote(1, 0));
    post(&mut pair, operation, 3000);
    run(&mut pair, all);
    let syndrome = Syndrome::Nak(NakCode::InvalidRequest);
    let psn = Psn::new(0xff_fff1);
    let (rts, error) = (QueuePairState::Rts, QueuePairState::Error);
    let requester = events(&pair, 0);
    for event in [
        HistoryEvent::Sent { kind: PacketKind::Write, first: psn, last: psn.add(2) },
        HistoryEvent::ReceivedNak { syndrome, psn },
        HistoryEvent::StateChanged { from: rts, to: error },
        HistoryEvent::Completed { status: CompletionStatus::RemoteInvalidRequest, id: 7 },
    ] {
        assert!(requester.contains(&event), "{event:?} in {requester:?}");
    }
    let responder = events(&pair, 1);
    for event in [
        HistoryEvent::Received { kind: PacketKind::Write, first: psn, last: psn },
        HistoryEvent::SentNak { syndrome, psn },
        HistoryEvent::StateChanged { from: rts, to: error },
        HistoryEvent::Dropped { reason: Counter::DropWrongState, psn: psn.next() },
    ] {
        assert!(responder.contains(&event), "{event:?} in {responder:?}");
    }
}

#[test]
fn timers_and_repetitions_are_remembered_with_their_numbers() {
    let mut pair = impatient();
    destroy(&mut pair, 1);
    let operation = SendOperation::Write(pair.remote(1, 0));
    post(&mut pair, operation, 8);
    run(&mut pair, all);
    let records = history(&pair, 0).records;
    let psn = Psn::new(0xff_fff1);
    let timeout = records.iter().find(|record| {
        matches!(record.event, HistoryEvent::TimerExpired { timer: TimerKind::AckTimeout, .. })
    });
    let timeout = timeout.expect("timeouts");
    assert_eq!(timeout.count, 8, "seven retries, and the end");
    let microseconds = 1048;
    let timer = TimerKind::AckTimeout;
    assert_eq!(timeout.event, HistoryEvent::TimerExpired { timer, microseconds, oldest: psn });
    let text = record(timeout, Instant::ZERO);
    assert!(
        text.contains("no answer to PSN 16777201 for 1 ms: local ACK timeout, 8 times"),
        "{text}"
    );
}

#[test]
fn a_packet_that_never_reached_the_queue_pair_is_remembered_by_it() {
    let mut pair = rc(&|_, _| {});
    let operation = SendOperation::Write(pair.remote(1, 0));
    post(&mut pair, operation, 8);
    let mut spoiled = false;
    run(&mut pair, |packet: &mut Passing| {
        if packet.from == 0 && !std::mem::replace(&mut spoiled, true) {
            let last = packet.bytes.len() - 1;
            packet.bytes[last] ^= 1;
        }
        true
    });
    assert!(pair.completion(0).status.is_success());
    let bad = HistoryEvent::Dropped { reason: Counter::DropBadIcrc, psn: Psn::new(0xff_fff1) };
    assert!(events(&pair, 1).contains(&bad), "{:?}", events(&pair, 1));
}

#[test]
fn err_keeps_it_and_reset_clears_it() {
    let mut pair = rc(&|_, _| {});
    let number = pair.sides[0].queues.number();
    let to = |pair: &mut crate::pair::Pair, state| {
        let attributes = QueuePairAttributes::to_state(state);
        pair.sides[0].engine.modify_queue_pair(pair.now, number, &attributes).unwrap();
    };
    to(&mut pair, QueuePairState::Error);
    let (rts, error) = (QueuePairState::Rts, QueuePairState::Error);
    assert!(events(&pair, 0).contains(&HistoryEvent::StateChanged { from: rts, to: error }));
    to(&mut pair, QueuePairState::Reset);
    assert_eq!(events(&pair, 0), []);
    assert!(history(&pair, 0).failures.is_empty());
}

/// What a peer can cause does not grow: a thousand faulty messages leave one cause.
#[test]
fn faults_of_an_unreliable_connection_do_not_pile_up() {
    use uroce::engine::Cause;
    use uroce::queue::{Access, QueuePairKind};
    let mut pair = crate::pair::Pair::of_kind(QueuePairKind::Uc, PathMtu::Mtu1024, Access::ALL);
    pair.post_receive(1, 5, 0, 64);
    for _ in 0..1000 {
        post(&mut pair, SendOperation::Send, 100);
        pair.run();
        pair.completion(0);
    }
    let history = history(&pair, 1);
    assert_eq!(history.dropped, Some(Cause::ReceiveTooSmall { capacity: 64, arrived: 100 }));
    assert!(history.failures.is_empty() && history.records.len() <= 32);
    let explanation = uroce::words::explain_dropped(&history).unwrap();
    assert_eq!(explanation.code, "receive_too_small");
    assert!(
        explanation.headline.ends_with("has at least 100 bytes, and the receive for it only 64")
    );
    assert_eq!(history.to_string().lines().count(), history.records.len());
}
