//! Fills a slot with the packets of one burst: equal sizes, the last may be shorter.

use super::congestion::on_the_line;
use crate::memory::WORTH_SUMMING;
use crate::wire::{Bth, Crc, Flow, Headers, ICRC_LENGTH, IdentificationRule, SentBurst, icrc, pad};

/// What the slot's port allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BurstRules {
    pub(crate) max_segments: usize,
    pub(crate) identification: IdentificationRule,
}

/// A slot that is being filled.
pub(crate) struct BurstWriter<'a> {
    slot: &'a mut [u8],
    rules: BurstRules,
    /// Flow and traffic class, once the first packet has given them.
    route: Option<(Flow, u8)>,
    first_identification: u16,
    segment: usize,
    length: usize,
    packets: usize,
    /// A shorter packet was added: it is the last.
    closed: bool,
    /// Bytes on the line after which no further packet is added; the first one always may.
    limit: usize,
}

impl<'a> BurstWriter<'a> {
    pub(crate) fn new(slot: &'a mut [u8], rules: BurstRules, first_identification: u16) -> Self {
        Self {
            slot,
            rules,
            route: None,
            first_identification,
            segment: 0,
            length: 0,
            packets: 0,
            closed: false,
            limit: usize::MAX,
        }
    }

    /// The next packet goes to this flow. Returns whether the burst does too.
    pub(crate) fn bind(&mut self, flow: &Flow, traffic_class: u8) -> bool {
        let route = (*flow, traffic_class);
        if self.packets == 0 {
            self.route = Some(route);
        }
        self.route == Some(route)
    }

    /// No packet but the first is added that goes beyond so many bytes on the line.
    pub(crate) fn limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Bytes on the line so far.
    pub(crate) fn on_the_line(&self) -> usize {
        self.with_headers(self.length, self.packets)
    }

    fn with_headers(&self, length: usize, packets: usize) -> usize {
        let ipv6 = self.route.is_some_and(|(flow, _)| flow.destination.is_ipv6());
        on_the_line(length, packets, ipv6)
    }

    /// Packets in the slot so far.
    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    /// Whether a packet with these headers and so much payload can still be added.
    #[inline]
    pub(crate) fn fits(&self, headers: &Headers, payload: usize) -> bool {
        self.has_room(packet_size(headers, payload))
    }

    #[inline]
    fn has_room(&self, size: usize) -> bool {
        let as_next = self.packets == 0
            || (!self.closed
                && size <= self.segment
                && self.packets < self.rules.max_segments
                && (self.limit == usize::MAX
                    || self.with_headers(self.length + size, self.packets + 1) <= self.limit));
        as_next && self.length + size <= self.slot.len()
    }

    /// Adds a packet, which must fit; `gather` writes its payload, and sums it if there is a sum. If
    /// it fails nothing is added.
    #[inline]
    pub(crate) fn add<E>(
        &mut self,
        headers: &Headers,
        payload: usize,
        gather: impl FnOnce(&mut [u8], Option<&mut Crc>) -> Result<(), E>,
    ) -> Result<(), E> {
        let size = packet_size(headers, payload);
        assert!(self.has_room(size), "the caller asks first whether a packet fits");
        let (flow, _) = self.route.as_ref().expect("the caller binds the burst to a flow first");
        let packet = &mut self.slot[self.length..self.length + size];
        let (body, icrc) = packet.split_at_mut(size - ICRC_LENGTH);
        let start = headers.emit(body, payload);
        let rule = self.rules.identification;
        let identification = rule.of_segment(self.first_identification, self.packets);
        let length = size - ICRC_LENGTH;
        let bth = &body[..Bth::LENGTH];
        let mut sum = icrc::begin(flow, identification, icrc::DONT_FRAGMENT, bth, length);
        let end = start + payload;
        body[end..].fill(0);
        if payload >= WORTH_SUMMING {
            sum.update(&body[Bth::LENGTH..start]);
            gather(&mut body[start..end], Some(&mut sum))?;
            sum.update(&body[end..]);
        } else {
            gather(&mut body[start..end], None)?;
            sum.update(&body[Bth::LENGTH..]);
        }
        icrc.copy_from_slice(&sum.value().to_le_bytes());
        if self.packets == 0 {
            self.segment = size;
        }
        self.closed = size < self.segment;
        self.packets += 1;
        self.length += size;
        Ok(())
    }

    /// The burst, if anything was added.
    pub(crate) fn finish(self) -> Option<SentBurst> {
        let (flow, traffic_class) = self.route.filter(|_| self.packets > 0)?;
        Some(SentBurst {
            flow,
            traffic_class,
            first_identification: self.first_identification,
            segment: self.segment,
            length: self.length,
        })
    }
}

/// Bytes of a packet, from BTH to ICRC.
#[inline]
pub(crate) fn packet_size(headers: &Headers, payload: usize) -> usize {
    headers.length() + payload + pad(payload) + ICRC_LENGTH
}
