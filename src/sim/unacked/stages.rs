//! The life of queue pairs without acknowledgements: busy, farewell, emptying, over.

use crate::queue::{QueuePairAttributes, QueuePairState};
use crate::time::MICROSECOND;

use super::super::matrix::Row;
use super::super::oracle::{Rule, Violation};
use super::super::world::{Event, World};

/// Time between two looks at how far they are.
pub(super) const ROUND: u64 = 200 * MICROSECOND;

/// How far they are, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Stage {
    /// Requests are posted as planned.
    Busy,
    /// The last messages are on their way, and nothing is lost.
    Farewell,
    /// All are in the error state.
    Emptying,
    /// There are none, or all have ended.
    Over,
}

impl World {
    /// Goes on to the next stage if this one has ended.
    pub(in super::super) fn look_round(&mut self) -> Result<(), Violation> {
        match self.stage {
            Stage::Busy if self.unacked.iter().all(super::UnackedEnd::is_exhausted) => {
                if self.is_unacked_quiet() {
                    self.bid_farewell()?;
                }
            }
            Stage::Farewell if self.is_unacked_quiet() => self.stop_unacked()?,
            Stage::Emptying => self.close_unacked()?,
            Stage::Busy | Stage::Farewell | Stage::Over => {}
        }
        if self.stage != Stage::Over {
            self.put(self.now + ROUND, Event::Round);
        }
        Ok(())
    }

    /// All sends have ended, and none of their packets is on its way.
    fn is_unacked_quiet(&self) -> bool {
        self.network.is_group_silent()
            && (0..self.unacked.len()).all(|number| {
                self.oracle.outstanding_unacked_sends(self.unacked[number].id) == 0
                    && self.network.is_silent_to(self.channel_of(number))
            })
    }

    fn bid_farewell(&mut self) -> Result<(), Violation> {
        self.stage = Stage::Farewell;
        for number in 0..self.unacked.len() {
            self.network.spare(self.channel_of(number));
            self.post_farewell(number)?;
        }
        Ok(())
    }

    /// Everything has arrived that ever will: what did has to be enough.
    fn stop_unacked(&mut self) -> Result<(), Violation> {
        for node in 0..self.nodes.len() {
            self.poll_all(node)?;
        }
        for number in 0..self.unacked.len() {
            let intact = self.network.intact(self.channel_of(number));
            self.oracle.carried_unacked(self.unacked[number].id, intact)?;
        }
        for number in 0..self.unacked.len() {
            let end = &self.unacked[number];
            let (id, is_ample) = (end.id, end.plan.is_ample);
            self.oracle.stop_unacked(id, is_ample)?;
            let (node, queue_pair) = (end.plan.node, end.queues.number());
            let error = QueuePairAttributes::to_state(QueuePairState::Error);
            self.modify_pair(node, queue_pair, &error);
        }
        self.stage = Stage::Emptying;
        Ok(())
    }

    fn close_unacked(&mut self) -> Result<(), Violation> {
        for node in 0..self.nodes.len() {
            self.poll_all(node)?;
        }
        let is_empty =
            |end: &super::UnackedEnd| self.oracle.outstanding_unacked_receives(end.id) == 0;
        if !self.unacked.iter().all(is_empty) {
            return Ok(());
        }
        let queues: Vec<_> = self.unacked.iter().map(|end| end.id).collect();
        self.oracle.close_unacked(&queues)?;
        self.stage = Stage::Over;
        Ok(())
    }

    /// The application brings a send queue back once everything in it was flushed.
    pub(in super::super) fn resume_unacked(&mut self, number: usize) -> Result<(), Violation> {
        let end = &self.unacked[number];
        let (node, queue_pair) = (end.plan.node, end.queues.number());
        self.unacked[number].posts_in_error = Some(0);
        if self.oracle.outstanding_unacked_sends(self.unacked[number].id) > 0 {
            self.run_application_at(node, self.now + MICROSECOND);
            self.put(self.now + 2 * MICROSECOND, Event::Resume(number));
            return Ok(());
        }
        self.modify_pair(node, queue_pair, &QueuePairAttributes::to_state(QueuePairState::Rts));
        self.oracle.resume_unacked(self.unacked[number].id);
        self.unacked[number].posts_in_error = None;
        let delay = self.choose(self.scenario.application_delay);
        self.run_application_at(node, self.now + delay.max(1));
        Ok(())
    }

    /// What never ended, in words.
    pub(in super::super) fn unfinished_unacked(&self) -> String {
        let mut text = String::new();
        for end in &self.unacked {
            let sends = self.oracle.outstanding_unacked_sends(end.id);
            let receives = self.oracle.outstanding_unacked_receives(end.id);
            let left = end.plan.requests.len() - end.cursor;
            if self.stage != Stage::Over && sends + receives + left > 0 {
                text += &format!(
                    " {} ({}, {:?}) has {sends} sends and {receives} receives outstanding, {left} \
                     not posted;",
                    end.queues.number(),
                    end.queues.state(),
                    self.stage
                );
            }
        }
        text
    }

    /// Every packet of a request that left was sent once, and none of one that was flushed.
    pub(in super::super) fn check_unacked_economy(&self) -> Result<(), Violation> {
        let tally = &self.network.tally;
        let sent: u64 = Row::UNACKED.iter().map(|row| tally.of(*row)).sum();
        let (least, most) = self.unacked_packets;
        if (least..=most).contains(&sent) {
            return Ok(());
        }
        let text = format!(
            "{sent} packets without acknowledgement were sent instead of {least} to {most}"
        );
        Err(Violation::new(Rule::Economy, text))
    }
}
