//! A connection of two queue pairs that any thread uses and ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, TryLockError};

use uroce::memory::{WindowBind, WindowKind};
use uroce::queue::{FlushPlacement, FlushSelectivity};
use uroce::rng::Rng;
use uroce::software::clock;
use uroce::verbs::{
    Access, AddressHandle, AddressVector, Attachment, Completion, CompletionKind, CompletionQueue,
    ConnectOptions, Context, Immediate, MemoryRegion, MemoryWindow, PathMtu, Payload, PostError,
    ProtectionDomain, Psn, QKey, QueuePair, QueuePairAttributes, QueuePairKind, QueuePairOptions,
    QueuePairState, SendFlags, SendOperation, SendRequest, Sge, SharedReceiveQueue,
};

use super::model::{Id, Requests, Step, Transaction, message, read_message};
use super::{PATIENCE, THREADS, Tally};

pub use uroce::verbs::QueuePairKind as Kind;

/// Bytes of each area of a thread.
const AREA: usize = 4096;
const TARGETS: usize = 0;
const SOURCES: usize = TARGETS + THREADS * AREA;
const READ_BACK: usize = SOURCES + THREADS * AREA;
const RECEIVES: usize = READ_BACK + THREADS * AREA;
/// Receives of an end.
const SLOTS: usize = 16;
/// Bytes of a receive: a message behind the area of a datagram.
const SLOT: usize = AREA + 64;
const WORDS: usize = RECEIVES + SLOTS * SLOT;
const COUNTER: usize = WORDS + THREADS * 8;
const RESULTS: usize = COUNTER + 8;
const MEMORY: usize = RESULTS + THREADS * 16;
/// Bytes before a datagram.
const DATAGRAM_AREA: usize = 40;
const QKEY: QKey = QKey::new(0x5eed);

/// One end.
struct End {
    pair: QueuePair,
    completions: CompletionQueue,
    shared: Option<SharedReceiveQueue>,
    handle: Option<AddressHandle>,
    memory: MemoryRegion,
    domain: ProtectionDomain,
    /// The window that each thread has made last.
    windows: Mutex<[Option<Arc<MemoryWindow>>; THREADS]>,
    /// Receives that are not posted.
    free: Mutex<Vec<usize>>,
    /// Held while completions are taken out and noted, so that their order is seen.
    polling: Mutex<()>,
    requests: Mutex<Requests>,
}

struct Ends {
    ends: [End; 2],
    life: u16,
    /// Somebody has put an end in error or RESET.
    disturbed: AtomicBool,
}

/// See the module's text.
pub struct Connection {
    kind: Kind,
    index: usize,
    domains: [ProtectionDomain; 2],
    devices: [Context; 2],
    ends: RwLock<Ends>,
    /// Held while somebody changes states.
    control: Mutex<()>,
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Error,
    Reset,
    Replacement,
}

impl End {
    /// An end on a device that will speak with one on the device `peer`.
    fn new(
        device: &Context,
        domain: &ProtectionDomain,
        peer: &Context,
        kind: Kind,
        shares: bool,
    ) -> Self {
        let completions = device.create_completion_queue(512).unwrap();
        let shared = shares.then(|| domain.create_shared_receive_queue(SLOTS as u32, 1).unwrap());
        let options = QueuePairOptions {
            kind,
            shared_receives: shared.as_ref(),
            ..QueuePairOptions::new(&completions)
        };
        let pair = domain.create_queue_pair(&options).unwrap();
        let address = AddressVector::new(0, peer.gid(0).unwrap().address());
        Self {
            pair,
            completions,
            shared,
            handle: (kind == Kind::Ud).then(|| domain.create_address_handle(&address).unwrap()),
            memory: domain.allocate(MEMORY, Access::ALL | Access::MW_BIND).unwrap(),
            domain: domain.clone(),
            windows: Mutex::default(),
            free: Mutex::new((0..SLOTS).collect()),
            polling: Mutex::new(()),
            requests: Mutex::default(),
        }
    }

