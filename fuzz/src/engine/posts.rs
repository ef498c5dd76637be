//! What the application asks for, and that each request completes at most once.

use std::collections::BTreeMap;

use uroce::queue::{
    Completion, CompletionKind, Datagram, Payload, QueuePairKind, ReceiveRequest, Remote,
    SendFlags, SendOperation, SendRequest,
};
use uroce::wire::{Immediate, Qpn, Rkey, Srqn};

use super::super::input::Input;
use super::setup::{Victim, own};
use crate::pair::QKEY;

/// Requests that have not completed, by their numbers.
#[derive(Default)]
pub(super) struct Posts {
    next: u64,
    /// Packets that each may have on its way.
    sends: BTreeMap<u64, usize>,
    /// Bytes that each has room for.
    receives: BTreeMap<u64, u32>,
    /// Something was posted that lets the peer's bytes into the application's own memory.
    pub(super) takes_bytes: bool,
}

impl Posts {
    /// Packets that a step back to the oldest request sends again.
    pub(super) fn packets(&self) -> usize {
        self.sends.values().sum()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Victim {
    pub(super) fn post_send(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let (place, length) = (u32::from(input.byte()) * 8, input.pick(&[8, 64, 0, 1, 1024, 1500]));
        let operation = self.operation(choice, input);
        let is_atomic =
            matches!(operation, SendOperation::FetchAdd { .. } | SendOperation::CompareSwap { .. });
        let length = if is_atomic { 8 } else { length };
        let segments = [own(self.local, place, length)];
        let payload = match operation {
            SendOperation::AtomicWrite { .. } => Payload::EMPTY,
            _ => Payload::Segments(&segments),
        };
        let flags = SendFlags { fence: choice & 0x80 != 0, ..SendFlags::SIGNALED };
        let id = self.posts.number();
        let request = SendRequest { id, operation, flags, payload };
        // A queue that is full, or a state or a kind that has no such requests, refuses it.
        let posted = match self.kind {
            QueuePairKind::XrcInitiator => self.queues.post_send_to(Srqn::new(0x77), &[request]).1,
            _ => self.queues.post_one_send(&request),
        };
        if posted.is_ok() {
            // A READ is asked for in one packet, however much it brings.
            let is_read = matches!(operation, SendOperation::Read(_));
            let data = if is_read { 0 } else { length as usize };
            let packets = data.div_ceil(self.mtu.bytes()).max(1);
            self.posts.sends.insert(id, packets);
            self.posts.takes_bytes |= is_atomic || is_read;
            self.turns();
        }
    }

    fn operation(&self, choice: u8, input: &mut Input<'_>) -> SendOperation {
        let remote = Remote { address: 64, key: Rkey::new(7) };
        if let (QueuePairKind::Ud, Some(address)) = (self.kind, self.handle) {
            let to = Datagram { address, queue_pair: Qpn::new(0xb00), qkey: QKEY };
            return SendOperation::SendTo { to, immediate: None };
        }
        match choice & 7 {
            0 | 1 => SendOperation::Read(remote),
            2 => SendOperation::FetchAdd { remote, add: 1 },
            3 => SendOperation::Write(remote),
            4 => SendOperation::WriteWithImmediate(remote, Immediate([1, 2, 3, 4])),
            5 => SendOperation::SendWithInvalidate(Rkey::new(9)),
            6 if input.flag() => SendOperation::AtomicWrite { remote, value: [3; 8] },
            6 => SendOperation::CompareSwap { remote, compare: 1, swap: 2 },
            _ => SendOperation::Send,
        }
    }

    pub(super) fn post_receive(&mut self, input: &mut Input<'_>) {
        let length = input.pick(&[1024, 64, 0, 1, 2048]);
        let id = self.posts.number();
        let segments = [own(self.local, u32::from(input.byte()) * 8, length)];
        let request = ReceiveRequest { id, segments: &segments };
        let posted = match self.shared.as_slice() {
            [] => self.queues.post_one_receive(&request),
            queues => queues[input.below(queues.len())].post(&[request]).1,
        };
        if posted.is_ok() {
            self.posts.receives.insert(id, length);
            self.posts.takes_bytes = true;
            self.turns();
        }
    }

    /// RESET ends requests without completions; but those of shared queues stay.
    pub(super) fn forget_posts(&mut self) {
        self.take_completions();
        self.posts.sends.clear();
        if self.shared.is_empty() {
            self.posts.receives.clear();
        }
    }

    pub(super) fn take_completions(&mut self) {
        let mut taken = Vec::new();
        let polled = self.completions.poll(usize::MAX, |_, completion| taken.push(completion));
        polled.expect("it has room for all requests");
        taken.iter().for_each(|completion| self.completed(completion));
    }

    fn completed(&mut self, completion: &Completion) {
        let Completion { id, status, kind, length, .. } = completion;
        if self.posts.sends.remove(id).is_some() {
            return;
        }
        let room = self.posts.receives.remove(id).expect("a request completes once");
        let fills = *kind == CompletionKind::Receive && status.is_success();
        let is_written = matches!(kind, CompletionKind::Receive) && fills;
        if is_written {
            assert!(*length <= room, "{length} bytes in {room}");
        }
    }

    /// Everything that is outstanding when a queue pair is in error completes.
    pub(super) fn check_flushed(&self) {
        assert!(self.posts.sends.is_empty(), "sends that never complete");
        let serves_itself = self.shared.is_empty();
        assert!(!serves_itself || self.posts.receives.is_empty(), "receives that never complete");
    }
}
