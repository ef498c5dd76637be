//! A network inside one process: ends with addresses, and a bounded queue in front of each.
//!
//! ```text
//!   end A ──fill──► slot ──┐                       ┌──► inbox of B ──sink──► end B
//!                          ├─ by destination ──────┤
//!   end C ──fill──► slot ──┘      address          └──► inbox of A … (full: dropped, counted)
//!            ▲                                                    │
//!            └──────────── pool of slots, fixed ◄─────────────────┘
//! ```
//!
//! Slots travel as boxes, so a burst is written once and read in place. The pool has one slot for
//! each place in an inbox and two for each end (one being read or filled, and for a multicast group
//! one being copied to): it never runs dry, and a full inbox is the only reason for a loss.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crossbeam::queue::ArrayQueue;

use super::{Event, JoinError, Link, LinkStatistics, is_sendable};
use crate::engine::{IdentificationRule, Port, PortCapabilities, SourcePorts, UnreachableKind};
use crate::wire::{Flow, ReceivedBurst, SentBurst};

/// Sizes of an in-memory network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Bytes of the largest IP packet, 576 to 65535.
    pub mtu: usize,
    /// The most segments in a burst, at least 1.
    pub max_segments: usize,
    /// The most bytes in a burst; made large enough for one packet.
    pub max_burst_bytes: usize,
    /// Bursts that wait at an end before further ones are dropped, at least 1.
    pub queue: usize,
    /// Whether an end has a descriptor to sleep on. Without one no system call is ever made, and
    /// the end must be polled.
    pub descriptor: bool,
}

impl Default for MemoryOptions {
    /// An Ethernet with jumbo frames and the burst sizes of a UDP socket.
    fn default() -> Self {
        Self { mtu: 9000, max_segments: 64, max_burst_bytes: 65_507, queue: 64, descriptor: true }
    }
}

/// A burst on its way.
struct Slot {
    burst: SentBurst,
    bytes: Box<[u8]>,
}

/// Where bursts wait for one end.
struct Inbox {
    address: IpAddr,
    bursts: ArrayQueue<Box<Slot>>,
    overflowed: AtomicU64,
    bell: Option<Bell>,
    /// Groups that the end has joined.
    groups: RwLock<Vec<IpAddr>>,
}

