//! The order of checks where two faults coincide, and what never reaches a queue pair.

use uroce::engine::Counter;
use uroce::queue::CompletionStatus::{Success, WorkRequestFlushed};
use uroce::queue::{Access, QueuePairState};
use uroce::wire::{Deth, Message, NakCode, QKey, Qpn, Reth, Rkey, SendTail, Service};

use crate::harness::{
    Event, Frame, RECEIVE, SERVED, Setup, Story, ack, fetch_add, nak, ours, read_request,
    read_response_only, rnr_nak, send_first, send_middle, send_only, send_only_invalidate,
    sequence_nak, story, theirs, write_last, write_middle, write_only, write_only_immediate,
};

const MTU: usize = 1024;

/// A frame that would be carried out and answered if nothing were wrong with it.
fn good(s: &Story) -> Frame {
    write_only(0, s.reth(SERVED, 8), &theirs(0, 8)).asking()
}

/// Nothing came of a frame but this count; the queue pair goes on.
fn only_counted(s: &mut Story, counter: Counter) {
    s.expect_nothing();
    assert_eq!(s.count(counter), 1, "{}", counter.name());
    let others: u64 = Counter::ALL
        .iter()
        .filter(|other| other.name().starts_with("drop_") && **other != counter)
        .map(|other| s.count(*other))
        .sum();
    assert_eq!(others, 0, "one reason for one packet");
    assert_eq!(s.bytes(SERVED, 8), ours(SERVED, 8));
    s.deliver(good(s));
    s.expect(ack(0, 1));
    assert_eq!(s.bytes(SERVED, 8), theirs(0, 8));
}

#[test]
fn a_wrong_icrc_changes_nothing_whichever_bit_is_damaged() {
    let length = 12 + 16 + 8 + 4;
    for bit in 0..length * 8 {
        // The masked byte's bits may change on the way.
        if bit / 8 == 4 {
            continue;
        }
        let mut s = Story::new(Setup::default());
        let mut bytes = s.encode(good(&s));
        let flow = s.flow();
        let icrc = uroce::wire::icrc::of_datagram(&flow, 0x4242, 0x4000, &bytes);
        bytes.extend(icrc);
        bytes[bit / 8] ^= 0x80 >> (bit % 8);
        s.deliver_raw(flow, bytes);
        s.expect_nothing();
        let dropped: u64 = Counter::ALL
            .iter()
            .filter(|counter| counter.name().starts_with("drop_"))
            .map(|counter| s.count(*counter))
            .sum();
        assert_eq!(dropped, 1, "bit {bit} is counted once");
        s.deliver(good(&s));
        s.expect(ack(0, 1));
    }
}

/// A good frame whose last payload bit was damaged on the way.
fn damaged(s: &Story, frame: Frame) -> Vec<u8> {
    let mut bytes = s.encode(frame);
    bytes.extend(uroce::wire::icrc::of_datagram(&s.flow(), 0x4242, 0x4000, &bytes));
    let last = bytes.len() - 5;
    bytes[last] ^= 1;
    bytes
}

#[test]
fn the_icrc_is_judged_before_everything_else() {
    let cases: [fn(&mut Story) -> Vec<u8>; 4] = [
        |s| damaged(s, good(s)),
        |s| damaged(s, good(s).pkey(0x1234)),
        |s| {
            let mut bytes = damaged(s, good(s));
            bytes[7] ^= 1;
            bytes
        },
        |s| damaged(s, Frame { payload: theirs(0, 8), ..send_only(5, &[]) }),
    ];
    for case in cases {
        story(|s| {
            let bytes = case(s);
            let flow = s.flow();
            s.deliver_raw(flow, bytes);
            only_counted(s, Counter::DropBadIcrc);
        });
    }
}

#[test]
fn the_icrc_covers_addresses_and_ports() {
    story(|s| {
        let flow = s.flow();
        let mut bytes = s.encode(good(s));
        bytes.extend(uroce::wire::icrc::of_datagram(&flow, 0x4242, 0x4000, &bytes));
        let other = uroce::wire::Flow { source_port: flow.source_port + 1, ..flow };
        s.deliver_raw(other, bytes);
        only_counted(s, Counter::DropBadIcrc);
    });
}

