//! The JSON has exactly the fields of its documentation; text fits its columns.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use uroce::dissect::{Summary, explain_icrc, fields, json, text};

use uroce::pcap::LinkType;

use super::build::{Ip4, eth4, ip4, packet, payload, roce4_with, tagged, udp4};
use super::{captures, each_frame, is_blessed, lines, samples};

/// All paths in a value, lists as `[]`.
fn paths(prefix: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                found.insert(path.clone());
                paths(&path, value, found);
            }
        }
        Value::Array(items) => {
            for item in items.iter().filter(|item| item.is_object()) {
                paths(&format!("{prefix}[]"), item, found);
            }
        }
        _ => {}
    }
}

fn documented() -> BTreeSet<String> {
    let fixed = fields::FRAME.iter().chain(fields::PACKET).map(|field| field.path.to_owned());
    fixed.chain(fields::connection_paths()).collect()
}

#[test]
fn the_documentation_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/dump-json.md");
    if is_blessed() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, fields::page()).unwrap();
    }
    let page = fs::read_to_string(&path).unwrap_or_default();
    assert!(page == fields::page(), "write docs/dump-json.md anew with UROCE_BLESS=1");
}

#[test]
fn every_field_is_documented_and_every_documented_field_occurs() {
    let mut found = BTreeSet::new();
    for (_, file) in captures("rxe").into_iter().chain(captures("oddities")) {
        lines(&file).iter().for_each(|line| paths("", line, &mut found));
    }
    let documented = documented();
    let extra: Vec<_> = found.difference(&documented).collect();
    assert!(extra.is_empty(), "not in src/dissect/fields.rs: {extra:?}");
    let missing: Vec<_> = documented.difference(&found).map(String::as_str).collect();
    assert_eq!(missing, ["file", "interface"], "these need several files, and pcapng");
}

#[test]
fn every_issue_occurs_in_a_sample() {
    let mut found = BTreeSet::new();
    for sample in samples::all() {
        let file = super::build::pcap(sample.link_type, &sample.frames);
        for line in lines(&file) {
            let issues = line["issues"].as_array().unwrap().iter();
            found.extend(issues.map(|issue| issue.as_str().unwrap().to_owned()));
        }
    }
    let all: BTreeSet<_> =
        uroce::dissect::Issue::ALL.iter().map(|issue| issue.identifier().to_owned()).collect();
    let missing: Vec<_> = all.difference(&found).collect();
    assert_eq!(missing, ["too_deep", "unsupported_link_type"], "tests of their own have these");
}

#[test]
fn the_summary_counts_what_the_lines_say() {
    for (name, file) in captures("rxe").into_iter().chain(captures("oddities")) {
        let mut summary = Summary::default();
        each_frame(&file, |_, _, frame| summary.count(frame));
        let mut out = Vec::new();
        json::write_summary(&mut out, "a \"name\"", &summary);
        let summary: Value = serde_json::from_slice(&out).unwrap();
        let lines = lines(&file);
        let of = |key: &str, value: &str| lines.iter().filter(|l| l[key] == value).count() as u64;
        for verdict in ["ok", "bad", "unchecked"] {
            assert_eq!(summary["icrc"][verdict], of("icrc", verdict), "{name}");
        }
        let rdma = lines.iter().filter(|line| !line["icrc"].is_null()).count() as u64;
        assert_eq!(summary["rdma_frames"], rdma, "{name}");
        assert_eq!(summary["file"], "a \"name\"");
        let frames: BTreeSet<u64> = lines.iter().map(|l| l["frame"].as_u64().unwrap()).collect();
        assert_eq!(summary["frames"], frames.len() as u64, "{name}");
        for (opcode, count) in summary["opcodes"].as_object().unwrap() {
            let unnamed = if opcode == "UNKNOWN" {
                lines.iter().filter(|l| !l["icrc"].is_null() && l["opcode"].is_null()).count()
                    as u64
            } else {
                0
            };
            assert_eq!(*count, of("opcode", opcode) + unnamed, "{name}: {opcode}");
        }
        for (issue, count) in summary["issues"].as_object().unwrap() {
            let has =
                |l: &&Value| l["issues"].as_array().unwrap().iter().any(|found| found == issue);
            assert_eq!(*count, lines.iter().filter(has).count() as u64, "{name}: {issue}");
        }
    }
}

