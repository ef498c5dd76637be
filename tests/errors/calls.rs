//! Calls that are refused: which attribute, which limit, which rule, and what to do.

use std::sync::Arc;

use uroce::engine::{ControlError, Engine, EngineOptions, Limits, QueuePairOptions};
use uroce::link::MemoryLink;
use uroce::link::memory::{MemoryOptions, pair as links};
use uroce::memory::OwnedMemory;
use uroce::queue::{
    Access, AddressVector, Attribute, CompletionQueue, PathMtu, Payload, PostError,
    QueueCapacities, QueuePairAttributes, QueuePairKind, QueuePairState, ReceiveRequest, SendFlags,
    SendOperation, SendRequest, Sge,
};
use uroce::software::DeviceOptions;
use uroce::time::Instant;
use uroce::verbs::{CompletionChannel, Context, VerbsError};
use uroce::wire::{Lkey, NetworkArea, Psn, QKey, Qpn};

use crate::Case;
use crate::pair::Pair;
use crate::world::rc;

pub const CASES: &[Case] = &[
    ("ModifyError.NoTransition", || modify(to(QueuePairState::Rts))),
    ("ModifyError.Missing", || modify(to(QueuePairState::Init))),
    ("ModifyError.NotAllowed", not_allowed),
    ("ModifyError.NoPathMigration", no_path_migration),
    ("ModifyError.CurrentState", current_state),
    ("ModifyError.Value", || rtr(&|all| all.min_rnr_timer = Some(40))),
    ("ModifyError.OverLimit", || rtr(&|all| all.max_destination_rd_atomic = Some(200))),
    ("ModifyError.NoSuchGid", || {
        rtr(&|all| all.address = Some(AddressVector::new(3, PEER.into())))
    }),
    ("ModifyError.AddressFamily", address_family),
    ("ModifyError.NotAPeer", || {
        rtr(&|all| all.address = Some(AddressVector::new(0, [224, 0, 0, 1].into())))
    }),
    ("ModifyError.PathMtuTooLarge", path_mtu_too_large),
    ("PostError.QueueFull", queue_full),
    ("PostError.WrongState", wrong_state),
    ("PostError.TooManySegments", too_many_segments),
    ("PostError.InlineTooLong", || send(SendOperation::Send, Payload::Inline(&[0; 65]))),
    ("PostError.InlineTarget", inline_target),
    ("PostError.MessageTooLong", message_too_long),
    ("PostError.SharedReceiveQueue", shared_receive_queue),
    ("PostError.NotSupported", not_supported),
    ("ControlError.Limit", limit),
    ("ControlError.Range", || refused(|engine| engine.create_completion_queue(0).map(drop))),
    ("ControlError.NoSuchDomain", no_such_domain),
    ("ControlError.DomainBusy", domain_busy),
    ("ControlError.NoSuchKey", || refused(|engine| engine.deregister(Lkey::new(0x77)))),
    ("ControlError.NoSuchQueue", no_such_queue),
    ("ControlError.CompletionQueueBusy", completion_queue_busy),
    ("ControlError.NoSuchSharedQueue", no_such_shared_queue),
    ("ControlError.SharedQueueBusy", shared_queue_busy),
    ("ControlError.NoSuchPair", || refused(|engine| engine.destroy_queue_pair(Qpn::new(0x77)))),
    ("ControlError.NoSuchHandle", no_such_handle),
    ("RegisterError.TooMany", too_many_regions),
    ("RegisterError.RemoteWithoutLocalWrite", || register(Access::REMOTE_WRITE, 4096)),
    ("RegisterError.AddressOverflow", address_overflow),
    ("AccessError.OutOfBounds", || OwnedMemory::new(8).write(4, &[0; 8]).unwrap_err().to_string()),
    ("AccessError.Misaligned", || OwnedMemory::new(64).load_u64(4).unwrap_err().to_string()),
    ("MappingError.Unmapped", || mapped(8, 8, false)),
    ("MappingError.Forbidden", forbidden),
    ("MappingError.Overflow", || mapped(usize::MAX - 4, 8, false)),
    ("VerbsError.NoCompletion", no_completion),
    ("VerbsError.NoSuchGid", || context().gid(9).unwrap_err().to_string()),
    ("VerbsError.NoNetworkHeader", || of_sender(&[0; 40])),
    ("VerbsError.SentElsewhere", sent_elsewhere),
    ("VerbsError.Channel", channel),
    ("VerbsError.HasChannel", has_channel),
    ("VerbsError.OutOfMemory", out_of_memory),
];

