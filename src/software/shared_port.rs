//! A UDP link whose port other processes of the host share.
//!
//! ```text
//!               datagram to address:4791
//!                        │ steering program: socket by slot (an optimisation)
//!        ┌───────────────┼───────────────┐
//!        ▼               ▼               ▼
//!    process A       process B       process C         one user, one SO_REUSEPORT group
//!     slot 17         slot 42         slot 200
//!        └── not mine? ──┴── local socket of the slot ──► process G of another user: a guest,
//!                                                         slot 77, no socket on the port
//! ```
//!
//! A burst that arrives here is for this process, or for another one and handed over to it, or a
//! question about the steering group. What other processes hand over arrives as if it had come
//! from the network.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use socket2::Socket;

use super::echo::{Echo, Watch};
use super::error::OpenError;
use super::fork::Local;
use super::forward::{Arrival, Incoming, IndexReport, Outgoing, Sent};
use super::sharing::{SharingCounters, add};
use super::slots::{self, Slot};
use super::steering::{QUESTION, Question, Steering};
use super::system;
use crate::engine::{Port, PortCapabilities, UnreachableKind};
use crate::link::{
    GroupSockets, JoinError, Link, LinkStatistics, PortHolder, UdpError, UdpLink, UdpOptions,
    open_group_socket,
};
use crate::rng::Rng;
use crate::time::{Instant, MICROSECOND, MILLISECOND};
use crate::wire::{ReceivedBurst, SentBurst};

/// A turn looks for handed-over bursts no more often than this: it costs a system call.
const LOOK: u64 = 10 * MICROSECOND;
/// As [`LOOK`], when nothing has come that way for [`CALM`]: the kernel sorts arrivals right, and
/// there are no groups.
const RARE_LOOK: u64 = 100 * MICROSECOND;
const CALM: u64 = 10 * MILLISECOND;
/// A guest tries this often whether the port has become free, and a process without descriptors
/// whether it can accept connections again.
const RETRY: u64 = 500 * MILLISECOND;
/// Owners of the port may end while a guest looks who they are.
const ATTEMPTS: usize = 5;
/// Destination of multicast packets, which no slot owns.
const MULTICAST: [u8; 3] = [0xff; 3];

/// See the module's text.
pub(super) struct SharedPort {
    pub(super) link: Local<UdpLink>,
    groups: GroupSockets<Local<Socket>>,
    pub(super) router: Router,
    /// Held while this process measures the group.
    pub(super) measuring: Option<Local<Socket>>,
    descriptors: Vec<RawFd>,
}

/// Everything but the link itself, so that both can be used at once.
pub(super) struct Router {
    pub(super) slot: Slot,
    role: Role,
    user: u32,
    outgoing: Outgoing,
    incoming: Incoming,
    pub(super) steering: Option<Steering>,
    pub(super) watch: Watch,
    pub(super) counters: Arc<SharingCounters>,
    /// The slot's socket, those of groups and all incoming connections; the link's socket, too, if it
    /// was opened later than the link.
    epoll: Local<OwnedFd>,
    pub(super) now: Instant,
    looked: Instant,
    /// When something last came from another process or for a group.
    helped: Instant,
    /// The process had no descriptor left for a connection that waits; until then nobody looks at
    /// the slot's socket, which would not let the thread sleep.
    deaf_until: Option<Instant>,
}

/// How this process gets what arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// From its own socket on the port.
    Member,
    /// From the members, who are of this user; tries for a socket of its own at this time.
    Guest(u32, Instant),
}

/// Whom a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Here,
    Slot(u8),
    Question,
    Echo(Echo),
}

impl SharedPort {
    /// Joins those who share the port on the slot's address; `steer` is whether to let the kernel
    /// sort arrivals, without which all works, but slower.
    ///
    /// # Errors
    /// [`OpenError::Udp`], or [`OpenError::System`].
    pub(super) fn open(
        options: &UdpOptions,
        slot: Slot,
        steer: bool,
        random: &mut Rng,
        counters: Arc<SharingCounters>,
    ) -> Result<Self, OpenError> {
        let (link, role) = open_link(options)?;
        let epoll = Local::open_one(system::new_epoll)?;
        system::add_to_epoll(epoll.as_fd(), slot.listener.as_raw_fd())?;
        let router = Router {
            role,
            user: system::effective_user(),
            outgoing: Outgoing::new(slot.address),
            incoming: Incoming::new(),
            steering: steer.then(|| Steering::new(random.fork())),
            watch: Watch::default(),
            counters,
            slot,
            now: Instant::ZERO,
            looked: Instant::ZERO,
            helped: Instant::ZERO,
            deaf_until: None,
            epoll,
        };
        // The port's socket is not in the set: every datagram would have to tell the set, even while
        // nobody sleeps because somebody polls.
        let socket = link.receive_socket().map(|socket| socket.as_raw_fd());
        let descriptors = [router.epoll.as_raw_fd()].into_iter().chain(socket).collect();
        Ok(Self { link, groups: GroupSockets::default(), router, measuring: None, descriptors })
    }

