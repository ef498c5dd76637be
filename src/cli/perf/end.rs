//! One end: a device, its queue pairs and its memory.
//!
//! ```text
//!   memory:  source 0 │ source 1 │ … │ target of queue pair 0 │ target of queue pair 1 │ …
//! ```
//!
//! What is sent or read lies in a source; what arrives goes to the target of its queue pair, which
//! has as many places as there are sources if messages walk through memory. Both ends have the same
//! layout.

use uroce::verbs::{
    Access, Completion, CompletionChannel, CompletionQueue, ConnectOptions, Context, Endpoint,
    MemoryRegion, Psn, QueueCapacities, QueuePair, QueuePairOptions, Remote, Rkey, Sge,
};

use super::PerfArgs;
use super::plan::{ALIGNMENT, Measure, Operation, Row};
use crate::cli::output::{Failure, random_u64};
use crate::cli::pingpong::handshake;

/// Sources of small messages in latency rows: a message may still be repeated while the next ones
/// are written.
const SOURCES: usize = 8;
/// Messages from here on are waited for until they are acknowledged.
const LARGE: usize = 64 << 10;
/// Memory of one end at most.
const MOST_MEMORY: usize = 4 << 30;
/// Bytes of a pattern that are made at a time.
const CHUNK: usize = 64 << 10;

/// What an end tells the other.
#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
pub(super) struct Card {
    /// Addresses of the queue pairs, as in the handshake of pingpong.
    endpoints: Vec<String>,
    address: u64,
    key: u32,
}

/// One end.
pub(super) struct End {
    // In this order: who is dropped first stands on the later ones.
    pub(super) pairs: Vec<QueuePair>,
    pub(super) completions: CompletionQueue,
    pub(super) channel: CompletionChannel,
    pub(super) memory: MemoryRegion,
    pub(super) row: Row,
    psns: Vec<Psn>,
    peer: Option<(u64, Rkey)>,
}

impl End {
    /// Makes everything that the row needs, not yet connected.
    pub(super) fn new(args: &PerfArgs, context: &Context, row: Row) -> Result<Self, Failure> {
        let domain = context.allocate_domain()?;
        let receives = if row.operation == Operation::Send { args.receives() } else { 0 };
        let pairs = args.queue_pairs;
        let completions =
            context.create_completion_queue((pairs * (args.depth + receives)).max(1))?;
        let channel = CompletionChannel::new()?;
        channel.attach(&completions, 0)?;
        let options = QueuePairOptions {
            capacities: QueueCapacities {
                send_requests: args.depth,
                receive_requests: receives,
                send_segments: 1,
                receive_segments: 1,
                inline_bytes: args.inline,
            },
            ..QueuePairOptions::new(&completions)
        };
        let mut made = Vec::new();
        for _ in 0..pairs {
            made.push(domain.create_queue_pair(&options)?);
        }
        let memory = domain.allocate(memory_of(&row, pairs as usize)?, Access::ALL)?;
        let psns = (0..pairs).map(|_| Psn::new(random_u64() as u32)).collect();
        Ok(Self { pairs: made, completions, channel, memory, row, psns, peer: None })
    }

    /// What the other end has to know.
    pub(super) fn card(&self) -> Result<Card, Failure> {
        let mut endpoints = Vec::new();
        for (pair, psn) in self.pairs.iter().zip(&self.psns) {
            endpoints.push(handshake::format(&pair.endpoint(0, *psn)?));
        }
        let key = self.memory.remote_key().value();
        Ok(Card { endpoints, address: self.memory.remote(0).address, key })
    }

    /// Connects all queue pairs with those of the other end.
    pub(super) fn connect(&mut self, args: &PerfArgs, card: &Card) -> Result<(), Failure> {
        if card.endpoints.len() != self.pairs.len() {
            return Err(Failure::bad("the two ends have different numbers of queue pairs"));
        }
        let options = ConnectOptions {
            path_mtu: args.mtu,
            timeout: args.timeout,
            ..ConnectOptions::default()
        };
        for ((pair, psn), text) in self.pairs.iter().zip(&self.psns).zip(&card.endpoints) {
            let peer: Endpoint = handshake::parse(text)?;
            pair.connect(&peer, *psn, &options)?;
        }
        self.peer = Some((card.address, Rkey::new(card.key)));
        Ok(())
    }

    /// How many sources there are.
    pub(super) fn sources(&self) -> usize {
        sources(&self.row)
    }

    /// A source as a segment.
    pub(super) fn source(&self, number: usize) -> Sge {
        self.memory.segment(source_offset(&self.row, number), self.row.size)
    }

    /// A place in the target of a queue pair as a segment.
    pub(super) fn target(&self, pair: usize, place: usize) -> Sge {
        self.memory.segment(target_offset(&self.row, pair, place), self.row.size)
    }

    /// The other end's target of a queue pair.
    pub(super) fn remote_target(&self, pair: usize, place: usize) -> Remote {
        self.remote(target_offset(&self.row, pair, place))
    }

    /// One of the other end's sources.
    pub(super) fn remote_source(&self, number: usize) -> Remote {
        self.remote(source_offset(&self.row, number))
    }

    fn remote(&self, offset: usize) -> Remote {
        let (address, key) = self.peer.expect("only connected ends ask for it");
        Remote { address: address.wrapping_add(offset as u64), key }
    }

