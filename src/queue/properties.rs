//! Laws of the queues for any sequence of calls: they answer as lists would, whatever wraps around in
//! them, and what was posted is read as it was.

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

use super::completion::Lost;
use super::ring::{WordRing, get, halves, pair, put};
use super::shared::Sharing;
use super::sync::Arc;
use super::*;
use crate::memory::DomainId;
use crate::wire::{Immediate, Lkey, QKey, Qpn, Rkey, Srqn};

fn remote() -> impl Strategy<Value = Remote> {
    (any::<u64>(), any::<u32>()).prop_map(|(address, key)| Remote { address, key: Rkey::new(key) })
}

fn immediate() -> impl Strategy<Value = Immediate> {
    any::<[u8; 4]>().prop_map(Immediate)
}

fn datagram() -> impl Strategy<Value = Datagram> {
    (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(address, number, qkey)| Datagram {
        address: AddressHandleId(address),
        queue_pair: Qpn::new(number),
        qkey: QKey::new(qkey),
    })
}

fn bind() -> impl Strategy<Value = WindowBind> {
    let rights =
        any::<u32>().prop_map(|bits| Access::from_bits(bits & 0x8000_037f).expect("known bits"));
    (any::<[u32; 3]>(), any::<[u64; 2]>(), any::<bool>(), any::<u8>(), rights).prop_map(
        |([key, incarnation, region], [address, length], second, portion, access)| WindowBind {
            window: WindowId::new(Rkey::new(key), incarnation),
            kind: if second { WindowKind::Type2B } else { WindowKind::Type1 },
            portion,
            region: Lkey::new(region),
            address,
            length,
            access,
        },
    )
}

fn flush() -> impl Strategy<Value = SendOperation> {
    let placement = (1u8..=3).prop_map(|bits| FlushPlacement::from_bits(bits).expect("known"));
    let selectivity = (0u8..2).prop_map(|code| FlushSelectivity::from_code(code).expect("known"));
    (remote(), any::<u32>(), placement, selectivity).prop_map(
        |(remote, length, placement, selectivity)| SendOperation::Flush {
            remote,
            length,
            placement,
            selectivity,
        },
    )
}

fn operation() -> impl Strategy<Value = SendOperation> {
    prop_oneof![
        Just(SendOperation::Send),
        immediate().prop_map(SendOperation::SendWithImmediate),
        any::<u32>().prop_map(|key| SendOperation::SendWithInvalidate(Rkey::new(key))),
        remote().prop_map(SendOperation::Write),
        (remote(), immediate()).prop_map(|(r, i)| SendOperation::WriteWithImmediate(r, i)),
        remote().prop_map(SendOperation::Read),
        (remote(), any::<[u64; 2]>()).prop_map(|(remote, [compare, swap])| {
            SendOperation::CompareSwap { remote, compare, swap }
        }),
        (remote(), any::<u64>()).prop_map(|(remote, add)| SendOperation::FetchAdd { remote, add }),
        (datagram(), proptest::option::of(immediate()))
            .prop_map(|(to, immediate)| SendOperation::SendTo { to, immediate }),
        (remote(), any::<[u8; 8]>())
            .prop_map(|(remote, value)| SendOperation::AtomicWrite { remote, value }),
        flush(),
        any::<u32>().prop_map(|key| SendOperation::LocalInvalidate(Rkey::new(key))),
        bind().prop_map(SendOperation::BindWindow),
    ]
}

fn flags() -> impl Strategy<Value = SendFlags> {
    any::<[bool; 3]>().prop_map(|[signaled, solicited, fence]| SendFlags {
        signaled,
        solicited,
        fence,
    })
}

fn segment() -> impl Strategy<Value = Sge> {
    let length = prop_oneof![4 => 0u32..100, 1 => any::<u32>(), 1 => Just(u32::MAX)];
    (any::<u64>(), length, any::<u32>()).prop_map(|(address, length, key)| Sge {
        address,
        length,
        key: Lkey::new(key),
    })
}

