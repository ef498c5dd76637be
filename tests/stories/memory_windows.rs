//! Memory windows: bound, used, refused, invalidated.

use std::sync::Arc;

use uroce::engine::{ControlError, Counter};
use uroce::memory::{WindowBind, WindowId, WindowKind};
use uroce::queue::CompletionStatus::{
    LocalQueuePairOperationError, MemoryWindowBindError, Success, WorkRequestFlushed,
};
use uroce::queue::QueuePairState::{Reset, Rts};
use uroce::queue::{
    Access, Attachment, CompletionKind, QueuePairAttributes, SendFlags, SendOperation,
};
use uroce::wire::{Feth, Lkey, Message, NakCode, Reth, Rkey};

use crate::harness::{
    BASE, Event, Frame, MEMORY, SERVED, Setup, Story, ack, fetch_add, nak, ours, peer_reth,
    read_request, read_response_only, send_only_invalidate, sequence_nak, story, theirs,
    write_first, write_last, write_only,
};

const MTU: usize = 1024;
const KINDS: [WindowKind; 2] = [WindowKind::Type1, WindowKind::Type2B];
/// Where windows begin, and how long they are.
const START: usize = SERVED + 64;
const LENGTH: usize = 256;
const READ_WRITE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);
/// What a region needs so that windows can grant everything.
const BINDABLE: Access = Access::LOCAL_WRITE.union(Access::MW_BIND);

/// The story's memory once more, with a key that gives peers nothing.
pub fn region(s: &mut Story, access: Access) -> Lkey {
    let memory = Arc::clone(&s.memory);
    s.engine.register_part(s.domain, memory, 0..MEMORY, BASE, access).unwrap().local
}

pub fn window(s: &mut Story, kind: WindowKind) -> WindowId {
    WindowId::of_key(s.engine.allocate_window(s.domain, kind).unwrap())
}

/// A request that binds a new window to [`LENGTH`] bytes at [`START`] of a new region.
pub fn binding(s: &mut Story, kind: WindowKind, access: Access) -> WindowBind {
    WindowBind {
        window: window(s, kind),
        kind,
        portion: 0x5a,
        region: region(s, BINDABLE),
        address: BASE + START as u64,
        length: LENGTH as u64,
        access,
    }
}

pub fn post_bind(s: &mut Story, id: u64, bind: WindowBind) {
    s.post(id, SendOperation::BindWindow(bind), SendFlags::NONE, &[]);
}

/// Posts a binding and sees it carried out.
#[track_caller]
pub fn bind(s: &mut Story, bind: WindowBind) -> Rkey {
    post_bind(s, 99, bind);
    let completion = s.expect_sent(99, Success);
    assert_eq!((completion.kind, completion.length), (CompletionKind::BindWindow, 0));
    s.expect_nothing();
    bind.key()
}

/// A new window that is bound and may be read and written.
pub fn bound(s: &mut Story, kind: WindowKind) -> WindowBind {
    let request = binding(s, kind, READ_WRITE);
    bind(s, request);
    request
}

/// `length` bytes from `offset` of the window on.
fn place(bind: &WindowBind, offset: usize, length: usize) -> Reth {
    let address = bind.address.wrapping_add(offset as u64);
    Reth { address, key: bind.key(), length: length as u32 }
}

/// The peer's request number `psn` is carried out.
#[track_caller]
pub fn expect_served(s: &mut Story, psn: i32, reth: Reth) {
    let length = reth.length as usize;
    s.deliver(write_only(psn, reth, &theirs(psn as usize, length)).asking());
    s.expect(ack(psn, psn as u32 + 1));
}

/// The peer's request number `psn`, after as many good ones, is refused and changes nothing.
#[track_caller]
pub fn expect_refused(s: &mut Story, psn: i32, frame: Frame) {
    let before = s.bytes(0, MEMORY);
    s.deliver(frame);
    s.expect(nak(psn, psn as u32, NakCode::RemoteAccessError));
    s.expect_event(Event::AccessError(s.pair));
    assert!(s.bytes(0, MEMORY) == before, "memory is as it was");
}

