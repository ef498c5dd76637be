//! Every transition through `modify`: what it needs, what it takes, which values are possible.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use uroce::engine::{
    ControlError, Counter, Engine, EngineOptions, IdentificationRule, Limits, ModifyError,
    PortCapabilities, QueuePairOptions, SourcePorts,
};
use uroce::queue::Attribute::{self, AlternatePath, CurrentState, PathMigrationState};
use uroce::queue::QueuePairState::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
use uroce::queue::{
    Access, AddressVector, PathMtu, QueueCapacities, QueuePairAttributes, QueuePairKind,
    QueuePairState,
};
use uroce::time::Instant;
use uroce::wire::{Psn, QKey, Qpn};

use crate::harness::{
    Event, SERVED, SOURCE, Setup, Story, ack, ours, peer_reth, story, theirs, write_first,
    write_last, write_only,
};

/// The states that an RC queue pair can be in.
const STATES: [QueuePairState; 6] = [Reset, Init, Rtr, Rts, Sqd, Error];

/// What a transition of an RC queue pair needs and takes beside that (Linux `qp_state_table`);
/// nothing if there is no such transition.
fn table(
    from: QueuePairState,
    to: QueuePairState,
) -> Option<(&'static [Attribute], &'static [Attribute])> {
    use Attribute::*;
    Some(match (from, to) {
        (_, Reset) => (&[], &[]),
        (Reset, Error) => return None,
        (_, Error) => (&[], &[]),
        (Reset, Init) => (&[PkeyIndex, Port, Access], &[]),
        (Init, Init) => (&[], &[PkeyIndex, Port, Access]),
        (Init, Rtr) => (
            &[AddressVector, PathMtu, Destination, ReceivePsn, MaxDestinationRdAtomic, MinRnrTimer],
            &[Access, PkeyIndex],
        ),
        (Rtr, Rts) => (
            &[Timeout, RetryCount, RnrRetry, SendPsn, MaxRdAtomic],
            &[CurrentState, Access, MinRnrTimer],
        ),
        (Rts | Sqd, Rts) => (&[], &[CurrentState, Access, MinRnrTimer]),
        (Rts, Sqd) => (&[], &[DrainNotification]),
        (Sqd, Sqd) => (
            &[],
            &[
                Port,
                AddressVector,
                Timeout,
                RetryCount,
                RnrRetry,
                MaxRdAtomic,
                MaxDestinationRdAtomic,
                Access,
                PkeyIndex,
                MinRnrTimer,
            ],
        ),
        _ => return None,
    })
}

/// Gives an attribute a possible value.
fn give(s: &Story, attributes: &mut QueuePairAttributes, attribute: Attribute) {
    let address = AddressVector::new(0, s.setup.peer_address(0));
    match attribute {
        Attribute::CurrentState => attributes.current_state = Some(s.state()),
        Attribute::DrainNotification => attributes.drain_notification = Some(true),
        Attribute::Access => attributes.access = Some(Access::ALL),
        Attribute::PkeyIndex => attributes.pkey_index = Some(0),
        Attribute::Port => attributes.port = Some(1),
        Attribute::Qkey => attributes.qkey = Some(QKey::new(1)),
        Attribute::AddressVector => attributes.address = Some(address),
        Attribute::PathMtu => attributes.path_mtu = Some(PathMtu::Mtu1024),
        Attribute::Timeout => attributes.timeout = Some(14),
        Attribute::RetryCount => attributes.retry_count = Some(3),
        Attribute::RnrRetry => attributes.rnr_retry = Some(3),
        Attribute::ReceivePsn => attributes.receive_psn = Some(Psn::new(5)),
        Attribute::MaxRdAtomic => attributes.max_rd_atomic = Some(1),
        Attribute::AlternatePath => attributes.alternate_path = Some(address),
        Attribute::MinRnrTimer => attributes.min_rnr_timer = Some(12),
        Attribute::SendPsn => attributes.send_psn = Some(Psn::new(6)),
        Attribute::MaxDestinationRdAtomic => attributes.max_destination_rd_atomic = Some(1),
        Attribute::PathMigrationState => attributes.path_migration_state = Some(0),
        Attribute::Destination => attributes.destination = Some(Qpn::new(0xb00)),
    }
}

fn attributes(s: &Story, to: QueuePairState, given: &[Attribute]) -> QueuePairAttributes {
    let mut attributes = QueuePairAttributes::to_state(to);
    for attribute in given {
        give(s, &mut attributes, *attribute);
    }
    attributes
}

