//! What arrives on an unreliable connection: never an answer, and what cannot be carried out is
//! dropped, with its receive kept and rewound for the next message.

use uroce::engine::Counter::{
    self, DropFaultyRequest, DropIncompleteMessage, DropNoReceive, DropPkeyMismatch,
    DropUnexpectedOpcode, DropWrongAddress, DropWrongState, DropWrongTransport, OutOfSequence,
};
use uroce::queue::CompletionStatus::{Success, WorkRequestFlushed};
use uroce::queue::QueuePairState::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
use uroce::queue::{
    Access, Attachment, CompletionKind, QueuePairAttributes, QueuePairKind, ReceiveRequest,
    SendFlags, SendOperation, Sge,
};
use uroce::wire::{Immediate, Lkey, Reth, Rkey};

use crate::harness::{
    BASE, Event, Frame, MEMORY, RECEIVE, SERVED, SOURCE, Setup, Story, ours, peer, peer_reth,
    send_first, send_last, send_middle, send_only, send_only_immediate, theirs, write_first,
    write_last, write_last_immediate, write_middle, write_only, write_only_immediate,
};

const MTU: usize = 1024;
/// The receive that is posted last.
const NEW: u64 = 99;

fn uc() -> Setup {
    Setup { kind: QueuePairKind::Uc, ..Setup::default() }
}

/// A SEND of these pieces of the peer's bytes, its first packet with `psn`.
fn send(psn: i32, lengths: &[usize]) -> Vec<Frame> {
    let last = lengths.len() - 1;
    let frame = |(index, length): (usize, &usize)| {
        let (psn, bytes) = (psn + index as i32, theirs(index * MTU, *length));
        match (index, index == last) {
            (0, true) => send_only(psn, &bytes),
            (0, false) => send_first(psn, &bytes),
            (_, false) => send_middle(psn, &bytes),
            (_, true) => send_last(psn, &bytes),
        }
        .uc()
    };
    lengths.iter().enumerate().map(frame).collect()
}

/// A WRITE of these pieces to `reth`, the last with an immediate if asked for.
fn write(psn: i32, reth: Reth, lengths: &[usize], immediate: bool) -> Vec<Frame> {
    let last = lengths.len() - 1;
    let frame = |(index, length): (usize, &usize)| {
        let (psn, bytes) = (psn + index as i32, theirs(index * MTU, *length));
        match (index, index == last, immediate) {
            (0, true, false) => write_only(psn, reth, &bytes),
            (0, true, true) => write_only_immediate(psn, reth, &bytes, [7; 4]),
            (0, false, _) => write_first(psn, reth, &bytes),
            (_, false, _) => write_middle(psn, &bytes),
            (_, true, false) => write_last(psn, &bytes),
            (_, true, true) => write_last_immediate(psn, &bytes, [7; 4]),
        }
        .uc()
    };
    lengths.iter().enumerate().map(frame).collect()
}

/// Drops of all reasons.
fn drops(s: &Story) -> u64 {
    let reasons = Counter::ALL.iter().filter(|counter| counter.name().starts_with("drop_"));
    reasons.map(|counter| s.count(*counter)).sum()
}

/// Nothing came of what was delivered but `counted`; a SEND that follows at `psn` is received as if
/// nothing had been, by the oldest receive, which has the number `receive`, from its start.
#[track_caller]
fn expect_dropped(s: &mut Story, psn: i32, receive: u64, counted: &[(Counter, u64)]) {
    s.expect_nothing();
    for (counter, count) in counted {
        assert_eq!(s.count(*counter), *count, "{}", counter.name());
    }
    let expected: u64 = counted.iter().filter(|(c, _)| *c != OutOfSequence).map(|(_, n)| n).sum();
    assert_eq!(drops(s), expected, "one reason for one packet");
    assert_eq!(s.state(), Rts);
    s.post_receive(NEW, 4 * MTU);
    let fresh = [theirs(50_000, MTU), theirs(60_000, 9)];
    s.deliver(send_first(psn, &fresh[0]).uc());
    s.deliver(send_last(psn + 1, &fresh[1]).uc());
    assert_eq!(s.expect_received(receive, Success).length as usize, MTU + 9);
    assert_eq!(s.bytes(RECEIVE, MTU + 9), fresh.concat());
}

