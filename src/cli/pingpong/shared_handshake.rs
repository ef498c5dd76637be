//! The exchanges of addresses of `ibv_srq_pingpong` and `ibv_xsrq_pingpong`.
//!
//! ```text
//!   srq:   256 addresses each way, as that of one queue pair; unused ones are zero; then "done"
//!   xsrq:  client                                              server
//!            │ ── LID:TGT:INI:PSN:SRQ:GID ──────────────────▶ │
//!            │ ◀────────────────── LID:TGT:INI:PSN:SRQ:GID ── │  both connect, messages go to and fro
//!            │ ── END ──────────────────────────────────────▶ │  when the client has all it wants
//!            │ ◀────────────────────────────────────── END ── │  when the server has
//! ```
//!
//! An address of `xsrq` is text with a final NUL, 66 bytes.

use std::io::{Read, Write};
use std::net::TcpStream;

use uroce::verbs::{Endpoint, Gid, Psn, Qpn, Srqn};

use super::handshake::{self, HandshakeError, Server};

/// Addresses that `ibv_srq_pingpong` sends, used or not.
pub const MOST_PAIRS: usize = 256;
/// What it sends for a queue pair that it does not have.
const UNUSED: &str = "0000:000000:000000:00000000000000000000000000000000";
/// Bytes of an address of `ibv_xsrq_pingpong`, with the final NUL.
const XRC_LENGTH: usize = 66;
const END: &[u8; 4] = b"END\0";

/// What the two ends of an extended reliable connection tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcAddress {
    /// Address of the port.
    pub gid: Gid,
    /// The queue pair that receives.
    pub target: Qpn,
    /// The queue pair that sends.
    pub initiator: Qpn,
    /// PSN of its first packet.
    pub psn: Psn,
    /// The shared receive queue.
    pub queue: Srqn,
}

/// Tells and learns the addresses of all queue pairs, the client first; `connect` connects them.
///
/// # Errors
/// The exchange broke, the peer has fewer queue pairs than we, or `connect` failed.
pub fn exchange_pairs<E: From<HandshakeError>>(
    host: Option<(&str, u16)>,
    server: Option<&Server>,
    own: &[Endpoint],
    connect: impl FnOnce(&[Endpoint]) -> Result<(), E>,
) -> Result<Vec<Endpoint>, E> {
    let mut stream = open(host, server)?;
    if host.is_some() {
        send_pairs(&mut stream, own)?;
    }
    let peers = receive_pairs(&mut stream, own.len())?;
    connect(&peers)?;
    if host.is_none() {
        send_pairs(&mut stream, own)?;
        handshake::receive_done(&mut stream)?;
    } else {
        handshake::send_done(&mut stream)?;
    }
    Ok(peers)
}

fn open(host: Option<(&str, u16)>, server: Option<&Server>) -> Result<TcpStream, HandshakeError> {
    match (host, server) {
        (Some((host, port)), _) => handshake::open(host, port),
        (None, Some(server)) => server.accept(),
        (None, None) => unreachable!("a server was made for want of a host"),
    }
}

fn send_pairs(stream: &mut TcpStream, own: &[Endpoint]) -> Result<(), HandshakeError> {
    let mut all = Vec::with_capacity(MOST_PAIRS * (UNUSED.len() + 1));
    for index in 0..MOST_PAIRS {
        let text = own.get(index).map_or_else(|| UNUSED.to_owned(), handshake::format);
        all.extend_from_slice(text.as_bytes());
        all.push(0);
    }
    Ok(stream.write_all(&all)?)
}

/// The peer's first addresses; those behind them are not looked at.
fn receive_pairs(stream: &mut TcpStream, count: usize) -> Result<Vec<Endpoint>, HandshakeError> {
    let mut peers = Vec::with_capacity(count);
    for index in 0..MOST_PAIRS {
        let text = receive_text(stream, UNUSED.len() + 1)?;
        if index >= count {
            continue;
        }
        if text == UNUSED {
            return Err(HandshakeError::FewerPairs { own: count, peer: index });
        }
        peers.push(handshake::parse(&text)?);
    }
    Ok(peers)
}

