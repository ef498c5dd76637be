//! The tables of the wire layer against lists that were written down apart from the code.

use uroce::wire::{
    Aeth, Bth, Credits, ExtendedHeader, Msn, NakCode, Opcode, Packet, ParseError, RnrTimer,
    Syndrome, Transport,
};

/// One line for a byte: name, transport, headers, payload and kind as the code has them.
fn described(byte: u8) -> String {
    let Some(opcode) = Opcode::from_byte(byte) else {
        let kind = if byte >= 0xc0 { "manufacturer" } else { "reserved" };
        return format!("{byte:02x},UNKNOWN,-,-,-,{kind}");
    };
    let transport = match opcode.transport() {
        Some(Transport::Rc) => "RC",
        Some(Transport::Uc) => "UC",
        Some(Transport::Rd) => "RD",
        Some(Transport::Ud) => "UD",
        Some(Transport::Xrc) => "XRC",
        None => "-",
    };
    let headers: Vec<&str> = opcode.extended_headers().map(header_name).collect();
    let headers = if headers.is_empty() { "-".to_owned() } else { headers.join(" ") };
    let payload = if opcode.has_payload() { "yes" } else { "no" };
    let kind = match (opcode.is_request(), opcode.is_response()) {
        (true, false) => "request",
        (false, true) => "response",
        (false, false) => "notification",
        (true, true) => "both",
    };
    format!("{byte:02x},{},{transport},{headers},{payload},{kind}", opcode.name())
}

fn header_name(header: ExtendedHeader) -> &'static str {
    match header {
        ExtendedHeader::Rdeth => "RDETH",
        ExtendedHeader::Deth => "DETH",
        ExtendedHeader::Xrceth => "XRCETH",
        ExtendedHeader::Reth => "RETH",
        ExtendedHeader::AtomicEth => "AtomicETH",
        ExtendedHeader::Aeth => "AETH",
        ExtendedHeader::AtomicAckEth => "AtomicAckETH",
        ExtendedHeader::ImmDt => "ImmDt",
        ExtendedHeader::Ieth => "IETH",
        ExtendedHeader::Feth => "FETH",
        ExtendedHeader::Reserved => "RESERVED16",
    }
}

/// Bytes of a header by its name in the checked table.
fn header_length(name: &str) -> usize {
    match name {
        "-" => 0,
        "RDETH" | "XRCETH" | "AETH" | "ImmDt" | "IETH" | "FETH" => 4,
        "DETH" | "AtomicAckETH" => 8,
        "RETH" | "RESERVED16" => 16,
        "AtomicETH" => 28,
        other => panic!("no length for {other}"),
    }
}

#[test]
fn all_256_opcodes_are_as_the_checked_table_says() {
    let table = include_str!("data/opcodes.csv");
    let mut bytes = 0u8..=255;
    for line in table.lines().skip(1) {
        assert_eq!(described(bytes.next().expect("no more than 256 rows")), line);
    }
    assert_eq!(bytes.next(), None, "the table has a row for each byte");
}

#[test]
fn an_opcode_comes_back_as_its_byte() {
    for byte in 0..=255 {
        if let Some(opcode) = Opcode::from_byte(byte) {
            assert_eq!(opcode.to_byte(), byte);
        }
    }
}

#[test]
fn each_opcode_needs_just_the_bytes_of_its_headers() {
    for line in include_str!("data/opcodes.csv").lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let byte = u8::from_str_radix(fields[0], 16).expect("a hexadecimal byte");
        let mut packet = vec![0; 12 + 64];
        packet[0] = byte;
        if fields[1] == "UNKNOWN" {
            assert_eq!(Packet::parse(&packet), Err(ParseError::UnknownOpcode), "{line}");
            continue;
        }
        let extended: usize = fields[3].split(' ').map(header_length).sum();
        assert_eq!(Opcode::from_byte(byte).map(Opcode::extended_length), Some(extended));
        let exact = Packet::parse(&packet[..Bth::LENGTH + extended + 4]).expect(line);
        assert_eq!(exact.headers.length(), Bth::LENGTH + extended, "{line}");
        assert_eq!(exact.headers.opcode(), Some(byte), "{line}");
        assert!(exact.payload.is_empty());
        let short = Packet::parse(&packet[..Bth::LENGTH + extended + 3]);
        let lacking = if extended == 0 { ParseError::TooShort } else { ParseError::MissingHeader };
        assert_eq!(short, Err(lacking), "{line}");
        let longer = Packet::parse(&packet[..Bth::LENGTH + extended + 4 + 8]);
        match fields[4] {
            "yes" => assert_eq!(longer.expect(line).payload.len(), 8),
            _ => assert_eq!(longer, Err(ParseError::UnexpectedPayload), "{line}"),
        }
    }
}

