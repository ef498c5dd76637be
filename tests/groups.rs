//! Multicast groups over real sockets: several devices, processes and users on one port, and two
//! network namespaces on one wire.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::network::{self, ip};
use common::skip_unless;
use uroce::host::interfaces;
use uroce::link::{MemoryOptions, memory};
use uroce::software::{DeviceOptions, clock};
use uroce::time::SECOND;
use uroce::verbs::{
    Access, AddressHandle, AddressVector, CompletionQueue, Context, Counter, MemoryRegion, Psn,
    QKey, Qpn, QueuePair, QueuePairKind, QueuePairOptions, SendOperation, VerbsError,
};

const PATIENCE: Duration = Duration::from_secs(30);
const QKEY: QKey = QKey::new(0x4242);
const ROLE: &str = "UROCE_TEST_GROUP_ROLE";
/// Datagrams of one series; few enough for any receive queue.
const COUNT: u64 = 40;
/// Bytes of a receive: area and number.
const ROOM: usize = 48;

fn group(last: u8) -> IpAddr {
    IpAddr::from([239, 88, 3, last])
}

fn loopback(last: u8) -> IpAddr {
    IpAddr::from([127, 88, 3, last])
}

fn open(address: IpAddr) -> Context {
    Context::open(&DeviceOptions::at(address)).unwrap_or_else(|error| panic!("{error}"))
}

/// A datagram queue pair with receives posted, and a way to a group.
struct Member {
    pair: QueuePair,
    sends: CompletionQueue,
    receives: CompletionQueue,
    memory: MemoryRegion,
    to: AddressHandle,
    group: IpAddr,
}

impl Member {
    /// One that is not attached yet.
    fn new(context: &Context, group: IpAddr) -> Self {
        let domain = context.allocate_domain().unwrap();
        let sends = context.create_completion_queue(256).unwrap();
        let receives = context.create_completion_queue(1024).unwrap();
        let options = QueuePairOptions {
            kind: QueuePairKind::Ud,
            receive_completions: &receives,
            ..QueuePairOptions::new(&sends)
        };
        let pair = domain.create_queue_pair(&options).unwrap();
        pair.start_datagrams(QKEY, Psn::new(5)).unwrap();
        let memory = domain.allocate(64 + 120 * ROOM, Access::ALL).unwrap();
        for id in 0..120 {
            pair.post_receive(id, &[memory.segment(64 + id as usize * ROOM, ROOM)]).unwrap();
        }
        let to = domain.create_address_handle(&AddressVector::new(0, group)).unwrap();
        Self { pair, sends, receives, memory, to, group }
    }

    fn attached(context: &Context, group: IpAddr) -> Self {
        let member = Self::new(context, group);
        member.pair.attach_multicast(group).unwrap();
        member
    }

    /// Sends the numbers of a series to the group, one a datagram.
    fn send(&self, series: u64) {
        for number in series * COUNT..(series + 1) * COUNT {
            self.memory.write(0, &number.to_be_bytes()).unwrap();
            let to = self.to.datagram(Qpn::MULTICAST, QKEY);
            let send = SendOperation::SendTo { to, immediate: None };
            self.pair.post(number, send, self.memory.segment(0, 8)).unwrap();
            assert!(self.sends.wait_one(PATIENCE).unwrap().status.is_success());
        }
    }

    /// Each number of a series arrives, once and in order, under the group's address. (Of the next
    /// series, too: that shows that the last one had no copy behind it.)
    fn expect(&self, series: u64) {
        for number in series * COUNT..(series + 1) * COUNT {
            let received = self.receives.wait_one(PATIENCE).unwrap();
            assert_eq!(received.length as usize, ROOM);
            let place = 64 + received.id as usize * ROOM;
            let bytes = self.memory.to_vec(place, ROOM).unwrap();
            assert_eq!(bytes[40..], number.to_be_bytes(), "of series {series}");
            match self.group {
                IpAddr::V4(group) => assert_eq!(bytes[36..40], group.octets()),
                IpAddr::V6(group) => assert_eq!(bytes[24..40], group.octets()),
            }
            self.pair.post_receive(received.id, &[self.memory.segment(place, ROOM)]).unwrap();
        }
    }

    fn expect_nothing(&self) {
        assert_eq!(self.receives.poll_one().unwrap(), None);
    }
}

#[test]
fn members_on_one_device_and_on_others_each_get_one_copy_over_lo() {
    let here = open(loopback(1));
    let same_address = open(loopback(1));
    let elsewhere = open(loopback(2));
    let sender = Member::attached(&here, group(1));
    let members = [
        Member::attached(&here, group(1)),
        Member::attached(&same_address, group(1)),
        Member::attached(&same_address, group(1)),
        Member::attached(&elsewhere, group(1)),
    ];
    let outsiders = [Member::new(&here, group(1)), Member::attached(&elsewhere, group(2))];
    for series in 0..3 {
        sender.send(series);
        sender.expect(series);
        members.iter().for_each(|member| member.expect(series));
    }
    outsiders.iter().for_each(Member::expect_nothing);
    // One that is no member may send, and gets nothing back.
    outsiders[0].send(3);
    members.iter().for_each(|member| member.expect(3));
    outsiders.iter().for_each(Member::expect_nothing);
}

