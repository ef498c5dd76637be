//! What the fuzz targets do with their bytes, and what must hold then. `tests/fuzz_replay.rs` of the
//! main package includes this file and gives it the committed seeds, on any compiler.

#![allow(missing_docs)]

mod addresses;
mod dump;
mod engine;
mod frame;
mod input;
mod mad;
mod schedule;

#[path = "../../tests/pair/mod.rs"]
pub mod pair;

pub use addresses::handshake;
pub use dump::dump;
pub use engine::{requester, responder};
pub use frame::frame;
pub use mad::mad;
pub use schedule::schedule;
