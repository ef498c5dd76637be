//! Forged packets with right ICRCs against every kind of queue pair, one after another: whatever a
//! peer sends, nothing panics, nothing outside of what was granted is written, and no packet makes
//! more go out than it asks for.

mod pair;
mod xrc;

use std::net::IpAddr;
use std::sync::Arc;

use pair::{Pair, QKEY, Wire};
use uroce::engine::Engine;
use uroce::memory::{DomainId, OwnedMemory, WindowBind, WindowId, WindowKind};
use uroce::queue::{
    Access, PathMtu, Payload, QueuePairKind, QueuePairQueues, QueuePairState, ReceiveQueue,
    ReceiveRequest, Remote, SendFlags, SendOperation, SendRequest, Sge,
};
use uroce::rng::Rng;
use uroce::time::{Instant, MILLISECOND, SECOND};
use uroce::wire::icrc::{self, DONT_FRAGMENT};
use uroce::wire::{Flow, Qpn, Rkey, SentBurst};

/// What peers may touch, in a memory that is full of [`CANARY`] around it.
const GRANTED: std::ops::Range<usize> = 0x4000..0x5000;
const CANARY: u8 = 0xa5;
/// The address by which the granted part ends where 64-bit addresses do, but for one byte.
const TOP: u64 = u64::MAX - 0x1000;
const PACKETS: u32 = 5_000;

/// What a forger attacks.
struct Victim<'a> {
    engine: &'a mut Engine,
    wire: &'a mut Wire,
    queues: Arc<QueuePairQueues>,
    flow: Flow,
    peer: Qpn,
    expected: u32,
    keys: Vec<Rkey>,
    addresses: Vec<u64>,
    shared: Vec<u32>,
    now: Instant,
}

fn pick<T: Copy>(random: &mut Rng, some: &[T]) -> T {
    some[random.below(some.len() as u64) as usize]
}

/// Extended headers of the operation and whether data follows, for RC's numbers of operations.
fn headers(victim: &Victim<'_>, random: &mut Rng, operation: u8) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let near = random.below(20) as i64 - 10;
    let address = pick(random, &victim.addresses).wrapping_add_signed(near * pick(random, &[1, 8]));
    let key = match random.chance(1, 12) {
        true => random.next_u32(),
        false => pick(random, &victim.keys).value(),
    };
    let lengths = [0, 1, 8, 8, 64, 1024, 4096, 4097, 1 << 31, (1 << 31) + 1, u32::MAX];
    let length = pick(random, &lengths);
    let reth = |bytes: &mut Vec<u8>| {
        bytes.extend(address.to_be_bytes());
        bytes.extend(key.to_be_bytes());
        bytes.extend(length.to_be_bytes());
    };
    let any = random.next_u64();
    match operation {
        6 | 10 | 12 | 0x1d => reth(&mut bytes),
        11 => {
            reth(&mut bytes);
            bytes.extend([1, 2, 3, 4]);
        }
        3 | 5 | 9 => bytes.extend([1, 2, 3, 4]),
        13 | 15 | 16 | 17 | 18 => {
            let code = (any >> 32) as u8;
            bytes.push(if random.chance(1, 2) { code & 0x1f } else { code });
            let msn = pick(random, &[0, 1, 2, 0x7f_ffff, 0x80_0000, 0xff_ffff, any as u32]);
            bytes.extend(&msn.to_be_bytes()[1..]);
            if operation == 18 {
                bytes.extend(any.to_be_bytes());
            }
        }
        19 | 20 => {
            bytes.extend(address.to_be_bytes());
            bytes.extend(key.to_be_bytes());
            bytes.extend([0x11; 16]);
        }
        22 | 23 => bytes.extend(key.to_be_bytes()),
        0x1c => {
            let feth = if random.chance(3, 4) { any as u32 & 0x33 } else { any as u32 };
            bytes.extend(feth.to_be_bytes());
            reth(&mut bytes);
        }
        _ => {}
    }
    let plain = [12, 17, 18, 19, 20, 0x1c].contains(&operation);
    (bytes, !plain || random.chance(1, 30))
}

