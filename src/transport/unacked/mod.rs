//! Transports without acknowledgements: unreliable connection and unreliable datagram.
//!
//! A message is done when its last packet is in the link's slot; what the network does to it nobody
//! is told. They share the sender; what arrives is judged by each in its own way.

mod datagram;
mod pace;
mod sender;
mod uc;

pub(crate) use datagram::DatagramReceiver;
pub(crate) use pace::Pace;
pub(crate) use sender::Sender;
pub(crate) use uc::UcReceiver;
