//! CRC-32C (Castagnoli), which iWARP has and which people mistake for the ICRC's.

const GENERATOR_REFLECTED: u32 = 0x82f6_3b78;

static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let (mut value, mut bit) = (index as u32, 0);
        while bit < 8 {
            value = (value >> 1) ^ (GENERATOR_REFLECTED * (value & 1));
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

/// The CRC-32C of bytes given in parts.
pub(super) fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let step = |crc: u32, byte: &u8| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)];
    !parts.into_iter().flatten().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_has_the_check_value_of_the_catalogue() {
        assert_eq!(super::of([&b"12345"[..], b"6789"]), 0xe306_9283);
    }
}
