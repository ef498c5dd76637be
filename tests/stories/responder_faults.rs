//! Faults of a request at the responder, row by row of the fault table: the answer, the receive's
//! completion, the event, the MSN, and that the queue pair is in error afterwards.

use uroce::queue::CompletionStatus::{
    self, LocalAccessError, LocalLengthError, LocalProtectionError, WorkRequestFlushed,
};
use uroce::queue::{Access, QueuePairState, ReceiveRequest, Sge};
use uroce::wire::{Lkey, NakCode, Reth, Rkey};

use crate::harness::{
    BASE, Event, Frame, MEMORY, RECEIVE, SERVED, Setup, Story, compare_swap, fetch_add, nak, ours,
    read_request, send_first, send_last, send_middle, send_only, send_only_invalidate, story,
    theirs, write_first, write_last, write_last_immediate, write_middle, write_only,
    write_only_immediate,
};

const MTU: usize = 1024;
/// Where messages go whose first packets are good.
const ELSEWHERE: usize = 0x6_0000;

/// The peer's first message is good, then it sends `frames`, of which the last one is refused with
/// `code`. The receives 1 and 2 are posted: the first ends with `receive`, the second is flushed,
/// as is a send that was under way.
fn refused(
    story: &mut Story,
    frames: Vec<Frame>,
    code: NakCode,
    receive: CompletionStatus,
    event: Option<Event>,
) {
    let good = story.reth(SERVED, 4);
    story.deliver(write_only(0, good, &theirs(0, 4)));
    let served = story.bytes(SERVED + 4, 0x1_0000);
    story.post_write(70, 8);
    story.next_sent().expect("our own request is under way");
    let last = frames.len() as i32;
    story.deliver_all(frames);
    story.expect(nak(last, 1, code));
    assert_eq!(story.state(), QueuePairState::Error);
    if let Some(event) = event {
        story.expect_event(event);
    }
    story.expect_sent(70, WorkRequestFlushed);
    story.expect_received(1, receive);
    story.expect_received(2, WorkRequestFlushed);
    assert_eq!(story.bytes(SERVED + 4, 0x1_0000), served, "nothing was carried out");
    story.expect_dead();
}

fn with_receives(story: &mut Story, length: usize) {
    story.post_receive(1, length);
    story.post_receive(2, length);
}

/// NAK 0x61 and a request-error event; the receives are only flushed.
fn invalid(story: &mut Story, frames: Vec<Frame>) {
    with_receives(story, 4096);
    let event = Some(Event::RequestError(0));
    refused(story, frames, NakCode::InvalidRequest, WorkRequestFlushed, event);
}

/// NAK 0x62 and an access-error event; the receives are only flushed.
fn forbidden(story: &mut Story, frames: Vec<Frame>) {
    with_receives(story, 4096);
    let event = Some(Event::AccessError(0));
    refused(story, frames, NakCode::RemoteAccessError, WorkRequestFlushed, event);
}

#[test]
fn a_send_larger_than_the_receive_gets_0x61_and_the_receive_a_length_error() {
    story(|s| {
        with_receives(s, 7);
        let frames = vec![send_only(1, &theirs(0, 8))];
        refused(s, frames, NakCode::InvalidRequest, LocalLengthError, None);
        assert_eq!(s.bytes(RECEIVE, 8), ours(RECEIVE, 8), "not one byte was placed");
    });
}

#[test]
fn a_send_that_outgrows_the_receive_in_its_middle_gets_0x61_at_that_packet() {
    story(|s| {
        with_receives(s, 2 * MTU - 1);
        let frames = vec![send_first(1, &theirs(0, MTU)), send_middle(2, &theirs(MTU, MTU))];
        refused(s, frames, NakCode::InvalidRequest, LocalLengthError, None);
    });
}

#[test]
fn a_receive_with_a_bad_key_gets_0x63_and_a_protection_error() {
    let cases: [fn(&Story) -> Sge; 3] = [
        |s| Sge { key: Lkey::new(s.keys.local.value() ^ 1), ..s.sge(RECEIVE, 64) },
        |s| Sge { address: s.sge(0, 0).address - 1, ..s.sge(0, 64) },
        |s| s.sge(MEMORY - 8, 64),
    ];
    for bad in cases {
        story(|s| {
            let segments = [bad(s)];
            let bad = ReceiveRequest { id: 1, segments: &segments };
            s.pairs[0].post_one_receive(&bad).unwrap();
            s.post_receive(2, 64);
            let frames = vec![send_only(1, &theirs(0, 64))];
            refused(s, frames, NakCode::RemoteOperationalError, LocalProtectionError, None);
        });
    }
}

