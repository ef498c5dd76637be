//! The requester's time: retries left, probe timer, local ACK timeout, the pause after RNR.
//!
//! The probe timer is short and free: it asks again with one packet and uses up nothing. The local
//! ACK timeout is the one that the application set; only its expiries and sequence NAKs without
//! progress use up `retry_cnt`, and any progress reloads it.

use super::requester::Blocked;
use crate::queue::QueuePairAttributes;
use crate::time::{Instant, MILLISECOND, SECOND};
use crate::transport::context::{Base, Context};
use crate::wire::Psn;

/// Local ACK timeouts below this are rounded up: a software peer may be out of the processor for
/// longer, and the specification asks only that the timeout be no shorter than the value.
const MIN_ACK_TIMEOUT: u64 = MILLISECOND;
const MAX_PROBE: u64 = SECOND;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct RetryClock {
    retries_left: u8,
    rnr_left: u8,
    probe: Timer,
    ack_timeout: Timer,
    /// The pause after RNR.
    pause: Timer,
    /// Doublings of the probe interval since a round trip was last measured. Progress alone does
    /// not reset it: on a path that is slower than the interval every packet is sent again, nothing
    /// can be measured, and only a longer interval ends that (Karn's rule).
    backoff: u32,
    /// One packet was sent again to provoke an answer; the rest waits for it.
    probing: bool,
    /// The oldest packet goes out once more although nothing says yet that it was lost.
    repetition: Repetition,
    /// The next packet must ask for an acknowledgement.
    ask: bool,
    /// A round trip being measured.
    sample: Sample,
    /// The oldest PSN when a NAK last made us step back: at the same place, only a timer may.
    stepped_back_at: Option<Psn>,
    /// When answers last made us step back, and up to which PSN packets had been sent then.
    stepped_back: Option<(Instant, Psn)>,
    /// What has been tried for the oldest packet, told if all is in vain.
    pub(super) attempt: Attempt,
    /// The peer has acknowledged something.
    pub(super) acknowledged: bool,
}

/// When something is due: never, unless it runs. An `Option` would be larger, and slower to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer(Instant);

impl Default for Timer {
    fn default() -> Self {
        Self(Instant::NEVER)
    }
}

impl Timer {
    fn runs(self) -> bool {
        self != Self::default()
    }

    /// Whether it is due; then it runs no more.
    fn take_due(&mut self, now: Instant) -> bool {
        let is_due = self.0 <= now;
        if is_due {
            self.stop();
        }
        is_due
    }

    fn stop(&mut self) {
        *self = Self::default();
    }
}

/// What happened since the peer last acknowledged something.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempt {
    /// Since when the peer owes an answer.
    pub(super) since: Instant,
    /// How often the oldest packet was sent.
    pub(super) tries: u32,
    /// Sequence error NAKs.
    pub(super) sequence_naks: u32,
    /// Answers outside of what is unacknowledged.
    pub(super) outside: u32,
    /// The PSN of the last of these.
    pub(super) outside_psn: Psn,
    /// Receiver-not-ready NAKs.
    pub(super) refusals: u32,
    /// When the first of these came.
    pub(super) refused_since: Instant,
    /// What the last of these asked for.
    pub(super) pause: u64,
}

/// A packet whose answer tells the round trip, and when it was sent: never, if none is measured. An
/// `Option` would be eight bytes larger, for each queue pair.
#[derive(Clone, Copy, Debug)]
struct Sample {
    psn: Psn,
    sent: Instant,
}

impl Default for Sample {
    fn default() -> Self {
        Self { psn: Psn::default(), sent: Instant::NEVER }
    }
}

/// What has become of a packet that shall go out once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Repetition {
    #[default]
    Unwanted,
    /// It has to go out.
    Owed,
    /// It is on its way, and its answer will tell.
    Out,
}

/// What asks for a step back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// An answer beyond one that is missing.
    Implied,
    /// A sequence NAK.
    Explicit,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    RnrOver,
    AckTimeout,
    Probe,
}

/// 4.096 µs × 2^t, or none for t = 0.
pub(super) fn ack_timeout(attributes: &QueuePairAttributes) -> Option<u64> {
    Some(asked_timeout(attributes)?.max(MIN_ACK_TIMEOUT))
}

/// The same as the application has asked for it.
pub(super) fn asked_timeout(attributes: &QueuePairAttributes) -> Option<u64> {
    let exponent = attributes.timeout.filter(|exponent| *exponent > 0)?;
    Some(4096u64 << exponent.min(31))
}

impl Attempt {
    /// The receiver was not ready.
    pub(super) fn refused(&mut self, now: Instant) {
        if self.refusals == 0 {
            self.refused_since = now;
        }
        self.refusals = self.refusals.saturating_add(1);
    }