/// A packet that may be anything, but looks well.
fn forge(victim: &Victim<'_>, random: &mut Rng) -> Vec<u8> {
    let group = match victim.queues.kind() {
        QueuePairKind::Rc => 0,
        QueuePairKind::Uc => 0x20,
        QueuePairKind::Ud => 0x60,
        QueuePairKind::XrcInitiator | QueuePairKind::XrcTarget => 0xa0,
    };
    let group = if random.chance(1, 20) { random.next_u32() as u8 & 0xe0 } else { group };
    let operation = random.next_u32() as u8 & 0x1f;
    let opcode = if random.chance(1, 20) { 0x81 } else { group | operation };
    let to = match random.below(20) {
        0 => 0xff_ffff,
        1 => random.next_u32(),
        _ => victim.queues.number().value(),
    };
    let step = pick(random, &[0, 0, 0, 0, 0, 1, 2, 0xff_ffff, 0xff_fffe, 0x80_0000]);
    let psn = victim.expected.wrapping_add(step) & 0xff_ffff;
    let (extension, has_data) = headers(victim, random, operation);
    let most = 1024;
    let data = match has_data {
        true => pick(random, &[0, 1, 4, 7, 8, 8, 8, 9, 64, most, most, most + 4, 4096]),
        false => 0,
    };
    let pad = (4 - data % 4) % 4;
    let flags = random.next_u32() as u8 & 0xc0 | (pad as u8) << 4;
    let mut bytes = vec![opcode, flags, 0xff, 0xff, (random.next_u32() & 0xc0) as u8];
    bytes.extend(&to.to_be_bytes()[1..]);
    bytes.push(random.next_u32() as u8 & 0x80);
    bytes.extend(&psn.to_be_bytes()[1..]);
    if group == 0x60 {
        let qkey = pick(random, &[QKEY.value(), 0, 0x8000_0000, u32::MAX]);
        bytes.extend(qkey.to_be_bytes());
        bytes.push(0);
        bytes.extend(&pick(random, &[victim.peer.value(), 0, 1, 0xff_ffff]).to_be_bytes()[1..]);
    }
    let is_answer = (13..=18).contains(&operation);
    if group == 0xa0 && !is_answer {
        let any = random.next_u32();
        let numbers = [victim.shared.as_slice(), &[0, 0xff_ffff, any]].concat();
        bytes.push(0);
        bytes.extend(&pick(random, &numbers).to_be_bytes()[1..]);
    }
    bytes.extend(extension);
    bytes.extend(std::iter::repeat_n(0x5a, data + pad));
    if random.chance(1, 50) {
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
    }
    bytes
}

impl Victim<'_> {
    /// Gives the packet to the engine. Returns how many packets it sends by and by.
    fn arrive(&mut self, mut bytes: Vec<u8>, class: u8) -> usize {
        bytes.extend(icrc::of_datagram(&self.flow, 0, DONT_FRAGMENT, &bytes));
        let burst = SentBurst {
            flow: self.flow,
            traffic_class: class,
            first_identification: 0,
            segment: bytes.len(),
            length: bytes.len(),
        };
        self.wire.arrived.push_back((burst, bytes));
        self.wire.sent.clear();
        loop {
            let report = self.engine.turn(self.now, self.wire, 64);
            self.now += 1_000;
            if report.received + report.sent == 0 {
                break;
            }
        }
        self.wire.sent.iter().map(|(burst, _)| burst.packets()).sum()
    }

    fn post_something(&mut self, random: &mut Rng, segment: Sge) {
        let remote = Remote { address: 64, key: Rkey::new(7) };
        let operation = match random.below(4) {
            0 => SendOperation::Send,
            1 => SendOperation::Write(remote),
            2 => SendOperation::Read(remote),
            _ => SendOperation::FetchAdd { remote, add: 1 },
        };
        let segment = match operation {
            SendOperation::FetchAdd { .. } => Sge { length: 8, ..segment },
            _ => segment,
        };
        let payload = Payload::Segments(std::slice::from_ref(&segment));
        let request = SendRequest { id: 1, operation, flags: SendFlags::SIGNALED, payload };
        // A kind that has no such operation, or a full queue, refuses it.
        let _ = match (self.queues.kind(), self.shared.first()) {
            (QueuePairKind::XrcInitiator, Some(&number)) => {
                self.queues.post_send_to(uroce::wire::Srqn::new(number), &[request]).1
            }
            _ => self.queues.post_one_send(&request),
        };
    }
}

