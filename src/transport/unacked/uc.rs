//! What arrives on an unreliable connection.
//!
//! There is never an answer. A gap, a fault or a missing receive drops the message that is arriving;
//! the receive that it had claimed serves the next one from its start. The next FIRST or ONLY packet
//! is taken whatever its PSN (specification, section 9.8.2.2).

use crate::transport::assembly::{Assembly, Refusal};
use crate::transport::context::{Base, Context};
use crate::transport::counters::Counter;
use crate::transport::rc::Outcome;
use crate::transport::receive::Claim;
use crate::wire::{Headers, Message, Psn};

/// See the module's text.
#[derive(Debug)]
pub(crate) struct UcReceiver {
    expected: Psn,
    /// The rest of a dropped message is passed over.
    skipping: bool,
    assembly: Assembly,
}

impl UcReceiver {
    pub(crate) fn new() -> Self {
        Self { expected: Psn::default(), skipping: false, assembly: Assembly::new() }
    }

    /// Starts at a PSN (INIT to RTR).
    pub(crate) fn begin(&mut self, psn: Psn) {
        *self = Self { expected: psn, ..Self::new() };
    }

    /// PSN of the next packet that is expected.
    pub(crate) fn expected(&self) -> Psn {
        self.expected
    }

    pub(crate) fn handle_request(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: &[u8],
    ) -> Outcome {
        let in_order = headers.psn == self.expected;
        self.expected = headers.psn.next();
        if !in_order {
            ctx.count(Counter::OutOfSequence);
        }
        if !in_order || self.skipping {
            self.drop_message();
            if !starts(&headers.message) {
                ctx.count(Counter::DropIncompleteMessage);
                return Outcome::Fine;
            }
            self.skipping = false;
        }
        match self.carry_out(base, ctx, headers, payload) {
            Ok(()) => return Outcome::Fine,
            Err(Refusal::Overrun) => return Outcome::Overrun,
            Err(Refusal::NotReady) => ctx.count(Counter::DropNoReceive),
            Err(Refusal::Fault(_)) => {
                ctx.count(Counter::DropFaultyRequest);
                ctx.dropped_for_found(base);
            }
        }
        self.drop_message();
        Outcome::Fine
    }

    fn carry_out(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        headers: &Headers,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        if starts(&headers.message) {
            // A message that lacks its end is given up when the next one starts.
            self.assembly.abandon();
        }
        self.assembly.check_sequence(ctx, &headers.message)?;
        self.assembly.take(base, ctx, &headers.message, headers.solicited, payload)?;
        Ok(())
    }

    fn drop_message(&mut self) {
        self.assembly.abandon();
        self.skipping = true;
    }

    /// The receive that the arriving message has claimed.
    pub(crate) fn claim(&mut self) -> &mut Claim {
        self.assembly.claim()
    }
}

const fn starts(message: &Message) -> bool {
    matches!(
        message,
        Message::SendFirst | Message::SendOnly(_) | Message::WriteFirst(_) | Message::WriteOnly(..)
    )
}
