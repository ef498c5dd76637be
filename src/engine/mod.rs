//! One device's worth of RoCE, without a link.

mod port;

pub use port::{IdentificationRule, Port, PortCapabilities, SourcePorts};
