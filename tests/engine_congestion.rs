//! Congestion control of UC and UD between two engines: notifications for each sender, and a rate
//! for each destination.

mod pair;

use std::net::{IpAddr, Ipv4Addr};

use pair::{Pair, QKEY};
use uroce::engine::Counter;
use uroce::queue::{
    Access, AddressVector, CompletionStatus, Datagram, PathMtu, QueuePairKind, SendFlags,
    SendOperation,
};
use uroce::time::{Instant, MICROSECOND};
use uroce::wire::{
    Deth, Flow, Headers, Message, Packet, Psn, QKey, Qpn, ReceivedBurst, SendTail, SentBurst,
    Service, icrc,
};

const CE: u8 = 3;
const KIB: usize = 1024;

fn of(kind: QueuePairKind) -> Pair {
    Pair::of_kind(kind, PathMtu::Mtu1024, Access::ALL)
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

/// A datagram of 4 bytes from queue pair `number` of a host, as side 1 receives it.
fn arrive(pair: &mut Pair, host: u8, number: u32, qkey: QKey, traffic_class: u8) {
    let destination = pair.sides[1].queues.number();
    let deth = Deth { qkey, reserved: 0, source: Qpn::new(number) };
    let message = Message::SendOnly(SendTail::Plain);
    let headers = Headers::request(Service::Ud(deth), message, destination, Psn::new(5));
    let packet = Packet { headers, payload: &[1, 2, 3, 4], pad: &[] };
    let mut bytes = vec![0; packet.length()];
    packet.emit(&mut bytes);
    let flow = Flow { source: address(host), destination: address(2), source_port: 0xc001 };
    bytes.extend(icrc::of_datagram(&flow, 0, icrc::DONT_FRAGMENT, &bytes));
    let (segment, length) = (bytes.len(), bytes.len());
    let burst = SentBurst { flow, traffic_class, first_identification: 0, segment, length };
    pair.sides[1].wire.arrived.push_back((burst, bytes));
}

/// What side 1 sends in its next turn: where to, and what.
fn answers(pair: &mut Pair) -> Vec<(Flow, Headers)> {
    let side = &mut pair.sides[1];
    side.engine.turn(pair.now, &mut side.wire, 64);
    let sent = std::mem::take(&mut side.wire.sent);
    sent.iter()
        .map(|(burst, bytes)| {
            let received: ReceivedBurst<'_> = burst.as_received(bytes);
            assert_eq!(burst.packets(), 1);
            assert_eq!(icrc::judge(&received, 0, bytes, true), icrc::Verdict::Right);
            (burst.flow, Packet::parse(bytes).unwrap().headers)
        })
        .collect()
}

#[test]
fn datagrams_are_answered_to_their_senders_each_once_in_fifty_microseconds() {
    let mut pair = of(QueuePairKind::Ud);
    let mut marked = |microseconds: u64, host, number| {
        pair.now = Instant::from_nanos(microseconds * MICROSECOND);
        arrive(&mut pair, host, number, QKEY, CE);
        let answers = answers(&mut pair);
        for (flow, headers) in &answers {
            assert_eq!(headers.message, Message::CongestionNotification([0; 16]));
            assert_eq!((flow.source, flow.destination), (address(2), address(host)));
            assert_eq!((headers.destination, headers.becn), (Qpn::new(number), true));
        }
        answers.len()
    };
    assert_eq!(marked(0, 7, 100), 1);
    assert_eq!(marked(10, 7, 100), 0);
    assert_eq!(marked(11, 7, 101), 1, "another queue pair of the host");
    assert_eq!(marked(12, 8, 100), 1, "another host");
    assert_eq!(marked(49, 7, 100), 0);
    assert_eq!(marked(50, 7, 100), 1);
    let counters = pair.sides[1].engine.counters();
    assert_eq!(counters.get(Counter::SentCongestionNotification), 4);
    assert_eq!(counters.get(Counter::ReceivedCongestionMark), 6);
}

#[test]
fn a_datagram_with_a_wrong_key_or_without_mark_is_not_answered() {
    let mut pair = of(QueuePairKind::Ud);
    arrive(&mut pair, 7, 100, QKey::new(9), CE);
    arrive(&mut pair, 7, 100, QKEY, 2);
    assert_eq!(answers(&mut pair), []);
}

#[test]
fn a_receive_queue_that_fills_is_answered_where_nothing_is_acknowledged() {
    let mut pair = of(QueuePairKind::Ud);
    pair.sides[1].wire.pressed = true;
    arrive(&mut pair, 7, 100, QKEY, 0);
    assert_eq!(answers(&mut pair).len(), 1);
    let counters = pair.sides[1].engine.counters();
    assert_eq!(counters.get(Counter::ReceivedCongestionMark), 0);

    let mut pair = of(QueuePairKind::Uc);
    pair.sides[1].wire.pressed = true;
    pair.post(0, 1, SendOperation::Write(pair.remote(1, 0)), SendFlags::SIGNALED, (0, 8));
    pair.run();
    let heeded = pair.sides[0].engine.counters().get(Counter::ReceivedCongestionNotification);
    assert_eq!(heeded, 1);
}

/// How long side 0 takes to send 1 MiB in packets of 1 KiB, and whether its path is limited.
fn time_to_send(pair: &mut Pair, operation: SendOperation, notified: u64) -> (u64, bool) {
    for _ in 0..notified {
        notify(pair);
        pair.now += 50 * MICROSECOND;
    }
    let start = pair.now;
    let mut sent = 0;
    while sent < KIB {
        for _ in 0..32 {
            pair.post(0, 1, operation, SendFlags::SIGNALED, (0, KIB));
        }
        let mut done = 0;
        while done < 32 {
            let side = &mut pair.sides[0];
            let report = side.engine.turn(pair.now, &mut side.wire, 64);
            side.wire.sent.clear();
            while let Some(completion) = pair.try_completion(0) {
                assert_eq!(completion.status, CompletionStatus::Success);
                done += 1;
            }
            if done < 32 {
                pair.now = report.next_deadline;
            }
        }
        sent += 32;
    }
    let limited = pair.sides[0].engine.path_rate(pair.now, address(2)).is_some();
    (pair.now - start, limited)
}

/// A notification comes from side 1 for side 0's queue pair.
fn notify(pair: &mut Pair) {
    let destination = pair.sides[0].queues.number();
    let message = Message::CongestionNotification([0; 16]);
    let headers = Headers::request(Service::Congestion, message, destination, Psn::default());
    let packet = Packet { headers, payload: &[], pad: &[] };
    let mut bytes = vec![0; packet.length()];
    packet.emit(&mut bytes);
    let flow = Flow { source: address(2), destination: address(1), source_port: 0xc001 };
    bytes.extend(icrc::of_datagram(&flow, 0, icrc::DONT_FRAGMENT, &bytes));
    let (segment, length) = (bytes.len(), bytes.len());
    let burst = SentBurst { flow, traffic_class: 0, first_identification: 0, segment, length };
    let side = &mut pair.sides[0];
    side.wire.arrived.push_back((burst, bytes));
    side.engine.turn(pair.now, &mut side.wire, 64);
}

/// Side 1's queue pair as side 0 reaches it.
fn datagram(pair: &mut Pair) -> SendOperation {
    let queue_pair = pair.sides[1].queues.number();
    let side = &mut pair.sides[0];
    let vector = AddressVector::new(0, address(2));
    let address = side.engine.create_address_handle(side.domain, &vector).unwrap();
    SendOperation::SendTo { to: Datagram { address, queue_pair, qkey: QKEY }, immediate: None }
}

#[test]
fn a_destination_that_notifies_is_sent_to_slowly_and_faster_and_faster() {
    let operation = |pair: &mut Pair, kind| match kind {
        QueuePairKind::Ud => datagram(pair),
        _ => SendOperation::Write(pair.remote(1, 0)),
    };
    for kind in [QueuePairKind::Uc, QueuePairKind::Ud] {
        let mut pair = of(kind);
        let to = operation(&mut pair, kind);
        let (free, limited) = time_to_send(&mut pair, to, 0);
        assert!(!limited);
        let mut pair = of(kind);
        let to = operation(&mut pair, kind);
        let (slowed, limited) = time_to_send(&mut pair, to, 5);
        assert!(limited);
        // The bucket of cost lets 1 MiB through in about a millisecond.
        assert!((900..1_100).contains(&(free / MICROSECOND)), "{kind}: {free}");
        // From 320 Mbit/s, by 40 Mbit/s a step.
        assert!((3_500..5_000).contains(&(slowed / MICROSECOND)), "{kind}: {slowed}");
        let counters = pair.sides[0].engine.counters();
        assert_eq!(counters.get(Counter::ReceivedCongestionNotification), 5);
    }
}

#[test]
fn many_notifications_bring_a_destination_down_to_the_least_rate_and_time_up_again() {
    let mut pair = of(QueuePairKind::Ud);
    let to = datagram(&mut pair);
    for _ in 0..40 {
        notify(&mut pair);
        pair.now += 50 * MICROSECOND;
    }
    let rate = pair.sides[0].engine.path_rate(pair.now, address(2)).unwrap();
    assert_eq!(rate.current, 10_000_000);
    pair.post(0, 1, to, SendFlags::SIGNALED, (0, KIB));
    pair.post(0, 2, to, SendFlags::SIGNALED, (0, KIB));
    pair.run_for(100 * MICROSECOND);
    assert!(pair.try_completion(0).is_some());
    assert!(pair.try_completion(0).is_none(), "a packet takes 900 µs at 10 Mbit/s");
    pair.run_for(2_000 * MICROSECOND);
    assert!(pair.try_completion(0).is_some());
    pair.now += 100_000 * MICROSECOND;
    let rate = pair.sides[0].engine.path_rate(pair.now, address(2)).unwrap();
    assert_eq!(rate.current, 10_000_000_000);
}

#[test]
fn a_notification_from_where_nobody_sends_to_is_ignored() {
    let mut pair = of(QueuePairKind::Ud);
    notify(&mut pair);
    let counters = pair.sides[0].engine.counters();
    assert_eq!(counters.get(Counter::IgnoredCongestionNotification), 1);
    assert_eq!(counters.get(Counter::ReceivedCongestionNotification), 0);
}
