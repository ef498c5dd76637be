//! The sending end of an extended reliable connection: each request packet names the shared receive
//! queue that its work request was posted for, also when it is sent again.

use uroce::engine::Counter;
use uroce::queue::CompletionStatus::{
    RemoteAccessError, RemoteInvalidRequest, RemoteOperationError, Success, WorkRequestFlushed,
};
use uroce::queue::{
    Payload, QueuePairKind, QueuePairState, SendFlags, SendOperation, SendRequest, Sge,
};
use uroce::wire::{NakCode, Srqn};

use crate::harness::{
    SOURCE, Setup, Story, TARGET, ack, atomic_ack, fetch_add, ms, nak, ours, peer, peer_reth,
    read_request, read_responses, rnr_nak, send_first, send_last, send_middle, send_only,
    sequence_nak, theirs, us, write_only,
};

const MTU: usize = 1024;
const A: Srqn = Srqn::new(0x00_1234);
const B: Srqn = Srqn::new(0xab_cdef);

/// Told for each pair of first PSNs.
fn initiator(told: impl Fn(&mut Story)) {
    Setup { pairs: 0, ..Setup::default() }.tell(|s| {
        s.add_pair_of(QueuePairKind::XrcInitiator);
        told(s);
    });
}

fn post(s: &Story, shared: Srqn, id: u64, operation: SendOperation, segment: Sge) {
    let segments = [segment];
    let payload = Payload::Segments(&segments);
    let request = SendRequest { id, operation, flags: SendFlags::NONE, payload };
    s.pairs[s.pair].post_send_to(shared, &[request]).1.unwrap();
}

fn post_send(s: &Story, shared: Srqn, id: u64, length: usize) {
    post(s, shared, id, SendOperation::Send, s.sge(SOURCE, length));
}

#[test]
fn every_packet_of_a_message_names_its_queue() {
    initiator(|s| {
        post_send(s, A, 1, 2 * MTU + 3);
        let sent = s.expect(send_first(0, &ours(SOURCE, MTU)).xrc(A));
        assert_eq!(sent.bytes[0], 0xa0);
        assert_eq!(sent.bytes[12..16], [0, 0, 0x12, 0x34]);
        assert_eq!(sent.bytes.len(), 12 + 4 + MTU + 4);
        s.expect(send_middle(1, &ours(SOURCE + MTU, MTU)).xrc(A));
        s.expect(send_last(2, &ours(SOURCE + 2 * MTU, 3)).asking().xrc(A));
        s.deliver(ack(2, 1).xrc_answer());
        s.expect_sent(1, Success);
    });
}

#[test]
fn messages_for_several_queues_share_the_connections_numbers() {
    initiator(|s| {
        post_send(s, A, 1, 4);
        post(s, B, 2, SendOperation::Write(peer(0)), s.sge(SOURCE, 8));
        post(s, A, 3, SendOperation::Read(peer(64)), s.sge(TARGET, 16));
        post(s, B, 4, SendOperation::FetchAdd { remote: peer(8), add: 3 }, s.sge(TARGET + 64, 8));
        s.expect(send_only(0, &ours(SOURCE, 4)).asking().xrc(A));
        s.expect(write_only(1, peer_reth(0, 8), &ours(SOURCE, 8)).asking().xrc(B));
        s.expect(read_request(2, peer_reth(64, 16)).xrc(A));
        s.expect(fetch_add(3, peer_reth(8, 8), 3).xrc(B));
        s.deliver(ack(1, 2).xrc_answer());
        for response in read_responses(2, 3, &theirs(64, 16), MTU) {
            s.deliver(response.xrc_answer());
        }
        s.deliver(atomic_ack(3, 4, 99).xrc_answer());
        for id in 1..=4 {
            s.expect_sent(id, Success);
        }
        assert_eq!(s.bytes(TARGET, 16), theirs(64, 16));
        assert_eq!(s.bytes(TARGET + 64, 8), 99u64.to_ne_bytes());
    });
}

#[test]
fn what_is_sent_again_names_the_same_queues() {
    initiator(|s| {
        post_send(s, A, 1, 4);
        post_send(s, B, 2, 5);
        s.expect(send_only(0, &ours(SOURCE, 4)).asking().xrc(A));
        s.expect(send_only(1, &ours(SOURCE, 5)).asking().xrc(B));
        s.deliver(sequence_nak(0, 0).xrc_answer());
        s.expect(send_only(0, &ours(SOURCE, 4)).asking().xrc(A));
        s.expect(send_only(1, &ours(SOURCE, 5)).asking().xrc(B));
        s.deliver(ack(1, 2).xrc_answer());
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
    });
}

#[test]
fn a_pause_holds_back_everything_of_the_connection() {
    initiator(|s| {
        post_send(s, A, 1, 4);
        post_send(s, B, 2, 5);
        s.expect(send_only(0, &ours(SOURCE, 4)).asking().xrc(A));
        s.expect(send_only(1, &ours(SOURCE, 5)).asking().xrc(B));
        // 12 is 640 µs.
        s.deliver(rnr_nak(0, 0, 12).xrc_answer());
        s.expect_nothing_until(us(639));
        s.expect_at(us(640), send_only(0, &ours(SOURCE, 4)).asking().xrc(A));
        s.deliver(ack(0, 1).xrc_answer());
        s.expect(send_only(1, &ours(SOURCE, 5)).asking().xrc(B));
        s.deliver(ack(1, 2).xrc_answer());
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
    });
}

#[test]
fn a_refusal_ends_the_request_that_it_is_about_and_flushes_the_rest() {
    for (code, status) in [
        (NakCode::InvalidRequest, RemoteInvalidRequest),
        (NakCode::RemoteAccessError, RemoteAccessError),
        (NakCode::RemoteOperationalError, RemoteOperationError),
    ] {
        initiator(|s| {
            post_send(s, A, 1, 4);
            post_send(s, B, 2, 5);
            s.expect(send_only(0, &ours(SOURCE, 4)).asking().xrc(A));
            s.expect(send_only(1, &ours(SOURCE, 5)).asking().xrc(B));
            s.deliver(nak(0, 0, code).xrc_answer());
            s.expect_sent(1, status);
            s.expect_sent(2, WorkRequestFlushed);
            assert_eq!(s.state(), QueuePairState::Error);
            s.expect_nothing_until(ms(5_000));
        });
    }
}

#[test]
fn requests_and_answers_of_other_transports_are_dropped() {
    initiator(|s| {
        post_send(s, A, 1, 4);
        s.expect(send_only(0, &ours(SOURCE, 4)).asking().xrc(A));
        s.deliver(ack(0, 1));
        s.deliver(send_only(0, &theirs(0, 4)).asking().xrc(A));
        s.deliver(send_only(0, &theirs(0, 4)).asking());
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropWrongTransport), 3);
        s.deliver(ack(0, 1).xrc_answer());
        s.expect_sent(1, Success);
    });
}
