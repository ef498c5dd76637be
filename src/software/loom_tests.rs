//! Every interleaving of what threads share: the lock of [`super::turn`], doorbells, completion
//! queues and the ring below them. Loom replaces the primitives of `queue::sync`; run with
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release --lib loom
//! ```

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use loom::thread;

use super::turn::{Outcome, TurnLock};
use crate::queue::sync::Arc;
use crate::queue::{
    Attachment, Completion, CompletionKind, CompletionQueue, CompletionStatus, Doorbells, Origin,
    Payload, QueueCapacities, QueuePairKind, QueuePairQueues, QueuePairState, ReceiveRequest,
    SendFlags, SendOperation, SendRequest, WakerKey,
};
use crate::wire::Qpn;

/// The bells that turns have collected, one bit each.
type Seen = usize;

struct World {
    turns: TurnLock<Seen>,
    bells: Arc<Doorbells>,
    /// Stands for the eventfd that the sleeper sleeps on.
    event: AtomicBool,
    /// Whether the sleeper went to sleep and nothing but the event will wake it.
    sleeps: AtomicBool,
}

impl World {
    fn new() -> Arc<Self> {
        let bells = Arc::new(Doorbells::new(2));
        Arc::new(Self {
            turns: TurnLock::new(0, Arc::clone(&bells)),
            bells,
            event: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
        })
    }

    fn run(&self, limit: usize) -> Outcome {
        self.turns.run(limit, |seen| self.bells.collect(|bell| *seen |= 1 << bell))
    }

    /// What an application thread does after it has posted.
    fn post(&self, bell: usize, limit: usize) {
        self.bells.ring(bell);
        if self.run(limit) == Outcome::Unfinished && self.turns.must_signal() {
            self.event.store(true, Ordering::Release);
        }
    }

    /// One iteration of the background thread, up to its sleep.
    fn sleep(&self) {
        loop {
            self.run(1);
            if self.turns.fall_asleep() {
                return self.sleeps.store(true, Ordering::Release);
            }
            // The real thread waits a little when the lock is held.
            thread::yield_now();
        }
    }

    /// All bells seen by somebody, or by the sleeper once it is up again.
    fn assert_nothing_lost(&self, expected: Seen) {
        let mut seen = 0;
        self.turns.control(|all| seen = *all).then_run(|| ());
        if self.turns.any_bell() {
            assert!(self.sleeps.load(Ordering::Acquire), "a bell is left and nobody sleeps");
            assert!(self.event.load(Ordering::Acquire), "the sleeper sleeps on with a bell rung");
        } else {
            assert_eq!(seen, expected, "a bell was taken and its work not done");
        }
    }
}

#[test]
fn loom_no_bell_is_lost_between_a_poster_and_the_holder() {
    loom::model(|| {
        let world = World::new();
        let other = Arc::clone(&world);
        let poster = thread::spawn(move || other.post(1, 3));
        world.post(0, 3);
        poster.join().unwrap();
        assert!(!world.turns.any_bell(), "a bell is left with nobody bound to see it");
        world.assert_nothing_lost(3);
    });
}

#[test]
fn loom_no_bell_is_lost_between_a_poster_and_a_control_call() {
    loom::model(|| {
        let world = World::new();
        let other = Arc::clone(&world);
        let poster = thread::spawn(move || other.post(1, 3));
        world.turns.control(|_| ()).then_run(|| {
            world.run(3);
        });
        poster.join().unwrap();
        assert!(!world.turns.any_bell(), "a bell is left with nobody bound to see it");
        world.assert_nothing_lost(2);
    });
}

#[test]
fn loom_no_bell_is_lost_between_a_poster_and_two_control_calls() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let world = World::new();
        let control = |world: Arc<World>| {
            world.turns.control(|_| ()).then_run(|| {
                world.run(3);
            });
        };
        let (first, second) = (Arc::clone(&world), Arc::clone(&world));
        let first = thread::spawn(move || control(first));
        let second = thread::spawn(move || control(second));
        world.post(0, 3);
        first.join().unwrap();
        second.join().unwrap();
        assert!(!world.turns.any_bell(), "a bell is left with nobody bound to see it");
        world.assert_nothing_lost(1);
    });
}

