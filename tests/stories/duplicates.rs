//! Requests that come again: what was carried out is never carried out twice, but answered.

use uroce::engine::Counter;
use uroce::queue::Access;
use uroce::queue::CompletionStatus::Success;
use uroce::wire::{Reth, Rkey};

use crate::harness::{
    BASE, Frame, MEMORY, RECEIVE, SERVED, Setup, Story, ack, atomic_ack, compare_swap, fetch_add,
    ours, read_request, read_response_first, read_response_last, read_response_middle,
    read_response_only, read_responses, send_first, send_last, send_only, send_only_immediate,
    sequence_nak, story, theirs, write_first, write_last, write_only, write_only_immediate,
};

const MTU: usize = 1024;

/// SEND, WRITE of two packets, WRITE with immediate: PSNs 0 to 4, five receives posted.
fn three_messages(s: &mut Story) {
    for id in 0..5 {
        s.post_receive(id, 4096);
    }
    let long = s.reth(SERVED, MTU + 8);
    let short = s.reth(SERVED, 8);
    s.deliver(send_only(0, &theirs(0, 8)));
    s.deliver(write_first(1, long, &theirs(0, MTU)));
    s.deliver(write_last(2, &theirs(MTU, 8)));
    s.deliver(write_only_immediate(3, short, &theirs(0, 8), [1; 4]).asking());
    s.expect(ack(3, 3));
    s.expect_received(0, Success);
    s.expect_received(1, Success);
}

/// What came twice is still owed nothing but an ACK of the newest PSN.
fn acknowledged_again(s: &mut Story, frame: Frame) {
    let (received, served) = (s.bytes(RECEIVE, 4096), s.bytes(SERVED, 4096));
    let before = s.count(Counter::DuplicateRequest);
    s.deliver(frame);
    s.expect(ack(3, 3));
    assert_eq!(s.count(Counter::DuplicateRequest), before + 1);
    assert_eq!(s.bytes(RECEIVE, 4096), received);
    assert_eq!(s.bytes(SERVED, 4096), served);
    s.expect_nothing();
}

#[test]
fn a_repeated_send_or_write_gets_an_ack_of_the_newest_psn_and_is_not_carried_out_again() {
    story(|s| {
        three_messages(s);
        let reth = s.reth(SERVED, 8);
        let other = [0x99; MTU];
        acknowledged_again(s, send_only(0, &other[..8]));
        acknowledged_again(s, send_only(0, &other[..8]).asking());
        acknowledged_again(s, send_only_immediate(0, &other[..8], [2; 4]));
        acknowledged_again(s, send_first(0, &other));
        acknowledged_again(s, write_first(1, s.reth(SERVED, MTU + 8), &other));
        acknowledged_again(s, write_last(2, &other[..8]));
        acknowledged_again(s, write_only_immediate(3, reth, &other[..8], [2; 4]));
        acknowledged_again(s, send_last(-5, &other[..8]));
    });
}

#[test]
fn after_a_repetition_the_next_request_goes_on_where_it_was() {
    story(|s| {
        three_messages(s);
        acknowledged_again(s, write_last(2, &theirs(0, 8)));
        s.deliver(send_only(4, &theirs(0, 8)).asking());
        s.expect(ack(4, 4));
        s.expect_received(2, Success);
    });
}

#[test]
fn a_repetition_inside_of_a_message_does_not_disturb_it() {
    story(|s| {
        s.post_receive(1, 4096);
        s.deliver(send_first(0, &theirs(0, MTU)));
        s.deliver(send_first(0, &[9; MTU]));
        s.expect(ack(0, 0));
        s.deliver(send_last(1, &theirs(MTU, 10)).asking());
        s.expect(ack(1, 1));
        assert_eq!(s.expect_received(1, Success).length as usize, MTU + 10);
        assert_eq!(s.bytes(RECEIVE, MTU + 10), theirs(0, MTU + 10));
    });
}

