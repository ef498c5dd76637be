//! Immediate data (ImmDt): four bytes that the sender hands to the receiver's completion.

/// Immediate data in wire order. The stack never reads it as a number: what order its bytes have
/// is the application's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Immediate(pub [u8; 4]);

impl Immediate {
    /// Bytes in the header.
    pub const LENGTH: usize = 4;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        Self(*bytes)
    }

    /// Writes the header.
    pub fn emit(&self, bytes: &mut [u8; Self::LENGTH]) {
        *bytes = self.0;
    }
}
