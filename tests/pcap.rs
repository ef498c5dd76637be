//! Capture files of every shape that the formats allow, whole, cut and damaged.

use std::io::{self, Read};

use proptest::prelude::*;
use uroce::pcap::{Format, LinkType, ReadError, Reader, Writer};

/// Numbers in either byte order.
#[derive(Clone, Copy, Debug)]
struct Order {
    big: bool,
}

const ORDERS: [Order; 2] = [Order { big: false }, Order { big: true }];

impl Order {
    fn u16(self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn i64(self, value: i64) -> [u8; 8] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn block(self, kind: u32, body: &[&[u8]]) -> Vec<u8> {
        let mut body = body.concat();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = self.u32(body.len() as u32 + 12);
        [&self.u32(kind)[..], &length, &body, &length].concat()
    }

    fn section(self) -> Vec<u8> {
        let version = [self.u16(1), self.u16(0)].concat();
        self.block(0x0a0d_0d0a, &[&self.u32(0x1a2b_3c4d), &version, &self.i64(-1)])
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut value = value.to_vec();
        let length = value.len() as u16;
        value.resize(value.len().next_multiple_of(4), 0);
        [&self.u16(code)[..], &self.u16(length), &value].concat()
    }

    fn interface(self, link_type: u16, snap_length: u32, options: &[Vec<u8>]) -> Vec<u8> {
        let fixed = [&self.u16(link_type)[..], &self.u16(0), &self.u32(snap_length)].concat();
        self.block(1, &[&fixed, &options.concat()])
    }

    fn packet(self, interface: u32, ticks: u64, original: u32, data: &[u8]) -> Vec<u8> {
        let numbers = [interface, (ticks >> 32) as u32, ticks as u32, data.len() as u32, original];
        let fixed = numbers.map(|number| self.u32(number)).concat();
        self.block(6, &[&fixed, data])
    }

    fn classic(self, magic: u32, link_type: u32) -> Vec<u8> {
        let version = [self.u16(2), self.u16(4)].concat();
        let rest = [0, 0, 65535, link_type].map(|number| self.u32(number)).concat();
        [&self.u32(magic)[..], &version, &rest].concat()
    }

    fn classic_record(self, seconds: u32, fraction: u32, original: u32, data: &[u8]) -> Vec<u8> {
        let numbers = [seconds, fraction, data.len() as u32, original];
        [&numbers.map(|number| self.u32(number)).concat()[..], data].concat()
    }
}

/// A record that outlives the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    time: Option<String>,
    interface: usize,
    link_type: u32,
    original_length: u32,
    data: Vec<u8>,
}

fn kept(time: &str, interface: usize, link_type: u32, original_length: u32, data: &[u8]) -> Kept {
    let data = data.to_vec();
    Kept { time: Some(time.to_owned()), interface, link_type, original_length, data }
}

/// All records of a file, and the error that ended it.
fn read_all(file: impl Read) -> (Vec<Kept>, Option<ReadError>) {
    let mut records = Vec::new();
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (records, Some(error)),
    };
    loop {
        match reader.next() {
            None => return (records, None),
            Some(Err(error)) => {
                assert!(reader.next().is_none(), "nothing follows an error");
                return (records, Some(error));
            }
            Some(Ok(record)) => records.push(Kept {
                time: record.time.map(|time| time.to_string()),
                interface: record.interface,
                link_type: record.link_type.0,
                original_length: record.original_length,
                data: record.data.to_vec(),
            }),
        }
    }
}

fn read_whole(file: &[u8]) -> Vec<Kept> {
    let (records, error) = read_all(file);
    assert!(error.is_none(), "{error:?}");
    records
}

/// A reader that gives one byte at a time and is interrupted now and then, like a slow pipe.
struct Trickle<'a>(&'a [u8], bool);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = self.0.len().min(buffer.len()).min(1);
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

