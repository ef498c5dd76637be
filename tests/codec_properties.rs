//! Laws of everything that is written and read again outside of the packet itself: frames, the area
//! before a datagram, captures, codes, and values that are wider than their fields.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use uroce::memory::Access;
use uroce::pcap::{Format, LinkType, Reader, Timestamp, Writer};
use uroce::queue::{FlushPlacement, FlushSelectivity, PathMtu};
use uroce::sim::{Exhaustive, ScriptedFate};
use uroce::software::{Environment, parse_buffer_size, parse_trace};
use uroce::wire::{
    Bth, Credits, Deth, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Feth, Flow, Frame, Grh,
    Ipv4Header, Ipv6Header, Lrh, NakCode, Network, NetworkArea, Opcode, PKey, PROTOCOL_UDP, Psn,
    QKey, Qpn, Rdeth, RnrTimer, Srqn, UdpHeader, VlanTag, Xrceth, frame_headers,
};

/// A value with fields that are too wide is written as one with those fields cut to their widths, and
/// that one is read back: nothing spills into a neighbour.
macro_rules! widths {
    ($header:ty, $wide:expr, $cut:expr) => {{
        let (wide, cut): ($header, $header) = ($wide, $cut);
        let mut bytes = [0xee; <$header>::LENGTH];
        wide.emit(&mut bytes);
        prop_assert_eq!(<$header>::parse(&bytes), cut);
    }};
}

proptest! {
    #[test]
    fn fields_wider_than_their_place_do_not_spill(
        bytes in any::<[u8; 40]>(),
        small in any::<[u8; 8]>(),
        wide in any::<[u32; 2]>(),
        halves in any::<[u16; 2]>(),
    ) {
        let first = |count: usize| &bytes[..count];
        let bth = Bth::parse(first(12).try_into().unwrap());
        let [a, b, c, d, ..] = small;
        widths!(
            Bth,
            Bth { pad: a, version: b, reserved: c, reserved_after_ack: d, ..bth },
            Bth { pad: a & 3, version: b & 15, reserved: c & 63, reserved_after_ack: d & 127, ..bth }
        );
        let grh = Grh::parse(&bytes);
        widths!(
            Grh,
            Grh { version: a, flow_label: wide[0], ..grh },
            Grh { version: a & 15, flow_label: wide[0] & 0xf_ffff, ..grh }
        );
        let lrh = Lrh::parse(first(8).try_into().unwrap());
        let [.., e, f, g, h] = small;
        widths!(
            Lrh,
            Lrh {
                virtual_lane: a, version: b, service_level: c, reserved: e, next_header: f,
                reserved_before_length: g, length: halves[0], ..lrh
            },
            Lrh {
                virtual_lane: a & 15, version: b & 15, service_level: c & 15, reserved: e & 3,
                next_header: f & 3, reserved_before_length: g & 31, length: halves[0] & 0x7ff, ..lrh
            }
        );
        widths!(
            Feth,
            Feth { reserved: wide[0], selectivity: a, placement: h },
            Feth { reserved: wide[0] & 0x3ff_ffff, selectivity: a & 3, placement: h & 15 }
        );
        let (qkey, source) = (QKey::new(wide[0]), Qpn::new(wide[1]));
        widths!(Deth, Deth { qkey, reserved: a, source }, Deth { qkey, reserved: a, source });
        widths!(
            Rdeth,
            Rdeth { reserved: a, context: wide[0] },
            Rdeth { reserved: a, context: wide[0] & 0xff_ffff }
        );
        let srqn = Srqn::new(wide[0]);
        widths!(Xrceth, Xrceth { reserved: a, srqn }, Xrceth { reserved: a, srqn });
        let v6 = |flow_label| Ipv6Header { flow_label, ..ipv6(&bytes) };
        let mut written = [0xee; Ipv6Header::LENGTH];
        v6(wide[0]).emit(&mut written);
        prop_assert_eq!(Ipv6Header::parse(&written), Some(v6(wide[0] & 0xf_ffff)));
        let tag = |priority, id| {
            let tag = VlanTag { protocol: 0x8100, priority, drop_eligible: a & 1 != 0, id };
            let (destination, source) = ([a; 6], [b; 6]);
            Ethernet { destination, source, tags: [Some(tag), None], ethertype: 0x0800 }
        };
        let mut written = [0xee; 18];
        tag(c, halves[1]).emit(&mut written);
        let cut = tag(c & 7, halves[1] & 0xfff);
        prop_assert_eq!(Ethernet::parse(&written), Some((cut, &[][..])));
    }

    #[test]
    fn numbers_are_cut_to_their_widths(value in any::<u32>()) {
        let cut = value & 0xff_ffff;
        prop_assert_eq!((Qpn::new(value).value(), Srqn::new(value).value()), (cut, cut));
        prop_assert_eq!((Psn::new(value).value(), PKey::new(value as u16).value()), (cut, value as u16));
        prop_assert_eq!(QKey::new(value).value(), value);
    }
}