fn in_state(state: QueuePairState) -> Story {
    Story::new(Setup { state, ..Setup::default() })
}

/// The modification is refused with a sentence that names `named`, and nothing has changed.
fn refused(s: &mut Story, attributes: &QueuePairAttributes, named: &str) -> ModifyError {
    let before = s.engine.query_queue_pair(s.number()).unwrap();
    let error = match s.modify(attributes) {
        Err(ControlError::Modify(error)) => error,
        other => panic!("{attributes:?}: {other:?}"),
    };
    assert!(error.to_string().contains(named), "{error} does not name {named}");
    assert_eq!(s.engine.query_queue_pair(s.number()).unwrap(), before);
    s.expect_nothing();
    error
}

#[test]
fn transitions_that_are_not_in_the_table_are_refused_by_name() {
    for from in STATES {
        for to in [Reset, Init, Rtr, Rts, Sqd, Sqe, Error] {
            if table(from, to).is_some() {
                continue;
            }
            let mut s = in_state(from);
            let all: Vec<Attribute> = Attribute::ALL
                .into_iter()
                .filter(|a| ![AlternatePath, PathMigrationState, CurrentState].contains(a))
                .collect();
            for given in [&[][..], &all[..]] {
                let attributes = attributes(&s, to, given);
                let error = refused(&mut s, &attributes, &format!("from {from} to {to}"));
                assert!(matches!(error, ModifyError::NoTransition { .. }), "{from} {to}: {error}");
            }
        }
    }
}

#[test]
fn each_transition_works_with_what_it_needs_and_with_each_option() {
    for from in STATES {
        for to in STATES {
            let Some((required, optional)) = table(from, to) else { continue };
            for extra in std::iter::once(None).chain(optional.iter().map(Some)) {
                let mut s = in_state(from);
                let given: Vec<_> = required.iter().chain(extra).copied().collect();
                let attributes = attributes(&s, to, &given);
                s.modify(&attributes).unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
                assert_eq!(s.state(), to);
                if extra == Some(&Attribute::DrainNotification) {
                    s.expect_event(Event::Drained(0));
                }
                s.expect_nothing();
            }
        }
    }
}

#[test]
fn each_missing_attribute_is_named_and_nothing_changes() {
    for from in STATES {
        for to in STATES {
            let Some((required, _)) = table(from, to) else { continue };
            for missing in required {
                let mut s = in_state(from);
                let given: Vec<_> = required.iter().filter(|a| *a != missing).copied().collect();
                let attributes = attributes(&s, to, &given);
                let named = format!("attribute {missing} is missing");
                let error = refused(&mut s, &attributes, &named);
                assert!(
                    matches!(error, ModifyError::Missing { attribute, .. } if attribute == *missing)
                );
            }
        }
    }
}

#[test]
fn each_attribute_that_a_transition_does_not_take_is_named_and_nothing_changes() {
    for from in STATES {
        for to in STATES {
            let Some((required, optional)) = table(from, to) else { continue };
            let surplus = Attribute::ALL
                .into_iter()
                .filter(|attribute| !required.contains(attribute) && !optional.contains(attribute));
            for attribute in surplus {
                let mut s = in_state(from);
                // The current state may be named wherever it can be known for sure.
                if attribute == CurrentState && [Rtr, Rts, Sqd].contains(&from) {
                    continue;
                }
                let given: Vec<_> = required.iter().copied().chain([attribute]).collect();
                let attributes = attributes(&s, to, &given);
                let error =
                    refused(&mut s, &attributes, &format!("attribute {attribute} cannot be set"));
                let migration = [AlternatePath, PathMigrationState].contains(&attribute);
                assert_eq!(matches!(error, ModifyError::NoPathMigration(_)), migration);
            }
        }
    }
}

#[test]
fn alternate_paths_are_refused_with_the_reason_even_where_the_table_has_them() {
    for attribute in [AlternatePath, PathMigrationState] {
        let mut s = in_state(Rts);
        let attributes = attributes(&s, Rts, &[attribute]);
        refused(&mut s, &attributes, "RoCE has no alternate paths and no path migration");
    }
}

#[test]
fn a_wrong_current_state_is_refused() {
    for state in [Rtr, Rts, Sqd] {
        for claimed in [Init, Rtr, Rts, Sqd].into_iter().filter(|claimed| *claimed != state) {
            let mut s = in_state(state);
            let to = if state == Rtr { Error } else { Rts };
            let attributes = QueuePairAttributes {
                current_state: Some(claimed),
                ..QueuePairAttributes::to_state(to)
            };
            let named = format!("CUR_STATE says {claimed}, but the queue pair is in {state}");
            refused(&mut s, &attributes, &named);
        }
    }
}

