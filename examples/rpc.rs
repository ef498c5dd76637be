//! A small service over SEND and receive: a server that answers questions about texts, and a
//! client that asks several at once. Each end has a device, a thread and a completion channel of
//! its own, as two processes would have.
//!
//!     cargo run --example rpc
//!
//! Flow control is by credits. A SEND needs a posted receive at the other end, so the client has no
//! more questions under way than the server has receives, and the server posts a receive anew
//! before it answers: the answer gives the credit back. Nobody ever waits in an RNR retry.

use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use uroce::verbs::{
    self, Access, Completion, CompletionChannel, CompletionQueue, ConnectOptions, Context, Counter,
    Endpoint, MemoryRegion, Psn, QueuePair, QueuePairOptions, SendOperation,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Receives that each end has posted.
const CREDITS: usize = 4;
/// Bytes of a message at most.
const SLOT: usize = 256;
/// Added to the number of a slot in the identifiers of sends.
const SEND: u64 = 1000;
const PATIENCE: Duration = Duration::from_secs(10);

/// One end: slots 0 to CREDITS - 1 of its memory receive, as many behind them send.
struct End {
    device: Context,
    pair: QueuePair,
    completions: CompletionQueue,
    channel: CompletionChannel,
    memory: MemoryRegion,
    events: usize,
}

impl End {
    /// Opens a device, posts all receives, and connects. Addresses are exchanged over a channel of
    /// the process here; TCP or anything else would do.
    fn connect(psn: Psn, to: &Sender<Endpoint>, from: &Receiver<Endpoint>) -> Outcome<Self> {
        let device = verbs::open("lo")?;
        let domain = device.allocate_domain()?;
        let completions = device.create_completion_queue(4 * CREDITS as u32)?;
        let channel = CompletionChannel::new()?;
        channel.attach(&completions, 0)?;
        let pair = domain.create_queue_pair(&QueuePairOptions::new(&completions))?;
        let memory = domain.allocate(2 * CREDITS * SLOT, Access::LOCAL_WRITE)?;
        pair.initialize(Access::NONE)?;
        let end = Self { device, pair, completions, channel, memory, events: 0 };
        // Before the peer can send anything.
        (0..CREDITS).try_for_each(|slot| end.post_receive(slot))?;
        to.send(end.pair.endpoint(0, psn)?)?;
        end.pair.connect(&from.recv_timeout(PATIENCE)?, psn, &ConnectOptions::default())?;
        Ok(end)
    }

    fn post_receive(&self, slot: usize) -> Outcome<()> {
        Ok(self.pair.post_receive(slot as u64, &[self.memory.segment(slot * SLOT, SLOT)])?)
    }

    fn send(&self, slot: usize, text: &str) -> Outcome<()> {
        let bytes = &text.as_bytes()[..text.len().min(SLOT)];
        let offset = (CREDITS + slot) * SLOT;
        self.memory.write(offset, bytes)?;
        let segment = self.memory.segment(offset, bytes.len());
        Ok(self.pair.post(SEND + slot as u64, SendOperation::Send, segment)?)
    }

    /// The next completion; sleeps until there is one. The order matters: ask for an event, look
    /// once more, and only then sleep, so that what completes in between is not missed.
    fn next(&mut self) -> Outcome<Completion> {
        let mut found = self.completions.poll_one()?;
        while found.is_none() {
            self.completions.request_notification(false);
            found = self.completions.poll_one()?;
            if found.is_none() {
                self.channel.wait_event(PATIENCE).ok_or("nothing happens any more")?;
                self.events += 1;
            }
        }
        match found {
            Some(completion) if completion.status.is_success() => Ok(completion),
            Some(completion) => Err(self.pair.explain(&completion).to_string().into()),
            None => unreachable!("the loop ends with one"),
        }
    }

    fn received(&self, completion: &Completion) -> Outcome<String> {
        let bytes =
            self.memory.to_vec(completion.id as usize * SLOT, completion.length as usize)?;
        Ok(String::from_utf8(bytes)?)
    }
}

/// Answers until it is told to stop.
fn serve(to: &Sender<Endpoint>, from: &Receiver<Endpoint>) -> Outcome<()> {
    let mut end = End::connect(Psn::new(1000), to, from)?;
    let mut served = 0;
    let mut under_way = 0;
    let mut stopping = false;
    while !stopping || under_way > 0 {
        let completion = end.next()?;
        if !completion.kind.is_receive() {
            under_way -= 1;
            continue;
        }
        let question = end.received(&completion)?;
        let slot = completion.id as usize;
        // The credit first: when the client has the answer it may ask again.
        end.post_receive(slot)?;
        end.send(slot, &answer(&question))?;
        under_way += 1;
        served += 1;
        stopping = question == "stop";
    }
    let not_ready = end.device.counters()?.engine.get(Counter::SentRnrNak);
    println!("server: {served} questions, {} events, {not_ready} without a receive", end.events);
    if not_ready == 0 { Ok(()) } else { Err("the credits did not hold".into()) }
}

fn answer(question: &str) -> String {
    match question.split_once(' ') {
        Some(("upper", text)) => text.to_uppercase(),
        Some(("reverse", text)) => text.chars().rev().collect(),
        Some(("count", text)) => format!("{} words", text.split_whitespace().count()),
        _ if question == "stop" => "bye".to_owned(),
        _ => format!("no idea what `{question}` means"),
    }
}

/// Asks, with as many questions under way as there are credits.
fn ask(to: &Sender<Endpoint>, from: &Receiver<Endpoint>) -> Outcome<()> {
    let mut end = End::connect(Psn::new(2000), to, from)?;
    let questions = [
        "upper remote procedure call",
        "reverse desserts",
        "count how many words are these",
        "upper credits keep the receiver ready",
        "reverse no lemon, no melon",
        "sing a song",
        "count one two three",
        "stop",
    ];
    let mut waiting = std::collections::VecDeque::new();
    let mut free: Vec<usize> = (0..CREDITS).collect();
    let mut next = questions.iter();
    let mut answered = 0;
    while answered < questions.len() {
        while let Some(slot) = free.pop() {
            let Some(question) = next.next() else { break };
            end.send(slot, question)?;
            // RC keeps the order, and so does the server.
            waiting.push_back((*question, slot));
        }
        let completion = end.next()?;
        if !completion.kind.is_receive() {
            continue;
        }
        let (question, slot) = waiting.pop_front().ok_or("an answer without a question")?;
        println!("client: {question:<40} -> {}", end.received(&completion)?);
        end.post_receive(completion.id as usize)?;
        // The answer says that the server has the question, so its slot can be used again.
        free.push(slot);
        answered += 1;
    }
    println!("client: {answered} answers, {} events", end.events);
    Ok(())
}

fn main() -> Outcome<()> {
    let (to_server, at_server) = channel();
    let (to_client, at_client) = channel();
    let server = std::thread::spawn(move || serve(&to_client, &at_server));
    let asked = ask(&to_server, &at_client);
    server.join().map_err(|_| "the server panicked")??;
    asked
}