/// Delivers the frames to a queue pair with one receive (1) of four MTUs, and expects that they are
/// dropped for these reasons.
#[track_caller]
fn dropped(setup: &Setup, frames: impl Fn(&Story) -> Vec<Frame>, counted: &[(Counter, u64)]) {
    setup.tell(|s| {
        s.post_receive(1, 4 * MTU);
        let frames = frames(s);
        let next = frames.iter().map(|frame| frame.headers.psn.value() as i32 + 1).max();
        s.deliver_all(frames);
        expect_dropped(s, next.unwrap_or(0), 1, counted);
    });
}

const FAULT: &[(Counter, u64)] = &[(DropFaultyRequest, 1)];
/// The faulty packet, and one behind it that is passed over.
const FAULT_INSIDE: &[(Counter, u64)] = &[(DropFaultyRequest, 1), (DropIncompleteMessage, 1)];

#[test]
fn a_send_that_does_not_fit_its_receive_is_dropped_whichever_packet_shows_it() {
    for lengths in [&[MTU; 5][..], &[MTU, MTU, MTU, MTU, 1]] {
        dropped(&uc(), |_| send(0, lengths), FAULT);
    }
    // The fifth of six shows it, and the sixth is passed over.
    dropped(&uc(), |_| send(0, &[MTU; 6]), FAULT_INSIDE);
    uc().tell(|s| {
        s.post_receive(1, 4);
        s.deliver_all(send(0, &[5]));
        s.expect_nothing();
        s.deliver_all(send(1, &[4]));
        assert_eq!(s.expect_received(1, Success).length, 4);
        assert_eq!(s.count(DropFaultyRequest), 1);
    });
}

#[test]
fn a_receive_whose_own_key_is_wrong_takes_nothing_and_stays() {
    uc().tell(|s| {
        let key = Lkey::new(s.keys.local.value() ^ 1);
        let segments = [Sge { key, ..s.sge(RECEIVE, 4 * MTU) }];
        let request = ReceiveRequest { id: 1, segments: &segments };
        s.pairs[0].post_one_receive(&request).unwrap();
        s.deliver_all(send(0, &[8]));
        s.deliver_all(send(1, &[MTU, 8]));
        s.expect_nothing();
        assert_eq!(s.count(DropFaultyRequest), 2);
        assert_eq!(s.count(DropIncompleteMessage), 1);
        assert_eq!(s.bytes(RECEIVE, 8), ours(RECEIVE, 8));
        // It is still the oldest.
        s.modify(&QueuePairAttributes::to_state(Error)).unwrap();
        s.expect_received(1, WorkRequestFlushed);
    });
}

#[test]
fn a_write_that_its_key_does_not_allow_is_dropped_in_every_shape() {
    let faults: [fn(&mut Story, &mut Reth); 4] = [
        |_, reth| reth.key = Rkey::new(reth.key.value() ^ 1),
        |_, reth| reth.address = BASE + MEMORY as u64 - 1,
        |s, reth| {
            let other = s.engine.allocate_domain().unwrap();
            let memory = std::sync::Arc::clone(&s.memory);
            let all = 0..MEMORY;
            let keys = s.engine.register_part(other, memory, all, BASE, Access::ALL).unwrap();
            reth.key = keys.remote;
        },
        |s, reth| {
            let memory = std::sync::Arc::clone(&s.memory);
            let (all, read) = (0..MEMORY, Access::REMOTE_READ);
            let keys = s.engine.register_part(s.domain, memory, all, BASE, read).unwrap();
            reth.key = keys.remote;
        },
    ];
    for fault in faults {
        for (lengths, immediate) in
            [(&[8][..], false), (&[8], true), (&[MTU, MTU, 8], false), (&[MTU, MTU, 8], true)]
        {
            uc().tell(|s| {
                s.post_receive(1, 4 * MTU);
                let mut reth = s.reth(SERVED, lengths.iter().sum());
                fault(s, &mut reth);
                s.deliver_all(write(0, reth, lengths, immediate));
                s.expect_nothing();
                assert_eq!(s.bytes(SERVED, 8), ours(SERVED, 8));
                let passed = lengths.len() as u64 - 1;
                let counted = [(DropFaultyRequest, 1), (DropIncompleteMessage, passed)];
                expect_dropped(s, lengths.len() as i32, 1, &counted);
            });
        }
    }
}

