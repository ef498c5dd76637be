//! Engine to engine over the in-memory link, both ends on this thread: complete frames, ICRC made
//! and checked, payload compared afterwards. Reports messages and bytes a second, of one queue pair,
//! and of 1, 100 and 10 000 that have one message each in turn.

#![allow(missing_docs, reason = "the group macro makes a public function")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use uroce::engine::{Engine, EngineOptions, MemoryKeys, Port, QueuePairOptions};
use uroce::link::memory::{MemoryLink, MemoryOptions, pair};
use uroce::memory::OwnedMemory;
use uroce::queue::{
    Access, AddressVector, CompletionQueue, CompletionStatus, PathMtu, Payload, QueueCapacities,
    QueuePairAttributes, QueuePairKind, QueuePairQueues, QueuePairState, ReceiveRequest, Remote,
    SendFlags, SendOperation, SendRequest, Sge,
};
use uroce::time::Instant;
use uroce::wire::{Psn, Qpn};

const MEMORY: usize = 1 << 20;
const DEPTH: usize = 64;

struct Side {
    engine: Engine,
    link: MemoryLink,
    queues: Vec<Arc<QueuePairQueues>>,
    completions: Arc<CompletionQueue>,
    memory: Arc<OwnedMemory>,
    keys: MemoryKeys,
}

struct World {
    now: Instant,
    sides: [Side; 2],
    /// The queue pair whose turn it is.
    turn: usize,
}

impl World {
    fn new(pairs: usize) -> Self {
        let addresses = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let (first, second) = pair(addresses, &options()).unwrap();
        let mut sides = [side(1, addresses[0], first, pairs), side(2, addresses[1], second, pairs)];
        for (index, pair) in (0..2).flat_map(|side| (0..pairs).map(move |pair| (side, pair))) {
            let peer = sides[1 - index].queues[pair].number();
            let side = &mut sides[index];
            let number = side.queues[pair].number();
            for step in &steps(addresses[1 - index], peer) {
                side.engine.modify_queue_pair(Instant::ZERO, number, step).unwrap();
            }
        }
        Self { now: Instant::ZERO, sides, turn: 0 }
    }

    /// Carries out `count` requests, `DEPTH` at a time, from side 0 to side 1, each on the next queue
    /// pair.
    fn carry(&mut self, operation: SendOperation, length: usize, count: usize) {
        let receives = matches!(operation, SendOperation::Send);
        let local = sge(&self.sides[0], length);
        let mut posted = 0;
        let mut done = 0;
        while done < count {
            while posted < count && posted - done < DEPTH {
                let turn = self.turn;
                self.turn = (turn + 1) % self.sides[0].queues.len();
                if receives {
                    let segments = [sge(&self.sides[1], length)];
                    let request = ReceiveRequest { id: 0, segments: &segments };
                    self.sides[1].queues[turn].post_one_receive(&request).unwrap();
                }
                let request = SendRequest {
                    id: posted as u64,
                    operation,
                    flags: SendFlags::SIGNALED,
                    payload: Payload::Segments(std::slice::from_ref(&local)),
                };
                self.sides[0].queues[turn].post_one_send(&request).unwrap();
                posted += 1;
            }
            self.now += 1_000;
            for side in &mut self.sides {
                black_box(side.engine.turn(self.now, &mut side.link, 256));
            }
            done += poll(&self.sides[0].completions);
            poll(&self.sides[1].completions);
        }
    }
}

/// Deep enough that a window of small packets fits; no descriptor, hence no system call.
fn options() -> MemoryOptions {
    MemoryOptions { queue: 1024, descriptor: false, ..MemoryOptions::default() }
}

fn poll(queue: &CompletionQueue) -> usize {
    queue
        .poll(64, |_, completion| assert_eq!(completion.status, CompletionStatus::Success))
        .unwrap()
}

fn sge(side: &Side, length: usize) -> Sge {
    Sge { address: side.memory.address(), length: length as u32, key: side.keys.local }
}

