//! The fields of the JSON form, as data: the source of `docs/dump-json.md`. A test writes the page
//! from here, and another one finds every field of every sample in the list.

use super::{Issue, cm};

/// A field of an object, by its path: `aeth.credits`, `vlan[].id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Path from the object.
    pub path: &'static str,
    /// JSON type.
    pub kind: &'static str,
    /// When it is there, or `always`.
    pub when: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

const fn field(
    path: &'static str,
    kind: &'static str,
    when: &'static str,
    meaning: &'static str,
) -> Field {
    Field { path, kind, when, meaning }
}

/// The fields of every frame.
pub const FRAME: &[Field] = &[
    field(
        "file",
        "string",
        "several files are read",
        "the file's name as given, `-` for standard input",
    ),
    field("frame", "number", "always", "number of the frame in the file, from 1"),
    field(
        "segment",
        "number",
        "several packets in a frame",
        "which of the packets that segmentation offload has left in one frame, from 0",
    ),
    field(
        "interface",
        "number",
        "pcapng",
        "number of the interface, from 0, counted over all sections of the file",
    ),
    field(
        "time",
        "string or null",
        "always",
        "seconds since 1970 with all digits that the file has; null where it has no time (pcapng's simple packets)",
    ),
    field("length", "number", "always", "bytes of the frame on the wire"),
    field("captured", "number", "always", "bytes of it in the file"),
    field(
        "kind",
        "string",
        "always",
        "`rocev2`, `rocev1`, `infiniband`, `pfc`, `pause`, `iwarp`, `other`",
    ),
    field("issues", "list of strings", "always", "what is wrong or cannot be judged, see below"),
    field(
        "eth",
        "object",
        "an Ethernet header",
        "of the innermost packet; of a tunnel that carries IP without Ethernet, the outer one",
    ),
    field("eth.src", "string", "always", "`aa:bb:cc:dd:ee:ff`"),
    field("eth.dst", "string", "always", ""),
    field("vlan", "list of objects", "VLAN tags", "outermost first, of the same Ethernet header"),
    field("vlan[].id", "number", "always", "0 is a priority tag"),
    field("vlan[].pcp", "number", "always", "priority code point"),
    field("vlan[].dei", "boolean", "always", "drop eligible indicator"),
    field(
        "tunnel",
        "list of strings",
        "a tunnel",
        "`vxlan`, `geneve`, `gre`, `erspan`, `mpls`, `ipip`, outermost first",
    ),
    field(
        "outer",
        "list of objects",
        "a tunnel",
        "the headers outside of each tunnel, in the same order",
    ),
    field("outer[].tunnel", "string", "always", "as in `tunnel`"),
    field("outer[].vni", "number", "vxlan, geneve", "network identifier"),
    field("outer[].key", "string", "gre with a key", "`0x` and 8 digits"),
    field("outer[].version", "number", "erspan", "1 to 3"),
    field("outer[].session", "number", "erspan", ""),
    field("outer[].labels", "list of numbers", "mpls", "outermost first, at most four"),
    field("outer[].eth", "object", "its own Ethernet header", "as `eth`; with `outer[].vlan`"),
    field("outer[].eth.src", "string", "always", ""),
    field("outer[].eth.dst", "string", "always", ""),
    field("outer[].vlan", "list of objects", "VLAN tags", "as `vlan`"),
    field("outer[].vlan[].id", "number", "always", ""),
    field("outer[].vlan[].pcp", "number", "always", ""),
    field("outer[].vlan[].dei", "boolean", "always", ""),
    field("outer[].src", "string", "an IP header", "sender's address"),
    field("outer[].dst", "string", "an IP header", "receiver's address"),
    field("outer[].ttl", "number", "an IP header", "TTL or hop limit"),
    field("outer[].tos", "number", "an IP header", "TOS or traffic class"),
    field("outer[].src_port", "number", "vxlan, geneve", ""),
    field("outer[].dst_port", "number", "vxlan, geneve", ""),
    field("lrh", "object", "native InfiniBand", "local route header"),
    field("lrh.slid", "number", "always", "sender's local identifier"),
    field("lrh.dlid", "number", "always", "receiver's local identifier"),
    field("lrh.sl", "number", "always", "service level"),
    field("lrh.vl", "number", "always", "virtual lane"),
    field("grh", "object", "RoCEv1, routed InfiniBand", "global route header"),
    field("grh.sgid", "string", "always", "sender's GID, as an IPv6 address"),
    field("grh.dgid", "string", "always", "receiver's GID"),
    field("grh.hop_limit", "number", "always", ""),
    field("grh.traffic_class", "number", "always", ""),
    field("grh.flow_label", "number", "always", ""),
    field(
        "vcrc",
        "string",
        "native InfiniBand with its VCRC",
        "variant CRC, 4 hex digits in wire order; if wrong, the issue `bad_vcrc`",
    ),
    field("pfc", "object", "kind `pfc`", ""),
    field("pfc.classes", "list of numbers", "always", "classes whose timers count"),
    field("pfc.quanta", "list of numbers", "always", "eight timers, in quanta of 512 bit times"),
    field("pause", "object", "kind `pause`", ""),
    field("pause.quanta", "number", "always", "for how long"),
    field("mpa", "object", "kind `iwarp`", "what iWARP was recognised by"),
    field("mpa.frame", "string", "always", "`request`, `reply`, `fpdu`"),
    field("mpa.crc", "boolean", "request, reply", "the sender asks for CRCs"),
    field("mpa.markers", "boolean", "request, reply", "the sender asks for markers"),
    field("mpa.rejected", "boolean", "reply", "the connection is refused"),
    field("mpa.whole", "number", "fpdu", "FPDUs that are whole in this segment"),
    field("mpa.crc_ok", "number", "fpdu", "those of them with a right CRC-32C"),
];

