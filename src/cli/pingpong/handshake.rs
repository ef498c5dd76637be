//! The exchange of addresses over TCP that the `ibv_*_pingpong` programs use.
//!
//! ```text
//!   client                          server
//!     │ ── LID:QPN:PSN:GID ──────────▶ │  connects its queue pair
//!     │ ◀────────── LID:QPN:PSN:GID ── │
//!     │ ── done ─────────────────────▶ │
//! ```
//!
//! Each address is text with a final NUL, 52 bytes: `0000:000011:6b2c1f:` and 32 hexadecimal digits.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use uroce::verbs::{Endpoint, Gid, Psn, Qpn};

/// Bytes of an address as text, with the final NUL.
const ADDRESS_LENGTH: usize = 52;
const DONE: &[u8; 5] = b"done\0";
/// A peer that has connected answers at once; one that does not is no pingpong.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why the addresses could not be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The name of the server means nothing here.
    #[error("{host} has no address ({error}); give the server's address, or mend its name")]
    Name {
        /// The name.
        host: String,
        /// What the system says.
        error: io::Error,
    },
    /// Nobody listens there.
    #[error("cannot reach {host} on TCP port {port}: {error}; start the server there first")]
    Connect {
        /// Name or address.
        host: String,
        /// TCP port.
        port: u16,
        /// What the system says.
        error: io::Error,
    },
    /// The port cannot be listened on.
    #[error("cannot listen on TCP port {port}: {error}; choose another one with --port")]
    Listen {
        /// TCP port.
        port: u16,
        /// What the system says.
        error: io::Error,
    },
    /// The connection broke, or the peer was silent.
    #[error(
        "the peer broke off the exchange of addresses ({}); see what it says, and give both ends the \
         same --transport",
        reason(.0)
    )]
    Broken(#[from] io::Error),
    /// Something else than an address came.
    #[error(
        "the peer sent {0:?}, which is no address of the form LID:QPN:PSN:GID: is its --transport another?"
    )]
    NotAnAddress(String),
    /// The peer has no GID, which is what ibv_rc_pingpong does by itself.
    #[error("the peer sent an address without GID; give it the index of its RoCE v2 GID with -g")]
    NoGid,
    /// The peer has fewer queue pairs.
    #[error("the peer has {peer} queue pairs and this end {own}: give both ends the same --num-qp")]
    FewerPairs {
        /// Ours.
        own: usize,
        /// The peer's.
        peer: usize,
    },
    /// A queue pair number that no queue pair of a program has.
    #[error("the peer sent the queue pair number {0}, which is reserved")]
    ReservedNumber(Qpn),
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        io::ErrorKind::WouldBlock => format!("nothing for {} s", PATIENCE.as_secs()),
        _ => error.to_string(),
    }
}

/// Writes an address as the peer expects it. The LID is 0: RoCE has none.
pub fn format(endpoint: &Endpoint) -> String {
    let (number, psn) = (endpoint.number.value(), endpoint.psn.value());
    format!("0000:{number:06x}:{psn:06x}:{:x}", endpoint.gid)
}

/// Reads an address.
///
/// # Errors
/// The text is not of the form `LID:QPN:PSN:GID`, or nobody can be reached there.
pub fn parse(text: &str) -> Result<Endpoint, HandshakeError> {
    let wrong = || HandshakeError::NotAnAddress(text.to_owned());
    let parts: Vec<&str> = text.split(':').collect();
    let [lid, number, psn, gid] = parts[..] else { return Err(wrong()) };
    let hex = |digits: &str, width| {
        let exact = digits.len() == width && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        exact.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    };
    hex(lid, 4).ok_or_else(wrong)?;
    let number = Qpn::new(hex(number, 6).ok_or_else(wrong)?);
    let psn = Psn::new(hex(psn, 6).ok_or_else(wrong)?);
    let gid: Gid =
        Some(gid).filter(|gid| gid.len() == 32).ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
    if gid.is_zero() {
        return Err(HandshakeError::NoGid);
    }
    if number.value() <= 1 || number == Qpn::MULTICAST {
        return Err(HandshakeError::ReservedNumber(number));
    }
    Ok(Endpoint { gid, number, psn })
}

/// A listening server.
pub struct Server {
    listener: TcpListener,
}

impl Server {
    /// Listens on all addresses, IPv4 and IPv6.
    ///
    /// # Errors
    /// The port is taken or reserved.
    pub fn listen(port: u16) -> Result<Self, HandshakeError> {
        let listen =
            || TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
        let listener = listen().map_err(|error| HandshakeError::Listen { port, error })?;
        Ok(Self { listener })
    }

    /// Waits for a client, learns its address, and tells it ours once `connect` has connected.
    ///
    /// # Errors
    /// The exchange broke, or `connect` failed.
    pub fn exchange<E: From<HandshakeError>>(
        &self,
        own: &Endpoint,
        connect: impl FnOnce(&Endpoint) -> Result<(), E>,
    ) -> Result<Endpoint, E> {
        let mut stream = self.accept()?;
        let peer = receive(&mut stream)?;
        connect(&peer)?;
        send(&mut stream, own)?;
        receive_done(&mut stream)?;
        Ok(peer)
    }

    /// Waits for a client.
    ///
    /// # Errors
    /// The system gives no connection.
    pub fn accept(&self) -> Result<TcpStream, HandshakeError> {
        let (stream, _) = self.listener.accept()?;
        set_patience(&stream)?;
        Ok(stream)
    }
}