fn ipv6(bytes: &[u8; 40]) -> Ipv6Header {
    let mut bytes = *bytes;
    bytes[0] = 0x60 | bytes[0] & 15;
    Ipv6Header::parse(&bytes).expect("version 6")
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let v4 = any::<[Ipv4Addr; 2]>().prop_map(|[a, b]| (a.into(), b.into()));
    let v6 = any::<[Ipv6Addr; 2]>().prop_map(|[a, b]| (a.into(), b.into()));
    let both = any::<(Ipv4Addr, Ipv6Addr)>().prop_map(|(a, b)| (a.into(), b.into()));
    prop_oneof![4 => v4, 4 => v6, 1 => both]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0usize..=65_507, 2 => 65_480usize..=65_560, 1 => any::<usize>()]
}

proptest! {
    #[test]
    fn the_area_before_a_datagram_comes_back(
        (source, destination) in addresses(),
        traffic_class in any::<u8>(),
        label in 0u32..1 << 20,
        length in length(),
    ) {
        let flow_label = if source.is_ipv6() { label } else { 0 };
        let area = NetworkArea { source, destination, traffic_class, flow_label };
        let is_one = source.is_ipv4() == destination.is_ipv4();
        let bytes = area.emit(length);
        prop_assert_eq!(NetworkArea::parse(&bytes), is_one.then_some(area));
        prop_assert!(is_one || bytes == [0; NetworkArea::LENGTH]);
        let flow = Flow { source, destination, source_port: 7 };
        let new = NetworkArea::new(&flow, traffic_class);
        prop_assert_eq!(new, NetworkArea { flow_label: 0, ..area });
    }

    #[test]
    fn an_area_that_is_read_is_written_the_same_but_for_what_a_socket_does_not_show(
        bytes in any::<[u8; 40]>(),
        version in prop_oneof![Just(0x60u8), Just(0x40), any::<u8>()],
    ) {
        let mut bytes = bytes;
        bytes[0] = version | bytes[0] & 15;
        if let Some(area) = NetworkArea::parse(&bytes) {
            prop_assert_eq!(NetworkArea::parse(&area.emit(100)), Some(area));
        }
    }

    /// The longest datagram and what is longer: a length is cut, as documented, and nothing panics.
    #[test]
    fn headers_of_any_length_are_made(
        (source, destination) in addresses(),
        length in length(),
        rest in any::<(u16, u8, u8)>(),
    ) {
        let flow = Flow { source, destination, source_port: 9 };
        let headers = frame_headers(&flow, rest.0, rest.1, rest.2, length);
        let (ethernet, ip) = Ethernet::parse(headers.as_bytes()).expect("whole");
        let expected = length.wrapping_add(UdpHeader::LENGTH) as u16;
        let udp = ip.last_chunk().map(UdpHeader::parse).expect("whole");
        prop_assert_eq!(udp.length, expected);
        match ethernet.ethertype {
            ETHERTYPE_IPV4 => {
                let (ip, _) = Ipv4Header::parse(ip).expect("whole");
                prop_assert_eq!(ip.total_length, expected.wrapping_add(20));
            }
            other => {
                prop_assert_eq!(other, ETHERTYPE_IPV6);
                let ip = ip.first_chunk().and_then(Ipv6Header::parse).expect("whole");
                prop_assert_eq!(ip.payload_length, expected);
            }
        }
    }
}

/// What lies around the payload of a frame.
#[derive(Clone, Debug)]
struct Outer {
    tags: [Option<VlanTag>; 2],
    /// IPv4 options in words, or IPv6 extension headers, each of so many times eight bytes.
    options: Vec<[u8; 4]>,
    extensions: Vec<(u8, u8)>,
    header: [u8; 40],
    ports: [u16; 3],
    v6: bool,
}

