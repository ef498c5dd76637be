//! What arrived: which of the messages that were sent a filled receive holds.

use std::iter;
use std::net::IpAddr;

use super::super::memory::first_difference;
use super::super::queue::PendingReceive;
use super::super::{Oracle, Rule, Violation};
use super::UnackedId;
use super::queue::{AREA, Message, SendEnd, UnackedQueue, capacity};
use crate::queue::{Completion, CompletionStatus};

impl Oracle {
    pub(super) fn unacked_receive_completed(
        &mut self,
        queue: UnackedId,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let this = &mut self.unacked[queue.0];
        let (id, status) = (completion.id, completion.status);
        let oldest = this.receives.front().map(|receive| receive.id);
        if oldest != Some(id) {
            let text = format!("{queue}: receive {id} completed, but the oldest is {oldest:?}");
            return Err(Violation::new(Rule::Receive, text));
        }
        let receive = this.receives.pop_front().expect("there is an oldest");
        let length = if status.is_success() {
            if this.is_stopped {
                let text = format!("{queue}: receive {id} was filled in the error state");
                return Err(Violation::new(Rule::Status, text));
            }
            self.filled(queue, &receive, completion)?
        } else if this.is_stopped && status == CompletionStatus::WorkRequestFlushed {
            0
        } else {
            let text = format!("{queue}: receive {id} failed with: {status}");
            return Err(Violation::new(Rule::Status, text));
        };
        self.check_behind(queue, &receive, length)?;
        for place in &receive.places {
            self.memories[place.memory.0].close_landing(receive.token);
        }
        Ok(())
    }

    /// A receive was filled. Returns how many of its bytes are the message's.
    fn filled(
        &mut self,
        queue: UnackedId,
        receive: &PendingReceive,
        completion: &Completion,
    ) -> Result<usize, Violation> {
        let actual = self.actual_bytes(&receive.places);
        let this = &self.unacked[queue.0];
        let matches = |&number: &usize| {
            this.may_arrive(number)
                && this.is_told_of(&this.inbox[number], completion, self.sender(number, queue))
                && holds(&actual, this.area(), this.inbox[number].received_bytes())
                && this.is_addressed(&this.inbox[number], &actual)
        };
        let Some(number) = (0..this.inbox.len()).find(matches) else {
            return Err(self.unmatched(queue, receive, completion));
        };
        let message = &this.inbox[number];
        let mut length = message.received_bytes().len();
        if this.port.is_datagram {
            let from = self.unacked[message.from.0].port.address;
            check_area(
                &actual[..AREA],
                from,
                message.group.unwrap_or(this.port.address),
                message.length,
            )
            .map_err(|what| wrong_area(queue, completion.id, what))?;
            length += AREA;
        }
        if let Some(place) = message.target {
            self.memories[place.memory.0].verify(message.token)?;
        }
        let (from, this) = (message.from, &mut self.unacked[queue.0]);
        this.inbox[number].arrivals += 1;
        this.last.insert(from, number);
        Ok(length)
    }

    fn sender(&self, number: usize, queue: UnackedId) -> u32 {
        self.unacked[self.unacked[queue.0].inbox[number].from.0].port.number
    }

    fn unmatched(
        &self,
        queue: UnackedId,
        receive: &PendingReceive,
        completion: &Completion,
    ) -> Violation {
        let this = &self.unacked[queue.0];
        let arrived = this.inbox.iter().map(|message| message.arrivals).sum::<u32>();
        let text = format!(
            "{queue}: receive {} of {} bytes was filled with {} bytes from {:#x} ({:?}, {:?}, \
             solicited is {}), which is none of the messages that may arrive now ({arrived} of {} \
             have arrived)",
            receive.id,
            capacity(receive),
            completion.length,
            completion.source.value(),
            completion.kind,
            completion.attachment,
            completion.solicited,
            this.inbox.len()
        );
        Violation::new(Rule::Receive, text)
    }

