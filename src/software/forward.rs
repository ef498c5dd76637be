//! Bursts that arrived at the wrong process, on their way to the right one.
//!
//! Every process that gets a burst for another slot hands it over, whole, to the slot's owner
//! through a local SOCK_SEQPACKET connection; the kernel bounds what waits in it, and what does
//! not fit is dropped and counted, as a full receive queue would. A burst is handed over at most
//! once: who gets it this way and does not own its slot drops it.
//!
//! ```text
//!  message:  kind │ traffic class │ family │ identification seen │ source port │ segment │
//!            first identification │ flags │ value │ source (16) │ destination (16) │ bytes …
//! ```

use std::io::{self, IoSlice, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use socket2::Socket;

use super::fork::Local;
use super::slots::{self, Slot};
use super::system;
use crate::time::{Instant, MILLISECOND};
use crate::wire::{Flow, Identification, ReceivedBurst};

const HEADER: usize = 48;
/// A forwarded burst, first version of this format.
const BURST: u8 = 0x11;
/// Which index of the steering group a process has, first version.
const INDEX: u8 = 0x12;
/// No burst is larger.
const LARGEST: usize = 65_536;
/// Asked for; the system's limit may be less.
const SEND_BUFFER: usize = 4 << 20;
/// Connections that other processes may hold to this one.
const MOST_INCOMING: usize = 512;
/// How long nobody is looked for behind a slot that nobody owned.
const VACANT: u64 = 10 * MILLISECOND;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Handed over to a process of this user.
    To(u32),
    /// The owner does not keep up.
    Full,
    /// Nobody owns the slot.
    Nobody,
}

/// The connections to other slots' owners.
pub(super) struct Outgoing {
    address: IpAddr,
    links: Box<[Way; 256]>,
}

/// How a slot's owner is reached.
enum Way {
    Unknown,
    Connected(Local<Socket>, u32),
    VacantUntil(Instant),
}

impl Outgoing {
    pub(super) fn new(address: IpAddr) -> Self {
        Self { address, links: Box::new([const { Way::Unknown }; 256]) }
    }

    /// Hands a burst over to the owner of `slot`.
    pub(super) fn burst(&mut self, now: Instant, slot: u8, burst: &ReceivedBurst<'_>) -> Sent {
        self.send(now, slot, &burst_header(burst), burst.bytes)
    }

    /// Tells the owner of `slot`, who asked with `question`, which index this process has.
    pub(super) fn index(&mut self, now: Instant, slot: u8, report: IndexReport) -> Sent {
        self.send(now, slot, &index_header(report), &[])
    }

    fn send(&mut self, now: Instant, slot: u8, header: &[u8; HEADER], bytes: &[u8]) -> Sent {
        // An owner that has gone shows only when written to; another may have come meanwhile.
        for _ in 0..2 {
            let Some((socket, user)) = self.connection(now, slot) else { return Sent::Nobody };
            let parts = [IoSlice::new(header), IoSlice::new(bytes)];
            match socket.send_vectored_with_flags(&parts, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
                Ok(_) => return Sent::To(user),
                Err(error) if is_full(&error) => return Sent::Full,
                Err(_) => self.links[usize::from(slot)] = Way::Unknown,
            }
        }
        Sent::Nobody
    }

    fn connection(&mut self, now: Instant, slot: u8) -> Option<(&Local<Socket>, u32)> {
        let way = &mut self.links[usize::from(slot)];
        match way {
            Way::VacantUntil(end) if now < *end => return None,
            Way::Unknown | Way::VacantUntil(_) => *way = connect(self.address, slot, now),
            Way::Connected(..) => {}
        }
        match way {
            Way::Connected(socket, user) => Some((socket, *user)),
            _ => None,
        }
    }
}

fn connect(address: IpAddr, slot: u8, now: Instant) -> Way {
    match slots::connect(address, slot) {
        Ok((socket, user)) => {
            // A smaller buffer than asked for only means that bursts are dropped earlier.
            let _ = socket.set_send_buffer_size(SEND_BUFFER);
            Way::Connected(socket, user)
        }
        Err(_) => Way::VacantUntil(now + VACANT),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM))
}

