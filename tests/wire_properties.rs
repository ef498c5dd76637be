//! Laws of the wire layer for any input: what is read is written back, what is written is read
//! back, and the ICRC notices each bit that it should.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use uroce::wire::{
    Aeth, AtomicEth, Bth, Deth, Ethernet, Feth, Flow, Frame, Grh, Headers, ICRC_LENGTH,
    Identification, Immediate, Ipv4Header, Ipv6Header, Lrh, MAX_HEADER, Mad, Message, Network,
    Packet, Psn, Qpn, Rdeth, ReceivedBurst, Reth, Rkey, SendTail, Service, Syndrome, UdpHeader,
    Xrceth, frame_headers, icrc, internet_checksum, pad,
};

/// Reading and writing a fixed header gives the same bytes, whatever they are; and reading what
/// was written gives the same header, so both directions are one-to-one.
macro_rules! header_laws {
    ($($name:ident: $header:ty;)*) => {
        proptest! {
            $(#[test]
            fn $name(bytes in any::<[u8; <$header>::LENGTH]>()) {
                let header = <$header>::parse(&bytes);
                let mut emitted = [0; <$header>::LENGTH];
                header.emit(&mut emitted);
                prop_assert_eq!(emitted, bytes);
                prop_assert_eq!(<$header>::parse(&emitted), header);
            })*
        }
    };
}

header_laws! {
    bth_comes_back: Bth;
    reth_comes_back: Reth;
    aeth_comes_back: Aeth;
    atomic_eth_comes_back: AtomicEth;
    deth_comes_back: Deth;
    rdeth_comes_back: Rdeth;
    xrceth_comes_back: Xrceth;
    feth_comes_back: Feth;
    immediate_comes_back: Immediate;
    grh_comes_back: Grh;
    lrh_comes_back: Lrh;
    mad_comes_back: Mad;
    udp_comes_back: UdpHeader;
}

fn reth() -> impl Strategy<Value = Reth> {
    any::<[u8; Reth::LENGTH]>().prop_map(|bytes| Reth::parse(&bytes))
}

fn aeth() -> impl Strategy<Value = Aeth> {
    any::<[u8; Aeth::LENGTH]>().prop_map(|bytes| Aeth::parse(&bytes))
}

fn atomic() -> impl Strategy<Value = AtomicEth> {
    any::<[u8; AtomicEth::LENGTH]>().prop_map(|bytes| AtomicEth::parse(&bytes))
}

fn feth() -> impl Strategy<Value = Feth> {
    any::<[u8; Feth::LENGTH]>().prop_map(|bytes| Feth::parse(&bytes))
}

fn immediate() -> impl Strategy<Value = Option<Immediate>> {
    proptest::option::of(any::<[u8; 4]>().prop_map(Immediate))
}

fn tail() -> impl Strategy<Value = SendTail> {
    prop_oneof![
        Just(SendTail::Plain),
        any::<[u8; 4]>().prop_map(|bytes| SendTail::Immediate(Immediate(bytes))),
        any::<u32>().prop_map(|key| SendTail::Invalidate(Rkey::new(key))),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        Just(Message::SendFirst),
        Just(Message::SendMiddle),
        tail().prop_map(Message::SendLast),
        tail().prop_map(Message::SendOnly),
        reth().prop_map(Message::WriteFirst),
        Just(Message::WriteMiddle),
        immediate().prop_map(Message::WriteLast),
        (reth(), immediate()).prop_map(|(reth, data)| Message::WriteOnly(reth, data)),
        reth().prop_map(Message::ReadRequest),
        atomic().prop_map(Message::CompareSwap),
        atomic().prop_map(Message::FetchAdd),
        reth().prop_map(Message::AtomicWrite),
        (feth(), reth()).prop_map(|(feth, reth)| Message::Flush(feth, reth)),
        Just(Message::Resync),
        aeth().prop_map(Message::ReadResponseFirst),
        Just(Message::ReadResponseMiddle),
        aeth().prop_map(Message::ReadResponseLast),
        aeth().prop_map(Message::ReadResponseOnly),
        aeth().prop_map(Message::Acknowledge),
        (aeth(), any::<u64>()).prop_map(|(aeth, value)| Message::AtomicAcknowledge(aeth, value)),
        any::<[u8; 16]>().prop_map(Message::CongestionNotification),
    ]
}

