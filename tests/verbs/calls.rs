//! What each call gives and refuses.

use uroce::engine::ModifyError;
use uroce::queue::Payload;
use uroce::software::DeviceOptions;
use uroce::verbs::{
    Access, AddressVector, CompletionKind, CompletionStatus, ConnectOptions, ControlError, Limits,
    PathMtu, PostError, Psn, QueueCapacities, QueuePair, QueuePairAttributes, QueuePairKind,
    QueuePairOptions, QueuePairState, Remote, Rkey, SendFlags, SendOperation, SendRequest,
    VerbsError, WindowKind, connect_pair, devices,
};

use super::setup::{End, LONG, MEMORY, context, ends, open, options};

fn attributes(pair: &QueuePair) -> QueuePairAttributes {
    let attributes = pair.query().unwrap().attributes;
    assert_eq!(attributes.state, Some(pair.state()), "one state");
    assert_eq!(attributes.current_state, attributes.state);
    attributes
}

#[test]
fn loopback_is_among_the_devices_and_opens_by_its_name() {
    let all = devices();
    let lo = all.iter().find(|device| device.is_loopback).unwrap();
    assert_eq!(lo.interface, "lo");
    let context = lo.open().unwrap();
    let info = context.info();
    assert_eq!((info.name.as_str(), info.path_mtu), ("lo", lo.path_mtu));
    assert_eq!(context.gid(0).unwrap(), info.gids[0]);
    assert!(format!("{context:?}").contains("lo"));
}

#[test]
fn a_query_tells_the_truth_in_every_state() {
    let (one, other) = (End::new(&context(1)), End::new(&context(1)));
    let pair = &one.pair;
    let nothing = attributes(pair);
    assert_eq!(nothing.state, Some(QueuePairState::Reset));
    assert_eq!((nothing.access, nothing.port, nothing.send_psn), (None, None, None));

    pair.initialize(Access::REMOTE_READ).unwrap();
    let init = attributes(pair);
    assert_eq!((init.state, init.port), (Some(QueuePairState::Init), Some(1)));
    assert_eq!((init.access, init.pkey_index), (Some(Access::REMOTE_READ), Some(0)));
    pair.initialize_again(Access::REMOTE_WRITE);
    assert_eq!(attributes(pair).access, Some(Access::REMOTE_WRITE));

    let peer = other.pair.endpoint(0, Psn::new(77)).unwrap();
    let to_peer = AddressVector::new(0, peer.gid.address());
    pair.modify(&QueuePairAttributes {
        address: Some(to_peer),
        path_mtu: Some(PathMtu::Mtu512),
        destination: Some(peer.number),
        receive_psn: Some(peer.psn),
        max_destination_rd_atomic: Some(3),
        min_rnr_timer: Some(9),
        ..QueuePairAttributes::to_state(QueuePairState::Rtr)
    })
    .unwrap();
    let rtr = attributes(pair);
    assert_eq!(rtr.state, Some(QueuePairState::Rtr));
    assert_eq!((rtr.address, rtr.path_mtu), (Some(to_peer), Some(PathMtu::Mtu512)));
    assert_eq!((rtr.destination, rtr.receive_psn), (Some(peer.number), Some(peer.psn)));
    assert_eq!((rtr.max_destination_rd_atomic, rtr.min_rnr_timer), (Some(3), Some(9)));

    pair.modify(&QueuePairAttributes {
        timeout: Some(15),
        retry_count: Some(6),
        rnr_retry: Some(5),
        send_psn: Some(Psn::new(99)),
        max_rd_atomic: Some(2),
        ..QueuePairAttributes::to_state(QueuePairState::Rts)
    })
    .unwrap();
    let rts = attributes(pair);
    assert_eq!(rts.state, Some(QueuePairState::Rts));
    assert_eq!((rts.timeout, rts.retry_count, rts.rnr_retry), (Some(15), Some(6), Some(5)));
    assert_eq!((rts.send_psn, rts.max_rd_atomic), (Some(Psn::new(99)), Some(2)));
    assert_eq!(rts.path_mtu, Some(PathMtu::Mtu512), "what was set before stays");

    for state in [QueuePairState::Sqd, QueuePairState::Rts, QueuePairState::Error] {
        pair.modify(&QueuePairAttributes::to_state(state)).unwrap();
        assert_eq!(attributes(pair).state, Some(state));
    }
    pair.modify(&QueuePairAttributes::to_state(QueuePairState::Reset)).unwrap();
    let again = attributes(pair);
    assert_eq!((again.state, again.timeout), (Some(QueuePairState::Reset), None));
}

