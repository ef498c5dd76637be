//! Datagrams to multicast groups: who gets a copy, what it holds, and what membership needs.

use std::net::{IpAddr, Ipv6Addr};

use uroce::engine::Counter::{
    self, DropNoGroupMember, DropNoReceive, DropPkeyMismatch, DropQkeyMismatch,
    DropUnknownQueuePair, DropWrongAddress, DropWrongState, DropWrongTransport,
};
use uroce::engine::{ControlError, GroupError, Limits};
use uroce::queue::CompletionStatus::Success;
use uroce::queue::QueuePairState::{Error, Init};
use uroce::queue::{
    AddressVector, Datagram, QueuePairAttributes, QueuePairKind, SendFlags, SendOperation,
};
use uroce::wire::{Flow, QKey, Qpn};

use crate::harness::{
    Frame, QKEY, RECEIVE, SOURCE, Setup, Story, send_only, send_only_immediate, theirs,
};
use crate::ud::ud;

const AREA: usize = 40;
const SENDER: u32 = 0x00_0b17;

fn group(last: u8) -> IpAddr {
    IpAddr::from([239, 1, 2, last])
}

fn datagram(length: usize) -> Frame {
    send_only(0, &theirs(0, length)).ud(QKEY, SENDER)
}

/// The peer sends a frame to a group, or to the number of groups at another address.
fn deliver_to(s: &mut Story, destination: IpAddr, frame: Frame) {
    let flow = Flow { destination, ..s.flow() };
    let mut bytes = s.encode(frame);
    bytes[5..8].fill(0xff);
    s.deliver_bytes(flow, bytes);
}

fn attach(s: &mut Story, pair: usize, group: IpAddr) -> bool {
    let number = s.pairs[pair].number();
    s.engine.attach_multicast(number, group).unwrap()
}

fn drops(s: &Story) -> u64 {
    let reasons = Counter::ALL.iter().filter(|counter| counter.name().starts_with("drop_"));
    reasons.map(|counter| s.count(*counter)).sum()
}

fn post_receive(s: &mut Story, pair: usize, id: u64) {
    s.pair = pair;
    let segment = s.sge(RECEIVE + 200 * id as usize, 100);
    let request = uroce::queue::ReceiveRequest { id, segments: &[segment] };
    s.pairs[pair].post_one_receive(&request).unwrap();
}

#[test]
fn lesson_36_members_get_copies_under_the_number_of_groups_the_sender_included() {
    let setup = Setup { pairs: 3, ..ud() };
    setup.tell(|s| {
        // Sent: the number is 0xffffff whatever the request says, the source is ours.
        s.pair = 0;
        let vector = AddressVector::new(0, group(1));
        let address = s.engine.create_address_handle(s.domain, &vector).unwrap();
        for queue_pair in [Qpn::MULTICAST, Qpn::new(5)] {
            let to = Datagram { address, queue_pair, qkey: QKEY };
            let segment = s.sge(SOURCE, 8);
            s.post(1, SendOperation::SendTo { to, immediate: None }, SendFlags::NONE, &[segment]);
            let sent = s.next_sent().expect("the datagram");
            assert_eq!(sent.bytes[5..8], [0xff; 3]);
            assert_eq!(sent.flow.destination, group(1));
            assert_eq!(sent.bytes[17..20], s.number().value().to_be_bytes()[1..]);
            s.expect_sent(1, Success);
        }
        // Received: a copy for each member and nobody else, our own datagrams among them.
        assert!(attach(s, 0, group(1)), "the first member");
        assert!(!attach(s, 2, group(1)));
        for pair in 0..3 {
            post_receive(s, pair, pair as u64);
        }
        let own = s.pairs[0].number().value();
        let flow = Flow { source: s.setup.our_address(), destination: group(1), ..s.flow() };
        let mut bytes = s.encode(send_only_immediate(0, &theirs(0, 8), [7; 4]).ud(QKEY, own));
        bytes[5..8].fill(0xff);
        s.deliver_bytes(flow, bytes);
        for id in [0, 2] {
            let received = s.expect_received(id, Success);
            assert_eq!(received.length as usize, AREA + 8);
            assert_eq!(received.source.value(), own);
            let place = RECEIVE + 200 * id as usize;
            assert_eq!(s.bytes(place + 36, 4), [239, 1, 2, 1], "sent to the group");
            assert_eq!(s.bytes(place + AREA, 8), theirs(0, 8));
        }
        s.expect_nothing();
        assert_eq!(drops(s), 0);
        assert_eq!(s.count(Counter::ReceivedPackets), 1);
    });
}

