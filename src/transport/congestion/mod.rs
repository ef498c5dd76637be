//! Congestion control: DCQCN (Zhu et al., SIGCOMM 2015), as RDMA cards have it.
//!
//! ```text
//!   sender ── ECT(0) ──▶ switch ── CE ──▶ receiver
//!     ▲ reaction point    queue too       │ notification point: one CNP
//!     │ cuts, recovers    long            │ for each flow in 50 µs
//!     └───────────── CNP ─────────────────┘
//! ```
//!
//! The flow whose rate is cut is a queue pair where the transport acknowledges, requests and READ
//! responses alike; UC and UD are cut by destination. A flow that was never notified has no
//! state, no bucket and no timer.

mod limiter;
mod notification;
mod options;
mod pacer;
#[cfg(test)]
mod properties;
mod reaction;

pub use limiter::FlowRate;
pub use options::{CongestionError, CongestionOptions};

pub(crate) use limiter::{Limiter, on_the_line};
pub(crate) use notification::{DatagramSender, Notification, NotificationPoint, Notified};
pub(crate) use options::CE;
pub(crate) use pacer::Pacer;
