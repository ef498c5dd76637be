//! What happened, counted: once for the device and once for the queue pair that it concerns. Silence
//! on the wire is never silence to the user: each dropped packet has a reason here.

use std::sync::LazyLock;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $variant:ident => $name:literal,)*) => {
        /// One thing that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Counter {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Counter {
            /// All counters in the order in which they are shown.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What it counts, as a sentence or two.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),*).trim_start(),)*
                }
            }
        }

        /// How many there are.
        const COUNT: usize = [$($name),*].len();
    };
}

counters! {
    /// Packets received, good or not.
    ReceivedPackets => "received_packets",
    /// Packets made.
    SentPackets => "sent_packets",
    /// Bytes of the packets received, from the BTH up to and with the ICRC.
    ReceivedBytes => "received_bytes",
    /// Bytes of the packets made, from the BTH up to and with the ICRC.
    SentBytes => "sent_bytes",
    /// Packets made that had been sent before.
    RetransmittedPackets => "retransmitted_packets",
    /// Dropped: bytes that are no packet.
    DropMalformed => "drop_malformed",
    /// Dropped: wrong invariant CRC.
    DropBadIcrc => "drop_bad_icrc",
    /// Right only with another IPv4 identification than a socket shows; taken all the same.
    RecoveredIdentification => "recovered_identification",
    /// Dropped: no such queue pair.
    DropUnknownQueuePair => "drop_unknown_queue_pair",
    /// Dropped: the packet's transport is not the queue pair's.
    DropWrongTransport => "drop_wrong_transport",
    /// Dropped: the queue pair's state takes no packets.
    DropWrongState => "drop_wrong_state",
    /// Dropped: not from the connection's peer, or not to its address.
    DropWrongAddress => "drop_wrong_address",
    /// Dropped: to a multicast group that no queue pair here is attached to.
    DropNoGroupMember => "drop_no_group_member",
    /// Dropped: partition key mismatch.
    DropPkeyMismatch => "drop_pkey_mismatch",
    /// Dropped: an opcode that no endpoint of this kind receives.
    DropUnexpectedOpcode => "drop_unexpected_opcode",
    /// Dropped: queue key mismatch (UD).
    DropQkeyMismatch => "drop_qkey_mismatch",
    /// Dropped: no receive was posted (UC and UD).
    DropNoReceive => "drop_no_receive",
    /// Dropped: a faulty request, or one that its receive cannot take (UC and UD).
    DropFaultyRequest => "drop_faulty_request",
    /// Dropped: a part of a message of which other parts are missing (UC).
    DropIncompleteMessage => "drop_incomplete_message",
    /// Requests with a PSN ahead of the expected one.
    OutOfSequence => "out_of_sequence",
    /// Requests that had been received before.
    DuplicateRequest => "duplicate_request",
    /// Dropped: a duplicate that no responder record explains, or that is not allowed any more.
    DropDuplicateWithoutRecord => "drop_duplicate_without_record",
    /// Sequence error NAKs sent.
    SentSequenceNak => "sent_sequence_nak",
    /// Receiver-not-ready NAKs sent.
    SentRnrNak => "sent_rnr_nak",
    /// NAKs 0x61 to 0x63 sent.
    SentErrorNak => "sent_error_nak",
    /// Acknowledgements sent.
    SentAck => "sent_ack",
    /// Sequence error NAKs received that started a retransmission.
    PacketSequenceError => "packet_seq_err",
    /// READ or atomic responses that were seen to be missing.
    ImpliedNak => "implied_nak_seq_err",
    /// Receiver-not-ready NAKs received.
    ReceivedRnrNak => "received_rnr_nak",
    /// Receiver-not-ready retries exhausted.
    RnrRetryExceeded => "rnr_nak_retry_err",
    /// Expiries of the local ACK timeout.
    LocalAckTimeout => "local_ack_timeout_err",
    /// Expiries of the probe timer, which runs below the local ACK timeout.
    Probe => "probe",
    /// Retries exhausted.
    RetryExceeded => "retry_exceeded",
    /// Ignored: a response outside of what is unacknowledged.
    IgnoredResponse => "ignored_response",
    /// Ignored: a NAK outside of what is unacknowledged, or a repeated one.
    IgnoredNak => "ignored_nak",
    /// Responses that fit no request.
    BadResponse => "bad_response",
    /// Congestion notifications received and heeded.
    ReceivedCongestionNotification => "rp_cnp_handled",
    /// Congestion notifications received that concern nothing that could slow down, or while
    /// notifications are not heeded.
    IgnoredCongestionNotification => "rp_cnp_ignored",
    /// Packets received with a congestion mark.
    ReceivedCongestionMark => "np_ecn_marked_roce_packets",
    /// Congestion notifications sent.
    SentCongestionNotification => "np_cnp_sent",
    /// WRITEs of peers that began to arrive, repeated ones included.
    ReceivedWriteRequest => "rx_write_requests",
    /// READ requests of peers that arrived, repeated ones included.
    ReceivedReadRequest => "rx_read_requests",
    /// Atomic requests of peers that arrived, repeated ones included.
    ReceivedAtomicRequest => "rx_atomic_requests",
    /// ATOMIC WRITE requests of peers that arrived, repeated ones included.
    ReceivedAtomicWriteRequest => "rx_atomic_write_requests",
    /// FLUSH requests of peers that arrived, repeated ones included.
    ReceivedFlushRequest => "rx_flush_requests",
    /// Our SENDs that were carried out, whether they gave a completion or not.
    FinishedSend => "finished_sends",
    /// Our WRITEs that were carried out, whether they gave a completion or not.
    FinishedWrite => "finished_writes",
    /// Our READs that were carried out, whether they gave a completion or not.
    FinishedRead => "finished_reads",
    /// Our atomics that were carried out, whether they gave a completion or not.
    FinishedAtomic => "finished_atomics",
    /// Our ATOMIC WRITEs that were carried out, whether they gave a completion or not.
    FinishedAtomicWrite => "finished_atomic_writes",
    /// Our FLUSHes that were carried out, whether they gave a completion or not.
    FinishedFlush => "finished_flushes",
    /// Receives that were filled.
    FilledReceive => "filled_receives",
    /// Send requests that ended with an error, flushed ones left out.
    FailedSend => "req_cqe_error",
    /// Send requests that ended because the queue pair was in error.
    FlushedSend => "req_cqe_flush_error",
    /// Receives that ended with an error, flushed ones left out.
    FailedReceive => "resp_cqe_error",
    /// Receives that ended because the queue pair was in error.
    FlushedReceive => "resp_cqe_flush_error",
    /// Send requests that the peer refused as invalid (NAK 0x61).
    RemoteInvalidRequest => "req_remote_invalid_request",
    /// Send requests that the peer refused because its key does not allow them (NAK 0x62).
    RemoteAccessError => "req_remote_access_errors",
    /// Requests of peers that their key did not allow; the queue pair went into error.
    ResponderAccessError => "resp_remote_access_errors",
    /// Receives that were too small for their message.
    ReceiveTooSmall => "resp_local_length_error",
    /// Completions that found their queue full; the queue is unusable from there on.
    LostCompletion => "lost_completions",
    /// Asynchronous events.
    Event => "async_events",
    /// Asynchronous events that were given up because too many waited already.
    LostEvent => "lost_async_events",
    /// Times that the port was lost: the interface was switched off, lost its carrier or was
    /// removed.
    PortDown => "link_downed",
}

