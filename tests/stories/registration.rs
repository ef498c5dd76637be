//! Registrations that are changed: memory, protection domain, rights.

use std::collections::HashSet;
use std::sync::Arc;

use uroce::engine::{ControlError, Limits, MemoryKeys, Translation};
use uroce::memory::OwnedMemory;
use uroce::queue::CompletionStatus::{LocalProtectionError, Success};
use uroce::queue::{Access, SendFlags, SendOperation, Sge};
use uroce::wire::{Lkey, NakCode, Reth};

use crate::harness::{
    BASE, Event, MEMORY, SERVED, Setup, Story, ack, nak, ours, peer_reth, read_request,
    read_response_only, send_only_invalidate, story, theirs, write_first, write_last, write_only,
};
use crate::memory_windows::{expect_refused, expect_served};

/// The story's memory once more.
fn registered(s: &mut Story, access: Access) -> MemoryKeys {
    let memory = Arc::clone(&s.memory);
    s.engine.register_part(s.domain, memory, 0..MEMORY, BASE, access).unwrap()
}

fn at(keys: &MemoryKeys, length: usize) -> Reth {
    Reth { address: BASE + SERVED as u64, key: keys.remote, length: length as u32 }
}

/// A request under a key that has ended is refused on a queue pair of its own.
#[track_caller]
fn expect_dead_key(s: &mut Story, keys: &MemoryKeys) {
    let pair = s.pair;
    s.add_pair();
    expect_refused(s, 0, write_only(0, at(keys, 8), &[1; 8]));
    s.pair = pair;
}

#[test]
fn other_rights_alone() {
    story(|s| {
        let before = registered(s, Access::ALL);
        expect_served(s, 0, at(&before, 8));
        let access = Some(Access::REMOTE_READ);
        let after = s.engine.reregister(before.local, None, None, access).unwrap();
        assert_ne!(before, after);
        expect_dead_key(s, &before);
        s.deliver(read_request(1, at(&after, 8)));
        s.expect(read_response_only(1, 2, &theirs(0, 8)));
        expect_refused(s, 2, write_only(2, at(&after, 8), &[1; 8]));
    });
}

#[test]
fn another_domain_alone() {
    story(|s| {
        let before = registered(s, Access::ALL);
        let other = s.engine.allocate_domain().unwrap();
        let after = s.engine.reregister(before.local, None, Some(other), None).unwrap();
        let busy =
            ControlError::DomainBusy { regions: 1, windows: 0, pairs: 0, queues: 0, handles: 0 };
        assert_eq!(s.engine.release_domain(other), Err(busy));
        expect_dead_key(s, &before);
        expect_dead_key(s, &after);
        let back = s.engine.reregister(after.local, None, Some(s.domain), None).unwrap();
        s.engine.release_domain(other).unwrap();
        expect_served(s, 0, at(&back, 8));
        assert_eq!(s.bytes(SERVED, 8), theirs(0, 8));
    });
}

#[test]
fn other_memory_alone() {
    story(|s| {
        let before = registered(s, Access::ALL);
        let memory = OwnedMemory::new(64);
        let base = BASE + SERVED as u64;
        let part = Translation::part(Arc::clone(&memory), 8..64, base).unwrap();
        let after = s.engine.reregister(before.local, Some(part), None, None).unwrap();
        expect_dead_key(s, &before);
        expect_served(s, 0, at(&after, 8));
        assert_eq!(memory.to_vec(8, 8).unwrap(), theirs(0, 8));
        assert_eq!(s.bytes(SERVED, 8), ours(SERVED, 8));
        expect_refused(s, 1, write_only(1, at(&after, 57), &[1; 57]));
    });
}

#[test]
fn all_of_it_at_once_and_by_its_real_or_by_zero_based_addresses() {
    story(|s| {
        let other = s.engine.allocate_domain().unwrap();
        let before = registered(s, Access::NONE);
        let memory = OwnedMemory::new(64);
        let access = Access::ALL | Access::ZERO_BASED;
        let whole = Translation::owned(Arc::clone(&memory));
        let keys = s.engine.reregister(before.local, Some(whole), Some(other), Some(access));
        let keys = keys.unwrap();
        let back = s.engine.reregister(keys.local, None, Some(s.domain), None).unwrap();
        let reth = Reth { address: 0, key: back.remote, length: 8 };
        expect_served(s, 0, reth);
        assert_eq!(memory.to_vec(0, 8).unwrap(), theirs(0, 8));
        let whole = Translation::owned(Arc::clone(&memory));
        let real = s.engine.reregister(back.local, Some(whole), None, Some(Access::ALL)).unwrap();
        let reth = Reth { address: memory.address(), key: real.remote, length: 8 };
        expect_served(s, 1, reth);
        expect_refused(s, 2, write_only(2, Reth { address: 0, ..reth }, &[1; 8]));
    });
}

