//! An engine with a link, a lock and a thread.

#[cfg(not(loom))]
pub mod clock;
mod turn;

#[cfg(all(test, loom))]
mod loom_tests;
