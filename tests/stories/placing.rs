//! ATOMIC WRITE and FLUSH, both sides: exact frames, records and replays, order, every refusal.

use std::sync::Arc;

use uroce::engine::Counter;
use uroce::memory::OwnedMemory;
use uroce::queue::CompletionStatus::{
    BadResponse, LocalQueuePairOperationError, RemoteAccessError, RemoteInvalidRequest, Success,
    WorkRequestFlushed,
};
use uroce::queue::{
    Access, CompletionKind, FlushPlacement, FlushSelectivity, Payload, PostError, QueuePairState,
    SendFlags, SendOperation, SendRequest,
};
use uroce::wire::{NakCode, Reth, Rkey};

use crate::harness::{
    BASE, Event, Frame, MEMORY, SERVED, SOURCE, Setup, Story, ack, atomic_write, done, fetch_add,
    flush, ms, nak, ours, peer, peer_reth, read_request, read_response_only, send_first,
    sequence_nak, story, theirs, write_only,
};

const MTU: usize = 1024;
const VALUE: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const VISIBLE: u8 = 1;
const PERSISTENT: u8 = 2;

fn post_atomic_write(s: &mut Story, id: u64, offset: usize, flags: SendFlags) {
    s.post(id, SendOperation::AtomicWrite { remote: peer(offset), value: VALUE }, flags, &[]);
}

fn post_flush(s: &mut Story, id: u64, flags: SendFlags) {
    let operation = SendOperation::Flush {
        remote: peer(0),
        length: 512,
        placement: FlushPlacement::GlobalVisibility,
        selectivity: FlushSelectivity::Range,
    };
    s.post(id, operation, flags, &[]);
}

#[test]
fn an_atomic_write_is_one_packet_of_eight_bytes_and_ends_with_an_empty_read_response() {
    story(|s| {
        post_atomic_write(s, 1, 16, SendFlags::NONE);
        s.expect(atomic_write(0, peer_reth(16, 8), &VALUE));
        s.deliver(done(0, 1));
        let completion = s.expect_sent(1, Success);
        assert_eq!((completion.kind, completion.length), (CompletionKind::AtomicWrite, 8));
    });
}

#[test]
fn a_flush_says_what_was_posted_and_ends_with_an_empty_read_response() {
    use FlushPlacement::{GlobalVisibility, Persistence, VisibilityAndPersistence};
    use FlushSelectivity::{Range, Region};
    for (placement, bits) in
        [(GlobalVisibility, 1), (Persistence, 2), (VisibilityAndPersistence, 3)]
    {
        for (selectivity, code) in [(Range, 0), (Region, 1)] {
            story(|s| {
                let operation =
                    SendOperation::Flush { remote: peer(8), length: 77, placement, selectivity };
                s.post(1, operation, SendFlags::NONE, &[]);
                let sent = s.expect(flush(0, peer_reth(8, 77), bits, code));
                // BTH, FETH, RETH, ICRC; FETH: 26 reserved bits, selectivity, placement.
                assert_eq!(sent.bytes.len(), 12 + 4 + 16 + 4);
                assert_eq!(sent.bytes[0], 0x1c);
                assert_eq!(sent.bytes[12..16], [0, 0, 0, code << 4 | bits]);
                s.deliver(done(0, 1));
                let completion = s.expect_sent(1, Success);
                assert_eq!((completion.kind, completion.length), (CompletionKind::Flush, 0));
            });
        }
    }
}

#[test]
fn neither_is_solicited_nor_asks_for_an_ack() {
    let solicited = SendFlags { solicited: true, ..SendFlags::SIGNALED };
    story(|s| {
        post_atomic_write(s, 1, 0, solicited);
        post_flush(s, 2, solicited);
        s.expect(atomic_write(0, peer_reth(0, 8), &VALUE));
        s.expect(flush(1, peer_reth(0, 512), VISIBLE, 0));
        s.deliver(done(0, 1));
        s.deliver(done(1, 2));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
    });
}

