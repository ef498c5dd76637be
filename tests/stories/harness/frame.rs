//! Frames as stories write them: PSNs are counted from the start of the stream that they belong
//! to, and the destination is whoever the frame goes to.

use std::fmt;

use uroce::wire::{
    Aeth, AtomicEth, Credits, Deth, Feth, Headers, Immediate, Message, Msn, NakCode, PKey, Psn,
    QKey, Qpn, Reth, Rkey, RnrTimer, SendTail, Service, Srqn, Syndrome, Xrceth,
};

/// A frame, with what the story does not repeat left out.
#[derive(Clone, PartialEq)]
pub struct Frame {
    /// The PSN is relative, the destination 0.
    pub headers: Headers,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn new(message: Message, psn: i32, payload: &[u8]) -> Self {
        Self::of(Service::Rc, message, psn, payload)
    }

    /// A frame of another transport.
    pub fn of(service: Service, message: Message, psn: i32, payload: &[u8]) -> Self {
        let headers = Headers::request(service, message, Qpn::default(), Psn::new(psn as u32));
        Self { headers, payload: payload.to_vec() }
    }

    /// The same request on an extended reliable connection, for a shared receive queue.
    pub fn xrc(mut self, srqn: Srqn) -> Self {
        self.headers.service = Service::XrcRequest(Xrceth { reserved: 0, srqn });
        self
    }

    /// The same answer on an extended reliable connection.
    pub fn xrc_answer(mut self) -> Self {
        self.headers.service = Service::XrcResponse;
        self
    }

    /// The same on an unreliable connection.
    pub fn uc(mut self) -> Self {
        self.headers.service = Service::Uc;
        self
    }

    /// The same as a datagram of the peer's queue pair `source`.
    pub fn ud(mut self, qkey: QKey, source: u32) -> Self {
        self.headers.service = Service::Ud(Deth { qkey, reserved: 0, source: Qpn::new(source) });
        self
    }

    /// With AckReq.
    pub fn asking(mut self) -> Self {
        self.headers.ack_request = true;
        self
    }

    /// With the solicited event bit.
    pub fn solicited(mut self) -> Self {
        self.headers.solicited = true;
        self
    }

    pub fn migration(mut self, migration: bool) -> Self {
        self.headers.migration = migration;
        self
    }

    pub fn pkey(mut self, pkey: u16) -> Self {
        self.headers.pkey = PKey::new(pkey);
        self
    }

    /// Whether it answers a request, and so belongs to the stream of the one who asked.
    pub fn is_response(&self) -> bool {
        self.stream() == Stream::Requester
    }

    /// Whose PSNs it counts.
    pub fn stream(&self) -> Stream {
        match self.headers.message.operation() {
            Some(operation) if operation.is_request() => Stream::Responder,
            Some(_) => Stream::Requester,
            None => Stream::None,
        }
    }
}

/// The stream to which a frame's PSN belongs, by the receiver of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// It answers what the receiver asked.
    Requester,
    /// It asks.
    Responder,
    /// A congestion notification: its PSN is 0.
    None,
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Headers { service, message, psn, ack_request, solicited, migration, pkey, .. } =
            &self.headers;
        let signed = ((psn.value() << 8) as i32) >> 8;
        write!(f, "psn {signed} {message:?}")?;
        if let Service::XrcRequest(Xrceth { srqn, .. }) = service {
            write!(f, " for {srqn}")?;
        }
        let flags = [
            (*ack_request, " AckReq"),
            (*solicited, " solicited"),
            (!*migration, " MigReq 0"),
            (*service != Service::Rc, " not RC"),
            (*pkey != PKey::DEFAULT, " other P_Key"),
        ];
        for (_, name) in flags.into_iter().filter(|(set, _)| *set) {
            f.write_str(name)?;
        }
        let shown = &self.payload[..self.payload.len().min(8)];
        write!(f, ", {} bytes {shown:02x?}", self.payload.len())
    }
}

pub fn send_first(psn: i32, payload: &[u8]) -> Frame {
    Frame::new(Message::SendFirst, psn, payload)
}

pub fn send_middle(psn: i32, payload: &[u8]) -> Frame {
    Frame::new(Message::SendMiddle, psn, payload)
}

pub fn send_last(psn: i32, payload: &[u8]) -> Frame {
    Frame::new(Message::SendLast(SendTail::Plain), psn, payload)
}

pub fn send_only(psn: i32, payload: &[u8]) -> Frame {
    Frame::new(Message::SendOnly(SendTail::Plain), psn, payload)
}

pub fn send_only_immediate(psn: i32, payload: &[u8], immediate: [u8; 4]) -> Frame {
    Frame::new(Message::SendOnly(SendTail::Immediate(Immediate(immediate))), psn, payload)
}

pub fn send_only_invalidate(psn: i32, payload: &[u8], key: Rkey) -> Frame {
    Frame::new(Message::SendOnly(SendTail::Invalidate(key)), psn, payload)
}

pub fn write_first(psn: i32, reth: Reth, payload: &[u8]) -> Frame {
    Frame::new(Message::WriteFirst(reth), psn, payload)
}

pub fn write_middle(psn: i32, payload: &[u8]) -> Frame {
    Frame::new(Message::WriteMiddle, psn, payload)
}

