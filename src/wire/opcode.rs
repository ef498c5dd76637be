//! The first byte of the base transport header: which transport, which operation, which headers
//! follow.
//!
//! ```text
//!    7 6 5   4 3 2 1 0
//!   ┌──────┬───────────┐
//!   │ class│ operation │   class: 0 RC, 1 UC, 2 RD, 3 UD, 5 XRC; 0x81 is the CNP
//!   └──────┴───────────┘
//! ```

/// Transport class, the top three bits of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Reliable datagram.
    Rd = 2,
    /// Unreliable datagram.
    Ud = 3,
    /// Extended reliable connection.
    Xrc = 5,
}

/// What a packet asks or answers, the low five bits of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// First packet of a SEND.
    SendFirst = 0x00,
    /// Middle packet of a SEND.
    SendMiddle = 0x01,
    /// Last packet of a SEND.
    SendLast = 0x02,
    /// Last packet of a SEND, with immediate data.
    SendLastWithImmediate = 0x03,
    /// Only packet of a SEND.
    SendOnly = 0x04,
    /// Only packet of a SEND, with immediate data.
    SendOnlyWithImmediate = 0x05,
    /// First packet of an RDMA WRITE.
    WriteFirst = 0x06,
    /// Middle packet of an RDMA WRITE.
    WriteMiddle = 0x07,
    /// Last packet of an RDMA WRITE.
    WriteLast = 0x08,
    /// Last packet of an RDMA WRITE, with immediate data.
    WriteLastWithImmediate = 0x09,
    /// Only packet of an RDMA WRITE.
    WriteOnly = 0x0a,
    /// Only packet of an RDMA WRITE, with immediate data.
    WriteOnlyWithImmediate = 0x0b,
    /// RDMA READ request.
    ReadRequest = 0x0c,
    /// First packet of an RDMA READ response.
    ReadResponseFirst = 0x0d,
    /// Middle packet of an RDMA READ response.
    ReadResponseMiddle = 0x0e,
    /// Last packet of an RDMA READ response.
    ReadResponseLast = 0x0f,
    /// Only packet of an RDMA READ response; also the answer to FLUSH and ATOMIC WRITE.
    ReadResponseOnly = 0x10,
    /// ACK, NAK or RNR NAK, as the AETH says.
    Acknowledge = 0x11,
    /// Answer to an atomic.
    AtomicAcknowledge = 0x12,
    /// Atomic compare and swap.
    CompareSwap = 0x13,
    /// Atomic fetch and add.
    FetchAdd = 0x14,
    /// Resynchronisation of a reliable datagram channel.
    Resync = 0x15,
    /// Last packet of a SEND that invalidates a key.
    SendLastWithInvalidate = 0x16,
    /// Only packet of a SEND that invalidates a key.
    SendOnlyWithInvalidate = 0x17,
    /// FLUSH of earlier writes to visibility or persistence.
    Flush = 0x1c,
    /// ATOMIC WRITE of eight bytes.
    AtomicWrite = 0x1d,
}

/// A header between the base transport header and the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtendedHeader {
    /// Reliable datagram, 4 bytes.
    Rdeth,
    /// Datagram, 8 bytes.
    Deth,
    /// Extended reliable connection, 4 bytes.
    Xrceth,
    /// RDMA, 16 bytes.
    Reth,
    /// Atomic request, 28 bytes.
    AtomicEth,
    /// Acknowledgement, 4 bytes.
    Aeth,
    /// Atomic answer, 8 bytes.
    AtomicAckEth,
    /// Immediate data, 4 bytes.
    ImmDt,
    /// Key to invalidate, 4 bytes.
    Ieth,
    /// FLUSH, 4 bytes.
    Feth,
    /// The 16 reserved bytes of a congestion notification packet.
    Reserved,
}

/// A known opcode: one that some transport defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Transport(Transport, Operation),
    CongestionNotification,
}

/// The byte of a congestion notification packet.
const CNP: u8 = 0x81;

impl Transport {
    const fn from_class(class: u8) -> Option<Self> {
        Some(match class {
            0 => Self::Rc,
            1 => Self::Uc,
            2 => Self::Rd,
            3 => Self::Ud,
            5 => Self::Xrc,
            _ => return None,
        })
    }

