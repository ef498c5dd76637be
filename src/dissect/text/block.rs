//! A block a packet, with every bit that is not a whole byte's.

use std::fmt::Write;

use super::super::frame::Envelope;
use super::super::json::ecn_name;
use super::super::{CmValue, Frame, RdmaPacket, Tunnel};
use super::line::mac;
use crate::wire::{Bth, Network, Syndrome, VlanTag};
use crate::words::nak;

/// The columns of the names.
const NAME: usize = 12;

/// The lines of a block, without the first one, which is the packet's line.
pub fn block(frame: &Frame<'_>, packet: Option<&RdmaPacket<'_>>) -> Vec<String> {
    let mut lines = Vec::new();
    for outer in frame.tunnels.iter() {
        envelope(&mut lines, &outer.envelope);
        entry(&mut lines, "tunnel", &tunnel(outer.tunnel));
    }
    envelope(&mut lines, &frame.envelope);
    routes(&mut lines, frame);
    if let Some(packet) = packet.filter(|_| frame.is_rdma()) {
        transport(&mut lines, packet);
    }
    if let Some((found, expected)) = frame.vcrc {
        let verdict = if found == expected { "right" } else { "wrong" };
        entry(&mut lines, "VCRC", &format!("{}, {verdict}", hex(&found)));
    }
    if !frame.trailer.is_empty() {
        let length = frame.trailer.len();
        entry(&mut lines, "trailer", &format!("{length} bytes after the datagram"));
    }
    let issues = packet.map_or(frame.issues, |packet| frame.issues.union(packet.issues));
    for issue in issues.iter() {
        entry(&mut lines, "issue", &format!("{}: {}", issue.identifier(), issue.text()));
    }
    lines
}