pub fn write_last(psn: i32, payload: &[u8]) -> Frame {
    Frame::new(Message::WriteLast(None), psn, payload)
}

pub fn write_last_immediate(psn: i32, payload: &[u8], immediate: [u8; 4]) -> Frame {
    Frame::new(Message::WriteLast(Some(Immediate(immediate))), psn, payload)
}

pub fn write_only(psn: i32, reth: Reth, payload: &[u8]) -> Frame {
    Frame::new(Message::WriteOnly(reth, None), psn, payload)
}

pub fn write_only_immediate(psn: i32, reth: Reth, payload: &[u8], immediate: [u8; 4]) -> Frame {
    Frame::new(Message::WriteOnly(reth, Some(Immediate(immediate))), psn, payload)
}

pub fn read_request(psn: i32, reth: Reth) -> Frame {
    Frame::new(Message::ReadRequest(reth), psn, &[])
}

pub fn compare_swap(psn: i32, reth: Reth, compare: u64, swap: u64) -> Frame {
    let Reth { address, key, .. } = reth;
    let eth = AtomicEth { address, key, swap_or_add: swap, compare };
    Frame::new(Message::CompareSwap(eth), psn, &[])
}

pub fn fetch_add(psn: i32, reth: Reth, add: u64) -> Frame {
    let Reth { address, key, .. } = reth;
    let eth = AtomicEth { address, key, swap_or_add: add, compare: 0 };
    Frame::new(Message::FetchAdd(eth), psn, &[])
}

pub fn atomic_write(psn: i32, reth: Reth, value: &[u8]) -> Frame {
    Frame::new(Message::AtomicWrite(reth), psn, value)
}

/// `placement` and `selectivity` as in the header.
pub fn flush(psn: i32, reth: Reth, placement: u8, selectivity: u8) -> Frame {
    Frame::new(Message::Flush(Feth { reserved: 0, selectivity, placement }, reth), psn, &[])
}

/// The answer to ATOMIC WRITE and FLUSH.
pub fn done(psn: i32, msn: u32) -> Frame {
    read_response_only(psn, msn, &[])
}

/// What an ACK says, with `msn` messages finished.
pub fn acknowledging(msn: u32) -> Aeth {
    Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: Msn::new(msn) }
}

pub fn ack(psn: i32, msn: u32) -> Frame {
    Frame::new(Message::Acknowledge(acknowledging(msn)), psn, &[])
}

/// An ACK with a credit code.
pub fn ack_with_credits(psn: i32, msn: u32, code: u8) -> Frame {
    let syndrome = Syndrome::Ack(Credits::new(code));
    Frame::new(Message::Acknowledge(Aeth { syndrome, msn: Msn::new(msn) }), psn, &[])
}

pub fn nak(psn: i32, msn: u32, code: NakCode) -> Frame {
    let aeth = Aeth { syndrome: Syndrome::Nak(code), msn: Msn::new(msn) };
    Frame::new(Message::Acknowledge(aeth), psn, &[])
}

/// NAK 0x60.
pub fn sequence_nak(psn: i32, msn: u32) -> Frame {
    nak(psn, msn, NakCode::PsnSequenceError)
}

pub fn rnr_nak(psn: i32, msn: u32, timer: u8) -> Frame {
    let syndrome = Syndrome::RnrNak(RnrTimer::new(timer));
    Frame::new(Message::Acknowledge(Aeth { syndrome, msn: Msn::new(msn) }), psn, &[])
}

pub fn read_response_first(psn: i32, msn: u32, payload: &[u8]) -> Frame {
    Frame::new(Message::ReadResponseFirst(acknowledging(msn)), psn, payload)
}

pub fn read_response_middle(psn: i32, payload: &[u8]) -> Frame {
    Frame::new(Message::ReadResponseMiddle, psn, payload)
}

pub fn read_response_last(psn: i32, msn: u32, payload: &[u8]) -> Frame {
    Frame::new(Message::ReadResponseLast(acknowledging(msn)), psn, payload)
}

pub fn read_response_only(psn: i32, msn: u32, payload: &[u8]) -> Frame {
    Frame::new(Message::ReadResponseOnly(acknowledging(msn)), psn, payload)
}

pub fn atomic_ack(psn: i32, msn: u32, original: u64) -> Frame {
    Frame::new(Message::AtomicAcknowledge(acknowledging(msn), original), psn, &[])
}

/// All responses of a READ of `data`, of path MTU `mtu`, the first with `psn`.
pub fn read_responses(psn: i32, msn: u32, data: &[u8], mtu: usize) -> Vec<Frame> {
    let pieces: Vec<&[u8]> = if data.is_empty() { vec![data] } else { data.chunks(mtu).collect() };
    let last = pieces.len() - 1;
    let response = |(index, piece): (usize, &&[u8])| {
        let psn = psn + index as i32;
        match (index == 0, index == last) {
            (true, true) => read_response_only(psn, msn, piece),
            (true, false) => read_response_first(psn, msn, piece),
            (false, true) => read_response_last(psn, msn, piece),
            (false, false) => read_response_middle(psn, piece),
        }
    };
    pieces.iter().enumerate().map(response).collect()
}