#[test]
fn a_window_grants_its_range_with_its_rights() {
    for kind in KINDS {
        story(|s| {
            let bind = bound(s, kind);
            expect_served(s, 0, place(&bind, 0, 8));
            assert_eq!(s.bytes(START, 8), theirs(0, 8));
            expect_served(s, 1, place(&bind, LENGTH - 8, 8));
            expect_served(s, 2, place(&bind, 0, LENGTH));
            s.deliver(read_request(3, place(&bind, 8, 16)));
            s.expect(read_response_only(3, 4, &theirs(2 + 8, 16)));
        });
    }
}

#[test]
fn a_window_grants_nothing_else() {
    let cases: [fn(&WindowBind) -> Frame; 7] = [
        |bind| write_only(0, place(bind, LENGTH - 7, 8), &theirs(0, 8)),
        |bind| write_only(0, place(bind, usize::MAX, 8), &theirs(0, 8)),
        |bind| write_only(0, Reth { address: u64::MAX - 3, ..place(bind, 0, 8) }, &theirs(0, 8)),
        |bind| read_request(0, place(bind, 0, LENGTH + 1)),
        // No right to atomics.
        |bind| fetch_add(0, place(bind, 0, 8), 1),
        // Another key portion, and the region's own key.
        |bind| write_only(0, Reth { key: bind.window.key(0x5b), ..place(bind, 0, 8) }, &[1; 8]),
        |bind| {
            let key = Rkey::new(bind.region.value());
            write_only(0, Reth { key, ..place(bind, 0, 8) }, &[1; 8])
        },
    ];
    for kind in KINDS {
        for case in cases {
            story(|s| {
                let bind = bound(s, kind);
                expect_refused(s, 0, case(&bind));
                s.expect_dead();
            });
        }
        for (access, frame) in [
            (Access::REMOTE_READ, write_only as fn(i32, Reth, &[u8]) -> Frame),
            (Access::REMOTE_WRITE, |psn, reth, _| read_request(psn, reth)),
            (Access::NONE, |psn, reth, _| read_request(psn, reth)),
        ] {
            story(|s| {
                let request = binding(s, kind, access);
                bind(s, request);
                expect_refused(s, 0, frame(0, place(&request, 0, 8), &[1; 8]));
            });
        }
    }
}

#[test]
fn a_window_that_was_not_bound_grants_nothing_under_any_key() {
    for kind in KINDS {
        let mut s = Story::new(Setup::default());
        let first = s.engine.allocate_window(s.domain, kind).unwrap();
        for portion in [first.value() as u8, 0, 0x5a] {
            s.add_pair();
            let key = WindowId::of_key(first).key(portion);
            let reth = Reth { key, ..s.reth(SERVED, 8) };
            expect_refused(&mut s, 0, write_only(0, reth, &[1; 8]));
        }
    }
}

#[test]
fn a_window_is_no_local_memory() {
    story(|s| {
        let bind = bound(s, WindowKind::Type1);
        let mut segment = s.sge(START, 8);
        segment.key = Lkey::new(bind.key().value());
        s.post(1, SendOperation::Send, SendFlags::NONE, &[segment]);
        s.expect_sent(1, uroce::queue::CompletionStatus::LocalProtectionError);
        s.expect_dead();
    });
}

#[test]
fn atomics_reach_a_window_that_allows_them() {
    story(|s| {
        let request = binding(s, WindowKind::Type2B, Access::REMOTE_ATOMIC);
        bind(s, request);
        s.memory.store_u64(START, 40).unwrap();
        s.deliver(fetch_add(0, place(&request, 0, 8), 2));
        s.expect(crate::harness::atomic_ack(0, 1, 40));
        assert_eq!(s.memory.load_u64(START).unwrap(), 42);
    });
}

#[test]
fn what_a_region_lets_peers_flush_a_window_can_too() {
    let setup = Setup { access: Access::ALL | Access::FLUSH, ..Setup::default() };
    setup.tell(|s| {
        let request = binding(s, WindowKind::Type2B, Access::FLUSH_GLOBAL);
        let region = region(s, BINDABLE | Access::FLUSH_GLOBAL);
        let request = WindowBind { region, ..request };
        bind(s, request);
        let feth =
            Feth { reserved: 0, placement: Feth::GLOBAL_VISIBILITY, selectivity: Feth::RANGE };
        let flush = |psn, reth| Frame::new(Message::Flush(feth, reth), psn, &[]);
        s.deliver(flush(0, place(&request, 0, LENGTH)));
        s.expect(read_response_only(0, 1, &[]));
        expect_refused(s, 1, flush(1, place(&request, 0, LENGTH + 1)));
    });
}

