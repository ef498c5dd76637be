//! An RDMA WRITE: one end puts bytes into the other end's memory, and the other end does nothing.
//!
//!     cargo run --example write

use std::error::Error;
use std::time::Duration;

use uroce::verbs::{self, Access, ConnectOptions, QueuePairOptions, SendOperation, connect_pair};

fn main() -> Result<(), Box<dyn Error>> {
    // Any network interface with an address is a device. This one reaches only this host.
    let device = verbs::open("lo")?;
    println!("device {} with GID {}", device.info().name, device.gid(0)?);

    // Two queue pairs, which would usually be in two processes on two hosts. Everything that their
    // work requests bring about is told in a completion queue.
    let domain = device.allocate_domain()?;
    let completions = device.create_completion_queue(16)?;
    let options = QueuePairOptions::new(&completions);
    let alice = domain.create_queue_pair(&options)?;
    let bob = domain.create_queue_pair(&options)?;

    // RESET to RTS. Two processes would send each other their `endpoint()` first, over TCP for
    // example, and call `connect()`.
    connect_pair(&alice, &bob, &ConnectOptions::default())?;

    // Memory that the device may read, and memory that a peer may write.
    let source = domain.allocate(4096, Access::NONE)?;
    let target = domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let text = b"written by a peer";
    source.write(0, text)?;

    // Where to: the address and key that Bob would tell Alice.
    let remote = target.remote(100);
    alice.post(7, SendOperation::Write(remote), source.segment(0, text.len()))?;

    // Success means that the bytes are in Bob's memory: his device has acknowledged them.
    let completion = completions.wait_one(Duration::from_secs(5))?;
    println!("work request {}: {}", completion.id, completion.status);
    if !completion.status.is_success() {
        // Which packets were sent, what came back, and what usually lies behind it.
        eprintln!("{}", alice.explain(&completion));
    }
    let found = target.to_vec(100, text.len())?;
    println!("Bob's memory holds: {}", String::from_utf8_lossy(&found));
    if completion.status.is_success() && found == text { Ok(()) } else { Err("it failed".into()) }
}