    /// Whether this process has no socket of its own on the port.
    pub(super) fn is_guest(&self) -> bool {
        matches!(self.router.role, Role::Guest(..))
    }

    fn receive_from_port(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&ReceivedBurst<'_>),
    ) -> usize {
        let Self { link, router, .. } = self;
        link.receive(budget, &mut |burst| router.sort(burst, sink))
    }

    /// What arrives from other processes and for groups.
    fn look_around(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        let mut ready = [0; system::READY];
        let count = self.router.look(&mut ready);
        let socket = self.link.receive_socket().map(|socket| socket.as_raw_fd());
        let mut packets = 0;
        for descriptor in &ready[..count] {
            let budget = budget.saturating_sub(packets);
            let is_it = |socket: &Local<Socket>| socket.as_raw_fd() == *descriptor;
            if socket == Some(*descriptor) {
                // What has come since the port was asked is the next turn's.
                continue;
            }
            packets += match self.groups.receive(budget, is_it, sink) {
                0 => self.router.receive_local(*descriptor, budget, sink),
                received => received,
            };
            self.router.helped = self.router.now;
        }
        packets
    }

    /// Opens the socket of a group and lets the thread wake for it.
    fn open_group(&self, group: IpAddr) -> Result<Local<Socket>, JoinError> {
        let system = |error| JoinError::System { group, error };
        let mut opened = Ok(());
        let socket = Local::open_one(|| {
            open_group_socket(self.link.options(), group).map_err(|error| {
                opened = Err(error);
                std::io::Error::other("told beside")
            })
        });
        opened?;
        let socket = socket.map_err(system)?;
        system::add_to_epoll(self.router.epoll.as_fd(), socket.as_raw_fd()).map_err(system)?;
        Ok(socket)
    }

    fn maintain(&mut self) {
        self.router.listen_again();
        match self.router.role {
            Role::Member => {
                self.watch();
                self.steer();
            }
            Role::Guest(_, retry) if self.router.now >= retry => self.try_to_join(),
            Role::Guest(..) => {}
        }
    }

    /// A guest becomes a member if the members have gone.
    fn try_to_join(&mut self) {
        let router = &mut self.router;
        let retry = router.now + RETRY;
        let joined = self.link.extend(|link| {
            link.start_receiving()?;
            let socket = link.receive_socket().map(|socket| socket.as_raw_fd());
            Ok::<_, OpenError>(socket.into_iter().collect())
        });
        match joined {
            Ok(()) => {
                router.role = Role::Member;
                add(&router.counters.takeovers, 1);
                if let Some(socket) = self.link.receive_socket() {
                    // Without it the process would not wake for arrivals; there is memory for it,
                    // as the set is not new.
                    let added = system::add_to_epoll(router.epoll.as_fd(), socket.as_raw_fd());
                    debug_assert!(added.is_ok(), "a fresh socket can be added");
                }
            }
            Err(OpenError::Udp(UdpError::PortHeld { holder: PortHolder::User(user), .. })) => {
                router.role = Role::Guest(user, retry);
            }
            Err(_) => {
                let Role::Guest(user, _) = router.role else { return };
                router.role = Role::Guest(user, retry);
            }
        }
    }
}

/// Opens the link as a member, or as a guest of members of another user.
fn open_link(options: &UdpOptions) -> Result<(Local<UdpLink>, Role), OpenError> {
    let mut outcome = open_as(options);
    for _ in 0..ATTEMPTS {
        match &outcome {
            Err(OpenError::Udp(UdpError::PortHeld { holder, .. })) => match holder {
                PortHolder::User(user) if is_host(options.address, *user) => {
                    let link = open_as(&UdpOptions { receive: false, ..options.clone() })?;
                    return Ok((link, Role::Guest(*user, Instant::ZERO)));
                }
                PortHolder::KernelRxe(_) => break,
                // Perhaps it has just gone.
                _ => outcome = open_as(options),
            },
            _ => break,
        }
    }
    outcome.map(|link| (link, Role::Member))
}

/// Whether a process of `user`, who holds the port, hands over what arrives. One of our own user
/// would have shared the port, and the slots of our user may well be our own.
fn is_host(address: IpAddr, user: u32) -> bool {
    user != system::effective_user() && slots::is_member(address, user)
}