#[test]
fn a_receive_that_may_not_be_written_gets_0x63_and_no_byte_changes_before_the_bad_segment() {
    story(|s| {
        let memory = std::sync::Arc::clone(&s.memory);
        let base = 0x9_0000_0000;
        let keys = s.engine.register_part(s.domain, memory, 0..64, base, Access::NONE).unwrap();
        let closed = Sge { address: base, length: 32, key: keys.local };
        let segments = [s.sge(RECEIVE, 32), closed];
        s.pairs[0].post_one_receive(&ReceiveRequest { id: 1, segments: &segments }).unwrap();
        s.post_receive(2, 64);
        let frames = vec![send_only(1, &theirs(0, 40))];
        refused(s, frames, NakCode::RemoteOperationalError, LocalProtectionError, None);
        assert_eq!(s.bytes(RECEIVE, 32), ours(RECEIVE, 32));
    });
}

/// The three kinds of access to `reth` with a key that may fail.
fn each_access(reth: Reth) -> [Frame; 4] {
    let word = Reth { length: 8, ..reth };
    [
        write_only(1, reth, &theirs(0, reth.length as usize)),
        read_request(1, reth),
        compare_swap(1, word, 0, 1),
        fetch_add(1, word, 1),
    ]
}

/// Each access in turn through `key` is refused with 0x62.
fn forbids(prepare: impl Fn(&mut Story) -> Reth) {
    for index in 0..4 {
        story(|s| {
            let reth = prepare(s);
            forbidden(s, vec![each_access(reth)[index].clone()]);
        });
    }
}

#[test]
fn an_unknown_key_gets_0x62() {
    forbids(|s| Reth { key: Rkey::new(s.keys.remote.value() ^ 1), ..s.reth(SERVED, 8) });
    forbids(|s| Reth { key: Rkey::new(0), ..s.reth(SERVED, 8) });
    forbids(|s| Reth { key: Rkey::new(u32::MAX), ..s.reth(SERVED, 8) });
}

#[test]
fn a_deregistered_key_gets_0x62() {
    forbids(|s| {
        let memory = std::sync::Arc::clone(&s.memory);
        let keys = s.engine.register(s.domain, memory, Access::ALL).unwrap();
        s.engine.deregister(keys.local).unwrap();
        Reth { address: s.memory.address(), key: keys.remote, length: 8 }
    });
}

#[test]
fn a_key_of_another_protection_domain_gets_0x62() {
    forbids(|s| {
        let other = s.engine.allocate_domain().unwrap();
        let memory = std::sync::Arc::clone(&s.memory);
        let keys = s.engine.register_part(other, memory, 0..4096, BASE, Access::ALL).unwrap();
        Reth { address: BASE, key: keys.remote, length: 8 }
    });
}

#[test]
fn an_access_outside_of_the_region_gets_0x62() {
    forbids(|s| s.reth(MEMORY, 8));
    forbids(|s| Reth { address: BASE - 8, ..s.reth(0, 8) });
    forbids(|s| Reth { address: u64::MAX - 7, ..s.reth(0, 8) });
    forbids(|s| Reth { address: 0, ..s.reth(0, 8) });
}

#[test]
fn an_access_that_reaches_one_byte_beyond_the_region_gets_0x62() {
    story(|s| {
        let reth = s.reth(MEMORY - 8, 9);
        forbidden(s, vec![write_only(1, reth, &theirs(0, 9))]);
    });
    story(|s| {
        let reth = s.reth(MEMORY - 8, 9);
        forbidden(s, vec![read_request(1, reth)]);
    });
}

#[test]
fn a_right_that_the_region_lacks_gets_0x62() {
    for index in 0..4 {
        let missing = [
            Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            Access::REMOTE_READ | Access::REMOTE_WRITE,
            Access::REMOTE_READ | Access::REMOTE_WRITE,
        ];
        story(|s| {
            let memory = std::sync::Arc::clone(&s.memory);
            let access = missing[index] | Access::LOCAL_WRITE;
            let base = 0x9_0000_0000;
            let keys = s.engine.register_part(s.domain, memory, 0..64, base, access).unwrap();
            let reth = Reth { address: base, key: keys.remote, length: 8 };
            forbidden(s, vec![each_access(reth)[index].clone()]);
        });
    }
}

