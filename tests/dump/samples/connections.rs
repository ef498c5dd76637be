//! Samples of the connection manager's messages.
//!
//! The data of each message counts: byte n holds 2n, so that every field has a value of its own, which
//! follows from its place in the tables of the specification (volume 1, chapter 12).

use serde_json::{Value, json};

use super::others::{mad, to};
use super::*;

fn counted() -> Bytes {
    (0..232).map(|at: u8| at.wrapping_mul(2)).collect()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Private data from a byte on.
fn private(from: usize) -> Value {
    json!({"private_data": digits(&counted()[from..])})
}

fn message(attribute: u16, name: &str, data: &[u8], fields: Value) -> (Captured, Vec<Value>) {
    let fields = with(fields, json!({"message": name}));
    one(to(1, &mad(7, 3, attribute, data)), json!({"issues": [], "icrc": "ok", "mad": fields}))
}

/// A message with both communication identifiers.
fn of_two(attribute: u16, name: &str, fields: Value) -> (Captured, Vec<Value>) {
    let both = json!({"local_comm_id": "0x00020406", "remote_comm_id": "0x080a0c0e"});
    message(attribute, name, &counted(), with(fields, both))
}

pub fn connection_manager() -> Sample {
    sample(
        "connection-manager",
        "each message of the connection manager, with a value of its own in every field",
        ETHERNET,
        vec![
            message(0x10, "REQ", &counted(), with(request(), primary_path())),
            message(0x10, "REQ", &counted(), with(alternate_path(), private(140))),
            of_no_ip_version(),
            of_two(
                0x11,
                "MRA",
                with(
                    json!({"message_received": 0, "message_received_text": "REQ",
                        "service_timeout": 2}),
                    private(10),
                ),
            ),
            answer_to_a_path(),
            of_two(0x12, "REJ", with(rejection(), private(84))),
            of_two(0x13, "REP", with(reply(), private(36))),
            of_two(0x14, "RTU", private(8)),
            of_two(0x15, "DREQ", with(json!({"remote_qpn": 0x10_1214}), private(12))),
            of_two(0x16, "DREP", private(8)),
            message(0x17, "SIDR_REQ", &counted(), with(service_request(), private(16))),
            message(0x18, "SIDR_REP", &counted(), with(service_reply(), private(96))),
            of_two(0x19, "LAP", with(load_path(), private(64))),
            of_two(0x1a, "APR", with(path_reply(), private(84))),
            path_refused(),
        ],
    )
}

fn request() -> Value {
    json!({
        "local_comm_id": "0x00020406", "service_id": "0x10121416181a1c1e",
        "local_ca_guid": "0x20222426282a2c2e", "local_qkey": "0x383a3c3e",
        "local_qpn": 0x40_4244, "responder_resources": 70, "local_eecn": 0x48_4a4c,
        "initiator_depth": 78, "remote_eecn": 0x50_5254, "remote_cm_response_timeout": 10,
        "transport_service": 3, "transport_service_text": "extended",
        "end_to_end_flow_control": 0, "starting_psn": 0x58_5a5c,
        "local_cm_response_timeout": 11, "retry_count": 6, "pkey": "0x6062", "path_mtu": 6,
        "path_mtu_text": "reserved", "rdc_exists": 0, "rnr_retry_count": 4, "max_cm_retries": 6,
        "srq": 0, "extended_transport": 6,
    })
}

fn primary_path() -> Value {
    json!({
        "primary_local_lid": 0x686a, "primary_remote_lid": 0x6c6e,
        "primary_local_gid": "7072:7476:787a:7c7e:8082:8486:888a:8c8e",
        "primary_remote_gid": "9092:9496:989a:9c9e:a0a2:a4a6:a8aa:acae",
        "primary_flow_label": 0xb_0b2b, "primary_packet_rate": 54, "primary_traffic_class": 0xb8,
        "primary_hop_limit": 0xba, "primary_sl": 11, "primary_subnet_local": 1,
        "primary_local_ack_timeout": 23,
    })
}

fn alternate_path() -> Value {
    json!({
        "alternate_local_lid": 0xc0c2, "alternate_remote_lid": 0xc4c6,
        "alternate_local_gid": "c8ca:ccce:d0d2:d4d6:d8da:dcde:e0e2:e4e6",
        "alternate_remote_gid": "e8ea:ecee:f0f2:f4f6:f8fa:fcfe:2:406",
        "alternate_flow_label": 0x0_80a0, "alternate_packet_rate": 14,
        "alternate_traffic_class": 16, "alternate_hop_limit": 18, "alternate_sl": 1,
        "alternate_subnet_local": 0, "alternate_local_ack_timeout": 2, "sap_supported": 1,
    })
}

/// The service is one of the IP connection manager, and what should be its addresses is of IP
/// version 7: private data all the same.
fn of_no_ip_version() -> (Captured, Vec<Value>) {
    let mut data = counted();
    data[8..16].copy_from_slice(&[0, 0, 0, 0, 1, 6, 0x12, 0x34]);
    data[141] = 0x70;
    let fields = json!({"service_id": "0x0000000001061234", "ip_version": null, "ip_source": null,
        "private_data": digits(&data[140..])});
    message(0x10, "REQ", &data, fields)
}

fn answer_to_a_path() -> (Captured, Vec<Value>) {
    let mut data = counted();
    data[8] = 0xbf;
    let fields = json!({"message_received": 2, "message_received_text": "LAP"});
    message(0x11, "MRA", &data, fields)
}

fn rejection() -> Value {
    json!({
        "message_rejected": 0, "message_rejected_text": "REQ", "reject_info_length": 9,
        "reason": 0x1416, "reason_text": "reserved reason",
        "additional_info": digits(&counted()[12..84]),
    })
}

fn reply() -> Value {
    json!({
        "local_qkey": "0x10121416", "local_qpn": 0x18_1a1c, "local_eecn": 0x20_2224,
        "starting_psn": 0x28_2a2c, "responder_resources": 48, "initiator_depth": 50,
        "target_ack_delay": 6, "failover_accepted": 2,
        "failover_accepted_text": "alternate path rejected", "end_to_end_flow_control": 0,
        "rnr_retry_count": 1, "srq": 1, "local_ca_guid": "0x383a3c3e40424446",
    })
}

fn service_request() -> Value {
    json!({"request_id": "0x00020406", "pkey": "0x080a", "service_id": "0x10121416181a1c1e"})
}

fn service_reply() -> Value {
    json!({
        "request_id": "0x00020406", "sidr_status": 8, "sidr_status_text": "reserved status",
        "additional_info_length": 10, "qpn": 0x10_1214, "service_id": "0x181a1c1e20222426",
        "qkey": "0x282a2c2e", "additional_info": digits(&counted()[24..96]),
    })
}

fn load_path() -> Value {
    json!({
        "remote_qpn": 0x18_1a1c, "remote_cm_response_timeout": 3, "alternate_local_lid": 0x282a,
        "alternate_remote_lid": 0x2c2e,
        "alternate_local_gid": "3032:3436:383a:3c3e:4042:4446:484a:4c4e",
        "alternate_remote_gid": "5052:5456:585a:5c5e:6062:6466:686a:6c6e",
        "alternate_flow_label": 0x7_0727, "alternate_traffic_class": 118,
        "alternate_hop_limit": 120, "alternate_packet_rate": 58, "alternate_sl": 7,
        "alternate_subnet_local": 1, "alternate_local_ack_timeout": 15,
    })
}

fn path_reply() -> Value {
    json!({
        "additional_info_length": 16, "ap_status": 18, "ap_status_text": "reserved status",
        "additional_info": digits(&counted()[12..84]),
    })
}

fn path_refused() -> (Captured, Vec<Value>) {
    let mut data = counted();
    data[9] = 13;
    let text = "alternate service level rejected";
    message(0x1a, "APR", &data, json!({"ap_status": 13, "ap_status_text": text}))
}
