//! Samples of packets: every opcode, whole, cut, merged and wrong.

use serde_json::{Value, json};

use super::super::build::*;
use super::others::crc32c;
use super::*;

/// The frame of three middle packets and a last one, the first identification 0xfffe.
fn write_burst() -> (Ip4, Vec<Bytes>) {
    let middle = |index: u32| packet(0x07, 50 + index, &[], &payload(1024));
    let last = packet(0x08, 53, &[], &payload(100));
    (Ip4 { id: 0xfffe, ..Ip4::default() }, vec![middle(0), middle(1), middle(2), last])
}

/// What the packets of [`write_burst`] show.
fn segments() -> Vec<Value> {
    let segment = |index: u32, opcode: &str, length: u32| {
        json!({
            "segment": index, "psn": 50 + index, "opcode": opcode, "payload_length": length,
            "icrc": "ok", "issues": [], "ip_id": (0xfffe + index) & 0xffff,
        })
    };
    vec![
        segment(0, "RC_RDMA_WRITE_MIDDLE", 1024),
        segment(1, "RC_RDMA_WRITE_MIDDLE", 1024),
        segment(2, "RC_RDMA_WRITE_MIDDLE", 1024),
        segment(3, "RC_RDMA_WRITE_LAST", 100),
    ]
}

pub fn offload() -> Sample {
    let (ip, packets) = write_burst();
    let frame = eth4(&superframe4(&ip, &packets));
    let mut unfilled = frame.clone();
    unfilled[16..18].fill(0);
    let mut no_lengths = unfilled.clone();
    no_lengths[38..40].fill(0);
    let mut damaged = frame.clone();
    damaged[14 + 28 + 1040 + 500] ^= 1;
    let mut one_bad = segments();
    one_bad[1]["icrc"] = json!("bad");
    // One packet whose lengths the card was to fill in.
    let mut open = eth4(&roce4(&send_only()));
    open[16..18].fill(0);
    let mut lines = vec![
        (whole(frame.clone()), segments()),
        cut_after_two(frame),
        (whole(unfilled), segments()),
        (whole(no_lengths), segments()),
        (whole(damaged), one_bad),
        unproven(),
        one(open, with(good(), json!({"segment": null}))),
    ];
    lines.extend(merged());
    sample(
        "offload",
        "frames that segmentation offload left whole or merged: lengths full, 0, not provable",
        ETHERNET,
        lines,
    )
}

fn cut_after_two(frame: Bytes) -> (Captured, Vec<Value>) {
    let mut lines = segments();
    lines.iter_mut().for_each(|line| line["issues"] = json!(["truncated"]));
    lines.iter_mut().skip(1).for_each(|line| line["icrc"] = json!("unchecked"));
    for line in &mut lines[2..] {
        line["opcode"] = Value::Null;
        line["psn"] = Value::Null;
        line["payload_length"] = Value::Null;
    }
    lines.iter_mut().skip(1).for_each(|line| line["ip_id"] = json!(0xfffe));
    (cut(frame, 14 + 28 + 1040 + 60), lines)
}

/// Not the same queue pair and damaged: nothing proves where the second packet begins.
fn unproven() -> (Captured, Vec<Value>) {
    let (ip, mut packets) = write_burst();
    packets.iter_mut().skip(1).for_each(|packet| packet[7] = 0x99);
    packets[3] = packet(0x07, 53, &[], &payload(1024));
    packets.push(packet(0x08, 54, &[], &payload(1024)));
    let mut frame = eth4(&superframe4(&ip, &packets));
    frame[14 + 28 + 1040 + 500] ^= 1;
    let issues = ["unsplit_segments", "over_path_mtu"];
    let unknown = json!({"icrc": "unchecked", "icrc_wire": null, "icrc_computed": null});
    one(frame, with(json!({"segment": null, "issues": issues, "psn": 50}), unknown))
}

