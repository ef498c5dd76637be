//! A device with one RC queue pair and memory, for tests over real sockets.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use uroce::engine::{MemoryKeys, QueuePairOptions};
use uroce::memory::OwnedMemory;
use uroce::queue::{
    Access, AddressVector, Attachment, Completion, CompletionKind, CompletionQueue,
    CompletionStatus, PathMtu, Payload, QueueCapacities, QueuePairAttributes, QueuePairKind,
    QueuePairQueues, QueuePairState, ReceiveRequest, Remote, SendFlags, SendOperation, SendRequest,
    Sge,
};
use uroce::software::{Device, DeviceOptions, clock};
use uroce::time::{Instant, SECOND};
use uroce::wire::{Psn, Qpn};

/// Bytes of an endpoint's memory.
pub const MEMORY: usize = 1 << 20;
/// Nothing here takes as long as this unless it hangs.
pub const LONG: u64 = 30 * SECOND;

/// What a peer has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub number: Qpn,
    pub ip: IpAddr,
    /// Start and key of its memory.
    pub remote: Remote,
}

/// See the module's text.
pub struct Endpoint {
    pub device: Arc<Device>,
    pub queues: Arc<QueuePairQueues>,
    pub completions: Arc<CompletionQueue>,
    pub memory: Arc<OwnedMemory>,
    pub keys: MemoryKeys,
    gid_index: u16,
}

pub fn device(options: &DeviceOptions) -> Arc<Device> {
    Arc::new(Device::open(options).unwrap_or_else(|error| panic!("{error}")))
}

pub fn blank() -> Completion {
    Completion {
        id: 0,
        status: CompletionStatus::General,
        kind: CompletionKind::Send,
        length: 0,
        attachment: Attachment::None,
        queue_pair: Qpn::new(0),
        source: Qpn::new(0),
        solicited: false,
    }
}

impl Endpoint {
    /// A queue pair in RESET that will use the device's address at `gid_index`.
    pub fn new(device: &Arc<Device>, gid_index: u16) -> Self {
        let memory = OwnedMemory::new(MEMORY);
        let made = device.control(|engine, _| {
            let domain = engine.allocate_domain()?;
            let completions = engine.create_completion_queue(4096)?;
            let keys = engine.register(domain, Arc::clone(&memory), Access::ALL)?;
            let queues = engine.create_queue_pair(&QueuePairOptions {
                kind: QueuePairKind::Rc,
                domain,
                send_completions: Arc::clone(&completions),
                receive_completions: Arc::clone(&completions),
                capacities: QueueCapacities {
                    send_requests: 256,
                    receive_requests: 256,
                    ..QueueCapacities::default()
                },
                signal_all: false,
            })?;
            Ok::<_, uroce::engine::ControlError>((completions, keys, queues))
        });
        let (completions, keys, queues) = made.expect("our device").expect("within limits");
        let device = Arc::clone(device);
        Self { device, queues, completions, memory, keys, gid_index }
    }

    pub fn address(&self) -> Address {
        Address {
            number: self.queues.number(),
            ip: self.device.addresses()[usize::from(self.gid_index)],
            remote: Remote { address: self.memory.address(), key: self.keys.remote },
        }
    }

    /// Takes the queue pair to RTS towards `peer`.
    pub fn connect(&self, peer: &Address) {
        let init = QueuePairAttributes {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::ALL),
            ..QueuePairAttributes::to_state(QueuePairState::Init)
        };
        let rtr = QueuePairAttributes {
            address: Some(AddressVector::new(self.gid_index, peer.ip)),
            path_mtu: Some(PathMtu::Mtu1024),
            destination: Some(peer.number),
            receive_psn: Some(Psn::new(peer.number.value())),
            max_destination_rd_atomic: Some(16),
            min_rnr_timer: Some(12),
            ..QueuePairAttributes::to_state(QueuePairState::Rtr)
        };
        let rts = QueuePairAttributes {
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            send_psn: Some(Psn::new(self.queues.number().value())),
            max_rd_atomic: Some(16),
            ..QueuePairAttributes::to_state(QueuePairState::Rts)
        };
        let number = self.queues.number();
        let modified = self.device.control(|engine, now| {
            [init, rtr, rts].iter().try_for_each(|to| engine.modify_queue_pair(now, number, to))
        });
        modified.expect("our device").expect("good attributes");
    }

    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        let address = self.memory.address() + offset as u64;
        Sge { address, length: length as u32, key: self.keys.local }
    }

    pub fn post_receive(&self, id: u64, offset: usize, length: usize) {
        let segments = [self.sge(offset, length)];
        self.queues.post_one_receive(&ReceiveRequest { id, segments: &segments }).unwrap();
        self.device.kick_for_receives(&self.queues);
    }

    pub fn post(&self, id: u64, operation: SendOperation, offset: usize, length: usize) {
        let segments = [self.sge(offset, length)];
        let payload = Payload::Segments(&segments);
        let request = SendRequest { id, operation, flags: SendFlags::SIGNALED, payload };
        self.queues.post_one_send(&request).unwrap();
        self.device.kick();
    }

    /// Blocks until the next completion.
    pub fn next(&self) -> Completion {
        let deadline = clock::now() + LONG;
        let mut completions = [blank()];
        let count = self.device.wait(&self.completions, &mut completions, deadline).unwrap();
        assert_eq!(count, 1, "no completion in {} s: {:?}", LONG / SECOND, self.counters());
        completions[0]
    }

    /// The next completion, which must be a success.
    pub fn next_good(&self) -> Completion {
        let completion = self.next();
        assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
        completion
    }

    /// Spins until the next completion.
    pub fn spin(&self) -> Completion {
        let deadline = clock::now() + LONG;
        let mut completions = [blank()];
        while self.device.poll(&self.completions, &mut completions).unwrap() == 0 {
            assert!(clock::now() < deadline, "no completion: {:?}", self.counters());
        }
        completions[0]
    }

    /// All counters that are not 0.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let counters = self.device.counters().expect("our device");
        let all = counters.engine.iter().chain(counters.sharing.iter());
        all.filter(|(_, value)| *value != 0).collect()
    }
}

/// Connects two endpoints with each other.
pub fn join(one: &Endpoint, other: &Endpoint) {
    one.connect(&other.address());
    other.connect(&one.address());
}

/// The slots of an address that any process of this host has taken.
pub fn slots_taken(address: IpAddr) -> BTreeSet<u8> {
    let prefix = format!("@uroce/{address}/slot/");
    let names = std::fs::read_to_string("/proc/net/unix").unwrap();
    // A connection shows the name of the socket that accepted it, too.
    names.lines().filter_map(|line| line.split_once(&prefix)?.1.trim().parse().ok()).collect()
}

/// How many sockets on the RoCE port of an IPv4 address there are on this host.
pub fn sockets_on_port(address: IpAddr) -> usize {
    let IpAddr::V4(address) = address else { panic!("{address} is not IPv4") };
    // As the kernel prints it: the word as it lies in memory.
    let word = u32::from_ne_bytes(address.octets());
    let bound = format!("{word:08X}:{:04X}", uroce::wire::ROCE_PORT);
    std::fs::read_to_string("/proc/net/udp").unwrap().matches(&bound).count()
}

/// Bytes that tell message and sender apart.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length).map(|place| (place as u64 * 7 + place as u64 / 251 + seed * 31) as u8).collect()
}

/// Waits until `done`, looking every now and then; false after [`LONG`].
pub fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let deadline: Instant = clock::now() + LONG;
    loop {
        if done() {
            return true;
        }
        if clock::now() >= deadline {
            return false;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}