#[test]
fn a_write_whose_whole_range_does_not_fit_gets_0x62_at_its_first_packet() {
    story(|s| {
        let reth = s.reth(MEMORY - MTU, MTU + 1);
        forbidden(s, vec![write_first(1, reth, &theirs(0, MTU))]);
        assert_eq!(s.bytes(MEMORY - MTU, MTU), ours(MEMORY - MTU, MTU));
    });
}

#[test]
fn a_key_that_ends_in_the_middle_of_a_write_gets_0x62_at_the_next_packet() {
    story(|s| {
        with_receives(s, 64);
        let memory = std::sync::Arc::clone(&s.memory);
        let keys = s.engine.register_part(s.domain, memory, 0..MTU * 3, BASE, Access::ALL).unwrap();
        let reth = Reth { address: BASE, key: keys.remote, length: 3 * MTU as u32 };
        s.deliver(write_first(0, reth, &theirs(0, MTU)));
        s.expect_nothing();
        s.engine.deregister(keys.local).unwrap();
        s.deliver(write_middle(1, &theirs(MTU, MTU)));
        s.expect(nak(1, 0, NakCode::RemoteAccessError));
        s.expect_event(Event::AccessError(0));
        s.expect_received(1, WorkRequestFlushed);
        s.expect_received(2, WorkRequestFlushed);
        assert_eq!(s.bytes(0, MTU), theirs(0, MTU));
        assert_eq!(s.bytes(MTU, MTU), ours(MTU, MTU));
        s.expect_dead();
    });
}

#[test]
fn a_write_with_immediate_and_a_bad_key_gets_0x62_and_its_receive_tells_it_instead_of_an_event() {
    story(|s| {
        with_receives(s, 64);
        let reth = Reth { key: Rkey::new(5), ..s.reth(SERVED, 8) };
        let frames = vec![write_only_immediate(1, reth, &theirs(0, 8), [1; 4])];
        refused(s, frames, NakCode::RemoteAccessError, LocalAccessError, None);
    });
}

#[test]
fn a_send_that_invalidates_what_it_may_not_gets_0x62_and_places_nothing() {
    let cases: [fn(&mut Story) -> Rkey; 3] = [
        |s| Rkey::new(s.keys.remote.value() ^ 1),
        |s| s.keys.remote,
        |s| {
            let other = s.engine.allocate_domain().unwrap();
            let memory = std::sync::Arc::clone(&s.memory);
            let access = Access::ALL | Access::INVALIDATE;
            s.engine.register_part(other, memory, 0..64, BASE, access).unwrap().remote
        },
    ];
    for key in cases {
        story(|s| {
            let key = key(s);
            forbidden(s, vec![send_only_invalidate(1, &theirs(0, 8), key)]);
            assert_eq!(s.bytes(RECEIVE, 8), ours(RECEIVE, 8));
        });
    }
}

#[test]
fn an_operation_that_the_queue_pair_does_not_allow_gets_0x61_whatever_the_region_allows() {
    let missing = [
        Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
        Access::REMOTE_READ | Access::REMOTE_WRITE,
        Access::REMOTE_READ | Access::REMOTE_WRITE,
    ];
    for (index, missing) in missing.into_iter().enumerate() {
        let setup = Setup { access: missing | Access::LOCAL_WRITE, ..Setup::default() };
        setup.tell(|s| {
            with_receives(s, 64);
            let reth = s.reth(SERVED, 8);
            let mut frame = each_access(reth)[index].clone();
            frame.headers.psn = uroce::wire::Psn::new(0);
            s.deliver(frame);
            s.expect(nak(0, 0, NakCode::InvalidRequest));
            s.expect_event(Event::RequestError(0));
            s.expect_received(1, WorkRequestFlushed);
            s.expect_received(2, WorkRequestFlushed);
            assert_eq!(s.bytes(SERVED, 8), ours(SERVED, 8));
            s.expect_dead();
        });
    }
}

#[test]
fn a_first_or_middle_packet_that_is_not_of_path_mtu_gets_0x61() {
    for length in [0, 1, MTU - 4, MTU - 1, MTU + 1, MTU + 4] {
        let part = theirs(0, length);
        story(|s| invalid(s, vec![send_first(1, &part)]));
        story(|s| invalid(s, vec![send_first(1, &theirs(0, MTU)), send_middle(2, &part)]));
        story(|s| {
            let reth = s.reth(SERVED + 64, 4 * MTU);
            invalid(s, vec![write_first(1, reth, &part)]);
        });
        story(|s| {
            let reth = s.reth(ELSEWHERE, 4 * MTU);
            invalid(s, vec![write_first(1, reth, &theirs(0, MTU)), write_middle(2, &part)]);
            assert_eq!(s.bytes(ELSEWHERE + MTU, MTU), ours(ELSEWHERE + MTU, MTU));
        });
    }
}

