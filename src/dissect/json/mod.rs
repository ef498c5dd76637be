//! The JSON form: one object a packet. `docs/dump-json.md` lists every field; [`super::fields`] is
//! its source, and a test holds the two and what is written here together.

mod object;

use object::{Object, put_number, put_string};

use super::frame::{Envelope, FlowControl, Frame};
use super::{
    CmValue, ExtendedHeaders, Issue, Issues, Management, Mpa, RdmaPacket, Summary, Tunnel,
};
use crate::pcap::Timestamp;
use crate::wire::{Aeth, Bth, Network, Syndrome, VlanTag};

/// Where a frame stands in its file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position<'a> {
    /// The file, if there are several.
    pub file: Option<&'a str>,
    /// Number in the file, from 1.
    pub frame: u64,
    /// Number of the interface, from 0 over the whole file; only pcapng has them.
    pub interface: Option<usize>,
    /// When it was captured.
    pub time: Option<Timestamp>,
}

/// Adds one object and a line feed: the frame with one of its packets, or without.
pub fn write(
    out: &mut Vec<u8>,
    position: &Position<'_>,
    frame: &Frame<'_>,
    packet: Option<&RdmaPacket<'_>>,
) {
    Object::write(out, |object| {
        place(object, position, frame, packet);
        let packet_issues = packet.map_or(Issues::NONE, |packet| packet.issues);
        issues(object, frame.issues.union(packet_issues));
        link(object, frame);
        if frame.is_rdma() {
            let packet = packet.copied().unwrap_or_default();
            network(object, frame, &packet);
            transport(object, &packet);
        }
    });
    out.push(b'\n');
}

/// Adds the object of a file's summary and a line feed.
pub fn write_summary(out: &mut Vec<u8>, file: &str, summary: &Summary) {
    Object::write(out, |object| {
        object.string("file", file);
        object.number("frames", summary.frames);
        object.number("rdma_frames", summary.rdma_frames);
        object.object("opcodes", |counts| {
            for (name, count) in summary.opcodes() {
                counts.number(name, count);
            }
        });
        object.object("icrc", |counts| {
            counts.number("ok", summary.icrc_ok);
            counts.number("bad", summary.icrc_bad);
            counts.number("unchecked", summary.icrc_unchecked);
        });
        object.object("issues", |counts| {
            for (issue, count) in summary.issues() {
                counts.number(issue.identifier(), count);
            }
        });
    });
    out.push(b'\n');
}

fn place(
    object: &mut Object<'_>,
    position: &Position<'_>,
    frame: &Frame<'_>,
    packet: Option<&RdmaPacket<'_>>,
) {
    if let Some(file) = position.file {
        object.string("file", file);
    }
    object.number("frame", position.frame);
    object.optional("segment", packet.and_then(|packet| packet.segment));
    object.optional("interface", position.interface.map(|interface| interface as u64));
    match position.time {
        Some(time) => object.plain("time", time),
        None => object.null("time"),
    }
    object.number("length", frame.length);
    object.number("captured", frame.data.len() as u64);
    object.string("kind", frame.kind.name());
}

fn issues(object: &mut Object<'_>, issues: Issues) {
    object.list("issues", issues.iter(), |out, issue: Issue| put_string(out, issue.identifier()));
}

/// What lies outside of the RDMA packet.
fn link(object: &mut Object<'_>, frame: &Frame<'_>) {
    ethernet(object, &frame.envelope);
    if !frame.tunnels.is_empty() {
        let names = frame.tunnels.iter().map(|outer| outer.tunnel.name());
        object.list("tunnel", names, put_string);
        object.list("outer", frame.tunnels.iter(), |out, outer| {
            Object::write(out, |object| {
                tunnel(object, outer.tunnel);
                ethernet(object, &outer.envelope);
                outer_network(object, &outer.envelope);
            });
        });
    }
    if let Some(lrh) = frame.lrh {
        object.object("lrh", |object| {
            object.number("slid", lrh.source);
            object.number("dlid", lrh.destination);
            object.number("sl", lrh.service_level);
            object.number("vl", lrh.virtual_lane);
        });
    }
    if let Some(grh) = frame.grh {
        object.object("grh", |object| {
            object.plain("sgid", grh.source);
            object.plain("dgid", grh.destination);
            object.number("hop_limit", grh.hop_limit);
            object.number("traffic_class", grh.traffic_class);
            object.number("flow_label", grh.flow_label);
        });
    }
    if let Some((found, _)) = frame.vcrc {
        object.bytes("vcrc", &found);
    }
    if let Some(control) = frame.flow_control {
        flow_control(object, control);
    }
    if let Some(found) = frame.mpa {
        mpa(object, found);
    }
}

fn ethernet(object: &mut Object<'_>, envelope: &Envelope<'_>) {
    if let Some(ethernet) = envelope.ethernet {
        object.object("eth", |object| {
            object.mac("src", &ethernet.source);
            object.mac("dst", &ethernet.destination);
        });
    }
    if !envelope.vlans.is_empty() {
        object.list("vlan", envelope.vlans.iter(), |out, tag: &VlanTag| {
            Object::write(out, |object| {
                object.number("id", tag.id);
                object.number("pcp", tag.priority);
                object.flag("dei", tag.drop_eligible);
            });
        });
    }
}

