//! What may be done with memory.

use std::fmt;

/// Rights of registered memory, of a window, or of a queue pair. A set of bits; numbers are those
/// of verbs (`ibv_access_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u32);

impl Access {
    /// Local reading only.
    pub const NONE: Self = Self(0);
    /// Receives and READ answers may be written here.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may write.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Peers may use atomic operations.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Peers may have their WRITEs made visible to all (FLUSH).
    pub const FLUSH_GLOBAL: Self = Self(1 << 8);
    /// Peers may have their WRITEs made to survive a loss of power (FLUSH). Only for memory that a
    /// file backs ([`super::OwnedMemory::map_file`]).
    pub const FLUSH_PERSISTENT: Self = Self(1 << 9);
    /// Both kinds of FLUSH.
    pub const FLUSH: Self = Self(1 << 8 | 1 << 9);
    /// Memory windows may be bound to the region.
    pub const MW_BIND: Self = Self(1 << 4);
    /// Addresses of the region or window count from 0 on: that is its first byte.
    pub const ZERO_BASED: Self = Self(1 << 5);
    /// The memory need not be mapped when it is registered, and may be unmapped at any time.
    pub const ON_DEMAND: Self = Self(1 << 6);
    /// A peer or a local request may invalidate the key, as it may that of a fast-registered
    /// region (verbs have no flag for it: it follows from the kind). Windows of type 2 need none.
    pub const INVALIDATE: Self = Self(1 << 31);
    /// Everything that peers can do with any memory, and local writing.
    pub const ALL: Self = Self(0xf | 1 << 8);

    /// The set with these bits, or the first unknown bit.
    pub const fn from_bits(bits: u32) -> Result<Self, u32> {
        let unknown = bits & !(0x7f | 1 << 8 | 1 << 9 | 1 << 31);
        if unknown == 0 { Ok(Self(bits)) } else { Err(unknown & unknown.wrapping_neg()) }
    }

    /// The bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` is in it.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set of what is in either; `|` in constants.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What of `other` is in it.
    pub const fn only(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether any of `other` is in it.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::LOCAL_WRITE, "LOCAL_WRITE"),
            (Self::REMOTE_WRITE, "REMOTE_WRITE"),
            (Self::REMOTE_READ, "REMOTE_READ"),
            (Self::REMOTE_ATOMIC, "REMOTE_ATOMIC"),
            (Self::FLUSH_GLOBAL, "FLUSH_GLOBAL"),
            (Self::FLUSH_PERSISTENT, "FLUSH_PERSISTENT"),
            (Self::MW_BIND, "MW_BIND"),
            (Self::ZERO_BASED, "ZERO_BASED"),
            (Self::ON_DEMAND, "ON_DEMAND"),
            (Self::INVALIDATE, "INVALIDATE"),
        ];
        let mut separator = "";
        for (_, name) in names.iter().filter(|(bit, _)| self.contains(*bit)) {
            write!(f, "{separator}{name}")?;
            separator = "|";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}
