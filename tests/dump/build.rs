//! Frames, byte by byte: layouts from the tables of the specification, not from the code under test
//! (of that only the ICRC is used, which published vectors check).

use uroce::wire::icrc::{self, Outer};
use uroce::wire::internet_checksum;

pub type Bytes = Vec<u8>;

/// What is written into a capture.
#[derive(Clone)]
pub struct Captured {
    pub frame: Bytes,
    /// Bytes of it that the capture keeps.
    pub kept: usize,
}

pub fn whole(frame: Bytes) -> Captured {
    Captured { kept: frame.len(), frame }
}

pub fn cut(frame: Bytes, kept: usize) -> Captured {
    Captured { frame, kept }
}

pub const MAC_A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
pub const MAC_B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const IP_A: [u8; 4] = [192, 0, 2, 1];
const IP_B: [u8; 4] = [192, 0, 2, 2];
const OUTER_A: [u8; 4] = [198, 51, 100, 1];
const OUTER_B: [u8; 4] = [198, 51, 100, 2];
pub const IP6_A: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub const IP6_B: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
pub const ROCE: u16 = 4791;

/// BTH with MigReq, default partition, queue pair 0x000012.
pub fn bth(opcode: u8, pad: u8, psn: u32) -> Bytes {
    let [_, a, b, c] = psn.to_be_bytes();
    vec![opcode, 0x40 | pad << 4, 0xff, 0xff, 0, 0, 0, 0x12, 0x80, a, b, c]
}

/// A packet without ICRC: BTH, extended headers, payload, pad.
pub fn packet(opcode: u8, psn: u32, extended: &[u8], payload: &[u8]) -> Bytes {
    let pad = payload.len().wrapping_neg() % 4;
    [&bth(opcode, pad as u8, psn)[..], extended, payload, &vec![0; pad]].concat()
}

pub fn reth(address: u64, key: u32, length: u32) -> Bytes {
    [&address.to_be_bytes()[..], &key.to_be_bytes(), &length.to_be_bytes()].concat()
}

pub fn payload(length: usize) -> Bytes {
    (0..length).map(|index| (index * 7 + 1) as u8).collect()
}

/// How the IP header around a packet looks.
#[derive(Clone)]
pub struct Ip4 {
    pub tos: u8,
    pub ttl: u8,
    pub id: u16,
    /// Flags and offset.
    pub fragment: u16,
    pub options: Bytes,
    pub source: [u8; 4],
    pub destination: [u8; 4],
}

impl Default for Ip4 {
    fn default() -> Self {
        let (source, destination) = (IP_A, IP_B);
        Self { tos: 2, ttl: 64, id: 0x1234, fragment: 0x4000, options: vec![], source, destination }
    }
}

impl Ip4 {
    pub fn outer() -> Self {
        Self { tos: 0, source: OUTER_A, destination: OUTER_B, ..Self::default() }
    }

    /// The header before `length` bytes.
    pub fn header(&self, protocol: u8, length: usize) -> Bytes {
        let words = 5 + self.options.len() / 4;
        let total = (words * 4 + length) as u16;
        let mut header = vec![0x40 | words as u8, self.tos];
        header.extend(total.to_be_bytes());
        header.extend(self.id.to_be_bytes());
        header.extend(self.fragment.to_be_bytes());
        header.extend([self.ttl, protocol, 0, 0]);
        header.extend(self.source);
        header.extend(self.destination);
        header.extend(&self.options);
        let sum = internet_checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }
}

pub fn udp_header(source: u16, destination: u16, length: usize) -> [u8; 8] {
    let length = (length + 8) as u16;
    let mut header = [0; 8];
    header[0..2].copy_from_slice(&source.to_be_bytes());
    header[2..4].copy_from_slice(&destination.to_be_bytes());
    header[4..6].copy_from_slice(&length.to_be_bytes());
    header
}

/// An IPv4 packet of RoCEv2 with its right ICRC.
pub fn roce4_with(ip: &Ip4, packet: &[u8]) -> Bytes {
    let udp = udp_header(0xc123, ROCE, packet.len() + 4);
    let header = ip.header(17, packet.len() + 12);
    let icrc = icrc::of(&Outer::Ipv4 { header: &header, udp: &udp }, packet);
    [&header[..], &udp, packet, &icrc].concat()
}

pub fn roce4(packet: &[u8]) -> Bytes {
    roce4_with(&Ip4::default(), packet)
}

/// An IPv6 packet of RoCEv2 with extension headers and its right ICRC. `next` is the first of
/// their numbers.
pub fn roce6_with(next: u8, extensions: &[u8], packet: &[u8]) -> Bytes {
    let udp = udp_header(0xc123, ROCE, packet.len() + 4);
    let mut header = [0u8; 40];
    let length = (extensions.len() + packet.len() + 12) as u16;
    header[..4].copy_from_slice(&0x6021_face_u32.to_be_bytes());
    header[4..6].copy_from_slice(&length.to_be_bytes());
    header[6..8].copy_from_slice(&[next, 64]);
    header[8..24].copy_from_slice(&IP6_A);
    header[24..40].copy_from_slice(&IP6_B);
    let icrc = icrc::of(&Outer::Ipv6 { header: &header, extensions, udp: &udp }, packet);
    [&header[..], extensions, &udp, packet, &icrc].concat()
}