    /// Behind a message lie the old bytes, or those of messages that were given up. A datagram is
    /// never given up after its first byte is written.
    fn check_behind(
        &self,
        queue: UnackedId,
        receive: &PendingReceive,
        length: usize,
    ) -> Result<(), Violation> {
        let (actual, settled) =
            (self.actual_bytes(&receive.places), self.settled_bytes(&receive.places));
        let this = &self.unacked[queue.0];
        let is_known = |at: usize| {
            let mut sent = this.inbox.iter().map(Message::received_bytes);
            !this.port.is_datagram && sent.any(|bytes| bytes.get(at) == Some(&actual[at]))
        };
        let changed = |from: usize| first_difference(&actual, &settled, from);
        let mut changed = iter::successors(changed(length), |&at| changed(at + 1));
        let Some(at) = changed.find(|&at| !is_known(at)) else { return Ok(()) };
        let text = format!(
            "{queue}: receive {}: byte {at}, behind the message, is {:#04x}, which nobody sent \
             there",
            receive.id, actual[at]
        );
        Err(Violation::new(Rule::Memory, text))
    }
}

impl UnackedQueue {
    /// Whether a message may arrive now, by what became of it and of those around it.
    fn may_arrive(&self, number: usize) -> bool {
        let message = &self.inbox[number];
        let is_new = message.arrivals == 0 || self.port.may_repeat;
        let last = self.last.get(&message.from);
        let is_in_order = !self.port.keeps_order || last.is_none_or(|last| *last < number);
        message.defect.is_none() && message.end != SendEnd::Failed && is_new && is_in_order
    }

    /// Whether the area of a datagram, where it is long enough, does not name the other one of group
    /// and machine: what has no bytes differs in nothing else.
    fn is_addressed(&self, message: &Message, actual: &[u8]) -> bool {
        let to = message.group.unwrap_or(self.port.address);
        let named = match to {
            IpAddr::V4(_) => actual.get(36..AREA).map(|bytes| bytes.starts_with(&[239])),
            IpAddr::V6(_) => actual.get(24..AREA).map(|bytes| bytes.starts_with(&[0xff])),
        };
        !self.port.is_datagram || named.is_none_or(|is_group| is_group == message.group.is_some())
    }

    /// Whether a completion tells of this message.
    fn is_told_of(&self, message: &Message, completion: &Completion, sender: u32) -> bool {
        let source = if self.port.is_datagram { sender } else { 0 };
        message.kind == Some(completion.kind)
            && completion.length as usize == message.length + self.area()
            && completion.attachment == message.attachment
            && completion.solicited == message.solicited
            && completion.source.value() == source
    }
}

/// Whether a receive is long enough, and has these bytes at `start`.
fn holds(actual: &[u8], start: usize, bytes: &[u8]) -> bool {
    actual.get(start..start + bytes.len()) == Some(bytes)
}

fn wrong_area(queue: UnackedId, id: u64, what: &str) -> Violation {
    let text = format!("{queue}: receive {id}: the area before the datagram has {what}");
    Violation::new(Rule::Receive, text)
}

/// Whether the area before a datagram tells where it came from, as `ibv_init_ah_from_wc` reads it:
/// the whole IPv6 header, or 20 zeros and the IPv4 header with a valid checksum.
fn check_area(area: &[u8], from: IpAddr, to: IpAddr, payload: usize) -> Result<(), &'static str> {
    let word = |at: usize| u16::from_be_bytes([area[at], area[at + 1]]);
    let (version, source, destination, length) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let sum: u32 = (20..40).step_by(2).map(|at| u32::from(word(at))).sum();
            if area[..20] != [0; 20] {
                return Err("no zeros before the IPv4 header");
            }
            if (sum & 0xffff) + (sum >> 16) != 0xffff {
                return Err("a wrong checksum");
            }
            let is_source = area[32..36] == from.octets();
            (area[20] == 0x45, is_source, area[36..40] == to.octets(), word(22))
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let is_source = area[8..24] == from.octets();
            (area[0] >> 4 == 6, is_source, area[24..40] == to.octets(), word(4))
        }
        _ => return Err("two families of addresses"),
    };
    if !version {
        return Err("a wrong version or header length");
    }
    if !source {
        return Err("another source address");
    }
    if !destination {
        return Err("another destination address");
    }
    if usize::from(length) < payload {
        return Err("a length shorter than the datagram");
    }
    Ok(())
}