#[test]
fn the_last_member_that_leaves_takes_the_device_out_of_the_group() {
    let context = open(loopback(3));
    let sender = Member::attached(&context, group(3));
    let other = Member::attached(&context, group(3));
    sender.pair.detach_multicast(group(3)).unwrap();
    sender.send(0);
    other.expect(0);
    sender.expect_nothing();
    let received = || context.counters().unwrap().engine.get(Counter::ReceivedPackets);
    let before = received();
    // Dropped while it is attached: it is detached first.
    drop(other);
    sender.send(1);
    assert_eq!(received(), before, "the socket of the group is closed");
    let again = sender.pair.detach_multicast(group(3)).unwrap_err();
    assert!(again.to_string().contains("is not attached to multicast group 239.88.3.3"), "{again}");
    sender.pair.attach_multicast(group(3)).unwrap();
    sender.send(2);
    sender.expect(2);
}

#[test]
fn a_device_with_several_addresses_gets_one_copy() {
    let options =
        DeviceOptions { addresses: vec![loopback(4), loopback(5)], ..DeviceOptions::on("lo") };
    let context = Context::open(&options).unwrap();
    let member = Member::attached(&context, group(4));
    for series in 0..2 {
        member.send(series);
        member.expect(series);
    }
}

#[test]
fn groups_work_in_memory() {
    let addresses = [[10, 1, 1, 1], [10, 1, 1, 2]].map(IpAddr::from);
    let (one, other) = memory::pair(addresses, &MemoryOptions::default()).unwrap();
    let contexts = [one, other].map(|link| {
        let options = DeviceOptions::at(IpAddr::from([10, 1, 1, 1]));
        Context::over(&options, Box::new(link)).unwrap()
    });
    let members = [0, 0, 1].map(|place: usize| Member::attached(&contexts[place], group(5)));
    for series in 0..2 {
        members[0].send(series);
        members.iter().for_each(|member| member.expect(series));
    }
}

/// A group of IPv6.
fn group_v6(last: u16) -> IpAddr {
    Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0x88, last).into()
}

#[test]
fn a_group_without_route_is_refused_with_the_command_that_makes_one() {
    if !network::is_root() {
        return skip_unless("root", "a network namespace, so that the host's routes do not matter");
    }
    let outcome = std::thread::spawn(|| {
        network::veth_in_new_namespace("group-a", "group-b", "10.88.3.1/24", 1500)?;
        let context = open(Ipv6Addr::LOCALHOST.into());
        let member = Member::new(&context, group_v6(1));
        let refused = member.pair.attach_multicast(group_v6(1));
        assert!(matches!(refused, Err(VerbsError::Join(_))), "{refused:?}");
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("`ip -6 route add local ff00::/8 dev lo`"), "{text}");
        // Nothing was changed: it is not attached, and can be once there is a route.
        assert!(member.pair.detach_multicast(group_v6(1)).is_err());
        ip(&["-6", "route", "add", "local", "ff00::/8", "dev", "lo"])?;
        member.pair.attach_multicast(group_v6(1)).unwrap();
        member.send(0);
        member.expect(0);
        Ok::<_, String>(())
    });
    if let Err(reason) = outcome.join().unwrap() {
        skip_unless("root", &reason);
    }
}

/// A process of the test's; killed when dropped.
struct Process {
    child: Child,
    answers: Box<dyn Iterator<Item = String>>,
}

