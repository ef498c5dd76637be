//! The opcode sequence of a message, opcodes that no request has, and how many READs and atomics
//! a peer may have open.

use uroce::engine::Counter;
use uroce::queue::CompletionStatus::{Success, WorkRequestFlushed};
use uroce::wire::{Deth, Message, NakCode, QKey, Qpn, Rdeth, SendTail, Service, Srqn, Xrceth};

use crate::harness::{
    Event, Frame, SERVED, Setup, Story, ack, atomic_ack, compare_swap, fetch_add, nak, ours,
    read_request, read_response_only, send_first, send_last, send_middle, send_only,
    send_only_immediate, send_only_invalidate, story, theirs, write_first, write_last,
    write_last_immediate, write_middle, write_only, write_only_immediate,
};

const MTU: usize = 1024;

/// One frame of each request opcode, all but the sequence in order, with this PSN.
fn every_request(s: &Story, psn: i32) -> Vec<(&'static str, Frame)> {
    let full = theirs(0, MTU);
    let reth = s.reth(SERVED, 8);
    let long = s.reth(SERVED, 3 * MTU);
    let last = |tail| Frame::new(Message::SendLast(tail), psn, &theirs(0, 8));
    vec![
        ("SEND_FIRST", send_first(psn, &full)),
        ("SEND_MIDDLE", send_middle(psn, &full)),
        ("SEND_LAST", send_last(psn, &theirs(0, 8))),
        ("SEND_LAST_WITH_IMMEDIATE", last(SendTail::Immediate(uroce::wire::Immediate([1; 4])))),
        ("SEND_LAST_WITH_INVALIDATE", last(SendTail::Invalidate(s.keys.remote))),
        ("SEND_ONLY", send_only(psn, &theirs(0, 8))),
        ("SEND_ONLY_WITH_IMMEDIATE", send_only_immediate(psn, &theirs(0, 8), [1; 4])),
        ("SEND_ONLY_WITH_INVALIDATE", send_only_invalidate(psn, &theirs(0, 8), s.keys.remote)),
        ("WRITE_FIRST", write_first(psn, long, &full)),
        ("WRITE_MIDDLE", write_middle(psn, &full)),
        ("WRITE_LAST", write_last(psn, &theirs(0, 8))),
        ("WRITE_LAST_WITH_IMMEDIATE", write_last_immediate(psn, &theirs(0, 8), [1; 4])),
        ("WRITE_ONLY", write_only(psn, reth, &theirs(0, 8))),
        ("WRITE_ONLY_WITH_IMMEDIATE", write_only_immediate(psn, reth, &theirs(0, 8), [1; 4])),
        ("READ_REQUEST", read_request(psn, reth)),
        ("COMPARE_SWAP", compare_swap(psn, reth, 0, 1)),
        ("FETCH_ADD", fetch_add(psn, reth, 1)),
    ]
}

/// After `before`, exactly the requests not named in `allowed` are refused as out of sequence.
fn only_these_follow(before: fn(&Story) -> Vec<Frame>, allowed: &[&str]) {
    for index in 0..17 {
        story(|s| {
            s.post_receive(1, 0x1_0000);
            s.post_receive(2, 0x1_0000);
            let frames = before(s);
            let psn = frames.len() as i32;
            s.deliver_all(frames);
            s.expect_nothing();
            let (name, frame) = every_request(s, psn).swap_remove(index);
            if allowed.contains(&name) {
                return;
            }
            s.deliver(frame.asking());
            s.expect(nak(psn, 0, NakCode::InvalidRequest));
            s.expect_event(Event::RequestError(0));
            s.expect_received(1, WorkRequestFlushed);
            s.expect_received(2, WorkRequestFlushed);
            assert_eq!(s.bytes(SERVED + MTU, MTU), ours(SERVED + MTU, MTU), "{name}");
            s.expect_dead();
        });
    }
}

#[test]
fn outside_of_a_message_no_middle_and_no_last_packet_may_come() {
    only_these_follow(
        |_| vec![],
        &[
            "SEND_FIRST",
            "SEND_ONLY",
            "SEND_ONLY_WITH_IMMEDIATE",
            "SEND_ONLY_WITH_INVALIDATE",
            "WRITE_FIRST",
            "WRITE_ONLY",
            "WRITE_ONLY_WITH_IMMEDIATE",
            "READ_REQUEST",
            "COMPARE_SWAP",
            "FETCH_ADD",
        ],
    );
}