fn open_as(options: &UdpOptions) -> Result<Local<UdpLink>, OpenError> {
    Local::open(
        || UdpLink::open(options.clone()).map_err(OpenError::from),
        |link| {
            let sending = link.send_sockets().map(|(_, socket)| socket);
            sending.chain(link.receive_socket()).map(|socket| socket.as_raw_fd()).collect()
        },
    )
}

impl Router {
    /// Takes apart what arrived for several, and passes on each part.
    fn sort(&mut self, burst: &ReceivedBurst<'_>, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) {
        let mut rest = burst.bytes;
        while !rest.is_empty() {
            let target = self.target(&rest[..burst.segment.clamp(1, rest.len())]);
            let mut segments = rest.chunks(burst.segment.max(1));
            let length: usize = segments
                .by_ref()
                .take_while(|segment| self.target(segment) == target)
                .map(<[u8]>::len)
                .sum();
            let (part, behind) = rest.split_at(length);
            rest = behind;
            let segment = burst.segment.min(length);
            self.route(target, &ReceivedBurst { segment, bytes: part, ..*burst }, sink);
        }
    }

    fn target(&self, packet: &[u8]) -> Target {
        if packet.len() == QUESTION && Question::parse(packet).is_some() {
            return Target::Question;
        }
        if let Some(echo) = Echo::parse(packet) {
            return Target::Echo(echo);
        }
        // What is too short to name a queue pair is the engine's to count.
        let Some(&[slot, middle, low]) = packet.get(5..8) else { return Target::Here };
        let unowned = slot == 0 || [slot, middle, low] == MULTICAST;
        if unowned || slot == self.slot.number { Target::Here } else { Target::Slot(slot) }
    }

