//! UC and UD between two engines: what arrives, what is dropped, and that nobody ever answers.

mod pair;

use pair::{Pair, QKEY};
use uroce::engine::Counter;
use uroce::queue::{
    Access, AddressVector, Attachment, CompletionKind, CompletionStatus, Datagram, PathMtu,
    PostError, QueuePairAttributes, QueuePairKind, QueuePairState, Remote, SendFlags,
    SendOperation,
};
use uroce::wire::{Immediate, Packet, QKey, Rkey};

fn uc() -> Pair {
    Pair::of_kind(QueuePairKind::Uc, PathMtu::Mtu1024, Access::ALL)
}

fn ud() -> Pair {
    Pair::of_kind(QueuePairKind::Ud, PathMtu::Mtu1024, Access::ALL)
}

/// Side 1's queue pair as side 0 reaches it.
fn datagram(pair: &mut Pair, qkey: QKey) -> Datagram {
    let destination = pair.sides[1].engine.gids()[0];
    let queue_pair = pair.sides[1].queues.number();
    let side = &mut pair.sides[0];
    let vector = AddressVector::new(0, destination);
    let address = side.engine.create_address_handle(side.domain, &vector).unwrap();
    Datagram { address, queue_pair, qkey }
}

/// Side 0 sends; of the packets those whose numbers are in `lost` do not arrive.
fn carry(pair: &mut Pair, lost: &[usize]) -> usize {
    let side = &mut pair.sides[0];
    side.engine.turn(pair.now, &mut side.wire, 4096);
    let mut number = 0;
    for (burst, bytes) in std::mem::take(&mut side.wire.sent) {
        for (index, packet) in bytes.chunks(burst.segment).enumerate() {
            let mut alone = burst;
            alone.first_identification = burst.first_identification.wrapping_add(index as u16);
            (alone.segment, alone.length) = (packet.len(), packet.len());
            if !lost.contains(&number) {
                pair.sides[1].wire.arrived.push_back((alone, packet.to_vec()));
            }
            number += 1;
        }
    }
    let side = &mut pair.sides[1];
    side.engine.turn(pair.now, &mut side.wire, 4096);
    assert!(side.wire.sent.is_empty(), "there is never an answer");
    number
}

#[test]
fn uc_sends_and_writes_arrive_whole_and_complete_when_they_have_left() {
    let mut pair = uc();
    for length in [0_usize, 1, 1023, 1024, 1025, 5000] {
        let bytes: Vec<u8> = (0..length).map(|index| (index * 7 + length) as u8).collect();
        pair.memory(0).write(0, &bytes).unwrap();
        pair.post_receive(1, 7, 0, 8192);
        pair.post(0, 1, SendOperation::Send, SendFlags::SIGNALED, (0, length));
        carry(&mut pair, &[]);
        assert_eq!(pair.completion(0).status, CompletionStatus::Success);
        let received = pair.completion(1);
        assert_eq!((received.id, received.length as usize), (7, length));
        assert_eq!(pair.memory(1).to_vec(0, length).unwrap(), bytes);

        let remote = pair.remote(1, 100_000);
        let immediate = Immediate([4, 3, 2, 1]);
        pair.post_receive(1, 8, 0, 0);
        let write = SendOperation::WriteWithImmediate(remote, immediate);
        pair.post(0, 2, write, SendFlags::SIGNALED, (0, length));
        carry(&mut pair, &[]);
        assert_eq!(pair.completion(0).kind, CompletionKind::Write);
        let received = pair.completion(1);
        assert_eq!(received.attachment, Attachment::Immediate(immediate));
        assert_eq!(received.length as usize, length);
        assert_eq!(pair.memory(1).to_vec(100_000, length).unwrap(), bytes);
    }
}

#[test]
fn a_uc_message_that_lacks_a_packet_is_dropped_and_its_receive_serves_the_next() {
    for lost in 0..4 {
        let mut pair = uc();
        pair.post_receive(1, 1, 0, 8192);
        pair.memory(0).write(0, &[1; 4096]).unwrap();
        pair.post(0, 1, SendOperation::Send, SendFlags::SIGNALED, (0, 4096));
        assert_eq!(carry(&mut pair, &[lost]), 4);
        assert_eq!(pair.completion(0).status, CompletionStatus::Success, "the sender is not told");
        assert!(pair.try_completion(1).is_none(), "packet {lost} lost");

        pair.memory(0).write(0, &[2; 4096]).unwrap();
        pair.post(0, 2, SendOperation::Send, SendFlags::SIGNALED, (0, 2000));
        carry(&mut pair, &[]);
        let received = pair.completion(1);
        assert_eq!((received.id, received.length), (1, 2000), "packet {lost} lost");
        assert_eq!(pair.memory(1).to_vec(0, 2000).unwrap(), vec![2; 2000]);
    }
}

