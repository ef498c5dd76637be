//! Extended reliable connections between two engines: domains, shared receive queues that requests
//! name, initiators and targets.

mod pair;
mod xrc;

use std::sync::Arc;

use uroce::engine::{AsyncEvent, ControlError, ModifyError, XrcFile, XrcOpen, XrcQueueOptions};
use uroce::memory::DomainId;
use uroce::queue::{
    Access, Attachment, CompletionKind, CompletionStatus, Payload, PostError, QueueCapacities,
    QueuePairAttributes, QueuePairKind, QueuePairState, ReceiveRequest, Remote, SendFlags,
    SendOperation, SendRequest, Sge,
};
use uroce::wire::{Immediate, Qpn, Rkey, Srqn};
use xrc::{Side, World, poll};

const SUCCESS: CompletionStatus = CompletionStatus::Success;

fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251) as u8 ^ seed).collect()
}

#[test]
fn one_connection_fills_the_shared_queue_that_each_message_names() {
    let mut world = World::new(1);
    let queues = [world.create_queue(16), world.create_queue(16)];
    for (index, queue) in queues.iter().enumerate() {
        for id in 0..3 {
            let place = index * 0x8_0000 + id as usize * 0x1_0000;
            world.post_receive(queue, 100 * index as u64 + id, place, 0x1_0000);
        }
    }
    for (round, length) in [0, 1, 1024, 5000, 0x1_0000, 33].into_iter().enumerate() {
        let to = round % 2;
        let message = bytes(round as u8, length);
        world.sides[0].memory.write(0, &message).unwrap();
        let number = queues[to].number().unwrap();
        world.post(0, number, round as u64, SendOperation::Send, (0, length));
        world.run();
        let sent = world.completion(0);
        assert_eq!(
            (sent.id, sent.status, sent.kind),
            (round as u64, SUCCESS, CompletionKind::Send)
        );
        let received = world.completion(1);
        assert_eq!(received.status, SUCCESS);
        assert_eq!(received.id, 100 * to as u64 + round as u64 / 2);
        assert_eq!(received.length as usize, length);
        assert_eq!(received.queue_pair, world.targets[0].number());
        let place = to * 0x8_0000 + round / 2 * 0x1_0000;
        assert_eq!(world.sides[1].memory.to_vec(place, length).unwrap(), message);
    }
    assert_eq!(queues.map(|queue| queue.posted()), [0, 0]);
}

#[test]
fn connections_share_the_queues_of_their_domain() {
    let mut world = World::new(3);
    let queue = world.create_queue(64);
    let number = queue.number().unwrap();
    for id in 0..30 {
        world.post_receive(&queue, id, id as usize * 4096, 4096);
    }
    for id in 0..30 {
        world.post(id as usize % 3, number, id, SendOperation::Send, (0, 3000));
    }
    world.run();
    let mut taken = Vec::new();
    let mut from = [0; 3];
    for _ in 0..30 {
        assert_eq!(world.completion(0).status, SUCCESS);
        let received = world.completion(1);
        assert_eq!((received.status, received.length), (SUCCESS, 3000));
        taken.push(received.id);
        let target =
            |target: &Arc<uroce::queue::QueuePairQueues>| target.number() == received.queue_pair;
        from[world.targets.iter().position(target).unwrap()] += 1;
    }
    taken.sort_unstable();
    assert_eq!(taken, (0..30).collect::<Vec<u64>>(), "each receive once");
    assert_eq!(from, [10; 3]);
}

#[test]
fn writes_reads_and_atomics_work_in_the_protection_domain_of_the_named_queue() {
    let mut world = World::new(1);
    let queue = world.create_queue(4);
    let number = queue.number().unwrap();
    let data = bytes(9, 10_000);
    world.sides[0].memory.write(0, &data).unwrap();
    world.post(0, number, 1, SendOperation::Write(world.remote(64)), (0, 10_000));
    world.post(0, number, 2, SendOperation::Read(world.remote(64)), (0x4_0000, 10_000));
    let remote = world.remote(0);
    world.post(0, number, 3, SendOperation::FetchAdd { remote, add: 5 }, (0x8_0000, 8));
    let swap = SendOperation::CompareSwap { remote, compare: 5, swap: 77 };
    world.post(0, number, 4, swap, (0x8_0008, 8));
    world.run();
    for id in 1..=4 {
        let done = world.completion(0);
        assert_eq!((done.id, done.status), (id, SUCCESS));
    }
    assert_eq!(world.sides[1].memory.to_vec(64, 10_000).unwrap(), data);
    assert_eq!(world.sides[0].memory.to_vec(0x4_0000, 10_000).unwrap(), data);
    assert_eq!(world.sides[1].memory.load_u64(0).unwrap(), 77);
    assert_eq!(world.sides[0].memory.load_u64(0x8_0000).unwrap(), 0);
    assert_eq!(world.sides[0].memory.load_u64(0x8_0008).unwrap(), 5);
}