fn service() -> impl Strategy<Value = Service> {
    let deth = || any::<[u8; 8]>().prop_map(|bytes| Deth::parse(&bytes));
    let rdeth = || any::<[u8; 4]>().prop_map(|bytes| Rdeth::parse(&bytes));
    prop_oneof![
        4 => Just(Service::Rc),
        2 => Just(Service::Uc),
        2 => deth().prop_map(Service::Ud),
        1 => any::<[u8; 4]>().prop_map(|bytes| Service::XrcRequest(Xrceth::parse(&bytes))),
        1 => Just(Service::XrcResponse),
        1 => (rdeth(), deth()).prop_map(|(rdeth, deth)| Service::RdRequest(rdeth, deth)),
        1 => rdeth().prop_map(Service::RdResponse),
        2 => Just(Service::Congestion),
    ]
}

/// Headers of any pair that exists, with any flags, and a payload that the opcode may have.
fn headers() -> impl Strategy<Value = Headers> {
    let flags = any::<[u8; Bth::LENGTH]>().prop_map(|bytes| Bth::parse(&bytes));
    let headers = (service(), message(), flags).prop_map(|(service, message, bth)| Headers {
        solicited: bth.solicited,
        migration: bth.migration,
        pkey: bth.pkey,
        fecn: bth.fecn,
        becn: bth.becn,
        reserved: bth.reserved,
        ack_request: bth.ack_request,
        reserved_after_ack: bth.reserved_after_ack,
        ..Headers::request(service, message, bth.destination, bth.psn)
    });
    headers.prop_filter("the service has the message", |headers| headers.opcode().is_some())
}

