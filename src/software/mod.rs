//! An engine with a link, a lock and a thread: a device of this host, without hardware.
//!
//! ```text
//!  application threads          the device's thread
//!    post, poll, control          while none of them polls
//!         └───────────┬───────────────┘
//!                     ▼
//!          TurnLock: whoever holds it does the work, one bounded turn
//!                     ▼
//!          Engine ── Impaired ── Recorded ── AddressLinks ── SharedPort ── UDP sockets
//!                                                                │
//!                                        other processes on the same address and port
//! ```
//!
//! A turn under the lock only collects what has to be called or written afterwards.

#[cfg(not(loom))]
mod addresses;
#[cfg(not(loom))]
mod attendant;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
mod core;
#[cfg(not(loom))]
mod device;
#[cfg(not(loom))]
mod driver;
#[cfg(not(loom))]
mod echo;
#[cfg(not(loom))]
mod environment;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod events;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod forward;
#[cfg(not(loom))]
mod groups;
#[cfg(not(loom))]
mod measuring;
#[cfg(not(loom))]
mod names;
#[cfg(not(loom))]
mod observe;
#[cfg(not(loom))]
mod opening;
#[cfg(not(loom))]
mod options;
#[cfg(all(test, not(loom)))]
mod properties;
#[cfg(not(loom))]
mod report;
#[cfg(not(loom))]
mod shared_port;
#[cfg(not(loom))]
mod sharing;
#[cfg(not(loom))]
mod slots;
#[cfg(not(loom))]
mod steering;
#[cfg(not(loom))]
mod system;
#[cfg(not(loom))]
mod trace;
#[cfg(not(loom))]
mod traced;
mod turn;
#[cfg(not(loom))]
mod variables;

#[cfg(not(loom))]
pub use self::{
    device::{Device, DeviceCounters},
    driver::Forked,
    environment::{
        DeviceName, Environment, EnvironmentError, LinkKind, ProviderKind, Trace,
        parse_buffer_size, parse_trace,
    },
    error::OpenError,
    groups::AttachError,
    names::{CounterName, CounterSource, NameSet},
    observe::{ObserveError, Observed, Question, observable},
    options::{DeviceOptions, Drive},
    report::{Counts, DeviceReport, Line, OUTER_COUNTS, PairReport},
    sharing::SharingStatistics,
    slots::{SlotError, slots_in_use},
    trace::Tracer,
};

#[cfg(feature = "fuzzing")]
pub(crate) use self::forward::fuzz as fuzz_forwarded;

#[cfg(all(test, loom))]
mod loom_tests;
