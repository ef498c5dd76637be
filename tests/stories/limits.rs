//! What may be under way at a time, fences, local operations, and requests that fail locally.

use uroce::engine::Counter;
use uroce::queue::CompletionStatus::{
    LocalLengthError, LocalProtectionError, LocalQueuePairOperationError, Success,
    WorkRequestFlushed,
};
use uroce::queue::{Access, CompletionKind, SendFlags, SendOperation, Sge};
use uroce::wire::{Lkey, NakCode, Reth, Rkey};

use crate::harness::{
    BASE, Event, Frame, MEMORY, SERVED, SOURCE, Setup, Story, TARGET, ack, atomic_ack, fetch_add,
    nak, ours, peer, peer_reth, read_request, read_response_only, sequence_nak, story, theirs,
    write_first, write_only,
};

const MTU: usize = 1024;
const FENCED: SendFlags = SendFlags { signaled: true, solicited: false, fence: true };

fn read(psn: i32) -> Frame {
    read_request(psn, peer_reth(0, 8))
}

fn write(psn: i32) -> Frame {
    write_only(psn, peer_reth(0, 8), &ours(SOURCE, 8)).asking()
}

fn response(psn: i32) -> Frame {
    read_response_only(psn, psn as u32 + 1, &theirs(0, 8))
}

#[test]
fn no_more_reads_and_atomics_are_out_than_agreed_and_what_is_behind_waits_too() {
    for limit in [1, 2, 5] {
        let setup = Setup { max_rd_atomic: limit, ..Setup::default() };
        setup.tell(|s| {
            let limit = i32::from(limit);
            let count = limit + 2;
            for id in 0..count {
                s.post_read(id as u64, 8);
            }
            s.post_write(99, 8);
            for psn in 0..limit {
                s.expect(read(psn));
            }
            s.expect_nothing();
            for psn in 0..2 {
                s.deliver(response(psn));
                s.expect_sent(psn as u64, Success);
                s.expect(read(psn + limit));
            }
            // The WRITE follows the last READ at once.
            s.expect(write(count));
            for psn in 2..count {
                s.deliver(response(psn));
                s.expect_sent(psn as u64, Success);
            }
            s.deliver(ack(count, count as u32 + 1));
            s.expect_sent(99, Success);
        });
    }
}

#[test]
fn reads_and_atomics_share_their_limit() {
    let setup = Setup { max_rd_atomic: 2, ..Setup::default() };
    setup.tell(|s| {
        s.post_fetch_add(1, 1);
        s.post_read(2, 8);
        s.post_fetch_add(3, 1);
        s.expect(fetch_add(0, peer_reth(0, 8), 1));
        s.expect(read(1));
        s.expect_nothing();
        s.deliver(atomic_ack(0, 1, 5));
        s.expect_sent(1, Success);
        s.expect(fetch_add(2, peer_reth(0, 8), 1));
        s.deliver(response(1));
        s.deliver(atomic_ack(2, 3, 5));
        s.expect_sent(2, Success);
        s.expect_sent(3, Success);
    });
}

#[test]
fn after_a_retry_the_limit_holds_anew() {
    let setup = Setup { max_rd_atomic: 2, ..Setup::default() };
    setup.tell(|s| {
        for id in 0..4 {
            s.post_read(id, 8);
        }
        s.expect_all([read(0), read(1)]);
        s.deliver(response(1));
        s.expect_all([read(0), read(1)]);
        s.expect_nothing();
        s.deliver(response(0));
        s.expect_sent(0, Success);
        s.expect(read(2));
        s.expect_nothing();
        for psn in 1..4 {
            s.deliver(response(psn));
            s.expect_sent(psn as u64, Success);
            if psn == 1 {
                s.expect(read(3));
            }
        }
    });
}

#[test]
fn with_max_rd_atomic_0_reads_and_atomics_fail_in_their_turn_and_nothing_is_sent_for_them() {
    let operations = [
        SendOperation::Read(peer(0)),
        SendOperation::FetchAdd { remote: peer(0), add: 1 },
        SendOperation::CompareSwap { remote: peer(0), compare: 0, swap: 1 },
    ];
    let setup = Setup { max_rd_atomic: 0, ..Setup::default() };
    for operation in operations {
        setup.tell(|s| {
            s.post_write(1, 8);
            let segment = s.sge(TARGET, 8);
            s.post(2, operation, SendFlags::NONE, &[segment]);
            s.post_write(3, 8);
            s.expect(write(0));
            s.expect_nothing();
            s.deliver(ack(0, 1));
            s.expect_sent(1, Success);
            s.expect_sent(2, LocalQueuePairOperationError);
            s.expect_sent(3, WorkRequestFlushed);
            s.expect_dead();
        });
    }
}

