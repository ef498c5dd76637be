//! `UROCE_TRACE`: what is told on standard error, by a program that was not made for it.

mod common;

use std::net::TcpListener;
use std::process::{Command, Output};

use common::program::{Running, assert_success, status, stderr, stdout, uroce};

fn free_port() -> String {
    let listener = TcpListener::bind(("0.0.0.0", 0)).unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Server and client of a pingpong, both as `prepare` makes them, the server first.
fn play(server: &[&str], client: &[&str], prepare: impl Fn(&mut Command)) -> [Output; 2] {
    let port = free_port();
    let start = |options: &[&str]| {
        let common = ["pingpong", "-d", "lo", "-p", &port];
        let mut command = uroce(&[&common[..], options].concat());
        prepare(&mut command);
        Running::start(command)
    };
    let mut server = start(server);
    server.wait_for_line("local  address");
    let client = start(&[client, &["localhost"]].concat()).finish();
    [server.finish(), client]
}

/// Lines of one kind, without time and kind.
fn lines<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let told = text.lines().filter_map(|line| {
        let (time, rest) = line.trim_start().split_once(' ')?;
        time.parse::<f64>().ok()?;
        let rest = rest.strip_prefix(kind)?;
        Some(rest.trim_start())
    });
    told.collect()
}

#[test]
fn a_dropped_datagram_is_told_with_its_reason_and_once_for_all_of_its_kind() {
    let short = ["-T", "ud", "-s", "64", "-n", "2", "-r", "2", "--patience", "1"];
    let long = ["-T", "ud", "-s", "512", "-n", "2", "-r", "2", "--patience", "1"];
    let [server, _] = play(&short, &long, |command| {
        command.env("UROCE_TRACE", "errors");
    });
    let text = stderr(&server);
    let errors = lines(&text, "error");
    let drops: Vec<_> = errors.iter().filter(|line| line.contains("drops a message")).collect();
    assert_eq!(drops.len(), 1, "{text}");
    assert!(text.contains("552 bytes"), "40 bytes and the datagram: {text}");
}

#[test]
fn calls_of_extended_connections_are_told_too() {
    let options = ["-T", "xsrq", "-s", "100", "-n", "5"];
    let outputs = play(&options, &options, |command| {
        command.env("UROCE_TRACE", "verbs");
    });
    for output in &outputs {
        let text = stderr(output);
        assert_eq!(status(output), 0, "{text}");
        let verbs = lines(&text, "verb");
        for part in [
            "open_xrcd(private) = ok",
            "create_xrc_srq(",
            "create_qp(XRC TGT in ",
            "state RTR, av 127.0.0.1 from GID 0",
            "close_xrcd(",
        ] {
            assert!(verbs.iter().any(|line| line.contains(part)), "{part} is missing in\n{text}");
        }
    }
}

#[test]
fn verbs_are_told_with_decoded_attributes_and_packets_in_words() {
    let options = ["-s", "3000", "-n", "5"];
    let outputs = play(&options, &options, |command| {
        command.env("UROCE_TRACE", "verbs,packets");
    });
    for output in &outputs {
        let text = stderr(output);
        assert_eq!(status(output), 0, "{text}");
        let verbs = lines(&text, "verb");
        for part in [
            "alloc_pd() = ok",
            "create_qp(RC, 1 sends of 1 segments or 0 inline bytes, 500 receives of 1 segments)",
            "state RTR, av 127.0.0.1 from GID 0",
            "path_mtu 1024, dest_qpn 0x",
            "min_rnr_timer 12 (0.64 ms)",
            "timeout 14 (67.109 ms), retry_cnt 7",
            "SEND, 3000 bytes at 0x",
            "poll_cq() id 2 of qp 0x",
            "destroy_qp(0x",
        ] {
            assert!(verbs.iter().any(|line| line.contains(part)), "{part} is missing in\n{text}");
        }
        let packets = lines(&text, "packet");
        for part in [
            "out 127.0.0.1 > 127.0.0.1 qp 0x",
            "in  127.0.0.1 > 127.0.0.1 qp 0x",
            "RC_SEND_FIRST PSN ",
            "RC_SEND_LAST PSN ",
            "952 bytes, asks for ACK",
            "RC_ACKNOWLEDGE PSN ",
            "ACK, 1 message done",
        ] {
            assert!(packets.iter().any(|line| line.contains(part)), "{part} is missing in\n{text}");
        }
        assert!(!text.contains('\x1b'), "no colours where there is no terminal");
    }
    let [server, _] = outputs;
    let text = stderr(&server);
    let times = text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
    let times: Vec<f64> = times.collect();
    let late = times.windows(2).filter(|pair| pair[1] + 0.05 < pair[0]).count();
    assert!(times.len() > 40 && late == 0, "one clock: {late} of {} go back", times.len());
}

