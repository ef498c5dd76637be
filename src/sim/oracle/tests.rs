//! The oracle itself is tested: it must agree to what may happen and object to what may not.

use std::sync::Arc;

use super::*;
use crate::queue::Attachment;

/// Two connected queue pairs, each with a memory of its own, in an oracle.
struct Court {
    oracle: Oracle,
    queues: [QueueId; 2],
    memories: [Arc<OwnedMemory>; 2],
    ids: [MemoryId; 2],
}

const SIZE: usize = 256;

impl Court {
    fn new() -> Self {
        let mut oracle = Oracle::new();
        let memories = [OwnedMemory::new(SIZE), OwnedMemory::new(SIZE)];
        let ids =
            [0, 1].map(|side| oracle.watch(format!("memory {side}"), memories[side].clone(), SIZE));
        let queues = oracle.connect([Allowance::default(); 2]);
        Self { oracle, queues, memories, ids }
    }

    fn place(&self, side: usize, offset: usize, length: usize) -> Place {
        Place { memory: self.ids[side], offset, length }
    }

    fn post(&mut self, model: &SendModel) {
        self.oracle.post_send(self.queues[0], model);
    }

    fn post_receive(&mut self, id: u64, offset: usize, length: usize) {
        let places = vec![self.place(1, offset, length)];
        self.oracle.post_receive(self.queues[1], &ReceiveModel { id, places, defect: None });
    }

    /// What the stack would do to a memory.
    fn write(&self, side: usize, offset: usize, bytes: &[u8]) {
        self.memories[side].write(offset, bytes).unwrap();
    }

    fn sent(&mut self, completion: Completion) -> Result<(), Violation> {
        self.oracle.completed(self.queues[0], &completion)
    }

    fn received(&mut self, completion: Completion) -> Result<(), Violation> {
        self.oracle.completed(self.queues[1], &completion)
    }
}

fn model(id: u64, action: Action, kind: CompletionKind, bytes: &[u8]) -> SendModel {
    SendModel {
        id,
        action,
        kind,
        message: None,
        signaled: true,
        fence: false,
        solicited: false,
        local: Local::Inline(bytes.to_vec()),
        length: bytes.len(),
        defect: None,
    }
}

fn send(id: u64, bytes: &[u8]) -> SendModel {
    let message = Some(Attachment::None);
    SendModel { message, ..model(id, Action::Send, CompletionKind::Send, bytes) }
}

fn completion(id: u64, kind: CompletionKind, status: CompletionStatus) -> Completion {
    Completion {
        id,
        status,
        kind,
        length: 0,
        attachment: Attachment::None,
        queue_pair: Default::default(),
        source: Default::default(),
        solicited: false,
    }
}

fn success(id: u64, kind: CompletionKind) -> Completion {
    completion(id, kind, CompletionStatus::Success)
}

fn rule(outcome: Result<(), Violation>) -> Rule {
    outcome.expect_err("the oracle should object").rule
}

#[test]
fn a_write_must_be_there_when_it_completes_and_may_be_there_before() {
    let mut court = Court::new();
    let target = court.place(1, 8, 4);
    court.post(&model(1, Action::Write(Some(target)), CompletionKind::Write, b"abcd"));
    court.write(1, 8, b"ab");
    court.oracle.check_memory().unwrap();
    let early = court.sent(success(1, CompletionKind::Write));
    assert_eq!(rule(early), Rule::Memory);

    let mut court = Court::new();
    court.post(&model(1, Action::Write(Some(target)), CompletionKind::Write, b"abcd"));
    court.write(1, 8, b"abcd");
    court.sent(success(1, CompletionKind::Write)).unwrap();
    court.oracle.check_memory().unwrap();
    court.write(1, 9, b"?");
    assert_eq!(rule(court.oracle.check_memory()), Rule::Memory);
}

