//! A scripted peer against one engine.
//!
//! ```text
//!   post…, deliver…  ──▶ queued up
//!   expect…          ──▶ gives the engine turns at the present time until it is quiet, or up to
//!                        the time that is named, then takes the oldest thing seen and compares
//! ```
//!
//! A story ends with nothing left over: each frame, completion and event must have been expected.

mod frame;
mod port;
mod setup;

use std::collections::VecDeque;
use std::sync::Arc;

use uroce::engine::{
    AsyncEvent, ControlError, Counter, Effects, Engine, MemoryKeys, QueuePairOptions, TurnReport,
};
use uroce::memory::{DomainId, OwnedMemory};
use uroce::queue::{
    Access, Completion, CompletionQueue, CompletionStatus, Payload, QueuePairAttributes,
    QueuePairKind, QueuePairQueues, QueuePairState, ReceiveRequest, Remote, SendFlags,
    SendOperation, SendRequest, Sge,
};
use uroce::time::Instant;
use uroce::wire::{
    Flow, ICRC_LENGTH, Identification, Packet, Psn, QKey, Qpn, Reth, Rkey, SentBurst, icrc,
};

pub use frame::*;
use port::Arrival;
pub use port::ScriptPort;
pub use setup::{Setup, story};

/// Bytes of the engine's registered memory.
pub const MEMORY: usize = 1 << 20;
/// The address by which requests name its first byte.
pub const BASE: u64 = 0x1_0000_0000;
/// Where stories send from.
pub const SOURCE: usize = 0;
/// Where they receive.
pub const RECEIVE: usize = 0x4_0000;
/// Where answers of READs and atomics go.
pub const TARGET: usize = 0x8_0000;
/// What the peer reads and writes.
pub const SERVED: usize = 0xc_0000;
/// Number of the peer's first queue pair; the others follow.
pub const PEER: u32 = 0x000b00;
/// Queue key of datagram queue pairs, ours and the peer's.
pub const QKEY: QKey = QKey::new(0x1111_1111);
/// The peer's memory, as our requests name it.
pub const PEER_MEMORY: Remote = Remote { address: 0x7000_0000, key: Rkey::new(0x5151) };

/// What happened beside frames and completions, with the index of the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Fatal(usize),
    RequestError(usize),
    AccessError(usize),
    Established(usize),
    Drained(usize),
    Overrun,
    InvalidXrceth(usize),
    XrcDomainViolation(usize),
    LastReceive(usize),
    /// A shared receive queue has fewer receives than its limit.
    Limit,
}

/// A frame that the engine sent.
#[derive(Clone, PartialEq)]
pub struct Sent {
    pub at: Instant,
    pub pair: usize,
    /// Counts the bursts of the story.
    pub burst: usize,
    pub frame: Frame,
    /// BTH to ICRC, as sent.
    pub bytes: Vec<u8>,
    pub flow: Flow,
    pub traffic_class: u8,
    /// IPv4 identification.
    pub identification: u16,
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at {}, queue pair {}: {:?}", self.at, self.pair, self.frame)
    }
}

/// See the module's text.
pub struct Story {
    pub setup: Setup,
    pub now: Instant,
    pub engine: Engine,
    pub domain: DomainId,
    pub memory: Arc<OwnedMemory>,
    pub keys: MemoryKeys,
    pub send_completions: Arc<CompletionQueue>,
    pub receive_completions: Arc<CompletionQueue>,
    pub pairs: Vec<Arc<QueuePairQueues>>,
    /// Whom `post`, `deliver` and `expect` mean.
    pub pair: usize,
    pub port: ScriptPort,
    /// Of what the peer sends.
    pub traffic_class: u8,
    bursts: usize,
    sent: VecDeque<Sent>,
    events: VecDeque<Event>,
}

/// Bytes that lie at `offset` in the engine's memory at the start of a story.
pub fn ours(offset: usize, length: usize) -> Vec<u8> {
    (offset..offset + length).map(|index| (index * 31 + index / 253) as u8).collect()
}

/// Bytes of the peer.
pub fn theirs(offset: usize, length: usize) -> Vec<u8> {
    (offset..offset + length).map(|index| (index * 17 + index / 251 + 101) as u8).collect()
}

/// A place in the peer's memory, as our requests name it.
pub fn peer(offset: usize) -> Remote {
    Remote { address: PEER_MEMORY.address + offset as u64, ..PEER_MEMORY }
}

