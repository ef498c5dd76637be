//! What the responder knows of a peer's request that was at fault.

use uroce::queue::{Access, PathMtu, ReceiveRequest, Remote, SendOperation, Sge};
use uroce::wire::{Immediate, Lkey, Message, SendTail};

use crate::Case;
use crate::pair::Pair;
use crate::world::{Passing, all, explained, post, rc, register, root, run};

pub const CASES: &[Case] = &[
    ("receive_too_small", receive_too_small),
    ("receive_memory", receive_memory),
    ("remote_memory", remote_memory),
    ("read_failed", read_failed),
    ("not_allowed", not_allowed),
    ("unsupported_opcode", unsupported_opcode),
    ("opcode_sequence", opcode_sequence),
    ("packet_length", packet_length),
    ("message_length", message_length),
    ("misaligned", misaligned),
    ("too_many_reads", too_many_reads),
];

/// A receive at side 1 whose key names nothing.
pub fn post_bad_receive(pair: &mut Pair) {
    let segments = [Sge { address: 0x1000, length: 4096, key: Lkey::new(0x77) }];
    let request = ReceiveRequest { id: 5, segments: &segments };
    pair.sides[1].queues.post_one_receive(&request).unwrap();
}

fn receive_too_small() -> String {
    let mut pair = rc(&|_, _| {});
    pair.post_receive(1, 5, 0, 64);
    post(&mut pair, SendOperation::Send, 100);
    run(&mut pair, all);
    explained(&mut pair, 1)
}

fn receive_memory() -> String {
    let mut pair = rc(&|_, _| {});
    post_bad_receive(&mut pair);
    post(&mut pair, SendOperation::Send, 100);
    run(&mut pair, all);
    explained(&mut pair, 1)
}

/// With immediate data a completion tells: the receive was claimed already.
fn remote_memory() -> String {
    let mut pair = rc(&|_, _| {});
    let (memory, keys) = register(&mut pair, 1, 4096, Access::ALL);
    pair.post_receive(1, 5, 0, 64);
    let remote = Remote { address: memory.address() + 4000, key: keys.remote };
    post(&mut pair, SendOperation::WriteWithImmediate(remote, Immediate([1; 4])), 200);
    run(&mut pair, all);
    explained(&mut pair, 1)
}

/// The memory is deregistered while its responses are on their way.
fn read_failed() -> String {
    let mut pair = rc(&|_, _| {});
    let (memory, keys) = register(&mut pair, 1, 1 << 20, Access::ALL);
    let remote = Remote { address: memory.address(), key: keys.remote };
    post(&mut pair, SendOperation::Read(remote), 60_000);
    for _ in 0..2 {
        let side = &mut pair.sides[0];
        side.engine.turn(pair.now, &mut side.wire, 64);
        let sent = std::mem::take(&mut side.wire.sent);
        let side = &mut pair.sides[1];
        side.wire.arrived.extend(sent);
        side.engine.turn(pair.now, &mut side.wire, 4);
        pair.now += 100;
    }
    pair.sides[1].engine.deregister(keys.local).unwrap();
    run(&mut pair, all);
    root(&pair, 1)
}

fn not_allowed() -> String {
    let mut pair = rc(&|side, attributes| {
        if side == 1 {
            attributes.access = Some(Access::LOCAL_WRITE | Access::REMOTE_READ);
        }
    });
    let operation = SendOperation::Write(pair.remote(1, 0));
    post(&mut pair, operation, 8);
    run(&mut pair, all);
    root(&pair, 1)
}

fn unsupported_opcode() -> String {
    let mut pair = rc(&|_, _| {});
    post(&mut pair, SendOperation::Send, 8);
    run(&mut pair, |packet: &mut Passing| {
        if packet.from == 0 {
            packet.set_opcode(0x1f);
        }
        true
    });
    root(&pair, 1)
}

/// A MIDDLE packet though no message has begun.
fn opcode_sequence() -> String {
    let mut pair = rc(&|_, _| {});
    pair.post_receive(1, 5, 0, 4096);
    post(&mut pair, SendOperation::Send, 1024);
    run(&mut pair, |packet: &mut Passing| {
        if packet.headers().message == Message::SendOnly(SendTail::Plain) {
            packet.rewrite(|headers, _| headers.message = Message::SendMiddle);
        }
        true
    });
    root(&pair, 1)
}

/// The peer's path MTU is half of ours.
fn packet_length() -> String {
    let mut pair = rc(&|side, attributes| {
        if side == 0 {
            attributes.path_mtu = Some(PathMtu::Mtu512);
        }
    });
    let operation = SendOperation::Write(pair.remote(1, 0));
    post(&mut pair, operation, 5000);
    run(&mut pair, all);
    root(&pair, 1)
}

fn message_length() -> String {
    let mut pair = rc(&|_, _| {});
    let operation = SendOperation::Write(pair.remote(1, 0));
    post(&mut pair, operation, 8);
    run(&mut pair, |packet: &mut Passing| {
        if let Message::WriteOnly(mut reth, None) = packet.headers().message {
            reth.length = 12;
            packet.rewrite(|headers, _| headers.message = Message::WriteOnly(reth, None));
        }
        true
    });
    root(&pair, 1)
}

fn misaligned() -> String {
    let mut pair = rc(&|_, _| {});
    let operation = SendOperation::FetchAdd { remote: pair.remote(1, 4), add: 1 };
    post(&mut pair, operation, 8);
    run(&mut pair, all);
    root(&pair, 1)
}

fn too_many_reads() -> String {
    let mut pair = rc(&|side, attributes| {
        if side == 1 {
            attributes.max_destination_rd_atomic = Some(1);
        }
    });
    for _ in 0..3 {
        let operation = SendOperation::Read(pair.remote(1, 0));
        post(&mut pair, operation, 8);
    }
    run(&mut pair, all);
    root(&pair, 1)
}

/// The responder names key, range and what was granted, also where only an event tells.
#[test]
fn a_range_that_is_too_long_is_measured() {
    let mut pair = rc(&|_, _| {});
    let (memory, keys) = register(&mut pair, 1, 4096, Access::ALL);
    let address = memory.address() + 4000;
    post(&mut pair, SendOperation::Write(Remote { address, key: keys.remote }), 200);
    run(&mut pair, all);
    let text = root(&pair, 1);
    for part in [
        format!("200 bytes at {address:#x} with key {}", keys.remote),
        format!("the key's memory is 4096 bytes at {:#x}", memory.address()),
        "the range ends 104 bytes beyond it".to_owned(),
        "NAK 0x62".to_owned(),
    ] {
        assert!(text.contains(&part), "{text} lacks {part}");
    }
}

#[test]
fn a_right_that_is_missing_is_named_with_those_that_are_there() {
    let mut pair = rc(&|_, _| {});
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let (memory, keys) = register(&mut pair, 1, 4096, access);
    let remote = Remote { address: memory.address(), key: keys.remote };
    post(&mut pair, SendOperation::Write(remote), 200);
    run(&mut pair, all);
    let text = root(&pair, 1);
    let part = "the key gives LOCAL_WRITE|REMOTE_READ, and REMOTE_WRITE is needed";
    assert!(text.contains(part), "{text}");
}
