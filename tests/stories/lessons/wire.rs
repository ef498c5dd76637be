//! Lessons about bytes on the wire.

use std::collections::BTreeSet;
use std::net::IpAddr;

use uroce::engine::Counter;
use uroce::queue::CompletionStatus::Success;
use uroce::queue::QueuePairState::Sqd;
use uroce::queue::{AddressVector, QueuePairAttributes};
use uroce::wire::{Reth, Rkey};

use crate::harness::{
    Event, Frame, SERVED, SOURCE, Sent, Setup, Story, ack, compare_swap, fetch_add, ours, peer,
    read_request, send_only, story, theirs, write_only,
};

const MTU: usize = 1024;

/// CRC-32 of Ethernet, bit by bit.
fn crc32(bytes: impl IntoIterator<Item = u8>) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// The ICRC of a sent packet from the rule alone: masked LRH, IPv4 and UDP header with everything
/// that routers change as ones, then the packet with BTH byte 4 as ones, pad included.
fn icrc_by_the_rule(sent: &Sent) -> u32 {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (sent.flow.source, sent.flow.destination)
    else {
        panic!("an IPv4 story");
    };
    let udp = sent.bytes.len() as u16 + 8;
    let mut all = vec![0xff; 8];
    all.extend([0x45, 0xff]);
    all.extend((udp + 20).to_be_bytes());
    all.extend(sent.identification.to_be_bytes());
    all.extend([0x40, 0, 0xff, 17, 0xff, 0xff]);
    all.extend(source.octets());
    all.extend(destination.octets());
    all.extend(sent.flow.source_port.to_be_bytes());
    all.extend(4791_u16.to_be_bytes());
    all.extend(udp.to_be_bytes());
    all.extend([0xff, 0xff]);
    let packet = &sent.bytes[..sent.bytes.len() - 4];
    all.extend(packet.iter().enumerate().map(|(at, byte)| if at == 4 { 0xff } else { *byte }));
    crc32(all)
}

/// WRITEs of 0 to 9 bytes, as sent.
fn small_writes(s: &mut Story) -> Vec<Sent> {
    (0..10)
        .map(|length| {
            s.post_write(length, length as usize);
            let sent = s.next_sent().expect("a WRITE");
            s.deliver(ack(length as i32, length as u32 + 1));
            s.expect_sent(length, Success);
            sent
        })
        .collect()
}

#[test]
fn lesson_01_the_icrc_covers_the_pad() {
    story(|s| {
        for (length, sent) in small_writes(s).iter().enumerate() {
            assert_eq!(sent.bytes.len(), 12 + 16 + length.div_ceil(4) * 4 + 4);
            let icrc = u32::from_le_bytes(*sent.bytes.last_chunk().unwrap());
            assert_eq!(icrc, icrc_by_the_rule(sent), "{length} bytes");
        }
        // On receive too: with a pad byte changed and the old ICRC nothing is taken.
        let frame = write_only(0, s.reth(SERVED, 1), &[5]).asking();
        let mut bytes = s.encode(frame);
        let flow = s.flow();
        bytes.extend(uroce::wire::icrc::of_datagram(&flow, 0x4242, 0x4000, &bytes));
        bytes[12 + 16 + 3] = 1;
        s.deliver_raw(flow, bytes);
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropBadIcrc), 1);
    });
}

#[test]
fn lesson_02_the_icrc_is_little_endian_on_the_wire() {
    story(|s| {
        for sent in small_writes(s) {
            let icrc = icrc_by_the_rule(&sent);
            let wire = &sent.bytes[sent.bytes.len() - 4..];
            assert_eq!(wire[0], icrc as u8);
            assert_eq!(wire[3], (icrc >> 24) as u8);
        }
    });
}

#[test]
fn lesson_03_the_icrc_is_made_when_every_covered_field_is_final() {
    // The total length is that of the packet itself, whatever lies beside it in its burst.
    story(|s| {
        s.post_write(1, 2 * MTU + 5);
        for _ in 0..3 {
            let sent = s.next_sent().expect("a packet of the WRITE");
            let icrc = u32::from_le_bytes(*sent.bytes.last_chunk().unwrap());
            assert_eq!(icrc, icrc_by_the_rule(&sent));
        }
        s.deliver(ack(2, 1));
        s.expect_sent(1, Success);
    });
}

#[test]
fn lesson_04_lengths_are_checked_from_the_bth_on() {
    story(|s| {
        // Eight bytes (a UDP header) too few for the headers that the opcode asks for.
        let whole = s.encode(write_only(0, s.reth(SERVED, 8), &theirs(0, 8)).asking());
        let flow = s.flow();
        for length in [whole.len() - 8 - 4, whole.len() - 8 - 8, 12] {
            s.deliver_bytes(flow, whole[..length].to_vec());
            s.expect_nothing();
        }
        assert_eq!(s.count(Counter::DropMalformed), 3);
        assert_eq!(s.bytes(SERVED, 8), ours(SERVED, 8));
    });
}