fn receive_text(stream: &mut TcpStream, length: usize) -> Result<String, HandshakeError> {
    let mut message = vec![0; length];
    stream.read_exact(&mut message)?;
    let text = message.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Tells and learns the address of an extended reliable connection, the client first. The stream
/// stays for [`finish`].
///
/// # Errors
/// Nobody listens, or the exchange broke.
pub fn exchange_xrc(
    host: Option<(&str, u16)>,
    server: Option<&Server>,
    own: &XrcAddress,
) -> Result<(XrcAddress, TcpStream), HandshakeError> {
    let mut stream = open(host, server)?;
    let mut message = format_xrc(own).into_bytes();
    message.push(0);
    if host.is_some() {
        stream.write_all(&message)?;
    }
    let peer = parse_xrc(&receive_text(&mut stream, XRC_LENGTH)?)?;
    if host.is_none() {
        stream.write_all(&message)?;
    }
    Ok((peer, stream))
}

/// Both ends have all they want; neither goes before the other has.
///
/// # Errors
/// The exchange broke.
pub fn finish(stream: &mut TcpStream, is_client: bool) -> Result<(), HandshakeError> {
    let mut end = [0; END.len()];
    if is_client {
        stream.write_all(END)?;
    }
    stream.read_exact(&mut end)?;
    if &end != END {
        return Err(HandshakeError::NotAnAddress(String::from_utf8_lossy(&end).into_owned()));
    }
    if !is_client {
        stream.write_all(END)?;
    }
    Ok(())
}

/// Writes an address as the peer expects it. The LID is 0: RoCE has none.
pub fn format_xrc(own: &XrcAddress) -> String {
    let XrcAddress { gid, target, initiator, psn, queue } = own;
    let (target, initiator, psn) = (target.value(), initiator.value(), psn.value());
    format!("0000:{target:06x}:{initiator:06x}:{psn:06x}:{:06x}:{gid:x}", queue.value())
}

/// Reads an address.
///
/// # Errors
/// The text is not of the form `LID:TGT:INI:PSN:SRQ:GID`, or nobody can be reached there.
pub fn parse_xrc(text: &str) -> Result<XrcAddress, HandshakeError> {
    let wrong = || HandshakeError::NotAnAddress(text.to_owned());
    let parts: Vec<&str> = text.split(':').collect();
    let [lid, target, initiator, psn, queue, gid] = parts[..] else { return Err(wrong()) };
    // What the two kinds of address have in common is checked in one place.
    let endpoint = |number: &str| handshake::parse(&format!("{lid}:{number}:{psn}:{gid}"));
    let (target, initiator) = (endpoint(target)?, endpoint(initiator)?);
    let is_hex = queue.len() == 6 && queue.bytes().all(|digit| digit.is_ascii_hexdigit());
    let queue = u32::from_str_radix(queue, 16).ok().filter(|_| is_hex).ok_or_else(wrong)?;
    Ok(XrcAddress {
        gid: target.gid,
        target: target.number,
        initiator: initiator.number,
        psn: target.psn,
        queue: Srqn::new(queue),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_xrc_address_is_66_bytes_and_reads_back() {
        let address = XrcAddress {
            gid: Gid::from(std::net::IpAddr::from([10, 77, 0, 1])),
            target: Qpn::new(0x11),
            initiator: Qpn::new(0x12),
            psn: Psn::new(0x6b_2c1f),
            queue: Srqn::new(0xab_cdef),
        };
        let text = format_xrc(&address);
        let expected = "0000:000011:000012:6b2c1f:abcdef:00000000000000000000ffff0a4d0001";
        assert_eq!(text, expected);
        assert_eq!(text.len() + 1, XRC_LENGTH);
        assert_eq!(parse_xrc(&text).unwrap(), address);
        for wrong in ["", &expected[..60], &expected.replace("abcdef", "+bcdef")] {
            assert!(parse_xrc(wrong).is_err(), "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_xrc_address_reads_back_and_no_part_of_it(
            bytes: [u8; 16],
            numbers in proptest::array::uniform2(2u32..0x00ff_ffff),
            others in proptest::array::uniform2(0u32..1 << 24),
        ) {
            proptest::prop_assume!(bytes != [0; 16]);
            let address = XrcAddress {
                gid: Gid::from_bytes(bytes),
                target: Qpn::new(numbers[0]),
                initiator: Qpn::new(numbers[1]),
                psn: Psn::new(others[0]),
                queue: Srqn::new(others[1]),
            };
            let text = format_xrc(&address);
            proptest::prop_assert_eq!(text.len() + 1, XRC_LENGTH);
            proptest::prop_assert_eq!(parse_xrc(&text).ok(), Some(address));
            for end in 0..text.len() {
                proptest::prop_assert!(parse_xrc(&text[..end]).is_err(), "cut at {end}");
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "([0-9a-f]{0,33}:){0,7}[0-9a-fé]{0,33}") {
            let _ = parse_xrc(&text);
        }
    }
}
