//! `UROCE_TRACE=verbs` tells every call that changes something.

use std::net::IpAddr;
use std::process::Command;

use uroce::memory::{OwnedMemory, WindowKind};
use uroce::queue::{Access, QueuePairKind, SendFlags};
use uroce::software::DeviceOptions;
use uroce::verbs::{
    Context, Psn, QKey, QueuePairOptions, RegionChange, XrcDomainOptions, XrcQueueOptions,
};

/// What this program says on standard error while it makes the calls below.
fn trace() -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["told::the_calls", "--exact", "--ignored", "--nocapture"]);
    let output = command.env("UROCE_TRACE", "verbs").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn groups_windows_shared_connections_and_changed_regions_are_told() {
    let text = trace();
    let mut calls = text.lines().filter(|line| line.contains(" verb "));
    // In the order in which they are made.
    for part in [
        "attach_mcast(0x",
        "detach_mcast(0x",
        "detach_mcast(0x",
        "rereg_mr(0x",
        "rereg_mr(0x",
        "alloc_mw(Type1) = ok",
        ": bind window 0x",
        "dealloc_mw(0x",
        "open_xrcd(private, create) = ok",
        "create_xrc_srq(",
        "create_qp(XRC TGT in ",
        "open_qp(0x",
        "state INIT",
        "query_qp(0x",
        "destroy_qp(0x",
        "close_xrcd(",
    ] {
        assert!(calls.any(|line| line.contains(part)), "{part} is missing in\n{text}");
    }
    for part in [
        ", 239.88.9.3) = ok",
        "is not attached to multicast group 239.88.9.3",
        ", memory 128 bytes at 0x",
        ", access LOCAL_WRITE|MW_BIND) = ok",
        "8 receives of 1 segments) = ok",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
#[ignore = "a part of another test, which starts it with UROCE_TRACE"]
fn the_calls() {
    let addresses = vec![IpAddr::from([127, 88, 9, 50])];
    let options = DeviceOptions { addresses, ..DeviceOptions::from_environment().unwrap() };
    let context = Context::open(&options).unwrap();
    groups(&context);
    windows(&context);
    shared_connections(&context);
}

fn groups(context: &Context) {
    let group = IpAddr::from([239, 88, 9, 3]);
    let domain = context.allocate_domain().unwrap();
    let completions = context.create_completion_queue(4).unwrap();
    let kind = QueuePairKind::Ud;
    let options = QueuePairOptions { kind, ..QueuePairOptions::new(&completions) };
    let pair = domain.create_queue_pair(&options).unwrap();
    pair.start_datagrams(QKey::new(1), Psn::new(1)).unwrap();
    pair.attach_multicast(group).unwrap();
    pair.detach_multicast(group).unwrap();
    pair.detach_multicast(group).unwrap_err();
}

fn windows(context: &Context) {
    let domain = context.allocate_domain().unwrap();
    let completions = context.create_completion_queue(4).unwrap();
    let pairs =
        [(); 2].map(|()| domain.create_queue_pair(&QueuePairOptions::new(&completions)).unwrap());
    uroce::verbs::connect_pair(&pairs[0], &pairs[1], &Default::default()).unwrap();
    let mut region = domain.allocate(64, Access::NONE).unwrap();
    let memory = Some(OwnedMemory::new(128));
    region.reregister(RegionChange { memory, ..RegionChange::default() }).unwrap();
    let access = Some(Access::LOCAL_WRITE | Access::MW_BIND);
    region.reregister(RegionChange { access, ..RegionChange::default() }).unwrap();
    let window = domain.allocate_window(WindowKind::Type1).unwrap();
    let rights = Access::REMOTE_READ;
    pairs[0].bind_window(1, &window, &region, 0..8, rights, SendFlags::SIGNALED).unwrap();
    completions.wait_one(std::time::Duration::from_secs(30)).unwrap();
}

fn shared_connections(context: &Context) {
    let options = XrcDomainOptions { create: true, ..XrcDomainOptions::default() };
    let xrc_domain = context.open_xrc_domain(&options).unwrap();
    let domain = context.allocate_domain().unwrap();
    let completions = context.create_completion_queue(4).unwrap();
    let (requests, segments) = (8, 1);
    let options =
        XrcQueueOptions { domain: &xrc_domain, completions: &completions, requests, segments };
    let queue = domain.create_xrc_shared_receive_queue(&options).unwrap();
    let target = xrc_domain.create_target().unwrap();
    let same = xrc_domain.open_target(target.number()).unwrap();
    let init = uroce::queue::QueuePairAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::NONE),
        ..uroce::queue::QueuePairAttributes::to_state(uroce::queue::QueuePairState::Init)
    };
    target.modify(&init).unwrap();
    same.query().unwrap();
    assert_eq!(target.explain_error().map(|why| why.code), None);
    drop((target, same, queue, xrc_domain));
}
