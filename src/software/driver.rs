//! Giving the engine its turns: what the application's calls, a waiting thread and the device's
//! own thread do.
//!
//! ```text
//!  post, poll ──▶ try the lock ──▶ turn ──▶ effects, outside the lock
//!  control    ──▶ wait for it  ──▶ change ─▶ turn ─▶ effects
//!  thread     ──▶ somebody polls? ── yes: stand by for 50 µs, later 500
//!                        └─ no: turn ─▶ more? again ─▶ sleep on link, alarm, event
//! ```

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crossbeam::utils::CachePadded;

use super::clock;
use super::core::{Alarm, Core, Turn};
use super::events::EventQueue;
use super::fork::{self, Local};
use super::system;
use super::trace::Tracer;
use super::turn::{Outcome, TurnLock};
use crate::engine::{Effects, Engine};
use crate::link::{Event, Link};
use crate::time::{Instant, MICROSECOND};

/// The thread keeps out as long as the application has polled within this time.
const GRACE: u64 = 50 * MICROSECOND;
/// As [`GRACE`], after a post.
const GRACE_AFTER_POST: u64 = 5 * MICROSECOND;
/// The longest that the thread keeps out between two looks at an application that polls without end.
/// Each look takes a processor from somebody, and ends a time slice.
const LONG_GRACE: u64 = 10 * GRACE;
/// After a turn that moved so many packets it is later than when the turn began.
const LONG_TURN: usize = 16;
/// The thread goes on looking for so long after something was moved, if there are processors to
/// spare.
const SPIN: u64 = 50 * MICROSECOND;
/// Turns that one call runs at most.
const ROUNDS: usize = 4;
/// Turns that a control call runs at most as long as they receive something.
const LOOKS: usize = 32;

/// The device was opened by the process that this one was forked from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the device belongs to the process that this one was forked from; open it anew in this process"
)]
pub struct Forked;

/// All that the application's threads and the device's own share.
pub(super) struct Driver {
    turns: TurnLock<Core>,
    pub(super) events: EventQueue,
    progress: Progress,
    /// Ends the sleeper's sleep.
    wake: Local<Event>,
    /// What the sleeper sleeps on.
    descriptors: Vec<RawFd>,
    /// The link has nothing to sleep on: it must be looked at again and again.
    looks_often: bool,
    /// Whether the device has a thread.
    has_thread: bool,
    stopping: AtomicBool,
    /// The thread sleeps because the application polls, and nobody has called it yet.
    stands_by: AtomicBool,
    /// When the application last polled, or would have for the thread to behave as it shall; 0 if
    /// never.
    polled: CachePadded<AtomicU64>,
    /// When the next turn is due, as of the last one.
    due: CachePadded<AtomicU64>,
    /// Held by the waiting thread that sleeps on the link, if the device has no thread.
    sleeper: Mutex<()>,
    generation: u32,
    pub(super) tracer: Option<Arc<Tracer>>,
}

impl Driver {
    /// Drives an engine over a link.
    ///
    /// # Errors
    /// That the process has no descriptors left.
    pub(super) fn new(
        engine: Engine,
        link: Box<dyn Link>,
        has_thread: bool,
        tracer: Option<Arc<Tracer>>,
    ) -> io::Result<Self> {
        let wake = Local::open(Event::new, |event| vec![event.descriptor()])?;
        let alarm = has_thread.then(Alarm::new).transpose()?;
        let mut descriptors = vec![wake.descriptor()];
        descriptors.extend(alarm.as_ref().map(Alarm::descriptor));
        descriptors.extend(link.descriptors());
        let looks_often = link.descriptors().is_empty();
        let bells = engine.doorbells().clone();
        Ok(Self {
            turns: TurnLock::new(Core::new(engine, link, alarm), bells),
            events: EventQueue::new()?,
            progress: Progress::default(),
            wake,
            descriptors,
            looks_often,
            has_thread,
            stopping: AtomicBool::new(false),
            stands_by: AtomicBool::new(false),
            polled: CachePadded::new(AtomicU64::new(0)),
            due: CachePadded::new(AtomicU64::new(0)),
            sleeper: Mutex::new(()),
            generation: fork::generation(),
            tracer,
        })
    }

    /// Whether this process opened the device, and is not a child of the one that did.
    pub(super) fn is_ours(&self) -> bool {
        fork::generation() == self.generation
    }