/// The same with a length.
pub fn peer_reth(offset: usize, length: usize) -> Reth {
    let Remote { address, key } = peer(offset);
    Reth { address, key, length: length as u32 }
}

pub const fn us(microseconds: u64) -> Instant {
    Instant::from_nanos(microseconds * 1_000)
}

pub const fn ms(milliseconds: u64) -> Instant {
    us(milliseconds * 1_000)
}

impl Story {
    pub fn new(setup: Setup) -> Self {
        let port = ScriptPort::new(setup.link_mtu, setup.max_segments);
        let capabilities = uroce::engine::Port::capabilities(&port).clone();
        let mut engine = Engine::new(setup.engine_options(), &capabilities);
        let domain = engine.allocate_domain().unwrap();
        let memory = OwnedMemory::new(MEMORY);
        memory.write(0, &ours(0, MEMORY)).unwrap();
        let access = Access::ALL | Access::MW_BIND;
        let registered = Arc::clone(&memory);
        let keys = engine.register_part(domain, registered, 0..MEMORY, BASE, access).unwrap();
        let send_completions = engine.create_completion_queue(setup.completions).unwrap();
        let receive_completions = engine.create_completion_queue(setup.completions).unwrap();
        let mut story = Self {
            now: Instant::ZERO,
            engine,
            domain,
            memory,
            keys,
            send_completions,
            receive_completions,
            pairs: Vec::new(),
            pair: 0,
            port,
            traffic_class: 0,
            bursts: 0,
            sent: VecDeque::new(),
            events: VecDeque::new(),
            setup,
        };
        for _ in 0..story.setup.pairs {
            story.add_pair();
        }
        story.pair = 0;
        story
    }

    /// One more queue pair, brought to the setup's state, which becomes the one that is meant.
    pub fn add_pair(&mut self) {
        self.add_pair_of(self.setup.kind);
    }

    /// The same of another transport.
    pub fn add_pair_of(&mut self, kind: QueuePairKind) {
        let options = QueuePairOptions {
            kind,
            domain: self.domain,
            send_completions: Arc::clone(&self.send_completions),
            receive_completions: Arc::clone(&self.receive_completions),
            capacities: self.setup.capacities,
            signal_all: self.setup.signal_all,
        };
        let pair = self.engine.create_queue_pair(&options).unwrap();
        self.adopt(pair);
    }

    /// A queue pair made otherwise, brought to the setup's state, becomes the one that is meant.
    pub fn adopt(&mut self, pair: Arc<QueuePairQueues>) {
        self.pairs.push(pair);
        self.pair = self.pairs.len() - 1;
        self.bring_to(self.setup.state);
    }

    /// From RESET through the states to `state`.
    pub fn bring_to(&mut self, state: QueuePairState) {
        use QueuePairState::{Error, Init, Rtr, Rts, Sqd};
        for step in [Init, Rtr, Rts, Sqd, Error].into_iter().filter(|step| *step <= state) {
            if step == Sqd && state != Sqd {
                continue;
            }
            self.modify(&self.attributes(step)).unwrap();
        }
    }

    /// The setup's attributes for the transition to `state`.
    pub fn attributes(&self, state: QueuePairState) -> QueuePairAttributes {
        let all = self.setup.attributes(state, self.pair);
        match self.pairs[self.pair].kind() {
            QueuePairKind::XrcInitiator => {
                QueuePairAttributes { max_destination_rd_atomic: None, min_rnr_timer: None, ..all }
            }
            QueuePairKind::XrcTarget => QueuePairAttributes {
                max_rd_atomic: None,
                retry_count: None,
                rnr_retry: None,
                ..all
            },
            _ => all,
        }
    }

    pub fn modify(&mut self, attributes: &QueuePairAttributes) -> Result<(), ControlError> {
        let outcome = self.engine.modify_queue_pair(self.now, self.number(), attributes);
        self.collect_effects();
        outcome
    }

    pub fn number(&self) -> Qpn {
        self.pairs[self.pair].number()
    }

    pub fn state(&self) -> QueuePairState {
        self.pairs[self.pair].state()
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.engine.counters().get(counter)
    }

    /// A place in the engine's memory, as the peer's requests name it.
    pub fn reth(&self, offset: usize, length: usize) -> Reth {
        Reth { address: BASE + offset as u64, key: self.keys.remote, length: length as u32 }
    }

