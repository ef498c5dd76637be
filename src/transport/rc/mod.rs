//! Reliable connection.

mod clock;
mod complete;
mod credit;
mod placing;
mod reply;
mod requester;
mod responder;
mod response;

pub(crate) use complete::QueueOverrun;
pub(crate) use reply::ACK_HOLD;
pub(crate) use requester::Requester;
pub(crate) use responder::{Outcome, Responder};
