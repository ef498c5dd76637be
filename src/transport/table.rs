//! The state table of queue pairs: which transitions exist, and what each needs and allows.
//!
//! ```text
//!   RESET ─▶ INIT ─▶ RTR ─▶ RTS ◀─▶ SQD        any ─▶ RESET
//!            ↺               ↺      ↺          any but RESET ─▶ ERR
//!                            ▲
//!                           SQE (UC and UD: the send queue failed)
//! ```

use std::fmt;

use crate::queue::{Attribute, QueuePairAttributes, QueuePairKind, QueuePairState};

use Attribute::{
    Access, AddressVector, AlternatePath, CurrentState, Destination, DrainNotification,
    MaxDestinationRdAtomic, MaxRdAtomic, MinRnrTimer, PathMigrationState, PathMtu, PkeyIndex, Port,
    Qkey, ReceivePsn, RetryCount, RnrRetry, SendPsn, Timeout,
};
use QueuePairKind::{Rc, Uc, Ud, XrcInitiator, XrcTarget};
use QueuePairState::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};

/// What a transition needs and what it allows beside that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    required: &'static [Attribute],
    optional: &'static [Attribute],
}

/// Why attributes were refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// There is no such transition.
    #[error("{kind} queue pairs have no transition from {from} to {to}")]
    NoTransition {
        /// Transport.
        kind: QueuePairKind,
        /// State now.
        from: QueuePairState,
        /// State asked for.
        to: QueuePairState,
    },
    /// The transition needs an attribute that was not given.
    #[error("attribute {attribute} is missing: {from} to {to} needs {required}")]
    Missing {
        /// The first one missing.
        attribute: Attribute,
        /// State now.
        from: QueuePairState,
        /// State asked for.
        to: QueuePairState,
        /// All that it needs.
        required: AttributeList,
    },
    /// The transition does not take an attribute that was given.
    #[error("attribute {attribute} cannot be set from {from} to {to}; allowed are {allowed}")]
    NotAllowed {
        /// The first one not allowed.
        attribute: Attribute,
        /// State now.
        from: QueuePairState,
        /// State asked for.
        to: QueuePairState,
        /// All that can be set.
        allowed: AttributeList,
    },
    /// RoCE has no path migration.
    #[error("attribute {0} cannot be set: RoCE has no alternate paths and no path migration")]
    NoPathMigration(Attribute),
    /// The caller is wrong about the present state.
    #[error("CUR_STATE says {given}, but the queue pair is in {actual}")]
    CurrentState {
        /// What the caller gave.
        given: QueuePairState,
        /// What it is.
        actual: QueuePairState,
    },
    /// A value out of range.
    #[error("attribute {attribute} is {value}; it must be {allowed}")]
    Value {
        /// Which one.
        attribute: Attribute,
        /// What was given.
        value: u64,
        /// What is possible.
        allowed: &'static str,
    },
    /// More outstanding READs and atomics than the device supports.
    #[error("attribute {attribute} is {value}, but the device's limit is {limit}: give less")]
    OverLimit {
        /// Which one.
        attribute: Attribute,
        /// What was given.
        value: u64,
        /// The device's limit.
        limit: u64,
    },
    /// The device has no such GID.
    #[error(
        "GID index {index} does not exist: the device has {count}, counted from 0, which are its \
         interface's addresses; `uroce devices` lists them"
    )]
    NoSuchGid {
        /// What was given.
        index: u16,
        /// How many there are.
        count: usize,
    },
    /// Own and peer address are of different families.
    #[error(
        "GID index {index} is {own}, which cannot reach {peer}: choose a GID of the peer's family"
    )]
    AddressFamily {
        /// Index of our GID.
        index: u16,
        /// Our address.
        own: std::net::IpAddr,
        /// The peer's.
        peer: std::net::IpAddr,
    },
    /// The address is no host's.
    #[error("{0} is no address of a peer: give the address of one host")]
    NotAPeer(std::net::IpAddr),
    /// Packets of this path MTU do not fit the interface.
    #[error(
        "path MTU {path} does not fit the interface's MTU of {interface}: at most {largest} does"
    )]
    PathMtuTooLarge {
        /// What was given.
        path: usize,
        /// The interface's.
        interface: usize,
        /// The largest path MTU that fits.
        largest: usize,
    },
}