fn outer() -> impl Strategy<Value = Outer> {
    let tag = (0usize..3, 0u8..8, any::<bool>(), 0u16..4096).prop_map(
        |(protocol, priority, drop_eligible, id)| {
            let protocol = [0x8100, 0x88a8, 0x9100][protocol];
            VlanTag { protocol, priority, drop_eligible, id }
        },
    );
    let tags = prop_oneof![
        3 => Just([None, None]),
        2 => tag.clone().prop_map(|tag| [Some(tag), None]),
        1 => [tag.clone(), tag].prop_map(|pair| pair.map(Some)),
    ];
    let extension = (proptest::sample::select(vec![0u8, 43, 60]), 0u8..3);
    let extensions = prop_oneof![2 => Just(Vec::new()), 1 => vec(extension, 0..4)];
    let options = prop_oneof![2 => Just(Vec::new()), 1 => vec(any::<[u8; 4]>(), 0..=10)];
    (tags, options, extensions, any::<[u8; 40]>(), any::<[u16; 3]>(), any::<bool>()).prop_map(
        |(tags, options, extensions, header, ports, v6)| Outer {
            tags,
            options,
            extensions,
            header,
            ports,
            v6,
        },
    )
}

impl Outer {
    /// The extension headers, and the number of the first.
    fn extensions(&self) -> (u8, Vec<u8>) {
        let mut next = PROTOCOL_UDP;
        let mut bytes = Vec::new();
        for (kind, words) in self.extensions.iter().rev() {
            let mut header = vec![0x5a; (usize::from(*words) + 1) * 8];
            header[..2].copy_from_slice(&[next, *words]);
            bytes.splice(0..0, header);
            next = *kind;
        }
        (next, bytes)
    }

    fn ethernet(&self) -> Ethernet {
        let ethertype = if self.v6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
        Ethernet { destination: [2; 6], source: [4; 6], tags: self.tags, ethertype }
    }
}