#[test]
fn a_last_packet_that_is_empty_or_over_the_path_mtu_gets_0x61() {
    for length in [0, MTU + 1, MTU + 4] {
        let part = theirs(0, length);
        story(|s| invalid(s, vec![send_first(1, &theirs(0, MTU)), send_last(2, &part)]));
        story(|s| {
            let reth = s.reth(ELSEWHERE, MTU + length);
            invalid(s, vec![write_first(1, reth, &theirs(0, MTU)), write_last(2, &part)]);
        });
        story(|s| {
            let reth = s.reth(ELSEWHERE, MTU + length);
            let last = write_last_immediate(2, &part, [7; 4]);
            invalid(s, vec![write_first(1, reth, &theirs(0, MTU)), last]);
        });
    }
}

#[test]
fn an_only_packet_over_the_path_mtu_gets_0x61() {
    for length in [MTU + 1, MTU + 4, 4096] {
        story(|s| invalid(s, vec![send_only(1, &theirs(0, length))]));
        story(|s| {
            let reth = s.reth(SERVED + 64, length);
            invalid(s, vec![write_only(1, reth, &theirs(0, length))]);
        });
    }
}

#[test]
fn a_write_whose_packets_are_not_its_dma_length_gets_0x61() {
    for (said, sent) in [(8, 7), (8, 9), (0, 1), (1, 0), (MTU, MTU - 1)] {
        story(|s| {
            let reth = s.reth(SERVED + 64, said);
            invalid(s, vec![write_only(1, reth, &theirs(0, sent))]);
        });
    }
    for (said, last) in [(MTU + 8, 7), (MTU + 8, 9), (3 * MTU, MTU), (MTU, 1)] {
        story(|s| {
            let reth = s.reth(ELSEWHERE, said);
            let first = write_first(1, reth, &theirs(0, MTU));
            invalid(s, vec![first, write_last(2, &theirs(0, last))]);
            assert_eq!(s.bytes(ELSEWHERE + MTU, MTU), ours(ELSEWHERE + MTU, MTU));
        });
    }
    story(|s| {
        let reth = s.reth(ELSEWHERE, MTU + 8);
        let first = write_first(1, reth, &theirs(0, MTU));
        invalid(s, vec![first, write_middle(2, &theirs(MTU, MTU))]);
    });
    story(|s| {
        let reth = s.reth(SERVED + 64, MTU - 1);
        invalid(s, vec![write_first(1, reth, &theirs(0, MTU))]);
    });
}

#[test]
fn a_dma_length_over_2_31_gets_0x61_even_if_the_key_is_wrong_too() {
    for length in [(1 << 31) + 1, u32::MAX] {
        story(|s| {
            let reth = Reth { length, ..s.reth(SERVED, 8) };
            invalid(s, vec![read_request(1, reth)]);
        });
        story(|s| {
            let reth = Reth { length, key: Rkey::new(9), ..s.reth(SERVED, 8) };
            invalid(s, vec![write_first(1, reth, &theirs(0, MTU))]);
        });
    }
    story(|s| {
        let reth = Reth { length: 1 << 31, ..s.reth(SERVED, 8) };
        forbidden(s, vec![read_request(1, reth)]);
    });
}

#[test]
fn a_misaligned_atomic_gets_0x61_even_if_the_key_is_wrong_too() {
    for offset in 1..8 {
        story(|s| {
            let reth = s.reth(SERVED + 64 + offset, 8);
            invalid(s, vec![fetch_add(1, reth, 1)]);
        });
        story(|s| {
            let reth = Reth { key: Rkey::new(9), ..s.reth(SERVED + 64 + offset, 8) };
            invalid(s, vec![compare_swap(1, reth, 0, 1)]);
        });
    }
}

#[test]
fn an_atomic_whose_real_address_is_misaligned_gets_0x61() {
    story(|s| {
        let memory = std::sync::Arc::clone(&s.memory);
        let base = 0x9_0000_0000;
        let keys = s.engine.register_part(s.domain, memory, 4..64, base, Access::ALL).unwrap();
        let reth = Reth { address: base, key: keys.remote, length: 8 };
        invalid(s, vec![fetch_add(1, reth, 1)]);
    });
}
