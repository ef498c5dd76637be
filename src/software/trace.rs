//! Telling on standard error what happens: `UROCE_TRACE`.
//!
//! ```text
//!   turn under the lock ── packets, facts of failures ─┐
//!   calls, outside the lock ── sentences ──────────────┼─▶ bounded queue ─▶ thread: text, stderr
//! ```
//!
//! Nobody waits for the thread: who finds the queue full drops what he has to say, and the thread
//! tells how much is missing. So a reader of standard error that stands still stops no data path,
//! and no text is made under the lock. Times are of one clock, counted from the process's first
//! traced device.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::clock;
use super::environment::Trace;
use super::fork;
use super::system;
use crate::engine::{Dropped, Effects, Failure, Flushed};
use crate::time::Instant;
use crate::wire::{Flow, Headers};
use crate::words::{self, Direction};

/// Entries that wait to be told; more are lost.
const WAITING: usize = 8192;
/// How long the end of a device waits for the rest to be told.
const PATIENCE: Duration = Duration::from_secs(2);

/// What there is to tell.
pub(super) enum Entry {
    /// A packet that is one.
    Packet(Direction, Flow, Headers, usize),
    /// Bytes that are no packet.
    Malformed(Direction, Flow, usize),
    /// A work request or connection that has failed.
    Failure(Box<Failure>),
    /// Work requests that were flushed.
    Flushed(Flushed),
    /// A message that was dropped, where that fails nothing.
    Dropped(Box<Dropped>),
    /// A call.
    Call(String),
    /// A call that was refused.
    Refused(String),
}

/// Tells about one device.
pub struct Tracer {
    wanted: Trace,
    /// Nothing once the end has begun.
    entries: Option<SyncSender<(Instant, Entry)>>,
    done: Mutex<Receiver<()>>,
    lost: Arc<AtomicU64>,
    generation: u32,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tracer").field(&self.wanted).finish()
    }
}

/// Where all times of this process count from.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(clock::now)
}

