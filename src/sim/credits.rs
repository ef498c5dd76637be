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

/// What an answer says: messages finished, and receives beyond them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
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
    /// Messages begun, modulo 2^24.
    begun: u32,
    limit: Option<u32>,
    /// A message beyond the limit was begun, and no answer has come since.
    is_beyond: bool,
}

impl Ledger {
    /// A new connection.
    pub(super) fn new(first_psn: u32, path_mtu: u32) -> Self {
        Self { path_mtu, fresh: first_psn, ..Self::default() }
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
        self.is_beyond = false;
        let Some(credits) = told.credits else { return };
        let limit = (told.finished + credits) % PSNS;
        let rises = |old: u32| limit.wrapping_sub(old) % PSNS < PSNS / 2;
        if self.limit.is_none_or(rises) {
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

    #[test]
    fn one_message_beyond_the_limit_may_begin_and_another_after_an_answer() {
        let mut ledger = Ledger::new(0xff_ffff, 256);
        assert!(ledger.sent(0xff_ffff, WRITE));
        ledger.answered(Told { finished: 1, credits: Some(1) });
        ledger.answered(Told { finished: 0, credits: Some(0) });
        assert_eq!(ledger.limit(), Some(2), "an old answer takes nothing away");
        assert!(ledger.sent(0, SEND));
        assert!(ledger.sent(1, WRITE));
        assert!(ledger.sent(2, SEND));
        assert!(ledger.sent(2, SEND), "again is not anew");
        assert!(!ledger.sent(3, SEND));
        ledger.answered(Told { finished: 4, credits: Some(0) });
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
