//! Posting: planned requests get places, keys and bytes, and are told to the oracle.

use std::sync::Arc;

use crate::queue::{
    Attachment, CompletionKind, Payload, PostError, ReceiveRequest, Remote, SendFlags,
    SendOperation, SendRequest, Sge,
};
use crate::wire::{Immediate, Lkey, Qpn, Rkey};

use super::end::PostedSend;
use super::grants::OnWindow;
use super::node::{GUARD, Registered, WINDOW, WORDS};
use super::oracle::{
    Action, Change, Defect, Local, Place, ReceiveModel, Rule, SendModel, Violation, WindowNumber,
    WindowUse,
};
use super::pattern;
use super::scenario::{Operation, Planned};
use super::trace::{Note, SendNote};
use super::world::World;

/// How often a free place is looked for before an overlapping one is taken.
pub(super) const TRIES: usize = 24;
/// Failed atomic operations after which a word is left alone.
const DOUBTS: usize = 3;
/// Marks the numbers of receives.
const RECEIVE: u64 = 1 << 32;
/// A key that no memory ever has.
pub(super) const BOGUS: u32 = 0xffff_ff00;

/// Local bytes of a request: for the queue, and for the oracle.
pub(super) struct Source {
    pub(super) segments: Vec<Sge>,
    pub(super) inline: Option<Vec<u8>>,
    pub(super) places: Vec<Place>,
    /// What was just stored in these places, if that is known.
    pub(super) stored: Option<Arc<Vec<u8>>>,
}

impl Source {
    /// No segments: nothing, or bytes that the request itself has.
    pub(super) fn inline(bytes: Option<Vec<u8>>) -> Self {
        Self { segments: Vec::new(), inline: bytes, places: Vec::new(), stored: None }
    }

    pub(super) fn local(self) -> Local {
        match (self.inline, self.stored) {
            (Some(bytes), _) => Local::Inline(bytes),
            (None, Some(stored)) => Local::Stored(self.places, stored),
            (None, None) => Local::Places(self.places),
        }
    }
}

/// Where a request goes: for the queue, and for the oracle.
pub(super) struct Target {
    pub(super) operation: SendOperation,
    pub(super) action: Action,
    pub(super) message: Option<Attachment>,
    /// What it has to do with a memory window.
    window: Option<(WindowNumber, WindowUse)>,
}

impl Target {
    pub(super) fn new(
        operation: SendOperation,
        action: Action,
        message: Option<Attachment>,
    ) -> Self {
        Self { operation, action, message, window: None }
    }
}

impl World {
    /// Posts receives for messages that the peer's plan has.
    pub(super) fn post_receives(&mut self, end: usize) -> Result<(), Violation> {
        let node = self.ends[end].plan.node;
        loop {
            let this = &self.ends[end];
            let late = this.plan.late_receives;
            if this.receives.len() >= this.plan.receive_depth as usize {
                return Ok(());
            }
            if late.is_some() && self.now < this.next_receive_at {
                let at = this.next_receive_at;
                self.run_application_at(node, at);
                return Ok(());
            }
            let peer = &self.ends[end ^ 1].plan.requests;
            let is_message = |planned: &Planned| planned.operation.is_message();
            let from = this.receive_cursor;
            let Some(next) = peer[from..].iter().position(is_message) else { return Ok(()) };
            let planned = peer[from + next];
            if !self.post_receive(end, &planned)? {
                return Ok(());
            }
            self.ends[end].receive_cursor = from + next + 1;
            if let Some(span) = late {
                self.ends[end].next_receive_at = self.now + self.choose(span);
            }
        }
    }

