//! Messages of the connection manager, field by field (specification, volume 1, chapter 12, tables
//! 106 to 120; annex A11 for the addresses in private data).
//!
//! Each message is a table of fields: name, first bit, width, how it is shown.

use std::net::Ipv6Addr;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmValue<'a> {
    /// A plain number.
    Number(u32),
    /// 64 bits.
    Long(u64),
    /// A key or an identifier of 32 bits.
    Key(u32),
    /// A partition key.
    PartitionKey(u16),
    /// A GID, or an address of the IP connection manager.
    Address(Ipv6Addr),
    /// Words for the number in the field of the same name without `_text`.
    Text(&'static str),
    /// Bytes that the message does not explain.
    Bytes(&'a [u8]),
}

/// How a field is shown.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Number,
    Long,
    Key,
    PartitionKey,
    Address,
    /// The code and its words.
    Coded(fn(u32) -> &'static str),
    /// Private data that begins with addresses if the service is one of the IP connection manager.
    PrivateWithAddress,
    Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    bit: usize,
    width: usize,
    shape: Shape,
}

const fn bits(name: &'static str, byte: usize, bit: usize, width: usize) -> Field {
    Field { name, bit: byte * 8 + bit, width, shape: Shape::Number }
}

const fn shaped(name: &'static str, byte: usize, width: usize, shape: Shape) -> Field {
    Field { name, bit: byte * 8, width, shape }
}

const fn id(name: &'static str, byte: usize) -> Field {
    shaped(name, byte, 32, Shape::Key)
}

const fn coded(
    name: &'static str,
    (byte, bit, width): (usize, usize, usize),
    words: fn(u32) -> &'static str,
) -> Field {
    Field { name, bit: byte * 8 + bit, width, shape: Shape::Coded(words) }
}

const fn private(byte: usize, length: usize) -> Field {
    shaped("private_data", byte, length * 8, Shape::Bytes)
}

const LOCAL: Field = id("local_comm_id", 0);
const REMOTE: Field = id("remote_comm_id", 4);

static REQ: &[Field] = &[
    LOCAL,
    shaped("service_id", 8, 64, Shape::Long),
    shaped("local_ca_guid", 16, 64, Shape::Long),
    id("local_qkey", 28),
    bits("local_qpn", 32, 0, 24),
    bits("responder_resources", 35, 0, 8),
    bits("local_eecn", 36, 0, 24),
    bits("initiator_depth", 39, 0, 8),
    bits("remote_eecn", 40, 0, 24),
    bits("remote_cm_response_timeout", 43, 0, 5),
    coded("transport_service", (43, 5, 2), transport_service),
    bits("end_to_end_flow_control", 43, 7, 1),
    bits("starting_psn", 44, 0, 24),
    bits("local_cm_response_timeout", 47, 0, 5),
    bits("retry_count", 47, 5, 3),
    shaped("pkey", 48, 16, Shape::PartitionKey),
    coded("path_mtu", (50, 0, 4), path_mtu),
    bits("rdc_exists", 50, 4, 1),
    bits("rnr_retry_count", 50, 5, 3),
    bits("max_cm_retries", 51, 0, 4),
    bits("srq", 51, 4, 1),
    bits("extended_transport", 51, 5, 3),
    bits("primary_local_lid", 52, 0, 16),
    bits("primary_remote_lid", 54, 0, 16),
    shaped("primary_local_gid", 56, 128, Shape::Address),
    shaped("primary_remote_gid", 72, 128, Shape::Address),
    bits("primary_flow_label", 88, 0, 20),
    bits("primary_packet_rate", 91, 2, 6),
    bits("primary_traffic_class", 92, 0, 8),
    bits("primary_hop_limit", 93, 0, 8),
    bits("primary_sl", 94, 0, 4),
    bits("primary_subnet_local", 94, 4, 1),
    bits("primary_local_ack_timeout", 95, 0, 5),
    bits("alternate_local_lid", 96, 0, 16),
    bits("alternate_remote_lid", 98, 0, 16),
    shaped("alternate_local_gid", 100, 128, Shape::Address),
    shaped("alternate_remote_gid", 116, 128, Shape::Address),
    bits("alternate_flow_label", 132, 0, 20),
    bits("alternate_packet_rate", 135, 2, 6),
    bits("alternate_traffic_class", 136, 0, 8),
    bits("alternate_hop_limit", 137, 0, 8),
    bits("alternate_sl", 138, 0, 4),
    bits("alternate_subnet_local", 138, 4, 1),
    bits("alternate_local_ack_timeout", 139, 0, 5),
    bits("sap_supported", 139, 5, 1),
    shaped("private_data", 140, 92 * 8, Shape::PrivateWithAddress),
];

static MRA: &[Field] = &[
    LOCAL,
    REMOTE,
    coded("message_received", (8, 0, 2), message_received),
    bits("service_timeout", 9, 0, 5),
    private(10, 222),
];

static REJ: &[Field] = &[
    LOCAL,
    REMOTE,
    coded("message_rejected", (8, 0, 2), message_rejected),
    bits("reject_info_length", 9, 0, 7),
    coded("reason", (10, 0, 16), reject_reason),
    shaped("additional_info", 12, 72 * 8, Shape::Bytes),
    private(84, 148),
];

static REP: &[Field] = &[
    LOCAL,
    REMOTE,
    id("local_qkey", 8),
    bits("local_qpn", 12, 0, 24),
    bits("local_eecn", 16, 0, 24),
    bits("starting_psn", 20, 0, 24),
    bits("responder_resources", 24, 0, 8),
    bits("initiator_depth", 25, 0, 8),
    bits("target_ack_delay", 26, 0, 5),
    coded("failover_accepted", (26, 5, 2), failover),
    bits("end_to_end_flow_control", 26, 7, 1),
    bits("rnr_retry_count", 27, 0, 3),
    bits("srq", 27, 3, 1),
    shaped("local_ca_guid", 28, 64, Shape::Long),
    private(36, 196),
];

static RTU: &[Field] = &[LOCAL, REMOTE, private(8, 224)];
static DREQ: &[Field] = &[LOCAL, REMOTE, bits("remote_qpn", 8, 0, 24), private(12, 220)];
static DREP: &[Field] = &[LOCAL, REMOTE, private(8, 224)];

static SIDR_REQ: &[Field] = &[
    id("request_id", 0),
    shaped("pkey", 4, 16, Shape::PartitionKey),
    shaped("service_id", 8, 64, Shape::Long),
    shaped("private_data", 16, 216 * 8, Shape::PrivateWithAddress),
];

static SIDR_REP: &[Field] = &[
    id("request_id", 0),
    coded("sidr_status", (4, 0, 8), sidr_status),
    bits("additional_info_length", 5, 0, 8),
    bits("qpn", 8, 0, 24),
    shaped("service_id", 12, 64, Shape::Long),
    id("qkey", 20),
    shaped("additional_info", 24, 72 * 8, Shape::Bytes),
    private(96, 136),
];

static LAP: &[Field] = &[
    LOCAL,
    REMOTE,
    bits("remote_qpn", 12, 0, 24),
    bits("remote_cm_response_timeout", 15, 0, 5),
    bits("alternate_local_lid", 20, 0, 16),
    bits("alternate_remote_lid", 22, 0, 16),
    shaped("alternate_local_gid", 24, 128, Shape::Address),
    shaped("alternate_remote_gid", 40, 128, Shape::Address),
    bits("alternate_flow_label", 56, 0, 20),
    bits("alternate_traffic_class", 59, 0, 8),
    bits("alternate_hop_limit", 60, 0, 8),
    bits("alternate_packet_rate", 61, 2, 6),
    bits("alternate_sl", 62, 0, 4),
    bits("alternate_subnet_local", 62, 4, 1),
    bits("alternate_local_ack_timeout", 63, 0, 5),
    private(64, 168),
];

static APR: &[Field] = &[
    LOCAL,
    REMOTE,
    bits("additional_info_length", 8, 0, 8),
    coded("ap_status", (9, 0, 8), path_status),
    shaped("additional_info", 12, 72 * 8, Shape::Bytes),
    private(84, 148),
];

static ALL: &[(u16, &str, &[Field])] = &[
    (0x10, "REQ", REQ),
    (0x11, "MRA", MRA),
    (0x12, "REJ", REJ),
    (0x13, "REP", REP),
    (0x14, "RTU", RTU),
    (0x15, "DREQ", DREQ),
    (0x16, "DREP", DREP),
    (0x17, "SIDR_REQ", SIDR_REQ),
    (0x18, "SIDR_REP", SIDR_REP),
    (0x19, "LAP", LAP),
    (0x1a, "APR", APR),
];

/// A message of the connection manager.
#[derive(Clone, Copy, Debug)]
pub struct CmMessage<'a> {
    /// `REQ`, `REP`, `SIDR_REQ`, ….
    pub name: &'static str,
    fields: &'static [Field],
    data: &'a [u8],
}

