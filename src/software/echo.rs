//! Whether what is sent to our slot still comes here: a datagram to ourselves, from time to time.
//!
//! When a process closes its socket, the kernel moves the group's last socket to the index of the
//! closed one, and what the steering program sends to the old index goes wherever a hash chooses.
//! Whoever gets it forwards it and measures the group anew, unless that process is stopped or does
//! not get the processor: then nobody notices, and all that is sent to the moved slot is lost. So a
//! process that shares its port sends an *echo* to its own slot, which the program treats like any
//! packet for that slot. If it does not come back, the group is measured.
//!
//! ```text
//!  echo (14 bytes, shorter than any RoCE packet):
//!    magic (4) │ 0 │ slot │ 0 0 │ number of the echo (4) │ 0 0
//! ```

use crate::time::{Instant, MILLISECOND, SECOND};

/// Starts every echo; 0xff is no opcode of any transport.
const MAGIC: u32 = 0xff75_5245;
/// Bytes of an echo.
pub(super) const ECHO: usize = 14;
/// Time between echoes while there is traffic, and while there is none.
const REST: (u64, u64) = (20 * MILLISECOND, SECOND);
/// There is traffic for so long after a packet: whoever has just talked may be talked to, and would
/// hear nothing of it.
const TRAFFIC: u64 = 2 * SECOND;
/// How long an echo is waited for.
const PATIENCE: u64 = 40 * MILLISECOND;
/// After so many lost echoes in a row the time between them grows no more.
const DOUBLINGS: u32 = 6;

/// An echo, as it lies in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Echo {
    pub(super) slot: u8,
    pub(super) number: u32,
}

impl Echo {
    /// Reads a datagram; nothing if it is no echo.
    pub(super) fn parse(datagram: &[u8]) -> Option<Self> {
        let bytes: &[u8; ECHO] = datagram.try_into().ok()?;
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        (word(0) == MAGIC).then(|| Self { slot: bytes[5], number: word(8) })
    }

    /// Writes the datagram.
    pub(super) fn write(self, bytes: &mut [u8]) {
        bytes[..ECHO].fill(0);
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[5] = self.slot;
        bytes[8..12].copy_from_slice(&self.number.to_be_bytes());
    }
}

/// What [`Watch::advance`] asks its caller to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing before the deadline.
    Nothing,
    /// Send the echo with this number.
    Send(u32),
    /// The last echo was lost: the group has to be measured.
    Lost,
}

/// When to send echoes. Time comes from outside.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Other processes share the port; alone there is nothing to watch.
    is_shared: bool,
    /// When something was last sent or received.
    moved: Option<Instant>,
    number: u32,
    /// The last echo was sent.
    sent: Instant,
    /// It has not come back.
    is_awaited: bool,
    /// Lost ones in a row.
    lost: u32,
}

impl Watch {
    /// Whether others share the port.
    pub(super) fn set_shared(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
    }

    /// Packets were sent or received.
    pub(super) fn moved(&mut self, now: Instant) {
        self.moved = Some(now);
    }

    /// An echo has come back.
    pub(super) fn heard(&mut self, number: u32) {
        if number == self.number {
            self.is_awaited = false;
            self.lost = 0;
        }
    }

    /// When [`Self::advance`] has something to do; [`Instant::NEVER`] while the port is not shared.
    pub(super) fn deadline(&self) -> Instant {
        let is_busy = self.moved.is_some_and(|moved| self.sent.since(moved) < TRAFFIC);
        let rest = if is_busy { REST.0 } else { REST.1 };
        match (self.is_shared, self.is_awaited) {
            (false, _) => Instant::NEVER,
            (true, true) => self.sent + PATIENCE,
            (true, false) => self.sent + (rest << self.lost.min(DOUBLINGS)),
        }
    }

    /// The next thing to do; to be called until there is nothing.
    pub(super) fn advance(&mut self, now: Instant) -> Due {
        if now < self.deadline() {
            return Due::Nothing;
        }
        if std::mem::take(&mut self.is_awaited) {
            self.lost += 1;
            return Due::Lost;
        }
        self.number = self.number.wrapping_add(1);
        (self.sent, self.is_awaited) = (now, true);
        Due::Send(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO + milliseconds * MILLISECOND
    }

    #[test]
    fn echoes_are_sent_often_under_traffic_rarely_without_and_never_alone() {
        let mut watch = Watch::default();
        assert_eq!((watch.deadline(), watch.advance(at(5000))), (Instant::NEVER, Due::Nothing));
        watch.set_shared(true);
        assert_eq!(watch.advance(at(5000)), Due::Send(1));
        watch.heard(1);
        assert_eq!((watch.advance(at(5999)), watch.deadline()), (Due::Nothing, at(6000)));
        watch.moved(at(5999));
        assert_eq!(watch.advance(at(5999)), Due::Send(2));
        watch.heard(2);
        assert_eq!(watch.deadline(), at(6019), "traffic");
        assert_eq!(watch.advance(at(7998)), Due::Send(3));
        watch.heard(3);
        assert_eq!(watch.deadline(), at(8018), "whoever has talked may be talked to");
        assert_eq!(watch.advance(at(8018)), Due::Send(4));
        watch.heard(4);
        assert_eq!(watch.deadline(), at(9018), "quiet again");
    }

    #[test]
    fn an_echo_that_does_not_come_back_is_told_once_and_more_and_more_rarely() {
        let mut watch = Watch::default();
        watch.set_shared(true);
        let mut now = at(2000);
        let mut waits = Vec::new();
        for number in 1..12 {
            watch.moved(now);
            let due = watch.deadline().max(now);
            assert_eq!(watch.advance(due), Due::Send(number));
            waits.push(due.since(now) / MILLISECOND);
            watch.heard(number - 1);
            now = watch.deadline();
            assert_eq!(now, due + PATIENCE);
            assert_eq!(watch.advance(now), Due::Lost);
            assert!(watch.deadline() >= now, "told once");
        }
        // From the loss on: the first at once, for the rest is over by then.
        assert_eq!(waits[..3], [0, 0, 40]);
        assert_eq!(waits[8..], [1240; 3], "64 times the shortest rest, less the patience");
        watch.moved(now);
        assert_eq!(watch.advance(watch.deadline()), Due::Send(12));
        watch.heard(12);
        assert_eq!(watch.deadline(), watch.sent + REST.0, "one that is heard ends that");
    }

    #[test]
    fn an_echo_survives_the_datagram_and_is_no_question() {
        let echo = Echo { slot: 0x56, number: 0x789a_bcde };
        let mut bytes = [0xee; ECHO];
        echo.write(&mut bytes);
        assert_eq!(Echo::parse(&bytes), Some(echo));
        assert_eq!(bytes[5], 0x56, "where the slot of a packet's queue pair is");
        assert_eq!(Echo::parse(&bytes[..13]), None);
        assert_eq!(super::super::steering::Question::parse(&bytes), None);
    }
}
