//! Memory that may be unmapped at any time: an access there fails, and nothing signals.
#![allow(unsafe_code, reason = "registration of foreign memory")]

use uroce::engine::{Cause, MemoryKeys};
use uroce::memory::KeyFault::Unmapped;
use uroce::memory::{OnDemandCapabilities, WindowBind, WindowKind};
use uroce::queue::CompletionStatus::{
    LocalProtectionError, MemoryWindowBindError, Success, WorkRequestFlushed,
};
use uroce::queue::{Access, ReceiveRequest, SendFlags, SendOperation, Sge};
use uroce::wire::{Message, NakCode, Reth};

use crate::harness::{
    BASE, Event, Frame, PEER_MEMORY, Setup, Story, ack, fetch_add, nak, peer, peer_reth,
    read_request, read_response_only, read_responses, send_only, story, theirs, write_first,
    write_last, write_only,
};
use crate::memory_windows::{bind, binding, expect_served, post_bind};
use crate::pages::{PAGE, Pages};

const MTU: usize = 1024;
const READ_WRITE: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::MW_BIND);

/// Three pages, the middle one unmapped, registered on demand and named from [`BASE`] on.
fn hole(s: &mut Story) -> (Pages, MemoryKeys) {
    let pages = Pages::new(3);
    pages.write(0, &theirs(0, PAGE));
    pages.unmap(1);
    let keys = register(s, &pages);
    (pages, keys)
}

fn register(s: &mut Story, pages: &Pages) -> MemoryKeys {
    let access = READ_WRITE | Access::ON_DEMAND;
    // SAFETY: pages have no references to them.
    let keys =
        unsafe { s.engine.register_foreign(s.domain, pages.start(), pages.len(), BASE, access) };
    keys.unwrap()
}

fn at(keys: &MemoryKeys, offset: usize, length: usize) -> Reth {
    Reth { address: BASE + offset as u64, key: keys.remote, length: length as u32 }
}

fn segment(keys: &MemoryKeys, offset: usize, length: usize) -> Sge {
    Sge { address: BASE + offset as u64, length: length as u32, key: keys.local }
}

/// Why the queue pair failed.
fn cause(s: &Story) -> Cause {
    let history = s.engine.history(s.number()).unwrap();
    history.failures.last().expect("it has failed").cause
}

#[test]
fn on_demand_memory_serves_as_any_other_where_it_is_mapped() {
    story(|s| {
        let (pages, keys) = hole(s);
        for length in [1, 2, 8, 9, MTU] {
            let offset = 2 * PAGE + 3;
            pages.write(offset, &vec![0xee; length + 1]);
            let bytes = theirs(length, length);
            s.add_pair();
            s.deliver(write_only(0, at(&keys, offset, length), &bytes).asking());
            s.expect(ack(0, 1));
            assert_eq!(pages.bytes(offset, length), bytes);
            assert_eq!(pages.bytes(offset + length, 1), [0xee]);
            s.deliver(read_request(1, at(&keys, offset, length)));
            s.expect(read_response_only(1, 2, &bytes));
        }
        s.post(1, SendOperation::Write(peer(0)), SendFlags::NONE, &[segment(&keys, 5, 20)]);
        s.expect(write_only(0, peer_reth(0, 20), &theirs(5, 20)).asking());
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
        // What is mapped later is there.
        pages.map(1);
        s.deliver(write_only(2, at(&keys, PAGE - 4, 8), &theirs(0, 8)).asking());
        s.expect(ack(2, 3));
        assert_eq!(pages.bytes(PAGE - 4, 8), theirs(0, 8));
    });
}

