//! Futures of completions and events, polled by hand and by an executor of a few lines.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};

use uroce::verbs::{
    Access, AsyncEvent, Completion, CompletionChannel, CompletionStatus, ConnectOptions,
    QueuePairAttributes, QueuePairOptions, QueuePairState, Remote, Rkey, SendOperation, VerbsError,
    connect_pair,
};

use super::setup::{End, context, ends};

/// Wakes a thread that sleeps in [`block_on`].
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Sleeper(thread::current())));
    let mut task = TaskContext::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut task) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn woken(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Polls once.
fn poll_once<F: Future>(future: Pin<&mut F>, count: &Arc<Count>) -> Poll<F::Output> {
    future.poll(&mut TaskContext::from_waker(&Waker::from(Arc::clone(count))))
}

fn write(one: &End, other: &End, id: u64) {
    let operation = SendOperation::Write(other.memory.remote(0));
    one.pair.post(id, operation, one.memory.segment(0, 64)).unwrap();
}

#[test]
fn tasks_get_their_completions_without_a_thread_that_waits_for_each() {
    let (one, other) = ends(90);
    for id in 0..300 {
        write(&one, &other, id);
        let completion = block_on(one.completions.next()).unwrap();
        assert_eq!((completion.id, completion.status), (id, CompletionStatus::Success));
    }
}

#[test]
fn many_at_once_come_in_one_poll_and_no_room_asks_for_nothing() {
    let (one, other) = ends(91);
    (0..10).for_each(|id| write(&one, &other, id));
    let mut ids = Vec::new();
    while ids.len() < 10 {
        let mut room = [Completion::default(); 4];
        let count = block_on(one.completions.next_into(&mut room)).unwrap();
        assert!((1..=4).contains(&count));
        ids.extend(room[..count].iter().map(|completion| completion.id));
    }
    assert_eq!(ids, (0..10).collect::<Vec<u64>>());
    assert_eq!(block_on(one.completions.next_into(&mut [])).unwrap(), 0);
}

#[test]
fn a_task_that_waits_for_another_threads_request_is_woken() {
    let (one, other) = ends(92);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(other.completions.next()).unwrap().id);
        other.receive(42);
        one.pair.post(1, SendOperation::Send, one.memory.segment(0, 10)).unwrap();
        assert_eq!(waiting.join().unwrap(), 42);
    });
}

#[test]
fn several_tasks_share_a_queue_and_each_completion_goes_to_one() {
    const TASKS: usize = 4;
    const EACH: usize = 100;
    let (one, other) = ends(93);
    let mut ids: Vec<u64> = thread::scope(|scope| {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                scope.spawn(|| {
                    let next = || block_on(one.completions.next()).unwrap().id;
                    (0..EACH).map(|_| next()).collect::<Vec<u64>>()
                })
            })
            .collect();
        for id in 0..(TASKS * EACH) as u64 {
            let operation = SendOperation::Write(other.memory.remote(0));
            while one.pair.post(id, operation, one.memory.segment(0, 64)).is_err() {
                thread::yield_now();
            }
        }
        tasks.into_iter().flat_map(|task| task.join().unwrap()).collect()
    });
    ids.sort_unstable();
    assert_eq!(ids, (0..(TASKS * EACH) as u64).collect::<Vec<u64>>());
}

#[test]
fn a_task_that_gives_up_takes_nothing_away() {
    let (one, other) = ends(94);
    let (quitter, stayer) = (Arc::<Count>::default(), Arc::<Count>::default());
    let mut staying = pin!(one.completions.next());
    {
        let mut quitting = pin!(one.completions.next());
        assert!(poll_once(quitting.as_mut(), &quitter).is_pending());
        assert!(poll_once(staying.as_mut(), &stayer).is_pending());
        // Polled again without need: still one registration.
        assert!(poll_once(staying.as_mut(), &stayer).is_pending());
    }
    write(&one, &other, 7);
    while stayer.woken() == 0 {
        thread::yield_now();
    }
    assert_eq!(quitter.woken(), 0, "its future is gone");
    match poll_once(staying, &stayer) {
        Poll::Ready(completion) => assert_eq!(completion.unwrap().id, 7),
        Poll::Pending => panic!("woken for nothing, and the completion is gone"),
    }
}

#[test]
fn an_overrun_ends_the_waiting() {
    let device = context(95);
    let domain = device.allocate_domain().unwrap();
    let completions = device.create_completion_queue(1).unwrap();
    let pair = domain.create_queue_pair(&QueuePairOptions::new(&completions)).unwrap();
    pair.initialize(Access::NONE).unwrap();
    (0..2).for_each(|id| pair.post_receive(id, &[]).unwrap());
    let count = Arc::<Count>::default();
    let mut waiting = pin!(completions.next());
    assert!(poll_once(waiting.as_mut(), &count).is_pending());
    // Two completions at once, of which one finds room.
    pair.modify(&QueuePairAttributes::to_state(QueuePairState::Error)).unwrap();
    assert!(count.woken() > 0, "modify has run everything that it caused");
    match poll_once(waiting, &count) {
        Poll::Ready(Ok(first)) => {
            assert_eq!((first.id, first.status), (0, CompletionStatus::WorkRequestFlushed));
        }
        _ => panic!("the first one had room"),
    }
    let lost = block_on(completions.next());
    assert!(matches!(lost, Err(VerbsError::Overrun(_))), "{lost:?}");
}

#[test]
fn events_of_device_and_channel_are_futures_too() {
    let context = context(98);
    let (one, other) = (End::new(&context), End::new(&context));
    connect_pair(&one.pair, &other.pair, &ConnectOptions::default()).unwrap();
    let channel = CompletionChannel::new().unwrap();
    channel.attach(&one.completions, 5).unwrap();
    one.completions.request_notification(false);
    thread::scope(|scope| {
        let event = scope.spawn(|| block_on(context.next_event()));
        let token = scope.spawn(|| block_on(channel.next_event()));
        let wrong = Remote { address: 0, key: Rkey::new(1) };
        one.pair.post(1, SendOperation::Write(wrong), one.memory.segment(0, 10)).unwrap();
        let number = other.pair.number();
        let event = event.join().unwrap();
        assert!(matches!(event, AsyncEvent::AccessError(n) if n == number), "{event:?}");
        assert_eq!(token.join().unwrap(), 5);
    });
}

#[test]
fn events_of_what_was_dropped_do_not_come_any_more() {
    let context = context(99);
    let (one, other) = (End::new(&context), End::new(&context));
    connect_pair(&one.pair, &other.pair, &ConnectOptions::default()).unwrap();
    let wrong = Remote { address: 0, key: Rkey::new(1) };
    one.pair.post(1, SendOperation::Write(wrong), one.memory.segment(0, 10)).unwrap();
    assert!(!one.completions.wait_one(super::setup::LONG).unwrap().status.is_success());
    // The peer's event waits; its queue pair ends before anybody takes it.
    drop(other);
    assert!(context.poll_event().is_none());
}