/// Nobody looks at all bytes while work goes on: what was written by nobody is found before
/// something else may change it, or at the end.
#[test]
fn a_stray_byte_is_found_even_if_something_else_comes_over_it() {
    let stray = || {
        let court = Court::new();
        court.write(1, 9, b"?");
        court
    };
    let place = |court: &Court| court.place(1, 8, 4);

    let mut court = stray();
    court.oracle.store(place(&court), b"abcd");
    court.write(1, 8, b"abcd");
    assert_eq!(rule(court.oracle.check_memory()), Rule::Memory, "the application's own bytes");

    let mut court = stray();
    court.post(&model(1, Action::Write(Some(place(&court))), CompletionKind::Write, b"abcd"));
    court.write(1, 8, b"abcd");
    assert_eq!(rule(court.sent(success(1, CompletionKind::Write))), Rule::Memory, "a WRITE's");

    let mut court = stray();
    court.post_receive(1, 8, 4);
    court.post(&send(1, b"abcd"));
    court.write(1, 8, b"abcd");
    let filled = Completion { length: 4, ..success(1, CompletionKind::Receive) };
    assert_eq!(rule(court.received(filled)), Rule::Memory, "a message's");

    let mut court = stray();
    let read = Action::Read(Some(place(&court)));
    court.post(&SendModel { length: 4, ..model(1, read, CompletionKind::Read, b"") });
    court.write(1, 9, &[0]);
    assert_eq!(rule(court.oracle.check_memory()), Rule::Memory, "a READ's source");

    let mut court = stray();
    court.write(1, 9, &[0]);
    court.oracle.check_memory().expect("what was undone before anybody could meet it");
}

/// Where something may write, nobody else may.
#[test]
fn a_stray_byte_in_a_claim_is_found_when_any_connection_ends() {
    let mut court = Court::new();
    let target = court.place(1, 8, 4);
    court.post(&model(1, Action::Write(Some(target)), CompletionKind::Write, b"abcd"));
    court.write(1, 8, b"ab??");
    let others = court.oracle.connect([Allowance::default(); 2]);
    assert_eq!(rule(court.oracle.disconnect(others[0])), Rule::Memory);
    assert_eq!(rule(court.oracle.check_claimed()), Rule::Memory);
}

#[test]
fn no_byte_beside_a_claim_may_change() {
    let mut court = Court::new();
    let target = court.place(1, 8, 4);
    court.post(&model(1, Action::Write(Some(target)), CompletionKind::Write, b"abcd"));
    court.write(1, 12, b"e");
    assert_eq!(rule(court.oracle.check_memory()), Rule::Memory);
}

#[test]
fn of_overlapping_writes_of_a_queue_the_later_wins() {
    for (last, good) in [(b"BBBB", true), (b"AAAA", false)] {
        let mut court = Court::new();
        let target = court.place(1, 8, 4);
        court.post(&model(1, Action::Write(Some(target)), CompletionKind::Write, b"AAAA"));
        court.post(&model(2, Action::Write(Some(target)), CompletionKind::Write, b"BBBB"));
        court.write(1, 8, last);
        court.sent(success(1, CompletionKind::Write)).unwrap();
        assert_eq!(court.sent(success(2, CompletionKind::Write)).is_ok(), good);
    }
}

#[test]
fn requests_complete_once_and_in_order() {
    let mut court = Court::new();
    for id in 1..=2 {
        court.post(&model(id, Action::Local, CompletionKind::LocalInvalidate, b""));
    }
    let second = success(2, CompletionKind::LocalInvalidate);
    assert_eq!(rule(court.sent(second)), Rule::Completion);
    let mut court = Court::new();
    court.post(&model(1, Action::Local, CompletionKind::LocalInvalidate, b""));
    court.sent(success(1, CompletionKind::LocalInvalidate)).unwrap();
    assert_eq!(rule(court.sent(success(1, CompletionKind::LocalInvalidate))), Rule::Completion);
}

