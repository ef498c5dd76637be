//! A machine: an engine, its memories, its completion queues.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::{Engine, EngineOptions, Limits, MemoryKeys, PortCapabilities};
use crate::memory::{DomainId, OwnedMemory, WindowKind};
use crate::queue::{Access, CompletionQueue, Notify, Remote, Sge};
use crate::rng::Rng;
use crate::time::Instant;
use crate::wire::Rkey;

use super::grants::Grant;
use super::oracle::{MemoryId, Oracle, Place};
use super::pattern;
use super::recycled;
use super::scenario::{Polling, Scenario};

/// Bytes before and behind each registered range that nothing may ever change.
pub(super) const GUARD: usize = 64;
/// Words for atomic operations on a node.
pub(super) const WORDS: usize = 8;
/// Bytes of a window.
pub(super) const WINDOW: usize = 2048;
/// Bytes of the memory behind an end's memory window.
pub(super) const GRANT: usize = 8192;
/// Rights of the memory behind a memory window: none for peers.
const BINDABLE: Access = Access::LOCAL_WRITE.union(Access::MW_BIND);
/// Bytes of a new memory that are made and copied at a time, so that they stay in the cache.
const FILL: usize = 16 << 10;
/// Entries of a completion queue, at least and at most.
const COMPLETIONS: (u32, u32) = (64, 4096);

/// A memory of which `size` bytes between two guards are registered. What lies behind the second
/// guard is not of this run.
///
/// Work requests name it by an address that does not depend on where the memory really lies, so
/// that every frame of a run is the same each time.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    pub(super) memory: Arc<OwnedMemory>,
    pub(super) id: MemoryId,
    pub(super) keys: MemoryKeys,
    pub(super) base: u64,
    pub(super) size: usize,
}

impl Registered {
    /// The address of the byte at `offset` of the memory, guard included.
    pub(super) fn address(&self, offset: usize) -> u64 {
        (self.base + offset as u64).wrapping_sub(GUARD as u64)
    }

    pub(super) fn place(&self, offset: usize, length: usize) -> Place {
        Place { memory: self.id, offset, length }
    }

    pub(super) fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge { address: self.address(offset), length: length as u32, key: self.keys.local }
    }

    pub(super) fn remote(&self, offset: usize) -> Remote {
        Remote { address: self.address(offset), key: self.keys.remote }
    }
}

/// A completion queue as its application uses it.
pub(super) struct Completions {
    pub(super) queue: Arc<CompletionQueue>,
    pub(super) polling: Polling,
    pub(super) is_armed: bool,
    told: Arc<AtomicU64>,
    told_before: u64,
}

impl Completions {
    /// Whether a notification came since the last time this was asked.
    pub(super) fn was_told(&mut self) -> bool {
        let told = self.told.load(Ordering::Relaxed);
        std::mem::replace(&mut self.told_before, told) != told
    }

    /// Whether a notification waits to be noticed.
    pub(super) fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed) != self.told_before
    }
}

struct Bell(Arc<AtomicU64>);

impl Notify for Bell {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// When something is next; of several at a time, what was decided first comes first. Time and number
/// of the decision are one number, so that one comparison tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due(u128);

impl Due {
    /// Nothing is to come.
    pub(super) const NEVER: Self = Self(u128::MAX);

    pub(super) const fn new(at: Instant, entry: u64) -> Self {
        Self((at.as_nanos() as u128) << 64 | entry as u128)
    }