    /// Returns false if there is no place for it now.
    fn post_receive(&mut self, end: usize, planned: &Planned) -> Result<bool, Violation> {
        let this = &mut self.ends[end];
        let id = RECEIVE | this.next_id;
        let mut capacity = planned.receive_slack;
        if planned.operation.is_send() {
            capacity += planned.length;
        }
        if planned.defect == Some(Defect::ReceiveTooSmall) {
            capacity = self.rng.below(planned.length as u64) as usize;
        }
        let taken = self.ends[end].buffers.take(id, capacity, &mut self.rng);
        let Some(start) = taken else { return Ok(false) };
        let (mut segments, mut places) = (Vec::new(), Vec::new());
        let pieces = self.scattered(start, capacity, planned.receive_segments);
        let arena = &self.nodes[self.ends[end].plan.node].arena;
        for (offset, length) in pieces {
            segments.push(arena.sge(offset, length));
            places.push(arena.place(offset, length));
        }
        let defect = planned.defect.filter(|defect| *defect == Defect::ReceiveKey);
        if defect.is_some() {
            spoil_first(&mut segments, &mut places);
        }
        self.ends[end].next_id += 1;
        let request = ReceiveRequest { id, segments: &segments };
        let outcome = self.ends[end].queues.post_one_receive(&request);
        self.accept(end, outcome, "receive", id)?;
        self.oracle.post_receive(self.ends[end].id, &ReceiveModel { id, places, defect });
        self.ends[end].receives.push_back(id);
        let number = self.ends[end].queues.number();
        self.network.trace.note(self.now, Note::Receive { id, number, capacity });
        Ok(true)
    }

    /// Posts some of what is planned, as far as there is room.
    pub(super) fn post_sends(&mut self, end: usize) -> Result<(), Violation> {
        let node = self.ends[end].plan.node;
        let count = self.rng.between(1, self.scenario.posts_at_once);
        let mut posted = 0;
        while posted < count && !self.ends[end].is_exhausted() {
            if !self.has_room(end) {
                break;
            }
            let planned = self.ends[end].plan.requests[self.ends[end].cursor];
            if self.post_send(end, &planned, false)? {
                self.ends[end].cursor += 1;
            } else if self.ends[end].unsignaled == 0
                || !self.post_send(end, &Planned::new(Operation::Write, 0), true)?
            {
                // Something under way will give its place back, and a completion will tell.
                break;
            }
            posted += 1;
        }
        if posted == count && !self.ends[end].is_exhausted() {
            let delay = self.choose(self.scenario.application_delay);
            self.run_application_at(node, self.now + delay.max(1));
        }
        Ok(())
    }

    /// Whether unsignaled requests were carried out before an error is told by nothing, unless
    /// something that is flushed comes behind them.
    pub(super) fn post_marker(&mut self, end: usize) -> Result<(), Violation> {
        let outstanding = self.oracle.outstanding_sends(self.ends[end].id);
        if outstanding > 0 && self.ends[end].unsignaled > 0 && self.has_room(end) {
            self.post_send(end, &Planned::new(Operation::Write, 0), true)?;
            self.ring(self.ends[end].plan.node);
        }
        Ok(())
    }

    fn has_room(&self, end: usize) -> bool {
        let outstanding = self.oracle.outstanding_sends(self.ends[end].id);
        outstanding < self.ends[end].plan.depth as usize
    }

    /// Returns false if the request has no place now. A `filler` is not of the plan: it only gives
    /// a completion that covers unsignaled requests, so that their places come back.
    fn post_send(
        &mut self,
        end: usize,
        planned: &Planned,
        filler: bool,
    ) -> Result<bool, Violation> {
        let id = self.ends[end].next_id;
        let planned = &self.decide(end, planned);
        if self.must_wait(end, planned) {
            return Ok(false);
        }
        let Some(source) = self.local_bytes(end, id, planned) else { return Ok(false) };
        let target = self.target(end, planned, &source);
        let signaled = filler || self.is_signaled(end, planned);
        let fence = planned.fence || self.must_fence(end, planned);
        let flags = SendFlags { signaled, solicited: planned.solicited, fence };
        let payload = match &source.inline {
            _ if planned.operation.carries_itself() => Payload::EMPTY,
            Some(bytes) => Payload::Inline(bytes),
            None => Payload::Segments(&source.segments),
        };
        let request = SendRequest { id, operation: target.operation, flags, payload };
        let outcome = self.ends[end].queues.post_one_send(&request);
        self.accept(end, outcome, "send request", id)?;
        let model = SendModel {
            id,
            action: target.action,
            kind: kind(planned.operation),
            message: target.message,
            signaled: signaled || self.scenario.connections[end / 2].signal_all,
            fence,
            solicited: planned.solicited,
            local: source.local(),
            length: planned.length,
            defect: planned.defect,
        };
        self.oracle.post_send(self.ends[end].id, &model);
        if let Some((window, by)) = target.window {
            self.oracle.uses_window(self.ends[end].id, id, window, by);
        }
        self.note_post(end, &model, planned, signaled);
        let peer_window = self.ends[end ^ 1].window.region.id;
        let this = &mut self.ends[end];
        let (operation, defect) = (planned.operation, planned.defect);
        let reads_window =
            matches!(model.action, Action::Read(Some(place)) if place.memory == peer_window);
        let uses_grant = matches!(target.window, Some((_, WindowUse::Access { .. })));
        let on_grant = planned.window || operation == Operation::BindWindow;
        let reads_window = reads_window || (uses_grant && operation == Operation::Read);
        let posted = PostedSend { id, operation, defect, reads_window, uses_grant, on_grant };
        this.sends.push_back(posted);
        this.unsignaled = if signaled { 0 } else { this.unsignaled + 1 };
        this.next_id += 1;
        self.requests += 1;
        Ok(true)
    }

