//! `uroce demo`, run as a newcomer runs it.

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Stdio;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use common::program::{Folder, Running, assert_success, json, run, status, stderr, stdout, uroce};
use uroce::pcap::Reader;
use uroce::software::clock;
use uroce::wire::{Frame, Packet, icrc};

/// Demos share addresses, and a late packet of one counts as an arrival at another: who needs to be
/// alone takes it for writing.
static ADDRESSES: RwLock<()> = RwLock::new(());

fn with_others() -> RwLockReadGuard<'static, ()> {
    ADDRESSES.read().unwrap_or_else(PoisonError::into_inner)
}

/// A frame of a capture: sender, receiver, opcode, PSN.
type Seen = (IpAddr, IpAddr, u8, u32);

/// Reads a capture; every frame must be RoCEv2 on loopback with a right ICRC.
fn frames(path: &str) -> Vec<Seen> {
    let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
    let mut frames = Vec::new();
    let mut last = 0;
    while let Some(record) = reader.next() {
        let record = record.unwrap();
        let time = record.time.unwrap().as_nanos();
        assert!(time >= last, "times do not go back");
        last = time;
        let frame = Frame::parse(record.data).unwrap();
        assert_eq!(frame.computed_icrc().as_ref(), frame.payload.last_chunk());
        let burst = frame.burst(frame.payload.len()).unwrap();
        assert_eq!(icrc::judge(&burst, 0, frame.payload, true), icrc::Verdict::Right);
        let flow = frame.flow().unwrap();
        assert!(flow.source.is_loopback() && flow.destination.is_loopback(), "{flow:?}");
        let headers = Packet::parse(frame.payload).unwrap().headers;
        let (opcode, psn) = (headers.opcode().unwrap(), headers.psn.value());
        frames.push((flow.source, flow.destination, opcode, psn));
    }
    frames
}

#[test]
fn it_tells_five_acts_shows_a_retransmission_and_leaves_a_capture() {
    let _others = with_others();
    let folder = Folder::new();
    let file = folder.path("demo.pcapng");
    let start = clock::now();
    let output = run(&["demo", "--fast", "--pcap", &file]);
    assert!((clock::now() - start) < 10_000_000_000, "under ten seconds");
    assert_success(&output);
    let text = stdout(&output);
    for number in 1..=5 {
        assert!(text.contains(&format!("\n{number}. ")), "act {number} is missing: {text}");
    }
    let lossy = text.split("\n5. ").nth(1).unwrap();
    let line =
        |words: &[&str]| lossy.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(line(&["FETCH AND ADD", "╳", "lost"]), "{lossy}");
    assert!(line(&["FETCH AND ADD", "sent again"]), "{lossy}");
    assert!(lossy.contains("were lost. Bob dropped"), "{lossy}");
    assert!(text.contains(&file), "the capture's place is told");
    assert!(!text.contains('\x1b'), "no colours in a pipe");
    let widest = text.lines().filter(|line| !line.contains(&file)).map(|line| line.chars().count());
    assert!(widest.max().unwrap() <= 100);
    assert_eq!(folder.names(), ["demo.pcapng"]);
    assert!(frames(&file).len() > 100);
}

#[test]
fn figures_text_capture_and_counters_agree() {
    let _others = with_others();
    let folder = Folder::new();
    let file = folder.path("demo.pcapng");
    let output = run(&["demo", "--json", "--pcap", &file]);
    assert_success(&output);
    let report = json(&output);
    assert_eq!(report["verified"], true);
    assert_eq!(report["capture"], file.as_str());
    let acts = report["acts"].as_array().unwrap();
    assert_eq!(acts.len(), 5);
    let packets: u64 = acts.iter().map(|act| act["packets"].as_u64().unwrap()).sum();
    // What comes after the last drawing of an act is in the capture too.
    assert!(frames(&file).len() as u64 >= packets && packets > 100);
    let mut fates: BTreeMap<&str, u64> = BTreeMap::new();
    let steps = acts[4]["steps"].as_array().unwrap();
    for step in steps {
        *fates.entry(step["fate"].as_str().unwrap()).or_default() += 1;
    }
    let resent = steps.iter().filter(|step| step["resent"] == true).count() as u64;
    assert!(fates["lost"] >= 2, "{fates:?}");
    assert_eq!(acts[4]["lost"], fates["lost"]);
    // Two views that know nothing of each other: the capture with the plan run again, and what the
    // devices counted.
    let counted = |end: &str, name: &str| acts[4][end][name].as_u64().unwrap_or(0);
    assert_eq!(counted("alice", "retransmitted_packets"), resent);
    assert_eq!(counted("bob", "out_of_sequence"), fates.get("out_of_order").copied().unwrap_or(0));
    assert!(counted("alice", "probe") >= 1, "a lost addition is found by a probe");
    for act in &acts[..4] {
        assert_eq!(act["lost"], 0);
    }
}

#[test]
fn a_seed_loses_the_same_packets_again_and_others_lose_others() {
    let _alone = ADDRESSES.write().unwrap_or_else(PoisonError::into_inner);
    // Which of the first requests that come to Bob are lost. When they come depends on the machine,
    // the number of those before them alone decides their fate.
    let lost = |seed: &str| -> Vec<bool> {
        let folder = Folder::new();
        let file = folder.path("x.pcapng");
        let report = json(&run(&["demo", "--json", "--seed", seed, "--pcap", &file]));
        let steps = report["acts"][4]["steps"].as_array().unwrap().clone();
        let adds = steps.iter().filter(|step| step["opcode"] == "RC_FETCH_ADD");
        adds.take(16).map(|step| step["fate"] == "lost").collect()
    };
    let first = lost("1");
    assert_eq!(first.len(), 16);
    assert_eq!(first, lost("1"));
    assert!((2..12).any(|seed| lost(&seed.to_string()) != first));
}

