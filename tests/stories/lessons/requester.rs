//! Lessons about requests that are sent.

use std::sync::Arc;

use uroce::engine::Counter;
use uroce::memory::WindowKind;
use uroce::queue::CompletionStatus::Success;
use uroce::queue::QueuePairState::Sqd;
use uroce::queue::{Access, QueuePairAttributes, SendFlags, SendOperation};
use uroce::wire::Reth;

use crate::harness::{
    BASE, SERVED, SOURCE, Setup, Story, TARGET, ack, ms, ours, peer, peer_reth, read_request,
    read_response_first, read_response_only, read_responses, rnr_nak, send_only, sequence_nak,
    story, theirs, us, write_only,
};
use crate::memory_windows::{binding, bound, expect_refused, expect_served, post_bind};

const MTU: usize = 1024;

#[test]
fn lesson_16_only_the_rnr_timer_ends_an_rnr_pause() {
    let setup = Setup { timeout: 8, ..Setup::default() };
    setup.tell(|s| {
        s.post_send(1, 8);
        s.post_send(2, 8);
        let frames = [0, 1].map(|psn| send_only(psn, &ours(SOURCE, 8)).asking());
        s.expect_all(frames.clone());
        s.pass_until(us(900));
        // 2.56 ms: longer than the probe's and the timeout's remaining time.
        s.deliver(rnr_nak(0, 0, 16));
        s.expect_nothing_until(us(900 + 2_559));
        s.expect_at(us(900 + 2_560), frames[0].clone());
        s.expect_nothing();
    });
}

#[test]
fn lesson_17_rnr_retry_7_is_endless_0_to_6_count_and_more_is_refused() {
    let setup = Setup { rnr_retry: 7, ..Setup::default() };
    setup.tell(|s| {
        s.post_send(1, 8);
        let frame = send_only(0, &ours(SOURCE, 8)).asking();
        s.expect(frame.clone());
        for round in 1..=50 {
            s.deliver(rnr_nak(0, 0, 1));
            s.expect_at(us(10 * round), frame.clone());
        }
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
        let drained = QueuePairAttributes::to_state(Sqd);
        s.modify(&drained).unwrap();
        for rnr_retry in 8..=255 {
            let attributes = QueuePairAttributes { rnr_retry: Some(rnr_retry), ..drained };
            assert!(s.modify(&attributes).is_err());
        }
        let shown = s.engine.query_queue_pair(s.number()).unwrap().attributes.rnr_retry;
        assert_eq!(shown, Some(7));
    });
}

#[test]
fn lesson_18_under_load_no_timer_fires_for_what_is_answered() {
    let setup = Setup { timeout: 8, ..Setup::default() };
    setup.tell(|s| {
        // Never idle for two seconds, each answer in good time.
        for round in 0..4_000 {
            s.post_write(round, 8);
            s.post_read(round, 8);
            let psn = 2 * round as i32;
            s.next_sent().expect("the WRITE");
            s.next_sent().expect("the READ");
            s.pass_until(s.now + 50_000);
            s.deliver(ack(psn, 2 * round as u32 + 1));
            s.expect_sent(round, Success);
            s.deliver(read_response_only(psn + 1, 2 * round as u32 + 2, &theirs(0, 8)));
            s.expect_sent(round, Success);
        }
        assert_eq!(s.count(Counter::RetransmittedPackets), 0);
        assert_eq!(s.count(Counter::LocalAckTimeout) + s.count(Counter::Probe), 0);
    });
}

