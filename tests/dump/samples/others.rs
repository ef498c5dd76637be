//! Samples of management datagrams and of iWARP.

use serde_json::{Value, json};

use super::super::build::*;
use super::*;

fn tcp(source: u16, destination: u16, sequence: u32, flags: u8, inside: &[u8]) -> Bytes {
    let mut segment = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(inside);
    eth4(&ip4(&Ip4::default(), 6, &segment))
}

/// An FPDU with a tagged DDP segment of an RDMA WRITE.
fn fpdu(length: usize) -> Bytes {
    fpdu_of(&payload(length))
}

fn fpdu_of(data: &[u8]) -> Bytes {
    let ulpdu = [&[0xc1, 0x40][..], &[0; 12], data].concat();
    let mut bytes = (ulpdu.len() as u16).to_be_bytes().to_vec();
    bytes.extend(ulpdu);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let crc = crc32c(&bytes).to_le_bytes();
    [&bytes[..], &crc].concat()
}

/// Bit by bit.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut register = u32::MAX;
    for byte in bytes {
        register ^= u32::from(*byte);
        for _ in 0..8 {
            register = (register >> 1) ^ (0x82f6_3b78 * (register & 1));
        }
    }
    !register
}

pub fn iwarp() -> Sample {
    const PUSH: u8 = 0x18;
    const SYN: u8 = 0x02;
    let start = |key: &[u8], flags: u8| [key, &[flags, 1, 0, 0]].concat();
    let mut broken = fpdu(50);
    broken[20] ^= 1;
    let two = [fpdu(50), fpdu(3)].concat();
    // Longer than a segment, the second one of which begins like a frame.
    let mut data = payload(300);
    data[100..104].copy_from_slice(&[0, 16, 0xc1, 0x40]);
    let long = fpdu_of(&data);
    let (front, back) = long.split_at(2 + 14 + 100);
    let back = [back, &fpdu(5)].concat();
    // The stream begins just before its numbers do anew.
    let mut next = 0xffff_ffd0_u32;
    let mut stream = |inside: &[u8]| {
        let frame = tcp(4000, 5000, next, PUSH, inside);
        next = next.wrapping_add(inside.len() as u32);
        frame
    };
    let other = |inside: &[u8]| tcp(6000, 7000, 1, PUSH, inside);
    let data = |whole: u32, right: u32, issues: Value| {
        json!({"kind": "iwarp", "issues": issues,
        "mpa": {"frame": "fpdu", "whole": whole, "crc_ok": right}, "icrc": null})
    };
    let none = || json!({"kind": "other", "issues": [], "mpa": null});
    sample(
        "iwarp",
        "MPA start, FPDUs with right and wrong CRC-32C, whole and in two segments, other TCP",
        ETHERNET,
        vec![
            one(
                stream(&start(b"MPA ID Req Frame", 0x40)),
                json!({"kind": "iwarp",
            "mpa": {"frame": "request", "crc": true, "markers": false}}),
            ),
            one(
                tcp(5000, 4000, 1, PUSH, &start(b"MPA ID Rep Frame", 0x40)),
                json!({"kind": "iwarp",
            "mpa": {"frame": "reply", "crc": true, "markers": false, "rejected": false}}),
            ),
            one(stream(&two), data(2, 2, json!([]))),
            one(stream(&broken), data(1, 0, json!(["bad_crc32c"]))),
            one(stream(front), data(0, 0, json!([]))),
            one(stream(&back), data(1, 1, json!([]))),
            // Sent once more, and then something missing before it: not judged.
            one(tcp(4000, 5000, 0xffff_ffe4, PUSH, &broken), data(0, 0, json!([]))),
            one(tcp(4000, 5000, 50_000, PUSH, &broken), data(0, 0, json!([]))),
            // Right frames tell where the stream goes on.
            one(tcp(4000, 5000, 60_000, PUSH, &two), data(2, 2, json!([]))),
            one(
                tcp(4000, 5000, 60_000 + two.len() as u32, PUSH, &broken),
                data(1, 0, json!(["bad_crc32c"])),
            ),
            // Another connection of the same ends.
            one(tcp(4000, 5000, 0, SYN, &[]), none()),
            one(tcp(4000, 5000, 1, PUSH, &broken), none()),
            // Of connections whose start was not seen only right frames count.
            one(other(&fpdu(9)), data(1, 1, json!([]))),
            one(other(&broken), none()),
            one(tcp(6000, 80, 1, PUSH, b"GET / HTTP/1.1\r\n\r\n"), none()),
        ],
    )
}

/// A management datagram, 256 bytes.
pub fn mad(class: u8, method: u8, attribute: u16, data: &[u8]) -> Bytes {
    let mut bytes = vec![1, class, 2, method, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xca, 0xfe];
    bytes.extend(attribute.to_be_bytes());
    bytes.extend([0; 6]);
    bytes.extend(data);
    bytes.resize(256, 0);
    bytes
}

/// A datagram to a management queue pair.
pub fn to(queue_pair: u8, payload: &[u8]) -> Bytes {
    let mut bytes = packet(0x64, 3, &[0x80, 1, 0, 0, 0, 0, 0, 1], payload);
    bytes[7] = queue_pair;
    eth4(&roce4(&bytes))
}

pub fn management() -> Sample {
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