/// The answer to a question of [`super::steering`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexReport {
    /// The question's number.
    pub(super) question: u32,
    /// The index that was asked for.
    pub(super) index: u16,
    /// The slot of the process that the kernel chose for it.
    pub(super) slot: u8,
}

/// What another process sent.
#[derive(Debug)]
pub(super) enum Arrival<'a> {
    Burst(ReceivedBurst<'a>),
    Index(IndexReport),
    /// A message that makes no sense.
    Nonsense,
}

/// The connections from other processes.
pub(super) struct Incoming {
    connections: Vec<Local<Socket>>,
    buffer: Box<[u8]>,
    /// Connections of users who have no business here, or one too many.
    pub(super) refused: u64,
}

impl Incoming {
    pub(super) fn new() -> Self {
        Self { connections: Vec::new(), buffer: vec![0; HEADER + LARGEST].into(), refused: 0 }
    }

    /// Accepts the connections that wait at `slot`, if they come from a user that `may` connect.
    ///
    /// # Errors
    /// That the process has no descriptor left: they go on waiting.
    pub(super) fn accept(
        &mut self,
        slot: &Slot,
        epoll: BorrowedFd<'_>,
        may: impl Fn(u32) -> bool,
    ) -> io::Result<()> {
        for _ in 0..MOST_INCOMING {
            let accepted = Local::open_one(|| slot.listener.accept().map(|(socket, _)| socket));
            let socket = match accepted {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let welcome = system::peer_user(socket.as_fd()).is_ok_and(&may)
                && self.connections.len() < MOST_INCOMING
                && socket.set_nonblocking(true).is_ok()
                && system::add_to_epoll(epoll, socket.as_raw_fd()).is_ok();
            if welcome {
                self.connections.push(socket);
            } else {
                self.refused += 1;
            }
        }
        Ok(())
    }

    /// Passes up to `budget` messages of the connection with this descriptor to `take`. Returns
    /// how many, and whether the connection has ended.
    pub(super) fn receive(
        &mut self,
        descriptor: RawFd,
        budget: usize,
        take: &mut dyn FnMut(Arrival<'_>),
    ) -> (usize, bool) {
        let place = self.connections.iter().position(|other| other.as_raw_fd() == descriptor);
        let Some(place) = place else { return (0, false) };
        for messages in 0..budget {
            match (&*self.connections[place]).read(&mut self.buffer) {
                Ok(length) if length > 0 => take(arrival(&self.buffer[..length])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return (messages, false);
                }
                _ => {
                    self.connections.swap_remove(place);
                    return (messages, true);
                }
            }
        }
        (budget, false)
    }
}

fn burst_header(burst: &ReceivedBurst<'_>) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = BURST;
    header[1] = burst.traffic_class;
    header[2] = if burst.flow.source.is_ipv4() { 4 } else { 6 };
    if let Identification::Seen { first, flags } = burst.identification {
        header[3] = 1;
        header[8..10].copy_from_slice(&first.to_be_bytes());
        header[10..12].copy_from_slice(&flags.to_be_bytes());
    }
    header[4..6].copy_from_slice(&burst.flow.source_port.to_be_bytes());
    header[6..8].copy_from_slice(&(burst.segment as u16).to_be_bytes());
    put_address(&mut header[16..32], burst.flow.source);
    put_address(&mut header[32..48], burst.flow.destination);
    header
}

fn index_header(report: IndexReport) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = INDEX;
    header[1] = report.slot;
    header[4..6].copy_from_slice(&report.index.to_be_bytes());
    header[12..16].copy_from_slice(&report.question.to_be_bytes());
    header
}

fn put_address(place: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(address) => place[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => place.copy_from_slice(&address.octets()),
    }
}

fn address_of(bytes: &[u8; 16], family: u8) -> Option<IpAddr> {
    match family {
        4 => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
        6 => Some(Ipv6Addr::from(*bytes).into()),
        _ => None,
    }
}

fn arrival(message: &[u8]) -> Arrival<'_> {
    let Some((header, bytes)) = message.split_first_chunk::<HEADER>() else {
        return Arrival::Nonsense;
    };
    match header[0] {
        BURST => burst_of(header, bytes).map_or(Arrival::Nonsense, Arrival::Burst),
        INDEX => Arrival::Index(IndexReport {
            question: u32::from_be_bytes([header[12], header[13], header[14], header[15]]),
            index: u16::from_be_bytes([header[4], header[5]]),
            slot: header[1],
        }),
        _ => Arrival::Nonsense,
    }
}

