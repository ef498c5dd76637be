//! Laws of registered memory for any sequence of calls: the key table answers as a plain list would,
//! and scattered bytes lie where a list of places says.

mod model;
mod segments;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;

use self::model::{Model, Place, Region, Who, check};
use super::access::Access;
use super::error::{KeyFault, RegisterError};
use super::keys::{Accessor, DomainId, KeyTable};
use super::region::{AtomicChange, Backing, OwnedMemory};
use super::registration::RegionChange;
use super::window::{WindowBind, WindowId, WindowKind};
use crate::rng::Rng;
use crate::wire::{Lkey, Qpn, Rkey};

/// So few that limits are reached and indexes are used again.
const REGIONS: u32 = 4;
const WINDOWS: u32 = 6;
/// Bytes of each memory.
const SIZE: usize = 64;

#[derive(Clone, Debug)]
enum Key {
    /// That of a region that there is.
    Region(Index),
    /// That of a window that there is.
    Window(Index),
    /// One that was given out at some time, with so much changed in it.
    Former(Index, u32),
}

#[derive(Clone, Debug)]
struct Translation {
    range: std::ops::Range<usize>,
    base: u64,
}

/// Bytes that an access or a bind names, from the first byte on that it may.
#[derive(Clone, Debug)]
struct Range {
    from: i64,
    length: usize,
}

#[derive(Clone, Debug)]
enum Step {
    Register(Translation, DomainId, Access),
    Reregister(Key, Option<Translation>, Option<DomainId>, Option<Access>),
    Deregister(Key),
    Allocate(WindowKind, DomainId),
    Deallocate(Key, bool),
    Bind {
        window: Key,
        named: bool,
        /// The window's own, if there is none.
        kind: Option<WindowKind>,
        portion: u8,
        region: Key,
        range: Range,
        access: Access,
        /// As everywhere: the key's own, if there is none.
        domain: Option<DomainId>,
        over: Qpn,
    },
    Invalidate(Key, Option<DomainId>, Qpn),
    UnbindOver(Qpn),
    UnbindOf(Key),
    Access {
        key: Key,
        domain: Option<DomainId>,
        over: Option<Qpn>,
        range: Range,
        need: Access,
    },
    Word {
        key: Key,
        domain: Option<DomainId>,
        over: Qpn,
        from: i64,
        value: u64,
    },
}

fn former() -> impl Strategy<Value = Key> {
    // As it was; or a neighbour in generation, or in index.
    let change = prop_oneof![4 => Just(0u32), 1 => Just(1), 1 => Just(0x100), 1 => any::<u32>()];
    (any::<Index>(), change).prop_map(|(which, change)| Key::Former(which, change))
}

fn region() -> impl Strategy<Value = Key> {
    prop_oneof![6 => any::<Index>().prop_map(Key::Region), 1 => former()]
}

fn window() -> impl Strategy<Value = Key> {
    prop_oneof![6 => any::<Index>().prop_map(Key::Window), 1 => former()]
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![region(), window()]
}

/// Another domain than a key's own now and then.
fn other_domain() -> impl Strategy<Value = Option<DomainId>> {
    proptest::option::weighted(0.15, domain())
}

fn domain() -> impl Strategy<Value = DomainId> {
    prop_oneof![4 => Just(DomainId(1)), 1 => Just(DomainId(2))]
}

fn queue_pair() -> impl Strategy<Value = Qpn> {
    prop_oneof![3 => Just(Qpn::new(17)), 1 => Just(Qpn::new(18))]
}

fn access() -> impl Strategy<Value = Access> {
    let most = Access::ALL.bits() | Access::MW_BIND.bits() | Access::INVALIDATE.bits();
    // Everything, any mixture, and now and then rights that are refused.
    prop_oneof![
        4 => Just(most),
        3 => any::<u32>().prop_map(move |bits| bits & most | Access::LOCAL_WRITE.bits()),
        1 => any::<u32>().prop_map(|bits| bits & 0x8000_033f),
        2 => any::<u32>().prop_map(move |bits| (bits | 1) & most | Access::ZERO_BASED.bits()),
    ]
    .prop_map(|bits| Access::from_bits(bits).expect("known bits"))
}