#[test]
fn a_key_that_ends_inside_a_write_drops_the_rest_and_keeps_the_receive() {
    uc().tell(|s| {
        s.post_receive(1, 4 * MTU);
        let memory = std::sync::Arc::clone(&s.memory);
        let keys = s.engine.register_part(s.domain, memory, 0..MEMORY, BASE, Access::ALL).unwrap();
        let reth = Reth { key: keys.remote, ..s.reth(SERVED, 2 * MTU + 8) };
        let frames = write(0, reth, &[MTU, MTU, 8], true);
        s.deliver_all(frames[..2].to_vec());
        s.expect_nothing();
        assert_eq!(s.bytes(SERVED, MTU), theirs(0, MTU), "what has arrived is there");
        s.engine.deregister(keys.local).unwrap();
        s.deliver(frames[2].clone());
        expect_dropped(s, 3, 1, FAULT);
    });
}

#[test]
fn an_operation_that_the_queue_pair_does_not_allow_is_dropped() {
    let setup = Setup { access: Access::REMOTE_READ, ..uc() };
    for (lengths, counted) in [(&[8][..], FAULT), (&[MTU, 8], FAULT_INSIDE)] {
        dropped(
            &setup,
            |s| write(0, s.reth(SERVED, lengths.iter().sum()), lengths, false),
            counted,
        );
        dropped(&setup, |s| write(0, s.reth(SERVED, lengths.iter().sum()), lengths, true), counted);
    }
}

#[test]
fn opcodes_that_unreliable_connections_lack_are_dropped_before_anything_is_looked_at() {
    // All of 0x20..0x3f beyond RDMA WRITE: reserved, or only of reliable transports.
    for opcode in 0x2c..0x40_u8 {
        uc().tell(|s| {
            s.post_receive(1, 4 * MTU);
            let flow = s.flow();
            let mut bytes = s.encode(send_only(0, &theirs(0, 40)).uc());
            bytes[0] = opcode;
            s.deliver_bytes(flow, bytes);
            expect_dropped(s, 0, 1, &[(DropUnexpectedOpcode, 1)]);
        });
    }
}

#[test]
fn packets_of_other_transports_do_not_reach_an_unreliable_connection() {
    uc().tell(|s| {
        s.post_receive(1, 4 * MTU);
        s.deliver(send_only(0, &theirs(0, 8)).asking());
        let qkey = s.setup.qkey;
        s.deliver(send_only(0, &theirs(0, 8)).ud(qkey, 5));
        expect_dropped(s, 0, 1, &[(DropWrongTransport, 2)]);
    });
}

#[test]
fn an_opcode_out_of_sequence_drops_the_message_and_a_first_starts_the_next() {
    let bytes = |length| theirs(0, length);
    // Outside of a message.
    dropped(&uc(), |_| vec![send_middle(0, &bytes(MTU)).uc()], FAULT);
    dropped(&uc(), |_| vec![send_last(0, &bytes(8)).uc()], FAULT);
    dropped(&uc(), |_| vec![write_middle(0, &bytes(MTU)).uc()], FAULT);
    dropped(&uc(), |_| vec![write_last(0, &bytes(8)).uc()], FAULT);
    dropped(&uc(), |_| vec![write_last_immediate(0, &bytes(8), [1; 4]).uc()], FAULT);
    // Of the other kind inside of one.
    let cases: [fn(&Story) -> Vec<Frame>; 4] = [
        |_| vec![send_first(0, &theirs(0, MTU)), write_middle(1, &theirs(0, MTU))],
        |_| vec![send_first(0, &theirs(0, MTU)), write_last(1, &theirs(0, 8))],
        |s| {
            let first = write_first(0, s.reth(SERVED, 2 * MTU), &theirs(0, MTU));
            vec![first, send_middle(1, &theirs(0, MTU))]
        },
        |s| {
            let first = write_first(0, s.reth(SERVED, MTU + 8), &theirs(0, MTU));
            vec![first, send_last(1, &theirs(0, 8))]
        },
    ];
    for case in cases {
        dropped(&uc(), |s| case(s).into_iter().map(Frame::uc).collect(), FAULT);
    }
    // What starts a message inside of one ends that one without a word, and is taken.
    dropped(&uc(), |_| vec![send_first(0, &theirs(0, MTU)).uc()], &[]);
    dropped(&uc(), |s| write(0, s.reth(SERVED, 2 * MTU), &[MTU], false), FAULT);
    let half = |s: &Story| {
        let first = write_first(0, s.reth(SERVED, 2 * MTU), &theirs(0, MTU));
        vec![first.uc()]
    };
    dropped(&uc(), half, &[]);
}

