//! Names that other RDMA drivers have for what is counted here, so that what people know of those
//! and have written for them goes on to work.
//!
//! The names are those of Linux 6.x: `drivers/infiniband/sw/rxe/rxe_hw_counters.c` and
//! `drivers/infiniband/hw/mlx5/counters.c`, as `rdma statistic show` and
//! `/sys/class/infiniband/*/ports/1/hw_counters` list them.

use crate::engine::Counter;

/// Whose names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameSet {
    /// Linux's software RoCE driver.
    Rxe,
    /// NVIDIA ConnectX from generation 4 on.
    Mlx5,
}

/// Where a count comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterSource {
    /// The sum of these counts of ours.
    Sum(&'static [&'static str]),
    /// Always zero, for this reason.
    Never(&'static str),
}

/// A counter of another driver, and what it is here.
#[derive(Clone, Copy, Debug)]
pub struct CounterName {
    /// Whose name.
    pub set: NameSet,
    /// The name.
    pub name: &'static str,
    /// Where the count comes from.
    pub source: CounterSource,
    /// What it counts, and where that differs from the other driver.
    pub meaning: &'static str,
}

impl CounterName {
    /// All names of a set, in that driver's order.
    pub const fn all(set: NameSet) -> &'static [Self] {
        match set {
            NameSet::Rxe => RXE,
            NameSet::Mlx5 => MLX5,
        }
    }

    /// Its count, from ours by name.
    pub fn value(&self, own: impl Fn(&str) -> u64) -> u64 {
        match self.source {
            CounterSource::Sum(parts) => parts.iter().map(|part| own(part)).sum(),
            CounterSource::Never(_) => 0,
        }
    }
}

const fn rxe(name: &'static str, source: CounterSource, meaning: &'static str) -> CounterName {
    CounterName { set: NameSet::Rxe, name, source, meaning }
}

const fn mlx5(name: &'static str, source: CounterSource, meaning: &'static str) -> CounterName {
    CounterName { set: NameSet::Mlx5, name, source, meaning }
}

use CounterSource::{Never, Sum};

const RXE: &[CounterName] = &[
    rxe("sent_pkts", Sum(&[Counter::SentPackets.name()]), "Packets handed to the network."),
    rxe(
        "rcvd_pkts",
        Sum(&[Counter::ReceivedPackets.name()]),
        "Packets received. rxe counts those with a right ICRC only.",
    ),
    rxe(
        "duplicate_request",
        Sum(&[Counter::DuplicateRequest.name()]),
        "Requests that had been received before: an answer was lost, or came too late.",
    ),
    rxe(
        "out_of_seq_request",
        Sum(&[Counter::OutOfSequence.name()]),
        "Requests ahead of the expected PSN: packets before them were lost or overtaken.",
    ),
    rxe(
        "rcvd_rnr_err",
        Sum(&[Counter::ReceivedRnrNak.name()]),
        "Receiver-not-ready NAKs received: the peer had no receive posted.",
    ),
    rxe(
        "send_rnr_err",
        Sum(&[Counter::SentRnrNak.name()]),
        "Receiver-not-ready NAKs sent: our application had no receive posted.",
    ),
    rxe(
        "rcvd_seq_err",
        Sum(&[Counter::PacketSequenceError.name()]),
        "Sequence error NAKs received that started a retransmission: our packets are lost.",
    ),
    rxe(
        "ack_deferred",
        Never("responses are handled as they arrive, in one turn; no task is deferred"),
        "In rxe: responses that were queued behind others.",
    ),
    rxe(
        "retry_exceeded_err",
        Sum(&[Counter::RetryExceeded.name()]),
        "Requests given up because no answer came within all retries (status 12).",
    ),
    rxe(
        "retry_rnr_exceeded_err",
        Sum(&[Counter::RnrRetryExceeded.name()]),
        "Requests given up because the peer never had a receive (status 13).",
    ),
    rxe(
        "completer_retry_err",
        Sum(&[
            Counter::LocalAckTimeout.name(),
            Counter::PacketSequenceError.name(),
            Counter::ImpliedNak.name(),
        ]),
        "Retries for any reason but a receiver that was not ready. Probes do not count.",
    ),
    rxe(
        "send_err",
        Sum(&["link_refused"]),
        "Packets that the network below refused to send. Counted for the device only.",
    ),
    rxe(
        "link_downed",
        Sum(&[Counter::PortDown.name()]),
        "Times that the interface was lost. Counted for the device only.",
    ),
    rxe("rdma_sends", Sum(&[Counter::FinishedSend.name()]), "SENDs that were carried out."),
    rxe(
        "rdma_recvs",
        Sum(&[Counter::FilledReceive.name()]),
        "Receives that were filled by a SEND or a WRITE with immediate.",
    ),
];