fn has_payload(headers: &Headers) -> bool {
    headers.message.operation().is_some_and(|operation| operation.has_payload())
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..Default::default() })]

    #[test]
    fn a_packet_that_was_written_reads_the_same(
        headers in headers(),
        payload in proptest::collection::vec(any::<u8>(), 0..70),
        padding in any::<[u8; 3]>(),
    ) {
        let payload = if has_payload(&headers) { &payload[..] } else { &[] };
        let padding = &padding[..pad(payload.len())];
        let packet = Packet { headers, payload, pad: padding };
        let mut bytes = vec![0xee; packet.length() + ICRC_LENGTH];
        let written = packet.emit(&mut bytes);
        prop_assert_eq!(written, packet.length());
        prop_assert!(headers.length() <= MAX_HEADER);
        prop_assert_eq!(&bytes[written..], &[0xee; ICRC_LENGTH][..], "wrote past its end");
        prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
    }

    #[test]
    fn a_packet_that_was_read_writes_the_same(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
        known in any::<proptest::sample::Index>(),
    ) {
        if let [opcode, flags, ..] = bytes.as_mut_slice() {
            let known_opcodes: Vec<u8> =
                (0..=255).filter(|byte| uroce::wire::Opcode::from_byte(*byte).is_some()).collect();
            *opcode = known_opcodes[known.index(known_opcodes.len())];
            *flags &= 0xf0;
            bytes.truncate(bytes.len() & !3);
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            let mut emitted = vec![0; packet.length()];
            packet.emit(&mut emitted);
            prop_assert_eq!(&emitted[..], &bytes[..bytes.len() - ICRC_LENGTH]);
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        first in any::<u16>(),
        seen in any::<bool>(),
        strict in any::<bool>(),
    ) {
        let _ = Packet::parse(&bytes);
        let _ = Frame::parse(&bytes);
        let _ = Ethernet::parse(&bytes);
        let identification = if seen {
            Identification::Seen { first, flags: first }
        } else {
            Identification::Unseen
        };
        let flow = flow(true);
        let burst =
            ReceivedBurst { flow, traffic_class: 0, identification, segment: 7, bytes: &bytes };
        for (index, segment) in burst.segments().enumerate() {
            icrc::judge(&burst, index, segment, strict);
        }
    }

    #[test]
    fn ipv4_headers_come_back(
        bytes in any::<[u8; 60]>(),
        words in 5u8..=15,
    ) {
        let mut bytes = bytes;
        bytes[0] = 0x40 | words;
        let (header, rest) = Ipv4Header::parse(&bytes).expect("long enough for any options");
        prop_assert_eq!(header.length() + rest.len(), bytes.len());
        let mut emitted = [0; 60];
        let length = header.emit(&mut emitted);
        prop_assert_eq!(&emitted[..length], &bytes[..length]);
        let right = Ipv4Header { checksum: header.computed_checksum(), ..header };
        right.emit(&mut emitted);
        prop_assert_eq!(internet_checksum(&emitted[..length]), 0);
    }

    #[test]
    fn ipv6_headers_come_back(bytes in any::<[u8; Ipv6Header::LENGTH]>()) {
        let mut bytes = bytes;
        bytes[0] = 0x60 | bytes[0] & 0x0f;
        let header = Ipv6Header::parse(&bytes).expect("version 6");
        let mut emitted = [0; Ipv6Header::LENGTH];
        header.emit(&mut emitted);
        prop_assert_eq!(emitted, bytes);
        bytes[0] ^= 0x20;
        prop_assert_eq!(Ipv6Header::parse(&bytes), None);
    }

    #[test]
    fn ethernet_headers_with_tags_come_back(
        mut bytes in any::<[u8; 26]>(),
        tags in 0usize..=3,
        protocol in proptest::sample::select(vec![0x8100u16, 0x88a8, 0x9100]),
    ) {
        for tag in 0..tags {
            bytes[12 + 4 * tag..14 + 4 * tag].copy_from_slice(&protocol.to_be_bytes());
        }
        bytes[12 + 4 * tags..].fill(0x08);
        let (ethernet, rest) = Ethernet::parse(&bytes).expect("long enough");
        prop_assert_eq!(ethernet.tags.iter().flatten().count(), tags.min(2));
        let mut emitted = [0; 26];
        let length = ethernet.emit(&mut emitted);
        prop_assert_eq!(length, ethernet.length());
        prop_assert_eq!(&emitted[..length], &bytes[..length]);
        prop_assert_eq!(rest, &bytes[length..]);
    }

    #[test]
    fn syndromes_mean_the_same_with_the_reserved_bit(byte in any::<u8>()) {
        let meaning = Syndrome::from_byte(byte).meaning();
        prop_assert_eq!(meaning, meaning.meaning());
        prop_assert_eq!(meaning.to_byte(), byte & 0x7f);
    }

    #[test]
    fn recovery_finds_any_identification(
        identification in any::<u16>(),
        dont_fragment in any::<bool>(),
        index in 0usize..64,
        mut packet in proptest::collection::vec(any::<u8>(), 16..5000),
    ) {
        let flags = if dont_fragment { icrc::DONT_FRAGMENT } else { 0 };
        let end = packet.len() - ICRC_LENGTH;
        let right = icrc::of_datagram(&flow(false), identification, flags, &packet[..end]);
        packet[end..].copy_from_slice(&right);
        let burst = ReceivedBurst {
            flow: flow(false),
            traffic_class: 0,
            identification: Identification::Unseen,
            segment: packet.len(),
            bytes: &packet,
        };
        let exact = dont_fragment && identification < icrc::SOCKET_IDENTIFICATIONS;
        let (lenient, strict) = match exact {
            true => (icrc::Verdict::Right, icrc::Verdict::Right),
            false => (icrc::Verdict::Recovered(identification), icrc::Verdict::Wrong),
        };
        prop_assert_eq!(icrc::judge(&burst, index, &packet, false), lenient);
        prop_assert_eq!(icrc::judge(&burst, index, &packet, true), strict);
    }

    #[test]
    fn both_ways_to_an_icrc_agree(
        v6 in any::<bool>(),
        identification in any::<u16>(),
        class in any::<u8>(),
        hops in any::<u8>(),
        packet in proptest::collection::vec(any::<u8>(), 4..300),
    ) {
        let headers = frame_headers(&flow(v6), identification, class, hops, packet.len());
        let bytes = [headers.as_bytes(), &packet].concat();
        let frame = Frame::parse(&bytes).expect("our own headers");
        prop_assert_eq!(frame.flow(), Some(flow(v6)));
        prop_assert_eq!((frame.traffic_class(), frame.payload), (class, &packet[..]));
        let fields =
            icrc::of_datagram(&flow(v6), identification, icrc::DONT_FRAGMENT, &packet[..packet.len() - 4]);
        prop_assert_eq!(frame.computed_icrc(), Some(fields));
    }
}