#[test]
fn an_unsignaled_request_has_no_completion_and_is_covered_by_the_next() {
    let quiet = |id, target| SendModel {
        signaled: false,
        ..model(id, Action::Write(Some(target)), CompletionKind::Write, b"abcd")
    };
    let mut court = Court::new();
    let target = court.place(1, 0, 4);
    court.post(&quiet(1, target));
    court.write(1, 0, b"abcd");
    assert_eq!(rule(court.sent(success(1, CompletionKind::Write))), Rule::Completion);

    let mut court = Court::new();
    court.post(&quiet(1, target));
    court.post(&model(2, Action::Local, CompletionKind::LocalInvalidate, b""));
    let covering = court.sent(success(2, CompletionKind::LocalInvalidate));
    assert_eq!(rule(covering), Rule::Memory, "the covered WRITE is not there");
}

#[test]
fn a_message_fills_the_oldest_receive_as_a_whole() {
    let deliver = |change: fn(&mut Completion)| {
        let mut court = Court::new();
        court.post_receive(10, 0, 16);
        court.post_receive(11, 16, 16);
        court.post(&send(1, b"hello"));
        court.write(1, 0, b"hello");
        let mut completion = success(10, CompletionKind::Receive);
        completion.length = 5;
        change(&mut completion);
        court.received(completion)
    };
    deliver(|_| {}).unwrap();
    assert_eq!(rule(deliver(|one| one.id = 11)), Rule::Receive);
    assert_eq!(rule(deliver(|one| one.length = 4)), Rule::Receive);
    assert_eq!(rule(deliver(|one| one.solicited = true)), Rule::Receive);
    let other = CompletionKind::ReceiveWriteWithImmediate;
    let is_write = deliver(|one| one.kind = CompletionKind::ReceiveWriteWithImmediate);
    assert_eq!(rule(is_write), Rule::Receive, "{other:?}");
}

#[test]
fn a_receive_cannot_be_filled_by_nobody_nor_a_send_succeed_without_one() {
    let mut court = Court::new();
    court.post_receive(10, 0, 16);
    assert_eq!(rule(court.received(success(10, CompletionKind::Receive))), Rule::Receive);
    let mut court = Court::new();
    court.post(&send(1, b"x"));
    assert_eq!(rule(court.sent(success(1, CompletionKind::Send))), Rule::Receive);
}

#[test]
fn a_sender_must_not_be_told_before_the_bytes_are_there() {
    let mut court = Court::new();
    court.post_receive(10, 0, 16);
    court.post(&send(1, b"hello"));
    court.write(1, 0, b"hel");
    assert_eq!(rule(court.sent(success(1, CompletionKind::Send))), Rule::Memory);
}

#[test]
fn a_read_brings_what_memory_held_meanwhile() {
    let read = |got: &[u8], meanwhile: &[u8]| {
        let mut court = Court::new();
        let (source, landing) = (court.place(1, 0, 2), court.place(0, 0, 2));
        let local = Local::Places(vec![landing]);
        let action = Action::Read(Some(source));
        let request = model(1, action, CompletionKind::Read, b"");
        court.post(&SendModel { local, length: 2, ..request });
        let other = court.oracle.connect([Allowance::default(); 2])[0];
        if !meanwhile.is_empty() {
            let action = Action::Write(Some(source));
            court.oracle.post_send(other, &model(9, action, CompletionKind::Write, meanwhile));
        }
        court.write(0, 0, got);
        let mut completion = success(1, CompletionKind::Read);
        completion.length = 2;
        court.sent(completion)
    };
    read(&[0, 0], &[]).unwrap();
    assert_eq!(rule(read(&[0, 1], &[])), Rule::ReadValue);
    read(&[0, 7], &[7, 7]).unwrap();
    assert_eq!(rule(read(&[0, 8], &[7, 7])), Rule::ReadValue);
}

