//! The model of shared receive queues agrees to what may happen and objects to what may not.

use std::sync::Arc;

use super::super::{Change, MemoryId, Oracle, Place, Rule, Violation};
use super::*;
use crate::memory::OwnedMemory;
use crate::queue::Attachment;

/// Two links to one queue, whose receives of 16 bytes lie one behind the other.
struct Court {
    oracle: Oracle,
    queue: SharedId,
    links: [LinkId; 2],
    memory: Arc<OwnedMemory>,
    id: MemoryId,
}

const RELIABLE: LinkPort = LinkPort {
    is_reliable: true,
    is_datagram: false,
    sender: 9,
    queue: Some(SharedId(0)),
    completions: 0,
    keeps_order: false,
    may_repeat: true,
    may_exhaust: false,
};

fn send(id: u64, bytes: &[u8]) -> LinkSend {
    LinkSend {
        id,
        kind: CompletionKind::Send,
        message: Some((None, Attachment::None)),
        signaled: true,
        solicited: false,
        data: bytes.to_vec(),
        effect: LinkEffect::None,
        defect: None,
    }
}

impl Court {
    fn new() -> Self {
        let mut oracle = Oracle::new();
        let memory = OwnedMemory::new(256);
        let id = oracle.watch("memory".to_owned(), memory.clone(), memory.len());
        let queue = oracle.open_shared();
        let links = [0; 2].map(|_| oracle.open_link(RELIABLE));
        Self { oracle, queue, links, memory, id }
    }

    fn place(&self, receive: u64) -> Place {
        Place { memory: self.id, offset: 16 * receive as usize, length: 16 }
    }

    fn post(&mut self, receives: u64) {
        for id in 0..receives {
            let place = self.place(id);
            self.oracle.post_shared_receive(self.queue, id, place);
        }
    }

    /// Bytes arrive in a receive, and its completion is polled.
    fn arrive(&mut self, link: usize, id: u64, bytes: &[u8]) -> Result<(), Violation> {
        self.memory.write(16 * id as usize, bytes).unwrap();
        self.complete(link, id, Status::Success, bytes.len() as u32)
    }

    fn complete(
        &mut self,
        link: usize,
        id: u64,
        status: Status,
        length: u32,
    ) -> Result<(), Violation> {
        let completion = Completion {
            id,
            status,
            kind: CompletionKind::Receive,
            length,
            ..Completion::default()
        };
        self.oracle.shared_receive_completed(self.links[link], self.queue, &completion)
    }

    fn sent(&mut self, link: usize, id: u64, status: Status) -> Result<(), Violation> {
        let kind = CompletionKind::Send;
        let completion = Completion { id, status, kind, ..Completion::default() };
        self.oracle.link_send_completed(self.links[link], &completion)
    }

    fn stop(&mut self) {
        for link in self.links {
            self.oracle.stop_link(link);
            self.oracle.last_receive_reached(link).unwrap();
        }
    }
}

#[track_caller]
fn objects(result: Result<(), Violation>, rule: Rule) {
    assert_eq!(result.map_err(|violation| violation.rule), Err(rule));
}

#[test]
fn links_take_receives_beside_each_other() {
    let mut court = Court::new();
    court.post(3);
    court.oracle.post_link_send(court.links[0], send(1, b"one"));
    court.oracle.post_link_send(court.links[1], send(1, b"other"));
    // The first link has begun with receive 0, but ends later.
    court.arrive(1, 1, b"other").unwrap();
    court.arrive(0, 0, b"one").unwrap();
    court.sent(0, 1, Status::Success).unwrap();
    court.sent(1, 1, Status::Success).unwrap();
    court.stop();
    court.oracle.close_shared(&[1]).unwrap();
}

#[test]
fn a_receive_that_nobody_can_hold_may_not_be_left_behind() {
    let mut court = Court::new();
    court.post(3);
    court.oracle.post_link_send(court.links[0], send(1, b"one"));
    objects(court.arrive(0, 2, b"one"), Rule::Receive);
}

#[test]
fn messages_arrive_once_in_order_and_whole() {
    for (id, bytes) in [(0, &b"two"[..]), (0, b"on"), (0, b"onE")] {
        let mut court = Court::new();
        court.post(3);
        court.oracle.post_link_send(court.links[0], send(1, b"one"));
        court.oracle.post_link_send(court.links[0], send(2, b"two"));
        objects(court.arrive(0, id, bytes), Rule::Receive);
    }
    let mut court = Court::new();
    court.post(3);
    court.oracle.post_link_send(court.links[0], send(1, b"one"));
    court.arrive(0, 0, b"one").unwrap();
    objects(court.arrive(0, 1, b"one"), Rule::Receive);
}

