//! What is counted for whom, which events come when, and what queries say in each state.

mod pair;

use std::sync::Arc;

use pair::Pair;
use uroce::engine::{
    AsyncEvent, AsyncEventKind, ControlError, Counter, Counters, QueuePairOptions,
};
use uroce::queue::{
    Access, Completion, CompletionStatus, PathMtu, QueueCapacities, QueuePairAttributes,
    QueuePairKind, QueuePairState, Remote, SendFlags, SendOperation,
};
use uroce::time::SECOND;
use uroce::wire::{Qpn, Rkey};

const ALL_KINDS: [QueuePairKind; 3] = [QueuePairKind::Rc, QueuePairKind::Uc, QueuePairKind::Ud];

fn rc() -> Pair {
    Pair::new(PathMtu::Mtu1024)
}

/// The counts of a side's queue pair.
fn counts(pair: &Pair, side: usize) -> Counters {
    let side = &pair.sides[side];
    side.engine.queue_pair_counters(side.queues.number()).unwrap().clone()
}

fn assert_counts(counters: &Counters, expected: &[(Counter, u64)]) {
    for (counter, count) in expected {
        assert_eq!(counters.get(*counter), *count, "{}", counter.name());
    }
}

fn modify(pair: &mut Pair, side: usize, attributes: &QueuePairAttributes) {
    let number = pair.sides[side].queues.number();
    pair.sides[side].engine.modify_queue_pair(pair.now, number, attributes).unwrap();
}

fn kinds(pair: &mut Pair, side: usize) -> Vec<AsyncEventKind> {
    pair.effects(side).events.iter().map(AsyncEvent::kind).collect()
}

#[test]
fn every_operation_counts_at_both_ends_and_for_the_device_too() {
    let mut pair = rc();
    pair.post_receive(1, 1, 0, 4096);
    pair.post(0, 1, SendOperation::Send, SendFlags::SIGNALED, (0, 3000));
    pair.post(0, 2, SendOperation::Write(pair.remote(1, 0)), SendFlags::NONE, (0, 100));
    pair.post(0, 3, SendOperation::Read(pair.remote(1, 0)), SendFlags::SIGNALED, (0, 2000));
    let add = SendOperation::FetchAdd { remote: pair.remote(1, 0), add: 1 };
    pair.post(0, 4, add, SendFlags::SIGNALED, (0, 8));
    pair.run();
    let (asker, server) = (counts(&pair, 0), counts(&pair, 1));
    assert_counts(
        &asker,
        &[
            (Counter::FinishedSend, 1),
            (Counter::FinishedWrite, 1),
            (Counter::FinishedRead, 1),
            (Counter::FinishedAtomic, 1),
            // Three of the SEND, one of each other.
            (Counter::SentPackets, 6),
            (Counter::RetransmittedPackets, 0),
            (Counter::FailedSend, 0),
        ],
    );
    assert_counts(
        &server,
        &[
            (Counter::ReceivedPackets, 6),
            (Counter::FilledReceive, 1),
            (Counter::ReceivedWriteRequest, 1),
            (Counter::ReceivedReadRequest, 1),
            (Counter::ReceivedAtomicRequest, 1),
            (Counter::DuplicateRequest, 0),
        ],
    );
    assert_eq!(server.get(Counter::ReceivedBytes), asker.get(Counter::SentBytes));
    assert_eq!(asker.get(Counter::ReceivedBytes), server.get(Counter::SentBytes));
    // BTH and ICRC around 3000 + 100 bytes, RETHs of WRITE and READ, an AtomicETH.
    assert_eq!(asker.get(Counter::SentBytes), 6 * 16 + 3000 + 100 + 2 * 16 + 28);
    for (side, own) in [(0, &asker), (1, &server)] {
        assert_eq!(pair.sides[side].engine.counters(), own, "the device has one queue pair");
    }
}

