//! When ACKs and NAKs leave: coalesced, behind the answers before them, held for the application.

use uroce::queue::CompletionStatus::Success;
use uroce::time::Instant;
use uroce::wire::{NakCode, Reth, Rkey};

use crate::harness::{
    Event, SERVED, SOURCE, Setup, Story, TARGET, ack, atomic_ack, fetch_add, nak, ours, peer_reth,
    read_request, read_response_only, read_responses, rnr_nak, send_only, sequence_nak, story,
    theirs, write_first, write_last, write_middle, write_only,
};

const MTU: usize = 1024;

fn write(s: &Story, psn: i32) -> crate::harness::Frame {
    write_only(psn, s.reth(SERVED, 8), &theirs(0, 8))
}

#[test]
fn the_acks_of_one_turn_are_one() {
    story(|s| {
        for psn in 0..5 {
            s.deliver(write(s, psn).asking());
        }
        s.expect(ack(4, 5));
    });
}

#[test]
fn what_does_not_ask_gets_no_ack() {
    story(|s| {
        for psn in 0..5 {
            s.deliver(write(s, psn));
        }
        s.expect_nothing();
        s.deliver(write(s, 5).asking());
        s.expect(ack(5, 6));
    });
}

#[test]
fn a_packet_inside_of_a_message_that_asks_is_acknowledged_without_its_message_counted() {
    story(|s| {
        let reth = s.reth(SERVED, 3 * MTU);
        s.deliver(write(s, 0));
        s.deliver(write_first(1, reth, &theirs(0, MTU)).asking());
        s.expect(ack(1, 1));
        s.deliver(write_middle(2, &theirs(MTU, MTU)).asking());
        s.expect(ack(2, 1));
        s.deliver(write_last(3, &theirs(2 * MTU, MTU)).asking());
        s.expect(ack(3, 2));
    });
}

#[test]
fn an_ack_acknowledges_what_came_after_the_packet_that_asked() {
    story(|s| {
        s.deliver(write(s, 0).asking());
        s.deliver(write(s, 1));
        s.deliver(write(s, 2));
        s.expect(ack(2, 3));
    });
}

#[test]
fn an_ack_waits_behind_the_answer_of_a_read_before_it() {
    story(|s| {
        s.deliver(read_request(0, s.reth(SERVED + 64, 3 * MTU)));
        s.deliver(write(s, 3).asking());
        s.expect_all(read_responses(0, 1, &ours(SERVED + 64, 3 * MTU), MTU));
        s.expect(ack(3, 2));
    });
}

#[test]
fn an_ack_waits_behind_the_answer_of_an_atomic_before_it() {
    story(|s| {
        let word = u64::from_ne_bytes(ours(SERVED + 64, 8).try_into().unwrap());
        s.deliver(fetch_add(0, s.reth(SERVED + 64, 8), 1));
        s.deliver(write(s, 1).asking());
        s.expect(atomic_ack(0, 1, word));
        s.expect(ack(1, 2));
    });
}

#[test]
fn an_ack_due_before_an_answer_is_absorbed_by_it() {
    story(|s| {
        s.deliver(write(s, 0).asking());
        s.deliver(read_request(1, s.reth(SERVED, 8)));
        s.expect(read_response_only(1, 2, &theirs(0, 8)));
        s.expect_nothing();
        let word = u64::from_ne_bytes(theirs(0, 8).try_into().unwrap());
        s.deliver(write(s, 2).asking());
        s.deliver(fetch_add(3, s.reth(SERVED, 8), 0));
        s.expect(atomic_ack(3, 4, word));
        s.expect_nothing();
    });
}

#[test]
fn an_ack_is_absorbed_even_if_more_came_behind_the_answer_that_does_not_ask() {
    story(|s| {
        s.deliver(write(s, 0).asking());
        s.deliver(read_request(1, s.reth(SERVED, 8)));
        s.deliver(write(s, 2));
        s.expect(read_response_only(1, 2, &theirs(0, 8)));
        s.expect_nothing();
    });
}

