//! Posting to shared receive queues and links.

use std::sync::Arc;

use crate::queue::{
    Attachment, CompletionKind, Datagram, Payload, ReceiveRequest, SendFlags, SendOperation,
    SendRequest, Sge,
};
use crate::wire::{Immediate, Srqn};

use super::super::node::GUARD;
use super::super::oracle::{Change, LinkDefect, LinkEffect, LinkSend, Rule, SharedId, Violation};
use super::super::pattern;
use super::super::posting::refused;
use super::super::scenario::Operation;
use super::super::world::World;
use super::end::{LIBRARY, PostedLink, QKEY, SharedStage, WORD};
use super::plan::{LinkKind, LinkRequest};

/// Marks the numbers of receives; the queue's number stands below it.
const RECEIVE: u64 = 1 << 48;
const QUEUE_SHIFT: u32 = 32;

/// The shared receive queue that a receive's number tells.
pub(super) const fn queue_of(id: u64) -> usize {
    (id >> QUEUE_SHIFT & 0xffff) as usize
}

impl World {
    /// One run of a node's application, as far as it concerns them.
    pub(in super::super) fn run_shared(&mut self, node: usize) -> Result<(), Violation> {
        let Some(shared) = &self.shared else { return Ok(()) };
        if shared.stage != SharedStage::Busy {
            return Ok(());
        }
        if shared.plan.node == node {
            for queue in 0..self.shared().queues.len() {
                self.refill(queue)?;
            }
        }
        for link in 0..self.shared().links.len() {
            if self.shared().links[link].plan.node == node {
                self.post_link_sends(link)?;
            }
        }
        Ok(())
    }

    /// Whether anything of a node's links is outstanding.
    pub(in super::super) fn shared_waits(&self, node: usize) -> bool {
        self.shared.as_ref().is_some_and(|shared| {
            shared.stage != SharedStage::Over
                && (shared.plan.node == node
                    || shared.links.iter().any(|link| link.plan.node == node))
        })
    }

    /// Posts receives until the queue is full, if the application does so now, and asks for the next
    /// limit event.
    fn refill(&mut self, number: usize) -> Result<(), Violation> {
        let queue = &self.shared().queues[number];
        if !queue.may_refill || queue.free.is_empty() {
            return Ok(());
        }
        while let Some(slot) = self.shared_mut().queues[number].free.pop() {
            self.post_shared_receive(number, slot)?;
        }
        let queue = &mut self.shared_mut().queues[number];
        let limit = queue.plan.limit;
        if limit == 0 {
            return Ok(());
        }
        (queue.may_refill, queue.is_armed) = (false, true);
        let (id, shared) = (queue.id, Arc::clone(&queue.queue));
        self.oracle.arm_limit(id, limit);
        let node = self.shared().plan.node;
        let outcome = self.nodes[node].engine.set_shared_limit(&shared, limit);
        outcome.unwrap_or_else(|error| panic!("limit {limit}: {error}"));
        self.hear_applications(node)
    }

    fn post_shared_receive(&mut self, number: usize, slot: usize) -> Result<(), Violation> {
        let queue = &mut self.shared_mut().queues[number];
        let id = RECEIVE | (number as u64) << QUEUE_SHIFT | queue.next_id << 8 | slot as u64;
        queue.next_id += 1;
        let capacity = queue.plan.capacity;
        let start = GUARD + slot * capacity;
        let cut = capacity / 3;
        let region = &queue.region;
        let segments = [region.sge(start, cut), region.sge(start + cut, capacity - cut)];
        let (place, shared) = (region.place(start, capacity), Arc::clone(&queue.queue));
        let request = ReceiveRequest { id, segments: &segments };
        shared.post(std::slice::from_ref(&request)).1.map_err(|error| {
            Violation::new(Rule::Posting, format!("receive {id:#x} was refused: {error}"))
        })?;
        let queue = self.shared().queues[number].id;
        self.oracle.post_shared_receive(queue, id, place);
        Ok(())
    }

