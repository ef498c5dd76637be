//! Memory windows, re-registration, on-demand and implicit memory through verbs, over real sockets
//! on `lo`.
#![allow(unsafe_code, reason = "memory that someone else keeps")]

mod common;
#[path = "common/pages.rs"]
mod pages;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pages::{PAGE, Pages};
use uroce::verbs::{
    Access, Attachment, Completion, CompletionKind, CompletionQueue, CompletionStatus,
    ConnectOptions, Context, MemoryRegion, MemoryWindow, OwnedMemory, Payload, ProtectionDomain,
    QueuePair, QueuePairKind, QueuePairOptions, RegionChange, SendFlags, SendOperation,
    SendRequest, VerbsError, WindowBind, WindowKind, connect_pair, open,
};

const PATIENCE: Duration = Duration::from_secs(30);
const READ_WRITE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);
const BINDABLE: Access = Access::LOCAL_WRITE.union(Access::MW_BIND);

/// Two connected queue pairs of one device: ours, and one that plays the peer.
struct Both {
    context: Context,
    domain: ProtectionDomain,
    completions: [CompletionQueue; 2],
    pairs: [QueuePair; 2],
    /// The peer's memory.
    source: MemoryRegion,
}

impl Both {
    fn new(kind: QueuePairKind) -> Self {
        let context = open("lo").unwrap();
        let domain = context.allocate_domain().unwrap();
        Self::in_domain(context, domain, kind)
    }

    fn in_domain(context: Context, domain: ProtectionDomain, kind: QueuePairKind) -> Self {
        let completions = [0, 1].map(|_| context.create_completion_queue(64).unwrap());
        let pair = |queue: usize| {
            let options = QueuePairOptions { kind, ..QueuePairOptions::new(&completions[queue]) };
            domain.create_queue_pair(&options).unwrap()
        };
        let pairs = [pair(0), pair(1)];
        connect_pair(&pairs[0], &pairs[1], &ConnectOptions::default()).unwrap();
        let source = domain.allocate(1 << 16, Access::ALL).unwrap();
        source.write(0, &pattern(1 << 16)).unwrap();
        Self { context, domain, completions, pairs, source }
    }

    /// Another connection in the same domain.
    fn beside(&self) -> Self {
        Self::in_domain(self.context.clone(), self.domain.clone(), self.pairs[0].kind())
    }

    fn next(&self, side: usize) -> Completion {
        self.completions[side].wait_one(PATIENCE).unwrap()
    }

    /// We carry out a local operation.
    #[track_caller]
    fn local(&self, operation: SendOperation) -> CompletionStatus {
        self.pairs[0].post_send(&request(operation)).unwrap();
        self.next(0).status
    }

    #[track_caller]
    fn bind(&self, bind: WindowBind) {
        assert_eq!(self.local(SendOperation::BindWindow(bind)), CompletionStatus::Success);
    }

    /// The peer writes so many bytes to a place of ours; how that ended.
    fn write(&self, remote: uroce::verbs::Remote, length: usize) -> CompletionStatus {
        let operation = SendOperation::Write(remote);
        self.pairs[1].post(5, operation, self.source.segment(0, length)).unwrap();
        let done = self.next(1);
        assert_eq!(done.id, 5);
        done.status
    }

    /// The peer reads so many bytes of ours behind what it writes from.
    fn read(&self, remote: uroce::verbs::Remote, length: usize) -> CompletionStatus {
        let target = self.source.segment(1 << 15, length);
        self.pairs[1].post(6, SendOperation::Read(remote), target).unwrap();
        self.next(1).status
    }
}

fn request(operation: SendOperation) -> SendRequest<'static> {
    SendRequest { id: 9, operation, flags: SendFlags::SIGNALED, payload: Payload::EMPTY }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

