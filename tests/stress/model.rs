//! What was posted on one queue pair, what became of it, and what memory must hold.

use std::collections::HashMap;

use uroce::verbs::{Completion, CompletionStatus};

use super::THREADS;

/// What a request was; its number is part of the identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    Write = 0,
    WriteWithImmediate = 1,
    Send = 2,
    AtomicWrite = 3,
    Flush = 4,
    FetchAdd = 5,
    CompareSwap = 6,
    Read = 7,
    Bind = 8,
    Invalidate = 9,
    Datagram = 10,
}

/// The identifier of a request: which life of the connection, whose, the how manyth, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    pub life: u16,
    pub thread: u8,
    pub sequence: u32,
    pub step: u8,
}

impl Id {
    pub fn number(self) -> u64 {
        let Self { life, thread, sequence, step } = self;
        u64::from(life) << 48 | u64::from(thread) << 40 | u64::from(sequence) << 8 | u64::from(step)
    }

    pub fn of(number: u64) -> Self {
        Self {
            life: (number >> 48) as u16,
            thread: (number >> 40) as u8,
            sequence: (number >> 8) as u32,
            step: number as u8,
        }
    }
}

/// A thread's requests that are under way together.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub ids: Vec<Id>,
    /// Bytes of each message.
    pub length: usize,
    /// What is expected in the word that the thread compares and swaps.
    pub word: u64,
    /// Nothing of it was refused.
    pub is_whole: bool,
}

/// Everything about the requests of one queue pair in its present life.
#[derive(Debug, Default)]
pub struct Requests {
    /// How those that were posted ended, if they have.
    ends: HashMap<u64, Option<CompletionStatus>>,
    /// The last completion of each thread, for the order.
    last: [u64; THREADS],
    pub transactions: [Option<Transaction>; THREADS],
    pub sequences: [u32; THREADS],
    /// Additions that have succeeded, and those of which nobody knows.
    pub added: u64,
    pub perhaps_added: u64,
    /// SENDs and WRITEs with immediate that have succeeded, and that have failed.
    pub sent: u64,
    pub perhaps_sent: u64,
    /// Messages that have arrived here, and the last of each thread.
    pub arrived: u64,
    last_arrived: [u64; THREADS],
}

impl Requests {
    /// Before posting.
    pub fn expect(&mut self, id: Id) {
        assert!(self.ends.insert(id.number(), None).is_none(), "{id:?} is posted twice");
    }

    /// It was refused.
    pub fn refused(&mut self, id: Id) {
        assert_eq!(self.ends.remove(&id.number()), Some(None), "{id:?} was refused and completed");
    }

    /// A send completion. `disturbed`: somebody has put one end in error or RESET.
    pub fn completed(&mut self, completion: &Completion, disturbed: bool) {
        let id = Id::of(completion.id);
        let end = self.ends.get_mut(&completion.id);
        let end = end.unwrap_or_else(|| {
            panic!("{id:?} completes, which nobody has posted in this life: {completion:?}")
        });
        assert!(end.is_none(), "{id:?} completes twice: {end:?}, {completion:?}");
        *end = Some(completion.status);
        let last = &mut self.last[usize::from(id.thread)];
        assert!(completion.id > *last, "{id:?} after {:?}: out of order", Id::of(*last));
        *last = completion.id;
        self.judge(id, completion, disturbed);
    }

    fn judge(&mut self, id: Id, completion: &Completion, disturbed: bool) {
        let status = completion.status;
        let allowed = match status {
            CompletionStatus::Success => true,
            CompletionStatus::WorkRequestFlushed | CompletionStatus::TransportRetryExceeded => {
                disturbed
            }
            _ => false,
        };
        assert!(allowed, "{id:?} ends with {status}, disturbed: {disturbed}");
        let good = status.is_success();
        if id.step == Step::FetchAdd as u8 {
            *(if good { &mut self.added } else { &mut self.perhaps_added }) += 1;
        }
        if [Step::Send as u8, Step::WriteWithImmediate as u8].contains(&id.step) {
            *(if good { &mut self.sent } else { &mut self.perhaps_sent }) += 1;
        }
    }

    /// A message of the peer has arrived, reliably: each once, those of a thread in order.
    pub fn arrived_in_order(&mut self, id: Id) {
        let last = &mut self.last_arrived[usize::from(id.thread)];
        assert!(id.number() > *last, "{id:?} arrives after {:?}", Id::of(*last));
        *last = id.number();
    }

    /// How all requests of a thread's transaction have ended; nothing if some have not.
    pub fn outcome(&self, transaction: &Transaction) -> Option<Vec<CompletionStatus>> {
        transaction.ids.iter().map(|id| *self.ends.get(&id.number())?).collect()
    }

    /// Forgets what has ended and was looked at.
    pub fn settle(&mut self, transaction: &Transaction) {
        for id in &transaction.ids {
            self.ends.remove(&id.number());
        }
    }

    /// Requests that have not ended.
    pub fn pending(&self) -> usize {
        self.ends.values().filter(|end| end.is_none()).count()
    }

    /// What a queue pair is after RESET: nothing of before will ever complete.
    pub fn begin_anew(&mut self) {
        *self = Self { sequences: self.sequences, ..Self::default() };
    }
}

/// The bytes of a message: its identifier, its length, and a pattern of both.
pub fn message(id: Id, length: usize) -> Vec<u8> {
    let plain = Id { step: 0, ..id }.number();
    let mut bytes: Vec<u8> = (0..length)
        .map(|at| (plain as usize).wrapping_mul(31).wrapping_add(at * 7) as u8)
        .collect();
    bytes[..8].copy_from_slice(&plain.to_le_bytes());
    bytes[8..12].copy_from_slice(&(length as u32).to_le_bytes());
    bytes
}

/// Whose message these bytes are. Panics unless they are one, whole.
pub fn read_message(bytes: &[u8]) -> Id {
    let id = Id::of(u64::from_le_bytes(*bytes.first_chunk().expect("a message has a head")));
    let whole = message(id, bytes.len());
    let wrong: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != whole[*at]).collect();
    assert!(
        wrong.is_empty(),
        "a message of {id:?} that is not whole: {} bytes, {} wrong from {:?} to {:?}; its head is {:?}, \
         the first wrong ones are {:?}",
        bytes.len(),
        wrong.len(),
        wrong.first(),
        wrong.last(),
        &bytes[..12],
        &bytes[wrong.first().copied().unwrap_or(0)..][..16.min(bytes.len() - wrong[0])],
    );
    id
}
