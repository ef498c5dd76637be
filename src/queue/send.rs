//! The send queue: posted by any thread of the application, read by the engine.

use super::flush::{FlushPlacement, FlushSelectivity};
use super::occupied::Occupied;
use super::request::{
    AddressHandleId, Datagram, MAX_MESSAGE, Payload, PostError, Remote, SendFlags, SendOperation,
    SendRequest, total_length,
};
use super::ring::{WordRing, get, halves, pair, put};
use super::sync::{Arc, AtomicU64, Mutex, lock};
use crate::memory::{Access, Sge, WindowBind, WindowId, WindowKind};
use crate::wire::{Immediate, Lkey, QKey, Qpn, Rkey, Srqn};

// An entry: identifier, kind and counts, two keys, address, two operands, the peer's shared receive
// queue, then segments or bytes.
const ID: usize = 0;
const SHAPE: usize = 1;
const KEYS: usize = 2;
const ADDRESS: usize = 3;
const OPERAND: usize = 4;
const COMPARE: usize = 5;
const SHARED: usize = 6;
const HEAD_WORDS: usize = 7;
const SEGMENT_WORDS: usize = 2;

const SIGNALED: u32 = 1 << 8;
const SOLICITED: u32 = 1 << 9;
const FENCE: u32 = 1 << 10;
const INLINE: u32 = 1 << 11;
const COUNT_SHIFT: u32 = 16;

/// Code of a bind request.
const BIND_WINDOW: u32 = 16;
/// In a bind request's rights: the window is of type 2.
const TYPE_2: u64 = 1 << 32;
/// In a bind request's rights: from this bit on, which of the windows with its number is meant.
const INCARNATION_SHIFT: u32 = 33;

/// A send queue of fixed capacity.
pub struct SendQueue {
    ring: WordRing,
    max_segments: usize,
    max_inline: usize,
    posting: Mutex<()>,
    occupied: Arc<Occupied>,
}

/// A posted request as the engine reads it; its segments stay in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendHead {
    pub(crate) id: u64,
    pub(crate) operation: SendOperation,
    pub(crate) flags: SendFlags,
    /// Bytes of local data.
    pub(crate) length: u32,
    /// The peer's shared receive queue (XRC); 0 elsewhere.
    pub(crate) shared: Srqn,
}

impl SendQueue {
    pub(crate) fn new(capacity: u32, max_segments: usize, max_inline: usize) -> Self {
        let data = (max_segments * SEGMENT_WORDS).max(max_inline.div_ceil(8));
        Self {
            ring: WordRing::new(capacity, HEAD_WORDS + data),
            max_segments,
            max_inline,
            posting: Mutex::new(()),
            occupied: Occupied::new(),
        }
    }

    /// Entries in all.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// The most segments in a request.
    pub fn max_segments(&self) -> usize {
        self.max_segments
    }

    /// The most inline bytes in a request.
    pub fn max_inline(&self) -> usize {
        self.max_inline
    }

