//! CRC-32 as a sum that can be continued, and as a polynomial that can be divided.

use crc32fast::Hasher;

/// The generator, reflected: bit 31 is the coefficient of x^0, x^32 is understood.
pub(super) const GENERATOR: u32 = 0xedb8_8320;
/// The register after eight bytes 0xff, which stand for a masked local route header.
pub(super) const AFTER_EIGHT_ONES: u32 = 0xdebb_20e3;

/// A CRC in the making.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crc(Hasher);

impl Crc {
    /// Starts after the masked link header.
    pub(crate) fn after_masked_link_header() -> Self {
        Self::of_register(AFTER_EIGHT_ONES)
    }

    /// Goes on from what a shift register holds.
    pub(super) fn of_register(register: u32) -> Self {
        Self(Hasher::new_with_initial(!register))
    }

    /// Goes on over `bytes`.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The result; little-endian it is the ICRC.
    pub(crate) fn value(self) -> u32 {
        self.0.finalize()
    }

    /// The result if nothing followed.
    pub(crate) fn so_far(&self) -> u32 {
        self.0.clone().finalize()
    }

    /// The sum of everything that leaves the same remainder as these bytes do from a register of
    /// zeros.
    pub(crate) fn of_remainder(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new_with_initial(!0);
        hasher.update(bytes);
        Self(hasher)
    }
}

/// Product of two polynomials modulo the generator.
pub(super) const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut shifted, mut bit) = (0, b, 0);
    while bit < 32 {
        // Bit 31 is x^0, so the factors come in rising powers. No branch on data: the bits of a
        // difference are random.
        product ^= shifted & (a << bit >> 31).wrapping_neg();
        shifted = shifted >> 1 ^ GENERATOR & (shifted & 1).wrapping_neg();
        bit += 1;
    }
    product
}

/// x^n modulo the generator.
pub(crate) const fn power_of_x(n: u32) -> u32 {
    let (mut power, mut left) = (ONE, n);
    while left > 0 {
        power = multiply(power, ONE >> 1);
        left -= 1;
    }
    power
}

/// The quotient by x.
const fn divide_by_x(value: u32) -> u32 {
    if value >> 31 == 0 { value << 1 } else { (value ^ GENERATOR) << 1 | 1 }
}

/// x^(-8 * bytes), for fewer than 2^16 + 64 bytes: two look-ups and a product, so that no length
/// needs a cache.
pub(super) fn x_to_minus_8(bytes: usize) -> u32 {
    multiply(FINE[bytes % STEP], COARSE[bytes / STEP])
}

const STEP: usize = 64;
const ONE: u32 = 1 << 31;

/// x^(-8 k).
static FINE: [u32; STEP] = {
    let mut table = [ONE; STEP];
    let mut at = 1;
    while at < STEP {
        table[at] = divide_by_x_8_times(table[at - 1]);
        at += 1;
    }
    table
};

/// x^(-8 * 64 k).
static COARSE: [u32; 1025] = {
    let step = divide_by_x_8_times(FINE[STEP - 1]);
    let mut table = [ONE; 1025];
    let mut at = 1;
    while at < table.len() {
        table[at] = multiply(table[at - 1], step);
        at += 1;
    }
    table
};

const fn divide_by_x_8_times(value: u32) -> u32 {
    let (mut value, mut times) = (value, 0);
    while times < 8 {
        value = divide_by_x(value);
        times += 1;
    }
    value
}