impl Inbox {
    fn has_joined(&self, group: IpAddr) -> bool {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).contains(&group)
    }

    fn change_groups(&self, change: impl FnOnce(&mut Vec<IpAddr>)) {
        change(&mut self.groups.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Queues a burst, or gives it back because the inbox is full.
    fn push(&self, slot: Box<Slot>) -> Result<(), Box<Slot>> {
        self.bursts.push(slot).inspect_err(|slot| {
            self.overflowed.fetch_add(slot.burst.packets() as u64, Ordering::Relaxed);
        })?;
        self.wake();
        Ok(())
    }

    /// Makes the descriptor readable unless it is already.
    fn wake(&self) {
        let Some(bell) = &self.bell else { return };
        // Pairs with the fence in `quieten`: either this sees the flag lowered, or the receiver's
        // pops, which follow, see what was queued before.
        fence(Ordering::SeqCst);
        if !bell.rung.load(Ordering::Relaxed) {
            bell.ring();
        }
    }

    /// Makes the descriptor unreadable, before the pops that empty the inbox.
    fn quieten(&self) {
        if let Some(bell) = &self.bell
            && bell.rung.load(Ordering::Relaxed)
        {
            bell.quieten();
            fence(Ordering::SeqCst);
        }
    }
}

/// A descriptor and whether it is readable, changed together under a lock, so that a busy inbox
/// costs no system call for each burst and an empty one is never left readable.
struct Bell {
    event: Event,
    rung: AtomicBool,
    change: Mutex<()>,
}

impl Bell {
    fn new() -> io::Result<Self> {
        Ok(Self { event: Event::new()?, rung: AtomicBool::new(false), change: Mutex::new(()) })
    }

    fn ring(&self) {
        let _change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.rung.swap(true, Ordering::Relaxed) {
            self.event.signal();
        }
    }

    fn quieten(&self) {
        let _change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        self.event.clear();
        self.rung.store(false, Ordering::Relaxed);
    }
}

/// What all ends share.
struct Hub {
    inboxes: Vec<Inbox>,
    #[allow(clippy::vec_box, reason = "slots travel as boxes between the pool and the inboxes")]
    /// The slot that was given back last is taken first: the processor still has it in its cache.
    pool: Mutex<Vec<Box<Slot>>>,
}

impl Hub {
    fn inbox_of(&self, address: IpAddr) -> Option<&Inbox> {
        self.inboxes.iter().find(|inbox| inbox.address == address)
    }

    /// Puts a slot back where the next sender finds it.
    fn recycle(&self, slot: Box<Slot>) {
        self.pool().push(slot);
    }

    /// A slot that nobody uses.
    fn take(&self) -> Option<Box<Slot>> {
        self.pool().pop()
    }

    #[allow(clippy::vec_box, reason = "as above")]
    fn pool(&self) -> MutexGuard<'_, Vec<Box<Slot>>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end of an in-memory network.
pub struct MemoryLink {
    hub: Arc<Hub>,
    place: usize,
    capabilities: PortCapabilities,
    descriptors: Vec<RawFd>,
    statistics: LinkStatistics,
}

/// Two ends that reach each other (and themselves) at these addresses.
///
/// # Errors
/// Those of [`hub`].
pub fn pair(
    addresses: [IpAddr; 2],
    options: &MemoryOptions,
) -> io::Result<(MemoryLink, MemoryLink)> {
    let mut ends = hub(&addresses, options)?.into_iter();
    match (ends.next(), ends.next()) {
        (Some(first), Some(second)) => Ok((first, second)),
        _ => unreachable!("a hub has as many ends as addresses"),
    }
}

/// One end for each address; every end reaches all of them, itself included.
///
/// # Errors
/// Invalid input when an address is given twice; what the kernel answers when it has no
/// descriptors left.
pub fn hub(addresses: &[IpAddr], options: &MemoryOptions) -> io::Result<Vec<MemoryLink>> {
    if let Some(twice) = first_repeated(addresses) {
        let message = format!("two ends of an in-memory network have the address {twice}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let capabilities = capabilities(options);
    let queue = options.queue.max(1);
    let inboxes: Vec<Inbox> = addresses
        .iter()
        .map(|address| inbox(*address, queue, options.descriptor))
        .collect::<io::Result<_>>()?;
    let slots = addresses.len() * (queue + 2);
    let pool = Mutex::new(Vec::with_capacity(slots));
    let hub = Hub { inboxes, pool };
    for _ in 0..slots {
        hub.recycle(empty_slot(capabilities.max_burst_bytes));
    }
    let hub = Arc::new(hub);
    Ok((0..addresses.len()).map(|place| end(&hub, place, &capabilities)).collect())
}

fn first_repeated(addresses: &[IpAddr]) -> Option<IpAddr> {
    let repeated = |(index, address): (usize, &IpAddr)| addresses[..index].contains(address);
    addresses.iter().enumerate().find(|pair| repeated(*pair)).map(|(_, address)| *address)
}

fn capabilities(options: &MemoryOptions) -> PortCapabilities {
    let mtu = options.mtu.clamp(576, 65_535);
    PortCapabilities {
        mtu,
        max_segments: options.max_segments.max(1),
        max_burst_bytes: options.max_burst_bytes.max(mtu),
        identification: IdentificationRule::BasePlusIndex,
        source_ports: SourcePorts::Any,
    }
}

fn inbox(address: IpAddr, queue: usize, descriptor: bool) -> io::Result<Inbox> {
    Ok(Inbox {
        address,
        bursts: ArrayQueue::new(queue),
        overflowed: AtomicU64::new(0),
        bell: descriptor.then(Bell::new).transpose()?,
        groups: RwLock::default(),
    })
}

fn empty_slot(bytes: usize) -> Box<Slot> {
    let nowhere = IpAddr::from([0, 0, 0, 0]);
    let flow = Flow { source: nowhere, destination: nowhere, source_port: 0 };
    let burst =
        SentBurst { flow, traffic_class: 0, first_identification: 0, segment: 1, length: 0 };
    Box::new(Slot { burst, bytes: vec![0; bytes].into_boxed_slice() })
}

fn end(hub: &Arc<Hub>, place: usize, capabilities: &PortCapabilities) -> MemoryLink {
    let bell = hub.inboxes[place].bell.as_ref();
    MemoryLink {
        hub: Arc::clone(hub),
        place,
        capabilities: capabilities.clone(),
        descriptors: bell.map(|bell| bell.event.descriptor()).into_iter().collect(),
        statistics: LinkStatistics::default(),
    }
}

impl MemoryLink {
    /// Sends what lies in `slot`; the slot goes back to the pool if it cannot be delivered.
    fn send(&mut self, slot: Box<Slot>) {
        let (packets, bytes) = (slot.burst.packets(), slot.burst.length);
        if !is_sendable(&slot.burst, &self.capabilities) {
            debug_assert!(false, "the engine made a burst that breaks the port's limits");
            self.statistics.refused += packets as u64;
            return self.hub.recycle(slot);
        }
        if slot.burst.flow.destination.is_multicast() {
            self.statistics.sent.add(packets, bytes);
            return self.send_to_group(slot);
        }
        let Some(inbox) = self.hub.inbox_of(slot.burst.flow.destination) else {
            self.statistics.unreachable += packets as u64;
            return self.hub.recycle(slot);
        };
        self.statistics.sent.add(packets, bytes);
        if let Err(slot) = inbox.push(slot) {
            self.hub.recycle(slot);
        }
    }
}

impl MemoryLink {
    /// A copy for each end that has joined, this one included. A group without members is no error:
    /// nobody can know.
    fn send_to_group(&self, slot: Box<Slot>) {
        let group = slot.burst.flow.destination;
        for inbox in self.hub.inboxes.iter().filter(|inbox| inbox.has_joined(group)) {
            let Some(mut copy) = self.hub.take() else { break };
            copy.burst = slot.burst;
            copy.bytes[..slot.burst.length].copy_from_slice(&slot.bytes[..slot.burst.length]);
            if let Err(copy) = inbox.push(copy) {
                self.hub.recycle(copy);
            }
        }
        self.hub.recycle(slot);
    }
}

impl Port for MemoryLink {
    fn capabilities(&self) -> &PortCapabilities {
        &self.capabilities
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        let inbox = &self.hub.inboxes[self.place];
        inbox.quieten();
        let mut packets = 0;
        while packets < budget
            && let Some(slot) = inbox.bursts.pop()
        {
            packets += slot.burst.packets();
            self.statistics.received.add(slot.burst.packets(), slot.burst.length);
            sink(&slot.burst.as_received(&slot.bytes));
            self.hub.recycle(slot);
        }
        if !inbox.bursts.is_empty() {
            inbox.wake();
        }
        packets
    }

    fn is_pressed(&mut self) -> bool {
        let bursts = &self.hub.inboxes[self.place].bursts;
        bursts.len() > bursts.capacity() / 2
    }

    /// There is no ICMP in memory.
    fn take_unreachable(&mut self, _: bool, _: &mut dyn FnMut(IpAddr, UnreachableKind)) {}

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        let mut packets = 0;
        while packets < budget
            && let Some(mut slot) = self.hub.take()
        {
            let Some(burst) = fill(&mut slot.bytes) else {
                self.hub.recycle(slot);
                break;
            };
            packets += burst.packets();
            slot.burst = burst;
            self.send(slot);
        }
        packets
    }
}

impl Link for MemoryLink {
    fn local_address(&self) -> IpAddr {
        self.hub.inboxes[self.place].address
    }

    fn descriptors(&self) -> &[RawFd] {
        &self.descriptors
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        self.hub.inboxes[self.place].change_groups(|groups| {
            if !groups.contains(&group) {
                groups.push(group);
            }
        });
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) {
        self.hub.inboxes[self.place].change_groups(|groups| groups.retain(|other| *other != group));
    }

    fn statistics(&self) -> LinkStatistics {
        let overflowed = self.hub.inboxes[self.place].overflowed.load(Ordering::Relaxed);
        LinkStatistics { overflowed, ..self.statistics }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Identification;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn addressed(from: u8, to: u8, segment: usize, length: usize) -> SentBurst {
        let flow =
            Flow { source: address(from), destination: address(to), source_port: 0xc000 + 7 };
        SentBurst { flow, traffic_class: 0x6a, first_identification: 9, segment, length }
    }

    /// Sends `count` bursts of `length` bytes, each filled with its number.
    fn send(end: &mut MemoryLink, to: u8, count: usize, segment: usize, length: usize) -> usize {
        let from = match end.local_address() {
            IpAddr::V4(own) => own.octets()[3],
            IpAddr::V6(_) => unreachable!("the tests use IPv4"),
        };
        let mut made = 0;
        end.transmit(usize::MAX, &mut |slot| {
            if made == count {
                return None;
            }
            slot[..length].fill(made as u8);
            made += 1;
            Some(addressed(from, to, segment, length))
        })
    }

    fn received(end: &mut MemoryLink, budget: usize) -> Vec<(u8, Vec<usize>)> {
        let mut bursts = Vec::new();
        end.receive(budget, &mut |burst| {
            bursts.push((burst.bytes[0], burst.segments().map(<[u8]>::len).collect()));
        });
        bursts
    }

    fn is_readable(end: &MemoryLink) -> bool {
        let mut poll =
            [libc::pollfd { fd: end.descriptors()[0], events: libc::POLLIN, revents: 0 }];
        #[allow(unsafe_code)]
        // SAFETY: the array is one initialised pollfd, and the call returns at once.
        let ready = unsafe { libc::poll(poll.as_mut_ptr(), 1, 0) };
        ready == 1
    }

    #[test]
    fn a_burst_arrives_as_it_was_sent() {
        let (mut a, mut b) = pair([address(1), address(2)], &MemoryOptions::default()).unwrap();
        assert_eq!(send(&mut a, 2, 1, 1000, 2500), 3);
        let mut seen = 0;
        b.receive(64, &mut |burst| {
            seen += 1;
            assert_eq!(burst.flow, addressed(1, 2, 1000, 2500).flow);
            assert_eq!(burst.traffic_class, 0x6a);
            assert_eq!(burst.identification, Identification::Seen { first: 9, flags: 0x4000 });
            assert_eq!(burst.segments().map(<[u8]>::len).collect::<Vec<_>>(), [1000, 1000, 500]);
        });
        assert_eq!(seen, 1);
        assert_eq!(b.statistics().received, a.statistics().sent);
        assert_eq!(b.statistics().received.packets, 3);
    }

    #[test]
    fn a_full_queue_drops_the_newest_and_counts_packets() {
        let options = MemoryOptions { queue: 4, ..MemoryOptions::default() };
        let (mut a, mut b) = pair([address(1), address(2)], &options).unwrap();
        for _ in 0..50 {
            send(&mut a, 2, 6, 100, 200);
            let numbers: Vec<u8> = received(&mut b, 1000).iter().map(|burst| burst.0).collect();
            assert_eq!(numbers, [0, 1, 2, 3], "the pool must not run dry after drops");
        }
        assert_eq!(b.statistics().overflowed, 50 * 2 * 2);
        assert_eq!(a.statistics().sent.bursts, 50 * 6);
    }

    #[test]
    fn a_hub_delivers_by_address_and_counts_what_nobody_has() {
        let ends = [address(1), address(2), address(3)];
        let mut ends = hub(&ends, &MemoryOptions::default()).unwrap();
        send(&mut ends[0], 3, 1, 10, 10);
        send(&mut ends[0], 1, 2, 10, 10);
        send(&mut ends[0], 9, 1, 10, 30);
        assert_eq!(received(&mut ends[0], 64).len(), 2, "an end reaches itself");
        assert!(received(&mut ends[1], 64).is_empty());
        assert_eq!(received(&mut ends[2], 64).len(), 1);
        assert_eq!(ends[0].statistics().unreachable, 3);
    }

    #[test]
    fn a_group_gets_a_copy_at_every_end_that_has_joined_and_full_queues_spoil_nothing() {
        let addresses = [address(1), address(2), address(3)];
        let options = MemoryOptions { queue: 4, ..MemoryOptions::default() };
        let mut ends = hub(&addresses, &options).unwrap();
        let group = IpAddr::from([224, 0, 0, 77]);
        let flow = Flow { source: address(1), destination: group, source_port: 0xc000 };
        let send = |end: &mut MemoryLink, count: u8| {
            let mut numbers = 0..count;
            end.transmit(usize::MAX, &mut |slot| {
                slot[..20].fill(numbers.next()?);
                Some(SentBurst { flow, segment: 10, length: 20, ..addressed(1, 2, 10, 20) })
            })
        };
        assert_eq!(send(&mut ends[0], 1), 2, "a group without members");
        for _ in 0..2 {
            ends[0].join(group).unwrap();
            ends[2].join(group).unwrap();
        }
        for _ in 0..50 {
            send(&mut ends[0], 6);
            for end in [0, 2] {
                let numbers: Vec<u8> =
                    received(&mut ends[end], 1000).iter().map(|burst| burst.0).collect();
                assert_eq!(numbers, [0, 1, 2, 3], "once each, and the pool does not run dry");
            }
        }
        assert_eq!(ends[2].statistics().overflowed, 50 * 2 * 2);
        ends[2].leave(group);
        send(&mut ends[0], 1);
        assert_eq!(received(&mut ends[0], 64).len(), 1);
        assert!(received(&mut ends[1], 64).is_empty() && received(&mut ends[2], 64).is_empty());
    }

    #[test]
    fn one_address_cannot_have_two_ends() {
        let error = hub(&[address(1), address(1)], &MemoryOptions::default()).err().unwrap();
        assert!(error.to_string().contains("10.0.0.1"), "{error}");
    }

    #[test]
    fn a_budget_stops_both_directions_at_about_its_size() {
        let (mut a, mut b) = pair([address(1), address(2)], &MemoryOptions::default()).unwrap();
        let sent = a.transmit(10, &mut |_| Some(addressed(1, 2, 100, 400)));
        assert_eq!(sent, 12, "a burst that was begun is finished");
        assert_eq!(received(&mut b, 5).len(), 2);
        assert_eq!(received(&mut b, 5).len(), 1);
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_something_waits() {
        let (mut a, mut b) = pair([address(1), address(2)], &MemoryOptions::default()).unwrap();
        assert!(!is_readable(&b));
        send(&mut a, 2, 3, 10, 10);
        assert!(is_readable(&b));
        received(&mut b, 1);
        assert!(is_readable(&b), "two bursts still wait");
        received(&mut b, 64);
        assert!(!is_readable(&b));
        send(&mut a, 2, 1, 10, 10);
        assert!(is_readable(&b), "a later burst signals again");
    }

    #[test]
    fn an_end_without_descriptor_still_delivers() {
        let options = MemoryOptions { descriptor: false, ..MemoryOptions::default() };
        let (mut a, mut b) = pair([address(1), address(2)], &options).unwrap();
        assert!(b.descriptors().is_empty());
        send(&mut a, 2, 1, 10, 10);
        assert_eq!(received(&mut b, 64).len(), 1);
    }

    #[test]
    fn two_threads_lose_nothing_that_is_not_counted_and_nobody_sleeps_through_an_arrival() {
        const BURSTS: usize = 20_000;
        let options =
            MemoryOptions { queue: 8, max_burst_bytes: 576, mtu: 576, ..Default::default() };
        let (mut a, mut b) = pair([address(1), address(2)], &options).unwrap();
        let finished = Arc::new(AtomicBool::new(false));
        let sender_finished = Arc::clone(&finished);
        let sender = std::thread::spawn(move || {
            for _ in 0..BURSTS {
                send(&mut a, 2, 1, 10, 10);
            }
            sender_finished.store(true, Ordering::Release);
            a
        });
        let mut arrived = 0;
        loop {
            let over = finished.load(Ordering::Acquire);
            let readable = is_readable(&b);
            arrived += if readable || over { received(&mut b, 4).len() } else { 0 };
            if over && !readable {
                break;
            }
        }
        sender.join().unwrap();
        assert_eq!(arrived as u64 + b.statistics().overflowed, BURSTS as u64);
        assert!(received(&mut b, 64).is_empty(), "an unreadable descriptor means an empty inbox");
        assert!(!is_readable(&b), "an empty inbox means an unreadable descriptor");
    }
}