#[test]
fn values_out_of_range_are_named_and_nothing_changes() {
    let mut s = in_state(Sqd);
    let to = QueuePairAttributes::to_state(Sqd);
    let cases = [
        (QueuePairAttributes { timeout: Some(32), ..to }, "TIMEOUT is 32; it must be 0 to 31"),
        (QueuePairAttributes { retry_count: Some(8), ..to }, "RETRY_CNT is 8; it must be 0 to 7"),
        (QueuePairAttributes { rnr_retry: Some(8), ..to }, "RNR_RETRY is 8; it must be 0 to 7"),
        (QueuePairAttributes { rnr_retry: Some(255), ..to }, "RNR_RETRY is 255"),
        (QueuePairAttributes { min_rnr_timer: Some(32), ..to }, "MIN_RNR_TIMER is 32"),
        (QueuePairAttributes { port: Some(0), ..to }, "PORT is 0; it must be 1"),
        (QueuePairAttributes { port: Some(2), ..to }, "PORT is 2; it must be 1"),
        (QueuePairAttributes { pkey_index: Some(1), ..to }, "PKEY_INDEX is 1; it must be 0"),
        (QueuePairAttributes { max_rd_atomic: Some(129), ..to }, "MAX_QP_RD_ATOMIC is 129"),
        (
            QueuePairAttributes { max_destination_rd_atomic: Some(129), ..to },
            "MAX_DEST_RD_ATOMIC is 129, but the device's limit is 128",
        ),
    ];
    for (attributes, named) in cases {
        // With a good value beside it, which must not be taken over either.
        let attributes = QueuePairAttributes { access: Some(Access::NONE), ..attributes };
        refused(&mut s, &attributes, named);
    }
}

#[test]
fn the_largest_possible_values_are_taken() {
    let mut s = in_state(Sqd);
    let attributes = QueuePairAttributes {
        timeout: Some(31),
        retry_count: Some(7),
        rnr_retry: Some(7),
        min_rnr_timer: Some(31),
        max_rd_atomic: Some(128),
        max_destination_rd_atomic: Some(128),
        ..QueuePairAttributes::to_state(Sqd)
    };
    s.modify(&attributes).unwrap();
    let now = s.engine.query_queue_pair(s.number()).unwrap().attributes;
    assert_eq!((now.timeout, now.retry_count, now.rnr_retry), (Some(31), Some(7), Some(7)));
    assert_eq!((now.max_rd_atomic, now.max_destination_rd_atomic), (Some(128), Some(128)));
}

#[test]
fn the_devices_own_limit_of_reads_counts() {
    let limits = Limits { rd_atomic: 16, ..Limits::default() };
    let mut s = Story::new(Setup { state: Sqd, limits, ..Setup::default() });
    let to = QueuePairAttributes::to_state(Sqd);
    let attributes = QueuePairAttributes { max_rd_atomic: Some(17), ..to };
    refused(&mut s, &attributes, "MAX_QP_RD_ATOMIC is 17, but the device's limit is 16");
    s.modify(&QueuePairAttributes { max_rd_atomic: Some(16), ..to }).unwrap();
}

/// RTR with another way to the peer.
fn to_rtr(s: &Story, address: AddressVector, mtu: PathMtu) -> QueuePairAttributes {
    QueuePairAttributes { address: Some(address), path_mtu: Some(mtu), ..s.attributes(Rtr) }
}

#[test]
fn a_gid_that_does_not_exist_is_refused() {
    let mut s = in_state(Init);
    let peer = s.setup.peer_address(0);
    for index in [1, 2, u16::MAX] {
        let attributes = to_rtr(&s, AddressVector::new(index, peer), PathMtu::Mtu1024);
        refused(&mut s, &attributes, &format!("GID index {index} does not exist"));
    }
}

