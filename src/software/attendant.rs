//! A device's attendant: a thread off the data path that answers questions about the counters and
//! watches the network interface.
//!
//! ```text
//!   uroce counters ──▶ @uroce-counters-PID-DEVICE ──▶ question ──▶ a few control calls ──▶ lines
//!   kernel: link down, address gone ────────────────▶ asynchronous event
//! ```
//!
//! It sleeps until one of them comes. Who asks must be of our own user or root, is served alone,
//! and is dropped when slow; the engine is locked for a few queue pairs at a time only.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::clock;
use super::device::{DeviceCounters, count_all};
use super::driver::Driver;
use super::fork::Local;
use super::report::{DeviceReport, Line, PairReading, PairReport};
use super::sharing::SharingCounters;
use super::system;
use crate::engine::{AsyncEvent, Engine};
use crate::host::{self, Change, Interface, InterfaceWatch};
use crate::link::Event;
use crate::time::{Instant, SECOND};
use crate::wire::Qpn;

/// Names of listening sockets begin so, in the abstract namespace.
pub(super) const PREFIX: &str = "uroce-counters-";
/// The longest name of a local socket.
const LONGEST: usize = 100;
/// Devices of one name in a process whose sockets can be told apart.
const SAME_NAME: u32 = 1000;
/// Bytes of a question.
pub(super) const QUESTION: usize = 64;
/// Queue pairs that are read under one lock.
const AT_A_TIME: usize = 32;
/// How long one read or write may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Nanoseconds before the next try after one that the system refused.
const REST: u64 = SECOND / 10;
/// How long a whole question with its answer may take, in nanoseconds.
const LONGEST_EXCHANGE: u64 = 10 * SECOND;