/// INIT to INIT, which changes rights.
trait InitializeAgain {
    fn initialize_again(&self, access: Access);
}

impl InitializeAgain for QueuePair {
    fn initialize_again(&self, access: Access) {
        let change = QueuePairAttributes { access: Some(access), ..QueuePairAttributes::default() };
        self.modify(&change).unwrap();
    }
}

#[test]
fn capacities_are_at_least_what_was_asked_for_and_are_told() {
    let end = End::new(&context(2));
    let asked = QueueCapacities {
        send_requests: 5,
        receive_requests: 9,
        send_segments: 3,
        receive_segments: 2,
        inline_bytes: 100,
    };
    let options = QueuePairOptions { capacities: asked, ..QueuePairOptions::new(&end.completions) };
    let pair = end.domain.create_queue_pair(&options).unwrap();
    let status = pair.query().unwrap();
    let is = status.capacities;
    assert!(is.send_requests >= 5 && is.receive_requests >= 9);
    assert!(is.send_segments >= 3 && is.receive_segments >= 2 && is.inline_bytes >= 100);
    assert_eq!((status.kind, status.signal_all), (QueuePairKind::Rc, false));
    pair.initialize(Access::NONE).unwrap();
    for id in 0..u64::from(is.receive_requests) {
        pair.post_receive(id, &[]).unwrap();
    }
    assert_eq!(
        pair.post_receive(0, &[]),
        Err(PostError::QueueFull { capacity: is.receive_requests })
    );
}

#[test]
fn a_refused_change_changes_nothing_and_names_the_attribute() {
    let (one, _other) = ends(3);
    let before = attributes(&one.pair);
    for (change, named) in [
        (QueuePairAttributes { timeout: Some(1), ..to(QueuePairState::Rts) }, "TIMEOUT"),
        (QueuePairAttributes { min_rnr_timer: Some(32), ..to(QueuePairState::Rts) }, "0 to 31"),
        (to(QueuePairState::Init), "RTS to INIT"),
        (
            QueuePairAttributes { path_migration_state: Some(0), ..to(QueuePairState::Rts) },
            "no path migration",
        ),
    ] {
        let error = one.pair.modify(&change).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
        assert_eq!(attributes(&one.pair), before);
    }
    let fresh = End::new(&context(3));
    let error = fresh.pair.modify(&to(QueuePairState::Rtr)).unwrap_err();
    let expected = ModifyError::NoTransition {
        kind: QueuePairKind::Rc,
        from: QueuePairState::Reset,
        to: QueuePairState::Rtr,
    };
    assert!(matches!(&error, VerbsError::Control(ControlError::Modify(e)) if *e == expected));
}

fn to(state: QueuePairState) -> QueuePairAttributes {
    QueuePairAttributes::to_state(state)
}

#[test]
fn what_cannot_be_connected_is_told() {
    let end = End::new(&context(4));
    let mut peer = end.pair.endpoint(0, Psn::new(0)).unwrap();
    assert!(end.pair.endpoint(7, Psn::new(0)).unwrap_err().to_string().contains("GID index 7"));
    peer.gid = std::net::IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]).into();
    let error = end.pair.connect(&peer, Psn::new(0), &ConnectOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("::1") && text.contains("127.88.2.4"), "{text}");
    assert_eq!(end.pair.state(), QueuePairState::Init, "from there it can be tried again");
    peer.gid = end.pair.endpoint(0, Psn::new(0)).unwrap().gid;
    end.pair.connect(&peer, Psn::new(0), &ConnectOptions::default()).unwrap();
}