    /// Queues requests, which name the peer's queue `shared` (XRC), in order until one is refused.
    /// Returns how many were queued, and why the next one was not. `allowed` is asked where
    /// [`Self::clear`] cannot come in between.
    pub(crate) fn post(
        &self,
        requests: &[SendRequest<'_>],
        shared: Srqn,
        allowed: impl FnOnce() -> Result<(), PostError>,
    ) -> (usize, Result<(), PostError>) {
        let _guard = lock(&self.posting);
        if let Err(error) = allowed() {
            return (0, Err(error));
        }
        for (count, request) in requests.iter().enumerate() {
            if let Err(error) = self.post_one(request, shared) {
                return (count, Err(error));
            }
        }
        (requests.len(), Ok(()))
    }

    fn post_one(&self, request: &SendRequest<'_>, shared: Srqn) -> Result<(), PostError> {
        let length = self.check(request)?;
        if !self.has_room() {
            return Err(PostError::QueueFull { capacity: self.capacity() });
        }
        let head = self.ring.head();
        let entry = self.ring.entry(head);
        write_operation(entry, &request.operation);
        let (count, inline) = write_payload(entry, request.payload);
        put(entry, ID, request.id);
        put(entry, SHARED, u64::from(shared.value()));
        let shape = operation_code(&request.operation)
            | flag(request.flags.signaled, SIGNALED)
            | flag(request.flags.solicited, SOLICITED)
            | flag(request.flags.fence, FENCE)
            | flag(inline, INLINE)
            | (count << COUNT_SHIFT);
        put(entry, SHAPE, pair(length, shape));
        self.occupied.add();
        self.ring.publish(head.wrapping_add(1));
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.occupied.count() < self.capacity()
    }

    /// Requests that are posted, and completions of this queue that wait to be polled.
    pub(crate) fn occupied(&self) -> &Arc<Occupied> {
        &self.occupied
    }

    fn check(&self, request: &SendRequest<'_>) -> Result<u32, PostError> {
        let length = match request.payload {
            Payload::Inline(_) if request.operation.returns_data() => {
                return Err(PostError::InlineTarget);
            }
            Payload::Inline(bytes) if bytes.len() > self.max_inline => {
                let (given, limit) = (bytes.len(), self.max_inline);
                return Err(PostError::InlineTooLong { given, limit });
            }
            Payload::Inline(bytes) => bytes.len() as u64,
            Payload::Segments(segments) if segments.len() > self.max_segments => {
                let (given, limit) = (segments.len(), self.max_segments);
                return Err(PostError::TooManySegments { given, limit });
            }
            Payload::Segments(segments) => total_length(segments),
        };
        if length > 0 && request.operation.is_self_contained() {
            return Err(PostError::NoLocalData(length));
        }
        u32::try_from(length)
            .ok()
            .filter(|_| length <= MAX_MESSAGE)
            .ok_or(PostError::MessageTooLong(length))
    }

    /// Position after the last posted entry.
    pub(crate) fn head(&self) -> u32 {
        self.ring.head()
    }

    /// Position of the oldest entry not yet completed.
    pub(crate) fn tail(&self) -> u32 {
        self.ring.tail()
    }

    /// The entry at `position`, which lies between tail and head.
    pub(crate) fn read(&self, position: u32) -> SendHead {
        let entry = self.ring.entry(position);
        let (length, shape) = halves(get(entry, SHAPE));
        SendHead {
            id: get(entry, ID),
            operation: read_operation(entry, shape & 0xff),
            flags: SendFlags {
                signaled: shape & SIGNALED != 0,
                solicited: shape & SOLICITED != 0,
                fence: shape & FENCE != 0,
            },
            length,
            shared: Srqn::new(get(entry, SHARED) as u32),
        }
    }

    /// The data of the entry at `position`.
    pub(crate) fn data(&self, position: u32) -> SendData<'_> {
        let entry = self.ring.entry(position);
        let shape = halves(get(entry, SHAPE)).1;
        let words = &entry[HEAD_WORDS..];
        if shape & INLINE != 0 {
            SendData::Inline(words)
        } else {
            SendData::Segments(SegmentList::new(words, (shape >> COUNT_SHIFT) as usize))
        }
    }

    /// Frees all entries before `position`; the last of them stays taken until its completion has
    /// been polled, if it gives one.
    pub(crate) fn release(&self, position: u32, completes: bool) {
        let entries = position.wrapping_sub(self.ring.tail());
        self.ring.release(position);
        self.occupied.remove_all(entries.saturating_sub(u32::from(completes)));
    }

    /// Forgets all entries. Whoever posts meanwhile comes before it, or is refused if its `allowed`
    /// says so by then.
    pub(crate) fn clear(&self) {
        let _guard = lock(&self.posting);
        let entries = self.ring.len();
        self.ring.clear();
        self.occupied.remove_all(entries);
    }
}

/// Local data of a posted request.
pub(crate) enum SendData<'a> {
    Inline(&'a [AtomicU64]),
    Segments(SegmentList<'a>),
}

impl SendData<'_> {
    /// Copies inline bytes from `offset` on into `target`. Packets begin at multiples of the path
    /// MTU, so `offset` is one of 8.
    pub(crate) fn copy_inline(words: &[AtomicU64], offset: usize, target: &mut [u8]) {
        assert!(offset.is_multiple_of(8), "a packet's payload begins at a word");
        for (chunk, word) in target.chunks_mut(8).zip(offset / 8..) {
            chunk.copy_from_slice(&get(words, word).to_le_bytes()[..chunk.len()]);
        }
    }
}

