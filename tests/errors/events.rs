//! Asynchronous events: what each one says.

use std::sync::Arc;

use uroce::engine::AsyncEvent;
use uroce::queue::{PathMtu, QueuePairAttributes, QueuePairKind, QueuePairState, SendOperation};

use crate::Case;
use crate::pair::Pair;
use crate::world::{all, post, rc, run};

pub const CASES: &[Case] = &[
    ("AsyncEvent.QueuePairFatal", || {
        overrun(|event| matches!(event, AsyncEvent::QueuePairFatal(_)))
    }),
    ("AsyncEvent.RequestError", request_error),
    ("AsyncEvent.AccessError", access_error),
    ("AsyncEvent.CommunicationEstablished", communication_established),
    ("AsyncEvent.SendQueueDrained", drained),
    ("AsyncEvent.SharedReceiveQueueLimit", limit),
    ("AsyncEvent.LastReceiveReached", last_receive),
    ("AsyncEvent.CompletionQueueOverrun", || {
        overrun(|event| matches!(event, AsyncEvent::CompletionQueueOverrun(_)))
    }),
];

/// The one event of a side that is `wanted`.
fn event(pair: &mut Pair, side: usize, wanted: impl Fn(&AsyncEvent) -> bool) -> String {
    let events = pair.effects(side).events;
    let found = events.iter().find(|event| wanted(event));
    found.unwrap_or_else(|| panic!("{events:?}")).to_string()
}

fn modify(pair: &mut Pair, side: usize, attributes: &QueuePairAttributes) {
    let side = &mut pair.sides[side];
    side.engine.modify_queue_pair(pair.now, side.queues.number(), attributes).unwrap();
}

/// A queue with too few entries for the flush of a queue pair.
fn overrun(wanted: impl Fn(&AsyncEvent) -> bool) -> String {
    use uroce::engine::QueuePairOptions;
    use uroce::queue::{QueueCapacities, ReceiveRequest};
    let mut pair = rc(&|_, _| {});
    let side = &mut pair.sides[0];
    let small = side.engine.create_completion_queue(1).unwrap();
    let options = QueuePairOptions {
        kind: QueuePairKind::Rc,
        domain: side.domain,
        send_completions: Arc::clone(&side.completions),
        receive_completions: Arc::clone(&small),
        capacities: QueueCapacities::default(),
        signal_all: false,
    };
    let queues = side.engine.create_queue_pair(&options).unwrap();
    let init = QueuePairAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(uroce::queue::Access::ALL),
        ..QueuePairAttributes::to_state(QueuePairState::Init)
    };
    let error = QueuePairAttributes::to_state(QueuePairState::Error);
    side.engine.modify_queue_pair(pair.now, queues.number(), &init).unwrap();
    for id in 0..=u64::from(small.capacity()) {
        queues.post_one_receive(&ReceiveRequest { id, segments: &[] }).unwrap();
    }
    side.engine.modify_queue_pair(pair.now, queues.number(), &error).unwrap();
    event(&mut pair, 0, wanted)
}

fn request_error() -> String {
    let mut pair = rc(&|_, _| {});
    let operation = SendOperation::FetchAdd { remote: pair.remote(1, 4), add: 1 };
    post(&mut pair, operation, 8);
    run(&mut pair, all);
    event(&mut pair, 1, |event| matches!(event, AsyncEvent::RequestError(_)))
}

fn access_error() -> String {
    let mut pair = rc(&|_, _| {});
    let operation = SendOperation::Write(pair.remote(1, crate::pair::Ends::MEMORY));
    post(&mut pair, operation, 8);
    run(&mut pair, all);
    event(&mut pair, 1, |event| matches!(event, AsyncEvent::AccessError(_)))
}

/// Side 1 goes back to RTR before the first packet comes.
fn communication_established() -> String {
    let mut pair = rc(&|_, _| {});
    let number = pair.sides[1].queues.number();
    let attributes = pair.sides[1].engine.query_queue_pair(number).unwrap().attributes;
    let only = |state| QueuePairAttributes::to_state(state);
    modify(&mut pair, 1, &only(QueuePairState::Reset));
    let init = QueuePairAttributes {
        pkey_index: attributes.pkey_index,
        port: attributes.port,
        access: attributes.access,
        ..only(QueuePairState::Init)
    };
    let rtr = QueuePairAttributes {
        address: attributes.address,
        path_mtu: attributes.path_mtu,
        destination: attributes.destination,
        receive_psn: attributes.receive_psn,
        max_destination_rd_atomic: attributes.max_destination_rd_atomic,
        min_rnr_timer: attributes.min_rnr_timer,
        ..only(QueuePairState::Rtr)
    };
    modify(&mut pair, 1, &init);
    modify(&mut pair, 1, &rtr);
    let operation = SendOperation::Write(pair.remote(1, 0));
    post(&mut pair, operation, 8);
    run(&mut pair, all);
    event(&mut pair, 1, |event| matches!(event, AsyncEvent::CommunicationEstablished(_)))
}

fn drained() -> String {
    let mut pair = rc(&|_, _| {});
    let sqd = QueuePairAttributes {
        drain_notification: Some(true),
        ..QueuePairAttributes::to_state(QueuePairState::Sqd)
    };
    modify(&mut pair, 0, &sqd);
    run(&mut pair, all);
    event(&mut pair, 0, |event| matches!(event, AsyncEvent::SendQueueDrained(_)))
}

fn limit() -> String {
    let mut pair = Pair::sharing_receives(QueuePairKind::Rc, PathMtu::Mtu1024, 8);
    let side = &mut pair.sides[1];
    let queue = Arc::clone(side.shared.as_ref().unwrap());
    side.engine.set_shared_limit(&queue, 4).unwrap();
    event(&mut pair, 1, |event| matches!(event, AsyncEvent::SharedReceiveQueueLimit(_)))
}

fn last_receive() -> String {
    let mut pair = Pair::sharing_receives(QueuePairKind::Rc, PathMtu::Mtu1024, 8);
    modify(&mut pair, 1, &QueuePairAttributes::to_state(QueuePairState::Error));
    event(&mut pair, 1, |event| matches!(event, AsyncEvent::LastReceiveReached(_)))
}