/// See the module's text. Dropping it ends the thread.
pub(super) struct Attendant {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its owner share.
struct Shared {
    stop: Local<Event>,
    stopping: AtomicBool,
}

/// What the thread works with.
struct Work {
    driver: Arc<Driver>,
    sharing: Arc<SharingCounters>,
    name: String,
    interface: Option<Watched>,
    listener: Option<Local<UnixListener>>,
    shared: Arc<Shared>,
}

/// The interface and what is known of it.
struct Watched {
    watch: Local<InterfaceWatch>,
    name: String,
    index: u32,
    active: bool,
    addresses: Vec<IpAddr>,
    gone: bool,
}

impl Attendant {
    /// Starts the thread. A device works without being watched or asked, so what the system refuses
    /// here (sockets in a sandbox) only takes that away.
    ///
    /// # Errors
    /// That there is no descriptor or thread left.
    pub(super) fn start(
        name: &str,
        interface: Option<&Interface>,
        driver: &Arc<Driver>,
        sharing: &Arc<SharingCounters>,
    ) -> io::Result<Self> {
        let stop = Local::open(Event::new, |event| vec![event.descriptor()])?;
        let shared = Arc::new(Shared { stop, stopping: AtomicBool::new(false) });
        let work = Work {
            driver: Arc::clone(driver),
            sharing: Arc::clone(sharing),
            name: name.to_owned(),
            interface: interface.and_then(|interface| Watched::open(interface).ok()),
            listener: listen(name).ok(),
            shared: Arc::clone(&shared),
        };
        let thread = thread::Builder::new().name("uroce-attendant".to_owned());
        let thread = thread.spawn(move || work.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// In a forked child: the thread is the parent's, nothing here can be waited for.
    pub(super) fn forget(&mut self) {
        std::mem::forget(self.thread.take());
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.stop.signal();
        // A panic of the thread has been told on standard error.
        let _ = thread.join();
    }
}

/// The first free name of this process for a device.
fn listen(device: &str) -> io::Result<Local<UnixListener>> {
    let mut number = 1;
    loop {
        let name = socket_name(std::process::id(), device, number);
        let address = SocketAddr::from_abstract_name(name)?;
        let listener = Local::open_one(|| {
            let listener = UnixListener::bind_addr(&address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        match listener {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && number < SAME_NAME => {
                number += 1;
            }
            other => return other,
        }
    }
}

/// The name of the socket of the process's `number`th device of that name. What would not show in
/// the kernel's list, or is too long for it, is left out; the answers have the whole name.
fn socket_name(process: u32, device: &str, number: u32) -> String {
    let plain = |c: char| if c.is_ascii_graphic() && c != '#' { c } else { '_' };
    let device: String = device.chars().map(plain).take(LONGEST - PREFIX.len() - 16).collect();
    let suffix = if number == 1 { String::new() } else { format!("#{number}") };
    format!("{PREFIX}{process}-{device}{suffix}")
}

impl Work {
    fn run(mut self) {
        system::block_signals();
        while !self.shared.stopping.load(Ordering::Acquire) {
            let descriptors = [
                Some(self.shared.stop.descriptor()),
                self.interface.as_ref().map(|interface| interface.watch.as_raw_fd()),
                self.listener.as_ref().map(|listener| listener.as_raw_fd()),
            ];
            // A descriptor below zero is passed over.
            let mut polls =
                descriptors.map(|descriptor| system::readable(descriptor.unwrap_or(-1)));
            system::sleep_on(&mut polls, None);
            if polls[1].revents != 0 {
                self.look_at_interface();
            }
            if polls[2].revents != 0 {
                self.answer_one();
            }
        }
    }

    fn look_at_interface(&mut self) {
        let Some(interface) = &mut self.interface else { return };
        let mut events = Vec::new();
        interface.look(&mut events);
        for event in events {
            // In a forked child this thread does not exist.
            let _ = self.driver.control(|core, _| core.engine.report(event));
        }
    }

    fn answer_one(&self) {
        let Some(listener) = &self.listener else { return };
        match Local::open_one(|| listener.accept().map(|(stream, _)| stream)) {
            // Whoever does not stay, or goes too slowly, gets no answer.
            Ok(stream) => drop(self.answer(&stream)),
            // No descriptor is left, and who asks goes on waiting: not again at once.
            Err(_) => {
                let mut stop = [system::readable(self.shared.stop.descriptor())];
                system::sleep_on(&mut stop, Some(REST));
            }
        }
    }

    fn answer(&self, stream: &UnixStream) -> io::Result<()> {
        let user = system::peer_user(stream.as_fd())?;
        if user != 0 && user != system::effective_user() {
            return Ok(());
        }
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let stopping = &self.shared.stopping;
        let out = Exchange { stream, until: clock::now() + LONGEST_EXCHANGE, stopping };
        match out.question()?.as_str() {
            "device" => out.line(&self.device_line()?)?,
            "all" => {
                out.line(&self.device_line()?)?;
                self.pair_lines(self.numbers()?, &out)?;
            }
            question => match question.strip_prefix("qp ").and_then(|text| text.parse().ok()) {
                Some(number) => {
                    out.line(&self.device_line()?)?;
                    self.pair_lines(vec![Qpn::new(number)], &out)?;
                }
                None => {
                    let why = "the questions are `device`, `all` and `qp NUMBER`";
                    out.line(&Line::Refused(why.to_owned()))?;
                }
            },
        }
        out.line(&Line::End)
    }

    fn engine<R>(&self, look: impl FnOnce(&mut Engine) -> R) -> io::Result<R> {
        self.driver.control(|core, _| look(&mut core.engine)).map_err(io::Error::other)
    }

    fn numbers(&self) -> io::Result<Vec<Qpn>> {
        self.engine(|engine| engine.queue_pair_numbers())
    }

    fn device_line(&self) -> io::Result<Line> {
        let queue_pairs = self.engine(|engine| engine.queue_pair_count())?;
        let counters: DeviceCounters =
            count_all(&self.driver, &self.sharing).map_err(io::Error::other)?;
        let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        Ok(Line::Device(DeviceReport {
            process: std::process::id(),
            program: program.trim_end().to_owned(),
            device: self.name.clone(),
            interface: self.interface.as_ref().map(|interface| interface.name.clone()),
            time: clock::now().as_nanos(),
            queue_pairs,
            counters: DeviceReport::counts(&counters),
        }))
    }

    fn pair_lines(&self, numbers: Vec<Qpn>, out: &Exchange<'_>) -> io::Result<()> {
        for some in numbers.chunks(AT_A_TIME) {
            let read = |engine: &mut Engine| -> Vec<PairReading> {
                some.iter().filter_map(|number| PairReading::take(engine, *number)).collect()
            };
            for reading in self.engine(read)? {
                out.line(&Line::QueuePair(PairReport::of(&reading)))?;
            }
        }
        Ok(())
    }
}

/// A question and its answer. It ends early if it takes too long, or if the device ends, which waits
/// for it.
struct Exchange<'a> {
    stream: &'a UnixStream,
    until: Instant,
    stopping: &'a AtomicBool,
}

impl Exchange<'_> {
    fn check(&self) -> io::Result<()> {
        let is_over = self.stopping.load(Ordering::Acquire) || clock::now() > self.until;
        if is_over { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    /// The question: one line.
    fn question(&self) -> io::Result<String> {
        let mut bytes = Vec::new();
        while bytes.len() < QUESTION && bytes.last() != Some(&b'\n') {
            self.check()?;
            let mut some = [0; QUESTION];
            let mut stream = self.stream;
            let count = stream.read(&mut some[..QUESTION - bytes.len()])?;
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&some[..count]);
        }
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    fn line(&self, line: &Line) -> io::Result<()> {
        self.check()?;
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let mut stream = self.stream;
        stream.write_all(&text)
    }
}

impl Watched {
    fn open(interface: &Interface) -> io::Result<Self> {
        let index = interface.index;
        let watch = Local::open_one(|| InterfaceWatch::open(index))?;
        Ok(Self {
            watch,
            name: interface.name.clone(),
            index,
            active: interface.is_up && interface.is_running,
            addresses: interface.addresses.clone(),
            gone: false,
        })
    }

    /// Takes what the kernel has told, as events.
    fn look(&mut self, events: &mut Vec<AsyncEvent>) {
        let mut changes = Vec::new();
        self.watch.take(|change| changes.push(change));
        for change in changes {
            match change {
                Change::Link { is_up, is_running } => self.note_active(is_up && is_running, events),
                Change::Removed => self.note_removed(events),
                Change::Address => self.note_addresses(events),
                Change::Missed => self.look_for_itself(events),
            }
        }
    }

    fn note_active(&mut self, active: bool, events: &mut Vec<AsyncEvent>) {
        if self.gone || std::mem::replace(&mut self.active, active) == active {
            return;
        }
        events.push(if active { AsyncEvent::PortActive } else { AsyncEvent::PortError });
    }

    fn note_removed(&mut self, events: &mut Vec<AsyncEvent>) {
        self.note_active(false, events);
        if !std::mem::replace(&mut self.gone, true) {
            events.push(AsyncEvent::DeviceFatal);
        }
    }

    fn note_addresses(&mut self, events: &mut Vec<AsyncEvent>) {
        let Some(interface) = host::interface_named(&self.name) else { return };
        if interface.index == self.index && interface.addresses != self.addresses {
            self.addresses = interface.addresses;
            events.push(AsyncEvent::GidChange);
        }
    }

    fn look_for_itself(&mut self, events: &mut Vec<AsyncEvent>) {
        match host::interface_named(&self.name).filter(|found| found.index == self.index) {
            Some(interface) => {
                self.note_active(interface.is_up && interface.is_running, events);
                self.note_addresses(events);
            }
            None => self.note_removed(events),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_ends_when_it_takes_too_long_or_the_device_ends() {
        let later = clock::now() + LONGEST_EXCHANGE;
        for (until, stops) in [(later, false), (Instant::ZERO, false), (later, true)] {
            let (mut asker, stream) = UnixStream::pair().unwrap();
            asker.write_all(b"al").unwrap();
            asker.write_all(b"l\n").unwrap();
            let exchange = Exchange { stream: &stream, until, stopping: &AtomicBool::new(stops) };
            let goes_on = until == later && !stops;
            assert_eq!(exchange.question().ok(), goes_on.then(|| "all".to_owned()));
            assert_eq!(exchange.line(&Line::End).is_ok(), goes_on);
        }
    }

    #[test]
    fn names_of_sockets_are_short_plain_and_different() {
        assert_eq!(socket_name(12, "lo", 1), "uroce-counters-12-lo");
        assert_eq!(socket_name(12, "lo", 2), "uroce-counters-12-lo#2");
        assert_eq!(socket_name(12, "my dev#2\n", 1), "uroce-counters-12-my_dev_2_");
        assert!(socket_name(u32::MAX, &"x".repeat(500), SAME_NAME).len() <= 107);
    }
}
