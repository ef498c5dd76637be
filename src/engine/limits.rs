//! Everything has a limit, given at creation.

use std::net::IpAddr;

use crate::transport::CongestionOptions;
use crate::wire::Qpn;

/// The most of each thing that a device gives out. What is over the number that keys, queue pair
/// numbers or queue entries have room for comes down to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs, at most 65536. Numbers that are never given (0, 1, 0xffffff) are taken off.
    pub queue_pairs: u32,
    /// Work requests in a queue, at most 2^31.
    pub work_requests: u32,
    /// Segments in a work request, at most 65535.
    pub segments: u32,
    /// Inline bytes in a work request.
    pub inline_bytes: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Entries of a completion queue, at most 2^31.
    pub completions: u32,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
    /// XRC domains.
    pub xrc_domains: u32,
    /// Protection domains.
    pub domains: u32,
    /// Memory regions, at most 2^24 - 1.
    pub regions: u32,
    /// Memory windows; with the regions, at most 2^24 - 1.
    pub windows: u32,
    /// Address handles.
    pub address_handles: u32,
    /// Multicast groups with members (max_mcast_grp). The link has a socket for each.
    pub multicast_groups: u32,
    /// Queue pairs in one multicast group (max_mcast_qp_attach).
    pub multicast_members: u32,
    /// Members of all multicast groups together (max_total_mcast_qp_attach).
    pub multicast_attachments: u32,
    /// READs and atomics under way on a queue pair, in each direction.
    pub rd_atomic: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_pairs: 65_536,
            work_requests: 32_768,
            segments: 32,
            inline_bytes: 1024,
            completion_queues: 65_536,
            completions: 4_194_304,
            shared_receive_queues: 65_536,
            xrc_domains: 65_536,
            domains: 65_536,
            regions: 1_048_576,
            windows: 1_048_576,
            address_handles: 1_048_576,
            multicast_groups: 256,
            multicast_members: 1024,
            multicast_attachments: 65_536,
            rd_atomic: 128,
        }
    }
}

impl Limits {
    /// The same, as far as they are possible where there are so many queue pair numbers.
    pub(super) fn possible(self, numbers: u32) -> Self {
        const POSITIONS: u32 = 1 << 31;
        const KEYS: u32 = (1 << 24) - 1;
        Self {
            queue_pairs: self.queue_pairs.min(numbers),
            work_requests: self.work_requests.min(POSITIONS),
            segments: self.segments.min(u16::MAX.into()),
            completions: self.completions.min(POSITIONS),
            regions: self.regions.min(KEYS),
            windows: self.windows.min(KEYS - self.regions.min(KEYS)),
            ..self
        }
    }
}

/// What an engine is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Where all randomness comes from: first queue pair number, keys.
    pub seed: u64,
    /// The top 8 bits of all queue pair numbers, which tell the processes of a host apart.
    pub slot: u8,
    /// Own addresses, in the order of their GID indexes.
    pub gids: Vec<IpAddr>,
    /// Limits.
    pub limits: Limits,
    /// Whether packets are dropped whose IPv4 identification a socket did not show and which are
    /// right only with another one than our own senders use.
    pub strict: bool,
    /// The MigReq bit of sent packets. Hardware sends 1, and some of it wants to see 1.
    pub migration: bool,
    /// Congestion control; on by default. Values out of range are taken as the nearest possible.
    pub congestion: CongestionOptions,
    /// Whether answers tell peers how many receives a queue pair has posted, so that they send no
    /// more; without, and always for those of a shared queue, they are told that there is no limit
    /// and find out by "receiver not ready".
    pub finite_credits: bool,
}

impl EngineOptions {
    /// The queue pair number with this index in our slot; nothing if it is one that is never given.
    pub(super) fn number(&self, index: u16) -> Option<Qpn> {
        let number = Qpn::new(u32::from(self.slot) << 16 | u32::from(index));
        let reserved = number.value() <= 1 || number == Qpn::MULTICAST;
        (!reserved).then_some(number)
    }

    /// How many numbers our slot has to give.
    pub(super) const fn numbers(&self) -> u32 {
        let all = 1 << 16;
        match self.slot {
            0 => all - 2,
            0xff => all - 1,
            _ => all,
        }
    }

    /// Usual options for a device with these addresses.
    pub fn new(seed: u64, gids: Vec<IpAddr>) -> Self {
        Self {
            seed,
            slot: 0,
            gids,
            limits: Limits::default(),
            strict: false,
            migration: true,
            congestion: CongestionOptions::default(),
            finite_credits: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_come_down_to_what_numbers_and_entries_have_room_for() {
        let most = Limits {
            queue_pairs: u32::MAX,
            work_requests: u32::MAX,
            segments: u32::MAX,
            completions: u32::MAX,
            regions: 0xff_fff0,
            windows: u32::MAX,
            ..Limits::default()
        };
        let options = EngineOptions::new(1, Vec::new());
        let possible = most.possible(options.numbers());
        assert_eq!(possible.queue_pairs, 65_534, "slot 0 never gives numbers 0 and 1");
        assert_eq!(possible.work_requests.checked_next_power_of_two(), Some(1 << 31));
        assert_eq!(possible.completions, 1 << 31);
        assert_eq!(possible.segments, 65_535);
        assert_eq!((possible.regions, possible.windows), (0xff_fff0, 15));
        let most = Limits { regions: u32::MAX, ..most };
        let possible = most.possible(options.numbers());
        assert_eq!((possible.regions, possible.windows), (0xff_ffff, 0));
        let usual = Limits::default();
        assert_eq!(usual.possible(65_536), usual);
    }
}
