//! Scatter and gather: a message's bytes over the segments of a work request.

use super::access::Access;
use super::keys::{DomainId, KeyFault, KeyTable};
use crate::wire::Lkey;

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
/// All pieces are checked before the first byte is written. Nearly always there is one, whose key
/// is then looked up once.
pub(crate) fn scatter(
    keys: &KeyTable,
    domain: DomainId,
    segments: impl Iterator<Item = Sge> + Clone,
    offset: u64,
    source: &[u8],
) -> Result<(), KeyFault> {
    let span = |piece: &Piece| {
        keys.span(piece.key, domain, piece.address, piece.length, Access::LOCAL_WRITE)
    };
    let mut list = pieces(segments.clone(), offset, source.len());
    let Some(first) = list.next().transpose()? else { return Ok(()) };
    let first_span = span(&first)?;
    if first.length == source.len() {
        first_span.write(source);
        return Ok(());
    }
    for piece in list {
        span(&piece?)?;
    }
    let mut done = 0;
    for piece in pieces(segments, offset, source.len()) {
        let piece = piece?;
        span(&piece)?.write(&source[done..done + piece.length]);
        done += piece.length;
    }
    Ok(())
}

/// Reads all of `target` from the place that lies `offset` bytes into the segments.
pub(crate) fn gather(
    keys: &KeyTable,
    domain: DomainId,
    segments: impl Iterator<Item = Sge> + Clone,
    offset: u64,
    target: &mut [u8],
) -> Result<(), KeyFault> {
    let mut done = 0;
    for piece in pieces(segments, offset, target.len()) {
        let piece = piece?;
        let span = keys.span(piece.key, domain, piece.address, piece.length, Access::NONE)?;
        span.read(&mut target[done..done + piece.length]);
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