#[test]
fn an_atomic_write_keeps_to_the_window() {
    story(|s| {
        let request = binding(s, WindowKind::Type1, Access::REMOTE_WRITE);
        bind(s, request);
        let store = |psn, reth| Frame::new(Message::AtomicWrite(reth), psn, &[7; 8]);
        s.deliver(store(0, place(&request, LENGTH - 8, 8)));
        s.expect(read_response_only(0, 1, &[]));
        assert_eq!(s.bytes(START + LENGTH - 8, 8), [7; 8]);
        expect_refused(s, 1, store(1, place(&request, LENGTH, 8)));
    });
}

#[test]
fn type_1_serves_every_queue_pair_of_its_domain_and_type_2_only_the_one_that_bound_it() {
    let setup = Setup { pairs: 2, ..Setup::default() };
    setup.tell(|s| {
        let bind = bound(s, WindowKind::Type1);
        s.pair = 1;
        expect_served(s, 0, place(&bind, 0, 8));
    });
    setup.tell(|s| {
        let bind = bound(s, WindowKind::Type2B);
        s.pair = 1;
        expect_refused(s, 0, write_only(0, place(&bind, 0, 8), &[1; 8]));
        s.pair = 0;
        expect_served(s, 0, place(&bind, 0, 8));
    });
}

#[test]
fn a_local_invalidation_ends_a_window_of_type_2_which_can_then_be_bound_anew() {
    story(|s| {
        let first = bound(s, WindowKind::Type2B);
        expect_served(s, 0, place(&first, 0, 8));
        s.post(1, SendOperation::LocalInvalidate(first.key()), SendFlags::NONE, &[]);
        assert_eq!(s.expect_sent(1, Success).kind, CompletionKind::LocalInvalidate);
        let second = WindowBind { portion: 7, ..first };
        bind(s, second);
        expect_served(s, 1, place(&second, 0, 8));
        expect_refused(s, 2, write_only(2, place(&first, 0, 8), &[1; 8]));
    });
    // The same key portion again is the application's choice.
    story(|s| {
        let first = bound(s, WindowKind::Type2B);
        s.post(1, SendOperation::LocalInvalidate(first.key()), SendFlags::NONE, &[]);
        s.expect_sent(1, Success);
        bind(s, first);
        expect_served(s, 0, place(&first, 0, 8));
    });
}

#[test]
fn a_send_with_invalidate_ends_a_window_of_type_2() {
    story(|s| {
        let bind = bound(s, WindowKind::Type2B);
        s.post_receive(1, 8);
        s.deliver(send_only_invalidate(0, &theirs(0, 8), bind.key()).asking());
        s.expect(ack(0, 1));
        let completion = s.expect_received(1, Success);
        assert_eq!(completion.attachment, Attachment::Invalidated(bind.key()));
        s.engine.deregister(bind.region).unwrap();
        expect_refused(s, 1, write_only(1, place(&bind, 0, 8), &[1; 8]));
    });
}

#[test]
fn a_repeated_send_with_invalidate_does_not_end_the_next_binding() {
    story(|s| {
        let bind = bound(s, WindowKind::Type2B);
        s.post_receive(1, 8);
        let frame = send_only_invalidate(0, &theirs(0, 8), bind.key()).asking();
        s.deliver(frame.clone());
        s.expect(ack(0, 1));
        s.expect_received(1, Success);
        self::bind(s, bind);
        s.deliver(frame);
        s.expect(ack(0, 1));
        expect_served(s, 1, place(&bind, 0, 8));
    });
}

#[test]
fn only_its_own_queue_pair_invalidates_a_window_of_type_2() {
    let setup = Setup { pairs: 2, ..Setup::default() };
    setup.tell(|s| {
        let bind = bound(s, WindowKind::Type2B);
        s.pair = 1;
        s.post_receive(1, 8);
        expect_refused(s, 0, send_only_invalidate(0, &theirs(0, 8), bind.key()));
        s.expect_received(1, WorkRequestFlushed);
        s.pair = 0;
        expect_served(s, 0, place(&bind, 0, 8));
    });
    setup.tell(|s| {
        let bind = bound(s, WindowKind::Type2B);
        s.pair = 1;
        s.post(1, SendOperation::LocalInvalidate(bind.key()), SendFlags::NONE, &[]);
        s.expect_sent(1, LocalQueuePairOperationError);
        s.pair = 0;
        expect_served(s, 0, place(&bind, 0, 8));
    });
}

