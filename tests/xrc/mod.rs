//! Two engines with extended reliable connections between them, on a wire that carries every burst
//! in order: side 0 sends, side 1 serves.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use uroce::engine::{
    Effects, Engine, EngineOptions, MemoryKeys, QueuePairOptions, XrcOpen, XrcQueueOptions,
};
use uroce::memory::{DomainId, OwnedMemory};
use uroce::queue::{
    Access, AddressVector, Completion, CompletionQueue, PathMtu, Payload, QueueCapacities,
    QueuePairAttributes, QueuePairKind, QueuePairQueues, ReceiveQueue, ReceiveRequest, Remote,
    SendFlags, SendOperation, SendRequest, Sge, XrcDomainId,
};
use uroce::time::Instant;
use uroce::wire::{Psn, Qpn, Srqn};

use crate::pair::{Wire, attributes_of, connect};

/// Bytes of each side's memory.
pub const MEMORY: usize = 1 << 20;

/// One side.
pub struct Side {
    pub engine: Engine,
    pub wire: Wire,
    pub domain: DomainId,
    pub memory: Arc<OwnedMemory>,
    pub keys: MemoryKeys,
    pub completions: Arc<CompletionQueue>,
    pub address: IpAddr,
}

/// See the module's text.
pub struct World {
    pub now: Instant,
    pub sides: [Side; 2],
    /// The serving side's XRC domain.
    pub xrc_domain: XrcDomainId,
    /// The sending ends, and the serving ends that they are connected to.
    pub initiators: Vec<Arc<QueuePairQueues>>,
    pub targets: Vec<Arc<QueuePairQueues>>,
}

impl World {
    /// So many connections, in RTS.
    pub fn new(connections: usize) -> Self {
        let mut sides = [1, 2].map(Side::new);
        let xrc_domain = sides[1].engine.open_xrc_domain(&XrcOpen::default()).unwrap();
        let mut world = Self {
            now: Instant::ZERO,
            sides,
            xrc_domain,
            initiators: Vec::new(),
            targets: Vec::new(),
        };
        for _ in 0..connections {
            world.add_connection();
        }
        world
    }

    pub fn add_connection(&mut self) {
        let initiator = self.sides[0].create_initiator();
        let target = self.sides[1].engine.create_xrc_target(self.xrc_domain).unwrap();
        let numbers = [initiator.number(), target.number()];
        let kinds = [QueuePairKind::XrcInitiator, QueuePairKind::XrcTarget];
        let addresses = [self.sides[0].address, self.sides[1].address];
        for side in 0..2 {
            let all = attributes(addresses[1 - side], numbers[1 - side], side as u32);
            connect(&mut self.sides[side].engine, numbers[side], &attributes_of(kinds[side], all));
        }
        self.initiators.push(initiator);
        self.targets.push(target);
    }

    /// An XRC shared receive queue of the serving side, whose completions go to the side's queue.
    pub fn create_queue(&mut self, requests: u32) -> Arc<ReceiveQueue> {
        let completions = Arc::clone(&self.sides[1].completions);
        self.create_queue_with(requests, self.sides[1].domain, completions)
    }

    pub fn create_queue_with(
        &mut self,
        requests: u32,
        domain: DomainId,
        completions: Arc<CompletionQueue>,
    ) -> Arc<ReceiveQueue> {
        let xrc_domain = self.xrc_domain;
        let segments = 4;
        self.sides[1]
            .engine
            .create_xrc_shared_receive_queue(&XrcQueueOptions {
                domain,
                xrc_domain,
                completions,
                requests,
                segments,
            })
            .unwrap()
    }

    pub fn post_receive(&self, queue: &ReceiveQueue, id: u64, offset: usize, length: usize) {
        let segments = [self.sides[1].sge(offset, length)];
        queue.post(&[ReceiveRequest { id, segments: &segments }]).1.unwrap();
    }

