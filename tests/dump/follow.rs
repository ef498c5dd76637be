//! What is still being written: interfaces that are followed, pipes from running captures, and how
//! Ctrl-C ends both.

use std::io::Write;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use uroce::host::{Capability, Privileges};

use super::build::*;
use super::command::{objects, rxe};
use super::common::network::{assert_ours, ip, veth_in_new_namespace};
use super::common::program::{Running, run, status, stderr, stdout, uroce};
use super::common::{skip_unless, wait_readable};

#[test]
fn a_missing_interface_is_named() {
    let output = run(&["dump", "--follow", "no-such-interface", "--count", "1"]);
    assert_eq!(status(&output), 2);
    assert!(
        stderr(&output).contains("no network interface `no-such-interface`"),
        "{}",
        stderr(&output)
    );
}

/// Makes the pair of interfaces `dump-a` and `dump-b`, or skips the test.
fn has_pair() -> bool {
    if !Privileges::current().has(Capability::NetRaw) {
        skip_unless("root", "packet sockets need CAP_NET_RAW");
        return false;
    }
    let made = veth_in_new_namespace("dump-a", "dump-b", "10.98.0.1/24", 1500);
    made.inspect_err(|reason| skip_unless("network-namespaces", reason)).is_ok()
}

/// Sends frames as they are out of an interface that the test made, until it is dropped.
struct Sender {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    fn start(interface: &'static str, frames: Vec<Vec<u8>>) -> Self {
        assert_ours(interface);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        // The thread is in the namespace of the one that starts it.
        let thread = std::thread::spawn(move || {
            let (socket, address) = packet_socket(interface);
            while !stopped.load(Ordering::Relaxed) {
                frames.iter().for_each(|frame| send(&socket, &address, frame));
                // The follower may not have begun yet: nothing tells when it has.
                wait_readable(&[], 5);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the sender does not panic");
        }
    }
}

#[allow(unsafe_code)]
fn packet_socket(interface: &str) -> (OwnedFd, libc::sockaddr_ll) {
    let name = std::ffi::CString::new(interface).unwrap();
    // SAFETY: the name is a C string, a sockaddr_ll of zeros is valid, the descriptor is new.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        (OwnedFd::from_raw_fd(socket), address)
    }
}

#[allow(unsafe_code)]
fn send(socket: &OwnedFd, address: &libc::sockaddr_ll, frame: &[u8]) {
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let target = (&raw const *address).cast();
    // SAFETY: both pointers are valid for the lengths beside them.
    let sent = unsafe {
        libc::sendto(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, target, length)
    };
    assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
}

#[test]
#[allow(unsafe_code)]
fn a_missing_capability_is_named() {
    const CAP_NET_RAW: libc::c_ulong = 13;
    let mut command = uroce(&["dump", "--follow", "lo", "--count", "1"]);
    // SAFETY: prctl is a plain system call; where it is refused the capability is missing anyway.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0);
            Ok(())
        });
    }
    let output = Running::start(command).finish();
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("has no CAP_NET_RAW: run it as root"), "{}", stderr(&output));
}

#[test]
fn following_shows_what_passes_with_its_tags() {
    if !has_pair() {
        return;
    }
    let inside = roce4(&super::build::packet(4, 100, &[], &payload(30)));
    let frames = vec![tagged(&[(0x8100, 0x6064)], 0x0800, &inside), eth4(&inside)];
    let sender = Sender::start("dump-a", frames);
    let output =
        run(&["dump", "--json", "--opcode", "RC_SEND_ONLY", "--follow", "dump-b", "--count", "12"]);
    drop(sender);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let found = objects(&output);
    assert!(
        found.iter().all(|object| object["icrc"] == "ok" && object["length"].as_u64() >= Some(90))
    );
    let tag = serde_json::json!([{"id": 100, "pcp": 3, "dei": false}]);
    assert!(found.iter().any(|object| object["vlan"] == tag), "{found:?}");
    assert!(found.iter().any(|object| object["vlan"].is_null()), "{found:?}");
    assert!(
        found[0]["time"].as_str().is_some_and(|time| time.len() == "1700000000.000000000".len())
    );
}

fn signal(process: &Running, signal: libc::c_int) {
    #[allow(unsafe_code)]
    // SAFETY: the process is a child of ours that has not been waited for.
    let sent = unsafe { libc::kill(process.id() as libc::pid_t, signal) };
    assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
}

fn read_status(process: &Running) -> String {
    std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap()
}

/// Waits until a process that was just started has a packet socket for all protocols, which no
/// other one in this namespace has.
fn wait_until_following(process: &Running) {
    let path = format!("/proc/{}/net/packet", process.id());
    let is_following = || std::fs::read_to_string(&path).unwrap().contains(" 0003 ");
    while !is_following() {
        assert!(!read_status(process).contains("State:\tZ"), "it has ended");
        wait_readable(&[], 5);
    }
}

