//! Nothing breaks it: cut, damaged and arbitrary frames of every link type.

use proptest::prelude::*;
use uroce::dissect::{Dissector, Issue, Summary, Verdict, explain_icrc, json, text};
use uroce::pcap::LinkType;

use super::samples;

const LINK_TYPES: [u32; 8] = [1, 12, 101, 113, 197, 247, 276, 999];

/// Everything that can be asked of a frame; panics are what is looked for. Returns the lines.
fn show(link_type: u32, length: u32, data: &[u8]) -> usize {
    let mut dissector = Dissector::with_ports(&[1234]);
    let frame = dissector.dissect(LinkType(link_type), length, data);
    let (mut out, mut count) = (Vec::new(), 0);
    for packet in frame.packets() {
        count += 1;
        json::write(&mut out, &json::Position::default(), &frame, Some(&packet));
        text::line(&frame, Some(&packet));
        text::block(&frame, Some(&packet));
        if let Some(explained) = explain_icrc(&frame, &packet) {
            text::explanation(&explained);
        }
        assert!(packet.icrc.verdict != Verdict::Ok || packet.icrc.wire == packet.icrc.computed);
        assert!(packet.payload.len() <= data.len());
    }
    json::write(&mut out, &json::Position::default(), &frame, None);
    text::line(&frame, None);
    text::block(&frame, None);
    text::frame_bytes(&frame);
    Summary::default().count(&frame);
    for line in out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let parsed: Result<serde_json::Value, _> = serde_json::from_slice(line);
        assert!(parsed.is_ok(), "{}", String::from_utf8_lossy(line));
    }
    count
}

#[test]
fn every_sample_cut_anywhere_keeps_what_is_whole() {
    for sample in samples::all() {
        for captured in &sample.frames {
            // Every length of the headers, and some of the rest.
            let lengths =
                (0..captured.frame.len()).filter(|length| *length < 200 || length % 97 == 0);
            for length in lengths {
                show(sample.link_type, captured.frame.len() as u32, &captured.frame[..length]);
                show(sample.link_type, length as u32, &captured.frame[..length]);
            }
        }
    }
}

#[test]
fn a_frame_that_only_nests_ends_with_an_issue() {
    let mut frame = vec![0; 12];
    frame.extend([0x81, 0, 0, 1].repeat(40));
    let mut dissector = Dissector::new();
    let nested = dissector.dissect(LinkType::ETHERNET, frame.len() as u32, &frame);
    assert!(nested.issues.contains(Issue::TooDeep));
    let deep = |count: usize| {
        let mut inside = super::build::roce4(&super::build::packet(4, 1, &[], &[1, 2, 3, 4]));
        for _ in 0..count {
            inside = super::build::ip4(&super::build::Ip4::outer(), 4, &inside);
        }
        super::build::eth4(&inside)
    };
    for (count, is_found) in [(8, true), (9, false)] {
        let frame = deep(count);
        let frame = dissector.dissect(LinkType::ETHERNET, frame.len() as u32, &frame);
        assert_eq!(frame.packets().next().is_some(), is_found);
        assert_eq!(frame.issues.contains(Issue::TooDeep), !is_found);
    }
}

/// A frame of 4 MiB, whose length was left to the card, holds more FPDUs than 16 bits count.
#[test]
fn no_number_of_fpdus_is_too_large() {
    let fpdu = [&[0, 14, 0xc1][..], &[0; 17]].concat();
    let count = 70_000;
    let mut segment = vec![0; 20];
    segment[12] = 0x50;
    segment.extend(b"MPA ID Req Frame\x40\x01\0\0");
    let start = super::build::eth4(&super::build::ip4(&super::build::Ip4::default(), 6, &segment));
    segment.truncate(20);
    // What follows the start frame in the stream.
    segment[7] = 20;
    segment.extend(fpdu.repeat(count));
    let data = super::build::ip4(&super::build::Ip4::default(), 6, &[]);
    let mut data = super::build::eth4(&[data, segment].concat());
    data[16..18].fill(0);
    let mut dissector = Dissector::new();
    dissector.dissect(LinkType::ETHERNET, start.len() as u32, &start);
    let frame = dissector.dissect(LinkType::ETHERNET, data.len() as u32, &data);
    let expected = uroce::dissect::Mpa::Frames { whole: count as u32, right: 0 };
    assert_eq!(frame.mpa, Some(expected));
}

