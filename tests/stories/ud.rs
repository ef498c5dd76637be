//! Datagrams: what a receive holds, what is dropped without a word, and the queue pair's states.

use std::net::IpAddr;

use uroce::engine::Counter::{
    self, DropFaultyRequest, DropNoReceive, DropPkeyMismatch, DropQkeyMismatch,
    DropUnexpectedOpcode, DropWrongAddress, DropWrongState, DropWrongTransport,
};
use uroce::queue::CompletionStatus::{
    LocalLengthError, LocalProtectionError, LocalQueuePairOperationError, Success,
    WorkRequestFlushed,
};
use uroce::queue::QueuePairState::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
use uroce::queue::{
    AddressVector, Attachment, Datagram, QueuePairAttributes, QueuePairKind, ReceiveRequest,
    SendFlags, SendOperation, Sge,
};
use uroce::wire::{Flow, Immediate, Lkey, QKey, Qpn};

use crate::harness::{
    Event, Frame, PEER, QKEY, RECEIVE, SOURCE, Setup, Story, ours, send_first, send_last,
    send_middle, send_only, send_only_immediate, theirs, write_only,
};

/// Bytes of the area before the payload.
const AREA: usize = 40;
/// The sender of most datagrams.
const SENDER: u32 = 0x00_0b17;

pub fn ud() -> Setup {
    Setup { kind: QueuePairKind::Ud, ..Setup::default() }
}

fn datagram(length: usize) -> Frame {
    send_only(0, &theirs(0, length)).ud(QKEY, SENDER)
}

fn drops(s: &Story) -> u64 {
    let reasons = Counter::ALL.iter().filter(|counter| counter.name().starts_with("drop_"));
    reasons.map(|counter| s.count(*counter)).sum()
}

/// The peer's queue pair, as our datagrams reach it.
fn to_peer(s: &mut Story, qkey: QKey) -> Datagram {
    let vector = AddressVector::new(0, s.setup.peer_address(0));
    let address = s.engine.create_address_handle(s.domain, &vector).unwrap();
    Datagram { address, queue_pair: Qpn::new(PEER), qkey }
}

fn post_datagram(s: &mut Story, id: u64, to: Datagram, length: usize) {
    let segment = s.sge(SOURCE, length);
    s.post(id, SendOperation::SendTo { to, immediate: None }, SendFlags::NONE, &[segment]);
}

/// Nothing came of what was delivered but one drop for `counter`; the receive (1) that was posted
/// takes the next datagram.
#[track_caller]
fn expect_dropped(s: &mut Story, counter: Counter) {
    s.expect_nothing();
    assert_eq!((s.count(counter), drops(s)), (1, 1), "{}", counter.name());
    assert_eq!(s.bytes(RECEIVE, 60), ours(RECEIVE, 60), "nothing was written");
    s.deliver(datagram(9));
    assert_eq!(s.expect_received(1, Success).length as usize, AREA + 9);
    assert_eq!(s.bytes(RECEIVE + AREA, 9), theirs(0, 9));
    assert_eq!(s.state(), Rts);
}

/// One's complement sum over a header, 0xffff if its checksum is right.
fn sum_of(header: &[u8]) -> u32 {
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16)
}

#[test]
fn the_area_of_ipv4_is_twenty_unused_bytes_and_a_header_with_a_right_checksum() {
    ud().tell(|s| {
        for length in [0, 1, 3, 1024] {
            s.post_receive(1, AREA + length);
            s.deliver(datagram(length));
            let received = s.expect_received(1, Success);
            assert_eq!(received.length as usize, AREA + length, "byte_len counts the area");
            assert_eq!(
                (received.source, received.attachment),
                (Qpn::new(SENDER), Attachment::None)
            );
            let area = s.bytes(RECEIVE, AREA);
            assert_eq!(area[..20], [0; 20]);
            let header = &area[20..];
            assert_eq!(header[0], 0x45, "IPv4 without options");
            let packet = 12 + 8 + length.div_ceil(4) * 4 + 4;
            assert_eq!(usize::from(header[2]) << 8 | usize::from(header[3]), 20 + 8 + packet);
            assert_eq!((header[9], sum_of(header)), (17, 0xffff));
            assert_eq!((&header[12..16], &header[16..]), (&[10, 0, 0, 2][..], &[10, 0, 0, 1][..]));
            assert_eq!(s.bytes(RECEIVE + AREA, length), theirs(0, length));
            // A byte more belongs to nobody.
            assert_eq!(s.bytes(RECEIVE + AREA + length, 1), ours(RECEIVE + AREA + length, 1));
        }
    });
}