fn translation() -> impl Strategy<Value = Translation> {
    let range = prop_oneof![Just(0..SIZE), (0usize..5, 5usize..=SIZE).prop_map(|(a, b)| a * 2..b)];
    let range = range.prop_filter("forwards", |range| range.start <= range.end);
    let base =
        prop_oneof![5 => Just(0x1000u64), 2 => 0x0ff0u64..0x1010, 1 => (u64::MAX - 70)..=u64::MAX];
    (range, base).prop_map(|(range, base)| Translation { range, base })
}

fn range() -> impl Strategy<Value = Range> {
    let from = prop_oneof![4 => 0i64..16, 1 => -4i64..70, 1 => Just(i64::MIN)];
    let length = prop_oneof![4 => 0usize..24, 1 => 0usize..70, 1 => Just(usize::MAX)];
    (from, length).prop_map(|(from, length)| Range { from, length })
}

fn need() -> impl Strategy<Value = Access> {
    proptest::sample::select(vec![
        Access::NONE,
        Access::LOCAL_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
        Access::FLUSH_GLOBAL,
    ])
}

fn kind() -> impl Strategy<Value = WindowKind> {
    proptest::sample::select(WindowKind::ALL.to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    let window_rights = prop_oneof![
        4 => Just(Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC),
        2 => Just(Access::REMOTE_READ | Access::ZERO_BASED),
        2 => access(),
    ];
    let bind = (
        (window(), any::<bool>(), proptest::option::weighted(0.1, kind()), any::<u8>(), region()),
        (range(), window_rights, other_domain(), queue_pair()),
    );
    let bind =
        bind.prop_map(|((window, named, kind, portion, region), (range, access, domain, over))| {
            Step::Bind { window, named, kind, portion, region, range, access, domain, over }
        });
    let over = proptest::option::weighted(0.8, queue_pair());
    let change = (
        proptest::option::of(translation()),
        proptest::option::of(domain()),
        proptest::option::of(access()),
    );
    prop_oneof![
        4 => (translation(), domain(), access()).prop_map(|(t, d, a)| Step::Register(t, d, a)),
        2 => (region(), change).prop_map(|(key, (t, d, a))| Step::Reregister(key, t, d, a)),
        2 => region().prop_map(Step::Deregister),
        3 => (kind(), domain()).prop_map(|(kind, domain)| Step::Allocate(kind, domain)),
        1 => (window(), any::<bool>()).prop_map(|(key, named)| Step::Deallocate(key, named)),
        10 => bind,
        4 => (key(), other_domain(), queue_pair())
            .prop_map(|(key, domain, over)| Step::Invalidate(key, domain, over)),
        1 => queue_pair().prop_map(Step::UnbindOver),
        1 => region().prop_map(Step::UnbindOf),
        12 => (key(), other_domain(), over, range(), need()).prop_map(
            |(key, domain, over, range, need)| Step::Access { key, domain, over, range, need }
        ),
        4 => (key(), other_domain(), queue_pair(), -2i64..24, any::<u64>()).prop_map(
            |(key, domain, over, from, value)| Step::Word { key, domain, over, from, value }
        ),
    ]
}

/// The table and the list, side by side.
struct Pair {
    table: KeyTable,
    model: Model,
    memories: Vec<(Arc<OwnedMemory>, Vec<u8>)>,
    /// All keys that were ever given out, and the names of their windows.
    keys: Vec<(u32, Option<WindowId>)>,
    writes: u8,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let table = KeyTable::new(REGIONS, WINDOWS, Rng::new(seed));
        let model = Model::default();
        // A key that never was one, so that there is always one to choose.
        Self { table, model, memories: Vec::new(), keys: vec![(0, None)], writes: 0 }
    }

    fn key(&self, key: &Key) -> u32 {
        match key {
            Key::Region(which) if !self.model.regions.is_empty() => {
                let place = which.index(self.model.regions.len());
                *self.model.regions.keys().nth(place).expect("so many")
            }
            Key::Window(which) if !self.model.windows.is_empty() => {
                self.model.windows[which.index(self.model.windows.len())].key
            }
            Key::Region(which) | Key::Window(which) => self.former(which).0,
            Key::Former(which, change) => self.former(which).0 ^ change,
        }
    }

    fn former(&self, which: &Index) -> (u32, Option<WindowId>) {
        self.keys[which.index(self.keys.len())]
    }

    /// The window of a key, by its own name or by the number alone.
    fn window(&self, key: &Key, named: bool) -> WindowId {
        let number = self.key(key);
        let own = match key {
            Key::Former(which, 0) => self.former(which).1,
            _ => self.model.window_of_key(number).map(|window| window.id),
        };
        own.filter(|_| named).unwrap_or_else(|| WindowId::of_key(Rkey::new(number)))
    }

    fn domain(&self, key: u32, other: Option<DomainId>) -> DomainId {
        other.or_else(|| self.model.domain_of(key)).unwrap_or(DomainId(1))
    }

    fn address(&self, key: u32, from: i64) -> u64 {
        self.model.base_of(key).unwrap_or(0x1000).wrapping_add_signed(from)
    }

    /// Backs a translation by new memory.
    fn back(&mut self, translation: &Translation) -> (Backing, Place) {
        let memory = OwnedMemory::new(SIZE);
        let range = translation.range.clone();
        let place = Place { memory: self.memories.len(), offset: range.start };
        let backing = Backing::part(Arc::clone(&memory), range).expect("inside");
        let content: Vec<u8> = (0..SIZE).map(|at| (at * 5 + self.memories.len()) as u8).collect();
        memory.write(0, &content).expect("inside");
        self.memories.push((memory, content));
        (backing, place)
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Register(translation, domain, access) => {
                self.register(translation, *domain, *access);
            }
            Step::Reregister(key, translation, domain, access) => {
                self.reregister(key, translation.as_ref(), *domain, *access);
            }
            Step::Deregister(key) => {
                let key = self.key(key);
                let ends = self.model.windows_on(key) == Some(0);
                assert_eq!(self.table.deregister(key), ends);
                if ends {
                    self.model.regions.remove(&key);
                }
            }
            Step::Allocate(kind, domain) => self.allocate(*kind, *domain),
            Step::Deallocate(key, named) => {
                let id = self.window(key, *named);
                assert_eq!(self.table.deallocate_window(id), self.model.deallocate(id));
            }
            Step::Invalidate(key, domain, over) => {
                let key = self.key(key);
                let domain = self.domain(key, *domain);
                let can = self.table.can_invalidate(key, domain, *over);
                assert_eq!(self.table.invalidate(key, domain, *over), can);
                assert_eq!(self.model.invalidate(key, domain, *over), can);
            }
            Step::UnbindOver(over) => {
                self.table.unbind_all_over(*over);
                self.model.unbind_if(|_, own| own == Some(*over));
            }
            Step::UnbindOf(key) => {
                let key = self.key(key);
                // Callers name a region that there is.
                if self.model.regions.contains_key(&key) {
                    self.table.unbind_all_of(key);
                    self.model.unbind_if(|region, _| region == key);
                }
            }
            Step::Bind { .. } => self.bind(step),
            Step::Access { key, domain, over, range, need } => {
                let key = self.key(key);
                let who = Who { domain: self.domain(key, *domain), over: *over };
                self.access(key, who, range, *need);
            }
            Step::Word { key, domain, over, from, value } => {
                let key = self.key(key);
                let who = Who { domain: self.domain(key, *domain), over: Some(*over) };
                self.word(key, who, *from, *value);
            }
        }
    }

    fn register(&mut self, translation: &Translation, domain: DomainId, access: Access) {
        let (backing, place) = self.back(translation);
        let length = translation.range.len();
        let zero_based = access.contains(Access::ZERO_BASED);
        let base = if zero_based { 0 } else { translation.base };
        let region = Region { place, length, base, domain, access, valid: true };
        let full = self.model.regions.len() as u32 >= REGIONS;
        let too_many = RegisterError::TooMany { what: "regions", limit: REGIONS };
        let expected = check(&region).and(if full { Err(too_many) } else { Ok(()) });
        let found = self.table.register(backing, translation.base, domain, access);
        assert_eq!(found.map(|_| ()), expected);
        if let Ok(key) = found {
            self.put(key, region);
        }
    }

    /// A key is one that nothing had before: not within so few steps.
    fn put(&mut self, key: u32, region: Region) {
        assert!(self.keys.iter().all(|(known, _)| *known != key), "key {key:#x} comes again");
        self.keys.push((key, None));
        self.model.regions.insert(key, region);
    }

    fn reregister(
        &mut self,
        key: &Key,
        translation: Option<&Translation>,
        domain: Option<DomainId>,
        access: Option<Access>,
    ) {
        let key = self.key(key);
        if self.model.windows_on(key).is_some_and(|windows| windows > 0) {
            return;
        }
        let backed = translation.map(|translation| self.back(translation));
        let place = backed.as_ref().map(|(_, place)| *place);
        let expected = self.changed(key, translation.zip(place), domain, access);
        let translation =
            backed.zip(translation).map(|((backing, _), given)| (backing, given.base));
        let change = RegionChange { translation, domain, access };
        let found = self.table.reregister(key, change);
        assert_eq!(found.map(|_| ()), expected.map(|_| ()));
        if let (Ok(new), Ok(region)) = (found, expected) {
            self.model.regions.remove(&key);
            self.put(new, region);
        }
    }

    fn changed(
        &self,
        key: u32,
        translation: Option<(&Translation, Place)>,
        domain: Option<DomainId>,
        access: Option<Access>,
    ) -> Result<Region, RegisterError> {
        if translation.is_none() && domain.is_none() && access.is_none() {
            return Err(RegisterError::NothingToChange);
        }
        let old = *self.model.regions.get(&key).ok_or(RegisterError::NoSuchRegion)?;
        let mut region = Region { valid: true, ..old };
        region.domain = domain.unwrap_or(old.domain);
        region.access = access.unwrap_or(old.access);
        let zero_based = region.access.contains(Access::ZERO_BASED);
        match translation {
            Some((given, place)) => {
                region.place = place;
                region.length = given.range.len();
                region.base = if zero_based { 0 } else { given.base };
            }
            None if zero_based != old.access.contains(Access::ZERO_BASED) => {
                return Err(RegisterError::AddressingChanged);
            }
            None => {}
        }
        check(&region).map(|()| region)
    }

    fn allocate(&mut self, kind: WindowKind, domain: DomainId) {
        let full = self.model.windows.len() as u32 >= WINDOWS;
        let too_many = RegisterError::TooMany { what: "windows", limit: WINDOWS };
        let found = self.table.allocate_window(kind, domain);
        assert_eq!(found.map(|_| ()), if full { Err(too_many) } else { Ok(()) });
        if let Ok(key) = found {
            let id = self.table.window_of(key).expect("it is a window");
            self.keys.push((key.value(), Some(id)));
            self.model.allocate(id, key.value(), kind, domain);
        }
    }

    fn bind(&mut self, step: &Step) {
        let Step::Bind { window, named, kind, portion, region, range, access, domain, over } = step
        else {
            return;
        };
        let region = self.key(region);
        let key = self.key(window);
        let own = self.model.window_of_key(key).map_or(WindowKind::Type2B, |window| window.kind);
        let domain = &self.domain(key, *domain);
        let bind = WindowBind {
            window: self.window(window, *named),
            kind: kind.unwrap_or(own),
            portion: *portion,
            region: Lkey::new(region),
            address: self.address(region, range.from),
            length: range.length as u64,
            access: *access,
        };
        let found = self.table.bind(&bind, *domain, *over);
        assert_eq!(found, self.model.bind(&bind, *domain, *over), "{bind:?}");
        if found.is_ok() {
            let id = self.table.window_of(bind.key());
            self.keys.push((bind.key().value(), id));
        }
    }

    fn access(&mut self, key: u32, who: Who, range: &Range, need: Access) {
        let address = self.address(key, range.from);
        let accessor = Accessor { domain: who.domain, peer_over: who.over };
        let found = self.table.span(key, accessor, address, range.length, need);
        let expected = self.model.span(key, who, address, range.length, need);
        assert_eq!(found.as_ref().map(|_| ()).map_err(|fault| *fault), expected.map(|_| ()));
        let (Ok(span), Ok(place)) = (found, expected) else { return };
        let (memory, bytes) = &mut self.memories[place.memory];
        let there = &mut bytes[place.offset..place.offset + range.length];
        if need == Access::LOCAL_WRITE || need == Access::REMOTE_WRITE {
            self.writes = self.writes.wrapping_add(1);
            there.fill(self.writes);
            span.write(there).expect("memory that is there");
            assert_eq!(memory.to_vec(0, SIZE).expect("inside"), *bytes, "and nothing else");
        } else {
            let mut read = vec![0xee; range.length];
            span.read(&mut read, None).expect("memory that is there");
            assert_eq!(read, *there);
        }
    }

    /// An atomic addition, then an atomic store.
    fn word(&mut self, key: u32, who: Who, from: i64, value: u64) {
        let address = self.address(key, from);
        let accessor = Accessor { domain: who.domain, peer_over: who.over };
        for need in [Access::REMOTE_ATOMIC, Access::REMOTE_WRITE] {
            let place = self.model.span(key, who, address, 8, need);
            let is_aligned =
                |place: &Place| address.is_multiple_of(8) && place.offset.is_multiple_of(8);
            let place = place.and_then(|place| {
                if is_aligned(&place) { Ok(place) } else { Err(KeyFault::Misaligned) }
            });
            let old = place.map(|place| {
                let bytes = &mut self.memories[place.memory].1;
                let word = &mut bytes[place.offset..place.offset + 8];
                let old = u64::from_ne_bytes((&*word).try_into().expect("eight"));
                let new =
                    if need == Access::REMOTE_ATOMIC { old.wrapping_add(value) } else { value };
                word.copy_from_slice(&new.to_ne_bytes());
                old
            });
            if need == Access::REMOTE_ATOMIC {
                let change = AtomicChange::FetchAdd(value);
                assert_eq!(self.table.atomic(key, accessor, address, change), old);
            } else {
                let found = self.table.store(key, accessor, address, value.to_ne_bytes());
                assert_eq!(found, old.map(|_| ()));
            }
            if let Ok(place) = place {
                let (memory, bytes) = &self.memories[place.memory];
                assert_eq!(memory.to_vec(0, SIZE).expect("inside"), *bytes);
            }
        }
    }

    /// What can be asked of everything at any time.
    fn compare(&self) {
        for domain in [1, 2, 3].map(DomainId) {
            assert_eq!(self.table.count_in(domain), self.model.count_in(domain));
        }
        for (key, _) in &self.keys {
            assert_eq!(self.table.windows_on(*key), self.model.windows_on(*key), "{key:#x}");
        }
        // A list that is wrong would lead unbinding round in a circle.
        assert_eq!(
            self.table.bound_over.keys().copied().collect::<BTreeSet<_>>(),
            self.model.bound_over()
        );
        for window in &self.model.windows {
            assert_eq!(self.table.window_of(Rkey::new(window.key)), Some(window.id));
        }
    }
}

proptest! {
    #[test]
    fn the_key_table_answers_as_a_plain_list_would(
        seed in any::<u64>(),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut pair = Pair::new(seed);
        for step in &steps {
            pair.take(step);
            pair.compare();
        }
    }
}
