//! The UDP link against the kernel: what is put in comes out, in every mode.

mod common;

use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};

use common::{network, skip, skip_unless, wait_readable};
use uroce::engine::{IdentificationRule, Port, SourcePorts};
use uroce::fault::Faults;
use uroce::link::{Impaired, Link, PortHolder, Recorded, UdpError, UdpLink, UdpOptions};
use uroce::pcap::Reader;
use uroce::time::{Instant, MILLISECOND};
use uroce::wire::icrc::{self, DONT_FRAGMENT, Verdict};
use uroce::wire::{Flow, Frame, ICRC_LENGTH, Identification, SentBurst};

/// Packets of one burst: bytes in a segment, bytes in all, traffic class.
type Shape = (usize, usize, u8);

const SHAPES: [Shape; 6] = [
    (60, 60, 0x00),
    (1100, 16 * 1100 + 300, 0x6a),
    (1000, 64 * 1000, 0x02),
    (4200, 15 * 4200, 0x69),
    (20, 64 * 20 - 19, 0x6b),
    (65_000, 65_000, 0x01),
];

/// Tests run at once, and two sockets on one port would share what arrives.
fn fresh_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(24_791);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn loopback(last: u8) -> IpAddr {
    IpAddr::from([127, 47, 91, last])
}

fn options(address: IpAddr, port: u16) -> UdpOptions {
    UdpOptions { port, ..UdpOptions::new(address, 65_535) }
}

fn source_port(link: &UdpLink, index: usize) -> u16 {
    match &link.capabilities().source_ports {
        SourcePorts::Only(ports) => ports[index % ports.len()],
        SourcePorts::Any => panic!("sockets have ports of their own"),
    }
}

/// The bytes of a burst, different for each `number` and place.
fn pattern(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 7 + place / 251 + number * 31) as u8).collect()
}

/// Sends one burst of each shape, each from another source port.
fn send(link: &mut UdpLink, to: IpAddr, shapes: &[Shape]) -> usize {
    let ports: Vec<u16> = (0..shapes.len()).map(|index| source_port(link, index)).collect();
    let source = link.local_address();
    let mut next = 0;
    link.transmit(usize::MAX, &mut |slot| {
        let (segment, length, traffic_class) = *shapes.get(next)?;
        slot[..length].copy_from_slice(&pattern(next, length));
        let flow = Flow { source, destination: to, source_port: ports[next] };
        next += 1;
        Some(SentBurst { flow, traffic_class, first_identification: 0, segment, length })
    })
}

/// A packet as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Arrived {
    flow: Flow,
    traffic_class: u8,
    bytes: Vec<u8>,
}

/// Receives until `wanted` packets are there or nothing comes for two seconds. Also tells how
/// many segments the largest burst had.
fn receive(link: &mut UdpLink, wanted: usize) -> (Vec<Arrived>, usize) {
    let mut arrived = Vec::new();
    let mut largest = 0;
    while arrived.len() < wanted && wait_readable(link.descriptors(), 2000) {
        link.receive(64, &mut |burst| {
            assert_eq!(burst.identification, Identification::Unseen);
            largest = largest.max(burst.segments().count());
            arrived.extend(burst.segments().map(|segment| Arrived {
                flow: burst.flow,
                traffic_class: burst.traffic_class,
                bytes: segment.to_vec(),
            }));
        });
    }
    (arrived, largest)
}

/// What should arrive of `shapes`, flow by flow.
fn expected(link: &UdpLink, to: IpAddr, shapes: &[Shape]) -> Vec<Arrived> {
    let packets = shapes.iter().enumerate().flat_map(|(number, (segment, length, class))| {
        let port = source_port(link, number);
        let flow = Flow { source: link.local_address(), destination: to, source_port: port };
        let bytes = pattern(number, *length);
        let segments: Vec<Vec<u8>> = bytes.chunks(*segment).map(<[u8]>::to_vec).collect();
        segments.into_iter().map(move |bytes| Arrived { flow, traffic_class: *class, bytes })
    });
    packets.collect()
}

