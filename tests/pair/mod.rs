//! Two engines with one RC queue pair each, on a wire that carries every burst in order.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use uroce::engine::{
    Effects, Engine, EngineOptions, IdentificationRule, MemoryKeys, Port, PortCapabilities,
    QueuePairOptions, SourcePorts,
};
use uroce::memory::{DomainId, OwnedMemory};
use uroce::queue::{
    Access, AddressVector, Completion, CompletionQueue, PathMtu, Payload, QueueCapacities,
    QueuePairAttributes, QueuePairKind, QueuePairQueues, QueuePairState, ReceiveQueue,
    ReceiveRequest, Remote, SendFlags, SendOperation, SendRequest, Sge,
};
use uroce::time::Instant;
use uroce::wire::{Psn, QKey, Qpn, ReceivedBurst, Rkey, SentBurst};

/// Numbers of the test's world.
pub struct Ends;

impl Ends {
    /// Bytes of each side's memory.
    pub const MEMORY: usize = 1 << 20;
}

/// A burst on the wire.
pub type Carried = (SentBurst, Vec<u8>);

/// One end of the wire.
pub struct Wire {
    pub capabilities: PortCapabilities,
    slot: Vec<u8>,
    pub arrived: VecDeque<Carried>,
    pub sent: Vec<Carried>,
    /// Whether its receive queue is more than half full.
    pub pressed: bool,
}

impl Wire {
    pub fn new() -> Self {
        Self {
            capabilities: PortCapabilities {
                mtu: 9000,
                max_segments: 16,
                max_burst_bytes: 65_507,
                identification: IdentificationRule::BasePlusIndex,
                source_ports: SourcePorts::Any,
            },
            slot: vec![0; 65_507],
            arrived: VecDeque::new(),
            sent: Vec::new(),
            pressed: false,
        }
    }
}

impl Port for Wire {
    fn capabilities(&self) -> &PortCapabilities {
        &self.capabilities
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        let mut packets = 0;
        while packets < budget {
            let Some((burst, bytes)) = self.arrived.pop_front() else { break };
            packets += burst.packets();
            sink(&burst.as_received(&bytes));
        }
        packets
    }

    fn is_pressed(&mut self) -> bool {
        self.pressed
    }

    /// There is no ICMP here.
    fn take_unreachable(
        &mut self,
        _: bool,
        _: &mut dyn FnMut(IpAddr, uroce::engine::UnreachableKind),
    ) {
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        let mut packets = 0;
        while packets < budget {
            let Some(burst) = fill(&mut self.slot) else { break };
            packets += burst.packets();
            self.sent.push((burst, self.slot[..burst.length].to_vec()));
        }
        packets
    }
}

/// One side.
pub struct Side {
    pub engine: Engine,
    pub wire: Wire,
    pub queues: Arc<QueuePairQueues>,
    pub completions: Arc<CompletionQueue>,
    pub domain: DomainId,
    pub memory: Arc<OwnedMemory>,
    pub keys: MemoryKeys,
    pub shared: Option<Arc<ReceiveQueue>>,
}

/// See the module's text.
pub struct Pair {
    pub now: Instant,
    pub sides: [Side; 2],
}

impl Pair {
    /// Both in RTS.
    pub fn new(mtu: PathMtu) -> Self {
        Self::with_access(mtu, Access::ALL)
    }

    /// Both in RTS; the peer may do what `access` says.
    pub fn with_access(mtu: PathMtu, access: Access) -> Self {
        Self::of_kind(QueuePairKind::Rc, mtu, access)
    }

    /// Both in RTS, of a transport.
    pub fn of_kind(kind: QueuePairKind, mtu: PathMtu, access: Access) -> Self {
        Self::build(kind, mtu, access, None)
    }

    /// Both in RTS; side 1 takes its receives from a shared queue of so many entries.
    pub fn sharing_receives(kind: QueuePairKind, mtu: PathMtu, entries: u32) -> Self {
        Self::build(kind, mtu, Access::ALL, Some(entries))
    }

    /// Both in RTS, after `adjust` has changed what each side's attributes would be.
    pub fn adjusted(kind: QueuePairKind, adjust: &dyn Fn(usize, &mut QueuePairAttributes)) -> Self {
        Self::build_adjusted(kind, PathMtu::Mtu1024, Access::ALL, None, adjust)
    }

