//! The samples of `pcap-samples/oddities`: how each is made, and what must be found in it.

use serde_json::{Value, json};

use super::build::*;

/// A capture and, for each line of JSON, what must be in it. `null` stands for a field that must
/// not be there.
pub struct Sample {
    pub name: &'static str,
    pub about: &'static str,
    pub link_type: u32,
    pub frames: Vec<Captured>,
    pub expected: Vec<Value>,
}

const ETHERNET: u32 = 1;

fn sample(
    name: &'static str,
    about: &'static str,
    link_type: u32,
    lines: Vec<(Captured, Vec<Value>)>,
) -> Sample {
    let (frames, expected): (Vec<Captured>, Vec<Vec<Value>>) = lines.into_iter().unzip();
    Sample { name, about, link_type, frames, expected: expected.concat() }
}

/// A frame of one line.
fn one(frame: Bytes, expected: Value) -> (Captured, Vec<Value>) {
    (whole(frame), vec![expected])
}

fn send_only() -> Bytes {
    packet(0x04, 100, &[], &payload(30))
}

/// What the packet of [`send_only`] shows wherever it is found.
fn good() -> Value {
    json!({
        "issues": [], "opcode": "RC_SEND_ONLY", "opcode_value": 4, "dest_qp": 18, "psn": 100,
        "ack_req": true, "migreq": true, "pad": 2, "payload_length": 30, "pkey": "0xffff",
        "icrc": "ok",
    })
}

fn with(mut value: Value, more: Value) -> Value {
    for (key, item) in more.as_object().unwrap() {
        value[key] = item.clone();
    }
    value
}

pub fn all() -> Vec<Sample> {
    vec![
        vlan(),
        addresses(),
        options(),
        extensions(),
        fragments(),
        tunnels(),
        trailers(),
        offload(),
        cut_frames(),
        lengths(),
        opcodes(),
        contradictions(),
        pause(),
        ports(),
        roce_v1(),
        infiniband(),
        erf(),
        raw(),
        sll(),
        sll2(),
        iwarp(),
        management(),
        bad_icrc(),
    ]
}

fn vlan() -> Sample {
    let inside = roce4(&send_only());
    let tag = |id, pcp, dei| json!({"id": id, "pcp": pcp, "dei": dei});
    sample(
        "vlan",
        "VLAN, priority tag, QinQ with 0x88a8 and 0x9100",
        ETHERNET,
        vec![
            one(
                tagged(&[(0x8100, 0x6064)], 0x0800, &inside),
                with(good(), json!({"vlan": [tag(100, 3, false)]})),
            ),
            one(
                tagged(&[(0x8100, 0xb000)], 0x0800, &inside),
                with(good(), json!({"vlan": [tag(0, 5, true)]})),
            ),
            one(
                tagged(&[(0x88a8, 7), (0x8100, 9)], 0x0800, &inside),
                with(good(), json!({"vlan": [tag(7, 0, false), tag(9, 0, false)]})),
            ),
            one(
                tagged(&[(0x9100, 7), (0x8100, 9)], 0x86dd, &roce6(&send_only())),
                with(
                    good(),
                    json!({"vlan": [tag(7, 0, false), tag(9, 0, false)], "src": "2001:db8::1"}),
                ),
            ),
        ],
    )
}

fn addresses() -> Sample {
    sample(
        "plain",
        "IPv4 and IPv6 with everything that a header tells",
        ETHERNET,
        vec![
            one(
                eth4(&roce4(&send_only())),
                with(
                    good(),
                    json!({
                        "kind": "rocev2", "src": "192.0.2.1", "dst": "192.0.2.2", "src_port": 0xc123,
                        "dst_port": 4791, "ttl": 64, "tos": 2, "ecn": "ect0", "ip_id": 0x1234, "df": true,
                        "flow_label": null, "udp_checksum": 0, "vlan": null, "tunnel": null, "grh": null,
                        "eth": {"src": "02:00:00:00:00:0a", "dst": "02:00:00:00:00:0b"}, "interface": null,
                        "frame": 1, "segment": null, "time": "1700000000.000000000", "length": 90, "captured": 90,
                    }),
                ),
            ),
            one(
                eth6(&roce6(&send_only())),
                with(
                    good(),
                    json!({
                        "src": "2001:db8::1", "dst": "2001:db8::2", "tos": 2, "ecn": "ect0", "ip_id": null,
                        "df": null, "flow_label": 0x1face, "ttl": 64, "time": "1700000000.000001000",
                    }),
                ),
            ),
            one(
                eth4(&roce4_with(&Ip4 { tos: 0x6b, fragment: 0, ..Ip4::default() }, &send_only())),
                with(good(), json!({"tos": 0x6b, "ecn": "ce", "df": false})),
            ),
            one(
                eth4(&roce4_with(&Ip4 { tos: 1, ..Ip4::default() }, &send_only())),
                with(good(), json!({"ecn": "ect1"})),
            ),
        ],
    )
}