#[test]
fn lengths_count_from_the_bth_and_forged_pads_are_caught() {
    let mut packet = [0; 12 + 8 + 4];
    packet[0] = 0x04;
    assert_eq!(Packet::parse(&packet[..15]), Err(ParseError::TooShort));
    assert_eq!(Packet::parse(&packet[..17]), Err(ParseError::BadLength));
    packet[1] = 0x30;
    assert_eq!(Packet::parse(&packet[..16]), Err(ParseError::BadPad));
    let padded = Packet::parse(&packet[..20]).expect("one byte and three of pad");
    assert_eq!((padded.payload.len(), padded.pad.len()), (1, 3));
    packet[1] = 0x01;
    assert_eq!(Packet::parse(&packet), Err(ParseError::UnsupportedVersion));
    packet[1] = 0x40;
    packet[4] = 0x10;
    packet[8] = 0x7f;
    let reserved = Packet::parse(&packet).expect("reserved bits never matter");
    assert_eq!((reserved.headers.reserved, reserved.headers.reserved_after_ack), (0x10, 0x7f));
}

#[test]
fn errors_index_their_own_list() {
    for (position, error) in ParseError::ALL.into_iter().enumerate() {
        assert_eq!(error.index(), position);
    }
}

#[test]
fn credit_codes_stand_for_the_specified_counts() {
    let counts = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
        2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
    ];
    for (code, count) in counts.into_iter().enumerate() {
        assert_eq!(Credits::new(code as u8).count(), Some(count), "code {code}");
        assert_eq!(Credits::from_count(count).code(), code as u8, "count {count}");
    }
    assert_eq!(Credits::UNLIMITED.code(), 31);
    assert_eq!(Credits::UNLIMITED.count(), None);
    assert_eq!(Credits::from_count(5).count(), Some(4), "never promise more than there is");
    assert_eq!(Credits::from_count(32767).count(), Some(24576));
    assert_eq!(Credits::from_count(u32::MAX).count(), Some(32768));
}

#[test]
fn rnr_codes_stand_for_the_specified_times() {
    let milliseconds = [
        655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28,
        1.92, 2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88,
        163.84, 245.76, 327.68, 491.52,
    ];
    for (code, time) in milliseconds.into_iter().enumerate() {
        let nanos = (time * 1e6_f64).round() as u64;
        assert_eq!(RnrTimer::new(code as u8).nanos(), nanos, "code {code}");
        assert_eq!(RnrTimer::at_least(nanos).code(), code as u8, "{time} ms");
    }
    assert_eq!(RnrTimer::at_least(0).code(), 1, "the shortest time is code 1");
    assert_eq!(RnrTimer::at_least(10_001).code(), 2, "never wake too early");
    assert_eq!(RnrTimer::at_least(500_000_000).code(), 0, "code 0 is the longest");
    assert_eq!(RnrTimer::at_least(u64::MAX).code(), 0);
}

#[test]
fn syndromes_are_lossless_and_reserved_bits_can_be_ignored() {
    for byte in 0..=255 {
        assert_eq!(Syndrome::from_byte(byte).to_byte(), byte);
        assert_eq!(Syndrome::from_byte(byte).meaning(), Syndrome::from_byte(byte & 0x7f));
        let aeth = Aeth::parse(&[byte, 0x12, 0x34, 0x56]);
        assert_eq!(aeth.msn, Msn::new(0x0012_3456));
    }
    assert_eq!(Syndrome::from_byte(0x1f), Syndrome::Ack(Credits::UNLIMITED));
    assert_eq!(Syndrome::from_byte(0x2c), Syndrome::RnrNak(RnrTimer::new(12)));
    assert_eq!(Syndrome::from_byte(0x5f), Syndrome::Reserved(0x5f));
    let naks = [
        NakCode::PsnSequenceError,
        NakCode::InvalidRequest,
        NakCode::RemoteAccessError,
        NakCode::RemoteOperationalError,
        NakCode::InvalidRdRequest,
        NakCode::Reserved(5),
    ];
    for (byte, nak) in (0x60..).zip(naks) {
        assert_eq!(Syndrome::from_byte(byte), Syndrome::Nak(nak));
    }
    assert_eq!(Syndrome::from_byte(0xe1), Syndrome::Reserved(0xe1));
    assert_eq!(Syndrome::from_byte(0xe1).meaning(), Syndrome::Nak(NakCode::InvalidRequest));
}