    pub(super) const fn at(self) -> Instant {
        Instant::from_nanos((self.0 >> 64) as u64)
    }
}

/// See the module's text.
pub(super) struct Node {
    pub(super) engine: Engine,
    pub(super) domain: DomainId,
    /// Everything that peers may use: zones of the ends, then what all may write and read.
    pub(super) arena: Registered,
    /// Words for atomic operations.
    pub(super) words: Registered,
    /// Peers may only read it; nobody may write.
    pub(super) read_only: Registered,
    /// Only the node itself may use it, and never writes it.
    pub(super) private: Registered,
    /// All rights, but in another protection domain.
    pub(super) elsewhere: Registered,
    /// A key that was valid once.
    pub(super) stale_key: Rkey,
    pub(super) queues: Vec<Completions>,
    /// When the engine's next turn is due.
    pub(super) turn_at: Due,
    /// When the application runs next.
    pub(super) application_at: Due,
    next_base: u64,
}

/// Address of a node.
pub(super) fn address(node: usize, ipv6: bool) -> IpAddr {
    let number = node as u8 + 1;
    if ipv6 {
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
    }
}

impl Node {
    pub(super) fn new(
        scenario: &Scenario,
        number: usize,
        capabilities: &PortCapabilities,
        rng: &mut Rng,
        oracle: &mut Oracle,
    ) -> Self {
        let gids = vec![address(number, scenario.ipv6)];
        let ends = ends_of(scenario, number);
        let mut options = EngineOptions::new(rng.next_u64(), gids);
        let unacked = scenario.unacked.iter().filter(|plan| plan.node == number).count();
        let links = scenario.shared.as_ref().map_or(0, |shared| shared.pairs_of(number));
        options.limits = limits((ends + unacked + links) as u32);
        options.slot = number as u8 + 1;
        options.finite_credits = scenario.nodes[number].finite_credits;
        let mut engine = Engine::new(options, capabilities);
        engine.note_changes();
        let domain = engine.allocate_domain().expect("a new engine has room for a domain");
        let other = engine.allocate_domain().expect("a new engine has room for a second domain");
        let arena_size = ends * scenario.zones.iter().sum::<usize>() + scenario.target;
        let mut maker = Maker { engine: &mut engine, oracle, rng, number, next_base: 0x10_0000 };
        let arena = maker.make("arena", arena_size, domain, Access::ALL);
        let words = maker.make("words", WORDS * 8, domain, Access::ALL);
        let read_only = maker.make("read-only memory", 256, domain, Access::REMOTE_READ);
        let private = maker.make("private memory", 256, domain, Access::LOCAL_WRITE);
        let elsewhere = maker.make("memory of another domain", 256, other, Access::ALL);
        let stale = maker.make("deregistered memory", 256, domain, Access::ALL);
        let next_base = maker.next_base;
        engine.deregister(stale.keys.local).expect("it was just registered");
        let plans = &scenario.nodes[number].completion_queues;
        let entries = completion_entries(scenario, number);
        let queues = plans.iter().map(|polling| completions(&mut engine, entries, *polling));
        let queues = queues.collect();
        Self {
            engine,
            domain,
            arena,
            words,
            read_only,
            private,
            elsewhere,
            stale_key: stale.keys.remote,
            queues,
            turn_at: Due::NEVER,
            application_at: Due::NEVER,
            next_base,
        }
    }

    /// Start, in the arena, of the zones of the node's end number `index`.
    pub(super) fn zones_of(index: usize, sizes: [usize; 3]) -> [usize; 3] {
        let start = GUARD + index * sizes.iter().sum::<usize>();
        [start, start + sizes[0], start + sizes[0] + sizes[1]]
    }

    /// Start, in the arena, of what all peers may use.
    pub(super) fn target_start(&self, target: usize) -> usize {
        GUARD + self.arena.size - target
    }

    /// A new memory whose key may be invalidated.
    pub(super) fn window(
        &mut self,
        number: usize,
        rng: &mut Rng,
        oracle: &mut Oracle,
    ) -> Registered {
        let (domain, next_base) = (self.domain, self.next_base);
        let mut maker = Maker { engine: &mut self.engine, oracle, rng, number, next_base };
        let window = maker.make("window", WINDOW, domain, Access::ALL | Access::INVALIDATE);
        self.next_base = maker.next_base;
        window
    }

    /// A new memory for one end, which its peer may use.
    pub(super) fn region(
        &mut self,
        number: usize,
        size: usize,
        rng: &mut Rng,
        oracle: &mut Oracle,
    ) -> Registered {
        let (domain, next_base) = (self.domain, self.next_base);
        let mut maker = Maker { engine: &mut self.engine, oracle, rng, number, next_base };
        let region = maker.make("region", size, domain, Access::ALL);
        self.next_base = maker.next_base;
        region
    }

    /// A memory window that grants nothing yet, and memory of which only it can give peers anything.
    pub(super) fn grant(&mut self, number: usize, rng: &mut Rng, oracle: &mut Oracle) -> Grant {
        let (domain, next_base) = (self.domain, self.next_base);
        let mut maker = Maker { engine: &mut self.engine, oracle, rng, number, next_base };
        let region = maker.make("memory behind a window", GRANT, domain, BINDABLE);
        self.next_base = maker.next_base;
        let window = self.engine.allocate_window(domain, WindowKind::Type2B);
        Grant::new(region, window.expect("the limits allow it"), oracle.watch_window())
    }

