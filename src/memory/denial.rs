//! Why a key gave no access, with the numbers: made after the refusal, for whoever asks why.

use super::access::Access;
use super::error::KeyFault;
use super::keys::{Accessor, KeyTable};
use super::scatter::Sge;

/// A key that did not give access: what was asked, and what its memory would have given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The key.
    pub key: u32,
    /// First byte that was asked for.
    pub address: u64,
    /// Bytes that were asked for.
    pub length: u64,
    /// The right that it takes; none for local reading.
    pub need: Access,
    /// What was wrong.
    pub fault: KeyFault,
    /// What the key stands for, if it stands for anything.
    pub grant: Option<Grant>,
}

/// Registered memory, as its key names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// First byte's address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Rights.
    pub access: Access,
}

impl KeyTable {
    /// The facts of a refusal of [`KeyTable::span`] or of its relatives.
    #[cold]
    pub(crate) fn denial(
        &self,
        key: u32,
        (address, length): (u64, u64),
        need: Access,
        fault: KeyFault,
    ) -> Denial {
        Denial { key, address, length, need, fault, grant: self.grant_of(key) }
    }
}

/// The facts of a refusal of [`super::scatter()`] or [`super::gather()`]: the first segment that is
/// refused as a whole. If none is, the first one with a hole, or else the first one in on-demand
/// memory: it may be mapped without the right that is needed, or be mapped again.
#[cold]
pub(crate) fn denied(
    keys: &KeyTable,
    who: Accessor,
    segments: impl Iterator<Item = Sge>,
    need: Access,
) -> Option<Denial> {
    let (mut unmapped, mut suspected) = (None, None);
    for segment in segments.filter(|segment| segment.length > 0) {
        let (key, length) = (segment.key.value(), segment.length);
        let denial = |fault| keys.denial(key, (segment.address, length.into()), need, fault);
        match keys.span(key, who, segment.address, length as usize, need) {
            Err(fault) => return Some(denial(fault)),
            Ok(span) => match span.may_fail() {
                (_, true) => unmapped = unmapped.or_else(|| Some(denial(KeyFault::Unmapped))),
                (true, _) => suspected = suspected.or_else(|| Some(denial(KeyFault::Unmapped))),
                _ => {}
            },
        }
    }
    unmapped.or(suspected)
}