fn options() -> Sample {
    let router_alert = vec![0x94, 4, 0, 0];
    let ip = Ip4 { options: [router_alert, vec![1; 36]].concat(), ..Ip4::default() };
    let none = Ip4 { options: vec![1, 1, 1, 0], ..Ip4::default() };
    sample(
        "ipv4-options",
        "IPv4 headers of 24 and 60 bytes",
        ETHERNET,
        vec![
            one(eth4(&roce4_with(&none, &send_only())), good()),
            one(eth4(&roce4_with(&ip, &send_only())), good()),
        ],
    )
}

fn extensions() -> Sample {
    let hop = vec![60, 0, 1, 4, 0, 0, 0, 0];
    let destination = vec![17, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let atomic_fragment = vec![17, 0, 0, 0, 0, 0, 0, 9];
    let first = vec![17, 0, 0, 1, 0, 0, 0, 9];
    let later = vec![17, 0, 0, 0x11, 0, 0, 0, 9];
    let both = [hop, destination].concat();
    sample(
        "ipv6-extensions",
        "hop-by-hop and destination options, fragment headers",
        ETHERNET,
        vec![
            one(eth6(&roce6_with(0, &both, &send_only())), good()),
            one(eth6(&roce6_with(44, &atomic_fragment, &send_only())), good()),
            one(
                eth6(&roce6_with(44, &first, &send_only())),
                with(
                    good(),
                    json!({"issues": ["fragment"], "icrc": "unchecked", "icrc_computed": null}),
                ),
            ),
            one(
                eth6(&roce6_with(44, &later, &send_only())),
                json!({"kind": "other", "issues": ["fragment"], "opcode": null, "icrc": null}),
            ),
        ],
    )
}

fn fragments() -> Sample {
    let datagram = roce4(&packet(0x0a, 5, &reth(0x1000, 7, 600), &payload(600)));
    let inside = &datagram[20..];
    let fragment = |flags, part: &[u8]| {
        let ip = Ip4 { fragment: flags, ..Ip4::default() };
        eth4(&[&ip.header(17, part.len())[..], part].concat())
    };
    // The second part happens to look like a UDP header for port 4791.
    let mut disguised = inside[256..].to_vec();
    disguised[..8].copy_from_slice(&udp_header(0xc000, ROCE, 300));
    sample(
        "fragments",
        "an IPv4 datagram in three parts; the second looks like RoCE",
        ETHERNET,
        vec![
            one(
                fragment(0x2000, &inside[..256]),
                json!({
                    "kind": "rocev2", "issues": ["fragment"], "opcode": "RC_RDMA_WRITE_ONLY", "icrc": "unchecked",
                    "icrc_wire": null, "icrc_computed": null, "payload_length": 600,
                    "reth": {"va": "0x0000000000001000", "rkey": "0x00000007", "length": 600},
                }),
            ),
            one(
                fragment(0x2020, &disguised),
                json!({"kind": "other", "issues": ["fragment"], "opcode": null}),
            ),
            one(fragment(0x0050, &inside[256..]), json!({"kind": "other", "issues": ["fragment"]})),
        ],
    )
}

fn tunnels() -> Sample {
    let outer = Ip4::outer();
    let inner = eth4(&roce4(&send_only()));
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &inner].concat();
    let geneve = [&[1, 0, 0x65, 0x58, 0, 0, 43, 0, 1, 2, 3, 0][..], &inner].concat();
    let geneve_ip = [&[0, 0, 0x08, 0, 0, 0, 44, 0][..], &roce4(&send_only())].concat();
    let gre_key = [&[0x20, 0, 0x08, 0, 0, 0, 0, 9][..], &roce4(&send_only())].concat();
    let gre_bridge = [&[0, 0, 0x65, 0x58][..], &inner].concat();
    let erspan1 = [&[0, 0, 0x88, 0xbe][..], &inner].concat();
    let erspan2 =
        [&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 5, 0, 0, 0, 0][..], &inner].concat();
    let erspan3 =
        [&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0][..], &inner]
            .concat();
    let mpls = [&[0, 1, 0, 64, 0, 2, 1, 64][..], &roce4(&send_only())].concat();
    let wire = [&[0, 1, 1, 64, 0, 0, 0, 0][..], &inner].concat();
    let no_control_word = [&[0, 1, 1, 64][..], &inner].concat();
    let named = |names: Value| with(good(), json!({"tunnel": names, "src": "192.0.2.1"}));
    let outer_ends = json!({"src": "198.51.100.1", "dst": "198.51.100.2"});
    let outermost = |more: Value| json!({"outer": [with(outer_ends.clone(), more)]});
    let twice = udp4(
        &outer,
        4789,
        &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &eth4(&ip4(&outer, 47, &gre_key))].concat(),
    );
    sample(
        "tunnels",
        "VXLAN, Geneve, GRE, ERSPAN I to III, MPLS, IP in IP, one in another",
        ETHERNET,
        vec![
            one(
                tagged(&[(0x8100, 5)], 0x0800, &udp4(&outer, 4789, &vxlan)),
                with(
                    named(json!(["vxlan"])),
                    with(
                        json!({"vlan": null}),
                        outermost(json!({
                "tunnel": "vxlan", "vni": 42, "dst_port": 4789, "vlan": [{"id": 5, "pcp": 0, "dei": false}]})),
                    ),
                ),
            ),
            one(
                eth4(&udp4(&outer, 6081, &geneve)),
                with(named(json!(["geneve"])), outermost(json!({"vni": 43}))),
            ),
            one(
                eth4(&udp4(&outer, 6081, &geneve_ip)),
                with(named(json!(["geneve"])), outermost(json!({"vni": 44}))),
            ),
            one(
                eth4(&ip4(&outer, 47, &gre_key)),
                with(named(json!(["gre"])), outermost(json!({"key": "0x00000009"}))),
            ),
            one(eth4(&ip4(&outer, 47, &gre_bridge)), named(json!(["gre"]))),
            one(
                eth4(&ip4(&outer, 47, &erspan1)),
                with(named(json!(["erspan"])), outermost(json!({"version": 1}))),
            ),
            one(
                eth4(&ip4(&outer, 47, &erspan2)),
                with(named(json!(["erspan"])), outermost(json!({"version": 2, "session": 5}))),
            ),
            one(
                eth4(&ip4(&outer, 47, &erspan3)),
                with(named(json!(["erspan"])), outermost(json!({"version": 3, "session": 6}))),
            ),
            one(
                ethernet(0x8847, &mpls),
                with(named(json!(["mpls"])), json!({"outer": [{"labels": [16, 32]}]})),
            ),
            one(ethernet(0x8847, &wire), named(json!(["mpls"]))),
            one(ethernet(0x8848, &no_control_word), named(json!(["mpls"]))),
            one(
                eth4(&ip4(&outer, 4, &roce4(&send_only()))),
                with(named(json!(["ipip"])), outermost(json!({}))),
            ),
            one(
                eth4(&ip4(&outer, 41, &roce6(&send_only()))),
                with(good(), json!({"tunnel": ["ipip"], "src": "2001:db8::1"})),
            ),
            one(eth4(&twice), named(json!(["vxlan", "gre"]))),
        ],
    )
}

