//! What applications see: devices, protection domains, memory regions, completion queues, queue
//! pairs, as in libibverbs, with Rust's ownership.
//!
//! ```text
//!   devices() ─▶ Context ─▶ ProtectionDomain ─▶ MemoryRegion
//!                   │              └──────────▶ QueuePair ── post_send, post_receive
//!                   └──▶ CompletionQueue ◀──────────┘         │
//!                              └── poll, wait ◀── completions ┘
//! ```
//!
//! | for | begin with |
//! | --- | --- |
//! | a connection | [`QueuePair::connect`], [`connect_pair`] |
//! | datagrams | [`QueuePair::start_datagrams`], [`ProtectionDomain::create_address_handle`], [`ProtectionDomain::create_address_handle_of_sender`], [`SendOperation::SendTo`] |
//! | multicast | [`QueuePair::attach_multicast`] |
//! | receives for many queue pairs | [`ProtectionDomain::create_shared_receive_queue`], [`QueuePairOptions::shared_receives`] |
//! | one connection to each process, not to each of its queue pairs | [`XrcDomain`], [`connect_xrc`] |
//! | a peer's rights to a part of a region | [`MemoryWindow::bind`], [`QueuePair::bind_window`] |
//! | stores that are seen whole, and certainty that WRITEs are placed | [`SendOperation::AtomicWrite`], [`SendOperation::Flush`] |
//! | why something failed | [`QueuePair::explain`], [`QueuePair::history`], [`Context::poll_event`] |
//!
//! Every handle can be used from any thread at once, and keeps what it stands on alive: dropping a
//! context while a queue pair exists ends nothing. Whoever posts or polls also drives the protocol,
//! and a background thread does so while nobody does (see [`crate::software`]).
//!
//! Who waits can block ([`CompletionQueue::wait`]), sleep on a descriptor ([`CompletionChannel`]), or
//! await a future on any executor ([`CompletionQueue::next`], [`Context::next_event`]).
//!
//! Work requests and completions are the types of [`crate::queue`], re-exported here.

mod address;
mod attributes;
mod completion;
mod connect;
mod context;
mod device;
mod domain;
mod error;
mod futures;
mod pair;
mod region;
mod shared;
mod window;
mod xrc;

pub use crate::engine::{
    AsyncEvent, AsyncEventKind, CongestionError, CongestionOptions, ControlError, Counter,
    Counters, Failure, FlowRate, GroupError, History, HistoryEvent, Limits, ModifyError,
    QueuePairStatus, Record,
};
pub use crate::host::Gid;
pub use crate::link::JoinError;
pub use crate::memory::{AccessError, OnDemandCapabilities, OwnedMemory, RegisterError};
pub use crate::queue::{
    Access, AddressHandleId, AddressVector, Attachment, Completion, CompletionKind,
    CompletionStatus, Datagram, FlushPlacement, FlushSelectivity, Overrun, PathMtu, Payload,
    PlacementCapabilities, PostError, QueueCapacities, QueuePairAttributes, QueuePairKind,
    QueuePairState, ReceiveRequest, Remote, SendFlags, SendOperation, SendRequest, Sge, WindowBind,
    WindowId, WindowKind,
};
pub use crate::wire::{Immediate, Lkey, Psn, QKey, Qpn, Rkey, Srqn};
pub use crate::words::{Explanation, Fact};
pub use address::AddressHandle;
pub use attributes::{AtomicScope, Capability, DeviceAttributes, PortAttributes};
pub use completion::{CompletionChannel, CompletionQueue};
pub use connect::{ConnectOptions, Endpoint, connect_pair};
pub use context::Context;
pub use device::{DeviceInfo, PortState, devices, open};
pub use domain::{ProtectionDomain, QueuePairOptions};
pub use error::VerbsError;
pub use futures::{NextChannelEvent, NextCompletion, NextCompletions, NextEvent};
pub use pair::QueuePair;
pub use region::{ForeignRegion, MemoryRegion, RegionChange};
pub use shared::SharedReceiveQueue;
pub use window::{Bindable, MemoryWindow};
pub use xrc::{XrcDomain, XrcDomainOptions, XrcQueueOptions, XrcTarget, connect_xrc};
