//! Scatter and gather against a list that has the place of each byte.

use std::sync::Arc;

use proptest::prelude::*;

use crate::memory::access::Access;
use crate::memory::error::KeyFault;
use crate::memory::keys::{DomainId, KeyTable};
use crate::memory::region::{Backing, OwnedMemory};
use crate::memory::scatter::{Sge, gather, scatter};
use crate::rng::Rng;
use crate::wire::Lkey;

const DOMAIN: DomainId = DomainId(1);
const SIZE: usize = 96;
const BASE: u64 = 0x1000;

/// A segment of one of the memories; the third cannot be written, the fourth is none.
type Segment = (usize, u64, u32);

struct World {
    keys: KeyTable,
    memories: Vec<Arc<OwnedMemory>>,
    names: Vec<Lkey>,
}

impl World {
    fn new() -> Self {
        let mut keys = KeyTable::new(4, 0, Rng::new(1));
        let (mut memories, mut names) = (Vec::new(), Vec::new());
        for access in [Access::LOCAL_WRITE, Access::LOCAL_WRITE, Access::NONE] {
            let memory = OwnedMemory::new(SIZE);
            let content: Vec<u8> = (0..SIZE).map(|at| (at * 5 + memories.len()) as u8).collect();
            memory.write(0, &content).unwrap();
            let backing = Backing::owned(Arc::clone(&memory));
            names.push(Lkey::new(keys.register(backing, BASE, DOMAIN, access).unwrap()));
            memories.push(memory);
        }
        names.push(Lkey::new(names[0].value() ^ 1));
        Self { keys, memories, names }
    }

    fn list(&self, segments: &[Segment]) -> Vec<Sge> {
        let sge = |(which, offset, length): &Segment| Sge {
            address: BASE.wrapping_add(*offset),
            length: *length,
            key: self.names[*which],
        };
        segments.iter().map(sge).collect()
    }

    fn contents(&self) -> Vec<Vec<u8>> {
        self.memories.iter().map(|memory| memory.to_vec(0, SIZE).unwrap()).collect()
    }
}

/// The place of each of `length` bytes from `offset` on, or what is wrong with the first segment
/// that is.
fn places(
    segments: &[Segment],
    mut offset: usize,
    mut length: usize,
    writes: bool,
) -> Result<Vec<(usize, usize)>, KeyFault> {
    let mut places = Vec::new();
    for (which, start, size) in segments {
        let size = *size as usize;
        let skipped = offset.min(size);
        offset -= skipped;
        let part = (size - skipped).min(length);
        if part == 0 {
            continue;
        }
        let first = *start as usize + skipped;
        match which {
            3 => return Err(KeyFault::Unknown),
            2 if writes => return Err(KeyFault::Permission),
            _ if first + part > SIZE => return Err(KeyFault::OutOfBounds),
            _ => places.extend((first..first + part).map(|at| (*which, at))),
        }
        length -= part;
    }
    if length > 0 { Err(KeyFault::OutOfBounds) } else { Ok(places) }
}

fn segments() -> impl Strategy<Value = Vec<Segment>> {
    let which = prop_oneof![8 => Just(0usize), 8 => Just(1), 1 => Just(2), 1 => Just(3)];
    proptest::collection::vec((which, 0u64..80, 0u32..20), 0..9)
}

proptest! {
    #[test]
    fn scattered_bytes_lie_where_a_list_of_places_says(
        segments in segments(),
        offset in 0usize..40,
        source in proptest::collection::vec(any::<u8>(), 0..90),
    ) {
        let world = World::new();
        let mut expected = world.contents();
        let places = places(&segments, offset, source.len(), true);
        for ((which, at), byte) in places.iter().flatten().zip(&source) {
            expected[*which][*at] = *byte;
        }
        let list = world.list(&segments);
        let found = scatter(&world.keys, DOMAIN, list.into_iter(), offset as u64, &source);
        prop_assert_eq!(found, places.map(|_| ()));
        prop_assert_eq!(world.contents(), expected, "of a refused one nothing is written");
    }

    #[test]
    fn gathered_bytes_come_from_where_a_list_of_places_says(
        segments in segments(),
        offset in 0usize..40,
        length in 0usize..90,
    ) {
        let world = World::new();
        let contents = world.contents();
        let places = places(&segments, offset, length, false);
        let mut target = vec![0xee; length];
        let list = world.list(&segments);
        let found = gather(&world.keys, DOMAIN, list.into_iter(), offset as u64, &mut target, None);
        let bytes = places.map(|places| {
            places.iter().map(|(which, at)| contents[*which][*at]).collect::<Vec<u8>>()
        });
        prop_assert_eq!(found.map(|()| target), bytes);
    }

    /// A message that comes in packets lies as one that comes at once.
    #[test]
    fn packets_of_any_size_scatter_as_the_whole_message_does(
        segments in proptest::collection::vec((0usize..2, 0u64..76, 0u32..20), 1..9),
        source in proptest::collection::vec(any::<u8>(), 160),
        packet in 1usize..40,
    ) {
        let length: u32 = segments.iter().map(|(_, _, length)| length).sum();
        let source = &source[..length as usize];
        let (whole, parts) = (World::new(), World::new());
        let list = whole.list(&segments).into_iter();
        prop_assert_eq!(scatter(&whole.keys, DOMAIN, list, 0, source), Ok(()));
        for (index, piece) in source.chunks(packet).enumerate() {
            let offset = (index * packet) as u64;
            let list = parts.list(&segments).into_iter();
            prop_assert_eq!(scatter(&parts.keys, DOMAIN, list, offset, piece), Ok(()));
        }
        prop_assert_eq!(whole.contents(), parts.contents());
    }
}
