//! Control: what applications create, change and destroy. Nothing here is on the data path.

use super::{AsyncEvent, ControlError, Counter, Engine, QueuePairOptions, QueuePairStatus};
use crate::memory::DomainId;
use crate::queue::sync::Arc;
use crate::queue::{
    AddressHandleId, AddressVector, CompletionQueue, QueueCapacities, QueuePairAttributes,
    QueuePairKind, QueuePairQueues, ReceiveQueue, Sharing, XrcDomainId,
};
use crate::time::Instant;
use crate::transport::{Device, History, Peer, QueuePair};
use crate::wire::{Flow, Qpn};

/// What a queue pair is made of, once it is checked.
pub(super) struct NewPair {
    pub(super) kind: QueuePairKind,
    pub(super) domain: DomainId,
    /// Of sends, of receives.
    pub(super) completions: (Arc<CompletionQueue>, Arc<CompletionQueue>),
    pub(super) capacities: QueueCapacities,
    pub(super) signal_all: bool,
    pub(super) shared: Option<Arc<ReceiveQueue>>,
    pub(super) xrc_domain: Option<XrcDomainId>,
}

impl Engine {
    /// A new protection domain.
    ///
    /// # Errors
    /// The device's limit is reached.
    pub fn allocate_domain(&mut self) -> Result<DomainId, ControlError> {
        let limit = self.options.limits.domains;
        if self.domains.len() >= limit as usize {
            return Err(ControlError::Limit { what: "protection domains", limit });
        }
        self.next_domain += 1;
        let domain = DomainId(self.next_domain);
        self.domains.insert(domain);
        Ok(domain)
    }

    /// Ends a protection domain.
    ///
    /// # Errors
    /// It does not exist, or memory or queue pairs still lie in it.
    pub fn release_domain(&mut self, domain: DomainId) -> Result<(), ControlError> {
        self.check_domain(domain)?;
        let (regions, windows) = self.keys.count_in(domain);
        let pairs = self.live_pairs().filter(|pair| pair.base.domain == domain).count();
        let queues = self.shared_queues.count_in(domain);
        let handles = self.handles.count_in(domain);
        if regions + windows + pairs + queues + handles > 0 {
            return Err(ControlError::DomainBusy { regions, windows, pairs, queues, handles });
        }
        self.domains.remove(&domain);
        Ok(())
    }

    pub(super) fn check_domain(&self, domain: DomainId) -> Result<(), ControlError> {
        if self.domains.contains(&domain) { Ok(()) } else { Err(ControlError::NoSuchDomain) }
    }

    /// A new completion queue for at least `capacity` completions.
    ///
    /// # Errors
    /// Capacity 0, or a limit of the device.
    pub fn create_completion_queue(
        &mut self,
        capacity: u32,
    ) -> Result<Arc<CompletionQueue>, ControlError> {
        let limits = &self.options.limits;
        if self.completion_queues.len() >= limits.completion_queues as usize {
            let limit = limits.completion_queues;
            return Err(ControlError::Limit { what: "completion queues", limit });
        }
        check_range("completion queue entries", capacity, 1, limits.completions)?;
        let queue = Arc::new(CompletionQueue::new(capacity));
        self.completion_queues.push(Arc::clone(&queue));
        Ok(queue)
    }

    /// Ends a completion queue.
    ///
    /// # Errors
    /// It belongs to another device, or queue pairs still use it.
    pub fn destroy_completion_queue(
        &mut self,
        queue: &Arc<CompletionQueue>,
    ) -> Result<(), ControlError> {
        let position = self.position_of(queue)?;
        let users = self.live_pairs().filter(|pair| {
            let queues = &pair.base.queues;
            Arc::ptr_eq(queues.send_completions(), queue)
                || Arc::ptr_eq(queues.receive_completions(), queue)
        });
        let users = users.count() + self.shared_queues.count_with(queue);
        if users > 0 {
            return Err(ControlError::CompletionQueueBusy { users });
        }
        self.completion_queues.swap_remove(position);
        Ok(())
    }

    pub(super) fn position_of(&self, queue: &Arc<CompletionQueue>) -> Result<usize, ControlError> {
        let mut queues = self.completion_queues.iter();
        queues.position(|known| Arc::ptr_eq(known, queue)).ok_or(ControlError::NoSuchQueue)
    }

