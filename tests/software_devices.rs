//! Software devices of one process, over real sockets on `lo` and over memory.

mod common;
mod endpoint;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use endpoint::{Endpoint, LONG, MEMORY, device, eventually, join, pattern};
use uroce::engine::AsyncEvent;
use uroce::fault::FaultPlan;
use uroce::link::{MemoryOptions, memory};
use uroce::pcap::Reader;
use uroce::queue::{CompletionKind, CompletionStatus, Notify, Remote, SendOperation};
use uroce::software::{Device, DeviceOptions, Drive, OpenError, clock};
use uroce::time::{MILLISECOND, SECOND};
use uroce::wire::{Frame, Rkey};

/// An address of `lo` that only one test uses.
fn loopback(last: u8) -> IpAddr {
    IpAddr::from([127, 88, 0, last])
}

fn driven(drive: Drive, address: IpAddr) -> DeviceOptions {
    DeviceOptions { drive, ..DeviceOptions::at(address) }
}

/// Two endpoints on devices of their own at one address.
fn pair(options: &DeviceOptions) -> (Endpoint, Endpoint) {
    let (one, other) = (device(options), device(options));
    assert_ne!(one.slot(), other.slot());
    let (one, other) = (Endpoint::new(&one, 0), Endpoint::new(&other, 0));
    join(&one, &other);
    (one, other)
}

/// Sends `count` messages of different lengths and checks that they arrive whole and in order.
fn exchange(from: &Endpoint, to: &Endpoint, count: u64) {
    for number in 0..count {
        let length = [1, 100, 1024, 5000, 60_000][number as usize % 5];
        let bytes = pattern(number, length);
        from.memory.write(0, &bytes).unwrap();
        to.post_receive(number, MEMORY / 2, 65_536);
        from.post(number, SendOperation::Send, 0, length);
        let received = to.next_good();
        assert_eq!((received.id, received.length as usize), (number, length));
        assert_eq!(to.memory.to_vec(MEMORY / 2, length).unwrap(), bytes);
        assert_eq!(from.next_good().id, number);
    }
}

#[test]
fn every_operation_works_between_two_devices_on_one_address() {
    let (one, other) = pair(&DeviceOptions::at(loopback(1)));
    exchange(&one, &other, 10);
    exchange(&other, &one, 10);
    let remote = other.address().remote;
    let bytes = pattern(5, 200_000);
    one.memory.write(0, &bytes).unwrap();
    one.post(1, SendOperation::Write(remote), 0, bytes.len());
    assert_eq!(one.next_good().kind, CompletionKind::Write);
    assert_eq!(other.memory.to_vec(0, bytes.len()).unwrap(), bytes);
    one.post(2, SendOperation::Read(remote), 300_000, bytes.len());
    assert_eq!(one.next_good().kind, CompletionKind::Read);
    assert_eq!(one.memory.to_vec(300_000, bytes.len()).unwrap(), bytes);
    other.memory.store_u64(0, 40).unwrap();
    one.post(3, SendOperation::FetchAdd { remote, add: 2 }, 8, 8);
    assert_eq!(one.next_good().kind, CompletionKind::FetchAdd);
    assert_eq!(one.memory.load_u64(8).unwrap(), 40);
    assert_eq!(other.memory.load_u64(0).unwrap(), 42);
}

#[test]
fn one_sided_operations_progress_while_the_target_spins_on_its_own_memory() {
    let (one, other) = pair(&DeviceOptions::at(loopback(2)));
    let target = other.address().remote;
    // Neither side calls its device but to post: both threads have to do the work.
    for round in 1..=50_u64 {
        one.memory.store_u64(0, round).unwrap();
        one.post(round, SendOperation::Write(target), 0, 8);
        let deadline = clock::now() + LONG;
        while other.memory.load_u64(0).unwrap() != round {
            assert!(clock::now() < deadline, "round {round}: {:?}", other.counters());
            std::hint::spin_loop();
        }
    }
    assert!(eventually(|| one.completions.waiting() == 50), "{:?}", one.counters());
}