    fn post_link_sends(&mut self, number: usize) -> Result<(), Violation> {
        loop {
            let link = &self.shared().links[number];
            let is_full = self.oracle.outstanding_link(link.id) >= link.plan.depth as usize;
            if is_full || self.oracle.has_link_failed(link.id) {
                return Ok(());
            }
            let Some(planned) = link.plan.requests.get(link.cursor).copied() else {
                return Ok(());
            };
            self.post_link_send(number, &planned)?;
            self.shared_mut().links[number].cursor += 1;
        }
    }

    fn post_link_send(&mut self, number: usize, planned: &LinkRequest) -> Result<(), Violation> {
        let (id, signaled) = {
            let link = &mut self.shared_mut().links[number];
            link.next_id += 1;
            let must = link.unsignaled + 1 >= link.plan.depth.div_ceil(2);
            let is_last = link.cursor + 1 == link.plan.requests.len();
            let signaled = planned.signaled || must || is_last;
            link.unsignaled = if signaled { 0 } else { link.unsignaled + 1 };
            (link.next_id, signaled)
        };
        let (segment, data) = self.link_bytes(number, planned);
        let (operation, mut model) = self.link_target(number, planned, data);
        (model.id, model.signaled) = (id, signaled);
        let flags = SendFlags { signaled, solicited: planned.solicited, fence: false };
        let segments = [segment];
        let request = SendRequest { id, operation, flags, payload: Payload::Segments(&segments) };
        let named = self.named_queue(number, planned);
        let link = &self.shared().links[number];
        let outcome = match named {
            Some(named) => link.sender.post_send_to(named, &[request]),
            None => link.sender.post_send(&[request]),
        };
        let name = link.sender.number();
        outcome.1.map_err(|error| refused(name, "send request", id, &error))?;
        let words = [6 << 32 | u64::from(name.value()), id, planned.length as u64];
        let text = || format!("{:?} {id} of {name} posted: {planned:?}", planned.operation);
        self.network.trace.tell(self.now, words, text);
        let link = &mut self.shared_mut().links[number];
        let packets = planned.length.div_ceil(link.plan.path_mtu.bytes()).max(1) as u64;
        link.posted.push_back(PostedLink {
            id,
            operation: planned.operation,
            packets,
            defect: planned.defect,
        });
        let (link, node) = (link.id, link.plan.node);
        self.oracle.post_link_send(link, model);
        self.requests += 1;
        self.ring(node);
        Ok(())
    }

    /// Fresh bytes for a SEND or WRITE, or room for an answer.
    fn link_bytes(&mut self, number: usize, planned: &LinkRequest) -> (Sge, Vec<u8>) {
        let bytes = pattern::bytes(&mut self.rng, planned.length);
        let link = &mut self.shared_mut().links[number];
        let (start, region) = (link.source_at, link.sources.clone());
        link.source_at += planned.length;
        if !planned.operation.brings_data() {
            self.oracle.store(region.place(start, bytes.len()), &bytes);
            region.memory.write(start, &bytes).expect("sources lie inside the region");
        }
        (region.sge(start, planned.length), bytes)
    }

    /// What the request is for the queue, and for the oracle.
    fn link_target(
        &mut self,
        number: usize,
        planned: &LinkRequest,
        data: Vec<u8>,
    ) -> (SendOperation, LinkSend) {
        let immediate = Immediate(self.rng.next_u32().to_le_bytes());
        let (operation, kind, effect) = match planned.operation {
            Operation::Write | Operation::WriteImmediate => {
                self.link_write(number, planned, immediate)
            }
            Operation::Read => self.link_read(number, planned),
            Operation::FetchAdd => self.link_add(number),
            _ => {
                let has_immediate = planned.operation == Operation::SendImmediate;
                let send = self.link_send(number, has_immediate.then_some(immediate));
                (send, CompletionKind::Send, LinkEffect::None)
            }
        };
        let message = planned.operation.is_message().then(|| {
            let is_plain = planned.operation == Operation::Send;
            let attachment =
                if is_plain { Attachment::None } else { Attachment::Immediate(immediate) };
            (self.named_model(number, planned), attachment)
        });
        let (solicited, defect) = (planned.solicited, planned.defect);
        let model =
            LinkSend { id: 0, kind, message, signaled: false, solicited, data, effect, defect };
        (operation, model)
    }

