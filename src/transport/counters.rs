//! What happened, counted. Silence on the wire is never silence to the user: each dropped packet
//! has a reason here.

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// One thing that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
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
        }
    };
}

counters! {
    /// Packets received, good or not.
    ReceivedPackets => "received_packets",
    /// Packets made.
    SentPackets => "sent_packets",
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
    /// Congestion notifications received.
    ReceivedCongestionNotification => "rp_cnp_handled",
    /// Packets received with a congestion mark.
    ReceivedCongestionMark => "np_ecn_marked_roce_packets",
}

impl Counter {
    /// Whether it counts packets that came and were dropped or ignored.
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

/// The counts of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    counts: Vec<u64>,
}

impl Default for Counters {
    fn default() -> Self {
        Self { counts: vec![0; Counter::ALL.len()] }
    }
}

impl Counters {
    pub(crate) fn add(&mut self, counter: Counter, amount: u64) {
        self.counts[counter as usize] += amount;
    }

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
