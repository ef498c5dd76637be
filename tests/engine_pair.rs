//! Two engines on a perfect wire: every operation once, end to end, with exact results.

mod pair;

use pair::{Ends, Pair};
use uroce::queue::{
    Access, Attachment, CompletionKind, CompletionStatus, PathMtu, Payload, Remote, SendFlags,
    SendOperation,
};
use uroce::wire::Immediate;

#[test]
fn a_send_fills_the_receive_and_both_sides_complete() {
    let mut pair = Pair::new(PathMtu::Mtu1024);
    for length in [0_usize, 1, 3, 4, 1023, 1024, 1025, 2048, 5000, 65_536] {
        let bytes = pattern(length);
        pair.memory(0).write(0, &bytes).unwrap();
        pair.post_receive(1, 7, 0, 70_000);
        pair.post(0, 9, SendOperation::Send, SendFlags::SIGNALED, (0, length));
        pair.run();
        let sent = pair.completion(0);
        assert_eq!((sent.id, sent.status), (9, CompletionStatus::Success));
        let received = pair.completion(1);
        assert_eq!((received.id, received.length as usize), (7, length));
        assert_eq!(received.kind, CompletionKind::Receive);
        assert_eq!(pair.memory(1).to_vec(0, length).unwrap(), bytes);
    }
}

#[test]
fn immediate_and_invalidate_arrive_with_the_completion() {
    let mut pair = Pair::new(PathMtu::Mtu256);
    let immediate = Immediate([1, 2, 3, 4]);
    pair.post_receive(1, 1, 0, 4096);
    pair.post(0, 1, SendOperation::SendWithImmediate(immediate), SendFlags::SIGNALED, (0, 1000));
    pair.run();
    assert_eq!(pair.completion(1).attachment, Attachment::Immediate(immediate));
    pair.completion(0);

    let key = pair.register_invalidatable(1);
    pair.post_receive(1, 2, 0, 4096);
    pair.post(0, 2, SendOperation::SendWithInvalidate(key), SendFlags::SIGNALED, (0, 10));
    pair.run();
    assert_eq!(pair.completion(1).attachment, Attachment::Invalidated(key));
    pair.completion(0);
    let remote = Remote { address: pair.memory(1).address(), key };
    pair.post(0, 3, SendOperation::Write(remote), SendFlags::SIGNALED, (0, 10));
    pair.run();
    assert_eq!(pair.completion(0).status, CompletionStatus::RemoteAccessError);
}

#[test]
fn write_read_and_atomics_reach_the_peers_memory() {
    let mut pair = Pair::new(PathMtu::Mtu4096);
    for length in [0_usize, 1, 4095, 4096, 4097, 65_536, 200_000] {
        let bytes = pattern(length);
        pair.memory(0).write(0, &bytes).unwrap();
        let remote = pair.remote(1, 64);
        pair.post(0, 1, SendOperation::Write(remote), SendFlags::SIGNALED, (0, length));
        pair.run();
        assert_eq!(pair.completion(0).status, CompletionStatus::Success);
        assert_eq!(pair.memory(1).to_vec(64, length).unwrap(), bytes);

        pair.post(0, 2, SendOperation::Read(remote), SendFlags::SIGNALED, (300_000, length));
        pair.run();
        let read = pair.completion(0);
        assert_eq!((read.status, read.length as usize), (CompletionStatus::Success, length));
        assert_eq!(pair.memory(0).to_vec(300_000, length).unwrap(), bytes);
    }
    pair.memory(1).store_u64(8, 40).unwrap();
    let remote = pair.remote(1, 8);
    let add = SendOperation::FetchAdd { remote, add: 2 };
    pair.post(0, 3, add, SendFlags::SIGNALED, (16, 8));
    let swap = SendOperation::CompareSwap { remote, compare: 42, swap: 7 };
    pair.post(0, 4, swap, SendFlags::SIGNALED, (24, 8));
    pair.run();
    assert_eq!(pair.completion(0).kind, CompletionKind::FetchAdd);
    assert_eq!(pair.completion(0).kind, CompletionKind::CompareSwap);
    assert_eq!(pair.memory(0).load_u64(16).unwrap(), 40);
    assert_eq!(pair.memory(0).load_u64(24).unwrap(), 42);
    assert_eq!(pair.memory(1).load_u64(8).unwrap(), 7);
}

