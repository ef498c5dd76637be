//! Several processes of one host on one address and port 4791.
//!
//! Each process is this test binary again, with the environment variable [`ROLE`], told what to do
//! by lines on its standard input; its answers are lines on standard output that begin with `@`.

mod common;
mod endpoint;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use common::{network, skip_unless};
use endpoint::{
    Address, Endpoint, MEMORY, device, eventually, pattern, slots_taken, sockets_on_port,
};
use uroce::queue::{CompletionKind, CompletionStatus, Remote, SendOperation};
use uroce::software::{DeviceOptions, clock};
use uroce::time::SECOND;
use uroce::wire::{Qpn, Rkey};

const ROLE: &str = "UROCE_TEST_ROLE";
/// The longest that a test waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// An address of `lo` that only one test uses.
fn loopback(last: u8) -> IpAddr {
    IpAddr::from([127, 88, 1, last])
}

/// A process of the test's; killed if the test ends before.
struct Process {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

/// What a process does besides the usual.
#[derive(Clone, Copy, Default)]
struct Manner {
    without_steering: bool,
    /// Becomes this user before it opens anything.
    user: Option<u32>,
}

impl Process {
    fn start(address: IpAddr, manner: Manner) -> Self {
        let steering = if manner.without_steering { "unsteered" } else { "steered" };
        let user = manner.user.unwrap_or(0);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_role_of_a_process", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{address} {steering} {user}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The harness writes the test's name on the same line, in front.
                if let Some((_, answer)) = line.split_once('@')
                    && sender.send(answer.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self { child, input, answers }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The words of the next answer, which must begin with `what`.
    fn answer(&self, what: &str) -> Vec<String> {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => {
                let mut words = answer.split(' ').map(str::to_owned);
                assert_eq!(words.next().as_deref(), Some(what), "{answer}");
                words.collect()
            }
            Err(RecvTimeoutError::Timeout) => panic!("no `{what}` in {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("the process ended before `{what}`"),
        }
    }

    fn ask(&mut self, line: &str, what: &str) -> Vec<String> {
        self.tell(line);
        self.answer(what)
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops the process, or lets it go on.
    fn signal(&self, signal: i32) {
        #[allow(unsafe_code)]
        // SAFETY: the call takes numbers; the process is our child and not yet waited for.
        let result = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        assert_eq!(result, 0);
    }

    /// Counts of sharing: forwarded, received forwarded, programs attached.
    fn sharing(&mut self) -> [u64; 3] {
        let words = self.ask("sharing", "sharing");
        [0, 1, 2].map(|index: usize| words[index].parse().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(count: usize, address: IpAddr, manner: Manner) -> Vec<Process> {
    (0..count).map(|_| Process::start(address, manner)).collect()
}

/// Each process gets a queue pair to the next one, and one from the one before.
fn connect_ring(ring: &mut [Process]) {
    let pairs: Vec<Vec<String>> = ring.iter_mut().map(|one| one.ask("make", "made")).collect();
    let count = ring.len();
    for (index, process) in ring.iter_mut().enumerate() {
        let (next, before) =
            (&pairs[(index + 1) % count][1], &pairs[(index + count - 1) % count][0]);
        process.tell(&format!("connect {next} {before}"));
    }
    for process in ring {
        process.answer("connected");
    }
}

/// Each process sends so many messages to the next one, all at once, and checks what it gets.
fn exchange(ring: &mut [Process], messages: u64) {
    for process in &mut *ring {
        process.tell(&format!("exchange {messages}"));
    }
    for process in ring {
        process.answer("exchanged");
    }
}

fn ring_works(count: usize, address: IpAddr, manner: Manner) -> Vec<Process> {
    let mut ring = start(count, address, manner);
    connect_ring(&mut ring);
    exchange(&mut ring, 50);
    ring
}

// ---------------------------------------------------------------------------------------------
// The processes.

/// Not a test: what a process that a test started does.
#[test]
fn the_role_of_a_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let address: IpAddr = words[0].parse().unwrap();
    become_user(words[2].parse().unwrap());
    let without_steering = words[1] == "unsteered";
    let device = device(&DeviceOptions { without_steering, ..DeviceOptions::at(address) });
    let (mut out, mut from) = (None, None);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "make" => {
                let (next, before) = (Endpoint::new(&device, 0), Endpoint::new(&device, 0));
                say(&format!("made {} {}", written(&next), written(&before)));
                (out, from) = (Some(next), Some(before));
            }
            "connect" => {
                out.as_ref().unwrap().connect(&read(words[1]));
                from.as_ref().unwrap().connect(&read(words[2]));
                say("connected");
            }
            "exchange" => {
                let (out, from) = (out.as_ref().unwrap(), from.as_ref().unwrap());
                exchange_messages(out, from, words[1].parse().unwrap());
                say("exchanged");
            }
            "sharing" => {
                let sharing = device.counters().unwrap().sharing;
                let (to, by) = (sharing.forwarded, sharing.received_forwarded);
                say(&format!("sharing {to} {by} {}", sharing.programs_attached));
            }
            "guest" => say(&format!("guest {} {}", device.is_guest(), device.slot())),
            "takeovers" => {
                say(&format!("takeovers {}", device.counters().unwrap().sharing.takeovers));
            }
            "fork" => say(&format!("forked {}", fork_a_sleeper())),
            "use_in_child" => say(&format!("used {}", use_in_child(&device))),
            other => panic!("no such order: {other}"),
        }
    }
}

fn say(answer: &str) {
    println!("@{answer}");
}

fn written(endpoint: &Endpoint) -> String {
    let Address { number, ip, remote } = endpoint.address();
    format!("{}/{ip}/{}/{}", number.value(), remote.address, remote.key.value())
}

fn read(text: &str) -> Address {
    let parts: Vec<&str> = text.split('/').collect();
    let key = Rkey::new(parts[3].parse().unwrap());
    Address {
        number: Qpn::new(parts[0].parse().unwrap()),
        ip: parts[1].parse().unwrap(),
        remote: Remote { address: parts[2].parse().unwrap(), key },
    }
}

/// Sends numbered messages to the next process while receiving those of the one before.
fn exchange_messages(out: &Endpoint, from: &Endpoint, messages: u64) {
    const LENGTH: usize = 1500;
    let place = |number: u64| (number as usize % 64) * 2048;
    let sender = out.queues.number().value();
    let peer = std::cell::Cell::new(None);
    for number in 0..messages.min(64) {
        from.post_receive(number, MEMORY / 2 + place(number), 2048);
    }
    let check = |number: u64| {
        let bytes = from.memory.to_vec(MEMORY / 2 + place(number), LENGTH).unwrap();
        let from_whom = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        // All from one sender, whoever that is.
        assert_eq!(*peer.get().get_or_insert(from_whom), from_whom);
        peer.set(Some(from_whom));
        assert_eq!(bytes[4..], pattern(number, LENGTH)[4..], "message {number}");
    };
    let (mut sent, mut received) = (0, 0);
    for number in 0..messages {
        let mut bytes = pattern(number, LENGTH);
        bytes[..4].copy_from_slice(&sender.to_le_bytes());
        out.memory.write(place(number), &bytes).unwrap();
        out.post(number, SendOperation::Send, place(number), LENGTH);
        if number >= 32 {
            assert_eq!((out.next_good().id, sent), (sent, sent));
            sent += 1;
        }
        while received < messages && from.completions.waiting() > 0 {
            received = take_one(from, received, messages, &check, place);
        }
    }
    while received < messages {
        received = take_one(from, received, messages, &check, place);
    }
    while sent < messages {
        assert_eq!(out.next_good().id, sent);
        sent += 1;
    }
}

fn take_one(
    from: &Endpoint,
    received: u64,
    messages: u64,
    check: &dyn Fn(u64),
    place: impl Fn(u64) -> usize,
) -> u64 {
    let completion = from.next();
    assert_eq!(completion.status, CompletionStatus::Success, "{:?}", from.counters());
    assert_eq!((completion.kind, completion.id), (CompletionKind::Receive, received));
    check(received);
    if received + 64 < messages {
        from.post_receive(received + 64, MEMORY / 2 + place(received), 2048);
    }
    received + 1
}

#[allow(unsafe_code)]
fn become_user(user: u32) {
    if user != 0 {
        // SAFETY: neither call takes pointers.
        let results = unsafe { [libc::setgid(user), libc::setuid(user)] };
        assert_eq!(results, [0, 0]);
    }
}

/// A child that does nothing, but keeps what it inherited; ends by itself after two minutes.
#[allow(unsafe_code)]
fn fork_a_sleeper() -> i32 {
    // SAFETY: the child calls only what may be called between fork and exec.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            // Its parent's pipes must not stay open, or the test would wait for their end.
            libc::close(0);
            libc::close(1);
            libc::alarm(120);
            loop {
                libc::pause();
            }
        }
        assert!(child > 0);
        child
    }
}

/// What a forked child gets when it goes on using its parent's device: errors, and no harm.
#[allow(unsafe_code)]
fn use_in_child(device: &Arc<uroce::software::Device>) -> bool {
    // SAFETY: the process is single-threaded but for the device's thread, which holds no lock of
    // the allocator's while the device is idle.
    let child = unsafe { libc::fork() };
    if child == 0 {
        device.kick();
        let refused = device.counters().is_err() && device.control(|_, _| ()).is_err();
        // Opening anew works, and dropping the old one neither hangs nor closes the new one's.
        let again = uroce::software::Device::open(&DeviceOptions::at(device.addresses()[0]));
        let apart = again.as_ref().is_ok_and(|again| again.slot() != device.slot());
        // SAFETY: ends the child without the parent's destructors.
        unsafe { libc::_exit(if refused && apart { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child is ours and not yet waited for; `status` outlives the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    waited == child && status == 0
}

/// A child that sleeps, of a process that the test started; killed when dropped.
struct Sleeper(i32);

impl Drop for Sleeper {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the test was told this number by the process that forked it, and it lives for
        // two minutes, longer than the test.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

// ---------------------------------------------------------------------------------------------
// The tests.

#[test]
fn sixty_four_processes_on_one_address_reach_each_other() {
    let address = loopback(1);
    let mut ring = start(64, address, Manner::default());
    connect_ring(&mut ring);
    assert_eq!(slots_taken(address).len(), 64);
    assert_eq!(sockets_on_port(address), 64);
    exchange(&mut ring, 100);
    drop(ring);
    assert!(eventually(|| sockets_on_port(address) == 0));
    assert_eq!(slots_taken(address), BTreeSet::new());
}

#[test]
fn steering_settles_and_nothing_is_forwarded_any_more() {
    let mut ring = ring_works(4, loopback(2), Manner::default());
    assert_steered(&mut ring);
    // The first one's end moves the last one's socket to another index.
    ring.remove(0).kill();
    connect_ring(&mut ring);
    assert_steered(&mut ring);
    let attached: u64 = ring.iter_mut().map(|one| one.sharing()[2]).sum();
    assert!(attached > 0);
}

/// After a while an exchange forwards nothing.
fn assert_steered(ring: &mut [Process]) {
    let deadline = clock::now() + 30 * SECOND;
    let mut before = u64::MAX;
    loop {
        exchange(ring, 20);
        let forwarded: u64 = ring.iter_mut().map(|one| one.sharing()[0]).sum();
        if forwarded == before {
            return;
        }
        before = forwarded;
        assert!(clock::now() < deadline, "{forwarded} forwarded");
    }
}

#[test]
fn processes_without_steering_reach_each_other_by_forwarding() {
    let manner = Manner { without_steering: true, ..Manner::default() };
    let mut ring = ring_works(6, loopback(3), manner);
    exchange(&mut ring, 200);
    let counts: Vec<[u64; 3]> = ring.iter_mut().map(Process::sharing).collect();
    let sum = |index: usize| counts.iter().map(|count| count[index]).sum::<u64>();
    assert!(sum(0) > 0 && sum(1) > 0, "forwarded and received: {counts:?}");
    assert_eq!(sum(2), 0, "no program was attached");
}

#[test]
fn killed_processes_are_replaced_and_the_others_go_on() {
    let address = loopback(4);
    let mut old = ring_works(4, address, Manner::default());
    let mut others = ring_works(3, address, Manner::default());
    // In the middle of an exchange.
    for process in &mut old {
        process.tell("exchange 1000000");
    }
    exchange(&mut others, 50);
    for process in old {
        process.kill();
    }
    assert!(eventually(|| slots_taken(address).len() == 3 && sockets_on_port(address) == 3));
    exchange(&mut others, 50);
    let mut new = ring_works(4, address, Manner::default());
    exchange(&mut others, 50);
    exchange(&mut new, 50);
}

#[test]
fn a_stopped_process_loses_only_what_is_for_itself_while_others_come_and_go() {
    let address = loopback(8);
    let mut first = ring_works(2, address, Manner::default());
    let mut stopped = ring_works(2, address, Manner::default());
    let mut ring = ring_works(2, address, Manner::default());
    for process in &stopped {
        process.signal(libc::SIGSTOP);
    }
    exchange(&mut ring, 200);
    // Whoever closes a socket moves the last one of the group: now they are sent elsewhere.
    for process in &mut ring {
        process.tell("exchange 3000");
    }
    first.remove(0).kill();
    for process in &ring {
        process.answer("exchanged");
    }
    // And those who join have to be found in spite of the stopped ones.
    let mut new = ring_works(3, address, Manner::default());
    first.remove(0).kill();
    exchange(&mut ring, 500);
    exchange(&mut new, 500);
    for process in &stopped {
        process.signal(libc::SIGCONT);
    }
    exchange(&mut stopped, 200);
}

#[test]
fn a_forked_child_that_sleeps_keeps_nothing_of_a_killed_parent() {
    let address = loopback(5);
    let mut parent = ring_works(2, address, Manner::default());
    let sleepers: Vec<Sleeper> = parent
        .iter_mut()
        .map(|process| Sleeper(process.ask("fork", "forked")[0].parse().unwrap()))
        .collect();
    // The parents themselves do not notice.
    exchange(&mut parent, 50);
    for process in parent {
        process.kill();
    }
    let free = || sockets_on_port(address) == 0 && slots_taken(address).is_empty();
    let is_free = eventually(free);
    let alive = |sleeper: &Sleeper| std::path::Path::new(&format!("/proc/{}", sleeper.0)).exists();
    assert!(sleepers.iter().all(alive), "the children sleep on");
    assert!(is_free, "{:?} slots, {} sockets", slots_taken(address), sockets_on_port(address));
    let mut new = ring_works(3, address, Manner::default());
    assert_steered(&mut new);
    drop(sleepers);
}

#[test]
fn a_forked_child_cannot_use_its_parents_device_and_can_open_its_own() {
    let mut ring = ring_works(2, loopback(6), Manner::default());
    assert_eq!(ring[0].ask("use_in_child", "used"), ["true"]);
    exchange(&mut ring, 50);
}

#[test]
fn processes_with_addresses_of_their_own_need_no_sharing() {
    let mut ring: Vec<Process> =
        (10..14).map(|last| Process::start(loopback(last), Manner::default())).collect();
    connect_ring(&mut ring);
    exchange(&mut ring, 100);
    for process in &mut ring {
        assert_eq!(process.sharing()[..2], [0, 0]);
    }
}

#[test]
fn another_users_processes_are_guests_and_take_over_when_the_owner_ends() {
    if !network::is_root() {
        return skip_unless("root", "becoming another user");
    }
    let address = loopback(7);
    let nobody = Manner { user: Some(65_534), ..Manner::default() };
    let mut ring = vec![Process::start(address, Manner::default())];
    ring[0].ask("guest", "guest");
    ring.push(Process::start(address, Manner::default()));
    ring.push(Process::start(address, nobody));
    ring.push(Process::start(address, nobody));
    connect_ring(&mut ring);
    let guests: Vec<String> =
        ring.iter_mut().map(|one| one.ask("guest", "guest")[0].clone()).collect();
    assert_eq!(guests, ["false", "false", "true", "true"]);
    exchange(&mut ring, 200);
    assert!(ring[2].sharing()[1] > 0, "what a guest gets was forwarded");
    ring.remove(0).kill();
    ring.remove(0).kill();
    let took_over = |process: &mut Process| process.ask("takeovers", "takeovers")[0] == "1";
    assert!(eventually(|| ring.iter_mut().all(took_over)), "the port is free");
    connect_ring(&mut ring);
    exchange(&mut ring, 100);
    // Now the first user is the guest.
    ring.push(Process::start(address, Manner::default()));
    assert_eq!(ring[2].ask("guest", "guest")[0], "true");
    connect_ring(&mut ring);
    exchange(&mut ring, 100);
}

#[test]
fn a_program_that_holds_all_addresses_is_told_apart_from_a_host() {
    if !network::is_root() {
        return skip_unless("root", "a network namespace, so that nothing else is disturbed");
    }
    let outcome = std::thread::spawn(|| {
        network::veth_in_new_namespace("uroce-a", "uroce-b", "10.88.0.1/24", 1500)?;
        let _holder = std::net::UdpSocket::bind(("0.0.0.0", 4791)).map_err(|e| e.to_string())?;
        let options = DeviceOptions::at(IpAddr::from([127, 0, 0, 1]));
        Ok::<_, String>(uroce::software::Device::open(&options).err().map(|e| e.to_string()))
    });
    let text = match outcome.join().unwrap() {
        Ok(text) => text.expect("the port is held"),
        Err(reason) => return skip_unless("root", &reason),
    };
    assert!(text.contains("4791") && text.contains("is held by"), "{text}");
}