    fn note_post(&mut self, end: usize, model: &SendModel, planned: &Planned, signaled: bool) {
        let note = SendNote {
            id: model.id,
            number: self.ends[end].queues.number(),
            operation: planned.operation,
            length: planned.length,
            action: model.action,
            fence: model.fence,
            signaled,
            defect: planned.defect,
        };
        self.network.trace.note(self.now, Note::Send(note));
    }

    /// What fits by the application's own count must be taken.
    fn accept(
        &self,
        end: usize,
        outcome: Result<(), PostError>,
        what: &str,
        id: u64,
    ) -> Result<(), Violation> {
        outcome.map_err(|error| refused(self.ends[end].queues.number(), what, id, &error))
    }

    /// Keys that requests make invalid have to be valid first.
    fn must_wait(&self, end: usize, planned: &Planned) -> bool {
        match planned.operation {
            _ if planned.defect.is_some() => false,
            Operation::BindWindow => self.must_wait_for_window(end, planned),
            Operation::LocalInvalidate if planned.window => self.must_wait_for_window(end, planned),
            Operation::SendInvalidate if planned.window => false,
            Operation::SendInvalidate => self.ends[end ^ 1].window.is_claimed,
            Operation::LocalInvalidate => self.ends[end].own_window.is_claimed,
            _ => false,
        }
    }

    /// A peer's key must not be made invalid while we read there.
    fn must_fence(&self, end: usize, planned: &Planned) -> bool {
        planned.operation == Operation::SendInvalidate
            && self.ends[end].sends.iter().any(|posted| posted.reads_window)
    }

    /// At least one in so many is signaled, or the queue would fill and never empty.
    fn is_signaled(&self, end: usize, planned: &Planned) -> bool {
        let this = &self.ends[end];
        planned.signaled
            || this.unsignaled + 1 >= this.plan.depth.div_ceil(2)
            || this.cursor + 1 == this.plan.requests.len()
    }

    /// Cuts a range into pieces of random lengths, and gives offset and length of each in the order
    /// in which a request names them, which is not their order in memory.
    pub(super) fn scattered(
        &mut self,
        start: usize,
        length: usize,
        pieces: usize,
    ) -> Vec<(usize, usize)> {
        if pieces == 0 {
            return Vec::new();
        }
        if pieces == 1 {
            return vec![(start, length)];
        }
        let mut cuts = Vec::with_capacity(pieces);
        cuts.extend((1..pieces).map(|_| self.rng.below(length as u64 + 1) as usize));
        cuts.push(length);
        cuts.sort_unstable();
        let mut from = 0;
        let mut pieces: Vec<(usize, usize)> = Vec::with_capacity(pieces);
        for cut in cuts {
            let position = self.rng.below(pieces.len() as u64 + 1) as usize;
            pieces.insert(position, (start + from, cut - from));
            from = cut;
        }
        pieces
    }

