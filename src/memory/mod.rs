//! Registered memory: regions, keys, scatter and gather, and the two copy routines.
//!
//! A peer can write registered memory at any time, so no Rust reference to its bytes exists while
//! it is registered. All payload moves through the two routines of `copy.rs`; all access is checked
//! against the key table, for each packet anew.
//!
//! ```text
//!  packet ── scatter/gather ──▶ KeyTable::span(key, who, address, length, rights)
//!                                   │ checked range
//!                                   ▼
//!                               copy_in / copy_out ──▶ the application's bytes
//! ```

mod access;
mod copy;
mod demand;
mod denial;
mod error;
mod file;
mod keys;
#[cfg(test)]
mod properties;
mod region;
mod registration;
mod scatter;
mod sum;
mod window;

pub use access::Access;
pub use demand::OnDemandCapabilities;
pub use denial::{Denial, Grant};
pub use error::{KeyFault, RegisterError};
pub use keys::DomainId;
pub use region::{AccessError, OwnedMemory};

pub(crate) use denial::denied;
pub(crate) use keys::{Accessor, KeyTable};
pub(crate) use region::{AtomicChange, Backing};
pub(crate) use registration::RegionChange;
pub use scatter::Sge;
pub use window::{BindFault, WindowBind, WindowId, WindowKind};

pub(crate) use scatter::{gather, scatter};
pub(crate) use sum::WORTH_SUMMING;
