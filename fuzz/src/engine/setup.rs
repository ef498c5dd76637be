//! The engine, its memory and one queue pair of the input's choice.
//!
//! ```text
//!   0x0000 ─ secret ─ 0x4000 ─ granted ─ 0x5000 ─ readable ─ 0x6000 ─ own ─ 0x7000 ─ secret ─ 0x8000
//! ```

use std::net::IpAddr;
use std::sync::Arc;

use uroce::engine::{Engine, EngineOptions, QueuePairOptions, XrcOpen, XrcQueueOptions};
use uroce::memory::{DomainId, OwnedMemory};
use uroce::queue::{
    Access, AddressHandleId, AddressVector, CompletionQueue, PathMtu, QueueCapacities,
    QueuePairAttributes, QueuePairKind, QueuePairQueues, QueuePairState, ReceiveQueue, Sge,
};
use uroce::time::Instant;
use uroce::wire::{Flow, Lkey, Psn, Qpn, Rkey};

use super::super::input::Input;
use super::Role;
use super::posts::Posts;
use crate::pair::{Wire, attributes_of};

pub(super) const MEMORY: usize = 0x8000;
/// What the peer may read and write.
pub(super) const GRANTED: std::ops::Range<usize> = 0x4000..0x5000;
/// What it may read.
pub(super) const READABLE: std::ops::Range<usize> = 0x5000..0x6000;
/// What the application sends from and receives to.
pub(super) const OWN: std::ops::Range<usize> = 0x6000..0x7000;
const CANARY: u8 = 0xa5;
/// What nobody may be told, over and over: nothing that a peer may send or add up is like it.
pub(super) const SECRET: [u8; 8] = [0xc7, 0x35, 0x9e, 0x61, 0xd2, 0x08, 0x4b, 0xf7];
/// The address by which the granted part ends where 64-bit addresses do, but for one byte.
const TOP: u64 = u64::MAX - 0x1000;
const READABLE_BASE: u64 = 0x20_0000;
/// The application's own addresses.
pub(super) const OWN_BASE: u64 = 0x30_0000;
/// Enough for all requests that queues hold at a time.
const COMPLETIONS: u32 = 256;
/// The peer's queue pair.
pub(super) const PEER: u32 = 0xb00;

pub(super) struct Victim {
    pub(super) engine: Engine,
    pub(super) wire: Wire,
    pub(super) role: Role,
    pub(super) kind: QueuePairKind,
    pub(super) queues: Arc<QueuePairQueues>,
    pub(super) completions: Arc<CompletionQueue>,
    /// From the peer to us.
    pub(super) flow: Flow,
    pub(super) mtu: PathMtu,
    /// What the queue pair allows the peer.
    pub(super) access: Access,
    pub(super) memory: Arc<OwnedMemory>,
    /// Keys that a peer may try, right and wrong ones, and addresses.
    pub(super) keys: Vec<Rkey>,
    pub(super) addresses: Vec<u64>,
    pub(super) local: Lkey,
    pub(super) handle: Option<AddressHandleId>,
    /// Shared receive queues.
    pub(super) shared: Vec<Arc<ReceiveQueue>>,
    pub(super) now: Instant,
    pub(super) posts: Posts,
    /// PSNs of what went out last.
    pub(super) recent: Vec<u32>,
    /// Packets that have come and whose answers may wait for the pace.
    pub(super) waiting: usize,
    all: QueuePairAttributes,
}

