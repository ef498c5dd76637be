//! Whatever happens is read back from the ring, and what is added up in it is nothing else.

use proptest::prelude::*;

use super::*;
use crate::wire::{Credits, NakCode, RnrTimer};

fn psn() -> impl Strategy<Value = Psn> {
    // Few, so that events follow one another.
    prop_oneof![3 => 0u32..6, 1 => Just(0x00ff_ffff), 1 => any::<u32>()].prop_map(Psn::new)
}

fn kind() -> impl Strategy<Value = PacketKind> {
    (0u8..11).prop_map(PacketKind::from_number)
}

fn syndrome() -> impl Strategy<Value = Syndrome> {
    any::<u8>().prop_map(Syndrome::from_byte)
}

fn state() -> impl Strategy<Value = QueuePairState> {
    proptest::sample::select(QueuePairState::ALL.to_vec())
}

/// An event that is one of a kind, as it is taken down.
fn event() -> impl Strategy<Value = HistoryEvent> {
    let reason = proptest::sample::select(Counter::ALL.to_vec());
    let timer = (0u8..3).prop_map(TimerKind::from_number);
    let status = (0u8..24).prop_map(CompletionStatus::from_number);
    prop_oneof![
        4 => (0u8..3, kind(), psn(), 1u32..5).prop_map(|(which, kind, first, psns)| {
            let last = first.add(psns - 1);
            match which {
                0 => HistoryEvent::Sent { kind, first, last },
                1 => HistoryEvent::SentAgain { kind, first, last },
                _ => HistoryEvent::Received { kind, first, last },
            }
        }),
        1 => (syndrome(), psn()).prop_map(|(syndrome, psn)| HistoryEvent::ReceivedNak { syndrome, psn }),
        1 => (syndrome(), psn()).prop_map(|(syndrome, psn)| HistoryEvent::SentNak { syndrome, psn }),
        1 => (reason, psn()).prop_map(|(reason, psn)| HistoryEvent::Dropped { reason, psn }),
        1 => (timer, any::<u32>(), psn()).prop_map(|(timer, microseconds, oldest)| {
            HistoryEvent::TimerExpired { timer, microseconds, oldest }
        }),
        1 => (state(), state()).prop_map(|(from, to)| HistoryEvent::StateChanged { from, to }),
        1 => (status, any::<u64>()).prop_map(|(status, id)| HistoryEvent::Completed { status, id }),
        1 => Just(HistoryEvent::CongestionNotified),
    ]
}

fn take_down(ring: &mut Ring, now: Instant, event: &HistoryEvent) {
    let mut packet = |which, kind, first: Psn, last: Psn| {
        ring.packet(now, which, kind, first, last.distance_from(first) + 1);
    };
    match *event {
        HistoryEvent::Sent { kind, first, last } => packet(HistoryEvent::SENT, kind, first, last),
        HistoryEvent::SentAgain { kind, first, last } => {
            packet(HistoryEvent::SENT_AGAIN, kind, first, last);
        }
        HistoryEvent::Received { kind, first, last } => {
            packet(HistoryEvent::RECEIVED, kind, first, last);
        }
        HistoryEvent::ReceivedNak { syndrome, psn } => ring.received_nak(now, syndrome, psn),
        HistoryEvent::SentNak { syndrome, psn } => ring.sent_nak(now, syndrome, psn),
        HistoryEvent::Dropped { reason, psn } => ring.dropped_before(now, reason, psn),
        HistoryEvent::TimerExpired { timer, microseconds, oldest } => {
            ring.timer(now, timer, u64::from(microseconds) * 1000 + 999, oldest);
        }
        HistoryEvent::StateChanged { from, to } => ring.state(now, from, to),
        HistoryEvent::Completed { status, id } => ring.completed(now, status, id),
        HistoryEvent::CongestionNotified => ring.congestion(now),
    }
}

proptest! {
    #[test]
    fn an_event_comes_back_as_it_was_taken_down(event in event(), at in any::<u64>()) {
        let (mut ring, now) = (Ring::default(), Instant::from_nanos(at));
        take_down(&mut ring, now, &event);
        let records: Vec<Record> = ring.records().collect();
        prop_assert_eq!(records, [Record { first: now, last: now, count: 1, event }]);
    }

    #[test]
    fn each_event_of_a_sequence_is_counted_once_in_the_order_of_time(
        events in proptest::collection::vec((event(), 0u64..5_000_000), 1..31),
    ) {
        let mut ring = Ring::default();
        let mut now = Instant::from_nanos(1_000_000);
        for (event, wait) in &events {
            now += *wait;
            take_down(&mut ring, now, event);
            let newest = ring.records().any(|record| {
                now - record.last < 1 << UNIT_SHIFT && is_alike(&record.event, event)
            });
            prop_assert!(newest, "{event:?} is nowhere");
        }
        let records: Vec<Record> = ring.records().collect();
        let total: usize = records.iter().map(|record| usize::from(record.count)).sum();
        prop_assert_eq!(total, events.len());
        prop_assert!(records.is_sorted_by_key(|record| record.first));
        prop_assert!(records.iter().all(|record| record.first <= record.last && record.last <= now));
    }
}

/// Whether both end at the same place and differ in nothing but where they begin, or in a number of
/// which the last counts.
fn is_alike(found: &HistoryEvent, event: &HistoryEvent) -> bool {
    use HistoryEvent as E;
    match (*found, *event) {
        (E::Sent { kind, last, .. }, E::Sent { kind: k, last: l, .. })
        | (E::SentAgain { kind, last, .. }, E::SentAgain { kind: k, last: l, .. })
        | (E::Received { kind, last, .. }, E::Received { kind: k, last: l, .. }) => {
            (kind, last) == (k, l)
        }
        (found, event) => found == event,
    }
}

#[test]
fn every_syndrome_of_a_record_is_its_byte() {
    for code in 0..32 {
        for syndrome in [
            Syndrome::Ack(Credits::new(code)),
            Syndrome::RnrNak(RnrTimer::new(code)),
            Syndrome::Nak(NakCode::from_code(code)),
        ] {
            assert_eq!(Syndrome::from_byte(syndrome.to_byte()), syndrome);
        }
    }
}
