//! Attributes of a queue pair, as `modify` takes and `query` gives them.

use std::fmt;
use std::net::IpAddr;

use super::QueuePairState;
use crate::memory::Access;
use crate::wire::{Psn, QKey, Qpn};

/// The largest payload of a packet between two queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum PathMtu {
    /// 256 bytes.
    Mtu256 = 256,
    /// 512 bytes.
    Mtu512 = 512,
    /// 1024 bytes.
    Mtu1024 = 1024,
    /// 2048 bytes.
    Mtu2048 = 2048,
    /// 4096 bytes.
    Mtu4096 = 4096,
}

impl PathMtu {
    /// All of them, rising.
    pub const ALL: [Self; 5] =
        [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096];

    /// Bytes that a RoCEv2 packet can have beside its payload: IPv6, UDP, BTH, the largest
    /// extension headers of a packet with payload (XRCETH, RETH and immediate), ICRC.
    const OVERHEAD: usize = 40 + 8 + 12 + 4 + 16 + 4 + 4;

    /// Bytes.
    pub const fn bytes(self) -> usize {
        self as usize
    }

    /// The path MTU of so many bytes, if it is one.
    pub fn from_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// The largest one whose packets fit IP packets of `mtu` bytes; 256 if none does.
    pub fn largest_within(mtu: usize) -> Self {
        let fits = |path: &Self| path.bytes() + Self::OVERHEAD <= mtu;
        Self::ALL.into_iter().rev().find(fits).unwrap_or(Self::Mtu256)
    }

    /// The number that verbs and connection management use: 1 for 256 up to 5 for 4096.
    pub const fn code(self) -> u8 {
        match self {
            Self::Mtu256 => 1,
            Self::Mtu512 => 2,
            Self::Mtu1024 => 3,
            Self::Mtu2048 => 4,
            Self::Mtu4096 => 5,
        }
    }
}

/// How to reach the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// Index of our own address in the device's GID table.
    pub gid_index: u16,
    /// The peer's address.
    pub destination: IpAddr,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
}

impl AddressVector {
    /// The peer at `destination`, from our address number `gid_index`, the rest as usual.
    pub fn new(gid_index: u16, destination: IpAddr) -> Self {
        Self { gid_index, destination, traffic_class: 0, hop_limit: 64, flow_label: 0 }
    }
}

/// One attribute's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "each is documented at the field of the same name")]
pub enum Attribute {
    CurrentState,
    DrainNotification,
    Access,
    PkeyIndex,
    Port,
    Qkey,
    AddressVector,
    PathMtu,
    Timeout,
    RetryCount,
    RnrRetry,
    ReceivePsn,
    MaxRdAtomic,
    AlternatePath,
    MinRnrTimer,
    SendPsn,
    MaxDestinationRdAtomic,
    PathMigrationState,
    Destination,
}

impl Attribute {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::CurrentState,
        Self::DrainNotification,
        Self::Access,
        Self::PkeyIndex,
        Self::Port,
        Self::Qkey,
        Self::AddressVector,
        Self::PathMtu,
        Self::Timeout,
        Self::RetryCount,
        Self::RnrRetry,
        Self::ReceivePsn,
        Self::MaxRdAtomic,
        Self::AlternatePath,
        Self::MinRnrTimer,
        Self::SendPsn,
        Self::MaxDestinationRdAtomic,
        Self::PathMigrationState,
        Self::Destination,
    ];

    /// This attribute's bit in a set.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
    }
}

impl fmt::Display for Attribute {
    /// The name that verbs have for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CurrentState => "CUR_STATE",
            Self::DrainNotification => "EN_SQD_ASYNC_NOTIFY",
            Self::Access => "ACCESS_FLAGS",
            Self::PkeyIndex => "PKEY_INDEX",
            Self::Port => "PORT",
            Self::Qkey => "QKEY",
            Self::AddressVector => "AV",
            Self::PathMtu => "PATH_MTU",
            Self::Timeout => "TIMEOUT",
            Self::RetryCount => "RETRY_CNT",
            Self::RnrRetry => "RNR_RETRY",
            Self::ReceivePsn => "RQ_PSN",
            Self::MaxRdAtomic => "MAX_QP_RD_ATOMIC",
            Self::AlternatePath => "ALT_PATH",
            Self::MinRnrTimer => "MIN_RNR_TIMER",
            Self::SendPsn => "SQ_PSN",
            Self::MaxDestinationRdAtomic => "MAX_DEST_RD_ATOMIC",
            Self::PathMigrationState => "PATH_MIG_STATE",
            Self::Destination => "DEST_QPN",
        })
    }
}

