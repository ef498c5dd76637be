//! Packets are lost: sequence NAKs, missing responses, and where a retry starts.

use uroce::engine::Counter;
use uroce::queue::CompletionStatus::{Success, TransportRetryExceeded, WorkRequestFlushed};
use uroce::queue::PathMtu;

use crate::harness::{
    Frame, SOURCE, Setup, Story, TARGET, ack, atomic_ack, fetch_add, ours, peer_reth, read_request,
    read_response_only, read_responses, send_only, sequence_nak, story, theirs, us, write_first,
    write_last, write_middle, write_only,
};

const MTU: usize = 1024;

/// `count` WRITEs of 8 bytes, PSNs from 0 on, under way.
fn writes(s: &mut Story, count: i32) -> Vec<Frame> {
    for id in 0..count {
        s.post_write(id as u64, 8);
    }
    let frame = |psn| write_only(psn, peer_reth(0, 8), &ours(SOURCE, 8)).asking();
    let frames: Vec<_> = (0..count).map(frame).collect();
    s.expect_all(frames.clone());
    frames
}

#[test]
fn a_sequence_nak_acknowledges_what_is_before_it_and_everything_from_it_on_is_sent_again() {
    story(|s| {
        let frames = writes(s, 5);
        s.deliver(sequence_nak(2, 2));
        s.expect_sent(0, Success);
        s.expect_sent(1, Success);
        s.expect_all(frames[2..].to_vec());
        assert_eq!(s.count(Counter::PacketSequenceError), 1);
        assert_eq!(s.count(Counter::RetransmittedPackets), 3);
        s.deliver(ack(4, 5));
        for id in 2..5 {
            s.expect_sent(id, Success);
        }
    });
}

#[test]
fn a_retry_from_the_middle_of_a_message_sends_the_same_packets_again() {
    story(|s| {
        let length = 4 * MTU + 3;
        s.post_write(1, length);
        let reth = peer_reth(0, length);
        let data = ours(SOURCE, length);
        let frames = [
            write_first(0, reth, &data[..MTU]),
            write_middle(1, &data[MTU..2 * MTU]),
            write_middle(2, &data[2 * MTU..3 * MTU]),
            write_middle(3, &data[3 * MTU..4 * MTU]),
            write_last(4, &data[4 * MTU..]).asking(),
        ];
        s.expect_all(frames.clone());
        for lost in [0, 2, 4] {
            s.deliver(sequence_nak(lost, 0));
            s.expect_all(frames[lost as usize..].to_vec());
        }
        s.deliver(ack(4, 1));
        s.expect_sent(1, Success);
    });
}

#[test]
fn a_retry_reads_the_data_again_from_where_it_lies() {
    story(|s| {
        let frames = writes(s, 1);
        s.memory.write(SOURCE, &[7; 8]).unwrap();
        s.deliver(sequence_nak(0, 0));
        let sent = s.next_sent().expect("the retry").frame;
        assert_eq!(sent.headers, frames[0].headers);
        assert_eq!(sent.payload, [7; 8]);
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
    });
}

#[test]
fn a_second_nak_at_the_same_place_is_ignored_and_counted_until_there_was_progress() {
    story(|s| {
        let frames = writes(s, 3);
        s.deliver(sequence_nak(1, 1));
        s.expect_sent(0, Success);
        s.expect_all(frames[1..].to_vec());
        s.deliver(sequence_nak(1, 1));
        s.deliver(sequence_nak(1, 1));
        s.expect_nothing();
        assert_eq!(s.count(Counter::IgnoredNak), 2);
        s.deliver(sequence_nak(2, 2));
        s.expect_sent(1, Success);
        s.expect(frames[2].clone());
        s.deliver(ack(2, 3));
        s.expect_sent(2, Success);
    });
}

#[test]
fn two_naks_of_one_turn_make_one_retry() {
    story(|s| {
        let frames = writes(s, 3);
        s.deliver(sequence_nak(1, 1));
        s.deliver(sequence_nak(1, 1));
        s.expect_sent(0, Success);
        s.expect_all(frames[1..].to_vec());
    });
}

#[test]
fn a_sequence_nak_that_is_progress_uses_up_no_retry() {
    let setup = Setup { retry_count: 0, ..Setup::default() };
    setup.tell(|s| {
        let frames = writes(s, 4);
        for lost in 1..4 {
            s.deliver(sequence_nak(lost, lost as u32));
            s.expect_sent(lost as u64 - 1, Success);
            s.expect_all(frames[lost as usize..].to_vec());
        }
        s.deliver(ack(3, 4));
        s.expect_sent(3, Success);
    });
}

