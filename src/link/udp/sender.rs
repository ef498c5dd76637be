//! What happens when the kernel takes all, some or none of the bursts.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::AsFd;

use socket2::Socket;

use super::icmp::Notices;
use super::open::{self, UdpError, UdpOptions};
use super::send::{Cut, SendBatch};
use crate::engine::UnreachableKind;
use crate::link::LinkStatistics;
use crate::wire::{SentBurst, icrc};

/// The sockets to send from and the bursts on their way to them.
pub(super) struct Sender {
    pub(super) sockets: Vec<Socket>,
    /// The source port of each socket.
    pub(super) ports: Vec<u16>,
    /// The traffic class of each socket.
    classes: Vec<SocketClass>,
    pub(super) batch: SendBatch,
    pub(super) cut: Cut,
    notices: Notices,
}

/// The traffic class that a socket gives to datagrams beside which no other one is told. Telling it
/// takes the kernel a tenth of what a small datagram takes.
#[derive(Clone, Copy, Debug, Default)]
struct SocketClass {
    set: u8,
    /// That of the last flush's first datagram.
    last: u8,
}

/// What to do about a message that the kernel did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Try the same one again: the error was left over from an earlier datagram.
    Again,
    /// The kernel cannot cut this burst: we must.
    Cut,
    /// Larger than the path allows.
    Oversized,
    /// Lost; the ones after it may pass.
    Lost,
    /// Lost with all after it: the socket's buffer is full.
    Full,
}

/// A message is tried so often again after errors that may be those of earlier datagrams: others may
/// arrive while these are read.
const MAX_TRIES: u32 = 4;

impl Refusal {
    /// `merged`: the kernel was to cut the message; `tries`: how often it was refused before.
    fn of(error: &io::Error, merged: bool, tries: u32) -> Self {
        match error.raw_os_error().unwrap_or(0) {
            libc::EAGAIN => Self::Full,
            libc::EINVAL | libc::EIO | libc::EOPNOTSUPP if merged => Self::Cut,
            // ICMP may have said it of another datagram.
            libc::EMSGSIZE if tries > 0 => Self::Oversized,
            // A queue below the socket is full, or a firewall rule drops the packet.
            libc::ENOBUFS | libc::ENOMEM | libc::EPERM => Self::Lost,
            _ if tries >= MAX_TRIES => Self::Lost,
            _ => Self::Again,
        }
    }
}

impl Sender {
    pub(super) fn open(options: &UdpOptions) -> Result<Self, UdpError> {
        let (ports, sockets): (Vec<u16>, Vec<Socket>) =
            open::send_sockets(options)?.into_iter().unzip();
        let by_kernel = options.segmentation && sockets.iter().all(open::can_segment);
        let cut = if by_kernel { Cut::ByKernel } else { Cut::ByUs };
        let classes = vec![SocketClass::default(); sockets.len()];
        let (batch, notices) = (SendBatch::new(), Notices::default());
        Ok(Self { sockets, ports, classes, batch, cut, notices })
    }

    /// The socket's own traffic class follows what is sent, once it is the same two times.
    fn settle_class(&mut self, socket: usize, first: usize) -> u8 {
        let class = &mut self.classes[socket];
        if let Some(wanted) = self.batch.traffic_class(socket, first) {
            if wanted != class.set
                && wanted == class.last
                && open::set_traffic_class(&self.sockets[socket], wanted).is_ok()
            {
                class.set = wanted;
            }
            class.last = wanted;
        }
        class.set
    }

    /// The socket that sends from a port.
    pub(super) fn socket_of(&self, source_port: u16) -> Option<usize> {
        self.ports.iter().position(|port| *port == source_port)
    }

    /// Hands out what ICMP has told; with `look` also what no send has failed for yet.
    pub(super) fn take_unreachable(
        &mut self,
        look: bool,
        statistics: &mut LinkStatistics,
        sink: &mut dyn FnMut(IpAddr, UnreachableKind),
    ) {
        if look {
            self.notices.look(&self.sockets);
        }
        if self.notices.read > 0 {
            statistics.icmp_unreachable += std::mem::take(&mut self.notices.read);
            self.notices.take(sink);
        }
    }

    /// Sends all bursts in the slots, in order for each socket, and frees the slots.
    pub(super) fn flush(&mut self, statistics: &mut LinkStatistics) {
        if self.batch.is_empty() {
            return;
        }
        for socket in 0..self.sockets.len() {
            let mut first = 0;
            while let Some(slot) = self.send_from(socket, first, statistics) {
                let (burst, bytes) = self.batch.cut_by_us(slot);
                reseal(&burst, bytes);
                statistics.split += 1;
                first = slot;
            }
        }
        self.batch.clear();
    }

