//! Private parts for `benches/parts.rs`, which is outside of the crate: each behind a thin shell.
//! Only with the feature `parts`, which no application needs.

use std::sync::Arc;

use crate::engine::Deadlines;
use crate::memory::{
    Access, Accessor, Backing, DomainId, KeyFault, KeyTable, OwnedMemory, Sge, gather, scatter,
};
use crate::rng::Rng;
use crate::time::Instant;
use crate::transport::ReadyList;
use crate::wire::Lkey;

/// The deadlines of queue pairs.
#[derive(Default)]
pub struct Timers(Deadlines);

impl Timers {
    /// As the engine sets one.
    pub fn set(&mut self, slot: u32, at: Instant) {
        self.0.set(slot, at);
    }

    /// As the engine cancels one.
    pub fn remove(&mut self, slot: u32) {
        self.0.remove(slot);
    }

    /// The earliest.
    pub fn next(&self) -> Instant {
        self.0.next()
    }

    /// One that is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<u32> {
        self.0.pop_due(now)
    }
}

/// The list of queue pairs that have something to send.
#[derive(Default)]
pub struct Ready(ReadyList);

impl Ready {
    /// Appends one.
    pub fn push(&mut self, slot: u32) {
        self.0.push(slot);
    }

    /// Takes the first.
    pub fn pop(&mut self) -> Option<u32> {
        self.0.pop()
    }
}

/// Registered memory, as the data path reaches it.
pub struct Registered(KeyTable);

impl Default for Registered {
    fn default() -> Self {
        Self(KeyTable::new(1 << 20, 0, Rng::new(1)))
    }
}

impl Registered {
    const DOMAIN: DomainId = DomainId(1);

    /// Registers memory by its own addresses.
    pub fn register(&mut self, memory: &Arc<OwnedMemory>) -> Lkey {
        let backing = Backing::owned(Arc::clone(memory));
        let key = self.0.register(backing, memory.address(), Self::DOMAIN, Access::ALL);
        Lkey::new(key.expect("fewer regions than that"))
    }

    /// Looks the key up and writes.
    ///
    /// # Errors
    /// The key does not serve.
    pub fn write(&self, at: &Sge, source: &[u8]) -> Result<(), KeyFault> {
        let who = Accessor::local(Self::DOMAIN);
        self.0
            .span(at.key.value(), who, at.address, source.len(), Access::LOCAL_WRITE)?
            .write(source)
    }

    /// Looks the key up and reads.
    ///
    /// # Errors
    /// The key does not serve.
    pub fn read(&self, at: &Sge, target: &mut [u8]) -> Result<(), KeyFault> {
        let who = Accessor::local(Self::DOMAIN);
        self.0.span(at.key.value(), who, at.address, target.len(), Access::NONE)?.read(target, None)
    }

    /// Writes over segments.
    ///
    /// # Errors
    /// A key does not serve.
    pub fn scatter(&self, segments: &[Sge], source: &[u8]) -> Result<(), KeyFault> {
        scatter(&self.0, Self::DOMAIN, segments.iter().copied(), 0, source)
    }

    /// Reads over segments.
    ///
    /// # Errors
    /// A key does not serve.
    pub fn gather(&self, segments: &[Sge], target: &mut [u8]) -> Result<(), KeyFault> {
        gather(&self.0, Self::DOMAIN, segments.iter().copied(), 0, target, None)
    }
}
