//! Opening what is below a device's engine: a link for each address, one port over all of them,
//! and the wrappers around it.
//!
//! ```text
//!   engine ── Impaired ── Traced ── Recorded ── AddressLinks ─┬─ SharedPort of one address
//!             (faults)    (words)   (capture)                 └─ SharedPort of another …
//! ```
//!
//! Faults stand above the capture, so that it shows what is on the wire.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::path::Path;
use std::sync::Arc;

use super::addresses::AddressLinks;
use super::clock;
use super::environment::LinkKind;
use super::error::OpenError;
use super::fork::Local;
use super::options::{DeviceOptions, Place};
use super::shared_port::SharedPort;
use super::sharing::SharingCounters;
use super::slots;
use super::trace::Tracer;
use super::traced::Traced;
use crate::fault::Faults;
use crate::link::{Impaired, Link, Recorded, UdpError, UdpOptions};
use crate::rng::Rng;

/// Source ports of a device: entropy for the network's hashing.
const SOURCE_PORTS: usize = 8;
/// The first one that a RoCEv2 sender may use.
const FIRST_SOURCE_PORT: u64 = 0xc000;
/// Sets of source ports tried.
const ATTEMPTS: usize = 16;
/// Single source ports tried for one set.
const CANDIDATES: usize = 1024;

/// What an engine needs below itself.
pub(super) struct Opened {
    pub(super) link: Box<dyn Link>,
    pub(super) slot: u8,
    /// Own addresses, by GID index.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) counters: Arc<SharingCounters>,
    /// Whether arrivals come through processes of another user on one address at least.
    pub(super) is_guest: bool,
}

/// Opens everything.
///
/// # Errors
/// [`OpenError`].
pub(super) fn open(
    options: &DeviceOptions,
    place: &Place,
    random: &mut Rng,
    tracer: Option<&Arc<Tracer>>,
) -> Result<Opened, OpenError> {
    match options.link {
        LinkKind::Auto | LinkKind::Udp => {}
        LinkKind::Packet | LinkKind::Xdp | LinkKind::Tap => {
            return Err(OpenError::NoLink(options.link.name()));
        }
    }
    let mut place = place.clone();
    let opened = loop {
        match open_ports(options, &place, random) {
            // An IPv6 address is the host's only once it has been found to be unique.
            Err(OpenError::Udp(UdpError::NotLocal { address }))
                if options.addresses.is_empty() && place.addresses.len() > 1 =>
            {
                place.addresses.retain(|other| *other != address);
            }
            other => break other?,
        }
    };
    let link = wrap(options, &place.interface.name, opened.link, tracer)?;
    Ok(Opened { link, ..opened })
}

/// Takes a slot and opens the links of all addresses with the same source ports.
fn open_ports(
    options: &DeviceOptions,
    place: &Place,
    random: &mut Rng,
) -> Result<Opened, OpenError> {
    for attempt in 1.. {
        let source_ports = free_ports(place, random)?;
        match open_ports_from(options, place, random, source_ports) {
            // Somebody was faster.
            Err(OpenError::Udp(UdpError::SourcePortHeld { .. })) if attempt < ATTEMPTS => {}
            other => return other,
        }
    }
    unreachable!("the last attempt returns")
}

fn open_ports_from(
    options: &DeviceOptions,
    place: &Place,
    random: &mut Rng,
    source_ports: Vec<u16>,
) -> Result<Opened, OpenError> {
    let counters = Arc::new(SharingCounters::default());
    let slots = slots::take(&place.addresses, random)?;
    let slot = slots.first().map_or(0, |slot| slot.number);
    let mut is_guest = false;
    let mut links: Vec<Box<dyn Link>> = Vec::new();
    for slot in slots {
        let mut udp = UdpOptions::new(slot.address, place.interface.mtu);
        udp.scope = place.interface.index;
        udp.source_ports.clone_from(&source_ports);
        udp.receive_buffer = options.receive_buffer.unwrap_or(udp.receive_buffer);
        let (steer, counters) = (!options.without_steering, Arc::clone(&counters));
        let port = SharedPort::open(&udp, slot, steer, random, counters)?;
        is_guest |= port.is_guest();
        links.push(Box::new(port));
    }
    let link = match links.pop() {
        Some(link) if links.is_empty() => link,
        last => {
            links.extend(last);
            Box::new(AddressLinks::new(links))
        }
    };
    let addresses = place.addresses.clone();
    Ok(Opened { link, slot, addresses, counters, is_guest })
}

