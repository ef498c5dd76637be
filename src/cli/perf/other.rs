//! The other end: in this thread, or in a process of its own that is told what to do.
//!
//! ```text
//!   asking process                                 asked process
//!     │ ── prepare: row ─────────────────────────▶ │  makes its end
//!     │ ◀──────────────── card: queue pairs, key ── │
//!     │ ── connect: card ────────────────────────▶ │
//!     │ ◀───────────────────────────────── ready ── │
//!     │ ── serve ────────────────────────────────▶ │   for each slice
//!     │ ═══ messages ════════════════════════════▶ │
//!     │ ── stop ─────────────────────────────────▶ │
//!     │ ◀──────────── stopped: processor time … ── │
//!     │ ── check: messages ──────────────────────▶ │
//!     │ ◀─────────────────────── checked: totals ── │
//! ```
//!
//! One JSON object a line, over the standard input and output of the asked process. A bare stream
//! or round trip of the ceiling goes the same way, with `sink` or `echo` and a port in place of
//! `serve`.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, Command as Program, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uroce::verbs::{Context, Counter};

use super::PerfArgs;
use super::end::{Card, End};
use super::plan::{Exchange, Row};
use super::raw::Arrived;
use super::raw_memory::RawMemory;
use super::service::Service;
use super::usage::Usage;
use crate::cli::output::Failure;

/// The other end has so long at least to make its memory, and to check it.
const PREPARATION: Duration = Duration::from_secs(60);

/// What the asked process is told.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Command {
    /// Make your end of the row with this number.
    Prepare(usize),
    Connect(Card),
    Serve,
    /// Receive a bare stream.
    Sink,
    /// Answer bare datagrams.
    Echo(Exchange),
    /// End what Serve, Sink or Echo has begun.
    Stop,
    /// Check what has come: the messages of each queue pair.
    Check(Vec<u64>),
}

/// What it answers.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Card {
        card: Card,
        totals: Totals,
        address: IpAddr,
    },
    Ready,
    /// The port that a bare socket receives on.
    Port(u16),
    Stopped {
        usage: Usage,
        arrived: Arrived,
    },
    Checked(Totals),
    Failed {
        status: u8,
        message: String,
    },
}

/// What a device has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct Totals {
    pub(super) sent_packets: u64,
    pub(super) received_packets: u64,
    pub(super) retransmitted_packets: u64,
    pub(super) sent_bursts: u64,
    /// Arrivals that found the receive buffer full.
    pub(super) overflowed: u64,
}

impl Totals {
    /// Those of a device.
    pub(super) fn of(context: &Context) -> Result<Self, Failure> {
        let counters = context.counters()?;
        let engine = &counters.engine;
        Ok(Self {
            sent_packets: engine.get(Counter::SentPackets),
            received_packets: engine.get(Counter::ReceivedPackets),
            retransmitted_packets: engine.get(Counter::RetransmittedPackets),
            sent_bursts: counters.link.sent.bursts,
            overflowed: counters.link.overflowed,
        })
    }

    /// What was counted since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            sent_packets: self.sent_packets - earlier.sent_packets,
            received_packets: self.received_packets - earlier.received_packets,
            retransmitted_packets: self.retransmitted_packets - earlier.retransmitted_packets,
            sent_bursts: self.sent_bursts - earlier.sent_bursts,
            overflowed: self.overflowed - earlier.overflowed,
        }
    }
}

/// The other end.
pub(super) enum Other<'a> {
    /// In this thread.
    Here(Box<Here<'a>>),
    /// In a process of its own.
    Process(Process),
}

/// The other end in this thread.
pub(super) struct Here<'a> {
    pub(super) args: &'a PerfArgs,
    pub(super) context: Context,
    pub(super) end: Option<End>,
    pub(super) service: Option<Service<'a>>,
    pub(super) raw: RawMemory,
}