#[test]
fn a_device_without_addresses_says_so() {
    let capabilities = PortCapabilities {
        mtu: 1500,
        max_segments: 1,
        max_burst_bytes: 1500,
        identification: IdentificationRule::Zero,
        source_ports: SourcePorts::Any,
    };
    let mut engine = Engine::new(EngineOptions::new(1, vec![]), &capabilities);
    let domain = engine.allocate_domain().unwrap();
    let completions = engine.create_completion_queue(1).unwrap();
    let options = QueuePairOptions {
        kind: QueuePairKind::Rc,
        domain,
        send_completions: std::sync::Arc::clone(&completions),
        receive_completions: completions,
        capacities: QueueCapacities::default(),
        signal_all: false,
    };
    let number = engine.create_queue_pair(&options).unwrap().number();
    let setup = Setup::default();
    engine.modify_queue_pair(Instant::ZERO, number, &setup.attributes(Init, 0)).unwrap();
    let error = engine.modify_queue_pair(Instant::ZERO, number, &setup.attributes(Rtr, 0));
    let sentence = error.unwrap_err().to_string();
    assert!(sentence.contains("GID index 0 does not exist: the device has"), "{sentence}");
}

#[test]
fn addresses_of_two_families_are_refused() {
    let mut s = in_state(Init);
    let peer: IpAddr = Ipv6Addr::LOCALHOST.into();
    let attributes = to_rtr(&s, AddressVector::new(0, peer), PathMtu::Mtu1024);
    refused(&mut s, &attributes, "10.0.0.1, which cannot reach ::1");
    let mut s = Story::new(Setup { state: Init, ipv6: true, ..Setup::default() });
    let peer: IpAddr = Ipv4Addr::LOCALHOST.into();
    let attributes = to_rtr(&s, AddressVector::new(0, peer), PathMtu::Mtu1024);
    refused(&mut s, &attributes, "fd00::1, which cannot reach 127.0.0.1");
}

#[test]
fn a_path_mtu_must_fit_the_interface_with_all_headers() {
    // IPv6, UDP, BTH, XRCETH, RETH, immediate, ICRC: 88 bytes at most.
    for (link_mtu, largest) in [(1500, 1024), (1112, 1024), (1111, 512), (4184, 4096), (4183, 2048)]
    {
        for mtu in PathMtu::ALL {
            let mut s = Story::new(Setup { state: Init, link_mtu, ..Setup::default() });
            let address = AddressVector::new(0, s.setup.peer_address(0));
            let attributes = to_rtr(&s, address, mtu);
            if mtu.bytes() <= largest {
                s.modify(&attributes).unwrap();
            } else {
                let bytes = mtu.bytes();
                let named = format!(
                    "path MTU {bytes} does not fit the interface's MTU of {link_mtu}: at most \
                     {largest} does"
                );
                refused(&mut s, &attributes, &named);
            }
        }
    }
}

#[test]
fn the_first_packet_in_rtr_is_told_once() {
    let setup = Setup { state: Rtr, ..Setup::default() };
    setup.tell(|s| {
        let reth = s.reth(SERVED, 4);
        s.deliver(write_only(0, reth, &theirs(0, 4)));
        s.expect_event(Event::Established(0));
        s.deliver(write_only(1, reth, &theirs(0, 4)));
        s.expect_nothing();
    });
    story(|s| {
        let reth = s.reth(SERVED, 4);
        s.deliver(write_only(0, reth, &theirs(0, 4)));
        s.expect_nothing();
    });
}