#[test]
fn a_sequence_nak_without_progress_uses_up_a_retry() {
    let setup = Setup { retry_count: 0, ..Setup::default() };
    setup.tell(|s| {
        writes(s, 2);
        s.post_receive(9, 8);
        s.deliver(sequence_nak(0, 0));
        s.expect_sent(0, TransportRetryExceeded);
        s.expect_sent(1, WorkRequestFlushed);
        s.expect_received(9, WorkRequestFlushed);
        assert_eq!(s.count(Counter::RetryExceeded), 1);
        s.expect_dead();
    });
}

#[test]
fn an_ack_of_what_was_sent_before_a_retry_still_counts() {
    story(|s| {
        let frames = writes(s, 3);
        s.deliver(sequence_nak(0, 0));
        s.deliver(ack(1, 2));
        s.expect_sent(0, Success);
        s.expect_sent(1, Success);
        s.expect(frames[2].clone());
        s.deliver(ack(2, 3));
        s.expect_sent(2, Success);
        s.expect_nothing();
    });
}

#[test]
fn an_ack_beyond_an_outstanding_read_shows_that_its_response_is_missing() {
    story(|s| {
        s.post_read(1, 8);
        s.post_write(2, 8);
        let read = read_request(0, peer_reth(0, 8));
        let write = write_only(1, peer_reth(0, 8), &ours(SOURCE, 8)).asking();
        s.expect_all([read.clone(), write.clone()]);
        s.deliver(ack(1, 2));
        s.expect_all([read, write]);
        assert_eq!(s.count(Counter::ImpliedNak), 1);
        s.deliver(ack(1, 2));
        s.expect_nothing();
        s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        s.deliver(ack(1, 2));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
    });
}

#[test]
fn an_ack_beyond_an_outstanding_atomic_shows_that_its_response_is_missing() {
    story(|s| {
        s.post_fetch_add(1, 3);
        s.post_write(2, 8);
        let atomic = fetch_add(0, peer_reth(0, 8), 3);
        let write = write_only(1, peer_reth(0, 8), &ours(SOURCE, 8)).asking();
        s.expect_all([atomic.clone(), write.clone()]);
        s.deliver(ack(1, 2));
        s.expect_all([atomic, write]);
        s.deliver(atomic_ack(0, 1, 70));
        s.deliver(ack(1, 2));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
        assert_eq!(s.memory.load_u64(TARGET).unwrap(), 70);
    });
}

#[test]
fn a_plain_ack_of_a_read_or_atomic_does_not_finish_it() {
    story(|s| {
        s.post_read(1, 8);
        s.expect(read_request(0, peer_reth(0, 8)));
        s.deliver(ack(0, 1));
        s.expect(read_request(0, peer_reth(0, 8)));
        s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        s.expect_sent(1, Success);
        s.post_fetch_add(2, 1);
        s.expect(fetch_add(1, peer_reth(0, 8), 1));
        s.deliver(ack(1, 2));
        s.expect(fetch_add(1, peer_reth(0, 8), 1));
        s.deliver(atomic_ack(1, 2, 70));
        s.expect_sent(2, Success);
    });
}

#[test]
fn a_response_of_a_later_read_shows_that_an_earlier_one_is_missing() {
    story(|s| {
        s.post_read(1, 8);
        s.post_read(2, 8);
        let reads = [read_request(0, peer_reth(0, 8)), read_request(1, peer_reth(0, 8))];
        s.expect_all(reads.clone());
        s.deliver(read_response_only(1, 2, &theirs(0, 8)));
        s.expect_all(reads);
        assert_eq!(s.bytes(TARGET, 8), ours(TARGET, 8));
        s.deliver(read_response_only(0, 1, &theirs(0, 8)));
        s.deliver(read_response_only(1, 2, &theirs(0, 8)));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
    });
}

#[test]
fn a_read_is_retried_from_its_first_missing_response_with_what_remains() {
    story(|s| {
        let length = 5 * MTU + 9;
        let data = theirs(0, length);
        s.post_read(1, length);
        s.expect(read_request(0, peer_reth(0, length)));
        let responses = read_responses(0, 1, &data, MTU);
        s.deliver(responses[0].clone());
        s.deliver(responses[1].clone());
        s.deliver(responses[3].clone());
        s.deliver(responses[4].clone());
        s.deliver(responses[5].clone());
        s.expect(read_request(2, peer_reth(2 * MTU, length - 2 * MTU)));
        s.expect_nothing();
        assert_eq!(s.count(Counter::ImpliedNak), 1);
        // The answer to the retry begins with FIRST.
        s.deliver_all(read_responses(2, 1, &data[2 * MTU..], MTU));
        s.expect_sent(1, Success);
        assert_eq!(s.bytes(TARGET, length), data);
    });
}

