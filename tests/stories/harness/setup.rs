//! What a story begins with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use uroce::engine::{CongestionOptions, EngineOptions, Limits};
use uroce::queue::{
    Access, AddressVector, PathMtu, QueueCapacities, QueuePairAttributes, QueuePairKind,
    QueuePairState,
};
use uroce::wire::{Psn, QKey, Qpn};

use super::{QKEY, Story};

/// First PSNs, ours and the peer's. Every story is told for each: it must not matter where a
/// stream starts, least of all just before the wrap or the half-space's edge.
const STARTS: [(u32, u32); 4] = [
    (0x00_0000, 0x12_3456),
    (0xff_fffd, 0xff_fffe),
    (0x7f_ffff, 0x80_0000),
    (0x80_0001, 0xff_ffff),
];

/// See the module's text. What is not given is as in [`Setup::default`].
#[derive(Clone)]
pub struct Setup {
    /// Transport of the queue pairs.
    pub kind: QueuePairKind,
    /// Queue key of datagram queue pairs.
    pub qkey: QKey,
    pub mtu: PathMtu,
    pub access: Access,
    pub timeout: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub max_rd_atomic: u8,
    pub max_destination_rd_atomic: u8,
    /// The state that the queue pairs are brought to.
    pub state: QueuePairState,
    pub capacities: QueueCapacities,
    /// Entries of each of the two completion queues.
    pub completions: u32,
    pub signal_all: bool,
    pub pairs: usize,
    /// Each queue pair's peer has an address of its own.
    pub separate_peers: bool,
    /// Bytes of the largest IP packet.
    pub link_mtu: usize,
    /// Packets in a burst at most.
    pub max_segments: usize,
    pub migration: bool,
    /// We tell the peer how many receives are posted.
    pub finite_credits: bool,
    pub ipv6: bool,
    pub limits: Limits,
    pub congestion: CongestionOptions,
    pub send_start: u32,
    pub receive_start: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            kind: QueuePairKind::Rc,
            qkey: QKEY,
            mtu: PathMtu::Mtu1024,
            access: Access::ALL,
            timeout: 14,
            retry_count: 3,
            rnr_retry: 3,
            min_rnr_timer: 12,
            max_rd_atomic: 4,
            max_destination_rd_atomic: 4,
            state: QueuePairState::Rts,
            capacities: QueueCapacities::default(),
            completions: 1024,
            signal_all: true,
            pairs: 1,
            separate_peers: false,
            link_mtu: 9000,
            max_segments: 16,
            migration: true,
            finite_credits: false,
            ipv6: false,
            limits: Limits::default(),
            congestion: CongestionOptions::default(),
            send_start: 0,
            receive_start: 0,
        }
    }
}

impl Setup {
    /// Tells the story once for each pair of first PSNs.
    pub fn tell(&self, story: impl Fn(&mut Story)) {
        for (send_start, receive_start) in STARTS {
            println!("first PSNs: ours {send_start:#x}, the peer's {receive_start:#x}");
            let mut told = Story::new(Self { send_start, receive_start, ..self.clone() });
            story(&mut told);
            told.end();
        }
    }

    pub fn our_address(&self) -> IpAddr {
        if self.ipv6 {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into()
        } else {
            Ipv4Addr::new(10, 0, 0, 1).into()
        }
    }

    /// Address of the peer of queue pair `pair`.
    pub fn peer_address(&self, pair: usize) -> IpAddr {
        let last = if self.separate_peers { 2 + pair as u8 } else { 2 };
        if self.ipv6 {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into()
        } else {
            Ipv4Addr::new(10, 0, 0, last).into()
        }
    }

    pub fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            migration: self.migration,
            finite_credits: self.finite_credits,
            limits: self.limits,
            congestion: self.congestion,
            ..EngineOptions::new(7, vec![self.our_address()])
        }
    }

    /// Attributes of queue pair `pair` for the transition to `state` from the state before it.
    pub fn attributes(&self, state: QueuePairState, pair: usize) -> QueuePairAttributes {
        let to = QueuePairAttributes::to_state(state);
        let all = self.attributes_of_rc(state, pair);
        match self.kind {
            QueuePairKind::Uc => QueuePairAttributes {
                max_destination_rd_atomic: None,
                min_rnr_timer: None,
                timeout: None,
                retry_count: None,
                rnr_retry: None,
                max_rd_atomic: None,
                ..all
            },
            QueuePairKind::Ud => QueuePairAttributes {
                pkey_index: all.pkey_index,
                port: all.port,
                qkey: (state == QueuePairState::Init).then_some(self.qkey),
                send_psn: all.send_psn,
                ..to
            },
            _ => all,
        }
    }

    fn attributes_of_rc(&self, state: QueuePairState, pair: usize) -> QueuePairAttributes {
        let to = QueuePairAttributes::to_state(state);
        match state {
            QueuePairState::Init => QueuePairAttributes {
                pkey_index: Some(0),
                port: Some(1),
                access: Some(self.access),
                ..to
            },
            QueuePairState::Rtr => QueuePairAttributes {
                address: Some(AddressVector::new(0, self.peer_address(pair))),
                path_mtu: Some(self.mtu),
                destination: Some(Qpn::new(super::PEER + pair as u32)),
                receive_psn: Some(Psn::new(self.receive_start)),
                max_destination_rd_atomic: Some(self.max_destination_rd_atomic),
                min_rnr_timer: Some(self.min_rnr_timer),
                ..to
            },
            QueuePairState::Rts => QueuePairAttributes {
                timeout: Some(self.timeout),
                retry_count: Some(self.retry_count),
                rnr_retry: Some(self.rnr_retry),
                send_psn: Some(Psn::new(self.send_start)),
                max_rd_atomic: Some(self.max_rd_atomic),
                ..to
            },
            _ => to,
        }
    }
}

/// Tells a story with the default setup, once for each pair of first PSNs.
pub fn story(told: impl Fn(&mut Story)) {
    Setup::default().tell(told);
}
