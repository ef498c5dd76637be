//! What the lock guards: an engine, its link, and the alarm of whoever sleeps.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use super::fork::Local;
use super::system;
use crate::engine::{Effects, Engine, TurnReport};
use crate::link::Link;
use crate::time::{Instant, MICROSECOND};

/// Packets in each direction that a turn moves: what the lock is held for at most.
pub(super) const BUDGET: usize = 128;
/// Without a turn for longer than this a control call runs one before it gives the lock away.
const STARVED: u64 = 50 * MICROSECOND;

/// See the module's text.
pub(super) struct Core {
    pub(super) engine: Engine,
    pub(super) link: Box<dyn Link>,
    /// Nothing if no thread sleeps.
    pub(super) alarm: Option<Alarm>,
    /// When the last turn was run.
    looked: Option<Instant>,
}

/// What a turn did, and when the next one is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) report: TurnReport,
    pub(super) due: Instant,
}

impl Turn {
    /// Whether the only thing left for the next turn are acknowledgements that wait for the
    /// application's next post.
    pub(super) fn only_holds(&self) -> bool {
        self.report.more && self.report.received < BUDGET && self.report.sent < BUDGET
    }

    /// Whether anything was moved.
    pub(super) fn moved(&self) -> bool {
        self.report.received + self.report.sent > 0
    }
}

impl Core {
    pub(super) fn new(engine: Engine, link: Box<dyn Link>, alarm: Option<Alarm>) -> Self {
        Self { engine, link, alarm, looked: None }
    }

    /// Whether the last turn was long ago.
    pub(super) fn is_starved(&self, now: Instant) -> bool {
        self.looked.is_none_or(|looked| now.since(looked) > STARVED)
    }

    /// One bounded turn.
    pub(super) fn turn(&mut self, now: Instant, effects: &mut Effects) -> Turn {
        self.looked = Some(now);
        self.link.set_now(now);
        let report = self.engine.turn(now, &mut self.link, BUDGET);
        self.engine.take_effects(effects);
        let engine = if report.more { now } else { report.next_deadline };
        let due = engine.min(self.link.next_deadline().unwrap_or(Instant::NEVER));
        Turn { report, due }
    }
}

/// A timer among what the sleeper sleeps on. It is changed under the lock only, and promises that
/// the sleeper looks no later than `at`.
pub(super) struct Alarm {
    timer: Local<OwnedFd>,
    at: Instant,
}

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// That the process has no descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { timer: Local::open_one(system::new_timer)?, at: Instant::NEVER })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    /// Makes sure that the sleeper looks at `at` or before. An alarm that has gone off already
    /// stays so: the sleeper is about to look.
    pub(super) fn no_later_than(&mut self, at: Instant, now: Instant) {
        if at < self.at {
            self.set(at, now);
        }
    }

    /// The sleeper has looked, and wants to look again at `at`. One that goes off too early is left
    /// alone: that costs one look, and setting it anew costs a system call each time.
    pub(super) fn looked(&mut self, at: Instant, now: Instant) {
        if at < self.at || self.at <= now {
            self.set(at, now);
        }
    }

    fn set(&mut self, at: Instant, now: Instant) {
        if at == Instant::NEVER && self.at == Instant::NEVER {
            return;
        }
        // It fails only for bad arguments; then the sleeper looks at once rather than never.
        let wait = system::until(now, at);
        if system::set_timer(self.timer.as_fd(), wait).is_err() {
            debug_assert!(false, "a timer of ours cannot be set");
        }
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::software::clock;
    use crate::time::MILLISECOND;

    fn has_rung(alarm: &Alarm) -> bool {
        let mut polls = [system::readable(alarm.descriptor())];
        system::sleep_on(&mut polls, Some(0));
        polls[0].revents != 0
    }

    fn wait_for(alarm: &Alarm) {
        let mut polls = [system::readable(alarm.descriptor())];
        system::sleep_on(&mut polls, Some(20_000 * MILLISECOND));
        assert!(polls[0].revents != 0, "the alarm never rings");
    }

    #[test]
    fn an_alarm_rings_at_the_earliest_time_asked_for() {
        let mut alarm = Alarm::new().unwrap();
        let now = clock::now();
        alarm.no_later_than(now + 3_600_000 * MILLISECOND, now);
        assert!(!has_rung(&alarm));
        alarm.no_later_than(now + MILLISECOND, now);
        wait_for(&alarm);
        assert!(clock::now() >= now + MILLISECOND);
        let later = clock::now();
        alarm.no_later_than(later + MILLISECOND, later);
        assert!(has_rung(&alarm), "the sleeper has not looked yet");
    }

    #[test]
    fn a_look_quietens_the_alarm_until_the_next_time() {
        let mut alarm = Alarm::new().unwrap();
        let now = clock::now();
        alarm.looked(Instant::NEVER, now);
        alarm.no_later_than(now, now);
        wait_for(&alarm);
        let now = clock::now();
        alarm.looked(Instant::NEVER, now);
        assert!(!has_rung(&alarm));
        alarm.looked(now + MILLISECOND, now);
        alarm.looked(now + 3_600_000 * MILLISECOND, now);
        wait_for(&alarm);
    }
}
