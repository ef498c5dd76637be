//! What others do to us from outside: datagrams that no peer of ours would send while traffic runs,
//! outputs that nobody reads, disks that are full, files that are wanted twice.

mod common;
mod endpoint;

use std::io::Read;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::program::{Folder, Running, status, stderr, stdout, uroce};
use common::wait_readable;
use endpoint::{Endpoint, MEMORY, device, join, pattern};
use uroce::engine::{Counter, Port};
use uroce::link::{Link, UdpLink, UdpOptions};
use uroce::queue::SendOperation;
use uroce::rng::Rng;
use uroce::software::{Device, DeviceOptions, OpenError};
use uroce::wire::icrc::{self, DONT_FRAGMENT};
use uroce::wire::{Flow, ICRC_LENGTH, ROCE_PORT};

/// An address of `lo` that only one test uses.
fn loopback(last: u8) -> IpAddr {
    IpAddr::from([127, 88, 2, last])
}

/// A socket of somebody on this host, with what its datagrams' ICRCs cover.
struct Stranger {
    socket: UdpSocket,
    flow: Flow,
    random: Rng,
}

impl Stranger {
    fn new(target: IpAddr, seed: u64) -> Self {
        let source = loopback(200);
        let socket = UdpSocket::bind((source, 0)).unwrap();
        let probe = libc::IP_PMTUDISC_PROBE;
        let descriptor = std::os::fd::AsFd::as_fd(&socket);
        common::set_option(descriptor, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, probe);
        let source_port = socket.local_addr().unwrap().port();
        let flow = Flow { source, destination: target, source_port };
        Self { socket, flow, random: Rng::new(seed) }
    }

    /// What the receiver's full queue drops is no loss here.
    fn send(&self, datagram: &[u8]) {
        let _ = self.socket.send_to(datagram, (self.flow.destination, ROCE_PORT));
    }

    /// A datagram with every field as chance has it but the opcode and the queue pair: whole with a
    /// right or a wrong ICRC, or cut anywhere.
    fn crafted(&mut self, opcode: u8, queue_pair: u32) -> Vec<u8> {
        const LENGTHS: [u64; 9] = [0, 1, 4, 16, 28, 64, 1024, 1028, 5000];
        let length = LENGTHS[self.random.below(LENGTHS.len() as u64) as usize];
        let mut bytes: Vec<u8> = (0..12 + length).map(|_| self.random.next_u32() as u8).collect();
        bytes[0] = opcode;
        if self.random.chance(3, 4) {
            // Reserved bits and version as they should be, and the partition key.
            bytes[1] &= 0xf0;
            bytes[2..4].fill(0xff);
        }
        bytes[4..8].copy_from_slice(&queue_pair.to_be_bytes());
        match self.random.below(5) {
            0 => bytes.truncate(self.random.below(bytes.len() as u64) as usize),
            1 => bytes.extend([0; ICRC_LENGTH]),
            _ => bytes.extend(icrc::of_datagram(&self.flow, 0, DONT_FRAGMENT, &bytes)),
        }
        bytes
    }
}

/// Sends messages one way and writes the other way, and checks every byte.
fn exchange(one: &Endpoint, other: &Endpoint, rounds: u64) {
    for number in 0..rounds {
        let length = [1, 1024, 5000][number as usize % 3];
        let bytes = pattern(number, length);
        one.memory.write(0, &bytes).unwrap();
        other.post_receive(number, MEMORY / 2, 8192);
        one.post(number, SendOperation::Send, 0, length);
        assert_eq!(other.next_good().length as usize, length);
        assert_eq!(other.memory.to_vec(MEMORY / 2, length).unwrap(), bytes);
        assert_eq!(one.next_good().id, number);
        let target = one.address().remote;
        other.post(number, SendOperation::Write(target), MEMORY / 2, length);
        assert_eq!(other.next_good().id, number);
    }
}

