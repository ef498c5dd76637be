//! A host of the fabric: an engine, its card, and an application that always has more to send.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::nic::Nic;
use super::plan::{Carrier, FabricPlan};
use crate::engine::{
    CongestionOptions, Counter, Effects, Engine, EngineOptions, FlowRate, MemoryKeys, Port,
    QueuePairOptions,
};
use crate::memory::{DomainId, OwnedMemory};
use crate::queue::{
    Access, AddressVector, CompletionKind, CompletionQueue, Datagram, PathMtu, Payload,
    QueueCapacities, QueuePairAttributes, QueuePairKind, QueuePairQueues, QueuePairState,
    ReceiveRequest, Remote, SendFlags, SendOperation, SendRequest, Sge,
};
use crate::time::{Instant, MICROSECOND};
use crate::wire::{Psn, QKey};

/// Bytes of an IP packet at most, and of payload.
const MTU: usize = 1_500;
const PATH_MTU: PathMtu = PathMtu::Mtu1024;
/// Bytes of a message on a connection, and of the memory that all flows of a host use.
const MESSAGE: u32 = 16 * 1024;
/// Messages and datagrams that an application has posted at a time.
const MESSAGES: u32 = 16;
const DATAGRAMS: u32 = 64;
/// Receives for datagrams.
const RECEIVES: u32 = 512;
const QKEY: QKey = QKey::new(0x1ee7);
/// From one turn to the next where the engine has more to do.
const TURN: u64 = MICROSECOND / 2;
/// Packets of a turn.
const BUDGET: usize = 64;

/// One end of a flow.
struct End {
    flow: usize,
    queues: Arc<QueuePairQueues>,
    /// What it posts, if it is the one who asks.
    work: Option<Work>,
}

/// What an application posts again and again.
#[derive(Clone, Copy)]
struct Work {
    operation: SendOperation,
    bytes: u32,
    most: u32,
    posted: u32,
    start: Instant,
    stop: Instant,
}

/// What an application has finished: the flow, and how many bytes.
pub(super) type Finished = (usize, u64);

/// See the module's text.
pub(super) struct Host {
    pub(super) engine: Engine,
    pub(super) nic: Nic,
    /// When its next turn is due.
    pub(super) turn_at: Instant,
    domain: DomainId,
    memory: Arc<OwnedMemory>,
    keys: MemoryKeys,
    completions: Arc<CompletionQueue>,
    ends: Vec<End>,
    effects: Effects,
}

/// Address of a host.
pub(super) fn address(host: usize) -> IpAddr {
    let [high, low] = (host as u16 + 1).to_be_bytes();
    IpAddr::from(Ipv4Addr::new(10, 1, high, low))
}

impl Host {
    pub(super) fn new(plan: &FabricPlan, number: usize, seed: u64) -> Self {
        let addresses: Vec<IpAddr> = (0..plan.hosts).map(address).collect();
        let nic = Nic::new(number, addresses, MTU);
        let mut options = EngineOptions::new(seed, vec![address(number)]);
        options.slot = number as u8;
        options.congestion = congestion(plan);
        let mut engine = Engine::new(options, nic.capabilities());
        let domain = engine.allocate_domain().expect("a new engine has room for a domain");
        let memory = OwnedMemory::new(MESSAGE as usize);
        let keys = engine.register(domain, Arc::clone(&memory), Access::ALL);
        let keys = keys.expect("a new engine has room for memory");
        let completions = engine.create_completion_queue(65_536).expect("within the limits");
        Self {
            engine,
            nic,
            turn_at: Instant::NEVER,
            domain,
            memory,
            keys,
            completions,
            ends: Vec::new(),
            effects: Effects::default(),
        }
    }