#[test]
fn posting_is_refused_where_it_makes_no_sense() {
    let (one, other) = ends(5);
    let fresh = End::new(&context(5));
    let segment = fresh.memory.segment(0, 8);
    let error = fresh.pair.post(1, SendOperation::Send, segment).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a queue pair in state RESET takes no send requests; sends need RTS, receives INIT or later"
    );
    let error = fresh.pair.post_receive(1, &[segment]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a queue pair in state RESET takes no receive requests; sends need RTS, receives INIT or later"
    );

    let request = |payload| SendRequest {
        id: 1,
        operation: SendOperation::Read(other.memory.remote(0)),
        flags: SendFlags::SIGNALED,
        payload,
    };
    let error = one.pair.post_send(&request(Payload::Inline(&[0; 4]))).unwrap_err();
    assert_eq!(error, PostError::InlineTarget);
    let many = [one.memory.segment(0, 1); 9];
    let error = one.pair.post_send(&request(Payload::Segments(&many))).unwrap_err();
    assert!(matches!(error, PostError::TooManySegments { given: 9, .. }), "{error}");
    let huge = [one.memory.segment(0, 5 << 30)];
    let error = one.pair.post_send(&request(Payload::Segments(&huge))).unwrap_err();
    assert!(matches!(error, PostError::MessageTooLong(_)), "5 GiB are not 1 GiB: {error}");
    let long = vec![0; 5000];
    let send = SendRequest { operation: SendOperation::Send, ..request(Payload::Inline(&long)) };
    let error = one.pair.post_send(&send).unwrap_err();
    assert!(matches!(error, PostError::InlineTooLong { given: 5000, .. }), "{error}");

    // A list stops at the first that is refused.
    let good = SendRequest {
        operation: SendOperation::Write(other.memory.remote(0)),
        ..request(Payload::Segments(&[]))
    };
    let (queued, _) = one.pair.post_sends(&[good, good, send, good]).unwrap_err();
    assert_eq!(queued, 2);
    assert_eq!([one.good(), one.good()], [1, 1]);
    assert_eq!(one.completions.poll_one().unwrap(), None);
}

#[test]
fn every_operation_completes_as_what_it_is() {
    let (one, other) = ends(6);
    let remote = other.memory.remote(0);
    let segment = one.memory.segment(0, 8);
    other.memory.store_u64(0, 5).unwrap();
    for (operation, kind) in [
        (SendOperation::Read(remote), CompletionKind::Read),
        (SendOperation::FetchAdd { remote, add: 3 }, CompletionKind::FetchAdd),
        (SendOperation::CompareSwap { remote, compare: 8, swap: 13 }, CompletionKind::CompareSwap),
        (SendOperation::Write(other.memory.remote(8)), CompletionKind::Write),
    ] {
        one.pair.post(9, operation, segment).unwrap();
        let completion = one.completions.wait_one(LONG).unwrap();
        assert_eq!((completion.kind, completion.id), (kind, 9));
        assert_eq!(completion.status, CompletionStatus::Success);
        assert_eq!(completion.queue_pair, one.pair.number());
    }
    assert_eq!(other.memory.load_u64(0).unwrap(), 13);
    assert_eq!(other.memory.load_u64(8).unwrap(), 8, "what the compare and swap found");
}

#[test]
fn a_wrong_key_fails_at_the_peer_and_ends_both_queue_pairs() {
    let (one, other) = ends(7);
    let wrong = Remote { address: other.memory.address(), key: Rkey::new(0xdead_beef) };
    one.pair.post(3, SendOperation::Write(wrong), one.memory.segment(0, 100)).unwrap();
    let completion = one.completions.wait_one(LONG).unwrap();
    assert_eq!(completion.status, CompletionStatus::RemoteAccessError);
    assert_eq!(one.pair.state(), QueuePairState::Error);
    assert_eq!(attributes(&one.pair).state, Some(QueuePairState::Error));
    one.receive(4);
    let flushed = one.completions.wait_one(LONG).unwrap();
    assert_eq!((flushed.id, flushed.status), (4, CompletionStatus::WorkRequestFlushed));
}

/// A window that is bound to a reversed range must not become one that is bound to nothing.
#[test]
#[allow(clippy::reversed_empty_ranges, reason = "that is what is tried")]
fn a_window_is_not_bound_to_a_range_that_ends_before_it_starts() {
    let (one, _other) = ends(66);
    let region = one.domain.allocate(64, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let window = one.domain.allocate_window(WindowKind::Type1).unwrap();
    let key = window.key();
    let rights = Access::REMOTE_READ;
    let flags = SendFlags::SIGNALED;
    let bound = one.pair.bind_window(1, &window, &region, 8..4, rights, flags);
    match bound {
        Err(_) => assert_eq!(window.key(), key),
        Ok(_) => {
            let completion = one.completions.wait_one(LONG).unwrap();
            assert_eq!(completion.status, CompletionStatus::MemoryWindowBindError);
        }
    }
}

#[test]
fn every_limit_is_kept_and_told_and_given_back() {
    let limits = Limits {
        queue_pairs: 1,
        completion_queues: 1,
        domains: 1,
        regions: 1,
        ..Limits::default()
    };
    let context = open(&DeviceOptions { limits, ..options(8) });
    assert_eq!(context.limits().queue_pairs, 1);
    for _ in 0..3 {
        let end = End::new(&context);
        for (error, what) in [
            (context.allocate_domain().err(), "1 protection domains"),
            (context.create_completion_queue(1).err(), "1 completion queues"),
            (end.domain.allocate(1, Access::NONE).err(), "1 memory regions"),
            (end.domain.create_queue_pair(&small(&end)).err(), "1 queue pairs"),
        ] {
            let text = error.unwrap().to_string();
            assert!(text.contains(what) && text.contains("some first"), "{text}");
        }
    }
}

fn small(end: &End) -> QueuePairOptions<'_> {
    let capacities =
        QueueCapacities { send_requests: 4, receive_requests: 4, ..QueueCapacities::default() };
    QueuePairOptions { capacities, ..QueuePairOptions::new(&end.completions) }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let context = context(9);
    let end = End::new(&context);
    let text = context.create_completion_queue(0).unwrap_err().to_string();
    assert!(text.contains("0 completion queue entries") && text.contains("possible"), "{text}");
    let capacities = QueueCapacities { send_segments: 1000, ..QueueCapacities::default() };
    let large = QueuePairOptions { capacities, ..QueuePairOptions::new(&end.completions) };
    let text = end.domain.create_queue_pair(&large).unwrap_err().to_string();
    assert!(text.contains("1000 send segments"), "{text}");
    let text = end.domain.allocate(usize::MAX, Access::NONE).unwrap_err().to_string();
    assert!(text.contains("cannot be allocated"), "{text}");
    let text = end.domain.allocate(8, Access::REMOTE_WRITE).unwrap_err().to_string();
    assert!(text.contains("LOCAL_WRITE"), "{text}");
}