/// The client's side: tells the server our address, learns its own, and says that we are ready
/// once `connect` has connected.
///
/// # Errors
/// Nobody listens, the exchange broke, or `connect` failed.
pub fn exchange<E: From<HandshakeError>>(
    host: &str,
    port: u16,
    own: &Endpoint,
    connect: impl FnOnce(&Endpoint) -> Result<(), E>,
) -> Result<Endpoint, E> {
    let mut stream = open(host, port)?;
    send(&mut stream, own)?;
    let peer = receive(&mut stream)?;
    connect(&peer)?;
    send_done(&mut stream)?;
    Ok(peer)
}

/// A connection to a server.
///
/// # Errors
/// Nobody listens.
pub fn open(host: &str, port: u16) -> Result<TcpStream, HandshakeError> {
    let stream = connect_to(host, port)?;
    set_patience(&stream)?;
    Ok(stream)
}

/// The client's last word.
///
/// # Errors
/// The exchange broke.
pub fn send_done(stream: &mut TcpStream) -> Result<(), HandshakeError> {
    Ok(stream.write_all(DONE)?)
}

/// The client's last word as the server hears it.
///
/// # Errors
/// The exchange broke.
pub fn receive_done(stream: &mut TcpStream) -> Result<(), HandshakeError> {
    let mut done = [0; DONE.len()];
    Ok(stream.read_exact(&mut done)?)
}

fn connect_to(host: &str, port: u16) -> Result<TcpStream, HandshakeError> {
    let failed = |error| HandshakeError::Connect { host: host.to_owned(), port, error };
    let unnamed = |error| HandshakeError::Name { host: host.to_owned(), error };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs().map_err(unnamed)? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

fn set_patience(stream: &TcpStream) -> Result<(), HandshakeError> {
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream.set_write_timeout(Some(PATIENCE))?)
}

fn send(stream: &mut TcpStream, endpoint: &Endpoint) -> Result<(), HandshakeError> {
    let mut message = format(endpoint).into_bytes();
    message.push(0);
    Ok(stream.write_all(&message)?)
}

fn receive(stream: &mut TcpStream) -> Result<Endpoint, HandshakeError> {
    let mut message = [0; ADDRESS_LENGTH];
    stream.read_exact(&mut message)?;
    let text = message.split(|byte| *byte == 0).next().unwrap_or_default();
    parse(&String::from_utf8_lossy(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_52_bytes_and_reads_back() {
        let endpoint = Endpoint {
            gid: Gid::from(std::net::IpAddr::from([10, 77, 0, 1])),
            number: Qpn::new(0x11),
            psn: Psn::new(0x6b_2c1f),
        };
        let text = format(&endpoint);
        assert_eq!(text, "0000:000011:6b2c1f:00000000000000000000ffff0a4d0001");
        assert_eq!(text.len() + 1, ADDRESS_LENGTH);
        assert_eq!(parse(&text).unwrap(), endpoint);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "0000:000011:6b2c1f",
            "0000:000011:6b2c1f:zz000000000000000000ffff0a4d0001",
            "0000:00011:6b2c1f:00000000000000000000ffff0a4d0001",
            "0000:+00011:6b2c1f:00000000000000000000ffff0a4d0001",
            "0000:000011:6b2c1f:ffff0a4d0001",
            "0000:000011:6b2c1f:00000000000000000000ffff0a4d0001:1",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let told = |text: &str| parse(text).unwrap_err().to_string();
        assert!(told(&format!("0000:000011:6b2c1f:{:032x}", 0)).contains("without GID"));
        for number in ["000000", "000001", "ffffff"] {
            let text = format!("0000:{number}:6b2c1f:00000000000000000000ffff0a4d0001");
            assert!(told(&text).contains("reserved"), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_address_that_can_be_reached_reads_back(
            bytes: [u8; 16],
            number in 2u32..0x00ff_ffff,
            psn in 0u32..1 << 24,
        ) {
            let gid = Gid::from_bytes(bytes);
            let endpoint = Endpoint { gid, number: Qpn::new(number), psn: Psn::new(psn) };
            let text = format(&endpoint);
            proptest::prop_assert_eq!(text.len() + 1, ADDRESS_LENGTH);
            match parse(&text) {
                Ok(found) => proptest::prop_assert_eq!((found, gid.is_zero()), (endpoint, false)),
                Err(error) => proptest::prop_assert!(gid.is_zero(), "{error}"),
            }
            // Digits of either case, as other programs may send them.
            proptest::prop_assert_eq!(parse(&text.to_uppercase()).ok(), parse(&text).ok());
            for end in 0..text.len() {
                proptest::prop_assert!(parse(&text[..end]).is_err(), "cut at {end}");
            }
        }

        #[test]
        fn what_is_taken_is_written_the_same(
            lid in "[0-9a-f]{3,5}",
            number in "[0-9a-f]{5,7}",
            psn in "[0-9a-f+]{6}",
            gid in "[0-9a-f]{31,33}",
            any in "[0-9a-f:é]{0,60}",
        ) {
            let _ = parse(&any);
            let text = format!("{lid}:{number}:{psn}:{gid}");
            if let Ok(endpoint) = parse(&text) {
                proptest::prop_assert_eq!(&format(&endpoint)[4..], &text[4..]);
            }
        }
    }
}
