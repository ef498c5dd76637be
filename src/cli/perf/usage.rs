//! What processors an end has had.

use serde::{Deserialize, Serialize};
use uroce::software::clock;
use uroce::time::Instant;

use super::super::processor::{processor_time, thread_time};

/// Times of one end, or of both together, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Usage {
    /// Processor time of all threads.
    pub(super) processor: u64,
    /// Processor time of the thread that posts and polls.
    poller: u64,
    /// How long that was.
    wall: u64,
}

impl Usage {
    pub(super) fn add(&mut self, other: Self) {
        self.processor += other.processor;
        self.poller += other.poller;
        self.wall += other.wall;
    }

    /// The share of the time for which the thread had a processor: one, if it polls without end and
    /// nobody else wants that processor.
    pub(super) fn share(&self) -> Option<f64> {
        (self.wall > 0).then(|| self.poller as f64 / self.wall as f64)
    }
}

/// A start of the clocks.
pub(super) struct Watch {
    processor: u64,
    poller: u64,
    start: Instant,
}

impl Watch {
    pub(super) fn start() -> Self {
        Self { processor: processor_time(), poller: thread_time(), start: clock::now() }
    }

    /// What was used since.
    pub(super) fn stop(&self) -> Usage {
        Usage {
            processor: processor_time() - self.processor,
            poller: thread_time() - self.poller,
            wall: clock::now().since(self.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_sleeps_has_no_processor() {
        let watch = Watch::start();
        let (_sender, nothing) = channel::<()>();
        assert!(nothing.recv_timeout(Duration::from_millis(50)).is_err());
        let mut usage = watch.stop();
        assert!(usage.wall >= 50_000_000 && usage.share().unwrap() < 0.5, "{usage:?}");
        assert_eq!(Usage::default().share(), None);
        usage.add(Usage { processor: 1, poller: 3 * usage.wall, wall: usage.wall });
        assert!(usage.share().unwrap() >= 1.5);
    }
}