    /// A sequence error NAK came.
    pub(super) fn asked_again(&mut self) {
        self.sequence_naks = self.sequence_naks.saturating_add(1);
    }

    /// An answer came that lies outside of what is unacknowledged.
    pub(super) fn answered_outside(&mut self, psn: Psn) {
        self.outside = self.outside.saturating_add(1);
        self.outside_psn = psn;
    }

    /// A packet went out, maybe the oldest one.
    pub(super) fn sent(&mut self, is_oldest: bool) {
        self.tries = self.tries.saturating_add(u32::from(is_oldest));
    }
}

impl RetryClock {
    /// Full retry counters.
    pub(super) fn reload(&mut self, base: &Base) {
        self.retries_left = base.attributes.retry_count.unwrap_or(0);
        self.rnr_left = base.attributes.rnr_retry.unwrap_or(0);
    }

    /// Whether time forbids sending.
    pub(super) fn may_send(&self, at_oldest: bool) -> Result<(), Blocked> {
        if self.pause.runs() {
            Err(Blocked::ReceiverNotReady)
        } else if self.probing && !(at_oldest && self.repetition != Repetition::Out) {
            Err(Blocked::Probing)
        } else {
            Ok(())
        }
    }

    /// Whether the next packet must ask for an acknowledgement.
    pub(super) fn asks(&self) -> bool {
        self.ask
    }

    /// A packet was sent; `measured` if its answer tells the round trip.
    pub(super) fn sent(&mut self, base: &Base, ctx: &Context<'_>, psn: Psn, measured: bool) {
        self.ask = false;
        if measured && self.sample.sent == Instant::NEVER {
            self.sample = Sample { psn, sent: ctx.now };
        }
        if !self.ack_timeout.runs() && !self.probe.runs() {
            if self.attempt.tries == 0 {
                self.attempt.since = ctx.now;
            }
            self.arm(base, ctx);
        }
    }

    /// Starts both timers anew.
    fn arm(&mut self, base: &Base, ctx: &Context<'_>) {
        self.arm_probe(base, ctx);
        self.arm_ack_timeout(base, ctx);
    }

    fn arm_ack_timeout(&mut self, base: &Base, ctx: &Context<'_>) {
        let timeout = ack_timeout(&base.attributes);
        self.ack_timeout = timeout.map_or_else(Timer::default, |timeout| Timer(ctx.now + timeout));
    }

    fn arm_probe(&mut self, base: &Base, ctx: &Context<'_>) {
        if base.peer.is_some() {
            self.probe = Timer(ctx.now + self.probe_interval(base, ctx));
        }
    }

    /// The oldest PSN has moved on to `oldest`; `waiting` if packets are still unacknowledged.
    pub(super) fn progress(
        &mut self,
        base: &Base,
        ctx: &mut Context<'_>,
        oldest: Psn,
        waiting: bool,
    ) {
        self.reload(base);
        self.probing = false;
        self.forget_repetition();
        self.pause.stop();
        self.stepped_back_at = None;
        self.acknowledged = true;
        let tries = u32::from(waiting);
        self.attempt = Attempt { since: ctx.now, tries, ..Attempt::default() };
        let Sample { psn, sent } = self.sample;
        if sent != Instant::NEVER && psn.is_before(oldest) {
            self.forget_sample();
            self.backoff = 0;
            if let Some(peer) = &base.peer {
                ctx.paths.get_mut(peer.path).measured(ctx.now - sent);
            }
        }
        if waiting {
            self.arm(base, ctx);
        } else {
            self.stop();
        }
    }

    /// No timer runs.
    pub(super) fn stop(&mut self) {
        self.probe.stop();
        self.ack_timeout.stop();
    }

    /// No timer runs and nothing is awaited.
    pub(super) fn stop_all(&mut self) {
        *self = Self {
            retries_left: self.retries_left,
            rnr_left: self.rnr_left,
            acknowledged: self.acknowledged,
            ..Self::default()
        };
    }

    /// Retransmitted packets tell nothing about the round trip.
    pub(super) fn forget_sample(&mut self) {
        self.sample = Sample::default();
    }

    /// A NAK asks for a step back at `oldest`. Only the first one at a place is followed; later
    /// ones there would start a second copy of everything.
    ///
    /// Nor is one about packets that the last step back sent again followed before an answer to them
    /// can be here: it speaks of the stream that was under way then. Where two streams of the same packets interleave, each
    /// packet of the newer one moves the oldest PSN, and the next of the older one lies beyond it:
    /// each such pair would start another stream, until nothing gets through any more.
    pub(super) fn may_step_back(
        &self,
        base: &Base,
        ctx: &Context<'_>,
        oldest: Psn,
        asked: Asked,
    ) -> bool {
        let answerable = self.stepped_back.is_none_or(|(at, highest)| {
            let path = base.peer.as_ref().map(|peer| ctx.paths.get(peer.path));
            let wait = path.map_or(0, |path| path.answer_time(asked == Asked::Explicit));
            ctx.now - at >= wait || !oldest.is_before(highest)
        });
        !self.pause.runs() && self.stepped_back_at != Some(oldest) && answerable
    }

