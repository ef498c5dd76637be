//! What a device and its port are: the answers to `ibv_query_device` and `ibv_query_port`.

use super::{DeviceInfo, PortState};
use crate::engine::Limits;
use crate::host::Interface;
use crate::queue::{MAX_MESSAGE, PathMtu};

/// How far the atomicity of atomic operations reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicScope {
    /// Towards everything that accesses the memory with atomic instructions: the processor's, other
    /// devices'. Ours are the processor's.
    Global,
}

/// Something that a device can do, by the name that verbs have for it (`IBV_DEVICE_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The name without `IBV_DEVICE_`.
    pub name: &'static str,
    /// The bit in `device_cap_flags`.
    pub bit: u64,
}

const fn capability(name: &'static str, bit: u32) -> Capability {
    Capability { name, bit: 1 << bit }
}

/// What the stack can do whatever the limits.
const ALWAYS: [Capability; 6] = [
    // Violations of partition and queue keys are counted.
    capability("BAD_PKEY_CNTR", 1),
    capability("BAD_QKEY_CNTR", 2),
    // modify checks the state that the caller believes in.
    capability("CURR_QP_STATE_MOD", 7),
    capability("PORT_ACTIVE_EVENT", 10),
    capability("SYS_IMAGE_GUID", 11),
    capability("RC_RNR_NAK_GEN", 12),
];
const WINDOWS: [Capability; 2] =
    [capability("MEM_WINDOW", 17), capability("MEM_WINDOW_TYPE_2B", 24)];
const XRC: Capability = capability("XRC", 20);
const FLUSH_AND_ATOMIC_WRITE: [Capability; 3] = [
    capability("FLUSH_GLOBAL", 38),
    capability("FLUSH_PERSISTENT", 39),
    capability("ATOMIC_WRITE", 40),
];

/// What a device is, and the most of each thing that it gives out. Zero says that there is none.
///
/// Names in parentheses are those of `ibv_device_attr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// Version of this library (fw_ver): there is no firmware.
    pub firmware: &'static str,
    /// Of this device (node_guid), made from the interface's Ethernet address as EUI-64.
    pub node_guid: u64,
    /// Of the system (sys_image_guid); each device stands for itself.
    pub system_image_guid: u64,
    /// Bytes of the largest memory region (max_mr_size).
    pub memory_region_bytes: u64,
    /// A bit for each page size from which memory can be made up (page_size_cap): all from 4 KiB on,
    /// since memory of any alignment can be registered.
    pub page_sizes: u64,
    /// 0: nobody has sold this (vendor_id, vendor_part_id, hw_ver).
    pub vendor: u32,
    /// Everything that has a limit, see [`Limits`].
    pub limits: Limits,
    /// Work requests and segments of shared receive queues (max_srq_wr, max_srq_sge).
    pub shared_receives: (u32, u32),
    /// READs and atomics of peers that are served at a time, over all queue pairs
    /// (max_res_rd_atom).
    pub all_rd_atomic: u64,
    /// How far atomics reach (atomic_cap).
    pub atomics: AtomicScope,
    /// Partition keys (max_pkeys).
    pub partition_keys: u16,
    /// Code of the longest usual delay of an acknowledgement, 4.096 µs × 2^n (local_ca_ack_delay).
    pub ack_delay: u8,
    /// Ports (phys_port_cnt).
    pub ports: u8,
    /// What else it can do (device_cap_flags).
    pub capabilities: Vec<Capability>,
}

/// A software device answers within its turn unless the processor is taken from it: a few
/// milliseconds on a loaded machine.
const ACK_DELAY: u8 = 10;

impl DeviceAttributes {
    /// Attributes of a device on an interface, with these limits.
    pub fn of_interface(interface: Option<&Interface>, limits: &Limits) -> Self {
        let guid = guid(interface.and_then(|interface| interface.mac).unwrap_or_default());
        let mut capabilities = ALWAYS.to_vec();
        if limits.windows > 0 {
            capabilities.extend(WINDOWS);
        }
        if limits.xrc_domains > 0 {
            capabilities.push(XRC);
        }
        capabilities.extend(FLUSH_AND_ATOMIC_WRITE);
        Self {
            firmware: env!("CARGO_PKG_VERSION"),
            node_guid: guid,
            system_image_guid: guid,
            memory_region_bytes: isize::MAX as u64,
            page_sizes: !0xfff,
            vendor: 0,
            limits: *limits,
            shared_receives: match limits.shared_receive_queues {
                0 => (0, 0),
                _ => (limits.work_requests, limits.segments),
            },
            all_rd_atomic: u64::from(limits.queue_pairs) * u64::from(limits.rd_atomic),
            atomics: AtomicScope::Global,
            partition_keys: 1,
            ack_delay: ACK_DELAY,
            ports: 1,
            capabilities,
        }
    }

