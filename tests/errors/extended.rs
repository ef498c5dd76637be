//! What belongs to memory windows, on-demand memory, extended reliable connections, and the port.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use uroce::engine::{
    AsyncEvent, Engine, Limits, QueuePairOptions, XrcFile, XrcOpen, XrcQueueOptions,
};
use uroce::memory::{OwnedMemory, WindowBind, WindowId, WindowKind};
use uroce::queue::{
    Access, Payload, PostError, QueueCapacities, QueuePairKind, ReceiveRequest, SendFlags,
    SendOperation, SendRequest, Sge,
};
use uroce::verbs::{VerbsError, XrcDomain, XrcDomainOptions};
use uroce::wire::{Lkey, Qpn, Rkey, Srqn};
use uroce::words::explain_root;

use crate::Case;
use crate::calls::{context, engine};
use crate::world::{all, explained, rc, run};
use crate::xrc::World;

pub const CASES: &[Case] = &[
    ("shared_queue", || stray().0),
    ("AsyncEvent.InvalidXrceth", || stray().1),
    ("AsyncEvent.XrcDomainViolation", xrc_violation),
    ("AsyncEvent.DeviceFatal", || reported(AsyncEvent::DeviceFatal)),
    ("AsyncEvent.PortActive", || reported(AsyncEvent::PortActive)),
    ("AsyncEvent.PortError", || reported(AsyncEvent::PortError)),
    ("AsyncEvent.GidChange", || reported(AsyncEvent::GidChange)),
    ("PostError.NoLocalData", no_local_data),
    ("PostError.NoSharedQueueNamed", || initiator(Payload::EMPTY)),
    ("PostError.SharedQueueNamed", shared_queue_named),
    ("PostError.NoSendQueue", no_send_queue),
    ("PostError.NoReceives", no_receives),
    ("ControlError.RegionBusy", region_busy),
    ("ControlError.NoSuchWindow", no_such_window),
    ("ControlError.XrcSharedQueue", || sharing(QueuePairKind::Rc)),
    ("ControlError.InitiatorWithReceives", || sharing(QueuePairKind::XrcInitiator)),
    ("ControlError.TargetWithoutXrcDomain", || sharing(QueuePairKind::XrcTarget)),
    ("ControlError.NoSuchXrcDomain", no_such_xrc_domain),
    ("ControlError.NoXrcDomainOfFile", no_xrc_domain_of_file),
    ("ControlError.XrcDomainExists", xrc_domain_exists),
    ("ControlError.XrcDomainBusy", xrc_domain_busy),
    ("ControlError.NoSuchTarget", no_such_target),
    ("RegisterError.NotPersistent", || register(Access::LOCAL_WRITE | Access::FLUSH_PERSISTENT)),
    ("RegisterError.OnDemandAtomic", on_demand_atomic),
    ("RegisterError.ImplicitZeroBased", implicit_zero_based),
    ("RegisterError.AddressingChanged", || reregister(Some(Access::ZERO_BASED))),
    ("RegisterError.NothingToChange", || reregister(None)),
    ("VerbsError.WindowKind", window_kind),
    ("VerbsError.XrcFile", || crate::calls::without("XRC")),
];

fn fresh() -> Engine {
    engine(Limits::default())
}

/// A number that no shared receive queue has: the explanation, and the event.
fn stray() -> (String, String) {
    let mut world = World::new(1);
    world.post(0, Srqn::new(77), 1, SendOperation::Send, (0, 10));
    world.run();
    told(&mut world, |event| matches!(event, AsyncEvent::InvalidXrceth(_)))
}

fn told(world: &mut World, wanted: impl Fn(&AsyncEvent) -> bool) -> (String, String) {
    let number = world.targets[0].number();
    let history = world.sides[1].engine.history(number).unwrap();
    let events = world.effects(1).events;
    let event = events.iter().find(|event| wanted(event)).expect("the event");
    (explain_root(&history).expect("a reason").to_string(), event.to_string())
}

fn xrc_violation() -> String {
    let mut world = World::new(1);
    let foreign = world.sides[1].engine.open_xrc_domain(&XrcOpen::default()).unwrap();
    world.xrc_domain = foreign;
    let queue = world.create_queue(4);
    world.post_receive(&queue, 1, 0, 4096);
    world.post(0, queue.number().unwrap(), 1, SendOperation::Send, (0, 10));
    world.run();
    let (why, event) = told(&mut world, |event| matches!(event, AsyncEvent::XrcDomainViolation(_)));
    assert!(why.contains("another XRC domain"), "{why}");
    event
}