    /// The transport class of an opcode byte, whether that opcode exists or not.
    pub const fn of_byte(opcode: u8) -> Option<Self> {
        Self::from_class(opcode >> 5)
    }

    /// Whether this transport defines `operation`.
    pub const fn defines(self, operation: Operation) -> bool {
        let code = operation as u8;
        match self {
            Self::Rc => code != Operation::Resync as u8,
            Self::Uc => code <= Operation::WriteOnlyWithImmediate as u8,
            Self::Rd => code <= Operation::Resync as u8 || matches!(operation, Operation::Flush),
            Self::Ud => {
                matches!(operation, Operation::SendOnly | Operation::SendOnlyWithImmediate)
            }
            Self::Xrc => {
                code != Operation::Resync as u8 && code <= Operation::SendOnlyWithInvalidate as u8
            }
        }
    }
}

impl Operation {
    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x00 => Self::SendFirst,
            0x01 => Self::SendMiddle,
            0x02 => Self::SendLast,
            0x03 => Self::SendLastWithImmediate,
            0x04 => Self::SendOnly,
            0x05 => Self::SendOnlyWithImmediate,
            0x06 => Self::WriteFirst,
            0x07 => Self::WriteMiddle,
            0x08 => Self::WriteLast,
            0x09 => Self::WriteLastWithImmediate,
            0x0a => Self::WriteOnly,
            0x0b => Self::WriteOnlyWithImmediate,
            0x0c => Self::ReadRequest,
            0x0d => Self::ReadResponseFirst,
            0x0e => Self::ReadResponseMiddle,
            0x0f => Self::ReadResponseLast,
            0x10 => Self::ReadResponseOnly,
            0x11 => Self::Acknowledge,
            0x12 => Self::AtomicAcknowledge,
            0x13 => Self::CompareSwap,
            0x14 => Self::FetchAdd,
            0x15 => Self::Resync,
            0x16 => Self::SendLastWithInvalidate,
            0x17 => Self::SendOnlyWithInvalidate,
            0x1c => Self::Flush,
            0x1d => Self::AtomicWrite,
            _ => return None,
        })
    }

    /// Whether it is sent by a requester; otherwise it is an answer.
    pub const fn is_request(self) -> bool {
        let code = self as u8;
        code < Self::ReadResponseFirst as u8 || code > Self::AtomicAcknowledge as u8
    }

    /// Whether a payload may follow the headers. One of no bytes is a payload too.
    pub const fn has_payload(self) -> bool {
        !matches!(
            self,
            Self::ReadRequest
                | Self::Acknowledge
                | Self::AtomicAcknowledge
                | Self::CompareSwap
                | Self::FetchAdd
                | Self::Resync
                | Self::Flush
        )
    }

    /// The headers that the operation itself brings, after those of the transport.
    pub const fn extended_headers(self) -> &'static [ExtendedHeader] {
        use ExtendedHeader as Header;
        match self {
            Self::SendFirst | Self::SendMiddle | Self::SendLast | Self::SendOnly => &[],
            Self::WriteMiddle | Self::WriteLast | Self::ReadResponseMiddle | Self::Resync => &[],
            Self::SendLastWithImmediate
            | Self::SendOnlyWithImmediate
            | Self::WriteLastWithImmediate => &[Header::ImmDt],
            Self::SendLastWithInvalidate | Self::SendOnlyWithInvalidate => &[Header::Ieth],
            Self::WriteFirst | Self::WriteOnly | Self::ReadRequest | Self::AtomicWrite => {
                &[Header::Reth]
            }
            Self::WriteOnlyWithImmediate => &[Header::Reth, Header::ImmDt],
            Self::ReadResponseFirst
            | Self::ReadResponseLast
            | Self::ReadResponseOnly
            | Self::Acknowledge => &[Header::Aeth],
            Self::AtomicAcknowledge => &[Header::Aeth, Header::AtomicAckEth],
            Self::CompareSwap | Self::FetchAdd => &[Header::AtomicEth],
            Self::Flush => &[Header::Feth, Header::Reth],
        }
    }
}

