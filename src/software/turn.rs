//! Who does the work: whoever holds the lock.
//!
//! ```text
//!   a poster                          the holder
//!   store the bell (release)          turn: collect bells, receive, deadlines, transmit
//!   fence                             unlock
//!   try the lock ── got it: a turn    fence
//!        └── held: leave              any bell? then try the lock again
//! ```
//!
//! Of the two fences one comes first. If it is the poster's, the holder's look at the bells sees
//! the bell; if it is the holder's, the poster finds the lock free. Either way somebody runs a
//! turn after the bell was stored. The same pair of fences stands between a poster that stays away
//! because a control call waits and the control call's look at the bells when it leaves, and
//! between a holder that has had enough of turns and the sleeper's last look before it sleeps.
//!
//! Nothing here knows what a turn does, so that loom can try every interleaving of this very code.

use std::sync::TryLockError;

use crate::queue::Doorbells;
use crate::queue::sync::{Arc, AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, fence, lock};

/// Work behind a lock that nobody on the data path waits for.
pub(super) struct TurnLock<W> {
    work: Mutex<W>,
    bells: Arc<Doorbells>,
    /// Control calls that wait for the lock or hold it. While there are any, nobody on the data
    /// path tries the lock: a polling thread must not starve them.
    controls: AtomicUsize,
    /// Whether the sleeper is about to sleep or asleep, and nobody has signalled it yet.
    asleep: AtomicBool,
}

/// How [`TurnLock::run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Turns were run here, and no bell was left.
    Done,
    /// Somebody else has the lock or waits for it, and looks at the bells when it leaves.
    Elsewhere,
    /// The allowed turns were run here, and bells are left: the sleeper has to go on with them.
    Unfinished,
}

impl<W> TurnLock<W> {
    /// `work` behind a lock; `bells` say when it needs a turn.
    pub(super) fn new(work: W, bells: Arc<Doorbells>) -> Self {
        Self {
            work: Mutex::new(work),
            bells,
            controls: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
        }
    }

    /// Runs turns as long as the lock is free, bells are rung and there were fewer than `limit`.
    /// At least one turn is run if the lock is free. What a turn collected for afterwards is the
    /// caller's to run once this has returned: the lock is free then.
    pub(super) fn run(&self, limit: usize, mut turn: impl FnMut(&mut W)) -> Outcome {
        for _ in 0..limit {
            // The caller may have rung a bell just before. See the module's text.
            fence(Ordering::SeqCst);
            if self.controls.load(Ordering::Relaxed) != 0 {
                return Outcome::Elsewhere;
            }
            let Some(mut work) = try_lock(&self.work) else { return Outcome::Elsewhere };
            turn(&mut work);
            drop(work);
            fence(Ordering::SeqCst);
            if !self.bells.any() {
                return Outcome::Done;
            }
        }
        Outcome::Unfinished
    }

    /// Waits for the lock and calls `change`. Whoever rings a bell meanwhile leaves its turn to
    /// the caller, which must [`Self::run`] at least one afterwards.
    #[must_use = "a turn has to be run afterwards"]
    pub(super) fn control<R>(&self, change: impl FnOnce(&mut W) -> R) -> Controlled<R> {
        let announced = Announced::new(&self.controls);
        let mut work = lock(&self.work);
        let result = change(&mut work);
        drop(work);
        drop(announced);
        Controlled(result)
    }

    /// The sleeper: whether it may sleep now, until it is signalled or its descriptors or deadline
    /// wake it. If not, bells are rung that nobody else is bound to see.
    pub(super) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.bells.any() {
            self.wake_up();
            return false;
        }
        true
    }

    /// The sleeper is up again.
    pub(super) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Whether the sleeper has to be signalled so that it sees what the caller stored before; true
    /// once for each sleep.
    pub(super) fn must_signal(&self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed)
    }

    /// As if a control call waited as long as what is returned lives.
    #[cfg(all(test, not(loom)))]
    pub(super) fn as_if_one_waited(&self) -> impl Sized + '_ {
        Announced::new(&self.controls)
    }

    /// Whether a bell is rung.
    #[cfg(all(test, loom))]
    pub(super) fn any_bell(&self) -> bool {
        self.bells.any()
    }
}

/// What a control call gave, with the reminder that a turn is due.
pub(super) struct Controlled<R>(R);

impl<R> Controlled<R> {
    /// The result, after `turn` has been run.
    pub(super) fn then_run(self, turn: impl FnOnce()) -> R {
        turn();
        self.0
    }
}

/// A control call in the count, also while it panics.
struct Announced<'a>(&'a AtomicUsize);

impl<'a> Announced<'a> {
    fn new(controls: &'a AtomicUsize) -> Self {
        controls.fetch_add(1, Ordering::Relaxed);
        Self(controls)
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        // The lock is free by now: whoever sees the count fall may have it.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// The lock if it is free; a panic of an earlier holder does not count, as in [`lock`].
fn try_lock<W>(work: &Mutex<W>) -> Option<MutexGuard<'_, W>> {
    match work.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn turn_lock() -> (TurnLock<Vec<usize>>, Arc<Doorbells>) {
        let bells = Arc::new(Doorbells::new(64));
        (TurnLock::new(Vec::new(), Arc::clone(&bells)), bells)
    }

    #[test]
    fn a_bell_rung_during_a_turn_gets_another_turn_up_to_the_limit() {
        let (turns, bells) = turn_lock();
        let mut count = 0;
        let outcome = turns.run(8, |rung| {
            bells.collect(|bell| rung.push(bell));
            count += 1;
            if count < 3 {
                bells.ring(count);
            }
        });
        assert_eq!((outcome, count), (Outcome::Done, 3));
        let outcome = turns.run(2, |_| bells.ring(7));
        assert_eq!(outcome, Outcome::Unfinished);
        assert!(!turns.fall_asleep(), "bells are left");
        assert!(!turns.must_signal(), "the sleeper is awake");
        let outcome = turns.run(1, |rung| bells.collect(|bell| rung.push(bell)));
        assert_eq!(outcome, Outcome::Done);
        assert!(turns.fall_asleep());
        assert!(turns.must_signal());
        assert!(!turns.must_signal(), "one signal is enough");
    }

    #[test]
    fn the_data_path_stays_away_from_a_held_lock_and_from_control_calls() {
        let (turns, _) = turn_lock();
        let number = turns
            .control(|_| {
                assert_eq!(turns.run(1, |_| panic!("the lock is held")), Outcome::Elsewhere);
                7
            })
            .then_run(|| assert_eq!(turns.run(1, |rung| rung.push(1)), Outcome::Done));
        assert_eq!(number, 7);
        assert_eq!(turns.control(|rung| rung.len()).then_run(|| ()), 1);
    }

    #[test]
    fn a_waiting_control_call_keeps_the_data_path_from_a_free_lock() {
        let (turns, _) = turn_lock();
        let announced = Announced::new(&turns.controls);
        assert_eq!(turns.run(1, |_| panic!("a control call waits")), Outcome::Elsewhere);
        drop(announced);
        assert_eq!(turns.run(1, |_| ()), Outcome::Done);
    }

    #[test]
    fn a_panicking_control_call_does_not_keep_the_data_path_away() {
        let (turns, _) = turn_lock();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            turns.control(|_| panic!("on purpose")).then_run(|| ())
        }));
        assert!(panic.is_err());
        assert_eq!(turns.run(1, |_| ()), Outcome::Done);
    }
}