impl<'a> CmMessage<'a> {
    pub(super) fn of(attribute: u16, data: &'a [u8]) -> Option<Self> {
        let (_, name, fields) = ALL.iter().find(|(known, ..)| *known == attribute)?;
        Some(Self { name, fields, data })
    }

    /// Gives each field, as far as the message was captured, to `take`, in the order of the wire.
    ///
    /// # Errors
    /// The first that `take` returns.
    pub fn each<E>(
        &self,
        mut take: impl FnMut(&'static str, CmValue<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        for field in self.fields {
            self.field(field, &mut take)?;
        }
        Ok(())
    }

    /// The value of a field, by name.
    pub fn get(&self, name: &str) -> Option<CmValue<'a>> {
        let mut found = None;
        let look = |field: &'static str, value| {
            if field == name {
                found = Some(value);
                return Err(());
            }
            Ok(())
        };
        let _ = self.each(look);
        found
    }

    fn field<E>(
        &self,
        field: &Field,
        take: &mut impl FnMut(&'static str, CmValue<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = (field.bit + field.width).div_ceil(8);
        let Some(bytes) = self.data.get(field.bit / 8..end) else { return Ok(()) };
        let number = || number(bytes, field.bit % 8, field.width);
        match field.shape {
            Shape::Number => take(field.name, CmValue::Number(number() as u32)),
            Shape::Long => take(field.name, CmValue::Long(number())),
            Shape::Key => take(field.name, CmValue::Key(number() as u32)),
            Shape::PartitionKey => take(field.name, CmValue::PartitionKey(number() as u16)),
            Shape::Address => {
                let Some(octets) = bytes.first_chunk::<16>() else { return Ok(()) };
                take(field.name, CmValue::Address((*octets).into()))
            }
            Shape::Coded(words) => {
                let code = number() as u32;
                take(field.name, CmValue::Number(code))?;
                take(text_name(field.name), CmValue::Text(words(code)))
            }
            Shape::Bytes => take(field.name, CmValue::Bytes(bytes)),
            Shape::PrivateWithAddress => self.private(bytes, take),
        }
    }

    /// Private data of REQ and SIDR_REQ: 36 bytes of the IP connection manager if the service
    /// identifier is one of its.
    fn private<E>(
        &self,
        bytes: &'a [u8],
        take: &mut impl FnMut(&'static str, CmValue<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let service = self.get_service();
        // Another version of IP than these two: no such header, whatever the service says.
        let header = bytes
            .split_first_chunk::<36>()
            .filter(|(header, _)| is_ip_service(service) && matches!(header[1] >> 4, 4 | 6));
        let Some((header, rest)) = header else {
            return take("private_data", CmValue::Bytes(bytes));
        };
        let port = u16::from_be_bytes([header[2], header[3]]);
        take("ip_cm_version", CmValue::Number(header[0].into()))?;
        take("ip_version", CmValue::Number((header[1] >> 4).into()))?;
        take("ip_source_port", CmValue::Number(port.into()))?;
        // The service's low 16 bits are the port that the passive side listens on.
        take("ip_destination_port", CmValue::Number(service as u32 & 0xffff))?;
        let is_ipv4 = header[1] >> 4 == 4;
        take("ip_source", ip_address(header, 4, is_ipv4))?;
        take("ip_destination", ip_address(header, 20, is_ipv4))?;
        take("private_data", CmValue::Bytes(rest))
    }

    fn get_service(&self) -> u64 {
        let field = self.fields.iter().find(|field| field.name == "service_id");
        let bytes = field.and_then(|field| self.data.get(field.bit / 8..)?.first_chunk());
        bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }
}

/// The prefix of the IP connection manager and the port spaces UDP, TCP and IB (annex A11).
fn is_ip_service(service: u64) -> bool {
    matches!(service >> 16, 0x0106 | 0x0111 | 0x013f)
}

/// An address in 16 bytes; IPv4 in the last four.
fn ip_address<'a>(header: &[u8; 36], at: usize, is_ipv4: bool) -> CmValue<'a> {
    let mut octets: [u8; 16] = std::array::from_fn(|index| header[at + index]);
    if is_ipv4 {
        octets[..12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    }
    CmValue::Address(octets.into())
}

/// `width` bits of a big-endian number, from bit `skip` of the first byte.
fn number(bytes: &[u8], skip: usize, width: usize) -> u64 {
    let whole = bytes.iter().fold(0u128, |number, byte| number << 8 | u128::from(*byte));
    let below = bytes.len() * 8 - skip - width;
    (whole >> below) as u64 & (u64::MAX >> (64 - width.min(64)))
}

/// The name under which a code's words are given.
fn text_name(name: &'static str) -> &'static str {
    match name {
        "transport_service" => "transport_service_text",
        "path_mtu" => "path_mtu_text",
        "message_received" => "message_received_text",
        "message_rejected" => "message_rejected_text",
        "reason" => "reason_text",
        "failover_accepted" => "failover_accepted_text",
        "sidr_status" => "sidr_status_text",
        "ap_status" => "ap_status_text",
        other => other,
    }
}

/// All names that a message's fields can have, each once, for the list of fields.
pub(super) fn all_names() -> Vec<(&'static str, &'static str)> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    let mut add = |name: &'static str, kind: &'static str| {
        if !names.iter().any(|(known, _)| *known == name) {
            names.push((name, kind));
        }
    };
    for field in ALL.iter().flat_map(|(.., fields)| *fields) {
        let kind = match field.shape {
            Shape::Number | Shape::Coded(_) => "number",
            _ => "string",
        };
        if matches!(field.shape, Shape::PrivateWithAddress) {
            for name in ["ip_cm_version", "ip_version", "ip_source_port", "ip_destination_port"] {
                add(name, "number");
            }
            add("ip_source", "string");
            add("ip_destination", "string");
        }
        add(field.name, kind);
        if matches!(field.shape, Shape::Coded(_)) {
            add(text_name(field.name), "string");
        }
    }
    names
}

fn transport_service(code: u32) -> &'static str {
    match code {
        0 => "RC",
        1 => "UC",
        2 => "RD",
        _ => "extended",
    }
}

fn path_mtu(code: u32) -> &'static str {
    match code {
        1 => "256",
        2 => "512",
        3 => "1024",
        4 => "2048",
        5 => "4096",
        _ => "reserved",
    }
}