#[test]
fn an_answer_finishes_the_writes_before_it_and_a_plain_ack_does_not_finish_it() {
    story(|s| {
        s.post_write(1, 8);
        post_flush(s, 2, SendFlags::NONE);
        s.expect(write_only(0, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.expect(flush(1, peer_reth(0, 512), VISIBLE, 0));
        // As when the empty response was lost: asked for again.
        s.deliver(ack(1, 2));
        s.expect_sent(1, Success);
        s.expect(flush(1, peer_reth(0, 512), VISIBLE, 0));
        s.deliver(done(1, 2));
        s.expect_sent(2, Success);
    });
    story(|s| {
        s.post_write(1, 8);
        post_atomic_write(s, 2, 0, SendFlags::NONE);
        s.next_sent().expect("the WRITE");
        s.next_sent().expect("the ATOMIC WRITE");
        s.deliver(done(1, 2));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
    });
}

#[test]
fn a_lost_one_is_sent_again_the_same() {
    story(|s| {
        post_atomic_write(s, 1, 8, SendFlags::NONE);
        post_flush(s, 2, SendFlags::NONE);
        let frames =
            [atomic_write(0, peer_reth(8, 8), &VALUE), flush(1, peer_reth(0, 512), VISIBLE, 0)];
        s.expect_all(frames.clone());
        s.deliver(sequence_nak(0, 0));
        s.expect_all(frames.clone());
        s.expect_at(ms(1), frames[0].clone());
        s.deliver(done(0, 1));
        s.expect_sent(1, Success);
        s.expect(frames[1].clone());
        s.deliver(done(1, 2));
        s.expect_sent(2, Success);
    });
}

#[test]
fn an_answer_with_data_or_of_another_kind_is_a_bad_response() {
    let answers: [fn(&mut Story); 4] = [
        |s| s.deliver(read_response_only(0, 1, &[9; 8])),
        |s| s.deliver(crate::harness::atomic_ack(0, 1, 5)),
        |s| s.deliver(crate::harness::read_response_last(0, 1, &[9; 8])),
        |s| s.deliver(crate::harness::read_response_first(0, 1, &theirs(0, MTU))),
    ];
    for answer in answers {
        for is_flush in [false, true] {
            story(|s| {
                match is_flush {
                    true => post_flush(s, 1, SendFlags::NONE),
                    false => post_atomic_write(s, 1, 0, SendFlags::NONE),
                }
                s.next_sent().expect("the request");
                answer(s);
                s.expect_sent(1, BadResponse);
                assert_eq!(s.count(Counter::BadResponse), 1);
                s.expect_dead();
            });
        }
    }
}

#[test]
fn both_count_among_the_reads_and_atomics_under_way() {
    let setup = Setup { max_rd_atomic: 2, ..Setup::default() };
    setup.tell(|s| {
        post_atomic_write(s, 1, 0, SendFlags::NONE);
        post_flush(s, 2, SendFlags::NONE);
        post_atomic_write(s, 3, 0, SendFlags::NONE);
        s.next_sent().expect("the first");
        s.next_sent().expect("the second");
        s.expect_nothing();
        s.deliver(done(0, 1));
        s.expect_sent(1, Success);
        s.expect(atomic_write(2, peer_reth(0, 8), &VALUE));
        s.deliver(done(1, 2));
        s.deliver(done(2, 3));
        s.expect_sent(2, Success);
        s.expect_sent(3, Success);
    });
    let setup = Setup { max_rd_atomic: 0, ..Setup::default() };
    setup.tell(|s| {
        post_flush(s, 1, SendFlags::NONE);
        s.expect_sent(1, LocalQueuePairOperationError);
        s.expect_dead();
    });
}

#[test]
fn a_fence_waits_for_both() {
    let fence = SendFlags { fence: true, ..SendFlags::SIGNALED };
    story(|s| {
        post_flush(s, 1, SendFlags::NONE);
        let segment = s.sge(SOURCE, 8);
        s.post(2, SendOperation::Write(peer(0)), fence, &[segment]);
        s.expect(flush(0, peer_reth(0, 512), VISIBLE, 0));
        s.expect_nothing();
        s.deliver(done(0, 1));
        s.expect_sent(1, Success);
        s.expect(write_only(1, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.deliver(ack(1, 2));
        s.expect_sent(2, Success);
    });
}

#[test]
fn local_data_is_refused_when_they_are_posted() {
    story(|s| {
        let segments = [s.sge(SOURCE, 8)];
        let atomic = SendOperation::AtomicWrite { remote: peer(0), value: VALUE };
        for payload in [Payload::Segments(&segments), Payload::Inline(&VALUE)] {
            let request = SendRequest { id: 1, operation: atomic, flags: SendFlags::NONE, payload };
            let refused = s.pairs[0].post_one_send(&request);
            assert_eq!(refused, Err(PostError::NoLocalData(8)));
        }
        s.expect_nothing();
    });
}

#[test]
fn refusals_of_the_peer_complete_with_its_reason() {
    for (code, status) in [
        (NakCode::InvalidRequest, RemoteInvalidRequest),
        (NakCode::RemoteAccessError, RemoteAccessError),
    ] {
        story(|s| {
            post_flush(s, 1, SendFlags::NONE);
            post_atomic_write(s, 2, 0, SendFlags::NONE);
            s.next_sent().expect("the FLUSH");
            s.next_sent().expect("the ATOMIC WRITE");
            s.deliver(nak(0, 0, code));
            s.expect_sent(1, status);
            s.expect_sent(2, WorkRequestFlushed);
            s.expect_dead();
        });
    }
}

// The responder.

#[test]
fn an_atomic_write_is_stored_and_answered_and_a_message_of_its_own() {
    story(|s| {
        let reth = s.reth(SERVED + 8, 8);
        s.deliver(atomic_write(0, reth, &VALUE));
        s.expect(done(0, 1));
        assert_eq!(s.bytes(SERVED + 8, 8), VALUE);
        assert_eq!(s.bytes(SERVED, 8), ours(SERVED, 8));
        assert_eq!(s.bytes(SERVED + 16, 8), ours(SERVED + 16, 8));
        s.deliver(write_only(1, s.reth(SERVED, 4), &theirs(0, 4)).asking());
        s.expect(ack(1, 2));
    });
}

#[test]
fn a_flush_is_answered_when_the_writes_before_it_are_placed() {
    for selectivity in [0, 1] {
        story(|s| {
            let reth = s.reth(SERVED, 64);
            s.deliver(write_only(0, reth, &theirs(0, 64)));
            s.deliver(flush(1, reth, VISIBLE, selectivity));
            s.expect(done(1, 2));
            assert_eq!(s.bytes(SERVED, 64), theirs(0, 64));
        });
    }
}

#[test]
fn a_flush_is_not_answered_before_a_write_that_is_missing() {
    story(|s| {
        let reth = s.reth(SERVED, 64);
        s.deliver(flush(1, reth, VISIBLE, 0));
        s.expect(sequence_nak(0, 0));
        s.expect_nothing();
        s.deliver(write_only(0, reth, &theirs(0, 64)));
        s.deliver(flush(1, reth, VISIBLE, 0));
        s.expect(done(1, 2));
    });
}

#[test]
fn their_answers_keep_the_order_of_psns_and_take_up_an_ack_that_is_due_before() {
    story(|s| {
        let reth = s.reth(SERVED, 8);
        s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
        s.deliver(read_request(1, s.reth(SERVED + 64, 8)));
        s.deliver(atomic_write(2, reth, &VALUE));
        s.deliver(fetch_add(3, reth, 1));
        s.deliver(flush(4, reth, VISIBLE, 0).asking());
        s.deliver(write_only(5, reth, &theirs(8, 8)).asking());
        s.expect(read_response_only(1, 2, &ours(SERVED + 64, 8)));
        s.expect(done(2, 3));
        s.expect(crate::harness::atomic_ack(3, 4, u64::from_ne_bytes(VALUE)));
        s.expect(done(4, 5));
        s.expect(ack(5, 6));
        s.expect_nothing();
    });
}

#[test]
fn a_duplicate_is_answered_from_its_record_and_not_carried_out_again() {
    story(|s| {
        let reth = s.reth(SERVED, 8);
        s.deliver(atomic_write(0, reth, &VALUE));
        s.expect(done(0, 1));
        s.memory.write(SERVED, &[7; 8]).unwrap();
        s.deliver(flush(1, reth, VISIBLE, 0));
        s.expect(done(1, 2));
        s.deliver(atomic_write(0, reth, &VALUE));
        s.expect(done(0, 1));
        s.deliver(flush(1, reth, VISIBLE, 0));
        s.expect(done(1, 2));
        assert_eq!(s.bytes(SERVED, 8), [7; 8]);
        assert_eq!(s.count(Counter::DuplicateRequest), 2);
        // Also when the memory is gone meanwhile.
        s.engine.deregister(s.keys.local).unwrap();
        s.deliver(atomic_write(0, reth, &VALUE));
        s.expect(done(0, 1));
    });
}

#[test]
fn without_a_record_a_duplicate_gets_silence() {
    let setup = Setup { max_destination_rd_atomic: 1, ..Setup::default() };
    setup.tell(|s| {
        let reth = s.reth(SERVED, 8);
        s.deliver(atomic_write(0, reth, &VALUE));
        s.expect(done(0, 1));
        s.deliver(flush(1, reth, VISIBLE, 0));
        s.expect(done(1, 2));
        s.deliver(atomic_write(0, reth, &VALUE));
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropDuplicateWithoutRecord), 1);
        // A WRITE's PSN has no record of this kind either, and neither has an atomic's.
        s.deliver(fetch_add(2, reth, 1));
        s.next_sent().expect("its answer");
        s.deliver(flush(2, reth, VISIBLE, 0));
        s.deliver(fetch_add(1, reth, 1));
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropDuplicateWithoutRecord), 3);
    });
}