const PEER: [u8; 4] = [10, 0, 0, 2];

fn to(state: QueuePairState) -> QueuePairAttributes {
    QueuePairAttributes::to_state(state)
}

/// A pair whose side 0 has a fresh queue pair in RESET.
fn fresh() -> (Pair, Qpn) {
    let mut pair = rc(&|_, _| {});
    let side = &mut pair.sides[0];
    let options = QueuePairOptions {
        kind: QueuePairKind::Rc,
        domain: side.domain,
        send_completions: Arc::clone(&side.completions),
        receive_completions: Arc::clone(&side.completions),
        capacities: QueueCapacities::default(),
        signal_all: false,
    };
    let number = side.engine.create_queue_pair(&options).unwrap().number();
    (pair, number)
}

/// What modify says to a queue pair in RESET.
fn modify(attributes: QueuePairAttributes) -> String {
    let (mut pair, number) = fresh();
    modify_of(&mut pair, number, &attributes).unwrap_err().to_string()
}

fn modify_of(
    pair: &mut Pair,
    number: Qpn,
    attributes: &QueuePairAttributes,
) -> Result<(), ControlError> {
    pair.sides[0].engine.modify_queue_pair(Instant::ZERO, number, attributes)
}

fn to_init(pair: &mut Pair, number: Qpn) {
    let init = QueuePairAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::ALL),
        ..to(QueuePairState::Init)
    };
    modify_of(pair, number, &init).unwrap();
}

/// What the step to RTR says to attributes of which one is wrong.
fn rtr(wrong: &dyn Fn(&mut QueuePairAttributes)) -> String {
    let (mut pair, number) = fresh();
    to_init(&mut pair, number);
    let mut attributes = right_rtr();
    wrong(&mut attributes);
    let state =
        |pair: &Pair| pair.sides[0].engine.query_queue_pair(number).unwrap().attributes.state;
    let error = modify_of(&mut pair, number, &attributes).unwrap_err();
    assert_eq!(state(&pair), Some(QueuePairState::Init), "nothing has changed");
    error.to_string()
}

fn right_rtr() -> QueuePairAttributes {
    QueuePairAttributes {
        address: Some(AddressVector::new(0, PEER.into())),
        path_mtu: Some(PathMtu::Mtu1024),
        destination: Some(Qpn::new(0x10_0001)),
        receive_psn: Some(Psn::new(1)),
        max_destination_rd_atomic: Some(1),
        min_rnr_timer: Some(12),
        ..to(QueuePairState::Rtr)
    }
}

fn not_allowed() -> String {
    let mut all = to(QueuePairState::Init);
    (all.pkey_index, all.port, all.access) = (Some(0), Some(1), Some(Access::ALL));
    modify(QueuePairAttributes { qkey: Some(QKey::new(1)), ..all })
}

fn no_path_migration() -> String {
    rtr(&|all| all.alternate_path = Some(AddressVector::new(0, PEER.into())))
}

fn current_state() -> String {
    let mut pair = rc(&|_, _| {});
    let number = pair.sides[0].queues.number();
    let claim =
        QueuePairAttributes { current_state: Some(QueuePairState::Rtr), ..to(QueuePairState::Rts) };
    modify_of(&mut pair, number, &claim).unwrap_err().to_string()
}

