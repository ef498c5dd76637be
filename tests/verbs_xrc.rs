//! Extended reliable connections through verbs, over real sockets on `lo`: two devices, then two
//! processes.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use uroce::engine::ControlError;
use uroce::software::DeviceOptions;
use uroce::verbs::{
    Access, AsyncEvent, CompletionQueue, CompletionStatus, ConnectOptions, Context, Endpoint, Gid,
    MemoryRegion, Payload, PostError, ProtectionDomain, Psn, Qpn, QueuePair, QueuePairKind,
    QueuePairOptions, QueuePairState, Remote, Rkey, SendFlags, SendOperation, SendRequest,
    SharedReceiveQueue, Srqn, VerbsError, XrcDomain, XrcDomainOptions, XrcQueueOptions,
    connect_xrc,
};

mod common;

const PATIENCE: Duration = Duration::from_secs(30);
const MEMORY: usize = 256 * 1024;
const ROLE: &str = "UROCE_TEST_XRC_ROLE";

fn context(last: u8) -> Context {
    let options = DeviceOptions::at(IpAddr::from([127, 88, 7, last]));
    Context::open(&options).unwrap_or_else(|error| panic!("{error}"))
}

/// The sending end.
struct Sender {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    pair: QueuePair,
    memory: MemoryRegion,
}

impl Sender {
    fn new(context: &Context) -> Self {
        let domain = context.allocate_domain().unwrap();
        let completions = context.create_completion_queue(256).unwrap();
        let options = QueuePairOptions {
            kind: QueuePairKind::XrcInitiator,
            ..QueuePairOptions::new(&completions)
        };
        let pair = domain.create_queue_pair(&options).unwrap();
        let memory = domain.allocate(MEMORY, Access::ALL).unwrap();
        Self { domain, completions, pair, memory }
    }

    fn post(&self, to: Srqn, id: u64, operation: SendOperation, length: usize) {
        let segments = [self.memory.segment(0, length)];
        let payload = Payload::Segments(&segments);
        let request = SendRequest { id, operation, flags: SendFlags::SIGNALED, payload };
        self.pair.post_send_to(to, &request).unwrap();
    }

    fn good(&self) -> u64 {
        let completion = self.completions.wait_one(PATIENCE).unwrap();
        assert_eq!(completion.status, CompletionStatus::Success);
        completion.id
    }
}

/// A receiving application: its own protection domain, memory and shared receive queue.
struct Receiver {
    completions: CompletionQueue,
    queue: SharedReceiveQueue,
    memory: MemoryRegion,
}

impl Receiver {
    fn new(context: &Context, domain: &XrcDomain) -> Self {
        let protection = context.allocate_domain().unwrap();
        let completions = context.create_completion_queue(64).unwrap();
        let queue = protection
            .create_xrc_shared_receive_queue(&XrcQueueOptions {
                domain,
                completions: &completions,
                requests: 16,
                segments: 2,
            })
            .unwrap();
        let memory = protection.allocate(MEMORY, Access::ALL).unwrap();
        Self { completions, queue, memory }
    }

    fn number(&self) -> Srqn {
        self.queue.number().unwrap()
    }

    fn post(&self, id: u64, offset: usize, length: usize) {
        self.queue.post_receive(id, &[self.memory.segment(offset, length)]).unwrap();
    }
}

#[test]
fn one_connection_reaches_every_queue_of_the_other_device() {
    let (here, there) = (context(1), context(1));
    let domain = there.open_xrc_domain(&XrcDomainOptions::default()).unwrap();
    let target = domain.create_target().unwrap();
    let sender = Sender::new(&here);
    connect_xrc(&sender.pair, &target, &ConnectOptions::default()).unwrap();
    let receivers = [0; 3].map(|_| Receiver::new(&there, &domain));
    for (index, receiver) in receivers.iter().enumerate() {
        let message = vec![index as u8 + 1; 100_000];
        sender.memory.write(0, &message).unwrap();
        receiver.post(40 + index as u64, 0, 100_000);
        sender.post(receiver.number(), 1, SendOperation::Send, 100_000);
        assert_eq!(sender.good(), 1);
        let received = receiver.completions.wait_one(PATIENCE).unwrap();
        assert_eq!((received.id, received.length), (40 + index as u64, 100_000));
        assert_eq!(received.queue_pair, target.number());
        assert_eq!(receiver.memory.to_vec(0, 100_000).unwrap(), message);
        let remote = receiver.memory.remote(0);
        sender.post(receiver.number(), 2, SendOperation::FetchAdd { remote, add: 1 }, 8);
        assert_eq!(sender.good(), 2);
        let first = u64::from_ne_bytes([index as u8 + 1; 8]);
        assert_eq!(sender.memory.load_u64(0).unwrap(), first);
        assert_eq!(receiver.memory.load_u64(0).unwrap(), first + 1);
        sender.post(receiver.number(), 3, SendOperation::Write(receiver.memory.remote(64)), 5000);
        sender.post(receiver.number(), 4, SendOperation::Read(receiver.memory.remote(8)), 5000);
        assert_eq!((sender.good(), sender.good()), (3, 4));
    }
    assert_eq!(target.query().unwrap().kind, QueuePairKind::XrcTarget);
}

