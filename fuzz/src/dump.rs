//! Captures as `uroce dump` reads them, in every form that it has.

use std::io::Read;

use uroce::dissect::json::{self, Position};
use uroce::dissect::text::{self, Line};
use uroce::dissect::{Dissector, Frame, RdmaPacket, Summary, Verdict, explain_icrc, explain_value};
use uroce::pcap::{Decompressed, LinkType, ReadError, Reader};

/// Bytes that are read of a file, decompressed: a small one can hold gigabytes.
const MOST: u64 = 1 << 20;
/// No line, block or object is longer than this and so much for each byte of its frame.
const FIXED: usize = 64 * 1024;
const PER_BYTE: usize = 64;
/// Packets of a capture whose ICRCs are explained: each costs dozens of CRCs, and what comes later
/// can come first in another input.
const EXPLAINED: usize = 4;

pub fn dump(data: &[u8]) {
    let opened = Decompressed::new(data).map_err(ReadError::from);
    let opened = opened.and_then(|plain| Reader::new(plain.take(MOST)));
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(error) => return told(&error),
    };
    let mut dissector = Dissector::with_ports(&[1234]);
    let mut summary = Summary::default();
    let mut number = 0;
    while let Some(record) = reader.next() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                told(&error);
                break;
            }
        };
        number += 1;
        let position = Position {
            file: Some("a \"name\"\n"),
            frame: number,
            interface: Some(record.interface),
            time: record.time,
        };
        let frame = dissector.dissect(record.link_type, record.original_length, record.data);
        if number <= EXPLAINED as u64 {
            explain(&frame, record.data.len());
        }
        show(&position, &frame, record.data.len());
        summary.count(&frame);
    }
    let mut out = Vec::new();
    json::write_summary(&mut out, "name", &summary);
    read_back(&out);
    assert!(reader.next().is_none(), "nothing comes after the end");
}

fn told(error: &ReadError) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 500 && !text.contains('\n'), "{text}");
}

/// Everything that can be asked of a frame.
pub fn frame(link_type: u32, length: u32, data: &[u8]) {
    let mut dissector = Dissector::new();
    let frame = dissector.dissect(LinkType(link_type), length, data);
    show(&Position::default(), &frame, data.len());
}

fn show(position: &Position<'_>, frame: &Frame<'_>, length: usize) {
    let mut payload = 0;
    let mut is_empty = true;
    for packet in frame.packets() {
        is_empty = false;
        payload += packet.payload.len();
        assert!(packet.icrc.verdict != Verdict::Ok || packet.icrc.wire == packet.icrc.computed);
        forms(position, frame, Some(&packet), length);
    }
    if is_empty {
        forms(position, frame, None, length);
    }
    assert!(payload <= length, "no byte is in two packets");
    bounded(&text::frame_bytes(frame), length);
}

/// Why ICRCs are what they are, and why they are not another value.
fn explain(frame: &Frame<'_>, length: usize) {
    for packet in frame.packets().take(EXPLAINED) {
        let explained = [explain_icrc(frame, &packet), explain_value(frame, &packet, [1, 2, 3, 4])];
        for explained in explained.into_iter().flatten() {
            bounded(&text::explanation(&explained), length);
        }
    }
}

fn forms(
    position: &Position<'_>,
    frame: &Frame<'_>,
    packet: Option<&RdmaPacket<'_>>,
    length: usize,
) {
    let mut out = Vec::new();
    json::write(&mut out, position, frame, packet);
    assert!(out.len() <= FIXED + PER_BYTE * length, "{} bytes for {length}", out.len());
    read_back(&out);
    let Line { hosts: [from, to], what, notable, wrong } = text::line(frame, packet);
    bounded(&[from, to, what, notable, wrong], length);
    bounded(&text::block(frame, packet), length);
    let _ = frame.is_wrong(packet);
}

/// A line each, and JSON each.
fn read_back(out: &[u8]) {
    for line in out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let parsed: Result<serde_json::Value, _> = serde_json::from_slice(line);
        assert!(parsed.is_ok(), "{}", String::from_utf8_lossy(line));
    }
}

/// What a terminal gets: lines that hold no control character, and no more than the frame is worth.
fn bounded(lines: &[String], length: usize) {
    let bytes: usize = lines.iter().map(String::len).sum();
    assert!(bytes <= FIXED + PER_BYTE * length, "{bytes} bytes for {length}");
    for line in lines {
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}
