//! Any link with a capture of what passes: every packet, sent and received, as a frame that any
//! reader can check.
//!
//! ```text
//!   engine ─► burst ───────────────► link         each segment k, with the headers that its
//!               └─ frame headers ─► pcapng        ICRC covers: identification first + k, or
//!   engine ◄─ burst ◄─────────────── link         what the link's capabilities say, or, where
//!               └─ frame headers ─► pcapng        a socket hides it, what the ICRC tells
//! ```
//!
//! The file is handed to the kernel after each call, so it is readable whatever becomes of the
//! process. An error of the file stops the recording, never the traffic; what is missing is counted.

use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::RawFd;

use super::{JoinError, Link, LinkStatistics};
use crate::engine::{IdentificationRule, Port, PortCapabilities, UnreachableKind};
use crate::pcap::{Format, Writer};
use crate::time::Instant;
use crate::wire::icrc::{self, DONT_FRAGMENT, Verdict};
use crate::wire::{
    Ethernet, Flow, FrameHeaders, ICRC_LENGTH, Identification, Ipv4Header, ReceivedBurst,
    SentBurst, frame_headers,
};

/// What packets of ours have; of received ones a socket does not tell it. The ICRC masks it.
const HOP_LIMIT: u8 = 64;

/// A link that is recorded.
pub struct Recorded<L, W: Write + Send> {
    inner: L,
    capture: Capture<W>,
}

/// The file, and where the link's clock stands in it.
struct Capture<W: Write> {
    writer: Writer<W>,
    /// Nanoseconds from 1970 to [`Instant::ZERO`].
    epoch: u64,
    now: Instant,
    /// Handed to the kernel.
    frames: u64,
    /// Gathered since.
    gathered: u64,
    /// Frames that are missing because of `error`.
    missing: u64,
    error: Option<io::Error>,
}

impl<L: Link, W: Write + Send> Recorded<L, W> {
    /// Records `inner` into `file`, as pcapng with `interface` as the interface's name. The link's
    /// [`Instant::ZERO`] is `epoch` nanoseconds after 1970; the time of each frame is the one that
    /// [`Link::set_now`] told last.
    ///
    /// # Errors
    /// Those of `file` when the header is written.
    pub fn new(inner: L, file: W, interface: &str, epoch: u64) -> io::Result<Self> {
        let writer = Writer::named(file, Format::PcapNg, interface)?;
        let capture = Capture {
            writer,
            epoch,
            now: Instant::ZERO,
            frames: 0,
            gathered: 0,
            missing: 0,
            error: None,
        };
        Ok(Self { inner, capture })
    }

    /// Frames recorded so far.
    pub fn frames(&self) -> u64 {
        self.capture.frames
    }

    /// The error of the file that has ended the recording, if one has.
    pub fn error(&self) -> Option<&io::Error> {
        self.capture.error.as_ref()
    }

    /// The link that is recorded.
    pub fn inner(&self) -> &L {
        &self.inner
    }
}

/// The part of an IPv4 header that an ICRC covers and that is not in a [`Flow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbered {
    identification: u16,
    /// Flags and fragment offset.
    flags: u16,
}

impl<W: Write> Capture<W> {
    fn record_sent(&mut self, rule: IdentificationRule, burst: &SentBurst, bytes: &[u8]) {
        for (index, segment) in bytes.chunks(burst.segment.max(1)).enumerate() {
            let identification = rule.of_segment(burst.first_identification, index);
            let numbered = Numbered { identification, flags: DONT_FRAGMENT };
            self.record(&burst.flow, burst.traffic_class, numbered, segment);
        }
    }

    fn record_received(&mut self, burst: &ReceivedBurst<'_>) {
        for (index, segment) in burst.segments().enumerate() {
            let numbered = numbered(burst, index, segment);
            self.record(&burst.flow, burst.traffic_class, numbered, segment);
        }
    }