/// What an MRA answers.
fn message_received(code: u32) -> &'static str {
    match code {
        2 => "LAP",
        other => message_rejected(other),
    }
}

fn message_rejected(code: u32) -> &'static str {
    match code {
        0 => "REQ",
        1 => "REP",
        2 => "other message",
        _ => "reserved",
    }
}

fn failover(code: u32) -> &'static str {
    match code {
        0 => "accepted",
        1 => "not supported",
        2 => "alternate path rejected",
        _ => "reserved",
    }
}

fn reject_reason(code: u32) -> &'static str {
    match code {
        1 => "no queue pair available",
        2 => "no end-to-end context available",
        3 => "no resources available",
        4 => "time-out",
        5 => "unsupported request",
        6 => "invalid communication ID",
        7 => "invalid communication instance",
        8 => "invalid service ID: nobody listens there",
        9 => "invalid transport service type",
        10 => "stale connection",
        11 => "RDC does not exist",
        12 => "primary remote port GID rejected",
        13 => "primary remote port LID rejected",
        14 => "invalid primary service level",
        15 => "invalid primary traffic class",
        16 => "invalid primary hop limit",
        17 => "invalid primary packet rate",
        18 => "alternate remote port GID rejected",
        19 => "alternate remote port LID rejected",
        20 => "invalid alternate service level",
        21 => "invalid alternate traffic class",
        22 => "invalid alternate hop limit",
        23 => "invalid alternate packet rate",
        24 => "port and connection manager redirection",
        25 => "port redirection",
        26 => "invalid path MTU",
        27 => "insufficient responder resources",
        28 => "rejected by the application",
        29 => "RNR retry count rejected",
        30 => "duplicate local communication ID",
        31 => "invalid class version",
        32 => "invalid primary flow label",
        33 => "invalid alternate flow label",
        35 => "vendor option not supported",
        _ => "reserved reason",
    }
}