#[test]
fn lengths_that_contradict_the_opcode_drop_the_message() {
    for lengths in [&[MTU - 1, 8][..], &[MTU + 4, 8], &[0, 8]] {
        dropped(&uc(), |_| send(0, lengths), FAULT_INSIDE);
        dropped(&uc(), |s| write(0, s.reth(SERVED, MTU + 8), lengths, false), FAULT_INSIDE);
    }
    for lengths in [&[MTU, MTU - 1, 8][..], &[MTU, MTU + 4, 8], &[MTU, 0, 8]] {
        dropped(&uc(), |_| send(0, lengths), FAULT_INSIDE);
        dropped(&uc(), |s| write(0, s.reth(SERVED, 2 * MTU + 8), lengths, true), FAULT_INSIDE);
    }
    for lengths in [&[MTU, 0][..], &[MTU, MTU + 1], &[MTU + 1]] {
        dropped(&uc(), |_| send(0, lengths), FAULT);
        let total = lengths.iter().sum();
        dropped(&uc(), |s| write(0, s.reth(SERVED, total), lengths, false), FAULT);
        dropped(&uc(), |s| write(0, s.reth(SERVED, total), lengths, true), FAULT);
    }
}

#[test]
fn a_write_whose_packets_are_not_its_dma_length_is_dropped() {
    for (length, lengths, counted) in [
        (9, &[8][..], FAULT),
        (7, &[8], FAULT),
        (2 * MTU + 9, &[MTU, MTU, 8], FAULT),
        (2 * MTU + 7, &[MTU, MTU, 8], FAULT),
        (MTU + 1, &[MTU, MTU, 8], FAULT_INSIDE),
    ] {
        dropped(&uc(), |s| write(0, s.reth(SERVED, length), lengths, false), counted);
        dropped(&uc(), |s| write(0, s.reth(SERVED, length), lengths, true), counted);
    }
    let too_long = |s: &Story| Reth { length: (1 << 31) + 1, ..s.reth(SERVED, 0) };
    dropped(&uc(), |s| write(0, too_long(s), &[MTU, 8], false), FAULT_INSIDE);
    dropped(&uc(), |s| write(0, too_long(s), &[8], false), FAULT);
}

#[test]
fn without_a_receive_a_message_that_needs_one_is_dropped_and_others_arrive() {
    let no_receive = |frames: fn(&Story) -> Vec<Frame>, counted: &[(Counter, u64)]| {
        uc().tell(|s| {
            let frames = frames(s);
            let next = frames.len() as i32;
            s.deliver_all(frames);
            expect_dropped(s, next, NEW, counted);
        });
    };
    no_receive(|_| send(0, &[8]), &[(DropNoReceive, 1)]);
    no_receive(|_| send(0, &[MTU, MTU, 8]), &[(DropNoReceive, 1), (DropIncompleteMessage, 2)]);
    no_receive(|s| write(0, s.reth(SERVED, 8), &[8], true), &[(DropNoReceive, 1)]);
    let long = |s: &Story| write(0, s.reth(SERVED, 2 * MTU + 8), &[MTU, MTU, 8], true);
    no_receive(long, &[(DropNoReceive, 1)]);
    no_receive(|s| write(0, s.reth(SERVED, 8), &[8], false), &[]);
}

