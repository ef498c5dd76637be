//! The command: files of every kind, filters, exit statuses.

use std::io::Write;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use uroce::host::{Capability, Privileges};

use super::build::*;
use super::common::network::{assert_ours, veth_in_new_namespace};
use super::common::program::{Running, run, status, stderr, stdout, uroce};
use super::common::{skip_unless, wait_readable};
use super::{captures, folder};

fn rxe(name: &str) -> String {
    folder("rxe").join(format!("{name}.pcap")).to_string_lossy().into_owned()
}

fn oddity(name: &str) -> String {
    folder("oddities").join(format!("{name}.pcap")).to_string_lossy().into_owned()
}

fn objects(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// A file of this test's own.
fn temporary(name: &str, bytes: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("uroce-dump-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Runs with `input` on standard input.
fn piped(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = uroce(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // The program may end before it has read everything.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_file_a_pipe_and_a_compressed_file_give_the_same() {
    let file = std::fs::read(rxe("rc-mixed")).unwrap();
    let plain = stdout(&run(&["dump", "--json", &rxe("rc-mixed")]));
    assert_eq!(plain.lines().count(), 22);
    assert_eq!(stdout(&piped(&["dump", "--json", "-"], &file)), plain);
    assert_eq!(stdout(&piped(&["dump", "--json", "-"], &gzip(&file))), plain);
    // Two members, as `cat a.gz b.gz` gives.
    let (front, back) = file.split_at(1000);
    let members = [gzip(front), gzip(back)].concat();
    assert_eq!(stdout(&piped(&["dump", "--json", "-"], &members)), plain);
}

#[test]
fn a_cut_file_shows_what_is_whole_and_says_so() {
    let file = std::fs::read(rxe("rc-mixed")).unwrap();
    let cut = temporary("cut.pcap", &file[..file.len() - 5]);
    let path = cut.to_string_lossy().into_owned();
    let output = run(&["dump", "--json", &path, &rxe("rc-read")]);
    assert_eq!(status(&output), 1);
    let objects = objects(&output);
    assert_eq!(objects.iter().filter(|object| object["file"] == path.as_str()).count(), 21);
    assert_eq!(
        objects.iter().filter(|object| object["file"] == rxe("rc-read").as_str()).count(),
        25
    );
    assert!(stderr(&output).contains("cut"), "{}", stderr(&output));
    let compressed = gzip(&file);
    let output = piped(&["dump", "--summary", "--json", "-"], &compressed[..compressed.len() - 20]);
    assert_eq!(status(&output), 1, "{}", stderr(&output));
    let mut damaged = compressed.clone();
    let end = damaged.len();
    damaged[end - 6] ^= 1;
    assert_eq!(status(&piped(&["dump", "--summary", "-"], &damaged)), 1, "a wrong checksum");
    std::fs::remove_file(cut).unwrap();
}

#[test]
fn what_cannot_be_read_is_told_and_the_other_files_are_shown() {
    let output = run(&["dump", "--json", "/nonexistent/capture", &rxe("loss-ack")]);
    assert_eq!((status(&output), stdout(&output).lines().count()), (2, 4));
    assert!(stderr(&output).contains("/nonexistent/capture: No such file"));
    let output = piped(&["dump", "-"], b"no capture at all");
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("neither pcap nor pcapng"), "{}", stderr(&output));
    assert_eq!(status(&piped(&["dump", "-"], b"")), 2);
    assert_eq!(status(&run(&["dump"])), 2);
}

#[test]
fn an_unknown_link_type_is_named() {
    let output = piped(&["dump", "-"], &pcap(105, &[whole(vec![1; 40])]));
    assert_eq!((status(&output), stdout(&output).as_str()), (2, ""));
    assert!(stderr(&output).contains("link type 105"), "{}", stderr(&output));
}

/// A pcapng block in big-endian order.
fn block(kind: u32, body: &[&[u8]]) -> Vec<u8> {
    let mut body = body.concat();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = (body.len() as u32 + 12).to_be_bytes();
    [&kind.to_be_bytes()[..], &length, &body, &length].concat()
}

#[test]
fn sections_interfaces_and_their_times_are_kept_apart() {
    let section =
        || block(0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_be_bytes(), &[0, 1, 0, 0], &[0xff; 8]]);
    let interface = |link_type: u16, resolution: u8, offset: i64| {
        let option =
            [&[0, 9, 0, 1, resolution, 0, 0, 0, 0, 14, 0, 8][..], &offset.to_be_bytes(), &[0; 4]]
                .concat();
        block(1, &[&link_type.to_be_bytes(), &[0; 6], &option])
    };
    let packet = |interface: u32, ticks: u64, bytes: &[u8]| {
        let length = (bytes.len() as u32).to_be_bytes();
        block(6, &[&interface.to_be_bytes(), &ticks.to_be_bytes(), &length, &length, bytes])
    };
    let ip = roce4(&super::build::packet(4, 1, &[], &[1; 4]));
    let simple = |bytes: &[u8]| block(3, &[&(bytes.len() as u32).to_be_bytes(), bytes]);
    let file = [
        section(),
        interface(101, 9, 0),
        interface(1, 0x83, 10),
        packet(0, 1_700_000_000_000_000_001, &ip),
        packet(1, 4, &eth4(&ip)),
        section(),
        interface(105, 6, 0),
        interface(101, 6, -1),
        packet(1, 2_500_000, &ip),
        packet(0, 1, &ip),
        simple(&ip),
    ]
    .concat();
    let output = piped(&["dump", "--json", "-"], &file);
    let found = objects(&output);
    let of = |key: &str| found.iter().map(|object| object[key].clone()).collect::<Vec<_>>();
    assert_eq!(
        of("time"),
        ["1700000000.000000001", "10.500", "1.500000", "0.000001"]
            .map(Value::from)
            .into_iter()
            .chain([Value::Null])
            .collect::<Vec<_>>()
    );
    assert_eq!(of("interface"), [0, 1, 3, 2, 2].map(Value::from));
    assert_eq!(of("frame"), [1, 2, 3, 4, 5].map(Value::from));
    assert_eq!(of("icrc")[..3], ["ok", "ok", "ok"].map(Value::from));
    assert_eq!(of("issues")[3], serde_json::json!(["unsupported_link_type"]));
    assert_eq!(status(&output), 2, "one interface is of an unknown link type");
    assert_eq!(stderr(&output).matches("link type 105").count(), 1);
}

#[test]
fn filters_choose() {
    let count = |arguments: &[&str]| {
        let output = run(&[&["dump", "--json"], arguments].concat());
        assert_eq!(status(&output), 0, "{arguments:?}: {}", stderr(&output));
        objects(&output).len()
    };
    let mixed = rxe("rc-mixed");
    assert_eq!(count(&["--qp", "666", &mixed]), 11);
    assert_eq!(count(&["--qp", "0x29a", "--qp", "0x1a", &mixed]), 22);
    assert_eq!(count(&["--qp", "1", &rxe("cm-rping")]), 5);
    assert_eq!(count(&["--host", "10.77.0.9", &mixed]), 0);
    assert_eq!(count(&["--host", "10.77.0.1", &mixed]), 22);
    assert_eq!(count(&["--opcode", "RC_RDMA_READ_REQUEST", &mixed]), 3);
    assert_eq!(count(&["--opcode", "READ_REQUEST", "--opcode", "0x11", &mixed]), 7);
    assert_eq!(count(&["--bad-icrc", &rxe("corrupt")]), 10);
    assert_eq!(count(&["--frames", "3-5", &mixed]), 3);
    assert_eq!(
        count(&["--frames", "20-", "--qp", "666", &mixed]),
        objects(&run(&["dump", "--json", &mixed]))
            .iter()
            .skip(19)
            .filter(|o| o["dest_qp"] == 666)
            .count()
    );
    assert_eq!(count(&["--frames", "-2", &mixed]), 2);
    let other_port = oddity("ports");
    let kinds = |arguments: &[&str]| {
        objects(&run(&[&["dump", "--json"], arguments, &[&other_port]].concat()))
            .iter()
            .filter(|object| object["kind"] == "rocev2")
            .count()
    };
    assert_eq!(
        (kinds(&[]), kinds(&["--port", "4792"]), kinds(&["--port", "53", "--port", "4792"])),
        (4, 5, 6)
    );
    let output = run(&["dump", "--opcode", "RC_SENDS", &mixed]);
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("RC_SEND_ONLY"), "{}", stderr(&output));
    let summary =
        &objects(&run(&["dump", "--summary", "--json", "--bad-icrc", &rxe("corrupt")]))[0];
    assert_eq!(
        (&summary["frames"], &summary["rdma_frames"], &summary["icrc"]["bad"]),
        (&10.into(), &10.into(), &10.into())
    );
}

#[test]
fn check_tells_wrong_frames_by_the_exit_status() {
    let check = |arguments: &[&str]| status(&run(&[&["dump", "--check"], arguments].concat()));
    assert_eq!(check(&[&rxe("rc-mixed")]), 0);
    assert_eq!(check(&[&rxe("corrupt")]), 1);
    assert_eq!(check(&["--summary", &rxe("corrupt")]), 1);
    assert_eq!(check(&["--frames", "1-2", &rxe("corrupt")]), 0, "what is not shown does not count");
    assert_eq!(check(&[&oddity("contradictions")]), 1);
    assert_eq!(check(&[&oddity("cut")]), 0, "what cannot be judged is not wrong");
    assert_eq!(check(&[&oddity("fragments")]), 0);
    assert_eq!(status(&run(&["dump", &rxe("corrupt")])), 0, "without --check frames may be wrong");
}

#[test]
fn text_fits_its_columns() {
    let mut widest = 0;
    for folder_name in ["rxe", "oddities"] {
        for (name, _) in captures(folder_name) {
            let path =
                folder(folder_name).join(format!("{name}.pcap")).to_string_lossy().into_owned();
            for arguments in
                [&["dump"][..], &["dump", "-v"], &["dump", "-x"], &["dump", "--summary"]]
            {
                let output = run(&[arguments, &[&path]].concat());
                assert_eq!(status(&output), 0, "{name}: {}", stderr(&output));
                for line in stdout(&output).lines() {
                    let columns = line.chars().count();
                    widest = widest.max(columns);
                    // The path of the checkout is in the title of a summary.
                    assert!(columns <= 100 || line.contains(&path), "{name}: {line}");
                }
            }
        }
    }
    assert!(widest > 80, "something was shown");
}

#[test]
fn hex_shows_what_is_masked_and_why_an_icrc_is_wrong() {
    let shown = stdout(&run(&["dump", "-x", "--frames", "1", &oddity("icrc-mistakes")]));
    assert!(shown.contains("45 [02] 00  4c  12  34  40  00 [40] 11 ["), "{shown}");
    assert!(shown.contains("cause       the pad bytes were left out"), "{shown}");
    let right = stdout(&run(&["dump", "-x", "--frames", "1", &oddity("plain")]));
    assert!(right.contains("running CRC 0xdebb20e3"), "the register after eight ones: {right}");
    assert!(!right.contains("cause"), "{right}");
    // A damaged packet, or a sender's mistake that nobody has thought of: both can be.
    let damaged = stdout(&run(&["dump", "-x", "--frames", "6", &oddity("icrc-mistakes")]));
    assert!(damaged.contains("cause       no usual mistake gives this: damage, or"), "{damaged}");
}

#[test]
fn blocks_show_every_bit() {
    let shown = stdout(&run(&["dump", "-v", "--frames", "19", &oddity("contradictions")]));
    for line in [
        "1... ....  FECN: yes",
        ".1.. ....  BECN: yes",
        "..01 0000  reserved: 16",
        "1... ....  acknowledge request: yes",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
}

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

/// The most memory that a running process has had, in KiB.
fn most_memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn memory_does_not_grow_with_the_file() {
    let frame = whole(eth4(&roce4(&super::build::packet(0x07, 1, &[], &payload(1024)))));
    let part = pcap(1, &vec![frame; 1000]);
    let mut command = uroce(&["dump", "--summary", "--json", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&part).unwrap();
    let early = most_memory(child.id());
    (0..100).for_each(|_| stdin.write_all(&part[24..]).unwrap());
    // All but what the pipe holds has been read.
    let late = most_memory(child.id());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(objects(&output)[0]["icrc"]["ok"], 101_000);
    assert!(late < early + 4096, "{early} KiB after 1 MB, {late} KiB after 110 MB");
}

#[test]
fn what_the_simulator_records_is_right() {
    let capture =
        std::env::temp_dir().join(format!("uroce-dump-{}-sim.pcapng", std::process::id()));
    let path = capture.to_string_lossy().into_owned();
    let output = run(&["sim", "--seed", "3", "--faults", "loss=2%,duplicate=2%", "--pcap", &path]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let output = run(&["dump", "--check", "--summary", "--json", &path]);
    assert_eq!(status(&output), 0, "{}{}", stdout(&output), stderr(&output));
    let summary = &objects(&output)[0];
    assert!(summary["icrc"]["ok"].as_u64() > Some(500), "{summary}");
    assert_eq!(summary["issues"], serde_json::json!({}));
    std::fs::remove_file(capture).unwrap();
}

#[test]
fn a_value_of_somebody_elses_is_explained() {
    let shown = |value: &str| {
        let output = run(&["dump", "-x", "--my-icrc", value, "--frames", "1", &oddity("plain")]);
        assert_eq!(status(&output), 0, "{}", stderr(&output));
        stdout(&output)
    };
    assert!(shown("b037cc08").contains("stored in the other order"), "{}", shown("b037cc08"));
    assert!(shown("01:02:03:04").contains("no usual mistake"));
    assert_eq!(status(&run(&["dump", "-x", "--my-icrc", "12", &oddity("plain")])), 2);
}

#[test]
fn following_shows_what_passes_with_its_tags() {
    if !Privileges::current().has(Capability::NetRaw) {
        skip_unless("root", "packet sockets need CAP_NET_RAW");
        return;
    }
    if let Err(reason) = veth_in_new_namespace("dump-a", "dump-b", "10.98.0.1/24", 1500) {
        skip_unless("network-namespaces", &reason);
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
