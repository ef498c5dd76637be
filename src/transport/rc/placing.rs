//! ATOMIC WRITE and FLUSH at the responder: both are answered by an empty READ response, and kept
//! in a record so that a duplicate is answered and not carried out again.
//!
//! Requests are carried out in PSN order, each as a whole before the next one is looked at. So when
//! a FLUSH comes, all WRITEs before it are in memory: for visibility it only has to keep later loads
//! and stores behind them, for persistence it writes the pages back and waits. That wait holds up
//! the whole device, as long as its medium takes; only memory that was registered for it has that
//! cost.

use std::sync::atomic::{Ordering, fence};

use super::reply::Answer;
use super::responder::{RecordKind, Responder};
use crate::memory::KeyFault;
use crate::queue::{Access, FlushPlacement, FlushSelectivity, MAX_MESSAGE};
use crate::transport::assembly::{Refusal, check_allowed};
use crate::transport::context::{Base, Context};
use crate::transport::fault::Fault;
use crate::transport::history::{Cause, MessagePart};
use crate::wire::{Feth, Reth};

/// Bytes that an ATOMIC WRITE carries, exactly (oA19-28).
const WORD: u32 = 8;

impl Responder {
    /// Stores eight bytes at once.
    pub(super) fn atomic_write(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        reth: &Reth,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        check_allowed(base, ctx, Access::REMOTE_WRITE)?;
        self.check_read_resources(base, ctx)?;
        let length = payload.len() as u32;
        let value = payload.try_into().map_err(|_| {
            let (path_mtu, part) = (WORD, MessagePart::Full);
            ctx.blame(Fault::PacketLength, Cause::PacketLength { length, path_mtu, part })
        })?;
        if reth.length != WORD {
            let (announced, arrived) = (reth.length, WORD.into());
            let cause = Cause::MessageLength { announced, arrived };
            return Err(ctx.blame(Fault::MessageLength, cause).into());
        }
        let (key, address) = (reth.key.value(), reth.address);
        let stored = match address.is_multiple_of(8) {
            true => ctx.keys.store(key, base.peer_access(), address, value),
            false => Err(KeyFault::Misaligned),
        };
        stored.map_err(|found| match found {
            KeyFault::Misaligned => ctx.blame(Fault::Misaligned, Cause::Misaligned { address }),
            _ => ctx.deny(key, (address, WORD.into()), Access::REMOTE_WRITE, found),
        })?;
        self.carried_out(base, RecordKind::Done, Answer::Done);
        Ok(())
    }

    /// Makes sure that earlier WRITEs are placed as the peer asks.
    pub(super) fn flush(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        feth: &Feth,
        reth: &Reth,
    ) -> Result<(), Refusal> {
        let placement = FlushPlacement::from_bits(feth.placement);
        let selectivity = FlushSelectivity::from_code(feth.selectivity);
        let (Some(placement), Some(selectivity)) = (placement, selectivity) else {
            let cause = Cause::UnsupportedOpcode { opcode: None };
            return Err(ctx.blame(Fault::UnsupportedOpcode, cause).into());
        };
        check_allowed(base, ctx, placement.needs())?;
        self.check_read_resources(base, ctx)?;
        place(base, ctx, placement, selectivity, reth)?;
        self.carried_out(base, RecordKind::Done, Answer::Done);
        Ok(())
    }
}

/// Checks the key and does what a FLUSH asks for. The key of an empty range does not matter, as with
/// WRITE and READ.
fn place(
    base: &Base,
    ctx: &mut Context<'_>,
    placement: FlushPlacement,
    selectivity: FlushSelectivity,
    reth: &Reth,
) -> Result<(), Fault> {
    let (key, need) = (reth.key.value(), placement.needs());
    let span = match selectivity {
        FlushSelectivity::Region => ctx.keys.whole(key, base.peer_access(), need),
        FlushSelectivity::Range if reth.length == 0 => return Ok(()),
        FlushSelectivity::Range if u64::from(reth.length) > MAX_MESSAGE => {
            let (announced, arrived) = (reth.length, reth.length.into());
            let cause = Cause::MessageLength { announced, arrived };
            return Err(ctx.blame(Fault::MessageLength, cause));
        }
        FlushSelectivity::Range => {
            ctx.keys.span(key, base.peer_access(), reth.address, reth.length as usize, need)
        }
    };
    fence(Ordering::SeqCst);
    let asked = (reth.address, reth.length.into());
    match span.map(|span| !placement.persists() || span.persist().is_ok()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let denial = ctx.keys.denial(key, asked, need, KeyFault::Unmapped);
            Err(ctx.blame(Fault::FlushFailed, Cause::FlushFailed(denial)))
        }
        Err(found) => Err(ctx.deny(key, asked, need, found)),
    }
}