#[test]
fn the_area_of_ipv6_is_the_header() {
    let setup = Setup { ipv6: true, ..ud() };
    setup.tell(|s| {
        s.post_receive(1, 100);
        s.deliver(datagram(8));
        assert_eq!(s.expect_received(1, Success).length as usize, AREA + 8);
        let area = s.bytes(RECEIVE, AREA);
        assert_eq!((area[0] >> 4, area[6]), (6, 17));
        assert_eq!(usize::from(area[4]) << 8 | usize::from(area[5]), 8 + 12 + 8 + 8 + 4);
        let IpAddr::V6(peer) = s.setup.peer_address(0) else { panic!("an IPv6 story") };
        let IpAddr::V6(own) = s.setup.our_address() else { panic!("an IPv6 story") };
        assert_eq!((&area[8..24], &area[24..]), (&peer.octets()[..], &own.octets()[..]));
    });
}

#[test]
fn an_immediate_and_the_solicited_bit_reach_the_completion() {
    ud().tell(|s| {
        s.post_receive(1, 100);
        let frame = send_only_immediate(0, &theirs(0, 4), [1, 2, 3, 4]).ud(QKEY, SENDER);
        s.deliver(frame.solicited());
        let received = s.expect_received(1, Success);
        assert_eq!(received.attachment, Attachment::Immediate(Immediate([1, 2, 3, 4])));
        assert!(received.solicited);
    });
}

#[test]
fn the_area_and_the_payload_go_through_all_segments_of_a_receive() {
    ud().tell(|s| {
        let segments = [s.sge(RECEIVE, 10), s.sge(RECEIVE + 100, 31), s.sge(RECEIVE + 200, 50)];
        let request = ReceiveRequest { id: 1, segments: &segments };
        s.pairs[0].post_one_receive(&request).unwrap();
        s.deliver(datagram(30));
        assert_eq!(s.expect_received(1, Success).length as usize, AREA + 30);
        let whole =
            [s.bytes(RECEIVE, 10), s.bytes(RECEIVE + 100, 31), s.bytes(RECEIVE + 200, 29)].concat();
        assert_eq!((whole[20], &whole[AREA..]), (0x45, &theirs(0, 30)[..]));
    });
}

#[test]
fn a_datagram_that_does_not_fit_its_receive_is_dropped_whole() {
    for (room, length) in [(AREA + 7, 8), (AREA - 1, 0), (0, 0), (AREA + 8, 1024)] {
        ud().tell(|s| {
            s.post_receive(7, room);
            s.deliver(datagram(length));
            s.expect_nothing();
            assert_eq!((s.count(DropFaultyRequest), drops(s)), (1, 1));
            assert_eq!(s.bytes(RECEIVE, 60), ours(RECEIVE, 60), "not even the area");
            assert_eq!(s.state(), Rts);
            // The receive waits for one that fits.
            if room >= AREA {
                s.deliver(datagram(room - AREA));
                assert_eq!(s.expect_received(7, Success).length as usize, room);
            }
        });
    }
}

#[test]
fn a_receive_whose_own_key_is_wrong_takes_nothing_and_stays() {
    ud().tell(|s| {
        let wrong = Lkey::new(s.keys.local.value() ^ 1);
        // A good segment before the bad one is not written either.
        let segments = [s.sge(RECEIVE, 45), Sge { key: wrong, ..s.sge(RECEIVE + 100, 60) }];
        let request = ReceiveRequest { id: 1, segments: &segments };
        s.pairs[0].post_one_receive(&request).unwrap();
        s.deliver(datagram(8));
        s.expect_nothing();
        assert_eq!((s.count(DropFaultyRequest), drops(s)), (1, 1));
        assert_eq!(s.bytes(RECEIVE, 40), ours(RECEIVE, 40));
        s.modify(&QueuePairAttributes::to_state(Error)).unwrap();
        s.expect_received(1, WorkRequestFlushed);
    });
}