#[test]
fn lesson_19_psns_are_compared_modulo_2_24() {
    for send_start in [0xff_fff0, 0x7f_fff8, 0xff_ffff] {
        let setup = Setup { send_start, receive_start: send_start, ..Setup::default() };
        let mut s = Story::new(setup);
        for psn in 0..32 {
            s.post_write(psn, 8);
            s.expect(write_only(psn as i32, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
            s.deliver(ack(psn as i32 - 1, 0));
            s.expect_nothing();
            s.deliver(ack(psn as i32, psn as u32 + 1));
            s.expect_sent(psn, Success);
            s.deliver(write_only(psn as i32, s.reth(SERVED, 8), &theirs(0, 8)).asking());
            s.expect(ack(psn as i32, psn as u32 + 1));
        }
    }
}

#[test]
fn lesson_20_a_read_retry_restarts_with_what_remains_and_no_ack_skips_a_read() {
    story(|s| {
        s.post_read(1, 3 * MTU);
        s.post_write(2, 8);
        s.expect(read_request(0, peer_reth(0, 3 * MTU)));
        let write = s.next_sent().expect("the WRITE").frame;
        let data = theirs(0, 3 * MTU);
        s.deliver(read_response_first(0, 1, &data[..MTU]));
        s.deliver(ack(3, 2));
        s.expect(read_request(1, peer_reth(MTU, 2 * MTU)));
        s.expect(write);
        s.deliver_all(read_responses(1, 1, &data[MTU..], MTU));
        s.deliver(ack(3, 2));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
        assert_eq!(s.bytes(TARGET, 3 * MTU), data);
    });
}

#[test]
fn lesson_21_only_the_first_retry_at_a_place_is_immediate() {
    story(|s| {
        s.post_write(1, 8);
        s.post_write(2, 8);
        let frames = [0, 1].map(|psn| write_only(psn, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.expect_all(frames.clone());
        s.pass_until(us(100));
        s.deliver(sequence_nak(0, 0));
        s.expect_all(frames.clone());
        for _ in 0..10 {
            s.deliver(sequence_nak(0, 0));
        }
        s.expect_nothing_until(us(1_099));
        s.expect_at(us(1_100), frames[0].clone());
        s.deliver(ack(1, 2));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
    });
}

#[test]
fn lesson_23_what_waits_for_the_network_below_is_sent_undamaged() {
    story(|s| {
        let segments = [s.sge(100, 1_500), s.sge(9_000, 3), s.sge(50_000, 30_000)];
        let data = [ours(100, 1_500), ours(9_000, 3), ours(50_000, 30_000)].concat();
        s.post(1, SendOperation::Write(peer(0)), SendFlags::NONE, &segments);
        let mut received = vec![];
        for room in [0, 1, 0, 2, 5, 0, 7, usize::MAX] {
            s.port.room = room;
            for _ in 0..3 {
                s.turn();
            }
        }
        while let Some(sent) = s.next_sent() {
            assert_eq!(sent.frame.headers.psn.value() as usize * MTU, received.len());
            received.extend(sent.frame.payload);
        }
        assert_eq!(received, data);
        s.deliver(sequence_nak(7, 0));
        let mut again = vec![];
        while let Some(sent) = s.next_sent() {
            again.extend(sent.frame.payload);
        }
        assert_eq!(again, data[7 * MTU..]);
    });
}

#[test]
fn lesson_27_a_fence_waits_for_reads_and_atomics_only() {
    let fence = SendFlags { fence: true, ..SendFlags::NONE };
    story(|s| {
        s.post_write(1, 8);
        let segment = s.sge(SOURCE, 8);
        s.post(2, SendOperation::Write(peer(0)), fence, &[segment]);
        s.next_sent().expect("the WRITE");
        s.next_sent().expect("the fenced WRITE, which waits for no WRITE");
        s.post_read(3, 8);
        s.expect(read_request(2, peer_reth(0, 8)));
        s.post(4, SendOperation::Write(peer(0)), fence, &[segment]);
        s.expect_nothing();
        s.deliver(read_response_only(2, 3, &theirs(0, 8)));
        for id in 1..4 {
            s.expect_sent(id, Success);
        }
        s.next_sent().expect("the WRITE behind the READ");
    });
    // That of a local invalidation waits for all: the answer of a WRITE, too.
    story(|s| {
        let bind = bound(s, WindowKind::Type2B);
        let reth = Reth { address: bind.address, key: bind.key(), length: 8 };
        s.post_write(1, 8);
        s.post(2, SendOperation::LocalInvalidate(bind.key()), fence, &[]);
        s.next_sent().expect("the WRITE");
        expect_served(s, 0, reth);
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
        expect_refused(s, 1, write_only(1, reth, &[1; 8]));
    });
}

#[test]
fn lesson_42_max_rd_atomic_0_is_accepted() {
    let setup = Setup { max_rd_atomic: 0, max_destination_rd_atomic: 0, ..Setup::default() };
    setup.tell(|s| {
        s.post_write(1, 8);
        s.next_sent().expect("the WRITE");
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
        s.deliver(write_only(0, s.reth(SERVED, 8), &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
    });
}

#[test]
fn lesson_44_local_operations_are_not_part_of_a_retry() {
    story(|s| {
        let memory = Arc::clone(&s.memory);
        let access = Access::ALL | Access::INVALIDATE;
        let key = s.engine.register_part(s.domain, memory, 0..64, BASE, access).unwrap().remote;
        s.post_write(1, 8);
        s.post(2, SendOperation::LocalInvalidate(key), SendFlags::NONE, &[]);
        s.post_write(3, 8);
        let frames = [0, 1].map(|psn| write_only(psn, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.expect_all(frames.clone());
        s.deliver(sequence_nak(0, 0));
        s.expect_all(frames.clone());
        s.expect_at(ms(1), frames[0].clone());
        s.deliver(ack(1, 2));
        // Carried out a second time it would have found no key and failed.
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
        s.expect_sent(3, Success);
    });
    story(|s| {
        let bind = binding(s, WindowKind::Type2B, Access::REMOTE_WRITE);
        s.post_write(1, 8);
        post_bind(s, 2, bind);
        s.post(3, SendOperation::LocalInvalidate(bind.key()), SendFlags::NONE, &[]);
        post_bind(s, 4, bind);
        s.post_write(5, 8);
        let frames = [0, 1].map(|psn| write_only(psn, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.expect_all(frames.clone());
        s.deliver(sequence_nak(0, 0));
        s.expect_all(frames.clone());
        s.expect_at(ms(1), frames[0].clone());
        s.deliver(ack(1, 2));
        // A window that is bound cannot be bound: a second time each would have failed.
        for id in 1..6 {
            s.expect_sent(id, Success);
        }
        expect_served(s, 0, Reth { address: bind.address, key: bind.key(), length: 8 });
    });
}
