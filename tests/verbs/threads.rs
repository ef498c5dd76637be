//! Verbs are as thread-safe as libibverbs: everything from everywhere at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use uroce::queue::Payload;
use uroce::verbs::{
    Access, Completion, CompletionQueue, ConnectOptions, Context, PostError, QueuePairAttributes,
    QueuePairOptions, QueuePairState, SendFlags, SendOperation, SendRequest, connect_pair,
};

use super::setup::{End, LONG, context, ends};

/// Takes completions until `total` were taken by all threads together.
fn take_all(completions: &CompletionQueue, taken: &Mutex<Vec<u64>>, total: usize) {
    let list = || taken.lock().unwrap_or_else(PoisonError::into_inner);
    let mut room = [Completion::default(); 7];
    while list().len() < total {
        let timeout = std::time::Duration::from_millis(5);
        let count = completions.wait(&mut room, Some(timeout)).unwrap();
        let good = |completion: &Completion| {
            assert!(completion.status.is_success(), "{completion:?}");
            completion.id
        };
        list().extend(room[..count].iter().map(good));
    }
}

fn post_until_taken(end: &End, request: &SendRequest<'_>) {
    while let Err(error) = end.pair.post_send(request) {
        assert!(matches!(error, PostError::QueueFull { .. }), "{error}");
        std::thread::yield_now();
    }
}

#[test]
fn several_threads_post_to_one_queue_pair_and_several_poll_one_queue() {
    const POSTERS: u64 = 4;
    const EACH: u64 = 500;
    let (one, other) = ends(70);
    let taken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for poster in 0..POSTERS {
            let (one, other) = (&one, &other);
            scope.spawn(move || {
                for number in 0..EACH {
                    let remote = other.memory.remote(0);
                    post_until_taken(
                        one,
                        &SendRequest {
                            id: poster * EACH + number,
                            operation: SendOperation::FetchAdd { remote, add: 1 },
                            flags: SendFlags::SIGNALED,
                            payload: Payload::Segments(&[one
                                .memory
                                .segment(8 * poster as usize, 8)]),
                        },
                    );
                }
            });
        }
        for _ in 0..3 {
            scope.spawn(|| take_all(&one.completions, &taken, (POSTERS * EACH) as usize));
        }
    });
    let mut ids = taken.into_inner().unwrap();
    ids.sort_unstable();
    assert_eq!(ids, (0..POSTERS * EACH).collect::<Vec<_>>(), "each once");
    assert_eq!(other.memory.load_u64(0).unwrap(), POSTERS * EACH, "and carried out once");
}

/// A whole life of two queue pairs on a shared device.
fn live_once(context: &Context, round: u64) {
    let domain = context.allocate_domain().unwrap();
    let completions = context.create_completion_queue(32).unwrap();
    let options = QueuePairOptions::new(&completions);
    let pairs = [(); 2].map(|()| domain.create_queue_pair(&options).unwrap());
    let memory = domain.allocate(8192, Access::ALL).unwrap();
    connect_pair(&pairs[0], &pairs[1], &ConnectOptions::default()).unwrap();
    let bytes: Vec<u8> = (0..4000).map(|index| (index as u64 * 7 + round) as u8).collect();
    memory.write(0, &bytes).unwrap();
    let write = SendOperation::Write(memory.remote(4096));
    pairs[0].post(round, write, memory.segment(0, bytes.len())).unwrap();
    let completion = completions.wait_one(LONG).unwrap();
    assert!(completion.status.is_success(), "{completion:?}");
    assert_eq!((completion.id, completion.queue_pair), (round, pairs[0].number()));
    assert_eq!(memory.to_vec(4096, bytes.len()).unwrap(), bytes);
    if round.is_multiple_of(2) {
        pairs[1].modify(&QueuePairAttributes::to_state(QueuePairState::Error)).unwrap();
        assert_eq!(pairs[1].query().unwrap().attributes.state, Some(QueuePairState::Error));
    }
}

#[test]
fn threads_create_connect_use_and_destroy_on_one_device() {
    let context = context(71);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let context = &context;
            scope
                .spawn(move || (0..40).for_each(|round| live_once(context, thread * 1000 + round)));
        }
    });
    // All was given back, and the device still works.
    live_once(&context, 1);
    assert_eq!(context.counters().unwrap().engine.get(uroce::verbs::Counter::RetryExceeded), 0);
}

#[test]
fn control_calls_beside_a_busy_data_path_neither_starve_nor_disturb() {
    let (one, other) = ends(72);
    let stop = AtomicBool::new(false);
    let moved = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            // Once at least, however late this thread gets a processor.
            while number == 0 || !stop.load(Ordering::Relaxed) {
                let remote = other.memory.remote(0);
                let add = SendOperation::FetchAdd { remote, add: 1 };
                one.pair.post(number, add, one.memory.segment(0, 8)).unwrap();
                // Polls without rest, as latency-bound programs do.
                while one.completions.poll_one().unwrap().is_none() {}
                assert_eq!(one.memory.load_u64(0).unwrap(), number);
                number += 1;
            }
            moved.store(number, Ordering::Relaxed);
        });
        for rights in [Access::ALL, Access::REMOTE_ATOMIC | Access::LOCAL_WRITE].repeat(100) {
            let change =
                QueuePairAttributes { access: Some(rights), ..QueuePairAttributes::default() };
            other.pair.modify(&change).unwrap();
            assert_eq!(other.pair.query().unwrap().attributes.access, Some(rights));
            one.pair.query().unwrap();
            drop(one.domain.allocate(4096, Access::ALL).unwrap());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(moved.load(Ordering::Relaxed) > 0);
    assert_eq!(other.memory.load_u64(0).unwrap(), moved.load(Ordering::Relaxed));
}

#[test]
fn a_queue_pair_that_is_put_in_error_under_fire_flushes_each_request_once() {
    for _ in 0..20 {
        let (one, other) = ends(73);
        let posted = AtomicU64::new(0);
        let (sends, receives) = std::thread::scope(|scope| {
            let poster = scope.spawn(|| post_while_alive(&one, &other, &posted));
            let receiver = scope.spawn(|| (0..64).map(|id| one.receive(1000 + id)).count() as u64);
            while posted.load(Ordering::Relaxed) < 50 {
                std::thread::yield_now();
            }
            let error = QueuePairAttributes::to_state(QueuePairState::Error);
            one.pair.modify(&error).unwrap();
            (poster.join().unwrap(), receiver.join().unwrap())
        });
        let mut ids = Vec::new();
        while (ids.len() as u64) < sends + receives {
            let completion = one.completions.wait_one(LONG).unwrap();
            ids.push(completion.id);
        }
        ids.sort_unstable();
        let expected: Vec<u64> = (0..sends).chain((0..receives).map(|id| 1000 + id)).collect();
        assert_eq!(ids, expected);
        assert_eq!(one.completions.poll_one().unwrap(), None);
    }
}

/// Posts until the queue is full or 100 are posted; returns how many.
fn post_while_alive(one: &End, other: &End, posted: &AtomicU64) -> u64 {
    for number in 0..100 {
        let write = SendOperation::Write(other.memory.remote(0));
        if one.pair.post(number, write, one.memory.segment(0, 5000)).is_err() {
            return number;
        }
        posted.fetch_add(1, Ordering::Relaxed);
    }
    100
}
