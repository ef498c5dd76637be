//! Slots: which process of a host owns which queue pair numbers of an address.
//!
//! A slot is the top 8 bits of a queue pair number, BTH byte 5. A process owns it by listening on
//! the abstract local socket `uroce/<address>/slot/<n>`: taken by one process at a time, in one
//! network namespace, and released by the kernel however the process ends. Slot 0 is never taken:
//! its numbers 0 and 1 are the management queue pairs, which belong to nobody in particular.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use socket2::{Domain, SockAddr, Socket, Type};

use super::fork::Local;
use super::system;
use crate::rng::Rng;

/// The slots that can be taken: 1 to this.
pub(super) const LAST: u8 = u8::MAX;
/// Connections that wait to be accepted: one of each other process.
const BACKLOG: i32 = LAST as i32 + 1;

/// A slot of one address, held until dropped.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) address: IpAddr,
    pub(super) number: u8,
    /// Others connect to it to forward what is for this slot.
    pub(super) listener: Local<Socket>,
}

/// Why no slot could be taken.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// All are taken.
    #[error(
        "all 255 places for RoCE devices on {0:?} are taken by other devices and processes; close \
         some, or use another address (on lo any of 127.0.0.0/8)"
    )]
    AllTaken(Vec<IpAddr>),
    /// The kernel refused a local socket.
    #[error("cannot make a local socket for sharing the port among processes: {0}")]
    System(#[from] io::Error),
}

/// Takes one slot number that is free on all of `addresses`, starting from a random one.
///
/// # Errors
/// [`SlotError`].
pub(super) fn take(addresses: &[IpAddr], random: &mut Rng) -> Result<Vec<Slot>, SlotError> {
    let start = random.below(u64::from(LAST)) as u8;
    for step in 0..LAST {
        let number = ((u16::from(start) + u16::from(step)) % u16::from(LAST)) as u8 + 1;
        let slots: Result<Vec<Slot>, io::Error> =
            addresses.iter().map(|address| take_one(*address, number)).collect();
        match slots {
            Ok(slots) => return Ok(slots),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(SlotError::AllTaken(addresses.to_vec()))
}

fn take_one(address: IpAddr, number: u8) -> io::Result<Slot> {
    let listener = Local::open_one(|| {
        let socket = new_socket()?;
        socket.bind(&socket_name(address, &format!("slot/{number}"))?)?;
        socket.listen(BACKLOG)?;
        Ok(socket)
    })?;
    Ok(Slot { address, number, listener })
}

/// Connects to the owner of a slot; returns the connection and the owner's user.
///
/// # Errors
/// Connection refused if nobody owns it.
pub(super) fn connect(address: IpAddr, number: u8) -> io::Result<(Local<Socket>, u32)> {
    let name = socket_name(address, &format!("slot/{number}"))?;
    let socket = Local::open_one(|| {
        let socket = new_socket()?;
        socket.connect(&name)?;
        Ok(socket)
    })?;
    let user = system::peer_user(socket.as_fd())?;
    Ok((socket, user))
}

/// Whether a process of `user` owns any slot of `address`.
pub(super) fn is_member(address: IpAddr, user: u32) -> bool {
    (1..=LAST).any(|number| connect(address, number).is_ok_and(|(_, owner)| owner == user))
}

/// Numbers of the slots of `address` that are taken, rising: one for each software device that is
/// open there, in any process of this network namespace. Nobody is disturbed by the question.
pub fn slots_in_use(address: IpAddr) -> Vec<u8> {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    slots_among(&sockets, address)
}

/// Reads the last column of /proc/net/unix, where an abstract name begins with `@`.
fn slots_among(sockets: &str, address: IpAddr) -> Vec<u8> {
    let prefix = format!("@uroce/{address}/slot/");
    let names = sockets.lines().filter_map(|line| line.split_ascii_whitespace().nth(7));
    let mut numbers: Vec<u8> =
        names.filter_map(|name| name.strip_prefix(&prefix)?.parse().ok()).collect();
    // A connection that was accepted has the listener's name.
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// A host-wide lock on an address, held until dropped and released if the process dies; nothing
/// if somebody has it.
pub(super) fn try_name(address: IpAddr, what: &str) -> Option<Local<Socket>> {
    Local::open_one(|| {
        let socket = new_socket()?;
        socket.bind(&socket_name(address, what)?)?;
        Ok(socket)
    })
    .ok()
}

fn new_socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn socket_name(address: IpAddr, what: &str) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0uroce/{address}/{what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::software::clock;
    use crate::time::SECOND;

    // Addresses that no other test of the crate shares a port on.
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 77, 1, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 77, 1, 2));

    #[test]
    fn a_slot_is_one_number_on_all_addresses_and_its_owner_can_be_asked() {
        let taken = take(&[HERE, THERE], &mut Rng::new(1)).unwrap();
        let number = taken[0].number;
        assert_eq!((taken[0].address, taken[1].address), (HERE, THERE));
        assert_eq!(taken[1].number, number);
        assert_eq!(slots_in_use(THERE), [number]);
        let (_, user) = connect(THERE, number).unwrap();
        assert_eq!(user, system::effective_user());
        assert!(is_member(HERE, user));
        assert!(!is_member(HERE, user.wrapping_add(1)));
        drop(taken);
        // A child that another test forks may hold a copy until its handler has run.
        let patience = crate::software::clock::now() + 20 * crate::time::SECOND;
        while is_member(HERE, user) {
            assert!(crate::software::clock::now() < patience, "released");
            std::thread::yield_now();
        }
    }

    #[test]
    fn every_slot_but_0_can_be_taken_once() {
        let address = IpAddr::from([127, 77, 1, 3]);
        let mut random = Rng::new(2);
        let slots: Vec<Slot> =
            (0..255).flat_map(|_| take(&[address], &mut random).unwrap()).collect();
        let mut numbers: Vec<u8> = slots.iter().map(|slot| slot.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=255).collect::<Vec<u8>>());
        let error = take(&[address], &mut random).unwrap_err();
        assert!(matches!(error, SlotError::AllTaken(_)), "{error}");
        drop(slots);
        assert_eq!(take(&[address], &mut random).unwrap().len(), 1);
    }

    #[test]
    fn a_named_lock_has_one_holder() {
        let held = try_name(HERE, "steering-test").unwrap();
        assert!(try_name(HERE, "steering-test").is_none());
        drop(held);
        // A child that another test has forked meanwhile may hold a copy until it ends.
        let until = clock::now() + 20 * SECOND;
        while try_name(HERE, "steering-test").is_none() {
            assert!(clock::now() < until, "the lock has outlived its holder");
            std::thread::yield_now();
        }
    }
}