impl Victim {
    pub(super) fn new(input: &mut Input<'_>, role: Role) -> Self {
        use QueuePairKind::{Rc, Uc, Ud, XrcInitiator, XrcTarget};
        let kind = match role {
            Role::Responder => input.pick(&[Rc, Rc, Rc, Uc, Ud, XrcTarget]),
            Role::Requester => input.pick(&[Rc, Rc, Rc, XrcInitiator, Uc, Ud]),
        };
        let options = input.byte();
        let mtu = input.pick(&[PathMtu::Mtu1024, PathMtu::Mtu256, PathMtu::Mtu4096]);
        let rights = [
            Access::ALL,
            Access::ALL,
            Access::ALL,
            Access::NONE,
            Access::REMOTE_READ,
            Access::REMOTE_WRITE,
            Access::REMOTE_ATOMIC,
        ];
        let access = input.pick(&rights);
        let wire = Wire::new();
        let [ours, theirs] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let engine_options = EngineOptions {
            finite_credits: options & 1 != 0,
            migration: options & 2 == 0,
            strict: options & 4 != 0,
            ..EngineOptions::new(7, vec![ours])
        };
        let mut engine = Engine::new(engine_options, &wire.capabilities);
        let domain = engine.allocate_domain().expect("a first domain");
        let completions = engine.create_completion_queue(COMPLETIONS).expect("a first queue");
        let memory = memory();
        let (keys, addresses) = grant(&mut engine, domain, &memory);
        let own = Access::LOCAL_WRITE | Access::MW_BIND;
        let own = engine.register_part(domain, Arc::clone(&memory), OWN, OWN_BASE, own);
        let local = own.expect("a region").local;
        let is_sharing = options & 8 != 0;
        let (queues, shared) = queue_pair(&mut engine, domain, kind, &completions, is_sharing);
        let handle = engine.create_address_handle(domain, &AddressVector::new(0, theirs)).ok();
        let flow = Flow { source: theirs, destination: ours, source_port: 0xc001 };
        let start = input.pick(&[0, 0xff_fffd, 0x7f_ffff]);
        let all = attributes_of(kind, attributes(theirs, mtu, access, start, options));
        let mut victim = Self {
            engine,
            wire,
            role,
            kind,
            queues,
            completions,
            flow,
            mtu,
            access,
            memory,
            keys,
            addresses,
            local,
            handle,
            shared,
            now: Instant::ZERO,
            posts: Posts::default(),
            recent: Vec::new(),
            waiting: 0,
            all,
        };
        let state = match role {
            Role::Responder => input.pick(&[QueuePairState::Rts, QueuePairState::Rtr]),
            Role::Requester => QueuePairState::Rts,
        };
        victim.climb(state);
        for _ in 0..input.below(8) {
            victim.post_receive(input);
        }
        if role == Role::Requester {
            for _ in 0..1 + input.below(6) {
                victim.post_send(input);
            }
        }
        victim
    }

    /// From RESET to a state.
    pub(super) fn climb(&mut self, to: QueuePairState) {
        for state in [QueuePairState::Init, QueuePairState::Rtr, QueuePairState::Rts] {
            let attributes = self.attributes_to(state);
            let number = self.queues.number();
            let done = self.engine.modify_queue_pair(self.now, number, &attributes);
            done.expect("every kind can be connected");
            if state == to {
                break;
            }
        }
    }

    /// What the transition to a state takes.
    pub(super) fn attributes_to(&self, state: QueuePairState) -> QueuePairAttributes {
        let all = &self.all;
        let to = QueuePairAttributes::to_state(state);
        match state {
            QueuePairState::Init => QueuePairAttributes {
                pkey_index: all.pkey_index,
                port: all.port,
                access: all.access,
                qkey: all.qkey,
                ..to
            },
            QueuePairState::Rtr => QueuePairAttributes {
                address: all.address,
                path_mtu: all.path_mtu,
                destination: all.destination,
                receive_psn: all.receive_psn,
                max_destination_rd_atomic: all.max_destination_rd_atomic,
                min_rnr_timer: all.min_rnr_timer,
                ..to
            },
            QueuePairState::Rts => QueuePairAttributes {
                timeout: all.timeout,
                retry_count: all.retry_count,
                rnr_retry: all.rnr_retry,
                send_psn: all.send_psn,
                max_rd_atomic: all.max_rd_atomic,
                ..to
            },
            _ => to,
        }
    }
}

/// What the memory holds before anything comes.
pub(super) fn at_first() -> Vec<u8> {
    let mut bytes = SECRET.repeat(MEMORY / SECRET.len());
    bytes[GRANTED.start..OWN.end].fill(CANARY);
    bytes
}