/// The peer's request is refused with `code`: nothing was changed, and the queue pair is in error.
fn refused(setup: &Setup, frame: impl Fn(&Story) -> Frame, code: NakCode, event: Event) {
    setup.tell(|s| {
        let frame = frame(s);
        let served = s.bytes(SERVED, 4096);
        s.deliver(frame);
        s.expect(nak(0, 0, code));
        s.expect_event(event);
        assert_eq!(s.bytes(SERVED, 4096), served);
        assert_eq!(s.state(), QueuePairState::Error);
        s.expect_dead();
    });
}

fn invalid(setup: &Setup, frame: impl Fn(&Story) -> Frame) {
    refused(setup, frame, NakCode::InvalidRequest, Event::RequestError(0));
}

fn forbidden(frame: impl Fn(&Story) -> Frame) {
    refused(&Setup::default(), frame, NakCode::RemoteAccessError, Event::AccessError(0));
}

fn without(access: Access) -> Setup {
    let left = Access::from_bits(Access::ALL.bits() & !access.bits()).unwrap();
    Setup { access: left, ..Setup::default() }
}

#[test]
fn what_the_queue_pair_does_not_allow_gets_0x61() {
    invalid(&without(Access::REMOTE_WRITE), |s| atomic_write(0, s.reth(SERVED, 8), &VALUE));
    invalid(&without(Access::FLUSH_GLOBAL), |s| flush(0, s.reth(SERVED, 8), VISIBLE, 0));
    invalid(&without(Access::FLUSH_GLOBAL), |s| flush(0, s.reth(SERVED, 8), VISIBLE, 1));
    // Access::ALL has no persistence.
    invalid(&Setup::default(), |s| flush(0, s.reth(SERVED, 8), PERSISTENT, 0));
    invalid(&Setup::default(), |s| flush(0, s.reth(SERVED, 8), PERSISTENT | VISIBLE, 0));
}

