//! What a memory may hold: settled bytes, and claims of operations that are under way.
//!
//! ```text
//!   settled   every byte's value if nothing is under way
//!   claim     bytes that a WRITE or a message will bring: until it is closed, each byte may be the
//!             settled or the claimed one; when it closes with success, it must be the claimed one,
//!             or that of a claim that was open at the same time
//!   reading   a READ: each byte must be one that the memory held since it was posted
//! ```
//!
//! Whether a byte is one that may be there is asked before the answer changes: when the application
//! stores it, or something begins that will bring or read it. What nothing is under way for keeps
//! its settled value, so one look at everything, at the end, finds whatever was written there by
//! nobody: earlier looks at everything would find nothing more.

use std::sync::Arc;

use crate::memory::OwnedMemory;

use super::{QueueId, Rule, Violation};
use crate::sim::recycled;

/// Bytes that are compared at a time.
const LOOK: usize = 4096;

/// A part of a message.
#[derive(Clone, Debug)]
pub(super) struct Bytes {
    data: Arc<Vec<u8>>,
    from: usize,
    length: usize,
}

impl Bytes {
    pub(super) fn new(data: Arc<Vec<u8>>, from: usize, length: usize) -> Self {
        Self { data, from, length }
    }

    fn as_slice(&self) -> &[u8] {
        &self.data[self.from..self.from + self.length]
    }
}

/// Bytes at a place.
#[derive(Clone, Debug)]
struct Patch {
    start: usize,
    bytes: Bytes,
}

impl Patch {
    fn overlaps(&self, start: usize, length: usize) -> bool {
        self.start < start + length && start < self.start + self.bytes.length
    }
}

#[derive(Debug)]
struct Claim {
    token: u64,
    queue: QueueId,
    patch: Patch,
    /// Claims that were open together with this one and closed before it: each may have come last.
    rivals: Vec<Patch>,
    /// Its operation failed or was flushed: it may still have happened, in part.
    abandoned: bool,
}

impl Claim {
    /// Start and length.
    fn range(&self) -> (usize, usize) {
        (self.patch.start, self.patch.bytes.length)
    }
}

/// Bytes that an answer will bring; checked by whoever knows the answer.
#[derive(Debug)]
struct Landing {
    token: u64,
    start: usize,
    length: usize,
}

/// A READ of this memory that is under way.
#[derive(Debug)]
pub(super) struct Reading {
    token: u64,
    queue: QueueId,
    start: usize,
    base: Vec<u8>,
    patches: Vec<Patch>,
}

impl Reading {
    /// The first byte of `got` that the memory did not hold during the READ.
    pub(super) fn mismatch(&self, got: &[u8]) -> Option<usize> {
        mismatch(got, &self.base, self.start, self.patches.iter())
    }