/// 2 in 2^16 damages look like another identification, single flipped bits among them: one of byte
/// 161 of the payload looks like DF clear.
#[test]
fn an_identification_that_cannot_be_seen_is_recovered_only_for_senders_not_known_for_another() {
    story(|s| {
        let write = |s: &Story, psn| write_only(psn, s.reth(0, 4), &[psn as u8; 4]);
        s.deliver_unseen(write(s, 0), 0x1234);
        s.settle();
        assert_eq!(s.count(Counter::RecoveredIdentification), 1);
        // Segments that come apart from their bursts.
        for psn in 1..=128 {
            s.deliver_unseen(write(s, psn), psn as u16 % 64);
        }
        s.settle();
        s.deliver_unseen(write(s, 129), 0x1234);
        s.settle();
        assert_eq!(s.count(Counter::DropBadIcrc), 1);
        assert_eq!(s.count(Counter::RecoveredIdentification), 1);
        s.deliver_unseen(write(s, 129), 63);
        s.settle();
        assert_eq!(s.count(Counter::DuplicateRequest), 0, "the first of these was not carried out");
        s.forget_events();
    });
}

#[test]
fn a_packet_for_an_unknown_queue_pair_is_dropped_and_counted() {
    story(|s| {
        let mut bytes = s.encode(good(s));
        bytes[7] ^= 1;
        let flow = s.flow();
        s.deliver_bytes(flow, bytes);
        only_counted(s, Counter::DropUnknownQueuePair);
    });
}

#[test]
fn the_transport_is_judged_before_the_address() {
    story(|s| {
        let deth = Deth { qkey: QKey::new(1), reserved: 0, source: Qpn::new(2) };
        let message = Message::SendOnly(SendTail::Plain);
        let frame = Frame::of(Service::Ud(deth), message, 0, &[1; 8]);
        let spoofed = uroce::wire::Flow { source: s.setup.our_address(), ..s.flow() };
        s.deliver_on(spoofed, frame);
        only_counted(s, Counter::DropWrongTransport);
    });
}

#[test]
fn a_spoofed_source_address_is_dropped_and_counted_before_the_partition_key() {
    story(|s| {
        let spoofed = std::net::Ipv4Addr::new(10, 0, 0, 3).into();
        let flow = uroce::wire::Flow { source: spoofed, ..s.flow() };
        s.deliver_on(flow, good(s).pkey(1));
        only_counted(s, Counter::DropWrongAddress);
    });
}

#[test]
fn a_packet_to_another_of_our_addresses_is_dropped_and_counted() {
    story(|s| {
        let other = std::net::Ipv4Addr::new(10, 0, 0, 9).into();
        let flow = uroce::wire::Flow { destination: other, ..s.flow() };
        s.deliver_on(flow, good(s));
        only_counted(s, Counter::DropWrongAddress);
    });
}

#[test]
fn any_source_port_will_do() {
    for source_port in [1, 69, 72, 4791, 0xc000, 0xffff] {
        story(|s| {
            let flow = uroce::wire::Flow { source_port, ..s.flow() };
            s.deliver_on(flow, good(s));
            s.expect(ack(0, 1));
        });
    }
}

#[test]
fn a_wrong_partition_key_is_dropped_and_counted_and_a_limited_member_of_ours_is_not() {
    for pkey in [0, 0x8000, 0x1234, 0x9234, 0x7ffe, 0xfffe] {
        story(|s| {
            s.deliver(good(s).pkey(pkey));
            only_counted(s, Counter::DropPkeyMismatch);
        });
    }
    story(|s| {
        s.deliver(good(s).pkey(0x7fff));
        s.expect(ack(0, 1));
    });
}

#[test]
fn reserved_bits_and_congestion_marks_are_ignored() {
    for bit in 0..14 {
        story(|s| {
            let mut frame = good(s);
            match bit {
                0..6 => frame.headers.reserved = 1 << bit,
                6 => frame.headers.fecn = true,
                7..13 => frame.headers.reserved_after_ack = 1 << (bit - 7),
                _ => frame.headers.reserved_after_ack = 0x7f,
            }
            s.deliver(frame);
            s.expect(ack(0, 1));
            assert_eq!(s.bytes(SERVED, 8), theirs(0, 8));
        });
    }
}

