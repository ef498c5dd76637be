//! What the system and its interfaces refuse: opening a device, joining a multicast group, memory.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use uroce::engine::{CongestionOptions, Limits};
use uroce::link::{JoinError, UdpOptions, open_group_socket};
use uroce::memory::OwnedMemory;
use uroce::queue::{
    Access, FlushPlacement, FlushSelectivity, PathMtu, Payload, QueuePairKind, Remote, SendFlags,
    SendOperation,
};
use uroce::software::{Device, DeviceOptions, LinkKind, OpenError};
use uroce::verbs::CompletionChannel;

use crate::Case;
use crate::calls::{engine, without, without_a_free_descriptor};
use crate::common::network;
use crate::pair::Pair;
use crate::world::{all, rc, root, run};

pub const CASES: &[Case] = &[
    ("GroupError.NotAGroup", || attach(QueuePairKind::Ud, "10.0.0.9")),
    ("GroupError.NoAddressOfFamily", || attach(QueuePairKind::Ud, "ff0e::9")),
    ("GroupError.NotDatagrams", || attach(QueuePairKind::Rc, "239.1.2.3")),
    ("GroupError.NotAttached", not_attached),
    ("GroupError.Attached", attached),
    ("CongestionError.Range", || {
        let options = CongestionOptions { dce_tcp_g: 1025, ..CongestionOptions::default() };
        options.check().unwrap_err().to_string()
    }),
    ("CongestionError.NoNumber", || congestion("rpg_ai_rate=fast")),
    ("CongestionError.Unknown", || congestion("rpg_speed=1")),
    ("JoinError.Family", || join(HERE, "ff0e::9".parse().unwrap()).to_string()),
    ("JoinError.PortHeld", group_port_held),
    ("JoinError.System", || without("JOIN")),
    ("OpenError.NoInterface", no_interface),
    ("OpenError.NotHere", || open(&DeviceOptions::at(ELSEWHERE))),
    ("OpenError.ForeignAddress", foreign_address),
    ("OpenError.NoLink", || open(&DeviceOptions { link: LinkKind::Xdp, ..here() })),
    ("OpenError.NoProvider", no_provider),
    ("OpenError.Capture", || {
        let capture = Some(PathBuf::from("/dev/null/file.pcapng"));
        open(&DeviceOptions { capture, ..here() })
    }),
    ("OpenError.System", || without("OPEN")),
    ("MappingError.Unknown", || without("MAPS")),
    ("RegisterError.NoOnDemand", no_on_demand),
    ("flush_failed", flush_failed),
];

/// These need a network without anything in it.
pub const IN_A_NEW_NETWORK: &[Case] = &[
    ("OpenError.NoInterfaces", || open(&DeviceOptions::default())),
    ("OpenError.Down", || with_interface(&[], &["mtu", "1500"])),
    ("OpenError.NoAddress", || with_interface(&[], &["up"])),
    ("OpenError.SmallMtu", || with_interface(&["add", "10.9.8.7/24"], &["mtu", "256", "up"])),
    ("JoinError.NoRoute", no_route),
];

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 88, 9, 30));
/// An address for documentation (RFC 5737), which no host has.
const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn here() -> DeviceOptions {
    DeviceOptions::at(HERE)
}

fn open(options: &DeviceOptions) -> String {
    match Device::open(options) {
        Ok(_) => panic!("it opens"),
        Err(error) => error.to_string(),
    }
}

/// With the interfaces of an ordinary machine in place of this one's.
fn no_interface() -> String {
    let text = open(&DeviceOptions::on("nothing0"));
    let (what, there) = text.split_once("there are: ").expect("a list");
    assert!(there.split(", ").any(|name| name == "lo"), "{there}");
    format!("{what}there are: net0, lo")
}

fn attach(kind: QueuePairKind, group: &str) -> String {
    let mut pair = Pair::of_kind(kind, PathMtu::Mtu1024, Access::ALL);
    let side = &mut pair.sides[0];
    let number = side.queues.number();
    side.engine.attach_multicast(number, group.parse().unwrap()).unwrap_err().to_string()
}

const GROUP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(239, 88, 9, 1));

fn not_attached() -> String {
    let mut pair = Pair::of_kind(QueuePairKind::Ud, PathMtu::Mtu1024, Access::ALL);
    let number = pair.sides[0].queues.number();
    pair.sides[0].engine.detach_multicast(number, GROUP).unwrap_err().to_string()
}

fn attached() -> String {
    let mut pair = Pair::of_kind(QueuePairKind::Ud, PathMtu::Mtu1024, Access::ALL);
    let number = pair.sides[0].queues.number();
    pair.sides[0].engine.attach_multicast(number, GROUP).unwrap();
    pair.sides[0].engine.destroy_queue_pair(number).unwrap_err().to_string()
}

fn congestion(text: &str) -> String {
    text.parse::<CongestionOptions>().unwrap_err().to_string()
}

fn join(address: IpAddr, group: IpAddr) -> JoinError {
    open_group_socket(&UdpOptions::new(address, 65_535), group).expect_err("it is refused")
}

/// Somebody receives there without sharing.
fn group_port_held() -> String {
    let holder = UdpSocket::bind((GROUP, 0)).unwrap();
    let port = holder.local_addr().unwrap().port();
    let options = UdpOptions { port, ..UdpOptions::new(HERE, 65_535) };
    open_group_socket(&options, GROUP).expect_err("it is held").to_string()
}

