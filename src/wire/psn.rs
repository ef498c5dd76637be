//! Packet sequence numbers: 24 bits, compared in the half-space sense.

use std::fmt;

const MASK: u32 = 0x00ff_ffff;
const HALF: u32 = 0x0080_0000;

/// A packet sequence number. There is no total order: `a` is before `b` when `b` is less than
/// 2^23 packets ahead (specification, section 9.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// The most packets that two comparable numbers can be apart: no request may span more.
    pub const MAX_SPAN: u32 = HALF - 1;

    /// The number, modulo 2^24.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// The plain number.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number `packets` further on.
    pub const fn add(self, packets: u32) -> Self {
        Self(self.0.wrapping_add(packets) & MASK)
    }

    /// The number `packets` back.
    pub const fn sub(self, packets: u32) -> Self {
        Self(self.0.wrapping_sub(packets) & MASK)
    }

    /// The following number.
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// The preceding number.
    pub const fn previous(self) -> Self {
        self.sub(1)
    }

    /// How many packets after `base` this is, counted upwards modulo 2^24.
    pub const fn distance_from(self, base: Self) -> u32 {
        self.0.wrapping_sub(base.0) & MASK
    }

    /// Whether this comes before `other`: `other` is 1 to 2^23 - 1 packets ahead. The number
    /// exactly 2^23 ahead counts as behind, as protocol practice has it for duplicates.
    pub const fn is_before(self, other: Self) -> bool {
        let ahead = other.distance_from(self);
        ahead != 0 && ahead < HALF
    }

    /// Whether this comes after `other`.
    pub const fn is_after(self, other: Self) -> bool {
        other.is_before(self)
    }

    /// Whether this lies in `start .. end`, where `end` is at most 2^24 - 1 packets on.
    pub const fn is_within(self, start: Self, end: Self) -> bool {
        self.distance_from(start) < end.distance_from(start)
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn(0x{:06x})", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        let last = Psn::new(0x00ff_ffff);
        assert!(last.is_before(last.next()));
        assert_eq!(last.next(), Psn::new(0));
        assert_eq!(Psn::new(0).previous(), last);
        assert!(Psn::new(3).is_after(Psn::new(0x00ff_fffd)));
        assert!(!last.is_before(last));
    }

    #[test]
    fn the_half_space_splits_ahead_from_behind() {
        let base = Psn::new(0x0012_3456);
        assert!(base.is_before(base.add(Psn::MAX_SPAN)));
        assert!(!base.is_before(base.add(HALF)));
        assert!(!base.is_before(base.add(HALF + 1)));
        assert!(base.add(HALF + 1).is_before(base));
    }

    #[test]
    fn a_window_is_half_open() {
        let (start, end) = (Psn::new(0x00ff_fffe), Psn::new(1));
        assert!(start.is_within(start, end));
        assert!(Psn::new(0).is_within(start, end));
        assert!(!end.is_within(start, end));
        assert!(!start.is_within(start, start));
    }
}