/// Sockets are flushed one after another: order holds within a flow only.
fn by_flow(mut packets: Vec<Arrived>) -> Vec<Arrived> {
    packets.sort_by_key(|packet| packet.flow.source_port);
    packets
}

/// Bursts of all shapes from one link to another arrive unharmed. Returns how many segments the
/// largest arrival had.
fn exchange(from: UdpOptions, to: UdpOptions) -> (UdpLink, UdpLink, usize) {
    let mut sender = UdpLink::open(from).unwrap();
    let mut receiver = UdpLink::open(to).unwrap();
    let destination = receiver.local_address();
    let wanted = expected(&sender, destination, &SHAPES);
    assert_eq!(send(&mut sender, destination, &SHAPES), wanted.len());
    let (arrived, largest) = receive(&mut receiver, wanted.len());
    assert_eq!(arrived.len(), wanted.len(), "{:?}", receiver.statistics());
    assert!(by_flow(arrived) == by_flow(wanted.clone()), "a packet was changed on the way");
    assert_eq!(sender.statistics().sent.packets, wanted.len() as u64);
    assert_eq!(sender.statistics().refused, 0);
    assert_eq!(receiver.statistics().received.bytes, sender.statistics().sent.bytes);
    (sender, receiver, largest)
}

fn modes() -> [(bool, bool); 4] {
    [(true, true), (true, false), (false, true), (false, false)]
}

#[test]
fn bursts_arrive_unharmed_over_ipv4_in_every_mode() {
    for (index, (segmentation, coalescing)) in modes().into_iter().enumerate() {
        let port = fresh_port();
        let from = UdpOptions { segmentation, ..options(loopback(2 * index as u8 + 1), port) };
        let to = UdpOptions { coalescing, ..options(loopback(2 * index as u8 + 2), port) };
        let (sender, receiver, _) = exchange(from, to);
        let rule = sender.capabilities().identification;
        let cuts = sender.segments();
        assert!(segmentation || !cuts);
        assert!(coalescing || !receiver.coalesces());
        let expected =
            if cuts { IdentificationRule::ZeroPlusIndex } else { IdentificationRule::Zero };
        assert_eq!(rule, expected);
    }
}

#[test]
fn bursts_arrive_unharmed_over_ipv6_in_every_mode() {
    let localhost = IpAddr::V6(Ipv6Addr::LOCALHOST);
    if UdpSocket::bind((localhost, 0)).is_err() {
        return skip_unless("ipv6", "::1 is not there");
    }
    for (segmentation, coalescing) in modes() {
        let port = fresh_port();
        let mut link =
            UdpLink::open(UdpOptions { segmentation, coalescing, ..options(localhost, port) })
                .unwrap();
        let wanted = expected(&link, localhost, &SHAPES);
        send(&mut link, localhost, &SHAPES);
        let (arrived, _) = receive(&mut link, wanted.len());
        assert!(by_flow(arrived) == by_flow(wanted), "{segmentation} {coalescing}");
    }
}

#[test]
fn a_burst_crosses_loopback_in_one_piece_where_the_kernel_can() {
    let port = fresh_port();
    let (sender, receiver, largest) =
        exchange(options(loopback(21), port), options(loopback(22), port));
    if !sender.segments() || !receiver.coalesces() {
        return skip("this kernel has no UDP_SEGMENT or no UDP_GRO");
    }
    assert_eq!(largest, 64);
    assert_eq!(receiver.statistics().received.bursts, SHAPES.len() as u64);
    assert_eq!(sender.statistics().sent.bursts, SHAPES.len() as u64);
}

