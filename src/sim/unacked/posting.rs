//! Posting to queue pairs without acknowledgements.

use crate::queue::{
    Attachment, CompletionKind, Datagram, Payload, ReceiveRequest, Remote, SendFlags,
    SendOperation, SendRequest, Sge,
};
use crate::wire::{Immediate, Lkey, QKey, Qpn, Rkey};

use super::super::matrix::Row;
use super::super::node::GUARD;
use super::super::oracle::{Defect, Place, ReceiveModel, UnackedDefect, UnackedSend, Violation};
use super::super::pattern;
use super::super::posting::{BOGUS, Source, first_with_bytes, refused, spoil_first};
use super::super::scenario::Operation;
use super::super::trace::Note;
use super::super::world::{LOOK_AGAIN, World};
use super::end::{FAREWELL, PostedUnacked, QKEY, SOURCES, TARGETS, group};
use super::plan::{PlannedReceive, UnackedRequest};
use super::random::LONGEST;

/// How often a place is looked for that nothing else writes.
const TRIES: usize = 24;
/// Marks the numbers of receives.
const RECEIVE: u64 = 1 << 32;

/// Where a request goes: for the queue, and for the oracle.
struct Target {
    operation: SendOperation,
    place: Option<Place>,
    message: Option<Attachment>,
}

impl World {
    /// Posts receives as planned, as many as there is room for.
    pub(super) fn post_unacked_receives(&mut self, number: usize) -> Result<(), Violation> {
        loop {
            let this = &self.unacked[number];
            let outstanding = self.oracle.outstanding_unacked_receives(this.id);
            let Some(planned) = this.plan.receives.get(this.receive_cursor).copied() else {
                return Ok(());
            };
            if outstanding >= this.plan.receive_depth as usize {
                return Ok(());
            }
            let late = this.plan.late_receives;
            if late.is_some() && self.now < this.next_receive_at {
                let (node, at) = (this.plan.node, this.next_receive_at);
                self.run_application_at(node, at);
                return Ok(());
            }
            self.post_unacked_receive(number, planned)?;
            self.unacked[number].receive_cursor += 1;
            if let Some(span) = late {
                self.unacked[number].next_receive_at = self.now + self.choose(span);
            }
        }
    }

    fn post_unacked_receive(
        &mut self,
        number: usize,
        planned: PlannedReceive,
    ) -> Result<(), Violation> {
        let this = &mut self.unacked[number];
        let (id, start) = (RECEIVE | this.next_id, this.receive_at);
        this.next_id += 1;
        this.receive_at += planned.capacity;
        let region = this.region.clone();
        let (mut segments, mut places) = (Vec::new(), Vec::new());
        for (offset, length) in self.scattered(start, planned.capacity, planned.segments) {
            segments.push(region.sge(offset, length));
            places.push(region.place(offset, length));
        }
        if planned.spoiled {
            segments.iter_mut().for_each(|segment| segment.key = Lkey::new(BOGUS));
            places.clear();
        }
        let defect = planned.spoiled.then_some(Defect::ReceiveKey);
        let queues = &self.unacked[number].queues;
        let outcome = queues.post_one_receive(&ReceiveRequest { id, segments: &segments });
        outcome.map_err(|error| refused(queues.number(), "receive", id, &error))?;
        let note = Note::Receive { id, number: queues.number(), capacity: planned.capacity };
        self.network.trace.note(self.now, note);
        let model = ReceiveModel { id, places, defect };
        self.oracle.post_unacked_receive(self.unacked[number].id, &model);
        Ok(())
    }

    /// Posts some of what is planned, as far as there is room.
    pub(super) fn post_unacked_sends(&mut self, number: usize) -> Result<(), Violation> {
        let count = self.rng.between(1, self.scenario.posts_at_once);
        for _ in 0..count {
            let this = &self.unacked[number];
            let Some(planned) = this.plan.requests.get(this.cursor).copied() else {
                return Ok(());
            };
            let outstanding = self.oracle.outstanding_unacked_sends(this.id);
            let has_room = outstanding < this.plan.depth as usize;
            if !has_room || this.posts_in_error == Some(0) || !self.has_source(number, planned) {
                // Something under way will end, and a completion will tell.
                return Ok(());
            }
            self.post_unacked_send(number, planned, false)?;
            let this = &mut self.unacked[number];
            this.cursor += 1;
            this.posts_in_error = this.posts_in_error.map(|left| left - 1);
        }
        if self.unacked[number].cursor < self.unacked[number].plan.requests.len() {
            let delay = self.choose(self.scenario.application_delay);
            self.run_application_at(self.unacked[number].plan.node, self.now + delay.max(1));
        }
        Ok(())
    }

    /// Sources are used from the first to the last, and again when nothing is under way.
    fn has_source(&mut self, number: usize, planned: UnackedRequest) -> bool {
        let this = &mut self.unacked[number];
        if this.source_at + planned.length > SOURCES && this.sends.is_empty() {
            this.source_at = 0;
        }
        this.source_at + planned.length <= SOURCES
    }

