//! Packets and whole frames: what can be read is written back byte for byte, and every ICRC is
//! judged without a panic.

use std::net::IpAddr;

use uroce::wire::icrc::{self, Verdict};
use uroce::wire::{
    Flow, Frame, ICRC_LENGTH, Identification, Ipv4Header, Ipv6Header, MAX_HEADER, NetworkArea,
    Packet, ReceivedBurst,
};

use super::input::Input;

/// What IPv4 has room for; nobody sends more, and nothing longer is judged right.
const MAX_UDP_PAYLOAD: usize = 65_507;

/// The first byte says how the others are read.
pub fn frame(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(4) {
        0 => whole(input.rest()),
        1 => datagram(&mut input),
        2 => area(input.rest()),
        _ => packet(input.rest()),
    }
}

/// An Ethernet frame, and the packets in it.
fn whole(bytes: &[u8]) {
    let Ok(frame) = Frame::parse(bytes) else { return };
    assert_eq!(frame.length(), bytes.len());
    let mut emitted = vec![0xee; bytes.len()];
    assert_eq!(frame.emit(&mut emitted), bytes.len());
    assert_eq!(emitted, bytes);
    let computed = frame.computed_icrc();
    assert_eq!(computed.is_some(), frame.payload.len() >= ICRC_LENGTH);
    packet(frame.payload);
    for segment in [1, 16, 64, 1044, frame.payload.len()] {
        let Some(burst) = frame.burst(segment) else { continue };
        judge(&burst);
    }
    if let (Some(computed), Some(burst)) = (computed, frame.burst(frame.payload.len())) {
        agree(&burst, computed);
    }
}

/// The two ways to an ICRC say the same of a frame that is one packet: once it is put right, it is.
fn agree(burst: &ReceivedBurst<'_>, computed: [u8; ICRC_LENGTH]) {
    let length = burst.bytes.len();
    if length > MAX_UDP_PAYLOAD {
        return;
    }
    let mut mended = burst.bytes.to_vec();
    mended[length - ICRC_LENGTH..].copy_from_slice(&computed);
    assert_eq!(icrc::judge(burst, 0, &mended, true), Verdict::Right);
    mended[length - 1] ^= 1;
    assert_eq!(icrc::judge(burst, 0, &mended, true), Verdict::Wrong);
}

fn judge(burst: &ReceivedBurst<'_>) {
    let mut bytes = 0;
    for (index, segment) in burst.segments().enumerate() {
        bytes += segment.len();
        let strict = icrc::judge(burst, index, segment, true);
        let tolerant = icrc::judge(burst, index, segment, false);
        let is_right = |verdict| verdict == Verdict::Right;
        assert_eq!(is_right(strict), is_right(tolerant));
        assert!(!matches!(strict, Verdict::Recovered(_)), "the strict recover nothing");
    }
    assert_eq!(bytes, burst.bytes.len(), "every byte is in one segment");
}

/// A burst as a socket gives it, with any addresses.
fn datagram(input: &mut Input<'_>) {
    let address = |input: &mut Input<'_>| -> IpAddr {
        match input.flag() {
            true => [input.u64(), input.u64()].concat_bits().into(),
            false => IpAddr::from(input.u32().to_be_bytes()),
        }
    };
    let source = address(input);
    let destination = address(input);
    let flow = Flow { source, destination, source_port: input.u16() };
    let identification = match input.flag() {
        true => Identification::Seen { first: input.u16(), flags: input.u16() },
        false => Identification::Unseen,
    };
    let traffic_class = input.byte();
    let segment = usize::from(input.u16()).max(1);
    let bytes = input.rest();
    if bytes.is_empty() {
        return;
    }
    judge(&ReceivedBurst { flow, traffic_class, identification, segment, bytes });
    let area = NetworkArea::new(&flow, traffic_class);
    let read = NetworkArea::parse(&area.emit(bytes.len().min(MAX_UDP_PAYLOAD)));
    assert_eq!(read, (source.is_ipv4() == destination.is_ipv4()).then_some(area));
}

trait ConcatBits {
    fn concat_bits(self) -> [u8; 16];
}

impl ConcatBits for [u64; 2] {
    fn concat_bits(self) -> [u8; 16] {
        (u128::from(self[0]) << 64 | u128::from(self[1])).to_be_bytes()
    }
}

/// The headers that a datagram's receiver finds in its memory, and IP headers by themselves.
fn area(bytes: &[u8]) {
    if let Some(area) = bytes.first_chunk()
        && let Some(read) = NetworkArea::parse(area)
    {
        assert_eq!(NetworkArea::parse(&read.emit(100)), Some(read));
    }
    if let Some((header, rest)) = Ipv4Header::parse(bytes) {
        let mut emitted = [0; Ipv4Header::MAX_LENGTH];
        let length = header.emit(&mut emitted);
        assert_eq!([&emitted[..length], rest].concat(), bytes);
    }
    if let Some(chunk) = bytes.first_chunk()
        && let Some(header) = Ipv6Header::parse(chunk)
    {
        let mut emitted = [0; Ipv6Header::LENGTH];
        header.emit(&mut emitted);
        assert_eq!(&emitted, chunk);
    }
}

/// BTH to ICRC.
fn packet(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    assert_eq!(packet.length() + ICRC_LENGTH, bytes.len());
    assert!(packet.headers.length() <= MAX_HEADER);
    let mut emitted = vec![0xee; packet.length()];
    assert_eq!(packet.emit(&mut emitted), emitted.len());
    assert_eq!(emitted, bytes[..emitted.len()]);
}
