//! Packets that others published or captured, with the field values that they state.

use std::net::{Ipv4Addr, Ipv6Addr};

use uroce::wire::{
    Aeth, Credits, ETHERTYPE_ROCE_V1, Ethernet, Frame, FrameError, Grh, Lrh, Message, Msn, Network,
    PKey, Packet, Psn, Qpn, Reth, Rkey, SendTail, Service, Syndrome, icrc, internet_checksum,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

/// Emits a frame and the packet in it and expects the same bytes.
fn assert_comes_back(bytes: &[u8], frame: &Frame<'_>, packet: &Packet<'_>) {
    let mut emitted = vec![0; bytes.len()];
    assert_eq!(frame.length(), bytes.len());
    assert_eq!(frame.emit(&mut emitted), bytes.len());
    assert_eq!(emitted, bytes);
    let mut emitted = vec![0xee; packet.length()];
    assert_eq!(packet.emit(&mut emitted), packet.length());
    assert_eq!(emitted, frame.payload[..frame.payload.len() - 4]);
}

/// Both ways to make an ICRC, from the fields alone and from the headers as sent, agree with the
/// wire.
fn assert_icrc(frame: &Frame<'_>, expected: &str) {
    let expected = hex(expected);
    let (packet, wire) = frame.payload.split_last_chunk::<4>().unwrap();
    assert_eq!(wire[..], expected);
    assert_eq!(frame.computed_icrc().unwrap()[..], expected);
    let (identification, flags) = match frame.network {
        Network::V4(ip) => (ip.identification, ip.flags),
        Network::V6(..) => (0, 0),
    };
    let flow = frame.flow().unwrap();
    assert_eq!(icrc::of_datagram(&flow, identification, flags, packet)[..], expected);
    let burst = frame.burst(frame.payload.len()).unwrap();
    assert_eq!(icrc::judge(&burst, 0, frame.payload, true), icrc::Verdict::Right);
}

/// The transport part that the IPv4 and the IPv6 form of scapy's UC example share.
fn assert_uc_send_only(packet: &Packet<'_>) {
    let headers = packet.headers;
    assert_eq!(headers.opcode(), Some(0x24));
    assert_eq!(headers.service, Service::Uc);
    assert_eq!(headers.message, Message::SendOnly(SendTail::Plain));
    assert_eq!((headers.solicited, headers.migration, headers.version), (false, true, 0));
    assert_eq!(headers.pkey, PKey::new(0xffff));
    assert_eq!(headers.destination, Qpn::new(211));
    assert_eq!((headers.ack_request, headers.psn), (false, Psn::new(13_571_856)));
    assert_eq!((packet.payload.len(), packet.pad), (18, &[0, 0][..]));
}

#[test]
fn s1_uc_send_only_over_ipv4() {
    let bytes = hex("248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a8
         0007c00012b7002caca22460ffff000000d300cf17104630818be28935d90e9a
         95505401be885e50000078f353f3");
    let frame = Frame::parse(&bytes).unwrap();
    let Network::V4(ip) = frame.network else { panic!("IPv4") };
    assert_eq!((ip.checksum, ip.computed_checksum()), (0xb4d5, 0xb4d5));
    assert_eq!((ip.identification, ip.traffic_class, ip.hop_limit), (1144, 1, 64));
    assert_eq!((ip.flags, ip.total_length), (0x4000, 64));
    assert_eq!(ip.source, Ipv4Addr::new(192, 168, 0, 7));
    assert_eq!((frame.udp.source_port, frame.udp.length), (49152, 44));
    assert_eq!(frame.udp.checksum, 0xaca2);
    let packet = Packet::parse(frame.payload).unwrap();
    assert_uc_send_only(&packet);
    assert_icrc(&frame, "78 f3 53 f3");
    assert_comes_back(&bytes, &frame, &packet);
}

#[test]
fn s2_the_same_over_ipv6() {
    let bytes = hex("248a07a8fa22248a07a8fa2286dd6e21face002c11ff20220000000000000000
         00000000102320230000000000000000000000001024c00012b7002ce7c52460
         ffff000000d300cf17104630818be28935d90e9a95505401be885e5000003e5b
         743b");
    let frame = Frame::parse(&bytes).unwrap();
    let Network::V6(ip, extensions) = frame.network else { panic!("IPv6") };
    assert_eq!((ip.traffic_class, ip.flow_label, ip.hop_limit), (226, 0x1face, 255));
    assert_eq!((ip.payload_length, frame.udp.checksum), (44, 0xe7c5));
    assert_eq!(ip.source, "2022::1023".parse::<Ipv6Addr>().unwrap());
    assert_eq!(ip.destination, "2023::1024".parse::<Ipv6Addr>().unwrap());
    assert!(extensions.is_empty());
    let packet = Packet::parse(frame.payload).unwrap();
    assert_uc_send_only(&packet);
    assert_icrc(&frame, "3e 5b 74 3b");
    assert_comes_back(&bytes, &frame, &packet);
}

#[test]
fn s3_congestion_notification_of_a_connectx_4() {
    let bytes = hex("e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a00
         1201000012b7002800008100ffff400001180000000000000000000000000000
         00000000000082fd002a");
    let frame = Frame::parse(&bytes).unwrap();
    let Network::V4(ip) = frame.network else { panic!("IPv4") };
    assert_eq!((ip.total_length, ip.traffic_class, ip.identification), (60, 0xc2, 0x718c));
    let udp = frame.udp;
    assert_eq!((udp.source_port, udp.length, udp.checksum), (0, 40, 0));
    let packet = Packet::parse(frame.payload).unwrap();
    let headers = packet.headers;
    assert_eq!(headers.opcode(), Some(0x81));
    assert_eq!(headers.service, Service::Congestion);
    assert_eq!(headers.message, Message::CongestionNotification([0; 16]));
    assert_eq!((headers.solicited, headers.migration), (false, false));
    assert_eq!((headers.fecn, headers.becn, headers.reserved), (false, true, 0));
    assert_eq!((headers.destination, headers.psn), (Qpn::new(0x118), Psn::new(0)));
    assert!(packet.payload.is_empty());
    assert_icrc(&frame, "82 fd 00 2a");
    assert_comes_back(&bytes, &frame, &packet);
}

/// Takes a RoCEv1 frame apart and checks its ICRC and that it comes back.
fn assert_roce_v1(bytes: &[u8], payload_length: u16) -> Packet<'_> {
    let (ethernet, rest) = Ethernet::parse(bytes).unwrap();
    assert_eq!(ethernet.ethertype, ETHERTYPE_ROCE_V1);
    let (grh_bytes, payload) = rest.split_first_chunk().unwrap();
    let grh = Grh::parse(grh_bytes);
    assert_eq!((grh.version, grh.traffic_class, grh.flow_label), (6, 2, 0));
    assert_eq!((grh.payload_length, grh.hop_limit), (payload_length, 64));
    assert_eq!(grh.next_header, Grh::NEXT_HEADER);
    let gid = Ipv4Addr::new(15, 0, 0, 2).to_ipv6_mapped();
    assert_eq!((grh.source, grh.destination), (gid, gid));
    let mut emitted = [0; Grh::LENGTH];
    grh.emit(&mut emitted);
    assert_eq!(emitted, *grh_bytes);
    let (inner, wire) = payload.split_last_chunk::<4>().unwrap();
    assert_eq!(icrc::of(&icrc::Outer::Global(grh_bytes), inner), *wire);
    let packet = Packet::parse(payload).unwrap();
    let mut emitted = vec![0; packet.length()];
    packet.emit(&mut emitted);
    assert_eq!(emitted, inner);
    packet
}

#[test]
fn s4_roce_v1_write_only() {
    let bytes = hex("7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000
         ffff0f00000200000000000000000000ffff0f0000020a70ffff0000010a80a7
         88bc000055d4c0726000000047b3000000050000000001000000e3d856bb");
    let packet = assert_roce_v1(&bytes, 40);
    let key = Rkey::new(0x47b3);
    let reth = Reth { address: 0x0000_55d4_c072_6000, key, length: 5 };
    assert_eq!(packet.headers.opcode(), Some(0x0a));
    assert_eq!(packet.headers.message, Message::WriteOnly(reth, None));
    assert_eq!(packet.headers.destination, Qpn::new(0x10a));
    assert_eq!((packet.headers.ack_request, packet.headers.psn), (true, Psn::new(0xa7_88bc)));
    assert_eq!((packet.payload, packet.pad), (&[0, 0, 0, 0, 1][..], &[0; 3][..]));
    assert_eq!(bytes[bytes.len() - 4..], [0xe3, 0xd8, 0x56, 0xbb]);
}

#[test]
fn s5_roce_v1_acknowledge() {
    let bytes = hex("7cfe90753cd87cfe90753cd889156020000000141b4000000000000000000000
         ffff0f00000200000000000000000000ffff0f0000021140ffff0000010900a7
         88c00000000525f0c038");
    let packet = assert_roce_v1(&bytes, 20);
    let aeth = Aeth { syndrome: Syndrome::Ack(Credits::new(0)), msn: Msn::new(5) };
    assert_eq!(packet.headers.message, Message::Acknowledge(aeth));
    assert!(packet.headers.migration && !packet.headers.ack_request);
    assert_eq!(packet.headers.destination, Qpn::new(0x109));
    assert_eq!(packet.headers.psn, Psn::new(0xa7_88c0));
    assert_eq!(bytes[bytes.len() - 4..], [0x25, 0xf0, 0xc0, 0x38]);
}

#[test]
fn s6_congestion_notification_by_the_rule_not_by_the_article() {
    let bytes = hex("02000000000102000000000208004589003c98c6400020116927161616081616
         1607dbae12b7002800008100ffff400000d20000000000000000000000000000
         000000000000dafc1bef");
    let frame = Frame::parse(&bytes).unwrap();
    let Network::V4(ip) = frame.network else { panic!("IPv4") };
    assert_eq!(ip.source, Ipv4Addr::new(22, 22, 22, 8));
    assert_eq!(ip.destination, Ipv4Addr::new(22, 22, 22, 7));
    assert_eq!((ip.identification, ip.flags), (0x98c6, 0x4000));
    assert_eq!((ip.hop_limit, ip.traffic_class), (32, 0x89));
    assert_eq!(frame.udp.source_port, 56238);
    let packet = Packet::parse(frame.payload).unwrap();
    assert_eq!(packet.headers.destination, Qpn::new(0xd2));
    assert_icrc(&frame, "da fc 1b ef");
    assert_comes_back(&bytes, &frame, &packet);
}

#[test]
fn real_acknowledge_with_limited_credits() {
    let bytes = hex("183d5ebf4371183d5ebf51920800450200300000400040112d60c0a84606c0a84604
         004812b7001c00001140ffff000000450000000006000001259cc216");
    let frame = Frame::parse(&bytes).unwrap();
    assert_eq!(frame.udp.source_port, 72, "only the destination port tells RoCEv2");
    let packet = Packet::parse(frame.payload).unwrap();
    let aeth = Aeth { syndrome: Syndrome::Ack(Credits::new(6)), msn: Msn::new(1) };
    assert_eq!(packet.headers.message, Message::Acknowledge(aeth));
    assert_eq!(Credits::new(6).count(), Some(8));
    assert_icrc(&frame, "25 9c c2 16");
    assert_comes_back(&bytes, &frame, &packet);
}

/// The sample of the InfiniBand specification: a local packet without GRH.
#[test]
fn local_packet_of_the_specification() {
    let bytes = hex("70 12 37 5c 00 0e 17 d2 0a 20 24 87 00 87 b1 b3 00 0d ec 2a 01 71 0a 1c
         01 5d 40 02 38 f2 7a 05 00 00 00 0e bb 88 4d 85 fd 5c fb a4 72 8b c0 69 0e d4 00 00
         96 25 b7 5a");
    let (lrh_bytes, payload) = bytes.split_first_chunk().unwrap();
    let lrh = Lrh::parse(lrh_bytes);
    assert_eq!((lrh.virtual_lane, lrh.version, lrh.service_level), (7, 0, 1));
    assert_eq!((lrh.next_header, lrh.reserved), (Lrh::NEXT_BTH, 0));
    assert_eq!((lrh.destination, lrh.source), (0x375c, 0x17d2));
    assert_eq!(usize::from(lrh.length) * 4, bytes.len());
    let mut emitted = [0; Lrh::LENGTH];
    lrh.emit(&mut emitted);
    assert_eq!(emitted, *lrh_bytes);
    let (inner, wire) = payload.split_last_chunk::<4>().unwrap();
    assert_eq!(icrc::of(&icrc::Outer::Local(lrh_bytes), inner), *wire);
    let other_lane = [0xf0 | lrh_bytes[0], 1, 2, 3, 4, 5, 6, 7];
    let mut other_lane_only = *lrh_bytes;
    other_lane_only[0] = other_lane[0];
    assert_eq!(icrc::of(&icrc::Outer::Local(&other_lane_only), inner), *wire, "VL is masked");
    assert_ne!(icrc::of(&icrc::Outer::Local(&other_lane), inner), *wire, "the rest is not");
    let packet = Packet::parse(payload).unwrap();
    assert_eq!(packet.headers.opcode(), Some(0x0a));
    assert_eq!((packet.payload.len(), packet.pad.len()), (14, 2));
}

#[test]
fn ipv4_options_count_as_sent() {
    let plain = hex("248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a8
         0007c00012b7002caca22460ffff000000d300cf17104630818be28935d90e9a
         95505401be885e50000078f353f3");
    let mut optioned = plain[..34].to_vec();
    optioned[14] = 0x46;
    optioned[17] = 68;
    optioned.extend([0x94, 0x04, 0x00, 0x00]);
    optioned.extend(&plain[34..]);
    let frame = Frame::parse(&optioned).unwrap();
    let first = frame.computed_icrc().unwrap();
    assert_ne!(first, [0x78, 0xf3, 0x53, 0xf3], "options are covered");
    assert!(frame.burst(44).is_none(), "a link's judge knows no options");
    let mut emitted = vec![0; optioned.len()];
    frame.emit(&mut emitted);
    assert_eq!(emitted, optioned);
    optioned[36] ^= 1;
    assert_ne!(Frame::parse(&optioned).unwrap().computed_icrc().unwrap(), first);
}

#[test]
fn ipv6_extension_headers_count_as_sent() {
    let plain = hex("248a07a8fa22248a07a8fa2286dd6e21face002c11ff20220000000000000000
         00000000102320230000000000000000000000001024c00012b7002ce7c52460
         ffff000000d300cf17104630818be28935d90e9a95505401be885e5000003e5b
         743b");
    let mut extended = plain[..54].to_vec();
    extended[19] += 8;
    extended[20] = 60;
    extended.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    extended.extend(&plain[54..]);
    let frame = Frame::parse(&extended).unwrap();
    let Network::V6(ip, extensions) = frame.network else { panic!("IPv6") };
    assert_eq!((ip.next_header, extensions.len(), frame.payload.len()), (60, 8, 36));
    let first = frame.computed_icrc().unwrap();
    assert!(frame.burst(36).is_none(), "a link's judge knows no extension headers");
    let mut emitted = vec![0; extended.len()];
    frame.emit(&mut emitted);
    assert_eq!(emitted, extended);
    extended[59] ^= 1;
    assert_ne!(Frame::parse(&extended).unwrap().computed_icrc().unwrap(), first);
    extended[20] = 44;
    assert_eq!(Frame::parse(&extended), Err(FrameError::Fragment));
    extended[20] = 6;
    assert_eq!(Frame::parse(&extended), Err(FrameError::NotUdp));
}

#[test]
fn a_zero_sum_means_a_right_header_checksum() {
    let header = hex("45010040047840004011b4d5c0a80007c0a80007");
    assert_eq!(internet_checksum(&header), 0);
    assert_eq!(internet_checksum(&[0x01]), !0x0100, "an odd byte counts as the high one");
}