    /// A new queue pair, in RESET.
    ///
    /// # Errors
    /// A transport that is not supported, an unknown domain or completion queue, sizes out of
    /// range, or a limit of the device.
    pub fn create_queue_pair(
        &mut self,
        options: &QueuePairOptions,
    ) -> Result<Arc<QueuePairQueues>, ControlError> {
        self.create_queue_pair_sharing(options, None)
    }

    /// The same, with receives from a shared queue; those of the options' own capacities do not
    /// count then.
    ///
    /// # Errors
    /// As [`Engine::create_queue_pair`], or the shared queue is not of this device.
    pub fn create_queue_pair_sharing(
        &mut self,
        options: &QueuePairOptions,
        shared: Option<&Arc<ReceiveQueue>>,
    ) -> Result<Arc<QueuePairQueues>, ControlError> {
        if options.kind == QueuePairKind::XrcTarget {
            return Err(ControlError::TargetWithoutXrcDomain);
        }
        if let Some(shared) = shared {
            self.check_shared(shared, options.kind)?;
        }
        self.check_domain(options.domain)?;
        self.position_of(&options.send_completions)?;
        self.position_of(&options.receive_completions)?;
        self.check_capacities(&options.capacities)?;
        self.add_pair(NewPair {
            kind: options.kind,
            domain: options.domain,
            completions: (
                Arc::clone(&options.send_completions),
                Arc::clone(&options.receive_completions),
            ),
            capacities: options.capacities,
            signal_all: options.signal_all,
            shared: shared.map(Arc::clone),
            xrc_domain: None,
        })
    }

    pub(super) fn add_pair(&mut self, new: NewPair) -> Result<Arc<QueuePairQueues>, ControlError> {
        let limit = self.options.limits.queue_pairs;
        if self.by_number.len() >= limit as usize {
            return Err(ControlError::Limit { what: "queue pairs", limit });
        }
        let number = self.next_number();
        let slot = self.free_slots.pop().unwrap_or(self.pairs.len() as u32);
        let queues = Arc::new(QueuePairQueues::new(
            number,
            new.kind,
            slot as usize,
            &new.capacities,
            new.completions,
            Arc::clone(&self.doorbells),
            new.shared,
        ));
        let mut pair = QueuePair::new(
            slot,
            Arc::clone(&queues),
            new.domain,
            new.signal_all,
            self.options.migration,
            self.device().source_port(number, Qpn::default()),
            new.xrc_domain,
        );
        pair.base.finite_credits = self.options.finite_credits;
        if slot as usize == self.pairs.len() {
            self.pairs.push(None);
            self.histories.push(None);
        }
        self.histories[slot as usize] = Some(Box::default());
        self.pairs[slot as usize] = Some(Box::new(pair));
        self.pair_counters.begin(slot);
        self.by_number.insert(number, slot);
        Ok(queues)
    }

    fn check_capacities(&self, capacities: &QueueCapacities) -> Result<(), ControlError> {
        let limits = &self.options.limits;
        let requests = limits.work_requests;
        check_range("send work requests", capacities.send_requests, 0, requests)?;
        check_range("receive work requests", capacities.receive_requests, 0, requests)?;
        check_range("send segments", capacities.send_segments, 0, limits.segments)?;
        check_range("receive segments", capacities.receive_segments, 0, limits.segments)?;
        check_range("inline bytes", capacities.inline_bytes, 0, limits.inline_bytes)
    }

    /// The next unused number: our slot in the top 8 bits, then an index that started at random and
    /// counts up, so that a number is not used again soon.
    fn next_number(&mut self) -> Qpn {
        loop {
            let index = self.next_index;
            self.next_index = self.next_index.wrapping_add(1);
            let Some(number) = self.options.number(index) else { continue };
            if !self.by_number.contains_key(&number) {
                return number;
            }
        }
    }

    /// A new shared receive queue; the keys of its receives count in `domain`.
    ///
    /// # Errors
    /// Unknown domain, sizes out of range, or a limit of the device.
    pub fn create_shared_receive_queue(
        &mut self,
        domain: DomainId,
        requests: u32,
        segments: u32,
    ) -> Result<Arc<ReceiveQueue>, ControlError> {
        self.add_shared_queue(requests, segments, Sharing { domain, xrc: None })
    }

