//! Two engines whose packets a test can look at, change and lose on their way.

use std::sync::Arc;

use uroce::engine::History;
use uroce::queue::{Completion, QueuePairAttributes, QueuePairKind, SendFlags, SendOperation};
use uroce::time::SECOND;
use uroce::wire::{Flow, Headers, ICRC_LENGTH, Packet, SentBurst, icrc};
use uroce::words::{explain_root, explain_status};

use crate::pair::Pair;

/// One packet on its way.
pub struct Passing {
    /// Which side has sent it.
    pub from: usize,
    flow: Flow,
    identification: u16,
    pub bytes: Vec<u8>,
}

impl Passing {
    /// What its headers say.
    pub fn headers(&self) -> Headers {
        Packet::parse(&self.bytes).expect("our own packet").headers
    }

    /// Changes headers and payload; the ICRC is right afterwards.
    pub fn rewrite(&mut self, change: impl FnOnce(&mut Headers, &mut Vec<u8>)) {
        let packet = Packet::parse(&self.bytes).expect("our own packet");
        let (mut headers, mut payload) = (packet.headers, packet.payload.to_vec());
        change(&mut headers, &mut payload);
        let pad = uroce::wire::pad(payload.len());
        self.bytes = vec![0; headers.length() + payload.len() + pad];
        let start = headers.emit(&mut self.bytes, payload.len());
        self.bytes[start..start + payload.len()].copy_from_slice(&payload);
        self.sign();
    }

    /// Changes the opcode byte.
    pub fn set_opcode(&mut self, opcode: u8) {
        self.bytes[0] = opcode;
        self.bytes.truncate(self.bytes.len() - ICRC_LENGTH);
        self.sign();
    }

    fn sign(&mut self) {
        let bytes = &self.bytes;
        let signature =
            icrc::of_datagram(&self.flow, self.identification, icrc::DONT_FRAGMENT, bytes);
        self.bytes.extend(signature);
    }
}

/// Gives turns for ten seconds at most; `pass` says of each packet whether it arrives.
pub fn run(pair: &mut Pair, mut pass: impl FnMut(&mut Passing) -> bool) {
    let end = pair.now + 10 * SECOND;
    loop {
        let mut next = uroce::time::Instant::NEVER;
        let mut moved = 0;
        for from in 0..2 {
            let side = &mut pair.sides[from];
            let report = side.engine.turn(pair.now, &mut side.wire, 64);
            moved += report.received + report.sent;
            next = next.min(report.next_deadline);
            for (burst, bytes) in std::mem::take(&mut side.wire.sent) {
                for packet in split(from, &burst, &bytes) {
                    carry(pair, packet, &burst, &mut pass);
                }
            }
        }
        if moved == 0 {
            if next > end {
                return;
            }
            pair.now = next.max(pair.now);
        }
        pair.now += 100;
    }
}

fn split(from: usize, burst: &SentBurst, bytes: &[u8]) -> Vec<Passing> {
    let segments = bytes.chunks(burst.segment).enumerate();
    let one = |(index, segment): (usize, &[u8])| Passing {
        from,
        flow: burst.flow,
        identification: burst.first_identification.wrapping_add(index as u16),
        bytes: segment.to_vec(),
    };
    segments.map(one).collect()
}

fn carry(
    pair: &mut Pair,
    mut packet: Passing,
    burst: &SentBurst,
    pass: &mut impl FnMut(&mut Passing) -> bool,
) {
    if pass(&mut packet) {
        let length = packet.bytes.len();
        let first_identification = packet.identification;
        let alone = SentBurst { first_identification, segment: length, length, ..*burst };
        pair.sides[1 - packet.from].wire.arrived.push_back((alone, packet.bytes));
    }
}

/// Everything arrives.
pub fn all(_: &mut Passing) -> bool {
    true
}

/// An RC pair whose attributes were changed.
pub fn rc(adjust: &dyn Fn(usize, &mut QueuePairAttributes)) -> Pair {
    Pair::adjusted(QueuePairKind::Rc, adjust)
}

/// An RC pair with short timers, so that retries end soon.
pub fn impatient() -> Pair {
    rc(&|_, attributes| attributes.timeout = Some(8))
}

/// Ends the queue pair of a side, as when its process ends.
pub fn destroy(pair: &mut Pair, side: usize) {
    let side = &mut pair.sides[side];
    side.engine.destroy_queue_pair(side.queues.number()).unwrap();
}

pub fn history(pair: &Pair, side: usize) -> History {
    let side = &pair.sides[side];
    side.engine.history(side.queues.number()).unwrap()
}

/// Posts one signaled request with number 7, 64 KiB into the memory of side 0.
pub fn post(pair: &mut Pair, operation: SendOperation, length: usize) {
    pair.post(0, 7, operation, SendFlags::SIGNALED, (65_536, length));
}

/// The next completion of a side, explained.
pub fn explained(pair: &mut Pair, side: usize) -> String {
    let completion = pair.completion(side);
    explained_as(pair, side, &completion)
}

pub fn explained_as(pair: &Pair, side: usize, completion: &Completion) -> String {
    assert!(!completion.status.is_success(), "{completion:?}");
    explain_status(&history(pair, side), completion.id, completion.status).to_string()
}

/// Why a side's queue pair is in error.
pub fn root(pair: &Pair, side: usize) -> String {
    explain_root(&history(pair, side)).expect("a reason").to_string()
}

/// A memory region of a side: so many bytes with these rights.
pub fn register(
    pair: &mut Pair,
    side: usize,
    length: usize,
    access: uroce::queue::Access,
) -> (Arc<uroce::memory::OwnedMemory>, uroce::engine::MemoryKeys) {
    let side = &mut pair.sides[side];
    let memory = uroce::memory::OwnedMemory::new(length);
    let keys = side.engine.register(side.domain, Arc::clone(&memory), access).unwrap();
    (memory, keys)
}
