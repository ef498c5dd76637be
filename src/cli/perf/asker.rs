//! The end that asks: posts, waits, and takes the times.

use std::collections::VecDeque;

use uroce::rng::Rng;
use uroce::software::clock;
use uroce::time::Instant;
use uroce::verbs::{Completion, Payload, SendFlags, SendOperation, SendRequest, Sge};

use super::PerfArgs;
use super::end::End;
use super::plan::Operation;
use super::volley::{PAIR, Volley, mark, post_receives};
use crate::cli::output::Failure;
use crate::cli::waiting::Waiting;

/// Completions that are taken at once.
pub(super) const BATCH: usize = 64;
/// Requests that are posted at once at most.
pub(super) const POSTS: usize = 32;
/// Times that are kept; of more, a random choice.
const MOST_TIMES: usize = 1 << 20;
/// Looks at memory between two at the clock.
const LOOKS: u32 = 1024;

/// Looks at memory between two at the queue where only memory is watched: to look at the queue drives
/// the device, which is its thread's work then.
const SELDOM: u32 = 1 << 20;

/// When a slice ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// After so many messages.
    Count(u64),
    /// After so many nanoseconds.
    Time(u64),
}

impl Until {
    /// Whether another one may start.
    pub(super) fn goes_on(self, start: Instant, started: u64) -> bool {
        match self {
            Self::Count(count) => started < count,
            Self::Time(nanoseconds) => clock::now().since(start) < nanoseconds,
        }
    }

    /// How many of `wanted` may start at once.
    fn room(self, wanted: usize, started: u64) -> usize {
        match self {
            Self::Count(count) => {
                wanted.min(usize::try_from(count.saturating_sub(started)).unwrap_or(wanted))
            }
            Self::Time(_) => wanted,
        }
    }
}

/// What a slice has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub(super) struct Moved {
    pub(super) messages: u64,
    pub(super) nanoseconds: u64,
}

/// Lets the other end work, if it is in this thread.
pub(super) type Drive<'d> = &'d mut dyn FnMut() -> Result<(), Failure>;

/// Round-trip times: all, or if there are very many a random choice of them.
pub(super) struct Times {
    pub(super) kept: Vec<u64>,
    seen: u64,
    random: Rng,
}

impl Times {
    pub(super) fn new() -> Self {
        Self { kept: Vec::new(), seen: 0, random: Rng::new(1) }
    }

    pub(super) fn add(&mut self, time: u64) {
        self.seen += 1;
        if self.kept.len() < MOST_TIMES {
            return self.kept.push(time);
        }
        let place = self.random.between(0, self.seen - 1) as usize;
        if let Some(kept) = self.kept.get_mut(place) {
            *kept = time;
        }
    }
}

/// The asking end of a row.
pub(super) struct Asker<'a> {
    args: &'a PerfArgs,
    pub(super) end: End,
    waiting: Waiting,
    volley: Volley,
    /// Messages of each queue pair so far.
    pub(super) messages: Vec<u64>,
    /// The place of each queue pair's next message.
    posted: Vec<usize>,
    /// What is posted inline: copies of the sources, one behind the other.
    copies: Vec<u8>,
}

impl<'a> Asker<'a> {
    /// An end that is connected.
    pub(super) fn new(args: &'a PerfArgs, end: End) -> Result<Self, Failure> {
        let (messages, posted) = (vec![0; end.pairs.len()], vec![0; end.pairs.len()]);
        end.fill_sources(true)?;
        if args.is_answered_by_send(&end.row) {
            post_receives(&end, PAIR, args.receives())?;
        }
        let mut copies = Vec::new();
        if args.is_inline(&end.row) {
            copies.resize(end.row.size * POSTS.min(end.row.places()), 0);
        }
        let (waiting, volley) = (args.waiting(), Volley::default());
        Ok(Self { args, end, waiting, volley, messages, posted, copies })
    }

    /// Messages of all queue pairs so far.
    pub(super) fn total(&self) -> u64 {
        self.messages.iter().sum()
    }