#[test]
fn what_to_try_next_is_said_as_it_has_to_be_typed_here() {
    let _others = with_others();
    let folder = Folder::new();
    let file = folder.path("x.pcapng");
    let text = stdout(&run(&["demo", "--pcap", &file]));
    assert!(text.contains("  uroce pingpong -d lo localhost"), "{text}");
    let mut command = uroce(&["demo", "--pcap", &file]);
    command.env("CARGO_MANIFEST_DIR", "here");
    let text = stdout(&Running::start(command).finish());
    assert!(text.contains("  cargo run --release -- pingpong -d lo localhost"), "{text}");
    let lines = text.lines().filter(|line| !line.contains(&file));
    let wide: Vec<&str> = lines.filter(|line| line.chars().count() > 100).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn colours_come_only_where_they_are_wanted() {
    let _others = with_others();
    let folder = Folder::new();
    let file = folder.path("x.pcapng");
    let always = run(&["demo", "--color", "always", "--pcap", &file]);
    assert_success(&always);
    assert!(stdout(&always).contains("\x1b[31m"));
    let (text, seconds) = on_terminal(&["demo", "--pcap", &file], &[]);
    assert!(text.contains("\x1b[31m") && text.contains("came out right"), "{text}");
    assert!((1.0..15.0).contains(&seconds), "with pauses for reading it took {seconds} s");
    let (text, _) = on_terminal(&["demo", "--fast", "--pcap", &file], &[("NO_COLOR", "1")]);
    assert!(!text.contains('\x1b') && text.contains("came out right"), "{text}");
}

/// Runs the program with a terminal as its output; returns that and how many seconds it took.
fn on_terminal(arguments: &[&str], environment: &[(&str, &str)]) -> (String, f64) {
    let (mut master, mut slave) = (-1, -1);
    let none = std::ptr::null_mut();
    #[allow(unsafe_code)]
    // SAFETY: the two numbers outlive the call; name, attributes and size are not asked for.
    let opened =
        unsafe { libc::openpty(&raw mut master, &raw mut slave, none, none.cast(), none.cast()) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    #[allow(unsafe_code)]
    // SAFETY: the call has just opened both, and nobody else owns them.
    let (master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    let start = clock::now();
    let mut command = uroce(arguments);
    command.envs(environment.iter().copied()).stdout(Stdio::from(slave));
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut text = Vec::new();
    // The end of a terminal without writers is an error.
    let _ = std::io::Read::read_to_end(&mut File::from(master), &mut text);
    assert!(child.wait().unwrap().success());
    (String::from_utf8_lossy(&text).into_owned(), (clock::now() - start) as f64 / 1e9)
}

#[test]
fn it_needs_no_interface_but_lo() {
    let _others = with_others();
    if !common::network::is_root() {
        return common::skip_unless("root", "making a network namespace needs it");
    }
    let made = common::network::veth_in_new_namespace("inside7", "outside7", "10.77.7.1/24", 1500);
    if let Err(reason) = made {
        return common::skip_unless("network-namespaces", &reason);
    }
    common::network::ip(&["link", "delete", "inside7"]).unwrap();
    let folder = Folder::new();
    assert_success(&run(&["demo", "--pcap", &folder.path("x.pcapng")]));
}

#[test]
fn what_cannot_be_is_one_line_and_status_2() {
    let _others = with_others();
    let folder = Folder::new();
    let missing = folder.path("missing/x.pcapng");
    for arguments in [
        &["demo", "--pcap", &missing][..],
        &["demo", "--seed", "x"],
        &["demo", "--color", "blue"],
        &["demo", "--loud"],
    ] {
        let output = run(arguments);
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(!stderr(&output).is_empty());
    }
    let output = run(&["demo", "--pcap", &missing]);
    assert!(stderr(&output).contains(&missing) && stderr(&output).lines().count() == 1);
    assert_eq!(stdout(&output), "", "that is known before anything is told");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let _others = with_others();
    let folder = Folder::new();
    let mut command = uroce(&["demo", "--pcap", &folder.path("x.pcapng")]);
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(running.stdout.take());
    let output = running.wait_with_output().unwrap();
    assert_eq!(stderr(&output), "");
    assert!(output.status.success());
}

#[test]
fn without_a_place_the_capture_goes_to_the_temporary_folder_and_nothing_else_does() {
    let _others = with_others();
    let folder = Folder::new();
    let mut command = uroce(&["demo"]);
    command.env("TMPDIR", folder.path(""));
    let output = Running::start(command).finish();
    assert_success(&output);
    let [name] = &folder.names()[..] else { panic!("{:?}", folder.names()) };
    assert!(name.starts_with("uroce-demo-") && name.ends_with(".pcapng"), "{name}");
    assert!(stdout(&output).contains(name.as_str()));
    assert!(frames(&folder.path(name)).len() > 100);
}

#[test]
fn two_demos_at_once_do_not_disturb_each_other() {
    let _others = with_others();
    let folder = Folder::new();
    let files = ["a.pcapng", "b.pcapng"].map(|name| folder.path(name));
    let running: Vec<Running> =
        files.iter().map(|file| Running::start(uroce(&["demo", "--pcap", file]))).collect();
    for (running, file) in running.into_iter().zip(&files) {
        assert_success(&running.finish());
        assert!(frames(file).len() > 100);
    }
}