    /// Calls `change` with the lock held, then runs a turn and everything that it caused.
    ///
    /// What has arrived before is behind it then: a queue pair that is reset and connected anew gets no
    /// message that was sent to the old one.
    ///
    /// Turns keep out while control calls wait, so that these come to their turn. Where threads make
    /// one such call after another, there may always be one that waits; then a call runs a turn
    /// before it gives the lock to the next.
    pub(super) fn control<R>(
        &self,
        change: impl FnOnce(&mut Core, Instant) -> R,
    ) -> Result<R, Forked> {
        if !self.is_ours() {
            return Err(Forked);
        }
        let mut effects = Effects::default();
        let changed = self.turns.control(|core| {
            let now = clock::now();
            let result = change(core, now);
            core.engine.take_effects(&mut effects);
            self.events.store(&mut effects.events);
            if core.is_starved(now) {
                self.assisting_turn(core, now, &mut effects);
            }
            result
        });
        Ok(changed.then_run(|| {
            self.finish(Outcome::Done, &mut effects);
            self.run_turns(LOOKS, false);
        }))
    }

    /// Sends what is owed already, such as acknowledgements that wait for the application's next
    /// post, before something ends that owes it.
    pub(super) fn settle(&self) -> Result<(), Forked> {
        if !self.is_ours() {
            return Err(Forked);
        }
        let mut effects = Effects::default();
        let settled = self.turns.control(|core| {
            let more = |_: &usize| {
                let report = self.turn(core, clock::now(), &mut effects).report;
                report.more || report.received > 0
            };
            let _ = (0..LOOKS).take_while(more).count();
        });
        settled.then_run(|| {
            self.finish(Outcome::Done, &mut effects);
            self.assist(false);
        });
        Ok(())
    }

    /// The application's call runs a bounded number of turns if the lock is free; `polling`: it
    /// will be back soon.
    pub(super) fn assist(&self, polling: bool) {
        if self.is_ours() {
            self.run_turns(1, polling);
        }
    }

    /// As [`Self::assist`]; each time, up to `looks` turns as long as they receive something.
    fn run_turns(&self, looks: usize, polling: bool) {
        let mut effects = Effects::default();
        let outcome = self.turns.run(ROUNDS, |core| {
            let mut now = clock::now();
            let mut turn = self.assisting_turn(core, now, &mut effects);
            for _ in 1..looks {
                if turn.report.received == 0 {
                    break;
                }
                now = clock::now();
                turn = self.assisting_turn(core, now, &mut effects);
            }
            let is_long = turn.report.received + turn.report.sent >= LONG_TURN;
            self.note_presence(if is_long { clock::now() } else { now }, polling);
        });
        self.finish(outcome, &mut effects);
    }

    /// A turn in a call of the application's.
    fn assisting_turn(&self, core: &mut Core, now: Instant, effects: &mut Effects) -> Turn {
        let turn = self.turn(core, now, effects);
        self.due.store(turn.due.as_nanos(), Ordering::Relaxed);
        if let Some(alarm) = &mut core.alarm {
            // If the application does not come back, the thread takes over.
            alarm.no_later_than(turn.due.max(now + GRACE), now);
        }
        turn
    }

    /// One bounded turn, under the lock.
    fn turn(&self, core: &mut Core, now: Instant, effects: &mut Effects) -> Turn {
        let turn = core.turn(now, effects);
        self.events.store(&mut effects.events);
        turn
    }

    /// The application does not poll any more: the device's thread has to do the work from now on.
    pub(super) fn gone(&self) {
        self.polled.store(0, Ordering::Relaxed);
        // Either this sees that the thread stands by, or the thread sees that nobody polls.
        fence(Ordering::SeqCst);
        let stands_by = &self.stands_by;
        if stands_by.load(Ordering::Relaxed) && stands_by.swap(false, Ordering::Relaxed) {
            self.wake.signal();
        }
    }

    /// The application has taken completions without a turn.
    pub(super) fn polled(&self) {
        self.note_presence(clock::now(), true);
    }

    /// Tells the thread how long to keep out: after a post for a shorter time, because the
    /// application may go on to spin on its own memory until the answer is there.
    fn note_presence(&self, now: Instant, polling: bool) {
        let back = if polling { 0 } else { GRACE - GRACE_AFTER_POST };
        let polled = now.as_nanos().saturating_sub(back).max(1);
        self.polled.store(polled, Ordering::Relaxed);
    }

    /// What has to happen outside the lock after turns were run.
    fn finish(&self, outcome: Outcome, effects: &mut Effects) {
        if let Some(tracer) = &self.tracer {
            tracer.failures(effects);
        }
        effects.notify();
        self.events.announce();
        let waited_for = self.progress.announce();
        // Without a thread the sleeper is a waiting thread, which must see what it waits for.
        let concerns_sleeper = outcome == Outcome::Unfinished || (waited_for && !self.has_thread);
        if concerns_sleeper && self.turns.must_signal() {
            self.wake.signal();
        }
    }

