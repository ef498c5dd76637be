//! A link whose packets are told to a tracer, as they are on the wire.

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::trace::Tracer;
use crate::engine::{Port, PortCapabilities};
use crate::link::{JoinError, Link, LinkStatistics};
use crate::time::Instant;
use crate::wire::{ReceivedBurst, SentBurst};
use crate::words::Direction;

/// See the module's text.
pub(super) struct Traced {
    inner: Box<dyn Link>,
    tracer: Arc<Tracer>,
    now: Instant,
}

impl Traced {
    pub(super) fn new(inner: Box<dyn Link>, tracer: Arc<Tracer>) -> Self {
        Self { inner, tracer, now: Instant::ZERO }
    }
}

impl Port for Traced {
    fn capabilities(&self) -> &PortCapabilities {
        self.inner.capabilities()
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        let (tracer, now) = (&self.tracer, self.now);
        self.inner.receive(budget, &mut |burst| {
            for segment in burst.segments() {
                tracer.packet(now, Direction::In, burst.flow, segment);
            }
            sink(burst);
        })
    }

    fn is_pressed(&mut self) -> bool {
        self.inner.is_pressed()
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        let (tracer, now) = (&self.tracer, self.now);
        self.inner.transmit(budget, &mut |slot| {
            let burst = fill(slot)?;
            for segment in slot[..burst.length].chunks(burst.segment.max(1)) {
                tracer.packet(now, Direction::Out, burst.flow, segment);
            }
            Some(burst)
        })
    }
}

impl Link for Traced {
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
        self.inner.statistics()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline()
    }

    fn set_now(&mut self, now: Instant) {
        self.now = now;
        self.inner.set_now(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::memory::{self, MemoryOptions};
    use crate::software::environment::Trace;
    use crate::wire::Flow;

    #[test]
    fn what_the_link_tells_of_its_receive_queue_comes_through() {
        let addresses = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let options = MemoryOptions { queue: 4, ..MemoryOptions::default() };
        let mut ends = memory::hub(&addresses, &options).unwrap();
        let tracer = Tracer::start(Trace { packets: true, ..Trace::default() }).unwrap().unwrap();
        let mut traced = Traced::new(Box::new(ends.remove(1)), tracer);
        let [source, destination] = addresses;
        let flow = Flow { source, destination, source_port: 0xc000 };
        let (traffic_class, first_identification) = (0, 0);
        let burst =
            SentBurst { flow, traffic_class, first_identification, segment: 50, length: 50 };
        for (count, is_pressed) in [(2, false), (1, true)] {
            assert_eq!(ends[0].transmit(count, &mut |_| Some(burst)), count);
            assert_eq!(traced.is_pressed(), is_pressed);
        }
    }
}
