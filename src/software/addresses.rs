//! The links of a device with several addresses, as one port.
//!
//! ```text
//!              engine
//!        fill │      ▲ sink
//!   ┌─────────▼──────┴──────────┐
//!   │ a slot of the main link   │── its own source address: sent from that slot
//!   │                           │── another one's: copied, and sent through that link
//!   └───┬──────────┬────────────┘
//!   10.0.0.1    fd00::1   …
//! ```
//!
//! Which link a burst leaves through shows only after it was made, in a slot of some link. So the
//! slot is the main link's, and the main link is the one that was needed last.

use std::net::IpAddr;
use std::os::fd::RawFd;

use crate::engine::{IdentificationRule, Port, PortCapabilities, SourcePorts, UnreachableKind};
use crate::link::{JoinError, Link, LinkStatistics};
use crate::time::Instant;
use crate::wire::{ReceivedBurst, SentBurst};

/// Bursts that are copied before those of the main link are sent.
const COPIES: usize = 8;

/// See the module's text.
pub(super) struct AddressLinks {
    links: Vec<Box<dyn Link>>,
    addresses: Vec<IpAddr>,
    capabilities: PortCapabilities,
    descriptors: Vec<RawFd>,
    main: usize,
    /// The link that is received from first, so that none starves.
    first: usize,
    copies: Vec<Copied>,
    used: usize,
    /// Packets with a source address that no link has.
    refused: u64,
}

/// A burst for a link that is not the main one.
struct Copied {
    link: usize,
    burst: SentBurst,
    bytes: Vec<u8>,
}

impl AddressLinks {
    /// One port of at least one link. If the links differ in what they can do, the port can do
    /// what all of them can.
    pub(super) fn new(links: Vec<Box<dyn Link>>) -> Self {
        let capabilities = links
            .iter()
            .map(|link| link.capabilities().clone())
            .reduce(common)
            .expect("a device has at least one address");
        let descriptors =
            links.iter().flat_map(|link| link.descriptors().iter().copied()).collect();
        Self {
            addresses: links.iter().map(|link| link.local_address()).collect(),
            links,
            capabilities,
            descriptors,
            main: 0,
            first: 0,
            copies: Vec::new(),
            used: 0,
            refused: 0,
        }
    }

    /// The link that joins a group: the first of its family.
    fn link_for(&mut self, group: IpAddr) -> Option<&mut Box<dyn Link>> {
        self.links.iter_mut().find(|link| link.local_address().is_ipv4() == group.is_ipv4())
    }

    /// Sends the copied bursts, in order for each link; returns the number of packets.
    fn send_copies(&mut self) -> usize {
        let mut packets = 0;
        for (index, link) in self.links.iter_mut().enumerate() {
            let mut copies =
                self.copies[..self.used].iter().filter(|copy| copy.link == index).peekable();
            if copies.peek().is_none() {
                continue;
            }
            // Larger than any sum of packets: what is there is sent.
            packets += link.transmit(usize::MAX, &mut |slot| {
                let copy = copies.next()?;
                slot[..copy.bytes.len()].copy_from_slice(&copy.bytes);
                Some(copy.burst)
            });
        }
        for copy in &self.copies[..self.used] {
            if copy.link >= self.links.len() {
                debug_assert!(false, "the engine made a burst from an address that is not its own");
                self.refused += copy.burst.packets() as u64;
                packets += copy.burst.packets();
            }
        }
        self.used = 0;
        packets
    }
}

/// Lets the engine fill slots of the main link until it has made a burst for that one; others
/// are copied. `None` ends the main link's transmission.
fn fill_main(
    place: (&[IpAddr], usize),
    copies: (&mut Vec<Copied>, &mut usize),
    slot: &mut [u8],
    fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
) -> Option<SentBurst> {
    let (addresses, main) = place;
    let (copies, used) = copies;
    while *used < COPIES {
        let burst = fill(slot)?;
        if burst.flow.source == addresses[main] {
            return Some(burst);
        }
        let link = addresses.iter().position(|address| *address == burst.flow.source);
        let link = link.unwrap_or(usize::MAX);
        if *used == copies.len() {
            copies.push(Copied { link, burst, bytes: Vec::new() });
        }
        let copy = &mut copies[*used];
        (copy.link, copy.burst) = (link, burst);
        copy.bytes.clear();
        copy.bytes.extend_from_slice(&slot[..burst.length]);
        *used += 1;
    }
    None
}