    /// Blocks until `done` says so or `deadline` comes; the last answer of `done` is returned.
    /// `done` is asked again whenever turns were run.
    pub(super) fn wait<R>(
        &self,
        deadline: Instant,
        mut done: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        if !self.is_ours() {
            return done();
        }
        let waiting = self.progress.wait_for();
        self.assist(false);
        loop {
            let seen = waiting.seen();
            if let Some(result) = done() {
                return Some(result);
            }
            if clock::now() >= deadline {
                return None;
            }
            match self.sleeper.try_lock() {
                Ok(_sleeper) if !self.has_thread => {
                    if let Some(result) = self.sleep_for(deadline, &mut done) {
                        return Some(result);
                    }
                }
                _ => {
                    self.gone();
                    waiting.until_progress(seen, deadline);
                }
            }
        }
    }

    /// A waiting thread sleeps on the link itself, unless what it waits for is there already, and
    /// runs a turn.
    fn sleep_for<R>(&self, deadline: Instant, done: &mut impl FnMut() -> Option<R>) -> Option<R> {
        if self.turns.fall_asleep() {
            // What somebody else's turn brought before this thread counted as asleep.
            let missed = done();
            if missed.is_some() {
                self.turns.wake_up();
                return missed;
            }
            let due = Instant::from_nanos(self.due.load(Ordering::Relaxed));
            let until = due.min(deadline);
            self.sleep(&mut Vec::new(), system::until(clock::now(), until));
            self.turns.wake_up();
        }
        self.assist(false);
        None
    }

    fn sleep(&self, polls: &mut Vec<libc::pollfd>, nanoseconds: Option<u64>) {
        polls.clear();
        polls.extend(self.descriptors.iter().map(|descriptor| system::readable(*descriptor)));
        let longest = self.looks_often.then_some(GRACE);
        let nanoseconds = match (nanoseconds, longest) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        system::sleep_on(polls, nanoseconds);
        if polls[0].revents != 0 {
            self.wake.clear();
        }
    }

    /// The device's thread, until [`Self::stop`].
    pub(super) fn run_thread(&self) {
        system::block_signals();
        system::ask_for_short_slices();
        let mut thread = Thread::default();
        while !self.stopping.load(Ordering::Acquire) {
            self.thread_step(&mut thread);
        }
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.signal();
    }

    fn thread_step(&self, thread: &mut Thread) {
        let polled = Instant::from_nanos(self.polled.load(Ordering::Relaxed));
        let since = clock::now().since(polled);
        if polled != Instant::ZERO && since < GRACE {
            let wait = thread.keep_out(GRACE - since);
            return self.stand_by(thread, wait, polled);
        }
        let mut last = None;
        let effects = &mut thread.effects;
        let outcome = self.turns.run(1, |core| {
            let now = clock::now();
            let turn = self.turn(core, now, effects);
            self.due.store(turn.due.as_nanos(), Ordering::Relaxed);
            if let Some(alarm) = &mut core.alarm {
                alarm.looked(turn.due, now);
            }
            last = Some((now, turn));
        });
        self.finish(outcome, &mut thread.effects);
        match last {
            // Somebody else has the lock, perhaps for a long turn.
            None => {
                let wait = thread.keep_out(GRACE);
                return self.stand_by(thread, wait, polled);
            }
            Some(_) if outcome == Outcome::Unfinished => {}
            Some((now, turn)) => self.pause(thread, now, turn),
        }
        thread.kept_out = 0;
    }

    /// After a turn without bells left: sleeps, or goes on at once.
    fn pause(&self, thread: &mut Thread, now: Instant, turn: Turn) {
        if turn.moved() {
            thread.moved = now;
        }
        if turn.only_holds() {
            return self.hold(turn.report.next_deadline);
        }
        if turn.due <= now || thread.spins(now) {
            return std::hint::spin_loop();
        }
        if self.turns.fall_asleep() {
            self.sleep(&mut thread.polls, None);
            self.turns.wake_up();
        }
    }

    /// A few microseconds in which the application's answer may overtake the acknowledgement.
    fn hold(&self, until: Instant) {
        while clock::now() < until && !self.stopping.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }

    /// The application runs the turns: looks again soon, or when it has gone since it was seen to
    /// have last polled at `polled`.
    fn stand_by(&self, thread: &mut Thread, nanoseconds: u64, polled: Instant) {
        thread.spinning = None;
        thread.polls.clear();
        thread.polls.push(system::readable(self.wake.descriptor()));
        self.stands_by.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if polled == Instant::ZERO || self.polled.load(Ordering::Relaxed) != 0 {
            system::sleep_on(&mut thread.polls, Some(nanoseconds));
        }
        self.stands_by.store(false, Ordering::Relaxed);
        if thread.polls[0].revents != 0 {
            self.wake.clear();
        }
    }
}

