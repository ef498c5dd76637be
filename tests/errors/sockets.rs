//! Over real sockets of `lo`, through the verbs layer.

use std::net::IpAddr;
use std::time::Duration;

use uroce::software::DeviceOptions;
use uroce::verbs::{
    Access, CompletionStatus, ConnectOptions, Context, Endpoint, Psn, Qpn, QueuePairOptions,
    SendOperation,
};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn a_completion_is_explained_where_nobody_listens() {
    let here = Context::open(&DeviceOptions::at(IpAddr::from([127, 88, 9, 1]))).unwrap();
    let domain = here.allocate_domain().unwrap();
    let completions = here.create_completion_queue(16).unwrap();
    let pair = domain.create_queue_pair(&QueuePairOptions::new(&completions)).unwrap();
    let nobody = Endpoint {
        gid: IpAddr::from([127, 88, 9, 2]).into(),
        number: Qpn::new(0x12_3456),
        psn: Psn::new(1),
    };
    let options = ConnectOptions { timeout: 10, retry_count: 2, ..ConnectOptions::default() };
    pair.connect(&nobody, Psn::new(0x100), &options).unwrap();
    let memory = domain.allocate(64, Access::NONE).unwrap();
    pair.post(1, SendOperation::Send, memory.segment(0, 64)).unwrap();
    pair.post(2, SendOperation::Send, memory.segment(0, 64)).unwrap();
    let first = completions.wait_one(LONG).unwrap();
    assert_eq!(first.status, CompletionStatus::TransportRetryExceeded);
    let why = pair.explain(&first);
    assert_eq!(why.code, "unanswered.silence");
    let text = why.to_string();
    for part in [
        "SEND to queue pair 0x123456 at 127.88.9.2: PSN 256 was sent",
        "nothing has ever come back",
        "4.194 ms (timeout 10: 4.096 µs × 2^10), retry_cnt 2",
        "no process of 127.88.9.2 listens on UDP port 4791",
        "in this order: (1) 127.88.9.2 port 4791: port unreachable (ICMP) was heard ",
    ] {
        assert!(text.contains(part), "{text}\nlacks {part}");
    }
    assert!(here.counters().unwrap().link.icmp_unreachable > 0);
    let second = completions.wait_one(LONG).unwrap();
    let flushed = pair.explain(&second);
    assert_eq!(flushed.code, "flushed.failure");
    assert!(flushed.headline.contains("work request 1 had failed"), "{flushed}");
    assert!(!pair.history().unwrap().records.is_empty());
    assert_eq!(pair.explain_error().map(|why| why.code), Some("unanswered.silence"));
}
