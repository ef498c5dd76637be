//! What is wrong with a frame, as stable identifiers and as a small set of them.

use std::fmt;

macro_rules! issues {
    ($($name:ident $identifier:literal $text:literal,)+) => {
        /// Something that cannot be in a right frame, or that keeps a frame from being judged.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Issue {
            $(#[doc = $text] $name,)+
        }

        impl Issue {
            /// All of them, in the order in which they are told.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The stable identifier, as in JSON: `truncated`.
            pub const fn identifier(self) -> &'static str {
                match self { $(Self::$name => $identifier,)+ }
            }

            /// One sentence for people.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

issues! {
    Truncated "truncated" "The capture holds fewer bytes than the frame or its datagram has.",
    Fragment "fragment" "Part of a fragmented IP datagram: only the first part shows its headers, none can be judged.",
    UnsupportedLinkType "unsupported_link_type" "What the frame begins with is not known to this program.",
    TooDeep "too_deep" "More than eight tunnels or 32 headers inside one another.",
    BadIpHeader "bad_ip_header" "The IP header contradicts itself: version, header length or total length cannot be.",
    BadGrh "bad_grh" "The global route header has another version than 6 or a next header that is no BTH.",
    BadLrh "bad_lrh" "The local route header gives a length that holds no packet.",
    UdpLengthMismatch "udp_length_mismatch" "The UDP length is not what the IP header leaves for it.",
    UnsplitSegments "unsplit_segments" "More than one packet can hold (segmentation offload), and neither headers nor ICRCs prove where the next one begins.",
    MissingHeader "missing_header" "The packet ends inside a header that it must have.",
    NoIcrc "no_icrc" "Too short to hold an ICRC behind its base transport header.",
    BadLength "bad_length" "Headers, payload, pad and ICRC are not whole 4-byte words.",
    BadPad "bad_pad" "The pad count is larger than what lies between headers and ICRC.",
    UnknownOpcode "unknown_opcode" "The opcode is reserved or a manufacturer's.",
    BadVersion "bad_tver" "The transport version is not 0, the only one that exists.",
    UnexpectedPayload "unexpected_payload" "A payload behind an opcode that has none.",
    OverPathMtu "over_path_mtu" "A payload of more than 4096 bytes, the largest path MTU.",
    NotPathMtu "not_path_mtu" "The payload of a first or middle packet is not 256, 512, 1024, 2048 or 4096 bytes, so no path MTU.",
    EmptyLast "empty_last" "The last packet of a message of several has no payload.",
    DmaLengthMismatch "dma_length_mismatch" "The DMA length of the RETH does not go with the payload.",
    DmaLengthTooLong "dma_length_too_long" "The DMA length of the RETH is over 2^31.",
    BadAtomicWrite "bad_atomic_write" "An ATOMIC WRITE of other than 8 bytes.",
    Misaligned "misaligned_address" "The address of an atomic operation is no multiple of 8.",
    ReservedSyndrome "reserved_syndrome" "The AETH's syndrome or NAK code is reserved.",
    InvalidPkey "invalid_pkey" "The partition number (low 15 bits of the P_Key) is 0, which is none.",
    BadMad "bad_mad" "To queue pair 0 or 1, but no management datagram: not 256 bytes or base version not 1.",
    BadVcrc "bad_vcrc" "The variant CRC of the native InfiniBand link is wrong.",
    BadCrc32c "bad_crc32c" "The CRC-32C of an iWARP frame (FPDU) is wrong.",
}

/// A set of issues.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Issues(u64);

impl Issues {
    /// No issue.
    pub const NONE: Self = Self(0);
    /// Issues that say that a frame could not be judged, not that it is wrong.
    const UNJUDGED: Self = Self(
        1 << Issue::Truncated as u8
            | 1 << Issue::Fragment as u8
            | 1 << Issue::UnsupportedLinkType as u8
            | 1 << Issue::TooDeep as u8,
    );

    /// Adds one.
    pub fn add(&mut self, issue: Issue) {
        self.0 |= 1 << issue as u8;
    }

    /// The same set with one more.
    #[must_use]
    pub const fn with(self, issue: Issue) -> Self {
        Self(self.0 | 1 << issue as u8)
    }

    /// What is in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it holds `issue`.
    pub const fn contains(self, issue: Issue) -> bool {
        self.0 & 1 << issue as u8 != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether one says that the frame is wrong. A cut frame and a fragment are not: nobody can
    /// tell.
    pub const fn is_wrong(self) -> bool {
        self.0 & !Self::UNJUDGED.0 != 0
    }

    /// Whether there is none but that the capture was cut.
    pub(super) const fn is_empty_but_cut(self) -> bool {
        self.0 & !(1 << Issue::Truncated as u8) == 0
    }

    /// Those in the set, in the order of [`Issue::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Issue> {
        Issue::ALL.iter().copied().filter(move |issue| self.contains(*issue))
    }
}

impl FromIterator<Issue> for Issues {
    fn from_iter<I: IntoIterator<Item = Issue>>(issues: I) -> Self {
        issues.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(Issue::identifier)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_unique_and_plain() {
        let mut names: Vec<_> = Issue::ALL.iter().map(|issue| issue.identifier()).collect();
        assert!(
            names.iter().all(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Issue::ALL.len());
        assert!(Issue::ALL.len() <= 64, "they fit into the set");
    }

    #[test]
    fn only_what_is_wrong_counts_as_wrong() {
        let unjudged = Issues::NONE.with(Issue::Truncated).with(Issue::Fragment);
        assert!(!unjudged.is_wrong() && !unjudged.is_empty());
        assert!(unjudged.with(Issue::BadPad).is_wrong());
        let listed: Vec<_> = unjudged.with(Issue::BadPad).iter().collect();
        assert_eq!(listed, [Issue::Truncated, Issue::Fragment, Issue::BadPad]);
    }
}