/// The segments of a posted request, still in the queue.
#[derive(Clone, Copy)]
pub(crate) struct SegmentList<'a> {
    words: &'a [AtomicU64],
    count: usize,
}

impl<'a> SegmentList<'a> {
    pub(crate) fn new(words: &'a [AtomicU64], count: usize) -> Self {
        Self { words, count }
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Sge> + Clone + use<'a> {
        (0..self.count).map(move |index| {
            let word = index * SEGMENT_WORDS;
            let (length, key) = halves(get(self.words, word + 1));
            Sge { address: get(self.words, word), length, key: Lkey::new(key) }
        })
    }
}

/// Writes segments into an entry's words from `start` on.
pub(crate) fn write_segments(entry: &[AtomicU64], start: usize, segments: &[Sge]) {
    for (index, segment) in segments.iter().enumerate() {
        let word = start + index * SEGMENT_WORDS;
        put(entry, word, segment.address);
        put(entry, word + 1, pair(segment.length, segment.key.value()));
    }
}

fn write_payload(entry: &[AtomicU64], payload: Payload<'_>) -> (u32, bool) {
    match payload {
        Payload::Segments(segments) => {
            write_segments(entry, HEAD_WORDS, segments);
            (segments.len() as u32, false)
        }
        Payload::Inline(bytes) => {
            for (index, chunk) in bytes.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                put(entry, HEAD_WORDS + index, u64::from_le_bytes(word));
            }
            (0, true)
        }
    }
}

const fn flag(set: bool, bit: u32) -> u32 {
    if set { bit } else { 0 }
}

const fn operation_code(operation: &SendOperation) -> u32 {
    match operation {
        SendOperation::Send => 0,
        SendOperation::SendWithImmediate(_) => 1,
        SendOperation::SendWithInvalidate(_) => 2,
        SendOperation::Write(_) => 3,
        SendOperation::WriteWithImmediate(..) => 4,
        SendOperation::Read(_) => 5,
        SendOperation::CompareSwap { .. } => 6,
        SendOperation::FetchAdd { .. } => 7,
        SendOperation::LocalInvalidate(_) => 8,
        SendOperation::SendTo { immediate: None, .. } => 9,
        SendOperation::SendTo { immediate: Some(_), .. } => 10,
        SendOperation::AtomicWrite { .. } => 11,
        SendOperation::Flush { .. } => 12,
        SendOperation::BindWindow(_) => BIND_WINDOW,
    }
}

fn write_operation(entry: &[AtomicU64], operation: &SendOperation) {
    let (remote, extra) = match *operation {
        SendOperation::Send => (None, 0),
        SendOperation::SendWithImmediate(immediate) => (None, u32::from_le_bytes(immediate.0)),
        SendOperation::SendWithInvalidate(key) | SendOperation::LocalInvalidate(key) => {
            (None, key.value())
        }
        SendOperation::SendTo { to, immediate } => {
            put(entry, OPERAND, pair(to.address.0, to.queue_pair.value()));
            put(entry, COMPARE, u64::from(to.qkey.value()));
            (None, immediate.map_or(0, |immediate| u32::from_le_bytes(immediate.0)))
        }
        SendOperation::Write(remote) | SendOperation::Read(remote) => (Some(remote), 0),
        SendOperation::WriteWithImmediate(remote, immediate) => {
            (Some(remote), u32::from_le_bytes(immediate.0))
        }
        SendOperation::CompareSwap { remote, compare, swap } => {
            put(entry, OPERAND, swap);
            put(entry, COMPARE, compare);
            (Some(remote), 0)
        }
        SendOperation::FetchAdd { remote, add } => {
            put(entry, OPERAND, add);
            (Some(remote), 0)
        }
        SendOperation::AtomicWrite { remote, value } => {
            put(entry, OPERAND, u64::from_le_bytes(value));
            (Some(remote), 0)
        }
        SendOperation::Flush { remote, length, placement, selectivity } => {
            let how = u32::from(placement.bits()) | u32::from(selectivity.code()) << 8;
            put(entry, OPERAND, pair(length, how));
            (Some(remote), 0)
        }
        SendOperation::BindWindow(bind) => return write_bind(entry, &bind),
    };
    let key = remote.map_or(0, |remote| remote.key.value());
    put(entry, KEYS, pair(extra, key));
    put(entry, ADDRESS, remote.map_or(0, |remote| remote.address));
}