    /// The same as local segment.
    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge { address: BASE + offset as u64, length: length as u32, key: self.keys.local }
    }

    /// The bytes that lie at `offset` now.
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.memory.to_vec(offset, length).unwrap()
    }
}

/// What the application does.
impl Story {
    pub fn post(&mut self, id: u64, operation: SendOperation, flags: SendFlags, segments: &[Sge]) {
        let request = SendRequest { id, operation, flags, payload: Payload::Segments(segments) };
        self.pairs[self.pair].post_one_send(&request).unwrap();
    }

    pub fn post_send(&mut self, id: u64, length: usize) {
        let segment = self.sge(SOURCE, length);
        self.post(id, SendOperation::Send, SendFlags::NONE, &[segment]);
    }

    /// A WRITE from SOURCE to the start of the peer's memory.
    pub fn post_write(&mut self, id: u64, length: usize) {
        let segment = self.sge(SOURCE, length);
        self.post(id, SendOperation::Write(peer(0)), SendFlags::NONE, &[segment]);
    }

    /// A READ from the start of the peer's memory to TARGET.
    pub fn post_read(&mut self, id: u64, length: usize) {
        let segment = self.sge(TARGET, length);
        self.post(id, SendOperation::Read(peer(0)), SendFlags::NONE, &[segment]);
    }

    /// A fetch-and-add at the start of the peer's memory, the answer to TARGET.
    pub fn post_fetch_add(&mut self, id: u64, add: u64) {
        let segment = self.sge(TARGET, 8);
        let operation = SendOperation::FetchAdd { remote: peer(0), add };
        self.post(id, operation, SendFlags::NONE, &[segment]);
    }

    /// A receive of `length` bytes at RECEIVE.
    pub fn post_receive(&mut self, id: u64, length: usize) {
        let segments = [self.sge(RECEIVE, length)];
        let request = ReceiveRequest { id, segments: &segments };
        self.pairs[self.pair].post_one_receive(&request).unwrap();
    }
}

/// What the peer does.
impl Story {
    /// The peer sends a frame. It is handed in at the next turn.
    pub fn deliver(&mut self, frame: Frame) {
        self.deliver_on(self.flow(), frame);
    }

    pub fn deliver_all(&mut self, frames: impl IntoIterator<Item = Frame>) {
        for frame in frames {
            self.deliver(frame);
        }
    }

    /// The flow on which the peer sends.
    pub fn flow(&self) -> Flow {
        Flow {
            source: self.setup.peer_address(self.pair),
            destination: self.setup.our_address(),
            source_port: 0xc123,
        }
    }

    pub fn deliver_on(&mut self, flow: Flow, frame: Frame) {
        let bytes = self.encode(frame);
        self.deliver_bytes(flow, bytes);
    }

    /// The packet of a frame to the queue pair that is meant, without ICRC.
    pub fn encode(&self, mut frame: Frame) -> Vec<u8> {
        let start = match frame.stream() {
            Stream::Requester => self.setup.send_start,
            Stream::Responder => self.setup.receive_start,
            Stream::None => 0,
        };
        frame.headers.psn = Psn::new(start).add(frame.headers.psn.value());
        frame.headers.destination = self.number();
        let packet = Packet { headers: frame.headers, payload: &frame.payload, pad: &[] };
        let mut bytes = vec![0; packet.length()];
        packet.emit(&mut bytes);
        bytes
    }

    /// Any bytes of the peer, to which the right ICRC is added.
    pub fn deliver_bytes(&mut self, flow: Flow, mut bytes: Vec<u8>) {
        let crc = icrc::of_datagram(&flow, 0x4242, icrc::DONT_FRAGMENT, &bytes);
        bytes.extend(crc);
        self.deliver_raw(flow, bytes);
    }

    /// A frame of the peer with an IPv4 identification that its receiver cannot see.
    pub fn deliver_unseen(&mut self, frame: Frame, identification: u16) {
        let (flow, mut bytes) = (self.flow(), self.encode(frame));
        bytes.extend(icrc::of_datagram(&flow, identification, icrc::DONT_FRAGMENT, &bytes));
        let (identification, traffic_class) = (Identification::Unseen, self.traffic_class);
        self.port.arrived.push_back(Arrival { flow, identification, traffic_class, bytes });
    }

