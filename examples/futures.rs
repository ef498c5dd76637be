//! Waiting without a thread for each thing: many clients in one thread, on an executor of 30 lines.
//!
//!     cargo run --example futures
//!
//! The library's futures ask of an executor only that it polls a task when its waker was called. This
//! one keeps its tasks in a list and sleeps when none is awake; `examples/tokio.rs` does the same on
//! tokio.

use std::cell::Cell;
use std::error::Error;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};

use uroce::verbs::{
    self, Access, CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain,
    QueuePair, QueuePairOptions, SendOperation, connect_pair,
};

const CLIENTS: usize = 8;
const ADDITIONS: u64 = 25;

/// Says which task to poll again, and ends the executor's sleep.
struct Bell {
    rung: AtomicBool,
    executor: Thread,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.executor.unpark();
    }
}

/// Runs all tasks to their ends, in this thread.
fn run_all(mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    let bell = || Arc::new(Bell { rung: AtomicBool::new(true), executor: thread::current() });
    let bells: Vec<Arc<Bell>> = tasks.iter().map(|_| bell()).collect();
    let mut running = vec![true; tasks.len()];
    while running.contains(&true) {
        let mut slept = true;
        for (index, task) in tasks.iter_mut().enumerate() {
            if running[index] && bells[index].rung.swap(false, Ordering::Acquire) {
                let waker = Waker::from(Arc::clone(&bells[index]));
                let polled = task.as_mut().poll(&mut TaskContext::from_waker(&waker));
                running[index] = polled.is_pending();
                slept = false;
            }
        }
        if slept {
            // A bell that rings between the look above and here leaves a token: no wake-up is lost.
            thread::park();
        }
    }
}

/// A client: a queue pair with completions and memory of its own.
struct Client {
    completions: CompletionQueue,
    pair: QueuePair,
    /// Its other end, which has nothing to do: atomics need no application there.
    _server: QueuePair,
    memory: MemoryRegion,
}

impl Client {
    fn new(device: &Context, domain: &ProtectionDomain) -> Result<Self, Box<dyn Error>> {
        let completions = device.create_completion_queue(64)?;
        let options = QueuePairOptions::new(&completions);
        let (pair, server) =
            (domain.create_queue_pair(&options)?, domain.create_queue_pair(&options)?);
        connect_pair(&pair, &server, &ConnectOptions::default())?;
        Ok(Self {
            completions,
            pair,
            _server: server,
            memory: domain.allocate(8, Access::LOCAL_WRITE)?,
        })
    }

    /// Adds 1 to the shared number, many times, each after the answer to the one before.
    async fn add(&self, number: &MemoryRegion) -> Result<(), Box<dyn Error>> {
        for id in 0..ADDITIONS {
            let add = SendOperation::FetchAdd { remote: number.remote(0), add: 1 };
            self.pair.post(id, add, self.memory.segment(0, 8))?;
            let completion = self.completions.next().await?;
            if !completion.status.is_success() {
                return Err(completion.status.to_string().into());
            }
        }
        Ok(())
    }
}

/// The first of two futures that is ready; the other is dropped, which takes nothing away.
async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    std::future::poll_fn(|task| match one.as_mut().poll(task) {
        Poll::Pending => other.as_mut().poll(task),
        ready => ready,
    })
    .await
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = verbs::open("lo")?;
    let domain = device.allocate_domain()?;
    let number = domain.allocate(8, Access::ALL)?;
    let clients: Vec<Client> =
        (0..CLIENTS).map(|_| Client::new(&device, &domain)).collect::<Result<_, _>>()?;

    let done = Cell::new(0);
    let tasks = clients.iter().map(|client| {
        let (number, done) = (&number, &done);
        let task: Pin<Box<dyn Future<Output = ()> + '_>> = Box::pin(async move {
            match client.add(number).await {
                Ok(()) => done.set(done.get() + 1),
                Err(error) => println!("a client failed: {error}"),
            }
        });
        task
    });
    run_all(tasks.collect());
    let sum = number.load_u64(0)?;
    println!("{} clients in one thread added up to {sum}", done.get());

    // Whichever comes first: here a completion, since nothing happens to the device.
    let client = &clients[0];
    let add = SendOperation::FetchAdd { remote: number.remote(0), add: 1 };
    client.pair.post(7, add, client.memory.segment(0, 8))?;
    run_all(vec![Box::pin(async {
        let completion = async { client.completions.next().await.map(|found| found.id).ok() };
        let event = async {
            println!("event: {}", device.next_event().await);
            None
        };
        println!("first came work request {:?}", first(completion, event).await);
    })]);
    if sum == CLIENTS as u64 * ADDITIONS { Ok(()) } else { Err("additions are missing".into()) }
}
