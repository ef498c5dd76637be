//! How requests ended: which status which fault of an application brought about.

use std::collections::BTreeMap;

use crate::queue::CompletionStatus;

use super::oracle::{Defect, LinkDefect, Notice, UnackedDefect};

/// Counts of ways to end; see the module's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    /// By what was wrong with the request (nothing, for a legal one) and the status's number.
    sends: BTreeMap<(Option<Defect>, u8), u64>,
    receives: BTreeMap<u8, u64>,
    unacked: BTreeMap<(Option<UnackedDefect>, u8), u64>,
    links: BTreeMap<(Option<LinkDefect>, u8), u64>,
    notices: BTreeMap<Notice, u64>,
}

impl Endings {
    pub(super) fn note_send(&mut self, defect: Option<Defect>, status: CompletionStatus) {
        *self.sends.entry((defect, status as u8)).or_default() += 1;
    }

    pub(super) fn note_receive(&mut self, status: CompletionStatus) {
        *self.receives.entry(status as u8).or_default() += 1;
    }

    pub(super) fn note_unacked(&mut self, defect: Option<UnackedDefect>, status: CompletionStatus) {
        *self.unacked.entry((defect, status as u8)).or_default() += 1;
    }

    pub(super) fn note_link(&mut self, defect: Option<LinkDefect>, status: CompletionStatus) {
        *self.links.entry((defect, status as u8)).or_default() += 1;
    }

    /// How often a request for a shared receive queue, with this fault or a legal one, ended so.
    pub fn links(&self, defect: Option<LinkDefect>, status: CompletionStatus) -> u64 {
        self.links.get(&(defect, status as u8)).copied().unwrap_or(0)
    }

    pub(super) fn note_notice(&mut self, notice: Notice) {
        *self.notices.entry(notice).or_default() += 1;
    }

    /// How often an application heard this.
    pub fn notices(&self, notice: Notice) -> u64 {
        self.notices.get(&notice).copied().unwrap_or(0)
    }

    /// How often a send request that nobody acknowledges, with this fault or a legal one, ended so.
    pub fn unacked(&self, defect: Option<UnackedDefect>, status: CompletionStatus) -> u64 {
        self.unacked.get(&(defect, status as u8)).copied().unwrap_or(0)
    }

    /// How often a send request with this fault, or a legal one, ended so.
    pub fn sends(&self, defect: Option<Defect>, status: CompletionStatus) -> u64 {
        self.sends.get(&(defect, status as u8)).copied().unwrap_or(0)
    }

    /// How often a receive ended so.
    pub fn receives(&self, status: CompletionStatus) -> u64 {
        self.receives.get(&(status as u8)).copied().unwrap_or(0)
    }

    /// How often a fault was found out, and not hidden by an earlier failure.
    pub fn found(&self, defect: Defect) -> u64 {
        defect.send_statuses().iter().map(|status| self.sends(Some(defect), *status)).sum()
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Self) {
        for (ending, count) in &other.sends {
            *self.sends.entry(*ending).or_default() += count;
        }
        for (ending, count) in &other.unacked {
            *self.unacked.entry(*ending).or_default() += count;
        }
        for (ending, count) in &other.links {
            *self.links.entry(*ending).or_default() += count;
        }
        for (notice, count) in &other.notices {
            *self.notices.entry(*notice).or_default() += count;
        }
        for (status, count) in &other.receives {
            *self.receives.entry(*status).or_default() += count;
        }
    }
}