#[test]
fn a_key_of_another_receiver_does_not_count_for_the_queue_that_is_named() {
    let (here, there) = (context(2), context(2));
    let domain = there.open_xrc_domain(&XrcDomainOptions::default()).unwrap();
    let target = domain.create_target().unwrap();
    let sender = Sender::new(&here);
    connect_xrc(&sender.pair, &target, &ConnectOptions::default()).unwrap();
    let receivers = [0; 2].map(|_| Receiver::new(&there, &domain));
    let remote = receivers[1].memory.remote(0);
    sender.post(receivers[0].number(), 1, SendOperation::Write(remote), 8);
    let failed = sender.completions.wait_one(PATIENCE).unwrap();
    assert_eq!(failed.status, CompletionStatus::RemoteAccessError);
    assert_eq!(target.state(), QueuePairState::Error);
}

#[test]
fn a_queue_of_another_domain_is_refused_and_the_event_says_so() {
    let (here, there) = (context(3), context(3));
    let domains = [0; 2].map(|_| there.open_xrc_domain(&XrcDomainOptions::default()).unwrap());
    let target = domains[0].create_target().unwrap();
    let sender = Sender::new(&here);
    connect_xrc(&sender.pair, &target, &ConnectOptions::default()).unwrap();
    let stranger = Receiver::new(&there, &domains[1]);
    stranger.post(1, 0, 64);
    sender.post(stranger.number(), 1, SendOperation::Send, 8);
    let failed = sender.completions.wait_one(PATIENCE).unwrap();
    assert_eq!(failed.status, CompletionStatus::RemoteAccessError);
    // It is told after the answer has left.
    let number = target.number();
    loop {
        assert!(common::wait_readable(&[there.as_raw_fd()], 30_000), "no event comes");
        match there.poll_event() {
            Some(AsyncEvent::XrcDomainViolation(of)) if of == number => break,
            Some(AsyncEvent::CommunicationEstablished(_)) | None => {}
            Some(event) => panic!("{event:?}"),
        }
    }
    assert_eq!(stranger.queue.posted(), 1);
}