#[test]
fn a_device_without_thread_works_by_the_callers_calls_alone() {
    // Addresses of their own: what arrived at the other's socket would wait for its calls.
    let [one, other] = [3, 17].map(|last| device(&driven(Drive::Caller, loopback(last))));
    let (one, other) = (Endpoint::new(&one, 0), Endpoint::new(&other, 0));
    join(&one, &other);
    let bytes = pattern(3, 3000);
    for number in 0..20 {
        one.memory.write(0, &bytes).unwrap();
        other.post_receive(number, 0, 4096);
        one.post(number, SendOperation::Send, 0, bytes.len());
        assert_eq!(other.spin().status, CompletionStatus::Success);
        // The acknowledgement leaves in a turn of the receiver's.
        let deadline = clock::now() + LONG;
        let mut sent = [endpoint::blank()];
        while one.device.poll(&one.completions, &mut sent).unwrap() == 0 {
            other.device.kick();
            assert!(clock::now() < deadline, "{:?}", one.counters());
        }
        assert_eq!((sent[0].id, sent[0].status), (number, CompletionStatus::Success));
    }
    // Nothing at all happens without calls.
    one.post(1, SendOperation::Write(other.address().remote), 0, 8);
    std::thread::park_timeout(std::time::Duration::from_millis(50));
    assert_eq!(one.completions.waiting(), 0);
}

#[test]
fn waiting_without_a_thread_sleeps_on_the_link_and_wakes_for_other_threads_work() {
    let (one, other) = pair(&driven(Drive::Caller, loopback(4)));
    let (one, other) = (Arc::new(one), Arc::new(other));
    // Two waiters on each device: one sleeps on the link, the other takes its place afterwards.
    let waiters: Vec<_> = [&other, &other, &one]
        .into_iter()
        .map(|endpoint| {
            let endpoint = Arc::clone(endpoint);
            std::thread::spawn(move || endpoint.next_good())
        })
        .collect();
    for number in 0..2 {
        other.queues.post_one_receive(&receive_request(number)).unwrap();
    }
    one.post(7, SendOperation::Send, 0, 0);
    assert!(eventually(|| waiters.iter().filter(|waiter| waiter.is_finished()).count() >= 1));
    // The first waiter may be gone, and with it who answers; the second goes on.
    one.post(8, SendOperation::Send, 0, 0);
    let kinds: Vec<CompletionKind> =
        waiters.into_iter().map(|waiter| waiter.join().unwrap().kind).collect();
    assert_eq!(kinds, [CompletionKind::Receive, CompletionKind::Receive, CompletionKind::Send]);
}

fn receive_request(id: u64) -> uroce::queue::ReceiveRequest<'static> {
    uroce::queue::ReceiveRequest { id, segments: &[] }
}

#[test]
fn a_wait_ends_at_its_deadline() {
    for drive in [Drive::Thread, Drive::Caller] {
        let (one, _other) = pair(&driven(drive, loopback(5)));
        let start = clock::now();
        let mut completions = [endpoint::blank()];
        let deadline = start + 30 * MILLISECOND;
        assert_eq!(one.device.wait(&one.completions, &mut completions, deadline), Ok(0));
        let took = clock::now() - start;
        assert!((30 * MILLISECOND..10 * SECOND).contains(&took), "{took} ns");
    }
}