/// The further fields of RDMA packets.
pub const PACKET: &[Field] = &[
    field(
        "src",
        "string",
        "an IP header or a GRH",
        "sender's IP address; of a GRH its GID, or the IPv4 address that it stands for",
    ),
    field("dst", "string", "an IP header or a GRH", "receiver's address"),
    field("src_port", "number", "RoCEv2", ""),
    field("dst_port", "number", "RoCEv2", ""),
    field("ttl", "number", "RoCEv2", "TTL or hop limit"),
    field("tos", "number", "RoCEv2", "whole byte: TOS or traffic class"),
    field("ecn", "string", "RoCEv2", "its last two bits: `not-ect`, `ect0`, `ect1`, `ce`"),
    field(
        "ip_id",
        "number",
        "IPv4",
        "identification; of a segment the one that it has on the wire",
    ),
    field("df", "boolean", "IPv4", "don't fragment"),
    field("flow_label", "number", "IPv6", ""),
    field(
        "udp_checksum",
        "number",
        "RoCEv2",
        "as it stands; 0 means none. It is not judged: hardware fills it in late or never",
    ),
    field(
        "opcode",
        "string",
        "a BTH",
        "such as `RC_SEND_ONLY`, `CNP`; `UNKNOWN` for what no transport defines",
    ),
    field("opcode_value", "number", "a BTH", "the byte"),
    field("solicited", "boolean", "a BTH", "solicited event"),
    field("migreq", "boolean", "a BTH", ""),
    field("pad", "number", "a BTH", "pad count"),
    field("tver", "number", "a BTH", "transport version"),
    field("pkey", "string", "a BTH", "`0x` and 4 digits"),
    field("fecn", "boolean", "a BTH", ""),
    field("becn", "boolean", "a BTH", ""),
    field("reserved", "number", "a BTH", "the six reserved bits after BECN, which mean nothing"),
    field("dest_qp", "number", "a BTH", ""),
    field("ack_req", "boolean", "a BTH", ""),
    field("psn", "number", "a BTH", ""),
    field("rdeth", "object", "RD", ""),
    field("rdeth.eecn", "number", "always", "end-to-end context"),
    field("deth", "object", "UD, RD requests", ""),
    field("deth.qkey", "string", "always", "`0x` and 8 digits"),
    field("deth.src_qp", "number", "always", ""),
    field("xrceth", "object", "XRC requests", ""),
    field("xrceth.srqn", "number", "always", "shared receive queue"),
    field("feth", "object", "FLUSH", ""),
    field("feth.placement", "number", "always", "1 visibility, 2 persistence, 3 both"),
    field("feth.selectivity", "number", "always", "0 range, 1 whole region"),
    field("reth", "object", "WRITE first and only, READ request, FLUSH, ATOMIC WRITE", ""),
    field("reth.va", "string", "always", "virtual address, `0x` and 16 digits"),
    field("reth.rkey", "string", "always", "`0x` and 8 digits"),
    field("reth.length", "number", "always", "DMA length"),
    field("aeth", "object", "acknowledgements, READ responses but middle ones", ""),
    field("aeth.syndrome", "number", "always", "the byte"),
    field(
        "aeth.kind",
        "string",
        "always",
        "`ack`, `rnr_nak`, `nak`, `reserved`; the syndrome's reserved top bit is ignored",
    ),
    field("aeth.code", "number", "always", "low five bits"),
    field(
        "aeth.credits",
        "number or string",
        "kind `ack`",
        "messages beyond the MSN, or `unlimited`",
    ),
    field("aeth.timer_ms", "number", "kind `rnr_nak`", "milliseconds to wait"),
    field(
        "aeth.nak",
        "string",
        "kind `nak`",
        "`psn_sequence_error`, `invalid_request`, `remote_access_error`, `remote_operational_error`, `invalid_rd_request`, `reserved`",
    ),
    field("aeth.msn", "number", "always", ""),
    field("atomic_eth", "object", "COMPARE_SWAP, FETCH_ADD", ""),
    field("atomic_eth.va", "string", "always", "`0x` and 16 digits"),
    field("atomic_eth.rkey", "string", "always", "`0x` and 8 digits"),
    field(
        "atomic_eth.swap_add",
        "string",
        "always",
        "value to store or to add, `0x` and 16 digits",
    ),
    field("atomic_eth.compare", "string", "always", "`0x` and 16 digits"),
    field("atomic_ack_eth", "object", "ATOMIC_ACKNOWLEDGE", ""),
    field("atomic_ack_eth.original", "string", "always", "the value before, `0x` and 16 digits"),
    field("immediate", "string", "opcodes with immediate", "`0x` and 8 digits in wire order"),
    field("ieth", "object", "opcodes with invalidate", ""),
    field("ieth.rkey", "string", "always", "key to invalidate, `0x` and 8 digits"),
    field("mad", "object", "datagrams to queue pairs 0 and 1", "management datagram"),
    field("mad.class", "number", "always", "7 is connection management"),
    field("mad.method", "number", "always", ""),
    field("mad.attribute", "number", "always", ""),
    field("mad.tid", "string", "always", "transaction, `0x` and 16 digits"),
    field("mad.status", "number", "always", ""),
    field(
        "mad.message",
        "string",
        "connection management",
        "`REQ`, `MRA`, `REJ`, `REP`, `RTU`, `DREQ`, `DREP`, `SIDR_REQ`, `SIDR_REP`, `LAP`, `APR`; its fields follow, see below",
    ),
    field("payload_length", "number", "the headers tell it", "bytes without pad"),
    field(
        "icrc",
        "string",
        "always",
        "`ok`, `bad`, `unchecked` (a cut frame, a fragment, no ICRC, segments that could not be split, a merged packet whose own `ip_id` the frame does not show)",
    ),
    field("icrc_wire", "string", "captured", "8 hex digits in wire order"),
    field(
        "icrc_computed",
        "string",
        "everything it covers was captured",
        "8 hex digits in wire order",
    ),
];