fn flow(v6: bool) -> Flow {
    let (source, destination) = if v6 {
        (
            IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1)),
            IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2)),
        )
    } else {
        (IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)))
    };
    Flow { source, destination, source_port: 0xc123 }
}

/// A frame as we would send it, with a payload, pad and a right ICRC.
fn whole_frame(v6: bool) -> Vec<u8> {
    let message = Message::SendOnly(SendTail::Immediate(Immediate([1, 2, 3, 4])));
    let headers = Headers::request(Service::Rc, message, Qpn::new(0x0012_3456), Psn::new(77));
    let payload: Vec<u8> = (0..61).collect();
    let packet = Packet { headers, payload: &payload, pad: &[0; 3] };
    let mut bytes = vec![0; packet.length()];
    packet.emit(&mut bytes);
    let identification = if v6 { 0 } else { 0x1234 };
    let icrc = icrc::of_datagram(&flow(v6), identification, icrc::DONT_FRAGMENT, &bytes);
    bytes.extend(icrc);
    let outer = frame_headers(&flow(v6), identification, 0x02, 64, bytes.len());
    [outer.as_bytes(), &bytes].concat()
}

/// Whether an endpoint in strict mode takes the frame.
fn accepted(bytes: &[u8]) -> bool {
    let Ok(frame) = Frame::parse(bytes) else { return false };
    let Some(burst) = frame.burst(frame.payload.len()) else { return false };
    icrc::judge(&burst, 0, frame.payload, true) == icrc::Verdict::Right
}

/// Which bits of a byte of the frame routers may change: those that the ICRC must not cover.
fn masked_bits(v6: bool, offset: usize) -> u8 {
    let network = Ethernet::LENGTH;
    let udp = network + if v6 { Ipv6Header::LENGTH } else { Ipv4Header::LENGTH };
    let bth = udp + UdpHeader::LENGTH;
    let in_network = if v6 {
        [(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)].as_slice()
    } else {
        [(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff)].as_slice()
    };
    let in_network = in_network.iter().map(|(at, bits)| (network + at, *bits));
    let others = [(udp + 6, 0xff), (udp + 7, 0xff), (bth + 4, 0xff)];
    in_network.chain(others).find(|(at, _)| *at == offset).map_or(0, |(_, bits)| bits)
}

#[test]
fn every_flipped_bit_from_the_ip_header_on_is_caught_unless_it_is_masked() {
    for v6 in [false, true] {
        let frame = whole_frame(v6);
        assert!(accepted(&frame));
        for offset in Ethernet::LENGTH..frame.len() {
            for bit in 0..8 {
                let mut flipped = frame.clone();
                flipped[offset] ^= 1 << bit;
                let masked = masked_bits(v6, offset) & 1 << bit != 0;
                assert_eq!(accepted(&flipped), masked, "byte {offset}, bit {bit}, IPv6 {v6}");
            }
        }
    }
}

#[test]
fn pads_fill_words() {
    for length in 0..9 {
        assert!(pad(length) < 4 && (length + pad(length)).is_multiple_of(4));
    }
}

#[test]
fn our_frames_have_steady_local_addresses_and_a_right_checksum() {
    for v6 in [false, true] {
        let bytes = whole_frame(v6);
        let frame = Frame::parse(&bytes).expect("our own headers");
        assert_eq!(frame.ethernet.source[0], 0x02, "locally administered, not a group");
        assert_ne!(frame.ethernet.source, frame.ethernet.destination);
        assert_eq!(frame.udp.checksum, 0);
        if let Network::V4(ip) = frame.network {
            assert_eq!((ip.flags, ip.hop_limit), (0x4000, 64));
            assert_eq!(ip.checksum, ip.computed_checksum());
        }
    }
    let group = |address| {
        let flow = Flow { destination: address, ..flow(address.is_ipv6()) };
        let bytes = frame_headers(&flow, 0, 0, 1, 16);
        Ethernet::parse(bytes.as_bytes()).expect("our own headers").0.destination
    };
    assert_eq!(group(IpAddr::V4(Ipv4Addr::new(239, 205, 0, 9))), [1, 0, 0x5e, 77, 0, 9]);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    assert_eq!(group(IpAddr::V6(all_nodes)), [0x33, 0x33, 0, 0, 0, 1]);
}
