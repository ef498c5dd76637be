//! Samples of tunnels.

use serde_json::{Value, json};

use super::super::build::*;
use super::*;

type Lines = Vec<(Captured, Vec<Value>)>;

pub fn tunnels() -> Sample {
    sample(
        "tunnels",
        "VXLAN, Geneve, GRE, ERSPAN I to III, MPLS, IP in IP, one in another; two that cannot be read",
        ETHERNET,
        [over_udp(), over_gre(), over_mpls(), in_one_another(), of_unusual_kinds()].concat(),
    )
}

fn inner() -> Bytes {
    eth4(&roce4(&send_only()))
}

fn named(names: Value) -> Value {
    with(good(), json!({"tunnel": names, "src": "192.0.2.1"}))
}

/// What the headers outside of a tunnel show, all of it between the same two hosts.
fn outermost(names: Value, more: Value) -> Value {
    let ends = json!({"src": "198.51.100.1", "dst": "198.51.100.2"});
    with(named(names), json!({"outer": [with(ends, more)]}))
}

fn over_udp() -> Lines {
    let outer = Ip4::outer();
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &inner()].concat();
    let geneve = [&[1, 0, 0x65, 0x58, 0, 0, 43, 0, 1, 2, 3, 0][..], &inner()].concat();
    let geneve_ip = [&[0, 0, 0x08, 0, 0, 0, 44, 0][..], &roce4(&send_only())].concat();
    let headers = json!({"tunnel": "vxlan", "vni": 42, "dst_port": 4789,
        "vlan": [{"id": 5, "pcp": 0, "dei": false}]});
    vec![
        one(
            tagged(&[(0x8100, 5)], 0x0800, &udp4(&outer, 4789, &vxlan)),
            with(outermost(json!(["vxlan"]), headers), json!({"vlan": null})),
        ),
        one(eth4(&udp4(&outer, 6081, &geneve)), outermost(json!(["geneve"]), json!({"vni": 43}))),
        one(
            eth4(&udp4(&outer, 6081, &geneve_ip)),
            outermost(json!(["geneve"]), json!({"vni": 44})),
        ),
    ]
}

fn gre_with_key() -> Bytes {
    [&[0x20, 0, 0x08, 0, 0, 0, 0, 9][..], &roce4(&send_only())].concat()
}

fn over_gre() -> Lines {
    let gre = |header: &[u8]| eth4(&ip4(&Ip4::outer(), 47, &[header, &inner()].concat()));
    let erspan = |more: Value| outermost(json!(["erspan"]), more);
    vec![
        one(
            eth4(&ip4(&Ip4::outer(), 47, &gre_with_key())),
            outermost(json!(["gre"]), json!({"key": "0x00000009"})),
        ),
        one(gre(&[0, 0, 0x65, 0x58]), named(json!(["gre"]))),
        one(gre(&[0, 0, 0x88, 0xbe]), erspan(json!({"version": 1}))),
        one(
            gre(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 5, 0, 0, 0, 0]),
            erspan(json!({"version": 2, "session": 5})),
        ),
        one(
            gre(&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0]),
            erspan(json!({"version": 3, "session": 6})),
        ),
    ]
}

fn over_mpls() -> Lines {
    let labelled = |labels: &[u8], inside: &[u8]| [labels, inside].concat();
    let routed = labelled(&[0, 1, 0, 64, 0, 2, 1, 64], &roce4(&send_only()));
    let wire = labelled(&[0, 1, 1, 64, 0, 0, 0, 0], &inner());
    let no_control_word = labelled(&[0, 1, 1, 64], &inner());
    vec![
        one(
            ethernet(0x8847, &routed),
            with(named(json!(["mpls"])), json!({"outer": [{"labels": [16, 32]}]})),
        ),
        one(ethernet(0x8847, &wire), named(json!(["mpls"]))),
        one(ethernet(0x8848, &no_control_word), named(json!(["mpls"]))),
    ]
}

fn in_one_another() -> Lines {
    let outer = Ip4::outer();
    let inside = eth4(&ip4(&outer, 47, &gre_with_key()));
    let twice = udp4(&outer, 4789, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &inside].concat());
    vec![
        one(eth4(&ip4(&outer, 4, &roce4(&send_only()))), outermost(json!(["ipip"]), json!({}))),
        one(
            eth4(&ip4(&outer, 41, &roce6(&send_only()))),
            with(good(), json!({"tunnel": ["ipip"], "src": "2001:db8::1"})),
        ),
        one(eth4(&twice), named(json!(["vxlan", "gre"]))),
    ]
}

/// ERSPAN III says what it carries; of what is not known here nothing is read.
fn of_unusual_kinds() -> Lines {
    let erspan = |kind: u8, inside: &[u8]| {
        let mut header = [0x10, 0, 0x22, 0xeb, 0, 0, 0, 1].to_vec();
        header.extend([0x20, 0, 0, 7, 0, 0, 0, 0, 0, 0, kind << 2, 0]);
        header.extend(inside);
        eth4(&ip4(&Ip4::outer(), 47, &header))
    };
    // A source route of RFC 1701 would lie where the packet seems to begin.
    let source_route = [&[0xc0, 0, 0x08, 0, 0, 0, 0, 0][..], &roce4(&send_only())].concat();
    let unread = || json!({"kind": "other", "issues": [], "tunnel": null});
    vec![
        one(
            erspan(2, &roce6(&send_only())),
            with(good(), json!({"tunnel": ["erspan"], "src": "2001:db8::1"})),
        ),
        one(erspan(9, &inner()), unread()),
        one(eth4(&ip4(&Ip4::outer(), 47, &source_route)), unread()),
    ]
}
