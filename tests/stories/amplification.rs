//! How much goes out for what comes in, from whoever can write the peer's address, PSNs and keys
//! into packets (`docs/security.md` tells these figures): a flood gets no multiple of itself back,
//! but for READ, where the data is the purpose.

use uroce::engine::Counter;
use uroce::queue::QueuePairState;
use uroce::wire::{Qpn, Reth, Rkey};

use crate::harness::{
    Frame, SERVED, Story, ack, nak, read_request, rnr_nak, send_only, sequence_nak, story,
    write_only,
};

/// Packets of a flood; all arrive at one time.
const FLOOD: usize = 400;
/// Bytes of the IPv4 and UDP headers.
const OUTER: usize = 28;

/// Bytes that go in with these frames, and those that come out up to the time when they are all
/// handled.
fn exchange(s: &mut Story, frames: Vec<Frame>) -> (usize, usize) {
    let mut bytes_in = 0;
    for frame in frames {
        bytes_in += s.encode(frame.clone()).len() + 4 + OUTER;
        s.deliver(frame);
    }
    let mut bytes_out = 0;
    while let Some(sent) = s.next_sent() {
        bytes_out += sent.bytes.len() + OUTER;
    }
    (bytes_in, bytes_out)
}

fn flood(frame: &Frame) -> Vec<Frame> {
    vec![frame.clone(); FLOOD]
}

/// At most so many bytes go out for each that comes in.
#[track_caller]
fn at_most(factor: f64, (bytes_in, bytes_out): (usize, usize)) {
    let found = bytes_out as f64 / bytes_in as f64;
    println!("{bytes_in} bytes in, {bytes_out} out: {found:.3}");
    assert!(found <= factor, "{bytes_in} bytes in, {bytes_out} out: {found:.3} times");
}

#[test]
fn requests_out_of_sequence_get_one_answer_together() {
    story(|s| {
        let frames = (1..=FLOOD as i32).map(|psn| write_only(psn, s.reth(SERVED, 0), &[]).asking());
        at_most(0.01, exchange(s, frames.collect()));
        assert_eq!(s.count(Counter::OutOfSequence), FLOOD as u64);
    });
}

#[test]
fn duplicates_of_writes_and_sends_get_less_than_they_are() {
    story(|s| {
        s.post_receive(1, 64);
        s.deliver(send_only(0, b"once"));
        s.deliver(write_only(1, s.reth(SERVED, 4), b"once").asking());
        s.settle();
        s.expect_received(1, uroce::queue::CompletionStatus::Success);
        while s.next_sent().is_some() {}
        for frame in [send_only(0, b"once").asking(), write_only(1, s.reth(SERVED, 4), b"evil")] {
            at_most(0.05, exchange(s, flood(&frame)));
        }
        assert_eq!(s.bytes(SERVED, 4), b"once");
        s.forget_events();
    });
}

/// A replay of a READ brings its data again, but copies that come while one is being answered bring
/// nothing more: here that is once in each turn, of 64 packets.
#[test]
fn copies_of_a_read_bring_its_data_once_a_turn() {
    const LENGTH: usize = 4096;
    story(|s| {
        let request = read_request(0, s.reth(SERVED, LENGTH));
        s.deliver(request.clone());
        s.settle();
        while s.next_sent().is_some() {}
        let (_, once) = exchange(s, vec![request.clone()]);
        assert!(once > LENGTH && once < LENGTH + 5 * 100);
        let (_, bytes_out) = exchange(s, flood(&request));
        assert!(bytes_out <= FLOOD.div_ceil(64) * once, "{bytes_out} bytes; one brings {once}");
        s.forget_events();
    });
}

#[test]
fn a_wrong_key_gets_one_answer_and_ends_the_connection() {
    story(|s| {
        let reth = Reth { key: Rkey::new(0xbad), ..s.reth(SERVED, 64) };
        let (_, out) = exchange(s, flood(&read_request(0, reth)));
        assert_eq!(out, OUTER + 12 + 4 + 4, "a NAK");
        assert_eq!(s.state(), QueuePairState::Error);
        s.forget_events();
    });
}

#[test]
fn naks_bring_what_is_under_way_once_more_however_many_come() {
    story(|s| {
        s.post_write(1, 4096);
        let mut first = 0;
        while let Some(sent) = s.next_sent() {
            first += sent.bytes.len() + OUTER;
        }
        for frame in [sequence_nak(0, 0), rnr_nak(0, 0, 1)] {
            let (_, bytes_out) = exchange(s, flood(&frame));
            assert!(bytes_out <= first, "{bytes_out} bytes, and {first} are under way");
        }
        s.modify(&uroce::queue::QueuePairAttributes::to_state(QueuePairState::Reset)).unwrap();
        s.forget_events();
    });
}

#[test]
fn answers_to_nothing_get_none() {
    story(|s| {
        let frames = [ack(7, 1), nak(7, 1, uroce::wire::NakCode::RemoteAccessError)];
        for frame in frames {
            let (_, out) = exchange(s, flood(&frame));
            assert_eq!(out, 0);
        }
        assert_eq!(s.state(), QueuePairState::Rts);
    });
}

#[test]
fn packets_for_nobody_get_none() {
    story(|s| {
        let (flow, mut bytes) = (s.flow(), s.encode(send_only(0, b"hello").asking()));
        bytes[5..8].copy_from_slice(&Qpn::new(0x00ff_fff0).value().to_be_bytes()[1..]);
        for _ in 0..FLOOD {
            s.deliver_bytes(flow, bytes.clone());
        }
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropUnknownQueuePair), FLOOD as u64);
    });
}

/// Marked packets bring one notification in 50 µs, whatever else they bring.
#[test]
fn marks_bring_one_notification_at_a_time() {
    story(|s| {
        s.traffic_class = 3;
        let frames = (0..FLOOD as i32).map(|psn| write_only(psn, s.reth(SERVED, 0), &[]));
        let (bytes_in, bytes_out) = exchange(s, frames.collect());
        assert_eq!(s.count(Counter::SentCongestionNotification), 1);
        at_most(0.05, (bytes_in, bytes_out));
        s.forget_events();
    });
}