#[test]
fn an_atomic_write_needs_no_right_to_atomics() {
    without(Access::REMOTE_ATOMIC).tell(|s| {
        s.deliver(atomic_write(0, s.reth(SERVED, 8), &VALUE));
        s.expect(done(0, 1));
    });
}

#[test]
fn reserved_placements_and_selectivities_get_0x61() {
    let setup = Setup { access: Access::ALL | Access::FLUSH, ..Setup::default() };
    for placement in [0, 4, 5, 8, 15] {
        invalid(&setup, |s| flush(0, s.reth(SERVED, 8), placement, 0));
    }
    for selectivity in [2, 3] {
        invalid(&setup, |s| flush(0, s.reth(SERVED, 8), VISIBLE, selectivity));
    }
}

#[test]
fn misaligned_words_get_0x61() {
    for offset in 1..8 {
        invalid(&Setup::default(), |s| atomic_write(0, s.reth(SERVED + offset, 8), &VALUE));
    }
}

#[test]
fn keys_bounds_and_rights_get_0x62() {
    let bogus = Rkey::new(0xffff_ff00);
    forbidden(|s| atomic_write(0, Reth { key: bogus, ..s.reth(SERVED, 8) }, &VALUE));
    forbidden(|s| atomic_write(0, s.reth(MEMORY, 8), &VALUE));
    for selectivity in [0, 1] {
        forbidden(|s| flush(0, Reth { key: bogus, ..s.reth(SERVED, 8) }, VISIBLE, selectivity));
    }
    forbidden(|s| flush(0, s.reth(MEMORY - 8, 9), VISIBLE, 0));
    forbidden(|s| flush(0, Reth { address: u64::MAX, ..s.reth(0, 8) }, VISIBLE, 0));
}

#[test]
fn the_whole_region_may_be_named_by_any_address_and_an_empty_range_by_any_key() {
    story(|s| {
        let nowhere = Reth { address: 3, ..s.reth(0, MEMORY + 5) };
        s.deliver(flush(0, nowhere, VISIBLE, 1));
        s.expect(done(0, 1));
        let nothing = Reth { address: 3, key: Rkey::new(1), length: 0 };
        s.deliver(flush(1, nothing, VISIBLE, 0));
        s.expect(done(1, 2));
    });
}

