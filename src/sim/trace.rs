//! What happened, for people and for comparison: a hash over every frame with its time, the last
//! events in words, and a capture if one is wanted.

use std::collections::VecDeque;
use std::fmt;

use crate::fault::{Delivery, DropCause, Fate};
use crate::queue::Completion;
use crate::time::Instant;
use crate::wire::{IdentificationRule, Message, Packet, Qpn, SentBurst, Syndrome, frame_headers};

use super::oracle::{Action, Defect};
use super::scenario::Operation;

/// Events that are kept unless more are wanted.
const KEPT: usize = 40;
/// Bytes of a packet that are kept: all headers.
const KEPT_BYTES: usize = 56;

/// A frame that was sent, whatever became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedFrame {
    /// When.
    pub time: Instant,
    /// Ethernet frame, without FCS.
    pub bytes: Vec<u8>,
}

/// What is kept of a run beside its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Every frame that is sent.
    pub frames: bool,
    /// So many of the last events.
    pub events: usize,
}

impl Keep {
    /// Nothing.
    pub const NOTHING: Self = Self { frames: false, events: 0 };
}

impl Default for Keep {
    /// No frames, some events.
    fn default() -> Self {
        Self { frames: false, events: KEPT }
    }
}

enum Event {
    Frame { from: usize, head: [u8; KEPT_BYTES], length: usize, fate: Fate },
    Note(Note),
    Text(String),
}

/// Something that happened and is not a frame. It is put into words when somebody wants to read it,
/// which is nearly never.
pub(super) enum Note {
    /// A completion was polled.
    Polled { node: usize, completion: Completion },
    /// A receive was posted.
    Receive { id: u64, number: Qpn, capacity: usize },
    /// A request was posted.
    Send(SendNote),
}

/// What distinguishes something that happened, for the hash.
type Words = [u64; 3];

/// See [`Note::Send`].
pub(super) struct SendNote {
    pub(super) id: u64,
    pub(super) number: Qpn,
    pub(super) operation: Operation,
    pub(super) length: usize,
    pub(super) action: Action,
    pub(super) fence: bool,
    pub(super) signaled: bool,
    pub(super) defect: Option<Defect>,
}

impl Note {
    fn words(&self) -> Words {
        match self {
            Self::Polled { node, completion } => {
                let what = [*node as u64, completion.kind as u64, completion.status as u64];
                let what = what[0] << 16 | what[1] << 8 | what[2];
                let number = u64::from(completion.queue_pair.value());
                [1 << 32 | what, completion.id, number << 32 | u64::from(completion.length)]
            }
            Self::Receive { id, number, capacity } => {
                [2 << 32 | u64::from(number.value()), *id, *capacity as u64]
            }
            Self::Send(send) => {
                let offset = match send.action {
                    Action::Write(Some(place)) | Action::Read(Some(place)) => place.offset,
                    Action::Atomic(Some(word), _) => word.offset,
                    _ => 0,
                };
                let (number, length) = (u64::from(send.number.value()), send.length as u64);
                [
                    3 << 32 | number,
                    send.id << 8 | send.operation as u64,
                    length << 32 | offset as u64,
                ]
            }
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Polled { node, completion } => {
                let Completion { id, kind, status, length, queue_pair, .. } = completion;
                write!(
                    f,
                    "node {node} polls {kind:?} {id} of {queue_pair}: {status}, {length} bytes"
                )
            }
            Self::Receive { id, number, capacity } => {
                write!(f, "receive {id:#x} of {number} posted: {capacity} bytes")
            }
            Self::Send(send) => send.fmt(f),
        }
    }
}

impl fmt::Display for SendNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, number, operation, length, .. } = self;
        write!(f, "{operation:?} {id} of {number} posted: {length} bytes")?;
        match self.action {
            Action::Write(Some(place)) | Action::Read(Some(place)) => {
                write!(f, ", memory {} at {}", place.memory.0, place.offset)?;
            }
            Action::Atomic(Some(word), _) => {
                write!(f, ", memory {} word at {}", word.memory.0, word.offset)?;
            }
            _ => {}
        }
        if self.fence {
            f.write_str(", fence")?;
        }
        if !self.signaled {
            f.write_str(", unsignaled")?;
        }
        self.defect.map_or(Ok(()), |defect| write!(f, ", wrong: {defect}"))
    }
}

/// See the module's text.
pub(super) struct Trace {
    hash: u64,
    events: VecDeque<(Instant, Event)>,
    kept: usize,
    capture: Option<Vec<CapturedFrame>>,
}

impl Trace {
    pub(super) fn new(keep: Keep) -> Self {
        let capture = keep.frames.then(Vec::new);
        let (hash, events) = (0xcbf2_9ce4_8422_2325, VecDeque::new());
        Self { hash, events, kept: keep.events, capture }
    }

