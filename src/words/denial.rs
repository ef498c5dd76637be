//! Keys that gave no access.

use super::Explanation;
use super::number::bytes;
use crate::engine::{Denial, Grant};
use crate::memory::{Access, KeyFault};

/// `4096 bytes at 0x1000 with key 0x00000100`.
pub(super) fn asked(denial: &Denial) -> String {
    let Denial { key, address, length, .. } = denial;
    format!("{} at {address:#x} with key 0x{key:08x}", bytes(*length))
}

/// What was wrong, as the end of a sentence.
pub(super) fn reason(denial: &Denial) -> String {
    let Denial { need, grant, .. } = denial;
    match (denial.fault, grant) {
        (KeyFault::OutOfBounds, Some(grant)) => out_of_bounds(denial, grant),
        (KeyFault::Permission, Some(grant)) => {
            format!("the key gives {}, and {need} is needed", grant.access)
        }
        (KeyFault::WrongDomain, _) => {
            "the key's memory lies in another protection domain than the queue pair".to_owned()
        }
        (KeyFault::WrongQueuePair, _) => {
            "the key is that of a window which is bound over another queue pair".to_owned()
        }
        (KeyFault::WindowsBound, _) => "windows are bound to the key's region".to_owned(),
        (KeyFault::Unmapped, _) => {
            "the key's memory is not mapped at this moment, or not with the right that is needed"
                .to_owned()
        }
        (KeyFault::Misaligned, _) => "the address is not a multiple of 8".to_owned(),
        (KeyFault::NotInvalidatable, _) => {
            "the key is that of an ordinary memory region, which cannot be invalidated".to_owned()
        }
        _ => "no memory is registered under this key (any more)".to_owned(),
    }
}

fn out_of_bounds(denial: &Denial, grant: &Grant) -> String {
    let (start, end) =
        (u128::from(grant.address), u128::from(grant.address) + u128::from(grant.length));
    let asked_end = u128::from(denial.address) + u128::from(denial.length);
    let place = format!("the key's memory is {} at {:#x}", bytes(grant.length), grant.address);
    let before = start.saturating_sub(denial.address.into());
    let beyond = asked_end.saturating_sub(end);
    match (before, beyond) {
        (0, beyond) => format!("{place}: the range ends {} beyond it", bytes(beyond as u64)),
        (before, _) => format!("{place}: the range begins {} before it", bytes(before as u64)),
    }
}

/// The facts.
pub(super) fn facts(explanation: Explanation, denial: &Denial) -> Explanation {
    let explanation = explanation
        .fact("key", format!("0x{:08x}", denial.key))
        .fact("address", format!("{:#x}", denial.address))
        .fact("length", denial.length);
    let explanation = match denial.need {
        Access::NONE => explanation,
        need => explanation.fact("needed", need.to_string()),
    };
    match denial.grant {
        Some(grant) => explanation
            .fact("granted_address", format!("{:#x}", grant.address))
            .fact("granted_length", grant.length)
            .fact("granted", grant.access.to_string()),
        None => explanation,
    }
}
