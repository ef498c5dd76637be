//! Events of the port and the device, and queries of both, while their interface changes.

use std::os::fd::AsRawFd;

use uroce::software::DeviceOptions;
use uroce::verbs::{AsyncEventKind, Context, Counter, PortState};

use super::common;
use super::common::network::{ip, is_root, veth_in_new_namespace};

/// The next event's kind.
fn next(context: &Context) -> AsyncEventKind {
    assert!(common::wait_readable(&[context.as_raw_fd()], 30_000), "no event comes");
    context.poll_event().expect("the descriptor is readable").kind()
}

fn state(context: &Context) -> PortState {
    context.query_port().unwrap().state
}

#[test]
fn what_happens_to_the_interface_comes_as_events_and_shows_in_queries() {
    if !is_root() {
        return common::skip_unless("root", "making a network namespace needs it");
    }
    if let Err(reason) = veth_in_new_namespace("port7", "port8", "10.77.17.1/24", 1500) {
        return common::skip_unless("network-namespaces", &reason);
    }
    // The link-local address that the kernel gives by itself would come in between.
    ip(&["link", "set", "port7", "addrgenmode", "none"]).unwrap();
    ip(&["address", "flush", "dev", "port7", "scope", "link"]).unwrap();
    let options = DeviceOptions {
        addresses: vec!["10.77.17.1".parse().unwrap()],
        ..DeviceOptions::on("port7")
    };
    let context = Context::open(&options).unwrap();
    assert_eq!(state(&context), PortState::Active);

    ip(&["link", "set", "port8", "down"]).unwrap();
    assert_eq!(next(&context), AsyncEventKind::PortError);
    assert_eq!(state(&context), PortState::Down, "no carrier");
    ip(&["link", "set", "port8", "up"]).unwrap();
    assert_eq!(next(&context), AsyncEventKind::PortActive);
    assert_eq!(state(&context), PortState::Active);

    ip(&["address", "add", "10.77.18.1/24", "dev", "port7"]).unwrap();
    assert_eq!(next(&context), AsyncEventKind::GidChange);
    ip(&["address", "delete", "10.77.18.1/24", "dev", "port7"]).unwrap();
    assert_eq!(next(&context), AsyncEventKind::GidChange);
    assert_eq!(context.query_port().unwrap().gids, 1, "the table is that of the opening");

    ip(&["link", "set", "port7", "down"]).unwrap();
    assert_eq!(next(&context), AsyncEventKind::PortError);
    assert_eq!(state(&context), PortState::Disabled);
    ip(&["link", "set", "port7", "up"]).unwrap();
    assert_eq!(next(&context), AsyncEventKind::PortActive);

    ip(&["link", "delete", "port7"]).unwrap();
    let last = [next(&context), next(&context)];
    assert_eq!(last, [AsyncEventKind::PortError, AsyncEventKind::DeviceFatal]);
    assert_eq!(state(&context), PortState::Disabled);
    let counters = context.counters().unwrap().engine;
    assert_eq!(counters.get(Counter::PortDown), 3);
    assert_eq!(counters.get(Counter::Event), 8);
}

#[test]
fn a_device_tells_its_limits_and_what_it_can_do() {
    let context = super::setup::context(100);
    let attributes = context.query_device();
    assert_eq!(&attributes.limits, context.limits());
    let table = attributes.table();
    let value = |name: &str| table.iter().find(|(other, _)| *other == name).unwrap().1.clone();
    assert_eq!(value("max_qp"), context.limits().queue_pairs.to_string());
    assert_eq!(value("phys_port_cnt"), "1");
    assert!(attributes.limits.queue_pairs >= 65_535, "{}", attributes.limits.queue_pairs);
    let port = context.query_port().unwrap();
    assert_eq!((port.gids, port.max_message), (1, 1 << 31));
    assert_eq!((port.bad_partition_keys, port.bad_queue_keys), (0, 0));
    assert!(port.active_mtu <= port.max_mtu && port.active_mtu.bytes() < port.interface_mtu);
}
