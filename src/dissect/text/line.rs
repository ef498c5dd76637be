//! One line a packet, in words.

use std::fmt::Write;

use super::super::json::ecn_name;
use super::super::{
    CmMessage, CmValue, FlowControl, Frame, Kind, Management, Mpa, RdmaPacket, Verdict,
};
use crate::wire::{Aeth, Opcode, Operation, Syndrome};
use crate::words::nak;

/// A line in its parts, for whoever paints them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Sender and receiver; may be empty.
    pub hosts: [String; 2],
    /// What the packet is and says.
    pub what: String,
    /// What deserves a look: congestion marks, NAKs.
    pub notable: String,
    /// What is wrong, by identifier.
    pub wrong: String,
}

/// What a frame, or one packet of it, says.
pub fn line(frame: &Frame<'_>, packet: Option<&RdmaPacket<'_>>) -> Line {
    let mut line = Line::default();
    match frame.hosts() {
        Some((source, destination)) => {
            line.hosts = [source.to_string(), destination.to_string()];
        }
        None => {
            if let Some(lrh) = frame.lrh {
                line.hosts = [lrh.source, lrh.destination].map(|lid| format!("LID {lid}"));
            } else if let Some(ethernet) = frame.envelope.ethernet {
                line.hosts = [mac(&ethernet.source), mac(&ethernet.destination)];
            }
        }
    }
    let is_rdma = frame.is_rdma();
    match packet.filter(|_| is_rdma) {
        Some(packet) => rdma(&mut line, frame, packet),
        None => other(&mut line, frame),
    }
    let issues = packet.map_or(frame.issues, |packet| frame.issues.union(packet.issues));
    for issue in issues.iter() {
        word(&mut line.wrong, issue.identifier());
    }
    line
}

