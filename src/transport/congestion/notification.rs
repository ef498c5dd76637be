//! The notification point: packets that arrive with a congestion mark are answered by a congestion
//! notification (CNP), one for each flow in a time.
//!
//! ```text
//!   BTH: opcode 0x81, BECN, destination = the sender's queue pair, PSN 0 │ 16 zero bytes │ ICRC
//! ```
//!
//! The first mark is answered at once; marks that follow in less than the time are not, since the
//! sender is told to slow down and not how much has arrived (the paper's section 3.1).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;

use super::super::burst::{BurstRules, BurstWriter};
use super::options::CongestionOptions;
use crate::time::{Instant, MICROSECOND};
use crate::wire::{Flow, Headers, Message, Psn, Qpn, SentBurst, Service};

/// Notifications that are owed at a time; for more the next mark asks again.
const MOST_OWED: usize = 256;
/// Senders of datagrams that are remembered, in groups of so many.
const REMEMBERED: usize = 256;
const GROUP: usize = 8;

/// A notification that is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    /// Slot of the queue pair that owes it.
    pub(crate) slot: u32,
    /// Back to where the marked packet came from.
    pub(crate) flow: Flow,
    /// The queue pair that shall slow down.
    pub(crate) destination: Qpn,
}

/// When a flow was last notified.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notified(Option<Instant>);

impl Notified {
    /// Whether a mark that comes now is answered; if it is, this is the last time from now on.
    fn is_due(&self, now: Instant, options: &CongestionOptions) -> bool {
        let wait = u64::from(options.min_time_between_cnps) * MICROSECOND;
        self.0.is_none_or(|last| now - last >= wait)
    }
}

/// A sender of datagrams, as one of our queue pairs sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramSender {
    /// Slot of the queue pair that its datagrams came to.
    pub(crate) slot: u32,
    pub(crate) address: IpAddr,
    pub(crate) number: Qpn,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct NotificationPoint {
    owed: VecDeque<Notification>,
    /// Senders of datagrams that were notified, each in a group that its name decides, where who
    /// comes new takes the place of the one notified first; that one is notified the earlier for it.
    senders: Vec<Option<(DatagramSender, Instant)>>,
}

impl Default for NotificationPoint {
    fn default() -> Self {
        Self { owed: VecDeque::with_capacity(MOST_OWED), senders: vec![None; REMEMBERED] }
    }
}

impl NotificationPoint {
    /// A marked packet came for a connected queue pair, which was last notified at `notified`.
    pub(crate) fn mark(
        &mut self,
        now: Instant,
        options: &CongestionOptions,
        notified: &mut Notified,
        notification: Notification,
    ) {
        let has_room = self.owed.len() < MOST_OWED;
        if options.roce_np && has_room && notified.is_due(now, options) {
            *notified = Notified(Some(now));
            self.owed.push_back(notification);
        }
    }

    /// A marked datagram came.
    pub(crate) fn mark_datagram(
        &mut self,
        now: Instant,
        options: &CongestionOptions,
        sender: DatagramSender,
        notification: Notification,
    ) {
        let group = &self.senders[group_of(&sender)];
        let known = group.iter().flatten().find(|(other, _)| *other == sender);
        let mut notified = Notified(known.map(|(_, at)| *at));
        self.mark(now, options, &mut notified, notification);
        if notified.0 == Some(now) {
            self.remember(sender, now);
        }
    }

    fn remember(&mut self, sender: DatagramSender, now: Instant) {
        let group = &mut self.senders[group_of(&sender)];
        let place = group.iter_mut().min_by_key(|place| match place {
            Some((other, _)) if *other == sender => (0, Instant::ZERO),
            None => (1, Instant::ZERO),
            Some((_, at)) => (2, *at),
        });
        if let Some(place) = place {
            *place = Some((sender, now));
        }
    }