#[test]
fn a_write_to_what_is_not_mapped_is_an_access_error() {
    let cases: [fn(&Pages); 3] = [
        |pages| pages.unmap(1),
        |pages| pages.make_read_only(1),
        |pages| {
            pages.release(1);
        },
    ];
    for spoil in cases {
        story(|s| {
            let (pages, keys) = hole(s);
            pages.map(1);
            spoil(&pages);
            s.deliver(write_only(0, at(&keys, 2 * PAGE - 8, 8), &theirs(0, 8)));
            s.expect(nak(0, 0, NakCode::RemoteAccessError));
            s.expect_event(Event::AccessError(0));
            s.expect_dead();
            // Another queue pair goes on.
            s.add_pair();
            expect_served(s, 0, at(&keys, PAGE - 8, 8));
            s.deliver(write_first(1, at(&keys, PAGE - MTU, 2 * MTU), &theirs(0, MTU)));
            s.deliver(write_last(2, &theirs(MTU, MTU)));
            s.expect(nak(2, 1, NakCode::RemoteAccessError));
            s.expect_event(Event::AccessError(1));
            assert_eq!(pages.bytes(PAGE - MTU, MTU), theirs(0, MTU));
        });
    }
}

#[test]
fn a_read_of_what_is_not_mapped_is_an_access_error_at_its_start_and_an_operational_error_later() {
    story(|s| {
        let (_pages, keys) = hole(s);
        s.deliver(read_request(0, at(&keys, PAGE, 8)));
        s.expect(nak(0, 1, NakCode::RemoteAccessError));
        s.expect_event(Event::AccessError(0));
        s.expect_dead();
    });
    story(|s| {
        let (pages, keys) = hole(s);
        s.deliver(read_request(0, at(&keys, PAGE - 2 * MTU, 4 * MTU)));
        let answers = read_responses(0, 1, &pages.bytes(PAGE - 2 * MTU, 2 * MTU), MTU);
        s.expect(answers[0].clone());
        let second = s.next_sent().expect("the second response").frame;
        assert_eq!(second.payload, answers[1].payload);
        s.expect(nak(2, 1, NakCode::RemoteOperationalError));
        s.expect_event(Event::Fatal(0));
        s.expect_dead();
    });
}

#[test]
fn our_own_requests_there_end_with_a_protection_error() {
    type Post = fn(&mut Story, Sge);
    let cases: [Post; 2] = [
        |s, segment| s.post(1, SendOperation::Send, SendFlags::NONE, &[segment]),
        |s, segment| {
            s.post(1, SendOperation::Read(PEER_MEMORY), SendFlags::NONE, &[segment]);
            s.expect(read_request(0, peer_reth(0, 8)));
            s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        },
    ];
    for post in cases {
        story(|s| {
            let (_pages, keys) = hole(s);
            post(s, segment(&keys, PAGE + 8, 8));
            s.expect_sent(1, LocalProtectionError);
            let Cause::LocalMemory(denial) = cause(s) else { panic!("{:?}", cause(s)) };
            assert_eq!((denial.fault, denial.address), (Unmapped, BASE + PAGE as u64 + 8));
            s.expect_dead();
        });
    }
    story(|s| {
        let (_pages, keys) = hole(s);
        // The first segment is there, and the second is not.
        let segments = [segment(&keys, 0, 8), segment(&keys, PAGE + 8, 8)];
        let pair = std::sync::Arc::clone(&s.pairs[0]);
        for id in [1, 2] {
            pair.post_one_receive(&ReceiveRequest { id, segments: &segments }).unwrap();
        }
        s.deliver(send_only(0, &theirs(0, 16)));
        s.expect(nak(0, 0, NakCode::RemoteOperationalError));
        s.expect_received(1, LocalProtectionError);
        let Cause::ReceiveMemory(denial) = cause(s) else { panic!("{:?}", cause(s)) };
        assert_eq!((denial.fault, denial.address), (Unmapped, BASE + PAGE as u64 + 8));
        s.expect_received(2, WorkRequestFlushed);
        s.expect_dead();
    });
}