#[test]
fn neither_a_window_of_type_1_nor_one_that_is_not_bound_can_be_invalidated() {
    let keys: [fn(&mut Story) -> Rkey; 2] =
        [|s| bound(s, WindowKind::Type1).key(), |s| window(s, WindowKind::Type2B).key(3)];
    for key in keys {
        story(|s| {
            let key = key(s);
            s.post_receive(1, 8);
            expect_refused(s, 0, send_only_invalidate(0, &theirs(0, 8), key));
            s.expect_received(1, WorkRequestFlushed);
        });
        story(|s| {
            let key = key(s);
            s.post(1, SendOperation::LocalInvalidate(key), SendFlags::NONE, &[]);
            s.expect_sent(1, LocalQueuePairOperationError);
            s.expect_dead();
        });
    }
}

#[test]
fn a_write_whose_window_ends_on_its_way_stops_there() {
    story(|s| {
        let request = binding(s, WindowKind::Type2B, READ_WRITE);
        let request = WindowBind { length: 2 * MTU as u64, ..request };
        bind(s, request);
        s.deliver(write_first(0, place(&request, 0, 2 * MTU), &theirs(0, MTU)));
        s.settle();
        s.post(1, SendOperation::LocalInvalidate(request.key()), SendFlags::NONE, &[]);
        s.expect_sent(1, Success);
        s.deliver(write_last(1, &theirs(MTU, MTU)));
        s.expect(nak(1, 0, NakCode::RemoteAccessError));
        s.expect_event(Event::AccessError(0));
        assert_eq!(s.bytes(START, MTU), theirs(0, MTU));
        assert_eq!(s.bytes(START + MTU, MTU), ours(START + MTU, MTU));
    });
}

#[test]
fn type_1_is_bound_anew_at_any_time_and_with_length_0_to_nothing() {
    story(|s| {
        let first = bound(s, WindowKind::Type1);
        let second =
            WindowBind { portion: 0x5b, address: BASE, region: region(s, BINDABLE), ..first };
        bind(s, second);
        s.engine.deregister(first.region).unwrap();
        expect_served(s, 0, place(&second, 0, 8));
        // The region's key has no meaning then.
        let nothing = WindowBind { portion: 0x5c, length: 0, region: Lkey::new(1), ..second };
        bind(s, nothing);
        s.engine.deregister(second.region).unwrap();
        expect_refused(s, 1, write_only(1, place(&nothing, 0, 8), &[1; 8]));
    });
    story(|s| {
        let first = bound(s, WindowKind::Type1);
        bind(s, WindowBind { portion: 0x5b, ..first });
        expect_refused(s, 0, write_only(0, place(&first, 0, 8), &[1; 8]));
    });
}

/// A binding that is refused, made from a good one.
type Spoil = fn(&mut Story, WindowBind) -> WindowBind;

const REFUSED: [Spoil; 14] = [
    |_, bind| WindowBind { access: bind.access | Access::FLUSH_GLOBAL, ..bind },
    |_, bind| WindowBind { window: WindowId::of_key(Rkey::new(0x1234_5600)), ..bind },
    // A region's key is no window.
    |_, bind| WindowBind { window: WindowId::of_key(Rkey::new(bind.region.value())), ..bind },
    |_, bind| WindowBind { region: Lkey::new(0x77), ..bind },
    |_, bind| WindowBind { region: Lkey::new(bind.key().value()), ..bind },
    |s, bind| WindowBind { region: region(s, Access::ALL), ..bind },
    |s, bind| {
        let access = Access::REMOTE_READ | Access::MW_BIND;
        WindowBind { region: region(s, access), ..bind }
    },
    |_, bind| WindowBind { address: BASE - 1, ..bind },
    |_, bind| WindowBind { address: BASE + MEMORY as u64 - LENGTH as u64 + 1, ..bind },
    |_, bind| WindowBind { address: u64::MAX - 8, ..bind },
    |_, bind| WindowBind { length: u64::MAX, ..bind },
    |_, bind| WindowBind { access: bind.access | Access::LOCAL_WRITE, ..bind },
    |_, bind| WindowBind { access: bind.access | Access::MW_BIND, ..bind },
    |s, bind| {
        let other = s.engine.allocate_domain().unwrap();
        let memory = Arc::clone(&s.memory);
        let keys = s.engine.register_part(other, memory, 0..MEMORY, BASE, BINDABLE).unwrap();
        WindowBind { region: keys.local, ..bind }
    },
];