/// Attributes, shown by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeList(pub &'static [Attribute], pub &'static [Attribute]);

impl fmt::Display for AttributeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for attribute in self.0.iter().chain(self.1) {
            write!(f, "{separator}{attribute}")?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

const NOTHING: Transition = Transition { required: &[], optional: &[] };

/// The transition, if the transport has it (Linux `qp_state_table`).
pub(crate) fn transition(
    kind: QueuePairKind,
    from: QueuePairState,
    to: QueuePairState,
) -> Option<Transition> {
    let (required, optional): (&[Attribute], &[Attribute]) = match (from, to, kind) {
        (_, Reset, _) => return Some(NOTHING),
        (Reset, Error, _) => return None,
        (_, Error, _) => return Some(NOTHING),
        (Reset, Init, Rc | Uc | XrcInitiator | XrcTarget) => (&[PkeyIndex, Port, Access], &[]),
        (Reset, Init, Ud) => (&[PkeyIndex, Port, Qkey], &[]),
        (Init, Init, Rc | Uc | XrcInitiator | XrcTarget) => (&[], &[PkeyIndex, Port, Access]),
        (Init, Init, Ud) => (&[], &[PkeyIndex, Port, Qkey]),
        (Init, Rtr, Rc | XrcTarget) => (
            &[AddressVector, PathMtu, Destination, ReceivePsn, MaxDestinationRdAtomic, MinRnrTimer],
            &[AlternatePath, Access, PkeyIndex],
        ),
        (Init, Rtr, Uc | XrcInitiator) => (
            &[AddressVector, PathMtu, Destination, ReceivePsn],
            &[AlternatePath, Access, PkeyIndex],
        ),
        (Init, Rtr, Ud) => (&[], &[PkeyIndex, Qkey]),
        (Rtr, Rts, Rc) => (
            &[Timeout, RetryCount, RnrRetry, SendPsn, MaxRdAtomic],
            &[CurrentState, AlternatePath, Access, MinRnrTimer, PathMigrationState],
        ),
        (Rtr, Rts, XrcInitiator) => (
            &[Timeout, RetryCount, RnrRetry, SendPsn, MaxRdAtomic],
            &[CurrentState, AlternatePath, Access, PathMigrationState],
        ),
        (Rtr, Rts, XrcTarget) => (
            &[Timeout, SendPsn],
            &[CurrentState, AlternatePath, Access, MinRnrTimer, PathMigrationState],
        ),
        (Rtr, Rts, Uc) => (&[SendPsn], &[CurrentState, AlternatePath, Access, PathMigrationState]),
        (Rtr, Rts, Ud) => (&[SendPsn], &[CurrentState, Qkey]),
        (Rts | Sqd, Rts, Rc | XrcTarget) => {
            (&[], &[CurrentState, AlternatePath, Access, MinRnrTimer, PathMigrationState])
        }
        (Rts | Sqd, Rts, Uc | XrcInitiator) => {
            (&[], &[CurrentState, AlternatePath, Access, PathMigrationState])
        }
        (Rts | Sqd, Rts, Ud) => (&[], &[CurrentState, Qkey]),
        (Rts, Sqd, _) => (&[], &[DrainNotification]),
        (Sqd, Sqd, Rc) => (
            &[],
            &[
                Port,
                AddressVector,
                Timeout,
                RetryCount,
                RnrRetry,
                MaxRdAtomic,
                MaxDestinationRdAtomic,
                AlternatePath,
                Access,
                PkeyIndex,
                MinRnrTimer,
                PathMigrationState,
            ],
        ),
        (Sqd, Sqd, XrcInitiator) => (
            &[],
            &[
                Port,
                AddressVector,
                Timeout,
                RetryCount,
                RnrRetry,
                MaxRdAtomic,
                AlternatePath,
                Access,
                PkeyIndex,
                PathMigrationState,
            ],
        ),
        (Sqd, Sqd, XrcTarget) => (
            &[],
            &[
                Port,
                AddressVector,
                Timeout,
                MaxDestinationRdAtomic,
                AlternatePath,
                Access,
                PkeyIndex,
                MinRnrTimer,
                PathMigrationState,
            ],
        ),
        (Sqd, Sqd, Uc) => {
            (&[], &[AddressVector, AlternatePath, Access, PkeyIndex, PathMigrationState])
        }
        (Sqd, Sqd, Ud) => (&[], &[PkeyIndex, Qkey]),
        (Sqe, Rts, Uc) => (&[], &[CurrentState, Access]),
        (Sqe, Rts, Ud) => (&[], &[CurrentState, Qkey]),
        _ => return None,
    };
    Some(Transition { required, optional })
}

/// Checks that the attributes are what the transition takes. Returns the state to go to.
pub(crate) fn check(
    kind: QueuePairKind,
    from: QueuePairState,
    attributes: &QueuePairAttributes,
) -> Result<QueuePairState, ModifyError> {
    check_current(from, attributes)?;
    let to = attributes.state.unwrap_or(from);
    let found = transition(kind, from, to).ok_or(ModifyError::NoTransition { kind, from, to })?;
    let given = attributes.given();
    for migration in [AlternatePath, PathMigrationState] {
        if given & migration.bit() != 0 {
            return Err(ModifyError::NoPathMigration(migration));
        }
    }
    let missing = found.required.iter().find(|needed| given & needed.bit() == 0);
    if let Some(attribute) = missing {
        let required = AttributeList(found.required, &[]);
        return Err(ModifyError::Missing { attribute: *attribute, from, to, required });
    }
    let taken = |attribute: &Attribute| {
        found.required.contains(attribute) || found.optional.contains(attribute)
    };
    let surplus = Attribute::ALL
        .iter()
        .filter(|attribute| given & attribute.bit() != 0 && **attribute != CurrentState)
        .find(|attribute| !taken(attribute));
    if let Some(attribute) = surplus {
        let allowed = AttributeList(found.required, found.optional);
        return Err(ModifyError::NotAllowed { attribute: *attribute, from, to, allowed });
    }
    Ok(to)
}

fn check_current(
    from: QueuePairState,
    attributes: &QueuePairAttributes,
) -> Result<(), ModifyError> {
    let Some(given) = attributes.current_state else { return Ok(()) };
    if !matches!(from, Rtr | Rts | Sqd | Sqe) {
        let to = attributes.state.unwrap_or(from);
        let allowed = AttributeList(&[], &[]);
        return Err(ModifyError::NotAllowed { attribute: CurrentState, from, to, allowed });
    }
    if given == from { Ok(()) } else { Err(ModifyError::CurrentState { given, actual: from }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which transitions exist, as the specification's figure has them.
    #[test]
    fn exactly_the_transitions_of_the_table_exist() {
        for kind in [Rc, Uc, Ud, XrcInitiator, XrcTarget] {
            for from in QueuePairState::ALL {
                for to in QueuePairState::ALL {
                    let expected = match (from, to) {
                        (_, Reset) => true,
                        (from, Error) => from != Reset,
                        (Reset | Init, Init) | (Init, Rtr) | (Rtr | Rts | Sqd, Rts) => true,
                        (Rts | Sqd, Sqd) => true,
                        (Sqe, Rts) => !kind.is_reliable(),
                        _ => false,
                    };
                    let exists = transition(kind, from, to).is_some();
                    assert_eq!(exists, expected, "{kind} {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn a_missing_attribute_is_named() {
        let attributes = QueuePairAttributes {
            port: Some(1),
            access: Some(crate::queue::Access::NONE),
            ..QueuePairAttributes::to_state(Init)
        };
        let error = check(Rc, Reset, &attributes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "attribute PKEY_INDEX is missing: RESET to INIT needs PKEY_INDEX, PORT, ACCESS_FLAGS"
        );
    }

    #[test]
    fn an_attribute_too_many_is_named() {
        let attributes =
            QueuePairAttributes { timeout: Some(14), ..QueuePairAttributes::to_state(Error) };
        let error = check(Rc, Rts, &attributes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "attribute TIMEOUT cannot be set from RTS to ERR; allowed are none"
        );
    }

    #[test]
    fn the_current_state_must_be_right_and_can_be_named_only_late() {
        let claim = |state, to| QueuePairAttributes {
            current_state: Some(state),
            ..QueuePairAttributes::to_state(to)
        };
        assert_eq!(check(Rc, Rts, &claim(Rts, Rts)), Ok(Rts));
        assert!(matches!(
            check(Rc, Rts, &claim(Rtr, Rts)),
            Err(ModifyError::CurrentState { given: Rtr, actual: Rts })
        ));
        assert!(matches!(check(Rc, Init, &claim(Init, Init)), Err(ModifyError::NotAllowed { .. })));
    }

    /// Each required attribute is really required, each other one really refused.
    #[test]
    fn every_transition_takes_exactly_its_attributes() {
        for kind in [Rc, Uc, Ud, XrcInitiator, XrcTarget] {
            for from in QueuePairState::ALL {
                for to in QueuePairState::ALL {
                    let Some(found) = transition(kind, from, to) else { continue };
                    let all = found.required.iter().fold(0, |set, each| set | each.bit());
                    let mut attributes = full();
                    keep(&mut attributes, all);
                    attributes.state = Some(to);
                    assert_eq!(check(kind, from, &attributes), Ok(to), "{kind} {from} {to}");
                    for attribute in Attribute::ALL.iter().filter(|a| **a != CurrentState) {
                        let mut changed = full();
                        keep(&mut changed, all ^ attribute.bit());
                        changed.state = Some(to);
                        let fits = found.optional.contains(attribute)
                            && !matches!(attribute, AlternatePath | PathMigrationState);
                        assert_eq!(check(kind, from, &changed).is_ok(), fits, "{attribute}");
                    }
                }
            }
        }
    }

    fn full() -> QueuePairAttributes {
        use crate::wire::{Psn, QKey, Qpn};
        let address = crate::queue::AddressVector::new(0, std::net::Ipv4Addr::LOCALHOST.into());
        QueuePairAttributes {
            state: None,
            current_state: None,
            drain_notification: Some(true),
            access: Some(crate::queue::Access::NONE),
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(QKey::new(1)),
            address: Some(address),
            path_mtu: Some(crate::queue::PathMtu::Mtu1024),
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            receive_psn: Some(Psn::new(0)),
            max_rd_atomic: Some(1),
            alternate_path: Some(address),
            min_rnr_timer: Some(12),
            send_psn: Some(Psn::new(0)),
            max_destination_rd_atomic: Some(1),
            path_migration_state: Some(0),
            destination: Some(Qpn::new(17)),
        }
    }

    fn keep(attributes: &mut QueuePairAttributes, set: u32) {
        let all = *attributes;
        let has = |attribute: Attribute| set & attribute.bit() != 0;
        *attributes = QueuePairAttributes {
            state: None,
            current_state: None,
            drain_notification: all.drain_notification.filter(|_| has(DrainNotification)),
            access: all.access.filter(|_| has(Access)),
            pkey_index: all.pkey_index.filter(|_| has(PkeyIndex)),
            port: all.port.filter(|_| has(Port)),
            qkey: all.qkey.filter(|_| has(Qkey)),
            address: all.address.filter(|_| has(AddressVector)),
            path_mtu: all.path_mtu.filter(|_| has(PathMtu)),
            timeout: all.timeout.filter(|_| has(Timeout)),
            retry_count: all.retry_count.filter(|_| has(RetryCount)),
            rnr_retry: all.rnr_retry.filter(|_| has(RnrRetry)),
            receive_psn: all.receive_psn.filter(|_| has(ReceivePsn)),
            max_rd_atomic: all.max_rd_atomic.filter(|_| has(MaxRdAtomic)),
            alternate_path: all.alternate_path.filter(|_| has(AlternatePath)),
            min_rnr_timer: all.min_rnr_timer.filter(|_| has(MinRnrTimer)),
            send_psn: all.send_psn.filter(|_| has(SendPsn)),
            max_destination_rd_atomic: all
                .max_destination_rd_atomic
                .filter(|_| has(MaxDestinationRdAtomic)),
            path_migration_state: all.path_migration_state.filter(|_| has(PathMigrationState)),
            destination: all.destination.filter(|_| has(Destination)),
        };
    }
}