    /// One small message that has to arrive, and room for those of all others.
    pub(super) fn post_farewell(&mut self, number: usize) -> Result<(), Violation> {
        for _ in 0..self.unacked.len() {
            let planned = PlannedReceive { capacity: FAREWELL, segments: 1, spoiled: false };
            self.post_unacked_receive(number, planned)?;
        }
        let empty =
            UnackedRequest { segments: 0, ..UnackedRequest::new(Operation::SendImmediate, 0) };
        self.post_unacked_send(number, empty, true)?;
        let node = self.unacked[number].plan.node;
        self.ring(node);
        // Who waits for solicited completions only has to look again from time to time.
        self.run_application_at(node, self.now + LOOK_AGAIN);
        Ok(())
    }

    fn post_unacked_send(
        &mut self,
        number: usize,
        planned: UnackedRequest,
        must_arrive: bool,
    ) -> Result<(), Violation> {
        let source = self.unacked_source(number, &planned);
        let target = self.unacked_target(number, &planned);
        let this = &mut self.unacked[number];
        let id = this.next_id;
        this.next_id += 1;
        let is_last = must_arrive || this.cursor + 1 == this.plan.requests.len();
        let signaled = planned.signaled
            || is_last
            || this.unsignaled + 1 >= this.plan.depth.div_ceil(2)
            || this.source_at + LONGEST > SOURCES;
        this.unsignaled = if signaled { 0 } else { this.unsignaled + 1 };
        let flags = SendFlags { signaled, solicited: planned.solicited, fence: false };
        let payload = match &source.inline {
            Some(bytes) => Payload::Inline(bytes),
            None => Payload::Segments(&source.segments),
        };
        let request = SendRequest { id, operation: target.operation, flags, payload };
        let outcome = this.queues.post_one_send(&request);
        outcome.map_err(|error| refused(this.queues.number(), "send request", id, &error))?;
        let name = this.queues.number();
        let (queue, peer) = (this.id, this.plan.peers[planned.peer]);
        let signaled = signaled || this.plan.signal_all;
        this.sends.push_back(posted(
            id,
            &planned,
            this.plan.is_datagram(),
            this.plan.path_mtu.bytes(),
        ));
        let place = target.place.map_or(0, |place| place.offset as u64);
        let words = [5 << 32 | u64::from(name.value()), id, place << 32 | planned.length as u64];
        let text = || format!("{name} posts {}", note(&planned, id, &target));
        self.network.trace.tell(self.now, words, text);
        let model = UnackedSend {
            id,
            to: if planned.to_group { self.group_members() } else { vec![self.unacked[peer].id] },
            group: planned.to_group.then(|| group(self.scenario.ipv6)),
            kind: if is_write(&planned) { CompletionKind::Write } else { CompletionKind::Send },
            target: target.place,
            message: target.message,
            signaled,
            solicited: planned.solicited,
            local: source.local(),
            length: planned.length,
            defect: planned.defect,
            must_arrive,
        };
        self.oracle.post_unacked_send(queue, &model);
        self.requests += 1;
        self.end_handle(number, &planned, &target);
        Ok(())
    }

    /// A handle may also be destroyed between the post and the packet.
    fn end_handle(&mut self, number: usize, planned: &UnackedRequest, target: &Target) {
        if planned.defect != Some(UnackedDefect::HandleDestroyed) {
            return;
        }
        if let SendOperation::SendTo { to, .. } = target.operation {
            let node = &mut self.nodes[self.unacked[number].plan.node];
            // One half was destroyed before the post.
            let _ = node.engine.destroy_address_handle(to.address);
        }
    }

    /// Places for a request's local bytes, with fresh bytes in them.
    fn unacked_source(&mut self, number: usize, planned: &UnackedRequest) -> Source {
        let bytes = pattern::bytes(&mut self.rng, planned.length);
        if planned.segments == 0 {
            return Source::inline(Some(bytes));
        }
        let start = GUARD + self.unacked[number].source_at;
        self.unacked[number].source_at += planned.length;
        let region = self.unacked[number].region.clone();
        self.oracle.store(region.place(start, planned.length), &bytes);
        region.memory.write(start, &bytes).expect("sources lie inside the region");
        let (mut segments, mut places) = (Vec::new(), Vec::new());
        for (offset, length) in self.scattered(start, planned.length, planned.segments) {
            segments.push(region.sge(offset, length));
            places.push(region.place(offset, length));
        }
        match planned.defect {
            Some(UnackedDefect::LocalKey) => spoil_first(&mut segments, &mut places),
            Some(UnackedDefect::LocalBounds) => {
                self.leave_bounds(number, &mut segments, &mut places);
            }
            _ => {}
        }
        Source { segments, inline: None, places, stored: None }
    }

    /// The first segment that has bytes begins inside a memory and ends outside. What lies inside
    /// may be sent before the end is reached.
    fn leave_bounds(&self, number: usize, segments: &mut [Sge], places: &mut Vec<Place>) {
        let private = &self.nodes[self.unacked[number].plan.node].private;
        let first = first_with_bytes(segments);
        places.truncate(first);
        let length = segments[first].length as usize;
        let inside = (length - 1).min(private.size);
        let start = GUARD + private.size - inside;
        segments[first] = private.sge(start, length);
        places.push(private.place(start, inside));
    }

