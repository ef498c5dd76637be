//! What a packet says, with exactly the headers that it needs: a `WriteFirst` cannot lack its
//! RETH and a `WriteMiddle` cannot have one.

use super::field::{put_u32, put_u64, u32_at, u64_at};
use super::{Aeth, AtomicEth, Deth, Feth, Immediate, Operation, Rdeth, Reth, Rkey, Transport};
use super::{Opcode, Xrceth};

/// What the last packet of a SEND brings beside the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendTail {
    /// Nothing.
    Plain,
    /// Immediate data.
    Immediate(Immediate),
    /// A key for the receiver to invalidate (RC and XRC only).
    Invalidate(Rkey),
}

/// What a packet asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// First packet of a SEND.
    SendFirst,
    /// Middle packet of a SEND.
    SendMiddle,
    /// Last packet of a SEND.
    SendLast(SendTail),
    /// Only packet of a SEND.
    SendOnly(SendTail),
    /// First packet of an RDMA WRITE.
    WriteFirst(Reth),
    /// Middle packet of an RDMA WRITE.
    WriteMiddle,
    /// Last packet of an RDMA WRITE.
    WriteLast(Option<Immediate>),
    /// Only packet of an RDMA WRITE.
    WriteOnly(Reth, Option<Immediate>),
    /// RDMA READ request.
    ReadRequest(Reth),
    /// Atomic compare and swap.
    CompareSwap(AtomicEth),
    /// Atomic fetch and add.
    FetchAdd(AtomicEth),
    /// ATOMIC WRITE; its eight bytes are the payload.
    AtomicWrite(Reth),
    /// FLUSH.
    Flush(Feth, Reth),
    /// Resynchronisation of a reliable datagram channel.
    Resync,
    /// First packet of an RDMA READ response.
    ReadResponseFirst(Aeth),
    /// Middle packet of an RDMA READ response.
    ReadResponseMiddle,
    /// Last packet of an RDMA READ response.
    ReadResponseLast(Aeth),
    /// Only packet of an RDMA READ response; also the answer to FLUSH and ATOMIC WRITE.
    ReadResponseOnly(Aeth),
    /// ACK, NAK or RNR NAK.
    Acknowledge(Aeth),
    /// Answer to an atomic, with the value before.
    AtomicAcknowledge(Aeth, u64),
    /// Congestion notification, with its reserved bytes.
    CongestionNotification([u8; 16]),
}

/// The transport, with the headers that it puts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud(Deth),
    /// Request on an extended reliable connection.
    XrcRequest(Xrceth),
    /// Answer on an extended reliable connection.
    XrcResponse,
    /// Request on a reliable datagram channel.
    RdRequest(Rdeth, Deth),
    /// Answer on a reliable datagram channel.
    RdResponse(Rdeth),
    /// The service of congestion notifications, which belongs to no transport.
    Congestion,
}

impl Message {
    /// The operation in the opcode; a congestion notification has none.
    pub const fn operation(&self) -> Option<Operation> {
        Some(match self {
            Self::SendFirst => Operation::SendFirst,
            Self::SendMiddle => Operation::SendMiddle,
            Self::SendLast(SendTail::Plain) => Operation::SendLast,
            Self::SendLast(SendTail::Immediate(_)) => Operation::SendLastWithImmediate,
            Self::SendLast(SendTail::Invalidate(_)) => Operation::SendLastWithInvalidate,
            Self::SendOnly(SendTail::Plain) => Operation::SendOnly,
            Self::SendOnly(SendTail::Immediate(_)) => Operation::SendOnlyWithImmediate,
            Self::SendOnly(SendTail::Invalidate(_)) => Operation::SendOnlyWithInvalidate,
            Self::WriteFirst(_) => Operation::WriteFirst,
            Self::WriteMiddle => Operation::WriteMiddle,
            Self::WriteLast(None) => Operation::WriteLast,
            Self::WriteLast(Some(_)) => Operation::WriteLastWithImmediate,
            Self::WriteOnly(_, None) => Operation::WriteOnly,
            Self::WriteOnly(_, Some(_)) => Operation::WriteOnlyWithImmediate,
            Self::ReadRequest(_) => Operation::ReadRequest,
            Self::CompareSwap(_) => Operation::CompareSwap,
            Self::FetchAdd(_) => Operation::FetchAdd,
            Self::AtomicWrite(_) => Operation::AtomicWrite,
            Self::Flush(..) => Operation::Flush,
            Self::Resync => Operation::Resync,
            Self::ReadResponseFirst(_) => Operation::ReadResponseFirst,
            Self::ReadResponseMiddle => Operation::ReadResponseMiddle,
            Self::ReadResponseLast(_) => Operation::ReadResponseLast,
            Self::ReadResponseOnly(_) => Operation::ReadResponseOnly,
            Self::Acknowledge(_) => Operation::Acknowledge,
            Self::AtomicAcknowledge(..) => Operation::AtomicAcknowledge,
            Self::CongestionNotification(_) => return None,
        })
    }