fn tunnel(object: &mut Object<'_>, tunnel: Tunnel) {
    object.string("tunnel", tunnel.name());
    match tunnel {
        Tunnel::Vxlan(network) | Tunnel::Geneve(network) => object.number("vni", network),
        Tunnel::Gre(key) => {
            if let Some(key) = key {
                object.hex("key", key.into(), 8);
            }
        }
        Tunnel::Erspan(version, session) => {
            object.number("version", version);
            object.number("session", session);
        }
        Tunnel::Mpls(labels) => {
            object.list("labels", labels.into_iter().flatten(), |out, label| {
                put_number(out, label.into());
            });
        }
        Tunnel::IpInIp => {}
    }
}

fn outer_network(object: &mut Object<'_>, envelope: &Envelope<'_>) {
    let Some((source, destination)) = envelope.addresses() else { return };
    object.plain("src", source);
    object.plain("dst", destination);
    object.optional("ttl", envelope.hop_limit());
    object.optional("tos", envelope.traffic_class());
    if let Some(udp) = envelope.udp {
        object.number("src_port", udp.source_port);
        object.number("dst_port", udp.destination_port);
    }
}

fn flow_control(object: &mut Object<'_>, control: FlowControl) {
    match control {
        FlowControl::Priority { enabled, quanta } => object.object("pfc", |object| {
            let classes = (0..8u64).filter(|class| enabled >> class & 1 != 0);
            object.list("classes", classes, put_number);
            object.list("quanta", quanta, |out, timer| put_number(out, timer.into()));
        }),
        FlowControl::Pause { quanta } => {
            object.object("pause", |object| object.number("quanta", quanta));
        }
    }
}

fn mpa(object: &mut Object<'_>, found: Mpa) {
    object.object("mpa", |object| {
        object.string("frame", found.name());
        match found {
            Mpa::Request { crc, markers } => {
                object.flag("crc", crc);
                object.flag("markers", markers);
            }
            Mpa::Reply { crc, markers, rejected } => {
                object.flag("crc", crc);
                object.flag("markers", markers);
                object.flag("rejected", rejected);
            }
            Mpa::Frames { whole, right } => {
                object.number("whole", whole);
                object.number("crc_ok", right);
            }
        }
    });
}

/// Addresses and the fields of the IP and UDP headers around the packet.
fn network(object: &mut Object<'_>, frame: &Frame<'_>, packet: &RdmaPacket<'_>) {
    if let Some((source, destination)) = frame.hosts() {
        object.plain("src", source);
        object.plain("dst", destination);
    }
    let envelope = &frame.envelope;
    let Some(udp) = envelope.udp else { return };
    object.number("src_port", udp.source_port);
    object.number("dst_port", udp.destination_port);
    object.optional("ttl", envelope.hop_limit());
    if let Some(class) = envelope.traffic_class() {
        object.number("tos", class);
        object.string("ecn", ecn_name(class));
    }
    match envelope.network {
        Some(Network::V4(ip)) => {
            object.number("ip_id", packet.identification.unwrap_or(ip.identification));
            object.flag("df", ip.flags & 0x4000 != 0);
        }
        Some(Network::V6(ip, _)) => object.number("flow_label", ip.flow_label),
        None => {}
    }
    object.number("udp_checksum", udp.checksum);
}

/// The name of the congestion bits of a TOS or traffic class.
pub(super) const fn ecn_name(traffic_class: u8) -> &'static str {
    match traffic_class & 3 {
        0 => "not-ect",
        1 => "ect1",
        2 => "ect0",
        _ => "ce",
    }
}

/// The packet from the BTH on.
fn transport(object: &mut Object<'_>, packet: &RdmaPacket<'_>) {
    if let Some(bth) = packet.bth {
        base(object, packet, &bth);
        extended(object, &packet.headers);
    }
    if let Some(found) = packet.management() {
        management(object, &found);
    }
    object.optional("payload_length", packet.payload_length.map(|length| length as u64));
    object.string("icrc", packet.icrc.verdict.name());
    if let Some(icrc) = packet.icrc.wire {
        object.bytes("icrc_wire", &icrc);
    }
    if let Some(icrc) = packet.icrc.computed {
        object.bytes("icrc_computed", &icrc);
    }
}

fn base(object: &mut Object<'_>, packet: &RdmaPacket<'_>, bth: &Bth) {
    object.string("opcode", packet.opcode_name());
    object.number("opcode_value", bth.opcode);
    object.flag("solicited", bth.solicited);
    object.flag("migreq", bth.migration);
    object.number("pad", bth.pad);
    object.number("tver", bth.version);
    object.hex("pkey", bth.pkey.value().into(), 4);
    object.flag("fecn", bth.fecn);
    object.flag("becn", bth.becn);
    object.number("reserved", bth.reserved);
    object.number("dest_qp", bth.destination.value());
    object.flag("ack_req", bth.ack_request);
    object.number("psn", bth.psn.value());
}