#[test]
fn classic_files_of_both_orders_and_resolutions() {
    for order in ORDERS {
        for (magic, shown) in
            [(0xa1b2_c3d4, "1700000000.000123"), (0xa1b2_3c4d, "1700000000.000000123")]
        {
            let mut file = order.classic(magic, 1);
            file.extend(order.classic_record(1_700_000_000, 123, 4, b"four"));
            file.extend(order.classic_record(1_700_000_000, 123, 900, b"cut"));
            let expected = [kept(shown, 0, 1, 4, b"four"), kept(shown, 0, 1, 900, b"cut")];
            assert_eq!(read_whole(&file), expected, "{order:?}");
        }
    }
}

#[test]
fn classic_link_types_are_read_without_the_check_sequence_bits() {
    for order in ORDERS {
        let file = order.classic(0xa1b2_c3d4, 0x1400_0000 | 247);
        let reader = Reader::new(file.as_slice()).unwrap();
        assert_eq!(reader.interfaces()[0].link_type, LinkType::INFINIBAND);
        assert_eq!((reader.format(), reader.interfaces().len()), (Format::Pcap, 1));
    }
}

#[test]
fn modified_classic_files_have_longer_record_headers() {
    let order = ORDERS[0];
    let mut file = order.classic(0xa1b2_cd34, 1);
    let mut record = order.classic_record(5, 6, 2, b"ok");
    record.splice(16..16, [9; 8]);
    file.extend(record);
    assert_eq!(read_whole(&file), [kept("5.000006", 0, 1, 2, b"ok")]);
}

#[test]
fn sections_interfaces_and_orders_mix_in_one_file() {
    let mut file = Vec::new();
    let mut expected = Vec::new();
    for (section, order) in [ORDERS[0], ORDERS[1], ORDERS[0]].into_iter().enumerate() {
        file.extend(order.section());
        file.extend(order.interface(1, 0, &[order.option(2, b"eth7")]));
        file.extend(order.packet(0, 1_500_000, 3, b"one"));
        // A name resolution block and one of an unknown kind, between others.
        file.extend(order.block(4, &[&[0; 4]]));
        file.extend(order.block(0x8000_0123, &[&[7; 200_000]]));
        file.extend(order.interface(247, 0, &[order.option(9, &[9])]));
        file.extend(order.packet(1, 2_000_000_001, 70, b"two22"));
        expected.push(kept("1.500000", 2 * section, 1, 3, b"one"));
        expected.push(kept("2.000000001", 2 * section + 1, 247, 70, b"two22"));
    }
    assert_eq!(read_whole(&file), expected);
    let (trickled, error) = read_all(Trickle(&file, false));
    assert!(error.is_none());
    assert_eq!(trickled, expected);
    let mut reader = Reader::new(file.as_slice()).unwrap();
    while reader.next().is_some() {}
    assert_eq!((reader.interfaces().len(), reader.format()), (6, Format::PcapNg));
    assert_eq!(reader.interfaces()[2].name.as_deref(), Some("eth7"));
    assert_eq!(reader.interfaces()[1].name, None);
}

#[test]
fn resolution_and_offset_come_from_the_raw_options_in_either_order() {
    for order in ORDERS {
        for (resolution, ticks, shown) in [
            (3u8, 1_250, "101.250"),
            (12, 1_000_000_000_001, "101.000000000001"),
            (0x80 | 4, 40, "102.5000"),
            (0, 7, "107"),
        ] {
            let options = [order.option(9, &[resolution]), order.option(14, &order.i64(100))];
            let mut file = order.section();
            file.extend(order.interface(1, 0, &options));
            file.extend(order.packet(0, ticks, 1, b"x"));
            assert_eq!(read_whole(&file), [kept(shown, 0, 1, 1, b"x")], "{order:?}");
        }
        let mut file = order.section();
        file.extend(order.interface(1, 0, &[order.option(14, &order.i64(-5))]));
        file.extend(order.packet(0, 4_750_000, 1, b"x"));
        assert_eq!(read_whole(&file), [kept("-0.250000", 0, 1, 1, b"x")]);
    }
}