#[test]
fn a_window_of_type_1_is_bound_by_a_call_and_moves_with_the_next() {
    let both = Both::new(QueuePairKind::Rc);
    let region = both.domain.allocate(8192, BINDABLE).unwrap();
    let window = both.domain.allocate_window(WindowKind::Type1).unwrap();
    let bind = |range| {
        let flags = SendFlags::SIGNALED;
        let bind = both.pairs[0].bind_window(3, &window, &region, range, READ_WRITE, flags);
        let done = both.next(0);
        assert_eq!((done.id, done.status), (3, CompletionStatus::Success));
        assert_eq!(done.kind, CompletionKind::BindWindow);
        bind.unwrap()
    };
    let first = bind(100..5100);
    assert_eq!(first.key(), window.key());
    assert_eq!(both.write(MemoryWindow::remote(&first, 0), 5000), CompletionStatus::Success);
    assert_eq!(region.to_vec(100, 5000).unwrap(), pattern(5000));
    assert_eq!(both.read(MemoryWindow::remote(&first, 50), 10), CompletionStatus::Success);
    assert_eq!(both.source.to_vec(1 << 15, 10).unwrap(), pattern(60)[50..]);
    // It serves every queue pair of the domain.
    assert_eq!(both.beside().write(MemoryWindow::remote(&first, 0), 8), CompletionStatus::Success);
    let second = bind(0..8);
    assert_ne!(second.key(), first.key());
    assert_eq!(both.write(MemoryWindow::remote(&second, 0), 8), CompletionStatus::Success);
    let old = both.beside();
    let refused = CompletionStatus::RemoteAccessError;
    assert_eq!(old.write(MemoryWindow::remote(&first, 0), 8), refused);
    // While it is bound the region stays.
    let (region, error) = region.try_deregister().unwrap_err();
    assert!(error.to_string().starts_with("1 memory windows are bound"), "{error}");
    let nothing =
        both.pairs[0].bind_window(4, &window, &region, 0..0, Access::NONE, SendFlags::SIGNALED);
    assert_eq!(both.next(0).status, CompletionStatus::Success);
    assert_eq!(both.write(MemoryWindow::remote(&nothing.unwrap(), 0), 8), refused);
    assert_eq!(region.try_deregister().unwrap().len(), 8192);
}

#[test]
fn a_window_of_type_2_is_bound_by_a_request_and_ended_by_either_side() {
    let both = Both::new(QueuePairKind::Rc);
    let region = both.domain.allocate(4096, BINDABLE).unwrap();
    let window = both.domain.allocate_window(WindowKind::Type2B).unwrap();
    let by_call =
        both.pairs[0].bind_window(1, &window, &region, 0..8, READ_WRITE, SendFlags::SIGNALED);
    assert!(matches!(by_call, Err(VerbsError::WindowKind)));

    let first = window.bind(&region, 64..128, READ_WRITE, 0x11);
    both.bind(first);
    assert_eq!(both.write(MemoryWindow::remote(&first, 0), 64), CompletionStatus::Success);
    assert_eq!(region.to_vec(64, 64).unwrap(), pattern(64));
    // Only over its own queue pair.
    let refused = CompletionStatus::RemoteAccessError;
    assert_eq!(both.beside().write(MemoryWindow::remote(&first, 0), 8), refused);

    both.pairs[0].post_receive(7, &[]).unwrap();
    let operation = SendOperation::SendWithInvalidate(first.key());
    both.pairs[1].post_send(&request(operation)).unwrap();
    assert_eq!(both.next(1).status, CompletionStatus::Success);
    let received = both.next(0);
    assert_eq!((received.id, received.attachment), (7, Attachment::Invalidated(first.key())));

    let zero_based = READ_WRITE | Access::ZERO_BASED;
    let second = window.bind(&region, 64..128, zero_based, 0x12);
    both.bind(second);
    let remote = MemoryWindow::remote(&second, 8);
    assert_eq!(remote.address, 8);
    assert_eq!(both.write(remote, 8), CompletionStatus::Success);
    assert_eq!(region.to_vec(72, 8).unwrap(), pattern(8));
    let ended = both.local(SendOperation::LocalInvalidate(second.key()));
    assert_eq!(ended, CompletionStatus::Success);
    assert_eq!(both.write(remote, 8), refused);
}

#[test]
fn bindings_work_on_unreliable_connections_too() {
    let both = Both::new(QueuePairKind::Uc);
    let region = both.domain.allocate(4096, BINDABLE).unwrap();
    let window = both.domain.allocate_window(WindowKind::Type2B).unwrap();
    let type_1 = both.domain.allocate_window(WindowKind::Type1).unwrap();
    let bind = window.bind(&region, 0..1024, Access::REMOTE_WRITE, 1);
    both.bind(bind);
    let other = both.pairs[0]
        .bind_window(2, &type_1, &region, 1024..2048, Access::REMOTE_WRITE, SendFlags::SIGNALED)
        .unwrap();
    assert_eq!(both.next(0).status, CompletionStatus::Success);
    let mut expected = vec![0; 4096];
    let write = |remote| {
        assert_eq!(both.write(remote, 100), CompletionStatus::Success);
        // A datagram behind it tells that it has arrived, or was dropped.
        both.pairs[0].post_receive(8, &[]).unwrap();
        both.pairs[1].post_send(&request(SendOperation::Send)).unwrap();
        assert_eq!(both.next(1).status, CompletionStatus::Success);
        assert_eq!(both.next(0).id, 8);
    };
    write(MemoryWindow::remote(&bind, 0));
    write(MemoryWindow::remote(&other, 0));
    expected[..100].copy_from_slice(&pattern(100));
    expected[1024..1124].copy_from_slice(&pattern(100));
    assert_eq!(region.to_vec(0, 4096).unwrap(), expected);
    let ended = both.local(SendOperation::LocalInvalidate(bind.key()));
    assert_eq!(ended, CompletionStatus::Success);
    write(MemoryWindow::remote(&bind, 500));
    assert_eq!(region.to_vec(0, 4096).unwrap(), expected, "nothing came through");
    let wrong = WindowBind { length: 4097, ..bind };
    let failed = both.local(SendOperation::BindWindow(wrong));
    assert_eq!(failed, CompletionStatus::MemoryWindowBindError);
}