#[test]
fn inside_of_a_send_only_its_own_middle_or_last_packet_may_come() {
    let allowed =
        ["SEND_MIDDLE", "SEND_LAST", "SEND_LAST_WITH_IMMEDIATE", "SEND_LAST_WITH_INVALIDATE"];
    only_these_follow(|_| vec![send_first(0, &theirs(0, MTU))], &allowed);
    let begun = |_: &Story| vec![send_first(0, &theirs(0, MTU)), send_middle(1, &theirs(0, MTU))];
    only_these_follow(begun, &allowed);
}

#[test]
fn inside_of_a_write_only_its_own_middle_or_last_packet_may_come() {
    let allowed = ["WRITE_MIDDLE", "WRITE_LAST", "WRITE_LAST_WITH_IMMEDIATE"];
    let begun = |s: &Story| vec![write_first(0, s.reth(SERVED, 3 * MTU), &theirs(0, MTU))];
    only_these_follow(begun, &allowed);
}

#[test]
fn after_the_last_packet_a_new_message_may_start() {
    story(|s| {
        s.post_receive(1, 0x1_0000);
        let reth = s.reth(SERVED, MTU + 1);
        s.deliver(send_first(0, &theirs(0, MTU)));
        s.deliver(send_last(1, &theirs(MTU, 1)));
        s.deliver(write_first(2, reth, &theirs(7, MTU)));
        s.deliver(write_last(3, &theirs(7 + MTU, 1)).asking());
        s.expect(ack(3, 2));
        let received = s.expect_received(1, Success);
        assert_eq!(received.length as usize, MTU + 1);
        assert_eq!(s.bytes(SERVED, MTU + 1), theirs(7, MTU + 1));
    });
}

/// A packet to us with this opcode byte and PSN, 16 bytes after the BTH, without ICRC.
fn with_opcode(s: &Story, opcode: u8, psn: i32) -> Vec<u8> {
    let mut bytes = s.encode(send_only(psn, &[0; 16]));
    bytes[0] = opcode;
    bytes
}

/// The opcodes of RC that are reserved.
const RESERVED: [u8; 7] = [0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f];

#[test]
fn a_reserved_opcode_of_rc_gets_0x61_where_a_request_was_expected() {
    for opcode in RESERVED {
        story(|s| {
            s.post_receive(1, 64);
            let flow = s.flow();
            let bytes = with_opcode(s, opcode, 0);
            s.deliver_bytes(flow, bytes);
            s.expect(nak(0, 0, NakCode::InvalidRequest));
            s.expect_event(Event::RequestError(0));
            s.expect_received(1, WorkRequestFlushed);
            s.expect_dead();
        });
    }
}

#[test]
fn a_reserved_opcode_ahead_is_a_sequence_error_and_behind_is_dropped_and_counted() {
    for opcode in RESERVED {
        story(|s| {
            let flow = s.flow();
            let behind = with_opcode(s, opcode, -1);
            s.deliver_bytes(flow, behind);
            s.expect_nothing();
            assert_eq!(s.count(Counter::DropUnexpectedOpcode), 1);
            let ahead = with_opcode(s, opcode, 1);
            s.deliver_bytes(flow, ahead);
            s.expect(nak(0, 0, NakCode::PsnSequenceError));
            let reth = s.reth(SERVED, 4);
            s.deliver(write_only(0, reth, &theirs(0, 4)).asking());
            s.expect(ack(0, 1));
        });
    }
}

#[test]
fn opcodes_of_other_transports_are_dropped_and_counted_and_change_nothing() {
    let deth = Deth { qkey: QKey::new(0), reserved: 0, source: Qpn::new(5) };
    let rdeth = Rdeth { reserved: 0, context: 1 };
    let services = [
        Service::Uc,
        Service::Ud(deth),
        Service::XrcRequest(Xrceth { reserved: 0, srqn: Srqn::new(1) }),
        Service::RdRequest(rdeth, deth),
    ];
    for service in services {
        story(|s| {
            s.post_receive(1, 64);
            let message = Message::SendOnly(SendTail::Plain);
            s.deliver(Frame::of(service, message, 0, &theirs(0, 8)).asking());
            s.expect_nothing();
            assert_eq!(s.count(Counter::DropWrongTransport), 1);
            s.deliver(send_only(0, &theirs(0, 8)).asking());
            s.expect(ack(0, 1));
            s.expect_received(1, Success);
        });
    }
}

#[test]
fn unknown_opcodes_of_no_transport_are_dropped_and_counted_and_change_nothing() {
    let opcodes = [0x2c, 0x3f, 0x5f, 0x60, 0x7f, 0x80, 0x82, 0x9f, 0xbc, 0xc0, 0xff];
    for opcode in opcodes {
        story(|s| {
            let flow = s.flow();
            let bytes = with_opcode(s, opcode, 0);
            s.deliver_bytes(flow, bytes);
            s.expect_nothing();
            assert_eq!(s.count(Counter::DropUnexpectedOpcode), 1, "{opcode:#x}");
            let reth = s.reth(SERVED, 4);
            s.deliver(write_only(0, reth, &theirs(0, 4)).asking());
            s.expect(ack(0, 1));
        });
    }
}