#[test]
fn an_error_is_told_with_its_explanation_at_both_ends() {
    let outputs = play(&["-s", "3000", "-m", "512"], &["-s", "3000"], |command| {
        command.env("UROCE_TRACE", "errors");
    });
    let texts = outputs.each_ref().map(stderr);
    assert!(outputs.iter().all(|output| status(output) == 1), "{texts:?}");
    let [server, client] = texts;
    for part in [
        "ends with remote invalid request (9)",
        "SEND of 3000 bytes was refused by queue pair 0x",
        "path MTU mismatch: the peer's is not 1024",
    ] {
        assert!(client.contains(part), "{part} is missing in\n{client}");
    }
    for part in [
        "goes into error, and no completion tells why",
        "sent a first or middle packet with 1024 bytes, which must have exactly 512",
        "path MTU mismatch: ours is 512, the peer's is 1024",
        "receives were flushed",
    ] {
        assert!(server.contains(part), "{part} is missing in\n{server}");
    }
    assert!(lines(&client, "verb").is_empty() && lines(&client, "packet").is_empty());
}

#[test]
fn the_option_does_what_the_variable_does_and_a_wrong_word_is_refused() {
    let options = ["-n", "5", "--trace", "packets"];
    let [server, client] = play(&["-n", "5"], &options, |_| {});
    assert!(lines(&stderr(&client), "packet").len() >= 10, "{}", stderr(&client));
    assert_eq!(stderr(&server), "");
    let wrong = uroce(&["pingpong", "-d", "lo", "--trace", "packet"]).output().unwrap();
    assert_eq!(status(&wrong), 2);
    assert!(stderr(&wrong).contains("allowed are errors, verbs, packets"), "{}", stderr(&wrong));
    assert_eq!(stdout(&wrong), "");
}

#[test]
fn a_misspelt_variable_is_noticed() {
    let [server, client] = play(&["-n", "5"], &["-n", "5"], |command| {
        command.env("UROCE_TRASE", "errors").env("UROCE_REQUIRE", "nothing");
    });
    for output in [server, client] {
        assert_eq!(status(&output), 0);
        let text = stderr(&output);
        assert_eq!(
            text,
            "uroce: UROCE_TRASE is no variable of uroce and has no effect; did you mean UROCE_TRACE?\n"
        );
    }
}

/// Nobody reads standard error, and the pipe is full soon: the exchange goes on all the same.
#[test]
fn a_reader_that_stands_still_does_not_stop_the_exchange() {
    use std::process::Stdio;
    let port = free_port();
    let options = ["pingpong", "-d", "lo", "-p", &port, "-n", "3000"];
    let mut server = Running::start(uroce(&options));
    server.wait_for_line("local  address");
    let mut client = uroce(&[&options[..], &["localhost"]].concat());
    client.env("UROCE_TRACE", "verbs,packets").stdout(Stdio::null()).stderr(Stdio::piped());
    // Its standard error is kept open, and never read.
    let mut client = client.spawn().unwrap();
    let unread = client.stderr.take();
    let ended = server.finish();
    assert_success(&ended);
    assert!(client.wait().unwrap().success());
    drop(unread);
}

/// What a program does with signals is its own affair, and one that has not told the system to
/// ignore SIGPIPE does not end because nobody reads what is traced.
#[test]
fn no_thread_of_a_device_takes_a_signal_of_the_program() {
    let mut options = uroce::software::DeviceOptions::at([127, 88, 12, 1].into());
    options.trace.verbs = true;
    let device = uroce::software::Device::open(&options).unwrap();
    let blocked = |name: &str| -> Option<u64> {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let is_it = |task: &std::path::PathBuf| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        let found = tasks.map(|task| task.path()).find(is_it)?;
        let status = std::fs::read_to_string(found.join("status")).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        Some(u64::from_str_radix(mask.trim(), 16).unwrap())
    };
    let signals = [libc::SIGPIPE, libc::SIGINT, libc::SIGTERM, libc::SIGALRM, libc::SIGUSR1];
    let wanted = signals.iter().fold(0, |mask, signal| mask | 1_u64 << (signal - 1));
    for name in ["uroce-trace", "uroce-attendant"] {
        // A thread begins, takes its name and then its mask when the system lets it.
        let has_begun = (0..10_000).any(|_| {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
            blocked(name).is_some_and(|mask| mask & wanted == wanted)
        });
        assert!(has_begun, "{name}: {:x?}", blocked(name));
    }
    drop(device);
}