#[test]
fn repetitions_and_new_requests_of_one_turn_share_one_ack() {
    story(|s| {
        let reth = s.reth(SERVED, 8);
        s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
        s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
        s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
        s.deliver(write_only(1, reth, &theirs(0, 8)).asking());
        s.expect(ack(1, 2));
    });
}

#[test]
fn while_a_packet_is_missing_repetitions_are_acknowledged_and_the_rest_is_silence() {
    story(|s| {
        let reth = s.reth(SERVED, 8);
        s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
        s.deliver(write_only(2, reth, &theirs(0, 8)).asking());
        s.expect(sequence_nak(1, 1));
        s.deliver(write_only(0, reth, &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
        s.deliver(write_only(2, reth, &theirs(0, 8)).asking());
        s.expect_nothing();
        s.deliver(write_only(1, reth, &theirs(0, 8)).asking());
        s.expect(ack(1, 2));
    });
}

#[test]
fn behind_and_ahead_part_at_half_of_all_psns() {
    story(|s| {
        let reth = s.reth(SERVED, 8);
        for behind in [-1, -0x7f_ffff, -0x80_0000] {
            s.deliver(write_only(behind, reth, &theirs(0, 8)));
            s.expect(ack(-1, 0));
        }
        s.deliver(write_only(0x7f_ffff, reth, &theirs(0, 8)));
        s.expect(sequence_nak(0, 0));
        assert_eq!(s.bytes(SERVED, 8), ours(SERVED, 8));
    });
}

#[test]
fn a_repeated_read_is_carried_out_again_with_what_memory_holds_then() {
    story(|s| {
        let reth = s.reth(SERVED, 2 * MTU + 3);
        s.deliver(read_request(0, reth));
        s.expect_all(read_responses(0, 1, &ours(SERVED, 2 * MTU + 3), MTU));
        s.memory.write(SERVED, &theirs(0, 4096)).unwrap();
        s.deliver(read_request(0, reth));
        s.expect_all(read_responses(0, 1, &theirs(0, 2 * MTU + 3), MTU));
        s.deliver(write_only(3, s.reth(SERVED, 1), &[1]).asking());
        s.expect(ack(3, 2));
    });
}

#[test]
fn a_read_may_be_repeated_from_any_of_its_packets_on() {
    story(|s| {
        let length = 3 * MTU + 5;
        let data = ours(SERVED, length);
        s.deliver(read_request(0, s.reth(SERVED, length)));
        s.expect_all(read_responses(0, 1, &data, MTU));
        for packet in 1..4 {
            let offset = packet * MTU;
            s.deliver(read_request(packet as i32, s.reth(SERVED + offset, length - offset)));
            s.expect_all(read_responses(packet as i32, 1, &data[offset..], MTU));
        }
    });
}

#[test]
fn a_repeated_read_may_ask_for_less_and_never_for_anything_else() {
    story(|s| {
        let length = 3 * MTU + 5;
        let data = ours(SERVED, length);
        s.deliver(read_request(0, s.reth(SERVED, length)));
        s.expect_all(read_responses(0, 1, &data, MTU));
        s.deliver(read_request(1, s.reth(SERVED + MTU, 2 * MTU)));
        s.expect_all(read_responses(1, 1, &data[MTU..3 * MTU], MTU));
        s.deliver(read_request(3, s.reth(SERVED + 3 * MTU, 1)));
        s.expect(read_response_only(3, 1, &data[3 * MTU..3 * MTU + 1]));
        let strange = [
            read_request(0, s.reth(SERVED, length + 1)),
            read_request(0, s.reth(SERVED + 1, length - 1)),
            read_request(0, s.reth(SERVED - 1, length)),
            read_request(1, s.reth(SERVED, length)),
            read_request(1, s.reth(SERVED + MTU, length - MTU + 1)),
            read_request(1, s.reth(SERVED + MTU - 1, 8)),
            read_request(3, s.reth(SERVED + 3 * MTU, 6)),
            read_request(
                0,
                Reth { key: Rkey::new(s.keys.remote.value() ^ 1), ..s.reth(SERVED, 8) },
            ),
        ];
        for (index, frame) in strange.into_iter().enumerate() {
            s.deliver(frame);
            s.expect_nothing();
            assert_eq!(s.count(Counter::DropDuplicateWithoutRecord), index as u64 + 1);
        }
    });
}

#[test]
fn a_repeated_read_without_record_is_met_with_silence() {
    let setup = Setup { max_destination_rd_atomic: 2, ..Setup::default() };
    setup.tell(|s| {
        let reth = s.reth(SERVED, 8);
        s.deliver(write_only(0, reth, &theirs(0, 8)));
        for psn in 1..4 {
            s.deliver(read_request(psn, reth));
            s.expect(read_response_only(psn, psn as u32 + 1, &theirs(0, 8)));
        }
        s.deliver(read_request(1, reth));
        s.deliver(read_request(0, reth));
        s.deliver(read_request(-1, reth));
        s.deliver(fetch_add(0, reth, 1));
        s.deliver(fetch_add(2, reth, 1));
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropDuplicateWithoutRecord), 5);
        assert_eq!(s.bytes(SERVED, 8), theirs(0, 8));
        s.deliver(read_request(2, reth));
        s.expect(read_response_only(2, 3, &theirs(0, 8)));
    });
}

