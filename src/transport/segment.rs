//! How a work request is cut into packets: a pure function of its length, the path MTU and the
//! READ chunk size. Retransmission uses the same function from another packet on.

/// What a request is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Payload to the peer's receive buffer.
    Send,
    /// Payload to the peer's memory.
    Write,
    /// Payload from the peer's memory; the responses take the PSNs.
    Read,
    /// One packet, one answer of eight bytes.
    Atomic,
    /// One packet of eight bytes, one empty answer.
    AtomicWrite,
    /// One empty packet, one empty answer.
    Flush,
    /// No packet.
    Local,
}

/// A request's shape on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) class: Class,
    /// Bytes of payload, at most 2^31.
    pub(crate) length: u32,
    /// Path MTU in bytes.
    pub(crate) mtu: u32,
    /// Bytes of a READ request at most, a multiple of the path MTU.
    pub(crate) chunk: u32,
}

/// One packet's part of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u32,
    pub(crate) length: u32,
    pub(crate) first: bool,
    pub(crate) last: bool,
}

/// One READ request's part: from a packet to the end of its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadPart {
    pub(crate) offset: u32,
    pub(crate) length: u32,
    /// Response packets, which are as many PSNs.
    pub(crate) packets: u32,
}

/// Packets that `length` bytes take; an empty message takes one.
pub(crate) const fn packets_of(length: u32, mtu: u32) -> u32 {
    if length == 0 { 1 } else { length.div_ceil(mtu) }
}

impl Class {
    /// Whether its PSNs are finished by responses that answer it alone, and not by a plain ACK.
    #[inline]
    pub(crate) const fn has_response(self) -> bool {
        matches!(self, Self::Read | Self::Atomic | Self::AtomicWrite | Self::Flush)
    }

    /// Bytes of a request with so much local data.
    pub(crate) const fn length(self, local: u32) -> u32 {
        match self {
            Self::Local | Self::Flush => 0,
            Self::AtomicWrite => 8,
            Self::Send | Self::Write | Self::Read | Self::Atomic => local,
        }
    }
}

impl Shape {
    /// PSNs that the request takes.
    pub(crate) const fn packets(&self) -> u32 {
        match self.class {
            Class::Local => 0,
            Class::Atomic | Class::AtomicWrite | Class::Flush => 1,
            Class::Send | Class::Write | Class::Read => packets_of(self.length, self.mtu),
        }
    }

    /// Messages that the responder counts: a READ is as many as it has chunks.
    pub(crate) const fn messages(&self) -> u32 {
        match self.class {
            Class::Local => 0,
            Class::Read => packets_of(self.length, self.chunk),
            _ => 1,
        }
    }

    /// Packet `index` of the payload.
    pub(crate) const fn piece(&self, index: u32) -> Piece {
        let offset = index * self.mtu;
        let left = self.length - offset;
        let length = if left < self.mtu { left } else { self.mtu };
        Piece { offset, length, first: index == 0, last: index + 1 == self.packets() }
    }

    /// The READ request that starts with response packet `index`.
    pub(crate) const fn read_part(&self, index: u32) -> ReadPart {
        let offset = index * self.mtu;
        let chunk_end = (offset / self.chunk + 1).saturating_mul(self.chunk);
        let end = if chunk_end < self.length { chunk_end } else { self.length };
        let length = end - offset;
        ReadPart { offset, length, packets: packets_of(length, self.mtu) }
    }

    /// Whether response packet `index` ends its READ request.
    pub(crate) const fn ends_chunk(&self, index: u32) -> bool {
        self.read_part(index).packets == 1
    }

    /// Bytes in the packets `from .. to`.
    pub(crate) fn bytes_between(&self, from: u32, to: u32) -> u64 {
        let end = |index: u32| (u64::from(index) * u64::from(self.mtu)).min(self.length.into());
        end(to) - end(from)
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(class: Class, length: u32, mtu: u32, chunk: u32) -> Shape {
        Shape { class, length, mtu, chunk }
    }

    #[test]
    fn an_empty_message_is_one_packet_and_a_local_operation_none() {
        let empty = shape(Class::Send, 0, 1024, 4096);
        assert_eq!(empty.packets(), 1);
        assert_eq!(empty.piece(0), Piece { offset: 0, length: 0, first: true, last: true });
        assert_eq!(shape(Class::Local, 0, 256, 256).packets(), 0);
        let read = shape(Class::Read, 0, 256, 256).read_part(0);
        assert_eq!(read, ReadPart { offset: 0, length: 0, packets: 1 });
    }
}
