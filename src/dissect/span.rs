//! Bytes of a frame, and how many more there were on the wire than the capture has kept.

/// A part of a frame. Its length is what it was on the wire; of that only `bytes` were captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span<'a> {
    /// What was captured.
    pub(super) bytes: &'a [u8],
    /// How much followed and was not.
    pub(super) missing: usize,
}

impl<'a> Span<'a> {
    pub(super) fn new(bytes: &'a [u8], length: usize) -> Self {
        Self { bytes, missing: length.saturating_sub(bytes.len()) }
    }

    /// Bytes on the wire.
    pub(super) fn length(self) -> usize {
        self.bytes.len() + self.missing
    }

    /// The first `length` bytes, or all if there are fewer, and the rest.
    pub(super) fn split(self, length: usize) -> (Self, Self) {
        let length = length.min(self.length());
        let captured = length.min(self.bytes.len());
        let (front, rest) = self.bytes.split_at(captured);
        let front = Self::new(front, length);
        (front, Self { bytes: rest, missing: self.missing - front.missing })
    }

    /// Takes `N` bytes off the front; nothing, and nothing taken, if not all were captured.
    pub(super) fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (front, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(front)
    }

    /// The same with a length that is known only now.
    pub(super) fn take_slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_belongs_to_the_end() {
        let span = Span::new(&[1, 2, 3, 4], 10);
        assert_eq!((span.length(), span.missing), (10, 6));
        let (front, rest) = span.split(3);
        assert_eq!((front, rest), (Span::new(&[1, 2, 3], 3), Span::new(&[4], 7)));
        let (front, rest) = span.split(7);
        assert_eq!((front, rest), (Span::new(&[1, 2, 3, 4], 7), Span::new(&[], 3)));
        assert_eq!(span.split(20).0, span);
        let mut span = span;
        assert_eq!(span.take::<5>(), None);
        assert_eq!(span.take::<2>(), Some(&[1, 2]));
        assert_eq!(span.length(), 8);
    }
}
