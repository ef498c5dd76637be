//! End-to-end credits (specification, section 9.7.7.2): how many messages a requester may send that
//! consume a receive.
//!
//! Every ACK and response says how many messages the responder has finished and how many receives
//! it has posted beyond them: their sum is the number of the last message that finds a receive for
//! sure. All messages count, since each moves the first number on, but only SEND and WRITE with
//! immediate have to stop at the last. Beyond it one packet at a time may go, and asks for an
//! acknowledgement, which brings new credits, or the pause of "receiver not ready". So there is no
//! standstill, and whoever posts receives late gets one packet in vain and not a window.

use super::requester::Outstanding;
use super::responder::Responder;
use crate::queue::QueuePairKind;
use crate::transport::context::Base;
use crate::transport::requests::consumes_receive;
use crate::transport::segment::Class;
use crate::wire::{Aeth, Credits, Msn, Psn, Syndrome};

/// Where the numbers of messages wrap.
const NUMBERS: u32 = 1 << 24;

/// How far `to` is ahead of `from`.
const fn distance(from: Msn, to: Msn) -> u32 {
    to.value().wrapping_sub(from.value()) & (NUMBERS - 1)
}

const fn is_after(message: Msn, other: Msn) -> bool {
    let ahead = distance(other, message);
    ahead != 0 && ahead < NUMBERS / 2
}

/// The last message that surely finds a receive; without one there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CreditLimit(Option<Msn>);

impl CreditLimit {
    /// Takes over what an answer says. A limit never moves back: receives are not taken away, and
    /// codes round down. Returns whether more may be sent than before.
    pub(super) fn learn(&mut self, aeth: Aeth) -> bool {
        let Syndrome::Ack(credits) = aeth.syndrome.meaning() else { return false };
        let Some(count) = credits.count() else { return self.0.take().is_some() };
        let told = Msn::new(aeth.msn.value().wrapping_add(count));
        let rises = self.0.is_some_and(|last| is_after(told, last));
        if rises || self.0.is_none() {
            self.0 = Some(told);
        }
        rises
    }

    /// Whether the packet `packet` of a request may have to wait for a receive. The later packets
    /// of a SEND do not, once its first one is acknowledged.
    pub(super) fn holds(&self, entry: &Outstanding, packet: u32, oldest: Psn) -> bool {
        let Some(last) = self.0 else { return false };
        let has_receive = entry.shape.class == Class::Send && packet > 0 && oldest != entry.first;
        consumes_receive(&entry.operation) && is_after(entry.message, last) && !has_receive
    }
}

impl Responder {
    /// What an answer with the number `msn` says about receives, which may be older than the newest
    /// message. Those of a shared queue may be gone the next moment: they are not promised.
    pub(super) fn credits(&self, base: &Base, msn: Msn) -> Credits {
        let has_own_receives =
            base.queues.kind() == QueuePairKind::Rc && !base.queues.shares_receives();
        if !base.finite_credits || !has_own_receives {
            return Credits::UNLIMITED;
        }
        let posted = base.queues.receive.posted() + u32::from(self.has_claimed());
        Credits::from_count(posted + distance(msn, self.msn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(msn: u32, credits: Credits) -> Aeth {
        Aeth { syndrome: Syndrome::Ack(credits), msn: Msn::new(msn) }
    }

    #[test]
    fn the_limit_is_the_sum_never_moves_back_and_ends_with_code_31() {
        let mut limit = CreditLimit::default();
        assert!(!limit.learn(said(5, Credits::UNLIMITED)));
        assert_eq!(limit, CreditLimit(None));
        // Code 5 is six credits.
        assert!(!limit.learn(said(5, Credits::new(5))));
        assert_eq!(limit, CreditLimit(Some(Msn::new(11))));
        assert!(!limit.learn(said(6, Credits::new(4))));
        assert_eq!(limit, CreditLimit(Some(Msn::new(11))), "a rounded code takes nothing away");
        assert!(limit.learn(said(12, Credits::new(0))));
        assert_eq!(limit, CreditLimit(Some(Msn::new(12))));
        assert!(limit.learn(said(12, Credits::UNLIMITED)));
        assert_eq!(limit, CreditLimit(None));
    }

    #[test]
    fn numbers_wrap() {
        let mut limit = CreditLimit::default();
        limit.learn(said(0xff_fffe, Credits::new(4)));
        assert_eq!(limit, CreditLimit(Some(Msn::new(2))));
        assert!(is_after(Msn::new(3), Msn::new(2)) && !is_after(Msn::new(0xff_ffff), Msn::new(2)));
    }
}