fn entry(lines: &mut Vec<String>, name: &str, text: &str) {
    lines.push(format!("  {name:NAME$}{text}"));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn tunnel(tunnel: Tunnel) -> String {
    match tunnel {
        Tunnel::Vxlan(network) | Tunnel::Geneve(network) => {
            format!("{}, network {network}", tunnel.name())
        }
        Tunnel::Gre(Some(key)) => format!("gre, key 0x{key:08x}"),
        Tunnel::Erspan(version, session) => format!("erspan {version}, session {session}"),
        Tunnel::Mpls(labels) => {
            let labels = labels.into_iter().flatten().map(|label| label.to_string());
            format!("mpls, labels {}", labels.collect::<Vec<_>>().join(" "))
        }
        other => other.name().to_owned(),
    }
}

fn envelope(lines: &mut Vec<String>, envelope: &Envelope<'_>) {
    if let Some(ethernet) = envelope.ethernet {
        let (source, destination) = (mac(&ethernet.source), mac(&ethernet.destination));
        entry(lines, "Ethernet", &format!("{source} > {destination}"));
    }
    for VlanTag { protocol, priority, drop_eligible, id } in envelope.vlans.iter() {
        let drop = if *drop_eligible { ", drop eligible" } else { "" };
        let what = if *id == 0 { "priority tag".to_owned() } else { format!("VLAN {id}") };
        entry(lines, "tag", &format!("0x{protocol:04x} {what}, priority {priority}{drop}"));
    }
    let class = envelope.traffic_class().unwrap_or_default();
    let class = format!("0x{class:02x} (DSCP {}, {})", class >> 2, ecn_name(class));
    match envelope.network {
        Some(Network::V4(ip)) => {
            let flags = match ip.flags >> 13 & 3 {
                0 => "",
                1 => ", more fragments",
                2 => ", DF",
                _ => ", DF and more fragments",
            };
            let offset = (ip.flags & 0x1fff) * 8;
            let offset = if offset > 0 { format!(", offset {offset}") } else { String::new() };
            entry(lines, "IPv4", &format!("{} > {}", ip.source, ip.destination));
            entry(
                lines,
                "",
                &format!(
                    "TOS {class}, TTL {}, id 0x{:04x}{flags}{offset}, {} bytes",
                    ip.hop_limit, ip.identification, ip.total_length
                ),
            );
            if !ip.options.is_empty() {
                entry(lines, "", &format!("options {}", hex(ip.options)));
            }
        }
        Some(Network::V6(ip, extensions)) => {
            entry(lines, "IPv6", &format!("{} > {}", ip.source, ip.destination));
            entry(
                lines,
                "",
                &format!(
                    "class {class}, hop limit {}, flow label 0x{:05x}, {} bytes",
                    ip.hop_limit, ip.flow_label, ip.payload_length
                ),
            );
            if !extensions.is_empty() {
                entry(lines, "", &format!("{} bytes of extension headers", extensions.len()));
            }
        }
        None => {}
    }
    if let Some(udp) = envelope.udp {
        let ports = format!("{} > {}", udp.source_port, udp.destination_port);
        let sum = format!("checksum 0x{:04x}", udp.checksum);
        entry(lines, "UDP", &format!("{ports}, {} bytes, {sum}", udp.length));
    }
}

fn routes(lines: &mut Vec<String>, frame: &Frame<'_>) {
    if let Some(lrh) = frame.lrh {
        let route = format!("LID {} > {}", lrh.source, lrh.destination);
        let lane =
            format!("service level {}, virtual lane {}", lrh.service_level, lrh.virtual_lane);
        entry(lines, "LRH", &format!("{route}, {lane}, {} words", lrh.length));
    }
    if let Some(grh) = frame.grh {
        entry(lines, "GRH", &format!("{} > {}", grh.source, grh.destination));
        entry(
            lines,
            "",
            &format!(
                "class 0x{:02x}, hop limit {}, flow label 0x{:05x}, {} bytes",
                grh.traffic_class, grh.hop_limit, grh.flow_label, grh.payload_length
            ),
        );
    }
}

fn transport(lines: &mut Vec<String>, packet: &RdmaPacket<'_>) {
    if let Some(segment) = packet.segment {
        entry(
            lines,
            "segment",
            &format!("{segment}, of a frame left whole by segmentation offload"),
        );
    }
    if let Some(bth) = packet.bth {
        base(lines, packet, &bth);
        extended(lines, packet);
    }
    if let Some(found) = packet.management() {
        let header = found.header;
        entry(
            lines,
            "MAD",
            &format!(
                "{} ({}), {} (0x{:02x}), attribute 0x{:04x}, status 0x{:04x}",
                found.class_name(),
                header.class,
                found.method_name(),
                header.method,
                header.attribute,
                header.status
            ),
        );
        entry(lines, "", &format!("transaction 0x{:016x}", header.transaction));
        if let Some(message) = found.connection() {
            entry(lines, "CM", message.name);
            let told: Result<(), std::convert::Infallible> = message.each(|name, value| {
                if let Some(value) = cm_value(value) {
                    lines.push(format!("  {:NAME$}{name}: {value}", ""));
                }
                Ok(())
            });
            told.unwrap_or_else(|never| match never {});
        }
    }
    if let Some(length) = packet.payload_length {
        entry(lines, "payload", &format!("{length} bytes"));
    }
    let mut text = packet.icrc.verdict.name().to_owned();
    if let Some(wire) = packet.icrc.wire {
        let _ = write!(text, ", {} on the wire", hex(&wire));
    }
    if let Some(computed) = packet.icrc.computed {
        let _ = write!(text, ", {} computed", hex(&computed));
    }
    entry(lines, "ICRC", &text);
}

fn cm_value(value: CmValue<'_>) -> Option<String> {
    Some(match value {
        CmValue::Number(number) => number.to_string(),
        CmValue::Long(number) => format!("0x{number:016x}"),
        CmValue::Key(key) => format!("0x{key:08x}"),
        CmValue::PartitionKey(key) => format!("0x{key:04x}"),
        CmValue::Address(address) => address.to_string(),
        CmValue::Text(text) => text.to_owned(),
        // Zeros to the end are no data.
        CmValue::Bytes(bytes) => {
            let end = bytes.iter().rposition(|byte| *byte != 0)? + 1;
            let shown = hex(&bytes[..end.min(24)]);
            if end > 24 { format!("{shown} …, {} bytes", bytes.len()) } else { shown }
        }
    })
}

/// A byte's bits with all but `width` from `skip` on as points: `.1.. ....`.
fn bits(byte: u8, skip: usize, width: usize) -> String {
    let mut text = String::with_capacity(9);
    for bit in 0..8 {
        if bit == 4 {
            text.push(' ');
        }
        let is_shown = (skip..skip + width).contains(&bit);
        let digit = if byte >> (7 - bit) & 1 == 1 { '1' } else { '0' };
        text.push(if is_shown { digit } else { '.' });
    }
    text
}

fn base(lines: &mut Vec<String>, packet: &RdmaPacket<'_>, bth: &Bth) {
    let [_, flags, _, _, congestion, _, _, _, acknowledge, ..] =
        *packet.bytes.first_chunk::<12>().unwrap_or(&[0; 12]);
    entry(lines, "BTH", &format!("opcode 0x{:02x} {}", bth.opcode, packet.opcode_name()));
    let mut bit = |byte, skip, width, text: &str| {
        entry(lines, "", &format!("{}  {text}", bits(byte, skip, width)));
    };
    bit(flags, 0, 1, &format!("solicited event: {}", yes(bth.solicited)));
    bit(flags, 1, 1, &format!("MigReq: {}", yes(bth.migration)));
    bit(flags, 2, 2, &format!("pad: {}", bth.pad));
    bit(flags, 4, 4, &format!("transport version: {}", bth.version));
    entry(lines, "", &format!("P_Key 0x{:04x}", bth.pkey.value()));
    let mut bit = |byte, skip, width, text: &str| {
        entry(lines, "", &format!("{}  {text}", bits(byte, skip, width)));
    };
    bit(congestion, 0, 1, &format!("FECN: {}", yes(bth.fecn)));
    bit(congestion, 1, 1, &format!("BECN: {}", yes(bth.becn)));
    bit(congestion, 2, 6, &format!("reserved: {}", bth.reserved));
    let queue_pair = bth.destination.value();
    entry(lines, "", &format!("destination QP {queue_pair} (0x{queue_pair:06x})"));
    let mut bit = |byte, skip, width, text: &str| {
        entry(lines, "", &format!("{}  {text}", bits(byte, skip, width)));
    };
    bit(acknowledge, 0, 1, &format!("acknowledge request: {}", yes(bth.ack_request)));
    bit(acknowledge, 1, 7, &format!("reserved: {}", bth.reserved_after_ack));
    entry(lines, "", &format!("PSN {} (0x{:06x})", bth.psn, bth.psn.value()));
}

const fn yes(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}

/// A syndrome in words.
fn syndrome(syndrome: Syndrome) -> String {
    match syndrome.meaning() {
        Syndrome::Ack(credits) => match credits.count() {
            Some(count) => format!("ACK, {count} credits"),
            None => "ACK, no limit of credits".to_owned(),
        },
        Syndrome::RnrNak(timer) => format!("RNR NAK, wait {} ms", timer.nanos() as f64 / 1e6),
        Syndrome::Nak(code) => format!("NAK, {}", nak(code)),
        Syndrome::Reserved(_) => "reserved".to_owned(),
    }
}

fn extended(lines: &mut Vec<String>, packet: &RdmaPacket<'_>) {
    let headers = &packet.headers;
    if let Some(rdeth) = headers.rdeth {
        entry(lines, "RDETH", &format!("end-to-end context {}", rdeth.context));
    }
    if let Some(deth) = headers.deth {
        let (key, source) = (deth.qkey.value(), deth.source);
        entry(lines, "DETH", &format!("Q_Key 0x{key:08x}, source QP {source}"));
    }
    if let Some(xrceth) = headers.xrceth {
        entry(lines, "XRCETH", &format!("shared receive queue {}", xrceth.srqn.value()));
    }
    if let Some(feth) = headers.feth {
        let (placement, selectivity) = (feth.placement, feth.selectivity);
        entry(lines, "FETH", &format!("placement {placement}, selectivity {selectivity}"));
    }
    if let Some(reth) = headers.reth {
        let (address, key) = (reth.address, reth.key.value());
        let text = format!("address 0x{address:016x}, R_Key 0x{key:08x}, {} bytes", reth.length);
        entry(lines, "RETH", &text);
    }
    if let Some(aeth) = headers.aeth {
        let byte = aeth.syndrome.to_byte();
        entry(lines, "AETH", &format!("syndrome 0x{byte:02x}: {}", syndrome(aeth.syndrome)));
        entry(lines, "", &format!("{}  kind", bits(byte, 1, 2)));
        entry(lines, "", &format!("{}  code {}", bits(byte, 3, 5), byte & 0x1f));
        entry(lines, "", &format!("MSN {}", aeth.msn.value()));
    }
    if let Some(atomic) = headers.atomic {
        let (address, key) = (atomic.address, atomic.key.value());
        entry(lines, "AtomicETH", &format!("address 0x{address:016x}, R_Key 0x{key:08x}"));
        entry(lines, "", &format!("swap or add 0x{:016x}", atomic.swap_or_add));
        entry(lines, "", &format!("compare     0x{:016x}", atomic.compare));
    }
    if let Some(original) = headers.atomic_ack {
        entry(lines, "AtomicAck", &format!("original 0x{original:016x}"));
    }
    if let Some(immediate) = headers.immediate {
        entry(lines, "ImmDt", &hex(&immediate.0));
    }
    if let Some(key) = headers.invalidate {
        entry(lines, "IETH", &format!("R_Key 0x{:08x}", key.value()));
    }
}