    fn post_receives(&self, most: usize) {
        let mut free = self.free.lock().unwrap();
        for _ in 0..most.min(free.len()) {
            let Some(slot) = free.pop() else { return };
            let segment = [self.memory.segment(RECEIVES + slot * SLOT, SLOT)];
            let posted = match &self.shared {
                Some(shared) => shared.post_receive(slot as u64, &segment),
                None => self.pair.post_receive(slot as u64, &segment),
            };
            if let Err(error) = posted {
                assert!(
                    matches!(error, PostError::WrongState(QueuePairState::Reset, _)),
                    "{error}"
                );
                free.push(slot);
                return;
            }
        }
    }

    /// A new window of a thread; the one that it had is bound or not, and ends.
    fn new_window(&self, thread: usize) -> WindowBind {
        let window = Arc::new(self.domain.allocate_window(WindowKind::Type2B).unwrap());
        let range = TARGETS..TARGETS + AREA;
        let bind = window.bind(&self.memory, range, Access::REMOTE_WRITE, thread as u8);
        let old = self.windows.lock().unwrap()[thread].replace(window);
        drop(old);
        bind
    }

    fn modify(&self, state: QueuePairState) {
        self.pair.modify(&QueuePairAttributes::to_state(state)).unwrap();
    }
}

impl Ends {
    fn is_disturbed(&self) -> bool {
        self.disturbed.load(Ordering::SeqCst)
    }

    /// Takes completions out at one end and judges them; how many.
    fn poll(&self, kind: Kind, side: usize, tally: &Tally) -> usize {
        let end = &self.ends[side];
        let _order = match end.polling.try_lock() {
            Ok(order) => order,
            Err(TryLockError::WouldBlock) => return 0,
            Err(TryLockError::Poisoned(_)) => panic!("another thread has failed"),
        };
        let mut room = [Completion::default(); 16];
        let count = end.completions.poll(&mut room).unwrap();
        for completion in &room[..count] {
            if completion.kind.is_receive() {
                self.received(kind, side, completion, tally);
            } else {
                let disturbed = self.is_disturbed();
                if !completion.status.is_success() && !disturbed {
                    let peer = self.ends[1 - side].pair.history();
                    panic!("fails in peace: {}; the peer: {peer:?}", end.pair.explain(completion));
                }
                end.requests.lock().unwrap().completed(completion, disturbed);
                let good = completion.status.is_success();
                tally.count(if good { "requests" } else { "flushed" });
            }
        }
        count
    }

    fn received(&self, kind: Kind, side: usize, completion: &Completion, tally: &Tally) {
        let end = &self.ends[side];
        let slot = completion.id as usize;
        if completion.status.is_success() {
            let id = self.arrival(kind, side, completion);
            let mut requests = self.ends[1 - side].requests.lock().unwrap();
            if kind == Kind::Rc {
                requests.arrived_in_order(id);
            }
            requests.arrived += 1;
            tally.count("received");
        } else {
            assert!(self.is_disturbed(), "a receive fails in peace: {completion:?}");
            tally.count("flushed receives");
        }
        let mut free = end.free.lock().unwrap();
        assert!(!free.contains(&slot), "receive {slot} completes, which is not posted");
        free.push(slot);
    }

    /// Whose message a receive was filled with; panics unless it is whole.
    fn arrival(&self, kind: Kind, side: usize, completion: &Completion) -> Id {
        if completion.kind == CompletionKind::ReceiveWriteWithImmediate {
            let Attachment::Immediate(Immediate(bytes)) = completion.attachment else {
                panic!("no immediate: {completion:?}")
            };
            let word = u32::from_be_bytes(bytes);
            let (thread, sequence) = ((word >> 24) as u8, word & 0xff_ffff);
            let step = Step::WriteWithImmediate as u8;
            return Id { life: self.life, thread, sequence, step };
        }
        let before = if kind == Kind::Ud { DATAGRAM_AREA } else { 0 };
        let offset = RECEIVES + completion.id as usize * SLOT + before;
        let length = completion.length as usize - before;
        let id = read_message(&self.ends[side].memory.to_vec(offset, length).unwrap());
        assert_eq!(id.life, self.life, "a message of an earlier life, {kind:?}");
        Id { step: Step::Send as u8, ..id }
    }