fn burst_of<'a>(header: &[u8; HEADER], bytes: &'a [u8]) -> Option<ReceivedBurst<'a>> {
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let address = |at: usize| address_of(header[at..at + 16].try_into().ok()?, header[2]);
    let segment = usize::from(number(6));
    let sensible = segment > 0 && segment <= bytes.len();
    sensible.then_some(())?;
    Some(ReceivedBurst {
        flow: Flow { source: address(16)?, destination: address(32)?, source_port: number(4) },
        traffic_class: header[1],
        identification: match header[3] {
            0 => Identification::Unseen,
            _ => Identification::Seen { first: number(8), flags: number(10) },
        },
        segment,
        bytes,
    })
}

/// For fuzzing: reads a message of another process as it comes, and if it is a burst, all that may
/// be asked of it.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(message: &[u8]) {
    let Arrival::Burst(burst) = arrival(message) else { return };
    assert!(burst.segment > 0 && burst.segment <= burst.bytes.len());
    assert_eq!(burst.bytes.len() + HEADER, message.len());
    let again = [&burst_header(&burst)[..], burst.bytes].concat();
    let Arrival::Burst(same) = arrival(&again) else { panic!("a burst is one when handed on") };
    assert_eq!((same.flow, same.traffic_class), (burst.flow, burst.traffic_class));
    assert_eq!((same.identification, same.segment), (burst.identification, burst.segment));
    assert_eq!(same.bytes, burst.bytes);
    let lengths: usize = burst.segments().map(<[u8]>::len).sum();
    assert_eq!(lengths, burst.bytes.len());
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The seeds of the fuzz target `forwarded`, which cannot be reached from outside of the crate
    /// without the feature.
    #[test]
    fn every_committed_message_is_read_without_harm() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/forwarded");
        let mut bursts = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let message = std::fs::read(entry.unwrap().path()).unwrap();
            fuzz(&message);
            bursts += usize::from(!is_nonsense(&message));
        }
        assert!(bursts >= 2, "{bursts} of the seeds are bursts");
    }

    fn burst(bytes: &[u8]) -> ReceivedBurst<'_> {
        ReceivedBurst {
            flow: Flow {
                source: IpAddr::from([127, 0, 0, 9]),
                destination: IpAddr::from([127, 77, 2, 1]),
                source_port: 0xc001,
            },
            traffic_class: 0x6a,
            identification: Identification::Unseen,
            segment: 1000,
            bytes,
        }
    }

    fn is_nonsense(message: &[u8]) -> bool {
        matches!(arrival(message), Arrival::Nonsense)
    }

    #[test]
    fn a_burst_survives_the_message_whole() {
        let bytes: Vec<u8> = (0..2500u32).map(|n| n as u8).collect();
        let v6 = Flow {
            source: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
            destination: Ipv6Addr::LOCALHOST.into(),
            source_port: 0xffff,
        };
        let seen = Identification::Seen { first: 0xfffe, flags: 0x4000 };
        for sent in [
            burst(&bytes),
            ReceivedBurst { identification: seen, ..burst(&bytes) },
            ReceivedBurst { flow: v6, ..burst(&bytes) },
        ] {
            let message = [&burst_header(&sent)[..], &bytes].concat();
            let Arrival::Burst(arrived) = arrival(&message) else { panic!("no burst") };
            assert_eq!((arrived.flow, arrived.segment), (sent.flow, sent.segment));
            assert_eq!(arrived.identification, sent.identification);
            assert_eq!(arrived.traffic_class, sent.traffic_class);
            assert_eq!(arrived.bytes, &bytes);
        }
    }

    #[test]
    fn a_message_that_makes_no_sense_is_no_burst() {
        let good = [&burst_header(&burst(&[0; 2500]))[..], &[0; 2500]].concat();
        assert!(matches!(arrival(&good), Arrival::Burst(_)));
        for (place, value) in [(0, 0x99), (2, 5), (6, 0xff)] {
            let mut bad = good.clone();
            bad[place] = value;
            assert!(is_nonsense(&bad), "byte {place}");
        }
        let mut no_segment = good.clone();
        no_segment[6..8].fill(0);
        assert!(is_nonsense(&no_segment));
        assert!(is_nonsense(&good[..HEADER]), "no bytes");
        assert!(is_nonsense(&good[..HEADER - 1]));
    }

    #[test]
    fn bursts_and_answers_reach_the_owner_and_only_from_welcome_users() {
        let address = IpAddr::from([127, 77, 2, 1]);
        let slot = slots::take(&[address], &mut Rng::new(3)).unwrap().remove(0);
        let epoll = system::new_epoll().unwrap();
        let mut out = Outgoing::new(address);
        let me = system::effective_user();
        let report = IndexReport { question: 0xdead_beef, index: 300, slot: 9 };
        assert_eq!(out.burst(Instant::ZERO, slot.number, &burst(&[7; 2500])), Sent::To(me));
        assert_eq!(out.index(Instant::ZERO, slot.number, report), Sent::To(me));

        let mut refusing = Incoming::new();
        refusing.accept(&slot, epoll.as_fd(), |user| user != me).unwrap();
        assert_eq!(refusing.refused, 1);
        assert!(refusing.connections.is_empty());

        assert_eq!(out.burst(Instant::ZERO, slot.number, &burst(&[7; 2500])), Sent::To(me));
        assert_eq!(out.index(Instant::ZERO, slot.number, report), Sent::To(me));
        let mut incoming = Incoming::new();
        incoming.accept(&slot, epoll.as_fd(), |user| user == me).unwrap();
        let mut order = Vec::new();
        let mut ready = [0; system::READY];
        assert_eq!(system::ready_in_epoll(epoll.as_fd(), &mut ready), 1);
        let received = incoming.receive(ready[0], 9, &mut |arrival| match arrival {
            Arrival::Burst(arrived) => {
                assert_eq!((arrived.segment, arrived.bytes), (1000, &[7; 2500][..]));
                order.push("burst");
            }
            Arrival::Index(arrived) => {
                assert_eq!(arrived, report);
                order.push("index");
            }
            Arrival::Nonsense => panic!("nonsense"),
        });
        assert_eq!((received, order), ((2, false), vec!["burst", "index"]));
        drop(out);
        assert_eq!(system::ready_in_epoll(epoll.as_fd(), &mut ready), 1);
        let end = incoming.receive(ready[0], 9, &mut |_| panic!("nothing was sent"));
        assert_eq!(end, (0, true), "the end of a connection shows");
    }

    #[test]
    fn what_does_not_fit_is_refused_and_a_vacant_slot_is_not_asked_again_at_once() {
        let address = IpAddr::from([127, 77, 2, 2]);
        let mut out = Outgoing::new(address);
        assert_eq!(out.burst(Instant::ZERO, 9, &burst(&[1; 2000])), Sent::Nobody);
        let slot = slots::take(&[address], &mut Rng::new(4)).unwrap().remove(0);
        let number = slot.number;
        let large = vec![0; 60_000];
        let soon = Instant::from_nanos(VACANT - 1);
        out.links[usize::from(number)] = Way::VacantUntil(Instant::from_nanos(VACANT));
        assert_eq!(out.burst(soon, number, &burst(&large)), Sent::Nobody);
        let later = Instant::from_nanos(VACANT);
        let sent = (0..1000)
            .take_while(|_| matches!(out.burst(later, number, &burst(&large)), Sent::To(_)));
        let sent = sent.count();
        assert!((1..1000).contains(&sent), "{sent} bursts waited");
        assert_eq!(out.burst(later, number, &burst(&large)), Sent::Full);
        drop(slot);
        // A child that another test has just started keeps a copy of the slot until it calls exec.
        while out.burst(later, number, &burst(&large)) != Sent::Nobody {
            std::thread::yield_now();
        }
    }
}