    /// Places for a request's local bytes; for a SEND or WRITE with fresh bytes in them.
    fn local_bytes(&mut self, end: usize, id: u64, planned: &Planned) -> Option<Source> {
        let brings = planned.operation.brings_data();
        if planned.operation.is_local() || planned.operation == Operation::Flush {
            return Some(Source::inline(None));
        }
        if planned.segments == 0 {
            return Some(Source::inline(Some(pattern::bytes(&mut self.rng, planned.length))));
        }
        let this = &mut self.ends[end];
        let zone = if brings { &mut this.landings } else { &mut this.sources };
        let start = zone.take(id, planned.length, &mut self.rng)?;
        let node = self.ends[end].plan.node;
        let (mut segments, mut places) =
            (Vec::with_capacity(planned.segments), Vec::with_capacity(planned.segments));
        let fresh = (!brings).then(|| pattern::bytes(&mut self.rng, planned.length));
        let mut left = fresh.as_deref();
        for (offset, length) in self.scattered(start, planned.length, planned.segments) {
            let arena = &self.nodes[node].arena;
            let place = arena.place(offset, length);
            if let Some(part) = left.as_mut().and_then(|left| left.split_off(..length)) {
                self.oracle.store(place, part);
                arena.memory.write(offset, part).expect("zones lie inside the arena");
            }
            segments.push(arena.sge(offset, length));
            places.push(place);
        }
        self.spoil_local(end, planned, &mut segments, &mut places);
        let stored = fresh.filter(|_| planned.defect.is_none()).map(Arc::new);
        Some(Source { segments, inline: None, places, stored })
    }

    fn spoil_local(
        &mut self,
        end: usize,
        planned: &Planned,
        segments: &mut [Sge],
        places: &mut Vec<Place>,
    ) {
        let node = &self.nodes[self.ends[end].plan.node];
        match planned.defect {
            Some(Defect::LocalKey) => spoil_first(segments, places),
            Some(Defect::LocalBounds) => {
                let first = first_with_bytes(segments);
                places.truncate(first);
                let length = segments[first].length as usize;
                if planned.operation.brings_data() {
                    segments[first].address = node.arena.base - 1;
                    return;
                }
                // What lies inside may be sent before the end is reached.
                let inside = (length - 1).min(node.private.size);
                let start = GUARD + node.private.size - inside;
                segments[first] = node.private.sge(start, length);
                places.push(node.private.place(start, inside));
            }
            Some(Defect::LocalRights) => {
                let first = first_with_bytes(segments);
                let length = segments[first].length as usize;
                segments[first] = node.read_only.sge(GUARD, length);
                places.truncate(first);
            }
            _ => {}
        }
    }

    /// Where the request goes.
    fn target(&mut self, end: usize, planned: &Planned, source: &Source) -> Target {
        match planned.operation {
            Operation::Send => {
                Target::new(SendOperation::Send, Action::Send, Some(Attachment::None))
            }
            Operation::SendImmediate => {
                let immediate = self.immediate();
                let operation = SendOperation::SendWithImmediate(immediate);
                Target::new(operation, Action::Send, Some(Attachment::Immediate(immediate)))
            }
            Operation::SendInvalidate => {
                let key = self.key_to_invalidate(end, planned);
                let operation = SendOperation::SendWithInvalidate(key);
                Target::new(operation, Action::Send, Some(Attachment::Invalidated(key)))
            }
            Operation::BindWindow => local_target(self.bind_window(end, planned)),
            Operation::LocalInvalidate if planned.window => local_target(self.end_own_grant(end)),
            Operation::LocalInvalidate => self.local_invalidation(end, planned),
            Operation::Write | Operation::WriteImmediate | Operation::Read => {
                self.transfer(end, planned)
            }
            Operation::CompareSwap | Operation::FetchAdd => self.atomic(end, planned),
            Operation::AtomicWrite => self.atomic_write(end, planned, source),
            Operation::Flush => self.flush(end, planned),
        }
    }

    fn immediate(&mut self) -> Immediate {
        Immediate(self.rng.next_u32().to_le_bytes())
    }

    fn key_to_invalidate(&mut self, end: usize, planned: &Planned) -> Rkey {
        if planned.defect == Some(Defect::InvalidateKey) {
            let arena = self.nodes[self.ends[end ^ 1].plan.node].arena.keys.remote;
            let any = Planned::new(Operation::Send, 0);
            return match self.rng.below(3) {
                0 => arena,
                1 => self.window_of_another(end ^ 1, &any).map_or(arena, |remote| remote.key),
                _ => Rkey::new(BOGUS),
            };
        }
        if planned.window {
            return self.end_grant_of_peer(end);
        }
        let window = &mut self.ends[end ^ 1].window;
        window.is_claimed = planned.defect.is_none();
        window.region.keys.remote
    }