fn common(one: PortCapabilities, other: PortCapabilities) -> PortCapabilities {
    let same = one.identification == other.identification;
    PortCapabilities {
        mtu: one.mtu.min(other.mtu),
        // Links that count identifications differently agree on bursts of one packet.
        max_segments: if same { one.max_segments.min(other.max_segments) } else { 1 },
        max_burst_bytes: one.max_burst_bytes.min(other.max_burst_bytes),
        identification: if same { one.identification } else { IdentificationRule::Zero },
        source_ports: match (one.source_ports, other.source_ports) {
            (SourcePorts::Any, ports) | (ports, SourcePorts::Any) => ports,
            (SourcePorts::Only(ports), SourcePorts::Only(others)) => {
                SourcePorts::Only(ports.into_iter().filter(|port| others.contains(port)).collect())
            }
        },
    }
}

impl Port for AddressLinks {
    fn capabilities(&self) -> &PortCapabilities {
        &self.capabilities
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&ReceivedBurst<'_>)) -> usize {
        let count = self.links.len();
        let mut packets = 0;
        for step in 0..count {
            if packets >= budget {
                break;
            }
            let link = &mut self.links[(self.first + step) % count];
            packets += link.receive(budget - packets, sink);
        }
        self.first = (self.first + 1) % count;
        packets
    }

    fn is_pressed(&mut self) -> bool {
        self.links.iter_mut().any(|link| link.is_pressed())
    }

    fn take_unreachable(&mut self, look: bool, sink: &mut dyn FnMut(IpAddr, UnreachableKind)) {
        self.links.iter_mut().for_each(|link| link.take_unreachable(look, sink));
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<SentBurst>,
    ) -> usize {
        let mut packets = 0;
        while packets < budget {
            let Self { links, addresses, main, copies, used, .. } = &mut *self;
            let direct = links[*main].transmit(budget - packets, &mut |slot| {
                fill_main((addresses, *main), (copies, used), slot, fill)
            });
            if direct == 0
                && let Some(copy) = self.copies[..self.used].first()
                && copy.link < self.links.len()
            {
                self.main = copy.link;
            }
            let full = self.used == COPIES;
            packets += direct + self.send_copies();
            if !full {
                break;
            }
        }
        packets
    }
}

impl Link for AddressLinks {
    fn local_address(&self) -> IpAddr {
        self.links[0].local_address()
    }

    fn descriptors(&self) -> &[RawFd] {
        &self.descriptors
    }