    /// Sends the bursts from slot `first` on that leave through `socket`. Returns the slot of one
    /// that the kernel would not cut; it and the ones after it are not sent.
    fn send_from(
        &mut self,
        socket: usize,
        first: usize,
        statistics: &mut LinkStatistics,
    ) -> Option<usize> {
        let class = self.settle_class(socket, first);
        let messages = self.batch.build(socket, first, class);
        let (mut next, mut tries) = (0, 0);
        while next < messages {
            match self.batch.send(self.sockets[socket].as_fd(), next) {
                Ok(count) => {
                    self.count_sent(next..next + count, statistics);
                    next += count;
                    tries = 0;
                }
                Err(error) => {
                    let message = self.batch.message(next);
                    match Refusal::of(&error, message.packets > 1, tries) {
                        Refusal::Again => {
                            tries += 1;
                            self.notices.read(self.sockets[socket].as_fd());
                        }
                        Refusal::Cut => return Some(message.slot),
                        refusal => {
                            next = self.count_refused(next..messages, refusal, statistics);
                            tries = 0;
                        }
                    }
                }
            }
        }
        None
    }

    fn count_sent(&self, messages: Range<usize>, statistics: &mut LinkStatistics) {
        for index in messages {
            let message = self.batch.message(index);
            statistics.sent.add(message.packets, message.bytes);
        }
    }

    /// Counts the first message, or all if the socket is full; returns the next one to try.
    fn count_refused(
        &self,
        messages: Range<usize>,
        refusal: Refusal,
        statistics: &mut LinkStatistics,
    ) -> usize {
        let end = if refusal == Refusal::Full { messages.end } else { messages.start + 1 };
        let packets: usize =
            (messages.start..end).map(|index| self.batch.message(index).packets).sum();
        statistics.refused += packets as u64;
        if refusal == Refusal::Oversized {
            statistics.oversized += packets as u64;
        }
        end
    }
}

/// Makes the ICRCs of a burst right for datagrams that leave one by one: their identification is
/// 0, not the segment's index.
fn reseal(burst: &SentBurst, bytes: &mut [u8]) {
    for (index, segment) in bytes.chunks_mut(burst.segment).enumerate() {
        icrc::renumber(&burst.flow, segment, index as u16, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::wire::icrc::{DONT_FRAGMENT, Verdict};
    use crate::wire::{Flow, ICRC_LENGTH};

    fn error(number: i32) -> io::Error {
        io::Error::from_raw_os_error(number)
    }

    #[test]
    fn each_refusal_has_its_own_consequence() {
        let refusal = |number, merged, tried| Refusal::of(&error(number), merged, tried);
        assert_eq!(refusal(libc::EAGAIN, true, 0), Refusal::Full);
        assert_eq!(refusal(libc::EIO, true, 0), Refusal::Cut);
        assert_eq!(refusal(libc::EINVAL, true, MAX_TRIES), Refusal::Cut);
        assert_eq!(refusal(libc::EINVAL, false, MAX_TRIES), Refusal::Lost, "no burst left to cut");
        assert_eq!(refusal(libc::EMSGSIZE, false, 1), Refusal::Oversized);
        assert_eq!(refusal(libc::ENOBUFS, false, 0), Refusal::Lost);
        assert_eq!(refusal(libc::EPERM, false, 0), Refusal::Lost);
        assert_eq!(refusal(libc::ECONNREFUSED, false, 0), Refusal::Again);
        assert_eq!(refusal(libc::ECONNREFUSED, false, MAX_TRIES), Refusal::Lost);
    }

    #[test]
    fn a_burst_that_we_cut_gets_the_icrc_of_single_datagrams_unless_it_was_wrong() {
        let (source, destination) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let flow = Flow { source, destination, source_port: 0xc000 };
        let mut bytes: Vec<u8> = (0..100u8).collect();
        for (index, segment) in bytes.chunks_mut(40).enumerate() {
            let (covered, icrc) = segment.split_last_chunk_mut::<ICRC_LENGTH>().unwrap();
            *icrc = icrc::of_datagram(&flow, index as u16, DONT_FRAGMENT, covered);
        }
        bytes[99] ^= 1;
        let burst = SentBurst {
            flow,
            traffic_class: 0,
            first_identification: 0,
            segment: 40,
            length: bytes.len(),
        };
        reseal(&burst, &mut bytes);
        let verdicts: Vec<Verdict> = bytes
            .chunks(40)
            .map(|segment| {
                // Each alone, as its receiver on a raw socket would see it.
                let alone = SentBurst { segment: segment.len(), length: segment.len(), ..burst };
                icrc::judge(&alone.as_received(segment), 0, segment, true)
            })
            .collect();
        assert_eq!(verdicts, [Verdict::Right, Verdict::Right, Verdict::Wrong]);
    }
}