fn address_family() -> String {
    rtr(&|all| all.address = Some(AddressVector::new(0, "fd00::2".parse().unwrap())))
}

/// On an interface with the MTU of Ethernet.
fn path_mtu_too_large() -> String {
    let mut engine = engine(Limits::default());
    let (queues, _) = pair_on(&mut engine);
    let init = QueuePairAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::ALL),
        ..to(QueuePairState::Init)
    };
    engine.modify_queue_pair(Instant::ZERO, queues, &init).unwrap();
    let attributes = QueuePairAttributes { path_mtu: Some(PathMtu::Mtu4096), ..right_rtr() };
    engine.modify_queue_pair(Instant::ZERO, queues, &attributes).unwrap_err().to_string()
}

/// What posting says on a queue pair in RTS.
fn send(operation: SendOperation, payload: Payload<'_>) -> String {
    let pair = rc(&|_, _| {});
    post(&pair, operation, payload).unwrap_err().to_string()
}

fn post(pair: &Pair, operation: SendOperation, payload: Payload<'_>) -> Result<(), PostError> {
    let request = SendRequest { id: 7, operation, flags: SendFlags::SIGNALED, payload };
    pair.sides[0].queues.post_one_send(&request)
}

fn queue_full() -> String {
    let pair = rc(&|_, _| {});
    loop {
        if let Err(error) = post(&pair, SendOperation::Send, Payload::EMPTY) {
            return error.to_string();
        }
    }
}

fn wrong_state() -> String {
    let (mut pair, number) = fresh();
    to_init(&mut pair, number);
    let side = &mut pair.sides[0];
    side.engine
        .modify_queue_pair(Instant::ZERO, side.queues.number(), &to(QueuePairState::Reset))
        .unwrap();
    post(&pair, SendOperation::Send, Payload::EMPTY).unwrap_err().to_string()
}

fn too_many_segments() -> String {
    let segment = Sge { address: 0, length: 1, key: Lkey::new(1) };
    send(SendOperation::Send, Payload::Segments(&[segment; 9]))
}

fn inline_target() -> String {
    let pair = rc(&|_, _| {});
    let operation = SendOperation::Read(pair.remote(1, 0));
    post(&pair, operation, Payload::Inline(&[0; 8])).unwrap_err().to_string()
}

fn message_too_long() -> String {
    let segment = Sge { address: 0, length: 0x8000_0001, key: Lkey::new(1) };
    send(SendOperation::Send, Payload::Segments(&[segment]))
}

fn shared_receive_queue() -> String {
    let pair = Pair::sharing_receives(QueuePairKind::Rc, PathMtu::Mtu1024, 8);
    let request = ReceiveRequest { id: 1, segments: &[] };
    pair.sides[1].queues.post_one_receive(&request).unwrap_err().to_string()
}

fn not_supported() -> String {
    let pair = Pair::of_kind(QueuePairKind::Uc, PathMtu::Mtu1024, Access::ALL);
    let operation = SendOperation::Read(pair.remote(1, 0));
    post(&pair, operation, Payload::EMPTY).unwrap_err().to_string()
}

fn link() -> MemoryLink {
    let addresses = [[10, 0, 0, 1].into(), PEER.into()];
    links(addresses, &MemoryOptions { mtu: 1500, ..MemoryOptions::default() }).unwrap().0
}

pub fn engine(limits: Limits) -> Engine {
    use uroce::engine::Port;
    let options = EngineOptions { limits, ..EngineOptions::new(1, vec![[10, 0, 0, 1].into()]) };
    Engine::new(options, link().capabilities())
}

/// What an engine says to a call.
fn refused(call: impl FnOnce(&mut Engine) -> Result<(), ControlError>) -> String {
    call(&mut engine(Limits::default())).unwrap_err().to_string()
}