pub fn roce6(packet: &[u8]) -> Bytes {
    roce6_with(17, &[], packet)
}

/// An IPv4 packet of something else.
pub fn ip4(ip: &Ip4, protocol: u8, inside: &[u8]) -> Bytes {
    [&ip.header(protocol, inside.len())[..], inside].concat()
}

pub fn udp4(ip: &Ip4, port: u16, inside: &[u8]) -> Bytes {
    let udp = udp_header(50_000, port, inside.len());
    ip4(ip, 17, &[&udp[..], inside].concat())
}

pub fn ethernet(ethertype: u16, inside: &[u8]) -> Bytes {
    [&MAC_B[..], &MAC_A, &ethertype.to_be_bytes(), inside].concat()
}

pub fn eth4(inside: &[u8]) -> Bytes {
    ethernet(0x0800, inside)
}

pub fn eth6(inside: &[u8]) -> Bytes {
    ethernet(0x86dd, inside)
}

/// Ethernet with VLAN tags (protocol, tag), outermost first.
pub fn tagged(tags: &[(u16, u16)], ethertype: u16, inside: &[u8]) -> Bytes {
    let mut frame = [MAC_B, MAC_A].concat();
    for (protocol, tag) in tags {
        frame.extend(protocol.to_be_bytes());
        frame.extend(tag.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(inside);
    frame
}

/// A GRH before `length` bytes, BTH to ICRC.
pub fn grh(length: usize) -> [u8; 40] {
    let mut header = [0u8; 40];
    header[..4].copy_from_slice(&0x6021_face_u32.to_be_bytes());
    header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    header[6..8].copy_from_slice(&[0x1b, 64]);
    header[8..24].copy_from_slice(&IP6_A);
    header[24..40].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 2]);
    header
}

/// RoCEv1 from the GRH on.
pub fn global(packet: &[u8]) -> Bytes {
    let grh = grh(packet.len() + 4);
    let icrc = icrc::of(&Outer::Global(&grh), packet);
    [&grh[..], packet, &icrc].concat()
}

/// A native InfiniBand packet with VCRC, from a local packet or one with GRH.
pub fn native(packet: &[u8], routed: bool) -> Bytes {
    let inside = if routed { 40 } else { 0 } + packet.len() + 4;
    let words = ((8 + inside) / 4) as u16;
    let next = if routed { 3 } else { 2 };
    let mut lrh = [0x70, 0x40 | next, 0x37, 0x5c, 0, 0, 0x17, 0xd2];
    lrh[4..6].copy_from_slice(&words.to_be_bytes());
    let body = match routed {
        true => global(packet),
        false => [packet, &icrc::of(&Outer::Local(&lrh), packet)].concat(),
    };
    let whole = [&lrh[..], &body].concat();
    [&whole[..], &vcrc(&whole)].concat()
}

/// CRC-16 of polynomial 0x100b, bit by bit, least significant bit of each byte first.
pub fn vcrc(bytes: &[u8]) -> [u8; 2] {
    let mut register = 0xffff_u16;
    for byte in bytes {
        for bit in 0..8 {
            let top = register >> 15 ^ u16::from(byte >> bit & 1);
            register = register << 1 ^ if top == 1 { 0x100b } else { 0 };
        }
    }
    // The register holds the first bit sent at its top; bytes are sent least significant first.
    (!register.reverse_bits()).to_le_bytes()
}

/// A datagram that segmentation offload has left whole: packets with the ICRCs that they have on
/// the wire, identification counted from `first`.
pub fn superframe4(ip: &Ip4, packets: &[Bytes]) -> Bytes {
    let mut inside = Vec::new();
    for (index, packet) in packets.iter().enumerate() {
        let own = Ip4 { id: ip.id.wrapping_add(index as u16), ..ip.clone() };
        let segment = roce4_with(&own, packet);
        inside.extend(&segment[28 + ip.options.len()..]);
    }
    let udp = udp_header(0xc123, ROCE, inside.len());
    [&ip.header(17, inside.len() + 8)[..], &udp, &inside].concat()
}

/// A classic capture in nanoseconds, a frame a microsecond.
pub fn pcap(link_type: u32, frames: &[Captured]) -> Bytes {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 262_144, link_type] {
        file.extend(word.to_le_bytes());
    }
    for (index, captured) in frames.iter().enumerate() {
        let nanos = (index * 1000) as u32;
        for word in [1_700_000_000, nanos, captured.kept as u32, captured.frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(&captured.frame[..captured.kept]);
    }
    file
}