const MOST_SEGMENTS: usize = 5;
const MOST_INLINE: usize = 61;

#[derive(Clone, Debug)]
enum Data {
    Segments(Vec<Sge>),
    Inline(Vec<u8>),
}

impl Data {
    fn payload(&self) -> Payload<'_> {
        match self {
            Self::Segments(segments) => Payload::Segments(segments),
            Self::Inline(bytes) => Payload::Inline(bytes),
        }
    }
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        1 => Just(Data::Inline(Vec::new())),
        4 => proptest::collection::vec(segment(), 0..=MOST_SEGMENTS + 1).prop_map(Data::Segments),
        3 => proptest::collection::vec(any::<u8>(), 0..=MOST_INLINE + 1).prop_map(Data::Inline),
    ]
}

/// The length of a request that can be posted, or why it cannot.
fn judge(operation: &SendOperation, data: &Data) -> Result<u64, PostError> {
    let length = match data {
        Data::Inline(_) if operation.returns_data() => return Err(PostError::InlineTarget),
        Data::Inline(bytes) if bytes.len() > MOST_INLINE => {
            let (given, limit) = (bytes.len(), MOST_INLINE);
            return Err(PostError::InlineTooLong { given, limit });
        }
        Data::Segments(list) if list.len() > MOST_SEGMENTS => {
            let (given, limit) = (list.len(), MOST_SEGMENTS);
            return Err(PostError::TooManySegments { given, limit });
        }
        Data::Inline(bytes) => bytes.len() as u64,
        Data::Segments(list) => list.iter().map(|segment| u64::from(segment.length)).sum(),
    };
    match length {
        1.. if operation.is_self_contained() => Err(PostError::NoLocalData(length)),
        length if length > 1 << 31 => Err(PostError::MessageTooLong(length)),
        _ => Ok(length),
    }
}

proptest! {
    #[test]
    fn a_send_request_is_read_as_it_was_posted(
        id in any::<u64>(),
        operation in operation(),
        flags in flags(),
        data in data(),
        shared in any::<u32>(),
        // What the entry held before.
        (other, before) in (operation(), data()),
    ) {
        let queue = SendQueue::new(1, MOST_SEGMENTS, MOST_INLINE);
        let shared = Srqn::new(shared);
        let last = SendRequest { id: 1, operation: other, flags, payload: before.payload() };
        let _ = queue.post(&[last], shared, || Ok(()));
        let position = queue.head();
        queue.release(position, false);
        let request = SendRequest { id, operation, flags, payload: data.payload() };
        let posted = queue.post(&[request], shared, || Ok(()));
        let length = judge(&operation, &data);
        prop_assert_eq!(posted.1, length.map(|_| ()));
        prop_assert_eq!(queue.head().wrapping_sub(position) as usize, posted.0);
        let Ok(length) = length else { return Ok(()) };
        let head = SendHead { id, operation, flags, length: length as u32, shared };
        prop_assert_eq!(queue.read(position), head);
        match (queue.data(position), &data) {
            (SendData::Segments(found), Data::Segments(segments)) => {
                prop_assert_eq!(&found.iter().collect::<Vec<_>>(), segments);
            }
            (SendData::Inline(words), Data::Inline(bytes)) => {
                for offset in (0..bytes.len()).step_by(8) {
                    for end in offset..=bytes.len() {
                        let mut found = vec![0xee; end - offset];
                        SendData::copy_inline(words, offset, &mut found);
                        prop_assert_eq!(&found[..], &bytes[offset..end]);
                    }
                }
            }
            _ => prop_assert!(false, "the other kind of data"),
        }
    }

    #[test]
    fn a_receive_request_is_read_as_it_was_posted(
        id in any::<u64>(),
        segments in proptest::collection::vec(segment(), 0..=MOST_SEGMENTS + 1),
    ) {
        let queue = ReceiveQueue::new(2, MOST_SEGMENTS);
        let (queued, outcome) = queue.post(&[ReceiveRequest { id, segments: &segments }]);
        if segments.len() > MOST_SEGMENTS {
            let (given, limit) = (segments.len(), MOST_SEGMENTS);
            prop_assert_eq!(outcome, Err(PostError::TooManySegments { given, limit }));
            prop_assert_eq!((queued, queue.first()), (0, None));
            return Ok(());
        }
        prop_assert_eq!((queued, outcome), (1, Ok(())));
        let head = queue.first().expect("it was posted");
        let sum: u64 = segments.iter().map(|segment| u64::from(segment.length)).sum();
        prop_assert_eq!((head.id, u64::from(head.length)), (id, sum.min(u32::MAX.into())));
        prop_assert_eq!(queue.first_segments().iter().collect::<Vec<_>>(), segments);
    }

    #[test]
    fn a_completion_is_polled_as_it_was_pushed(completions in proptest::collection::vec(
        (completion(), any::<bool>()), 1..20,
    )) {
        let queue = CompletionQueue::new(32);
        for (completion, is_shared) in &completions {
            let number = Srqn::new(completion.id as u32 | 1);
            let origin = if *is_shared { Origin::Shared(number) } else { Origin::Pair };
            prop_assert!(queue.push(completion, origin).is_ok());
        }
        let mut found = Vec::new();
        prop_assert_eq!(queue.poll(99, |_, completion| found.push(completion)), Ok(completions.len()));
        let expected: Vec<Completion> = completions.iter().map(|(one, _)| *one).collect();
        prop_assert_eq!(found, expected);
    }
}

