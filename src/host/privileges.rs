//! What this process may do, and the sentence for what it may not.

use std::fs;

/// A privilege that some links need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// CAP_NET_RAW: packet sockets, and with it whole IP headers.
    NetRaw,
    /// CAP_NET_ADMIN: interfaces, receive buffers beyond the system's limit.
    NetAdmin,
}

impl Capability {
    /// Its bit in the kernel's masks (linux/capability.h).
    const fn bit(self) -> u32 {
        match self {
            Self::NetAdmin => 12,
            Self::NetRaw => 13,
        }
    }

    /// Name as tools write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NetRaw => "CAP_NET_RAW",
            Self::NetAdmin => "CAP_NET_ADMIN",
        }
    }

    const fn use_of(self) -> &'static str {
        match self {
            Self::NetRaw => "to send and receive whole frames (the packet and XDP links)",
            Self::NetAdmin => {
                "to make interfaces and to exceed net.core.rmem_max (the TAP and XDP links)"
            }
        }
    }
}

/// Effective user and privileges of the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// Effective user id.
    pub user: u32,
    /// The kernel's mask of effective capabilities.
    effective: u64,
}

impl Privileges {
    /// Those of the calling thread; none if the kernel does not tell.
    pub fn current() -> Self {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        Self::parse(&status)
    }

    /// Whether it has a privilege.
    pub const fn has(self, capability: Capability) -> bool {
        self.effective & (1 << capability.bit()) != 0
    }

    /// Why a link that needs `capability` cannot be opened and what to do; nothing if it can.
    pub fn missing(self, capability: Capability) -> Option<String> {
        if self.has(capability) {
            return None;
        }
        let name = capability.name();
        Some(format!(
            "this process (user id {}) has no {name}, which is needed {}: run it as root or give \
             the program the capability with `setcap {}+ep PROGRAM`; the UDP link does without",
            self.user,
            capability.use_of(),
            name.to_ascii_lowercase(),
        ))
    }

    fn parse(status: &str) -> Self {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        // Real, effective, saved and file system user.
        let user = field("Uid:").and_then(|ids| ids.split_ascii_whitespace().nth(1)?.parse().ok());
        let effective = field("CapEff:").and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        Self { user: user.unwrap_or(u32::MAX), effective: effective.unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "\
Name:\turoce
Uid:\t1000\t1001\t1000\t1000
CapPrm:\t000001ffffffffff
CapEff:\t0000000000002000
";

    #[test]
    fn effective_user_and_capabilities_are_read() {
        let privileges = Privileges::parse(STATUS);
        assert_eq!(privileges.user, 1001);
        assert!(privileges.has(Capability::NetRaw) && !privileges.has(Capability::NetAdmin));
    }

    #[test]
    fn a_missing_capability_is_a_sentence_that_says_what_to_do() {
        let privileges = Privileges::parse(STATUS);
        assert_eq!(privileges.missing(Capability::NetRaw), None);
        let sentence = privileges.missing(Capability::NetAdmin).unwrap();
        assert!(sentence.contains("1001") && sentence.contains("setcap cap_net_admin+ep"));
        assert!(Privileges::parse("").missing(Capability::NetRaw).is_some());
    }

    #[test]
    fn this_thread_has_a_user() {
        assert_ne!(Privileges::current().user, u32::MAX);
    }

    proptest::proptest! {
        #[test]
        fn no_listing_makes_it_panic(text in "((Uid|CapEff):[ \\t]?([0-9a-f]{0,20}[ \\t]){0,5}\\n?){0,4}") {
            let privileges = Privileges::parse(&text);
            let _ = privileges.missing(Capability::NetRaw);
        }
    }
}
