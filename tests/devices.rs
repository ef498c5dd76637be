//! `uroce devices`: what the interfaces are as devices.

mod common;

use std::net::UdpSocket;

use common::network::{ip, is_root, veth_in_new_namespace};
use common::program::{Running, assert_success, json, run, status, stderr, stdout, uroce};
use serde_json::Value;

fn device(report: &Value, interface: &str) -> Value {
    let devices = report["devices"].as_array().unwrap();
    devices.iter().find(|device| device["interface"] == interface).unwrap().clone()
}

#[test]
fn loopback_is_a_device_with_its_gids_and_limits() {
    let output = run(&["devices", "--json", "-d", "lo"]);
    assert_success(&output);
    let report = json(&output);
    let lo = device(&report, "lo");
    assert_eq!(report["devices"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&lo["name"], &lo["usable"], &lo["state"]),
        (&"lo".into(), &true.into(), &"active".into())
    );
    assert_eq!((&lo["link_layer"], &lo["loopback"]), (&"Ethernet".into(), &true.into()));
    assert_eq!(lo["problems"].as_array().unwrap().len(), 0);
    let gid = &lo["gids"][0];
    assert_eq!(gid["gid"], "0000:0000:0000:0000:0000:ffff:7f00:0001");
    assert_eq!((&gid["address"], &gid["type"]), (&"127.0.0.1".into(), &"RoCE v2".into()));
    assert!(lo["mtu"].as_u64().unwrap() >= lo["active_mtu"].as_u64().unwrap());
    assert!(lo["limits"]["queue_pairs"].as_u64().unwrap() >= 1);
    assert!(report["process"]["capabilities"]["CAP_NET_RAW"].is_boolean());
}

#[test]
fn people_get_the_same_in_words_within_100_columns() {
    let output = run(&["devices", "-v"]);
    assert_success(&output);
    let text = stdout(&output);
    for words in ["lo: usable", "GID 0", "RoCE v2  127.0.0.1", "path MTU up to", "this process"] {
        assert!(text.contains(words), "{words} is missing: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(!text.contains('\x1b'));
    assert!(stdout(&run(&["devices", "--color", "always"])).contains("\x1b["));
}

#[test]
fn the_default_and_its_name_come_from_the_environment() {
    let mut command = uroce(&["devices", "--json"]);
    command.env("UROCE_DEVICE", "lo=mlx5_0");
    let report = json(&Running::start(command).finish());
    let lo = device(&report, "lo");
    assert_eq!((&lo["name"], &lo["default"]), (&"mlx5_0".into(), &true.into()));
}

#[test]
fn an_interface_that_is_not_there_is_status_2_and_names_those_that_are() {
    let output = run(&["devices", "-d", "absent0"]);
    assert_eq!(status(&output), 2);
    let text = stderr(&output);
    assert!(text.contains("absent0") && text.contains("lo") && text.lines().count() == 1, "{text}");
}

#[test]
fn an_open_device_is_seen_without_disturbing_it() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = port.to_string();
    let mut server = Running::start(uroce(&["pingpong", "-d", "lo", "-p", &port, "-n", "10"]));
    server.wait_for_line("local  address");
    let report = json(&run(&["devices", "--json", "-d", "lo"]));
    let lo = device(&report, "lo");
    let used = &lo["gids"][0]["port"];
    assert_eq!((&lo["usable"], &used["use"]), (&true.into(), &"shared".into()));
    assert!(used["devices"].as_u64().unwrap() >= 1);
    let client = run(&["pingpong", "-d", "lo", "-p", &port, "-n", "10", "localhost"]);
    assert_eq!(status(&client), 0, "{}", stderr(&client));
    assert_success(&server.finish());
}

#[test]
fn what_is_missing_is_told_with_its_reason() {
    if !is_root() {
        return common::skip_unless("root", "making a network namespace needs it");
    }
    if let Err(reason) = veth_in_new_namespace("inside8", "outside8", "10.77.8.1/24", 1500) {
        return common::skip_unless("network-namespaces", &reason);
    }
    ip(&["link", "add", "dark8", "type", "veth", "peer", "name", "dark9"]).unwrap();
    let report = json(&run(&["devices", "--json"]));
    let inside = device(&report, "inside8");
    assert_eq!(inside["usable"], true);
    let defaults = report["devices"].as_array().unwrap().iter().filter(|d| d["default"] == true);
    assert_eq!(defaults.count(), 1);
    assert_eq!(
        (&inside["active_mtu"], &inside["gids"][0]["address"]),
        (&1024.into(), &"10.77.8.1".into())
    );
    let dark = device(&report, "dark8");
    assert_eq!((&dark["usable"], &dark["state"]), (&false.into(), &"disabled".into()));
    let problem = dark["problems"][0].as_str().unwrap();
    assert!(problem.contains("`ip link set dark8 up`"), "{problem}");
    let only_dark = run(&["devices", "-d", "dark8"]);
    assert_eq!(status(&only_dark), 1);
    assert!(stdout(&only_dark).contains("because"), "{}", stdout(&only_dark));

    // Another program that does not share the port.
    let _holder = UdpSocket::bind("10.77.8.1:4791").unwrap();
    let output = run(&["devices", "--json", "-d", "inside8"]);
    assert_eq!(status(&output), 1);
    let inside = device(&json(&output), "inside8");
    assert_eq!(
        (&inside["usable"], &inside["gids"][0]["port"]["use"]),
        (&false.into(), &"foreign".into())
    );
    let problem = inside["problems"][0].as_str().unwrap();
    assert!(problem.contains("4791") && problem.contains("user id 0"), "{problem}");
    let pingpong = run(&["pingpong", "-d", "inside8"]);
    assert_eq!(status(&pingpong), 2, "what is called unusable cannot be used");

    // No address but a link-local one, which IPv6 gives by itself; without even that there is none.
    ip(&["link", "set", "dark8", "addrgenmode", "none"]).unwrap();
    ip(&["link", "set", "dark8", "up"]).unwrap();
    let report = json(&run(&["devices", "--json", "-d", "dark8"]));
    let problem = device(&report, "dark8")["problems"][0].as_str().unwrap().to_owned();
    assert!(problem.contains("no IP address"), "{problem}");
}
