//! The receive queue: posted by any thread of the application, consumed by the engine.

use super::occupied::Occupied;
use super::request::{PostError, ReceiveRequest, total_length};
use super::ring::{WordRing, get, halves, pair, put};
use super::send::{SegmentList, write_segments};
use super::shared::{Sharing, XrcDomainId, XrcPart};
use super::sync::{Arc, AtomicU32, Mutex, Ordering, lock};
use super::{CompletionQueue, Origin};
use crate::memory::DomainId;
use crate::wire::Srqn;

const ID: usize = 0;
const SHAPE: usize = 1;
const HEAD_WORDS: usize = 2;
const SEGMENT_WORDS: usize = 2;

/// A receive queue of fixed capacity, of one queue pair or shared by several.
pub struct ReceiveQueue {
    ring: WordRing,
    max_segments: usize,
    posting: Mutex<()>,
    /// Below so many posted receives the application wants to know, once; 0 is never.
    limit: AtomicU32,
    occupied: Arc<Occupied>,
    /// What a shared queue has beside that.
    sharing: Option<Sharing>,
}

/// A posted receive as the engine reads it; its segments stay in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveHead {
    pub(crate) id: u64,
    /// Bytes of all segments; saturates at `u32::MAX`, which no message reaches.
    pub(crate) length: u32,
}

impl ReceiveQueue {
    /// The queue of one queue pair.
    pub(crate) fn new(capacity: u32, max_segments: usize) -> Self {
        Self::build(capacity, max_segments, None)
    }

    /// A queue that queue pairs share.
    pub(crate) fn shared(capacity: u32, max_segments: usize, sharing: Sharing) -> Self {
        let queue = Self::build(capacity, max_segments, Some(sharing));
        if let Some(xrc) = queue.xrc() {
            xrc.completions.join_shared(xrc.number, Arc::clone(&queue.occupied));
        }
        queue
    }

    fn build(capacity: u32, max_segments: usize, sharing: Option<Sharing>) -> Self {
        let stride = HEAD_WORDS + max_segments * SEGMENT_WORDS;
        Self {
            ring: WordRing::new(capacity, stride),
            max_segments,
            posting: Mutex::new(()),
            limit: AtomicU32::new(0),
            occupied: Occupied::new(),
            sharing,
        }
    }

    /// A shared queue has ended: its completions count for nobody.
    pub(crate) fn leave_completions(&self) {
        if let Some(xrc) = self.xrc() {
            xrc.completions.leave_shared(xrc.number);
        }
    }

    fn xrc(&self) -> Option<&XrcPart> {
        self.sharing.as_ref()?.xrc.as_ref()
    }

    /// The protection domain of a shared queue, where the keys of its receives count. The queue of
    /// one queue pair has that queue pair's.
    pub fn domain(&self) -> Option<DomainId> {
        Some(self.sharing.as_ref()?.domain)
    }

    /// The number by which requests name an XRC shared receive queue; other queues have none.
    pub fn number(&self) -> Option<Srqn> {
        Some(self.xrc()?.number)
    }

    /// The XRC domain of an XRC shared receive queue.
    pub fn xrc_domain(&self) -> Option<XrcDomainId> {
        Some(self.xrc()?.domain)
    }

    /// Where completions of an XRC shared receive queue go. Those of other queues go where the
    /// queue pairs say that take from them.
    pub fn completions(&self) -> Option<&Arc<CompletionQueue>> {
        Some(&self.xrc()?.completions)
    }

    /// What completions of this queue count for.
    pub(crate) fn origin(&self) -> Origin {
        self.number().map_or(Origin::Pair, Origin::Shared)
    }

    /// Entries in all.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// The most segments in a request.
    pub fn max_segments(&self) -> usize {
        self.max_segments
    }

    /// Below how many posted receives an event comes; 0 if none will.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Acquire)
    }

    /// Sets the limit. Only the engine calls this, under its lock.
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Release);
    }

    /// Whether the number of posted receives has fallen below the limit; true once for each setting.
    pub(crate) fn take_limit_event(&self) -> bool {
        let reached = self.posted() < self.limit();
        if reached {
            self.set_limit(0);
        }
        reached
    }

    /// Entries posted and not yet consumed.
    pub fn posted(&self) -> u32 {
        self.ring.len()
    }

    /// Queues requests in order until one is refused. Returns how many were queued, and why the
    /// next one was not.
    pub fn post(&self, requests: &[ReceiveRequest<'_>]) -> (usize, Result<(), PostError>) {
        self.post_if(requests, || Ok(()))
    }

    /// The same; `allowed` is asked where [`Self::clear`] cannot come in between.
    pub(crate) fn post_if(
        &self,
        requests: &[ReceiveRequest<'_>],
        allowed: impl FnOnce() -> Result<(), PostError>,
    ) -> (usize, Result<(), PostError>) {
        let _guard = lock(&self.posting);
        if let Err(error) = allowed() {
            return (0, Err(error));
        }
        for (count, request) in requests.iter().enumerate() {
            if let Err(error) = self.post_one(request) {
                return (count, Err(error));
            }
        }
        (requests.len(), Ok(()))
    }

    fn post_one(&self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        if request.segments.len() > self.max_segments {
            let (given, limit) = (request.segments.len(), self.max_segments);
            return Err(PostError::TooManySegments { given, limit });
        }
        if !self.has_room() {
            return Err(PostError::QueueFull { capacity: self.capacity() });
        }
        let head = self.ring.head();
        let entry = self.ring.entry(head);
        let length = u32::try_from(total_length(request.segments)).unwrap_or(u32::MAX);
        put(entry, ID, request.id);
        put(entry, SHAPE, pair(length, request.segments.len() as u32));
        write_segments(entry, HEAD_WORDS, request.segments);
        self.occupied.add();
        self.ring.publish(head.wrapping_add(1));
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.occupied.count() < self.capacity()
    }

    /// Receives that are posted or claimed, and completions of this queue that wait to be polled.
    pub(crate) fn occupied(&self) -> &Arc<Occupied> {
        &self.occupied
    }

    /// The oldest posted receive, which stays until it is released.
    pub(crate) fn first(&self) -> Option<ReceiveHead> {
        let tail = self.ring.tail();
        (self.ring.head() != tail).then(|| {
            let entry = self.ring.entry(tail);
            ReceiveHead { id: get(entry, ID), length: halves(get(entry, SHAPE)).0 }
        })
    }

    /// The segments of the oldest posted receive. Only while there is one.
    pub(crate) fn first_segments(&self) -> SegmentList<'_> {
        let entry = self.ring.entry(self.ring.tail());
        SegmentList::new(&entry[HEAD_WORDS..], halves(get(entry, SHAPE)).1 as usize)
    }

    /// Takes the oldest posted receive out; its entry is free when its completion has been polled.
    pub(crate) fn release_first(&self) {
        self.ring.release(self.ring.tail().wrapping_add(1));
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

impl std::fmt::Debug for ReceiveQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiveQueue")
            .field("capacity", &self.capacity())
            .field("posted", &self.posted())
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}
