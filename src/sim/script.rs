//! Fates of the first packets, one by one: for schedules that are tried exhaustively.

use crate::fault::{BitFlip, Delivery, DropCause, Fate};
use crate::time::MICROSECOND;

/// One of the five things that can happen to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScriptedFate {
    /// It arrives.
    Deliver,
    /// It never arrives.
    Drop,
    /// It arrives twice, the second time after later packets.
    Duplicate,
    /// It arrives after later packets.
    Delay,
    /// It arrives with a wrong bit.
    Corrupt,
}

impl ScriptedFate {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Deliver, Self::Drop, Self::Duplicate, Self::Delay, Self::Corrupt];

    /// One letter, for a line that replays a schedule.
    pub const fn letter(self) -> char {
        match self {
            Self::Deliver => '.',
            Self::Drop => 'x',
            Self::Duplicate => '2',
            Self::Delay => 'd',
            Self::Corrupt => 'c',
        }
    }

    /// The fate of a letter.
    pub fn from_letter(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|fate| fate.letter() == letter)
    }

    fn fate(self, length: usize, hold: u64) -> Fate {
        let clean = Delivery::default();
        match self {
            Self::Deliver => Fate::Deliver(clean),
            Self::Drop => Fate::Drop(DropCause::Loss),
            Self::Duplicate => Fate::Deliver(Delivery { duplicate: Some(hold), ..clean }),
            Self::Delay => Fate::Deliver(Delivery { delay: hold, ..clean }),
            Self::Corrupt => {
                let flip = BitFlip { byte: length / 2, bit: 3 };
                Fate::Deliver(Delivery { corruption: Some(flip), ..clean })
            }
        }
    }
}

/// Which packets a script counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selection {
    /// Every packet.
    All,
    /// Requests only.
    Requests,
    /// Answers only.
    Answers,
}

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Which packets it counts.
    pub selection: Selection,
    /// The fate of the first, second, … of them.
    pub fates: Vec<ScriptedFate>,
    /// The fate of all further ones.
    pub rest: ScriptedFate,
    /// How long delayed packets and second copies are held back, in nanoseconds.
    pub hold: u64,
    /// How many of the first requests are lost in any case.
    pub lost_requests: usize,
    position: usize,
    requests: usize,
}

/// Long enough for a whole window to pass, shorter than a probe timer.
const SHORT_HOLD: u64 = 60 * MICROSECOND;

impl Script {
    /// A script for the first packets; all further ones arrive.
    pub fn new(selection: Selection, fates: Vec<ScriptedFate>) -> Self {
        Self {
            selection,
            fates,
            rest: ScriptedFate::Deliver,
            hold: SHORT_HOLD,
            lost_requests: 0,
            position: 0,
            requests: 0,
        }
    }

    /// The fate of the next packet.
    pub(super) fn fate(&mut self, is_request: bool, length: usize) -> Fate {
        self.requests += usize::from(is_request);
        if is_request && self.requests <= self.lost_requests {
            return Fate::Drop(DropCause::Loss);
        }
        let counted = match self.selection {
            Selection::All => true,
            Selection::Requests => is_request,
            Selection::Answers => !is_request,
        };
        if !counted {
            return Fate::Deliver(Delivery::default());
        }
        let next = self.fates.get(self.position).copied().unwrap_or(self.rest);
        self.position += 1;
        next.fate(length, self.hold)
    }

    /// How many of its fates have been given.
    pub(super) fn used(&self) -> usize {
        self.position.min(self.fates.len())
    }
}