fn memory() -> Arc<OwnedMemory> {
    let memory = OwnedMemory::new(MEMORY);
    memory.write(0, &at_first()).expect("all of it");
    memory
}

/// Keys for the granted part at three addresses, for the readable one, one of another domain, and
/// one that nobody gave.
fn grant(
    engine: &mut Engine,
    domain: DomainId,
    memory: &Arc<OwnedMemory>,
) -> (Vec<Rkey>, Vec<u64>) {
    let (mut keys, mut addresses) = (Vec::new(), Vec::new());
    let mut register = |domain, range: std::ops::Range<usize>, base: u64, access| {
        let part = Arc::clone(memory);
        let found = engine.register_part(domain, part, range, base, access).expect("a region");
        keys.push(found.remote);
        addresses.extend([base, base.wrapping_add(0x1000)]);
        engine.limits().regions
    };
    for base in [0, 0x1_0000, TOP] {
        register(domain, GRANTED, base, Access::ALL | Access::INVALIDATE);
    }
    register(domain, READABLE, READABLE_BASE, Access::REMOTE_READ);
    let foreign = engine.allocate_domain().expect("a second domain");
    let whole = engine.register_part(foreign, Arc::clone(memory), 0..MEMORY, 0, Access::ALL);
    keys.push(whole.expect("a region").remote);
    keys.push(Rkey::new(0xdead_beef));
    addresses.extend([OWN_BASE, u64::MAX, 1 << 63, u64::MAX - 7]);
    (keys, addresses)
}

fn queue_pair(
    engine: &mut Engine,
    domain: DomainId,
    kind: QueuePairKind,
    completions: &Arc<CompletionQueue>,
    is_sharing: bool,
) -> (Arc<QueuePairQueues>, Vec<Arc<ReceiveQueue>>) {
    let completions = || Arc::clone(completions);
    if kind == QueuePairKind::XrcTarget {
        let xrc_domain = engine.open_xrc_domain(&XrcOpen::default()).expect("a first domain");
        let shared = (0..2).map(|_| {
            let completions = completions();
            let (requests, segments) = (32, 2);
            let options = XrcQueueOptions { domain, xrc_domain, completions, requests, segments };
            engine.create_xrc_shared_receive_queue(&options).expect("a queue")
        });
        let shared = shared.collect();
        return (engine.create_xrc_target(xrc_domain).expect("a queue pair"), shared);
    }
    let options = QueuePairOptions {
        kind,
        domain,
        send_completions: completions(),
        receive_completions: completions(),
        capacities: QueueCapacities {
            send_requests: 16,
            receive_requests: 32,
            ..Default::default()
        },
        signal_all: true,
    };
    let is_sharing = is_sharing && kind.serves();
    let shared: Vec<_> = is_sharing
        .then(|| engine.create_shared_receive_queue(domain, 32, 2).expect("a queue"))
        .into_iter()
        .collect();
    let created = engine.create_queue_pair_sharing(&options, shared.first());
    (created.expect("a queue pair"), shared)
}

fn attributes(
    peer: IpAddr,
    path_mtu: PathMtu,
    access: Access,
    start: u32,
    options: u8,
) -> QueuePairAttributes {
    let (reads, retries) = if options & 0x10 != 0 { (1, 1) } else { (16, 7) };
    QueuePairAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(access),
        address: Some(AddressVector::new(0, peer)),
        path_mtu: Some(path_mtu),
        destination: Some(Qpn::new(PEER)),
        receive_psn: Some(Psn::new(start)),
        send_psn: Some(Psn::new(start ^ 1)),
        max_destination_rd_atomic: Some(reads),
        max_rd_atomic: Some(reads),
        min_rnr_timer: Some(12),
        timeout: Some(14),
        retry_count: Some(retries),
        rnr_retry: Some(retries),
        ..QueuePairAttributes::default()
    }
}

/// A place in what is the application's own.
pub(super) fn own(key: Lkey, offset: u32, length: u32) -> Sge {
    Sge { address: OWN_BASE + u64::from(offset), length, key }
}