    /// Uses up a retry. Returns whether there was one.
    pub(super) fn take_retry(&mut self) -> bool {
        let left = self.retries_left > 0;
        self.retries_left = self.retries_left.saturating_sub(1);
        left
    }

    /// Notes a step back at `oldest` after a NAK; packets up to `highest` had been sent.
    pub(super) fn stepped_back(
        &mut self,
        base: &Base,
        ctx: &Context<'_>,
        oldest: Psn,
        highest: Psn,
    ) {
        self.stepped_back_at = Some(oldest);
        self.stepped_back = Some((ctx.now, highest));
        self.probing = false;
        self.arm_probe(base, ctx);
    }

    /// Everything up to `highest` is sent again, and NAKs of the stream before may be on their way.
    pub(super) fn sends_again(&mut self, now: Instant, highest: Psn) {
        self.stepped_back = Some((now, highest));
    }

    /// How long the probe timer runs, in nanoseconds.
    pub(super) fn probe_interval(&self, base: &Base, ctx: &Context<'_>) -> u64 {
        let path = base.peer.map(|peer| ctx.paths.get(peer.path));
        path.map_or(0, |path| path.probe_interval(self.backoff).min(MAX_PROBE))
    }

    /// The oldest packet goes out once more, and asks; what was sent behind it still counts as
    /// under way. An answer is late far more often than a packet is lost.
    pub(super) fn probe_in_place(&mut self, base: &Base, ctx: &Context<'_>) {
        self.probe(base, ctx);
        self.forget_sample();
        self.repetition = Repetition::Owed;
    }

    /// Whether the oldest packet shall go out once more now.
    pub(super) fn must_repeat(&self) -> bool {
        self.repetition == Repetition::Owed
    }

    /// Whether it has gone out once more, without an answer until now.
    pub(super) fn has_repeated(&self) -> bool {
        self.repetition == Repetition::Out
    }

    /// It has gone out once more.
    pub(super) fn repeated(&mut self) {
        self.ask = false;
        self.repetition = Repetition::Out;
    }

    /// There is another oldest packet, or what was sent is no longer under way.
    pub(super) fn forget_repetition(&mut self) {
        self.repetition = Repetition::Unwanted;
    }

    /// One packet goes out again, and asks.
    pub(super) fn probe(&mut self, base: &Base, ctx: &Context<'_>) {
        self.backoff = self.backoff.saturating_add(1);
        self.probing = true;
        self.ask = true;
        self.arm_probe(base, ctx);
    }

    /// The pause is over: one packet shows whether a receive is there now, and the rest waits for
    /// its answer.
    pub(super) fn resume_with_one(&mut self) {
        self.probing = true;
        self.ask = true;
    }

    /// The local ACK timeout runs anew.
    pub(super) fn restart_ack_timeout(&mut self, base: &Base, ctx: &Context<'_>) {
        self.arm_ack_timeout(base, ctx);
    }

    pub(super) fn is_pausing(&self) -> bool {
        self.pause.runs()
    }

    /// Uses up a receiver-not-ready retry, unless there is no limit (7). Returns whether there was
    /// one.
    pub(super) fn take_rnr_retry(&mut self, base: &Base) -> bool {
        if base.attributes.rnr_retry == Some(7) {
            return true;
        }
        let left = self.rnr_left > 0;
        self.rnr_left = self.rnr_left.saturating_sub(1);
        left
    }

    /// Sends nothing until `until`; no timer runs meanwhile. The peer has answered, so probes start
    /// from their shortest interval again.
    pub(super) fn pause(&mut self, until: Instant, pause: u64) {
        self.stop();
        self.backoff = 0;
        self.attempt.pause = pause;
        self.probing = false;
        self.pause = Timer(until);
    }

    /// When something will be due.
    pub(super) fn deadline(&self) -> Instant {
        self.probe.min(self.ack_timeout).min(self.pause).0
    }

    /// What is due now; it counts as handled.
    pub(super) fn take_due(&mut self, now: Instant) -> Due {
        if self.pause.take_due(now) {
            Due::RnrOver
        } else if self.ack_timeout.take_due(now) {
            Due::AckTimeout
        } else if self.probe.take_due(now) {
            Due::Probe
        } else {
            Due::Nothing
        }
    }
}
