//! The model without acknowledgements agrees to what may happen and objects to what may not.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::super::{Local, MemoryId, Oracle, Place, ReceiveModel, Rule, Violation};
use super::*;
use crate::memory::OwnedMemory;
use crate::queue::CompletionKind;

/// Two queue pairs, the first of which sends to the second, which has a memory.
struct Court {
    oracle: Oracle,
    queues: [UnackedId; 2],
    memory: Arc<OwnedMemory>,
    id: MemoryId,
}

#[derive(Clone, Copy, Default)]
struct Network {
    keeps_order: bool,
    may_repeat: bool,
}

const ORDERED: Network = Network { keeps_order: true, may_repeat: false };

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

impl Court {
    fn new(network: Network, is_datagram: bool) -> Self {
        Self::numbered(network, is_datagram, [0, 1])
    }

    /// Completions of these tests say that a message came from queue pair 0.
    fn numbered(network: Network, is_datagram: bool, numbers: [u32; 2]) -> Self {
        let mut oracle = Oracle::new();
        let memory = OwnedMemory::new(256);
        let id = oracle.watch("memory".to_owned(), memory.clone(), memory.len());
        let queues = [0, 1].map(|side| {
            oracle.open_unacked(UnackedPort {
                number: numbers[side],
                address: address(side as u8 + 1),
                machine: side,
                is_datagram,
                keeps_order: network.keeps_order,
                may_repeat: network.may_repeat,
            })
        });
        Self { oracle, queues, memory, id }
    }

    fn place(&self, offset: usize, length: usize) -> Place {
        Place { memory: self.id, offset, length }
    }

    fn receive(&mut self, id: u64, offset: usize, length: usize) {
        let places = vec![self.place(offset, length)];
        let model = ReceiveModel { id, places, defect: None };
        self.oracle.post_unacked_receive(self.queues[1], &model);
    }

    fn send(&mut self, model: UnackedSend) {
        self.oracle.post_unacked_send(self.queues[0], &model);
    }

    fn model(&self, id: u64, bytes: &[u8]) -> UnackedSend {
        UnackedSend {
            id,
            to: vec![self.queues[1]],
            group: None,
            kind: CompletionKind::Send,
            target: None,
            message: Some(Attachment::None),
            signaled: true,
            solicited: false,
            local: Local::Inline(bytes.to_vec()),
            length: bytes.len(),
            defect: None,
            must_arrive: false,
        }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.memory.write(offset, bytes).unwrap();
    }

    fn sent(&mut self, id: u64, status: CompletionStatus) -> Result<(), Violation> {
        let completion = completion(id, CompletionKind::Send, status, 0);
        self.oracle.unacked_completed(self.queues[0], &completion)
    }

    fn received(&mut self, id: u64, length: u32) -> Result<(), Violation> {
        let status = CompletionStatus::Success;
        let completion = completion(id, CompletionKind::Receive, status, length);
        self.oracle.unacked_completed(self.queues[1], &completion)
    }

    fn flushed(&mut self, id: u64) -> Result<(), Violation> {
        let status = CompletionStatus::WorkRequestFlushed;
        let completion = completion(id, CompletionKind::Receive, status, 0);
        self.oracle.unacked_completed(self.queues[1], &completion)
    }
}

fn completion(id: u64, kind: CompletionKind, status: CompletionStatus, length: u32) -> Completion {
    Completion {
        id,
        status,
        kind,
        length,
        attachment: Attachment::None,
        queue_pair: Default::default(),
        source: Default::default(),
        solicited: false,
    }
}

fn rule(outcome: Result<(), Violation>) -> Rule {
    outcome.expect_err("the oracle should object").rule
}

const SUCCESS: CompletionStatus = CompletionStatus::Success;
const FLUSHED: CompletionStatus = CompletionStatus::WorkRequestFlushed;
const PROTECTION: CompletionStatus = CompletionStatus::LocalProtectionError;

#[test]
fn a_message_arrives_whole_in_the_oldest_receive_or_not_at_all() {
    let arrive = |id: u64, bytes: &[u8], length: u32| {
        let mut court = Court::new(ORDERED, false);
        court.receive(10, 0, 16);
        court.receive(11, 16, 16);
        court.send(court.model(1, b"first message"));
        court.send(court.model(2, b"second"));
        court.write(0, bytes);
        court.received(id, length)
    };
    arrive(10, b"first message", 13).unwrap();
    arrive(10, b"second", 6).unwrap();
    assert_eq!(rule(arrive(11, b"second", 6)), Rule::Receive, "not the oldest receive");
    assert_eq!(rule(arrive(10, b"first", 5)), Rule::Receive, "a part");
    assert_eq!(rule(arrive(10, b"secondmessage", 13)), Rule::Receive, "a mixture");
    // What was given up before may show behind the message, and nothing else.
    arrive(10, b"secondmessage", 6).unwrap();
    assert_eq!(rule(arrive(10, b"second?", 6)), Rule::Memory);
}