    pub(super) fn add_shared_queue(
        &mut self,
        requests: u32,
        segments: u32,
        sharing: Sharing,
    ) -> Result<Arc<ReceiveQueue>, ControlError> {
        self.check_domain(sharing.domain)?;
        let limits = &self.options.limits;
        if self.shared_queues.len() >= limits.shared_receive_queues as usize {
            let limit = limits.shared_receive_queues;
            return Err(ControlError::Limit { what: "shared receive queues", limit });
        }
        check_range("receive work requests", requests, 1, limits.work_requests)?;
        check_range("receive segments", segments, 0, limits.segments)?;
        let queue = Arc::new(ReceiveQueue::shared(requests, segments as usize, sharing));
        self.shared_queues.insert(Arc::clone(&queue));
        Ok(queue)
    }

    /// Asks for one event when fewer than `limit` receives are left in a shared queue; 0 asks for
    /// none.
    ///
    /// # Errors
    /// The queue is not of this device, or has fewer entries than `limit`.
    pub fn set_shared_limit(
        &mut self,
        queue: &Arc<ReceiveQueue>,
        limit: u32,
    ) -> Result<(), ControlError> {
        self.find_shared(queue)?;
        check_range("receives as a limit", limit, 0, queue.capacity())?;
        queue.set_limit(limit);
        if queue.take_limit_event() {
            self.event(AsyncEvent::SharedReceiveQueueLimit(Arc::clone(queue)));
        }
        Ok(())
    }

    /// Reports an event of the port or of the whole device, which only what surrounds the engine
    /// can see.
    pub fn report(&mut self, event: AsyncEvent) {
        if matches!(event, AsyncEvent::PortError) {
            self.counters.count(Counter::PortDown);
        }
        self.event(event);
    }

    /// Reports an event that belongs to no queue pair.
    fn event(&mut self, event: AsyncEvent) {
        let counter = if self.effects.event(event) { Counter::Event } else { Counter::LostEvent };
        self.counters.count(counter);
    }

    /// Ends a shared receive queue, and all receives that are posted to it without completions. A
    /// message that is arriving in a receive of an XRC shared receive queue cannot end any more.
    ///
    /// # Errors
    /// It is not of this device, or queue pairs still use it. XRC targets do not count: they serve
    /// whatever exists.
    pub fn destroy_shared_receive_queue(
        &mut self,
        queue: &Arc<ReceiveQueue>,
    ) -> Result<(), ControlError> {
        self.find_shared(queue)?;
        let uses = |pair: &&QueuePair| Arc::ptr_eq(&pair.base.queues.receive, queue);
        let users = self.live_pairs().filter(uses).count();
        if users > 0 {
            return Err(ControlError::SharedQueueBusy { users });
        }
        self.shared_queues.remove(queue);
        queue.leave_completions();
        for pair in self.pairs.iter_mut().flatten() {
            if pair.base.xrc_domain.is_some() {
                pair.leave_shared_queue(queue);
            }
        }
        Ok(())
    }

    fn find_shared(&self, queue: &Arc<ReceiveQueue>) -> Result<(), ControlError> {
        let known = self.shared_queues.contains(queue);
        known.then_some(()).ok_or(ControlError::NoSuchSharedQueue)
    }

    /// Whether a queue pair of a kind may take its receives from a shared queue.
    fn check_shared(
        &self,
        queue: &Arc<ReceiveQueue>,
        kind: QueuePairKind,
    ) -> Result<(), ControlError> {
        self.find_shared(queue)?;
        if kind == QueuePairKind::XrcInitiator {
            return Err(ControlError::InitiatorWithReceives);
        }
        if queue.number().is_some() {
            return Err(ControlError::XrcSharedQueue);
        }
        Ok(())
    }

    /// A new address handle, for datagrams of queue pairs of `domain`.
    ///
    /// # Errors
    /// Unknown domain, an address that cannot be reached from our address of that index, or a limit
    /// of the device.
    pub fn create_address_handle(
        &mut self,
        domain: DomainId,
        address: &AddressVector,
    ) -> Result<AddressHandleId, ControlError> {
        self.check_domain(domain)?;
        let limit = self.options.limits.address_handles;
        if self.handles.len() >= limit {
            return Err(ControlError::Limit { what: "address handles", limit });
        }
        let device = self.device();
        device.check_address(address)?;
        let source = self.options.gids[usize::from(address.gid_index)];
        let source_port = device.source_port(Qpn::default(), Qpn::default());
        let flow = Flow { source, destination: address.destination, source_port };
        let path = self.paths.join(address.destination);
        let traffic_class = self.options.congestion.traffic_class(address.traffic_class);
        let peer = Peer { flow, traffic_class, path };
        Ok(self.handles.create(domain, peer))
    }