#[test]
fn each_usual_mistake_is_found() {
    use uroce::dissect::Mistake::*;
    let expected = [
        vec![PadLeftOut],
        vec![ByteOrder],
        vec![
            ClassNotMasked,
            HopLimitNotMasked,
            HeaderChecksumNotMasked,
            UdpChecksumNotMasked,
            CongestionNotMasked,
        ],
        vec![Castagnoli],
        vec![FrameCheckSequence],
        vec![],
    ];
    let (_, file) = captures("oddities").into_iter().find(|(n, _)| n == "icrc-mistakes").unwrap();
    each_frame(&file, |number, _, frame| {
        let packet = frame.packets().next().unwrap();
        let explained = explain_icrc(frame, &packet).unwrap();
        assert_eq!(explained.mistakes, expected[number as usize - 1], "frame {number}");
    });
}

/// Each mistake made by hand in one frame with everything that it needs, alone and with the bytes
/// in the other order.
#[test]
fn every_mistake_is_told_from_the_others() {
    use uroce::dissect::{Dissector, Mistake, explain_value};
    let ip = Ip4 { tos: 0x0a, ..Ip4::default() };
    let mut inside = roce4_with(&ip, &packet(0x04, 100, &[], &payload(30)));
    inside[26..28].copy_from_slice(&[0x12, 0x34]);
    let mut frame = tagged(&[(0x8100, 5)], 0x0800, &inside);
    frame.extend([1, 2, 3, 4, 5, 6]);
    let right = frame[18..18 + inside.len() - 4].to_vec();
    let masked = [(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff), (26, 0xff), (27, 0xff), (32, 0xff)];
    let with = |skip: &[usize], change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = right.clone();
        for (at, ones) in masked.iter().filter(|(at, _)| !skip.contains(at)) {
            bytes[*at] |= ones;
        }
        change(&mut bytes);
        bytes
    };
    let ones = [0xff; 8];
    let plain = with(&[], &|_| {});
    let crc = |parts: &[&[u8]]| crc32fast::hash(&parts.concat());
    let zeroed = |range: std::ops::Range<usize>| with(&[], &|bytes| bytes[range.clone()].fill(0));
    let values = [
        (Mistake::PadLeftOut, crc(&[&ones, &plain[..plain.len() - 2]])),
        (Mistake::ClassNotMasked, crc(&[&ones, &with(&[1], &|_| {})])),
        (Mistake::HopLimitNotMasked, crc(&[&ones, &with(&[8], &|_| {})])),
        (Mistake::HeaderChecksumNotMasked, crc(&[&ones, &with(&[10, 11], &|_| {})])),
        (Mistake::UdpChecksumNotMasked, crc(&[&ones, &with(&[26, 27], &|_| {})])),
        (Mistake::CongestionNotMasked, crc(&[&ones, &with(&[32], &|_| {})])),
        (
            Mistake::ZeroMasks,
            crc(&[&ones, &with(&[], &|bytes| masked.iter().for_each(|(at, _)| bytes[*at] = 0))]),
        ),
        (Mistake::LinkHeaderLeftOut, crc(&[&plain])),
        (Mistake::EthernetIncluded, crc(&[&ones, &frame[..18], &plain])),
        (Mistake::VlanIncluded, crc(&[&ones, &frame[12..16], &plain])),
        (
            Mistake::TrailerIncluded,
            crc(&[&ones, &plain, &frame[18 + right.len()..frame.len() - 4]]),
        ),
        (Mistake::FrameCheckSequence, crc(&[&frame[..18], &right])),
        (Mistake::NotComplemented, !crc(&[&ones, &plain])),
        (Mistake::IpLengthZero, crc(&[&ones, &zeroed(2..4)])),
        (Mistake::UdpLengthZero, crc(&[&ones, &zeroed(24..26)])),
        (Mistake::IdentificationZero, crc(&[&ones, &zeroed(4..6)])),
    ];
    let mut dissector = Dissector::new();
    let dissected = dissector.dissect(LinkType::ETHERNET, frame.len() as u32, &frame);
    let found = dissected.packets().next().unwrap();
    let mistakes = |wire| explain_value(&dissected, &found, wire).unwrap().mistakes;
    for (mistake, value) in values {
        assert_eq!(mistakes(value.to_le_bytes()), [mistake]);
        let mut both = vec![mistake, Mistake::ByteOrder];
        both.sort_unstable();
        assert_eq!(mistakes(value.to_be_bytes()), both);
    }
    // CRC-32C and the order alone are in the sample of mistakes.
    assert_eq!(values.len() + 2, Mistake::ALL.len());
}