#[test]
fn queue_pairs_of_a_device_are_counted_apart_and_end_with_their_counts() {
    let mut pair = rc();
    let side = &mut pair.sides[0];
    let options = QueuePairOptions {
        kind: QueuePairKind::Rc,
        domain: side.domain,
        send_completions: Arc::clone(&side.completions),
        receive_completions: Arc::clone(&side.completions),
        capacities: QueueCapacities::default(),
        signal_all: false,
    };
    let idle = side.engine.create_queue_pair(&options).unwrap().number();
    pair.post(0, 1, SendOperation::Write(pair.remote(1, 0)), SendFlags::SIGNALED, (0, 8));
    pair.run();
    assert_eq!(counts(&pair, 0).get(Counter::FinishedWrite), 1);
    let engine = &mut pair.sides[0].engine;
    assert_eq!(engine.queue_pair_counters(idle).unwrap(), &Counters::default());
    engine.destroy_queue_pair(idle).unwrap();
    assert_eq!(engine.queue_pair_counters(idle), Err(ControlError::NoSuchPair(idle)));
    let busy = pair.sides[0].queues.number();
    pair.sides[0].engine.destroy_queue_pair(busy).unwrap();
    let engine = &mut pair.sides[0].engine;
    assert_eq!(engine.counters().get(Counter::FinishedWrite), 1, "the device remembers");
    // Its slot begins anew.
    let next = engine.create_queue_pair(&options).unwrap().number();
    assert_eq!(engine.queue_pair_counters(next).unwrap(), &Counters::default());
}

/// Changes the one packet that is on its way to side 1.
fn spoil(pair: &mut Pair, change: impl FnOnce(&mut Vec<u8>)) {
    pair.post(0, 1, SendOperation::Write(pair.remote(1, 0)), SendFlags::SIGNALED, (0, 8));
    let now = pair.now;
    let side = &mut pair.sides[0];
    side.engine.turn(now, &mut side.wire, 64);
    let (mut burst, mut bytes) = side.wire.sent.pop().unwrap();
    change(&mut bytes);
    burst.length = bytes.len();
    pair.sides[1].wire.arrived.push_back((burst, bytes));
    let side = &mut pair.sides[1];
    side.engine.turn(now, &mut side.wire, 64);
}

#[test]
fn what_is_dropped_counts_for_the_queue_pair_that_the_packet_names() {
    let mut pair = rc();
    spoil(&mut pair, |bytes| bytes[30] ^= 1);
    assert_counts(&counts(&pair, 1), &[(Counter::DropBadIcrc, 1), (Counter::ReceivedPackets, 1)]);

    let mut pair = rc();
    modify(&mut pair, 1, &QueuePairAttributes::to_state(QueuePairState::Error));
    spoil(&mut pair, |_| ());
    assert_counts(
        &counts(&pair, 1),
        &[(Counter::DropWrongState, 1), (Counter::ReceivedPackets, 1)],
    );

    // A number that nobody has is the device's alone.
    let mut pair = rc();
    spoil(&mut pair, |bytes| bytes[7] ^= 1);
    let device = pair.sides[1].engine.counters();
    assert_counts(device, &[(Counter::DropBadIcrc, 1), (Counter::ReceivedPackets, 1)]);
    assert_eq!(counts(&pair, 1), Counters::default());

    let mut pair = rc();
    spoil(&mut pair, |bytes| bytes.truncate(11));
    assert_counts(pair.sides[1].engine.counters(), &[(Counter::DropMalformed, 1)]);
    assert_eq!(counts(&pair, 1), Counters::default());
}

