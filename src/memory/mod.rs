//! Registered memory: regions, keys, scatter and gather, and the two copy routines.
//!
//! A peer can write registered memory at any time, so no Rust reference to its bytes exists while
//! it is registered. All payload moves through the two routines of `copy.rs`; all access is checked
//! against the key table, for each packet anew.
//!
//! ```text
//!  packet ── scatter/gather ──▶ KeyTable::span(key, domain, address, length, rights)
//!                                   │ checked range
//!                                   ▼
//!                               copy_in / copy_out ──▶ the application's bytes
//! ```

mod access;
mod copy;
mod denial;
mod keys;
mod region;
mod scatter;

pub use access::Access;
pub use denial::{Denial, Grant};
pub use keys::{DomainId, KeyFault, RegisterError};
pub use region::{AccessError, OwnedMemory};

pub(crate) use denial::denied;
pub(crate) use keys::KeyTable;
pub(crate) use region::{AtomicChange, Backing};
pub use scatter::Sge;

pub(crate) use scatter::{gather, scatter};
