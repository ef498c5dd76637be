#![allow(unsafe_code)]
//! Copying out of registered memory and summing the copy in one pass.
//!
//! A packet's payload is read once to be copied into it, and once more for its ICRC. Where the
//! processor multiplies polynomials 512 bits at a time (AVX-512 with VPCLMULQDQ) both are done with
//! one reading: 44 GB/s instead of 25 for 4096 bytes. Elsewhere, and for little, there are two
//! passes.
//!
//! The sum is that of the bytes in the copy, whatever other threads do to the source meanwhile.
//!
//! Method: V. Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction" (Intel, 2009): the message is a polynomial, and what is `d` bits ahead counts
//! modulo the generator as much as its product with x^d.

use super::copy::copy_out;
use crate::wire::Crc;

/// From here on one pass is faster than two.
pub(crate) const WORTH_SUMMING: usize = 1024;

/// Copies from `source` to all of `target`, and goes on with a sum over the copy.
///
/// # Safety
/// As [`copy_out`].
pub(super) unsafe fn copy_out_summed(target: &mut [u8], source: *const u8, sum: &mut Crc) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if target.len() >= WORTH_SUMMING && wide::is_possible() {
        let (bulk, rest) = target.split_at_mut(target.len() - target.len() % wide::STEP);
        // SAFETY: the processor can do it; both parts lie in what the caller vouches for.
        unsafe {
            wide::copy_out_summed(bulk, source, sum);
            copy_out(rest.as_mut_ptr(), source.add(bulk.len()), rest.len());
        }
        return sum.update(rest);
    }
    // SAFETY: as the caller vouches for.
    unsafe { copy_out(target.as_mut_ptr(), source, target.len()) };
    sum.update(target);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod wide {
    use std::arch::x86_64::{
        __m128i, __m512i, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_set_epi64x,
        _mm_storeu_si128, _mm_xor_si128, _mm512_broadcast_i32x4, _mm512_clmulepi64_epi128,
        _mm512_extracti32x4_epi32, _mm512_storeu_si512, _mm512_ternarylogic_epi64,
        _mm512_xor_si512, _mm512_zextsi128_si512,
    };
    use std::sync::atomic::{Ordering, fence};

    use crate::wire::{Crc, power_of_x};

    /// Bytes in one step: four registers, so that each waits for the one before it only in the next
    /// step.
    pub(super) const STEP: usize = 256;
    const REGISTER: usize = 64;

    /// Factors that move the two halves of 128 bits ahead by so many bits.
    const fn factors(bits: u32) -> (i64, i64) {
        // The product of two reflected polynomials is one bit short.
        ((power_of_x(bits + 32) as i64) << 1, (power_of_x(bits - 32) as i64) << 1)
    }

    const BY_STEP: (i64, i64) = factors(STEP as u32 * 8);
    const BY_REGISTER: (i64, i64) = factors(REGISTER as u32 * 8);
    const BY_LANE: (i64, i64) = factors(128);

    /// Whether the processor has the instructions.
    pub(super) fn is_possible() -> bool {
        std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("vpclmulqdq")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
    }

    /// # Safety
    /// As [`super::copy_out_summed`]; [`is_possible`], and `target` is a multiple of [`STEP`] long
    /// and not empty.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq")]
    pub(super) unsafe fn copy_out_summed(target: &mut [u8], source: *const u8, sum: &mut Crc) {
        let by_step = broadcast(BY_STEP);
        let mut steps = target.chunks_exact_mut(STEP).enumerate();
        let Some((_, first)) = steps.next() else { return };
        // SAFETY: each step copies STEP bytes at the same distance in source and target, which lie
        // in what the caller vouches for.
        let mut lanes = unsafe { copy_step(first, source) };
        let so_far = _mm512_zextsi128_si512(_mm_cvtsi32_si128(!sum.so_far() as i32));
        lanes[0] = _mm512_xor_si512(lanes[0], so_far);
        for (index, step) in steps {
            // SAFETY: as above.
            let next = unsafe { copy_step(step, source.add(index * STEP)) };
            for (lane, next) in lanes.iter_mut().zip(next) {
                *lane = fold(*lane, next, by_step);
            }
        }
        fence(Ordering::Acquire);
        *sum = Crc::of_remainder(&together(lanes));
    }

    /// Copies one step, and returns what it read.
    ///
    /// # Safety
    /// `source` is valid for reading [`STEP`] bytes; the processor has AVX-512.
    #[target_feature(enable = "avx512f")]
    unsafe fn copy_step(target: &mut [u8], source: *const u8) -> [__m512i; 4] {
        let mut registers = [_mm512_zextsi128_si512(_mm_cvtsi32_si128(0)); 4];
        let places = target.chunks_exact_mut(REGISTER);
        for (index, (register, place)) in registers.iter_mut().zip(places).enumerate() {
            // SAFETY: within the STEP bytes. The load happens outside of the language, because
            // other threads may write the source at the same time.
            unsafe {
                std::arch::asm!(
                    "vmovdqu64 {register}, [{place}]",
                    register = out(zmm_reg) *register,
                    place = in(reg) source.add(index * REGISTER),
                    options(nostack, preserves_flags, readonly)
                );
                _mm512_storeu_si512(place.as_mut_ptr().cast(), *register);
            }
        }
        registers
    }

    #[target_feature(enable = "avx512f")]
    fn broadcast((low, high): (i64, i64)) -> __m512i {
        _mm512_broadcast_i32x4(_mm_set_epi64x(high, low))
    }

    /// Moves what was before ahead, and adds what follows.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn fold(before: __m512i, next: __m512i, factors: __m512i) -> __m512i {
        /// Exclusive or of three.
        const XOR: i32 = 0x96;
        let low = _mm512_clmulepi64_epi128::<0x00>(before, factors);
        let high = _mm512_clmulepi64_epi128::<0x11>(before, factors);
        _mm512_ternarylogic_epi64::<XOR>(low, high, next)
    }

    /// Adds the lanes of all registers: 16 bytes that leave the same remainder.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq")]
    fn together(registers: [__m512i; 4]) -> [u8; 16] {
        let by_register = broadcast(BY_REGISTER);
        let [first, rest @ ..] = registers;
        let sum = rest.into_iter().fold(first, |sum, next| fold(sum, next, by_register));
        let lanes = [
            _mm512_extracti32x4_epi32::<0>(sum),
            _mm512_extracti32x4_epi32::<1>(sum),
            _mm512_extracti32x4_epi32::<2>(sum),
            _mm512_extracti32x4_epi32::<3>(sum),
        ];
        let [first, rest @ ..] = lanes;
        let all = rest.into_iter().fold(first, |sum, next| fold_lane(sum, next));
        let mut bytes = [0; 16];
        // SAFETY: 16 bytes of our own.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), all) };
        bytes
    }

    #[target_feature(enable = "pclmulqdq")]
    fn fold_lane(before: __m128i, next: __m128i) -> __m128i {
        let factors = _mm_set_epi64x(BY_LANE.1, BY_LANE.0);
        let low = _mm_clmulepi64_si128::<0x00>(before, factors);
        let high = _mm_clmulepi64_si128::<0x11>(before, factors);
        _mm_xor_si128(_mm_xor_si128(low, high), next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pass_gives_the_copy_and_the_sum_of_two() {
        let source: Vec<u8> = (0..9100_usize).map(|index| ((index * 31) >> 3) as u8).collect();
        let lengths =
            (0..40).chain([255, 256, 1023, 1024, 1025, 1279, 1280, 4095, 4096, 4097, 9000]);
        for length in lengths {
            for offset in [0, 1, 28, 63, 64] {
                let mut start = Crc::after_masked_link_header();
                start.update(&source[..offset]);
                let mut expected = start.clone();
                expected.update(&source[offset..offset + length]);
                let mut target = vec![0xee; length];
                let mut sum = start;
                // SAFETY: the vector is longer than offset and length.
                unsafe { copy_out_summed(&mut target, source.as_ptr().add(offset), &mut sum) };
                assert!(target == source[offset..offset + length], "{length} at {offset}");
                assert_eq!(sum.value(), expected.value(), "{length} at {offset}");
            }
        }
    }
}
