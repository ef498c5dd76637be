//! What holds a queue pair to its rate: nothing until it is notified, then a limiter and the time at
//! which it lets more through.

use super::limiter::{FlowRate, Limiter};
use super::options::CongestionOptions;
use crate::time::Instant;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// In a box, since most queue pairs never have one.
    limiter: Option<Box<Limiter>>,
    /// Nothing with payload goes out before.
    until: Instant,
}

impl Default for Pacer {
    fn default() -> Self {
        Self { limiter: None, until: Instant::NEVER }
    }
}

impl Pacer {
    /// A congestion notification came.
    pub(crate) fn notify(&mut self, now: Instant, options: &CongestionOptions) {
        match &mut self.limiter {
            Some(limiter) => limiter.notify_again(now, options),
            None => self.limiter = Some(Box::new(Limiter::new(now, options))),
        }
    }

    /// Whether there is a rate.
    pub(crate) fn is_limited(&self) -> bool {
        self.limiter.is_some()
    }

    /// The rate, if there is one.
    pub(crate) fn rate(&self, now: Instant, options: &CongestionOptions) -> Option<FlowRate> {
        self.limiter.as_ref().map(|limiter| limiter.rate(now, options))
    }

    /// Bytes on the line that may go out now, at least one packet; nothing if none may, and then the
    /// time when that changes is noted.
    pub(crate) fn budget(&mut self, now: Instant, options: &CongestionOptions) -> Option<usize> {
        let Some(limiter) = &mut self.limiter else { return Some(usize::MAX) };
        match limiter.budget(now, options) {
            Ok(bytes) => {
                self.until = Instant::NEVER;
                if limiter.is_over(now, options) {
                    self.limiter = None;
                }
                Some(bytes)
            }
            Err(until) => {
                self.until = until;
                None
            }
        }
    }

    /// So many bytes went out.
    pub(crate) fn charge(&mut self, bytes: usize, options: &CongestionOptions) {
        if let Some(limiter) = &mut self.limiter {
            limiter.charge(bytes, options);
        }
    }

    /// Whether something waits for the rate.
    pub(crate) fn holds(&self) -> bool {
        self.until != Instant::NEVER
    }

    /// When to look again.
    pub(crate) fn deadline(&self) -> Instant {
        self.until
    }

    /// Whether that time has come; if so, it counts as noticed.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        let due = self.until <= now;
        if due {
            self.until = Instant::NEVER;
        }
        due
    }
}
