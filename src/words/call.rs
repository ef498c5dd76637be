//! Verbs in words, for a trace: what was asked, with attributes decoded.

use std::fmt::{Display, Write};

use super::number::{bytes, milliseconds};
use crate::engine::XrcOpen;
use crate::queue::{
    Access, AddressVector, Attachment, Completion, Payload, QueueCapacities, QueuePairAttributes,
    ReceiveRequest, SendOperation, SendRequest, Sge, WindowBind,
};
use crate::wire::{Lkey, RnrTimer};

/// A list of names and values that are there.
struct List(String);

impl List {
    fn add(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            let separator = if self.0.is_empty() { "" } else { ", " };
            // Writing into a string does not fail.
            let _ = write!(self.0, "{separator}{name} {value}");
        }
    }
}

/// Attributes that are given, with times decoded.
pub fn attributes(all: &QueuePairAttributes) -> String {
    let mut list = List(String::new());
    list.add("state", all.state);
    list.add("cur_state", all.current_state);
    list.add("pkey_index", all.pkey_index);
    list.add("port", all.port);
    list.add("access", all.access);
    list.add("qkey", all.qkey);
    list.add("av", all.address.as_ref().map(address));
    list.add("path_mtu", all.path_mtu.map(|mtu| mtu.bytes()));
    list.add("dest_qpn", all.destination);
    list.add("rq_psn", all.receive_psn);
    list.add("sq_psn", all.send_psn);
    list.add("max_rd_atomic", all.max_rd_atomic);
    list.add("max_dest_rd_atomic", all.max_destination_rd_atomic);
    list.add("min_rnr_timer", all.min_rnr_timer.map(rnr_timer));
    list.add("timeout", all.timeout.map(timeout));
    list.add("retry_cnt", all.retry_count);
    list.add("rnr_retry", all.rnr_retry);
    list.add("en_sqd_async_notify", all.drain_notification);
    list.add("alt_path", all.alternate_path.as_ref().map(address));
    list.add("path_mig_state", all.path_migration_state);
    list.0
}

/// An address vector.
pub fn address(address: &AddressVector) -> String {
    let AddressVector { gid_index, destination, traffic_class, hop_limit, flow_label } = address;
    format!(
        "{destination} from GID {gid_index} (traffic class {traffic_class}, hop limit {hop_limit}, \
         flow label {flow_label})"
    )
}

fn timeout(exponent: u8) -> String {
    match exponent {
        0 => "0 (none)".to_owned(),
        _ => format!("{exponent} ({})", milliseconds(4096u64 << exponent.min(31))),
    }
}

fn rnr_timer(code: u8) -> String {
    format!("{code} ({})", milliseconds(RnrTimer::new(code).nanos()))
}

/// Sizes of queues.
pub fn capacities(sizes: &QueueCapacities) -> String {
    format!(
        "{} sends of {} segments or {} inline bytes, {} receives of {} segments",
        sizes.send_requests,
        sizes.send_segments,
        sizes.inline_bytes,
        sizes.receive_requests,
        sizes.receive_segments
    )
}

/// A send work request.
pub fn send(request: &SendRequest<'_>) -> String {
    let flags = [
        (request.flags.signaled, "signaled"),
        (request.flags.solicited, "solicited"),
        (request.flags.fence, "fenced"),
    ];
    let flags: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    let flags = if flags.is_empty() { String::new() } else { format!(", {}", flags.join(", ")) };
    let payload = match request.payload {
        Payload::Inline(data) => format!("{} inline", bytes(data.len() as u64)),
        Payload::Segments(list) => segments(list),
    };
    format!("id {}: {}, {payload}{flags}", request.id, operation(&request.operation))
}

/// A receive work request.
pub fn receive(request: &ReceiveRequest<'_>) -> String {
    format!("id {}: {}", request.id, segments(request.segments))
}

fn segments(list: &[Sge]) -> String {
    if list.is_empty() {
        return "no data".to_owned();
    }
    let one = |sge: &Sge| {
        format!("{} at {:#x} with key {}", bytes(sge.length.into()), sge.address, sge.key)
    };
    list.iter().map(one).collect::<Vec<_>>().join(" + ")
}

