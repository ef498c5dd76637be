//! What sharing a port with other processes has cost.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts, written by the link and read by anybody.
        #[derive(Debug, Default)]
        pub(super) struct SharingCounters {
            $(pub(super) $name: AtomicU64,)*
        }

        /// What sharing the port with other processes has cost so far.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct SharingStatistics {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl SharingCounters {
            pub(super) fn snapshot(&self) -> SharingStatistics {
                SharingStatistics { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl SharingStatistics {
            /// All counts with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Packets that arrived here for another process and were handed over to it.
    forwarded,
    /// Packets for another process that did not keep up: lost.
    forward_overflowed,
    /// Packets for a slot that no process owns; the engine drops them as for an unknown queue pair.
    unclaimed,
    /// Packets that another process handed over to this one.
    received_forwarded,
    /// Messages of other processes that were not for this one, or made no sense: dropped.
    misdirected,
    /// Connections of users who have no business here, or one too many.
    refused_connections,
    /// Steering programs that this process attached.
    programs_attached,
    /// Times that this process took over the port as its owner's guest.
    takeovers,
}

/// Counts on.
pub(super) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}