#[test]
fn what_is_refused_leaves_the_registration_as_it_was() {
    story(|s| {
        let keys = registered(s, Access::ALL);
        let gone = s.engine.allocate_domain().unwrap();
        s.engine.release_domain(gone).unwrap();
        let wrapping = Translation::part(OwnedMemory::new(64), 0..64, u64::MAX - 8).unwrap();
        let fitting = || Some(Translation::owned(OwnedMemory::new(64)));
        let refused = [
            (s.engine.reregister(keys.local, None, None, None), "must change the memory"),
            (
                s.engine.reregister(keys.local, fitting(), None, Some(Access::REMOTE_WRITE)),
                "need LOCAL_WRITE",
            ),
            (s.engine.reregister(keys.local, fitting(), Some(gone), None), "no such protection"),
            (s.engine.reregister(keys.local, Some(wrapping), None, None), "beyond the end"),
            (
                s.engine.reregister(keys.local, None, None, Some(Access::ON_DEMAND)),
                "together with the memory",
            ),
            (
                s.engine.reregister(keys.local, None, None, Some(Access::ZERO_BASED)),
                "together with the memory",
            ),
            (
                s.engine.reregister(Lkey::new(0x77), fitting(), None, None),
                "no memory is registered",
            ),
        ];
        for (outcome, text) in refused {
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        expect_served(s, 0, at(&keys, 8));
        assert_eq!(s.bytes(SERVED, 8), theirs(0, 8));
    });
}

#[test]
fn requests_under_way_find_the_old_key_dead() {
    story(|s| {
        let keys = registered(s, Access::ALL);
        s.deliver(write_first(0, at(&keys, 2048), &theirs(0, 1024)));
        s.settle();
        s.engine.reregister(keys.local, None, None, Some(Access::ALL)).unwrap();
        s.deliver(write_last(1, &theirs(1024, 1024)));
        s.expect(nak(1, 0, NakCode::RemoteAccessError));
        s.expect_event(Event::AccessError(0));
        assert_eq!(s.bytes(SERVED, 1024), theirs(0, 1024));
        assert_eq!(s.bytes(SERVED + 1024, 1024), ours(SERVED + 1024, 1024));
    });
    story(|s| {
        let keys = registered(s, Access::ALL);
        s.engine.reregister(keys.local, None, None, Some(Access::ALL)).unwrap();
        let segment = Sge { address: BASE, length: 8, key: keys.local };
        s.post(1, SendOperation::Send, SendFlags::NONE, &[segment]);
        s.expect_sent(1, LocalProtectionError);
        s.expect_dead();
    });
}

#[test]
fn an_invalidated_region_is_reached_again_once_it_is_registered_anew() {
    story(|s| {
        let keys = registered(s, Access::ALL | Access::INVALIDATE);
        s.post_receive(1, 8);
        s.deliver(send_only_invalidate(0, &theirs(0, 8), keys.remote).asking());
        s.expect(ack(0, 1));
        s.expect_received(1, Success);
        expect_dead_key(s, &keys);
        let access = Some(Access::ALL);
        let keys = s.engine.reregister(keys.local, None, None, access).unwrap();
        expect_served(s, 1, at(&keys, 8));
        s.post_receive(2, 8);
        s.deliver(send_only_invalidate(2, &theirs(0, 8), keys.remote));
        s.expect(nak(2, 2, NakCode::RemoteAccessError));
        s.forget_events();
        s.expect_received(2, uroce::queue::CompletionStatus::WorkRequestFlushed);
    });
}

#[test]
fn keys_do_not_come_again_soon_and_a_full_table_hinders_nothing() {
    let mut s = Story::new(Setup::default());
    let mut keys = registered(&mut s, Access::ALL);
    let mut seen = HashSet::from([keys.local]);
    for _ in 0..10_000 {
        keys = s.engine.reregister(keys.local, None, None, Some(Access::ALL)).unwrap();
        assert!(seen.insert(keys.local), "{} was given twice", keys.local);
    }
    expect_served(&mut s, 0, at(&keys, 8));

    let limits = Limits { regions: 2, ..Limits::default() };
    let mut s = Story::new(Setup { limits, ..Setup::default() });
    let mut keys = registered(&mut s, Access::ALL);
    for _ in 0..10 {
        let before = keys;
        keys = s.engine.reregister(keys.local, None, None, Some(Access::ALL)).unwrap();
        assert_eq!(s.engine.deregister(before.local), Err(ControlError::NoSuchKey(before.local)));
    }
    expect_served(&mut s, 0, at(&keys, 8));
    s.deliver(read_request(1, peer_reth(0, 8)));
    s.expect(nak(1, 1, NakCode::RemoteAccessError));
    s.forget_events();
    s.engine.deregister(keys.local).unwrap();
}