fn read_operation(entry: &[AtomicU64], code: u32) -> SendOperation {
    let (extra, key) = halves(get(entry, KEYS));
    let remote = Remote { address: get(entry, ADDRESS), key: Rkey::new(key) };
    let immediate = Immediate(extra.to_le_bytes());
    match code {
        0 => SendOperation::Send,
        1 => SendOperation::SendWithImmediate(immediate),
        2 => SendOperation::SendWithInvalidate(Rkey::new(extra)),
        3 => SendOperation::Write(remote),
        4 => SendOperation::WriteWithImmediate(remote, immediate),
        5 => SendOperation::Read(remote),
        6 => SendOperation::CompareSwap {
            remote,
            compare: get(entry, COMPARE),
            swap: get(entry, OPERAND),
        },
        7 => SendOperation::FetchAdd { remote, add: get(entry, OPERAND) },
        9 => SendOperation::SendTo { to: read_datagram(entry), immediate: None },
        10 => SendOperation::SendTo { to: read_datagram(entry), immediate: Some(immediate) },
        11 => SendOperation::AtomicWrite { remote, value: get(entry, OPERAND).to_le_bytes() },
        12 => read_flush(entry, remote),
        BIND_WINDOW => SendOperation::BindWindow(read_bind(entry)),
        _ => SendOperation::LocalInvalidate(Rkey::new(extra)),
    }
}

fn read_flush(entry: &[AtomicU64], remote: Remote) -> SendOperation {
    let (length, how) = halves(get(entry, OPERAND));
    let placement = FlushPlacement::from_bits(how as u8);
    let selectivity = FlushSelectivity::from_code((how >> 8) as u8);
    SendOperation::Flush {
        remote,
        length,
        // Only what was written comes back.
        placement: placement.unwrap_or(FlushPlacement::GlobalVisibility),
        selectivity: selectivity.unwrap_or(FlushSelectivity::Range),
    }
}

fn write_bind(entry: &[AtomicU64], bind: &WindowBind) {
    let kind = if bind.kind == WindowKind::Type2B { TYPE_2 } else { 0 };
    put(entry, KEYS, pair(bind.key().value(), bind.region.value()));
    put(entry, ADDRESS, bind.address);
    put(entry, OPERAND, bind.length);
    let incarnation = u64::from(bind.window.incarnation()) << INCARNATION_SHIFT;
    put(entry, COMPARE, incarnation | kind | u64::from(bind.access.bits()));
}

fn read_bind(entry: &[AtomicU64]) -> WindowBind {
    let (key, region) = halves(get(entry, KEYS));
    let rights = get(entry, COMPARE);
    let kind = if rights & TYPE_2 != 0 { WindowKind::Type2B } else { WindowKind::Type1 };
    WindowBind {
        window: WindowId::new(Rkey::new(key), (rights >> INCARNATION_SHIFT) as u32),
        kind,
        portion: key as u8,
        region: Lkey::new(region),
        address: get(entry, ADDRESS),
        length: get(entry, OPERAND),
        // They were rights when they were written.
        access: Access::from_bits(rights as u32).unwrap_or_default(),
    }
}

fn read_datagram(entry: &[AtomicU64]) -> Datagram {
    let (address, queue_pair) = halves(get(entry, OPERAND));
    Datagram {
        address: AddressHandleId(address),
        queue_pair: Qpn::new(queue_pair),
        qkey: QKey::new(get(entry, COMPARE) as u32),
    }
}