#[test]
fn the_queue_key_must_be_the_queue_pairs_own_in_all_bits() {
    for bit in 0..32 {
        ud().tell(|s| {
            s.post_receive(1, 100);
            let qkey = QKey::new(QKEY.value() ^ 1 << bit);
            s.deliver(send_only(0, &theirs(0, 8)).ud(qkey, SENDER));
            expect_dropped(s, DropQkeyMismatch);
        });
    }
}

#[test]
fn a_partition_key_matches_in_15_bits_if_one_side_is_a_full_member() {
    // Ours is 0xffff, a full member: limited members of the same partition get through.
    for (pkey, admitted) in [
        (0xffff, true),
        (0x7fff, true),
        (0xfffe, false),
        (0x7ffe, false),
        (0x8000, false),
        (0, false),
    ] {
        ud().tell(|s| {
            s.post_receive(1, 100);
            s.deliver(datagram(8).pkey(pkey));
            if admitted {
                s.expect_received(1, Success);
            } else {
                expect_dropped(s, DropPkeyMismatch);
            }
        });
    }
}

#[test]
fn without_a_receive_a_datagram_is_dropped() {
    ud().tell(|s| {
        s.deliver(datagram(8));
        s.expect_nothing();
        s.post_receive(1, 100);
        expect_dropped(s, DropNoReceive);
    });
}

#[test]
fn datagrams_are_only_messages() {
    // No other opcode of the class exists, and the other transports' do not reach the queue pair.
    for opcode in (0x60..0x80_u8).filter(|opcode| ![0x64, 0x65].contains(opcode)) {
        ud().tell(|s| {
            s.post_receive(1, 100);
            let mut bytes = s.encode(datagram(40));
            bytes[0] = opcode;
            let flow = s.flow();
            s.deliver_bytes(flow, bytes);
            expect_dropped(s, DropUnexpectedOpcode);
        });
    }
    let frames: [fn(&Story) -> Frame; 5] = [
        |_| send_only(0, &theirs(0, 8)).asking(),
        |_| send_first(0, &theirs(0, 1024)).uc(),
        |_| send_middle(0, &theirs(0, 1024)),
        |_| send_last(0, &theirs(0, 8)).uc(),
        |s| write_only(0, s.reth(RECEIVE, 8), &theirs(0, 8)).asking(),
    ];
    for frame in frames {
        ud().tell(|s| {
            s.post_receive(1, 100);
            s.deliver(frame(s));
            expect_dropped(s, DropWrongTransport);
        });
    }
}

#[test]
fn datagrams_come_from_anybody_in_any_order_and_ask_for_nothing() {
    ud().tell(|s| {
        for (id, psn) in [5, 5, 0, -9, 1 << 22].into_iter().enumerate() {
            s.post_receive(id as u64, 100);
            let source = IpAddr::from([10, 9, 9, id as u8]);
            let flow = Flow { source, ..s.flow() };
            let frame = send_only(psn, &theirs(0, 8)).ud(QKEY, id as u32 + 7).asking();
            s.deliver_on(flow, frame);
            let received = s.expect_received(id as u64, Success);
            assert_eq!(received.source, Qpn::new(id as u32 + 7));
            assert_eq!(s.bytes(RECEIVE + 32, 4), [10, 9, 9, id as u8], "the sender's address");
        }
        s.expect_nothing();
        let flow = Flow { destination: IpAddr::from([10, 0, 0, 77]), ..s.flow() };
        s.post_receive(1, 100);
        s.deliver_on(flow, datagram(8));
        s.expect_nothing();
        assert_eq!((s.count(DropWrongAddress), drops(s)), (1, 1));
    });
}

#[test]
fn datagrams_in_states_that_do_not_receive_are_dropped_and_the_first_in_rtr_is_told() {
    for state in [Init, Error] {
        let setup = Setup { state, ..ud() };
        setup.tell(|s| {
            s.deliver(datagram(8));
            s.expect_nothing();
            assert_eq!((s.count(DropWrongState), drops(s)), (1, 1));
        });
    }
    let setup = Setup { state: Rtr, ..ud() };
    setup.tell(|s| {
        for id in [1, 2] {
            s.post_receive(id, 100);
            s.deliver(datagram(8));
            s.expect_received(id, Success);
        }
        s.expect_event(Event::Established(0));
        s.expect_nothing();
    });
}

