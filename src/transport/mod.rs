//! Queue pair state machines. Pure: time, memory and everything else outside is lent for a step.
//!
//! ```text
//!              ┌───────────── QueuePair ─────────────┐
//!  requests ──▶│ Responder ─ notes replies           │
//!  answers  ──▶│ Requester ─ completes work requests │──▶ poll_transmit: one burst
//!  deadline ──▶│ RetryClock                          │
//!  doorbell ──▶└─────────────────────────────────────┘
//! ```
//!
//! `handle_*` takes something in and only changes state; `poll_transmit` is the only place where a
//! frame is made, and no queue of frames stands below it: nothing has to be taken back.

mod assembly;
mod burst;
mod congestion;
mod context;
mod counters;
mod effects;
mod event_kind;
mod fault;
mod halves;
mod handles;
mod history;
mod local;
mod pace;
mod pair;
mod path;
mod rc;
mod ready;
mod receive;
mod requests;
mod segment;
mod settings;
mod shared;
mod table;
mod unacked;
mod unreachable;

pub use congestion::{CongestionError, CongestionOptions, FlowRate};
pub use counters::{Counter, Counters};
pub use effects::{AsyncEvent, Dropped, Effects, EventSubject, Flushed};
pub use event_kind::AsyncEventKind;
pub use history::{
    Cause, Ends, Failure, FlushCause, History, HistoryEvent, MessagePart, NotReady, PacketKind,
    Record, Refused, TimerKind, Unanswered, WrongResponse,
};
pub use table::{AttributeList, ModifyError};
pub use unreachable::{Unreachable, UnreachableKind};

pub(crate) use burst::BurstRules;
pub(crate) use congestion::{CE, DatagramSender, Notification, NotificationPoint};
pub(crate) use context::{Context, Peer};
pub(crate) use counters::PairCounters;
pub(crate) use handles::AddressHandles;
pub(crate) use history::Recorder;
pub(crate) use pair::QueuePair;
pub(crate) use path::{PathId, PathTable};
pub(crate) use rc::ACK_HOLD;
pub(crate) use ready::ReadyList;
pub(crate) use settings::Device;
pub(crate) use shared::SharedQueues;
pub(crate) use unacked::Arrival;
