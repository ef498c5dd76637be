//! The samples of `pcap-samples/oddities`: how each is made, and what must be found in it.

#[path = "samples/connections.rs"]
mod connections;
#[path = "samples/others.rs"]
mod others;
#[path = "samples/outer.rs"]
mod outer;
#[path = "samples/packets.rs"]
mod packets;
#[path = "samples/tunnels.rs"]
mod tunnels;

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
        outer::vlan(),
        outer::addresses(),
        outer::options(),
        outer::extensions(),
        outer::fragments(),
        tunnels::tunnels(),
        outer::trailers(),
        packets::offload(),
        packets::cut_frames(),
        packets::lengths(),
        packets::opcodes(),
        packets::contradictions(),
        outer::pause(),
        outer::ports(),
        outer::roce_v1(),
        outer::infiniband(),
        outer::erf(),
        outer::raw(),
        outer::sll(),
        outer::sll2(),
        others::iwarp(),
        others::management(),
        connections::connection_manager(),
        packets::bad_icrc(),
    ]
}

pub fn hex(text: &str) -> Bytes {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}