    /// Requests of a thread: those under way are looked after, and if there are none, posted.
    fn look_after(&self, kind: Kind, side: usize, thread: usize, rng: &mut Rng, tally: &Tally) {
        let mut requests = self.ends[side].requests.lock().unwrap();
        if let Some(transaction) = requests.transactions[thread].take() {
            let Some(outcome) = requests.outcome(&transaction) else {
                requests.transactions[thread] = Some(transaction);
                return;
            };
            requests.settle(&transaction);
            drop(requests);
            let is_whole = kind == Kind::Rc && transaction.is_whole;
            if is_whole && outcome.iter().all(|status| status.is_success()) {
                self.check_memory(side, thread, &transaction);
                tally.count("checked transactions");
            }
            requests = self.ends[side].requests.lock().unwrap();
        }
        requests.sequences[thread] += 1;
        let sequence = requests.sequences[thread];
        let head = Id { life: self.life, thread: thread as u8, sequence, step: 0 };
        let steps = steps(kind, rng);
        let ids: Vec<Id> = steps.iter().map(|step| Id { step: *step as u8, ..head }).collect();
        ids.iter().for_each(|id| requests.expect(*id));
        let longest = if kind == Kind::Ud { 1000 } else { AREA as u64 - 1 };
        let length = rng.between(16, longest) as usize;
        let word = head.number() | 0x80;
        let transaction = Transaction { ids: ids.clone(), length, word, is_whole: true };
        requests.transactions[thread] = Some(transaction);
        drop(requests);
        let queued = self.post(side, thread, head, &steps, (length, word), tally);
        let mut requests = self.ends[side].requests.lock().unwrap();
        ids[queued..].iter().for_each(|id| requests.refused(*id));
        if let Some(transaction) = &mut requests.transactions[thread] {
            transaction.is_whole = queued == ids.len();
            transaction.ids.truncate(queued);
        }
    }

    /// Posts the steps of a transaction; how many were queued.
    fn post(
        &self,
        side: usize,
        thread: usize,
        head: Id,
        steps: &[Step],
        (length, word): (usize, u64),
        tally: &Tally,
    ) -> usize {
        let (own, peer) = (&self.ends[side], &self.ends[1 - side]);
        own.memory.write(SOURCES + thread * AREA, &message(head, length)).unwrap();
        let segments: Vec<Vec<Sge>> = steps
            .iter()
            .map(|step| own.segment_of(*step, thread, length).into_iter().collect())
            .collect();
        let bind = steps.contains(&Step::Bind).then(|| own.new_window(thread));
        let list: Vec<SendRequest<'_>> = steps
            .iter()
            .zip(&segments)
            .map(|(step, segments)| SendRequest {
                id: Id { step: *step as u8, ..head }.number(),
                operation: match (step, bind) {
                    (Step::Bind, Some(bind)) => SendOperation::BindWindow(bind),
                    (Step::Invalidate, Some(bind)) => SendOperation::LocalInvalidate(bind.key()),
                    _ => operation(own, peer, *step, (thread, head), (length, word)),
                },
                flags: SendFlags::SIGNALED,
                payload: Payload::Segments(segments),
            })
            .collect();
        let queued = match own.pair.post_sends(&list) {
            Ok(()) => steps.len(),
            Err((queued, PostError::WrongState(..))) if self.is_disturbed() => queued,
            Err((_, error)) => panic!("refused in peace: {error}"),
        };
        steps[..queued].iter().for_each(|step| tally.count(step.name()));
        queued
    }

