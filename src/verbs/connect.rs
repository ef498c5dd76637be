//! From RESET to RTS in one call.

use super::{QueuePair, VerbsError};
use crate::host::Gid;
use crate::queue::{
    Access, AddressVector, PathMtu, QueuePairAttributes, QueuePairKind, QueuePairState,
};
use crate::wire::{Psn, QKey, Qpn};

/// What two ends tell each other before they connect, by whatever means they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Address.
    pub gid: Gid,
    /// Queue pair number.
    pub number: Qpn,
    /// PSN of the first packet that this end sends.
    pub psn: Psn,
}

/// How to connect. [`ConnectOptions::default`] suits most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Our own address, by index.
    pub gid_index: u16,
    /// What the peer may do.
    pub access: Access,
    /// Largest payload of a packet; both ends need the same. `None`: the largest that fits our
    /// interface.
    pub path_mtu: Option<PathMtu>,
    /// Local ACK timeout, 4.096 µs × 2^t.
    pub timeout: u8,
    /// Retries after a timeout.
    pub retry_count: u8,
    /// Retries after "receiver not ready"; 7 is without end.
    pub rnr_retry: u8,
    /// Code of the wait that we ask for when no receive is posted (12 is 0.64 ms).
    pub min_rnr_timer: u8,
    /// READs and atomics under way, in each direction.
    pub rd_atomic: u8,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            gid_index: 0,
            access: Access::ALL,
            path_mtu: None,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            rd_atomic: 16,
            traffic_class: 0,
        }
    }
}

impl QueuePair {
    /// Takes this queue pair from RESET to INIT, where receives can be posted.
    ///
    /// # Errors
    /// As [`QueuePair::modify`].
    pub fn initialize(&self, access: Access) -> Result<(), VerbsError> {
        self.modify(&to_init(access))
    }

    /// Takes this RC, UC or XRC INI queue pair from RESET or INIT to RTS, connected to `peer`; our
    /// first packet has PSN `psn`.
    ///
    /// # Errors
    /// As [`QueuePair::modify`].
    pub fn connect(
        &self,
        peer: &Endpoint,
        psn: Psn,
        options: &ConnectOptions,
    ) -> Result<(), VerbsError> {
        if self.state() == QueuePairState::Reset {
            self.initialize(options.access)?;
        }
        let kind = self.kind();
        self.modify(&to_rtr(kind, peer, options, self.largest_path_mtu()))?;
        self.modify(&to_rts(kind, psn, options))
    }

    /// Takes this datagram queue pair from RESET to RTS. Datagrams must carry `qkey` to be received;
    /// our first one has PSN `psn`. Receives can be posted from here on.
    ///
    /// A received message lies behind 40 bytes that tell where it came from, as with libibverbs: an
    /// IPv6 header, or 20 zero bytes and an IPv4 header. Receives have to be 40 bytes longer than the
    /// message, or it is dropped and [`QueuePair::explain_dropped`] says so. [`Completion::length`]
    /// counts the 40, too.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use uroce::verbs::{self, Access, AddressVector, Psn, QKey, QueuePairKind};
    /// # use uroce::verbs::{QueuePairOptions, SendOperation};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // Datagrams can be lost where others come and go at the same address.
    /// # let options = uroce::software::DeviceOptions::at([127, 88, 14, 2].into());
    /// # let device = verbs::Context::open(&options)?;
    /// # let domain = device.allocate_domain()?;
    /// # let completions = device.create_completion_queue(16)?;
    /// let options =
    ///     QueuePairOptions { kind: QueuePairKind::Ud, ..QueuePairOptions::new(&completions) };
    /// let (alice, bob) = (domain.create_queue_pair(&options)?, domain.create_queue_pair(&options)?);
    /// let qkey = QKey::new(0x1111_1111);
    /// alice.start_datagrams(qkey, Psn::new(1))?;
    /// bob.start_datagrams(qkey, Psn::new(2))?;
    ///
    /// let memory = domain.allocate(4096, Access::LOCAL_WRITE)?;
    /// bob.post_receive(1, &[memory.segment(0, 40 + 5)])?;
    /// let address = bob.endpoint(0, Psn::new(2))?.gid.address();
    /// let handle = domain.create_address_handle(&AddressVector::new(0, address))?;
    /// let to = handle.datagram(bob.number(), qkey);
    /// memory.write(1000, b"hello")?;
    /// alice.post(2, SendOperation::SendTo { to, immediate: None }, memory.segment(1000, 5))?;
    ///
    /// // One completion of the send, one of the receive, in either order.
    /// for _ in 0..2 {
    ///     let completion = completions.wait_one(Duration::from_secs(5))?;
    ///     assert!(completion.status.is_success(), "{}", completion.status);
    ///     assert!(completion.id == 2 || completion.length == 40 + 5);
    /// }
    /// assert_eq!(memory.to_vec(40, 5)?, b"hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Completion::length`]: super::Completion::length
    ///
    /// # Errors
    /// As [`QueuePair::modify`].
    pub fn start_datagrams(&self, qkey: QKey, psn: Psn) -> Result<(), VerbsError> {
        self.modify(&QueuePairAttributes {
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(qkey),
            ..QueuePairAttributes::to_state(QueuePairState::Init)
        })?;
        self.modify(&QueuePairAttributes::to_state(QueuePairState::Rtr))?;
        self.modify(&QueuePairAttributes {
            send_psn: Some(psn),
            ..QueuePairAttributes::to_state(QueuePairState::Rts)
        })
    }
}