    /// One link joins, or the device would get each datagram as often as it has addresses.
    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        let address = self.local_address();
        match self.link_for(group) {
            Some(link) => link.join(group),
            None => Err(JoinError::Family { group, address }),
        }
    }

    fn leave(&mut self, group: IpAddr) {
        if let Some(link) = self.link_for(group) {
            link.leave(group);
        }
    }

    fn statistics(&self) -> LinkStatistics {
        let each = self.links.iter().map(|link| link.statistics());
        let sum = each.reduce(|one, other| one.plus(&other)).unwrap_or_default();
        LinkStatistics { refused: sum.refused + self.refused, ..sum }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.links.iter().filter_map(|link| link.next_deadline()).min()
    }

    fn set_now(&mut self, now: Instant) {
        for link in &mut self.links {
            link.set_now(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{MemoryOptions, memory};
    use crate::wire::Flow;

    const LOCAL: [&str; 2] = ["10.0.0.1", "fd00::1"];
    const REMOTE: [&str; 2] = ["10.0.0.2", "fd00::2"];

    /// Two links of one device, and the ends that they reach.
    fn world() -> (AddressLinks, Vec<memory::MemoryLink>) {
        let (mut links, mut ends) = (Vec::new(), Vec::new());
        for (local, remote) in LOCAL.iter().zip(REMOTE) {
            let addresses = [local.parse().unwrap(), remote.parse().unwrap()];
            let (near, far) = memory::pair(addresses, &MemoryOptions::default()).unwrap();
            links.push(Box::new(near) as Box<dyn Link>);
            ends.push(far);
        }
        (AddressLinks::new(links), ends)
    }

    fn flow(link: usize) -> Flow {
        let (source, destination) = (LOCAL[link].parse().unwrap(), REMOTE[link].parse().unwrap());
        Flow { source, destination, source_port: 0xc000 }
    }

    /// Sends bursts through these links in this order, numbered from 0.
    fn send(device: &mut AddressLinks, budget: usize, order: &[usize]) -> usize {
        let mut numbered = order.iter().enumerate();
        device.transmit(budget, &mut |slot| {
            let (number, link) = numbered.next()?;
            slot[..40].fill(number as u8);
            Some(SentBurst {
                flow: flow(*link),
                traffic_class: 0,
                first_identification: 0,
                segment: 20,
                length: 40,
            })
        })
    }

    fn arrived(end: &mut memory::MemoryLink) -> Vec<u8> {
        let mut numbers = Vec::new();
        end.receive(1000, &mut |burst| {
            assert_eq!((burst.bytes.len(), burst.segment), (40, 20));
            assert!(burst.bytes.iter().all(|byte| *byte == burst.bytes[0]));
            numbers.push(burst.bytes[0]);
        });
        numbers
    }

    #[test]
    fn each_burst_leaves_through_the_link_of_its_source_address_in_order() {
        let (mut device, mut ends) = world();
        let order: Vec<usize> = (0..60).map(|number| usize::from(number % 7 > 2)).collect();
        assert_eq!(send(&mut device, 1000, &order), 120);
        for (link, end) in ends.iter_mut().enumerate() {
            let expected: Vec<u8> =
                (0..60).filter(|number| order[usize::from(*number)] == link).collect();
            assert_eq!(arrived(end), expected);
        }
    }

    #[test]
    fn the_link_that_is_needed_becomes_the_main_one_and_needs_no_copies() {
        let (mut device, mut ends) = world();
        assert_eq!(send(&mut device, 1000, &[1, 1]), 4);
        assert_eq!(device.main, 1);
        assert_eq!(send(&mut device, 6, &[1; 9]), 6, "the budget holds");
        assert_eq!(arrived(&mut ends[1]), [0, 1, 0, 1, 2]);
        assert!(arrived(&mut ends[0]).is_empty());
        assert_eq!(device.statistics().sent.packets, 10);
    }

    #[test]
    fn arrivals_of_all_links_are_received_within_the_budget() {
        let (mut device, mut ends) = world();
        for (link, end) in ends.iter_mut().enumerate() {
            let Flow { source, destination, source_port } = flow(link);
            let flow = Flow { source: destination, destination: source, source_port };
            let mut bursts = 0;
            end.transmit(1000, &mut |slot| {
                bursts += 1;
                slot[..20].fill(7);
                (bursts <= 3).then_some(SentBurst {
                    flow,
                    traffic_class: 0,
                    first_identification: 0,
                    segment: 20,
                    length: 20,
                })
            });
        }
        let mut seen = [0, 0];
        let mut sink = |burst: &ReceivedBurst<'_>| {
            seen[usize::from(burst.flow.source.is_ipv6())] += 1;
        };
        assert_eq!(device.receive(4, &mut sink), 4);
        assert_eq!(device.receive(4, &mut sink), 2);
        assert_eq!(seen, [3, 3]);
    }

    #[test]
    fn a_port_can_do_what_all_its_links_can() {
        let only = |ports: &[u16], identification| PortCapabilities {
            mtu: 1500,
            max_segments: 64,
            max_burst_bytes: 65_000,
            identification,
            source_ports: SourcePorts::Only(ports.to_vec()),
        };
        let zero = only(&[1, 2, 3], IdentificationRule::Zero);
        let same = common(zero.clone(), only(&[2, 3, 4], IdentificationRule::Zero));
        assert_eq!(same, only(&[2, 3], IdentificationRule::Zero));
        let other = common(zero, only(&[3], IdentificationRule::ZeroPlusIndex));
        assert_eq!((other.max_segments, other.identification), (1, IdentificationRule::Zero));
    }
}
