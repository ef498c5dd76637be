//! Scatter and gather: a message's bytes over the segments of a work request.

use super::access::Access;
use super::error::KeyFault;
use super::keys::{Accessor, DomainId, KeyTable};
use crate::wire::{Crc, Lkey};

/// A piece of registered local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// First byte's address, in the region's address space.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The region's local key.
    pub key: Lkey,
}

/// Writes `source` to the place that lies `offset` bytes into the segments.
///
/// All pieces are checked before the first byte is written (but what on-demand memory is mapped, the
/// copy itself finds). Nearly always there is one, whose key
/// is then looked up once.
pub(crate) fn scatter(
    keys: &KeyTable,
    domain: DomainId,
    segments: impl Iterator<Item = Sge> + Clone,
    offset: u64,
    source: &[u8],
) -> Result<(), KeyFault> {
    let who = Accessor::local(domain);
    let span =
        |piece: &Piece| keys.span(piece.key, who, piece.address, piece.length, Access::LOCAL_WRITE);
    let mut list = pieces(segments.clone(), offset, source.len());
    let Some(first) = list.next().transpose()? else { return Ok(()) };
    let first_span = span(&first)?;
    if first.length == source.len() {
        return first_span.write(source);
    }
    for piece in list {
        span(&piece?)?;
    }
    let mut done = 0;
    for piece in pieces(segments, offset, source.len()) {
        let piece = piece?;
        span(&piece)?.write(&source[done..done + piece.length])?;
        done += piece.length;
    }
    Ok(())
}

/// Reads all of `target` from the place that lies `offset` bytes into the segments, and goes on with
/// a sum over it if there is one.
pub(crate) fn gather(
    keys: &KeyTable,
    domain: DomainId,
    segments: impl Iterator<Item = Sge> + Clone,
    offset: u64,
    target: &mut [u8],
    mut sum: Option<&mut Crc>,
) -> Result<(), KeyFault> {
    let who = Accessor::local(domain);
    let mut done = 0;
    for piece in pieces(segments, offset, target.len()) {
        let piece = piece?;
        let span = keys.span(piece.key, who, piece.address, piece.length, Access::NONE)?;
        span.read(&mut target[done..done + piece.length], sum.as_deref_mut())?;
        done += piece.length;
    }
    Ok(())
}

struct Piece {
    key: u32,
    address: u64,
    length: usize,
}

/// The parts of the segments that cover `length` bytes from `offset` on. A last item is an error
/// if the segments are shorter than that, or if a segment's addresses wrap around.
fn pieces(
    segments: impl Iterator<Item = Sge> + Clone,
    offset: u64,
    length: usize,
) -> impl Iterator<Item = Result<Piece, KeyFault>> {
    let mut skip = offset;
    let mut left = length;
    let mut list = segments;
    std::iter::from_fn(move || {
        while left > 0 {
            let Some(segment) = list.next() else {
                left = 0;
                return Some(Err(KeyFault::OutOfBounds));
            };
            if skip >= u64::from(segment.length) {
                skip -= u64::from(segment.length);
                continue;
            }
            let piece = part(&segment, skip, left);
            skip = 0;
            left -= piece.as_ref().map_or(left, |piece| piece.length);
            return Some(piece);
        }
        None
    })
}

/// At most `wanted` bytes of the segment from `skip` on.
fn part(segment: &Sge, skip: u64, wanted: usize) -> Result<Piece, KeyFault> {
    let available = u64::from(segment.length) - skip;
    let length = (wanted as u64).min(available) as usize;
    let address = segment.address.checked_add(skip).ok_or(KeyFault::OutOfBounds)?;
    Ok(Piece { key: segment.key.value(), address, length })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Backing, OwnedMemory};
    use crate::rng::Rng;

    const DOMAIN: DomainId = DomainId(1);

    /// 16 bytes that are named from 0x1000 on, and whether they have LOCAL_WRITE.
    fn registered(access: Access) -> (KeyTable, std::sync::Arc<OwnedMemory>, Lkey) {
        let memory = OwnedMemory::new(16);
        let mut keys = KeyTable::new(8, 0, Rng::new(1));
        let backing = Backing::owned(std::sync::Arc::clone(&memory));
        let key = keys.register(backing, 0x1000, DOMAIN, access).unwrap();
        (keys, memory, Lkey::new(key))
    }

    #[test]
    fn bytes_go_over_segment_edges_and_empty_segments_are_passed() {
        let (keys, memory, key) = registered(Access::LOCAL_WRITE);
        let segments = [(0x1000, 3), (0x1008, 0), (0x100c, 4), (0x1004, 2)]
            .map(|(address, length)| Sge { address, length, key });
        let source = [1, 2, 3, 4, 5, 6, 7];
        assert_eq!(scatter(&keys, DOMAIN, segments.into_iter(), 2, &source), Ok(()));
        let expected = [0, 0, 1, 0, 6, 7, 0, 0, 0, 0, 0, 0, 2, 3, 4, 5];
        assert_eq!(memory.to_vec(0, 16).unwrap(), expected);
        let (mut back, mut sum) = ([0; 7], Crc::default());
        assert_eq!(
            gather(&keys, DOMAIN, segments.into_iter(), 2, &mut back, Some(&mut sum)),
            Ok(())
        );
        assert_eq!(back, source);
        let mut expected = Crc::default();
        expected.update(&source);
        assert_eq!(sum.value(), expected.value(), "all pieces are summed, in order");
    }

    #[test]
    fn nothing_is_written_unless_all_of_it_can_be() {
        let (keys, memory, key) = registered(Access::LOCAL_WRITE);
        let good = Sge { address: 0x1000, length: 4, key };
        let stale = Lkey::new(key.value() ^ 1);
        let cases = [
            (vec![good, Sge { key: stale, ..good }], KeyFault::Unknown),
            (vec![good, Sge { address: 0x100d, ..good }], KeyFault::OutOfBounds),
            (vec![good, Sge { address: 0xfff, ..good }], KeyFault::OutOfBounds),
            (vec![good], KeyFault::OutOfBounds),
        ];
        for (segments, fault) in cases {
            assert_eq!(scatter(&keys, DOMAIN, segments.into_iter(), 0, &[9; 8]), Err(fault));
            assert_eq!(memory.to_vec(0, 16).unwrap(), [0; 16]);
        }
        let (keys, _, key) = registered(Access::NONE);
        let read_only = Sge { key, ..good };
        let written = scatter(&keys, DOMAIN, [read_only].into_iter(), 0, &[9; 4]);
        assert_eq!(written, Err(KeyFault::Permission));
    }
}
