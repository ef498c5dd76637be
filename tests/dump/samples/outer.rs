//! Samples of link types, of what lies around a packet, and of other frames of the link.

use serde_json::json;

use super::super::build::*;
use super::*;

pub fn vlan() -> Sample {
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

pub fn addresses() -> Sample {
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

pub fn options() -> Sample {
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

pub fn extensions() -> Sample {
    let hop = vec![60, 0, 1, 4, 0, 0, 0, 0];
    let destination = vec![17, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let atomic_fragment = vec![17, 0, 0, 0, 0, 0, 0, 9];
    let first = vec![17, 0, 0, 1, 0, 0, 0, 9];
    let later = vec![17, 0, 0, 0x11, 0, 0, 0, 9];
    let both = [hop, destination].concat();
    // Another extension header follows by the first one, and no byte is left for it.
    let mut ends_early = roce6_with(0, &both[..8], &[]);
    ends_early.truncate(48);
    ends_early[4..6].copy_from_slice(&[0, 8]);
    sample(
        "ipv6-extensions",
        "hop-by-hop and destination options, fragment headers; one that is not there",
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
            one(eth6(&ends_early), json!({"kind": "other", "issues": ["missing_header"]})),
        ],
    )
}

pub fn fragments() -> Sample {
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

pub fn trailers() -> Sample {
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

pub fn pause() -> Sample {
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

pub fn ports() -> Sample {
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

pub fn roce_v1() -> Sample {
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

pub fn infiniband() -> Sample {
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

pub fn erf() -> Sample {
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

pub fn raw() -> Sample {
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

pub fn sll() -> Sample {
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

pub fn sll2() -> Sample {
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
