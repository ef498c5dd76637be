//! Once warm, the data path allocates nothing: not for a message, not for a packet, not for a loss,
//! over memory and over sockets.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use uroce::engine::{
    Counter, Engine, EngineOptions, MemoryKeys, Port, PortCapabilities, QueuePairOptions,
    UnreachableKind,
};
use uroce::link::memory::{self, MemoryOptions};
use uroce::link::{Link, UdpLink, UdpOptions};
use uroce::memory::OwnedMemory;
use uroce::queue::{
    Access, AddressVector, CompletionQueue, CompletionStatus, PathMtu, Payload, QueueCapacities,
    QueuePairAttributes, QueuePairKind, QueuePairQueues, QueuePairState, ReceiveRequest, Remote,
    SendFlags, SendOperation, SendRequest, Sge,
};
use uroce::rng::Rng;
use uroce::time::{Instant, MICROSECOND};
use uroce::wire::{Identification, Psn, Qpn, ReceivedBurst, SentBurst};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread holds; what it has freed for others makes it less.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
}

fn hold(bytes: i64) {
    HELD.with(|held| held.set(held.get() + bytes));
}

// SAFETY: everything is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        hold(size as i64 - layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(start, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A link that loses packets on arrival.
struct Lossy {
    link: Box<dyn Link>,
    rng: Rng,
    /// Of 1000 packets.
    lost: u64,
}

impl Port for Lossy {
    fn capabilities(&self) -> &PortCapabilities {
        self.link.capabilities()
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        let (rng, lost) = (&mut self.rng, self.lost);
        self.link.receive(budget, &mut |burst| {
            for (bytes, index) in burst.segments().zip(0..) {
                let identification = match burst.identification {
                    Identification::Seen { first, flags } => {
                        Identification::Seen { first: first.wrapping_add(index), flags }
                    }
                    Identification::Unseen => Identification::Unseen,
                };
                let segment = bytes.len();
                if !rng.chance(lost, 1000) {
                    sink(&ReceivedBurst { identification, segment, bytes, ..*burst });
                }
            }
        })
    }

    fn is_pressed(&mut self) -> bool {
        self.link.is_pressed()
    }

    fn take_unreachable(&mut self, look: bool, sink: &mut dyn FnMut(IpAddr, UnreachableKind)) {
        self.link.take_unreachable(look, sink);
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        self.link.transmit(budget, fill)
    }
}

struct End {
    engine: Engine,
    port: Lossy,
    queues: Arc<QueuePairQueues>,
    completions: Arc<CompletionQueue>,
    memory: Arc<OwnedMemory>,
    keys: MemoryKeys,
}

const BATCH: u64 = 32;

impl End {
    fn new(seed: u64, link: Box<dyn Link>) -> Self {
        let port = Lossy { link, rng: Rng::new(seed), lost: 0 };
        let options = EngineOptions::new(seed, vec![port.link.local_address()]);
        let mut engine = Engine::new(options, port.capabilities());
        let domain = engine.allocate_domain().unwrap();
        let completions = engine.create_completion_queue(1024).unwrap();
        let options = QueuePairOptions {
            kind: QueuePairKind::Rc,
            domain,
            send_completions: Arc::clone(&completions),
            receive_completions: Arc::clone(&completions),
            capacities: QueueCapacities::default(),
            signal_all: true,
        };
        let queues = engine.create_queue_pair(&options).unwrap();
        let memory = OwnedMemory::new(1 << 20);
        let keys = engine.register(domain, Arc::clone(&memory), Access::ALL).unwrap();
        Self { engine, port, queues, completions, memory, keys }
    }

    fn connect(&mut self, address: IpAddr, destination: Qpn) {
        let init = QueuePairAttributes {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::ALL),
            ..QueuePairAttributes::to_state(QueuePairState::Init)
        };
        let rtr = QueuePairAttributes {
            address: Some(AddressVector::new(0, address)),
            path_mtu: Some(PathMtu::Mtu1024),
            destination: Some(destination),
            receive_psn: Some(Psn::new(0xff_ff00)),
            max_destination_rd_atomic: Some(16),
            min_rnr_timer: Some(1),
            ..QueuePairAttributes::to_state(QueuePairState::Rtr)
        };
        let rts = QueuePairAttributes {
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            send_psn: Some(Psn::new(0xff_ff00)),
            max_rd_atomic: Some(16),
            ..QueuePairAttributes::to_state(QueuePairState::Rts)
        };
        for attributes in [init, rtr, rts] {
            let number = self.queues.number();
            self.engine.modify_queue_pair(Instant::ZERO, number, &attributes).unwrap();
        }
    }

    fn segment(&self, offset: usize, length: u32) -> Sge {
        Sge { address: self.memory.address() + offset as u64, length, key: self.keys.local }
    }

    /// Takes all completions out. Returns how many were of sends.
    fn poll(&self) -> u64 {
        let mut sends = 0;
        let take = |_, completion: uroce::queue::Completion| {
            assert_eq!(completion.status, CompletionStatus::Success);
            sends += u64::from(!completion.kind.is_receive());
        };
        self.completions.poll(1024, take).unwrap();
        sends
    }
}

struct World {
    ends: [End; 2],
    now: Instant,
}

impl World {
    fn over_memory() -> Self {
        let addresses = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let options = MemoryOptions { descriptor: false, ..MemoryOptions::default() };
        let (first, second) = memory::pair(addresses, &options).unwrap();
        Self::over(addresses, [Box::new(first), Box::new(second)])
    }

    /// Over sockets on addresses of `lo` that only the test with this number uses.
    fn over_udp(number: u8) -> Self {
        let addresses = [1, 2].map(|last| IpAddr::from([127, 88, 13, 10 * number + last]));
        let open = |address| -> Box<dyn Link> {
            Box::new(UdpLink::open(UdpOptions::new(address, 65_535)).unwrap())
        };
        Self::over(addresses, addresses.map(open))
    }