#[test]
fn one_device_serves_ipv4_and_ipv6_at_once() {
    let addresses = vec![loopback(6), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let options = DeviceOptions { addresses: addresses.clone(), ..DeviceOptions::default() };
    let (one, other) = (device(&options), device(&options));
    assert_eq!(one.addresses(), addresses);
    let pairs = [0, 1].map(|gid| (Endpoint::new(&one, gid), Endpoint::new(&other, gid)));
    for (near, far) in &pairs {
        join(near, far);
    }
    for _ in 0..5 {
        for (near, far) in &pairs {
            exchange(near, far, 5);
            exchange(far, near, 5);
        }
    }
    let link = one.counters().unwrap().link;
    assert!(link.refused == 0 && link.sent.packets > 0, "{link:?}");
}

#[test]
fn faults_of_the_options_happen_and_are_recovered() {
    let fault: FaultPlan = "loss=5%,duplicate=2%,reorder=2%,seed=9".parse().unwrap();
    let options = DeviceOptions { fault: Some(fault), ..DeviceOptions::at(loopback(7)) };
    let (one, other) = pair(&options);
    exchange(&one, &other, 60);
    let retransmitted: u64 = [&one, &other]
        .iter()
        .flat_map(|side| side.counters())
        .filter(|(name, _)| name.contains("retransmit") || name.contains("resent"))
        .map(|(_, count)| count)
        .sum();
    assert!(retransmitted > 0, "{:?}", one.counters());
}

#[test]
fn a_capture_holds_what_was_on_the_wire() {
    let path = std::env::temp_dir().join(format!("uroce-devices-{}.pcapng", std::process::id()));
    let options = DeviceOptions::at(loopback(8));
    let recorded = DeviceOptions { capture: Some(path.clone()), ..options.clone() };
    let (one, other) = (device(&recorded), device(&options));
    let (one, other) = (Endpoint::new(&one, 0), Endpoint::new(&other, 0));
    join(&one, &other);
    exchange(&one, &other, 3);
    drop(one);
    let mut reader = Reader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let mut ports = std::collections::BTreeSet::new();
    while let Some(record) = reader.next() {
        let record = record.unwrap();
        let frame = Frame::parse(record.data).unwrap();
        let flow = frame.flow().unwrap();
        assert_eq!((flow.source, flow.destination), (loopback(8), loopback(8)));
        let icrc = frame.computed_icrc().unwrap();
        assert!(record.data.ends_with(&icrc), "a wrong ICRC in {:02x?}", record.data);
        ports.insert(flow.source_port);
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(ports.len(), 2, "both directions: {ports:?}");
}

/// Counts its calls, and calls the device, as a notifier may.
struct Counting {
    calls: Arc<AtomicU64>,
    device: OnceLock<Arc<Device>>,
}

impl Notify for Counting {
    fn notify(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if let Some(device) = self.device.get() {
            device.kick();
            assert!(device.counters().is_ok(), "no lock is held here");
        }
    }
}

#[test]
fn an_armed_queue_notifies_outside_the_lock() {
    let (one, other) = pair(&DeviceOptions::at(loopback(9)));
    let calls = Arc::new(AtomicU64::new(0));
    let device = OnceLock::from(Arc::clone(&other.device));
    other.completions.set_notifier(Box::new(Counting { calls: Arc::clone(&calls), device }));
    for number in 0..3 {
        other.completions.arm(false);
        other.post_receive(number, 0, 100);
        one.post(number, SendOperation::Send, 0, 10);
        assert!(eventually(|| calls.load(Ordering::SeqCst) == number + 1));
        assert_eq!(other.next_good().id, number);
        assert_eq!(one.next_good().id, number);
    }
}

#[test]
fn an_error_of_the_peer_becomes_an_event_with_a_readable_descriptor() {
    let (one, other) = pair(&DeviceOptions::at(loopback(10)));
    let descriptor = [other.device.event_descriptor()];
    while other.device.next_event().is_some() {}
    let nowhere = Remote { address: 0, key: Rkey::new(0xdead_beef) };
    one.post(1, SendOperation::Write(nowhere), 0, 100);
    assert_eq!(one.next().status, CompletionStatus::RemoteAccessError);
    let mut seen = Vec::new();
    while !seen.iter().any(|event| matches!(event, AsyncEvent::AccessError(_))) {
        assert!(common::wait_readable(&descriptor, 20_000), "only {seen:?}");
        seen.extend(std::iter::from_fn(|| other.device.next_event()));
    }
    assert!(!common::wait_readable(&descriptor, 0));
}

#[test]
fn threads_that_post_poll_wait_and_control_at_once_lose_nothing() {
    const MESSAGES: u64 = 400;
    let options = DeviceOptions::at(loopback(11));
    let (one, other) = (device(&options), device(&options));
    std::thread::scope(|scope| {
        for lane in 0..3 {
            let (near, far) = (Endpoint::new(&one, 0), Endpoint::new(&other, 0));
            join(&near, &far);
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    far.post_receive(number, 0, 2000);
                    near.post(number, SendOperation::Send, 0, (number as usize * 37) % 2000);
                    // One lane blocks, the others spin.
                    let take = |side: &Endpoint| if lane == 0 { side.next() } else { side.spin() };
                    for completion in [take(&far), take(&near)] {
                        assert_eq!(completion.status, CompletionStatus::Success);
                        assert_eq!(completion.id, number);
                    }
                }
            });
        }
        // Control calls get their turn although others poll without pause.
        scope.spawn(|| {
            for _ in 0..200 {
                let endpoint = Endpoint::new(&one, 0);
                let number = endpoint.queues.number();
                one.control(|engine, _| engine.destroy_queue_pair(number)).unwrap().unwrap();
            }
        });
    });
}