#[test]
fn a_fence_waits_for_reads_and_atomics_before_it() {
    story(|s| {
        s.post_read(1, 8);
        s.post_fetch_add(2, 1);
        let segment = s.sge(SOURCE, 8);
        s.post(3, SendOperation::Write(peer(0)), FENCED, &[segment]);
        s.post_write(4, 8);
        s.expect(read(0));
        s.expect(fetch_add(1, peer_reth(0, 8), 1));
        s.expect_nothing();
        s.deliver(response(0));
        s.expect_sent(1, Success);
        s.expect_nothing();
        s.deliver(atomic_ack(1, 2, 0));
        s.expect_sent(2, Success);
        s.expect(write(2));
        s.expect(write(3));
        s.deliver(ack(3, 4));
        s.expect_sent(3, Success);
        s.expect_sent(4, Success);
    });
}

#[test]
fn a_fence_does_not_wait_for_sends_and_writes() {
    story(|s| {
        s.post_write(1, 8);
        let segment = s.sge(SOURCE, 8);
        s.post(2, SendOperation::Write(peer(0)), FENCED, &[segment]);
        let target = s.sge(TARGET, 8);
        s.post(3, SendOperation::Read(peer(0)), FENCED, &[target]);
        s.expect_all([write(0), write(1), read(2)]);
        s.deliver(response(2));
        for id in 1..4 {
            s.expect_sent(id, Success);
        }
    });
}

/// A key for the whole memory that can be invalidated.
fn invalidatable(s: &mut Story) -> Rkey {
    let memory = std::sync::Arc::clone(&s.memory);
    let access = Access::ALL | Access::INVALIDATE;
    s.engine.register_part(s.domain, memory, 0..MEMORY, BASE, access).unwrap().remote
}

#[test]
fn a_local_invalidation_sends_nothing_and_ends_the_key() {
    story(|s| {
        let key = invalidatable(s);
        let reth = Reth { key, ..s.reth(SERVED, 8) };
        s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
        s.post(1, SendOperation::LocalInvalidate(key), SendFlags::NONE, &[]);
        let completion = s.expect_sent(1, Success);
        assert_eq!(completion.kind, CompletionKind::LocalInvalidate);
        s.expect_nothing();
        s.deliver(write_only(1, reth, &theirs(8, 8)).asking());
        s.expect(nak(1, 1, NakCode::RemoteAccessError));
        s.expect_event(Event::AccessError(0));
        assert_eq!(s.bytes(SERVED, 8), theirs(0, 8));
        s.expect_dead();
    });
}

#[test]
fn a_local_invalidation_completes_in_order_and_is_not_carried_out_again_by_a_retry() {
    story(|s| {
        let key = invalidatable(s);
        s.post_write(1, 8);
        s.post(2, SendOperation::LocalInvalidate(key), SendFlags::NONE, &[]);
        s.post_write(3, 8);
        s.expect_all([write(0), write(1)]);
        s.expect_nothing();
        s.deliver(sequence_nak(0, 0));
        s.expect_all([write(0), write(1)]);
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
        s.deliver(ack(1, 2));
        s.expect_sent(3, Success);
    });
}

#[test]
fn the_fence_of_a_local_invalidation_waits_for_everything_before_it() {
    story(|s| {
        let key = invalidatable(s);
        let reth = Reth { key, ..s.reth(SERVED, 8) };
        s.post_write(1, 8);
        s.post(2, SendOperation::LocalInvalidate(key), FENCED, &[]);
        s.expect(write(0));
        // The key still works: the invalidation has not started.
        s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
        s.deliver(write_only(1, reth, &theirs(8, 8)).asking());
        s.expect(nak(1, 1, NakCode::RemoteAccessError));
        s.expect_event(Event::AccessError(0));
    });
}

#[test]
fn a_key_that_cannot_be_invalidated_fails_the_request_in_its_turn() {
    let keys: [fn(&mut Story) -> Rkey; 3] = [
        |_| Rkey::new(0x77),
        |s| s.keys.remote,
        |s| {
            let other = s.engine.allocate_domain().unwrap();
            let memory = std::sync::Arc::clone(&s.memory);
            let access = Access::ALL | Access::INVALIDATE;
            s.engine.register_part(other, memory, 0..64, BASE, access).unwrap().remote
        },
    ];
    for key in keys {
        story(|s| {
            let key = key(s);
            s.post_write(1, 8);
            s.post(2, SendOperation::LocalInvalidate(key), SendFlags::NONE, &[]);
            s.post_write(3, 8);
            s.expect(write(0));
            s.expect_nothing();
            s.deliver(ack(0, 1));
            s.expect_sent(1, Success);
            s.expect_sent(2, LocalQueuePairOperationError);
            s.expect_sent(3, WorkRequestFlushed);
            s.expect_dead();
        });
    }
}

