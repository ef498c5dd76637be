//! Queue pairs.

use std::net::IpAddr;
use std::sync::Arc;

use super::{CompletionQueue, Context, Endpoint, ProtectionDomain, SharedReceiveQueue, VerbsError};
use crate::engine::{Counters, Engine, EventSubject, FlowRate, History, QueuePairStatus};
use crate::queue::{
    Completion, Payload, PostError, QueuePairAttributes, QueuePairKind, QueuePairQueues,
    QueuePairState, ReceiveRequest, SendFlags, SendOperation, SendRequest, Sge,
};
use crate::wire::{Psn, Qpn, Srqn};
use crate::words::{self, Explanation};

/// A queue pair. Can be used from any thread at once; dropping it destroys it.
pub struct QueuePair {
    domain: ProtectionDomain,
    queues: Arc<QueuePairQueues>,
    /// Kept alive as long as the engine fills them.
    _completions: [CompletionQueue; 2],
    _shared_receives: Option<SharedReceiveQueue>,
}

impl QueuePair {
    pub(super) fn new(
        domain: ProtectionDomain,
        queues: Arc<QueuePairQueues>,
        completions: [CompletionQueue; 2],
        shared_receives: Option<SharedReceiveQueue>,
    ) -> Self {
        Self { domain, queues, _completions: completions, _shared_receives: shared_receives }
    }

    pub(super) fn context(&self) -> &Context {
        self.domain.context()
    }

    /// Its number, which a peer has to know.
    pub fn number(&self) -> Qpn {
        self.queues.number()
    }

    /// Its transport.
    pub fn kind(&self) -> QueuePairKind {
        self.queues.kind()
    }

    /// Its state at this moment.
    pub fn state(&self) -> QueuePairState {
        self.queues.state()
    }

    /// What a peer has to know to connect: our address number `gid_index`, our number, and the PSN
    /// that we will start with.
    ///
    /// # Errors
    /// The device has no such address.
    pub fn endpoint(&self, gid_index: u16, psn: Psn) -> Result<Endpoint, VerbsError> {
        let gid = self.context().gid(gid_index)?;
        Ok(Endpoint { gid, number: self.number(), psn })
    }

    /// Changes attributes, all or none.
    ///
    /// # Errors
    /// The transition does not exist, or an attribute is missing, not allowed or out of range; the
    /// error names it.
    pub fn modify(&self, attributes: &QueuePairAttributes) -> Result<(), VerbsError> {
        let number = self.number();
        if matches!(attributes.state, Some(QueuePairState::Reset | QueuePairState::Error)) {
            self.context().device().settle()?;
        }
        let call = || format!("modify_qp({number}, {})", words::call::attributes(attributes));
        self.context()
            .tell_control(call, |engine, now| engine.modify_queue_pair(now, number, attributes))
    }

    /// Attributes, state and sizes.
    ///
    /// # Errors
    /// None while the queue pair exists; the device may have failed.
    pub fn query(&self) -> Result<QueuePairStatus, VerbsError> {
        let number = self.number();
        let call = || format!("query_qp({number})");
        self.context().tell_control(call, |engine, _| engine.query_queue_pair(number))
    }

    /// What the queue pair remembers: its last events, and the facts of its failures. RESET clears
    /// it; ERR does not.
    ///
    /// # Errors
    /// The device belongs to the process that this one was forked from.
    pub fn history(&self) -> Result<History, VerbsError> {
        let number = self.number();
        Ok(self.context().control(|engine, _| engine.history(number))??)
    }

    /// Why a work request of this queue pair completed as it did, in sentences with the numbers of
    /// that moment. To be asked before the queue pair is reset or destroyed.
    pub fn explain(&self, completion: &Completion) -> Explanation {
        Explanation::of_completion(self.history(), completion)
    }

    /// Why the queue pair went into error, if it was not the application that took it there: also
    /// where no completion tells, such as after a faulty request of the peer.
    pub fn explain_error(&self) -> Option<Explanation> {
        words::explain_root(&self.history().ok()?)
    }

    /// Why a faulty message was last dropped, if one was: on UC and UD that fails nothing, so that
    /// nothing else tells.
    pub fn explain_dropped(&self) -> Option<Explanation> {
        words::explain_dropped(&self.history().ok()?)
    }

    /// The rate to which congestion notifications have brought it; nothing if it is not limited. UC
    /// and UD queue pairs are limited by their destinations: [`Context::rate_to`].
    ///
    /// [`Context::rate_to`]: super::Context::rate_to
    ///
    /// # Errors
    /// As [`QueuePair::query`].
    pub fn rate(&self) -> Result<Option<FlowRate>, VerbsError> {
        let number = self.number();
        Ok(self.context().control(|engine, now| engine.flow_rate(now, number))??)
    }

    /// From now on gets a copy of every datagram that is sent to a multicast group (of
    /// 224.0.0.0/4 or ff00::/8; an IPv4-mapped address stands for the IPv4 one) with our queue key,
    /// its own ones included. The device joins the group on its interface. Being attached twice is
    /// being attached once. Dropping the queue pair detaches it.
    ///
    /// A datagram reaches the group through an address handle to the group's address and
    /// [`Qpn::MULTICAST`]; its sender need not be attached.
    ///
    /// # Errors
    /// The queue pair is not a datagram one, the address is no group's or of a family of which the
    /// device has no address, a limit of the device is reached, or the interface cannot join.
    pub fn attach_multicast(&self, group: IpAddr) -> Result<(), VerbsError> {
        let number = self.number();
        let call = || format!("attach_mcast({number}, {group})");
        let outcome = self.context().device().attach_multicast(number, group);
        Ok(self.context().told(call, outcome)?)
    }

