//! Verbs as applications use them, over real sockets on `lo`.
//!
//! ```text
//!   calls      what each call gives and refuses: states, queries, errors, waits, events
//!   congestion marks, notifications and rates over real sockets
//!   datagrams  who sent one can be answered
//!   lifetimes  whatever is dropped first, and processes that fork
//!   threads    many at once on the same handles
//! ```

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod congestion;
mod datagrams;
mod events;
mod futures;
mod lifetimes;
mod placing;
mod port;
mod processes;
mod setup;
mod threads;