#[test]
fn groups_of_ipv6_work_as_those_of_ipv4() {
    let setup = Setup { ipv6: true, pairs: 2, ..ud() };
    setup.tell(|s| {
        let group: IpAddr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x77).into();
        assert!(attach(s, 1, group));
        post_receive(s, 1, 1);
        deliver_to(s, group, datagram(8));
        s.expect_received(1, Success);
        let IpAddr::V6(address) = group else { unreachable!() };
        assert_eq!(s.bytes(RECEIVE + 200 + 24, 16), address.octets());
    });
}

#[test]
fn what_a_member_cannot_take_is_counted_for_it_alone() {
    let setup = Setup { pairs: 5, ..ud() };
    setup.tell(|s| {
        for pair in 0..5 {
            attach(s, pair, group(1));
        }
        // 0 has no receive, 1 another queue key, 2 is in error, 3 has too small a receive.
        for pair in 1..5 {
            post_receive(s, pair, pair as u64);
        }
        s.pair = 1;
        let other =
            QueuePairAttributes { qkey: Some(QKey::new(5)), ..QueuePairAttributes::default() };
        s.modify(&other).unwrap();
        s.pair = 2;
        s.modify(&QueuePairAttributes::to_state(Error)).unwrap();
        s.expect_received(2, uroce::queue::CompletionStatus::WorkRequestFlushed);
        deliver_to(s, group(1), datagram(60));
        assert_eq!(s.expect_received(3, Success).length, 100);
        assert_eq!(s.expect_received(4, Success).length, 100);
        assert_eq!((s.count(DropNoReceive), s.count(DropQkeyMismatch)), (1, 1));
        assert_eq!((s.count(DropWrongState), drops(s)), (1, 3));
        let own = |s: &Story, pair: usize, counter: Counter| {
            s.engine.queue_pair_counters(s.pairs[pair].number()).unwrap().get(counter)
        };
        for (pair, reason) in [(0, DropNoReceive), (1, DropQkeyMismatch), (2, DropWrongState)] {
            assert_eq!(own(s, pair, reason), 1, "queue pair {pair}");
        }
        let packets = [0, 1, 2, 3, 4].map(|pair| own(s, pair, Counter::ReceivedPackets));
        assert_eq!((packets, s.count(Counter::ReceivedPackets)), ([1; 5], 1));
        post_receive(s, 3, 6);
        deliver_to(s, group(1), datagram(61));
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropFaultyRequest), 1);
        deliver_to(s, group(1), datagram(60));
        s.expect_received(6, Success);
    });
}

#[test]
fn what_is_not_for_a_group_that_we_are_in_is_dropped_for_its_reason() {
    ud().tell(|s| {
        attach(s, 0, group(1));
        s.post_receive(1, 100);
        deliver_to(s, group(2), datagram(8));
        assert_eq!(settled(s, DropNoGroupMember), (1, 1));
        // The number of groups at our own address, and our own number at a group's.
        let own = s.setup.our_address();
        deliver_to(s, own, datagram(8));
        assert_eq!(settled(s, DropUnknownQueuePair), (1, 2));
        let flow = Flow { destination: group(1), ..s.flow() };
        s.deliver_on(flow, datagram(8));
        assert_eq!(settled(s, DropWrongAddress), (1, 3));
        deliver_to(s, group(1), send_only(0, &theirs(0, 8)));
        deliver_to(s, group(1), send_only(0, &theirs(0, 8)).uc());
        assert_eq!(settled(s, DropWrongTransport), (2, 5));
        deliver_to(s, group(1), datagram(8).pkey(0x7ffe));
        assert_eq!(settled(s, DropPkeyMismatch), (1, 6));
        let flow = Flow { destination: group(1), ..s.flow() };
        let mut bytes = s.encode(datagram(8));
        bytes[5..8].fill(0xff);
        bytes.extend([0; 4]);
        s.deliver_raw(flow, bytes);
        assert_eq!(settled(s, Counter::DropBadIcrc), (1, 7));
        deliver_to(s, group(1), datagram(8));
        s.expect_received(1, Success);
    });
}

/// Nothing happened but drops: this one's count, and all together.
#[track_caller]
fn settled(s: &mut Story, counter: Counter) -> (u64, u64) {
    s.expect_nothing();
    (s.count(counter), drops(s))
}

