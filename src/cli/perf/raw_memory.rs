//! The ceiling of the in-memory link: the same datagrams through the bare link, copied in and
//! copied out, without headers, checks or a protocol.

use std::net::{IpAddr, Ipv4Addr};

use uroce::engine::Port;
use uroce::link::MemoryLink;
use uroce::link::memory::{MemoryOptions, pair};
use uroce::software::clock;
use uroce::wire::{Flow, SentBurst};

use super::asker::{Moved, Times, Until};
use super::plan::{Exchange, batch};
use crate::cli::output::Failure;

/// Addresses of the two ends.
pub(super) const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];
/// Bursts that are sent before they are received.
const BURSTS: usize = 4;

/// Deep enough that a window of small packets fits; no descriptor, hence no system call.
pub(super) fn options() -> MemoryOptions {
    MemoryOptions { queue: 1024, descriptor: false, ..MemoryOptions::default() }
}

/// The bare link.
pub(super) struct RawMemory {
    ends: [MemoryLink; 2],
    from: Vec<u8>,
    to: Vec<u8>,
}

impl RawMemory {
    pub(super) fn open() -> Result<Self, Failure> {
        let (first, second) = pair(ADDRESSES, &options())?;
        let bytes = options().max_burst_bytes;
        Ok(Self { ends: [first, second], from: vec![0x5a; bytes], to: vec![0; bytes] })
    }

    /// Sends `total` bytes as datagrams from an end, at most one burst, and receives them.
    fn carry(&mut self, end: usize, segment: usize, lengths: &[usize]) {
        let flow =
            Flow { source: ADDRESSES[end], destination: ADDRESSES[1 - end], source_port: 0xc000 };
        let mut lengths = lengths.iter().copied();
        let from = &self.from;
        self.ends[end].transmit(usize::MAX, &mut |slot| {
            let length = lengths.next()?;
            slot[..length].copy_from_slice(&from[..length]);
            Some(SentBurst {
                flow,
                traffic_class: 0,
                first_identification: 0,
                segment: segment.min(length),
                length,
            })
        });
        let to = &mut self.to;
        self.ends[1 - end].receive(usize::MAX, &mut |burst| {
            to[..burst.bytes.len()].copy_from_slice(burst.bytes);
        });
        std::hint::black_box(to);
    }

    /// Datagrams one way. Returns how many, and the time.
    pub(super) fn stream(&mut self, segment: usize, until: Until) -> Moved {
        let most = batch(segment) as u64;
        let start = clock::now();
        let mut sent = 0;
        while until.goes_on(start, sent) {
            let mut lengths = [0; BURSTS];
            let mut bursts = 0;
            while bursts < BURSTS && (bursts == 0 || until.goes_on(start, sent)) {
                let count = match until {
                    Until::Count(all) => most.min(all - sent),
                    Until::Time(_) => most,
                };
                lengths[bursts] = segment * count as usize;
                sent += count;
                bursts += 1;
            }
            self.carry(0, segment, &lengths[..bursts]);
        }
        Moved { messages: sent, nanoseconds: clock::now().since(start) }
    }

    /// Round trips.
    pub(super) fn ping(&mut self, exchange: Exchange, until: Until, times: &mut Times) -> Moved {
        let mut moved = Moved::default();
        let start = clock::now();
        let mut before = start;
        while until.goes_on(start, moved.messages) {
            for (end, total) in [exchange.request, exchange.reply].into_iter().enumerate() {
                let most = batch(exchange.segment) * exchange.segment;
                let mut left = total;
                while left > 0 {
                    let length = most.min(left);
                    self.carry(end, exchange.segment, &[length]);
                    left -= length;
                }
            }
            let now = clock::now();
            times.add(now.since(before));
            before = now;
            moved.messages += 1;
        }
        moved.nanoseconds = before.since(start);
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datagram_arrives_whole() {
        let mut raw = RawMemory::open().unwrap();
        let moved = raw.stream(4112, Until::Count(100));
        assert_eq!(moved.messages, 100);
        let [sent, received] = [&raw.ends[0], &raw.ends[1]].map(uroce::link::Link::statistics);
        assert_eq!((sent.sent.packets, received.received.packets), (100, 100));
        assert_eq!((received.received.bytes, received.overflowed), (411_200, 0));
        assert!(raw.to[..4112].iter().all(|byte| *byte == 0x5a));
    }
}
