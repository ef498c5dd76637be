//! A whole packet: headers, payload, pad.
//!
//! ```text
//!   ┌─────┬──────────────────────┬─────────┬─────┬──────┐
//!   │ BTH │ extended headers     │ payload │ pad │ ICRC │
//!   └─────┴──────────────────────┴─────────┴─────┴──────┘
//!   └───────── Headers ─────────┘
//!   └───────────────── Packet ───────────────────┘
//! ```

use super::message::{room, take};
use super::{Bth, Message, Opcode, PKey, Psn, Qpn, Service};

/// Bytes of the longest headers: an atomic on a reliable datagram channel.
pub const MAX_HEADER: usize = 12 + 4 + 8 + 28;
/// Bytes of the invariant CRC that ends every packet.
pub const ICRC_LENGTH: usize = 4;

/// Pad bytes after a payload of this length: packets are whole 4-byte words.
pub const fn pad(payload_length: usize) -> usize {
    payload_length.wrapping_neg() % 4
}

/// All headers of a packet. Opcode and pad count are no fields: they follow from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Transport.
    pub service: Service,
    /// What is asked or answered.
    pub message: Message,
    /// Solicited event.
    pub solicited: bool,
    /// MigReq.
    pub migration: bool,
    /// Transport version, 4 bits; only 0 exists, others are for tests of a peer.
    pub version: u8,
    /// Partition key.
    pub pkey: PKey,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Six reserved bits after BECN.
    pub reserved: u8,
    /// Queue pair that receives the packet.
    pub destination: Qpn,
    /// The requester asks for an acknowledgement.
    pub ack_request: bool,
    /// Seven reserved bits after AckReq.
    pub reserved_after_ack: u8,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Headers {
    /// Headers of a packet on the default partition: MigReq set, as hardware has it, all other
    /// flags and reserved bits clear.
    pub const fn request(service: Service, message: Message, destination: Qpn, psn: Psn) -> Self {
        Self {
            service,
            message,
            solicited: false,
            migration: true,
            version: 0,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            reserved: 0,
            destination,
            ack_request: false,
            reserved_after_ack: 0,
            psn,
        }
    }

    /// The opcode; nothing for a pair of service and message that does not exist, such as an
    /// RDMA READ on UC.
    pub fn opcode(&self) -> Option<u8> {
        self.service.opcode(&self.message).map(Opcode::to_byte)
    }

    /// Bytes of all headers, 12 to [`MAX_HEADER`].
    ///
    /// # Panics
    /// If service and message do not go together; see [`Headers::opcode`].
    #[inline]
    pub fn length(&self) -> usize {
        Bth::LENGTH + self.known_opcode().extended_length()
    }

    /// Writes the headers of a packet with `payload_length` bytes of payload to the front of
    /// `buffer` and returns their length.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`Headers::length`], or if service and message do not go
    /// together; see [`Headers::opcode`].
    pub fn emit(&self, buffer: &mut [u8], payload_length: usize) -> usize {
        let whole = buffer.len();
        let mut rest = buffer;
        self.bth(payload_length).emit(room(&mut rest));
        self.service.emit(&mut rest);
        self.message.emit(&mut rest);
        whole - rest.len()
    }

    fn bth(&self, payload_length: usize) -> Bth {
        Bth {
            opcode: self.known_opcode().to_byte(),
            solicited: self.solicited,
            migration: self.migration,
            pad: pad(payload_length) as u8,
            version: self.version,
            pkey: self.pkey,
            fecn: self.fecn,
            becn: self.becn,
            reserved: self.reserved,
            destination: self.destination,
            ack_request: self.ack_request,
            reserved_after_ack: self.reserved_after_ack,
            psn: self.psn,
        }
    }

    #[inline]
    fn known_opcode(&self) -> Opcode {
        let opcode = self.service.opcode(&self.message);
        opcode.expect("the service has this message; Headers::opcode tells")
    }

    /// Reads service and message from the front of `rest`, which begins after the BTH.
    fn parse(bth: &Bth, opcode: Opcode, rest: &mut &[u8]) -> Option<Self> {
        let (service, message) = match (opcode.transport(), opcode.operation()) {
            (Some(transport), Some(operation)) => (
                Service::parse(transport, operation.is_request(), rest)?,
                Message::parse(operation, rest)?,
            ),
            _ => (Service::Congestion, Message::CongestionNotification(*take(rest)?)),
        };
        Some(Self {
            service,
            message,
            solicited: bth.solicited,
            migration: bth.migration,
            version: bth.version,
            pkey: bth.pkey,
            fecn: bth.fecn,
            becn: bth.becn,
            reserved: bth.reserved,
            destination: bth.destination,
            ack_request: bth.ack_request,
            reserved_after_ack: bth.reserved_after_ack,
            psn: bth.psn,
        })
    }
}