/// What the attendant of the interface reports.
fn reported(event: AsyncEvent) -> String {
    let mut engine = fresh();
    engine.report(event);
    let mut effects = uroce::engine::Effects::default();
    engine.take_effects(&mut effects);
    effects.events[0].to_string()
}

fn no_local_data() -> String {
    let pair = rc(&|_, _| {});
    let operation = SendOperation::AtomicWrite { remote: pair.remote(1, 0), value: [1; 8] };
    let segments = [Sge { address: 0, length: 8, key: Lkey::new(1) }];
    let payload = Payload::Segments(&segments);
    let request = SendRequest { id: 1, operation, flags: SendFlags::SIGNALED, payload };
    pair.sides[0].queues.post_one_send(&request).unwrap_err().to_string()
}

fn request(payload: Payload<'_>) -> SendRequest<'_> {
    SendRequest { id: 1, operation: SendOperation::Send, flags: SendFlags::SIGNALED, payload }
}

fn initiator(payload: Payload<'_>) -> String {
    let world = World::new(1);
    world.initiators[0].post_one_send(&request(payload)).unwrap_err().to_string()
}

fn shared_queue_named() -> String {
    let pair = rc(&|_, _| {});
    let requests = [request(Payload::EMPTY)];
    let (_, outcome): (usize, Result<(), PostError>) =
        pair.sides[0].queues.post_send_to(Srqn::new(7), &requests);
    outcome.unwrap_err().to_string()
}

fn no_send_queue() -> String {
    let world = World::new(1);
    world.targets[0].post_one_send(&request(Payload::EMPTY)).unwrap_err().to_string()
}

fn no_receives() -> String {
    let world = World::new(1);
    let receive = ReceiveRequest { id: 1, segments: &[] };
    world.initiators[0].post_one_receive(&receive).unwrap_err().to_string()
}

/// A region with a window bound to it.
fn region_busy() -> String {
    let mut pair = rc(&|_, _| {});
    let memory = OwnedMemory::new(4096);
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let side = &mut pair.sides[0];
    let keys = side.engine.register(side.domain, Arc::clone(&memory), access).unwrap();
    let key = side.engine.allocate_window(side.domain, WindowKind::Type2B).unwrap();
    let bind = WindowBind {
        window: WindowId::of_key(key),
        kind: WindowKind::Type2B,
        portion: 1,
        region: keys.local,
        address: memory.address(),
        length: 64,
        access: Access::REMOTE_WRITE,
    };
    let operation = SendOperation::BindWindow(bind);
    pair.post_payload(0, 7, operation, SendFlags::SIGNALED, Payload::EMPTY);
    run(&mut pair, all);
    assert!(pair.completion(0).status.is_success());
    pair.sides[0].engine.deregister(keys.local).unwrap_err().to_string()
}

fn no_such_window() -> String {
    let window = WindowId::of_key(Rkey::new(0x7700));
    fresh().deallocate_window(window).unwrap_err().to_string()
}

/// A queue pair of a kind on an XRC shared receive queue.
fn sharing(kind: QueuePairKind) -> String {
    let mut world = World::new(1);
    let queue = world.create_queue(4);
    let side = &mut world.sides[1];
    let options = QueuePairOptions {
        kind,
        domain: side.domain,
        send_completions: Arc::clone(&side.completions),
        receive_completions: Arc::clone(&side.completions),
        capacities: QueueCapacities::default(),
        signal_all: false,
    };
    let refused = side.engine.create_queue_pair_sharing(&options, Some(&queue));
    refused.err().expect("it is refused").to_string()
}

fn no_such_xrc_domain() -> String {
    let mut engine = fresh();
    let domain = engine.open_xrc_domain(&XrcOpen::default()).unwrap();
    engine.close_xrc_domain(domain).unwrap();
    engine.close_xrc_domain(domain).unwrap_err().to_string()
}

const FILE: XrcFile = XrcFile { device: 1, inode: 2 };

fn no_xrc_domain_of_file() -> String {
    let open = XrcOpen { file: Some(FILE), ..XrcOpen::default() };
    fresh().open_xrc_domain(&open).unwrap_err().to_string()
}

fn xrc_domain_exists() -> String {
    let mut engine = fresh();
    let open = XrcOpen { file: Some(FILE), create: true, exclusive: true };
    engine.open_xrc_domain(&open).unwrap();
    engine.open_xrc_domain(&open).unwrap_err().to_string()
}

fn xrc_domain_busy() -> String {
    let mut engine = fresh();
    let xrc_domain = engine.open_xrc_domain(&XrcOpen::default()).unwrap();
    let domain = engine.allocate_domain().unwrap();
    let completions = engine.create_completion_queue(16).unwrap();
    let options = XrcQueueOptions { domain, xrc_domain, completions, requests: 1, segments: 1 };
    engine.create_xrc_shared_receive_queue(&options).unwrap();
    engine.close_xrc_domain(xrc_domain).unwrap_err().to_string()
}

fn no_such_target() -> String {
    let mut engine = fresh();
    let domain = engine.open_xrc_domain(&XrcOpen::default()).unwrap();
    let refused = engine.open_xrc_target(domain, Qpn::new(0x77));
    refused.err().expect("it is refused").to_string()
}

fn register(access: Access) -> String {
    let mut engine = fresh();
    let domain = engine.allocate_domain().unwrap();
    engine.register(domain, OwnedMemory::new(4096), access).unwrap_err().to_string()
}

fn on_demand_atomic() -> String {
    let mut engine = fresh();
    let domain = engine.allocate_domain().unwrap();
    let access = Access::ON_DEMAND | Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let start = std::ptr::without_provenance_mut(0x1000);
    // SAFETY: it is refused before anything is done with the range.
    let refused = unsafe { engine.register_foreign(domain, start, 4096, 0x1000, access) };
    refused.unwrap_err().to_string()
}

fn implicit_zero_based() -> String {
    let mut engine = fresh();
    let domain = engine.allocate_domain().unwrap();
    // SAFETY: it is refused before anything is done.
    let refused = unsafe { engine.register_implicit(domain, Access::ZERO_BASED) };
    refused.unwrap_err().to_string()
}

fn reregister(access: Option<Access>) -> String {
    let mut engine = fresh();
    let domain = engine.allocate_domain().unwrap();
    let keys = engine.register(domain, OwnedMemory::new(4096), Access::NONE).unwrap();
    engine.reregister(keys.local, None, None, access).unwrap_err().to_string()
}

fn window_kind() -> String {
    let context = context();
    let domain = context.allocate_domain().unwrap();
    let completions = context.create_completion_queue(4).unwrap();
    let options = uroce::verbs::QueuePairOptions::new(&completions);
    let pair = domain.create_queue_pair(&options).unwrap();
    let region = domain.allocate(64, Access::MW_BIND).unwrap();
    let window = domain.allocate_window(WindowKind::Type2B).unwrap();
    let bound = pair.bind_window(1, &window, &region, 0..8, Access::NONE, SendFlags::SIGNALED);
    bound.unwrap_err().to_string()
}

/// For the process without descriptors: the XRC domain of a file.
pub fn open_xrc_domain(
    context: &uroce::verbs::Context,
    file: &File,
) -> Result<XrcDomain, VerbsError> {
    let options =
        XrcDomainOptions { file: Some(file.as_fd()), create: true, ..XrcDomainOptions::default() };
    context.open_xrc_domain(&options)
}

/// ATOMIC WRITE and FLUSH are refused with their own words, too.
#[test]
fn an_atomic_write_beyond_its_memory_is_measured_at_the_responder() {
    let mut pair = rc(&|_, _| {});
    let remote = pair.remote(1, crate::pair::Ends::MEMORY);
    let operation = SendOperation::AtomicWrite { remote, value: [7; 8] };
    pair.post_payload(0, 7, operation, SendFlags::SIGNALED, Payload::EMPTY);
    run(&mut pair, all);
    let text = explained(&mut pair, 0);
    assert!(text.contains("ATOMIC WRITE was refused"), "{text}");
    let other = crate::world::root(&pair, 1);
    assert!(other.contains("8 bytes at") && other.contains("8 bytes beyond it"), "{other}");
}
