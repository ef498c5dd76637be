//! What the requester is told: silence, refusals, answers that make no sense.

use uroce::queue::{Access, PathMtu, Remote, SendFlags, SendOperation};
use uroce::wire::{Aeth, Credits, Message, Msn, Psn, Rkey, Syndrome};

use crate::Case;
use crate::world::{Passing, all, destroy, explained, impatient, post, rc, register, run};

pub const CASES: &[Case] = &[
    ("unanswered.silence", silence),
    ("unanswered.gone_silent", gone_silent),
    ("unanswered.sequence_naks", sequence_naks),
    ("unanswered.outside", outside),
    ("not_ready", not_ready),
    ("refused.invalid_request", invalid_request),
    ("refused.access", access),
    ("refused.operation", operation),
    ("wrong_response.length", wrong_length),
    ("wrong_response.end", wrong_end),
    ("wrong_response.kind", wrong_kind),
];

fn write(pair: &crate::pair::Pair) -> SendOperation {
    SendOperation::Write(pair.remote(1, 0))
}

fn silence() -> String {
    let mut pair = impatient();
    destroy(&mut pair, 1);
    let operation = write(&pair);
    post(&mut pair, operation, 5000);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

fn gone_silent() -> String {
    let mut pair = impatient();
    let operation = write(&pair);
    post(&mut pair, operation, 8);
    run(&mut pair, all);
    assert!(pair.completion(0).status.is_success());
    destroy(&mut pair, 1);
    post(&mut pair, operation, 8);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

/// The network loses every copy of one packet.
fn sequence_naks() -> String {
    let mut pair = impatient();
    let operation = write(&pair);
    post(&mut pair, operation, 5000);
    let lost = Psn::new(0xff_fff1 + 2);
    run(&mut pair, |packet: &mut Passing| packet.from == 1 || packet.headers().psn != lost);
    explained(&mut pair, 0)
}

/// Our first PSN lies before the one that the peer expects.
fn outside() -> String {
    let mut pair = rc(&|side, attributes| {
        attributes.timeout = Some(8);
        if side == 1 {
            attributes.receive_psn = attributes.receive_psn.map(|psn| psn.add(1000));
        }
    });
    let operation = write(&pair);
    post(&mut pair, operation, 8);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

fn not_ready() -> String {
    let mut pair = rc(&|_, attributes| attributes.rnr_retry = Some(3));
    post(&mut pair, SendOperation::Send, 100);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

/// The peer's path MTU is half of ours.
fn invalid_request() -> String {
    let mut pair = rc(&|side, attributes| {
        if side == 1 {
            attributes.path_mtu = Some(PathMtu::Mtu512);
        }
    });
    let operation = write(&pair);
    post(&mut pair, operation, 5000);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

fn access() -> String {
    let mut pair = rc(&|_, _| {});
    let (memory, keys) = register(&mut pair, 1, 4096, Access::ALL);
    let remote = Remote { address: memory.address() + 4000, key: keys.remote };
    post(&mut pair, SendOperation::Write(remote), 200);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

/// The peer's receive names a key that there is not.
fn operation() -> String {
    let mut pair = rc(&|_, _| {});
    crate::responder::post_bad_receive(&mut pair);
    post(&mut pair, SendOperation::Send, 100);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

fn wrong_length() -> String {
    let mut pair = rc(&|side, attributes| {
        if side == 1 {
            attributes.path_mtu = Some(PathMtu::Mtu512);
        }
    });
    let operation = SendOperation::Read(pair.remote(1, 0));
    post(&mut pair, operation, 3000);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

/// A response of the right size says that more follows where nothing more was asked for.
fn wrong_end() -> String {
    let mut pair = rc(&|_, _| {});
    let operation = SendOperation::Read(pair.remote(1, 0));
    post(&mut pair, operation, 1024);
    run(&mut pair, |packet: &mut Passing| {
        if let Message::ReadResponseOnly(aeth) = packet.headers().message {
            packet.rewrite(|headers, _| headers.message = Message::ReadResponseFirst(aeth));
        }
        true
    });
    explained(&mut pair, 0)
}

/// READ data where the answer to an atomic is due.
fn wrong_kind() -> String {
    let mut pair = rc(&|_, _| {});
    let remote = pair.remote(1, 0);
    post(&mut pair, SendOperation::FetchAdd { remote, add: 1 }, 8);
    run(&mut pair, |packet: &mut Passing| {
        if let Message::AtomicAcknowledge(..) = packet.headers().message {
            let aeth = Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: Msn::new(1) };
            packet.rewrite(|headers, _| headers.message = Message::ReadResponseOnly(aeth));
        }
        true
    });
    explained(&mut pair, 0)
}

/// The numbers of a sentence, not only its words.
#[test]
fn silence_has_the_numbers_of_its_retries() {
    use uroce::words::{Fact, explain_status};
    let mut pair = rc(&|_, attributes| {
        attributes.timeout = Some(3);
        attributes.retry_count = Some(2);
    });
    destroy(&mut pair, 1);
    let mut sent = 0;
    let operation = write(&pair);
    post(&mut pair, operation, 5000);
    run(&mut pair, |packet: &mut Passing| {
        sent += u64::from(packet.headers().psn == Psn::new(0xff_fff1));
        true
    });
    let completion = pair.completion(0);
    let history = crate::world::history(&pair, 0);
    let explanation = explain_status(&history, completion.id, completion.status);
    assert_eq!(explanation.number("tries"), Some(sent));
    assert_eq!(explanation.number("timeout_ns"), Some(32_768));
    assert_eq!(explanation.number("timeout_used_ns"), Some(1_000_000));
    assert_eq!(explanation.number("retry_cnt"), Some(2));
    // The first try and two retries, each for a millisecond.
    let waited = explanation.number("waited_ns").unwrap();
    assert!((3_000_000..3_010_000).contains(&waited), "{waited}");
    assert_eq!(explanation.facts["first_psn"], Fact::Text("16777201".to_owned()));
    assert_eq!(explanation.facts["last_psn"], Fact::Text("16777205".to_owned()));
    assert_eq!(explanation.facts["peer_address"], Fact::Text("10.0.0.2".to_owned()));
    let json = serde_json::to_value(&explanation).unwrap();
    assert_eq!(json["status_number"], 12);
    assert_eq!(json["facts"]["retry_cnt"], 2);
}

#[test]
fn a_timer_of_receiver_not_ready_is_decoded() {
    let mut pair = rc(&|_, attributes| {
        attributes.rnr_retry = Some(1);
        attributes.min_rnr_timer = Some(1);
    });
    post(&mut pair, SendOperation::Send, 100);
    run(&mut pair, all);
    let text = explained(&mut pair, 0);
    assert!(text.contains("found no receive twice"), "{text}");
    assert!(text.contains("a pause of 0.01 ms each time (min_rnr_timer 1), rnr_retry 1"), "{text}");
}

/// Every pair of path MTUs that differ is told at both ends, for WRITE and for READ; where the
/// smaller packets happen to be legal nothing fails.
#[test]
fn path_mtus_that_differ_are_told_at_both_ends() {
    let mut told = 0;
    for ours in PathMtu::ALL {
        for theirs in PathMtu::ALL {
            for reads in [false, true] {
                let text = with_mtus(ours, theirs, reads);
                if ours == theirs {
                    assert_eq!(text, None, "{ours:?} {theirs:?}");
                    continue;
                }
                let text = text.expect("it fails");
                assert!(text.contains("path MTU mismatch"), "{ours:?} {theirs:?}: {text}");
                assert!(text.contains(&ours.bytes().to_string()), "{text}");
                told += 1;
            }
        }
    }
    assert_eq!(told, 40, "all pairs, both operations");
}

fn with_mtus(ours: PathMtu, theirs: PathMtu, reads: bool) -> Option<String> {
    let mut pair = rc(&|side, attributes| {
        attributes.path_mtu = Some(if side == 0 { ours } else { theirs });
    });
    let remote = pair.remote(1, 0);
    let operation = if reads { SendOperation::Read(remote) } else { SendOperation::Write(remote) };
    post(&mut pair, operation, 20_000);
    run(&mut pair, all);
    let completion = pair.completion(0);
    if completion.status.is_success() {
        return None;
    }
    if !reads {
        let other = crate::world::root(&pair, 1);
        assert!(other.contains("path MTU mismatch"), "{other}");
        let names = [ours, theirs].map(|mtu| mtu.bytes().to_string());
        assert!(names.iter().all(|name| other.contains(name)), "{other}");
    }
    Some(crate::world::explained_as(&pair, 0, &completion))
}

/// A stale key: the address and length asked for are told, and that the key may be old.
#[test]
fn a_key_that_was_deregistered_is_called_stale() {
    let mut pair = rc(&|_, _| {});
    let (memory, keys) = register(&mut pair, 1, 4096, Access::ALL);
    pair.sides[1].engine.deregister(keys.local).unwrap();
    let remote = Remote { address: memory.address(), key: Rkey::new(keys.remote.value()) };
    pair.post(0, 9, SendOperation::Read(remote), SendFlags::SIGNALED, (0, 64));
    run(&mut pair, all);
    let text = explained(&mut pair, 0);
    assert!(text.contains(&format!("64 bytes at {:#x}", memory.address())), "{text}");
    assert!(text.contains("stale"), "{text}");
    let other = crate::world::root(&pair, 1);
    assert!(other.contains("no memory is registered under this key"), "{other}");
}