/// Packets that were merged on receive, each with the identification that it came with.
fn merged() -> Vec<(Captured, Vec<Value>)> {
    let merge = |packets: &[(u16, Bytes)]| {
        let inside = packets.iter().map(|(id, packet)| {
            roce4_with(&Ip4 { id: *id, ..Ip4::default() }, packet)[28..].to_vec()
        });
        let inside: Bytes = inside.collect::<Vec<_>>().concat();
        let ip = Ip4 { id: packets[0].0, ..Ip4::default() };
        whole(eth4(&ip4(&ip, 17, &[&udp_header(0xc123, ROCE, inside.len())[..], &inside].concat())))
    };
    let ack = |psn: u32, msn: u8| packet(0x11, psn, &[0x1f, 0, 0, msn], &[]);
    let to_another = |mut packet: Bytes| {
        packet[5..8].copy_from_slice(&[1, 0, 0x77]);
        packet
    };
    let shown = |segment: u32, psn: u32, more: Value| {
        with(json!({"segment": segment, "psn": psn, "issues": [], "icrc": "ok"}), more)
    };
    let (_, burst) = write_burst();
    let own: Vec<_> = [9, 0, 63, 0x4321].into_iter().zip(burst).collect();
    let mut own_shown = segments();
    for (line, id) in own_shown.iter_mut().zip([9, 0, 63]) {
        line["ip_id"] = json!(id);
    }
    // No socket's, and neither that of the frame nor the next ones: nobody can tell.
    own_shown[3] = with(
        own_shown[3].clone(),
        json!({"ip_id": 9, "icrc": "unchecked",
        "icrc_computed": null}),
    );
    vec![
        // Acknowledgements leave PSNs out.
        (
            merge(&[(0, ack(70, 1)), (0, ack(85, 2)), (0, ack(86, 3))]),
            vec![
                shown(0, 70, json!({"aeth": {"msn": 1}, "ip_id": 0})),
                shown(1, 85, json!({"aeth": {"msn": 2}, "ip_id": 0})),
                shown(2, 86, json!({"aeth": {"msn": 3}, "ip_id": 0})),
            ],
        ),
        // Two queue pairs.
        (
            merge(&[(0x1234, send_only()), (0x1235, to_another(packet(4, 9, &[], &payload(8))))]),
            vec![
                shown(0, 100, json!({"dest_qp": 18, "ip_id": 0x1234})),
                shown(1, 9, json!({"dest_qp": 0x0001_0077, "ip_id": 0x1235, "payload_length": 8})),
            ],
        ),
        (merge(&own), own_shown),
    ]
}

pub fn cut_frames() -> Sample {
    let frame = eth4(&roce4(&packet(0x0a, 100, &reth(1, 2, 300), &payload(300))));
    let base = |more: Value| {
        with(
            json!({"kind": "rocev2", "issues": ["truncated"], "icrc": "unchecked",
        "icrc_computed": null, "length": frame.len()}),
            more,
        )
    };
    let at = |kept: usize, expected: Value| (cut(frame.clone(), kept), vec![expected]);
    let other =
        |kept: usize| at(kept, json!({"kind": "other", "issues": ["truncated"], "captured": kept}));
    let padded = [frame.clone(), vec![0; 10]].concat();
    sample(
        "cut",
        "one frame cut by the snap length at every layer",
        ETHERNET,
        vec![
            at(
                frame.len() - 1,
                base(
                    json!({"payload_length": 300, "icrc_wire": null, "reth": {"va": "0x0000000000000001", "rkey": "0x00000002", "length": 300}}),
                ),
            ),
            at(
                96,
                base(
                    json!({"payload_length": 300, "opcode": "RC_RDMA_WRITE_ONLY", "captured": 96}),
                ),
            ),
            at(
                60,
                base(
                    json!({"opcode": "RC_RDMA_WRITE_ONLY", "psn": 100, "reth": null, "payload_length": null}),
                ),
            ),
            at(54, base(json!({"opcode": "RC_RDMA_WRITE_ONLY", "reth": null}))),
            at(53, base(json!({"opcode": null, "src": "192.0.2.1"}))),
            at(42, base(json!({"opcode": null, "dst_port": 4791}))),
            other(41),
            other(34),
            other(20),
            other(14),
            other(13),
            other(3),
            other(0),
            // Only padding is cut off.
            (cut(padded, frame.len() + 3), vec![json!({"issues": ["truncated"], "icrc": "ok"})]),
        ],
    )
}

pub fn lengths() -> Sample {
    sample(
        "lengths",
        "lengths that contradict one another, packets too short for what they are",
        ETHERNET,
        [of_ip_and_udp(), of_packets()].concat(),
    )
}

