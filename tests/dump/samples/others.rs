//! Samples of management datagrams and of iWARP.

use serde_json::{Value, json};

use super::super::build::*;
use super::*;

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