#[test]
fn both_values_of_migreq_are_accepted_and_answered_with_our_own() {
    for (ours, theirs) in [(true, false), (true, true), (false, true), (false, false)] {
        let setup = Setup { migration: ours, ..Setup::default() };
        setup.tell(|s| {
            s.deliver(good(s).migration(theirs));
            s.expect(ack(0, 1).migration(ours));
            s.post_send(1, 8);
            s.expect(send_only(0, &crate::harness::ours(0, 8)).asking().migration(ours));
            s.deliver(ack(0, 1).migration(theirs));
            s.expect_sent(1, Success);
        });
    }
}

#[test]
fn malformed_packets_are_dropped_and_counted() {
    let cases: [fn(&Story) -> Vec<u8>; 6] = [
        |_| vec![],
        |_| vec![0x0a; 11],
        |s| s.encode(good(s))[..20].to_vec(),
        |s| {
            let mut bytes = s.encode(good(s));
            bytes[1] |= 1;
            bytes
        },
        |s| {
            let mut bytes = s.encode(ack(0, 1));
            bytes[1] |= 0x30;
            bytes
        },
        |s| {
            let mut bytes = s.encode(good(s));
            bytes.push(0);
            bytes
        },
    ];
    for case in cases {
        story(|s| {
            let bytes = case(s);
            let flow = s.flow();
            s.deliver_bytes(flow, bytes);
            only_counted(s, Counter::DropMalformed);
        });
    }
}

#[test]
fn the_psn_is_judged_before_everything_that_follows() {
    let wrong: [fn(&Story, i32) -> Frame; 4] = [
        |s, psn| write_only(psn, Reth { key: Rkey::new(1), ..s.reth(0, 8) }, &[1; 8]),
        |_, psn| write_last(psn, &[]),
        |_, psn| send_only(psn, &[1; 4096]),
        |s, psn| fetch_add(psn, s.reth(SERVED + 1, 8), 1),
    ];
    for frame in wrong {
        story(|s| {
            s.deliver(frame(s, 1));
            s.expect(sequence_nak(0, 0));
        });
    }
    for frame in [wrong[0], wrong[1], wrong[2]] {
        story(|s| {
            s.deliver(frame(s, -1));
            s.expect(ack(-1, 0));
        });
    }
    story(|s| {
        s.deliver(wrong[3](s, -1));
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropDuplicateWithoutRecord), 1);
    });
}

/// The last of `frames` is refused with `code`.
fn refused(setup: &Setup, receives: usize, frames: fn(&Story) -> Vec<Frame>, code: NakCode) {
    setup.tell(|s| {
        for id in 0..receives {
            s.post_receive(id as u64, 64);
        }
        let frames = frames(s);
        let last = frames.len() as i32 - 1;
        s.deliver_all(frames);
        s.expect(nak(last, 0, code));
        s.expect_event(match code {
            NakCode::RemoteAccessError => Event::AccessError(0),
            _ => Event::RequestError(0),
        });
        for id in 0..receives {
            s.expect_received(id as u64, WorkRequestFlushed);
        }
        s.expect_dead();
    });
}

#[test]
fn the_opcode_sequence_is_judged_before_what_the_queue_pair_allows() {
    // Both give 0x61: visible only in that no receive is asked for first.
    let setup = Setup { access: Access::LOCAL_WRITE, ..Setup::default() };
    refused(&setup, 0, |_| vec![send_middle(0, &theirs(0, MTU))], NakCode::InvalidRequest);
    refused(&setup, 0, |_| vec![write_middle(0, &theirs(0, MTU))], NakCode::InvalidRequest);
}

#[test]
fn what_the_queue_pair_allows_is_judged_before_receives_and_keys() {
    let setup = Setup { access: Access::LOCAL_WRITE, ..Setup::default() };
    let immediate: fn(&Story) -> Vec<Frame> = |s| {
        let reth = Reth { key: Rkey::new(1), ..s.reth(SERVED, 8) };
        vec![write_only_immediate(0, reth, &theirs(0, 8), [1; 4])]
    };
    refused(&setup, 0, immediate, NakCode::InvalidRequest);
    let read: fn(&Story) -> Vec<Frame> =
        |s| vec![read_request(0, Reth { key: Rkey::new(1), ..s.reth(SERVED, 8) })];
    refused(&setup, 0, read, NakCode::InvalidRequest);
}