#[test]
fn a_region_that_is_dropped_ends_its_windows_and_a_window_that_is_dropped_frees_its_region() {
    let both = Both::new(QueuePairKind::Rc);
    let region = both.domain.allocate(4096, BINDABLE).unwrap();
    let window = both.domain.allocate_window(WindowKind::Type2B).unwrap();
    let bind = window.bind(&region, 0..64, READ_WRITE, 0);
    both.bind(bind);
    let memory = region.deregister();
    assert_eq!(both.write(MemoryWindow::remote(&bind, 0), 8), CompletionStatus::RemoteAccessError);
    assert_eq!(memory.to_vec(0, 8).unwrap(), [0; 8]);

    let both = Both::new(QueuePairKind::Rc);
    let region = both.domain.register(memory, BINDABLE).unwrap();
    let window = both.domain.allocate_window(WindowKind::Type2B).unwrap();
    let bind = window.bind(&region, 0..64, READ_WRITE, 0);
    both.bind(bind);
    drop(window);
    assert!(region.try_deregister().is_ok());
    assert_eq!(both.write(MemoryWindow::remote(&bind, 0), 8), CompletionStatus::RemoteAccessError);
}

#[test]
fn a_registration_is_changed_in_place() {
    let both = Both::new(QueuePairKind::Rc);
    let mut region = both.domain.allocate(4096, Access::ALL).unwrap();
    assert_eq!(both.write(region.remote(0), 8), CompletionStatus::Success);
    let old = region.remote(0);
    let memory = OwnedMemory::new(100);
    let change = RegionChange {
        memory: Some(Arc::clone(&memory)),
        access: Some(Access::ALL | Access::ZERO_BASED),
        ..RegionChange::default()
    };
    region.reregister(change).unwrap();
    assert_eq!((region.len(), region.remote(4).address), (100, 4));
    assert_eq!(both.write(region.remote(4), 96), CompletionStatus::Success);
    assert_eq!(memory.to_vec(4, 96).unwrap(), pattern(96));
    both.pairs[0]
        .post(1, SendOperation::Write(both.source.remote(0)), region.segment(8, 8))
        .unwrap();
    assert_eq!(both.next(0).status, CompletionStatus::Success);
    // Another device's domain is none of ours, and nothing changes.
    let other = open("lo").unwrap().allocate_domain().unwrap();
    let change = RegionChange { domain: Some(&other), ..RegionChange::default() };
    assert!(region.reregister(change).is_err());
    assert_eq!(both.write(region.remote(0), 8), CompletionStatus::Success);
    let moved = both.context.allocate_domain().unwrap();
    let change = RegionChange { domain: Some(&moved), ..RegionChange::default() };
    region.reregister(change).unwrap();
    drop(moved);
    let refused = CompletionStatus::RemoteAccessError;
    assert_eq!(both.beside().write(region.remote(0), 8), refused);
    assert_eq!(both.beside().write(old, 8), refused);
    let change = RegionChange { domain: Some(&both.domain), ..RegionChange::default() };
    region.reregister(change).unwrap();
    assert_eq!(both.write(region.remote(0), 8), CompletionStatus::Success);
}