    fn unacked_target(&mut self, number: usize, planned: &UnackedRequest) -> Target {
        let has_immediate =
            matches!(planned.operation, Operation::SendImmediate | Operation::WriteImmediate);
        let immediate = has_immediate.then(|| Immediate(self.rng.next_u32().to_le_bytes()));
        let attachment = immediate.map(Attachment::Immediate);
        if is_write(planned) {
            let (remote, place) = self.unacked_remote(number, planned);
            let operation = match immediate {
                Some(immediate) => SendOperation::WriteWithImmediate(remote, immediate),
                None => SendOperation::Write(remote),
            };
            return Target { operation, place, message: attachment };
        }
        let operation = if self.unacked[number].plan.is_datagram() {
            SendOperation::SendTo { to: self.datagram(number, planned), immediate }
        } else {
            immediate.map_or(SendOperation::Send, SendOperation::SendWithImmediate)
        };
        Target { operation, place: None, message: Some(attachment.unwrap_or(Attachment::None)) }
    }

    fn datagram(&mut self, number: usize, planned: &UnackedRequest) -> Datagram {
        let this = &self.unacked[number];
        let (queue_pair, mut address) = if planned.to_group {
            (Qpn::MULTICAST, this.handles[this.plan.peers.len()])
        } else {
            let peer = this.plan.peers[planned.peer];
            (self.unacked[peer].queues.number(), this.handles[planned.peer])
        };
        let qkey = match planned.defect {
            Some(UnackedDefect::QueueKey) => QKey::new(QKEY.value() ^ 1 << self.rng.below(31)),
            _ if planned.own_key => QKey::new(0x8000_0000 | self.rng.next_u32()),
            _ => QKEY,
        };
        if planned.defect == Some(UnackedDefect::HandleDestroyed) {
            address = self.address_handle(number, planned.peer);
            if self.rng.chance(1, 2) {
                let node = &mut self.nodes[self.unacked[number].plan.node];
                node.engine.destroy_address_handle(address).expect("it was just made");
            }
        }
        Datagram { address, queue_pair, qkey }
    }

    /// Where a WRITE goes: for the queue, and if it may go there for the oracle.
    fn unacked_remote(
        &mut self,
        number: usize,
        planned: &UnackedRequest,
    ) -> (Remote, Option<Place>) {
        let peer = &self.unacked[self.unacked[number].plan.peers[0]];
        let region = peer.region.clone();
        let node = &self.nodes[peer.plan.node];
        let with_key = |key: Rkey| Remote { key, ..region.remote(GUARD + SOURCES) };
        let remote = match planned.defect {
            Some(UnackedDefect::RemoteKey) => {
                let near = region.keys.remote.value() ^ 1;
                with_key(Rkey::new(if self.rng.chance(1, 2) { BOGUS } else { near }))
            }
            Some(UnackedDefect::RemoteStaleKey) => with_key(node.stale_key),
            Some(UnackedDefect::RemoteBounds) => {
                let inside = self.rng.below(planned.length as u64);
                let address = match self.rng.below(3) {
                    0 => region.base + region.size as u64 - inside,
                    1 => region.base - 1,
                    _ => u64::MAX - inside,
                };
                Remote { address, key: region.keys.remote }
            }
            Some(UnackedDefect::RemoteRights) => node.read_only.remote(GUARD),
            Some(UnackedDefect::RemoteDomain) => node.elsewhere.remote(GUARD),
            _ => {
                let mut offset = GUARD + SOURCES;
                for _ in 0..TRIES {
                    let room = (TARGETS - planned.length) as u64;
                    offset = GUARD + SOURCES + self.rng.below(room + 1) as usize;
                    if !self.oracle.is_busy(region.place(offset, planned.length), true) {
                        break;
                    }
                }
                return (region.remote(offset), Some(region.place(offset, planned.length)));
            }
        };
        (remote, None)
    }
}

const fn is_write(planned: &UnackedRequest) -> bool {
    matches!(planned.operation, Operation::Write | Operation::WriteImmediate)
}

fn posted(id: u64, planned: &UnackedRequest, is_datagram: bool, mtu: usize) -> PostedUnacked {
    let row = match (is_datagram, is_write(planned)) {
        (true, _) if planned.to_group => Row::UdGroup,
        (true, _) => Row::UdSend,
        (false, true) => Row::UcWrite,
        (false, false) => Row::UcSend,
    };
    let packets = if is_datagram { 1 } else { planned.length.div_ceil(mtu).max(1) as u64 };
    PostedUnacked { id, row, packets, defect: planned.defect }
}

fn note(planned: &UnackedRequest, id: u64, target: &Target) -> String {
    let wrong = planned.defect.map(|defect| format!(", wrong: {defect}")).unwrap_or_default();
    let quiet = if planned.signaled { "" } else { ", unsignaled" };
    let place = target.place.map(|place| format!(" at {}", place.offset)).unwrap_or_default();
    format!("{:?} {id}: {} bytes{place}{quiet}{wrong}", planned.operation, planned.length)
}