    /// All capabilities as the bits of `device_cap_flags`.
    pub fn capability_bits(&self) -> u64 {
        self.capabilities.iter().map(|capability| capability.bit).sum()
    }

    /// Names and values as `ibv_devinfo -v` lists them, in its order.
    pub fn table(&self) -> Vec<(&'static str, String)> {
        let limits = &self.limits;
        let mut rows = vec![
            ("fw_ver", self.firmware.to_owned()),
            ("node_guid", guid_text(self.node_guid)),
            ("sys_image_guid", guid_text(self.system_image_guid)),
            ("vendor_id", format!("{:#06x}", self.vendor)),
            ("vendor_part_id", self.vendor.to_string()),
            ("hw_ver", format!("{:#x}", self.vendor)),
            ("phys_port_cnt", self.ports.to_string()),
            ("max_mr_size", format!("{:#x}", self.memory_region_bytes)),
            ("page_size_cap", format!("{:#x}", self.page_sizes)),
            ("device_cap_flags", format!("{:#x}", self.capability_bits())),
            ("atomic_cap", "ATOMIC_GLOB".to_owned()),
        ];
        rows.extend(numbers(limits).map(|(name, value)| (name, value.to_string())));
        rows.extend([
            ("max_srq_wr", self.shared_receives.0.to_string()),
            ("max_srq_sge", self.shared_receives.1.to_string()),
            ("max_res_rd_atom", self.all_rd_atomic.to_string()),
            ("max_pkeys", self.partition_keys.to_string()),
            ("local_ca_ack_delay", self.ack_delay.to_string()),
        ]);
        rows
    }
}

/// The limits by the names of `ibv_device_attr`, with those of things that there are none of.
fn numbers(limits: &Limits) -> impl Iterator<Item = (&'static str, u32)> {
    let rd_atomic = u32::from(limits.rd_atomic);
    [
        ("max_qp", limits.queue_pairs),
        ("max_qp_wr", limits.work_requests),
        ("max_sge", limits.segments),
        // A READ scatters like anything else.
        ("max_sge_rd", limits.segments),
        ("max_inline_data", limits.inline_bytes),
        ("max_cq", limits.completion_queues),
        ("max_cqe", limits.completions),
        ("max_mr", limits.regions),
        ("max_pd", limits.domains),
        ("max_qp_rd_atom", rd_atomic),
        ("max_qp_init_rd_atom", rd_atomic),
        ("max_ah", limits.address_handles),
        ("max_srq", limits.shared_receive_queues),
        ("max_mw", limits.windows),
        ("max_xrcd", limits.xrc_domains),
        ("max_mcast_grp", limits.multicast_groups),
        ("max_mcast_qp_attach", limits.multicast_members),
        ("max_total_mcast_qp_attach", limits.multicast_attachments),
        // Reliable datagram (rdd, ee), raw queue pairs and fast memory regions exist nowhere in
        // RoCE's software.
        ("max_ee", 0),
        ("max_rdd", 0),
        ("max_ee_rd_atom", 0),
        ("max_ee_init_rd_atom", 0),
        ("max_raw_ipv6_qp", 0),
        ("max_raw_ethy_qp", 0),
        ("max_fmr", 0),
        ("max_map_per_fmr", 0),
    ]
    .into_iter()
}