#[test]
fn attached_twice_is_attached_once_and_the_last_member_ends_the_group() {
    let setup = Setup { pairs: 2, ..ud() };
    setup.tell(|s| {
        let mapped = IpAddr::V6(std::net::Ipv4Addr::new(239, 1, 2, 1).to_ipv6_mapped());
        assert!(attach(s, 0, mapped));
        assert!(!attach(s, 0, group(1)), "the same group");
        post_receive(s, 0, 1);
        post_receive(s, 0, 2);
        deliver_to(s, group(1), datagram(8));
        s.expect_received(1, Success);
        s.expect_nothing();
        assert!(!attach(s, 1, group(1)));
        let numbers = [0, 1].map(|pair: usize| s.pairs[pair].number());
        assert_eq!(s.engine.detach_multicast(numbers[0], mapped), Ok(false));
        deliver_to(s, group(1), datagram(8));
        assert_eq!(settled(s, DropNoReceive), (1, 1), "the other member still is one");
        assert_eq!(s.engine.detach_multicast(numbers[1], group(1)), Ok(true));
        deliver_to(s, group(1), datagram(8));
        assert_eq!(settled(s, DropNoGroupMember), (1, 2));
        s.expect_nothing();
        s.pair = 0;
        s.modify(&QueuePairAttributes::to_state(Error)).unwrap();
        s.expect_received(2, uroce::queue::CompletionStatus::WorkRequestFlushed);
    });
}

#[test]
fn wrong_groups_and_wrong_queue_pairs_are_refused_by_name() {
    ud().tell(|s| {
        let number = s.number();
        let refused = |s: &mut Story, group: &str| {
            s.engine.attach_multicast(number, group.parse().unwrap()).unwrap_err().to_string()
        };
        for address in ["10.0.0.1", "0.0.0.0", "255.255.255.255", "::", "fd00::1", "::ffff:1.2.3.4"]
        {
            assert!(refused(s, address).contains("is no multicast group"), "{address}");
        }
        let family = refused(s, "ff02::7");
        assert!(family.contains("no address of the family of group ff02::7"), "{family}");
        let unknown = Qpn::new(0x00_4444);
        let missing = s.engine.attach_multicast(unknown, group(1));
        assert_eq!(missing, Err(ControlError::NoSuchPair(unknown)));
        let detached = s.engine.detach_multicast(number, group(1));
        let not_attached = GroupError::NotAttached { number, group: group(1) };
        assert_eq!(detached, Err(not_attached.into()));
        assert_eq!(s.engine.multicast_groups_of(number), Ok(vec![]));
    });
    for kind in [QueuePairKind::Rc, QueuePairKind::Uc] {
        let setup = Setup { kind, state: Init, ..Setup::default() };
        setup.tell(|s| {
            let number = s.number();
            let refused = s.engine.attach_multicast(number, group(1));
            assert_eq!(refused, Err(GroupError::NotDatagrams { number, kind }.into()));
        });
    }
}

#[test]
fn each_limit_of_membership_is_refused_at_its_number_and_not_before() {
    let limits = Limits {
        multicast_groups: 3,
        multicast_members: 2,
        multicast_attachments: 5,
        ..Limits::default()
    };
    let setup = Setup { pairs: 4, limits, ..ud() };
    setup.tell(|s| {
        let refused = |s: &mut Story, pair: usize, last: u8| {
            let number = s.pairs[pair].number();
            match s.engine.attach_multicast(number, group(last)) {
                Err(ControlError::Limit { what, limit }) => (what, limit),
                other => panic!("{other:?}"),
            }
        };
        for last in 1..4 {
            assert!(attach(s, 0, group(last)));
        }
        assert_eq!(refused(s, 0, 4), ("multicast groups", 3));
        assert!(!attach(s, 1, group(1)));
        assert_eq!(refused(s, 2, 1), ("queue pairs in one group", 2));
        assert!(!attach(s, 1, group(2)));
        assert_eq!(refused(s, 1, 3), ("members of multicast groups", 5));
        // What was refused has taken nothing.
        let number = s.pairs[0].number();
        assert_eq!(s.engine.detach_multicast(number, group(3)), Ok(true));
        assert!(attach(s, 3, group(4)));
    });
}

#[test]
fn a_queue_pair_in_a_group_cannot_be_destroyed_and_lives_on() {
    ud().tell(|s| {
        let number = s.number();
        attach(s, 0, group(1));
        attach(s, 0, group(2));
        let refused = s.engine.destroy_queue_pair(number);
        assert_eq!(refused, Err(GroupError::Attached { number, groups: 2 }.into()));
        s.post_receive(1, 100);
        deliver_to(s, group(2), datagram(8));
        s.expect_received(1, Success);
        for last in [1, 2] {
            assert_eq!(s.engine.detach_multicast(number, group(last)), Ok(true));
        }
        assert_eq!(s.engine.destroy_queue_pair(number), Ok(()));
    });
}