#[test]
fn more_bursts_than_slots_leave_in_order() {
    let port = fresh_port();
    let mut sender = UdpLink::open(options(loopback(31), port)).unwrap();
    let mut receiver = UdpLink::open(options(loopback(32), port)).unwrap();
    let flow = Flow {
        source: loopback(31),
        destination: loopback(32),
        source_port: source_port(&sender, 3),
    };
    let mut next = 0u8;
    let packets = sender.transmit(usize::MAX, &mut |slot| {
        if next == 100 {
            return None;
        }
        slot[..300].fill(next);
        next += 1;
        Some(SentBurst {
            flow,
            traffic_class: 2,
            first_identification: 0,
            segment: 100,
            length: 300,
        })
    });
    assert_eq!(packets, 300);
    let (arrived, _) = receive(&mut receiver, 300);
    let numbers: Vec<u8> = arrived.iter().map(|packet| packet.bytes[0]).collect();
    let wanted: Vec<u8> = (0..100).flat_map(|number| [number; 3]).collect();
    assert_eq!(numbers, wanted);
}

#[test]
fn a_budget_is_kept_in_both_directions() {
    let port = fresh_port();
    let mut link =
        UdpLink::open(UdpOptions { coalescing: false, ..options(loopback(33), port) }).unwrap();
    let flow = Flow {
        source: loopback(33),
        destination: loopback(33),
        source_port: source_port(&link, 0),
    };
    let burst =
        SentBurst { flow, traffic_class: 0, first_identification: 0, segment: 50, length: 200 };
    assert_eq!(link.transmit(10, &mut |_| Some(burst)), 12);
    assert!(wait_readable(link.descriptors(), 2000));
    let mut total = 0;
    while total < 12 && wait_readable(link.descriptors(), 2000) {
        let packets = link.receive(5, &mut |_| {});
        assert!(packets <= 5);
        total += packets;
    }
    assert_eq!(total, 12);
}

#[test]
fn a_flood_to_a_group_leaves_room_for_what_is_sent_to_the_link_alone() {
    let port = fresh_port();
    let alone = |last| UdpOptions {
        coalescing: false,
        segmentation: false,
        ..options(loopback(last), port)
    };
    let mut receiver = UdpLink::open(alone(53)).unwrap();
    let mut sender = UdpLink::open(alone(54)).unwrap();
    let group = IpAddr::from([239, 47, 91, 1]);
    receiver.join(group).unwrap();
    assert_eq!(send(&mut sender, group, &[(100, 6400, 0)]), 64);
    assert_eq!(send(&mut sender, loopback(53), &[(100, 200, 0)]), 2);
    assert!(wait_readable(receiver.descriptors(), 2000));
    let mut destinations = Vec::new();
    receiver.receive(16, &mut |burst| {
        destinations.extend(burst.segments().map(|_| burst.flow.destination));
    });
    let to = |address| destinations.iter().filter(|known| **known == address).count();
    assert_eq!((to(group), to(loopback(53))), (8, 2));
}

#[test]
fn what_the_socket_drops_is_counted() {
    let port = fresh_port();
    let to =
        UdpOptions { receive_buffer: 20_000, coalescing: false, ..options(loopback(42), port) };
    let from = UdpOptions { segmentation: false, ..options(loopback(41), port) };
    let mut sender = UdpLink::open(from).unwrap();
    let mut receiver = UdpLink::open(to).unwrap();
    let before = receiver.receive_queue().unwrap().unwrap();
    assert_eq!((before.used, before.dropped), (0, 0));
    let shapes = [(1000, 64_000, 0); 4];
    send(&mut sender, loopback(42), &shapes);
    assert!(wait_readable(receiver.descriptors(), 2000));
    let full = receiver.receive_queue().unwrap().unwrap();
    assert!(full.used > full.limit / 2, "{full:?}");
    let (first, _) = receive(&mut receiver, 1);
    let mut arrived = first.len();
    while wait_readable(receiver.descriptors(), 0) {
        arrived += receiver.receive(64, &mut |_| {});
    }
    // The kernel tells of drops with the next datagram that it queues.
    send(&mut sender, loopback(42), &[(1000, 1000, 0)]);
    arrived += receive(&mut receiver, 1).0.len();
    let statistics = receiver.statistics();
    assert!(statistics.overflowed > 0);
    assert_eq!(arrived as u64 + statistics.overflowed, 4 * 64 + 1, "{statistics:?}");
}