#[test]
fn loom_the_sleeper_never_sleeps_on_a_bell_that_a_poster_left() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let world = World::new();
        let (sleeper, other) = (Arc::clone(&world), Arc::clone(&world));
        let sleeper = thread::spawn(move || sleeper.sleep());
        // One turn only: whoever loses the lock's race leaves bells to the sleeper.
        let poster = thread::spawn(move || other.post(1, 1));
        world.post(0, 1);
        poster.join().unwrap();
        sleeper.join().unwrap();
        world.assert_nothing_lost(3);
    });
}

#[test]
fn loom_receives_posted_without_a_turn_are_seen_when_the_queue_pair_goes_into_error() {
    loom::model(|| {
        let world = World::new();
        let other = Arc::clone(&world);
        let error = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&error);
        // As `Device::kick_for_receives`.
        let poster = thread::spawn(move || {
            other.bells.ring(0);
            fence(Ordering::SeqCst);
            if seen.load(Ordering::Acquire) {
                other.run(3);
            }
        });
        world.turns.control(|_| error.store(true, Ordering::Release)).then_run(|| {
            world.run(3);
        });
        poster.join().unwrap();
        assert!(!world.turns.any_bell(), "receives are never flushed");
    });
}

#[test]
fn loom_every_bell_is_collected_by_somebody() {
    loom::model(|| {
        let bells = Arc::new(Doorbells::new(2));
        let seen = Arc::new(AtomicUsize::new(0));
        let ringers: Vec<_> = (0..2)
            .map(|bell| {
                let bells = Arc::clone(&bells);
                thread::spawn(move || bells.ring(bell))
            })
            .collect();
        let collect = || {
            bells.collect(|bell| {
                seen.fetch_or(1 << bell, Ordering::Relaxed);
            });
        };
        collect();
        for ringer in ringers {
            ringer.join().unwrap();
        }
        assert!(bells.any() || seen.load(Ordering::Relaxed) == 3, "a bell rings unheard");
        collect();
        assert_eq!(seen.load(Ordering::Relaxed), 3);
    });
}

fn completion(id: u64) -> Completion {
    Completion {
        id,
        status: CompletionStatus::Success,
        kind: CompletionKind::Receive,
        length: id as u32 + 100,
        attachment: Attachment::None,
        queue_pair: Qpn::new(7),
        source: Qpn::new(id as u32),
        solicited: false,
    }
}

#[test]
fn loom_an_armed_queue_notifies_or_its_next_poll_sees_the_completion() {
    loom::model(|| {
        let queue = Arc::new(CompletionQueue::new(2));
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.push(&completion(1), Origin::Pair).unwrap().notify)
        };
        queue.arm(false);
        let polled = queue.poll(1, |_, taken| assert_eq!(taken, completion(1))).unwrap();
        let notified = producer.join().unwrap();
        assert!(notified || polled == 1, "the waiter sleeps for ever");
    });
}

#[test]
fn loom_two_pushes_notify_an_arming_at_most_once() {
    loom::model(|| {
        let queue = Arc::new(CompletionQueue::new(2));
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                (1..=2)
                    .filter(|id| queue.push(&completion(*id), Origin::Pair).unwrap().notify)
                    .count()
            })
        };
        queue.arm(false);
        let polled = queue.poll(2, |_, _| ()).unwrap();
        let notified = producer.join().unwrap();
        assert!(notified <= 1);
        assert!(notified == 1 || polled == 2, "polled {polled} and never told of the rest");
    });
}

#[test]
fn loom_the_ring_hands_over_whole_entries_in_order() {
    loom::model(|| {
        // One entry, so that the second push waits for the first one's release and overwrites it.
        let queue = Arc::new(CompletionQueue::new(1));
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                queue.push(&completion(1), Origin::Pair).unwrap();
                while queue.waiting() > 0 {
                    thread::yield_now();
                }
                queue.push(&completion(2), Origin::Pair).unwrap();
            })
        };
        let mut next = 1;
        while next <= 2 {
            let taken = queue.poll(2, |_, taken| {
                assert_eq!(taken, completion(next), "torn, or out of order");
                next += 1;
            });
            if taken == Ok(0) {
                thread::yield_now();
            }
        }
        producer.join().unwrap();
        assert_eq!(queue.waiting(), 0);
    });
}