    fn route(
        &mut self,
        target: Target,
        burst: &ReceivedBurst<'_>,
        sink: &mut dyn FnMut(&ReceivedBurst<'_>),
    ) {
        if matches!(target, Target::Here | Target::Slot(_)) {
            self.watch.moved(self.now);
        }
        match target {
            Target::Here => sink(burst),
            Target::Question => self.answer(burst),
            Target::Echo(echo) => self.hear(echo, burst),
            Target::Slot(slot) => self.forward(slot, burst, sink),
        }
    }

    fn forward(
        &mut self,
        slot: u8,
        burst: &ReceivedBurst<'_>,
        sink: &mut dyn FnMut(&ReceivedBurst<'_>),
    ) {
        let packets = burst.segments().count();
        match self.outgoing.burst(self.now, slot, burst) {
            Sent::To(user) => {
                add(&self.counters.forwarded, packets);
                // Nothing can be steered to a guest.
                if user == self.user
                    && let Some(steering) = &mut self.steering
                {
                    steering.misrouted();
                }
            }
            Sent::Full => add(&self.counters.forward_overflowed, packets),
            Sent::Nobody => {
                add(&self.counters.unclaimed, packets);
                sink(burst);
            }
        }
    }

    /// An echo: ours has come back, or another process's has come here, which shows a wrong program.
    fn hear(&mut self, echo: Echo, burst: &ReceivedBurst<'_>) {
        if burst.flow.source != self.slot.address {
            add(&self.counters.misdirected, 1);
        } else if echo.slot == self.slot.number {
            self.watch.heard(echo.number);
        } else if let Some(steering) = &mut self.steering {
            steering.misrouted();
        }
    }

    fn answer(&mut self, burst: &ReceivedBurst<'_>) {
        if burst.flow.source != self.slot.address {
            return add(&self.counters.misdirected, 1);
        }
        for question in burst.segments().filter_map(Question::parse) {
            let Question { index, slot, number } = question;
            let report = IndexReport { question: number, index, slot: self.slot.number };
            if slot == self.slot.number {
                self.note(report);
            } else {
                self.outgoing.index(self.now, slot, report);
                if let Some(steering) = &mut self.steering {
                    steering.was_asked(self.now);
                }
            }
        }
    }

    fn note(&mut self, report: IndexReport) {
        if let Some(steering) = &mut self.steering {
            steering.answered(report.question, report.index, report.slot);
        }
    }

    /// Whether it is time to look at all descriptors. A guest gets everything through them.
    fn should_look(&self) -> bool {
        let calm = self.now.since(self.helped) >= CALM;
        let interval = if calm { RARE_LOOK } else { LOOK };
        let guest = matches!(self.role, Role::Guest(..));
        guest || self.now.since(self.looked) >= interval
    }

    /// Descriptors of the set that are readable now, written to `ready`; returns how many.
    fn look(&mut self, ready: &mut [RawFd; system::READY]) -> usize {
        self.looked = self.now;
        system::ready_in_epoll(self.epoll.as_fd(), ready)
    }

    /// Passes what another process has handed over through a readable descriptor to `sink`; returns
    /// the number of packets.
    fn receive_local(
        &mut self,
        descriptor: RawFd,
        budget: usize,
        sink: &mut dyn FnMut(&ReceivedBurst<'_>),
    ) -> usize {
        if descriptor == self.slot.listener.as_raw_fd() {
            self.accept();
            return 0;
        }
        if budget == 0 { 0 } else { self.receive_from(descriptor, budget, sink) }
    }

    fn accept(&mut self) {
        let user = self.user;
        let owner = match self.role {
            Role::Member => user,
            Role::Guest(owner, _) => owner,
        };
        let before = self.incoming.refused;
        let welcome = |other| other == user || other == owner;
        if self.incoming.accept(&self.slot, self.epoll.as_fd(), welcome).is_err()
            && system::remove_from_epoll(self.epoll.as_fd(), self.slot.listener.as_raw_fd()).is_ok()
        {
            self.deaf_until = Some(self.now + RETRY);
        }
        let refused = self.incoming.refused - before;
        add(&self.counters.refused_connections, refused as usize);
    }

    /// Looks at the slot's socket again once the process may have descriptors.
    fn listen_again(&mut self) {
        if self.deaf_until.is_some_and(|end| self.now >= end) {
            let listener = self.slot.listener.as_raw_fd();
            let again = system::add_to_epoll(self.epoll.as_fd(), listener);
            self.deaf_until = again.is_err().then_some(self.now + RETRY);
        }
    }

    fn receive_from(
        &mut self,
        descriptor: RawFd,
        budget: usize,
        sink: &mut dyn FnMut(&ReceivedBurst<'_>),
    ) -> usize {
        let mut packets = 0;
        let mut reports = Vec::new();
        let (address, slot) = (self.slot.address, self.slot.number);
        let counters = Arc::clone(&self.counters);
        let (_, ended) = self.incoming.receive(descriptor, budget, &mut |arrival| match arrival {
            Arrival::Burst(burst) if is_for(&burst, address, slot) => {
                let count = burst.segments().count();
                packets += count;
                add(&counters.received_forwarded, count);
                sink(&burst);
            }
            Arrival::Index(report) => reports.push(report),
            Arrival::Burst(_) | Arrival::Nonsense => add(&counters.misdirected, 1),
        });
        for report in reports {
            self.note(report);
        }
        match (ended, self.role, &mut self.steering) {
            (true, Role::Guest(owner, _), _) => self.role = Role::Guest(owner, self.now),
            // The end of a process moves others in the group.
            (true, Role::Member, Some(steering)) => steering.misrouted(),
            _ => {}
        }
        packets
    }

    fn steering_deadline(&self) -> Option<Instant> {
        let steering = self.steering.as_ref()?;
        let echo = self.watch.deadline();
        let echo = (echo != Instant::NEVER).then_some(echo);
        steering.deadline().into_iter().chain(echo).min()
    }

    /// When something has to be done although nothing arrives.
    fn deadline(&self) -> Option<Instant> {
        let own = match self.role {
            Role::Guest(_, retry) => Some(retry),
            Role::Member => self.steering_deadline(),
        };
        own.into_iter().chain(self.deaf_until).min()
    }
}

/// Whether a handed-over burst is for this address and slot and nothing else.
fn is_for(burst: &ReceivedBurst<'_>, address: IpAddr, slot: u8) -> bool {
    burst.flow.destination == address && burst.segments().all(|packet| packet.get(5) == Some(&slot))
}

impl Port for SharedPort {
    fn capabilities(&self) -> &PortCapabilities {
        self.link.capabilities()
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        let mut packets = self.receive_from_port(budget, sink);
        if packets < budget && self.router.should_look() {
            packets += self.look_around(budget - packets, sink);
        }
        self.maintain();
        packets
    }

    fn is_pressed(&mut self) -> bool {
        self.link.is_pressed()
    }

    fn take_unreachable(&mut self, look: bool, sink: &mut dyn FnMut(IpAddr, UnreachableKind)) {
        self.link.take_unreachable(look, sink);
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        let packets = self.link.transmit(budget, fill);
        if packets > 0 {
            self.router.watch.moved(self.router.now);
        }
        packets
    }
}

impl Link for SharedPort {
    fn local_address(&self) -> IpAddr {
        self.router.slot.address
    }

    fn descriptors(&self) -> &[RawFd] {
        &self.descriptors
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        if self.groups.socket_of(group).is_none() {
            let socket = self.open_group(group)?;
            self.groups.add(group, socket);
        }
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) {
        drop(self.groups.remove(self.link.options(), group));
    }

    fn statistics(&self) -> LinkStatistics {
        self.link.statistics().plus(&self.groups.statistics())
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.router.deadline()
    }

    fn set_now(&mut self, now: Instant) {
        self.router.now = now;
        self.link.set_now(now);
    }
}
