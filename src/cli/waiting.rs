//! Waiting for completions, by polling or by sleeping on their events.

use std::time::Duration;

use uroce::software::clock;
use uroce::verbs::{Completion, CompletionChannel, CompletionQueue};

use super::output::Failure;

/// Who sleeps looks up so often: the other end may have gone.
const NAP: Duration = Duration::from_millis(100);

/// How to wait.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Sleep on completion events. Polling, as ibv_rc_pingpong does, costs a processor and saves
    /// the wake-up.
    pub events: bool,
    /// How long to wait at most.
    pub patience: Duration,
}

impl Waiting {
    /// The next completions; 0 if none has come for as long as there is patience. `idle` is called
    /// between two looks at the queue.
    ///
    /// # Errors
    /// The queue has overrun, or what `idle` says.
    pub fn next(
        self,
        completions: &CompletionQueue,
        channel: &CompletionChannel,
        batch: &mut [Completion],
        mut idle: impl FnMut() -> Result<(), Failure>,
    ) -> Result<usize, Failure> {
        let deadline = clock::now() + self.patience.as_nanos() as u64;
        loop {
            if self.events {
                completions.request_notification(false);
            }
            let count = completions.poll(batch)?;
            if count > 0 || clock::now() >= deadline {
                return Ok(count);
            }
            if self.events {
                channel.wait_event(NAP.min(Duration::from_nanos(deadline.since(clock::now()))));
            } else {
                std::hint::spin_loop();
            }
            idle()?;
        }
    }
}
