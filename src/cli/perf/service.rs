//! The end that is asked: takes what comes, answers, and checks it.

use std::time::Duration;

use uroce::verbs::Completion;

use super::PerfArgs;
use super::asker::BATCH;
use super::end::End;
use super::plan::{Measure, Operation};
use super::volley::{PAIR, Volley, mark, post_receives};
use crate::cli::output::Failure;

/// How long an end that sleeps on events does so before it looks whether it is still wanted.
const NAP: Duration = Duration::from_millis(5);

/// The asked end of a row.
pub(super) struct Service<'a> {
    args: &'a PerfArgs,
    pub(super) end: End,
    volley: Volley,
    /// Messages received over each queue pair (SEND).
    received: Vec<u64>,
    /// Receives of each queue pair that have been used up.
    used: Vec<u32>,
}

impl<'a> Service<'a> {
    /// An end that is connected.
    pub(super) fn new(args: &'a PerfArgs, end: End) -> Result<Self, Failure> {
        end.fill_sources(false)?;
        let pairs = end.pairs.len();
        if end.row.operation == Operation::Send {
            (0..pairs).try_for_each(|pair| post_receives(&end, pair, args.receives()))?;
        }
        let (received, used) = (vec![0; pairs], vec![0; pairs]);
        Ok(Self { args, end, volley: Volley::default(), received, used })
    }

    /// Does what there is to do now. Returns how many completions it has taken.
    pub(super) fn step(&mut self) -> Result<usize, Failure> {
        match (self.end.row.measure, self.end.row.operation) {
            (Measure::Latency, Operation::Write) => self.write_back(),
            (Measure::Latency, Operation::Send) => self.send_back(),
            (_, Operation::Write | Operation::Read | Operation::Atomic | Operation::Send) => {
                self.take()
            }
        }
    }

    /// The same for an end that has a thread of its own: it may sleep.
    pub(super) fn step_or_sleep(&mut self) -> Result<(), Failure> {
        if self.args.events {
            self.end.completions.request_notification(false);
            while self.step()? > 0 {}
            self.end.channel.wait_event(NAP);
            return Ok(());
        }
        std::hint::spin_loop();
        self.step().map(drop)
    }

    /// Takes completions, of which there are some only if messages are received; to look for them
    /// also drives the device.
    fn take(&mut self) -> Result<usize, Failure> {
        let mut batch = [Completion::default(); BATCH];
        let count = self.end.completions.poll(&mut batch)?;
        for completion in &batch[..count] {
            self.end.check(completion)?;
            let pair = self.end.place_of(completion)?;
            self.received[pair] += 1;
            self.used[pair] += 1;
            if self.used[pair] >= self.args.receives() / 4 {
                post_receives(&self.end, pair, self.used[pair])?;
                self.used[pair] = 0;
            }
        }
        Ok(count)
    }

    /// Answers a WRITE that has appeared in memory by one.
    fn write_back(&mut self) -> Result<usize, Failure> {
        let next = mark(self.volley.posted + 1);
        let has_room = self.volley.has_room(self.args, &self.end);
        if has_room && self.end.arrived_mark(PAIR)? == next {
            self.volley.post(self.args, &self.end)?;
            return Ok(0);
        }
        if self.args.polls_queue() || !has_room {
            return self.volley.poll(self.args, &self.end);
        }
        Ok(0)
    }

    /// Answers each SEND by one.
    fn send_back(&mut self) -> Result<usize, Failure> {
        let count = self.volley.poll(self.args, &self.end)?;
        while self.volley.posted < self.volley.received
            && self.volley.has_room(self.args, &self.end)
        {
            self.volley.post(self.args, &self.end)?;
        }
        Ok(count)
    }

    /// Checks that exactly what was sent is here: `messages` are those of each queue pair.
    pub(super) fn check(&mut self, messages: &[u64]) -> Result<(), Failure> {
        // What was acknowledged has completed here, but may not have been looked at.
        while self.step()? > 0 {}
        let row = &self.end.row;
        for (pair, expected) in messages.iter().copied().enumerate() {
            if expected == 0 {
                continue;
            }
            let (what, found) = match (row.operation, row.measure) {
                (Operation::Atomic, _) => ("additions", self.end.word(pair)?),
                (Operation::Send, Measure::Bandwidth) => ("messages", self.received[pair]),
                (Operation::Send, Measure::Latency) => ("messages", self.volley.received),
                (Operation::Write, Measure::Latency) => ("answers", self.volley.posted),
                (Operation::Write | Operation::Read, _) => ("messages", expected),
            };
            if found != expected {
                let name = row.operation.name();
                return Err(Failure::bad(format!(
                    "{name}: {found} {what} arrived instead of {expected}"
                )));
            }
            if matches!(row.operation, Operation::Write | Operation::Send) {
                self.end.check_target(pair, false, expected)?;
            }
        }
        Ok(())
    }
}
