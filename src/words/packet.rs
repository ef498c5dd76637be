//! A line for each packet of a trace.

use super::record::syndrome;
use crate::wire::{
    Aeth, AtomicEth, Flow, Headers, ICRC_LENGTH, Message, Opcode, Packet, Reth, SendTail, Service,
};

/// Which way a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Sent by us.
    Out,
    /// Received.
    In,
}

const fn arrow(direction: Direction) -> &'static str {
    match direction {
        Direction::Out => "out",
        Direction::In => "in ",
    }
}

/// A packet in words: who to whom, what, which PSN, what its headers say, how many bytes.
pub fn packet(direction: Direction, flow: &Flow, headers: &Headers, payload: usize) -> String {
    let arrow = arrow(direction);
    let opcode = headers.opcode().and_then(Opcode::from_byte);
    let name = opcode.map_or("?", Opcode::name);
    let ask = if headers.ack_request { ", asks for ACK" } else { "" };
    let solicited = if headers.solicited { ", solicited" } else { "" };
    let sized = match payload {
        0 => String::new(),
        bytes => format!(", {}", super::number::bytes(bytes as u64)),
    };
    format!(
        "{arrow} {} > {} qp {} {name} PSN {}{}{sized}{ask}{solicited}",
        flow.source,
        flow.destination,
        headers.destination,
        headers.psn,
        details(headers)
    )
}

/// Payload bytes of a packet of so many bytes in all.
pub fn payload_of(segment: &[u8]) -> Option<(Headers, usize)> {
    let packet = Packet::parse(segment).ok()?;
    debug_assert!(segment.len() >= packet.payload.len() + ICRC_LENGTH);
    Some((packet.headers, packet.payload.len()))
}

fn details(headers: &Headers) -> String {
    let service = match headers.service {
        Service::Ud(deth) => format!(", from qp {} with Q_Key {}", deth.source, deth.qkey),
        _ => String::new(),
    };
    let message = match &headers.message {
        Message::WriteFirst(reth) | Message::WriteOnly(reth, None) => place("to", reth),
        Message::WriteOnly(reth, Some(immediate)) => {
            format!("{}, immediate {:02x?}", place("to", reth), immediate.0)
        }
        Message::ReadRequest(reth) => place("from", reth),
        Message::AtomicWrite(reth) | Message::Flush(_, reth) => place("at", reth),
        Message::CompareSwap(eth) | Message::FetchAdd(eth) => atomic(eth),
        Message::SendLast(tail) | Message::SendOnly(tail) => send(tail),
        Message::WriteLast(Some(immediate)) => format!(", immediate {:02x?}", immediate.0),
        Message::ReadResponseFirst(aeth)
        | Message::ReadResponseLast(aeth)
        | Message::ReadResponseOnly(aeth)
        | Message::Acknowledge(aeth) => answer(aeth),
        Message::AtomicAcknowledge(aeth, original) => {
            format!("{}, the value was {original:#x}", answer(aeth))
        }
        _ => String::new(),
    };
    service + &message
}

fn place(preposition: &str, reth: &Reth) -> String {
    format!(", {} bytes {preposition} {:#x} with key {}", reth.length, reth.address, reth.key)
}

fn atomic(eth: &AtomicEth) -> String {
    format!(
        ", at {:#x} with key {}, operand {:#x}, compare {:#x}",
        eth.address, eth.key, eth.swap_or_add, eth.compare
    )
}

fn send(tail: &SendTail) -> String {
    match tail {
        SendTail::Plain => String::new(),
        SendTail::Immediate(immediate) => format!(", immediate {:02x?}", immediate.0),
        SendTail::Invalidate(key) => format!(", invalidates key {key}"),
    }
}

fn answer(aeth: &Aeth) -> String {
    let plural = if aeth.msn.value() == 1 { "" } else { "s" };
    format!(", {}, {} message{plural} done", syndrome(aeth.syndrome), aeth.msn)
}

/// The same of bytes that are no packet.
pub fn malformed(direction: Direction, flow: &Flow, what: &str) -> String {
    format!("{} {} > {} {what}", arrow(direction), flow.source, flow.destination)
}