    /// Keeps as many messages under way as are allowed until the slice ends, and waits for them.
    /// Queue pairs with room come in turn.
    pub(super) fn bandwidth(&mut self, until: Until, drive: Drive<'_>) -> Result<Moved, Failure> {
        let mut free = vec![self.args.depth as usize; self.end.pairs.len()];
        let mut with_room: VecDeque<usize> = (0..free.len()).collect();
        let mut batch = [Completion::default(); BATCH];
        let most = self.args.under_way() as u64;
        let (mut started, mut done) = (0, 0);
        let start = clock::now();
        loop {
            while started - done < most
                && until.goes_on(start, started)
                && let Some(pair) = with_room.pop_front()
            {
                let room = free[pair].min((most - (started - done)) as usize);
                let count = until.room(self.args.posted_at_once().min(room), started);
                self.post(pair, count)?;
                free[pair] -= count;
                started += count as u64;
                if free[pair] > 0 {
                    with_room.push_back(pair);
                }
            }
            if done == started {
                return Ok(Moved { messages: done, nanoseconds: clock::now().since(start) });
            }
            let count = self.next(&mut batch, drive)?;
            for completion in &batch[..count] {
                self.end.check(completion)?;
                let pair = completion.id as usize;
                if free[pair] == 0 {
                    with_room.push_back(pair);
                }
                free[pair] += 1;
                self.messages[pair] += 1;
                done += 1;
            }
        }
    }

    /// One message after another; the time of each is added to `times`.
    pub(super) fn latency(
        &mut self,
        until: Until,
        times: &mut Times,
        drive: Drive<'_>,
    ) -> Result<Moved, Failure> {
        let mut moved = Moved::default();
        let start = clock::now();
        let mut before = start;
        while until.goes_on(start, moved.messages) {
            match self.end.row.operation {
                Operation::Write => self.write_trip(drive)?,
                Operation::Send => self.send_trip(drive)?,
                Operation::Read | Operation::Atomic => self.plain_trip(drive)?,
            }
            let now = clock::now();
            times.add(now.since(before));
            before = now;
            moved.messages += 1;
            self.messages[PAIR] += 1;
        }
        moved.nanoseconds = before.since(start);
        while self.volley.pending > 0 {
            self.take(drive)?;
        }
        Ok(moved)
    }

    /// Copies the sources of the next places, if they are posted inline.
    fn copy_sources(&mut self, first: usize, count: usize) -> Result<(), Failure> {
        let size = self.end.row.size;
        for index in 0..count.min(self.copies.len() / size) {
            let copy = &mut self.copies[index * size..(index + 1) * size];
            self.end.read_source(place(&self.end, first, index), copy)?;
        }
        Ok(())
    }