fn trailers() -> Sample {
    let ack = packet(0x11, 9, &[0x1f, 0, 0, 3], &[]);
    let padded = |mut frame: Bytes, tail: &[u8]| {
        frame.extend(tail);
        frame
    };
    let expected = || {
        json!({"issues": [], "opcode": "RC_ACKNOWLEDGE", "icrc": "ok", "payload_length": 0,
        "aeth": {"syndrome": 31, "kind": "ack", "code": 31, "credits": "unlimited", "msn": 3}})
    };
    sample(
        "trailers",
        "Ethernet padding, a frame check sequence, both, a trailer of a switch",
        ETHERNET,
        vec![
            one(padded(eth4(&roce4(&ack)), &[0; 2]), expected()),
            one(padded(eth4(&roce4(&ack)), &[0xde, 0xad, 0xbe, 0xef]), expected()),
            one(padded(eth4(&roce4(&ack)), &[0, 0, 1, 2, 3, 4]), expected()),
            one(padded(eth6(&roce6(&ack)), &[0x55; 28]), expected()),
            one(padded(ethernet(0x8915, &global(&ack)), &[7; 4]), expected()),
        ],
    )
}

fn offload() -> Sample {
    let ip = Ip4 { id: 0xfffe, ..Ip4::default() };
    let middle = |index: u32| packet(0x07, 50 + index, &[], &payload(1024));
    let last = packet(0x08, 53, &[], &payload(100));
    let packets = vec![middle(0), middle(1), middle(2), last];
    let frame = eth4(&superframe4(&ip, &packets));
    let mut unfilled = frame.clone();
    unfilled[16..18].fill(0);
    let mut no_lengths = unfilled.clone();
    no_lengths[38..40].fill(0);
    let segment = |index: u32, opcode: &str, length: u32| {
        json!({
            "segment": index, "psn": 50 + index, "opcode": opcode, "payload_length": length,
            "icrc": "ok", "issues": [], "ip_id": (0xfffe + index) & 0xffff,
        })
    };
    let segments = || {
        vec![
            segment(0, "RC_RDMA_WRITE_MIDDLE", 1024),
            segment(1, "RC_RDMA_WRITE_MIDDLE", 1024),
            segment(2, "RC_RDMA_WRITE_MIDDLE", 1024),
            segment(3, "RC_RDMA_WRITE_LAST", 100),
        ]
    };
    let cut_after_two = (cut(frame.clone(), 14 + 28 + 1040 + 60), {
        let mut lines = segments();
        lines.iter_mut().for_each(|line| line["issues"] = json!(["truncated"]));
        lines.iter_mut().skip(1).for_each(|line| line["icrc"] = json!("unchecked"));
        for line in &mut lines[2..] {
            line["opcode"] = Value::Null;
            line["psn"] = Value::Null;
            line["payload_length"] = Value::Null;
        }
        lines.iter_mut().skip(1).for_each(|line| line["ip_id"] = json!(0xfffe));
        lines
    });
    let mut damaged = frame.clone();
    damaged[14 + 28 + 1040 + 500] ^= 1;
    let mut one_bad = segments();
    one_bad[1]["icrc"] = json!("bad");
    // Not the same queue pair: nothing proves where the second packet begins.
    let mut strange = packets.clone();
    strange.iter_mut().skip(1).for_each(|packet| packet[7] = 0x99);
    strange.push(packet(0x08, 54, &[], &payload(1024)));
    strange[3] = packet(0x07, 53, &[], &payload(1024));
    let unproven = eth4(&superframe4(&ip, &strange));
    // One packet whose lengths the card was to fill in.
    let single = eth4(&roce4(&send_only()));
    let mut open = single.clone();
    open[16..18].fill(0);
    sample(
        "offload",
        "frames that segmentation offload left whole: lengths full, 0, not provable",
        ETHERNET,
        vec![
            (whole(frame), segments()),
            cut_after_two,
            (whole(unfilled), segments()),
            (whole(no_lengths), segments()),
            (whole(damaged), one_bad),
            one(
                unproven,
                json!({"segment": null, "issues": ["unsplit_segments", "over_path_mtu"], "icrc": "bad", "psn": 50}),
            ),
            one(open, with(good(), json!({"segment": null}))),
        ],
    )
}

