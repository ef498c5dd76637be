//! What a packet on the network is about, as far as counting needs it.

use crate::wire::{Aeth, Headers, Message, Packet, Psn, Qpn, Rkey, SendTail, Service, Syndrome};

use super::credits::{Begins, Told};
use super::matrix::Row;

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) row: Option<Row>,
    pub(super) is_request: bool,
    /// Nanoseconds that "receiver not ready" asks to wait.
    pub(super) pause: Option<u64>,
    pub(super) destination: Qpn,
    pub(super) psn: u32,
    /// The key of the receiver's memory that it names.
    pub(super) key: Option<Rkey>,
    /// Nobody may answer it.
    pub(super) is_unacked: bool,
    /// Which end's request it belongs to: its sender's, or of an answer its receiver's. Only the
    /// network knows.
    pub(super) requester: Option<usize>,
    /// Who sent a datagram.
    pub(super) source: Option<Qpn>,
    /// A receive has to be there for it, if it is of a transport without acknowledgements.
    pub(super) needs_receive: bool,
    /// Begins, and ends, a message.
    pub(super) edges: (bool, bool),
    /// A request's place among messages.
    pub(super) begins: Begins,
    /// What an answer says about receives.
    pub(super) told: Option<Told>,
}

/// Looks at a UDP payload.
pub(super) fn classify(bytes: &[u8]) -> Option<Seen> {
    let headers = Packet::parse(bytes).ok()?.headers;
    let row = row(&headers);
    let pause = match headers.message {
        Message::Acknowledge(Aeth { syndrome: Syndrome::RnrNak(timer), .. }) => Some(timer.nanos()),
        _ => None,
    };
    let is_request = headers.message.operation().is_some_and(|one| one.is_request());
    let (destination, psn) = (headers.destination, headers.psn.value());
    let key = key(&headers.message);
    let (is_unacked, source) = match headers.service {
        Service::Uc => (true, None),
        Service::Ud(deth) => (true, Some(deth.source)),
        _ => (false, None),
    };
    let needs_receive = is_unacked && needs_receive(&headers.message);
    let edges = edges(&headers.message);
    Some(Seen {
        row,
        is_request,
        pause,
        destination,
        psn,
        key,
        is_unacked,
        requester: None,
        source,
        needs_receive,
        edges,
        begins: begins(&headers.message),
        told: told(headers.psn, &headers.message),
    })
}

const fn begins(message: &Message) -> Begins {
    let (is_send, is_write) = (
        matches!(message, Message::SendFirst | Message::SendOnly(_)),
        matches!(message, Message::WriteFirst(_) | Message::WriteOnly(..)),
    );
    let is_other = matches!(
        message,
        Message::ReadRequest(_)
            | Message::CompareSwap(_)
            | Message::FetchAdd(_)
            | Message::AtomicWrite(_)
            | Message::Flush(..)
    );
    let reads = match message {
        Message::ReadRequest(reth) => Some(reth.length),
        _ => None,
    };
    let receive = is_send || matches!(message, Message::WriteOnly(_, Some(_)));
    Begins { message: is_send || is_write || is_other, receive, reads }
}

fn told(psn: Psn, message: &Message) -> Option<Told> {
    let (Message::Acknowledge(aeth)
    | Message::ReadResponseFirst(aeth)
    | Message::ReadResponseLast(aeth)
    | Message::ReadResponseOnly(aeth)
    | Message::AtomicAcknowledge(aeth, _)) = message
    else {
        return None;
    };
    let finished = aeth.msn.value();
    let Syndrome::Ack(credits) = aeth.syndrome else {
        return Some(Told { reaches: psn.value(), is_refusal: true, finished, credits: None });
    };
    let credits = credits.count();
    Some(Told { reaches: psn.add(1).value(), is_refusal: false, finished, credits })
}

/// What a packet is if its key is one of the receiver's window.
pub(super) const fn through_window(row: Row) -> Row {
    match row {
        Row::Write => Row::WindowWrite,
        Row::Read => Row::WindowRead,
        Row::SendInvalidate => Row::WindowInvalidate,
        row => row,
    }
}

const fn key(message: &Message) -> Option<Rkey> {
    match message {
        Message::WriteFirst(reth) | Message::WriteOnly(reth, _) | Message::ReadRequest(reth) => {
            Some(reth.key)
        }
        Message::SendLast(SendTail::Invalidate(key))
        | Message::SendOnly(SendTail::Invalidate(key)) => Some(*key),
        _ => None,
    }
}

/// Packets for which a receive is looked for, where nobody can ask the sender to wait.
const fn needs_receive(message: &Message) -> bool {
    matches!(
        message,
        Message::SendFirst
            | Message::SendOnly(_)
            | Message::WriteLast(Some(_))
            | Message::WriteOnly(_, Some(_))
    )
}

const fn edges(message: &Message) -> (bool, bool) {
    match message {
        Message::SendOnly(_) | Message::WriteOnly(..) => (true, true),
        Message::SendFirst | Message::WriteFirst(_) => (true, false),
        Message::SendLast(_) | Message::WriteLast(_) => (false, true),
        _ => (false, false),
    }
}

fn row(headers: &Headers) -> Option<Row> {
    let row = row_of_message(&headers.message)?;
    let is_send = matches!(row, Row::Send | Row::SendImmediate);
    let is_write = matches!(row, Row::Write | Row::WriteImmediate);
    match headers.service {
        Service::Uc if is_send => Some(Row::UcSend),
        Service::Uc if is_write => Some(Row::UcWrite),
        Service::Ud(_) if is_send && headers.destination == Qpn::MULTICAST => Some(Row::UdGroup),
        Service::Ud(_) if is_send => Some(Row::UdSend),
        Service::Uc | Service::Ud(_) => None,
        Service::XrcRequest(_) if is_send || row == Row::SendInvalidate => Some(Row::XrcSend),
        Service::XrcRequest(_) if is_write => Some(Row::XrcWrite),
        Service::XrcRequest(_) if row == Row::Read => Some(Row::XrcRead),
        Service::XrcRequest(_) => Some(Row::XrcAtomic),
        _ => Some(row),
    }
}

fn row_of_message(message: &Message) -> Option<Row> {
    Some(match message {
        Message::SendFirst | Message::SendMiddle => Row::Send,
        Message::SendLast(tail) | Message::SendOnly(tail) => match tail {
            SendTail::Plain => Row::Send,
            SendTail::Immediate(_) => Row::SendImmediate,
            SendTail::Invalidate(_) => Row::SendInvalidate,
        },
        Message::WriteFirst(_) | Message::WriteMiddle => Row::Write,
        Message::WriteLast(None) | Message::WriteOnly(_, None) => Row::Write,
        Message::WriteLast(Some(_)) | Message::WriteOnly(_, Some(_)) => Row::WriteImmediate,
        Message::ReadRequest(_) => Row::Read,
        Message::CompareSwap(_) => Row::CompareSwap,
        Message::FetchAdd(_) => Row::FetchAdd,
        Message::AtomicWrite(_) => Row::AtomicWrite,
        Message::Flush(..) => Row::Flush,
        Message::ReadResponseFirst(_)
        | Message::ReadResponseMiddle
        | Message::ReadResponseLast(_)
        | Message::ReadResponseOnly(_) => Row::ReadResponse,
        Message::AtomicAcknowledge(..) => Row::AtomicAnswer,
        Message::Acknowledge(aeth) => match aeth.syndrome {
            Syndrome::Ack(_) => Row::Acknowledge,
            _ => Row::Nak,
        },
        _ => return None,
    })
}