    /// Reads the headers of `operation` from the front of `rest` and moves it on; nothing if it
    /// is too short.
    pub(super) fn parse(operation: Operation, rest: &mut &[u8]) -> Option<Self> {
        Some(match operation {
            Operation::SendFirst => Self::SendFirst,
            Operation::SendMiddle => Self::SendMiddle,
            Operation::SendLast => Self::SendLast(SendTail::Plain),
            Operation::SendOnly => Self::SendOnly(SendTail::Plain),
            Operation::SendLastWithImmediate => Self::SendLast(immediate_tail(rest)?),
            Operation::SendOnlyWithImmediate => Self::SendOnly(immediate_tail(rest)?),
            Operation::SendLastWithInvalidate => Self::SendLast(invalidate_tail(rest)?),
            Operation::SendOnlyWithInvalidate => Self::SendOnly(invalidate_tail(rest)?),
            Operation::WriteFirst => Self::WriteFirst(Reth::parse(take(rest)?)),
            Operation::WriteMiddle => Self::WriteMiddle,
            Operation::WriteLast => Self::WriteLast(None),
            Operation::WriteLastWithImmediate => {
                Self::WriteLast(Some(Immediate::parse(take(rest)?)))
            }
            Operation::WriteOnly => Self::WriteOnly(Reth::parse(take(rest)?), None),
            Operation::WriteOnlyWithImmediate => {
                let reth = Reth::parse(take(rest)?);
                Self::WriteOnly(reth, Some(Immediate::parse(take(rest)?)))
            }
            Operation::ReadRequest => Self::ReadRequest(Reth::parse(take(rest)?)),
            Operation::CompareSwap => Self::CompareSwap(AtomicEth::parse(take(rest)?)),
            Operation::FetchAdd => Self::FetchAdd(AtomicEth::parse(take(rest)?)),
            Operation::AtomicWrite => Self::AtomicWrite(Reth::parse(take(rest)?)),
            Operation::Flush => {
                let feth = Feth::parse(take(rest)?);
                Self::Flush(feth, Reth::parse(take(rest)?))
            }
            Operation::Resync => Self::Resync,
            Operation::ReadResponseFirst => Self::ReadResponseFirst(Aeth::parse(take(rest)?)),
            Operation::ReadResponseMiddle => Self::ReadResponseMiddle,
            Operation::ReadResponseLast => Self::ReadResponseLast(Aeth::parse(take(rest)?)),
            Operation::ReadResponseOnly => Self::ReadResponseOnly(Aeth::parse(take(rest)?)),
            Operation::Acknowledge => Self::Acknowledge(Aeth::parse(take(rest)?)),
            Operation::AtomicAcknowledge => {
                let aeth = Aeth::parse(take(rest)?);
                Self::AtomicAcknowledge(aeth, u64_at(take::<8>(rest)?, 0))
            }
        })
    }

    /// Writes the headers to the front of `rest` and moves it on.
    pub(super) fn emit(&self, rest: &mut &mut [u8]) {
        match self {
            Self::SendFirst
            | Self::SendMiddle
            | Self::SendLast(SendTail::Plain)
            | Self::SendOnly(SendTail::Plain)
            | Self::WriteMiddle
            | Self::WriteLast(None)
            | Self::Resync
            | Self::ReadResponseMiddle => {}
            Self::SendLast(SendTail::Immediate(immediate))
            | Self::SendOnly(SendTail::Immediate(immediate))
            | Self::WriteLast(Some(immediate)) => immediate.emit(room(rest)),
            Self::SendLast(SendTail::Invalidate(key))
            | Self::SendOnly(SendTail::Invalidate(key)) => {
                put_u32(room::<4>(rest), 0, key.value());
            }
            Self::WriteFirst(reth)
            | Self::WriteOnly(reth, None)
            | Self::ReadRequest(reth)
            | Self::AtomicWrite(reth) => reth.emit(room(rest)),
            Self::WriteOnly(reth, Some(immediate)) => {
                reth.emit(room(rest));
                immediate.emit(room(rest));
            }
            Self::CompareSwap(atomic) | Self::FetchAdd(atomic) => atomic.emit(room(rest)),
            Self::Flush(feth, reth) => {
                feth.emit(room(rest));
                reth.emit(room(rest));
            }
            Self::ReadResponseFirst(aeth)
            | Self::ReadResponseLast(aeth)
            | Self::ReadResponseOnly(aeth)
            | Self::Acknowledge(aeth) => aeth.emit(room(rest)),
            Self::AtomicAcknowledge(aeth, original) => {
                aeth.emit(room(rest));
                put_u64(room::<8>(rest), 0, *original);
            }
            Self::CongestionNotification(reserved) => *room(rest) = *reserved,
        }
    }
}