    fn record(&mut self, flow: &Flow, traffic_class: u8, numbered: Numbered, segment: &[u8]) {
        if self.error.is_some() {
            self.missing += 1;
            return;
        }
        let headers =
            frame_headers(flow, numbered.identification, traffic_class, HOP_LIMIT, segment.len());
        let mut bytes = [0; FrameHeaders::MAX_LENGTH];
        let bytes = &mut bytes[..headers.as_bytes().len()];
        bytes.copy_from_slice(headers.as_bytes());
        if flow.destination.is_ipv4() && numbered.flags != DONT_FRAGMENT {
            set_flags(&mut bytes[Ethernet::LENGTH..], numbered.flags);
        }
        let time = self.epoch.saturating_add(self.now.as_nanos());
        self.gathered += 1;
        if let Err(error) = self.writer.write(time, &[bytes, segment]) {
            self.give_up(error);
        }
    }

    /// Hands what was recorded to the kernel.
    fn flush(&mut self) {
        if self.error.is_some() {
            return;
        }
        match self.writer.flush() {
            Ok(()) => self.frames += std::mem::take(&mut self.gathered),
            Err(error) => self.give_up(error),
        }
    }

    /// Ends the recording. Of what was gathered the writer may have handed on a part: it counts as
    /// missing all the same, since its end may be cut.
    fn give_up(&mut self, error: io::Error) {
        self.missing += std::mem::take(&mut self.gathered);
        self.error = Some(error);
    }
}

/// Changes flags and checksum of an IPv4 header without options.
fn set_flags(bytes: &mut [u8], flags: u16) {
    let Some((header, _)) = Ipv4Header::parse(bytes) else { return };
    let header = Ipv4Header { flags, options: &[], ..header };
    Ipv4Header { checksum: header.computed_checksum(), ..header }.emit(bytes);
}

/// Identification and flags of segment `index` of a burst. Where the link does not see them, they
/// are those for which the segment's ICRC is right; if there are none, what a sender of ours uses.
fn numbered(burst: &ReceivedBurst<'_>, index: usize, segment: &[u8]) -> Numbered {
    let place = index as u16;
    let ours = Numbered { identification: place, flags: DONT_FRAGMENT };
    match burst.identification {
        Identification::Seen { first, flags } => {
            Numbered { identification: first.wrapping_add(place), flags }
        }
        Identification::Unseen if burst.flow.destination.is_ipv6() => ours,
        Identification::Unseen => {
            let candidates = match icrc::judge(burst, index, segment, false) {
                Verdict::Right => [ours, Numbered { identification: 0, ..ours }],
                Verdict::Recovered(identification) => [
                    Numbered { identification, flags: DONT_FRAGMENT },
                    Numbered { identification, flags: 0 },
                ],
                Verdict::Wrong => return ours,
            };
            let explains = |numbered: &Numbered| explains(&burst.flow, *numbered, segment);
            candidates.into_iter().find(explains).unwrap_or(ours)
        }
    }
}

/// Whether a segment's ICRC is right with these.
fn explains(flow: &Flow, numbered: Numbered, segment: &[u8]) -> bool {
    segment.split_last_chunk::<ICRC_LENGTH>().is_some_and(|(covered, icrc)| {
        *icrc == icrc::of_datagram(flow, numbered.identification, numbered.flags, covered)
    })
}

impl<L: Link, W: Write + Send> Port for Recorded<L, W> {
    fn capabilities(&self) -> &PortCapabilities {
        self.inner.capabilities()
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        let Self { inner, capture } = self;
        let packets = inner.receive(budget, &mut |burst| {
            capture.record_received(burst);
            sink(burst);
        });
        if packets > 0 {
            capture.flush();
        }
        packets
    }

    fn is_pressed(&mut self) -> bool {
        self.inner.is_pressed()
    }