#[test]
fn order_and_copies_are_as_the_network_makes_them() {
    let deliver = |network: Network, order: [&[u8]; 2]| {
        let mut court = Court::new(network, false);
        court.receive(10, 0, 8);
        court.receive(11, 8, 8);
        court.send(court.model(1, b"one"));
        court.send(court.model(2, b"two"));
        court.write(0, order[0]);
        court.received(10, 3)?;
        court.write(8, order[1]);
        court.received(11, 3)
    };
    deliver(ORDERED, [b"one", b"two"]).unwrap();
    assert_eq!(rule(deliver(ORDERED, [b"two", b"one"])), Rule::Receive);
    assert_eq!(rule(deliver(ORDERED, [b"one", b"one"])), Rule::Receive);
    let passing = Network::default();
    deliver(passing, [b"two", b"one"]).unwrap();
    assert_eq!(rule(deliver(passing, [b"one", b"one"])), Rule::Receive);
    deliver(Network { may_repeat: true, ..passing }, [b"one", b"one"]).unwrap();
}

#[test]
fn a_local_error_flushes_what_is_behind_it_until_the_application_resumes() {
    let mut court = Court::new(ORDERED, false);
    assert_eq!(rule(court.sent(7, SUCCESS)), Rule::Completion, "nobody posted it");
    let defect = Some(UnackedDefect::LocalKey);
    court.send(UnackedSend { signaled: false, ..court.model(1, b"a") });
    court.send(UnackedSend { defect, ..court.model(2, b"b") });
    court.send(court.model(3, b"c"));
    court.sent(2, PROTECTION).unwrap();
    court.send(court.model(4, b"d"));
    court.sent(3, FLUSHED).unwrap();
    assert_eq!(rule(court.sent(4, SUCCESS)), Rule::Status);
    court.oracle.resume_unacked(court.queues[0]);
    court.send(court.model(5, b"e"));
    court.sent(5, SUCCESS).unwrap();
    court.send(court.model(6, b"f"));
    assert_eq!(rule(court.sent(6, FLUSHED)), Rule::Status, "nothing explains it");
    let mut court = Court::new(ORDERED, false);
    court.send(UnackedSend { defect, ..court.model(1, b"b") });
    assert_eq!(rule(court.sent(1, SUCCESS)), Rule::Status);
}

#[test]
fn what_was_flushed_or_forbidden_does_not_arrive() {
    let mut court = Court::new(ORDERED, false);
    court.receive(10, 0, 8);
    court.send(UnackedSend { defect: Some(UnackedDefect::LocalKey), ..court.model(1, b"a") });
    court.send(court.model(2, b"flushed"));
    court.write(0, b"flushed");
    court.received(10, 7).unwrap();
    court.sent(1, PROTECTION).unwrap();
    assert_eq!(rule(court.sent(2, FLUSHED)), Rule::Receive);
    let mut court = Court::new(ORDERED, false);
    court.receive(10, 0, 8);
    court.send(UnackedSend { defect: Some(UnackedDefect::QueueKey), ..court.model(1, b"other") });
    court.sent(1, SUCCESS).unwrap();
    court.write(0, b"other");
    assert_eq!(rule(court.received(10, 5)), Rule::Receive);
}

#[test]
fn without_losses_everything_arrives_and_a_farewell_always() {
    let end = |must_arrive: bool, capacity: usize, is_intact: bool| {
        let mut court = Court::new(ORDERED, false);
        court.receive(10, 0, capacity);
        court.send(UnackedSend { must_arrive, ..court.model(1, b"hello") });
        court.sent(1, SUCCESS).unwrap();
        court.oracle.carried_unacked(court.queues[0], &[u64::from(is_intact) << 1]).unwrap();
        court.oracle.stop_unacked(court.queues[1], true)
    };
    end(false, 8, false).unwrap();
    end(true, 4, false).unwrap();
    assert_eq!(rule(end(true, 8, false)), Rule::Receive);
    assert_eq!(rule(end(false, 8, true)), Rule::Receive);
    let mut court = Court::new(ORDERED, false);
    assert_eq!(rule(court.oracle.carried_unacked(court.queues[0], &[1])), Rule::Completion);
}

#[test]
fn of_messages_that_look_alike_as_many_arrive_as_the_network_carried() {
    let end = |intact: [u64; 2]| {
        let mut court = Court::new(ORDERED, false);
        court.receive(10, 0, 8);
        court.receive(11, 8, 8);
        for id in [1, 2] {
            court.send(court.model(id, b""));
            court.sent(id, SUCCESS).unwrap();
        }
        court.received(10, 0).unwrap();
        court.oracle.carried_unacked(court.queues[0], &intact.map(|one| one << 1)).unwrap();
        court.oracle.stop_unacked(court.queues[1], true)
    };
    end([0, 1]).unwrap();
    end([1, 0]).unwrap();
    assert_eq!(rule(end([1, 1])), Rule::Receive);
}

