//! UC, UD and shared receive queues through verbs, over real sockets on `lo`.

use std::time::Duration;

use uroce::verbs::{
    Access, AddressVector, Attachment, CompletionStatus, ConnectOptions, Context, Immediate,
    Payload, Psn, QKey, QueuePairKind, QueuePairOptions, SendFlags, SendOperation, SendRequest,
    connect_pair, open,
};

const PATIENCE: Duration = Duration::from_secs(20);
const QKEY: QKey = QKey::new(0x1234);

fn lo() -> Context {
    open("lo").unwrap()
}

#[test]
fn uc_carries_messages_of_many_packets_over_a_socket() {
    let context = lo();
    let domain = context.allocate_domain().unwrap();
    let sends = context.create_completion_queue(16).unwrap();
    let receives = context.create_completion_queue(16).unwrap();
    let pairs = [0, 1].map(|_| {
        domain
            .create_queue_pair(&QueuePairOptions {
                kind: QueuePairKind::Uc,
                receive_completions: &receives,
                ..QueuePairOptions::new(&sends)
            })
            .unwrap()
    });
    connect_pair(&pairs[0], &pairs[1], &ConnectOptions::default()).unwrap();
    let memory = domain.allocate(200_000, Access::ALL).unwrap();
    let pattern: Vec<u8> = (0..60_000_usize).map(|index| (index % 253) as u8).collect();
    memory.write(0, &pattern).unwrap();
    pairs[1].post_receive(7, &[memory.segment(100_000, 60_000)]).unwrap();
    pairs[0].post(1, SendOperation::Send, memory.segment(0, 60_000)).unwrap();
    assert_eq!(sends.wait_one(PATIENCE).unwrap().status, CompletionStatus::Success);
    let received = receives.wait_one(PATIENCE).unwrap();
    assert_eq!((received.id, received.length), (7, 60_000));
    assert_eq!(memory.to_vec(100_000, 60_000).unwrap(), pattern);
}

#[test]
fn datagrams_go_to_whoever_is_named_over_ipv4_and_ipv6() {
    let context = lo();
    let domain = context.allocate_domain().unwrap();
    let gids = context.info().gids.len() as u16;
    for gid_index in 0..gids {
        let sends = context.create_completion_queue(16).unwrap();
        let receives = context.create_completion_queue(16).unwrap();
        let pairs = [0, 1, 2].map(|_| {
            let options = QueuePairOptions {
                kind: QueuePairKind::Ud,
                receive_completions: &receives,
                ..QueuePairOptions::new(&sends)
            };
            let pair = domain.create_queue_pair(&options).unwrap();
            pair.start_datagrams(QKEY, Psn::new(5)).unwrap();
            pair
        });
        let memory = domain.allocate(4096, Access::LOCAL_WRITE).unwrap();
        memory.write(0, b"to you").unwrap();
        let own = context.gid(gid_index).unwrap().address();
        let handle = domain.create_address_handle(&AddressVector::new(gid_index, own)).unwrap();
        for target in [1, 2] {
            pairs[target].post_receive(target as u64, &[memory.segment(1000, 100)]).unwrap();
            let immediate = Some(Immediate([target as u8; 4]));
            let to = handle.datagram(pairs[target].number(), QKEY);
            let request = SendRequest {
                id: 9,
                operation: SendOperation::SendTo { to, immediate },
                flags: SendFlags::SIGNALED,
                payload: Payload::Segments(&[memory.segment(0, 6)]),
            };
            pairs[0].post_send(&request).unwrap();
            assert_eq!(sends.wait_one(PATIENCE).unwrap().status, CompletionStatus::Success);
            let received = receives.wait_one(PATIENCE).unwrap();
            assert_eq!((received.id, received.length), (target as u64, 46), "GID {gid_index}");
            assert_eq!(received.queue_pair, pairs[target].number());
            assert_eq!(received.source, pairs[0].number());
            assert_eq!(received.attachment, Attachment::Immediate(Immediate([target as u8; 4])));
            assert_eq!(memory.to_vec(1040, 6).unwrap(), b"to you");
        }
    }
}

#[test]
fn two_queue_pairs_take_their_receives_from_one_queue() {
    let context = lo();
    let domain = context.allocate_domain().unwrap();
    let shared = domain.create_shared_receive_queue(8, 1).unwrap();
    let sends = context.create_completion_queue(32).unwrap();
    let receives = context.create_completion_queue(32).unwrap();
    let options =
        QueuePairOptions { receive_completions: &receives, ..QueuePairOptions::new(&sends) };
    let sharing = QueuePairOptions { shared_receives: Some(&shared), ..options };
    let clients = [0, 1].map(|_| domain.create_queue_pair(&options).unwrap());
    let servers = [0, 1].map(|_| domain.create_queue_pair(&sharing).unwrap());
    for (client, server) in clients.iter().zip(&servers) {
        connect_pair(client, server, &ConnectOptions::default()).unwrap();
    }
    let memory = domain.allocate(100_000, Access::LOCAL_WRITE).unwrap();
    for id in 0..4 {
        shared.post_receive(id, &[memory.segment(id as usize * 10_000, 10_000)]).unwrap();
    }
    for round in 0..4_u8 {
        memory.write(90_000, &[round + 1; 9000]).unwrap();
        let client = usize::from(round % 2);
        clients[client].post(1, SendOperation::Send, memory.segment(90_000, 9000)).unwrap();
        assert_eq!(sends.wait_one(PATIENCE).unwrap().status, CompletionStatus::Success);
        let received = receives.wait_one(PATIENCE).unwrap();
        assert_eq!(received.id, u64::from(round));
        assert_eq!(received.queue_pair, servers[client].number());
        let arrived = memory.to_vec(usize::from(round) * 10_000, 9000).unwrap();
        assert_eq!(arrived, vec![round + 1; 9000]);
    }
    assert_eq!(shared.posted(), 0);
}