#[test]
fn failures_count_by_how_they_ended() {
    let mut pair = rc();
    let wrong = Remote { address: 0, key: Rkey::new(1) };
    pair.post(0, 1, SendOperation::Write(wrong), SendFlags::SIGNALED, (0, 8));
    pair.post(0, 2, SendOperation::Write(wrong), SendFlags::SIGNALED, (0, 8));
    pair.post_receive(0, 3, 0, 8);
    pair.run();
    assert_counts(
        &counts(&pair, 0),
        &[
            (Counter::FailedSend, 1),
            (Counter::RemoteAccessError, 1),
            (Counter::FlushedSend, 1),
            (Counter::FlushedReceive, 1),
        ],
    );
    assert_counts(
        &counts(&pair, 1),
        &[(Counter::ResponderAccessError, 1), (Counter::SentErrorNak, 1), (Counter::Event, 1)],
    );

    let mut pair = rc();
    pair.post_receive(1, 1, 0, 10);
    pair.post(0, 1, SendOperation::Send, SendFlags::SIGNALED, (0, 100));
    pair.run();
    assert_counts(&counts(&pair, 1), &[(Counter::ReceiveTooSmall, 1), (Counter::FailedReceive, 1)]);
    assert_counts(
        &counts(&pair, 0),
        &[(Counter::RemoteInvalidRequest, 1), (Counter::FailedSend, 1)],
    );
}

#[test]
fn a_lost_packet_shows_in_the_counts_of_both_ends() {
    let mut pair = rc();
    pair.post(0, 1, SendOperation::Write(pair.remote(1, 0)), SendFlags::SIGNALED, (0, 8));
    let now = pair.now;
    let side = &mut pair.sides[0];
    side.engine.turn(now, &mut side.wire, 64);
    side.wire.sent.clear();
    pair.post(0, 2, SendOperation::Write(pair.remote(1, 0)), SendFlags::SIGNALED, (0, 8));
    pair.run();
    assert_eq!(pair.completion(0).status, CompletionStatus::Success);
    assert_counts(&counts(&pair, 1), &[(Counter::OutOfSequence, 1), (Counter::SentSequenceNak, 1)]);
    assert_counts(
        &counts(&pair, 0),
        &[(Counter::PacketSequenceError, 1), (Counter::RetransmittedPackets, 2)],
    );
}

#[test]
fn each_affiliated_event_comes_once_for_its_cause() {
    // Requests that are invalid, or that a key forbids.
    let mut pair = Pair::with_access(PathMtu::Mtu1024, Access::LOCAL_WRITE);
    pair.post(0, 1, SendOperation::Write(pair.remote(1, 0)), SendFlags::SIGNALED, (0, 8));
    pair.run();
    assert_eq!(kinds(&mut pair, 1), [AsyncEventKind::RequestError]);
    let mut pair = rc();
    let wrong = Remote { address: 0, key: Rkey::new(1) };
    pair.post(0, 1, SendOperation::Write(wrong), SendFlags::SIGNALED, (0, 8));
    pair.run();
    assert_eq!(kinds(&mut pair, 1), [AsyncEventKind::AccessError]);
    assert_eq!(kinds(&mut pair, 0), [], "its completion tells");

    // The end of draining, with a message under way.
    let mut pair = rc();
    pair.post(0, 1, SendOperation::Write(pair.remote(1, 0)), SendFlags::SIGNALED, (0, 8));
    let now = pair.now;
    let side = &mut pair.sides[0];
    side.engine.turn(now, &mut side.wire, 64);
    let drain = QueuePairAttributes {
        drain_notification: Some(true),
        ..QueuePairAttributes::to_state(QueuePairState::Sqd)
    };
    modify(&mut pair, 0, &drain);
    assert_eq!(kinds(&mut pair, 0), []);
    let number = pair.sides[0].queues.number();
    assert!(pair.sides[0].engine.query_queue_pair(number).unwrap().is_draining);
    let sent = std::mem::take(&mut pair.sides[0].wire.sent);
    pair.sides[1].wire.arrived.extend(sent);
    pair.run();
    assert_eq!(kinds(&mut pair, 0), [AsyncEventKind::SendQueueDrained]);
    assert!(!pair.sides[0].engine.query_queue_pair(number).unwrap().is_draining);
}

