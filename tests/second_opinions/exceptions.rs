//! Where tshark 4.0 and scapy differ from us, in how many frames, and who is right.

/// A difference that is understood.
pub struct Exception {
    pub file: &'static str,
    /// Fields with the number of frames in which they differ.
    pub fields: &'static [(&'static str, usize)],
    /// `we`, or `both` where the two only show different things.
    pub right: &'static str,
    pub why: &'static str,
}

const ICRC: &str = "infiniband.invariant.crc";
const DMA_LENGTH: &str = "infiniband.reth.dmalen";

/// All fields of a BTH in one frame, or in two.
macro_rules! bth {
    ($count:literal $(, $more:expr)*) => {
        &[
            ("infiniband.bth.opcode", $count),
            ("infiniband.bth.se", $count),
            ("infiniband.bth.m", $count),
            ("infiniband.bth.padcnt", $count),
            ("infiniband.bth.tver", $count),
            ("infiniband.bth.p_key", $count),
            ("infiniband.bth.destqp", $count),
            ("infiniband.bth.a", $count),
            ("infiniband.bth.psn", $count)
            $(, $more)*
        ]
    };
}

/// Every difference from tshark 4.0.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        file: "rxe",
        fields: &[
            (DMA_LENGTH, 1),
            (ICRC, 8),
            ("infiniband.cm.req.prim_flowlabel", 5),
            ("infiniband.cm.req.prim_pktrate", 5),
        ],
        right: "we",
        why: "ATOMIC WRITE (1 frame) is not known to tshark; SENDs of 0 to 3 bytes (7 frames) have \
              an ICRC that it does not show: it wants 4 bytes of payload. It takes the flow label \
              of a path for 12 bits, of 20, and the rate from the byte before its own",
    },
    Exception {
        file: "opcodes",
        fields: &[
            (DMA_LENGTH, 11),
            ("infiniband.aeth.syndrome", 10),
            ("infiniband.aeth.msn", 10),
            ("infiniband.atomicacketh.origremdt", 2),
            ("infiniband.atomiceth.swapdt", 4),
            ("infiniband.atomiceth.cmpdt", 4),
            ("infiniband.deth.q_key", 17),
            ("infiniband.deth.srcqp", 17),
            ("infiniband.rdeth.eecnxt", 23),
            ("infiniband.ieth", 2),
            ("infiniband.immdt", 8),
            (ICRC, 42),
        ],
        right: "we",
        why: "tshark reads the headers behind an RDETH (23 opcodes of RD) from wrong places, knows \
              none of XRC's 23, nor FLUSH (2) and ATOMIC WRITE; it shows no ICRC for those of them \
              without payload, CNP, and the nine opcodes that no transport defines",
    },
    Exception {
        file: "offload",
        fields: &[(ICRC, 1)],
        right: "we",
        why: "several packets merged into one datagram, which nothing proves the borders of: tshark \
              takes it for one, and the last packet's ICRC for that of all",
    },
    Exception {
        file: "contradictions",
        fields: &[(DMA_LENGTH, 4), (ICRC, 6)],
        right: "we",
        why: "ATOMIC WRITE (2 frames) and FLUSH (2); an acknowledgement with payload and an empty \
              last packet, behind which it finds no ICRC",
    },
    Exception {
        file: "connection-manager",
        fields: &[
            ("infiniband.cm.req.ip_cm.sport", 1),
            ("infiniband.cm.req.prim_flowlabel", 3),
            ("infiniband.cm.req.prim_pktrate", 3),
            ("infiniband.cm.req.alt_flowlabel", 3),
            ("infiniband.cm.req.alt_pktrate", 3),
        ],
        right: "we",
        why: "flow labels and rates as in the captures of rxe; addresses of IP version 7 are none",
    },
    Exception {
        file: "ports",
        fields: bth!(2, (ICRC, 2)),
        right: "we",
        why: "source ports 69 and 53 make the datagram TFTP or DNS for it; only the destination \
              port identifies RoCEv2 (a NIC of 2019 sends from 69 and 72)",
    },
    Exception {
        file: "management",
        fields: &[
            (ICRC, 2),
            ("infiniband.mad.mgmtclass", 1),
            ("infiniband.mad.method", 1),
            ("infiniband.mad.attributeid", 1),
            ("infiniband.mad.transactionid", 1),
            ("infiniband.mad.status", 1),
        ],
        right: "we",
        why: "it does not come to the ICRC of a performance datagram and of 64 bytes to queue pair \
              1, and takes a datagram of base version 0x80 for one of version 1",
    },
    Exception {
        file: "trailers",
        fields: &[(ICRC, 1)],
        right: "we",
        why: "RoCEv1: it looks for the ICRC at the end of the frame and not where the GRH's payload \
              length puts it",
    },
    Exception {
        file: "lengths",
        fields: bth!(1, ("udp.checksum", 1), (ICRC, 4)),
        right: "both",
        why: "a UDP length of 3 ends tshark's decode of frame 3, where we show the BTH with an \
              issue; a UDP length beyond the IP packet (frame 2) makes the ICRC unknown to us, not \
              the last four bytes; of the frames with bad lengths it shows no ICRC",
    },
    Exception {
        file: "fragments",
        fields: bth!(
            2,
            (DMA_LENGTH, 2),
            ("udp.srcport", 1),
            ("udp.dstport", 1),
            ("udp.checksum", 1),
            (ICRC, 1)
        ),
        right: "both",
        why: "tshark puts the datagram together and shows it with its last fragment; we show each \
              frame by itself, the headers with the first, and judge no ICRC",
    },
    Exception {
        file: "ipv6-extensions",
        fields: bth!(1, ("udp.srcport", 1), ("udp.dstport", 1), ("udp.checksum", 1)),
        right: "both",
        why: "the first fragment of a datagram, as above",
    },
    Exception {
        file: "tunnels",
        fields: bth!(
            3,
            ("ip.src", 2),
            ("ip.dst", 2),
            ("ip.ttl", 2),
            ("ip.dsfield", 2),
            ("ip.id", 2),
            ("ip.flags.df", 2),
            ("ipv6.src", 1),
            ("ipv6.dst", 1),
            ("ipv6.hlim", 1),
            ("ipv6.tclass", 1),
            ("ipv6.flow", 1),
            ("udp.srcport", 3),
            ("udp.dstport", 3),
            ("udp.checksum", 3),
            (ICRC, 3)
        ),
        right: "we",
        why: "Ethernet over MPLS, with and without control word: its heuristic looks at the \
              addresses only and takes the one for the other; the ethertype decides. In ERSPAN III \
              it reads Ethernet whatever the header says, also where it says IP",
    },
    Exception {
        file: "erf",
        fields: &[("frame.len", 4), ("frame.cap_len", 4), ("frame.time_epoch", 4)],
        right: "both",
        why: "tshark shows the ERF record's own length and time, we those of the capture's record",
    },
];

/// Frames of which scapy, 2.5 and 2.6, computes another ICRC. We are right: it copies the IP header
/// together with what follows the datagram, which no ICRC covers; the frames are those of `plain` and
/// others, whose ICRCs it agrees on, with padding or an FCS behind.
pub const SCAPY_EXCEPTIONS: [(&str, u64); 4] =
    [("trailers", 1), ("trailers", 2), ("trailers", 3), ("trailers", 4)];