#[test]
fn foreign_memory_is_registered_anew_with_the_same_care() {
    let both = Both::new(QueuePairKind::Rc);
    let pages = Pages::new(2);
    let access = Access::LOCAL_WRITE | READ_WRITE;
    // SAFETY: pages have no references to them, and outlive the region.
    let mut region = unsafe { both.domain.register_foreign(pages.start(), PAGE, access) }.unwrap();
    pages.unmap(1);
    // SAFETY: refused.
    let refused = unsafe { region.reregister(Some((pages.start(), 2 * PAGE)), None, None) };
    assert!(refused.unwrap_err().to_string().contains("without the right to read"));
    assert_eq!(both.write(region.remote(0), 8), CompletionStatus::Success);
    let on_demand = access | Access::ON_DEMAND;
    let memory = Some((pages.start(), 2 * PAGE));
    // SAFETY: as above; on demand, it need not be mapped.
    unsafe { region.reregister(memory, None, Some(on_demand)) }.unwrap();
    assert_eq!((region.len(), region.access()), (2 * PAGE, on_demand));
    assert_eq!(both.write(region.remote(PAGE - 8), 8), CompletionStatus::Success);
    assert_eq!(both.write(region.remote(PAGE - 8), 9), CompletionStatus::RemoteAccessError);
    assert_eq!(pages.bytes(PAGE - 8, 8), pattern(8));
}

#[test]
fn an_implicit_region_reaches_what_is_mapped_later() {
    let both = Both::new(QueuePairKind::Rc);
    let access = Access::LOCAL_WRITE | READ_WRITE;
    // SAFETY: requests name only pages, to which there are no references.
    let all = unsafe { both.domain.register_implicit(access) }.unwrap();
    let pages = Pages::new(4);
    let at = |offset: usize| all.remote(pages.address() as usize + offset);
    assert_eq!(both.write(at(100), 3 * PAGE), CompletionStatus::Success);
    assert_eq!(pages.bytes(100, 3 * PAGE), pattern(3 * PAGE));
    assert_eq!(both.read(at(100), 3 * PAGE), CompletionStatus::Success);
    assert_eq!(both.source.to_vec(1 << 15, 3 * PAGE).unwrap(), pattern(3 * PAGE));
    let segment = all.segment(pages.address() as usize + 100, 50);
    both.pairs[0].post(1, SendOperation::Write(both.source.remote(0)), segment).unwrap();
    assert_eq!(both.next(0).status, CompletionStatus::Success);
    assert!(both.context.on_demand().implicit && !both.context.on_demand().atomic);
    assert_eq!(both.write(all.remote(8), 8), CompletionStatus::RemoteAccessError);
}

/// The pages of one region come and go while peers write and read there; others do not notice.
#[test]
fn memory_that_is_unmapped_under_traffic_breaks_only_the_connections_that_touch_it() {
    let steady = Both::new(QueuePairKind::Rc);
    let target = steady.domain.allocate(1 << 15, Access::ALL).unwrap();
    let pages = Pages::new(4);
    let access = Access::LOCAL_WRITE | READ_WRITE;
    // SAFETY: pages have no references to them.
    let region =
        unsafe { steady.domain.register_on_demand(pages.start(), pages.len(), access) }.unwrap();
    let stop = AtomicBool::new(false);
    let (mut broken, mut whole) = (0, 0);
    std::thread::scope(|scope| {
        let flicker = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for page in [1, 2, 3] {
                    pages.unmap(page);
                    std::thread::yield_now();
                    pages.map(page);
                    std::thread::yield_now();
                }
            }
        });
        for round in 0..100 {
            let victim = steady.beside();
            let status = if round % 2 == 0 {
                victim.write(region.remote(0), pages.len())
            } else {
                victim.read(region.remote(0), pages.len())
            };
            match status {
                CompletionStatus::Success => whole += 1,
                CompletionStatus::RemoteAccessError => broken += 1,
                CompletionStatus::RemoteOperationError if round % 2 == 1 => broken += 1,
                other => panic!("round {round}: {other}"),
            }
            assert_eq!(steady.write(target.remote(0), 1 << 14), CompletionStatus::Success);
        }
        stop.store(true, Ordering::Relaxed);
        flicker.join().unwrap();
        println!("{broken} broken, {whole} whole");
    });
    // Whatever the race gave: with a page gone for good it breaks, and with all there it does not.
    pages.unmap(2);
    let victim = steady.beside();
    assert_eq!(victim.write(region.remote(0), pages.len()), CompletionStatus::RemoteAccessError);
    let victim = steady.beside();
    assert_eq!(victim.read(region.remote(PAGE), 3 * PAGE), CompletionStatus::RemoteOperationError);
    pages.map(2);
    let good = steady.beside();
    assert_eq!(good.write(region.remote(0), pages.len()), CompletionStatus::Success);
    assert_eq!(pages.bytes(0, pages.len()), pattern(pages.len()));
    assert_eq!(target.to_vec(0, 1 << 14).unwrap(), pattern(1 << 14));
}