fn side(seed: u64, address: IpAddr, link: MemoryLink, pairs: usize) -> Side {
    let mut engine = Engine::new(EngineOptions::new(seed, vec![address]), link.capabilities());
    let domain = engine.allocate_domain().unwrap();
    let completions = engine.create_completion_queue(1024).unwrap();
    let depth = if pairs == 1 { 128 } else { 8 };
    let capacities = QueueCapacities {
        send_requests: depth,
        receive_requests: depth,
        ..QueueCapacities::default()
    };
    let options = QueuePairOptions {
        kind: QueuePairKind::Rc,
        domain,
        send_completions: Arc::clone(&completions),
        receive_completions: Arc::clone(&completions),
        capacities,
        signal_all: false,
    };
    let queues = (0..pairs).map(|_| engine.create_queue_pair(&options).unwrap()).collect();
    let memory = OwnedMemory::new(MEMORY);
    let keys = engine.register(domain, Arc::clone(&memory), Access::ALL).unwrap();
    Side { engine, link, queues, completions, memory, keys }
}

/// The attributes that connect a queue pair to its peer, from RESET to RTS.
fn steps(address: IpAddr, peer: Qpn) -> [QueuePairAttributes; 3] {
    [
        QueuePairAttributes {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::ALL),
            ..QueuePairAttributes::to_state(QueuePairState::Init)
        },
        QueuePairAttributes {
            address: Some(AddressVector::new(0, address)),
            path_mtu: Some(PathMtu::Mtu4096),
            destination: Some(peer),
            receive_psn: Some(Psn::new(0)),
            max_destination_rd_atomic: Some(16),
            min_rnr_timer: Some(12),
            ..QueuePairAttributes::to_state(QueuePairState::Rtr)
        },
        QueuePairAttributes {
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            send_psn: Some(Psn::new(0)),
            max_rd_atomic: Some(16),
            ..QueuePairAttributes::to_state(QueuePairState::Rts)
        },
    ]
}

/// All of a side's memory.
fn remote(side: &Side) -> Remote {
    Remote { address: side.memory.address(), key: side.keys.remote }
}

fn many(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue pairs in turn");
    for pairs in [1, 100, 10_000] {
        let mut world = World::new(pairs);
        let write = SendOperation::Write(remote(&world.sides[1]));
        // Each has sent once, and is as it is in use.
        world.carry(write, 8, pairs);
        for (name, length) in [("write 8B", 8), ("write 4KiB", 4096)] {
            group.throughput(Throughput::Elements(DEPTH as u64));
            group.bench_function(BenchmarkId::new(name, pairs), |bencher| {
                bencher.iter(|| world.carry(write, length, DEPTH));
            });
        }
    }
    group.finish();
}

fn engine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    for (name, length) in [("8B", 8), ("1KiB", 1024), ("4KiB", 4096), ("64KiB", 65_536)] {
        for operation in ["write", "send", "read"] {
            let mut world = World::new(1);
            let pattern: Vec<u8> = (0..length).map(|index| (index * 7) as u8).collect();
            let source = usize::from(operation == "read");
            world.sides[source].memory.write(0, &pattern).unwrap();
            let remote = remote(&world.sides[1]);
            let request = match operation {
                "write" => SendOperation::Write(remote),
                "read" => SendOperation::Read(remote),
                _ => SendOperation::Send,
            };
            group.throughput(match length {
                8 => Throughput::Elements(DEPTH as u64),
                _ => Throughput::Bytes((DEPTH * length) as u64),
            });
            // Once in any case: a filter may leave out what follows.
            world.carry(request, length, DEPTH);
            let arrived = world.sides[1 - source].memory.to_vec(0, length).unwrap();
            assert_eq!(arrived, pattern, "the payload has arrived");
            group.bench_function(BenchmarkId::new(operation, name), |bencher| {
                bencher.iter(|| world.carry(request, length, DEPTH));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, engine, many);
criterion_main!(benches);