#[test]
fn a_completion_queue_without_room_is_told_of_and_ends_its_queue_pair() {
    let mut pair = rc();
    let small = pair.sides[0].engine.create_completion_queue(1).unwrap();
    let options = QueuePairOptions {
        kind: QueuePairKind::Rc,
        domain: pair.sides[0].domain,
        send_completions: Arc::clone(&small),
        receive_completions: Arc::clone(&small),
        capacities: QueueCapacities::default(),
        signal_all: false,
    };
    let queues = pair.sides[0].engine.create_queue_pair(&options).unwrap();
    let init = QueuePairAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::NONE),
        ..QueuePairAttributes::to_state(QueuePairState::Init)
    };
    let (now, number) = (pair.now, queues.number());
    let engine = &mut pair.sides[0].engine;
    engine.modify_queue_pair(now, number, &init).unwrap();
    for id in 0..2 {
        let receive = uroce::queue::ReceiveRequest { id, segments: &[] };
        queues.post_one_receive(&receive).unwrap();
    }
    let error = QueuePairAttributes::to_state(QueuePairState::Error);
    engine.modify_queue_pair(now, number, &error).unwrap();
    let counters = engine.queue_pair_counters(number).unwrap().clone();
    assert_counts(&counters, &[(Counter::LostCompletion, 1), (Counter::FlushedReceive, 2)]);
    let told = kinds(&mut pair, 0);
    assert_eq!(told, [AsyncEventKind::CompletionQueueError, AsyncEventKind::QueuePairFatal]);
}

#[test]
fn the_last_receive_is_told_of_once_whatever_is_posted_afterwards() {
    let mut pair = Pair::sharing_receives(QueuePairKind::Rc, PathMtu::Mtu1024, 16);
    let error = QueuePairAttributes::to_state(QueuePairState::Error);
    modify(&mut pair, 1, &error);
    modify(&mut pair, 1, &error);
    pair.post(1, 1, SendOperation::Send, SendFlags::SIGNALED, (0, 8));
    pair.run();
    assert_eq!(pair.completion(1).status, CompletionStatus::WorkRequestFlushed);
    assert_eq!(kinds(&mut pair, 1), [AsyncEventKind::LastReceiveReached]);
}

#[test]
fn events_that_nobody_takes_are_bounded_and_counted() {
    let mut pair = Pair::sharing_receives(QueuePairKind::Rc, PathMtu::Mtu1024, 16);
    let shared = Arc::clone(pair.sides[1].shared.as_ref().unwrap());
    for _ in 0..5000 {
        pair.sides[1].engine.set_shared_limit(&shared, 1).unwrap();
    }
    assert_eq!(pair.effects(1).events.len(), 4096);
    let counters = pair.sides[1].engine.counters();
    assert_counts(counters, &[(Counter::Event, 4096), (Counter::LostEvent, 904)]);
}

/// Which attributes a query shows, by name.
fn shown(attributes: &QueuePairAttributes) -> Vec<&'static str> {
    let list = [
        ("access", attributes.access.is_some()),
        ("pkey", attributes.pkey_index.is_some()),
        ("port", attributes.port.is_some()),
        ("qkey", attributes.qkey.is_some()),
        ("address", attributes.address.is_some()),
        ("mtu", attributes.path_mtu.is_some()),
        ("destination", attributes.destination.is_some()),
        ("receive_psn", attributes.receive_psn.is_some()),
        ("served_reads", attributes.max_destination_rd_atomic.is_some()),
        ("rnr_timer", attributes.min_rnr_timer.is_some()),
        ("timeout", attributes.timeout.is_some()),
        ("retries", attributes.retry_count.is_some()),
        ("rnr_retries", attributes.rnr_retry.is_some()),
        ("send_psn", attributes.send_psn.is_some()),
        ("reads", attributes.max_rd_atomic.is_some()),
    ];
    list.into_iter().filter(|(_, shown)| *shown).map(|(name, _)| name).collect()
}