    /// A queue pair for one end of a flow.
    pub(super) fn add_end(&mut self, flow: usize, carrier: Carrier) -> Arc<QueuePairQueues> {
        let options = QueuePairOptions {
            kind: kind(carrier),
            domain: self.domain,
            send_completions: Arc::clone(&self.completions),
            receive_completions: Arc::clone(&self.completions),
            capacities: QueueCapacities {
                send_requests: DATAGRAMS,
                receive_requests: RECEIVES,
                ..QueueCapacities::default()
            },
            signal_all: true,
        };
        let queues = self.engine.create_queue_pair(&options).expect("within the limits");
        self.ends.push(End { flow, queues: Arc::clone(&queues), work: None });
        queues
    }

    /// Connects the queue pair that was last added with one of another host.
    pub(super) fn connect(&mut self, carrier: Carrier, to: usize, peer: &QueuePairQueues) {
        let Some(end) = self.ends.last() else { return };
        let number = end.queues.number();
        for step in steps(carrier, to, peer) {
            let modified = self.engine.modify_queue_pair(Instant::ZERO, number, &step);
            modified.expect("these attributes are good");
        }
        if carrier == Carrier::Datagram {
            for _ in 0..RECEIVES {
                post_receive(&self.ends[self.ends.len() - 1].queues, self.everything());
            }
        }
    }

    /// The queue pair that was last added asks for the flow's data from now on.
    pub(super) fn set_to_work(
        &mut self,
        carrier: Carrier,
        (to, peer, remote): (usize, &QueuePairQueues, Remote),
        (start, stop): (Instant, Instant),
    ) {
        let (operation, bytes, most) = match carrier {
            Carrier::Write | Carrier::UnreliableWrite => {
                (SendOperation::Write(remote), MESSAGE, MESSAGES)
            }
            Carrier::Read => (SendOperation::Read(remote), MESSAGE, MESSAGES),
            Carrier::Datagram => {
                let vector = AddressVector::new(0, address(to));
                let handle = self.engine.create_address_handle(self.domain, &vector);
                let address = handle.expect("the address is of this fabric");
                let to = Datagram { address, queue_pair: peer.number(), qkey: QKEY };
                let operation = SendOperation::SendTo { to, immediate: None };
                (operation, PATH_MTU.bytes() as u32, DATAGRAMS)
            }
        };
        let work = Work { operation, bytes, most, posted: 0, start, stop };
        if let Some(end) = self.ends.last_mut() {
            end.work = Some(work);
        }
    }

    /// The host's memory, as others name it.
    pub(super) fn remote(&self) -> Remote {
        Remote { address: self.memory.address(), key: self.keys.remote }
    }

    fn everything(&self) -> Sge {
        Sge { address: self.memory.address(), length: MESSAGE, key: self.keys.local }
    }

    /// Application and engine, until both have nothing to do at this time. What was finished goes to
    /// `finished`.
    pub(super) fn turn(&mut self, now: Instant, finished: &mut Vec<Finished>) {
        self.post(now);
        let report = self.engine.turn(now, &mut self.nic, BUDGET);
        self.engine.take_effects(&mut self.effects);
        self.effects.notify();
        self.effects.events.clear();
        self.poll(finished);
        let again = report.more && self.nic.has_room();
        let next = if again || self.could_post(now) { now + TURN } else { report.next_deadline };
        self.turn_at = next.max(now + 1);
    }

    fn could_post(&self, now: Instant) -> bool {
        let works = self.ends.iter().filter_map(|end| end.work);
        works.into_iter().any(|work| work.is_on(now) && work.posted < work.most)
    }

    fn post(&mut self, now: Instant) {
        let everything = self.everything();
        for end in &mut self.ends {
            let Some(work) = end.work.as_mut().filter(|work| work.is_on(now)) else { continue };
            let segment = Sge { length: work.bytes, ..everything };
            while work.posted < work.most {
                let payload = Payload::Segments(std::slice::from_ref(&segment));
                let (operation, flags) = (work.operation, SendFlags::SIGNALED);
                let request = SendRequest { id: end.flow as u64, operation, flags, payload };
                end.queues.post_one_send(&request).expect("there is room and the state is right");
                work.posted += 1;
            }
        }
    }