/// The fields of a summary.
pub const SUMMARY: &[Field] = &[
    field("file", "string", "always", "`-` for standard input; the interface of `--follow`"),
    field("frames", "number", "always", "frames of any kind"),
    field(
        "rdma_frames",
        "number",
        "always",
        "RDMA packets of kinds `rocev2`, `rocev1`, `infiniband`; segments count one by one",
    ),
    field("opcodes", "object", "always", "how many packets of each opcode, by name"),
    field("icrc", "object", "always", "verdicts on RDMA packets"),
    field("icrc.ok", "number", "always", ""),
    field("icrc.bad", "number", "always", ""),
    field("icrc.unchecked", "number", "always", ""),
    field(
        "issues",
        "object",
        "always",
        "how many frames or packets have each issue, by identifier",
    ),
];

/// The page `docs/dump-json.md`.
pub fn page() -> String {
    let mut page = String::from(HEAD);
    page.push_str("\n## Every frame\n\n");
    table(&mut page, FRAME);
    page.push_str(
        "\n## RDMA packets\n\nKinds `rocev2`, `rocev1` and `infiniband` have these too.\n\n",
    );
    table(&mut page, PACKET);
    page.push_str(CONNECTION);
    for (name, kind) in cm::all_names() {
        page.push_str(&format!("| `mad.{name}` | {kind} |\n"));
    }
    page.push_str("\n## Issues\n\n");
    page.push_str(ISSUES);
    for issue in Issue::ALL {
        page.push_str(&format!("| `{}` | {} |\n", issue.identifier(), issue.text()));
    }
    page.push_str("\n## Summary\n\n`uroce dump --summary --json` gives one object a file.\n\n");
    table(&mut page, SUMMARY);
    page
}

/// The names of the fields of connection management, as paths.
pub fn connection_paths() -> impl Iterator<Item = String> {
    cm::all_names().into_iter().map(|(name, _)| format!("mad.{name}"))
}

const HEAD: &str = "\
# The JSON of `uroce dump`

`uroce dump --json` writes one object a packet, one a line; a frame without RDMA is one object too.
Fields are added, never renamed or removed. Numbers are decimal; 64-bit values, keys, immediates and
MAC addresses are strings. A field that a frame does not have is absent. Within an object that is
there, `always` means always in that object.

This page is written by `src/dissect/fields.rs`; a test compares the two.
";

const CONNECTION: &str = "
## Connection management

The fields of each message in the order of the wire, as far as captured. `..._text` puts the number
before it into words. `private_data` is hexadecimal, whole: its length is not on the wire. If the
service is one of the IP connection manager (annex A11), the addresses at its start are fields of
their own and are not repeated in it.

| field | type |
| --- | --- |
";

const ISSUES: &str = "\
`truncated`, `fragment`, `unsupported_link_type` and `too_deep` say that a frame could not be read
or judged whole; all others say that it is wrong, and `--check` counts it. Reserved bits are never
an issue. A wrong ICRC is told by `icrc`, not by an issue.

| identifier | meaning |
| --- | --- |
";

fn table(page: &mut String, fields: &[Field]) {
    page.push_str("| field | type | when | meaning |\n| --- | --- | --- | --- |\n");
    for Field { path, kind, when, meaning } in fields {
        page.push_str(&format!("| `{path}` | {kind} | {when} | {meaning} |\n"));
    }
}