impl ExtendedHeader {
    /// Bytes in the header.
    pub const fn length(self) -> usize {
        match self {
            Self::Rdeth | Self::Xrceth | Self::Aeth | Self::ImmDt | Self::Ieth | Self::Feth => 4,
            Self::Deth | Self::AtomicAckEth => 8,
            Self::Reth | Self::Reserved => 16,
            Self::AtomicEth => 28,
        }
    }
}

impl Opcode {
    /// The congestion notification packet (CNP).
    pub const CONGESTION_NOTIFICATION: Self = Self(Kind::CongestionNotification);

    /// The opcode of `operation` on `transport`, if that transport defines it.
    pub const fn new(transport: Transport, operation: Operation) -> Option<Self> {
        if transport.defines(operation) {
            Some(Self(Kind::Transport(transport, operation)))
        } else {
            None
        }
    }

    /// The opcode that a byte stands for; nothing for reserved and manufacturers' bytes.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        if byte == CNP {
            return Some(Self::CONGESTION_NOTIFICATION);
        }
        let Some(transport) = Transport::of_byte(byte) else { return None };
        let Some(operation) = Operation::from_code(byte & 0x1f) else { return None };
        Self::new(transport, operation)
    }

    /// The byte on the wire.
    pub const fn to_byte(self) -> u8 {
        match self.0 {
            Kind::Transport(transport, operation) => (transport as u8) << 5 | operation as u8,
            Kind::CongestionNotification => CNP,
        }
    }

    /// Transport class; a congestion notification has none.
    pub const fn transport(self) -> Option<Transport> {
        match self.0 {
            Kind::Transport(transport, _) => Some(transport),
            Kind::CongestionNotification => None,
        }
    }

    /// What is asked or answered; a congestion notification is neither.
    pub const fn operation(self) -> Option<Operation> {
        match self.0 {
            Kind::Transport(_, operation) => Some(operation),
            Kind::CongestionNotification => None,
        }
    }

    /// Whether a requester sends it. A congestion notification is neither request nor answer.
    pub const fn is_request(self) -> bool {
        match self.0 {
            Kind::Transport(_, operation) => operation.is_request(),
            Kind::CongestionNotification => false,
        }
    }

    /// Whether a responder sends it.
    pub const fn is_response(self) -> bool {
        match self.0 {
            Kind::Transport(_, operation) => !operation.is_request(),
            Kind::CongestionNotification => false,
        }
    }

    /// Whether a payload may follow the headers.
    pub const fn has_payload(self) -> bool {
        match self.0 {
            Kind::Transport(_, operation) => operation.has_payload(),
            Kind::CongestionNotification => false,
        }
    }

    /// The headers that the transport puts first.
    pub const fn transport_headers(self) -> &'static [ExtendedHeader] {
        use ExtendedHeader as Header;
        match self.0 {
            Kind::Transport(Transport::Rc | Transport::Uc, _) | Kind::CongestionNotification => &[],
            Kind::Transport(Transport::Ud, _) => &[Header::Deth],
            Kind::Transport(Transport::Rd, operation) if operation.is_request() => {
                &[Header::Rdeth, Header::Deth]
            }
            Kind::Transport(Transport::Rd, _) => &[Header::Rdeth],
            Kind::Transport(Transport::Xrc, operation) if operation.is_request() => {
                &[Header::Xrceth]
            }
            Kind::Transport(Transport::Xrc, _) => &[],
        }
    }

    /// The headers that come after those of the transport.
    pub const fn operation_headers(self) -> &'static [ExtendedHeader] {
        match self.0 {
            Kind::Transport(_, operation) => operation.extended_headers(),
            Kind::CongestionNotification => &[ExtendedHeader::Reserved],
        }
    }

    /// All headers after the base transport header, in wire order.
    pub fn extended_headers(self) -> impl Iterator<Item = ExtendedHeader> {
        self.transport_headers().iter().chain(self.operation_headers()).copied()
    }

    /// Bytes of all headers after the base transport header.
    #[inline]
    pub const fn extended_length(self) -> usize {
        EXTENDED_LENGTHS[self.to_byte() as usize] as usize
    }

    /// Stable name as in the command's output: `RC_SEND_ONLY`, `CNP`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Kind::Transport(transport, operation) => name(transport, operation),
            Kind::CongestionNotification => "CNP",
        }
    }
}