#[test]
fn lesson_05_a_forged_pad_count_cannot_make_a_length_negative() {
    story(|s| {
        let flow = s.flow();
        for pad in 1..=3 {
            let mut bytes = s.encode(send_only(0, &[]));
            bytes[1] |= pad << 4;
            s.deliver_bytes(flow, bytes);
            s.expect_nothing();
        }
        assert_eq!(s.count(Counter::DropMalformed), 3);
    });
}

#[test]
fn lesson_06_an_unknown_opcode_is_rejected_before_any_header_arithmetic() {
    story(|s| {
        let flow = s.flow();
        for length in [12, 16, 20, 1036] {
            let mut bytes = vec![0xff; length];
            s.deliver_bytes(flow, bytes.clone());
            bytes[0] = 0xff;
            bytes[5..8].copy_from_slice(&s.number().value().to_be_bytes()[1..]);
            s.deliver_bytes(flow, bytes);
        }
        s.expect_nothing();
        assert_eq!(s.count(Counter::DropUnexpectedOpcode), 8);
    });
}

#[test]
fn lesson_11_reserved_bits_are_sent_as_zero_and_nothing_else_is_touched() {
    story(|s| {
        let sent = small_writes(s).swap_remove(4);
        let psn = uroce::wire::Psn::new(s.setup.send_start).add(4).value();
        let mut expected = vec![0x0a, 0x40, 0xff, 0xff, 0, 0, 0x0b, 0, 0x80];
        expected.extend(&psn.to_be_bytes()[1..]);
        expected.extend(peer(0).address.to_be_bytes());
        expected.extend(peer(0).key.value().to_be_bytes());
        expected.extend(4_u32.to_be_bytes());
        expected.extend(ours(SOURCE, 4));
        assert_eq!(sent.bytes[..sent.bytes.len() - 4], expected);
    });
}

#[test]
fn lesson_12_a_failed_read_or_atomic_gets_a_plain_acknowledge_with_its_nak() {
    let cases: [fn(Reth) -> Frame; 3] = [
        |reth| read_request(0, reth),
        |reth| fetch_add(0, reth, 1),
        |reth| compare_swap(0, reth, 1, 2),
    ];
    for case in cases {
        story(|s| {
            let reth = Reth { key: Rkey::new(1), ..s.reth(SERVED, 8) };
            s.deliver(case(reth));
            let sent = s.next_sent().expect("the NAK");
            assert_eq!(sent.bytes.len(), 12 + 4 + 4, "BTH, AETH, ICRC");
            assert_eq!((sent.bytes[0], sent.bytes[12]), (0x11, 0x62));
            s.expect_event(Event::AccessError(0));
        });
    }
}

#[test]
fn lesson_37_the_ip_version_is_that_of_the_gid() {
    for ipv6 in [false, true] {
        let setup = Setup { ipv6, ..Setup::default() };
        setup.tell(|s| {
            s.post_write(1, 8);
            let flow = s.next_sent().expect("the WRITE").flow;
            assert_eq!((flow.source.is_ipv6(), flow.destination.is_ipv6()), (ipv6, ipv6));
            s.deliver(ack(0, 1));
            s.expect_sent(1, Success);
            s.modify(&QueuePairAttributes::to_state(Sqd)).unwrap();
            let other = Setup { ipv6: !ipv6, ..Setup::default() }.peer_address(0);
            let attributes = QueuePairAttributes {
                address: Some(AddressVector::new(0, other)),
                ..QueuePairAttributes::to_state(Sqd)
            };
            let refused = s.modify(&attributes).unwrap_err().to_string();
            assert!(refused.contains("choose a GID of the peer's family"), "{refused}");
        });
    }
}

#[test]
fn lesson_40_the_source_port_is_constant_for_a_queue_pair_and_from_the_upper_quarter() {
    let setup = Setup { pairs: 16, ..Setup::default() };
    setup.tell(|s| {
        let mut ports = BTreeSet::new();
        for pair in 0..16 {
            s.pair = pair;
            let mut own = BTreeSet::new();
            for id in 0..3 {
                s.post_write(id, 8);
                own.insert(s.next_sent().expect("a WRITE").flow.source_port);
                s.deliver(ack(id as i32, id as u32 + 1));
                s.expect_sent(id, Success);
            }
            s.deliver(write_only(0, s.reth(SERVED, 8), &theirs(0, 8)).asking());
            own.insert(s.next_sent().expect("the ACK").flow.source_port);
            assert_eq!(own.len(), 1, "{own:?}");
            ports.extend(own);
        }
        assert!(ports.iter().all(|port| *port >= 0xc000));
        assert!(ports.len() >= 12, "flows are spread: {ports:?}");
    });
}
