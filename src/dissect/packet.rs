//! One RDMA packet, from the BTH on, read as far as it can be.
//!
//! ```text
//!   ┌─────┬──────────────────────┬─────────┬─────┬──────┐
//!   │ BTH │ extended headers     │ payload │ pad │ ICRC │   what is missing is None,
//!   └─────┴──────────────────────┴─────────┴─────┴──────┘   what cannot be is an issue
//! ```

use super::span::Span;
use super::{Issue, Issues};
use crate::wire::{
    Aeth, AtomicEth, Bth, Deth, ExtendedHeader, Feth, ICRC_LENGTH, Immediate, Opcode, Rdeth, Reth,
    Rkey, Xrceth,
};

/// What the ICRC of a packet says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It is right.
    Ok,
    /// It is wrong: the packet is damaged or its sender makes it wrongly.
    Bad,
    /// Nobody can tell: a cut frame, a fragment, a packet without one.
    #[default]
    Unchecked,
}

impl Verdict {
    /// As in JSON: `ok`, `bad`, `unchecked`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Bad => "bad",
            Self::Unchecked => "unchecked",
        }
    }
}

/// An ICRC, judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Icrc {
    /// Whether the two below agree.
    pub verdict: Verdict,
    /// The four bytes in the packet, in wire order, if they were captured.
    pub wire: Option<[u8; 4]>,
    /// The four bytes that belong there, if all that it covers was captured.
    pub computed: Option<[u8; 4]>,
}

/// The headers between BTH and payload, those that were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtendedHeaders {
    /// Reliable datagram.
    pub rdeth: Option<Rdeth>,
    /// Datagram.
    pub deth: Option<Deth>,
    /// Extended reliable connection.
    pub xrceth: Option<Xrceth>,
    /// RDMA.
    pub reth: Option<Reth>,
    /// Atomic request.
    pub atomic: Option<AtomicEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// Atomic answer: the value before.
    pub atomic_ack: Option<u64>,
    /// Immediate data.
    pub immediate: Option<Immediate>,
    /// Key to invalidate.
    pub invalidate: Option<Rkey>,
    /// FLUSH.
    pub feth: Option<Feth>,
}

/// One RDMA packet, from the BTH on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RdmaPacket<'a> {
    /// Position in the frame, from 0, if segmentation offload has left several in one.
    pub segment: Option<u16>,
    /// The IPv4 identification that this packet has on the wire.
    pub identification: Option<u16>,
    /// BTH to ICRC, as far as captured.
    pub bytes: &'a [u8],
    /// Bytes on the wire, BTH to ICRC.
    pub length: usize,
    /// Base transport header; nothing if the packet ends inside it.
    pub bth: Option<Bth>,
    /// The opcode, if it is a known one.
    pub opcode: Option<Opcode>,
    /// What follows the BTH.
    pub headers: ExtendedHeaders,
    /// Payload without pad, as far as captured.
    pub payload: &'a [u8],
    /// Bytes of payload on the wire, without pad; nothing if the headers do not say.
    pub payload_length: Option<usize>,
    /// The ICRC, judged.
    pub icrc: Icrc,
    /// What is wrong with it from the BTH on.
    pub issues: Issues,
}

impl<'a> RdmaPacket<'a> {
    /// Reads a packet, BTH to ICRC. The ICRC is found and not yet judged.
    pub(super) fn read(packet: Span<'a>) -> Self {
        let length = packet.length();
        let mut read = Self { bytes: packet.bytes, length, ..Self::default() };
        let before_icrc = match length.checked_sub(ICRC_LENGTH).filter(|end| *end >= Bth::LENGTH) {
            Some(end) => {
                let (_, icrc) = packet.split(end);
                read.icrc.wire = icrc.bytes.first_chunk().copied();
                packet.split(end).0
            }
            None => {
                read.issues.add(Issue::NoIcrc);
                packet.split(Bth::LENGTH).0
            }
        };
        read.headers(before_icrc);
        read
    }

    /// The opcode's name as in JSON; `UNKNOWN` for one that is not known.
    pub fn opcode_name(&self) -> &'static str {
        self.opcode.map_or("UNKNOWN", Opcode::name)
    }

    fn headers(&mut self, mut rest: Span<'a>) {
        let Some(bth) = rest.take() else {
            self.issues.add(missing(rest, Bth::LENGTH));
            return;
        };
        let bth = Bth::parse(bth);
        self.bth = Some(bth);
        if bth.version != 0 {
            self.issues.add(Issue::BadVersion);
        }
        if !self.length.is_multiple_of(4) && self.length >= Bth::LENGTH + ICRC_LENGTH {
            self.issues.add(Issue::BadLength);
        }
        let Some(opcode) = Opcode::from_byte(bth.opcode) else {
            self.issues.add(Issue::UnknownOpcode);
            return;
        };
        self.opcode = Some(opcode);
        for header in opcode.extended_headers() {
            if self.extended(header, &mut rest).is_none() {
                self.issues.add(missing(rest, header.length()));
                return;
            }
        }
        self.payload(bth, rest);
    }

    fn extended(&mut self, header: ExtendedHeader, rest: &mut Span<'a>) -> Option<()> {
        let headers = &mut self.headers;
        match header {
            ExtendedHeader::Rdeth => headers.rdeth = Some(Rdeth::parse(rest.take()?)),
            ExtendedHeader::Deth => headers.deth = Some(Deth::parse(rest.take()?)),
            ExtendedHeader::Xrceth => headers.xrceth = Some(Xrceth::parse(rest.take()?)),
            ExtendedHeader::Reth => headers.reth = Some(Reth::parse(rest.take()?)),
            ExtendedHeader::AtomicEth => headers.atomic = Some(AtomicEth::parse(rest.take()?)),
            ExtendedHeader::Aeth => headers.aeth = Some(Aeth::parse(rest.take()?)),
            ExtendedHeader::AtomicAckEth => {
                headers.atomic_ack = Some(u64::from_be_bytes(*rest.take()?));
            }
            ExtendedHeader::ImmDt => headers.immediate = Some(Immediate::parse(rest.take()?)),
            ExtendedHeader::Ieth => {
                headers.invalidate = Some(Rkey::new(u32::from_be_bytes(*rest.take()?)));
            }
            ExtendedHeader::Feth => headers.feth = Some(Feth::parse(rest.take()?)),
            ExtendedHeader::Reserved => _ = rest.take::<16>()?,
        }
        Some(())
    }

    fn payload(&mut self, bth: Bth, rest: Span<'a>) {
        match rest.length().checked_sub(bth.pad.into()) {
            Some(length) => {
                self.payload = rest.split(length).0.bytes;
                self.payload_length = Some(length);
            }
            None => self.issues.add(Issue::BadPad),
        }
    }
}

/// Why a header of `length` bytes was not there: either the wire had it and the capture has not,
/// or the packet ends inside it.
fn missing(rest: Span<'_>, length: usize) -> Issue {
    if rest.length() >= length { Issue::Truncated } else { Issue::MissingHeader }
}
