//! A peer that keeps to no rule: random frames in every state must neither panic, nor break what
//! the engine says of itself, nor touch memory that was not granted.

use std::collections::BTreeMap;

use uroce::engine::Counter;
use uroce::memory::{WindowBind, WindowId, WindowKind};
use uroce::queue::QueuePairState::{Error, Reset, Rts, Sqd};
use uroce::queue::{Access, QueuePairAttributes, SendFlags, SendOperation};
use uroce::rng::Rng;
use uroce::wire::{Aeth, AtomicEth, Immediate, Message, Msn, Reth, Rkey, SendTail, Syndrome};

use crate::harness::{BASE, Frame, MEMORY, SERVED, Setup, Story, TARGET, ours, peer, theirs};

const MTU: usize = 1024;

/// What the peer remembers: where its stream stands, and what it has heard last.
#[derive(Default)]
struct Guess {
    requests: i32,
    heard: i32,
}

impl Guess {
    /// A PSN that would be right mostly, else anywhere near, else anywhere.
    fn psn(&mut self, rng: &mut Rng, response: bool) -> i32 {
        let right = if response { self.heard - rng.below(3) as i32 } else { self.requests };
        match rng.below(24) {
            0 => rng.next_u32() as i32 >> 8,
            1..4 => right - rng.below(20) as i32,
            4 => right + rng.below(20) as i32,
            _ if response => right,
            _ => {
                self.requests += 1;
                right
            }
        }
    }

    /// Looks at what the engine has sent.
    fn hear(&mut self, s: &mut Story) {
        while let Some(sent) = s.next_sent() {
            let psn = (sent.frame.headers.psn.value() << 8) as i32 >> 8;
            match sent.frame.headers.message {
                Message::Acknowledge(Aeth { syndrome: Syndrome::Nak(_), .. }) => {
                    self.requests = psn;
                }
                _ if sent.frame.is_response() => {}
                _ => self.heard = psn,
            }
        }
    }
}

fn random_reth(s: &Story, rng: &mut Rng) -> Reth {
    let lengths = [0, 1, 8, MTU - 1, MTU, MTU + 1, 3 * MTU, 70 * MTU, 1 << 31, u32::MAX as usize];
    let length = lengths[rng.below(lengths.len() as u64) as usize];
    let reth = s.reth(SERVED + 8 * rng.below(64) as usize, length);
    match rng.below(12) {
        0 => Reth { key: Rkey::new(rng.next_u32()), ..reth },
        1 => Reth { address: rng.next_u64(), ..reth },
        2 => Reth { address: BASE + MEMORY as u64 - rng.below(64), ..reth },
        _ => reth,
    }
}

fn random_aeth(rng: &mut Rng) -> Aeth {
    let byte = match rng.below(6) {
        0 => rng.next_u32() as u8,
        1 => 0x60 | rng.below(5) as u8,
        3 => 0x60,
        2 => 0x21,
        _ => 0x1f,
    };
    Aeth { syndrome: Syndrome::from_byte(byte), msn: Msn::new(rng.next_u32()) }
}

fn random_message(s: &Story, rng: &mut Rng) -> Message {
    let tail = match rng.below(4) {
        0 => SendTail::Immediate(Immediate([1; 4])),
        1 => SendTail::Invalidate(Rkey::new(rng.next_u32())),
        _ => SendTail::Plain,
    };
    let immediate = rng.chance(1, 2).then_some(Immediate([2; 4]));
    let reth = random_reth(s, rng);
    let atomic = AtomicEth {
        address: reth.address,
        key: reth.key,
        swap_or_add: rng.next_u64(),
        compare: rng.below(3),
    };
    match rng.below(24) {
        0 => Message::SendFirst,
        1 => Message::SendMiddle,
        2 => Message::SendLast(tail),
        3 => Message::SendOnly(tail),
        4 => Message::WriteFirst(reth),
        5 => Message::WriteMiddle,
        6 => Message::WriteLast(immediate),
        7 => Message::WriteOnly(reth, immediate),
        8 | 9 => Message::ReadRequest(reth),
        10 => Message::CompareSwap(atomic),
        11 => Message::FetchAdd(atomic),
        12 => Message::ReadResponseFirst(random_aeth(rng)),
        13 => Message::ReadResponseMiddle,
        14 => Message::ReadResponseLast(random_aeth(rng)),
        15 => Message::ReadResponseOnly(random_aeth(rng)),
        16 => Message::AtomicAcknowledge(random_aeth(rng), 5),
        _ => Message::Acknowledge(random_aeth(rng)),
    }
}

fn random_frame(s: &Story, rng: &mut Rng, guess: &mut Guess) -> Frame {
    let message = random_message(s, rng);
    let has_payload = message.operation().is_some_and(|operation| operation.has_payload());
    let sizes = [0, 1, 8, MTU, MTU, MTU, MTU + 4];
    let size = if has_payload { sizes[rng.below(sizes.len() as u64) as usize] } else { 0 };
    let message = match message {
        // The length that its packet has, mostly: else hardly a WRITE would be carried out.
        Message::WriteOnly(reth, immediate) if rng.chance(7, 8) => {
            Message::WriteOnly(Reth { length: size as u32, ..reth }, immediate)
        }
        other => other,
    };
    let mut frame = Frame::new(message, 0, &theirs(0, size));
    let psn = guess.psn(rng, frame.is_response());
    frame.headers.psn = uroce::wire::Psn::new(psn as u32);
    frame.headers.ack_request = rng.chance(1, 2);
    frame.headers.solicited = rng.chance(1, 4);
    frame
}