#[test]
fn a_psn_ahead_drops_the_message_that_it_tears_and_the_next_one_is_taken() {
    let gap = |frames: Vec<Frame>, missing: usize| {
        let mut frames = frames;
        frames.remove(missing);
        frames
    };
    let lost = |count| [(OutOfSequence, 1), (DropIncompleteMessage, count)];
    dropped(&uc(), |_| gap(send(0, &[MTU, MTU, MTU, 8]), 1), &lost(2));
    dropped(&uc(), |_| gap(send(0, &[MTU, MTU, MTU, 8]), 2), &lost(1));
    // The first is missing: the others belong to nothing.
    dropped(&uc(), |_| gap(send(0, &[MTU, MTU, 8]), 0), &lost(2));
    let long = |s: &Story| write(0, s.reth(SERVED, 2 * MTU + 8), &[MTU, MTU, 8], true);
    dropped(&uc(), |s| gap(long(s), 1), &lost(1));
    // The last is missing: the next message shows it.
    uc().tell(|s| {
        s.post_receive(1, 4 * MTU);
        s.deliver_all(gap(send(0, &[MTU, MTU, 8]), 2));
        s.deliver_all(send(3, &[20]));
        assert_eq!(s.expect_received(1, Success).length, 20);
        assert_eq!(s.bytes(RECEIVE, 20), theirs(0, 20));
        assert_eq!((s.count(OutOfSequence), drops(s)), (1, 0));
    });
}

#[test]
fn a_message_with_a_psn_behind_is_a_new_message_since_nobody_repeats() {
    // Without acknowledgements nothing is ever sent again: what starts a message is taken whatever
    // its PSN (specification, section 9.8.2.2), and a part of one is not.
    uc().tell(|s| {
        s.post_receive(1, 64);
        s.post_receive(2, 64);
        s.deliver_all(send(0, &[8]));
        s.expect_received(1, Success);
        s.deliver_all(send(-3, &[9]));
        assert_eq!(s.expect_received(2, Success).length, 9);
        s.deliver(send_last(-3, &theirs(0, 8)).uc());
        s.expect_nothing();
        assert_eq!(s.count(DropIncompleteMessage), 1);
        assert_eq!(s.count(OutOfSequence), 2);
    });
}

#[test]
fn packets_in_states_that_do_not_receive_are_dropped_and_the_first_in_rtr_is_told() {
    for state in [Init, Error] {
        let setup = Setup { state, ..uc() };
        setup.tell(|s| {
            s.deliver_all(send(0, &[8]));
            s.expect_nothing();
            assert_eq!(s.count(DropWrongState), 1);
        });
    }
    let setup = Setup { state: Rtr, ..uc() };
    setup.tell(|s| {
        s.post_receive(1, 64);
        s.post_receive(2, 64);
        for (psn, id) in [(0, 1), (1, 2)] {
            s.deliver_all(send(psn, &[8]));
            s.expect_received(id, Success);
        }
        s.expect_event(Event::Established(0));
        s.expect_nothing();
    });
}

#[test]
fn a_failed_send_stops_sending_only_and_sqe_ends_by_modify() {
    uc().tell(|s| {
        let bad = Sge { key: Lkey::new(1), ..s.sge(SOURCE, 8) };
        s.post(1, SendOperation::Send, SendFlags::NONE, &[bad]);
        s.post_send(2, 8);
        s.expect_sent(1, uroce::queue::CompletionStatus::LocalProtectionError);
        s.expect_sent(2, WorkRequestFlushed);
        assert_eq!(s.state(), Sqe);
        s.post_send(3, 8);
        s.expect_sent(3, WorkRequestFlushed);
        s.post_receive(4, 64);
        s.deliver_all(send(0, &[8]));
        s.expect_received(4, Success);
        let wrong =
            QueuePairAttributes { current_state: Some(Rts), ..QueuePairAttributes::to_state(Rts) };
        assert!(s.modify(&wrong).is_err(), "CUR_STATE says RTS");
        s.modify(&QueuePairAttributes { current_state: Some(Sqe), ..wrong }).unwrap();
        s.post_send(5, 8);
        s.expect(send_only(0, &ours(SOURCE, 8)).uc());
        s.expect_sent(5, Success);
        s.modify(&QueuePairAttributes::to_state(Reset)).unwrap();
        assert_eq!(s.state(), Reset);
    });
}

