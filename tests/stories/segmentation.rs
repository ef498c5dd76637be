//! How messages are cut into packets, at every path MTU and around every boundary.

use uroce::queue::CompletionStatus::Success;
use uroce::queue::{PathMtu, Payload, QueueCapacities, SendFlags, SendOperation, SendRequest, Sge};
use uroce::wire::{Immediate, Message, Rkey, SendTail};

use crate::harness::{
    Frame, SOURCE, Setup, Story, TARGET, ack, ours, peer, peer_reth, read_request, read_responses,
    story, theirs, write_first, write_last, write_middle,
};

const IMMEDIATE: Immediate = Immediate([0xa1, 0xb2, 0xc3, 0xd4]);
const KEY: Rkey = Rkey::new(0x0bad_cafe);

/// The SENDs and WRITEs that have their own opcodes.
fn operations() -> [SendOperation; 5] {
    [
        SendOperation::Send,
        SendOperation::SendWithImmediate(IMMEDIATE),
        SendOperation::SendWithInvalidate(KEY),
        SendOperation::Write(peer(40)),
        SendOperation::WriteWithImmediate(peer(40), IMMEDIATE),
    ]
}

/// Packet `index` of `packets`, as the specification's opcodes have it.
fn message(operation: &SendOperation, index: usize, packets: usize, length: usize) -> Message {
    let reth = peer_reth(40, length);
    let (first, last) = (index == 0, index + 1 == packets);
    let send = |tail| match (first, last) {
        (true, true) => Message::SendOnly(tail),
        (true, false) => Message::SendFirst,
        (false, true) => Message::SendLast(tail),
        (false, false) => Message::SendMiddle,
    };
    let write = |immediate| match (first, last) {
        (true, true) => Message::WriteOnly(reth, immediate),
        (true, false) => Message::WriteFirst(reth),
        (false, true) => Message::WriteLast(immediate),
        (false, false) => Message::WriteMiddle,
    };
    match operation {
        SendOperation::Send => send(SendTail::Plain),
        SendOperation::SendWithImmediate(immediate) => send(SendTail::Immediate(*immediate)),
        SendOperation::SendWithInvalidate(key) => send(SendTail::Invalidate(*key)),
        SendOperation::Write(_) => write(None),
        SendOperation::WriteWithImmediate(_, immediate) => write(Some(*immediate)),
        other => panic!("{other:?} is not cut into packets"),
    }
}

/// Lengths around each boundary of the first three packets.
fn lengths(mtu: usize) -> [usize; 10] {
    [0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu - 1, 2 * mtu, 2 * mtu + 1, 3 * mtu]
}

#[test]
fn every_operation_is_cut_at_the_path_mtu_and_its_last_packet_asks_and_is_solicited() {
    for mtu in PathMtu::ALL {
        for operation in operations() {
            for solicited in [false, true] {
                let setup = Setup { mtu, ..Setup::default() };
                setup.tell(|s| cut(s, mtu.bytes(), &operation, solicited));
            }
        }
    }
}

fn cut(s: &mut Story, mtu: usize, operation: &SendOperation, solicited: bool) {
    let flags = SendFlags { solicited, ..SendFlags::NONE };
    // A plain WRITE consumes no receive, so there is nobody to wake.
    let solicited = solicited && !matches!(operation, SendOperation::Write(_));
    let mut psn = 0;
    for (message_number, length) in lengths(mtu).into_iter().enumerate() {
        let segment = s.sge(SOURCE, length);
        s.post(length as u64, *operation, flags, &[segment]);
        let data = ours(SOURCE, length);
        let pieces: Vec<&[u8]> = if length == 0 { vec![&[]] } else { data.chunks(mtu).collect() };
        for (index, piece) in pieces.iter().enumerate() {
            let mut frame = Frame::new(message(operation, index, pieces.len(), length), psn, piece);
            let last = index + 1 == pieces.len();
            frame.headers.ack_request = last;
            frame.headers.solicited = last && solicited;
            assert!(frame.headers.migration, "MigReq 1 unless asked otherwise");
            s.expect(frame);
            psn += 1;
        }
        s.deliver(ack(psn - 1, message_number as u32 + 1));
        let completion = s.expect_sent(length as u64, Success);
        assert_eq!(completion.length as usize, length);
    }
}

#[test]
fn a_read_asks_once_for_all_its_responses_at_every_path_mtu() {
    for mtu in PathMtu::ALL {
        let setup = Setup { mtu, ..Setup::default() };
        setup.tell(|s| {
            let mtu = mtu.bytes();
            let mut psn = 0;
            for (number, length) in lengths(mtu).into_iter().enumerate() {
                s.post_read(length as u64, length);
                s.expect(read_request(psn, peer_reth(0, length)));
                let data = theirs(number, length);
                let responses = read_responses(psn, number as u32 + 1, &data, mtu);
                psn += responses.len() as i32;
                s.deliver_all(responses);
                let completion = s.expect_sent(length as u64, Success);
                assert_eq!(completion.length as usize, length);
                assert_eq!(s.bytes(TARGET, length), data);
            }
        });
    }
}