#[test]
fn a_work_request_takes_up_its_entry_until_its_completion_is_polled() {
    let (one, other) = ends(12);
    let full = |error| matches!(error, PostError::QueueFull { .. });
    let sends = one.pair.query().unwrap().capacities.send_requests;
    let receives = other.pair.query().unwrap().capacities.receive_requests;
    for id in 0..u64::from(receives) {
        other.receive(id);
    }
    let send = |id| one.pair.post(id, SendOperation::Send, one.memory.segment(0, 8));
    for id in 0..u64::from(sends) {
        send(id).unwrap();
    }
    // All are carried out, but nobody has polled.
    let until = |end: &End, count: u32| {
        while !format!("{:?}", end.completions).contains(&format!("waiting: {count}")) {
            std::thread::yield_now();
        }
    };
    until(&one, sends);
    until(&other, receives);
    assert!(send(1000).is_err_and(full));
    assert!(other.pair.post_receive(1000, &[]).is_err_and(full));
    assert_eq!((one.good(), other.good()), (0, 0));
    other.receive(1000);
    send(1000).unwrap();
    assert!(send(1001).is_err_and(full));
    assert!(other.pair.post_receive(1001, &[]).is_err_and(full));
    for id in (1..u64::from(sends)).chain([1000]) {
        assert_eq!(one.good(), id);
    }
    // RESET forgets work requests, not the completions that they have given.
    other.pair.modify(&to(QueuePairState::Reset)).unwrap();
    other.pair.initialize(Access::NONE).unwrap();
    assert!(other.pair.post_receive(2000, &[]).is_err_and(full));
    assert_eq!(other.good(), 1);
    other.pair.post_receive(2000, &[]).unwrap();
}

#[test]
fn things_of_two_devices_cannot_be_mixed() {
    let (one, other) = (End::new(&context(10)), End::new(&context(10)));
    let mixed = QueuePairOptions::new(&other.completions);
    let text = one.domain.create_queue_pair(&mixed).unwrap_err().to_string();
    assert_eq!(text, "there is no such completion queue on this device");
    // A key of another device is none here.
    connect_pair(&one.pair, &other.pair, &ConnectOptions::default()).unwrap();
    let foreign = other.memory.segment(0, 8);
    one.pair.post(1, SendOperation::Write(other.memory.remote(0)), foreign).unwrap();
    let completion = one.completions.wait_one(LONG).unwrap();
    assert_eq!(completion.status, CompletionStatus::LocalProtectionError);
}

#[test]
fn memory_is_the_applications_again_after_deregistration() {
    let (one, other) = ends(11);
    one.memory.write(0, b"stays").unwrap();
    let End { memory, .. } = one;
    let remote = memory.remote(0);
    let memory = memory.deregister();
    assert_eq!(memory.to_vec(0, 5).unwrap(), b"stays");
    let target = other.memory.segment(0, 5);
    other.pair.post(1, SendOperation::Read(remote), target).unwrap();
    let completion = other.completions.wait_one(LONG).unwrap();
    assert_eq!(completion.status, CompletionStatus::RemoteAccessError, "its key is dead");
    assert!(memory.read(MEMORY, &mut [0]).unwrap_err().to_string().contains("65536 bytes"));
}
