//! What must hold.

use uroce::engine::Effects;
use uroce::queue::{Access, QueuePairAttributes, QueuePairKind, QueuePairState};

use super::setup::{CANARY, GRANTED, MEMORY, OWN, SECRET, Victim};

/// PSNs of packets that went out, kept for answers.
const RECENT: usize = 16;

impl Victim {
    /// Looks at what went out, and returns how many packets that were.
    pub(super) fn look(&mut self) -> usize {
        let mut packets = 0;
        for (burst, bytes) in std::mem::take(&mut self.wire.sent) {
            packets += burst.packets();
            assert!(!holds_secret(&bytes), "{bytes:02x?} tells what was not granted");
            for packet in bytes.chunks(burst.segment) {
                self.recent.push(u32::from_be_bytes([0, packet[9], packet[10], packet[11]]));
            }
        }
        let surplus = self.recent.len().saturating_sub(RECENT);
        self.recent.drain(..surplus);
        self.take_completions();
        self.engine.take_effects(&mut Effects::default());
        packets
    }

    /// For each packet that comes: an answer and a congestion notification, or all responses of a
    /// READ of what is granted; and what the application has asked for goes, or goes again.
    pub(super) fn most_sent(&self, received: usize) -> usize {
        let read = GRANTED.len() / self.mtu.bytes();
        received * (read + 2) + 2 * self.posts.packets() + 2
    }

    /// The queue pair's error ends all requests.
    pub(super) fn end(&mut self) {
        let to = QueuePairAttributes::to_state(QueuePairState::Error);
        let number = self.queues.number();
        if self.queues.state() == QueuePairState::Reset {
            return;
        }
        self.engine.modify_queue_pair(self.now, number, &to).expect("any state can end in error");
        self.turns();
        self.check_flushed();
        assert_eq!(self.turns(), 0, "a queue pair in error sends nothing");
    }

    pub(super) fn check_memory(&self) {
        let bytes = self.memory.to_vec(0, MEMORY).expect("all of it");
        let is_all =
            |range: std::ops::Range<usize>, value| bytes[range].iter().all(|byte| *byte == value);
        let is_secret = |range: std::ops::Range<usize>| {
            bytes[range].chunks(SECRET.len()).all(|chunk| chunk == SECRET)
        };
        assert!(is_secret(0..GRANTED.start), "written below what is granted");
        assert!(is_all(GRANTED.end..OWN.start, CANARY), "written what is only to be read");
        assert!(is_secret(OWN.end..MEMORY), "written above what is granted");
        let writes = self.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if !writes || self.kind == QueuePairKind::Ud {
            assert!(is_all(GRANTED, CANARY), "written without the right");
        }
        assert!(self.posts.takes_bytes || is_all(OWN, CANARY), "written where nothing was posted");
    }
}

/// Eight bytes of it, from any place on.
fn holds_secret(bytes: &[u8]) -> bool {
    let start = |window: &[u8]| SECRET.iter().position(|byte| *byte == window[0]);
    let is_secret = |window: &[u8]| {
        let expected = |start: usize| SECRET.iter().cycle().skip(start).take(SECRET.len());
        start(window).is_some_and(|start| window.iter().eq(expected(start)))
    };
    bytes.windows(SECRET.len()).any(is_secret)
}