fn cut_frames() -> Sample {
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

fn lengths() -> Sample {
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
    let short = |bytes: &[u8]| eth4(&udp4(&Ip4::default(), ROCE, bytes));
    let two = |a: &str, b: &str| json!({"kind": "rocev2", "issues": [a, b], "icrc": "unchecked"});
    sample(
        "lengths",
        "lengths that contradict one another, packets too short for what they are",
        ETHERNET,
        vec![
            // UDP says less than IP has: the ICRC is where UDP says.
            one(
                edit(&set(38, 8 + 40)),
                json!({"issues": ["udp_length_mismatch"], "icrc": "bad", "opcode": "RC_SEND_ONLY"}),
            ),
            // UDP says more than IP has: nobody knows where the ICRC is.
            one(
                edit(&set(38, 8 + 80)),
                json!({"issues": ["udp_length_mismatch"], "icrc": "unchecked", "icrc_wire": null}),
            ),
            one(edit(&set(38, 3)), json!({"issues": ["udp_length_mismatch"], "icrc": "unchecked"})),
            // IP says more than the frame has.
            one(
                edit(&set(16, 200)),
                json!({"issues": ["truncated", "udp_length_mismatch"], "icrc": "bad"}),
            ),
            one(edit(&set(16, 19)), json!({"kind": "other", "issues": ["bad_ip_header"]})),
            one(
                edit(&|frame: &mut Bytes| frame[14] = 0x43),
                json!({"kind": "other", "issues": ["bad_ip_header"]}),
            ),
            one(short(&[]), two("missing_header", "no_icrc")),
            one(short(&[4; 11]), two("missing_header", "no_icrc")),
            one(
                short(&bth(4, 0, 1)),
                json!({"issues": ["no_icrc"], "opcode": "RC_SEND_ONLY", "icrc": "unchecked"}),
            ),
            one(short(&[&bth(4, 0, 1)[..], &[1, 2, 3]].concat()), json!({"issues": ["no_icrc"]})),
            one(
                eth4(&roce4(&packet(0x0a, 1, &[1, 2, 3, 4], &[]))),
                json!({"issues": ["missing_header"], "opcode": "RC_RDMA_WRITE_ONLY", "reth": null, "icrc": "ok"}),
            ),
            one(
                eth4(&roce4(&[&bth(4, 3, 1)[..], &[9; 2]].concat())),
                json!({"issues": ["bad_length", "bad_pad"], "payload_length": null, "icrc": "ok"}),
            ),
            one(
                eth4(&roce4(&[&bth(4, 1, 1)[..], &[9; 6]].concat())),
                json!({"issues": ["bad_length"], "payload_length": 5, "icrc": "ok"}),
            ),
        ],
    )
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
fn opcodes() -> Sample {
    let mut lines = Vec::new();
    for (index, row) in include_str!("../data/opcodes.csv").lines().skip(1).enumerate() {
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

fn contradictions() -> Sample {
    let frame = |bytes: Bytes| eth4(&roce4(&bytes));
    let edited = |change: &dyn Fn(&mut Bytes)| {
        let mut bytes = send_only();
        change(&mut bytes);
        frame(bytes)
    };
    let only = |issue: &str| json!({"issues": [issue], "icrc": "ok"});
    let atomic = |address: u64| [&address.to_be_bytes()[..], &[0; 20]].concat();
    sample(
        "contradictions",
        "packets with a right ICRC that no right sender makes; reserved bits, which never matter",
        ETHERNET,
        vec![
            one(edited(&|b: &mut Bytes| b[1] |= 1), only("bad_tver")),
            one(edited(&|b: &mut Bytes| b[2..4].copy_from_slice(&[0x80, 0])), only("invalid_pkey")),
            one(frame(packet(0x11, 1, &[0, 0, 0, 1], &payload(4))), only("unexpected_payload")),
            one(frame(packet(0x04, 1, &[], &payload(4100))), only("over_path_mtu")),
            one(frame(packet(0x01, 1, &[], &payload(1000))), only("not_path_mtu")),
            one(frame(packet(0x02, 1, &[], &[])), only("empty_last")),
            one(frame(packet(0x0a, 1, &reth(0, 0, 5), &payload(6))), only("dma_length_mismatch")),
            one(
                frame(packet(0x06, 1, &reth(0, 0, 256), &payload(256))),
                only("dma_length_mismatch"),
            ),
            one(frame(packet(0x0c, 1, &reth(0, 0, 0x8000_0001), &[])), only("dma_length_too_long")),
            one(frame(packet(0x1d, 1, &reth(0, 0, 8), &payload(4))), only("bad_atomic_write")),
            one(frame(packet(0x1d, 1, &reth(4, 0, 8), &payload(8))), only("misaligned_address")),
            one(frame(packet(0x13, 1, &atomic(12), &[])), only("misaligned_address")),
            one(
                frame(packet(0x11, 1, &[0x45, 0, 0, 1], &[])),
                with(
                    only("reserved_syndrome"),
                    json!({
            "aeth": {"syndrome": 0x45, "kind": "reserved", "code": 5, "msn": 1}}),
                ),
            ),
            one(
                frame(packet(0x11, 1, &[0x7f, 0, 0, 1], &[])),
                with(
                    only("reserved_syndrome"),
                    json!({
            "aeth": {"syndrome": 0x7f, "kind": "nak", "code": 31, "nak": "reserved", "msn": 1}}),
                ),
            ),
            one(
                frame(packet(0x11, 1, &[0xe0, 0, 0, 1], &[])),
                json!({"issues": [],
            "aeth": {"syndrome": 0xe0, "kind": "nak", "code": 0, "nak": "psn_sequence_error", "msn": 1}}),
            ),
            one(
                frame(packet(0x11, 1, &[0x20, 0, 0, 1], &[])),
                json!({"issues": [],
            "aeth": {"syndrome": 0x20, "kind": "rnr_nak", "code": 0, "timer_ms": 655.36, "msn": 1}}),
            ),
            one(
                frame(packet(0x11, 1, &[0x2c, 0, 0, 1], &[])),
                json!({"issues": [],
            "aeth": {"syndrome": 0x2c, "kind": "rnr_nak", "code": 12, "timer_ms": 0.64, "msn": 1}}),
            ),
            one(
                edited(&|b: &mut Bytes| b[4] = 0x3f),
                with(good(), json!({"reserved": 63, "fecn": false, "becn": false})),
            ),
            one(
                edited(&|b: &mut Bytes| b[4] = 0xd0),
                with(good(), json!({"reserved": 16, "fecn": true, "becn": true})),
            ),
            one(edited(&|b: &mut Bytes| b[8] |= 0x7f), good()),
        ],
    )
}

fn pause() -> Sample {
    let control = |fields: &[u8]| {
        let inside = [fields, &vec![0; 46 - fields.len()]].concat();
        let mut frame = ethernet(0x8808, &inside);
        frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 1]);
        frame
    };
    let mut timers = vec![1, 1, 0, 0x18];
    timers.extend([0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    sample(
        "pause",
        "PFC and pause of a link",
        ETHERNET,
        vec![
            one(
                control(&timers),
                json!({"kind": "pfc", "issues": [], "icrc": null, "src": null,
            "pfc": {"classes": [3, 4], "quanta": [0, 0, 0, 65535, 0, 0, 0, 0]},
            "eth": {"src": "02:00:00:00:00:0a", "dst": "01:80:c2:00:00:01"}}),
            ),
            one(
                control(&[0, 1, 0, 100]),
                json!({"kind": "pause", "pause": {"quanta": 100}, "pfc": null}),
            ),
            one(control(&[0, 1, 0, 0]), json!({"kind": "pause", "pause": {"quanta": 0}})),
            one(control(&[0, 2, 0, 0]), json!({"kind": "other", "issues": []})),
            one(
                ethernet(0x8808, &[1, 1, 0, 1]),
                json!({"kind": "pfc", "issues": ["missing_header"], "pfc": null}),
            ),
        ],
    )
}

fn ports() -> Sample {
    let from = |source: u16, destination: u16| {
        let bytes = send_only();
        let udp = udp_header(source, destination, bytes.len() + 4);
        let header = Ip4::default().header(17, bytes.len() + 12);
        let icrc = uroce::wire::icrc::of(
            &uroce::wire::icrc::Outer::Ipv4 { header: &header, udp: &udp },
            &bytes,
        );
        eth4(&[&header[..], &udp, &bytes, &icrc].concat())
    };
    let other = || json!({"kind": "other", "issues": [], "opcode": null});
    sample(
        "ports",
        "only the destination port tells: source ports 69, 72, 0, 53; from 4791; 4792",
        ETHERNET,
        vec![
            one(from(69, ROCE), with(good(), json!({"src_port": 69}))),
            one(from(72, ROCE), with(good(), json!({"src_port": 72}))),
            one(from(0, ROCE), good()),
            one(from(53, ROCE), good()),
            one(from(ROCE, 53), other()),
            one(from(0xc000, 4792), other()),
        ],
    )
}

fn roce_v1() -> Sample {
    let mut wrong = ethernet(0x8915, &global(&send_only()));
    wrong[14 + 6] = 17;
    sample(
        "rocev1",
        "RoCEv1, tagged too; a GRH before something else",
        ETHERNET,
        vec![
            one(
                ethernet(0x8915, &global(&send_only())),
                with(
                    good(),
                    json!({
            "kind": "rocev1", "src": "2001:db8::1", "dst": "192.0.2.2", "src_port": null, "ttl": null,
            "grh": {"sgid": "2001:db8::1", "dgid": "::ffff:192.0.2.2", "hop_limit": 64,
                "traffic_class": 2, "flow_label": 0x1face}}),
                ),
            ),
            one(
                tagged(&[(0x8100, 5)], 0x8915, &global(&send_only())),
                with(good(), json!({"kind": "rocev1"})),
            ),
            one(
                wrong,
                json!({"kind": "rocev1", "issues": ["bad_grh"], "opcode": null, "icrc": "unchecked"}),
            ),
        ],
    )
}

/// The packet that the InfiniBand specification prints.
fn ibta() -> Bytes {
    let text = "7012375c000e17d20a2024870087b1b3000dec2a01710a1c015d400238f27a05\
                0000000ebb884d85fd5cfba4728bc0690ed40000";
    let mut bytes = hex(text);
    assert_eq!(bytes.len(), 52);
    bytes.extend([0x96, 0x25, 0xb7, 0x5a]);
    bytes
}

pub fn hex(text: &str) -> Bytes {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn infiniband() -> Sample {
    let lrh = json!({"slid": 0x17d2, "dlid": 0x375c, "sl": 4, "vl": 7});
    let mut broken = native(&send_only(), false);
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let mut other_lane = native(&send_only(), false);
    other_lane.truncate(other_lane.len() - 2);
    other_lane[0] = 0x20;
    sample(
        "infiniband",
        "native InfiniBand, local and routed, with VCRC, with a wrong one, without",
        247,
        vec![
            one(
                ibta(),
                json!({"kind": "infiniband", "issues": [], "opcode": "RC_RDMA_WRITE_ONLY", "icrc": "ok",
            "icrc_wire": "9625b75a", "vcrc": null, "payload_length": 14, "pad": 2,
            "lrh": {"slid": 0x17d2, "dlid": 0x375c, "sl": 1, "vl": 7}}),
            ),
            one(
                native(&send_only(), false),
                with(good(), json!({"kind": "infiniband", "lrh": lrh, "grh": null, "src": null})),
            ),
            one(
                native(&send_only(), true),
                with(good(), json!({"kind": "infiniband", "lrh": lrh, "src": "2001:db8::1"})),
            ),
            one(broken, with(good(), json!({"issues": ["bad_vcrc"]}))),
            // A switch has moved it to another lane: not covered.
            one(other_lane, with(good(), json!({"vcrc": null}))),
            one(
                vec![0x70, 0x40, 0, 1, 0, 1, 0, 2, 9, 9],
                json!({"kind": "infiniband", "issues": ["bad_lrh"], "opcode": null}),
            ),
        ],
    )
}

fn erf() -> Sample {
    let record = |kind: u8, extension: &[u8], inside: &[u8], wire: usize| {
        let length = (16 + extension.len() + inside.len()).next_multiple_of(8);
        let mut bytes = vec![1, 2, 3, 4, 5, 6, 7, 8, kind, 4];
        bytes.extend((length as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend((wire as u16).to_be_bytes());
        bytes.extend(extension);
        bytes.extend(inside);
        bytes.resize(length, 0);
        bytes
    };
    let native_packet = native(&send_only(), false);
    let frame = [&[0, 0][..], &eth4(&roce4(&send_only()))].concat();
    let more = [0x80, 0, 0, 0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0, 2];
    sample(
        "erf",
        "ERF records of InfiniBand and Ethernet, with extension headers",
        197,
        vec![
            one(
                record(21, &[], &native_packet, native_packet.len()),
                with(good(), json!({"kind": "infiniband"})),
            ),
            one(
                record(21 | 0x80, &more, &native_packet, native_packet.len()),
                with(good(), json!({"kind": "infiniband"})),
            ),
            one(record(2, &[], &frame, frame.len() - 2), with(good(), json!({"kind": "rocev2"}))),
            one(record(1, &[], &[0; 20], 20), json!({"kind": "other", "issues": []})),
        ],
    )
}

fn raw() -> Sample {
    sample(
        "raw-ip",
        "IP without a link header, both versions",
        101,
        vec![
            one(roce4(&send_only()), with(good(), json!({"eth": null, "kind": "rocev2"}))),
            one(roce6(&send_only()), with(good(), json!({"eth": null, "src": "2001:db8::1"}))),
            one(vec![0x50; 30], json!({"kind": "other", "issues": ["bad_ip_header"]})),
        ],
    )
}

fn sll() -> Sample {
    let header = |ethertype: u16| {
        [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 0xa, 0, 0][..], &ethertype.to_be_bytes()].concat()
    };
    sample(
        "sll",
        "Linux cooked capture",
        113,
        vec![
            one([header(0x0800), roce4(&send_only())].concat(), good()),
            one(
                [header(0x8100), vec![0, 7, 0x86, 0xdd], roce6(&send_only())].concat(),
                with(good(), json!({"vlan": [{"id": 7, "pcp": 0, "dei": false}]})),
            ),
        ],
    )
}

fn sll2() -> Sample {
    let header = |ethertype: u16| {
        let rest = [0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 0xa, 0, 0];
        [&ethertype.to_be_bytes()[..], &rest].concat()
    };
    sample(
        "sll2",
        "Linux cooked capture, second version",
        276,
        vec![
            one([header(0x0800), roce4(&send_only())].concat(), good()),
            one(
                [header(0x8915), global(&send_only())].concat(),
                with(good(), json!({"kind": "rocev1"})),
            ),
        ],
    )
}

fn tcp(source: u16, destination: u16, inside: &[u8]) -> Bytes {
    let mut segment = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    segment.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(inside);
    eth4(&ip4(&Ip4::default(), 6, &segment))
}

/// An FPDU with a tagged DDP segment of an RDMA WRITE.
fn fpdu(length: usize) -> Bytes {
    let ulpdu = [&[0xc1, 0x40][..], &[0; 12], &payload(length)].concat();
    let mut bytes = (ulpdu.len() as u16).to_be_bytes().to_vec();
    bytes.extend(ulpdu);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let crc = crc32c(&bytes).to_le_bytes();
    [&bytes[..], &crc].concat()
}

/// Bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut register = u32::MAX;
    for byte in bytes {
        register ^= u32::from(*byte);
        for _ in 0..8 {
            register = (register >> 1) ^ (0x82f6_3b78 * (register & 1));
        }
    }
    !register
}

fn iwarp() -> Sample {
    let start = |key: &[u8], flags: u8| [key, &[flags, 1, 0, 0]].concat();
    let mut broken = fpdu(50);
    broken[20] ^= 1;
    let data = |whole: u32, right: u32, issues: Value| {
        json!({"kind": "iwarp", "issues": issues,
        "mpa": {"frame": "fpdu", "whole": whole, "crc_ok": right}, "icrc": null})
    };
    sample(
        "iwarp",
        "MPA start, FPDUs with right and wrong CRC-32C, other TCP",
        ETHERNET,
        vec![
            one(
                tcp(4000, 5000, &start(b"MPA ID Req Frame", 0x40)),
                json!({"kind": "iwarp",
            "mpa": {"frame": "request", "crc": true, "markers": false}}),
            ),
            one(
                tcp(5000, 4000, &start(b"MPA ID Rep Frame", 0x40)),
                json!({"kind": "iwarp",
            "mpa": {"frame": "reply", "crc": true, "markers": false, "rejected": false}}),
            ),
            one(tcp(4000, 5000, &[fpdu(50), fpdu(3)].concat()), data(2, 2, json!([]))),
            one(tcp(4000, 5000, &broken), data(1, 0, json!(["bad_crc32c"]))),
            // Of connections whose start was not seen only right frames count.
            one(tcp(6000, 7000, &fpdu(9)), data(1, 1, json!([]))),
            one(tcp(6000, 7000, &broken), json!({"kind": "other", "issues": [], "mpa": null})),
            one(tcp(6000, 80, b"GET / HTTP/1.1\r\n\r\n"), json!({"kind": "other", "issues": []})),
        ],
    )
}

fn management() -> Sample {
    let mad = |class: u8, method: u8, attribute: u16, data: &[u8]| {
        let mut bytes = vec![1, class, 2, method, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xca, 0xfe];
        bytes.extend(attribute.to_be_bytes());
        bytes.extend([0; 6]);
        bytes.extend(data);
        bytes.resize(256, 0);
        bytes
    };
    let to = |queue_pair: u8, payload: &[u8]| {
        let mut bytes = packet(0x64, 3, &[0x80, 1, 0, 0, 0, 0, 0, 1], payload);
        bytes[7] = queue_pair;
        eth4(&roce4(&bytes))
    };
    let mut reject = vec![0, 0, 0, 1, 0, 0, 0, 2, 0x40, 0, 0, 28];
    reject.resize(84, 0);
    reject.extend(b"no");
    let mut strange = mad(7, 3, 0x10, &[]);
    strange[0] = 0x80;
    sample(
        "management",
        "management datagrams of several classes; two that are none",
        ETHERNET,
        vec![
            one(
                to(1, &mad(7, 3, 0x12, &reject)),
                json!({"issues": [], "mad": {"class": 7, "method": 3,
            "attribute": 18, "tid": "0x000000000000cafe", "status": 0, "message": "REJ",
            "local_comm_id": "0x00000001", "remote_comm_id": "0x00000002", "message_rejected": 1,
            "message_rejected_text": "REP", "reason": 28, "reason_text": "rejected by the application"}}),
            ),
            one(
                to(1, &mad(4, 1, 0x12, &[])),
                json!({"issues": [], "mad": {"class": 4, "method": 1, "message": null}}),
            ),
            one(to(0, &mad(1, 1, 0x11, &[])), json!({"issues": [], "mad": {"class": 1}})),
            one(
                to(1, &mad(7, 3, 0x77, &[])),
                json!({"issues": [], "mad": {"attribute": 0x77, "message": null}}),
            ),
            one(to(1, &[0; 64]), json!({"issues": ["bad_mad"], "mad": null, "payload_length": 64})),
            one(to(1, &strange), json!({"issues": ["bad_mad"], "mad": null})),
        ],
    )
}

/// The usual mistakes in making an ICRC.
fn bad_icrc() -> Sample {
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