#[test]
fn a_link_tells_that_its_queue_is_more_than_half_full_while_it_is() {
    let port = fresh_port();
    let small = UdpOptions { receive_buffer: 64 * 1024, ..options(loopback(51), port) };
    let mut receiver = UdpLink::open(small).unwrap();
    let mut sender = UdpLink::open(options(loopback(52), port)).unwrap();
    assert!(!receiver.is_pressed());
    // Different sizes are not merged.
    let shapes: Vec<Shape> = (0..200).map(|index| (100 + index % 7, 100 + index % 7, 0)).collect();
    send(&mut sender, receiver.local_address(), &shapes);
    let queue = receiver.receive_queue().unwrap().unwrap();
    assert!(queue.used > queue.limit / 2, "{queue:?}");
    assert_eq!(receiver.receive(16, &mut |_| {}), 16);
    assert!(receiver.is_pressed(), "{:?}", receiver.receive_queue());
    while receiver.receive(16, &mut |_| {}) > 0 {}
    assert!(!receiver.is_pressed());
}

#[test]
fn a_peer_without_a_socket_does_not_stop_sending() {
    let port = fresh_port();
    let mut sender = UdpLink::open(options(loopback(43), port)).unwrap();
    for _ in 0..5 {
        send(&mut sender, loopback(44), &SHAPES);
    }
    let mut receiver = UdpLink::open(options(loopback(44), port)).unwrap();
    let wanted = expected(&sender, loopback(44), &SHAPES).len();
    send(&mut sender, loopback(44), &SHAPES);
    assert_eq!(receive(&mut receiver, wanted).0.len(), wanted);
    assert_eq!(sender.statistics().refused, 0, "{:?}", sender.statistics());
}

#[test]
fn a_link_that_only_sends_has_nothing_to_sleep_on() {
    let port = fresh_port();
    let held = UdpSocket::bind((loopback(45), port)).unwrap();
    let guest = UdpOptions { receive: false, ..options(loopback(45), port) };
    let mut guest = UdpLink::open(guest).unwrap();
    assert!(guest.descriptors().is_empty() && guest.receive_socket().is_none());
    assert_eq!(guest.receive(64, &mut |_| panic!("nothing can arrive")), 0);
    send(&mut guest, loopback(45), &[(100, 100, 0)]);
    let mut bytes = [0; 200];
    let (length, from) = held.recv_from(&mut bytes).unwrap();
    assert_eq!((length, from.ip()), (100, loopback(45)));
    assert!(from.port() >= 0xc000);
}

#[test]
fn a_port_that_somebody_else_holds_is_an_error_that_names_the_holder() {
    let port = fresh_port();
    let _held = UdpSocket::bind((loopback(46), port)).unwrap();
    let error = UdpLink::open(options(loopback(46), port)).err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, UdpError::PortHeld { holder: PortHolder::User(_), .. }), "{text}");
    assert!(text.contains(&port.to_string()) && text.contains("user id"), "{text}");
}

#[test]
fn an_address_of_another_host_is_an_error_that_says_so() {
    let elsewhere = IpAddr::from([192, 0, 2, 1]);
    let error = UdpLink::open(options(elsewhere, fresh_port())).err().unwrap();
    assert!(matches!(error, UdpError::NotLocal { .. }), "{error}");
}

#[test]
fn two_links_of_one_user_share_a_port_but_no_source_port() {
    let port = fresh_port();
    let first = UdpLink::open(options(loopback(47), port)).unwrap();
    let second = UdpLink::open(options(loopback(47), port)).unwrap();
    let ports = |link: &UdpLink| link.send_sockets().map(|(port, _)| port).collect::<Vec<_>>();
    assert_eq!(ports(&first).len(), 8);
    assert!(ports(&first).iter().all(|port| !ports(&second).contains(port)));
}