#[test]
fn what_uc_cannot_carry_out_is_dropped_without_error_on_either_side() {
    type Break = fn(&mut Pair) -> SendOperation;
    let cases: [(Break, Counter); 4] = [
        (|_| SendOperation::Send, Counter::DropNoReceive),
        (
            |pair| {
                pair.post_receive(1, 1, 0, 10);
                SendOperation::Send
            },
            Counter::DropFaultyRequest,
        ),
        (
            |pair| {
                let mut remote = pair.remote(1, 0);
                remote.key = Rkey::new(remote.key.value() ^ 1);
                SendOperation::Write(remote)
            },
            Counter::DropFaultyRequest,
        ),
        (
            |pair| {
                let address = pair.memory(1).address() + pair::Ends::MEMORY as u64;
                SendOperation::Write(Remote { address, ..pair.remote(1, 0) })
            },
            Counter::DropFaultyRequest,
        ),
    ];
    for (operation, counter) in cases {
        let mut pair = uc();
        let operation = operation(&mut pair);
        pair.post(0, 1, operation, SendFlags::SIGNALED, (0, 100));
        carry(&mut pair, &[]);
        assert_eq!(pair.completion(0).status, CompletionStatus::Success);
        assert_eq!(pair.sides[1].engine.counters().get(counter), 1);
        assert_eq!(pair.sides[1].queues.state(), QueuePairState::Rts);
        // The receive, if there was one, is still there.
        pair.post_receive(1, 9, 0, 200);
        pair.post(0, 2, SendOperation::Send, SendFlags::SIGNALED, (0, 5));
        carry(&mut pair, &[]);
        assert_eq!(pair.completion(1).status, CompletionStatus::Success);
    }
}

#[test]
fn a_local_fault_stops_the_send_queue_only_and_modify_starts_it_again() {
    let mut pair = uc();
    let mut segment = pair.sides[0].sge(0, 100);
    segment.key = uroce::wire::Lkey::new(segment.key.value() ^ 1);
    let payload = uroce::queue::Payload::Segments(std::slice::from_ref(&segment));
    pair.post_payload(0, 1, SendOperation::Send, SendFlags::NONE, payload);
    pair.post(0, 2, SendOperation::Send, SendFlags::NONE, (0, 10));
    pair.run();
    assert_eq!(pair.completion(0).status, CompletionStatus::LocalProtectionError);
    assert_eq!(pair.completion(0).status, CompletionStatus::WorkRequestFlushed);
    assert_eq!(pair.sides[0].queues.state(), QueuePairState::Sqe);
    // Sends are flushed, receives go on.
    pair.post(0, 3, SendOperation::Send, SendFlags::NONE, (0, 10));
    pair.run();
    assert_eq!(pair.completion(0).status, CompletionStatus::WorkRequestFlushed);
    pair.post_receive(0, 4, 0, 100);
    pair.post(1, 5, SendOperation::Send, SendFlags::NONE, (0, 10));
    pair.run();
    assert_eq!(pair.completion(0).id, 4);
    let number = pair.sides[0].queues.number();
    let rts = QueuePairAttributes::to_state(QueuePairState::Rts);
    pair.sides[0].engine.modify_queue_pair(pair.now, number, &rts).unwrap();
    pair.post_receive(1, 6, 0, 100);
    pair.post(0, 7, SendOperation::Send, SendFlags::SIGNALED, (0, 10));
    pair.run();
    assert_eq!(pair.completion(0).status, CompletionStatus::Success);
    assert_eq!(pair.completion(1).id, 6);
}

#[test]
fn a_datagram_arrives_behind_the_area_that_tells_its_sender() {
    let mut pair = ud();
    let to = datagram(&mut pair, QKEY);
    for immediate in [None, Some(Immediate([1, 2, 3, 4]))] {
        pair.memory(0).write(0, b"hello").unwrap();
        pair.post_receive(1, 1, 1000, 100);
        let send = SendOperation::SendTo { to, immediate };
        pair.post(0, 2, send, SendFlags::SIGNALED, (0, 5));
        carry(&mut pair, &[]);
        assert_eq!(pair.completion(0).status, CompletionStatus::Success);
        let received = pair.completion(1);
        assert_eq!((received.id, received.length), (1, 45));
        assert_eq!(received.source, pair.sides[0].queues.number());
        let expected = immediate.map_or(Attachment::None, Attachment::Immediate);
        assert_eq!(received.attachment, expected);
        let buffer = pair.memory(1).to_vec(1000, 45).unwrap();
        assert_eq!(
            (buffer[20], &buffer[32..36], &buffer[40..]),
            (0x45, &[10, 0, 0, 1][..], &b"hello"[..])
        );
    }
}