#[test]
fn memory_without_the_right_gets_0x62() {
    let rights = [
        (Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC, true),
        (Access::LOCAL_WRITE | Access::REMOTE_WRITE, false),
    ];
    for (access, is_atomic_write) in rights {
        story(|s| {
            let memory = Arc::clone(&s.memory);
            let keys = s.engine.register_part(s.domain, memory, 0..MEMORY, BASE, access).unwrap();
            let reth = Reth { key: keys.remote, ..s.reth(SERVED, 8) };
            s.deliver(match is_atomic_write {
                true => atomic_write(0, reth, &VALUE),
                false => flush(0, reth, VISIBLE, 0),
            });
            s.expect(nak(0, 0, NakCode::RemoteAccessError));
            s.expect_event(Event::AccessError(0));
            s.expect_dead();
        });
    }
}

#[test]
fn more_than_max_dest_rd_atomic_unanswered_get_0x61() {
    let setup = Setup { max_destination_rd_atomic: 2, ..Setup::default() };
    setup.tell(|s| {
        s.port.room = 0;
        let reth = s.reth(SERVED, 8);
        s.deliver(atomic_write(0, reth, &VALUE));
        s.deliver(flush(1, reth, VISIBLE, 0));
        s.deliver(flush(2, reth, VISIBLE, 0));
        s.turn();
        s.port.room = usize::MAX;
        s.expect(done(0, 1));
        s.expect(done(1, 2));
        s.expect(nak(2, 2, NakCode::InvalidRequest));
        s.expect_event(Event::RequestError(0));
        s.expect_dead();
    });
}

#[test]
fn inside_of_another_message_they_get_0x61() {
    for is_flush in [false, true] {
        story(|s| {
            s.post_receive(1, 4096);
            s.deliver(send_first(0, &theirs(0, MTU)));
            let reth = s.reth(SERVED, 8);
            s.deliver(match is_flush {
                true => flush(1, reth, VISIBLE, 0),
                false => atomic_write(1, reth, &VALUE),
            });
            s.expect(nak(1, 0, NakCode::InvalidRequest));
            s.expect_event(Event::RequestError(0));
            s.expect_received(1, WorkRequestFlushed);
            s.expect_dead();
        });
    }
}

#[test]
fn persistence_is_for_memory_that_a_file_backs_and_nothing_else() {
    let path = std::env::temp_dir().join(format!("uroce-flush-{}", std::process::id()));
    let all = Access::ALL | Access::FLUSH_PERSISTENT;
    let setup = Setup { access: all, ..Setup::default() };
    setup.tell(|s| {
        let volatile = s.engine.register(s.domain, OwnedMemory::new(4096), all);
        let sentence = volatile.unwrap_err().to_string();
        assert!(sentence.contains("FLUSH_PERSISTENT needs memory that a file backs"), "{sentence}");
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.set_len(20_000).unwrap();
        let memory = OwnedMemory::map_file(&file, 20_000).unwrap();
        let keys = s.engine.register_part(s.domain, memory, 100..20_000, BASE, all).unwrap();
        let reth = Reth { address: BASE + 9_000, key: keys.remote, length: 8 };
        s.deliver(write_only(0, reth, &VALUE));
        s.deliver(flush(1, reth, PERSISTENT | VISIBLE, 0));
        s.deliver(flush(2, reth, PERSISTENT, 1));
        s.expect(done(1, 2));
        s.expect(done(2, 3));
        assert_eq!(std::fs::read(&path).unwrap()[9_100..9_108], VALUE);
        // The story's own memory may be written, but no file backs it.
        s.deliver(flush(3, s.reth(SERVED, 8), PERSISTENT, 0));
        s.expect(nak(3, 3, NakCode::RemoteAccessError));
        s.expect_event(Event::AccessError(0));
        s.expect_dead();
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn lesson_07_an_atomic_write_has_exactly_eight_bytes() {
    for length in [0, 4, 7, 9, 16, 64] {
        invalid(&Setup::default(), |s| atomic_write(0, s.reth(SERVED, length), &VALUE));
        invalid(&Setup::default(), |s| atomic_write(0, s.reth(SERVED, 8), &vec![1; length]));
    }
}

#[test]
fn lesson_38_a_flush_is_never_solicited_and_its_answer_is_an_empty_read_response_only() {
    story(|s| {
        post_flush(s, 1, SendFlags { solicited: true, ..SendFlags::SIGNALED });
        let sent = s.expect(flush(0, peer_reth(0, 512), VISIBLE, 0));
        assert_eq!(sent.bytes[1] & 0x80, 0, "SE");
        s.deliver(flush(0, s.reth(SERVED, 8), VISIBLE, 0));
        let answer = s.expect(done(0, 1));
        assert_eq!((answer.bytes[0], answer.bytes.len()), (0x10, 12 + 4 + 4));
        s.deliver(done(0, 1));
        s.expect_sent(1, Success);
    });
}