#[test]
fn links_on_several_addresses_can_have_the_same_source_ports() {
    let first = UdpLink::open(options(loopback(60), fresh_port())).unwrap();
    let ports: Vec<u16> = first.send_sockets().map(|(port, _)| port).collect();
    let named =
        |last| UdpOptions { source_ports: ports.clone(), ..options(loopback(last), fresh_port()) };
    let second = UdpLink::open(named(61)).unwrap();
    assert_eq!(second.capabilities().source_ports, SourcePorts::Only(ports.clone()));
    let error = UdpLink::open(named(60)).err().unwrap();
    assert!(matches!(error, UdpError::SourcePortHeld { port, .. } if port == ports[0]), "{error}");
}

#[test]
fn a_link_that_only_sends_can_start_to_receive_once_the_port_is_free() {
    let port = fresh_port();
    let holder = UdpSocket::bind((loopback(62), port)).unwrap();
    let sending = UdpOptions { receive: false, ..options(loopback(62), port) };
    let mut link = UdpLink::open(sending).unwrap();
    assert!(link.descriptors().is_empty());
    let error = link.start_receiving().unwrap_err();
    assert!(matches!(error, UdpError::PortHeld { .. }), "{error}");
    drop(holder);
    link.start_receiving().unwrap();
    let mut sender = UdpLink::open(options(loopback(63), port)).unwrap();
    assert_eq!(send(&mut sender, loopback(62), &SHAPES[..1]), 1);
    assert!(wait_readable(link.descriptors(), 5000));
    assert_eq!(link.receive(10, &mut |burst| assert_eq!(burst.flow.source, loopback(63))), 1);
}

#[test]
fn no_descriptor_survives_exec() {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let link = UdpLink::open(options(loopback(48), fresh_port())).unwrap();
    let descriptors = link.send_sockets().map(|(_, socket)| socket).chain(link.receive_socket());
    for descriptor in descriptors {
        let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
        let text = std::fs::read_to_string(path).unwrap();
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
        assert_ne!(flags & CLOSE_ON_EXEC, 0);
    }
}

/// Sends bursts of RoCE packets with right ICRCs; the n-th packet's payload begins with n.
fn send_sealed(link: &mut dyn Link, flow: Flow, bursts: u8, packets: u8) {
    const SEGMENT: usize = 300;
    let rule = link.capabilities().identification;
    let mut made = 0;
    link.transmit(usize::MAX, &mut |slot| {
        if made == bursts {
            return None;
        }
        let length = SEGMENT * usize::from(packets) - 100;
        for (index, segment) in slot[..length].chunks_mut(SEGMENT).enumerate() {
            let (covered, icrc) = segment.split_last_chunk_mut::<ICRC_LENGTH>().unwrap();
            covered.fill(0x04);
            covered[12] = made * packets + index as u8;
            *icrc = icrc::of_datagram(&flow, rule.of_segment(0, index), DONT_FRAGMENT, covered);
        }
        made += 1;
        Some(SentBurst {
            flow,
            traffic_class: 2,
            first_identification: 0,
            segment: SEGMENT,
            length,
        })
    });
}

/// The numbers of the packets that arrive until nothing comes for `milliseconds`; each must have a
/// right ICRC without any recovery.
fn receive_sealed(link: &mut dyn Link, milliseconds: i32) -> Vec<u8> {
    let mut numbers = Vec::new();
    while wait_readable(link.descriptors(), milliseconds) {
        link.receive(64, &mut |burst| {
            for (index, segment) in burst.segments().enumerate() {
                assert_eq!(icrc::judge(burst, index, segment, true), Verdict::Right);
                numbers.push(segment[12]);
            }
        });
    }
    numbers
}

fn flow_to(link: &UdpLink, to: IpAddr) -> Flow {
    let source_port = source_port(link, 0);
    Flow { source: link.local_address(), destination: to, source_port }
}

