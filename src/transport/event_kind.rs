//! The kinds of asynchronous events that verbs have, and which of them this stack can give.

use super::effects::AsyncEvent;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $variant:ident = $number:literal, $name:literal, $never:expr;)*) => {
        /// A kind of asynchronous event (specification, section 11.6.3), with the number that
        /// `ibv_event_type` has for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum AsyncEventKind {
            $($(#[doc = $doc])* $variant = $number,)*
        }

        impl AsyncEventKind {
            /// All of them, rising by number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in verbs, without `IBV_EVENT_`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Why this stack never gives such an event; nothing if it does.
            pub const fn never(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => $never,)*
                }
            }
        }
    };
}

const NO_MIGRATION: Option<&str> =
    Some("RoCE has no alternate path: modify refuses the attribute, so nothing can migrate");
const NO_MANAGER: Option<&str> = Some("RoCE has no subnet manager and no local identifiers");

kinds! {
    /// A completion queue overran.
    CompletionQueueError = 0, "CQ_ERR", None;
    /// A queue pair went into error for a reason that no completion tells.
    QueuePairFatal = 1, "QP_FATAL", None;
    /// A peer's request was invalid.
    RequestError = 2, "QP_REQ_ERR", None;
    /// A peer's request violated memory rights.
    AccessError = 3, "QP_ACCESS_ERR", None;
    /// The first packet arrived in RTR.
    CommunicationEstablished = 4, "COMM_EST", None;
    /// The send queue is drained (SQD).
    SendQueueDrained = 5, "SQ_DRAINED", None;
    /// A queue pair went over to its alternate path.
    PathMigrated = 6, "PATH_MIG", NO_MIGRATION;
    /// A queue pair could not go over to its alternate path.
    PathMigrationError = 7, "PATH_MIG_ERR", NO_MIGRATION;
    /// The device is gone.
    DeviceFatal = 8, "DEVICE_FATAL", None;
    /// The port can be used.
    PortActive = 9, "PORT_ACTIVE", None;
    /// The port cannot be used any more.
    PortError = 10, "PORT_ERR", None;
    /// The port's local identifier changed.
    LidChange = 11, "LID_CHANGE", NO_MANAGER;
    /// The table of partition keys changed.
    PkeyChange = 12, "PKEY_CHANGE", Some("the table has one entry, the default key, for ever");
    /// The subnet manager changed.
    ManagerChange = 13, "SM_CHANGE", NO_MANAGER;
    /// A shared receive queue failed.
    SharedReceiveQueueError = 14, "SRQ_ERR",
        Some("a shared receive queue is memory of this process: nothing can fail in it by itself");
    /// A shared receive queue has fewer receives than its limit.
    SharedReceiveQueueLimit = 15, "SRQ_LIMIT_REACHED", None;
    /// A queue pair in error takes no more receives from its shared queue.
    LastReceiveReached = 16, "QP_LAST_WQE_REACHED", None;
    /// The subnet manager asks clients to register anew.
    ClientReregister = 17, "CLIENT_REREGISTER", NO_MANAGER;
    /// The GID table changed.
    GidChange = 18, "GID_CHANGE", None;
    /// A work queue of a receive side scaling table failed.
    WorkQueueFatal = 19, "WQ_FATAL", Some("there are no work queues apart from queue pairs");
}

impl AsyncEvent {
    /// Its kind.
    pub const fn kind(&self) -> AsyncEventKind {
        match self {
            Self::QueuePairFatal(_) => AsyncEventKind::QueuePairFatal,
            Self::RequestError(_) => AsyncEventKind::RequestError,
            // Verbs have no kind for XRC violations; Linux drivers make them access errors.
            Self::AccessError(_) | Self::InvalidXrceth(_) | Self::XrcDomainViolation(_) => {
                AsyncEventKind::AccessError
            }
            Self::CommunicationEstablished(_) => AsyncEventKind::CommunicationEstablished,
            Self::SendQueueDrained(_) => AsyncEventKind::SendQueueDrained,
            Self::SharedReceiveQueueLimit(_) => AsyncEventKind::SharedReceiveQueueLimit,
            Self::LastReceiveReached(_) => AsyncEventKind::LastReceiveReached,
            Self::CompletionQueueOverrun(_) => AsyncEventKind::CompletionQueueError,
            Self::DeviceFatal => AsyncEventKind::DeviceFatal,
            Self::PortActive => AsyncEventKind::PortActive,
            Self::PortError => AsyncEventKind::PortError,
            Self::GidChange => AsyncEventKind::GidChange,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_numbers_of_verbs() {
        let numbers: Vec<u8> = AsyncEventKind::ALL.iter().map(|kind| *kind as u8).collect();
        assert_eq!(numbers, (0..20).collect::<Vec<u8>>());
        let never = AsyncEventKind::ALL.iter().filter(|kind| kind.never().is_some());
        let names: Vec<&str> = never.map(|kind| kind.name()).collect();
        assert_eq!(
            names,
            [
                "PATH_MIG",
                "PATH_MIG_ERR",
                "LID_CHANGE",
                "PKEY_CHANGE",
                "SM_CHANGE",
                "SRQ_ERR",
                "CLIENT_REREGISTER",
                "WQ_FATAL"
            ]
        );
    }
}
