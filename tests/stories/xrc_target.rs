//! The receiving end of an extended reliable connection: exact frames with the number of a shared
//! receive queue in each request, and every row of the fault table.

use std::sync::Arc;

use uroce::engine::{Counter, XrcOpen, XrcQueueOptions};
use uroce::memory::DomainId;
use uroce::queue::CompletionStatus::{
    self, LocalAccessError, LocalLengthError, LocalProtectionError, Success, WorkRequestFlushed,
};
use uroce::queue::{Access, QueuePairState, ReceiveQueue, ReceiveRequest, Sge, XrcDomainId};
use uroce::wire::{Flow, Lkey, NakCode, Reth, Rkey, Srqn};

use crate::harness::{
    BASE, Event, Frame, MEMORY, RECEIVE, SERVED, Setup, Story, ack, atomic_ack, compare_swap,
    fetch_add, nak, ours, read_request, read_response_only, rnr_nak, send_first, send_last,
    send_middle, send_only, send_only_immediate, send_only_invalidate, sequence_nak, theirs,
    write_first, write_last, write_middle, write_only, write_only_immediate,
};

const MTU: usize = 1024;

/// A story with one target in an XRC domain.
struct Target<'a> {
    s: &'a mut Story,
    domain: XrcDomainId,
    queue: Arc<ReceiveQueue>,
}

impl Target<'_> {
    fn number(&self) -> Srqn {
        self.queue.number().unwrap()
    }

    fn create_queue(&mut self, domain: DomainId, xrc_domain: XrcDomainId) -> Arc<ReceiveQueue> {
        let completions = Arc::clone(&self.s.receive_completions);
        let (requests, segments) = (8, 2);
        let options = XrcQueueOptions { domain, xrc_domain, completions, requests, segments };
        self.s.engine.create_xrc_shared_receive_queue(&options).unwrap()
    }

    fn post_receive(&self, id: u64, length: usize) {
        let segments = [self.s.sge(RECEIVE, length)];
        self.queue.post(&[ReceiveRequest { id, segments: &segments }]).1.unwrap();
    }

    /// The peer sends a request for the story's queue.
    fn ask(&mut self, frame: Frame) {
        let frame = frame.xrc(self.number());
        self.s.deliver(frame);
    }

    #[track_caller]
    fn answered(&mut self, frame: Frame) {
        self.s.expect(frame.xrc_answer());
    }

    /// The peer's first message is good, then it sends `frames`, of which the last is refused. The
    /// receive 1, if one is claimed, ends with `receive`; 2 stays for others.
    #[track_caller]
    fn refused(
        &mut self,
        frames: Vec<Frame>,
        code: NakCode,
        receive: Option<CompletionStatus>,
        event: Option<Event>,
    ) {
        self.ask(write_only(0, self.s.reth(SERVED, 4), &theirs(0, 4)));
        let served = self.s.bytes(SERVED + 4, 0x1_0000);
        let last = frames.len() as i32;
        let posted = self.queue.posted();
        self.s.deliver_all(frames);
        self.answered(nak(last, 1, code));
        assert_eq!(self.s.state(), QueuePairState::Error);
        if let Some(event) = event {
            self.s.expect_event(event);
        }
        self.s.expect_event(Event::LastReceive(0));
        if let Some(status) = receive {
            let completion = self.s.expect_received(1, status);
            assert_eq!(completion.queue_pair, self.s.number());
        }
        assert_eq!(self.queue.posted() + u32::from(receive.is_some()), posted);
        assert_eq!(self.s.bytes(SERVED + 4, 0x1_0000), served, "nothing was carried out");
        self.dead();
    }

    /// The target is in error: what the peer sends changes nothing and gets no answer.
    #[track_caller]
    fn dead(&mut self) {
        self.s.settle();
        assert_eq!(self.s.state(), QueuePairState::Error);
        let before = self.s.count(Counter::DropWrongState);
        let posted = self.queue.posted();
        for psn in -2..6 {
            self.ask(send_only(psn, &theirs(0, 8)).asking());
        }
        self.s.expect_nothing();
        assert_eq!(self.s.count(Counter::DropWrongState), before + 8);
        assert_eq!(self.queue.posted(), posted);
        let end = self.s.now + 10 * uroce::time::SECOND;
        self.s.expect_nothing_until(end);
    }
}