#[test]
fn a_binding_that_is_wrong_fails_in_its_turn_and_changes_nothing() {
    for kind in KINDS {
        for spoil in REFUSED {
            story(|s| {
                let good = binding(s, kind, READ_WRITE);
                let wrong = spoil(s, good);
                s.post_write(1, 8);
                post_bind(s, 2, wrong);
                s.post_write(3, 8);
                s.next_sent().expect("the first WRITE");
                s.expect_nothing();
                s.deliver(ack(0, 1));
                s.expect_sent(1, Success);
                let completion = s.expect_sent(2, MemoryWindowBindError);
                assert_eq!(completion.kind, CompletionKind::BindWindow);
                s.expect_sent(3, WorkRequestFlushed);
                s.expect_dead();
                s.add_pair();
                bind(s, good);
                expect_served(s, 0, place(&good, 0, 8));
            });
        }
    }
}

#[test]
fn the_rules_of_one_type_do_not_serve_the_other() {
    let cases: [(WindowKind, Spoil); 4] = [
        (WindowKind::Type1, |_, bind| WindowBind { kind: WindowKind::Type2B, ..bind }),
        (WindowKind::Type2B, |_, bind| WindowBind { kind: WindowKind::Type1, ..bind }),
        (WindowKind::Type1, |_, bind| WindowBind {
            access: bind.access | Access::ZERO_BASED,
            ..bind
        }),
        (WindowKind::Type2B, |_, bind| WindowBind { length: 0, ..bind }),
    ];
    for (kind, spoil) in cases {
        story(|s| {
            let good = binding(s, kind, READ_WRITE);
            let wrong = spoil(s, good);
            post_bind(s, 1, wrong);
            s.expect_sent(1, MemoryWindowBindError);
            s.expect_dead();
        });
    }
    story(|s| {
        let first = bound(s, WindowKind::Type2B);
        post_bind(s, 1, WindowBind { portion: 9, ..first });
        s.expect_sent(1, MemoryWindowBindError);
        s.expect_dead();
    });
}