/// The reader keeps all interfaces, so that a compressed file of long names could fill the memory.
#[test]
fn of_a_long_interface_name_only_the_beginning_is_kept() {
    let order = ORDERS[0];
    let name = "\u{e9}".repeat(30_000);
    let mut file = order.section();
    file.extend(order.interface(1, 0, &[order.option(2, name.as_bytes())]));
    file.extend(order.interface(1, 0, &[order.option(2, b"rocep1s0")]));
    file.extend(order.packet(1, 1, 1, b"x"));
    let mut reader = Reader::new(file.as_slice()).unwrap();
    reader.next().unwrap().unwrap();
    let names: Vec<_> = reader.interfaces().iter().map(|one| one.name.as_deref()).collect();
    assert_eq!(names, [Some(&name[..256]), Some("rocep1s0")]);
}

#[test]
fn simple_packets_have_no_time_and_the_first_interfaces_limit() {
    for order in ORDERS {
        let mut file = order.section();
        file.extend(order.interface(1, 5, &[]));
        file.extend(order.block(3, &[&order.u32(3), b"abc"]));
        file.extend(order.block(3, &[&order.u32(100), b"abcde"]));
        let timeless = |original_length, data: &[u8]| {
            let (time, interface, link_type, data) = (None, 0, 1, data.to_vec());
            Kept { time, interface, link_type, original_length, data }
        };
        assert_eq!(read_whole(&file), [timeless(3, b"abc"), timeless(100, b"abcde")]);
    }
}

#[test]
fn obsolete_packet_blocks_are_read() {
    for order in ORDERS {
        let mut file = order.section();
        file.extend(order.interface(1, 0, &[]));
        file.extend(order.interface(101, 0, &[]));
        let numbers = [0, 2_500_000, 6, 60].map(|number| order.u32(number)).concat();
        file.extend(order.block(2, &[&order.u16(1), &order.u16(9), &numbers, b"packet"]));
        assert_eq!(read_whole(&file), [kept("2.500000", 1, 101, 60, b"packet")]);
    }
}

#[test]
fn packet_options_do_not_disturb() {
    let order = ORDERS[1];
    let fixed = [0, 0, 1, 1, 1].map(|number| order.u32(number)).concat();
    let options = [order.option(1, b"a comment"), order.option(0, &[])].concat();
    let mut file = order.section();
    file.extend(order.interface(1, 0, &[]));
    file.extend(order.block(6, &[&fixed, b"x\0\0\0", &options]));
    assert_eq!(read_whole(&file), [kept("0.000001", 0, 1, 1, b"x")]);
}

/// A small file of each format, where each of its parts begins, and its records.
fn samples() -> Vec<(Vec<u8>, Vec<usize>, Vec<Kept>)> {
    let mut samples = Vec::new();
    for order in ORDERS {
        let mut file = order.classic(0xa1b2_c3d4, 1);
        let mut parts = vec![0, file.len()];
        for length in [0, 1, 60] {
            file.extend(order.classic_record(1, length, 60, &vec![7; length as usize]));
            parts.push(file.len());
        }
        samples.push((file.clone(), parts, read_whole(&file)));
        let mut file = order.section();
        let mut parts = vec![0, file.len()];
        for part in [
            order.interface(1, 0, &[order.option(9, &[9])]),
            order.packet(0, 1, 9, b"first"),
            order.block(77, &[&[1; 40]]),
            order.packet(0, 2, 9, b"second"),
            order.block(3, &[&order.u32(4), b"four"]),
        ] {
            file.extend(part);
            parts.push(file.len());
        }
        samples.push((file.clone(), parts, read_whole(&file)));
    }
    samples
}

#[test]
fn a_file_cut_anywhere_gives_what_is_whole_and_says_where_it_ends() {
    for (file, parts, all) in samples() {
        for length in 1..file.len() {
            let (records, error) = read_all(&file[..length]);
            assert_eq!(records, all[..records.len()], "cut at {length}");
            if parts.contains(&length) {
                assert!(error.is_none(), "cut at {length}, between parts: {error:?}");
                continue;
            }
            let begin = parts.iter().copied().filter(|part| *part < length).max().unwrap();
            let Some(ReadError::Cut { offset }) = error else {
                panic!("cut at {length}: {error:?}");
            };
            assert_eq!(offset, begin as u64, "cut at {length}");
        }
    }
}

