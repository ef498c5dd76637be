//! What must hold.

use uroce::engine::Effects;
use uroce::queue::{Access, QueuePairAttributes, QueuePairKind, QueuePairState};

use super::setup::{GRANTED, MEMORY, OWN, SECRET, Victim, at_first};

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
    /// READ of what is granted; and what the application has asked for and has not completed goes,
    /// or goes again: it may have waited for credit, for an answer, or for the pace.
    pub(super) fn most_sent(&self, received: usize) -> usize {
        let read = GRANTED.len() / self.mtu.bytes();
        (self.waiting + received) * (read + 2) + 2 * self.posts.packets() + 2
    }

    /// So many packets have come. Where congestion has been told their answers may go later.
    pub(super) fn note_waiting(&mut self, received: usize) {
        let rate = self.engine.flow_rate(self.now, self.queues.number()).expect("it exists");
        self.waiting = if rate.is_some() { self.waiting + received } else { 0 };
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
        let before = at_first();
        // As slices: byte by byte it would be most of the cost of a run.
        let is_untouched = |range: std::ops::Range<usize>| bytes[range.clone()] == before[range];
        assert!(is_untouched(0..GRANTED.start), "written below what is granted");
        assert!(is_untouched(GRANTED.end..OWN.start), "written what is only to be read");
        assert!(is_untouched(OWN.end..MEMORY), "written above what is granted");
        let writes = self.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if !writes || self.kind == QueuePairKind::Ud {
            assert!(is_untouched(GRANTED), "written without the right");
        }
        assert!(self.posts.takes_bytes || is_untouched(OWN), "written where nothing was posted");
    }
}

/// Eight bytes of it, from any place on. Of any eight in a row one has a place that eight divides:
/// only around those it is looked for, which is most of the cost of a run otherwise.
fn holds_secret(bytes: &[u8]) -> bool {
    let start = |window: &[u8]| SECRET.iter().position(|byte| *byte == window[0]);
    let is_secret = |window: &[u8]| {
        let expected = |start: usize| SECRET.iter().cycle().skip(start).take(SECRET.len());
        start(window).is_some_and(|start| window.iter().eq(expected(start)))
    };
    let around = |place: usize| {
        let end = bytes.len().min(place + SECRET.len());
        &bytes[(place + 1).saturating_sub(SECRET.len())..end]
    };
    (0..bytes.len()).step_by(SECRET.len()).any(|place| {
        SECRET.contains(&bytes[place]) && around(place).windows(SECRET.len()).any(is_secret)
    })
}