/// Memory with canaries, and keys for its granted part at three addresses.
fn grant(
    engine: &mut Engine,
    domain: DomainId,
) -> (Arc<OwnedMemory>, Vec<Rkey>, Vec<u64>, Vec<Sge>) {
    let memory = OwnedMemory::new(0x8000);
    memory.write(0, &[CANARY; 0x8000]).unwrap();
    let (mut keys, mut addresses, mut segments) = (Vec::new(), Vec::new(), Vec::new());
    for base in [0, 0x1_0000, TOP] {
        let part = Arc::clone(&memory);
        let access = Access::ALL | Access::INVALIDATE;
        let found = engine.register_part(domain, part, GRANTED, base, access).unwrap();
        keys.push(found.remote);
        addresses.extend([base, base.wrapping_add(0x1000)]);
        segments.push(Sge { address: base, length: 0x1000, key: found.local });
    }
    addresses.extend([u64::MAX, 1 << 63, u64::MAX - 7]);
    (memory, keys, addresses, segments)
}

fn assert_canaries(memory: &OwnedMemory, seed: u64) {
    let bytes = memory.to_vec(0, 0x8000).unwrap();
    let outside = bytes[..GRANTED.start].iter().chain(&bytes[GRANTED.end..]);
    assert!(outside.copied().all(|byte| byte == CANARY), "seed {seed}");
}

/// The forger's work on a victim, until its queue pair is in error or the packets are used up.
fn attack(victim: &mut Victim<'_>, random: &mut Rng, segments: &[Sge], left: &mut u32) {
    while *left > 0 && victim.queues.state() != QueuePairState::Error {
        *left -= 1;
        if random.chance(1, 8) {
            victim.post_something(random, segments[0]);
            // Full, or another end's: refused.
            let request = ReceiveRequest { id: 1, segments: &segments[1..2] };
            let _ = victim.queues.post_one_receive(&request);
        }
        let bytes = forge(victim, random);
        let class = pick(random, &[0, 2, 3]);
        let sent = victim.arrive(bytes, class);
        // A READ of everything granted, and what was posted before, go and come again at most.
        assert!(sent <= 64, "{sent} packets for one");
        victim.engine.check_invariants();
        // Retries, pauses and credits of hours.
        if random.chance(1, 40) {
            victim.now += pick(random, &[MILLISECOND, SECOND]);
        }
        let status = victim.engine.query_queue_pair(victim.queues.number());
        if let Some(psn) = status.ok().and_then(|status| status.attributes.receive_psn) {
            victim.expected = psn.value();
        }
    }
}

fn forged_against(kind: QueuePairKind) {
    let mut random = Rng::new(kind as u64 + 1);
    let (mut left, mut seed) = (PACKETS, 0);
    while left > 0 {
        seed += 1;
        let mut pair = Pair::of_kind(kind, PathMtu::Mtu1024, Access::ALL);
        let peer = pair.sides[0].queues.number();
        let side = &mut pair.sides[1];
        let (memory, mut keys, addresses, segments) = grant(&mut side.engine, side.domain);
        keys.extend(windows(&mut side.engine, &side.queues, &mut side.wire, side.domain, &memory));
        for index in 0..40 {
            let segment = segments[index % segments.len()];
            let request = ReceiveRequest { id: 1, segments: std::slice::from_ref(&segment) };
            side.queues.post_one_receive(&request).unwrap();
        }
        let [source, destination] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut victim = Victim {
            queues: Arc::clone(&side.queues),
            engine: &mut side.engine,
            wire: &mut side.wire,
            flow: Flow { source, destination, source_port: 0xc001 },
            peer,
            expected: 0xff_fff1,
            keys,
            addresses,
            shared: Vec::new(),
            now: Instant::ZERO,
        };
        attack(&mut victim, &mut random, &segments, &mut left);
        assert_canaries(&memory, seed);
    }
    let ends_with_faults = kind == QueuePairKind::Rc;
    assert_eq!(ends_with_faults, seed > 1, "{seed} queue pairs");
}

