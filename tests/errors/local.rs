//! Work requests that are wrong in themselves, and queues that are full.

use std::sync::Arc;

use uroce::engine::QueuePairOptions;
use uroce::queue::{
    Access, AddressVector, Datagram, PathMtu, Payload, QueueCapacities, QueuePairAttributes,
    QueuePairKind, QueuePairState, SendFlags, SendOperation, SendRequest, Sge,
};
use uroce::time::Instant;
use uroce::wire::{Lkey, Psn, Qpn, Rkey};
use uroce::words::explain_root;

use crate::Case;
use crate::pair::{Pair, QKEY};
use crate::world::{all, explained, post, rc, register, run};

pub const CASES: &[Case] = &[
    ("local_memory", local_memory),
    ("cannot_invalidate", cannot_invalidate),
    ("atomic_length", atomic_length),
    ("no_reads", no_reads),
    ("too_many_packets", too_many_packets),
    ("datagram_too_long", datagram_too_long),
    ("no_address_handle", no_address_handle),
    ("completion_queue_full", completion_queue_full),
];

fn local_memory() -> String {
    let mut pair = rc(&|_, _| {});
    let (memory, keys) = register(&mut pair, 0, 4096, Access::NONE);
    let segment = Sge { address: memory.address() + 4000, length: 200, key: keys.local };
    let operation = SendOperation::Write(pair.remote(1, 0));
    pair.post_payload(0, 7, operation, SendFlags::SIGNALED, Payload::Segments(&[segment]));
    run(&mut pair, all);
    explained(&mut pair, 0)
}

fn cannot_invalidate() -> String {
    let mut pair = rc(&|_, _| {});
    let (_, keys) = register(&mut pair, 0, 4096, Access::ALL);
    let operation = SendOperation::LocalInvalidate(Rkey::new(keys.local.value()));
    pair.post_payload(0, 7, operation, SendFlags::SIGNALED, Payload::EMPTY);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

fn atomic_length() -> String {
    let mut pair = rc(&|_, _| {});
    let operation = SendOperation::FetchAdd { remote: pair.remote(1, 0), add: 1 };
    post(&mut pair, operation, 16);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

fn no_reads() -> String {
    let mut pair = rc(&|_, attributes| attributes.max_rd_atomic = Some(0));
    let operation = SendOperation::Read(pair.remote(1, 0));
    post(&mut pair, operation, 16);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

fn too_many_packets() -> String {
    let mut pair = rc(&|_, attributes| attributes.path_mtu = Some(PathMtu::Mtu256));
    let segment = Sge { address: 0, length: 1 << 31, key: Lkey::new(1) };
    let operation = SendOperation::Write(pair.remote(1, 0));
    pair.post_payload(0, 7, operation, SendFlags::SIGNALED, Payload::Segments(&[segment]));
    run(&mut pair, all);
    explained(&mut pair, 0)
}

fn datagram(pair: &mut Pair) -> Datagram {
    let side = &mut pair.sides[0];
    let address = AddressVector::new(0, [10, 0, 0, 2].into());
    let address = side.engine.create_address_handle(side.domain, &address).unwrap();
    Datagram { address, queue_pair: Qpn::new(0x10_0001), qkey: QKEY }
}

fn datagram_too_long() -> String {
    let mut pair = Pair::of_kind(QueuePairKind::Ud, PathMtu::Mtu1024, Access::ALL);
    let to = datagram(&mut pair);
    post(&mut pair, SendOperation::SendTo { to, immediate: None }, 5000);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

fn no_address_handle() -> String {
    let mut pair = Pair::of_kind(QueuePairKind::Ud, PathMtu::Mtu1024, Access::ALL);
    let to = datagram(&mut pair);
    pair.sides[0].engine.destroy_address_handle(to.address).unwrap();
    post(&mut pair, SendOperation::SendTo { to, immediate: None }, 100);
    run(&mut pair, all);
    explained(&mut pair, 0)
}

/// Two sends whose completions go to a queue with one entry.
fn completion_queue_full() -> String {
    let mut pair = Pair::of_kind(QueuePairKind::Ud, PathMtu::Mtu1024, Access::ALL);
    let to = datagram(&mut pair);
    let side = &mut pair.sides[0];
    let small = side.engine.create_completion_queue(1).unwrap();
    let options = QueuePairOptions {
        kind: QueuePairKind::Ud,
        domain: side.domain,
        send_completions: Arc::clone(&small),
        receive_completions: Arc::clone(&side.completions),
        capacities: QueueCapacities::default(),
        signal_all: true,
    };
    let queues = side.engine.create_queue_pair(&options).unwrap();
    let steps = [
        QueuePairAttributes {
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(QKEY),
            ..QueuePairAttributes::to_state(QueuePairState::Init)
        },
        QueuePairAttributes::to_state(QueuePairState::Rtr),
        QueuePairAttributes {
            send_psn: Some(Psn::new(1)),
            ..QueuePairAttributes::to_state(QueuePairState::Rts)
        },
    ];
    for step in &steps {
        side.engine.modify_queue_pair(Instant::ZERO, queues.number(), step).unwrap();
    }
    for id in 0..small.capacity() as u64 + 1 {
        let operation = SendOperation::SendTo { to, immediate: None };
        let payload = Payload::EMPTY;
        let request = SendRequest { id, operation, flags: SendFlags::SIGNALED, payload };
        queues.post_one_send(&request).unwrap();
    }
    run(&mut pair, all);
    let history = pair.sides[0].engine.history(queues.number()).unwrap();
    explain_root(&history).expect("a reason").to_string()
}

/// UD and UC go on after an error; each has its own reason.
#[test]
fn two_failures_in_a_row_are_told_apart() {
    let mut pair = Pair::of_kind(QueuePairKind::Ud, PathMtu::Mtu1024, Access::ALL);
    let to = datagram(&mut pair);
    let operation = SendOperation::SendTo { to, immediate: None };
    pair.post(0, 1, operation, SendFlags::SIGNALED, (0, 9999));
    pair.post(0, 2, operation, SendFlags::SIGNALED, (0, 100));
    run(&mut pair, all);
    let first = explained(&mut pair, 0);
    let second = explained(&mut pair, 0);
    assert!(
        first.contains("9999 bytes") && second.contains("work request 1 had failed"),
        "{second}"
    );
    let number = pair.sides[0].queues.number();
    let rts = QueuePairAttributes::to_state(QueuePairState::Rts);
    pair.sides[0].engine.modify_queue_pair(pair.now, number, &rts).unwrap();
    pair.sides[0].engine.destroy_address_handle(to.address).unwrap();
    pair.post(0, 3, operation, SendFlags::SIGNALED, (0, 100));
    pair.post(0, 4, operation, SendFlags::SIGNALED, (0, 100));
    run(&mut pair, all);
    assert!(explained(&mut pair, 0).contains("address handle"));
    let last = explained(&mut pair, 0);
    assert!(last.contains("work request 3 had failed"), "{last}");
}