    /// Posts `count` requests with one call, for the next places of the memory.
    fn post(&mut self, pair: usize, count: usize) -> Result<(), Failure> {
        let first = self.posted[pair];
        self.copy_sources(first, count)?;
        let end = &self.end;
        // All alike, unless messages walk through memory.
        let mut segments = [[self.local(pair, first)]; POSTS];
        let mut operations = [self.operation(pair, first); POSTS];
        if end.row.places() > 1 {
            for index in 1..count {
                segments[index] = [self.local(pair, place(end, first, index))];
                operations[index] = self.operation(pair, place(end, first, index));
            }
        }
        let places = end.row.places();
        let requests: [SendRequest<'_>; POSTS] = std::array::from_fn(|index| SendRequest {
            id: pair as u64,
            operation: operations[index],
            flags: SendFlags::SIGNALED,
            // Where all are alike there is one copy.
            payload: match self.copies.chunks_exact(end.row.size).nth(index % places) {
                Some(copy) => Payload::Inline(copy),
                None => Payload::Segments(&segments[index]),
            },
        });
        end.pairs[pair].post_sends(&requests[..count]).map_err(|(_, error)| error)?;
        self.posted[pair] = place(end, first, count);
        Ok(())
    }

    /// What a request does at a place.
    fn operation(&self, pair: usize, place: usize) -> SendOperation {
        let end = &self.end;
        match end.row.operation {
            Operation::Write => SendOperation::Write(end.remote_target(pair, place)),
            Operation::Send => SendOperation::Send,
            Operation::Read => SendOperation::Read(end.remote_source(place)),
            Operation::Atomic => {
                SendOperation::FetchAdd { remote: end.remote_target(pair, 0), add: 1 }
            }
        }
    }

    /// The local memory of a request at a place.
    fn local(&self, pair: usize, place: usize) -> Sge {
        match self.end.row.operation {
            Operation::Write | Operation::Send => self.end.source(place),
            Operation::Read | Operation::Atomic => self.end.target(pair, place),
        }
    }

    /// The next completions, at least one.
    fn next(&self, batch: &mut [Completion], drive: Drive<'_>) -> Result<usize, Failure> {
        let end = &self.end;
        match self.waiting.next(&end.completions, &end.channel, batch, drive)? {
            0 => Err(self.silence()),
            count => Ok(count),
        }
    }

    /// Waits for completions of a volley and counts them.
    fn take(&mut self, drive: Drive<'_>) -> Result<(), Failure> {
        let mut batch = [Completion::default(); BATCH];
        let count = self.next(&mut batch, drive)?;
        let taken = batch[..count].iter();
        taken.into_iter().try_for_each(|one| self.volley.take(self.args, &self.end, one))
    }

    /// A WRITE there and one back, which is seen in memory.
    fn write_trip(&mut self, drive: Drive<'_>) -> Result<(), Failure> {
        while !self.volley.has_room(self.args, &self.end) {
            self.take(drive)?;
        }
        self.volley.post(self.args, &self.end)?;
        let expected = mark(self.volley.posted);
        let (start, mut looks) = (clock::now(), 0u32);
        while self.end.arrived_mark(PAIR)? != expected {
            if self.args.polls_queue() {
                self.volley.poll(self.args, &self.end)?;
            }
            drive()?;
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(SELDOM) {
                // A failed request explains more than silence, and ends it sooner.
                self.volley.poll(self.args, &self.end)?;
            }
            if looks.is_multiple_of(LOOKS)
                && clock::now().since(start) > self.waiting.patience.as_nanos() as u64
            {
                return Err(self.silence());
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// A SEND there and one back.
    fn send_trip(&mut self, drive: Drive<'_>) -> Result<(), Failure> {
        while !self.volley.has_room(self.args, &self.end) {
            self.take(drive)?;
        }
        self.volley.post(self.args, &self.end)?;
        while self.volley.received < self.volley.posted {
            self.take(drive)?;
        }
        Ok(())
    }

    /// A request and its completion.
    fn plain_trip(&mut self, drive: Drive<'_>) -> Result<(), Failure> {
        self.post(PAIR, 1)?;
        let mut batch = [Completion::default()];
        self.next(&mut batch, drive)?;
        self.end.check(&batch[0])
    }

    fn silence(&self) -> Failure {
        let likely = match self.args.timeout {
            0 => "with --timeout 0 what was lost is never sent again",
            _ => {
                "the other end may have stopped, or --fault loses too much; --patience waits longer"
            }
        };
        Failure::bad(format!(
            "nothing has completed for {} s, after {} messages: {likely}",
            self.waiting.patience.as_secs(),
            self.total()
        ))
    }
}

/// The place `index` places behind another.
fn place(end: &End, first: usize, index: usize) -> usize {
    let places = end.row.places();
    if places == 1 { 0 } else { (first + index) % places }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_ends_exactly_and_a_time_in_time() {
        let start = clock::now();
        assert!(Until::Count(2).goes_on(start, 1) && !Until::Count(2).goes_on(start, 2));
        assert_eq!(Until::Count(40).room(32, 30), 10);
        assert_eq!(Until::Time(1).room(32, 30), 32);
        assert!(!Until::Time(0).goes_on(start, 0));
    }

    #[test]
    fn times_beyond_the_limit_are_a_choice_of_all() {
        let mut times = Times::new();
        for time in 0..MOST_TIMES as u64 * 2 {
            times.add(time);
        }
        assert_eq!(times.kept.len(), MOST_TIMES);
        let late = times.kept.iter().filter(|time| **time >= MOST_TIMES as u64).count();
        let share = late as f64 / MOST_TIMES as f64;
        assert!((0.45..0.55).contains(&share), "half of them are of the second half: {share}");
    }
}
