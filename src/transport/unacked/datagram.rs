//! What arrives on a datagram queue pair: one packet a message, behind a 40-byte area that tells
//! where it came from.
//!
//! ```text
//!   receive buffer:  │ 40 bytes: network header │ payload …
//!   IPv6:            │ the whole header         │
//!   IPv4:            │ 20 zeros │ the header    │
//! ```

use std::net::IpAddr;

use crate::memory::{Access, Accessor, denied, scatter};
use crate::queue::{Attachment, Completion, CompletionKind, CompletionStatus};
use crate::transport::context::{Base, Context};
use crate::transport::counters::Counter;
use crate::transport::history::Cause;
use crate::transport::rc::Outcome;
use crate::transport::receive::Claim;
use crate::wire::{Deth, Flow, Headers, Message, SendTail, internet_checksum};

/// Bytes before the payload of a received datagram.
pub(crate) const AREA: usize = 40;
const UDP_HEADER: usize = 8;
const IPV4_HEADER: usize = 20;
const HOP_LIMIT: u8 = 64;
const PROTOCOL_UDP: u8 = 17;

/// Where a datagram came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) flow: Flow,
    pub(crate) traffic_class: u8,
    /// Bytes of the UDP payload.
    pub(crate) length: usize,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct DatagramReceiver {
    claim: Claim,
}

impl DatagramReceiver {
    pub(crate) fn new() -> Self {
        Self { claim: Claim::default() }
    }

    /// Takes a datagram, or drops it: there is no answer to a datagram, and one that does not fit
    /// leaves the receive to the next.
    pub(crate) fn handle_request(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        headers: &Headers,
        deth: &Deth,
        arrival: &Arrival,
        payload: &[u8],
    ) -> Outcome {
        if base.attributes.qkey != Some(deth.qkey) {
            ctx.count(Counter::DropQkeyMismatch);
            return Outcome::Fine;
        }
        let attachment = match headers.message {
            Message::SendOnly(SendTail::Plain) => Attachment::None,
            Message::SendOnly(SendTail::Immediate(immediate)) => Attachment::Immediate(immediate),
            _ => {
                ctx.count(Counter::DropUnexpectedOpcode);
                return Outcome::Fine;
            }
        };
        let Some(room) = self.claim.claim(base, ctx) else {
            ctx.count(Counter::DropNoReceive);
            return Outcome::Fine;
        };
        let length = AREA + payload.len();
        if length > room as usize {
            let (capacity, arrived) = (room, length as u64);
            return drop_for(base, ctx, Cause::ReceiveTooSmall { capacity, arrived });
        }
        if !self.place(base, ctx, arrival, payload) {
            let segments = self.claim.segments();
            let denial = denied(
                ctx.keys,
                Accessor::local(self.claim.domain(base)),
                segments,
                Access::LOCAL_WRITE,
            );
            return drop_for(base, ctx, denial.map_or(Cause::Unknown, Cause::ReceiveMemory));
        }
        let completion = Completion {
            id: 0,
            status: CompletionStatus::Success,
            kind: CompletionKind::Receive,
            length: length as u32,
            attachment,
            queue_pair: base.number(),
            source: deth.source,
            solicited: headers.solicited,
        };
        let room = self.claim.complete(base, ctx, completion);
        if room { Outcome::Fine } else { Outcome::Overrun }
    }

    /// Writes area and payload. Returns whether the receive's keys allow it.
    fn place(&self, base: &Base, ctx: &Context<'_>, arrival: &Arrival, payload: &[u8]) -> bool {
        let area = network_area(arrival);
        let domain = self.claim.domain(base);
        // The payload first: both ranges are checked before the first byte is written that way, as
        // far as the segments go, and the area is written only behind a payload that is there.
        let written = scatter(ctx.keys, domain, self.claim.segments(), AREA as u64, payload)
            .and_then(|()| scatter(ctx.keys, domain, self.claim.segments(), 0, &area));
        written.is_ok()
    }

    /// The receive that is claimed.
    pub(crate) fn claim(&mut self) -> &mut Claim {
        &mut self.claim
    }
}

/// A datagram is dropped for a reason of its receive.
#[cold]
fn drop_for(base: &Base, ctx: &mut Context<'_>, cause: Cause) -> Outcome {
    ctx.count(Counter::DropFaultyRequest);
    ctx.history.find(cause);
    ctx.dropped_for_found(base);
    Outcome::Fine
}

/// The network header as the application sees it. What a socket does not show is as usual: hop
/// limit 64, identification 0, no fragment.
fn network_area(arrival: &Arrival) -> [u8; AREA] {
    let mut area = [0; AREA];
    let length = (UDP_HEADER + arrival.length) as u16;
    match (arrival.flow.source, arrival.flow.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let first = 6 << 28 | u32::from(arrival.traffic_class) << 20;
            area[..4].copy_from_slice(&first.to_be_bytes());
            area[4..6].copy_from_slice(&length.to_be_bytes());
            area[6] = PROTOCOL_UDP;
            area[7] = HOP_LIMIT;
            area[8..24].copy_from_slice(&source.octets());
            area[24..40].copy_from_slice(&destination.octets());
        }
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = &mut area[AREA - IPV4_HEADER..];
            header[0] = 0x45;
            header[1] = arrival.traffic_class;
            header[2..4].copy_from_slice(&(length + IPV4_HEADER as u16).to_be_bytes());
            header[6..8].copy_from_slice(&crate::wire::icrc::DONT_FRAGMENT.to_be_bytes());
            header[8] = HOP_LIMIT;
            header[9] = PROTOCOL_UDP;
            header[12..16].copy_from_slice(&source.octets());
            header[16..20].copy_from_slice(&destination.octets());
            let checksum = internet_checksum(header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        _ => {}
    }
    area
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn the_area_holds_a_header_whose_checksum_is_right_behind_twenty_zeros() {
        let flow = Flow {
            source: Ipv4Addr::new(10, 0, 0, 1).into(),
            destination: Ipv4Addr::new(10, 0, 0, 2).into(),
            source_port: 0xc000,
        };
        let area = network_area(&Arrival { flow, traffic_class: 2, length: 40 });
        assert_eq!(area[..20], [0; 20]);
        assert_eq!(area[20], 0x45);
        assert_eq!(u16::from_be_bytes([area[22], area[23]]), 68);
        assert_eq!(internet_checksum(&area[20..]), 0, "over a header with its checksum");
    }

    #[test]
    fn the_area_of_ipv6_is_its_header() {
        let flow = Flow {
            source: Ipv6Addr::LOCALHOST.into(),
            destination: Ipv6Addr::LOCALHOST.into(),
            source_port: 0xc000,
        };
        let area = network_area(&Arrival { flow, traffic_class: 0x6a, length: 40 });
        assert_eq!(area[..8], [0x66, 0xa0, 0, 0, 0, 48, 17, 64]);
        assert_eq!(area[24..40], Ipv6Addr::LOCALHOST.octets());
    }
}