fn sidr_status(code: u32) -> &'static str {
    match code {
        0 => "queue pair number and Q_Key are valid",
        1 => "service ID not supported",
        2 => "rejected by the service provider",
        3 => "no queue pair available",
        4 => "redirected",
        5 => "class version not supported",
        _ => "reserved status",
    }
}

fn path_status(code: u32) -> &'static str {
    match code {
        0 => "alternate path loaded",
        1 => "invalid communication instance",
        2 => "alternate paths not supported",
        3 => "alternate path rejected",
        4 => "redirected",
        5 => "proposed alternate path is the current one",
        6 => "queue pair number or end-to-end context does not match",
        7 => "alternate remote port LID rejected",
        8 => "alternate remote port GID rejected",
        9 => "alternate flow label rejected",
        10 => "alternate traffic class rejected",
        11 => "alternate hop limit rejected",
        12 => "alternate packet rate rejected",
        13 => "alternate service level rejected",
        _ => "reserved status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_one_after_another_and_within_the_message() {
        for (_, name, fields) in ALL {
            for pair in fields.windows(2) {
                assert!(pair[0].bit + pair[0].width <= pair[1].bit, "{name}: {}", pair[1].name);
            }
            let last = fields.last().unwrap();
            assert_eq!(last.bit + last.width, 232 * 8, "{name} ends with private data");
        }
    }

    #[test]
    fn numbers_are_cut_out_at_any_bit() {
        assert_eq!(number(&[0b1010_0110], 0, 3), 0b101);
        assert_eq!(number(&[0b1010_0110], 5, 2), 0b11);
        assert_eq!(number(&[0x12, 0x34, 0x56], 0, 20), 0x1_2345);
        assert_eq!(number(&[0xff; 8], 0, 64), u64::MAX);
    }

    #[test]
    fn no_cut_message_panics() {
        for (attribute, ..) in ALL {
            for length in 0..=232 {
                let data = vec![0x5a; length];
                let message = CmMessage::of(*attribute, &data).unwrap();
                let mut given = 0;
                message
                    .each(|_, _| {
                        given += 1;
                        Ok::<(), ()>(())
                    })
                    .unwrap();
                assert!(length < 232 || given >= message.fields.len());
            }
        }
    }
}