impl Other<'_> {
    /// Makes the other end of a row.
    pub(super) fn prepare(&mut self, number: usize, row: Row) -> Result<(Card, Totals), Failure> {
        match self {
            Self::Here(here) => {
                // The last row's goes first: it has memory.
                here.service = None;
                let end = End::new(here.args, &here.context, row)?;
                let card = end.card()?;
                here.end = Some(end);
                Ok((card, Totals::of(&here.context)?))
            }
            Self::Process(process) => {
                process.tell(&Command::Prepare(number))?;
                match process.answer_to("prepare its memory and queue pairs")? {
                    Answer::Card { card, totals, address } => {
                        process.address = Some(address);
                        Ok((card, totals))
                    }
                    other => Err(unexpected(&other)),
                }
            }
        }
    }

    /// Connects it with this one.
    pub(super) fn connect(&mut self, card: Card) -> Result<(), Failure> {
        match self {
            Self::Here(here) => {
                let mut end = here.end.take().expect("it was prepared");
                end.connect(here.args, &card)?;
                here.service = Some(Service::new(here.args, end)?);
                Ok(())
            }
            Self::Process(process) => {
                process.tell(&Command::Connect(card))?;
                match process.answer_to("connect its queue pairs")? {
                    Answer::Ready => Ok(()),
                    other => Err(unexpected(&other)),
                }
            }
        }
    }

    /// It serves from now on.
    pub(super) fn serve(&mut self) -> Result<(), Failure> {
        match self {
            Self::Here(_) => Ok(()),
            Self::Process(process) => process.tell(&Command::Serve),
        }
    }

    /// Lets it work if it is in this thread, and sees whether it has failed.
    pub(super) fn drive(&mut self) -> Result<(), Failure> {
        match self {
            Self::Here(here) => here.service.as_mut().expect("it was connected").step().map(drop),
            Self::Process(process) => process.look(),
        }
    }

    /// It stops serving. Returns what it has used elsewhere.
    pub(super) fn stop(&mut self) -> Result<Usage, Failure> {
        match self {
            Self::Here(_) => Ok(Usage::default()),
            Self::Process(process) => Ok(process.stop()?.0),
        }
    }

    /// It checks what has come.
    pub(super) fn check(&mut self, messages: &[u64]) -> Result<Totals, Failure> {
        match self {
            Self::Here(here) => {
                here.service.as_mut().expect("it was connected").check(messages)?;
                Totals::of(&here.context)
            }
            Self::Process(process) => {
                process.tell(&Command::Check(messages.to_vec()))?;
                match process.answer_to("check what has come")? {
                    Answer::Checked(totals) => Ok(totals),
                    other => Err(unexpected(&other)),
                }
            }
        }
    }
}

/// A process that is the other end.
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    answers: Receiver<Answer>,
    patience: Duration,
    /// Where it is.
    address: Option<IpAddr>,
}

impl Process {
    /// Starts this program once more, with the same arguments.
    pub(super) fn start(patience: Duration) -> Result<Self, Failure> {
        let told =
            |error: std::io::Error| Failure::usage(format!("cannot start the other end: {error}"));
        let mut child = Program::new(std::env::current_exe().map_err(told)?)
            .args(std::env::args_os().skip(1))
            .arg("--as-peer")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(told)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for");
        };
        let (sender, answers) = channel();
        let listen = move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines
                .map_while(|line| serde_json::from_str(&line).ok())
                .try_for_each(|answer| sender.send(answer))
        };
        // Made first: whatever happens, it ends the child.
        let process = Self { child, input, answers, patience, address: None };
        std::thread::Builder::new().spawn(listen).map_err(told)?;
        Ok(process)
    }

    /// The address of its device.
    pub(super) fn address(&self) -> IpAddr {
        self.address.expect("a row was prepared")
    }

    pub(super) fn tell(&mut self, command: &Command) -> Result<(), Failure> {
        let mut line = serde_json::to_string(command)?;
        line.push('\n');
        if self.input.write_all(line.as_bytes()).is_ok() {
            return Ok(());
        }
        // It has ended; perhaps it has said why.
        Err(self.answer().err().unwrap_or_else(ended))
    }

    /// Its next answer, where nothing has to be done for it.
    fn answer(&self) -> Result<Answer, Failure> {
        self.answer_within(self.patience, "answer")
    }

    /// Its next answer, once it has done this, which may take a while: memory may be large.
    fn answer_to(&self, what: &str) -> Result<Answer, Failure> {
        self.answer_within(self.patience.max(PREPARATION), what)
    }

    fn answer_within(&self, patience: Duration, what: &str) -> Result<Answer, Failure> {
        match self.answers.recv_timeout(patience) {
            Ok(Answer::Failed { status, message }) => Err(failed(status, &message)),
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
            Err(RecvTimeoutError::Timeout) => Err(Failure::bad(format!(
                "the process with the other end took over {} s to {what}: a longer --patience \
                 waits for it",
                patience.as_secs()
            ))),
        }
    }

    /// Whether all is well while nothing is expected of it.
    pub(super) fn look(&self) -> Result<(), Failure> {
        match self.answers.try_recv() {
            Err(TryRecvError::Empty) => Ok(()),
            Ok(Answer::Failed { status, message }) => Err(failed(status, &message)),
            Ok(other) => Err(unexpected(&other)),
            Err(TryRecvError::Disconnected) => Err(ended()),
        }
    }

    /// Ends Serve, Sink or Echo.
    pub(super) fn stop(&mut self) -> Result<(Usage, Arrived), Failure> {
        self.tell(&Command::Stop)?;
        match self.answer()? {
            Answer::Stopped { usage, arrived } => Ok((usage, arrived)),
            other => Err(unexpected(&other)),
        }
    }

    /// Begins Sink or Echo. Returns the port.
    pub(super) fn receive_bare(&mut self, command: &Command) -> Result<u16, Failure> {
        self.tell(command)?;
        match self.answer()? {
            Answer::Port(port) => Ok(port),
            other => Err(unexpected(&other)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It keeps nothing that would be lost.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(status: u8, message: &str) -> Failure {
    let message = format!("the other end: {message}");
    if status == 2 { Failure::usage(message) } else { Failure::bad(message) }
}

fn ended() -> Failure {
    Failure::bad("the process with the other end has ended: somebody stopped it, or memory ran out")
}

pub(super) fn unexpected(answer: &Answer) -> Failure {
    Failure::bad(format!("the process with the other end answered something else: {answer:?}"))
}