    fn take_unreachable(&mut self, look: bool, sink: &mut dyn FnMut(IpAddr, UnreachableKind)) {
        self.inner.take_unreachable(look, sink);
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        let Self { inner, capture } = self;
        let rule = inner.capabilities().identification;
        let packets = inner.transmit(budget, &mut |slot| {
            let burst = fill(slot)?;
            capture.record_sent(rule, &burst, slot.get(..burst.length).unwrap_or(&[]));
            Some(burst)
        });
        if packets > 0 {
            capture.flush();
        }
        packets
    }
}

impl<L: Link, W: Write + Send> Link for Recorded<L, W> {
    fn local_address(&self) -> IpAddr {
        self.inner.local_address()
    }

    fn descriptors(&self) -> &[RawFd] {
        self.inner.descriptors()
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        self.inner.join(group)
    }

    fn leave(&mut self, group: IpAddr) {
        self.inner.leave(group);
    }

    fn statistics(&self) -> LinkStatistics {
        let below = self.inner.statistics();
        LinkStatistics { unrecorded: below.unrecorded + self.capture.missing, ..below }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline()
    }

    fn set_now(&mut self, now: Instant) {
        self.capture.now = now;
        self.inner.set_now(now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::link::memory::{self, MemoryOptions};
    use crate::pcap::Reader;
    use crate::wire::Frame;

    /// A file that the test can read while the link still writes.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A frame of a capture: nanoseconds since 1970, identification, flags, payload, right ICRC.
    #[derive(Debug, PartialEq, Eq)]
    struct Seen {
        time: u64,
        identification: u16,
        flags: u16,
        payload: Vec<u8>,
        is_right: bool,
    }

    fn frames_in(file: &[u8]) -> Vec<Seen> {
        let mut reader = Reader::new(file).unwrap();
        let mut frames = Vec::new();
        while let Some(record) = reader.next() {
            let record = record.unwrap();
            let time = record.time.unwrap();
            let frame = Frame::parse(record.data).unwrap();
            let (identification, flags) = match frame.network {
                crate::wire::Network::V4(ip) => {
                    assert_eq!(ip.checksum, ip.computed_checksum());
                    (ip.identification, ip.flags)
                }
                crate::wire::Network::V6(..) => (0, 0),
            };
            let icrc = frame.payload.last_chunk().copied();
            frames.push(Seen {
                time: time.as_nanos(),
                identification,
                flags,
                payload: frame.payload.to_vec(),
                is_right: icrc.is_some() && icrc == frame.computed_icrc(),
            });
        }
        frames
    }

    fn flow(version: u8) -> Flow {
        let (source, destination) = if version == 4 {
            (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]))
        } else {
            ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())
        };
        Flow { source, destination, source_port: 0xc123 }
    }

    /// Two packets of 40 and 24 bytes, whose ICRCs hold for these identifications.
    fn sealed(flow: &Flow, identifications: [u16; 2], flags: u16) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..64).collect();
        for (segment, identification) in bytes.chunks_mut(40).zip(identifications) {
            let (covered, icrc) = segment.split_last_chunk_mut::<ICRC_LENGTH>().unwrap();
            *icrc = icrc::of_datagram(flow, identification, flags, covered);
        }
        bytes
    }

    fn pair(version: u8) -> (memory::MemoryLink, memory::MemoryLink) {
        let Flow { source, destination, .. } = flow(version);
        memory::pair([source, destination], &MemoryOptions::default()).unwrap()
    }

    fn recorded<L: Link>(link: L, file: &Shared) -> Recorded<L, Shared> {
        Recorded::new(link, file.clone(), "test", 1_700_000_000_000_000_000).unwrap()
    }

    fn send(link: &mut impl Link, flow: Flow, bytes: &[u8], first: u16) {
        let mut once = Some(());
        link.transmit(64, &mut |slot| {
            once.take()?;
            slot[..bytes.len()].copy_from_slice(bytes);
            Some(SentBurst {
                flow,
                traffic_class: 0x6a,
                first_identification: first,
                segment: 40,
                length: bytes.len(),
            })
        });
    }

    #[test]
    fn both_directions_are_recorded_with_headers_that_fit_their_icrc() {
        for version in [4, 6] {
            let (a, b) = pair(version);
            let (sent, received) = (Shared::default(), Shared::default());
            let (mut a, mut b) = (recorded(a, &sent), recorded(b, &received));
            a.set_now(Instant::from_nanos(5));
            b.set_now(Instant::from_nanos(7));
            let bytes = sealed(&flow(version), [65_535, 0], DONT_FRAGMENT);
            send(&mut a, flow(version), &bytes, 65_535);
            assert_eq!(b.receive(64, &mut |_| {}), 2);
            let mut at_a = frames_in(&sent.0.lock().unwrap());
            let at_b = frames_in(&received.0.lock().unwrap());
            assert!(at_a.iter().all(|frame| frame.is_right && frame.time % 1000 == 5), "{at_a:?}");
            assert_eq!(at_a[0].payload, bytes[..40]);
            assert_eq!((at_a.len(), a.frames()), (2, 2));
            at_a.iter_mut().for_each(|frame| frame.time += 2);
            assert_eq!(at_a, at_b);
        }
    }

    /// A burst as a socket would deliver it.
    fn unseen(flow: Flow, bytes: &[u8]) -> ReceivedBurst<'_> {
        ReceivedBurst {
            flow,
            traffic_class: 0,
            identification: Identification::Unseen,
            segment: 40,
            bytes,
        }
    }

    #[test]
    fn an_identification_that_the_link_did_not_see_is_recovered() {
        let flow = flow(4);
        for (identifications, flags) in [
            ([0, 1], DONT_FRAGMENT),
            ([0, 0], DONT_FRAGMENT),
            ([0xbeef, 0xbef0], DONT_FRAGMENT),
            ([0x1234, 0x0007], 0),
        ] {
            let file = Shared::default();
            let mut recorded = recorded(pair(4).0, &file);
            let bytes = sealed(&flow, identifications, flags);
            recorded.capture.record_received(&unseen(flow, &bytes));
            recorded.capture.flush();
            let frames = frames_in(&file.0.lock().unwrap());
            assert!(frames.iter().all(|frame| frame.is_right), "{identifications:?} {frames:?}");
            let seen: Vec<(u16, u16)> =
                frames.iter().map(|frame| (frame.identification, frame.flags)).collect();
            assert_eq!(seen, identifications.map(|identification| (identification, flags)));
        }
    }

    #[test]
    fn a_damaged_packet_stays_damaged_in_the_capture() {
        let file = Shared::default();
        let mut recorded = recorded(pair(4).0, &file);
        let mut bytes = sealed(&flow(4), [0, 1], DONT_FRAGMENT);
        bytes[20] ^= 0x10;
        bytes[50] ^= 0x01;
        recorded.capture.record_received(&unseen(flow(4), &bytes));
        recorded.capture.record_received(&unseen(flow(4), &[1, 2]));
        recorded.capture.flush();
        let frames = frames_in(&file.0.lock().unwrap());
        assert_eq!(frames.len(), 3);
        assert!(frames.iter().all(|frame| !frame.is_right));
    }

    /// A file on a full disk.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let written = bytes.len().min(self.0);
            self.0 -= written;
            if written == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(written) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_ends_the_recording_but_not_the_traffic() {
        let (a, mut b) = pair(4);
        let mut a = Recorded::new(a, Full(300), "test", 0).unwrap();
        let bytes = sealed(&flow(4), [0, 1], DONT_FRAGMENT);
        for _ in 0..5 {
            send(&mut a, flow(4), &bytes, 0);
        }
        assert_eq!(a.error().map(io::Error::kind), Some(io::ErrorKind::StorageFull));
        assert_eq!(a.statistics().unrecorded + a.frames(), 10, "what is missing is counted");
        assert_eq!(b.receive(64, &mut |_| {}), 10);
    }
}
