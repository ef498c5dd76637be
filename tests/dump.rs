//! `uroce dump`: samples of every oddity, the captures of the kernel's software RoCE, the JSON and
//! its documentation, filters, exit statuses, and that nothing breaks it.

#[path = "dump/build.rs"]
mod build;
#[path = "dump/command.rs"]
mod command;
mod common;
#[path = "dump/follow.rs"]
mod follow;
#[path = "dump/format.rs"]
mod format;
#[path = "dump/hostile.rs"]
mod hostile;
#[path = "dump/samples.rs"]
mod samples;

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use uroce::dissect::{Dissector, Frame, json};
use uroce::pcap::{LinkType, Reader, Record};

/// The samples in the repository.
pub fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("pcap-samples").join(name)
}

/// Gives each frame of a capture to `look`, taken apart, with its number.
pub fn each_frame(file: &[u8], mut look: impl FnMut(u64, &Record<'_>, &Frame<'_>)) {
    let mut reader = Reader::new(file).expect("a capture");
    let mut dissector = Dissector::new();
    let mut number = 0;
    while let Some(record) = reader.next() {
        let record = record.expect("an undamaged file");
        number += 1;
        let frame = dissector.dissect(record.link_type, record.original_length, record.data);
        look(number, &record, &frame);
    }
}

/// The lines of JSON of a capture.
pub fn lines(file: &[u8]) -> Vec<Value> {
    let mut out = Vec::new();
    each_frame(file, |frame, record, dissected| {
        let position = json::Position { file: None, frame, interface: None, time: record.time };
        let packets: Vec<_> = dissected.packets().collect();
        packets.iter().for_each(|packet| json::write(&mut out, &position, dissected, Some(packet)));
        if packets.is_empty() {
            json::write(&mut out, &position, dissected, None);
        }
    });
    let text = String::from_utf8(out).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// All captures of a folder, by name.
pub fn captures(name: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder(name)).expect("the samples are in the repository");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    paths.sort();
    let stem = |path: &PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|path| (stem(path), fs::read(path).unwrap())).collect()
}

/// What of `expected` is not in `found`; null stands for what must not be there.
fn difference(path: &str, expected: &Value, found: &Value) -> Option<String> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            expected.iter().find_map(|(key, value)| {
                difference(&format!("{path}.{key}"), value, found.get(key).unwrap_or(&Value::Null))
            })
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let pairs = expected.iter().zip(found).enumerate();
            pairs.into_iter().find_map(|(index, (expected, found))| {
                difference(&format!("{path}[{index}]"), expected, found)
            })
        }
        (expected, found) if expected == found => None,
        _ => Some(format!("{path}: {found} instead of {expected}")),
    }
}

/// `UROCE_BLESS=1` writes the files anew.
fn is_blessed() -> bool {
    std::env::var_os("UROCE_BLESS").is_some()
}

#[test]
fn the_samples_are_those_that_are_made_here() {
    let mut rows = String::new();
    for sample in samples::all() {
        let file = build::pcap(sample.link_type, &sample.frames);
        assert!(file.len() < 200_000, "{} is small", sample.name);
        let path = folder("oddities").join(format!("{}.pcap", sample.name));
        if is_blessed() {
            fs::write(&path, &file).unwrap();
        }
        assert!(fs::read(&path).is_ok_and(|found| found == file), "{} differs", path.display());
        let (frames, lines) = (sample.frames.len(), sample.expected.len());
        rows += &format!("| `{}` | {frames} | {lines} | {} |\n", sample.name, sample.about);
    }
    let readme = folder("oddities").join("README.md");
    let text = fs::read_to_string(&readme).unwrap();
    let (head, _) = text.split_once("| --- | --- | --- | --- |\n").expect("a table");
    let whole = format!("{head}| --- | --- | --- | --- |\n{rows}");
    if is_blessed() {
        fs::write(&readme, &whole).unwrap();
    }
    assert!(fs::read_to_string(&readme).unwrap() == whole, "the README lists them:\n{rows}");
    assert_eq!(captures("oddities").len(), samples::all().len(), "no other file lies there");
}

#[test]
fn every_sample_shows_what_is_in_it() {
    for sample in samples::all() {
        let path = folder("oddities").join(format!("{}.pcap", sample.name));
        let found = lines(&fs::read(path).expect("the sample"));
        for (index, (expected, found)) in sample.expected.iter().zip(&found).enumerate() {
            let difference = difference("", expected, found);
            assert_eq!(difference, None, "{}, line {}: {found:#}", sample.name, index + 1);
        }
        assert_eq!(found.len(), sample.expected.len(), "{}", sample.name);
    }
}