/// `aa:bb:cc:dd:ee:ff`.
pub(super) fn mac(address: &[u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

fn word(text: &mut String, word: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(word);
}

macro_rules! say {
    ($text:expr, $($format:tt)*) => {{
        if !$text.is_empty() {
            $text.push(' ');
        }
        // A string takes everything.
        let _ = write!($text, $($format)*);
    }};
}

fn rdma(line: &mut Line, frame: &Frame<'_>, packet: &RdmaPacket<'_>) {
    let what = &mut line.what;
    for outer in frame.tunnels.iter() {
        say!(what, "[{}]", outer.tunnel.name());
    }
    let Some(bth) = packet.bth else {
        say!(what, "{}: no BTH", frame.kind.name());
        return;
    };
    match packet.opcode {
        Some(opcode) => word(what, &short_name(opcode)),
        None => say!(what, "opcode 0x{:02x}", bth.opcode),
    }
    if let Some(found) = packet.management() {
        management(what, &found);
        marks(line, frame, packet);
        return;
    }
    say!(what, "qp 0x{:x}", bth.destination.value());
    if let Some(deth) = packet.headers.deth {
        say!(what, "from 0x{:x}", deth.source.value());
    }
    if packet.opcode.is_none_or(|opcode| opcode.transport().is_some()) {
        say!(what, "psn {}", bth.psn);
    }
    let has_payload = packet.opcode.is_some_and(|opcode| opcode.has_payload());
    if let Some(length) = packet.payload_length.filter(|length| has_payload || *length > 0) {
        say!(what, "{length} B");
    }
    headers(what, packet);
    for (flag, name) in [(bth.solicited, "SE"), (bth.ack_request, "ackreq")] {
        if flag {
            word(what, name);
        }
    }
    if let Some(aeth) = packet.headers.aeth {
        acknowledgement(line, aeth);
    }
    marks(line, frame, packet);
}

/// The name of an opcode with its longest words shortened.
fn short_name(opcode: Opcode) -> String {
    let words = [("_RDMA_", "_"), ("_WITH_IMMEDIATE", "_IMM"), ("_WITH_INVALIDATE", "_INV")];
    words.iter().fold(opcode.name().to_owned(), |name, (long, short)| name.replace(long, short))
}

/// Marks of congestion, and the verdict.
fn marks(line: &mut Line, frame: &Frame<'_>, packet: &RdmaPacket<'_>) {
    let class = frame.envelope.traffic_class();
    let ce = class.is_some_and(|class| ecn_name(class) == "ce");
    let (fecn, becn) = packet.bth.map_or((false, false), |bth| (bth.fecn, bth.becn));
    for (mark, name) in [(ce, "CE"), (fecn, "FECN"), (becn, "BECN")] {
        if mark {
            word(&mut line.notable, name);
        }
    }
    match packet.icrc.verdict {
        Verdict::Ok => {}
        Verdict::Bad => word(&mut line.wrong, "icrc bad"),
        Verdict::Unchecked => word(&mut line.notable, "icrc unchecked"),
    }
}

fn headers(what: &mut String, packet: &RdmaPacket<'_>) {
    let headers = &packet.headers;
    if let Some(xrceth) = headers.xrceth {
        say!(what, "srq {}", xrceth.srqn.value());
    }
    if let Some(rdeth) = headers.rdeth {
        say!(what, "eec {}", rdeth.context);
    }
    if let Some(feth) = headers.feth {
        let placement = match feth.placement {
            1 => "to visibility",
            2 => "to persistence",
            3 => "to visibility and persistence",
            _ => "to an unknown placement",
        };
        let selectivity = match feth.selectivity {
            0 => "range",
            1 => "whole region",
            _ => "unknown selectivity",
        };
        say!(what, "{placement}, {selectivity}");
    }
    if let Some(reth) = headers.reth {
        let (key, address) = (reth.key.value(), reth.address);
        say!(what, "dma {} at 0x{address:x} key 0x{key:08x}", reth.length);
    }
    if let Some(atomic) = headers.atomic {
        let (key, address) = (atomic.key.value(), atomic.address);
        let operation = packet.opcode.and_then(|opcode| opcode.operation());
        if operation == Some(Operation::FetchAdd) {
            say!(what, "add 0x{:x}", atomic.swap_or_add);
        } else {
            say!(what, "0x{:x} if 0x{:x}", atomic.swap_or_add, atomic.compare);
        }
        say!(what, "at 0x{address:x} key 0x{key:08x}");
    }
    if let Some(original) = headers.atomic_ack {
        say!(what, "was 0x{original:x}");
    }
    if let Some(immediate) = headers.immediate {
        say!(what, "imm 0x{:08x}", u32::from_be_bytes(immediate.0));
    }
    if let Some(key) = headers.invalidate {
        say!(what, "invalidates 0x{:08x}", key.value());
    }
}

fn acknowledgement(line: &mut Line, aeth: Aeth) {
    let msn = aeth.msn.value();
    match aeth.syndrome.meaning() {
        Syndrome::Ack(credits) => match credits.count() {
            None => say!(line.what, "msn {msn}"),
            Some(count) => say!(line.what, "msn {msn}, {count} credits"),
        },
        Syndrome::RnrNak(timer) => {
            let wait = timer.nanos() as f64 / 1e6;
            say!(line.notable, "RNR NAK: wait {wait} ms");
            say!(line.what, "msn {msn}");
        }
        Syndrome::Nak(code) => {
            say!(line.notable, "NAK: {}", nak(code));
            say!(line.what, "msn {msn}");
        }
        Syndrome::Reserved(byte) => say!(line.notable, "reserved syndrome 0x{byte:02x}"),
    }
}

fn management(what: &mut String, found: &Management<'_>) {
    match found.connection() {
        Some(message) => connection(what, &message),
        None => say!(
            what,
            "{} {} 0x{:04x}",
            found.class_name(),
            found.method_name(),
            found.header.attribute
        ),
    }
}

/// What matters of a message of the connection manager.
fn connection(what: &mut String, message: &CmMessage<'_>) {
    say!(what, "CM {}", message.name);
    let number = |name: &str| match message.get(name) {
        Some(CmValue::Number(number)) => Some(number),
        _ => None,
    };
    if let (Some(CmValue::Address(source)), Some(port)) =
        (message.get("ip_source"), number("ip_destination_port"))
    {
        let source =
            source.to_ipv4_mapped().map_or_else(|| source.to_string(), |v4| v4.to_string());
        say!(what, "to port {port} from {source}");
    } else if let Some(CmValue::Long(service)) = message.get("service_id") {
        say!(what, "service 0x{service:x}");
    }
    if let Some(qpn) = number("local_qpn").or_else(|| number("qpn")) {
        say!(what, "qp 0x{qpn:x}");
    }
    if let Some(psn) = number("starting_psn") {
        say!(what, "starts at psn {psn}");
    }
    for name in ["reason_text", "sidr_status_text", "ap_status_text"] {
        if let Some(CmValue::Text(text)) = message.get(name) {
            say!(what, "{text}");
        }
    }
}

fn other(line: &mut Line, frame: &Frame<'_>) {
    let what = &mut line.what;
    if let Some(control) = frame.flow_control {
        match control {
            FlowControl::Pause { quanta: 0 } => word(what, "PAUSE: go on"),
            FlowControl::Pause { quanta } => say!(what, "PAUSE for {quanta} quanta"),
            FlowControl::Priority { enabled, quanta } => {
                word(what, "PFC");
                for class in (0..8).filter(|class| enabled >> class & 1 != 0) {
                    match quanta[class] {
                        0 => say!(what, "class {class} on"),
                        timer => say!(what, "class {class} off for {timer} quanta"),
                    }
                }
            }
        }
        return;
    }
    match frame.mpa {
        Some(Mpa::Request { crc, .. }) => say!(what, "iWARP start, {}", crc_words(crc)),
        Some(Mpa::Reply { rejected: true, .. }) => word(what, "iWARP refusal"),
        Some(Mpa::Reply { crc, .. }) => say!(what, "iWARP answer, {}", crc_words(crc)),
        Some(Mpa::Frames { whole, right }) => {
            say!(what, "iWARP data, {right} of {whole} whole frames with right CRC");
        }
        None if frame.kind == Kind::Other => word(what, "no RDMA"),
        None => say!(what, "{}, no transport", frame.kind.name()),
    }
}

const fn crc_words(crc: bool) -> &'static str {
    if crc { "with CRC" } else { "without CRC" }
}