#[test]
fn immediates_and_invalidations_come_with_completions_of_the_named_queue() {
    let mut world = World::new(1);
    let other = world.sides[1].engine.create_completion_queue(16).unwrap();
    let domain = world.sides[1].domain;
    let queues = [world.create_queue(4), world.create_queue_with(4, domain, Arc::clone(&other))];
    let numbers = [0, 1].map(|index: usize| queues[index].number().unwrap());
    for queue in &queues {
        world.post_receive(queue, 1, 0, 4096);
        world.post_receive(queue, 2, 4096, 4096);
    }
    let access = Access::ALL | Access::INVALIDATE;
    let memory = Arc::clone(&world.sides[1].memory);
    let key = world.sides[1].engine.register(domain, memory, access).unwrap().remote;
    let immediate = Immediate([1, 2, 3, 4]);
    world.post(0, numbers[1], 1, SendOperation::SendWithImmediate(immediate), (0, 3000));
    let write = SendOperation::WriteWithImmediate(world.remote(0x1_0000), immediate);
    world.post(0, numbers[0], 2, write, (0, 2000));
    world.post(0, numbers[1], 3, SendOperation::SendWithInvalidate(key), (0, 10));
    world.run();
    let sent = poll(&other).unwrap();
    assert_eq!((sent.id, sent.attachment), (1, Attachment::Immediate(immediate)));
    let written = world.completion(1);
    assert_eq!(written.kind, CompletionKind::ReceiveWriteWithImmediate);
    assert_eq!((written.id, written.length), (1, 2000));
    assert_eq!(written.attachment, Attachment::Immediate(immediate));
    let invalidated = poll(&other).unwrap();
    assert_eq!((invalidated.id, invalidated.attachment), (2, Attachment::Invalidated(key)));
    assert_eq!(world.sides[1].completions.waiting() + other.waiting(), 0);
}

/// A request that side 1 refuses: how it completes, and the events there.
fn refused(world: &mut World, expected: CompletionStatus) -> Vec<AsyncEvent> {
    world.run();
    let failed = loop {
        let completion = world.completion(0);
        if completion.status != SUCCESS {
            break completion;
        }
    };
    assert_eq!(failed.status, expected);
    assert_eq!(world.targets[0].state(), QueuePairState::Error);
    assert_eq!(world.initiators[0].state(), QueuePairState::Error);
    world.effects(1).events
}

#[test]
fn a_number_without_a_queue_is_a_violation_and_said_so() {
    let mut world = World::new(1);
    let queue = world.create_queue(4);
    let wrong = Srqn::new(queue.number().unwrap().value() ^ 1);
    world.post_receive(&queue, 1, 0, 4096);
    world.post(0, wrong, 1, SendOperation::Send, (0, 10));
    let events = refused(&mut world, CompletionStatus::RemoteAccessError);
    let number = world.targets[0].number();
    assert!(
        matches!(
            events[..],
            [AsyncEvent::InvalidXrceth(of), AsyncEvent::LastReceiveReached(last)]
                if of == number && last == number
        ),
        "{events:?}"
    );
    assert_eq!(queue.posted(), 1, "no receive was taken");
}