fn pair_on(engine: &mut Engine) -> (Qpn, Arc<CompletionQueue>) {
    let domain = engine.allocate_domain().unwrap();
    let completions = engine.create_completion_queue(16).unwrap();
    let options = QueuePairOptions {
        kind: QueuePairKind::Rc,
        domain,
        send_completions: Arc::clone(&completions),
        receive_completions: Arc::clone(&completions),
        capacities: QueueCapacities::default(),
        signal_all: false,
    };
    (engine.create_queue_pair(&options).unwrap().number(), completions)
}

fn limit() -> String {
    let mut engine = engine(Limits { domains: 1, ..Limits::default() });
    engine.allocate_domain().unwrap();
    engine.allocate_domain().unwrap_err().to_string()
}

fn no_such_domain() -> String {
    let mut engine = engine(Limits::default());
    let domain = engine.allocate_domain().unwrap();
    engine.release_domain(domain).unwrap();
    engine.release_domain(domain).unwrap_err().to_string()
}

fn domain_busy() -> String {
    let mut engine = engine(Limits::default());
    let domain = engine.allocate_domain().unwrap();
    engine.register(domain, OwnedMemory::new(8), Access::NONE).unwrap();
    engine.release_domain(domain).unwrap_err().to_string()
}

fn no_such_queue() -> String {
    let mut engine = engine(Limits::default());
    let queue = engine.create_completion_queue(1).unwrap();
    engine.destroy_completion_queue(&queue).unwrap();
    engine.destroy_completion_queue(&queue).unwrap_err().to_string()
}

fn completion_queue_busy() -> String {
    let mut engine = engine(Limits::default());
    let (_, queue) = pair_on(&mut engine);
    engine.destroy_completion_queue(&queue).unwrap_err().to_string()
}

fn no_such_shared_queue() -> String {
    let mut engine = engine(Limits::default());
    let domain = engine.allocate_domain().unwrap();
    let queue = engine.create_shared_receive_queue(domain, 1, 1).unwrap();
    engine.destroy_shared_receive_queue(&queue).unwrap();
    engine.destroy_shared_receive_queue(&queue).unwrap_err().to_string()
}

fn shared_queue_busy() -> String {
    let mut pair = Pair::sharing_receives(QueuePairKind::Rc, PathMtu::Mtu1024, 8);
    let side = &mut pair.sides[1];
    let queue = Arc::clone(side.shared.as_ref().unwrap());
    side.engine.destroy_shared_receive_queue(&queue).unwrap_err().to_string()
}

fn no_such_handle() -> String {
    let mut engine = engine(Limits::default());
    let domain = engine.allocate_domain().unwrap();
    let address = AddressVector::new(0, PEER.into());
    let handle = engine.create_address_handle(domain, &address).unwrap();
    engine.destroy_address_handle(handle).unwrap();
    engine.destroy_address_handle(handle).unwrap_err().to_string()
}

fn register(access: Access, length: usize) -> String {
    let mut engine = engine(Limits::default());
    let domain = engine.allocate_domain().unwrap();
    engine.register(domain, OwnedMemory::new(length), access).unwrap_err().to_string()
}

fn too_many_regions() -> String {
    let mut engine = engine(Limits { regions: 1, ..Limits::default() });
    let domain = engine.allocate_domain().unwrap();
    engine.register(domain, OwnedMemory::new(8), Access::NONE).unwrap();
    engine.register(domain, OwnedMemory::new(8), Access::NONE).unwrap_err().to_string()
}

fn address_overflow() -> String {
    let mut engine = engine(Limits::default());
    let domain = engine.allocate_domain().unwrap();
    let registered =
        engine.register_part(domain, OwnedMemory::new(8), 0..8, u64::MAX - 3, Access::NONE);
    registered.unwrap_err().to_string()
}

fn mapped(start: usize, length: usize, write: bool) -> String {
    uroce::host::check_mapped(start, length, write).unwrap_err().to_string()
}