/// EUI-64 of an Ethernet address, with the bit for "universal" turned round as for IPv6.
fn guid(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// A GUID as tools write it.
fn guid_text(guid: u64) -> String {
    let part = |shift: u32| format!("{:04x}", (guid >> shift) as u16);
    [part(48), part(32), part(16), part(0)].join(":")
}

/// What a port is at this moment.
///
/// Names in parentheses are those of `ibv_port_attr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAttributes {
    /// State of the interface (state, phys_state).
    pub state: PortState,
    /// The largest path MTU that RoCE has (max_mtu).
    pub max_mtu: PathMtu,
    /// The largest path MTU whose packets fit the interface (active_mtu).
    pub active_mtu: PathMtu,
    /// Bytes of the interface's largest IP packet.
    pub interface_mtu: usize,
    /// Entries of the GID table (gid_tbl_len).
    pub gids: usize,
    /// Bytes of the largest message (max_msg_sz).
    pub max_message: u64,
    /// Entries of the partition key table (pkey_tbl_len); the one entry is the default key.
    pub partition_keys: u16,
    /// Packets dropped for their partition key (bad_pkey_cntr); 0 if the device is not open.
    pub bad_partition_keys: u64,
    /// Packets dropped for their queue key (qkey_viol_cntr); 0 if the device is not open.
    pub bad_queue_keys: u64,
}

impl PortAttributes {
    /// Of a device's port, without what only an open device counts.
    pub fn of(info: &DeviceInfo) -> Self {
        Self {
            state: info.state,
            max_mtu: PathMtu::Mtu4096,
            active_mtu: info.path_mtu,
            interface_mtu: info.mtu,
            gids: info.gids.len(),
            max_message: MAX_MESSAGE,
            partition_keys: 1,
            bad_partition_keys: 0,
            bad_queue_keys: 0,
        }
    }

    /// Names and values as `ibv_devinfo -v` lists them, in its order.
    pub fn table(&self) -> Vec<(&'static str, String)> {
        let (state, physical) = match self.state {
            PortState::Active => ("PORT_ACTIVE (4)", "LINK_UP (5)"),
            PortState::Down => ("PORT_DOWN (1)", "POLLING (2)"),
            PortState::Disabled => ("PORT_DOWN (1)", "DISABLED (3)"),
        };
        let mtu = |mtu: PathMtu| format!("{} ({})", mtu.bytes(), mtu.code());
        vec![
            ("state", state.to_owned()),
            ("max_mtu", mtu(self.max_mtu)),
            ("active_mtu", mtu(self.active_mtu)),
            ("sm_lid", "0".to_owned()),
            ("port_lid", "0".to_owned()),
            ("port_lmc", "0x00".to_owned()),
            ("link_layer", "Ethernet".to_owned()),
            ("max_msg_sz", format!("{:#x}", self.max_message)),
            ("port_cap_flags", "IP_BASED_GIDS CM_SUP".to_owned()),
            ("bad_pkey_cntr", self.bad_partition_keys.to_string()),
            ("qkey_viol_cntr", self.bad_queue_keys.to_string()),
            ("pkey_tbl_len", self.partition_keys.to_string()),
            ("gid_tbl_len", self.gids.to_string()),
            ("phys_state", physical.to_owned()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_comes_from_the_ethernet_address() {
        let guid = guid([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        assert_eq!(guid_text(guid), "5054:00ff:fe12:3456");
    }

    #[test]
    fn limits_are_those_of_the_engine_and_what_there_is_none_of_is_zero() {
        let limits = Limits { queue_pairs: 7, rd_atomic: 3, windows: 0, ..Limits::default() };
        let attributes = DeviceAttributes::of_interface(None, &limits);
        let table = attributes.table();
        let value = |name: &str| {
            let mut found = table.iter().filter(|(other, _)| *other == name);
            let value = found.next().unwrap_or_else(|| panic!("{name}")).1.clone();
            assert!(found.next().is_none(), "{name} stands twice");
            value
        };
        assert_eq!((value("max_qp"), value("max_res_rd_atom")), ("7".to_owned(), "21".to_owned()));
        assert_eq!((value("max_mw"), value("max_fmr")), ("0".to_owned(), "0".to_owned()));
        let names: Vec<&str> = attributes.capabilities.iter().map(|c| c.name).collect();
        assert!(!names.contains(&"MEM_WINDOW") && names.contains(&"RC_RNR_NAK_GEN"));
        assert_eq!(attributes.capability_bits().count_ones() as usize, names.len());
        let none = Limits { shared_receive_queues: 0, ..limits };
        assert_eq!(DeviceAttributes::of_interface(None, &none).shared_receives, (0, 0));
    }
}