/// Random source ports that are free on all addresses, at least one.
fn free_ports(place: &Place, random: &mut Rng) -> Result<Vec<u16>, OpenError> {
    let mut ports = Vec::with_capacity(SOURCE_PORTS);
    for _ in 0..CANDIDATES {
        let port = random.between(FIRST_SOURCE_PORT, u64::from(u16::MAX)) as u16;
        let is_free = |address: &IpAddr| {
            UdpSocket::bind(socket_address(*address, port, place.interface.index)).is_ok()
        };
        if !ports.contains(&port) && place.addresses.iter().all(is_free) {
            ports.push(port);
        }
        if ports.len() == SOURCE_PORTS {
            break;
        }
    }
    let address = place.addresses.first().copied();
    match (ports.is_empty(), address) {
        (true, Some(address)) => Err(why_no_port(place, address)),
        _ => Ok(ports),
    }
}

/// No port is free on all addresses: perhaps one of them is not ours.
fn why_no_port(place: &Place, first: IpAddr) -> OpenError {
    let foreign = place.addresses.iter().find(|address| {
        let bound = UdpSocket::bind(socket_address(**address, 0, place.interface.index));
        bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrNotAvailable)
    });
    match foreign {
        Some(address) => UdpError::NotLocal { address: *address }.into(),
        None => UdpError::NoSourcePort { address: first }.into(),
    }
}

fn socket_address(address: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match address {
        IpAddr::V6(address) if address.is_unicast_link_local() => {
            SocketAddrV6::new(address, port, 0, scope).into()
        }
        _ => SocketAddr::new(address, port),
    }
}

/// Puts capture and faults above a link, if the options ask for them.
pub(super) fn wrap(
    options: &DeviceOptions,
    interface: &str,
    link: Box<dyn Link>,
    tracer: Option<&Arc<Tracer>>,
) -> Result<Box<dyn Link>, OpenError> {
    let link = match &options.capture {
        Some(path) => record(path, interface, link)?,
        None => link,
    };
    let link: Box<dyn Link> = match tracer.filter(|tracer| tracer.wanted().packets) {
        Some(tracer) => Box::new(Traced::new(link, Arc::clone(tracer))),
        None => link,
    };
    Ok(match options.fault.clone().filter(|plan| !plan.is_empty()) {
        Some(plan) => Box::new(Impaired::new(link, Faults::new(plan))),
        None => link,
    })
}

fn record(path: &Path, interface: &str, link: Box<dyn Link>) -> Result<Box<dyn Link>, OpenError> {
    let recorded = CaptureFile::create(path)
        .and_then(|file| Recorded::new(link, file, interface, clock::epoch()));
    match recorded {
        Ok(recorded) => Ok(Box::new(recorded)),
        Err(error) => Err(OpenError::Capture { path: path.to_owned(), error }),
    }
}

/// The file of a capture, which belongs to one device. A forked child has no part in it: neither
/// does it write there, nor does it keep others from it when its parent has ended.
struct CaptureFile(Local<File>);

impl CaptureFile {
    /// Makes the file, or empties one that no device writes to.
    fn create(path: &Path) -> io::Result<Self> {
        let file = Local::open_one(|| {
            File::options().write(true).create(true).truncate(false).open(path)
        })?;
        // Terminals, pipes and the null device take what comes.
        if file.metadata()?.is_file() {
            claim(&file)?;
            file.set_len(0)?;
        }
        Ok(Self(file))
    }
}

/// Two devices that write to one file would spoil it.
fn claim(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another device records to it; give each a file of its own",
        )),
        // Some file systems have no locks.
        Err(TryLockError::Error(_)) | Ok(()) => Ok(()),
    }
}

impl Write for CaptureFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