#[test]
fn a_queue_of_another_xrc_domain_is_out_of_reach() {
    for operation in [
        |_: &World| SendOperation::Send,
        |world: &World| SendOperation::Write(world.remote(0)),
        |world: &World| SendOperation::Read(world.remote(0)),
        |world: &World| SendOperation::FetchAdd { remote: world.remote(0), add: 1 },
    ] {
        let mut world = World::new(1);
        let foreign = world.sides[1].engine.open_xrc_domain(&XrcOpen::default()).unwrap();
        let own = std::mem::replace(&mut world.xrc_domain, foreign);
        let queue = world.create_queue(4);
        world.xrc_domain = own;
        world.post_receive(&queue, 1, 0, 4096);
        world.post(0, queue.number().unwrap(), 1, operation(&world), (0x1000, 8));
        let events = refused(&mut world, CompletionStatus::RemoteAccessError);
        let number = world.targets[0].number();
        assert!(
            matches!(events[..], [AsyncEvent::XrcDomainViolation(of), _] if of == number),
            "{events:?}"
        );
        assert_eq!(queue.posted(), 1, "no receive was taken");
        assert_eq!(world.sides[1].memory.load_u64(0).unwrap(), 0, "nothing was written");
    }
}

#[test]
fn a_key_of_another_protection_domain_than_the_named_queues_is_refused() {
    let mut world = World::new(1);
    let other = world.sides[1].engine.allocate_domain().unwrap();
    let completions = Arc::clone(&world.sides[1].completions);
    let queue = world.create_queue_with(4, other, completions);
    world.post(0, queue.number().unwrap(), 1, SendOperation::Write(world.remote(0)), (0, 8));
    let events = refused(&mut world, CompletionStatus::RemoteAccessError);
    assert!(matches!(events[..], [AsyncEvent::AccessError(_), _]), "{events:?}");
}

#[test]
fn a_receive_with_a_key_of_another_domain_than_its_queues_fails_with_its_number_of_the_target() {
    let mut world = World::new(1);
    let other = world.sides[1].engine.allocate_domain().unwrap();
    let completions = Arc::clone(&world.sides[1].completions);
    let queue = world.create_queue_with(4, other, completions);
    world.post_receive(&queue, 5, 0, 4096);
    world.post_receive(&queue, 6, 0, 4096);
    world.post(0, queue.number().unwrap(), 1, SendOperation::Send, (0, 8));
    refused(&mut world, CompletionStatus::RemoteOperationError);
    let failed = world.completion(1);
    assert_eq!((failed.id, failed.status), (5, CompletionStatus::LocalProtectionError));
    assert_eq!(failed.queue_pair, world.targets[0].number());
    assert_eq!(queue.posted(), 1, "the other receive serves others");
    assert_eq!(world.sides[1].completions.waiting(), 0);
}

#[test]
fn a_message_larger_than_its_receive_ends_that_receive_and_the_connection_alone() {
    let mut world = World::new(2);
    let queue = world.create_queue(4);
    let number = queue.number().unwrap();
    for id in 0..3 {
        world.post_receive(&queue, id, 0, 1500);
    }
    world.post(0, number, 1, SendOperation::Send, (0, 3000));
    refused(&mut world, CompletionStatus::RemoteInvalidRequest);
    let failed = world.completion(1);
    assert_eq!((failed.id, failed.status), (0, CompletionStatus::LocalLengthError));
    world.post(1, number, 2, SendOperation::Send, (0, 1000));
    world.run();
    assert_eq!(world.completion(0).status, SUCCESS);
    assert_eq!((world.completion(1).id, queue.posted()), (1, 1));
}

#[test]
fn an_empty_queue_is_waited_for_while_others_are_served() {
    let mut world = World::new(2);
    let [empty, full] = [world.create_queue(4), world.create_queue(4)];
    world.post_receive(&full, 1, 0, 4096);
    world.post(0, empty.number().unwrap(), 1, SendOperation::Send, (0, 10));
    world.post(1, full.number().unwrap(), 2, SendOperation::Send, (0, 10));
    world.run_for(3_000_000);
    assert_eq!(world.completion(0).id, 2);
    assert_eq!(world.completion(1).id, 1);
    assert!(poll(&world.sides[0].completions).is_none());
    world.post_receive(&empty, 7, 0, 4096);
    world.run();
    assert_eq!((world.completion(0).id, world.completion(1).id), (1, 7));
}

#[test]
fn the_limit_of_a_queue_gives_its_event_whichever_target_takes() {
    let mut world = World::new(2);
    let queue = world.create_queue(8);
    let number = queue.number().unwrap();
    for id in 0..4 {
        world.post_receive(&queue, id, 0, 64);
    }
    world.sides[1].engine.set_shared_limit(&queue, 3).unwrap();
    for id in 0..3 {
        world.post(id as usize % 2, number, id, SendOperation::Send, (0, 10));
        world.run();
        let events = world.effects(1).events;
        let reached = events.iter().filter(|event| {
            matches!(event, AsyncEvent::SharedReceiveQueueLimit(of) if Arc::ptr_eq(of, &queue))
        });
        assert_eq!(reached.count(), usize::from(id == 1), "after message {id}");
    }
}