#[test]
fn the_kernels_captures_are_right_but_for_the_damaged_frames() {
    let (mut all, mut rdma, mut right, mut wrong) = (0, 0, 0, 0);
    for (name, file) in captures("rxe") {
        for line in lines(&file) {
            all += 1;
            if line["kind"] != "rocev2" {
                assert_eq!((&line["kind"], name.as_str()), (&Value::from("other"), "ud-multicast"));
                continue;
            }
            rdma += 1;
            match line["icrc"].as_str() {
                Some("ok") => {
                    right += 1;
                    assert_eq!(line["issues"], serde_json::json!([]), "{name}: {line}");
                }
                Some("bad") => wrong += 1,
                other => panic!("{name}: {other:?}"),
            }
        }
    }
    assert_eq!((all, rdma, right, wrong), (1235, 1228, 1218, 10));
}

/// Packets of hardware and of the specification, published with their fields (`vectors.md` of the
/// reference; secdev/scapy's tests; the CNP is a ConnectX-4 Lx's).
#[test]
fn published_packets_are_read_as_published() {
    let vectors = [
        (
            "248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff\
             000000d300cf17104630818be28935d90e9a95505401be885e50000078f353f3",
            serde_json::json!({"ip_id": 1144, "tos": 1, "ecn": "ect1", "ttl": 64, "df": true,
                "src_port": 49152, "udp_checksum": 0xaca2, "opcode": "UC_SEND_ONLY", "pad": 2, "tver": 0,
                "solicited": false, "migreq": true, "dest_qp": 211, "psn": 13571856, "payload_length": 18,
                "icrc": "ok", "icrc_wire": "78f353f3", "issues": []}),
        ),
        (
            "248a07a8fa22248a07a8fa2286dd6e21face002c11ff20220000000000000000000000001023202300000000\
             00000000000000001024c00012b7002ce7c52460ffff000000d300cf17104630818be28935d90e9a95505401\
             be885e5000003e5b743b",
            serde_json::json!({"tos": 226, "flow_label": 0x1face, "ttl": 255, "udp_checksum": 0xe7c5,
                "src": "2022::1023", "icrc": "ok", "icrc_wire": "3e5b743b", "issues": []}),
        ),
        (
            "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b700280000\
             8100ffff40000118000000000000000000000000000000000000000082fd002a",
            serde_json::json!({"opcode": "CNP", "src_port": 0, "becn": true, "fecn": false, "reserved": 0,
                "dest_qp": 0x118, "psn": 0, "ecn": "ect0", "icrc": "ok", "icrc_wire": "82fd002a",
                "payload_length": 0, "issues": []}),
        ),
        (
            "7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f000002000000000000\
             00000000ffff0f0000020a70ffff0000010a80a788bc000055d4c0726000000047b300000005000000000100\
             0000e3d856bb",
            serde_json::json!({"kind": "rocev1", "opcode": "RC_RDMA_WRITE_ONLY", "pad": 3, "dest_qp": 0x10a,
                "ack_req": true, "psn": 0xa788bc, "payload_length": 5, "icrc": "ok", "issues": [],
                "grh": {"sgid": "::ffff:15.0.0.2", "dgid": "::ffff:15.0.0.2", "hop_limit": 64,
                    "traffic_class": 2, "flow_label": 0},
                "reth": {"va": "0x000055d4c0726000", "rkey": "0x000047b3", "length": 5}}),
        ),
        (
            "7cfe90753cd87cfe90753cd889156020000000141b4000000000000000000000ffff0f000002000000000000\
             00000000ffff0f0000021140ffff0000010900a788c00000000525f0c038",
            serde_json::json!({"opcode": "RC_ACKNOWLEDGE", "dest_qp": 0x109, "icrc": "ok",
                "aeth": {"syndrome": 0, "kind": "ack", "code": 0, "credits": 0, "msn": 5}}),
        ),
        (
            "183d5ebf4371183d5ebf51920800450200300000400040112d60c0a84606c0a84604004812b7001c00001140\
             ffff000000450000000006000001259cc216",
            serde_json::json!({"src_port": 72, "aeth": {"credits": 8, "code": 6}, "icrc": "ok", "tos": 2}),
        ),
        (
            // Printed with another ICRC in the article that it comes from, which fits no reading.
            "02000000000102000000000208004589003c98c64000201169271616160816161607dbae12b7002800008100\
             ffff400000d200000000000000000000000000000000000000 00dafc1bef",
            serde_json::json!({"opcode": "CNP", "icrc": "ok", "icrc_computed": "dafc1bef"}),
        ),
    ];
    for (bytes, expected) in vectors {
        let frame = samples::hex(bytes);
        let file = build::pcap(LinkType::ETHERNET.0, &[build::whole(frame)]);
        let found = &lines(&file)[0];
        assert_eq!(difference("", &expected, found), None, "{found:#}");
    }
}