    /// Ends [`QueuePair::attach_multicast`]; the device leaves the group with its last member.
    ///
    /// # Errors
    /// The queue pair is not attached to the group.
    pub fn detach_multicast(&self, group: IpAddr) -> Result<(), VerbsError> {
        let number = self.number();
        let call = || format!("detach_mcast({number}, {group})");
        let outcome = self.context().device().detach_multicast(number, group);
        Ok(self.context().told(call, outcome)?)
    }

    /// What has been counted for this queue pair, see [`Counters`].
    ///
    /// # Errors
    /// As [`QueuePair::query`].
    pub fn counters(&self) -> Result<Counters, VerbsError> {
        let number = self.number();
        let count = |engine: &mut Engine, _| engine.queue_pair_counters(number).cloned();
        Ok(self.context().control(count)??)
    }

    /// Queues one send request and starts it.
    ///
    /// # Errors
    /// The queue is full, the state takes no sends (RESET to RTR), or the request is over what the
    /// queue was created for. Errors of the operation itself come as its completion.
    pub fn post_send(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post_sends(std::slice::from_ref(request)).map_err(|(_, error)| error)
    }

    /// Queues send requests in order.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`], with how many were queued before the one that was refused.
    pub fn post_sends(&self, requests: &[SendRequest<'_>]) -> Result<(), (usize, PostError)> {
        let (queued, outcome) = self.queues.post_send(requests);
        self.tell_posts("post_send", requests, queued, &outcome, words::call::send);
        if queued > 0 {
            self.context().device().kick();
        }
        outcome.map_err(|error| (queued, error))
    }

    /// Each request that was queued, and the one that was refused.
    fn tell_posts<R>(
        &self,
        name: &str,
        requests: &[R],
        queued: usize,
        outcome: &Result<(), PostError>,
        words: impl Fn(&R) -> String,
    ) {
        let Some(tracer) = self.context().device().tracer() else { return };
        let number = self.number();
        for (index, request) in requests.iter().enumerate().take(queued + 1) {
            let told = if index < queued { Ok(()) } else { outcome.as_ref().copied() };
            tracer.call(|| format!("{name}({number}, {})", words(request)), told);
        }
    }

    /// Queues send requests of an XRC INI queue pair in order, for the peer's shared receive queue
    /// `shared`: its receives take their messages, and their remote keys count in its protection
    /// domain.
    ///
    /// # Errors
    /// As [`QueuePair::post_sends`], or the queue pair is of another kind.
    pub fn post_sends_to(
        &self,
        shared: Srqn,
        requests: &[SendRequest<'_>],
    ) -> Result<(), (usize, PostError)> {
        let (queued, outcome) = self.queues.post_send_to(shared, requests);
        self.tell_posts("post_send", requests, queued, &outcome, words::call::send);
        if queued > 0 {
            self.context().device().kick();
        }
        outcome.map_err(|error| (queued, error))
    }

    /// Queues one send request of an XRC INI queue pair.
    ///
    /// # Errors
    /// As [`QueuePair::post_sends_to`].
    pub fn post_send_to(&self, shared: Srqn, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post_sends_to(shared, std::slice::from_ref(request)).map_err(|(_, error)| error)
    }

    /// Queues one signaled request with one segment of memory: the common case.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    pub fn post(&self, id: u64, operation: SendOperation, segment: Sge) -> Result<(), PostError> {
        self.post_send(&SendRequest {
            id,
            operation,
            flags: SendFlags::SIGNALED,
            payload: Payload::Segments(&[segment]),
        })
    }

    /// Queues one receive request.
    ///
    /// # Errors
    /// The queue is full, the state is RESET, or there are too many segments.
    pub fn post_receive(&self, id: u64, segments: &[Sge]) -> Result<(), PostError> {
        let request = ReceiveRequest { id, segments };
        self.post_receives(std::slice::from_ref(&request)).map_err(|(_, error)| error)
    }

    /// Queues receive requests in order.
    ///
    /// # Errors
    /// As [`QueuePair::post_receive`], with how many were queued before the one that was refused.
    pub fn post_receives(&self, requests: &[ReceiveRequest<'_>]) -> Result<(), (usize, PostError)> {
        let (queued, outcome) = self.queues.post_receive(requests);
        self.tell_posts("post_recv", requests, queued, &outcome, words::call::receive);
        if queued > 0 {
            self.context().device().kick_for_receives(&self.queues);
        }
        outcome.map_err(|error| (queued, error))
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let number = self.number();
        // In a forked child there is nothing to settle.
        let _ = self.context().device().settle();
        // A queue pair in a group cannot be destroyed (C11-17).
        let _ = self.context().device().leave_all_multicast(number);
        // It exists: nothing else destroys it.
        let call = || format!("destroy_qp({number})");
        let _ = self.context().tell_control(call, |engine, _| engine.destroy_queue_pair(number));
        self.context().device().forget_events(&EventSubject::QueuePair(number));
    }
}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePair")
            .field("number", &self.number())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