/// A packet whose payload lies where it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// All headers.
    pub headers: Headers,
    /// Payload without pad.
    pub payload: &'a [u8],
    /// Pad bytes, 0 to 3, as [`pad`] counts them. They mean nothing and are usually zero.
    pub pad: &'a [u8],
}

/// Why bytes are not a packet. An endpoint drops such bytes and counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// There is no room for a BTH and an ICRC.
    #[error("shorter than a BTH and an ICRC (16 bytes)")]
    TooShort,
    /// The opcode is reserved or a manufacturer's.
    #[error("reserved or manufacturer's opcode")]
    UnknownOpcode,
    /// The transport version is not 0 (specification, section 9.6.1: dropped in silence).
    #[error("transport version other than 0")]
    UnsupportedVersion,
    /// The packet ends inside the headers that its opcode asks for.
    #[error("ends inside the headers that its opcode asks for")]
    MissingHeader,
    /// There are fewer bytes before the ICRC than the pad count says.
    #[error("pad count larger than what lies between headers and ICRC")]
    BadPad,
    /// Headers, payload, pad and ICRC are not whole 4-byte words.
    #[error("length is not a multiple of 4 bytes")]
    BadLength,
    /// An opcode without payload is followed by one.
    #[error("payload after an opcode that has none")]
    UnexpectedPayload,
}

impl ParseError {
    /// All of them, in the order of [`ParseError::index`].
    pub const ALL: [Self; 7] = [
        Self::TooShort,
        Self::UnknownOpcode,
        Self::UnsupportedVersion,
        Self::MissingHeader,
        Self::BadPad,
        Self::BadLength,
        Self::UnexpectedPayload,
    ];

    /// Position in [`ParseError::ALL`], for an array of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl<'a> Packet<'a> {
    /// Reads a UDP payload, BTH to ICRC inclusive. The ICRC itself is not looked at; reserved
    /// bits are kept and never matter.
    ///
    /// # Errors
    /// The first thing found wrong, in the order of [`ParseError::ALL`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (mut rest, _icrc) =
            bytes.split_last_chunk::<ICRC_LENGTH>().ok_or(ParseError::TooShort)?;
        let bth = Bth::parse(take(&mut rest).ok_or(ParseError::TooShort)?);
        let opcode = Opcode::from_byte(bth.opcode).ok_or(ParseError::UnknownOpcode)?;
        if bth.version != 0 {
            return Err(ParseError::UnsupportedVersion);
        }
        let headers = Headers::parse(&bth, opcode, &mut rest).ok_or(ParseError::MissingHeader)?;
        let payload_length =
            rest.len().checked_sub(usize::from(bth.pad)).ok_or(ParseError::BadPad)?;
        if !bytes.len().is_multiple_of(4) {
            return Err(ParseError::BadLength);
        }
        if payload_length > 0 && !opcode.has_payload() {
            return Err(ParseError::UnexpectedPayload);
        }
        let (payload, pad) = rest.split_at(payload_length);
        Ok(Self { headers, payload, pad })
    }

    /// Bytes in the packet without the ICRC.
    ///
    /// # Panics
    /// If service and message do not go together; see [`Headers::opcode`].
    pub fn length(&self) -> usize {
        self.headers.length() + self.payload.len() + pad(self.payload.len())
    }

    /// Writes headers, payload and pad, without ICRC, to the front of `buffer` and returns how
    /// many bytes that are. Pad bytes that [`Packet::pad`] does not give are zero.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`Packet::length`], or if service and message do not go
    /// together; see [`Headers::opcode`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let start = self.headers.emit(buffer, self.payload.len());
        let end = start + self.payload.len();
        buffer[start..end].copy_from_slice(self.payload);
        let padding = &mut buffer[end..end + pad(self.payload.len())];
        padding.fill(0);
        for (byte, kept) in padding.iter_mut().zip(self.pad) {
            *byte = *kept;
        }
        end + padding.len()
    }
}