fn random_post(s: &mut Story, rng: &mut Rng, step: u64) {
    let lengths = [0, 8, MTU, 3 * MTU + 1, 70 * MTU];
    let length = lengths[rng.below(lengths.len() as u64) as usize];
    let operation = match rng.below(7) {
        0 => SendOperation::Send,
        1 => SendOperation::Write(peer(0)),
        2 => SendOperation::Read(peer(0)),
        3 => SendOperation::FetchAdd { remote: peer(0), add: 1 },
        4 => SendOperation::LocalInvalidate(Rkey::new(7)),
        5 => SendOperation::BindWindow(random_binding(s, rng)),
        _ => SendOperation::Read(peer(64)),
    };
    let atomic = matches!(operation, SendOperation::FetchAdd { .. });
    let segment = s.sge(TARGET, if atomic { 8 } else { length });
    let flags = SendFlags { fence: rng.chance(1, 4), ..SendFlags::SIGNALED };
    let request = uroce::queue::SendRequest {
        id: step,
        operation,
        flags,
        payload: uroce::queue::Payload::Segments(&[segment]),
    };
    // A full queue or an early state refuses it, which is fine.
    let _ = s.pairs[0].post_one_send(&request);
    if rng.chance(1, 2) && s.state() != Reset {
        let segments = [s.sge(crate::harness::RECEIVE, length)];
        let receive = uroce::queue::ReceiveRequest { id: step, segments: &segments };
        let _ = s.pairs[0].post_one_receive(&receive);
    }
}

/// Now and then one that is carried out.
fn random_binding(s: &mut Story, rng: &mut Rng) -> WindowBind {
    let key = s.engine.allocate_window(s.domain, WindowKind::Type1).unwrap();
    let window = if rng.chance(3, 4) { key } else { Rkey::new(rng.next_u32()) };
    let address = if rng.chance(3, 4) { BASE } else { rng.next_u64() };
    WindowBind {
        window: WindowId::of_key(window),
        kind: if rng.chance(1, 8) { WindowKind::Type2B } else { WindowKind::Type1 },
        portion: rng.next_u32() as u8,
        region: s.keys.local,
        address,
        length: rng.next_u64() >> (40 + rng.below(24)),
        access: Access::REMOTE_WRITE,
    }
}

/// What happens beside frames.
fn random_event(s: &mut Story, rng: &mut Rng, step: u64) {
    match rng.below(40) {
        0..25 => random_post(s, rng, step),
        25..36 => s.pass_until(s.now + rng.below(3_000_000)),
        36 => _ = s.modify(&QueuePairAttributes::to_state(Sqd)),
        37 => _ = s.modify(&QueuePairAttributes::to_state(Rts)),
        38 => _ = s.modify(&QueuePairAttributes::to_state(Error)),
        _ => s.memory.write(SERVED, &[0; 8]).unwrap(),
    }
}

/// Brings a queue pair in error back to life.
fn revive(s: &mut Story, guess: &mut Guess) {
    if s.state() == Error {
        s.modify(&QueuePairAttributes::to_state(Reset)).unwrap();
        s.bring_to(Rts);
        *guess = Guess::default();
    }
}

fn take_everything(s: &mut Story, guess: &mut Guess) {
    guess.hear(s);
    s.forget_events();
    for queue in [&s.send_completions, &s.receive_completions] {
        let _ = queue.poll(usize::MAX, |_, _| {});
    }
}

#[test]
fn nothing_that_a_peer_sends_breaks_the_engine_or_reaches_other_memory() {
    let mut seen = BTreeMap::<&str, u64>::new();
    for seed in 0..100 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let start = rng.next_u32();
        let mut s = Story::new(Setup {
            send_start: start,
            receive_start: start ^ 0x80_0000,
            max_rd_atomic: 1 + rng.below(4) as u8,
            max_destination_rd_atomic: rng.below(4) as u8,
            rnr_retry: rng.below(8) as u8,
            timeout: 8 + rng.below(4) as u8,
            ..Setup::default()
        });
        let mut guess = Guess::default();
        for step in 0..400 {
            for _ in 0..=rng.below(4) {
                let frame = random_frame(&s, &mut rng, &mut guess);
                s.deliver(frame);
            }
            if rng.chance(1, 3) {
                random_event(&mut s, &mut rng, step);
            }
            s.turn();
            if rng.chance(1, 2) {
                take_everything(&mut s, &mut guess);
                revive(&mut s, &mut guess);
            }
        }
        take_everything(&mut s, &mut guess);
        // No request named the start of the memory.
        assert_eq!(s.bytes(0, 1024), ours(0, 1024));
        let number = s.number();
        s.engine.destroy_queue_pair(number).unwrap();
        s.engine.check_invariants();
        for counter in Counter::ALL {
            *seen.entry(counter.name()).or_default() += s.count(*counter);
        }
    }
    println!("{seen:?}");
    // It was worth something only if all of these happened.
    let met = [
        "sent_ack",
        "sent_sequence_nak",
        "sent_rnr_nak",
        "sent_error_nak",
        "duplicate_request",
        "packet_seq_err",
        "implied_nak_seq_err",
        "received_rnr_nak",
        "local_ack_timeout_err",
        "probe",
        "ignored_nak",
        "bad_response",
        "drop_duplicate_without_record",
        "retransmitted_packets",
    ];
    for name in met {
        assert!(seen[name] > 20, "{name} happened {} times", seen[name]);
    }
}
