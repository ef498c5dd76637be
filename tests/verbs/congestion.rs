//! Congestion control over real sockets: marks made by faults, notifications, rates, parameters.

use uroce::verbs::{
    CongestionOptions, ConnectOptions, Counter, SendOperation, VerbsError, connect_pair,
};

use super::setup::{End, context, open, options};

#[test]
fn marks_on_the_way_bring_notifications_and_these_a_rate() {
    let marking = {
        let mut marking = options(31);
        marking.fault = Some("ce=100%,direction=in,opcode=RC_RDMA_WRITE_ONLY".parse().unwrap());
        marking
    };
    let (sender, receiver) = (End::new(&context(31)), End::new(&open(&marking)));
    connect_pair(&sender.pair, &receiver.pair, &ConnectOptions::default()).unwrap();
    assert_eq!(sender.pair.rate().unwrap(), None);
    let remote = receiver.memory.remote(0);
    sender.pair.post(1, SendOperation::Write(remote), sender.memory.segment(0, 8)).unwrap();
    assert_eq!(sender.good(), 1);
    // The notification left before the acknowledgement, on the same way.
    let rate = sender.pair.rate().unwrap().expect("the queue pair is limited");
    assert!(rate.current >= 5_000_000_000 && rate.alpha > 0.0, "{rate:?}");
    let count = |end: &End, counter| end.pair.counters().unwrap().get(counter);
    // More than one where this machine is so busy that the packet was sent again.
    let marks = count(&receiver, Counter::ReceivedCongestionMark);
    let sent = count(&receiver, Counter::SentCongestionNotification);
    let received = count(&sender, Counter::ReceivedCongestionNotification);
    assert!((1..=marks).contains(&sent), "{sent} notifications of {marks} marks");
    assert!((1..=sent).contains(&received), "{received} of {sent} notifications arrived");
}

#[test]
fn without_congestion_control_nothing_is_ecn_capable() {
    let mut marking = options(32);
    marking.fault = Some("ce=100%".parse().unwrap());
    marking.congestion = CongestionOptions::off();
    let (sender, receiver) = (End::new(&open(&marking)), End::new(&open(&marking)));
    connect_pair(&sender.pair, &receiver.pair, &ConnectOptions::default()).unwrap();
    let remote = receiver.memory.remote(0);
    sender.pair.post(1, SendOperation::Write(remote), sender.memory.segment(0, 8)).unwrap();
    assert_eq!(sender.good(), 1);
    let counters = receiver.pair.counters().unwrap();
    assert_eq!(counters.get(Counter::ReceivedCongestionMark), 0);
}

#[test]
fn parameters_can_be_asked_for_and_changed_but_not_to_what_cannot_be() {
    let context = context(33);
    let found = context.congestion().unwrap();
    assert_eq!(found, CongestionOptions::default());
    let slow = CongestionOptions { rpg_max_rate: 1_000, ..found };
    context.set_congestion(slow).unwrap();
    let wrong = CongestionOptions { rpg_threshold: 0, ..found };
    let error = context.set_congestion(wrong).unwrap_err();
    assert!(matches!(error, VerbsError::Control(_)), "{error:?}");
    assert!(error.to_string().contains("rpg_threshold"), "{error}");
    assert_eq!(context.congestion().unwrap(), slow);
    assert_eq!(context.rate_to("127.88.2.99".parse().unwrap()).unwrap(), None);
}
