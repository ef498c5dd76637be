//! Completions as futures on tokio: a server and its clients are tasks of one thread.
//!
//!     cargo run --example on_tokio
//!
//! Nothing of the library knows tokio: its futures run on any executor, as `examples/futures.rs`
//! shows with one of its own.

use std::error::Error;

use uroce::verbs::{
    self, Access, CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain,
    QueuePair, QueuePairOptions, SendOperation, connect_pair,
};

const CLIENTS: usize = 4;
const QUESTIONS: usize = 10;
const BYTES: usize = 64;

type Failure = Box<dyn Error + Send + Sync>;

/// One side of a connection.
struct End {
    completions: CompletionQueue,
    pair: QueuePair,
    memory: MemoryRegion,
}

impl End {
    fn new(device: &Context, domain: &ProtectionDomain) -> Result<Self, Failure> {
        let completions = device.create_completion_queue(64)?;
        let pair = domain.create_queue_pair(&QueuePairOptions::new(&completions))?;
        Ok(Self { completions, pair, memory: domain.allocate(2 * BYTES, Access::LOCAL_WRITE)? })
    }

    fn receive(&self) -> Result<(), Failure> {
        Ok(self.pair.post_receive(1, &[self.memory.segment(BYTES, BYTES)])?)
    }

    fn send(&self, text: &str) -> Result<(), Failure> {
        self.memory.write(0, text.as_bytes())?;
        Ok(self.pair.post(2, SendOperation::Send, self.memory.segment(0, text.len()))?)
    }

    /// The text of the next message. Completions of sends come in between.
    async fn message(&self) -> Result<String, Failure> {
        loop {
            let completion = self.completions.next().await?;
            if !completion.status.is_success() {
                return Err(completion.status.to_string().into());
            }
            if completion.kind.is_receive() {
                let bytes = self.memory.to_vec(BYTES, completion.length as usize)?;
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }
}

/// Answers every question with its capitals.
async fn serve(end: End) -> Result<usize, Failure> {
    for _ in 0..QUESTIONS {
        let question = end.message().await?;
        // The next one may come as soon as this one is answered.
        end.receive()?;
        end.send(&question.to_uppercase())?;
    }
    Ok(QUESTIONS)
}

async fn ask(end: End, name: usize) -> Result<usize, Failure> {
    for number in 0..QUESTIONS {
        end.receive()?;
        end.send(&format!("client {name} asks {number}"))?;
        let answer = end.message().await?;
        if answer != format!("CLIENT {name} ASKS {number}") {
            return Err(format!("`{answer}` is no answer").into());
        }
    }
    Ok(QUESTIONS)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let device = verbs::open("lo")?;
    let domain = device.allocate_domain()?;
    let mut tasks = Vec::new();
    for name in 0..CLIENTS {
        let (client, server) = (End::new(&device, &domain)?, End::new(&device, &domain)?);
        connect_pair(&client.pair, &server.pair, &ConnectOptions::default())?;
        server.receive()?;
        tasks.push(tokio::spawn(serve(server)));
        tasks.push(tokio::spawn(ask(client, name)));
    }
    let mut done = 0;
    for task in tasks {
        done += task.await??;
    }
    println!("{CLIENTS} clients and {CLIENTS} servers in one thread: {} answers", done / 2);

    // Of a completion and an event, whichever comes first: nothing happens to the device.
    let (one, other) = (End::new(&device, &domain)?, End::new(&device, &domain)?);
    connect_pair(&one.pair, &other.pair, &ConnectOptions::default())?;
    one.pair.post(9, SendOperation::Send, one.memory.segment(0, 1))?;
    other.receive()?;
    tokio::select! {
        completion = one.completions.next() => println!("first came work request {}", completion?.id),
        event = device.next_event() => println!("first came an event: {event}"),
    }
    Ok(())
}