#[test]
fn a_kernel_that_refuses_to_cut_at_run_time_gets_datagrams_with_right_icrcs() {
    let port = fresh_port();
    let mut sender = UdpLink::open(options(loopback(51), port)).unwrap();
    let mut receiver = UdpLink::open(options(loopback(52), port)).unwrap();
    if !sender.segments() {
        return skip("this kernel has no UDP_SEGMENT");
    }
    // Without checksums, UDP_SEGMENT is EINVAL.
    for (_, socket) in sender.send_sockets() {
        common::set_option(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1);
    }
    let flow = flow_to(&sender, loopback(52));
    send_sealed(&mut sender, flow, 20, 5);
    assert_eq!(receive_sealed(&mut receiver, 200), (0..100).collect::<Vec<u8>>());
    let statistics = sender.statistics();
    assert_eq!((statistics.split, statistics.refused, statistics.sent.packets), (20, 0, 100));
}

#[test]
fn faults_over_sockets_leave_every_icrc_right() {
    let port = fresh_port();
    let plan = "loss=20%,duplicate=20%,reorder=20%,direction=out,seed=9";
    let sender = UdpLink::open(options(loopback(53), port)).unwrap();
    let mut receiver = UdpLink::open(options(loopback(54), port)).unwrap();
    let flow = flow_to(&sender, loopback(54));
    let mut sender = Impaired::new(sender, Faults::new(plan.parse().unwrap()));
    send_sealed(&mut sender, flow, 20, 5);
    let mut numbers = receive_sealed(&mut receiver, 200);
    assert!(sender.next_deadline().is_some(), "some are held back");
    sender.set_now(Instant::from_nanos(MILLISECOND));
    sender.transmit(64, &mut |_| None);
    assert_eq!(sender.next_deadline(), None);
    numbers.extend(receive_sealed(&mut receiver, 200));
    let counted = sender.faults().statistics();
    assert!(counted.lost > 0 && counted.duplicated > 0 && counted.reordered > 0, "{counted:?}");
    assert_eq!(numbers.len() as u64, 100 - counted.lost + counted.duplicated);
    assert!(!numbers.is_sorted());
}

#[test]
fn captures_of_both_ends_agree_with_every_icrc() {
    let port = fresh_port();
    let folder = std::env::temp_dir().join(format!("uroce-links-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let open = |name: &str, last: u8| {
        let link = UdpLink::open(options(loopback(last), port)).unwrap();
        let flow = flow_to(&link, loopback(56));
        let file = std::fs::File::create(folder.join(name)).unwrap();
        (Box::new(Recorded::new(link, file, "lo", 0).unwrap()) as Box<dyn Link>, flow)
    };
    let (mut sender, flow) = open("sent", 55);
    let (mut receiver, _) = open("received", 56);
    send_sealed(&mut sender, flow, 20, 5);
    assert_eq!(receive_sealed(&mut receiver, 200).len(), 100);
    // The links are still open: what is in the files now is there after a kill, too.
    let captures = ["sent", "received"].map(|name| {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let mut reader = Reader::new(bytes.as_slice()).unwrap();
        let mut payloads = Vec::new();
        while let Some(record) = reader.next() {
            let record = record.unwrap();
            let frame = Frame::parse(record.data).unwrap();
            assert_eq!(frame.flow(), Some(flow));
            assert_eq!(frame.traffic_class(), 2);
            let icrc = frame.payload.last_chunk().copied();
            assert_eq!(icrc, frame.computed_icrc(), "{name}");
            payloads.push(frame.payload.to_vec());
        }
        payloads
    });
    assert_eq!(captures[0].len(), 100);
    assert!(captures[0] == captures[1]);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Identification, flags with offset, UDP payload length and source port of an IPv4/UDP frame.
fn ipv4_of(frame: &[u8], destination: [u8; 4]) -> Option<(u16, u16, usize, u16)> {
    let word = |at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let is_ours = word(12)? == 0x0800 && frame.get(30..34)? == destination.as_slice();
    is_ours.then_some((word(18)?, word(20)?, usize::from(word(38)?) - 8, word(34)?))
}

/// Frames that leave through a veth pair while `send` runs.
fn sniff(interface: &str, send: impl FnOnce()) -> Vec<(u16, u16, usize, u16)> {
    network::assert_ours(interface);
    let interfaces = pnet_datalink::interfaces();
    let interface = interfaces.iter().find(|found| found.name == interface).unwrap();
    let config = pnet_datalink::Config {
        read_buffer_size: 65_536,
        read_timeout: Some(std::time::Duration::from_millis(300)),
        ..Default::default()
    };
    let channel = pnet_datalink::channel(interface, config).unwrap();
    let pnet_datalink::Channel::Ethernet(_, mut receiver) = channel else { panic!("no frames") };
    send();
    let mut frames = Vec::new();
    while let Ok(frame) = receiver.next() {
        frames.extend(ipv4_of(frame, [10, 47, 91, 2]));
    }
    frames
}

/// Runs in a thread of its own, because it changes the thread's network namespace.
fn in_namespace(mtu: usize, body: fn()) {
    if !network::is_root() {
        return skip_unless("root", "makes a network namespace");
    }
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let made = network::veth_in_new_namespace("uroce0", "uroce1", "10.47.91.1/24", mtu);
        if let Err(reason) = made {
            return skip_unless("root", &reason);
        }
        network::ip(&[
            "neigh",
            "add",
            "10.47.91.2",
            "lladdr",
            "02:00:00:00:00:02",
            "dev",
            "uroce0",
        ])
        .unwrap();
        // Makes the kernel cut bursts before the wire, as it does for most network cards.
        network::ip(&["link", "set", "uroce0", "gso_max_segs", "1"]).unwrap();
        body();
    });
    thread.unwrap().join().unwrap();
}

