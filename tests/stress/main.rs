//! Everything from everywhere at once, as libibverbs allows it: threads post, poll, query, modify,
//! put in error, reset, destroy and create on the same queue pairs, over real sockets that lose,
//! repeat, reorder and damage packets.
//!
//! What must hold is what the simulator's oracle asks of verbs: each signaled request completes
//! exactly once, those of a thread on a queue pair in order; memory is what was written; additions
//! happen once; a message fills one receive, whole; failures only where something was done that
//! causes them; and all that is under way ends.
//!
//! ```text
//!   thread ──▶ a connection ──▶ read lock: post, poll, look after its own requests
//!                          └──▶ read lock: error or RESET under fire ─▶ write lock: check, reconnect
//! ```

#[path = "../common/mod.rs"]
mod common;

mod connection;
mod model;

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use connection::{Connection, Kind};
use uroce::rng::Rng;
use uroce::software::{DeviceOptions, clock};
use uroce::time::{Instant, SECOND};
use uroce::verbs::{Context, Counter};

/// Threads that do everything.
pub const THREADS: usize = 8;
/// Connections, each of two queue pairs.
const CONNECTIONS: usize = 32;
/// Nothing takes so long unless it hangs.
pub const PATIENCE: u64 = 60 * SECOND;

/// What was done, by name; the run goes on until each was.
pub struct Tally {
    counts: Mutex<std::collections::BTreeMap<&'static str, u64>>,
}

impl Tally {
    /// Counts something.
    pub fn count(&self, what: &'static str) {
        self.add(what, 1);
    }

    /// Counts something several times.
    pub fn add(&self, what: &'static str, amount: u64) {
        *self.counts.lock().unwrap().entry(what).or_default() += amount;
    }

    fn has_all(&self) -> bool {
        let counts = self.counts.lock().unwrap();
        EVERYTHING.iter().all(|what| counts.get(what).is_some_and(|count| *count > 0))
    }
}

/// What has to happen in every run.
const EVERYTHING: &[&str] = &[
    "WRITE",
    "READ",
    "SEND",
    "SEND of datagrams",
    "FETCH_ADD",
    "COMPARE_SWAP",
    "ATOMIC_WRITE",
    "FLUSH",
    "WRITE_WITH_IMMEDIATE",
    "BIND_WINDOW",
    "LOCAL_INVALIDATE",
    "received",
    "flushed",
    "checked transactions",
    "queries",
    "access changes",
    "drains",
    "errors",
    "resets under fire",
    "replacements",
];

fn device(last: u8, faults: &str) -> Context {
    let options = DeviceOptions {
        fault: Some(faults.parse().unwrap()),
        ..DeviceOptions::at(IpAddr::from([127, 88, 10, last]))
    };
    Context::open(&options).unwrap()
}

/// Runs for at least so long, and until everything has happened.
fn stress(nanoseconds: u64, seed: u64) {
    let devices = [
        device(1, &format!("loss=1%,duplicate=1%,reorder=1%,corrupt=0.5%,seed={seed}")),
        device(2, &format!("loss=1%,duplicate=1%,reorder=1%,seed={}", seed + 1)),
    ];
    let tally = Tally { counts: Mutex::default() };
    let kind = |index: usize| match index % 8 {
        6 => Kind::Uc,
        7 => Kind::Ud,
        _ => Kind::Rc,
    };
    let connections: Vec<Connection> =
        (0..CONNECTIONS).map(|index| Connection::new(&devices, kind(index), index)).collect();
    let start = clock::now();
    let end = start + nanoseconds;
    let is_over = |now: Instant| {
        assert!(now < end + PATIENCE, "not everything happened: {:?}", tally.counts);
        now >= end && tally.has_all()
    };
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (connections, tally, failed, is_over) = (&connections, &tally, &failed, &is_over);
            scope.spawn(move || {
                let _alarm = Alarm(failed);
                let mut rng = Rng::new(seed ^ (thread as u64 + 1) << 32);
                while !failed.load(Ordering::Relaxed) && !is_over(clock::now()) {
                    let connection = &connections[rng.below(CONNECTIONS as u64) as usize];
                    connection.visit(thread, &mut rng, tally);
                }
            });
        }
    });
    connections.iter().for_each(|connection| connection.finish(&tally));
    let counters = devices.map(|device| device.counters().unwrap());
    let sum = |counter: Counter| counters.iter().map(|c| c.engine.get(counter)).sum::<u64>();
    assert_eq!(sum(Counter::LostCompletion), 0, "no queue was too small");
    assert!(sum(Counter::RetransmittedPackets) > 0, "nothing was lost");
    let seconds = (clock::now() - start) as f64 / 1e9;
    let line = format!(
        "stress of {seconds:.1} s, seed {seed}: {:?}; {} packets sent, {} of them again, {} damaged \
         ones dropped, {} ACK timeouts\n",
        tally.counts.lock().unwrap(),
        sum(Counter::SentPackets),
        sum(Counter::RetransmittedPackets),
        sum(Counter::DropBadIcrc),
        sum(Counter::LocalAckTimeout),
    );
    std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
}

/// Tells the other threads if this one panics.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn eight_threads_do_everything_to_64_queue_pairs_at_once() {
    stress(2 * SECOND, 1);
}

/// As long as the environment variable says, in seconds; a minute without.
#[test]
#[ignore = "takes a minute: cargo test --test stress -- --ignored"]
fn eight_threads_do_everything_to_64_queue_pairs_for_a_minute() {
    let given = std::env::var("UROCE_STRESS_SECONDS").map(|text| text.parse().unwrap());
    stress(given.unwrap_or(60) * SECOND, 2);
}