    fn build(kind: QueuePairKind, mtu: PathMtu, access: Access, shared: Option<u32>) -> Self {
        Self::build_adjusted(kind, mtu, access, shared, &|_, _| {})
    }

    fn build_adjusted(
        kind: QueuePairKind,
        mtu: PathMtu,
        access: Access,
        shared: Option<u32>,
        adjust: &dyn Fn(usize, &mut QueuePairAttributes),
    ) -> Self {
        let addresses = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let mut sides = [0, 1].map(|index| {
            Side::new(index as u64 + 1, addresses[index], kind, shared.filter(|_| index == 1))
        });
        for index in 0..2 {
            let peer = sides[1 - index].queues.number();
            let mut attributes = QueuePairAttributes {
                pkey_index: Some(0),
                port: Some(1),
                access: Some(access),
                address: Some(AddressVector::new(0, addresses[1 - index])),
                path_mtu: Some(mtu),
                destination: Some(peer),
                receive_psn: Some(Psn::new(0xff_fff0 + index as u32)),
                send_psn: Some(Psn::new(0xff_fff1 - index as u32)),
                max_destination_rd_atomic: Some(16),
                max_rd_atomic: Some(16),
                min_rnr_timer: Some(12),
                timeout: Some(14),
                retry_count: Some(7),
                rnr_retry: Some(7),
                ..QueuePairAttributes::default()
            };
            adjust(index, &mut attributes);
            sides[index].connect(&attributes_of(kind, attributes));
        }
        Self { now: Instant::ZERO, sides }
    }

    pub fn memory(&self, side: usize) -> &OwnedMemory {
        &self.sides[side].memory
    }

    /// `offset` bytes into a side's memory, as its peer names it.
    pub fn remote(&self, side: usize, offset: usize) -> Remote {
        let side = &self.sides[side];
        Remote { address: side.memory.address() + offset as u64, key: side.keys.remote }
    }

    /// Another key for a side's memory, which may be invalidated.
    pub fn register_invalidatable(&mut self, side: usize) -> Rkey {
        let side = &mut self.sides[side];
        let access = Access::ALL | Access::INVALIDATE;
        side.engine.register(side.domain, Arc::clone(&side.memory), access).unwrap().remote
    }

    pub fn post(
        &mut self,
        side: usize,
        id: u64,
        operation: SendOperation,
        flags: SendFlags,
        (offset, length): (usize, usize),
    ) {
        let segment = self.sides[side].sge(offset, length);
        self.post_payload(side, id, operation, flags, Payload::Segments(&[segment]));
    }

    pub fn post_payload(
        &mut self,
        side: usize,
        id: u64,
        operation: SendOperation,
        flags: SendFlags,
        payload: Payload<'_>,
    ) {
        let request = SendRequest { id, operation, flags, payload };
        self.sides[side].queues.post_one_send(&request).unwrap();
    }

    pub fn post_receive(&mut self, side: usize, id: u64, offset: usize, length: usize) {
        let segments = [self.sides[side].sge(offset, length)];
        let request = ReceiveRequest { id, segments: &segments };
        match &self.sides[side].shared {
            Some(shared) => shared.post(std::slice::from_ref(&request)).1.unwrap(),
            None => self.sides[side].queues.post_one_receive(&request).unwrap(),
        }
    }

    /// Gives turns until nothing moves, at most a second of virtual time.
    pub fn run(&mut self) {
        self.run_for(uroce::time::SECOND);
    }

    /// The same for so many nanoseconds.
    pub fn run_for(&mut self, nanoseconds: u64) {
        let end = self.now + nanoseconds;
        loop {
            let mut next = Instant::NEVER;
            let mut moved = 0;
            for index in 0..2 {
                let side = &mut self.sides[index];
                let report = side.engine.turn(self.now, &mut side.wire, 64);
                side.engine.check_invariants();
                moved += report.received + report.sent;
                next = next.min(report.next_deadline);
                let sent = std::mem::take(&mut side.wire.sent);
                self.sides[1 - index].wire.arrived.extend(sent);
            }
            if moved == 0 {
                if next > end {
                    return;
                }
                self.now = next.max(self.now);
            }
            self.now += 100;
        }
    }