/// What only the device's thread knows.
#[derive(Default)]
struct Thread {
    effects: Effects,
    polls: Vec<libc::pollfd>,
    /// When a turn last moved something.
    moved: Instant,
    spinning: Option<Spinning>,
    /// How long it has kept out last, 0 before it ran a turn.
    kept_out: u64,
}

impl Thread {
    /// How long to keep out if the application's presence lasts for `rest`: from time to time
    /// longer while it polls, but not after a mere post.
    fn keep_out(&mut self, rest: u64) -> u64 {
        let polls = rest > GRACE_AFTER_POST;
        self.kept_out = if polls { (self.kept_out * 2).clamp(GRACE, LONG_GRACE) } else { 0 };
        self.kept_out.max(rest)
    }

    /// Whether to look again at once although there is nothing to do.
    fn spins(&mut self, now: Instant) -> bool {
        if now.since(self.moved) >= SPIN {
            self.spinning = None;
        } else if self.spinning.is_none() {
            self.spinning = Spinning::start();
        }
        self.spinning.is_some()
    }
}

/// A spinning thread in the process's count.
struct Spinning;

/// Threads of devices that spin.
static SPINNING: AtomicUsize = AtomicUsize::new(0);

impl Spinning {
    /// Only where processors outnumber spinning threads; each device's thread stands for itself
    /// and for an application that spins.
    fn start() -> Option<Self> {
        static PROCESSORS: OnceLock<usize> = OnceLock::new();
        let processors =
            *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
        let count = SPINNING.fetch_add(1, Ordering::Relaxed) + 1;
        let token = Self;
        (processors > 2 * count).then_some(token)
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        SPINNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells waiting threads that turns were run.
#[derive(Default)]
struct Progress {
    waiting: AtomicUsize,
    /// Counts announcements that somebody waited for.
    announced: Mutex<u64>,
    changed: Condvar,
}

impl Progress {
    /// After a turn: wakes who waits; whether anybody does.
    fn announce(&self) -> bool {
        // Either this sees the waiting thread, or that one's next look sees what the turn did.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        *announced += 1;
        self.changed.notify_all();
        true
    }

    fn wait_for(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Waiting(self)
    }
}

/// A waiting thread in the count.
struct Waiting<'a>(&'a Progress);

impl Waiting<'_> {
    /// The announcements so far; to be read before looking at what is waited for.
    fn seen(&self) -> u64 {
        *self.0.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until there is another announcement than `seen`, or `deadline`.
    fn until_progress(&self, seen: u64, deadline: Instant) {
        let announced = self.0.announced.lock().unwrap_or_else(PoisonError::into_inner);
        match system::until(clock::now(), deadline) {
            Some(wait) => {
                let wait = Duration::from_nanos(wait);
                drop(self.0.changed.wait_timeout_while(announced, wait, |now| *now == seen));
            }
            None => drop(self.0.changed.wait_while(announced, |now| *now == seen)),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        // Another waiting thread may have to sleep on the link in this one's place.
        self.0.announce();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::{EngineOptions, Port};
    use crate::link::memory::{MemoryOptions, pair};
    use crate::transport::Counter;
    use crate::wire::{Flow, SentBurst};

    /// Threads that make one control call after another can have it so that always one waits.
    #[test]
    fn control_calls_without_end_do_not_keep_the_data_path_waiting() {
        let [address, peer] = [1, 2].map(|last| std::net::IpAddr::from([10, 0, 0, last]));
        let (ours, mut peers) = pair([address, peer], &MemoryOptions::default()).unwrap();
        let engine = Engine::new(EngineOptions::new(1, vec![address]), ours.capabilities());
        let driver = Driver::new(engine, Box::new(ours), false, None).unwrap();
        let flow = Flow { source: peer, destination: address, source_port: 0xc000 };
        let mut burst = Some(SentBurst {
            flow,
            traffic_class: 0,
            first_identification: 0,
            segment: 20,
            length: 20,
        });
        peers.transmit(1, &mut |_| burst.take());
        let _another = driver.turns.as_if_one_waited();
        driver.control(|_, _| ()).unwrap();
        let received = |core: &mut Core| core.engine.counters().get(Counter::ReceivedPackets);
        assert_eq!(driver.turns.control(received).then_run(|| ()), 1);
    }
}