impl Counter {
    /// Whether it counts packets that came and were dropped or ignored.
    #[inline]
    pub const fn is_drop(self) -> bool {
        matches!(
            self,
            Self::DropMalformed
                | Self::DropBadIcrc
                | Self::DropUnknownQueuePair
                | Self::DropWrongTransport
                | Self::DropWrongState
                | Self::DropWrongAddress
                | Self::DropPkeyMismatch
                | Self::DropUnexpectedOpcode
                | Self::DropQkeyMismatch
                | Self::DropNoReceive
                | Self::DropFaultyRequest
                | Self::DropIncompleteMessage
                | Self::OutOfSequence
                | Self::DuplicateRequest
                | Self::DropDuplicateWithoutRecord
                | Self::IgnoredResponse
                | Self::IgnoredNak
                | Self::BadResponse
        )
    }
}

/// The counts of one device, or of one queue pair (half a kilobyte).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    counts: Box<[u64; COUNT]>,
}

impl Default for Counters {
    fn default() -> Self {
        Self { counts: Box::new([0; COUNT]) }
    }
}

impl Counters {
    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, amount: u64) {
        self.counts[counter as usize] += amount;
    }

    #[inline]
    pub(crate) fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// One count.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counts[counter as usize]
    }

    /// Names and counts, in the order in which they are shown.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Counter::ALL.iter().map(|counter| (counter.name(), self.get(*counter)))
    }
}

/// The counts of one queue pair. There can be many of which nothing was counted yet: those have no
/// room for counts.
#[derive(Debug, Default)]
pub(crate) struct OwnCounters(Option<Counters>);

/// What they have counted.
static NOTHING: LazyLock<Counters> = LazyLock::new(Counters::default);

impl OwnCounters {
    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, amount: u64) {
        self.0.get_or_insert_default().add(counter, amount);
    }
}

/// The counts of each queue pair, by slot; nothing where there is none.
#[derive(Debug, Default)]
pub(crate) struct PairCounters {
    slots: Vec<Option<OwnCounters>>,
}

impl PairCounters {
    /// A queue pair begins, with nothing counted.
    pub(crate) fn begin(&mut self, slot: u32) {
        let slot = slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some(OwnCounters::default());
    }

    /// A queue pair has ended. What it counted stays in the device's counts.
    pub(crate) fn end(&mut self, slot: u32) {
        self.slots[slot as usize] = None;
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Counters> {
        let own = self.slots.get(slot as usize)?.as_ref()?;
        Some(own.0.as_ref().unwrap_or(&NOTHING))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut OwnCounters> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_name_of_its_own_and_a_sentence() {
        let mut names: Vec<&str> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Counter::ALL.len());
        for counter in Counter::ALL {
            let (name, meaning) = (counter.name(), counter.meaning());
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert!(meaning.ends_with('.') && !meaning.starts_with(' '), "{name}: {meaning}");
        }
        let wrapped = Counter::PortDown.meaning();
        assert!(wrapped.contains("was removed"), "{wrapped}");
    }

    #[test]
    fn a_queue_pairs_counts_are_small() {
        assert!(COUNT * size_of::<u64>() <= 1024, "{COUNT} counters for each queue pair");
    }
}