/// Attributes to change; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueuePairAttributes {
    /// The state to go to.
    pub state: Option<QueuePairState>,
    /// The state that the caller takes the queue pair to be in.
    pub current_state: Option<QueuePairState>,
    /// Whether the end of draining gives an event.
    pub drain_notification: Option<bool>,
    /// What the peer may do.
    pub access: Option<Access>,
    /// Index of the partition key. 0 is the only one.
    pub pkey_index: Option<u16>,
    /// Port of the device. 1 is the only one.
    pub port: Option<u8>,
    /// Queue key (UD).
    pub qkey: Option<QKey>,
    /// The way to the peer.
    pub address: Option<AddressVector>,
    /// Largest payload of a packet.
    pub path_mtu: Option<PathMtu>,
    /// Local ACK timeout: 4.096 µs × 2^t, 0 to 31; 0 is no timeout.
    pub timeout: Option<u8>,
    /// How often a request is sent again after a timeout or sequence error, 0 to 7.
    pub retry_count: Option<u8>,
    /// How often after "receiver not ready", 0 to 6; 7 is without end.
    pub rnr_retry: Option<u8>,
    /// The PSN of the first packet that the peer will send.
    pub receive_psn: Option<Psn>,
    /// READs and atomics that we may have under way.
    pub max_rd_atomic: Option<u8>,
    /// Another path. RoCE has none: always refused.
    pub alternate_path: Option<AddressVector>,
    /// Code 0 to 31 of the shortest wait that we ask of a peer when no receive is posted.
    pub min_rnr_timer: Option<u8>,
    /// The PSN of our first packet.
    pub send_psn: Option<Psn>,
    /// READs and atomics of the peer that we serve at a time.
    pub max_destination_rd_atomic: Option<u8>,
    /// Path migration. RoCE has none: always refused.
    pub path_migration_state: Option<u8>,
    /// The peer's queue pair.
    pub destination: Option<Qpn>,
}

impl QueuePairAttributes {
    /// Nothing but a change of state.
    pub fn to_state(state: QueuePairState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// The attributes that are given, as a set of [`Attribute::bit`]s, the target state left out.
    pub(crate) fn given(&self) -> u32 {
        let bit = |given: bool, attribute: Attribute| if given { attribute.bit() } else { 0 };
        bit(self.current_state.is_some(), Attribute::CurrentState)
            | bit(self.drain_notification.is_some(), Attribute::DrainNotification)
            | bit(self.access.is_some(), Attribute::Access)
            | bit(self.pkey_index.is_some(), Attribute::PkeyIndex)
            | bit(self.port.is_some(), Attribute::Port)
            | bit(self.qkey.is_some(), Attribute::Qkey)
            | bit(self.address.is_some(), Attribute::AddressVector)
            | bit(self.path_mtu.is_some(), Attribute::PathMtu)
            | bit(self.timeout.is_some(), Attribute::Timeout)
            | bit(self.retry_count.is_some(), Attribute::RetryCount)
            | bit(self.rnr_retry.is_some(), Attribute::RnrRetry)
            | bit(self.receive_psn.is_some(), Attribute::ReceivePsn)
            | bit(self.max_rd_atomic.is_some(), Attribute::MaxRdAtomic)
            | bit(self.alternate_path.is_some(), Attribute::AlternatePath)
            | bit(self.min_rnr_timer.is_some(), Attribute::MinRnrTimer)
            | bit(self.send_psn.is_some(), Attribute::SendPsn)
            | bit(self.max_destination_rd_atomic.is_some(), Attribute::MaxDestinationRdAtomic)
            | bit(self.path_migration_state.is_some(), Attribute::PathMigrationState)
            | bit(self.destination.is_some(), Attribute::Destination)
    }
}