fn veth_options(segmentation: bool) -> UdpOptions {
    UdpOptions { segmentation, ..UdpOptions::new(IpAddr::from([10, 47, 91, 1]), 9000) }
}

#[test]
fn the_wire_shows_the_identifications_that_the_capabilities_promise() {
    in_namespace(9000, || {
        for segmentation in [true, false] {
            let mut link = UdpLink::open(veth_options(segmentation)).unwrap();
            let shapes = [(1100, 3000, 0x6a), (4200, 15 * 4200, 0x02), (60, 60, 0)];
            let to = IpAddr::from([10, 47, 91, 2]);
            // Twice: the second burst starts at 0 again. Apart: the sniffer's buffer is small.
            let mut frames = Vec::new();
            for _ in 0..2 {
                frames.extend(sniff("uroce1", || {
                    send(&mut link, to, &shapes);
                }));
            }
            let rule = link.capabilities().identification;
            let one: Vec<(u16, u16, usize, u16)> = shapes
                .iter()
                .enumerate()
                .flat_map(|(number, (segment, length, _))| {
                    let port = source_port(&link, number);
                    let lengths = vec![0; *length];
                    let lengths: Vec<usize> = lengths.chunks(*segment).map(<[u8]>::len).collect();
                    lengths.into_iter().enumerate().map(move |(index, length)| {
                        (rule.of_segment(0, index), 0x4000, length, port)
                    })
                })
                .collect();
            assert_eq!(frames, [one.clone(), one].concat(), "{segmentation} {rule:?}");
        }
    });
}

#[test]
fn a_packet_over_the_mtu_is_refused_and_counted_and_the_next_one_leaves() {
    in_namespace(1500, || {
        for segmentation in [true, false] {
            let mut link = UdpLink::open(veth_options(segmentation)).unwrap();
            let to = IpAddr::from([10, 47, 91, 2]);
            let shapes = [(4200, 4200, 0), (4200, 8400, 0), (1000, 2000, 0)];
            let frames = sniff("uroce1", || {
                send(&mut link, to, &shapes);
            });
            assert_eq!(frames.len(), 2, "{:?}", link.statistics());
            let statistics = link.statistics();
            assert_eq!((statistics.refused, statistics.oversized), (3, 3), "{segmentation}");
            assert_eq!(statistics.sent.packets, 2);
        }
    });
}