#[test]
fn nothing_is_written_behind_a_message() {
    let mut court = Court::new();
    court.post(1);
    court.oracle.post_link_send(court.links[0], send(1, b"one"));
    court.memory.write(8, b"stray").unwrap();
    objects(court.arrive(0, 0, b"one"), Rule::Memory);
}

#[test]
fn no_receive_is_lost_and_none_comes_twice() {
    let mut court = Court::new();
    court.post(2);
    court.stop();
    court.complete(0, 0, Status::WorkRequestFlushed, 0).unwrap();
    objects(court.complete(0, 0, Status::WorkRequestFlushed, 0), Rule::Completion);
    objects(court.oracle.close_shared(&[0]), Rule::Completion);
}

#[test]
fn a_link_gives_back_one_receive_and_only_in_error() {
    let mut court = Court::new();
    court.post(3);
    objects(court.complete(0, 0, Status::WorkRequestFlushed, 0), Rule::Status);
    let mut court = Court::new();
    court.post(3);
    court.stop();
    court.complete(0, 0, Status::WorkRequestFlushed, 0).unwrap();
    objects(court.complete(0, 1, Status::WorkRequestFlushed, 0), Rule::Status);
}

#[test]
fn a_success_without_its_message_is_found_at_the_end() {
    let mut court = Court::new();
    court.post(1);
    court.oracle.post_link_send(court.links[0], send(1, b"one"));
    court.sent(0, 1, Status::Success).unwrap();
    court.stop();
    objects(court.oracle.close_shared(&[1]), Rule::Receive);
}

#[test]
fn a_limit_gives_one_event_and_gives_it() {
    let mut court = Court::new();
    objects(court.oracle.limit_reached(court.queue, 0), Rule::Event);
    court.oracle.arm_limit(court.queue, 2);
    court.oracle.check_limit(court.queue, 2).unwrap();
    objects(court.oracle.check_limit(court.queue, 1), Rule::Event);
    court.oracle.limit_reached(court.queue, 1).unwrap();
    court.oracle.check_limit(court.queue, 0).unwrap();
    objects(court.oracle.limit_reached(court.queue, 0), Rule::Event);
    court.oracle.arm_limit(court.queue, 2);
    objects(court.oracle.limit_reached(court.queue, 2), Rule::Event);
}

#[test]
fn the_last_receive_is_told_once_and_not_by_a_link_that_works() {
    let mut court = Court::new();
    objects(court.oracle.last_receive_reached(court.links[0]), Rule::Event);
    let mut court = Court::new();
    court.stop();
    objects(court.oracle.last_receive_reached(court.links[0]), Rule::Event);
    let mut court = Court::new();
    court.oracle.stop_link(court.links[0]);
    objects(court.oracle.close_shared(&[0]), Rule::Event);
}

#[test]
fn a_defect_ends_its_request_with_its_status_and_no_legal_request_fails() {
    for defect in LinkDefect::ALL {
        let mut court = Court::new();
        let wrong = LinkSend { defect: Some(defect), ..send(1, b"one") };
        court.oracle.post_link_send(court.links[0], wrong.clone());
        objects(court.sent(0, 1, Status::Success), Rule::Status);
        let mut court = Court::new();
        court.oracle.post_link_send(court.links[0], wrong);
        court.oracle.post_link_send(court.links[0], send(2, b"two"));
        court.sent(0, 1, defect.status()).unwrap();
        court.sent(0, 2, Status::WorkRequestFlushed).unwrap();
    }
    for status in [Status::RemoteAccessError, Status::TransportRetryExceeded] {
        let mut court = Court::new();
        court.oracle.post_link_send(court.links[0], send(1, b"one"));
        objects(court.sent(0, 1, status), Rule::Status);
    }
}

#[test]
fn atomics_of_a_link_are_carried_out_once_each() {
    let mut court = Court::new();
    let landing = Place { memory: court.id, offset: 128, length: 8 };
    for id in [1, 2] {
        let effect = LinkEffect::Atomic(landing, Change::Add(5));
        let kind = CompletionKind::FetchAdd;
        let add = LinkSend { kind, message: None, effect, ..send(id, &[0; 8]) };
        court.oracle.post_link_send(court.links[0], add);
    }
    let mut done = |id, old: u64| {
        court.memory.store_u64(128, old).unwrap();
        let kind = CompletionKind::FetchAdd;
        let completion = Completion { id, kind, ..Completion::default() };
        court.oracle.link_send_completed(court.links[0], &completion)
    };
    done(1, 0).unwrap();
    objects(done(2, 10), Rule::Atomic);
}