#[test]
fn devices_over_an_in_memory_network_talk_with_and_without_descriptors() {
    for descriptor in [true, false] {
        let addresses = [loopback(12), loopback(13)];
        let network = MemoryOptions { descriptor, ..MemoryOptions::default() };
        let (near, far) = memory::pair(addresses, &network).unwrap();
        let options = DeviceOptions::default();
        let one = Arc::new(Device::over(&options, Box::new(near)).unwrap());
        let other = Arc::new(Device::over(&options, Box::new(far)).unwrap());
        let (one, other) = (Endpoint::new(&one, 0), Endpoint::new(&other, 0));
        join(&one, &other);
        exchange(&one, &other, 10);
        exchange(&other, &one, 10);
    }
}

#[test]
fn the_thread_of_an_idle_device_sleeps() {
    let named = |name: &str| DeviceOptions {
        name: Some(name.to_owned()),
        ..DeviceOptions::at(loopback(18))
    };
    let (one, other) = (device(&named("idle")), device(&named("idle")));
    let (one, other) = (Endpoint::new(&one, 0), Endpoint::new(&other, 0));
    join(&one, &other);
    exchange(&one, &other, 5);
    let wakes = || -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let texts =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
        let switches = texts.filter(|text| text.contains("uroce-idle")).map(|text| {
            let line = text.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
            line.unwrap().split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        });
        switches.sum()
    };
    // After the last timers of the exchange and of steering; each look that finds nothing to do
    // may find some left.
    let quiet = || {
        let before = wakes();
        std::thread::park_timeout(std::time::Duration::from_millis(200));
        wakes() == before
    };
    assert!(eventually(quiet), "the threads wake again and again");
}

#[test]
fn a_dropped_device_leaves_no_thread_no_slot_and_no_port() {
    let address = loopback(14);
    let own = || (endpoint::slots_taken(address).len(), endpoint::sockets_on_port(address));
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim() == "uroce-dropped").count()
    };
    let options = DeviceOptions { name: Some("dropped".to_owned()), ..DeviceOptions::at(address) };
    let one = Device::open(&options).unwrap();
    let other = Device::open(&options).unwrap();
    assert_eq!(one.name(), "dropped");
    // A thread gives itself its name, and is gone from /proc a little after it has ended.
    assert!(eventually(|| threads() == 2));
    assert_eq!(own(), (2, 2));
    drop((one, other));
    assert_eq!(own(), (0, 0));
    assert!(eventually(|| threads() == 0));
}

#[test]
fn what_cannot_be_opened_is_told_in_a_sentence() {
    let sentence = |options: &DeviceOptions| Device::open(options).unwrap_err().to_string();
    let nowhere = sentence(&DeviceOptions::on("absent0"));
    assert!(nowhere.contains("absent0") && nowhere.contains("lo"), "{nowhere}");
    let elsewhere = DeviceOptions::at(IpAddr::from([192, 0, 2, 1]));
    assert!(sentence(&elsewhere).contains("192.0.2.1"));
    let capture = Some(std::path::PathBuf::from("/nonexistent/x.pcapng"));
    let unwritable = DeviceOptions { capture, ..DeviceOptions::at(loopback(15)) };
    assert!(sentence(&unwritable).contains("/nonexistent/x.pcapng"));
    let link = uroce::software::LinkKind::Xdp;
    let unbuilt = DeviceOptions { link, ..DeviceOptions::at(loopback(15)) };
    assert!(matches!(Device::open(&unbuilt), Err(OpenError::NoLink("xdp"))));
}

#[test]
fn a_port_that_a_foreign_program_holds_is_named() {
    let address = loopback(16);
    let _foreign = std::net::UdpSocket::bind((address, 4791)).unwrap();
    let text = Device::open(&DeviceOptions::at(address)).unwrap_err().to_string();
    assert!(text.contains("4791") && text.contains(&address.to_string()), "{text}");
}