/// What is known of a queue pair from INIT on, from RTR on, and from RTS on.
fn expected(kind: QueuePairKind) -> [&'static [&'static str]; 3] {
    match kind {
        QueuePairKind::Rc => [
            &["access", "pkey", "port"],
            &["address", "destination", "mtu", "receive_psn", "rnr_timer", "served_reads"],
            &["reads", "retries", "rnr_retries", "send_psn", "timeout"],
        ],
        QueuePairKind::Uc => [
            &["access", "pkey", "port"],
            &["address", "destination", "mtu", "receive_psn"],
            &["send_psn"],
        ],
        // The size of a datagram is that of the interface from the start.
        _ => [&["mtu", "pkey", "port", "qkey"], &[], &["send_psn"]],
    }
}

#[test]
fn a_query_shows_in_each_state_what_was_set_so_far_and_nothing_else() {
    for kind in ALL_KINDS {
        let mut pair = Pair::of_kind(kind, PathMtu::Mtu1024, Access::ALL);
        let number = pair.sides[0].queues.number();
        let full = pair.sides[0].engine.query_queue_pair(number).unwrap();
        assert_eq!(full.attributes.state, Some(QueuePairState::Rts));
        let [init, rtr, rts] = expected(kind);
        let mut from = QueuePairState::Rts;
        for (state, known) in [
            (QueuePairState::Sqd, 3),
            (QueuePairState::Rts, 3),
            (QueuePairState::Error, 3),
            (QueuePairState::Reset, 0),
            (QueuePairState::Init, 1),
            (QueuePairState::Rtr, 2),
            (QueuePairState::Rts, 3),
        ] {
            let change = step(&full.attributes, kind, (from, state));
            from = state;
            modify(&mut pair, 0, &change);
            let status = pair.sides[0].engine.query_queue_pair(number).unwrap();
            assert_eq!(status.attributes.state, Some(state), "{kind}");
            assert_eq!(status.attributes.current_state, Some(state), "{kind}");
            let mut wanted: Vec<&str> = [init, rtr, rts][..known].concat();
            wanted.sort_unstable();
            let mut found = shown(&status.attributes);
            found.sort_unstable();
            assert_eq!(found, wanted, "{kind} in {state}");
            assert!(!status.is_draining, "{kind} in {state}: nothing is under way");
            assert_eq!((status.capacities, status.kind), (full.capacities, kind));
        }
    }
}

/// The change to a state, with the attributes that `full` has and that belong to it.
fn step(
    full: &QueuePairAttributes,
    kind: QueuePairKind,
    (from, to): (QueuePairState, QueuePairState),
) -> QueuePairAttributes {
    let state = to;
    let to = QueuePairAttributes::to_state(state);
    let connected = kind != QueuePairKind::Ud;
    match (from, state) {
        (_, QueuePairState::Init) => QueuePairAttributes {
            access: full.access,
            pkey_index: full.pkey_index,
            port: full.port,
            qkey: full.qkey,
            ..to
        },
        (_, QueuePairState::Rtr) => QueuePairAttributes {
            address: full.address,
            path_mtu: full.path_mtu.filter(|_| connected),
            destination: full.destination,
            receive_psn: full.receive_psn,
            max_destination_rd_atomic: full.max_destination_rd_atomic,
            min_rnr_timer: full.min_rnr_timer,
            ..to
        },
        // From SQD all is set already.
        (QueuePairState::Rtr, QueuePairState::Rts) => QueuePairAttributes {
            send_psn: full.send_psn,
            timeout: full.timeout,
            retry_count: full.retry_count,
            rnr_retry: full.rnr_retry,
            max_rd_atomic: full.max_rd_atomic,
            ..to
        },
        _ => to,
    }
}

