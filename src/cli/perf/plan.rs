//! What is measured: one row for each operation, measure and size, and what its packets look like.

use serde::Serialize;

/// What a RoCE packet has beside its payload at least: BTH and ICRC.
const LEAST_HEADERS: usize = 12 + 4;
/// Address, key and length of a WRITE or READ request.
const RETH: usize = 16;
/// What a response to a READ or atomic begins with.
const AETH: usize = 4;
/// Address, key and the two operands of an atomic request.
const ATOMIC_ETH: usize = 28;
/// Bytes that an atomic operation is about.
pub(super) const WORD: usize = 8;
/// Where messages begin in memory.
pub(super) const ALIGNMENT: usize = 64;
/// The most segments that the kernel cuts a send into.
const MAX_SEGMENTS: usize = 64;
/// The most bytes of UDP payload in one send.
const MAX_SEND: usize = 65_507;

/// What is asked of the other end.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// RDMA WRITE
    Write,
    /// RDMA READ
    Read,
    /// SEND
    Send,
    /// Fetch and add, always of 8 bytes
    Atomic,
}

impl Operation {
    /// All, in the order in which they are measured.
    pub(super) const ALL: [Self; 4] = [Self::Write, Self::Read, Self::Send, Self::Atomic];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Send => "send",
            Self::Atomic => "atomic",
        }
    }
}

/// What is measured of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Measure {
    /// As many as fit under way.
    Bandwidth,
    /// One at a time: the round trip.
    Latency,
}

/// One line of the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) operation: Operation,
    pub(super) measure: Measure,
    pub(super) size: usize,
    pub(super) path_mtu: usize,
    /// Bytes of memory that messages walk through, if that was asked for.
    pub(super) buffer: Option<usize>,
}

/// The datagrams of an exchange without any protocol: so many bytes there and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, Serialize)]
pub(super) struct Exchange {
    /// Bytes of UDP payload in a full datagram.
    pub(super) segment: usize,
    pub(super) request: usize,
    pub(super) reply: usize,
}

impl Row {
    /// Places for one message after the other in the memory that is walked through.
    pub(super) fn places(&self) -> usize {
        let walks = matches!(self.operation, Operation::Write | Operation::Read)
            && self.measure == Measure::Bandwidth;
        let buffer = self.buffer.filter(|_| walks).unwrap_or(0);
        (buffer / self.size.next_multiple_of(ALIGNMENT)).max(1)
    }

    /// Packets that carry the data of one message.
    pub(super) fn packets(&self) -> usize {
        self.size.div_ceil(self.path_mtu).max(1)
    }

    /// Bytes of the message in a full packet.
    pub(super) fn payload(&self) -> usize {
        self.size.min(self.path_mtu)
    }

    /// Bytes of UDP payload of a full packet that carries data.
    pub(super) fn datagram(&self) -> usize {
        let is_single = self.packets() == 1;
        let padded = self.payload().next_multiple_of(4);
        LEAST_HEADERS
            + match self.operation {
                Operation::Write if is_single => RETH + padded,
                Operation::Read if is_single => AETH + padded,
                Operation::Atomic => ATOMIC_ETH,
                Operation::Write | Operation::Read | Operation::Send => padded,
            }
    }

    /// Datagrams that one send of the bare socket hands to the kernel.
    pub(super) fn batch(&self) -> usize {
        batch(self.datagram())
    }

    /// The datagrams of one round trip.
    pub(super) fn exchange(&self) -> Exchange {
        let data = self.size.next_multiple_of(4) + self.packets() * LEAST_HEADERS;
        let (request, reply) = match self.operation {
            Operation::Write => (data + RETH, data + RETH),
            Operation::Send => (data, data),
            // The first and the last response have an AETH.
            Operation::Read => (LEAST_HEADERS + RETH, data + AETH * self.packets().min(2)),
            Operation::Atomic => (LEAST_HEADERS + ATOMIC_ETH, LEAST_HEADERS + AETH + WORD),
        };
        let segment = self.path_mtu + LEAST_HEADERS + RETH;
        Exchange { segment, request, reply }
    }

    /// A number that differs from row to row, so that data of an earlier one is not taken for this
    /// one's.
    pub(super) fn seed(&self) -> u32 {
        (self.size as u32).rotate_left(8) ^ (self.operation as u32) << 4 ^ self.measure as u32
    }
}

/// How many datagrams of this size the kernel takes at once.
pub(super) fn batch(datagram: usize) -> usize {
    (MAX_SEND / datagram.max(1)).clamp(1, MAX_SEGMENTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(operation: Operation, size: usize) -> Row {
        Row { operation, measure: Measure::Bandwidth, size, path_mtu: 4096, buffer: None }
    }

    #[test]
    fn datagrams_are_as_large_as_the_packets() {
        for (operation, size, datagram, batch) in [
            (Operation::Write, 8, 40, 64),
            (Operation::Write, 5, 40, 64),
            (Operation::Write, 4096, 4128, 15),
            (Operation::Write, 1 << 20, 4112, 15),
            (Operation::Read, 8, 28, 64),
            (Operation::Read, 1 << 20, 4112, 15),
            (Operation::Send, 1024, 1040, 62),
            (Operation::Atomic, 8, 44, 64),
        ] {
            let row = row(operation, size);
            assert_eq!((row.datagram(), row.batch()), (datagram, batch), "{row:?}");
        }
    }

    #[test]
    fn only_writes_and_reads_walk_through_memory_and_never_beyond_it() {
        let places = |operation, size, buffer| Row { buffer, ..row(operation, size) }.places();
        assert_eq!(places(Operation::Read, 1 << 20, Some(64 << 20)), 64);
        assert_eq!(places(Operation::Write, 100, Some(1024)), 8);
        assert_eq!(places(Operation::Write, 4096, Some(1024)), 1);
        assert_eq!(places(Operation::Send, 100, Some(1024)), 1);
        assert_eq!(places(Operation::Read, 100, None), 1);
    }

    #[test]
    fn a_round_trip_has_the_bytes_of_request_and_answer() {
        let bytes = |operation, size| {
            let Exchange { request, reply, .. } = row(operation, size).exchange();
            (request, reply)
        };
        assert_eq!(bytes(Operation::Write, 8), (40, 40));
        assert_eq!(bytes(Operation::Send, 8), (24, 24));
        assert_eq!(bytes(Operation::Read, 8), (32, 28));
        assert_eq!(bytes(Operation::Read, 8192), (32, 8192 + 32 + 8));
        assert_eq!(bytes(Operation::Atomic, 8), (44, 28));
    }
}