/// An ERF record or a tunnel lies before the Ethernet header, and a tag within it.
#[test]
fn the_ethernet_header_is_found_behind_whatever_lies_before_it() {
    use uroce::dissect::{Dissector, Mistake, explain_value};
    let ip = roce4_with(&Ip4::default(), &packet(0x04, 100, &[], &payload(30)));
    let frame = tagged(&[(0x8100, 5)], 0x0800, &ip);
    let mut masked = ip[..ip.len() - 4].to_vec();
    [1, 8, 10, 11, 26, 27, 32].iter().for_each(|at| masked[*at] = 0xff);
    let covered = [&[0xff; 8][..], &frame[..18], &masked].concat();
    let wire = crc32fast::hash(&covered).to_le_bytes();
    let mut erf = vec![0; 18];
    erf[8] = 2;
    erf[14..16].copy_from_slice(&(frame.len() as u16).to_be_bytes());
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &frame].concat();
    let vxlan = eth4(&udp4(&Ip4::outer(), 4789, &vxlan));
    let ipip = eth4(&ip4(&Ip4::outer(), 4, &ip));
    let mistakes = |link_type, frame: &[u8]| {
        let mut dissector = Dissector::new();
        let dissected = dissector.dissect(link_type, frame.len() as u32, frame);
        let packet = dissected.packets().next().unwrap();
        explain_value(&dissected, &packet, wire).unwrap().mistakes
    };
    assert_eq!(mistakes(LinkType::ERF, &[erf, frame].concat()), [Mistake::EthernetIncluded]);
    assert_eq!(mistakes(LinkType::ETHERNET, &vxlan), [Mistake::EthernetIncluded]);
    assert_eq!(mistakes(LinkType::ETHERNET, &ipip), [], "the IP packet has none of its own");
}

#[test]
fn the_running_crc_ends_in_the_computed_one() {
    for (name, file) in captures("rxe").into_iter().chain(captures("oddities")) {
        each_frame(&file, |number, _, frame| {
            for packet in frame.packets() {
                let Some(explained) = explain_icrc(frame, &packet) else { continue };
                let last = explained.parts.last().unwrap().running;
                // A frame whose lengths were left to the card has other ones on the wire.
                if name != "offload" {
                    assert_eq!((!last).to_le_bytes(), explained.computed, "{name} {number}");
                }
                assert_eq!(packet.icrc.wire, Some(explained.wire));
                assert!(explained.mistakes.is_empty() || explained.computed != explained.wire);
            }
        });
    }
}

#[test]
fn lines_say_it_in_words() {
    let said = |file: &str, number: u64| {
        let (_, file) = captures("rxe").into_iter().find(|(name, _)| name == file).unwrap();
        let mut said = String::new();
        each_frame(&file, |frame, _, dissected| {
            if frame == number {
                let line = text::line(dissected, dissected.packets().next().as_ref());
                said = format!("{}|{}|{}", line.what, line.notable, line.wrong);
            }
        });
        said
    };
    assert_eq!(said("rc-rnr", 2), "RC_ACKNOWLEDGE qp 0x2e psn 655360 msn 0|RNR NAK: wait 0.64 ms|");
    assert_eq!(
        said("err-rkey-write", 2),
        "RC_ACKNOWLEDGE qp 0x31 psn 655360 msn 0|NAK: remote access error|"
    );
    assert_eq!(
        said("cm-reject", 2),
        "UD_SEND_ONLY CM REJ invalid service ID: nobody listens there||"
    );
}
