//! An engine with a link, a lock and a thread.

#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod forward;
#[cfg(not(loom))]
mod slots;
#[cfg(not(loom))]
mod steering;
#[cfg(not(loom))]
mod system;
mod turn;

#[cfg(all(test, loom))]
mod loom_tests;