const NO_RETRANSMISSION_ENGINE: CounterSource =
    Never("there is no adaptive retransmission beside the probe timer, which `probe` counts");
const NO_SLOW_RESTART: CounterSource =
    Never("a path that was idle keeps its window; there is no slow restart");

const MLX5: &[CounterName] = &[
    mlx5(
        "rx_write_requests",
        Sum(&[Counter::ReceivedWriteRequest.name()]),
        "WRITEs of peers that began to arrive, repeated ones included.",
    ),
    mlx5(
        "rx_read_requests",
        Sum(&[Counter::ReceivedReadRequest.name()]),
        "READ requests of peers, repeated ones included.",
    ),
    mlx5(
        "rx_atomic_requests",
        Sum(&[Counter::ReceivedAtomicRequest.name()]),
        "Atomic requests of peers, repeated ones included.",
    ),
    mlx5(
        "rx_dct_connect",
        Never("dynamically connected transport is NVIDIA's own and not part of RoCE"),
        "Connection requests of dynamically connected transport.",
    ),
    mlx5(
        "out_of_buffer",
        Sum(&[Counter::SentRnrNak.name(), Counter::DropNoReceive.name()]),
        "Messages that found no receive: refused as not ready (RC) or dropped (UC and UD).",
    ),
    mlx5(
        "out_of_sequence",
        Sum(&[Counter::OutOfSequence.name()]),
        "Requests ahead of the expected PSN: packets before them were lost or overtaken.",
    ),
    mlx5(
        "duplicate_request",
        Sum(&[Counter::DuplicateRequest.name()]),
        "Requests that had been received before: an answer was lost, or came too late.",
    ),
    mlx5(
        "rnr_nak_retry_err",
        Sum(&[Counter::ReceivedRnrNak.name()]),
        "Receiver-not-ready NAKs received, retried or not: the peer had no receive posted.",
    ),
    mlx5(
        "packet_seq_err",
        Sum(&[Counter::PacketSequenceError.name()]),
        "Sequence error NAKs received that started a retransmission: our packets are lost.",
    ),
    mlx5(
        "implied_nak_seq_err",
        Sum(&[Counter::ImpliedNak.name()]),
        "READ or atomic responses seen to be missing by what came after them.",
    ),
    mlx5(
        "local_ack_timeout_err",
        Sum(&[Counter::LocalAckTimeout.name()]),
        "Expiries of the local ACK timeout: packets or answers are lost, or the peer is gone.",
    ),
    mlx5(
        "resp_local_length_error",
        Sum(&[Counter::ReceiveTooSmall.name()]),
        "Receives that were too small for their message.",
    ),
    mlx5(
        "resp_cqe_error",
        Sum(&[Counter::FailedReceive.name(), Counter::FlushedReceive.name()]),
        "Receives that ended with an error, flushed ones included.",
    ),
    mlx5(
        "req_cqe_error",
        Sum(&[Counter::FailedSend.name(), Counter::FlushedSend.name()]),
        "Send requests that ended with an error, flushed ones included.",
    ),
    mlx5(
        "req_remote_invalid_request",
        Sum(&[Counter::RemoteInvalidRequest.name()]),
        "Send requests that the peer refused as invalid (NAK 0x61).",
    ),
    mlx5(
        "req_remote_access_errors",
        Sum(&[Counter::RemoteAccessError.name()]),
        "Send requests that the peer's key did not allow (NAK 0x62).",
    ),
    mlx5(
        "resp_remote_access_errors",
        Sum(&[Counter::ResponderAccessError.name()]),
        "Requests of peers that our key did not allow.",
    ),
    mlx5(
        "resp_cqe_flush_error",
        Sum(&[Counter::FlushedReceive.name()]),
        "Receives that ended because the queue pair was in error.",
    ),
    mlx5(
        "req_cqe_flush_error",
        Sum(&[Counter::FlushedSend.name()]),
        "Send requests that ended because the queue pair was in error.",
    ),
    mlx5(
        "req_transport_retries_exceeded",
        Sum(&[Counter::RetryExceeded.name()]),
        "Requests given up because no answer came within all retries (status 12).",
    ),
    mlx5(
        "req_rnr_retries_exceeded",
        Sum(&[Counter::RnrRetryExceeded.name()]),
        "Requests given up because the peer never had a receive (status 13).",
    ),
    mlx5("roce_adp_retrans", NO_RETRANSMISSION_ENGINE, "Adaptive retransmissions."),
    mlx5("roce_adp_retrans_to", NO_RETRANSMISSION_ENGINE, "Timeouts of adaptive retransmission."),
    mlx5("roce_slow_restart", NO_SLOW_RESTART, "Slow restarts."),
    mlx5("roce_slow_restart_cnps", NO_SLOW_RESTART, "CNPs made by slow restart."),
    mlx5("roce_slow_restart_trans", NO_SLOW_RESTART, "Transitions to slow restart."),
    mlx5(
        "rp_cnp_ignored",
        Sum(&[Counter::IgnoredCongestionNotification.name()]),
        "Congestion notifications received and not heeded.",
    ),
    mlx5(
        "rp_cnp_handled",
        Sum(&[Counter::ReceivedCongestionNotification.name()]),
        "Congestion notifications received and heeded: a peer or switch asks us to slow down.",
    ),
    mlx5(
        "np_ecn_marked_roce_packets",
        Sum(&[Counter::ReceivedCongestionMark.name()]),
        "Packets received with a congestion mark: a switch on the way is filling up.",
    ),
    mlx5(
        "np_cnp_sent",
        Sum(&[Counter::SentCongestionNotification.name()]),
        "Congestion notifications sent.",
    ),
    mlx5(
        "rx_icrc_encapsulated",
        Sum(&[Counter::DropBadIcrc.name()]),
        "Packets with a wrong ICRC, dropped.",
    ),
    mlx5(
        "cc_rx_ce_pkts",
        Sum(&[Counter::ReceivedCongestionMark.name()]),
        "Packets received with a congestion mark.",
    ),
    mlx5(
        "cc_rx_cnp_pkts",
        Sum(&[
            Counter::ReceivedCongestionNotification.name(),
            Counter::IgnoredCongestionNotification.name(),
        ]),
        "Congestion notifications received, heeded or not.",
    ),
    mlx5(
        "cc_tx_cnp_pkts",
        Sum(&[Counter::SentCongestionNotification.name()]),
        "Congestion notifications sent.",
    ),
    mlx5("rdma_tx_packets", Sum(&[Counter::SentPackets.name()]), "Packets handed to the network."),
    mlx5(
        "rdma_tx_bytes",
        Sum(&[Counter::SentBytes.name()]),
        "Bytes of those packets from BTH to ICRC. mlx5 counts the outer headers too.",
    ),
    mlx5("rdma_rx_packets", Sum(&[Counter::ReceivedPackets.name()]), "Packets received."),
    mlx5(
        "rdma_rx_bytes",
        Sum(&[Counter::ReceivedBytes.name()]),
        "Bytes of those packets from BTH to ICRC. mlx5 counts the outer headers too.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::software::OUTER_COUNTS;

    fn is_ours(name: &str) -> bool {
        Counter::ALL.iter().any(|counter| counter.name() == name)
            || OUTER_COUNTS.iter().any(|(outer, _)| *outer == name)
    }

    #[test]
    fn every_name_comes_from_counts_that_exist_and_stands_once_in_its_set() {
        for (set, count) in [(NameSet::Rxe, 15), (NameSet::Mlx5, 38)] {
            let all = CounterName::all(set);
            let mut names: Vec<&str> = all.iter().map(|name| name.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!((names.len(), all.len()), (count, count), "{set:?}: {names:?}");
            for name in all {
                assert!(name.set == set && name.meaning.ends_with('.'), "{}", name.name);
                if let Sum(parts) = name.source {
                    assert!(!parts.is_empty() && parts.iter().all(|part| is_ours(part)));
                }
            }
        }
    }

    #[test]
    fn a_count_is_the_sum_of_its_parts() {
        let own = |name: &str| if name == "sent_rnr_nak" { 2 } else { 5 };
        let of = |name: &str| {
            let found = CounterName::all(NameSet::Mlx5).iter().find(|other| other.name == name);
            found.unwrap().value(own)
        };
        assert_eq!((of("out_of_buffer"), of("packet_seq_err"), of("rx_dct_connect")), (7, 5, 0));
    }
}