fn extended(object: &mut Object<'_>, headers: &ExtendedHeaders) {
    if let Some(rdeth) = headers.rdeth {
        object.object("rdeth", |object| object.number("eecn", rdeth.context));
    }
    if let Some(deth) = headers.deth {
        object.object("deth", |object| {
            object.hex("qkey", deth.qkey.value().into(), 8);
            object.number("src_qp", deth.source.value());
        });
    }
    if let Some(xrceth) = headers.xrceth {
        object.object("xrceth", |object| object.number("srqn", xrceth.srqn.value()));
    }
    if let Some(feth) = headers.feth {
        object.object("feth", |object| {
            object.number("placement", feth.placement);
            object.number("selectivity", feth.selectivity);
        });
    }
    if let Some(reth) = headers.reth {
        object.object("reth", |object| {
            object.hex("va", reth.address, 16);
            object.hex("rkey", reth.key.value().into(), 8);
            object.number("length", reth.length);
        });
    }
    if let Some(aeth) = headers.aeth {
        object.object("aeth", |object| acknowledgement(object, aeth));
    }
    if let Some(atomic) = headers.atomic {
        object.object("atomic_eth", |object| {
            object.hex("va", atomic.address, 16);
            object.hex("rkey", atomic.key.value().into(), 8);
            object.hex("swap_add", atomic.swap_or_add, 16);
            object.hex("compare", atomic.compare, 16);
        });
    }
    if let Some(original) = headers.atomic_ack {
        object.object("atomic_ack_eth", |object| object.hex("original", original, 16));
    }
    if let Some(immediate) = headers.immediate {
        object.hex("immediate", u32::from_be_bytes(immediate.0).into(), 8);
    }
    if let Some(key) = headers.invalidate {
        object.object("ieth", |object| object.hex("rkey", key.value().into(), 8));
    }
}

fn acknowledgement(object: &mut Object<'_>, aeth: Aeth) {
    let byte = aeth.syndrome.to_byte();
    object.number("syndrome", byte);
    // The top bit is reserved, and reserved bits never matter.
    let meaning = aeth.syndrome.meaning();
    let kind = match meaning {
        Syndrome::Ack(_) => "ack",
        Syndrome::RnrNak(_) => "rnr_nak",
        Syndrome::Nak(_) => "nak",
        Syndrome::Reserved(_) => "reserved",
    };
    object.string("kind", kind);
    object.number("code", byte & 0x1f);
    match meaning {
        Syndrome::Ack(credits) => match credits.count() {
            Some(count) => object.number("credits", count),
            None => object.string("credits", "unlimited"),
        },
        Syndrome::RnrNak(timer) => {
            // A multiple of 0.01: two digits are exact.
            object.shown_number("timer_ms", timer.nanos() as f64 / 1e6);
        }
        Syndrome::Nak(code) => object.string("nak", nak_name(code)),
        Syndrome::Reserved(_) => {}
    }
    object.number("msn", aeth.msn.value());
}

/// As in JSON: `psn_sequence_error`.
const fn nak_name(code: crate::wire::NakCode) -> &'static str {
    use crate::wire::NakCode;
    match code {
        NakCode::PsnSequenceError => "psn_sequence_error",
        NakCode::InvalidRequest => "invalid_request",
        NakCode::RemoteAccessError => "remote_access_error",
        NakCode::RemoteOperationalError => "remote_operational_error",
        NakCode::InvalidRdRequest => "invalid_rd_request",
        NakCode::Reserved(_) => "reserved",
    }
}

fn management(object: &mut Object<'_>, found: &Management<'_>) {
    object.object("mad", |object| {
        object.number("class", found.header.class);
        object.number("method", found.header.method);
        object.number("attribute", found.header.attribute);
        object.hex("tid", found.header.transaction, 16);
        object.number("status", found.header.status);
        let Some(message) = found.connection() else { return };
        object.string("message", message.name);
        let written: Result<(), std::convert::Infallible> = message.each(|name, value| {
            cm_value(object, name, value);
            Ok(())
        });
        written.unwrap_or_else(|never| match never {});
    });
}

fn cm_value(object: &mut Object<'_>, name: &str, value: CmValue<'_>) {
    match value {
        CmValue::Number(number) => object.number(name, number),
        CmValue::Long(number) => object.hex(name, number, 16),
        CmValue::Key(key) => object.hex(name, key.into(), 8),
        CmValue::PartitionKey(key) => object.hex(name, key.into(), 4),
        CmValue::Address(address) => match address.to_ipv4_mapped() {
            Some(mapped) if name.starts_with("ip_") => object.plain(name, mapped),
            _ => object.plain(name, address),
        },
        CmValue::Text(text) => object.string(name, text),
        CmValue::Bytes(bytes) => object.bytes(name, bytes),
    }
}