    pub fn completion(&mut self, side: usize) -> Completion {
        self.try_completion(side).expect("a completion")
    }

    pub fn try_completion(&mut self, side: usize) -> Option<Completion> {
        let mut found = None;
        self.sides[side].completions.poll(1, |_, completion| found = Some(completion)).unwrap();
        found
    }

    pub fn effects(&mut self, side: usize) -> Effects {
        let mut effects = Effects::default();
        self.sides[side].engine.take_effects(&mut effects);
        effects
    }
}

impl Side {
    fn new(seed: u64, address: IpAddr, kind: QueuePairKind, shared: Option<u32>) -> Self {
        let wire = Wire::new();
        let options = EngineOptions::new(seed, vec![address]);
        let mut engine = Engine::new(options, wire.capabilities());
        let domain = engine.allocate_domain().unwrap();
        let completions = engine.create_completion_queue(1024).unwrap();
        let shared =
            shared.map(|entries| engine.create_shared_receive_queue(domain, entries, 4).unwrap());
        let queues = engine
            .create_queue_pair_sharing(
                &QueuePairOptions {
                    kind,
                    domain,
                    send_completions: Arc::clone(&completions),
                    receive_completions: Arc::clone(&completions),
                    capacities: QueueCapacities::default(),
                    signal_all: false,
                },
                shared.as_ref(),
            )
            .unwrap();
        let memory = OwnedMemory::new(Ends::MEMORY);
        let keys = engine.register(domain, Arc::clone(&memory), Access::ALL).unwrap();
        Self { engine, wire, queues, completions, domain, memory, keys, shared }
    }

    fn connect(&mut self, all: &QueuePairAttributes) {
        connect(&mut self.engine, self.queues.number(), all);
    }

    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        let address = self.memory.address() + offset as u64;
        Sge { address, length: length as u32, key: self.keys.local }
    }
}

/// From RESET to RTS with what each transition takes of `all`.
pub fn connect(engine: &mut Engine, number: Qpn, all: &QueuePairAttributes) {
    let init = QueuePairAttributes {
        pkey_index: all.pkey_index,
        port: all.port,
        access: all.access,
        qkey: all.qkey,
        ..QueuePairAttributes::to_state(QueuePairState::Init)
    };
    let rtr = QueuePairAttributes {
        address: all.address,
        path_mtu: all.path_mtu,
        destination: all.destination,
        receive_psn: all.receive_psn,
        max_destination_rd_atomic: all.max_destination_rd_atomic,
        min_rnr_timer: all.min_rnr_timer,
        ..QueuePairAttributes::to_state(QueuePairState::Rtr)
    };
    let rts = QueuePairAttributes {
        timeout: all.timeout,
        retry_count: all.retry_count,
        rnr_retry: all.rnr_retry,
        send_psn: all.send_psn,
        max_rd_atomic: all.max_rd_atomic,
        ..QueuePairAttributes::to_state(QueuePairState::Rts)
    };
    for attributes in [init, rtr, rts] {
        engine.modify_queue_pair(Instant::ZERO, number, &attributes).unwrap();
    }
}

/// Queue key of datagram queue pairs.
pub const QKEY: QKey = QKey::new(0x1111_1111);

/// What of the attributes a transport takes.
pub fn attributes_of(kind: QueuePairKind, all: QueuePairAttributes) -> QueuePairAttributes {
    match kind {
        QueuePairKind::Rc => all,
        QueuePairKind::XrcInitiator => {
            QueuePairAttributes { max_destination_rd_atomic: None, min_rnr_timer: None, ..all }
        }
        QueuePairKind::XrcTarget => {
            QueuePairAttributes { max_rd_atomic: None, retry_count: None, rnr_retry: None, ..all }
        }
        QueuePairKind::Uc => QueuePairAttributes {
            max_destination_rd_atomic: None,
            max_rd_atomic: None,
            min_rnr_timer: None,
            timeout: None,
            retry_count: None,
            rnr_retry: None,
            ..all
        },
        QueuePairKind::Ud => QueuePairAttributes {
            pkey_index: all.pkey_index,
            port: all.port,
            qkey: Some(QKEY),
            send_psn: all.send_psn,
            ..QueuePairAttributes::default()
        },
    }
}
