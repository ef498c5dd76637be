//! Acknowledgement extended transport header, with its three codes: credits, RNR timers, NAKs.
//!
//! ```text
//!    7   6 5    4 3 2 1 0
//!   ┌───┬──────┬───────────┬──────────────────────────┐
//!   │res│ kind │ code      │ message sequence number  │
//!   └───┴──────┴───────────┴──────────────────────────┘
//!   kind 0 ACK (credits), 1 RNR NAK (timer), 2 reserved, 3 NAK (reason)
//! ```

use super::Msn;
use super::field::{put_u24, u24_at};

/// Acknowledgement extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// What is said about the request.
    pub syndrome: Syndrome,
    /// How many messages the responder has finished.
    pub msn: Msn,
}

/// ACK, RNR NAK or NAK. Every byte has exactly one value here and comes back out unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// All packets up to this PSN have arrived; so many more receives are posted.
    Ack(Credits),
    /// No receive was posted; wait at least so long before sending again.
    RnrNak(RnrTimer),
    /// The request was refused.
    Nak(NakCode),
    /// Kind 2, or the reserved top bit set: the whole byte. See [`Syndrome::meaning`].
    Reserved(u8),
}

/// Credit code, 5 bits: how many receives the responder has posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credits(u8);

/// RNR timer code, 5 bits: how long to wait for a receive to be posted. The codes are not in
/// order of time: 0 is the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// 0: a packet is missing; the NAK's PSN is the expected one.
    PsnSequenceError,
    /// 1: the responder does not support the request or cannot take its length.
    InvalidRequest,
    /// 2: key, bounds or permission are wrong.
    RemoteAccessError,
    /// 3: the responder could not finish for a reason of its own.
    RemoteOperationalError,
    /// 4: reliable datagram only.
    InvalidRdRequest,
    /// 5 to 31.
    Reserved(u8),
}

impl Aeth {
    /// Bytes in the header.
    pub const LENGTH: usize = 4;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self { syndrome: Syndrome::from_byte(bytes[0]), msn: Msn::new(u24_at(bytes, 1)) }
    }

    /// Writes the header.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        bytes[0] = self.syndrome.to_byte();
        put_u24(bytes, 1, self.msn.value());
    }
}

impl Syndrome {
    const RESERVED_BIT: u8 = 0x80;

    /// What a byte stands for.
    pub const fn from_byte(byte: u8) -> Self {
        match byte >> 5 {
            0 => Self::Ack(Credits::new(byte)),
            1 => Self::RnrNak(RnrTimer::new(byte)),
            3 => Self::Nak(NakCode::from_code(byte)),
            _ => Self::Reserved(byte),
        }
    }

    /// The byte on the wire.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack(credits) => credits.0,
            Self::RnrNak(timer) => 0x20 | timer.0,
            Self::Nak(code) => 0x60 | code.to_code(),
            Self::Reserved(byte) => byte,
        }
    }

    /// What an endpoint takes it for: the reserved top bit is ignored, so that only kind 2
    /// remains [`Syndrome::Reserved`].
    pub const fn meaning(self) -> Self {
        Self::from_byte(self.to_byte() & !Self::RESERVED_BIT)
    }
}

const CREDIT_COUNTS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

impl Credits {
    /// The responder sets no limit, as with a shared receive queue.
    pub const UNLIMITED: Self = Self(31);

    /// The credits of a code, cut to 5 bits.
    pub const fn new(code: u8) -> Self {
        Self(code & 0x1f)
    }

    /// The 5-bit code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// How many messages may be sent beyond the MSN; nothing if there is no limit.
    pub fn count(self) -> Option<u32> {
        CREDIT_COUNTS.get(usize::from(self.0)).copied()
    }

    /// The largest code that promises no more than `count` receives.
    pub fn from_count(count: u32) -> Self {
        let above = CREDIT_COUNTS.partition_point(|&counted| counted <= count);
        Self(above as u8 - 1)
    }
}

/// Times of the codes 0 to 31, in units of 10 microseconds.
const RNR_TIMES: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];
const RNR_UNIT_NS: u64 = 10_000;

impl RnrTimer {
    /// The timer of a code, cut to 5 bits.
    pub const fn new(code: u8) -> Self {
        Self(code & 0x1f)
    }

    /// The 5-bit code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time to wait, in nanoseconds: 10 microseconds to 655.36 milliseconds.
    pub fn nanos(self) -> u64 {
        u64::from(RNR_TIMES[usize::from(self.0)]) * RNR_UNIT_NS
    }

    /// The code of the shortest time that is at least `nanos`; the longest, 655.36 milliseconds,
    /// if none is.
    pub fn at_least(nanos: u64) -> Self {
        let enough = |code: &u8| Self(*code).nanos() >= nanos;
        Self((1..32).find(enough).unwrap_or(0))
    }
}

impl NakCode {
    /// What a code stands for, cut to 5 bits.
    pub const fn from_code(code: u8) -> Self {
        match code & 0x1f {
            0 => Self::PsnSequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccessError,
            3 => Self::RemoteOperationalError,
            4 => Self::InvalidRdRequest,
            reserved => Self::Reserved(reserved),
        }
    }

    /// The 5-bit code.
    pub const fn to_code(self) -> u8 {
        match self {
            Self::PsnSequenceError => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccessError => 2,
            Self::RemoteOperationalError => 3,
            Self::InvalidRdRequest => 4,
            Self::Reserved(code) => code & 0x1f,
        }
    }
}
