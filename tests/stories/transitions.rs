//! Every transition of every kind of queue pair against `tests/data/transitions.csv`, which was
//! written from the specification's table (Linux `qp_state_table`) and not from the code.

use std::collections::BTreeMap;

use uroce::engine::{ControlError, ModifyError, XrcOpen};
use uroce::queue::Attribute::{self, AlternatePath, CurrentState, PathMigrationState};
use uroce::queue::QueuePairState::{self, Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
use uroce::queue::{
    Access, AddressVector, Datagram, PathMtu, QueuePairAttributes, QueuePairKind, SendFlags,
    SendOperation, Sge,
};
use uroce::wire::{Lkey, Psn, QKey, Qpn};

use crate::harness::{Event, PEER, QKEY, SOURCE, Setup, Story};

/// The kinds that the table has.
const KINDS: [(&str, QueuePairKind); 5] = [
    ("rc", QueuePairKind::Rc),
    ("uc", QueuePairKind::Uc),
    ("ud", QueuePairKind::Ud),
    ("xrc_ini", QueuePairKind::XrcInitiator),
    ("xrc_tgt", QueuePairKind::XrcTarget),
];

type Needs = (Vec<Attribute>, Vec<Attribute>);

fn attributes_named(names: &str) -> Vec<Attribute> {
    let named = |name: &str| {
        let mut all = Attribute::ALL.into_iter();
        all.find(|attribute| attribute.to_string() == name).expect("an attribute's name")
    };
    names.split_whitespace().map(named).collect()
}

fn state_named(name: &str) -> QueuePairState {
    let mut all = QueuePairState::ALL.into_iter();
    all.find(|state| state.to_string() == name).expect("a state's name")
}

/// The table's rows of a kind.
fn table(kind: &str) -> BTreeMap<(QueuePairState, QueuePairState), Needs> {
    let lines = include_str!("../data/transitions.csv").lines().skip(1);
    let rows = lines.map(|line| line.split(',').collect::<Vec<_>>());
    let mut table = BTreeMap::new();
    for row in rows.filter(|row| row[0] == kind) {
        let needs = (attributes_named(row[3]), attributes_named(row[4]));
        let twice = table.insert((state_named(row[1]), state_named(row[2])), needs);
        assert!(twice.is_none(), "{row:?} stands there twice");
    }
    table
}

fn states_of(kind: QueuePairKind) -> Vec<QueuePairState> {
    let has_sqe = [QueuePairKind::Uc, QueuePairKind::Ud].contains(&kind);
    QueuePairState::ALL.into_iter().filter(|state| *state != Sqe || has_sqe).collect()
}

fn in_state(kind: QueuePairKind, state: QueuePairState) -> Story {
    let through = if state == Sqe { Rts } else { state };
    let mut s = match kind {
        QueuePairKind::XrcInitiator | QueuePairKind::XrcTarget => extended(kind, through),
        _ => Story::new(Setup { kind, state: through, ..Setup::default() }),
    };
    if state == Sqe {
        fail_a_send(&mut s);
    }
    assert_eq!(s.state(), state);
    s
}

/// An end of an extended reliable connection.
fn extended(kind: QueuePairKind, state: QueuePairState) -> Story {
    let mut s = Story::new(Setup { pairs: 0, state, ..Setup::default() });
    if kind == QueuePairKind::XrcTarget {
        let domain = s.engine.open_xrc_domain(&XrcOpen::default()).unwrap();
        let pair = s.engine.create_xrc_target(domain).unwrap();
        s.adopt(pair);
        expect_last_receive(&mut s, state);
    } else {
        s.add_pair_of(kind);
    }
    s
}

/// Who has only receives of others tells in the error state that it takes no more of them.
fn expect_last_receive(s: &mut Story, state: QueuePairState) {
    if s.pairs[0].kind() == QueuePairKind::XrcTarget && state == Error {
        s.expect_event(Event::LastReceive(0));
    }
}

/// The send queue fails by a wrong key.
fn fail_a_send(s: &mut Story) {
    let operation = match s.setup.kind {
        QueuePairKind::Ud => {
            let vector = AddressVector::new(0, s.setup.peer_address(0));
            let address = s.engine.create_address_handle(s.domain, &vector).unwrap();
            let to = Datagram { address, queue_pair: Qpn::new(PEER), qkey: QKEY };
            SendOperation::SendTo { to, immediate: None }
        }
        _ => SendOperation::Send,
    };
    let wrong = Sge { key: Lkey::new(1), ..s.sge(SOURCE, 8) };
    s.post(1, operation, SendFlags::SIGNALED, &[wrong]);
    s.expect_sent(1, uroce::queue::CompletionStatus::LocalProtectionError);
}

/// The attributes with possible values.
fn given(s: &Story, to: QueuePairState, attributes: &[Attribute]) -> QueuePairAttributes {
    let mut all = QueuePairAttributes::to_state(to);
    let address = AddressVector::new(0, s.setup.peer_address(0));
    for attribute in attributes {
        match attribute {
            Attribute::CurrentState => all.current_state = Some(s.state()),
            Attribute::DrainNotification => all.drain_notification = Some(true),
            Attribute::Access => all.access = Some(Access::ALL),
            Attribute::PkeyIndex => all.pkey_index = Some(0),
            Attribute::Port => all.port = Some(1),
            Attribute::Qkey => all.qkey = Some(QKey::new(1)),
            Attribute::AddressVector => all.address = Some(address),
            Attribute::PathMtu => all.path_mtu = Some(PathMtu::Mtu1024),
            Attribute::Timeout => all.timeout = Some(14),
            Attribute::RetryCount => all.retry_count = Some(3),
            Attribute::RnrRetry => all.rnr_retry = Some(3),
            Attribute::ReceivePsn => all.receive_psn = Some(Psn::new(5)),
            Attribute::MaxRdAtomic => all.max_rd_atomic = Some(1),
            Attribute::AlternatePath => all.alternate_path = Some(address),
            Attribute::MinRnrTimer => all.min_rnr_timer = Some(12),
            Attribute::SendPsn => all.send_psn = Some(Psn::new(6)),
            Attribute::MaxDestinationRdAtomic => all.max_destination_rd_atomic = Some(1),
            Attribute::PathMigrationState => all.path_migration_state = Some(0),
            Attribute::Destination => all.destination = Some(Qpn::new(PEER)),
        }
    }
    all
}

/// The modification is refused, and nothing has changed.
fn refused(
    kind: QueuePairKind,
    from: QueuePairState,
    to: QueuePairState,
    attributes: &[Attribute],
) -> ModifyError {
    let mut s = in_state(kind, from);
    let before = s.engine.query_queue_pair(s.number()).unwrap();
    let given = given(&s, to, attributes);
    let error = match s.modify(&given) {
        Err(ControlError::Modify(error)) => error,
        other => panic!("{kind} {from} to {to} with {attributes:?}: {other:?}"),
    };
    assert_eq!(s.engine.query_queue_pair(s.number()).unwrap(), before);
    s.expect_nothing();
    error
}

fn accepted(
    kind: QueuePairKind,
    (from, to): (QueuePairState, QueuePairState),
    attributes: &[Attribute],
) {
    let mut s = in_state(kind, from);
    let given = given(&s, to, attributes);
    let outcome = s.modify(&given);
    assert_eq!(outcome, Ok(()), "{kind} {from} to {to} with {attributes:?}");
    assert_eq!(s.state(), to);
    if attributes.contains(&Attribute::DrainNotification) {
        s.expect_event(Event::Drained(0));
    }
    if from != Error {
        expect_last_receive(&mut s, to);
    }
    s.expect_nothing();
}

fn is_migration(attribute: &Attribute) -> bool {
    [AlternatePath, PathMigrationState].contains(attribute)
}

#[test]
fn the_table_and_the_list_of_kinds_name_the_same_kinds() {
    let mut named: Vec<&str> = include_str!("../data/transitions.csv")
        .lines()
        .skip(1)
        .map(|line| line.split(',').next().unwrap())
        .collect();
    named.dedup();
    assert_eq!(named, KINDS.map(|(name, _)| name));
}

#[test]
fn transitions_that_the_table_lacks_do_not_exist_whatever_is_given() {
    let everything: Vec<Attribute> = Attribute::ALL
        .into_iter()
        .filter(|attribute| !is_migration(attribute) && *attribute != CurrentState)
        .collect();
    for (name, kind) in KINDS {
        let table = table(name);
        for from in states_of(kind) {
            for to in QueuePairState::ALL.into_iter().filter(|to| !table.contains_key(&(from, *to)))
            {
                for attributes in [&[][..], &everything] {
                    let error = refused(kind, from, to, attributes);
                    assert_eq!(error, ModifyError::NoTransition { kind, from, to });
                }
            }
        }
    }
}

#[test]
fn each_transition_takes_what_the_table_requires_with_each_option_and_with_all() {
    for (name, kind) in KINDS {
        for ((from, to), (required, optional)) in table(name) {
            accepted(kind, (from, to), &required);
            let possible: Vec<_> = optional.into_iter().filter(|one| !is_migration(one)).collect();
            for option in &possible {
                accepted(kind, (from, to), &[&required[..], &[*option]].concat());
            }
            accepted(kind, (from, to), &[required, possible].concat());
        }
    }
}

#[test]
fn each_attribute_that_the_table_requires_is_missed_by_name() {
    for (name, kind) in KINDS {
        for ((from, to), (required, _)) in table(name) {
            for missing in &required {
                let others: Vec<_> =
                    required.iter().copied().filter(|one| one != missing).collect();
                let error = refused(kind, from, to, &others);
                let is_named = matches!(error, ModifyError::Missing { attribute, .. } if attribute == *missing);
                assert!(is_named, "{kind} {from} to {to} without {missing}: {error}");
            }
        }
    }
}

#[test]
fn each_attribute_that_the_table_does_not_name_is_refused_by_name() {
    for (name, kind) in KINDS {
        for ((from, to), (required, optional)) in table(name) {
            let named = |one: &Attribute| required.contains(one) || optional.contains(one);
            // The current state may be named wherever it can be known.
            let known = [Rtr, Rts, Sqd, Sqe].contains(&from);
            let surplus = Attribute::ALL
                .into_iter()
                .filter(|one| !(named(one) || known && *one == CurrentState));
            for attribute in surplus {
                let error = refused(kind, from, to, &[&required[..], &[attribute]].concat());
                let expected = match error {
                    ModifyError::NoPathMigration(one) => is_migration(&one) && one == attribute,
                    ModifyError::NotAllowed { attribute: one, .. } => one == attribute,
                    _ => false,
                };
                assert!(expected, "{kind} {from} to {to} with {attribute}: {error}");
            }
        }
    }
}

#[test]
fn path_migration_is_refused_with_its_reason_even_where_the_table_has_it() {
    for (name, kind) in KINDS {
        for ((from, to), (required, optional)) in table(name) {
            for migration in optional.iter().copied().filter(is_migration) {
                let error = refused(kind, from, to, &[&required[..], &[migration]].concat());
                assert_eq!(error, ModifyError::NoPathMigration(migration));
            }
        }
    }
}

#[test]
fn what_is_given_without_a_state_stays_in_the_state() {
    for (name, kind) in KINDS {
        let table = table(name);
        for state in states_of(kind).into_iter().filter(|state| ![Reset, Error].contains(state)) {
            let mut s = in_state(kind, state);
            let access = kind != QueuePairKind::Ud && [Init, Sqd].contains(&state);
            let attributes = QueuePairAttributes {
                access: access.then_some(Access::NONE),
                ..QueuePairAttributes::default()
            };
            let expected = table.contains_key(&(state, state));
            assert_eq!(s.modify(&attributes).is_ok(), expected, "{kind} {state}");
            assert_eq!(s.state(), state);
        }
    }
}