    /// After a transaction that went well.
    fn check_memory(&self, side: usize, thread: usize, transaction: &Transaction) {
        let (own, peer) = (&self.ends[side], &self.ends[1 - side]);
        let head = transaction.ids[0];
        let expected = message(head, transaction.length);
        let bytes = |memory: &MemoryRegion, offset: usize| {
            memory.to_vec(offset + thread * AREA, transaction.length).unwrap()
        };
        assert!(bytes(&peer.memory, TARGETS) == expected, "{head:?}: the peer's memory is wrong");
        assert!(
            bytes(&own.memory, READ_BACK) == expected,
            "{head:?}: READ has brought other bytes"
        );
        let swapped = own.memory.load_u64(RESULTS + thread * 16 + 8).unwrap();
        assert_eq!(swapped, transaction.word, "{head:?}: what was there before the swap");
        let word = peer.memory.load_u64(WORDS + thread * 8).unwrap();
        assert_eq!(word, transaction.word + 1, "{head:?}: after the swap");
    }

    /// Between two lives, or at the end: what holds once nothing is under way.
    fn check_sums(&self, kind: Kind) {
        if kind != Kind::Rc {
            return;
        }
        for side in 0..2 {
            let requests = self.ends[side].requests.lock().unwrap();
            let counter = self.ends[1 - side].memory.load_u64(COUNTER).unwrap();
            let most = requests.added + requests.perhaps_added + requests.pending() as u64;
            let Requests { added, sent, arrived, .. } = *requests;
            assert!((added..=most).contains(&counter), "{added} to {most} additions: {counter}");
            assert!(arrived >= sent, "{sent} messages were sent and {arrived} have arrived");
            if !self.is_disturbed() {
                assert_eq!((counter, arrived), (added, sent), "each once");
            }
        }
    }
}

impl End {
    fn segment_of(&self, step: Step, thread: usize, length: usize) -> Option<Sge> {
        let source = || self.memory.segment(SOURCES + thread * AREA, length);
        match step {
            Step::Write | Step::WriteWithImmediate | Step::Send | Step::Datagram => Some(source()),
            Step::Read => Some(self.memory.segment(READ_BACK + thread * AREA, length)),
            Step::FetchAdd => Some(self.memory.segment(RESULTS + thread * 16, 8)),
            Step::CompareSwap => Some(self.memory.segment(RESULTS + thread * 16 + 8, 8)),
            Step::AtomicWrite | Step::Flush | Step::Bind | Step::Invalidate => None,
        }
    }
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Write => "WRITE",
            Self::WriteWithImmediate => "WRITE_WITH_IMMEDIATE",
            Self::Send => "SEND",
            Self::AtomicWrite => "ATOMIC_WRITE",
            Self::Flush => "FLUSH",
            Self::FetchAdd => "FETCH_ADD",
            Self::CompareSwap => "COMPARE_SWAP",
            Self::Read => "READ",
            Self::Bind => "BIND_WINDOW",
            Self::Invalidate => "LOCAL_INVALIDATE",
            Self::Datagram => "SEND of datagrams",
        }
    }
}

/// The steps of a transaction, rising: some that can be left out, and those that the check needs.
fn steps(kind: Kind, rng: &mut Rng) -> Vec<Step> {
    match kind {
        QueuePairKind::Rc => {
            let mut steps = vec![Step::Write];
            let may = [Step::WriteWithImmediate, Step::Send];
            steps.extend(may.into_iter().filter(|_| rng.chance(1, 2)));
            steps.push(Step::AtomicWrite);
            steps.extend([Step::Flush, Step::FetchAdd].into_iter().filter(|_| rng.chance(1, 2)));
            steps.extend([Step::CompareSwap, Step::Read]);
            if rng.chance(1, 4) {
                steps.extend([Step::Bind, Step::Invalidate]);
            }
            steps
        }
        QueuePairKind::Uc => vec![Step::Write, Step::Send],
        _ => vec![Step::Datagram],
    }
}