#[test]
fn a_zero_based_window_is_named_from_0_on() {
    story(|s| {
        let request = binding(s, WindowKind::Type2B, READ_WRITE | Access::ZERO_BASED);
        bind(s, request);
        let at = |address, length| Reth { address, key: request.key(), length };
        s.deliver(write_only(0, at(0, 8), &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
        assert_eq!(s.bytes(START, 8), theirs(0, 8));
        s.deliver(read_request(1, at(LENGTH as u64 - 1, 1)));
        s.expect(read_response_only(1, 2, &ours(START + LENGTH - 1, 1)));
        expect_refused(s, 2, write_only(2, at(LENGTH as u64 - 1, 2), &[1; 2]));
    });
    story(|s| {
        let request = binding(s, WindowKind::Type2B, READ_WRITE | Access::ZERO_BASED);
        bind(s, request);
        expect_refused(s, 0, write_only(0, place(&request, 0, 8), &[1; 8]));
    });
}

#[test]
fn a_zero_based_region_is_named_from_0_on_by_both_sides() {
    story(|s| {
        let memory = Arc::clone(&s.memory);
        let access = Access::ALL | Access::ZERO_BASED | Access::MW_BIND;
        let range = SERVED..SERVED + 64;
        let keys = s.engine.register_part(s.domain, memory, range, BASE, access).unwrap();
        let at = |address, length| Reth { address, key: keys.remote, length };
        s.deliver(write_only(0, at(0, 8), &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
        assert_eq!(s.bytes(SERVED, 8), theirs(0, 8));
        let segment = uroce::queue::Sge { address: 56, length: 8, key: keys.local };
        s.post(1, SendOperation::Write(crate::harness::peer(0)), SendFlags::NONE, &[segment]);
        s.expect(write_only(0, peer_reth(0, 8), &ours(SERVED + 56, 8)).asking());
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
        let request = binding(s, WindowKind::Type1, READ_WRITE);
        let request = WindowBind { region: keys.local, address: 8, length: 8, ..request };
        bind(s, request);
        s.deliver(write_only(1, place(&request, 0, 8), &theirs(8, 8)).asking());
        s.expect(ack(1, 2));
        assert_eq!(s.bytes(SERVED + 8, 8), theirs(8, 8));
        expect_refused(s, 2, write_only(2, at(57, 8), &[1; 8]));
    });
}

#[test]
fn reset_and_destruction_of_the_queue_pair_end_its_windows_of_type_2_only() {
    for destroy in [false, true] {
        let setup = Setup { pairs: 2, ..Setup::default() };
        setup.tell(|s| {
            let second = [0, 1, 2].map(|_| bound(s, WindowKind::Type2B));
            let first = bound(s, WindowKind::Type1);
            s.pair = 1;
            let others = bound(s, WindowKind::Type2B);
            s.pair = 0;
            if destroy {
                s.engine.destroy_queue_pair(s.number()).unwrap();
                s.pairs.remove(0);
                s.add_pair();
            } else {
                s.modify(&QueuePairAttributes::to_state(Reset)).unwrap();
                s.bring_to(Rts);
            }
            for bind in second {
                s.engine.deregister(bind.region).unwrap();
            }
            for bind in [first, others] {
                let busy = Err(ControlError::RegionBusy { windows: 1 });
                assert_eq!(s.engine.deregister(bind.region), busy);
            }
            if !destroy {
                expect_served(s, 0, place(&first, 0, 8));
                expect_refused(s, 1, write_only(1, place(&second[1], 0, 8), &[1; 8]));
                s.pair = 1;
                expect_served(s, 0, place(&others, 0, 8));
            }
        });
    }
}

#[test]
fn an_error_of_the_queue_pair_does_not_unbind_but_nobody_gets_through() {
    story(|s| {
        let bind = bound(s, WindowKind::Type2B);
        expect_refused(s, 0, read_request(0, place(&bind, 0, LENGTH + 1)));
        let busy = Err(ControlError::RegionBusy { windows: 1 });
        assert_eq!(s.engine.deregister(bind.region), busy);
        s.deliver(write_only(0, place(&bind, 0, 8), &[1; 8]));
        s.expect_nothing();
        assert!(s.count(Counter::DropWrongState) > 0);
    });
}

#[test]
fn a_region_with_windows_can_neither_be_deregistered_nor_changed_nor_invalidated() {
    story(|s| {
        let access = BINDABLE | Access::INVALIDATE;
        let request =
            WindowBind { region: region(s, access), ..binding(s, WindowKind::Type1, READ_WRITE) };
        let other = WindowBind {
            window: window(s, WindowKind::Type2B),
            kind: WindowKind::Type2B,
            ..request
        };
        bind(s, request);
        bind(s, other);
        let busy = |windows| Err(ControlError::RegionBusy { windows });
        assert_eq!(s.engine.deregister(request.region), busy(2));
        let changed = s.engine.reregister(request.region, None, None, Some(Access::NONE));
        assert_eq!(changed.map(|_| ()), busy(2));
        let error = busy(1).unwrap_err().to_string();
        assert!(error.starts_with("1 memory windows are bound to the region"), "{error}");
        expect_served(s, 0, place(&request, 0, 8));
        s.engine.deallocate_window(request.window).unwrap();
        assert_eq!(s.engine.deregister(request.region), busy(1));
        s.post_receive(1, 8);
        let key = Rkey::new(request.region.value());
        expect_refused(s, 1, send_only_invalidate(1, &theirs(0, 8), key));
        s.expect_received(1, WorkRequestFlushed);
        s.engine.deregister_with_windows(request.region).unwrap();
        assert_eq!(s.engine.deallocate_window(request.window), Err(ControlError::NoSuchWindow));
        s.engine.deallocate_window(other.window).unwrap();
    });
}

#[test]
fn windows_count_in_their_domain_and_up_to_the_limit() {
    let limits = uroce::engine::Limits { windows: 2, ..uroce::engine::Limits::default() };
    let mut s = Story::new(Setup { limits, ..Setup::default() });
    let domain = s.engine.allocate_domain().unwrap();
    let windows = KINDS.map(|kind| s.engine.allocate_window(domain, kind).unwrap());
    let full = s.engine.allocate_window(domain, WindowKind::Type1).unwrap_err();
    assert_eq!(
        full.to_string(),
        "the device's limit of 2 memory windows is reached: end some first"
    );
    let busy = ControlError::DomainBusy { regions: 0, windows: 2, pairs: 0, queues: 0, handles: 0 };
    assert_eq!(s.engine.release_domain(domain), Err(busy));
    for key in windows {
        s.engine.deallocate_window(WindowId::of_key(key)).unwrap();
    }
    s.engine.release_domain(domain).unwrap();
}

#[test]
fn the_key_of_a_window_that_has_ended_finds_neither_the_next_window_nor_a_region() {
    let limits = uroce::engine::Limits { windows: 1, ..uroce::engine::Limits::default() };
    let setup = Setup { limits, ..Setup::default() };
    setup.tell(|s| {
        let first = bound(s, WindowKind::Type2B);
        s.engine.deallocate_window(first.window).unwrap();
        // The only number that there is comes again, with another key.
        let key = s.engine.allocate_window(s.domain, WindowKind::Type2B).unwrap();
        assert_eq!(WindowId::of_key(key), first.window);
        assert_ne!(key, first.key());
        let second = WindowBind { portion: key.value() as u8, ..first };
        bind(s, second);
        for _ in 0..1000 {
            let region = region(s, Access::ALL);
            assert_ne!(WindowId::of_key(Rkey::new(region.value())), first.window);
            s.engine.deregister(region).unwrap();
        }
        expect_served(s, 0, place(&second, 0, 8));
        expect_refused(s, 1, write_only(1, place(&first, 0, 8), &[1; 8]));
    });
}

/// A bind request that is still queued when its window ends does not bind the next one, though that
/// has the same number.
#[test]
fn a_queued_binding_does_not_bind_the_next_window_with_the_same_number() {
    let fence = SendFlags { fence: true, ..SendFlags::NONE };
    let limits = uroce::engine::Limits { windows: 1, ..uroce::engine::Limits::default() };
    for kind in KINDS {
        let setup = Setup { limits, ..Setup::default() };
        setup.tell(|s| {
            let mut request = binding(s, kind, READ_WRITE);
            let first = s.engine.window_of(request.key()).unwrap();
            request.window = first;
            s.post_read(1, 8);
            s.post(2, SendOperation::BindWindow(request), fence, &[]);
            s.expect(read_request(0, peer_reth(0, 8)));
            s.engine.deallocate_window(first).unwrap();
            let key = s.engine.allocate_window(s.domain, kind).unwrap();
            let second = s.engine.window_of(key).unwrap();
            assert_eq!((second.key(0), second == first), (first.key(0), false));
            s.deliver(read_response_only(0, 1, &theirs(0, 8)));
            s.expect_sent(1, Success);
            s.expect_sent(2, MemoryWindowBindError);
            assert_eq!(s.engine.deallocate_window(first), Err(ControlError::NoSuchWindow));
            s.engine.deallocate_window(second).unwrap();
            assert_eq!(s.engine.window_of(key), None);
        });
    }
}

#[test]
fn a_fenced_binding_waits_for_reads_and_no_others() {
    let fence = SendFlags { fence: true, ..SendFlags::NONE };
    story(|s| {
        let request = binding(s, WindowKind::Type2B, READ_WRITE);
        s.post_read(1, 8);
        s.post(2, SendOperation::BindWindow(request), fence, &[]);
        s.expect(read_request(0, peer_reth(0, 8)));
        s.expect_nothing();
        s.engine.deregister(request.region).unwrap();
        s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        s.expect_sent(1, Success);
        // It had not been carried out: the region was gone by then.
        s.expect_sent(2, MemoryWindowBindError);
    });
    story(|s| {
        let request = binding(s, WindowKind::Type2B, READ_WRITE);
        s.post_write(1, 8);
        s.post(2, SendOperation::BindWindow(request), fence, &[]);
        s.next_sent().expect("the WRITE");
        s.settle();
        // Carried out, though the WRITE is not acknowledged.
        expect_served(s, 0, place(&request, 0, 8));
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
    });
}

#[test]
fn a_send_behind_a_binding_carries_a_key_that_works() {
    story(|s| {
        let request = binding(s, WindowKind::Type2B, READ_WRITE);
        post_bind(s, 1, request);
        s.post_send(2, 8);
        let sent = s.next_sent().expect("the SEND").frame;
        // Whoever has read the SEND may use the key, acknowledged or not.
        expect_served(s, 0, place(&request, 0, 8));
        s.deliver(sequence_nak(0, 0));
        s.expect(sent);
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
        expect_served(s, 1, place(&request, 8, 8));
    });
}