#[test]
fn a_full_queue_takes_receives_again_once_completions_are_polled() {
    let mut world = World::new(1);
    let queue = world.create_queue(2);
    let number = queue.number().unwrap();
    let request = ReceiveRequest { id: 9, segments: &[] };
    for id in 0..2 {
        world.post_receive(&queue, id, 0, 64);
        world.post(0, number, id, SendOperation::Send, (0, 10));
    }
    world.run();
    assert_eq!(queue.posted(), 0);
    assert_eq!(queue.post(&[request]).1, Err(PostError::QueueFull { capacity: 2 }));
    world.completion(1);
    queue.post(&[request]).1.unwrap();
    assert_eq!(queue.post(&[request]).1, Err(PostError::QueueFull { capacity: 2 }));
}

#[test]
fn initiators_and_targets_say_what_they_lack() {
    let mut world = World::new(1);
    let queue = world.create_queue(4);
    let number = queue.number().unwrap();
    let (operation, flags) = (SendOperation::Send, SendFlags::NONE);
    let send = SendRequest { id: 1, operation, flags, payload: Payload::EMPTY };
    let receive = ReceiveRequest { id: 1, segments: &[] };
    let (initiator, target) = (&world.initiators[0], &world.targets[0]);
    assert_eq!(initiator.post_one_send(&send), Err(PostError::NoSharedQueueNamed));
    let ini = QueuePairKind::XrcInitiator;
    assert_eq!(initiator.post_one_receive(&receive), Err(PostError::NoReceives(ini)));
    let tgt = QueuePairKind::XrcTarget;
    assert_eq!(target.post_one_send(&send), Err(PostError::NoSendQueue(tgt)));
    let named = target.post_send_to(number, &[send]);
    assert_eq!(named, (0, Err(PostError::SharedQueueNamed(tgt))));
    assert_eq!(target.post_one_receive(&receive), Err(PostError::SharedReceiveQueue));
    let options = world.sides[0].initiator_options();
    let rc = uroce::engine::QueuePairOptions { kind: QueuePairKind::Rc, ..options };
    let rc = world.sides[0].engine.create_queue_pair(&rc).unwrap();
    let refused = rc.post_send_to(number, &[send]);
    assert_eq!(refused, (0, Err(PostError::SharedQueueNamed(QueuePairKind::Rc))));
}

#[test]
fn queries_tell_the_truth_about_what_is_not_there() {
    let mut world = World::new(1);
    let initiator = world.sides[0].engine.query_queue_pair(world.initiators[0].number()).unwrap();
    assert_eq!(initiator.kind, QueuePairKind::XrcInitiator);
    assert_eq!((initiator.domain, initiator.xrc_domain), (world.sides[0].domain, None));
    let usual = QueueCapacities::default();
    let expected = QueueCapacities { receive_requests: 0, receive_segments: 0, ..usual };
    assert_eq!(initiator.capacities, expected);
    assert_eq!(initiator.attributes.max_destination_rd_atomic, None);
    let target = world.sides[1].engine.query_queue_pair(world.targets[0].number()).unwrap();
    assert_eq!(target.kind, QueuePairKind::XrcTarget);
    assert_eq!((target.domain, target.xrc_domain), (DomainId::NONE, Some(world.xrc_domain)));
    assert_eq!(target.capacities, QueueCapacities::NONE);
    assert_eq!(target.attributes.retry_count, None);
    assert_eq!(target.attributes.min_rnr_timer, Some(12));
    let queue = world.create_queue(5);
    assert_eq!((queue.capacity(), queue.max_segments(), queue.limit()), (8, 4, 0));
    assert_eq!(queue.xrc_domain(), Some(world.xrc_domain));
    assert_eq!(queue.domain(), Some(world.sides[1].domain));
}