/// A string of the program itself can be read and not written.
fn forbidden() -> String {
    mapped("a string".as_ptr() as usize, 8, true)
}

/// A device over a link in memory: no socket is needed.
pub fn context() -> Context {
    let options = DeviceOptions { seed: Some(1), ..DeviceOptions::default() };
    Context::over(&options, Box::new(link())).unwrap()
}

fn no_completion() -> String {
    let queue = context().create_completion_queue(1).unwrap();
    queue.wait_one(std::time::Duration::from_millis(1)).unwrap_err().to_string()
}

fn has_channel() -> String {
    let queue = context().create_completion_queue(1).unwrap();
    CompletionChannel::new().unwrap().attach(&queue, 0).unwrap();
    CompletionChannel::new().unwrap().attach(&queue, 0).unwrap_err().to_string()
}

fn of_sender(area: &[u8; 40]) -> String {
    let domain = context().allocate_domain().unwrap();
    domain.create_address_handle_of_sender(area).unwrap_err().to_string()
}

fn sent_elsewhere() -> String {
    let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    of_sender(&NetworkArea { source, destination, traffic_class: 0, flow_label: 0 }.emit(100))
}

fn out_of_memory() -> String {
    let domain = context().allocate_domain().unwrap();
    domain.allocate(1 << 60, Access::NONE).unwrap_err().to_string()
}

fn channel() -> String {
    without("CHANNEL")
}

/// What the child below says about one thing; it may have only a few files open.
pub fn without(what: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let run =
        "ulimit -n 40 && exec \"$0\" calls::without_descriptors --exact --ignored --nocapture";
    let child = std::process::Command::new("sh").args(["-c", run]).arg(program).output().unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once(&format!("{what} SAYS ")));
    let lacks = || panic!("{text}{}", String::from_utf8_lossy(&child.stderr));
    line.unwrap_or_else(lacks).1.to_owned()
}

/// The error of `attempt` when channels, kept in `channels`, have used up all descriptors. A thread
/// of the library can close one in the meantime, so this tries until it is refused.
pub fn without_a_free_descriptor<T, E: std::fmt::Display>(
    channels: &mut Vec<CompletionChannel>,
    attempt: impl Fn() -> Result<T, E>,
) -> E {
    for _ in 0..100 {
        channels.extend(std::iter::from_fn(|| CompletionChannel::new().ok()));
        if let Err(error) = attempt() {
            return error;
        }
    }
    panic!("there is always a free descriptor, with {} channels", channels.len());
}

#[test]
#[ignore = "a part of other tests, which start it with a limit on open files"]
fn without_descriptors() {
    let context = context();
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut channels = Vec::new();
    let error = without_a_free_descriptor(&mut channels, CompletionChannel::new);
    assert!(matches!(error, VerbsError::Channel(_)));
    println!("CHANNEL SAYS {error}");
    let error = without_a_free_descriptor(&mut channels, || {
        crate::extended::open_xrc_domain(&context, &file)
    });
    println!("XRC SAYS {error}");
    crate::system::say_without_descriptors(channels);
}

/// Every attribute that a step needs is named when it is missing (users ask "which one?").
#[test]
fn each_missing_attribute_is_named() {
    type Take = fn(&mut QueuePairAttributes);
    let takes: [(Attribute, Take); 6] = [
        (Attribute::AddressVector, |all| all.address = None),
        (Attribute::PathMtu, |all| all.path_mtu = None),
        (Attribute::Destination, |all| all.destination = None),
        (Attribute::ReceivePsn, |all| all.receive_psn = None),
        (Attribute::MaxDestinationRdAtomic, |all| all.max_destination_rd_atomic = None),
        (Attribute::MinRnrTimer, |all| all.min_rnr_timer = None),
    ];
    for (attribute, take) in takes {
        let text = rtr(&take);
        assert!(
            text.starts_with(&format!("attribute {attribute} is missing: INIT to RTR")),
            "{text}"
        );
    }
}