    fn poll(&mut self, finished: &mut Vec<Finished>) {
        let everything = self.everything();
        let Self { completions, ends, .. } = self;
        let polled = completions.poll(usize::MAX, |_, completion| {
            let end = ends.iter_mut().find(|end| end.queues.number() == completion.queue_pair);
            let Some(end) = end else { return };
            if completion.kind == CompletionKind::Receive {
                return post_receive(&end.queues, everything);
            }
            assert!(completion.status.is_success(), "a flow ended: {}", completion.status);
            if let Some(work) = &mut end.work {
                work.posted -= 1;
                finished.push((end.flow, work.bytes.into()));
            }
        });
        polled.expect("the queue is large enough");
    }

    /// What a counter of the engine says.
    pub(super) fn count(&self, counter: Counter) -> u64 {
        self.engine.counters().get(counter)
    }

    /// The rate of a flow whose data comes from here, if it is limited.
    pub(super) fn rate(&self, now: Instant, flow: usize, to: usize) -> Option<FlowRate> {
        let end = self.ends.iter().find(|end| end.flow == flow)?;
        let own = self.engine.flow_rate(now, end.queues.number()).ok().flatten();
        match end.queues.kind() {
            QueuePairKind::Uc | QueuePairKind::Ud => self.engine.path_rate(now, address(to)),
            _ => own,
        }
    }
}

impl Work {
    fn is_on(&self, now: Instant) -> bool {
        self.start <= now && now < self.stop
    }
}

/// The options of all hosts: their line is the fabric's, unless they say something else.
fn congestion(plan: &FabricPlan) -> CongestionOptions {
    let mut options = plan.congestion;
    if options.rpg_max_rate == 0 {
        options.rpg_max_rate = (plan.rate / 1_000_000).max(1) as u32;
    }
    options
}

fn kind(carrier: Carrier) -> QueuePairKind {
    match carrier {
        Carrier::Write | Carrier::Read => QueuePairKind::Rc,
        Carrier::UnreliableWrite => QueuePairKind::Uc,
        Carrier::Datagram => QueuePairKind::Ud,
    }
}

fn post_receive(queues: &QueuePairQueues, segment: Sge) {
    let request = ReceiveRequest { id: 0, segments: &[segment] };
    queues.post_one_receive(&request).expect("there is room and the state is right");
}

/// From RESET to RTS, with what each transport takes.
fn steps(carrier: Carrier, to: usize, peer: &QueuePairQueues) -> [QueuePairAttributes; 3] {
    let kind = kind(carrier);
    let (is_rc, is_ud) = (kind == QueuePairKind::Rc, kind == QueuePairKind::Ud);
    let init = QueuePairAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: (!is_ud).then_some(Access::ALL),
        qkey: is_ud.then_some(QKEY),
        ..QueuePairAttributes::to_state(QueuePairState::Init)
    };
    let rtr = QueuePairAttributes {
        address: (!is_ud).then(|| AddressVector::new(0, address(to))),
        path_mtu: (!is_ud).then_some(PATH_MTU),
        destination: (!is_ud).then(|| peer.number()),
        receive_psn: (!is_ud).then(|| Psn::new(0)),
        max_destination_rd_atomic: is_rc.then_some(16),
        min_rnr_timer: is_rc.then_some(12),
        ..QueuePairAttributes::to_state(QueuePairState::Rtr)
    };
    let rts = QueuePairAttributes {
        timeout: is_rc.then_some(14),
        retry_count: is_rc.then_some(7),
        rnr_retry: is_rc.then_some(7),
        send_psn: Some(Psn::new(0)),
        max_rd_atomic: is_rc.then_some(16),
        ..QueuePairAttributes::to_state(QueuePairState::Rts)
    };
    [init, rtr, rts]
}
