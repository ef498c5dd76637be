//! Which packets are shown.

use std::str::FromStr;

use uroce::dissect::{Frame, RdmaPacket, Verdict};
use uroce::wire::Opcode;

use super::DumpArgs;

/// Numbers of frames, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRange {
    first: u64,
    last: u64,
}

impl FrameRange {
    /// Whether a frame of this number is wanted.
    pub fn contains(self, frame: u64) -> bool {
        (self.first..=self.last).contains(&frame)
    }

    /// Whether no frame after this one is wanted.
    pub fn ends_at(self, frame: u64) -> bool {
        frame >= self.last
    }
}

impl FromStr for FrameRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}`: frames are given as 7, 7-20, 7- or -20, from 1");
        let number = |digits: &str, open: u64| match digits {
            "" => Ok(open),
            digits => digits.parse::<u64>().map_err(|_| wrong()),
        };
        let (first, last) = match text.split_once('-') {
            Some(("", "")) => return Err(wrong()),
            Some((first, last)) => (number(first, 1)?, number(last, u64::MAX)?),
            None => {
                let one = text.parse().map_err(|_| wrong())?;
                (one, one)
            }
        };
        if first == 0 || first > last { Err(wrong()) } else { Ok(Self { first, last }) }
    }
}

/// The opcodes that a name stands for: one, or an operation's of every transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpcodePattern(Vec<u8>);

impl OpcodePattern {
    fn fits(&self, packet: &RdmaPacket<'_>) -> bool {
        packet.bth.is_some_and(|bth| self.0.contains(&bth.opcode))
    }
}

/// The name of an opcode without its transport.
fn operation(name: &str) -> Option<&str> {
    name.split_once('_').map(|(_, operation)| operation)
}

impl FromStr for OpcodePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(byte) = number(text).and_then(|byte| u8::try_from(byte).ok()) {
            return Ok(Self(vec![byte]));
        }
        // The short names of the text form are taken too.
        let wanted = text.to_ascii_uppercase();
        let long = |name: &str, short: &str, long: &str| match name.strip_suffix(short) {
            Some(front) => format!("{front}{long}"),
            None => name.to_owned(),
        };
        let wanted = long(&wanted, "_IMM", "_WITH_IMMEDIATE");
        let wanted = long(&wanted, "_INV", "_WITH_INVALIDATE");
        let short = |name: &str| name.replace("RDMA_", "");
        let wanted = short(&wanted);
        let is_wanted = |opcode: &Opcode| {
            let name = short(opcode.name());
            name == wanted || operation(&name) == Some(&wanted)
        };
        let known = (0..=255).filter_map(Opcode::from_byte);
        let found: Vec<u8> = known.filter(is_wanted).map(Opcode::to_byte).collect();
        if found.is_empty() {
            return Err(format!(
                "`{text}` is no opcode; names are such as RC_SEND_ONLY, RDMA_READ_REQUEST, CNP"
            ));
        }
        Ok(Self(found))
    }
}

/// A number in decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // The standard library would take a sign.
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A queue pair's number, of 24 bits.
pub fn queue_pair(text: &str) -> Result<u32, String> {
    let found = number(text).filter(|number| *number <= 0x00ff_ffff);
    found
        .ok_or_else(|| format!("`{text}`: a queue pair is a number of 24 bits, such as 17 or 0x11"))
}

/// Four bytes in wire order.
pub fn icrc(text: &str) -> Result<[u8; 4], String> {
    let digits = text.replace([' ', ':'], "");
    let is_whole = digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let found = u32::from_str_radix(&digits, 16).ok().filter(|_| is_whole);
    found
        .map(u32::to_be_bytes)
        .ok_or_else(|| format!("`{text}`: an ICRC is eight hexadecimal digits"))
}

/// Whether any filter looks at packets, not only at frame numbers.
pub fn is_selective(args: &DumpArgs) -> bool {
    !args.qp.is_empty() || !args.host.is_empty() || !args.opcode.is_empty() || args.bad_icrc
}

/// Whether a packet, or a frame without one, is to be shown.
pub fn selects(args: &DumpArgs, frame: &Frame<'_>, packet: Option<&RdmaPacket<'_>>) -> bool {
    let any_host = || {
        let hosts = frame.hosts();
        hosts.is_some_and(|(source, destination)| {
            args.host.iter().any(|host| *host == source || *host == destination)
        })
    };
    let any_queue_pair = |packet: &RdmaPacket<'_>| {
        let destination = packet.bth.map(|bth| bth.destination.value());
        let source = packet.headers.deth.map(|deth| deth.source.value());
        args.qp.iter().any(|wanted| destination == Some(*wanted) || source == Some(*wanted))
    };
    (args.host.is_empty() || any_host())
        && (args.qp.is_empty() || packet.is_some_and(any_queue_pair))
        && (args.opcode.is_empty()
            || packet.is_some_and(|packet| args.opcode.iter().any(|opcode| opcode.fits(packet))))
        && (!args.bad_icrc || packet.is_some_and(|p| p.icrc.verdict == Verdict::Bad))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let range = |text: &str| text.parse::<FrameRange>();
        assert_eq!(range("7"), Ok(FrameRange { first: 7, last: 7 }));
        assert_eq!(range("7-20"), Ok(FrameRange { first: 7, last: 20 }));
        assert_eq!(range("7-"), Ok(FrameRange { first: 7, last: u64::MAX }));
        assert_eq!(range("-20"), Ok(FrameRange { first: 1, last: 20 }));
        for wrong in ["", "-", "0", "9-7", "a", "1-b", "1-2-3"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn opcodes() {
        let pattern = |text: &str| text.parse::<OpcodePattern>();
        let is = |text: &str, bytes: &[u8]| {
            assert_eq!(pattern(text), Ok(OpcodePattern(bytes.to_vec())), "{text}");
        };
        is("rc_send_only", &[0x04]);
        is("0x81", &[0x81]);
        is("RC_RDMA_WRITE_LAST_WITH_IMMEDIATE", &[0x09]);
        is("RC_WRITE_LAST_IMM", &[0x09]);
        is("XRC_SEND_ONLY_INV", &[0xb7]);
        is("RDMA_READ_REQUEST", &[0x0c, 0x4c, 0xac]);
        is("CNP", &[0x81]);
        is("send_only", &[0x04, 0x24, 0x44, 0x64, 0xa4]);
        assert!(pattern("SENDS").is_err() && pattern("256").is_err());
    }

    #[test]
    fn a_sign_is_no_hexadecimal_digit() {
        assert_eq!((queue_pair("0x1a"), queue_pair("26")), (Ok(26), Ok(26)));
        assert!(queue_pair("0x+1a").is_err() && "0x+4".parse::<OpcodePattern>().is_err());
    }

    proptest::proptest! {
        #[test]
        fn a_range_is_read_as_it_is_written(first in 1u64.., more in 0u64.., frame: u64) {
            let last = first.saturating_add(more);
            for (text, first, last) in [
                (format!("{first}-{last}"), first, last),
                (format!("{first}-"), first, u64::MAX),
                (format!("-{last}"), 1, last),
                (first.to_string(), first, first),
            ] {
                let range: FrameRange = text.parse().expect("a range");
                proptest::prop_assert_eq!(range.contains(frame), first <= frame && frame <= last);
                proptest::prop_assert_eq!(range.ends_at(frame), frame >= last);
            }
            if first < last {
                let backwards = format!("{last}-{first}").parse::<FrameRange>();
                proptest::prop_assert!(backwards.is_err());
            }
        }

        #[test]
        fn numbers_and_icrcs_are_read_as_they_are_written(number in 0u32..1 << 24, bytes: [u8; 4]) {
            for text in [format!("{number}"), format!("{number:#x}"), format!("0X{number:X}")] {
                proptest::prop_assert_eq!(queue_pair(&text), Ok(number));
            }
            let [a, b, c, d] = bytes.map(|byte| format!("{byte:02x}"));
            for text in [format!("{a}{b}{c}{d}"), format!("{a} {b} {c} {d}"), format!("{a}:{b}:{c}:{d}")] {
                proptest::prop_assert_eq!(icrc(&text), Ok(bytes));
                proptest::prop_assert!(icrc(&text[1..]).is_err() && icrc(&(text + "0")).is_err());
            }
        }

        #[test]
        fn no_text_makes_a_filter_panic(text in "[-0-9xX+ :a-fA-Fé_]{0,24}") {
            let _ = (text.parse::<FrameRange>(), text.parse::<OpcodePattern>());
            let _ = (queue_pair(&text), icrc(&text));
        }
    }
}
