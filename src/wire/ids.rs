//! Numbers that must not be confused with one another, each a type of its own.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $mask:expr, $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($inner);

        impl $name {
            /// The number, cut to the field's width.
            pub const fn new(value: $inner) -> Self {
                Self(value & $mask)
            }

            /// The plain number.
            pub const fn value(self) -> $inner {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "(", $format, ")"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number!(
    /// Queue pair number, 24 bits. 0 and 1 are the management queue pairs, 0xffffff is multicast.
    Qpn(u32), 0x00ff_ffff, "0x{:06x}"
);
number!(
    /// Message sequence number, 24 bits: how many requests the responder has finished.
    Msn(u32), 0x00ff_ffff, "{}"
);
number!(
    /// Shared receive queue number, 24 bits (XRC).
    Srqn(u32), 0x00ff_ffff, "0x{:06x}"
);
number!(
    /// Key of registered memory as the local side names it in a scatter/gather entry.
    Lkey(u32), u32::MAX, "0x{:08x}"
);
number!(
    /// Key of registered memory as a peer names it in a request.
    Rkey(u32), u32::MAX, "0x{:08x}"
);
number!(
    /// Queue key of datagram queue pairs.
    QKey(u32), u32::MAX, "0x{:08x}"
);
number!(
    /// Partition key: bit 15 is full membership, the low 15 bits name the partition.
    PKey(u16), u16::MAX, "0x{:04x}"
);

impl Qpn {
    /// The destination of multicast packets.
    pub const MULTICAST: Self = Self(0x00ff_ffff);
    /// The general services queue pair (connection management).
    pub const GENERAL_SERVICES: Self = Self(1);
}

impl Msn {
    /// The next number, modulo 2^24.
    pub const fn next(self) -> Self {
        Self::new(self.0.wrapping_add(1))
    }
}

impl PKey {
    /// The default partition with full membership.
    pub const DEFAULT: Self = Self(0xffff);

    /// Whether packets of `other`'s holder may reach this key's holder: the same partition, not
    /// partition 0, and at least one of both a full member (specification, section 10.9.3).
    pub const fn admits(self, other: Self) -> bool {
        let (a, b) = (self.0 & 0x7fff, other.0 & 0x7fff);
        a == b && a != 0 && (self.0 | other.0) & 0x8000 != 0
    }
}
