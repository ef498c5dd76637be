//! Steering: the kernel hands each datagram of a shared port to the process whose slot it names.
//!
//! All processes on one address are one SO_REUSEPORT group, and a classic BPF program returns the
//! index of the socket in the group from BTH byte 5. The kernel tells nobody which index a socket
//! has, and changes it whenever a socket before it is closed. So the indexes are measured: a
//! *question* is a datagram to our own port that names an index; the program sends it to exactly
//! that socket, and the process that finds it there answers with its slot.
//!
//! ```text
//!  question (14 bytes, shorter than any RoCE packet):
//!    magic (4) │ index, low byte │ slot of the asker │ index (2) │ number of the question (4) │ 0 0
//! ```
//!
//! An index beyond the group's end makes the kernel choose by the flow's hash, so the same slot
//! answers a second time, and that is how the end shows. Measuring is repeated until it agrees
//! with the program that is attached. All of this is speed, never correctness: a datagram that
//! went to the wrong process is forwarded.

use std::ops::Range;

use crate::rng::Rng;
use crate::time::{Instant, MILLISECOND, SECOND};

/// Starts every question; 0xff is no opcode of any transport.
const MAGIC: u32 = 0xff75_5251;
/// Bytes of a question.
pub(super) const QUESTION: usize = 14;
/// Questions that are asked at once.
const BATCH: u16 = 16;
/// The largest group.
const MOST: u16 = 256;
/// How long answers are waited for.
const PATIENCE: u64 = 40 * MILLISECOND;
/// Attempts to get the lock before a process measures without it: who holds it may be stopped, and
/// two who measure at once only disturb each other.
const TRIES: u32 = 8;
/// Measurements in a row before the rest is left to a later time.
const ROUNDS: u32 = 4;
/// Shortest and longest time between measurements; random within a factor of 2.
const REST: (u64, u64) = (5 * MILLISECOND, SECOND);

/// A question, as it lies in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) index: u16,
    /// Who asks.
    pub(super) slot: u8,
    pub(super) number: u32,
}

impl Question {
    /// Reads a datagram; nothing if it is no question.
    pub(super) fn parse(datagram: &[u8]) -> Option<Self> {
        let bytes: &[u8; QUESTION] = datagram.try_into().ok()?;
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        (word(0) == MAGIC).then_some(())?;
        let index = u16::from_be_bytes([bytes[6], bytes[7]]);
        Some(Self { index, slot: bytes[5], number: word(8) })
    }

    /// Writes the datagram.
    pub(super) fn write(self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4] = self.index as u8;
        bytes[5] = self.slot;
        bytes[6..8].copy_from_slice(&self.index.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.number.to_be_bytes());
        bytes[12..QUESTION].fill(0);
    }
}

/// Slots by index in the group; nothing where a process did not answer.
pub(super) type Members = Vec<Option<u8>>;

/// The program for a group: reads a UDP payload, returns an index, or one beyond all.
pub(super) fn program(members: &Members) -> Vec<libc::sock_filter> {
    // Instruction codes of classic BPF (linux/bpf_common.h).
    const LOAD_WORD: u16 = 0x20;
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const RETURN_LOADED: u16 = 0x16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = vec![
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_IF_EQUAL, 0, 2, MAGIC),
        step(LOAD_HALF, 0, 0, 6),
        step(RETURN_LOADED, 0, 0, 0),
        step(LOAD_BYTE, 0, 0, 5),
    ];
    for (index, slot) in members.iter().enumerate() {
        if let Some(slot) = slot {
            program.push(step(JUMP_IF_EQUAL, 0, 1, u32::from(*slot)));
            program.push(step(RETURN, 0, 0, index as u32));
        }
    }
    program.push(step(RETURN, 0, 0, u32::MAX));
    program
}

/// What [`Steering::advance`] asks its caller to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing before the deadline.
    Wait,
    /// Take the host-wide lock on measuring, then call [`Steering::start`] or
    /// [`Steering::refused`].
    Lock,
    /// Send questions with this number for these indexes.
    Ask { indexes: Range<u16>, number: u32 },
    /// Attach the program for these members.
    Attach(Members),
    /// Release the lock.
    Unlock,
}