/// A window of type 2B that is bound over the queue pair, one over nothing, and a key of another
/// domain.
fn windows(
    engine: &mut Engine,
    queues: &QueuePairQueues,
    wire: &mut Wire,
    domain: DomainId,
    memory: &Arc<OwnedMemory>,
) -> Vec<Rkey> {
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let base = TOP - 0x7000;
    let region = engine.register_part(domain, Arc::clone(memory), 0..0x8000, base, access).unwrap();
    let foreign = engine.allocate_domain().unwrap();
    let whole = engine.register(foreign, Arc::clone(memory), Access::ALL).unwrap();
    let mut keys = vec![whole.remote];
    for access in [Access::ZERO_BASED, Access::NONE] {
        let window = engine.allocate_window(domain, WindowKind::Type2B).unwrap();
        let rights = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let bind = WindowBind {
            window: WindowId::of_key(window),
            kind: WindowKind::Type2B,
            portion: 9,
            region: region.local,
            address: base + GRANTED.start as u64,
            length: GRANTED.len() as u64,
            access: rights | access,
        };
        let operation = SendOperation::BindWindow(bind);
        let payload = Payload::Segments(&[]);
        let request = SendRequest { id: 2, operation, flags: SendFlags::SIGNALED, payload };
        // Kinds without windows refuse it, and the key grants nothing.
        let _ = queues.post_one_send(&request);
        engine.turn(Instant::ZERO, wire, 64);
        keys.push(bind.key());
    }
    keys
}

#[test]
fn reliable_connections_stand_forged_packets() {
    forged_against(QueuePairKind::Rc);
}

#[test]
fn unreliable_connections_stand_forged_packets() {
    forged_against(QueuePairKind::Uc);
}

#[test]
fn datagram_queue_pairs_stand_forged_packets() {
    forged_against(QueuePairKind::Ud);
}

/// The ends of extended reliable connections, and two shared receive queues in two domains.
fn forged_against_xrc(serving: usize) {
    let mut random = Rng::new(100 + serving as u64);
    let (mut left, mut seed) = (PACKETS, 0);
    while left > 0 {
        seed += 1;
        let mut world = xrc::World::new(1);
        let own = world.create_queue(64);
        let other = world.sides[1].engine.allocate_domain().unwrap();
        let completions = Arc::clone(&world.sides[1].completions);
        let foreign = world.create_queue_with(64, other, completions);
        let queues = [&world.initiators[0], &world.targets[0]][serving];
        let peer = [&world.targets[0], &world.initiators[0]][serving].number();
        let queues = Arc::clone(queues);
        let side = &mut world.sides[serving];
        let (memory, keys, addresses, segments) = grant(&mut side.engine, side.domain);
        if serving == 1 {
            post_all(&own, &segments);
            post_all(&foreign, &segments);
        }
        let addresses_of = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let flow = Flow {
            source: addresses_of[1 - serving],
            destination: addresses_of[serving],
            source_port: 0xc001,
        };
        let mut victim = Victim {
            queues,
            engine: &mut side.engine,
            wire: &mut side.wire,
            flow,
            peer,
            expected: 0xff_fff0 + serving as u32,
            keys,
            addresses,
            shared: [&own, &foreign].map(|queue| queue.number().unwrap().value()).to_vec(),
            now: Instant::ZERO,
        };
        attack(&mut victim, &mut random, &segments, &mut left);
        assert_canaries(&memory, seed);
    }
    assert!(seed > 3, "{seed} queue pairs");
}

fn post_all(queue: &ReceiveQueue, segments: &[Sge]) {
    for segment in segments.iter().cycle().take(40) {
        let request = ReceiveRequest { id: 3, segments: std::slice::from_ref(segment) };
        queue.post(&[request]).1.unwrap();
    }
}

#[test]
fn initiators_stand_forged_packets() {
    forged_against_xrc(0);
}

#[test]
fn targets_and_the_shared_queues_behind_them_stand_forged_packets() {
    forged_against_xrc(1);
}