fn operation(
    own: &End,
    peer: &End,
    step: Step,
    (thread, head): (usize, Id),
    (length, word): (usize, u64),
) -> SendOperation {
    let target = peer.memory.remote(TARGETS + thread * AREA);
    let remote = peer.memory.remote(WORDS + thread * 8);
    match step {
        Step::Write => SendOperation::Write(target),
        Step::WriteWithImmediate => {
            let word = (thread as u32) << 24 | (head.sequence & 0xff_ffff);
            SendOperation::WriteWithImmediate(target, Immediate(word.to_be_bytes()))
        }
        Step::Send => SendOperation::Send,
        Step::AtomicWrite => SendOperation::AtomicWrite { remote, value: word.to_ne_bytes() },
        Step::Flush => SendOperation::Flush {
            remote: target,
            length: length as u32,
            placement: FlushPlacement::GlobalVisibility,
            selectivity: FlushSelectivity::Range,
        },
        Step::FetchAdd => SendOperation::FetchAdd { remote: peer.memory.remote(COUNTER), add: 1 },
        Step::CompareSwap => SendOperation::CompareSwap { remote, compare: word, swap: word + 1 },
        Step::Read => SendOperation::Read(target),
        Step::Bind | Step::Invalidate => unreachable!("they need a window"),
        Step::Datagram => {
            let handle = own.handle.as_ref().expect("datagrams have handles");
            let to = handle.datagram(peer.pair.number(), QKEY);
            SendOperation::SendTo { to, immediate: None }
        }
    }
}

impl Connection {
    /// A connection between two devices, ready to use.
    pub fn new(devices: &[Context; 2], kind: Kind, index: usize) -> Self {
        let domains = [0, 1].map(|side| devices[side].allocate_domain().unwrap());
        let ends = Self::make_ends(devices, &domains, kind, index);
        let ends = RwLock::new(Ends { ends, life: 0, disturbed: AtomicBool::new(false) });
        let connection =
            Self { kind, index, domains, devices: devices.clone(), ends, control: Mutex::new(()) };
        connection.connect(&connection.ends.read().unwrap().ends, 0);
        connection
    }

    fn make_ends(
        devices: &[Context; 2],
        domains: &[ProtectionDomain; 2],
        kind: Kind,
        index: usize,
    ) -> [End; 2] {
        let shares = kind == Kind::Rc && index % 8 >= 4;
        [0, 1]
            .map(|side| End::new(&devices[side], &domains[side], &devices[1 - side], kind, shares))
    }

    fn shares_receives(&self) -> bool {
        self.kind == Kind::Rc && self.index % 8 >= 4
    }

    /// Connects with PSNs of its own in each life, so that late packets of an earlier one fit none.
    fn connect(&self, ends: &[End; 2], life: u16) {
        let mut rng = Rng::new((self.index as u64) << 32 | u64::from(life));
        let psns = [0, 1].map(|_| Psn::new(rng.next_u32() & 0xff_ffff));
        let options =
            ConnectOptions { path_mtu: Some(PathMtu::Mtu1024), ..ConnectOptions::default() };
        for side in 0..2 {
            let (own, peer) = (&ends[side].pair, &ends[1 - side].pair);
            if self.kind == Kind::Ud {
                own.start_datagrams(QKEY, psns[side]).unwrap();
                continue;
            }
            let endpoint = peer.endpoint(0, psns[1 - side]).unwrap();
            own.connect(&endpoint, psns[side], &options).unwrap();
        }
    }

    /// A thread does something here.
    pub fn visit(&self, thread: usize, rng: &mut Rng, tally: &Tally) {
        let ends = self.ends.read().unwrap();
        let side = rng.below(2) as usize;
        ends.ends[1 - side].post_receives(4);
        for side in 0..2 {
            ends.poll(self.kind, side, tally);
        }
        ends.look_after(self.kind, side, thread, rng, tally);
        match rng.below(2000) {
            0..60 => {
                let status = ends.ends[side].pair.query().unwrap();
                assert_eq!(status.kind, self.kind);
                tally.count("queries");
            }
            60..80 if self.kind != Kind::Ud => self.change_access(&ends.ends[side], tally),
            80..100 => self.drain(&ends, side, tally),
            100..106 => self.end(ends, Ending::Error, tally),
            106..112 if !self.shares_receives() => self.end(ends, Ending::Reset, tally),
            112..116 => self.end(ends, Ending::Replacement, tally),
            _ => {}
        }
    }