#[test]
fn sqd_lets_the_started_message_finish_holds_back_the_next_and_tells_when_asked() {
    uc().tell(|s| {
        s.port.room = 1;
        s.post_send(1, 20 * MTU);
        s.post_send(2, 8);
        s.turn();
        let drain = QueuePairAttributes {
            drain_notification: Some(true),
            ..QueuePairAttributes::to_state(Sqd)
        };
        s.modify(&drain).unwrap();
        s.turn();
        s.port.room = usize::MAX;
        for psn in 0..20 {
            let sent = s.next_sent().expect("the started message goes on");
            assert_eq!(sent.frame.headers.psn.value(), psn);
        }
        s.expect_sent(1, Success);
        s.expect_event(Event::Drained(0));
        s.expect_nothing();
        s.modify(&QueuePairAttributes::to_state(Rts)).unwrap();
        s.expect(send_only(20, &ours(SOURCE, 8)).uc());
        s.expect_sent(2, Success);
    });
}

#[test]
fn what_is_sent_has_the_shape_of_its_message_and_never_asks_for_an_acknowledgement() {
    uc().tell(|s| {
        s.post_send(1, 2 * MTU + 8);
        s.expect(send_first(0, &ours(SOURCE, MTU)).uc());
        s.expect(send_middle(1, &ours(SOURCE + MTU, MTU)).uc());
        s.expect(send_last(2, &ours(SOURCE + 2 * MTU, 8)).uc());
        s.expect_sent(1, Success);
        let segment = s.sge(SOURCE, 8);
        let immediate = Immediate([7; 4]);
        let solicited = SendFlags { solicited: true, ..SendFlags::SIGNALED };
        s.post(2, SendOperation::SendWithImmediate(immediate), solicited, &[segment]);
        s.expect(send_only_immediate(3, &ours(SOURCE, 8), [7; 4]).uc().solicited());
        s.expect_sent(2, Success);
        let operation = SendOperation::WriteWithImmediate(peer(0), immediate);
        s.post(3, operation, SendFlags::SIGNALED, &[s.sge(SOURCE, MTU + 8)]);
        s.expect(write_first(4, peer_reth(0, MTU + 8), &ours(SOURCE, MTU)).uc());
        s.expect(write_last_immediate(5, &ours(SOURCE + MTU, 8), [7; 4]).uc());
        s.expect_sent(3, Success);
        s.post_write(4, 0);
        s.expect(write_only(6, peer_reth(0, 0), &[]).uc());
        s.expect_sent(4, Success);
    });
}

#[test]
fn a_write_with_immediate_tells_its_length_and_its_receive_is_not_written() {
    uc().tell(|s| {
        for (lengths, psn) in [(&[8][..], 0), (&[MTU, MTU, 5], 1), (&[0], 4)] {
            s.post_receive(1, 64);
            let total: usize = lengths.iter().sum();
            s.deliver_all(write(psn, s.reth(SERVED, total), lengths, true));
            let received = s.expect_received(1, Success);
            assert_eq!(received.kind, CompletionKind::ReceiveWriteWithImmediate);
            assert_eq!(received.length as usize, total);
            assert_eq!(received.attachment, Attachment::Immediate(Immediate([7; 4])));
            assert_eq!(s.bytes(SERVED, total), theirs(0, total));
            assert_eq!(s.bytes(RECEIVE, 64), ours(RECEIVE, 64));
        }
    });
}

#[test]
fn a_packet_of_another_sender_or_partition_does_not_tear_a_message() {
    uc().tell(|s| {
        s.post_receive(1, 4 * MTU);
        let frames = send(0, &[MTU, 8]);
        s.deliver(frames[0].clone());
        let mut flow = s.flow();
        flow.source = s.setup.peer_address(0x55);
        if flow.source == s.flow().source {
            flow.source = std::net::IpAddr::from([10, 0, 0, 99]);
        }
        s.deliver_on(flow, send_only(1, &theirs(0, 8)).uc());
        s.deliver(send_only(1, &theirs(0, 8)).uc().pkey(0x7ffe));
        s.deliver(frames[1].clone());
        assert_eq!(s.expect_received(1, Success).length as usize, MTU + 8);
        assert_eq!((s.count(DropWrongAddress), s.count(DropPkeyMismatch)), (1, 1));
        assert_eq!(drops(s), 2);
    });
}