#[test]
fn a_fenced_write_does_not_come_before_an_earlier_read() {
    for (fence, good) in [(false, true), (true, false)] {
        let mut court = Court::new();
        let (source, landing) = (court.place(1, 0, 1), court.place(0, 0, 1));
        let local = Local::Places(vec![landing]);
        let read = model(1, Action::Read(Some(source)), CompletionKind::Read, b"");
        court.post(&SendModel { local, length: 1, ..read });
        let write = model(2, Action::Write(Some(source)), CompletionKind::Write, b"w");
        court.post(&SendModel { fence, ..write });
        court.write(0, 0, b"w");
        let mut completion = success(1, CompletionKind::Read);
        completion.length = 1;
        assert_eq!(court.sent(completion).is_ok(), good);
    }
}

#[test]
fn a_legal_request_fails_only_for_a_reason() {
    let fail = |prepare: fn(&mut Court), status| {
        let mut court = Court::new();
        court.post(&model(1, Action::Local, CompletionKind::LocalInvalidate, b""));
        prepare(&mut court);
        court.sent(completion(1, CompletionKind::LocalInvalidate, status))
    };
    let nothing: fn(&mut Court) = |_| {};
    for status in [
        CompletionStatus::WorkRequestFlushed,
        CompletionStatus::TransportRetryExceeded,
        CompletionStatus::ReceiverNotReadyRetryExceeded,
        CompletionStatus::RemoteAccessError,
        CompletionStatus::LocalProtectionError,
    ] {
        assert_eq!(rule(fail(nothing, status)), Rule::Status, "{status}");
    }
    let stopped: fn(&mut Court) = |court| court.oracle.stop(court.queues[0]).unwrap();
    fail(stopped, CompletionStatus::WorkRequestFlushed).unwrap();
    let peer_gone: fn(&mut Court) = |court| court.oracle.stop(court.queues[1]).unwrap();
    fail(peer_gone, CompletionStatus::TransportRetryExceeded).unwrap();
}

#[test]
fn a_wrong_request_fails_with_its_own_status_and_everything_after_it_is_flushed() {
    let wrong = |status| {
        let mut court = Court::new();
        let request = model(1, Action::Write(None), CompletionKind::Write, b"x");
        court.post(&SendModel { defect: Some(Defect::RemoteKey), ..request });
        court.post(&model(2, Action::Local, CompletionKind::LocalInvalidate, b""));
        court.oracle.notice(court.queues[1], Notice::AccessError).unwrap();
        let first = court.sent(completion(1, CompletionKind::Write, status));
        (court, first)
    };
    assert_eq!(rule(wrong(CompletionStatus::Success).1), Rule::Status);
    assert_eq!(rule(wrong(CompletionStatus::RemoteOperationError).1), Rule::Status);
    let after = |status| {
        let (mut court, first) = wrong(CompletionStatus::RemoteAccessError);
        first.unwrap();
        court.sent(completion(2, CompletionKind::LocalInvalidate, status))
    };
    after(CompletionStatus::WorkRequestFlushed).unwrap();
    assert_eq!(rule(after(CompletionStatus::Success)), Rule::Status);
    assert_eq!(rule(after(CompletionStatus::RemoteAccessError)), Rule::Status);
}

#[test]
fn a_failed_write_may_arrive_until_the_connection_is_over_and_not_afterwards() {
    let mut court = Court::new();
    let target = court.place(1, 0, 4);
    court.post(&model(1, Action::Write(Some(target)), CompletionKind::Write, b"abcd"));
    for queue in court.queues {
        court.oracle.stop(queue).unwrap();
    }
    court.sent(completion(1, CompletionKind::Write, CompletionStatus::WorkRequestFlushed)).unwrap();
    court.write(1, 0, b"ab");
    court.oracle.check_memory().unwrap();
    court.oracle.disconnect(court.queues[0]).unwrap();
    court.write(1, 2, b"cd");
    assert_eq!(rule(court.oracle.check_memory()), Rule::Memory);
}

#[test]
fn what_never_completes_is_found_at_the_end() {
    let mut court = Court::new();
    court.post(&model(1, Action::Local, CompletionKind::LocalInvalidate, b""));
    assert_eq!(rule(court.oracle.disconnect(court.queues[0])), Rule::Completion);
}