#[test]
fn in_sqd_started_messages_finish_and_then_it_is_told_once_if_asked_for() {
    for asked in [Some(true), Some(false), None] {
        story(|s| {
            s.post_write(1, 2048);
            let reth = peer_reth(0, 2048);
            let data = ours(SOURCE, 2048);
            let frames =
                [write_first(0, reth, &data[..1024]), write_last(1, &data[1024..]).asking()];
            s.expect_all(frames.clone());
            let attributes = QueuePairAttributes {
                drain_notification: asked,
                ..QueuePairAttributes::to_state(Sqd)
            };
            s.modify(&attributes).unwrap();
            s.post_write(2, 8);
            s.expect_nothing();
            let draining = |s: &Story| s.engine.query_queue_pair(s.number()).unwrap().is_draining;
            assert!(draining(s));
            s.deliver(crate::harness::sequence_nak(0, 0));
            s.expect_all(frames);
            s.deliver(ack(1, 1));
            s.expect_sent(1, uroce::queue::CompletionStatus::Success);
            if asked == Some(true) {
                s.expect_event(Event::Drained(0));
            }
            s.expect_nothing();
            assert!(!draining(s));
            // Requests of the peer are served all the same.
            s.deliver(write_only(0, s.reth(SERVED, 4), &theirs(0, 4)).asking());
            s.expect(ack(0, 1));
            s.modify(&QueuePairAttributes::to_state(Rts)).unwrap();
            s.expect(write_only(2, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
            s.deliver(ack(2, 2));
            s.expect_sent(2, uroce::queue::CompletionStatus::Success);
        });
    }
}

#[test]
fn an_idle_queue_pair_is_drained_at_once() {
    story(|s| {
        let attributes = QueuePairAttributes {
            drain_notification: Some(true),
            ..QueuePairAttributes::to_state(Sqd)
        };
        s.modify(&attributes).unwrap();
        s.expect_event(Event::Drained(0));
    });
}

#[test]
fn attributes_changed_in_sqd_count_from_then_on() {
    let setup = Setup { rnr_retry: 0, ..Setup::default() };
    setup.tell(|s| {
        s.modify(&QueuePairAttributes::to_state(Sqd)).unwrap();
        let attributes = QueuePairAttributes {
            min_rnr_timer: Some(3),
            access: Some(Access::LOCAL_WRITE),
            ..QueuePairAttributes::to_state(Sqd)
        };
        s.modify(&attributes).unwrap();
        s.modify(&QueuePairAttributes::to_state(Rts)).unwrap();
        s.deliver(crate::harness::send_only(0, &[]));
        s.expect(crate::harness::rnr_nak(0, 0, 3));
        s.deliver(write_only(0, s.reth(SERVED, 4), &theirs(0, 4)));
        s.expect(crate::harness::nak(0, 0, uroce::wire::NakCode::InvalidRequest));
        s.expect_event(Event::RequestError(0));
        assert_eq!(s.count(Counter::SentErrorNak), 1);
    });
}

#[test]
fn retries_changed_in_sqd_count_from_the_first_loss_on() {
    for (before, after) in [(0, 2), (2, 0)] {
        let setup =
            Setup { retry_count: before, rnr_retry: before, timeout: 8, ..Setup::default() };
        setup.tell(|s| {
            s.modify(&QueuePairAttributes::to_state(Sqd)).unwrap();
            let attributes = QueuePairAttributes {
                retry_count: Some(after),
                rnr_retry: Some(after),
                ..QueuePairAttributes::to_state(Sqd)
            };
            s.modify(&attributes).unwrap();
            s.modify(&QueuePairAttributes::to_state(Rts)).unwrap();
            s.post_write(1, 8);
            let timeouts = u64::from(after) + 1;
            s.pass_until(uroce::time::Instant::from_nanos(timeouts * (4_096 << 8)));
            assert_eq!(s.count(Counter::LocalAckTimeout), timeouts);
            s.expect_sent(1, uroce::queue::CompletionStatus::TransportRetryExceeded);
            let frames = std::iter::from_fn(|| s.next_sent()).count() as u64;
            assert_eq!(frames, s.count(Counter::SentPackets));
        });
    }
}

#[test]
fn the_address_can_change_in_sqd_and_what_is_out_goes_there_again() {
    story(|s| {
        s.post_write(1, 8);
        let frame = write_only(0, peer_reth(0, 8), &ours(SOURCE, 8)).asking();
        s.expect(frame.clone());
        s.modify(&QueuePairAttributes::to_state(Sqd)).unwrap();
        let address =
            AddressVector { traffic_class: 0x20, ..AddressVector::new(0, s.setup.peer_address(0)) };
        let attributes =
            QueuePairAttributes { address: Some(address), ..QueuePairAttributes::to_state(Sqd) };
        s.modify(&attributes).unwrap();
        s.expect(frame);
        s.deliver(ack(0, 1));
        s.expect_sent(1, uroce::queue::CompletionStatus::Success);
    });
}

#[test]
fn query_tells_what_was_set_and_the_state() {
    let s = in_state(Rts);
    let status = s.engine.query_queue_pair(s.number()).unwrap();
    let expected = QueuePairAttributes {
        state: Some(Rts),
        current_state: Some(Rts),
        drain_notification: None,
        qkey: None,
        alternate_path: None,
        path_migration_state: None,
        ..merged(&s)
    };
    assert_eq!(status.attributes, expected);
    assert_eq!(
        (status.kind, status.domain, status.signal_all),
        (QueuePairKind::Rc, s.domain, true)
    );
}

/// The attributes of all three transitions together.
fn merged(s: &Story) -> QueuePairAttributes {
    let (init, rtr, rts) = (s.attributes(Init), s.attributes(Rtr), s.attributes(Rts));
    QueuePairAttributes {
        access: init.access,
        pkey_index: init.pkey_index,
        port: init.port,
        timeout: rts.timeout,
        retry_count: rts.retry_count,
        rnr_retry: rts.rnr_retry,
        max_rd_atomic: rts.max_rd_atomic,
        send_psn: rts.send_psn,
        ..rtr
    }
}
