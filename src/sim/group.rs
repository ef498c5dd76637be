//! The network's way to the multicast group: one packet leaves, and each machine with a member gets
//! a copy with a fate of its own.

use crate::fault::Fate;
use crate::time::Instant;
use crate::wire::SentBurst;

use super::classify::Seen;
use super::flights::Ticket;
use super::network::{Network, arrives};

impl Network {
    /// End `end` on this machine is attached to the group.
    pub(super) fn join(&mut self, end: usize, node: usize) {
        self.channels[end].joined_on = Some(node);
    }

    /// Whether nothing is on its way to the group.
    pub(super) fn is_group_silent(&self) -> bool {
        self.inbound_to_group == 0
    }

    fn machines_with_members(&self) -> Vec<usize> {
        let mut machines: Vec<usize> =
            self.channels.iter().filter_map(|channel| channel.joined_on).collect();
        machines.sort_unstable();
        machines.dedup();
        machines
    }

    /// Sends one packet of a burst, with its identification, to the group.
    pub(super) fn send_to_group(
        &mut self,
        now: Instant,
        from: usize,
        (burst, identification, bytes): (&SentBurst, u16, &[u8]),
        seen: Option<Seen>,
    ) {
        self.count_group_packet(seen);
        self.occupy_line(now, from, bytes.len());
        let mut reached = 0;
        for to in self.machines_with_members() {
            let on_time = self.travel(from, to);
            let fate = self.fate(now, bytes, seen);
            self.count_fate(seen, fate);
            self.trace.frame(now, from, burst, identification, bytes, fate);
            reached |= u64::from(arrives(fate)) << to;
            let Fate::Deliver(delivery) = fate else { continue };
            // A datagram is no answer: it asks for no pause and tells of no receives.
            if let Some(flight) = self.board(to, burst, identification, bytes, seen) {
                self.deliver(on_time, flight, delivery);
            }
        }
        if let Some(seen) = seen
            && let Some(end) = seen.requester
        {
            self.channels[end].follow(seen.edges, reached);
        }
    }

    /// A packet counts once, however many copies the network makes.
    fn count_group_packet(&mut self, seen: Option<Seen>) {
        match seen.and_then(|seen| seen.row) {
            Some(row) => self.tally.sent[row as usize] += 1,
            None => self.tally.other += 1,
        }
        if let Some(seen) = seen {
            self.check_silence(seen);
            self.remember(seen);
        }
    }

    /// A flight to the group is handed to a machine: each member there needs a receive.
    pub(super) fn receive_for_group(&mut self, node: usize, ticket: &Ticket) {
        self.inbound_to_group -= 1;
        let members = self.channels.iter().filter(|channel| channel.joined_on == Some(node));
        let lacking = members.filter(|member| member.lacks_receives()).count();
        let row = ticket.needs_receive;
        self.unready.extend(row.into_iter().cycle().take(if row.is_some() { lacking } else { 0 }));
    }
}
