//! Congestion control as far as it is the device's: parameters, and notifications of what arrives.

use std::net::IpAddr;

use super::{CongestionOptions, ControlError, Engine, FlowRate};
use crate::time::Instant;
use crate::transport::{BurstRules, Counter, DatagramSender, Notification};
use crate::wire::{Flow, Headers, Message, Qpn, SentBurst, Service};

impl Engine {
    /// Parameters of congestion control.
    pub fn congestion(&self) -> &CongestionOptions {
        &self.options.congestion
    }

    /// Changes the parameters of congestion control. Flows that are limited go on from the rate that
    /// they have; connections and address handles that exist keep their traffic class.
    ///
    /// # Errors
    /// A value is out of range; the error names it.
    pub fn set_congestion(&mut self, options: CongestionOptions) -> Result<(), ControlError> {
        options.check()?;
        self.options.congestion = options;
        Ok(())
    }

    /// The rate to which congestion notifications have brought a queue pair; nothing if it is not
    /// limited. UC and UD queue pairs are limited by their destinations:
    /// [`Engine::path_rate`].
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn flow_rate(&self, now: Instant, number: Qpn) -> Result<Option<FlowRate>, ControlError> {
        let slot = self.slot_of(number)?;
        let pair = self.pairs[slot as usize].as_ref().ok_or(ControlError::NoSuchPair(number))?;
        Ok(pair.rate(now, &self.options.congestion))
    }

    /// The rate to which congestion notifications have brought all UC and UD queue pairs together
    /// that send to an address; nothing if they are not limited.
    pub fn path_rate(&self, now: Instant, destination: IpAddr) -> Option<FlowRate> {
        self.paths.rate_to(now, &destination, &self.options.congestion)
    }

    /// A packet came for the queue pair in `slot` that a switch has marked, or from a receive queue
    /// that fills.
    pub(super) fn note_congestion(
        &mut self,
        now: Instant,
        slot: u32,
        headers: &Headers,
        flow: &Flow,
        marked: bool,
    ) {
        let Some(pair) = &mut self.pairs[slot as usize] else { return };
        let options = &self.options.congestion;
        let is_reliable = pair.base.queues.kind().is_reliable();
        // Where the transport acknowledges, its window knows how much a receiver can take.
        if !slows(&headers.message) || (!marked && is_reliable) {
            return;
        }
        if let Service::Ud(deth) = headers.service {
            // Nobody without the key makes us send anything.
            if pair.base.attributes.qkey != Some(deth.qkey) {
                return;
            }
            let back = Flow {
                source: flow.destination,
                destination: flow.source,
                source_port: pair.base.source_port,
            };
            let sender = DatagramSender { slot, address: flow.source, number: deth.source };
            let notification = Notification { slot, flow: back, destination: deth.source };
            self.notifications.mark_datagram(now, options, sender, notification);
        } else if let Some((notification, notified)) = pair.notification() {
            self.notifications.mark(now, options, notified, notification);
        }
    }

    /// Makes the next congestion notification that is owed.
    pub(super) fn emit_notification(
        &mut self,
        slot: &mut [u8],
        rules: BurstRules,
    ) -> Option<SentBurst> {
        if self.notifications.is_empty() {
            return None;
        }
        let options = &self.options.congestion;
        let (pair, burst) = self.notifications.emit(options, slot, rules, self.identification)?;
        self.count_for(Some(pair), Counter::SentPackets, 1);
        self.count_for(Some(pair), Counter::SentCongestionNotification, 1);
        self.count_for(Some(pair), Counter::SentBytes, burst.length as u64);
        self.use_up_identifications(1);
        Some(burst)
    }
}

/// Whether less of such packets is sent when their sender is notified: acknowledgements and
/// notifications are not paced, so they are not answered.
const fn slows(message: &Message) -> bool {
    !matches!(
        message,
        Message::Acknowledge(_)
            | Message::AtomicAcknowledge(..)
            | Message::CongestionNotification(_)
    )
}