    /// The queue pair in `slot` ends: it owes nothing, and who comes there next knows no senders.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.owed.retain(|notification| notification.slot != slot);
        for place in &mut self.senders {
            if place.is_some_and(|(sender, _)| sender.slot == slot) {
                *place = None;
            }
        }
    }

    /// Whether nothing is owed.
    pub(crate) fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// Makes the frame of the oldest notification that is owed; tells also who owed it.
    pub(crate) fn emit(
        &mut self,
        options: &CongestionOptions,
        slot: &mut [u8],
        rules: BurstRules,
        identification: u16,
    ) -> Option<(u32, SentBurst)> {
        let Notification { slot: pair, flow, destination } = self.owed.pop_front()?;
        let message = Message::CongestionNotification([0; 16]);
        let mut headers =
            Headers::request(Service::Congestion, message, destination, Psn::default());
        headers.becn = true;
        // As cards send it.
        headers.migration = false;
        let mut writer = BurstWriter::new(slot, rules, identification);
        writer.bind(&flow, options.notification_class());
        let added: Result<(), std::convert::Infallible> = writer.add(&headers, 0, |_, _| Ok(()));
        added.ok()?;
        Some((pair, writer.finish()?))
    }
}

/// The places where a sender may be remembered.
fn group_of(sender: &DatagramSender) -> Range<usize> {
    let address = match sender.address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() ^ address.to_bits() >> 64) as u64,
    };
    let number = u64::from(sender.number.value()) << 32 | u64::from(sender.slot);
    let mixed = (address ^ number.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let start = (mixed >> 32) as usize % (REMEMBERED / GROUP) * GROUP;
    start..start + GROUP
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn at(microseconds: u64) -> Instant {
        Instant::from_nanos(microseconds * MICROSECOND)
    }

    fn notification(number: u32) -> Notification {
        let [source, destination] = [1, 2].map(|last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let flow = Flow { source, destination, source_port: 0xc000 };
        Notification { slot: 0, flow, destination: Qpn::new(number) }
    }

    fn sender(slot: u32, number: u32) -> DatagramSender {
        DatagramSender {
            slot,
            address: Ipv4Addr::new(10, 0, 0, 2).into(),
            number: Qpn::new(number),
        }
    }

    #[test]
    fn each_sender_of_datagrams_is_notified_by_itself() {
        let options = CongestionOptions::default();
        let mut point = NotificationPoint::default();
        let mut mark = |time, slot, number| {
            point.mark_datagram(at(time), &options, sender(slot, number), notification(number));
            point.owed.len()
        };
        assert_eq!(mark(7, 0, 5), 1);
        assert_eq!(mark(20, 0, 5), 1, "too soon");
        assert_eq!(mark(20, 0, 6), 2, "another queue pair of the sender");
        assert_eq!(mark(20, 1, 5), 3, "another queue pair of ours");
        assert_eq!(mark(56, 0, 5), 3);
        assert_eq!(mark(57, 0, 5), 4);
    }

    #[test]
    fn a_queue_pair_that_ends_owes_nothing_and_leaves_no_trace_in_its_slot() {
        let options = CongestionOptions::default();
        let mut point = NotificationPoint::default();
        for slot in [0, 1] {
            let notification = Notification { slot, ..notification(5) };
            point.mark_datagram(at(7), &options, sender(slot, 5), notification);
        }
        point.forget(1);
        assert_eq!(point.owed.iter().map(|owed| owed.slot).collect::<Vec<_>>(), [0]);
        for (slot, owed) in [(0, 1), (1, 2)] {
            let notification = Notification { slot, ..notification(5) };
            point.mark_datagram(at(8), &options, sender(slot, 5), notification);
            assert_eq!(point.owed.len(), owed, "only the new one in slot 1 is a stranger");
        }
    }

    #[test]
    fn any_number_of_senders_takes_no_more_memory() {
        let options = CongestionOptions::default();
        let mut point = NotificationPoint::default();
        let capacity = point.owed.capacity();
        for number in 0..100_000 {
            point.mark_datagram(at(1), &options, sender(0, number), notification(number));
        }
        assert_eq!((point.owed.len(), point.owed.capacity()), (MOST_OWED, capacity));
        assert_eq!(point.senders.len(), REMEMBERED);
        // A mark that found no room counts as none, and the next one is answered.
        point.owed.clear();
        point.mark_datagram(at(2), &options, sender(0, 99_999), notification(99_999));
        assert_eq!(point.owed.len(), 1);
    }
}
