//! What arrives on a datagram queue pair: one packet a message, behind an area of 40 bytes that
//! tells where it came from (`wire::NetworkArea`).

use crate::memory::{Access, Accessor, denied, scatter};
use crate::queue::{Attachment, Completion, CompletionKind, CompletionStatus};
use crate::transport::context::{Base, Context};
use crate::transport::counters::Counter;
use crate::transport::history::Cause;
use crate::transport::rc::Outcome;
use crate::transport::receive::Claim;
use crate::wire::{Deth, Flow, Headers, Message, NetworkArea, SendTail};

/// Bytes before the payload of a received datagram.
const AREA: usize = NetworkArea::LENGTH;

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
        let area = NetworkArea::new(&arrival.flow, arrival.traffic_class).emit(arrival.length);
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