fn completion() -> impl Strategy<Value = Completion> {
    let attachment = prop_oneof![
        Just(Attachment::None),
        immediate().prop_map(Attachment::Immediate),
        any::<u32>().prop_map(|key| Attachment::Invalidated(Rkey::new(key))),
    ];
    let status = (0u8..24).prop_map(CompletionStatus::from_number);
    let kind = (0u8..11).prop_map(CompletionKind::from_number);
    (any::<u64>(), status, kind, attachment, any::<[u32; 3]>(), any::<bool>()).prop_map(
        |(id, status, kind, attachment, [length, queue_pair, source], solicited)| Completion {
            id,
            status,
            kind,
            length,
            attachment,
            queue_pair: Qpn::new(queue_pair),
            source: Qpn::new(source),
            solicited,
        },
    )
}

#[test]
fn every_number_of_a_status_and_a_kind_comes_back() {
    for number in 0..=u8::MAX {
        let status = CompletionStatus::from_number(number);
        assert!(status as u8 == number || status == CompletionStatus::General);
        let state = QueuePairState::from_number(number);
        assert!(state as u8 == number || state == QueuePairState::Error);
    }
    let kinds: BTreeSet<u8> = (0..11).map(|n| CompletionKind::from_number(n) as u8).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), (0..11).collect::<Vec<_>>());
}

