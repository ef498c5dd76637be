//! The five acts.

use std::collections::BTreeMap;

use serde::Serialize;
use uroce::fault::FaultPlan;
use uroce::software::clock;
use uroce::verbs::{Counter, Counters, SendOperation};

use super::capture::Captures;
use super::ladder;
use super::narrator::Narrator;
use super::stage::{End, PATH_MTU, SECOND_HALF, Stage};
use super::watch::{Arrival, Step, Watch};
use crate::cli::output::Failure;
use crate::cli::text::count;

/// What Alice sends.
const GREETING: &[u8] = b"Hello Bob, this came by RDMA without an RDMA card.";
/// Bytes that are written and read: four packets.
const SHORT: usize = 4000;
/// Bytes that are written while packets are lost: 64 packets.
const LONG: usize = 64 * 1024;
/// What Bob's counter begins with.
const COUNTER: u64 = 41;
/// Additions while packets are lost.
const ADDITIONS: u64 = 16;

/// An act that came out right.
#[derive(Serialize)]
pub(super) struct Act {
    number: u32,
    title: &'static str,
    seconds: f64,
    packets: usize,
    /// Of whole frames.
    bytes: usize,
    lost: usize,
    resent: usize,
    verified: bool,
    /// What each end's device has counted in this act, by name, without zeros.
    alice: Counts,
    bob: Counts,
    steps: Vec<StepReport>,
}

type Counts = BTreeMap<&'static str, u64>;

/// A packet, for machines.
#[derive(Serialize)]
struct StepReport {
    microseconds: f64,
    from: &'static str,
    opcode: &'static str,
    psn: u32,
    length: usize,
    fate: Arrival,
    resent: bool,
    text: String,
}

/// What an act is played with.
struct Play<'a> {
    narrator: &'a Narrator,
    stage: &'a Stage,
    watch: Watch,
    acts: Vec<Act>,
    start: uroce::time::Instant,
    steps: Vec<Step>,
    /// What Alice's and Bob's devices had counted when the act began.
    counted: [Counters; 2],
}

/// Plays all acts. The first that comes out wrong ends the play.
pub(super) fn play(
    narrator: &Narrator,
    captures: &Captures,
    fault: &FaultPlan,
) -> Result<Vec<Act>, Failure> {
    narrator.prologue()?;
    let stage = Stage::open(captures, 1, None)?;
    let mut play = Play::new(narrator, &stage, Vec::new());
    play.connect()?;
    play.send()?;
    play.write_and_read()?;
    play.atomics()?;
    let acts = play.acts;
    drop(stage);
    let stage = Stage::open(captures, 2, Some(fault))?;
    stage.connect()?;
    let mut play = Play::new(narrator, &stage, acts);
    play.losses()?;
    Ok(play.acts)
}

impl<'a> Play<'a> {
    fn new(narrator: &'a Narrator, stage: &'a Stage, acts: Vec<Act>) -> Self {
        let (watch, start) = (Watch::new(stage), clock::now());
        let counted = Default::default();
        Self { narrator, stage, watch, acts, start, steps: Vec::new(), counted }
    }

    fn begin(&mut self, title: &'static str) -> Result<u32, Failure> {
        let number = self.acts.len() as u32 + 1;
        self.narrator.act(number, title)?;
        self.start = clock::now();
        Ok(number)
    }

    /// Draws what has been on the wire since the last time.
    fn draw(&mut self) -> Result<(), Failure> {
        let steps = self.watch.steps(self.stage)?;
        self.narrator.ladder(&steps)?;
        self.steps.extend(steps);
        Ok(())
    }

    fn end(&mut self, number: u32, title: &'static str) -> Result<(), Failure> {
        let steps = std::mem::take(&mut self.steps);
        let [alice, bob] = self.count()?;
        self.acts.push(Act {
            number,
            title,
            seconds: (clock::now() - self.start) as f64 / 1e9,
            packets: steps.len(),
            bytes: steps.iter().map(|step| step.frame).sum(),
            lost: lost(&steps),
            resent: resent(&steps),
            verified: true,
            alice,
            bob,
            steps: reports(&steps),
        });
        Ok(())
    }

    /// What the devices have counted since the last time.
    fn count(&mut self) -> Result<[Counts; 2], Failure> {
        let Stage { alice, bob, .. } = self.stage;
        let now = [alice.context.counters()?.engine, bob.context.counters()?.engine];
        let before = std::mem::replace(&mut self.counted, now.clone());
        let since = |(now, before): (Counters, Counters)| {
            let counts = now.iter().zip(before.iter());
            let changed = counts.map(|((name, now), (_, before))| (name, now - before));
            changed.filter(|(_, count)| *count > 0).collect()
        };
        let [alice, bob] = now;
        let [alice_before, bob_before] = before;
        Ok([(alice, alice_before), (bob, bob_before)].map(since))
    }

