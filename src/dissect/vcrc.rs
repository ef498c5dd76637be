//! The variant CRC of native InfiniBand: CRC-16 over the packet from LRH to ICRC as it is on this
//! link. Polynomial 0x100b, reflected, initial ones, complement (specification, section 7.8.2).

const GENERATOR_REFLECTED: u16 = 0xd008;

static TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let (mut value, mut bit) = (index as u16, 0);
        while bit < 8 {
            value = (value >> 1) ^ (GENERATOR_REFLECTED * (value & 1));
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

/// The VCRC of a packet, in wire order.
pub(super) fn of(bytes: &[u8]) -> [u8; 2] {
    let step = |crc: u16, byte: &u8| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)];
    (!bytes.iter().fold(0xffff, step)).to_le_bytes()
}
