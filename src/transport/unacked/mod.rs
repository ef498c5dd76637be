//! Transports without acknowledgements: unreliable connection and unreliable datagram.
//!
//! A message is done when its last packet is in the link's slot; what the network does to it nobody
//! is told. They share the sender; what arrives is judged by each in its own way.

mod datagram;
mod sender;
mod uc;

pub(crate) use datagram::{Arrival, DatagramReceiver};
pub(crate) use sender::Sender;
pub(crate) use uc::UcReceiver;
