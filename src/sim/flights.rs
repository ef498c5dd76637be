//! Flights: packets, and bursts of them, on their way. Those that are over are used again.

use crate::fault::{Delivery, Direction, PacketView};
use crate::time::Instant;
use crate::wire::{Flow, SentBurst};

use super::classify::Seen;
use super::credits::Told;
use super::matrix::Row;
use super::network::Network;

/// Flights at a time, at most.
const FLIGHT_LIMIT: usize = 16_384;
/// The byte of the BTH that the ICRC does not cover (FECN, BECN, reserved bits): a packet that is
/// damaged there is as good as any.
const UNPROTECTED: usize = 4;

/// What is known of a packet, or a burst of them, on its way.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    pub(super) to: usize,
    /// The end that it is addressed to, damaged or not.
    pub(super) end: Option<usize>,
    pub(super) flow: Flow,
    pub(super) traffic_class: u8,
    pub(super) first_identification: u16,
    pub(super) segment: usize,
    /// It asks its receiver to wait so many nanoseconds before it sends this PSN again.
    pub(super) pause: Option<(u32, u64)>,
    /// A receive has to be there for a packet of this kind, or it is dropped.
    pub(super) needs_receive: Option<Row>,
}

/// Its ticket, its bytes, and what its answers say about receives. Flights that are over are used
/// again, with the room of their lists.
pub(super) struct Flight {
    pub(super) ticket: Ticket,
    pub(super) bytes: Vec<u8>,
    pub(super) told: Vec<Told>,
}

/// Something that the world has to put on its calendar.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Instant,
    pub(super) flight: usize,
}

impl Network {
    /// A receiver that sees the identification sees only the first of a burst, and counts on.
    pub(super) fn may_follow(&self, train: usize, identification: u16) -> bool {
        let Flight { ticket, bytes, .. } = &self.flights[train];
        let index = bytes.len().div_ceil(ticket.segment.max(1)) as u16;
        !self.plan.sees_identification
            || ticket.first_identification.wrapping_add(index) == identification
    }

    /// One more packet of the same burst goes with those before it.
    pub(super) fn join_train(&mut self, train: usize, bytes: &[u8], seen: Option<Seen>) {
        let train = &mut self.flights[train];
        train.bytes.extend_from_slice(bytes);
        train.told.extend(seen.and_then(|seen| seen.told));
        let needs = train.ticket.needs_receive.or_else(|| needs_receive(seen));
        train.ticket.needs_receive = needs;
    }

    /// A packet gets a flight, or is lost because there are too many.
    pub(super) fn board(
        &mut self,
        to: usize,
        burst: &SentBurst,
        identification: u16,
        bytes: &[u8],
        seen: Option<Seen>,
    ) -> Option<usize> {
        let ticket = Ticket {
            to,
            end: None,
            flow: burst.flow,
            traffic_class: burst.traffic_class,
            first_identification: identification,
            segment: bytes.len(),
            pause: seen.and_then(|seen| Some((seen.psn, seen.pause?))),
            needs_receive: needs_receive(seen),
        };
        let told = seen.and_then(|seen| seen.told);
        self.take_flight(ticket, bytes, told.as_slice())
    }

    fn take_flight(&mut self, ticket: Ticket, bytes: &[u8], told: &[Told]) -> Option<usize> {
        if self.in_flight() >= FLIGHT_LIMIT {
            self.tally.lost += 1;
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.flights.push(Flight { ticket, bytes: Vec::new(), told: Vec::new() });
            self.flights.len() - 1
        });
        let flight = &mut self.flights[index];
        flight.ticket = ticket;
        flight.bytes.extend_from_slice(bytes);
        flight.told.extend_from_slice(told);
        Some(index)
    }

    pub(super) fn launch_together(&mut self, together: &mut Option<(Instant, usize)>) {
        if let Some((at, flight)) = together.take() {
            self.launch(at, flight);
        }
    }

    pub(super) fn deliver(&mut self, on_time: Instant, flight: usize, delivery: Delivery) {
        let ticket = &mut self.flights[flight].ticket;
        let capable = ticket.traffic_class & 3 != 0;
        if delivery.mark_ce && capable {
            ticket.traffic_class |= 3;
            self.tally.marked += 1 + u64::from(delivery.duplicate.is_some());
        }
        if let Some(hold) = delivery.duplicate {
            self.launch_copy(on_time + hold, flight);
        }
        if let Some(flip) = delivery.corruption {
            let flight = &mut self.flights[flight];
            flip.apply(&mut flight.bytes);
            if flip.byte != UNPROTECTED {
                flight.ticket.pause = None;
                flight.told.clear();
            }
        }
        self.launch(on_time + delivery.delay, flight);
    }

    fn launch_copy(&mut self, at: Instant, flight: usize) {
        let original = &mut self.flights[flight];
        let (bytes, told) =
            (std::mem::take(&mut original.bytes), std::mem::take(&mut original.told));
        let copy = self.take_flight(self.flights[flight].ticket, &bytes, &told);
        (self.flights[flight].bytes, self.flights[flight].told) = (bytes, told);
        if let Some(copy) = copy {
            self.launch(at, copy);
        }
    }

    pub(super) fn launch(&mut self, at: Instant, flight: usize) {
        let Flight { ticket, bytes, .. } = &self.flights[flight];
        let destination = PacketView::of(bytes, Direction::In).destination;
        let to_group = ticket.flow.destination.is_multicast();
        self.inbound_to_group += usize::from(to_group);
        let end = self.end_of(destination).filter(|_| !to_group);
        self.flights[flight].ticket.end = end;
        if let Some(end) = end {
            self.channels[end].inbound += 1;
        }
        self.scheduled.push(Arrival { at, flight });
    }

    /// A flight has been taken: its place and room are free.
    pub(super) fn land(&mut self, flight: usize, mut bytes: Vec<u8>, mut told: Vec<Told>) {
        bytes.clear();
        told.clear();
        (self.flights[flight].bytes, self.flights[flight].told) = (bytes, told);
        self.free.push(flight);
    }
}

fn needs_receive(seen: Option<Seen>) -> Option<Row> {
    seen.filter(|seen| seen.needs_receive).and_then(|seen| seen.row)
}
