//! The ring: 32 entries of 24 bytes, written on the hot path, read by people.

use super::event::{HistoryEvent, PacketKind, Record, TimerKind};
use crate::queue::{CompletionStatus, QueuePairState};
use crate::time::Instant;
use crate::transport::counters::Counter;
use crate::wire::{Psn, Syndrome};

/// Entries; a power of two.
const ENTRIES: usize = 32;
/// How many of the newest entries an event may continue: requests, their answers, and one thing
/// more take turns.
const MERGED: u32 = 3;
/// Time between the first and the last event of an entry counts in units of 2^10 ns.
const UNIT_SHIFT: u32 = 10;

/// One entry. What `low` and `high` mean depends on the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    first: u64,
    low: u32,
    high: u32,
    duration: u32,
    count: u16,
    /// The event in the upper byte, and what further tells it apart in the lower.
    what: u16,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    entries: [Entry; ENTRIES],
    /// Where the newest entry lies.
    newest: u32,
    /// The PSN of the packet that was received last.
    psn: Psn,
}

impl Default for Ring {
    fn default() -> Self {
        Self { entries: [Entry::default(); ENTRIES], newest: 0, psn: Psn::default() }
    }
}

/// Where the entry lies that is so many before the newest.
#[inline]
const fn place(newest: u32, back: u32) -> usize {
    newest.wrapping_sub(back) as usize % ENTRIES
}

impl Entry {
    #[inline]
    fn again(&mut self, now: Instant) {
        self.count = self.count.saturating_add(1);
        self.duration = duration(self.first, now);
    }
}

#[inline]
fn duration(first: u64, now: Instant) -> u32 {
    let units = now.as_nanos().saturating_sub(first) >> UNIT_SHIFT;
    units.min(u32::MAX.into()) as u32
}

impl Ring {
    /// A packet that continues one of the newest entries of its kind is added to it.
    #[inline]
    pub(super) fn packet(
        &mut self,
        now: Instant,
        event: u8,
        kind: PacketKind,
        psn: Psn,
        psns: u32,
    ) {
        let what = what(event, kind as u8);
        for back in 0..MERGED {
            let entry = &mut self.entries[place(self.newest, back)];
            if entry.what == what && Psn::new(entry.high.wrapping_add(1)) == psn {
                entry.high = psn.add(psns - 1).value();
                return entry.again(now);
            }
        }
        self.packet_elsewhere(now, what, psn, psns);
    }

    /// A packet that does not follow the last one of its kind: the same once more, an ACK that skips
    /// some, or something else.
    #[inline(never)]
    fn packet_elsewhere(&mut self, now: Instant, what: u16, psn: Psn, psns: u32) {
        let last = psn.add(psns - 1).value();
        let is_ack = what as u8 == PacketKind::Acknowledge as u8;
        for back in 0..MERGED {
            let entry = &mut self.entries[place(self.newest, back)];
            let ahead = psn.distance_from(Psn::new(entry.high));
            let skips = is_ack && ahead <= Psn::MAX_SPAN;
            let same = (entry.low, entry.high) == (psn.value(), last);
            if entry.what == what && (skips || same) {
                entry.high = last;
                return entry.again(now);
            }
        }
        self.push(now, Entry { what, low: psn.value(), high: last, ..Entry::default() });
    }

    /// The PSN of the packet in hand.
    #[inline]
    pub(super) fn at_hand(&mut self, psn: Psn) {
        self.psn = psn;
    }

    pub(super) fn dropped(&mut self, now: Instant, reason: Counter, psn: Option<Psn>) {
        let psn = psn.unwrap_or(self.psn).value();
        self.add(now, HistoryEvent::DROPPED, reason as u8, psn, 0);
    }

    /// A NAK or RNR NAK came.
    pub(crate) fn received_nak(&mut self, now: Instant, syndrome: Syndrome, psn: Psn) {
        let detail = syndrome.to_byte();
        self.add(now, HistoryEvent::RECEIVED_NAK, detail, psn.value(), 0);
    }

    /// A NAK or RNR NAK was sent.
    pub(crate) fn sent_nak(&mut self, now: Instant, syndrome: Syndrome, psn: Psn) {
        self.add(now, HistoryEvent::SENT_NAK, syndrome.to_byte(), psn.value(), 0);
    }

    /// A packet was dropped before the queue pair itself saw it.
    #[cold]
    pub(crate) fn dropped_before(&mut self, now: Instant, reason: Counter, psn: Psn) {
        self.dropped(now, reason, Some(psn));
    }