#[test]
fn what_is_no_capture_says_so() {
    assert!(matches!(Reader::new(&b""[..]), Err(ReadError::Empty)));
    let elf = Reader::new(&b"\x7fELF rest"[..]).err().unwrap().to_string();
    assert_eq!(elf, "neither pcap nor pcapng: it begins with 7f 45 4c 46");
    for magic in
        [b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd", b"\xfd7zX", b"BZh9", b"\x04\x22\x4d\x18"]
    {
        assert!(matches!(Reader::new(&magic[..]), Err(ReadError::Compressed)), "{magic:x?}");
    }
    let no_magic = [0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 1, 2, 3, 4];
    assert!(matches!(Reader::new(&no_magic[..]), Err(ReadError::Damaged { offset: 0, .. })));
}

#[test]
fn damage_is_named_and_placed() {
    let order = ORDERS[0];
    let good = [order.section(), order.interface(1, 0, &[]), order.packet(0, 1, 1, b"x")].concat();
    let damaged = |tail: Vec<u8>| {
        let (records, error) = read_all([&good[..], &tail].concat().as_slice());
        assert_eq!(records.len(), 1, "what lies before the damage is given");
        match error {
            Some(ReadError::Damaged { offset, what }) if offset == good.len() as u64 => what,
            other => panic!("{other:?}"),
        }
    };
    let with = |at: usize, value: u32| {
        let mut block = order.packet(0, 1, 1, b"x");
        block[at..at + 4].copy_from_slice(&value.to_le_bytes());
        block
    };
    assert_eq!(damaged(with(4, 8)), "a block length that cannot be");
    assert_eq!(damaged(with(4, 37)), "a block length that cannot be");
    assert_eq!(damaged(with(4, 0x7fff_fff0)), "a block longer than a packet of 4 MiB");
    assert_eq!(damaged(with(32, 40)), "a block whose two lengths differ");
    assert_eq!(damaged(with(8, 1)), "a packet of an interface that was not described");
    assert_eq!(damaged(with(20, 5)), "a packet block");
    assert_eq!(damaged(with(20, u32::MAX)), "a packet block");
    let mut section = order.section();
    section[12] = 2;
    assert_eq!(damaged(section), "a section of an unknown version");
    let classic = [order.classic(0xa1b2_c3d4, 1), [0xff; 16].to_vec()].concat();
    let (_, error) = read_all(classic.as_slice());
    assert!(matches!(
        error,
        Some(ReadError::Damaged { offset: 24, what: "a packet longer than 4 MiB" })
    ));
}

/// Gives the same bytes for ever, and counts.
struct Endless {
    front: Vec<u8>,
    given: usize,
    limit: usize,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given >= self.limit {
            return Err(io::Error::other("asked for too much"));
        }
        let count = buffer.len().min(self.limit - self.given);
        for (index, byte) in buffer[..count].iter_mut().enumerate() {
            *byte = self.front.get(self.given + index).copied().unwrap_or(0);
        }
        self.given += count;
        Ok(count)
    }
}

#[test]
fn large_blocks_without_packets_are_passed_without_being_kept() {
    let order = ORDERS[0];
    let mut front = order.section();
    front.extend(order.u32(99));
    front.extend(order.u32(0x0100_0000));
    let (records, error) = read_all(Endless { front, given: 0, limit: 0x0100_1000 });
    assert!(records.is_empty());
    assert!(
        matches!(error, Some(ReadError::Damaged { what: "a block whose two lengths differ", .. })),
        "{error:?}"
    );
}

#[test]
fn a_failing_reader_is_reported_as_such() {
    let front = ORDERS[0].classic(0xa1b2_c3d4, 1);
    let (_, error) = read_all(Endless { front, given: 0, limit: 30 });
    assert!(matches!(error, Some(ReadError::Io(_))), "{error:?}");
}

