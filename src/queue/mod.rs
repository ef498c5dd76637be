//! Work queues and completion queues: what an application and the engine share, and nothing else
//! than what an application and hardware share.
//!
//! ```text
//!  application threads                             the engine (one lock)
//!  post_send ───▶ SendQueue ──────────── read ───▶ requester
//!  post_receive ▶ ReceiveQueue ───────── read ───▶ responder
//!       └───────▶ Doorbells ─────────── collect ─▶ which queue pairs to look at
//!  poll ◀──────── CompletionQueue ◀───── push ────
//! ```
//!
//! All queues are rings of atomic words (`ring`): no unsafe code, no lock shared with the engine.

mod attributes;
mod completion;
mod doorbell;
mod flush;
mod occupied;
mod pair;
#[cfg(all(test, not(loom)))]
mod properties;
mod receive;
mod request;
mod ring;
mod send;
mod shared;
mod state;
pub mod sync;
mod wakers;

pub use crate::memory::{Access, Sge, WindowBind, WindowId, WindowKind};
pub use attributes::{AddressVector, Attribute, PathMtu, QueuePairAttributes};
pub use completion::{
    Attachment, Completion, CompletionKind, CompletionQueue, CompletionStatus, Notify, Overrun,
};
pub use doorbell::Doorbells;
pub use flush::{FlushPlacement, FlushSelectivity, PlacementCapabilities};
pub use pair::{QueueCapacities, QueuePairQueues};
pub use receive::ReceiveQueue;
pub use request::{
    AddressHandleId, Datagram, MAX_MESSAGE, Payload, PostError, ReceiveRequest, Remote, SendFlags,
    SendOperation, SendRequest, total_length,
};
pub use send::SendQueue;
pub use shared::XrcDomainId;
pub use state::{QueuePairKind, QueuePairState};

pub(crate) use occupied::Occupied;
pub(crate) use send::{SegmentList, SendData, SendHead};
pub(crate) use shared::{Origin, Sharing, XrcPart};
#[cfg_attr(loom, allow(unused_imports, reason = "devices are not modelled"))]
pub(crate) use wakers::{WakerKey, Wakers};