#[test]
fn queries_tell_the_next_psns_and_the_sizes_that_were_given() {
    let mut pair = rc();
    let numbers = [0, 1].map(|side| pair.sides[side].queues.number());
    let psns = |pair: &Pair, side: usize| {
        let status = pair.sides[side].engine.query_queue_pair(numbers[side]).unwrap();
        let psn = |psn: Option<uroce::wire::Psn>| psn.unwrap().value();
        (psn(status.attributes.send_psn), psn(status.attributes.receive_psn))
    };
    assert_eq!((psns(&pair, 0), psns(&pair, 1)), ((0xff_fff1, 0xff_fff0), (0xff_fff0, 0xff_fff1)));
    pair.post(0, 1, SendOperation::Write(pair.remote(1, 0)), SendFlags::SIGNALED, (0, 20 * 1024));
    pair.run();
    assert_eq!((psns(&pair, 0).0, psns(&pair, 1).1), (5, 5), "20 packets on, over the end");

    let domain = pair.sides[0].domain;
    let engine = &mut pair.sides[0].engine;
    let completions = engine.create_completion_queue(100).unwrap();
    assert_eq!(completions.capacity(), 128);
    let shared = engine.create_shared_receive_queue(domain, 100, 3).unwrap();
    assert_eq!((shared.capacity(), shared.max_segments(), shared.limit()), (128, 3, 0));
    engine.set_shared_limit(&shared, 0).unwrap();
    let options = QueuePairOptions {
        kind: QueuePairKind::Rc,
        domain,
        send_completions: Arc::clone(&completions),
        receive_completions: completions,
        capacities: QueueCapacities {
            send_requests: 100,
            receive_requests: 0,
            send_segments: 3,
            receive_segments: 2,
            inline_bytes: 33,
        },
        signal_all: true,
    };
    let own = engine.create_queue_pair(&options).unwrap().number();
    let status = engine.query_queue_pair(own).unwrap();
    assert!(status.signal_all);
    let given = QueueCapacities { send_requests: 128, receive_requests: 1, ..options.capacities };
    assert_eq!(status.capacities, given);
    let sharing = engine.create_queue_pair_sharing(&options, Some(&shared)).unwrap().number();
    let none = QueueCapacities { receive_requests: 0, receive_segments: 0, ..given };
    assert_eq!(engine.query_queue_pair(sharing).unwrap().capacities, none);
    let gone = Qpn::new(3);
    assert_eq!(engine.query_queue_pair(gone), Err(ControlError::NoSuchPair(gone)));
}

#[test]
fn a_reset_queue_pair_forgets_what_was_posted_and_starts_anew() {
    let mut pair = rc();
    pair.post_receive(0, 9, 0, 8);
    pair.post(0, 1, SendOperation::Write(pair.remote(1, 0)), SendFlags::SIGNALED, (0, 8));
    modify(&mut pair, 0, &QueuePairAttributes::to_state(QueuePairState::Reset));
    pair.run_for(SECOND / 100);
    assert_eq!(pair.try_completion(0), None::<Completion>);
    let number = pair.sides[0].queues.number();
    let status = pair.sides[0].engine.query_queue_pair(number).unwrap();
    assert_eq!(shown(&status.attributes), Vec::<&str>::new());
}

#[test]
fn the_page_about_events_names_each_kind_and_why_it_never_comes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/events.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (coming, never) = page.split_once("These never come:").unwrap();
    for kind in AsyncEventKind::ALL {
        let name = format!("`{}`", kind.name());
        let line = |text: &str| text.lines().find(|line| line.contains(&name)).map(str::to_owned);
        match kind.never() {
            None => assert!(line(coming).is_some() && line(never).is_none(), "{name}"),
            Some(why) => {
                let line = line(never).unwrap_or_else(|| panic!("{name} is missing"));
                assert!(line.contains(why), "{name}: {line}");
            }
        }
    }
}