proptest! {
    #[test]
    fn any_frame_is_read_as_it_was_written_and_written_as_it_was_read(
        outer in outer(),
        payload in vec(any::<u8>(), 0..60),
        trailer in vec(any::<u8>(), 0..20),
    ) {
        let datagram = UdpHeader::LENGTH + payload.len();
        let (next, extensions) = outer.extensions();
        let options = outer.options.as_flattened();
        let network = if outer.v6 {
            let payload_length = (extensions.len() + datagram) as u16;
            let ip = Ipv6Header { payload_length, next_header: next, ..ipv6(&outer.header) };
            Network::V6(ip, &extensions)
        } else {
            let mut header = outer.header;
            header[0] = 0x45;
            let (ip, _) = Ipv4Header::parse(&header).expect("long enough");
            let total_length = (Ipv4Header::LENGTH + options.len() + datagram) as u16;
            // No fragment: neither "more" nor an offset.
            let flags = ip.flags & 0xc000;
            Network::V4(Ipv4Header { total_length, flags, protocol: PROTOCOL_UDP, options, ..ip })
        };
        let [source_port, destination_port, checksum] = outer.ports;
        let length = datagram as u16;
        let udp = UdpHeader { source_port, destination_port, length, checksum };
        let ethernet = outer.ethernet();
        let frame = Frame { ethernet, network, udp, payload: &payload, trailer: &trailer };
        let mut bytes = vec![0xee; frame.length() + 1];
        prop_assert_eq!(frame.emit(&mut bytes), frame.length());
        prop_assert_eq!(bytes.pop(), Some(0xee), "wrote past its end");
        let read = Frame::parse(&bytes).expect("ours");
        prop_assert_eq!(read, frame);
        let mut again = vec![0; bytes.len()];
        read.emit(&mut again);
        prop_assert_eq!(&again, &bytes);
        // Cut anywhere before the trailer, it is none.
        for end in 0..bytes.len() - trailer.len() {
            prop_assert!(Frame::parse(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn damaged_frames_that_are_still_read_are_written_as_they_are(
        outer in outer(),
        hits in vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<proptest::sample::Index>(),
    ) {
        let flow = Flow {
            source: Ipv4Addr::LOCALHOST.into(),
            destination: Ipv4Addr::LOCALHOST.into(),
            source_port: outer.ports[0],
        };
        let mut bytes = frame_headers(&flow, 1, 2, 3, 24).as_bytes().to_vec();
        bytes.extend([7; 40]);
        for (at, value) in hits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len() * 2).max(20));
        if let Ok(frame) = Frame::parse(&bytes) {
            let mut again = vec![0; frame.length()];
            frame.emit(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}

proptest! {
    #[test]
    fn captures_are_read_as_they_were_written_through_any_pipe(
        is_pcapng in any::<bool>(),
        name in "[a-z0-9é]{0,20}",
        frames in vec((0u64..4_294_967_296_000_000_000, vec(any::<u8>(), 0..80), 0usize..80), 0..12),
        step in 1usize..50,
    ) {
        let format = if is_pcapng { Format::PcapNg } else { Format::Pcap };
        let mut file = Vec::new();
        let mut ends = Vec::new();
        for count in 0..=frames.len() {
            file.clear();
            write(&mut file, format, &name, &frames[..count]);
            ends.push(file.len());
        }
        let mut reader = Reader::new(Pipe { bytes: &file, step }).expect("ours");
        prop_assert_eq!(reader.format(), format);
        let mut read = Vec::new();
        while let Some(record) = reader.next() {
            let record = record.expect("whole");
            prop_assert_eq!(record.original_length as usize, record.data.len());
            prop_assert_eq!((record.link_type, record.interface), (LinkType::ETHERNET, 0));
            let time = record.time.expect("all have one");
            prop_assert_eq!(Timestamp::from_nanos(time.as_nanos()), time);
            read.push((time.as_nanos(), record.data.to_vec(), 0));
        }
        prop_assert!(read.iter().map(|(t, b, _)| (t, b)).eq(frames.iter().map(|(t, b, _)| (t, b))));
        let expected = Some(name.clone()).filter(|name| is_pcapng && !name.is_empty());
        prop_assert_eq!(&reader.interfaces()[0].name, &expected);
        let mut again = Vec::new();
        write(&mut again, format, &name, &read);
        prop_assert_eq!(&again, &file, "what was read is written the same");
        // Cut anywhere behind its header, it gives the records that are whole, and says that it was
        // cut unless that was between two of them.
        for end in ends[0]..file.len() {
            let mut reader = Reader::new(&file[..end]).expect("a whole header");
            let mut whole = 0;
            let mut failed = false;
            while let Some(record) = reader.next() {
                whole += usize::from(record.is_ok());
                failed |= record.is_err();
            }
            prop_assert_eq!(whole, ends.iter().filter(|known| **known <= end).count() - 1);
            prop_assert_eq!(failed, !ends.contains(&end));
        }
    }

    #[test]
    fn nanoseconds_are_kept_and_times_order_as_they_do(a in any::<u64>(), b in any::<u64>()) {
        let (first, second) = (Timestamp::from_nanos(a), Timestamp::from_nanos(b));
        prop_assert_eq!((first.as_nanos(), second.as_nanos()), (a, b));
        prop_assert_eq!(first.cmp(&second), a.cmp(&b));
        prop_assert_eq!(first.to_string(), format!("{}.{:09}", a / 1_000_000_000, a % 1_000_000_000));
        let micros = (i128::from(a) - i128::from(b)).div_euclid(1000);
        prop_assert_eq!(i128::from(first.micros_since(second)), micros);
    }
}

/// Frames, each in two parts that meet anywhere.
fn write(file: &mut Vec<u8>, format: Format, name: &str, frames: &[(u64, Vec<u8>, usize)]) {
    let mut writer = Writer::named(file, format, name).expect("memory");
    for (time, bytes, split) in frames {
        let (front, back) = bytes.split_at((*split).min(bytes.len()));
        writer.write(*time, &[front, back]).expect("short enough");
    }
}

/// Gives a few bytes at a time.
struct Pipe<'a> {
    bytes: &'a [u8],
    step: usize,
}

impl std::io::Read for Pipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.step.min(buffer.len()).min(self.bytes.len());
        let (given, rest) = self.bytes.split_at(length);
        buffer[..length].copy_from_slice(given);
        self.bytes = rest;
        Ok(length)
    }
}

proptest! {
    #[test]
    fn credits_never_promise_more_than_there_is_and_timers_never_less(
        count in prop_oneof![0u32..40_000, any::<u32>()],
        nanos in prop_oneof![0u64..700_000_000, any::<u64>()],
    ) {
        let told = Credits::from_count(count).count().expect("a limit");
        prop_assert!(told <= count);
        let all = || (0..31).filter_map(|code| Credits::new(code).count());
        prop_assert_eq!(Some(told), all().filter(|more| *more <= count).max());
        let timer = RnrTimer::at_least(nanos);
        let times = || (0..32).map(|code| RnrTimer::new(code).nanos());
        let longest = times().max().expect("32 of them");
        prop_assert_eq!(timer.nanos(), times().filter(|time| *time >= nanos).min().unwrap_or(longest));
    }

    #[test]
    fn no_variable_makes_the_environment_panic(
        values in vec("[a-z0-9=,.%KMG+ -]{0,16}|off|1|lo=x|udp|errors", 9),
        sizes in (any::<u64>(), proptest::sample::select(vec!["", "K", "M", "G", "T"])),
    ) {
        let names = [
            "UROCE_DEVICE", "UROCE_LINK", "UROCE_PROVIDER", "UROCE_PCAP", "UROCE_FAULT",
            "UROCE_TRACE", "UROCE_STRICT", "UROCE_RECEIVE_BUFFER", "UROCE_CONGESTION",
        ];
        let read = Environment::from_variables(|wanted| {
            let place = names.iter().position(|name| *name == wanted)?;
            Some(values[place].clone().into())
        });
        if let Err(error) = read {
            prop_assert!(names.contains(&error.variable) && !error.problem.is_empty());
        }
        let _ = parse_trace(&values[0]);
        let (number, unit) = sizes;
        let shift = ["", "K", "M", "G"].iter().position(|known| *known == unit);
        let bytes = shift.map(|shift| u128::from(number) << (10 * shift));
        let expected = bytes.filter(|bytes| (4096..=1 << 31).contains(bytes));
        let found = parse_buffer_size(&format!("{number}{unit}")).ok();
        prop_assert_eq!(found.map(|bytes| bytes as u128), expected);
    }

    #[test]
    fn a_schedule_is_its_letters(fates in vec(0usize..5, 0..10), other in any::<char>()) {
        let letters: String = fates.iter().map(|fate| ScriptedFate::ALL[*fate].letter()).collect();
        for (letter, fate) in letters.chars().zip(&fates) {
            prop_assert_eq!(ScriptedFate::from_letter(letter), Some(ScriptedFate::ALL[*fate]));
        }
        let small = &Exhaustive::all()[0];
        let script = small.schedule(&letters).expect("letters of fates").network.script;
        let expected: Vec<ScriptedFate> = fates.iter().map(|fate| ScriptedFate::ALL[*fate]).collect();
        prop_assert_eq!(script.expect("a script").fates, expected);
        let known = ScriptedFate::from_letter(other).is_some();
        prop_assert_eq!(small.schedule(&format!("{letters}{other}")).is_some(), known);
    }
}

#[test]
fn every_code_stands_for_one_thing_and_that_for_the_code() {
    for byte in 0..=u8::MAX {
        assert!(Opcode::from_byte(byte).is_none_or(|opcode| opcode.to_byte() == byte));
        assert_eq!(NakCode::from_code(byte).to_code(), byte & 31);
        assert!(FlushPlacement::from_bits(byte).is_none_or(|found| found.bits() == byte));
        assert!(FlushSelectivity::from_code(byte).is_none_or(|found| found.code() == byte));
    }
    assert_eq!((0..=255).filter_map(FlushPlacement::from_bits).count(), 3);
    assert_eq!((0..=255).filter_map(FlushSelectivity::from_code).count(), 2);
    for (index, mtu) in PathMtu::ALL.into_iter().enumerate() {
        assert_eq!(
            (PathMtu::from_bytes(mtu.bytes()), usize::from(mtu.code())),
            (Some(mtu), index + 1)
        );
    }
    assert_eq!((0..70_000).filter_map(PathMtu::from_bytes).count(), PathMtu::ALL.len());
    for bit in 0..32 {
        match Access::from_bits(1 << bit) {
            Ok(access) => assert_eq!(access.bits(), 1 << bit),
            Err(unknown) => assert_eq!(unknown, 1 << bit),
        }
    }
}

proptest! {
    #[test]
    fn rights_are_their_bits_or_the_lowest_unknown_one_is_named(bits in any::<u32>()) {
        let known = (0..32).filter(|bit| Access::from_bits(1 << bit).is_ok()).map(|bit| 1 << bit);
        let unknown = bits & !known.sum::<u32>();
        match Access::from_bits(bits) {
            Ok(access) => prop_assert_eq!((access.bits(), unknown), (bits, 0)),
            Err(named) => prop_assert_eq!(named, 1 << unknown.trailing_zeros()),
        }
    }

    #[test]
    fn the_largest_path_mtu_that_fits_is_taken(mtu in 0usize..70_000) {
        let found = PathMtu::largest_within(mtu);
        // IPv6, UDP, BTH, XRCETH, RETH, immediate, ICRC.
        let fits = |path: &PathMtu| path.bytes() + 40 + 8 + 12 + 4 + 16 + 4 + 4 <= mtu;
        let expected = PathMtu::ALL.into_iter().filter(fits).max();
        prop_assert_eq!(found, expected.unwrap_or(PathMtu::Mtu256));
    }
}