    /// A signaled request of connection `from` for queue `to`, with `length` bytes at `offset`.
    pub fn post(
        &self,
        from: usize,
        to: Srqn,
        id: u64,
        operation: SendOperation,
        (offset, length): (usize, usize),
    ) {
        let segments = [self.sides[0].sge(offset, length)];
        let payload = Payload::Segments(&segments);
        let request = SendRequest { id, operation, flags: SendFlags::SIGNALED, payload };
        self.initiators[from].post_send_to(to, &[request]).1.unwrap();
    }

    /// `offset` bytes into the serving side's memory, as requests name it.
    pub fn remote(&self, offset: usize) -> Remote {
        let side = &self.sides[1];
        Remote { address: side.memory.address() + offset as u64, key: side.keys.remote }
    }

    /// Gives turns until nothing moves, at most a second of virtual time.
    pub fn run(&mut self) {
        self.run_for(uroce::time::SECOND);
    }

    /// The same for so many nanoseconds.
    pub fn run_for(&mut self, nanoseconds: u64) {
        let end = self.now + nanoseconds;
        loop {
            let (moved, next) = self.step();
            if moved == 0 {
                if next > end {
                    return;
                }
                self.now = next.max(self.now);
            }
            self.now += 100;
        }
    }

    /// One turn of each side. Returns how many packets moved, and the next deadline.
    pub fn step(&mut self) -> (usize, Instant) {
        let mut next = Instant::NEVER;
        let mut moved = 0;
        for index in 0..2 {
            let side = &mut self.sides[index];
            let report = side.engine.turn(self.now, &mut side.wire, 8);
            side.engine.check_invariants();
            moved += report.received + report.sent;
            next = next.min(report.next_deadline);
            let sent = std::mem::take(&mut side.wire.sent);
            self.sides[1 - index].wire.arrived.extend(sent);
        }
        (moved, next)
    }

    /// The next completion of a side.
    pub fn completion(&self, side: usize) -> Completion {
        poll(&self.sides[side].completions).expect("a completion")
    }

    pub fn effects(&mut self, side: usize) -> Effects {
        let mut effects = Effects::default();
        self.sides[side].engine.take_effects(&mut effects);
        effects
    }
}

/// The next completion of a queue.
pub fn poll(queue: &CompletionQueue) -> Option<Completion> {
    let mut found = None;
    queue.poll(1, |_, completion| found = Some(completion)).unwrap();
    found
}

impl Side {
    fn new(last: u8) -> Self {
        let wire = Wire::new();
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let options = EngineOptions::new(last.into(), vec![address]);
        let mut engine = Engine::new(options, &wire.capabilities);
        let domain = engine.allocate_domain().unwrap();
        let completions = engine.create_completion_queue(1024).unwrap();
        let memory = OwnedMemory::new(MEMORY);
        let keys = engine.register(domain, Arc::clone(&memory), Access::ALL).unwrap();
        Self { engine, wire, domain, memory, keys, completions, address }
    }

    pub fn create_initiator(&mut self) -> Arc<QueuePairQueues> {
        self.engine.create_queue_pair(&self.initiator_options()).unwrap()
    }

    pub fn initiator_options(&self) -> QueuePairOptions {
        QueuePairOptions {
            kind: QueuePairKind::XrcInitiator,
            domain: self.domain,
            send_completions: Arc::clone(&self.completions),
            receive_completions: Arc::clone(&self.completions),
            capacities: QueueCapacities::default(),
            signal_all: false,
        }
    }

    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        let address = self.memory.address() + offset as u64;
        Sge { address, length: length as u32, key: self.keys.local }
    }
}

/// Attributes of a connection's end; what its kind does not take is left out later.
fn attributes(peer: IpAddr, destination: Qpn, side: u32) -> QueuePairAttributes {
    QueuePairAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::ALL),
        address: Some(AddressVector::new(0, peer)),
        path_mtu: Some(PathMtu::Mtu1024),
        destination: Some(destination),
        receive_psn: Some(Psn::new(0xff_fff0 + side)),
        send_psn: Some(Psn::new(0xff_fff1 - side)),
        max_destination_rd_atomic: Some(16),
        max_rd_atomic: Some(16),
        min_rnr_timer: Some(12),
        timeout: Some(14),
        retry_count: Some(7),
        rnr_retry: Some(7),
        ..QueuePairAttributes::default()
    }
}