    fn local_invalidation(&mut self, end: usize, planned: &Planned) -> Target {
        let key = if planned.defect == Some(Defect::LocalInvalidateKey) {
            let stale = self.ends[end].own_window.stale_key();
            let any = Planned::new(Operation::Send, 0);
            let other = self.window_of_another(end, &any).map(|remote| remote.key);
            let wrong = if self.rng.chance(1, 2) { stale } else { other };
            wrong.unwrap_or(Rkey::new(BOGUS))
        } else {
            let window = &mut self.ends[end].own_window;
            window.is_claimed = true;
            window.region.keys.remote
        };
        let operation = SendOperation::LocalInvalidate(key);
        Target::new(operation, Action::Local, None)
    }

    /// WRITE or READ.
    fn transfer(&mut self, end: usize, planned: &Planned) -> Target {
        let is_read = planned.operation == Operation::Read;
        let wrong = self.wrong_remote(end, planned);
        let granted =
            if planned.window && wrong.is_none() { self.granted(end, planned) } else { None };
        let (remote, place, window) = match (wrong, granted) {
            (Some(remote), _) => (remote, None, None),
            (None, Some((remote, place, window))) => (remote, Some(place), Some(window)),
            (None, None) => {
                let (remote, place) = self.right_remote(end, planned);
                (remote, Some(place), None)
            }
        };
        let (operation, action, message) = if is_read {
            (SendOperation::Read(remote), Action::Read(place), None)
        } else if planned.operation == Operation::Write {
            (SendOperation::Write(remote), Action::Write(place), None)
        } else {
            let immediate = self.immediate();
            let operation = SendOperation::WriteWithImmediate(remote, immediate);
            (operation, Action::Write(place), Some(Attachment::Immediate(immediate)))
        };
        Target { operation, action, message, window }
    }

    /// A place of the peer that the request may use.
    fn right_remote(&mut self, end: usize, planned: &Planned) -> (Remote, Place) {
        let peer = &self.ends[end ^ 1];
        let window = &peer.window;
        if planned.window && !window.is_claimed && planned.length <= WINDOW {
            let room = (WINDOW - planned.length) as u64;
            let offset = GUARD + self.rng.below(room + 1) as usize;
            return (window.region.remote(offset), window.region.place(offset, planned.length));
        }
        let node = &self.nodes[peer.plan.node];
        let start = node.target_start(self.scenario.target);
        let room = (self.scenario.target - planned.length) as u64;
        let is_write = planned.operation != Operation::Read;
        let mut offset = start;
        for _ in 0..TRIES {
            offset = start + self.rng.below(room + 1) as usize;
            let place = node.arena.place(offset, planned.length);
            if planned.overlap && !self.oracle.is_tainted(place) {
                break;
            }
            if !self.oracle.is_busy(place, is_write) {
                break;
            }
        }
        (node.arena.remote(offset), node.arena.place(offset, planned.length))
    }

    /// A place that the request must not reach, if that is what is wrong with it.
    pub(super) fn wrong_remote(&mut self, end: usize, planned: &Planned) -> Option<Remote> {
        let peer = &self.ends[end ^ 1];
        let node = &self.nodes[peer.plan.node];
        let is_read = planned.operation == Operation::Read;
        let with_key = |key: Rkey| Remote { key, ..node.arena.remote(GUARD) };
        Some(match planned.defect? {
            Defect::RemoteKey if self.rng.chance(1, 2) => with_key(Rkey::new(BOGUS)),
            // The right index, another generation.
            Defect::RemoteKey => with_key(Rkey::new(node.arena.keys.remote.value() ^ 1)),
            Defect::RemoteStaleKey => match peer.stale_key() {
                Some(key) => Remote { key, ..peer.window.region.remote(GUARD) },
                None => with_key(node.stale_key),
            },
            Defect::RemoteBounds => {
                let arena = &node.arena;
                // The word of an atomic operation must stay aligned, or that would be wrong too.
                let step = if planned.operation.needs_alignment() { 8 } else { 1 };
                let inside = self.rng.below(planned.length as u64) / step * step;
                let address = match self.rng.below(3) {
                    0 => arena.base + arena.size as u64 - inside,
                    1 => arena.base - step,
                    _ => u64::MAX - (step - 1) - inside,
                };
                Remote { address, key: arena.keys.remote }
            }
            Defect::RemoteRights if is_read => in_the_middle(&node.private),
            Defect::RemoteRights => in_the_middle(&node.read_only),
            Defect::RemoteDomain => in_the_middle(&node.elsewhere),
            defect @ (Defect::WindowBounds | Defect::WindowRights | Defect::WindowOfAnother) => {
                let bogus = with_key(Rkey::new(BOGUS));
                self.not_granted(end, planned, defect).unwrap_or(bogus)
            }
            _ => return None,
        })
    }