    /// Registers the memory behind a window once more, under a new key.
    pub(super) fn register_bindable(&mut self, region: &Registered) -> MemoryKeys {
        let Registered { memory, base, size, .. } = region;
        register(&mut self.engine, self.domain, memory, *base, *size, BINDABLE)
    }

    /// Registers a window's memory once more, under a new key.
    pub(super) fn register_again(&mut self, window: &Registered) -> MemoryKeys {
        let Registered { memory, base, size, .. } = window;
        let access = Access::ALL | Access::INVALIDATE;
        register(&mut self.engine, self.domain, memory, *base, *size, access)
    }
}

/// How many ends of connections a node has.
fn ends_of(scenario: &Scenario, node: usize) -> usize {
    let ends = scenario.connections.iter().flat_map(|connection| &connection.ends);
    ends.filter(|end| end.node == node).count()
}

fn limits(ends: u32) -> Limits {
    Limits {
        queue_pairs: 2 * ends + 2,
        completion_queues: 8,
        domains: 4,
        regions: 16 + 8 * ends,
        windows: ends,
        ..Limits::default()
    }
}

/// Entries of each of a node's completion queues: twice everything that can be outstanding on the
/// node. More would have to be made and cleared for each run; less would be an overrun, which no run
/// may have.
fn completion_entries(scenario: &Scenario, node: usize) -> u32 {
    let ends = scenario.connections.iter().flat_map(|connection| &connection.ends);
    let ends = ends.filter(|end| end.node == node);
    let of_ends: u32 = ends.map(|end| end.depth + end.receive_depth).sum();
    let farewells = scenario.unacked.len() as u32;
    let unacked = scenario.unacked.iter().filter(|plan| plan.node == node);
    let of_unacked: u32 = unacked.map(|plan| plan.depth + plan.receive_depth + farewells).sum();
    let shared = scenario.shared.as_ref().map_or(0, |shared| shared.requests_of(node));
    let (least, most) = COMPLETIONS;
    (2 * (of_ends + of_unacked + shared)).clamp(least, most)
}

fn completions(engine: &mut Engine, entries: u32, polling: Polling) -> Completions {
    let queue = engine.create_completion_queue(entries).expect("the limits allow it");
    let told = Arc::new(AtomicU64::new(0));
    queue.set_notifier(Box::new(Bell(Arc::clone(&told))));
    Completions { queue, polling, is_armed: false, told, told_before: 0 }
}

struct Maker<'a> {
    engine: &'a mut Engine,
    oracle: &'a mut Oracle,
    rng: &'a mut Rng,
    number: usize,
    next_base: u64,
}

impl Maker<'_> {
    fn make(&mut self, name: &str, size: usize, domain: DomainId, access: Access) -> Registered {
        let length = size + 2 * GUARD;
        let memory = recycled::memory(length);
        let content = self.fill(&memory, length);
        let base = self.next_base;
        self.next_base += (size as u64).next_multiple_of(0x1_0000) + 0x1_0000;
        let keys = register(self.engine, domain, &memory, base, size, access);
        let name = format!("{name} of node {}", self.number);
        let id = self.oracle.watch_filled(name, Arc::clone(&memory), content, length);
        Registered { memory, id, keys, base, size }
    }

    /// Fills the beginning of a memory. Returns at least what it now holds: to read it back would
    /// take as long again.
    fn fill(&mut self, memory: &OwnedMemory, length: usize) -> Vec<u8> {
        let mut content = recycled::bytes(length);
        for (index, part) in content[..length].chunks_mut(FILL).enumerate() {
            pattern::fill(self.rng, part);
            memory.write(index * FILL, part).expect("the memory is long enough");
        }
        content
    }
}

/// Registers what lies between a memory's guards.
fn register(
    engine: &mut Engine,
    domain: DomainId,
    memory: &Arc<OwnedMemory>,
    base: u64,
    size: usize,
    access: Access,
) -> MemoryKeys {
    let range = GUARD..GUARD + size;
    let keys = engine.register_part(domain, Arc::clone(memory), range, base, access);
    keys.expect("the limits allow it")
}