#[test]
fn a_read_is_cut_into_chunks_of_64_kib_at_every_path_mtu() {
    const CHUNK: usize = 64 * 1024;
    for mtu in PathMtu::ALL {
        for length in [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1] {
            let mut setup = Setup { mtu, max_rd_atomic: 1, ..Setup::default() };
            setup.capacities = QueueCapacities { send_requests: 4, ..setup.capacities };
            setup.tell(|s| {
                s.post_read(1, length);
                let data = theirs(0, length);
                let mut psn = 0;
                for (number, chunk) in data.chunks(CHUNK).enumerate() {
                    let reth = peer_reth(number * CHUNK, chunk.len());
                    s.expect(read_request(psn, reth));
                    s.expect_nothing();
                    let responses = read_responses(psn, number as u32 + 1, chunk, mtu.bytes());
                    psn += responses.len() as i32;
                    s.deliver_all(responses);
                }
                s.expect_sent(1, Success);
                assert_eq!(s.bytes(TARGET, length), data);
                // Whoever comes next has the next PSN.
                s.post_send(2, 0);
                let sent = s.next_sent().expect("the SEND").frame;
                assert_eq!(sent.headers.psn.value(), psn as u32);
                s.deliver(ack(psn, 9));
                s.expect_sent(2, Success);
            });
        }
    }
}

#[test]
fn data_is_gathered_from_all_segments_in_order() {
    story(|s| {
        let segments: [Sge; 4] =
            [s.sge(100, 1), s.sge(5_000, 0), s.sge(9_000, 2_000), s.sge(20, 1_047)];
        s.post(1, SendOperation::Write(peer(0)), SendFlags::NONE, &segments);
        let data = [ours(100, 1), ours(9_000, 2_000), ours(20, 1_047)].concat();
        let reth = peer_reth(0, 3_048);
        s.expect(write_first(0, reth, &data[..1024]));
        s.expect(write_middle(1, &data[1024..2048]));
        s.expect(write_last(2, &data[2048..]).asking());
        s.deliver(ack(2, 1));
        s.expect_sent(1, Success);
    });
}

#[test]
fn inline_data_is_what_it_was_when_it_was_posted_also_in_a_retry() {
    let mut setup = Setup { mtu: PathMtu::Mtu256, ..Setup::default() };
    setup.capacities.inline_bytes = 600;
    setup.tell(|s| {
        let mut data = theirs(3, 600);
        let request = SendRequest {
            id: 1,
            operation: SendOperation::Write(peer(0)),
            flags: SendFlags::NONE,
            payload: Payload::Inline(&data),
        };
        s.pairs[0].post_one_send(&request).unwrap();
        data.fill(0);
        let data = theirs(3, 600);
        let frames = [
            write_first(0, peer_reth(0, 600), &data[..256]),
            write_middle(1, &data[256..512]),
            write_last(2, &data[512..]).asking(),
        ];
        s.expect_all(frames.clone());
        s.deliver(crate::harness::sequence_nak(1, 0));
        s.expect_all(frames[1..].to_vec());
        s.deliver(ack(2, 1));
        s.expect_sent(1, Success);
    });
}

/// What a packet costs of the window, and how large that is at first.
const COST: usize = 832 + 2 * 1024;
const WINDOW: usize = 128 * 1024;

#[test]
fn the_packet_that_fills_the_window_asks_wherever_it_lies_and_so_does_each_quarter() {
    story(|s| {
        let packets = 100;
        let data = ours(SOURCE, packets * 1024);
        s.post_write(1, packets * 1024);
        let sent: Vec<_> = std::iter::from_fn(|| s.next_sent().map(|sent| sent.frame)).collect();
        let fits = WINDOW / COST;
        assert_eq!(sent.len(), fits, "as many packets as the window takes");
        // No quarter of the window goes out without a packet that asks.
        let mut unasked = 0;
        for (index, frame) in sent.iter().enumerate() {
            unasked += COST;
            let asks = unasked > WINDOW / 4 || index + 1 == fits;
            assert_eq!(frame.headers.ack_request, asks, "packet {index}");
            assert_eq!(frame.payload, data[index * 1024..][..1024]);
            if asks {
                unasked = 0;
            }
        }
        // An ACK in the middle makes room for as many, and for what the window has grown by.
        s.deliver(ack(9, 0));
        let more: Vec<_> = std::iter::from_fn(|| s.next_sent().map(|sent| sent.frame)).collect();
        let grown = WINDOW + 32 * 1024 * (10 * COST) / WINDOW;
        assert_eq!(more.len(), grown / COST - (fits - 10));
        assert!(more.last().is_some_and(|frame| frame.headers.ack_request));
        assert_eq!(more[0].headers.psn.value() as usize, fits);
    });
}