#[test]
fn a_retry_of_the_last_response_is_answered_with_only() {
    story(|s| {
        let length = 2 * MTU + 9;
        let data = theirs(0, length);
        s.post_read(1, length);
        s.post_write(2, 8);
        s.expect(read_request(0, peer_reth(0, length)));
        let write = s.next_sent().expect("the WRITE").frame;
        s.deliver_all(read_responses(0, 1, &data, MTU).into_iter().take(2));
        s.deliver(ack(3, 2));
        s.expect(read_request(2, peer_reth(2 * MTU, 9)));
        s.expect(write);
        s.deliver(read_response_only(2, 1, &data[2 * MTU..]));
        s.deliver(ack(3, 2));
        s.expect_sent(1, Success);
        s.expect_sent(2, Success);
        assert_eq!(s.bytes(TARGET, length), data);
    });
}

#[test]
fn a_retry_of_a_read_that_loses_again_starts_at_the_next_missing_response() {
    let setup = Setup { retry_count: 1, ..Setup::default() };
    setup.tell(|s| {
        let length = 6 * MTU;
        let data = theirs(0, length);
        s.post_read(1, length);
        s.expect(read_request(0, peer_reth(0, length)));
        let first = read_responses(0, 1, &data, MTU);
        s.deliver(first[0].clone());
        s.deliver(first[2].clone());
        s.expect(read_request(1, peer_reth(MTU, 5 * MTU)));
        let second = read_responses(1, 1, &data[MTU..], MTU);
        s.deliver(second[0].clone());
        s.deliver(second[1].clone());
        s.deliver(second[3].clone());
        s.expect(read_request(3, peer_reth(3 * MTU, 3 * MTU)));
        s.deliver_all(read_responses(3, 1, &data[3 * MTU..], MTU));
        s.expect_sent(1, Success);
        assert_eq!(s.bytes(TARGET, length), data);
    });
}

#[test]
fn responses_that_come_twice_are_ignored() {
    story(|s| {
        let length = 3 * MTU;
        let data = theirs(0, length);
        s.post_read(1, length);
        s.expect(read_request(0, peer_reth(0, length)));
        let responses = read_responses(0, 1, &data, MTU);
        for response in responses {
            s.deliver(response.clone());
            s.deliver(response);
        }
        s.expect_sent(1, Success);
        assert_eq!(s.count(Counter::IgnoredResponse), 3);
        assert_eq!(s.bytes(TARGET, length), data);
    });
}

/// Path MTU 4096: a chunk of 64 KiB has 16 responses.
fn chunked(told: impl Fn(&mut Story)) {
    Setup { mtu: PathMtu::Mtu4096, ..Setup::default() }.tell(told);
}

#[test]
fn a_long_read_is_asked_for_in_chunks_and_a_retry_never_crosses_the_end_of_one() {
    chunked(|s| {
        let (chunk, length) = (64 * 1024, 2 * 64 * 1024 + 100);
        let data = theirs(0, length);
        s.post_read(1, length);
        s.expect(read_request(0, peer_reth(0, chunk)));
        let responses = read_responses(0, 1, &data[..chunk], 4096);
        s.deliver_all(responses[..14].to_vec());
        // With response 14 missing: the retry asks for the rest of this chunk only.
        s.deliver(responses[15].clone());
        s.expect(read_request(14, peer_reth(14 * 4096, 2 * 4096)));
        let mut later = vec![];
        while let Some(sent) = s.next_sent() {
            later.push(sent.frame);
        }
        s.deliver_all(read_responses(14, 1, &data[14 * 4096..chunk], 4096));
        while let Some(sent) = s.next_sent() {
            later.push(sent.frame);
        }
        let second = read_request(16, peer_reth(chunk, chunk));
        let third = read_request(32, peer_reth(2 * chunk, 100));
        assert!(later.iter().all(|frame| [&second, &third].contains(&frame)), "{later:?}");
        assert!(later.contains(&second));
        s.deliver_all(read_responses(16, 2, &data[chunk..2 * chunk], 4096));
        while let Some(sent) = s.next_sent() {
            later.push(sent.frame);
        }
        assert!(later.contains(&third));
        s.deliver(read_response_only(32, 3, &data[2 * chunk..]));
        s.expect_sent(1, Success);
        assert_eq!(s.bytes(TARGET, length), data);
    });
}

#[test]
fn chunks_end_with_last_each_and_the_next_begins_with_first() {
    chunked(|s| {
        let (chunk, length) = (64 * 1024, 64 * 1024 + 4096 + 1);
        let data = theirs(0, length);
        s.post_read(1, length);
        s.expect(read_request(0, peer_reth(0, chunk)));
        s.deliver_all(read_responses(0, 1, &data[..chunk], 4096));
        s.expect(read_request(16, peer_reth(chunk, 4097)));
        s.deliver_all(read_responses(16, 2, &data[chunk..], 4096));
        let completion = s.expect_sent(1, Success);
        assert_eq!(completion.length as usize, length);
        assert_eq!(s.bytes(TARGET, length), data);
    });
}

