//! What a packet on the network is about, as far as counting needs it.

use crate::wire::{Aeth, Message, Packet, Qpn, SendTail, Syndrome};

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
}

/// Looks at a UDP payload.
pub(super) fn classify(bytes: &[u8]) -> Option<Seen> {
    let headers = Packet::parse(bytes).ok()?.headers;
    let row = row(&headers.message);
    let pause = match headers.message {
        Message::Acknowledge(Aeth { syndrome: Syndrome::RnrNak(timer), .. }) => Some(timer.nanos()),
        _ => None,
    };
    let is_request = headers.message.operation().is_some_and(|one| one.is_request());
    let (destination, psn) = (headers.destination, headers.psn.value());
    Some(Seen { row, is_request, pause, destination, psn })
}

fn row(message: &Message) -> Option<Row> {
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