/// A task of an executor that only notes that it was woken.
#[derive(Default)]
struct Task(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Task {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Task {
    fn woken(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// Pushes a completion and wakes as the engine's driver does, after its lock.
fn push_and_wake(queue: &CompletionQueue, id: u64) {
    if queue.push(&completion(id), Origin::Pair).unwrap().wake {
        queue.wakers().wake();
    }
}

/// A future's poll: registers and looks again. Returns how many completions it took.
fn poll_task(queue: &CompletionQueue, task: &std::sync::Arc<Task>, key: &mut WakerKey) -> usize {
    queue.wakers().register(key, &std::sync::Arc::clone(task).into());
    let taken = queue.poll(1, |_, _| ()).unwrap();
    if taken > 0 {
        queue.wakers().forget(key);
    }
    taken
}

#[test]
fn loom_a_waiting_task_finds_the_completion_or_is_woken() {
    loom::model(|| {
        let queue = Arc::new(CompletionQueue::new(2));
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || (1..=2).for_each(|id| push_and_wake(&queue, id)))
        };
        let task = std::sync::Arc::<Task>::default();
        let mut taken = poll_task(&queue, &task, &mut WakerKey::default());
        producer.join().unwrap();
        assert!(taken == 1 || task.woken() > 0, "the task sleeps for ever");
        while poll_task(&queue, &task, &mut WakerKey::default()) == 1 {
            taken += 1;
        }
        assert_eq!(taken, 2);
    });
}

#[test]
fn loom_of_two_waiting_tasks_neither_is_forgotten_when_the_other_gives_up() {
    loom::model(|| {
        let queue = Arc::new(CompletionQueue::new(2));
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || push_and_wake(&queue, 1))
        };
        let quitter = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                // Registers and is dropped without ever looking.
                let mut key = WakerKey::default();
                let task = std::sync::Arc::<Task>::default();
                queue.wakers().register(&mut key, &task.into());
                queue.wakers().forget(&mut key);
            })
        };
        let task = std::sync::Arc::<Task>::default();
        let taken = poll_task(&queue, &task, &mut WakerKey::default());
        producer.join().unwrap();
        quitter.join().unwrap();
        assert!(taken == 1 || task.woken() > 0, "the task sleeps for ever");
    });
}

/// Queues of so many entries each.
fn queues(entries: u32) -> Arc<QueuePairQueues> {
    let completions = Arc::new(CompletionQueue::new(2));
    Arc::new(QueuePairQueues::new(
        Qpn::new(7),
        QueuePairKind::Rc,
        0,
        &QueueCapacities {
            send_requests: entries,
            receive_requests: entries,
            send_segments: 1,
            receive_segments: 1,
            inline_bytes: 0,
        },
        (Arc::clone(&completions), completions),
        Arc::new(Doorbells::new(1)),
        None,
    ))
}

/// One of two entries is on its way from the queue to a completion, or polled already.
#[test]
fn loom_an_entry_that_is_free_is_never_refused_and_one_that_is_taken_never_given() {
    loom::model(|| {
        let queues = queues(2);
        queues.set_state(QueuePairState::Rts);
        let post = |id| queues.post_one_receive(&ReceiveRequest { id, segments: &[] });
        post(1).unwrap();
        let engine = {
            let queues = Arc::clone(&queues);
            thread::spawn(move || {
                queues.receive.release_first();
                let taken = Completion { queue_pair: Qpn::new(7), ..completion(1) };
                assert!(queues.receive_completions.push(&taken, Origin::Pair).is_ok());
            })
        };
        post(2).expect("one of two is free");
        let polled = queues.receive_completions.poll(1, |_, _| ()).unwrap();
        assert_eq!(post(3).is_ok(), polled == 1);
        engine.join().unwrap();
    });
}

#[test]
fn loom_what_is_posted_while_the_queue_pair_is_reset_is_refused_or_forgotten() {
    loom::model(|| {
        let queues = queues(1);
        queues.set_state(QueuePairState::Rts);
        let poster = {
            let queues = Arc::clone(&queues);
            thread::spawn(move || {
                let send = SendRequest {
                    id: 1,
                    operation: SendOperation::Send,
                    flags: SendFlags::NONE,
                    payload: Payload::EMPTY,
                };
                // Either may be refused.
                let _ = queues.post_one_send(&send);
                let _ = queues.post_one_receive(&ReceiveRequest { id: 2, segments: &[] });
            })
        };
        // As the engine resets.
        queues.set_state(QueuePairState::Reset);
        queues.send.clear();
        queues.receive.clear();
        poster.join().unwrap();
        assert_eq!(queues.send.tail(), queues.send.head(), "a request of an earlier life");
        assert_eq!(queues.receive.posted(), 0);
    });
}