fn of_ip_and_udp() -> Vec<(Captured, Vec<Value>)> {
    let edit = |change: &dyn Fn(&mut Bytes)| {
        let mut frame = eth4(&roce4(&send_only()));
        change(&mut frame);
        frame
    };
    let set = |at: usize, value: u16| {
        move |frame: &mut Bytes| {
            frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
    };
    let mismatch = |icrc: &str| json!({"issues": ["udp_length_mismatch"], "icrc": icrc});
    let bad_ip = || json!({"kind": "other", "issues": ["bad_ip_header"]});
    vec![
        // UDP says less than IP has: the ICRC is where UDP says.
        one(edit(&set(38, 8 + 40)), with(mismatch("bad"), json!({"opcode": "RC_SEND_ONLY"}))),
        // UDP says more than IP has: nobody knows where the ICRC is.
        one(edit(&set(38, 8 + 80)), with(mismatch("unchecked"), json!({"icrc_wire": null}))),
        one(edit(&set(38, 3)), mismatch("unchecked")),
        // IP says more than the frame has.
        one(
            edit(&set(16, 200)),
            json!({"issues": ["truncated", "udp_length_mismatch"], "icrc": "bad"}),
        ),
        one(edit(&set(16, 19)), bad_ip()),
        one(edit(&|frame: &mut Bytes| frame[14] = 0x43), bad_ip()),
    ]
}

fn of_packets() -> Vec<(Captured, Vec<Value>)> {
    let short = |bytes: &[u8]| eth4(&udp4(&Ip4::default(), ROCE, bytes));
    let frame = |bytes: &[u8]| eth4(&roce4(bytes));
    let two =
        || json!({"kind": "rocev2", "issues": ["missing_header", "no_icrc"], "icrc": "unchecked"});
    vec![
        one(short(&[]), two()),
        one(short(&[4; 11]), two()),
        one(
            short(&bth(4, 0, 1)),
            json!({"issues": ["no_icrc"], "opcode": "RC_SEND_ONLY", "icrc": "unchecked"}),
        ),
        one(short(&[&bth(4, 0, 1)[..], &[1, 2, 3]].concat()), json!({"issues": ["no_icrc"]})),
        one(
            frame(&packet(0x0a, 1, &[1, 2, 3, 4], &[])),
            json!({"issues": ["missing_header"], "opcode": "RC_RDMA_WRITE_ONLY", "reth": null, "icrc": "ok"}),
        ),
        one(
            frame(&[&bth(4, 3, 1)[..], &[9; 2]].concat()),
            json!({"issues": ["bad_length", "bad_pad"], "payload_length": null, "icrc": "ok"}),
        ),
        one(
            frame(&[&bth(4, 1, 1)[..], &[9; 6]].concat()),
            json!({"issues": ["bad_length"], "payload_length": 5, "icrc": "ok"}),
        ),
    ]
}

/// Extended headers by the names of `tests/data/opcodes.csv`, and what JSON shows of each.
fn extended(name: &str) -> (Bytes, Value) {
    match name {
        "RETH" => (
            reth(0x11_2233_4455_6678, 0x99aa_bbcc, 512),
            json!({"reth":
            {"va": "0x0011223344556678", "rkey": "0x99aabbcc", "length": 512}}),
        ),
        "AETH" => (
            vec![0x05, 0, 0, 7],
            json!({"aeth":
            {"syndrome": 5, "kind": "ack", "code": 5, "credits": 6, "msn": 7}}),
        ),
        "AtomicETH" => (
            [
                &0x1000_u64.to_be_bytes()[..],
                &5_u32.to_be_bytes(),
                &u64::MAX.to_be_bytes(),
                &2_u64.to_be_bytes(),
            ]
            .concat(),
            json!({"atomic_eth": {"va": "0x0000000000001000", "rkey": "0x00000005",
                "swap_add": "0xffffffffffffffff", "compare": "0x0000000000000002"}}),
        ),
        "AtomicAckETH" => (
            0xfeed_u64.to_be_bytes().to_vec(),
            json!({"atomic_ack_eth": {"original": "0x000000000000feed"}}),
        ),
        "ImmDt" => (vec![1, 2, 3, 4], json!({"immediate": "0x01020304"})),
        "IETH" => (vec![0xa, 0xb, 0xc, 0xd], json!({"ieth": {"rkey": "0x0a0b0c0d"}})),
        "DETH" => (
            vec![0x11, 0x11, 0x11, 0x11, 0, 0, 2, 9],
            json!({"deth": {"qkey": "0x11111111", "src_qp": 521}}),
        ),
        "RDETH" => (vec![0, 0, 1, 1], json!({"rdeth": {"eecn": 257}})),
        "XRCETH" => (vec![0, 0, 1, 2], json!({"xrceth": {"srqn": 258}})),
        "FETH" => (vec![0, 0, 0, 0x11], json!({"feth": {"placement": 1, "selectivity": 1}})),
        "RESERVED16" => (vec![0; 16], json!({})),
        other => panic!("{other} in the table"),
    }
}

/// Every opcode of the checked table, and some that no transport defines.
pub fn opcodes() -> Sample {
    let mut lines = Vec::new();
    for (index, row) in include_str!("../../data/opcodes.csv").lines().skip(1).enumerate() {
        let [byte, name, _, headers, has_payload, _] = row.split(',').collect::<Vec<_>>()[..]
        else {
            panic!("{row}");
        };
        let byte = u8::from_str_radix(byte, 16).unwrap();
        if name == "UNKNOWN" {
            continue;
        }
        let mut bytes = Vec::new();
        let mut expected =
            json!({"issues": [], "opcode": name, "opcode_value": byte, "icrc": "ok", "psn": index});
        for header in headers.split_whitespace().filter(|header| *header != "-") {
            let (more, shown) = extended(header);
            bytes.extend(more);
            expected = with(expected, shown);
        }
        let length = match (has_payload, name) {
            ("no", _) => 0,
            (_, name) if name.ends_with("ATOMIC_WRITE") => 8,
            (_, name) if name.contains("WRITE_FIRST") => 256,
            (_, name) if name.contains("FIRST") || name.contains("MIDDLE") => 256,
            (_, name) if name.contains("WRITE_ONLY") => 512,
            _ => 21,
        };
        if name.ends_with("ATOMIC_WRITE") {
            bytes = reth(0x1000, 1, 8);
            expected["reth"] =
                json!({"va": "0x0000000000001000", "rkey": "0x00000001", "length": 8});
        }
        expected["payload_length"] = json!(length);
        lines.push(one(
            eth4(&roce4(&packet(byte, index as u32, &bytes, &payload(length)))),
            expected,
        ));
    }
    for byte in [0x15, 0x18, 0x1e, 0x2c, 0x60, 0x80, 0x82, 0xc0, 0xff] {
        lines.push(one(
            eth4(&roce4(&packet(byte, 1, &[], &payload(40)))),
            json!({
            "issues": ["unknown_opcode"], "opcode": "UNKNOWN", "opcode_value": byte, "icrc": "ok",
            "dest_qp": 18, "psn": 1, "payload_length": null}),
        ));
    }
    sample(
        "opcodes",
        "every opcode with its headers, and nine that no transport defines",
        ETHERNET,
        lines,
    )
}

pub fn contradictions() -> Sample {
    sample(
        "contradictions",
        "packets with a right ICRC that no right sender makes; reserved bits, which never matter",
        ETHERNET,
        [wrong_packets(), syndromes(), of_no_account(), wrong_dma_lengths()].concat(),
    )
}

fn edited(change: &dyn Fn(&mut Bytes)) -> Bytes {
    let mut bytes = send_only();
    change(&mut bytes);
    eth4(&roce4(&bytes))
}

fn wrong_packets() -> Vec<(Captured, Vec<Value>)> {
    let made = |opcode: u8, extended: &[u8], payload: &[u8]| {
        eth4(&roce4(&packet(opcode, 1, extended, payload)))
    };
    let only = |issue: &str| json!({"issues": [issue], "icrc": "ok"});
    let atomic = |address: u64| [&address.to_be_bytes()[..], &[0; 20]].concat();
    vec![
        one(edited(&|b: &mut Bytes| b[1] |= 1), only("bad_tver")),
        one(edited(&|b: &mut Bytes| b[2..4].copy_from_slice(&[0x80, 0])), only("invalid_pkey")),
        one(made(0x11, &[0, 0, 0, 1], &payload(4)), only("unexpected_payload")),
        one(made(0x04, &[], &payload(4100)), only("over_path_mtu")),
        one(made(0x01, &[], &payload(1000)), only("not_path_mtu")),
        one(made(0x02, &[], &[]), only("empty_last")),
        one(made(0x0a, &reth(0, 0, 5), &payload(6)), only("dma_length_mismatch")),
        one(made(0x06, &reth(0, 0, 256), &payload(256)), only("dma_length_mismatch")),
        one(made(0x0c, &reth(0, 0, 0x8000_0001), &[]), only("dma_length_too_long")),
        one(made(0x1d, &reth(0, 0, 8), &payload(4)), only("bad_atomic_write")),
        one(made(0x1d, &reth(4, 0, 8), &payload(8)), only("misaligned_address")),
        one(made(0x13, &atomic(12), &[]), only("misaligned_address")),
    ]
}

fn syndromes() -> Vec<(Captured, Vec<Value>)> {
    let shown = |byte: u8, issues: Value, kind: &str, more: Value| {
        let aeth = json!({"syndrome": byte, "kind": kind, "code": byte & 31, "msn": 1});
        let frame = eth4(&roce4(&packet(0x11, 1, &[byte, 0, 0, 1], &[])));
        one(frame, json!({"issues": issues, "icrc": "ok", "aeth": with(aeth, more)}))
    };
    let reserved = || json!(["reserved_syndrome"]);
    vec![
        shown(0x45, reserved(), "reserved", json!({})),
        shown(0x7f, reserved(), "nak", json!({"nak": "reserved"})),
        shown(0xe0, json!([]), "nak", json!({"nak": "psn_sequence_error"})),
        shown(0x20, json!([]), "rnr_nak", json!({"timer_ms": 655.36})),
        shown(0x2c, json!([]), "rnr_nak", json!({"timer_ms": 0.64})),
    ]
}

fn wrong_dma_lengths() -> Vec<(Captured, Vec<Value>)> {
    let made = |opcode: u8, extended: &[u8], payload: &[u8]| {
        eth4(&roce4(&packet(opcode, 1, extended, payload)))
    };
    let of_a_range = [&[0, 0, 0, 1][..], &reth(0, 0, 0x8000_0001)].concat();
    vec![
        one(
            made(0x06, &reth(0, 0, 20), &payload(20)),
            json!({"issues": ["not_path_mtu", "dma_length_mismatch"], "icrc": "ok"}),
        ),
        one(made(0x1c, &of_a_range, &[]), json!({"issues": ["dma_length_too_long"], "icrc": "ok"})),
    ]
}

/// Reserved bits, and the length of a FLUSH that is for the whole region.
fn of_no_account() -> Vec<(Captured, Vec<Value>)> {
    let flush = [&[0xff, 0xff, 0xff, 0xd1][..], &reth(0, 0, u32::MAX)].concat();
    vec![
        one(
            edited(&|b: &mut Bytes| b[4] = 0x3f),
            with(good(), json!({"reserved": 63, "fecn": false, "becn": false})),
        ),
        one(
            edited(&|b: &mut Bytes| b[4] = 0xd0),
            with(good(), json!({"reserved": 16, "fecn": true, "becn": true})),
        ),
        one(edited(&|b: &mut Bytes| b[8] |= 0x7f), good()),
        one(
            eth4(&roce4(&packet(0x1c, 1, &flush, &[]))),
            json!({"issues": [], "icrc": "ok", "feth": {"placement": 1, "selectivity": 1}}),
        ),
    ]
}

/// The usual mistakes in making an ICRC.
pub fn bad_icrc() -> Sample {
    let right = eth4(&roce4(&send_only()));
    let position = right.len() - 4;
    let with_icrc = |icrc: [u8; 4]| {
        let mut frame = right.clone();
        frame[position..].copy_from_slice(&icrc);
        frame
    };
    let crc = |bytes: &[u8]| crc32fast::hash(bytes);
    let wire: [u8; 4] = right[position..].try_into().unwrap();
    let mut masked = [vec![0xff; 8], right[14..position].to_vec()].concat();
    let swapped = [wire[3], wire[2], wire[1], wire[0]];
    let unmasked = crc(&masked).to_le_bytes();
    for at in [9, 16, 18, 19, 34, 35, 40] {
        masked[at] = 0xff;
    }
    assert_eq!(crc(&masked).to_le_bytes(), wire);
    let no_pad = crc(&masked[..masked.len() - 2]).to_le_bytes();
    let castagnoli = crc32c(&masked).to_le_bytes();
    let fcs = crc(&right[..position]).to_le_bytes();
    let bad = |icrc: [u8; 4]| {
        one(
            with_icrc(icrc),
            with(
                good(),
                json!({"icrc": "bad",
        "icrc_wire": icrc.map(|byte| format!("{byte:02x}")).concat(),
        "icrc_computed": wire.map(|byte| format!("{byte:02x}")).concat()}),
            ),
        )
    };
    let mut damaged = right.clone();
    damaged[60] ^= 0x10;
    sample(
        "icrc-mistakes",
        "pad left out, byte order, nothing masked, CRC-32C, FCS in its place, a damaged bit",
        ETHERNET,
        vec![
            bad(no_pad),
            bad(swapped),
            bad(unmasked),
            bad(castagnoli),
            bad(fcs),
            one(damaged, with(good(), json!({"icrc": "bad"}))),
        ],
    )
}