    /// A timer ran out after `nanoseconds`.
    pub(crate) fn timer(&mut self, now: Instant, timer: TimerKind, nanoseconds: u64, oldest: Psn) {
        let microseconds = u32::try_from(nanoseconds / 1000).unwrap_or(u32::MAX);
        self.add(now, HistoryEvent::TIMER, timer as u8, oldest.value(), microseconds);
    }

    /// The queue pair has changed its state.
    pub(crate) fn state(&mut self, now: Instant, from: QueuePairState, to: QueuePairState) {
        let detail = (from as u8) << 4 | to as u8;
        self.add(now, HistoryEvent::STATE, detail, 0, 0);
    }

    /// A work request has completed with an error.
    #[cold]
    pub(crate) fn completed(&mut self, now: Instant, status: CompletionStatus, id: u64) {
        let what = what(HistoryEvent::COMPLETED, status as u8);
        let (low, high) = (id as u32, (id >> 32) as u32);
        if let Some(entry) = self.newest_of(what) {
            (entry.low, entry.high) = (low, high);
            return entry.again(now);
        }
        self.push(now, Entry { what, low, high, ..Entry::default() });
    }

    /// The network has asked for less.
    pub(crate) fn congestion(&mut self, now: Instant) {
        self.add(now, HistoryEvent::CONGESTION, 0, 0, 0);
    }

    fn newest_of(&mut self, what: u16) -> Option<&mut Entry> {
        let newest = self.newest;
        let mut places = (0..MERGED).map(|back| place(newest, back));
        let found = places.find(|place| self.entries[*place].what == what)?;
        Some(&mut self.entries[found])
    }

    /// An event that is added to one of the newest entries if it is the same at the same place.
    fn add(&mut self, now: Instant, event: u8, detail: u8, low: u32, high: u32) {
        let what = what(event, detail);
        if let Some(entry) = self.newest_of(what)
            && entry.low == low
        {
            entry.high = high;
            return entry.again(now);
        }
        self.push(now, Entry { what, low, high, ..Entry::default() });
    }

    fn push(&mut self, now: Instant, entry: Entry) {
        self.newest = self.newest.wrapping_add(1);
        self.entries[place(self.newest, 0)] = Entry { first: now.as_nanos(), count: 1, ..entry };
    }

    /// What is in it, oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let newest = self.newest;
        let places = (0..ENTRIES as u32).rev().map(move |back| place(newest, back));
        places.filter_map(|place| read(&self.entries[place]))
    }
}

const fn what(event: u8, detail: u8) -> u16 {
    (event as u16) << 8 | detail as u16
}