impl Service {
    /// The transport class; congestion notifications have none.
    pub const fn transport(&self) -> Option<Transport> {
        Some(match self {
            Self::Rc => Transport::Rc,
            Self::Uc => Transport::Uc,
            Self::Ud(_) => Transport::Ud,
            Self::XrcRequest(_) | Self::XrcResponse => Transport::Xrc,
            Self::RdRequest(..) | Self::RdResponse(_) => Transport::Rd,
            Self::Congestion => return None,
        })
    }

    /// The opcode of `message` on this service; nothing if the service does not have it.
    #[inline]
    pub fn opcode(&self, message: &Message) -> Option<Opcode> {
        let (Some(transport), Some(operation)) = (self.transport(), message.operation()) else {
            let neither = self.transport().is_none() && message.operation().is_none();
            return neither.then_some(Opcode::CONGESTION_NOTIFICATION);
        };
        let direction_fits = match self {
            Self::XrcRequest(_) | Self::RdRequest(..) => operation.is_request(),
            Self::XrcResponse | Self::RdResponse(_) => !operation.is_request(),
            Self::Rc | Self::Uc | Self::Ud(_) | Self::Congestion => true,
        };
        if direction_fits { Opcode::new(transport, operation) } else { None }
    }

    /// Reads the transport's headers from the front of `rest` and moves it on; nothing if it is
    /// too short.
    pub(super) fn parse(transport: Transport, is_request: bool, rest: &mut &[u8]) -> Option<Self> {
        Some(match (transport, is_request) {
            (Transport::Rc, _) => Self::Rc,
            (Transport::Uc, _) => Self::Uc,
            (Transport::Ud, _) => Self::Ud(Deth::parse(take(rest)?)),
            (Transport::Xrc, true) => Self::XrcRequest(Xrceth::parse(take(rest)?)),
            (Transport::Xrc, false) => Self::XrcResponse,
            (Transport::Rd, true) => {
                let rdeth = Rdeth::parse(take(rest)?);
                Self::RdRequest(rdeth, Deth::parse(take(rest)?))
            }
            (Transport::Rd, false) => Self::RdResponse(Rdeth::parse(take(rest)?)),
        })
    }

    /// Writes the transport's headers to the front of `rest` and moves it on.
    pub(super) fn emit(&self, rest: &mut &mut [u8]) {
        match self {
            Self::Rc | Self::Uc | Self::XrcResponse | Self::Congestion => {}
            Self::Ud(deth) => deth.emit(room(rest)),
            Self::XrcRequest(xrceth) => xrceth.emit(room(rest)),
            Self::RdRequest(rdeth, deth) => {
                rdeth.emit(room(rest));
                deth.emit(room(rest));
            }
            Self::RdResponse(rdeth) => rdeth.emit(room(rest)),
        }
    }
}

fn immediate_tail(rest: &mut &[u8]) -> Option<SendTail> {
    Some(SendTail::Immediate(Immediate::parse(take(rest)?)))
}

fn invalidate_tail(rest: &mut &[u8]) -> Option<SendTail> {
    Some(SendTail::Invalidate(Rkey::new(u32_at(take::<4>(rest)?, 0))))
}

/// Takes a header off the front.
pub(super) fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (header, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(header)
}

/// Takes room for a header off the front. Panics if there is none: the caller of
/// [`super::Headers::emit`] promised it.
pub(super) fn room<'a, const N: usize>(rest: &mut &'a mut [u8]) -> &'a mut [u8; N] {
    let (header, behind) =
        std::mem::take(rest).split_first_chunk_mut().expect("room for the headers");
    *rest = behind;
    header
}
