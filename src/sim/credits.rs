//! Credits as the network sees them: what each end was told, and what it sends all the same.
//!
//! Messages are counted as they are sent for the first time. Once an end has been told how many its
//! peer has receives for, it may begin one message beyond that, and another only when an answer has
//! come in between.

/// What a packet is, as far as counting messages needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begins {
    /// Begins a message.
    pub(super) message: bool,
    /// Needs a receive at once.
    pub(super) receive: bool,
    /// Bytes that a READ asks for.
    pub(super) reads: Option<u32>,
}

/// What an answer says: how far packets have come, messages finished, and receives beyond them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// The first PSN that it leaves unacknowledged.
    pub(super) reaches: u32,
    /// It says only that.
    pub(super) is_refusal: bool,
    pub(super) finished: u32,
    pub(super) credits: Option<u32>,
}

const PSNS: u32 = 1 << 24;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// 0 where nobody counts.
    path_mtu: u32,
    /// The first PSN that was never sent.
    fresh: u32,
    /// The first PSN that no answer has acknowledged.
    oldest: u32,
    /// Messages begun, modulo 2^24.
    begun: u32,
    limit: Option<u32>,
    /// A message beyond the limit was begun, and no answer has come since.
    is_beyond: bool,
}

impl Ledger {
    /// A new connection.
    pub(super) fn new(first_psn: u32, path_mtu: u32) -> Self {
        Self { path_mtu, fresh: first_psn, oldest: first_psn, ..Self::default() }
    }

    /// A request is sent. False if that is one too many.
    pub(super) fn sent(&mut self, psn: u32, begins: Begins) -> bool {
        if psn != self.fresh || self.path_mtu == 0 {
            return true;
        }
        let packets = begins.reads.map_or(1, |length| length.div_ceil(self.path_mtu).max(1));
        self.fresh = (psn + packets) % PSNS;
        if !begins.message {
            return true;
        }
        self.begun = (self.begun + 1) % PSNS;
        let beyond = |limit: u32| self.begun.wrapping_sub(limit).wrapping_sub(1) % PSNS < PSNS / 2;
        if !begins.receive || !self.limit.is_some_and(beyond) {
            return true;
        }
        !std::mem::replace(&mut self.is_beyond, true)
    }

    /// An answer is handed to the end.
    pub(super) fn answered(&mut self, told: Told) {
        let ahead = told.reaches.wrapping_sub(self.oldest) % PSNS;
        let is_new = ahead != 0 && ahead < PSNS / 2;
        if is_new {
            self.oldest = told.reaches;
        }
        if told.is_refusal {
            return;
        }
        self.is_beyond = false;
        let Some(credits) = told.credits else { return };
        let limit = (told.finished + credits) % PSNS;
        let rises = |old: u32| limit.wrapping_sub(old) % PSNS < PSNS / 2;
        // An answer for what was acknowledged before may be ignored as a whole: that there is a limit
        // at all need not be known from it.
        if self.limit.map_or(is_new, rises) {
            self.limit = Some(limit);
        }
    }

    /// How many messages may begin.
    #[cfg(test)]
    fn limit(&self) -> Option<u32> {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: Begins = Begins { message: true, receive: true, reads: None };
    const WRITE: Begins = Begins { message: true, receive: false, reads: None };

    fn answer(reaches: u32, finished: u32, credits: u32) -> Told {
        Told { reaches, is_refusal: false, finished, credits: Some(credits) }
    }

    /// Seed 50116368: a late acknowledgement came behind the NAKs that had said the same.
    #[test]
    fn an_answer_for_what_is_acknowledged_sets_no_first_limit() {
        let mut ledger = Ledger::new(5, 256);
        assert!(ledger.sent(5, SEND) && ledger.sent(6, WRITE));
        ledger.answered(Told { reaches: 6, is_refusal: true, finished: 1, credits: None });
        ledger.answered(answer(6, 1, 0));
        assert_eq!(ledger.limit(), None);
        ledger.answered(answer(7, 2, 0));
        assert_eq!(ledger.limit(), Some(2));
        ledger.answered(answer(7, 2, 3));
        assert_eq!(ledger.limit(), Some(5), "receives that were posted meanwhile");
    }

    #[test]
    fn one_message_beyond_the_limit_may_begin_and_another_after_an_answer() {
        let mut ledger = Ledger::new(0xff_ffff, 256);
        assert!(ledger.sent(0xff_ffff, WRITE));
        ledger.answered(answer(0, 1, 1));
        ledger.answered(answer(0, 0, 0));
        assert_eq!(ledger.limit(), Some(2), "an old answer takes nothing away");
        assert!(ledger.sent(0, SEND));
        assert!(ledger.sent(1, WRITE));
        assert!(ledger.sent(2, SEND));
        assert!(ledger.sent(2, SEND), "again is not anew");
        assert!(!ledger.sent(3, SEND));
        ledger.answered(answer(4, 4, 0));
        assert!(ledger.sent(4, SEND));
    }

    #[test]
    fn a_read_takes_a_psn_for_each_packet_of_its_answer() {
        let mut ledger = Ledger::new(10, 256);
        let read = |length| Begins { message: true, receive: false, reads: Some(length) };
        assert!(ledger.sent(10, read(600)));
        assert!(ledger.sent(12, read(88)), "asked for again from its last packet on");
        assert!(ledger.sent(13, read(0)));
        assert_eq!((ledger.fresh, ledger.begun), (14, 2));
    }
}