    /// A hash over everything so far.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn take_capture(&mut self) -> Vec<CapturedFrame> {
        self.capture.take().unwrap_or_default()
    }

    /// One packet of a burst was sent.
    pub(super) fn frame(
        &mut self,
        now: Instant,
        from: usize,
        burst: &SentBurst,
        identification: u16,
        bytes: &[u8],
        fate: Fate,
    ) {
        self.mix(now.as_nanos());
        // The BTH, and the ICRC at the end, which stands for all that it covers.
        let (bth, icrc) = (bytes.first_chunk::<16>().copied(), bytes.last_chunk().copied());
        for word in bth.unwrap_or_default().as_chunks().0 {
            self.mix(u64::from_le_bytes(*word));
        }
        self.mix(
            u64::from(u32::from_le_bytes(icrc.unwrap_or_default())) << 32 | bytes.len() as u64,
        );
        self.mix((from as u64) << 48 | u64::from(identification) << 16 | fate_number(fate));
        if self.kept > 0 {
            let mut head = [0; KEPT_BYTES];
            let kept = bytes.len().min(KEPT_BYTES);
            head[..kept].copy_from_slice(&bytes[..kept]);
            self.keep(now, Event::Frame { from, head, length: bytes.len(), fate });
        }
        if let Some(capture) = &mut self.capture {
            let headers =
                frame_headers(&burst.flow, identification, burst.traffic_class, 64, bytes.len());
            let bytes = [headers.as_bytes(), bytes].concat();
            capture.push(CapturedFrame { time: now, bytes });
        }
    }

    /// Something happened that is not a frame.
    pub(super) fn note(&mut self, now: Instant, note: Note) {
        note.words().into_iter().for_each(|word| self.mix(word));
        if self.kept > 0 {
            self.keep(now, Event::Note(note));
        }
    }

    /// The same; the text is asked for only if it is kept.
    pub(super) fn tell(&mut self, now: Instant, words: Words, text: impl FnOnce() -> String) {
        words.into_iter().for_each(|word| self.mix(word));
        if self.kept > 0 {
            self.keep(now, Event::Text(text()));
        }
    }

    fn keep(&mut self, now: Instant, event: Event) {
        if self.events.len() >= self.kept {
            self.events.pop_front();
        }
        self.events.push_back((now, event));
    }

    fn mix(&mut self, value: u64) {
        let mixed = (self.hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash = mixed ^ mixed >> 29;
    }

    /// The last events, one a line, oldest first.
    pub(super) fn last_events(&self) -> Vec<String> {
        let line = |(time, event): &(Instant, Event)| match event {
            Event::Note(note) => format!("{}  {note}", stamp(*time)),
            Event::Text(text) => format!("{}  {text}", stamp(*time)),
            Event::Frame { from, head, length, fate } => {
                let what = describe(&head[..KEPT_BYTES.min(*length)], *length);
                format!("{}  node {from} sends {what}{}", stamp(*time), fate_in_words(*fate))
            }
        };
        self.events.iter().map(line).collect()
    }
}

/// Microseconds with three decimals.
fn stamp(time: Instant) -> String {
    let nanoseconds = time.as_nanos();
    format!("{:>10}.{:03} us", nanoseconds / 1000, nanoseconds % 1000)
}

/// The identification that a segment of a burst gets.
pub(super) fn identification(rule: IdentificationRule, burst: &SentBurst, index: usize) -> u16 {
    rule.of_segment(burst.first_identification, index)
}

fn describe(head: &[u8], length: usize) -> String {
    // The kept head ends somewhere in the payload: cut to whole words, it still parses.
    let Ok(packet) = Packet::parse(&head[..head.len() & !3]) else {
        return format!("{length} bytes, opcode {:#04x}", head.first().copied().unwrap_or(0xff));
    };
    let headers = packet.headers;
    let name = headers.opcode().and_then(crate::wire::Opcode::from_byte).map_or("?", |o| o.name());
    let ack = if headers.ack_request { " AckReq" } else { "" };
    let syndrome = match headers.message {
        Message::Acknowledge(aeth) => match aeth.syndrome {
            Syndrome::Ack(_) => format!(" msn {}", aeth.msn),
            other => format!(" {other:?} msn {}", aeth.msn),
        },
        _ => String::new(),
    };
    let (to, psn) = (headers.destination, headers.psn.value());
    format!("{name} psn {psn:#08x} to {to}, {length} bytes{ack}{syndrome}")
}

fn fate_number(fate: Fate) -> u64 {
    match fate {
        Fate::Drop(DropCause::Loss) => 1,
        Fate::Drop(DropCause::QueueFull) => 2,
        Fate::Deliver(delivery) => {
            let changed = u64::from(delivery.corruption.is_some()) << 3;
            4 | changed | u64::from(delivery.duplicate.is_some()) << 4 | delivery.delay << 5
        }
    }
}

fn fate_in_words(fate: Fate) -> String {
    let Fate::Deliver(delivery) = fate else { return "  [lost]".to_owned() };
    let Delivery { delay, duplicate, corruption, mark_ce } = delivery;
    let mut words = Vec::new();
    if delay > 0 {
        words.push(format!("{} us late", delay / 1000));
    }
    if let Some(after) = duplicate {
        words.push(format!("again after {} us", after / 1000));
    }
    if let Some(flip) = corruption {
        words.push(format!("byte {} bit {} wrong", flip.byte, flip.bit));
    }
    if mark_ce {
        words.push("CE".to_owned());
    }
    if words.is_empty() { String::new() } else { format!("  [{}]", words.join(", ")) }
}