#[test]
fn a_repeated_read_that_is_not_allowed_any_more_is_met_with_silence_and_breaks_nothing() {
    story(|s| {
        let memory = std::sync::Arc::clone(&s.memory);
        let keys = s.engine.register_part(s.domain, memory, 0..MEMORY, BASE, Access::ALL).unwrap();
        let reth = Reth { key: keys.remote, ..s.reth(SERVED, 2 * MTU) };
        s.deliver(read_request(0, reth));
        s.expect_all(read_responses(0, 1, &ours(SERVED, 2 * MTU), MTU));
        // The peer has its data and says so; the application ends the registration. Then a
        // repetition arrives that was long on its way.
        s.engine.deregister(keys.local).unwrap();
        s.deliver(read_request(0, reth));
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropDuplicateWithoutRecord), 1);
        s.deliver(write_only(2, s.reth(SERVED, 8), &theirs(0, 8)).asking());
        s.expect(ack(2, 2));
    });
}

#[test]
fn a_repeated_atomic_is_answered_from_its_record_and_takes_effect_once() {
    story(|s| {
        s.memory.store_u64(SERVED, 40).unwrap();
        let reth = s.reth(SERVED, 8);
        s.deliver(fetch_add(0, reth, 2));
        s.deliver(compare_swap(1, reth, 42, 7));
        s.deliver(compare_swap(2, reth, 42, 9));
        let answers = [atomic_ack(0, 1, 40), atomic_ack(1, 2, 42), atomic_ack(2, 3, 7)];
        s.expect_all(answers.clone());
        for _ in 0..2 {
            s.deliver(fetch_add(0, reth, 2));
            s.expect(answers[0].clone());
            s.deliver(compare_swap(2, reth, 42, 9));
            s.expect(answers[2].clone());
            s.deliver(compare_swap(1, reth, 42, 7));
            s.expect(answers[1].clone());
        }
        assert_eq!(s.memory.load_u64(SERVED).unwrap(), 7);
        s.memory.store_u64(SERVED, 42).unwrap();
        s.deliver(compare_swap(1, reth, 42, 7));
        s.expect(answers[1].clone());
        assert_eq!(s.memory.load_u64(SERVED).unwrap(), 42);
    });
}