/// When to measure, and how far a measurement is. Time and randomness come from outside.
pub(super) struct Steering {
    random: Rng,
    phase: Phase,
    /// Whether something shows that the attached program is wrong.
    stale: bool,
    not_before: Instant,
    rest: u64,
    /// What the last measurement found.
    last: Members,
    /// How often in a row the lock was somebody else's.
    refused: u32,
    /// Whether another process has ever measured the group.
    was_asked: bool,
}

enum Phase {
    Idle,
    Measuring(Measurement),
    Ending,
}

struct Measurement {
    /// Tells its answers from those to earlier questions.
    number: u32,
    members: Members,
    /// Indexes up to this have been asked for.
    asked: u16,
    until: Instant,
    round: u32,
    /// What the round before found.
    attached: Option<Members>,
}

impl Steering {
    /// A process that has just joined the group: no program knows it yet.
    pub(super) fn new(random: Rng) -> Self {
        Self {
            random,
            phase: Phase::Idle,
            stale: true,
            not_before: Instant::ZERO,
            rest: REST.0,
            last: Members::new(),
            refused: 0,
            was_asked: false,
        }
    }

    /// Whether other processes are in the group, as far as this one knows.
    pub(super) fn is_shared(&self) -> bool {
        self.was_asked || self.last.len() > 1
    }

    /// What is sent to this process does not arrive: the attached program must be wrong.
    pub(super) fn is_lost(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Idle) {
            self.stale = true;
            self.not_before = now;
            self.rest = REST.0;
        }
    }

    /// A datagram for another member of the group came here.
    pub(super) fn misrouted(&mut self) {
        self.stale = true;
    }

    /// Another process measures, and has found this one.
    pub(super) fn was_asked(&mut self, now: Instant) {
        self.was_asked = true;
        if matches!(self.phase, Phase::Idle) {
            self.stale = false;
            self.postpone(now);
        }
    }

    /// When [`Self::advance`] has something to do; nothing if only an event can change that.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Measuring(measurement) => Some(measurement.until),
            Phase::Idle => self.stale.then_some(self.not_before),
            Phase::Ending => Some(Instant::ZERO),
        }
    }

    /// The lock was taken.
    pub(super) fn start(&mut self, now: Instant) {
        self.refused = 0;
        self.phase = Phase::Measuring(Measurement::new(self.random.next_u32(), now));
    }

    /// The lock is somebody else's: later, or without it.
    pub(super) fn refused(&mut self, now: Instant) {
        self.refused += 1;
        if self.refused < TRIES {
            self.postpone(now);
        } else {
            self.start(now);
        }
    }

    fn postpone(&mut self, now: Instant) {
        self.not_before = now + self.random.between(self.rest, 2 * self.rest);
    }

    /// A process answered.
    pub(super) fn answered(&mut self, number: u32, index: u16, slot: u8) {
        if let Phase::Measuring(measurement) = &mut self.phase
            && measurement.number == number
            && let Some(member) = measurement.members.get_mut(usize::from(index))
        {
            *member = Some(slot);
        }
    }

    /// The next thing to do; to be called until there is nothing.
    pub(super) fn advance(&mut self, now: Instant) -> Step {
        match &mut self.phase {
            Phase::Idle if self.stale && now >= self.not_before => Step::Lock,
            Phase::Idle => Step::Wait,
            Phase::Ending => {
                self.phase = Phase::Idle;
                Step::Unlock
            }
            Phase::Measuring(measurement) if measurement.waits(now) => Step::Wait,
            Phase::Measuring(measurement) if measurement.needs_more() => measurement.ask(now),
            Phase::Measuring(_) => self.conclude(now),
        }
    }

    /// All answers of a round are in, or will not come.
    fn conclude(&mut self, now: Instant) -> Step {
        let phase = std::mem::replace(&mut self.phase, Phase::Ending);
        let Phase::Measuring(measurement) = phase else { return Step::Wait };
        let members = measurement.found();
        let settled = measurement.attached.as_ref() == Some(&members);
        if settled || measurement.round == ROUNDS {
            self.stale = !settled;
            // What changes often is measured often, up to a point.
            self.rest = if members == self.last { (2 * self.rest).min(REST.1) } else { REST.0 };
            self.last.clone_from(&members);
            self.postpone(now);
            return if settled { self.advance(now) } else { Step::Attach(members) };
        }
        // Asked again, because the questions went astray if no program was attached, and because
        // the group may have changed meanwhile.
        let mut next = Measurement::new(self.random.next_u32(), now);
        next.round = measurement.round + 1;
        next.attached = Some(members.clone());
        self.phase = Phase::Measuring(next);
        Step::Attach(members)
    }
}