#[test]
fn a_file_stands_for_a_domain_of_a_context() {
    let context = context(4);
    let path = std::env::temp_dir().join(format!("uroce-xrc-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    let again = File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let open = |file: &File, create, exclusive| {
        let file = Some(file.as_fd());
        context.open_xrc_domain(&XrcDomainOptions { file, create, exclusive })
    };
    let refused = |result: Result<XrcDomain, VerbsError>| match result {
        Err(VerbsError::Control(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(open(&file, false, false)), ControlError::NoXrcDomainOfFile);
    let first = open(&file, true, true).unwrap();
    assert_eq!(refused(open(&file, true, true)), ControlError::XrcDomainExists);
    // The same inode by another descriptor, on a clone of the context.
    let clone = context.clone();
    let options = XrcDomainOptions { file: Some(again.as_fd()), ..XrcDomainOptions::default() };
    let second = clone.open_xrc_domain(&options).unwrap();
    let target = first.create_target().unwrap();
    let number = target.number();
    let same = second.open_target(number).unwrap();
    assert_eq!(same.number(), number);
    drop((target, first));
    assert_eq!(same.query().unwrap().kind, QueuePairKind::XrcTarget, "it has another user");
    let alone = context.open_xrc_domain(&XrcDomainOptions::default()).unwrap();
    assert!(matches!(
        alone.open_target(number),
        Err(VerbsError::Control(ControlError::NoSuchTarget(of))) if of == number
    ));
    drop((same, second));
    assert_eq!(refused(open(&file, false, false)), ControlError::NoXrcDomainOfFile);
}

#[test]
fn everything_made_in_a_domain_keeps_it_until_it_ends() {
    let context = context(5);
    let domain = context.open_xrc_domain(&XrcDomainOptions::default()).unwrap();
    let receiver = Receiver::new(&context, &domain);
    drop(domain);
    let Receiver { completions, queue, memory } = receiver;
    drop(completions);
    queue.post_receive(1, &[memory.segment(0, 8)]).unwrap();
    assert_eq!((queue.capacity(), queue.max_segments(), queue.limit()), (16, 2, 0));
    queue.set_limit(1).unwrap();
    assert_eq!(queue.limit(), 1);
}

#[test]
fn what_is_posted_in_the_wrong_way_is_named() {
    let context = context(6);
    let domain = context.open_xrc_domain(&XrcDomainOptions::default()).unwrap();
    let receiver = Receiver::new(&context, &domain);
    let sender = Sender::new(&context);
    let segment = sender.memory.segment(0, 8);
    let plain = sender.pair.post(1, SendOperation::Send, segment);
    assert_eq!(plain, Err(PostError::NoSharedQueueNamed));
    let kind = QueuePairKind::XrcInitiator;
    assert_eq!(sender.pair.post_receive(1, &[]), Err(PostError::NoReceives(kind)));
    let rc = sender.domain.create_queue_pair(&QueuePairOptions::new(&sender.completions)).unwrap();
    let request = SendRequest {
        id: 1,
        operation: SendOperation::Send,
        flags: SendFlags::SIGNALED,
        payload: Payload::EMPTY,
    };
    let named = rc.post_send_to(receiver.number(), &request);
    assert_eq!(named, Err(PostError::SharedQueueNamed(QueuePairKind::Rc)));
    let options = QueuePairOptions {
        shared_receives: Some(&receiver.queue),
        ..QueuePairOptions::new(&sender.completions)
    };
    let refused = sender.domain.create_queue_pair(&options).unwrap_err();
    assert!(matches!(refused, VerbsError::Control(ControlError::XrcSharedQueue)), "{refused}");
}

/// What one process tells the other, in a line.
fn line(endpoint: &Endpoint, rest: &[u64]) -> String {
    let rest: Vec<String> = rest.iter().map(u64::to_string).collect();
    format!("@ {:x} {} {}", endpoint.gid, endpoint.number.value(), rest.join(" "))
}

fn read(line: &str) -> (Endpoint, Vec<u64>) {
    let mut fields = line.split_whitespace().skip(1);
    let gid: Gid = fields.next().unwrap().parse().unwrap();
    let number = Qpn::new(fields.next().unwrap().parse().unwrap());
    let rest = fields.map(|field| field.parse().unwrap()).collect();
    (Endpoint { gid, number, psn: Psn::new(77) }, rest)
}

const ROUNDS: u64 = 100;

/// The other process: sends to two queues of its parent in turn, and counts in the memory of each.
#[test]
fn the_role_of_the_other_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let sender = Sender::new(&context(9));
    println!("{}", line(&sender.pair.endpoint(0, Psn::new(77)).unwrap(), &[]));
    let mut text = String::new();
    std::io::stdin().read_line(&mut text).unwrap();
    let (peer, queues) = read(&text);
    sender.pair.connect(&peer, Psn::new(77), &ConnectOptions::default()).unwrap();
    for round in 0..ROUNDS {
        for queue in queues.chunks(3) {
            let [number, address, key] = queue[..] else { panic!("{text}") };
            let (number, key) = (Srqn::new(number as u32), Rkey::new(key as u32));
            sender.memory.store_u64(0, round).unwrap();
            sender.post(number, 1, SendOperation::Send, 8);
            let add = SendOperation::FetchAdd { remote: Remote { address, key }, add: 3 };
            sender.good();
            sender.post(number, 2, add, 8);
            sender.good();
        }
    }
    println!("@ done");
}

#[test]
fn two_processes_and_two_queues_over_one_connection() {
    let context = context(9);
    let domain = context.open_xrc_domain(&XrcDomainOptions::default()).unwrap();
    let target = domain.create_target().unwrap();
    let receivers = [0; 2].map(|_| Receiver::new(&context, &domain));
    for receiver in &receivers {
        for id in 0..8 {
            receiver.post(id, 64 + 8 * id as usize, 8);
        }
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_role_of_the_other_process", "--nocapture"])
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok).filter_map(|line| {
        // The harness writes its own words before ours.
        line.find('@').map(|start| line[start..].to_owned())
    });
    let (peer, _) = read(&lines.next().unwrap());
    target.connect(&peer, &ConnectOptions::default()).unwrap();
    let queues: Vec<u64> = receivers
        .iter()
        .flat_map(|receiver| {
            let Remote { address, key } = receiver.memory.remote(0);
            [receiver.number().value().into(), address, key.value().into()]
        })
        .collect();
    let mut text = line(&target.endpoint(0, Psn::new(77)).unwrap(), &queues);
    text.push('\n');
    child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    for round in 0..ROUNDS {
        for receiver in &receivers {
            let received = receiver.completions.wait_one(PATIENCE).unwrap();
            assert_eq!((received.id, received.status), (round % 8, CompletionStatus::Success));
            let place = 64 + 8 * received.id as usize;
            assert_eq!(receiver.memory.load_u64(place).unwrap(), round);
            receiver.post(received.id, place, 8);
        }
    }
    assert_eq!(lines.next().as_deref(), Some("@ done"));
    assert!(child.wait().unwrap().success());
    for receiver in &receivers {
        assert_eq!(receiver.memory.load_u64(0).unwrap(), 3 * ROUNDS);
    }
}