#[test]
fn a_congestion_notification_is_counted_and_changes_nothing() {
    story(|s| {
        let message = Message::CongestionNotification([0; 16]);
        s.deliver(Frame::of(Service::Congestion, message, 0, &[]));
        s.expect_nothing();
        assert_eq!(s.count(Counter::ReceivedCongestionNotification), 1);
        let reth = s.reth(SERVED, 4);
        s.deliver(write_only(0, reth, &theirs(0, 4)).asking());
        s.expect(ack(0, 1));
    });
}

#[test]
fn as_many_reads_and_atomics_as_agreed_are_served_at_a_time() {
    let setup = Setup { max_destination_rd_atomic: 3, ..Setup::default() };
    setup.tell(|s| {
        let reth = s.reth(SERVED, 8);
        let word = u64::from_ne_bytes(ours(SERVED, 8).try_into().unwrap());
        s.deliver(read_request(0, reth));
        s.deliver(fetch_add(1, reth, 1));
        s.deliver(read_request(2, reth));
        s.expect(read_response_only(0, 1, &word.wrapping_add(1).to_ne_bytes()));
        s.expect(atomic_ack(1, 2, word));
        s.expect(read_response_only(2, 3, &word.wrapping_add(1).to_ne_bytes()));
        s.deliver(read_request(3, reth));
        s.expect(read_response_only(3, 4, &word.wrapping_add(1).to_ne_bytes()));
    });
}

#[test]
fn one_read_or_atomic_more_than_agreed_gets_0x61_after_the_answers_before_it() {
    for limit in [0, 1, 3] {
        let setup = Setup { max_destination_rd_atomic: limit, ..Setup::default() };
        for atomic in [false, true] {
            setup.tell(|s| {
                let reth = s.reth(SERVED, 8);
                for psn in 0..i32::from(limit) {
                    s.deliver(read_request(psn, reth));
                }
                let excess = i32::from(limit);
                s.deliver(if atomic {
                    fetch_add(excess, reth, 1)
                } else {
                    read_request(excess, reth)
                });
                for psn in 0..i32::from(limit) {
                    s.expect(read_response_only(psn, psn as u32 + 1, &ours(SERVED, 8)));
                }
                s.expect(nak(excess, limit.into(), NakCode::InvalidRequest));
                s.expect_event(Event::RequestError(0));
                assert_eq!(s.bytes(SERVED, 8), ours(SERVED, 8));
                s.expect_dead();
            });
        }
    }
}

#[test]
fn a_repeated_read_does_not_count_against_what_is_served_at_a_time() {
    let setup = Setup { max_destination_rd_atomic: 1, ..Setup::default() };
    setup.tell(|s| {
        let reth = s.reth(SERVED, 8);
        s.deliver(read_request(0, reth));
        s.expect(read_response_only(0, 1, &ours(SERVED, 8)));
        // The peer's probe crossed the answer, and the answer let it go on. Nobody waits for the
        // repetition's answer any more.
        s.deliver(read_request(0, reth));
        s.deliver(read_request(1, reth));
        s.expect(read_response_only(1, 2, &ours(SERVED, 8)));
    });
}

#[test]
fn a_peer_cannot_have_more_served_at_a_time_by_repeating_what_is_not_answered_yet() {
    let setup = Setup { max_destination_rd_atomic: 1, ..Setup::default() };
    setup.tell(|s| {
        let reth = s.reth(SERVED, 8);
        s.deliver(read_request(0, reth));
        s.deliver(read_request(0, reth));
        s.deliver(read_request(1, reth));
        s.expect(read_response_only(0, 1, &ours(SERVED, 8)));
        s.expect(nak(1, 1, NakCode::InvalidRequest));
        s.expect_event(Event::RequestError(0));
        s.expect_dead();
    });
}

#[test]
fn a_read_takes_as_many_psns_as_its_answer_has_packets() {
    story(|s| {
        let reth = s.reth(SERVED, 3 * MTU);
        s.deliver(read_request(0, reth));
        let data = ours(SERVED, 3 * MTU);
        s.expect_all(crate::harness::read_responses(0, 1, &data, MTU));
        let reth = s.reth(SERVED, 4);
        s.deliver(write_only(3, reth, &theirs(0, 4)).asking());
        s.expect(ack(3, 2));
    });
}
