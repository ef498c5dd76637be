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
use crate::transport::assembly::Refusal;
use crate::transport::context::{Base, Context};
use crate::transport::fault::Fault;
use crate::wire::{Feth, Reth};

/// Bytes that an ATOMIC WRITE carries, exactly (oA19-28).
const WORD: u32 = 8;

impl Responder {
    /// Stores eight bytes at once.
    pub(super) fn atomic_write(
        &mut self,
        base: &Base,
        ctx: &Context<'_>,
        reth: &Reth,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        if !base.access().contains(Access::REMOTE_WRITE) {
            return Err(Fault::NotAllowed.into());
        }
        self.check_read_resources(base)?;
        let value = payload.try_into().map_err(|_| Fault::PacketLength)?;
        if reth.length != WORD {
            return Err(Fault::MessageLength.into());
        }
        if !reth.address.is_multiple_of(8) {
            return Err(Fault::Misaligned.into());
        }
        let stored = ctx.keys.store(reth.key.value(), base.peer_access(), reth.address, value);
        stored.map_err(|fault| match fault {
            KeyFault::Misaligned => Fault::Misaligned,
            _ => Fault::RemoteAccess,
        })?;
        self.carried_out(base, RecordKind::Done, Answer::Done);
        Ok(())
    }

    /// Makes sure that earlier WRITEs are placed as the peer asks.
    pub(super) fn flush(
        &mut self,
        base: &Base,
        ctx: &Context<'_>,
        feth: &Feth,
        reth: &Reth,
    ) -> Result<(), Refusal> {
        let placement = FlushPlacement::from_bits(feth.placement);
        let selectivity = FlushSelectivity::from_code(feth.selectivity);
        let (Some(placement), Some(selectivity)) = (placement, selectivity) else {
            return Err(Fault::UnsupportedOpcode.into());
        };
        if !base.access().contains(placement.needs()) {
            return Err(Fault::NotAllowed.into());
        }
        self.check_read_resources(base)?;
        place(base, ctx, placement, selectivity, reth)?;
        self.carried_out(base, RecordKind::Done, Answer::Done);
        Ok(())
    }
}

/// Checks the key and does what a FLUSH asks for. The key of an empty range does not matter, as with
/// WRITE and READ.
fn place(
    base: &Base,
    ctx: &Context<'_>,
    placement: FlushPlacement,
    selectivity: FlushSelectivity,
    reth: &Reth,
) -> Result<(), Fault> {
    let (key, need) = (reth.key.value(), placement.needs());
    let span = match selectivity {
        FlushSelectivity::Region => ctx.keys.whole(key, base.peer_access(), need),
        FlushSelectivity::Range if reth.length == 0 => return Ok(()),
        FlushSelectivity::Range if u64::from(reth.length) > MAX_MESSAGE => {
            return Err(Fault::MessageLength);
        }
        FlushSelectivity::Range => {
            ctx.keys.span(key, base.peer_access(), reth.address, reth.length as usize, need)
        }
    };
    let span = span.map_err(|_| Fault::RemoteAccess)?;
    fence(Ordering::SeqCst);
    if placement.persists() {
        span.persist().map_err(|_| Fault::FlushFailed)?;
    }
    Ok(())
}