#[test]
fn attributes_that_a_kind_does_not_take_are_refused_by_name() {
    let mut world = World::new(0);
    let initiator = world.sides[0].create_initiator().number();
    let target = world.sides[1].engine.create_xrc_target(world.xrc_domain).unwrap().number();
    let init = QueuePairAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::NONE),
        ..QueuePairAttributes::to_state(QueuePairState::Init)
    };
    for (side, number) in [(0, initiator), (1, target)] {
        world.sides[side].engine.modify_queue_pair(world.now, number, &init).unwrap();
    }
    let rtr = QueuePairAttributes {
        address: Some(uroce::queue::AddressVector::new(0, world.sides[1].address)),
        path_mtu: Some(uroce::queue::PathMtu::Mtu1024),
        destination: Some(target),
        receive_psn: Some(uroce::wire::Psn::new(1)),
        ..QueuePairAttributes::to_state(QueuePairState::Rtr)
    };
    let with_timer = QueuePairAttributes { min_rnr_timer: Some(1), ..rtr };
    let refused = world.sides[0].engine.modify_queue_pair(world.now, initiator, &with_timer);
    assert!(
        matches!(refused, Err(ControlError::Modify(ModifyError::NotAllowed { .. }))),
        "{refused:?}"
    );
    let missing = world.sides[1].engine.modify_queue_pair(world.now, target, &rtr);
    let text = missing.unwrap_err().to_string();
    assert!(text.contains("MAX_DEST_RD_ATOMIC is missing"), "{text}");
}

#[test]
fn domains_of_a_file_are_shared_and_end_with_the_last_opening() {
    let mut world = World::new(0);
    let engine = &mut world.sides[1].engine;
    let file = Some(XrcFile { device: 1, inode: 77 });
    let open = XrcOpen { file, create: false, exclusive: false };
    assert_eq!(engine.open_xrc_domain(&open), Err(ControlError::NoXrcDomainOfFile));
    let create = XrcOpen { create: true, ..open };
    let domain = engine.open_xrc_domain(&create).unwrap();
    assert_eq!(engine.open_xrc_domain(&open), Ok(domain));
    assert_eq!(engine.open_xrc_domain(&create), Ok(domain));
    let exclusive = XrcOpen { exclusive: true, ..create };
    assert_eq!(engine.open_xrc_domain(&exclusive), Err(ControlError::XrcDomainExists));
    let other = XrcOpen { file: Some(XrcFile { device: 2, inode: 77 }), ..exclusive };
    assert_ne!(engine.open_xrc_domain(&other).unwrap(), domain);
    let anonymous = [0; 2].map(|_| engine.open_xrc_domain(&XrcOpen::default()).unwrap());
    assert_ne!(anonymous[0], anonymous[1]);

    let target = engine.create_xrc_target(domain).unwrap().number();
    engine.close_xrc_domain(domain).unwrap();
    engine.close_xrc_domain(domain).unwrap();
    let busy = Err(ControlError::XrcDomainBusy { queues: 0, targets: 1 });
    assert_eq!(engine.close_xrc_domain(domain), busy, "the last opening");
    engine.destroy_queue_pair(target).unwrap();
    engine.close_xrc_domain(domain).unwrap();
    assert_eq!(engine.close_xrc_domain(domain), Err(ControlError::NoSuchXrcDomain));
    assert_eq!(engine.create_xrc_target(domain).err(), Some(ControlError::NoSuchXrcDomain));
    assert_eq!(engine.open_xrc_domain(&open), Err(ControlError::NoXrcDomainOfFile));
}

#[test]
fn what_is_in_use_cannot_be_ended() {
    let mut world = World::new(0);
    let queue = world.create_queue(4);
    let xrc_domain = world.xrc_domain;
    let Side { engine, domain, completions, keys, .. } = &mut world.sides[1];
    engine.deregister(keys.local).unwrap();
    let busy = engine.close_xrc_domain(xrc_domain);
    assert_eq!(busy, Err(ControlError::XrcDomainBusy { queues: 1, targets: 0 }));
    let busy = engine.destroy_completion_queue(completions);
    assert_eq!(busy, Err(ControlError::CompletionQueueBusy { users: 1 }));
    let busy = engine.release_domain(*domain);
    let expected =
        ControlError::DomainBusy { regions: 0, windows: 0, pairs: 0, queues: 1, handles: 0 };
    assert_eq!(busy, Err(expected));
    engine.destroy_shared_receive_queue(&queue).unwrap();
    engine.close_xrc_domain(xrc_domain).unwrap();
    engine.destroy_completion_queue(completions).unwrap();
    engine.release_domain(*domain).unwrap();
}

