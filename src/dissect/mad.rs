//! Management datagrams to queue pairs 0 and 1.

use super::check::is_management;
use super::cm::CmMessage;
use super::{Issue, RdmaPacket};
use crate::wire::Mad;

/// A management datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Management<'a> {
    /// The common header.
    pub header: Mad,
    /// Its 232 bytes of data, as far as captured.
    pub data: &'a [u8],
}

impl<'a> RdmaPacket<'a> {
    /// The management datagram in the packet: it is for queue pair 0 or 1, and has a common header
    /// of a known version.
    pub fn management(&self) -> Option<Management<'a>> {
        if !is_management(self) || self.issues.contains(Issue::BadMad) {
            return None;
        }
        let (header, data) = self.payload.split_first_chunk()?;
        Some(Management { header: Mad::parse(header), data })
    }
}

impl<'a> Management<'a> {
    /// The message of the connection manager, if it is one.
    pub fn connection(&self) -> Option<CmMessage<'a>> {
        let is_cm = self.header.class == Mad::CONNECTION_MANAGEMENT;
        is_cm.then(|| CmMessage::of(self.header.attribute, self.data)).flatten()
    }

    /// The class in words.
    pub fn class_name(&self) -> &'static str {
        match self.header.class {
            0x01 => "subnet management",
            0x81 => "subnet management, directed route",
            0x03 => "subnet administration",
            0x04 => "performance",
            0x05 => "baseboard",
            0x06 => "device management",
            Mad::CONNECTION_MANAGEMENT => "connection management",
            0x08 => "SNMP",
            0x09..=0x0f | 0x30..=0x4f => "vendor's class",
            _ => "unknown class",
        }
    }

    /// The method in words.
    pub fn method_name(&self) -> &'static str {
        match self.header.method {
            0x01 => "Get",
            0x02 => "Set",
            0x03 => "Send",
            0x05 => "Trap",
            0x06 => "Report",
            0x07 => "TrapRepress",
            0x81 => "GetResp",
            0x86 => "ReportResp",
            _ => "unknown method",
        }
    }
}
