//! Lessons about memory windows.

use std::sync::Arc;

use uroce::memory::{WindowBind, WindowKind};
use uroce::queue::Access;
use uroce::queue::CompletionStatus::MemoryWindowBindError;
use uroce::wire::{NakCode, Reth};

use crate::harness::{
    BASE, Event, Setup, Story, ack, nak, read_request, story, theirs, write_only,
};
use crate::memory_windows::{
    bind, binding, bound, expect_refused, expect_served, post_bind, region,
};

/// Each of these bindings was accepted once.
fn wrong_bindings(s: &mut Story, kind: WindowKind) -> Vec<WindowBind> {
    let write = Access::REMOTE_WRITE;
    let good = binding(s, kind, write);
    let read_only = region(s, Access::MW_BIND);
    let not_bindable = region(s, Access::ALL);
    let elsewhere = s.engine.allocate_domain().unwrap();
    let home = std::mem::replace(&mut s.domain, elsewhere);
    let (foreign_region, foreign_window) =
        (region(s, Access::LOCAL_WRITE | Access::MW_BIND), binding(s, kind, write).window);
    s.domain = home;
    vec![
        WindowBind { region: read_only, ..good },
        WindowBind { region: read_only, access: Access::REMOTE_ATOMIC, ..good },
        WindowBind { region: not_bindable, ..good },
        WindowBind { region: foreign_region, ..good },
        WindowBind { window: foreign_window, ..good },
        // Window and region agree with each other, but not with the queue pair.
        WindowBind { window: foreign_window, region: foreign_region, ..good },
        // Their sums pass 2^64 and come out inside.
        WindowBind { address: BASE + 64, length: 64_u64.wrapping_sub(128), ..good },
        WindowBind { address: u64::MAX - 63, length: 64 + BASE + 64, ..good },
    ]
}

#[test]
fn lesson_32_any_key_may_be_chosen_rights_and_domains_are_compared_and_addresses_do_not_wrap() {
    for kind in [WindowKind::Type1, WindowKind::Type2B] {
        for case in 0..8 {
            story(|s| {
                let wrong = wrong_bindings(s, kind).swap_remove(case);
                post_bind(s, 1, wrong);
                s.expect_sent(1, MemoryWindowBindError);
            });
        }
        let mut s = Story::new(Setup::default());
        for portion in 0..=255 {
            let request = WindowBind { portion, ..binding(&mut s, kind, Access::REMOTE_WRITE) };
            let key = bind(&mut s, request);
            assert_eq!(key.value() as u8, portion);
            let psn = i32::from(portion);
            expect_served(&mut s, psn, Reth { address: request.address, key, length: 8 });
        }
        // The rights of the request count, not those of the binding before.
        story(|s| {
            let first = binding(s, WindowKind::Type1, Access::REMOTE_WRITE);
            bind(s, first);
            let second = WindowBind { portion: 1, access: Access::REMOTE_READ, ..first };
            let key = bind(s, second);
            let reth = Reth { address: first.address, key, length: 8 };
            expect_refused(s, 0, write_only(0, reth, &[1; 8]));
        });
    }
    regions();
}

/// The part of the lesson that concerns regions.
fn regions() {
    story(|s| {
        let memory = Arc::clone(&s.memory);
        let base = u64::MAX - 100;
        let wrapping = s.engine.register_part(s.domain, memory, 0..200, base, Access::ALL);
        assert!(wrapping.unwrap_err().to_string().contains("beyond the end of the address space"));
        let memory = Arc::clone(&s.memory);
        let base = u64::MAX - 64;
        let keys = s.engine.register_part(s.domain, memory, 0..64, base, Access::ALL).unwrap();
        let reth = Reth { address: base, key: keys.remote, length: 64 };
        s.deliver(write_only(0, reth, &theirs(0, 64)).asking());
        s.expect(ack(0, 1));
        let reth = Reth { address: base + 60, length: 8, ..reth };
        s.deliver(write_only(1, reth, &theirs(0, 8)).asking());
        s.expect(nak(1, 1, NakCode::RemoteAccessError));
        s.expect_event(Event::AccessError(0));
    });
    story(|s| {
        let other = s.engine.allocate_domain().unwrap();
        let memory = Arc::clone(&s.memory);
        let keys = s.engine.register_part(other, memory, 0..64, BASE, Access::ALL).unwrap();
        let reth = Reth { address: BASE, key: keys.remote, length: 8 };
        s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
        s.expect(nak(0, 0, NakCode::RemoteAccessError));
        s.expect_event(Event::AccessError(0));
    });
}

#[test]
fn lesson_33_there_is_one_kind_of_type_2_windows_and_it_keeps_its_rules() {
    let type_2: Vec<WindowKind> =
        WindowKind::ALL.into_iter().filter(|kind| *kind != WindowKind::Type1).collect();
    assert_eq!(type_2, [WindowKind::Type2B], "2A is not advertised beside it");
    // What 2A would allow: another queue pair of the domain.
    let setup = Setup { pairs: 2, ..Setup::default() };
    setup.tell(|s| {
        let bind = bound(s, WindowKind::Type2B);
        s.pair = 1;
        let reth = Reth { address: bind.address, key: bind.key(), length: 8 };
        expect_refused(s, 0, read_request(0, reth));
    });
}