    fn connect(&mut self) -> Result<(), Failure> {
        let title = "Connect";
        let number = self.begin(title)?;
        let Stage { alice, bob, .. } = self.stage;
        self.narrator.say(
            "Alice and Bob each open a device, register memory and create a queue pair, which is \
             an end of a connection. Each must then learn three things of the other:",
        )?;
        let row = |what: &str, value: fn(&End) -> String, why: &str| {
            format!("{what:<8}{:<16}{:<16}{why}", value(alice), value(bob))
        };
        self.narrator.show(&[
            format!("{:<8}{:<16}{}", "", alice.name, bob.name),
            row("GID", |end| end.address().to_string(), "the address: on RoCE an IP address"),
            row("QPN", |end| end.endpoint.number.to_string(), "the number of the queue pair"),
            row("PSN", |end| end.endpoint.psn.to_string(), "where packets are counted from"),
        ])?;
        self.narrator.say(
            "RoCE does not say how they learn it: some programs use TCP, as ibv_rc_pingpong does, \
             others the connection manager. Here one process knows both. Each end takes its queue \
             pair from RESET over INIT and RTR (ready to receive) to RTS (ready to send).",
        )?;
        self.stage.connect()?;
        self.narrator.verified("Both queue pairs are in RTS. That took no packet at all.")?;
        self.end(number, title)
    }

    fn send(&mut self) -> Result<(), Failure> {
        let title = "SEND and receive";
        let number = self.begin(title)?;
        let Stage { alice, bob, .. } = self.stage;
        self.narrator.say(
            "Bob posts a receive: a buffer for whatever comes. Alice posts a SEND. Nobody copies \
             through a socket: the device reads her memory and fills his, and a completion tells \
             each of them.",
        )?;
        alice.memory.write(0, GREETING)?;
        bob.pair.post_receive(2, &[bob.memory.segment(SECOND_HALF, 256)])?;
        alice.perform(SendOperation::Send, 0, GREETING.len())?;
        let received = bob.wait()?;
        bob.expect(SECOND_HALF, GREETING)?;
        if received.length as usize != GREETING.len() {
            return Err(Failure::bad(format!("Bob was told of {} bytes", received.length)));
        }
        self.draw()?;
        let text = String::from_utf8_lossy(GREETING);
        let bytes = GREETING.len();
        self.narrator
            .verified(&format!("Bob's receive completed with {bytes} bytes: \"{text}\""))?;
        self.end(number, title)
    }

    fn write_and_read(&mut self) -> Result<(), Failure> {
        let title = "RDMA WRITE and RDMA READ";
        let number = self.begin(title)?;
        let Stage { alice, bob, .. } = self.stage;
        self.narrator.say(&format!(
            "Bob has told Alice where his memory is and the key to it. From now on she writes and \
             reads there without him: his program runs no code and gets no completion. {SHORT} \
             bytes do not fit one packet (the path MTU is {}), so they go in four.",
            PATH_MTU.bytes()
        ))?;
        let bytes = pattern(SHORT, 3);
        alice.memory.write(0, &bytes)?;
        alice.perform(SendOperation::Write(bob.memory.remote(0)), 0, SHORT)?;
        bob.expect(0, &bytes)?;
        alice.perform(SendOperation::Read(bob.memory.remote(0)), SECOND_HALF, SHORT)?;
        alice.expect(SECOND_HALF, &bytes)?;
        self.draw()?;
        self.narrator.verified(&format!(
            "All {SHORT} bytes are in Bob's memory, and the same came back. One READ request took \
             four PSNs, one for each packet of its answer, which is why that needs no ACK."
        ))?;
        self.end(number, title)
    }

    fn atomics(&mut self) -> Result<(), Failure> {
        let title = "Atomics";
        let number = self.begin(title)?;
        let Stage { alice, bob, .. } = self.stage;
        self.narrator.say(&format!(
            "Bob keeps a counter, {COUNTER} at first. Alice adds 1. Then she puts 1000 there if it \
             is 42, and then 7 if it is 42, which it no longer is. Each time the old value comes \
             back.",
        ))?;
        bob.memory.store_u64(0, COUNTER)?;
        let remote = bob.memory.remote(0);
        let swap = |swap| SendOperation::CompareSwap { remote, compare: 42, swap };
        for (operation, before, after) in [
            (SendOperation::FetchAdd { remote, add: 1 }, COUNTER, 42),
            (swap(1000), 42, 1000),
            (swap(7), 1000, 1000),
        ] {
            alice.perform(operation, SECOND_HALF, 8)?;
            alice.expect_word(SECOND_HALF, before)?;
            bob.expect_word(0, after)?;
        }
        self.draw()?;
        self.narrator.verified("41, 42 and 1000 came back, and the counter is 1000.")?;
        self.end(number, title)
    }