/// A loopback interface has no route to IPv6 groups.
fn no_route() -> String {
    network::ip(&["link", "set", "lo", "up"]).unwrap();
    join(Ipv6Addr::LOCALHOST.into(), "ff0e::9".parse().unwrap()).to_string()
}

fn foreign_address() -> String {
    open(&DeviceOptions { addresses: vec![ELSEWHERE], ..DeviceOptions::on("lo") })
}

/// What is said to an interface in this new network with an address and settings as asked; it is
/// gone afterwards.
fn with_interface(address: &[&str], set: &[&str]) -> String {
    const NAME: &str = "uroce-rows";
    network::ip(&["link", "add", NAME, "type", "veth", "peer", "name", "uroce-peer"]).unwrap();
    // No address of its own accord.
    network::ip(&["link", "set", NAME, "addrgenmode", "none"]).unwrap();
    if !address.is_empty() {
        network::ip(&[&["address"], address, &["dev", NAME]].concat()).unwrap();
    }
    network::ip(&[&["link", "set", NAME], set].concat()).unwrap();
    let text = open(&DeviceOptions::on(NAME));
    network::ip(&["link", "delete", NAME]).unwrap();
    text
}

/// What this program prints in a process of its own, in which it has only this part.
fn child(part: &str, word: &str, environment: (&str, &str)) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([part, "--exact", "--ignored", "--nocapture"]).env(environment.0, environment.1);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once(&format!("{word} SAYS ")));
    line.unwrap_or_else(|| panic!("{text}")).1.to_owned()
}

fn no_provider() -> String {
    child("system::provider_of_the_environment", "PROVIDER", ("UROCE_PROVIDER", "hardware"))
}

#[test]
#[ignore = "a part of another test, which starts it with a variable"]
fn provider_of_the_environment() {
    let error = DeviceOptions::from_environment().expect_err("there is no such provider");
    println!("PROVIDER SAYS {error}");
}

/// For the process with few descriptors: what opening a device and joining a group says while no
/// more than some are left, which are given back one by one from `kept`.
pub fn say_without_descriptors(mut kept: Vec<CompletionChannel>) {
    let error = without_a_free_descriptor(&mut kept, || {
        open_group_socket(&UdpOptions::new(HERE, 65_535), GROUP)
    });
    println!("JOIN SAYS {error}");
    let memory = [0u8; 8];
    let error = without_a_free_descriptor(&mut kept, || {
        uroce::host::check_mapped(memory.as_ptr() as usize, 8, false)
    });
    println!("MAPS SAYS {error}");
    let error = loop {
        match Device::open(&here()) {
            Err(OpenError::System(error)) => break OpenError::System(error),
            Err(_) => {}
            Ok(_) => panic!("it opens, and no error was the device's own"),
        }
        kept.pop().expect("it opens before all are given back");
    };
    println!("OPEN SAYS {error}");
}

/// From now on the calling thread gets `error` from a system call.
fn forbid(call: libc::c_long, error: i32) {
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        // The number of the call is the first field of what a filter sees (struct seccomp_data).
        instruction((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, 0),
        instruction((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 0, 1, call as u32),
        instruction((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0x0005_0000 | error as u32),
        instruction((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0x7fff_0000),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: takes no pointers; concerns the calling thread.
    let no_more = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(no_more, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: `filter` points to a whole program, and both outlive the call, which copies them.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// As in a sandbox that does not let processes copy.
fn no_on_demand() -> String {
    child("system::without_copies_by_the_kernel", "DEMAND", ("UROCE_REQUIRE", ""))
}

#[test]
#[ignore = "a part of another test, since whether it is possible is asked once in a process"]
fn without_copies_by_the_kernel() {
    forbid(libc::SYS_process_vm_writev, libc::EPERM);
    let mut engine = engine(Limits::default());
    let domain = engine.allocate_domain().unwrap();
    let start = std::ptr::without_provenance_mut(0x1000);
    // SAFETY: it is refused before anything is done with the range.
    let refused =
        unsafe { engine.register_foreign(domain, start, 4096, 0x1000, Access::ON_DEMAND) };
    println!("DEMAND SAYS {}", refused.unwrap_err());
}

/// The disk behind the memory fails (EIO), for this thread.
fn flush_failed() -> String {
    let failing = std::thread::spawn(|| {
        let mut file = scratch();
        file.write_all(&[0; 4096]).unwrap();
        let memory = OwnedMemory::map_file(&file, 4096).unwrap();
        let mut pair = rc(&|_, attributes| attributes.access = Some(Access::ALL | PERSISTENT));
        let side = &mut pair.sides[1];
        let registered = Arc::clone(&memory);
        let keys = side.engine.register(side.domain, registered, Access::ALL | PERSISTENT).unwrap();
        forbid(libc::SYS_msync, libc::EIO);
        let remote = Remote { address: memory.address(), key: keys.remote };
        let (placement, selectivity) = (FlushPlacement::Persistence, FlushSelectivity::Range);
        let operation = SendOperation::Flush { remote, length: 64, placement, selectivity };
        pair.post_payload(0, 7, operation, SendFlags::SIGNALED, Payload::EMPTY);
        run(&mut pair, all);
        root(&pair, 1)
    });
    failing.join().unwrap()
}

const PERSISTENT: Access = Access::FLUSH_PERSISTENT;

/// A file without a name.
fn scratch() -> File {
    let path = std::env::temp_dir().join(format!("uroce-rows-{}", std::process::id()));
    let options = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = options.unwrap();
    std::fs::remove_file(&path).unwrap();
    file
}