/// Bytes of all headers after the base transport header, by opcode: asked for each packet made.
static EXTENDED_LENGTHS: [u8; 256] = extended_lengths();

const fn extended_lengths() -> [u8; 256] {
    let mut lengths = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if let Some(opcode) = Opcode::from_byte(byte as u8) {
            let length = sum(opcode.transport_headers()) + sum(opcode.operation_headers());
            assert!(length <= u8::MAX as usize);
            lengths[byte] = length as u8;
        }
        byte += 1;
    }
    lengths
}

const fn sum(headers: &[ExtendedHeader]) -> usize {
    let (mut total, mut at) = (0, 0);
    while at < headers.len() {
        total += headers[at].length();
        at += 1;
    }
    total
}

macro_rules! named {
    ($class:literal, $operation:expr) => {
        match $operation {
            Operation::SendFirst => concat!($class, "_SEND_FIRST"),
            Operation::SendMiddle => concat!($class, "_SEND_MIDDLE"),
            Operation::SendLast => concat!($class, "_SEND_LAST"),
            Operation::SendLastWithImmediate => concat!($class, "_SEND_LAST_WITH_IMMEDIATE"),
            Operation::SendOnly => concat!($class, "_SEND_ONLY"),
            Operation::SendOnlyWithImmediate => concat!($class, "_SEND_ONLY_WITH_IMMEDIATE"),
            Operation::WriteFirst => concat!($class, "_RDMA_WRITE_FIRST"),
            Operation::WriteMiddle => concat!($class, "_RDMA_WRITE_MIDDLE"),
            Operation::WriteLast => concat!($class, "_RDMA_WRITE_LAST"),
            Operation::WriteLastWithImmediate => {
                concat!($class, "_RDMA_WRITE_LAST_WITH_IMMEDIATE")
            }
            Operation::WriteOnly => concat!($class, "_RDMA_WRITE_ONLY"),
            Operation::WriteOnlyWithImmediate => {
                concat!($class, "_RDMA_WRITE_ONLY_WITH_IMMEDIATE")
            }
            Operation::ReadRequest => concat!($class, "_RDMA_READ_REQUEST"),
            Operation::ReadResponseFirst => concat!($class, "_RDMA_READ_RESPONSE_FIRST"),
            Operation::ReadResponseMiddle => concat!($class, "_RDMA_READ_RESPONSE_MIDDLE"),
            Operation::ReadResponseLast => concat!($class, "_RDMA_READ_RESPONSE_LAST"),
            Operation::ReadResponseOnly => concat!($class, "_RDMA_READ_RESPONSE_ONLY"),
            Operation::Acknowledge => concat!($class, "_ACKNOWLEDGE"),
            Operation::AtomicAcknowledge => concat!($class, "_ATOMIC_ACKNOWLEDGE"),
            Operation::CompareSwap => concat!($class, "_COMPARE_SWAP"),
            Operation::FetchAdd => concat!($class, "_FETCH_ADD"),
            Operation::Resync => concat!($class, "_RESYNC"),
            Operation::SendLastWithInvalidate => concat!($class, "_SEND_LAST_WITH_INVALIDATE"),
            Operation::SendOnlyWithInvalidate => concat!($class, "_SEND_ONLY_WITH_INVALIDATE"),
            Operation::Flush => concat!($class, "_FLUSH"),
            Operation::AtomicWrite => concat!($class, "_ATOMIC_WRITE"),
        }
    };
}

const fn name(transport: Transport, operation: Operation) -> &'static str {
    match transport {
        Transport::Rc => named!("RC", operation),
        Transport::Uc => named!("UC", operation),
        Transport::Rd => named!("RD", operation),
        Transport::Ud => named!("UD", operation),
        Transport::Xrc => named!("XRC", operation),
    }
}