    fn over(addresses: [IpAddr; 2], links: [Box<dyn Link>; 2]) -> Self {
        let mut seeds = 1..;
        let mut ends = links.map(|link| End::new(seeds.next().unwrap_or(0), link));
        let numbers = [0, 1].map(|index| ends[index].queues.number());
        ends[0].connect(addresses[1], numbers[1]);
        ends[1].connect(addresses[0], numbers[0]);
        Self { ends, now: Instant::ZERO }
    }

    fn operation(&self, number: u64) -> (SendOperation, u32) {
        let peer = &self.ends[1];
        let remote = Remote { address: peer.memory.address(), key: peer.keys.remote };
        match number % 6 {
            0 => (SendOperation::Send, 40),
            1 => (SendOperation::Write(remote), 5000),
            2 => (SendOperation::FetchAdd { remote, add: 1 }, 8),
            3 => (SendOperation::Read(remote), 70_000),
            4 => (SendOperation::Send, 3000),
            _ => (SendOperation::CompareSwap { remote, compare: 1, swap: 2 }, 8),
        }
    }

    /// Sends so many messages of all kinds from the first end to the second.
    fn send(&mut self, messages: u64, lost: u64) {
        self.ends.iter_mut().for_each(|end| end.port.lost = lost);
        for batch in 0..messages.div_ceil(BATCH) {
            self.post(batch);
            let mut finished = 0;
            while finished < BATCH {
                for end in &mut self.ends {
                    end.engine.turn(self.now, &mut end.port, 64);
                }
                finished += self.ends[0].poll();
                self.ends[1].poll();
                self.now += 5 * MICROSECOND;
            }
        }
    }

    fn post(&self, batch: u64) {
        let [ours, peers] = &self.ends;
        for id in batch * BATCH..(batch + 1) * BATCH {
            let (operation, length) = self.operation(id);
            if operation == SendOperation::Send {
                let segments = [peers.segment(0x8_0000, 1024), peers.segment(0x9_0000, 4096)];
                let receive = ReceiveRequest { id, segments: &segments };
                peers.queues.post_one_receive(&receive).unwrap();
            }
            let segments = [ours.segment(0, length)];
            let payload = Payload::Segments(&segments);
            let request = SendRequest { id, operation, flags: SendFlags::NONE, payload };
            ours.queues.post_one_send(&request).unwrap();
        }
    }
}

/// Allocations while 10 000 messages are sent, after as many as it takes to be warm.
fn allocations(mut world: World, lost: u64) -> (u64, World) {
    world.send(3_000, 5 * lost);
    let before = ALLOCATIONS.get();
    world.send(10_000, lost);
    (ALLOCATIONS.get() - before, world)
}

#[test]
fn ten_thousand_messages_allocate_nothing() {
    let (count, world) = allocations(World::over_memory(), 0);
    assert_eq!(count, 0);
    let resent = world.ends[0].engine.counters().get(Counter::RetransmittedPackets);
    assert_eq!(resent, 0);
}

#[test]
fn nor_do_losses_and_what_mends_them() {
    let (count, world) = allocations(World::over_memory(), 10);
    assert_eq!(count, 0);
    let resent = world.ends[0].engine.counters().get(Counter::RetransmittedPackets);
    assert!(resent > 100, "{resent}");
}

/// Sockets may lose packets of their own where this machine is busy.
#[test]
fn nor_do_sockets() {
    let (count, _) = allocations(World::over_udp(1), 0);
    assert_eq!(count, 0);
}

#[test]
fn nor_do_losses_over_sockets() {
    let (count, world) = allocations(World::over_udp(2), 10);
    assert_eq!(count, 0);
    let resent = world.ends[0].engine.counters().get(Counter::RetransmittedPackets);
    assert!(resent > 100, "{resent}");
}

/// An idle connection costs at most 4 KiB with everything that is kept for it: queues, what they can
/// have under way, counters, flight recorder, and its share of the engine's tables.
#[test]
fn an_idle_connected_queue_pair_is_small() {
    const LIMIT: i64 = 4 * 1024;
    const PAIRS: i64 = 1024;
    let mut world = World::over_memory();
    let end = &mut world.ends[0];
    let domain = end.engine.allocate_domain().unwrap();
    let small = QueueCapacities {
        send_requests: 16,
        receive_requests: 16,
        send_segments: 1,
        receive_segments: 1,
        inline_bytes: 0,
    };
    let mut kept = Vec::with_capacity(PAIRS as usize);
    let before = HELD.get();
    for _ in 0..PAIRS {
        let options = QueuePairOptions {
            kind: QueuePairKind::Rc,
            domain,
            send_completions: Arc::clone(&end.completions),
            receive_completions: Arc::clone(&end.completions),
            capacities: small,
            signal_all: true,
        };
        kept.push(end.engine.create_queue_pair(&options).unwrap());
        end.queues = Arc::clone(&kept[kept.len() - 1]);
        end.connect(IpAddr::from([10, 0, 0, 2]), Qpn::new(17));
    }
    let each = (HELD.get() - before) / PAIRS;
    println!("{each} bytes for each idle connected queue pair");
    assert!((1..=LIMIT).contains(&each), "{each} bytes for each queue pair");
}

#[test]
fn the_count_is_not_blind() {
    let (before, held) = (ALLOCATIONS.get(), HELD.get());
    let boxed = std::hint::black_box(Box::new(7_u64));
    assert_eq!(HELD.get(), held + 8);
    drop(boxed);
    assert_eq!((ALLOCATIONS.get(), HELD.get()), (before + 1, held));
}