impl Measurement {
    fn new(number: u32, now: Instant) -> Self {
        let members = Members::new();
        Self { number, members, asked: 0, until: now, round: 1, attached: None }
    }

    fn waits(&self, now: Instant) -> bool {
        now < self.until && self.members.iter().any(Option::is_none)
    }

    fn needs_more(&self) -> bool {
        self.asked == 0 || (self.end().is_none() && self.asked < MOST)
    }

    fn ask(&mut self, now: Instant) -> Step {
        let indexes = self.asked..self.asked + BATCH;
        self.asked = indexes.end;
        self.members.resize(usize::from(self.asked), None);
        self.until = now + PATIENCE;
        Step::Ask { indexes, number: self.number }
    }

    /// The first index beyond the group's end, if an answer shows it: a slot answers for the
    /// second time, or nobody of a whole batch answers.
    fn end(&self) -> Option<usize> {
        let repeated = |index: &usize| {
            let member = self.members[*index];
            member.is_some() && self.members[..*index].contains(&member)
        };
        let silent = self.members.iter().rev().take_while(|member| member.is_none()).count();
        let silent = silent.ge(&usize::from(BATCH)).then(|| self.members.len() - silent);
        (0..self.members.len()).find(repeated).or(silent)
    }

    fn found(&self) -> Members {
        self.members[..self.end().unwrap_or(self.members.len())].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel does with a group.
    struct Group {
        /// The slot of each socket, in order of index.
        sockets: Vec<u8>,
        program: Option<Members>,
        /// A process that never answers.
        silent: Option<u8>,
        /// Removed once so many questions were asked.
        dies_after: Option<(usize, u8)>,
        asked: usize,
    }

    impl Group {
        fn new(sockets: impl IntoIterator<Item = u8>) -> Self {
            let sockets = sockets.into_iter().collect();
            Self { sockets, program: None, silent: None, dies_after: None, asked: 0 }
        }

        /// The last socket takes the place of a closed one.
        fn close(&mut self, slot: u8) {
            let index = self.sockets.iter().position(|other| *other == slot).unwrap();
            self.sockets.swap_remove(index);
        }

        fn deliver(&mut self, index: u16) -> Option<u8> {
            self.asked += 1;
            if let Some((count, slot)) = self.dies_after
                && self.asked > count
            {
                self.dies_after = None;
                self.close(slot);
            }
            let by_hash = self.sockets[7 % self.sockets.len()];
            let by_program = self.sockets.get(usize::from(index)).copied();
            let slot = self.program.as_ref().and(by_program).unwrap_or(by_hash);
            (Some(slot) != self.silent).then_some(slot)
        }

        /// Runs one process's steering until it has nothing more to do; returns the end's time.
        fn settle(&mut self, steering: &mut Steering, start: Instant) -> Instant {
            let (mut now, mut locked) = (start, false);
            for _ in 0..1000 {
                match steering.advance(now) {
                    Step::Wait => match steering.deadline() {
                        Some(deadline) => now = now.max(deadline),
                        None => {
                            assert!(!locked, "the lock is kept");
                            return now;
                        }
                    },
                    Step::Lock => {
                        locked = true;
                        steering.start(now);
                    }
                    Step::Ask { indexes, number } => {
                        for index in indexes {
                            if let Some(slot) = self.deliver(index) {
                                steering.answered(number, index, slot);
                            }
                        }
                    }
                    Step::Attach(members) => self.program = Some(members),
                    Step::Unlock => locked = false,
                }
            }
            panic!("measuring does not end");
        }

        fn is_steered(&self) -> bool {
            let expected: Members = self.sockets.iter().copied().map(Some).collect();
            self.program.as_ref() == Some(&expected)
        }
    }

    fn steering() -> Steering {
        Steering::new(Rng::new(5))
    }

    #[test]
    fn a_group_of_any_size_is_found_whether_or_not_a_program_was_attached() {
        for size in [1, 2, 15, 16, 17, 64, 255] {
            let mut group = Group::new(1..=size);
            group.settle(&mut steering(), Instant::ZERO);
            assert!(group.is_steered(), "{size} from nothing: {:?}", group.program);
            group.program = Some(vec![Some(9), None]);
            group.settle(&mut steering(), Instant::ZERO);
            assert!(group.is_steered(), "{size} from a wrong program: {:?}", group.program);
        }
    }

    #[test]
    fn a_closed_socket_is_noticed_and_the_others_found_again() {
        let mut group = Group::new(1..=9);
        let mut steering = steering();
        let now = group.settle(&mut steering, Instant::ZERO);
        group.close(3);
        assert!(!group.is_steered());
        assert_eq!(steering.advance(now + SECOND), Step::Wait, "nothing shows it yet");
        steering.misrouted();
        group.settle(&mut steering, now);
        assert!(group.is_steered());
    }

    #[test]
    fn a_socket_closed_during_the_measurement_does_not_spoil_the_end() {
        for count in 0..40 {
            let mut group = Group::new(1..=9);
            group.dies_after = Some((count, 4));
            group.settle(&mut steering(), Instant::ZERO);
            assert!(group.is_steered(), "after {count} questions: {:?}", group.program);
        }
    }

    #[test]
    fn a_silent_process_costs_time_and_its_own_place_only() {
        for slot in 1..=20 {
            let mut group = Group::new(1..=20);
            group.silent = Some(slot);
            let end = group.settle(&mut steering(), Instant::ZERO);
            let members = group.program.unwrap();
            let expected: Members =
                (1..=20).map(|other| (other != slot).then_some(other)).collect();
            // Of a silent last one nothing shows that it is there.
            let end_silent = slot == 20;
            assert_eq!(members[..19], expected[..19]);
            assert!(members.len() == 20 || end_silent, "{members:?}");
            assert!(end <= Instant::ZERO + 10 * PATIENCE, "{end}");
        }
    }

    #[test]
    fn measurements_that_find_nothing_new_become_rare() {
        let mut group = Group::new(1..=3);
        let mut steering = steering();
        let mut now = group.settle(&mut steering, Instant::ZERO);
        for _ in 0..20 {
            steering.misrouted();
            now = group.settle(&mut steering, now);
        }
        steering.misrouted();
        assert_eq!(steering.advance(now + SECOND / 2), Step::Wait);
        assert_eq!(steering.advance(now + 2 * SECOND), Step::Lock);
        steering.postpone(now);
        steering.was_asked(now);
        assert_eq!(steering.deadline(), None, "somebody else has just measured");
    }

    #[test]
    fn a_question_survives_the_datagram_and_is_no_roce_packet() {
        let question = Question { index: 0x1234, slot: 0x56, number: 0x789a_bcde };
        let mut bytes = [0xee; QUESTION];
        question.write(&mut bytes);
        assert_eq!(Question::parse(&bytes), Some(question));
        assert_eq!(bytes[5], 0x56, "without our program it may at least come back to the asker");
        assert_eq!(Question::parse(&bytes[..13]), None);
        bytes[0] = 0x04;
        assert_eq!(Question::parse(&bytes), None);
    }
}