#[test]
fn a_missing_receive_is_judged_before_lengths_and_keys() {
    let frames: [fn(&Story) -> Frame; 4] = [
        |_| send_only(0, &theirs(0, 4096)),
        |_| send_first(0, &theirs(0, 8)),
        |s| {
            let reth = Reth { key: Rkey::new(1), ..s.reth(SERVED, 4) };
            write_only_immediate(0, reth, &theirs(0, 8), [1; 4])
        },
        |_| send_only_invalidate(0, &theirs(0, 8), Rkey::new(1)),
    ];
    for frame in frames {
        story(|s| {
            s.deliver(frame(s));
            s.expect(rnr_nak(0, 0, 12));
            assert_eq!(s.state(), QueuePairState::Rts);
        });
    }
}

#[test]
fn open_reads_are_judged_before_lengths_and_keys() {
    let setup = Setup { max_destination_rd_atomic: 0, ..Setup::default() };
    let read: fn(&Story) -> Vec<Frame> =
        |s| vec![read_request(0, Reth { key: Rkey::new(1), ..s.reth(SERVED, 8) })];
    refused(&setup, 1, read, NakCode::InvalidRequest);
}

#[test]
fn lengths_are_judged_before_keys() {
    let setup = Setup::default();
    let write: fn(&Story) -> Vec<Frame> =
        |s| vec![write_only(0, Reth { key: Rkey::new(1), ..s.reth(SERVED, 8) }, &[1; 9])];
    refused(&setup, 1, write, NakCode::InvalidRequest);
    let invalidate: fn(&Story) -> Vec<Frame> =
        |_| vec![send_only_invalidate(0, &theirs(0, 4096), Rkey::new(1))];
    refused(&setup, 1, invalidate, NakCode::InvalidRequest);
}

#[test]
fn a_send_that_is_too_long_for_its_receive_is_0x61_even_if_its_invalidation_is_wrong_too() {
    story(|s| {
        s.post_receive(0, 8);
        s.deliver(send_only_invalidate(0, &theirs(0, 9), Rkey::new(1)));
        s.expect(nak(0, 0, NakCode::InvalidRequest));
        s.expect_received(0, uroce::queue::CompletionStatus::LocalLengthError);
        assert_eq!(s.bytes(RECEIVE, 8), ours(RECEIVE, 8));
        s.expect_dead();
    });
}

#[test]
fn responses_to_a_queue_pair_in_rtr_are_dropped_and_requests_are_served() {
    let setup = Setup { state: QueuePairState::Rtr, ..Setup::default() };
    setup.tell(|s| {
        s.deliver(ack(0, 1));
        s.deliver(nak(0, 1, NakCode::RemoteAccessError));
        s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropWrongState), 3);
        s.deliver(good(s));
        s.expect(ack(0, 1));
        s.expect_event(Event::Established(0));
        s.deliver(write_only(1, s.reth(SERVED, 8), &theirs(8, 8)).asking());
        s.expect(ack(1, 2));
    });
}

#[test]
fn packets_in_reset_and_init_are_dropped_and_counted() {
    for state in [QueuePairState::Reset, QueuePairState::Init] {
        let setup = Setup { state, ..Setup::default() };
        setup.tell(|s| {
            s.deliver(good(s));
            s.deliver(ack(0, 1));
            s.expect_nothing();
            assert_eq!(s.count(Counter::DropWrongState), 2);
            assert_eq!(s.bytes(SERVED, 8), ours(SERVED, 8));
        });
    }
}

#[test]
fn over_ipv6_everything_is_the_same() {
    let setup = Setup { ipv6: true, ..Setup::default() };
    setup.tell(|s| {
        s.deliver(good(s));
        s.expect(ack(0, 1));
        let bytes = damaged(s, good(s));
        let flow = s.flow();
        s.deliver_raw(flow, bytes);
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropBadIcrc), 1);
        let spoofed = std::net::Ipv6Addr::LOCALHOST.into();
        s.deliver_on(uroce::wire::Flow { source: spoofed, ..flow }, good(s));
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropWrongAddress), 1);
        s.post_send(1, 8);
        s.expect(send_only(0, &ours(0, 8)).asking());
        s.deliver(ack(0, 1));
        s.expect_sent(1, Success);
    });
}