#[test]
fn atomics_are_refused_on_memory_that_may_be_unmapped() {
    let mut s = Story::new(Setup::default());
    let (pages, keys) = hole(&mut s);
    let access = Access::ALL | Access::ON_DEMAND;
    // SAFETY: refused, so nothing is registered.
    let refused =
        unsafe { s.engine.register_foreign(s.domain, pages.start(), pages.len(), BASE, access) };
    let text = "on-demand memory cannot serve atomic operations: leave REMOTE_ATOMIC out";
    assert_eq!(refused.unwrap_err().to_string(), text);
    // SAFETY: as above.
    let refused = unsafe { s.engine.register_implicit(s.domain, Access::ALL) };
    assert_eq!(refused.unwrap_err().to_string(), text);
    let capabilities = OnDemandCapabilities::query();
    assert!(capabilities.supported && capabilities.implicit && capabilities.write);
    assert!(capabilities.read && capabilities.send_and_receive && !capabilities.atomic);
    let request = binding(&mut s, WindowKind::Type2B, Access::REMOTE_ATOMIC);
    let request = WindowBind { region: keys.local, address: BASE, length: 64, ..request };
    post_bind(&mut s, 1, request);
    s.expect_sent(1, MemoryWindowBindError);
    s.add_pair();
    s.deliver(fetch_add(0, at(&keys, 0, 8), 1));
    s.expect(nak(0, 0, NakCode::RemoteAccessError));
    s.expect_event(Event::AccessError(1));
    // An ATOMIC WRITE is one store, which the kernel does not promise.
    s.add_pair();
    s.deliver(Frame::new(Message::AtomicWrite(at(&keys, 0, 8)), 0, &[1; 8]));
    s.expect(nak(0, 0, NakCode::RemoteAccessError));
    s.expect_event(Event::AccessError(2));
    assert_eq!(pages.bytes(0, 8), theirs(0, 8));
}

#[test]
fn windows_on_on_demand_memory_grant_what_is_mapped() {
    story(|s| {
        let (pages, keys) = hole(s);
        let request = binding(s, WindowKind::Type2B, Access::REMOTE_WRITE);
        let address = BASE + PAGE as u64 - 64;
        let request = WindowBind { region: keys.local, address, length: 128, ..request };
        let key = bind(s, request);
        let reth = Reth { address, key, length: 64 };
        expect_served(s, 0, reth);
        assert_eq!(pages.bytes(PAGE - 64, 64), theirs(0, 64));
        s.deliver(write_only(1, Reth { address: address + 64, ..reth }, &theirs(0, 64)));
        s.expect(nak(1, 1, NakCode::RemoteAccessError));
        s.expect_event(Event::AccessError(0));
    });
}

#[test]
fn an_implicit_region_is_all_memory_by_its_real_addresses() {
    story(|s| {
        let pages = Pages::new(2);
        pages.unmap(1);
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        // SAFETY: requests name only pages and addresses where nothing is.
        let keys = unsafe { s.engine.register_implicit(s.domain, access) }.unwrap();
        let reth = |address, length| Reth { address, key: keys.remote, length };
        expect_served(s, 0, reth(pages.address() + 16, 24));
        assert_eq!(pages.bytes(16, 24), theirs(0, 24));
        s.memory.write(0, &[7; 8]).unwrap();
        s.deliver(read_request(1, reth(s.memory.address(), 8)));
        s.expect(read_response_only(1, 2, &[7; 8]));
        let bad = [
            pages.address() + PAGE as u64 - 4,
            0,
            8,
            1 << 47,
            u64::MAX - 8,
            u64::MAX - 3,
            0x8000_0000_0000_0000,
        ];
        for (pair, address) in (1..).zip(bad) {
            s.add_pair();
            s.deliver(write_only(0, reth(address, 8), &[1; 8]));
            s.expect(nak(0, 0, NakCode::RemoteAccessError));
            s.expect_event(Event::AccessError(pair));
        }
        // SAFETY: refused.
        let refused = unsafe { s.engine.register_implicit(s.domain, access | Access::ZERO_BASED) };
        assert!(refused.unwrap_err().to_string().starts_with("an implicit region names memory"));
    });
}