    fn named_model(&self, number: usize, planned: &LinkRequest) -> Option<SharedId> {
        let shared = self.shared();
        let is_xrc = shared.links[number].plan.kind == LinkKind::Xrc;
        is_xrc.then(|| shared.queues[planned.queue].id)
    }

    fn link_write(
        &mut self,
        number: usize,
        planned: &LinkRequest,
        immediate: Immediate,
    ) -> (SendOperation, CompletionKind, LinkEffect) {
        let elsewhere = self.nodes[self.shared().plan.node].elsewhere.remote(GUARD);
        let link = &mut self.shared_mut().links[number];
        let at = link.target_at;
        link.target_at += planned.length;
        let is_wrong = planned.defect == Some(LinkDefect::RemoteDomain);
        let remote = if is_wrong { elsewhere } else { link.targets.remote(at) };
        let effect = match planned.defect {
            None => LinkEffect::Write(link.targets.place(at, planned.length)),
            Some(_) => LinkEffect::None,
        };
        let operation = match planned.operation {
            Operation::Write => SendOperation::Write(remote),
            _ => SendOperation::WriteWithImmediate(remote, immediate),
        };
        (operation, CompletionKind::Write, effect)
    }

    fn link_read(
        &mut self,
        number: usize,
        planned: &LinkRequest,
    ) -> (SendOperation, CompletionKind, LinkEffect) {
        let link = &self.shared().links[number];
        let start = GUARD + WORD;
        debug_assert!(planned.length <= LIBRARY, "READs stay inside");
        let held = link.targets.memory.to_vec(start, planned.length).expect("it is inside");
        let landing = link.sources.place(link.source_at - planned.length, planned.length);
        let operation = SendOperation::Read(link.targets.remote(start));
        (operation, CompletionKind::Read, LinkEffect::Read(landing, held))
    }

    fn link_add(&mut self, number: usize) -> (SendOperation, CompletionKind, LinkEffect) {
        let add = self.rng.next_u64();
        let link = &self.shared().links[number];
        let landing = link.sources.place(link.source_at - WORD, WORD);
        let operation = SendOperation::FetchAdd { remote: link.targets.remote(GUARD), add };
        let effect = LinkEffect::Atomic(landing, Change::Add(add));
        (operation, CompletionKind::FetchAdd, effect)
    }

    fn link_send(&self, number: usize, immediate: Option<Immediate>) -> SendOperation {
        let link = &self.shared().links[number];
        let queue_pair = link.receiver.number();
        match (link.handle, immediate) {
            (Some(address), immediate) => {
                let to = Datagram { address, queue_pair, qkey: QKEY };
                SendOperation::SendTo { to, immediate }
            }
            (None, Some(immediate)) => SendOperation::SendWithImmediate(immediate),
            (None, None) => SendOperation::Send,
        }
    }

    /// The queue that a request names, right or wrong; nothing if its transport names none.
    fn named_queue(&mut self, number: usize, planned: &LinkRequest) -> Option<Srqn> {
        let shared = self.shared();
        if shared.links[number].plan.kind != LinkKind::Xrc {
            return None;
        }
        let right = shared.queues[planned.queue].queue.number().expect("it is an XRC queue");
        Some(match planned.defect {
            Some(LinkDefect::NoSuchQueue) => Srqn::new(right.value() ^ 0x80_0000),
            Some(LinkDefect::ForeignQueue) => shared.foreign,
            _ => right,
        })
    }
}