#[test]
fn an_ack_is_not_absorbed_by_the_answer_of_a_repeated_read_before_it() {
    story(|s| {
        let reth = s.reth(SERVED + 64, 8);
        s.deliver(read_request(0, reth));
        s.expect(read_response_only(0, 1, &ours(SERVED + 64, 8)));
        s.deliver(write(s, 1).asking());
        s.deliver(read_request(0, reth));
        s.expect(read_response_only(0, 1, &ours(SERVED + 64, 8)));
        s.expect(ack(1, 2));
    });
}

#[test]
fn naks_wait_behind_the_answers_before_them_and_take_a_pending_ack_along() {
    story(|s| {
        s.deliver(write(s, 0).asking());
        s.deliver(read_request(1, s.reth(SERVED, 8)));
        s.deliver(write(s, 3));
        s.expect(read_response_only(1, 2, &theirs(0, 8)));
        s.expect(sequence_nak(2, 2));
        s.expect_nothing();
    });
    story(|s| {
        s.deliver(read_request(0, s.reth(SERVED, 8)));
        s.deliver(send_only(1, &theirs(0, 8)));
        s.expect(read_response_only(0, 1, &ours(SERVED, 8)));
        s.expect(rnr_nak(1, 1, 12));
        s.expect_nothing();
    });
    story(|s| {
        s.deliver(read_request(0, s.reth(SERVED, 2 * MTU)));
        s.deliver(write_only(2, Reth { key: Rkey::new(1), ..s.reth(SERVED, 8) }, &[1; 8]));
        s.expect_all(read_responses(0, 1, &ours(SERVED, 2 * MTU), MTU));
        s.expect(nak(2, 1, NakCode::RemoteAccessError));
        s.expect_event(Event::AccessError(0));
        s.expect_dead();
    });
    story(|s| {
        s.deliver(write(s, 0).asking());
        s.deliver(write(s, 2));
        s.expect(sequence_nak(1, 1));
        s.expect_nothing();
    });
}

#[test]
fn one_nak_tells_of_a_gap_until_the_expected_packet_comes() {
    story(|s| {
        s.deliver(write(s, 1).asking());
        s.deliver(write(s, 2).asking());
        s.expect(sequence_nak(0, 0));
        for psn in 1..6 {
            s.deliver(write(s, psn).asking());
        }
        s.expect_nothing_until(crate::harness::ms(1_000));
        s.deliver(write(s, 0));
        s.deliver(write(s, 2));
        s.expect(sequence_nak(1, 1));
        s.deliver(write(s, 1).asking());
        s.deliver(write(s, 2).asking());
        s.expect(ack(2, 3));
    });
}

#[test]
fn a_nak_that_has_not_left_when_the_missing_packet_comes_never_leaves() {
    story(|s| {
        s.deliver(write(s, 1).asking());
        s.deliver(write(s, 0).asking());
        s.expect(ack(0, 1));
        s.expect_nothing();
    });
}

#[test]
fn an_ack_is_held_for_one_turn_and_at_most_five_microseconds() {
    story(|s| {
        s.pass_until(crate::harness::us(50));
        s.deliver(write(s, 0).asking());
        let report = s.turn();
        assert_eq!((report.received, report.sent), (1, 0), "held");
        assert!(report.more, "the next turn has something to do");
        assert_eq!(report.next_deadline, crate::harness::us(55));
        let report = s.turn();
        assert_eq!(report.sent, 1, "the next turn sends it");
        assert!(!report.more);
        assert_eq!(report.next_deadline, Instant::NEVER);
        s.expect(ack(0, 1));
    });
}

#[test]
fn an_ack_inside_of_a_message_is_not_held() {
    story(|s| {
        let reth = s.reth(SERVED, 3 * MTU);
        s.deliver(write_first(0, reth, &theirs(0, MTU)).asking());
        s.deliver(write_middle(1, &theirs(MTU, MTU)).asking());
        assert_eq!(s.turn().sent, 1);
        s.expect(ack(1, 0));
        s.deliver(write_last(2, &theirs(2 * MTU, MTU)).asking());
        assert_eq!(s.turn().sent, 0);
        s.expect(ack(2, 1));
    });
}