/// Told for each pair of first PSNs, with two receives of `length` posted.
fn target_with(setup: Setup, length: usize, told: impl Fn(&mut Target<'_>)) {
    Setup { pairs: 0, ..setup }.tell(|s| {
        let domain = s.engine.open_xrc_domain(&XrcOpen::default()).unwrap();
        let completions = Arc::clone(&s.receive_completions);
        let options = XrcQueueOptions {
            domain: s.domain,
            xrc_domain: domain,
            completions,
            requests: 8,
            segments: 2,
        };
        let queue = s.engine.create_xrc_shared_receive_queue(&options).unwrap();
        let pair = s.engine.create_xrc_target(domain).unwrap();
        s.adopt(pair);
        let mut target = Target { s, domain, queue };
        target.post_receive(1, length);
        target.post_receive(2, length);
        told(&mut target);
    });
}

fn target(told: impl Fn(&mut Target<'_>)) {
    target_with(Setup::default(), 4096, told);
}

/// The last of the frames is for the story's queue and is refused; no receive is claimed.
fn refuses(code: NakCode, event: Event, frames: impl Fn(&mut Target<'_>) -> Vec<Frame>) {
    target(|t| {
        let number = t.number();
        let frames = frames(t).into_iter().map(|frame| frame.xrc(number)).collect();
        t.refused(frames, code, None, Some(event));
    });
}

fn invalid(frames: impl Fn(&mut Target<'_>) -> Vec<Frame>) {
    refuses(NakCode::InvalidRequest, Event::RequestError(0), frames);
}

fn forbidden(frames: impl Fn(&mut Target<'_>) -> Vec<Frame>) {
    refuses(NakCode::RemoteAccessError, Event::AccessError(0), frames);
}

#[test]
fn a_send_names_the_queue_behind_the_bth_and_its_answer_names_none() {
    target(|t| {
        let mut bytes = t.s.encode(send_only(0, &theirs(0, 8)).asking().xrc(t.number()));
        assert_eq!(bytes[0], 0xa4);
        let number = t.number().value().to_be_bytes();
        assert_eq!(bytes[12..16], [0, number[1], number[2], number[3]]);
        assert_eq!(bytes.len(), 12 + 4 + 8);
        // The byte before the number is reserved: it is covered by the ICRC and means nothing.
        bytes[12] = 0x5a;
        let flow = t.s.flow();
        t.s.deliver_bytes(flow, bytes);
        let sent = t.s.expect(ack(0, 1).xrc_answer());
        assert_eq!(sent.bytes[0], 0xb1);
        assert_eq!(sent.bytes.len(), 12 + 4 + 4, "BTH, AETH, ICRC");
        let received = t.s.expect_received(1, Success);
        assert_eq!((received.length, received.queue_pair), (8, t.s.number()));
        assert_eq!(t.s.bytes(RECEIVE, 8), theirs(0, 8));
        assert_eq!(t.s.state(), QueuePairState::Rts);
    });
}

#[test]
fn every_operation_is_served_and_answered_in_its_own_opcodes() {
    target(|t| {
        t.ask(send_first(0, &theirs(0, MTU)));
        t.ask(send_middle(1, &theirs(MTU, MTU)));
        t.ask(send_last(2, &theirs(2 * MTU, 5)));
        t.ask(write_first(3, t.s.reth(SERVED, MTU + 3), &theirs(0, MTU)));
        t.ask(write_last(4, &theirs(MTU, 3)));
        t.ask(send_only_immediate(5, &[], [4, 3, 2, 1]).asking());
        t.answered(ack(5, 3));
        t.s.expect_received(1, Success);
        t.s.expect_received(2, Success);
        t.ask(read_request(6, t.s.reth(SERVED, 16)));
        t.ask(fetch_add(7, t.s.reth(SERVED, 8), 0));
        t.answered(read_response_only(6, 4, &theirs(0, 16)));
        let word = u64::from_ne_bytes(theirs(0, 8).try_into().unwrap());
        t.answered(atomic_ack(7, 5, word));
        assert_eq!(t.s.bytes(SERVED, MTU + 3), theirs(0, MTU + 3));
    });
}

#[test]
fn a_number_that_no_queue_has_gets_0x62_and_an_event_of_its_own() {
    for operation in 0..4 {
        target(|t| {
            let wrong = Srqn::new(t.number().value() ^ 0x10);
            let reth = t.s.reth(SERVED + 8, 8);
            let frame = match operation {
                0 => send_only(1, &theirs(0, 8)),
                1 => write_only(1, reth, &theirs(0, 8)),
                2 => read_request(1, reth),
                _ => compare_swap(1, reth, 0, 1),
            };
            let frames = vec![frame.xrc(wrong)];
            let event = Some(Event::InvalidXrceth(0));
            t.refused(frames, NakCode::RemoteAccessError, None, event);
        });
    }
}

#[test]
fn a_queue_of_another_xrc_domain_gets_0x62_and_an_event_of_its_own() {
    for operation in 0..2 {
        target(|t| {
            let elsewhere = t.s.engine.open_xrc_domain(&XrcOpen::default()).unwrap();
            let foreign = t.create_queue(t.s.domain, elsewhere);
            let segments = [t.s.sge(RECEIVE, 64)];
            foreign.post(&[ReceiveRequest { id: 9, segments: &segments }]).1.unwrap();
            let frame = match operation {
                0 => send_only(1, &theirs(0, 8)),
                _ => write_only(1, t.s.reth(SERVED + 8, 8), &theirs(0, 8)),
            };
            let frames = vec![frame.xrc(foreign.number().unwrap())];
            let event = Some(Event::XrcDomainViolation(0));
            t.refused(frames, NakCode::RemoteAccessError, None, event);
            assert_eq!(foreign.posted(), 1);
        });
    }
}

#[test]
fn a_message_stays_with_the_queue_that_it_began_with() {
    target(|t| {
        let other = t.create_queue(t.s.domain, t.domain).number().unwrap();
        let frames =
            vec![send_first(1, &theirs(0, MTU)).xrc(t.number()), send_last(2, &[1]).xrc(other)];
        let event = Some(Event::InvalidXrceth(0));
        t.refused(frames, NakCode::RemoteAccessError, Some(WorkRequestFlushed), event);
    });
}

#[test]
fn a_duplicate_is_acknowledged_whatever_queue_it_names_and_moves_no_message() {
    target(|t| {
        let wrong = Srqn::new(t.number().value() ^ 0x10);
        t.ask(send_only(0, &theirs(0, 4)));
        t.s.expect_received(1, Success);
        t.ask(send_first(1, &theirs(0, MTU)));
        t.s.deliver(send_only(0, &theirs(0, 4)).asking().xrc(wrong));
        t.answered(ack(1, 1));
        t.ask(send_last(2, &theirs(MTU, 9)).asking());
        t.answered(ack(2, 2));
        assert_eq!(t.s.expect_received(2, Success).length, MTU as u32 + 9);
    });
}

#[test]
fn a_repeated_read_is_answered_only_where_its_key_still_counts() {
    target(|t| {
        let other = t.s.engine.allocate_domain().unwrap();
        let elsewhere = t.create_queue(other, t.domain).number().unwrap();
        let reth = t.s.reth(SERVED, 8);
        t.ask(read_request(0, reth));
        t.answered(read_response_only(0, 1, &ours(SERVED, 8)));
        t.ask(read_request(0, reth));
        t.answered(read_response_only(0, 1, &ours(SERVED, 8)));
        let before = t.s.count(Counter::DropDuplicateWithoutRecord);
        t.s.deliver(read_request(0, reth).xrc(elsewhere));
        t.s.expect_nothing();
        assert_eq!(t.s.count(Counter::DropDuplicateWithoutRecord), before + 1);
    });
}

#[test]
fn an_empty_queue_gets_a_not_ready_nak_and_what_follows_is_dropped_even_for_a_full_one() {
    target(|t| {
        let empty = t.create_queue(t.s.domain, t.domain);
        t.s.deliver(send_only(0, &theirs(0, 8)).asking().xrc(empty.number().unwrap()));
        t.ask(send_only(1, &theirs(0, 8)).asking());
        t.answered(rnr_nak(0, 0, 12));
        t.s.expect_nothing();
        let segments = [t.s.sge(RECEIVE, 64)];
        empty.post(&[ReceiveRequest { id: 7, segments: &segments }]).1.unwrap();
        t.s.deliver(send_only(0, &theirs(0, 8)).xrc(empty.number().unwrap()));
        t.ask(send_only(1, &theirs(0, 8)).asking());
        t.answered(ack(1, 2));
        t.s.expect_received(7, Success);
        t.s.expect_received(1, Success);
    });
}

#[test]
fn a_gap_is_reported_once_and_what_lies_behind_is_acknowledged() {
    target(|t| {
        t.ask(send_only(1, &theirs(0, 8)));
        t.answered(sequence_nak(0, 0));
        t.ask(send_only(2, &theirs(0, 8)));
        t.s.expect_nothing();
        t.ask(send_only(0, &theirs(0, 8)).asking());
        t.answered(ack(0, 1));
        t.s.expect_received(1, Success);
    });
}

#[test]
fn a_send_larger_than_the_receive_gets_0x61_and_the_receive_a_length_error() {
    target_with(Setup::default(), 7, |t| {
        let frames = vec![send_only(1, &theirs(0, 8)).xrc(t.number())];
        t.refused(frames, NakCode::InvalidRequest, Some(LocalLengthError), None);
    });
}

#[test]
fn a_receive_with_a_bad_key_gets_0x63_and_a_protection_error() {
    for index in 0..2 {
        target(|t| {
            let other = t.s.engine.allocate_domain().unwrap();
            // A good key, but not in the protection domain of the queue.
            let queue = t.create_queue(if index == 0 { other } else { t.s.domain }, t.domain);
            let good = t.s.sge(RECEIVE, 64);
            let bad = Sge { key: Lkey::new(good.key.value() ^ 1), ..good };
            let segments = [if index == 0 { good } else { bad }];
            queue.post(&[ReceiveRequest { id: 1, segments: &segments }]).1.unwrap();
            let number = queue.number().unwrap();
            t.queue = queue;
            // The good message before it would need a key of the queue's domain.
            t.s.deliver(send_only(0, &theirs(0, 8)).xrc(number));
            t.answered(nak(0, 0, NakCode::RemoteOperationalError));
            t.s.expect_event(Event::LastReceive(0));
            t.s.expect_received(1, LocalProtectionError);
            t.dead();
        });
    }
}

#[test]
fn wrong_keys_domains_bounds_and_rights_get_0x62() {
    forbidden(|t| {
        let key = Rkey::new(t.s.keys.remote.value() ^ 1);
        vec![write_only(1, Reth { key, ..t.s.reth(SERVED, 8) }, &theirs(0, 8))]
    });
    forbidden(|t| vec![read_request(1, t.s.reth(MEMORY - 8, 9))]);
    forbidden(|t| vec![fetch_add(1, Reth { address: BASE - 8, ..t.s.reth(0, 8) }, 1)]);
    forbidden(|t| vec![write_first(1, t.s.reth(MEMORY - MTU, MTU + 1), &theirs(0, MTU))]);
    forbidden(|t| {
        let memory = Arc::clone(&t.s.memory);
        let base = 0x9_0000_0000;
        let access = Access::REMOTE_READ;
        let keys = t.s.engine.register_part(t.s.domain, memory, 0..64, base, access).unwrap();
        let reth = Reth { address: base, key: keys.remote, length: 8 };
        vec![write_only(1, reth, &theirs(0, 8))]
    });
}

#[test]
fn a_send_that_invalidates_what_it_may_not_gets_0x62_and_places_nothing() {
    target(|t| {
        let key = Rkey::new(t.s.keys.remote.value() ^ 1);
        let frames = vec![send_only_invalidate(1, &theirs(0, 8), key).xrc(t.number())];
        let event = Some(Event::AccessError(0));
        t.refused(frames, NakCode::RemoteAccessError, Some(WorkRequestFlushed), event);
        assert_eq!(t.s.bytes(RECEIVE, 8), ours(RECEIVE, 8));
    });
}

#[test]
fn a_write_with_immediate_and_a_bad_key_tells_it_by_its_receive() {
    target(|t| {
        let reth = Reth { key: Rkey::new(5), ..t.s.reth(SERVED, 8) };
        let frames = vec![write_only_immediate(1, reth, &theirs(0, 8), [1; 4]).xrc(t.number())];
        t.refused(frames, NakCode::RemoteAccessError, Some(LocalAccessError), None);
    });
}

#[test]
fn what_the_target_does_not_allow_gets_0x61() {
    let setup = Setup { access: Access::NONE, ..Setup::default() };
    for index in 0..3 {
        target_with(setup.clone(), 4096, |t| {
            let reth = t.s.reth(SERVED, 8);
            let frame = match index {
                0 => write_only(0, reth, &theirs(0, 8)),
                1 => read_request(0, reth),
                _ => fetch_add(0, reth, 1),
            };
            t.ask(frame);
            t.answered(nak(0, 0, NakCode::InvalidRequest));
            t.s.expect_event(Event::RequestError(0));
            t.s.expect_event(Event::LastReceive(0));
            t.dead();
        });
    }
}

#[test]
fn packets_out_of_their_message_get_0x61() {
    invalid(|_| vec![send_middle(1, &theirs(0, MTU))]);
    invalid(|_| vec![send_last(1, &theirs(0, 8))]);
    invalid(|_| vec![write_middle(1, &theirs(0, MTU))]);
    for bad in [send_only(2, &theirs(0, 4)), write_last(2, &theirs(0, 4))] {
        target(|t| {
            let number = t.number();
            let frames = vec![send_first(1, &theirs(0, MTU)).xrc(number), bad.clone().xrc(number)];
            let event = Some(Event::RequestError(0));
            t.refused(frames, NakCode::InvalidRequest, Some(WorkRequestFlushed), event);
        });
    }
}

#[test]
fn packets_of_a_wrong_length_get_0x61() {
    for (first, second) in [
        (send_first(1, &theirs(0, MTU - 4)), None),
        (send_only(1, &theirs(0, MTU + 4)), None),
        (send_first(1, &theirs(0, MTU)), Some(send_middle(2, &theirs(0, 4)))),
        (send_first(1, &theirs(0, MTU)), Some(send_last(2, &[]))),
    ] {
        target(|t| {
            let number = t.number();
            let frames: Vec<Frame> =
                [Some(first.clone()), second.clone()].into_iter().flatten().collect();
            let frames = frames.into_iter().map(|frame| frame.xrc(number)).collect();
            let event = Some(Event::RequestError(0));
            t.refused(frames, NakCode::InvalidRequest, Some(WorkRequestFlushed), event);
        });
    }
    invalid(|t| vec![write_only(1, t.s.reth(SERVED, 9), &theirs(0, 8))]);
    invalid(|t| vec![read_request(1, t.s.reth(SERVED, (1 << 31) + 1))]);
}

#[test]
fn misaligned_atomics_and_too_many_reads_get_0x61() {
    invalid(|t| vec![fetch_add(1, t.s.reth(SERVED + 4, 8), 1)]);
    let setup = Setup { max_destination_rd_atomic: 1, ..Setup::default() };
    target_with(setup, 4096, |t| {
        t.s.port.room = 0;
        t.ask(read_request(0, t.s.reth(SERVED, 8)));
        t.ask(read_request(1, t.s.reth(SERVED, 8)));
        t.s.turn();
        t.s.port.room = usize::MAX;
        t.answered(read_response_only(0, 1, &ours(SERVED, 8)));
        t.answered(nak(1, 1, NakCode::InvalidRequest));
        t.s.expect_event(Event::RequestError(0));
        t.s.expect_event(Event::LastReceive(0));
        t.dead();
    });
}

#[test]
fn opcodes_that_do_not_exist_get_0x61_where_a_request_was_expected() {
    for opcode in [0xb5, 0xb8, 0xbc, 0xbd, 0xbf] {
        target(|t| {
            let mut bytes = t.s.encode(send_only(0, &theirs(0, 8)).xrc(t.number()));
            bytes[0] = opcode;
            let flow = t.s.flow();
            t.s.deliver_bytes(flow, bytes);
            t.answered(nak(0, 0, NakCode::InvalidRequest));
            t.s.expect_event(Event::RequestError(0));
            t.s.expect_event(Event::LastReceive(0));
            t.dead();
        });
    }
}

#[test]
fn other_transports_answers_strangers_and_partitions_are_dropped() {
    target(|t| {
        let number = t.number();
        t.s.deliver(send_only(0, &theirs(0, 8)).asking());
        t.s.deliver(ack(0, 1).xrc_answer());
        t.s.expect_nothing();
        assert_eq!(t.s.count(Counter::DropWrongTransport), 2);
        let stranger = Flow { source: "10.0.0.77".parse().unwrap(), ..t.s.flow() };
        t.s.deliver_on(stranger, send_only(0, &theirs(0, 8)).asking().xrc(number));
        t.s.expect_nothing();
        assert_eq!(t.s.count(Counter::DropWrongAddress), 1);
        t.s.deliver(send_only(0, &theirs(0, 8)).asking().xrc(number).pkey(0x8001));
        t.s.expect_nothing();
        assert_eq!(t.s.count(Counter::DropPkeyMismatch), 1);
        t.ask(send_only(0, &theirs(0, 8)).asking());
        t.answered(ack(0, 1));
        t.s.expect_received(1, Success);
    });
}

#[test]
fn a_target_receives_from_rtr_on_and_says_that_it_is_established() {
    let setup = Setup { state: QueuePairState::Rtr, ..Setup::default() };
    target_with(setup, 4096, |t| {
        t.ask(send_only(0, &theirs(0, 8)).asking());
        t.answered(ack(0, 1));
        t.s.expect_event(Event::Established(0));
        t.s.expect_received(1, Success);
    });
}

#[test]
fn the_limit_of_the_named_queue_gives_its_event() {
    target(|t| {
        let queue = Arc::clone(&t.queue);
        t.s.engine.set_shared_limit(&queue, 2).unwrap();
        t.ask(send_only(0, &theirs(0, 8)));
        t.s.expect_event(Event::Limit);
        t.s.expect_received(1, Success);
        t.ask(send_only(1, &theirs(0, 8)).asking());
        t.answered(ack(1, 2));
        t.s.expect_received(2, Success);
    });
}