    /// Sets the same access again, which is allowed from INIT on.
    fn change_access(&self, end: &End, tally: &Tally) {
        let access =
            QueuePairAttributes { access: Some(Access::ALL), ..QueuePairAttributes::default() };
        // In RESET, in error and while draining it may be refused.
        if end.pair.modify(&access).is_ok() {
            tally.count("access changes");
        }
    }

    /// Drains the send queue and lets it go on, while others post.
    fn drain(&self, ends: &Ends, side: usize, tally: &Tally) {
        let Ok(_control) = self.control.try_lock() else { return };
        if ends.is_disturbed() {
            return;
        }
        let end = &ends.ends[side];
        end.modify(QueuePairState::Sqd);
        let until = clock::now() + PATIENCE;
        while end.pair.query().unwrap().is_draining {
            assert!(clock::now() < until, "the send queue does not drain");
            ends.ends[1 - side].post_receives(4);
            for side in 0..2 {
                ends.poll(self.kind, side, tally);
            }
        }
        end.modify(QueuePairState::Rts);
        tally.count("drains");
    }

    /// Ends this life under fire, and begins another.
    fn end(&self, ends: RwLockReadGuard<'_, Ends>, ending: Ending, tally: &Tally) {
        let Ok(_control) = self.control.try_lock() else { return };
        ends.disturbed.store(true, Ordering::SeqCst);
        let state = match ending {
            Ending::Error => QueuePairState::Error,
            Ending::Reset | Ending::Replacement => QueuePairState::Reset,
        };
        if ending != Ending::Replacement {
            ends.ends.iter().for_each(|end| end.modify(state));
        }
        drop(ends);
        // Whoever was posting has finished when this is granted.
        let mut ends = self.ends.write().unwrap();
        if ending == Ending::Error {
            self.wait_until_nothing_is_under_way(&ends, tally);
        }
        // What was posted last may be flushed by another thread's turn just now; not after RESET.
        ends.ends.iter().for_each(|end| end.modify(QueuePairState::Reset));
        while (0..2).map(|side| ends.poll(self.kind, side, tally)).sum::<usize>() > 0 {}
        ends.check_sums(self.kind);
        self.begin_anew(&mut ends, ending, tally);
    }

    fn begin_anew(&self, ends: &mut Ends, ending: Ending, tally: &Tally) {
        ends.life += 1;
        if ending == Ending::Replacement {
            ends.ends = Self::make_ends(&self.devices, &self.domains, self.kind, self.index);
        }
        for end in &mut ends.ends {
            end.requests.get_mut().unwrap().begin_anew();
            end.memory.store_u64(COUNTER, 0).unwrap();
            if end.shared.is_none() {
                *end.free.get_mut().unwrap() = (0..SLOTS).collect();
            }
        }
        self.connect(&ends.ends, ends.life);
        ends.disturbed.store(false, Ordering::SeqCst);
        tally.count(match ending {
            Ending::Error => "errors",
            Ending::Reset => "resets under fire",
            Ending::Replacement => "replacements",
        });
    }

    fn wait_until_nothing_is_under_way(&self, ends: &Ends, tally: &Tally) {
        let until = clock::now() + PATIENCE;
        let pending = || {
            let count = |end: &End| end.requests.lock().unwrap().pending();
            ends.ends.iter().map(count).sum::<usize>()
        };
        while pending() > 0 {
            assert!(clock::now() < until, "{} requests do not end", pending());
            for side in 0..2 {
                ends.ends[side].post_receives(SLOTS);
                ends.poll(self.kind, side, tally);
            }
        }
    }

    /// At the end: all that is under way completes well, and everything adds up.
    pub fn finish(&self, tally: &Tally) {
        let ends = self.ends.read().unwrap();
        self.wait_until_nothing_is_under_way(&ends, tally);
        while (0..2).map(|side| ends.poll(self.kind, side, tally)).sum::<usize>() > 0 {}
        ends.check_sums(self.kind);
    }
}
