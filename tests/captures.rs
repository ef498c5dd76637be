//! Captures of the Linux kernel's software RoCE: every frame is read, judged and written back,
//! and every file holds what an independent program found in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use uroce::pcap::Reader;
use uroce::wire::{
    Flow, Frame, ICRC_LENGTH, Identification, Mad, NakCode, Opcode, Packet, Qpn, ReceivedBurst,
    Syndrome, icrc,
};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("pcap-samples/rxe")
}

/// The files with their frames.
fn captures() -> Vec<(String, Vec<Vec<u8>>)> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder())
        .expect("the samples are in the repository")
        .map(|entry| entry.expect("readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .collect();
    files.sort_by_key(|path| path.file_stem().map(ToOwned::to_owned));
    let stem = |path: &PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    files.iter().map(|path| (stem(path), frames(path))).collect()
}

fn frames(path: &PathBuf) -> Vec<Vec<u8>> {
    let mut reader = Reader::new(fs::File::open(path).expect("readable file")).expect("a capture");
    let mut frames = Vec::new();
    while let Some(record) = reader.next() {
        let record = record.expect("an undamaged file");
        assert_eq!(record.original_length as usize, record.data.len(), "frames are whole");
        frames.push(record.data.to_vec());
    }
    frames
}

/// The frame if it is RoCEv2.
fn roce(frame: &[u8]) -> Option<(Frame<'_>, Flow)> {
    let frame = Frame::parse(frame).ok()?;
    let flow = frame.flow()?;
    Some((frame, flow))
}

#[test]
fn every_frame_is_judged_as_it_should_be() {
    let (mut all, mut roce_frames, mut right) = (0, 0, 0);
    let mut wrong: BTreeMap<String, usize> = BTreeMap::new();
    let captures = captures();
    assert_eq!(captures.len(), 74);
    for (name, frames) in &captures {
        for bytes in frames {
            all += 1;
            let Some((frame, _)) = roce(bytes) else { continue };
            roce_frames += 1;
            let burst = frame.burst(frame.payload.len()).expect("neither options nor extensions");
            let verdict = icrc::judge(&burst, 0, frame.payload, true);
            let wire = frame.payload.last_chunk::<ICRC_LENGTH>().copied();
            assert_eq!(verdict == icrc::Verdict::Right, frame.computed_icrc() == wire);
            match verdict {
                icrc::Verdict::Right => right += 1,
                _ => *wrong.entry(name.clone()).or_default() += 1,
            }
        }
    }
    assert_eq!((all, roce_frames, right), (1235, 1228, 1218));
    assert_eq!(wrong, BTreeMap::from([("corrupt".to_owned(), 10)]));
}

#[test]
fn every_frame_comes_back_byte_for_byte() {
    for (name, frames) in captures() {
        for (number, bytes) in frames.iter().enumerate() {
            let Some((frame, _)) = roce(bytes) else { continue };
            let mut emitted = vec![0; frame.length()];
            frame.emit(&mut emitted);
            assert_eq!(&emitted, bytes, "{name}, frame {}", number + 1);
            let packet = Packet::parse(frame.payload).expect("a packet, damaged or not");
            let mut emitted = vec![0; packet.length()];
            packet.emit(&mut emitted);
            let (inner, icrc) = frame.payload.split_last_chunk::<ICRC_LENGTH>().unwrap();
            assert_eq!(emitted, inner, "{name}, frame {}", number + 1);
            let payload = [&emitted[..], icrc].concat();
            let mut whole = vec![0; bytes.len()];
            Frame { payload: &payload, ..frame }.emit(&mut whole);
            assert_eq!(&whole, bytes, "{name}, frame {}", number + 1);
        }
    }
}

/// A socket does not show the identification; rxe's is found again, and is the one sent.
#[test]
fn unseen_identifications_are_recovered() {
    let (mut recovered, mut exact, mut wrong) = (0, 0, 0);
    for (name, frames) in captures() {
        for bytes in &frames {
            let Some((frame, _)) = roce(bytes) else { continue };
            let seen = frame.burst(frame.payload.len()).expect("neither options nor extensions");
            let unseen = ReceivedBurst { identification: Identification::Unseen, ..seen };
            match icrc::judge(&unseen, 0, frame.payload, false) {
                icrc::Verdict::Recovered(identification) => {
                    let Identification::Seen { first, flags } = seen.identification else {
                        panic!("{name}: IPv6 has no identification");
                    };
                    assert_eq!((identification, flags), (first, icrc::DONT_FRAGMENT));
                    recovered += 1;
                }
                icrc::Verdict::Right => {
                    assert_eq!(seen.identification, Identification::Unseen, "{name}");
                    exact += 1;
                }
                icrc::Verdict::Wrong => wrong += 1,
            }
        }
    }
    assert_eq!((recovered + exact, wrong), (1218, 10));
    assert!(recovered > 1000 && exact > 40, "{recovered} recovered, {exact} exact");
}

/// What the independent listing calls a packet.
fn listed_name(packet: &Packet<'_>) -> String {
    let opcode = packet.headers.opcode().and_then(Opcode::from_byte).expect("a known opcode");
    if packet.headers.destination == Qpn::GENERAL_SERVICES {
        return format!("CM_{}", cm_name(packet));
    }
    if let uroce::wire::Message::Acknowledge(aeth) = packet.headers.message {
        return match aeth.syndrome {
            Syndrome::Ack(_) => "ACK".to_owned(),
            Syndrome::RnrNak(_) => "RNR_NAK".to_owned(),
            Syndrome::Nak(NakCode::PsnSequenceError) => "NAK_PSN_SEQ".to_owned(),
            Syndrome::Nak(NakCode::InvalidRequest) => "NAK_INVALID_REQ".to_owned(),
            Syndrome::Nak(NakCode::RemoteAccessError) => "NAK_ACCESS".to_owned(),
            Syndrome::Nak(NakCode::RemoteOperationalError) => "NAK_OPERATIONAL".to_owned(),
            other => panic!("{other:?} in no listing"),
        };
    }
    let short = [
        ("RC_", ""),
        ("RDMA_", ""),
        ("_WITH_IMMEDIATE", "_IMM"),
        ("_WITH_INVALIDATE", "_INV"),
        ("READ_REQUEST", "READ_REQ"),
        ("READ_RESPONSE", "READ_RESP"),
        ("ACKNOWLEDGE", "ACK"),
        ("COMPARE_SWAP", "CMP_SWAP"),
    ];
    short
        .into_iter()
        .fold(opcode.name().to_owned(), |name, (long, short)| name.replace(long, short))
}

fn cm_name(packet: &Packet<'_>) -> &'static str {
    let mad = Mad::parse(packet.payload.first_chunk().expect("a management datagram"));
    assert_eq!((mad.base_version, mad.class), (1, Mad::CONNECTION_MANAGEMENT));
    assert_eq!(packet.payload.len(), Mad::DATAGRAM_LENGTH);
    match mad.attribute {
        0x10 => "REQ",
        0x12 => "REJ",
        0x13 => "REP",
        0x14 => "RTU",
        0x15 => "DREQ",
        0x16 => "DREP",
        0x17 => "SIDR_REQ",
        0x18 => "SIDR_REP",
        other => panic!("attribute {other:#x} in no listing"),
    }
}

/// The listing's cell for one side: each name with its count, in order of first appearance.
fn listing(names: &[String]) -> String {
    let mut counts: Vec<(&String, usize)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let cells: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    cells.join(" + ")
}

#[test]
fn every_file_holds_what_the_independent_listing_says() {
    let mut rows = include_str!("data/rxe-captures.csv").lines().skip(1);
    for (file, frames) in captures() {
        let (mut from_a, mut from_b) = (Vec::new(), Vec::new());
        for bytes in &frames {
            let Some((frame, flow)) = roce(bytes) else { continue };
            let packet = Packet::parse(frame.payload).expect("a packet, damaged or not");
            let is_a = match flow.source {
                std::net::IpAddr::V4(address) => address.octets()[3] == 1,
                std::net::IpAddr::V6(address) => address.octets()[15] == 1,
            };
            if is_a { &mut from_a } else { &mut from_b }.push(listed_name(&packet));
        }
        let row = format!("{file},{},{},{}", frames.len(), listing(&from_a), listing(&from_b));
        assert_eq!(Some(row.as_str()), rows.next());
    }
    assert_eq!(rows.next(), None);
}