fn read(entry: &Entry) -> Option<Record> {
    let [detail, event] = entry.what.to_le_bytes();
    let (first, last) = (Psn::new(entry.low), Psn::new(entry.high));
    let kind = PacketKind::from_number(detail);
    let syndrome = Syndrome::from_byte(detail);
    let event = match event {
        HistoryEvent::SENT => HistoryEvent::Sent { kind, first, last },
        HistoryEvent::SENT_AGAIN => HistoryEvent::SentAgain { kind, first, last },
        HistoryEvent::RECEIVED => HistoryEvent::Received { kind, first, last },
        HistoryEvent::RECEIVED_NAK => HistoryEvent::ReceivedNak { syndrome, psn: first },
        HistoryEvent::SENT_NAK => HistoryEvent::SentNak { syndrome, psn: first },
        HistoryEvent::DROPPED => {
            let reason = *Counter::ALL.get(usize::from(detail))?;
            HistoryEvent::Dropped { reason, psn: first }
        }
        HistoryEvent::TIMER => HistoryEvent::TimerExpired {
            timer: TimerKind::from_number(detail),
            microseconds: entry.high,
            oldest: first,
        },
        HistoryEvent::STATE => HistoryEvent::StateChanged {
            from: QueuePairState::from_number(detail >> 4),
            to: QueuePairState::from_number(detail & 0xf),
        },
        HistoryEvent::COMPLETED => HistoryEvent::Completed {
            status: CompletionStatus::from_number(detail),
            id: u64::from(entry.high) << 32 | u64::from(entry.low),
        },
        HistoryEvent::CONGESTION => HistoryEvent::CongestionNotified,
        _ => return None,
    };
    let start = Instant::from_nanos(entry.first);
    let last = start + (u64::from(entry.duration) << UNIT_SHIFT);
    Some(Record { first: start, last, count: entry.count, event })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(microseconds: u64) -> Instant {
        Instant::from_nanos(microseconds * 1024)
    }

    fn stream(ring: &mut Ring, start: u32, count: u32) {
        for index in start..start + count {
            let psn = Psn::new(0xff_fff0 + index);
            ring.packet(at(index.into()), HistoryEvent::SENT, PacketKind::Write, psn, 1);
            ring.packet(at(index.into()), HistoryEvent::RECEIVED, PacketKind::Acknowledge, psn, 1);
        }
    }

    #[test]
    fn a_stream_of_requests_and_answers_is_two_entries() {
        let mut ring = Ring::default();
        stream(&mut ring, 0, 1000);
        let records: Vec<Record> = ring.records().collect();
        let (first, last) = (Psn::new(0xff_fff0), Psn::new(0xff_fff0 + 999));
        let kinds = [
            HistoryEvent::Sent { kind: PacketKind::Write, first, last },
            HistoryEvent::Received { kind: PacketKind::Acknowledge, first, last },
        ];
        assert_eq!(records.iter().map(|record| record.event).collect::<Vec<_>>(), kinds);
        assert!(records.iter().all(|record| record.count == 1000));
        assert!(records.iter().all(|record| (record.first, record.last) == (at(0), at(999))));
    }

    #[test]
    fn retries_are_two_entries_with_a_count() {
        let mut ring = Ring::default();
        let psn = Psn::new(7);
        for round in 1..=5u64 {
            let wait = round * 1_000_000;
            ring.timer(at(round), TimerKind::Probe, wait, psn);
            ring.packet(at(round), HistoryEvent::SENT_AGAIN, PacketKind::Send, psn, 1);
        }
        let records: Vec<Record> = ring.records().collect();
        let timer =
            HistoryEvent::TimerExpired { timer: TimerKind::Probe, microseconds: 5000, oldest: psn };
        let again = HistoryEvent::SentAgain { kind: PacketKind::Send, first: psn, last: psn };
        assert_eq!(
            records.iter().map(|r| (r.count, r.event)).collect::<Vec<_>>(),
            [(5, timer), (5, again)]
        );
    }

    #[test]
    fn the_oldest_entry_makes_room() {
        let mut ring = Ring::default();
        for index in 0..100u32 {
            // Not in a row: each is an entry of its own.
            let psn = Psn::new(index * 10);
            ring.packet(at(1), HistoryEvent::RECEIVED, PacketKind::Write, psn, 1);
        }
        let records: Vec<Record> = ring.records().collect();
        assert_eq!(records.len(), ENTRIES);
        let psn = |record: &Record| match record.event {
            HistoryEvent::Received { first, .. } => first.value(),
            _ => panic!("{record:?}"),
        };
        assert_eq!((psn(&records[0]), psn(&records[31])), (680, 990));
    }

    #[test]
    fn every_event_comes_back_as_it_went_in() {
        let mut ring = Ring::default();
        let (now, psn) = (at(3), Psn::new(5));
        let nak = Syndrome::Nak(crate::wire::NakCode::RemoteAccessError);
        let states = (QueuePairState::Rts, QueuePairState::Error);
        let id = 0x0123_4567_89ab_cdef;
        let status = CompletionStatus::RemoteAccessError;
        ring.received_nak(now, nak, psn);
        ring.sent_nak(now, nak, psn);
        ring.dropped_before(now, Counter::DropBadIcrc, psn);
        ring.timer(now, TimerKind::AckTimeout, 67_108_864, psn);
        ring.state(now, states.0, states.1);
        ring.completed(now, status, id);
        ring.congestion(now);
        ring.timer(now, TimerKind::NotReady, u64::MAX, psn);
        let events: Vec<HistoryEvent> = ring.records().map(|record| record.event).collect();
        let timer =
            |timer, microseconds| HistoryEvent::TimerExpired { timer, microseconds, oldest: psn };
        assert_eq!(
            events,
            [
                HistoryEvent::ReceivedNak { syndrome: nak, psn },
                HistoryEvent::SentNak { syndrome: nak, psn },
                HistoryEvent::Dropped { reason: Counter::DropBadIcrc, psn },
                timer(TimerKind::AckTimeout, 67_108),
                HistoryEvent::StateChanged { from: states.0, to: states.1 },
                HistoryEvent::Completed { status, id },
                HistoryEvent::CongestionNotified,
                timer(TimerKind::NotReady, u32::MAX),
            ]
        );
    }
}

#[cfg(test)]
mod properties;