    /// As [`Self::mismatch`], where the bytes may also still be `before`.
    pub(super) fn partial_mismatch(&self, got: &[u8], before: &[u8]) -> Option<usize> {
        let before = Patch {
            start: self.start,
            bytes: Bytes::new(Arc::new(before.to_vec()), 0, before.len()),
        };
        mismatch(got, &self.base, self.start, self.patches.iter().chain([&before]))
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct MemoryModel {
    name: String,
    memory: Arc<OwnedMemory>,
    /// Of the watched bytes; what lies behind is not of this run.
    settled: Vec<u8>,
    length: usize,
    claims: Vec<Claim>,
    landings: Vec<Landing>,
    readings: Vec<Reading>,
    /// A byte that nobody may have put there, until somebody can complain.
    found: Option<Violation>,
    /// Room for bytes that are compared.
    scratch: Vec<u8>,
}

impl MemoryModel {
    /// Watches the first `length` bytes, which are those of `settled`.
    pub(super) fn new(
        name: String,
        memory: Arc<OwnedMemory>,
        settled: Vec<u8>,
        length: usize,
    ) -> Self {
        let (claims, landings, readings) = (Vec::new(), Vec::new(), Vec::new());
        let (found, scratch) = (None, Vec::new());
        Self { name, memory, settled, length, claims, landings, readings, found, scratch }
    }

    /// The bytes that really are there.
    pub(super) fn actual(&self, start: usize, length: usize) -> Vec<u8> {
        self.memory.to_vec(start, length).expect("the oracle asks only for what is inside")
    }

    /// The same, at the end of `bytes`.
    pub(super) fn append_actual(&self, start: usize, length: usize, bytes: &mut Vec<u8>) {
        let appended = self.memory.append_to(bytes, start, length);
        appended.expect("the oracle asks only for what is inside");
    }

    fn read(&self, start: usize, target: &mut [u8]) {
        self.memory.read(start, target).expect("the oracle asks only for what is inside");
    }

    /// The scratch room with the bytes that really are there; it is put back by the caller.
    fn look(&mut self, start: usize, length: usize) -> Vec<u8> {
        let mut scratch = std::mem::take(&mut self.scratch);
        if scratch.len() < length {
            scratch.resize(length, 0);
        }
        self.read(start, &mut scratch[..length]);
        scratch
    }

    /// The bytes that are settled there.
    pub(super) fn settled(&self, start: usize, length: usize) -> &[u8] {
        &self.settled[start..start + length]
    }

    /// The application itself is about to change its memory.
    pub(super) fn store(&mut self, start: usize, bytes: &[u8]) {
        self.touch(start, bytes.len());
        self.settle(start, bytes);
    }

    fn settle(&mut self, start: usize, bytes: &[u8]) {
        self.settled[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Whether these bytes, and no others, are really there.
    fn holds(&self, start: usize, bytes: &[u8]) -> bool {
        self.memory.holds(start, bytes).expect("the oracle asks only for what is inside")
    }

    /// What may be there is about to change: what is there now must be right.
    fn touch(&mut self, start: usize, length: usize) {
        if self.found.is_none() && !self.holds(start, self.settled(start, length)) {
            let mut room = std::mem::take(&mut self.scratch);
            if room.len() < LOOK {
                room.resize(LOOK, 0);
            }
            self.found = self.check_range(start, length, &mut room[..LOOK]).err();
            self.scratch = room;
        }
    }

    /// Whether a claim, a landing or a reading overlaps the range; readings count only for writers.
    pub(super) fn is_busy(&self, start: usize, length: usize, for_writing: bool) -> bool {
        let meets = |from: usize, size: usize| from < start + length && start < from + size;
        self.claims.iter().any(|claim| claim.patch.overlaps(start, length))
            || self.landings.iter().any(|landing| meets(landing.start, landing.length))
            || (for_writing && self.readings.iter().any(|read| meets(read.start, read.base.len())))
    }

    /// Whether an operation that failed may have left its traces in the range.
    pub(super) fn is_tainted(&self, start: usize, length: usize) -> bool {
        self.claims.iter().any(|claim| claim.abandoned && claim.patch.overlaps(start, length))
    }

    /// An operation of `queue` begins to bring `bytes`. `fenced`: not before earlier READs of the
    /// same queue are finished.
    pub(super) fn claim(
        &mut self,
        token: u64,
        queue: QueueId,
        start: usize,
        bytes: Bytes,
        fenced: bool,
    ) {
        if bytes.length == 0 {
            return;
        }
        self.touch(start, bytes.length);
        let patch = Patch { start, bytes };
        for reading in &mut self.readings {
            let ordered = fenced && reading.queue == queue;
            if !ordered && patch.overlaps(reading.start, reading.base.len()) {
                reading.patches.push(patch.clone());
            }
        }
        self.claims.push(Claim { token, queue, patch, rivals: Vec::new(), abandoned: false });
    }

    /// The claims of an operation must have come true by now; they stay open.
    pub(super) fn verify(&mut self, token: u64) -> Result<(), Violation> {
        for index in 0..self.claims.len() {
            if self.claims[index].token == token && !self.is_true(index) {
                let scratch = self.verify_at(index)?;
                self.scratch = scratch;
            }
        }
        Ok(())
    }

    /// Whether all that the claim with this index brings is there, and nothing of others.
    fn is_true(&self, index: usize) -> bool {
        let Patch { start, bytes } = &self.claims[index].patch;
        self.holds(*start, bytes.as_slice())
    }

    /// The claim with this index must have come true, except where others may have come after it.
    /// Returns the scratch room, with the bytes that are there.
    fn verify_at(&mut self, index: usize) -> Result<Vec<u8>, Violation> {
        let (start, length) = self.claims[index].range();
        let scratch = self.look(start, length);
        self.verify_claim(&self.claims[index], &scratch[..length])?;
        Ok(scratch)
    }

    fn verify_claim(&self, claim: &Claim, actual: &[u8]) -> Result<(), Violation> {
        let others = self.claims.iter().filter(|other| other.token != claim.token);
        let others = others.map(|other| &other.patch).chain(&claim.rivals);
        let expected = claim.patch.bytes.as_slice();
        let Some(at) = mismatch(actual, expected, claim.patch.start, others) else {
            return Ok(());
        };
        Err(self.differs(claim.patch.start + at, actual[at], expected[at], "after its success"))
    }

    /// The operation succeeded: its bytes must be there.
    pub(super) fn close(&mut self, token: u64) -> Result<(), Violation> {
        while let Some(index) = self.claims.iter().position(|claim| claim.token == token) {
            if self.is_true(index) {
                let claim = self.end_claim(index);
                self.settle(claim.patch.start, claim.patch.bytes.as_slice());
            } else {
                let actual = self.verify_at(index)?;
                self.end_claim_with(index, actual);
            }
        }
        self.complain()
    }

    /// The claim with this index is over, and `actual` begins with the bytes that it left.
    fn end_claim_with(&mut self, index: usize, actual: Vec<u8>) {
        let (start, length) = self.end_claim(index).range();
        self.settle(start, &actual[..length]);
        self.scratch = actual;
    }

    /// The claim with this index is over.
    fn end_claim(&mut self, index: usize) -> Claim {
        // Claims stay in the order of posting.
        let claim = self.claims.remove(index);
        self.outlive(&claim);
        claim
    }

    fn complain(&mut self) -> Result<(), Violation> {
        self.found.take().map_or(Ok(()), Err)
    }

    /// The operation failed: its bytes may be there, in part, and may still arrive.
    pub(super) fn abandon(&mut self, token: u64) {
        for claim in self.claims.iter_mut().filter(|claim| claim.token == token) {
            claim.abandoned = true;
        }
    }

    /// Nothing of `queue`'s failed operations can arrive any more: what is there is settled. The
    /// caller has just asked [`Self::check_claimed`]: settling what is there cannot make anything
    /// wrong, so one question is enough for several queues that end at once.
    pub(super) fn settle_abandoned(&mut self, queue: QueueId) {
        let ended = |claim: &Claim| claim.abandoned && claim.queue == queue;
        while let Some(index) = self.claims.iter().position(ended) {
            let (start, length) = self.claims[index].range();
            let actual = self.look(start, length);
            self.end_claim_with(index, actual);
        }
    }

    /// The claim is over; those of other queues that are open beside it may have come before it.
    fn outlive(&mut self, over: &Claim) {
        let (start, length) = (over.patch.start, over.patch.bytes.length);
        for other in &mut self.claims {
            if other.queue != over.queue && other.patch.overlaps(start, length) {
                other.rivals.push(over.patch.clone());
            }
        }
    }

    /// A READ or atomic of this memory's owner will bring bytes here.
    pub(super) fn open_landing(&mut self, token: u64, start: usize, length: usize) {
        self.touch(start, length);
        self.landings.push(Landing { token, start, length });
    }

    /// What was brought, checked by the caller, is settled.
    pub(super) fn close_landing(&mut self, token: u64) {
        while let Some(index) = self.landings.iter().position(|landing| landing.token == token) {
            let landing = self.landings.swap_remove(index);
            let actual = self.look(landing.start, landing.length);
            self.settle(landing.start, &actual[..landing.length]);
            self.scratch = actual;
        }
    }

    /// A READ of `queue` begins: earlier WRITEs of the same queue come before it.
    pub(super) fn open_reading(&mut self, token: u64, queue: QueueId, start: usize, length: usize) {
        self.touch(start, length);
        let mut base = self.actual(start, length);
        let mut patches = Vec::new();
        for claim in self.claims.iter().filter(|claim| claim.patch.overlaps(start, length)) {
            if claim.queue == queue && !claim.abandoned {
                apply(&mut base, start, &claim.patch);
                // It may have happened long ago, and something else after it.
                patches.extend(claim.rivals.iter().cloned());
            } else {
                patches.push(claim.patch.clone());
            }
        }
        self.readings.push(Reading { token, queue, start, base, patches });
    }

    /// The READ has ended; the caller compares.
    pub(super) fn close_reading(&mut self, token: u64) -> Option<Reading> {
        let index = self.readings.iter().position(|reading| reading.token == token)?;
        Some(self.readings.swap_remove(index))
    }

    /// Every byte must be settled, or claimed by something under way.
    pub(super) fn check(&mut self) -> Result<(), Violation> {
        self.touch(0, self.length);
        self.complain()
    }

    /// The same for what something under way claims: its bytes change without being asked for.
    pub(super) fn check_claimed(&mut self) -> Result<(), Violation> {
        for index in 0..self.claims.len() {
            let (start, length) = self.claims[index].range();
            self.touch(start, length);
        }
        self.complain()
    }

    fn check_range(&self, start: usize, length: usize, room: &mut [u8]) -> Result<(), Violation> {
        let end = start + length;
        for from in (start..end).step_by(LOOK) {
            let actual = &mut room[..LOOK.min(end - from)];
            self.read(from, actual);
            if *actual != self.settled[from..from + actual.len()] {
                self.check_changed(from, actual)?;
            }
        }
        Ok(())
    }

    /// Bytes that are not all settled have to be claimed, or be brought by an answer.
    fn check_changed(&self, start: usize, actual: &[u8]) -> Result<(), Violation> {
        let end = start + actual.len();
        let mut admitted = self.settled[start..end].to_vec();
        for landing in &self.landings {
            let from = landing.start.max(start);
            let to = (landing.start + landing.length).min(end);
            if from < to {
                let range = from - start..to - start;
                admitted[range.clone()].copy_from_slice(&actual[range]);
            }
        }
        let claims = self.claims.iter().map(|claim| &claim.patch);
        match mismatch(actual, &admitted, start, claims) {
            None => Ok(()),
            Some(at) => {
                let when = "though nothing may write";
                Err(self.differs(start + at, actual[at], admitted[at], when))
            }
        }
    }

    fn differs(&self, at: usize, actual: u8, expected: u8, when: &str) -> Violation {
        let name = &self.name;
        let text = format!("{name}, byte {at}: {actual:#04x} instead of {expected:#04x} {when}");
        Violation::new(Rule::Memory, text)
    }
}

impl Drop for MemoryModel {
    fn drop(&mut self) {
        recycled::give_back(std::mem::take(&mut self.settled));
    }
}

/// Overlays `patch` on `base`, which begins at `start`.
fn apply(base: &mut [u8], start: usize, patch: &Patch) {
    let bytes = patch.bytes.as_slice();
    let from = patch.start.max(start);
    let end = (patch.start + bytes.len()).min(start + base.len());
    base[from - start..end - start].copy_from_slice(&bytes[from - patch.start..end - patch.start]);
}

/// The first position where `actual` is neither `expected` nor what one of `others` has there.
fn mismatch<'a>(
    actual: &[u8],
    expected: &[u8],
    start: usize,
    others: impl Iterator<Item = &'a Patch>,
) -> Option<usize> {
    let first = first_difference(actual, expected, 0)?;
    let mut admitted = expected.to_vec();
    for patch in others.filter(|patch| patch.overlaps(start, actual.len())) {
        let bytes = patch.bytes.as_slice();
        let from = patch.start.max(start + first);
        let end = (patch.start + bytes.len()).min(start + actual.len());
        for position in from..end {
            let (here, there) = (position - start, position - patch.start);
            if actual[here] == bytes[there] {
                admitted[here] = bytes[there];
            }
        }
    }
    first_difference(actual, &admitted, first)
}

/// The first position from `from` on at which two lists differ; only as far as both go.
pub(super) fn first_difference(one: &[u8], other: &[u8], from: usize) -> Option<usize> {
    const STEP: usize = 256;
    let end = one.len().min(other.len());
    let mut at = from;
    while at < end {
        let next = (at + STEP).min(end);
        if one[at..next] != other[at..next] {
            return (at..next).find(|&position| one[position] != other[position]);
        }
        at = next;
    }
    None
}
