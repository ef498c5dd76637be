//! What a single packet can already tell to be impossible, once its headers are read. Reserved bits
//! never matter. Rules: InfiniBand specification, sections 9.2 to 9.7, and annex A19 for ATOMIC
//! WRITE; `protocol.md` section 4 items 7 and 8.

use super::{Issue, Issues, RdmaPacket};
use crate::wire::{Feth, Mad, NakCode, Operation, Syndrome};

/// The largest path MTU.
pub(super) const MAX_PATH_MTU: usize = 4096;
const MAX_DMA_LENGTH: u32 = 1 << 31;

/// The issues of a packet's headers and lengths.
pub(super) fn check(packet: &RdmaPacket<'_>) -> Issues {
    let mut issues = Issues::NONE;
    let Some(bth) = packet.bth else { return issues };
    if bth.pkey.value() & 0x7fff == 0 {
        issues.add(Issue::InvalidPkey);
    }
    let Some(opcode) = packet.opcode else { return issues };
    if let Some(length) = packet.payload_length {
        if length > 0 && !opcode.has_payload() {
            issues.add(Issue::UnexpectedPayload);
        }
        if length > MAX_PATH_MTU {
            issues.add(Issue::OverPathMtu);
        }
    }
    if let Some(operation) = opcode.operation() {
        payload(packet, operation, &mut issues);
        address(packet, operation, &mut issues);
    }
    if let Some(aeth) = packet.headers.aeth {
        syndrome(aeth.syndrome, &mut issues);
    }
    if is_management(packet) && packet.payload_length.is_some() {
        management(packet, &mut issues);
    }
    issues
}

/// Whether the packet is for the queue pair of the subnet (0) or of general services (1).
pub(super) fn is_management(packet: &RdmaPacket<'_>) -> bool {
    let to_management = packet.bth.is_some_and(|bth| bth.destination.value() <= 1);
    to_management && packet.headers.deth.is_some()
}

/// How many bytes an operation's packet may have.
fn payload(packet: &RdmaPacket<'_>, operation: Operation, issues: &mut Issues) {
    use Operation as Is;
    let Some(length) = packet.payload_length else { return };
    let announced = packet.headers.reth.map(|reth| reth.length as usize);
    let is_path_mtu = (256..=MAX_PATH_MTU).contains(&length) && length.is_power_of_two();
    let is_announced = |test: fn(usize, usize) -> bool| announced.is_some_and(|a| test(a, length));
    // A first packet is followed by at least one byte more.
    if operation == Is::WriteFirst && is_announced(|announced, length| announced <= length) {
        issues.add(Issue::DmaLengthMismatch);
    }
    let found = match operation {
        Is::SendFirst
        | Is::SendMiddle
        | Is::WriteFirst
        | Is::WriteMiddle
        | Is::ReadResponseFirst
        | Is::ReadResponseMiddle
            if !is_path_mtu && length <= MAX_PATH_MTU =>
        {
            Issue::NotPathMtu
        }
        Is::SendLast
        | Is::SendLastWithImmediate
        | Is::SendLastWithInvalidate
        | Is::WriteLast
        | Is::WriteLastWithImmediate
        | Is::ReadResponseLast
            if length == 0 =>
        {
            Issue::EmptyLast
        }
        Is::WriteOnly | Is::WriteOnlyWithImmediate
            if is_announced(|announced, length| announced != length) =>
        {
            Issue::DmaLengthMismatch
        }
        Is::AtomicWrite if length != 8 || announced.is_some_and(|announced| announced != 8) => {
            Issue::BadAtomicWrite
        }
        _ => return,
    };
    issues.add(found);
}

fn address(packet: &RdmaPacket<'_>, operation: Operation, issues: &mut Issues) {
    let headers = &packet.headers;
    // The FLUSH of a whole region leaves address and length out of account.
    let is_region = headers.feth.is_some_and(|feth| feth.selectivity == Feth::REGION);
    if headers.reth.is_some_and(|reth| reth.length > MAX_DMA_LENGTH && !is_region) {
        issues.add(Issue::DmaLengthTooLong);
    }
    let atomic_write = headers.reth.filter(|_| operation == Operation::AtomicWrite);
    let address = headers.atomic.map(|atomic| atomic.address);
    let address = address.or_else(|| atomic_write.map(|reth| reth.address));
    if address.is_some_and(|address| !address.is_multiple_of(8)) {
        issues.add(Issue::Misaligned);
    }
}

fn syndrome(syndrome: Syndrome, issues: &mut Issues) {
    let reserved =
        matches!(syndrome.meaning(), Syndrome::Reserved(_) | Syndrome::Nak(NakCode::Reserved(_)));
    if reserved {
        issues.add(Issue::ReservedSyndrome);
    }
}

fn management(packet: &RdmaPacket<'_>, issues: &mut Issues) {
    let whole = packet.payload_length == Some(Mad::DATAGRAM_LENGTH);
    // What was cut off cannot be wrong.
    let version = packet.payload.first().is_none_or(|version| *version == 1);
    if !whole || !version {
        issues.add(Issue::BadMad);
    }
}