#[test]
fn an_atomic_that_happened_twice_is_found_at_the_end() {
    let mut court = Court::new();
    let (word, landing) = (court.place(1, 8, 8), court.place(0, 0, 8));
    let action = Action::Atomic(Some(word), Change::Add(5));
    let local = Local::Places(vec![landing]);
    let request = model(1, action, CompletionKind::FetchAdd, b"");
    court.post(&SendModel { local, length: 8, ..request });
    court.write(1, 8, &10u64.to_ne_bytes());
    court.sent(success(1, CompletionKind::FetchAdd)).unwrap();
    assert_eq!(rule(court.oracle.check_words()), Rule::Atomic);
    court.write(1, 8, &5u64.to_ne_bytes());
    court.oracle.check_words().unwrap();
}

#[test]
fn a_drained_queue_completes_nothing_until_it_goes_on() {
    let mut court = Court::new();
    let target = court.place(1, 8, 2);
    court.post(&model(1, Action::Write(Some(target)), CompletionKind::Write, b"ab"));
    let queue = court.queues[0];
    assert_eq!(rule(court.oracle.notice(queue, Notice::Drained)), Rule::Notice, "nobody asked");
    court.oracle.drain(queue, false);
    assert_eq!(rule(court.oracle.notice(queue, Notice::Drained)), Rule::Notice, "not to be told");
    court.oracle.drain(queue, true);
    court.oracle.notice(queue, Notice::Drained).unwrap();
    assert_eq!(rule(court.oracle.notice(queue, Notice::Drained)), Rule::Notice, "once is enough");
    court.write(1, 8, b"ab");
    assert_eq!(rule(court.sent(success(1, CompletionKind::Write))), Rule::Drain);
    court.post(&model(2, Action::Flush, CompletionKind::Flush, &[]));
    court.oracle.resume(queue);
    court.sent(success(2, CompletionKind::Flush)).unwrap();
}

#[test]
fn events_need_a_reason_and_a_refused_request_its_event() {
    let defective = SendModel {
        defect: Some(Defect::RemoteKey),
        ..model(1, Action::Write(None), CompletionKind::Write, b"ab")
    };
    let refused = completion(1, CompletionKind::Write, CompletionStatus::RemoteAccessError);
    let mut court = Court::new();
    let peer = court.queues[1];
    assert_eq!(rule(court.oracle.notice(peer, Notice::AccessError)), Rule::Notice);
    assert_eq!(rule(court.oracle.notice(peer, Notice::Fatal)), Rule::Notice);
    court.post(&defective);
    assert_eq!(rule(court.oracle.notice(peer, Notice::RequestError)), Rule::Notice);
    assert_eq!(rule(court.sent(refused)), Rule::Notice, "the peer was told nothing");
    let mut court = Court::new();
    court.post(&defective);
    court.oracle.notice(peer, Notice::AccessError).unwrap();
    court.sent(refused).unwrap();
}

#[test]
fn who_only_receives_hears_of_the_peer_before_a_message_arrives() {
    let mut court = Court::new();
    let queue = court.queues[1];
    assert_eq!(rule(court.oracle.notice(queue, Notice::Established)), Rule::Notice);
    court.oracle.only_receives(queue);
    court.post_receive(7, 0, 4);
    court.post(&send(1, b"abcd"));
    court.write(1, 0, b"abcd");
    let arrived = Completion { length: 4, ..success(7, CompletionKind::Receive) };
    assert_eq!(rule(court.received(arrived)), Rule::Notice);
    let mut court = Court::new();
    court.oracle.only_receives(queue);
    court.post_receive(7, 0, 4);
    court.post(&send(1, b"abcd"));
    court.write(1, 0, b"abcd");
    court.oracle.notice(queue, Notice::Established).unwrap();
    court.received(arrived).unwrap();
    court.oracle.may_send(queue);
    assert_eq!(rule(court.oracle.notice(queue, Notice::Established)), Rule::Notice);
}