    /// Ends an address handle. Requests that name it and were not sent yet fail.
    ///
    /// # Errors
    /// There is no such handle.
    pub fn destroy_address_handle(&mut self, id: AddressHandleId) -> Result<(), ControlError> {
        let peer = self.handles.destroy(id).ok_or(ControlError::NoSuchHandle)?;
        self.paths.leave(peer.path, u32::MAX);
        Ok(())
    }

    /// Changes a queue pair's attributes, all or none.
    ///
    /// # Errors
    /// There is no such queue pair, or an attribute is wrong; the error names it.
    pub fn modify_queue_pair(
        &mut self,
        now: Instant,
        number: Qpn,
        attributes: &QueuePairAttributes,
    ) -> Result<(), ControlError> {
        let slot = self.slot_of(number)?;
        let (gids, ports) = (self.options.gids.clone(), self.source_ports.clone());
        let (mtu, rd_atomic) = (self.mtu, self.options.limits.rd_atomic);
        let device = Device { gids: &gids, mtu, rd_atomic, source_ports: &ports };
        self.with_pair(slot, now, |pair, ctx| pair.modify(ctx, &device, attributes))
            .ok_or(ControlError::NoSuchPair(number))?
            .map_err(ControlError::Modify)
    }

    /// A queue pair's attributes and sizes.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn query_queue_pair(&self, number: Qpn) -> Result<QueuePairStatus, ControlError> {
        let slot = self.slot_of(number)?;
        let pair = self.pairs[slot as usize].as_ref().ok_or(ControlError::NoSuchPair(number))?;
        let queues = &pair.base.queues;
        Ok(QueuePairStatus {
            attributes: pair.attributes(),
            capacities: queues.capacities(),
            kind: queues.kind(),
            domain: pair.base.domain,
            xrc_domain: pair.base.xrc_domain,
            signal_all: pair.base.signal_all,
            is_draining: pair.is_draining(),
        })
    }

    /// What a queue pair remembers: its last events, and the facts of its failures.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn history(&self, number: Qpn) -> Result<History, ControlError> {
        let slot = self.slot_of(number)? as usize;
        let pair = self.pairs[slot].as_ref().ok_or(ControlError::NoSuchPair(number))?;
        let history = self.histories[slot].as_ref().ok_or(ControlError::NoSuchPair(number))?;
        Ok(history.snapshot(&pair.base))
    }

    /// Ends a queue pair. Completions that it has given stay in their queues; outstanding work
    /// requests give none. Of an XRC TGT queue pair that is in use more than once (see
    /// [`Engine::open_xrc_target`]) only a use ends.
    ///
    /// # Errors
    /// There is no such queue pair, or it is attached to multicast groups.
    pub fn destroy_queue_pair(&mut self, number: Qpn) -> Result<(), ControlError> {
        let slot = self.slot_of(number)?;
        self.check_detached(number, slot)?;
        if !self.xrc.release_target(number) {
            return Ok(());
        }
        self.with_pair(slot, Instant::ZERO, |pair, ctx| {
            pair.forget_claim();
            pair.base.queues.set_state(crate::queue::QueuePairState::Reset);
            pair.base.queues.leave_completions();
            pair.leave_path(ctx);
            ctx.keys.unbind_all_over(number);
        });
        self.notifications.forget(slot);
        self.ready.remove(slot);
        self.held.remove(slot);
        self.deadlines.remove(slot);
        self.by_number.remove(&number);
        self.pairs[slot as usize] = None;
        self.histories[slot as usize] = None;
        self.pair_counters.end(slot);
        self.free_slots.push(slot);
        Ok(())
    }

    fn device(&self) -> Device<'_> {
        Device {
            gids: &self.options.gids,
            mtu: self.mtu,
            rd_atomic: self.options.limits.rd_atomic,
            source_ports: &self.source_ports,
        }
    }

    pub(super) fn slot_of(&self, number: Qpn) -> Result<u32, ControlError> {
        self.by_number.get(&number).copied().ok_or(ControlError::NoSuchPair(number))
    }

    pub(super) fn live_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.pairs.iter().flatten().map(|pair| &**pair)
    }
}

fn check_range(what: &'static str, value: u32, least: u32, most: u32) -> Result<(), ControlError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(ControlError::Range { what, value, least, most })
    }
}
