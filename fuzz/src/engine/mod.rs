//! An engine whose peer sends what the input says: packets that look well and are not, answers to
//! what was never asked, damage, bursts; among them the application's own requests and changes of
//! state, and time that passes.
//!
//! Whatever comes, nothing panics; only granted memory is written, and nothing else is told; each
//! request completes at most once; and no packet makes more go out than a READ of all that is
//! granted would.

mod forge;
mod posts;
mod setup;
mod watch;

use uroce::queue::{QueuePairAttributes, QueuePairState};
use uroce::time::{MICROSECOND, MILLISECOND, SECOND};
use uroce::wire::SentBurst;

use super::input::Input;
use setup::Victim;

/// Steps of an input that are taken.
const STEPS: usize = 96;
/// Turns until an engine that gets nothing more has nothing more to do at once.
const TURNS: usize = 400;

/// Whom the peer attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Who serves requests.
    Responder,
    /// Who waits for answers.
    Requester,
}

pub fn responder(data: &[u8]) {
    attack(data, Role::Responder);
}

pub fn requester(data: &[u8]) {
    attack(data, Role::Requester);
}

fn attack(data: &[u8], role: Role) {
    let mut input = Input::new(data);
    let mut victim = Victim::new(&mut input, role);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        victim.step(&mut input);
    }
    // All that is left ends by itself, or waits for the peer.
    victim.pass(SECOND);
    victim.end();
    victim.check_memory();
}

impl Victim {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 20 {
            0..=9 => self.packet(input),
            10 => self.damaged(input),
            11 => self.burst(input),
            12 | 13 => self.post_send(input),
            14 | 15 => self.post_receive(input),
            16 | 17 => {
                let time = [10, 100, 500].map(|count| count * MICROSECOND);
                let all = [&time[..], &[MILLISECOND, 5 * MILLISECOND, 100 * MILLISECOND, SECOND]];
                let passed = input.pick(&all.concat());
                self.pass(passed);
            }
            18 => self.change(input),
            _ => {
                self.wire.pressed = input.flag();
                self.pass(MICROSECOND);
            }
        }
    }

    fn packet(&mut self, input: &mut Input<'_>) {
        let bytes = self.forge(input);
        let class = input.pick(&[2, 2, 0, 3]);
        self.arrive(&bytes, bytes.len(), class, true);
    }

    /// A packet with some bytes changed or cut off, most often with a right ICRC all the same.
    fn damaged(&mut self, input: &mut Input<'_>) {
        let mut bytes = self.forge(input);
        let has_icrc = !input.byte().is_multiple_of(4);
        if input.flag() {
            bytes.truncate(usize::from(input.u16()) % (bytes.len() + 1));
        }
        for _ in 0..input.below(4) {
            let place = usize::from(input.byte());
            let value = input.byte();
            if let Some(byte) = bytes.get_mut(place) {
                *byte = value;
            }
        }
        self.arrive(&bytes, bytes.len(), 2, has_icrc);
    }

    /// The same packet several times in a burst, with PSNs that go on or do not.
    fn burst(&mut self, input: &mut Input<'_>) {
        let first = self.forge(input);
        let count = 2 + input.below(7);
        let step = input.pick(&[1, 1, 1, 0, 2, 0xff_ffff]);
        let mut all = Vec::new();
        for index in 0..count as u32 {
            let mut bytes = first.clone();
            if let Some(psn) = bytes.get_mut(8..12) {
                let number = u32::from_be_bytes([0, psn[1], psn[2], psn[3]]);
                let number = number.wrapping_add(step * index) & 0xff_ffff;
                psn[1..].copy_from_slice(&number.to_be_bytes()[1..]);
            }
            all.extend(bytes);
        }
        self.arrive(&all, first.len(), 2, true);
    }

    /// Gives packets of `length` bytes each, without ICRCs, to the engine.
    fn arrive(&mut self, packets: &[u8], length: usize, traffic_class: u8, has_icrc: bool) {
        let mut bytes = Vec::new();
        let mut count = 0;
        for packet in packets.chunks(length.max(1)) {
            bytes.extend(packet);
            match has_icrc {
                true => bytes.extend(self.icrc(count, packet)),
                false => bytes.extend([0; 4]),
            }
            count += 1;
        }
        if bytes.is_empty() {
            return;
        }
        let segment = length + 4;
        let flow = self.flow;
        let length = bytes.len();
        let burst = SentBurst { flow, traffic_class, first_identification: 0, segment, length };
        self.wire.arrived.push_back((burst, bytes));
        // Asked before, since what goes out may complete by that.
        let most = self.most_sent(usize::from(count));
        let sent = self.turns();
        assert!(sent <= most, "{sent} packets for {count}, {most} at most");
        self.note_waiting(usize::from(count));
    }

    /// Turns until nothing moves. Returns how many packets went out.
    fn turns(&mut self) -> usize {
        for _ in 0..TURNS {
            let report = self.engine.turn(self.now, &mut self.wire, 64);
            self.now += MICROSECOND;
            if report.received + report.sent == 0 {
                self.engine.check_invariants();
                return self.look();
            }
        }
        panic!("it sends without end");
    }

    /// Time passes, deadline by deadline.
    fn pass(&mut self, time: u64) {
        let end = self.now + time;
        for _ in 0..TURNS {
            self.turns();
            let next = self.engine.next_deadline();
            if next > end {
                break;
            }
            self.now = self.now.max(next);
        }
        self.now = self.now.max(end);
        self.turns();
    }

    /// The application changes the queue pair's state; what cannot be is refused.
    fn change(&mut self, input: &mut Input<'_>) {
        let number = self.queues.number();
        let state = input.pick(&QueuePairState::ALL);
        if state == QueuePairState::Reset {
            self.forget_posts();
            let to = QueuePairAttributes::to_state(state);
            self.engine.modify_queue_pair(self.now, number, &to).expect("RESET is always possible");
            let again = input.pick(&[QueuePairState::Rtr, QueuePairState::Rts]);
            self.climb(again);
        } else {
            let attributes = match input.flag() {
                true => self.attributes_to(state),
                false => QueuePairAttributes::to_state(state),
            };
            let _ = self.engine.modify_queue_pair(self.now, number, &attributes);
        }
        self.turns();
    }
}