#[test]
fn a_write_with_immediate_consumes_a_receive_and_tells_its_length() {
    let mut pair = Pair::new(PathMtu::Mtu512);
    let immediate = Immediate([9; 4]);
    let remote = pair.remote(1, 0);
    pair.post_receive(1, 5, 0, 0);
    let write = SendOperation::WriteWithImmediate(remote, immediate);
    pair.post(0, 1, write, SendFlags::SIGNALED, (0, 3000));
    pair.run();
    let received = pair.completion(1);
    assert_eq!(received.kind, CompletionKind::ReceiveWriteWithImmediate);
    assert_eq!((received.length, received.attachment), (3000, Attachment::Immediate(immediate)));
}

#[test]
fn a_missing_receive_is_waited_for() {
    let mut pair = Pair::new(PathMtu::Mtu1024);
    pair.post(0, 1, SendOperation::Send, SendFlags::SIGNALED, (0, 100));
    pair.run_for(5_000_000);
    assert!(pair.try_completion(0).is_none());
    pair.post_receive(1, 2, 0, 4096);
    pair.run();
    assert_eq!(pair.completion(0).status, CompletionStatus::Success);
    assert_eq!(pair.completion(1).id, 2);
}

#[test]
fn refused_requests_complete_with_their_status_and_flush_the_rest() {
    type Break = fn(&mut Pair) -> SendOperation;
    let cases: [(&str, Break, CompletionStatus); 4] = [
        (
            "unknown key",
            |pair| {
                let mut remote = pair.remote(1, 0);
                remote.key = uroce::wire::Rkey::new(remote.key.value() ^ 1);
                SendOperation::Write(remote)
            },
            CompletionStatus::RemoteAccessError,
        ),
        (
            "out of bounds",
            |pair| SendOperation::Read(pair.remote(1, Ends::MEMORY - 4)),
            CompletionStatus::RemoteAccessError,
        ),
        (
            "too small a receive",
            |pair| {
                pair.post_receive(1, 3, 0, 7);
                SendOperation::Send
            },
            CompletionStatus::RemoteInvalidRequest,
        ),
        (
            "misaligned atomic",
            |pair| SendOperation::FetchAdd { remote: pair.remote(1, 4), add: 1 },
            CompletionStatus::RemoteInvalidRequest,
        ),
    ];
    for (name, operation, status) in cases {
        let mut pair = Pair::new(PathMtu::Mtu1024);
        let operation = operation(&mut pair);
        pair.post(0, 1, operation, SendFlags::NONE, (0, 8));
        let remote = pair.remote(1, 0);
        pair.post(0, 2, SendOperation::Write(remote), SendFlags::NONE, (0, 8));
        pair.run();
        let failed = pair.completion(0);
        assert_eq!((failed.id, failed.status), (1, status), "{name}");
        let flushed = pair.completion(0);
        assert_eq!((flushed.id, flushed.status), (2, CompletionStatus::WorkRequestFlushed));
    }
}

#[test]
fn inline_data_is_taken_at_once() {
    let mut pair = Pair::new(PathMtu::Mtu1024);
    let remote = pair.remote(1, 0);
    let mut bytes = *b"inline!";
    pair.post_payload(0, 1, SendOperation::Write(remote), SendFlags::NONE, Payload::Inline(&bytes));
    bytes.fill(0);
    pair.run();
    assert_eq!(pair.memory(1).to_vec(0, 8).unwrap(), *b"inline!\0");
    assert!(pair.try_completion(0).is_none(), "unsignaled");
}

#[test]
fn the_queue_pair_must_allow_what_the_peer_asks() {
    let mut pair = Pair::with_access(PathMtu::Mtu1024, Access::LOCAL_WRITE);
    let remote = pair.remote(1, 0);
    pair.post(0, 1, SendOperation::Read(remote), SendFlags::SIGNALED, (0, 8));
    pair.run();
    assert_eq!(pair.completion(0).status, CompletionStatus::RemoteInvalidRequest);
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + index / 251 + length) as u8).collect()
}