    /// Any bytes of the peer, ICRC included.
    pub fn deliver_raw(&mut self, flow: Flow, bytes: Vec<u8>) {
        let identification = match self.setup.ipv6 {
            true => Identification::Unseen,
            false => Identification::Seen { first: 0x4242, flags: icrc::DONT_FRAGMENT },
        };
        let traffic_class = self.traffic_class;
        self.port.arrived.push_back(Arrival { flow, identification, traffic_class, bytes });
    }
}

/// Time.
impl Story {
    /// One turn at the present time.
    pub fn turn(&mut self) -> TurnReport {
        let report = self.engine.turn(self.now, &mut self.port, 64);
        self.engine.check_invariants();
        for (burst, bytes) in std::mem::take(&mut self.port.sent) {
            self.record(&burst, &bytes);
        }
        self.collect_effects();
        report
    }

    /// Turns at the present time until the engine is quiet.
    pub fn settle(&mut self) {
        for _ in 0..1000 {
            let report = self.turn();
            if report.received + report.sent == 0 && !report.more {
                return;
            }
        }
        panic!("the engine does not come to rest at {}", self.now);
    }

    /// Time passes up to `end`; the engine gets a turn at each of its deadlines.
    pub fn pass_until(&mut self, end: Instant) {
        self.settle();
        while self.next_deadline() <= end {
            self.now = self.next_deadline();
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    fn next_deadline(&self) -> Instant {
        self.engine.next_deadline().max(self.now)
    }

    fn record(&mut self, burst: &SentBurst, bytes: &[u8]) {
        let received = burst.as_received(bytes);
        assert_eq!(burst.flow.source, self.setup.our_address());
        assert!(burst.flow.source_port >= 0xc000, "source port {}", burst.flow.source_port);
        for (index, segment) in received.segments().enumerate() {
            let verdict = icrc::judge(&received, index, segment, true);
            assert_eq!(verdict, icrc::Verdict::Right, "the ICRC of what is sent");
            let (pair, frame) = self.decode(segment);
            if !burst.flow.destination.is_multicast() {
                assert_eq!(burst.flow.destination, self.setup.peer_address(pair));
            }
            let identification = burst.first_identification.wrapping_add(index as u16);
            self.sent.push_back(Sent {
                at: self.now,
                pair,
                burst: self.bursts,
                frame,
                bytes: segment.to_vec(),
                flow: burst.flow,
                traffic_class: burst.traffic_class,
                identification,
            });
        }
        self.bursts += 1;
    }

    fn decode(&self, segment: &[u8]) -> (usize, Frame) {
        let Packet { mut headers, payload, pad } = Packet::parse(segment).expect("a packet");
        assert!(pad.iter().all(|byte| *byte == 0), "pad bytes are zero");
        assert!(segment.len() <= self.setup.link_mtu - 28 && segment.len() > ICRC_LENGTH);
        // What goes to a group is the first queue pair's in all stories.
        let group = headers.destination == Qpn::MULTICAST;
        let pair = if group { 0 } else { (headers.destination.value() - PEER) as usize };
        let mut frame = Frame { headers, payload: payload.to_vec() };
        let start = match frame.stream() {
            Stream::Requester => self.setup.receive_start,
            Stream::Responder => self.setup.send_start,
            Stream::None => 0,
        };
        headers.psn = Psn::new(headers.psn.distance_from(Psn::new(start)));
        headers.destination = Qpn::default();
        frame.headers = headers;
        (pair, frame)
    }

    fn collect_effects(&mut self) {
        let mut effects = Effects::default();
        self.engine.take_effects(&mut effects);
        effects.notify();
        for event in effects.events {
            let event = self.event(&event);
            self.events.push_back(event);
        }
    }

    fn event(&self, event: &AsyncEvent) -> Event {
        let index = |number: &Qpn| {
            self.pairs.iter().position(|pair| pair.number() == *number).expect("a queue pair")
        };
        match event {
            AsyncEvent::QueuePairFatal(number) => Event::Fatal(index(number)),
            AsyncEvent::RequestError(number) => Event::RequestError(index(number)),
            AsyncEvent::AccessError(number) => Event::AccessError(index(number)),
            AsyncEvent::CommunicationEstablished(number) => Event::Established(index(number)),
            AsyncEvent::SendQueueDrained(number) => Event::Drained(index(number)),
            AsyncEvent::CompletionQueueOverrun(_) => Event::Overrun,
            AsyncEvent::InvalidXrceth(number) => Event::InvalidXrceth(index(number)),
            AsyncEvent::XrcDomainViolation(number) => Event::XrcDomainViolation(index(number)),
            AsyncEvent::LastReceiveReached(number) => Event::LastReceive(index(number)),
            AsyncEvent::SharedReceiveQueueLimit(_) => Event::Limit,
            other => panic!("an unknown event: {other}"),
        }
    }
}

/// What has to happen.
impl Story {
    /// The oldest frame not yet seen, sent at the present time or before.
    pub fn next_sent(&mut self) -> Option<Sent> {
        self.settle();
        self.sent.pop_front()
    }

    /// The next frame is this one.
    #[track_caller]
    pub fn expect(&mut self, frame: Frame) -> Sent {
        let sent = self.next_sent().unwrap_or_else(|| panic!("not sent: {frame:?}"));
        assert_eq!((sent.pair, &sent.frame), (self.pair, &frame), "sent | expected");
        sent
    }

    #[track_caller]
    pub fn expect_all(&mut self, frames: impl IntoIterator<Item = Frame>) {
        for frame in frames {
            self.expect(frame);
        }
    }

    /// Time passes until something is sent; that is this frame, at this time.
    #[track_caller]
    pub fn expect_at(&mut self, at: Instant, frame: Frame) {
        self.settle();
        while self.sent.is_empty() && self.next_deadline() <= at {
            self.now = self.next_deadline();
            self.settle();
        }
        let sent = self.sent.pop_front();
        let sent = sent.unwrap_or_else(|| panic!("not sent by {at}: {frame:?}"));
        assert_eq!((sent.at, &sent.frame), (at, &frame), "sent | expected");
    }

    /// Nothing has been sent and nothing completed that was not expected, up to now.
    #[track_caller]
    pub fn expect_nothing(&mut self) {
        self.settle();
        assert_eq!(self.sent.front(), None, "sent");
        assert_eq!(self.events.front(), None, "event");
        for queue in [&self.send_completions, &self.receive_completions] {
            let _ = queue.poll(1, |_, completion| panic!("unexpected {completion:?}"));
        }
    }

    /// The same, up to the time `end` inclusive.
    #[track_caller]
    pub fn expect_nothing_until(&mut self, end: Instant) {
        self.expect_nothing();
        self.pass_until(end);
        self.expect_nothing();
    }

    #[track_caller]
    pub fn expect_event(&mut self, event: Event) {
        self.settle();
        assert_eq!(self.events.pop_front(), Some(event), "event | expected");
    }

    /// Events up to now do not matter.
    pub fn forget_events(&mut self) {
        self.settle();
        self.events.clear();
    }

    /// The next completion of a send.
    #[track_caller]
    pub fn expect_sent(&mut self, id: u64, status: CompletionStatus) -> Completion {
        self.settle();
        take_completion(&self.send_completions, id, status)
    }

    /// The next completion of a receive.
    #[track_caller]
    pub fn expect_received(&mut self, id: u64, status: CompletionStatus) -> Completion {
        self.settle();
        take_completion(&self.receive_completions, id, status)
    }

    /// The queue pair is in error, and whatever the peer sends changes nothing and gets no answer.
    #[track_caller]
    pub fn expect_dead(&mut self) {
        self.settle();
        assert_eq!(self.state(), QueuePairState::Error);
        let before = self.count(Counter::DropWrongState);
        let reth = self.reth(SERVED, 8);
        let served = self.bytes(SERVED, 8);
        let frames: Vec<Frame> = (-2..6).map(|psn| write_only(psn, reth, &[0x5a; 8])).collect();
        let count = frames.len() as u64 + 1;
        self.deliver_all(frames);
        self.deliver(ack(0, 1));
        self.expect_nothing();
        assert_eq!(self.count(Counter::DropWrongState), before + count);
        assert_eq!(self.bytes(SERVED, 8), served);
        let end = self.now + 100 * uroce::time::SECOND;
        self.expect_nothing_until(end);
    }

    /// The story ends: nothing is left over.
    #[track_caller]
    pub fn end(&mut self) {
        self.expect_nothing();
    }
}

#[track_caller]
fn take_completion(queue: &CompletionQueue, id: u64, status: CompletionStatus) -> Completion {
    let mut found = None;
    queue.poll(1, |_, completion| found = Some(completion)).expect("no overrun");
    let completion = found.unwrap_or_else(|| panic!("no completion; expected {id} {status}"));
    assert_eq!((completion.id, completion.status), (id, status), "completion | expected");
    completion
}