    fn losses(&mut self) -> Result<(), Failure> {
        let title = "The same on a bad network";
        let number = self.begin(title)?;
        let fault = self.stage.fault.as_ref().map(ToString::to_string).unwrap_or_default();
        self.narrator.say(&format!(
            "Two new devices, and now each packet that arrives is lost with a chance of {} %. The \
             plan is `{fault}`, as UROCE_FAULT or --fault take it; the same seed loses the same \
             packets. First Alice adds 1 to the counter, {ADDITIONS} times, one after the other.",
            super::LOSS_PERCENT
        ))?;
        self.add_under_loss()?;
        self.narrator.say(
            "After a lost packet that was the last nothing comes, so Bob cannot notice; Alice asks \
             again after a short while. An answer that is lost looks the same to her, but Bob keeps \
             what he answered: he says it again and does not add again.",
        )?;
        let packets = LONG / PATH_MTU.bytes();
        self.narrator.say(&format!("Now a WRITE of {LONG} bytes, which are {packets} packets."))?;
        self.write_under_loss()?;
        self.tell_losses()?;
        self.end(number, title)
    }

    fn add_under_loss(&mut self) -> Result<(), Failure> {
        let Stage { alice, bob, .. } = self.stage;
        let remote = bob.memory.remote(0);
        for number in 0..ADDITIONS {
            alice.perform(SendOperation::FetchAdd { remote, add: 1 }, SECOND_HALF, 8)?;
            alice.expect_word(SECOND_HALF, number)?;
        }
        bob.expect_word(0, ADDITIONS)?;
        self.draw()?;
        self.narrator.verified(&format!(
            "The counter is {ADDITIONS}: each addition was done once, whatever was lost."
        ))
    }

    fn write_under_loss(&mut self) -> Result<(), Failure> {
        let Stage { alice, bob, .. } = self.stage;
        let bytes = pattern(LONG, 5);
        alice.memory.write(0, &bytes)?;
        alice.perform(SendOperation::Write(bob.memory.remote(0)), 0, LONG)?;
        bob.expect(0, &bytes)?;
        self.draw()?;
        self.narrator.verified(&format!("All {LONG} bytes are right."))
    }

    fn tell_losses(&self) -> Result<(), Failure> {
        let alice = self.stage.alice.context.counters()?.engine;
        let bob = self.stage.bob.context.counters()?.engine;
        let lost = lost(&self.steps);
        let missing = self.steps.iter().filter(|step| step.arrival == Arrival::Missing).count();
        if missing > 0 {
            self.narrator.say(&format!(
                "This host lost {} more, for example to another process that shared the port and \
                 ended.",
                count(missing as u64, "packet")
            ))?;
        }
        if lost == 0 {
            return self.narrator.say(
                "This seed lost nothing, which happens: the plan is a chance for each packet. Try \
                 another --seed.",
            );
        }
        let naks = count(bob.get(Counter::SentSequenceNak), "NAK");
        let gaps = count(bob.get(Counter::OutOfSequence), "packet");
        let probes = count(alice.get(Counter::Probe), "time");
        let again = count(alice.get(Counter::RetransmittedPackets), "packet");
        let timeouts = count(alice.get(Counter::LocalAckTimeout), "time");
        self.narrator.say(&format!(
            "Of {} packets {lost} were lost. Bob dropped {gaps} that came after a gap and sent \
             {naks}. Alice asked again {probes} because no answer came, and sent {again} again in \
             all. The local ACK timeout, the slow way that the specification has, expired {timeouts}.",
            self.steps.len(),
        ))
    }
}

fn lost(steps: &[Step]) -> usize {
    steps.iter().filter(|step| step.arrival == Arrival::Lost).count()
}

fn resent(steps: &[Step]) -> usize {
    steps.iter().filter(|step| step.resent).count()
}

fn reports(steps: &[Step]) -> Vec<StepReport> {
    let start = steps.first().map_or(0, |step| step.time);
    let report = |step: &Step| StepReport {
        microseconds: step.time.saturating_sub(start) as f64 / 1e3,
        from: if step.from_alice { super::stage::ALICE } else { super::stage::BOB },
        opcode: step.opcode(),
        psn: step.headers.psn.value(),
        length: step.length,
        fate: step.arrival,
        resent: step.resent,
        text: ladder::words(step),
    };
    steps.iter().map(report).collect()
}

/// Bytes that show it if one is in the wrong place.
fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = uroce::rng::Rng::new(seed);
    (0..length).map(|_| random.next_u32() as u8).collect()
}