#[test]
fn a_chunk_answered_as_if_it_were_not_one_is_a_bad_response() {
    chunked(|s| {
        let (chunk, length) = (64 * 1024, 128 * 1024);
        s.post_read(1, length);
        s.expect(read_request(0, peer_reth(0, chunk)));
        let wrong = read_responses(0, 1, &theirs(0, length), 4096);
        s.deliver_all(wrong[..16].to_vec());
        while let Some(sent) = s.next_sent() {
            assert_eq!(sent.frame, read_request(16, peer_reth(chunk, chunk)));
        }
        s.expect_sent(1, uroce::queue::CompletionStatus::BadResponse);
        s.expect_dead();
    });
}

#[test]
fn a_missing_response_without_progress_uses_up_a_retry_and_with_progress_none() {
    let setup = Setup { retry_count: 0, ..Setup::default() };
    setup.tell(|s| {
        s.post_read(1, 2 * MTU);
        s.post_send(2, 8);
        s.expect(read_request(0, peer_reth(0, 2 * MTU)));
        s.expect(send_only(2, &ours(SOURCE, 8)).asking());
        s.deliver(ack(2, 2));
        s.expect_sent(1, TransportRetryExceeded);
        s.expect_sent(2, WorkRequestFlushed);
        s.expect_dead();
    });
    setup.tell(|s| {
        s.post_write(1, 8);
        s.post_read(2, 8);
        s.post_write(3, 8);
        for _ in 0..3 {
            s.next_sent().expect("a request");
        }
        s.deliver(ack(2, 3));
        s.expect_sent(1, Success);
        s.expect(read_request(1, peer_reth(0, 8)));
        s.expect(write_only(2, peer_reth(0, 8), &ours(SOURCE, 8)).asking());
        s.deliver(read_response_only(1, 2, &theirs(0, 8)));
        s.deliver(ack(2, 3));
        s.expect_sent(2, Success);
        s.expect_sent(3, Success);
    });
}

#[test]
fn two_interleaved_streams_of_one_read_start_no_third_one() {
    story(|s| {
        // The round trip was long, and is short now.
        s.post_write(0, 8);
        s.next_sent().expect("the WRITE");
        s.pass_until(us(900));
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
        let length = 48 * MTU;
        let data = theirs(0, length);
        s.post_read(1, length);
        s.expect(read_request(1, peer_reth(0, length)));
        let responses = read_responses(1, 2, &data, MTU);
        // The first of the older stream is missing: asked for again, once.
        s.deliver(responses[1].clone());
        s.expect(read_request(1, peer_reth(0, length)));
        for packet in 0..40 {
            s.pass_until(us(900 + 3 * packet as u64));
            s.deliver(responses[packet].clone());
            s.deliver(responses[packet + 2].clone());
        }
        s.expect_nothing();
        assert_eq!(s.count(Counter::ImpliedNak), 1);
        // What is really missing is asked for once an answer to the first step back could be here.
        s.pass_until(us(1_800));
        s.deliver(responses[42].clone());
        let rest = read_request(41, peer_reth(40 * MTU, 8 * MTU));
        s.expect(rest);
        s.deliver_all(responses[40..].to_vec());
        s.expect_sent(1, Success);
        assert_eq!(s.bytes(TARGET, length), data);
        assert_eq!(s.count(Counter::ImpliedNak), 2);
    });
}

#[test]
fn gaps_that_an_older_stream_leaves_in_a_newer_one_start_no_third_one() {
    story(|s| {
        s.post_write(0, 8);
        s.next_sent().expect("the WRITE");
        s.pass_until(us(900));
        s.deliver(ack(0, 1));
        s.expect_sent(0, Success);
        let small = |psn| write_only(psn, peer_reth(0, 8), &ours(SOURCE, 8)).asking();
        let frames: Vec<_> = (1..=16).map(small).collect();
        for id in 1..=16 {
            s.post_write(id, 8);
        }
        s.expect_all(frames.clone());
        s.deliver(sequence_nak(1, 1));
        s.expect_all(frames.clone());
        // Each packet of the newer stream is followed by one of the older that lies ahead.
        for psn in 2..10 {
            s.pass_until(us(900 + psn as u64));
            s.deliver(sequence_nak(psn, psn as u32));
            s.expect_sent(psn as u64 - 1, Success);
        }
        s.expect_nothing();
        assert_eq!(s.count(Counter::PacketSequenceError), 1);
        assert_eq!(s.count(Counter::IgnoredNak), 8);
        // Half a round trip later a NAK may speak of the newer stream.
        s.pass_until(us(1_350));
        s.deliver(sequence_nak(12, 12));
        s.expect_all(frames[11..].to_vec());
        s.deliver(ack(16, 17));
        for id in 9..=16 {
            s.expect_sent(id, Success);
        }
    });
}