    /// Fills all sources: both ends know what the other's hold.
    pub(super) fn fill_sources(&self, is_asker: bool) -> Result<(), Failure> {
        for number in 0..self.sources() {
            let start = source_offset(&self.row, number);
            for at in (0..self.row.size).step_by(CHUNK) {
                let length = CHUNK.min(self.row.size - at);
                self.memory.write(start + at, &self.pattern(is_asker, number, at, length))?;
            }
        }
        Ok(())
    }

    /// What lies `at` bytes into a source. Only where messages walk through memory does each have
    /// its own: in latency rows any of them may be the last to arrive.
    fn pattern(&self, is_asker: bool, source: usize, at: usize, length: usize) -> Vec<u8> {
        let place = source % self.row.places();
        let seed = self.row.seed() ^ if is_asker { 0x5a5a_0000 } else { 0 };
        let seed = seed.wrapping_add((place as u32).wrapping_mul(0x0101_4f27));
        let byte = |index: usize| {
            ((index as u32 ^ seed).wrapping_mul(0x9e37_79b1).rotate_left(11) ^ seed) as u8
        };
        (at..at + length).map(byte).collect()
    }

    /// Checks that the target holds what the other end's sources do, as far as `messages` have
    /// reached.
    pub(super) fn check_target(
        &self,
        pair: usize,
        is_asker: bool,
        messages: u64,
    ) -> Result<(), Failure> {
        let places = self.row.places().min(usize::try_from(messages).unwrap_or(usize::MAX));
        (0..places).try_for_each(|place| self.check_place(pair, is_asker, place))
    }

    /// In latency rows the last byte is a mark of its own.
    fn check_place(&self, pair: usize, is_asker: bool, place: usize) -> Result<(), Failure> {
        let marked = self.row.measure == Measure::Latency && self.row.operation == Operation::Write;
        let size = self.row.size - usize::from(marked);
        let start = target_offset(&self.row, pair, place);
        for at in (0..size).step_by(CHUNK) {
            let length = CHUNK.min(size - at);
            let expected = self.pattern(!is_asker, place, at, length);
            let found = self.memory.to_vec(start + at, length)?;
            if let Some(wrong) = found.iter().zip(&expected).position(|(is, should)| is != should) {
                return Err(Failure::bad(format!(
                    "{} of {} bytes: byte {} is 0x{:02x} instead of 0x{:02x}",
                    self.row.operation.name(),
                    self.row.size,
                    at + wrong,
                    found[wrong],
                    expected[wrong]
                )));
            }
        }
        Ok(())
    }

    /// The last byte of a queue pair's target, as a program that watches its memory sees it.
    pub(super) fn arrived_mark(&self, pair: usize) -> Result<u8, Failure> {
        let mut mark = [0];
        self.memory.read(target_offset(&self.row, pair, 0) + self.row.size - 1, &mut mark)?;
        Ok(mark[0])
    }

    /// Writes the last byte of a source.
    pub(super) fn set_mark(&self, source: usize, mark: u8) -> Result<(), Failure> {
        Ok(self.memory.write(source_offset(&self.row, source) + self.row.size - 1, &[mark])?)
    }

    /// A copy of a source, to be posted inline.
    pub(super) fn copy_of_source(&self, source: usize) -> Result<Vec<u8>, Failure> {
        Ok(self.memory.to_vec(source_offset(&self.row, source), self.row.size)?)
    }

    /// Copies a source.
    pub(super) fn read_source(&self, source: usize, copy: &mut [u8]) -> Result<(), Failure> {
        Ok(self.memory.read(source_offset(&self.row, source), copy)?)
    }

    /// The counter of a queue pair that the other end adds to.
    pub(super) fn word(&self, pair: usize) -> Result<u64, Failure> {
        Ok(self.memory.load_u64(target_offset(&self.row, pair, 0))?)
    }

    /// The place of a completion's queue pair.
    pub(super) fn place_of(&self, completion: &Completion) -> Result<usize, Failure> {
        let number = completion.queue_pair;
        let place = self.pairs.iter().position(|pair| pair.number() == number);
        place.ok_or_else(|| Failure::bad(format!("a completion of {number}, which is not ours")))
    }

    /// Ends the measurement if a work request has failed, and says why it did.
    pub(super) fn check(&self, completion: &Completion) -> Result<(), Failure> {
        if completion.status.is_success() {
            return Ok(());
        }
        let status = completion.status;
        let why = self.pairs[self.place_of(completion)?].explain(completion);
        let (name, size) = (self.row.operation.name(), self.row.size);
        Err(Failure::bad(format!("{name} of {size} bytes failed: {status}\n{why}")))
    }
}

fn stride(row: &Row) -> usize {
    row.size.next_multiple_of(ALIGNMENT)
}

fn sources(row: &Row) -> usize {
    match row.measure {
        Measure::Latency if row.size <= LARGE => SOURCES,
        Measure::Latency => 2,
        Measure::Bandwidth => row.places(),
    }
}

fn source_offset(row: &Row, number: usize) -> usize {
    number * stride(row)
}

fn target_offset(row: &Row, pair: usize, place: usize) -> usize {
    (sources(row) + pair * row.places() + place) * stride(row)
}

fn memory_of(row: &Row, pairs: usize) -> Result<usize, Failure> {
    let bytes = target_offset(row, pairs, 0);
    if bytes <= MOST_MEMORY {
        return Ok(bytes);
    }
    Err(Failure::usage(format!(
        "{pairs} queue pairs with messages of {} bytes need {} MiB of memory at each end, and perf \
         takes 4096 at most: give a smaller --size, --buffer or --qps",
        row.size,
        bytes >> 20
    )))
}