impl Process {
    fn start(address: IpAddr, group: IpAddr, user: u32) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_role_of_a_process", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{address} {group} {user}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // The harness writes its own words in front.
        let answers = lines.filter_map(|line| Some(line.split_once('@')?.1.to_owned()));
        Self { child, answers: Box::new(answers) }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    #[track_caller]
    fn answer(&mut self, expected: &str) {
        assert_eq!(self.answers.next().as_deref(), Some(expected));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn become_user(user: u32) {
    if user != 0 {
        #[allow(unsafe_code)]
        // SAFETY: the call takes a number; glibc changes all threads of the process.
        let result = unsafe { libc::setresuid(user, user, user) };
        assert_eq!(result, 0, "root can become anybody");
    }
}

#[test]
fn the_role_of_a_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    become_user(words[2].parse().unwrap());
    let (address, group) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let context = open(address);
    let member = Member::attached(&context, group);
    println!("@ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (what, series) = line.split_once(' ').unwrap();
        match what {
            "send" => member.send(series.parse().unwrap()),
            _ => member.expect(series.parse().unwrap()),
        }
        println!("@{what} {series}");
    }
}

/// Each process sends a series in turn, and each gets it once.
fn all_hear_each(processes: &mut [Process], series: &mut u64) {
    for sender in 0..processes.len() {
        processes[sender].tell(&format!("send {series}"));
        processes[sender].answer(&format!("send {series}"));
        for process in &mut *processes {
            process.tell(&format!("expect {series}"));
        }
        for process in &mut *processes {
            process.answer(&format!("expect {series}"));
        }
        *series += 1;
    }
}

#[test]
fn processes_that_share_an_address_each_get_each_datagram_once() {
    let mut processes: Vec<Process> =
        (0..4).map(|_| Process::start(loopback(8), group(8), 0)).collect();
    processes.iter_mut().for_each(|process| process.answer("ready"));
    let mut series = 0;
    all_hear_each(&mut processes, &mut series);
    // One that ends takes nothing from the others.
    drop(processes.remove(1));
    all_hear_each(&mut processes, &mut series);
}

#[test]
fn processes_of_several_users_each_get_each_datagram_once() {
    if !network::is_root() {
        return skip_unless("root", "becoming another user");
    }
    let mut processes: Vec<Process> = [0, 0, 65_534, 65_534]
        .map(|user| {
            let mut process = Process::start(loopback(9), group(9), user);
            // The first one holds the port, so the other user's are its guests.
            process.answer("ready");
            process
        })
        .into();
    all_hear_each(&mut processes, &mut 0);
}

/// Opens a device once its interface carries frames, which the kernel brings about in its own time.
fn open_running(link: &str, address: &str) -> Context {
    let running = || interfaces().iter().any(|other| other.name == link && other.is_running);
    let end = clock::now() + 30 * SECOND;
    while !running() {
        assert!(clock::now() < end, "{link} does not come up");
        std::thread::yield_now();
    }
    let (own, _) = address.split_once('/').expect("an address with its prefix");
    open(own.parse().unwrap())
}

/// What a thread in another namespace does, and its answers.
type Steps = (Sender<u64>, Receiver<()>);

/// A member in a namespace of its own at the other end of `near`'s wire.
fn far_member(link: &'static str, address: &'static str, group: IpAddr) -> Steps {
    let (steps, todo) = channel::<u64>();
    let (done, answers) = channel();
    let (here, there) = channel();
    std::thread::spawn(move || {
        network::enter_new_namespace().unwrap();
        here.send(network::own_namespace()).unwrap();
        // The link has been moved here.
        todo.recv().unwrap();
        network::raise(link, address).unwrap();
        let context = open_running(link, address);
        let member = Member::attached(&context, group);
        done.send(()).unwrap();
        for series in todo {
            member.expect(series);
            member.send(series + 1);
            member.expect(series + 1);
            done.send(()).unwrap();
        }
    });
    network::move_link(link, &there.recv().unwrap()).unwrap();
    steps.send(0).unwrap();
    (steps, answers)
}

/// Whether the kernel's table says that an interface of the calling thread's namespace is in the
/// group: IGMP or MLD has told the network.
fn is_joined(group: IpAddr) -> bool {
    let (table, name) = match group {
        IpAddr::V4(group) => ("igmp", format!("{:08X}", u32::from_ne_bytes(group.octets()))),
        IpAddr::V6(group) => ("igmp6", group.octets().map(|byte| format!("{byte:02x}")).concat()),
    };
    let text = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap();
    text.contains(&name)
}

fn over_a_wire(
    links: [&'static str; 2],
    near: &'static str,
    far: &'static str,
    group: IpAddr,
) -> Result<(), String> {
    network::veth_in_new_namespace(links[0], links[1], "10.88.4.9/24", 1500)?;
    network::raise(links[0], near)?;
    let (steps, answers) = far_member(links[1], far, group);
    answers.recv_timeout(PATIENCE).expect("the far member goes on");
    let context = open_running(links[0], near);
    assert!(!is_joined(group));
    let member = Member::attached(&context, group);
    let second = Member::attached(&context, group);
    assert!(is_joined(group), "the interface is in the group");
    for series in [0, 2] {
        member.send(series);
        steps.send(series).expect("the far member goes on");
        for series in [series, series + 1] {
            member.expect(series);
            second.expect(series);
        }
        answers.recv_timeout(PATIENCE).expect("the far member goes on");
    }
    drop(second);
    assert!(is_joined(group), "one member is left");
    drop(member);
    assert!(!is_joined(group), "left with the last member");
    Ok(())
}

#[test]
fn groups_of_ipv4_reach_over_a_wire_and_the_interface_joins_and_leaves() {
    if !network::is_root() {
        return skip_unless("root", "two network namespaces");
    }
    let outcome = std::thread::spawn(|| {
        over_a_wire(["group4-a", "group4-b"], "10.88.4.1/24", "10.88.4.2/24", group(20))
    });
    if let Err(reason) = outcome.join().unwrap() {
        skip_unless("root", &reason);
    }
}

#[test]
fn groups_of_ipv6_reach_over_a_wire_and_the_interface_joins_and_leaves() {
    if !network::is_root() {
        return skip_unless("root", "two network namespaces");
    }
    let outcome = std::thread::spawn(|| {
        over_a_wire(["group6-a", "group6-b"], "fd88:4::1/64", "fd88:4::2/64", group_v6(21))
    });
    if let Err(reason) = outcome.join().unwrap() {
        skip_unless("root", &reason);
    }
}