#[test]
fn a_failed_send_stops_sending_only_and_sqe_ends_by_modify() {
    ud().tell(|s| {
        let to = to_peer(s, QKEY);
        let bad = Sge { key: Lkey::new(1), ..s.sge(SOURCE, 8) };
        s.post(1, SendOperation::SendTo { to, immediate: None }, SendFlags::NONE, &[bad]);
        post_datagram(s, 2, to, 8);
        s.expect_sent(1, LocalProtectionError);
        s.expect_sent(2, WorkRequestFlushed);
        assert_eq!(s.state(), Sqe);
        post_datagram(s, 3, to, 8);
        s.expect_sent(3, WorkRequestFlushed);
        s.post_receive(4, 100);
        s.deliver(datagram(8));
        s.expect_received(4, Success);
        // A new queue key may come with it.
        let fresh = QKey::new(0x2222);
        let again = QueuePairAttributes {
            qkey: Some(fresh),
            current_state: Some(Sqe),
            ..QueuePairAttributes::to_state(Rts)
        };
        s.modify(&again).unwrap();
        post_datagram(s, 5, Datagram { qkey: QKey::new(0x8000_0000), ..to }, 8);
        let expected = send_only(0, &ours(SOURCE, 8)).ud(fresh, s.number().value());
        s.expect(expected);
        s.expect_sent(5, Success);
        s.modify(&QueuePairAttributes::to_state(Reset)).unwrap();
        assert_eq!(s.state(), Reset);
    });
}

#[test]
fn each_way_to_fail_a_send_has_its_status() {
    ud().tell(|s| {
        let to = to_peer(s, QKEY);
        // The interface carries datagrams of 4096 bytes, the largest path MTU.
        post_datagram(s, 1, to, 4097);
        s.expect_sent(1, LocalLengthError);
        s.modify(&QueuePairAttributes::to_state(Rts)).unwrap();
        s.engine.destroy_address_handle(to.address).unwrap();
        post_datagram(s, 2, to, 8);
        s.expect_sent(2, LocalQueuePairOperationError);
        assert_eq!(s.state(), Sqe);
    });
}

#[test]
fn sqd_holds_datagrams_back_and_tells_when_asked() {
    ud().tell(|s| {
        let to = to_peer(s, QKEY);
        let drain = QueuePairAttributes {
            drain_notification: Some(true),
            ..QueuePairAttributes::to_state(Sqd)
        };
        s.modify(&drain).unwrap();
        s.expect_event(Event::Drained(0));
        post_datagram(s, 1, to, 8);
        s.expect_nothing();
        s.post_receive(2, 100);
        s.deliver(datagram(8));
        s.expect_received(2, Success);
        s.modify(&QueuePairAttributes::to_state(Rts)).unwrap();
        s.expect(send_only(0, &ours(SOURCE, 8)).ud(QKEY, s.number().value()));
        s.expect_sent(1, Success);
    });
}

#[test]
fn the_senders_queue_key_is_its_own_where_the_requests_has_bit_31() {
    for (asked, sent) in
        [(0x1234, 0x1234), (0x8000_1234, QKEY.value()), (0xffff_ffff, QKEY.value()), (0, 0)]
    {
        ud().tell(|s| {
            let to = to_peer(s, QKey::new(asked));
            post_datagram(s, 1, to, 8);
            let frame = s.next_sent().expect("the datagram").frame;
            let expected = send_only(0, &ours(SOURCE, 8));
            assert_eq!(frame, expected.ud(QKey::new(sent), s.number().value()));
            s.expect_sent(1, Success);
        });
    }
}

#[test]
fn the_partition_key_is_judged_before_the_queue_key_and_that_before_the_rest() {
    // Each with everything behind it wrong as well: another opcode's shape, no receive.
    ud().tell(|s| {
        let other = QKey::new(QKEY.value() ^ 1);
        s.deliver(send_only(0, &theirs(0, 8)).ud(other, SENDER).pkey(0x7ffe));
        s.expect_nothing();
        assert_eq!((s.count(DropPkeyMismatch), drops(s)), (1, 1));
        s.deliver(send_only(0, &theirs(0, 8)).ud(other, SENDER));
        s.expect_nothing();
        assert_eq!((s.count(DropQkeyMismatch), drops(s)), (1, 2));
        s.deliver(datagram(8));
        s.expect_nothing();
        assert_eq!((s.count(DropNoReceive), drops(s)), (1, 3));
    });
}
