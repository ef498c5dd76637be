//! A UDP socket as a link has them, without a link: what the kernel can do at best.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockAddr, Socket};

use super::open::{self, UdpError, UdpOptions};
use super::receive::ReceiveBatch;
use super::sys;

/// One socket with the options of those that a [`super::UdpLink`] receives on and sends from. Nobody
/// else shares its port, and it knows no protocol.
pub struct BareSocket {
    socket: Socket,
    options: UdpOptions,
    batch: ReceiveBatch,
    sleeps: bool,
}

impl BareSocket {
    /// Opens it on a free port of the options' address. With `nap` whoever receives sleeps in the
    /// kernel, for so long at most; without, nobody waits.
    ///
    /// # Errors
    /// [`UdpError`], which says what to do.
    pub fn open(options: UdpOptions, nap: Option<Duration>) -> Result<Self, UdpError> {
        let (socket, batch) = (open::bare_socket(&options, nap)?, ReceiveBatch::new());
        Ok(Self { socket, options, batch, sleeps: nap.is_some() })
    }

    /// The port that it is bound to.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn port(&self) -> io::Result<u16> {
        let address = self.socket.local_addr()?.as_socket();
        Ok(address.map_or(0, |address| address.port()))
    }

    /// From now on what is sent at once is cut into datagrams of so many bytes (UDP_SEGMENT).
    ///
    /// # Errors
    /// What the kernel answers; older ones cannot.
    pub fn cut(&self, segment: u16) -> io::Result<()> {
        sys::set_option(self.socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, segment.into())
    }

    /// A port of another host, as [`BareSocket::send`] wants it.
    pub fn destination(&self, address: IpAddr, port: u16) -> SockAddr {
        SockAddr::from(self.options.socket_address(address, port))
    }

    /// Hands bytes to the kernel.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn send(&self, bytes: &[u8], to: &SockAddr) -> io::Result<()> {
        self.socket.send_to(bytes, to).map(drop)
    }

    /// Receives what the kernel has merged into one datagram, with everything that it says beside it:
    /// the bytes, and who sent them. Nothing if none has come.
    ///
    /// # Errors
    /// What the kernel answers, other than that none has come.
    pub fn receive(&mut self) -> io::Result<Option<(&[u8], Option<SocketAddr>)>> {
        match self.batch.receive_one(self.socket.as_fd(), self.sleeps) {
            Ok(_) => {}
            Err(error) if is_nothing(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        let datagram = self.batch.datagram(0);
        let source = datagram.source;
        let source = source.map(|(address, port)| self.options.socket_address(address, port));
        Ok(Some((datagram.bytes, source)))
    }
}

fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    [WouldBlock, TimedOut, Interrupted].contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_through_and_its_sender_is_told() {
        let options = UdpOptions::new(IpAddr::from([127, 0, 0, 1]), 65_535);
        let nap = Some(Duration::from_secs(20));
        let [mut one, mut other] =
            [nap, None].map(|nap| BareSocket::open(options.clone(), nap).unwrap());
        assert_eq!(other.receive().unwrap(), None);
        other.cut(100).unwrap();
        other.send(&[7; 250], &other.destination(options.address, one.port().unwrap())).unwrap();
        let mut bytes = Vec::new();
        while bytes.len() < 250 {
            let (part, from) = one.receive().unwrap().expect("it comes");
            bytes.extend_from_slice(part);
            assert_eq!(from.unwrap().port(), other.port().unwrap());
        }
        assert_eq!(bytes, [7; 250]);
        assert_eq!(other.receive().unwrap(), None);
    }
}