impl Tracer {
    /// Begins to tell what is wanted; nothing if nothing is.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(wanted: Trace) -> io::Result<Option<Arc<Self>>> {
        if wanted == Trace::default() {
            return Ok(None);
        }
        start();
        let (entries, waiting) = sync_channel(WAITING);
        let (finished, done) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let teller = Teller { coloured: colours(), lost: Arc::clone(&lost) };
        let run = move || {
            // The program's signals are not ours, and a closed standard error ends nobody.
            system::block_signals();
            teller.run(&waiting);
            // The device may have stopped waiting.
            let _ = finished.send(());
        };
        std::thread::Builder::new().name("uroce-trace".to_owned()).spawn(run)?;
        let generation = fork::generation();
        Ok(Some(Arc::new(Self {
            wanted,
            entries: Some(entries),
            done: Mutex::new(done),
            lost,
            generation,
        })))
    }

    /// What is to be told.
    pub fn wanted(&self) -> Trace {
        self.wanted
    }

    /// Tells a call and what came of it. `call` is asked for the text only if somebody wants it.
    pub fn call<E: std::fmt::Display>(
        &self,
        call: impl FnOnce() -> String,
        outcome: Result<(), &E>,
    ) {
        match outcome {
            Ok(()) if self.wanted.verbs => self.tell(Entry::Call(format!("{} = ok", call()))),
            Err(error) if self.wanted.verbs || self.wanted.errors => {
                self.tell(Entry::Refused(format!("{} was refused: {error}", call())));
            }
            _ => {}
        }
    }

    /// Tells a packet that went over the link. Called under the lock: only copies.
    pub(super) fn packet(&self, at: Instant, direction: Direction, flow: Flow, segment: &[u8]) {
        let entry = match words::payload_of(segment) {
            Some((headers, payload)) => Entry::Packet(direction, flow, headers, payload),
            None => Entry::Malformed(direction, flow, segment.len()),
        };
        self.tell_at(at, entry);
    }

    /// Tells failures that a turn has collected.
    pub(super) fn failures(&self, effects: &mut Effects) {
        for failure in effects.failures.drain(..) {
            self.tell_at(failure.at, Entry::Failure(Box::new(failure)));
        }
        for flushed in effects.flushed.drain(..) {
            self.tell(Entry::Flushed(flushed));
        }
        for dropped in effects.dropped.drain(..) {
            self.tell_at(dropped.at, Entry::Dropped(Box::new(dropped)));
        }
    }

    fn tell(&self, entry: Entry) {
        self.tell_at(clock::now(), entry);
    }

    /// Never waits.
    fn tell_at(&self, at: Instant, entry: Entry) {
        // A child has no such thread.
        if fork::generation() != self.generation {
            return;
        }
        let Some(entries) = &self.entries else { return };
        if entries.try_send((at, entry)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Tracer {
    /// What was said is told before the process can end, unless nobody reads it.
    fn drop(&mut self) {
        self.entries = None;
        if fork::generation() == self.generation {
            let done = self.done.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            // It is told, or nobody reads for too long.
            let _ = done.recv_timeout(PATIENCE);
        }
    }
}

/// Whether standard error is a terminal where colours are wanted.
fn colours() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !refused
}

/// The thread's part.
struct Teller {
    coloured: bool,
    lost: Arc<AtomicU64>,
}

impl Teller {
    /// Until the device ends.
    fn run(&self, entries: &Receiver<(Instant, Entry)>) {
        for (at, entry) in entries {
            self.write(&self.lines(at, &entry));
            match self.lost.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => self.write(&format!("uroce: {lost} more could not be told in time\n")),
            }
        }
    }

    fn write(&self, text: &str) {
        // If standard error is closed there is nobody to tell.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    /// The entry in lines, each with its time and its kind.
    fn lines(&self, at: Instant, entry: &Entry) -> String {
        let (kind, colour, text) = told(entry);
        let time = at.since(start()) as f64 / 1e9;
        let mut lines = String::new();
        for (index, line) in text.lines().enumerate() {
            let head = match index {
                0 => format!("{time:>12.6} {kind:<7}"),
                _ => " ".repeat(20),
            };
            let line = match self.coloured {
                true => format!("\x1b[2m{head}\x1b[0m \x1b[{colour}m{line}\x1b[0m\n"),
                false => format!("{head} {line}\n"),
            };
            lines.push_str(&line);
        }
        lines
    }
}

/// Kind, colour and text.
fn told(entry: &Entry) -> (&'static str, u8, String) {
    const PLAIN: u8 = 0;
    const RED: u8 = 31;
    const CYAN: u8 = 36;
    match entry {
        Entry::Packet(direction, flow, headers, payload) => {
            ("packet", PLAIN, words::packet(*direction, flow, headers, *payload))
        }
        Entry::Malformed(direction, flow, bytes) => {
            let text = format!("{bytes} bytes that are no RoCE packet");
            ("packet", RED, words::malformed(*direction, flow, &text))
        }
        Entry::Failure(failure) => ("error", RED, words::told(failure)),
        Entry::Flushed(Flushed { queue_pair, sends, receives }) => {
            let text = format!(
                "queue pair {queue_pair}: {sends} sends and {receives} receives were flushed"
            );
            ("error", RED, text)
        }
        Entry::Dropped(dropped) => ("error", RED, words::told_dropped(dropped)),
        Entry::Call(text) => ("verb", CYAN, text.clone()),
        Entry::Refused(text) => ("verb", RED, text.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_time_and_kind_and_colours_only_if_wanted() {
        let teller = |coloured| Teller { coloured, lost: Arc::default() };
        let entry = Entry::Call("one\ntwo".to_owned());
        let at = start() + 1_500_000;
        let lines = teller(false).lines(at, &entry);
        assert_eq!(lines, "    0.001500 verb    one\n                     two\n");
        assert!(teller(true).lines(at, &entry).contains("\x1b[36mone\x1b[0m"));
    }

    /// Nobody reads: whoever tells goes on, and what is missing is counted.
    #[test]
    fn a_reader_that_stands_still_stops_nobody() {
        let (entries, waiting) = sync_channel(2);
        let (_, done) = sync_channel(1);
        let wanted = Trace { verbs: true, ..Trace::default() };
        let lost = Arc::<AtomicU64>::default();
        let generation = fork::generation();
        let tracer = Tracer {
            wanted,
            entries: Some(entries),
            done: Mutex::new(done),
            lost: Arc::clone(&lost),
            generation,
        };
        for _ in 0..5 {
            tracer.call(|| "x".to_owned(), Ok::<(), &io::Error>(()));
        }
        assert_eq!(lost.load(Ordering::Relaxed), 3);
        assert_eq!(waiting.try_iter().count(), 2);
    }
}