#[test]
fn crafted_datagrams_of_every_opcode_disturb_no_connection_and_write_nothing() {
    let address = loopback(1);
    let (one, other) = (device(&DeviceOptions::at(address)), device(&DeviceOptions::at(address)));
    let (one, other) = (Endpoint::new(&one, 0), Endpoint::new(&other, 0));
    join(&one, &other);
    // What nobody writes to must stay as it is.
    let canary = pattern(77, 4096);
    one.memory.write(MEMORY - 4096, &canary).unwrap();
    let numbers = [one.address().number.value(), other.address().number.value()];
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let hostile = scope.spawn(|| {
            let mut stranger = Stranger::new(address, 1);
            let mut sent = 0_u64;
            loop {
                for opcode in 0..=u8::MAX {
                    let any = stranger.random.next_u32() & 0x00ff_ffff;
                    for number in [numbers[0], numbers[1], 0, 1, 0x00ff_ffff, any] {
                        let datagram = stranger.crafted(opcode, number);
                        stranger.send(&datagram);
                        sent += 1;
                    }
                }
                if finished.load(Ordering::Relaxed) {
                    return sent;
                }
            }
        });
        exchange(&one, &other, 60);
        finished.store(true, Ordering::Relaxed);
        assert!(hostile.join().unwrap() >= 256 * 6);
    });
    exchange(&one, &other, 5);
    assert_eq!(one.memory.to_vec(MEMORY - 4096, 4096).unwrap(), canary);
    let dropped = |reason: Counter| -> u64 {
        let of = |end: &Endpoint| end.device.counters().unwrap().engine.get(reason);
        of(&one) + of(&other)
    };
    for reason in [
        Counter::DropMalformed,
        Counter::DropBadIcrc,
        Counter::DropUnknownQueuePair,
        Counter::DropWrongAddress,
    ] {
        assert!(dropped(reason) > 0, "{reason:?}: {:?} {:?}", one.counters(), other.counters());
    }
}

#[test]
fn datagrams_without_a_byte_do_not_keep_a_turn_from_ending() {
    const SENT: usize = 300;
    let address = loopback(2);
    let mut link = UdpLink::open(UdpOptions::new(address, 65_535)).unwrap();
    let stranger = Stranger::new(address, 2);
    (0..SENT).for_each(|_| stranger.send(&[]));
    assert!(wait_readable(link.descriptors(), 20_000));
    let mut nothing = |_: &uroce::wire::ReceivedBurst<'_>| panic!("there is no byte");
    assert_eq!(link.receive(100, &mut nothing), 100, "the turn ends, and another one follows");
    assert_eq!(link.statistics().empty, 100);
    while link.receive(100, &mut nothing) > 0 {}
    assert_eq!(link.statistics().empty, SENT as u64);
    assert_eq!(link.statistics().received.packets, 0);
}

#[test]
fn a_flood_of_empty_and_tiny_datagrams_slows_a_connection_but_does_not_end_it() {
    let address = loopback(3);
    let (one, other) = (device(&DeviceOptions::at(address)), device(&DeviceOptions::at(address)));
    let (one, other) = (Endpoint::new(&one, 0), Endpoint::new(&other, 0));
    join(&one, &other);
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for length in [0, 14] {
            let finished = &finished;
            scope.spawn(move || {
                let stranger = Stranger::new(address, 3);
                while !finished.load(Ordering::Relaxed) {
                    stranger
                        .send(&[0xff, 0x75, 0x52, 0x51, 0, 9, 0, 0, 1, 2, 3, 4, 0, 0][..length]);
                }
            });
        }
        exchange(&one, &other, 30);
        finished.store(true, Ordering::Relaxed);
    });
}

/// The program with its arguments behind a shell's redirection or limit.
fn in_shell(script: &str, arguments: &[&str]) -> Command {
    let plain = uroce(arguments);
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(plain.get_program()).args(plain.get_args());
    for (name, _) in plain.get_envs() {
        command.env_remove(name);
    }
    command.stdin(std::process::Stdio::null());
    command
}

const COMMANDS: [&[&str]; 5] = [
    &["devices"],
    &["devices", "--json"],
    &["sim", "--seed", "1"],
    &["sim", "--seed", "1", "--json"],
    &["demo", "--fast"],
];