#[test]
fn a_target_is_opened_by_number_within_its_domain_and_ends_with_its_last_use() {
    let mut world = World::new(1);
    let number = world.targets[0].number();
    let xrc_domain = world.xrc_domain;
    let initiator = world.initiators[0].number();
    let engine = &mut world.sides[1].engine;
    let same = engine.open_xrc_target(xrc_domain, number).unwrap();
    assert!(Arc::ptr_eq(&same, &world.targets[0]));
    let foreign = engine.open_xrc_domain(&XrcOpen::default()).unwrap();
    let missing = Some(ControlError::NoSuchTarget(number));
    assert_eq!(engine.open_xrc_target(foreign, number).err(), missing);
    let missing = Some(ControlError::NoSuchTarget(initiator));
    assert_eq!(engine.open_xrc_target(xrc_domain, initiator).err(), missing);

    engine.destroy_queue_pair(number).unwrap();
    let queue = world.create_queue(4);
    world.post_receive(&queue, 3, 0, 64);
    world.post(0, queue.number().unwrap(), 1, SendOperation::Send, (0, 64));
    world.run();
    assert_eq!(world.completion(1).id, 3, "it serves as long as someone uses it");
    world.sides[1].engine.destroy_queue_pair(number).unwrap();
    let gone = world.sides[1].engine.destroy_queue_pair(number);
    assert_eq!(gone, Err(ControlError::NoSuchPair(number)));
}

#[test]
fn only_the_right_calls_make_the_kinds() {
    let mut world = World::new(0);
    let xrc = world.create_queue(4);
    let domain = world.sides[1].domain;
    let options = world.sides[1].initiator_options();
    let engine = &mut world.sides[1].engine;
    let shared = engine.create_shared_receive_queue(domain, 4, 1).unwrap();
    let target =
        uroce::engine::QueuePairOptions { kind: QueuePairKind::XrcTarget, ..options.clone() };
    let refused = engine.create_queue_pair(&target).err();
    assert_eq!(refused, Some(ControlError::TargetWithoutXrcDomain));
    let refused = engine.create_queue_pair_sharing(&options, Some(&shared)).err();
    assert_eq!(refused, Some(ControlError::InitiatorWithReceives));
    let rc = uroce::engine::QueuePairOptions { kind: QueuePairKind::Rc, ..options };
    let refused = engine.create_queue_pair_sharing(&rc, Some(&xrc)).err();
    assert_eq!(refused, Some(ControlError::XrcSharedQueue));
    let nowhere = DomainId::NONE;
    let refused = engine.create_shared_receive_queue(nowhere, 4, 1).err();
    assert_eq!(refused, Some(ControlError::NoSuchDomain));
    let options = XrcQueueOptions {
        domain,
        xrc_domain: world.xrc_domain,
        completions: Arc::clone(&world.sides[1].completions),
        requests: 0,
        segments: 1,
    };
    let refused = world.sides[1].engine.create_xrc_shared_receive_queue(&options).err();
    assert!(matches!(refused, Some(ControlError::Range { value: 0, .. })), "{refused:?}");
}

#[test]
fn a_queue_that_ends_takes_its_half_filled_receive_along() {
    let mut world = World::new(1);
    let queue = world.create_queue(4);
    world.post_receive(&queue, 1, 0, 0x8_0000);
    world.post(0, queue.number().unwrap(), 1, SendOperation::Send, (0, 0x8_0000));
    while queue.posted() == 1 {
        world.step();
    }
    world.sides[1].engine.destroy_shared_receive_queue(&queue).unwrap();
    let events = refused(&mut world, CompletionStatus::RemoteAccessError);
    assert!(matches!(events[..], [AsyncEvent::InvalidXrceth(_), _]), "{events:?}");
    assert!(poll(&world.sides[1].completions).is_none(), "nobody waits for it any more");
}

