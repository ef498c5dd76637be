//! Completions of links and of shared receive queues.

use crate::queue::Completion;
use crate::time::MICROSECOND;
use crate::wire::Qpn;

use super::super::matrix::Row;
use super::super::oracle::Violation;
use super::super::scenario::Operation;
use super::super::world::{Event, World};
use super::end::SharedStage;
use super::plan::LinkKind;
use super::posting::queue_of;

/// Time until the receiving application hears that the other end failed: what is under way meanwhile
/// still arrives.
const NOTICE: u64 = 300 * MICROSECOND;

impl World {
    /// The link that has a queue pair of this number on a node, and whether that one sends.
    pub(in super::super) fn find_link(&self, node: usize, number: Qpn) -> Option<(usize, bool)> {
        let shared = self.shared.as_ref()?;
        shared.links.iter().enumerate().find_map(|(index, link)| {
            if link.plan.node == node && link.sender.number() == number {
                return Some((index, true));
            }
            let is_receiver = shared.plan.node == node && link.receiver.number() == number;
            is_receiver.then_some((index, false))
        })
    }

    pub(in super::super) fn handle_link(
        &mut self,
        (number, sends): (usize, bool),
        completion: &Completion,
    ) -> Result<(), Violation> {
        let id = self.shared().links[number].id;
        if sends {
            let had_failed = self.oracle.has_link_failed(id);
            self.oracle.link_send_completed(id, completion)?;
            self.finish_link_sends(number, completion);
            if self.oracle.has_link_failed(id) && !had_failed {
                self.give_up_receiver(number);
            }
            return Ok(());
        }
        let queue = queue_of(completion.id);
        let shared_id = self.shared().queues[queue].id;
        self.oracle.shared_receive_completed(id, shared_id, completion)?;
        self.endings.note_receive(completion.status);
        let shared = self.shared_mut();
        shared.queues[queue].free.push((completion.id & 0xff) as usize);
        let link = &mut shared.links[number];
        link.received += 1;
        let stops = link.plan.stops_after.is_some_and(|count| link.received > count);
        if stops && !link.is_stopped && shared.stage == SharedStage::Busy {
            // Not at once: what this ends would appear among completions that are being taken.
            link.is_stopped = true;
            self.put(self.now + 1, Event::StopLink(number));
        }
        Ok(())
    }

    /// The sending application tells the other one that its queue pair failed. Until the receiver is
    /// in error, it keeps the receive of a message that has begun and will never end: out of a queue
    /// of one receive, no other link could be served.
    fn give_up_receiver(&mut self, number: usize) {
        if self.shared().stage == SharedStage::Busy {
            self.put(self.now + NOTICE, Event::StopLink(number));
        }
    }

    /// The oracle agreed: everything up to the completed request has ended.
    fn finish_link_sends(&mut self, number: usize, completion: &Completion) {
        let channel = self.link_channel(number);
        let kind = self.shared().links[number].plan.kind;
        while let Some(posted) = self.shared_mut().links[number].posted.pop_front() {
            let is_last = posted.id == completion.id;
            let succeeded = !is_last || completion.status.is_success();
            if !kind.is_reliable() {
                self.unacked_packets.1 += posted.packets;
                self.unacked_packets.0 += if succeeded { posted.packets } else { 0 };
            }
            if succeeded {
                for row in rows(kind, posted.operation) {
                    self.network.prove_row(channel, *row);
                }
                if kind == LinkKind::Rc {
                    self.network.prove(channel, posted.operation);
                }
            }
            if is_last {
                self.endings.note_link(posted.defect, completion.status);
                return;
            }
        }
    }
}

/// The rows of packets that a completed request shows to have done their work, beside those of
/// reliable connections.
const fn rows(kind: LinkKind, operation: Operation) -> &'static [Row] {
    match (kind, operation) {
        (LinkKind::Rc, _) => &[],
        (LinkKind::Uc, _) => &[Row::UcSend],
        (LinkKind::Ud, _) => &[Row::UdSend],
        (LinkKind::Xrc, Operation::Read) => &[Row::XrcRead, Row::ReadResponse, Row::Nak],
        (LinkKind::Xrc, Operation::FetchAdd) => &[Row::XrcAtomic, Row::AtomicAnswer, Row::Nak],
        (LinkKind::Xrc, Operation::Write | Operation::WriteImmediate) => {
            &[Row::XrcWrite, Row::Acknowledge, Row::Nak]
        }
        (LinkKind::Xrc, _) => &[Row::XrcSend, Row::Acknowledge, Row::Nak],
    }
}