proptest! {
    /// Positions count up for ever: a ring may stand anywhere when it is used.
    #[test]
    fn a_ring_is_a_list_wherever_it_stands(
        start in prop_oneof![Just(0), (u32::MAX - 20)..=u32::MAX, any::<u32>()],
        capacity in 0u32..10,
        stride in 1usize..4,
        steps in proptest::collection::vec((0u8..8, 1u32..4), 1..100),
    ) {
        let ring = WordRing::new(capacity, stride);
        ring.publish(start);
        ring.release(start);
        prop_assert!(ring.capacity() >= capacity.max(1) && ring.capacity().is_power_of_two());
        let mut list = VecDeque::new();
        let mut produced = 0u64;
        for (step, count) in steps {
            match step {
                0..4 => for _ in 0..count {
                    let is_free = (list.len() as u32) < ring.capacity();
                    prop_assert_eq!(ring.has_room(), is_free);
                    if is_free {
                        let entry = ring.entry(ring.head());
                        (0..stride).for_each(|word| put(entry, word, produced + word as u64));
                        ring.publish(ring.head().wrapping_add(1));
                        list.push_back(produced);
                        produced += 10;
                    }
                },
                4..7 => {
                    let taken = count.min(ring.len());
                    list.drain(..taken as usize);
                    ring.release(ring.tail().wrapping_add(taken));
                }
                _ => {
                    ring.clear();
                    list.clear();
                }
            }
            prop_assert_eq!(ring.len() as usize, list.len());
            for (index, first) in list.iter().enumerate() {
                let entry = ring.entry(ring.tail().wrapping_add(index as u32));
                let words: Vec<u64> = (0..stride).map(|word| get(entry, word)).collect();
                prop_assert_eq!(words, (*first..first + stride as u64).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn halves_of_a_word_come_back(high in any::<u32>(), low in any::<u32>(), word in any::<u64>()) {
        prop_assert_eq!(halves(pair(high, low)), (high, low));
        let (high, low) = halves(word);
        prop_assert_eq!(pair(high, low), word);
    }

    #[test]
    fn bells_are_a_set(
        count in 1usize..5000,
        steps in proptest::collection::vec(proptest::option::weighted(0.9, any::<usize>()), 1..60),
    ) {
        let bells = Doorbells::new(count);
        let mut set = BTreeSet::new();
        for step in steps {
            match step {
                Some(slot) => {
                    bells.ring(slot % count);
                    set.insert(slot % count);
                }
                None => {
                    let mut rung = Vec::new();
                    bells.collect(|slot| rung.push(slot));
                    prop_assert_eq!(rung, std::mem::take(&mut set).into_iter().collect::<Vec<_>>());
                }
            }
            prop_assert_eq!(bells.any(), !set.is_empty());
        }
    }
}

/// What happens to the queues of [`Lists`].
#[derive(Clone, Debug)]
enum Step {
    PostSends(u8),
    PostReceives(u8),
    /// The engine carries out the oldest request, with or without completion.
    Send(bool),
    /// A message takes the oldest receive, for one of the queue pairs.
    Receive(u8, bool),
    Poll(u8),
    Arm(bool),
    /// RESET of the queue pair with the send queue.
    ClearSends,
    ClearReceives,
    /// A queue pair ends.
    Leave(u8),
    SetLimit(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..5).prop_map(Step::PostSends),
        6 => (0u8..5).prop_map(Step::PostReceives),
        8 => any::<bool>().prop_map(Step::Send),
        8 => (0u8..2, any::<bool>()).prop_map(|(pair, solicited)| Step::Receive(pair, solicited)),
        6 => (0u8..5).prop_map(Step::Poll),
        2 => any::<bool>().prop_map(Step::Arm),
        1 => Just(Step::ClearSends),
        1 => Just(Step::ClearReceives),
        1 => (0u8..2).prop_map(Step::Leave),
        1 => (0u8..9).prop_map(Step::SetLimit),
    ]
}

const NUMBERS: [u32; 2] = [0x11, 0x12];

/// A send queue, a receive queue that two queue pairs share, and the completion queue of all; and
/// what they hold, as lists.
struct Lists {
    send: SendQueue,
    receive: ReceiveQueue,
    completions: CompletionQueue,
    sends: VecDeque<u64>,
    receives: VecDeque<u64>,
    /// Identifier, queue pair, whether it is a receive's, and whether polling it frees an entry.
    waiting: VecDeque<(u64, u32, bool, bool)>,
    present: [bool; 2],
    overrun: bool,
    armed: u8,
    limit: u32,
    next_id: u64,
}

impl Lists {
    fn new(capacities: [u32; 3]) -> Self {
        let send = SendQueue::new(capacities[0], 1, 0);
        let sharing = Sharing { domain: DomainId(1), xrc: None };
        let receive = ReceiveQueue::shared(capacities[1], 1, sharing);
        let completions = CompletionQueue::new(capacities[2]);
        for (index, number) in NUMBERS.into_iter().enumerate() {
            // Only the first has a send queue.
            let sends = (index == 0).then(|| Arc::clone(send.occupied()));
            completions.join(Qpn::new(number), sends, Some(Arc::clone(receive.occupied())));
        }
        Self {
            send,
            receive,
            completions,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            waiting: VecDeque::new(),
            present: [true; 2],
            overrun: false,
            armed: 0,
            limit: 0,
            next_id: 0,
        }
    }

    /// Entries of one of the two queues that are taken up.
    fn occupied(&self, receives: bool) -> usize {
        let posted = if receives { self.receives.len() } else { self.sends.len() };
        let waits =
            |(_, _, receive, counts): &&(u64, u32, bool, bool)| *receive == receives && *counts;
        posted + self.waiting.iter().filter(waits).count()
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// How many of `count` requests fit, and what is said of the next.
    fn expected(&self, count: u8, receives: bool) -> (usize, Result<(), PostError>) {
        let capacity = if receives { self.receive.capacity() } else { self.send.capacity() };
        let free = capacity as usize - self.occupied(receives);
        match usize::from(count) {
            count if count <= free => (count, Ok(())),
            _ => (free, Err(PostError::QueueFull { capacity })),
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::PostSends(count) => self.post_sends(count),
            Step::PostReceives(count) => self.post_receives(count),
            Step::Send(completes) => self.carry_out(completes),
            Step::Receive(pair, solicited) => self.fill(usize::from(pair), solicited),
            Step::Poll(limit) => self.poll(limit.into()),
            Step::Arm(solicited_only) => {
                self.completions.arm(solicited_only);
                self.armed = self.armed.max(if solicited_only { 1 } else { 2 });
            }
            Step::ClearSends => {
                self.send.clear();
                self.sends.clear();
            }
            Step::ClearReceives => {
                self.receive.clear();
                self.receives.clear();
            }
            Step::Leave(pair) => self.leave(usize::from(pair)),
            Step::SetLimit(limit) => {
                self.limit = limit.into();
                self.receive.set_limit(self.limit);
            }
        }
    }

    fn post_sends(&mut self, count: u8) {
        let expected = self.expected(count, false);
        let ids: Vec<u64> = (0..count).map(|_| self.id()).collect();
        let request = |id: &u64| SendRequest {
            id: *id,
            operation: SendOperation::Send,
            flags: SendFlags::NONE,
            payload: Payload::EMPTY,
        };
        let requests: Vec<SendRequest<'_>> = ids.iter().map(request).collect();
        let found = self.send.post(&requests, Srqn::default(), || Ok(()));
        assert_eq!(found, expected);
        self.sends.extend(&ids[..found.0]);
    }

    fn post_receives(&mut self, count: u8) {
        let expected = self.expected(count, true);
        let ids: Vec<u64> = (0..count).map(|_| self.id()).collect();
        let requests: Vec<ReceiveRequest<'_>> =
            ids.iter().map(|id| ReceiveRequest { id: *id, segments: &[] }).collect();
        let found = self.receive.post(&requests);
        assert_eq!(found, expected);
        self.receives.extend(&ids[..found.0]);
    }

    fn carry_out(&mut self, completes: bool) {
        let Some(id) = self.sends.pop_front() else { return };
        let position = self.send.tail();
        assert_eq!(self.send.read(position).id, id);
        self.send.release(position.wrapping_add(1), completes);
        if completes {
            let counts = self.present[0];
            self.push(id, NUMBERS[0], CompletionKind::Send, false, counts);
            if !counts {
                // Whoever has ended posts no more: its queue ends with it.
                self.send.occupied().remove();
            }
        }
    }

    fn fill(&mut self, pair: usize, solicited: bool) {
        if !self.present[pair] {
            return;
        }
        assert_eq!(self.receive.first().map(|head| head.id), self.receives.front().copied());
        let Some(id) = self.receives.pop_front() else { return };
        self.receive.release_first();
        let reached = (self.receives.len() as u32) < self.limit;
        assert_eq!(self.receive.take_limit_event(), reached);
        assert!(!self.receive.take_limit_event(), "once for each setting");
        if reached {
            self.limit = 0;
        }
        self.push(id, NUMBERS[pair], CompletionKind::Receive, solicited, true);
    }

    fn push(&mut self, id: u64, number: u32, kind: CompletionKind, solicited: bool, counts: bool) {
        let completion =
            Completion { id, kind, queue_pair: Qpn::new(number), solicited, ..Default::default() };
        let is_full = self.waiting.len() as u32 == self.completions.capacity();
        let found = self.completions.push(&completion, Origin::Pair);
        if self.overrun || is_full {
            assert_eq!(found.err(), Some(Lost { first: !self.overrun }));
            self.overrun = true;
            // The completion is lost, and with it the entry until its queue pair is reset.
            self.lose(kind.is_receive(), counts);
            return;
        }
        let notifies = self.armed == 2 || (self.armed == 1 && solicited);
        assert_eq!(found.map(|told| (told.notify, told.wake)), Ok((notifies, false)));
        if notifies {
            self.armed = 0;
        }
        self.waiting.push_back((id, number, kind.is_receive(), counts));
    }

    /// In this model nothing stays taken up by what was lost.
    fn lose(&self, receives: bool, counts: bool) {
        let queue = if receives { self.receive.occupied() } else { self.send.occupied() };
        if counts {
            queue.remove();
        }
    }

    fn poll(&mut self, limit: usize) {
        let count = limit.min(self.waiting.len());
        let expected: Vec<(u64, u32, bool)> =
            self.waiting.drain(..count).map(|(id, pair, receive, _)| (id, pair, receive)).collect();
        let mut found = Vec::new();
        let outcome = self.completions.poll(limit, |index, completion| {
            assert_eq!(index, found.len());
            let receive = completion.kind.is_receive();
            found.push((completion.id, completion.queue_pair.value(), receive));
        });
        let capacity = self.completions.capacity();
        let lost = self.overrun && count == 0;
        assert_eq!(outcome, if lost { Err(Overrun { capacity }) } else { Ok(count) });
        assert_eq!(found, expected);
    }

    /// Receives of the shared queue are free at once; a send queue ends with its queue pair.
    fn leave(&mut self, pair: usize) {
        self.completions.leave(Qpn::new(NUMBERS[pair]));
        self.present[pair] = false;
        for (_, number, receive, counts) in &mut self.waiting {
            *counts &= *number != NUMBERS[pair] || !*receive;
            // Nobody counts sends of a queue pair that has ended; here its queue is looked at still.
            if *number == NUMBERS[pair] && !*receive && std::mem::take(counts) {
                self.send.occupied().remove();
            }
        }
    }

    fn compare(&self) {
        assert_eq!(self.send.occupied().count() as usize, self.occupied(false));
        assert_eq!(self.receive.occupied().count() as usize, self.occupied(true));
        assert_eq!(self.receive.posted() as usize, self.receives.len());
        assert_eq!(self.completions.waiting() as usize, self.waiting.len());
        assert_eq!(self.receive.limit(), self.limit);
        let entries = self.send.head().wrapping_sub(self.send.tail());
        let ids = (0..entries).map(|index| self.send.read(self.send.tail().wrapping_add(index)).id);
        assert!(ids.eq(self.sends.iter().copied()));
    }
}

proptest! {
    #[test]
    fn work_queues_and_their_completion_queue_are_lists(
        capacities in [1u32..9, 1u32..9, 1u32..20],
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut lists = Lists::new(capacities);
        for step in &steps {
            lists.take(step);
            lists.compare();
        }
    }
}
