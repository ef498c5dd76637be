//! What a FLUSH asks for (specification, annex A19): earlier WRITEs of the same connection have to
//! have come so far, in so much of the peer's memory.

use crate::memory::Access;

/// How far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushPlacement {
    /// Every reader of the memory sees them: other processors, other devices.
    GlobalVisibility,
    /// They survive a loss of power. Only memory that a file backs can be registered for it.
    Persistence,
    /// Both.
    VisibilityAndPersistence,
}

/// In how much of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushSelectivity {
    /// The range that the request names.
    Range,
    /// Everything that its key names; address and length do not count.
    Region,
}

/// What a device has of ATOMIC WRITE and FLUSH (verbs: `IBV_DEVICE_ATOMIC_WRITE`,
/// `IBV_DEVICE_FLUSH_GLOBAL`, `IBV_DEVICE_FLUSH_PERSISTENT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementCapabilities {
    /// ATOMIC WRITE.
    pub atomic_write: bool,
    /// FLUSH for visibility, of any memory.
    pub flush_global: bool,
    /// FLUSH for persistence, of memory that a file backs.
    pub flush_persistent: bool,
}

impl PlacementCapabilities {
    /// What every software device has on RC.
    pub const SOFTWARE: Self =
        Self { atomic_write: true, flush_global: true, flush_persistent: true };
}

impl FlushPlacement {
    /// The bits of the header, and of verbs: 1 visibility, 2 persistence.
    pub const fn bits(self) -> u8 {
        match self {
            Self::GlobalVisibility => 1,
            Self::Persistence => 2,
            Self::VisibilityAndPersistence => 3,
        }
    }

    /// What the bits stand for; nothing if none or an unknown one is set.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            1 => Some(Self::GlobalVisibility),
            2 => Some(Self::Persistence),
            3 => Some(Self::VisibilityAndPersistence),
            _ => None,
        }
    }

    /// What the peer's queue pair and memory must allow.
    pub const fn needs(self) -> Access {
        match self {
            Self::GlobalVisibility => Access::FLUSH_GLOBAL,
            Self::Persistence => Access::FLUSH_PERSISTENT,
            Self::VisibilityAndPersistence => Access::FLUSH,
        }
    }

    /// Whether it asks for persistence.
    pub const fn persists(self) -> bool {
        self.bits() & 2 != 0
    }
}

impl FlushSelectivity {
    /// The number in the header, and of verbs: 0 range, 1 region.
    pub const fn code(self) -> u8 {
        match self {
            Self::Range => 0,
            Self::Region => 1,
        }
    }

    /// What a number stands for; nothing if it is a reserved one.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Range),
            1 => Some(Self::Region),
            _ => None,
        }
    }
}