#[test]
fn an_ack_leaves_behind_what_the_application_posts_meanwhile() {
    story(|s| {
        s.post_receive(1, 64);
        s.deliver(send_only(0, &theirs(0, 8)).asking());
        s.turn();
        s.post_send(2, 8);
        s.turn();
        s.expect(send_only(0, &ours(SOURCE, 8)).asking());
        s.expect(ack(0, 1));
        s.expect_received(1, Success);
        s.deliver(ack(0, 1));
        s.expect_sent(2, Success);
    });
}

#[test]
fn naks_and_answers_are_not_held() {
    story(|s| {
        s.deliver(read_request(0, s.reth(SERVED, 8)));
        assert_eq!(s.turn().sent, 1);
        s.expect(read_response_only(0, 1, &ours(SERVED, 8)));
        s.deliver(write(s, 3));
        assert_eq!(s.turn().sent, 1);
        s.expect(sequence_nak(1, 1));
    });
}

#[test]
fn answers_and_requests_take_turns_burst_by_burst() {
    let setup = Setup { max_segments: 4, ..Setup::default() };
    setup.tell(|s| {
        s.deliver(read_request(0, s.reth(SERVED, 16 * MTU)));
        s.post_write(1, 16 * MTU);
        let mut bursts: Vec<(usize, bool, usize)> = vec![];
        while let Some(sent) = s.next_sent() {
            let answers = sent.frame.is_response();
            match bursts.last_mut() {
                Some((burst, kind, count)) if *burst == sent.burst => {
                    assert_eq!(*kind, answers, "a burst is of one kind");
                    *count += 1;
                }
                _ => bursts.push((sent.burst, answers, 1)),
            }
        }
        let order: Vec<_> =
            bursts.into_iter().map(|(_, answers, count)| (answers, count)).collect();
        // A FIRST packet is larger than those after it, and so is the LAST of an answer.
        let expected = [
            (false, 2),
            (true, 2),
            (false, 4),
            (true, 4),
            (false, 4),
            (true, 4),
            (false, 4),
            (true, 4),
            (false, 2),
            (true, 1),
            (true, 1),
        ];
        assert_eq!(order, expected);
        s.deliver(ack(15, 1));
        s.expect_sent(1, Success);
    });
}

#[test]
fn an_ack_takes_its_turn_while_a_long_message_is_sent() {
    let setup = Setup { max_segments: 4, ..Setup::default() };
    setup.tell(|s| {
        s.post_write(1, 200 * MTU);
        s.deliver(write(s, 0).asking());
        s.turn();
        s.turn();
        let mut position = None;
        let mut count = 0;
        while let Some(sent) = s.next_sent() {
            if sent.frame == ack(0, 1) {
                position = Some(count);
            }
            count += 1;
        }
        assert!(position.is_some_and(|position| position < 72), "sent at {position:?} of {count}");
    });
}

#[test]
fn a_read_whose_data_cannot_be_read_any_more_gets_0x63_where_the_data_ends() {
    story(|s| {
        let memory = std::sync::Arc::clone(&s.memory);
        let all = 0..crate::harness::MEMORY;
        let access = uroce::queue::Access::ALL;
        let base = crate::harness::BASE;
        let keys = s.engine.register_part(s.domain, memory, all, base, access).unwrap();
        let reth = Reth { key: keys.remote, ..s.reth(0, 100 * MTU) };
        s.deliver(read_request(0, reth));
        let sent = s.turn().sent as i32;
        assert!((64..80).contains(&sent));
        s.engine.deregister(keys.local).unwrap();
        let full = read_responses(0, 1, &ours(0, 100 * MTU), MTU);
        s.expect_all(full.into_iter().take(sent as usize));
        s.expect(nak(sent, 1, NakCode::RemoteOperationalError));
        s.expect_event(Event::Fatal(0));
        s.expect_dead();
    });
}

#[test]
fn an_ack_of_our_request_and_an_ack_of_theirs_are_independent() {
    story(|s| {
        s.post_read(1, 8);
        s.expect(read_request(0, peer_reth(0, 8)));
        s.deliver(write(s, 0).asking());
        s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        s.expect(ack(0, 1));
        s.expect_sent(1, Success);
        assert_eq!(s.bytes(TARGET, 8), theirs(0, 8));
    });
}