#[test]
fn a_repeated_atomic_without_record_is_met_with_silence() {
    let setup = Setup { max_destination_rd_atomic: 1, ..Setup::default() };
    setup.tell(|s| {
        s.memory.store_u64(SERVED, 0).unwrap();
        let reth = s.reth(SERVED, 8);
        s.deliver(fetch_add(0, reth, 1));
        s.expect(atomic_ack(0, 1, 0));
        s.deliver(fetch_add(1, reth, 1));
        s.expect(atomic_ack(1, 2, 1));
        s.deliver(fetch_add(0, reth, 1));
        s.deliver(read_request(1, reth));
        s.expect_nothing();
        assert_eq!(s.memory.load_u64(SERVED).unwrap(), 2);
    });
}

#[test]
fn a_read_repeated_before_it_is_answered_is_answered_once() {
    story(|s| {
        let reth = s.reth(SERVED, 2 * MTU);
        s.deliver(read_request(0, reth));
        s.deliver(read_request(0, reth));
        s.expect_all(read_responses(0, 1, &ours(SERVED, 2 * MTU), MTU));
        s.expect_nothing();
        s.deliver(fetch_add(2, reth, 0));
        s.deliver(fetch_add(2, reth, 0));
        let word = u64::from_ne_bytes(ours(SERVED, 8).try_into().unwrap());
        s.expect(atomic_ack(2, 2, word));
        s.expect_nothing();
    });
}

#[test]
fn a_read_repeated_while_it_is_being_answered_starts_anew_where_the_repetition_says() {
    story(|s| {
        let length = 100 * MTU;
        let data = ours(0, length);
        s.deliver(read_request(0, s.reth(0, length)));
        s.turn();
        s.deliver(read_request(10, s.reth(10 * MTU, length - 10 * MTU)));
        let full = read_responses(0, 1, &data, MTU);
        // One turn's budget, and a burst more at most.
        let mut sent = vec![];
        while let Some(frame) = s.next_sent() {
            sent.push(frame.frame);
        }
        let before = sent.len() - 90;
        assert!((64..80).contains(&before), "{before} packets in the first turn");
        assert_eq!(sent[..before], full[..before]);
        let again = read_responses(10, 1, &data[10 * MTU..], MTU);
        assert_eq!(sent[before..], again[..]);
    });
}

#[test]
fn a_repeated_read_is_answered_in_psn_order_before_later_ones() {
    story(|s| {
        let first = s.reth(SERVED, 2 * MTU);
        let second = s.reth(SERVED + 4096, 3 * MTU);
        s.deliver(read_request(0, first));
        s.expect_all(read_responses(0, 1, &ours(SERVED, 2 * MTU), MTU));
        s.deliver(read_request(2, second));
        s.deliver(read_request(0, first));
        s.expect_all(read_responses(0, 1, &ours(SERVED, 2 * MTU), MTU));
        s.expect(read_response_first(2, 2, &ours(SERVED + 4096, MTU)));
        s.expect(read_response_middle(3, &ours(SERVED + 4096 + MTU, MTU)));
        s.expect(read_response_last(4, 2, &ours(SERVED + 4096 + 2 * MTU, MTU)));
    });
}

#[test]
fn a_repetition_whose_data_goes_away_while_it_is_answered_just_ends() {
    story(|s| {
        let memory = std::sync::Arc::clone(&s.memory);
        let keys = s.engine.register_part(s.domain, memory, 0..MEMORY, BASE, Access::ALL).unwrap();
        let reth = Reth { key: keys.remote, ..s.reth(0, 100 * MTU) };
        let full = read_responses(0, 1, &ours(0, 100 * MTU), MTU);
        s.deliver(read_request(0, reth));
        s.expect_all(full.clone());
        s.deliver(read_request(0, reth));
        let sent = s.turn().sent;
        s.engine.deregister(keys.local).unwrap();
        s.expect_all(full.into_iter().take(sent));
        s.expect_nothing();
        s.deliver(write_only(100, s.reth(SERVED, 8), &theirs(0, 8)).asking());
        s.expect(ack(100, 2));
    });
}