#[test]
fn datagrams_that_are_not_for_us_or_do_not_fit_are_dropped_and_the_receive_stays() {
    let mut pair = ud();
    let to = datagram(&mut pair, QKey::new(0x2222_2222));
    let send = SendOperation::SendTo { to, immediate: None };
    pair.post_receive(1, 1, 0, 44);
    pair.post(0, 1, send, SendFlags::NONE, (0, 4));
    carry(&mut pair, &[]);
    assert_eq!(pair.sides[1].engine.counters().get(Counter::DropQkeyMismatch), 1);
    let send = SendOperation::SendTo { to: Datagram { qkey: QKEY, ..to }, immediate: None };
    pair.post(0, 2, send, SendFlags::NONE, (0, 5));
    carry(&mut pair, &[]);
    assert_eq!(pair.sides[1].engine.counters().get(Counter::DropFaultyRequest), 1);
    pair.post(0, 3, send, SendFlags::NONE, (0, 4));
    carry(&mut pair, &[]);
    assert_eq!(pair.completion(1).length, 44);
    pair.post(0, 4, send, SendFlags::NONE, (0, 4));
    carry(&mut pair, &[]);
    assert_eq!(pair.sides[1].engine.counters().get(Counter::DropNoReceive), 1);
    assert_eq!(pair.sides[1].queues.state(), QueuePairState::Rts);
}

#[test]
fn a_queue_key_with_its_top_bit_set_stands_for_the_queue_pairs_own() {
    let mut pair = ud();
    let to = datagram(&mut pair, QKey::new(0x8000_0001));
    pair.post_receive(1, 1, 0, 100);
    pair.post(0, 1, SendOperation::SendTo { to, immediate: None }, SendFlags::NONE, (0, 4));
    carry(&mut pair, &[]);
    assert_eq!(pair.completion(1).status, CompletionStatus::Success);
}

#[test]
fn a_datagram_is_one_packet_and_longer_ones_fail_where_they_are_sent() {
    let mut pair = ud();
    let to = datagram(&mut pair, QKEY);
    let send = SendOperation::SendTo { to, immediate: None };
    pair.post_receive(1, 1, 0, 5000);
    pair.post(0, 1, send, SendFlags::SIGNALED, (0, 4096));
    carry(&mut pair, &[]);
    assert_eq!(pair.completion(1).length, 4136);
    assert_eq!(pair.completion(0).status, CompletionStatus::Success);
    pair.post(0, 2, send, SendFlags::NONE, (0, 4097));
    pair.run();
    assert_eq!(pair.completion(0).status, CompletionStatus::LocalLengthError);
    assert_eq!(pair.sides[0].queues.state(), QueuePairState::Sqe);
}

#[test]
fn operations_that_a_transport_lacks_are_refused_when_they_are_posted() {
    let pair = uc();
    let read = SendOperation::Read(pair.remote(1, 0));
    let request = uroce::queue::SendRequest {
        id: 1,
        operation: read,
        flags: SendFlags::NONE,
        payload: uroce::queue::Payload::EMPTY,
    };
    let refused = pair.sides[0].queues.post_one_send(&request);
    assert_eq!(refused, Err(PostError::NotSupported(QueuePairKind::Uc)));
    let mut pair = ud();
    let request = uroce::queue::SendRequest { operation: SendOperation::Send, ..request };
    let refused = pair.sides[0].queues.post_one_send(&request);
    assert_eq!(refused, Err(PostError::NotSupported(QueuePairKind::Ud)));
    // A destroyed address handle sends nothing.
    let to = datagram(&mut pair, QKEY);
    pair.sides[0].engine.destroy_address_handle(to.address).unwrap();
    pair.post(0, 1, SendOperation::SendTo { to, immediate: None }, SendFlags::NONE, (0, 4));
    pair.run();
    assert_eq!(pair.completion(0).status, CompletionStatus::LocalQueuePairOperationError);
}

#[test]
fn ack_request_is_never_set_without_acknowledgements() {
    let mut pair = uc();
    pair.post_receive(1, 1, 0, 8192);
    pair.post(0, 1, SendOperation::Send, SendFlags::SIGNALED, (0, 3000));
    let side = &mut pair.sides[0];
    side.engine.turn(pair.now, &mut side.wire, 64);
    for (burst, bytes) in &side.wire.sent {
        for packet in bytes.chunks(burst.segment) {
            assert!(!Packet::parse(packet).unwrap().headers.ack_request);
        }
    }
}

#[test]
fn many_datagrams_are_paced_and_all_leave() {
    let mut pair = ud();
    let to = datagram(&mut pair, QKEY);
    let send = SendOperation::SendTo { to, immediate: None };
    for id in 0..64 {
        pair.post_receive(1, id, 0, 4200);
        pair.post(0, id, send, SendFlags::SIGNALED, (0, 4096));
    }
    let side = &mut pair.sides[0];
    let report = side.engine.turn(pair.now, &mut side.wire, 4096);
    assert!(report.sent < 64, "the budget holds {} back", 64 - report.sent);
    assert!(report.next_deadline > pair.now && report.next_deadline < pair.now + 1_000_000);
    let sent = std::mem::take(&mut side.wire.sent);
    pair.sides[1].wire.arrived.extend(sent);
    pair.run();
    for id in 0..64 {
        assert_eq!(pair.completion(0).id, id);
        assert_eq!(pair.completion(1).id, id);
    }
}