/// At every fourth byte of the payload another packet could begin, and none has its ICRC.
#[test]
fn what_only_looks_like_many_packets_is_one() {
    let payload = [4, 0, 0xff, 0xff].repeat(1020);
    let mut frame =
        super::build::eth4(&super::build::roce4(&super::build::packet(4, 1, &[], &payload)));
    let mut dissector = Dissector::new();
    for verdict in [Verdict::Ok, Verdict::Bad] {
        let dissected = dissector.dissect(LinkType::ETHERNET, frame.len() as u32, &frame);
        let packets: Vec<_> = dissected.packets().collect();
        assert_eq!(packets.len(), 1);
        assert_eq!((packets[0].segment, packets[0].icrc.verdict), (None, verdict));
        frame[1000] ^= 1;
    }
}

#[test]
fn a_frame_of_no_bytes_misses_a_header_on_every_link() {
    for link_type in LINK_TYPES.into_iter().filter(|number| *number != 999) {
        let mut dissector = Dissector::new();
        for (length, issue) in [(0, Issue::MissingHeader), (60, Issue::Truncated)] {
            let frame = dissector.dissect(LinkType(link_type), length, &[]);
            let issues: Vec<_> = frame.issues.iter().collect();
            assert_eq!(issues, [issue], "link type {link_type}, {length} bytes on the wire");
        }
    }
}

#[test]
fn an_unknown_link_type_is_an_issue() {
    let mut dissector = Dissector::new();
    let frame = dissector.dissect(LinkType(999), 4, &[1, 2, 3, 4]);
    assert!(frame.issues.contains(Issue::UnsupportedLinkType));
}

#[test]
fn a_bit_flipped_anywhere_covered_makes_the_icrc_wrong() {
    let frame =
        super::build::eth4(&super::build::roce4(&super::build::packet(4, 1, &[], &[9; 40])));
    let verdict = |frame: &[u8]| {
        let mut dissector = Dissector::new();
        let dissected = dissector.dissect(LinkType::ETHERNET, frame.len() as u32, frame);
        dissected.packets().next().map(|packet| packet.icrc.verdict)
    };
    assert_eq!(verdict(&frame), Some(Verdict::Ok));
    for bit in 0..frame.len() * 8 {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // Ethernet addresses; TOS, TTL and checksums; BTH byte 4.
        let masked = [0..12, 15..16, 22..23, 24..26, 40..42, 46..47];
        let found = verdict(&damaged);
        if masked.iter().any(|range| range.contains(&(bit / 8))) {
            assert_eq!(found, Some(Verdict::Ok), "byte {}", bit / 8);
        } else {
            assert_ne!(found, Some(Verdict::Ok), "byte {}", bit / 8);
        }
    }
}

proptest! {
    #[test]
    fn damaged_samples_never_break_it(
        which in any::<proptest::sample::Index>(),
        frame in any::<proptest::sample::Index>(),
        hits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..5),
        link_type in proptest::sample::select(LINK_TYPES.to_vec()),
        keep in any::<bool>(),
        length in 0u32..3000,
    ) {
        let samples = samples::all();
        let sample = &samples[which.index(samples.len())];
        let mut bytes = sample.frames[frame.index(sample.frames.len())].frame.clone();
        for (at, value) in hits {
            let at = at.index(bytes.len().min(120));
            bytes[at] = value;
        }
        let link_type = if keep { sample.link_type } else { link_type };
        let count = show(link_type, length.max(bytes.len() as u32), &bytes);
        prop_assert!(count <= 300);
    }

    #[test]
    fn any_bytes_never_break_it(
        bytes in proptest::collection::vec(prop_oneof![2 => any::<u8>(), 1 => 0u8..9, 1 => Just(0x45)], 0..200),
        link_type in proptest::sample::select(LINK_TYPES.to_vec()),
        more in 0u32..100,
    ) {
        show(link_type, bytes.len() as u32 + more, &bytes);
    }
}