fn operation(operation: &SendOperation) -> String {
    match operation {
        SendOperation::Send => "SEND".to_owned(),
        SendOperation::SendWithImmediate(immediate) => {
            format!("SEND with immediate {:02x?}", immediate.0)
        }
        SendOperation::SendWithInvalidate(key) => format!("SEND that invalidates key {key}"),
        SendOperation::Write(to) => format!("RDMA WRITE to {:#x} with key {}", to.address, to.key),
        SendOperation::WriteWithImmediate(to, immediate) => format!(
            "RDMA WRITE to {:#x} with key {} and immediate {:02x?}",
            to.address, to.key, immediate.0
        ),
        SendOperation::Read(from) => {
            format!("RDMA READ from {:#x} with key {}", from.address, from.key)
        }
        SendOperation::CompareSwap { remote, compare, swap } => format!(
            "CMP&SWAP {compare:#x} by {swap:#x} at {:#x} with key {}",
            remote.address, remote.key
        ),
        SendOperation::FetchAdd { remote, add } => {
            format!("FETCH&ADD {add:#x} at {:#x} with key {}", remote.address, remote.key)
        }
        SendOperation::SendTo { to, .. } => {
            format!("SEND to queue pair {} with Q_Key {}", to.queue_pair, to.qkey)
        }
        SendOperation::AtomicWrite { remote, value } => {
            format!("ATOMIC WRITE of {value:02x?} to {:#x} with key {}", remote.address, remote.key)
        }
        SendOperation::Flush { remote, length, placement, selectivity } => format!(
            "FLUSH {placement:?} {selectivity:?} of {} at {:#x} with key {}",
            bytes((*length).into()),
            remote.address,
            remote.key
        ),
        SendOperation::BindWindow(bind) => format!("bind {}", window(bind)),
        SendOperation::LocalInvalidate(key) => format!("local invalidation of key {key}"),
    }
}

/// How an XRC domain is opened.
pub fn xrc_open(open: &XrcOpen) -> String {
    let file = match open.file {
        Some(file) => format!("file {}:{}", file.device, file.inode),
        None => "private".to_owned(),
    };
    let create = if open.create { ", create" } else { "" };
    let exclusive = if open.exclusive { ", exclusive" } else { "" };
    format!("open_xrcd({file}{create}{exclusive})")
}

/// A re-registration: address and length of other memory, whether the protection domain is another
/// one, and other rights.
pub fn reregister(
    key: Lkey,
    memory: Option<(u64, usize)>,
    domain: bool,
    access: Option<Access>,
) -> String {
    let mut list = List(String::new());
    let range = memory.map(|(address, length)| format!("{} at {address:#x}", bytes(length as u64)));
    list.add("memory", range);
    list.add("domain", domain.then_some("another"));
    list.add("access", access);
    let separator = if list.0.is_empty() { "" } else { ", " };
    format!("rereg_mr({key}{separator}{})", list.0)
}

/// What a window is to be bound to.
pub fn window(bind: &WindowBind) -> String {
    format!(
        "window {} to {} at {:#x} of region {}, {}",
        bind.key(),
        bytes(bind.length),
        bind.address,
        bind.region,
        bind.access
    )
}

/// A completion.
pub fn completion(completion: &Completion) -> String {
    let Completion { id, status, kind, length, queue_pair, .. } = completion;
    if !status.is_success() {
        return format!("id {id} of qp {queue_pair}: {kind:?}, {status} ({})", *status as u8);
    }
    let attachment = match completion.attachment {
        Attachment::None => String::new(),
        Attachment::Immediate(immediate) => format!(", immediate {:02x?}", immediate.0),
        Attachment::Invalidated(key) => format!(", invalidated key {key}"),
    };
    format!(
        "id {id} of qp {queue_pair}: {kind:?}, success, {}{attachment}",
        bytes((*length).into())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{PathMtu, QueuePairState};

    #[test]
    fn attributes_are_decoded() {
        let all = QueuePairAttributes {
            path_mtu: Some(PathMtu::Mtu1024),
            timeout: Some(14),
            min_rnr_timer: Some(12),
            address: Some(AddressVector::new(0, [10, 0, 0, 2].into())),
            ..QueuePairAttributes::to_state(QueuePairState::Rtr)
        };
        assert_eq!(
            attributes(&all),
            "state RTR, av 10.0.0.2 from GID 0 (traffic class 0, hop limit 64, flow label 0), \
             path_mtu 1024, min_rnr_timer 12 (0.64 ms), timeout 14 (67.109 ms)"
        );
        assert_eq!(
            attributes(&QueuePairAttributes { timeout: Some(0), ..Default::default() }),
            "timeout 0 (none)"
        );
    }
}