/// Waits until a frame has come out of `dump-b`, to whoever follows it.
fn wait_for_frame() {
    let (socket, mut address) = packet_socket("dump-b");
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    #[allow(unsafe_code)]
    // SAFETY: pointer and length describe the address.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    assert!(wait_readable(&[socket.as_raw_fd()], 60_000), "the sender sends");
}

/// The program as a terminal starts it: whoever runs these tests in the background may ignore
/// signals, which a child inherits.
fn heeding_signals(arguments: &[&str]) -> Command {
    let mut command = uroce(arguments);
    #[allow(unsafe_code)]
    // SAFETY: signal is a plain system call, of which nothing depends on the parent's memory.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

#[test]
fn an_interrupt_ends_following_in_order() {
    if !has_pair() {
        return;
    }
    let inside = roce4(&super::build::packet(4, 100, &[], &payload(30)));
    let sender = Sender::start("dump-a", vec![eth4(&inside)]);
    for (wish, arguments) in
        [(libc::SIGINT, &["--summary", "--json"][..]), (libc::SIGTERM, &["--json"])]
    {
        let process =
            Running::start(heeding_signals(&[&["dump", "--follow", "dump-b"], arguments].concat()));
        wait_until_following(&process);
        // The second one: all of the first has gone to every follower before it.
        wait_for_frame();
        wait_for_frame();
        signal(&process, wish);
        let output = process.finish();
        assert_eq!((status(&output), stderr(&output).as_str()), (0, ""), "{arguments:?}");
        let found = objects(&output);
        if arguments.contains(&"--summary") {
            assert_eq!(found.len(), 1);
            assert_eq!(found[0]["file"], "dump-b");
            assert!(found[0]["icrc"]["ok"].as_u64() >= Some(1), "{}", found[0]);
        } else {
            assert!(found.iter().any(|frame| frame["icrc"] == "ok"), "{}", stdout(&output));
        }
    }
    drop(sender);
}

#[test]
fn an_interface_that_goes_away_ends_following_below_what_came() {
    if !has_pair() {
        return;
    }
    let inside = roce4(&super::build::packet(4, 100, &[], &payload(30)));
    let sender = Sender::start("dump-a", vec![eth4(&inside)]);
    let process = Running::start(uroce(&["dump", "--summary", "--json", "--follow", "dump-b"]));
    wait_until_following(&process);
    wait_for_frame();
    wait_for_frame();
    drop(sender);
    ip(&["link", "set", "dump-b", "down"]).unwrap();
    let output = process.finish();
    assert_eq!(status(&output), 2);
    assert!(
        stderr(&output).contains("dump-b cannot be followed any further: Network is down"),
        "{}",
        stderr(&output)
    );
    assert!(objects(&output)[0]["icrc"]["ok"].as_u64() >= Some(1), "{}", stdout(&output));
}

#[test]
fn a_pipe_is_shown_as_it_is_written_and_an_interrupt_is_its_end() {
    let file = std::fs::read(rxe("rc-mixed")).unwrap();
    // In the middle of a record: that the rest is missing is no fault of the capture.
    let part = &file[..file.len() - 5];
    for wish in [libc::SIGINT, libc::SIGTERM] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut command = heeding_signals(&["dump", "--json", "-"]);
        command.stdin(reader);
        let mut process = Running::start(command);
        writer.write_all(part).unwrap();
        let last = process.wait_for_line("\"frame\":21,");
        assert!(last.ends_with('}'), "a whole line: {last}");
        signal(&process, wish);
        let output = process.finish();
        assert_eq!((status(&output), stderr(&output).as_str()), (0, ""));
        assert_eq!(stdout(&output), "", "nothing comes twice");
        drop(writer);
    }
}

#[test]
#[allow(unsafe_code)]
fn a_signal_that_is_ignored_stays_so() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut command = uroce(&["dump", "--json", "-"]);
    // SAFETY: signal is a plain system call, of which nothing depends on the parent's memory.
    unsafe {
        command.stdin(reader).pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_IGN);
            Ok(())
        });
    }
    let mut process = Running::start(command);
    let file = std::fs::read(rxe("rc-mixed")).unwrap();
    let (front, back) = file.split_at(file.len() - 5);
    writer.write_all(front).unwrap();
    process.wait_for_line("\"frame\":21,");
    signal(&process, libc::SIGINT);
    writer.write_all(back).unwrap();
    process.wait_for_line("\"frame\":22,");
    drop(writer);
    assert_eq!(status(&process.finish()), 0);
}