#[test]
fn an_output_that_nobody_reads_is_an_end_like_any_other() {
    for arguments in COMMANDS {
        let output = Running::start(in_shell("\"$0\" \"$@\" | true", arguments)).finish();
        assert_eq!(stderr(&output), "", "{arguments:?}");
        let output = Running::start(in_shell("exec \"$0\" \"$@\" >&-", arguments)).finish();
        assert_eq!((status(&output), stderr(&output)), (0, String::new()), "{arguments:?}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_told() {
    for arguments in COMMANDS {
        let output = Running::start(in_shell("exec \"$0\" \"$@\" >/dev/full", arguments)).finish();
        assert_eq!((status(&output), stdout(&output)), (2, String::new()), "{arguments:?}");
        let text = stderr(&output);
        assert!(text.starts_with("uroce: cannot write to standard output: "), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn a_capture_that_outgrows_the_disk_is_told_and_disturbs_no_traffic() {
    let folder = Folder::new();
    let file = folder.path("cut.pcapng");
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let common = ["pingpong", "-d", "lo", "-p", &port, "-n", "100", "-c"];
    let mut server = Running::start(uroce(&common));
    server.wait_for_line("local  address");
    let limited = "ulimit -f 16; trap '' XFSZ; exec \"$0\" \"$@\"";
    let arguments = [&common[..], &["--pcap", &file, "127.0.0.1"]].concat();
    let client = Running::start(in_shell(limited, &arguments)).finish();
    assert_eq!(status(&server.finish()), 0);
    assert!(stdout(&client).contains("every byte of every message was checked"));
    assert_eq!(status(&client), 2);
    assert!(stderr(&client).contains("is the disk full?"), "{}", stderr(&client));
}

/// A device that records to `path`.
fn recording(path: &str, last: u8) -> Result<Arc<Device>, OpenError> {
    let capture = Some(PathBuf::from(path));
    Device::open(&DeviceOptions { capture, ..DeviceOptions::at(loopback(last)) }).map(Arc::new)
}

#[test]
fn two_devices_do_not_record_to_one_file() {
    let folder = Folder::new();
    let path = folder.path("x.pcapng");
    let first = recording(&path, 10).unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    let error = recording(&path, 11).unwrap_err().to_string();
    assert!(error.contains("give each a file of its own") && error.contains(&path), "{error}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), size, "what is there is left alone");
    drop(first);
    drop(recording(&path, 11).unwrap());
    // What takes everything may be shared.
    let both = [12, 13].map(|last| recording("/dev/null", last).unwrap());
    drop(both);
}

#[test]
#[allow(unsafe_code)]
fn a_forked_child_that_sleeps_on_keeps_no_capture() {
    let folder = Folder::new();
    let path = folder.path("x.pcapng");
    let first = recording(&path, 14).unwrap();
    let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    // SAFETY: the child calls only what may be called between fork and exec.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(120);
            libc::write(there.as_raw_fd(), [1u8].as_ptr().cast(), 1);
            libc::pause();
            libc::_exit(0);
        }
        child
    };
    assert!(child > 0);
    drop(first);
    // The child has come so far that it has closed what is not its own.
    here.read_exact(&mut [0]).unwrap();
    let second = recording(&path, 14);
    // SAFETY: the child is ours and not yet waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert!(second.is_ok(), "{second:?}");
}

/// Processor time that a process has used so far, in hundredths of a second on every Linux.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // User and system time; the name before them may hold anything but ends with the last `)`.
    let fields = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace();
    fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

#[test]
#[allow(unsafe_code)]
fn a_process_without_descriptors_sleeps_although_others_connect_to_it() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let mut server = Running::start(uroce(&["pingpong", "-d", "lo", "-p", &port]));
    let line = server.wait_for_line("local  address");
    // `... QPN 0x2a0011, PSN ...`: the slot is the top byte.
    let number = line.split_once("QPN 0x").unwrap().1;
    let slot = u8::from_str_radix(&number[..2], 16).unwrap();
    let process = server.id();
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let last = open.map(|entry| entry.file_name().to_str().unwrap().parse::<u64>().unwrap());
    let count = last.max().unwrap() + 1;
    let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
    let id = libc::pid_t::try_from(process).unwrap();
    // SAFETY: `limit` outlives the call; the old limit is not asked for.
    let limited =
        unsafe { libc::prlimit(id, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(limited, 0);
    let others: Vec<socket2::Socket> = (0..3)
        .map(|_| {
            let kind = socket2::Type::SEQPACKET;
            let socket = socket2::Socket::new(socket2::Domain::UNIX, kind, None).unwrap();
            let name = format!("\0uroce/127.0.0.1/slot/{slot}");
            socket.connect(&socket2::SockAddr::unix(name).unwrap()).unwrap();
            socket
        })
        .collect();
    std::thread::park_timeout(std::time::Duration::from_millis(100));
    let before = ticks(process);
    std::thread::park_timeout(std::time::Duration::from_secs(1));
    let used = ticks(process) - before;
    assert!(used < 8, "{used} hundredths of a second of processor time while idle");
    drop(others);
}