#[test]
fn what_was_written_is_read_in_both_formats() {
    let times = [0, 1, 999_999_999, 1_700_000_000_123_456_789];
    for format in [Format::Pcap, Format::PcapNg] {
        let mut file = Vec::new();
        let mut writer = Writer::named(&mut file, format, "lo").unwrap();
        for (length, time) in times.into_iter().enumerate() {
            writer.write(time, &[&vec![1; length], &[2, 3]]).unwrap();
        }
        drop(writer);
        let mut reader = Reader::new(file.as_slice()).unwrap();
        for (length, time) in times.into_iter().enumerate() {
            let record = reader.next().unwrap().unwrap();
            assert_eq!(record.time.unwrap().as_nanos(), time);
            assert_eq!(record.time.unwrap().digits, 9);
            assert_eq!(record.data, [vec![1; length], vec![2, 3]].concat());
            assert_eq!(record.original_length as usize, length + 2);
            assert_eq!(record.link_type, LinkType::ETHERNET);
        }
        assert!(reader.next().is_none());
        assert_eq!(reader.format(), format);
        let name = (format == Format::PcapNg).then_some("lo");
        assert_eq!(reader.interfaces()[0].name.as_deref(), name);
    }
}

#[test]
fn times_beyond_the_classic_format_are_its_last_second() {
    let mut file = Vec::new();
    Writer::new(&mut file, Format::Pcap).unwrap().write(u64::MAX, &[b"x"]).unwrap();
    assert_eq!(read_whole(&file)[0].time.as_deref(), Some("4294967295.709551615"));
}

/// Takes what is written, as a file would, and shows it while the writer still has it.
#[derive(Default)]
struct Shared(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_process_that_dies_leaves_a_readable_file() {
    for format in [Format::Pcap, Format::PcapNg] {
        let shared = Shared::default();
        let file = shared.0.clone();
        let mut writer = Writer::new(shared, format).unwrap();
        let on_disk = || read_whole(&file.borrow()).len();
        assert_eq!(on_disk(), 0, "the header is there from the start");
        writer.write(1, &[b"flushed"]).unwrap();
        writer.flush().unwrap();
        assert_eq!(on_disk(), 1);
        for _ in 0..100 {
            writer.write(2, &[&[0; 1000]]).unwrap();
            assert!(on_disk() >= 1, "only whole records are handed on");
        }
        assert!(on_disk() > 1, "a batch goes without being asked for");
        std::mem::forget(writer);
        assert!(on_disk() < 101, "the last ones were never flushed: the process died");
    }
}

#[test]
fn a_frame_too_long_to_capture_is_refused_whole() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, Format::Pcap).unwrap();
    let error = writer.write(0, &[&[0; 200_000], &[0; 200_000]]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    writer.write(0, &[&[0; 200_000]]).unwrap();
    drop(writer);
    assert_eq!(read_whole(&file).len(), 1);
}

proptest! {
    #[test]
    fn damage_never_panics_nor_loops(
        sample in 0usize..4,
        hits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (mut file, _, all) = samples().swap_remove(sample);
        for (at, value) in hits {
            let at = at.index(file.len());
            file[at] = value;
        }
        let (records, _) = read_all(file.as_slice());
        prop_assert!(records.len() <= all.len() + 2, "records out of nothing");
    }

    #[test]
    fn any_bytes_are_read_to_an_end(
        magic in proptest::sample::select(vec![
            vec![0xd4, 0xc3, 0xb2, 0xa1],
            vec![0xa1, 0xb2, 0x3c, 0x4d],
            vec![0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a],
            vec![0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28, 0x1a, 0x2b, 0x3c, 0x4d],
        ]),
        bytes in proptest::collection::vec(prop_oneof![3 => 0u8..12, 1 => any::<u8>()], 0..300),
    ) {
        read_all([magic, bytes].concat().as_slice());
    }
}