#[test]
fn a_message_to_a_group_arrives_once_at_each_member_that_the_network_carried_it_to() {
    let sent = |intact: u64| {
        let mut court = Court::new(ORDERED, false);
        court.receive(10, 0, 8);
        let to = court.queues.to_vec();
        court.send(UnackedSend { to, ..court.model(1, b"group") });
        court.sent(1, SUCCESS).unwrap();
        court.oracle.carried_unacked(court.queues[0], &[intact]).unwrap();
        court.write(0, b"group");
        court.received(10, 5).unwrap();
        court
    };
    // The sender is the other member: its copy has to come where the network carried it.
    let mut court = sent(0b10);
    court.oracle.stop_unacked(court.queues[0], true).unwrap();
    court.oracle.stop_unacked(court.queues[1], true).unwrap();
    let mut court = sent(0b11);
    assert_eq!(rule(court.oracle.stop_unacked(court.queues[0], true)), Rule::Receive);
    let mut court = sent(0b10);
    court.receive(11, 8, 8);
    court.write(8, b"group");
    assert_eq!(rule(court.received(11, 5)), Rule::Receive, "a second copy");
}

#[test]
fn a_write_may_come_until_the_end_and_without_losses_must() {
    for (written, is_intact, good) in
        [(&b"ab"[..], false, true), (b"abcd", true, true), (b"ab", true, false)]
    {
        let mut court = Court::new(ORDERED, false);
        let target = Some(court.place(0, 4));
        let kind = CompletionKind::Write;
        court.send(UnackedSend { target, kind, message: None, ..court.model(1, b"abcd") });
        let sent = completion(1, kind, SUCCESS, 0);
        court.oracle.unacked_completed(court.queues[0], &sent).unwrap();
        court.write(0, written);
        court.oracle.check_memory().unwrap();
        court.oracle.carried_unacked(court.queues[0], &[u64::from(is_intact) << 1]).unwrap();
        assert_eq!(court.oracle.stop_unacked(court.queues[1], true).is_ok(), good);
        court.oracle.close_unacked(&court.queues[1..2]).unwrap();
        court.write(2, b"zz");
        assert_eq!(rule(court.oracle.check_memory()), Rule::Memory);
    }
}

#[test]
fn receives_are_flushed_in_the_error_state_only() {
    let mut court = Court::new(ORDERED, false);
    court.receive(10, 0, 8);
    assert_eq!(rule(court.flushed(10)), Rule::Status);
    let mut court = Court::new(ORDERED, false);
    court.receive(10, 0, 8);
    court.receive(11, 8, 8);
    court.oracle.stop_unacked(court.queues[1], false).unwrap();
    court.flushed(10).unwrap();
    assert_eq!(rule(court.oracle.close_unacked(&court.queues[1..2])), Rule::Completion);
    court.flushed(11).unwrap();
    court.oracle.close_unacked(&court.queues[1..2]).unwrap();
}

#[test]
fn a_datagram_comes_behind_forty_bytes_that_tell_its_sender() {
    let arrive = |change: fn(&mut [u8; 45]), sender: u32| {
        let mut court = Court::numbered(ORDERED, true, [sender, 1]);
        court.receive(10, 0, 64);
        court.send(court.model(1, b"hello"));
        let mut bytes = [0; 45];
        bytes[20] = 0x45;
        bytes[22..24].copy_from_slice(&57_u16.to_be_bytes());
        bytes[32..36].copy_from_slice(&[10, 0, 0, 1]);
        bytes[36..40].copy_from_slice(&[10, 0, 0, 2]);
        let sum = 0x4500 + 57 + 0x0a00 + 1 + 0x0a00 + 2;
        bytes[30..32].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        bytes[40..].copy_from_slice(b"hello");
        change(&mut bytes);
        court.write(0, &bytes);
        court.received(10, 45)
    };
    arrive(|_| {}, 0).unwrap();
    assert_eq!(rule(arrive(|_| {}, 5)), Rule::Receive, "another queue pair");
    assert_eq!(rule(arrive(|bytes| bytes[0] = 1, 0)), Rule::Receive, "no zeros");
    assert_eq!(rule(arrive(|bytes| bytes[31] ^= 1, 0)), Rule::Receive, "checksum");
    assert_eq!(rule(arrive(|bytes| bytes.swap(35, 39), 0)), Rule::Receive, "addresses");
    assert_eq!(rule(arrive(|bytes| bytes[44] = b'x', 0)), Rule::Receive, "payload");
}