    fn atomic(&mut self, end: usize, planned: &Planned) -> Target {
        let wrong = self.wrong_remote(end, planned);
        let (words, candidates) = {
            let words = self.nodes[self.ends[end ^ 1].plan.node].words.clone();
            let place = |index: usize| words.place(GUARD + 8 * index, 8);
            let sure = |index: &usize| self.oracle.failed_atomics(place(*index)) < DOUBTS;
            let candidates: Vec<usize> = (0..WORDS).filter(sure).collect();
            (words, candidates)
        };
        let chosen = self.rng.below(candidates.len().max(1) as u64) as usize;
        let index = candidates.get(chosen).copied().unwrap_or(0);
        let place = words.place(GUARD + 8 * index, 8);
        let (remote, action_place) = match (planned.defect, wrong) {
            (_, Some(remote)) => (remote, None),
            (Some(Defect::Misaligned), None) => (words.remote(place.offset + 4), None),
            (_, None) => (words.remote(place.offset), Some(place)),
        };
        let change = self.change(&words, place.offset, planned.operation);
        let operation = match change {
            Change::Add(add) => SendOperation::FetchAdd { remote, add },
            Change::CompareSwap { compare, swap } => {
                SendOperation::CompareSwap { remote, compare, swap }
            }
        };
        Target::new(operation, Action::Atomic(action_place, change), None)
    }

    /// A compare value that often fits: what the word holds now.
    fn change(&mut self, words: &Registered, offset: usize, operation: Operation) -> Change {
        if operation == Operation::FetchAdd {
            return Change::Add(self.rng.next_u64());
        }
        let current = words.memory.load_u64(offset).expect("words are aligned");
        let compare = if self.rng.chance(3, 4) { current } else { self.rng.next_u64() };
        Change::CompareSwap { compare, swap: self.rng.next_u64() }
    }
}

/// A request that changes own keys.
fn local_target(on_window: OnWindow) -> Target {
    let OnWindow { operation, number, by } = on_window;
    Target { operation, action: Action::Local, message: None, window: by.map(|by| (number, by)) }
}

/// A queue did not take what fits.
pub(super) fn refused(number: Qpn, what: &str, id: u64, error: &PostError) -> Violation {
    Violation::new(Rule::Posting, format!("{number}: {what} {id} was refused: {error}"))
}

/// A remote place that stays inside for short requests and is wrong for another reason.
fn in_the_middle(region: &Registered) -> Remote {
    region.remote(GUARD)
}

pub(super) fn first_with_bytes(segments: &[Sge]) -> usize {
    segments.iter().position(|segment| segment.length > 0).unwrap_or(0)
}

/// Gives the first segment that has bytes a key that no memory has.
pub(super) fn spoil_first(segments: &mut [Sge], places: &mut Vec<Place>) {
    let first = first_with_bytes(segments);
    if let Some(segment) = segments.get_mut(first) {
        segment.key = Lkey::new(BOGUS);
    }
    places.truncate(first);
}

const fn kind(operation: Operation) -> CompletionKind {
    match operation {
        Operation::Send | Operation::SendImmediate | Operation::SendInvalidate => {
            CompletionKind::Send
        }
        Operation::Write | Operation::WriteImmediate => CompletionKind::Write,
        Operation::Read => CompletionKind::Read,
        Operation::CompareSwap => CompletionKind::CompareSwap,
        Operation::FetchAdd => CompletionKind::FetchAdd,
        Operation::LocalInvalidate => CompletionKind::LocalInvalidate,
        Operation::AtomicWrite => CompletionKind::AtomicWrite,
        Operation::Flush => CompletionKind::Flush,
        Operation::BindWindow => CompletionKind::BindWindow,
    }
}
