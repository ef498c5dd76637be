//! Each rule by which a memory window is not bound, and on-demand memory that goes away.
#![allow(unsafe_code)]

use std::sync::Arc;

use uroce::memory::{OwnedMemory, WindowBind, WindowId, WindowKind};
use uroce::queue::{Access, Payload, Remote, SendFlags, SendOperation};
use uroce::wire::{Lkey, Rkey};

use crate::Case;
use crate::pages::{PAGE, Pages};
use crate::pair::Pair;
use crate::world::{all, explained, post, rc, root, run};

pub const CASES: &[Case] = &[
    ("cannot_bind.no_such_window", || {
        refused(BINDABLE, |bind| bind.window = WindowId::of_key(Rkey::new(0x7700_0000)))
    }),
    ("cannot_bind.wrong_kind", || refused(BINDABLE, |bind| bind.kind = WindowKind::Type1)),
    ("cannot_bind.wrong_domain", wrong_domain),
    ("cannot_bind.already_bound", already_bound),
    ("cannot_bind.no_length", || refused(BINDABLE, |bind| bind.length = 0)),
    ("cannot_bind.rights", || refused(BINDABLE, |bind| bind.access = Access::LOCAL_WRITE)),
    ("cannot_bind.no_such_region", || {
        refused(BINDABLE, |bind| bind.region = Lkey::new(0x7700_0000))
    }),
    ("cannot_bind.not_bindable", || refused(Access::LOCAL_WRITE, |_| {})),
    ("cannot_bind.needs_local_write", || refused(Access::MW_BIND, |_| {})),
    ("cannot_bind.out_of_bounds", || refused(BINDABLE, |bind| bind.length = 5000)),
    ("cannot_bind.not_flushable", || refused(BINDABLE, |bind| bind.access = Access::FLUSH_GLOBAL)),
    ("cannot_bind.on_demand_atomic", on_demand_atomic),
    ("read_failed.unmapped", unmapped_while_read),
];

const BINDABLE: Access = Access::LOCAL_WRITE.union(Access::MW_BIND);

/// A bind request of side 0 for all of a new region of 4096 bytes.
fn request(pair: &mut Pair, access: Access) -> WindowBind {
    let side = &mut pair.sides[0];
    let memory = OwnedMemory::new(4096);
    let keys = side.engine.register(side.domain, Arc::clone(&memory), access).unwrap();
    let key = side.engine.allocate_window(side.domain, WindowKind::Type2B).unwrap();
    WindowBind {
        window: side.engine.window_of(key).unwrap(),
        kind: WindowKind::Type2B,
        portion: 1,
        region: keys.local,
        address: memory.address(),
        length: 4096,
        access: Access::REMOTE_WRITE,
    }
}

fn post_bind(pair: &mut Pair, bind: WindowBind) {
    let operation = SendOperation::BindWindow(bind);
    pair.post_payload(0, 7, operation, SendFlags::SIGNALED, Payload::EMPTY);
}

fn told(pair: &mut Pair, bind: WindowBind) -> String {
    post_bind(pair, bind);
    run(pair, all);
    explained(pair, 0)
}

/// What is said to a request with one thing wrong, for a region with these rights.
fn refused(region: Access, spoil: fn(&mut WindowBind)) -> String {
    let mut pair = rc(&|_, _| {});
    let mut bind = request(&mut pair, region);
    spoil(&mut bind);
    told(&mut pair, bind)
}

/// The window lies in another domain than the queue pair.
fn wrong_domain() -> String {
    let mut pair = rc(&|_, _| {});
    let mut bind = request(&mut pair, BINDABLE);
    let side = &mut pair.sides[0];
    let domain = side.engine.allocate_domain().unwrap();
    let key = side.engine.allocate_window(domain, WindowKind::Type2B).unwrap();
    bind.window = WindowId::of_key(key);
    told(&mut pair, bind)
}

fn already_bound() -> String {
    let mut pair = rc(&|_, _| {});
    let bind = request(&mut pair, BINDABLE);
    post_bind(&mut pair, bind);
    run(&mut pair, all);
    assert!(pair.completion(0).status.is_success());
    told(&mut pair, bind)
}

fn on_demand_atomic() -> String {
    let mut pair = rc(&|_, _| {});
    let mut bind = request(&mut pair, BINDABLE);
    let pages = Pages::new(1);
    let side = &mut pair.sides[0];
    let base = pages.start() as u64;
    let access = BINDABLE | Access::ON_DEMAND;
    // SAFETY: no reference is made to the pages.
    let keys = unsafe {
        side.engine.register_foreign(side.domain, pages.start(), pages.len(), base, access)
    };
    (bind.region, bind.address, bind.length) = (keys.unwrap().local, base, 8);
    bind.access = Access::REMOTE_ATOMIC;
    told(&mut pair, bind)
}

/// The second of two pages that a peer reads is not mapped.
fn unmapped_while_read() -> String {
    let mut pair = rc(&|_, _| {});
    let pages = Pages::new(2);
    pages.unmap(1);
    let side = &mut pair.sides[1];
    let base = pages.start() as u64;
    let access = Access::REMOTE_READ | Access::ON_DEMAND;
    // SAFETY: no reference is made to the pages.
    let keys = unsafe {
        side.engine.register_foreign(side.domain, pages.start(), pages.len(), base, access)
    };
    let remote = Remote { address: base, key: keys.unwrap().remote };
    post(&mut pair, SendOperation::Read(remote), 2 * PAGE);
    run(&mut pair, all);
    root(&pair, 1)
}