impl QueuePair {
    fn largest_path_mtu(&self) -> PathMtu {
        self.context().info().path_mtu
    }
}

/// From RESET to INIT.
pub(super) fn to_init(access: Access) -> QueuePairAttributes {
    QueuePairAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(access),
        ..QueuePairAttributes::to_state(QueuePairState::Init)
    }
}

/// From INIT to RTR. What belongs to serving acknowledged requests, only kinds take that do so.
pub(super) fn to_rtr(
    kind: QueuePairKind,
    peer: &Endpoint,
    options: &ConnectOptions,
    largest: PathMtu,
) -> QueuePairAttributes {
    let mut address = AddressVector::new(options.gid_index, peer.gid.address());
    address.traffic_class = options.traffic_class;
    let serves = kind.is_reliable() && kind.serves();
    QueuePairAttributes {
        address: Some(address),
        path_mtu: Some(options.path_mtu.unwrap_or(largest)),
        destination: Some(peer.number),
        receive_psn: Some(peer.psn),
        max_destination_rd_atomic: serves.then_some(options.rd_atomic),
        min_rnr_timer: serves.then_some(options.min_rnr_timer),
        ..QueuePairAttributes::to_state(QueuePairState::Rtr)
    }
}

/// From RTR to RTS. What belongs to sending acknowledged requests, only kinds take that do so.
pub(super) fn to_rts(
    kind: QueuePairKind,
    psn: Psn,
    options: &ConnectOptions,
) -> QueuePairAttributes {
    let sends = kind.is_reliable() && kind.sends();
    QueuePairAttributes {
        timeout: kind.is_reliable().then_some(options.timeout),
        retry_count: sends.then_some(options.retry_count),
        rnr_retry: sends.then_some(options.rnr_retry),
        send_psn: Some(psn),
        max_rd_atomic: sends.then_some(options.rd_atomic),
        ..QueuePairAttributes::to_state(QueuePairState::Rts)
    }
}

/// Connects two queue pairs of this process to each other, from RESET to RTS.
///
/// # Errors
/// As [`QueuePair::modify`]; the first queue pair may then be connected already.
pub fn connect_pair(
    first: &QueuePair,
    second: &QueuePair,
    options: &ConnectOptions,
) -> Result<(), VerbsError> {
    // Numbers that are easy to find in a capture, and not the same in both directions.
    let (psn_of_first, psn_of_second) = (Psn::new(0x0a_0000), Psn::new(0x0b_0000));
    let options = ConnectOptions {
        path_mtu: Some(
            options
                .path_mtu
                .unwrap_or_else(|| first.largest_path_mtu().min(second.largest_path_mtu())),
        ),
        ..*options
    };
    let first_endpoint = first.endpoint(options.gid_index, psn_of_first)?;
    let second_endpoint = second.endpoint(options.gid_index, psn_of_second)?;
    first.connect(&second_endpoint, psn_of_first, &options)?;
    second.connect(&first_endpoint, psn_of_second, &options)
}