#[test]
fn a_target_that_is_reset_or_ends_inside_of_a_message_frees_the_queues_entry() {
    for destroy in [false, true] {
        let mut world = World::new(1);
        let queue = world.create_queue(1);
        world.post_receive(&queue, 1, 0, 0x8_0000);
        world.post(0, queue.number().unwrap(), 1, SendOperation::Send, (0, 0x8_0000));
        while queue.posted() == 1 {
            world.step();
        }
        let request = ReceiveRequest { id: 2, segments: &[] };
        assert!(queue.post(&[request]).1.is_err(), "the claimed receive takes up its entry");
        let number = world.targets[0].number();
        let engine = &mut world.sides[1].engine;
        if destroy {
            engine.destroy_queue_pair(number).unwrap();
        } else {
            let reset = QueuePairAttributes::to_state(QueuePairState::Reset);
            engine.modify_queue_pair(world.now, number, &reset).unwrap();
        }
        queue.post(&[request]).1.unwrap();
        assert!(poll(&world.sides[1].completions).is_none());
    }
}

#[test]
fn a_half_filled_receive_serves_others_again_once_its_target_is_in_error() {
    let mut world = World::new(2);
    let queue = world.create_queue(1);
    let number = queue.number().unwrap();
    world.post_receive(&queue, 1, 0, 0x8_0000);
    world.post(0, number, 1, SendOperation::Send, (0, 0x8_0000));
    while queue.posted() == 1 {
        world.step();
    }
    let error = QueuePairAttributes::to_state(QueuePairState::Error);
    let sender = world.initiators[0].number();
    world.sides[0].engine.modify_queue_pair(world.now, sender, &error).unwrap();
    assert_eq!(world.completion(0).status, CompletionStatus::WorkRequestFlushed);
    world.post(1, number, 2, SendOperation::Send, (0, 10));
    world.run_for(3_000_000);
    assert!(poll(&world.sides[1].completions).is_none(), "the target waits for the rest");
    assert!(poll(&world.sides[0].completions).is_none(), "and the other one for a receive");
    let target = world.targets[0].number();
    world.sides[1].engine.modify_queue_pair(world.now, target, &error).unwrap();
    let flushed = world.completion(1);
    let wanted = (1, CompletionStatus::WorkRequestFlushed, target);
    assert_eq!((flushed.id, flushed.status, flushed.queue_pair), wanted);
    world.post_receive(&queue, 2, 0, 0x8_0000);
    world.run();
    assert_eq!((world.completion(0).id, world.completion(1).id), (2, 2));
}

#[test]
fn shared_queue_numbers_are_given_once_and_never_zero() {
    let mut world = World::new(0);
    let mut numbers: Vec<u32> =
        (0..100).map(|_| world.create_queue(1).number().unwrap().value()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 100);
    assert!(numbers.iter().all(|number| !matches!(number, 0 | 0xff_ffff)));
}

#[test]
fn packets_of_other_transports_do_not_reach_initiators_and_targets() {
    // An RC queue pair that believes to be connected to a target is not served.
    let mut world = World::new(1);
    let options = world.sides[0].initiator_options();
    let rc = uroce::engine::QueuePairOptions { kind: QueuePairKind::Rc, ..options };
    let rc = world.sides[0].engine.create_queue_pair(&rc).unwrap();
    let attributes = QueuePairAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::ALL),
        address: Some(uroce::queue::AddressVector::new(0, world.sides[1].address)),
        path_mtu: Some(uroce::queue::PathMtu::Mtu1024),
        destination: Some(world.targets[0].number()),
        receive_psn: Some(uroce::wire::Psn::new(1)),
        send_psn: Some(uroce::wire::Psn::new(0xff_fff1)),
        max_destination_rd_atomic: Some(1),
        max_rd_atomic: Some(1),
        min_rnr_timer: Some(1),
        timeout: Some(1),
        retry_count: Some(1),
        rnr_retry: Some(1),
        ..QueuePairAttributes::default()
    };
    pair::connect(&mut world.sides[0].engine, rc.number(), &attributes);
    let segments: [Sge; 1] = [world.sides[0].sge(0, 8)];
    let remote = Remote { address: world.remote(0).address, key: Rkey::new(0) };
    rc.post_one_send(&SendRequest {
        id: 1,
        operation: SendOperation::Write(remote),
        flags: SendFlags::SIGNALED,
        payload: Payload::Segments(&segments),
    })
    .unwrap();
    world.run();
    assert_eq!(world.completion(0).status, CompletionStatus::TransportRetryExceeded);
    assert_eq!(world.targets[0].state(), QueuePairState::Rts);
    let dropped = uroce::engine::Counter::DropWrongTransport;
    assert!(world.sides[1].engine.counters().get(dropped) > 0);
    assert_ne!(rc.number(), Qpn::default());
}