/// Segments that give no access to what they name.
fn bad_segments() -> [fn(&mut Story) -> Sge; 4] {
    [
        |s| Sge { key: Lkey::new(s.keys.local.value() ^ 1), ..s.sge(0, 8) },
        |s| s.sge(MEMORY - 4, 8),
        |s| Sge { address: BASE - 1, ..s.sge(0, 8) },
        |s| {
            let other = s.engine.allocate_domain().unwrap();
            let memory = std::sync::Arc::clone(&s.memory);
            let keys = s.engine.register_part(other, memory, 0..64, BASE, Access::ALL).unwrap();
            Sge { key: keys.local, ..s.sge(0, 8) }
        },
    ]
}

#[test]
fn a_bad_local_key_fails_its_request_after_all_before_it_and_nothing_is_sent_for_it() {
    for bad in bad_segments() {
        story(|s| {
            let bad = bad(s);
            s.post_receive(9, 8);
            s.post_write(1, 8);
            s.post_write(2, 8);
            s.post(3, SendOperation::Write(peer(0)), SendFlags::NONE, &[bad]);
            s.post_write(4, 8);
            s.expect_all([write(0), write(1)]);
            s.expect_nothing();
            s.deliver(sequence_nak(0, 0));
            s.expect_all([write(0), write(1)]);
            s.expect_nothing();
            s.deliver(ack(0, 1));
            s.expect_sent(1, Success);
            s.expect_nothing();
            s.deliver(ack(1, 2));
            s.expect_sent(2, Success);
            s.expect_sent(3, LocalProtectionError);
            s.expect_sent(4, WorkRequestFlushed);
            s.expect_received(9, WorkRequestFlushed);
            s.expect_dead();
        });
    }
}

#[test]
fn a_bad_local_key_alone_fails_at_once() {
    story(|s| {
        let bad = Sge { key: Lkey::new(3), ..s.sge(0, 8) };
        s.post(3, SendOperation::Send, SendFlags::NONE, &[bad]);
        s.expect_sent(3, LocalProtectionError);
        assert_eq!(s.count(Counter::SentPackets), 0);
        s.expect_dead();
    });
}

#[test]
fn a_bad_local_key_behind_good_ones_fails_where_its_packet_would_begin() {
    story(|s| {
        let good = s.sge(SOURCE, MTU);
        let bad = Sge { key: Lkey::new(3), ..s.sge(0, 8) };
        s.post(3, SendOperation::Write(peer(0)), SendFlags::NONE, &[good, bad]);
        s.expect(write_first(0, peer_reth(0, MTU + 8), &ours(SOURCE, MTU)));
        s.expect_sent(3, LocalProtectionError);
        s.expect_dead();
    });
}

#[test]
fn an_atomic_needs_eight_bytes_for_its_answer() {
    for length in [0, 7, 9] {
        story(|s| {
            let segment = s.sge(TARGET, length);
            let operation = SendOperation::FetchAdd { remote: peer(0), add: 1 };
            s.post(1, operation, SendFlags::NONE, &[segment]);
            s.expect_sent(1, LocalLengthError);
            assert_eq!(s.count(Counter::SentPackets), 0);
            s.expect_dead();
        });
    }
}

#[test]
fn an_empty_message_needs_no_key_at_either_end() {
    story(|s| {
        let nothing = Sge { address: 1, length: 0, key: Lkey::new(3) };
        s.post(1, SendOperation::Write(peer(0)), SendFlags::NONE, &[nothing]);
        s.expect(write_only(0, peer_reth(0, 0), &[]).asking());
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
        s.post(2, SendOperation::Read(peer(0)), SendFlags::NONE, &[nothing]);
        s.expect(read_request(1, peer_reth(0, 0)));
        s.deliver(read_response_only(1, 2, &[]));
        s.expect_sent(2, Success);
        let reth = Reth { address: 5, key: Rkey::new(9), length: 0 };
        s.deliver(write_only(0, reth, &[]).asking());
        s.expect(ack(0, 1));
        s.deliver(read_request(1, reth));
        s.expect(read_response_only(1, 2, &[]));
    });
}
