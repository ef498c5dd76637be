//! The command: files of every kind, filters, exit statuses.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::build::*;
use super::common::program::{run, status, stderr, stdout, uroce};
use super::{captures, folder};

pub fn rxe(name: &str) -> String {
    folder("rxe").join(format!("{name}.pcap")).to_string_lossy().into_owned()
}

fn oddity(name: &str) -> String {
    folder("oddities").join(format!("{name}.pcap")).to_string_lossy().into_owned()
}

pub fn objects(output: &Output) -> Vec<Value> {
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
fn several_files_stand_under_their_names_and_errors_below_what_was_read() {
    let file = std::fs::read(rxe("rc-mixed")).unwrap();
    let cut = temporary("order.pcap", &file[..file.len() - 5]);
    let (path, whole) = (cut.to_string_lossy().into_owned(), rxe("loss-ack"));
    let (mut both, written) = std::io::pipe().unwrap();
    let mut command = uroce(&["dump", &path, &whole, "/nonexistent"]);
    command.stdout(written.try_clone().unwrap()).stderr(written);
    let mut child = command.spawn().unwrap();
    // It holds the other ends of the pipe.
    drop(command);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut both, &mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    let lines: Vec<_> = text.lines().collect();
    let [first, second] = [&path, &whole]
        .map(|path| lines.iter().position(|line| *line == format!("{path}:")).expect("a title"));
    assert_eq!((first, lines[second - 1]), (0, ""), "{text}");
    assert!(lines[1..second - 2].iter().all(|line| line.contains(" > ")), "{text}");
    assert!(lines[second - 2].contains("cut: the file ends inside"), "{text}");
    assert!(lines[second + 1..lines.len() - 1].iter().all(|line| line.contains(" > ")), "{text}");
    assert!(lines[lines.len() - 1].contains("No such file"), "{text}");
    assert_eq!(second, 24, "title, 21 frames, error, empty line: {text}");
    // Titles are for people, and for several files.
    assert!(!stdout(&run(&["dump", &whole])).contains(&whole));
    // Nothing of a file is wanted: no title.
    let filtered = stdout(&run(&["dump", "--host", "192.0.2.1", &path, &whole]));
    assert_eq!(filtered, "");
    std::fs::remove_file(cut).unwrap();
}

#[test]
fn a_count_of_frames_goes_with_following_only() {
    let output = run(&["dump", "--count", "3", &rxe("rc-mixed")]);
    assert_eq!((status(&output), stdout(&output).as_str()), (2, ""));
    assert!(stderr(&output).contains("'--count <FRAMES>' cannot be used"), "{}", stderr(&output));
    let shown = stdout(&run(&["dump", "--frames", "-3", &rxe("rc-mixed")]));
    assert_eq!(shown.lines().count(), 3);
}

#[test]
fn what_cannot_be_written_is_told_but_for_a_reader_that_has_enough() {
    for arguments in [&["dump"][..], &["dump", "--summary"], &["dump", "--json", "--check"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = uroce(&[arguments, &[&rxe("corrupt")]].concat());
        let output = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert_eq!(status(&output), 2);
        assert!(stderr(&output).contains("cannot write to standard output"), "{arguments:?}");
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = uroce(&["dump", &rxe("rc-mixed")]);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((status(&output), stderr(&output).as_str()), (0, ""));
}
