//! The routines that move payload between packets and registered memory, and the one that compares.
//!
//! Registered memory can be read and written by other threads at any moment, so it is never behind
//! a Rust reference, and the copy must not be one that the compiler may reason about: like a DMA
//! engine's, its accesses happen outside the language. On x86-64 that is inline assembly, elsewhere
//! relaxed atomic bytes.
//!
//! Programs poll the last byte of a message to see that it has arrived, and the stores of a bulk
//! copy have no order. So the last 1 to 8 bytes of each packet, up to an 8-byte boundary, are left
//! out of the bulk copy and stored afterwards with release order.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// Copies `source` to `target`, the last bytes last.
///
/// # Safety
/// `target` must be valid for writing `source.len()` bytes for the duration of the call, and must
/// not overlap `source`. Other threads may access it.
pub(super) unsafe fn copy_in(target: *mut u8, source: &[u8]) {
    let length = source.len();
    if length == 0 {
        return;
    }
    let last = match (target as usize + length) % 8 {
        0 => 8,
        bytes => bytes,
    };
    let last = last.min(length);
    let (bulk, tail) = source.split_at(length - last);
    // SAFETY: both ranges lie within what the caller vouches for.
    unsafe {
        bulk_copy(target, bulk.as_ptr(), bulk.len());
        store_last(target.add(bulk.len()), tail);
    }
}

/// Copies from `source` to `target`.
///
/// # Safety
/// `source` must be valid for reading `length` bytes for the duration of the call, and `target` for
/// writing them; they must not overlap. Other threads may access `source`.
pub(super) unsafe fn copy_out(target: *mut u8, source: *const u8, length: usize) {
    // SAFETY: as the caller vouches for.
    unsafe { bulk_copy(target, source, length) };
    fence(Ordering::Acquire);
}

/// Whether `memory` holds `expected`.
///
/// # Safety
/// `memory` must be valid for reading `expected.len()` bytes for the duration of the call. Other
/// threads may access it.
pub(super) unsafe fn equals(memory: *const u8, expected: &[u8]) -> bool {
    // SAFETY: as the caller vouches for.
    let is_equal = unsafe { bulk_equals(memory, expected) };
    fence(Ordering::Acquire);
    is_equal
}

/// Stores 1 to 8 bytes that end at an 8-byte boundary or are followed by nothing: as one word if
/// they are one, else byte by byte, the last one last.
///
/// # Safety
/// `target` must be valid for writing `bytes.len()` bytes.
unsafe fn store_last(target: *mut u8, bytes: &[u8]) {
    if let Ok(word) = <[u8; 8]>::try_from(bytes)
        && (target as usize).is_multiple_of(8)
    {
        // SAFETY: eight valid bytes, aligned.
        let cell = unsafe { AtomicU64::from_ptr(target.cast()) };
        cell.store(u64::from_ne_bytes(word), Ordering::Release);
        return;
    }
    for (index, byte) in bytes.iter().enumerate() {
        // SAFETY: within the valid bytes; a byte is always aligned.
        unsafe { AtomicU8::from_ptr(target.add(index)) }.store(*byte, Ordering::Release);
    }
}

/// Copies without order between the bytes.
///
/// Not `rep movsb`: where the target lies a few bytes behind the source's place in its page, as the
/// payload behind a header does, that runs at 3 to 10 GB/s on processors on which these loops run at
/// 45 to 80 (Zen 4).
///
/// # Safety
/// As [`copy_in`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn bulk_copy(target: *mut u8, source: *const u8, length: usize) {
    /// Bytes that one step of the wide loop moves.
    const STEP: usize = 128;
    let wide = if length >= STEP && std::arch::is_x86_feature_detected!("avx") {
        length - length % STEP
    } else {
        0
    };
    // SAFETY: the caller vouches for both ranges, which are cut in two; the processor has AVX if
    // there is anything for the loop that needs it.
    unsafe {
        if wide > 0 {
            copy_steps(target, source, wide);
        }
        copy_rest(target.add(wide), source.add(wide), length - wide);
    }
}

/// Copies a multiple of 128 bytes.
///
/// # Safety
/// As [`copy_in`]; the processor must have AVX, and `length` be a multiple of 128 and not 0.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
// `vzeroupper` clears registers that the assembly does not name: only a call may lose them.
#[inline(never)]
unsafe fn copy_steps(target: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller vouches for both ranges; each step moves on by what it copied until
    // nothing is left.
    unsafe {
        std::arch::asm!(
            "2:",
            "vmovups {first}, [{source}]",
            "vmovups {second}, [{source} + 32]",
            "vmovups {third}, [{source} + 64]",
            "vmovups {fourth}, [{source} + 96]",
            "vmovups [{target}], {first}",
            "vmovups [{target} + 32], {second}",
            "vmovups [{target} + 64], {third}",
            "vmovups [{target} + 96], {fourth}",
            "sub {source}, -128",
            "sub {target}, -128",
            "sub {left}, 128",
            "jnz 2b",
            "vzeroupper",
            left = inout(reg) length => _,
            source = inout(reg) source => _,
            target = inout(reg) target => _,
            first = out(ymm_reg) _,
            second = out(ymm_reg) _,
            third = out(ymm_reg) _,
            fourth = out(ymm_reg) _,
            options(nostack)
        );
    }
}

/// Copies any number of bytes, 16 at a time.
///
/// # Safety
/// As [`copy_in`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_rest(target: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller vouches for both ranges; each step moves on by what it copied and stops
    // when less than its width is left.
    unsafe {
        std::arch::asm!(
            "cmp {left}, 16",
            "jb 3f",
            "2:",
            "movups {wide}, [{source}]",
            "movups [{target}], {wide}",
            "add {source}, 16",
            "add {target}, 16",
            "sub {left}, 16",
            "cmp {left}, 16",
            "jae 2b",
            "3:",
            "cmp {left}, 8",
            "jb 4f",
            "mov {word}, qword ptr [{source}]",
            "mov qword ptr [{target}], {word}",
            "add {source}, 8",
            "add {target}, 8",
            "sub {left}, 8",
            "4:",
            "test {left}, {left}",
            "jz 6f",
            "5:",
            "mov {word:l}, byte ptr [{source}]",
            "mov byte ptr [{target}], {word:l}",
            "inc {source}",
            "inc {target}",
            "dec {left}",
            "jnz 5b",
            "6:",
            left = inout(reg) length => _,
            source = inout(reg) source => _,
            target = inout(reg) target => _,
            word = out(reg) _,
            wide = out(xmm_reg) _,
            options(nostack)
        );
    }
}

/// Bytes that a step of the comparison looks at.
const LOOK: usize = 128;

/// # Safety
/// As [`equals`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn bulk_equals(memory: *const u8, expected: &[u8]) -> bool {
    let (steps, _) = expected.as_chunks::<LOOK>();
    let wide =
        if std::arch::is_x86_feature_detected!("avx") { steps.as_flattened().len() } else { 0 };
    // SAFETY: the caller vouches for the memory, which is cut in two as `expected` is; the processor
    // has AVX if there is anything for the loop that needs it.
    unsafe {
        (wide == 0 || equal_steps(memory, expected.as_ptr(), wide))
            && equal_rest(memory.add(wide), &expected[wide..])
    }
}

/// Compares a multiple of 128 bytes.
///
/// # Safety
/// Both must be valid for reading `length` bytes, and only `memory` may be changed by others; the
/// processor must have AVX, and `length` be a multiple of 128 and not 0.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
// `vzeroupper` clears registers that the assembly does not name: only a call may lose them.
#[inline(never)]
unsafe fn equal_steps(memory: *const u8, expected: *const u8, length: usize) -> bool {
    let left: usize;
    // SAFETY: the caller vouches for both ranges; each step moves on by what it compared, until
    // nothing is left or something differs.
    unsafe {
        std::arch::asm!(
            "2:",
            "vmovups {first}, [{memory}]",
            "vmovups {second}, [{memory} + 32]",
            "vmovups {third}, [{memory} + 64]",
            "vmovups {fourth}, [{memory} + 96]",
            "vxorps {first}, {first}, [{expected}]",
            "vxorps {second}, {second}, [{expected} + 32]",
            "vxorps {third}, {third}, [{expected} + 64]",
            "vxorps {fourth}, {fourth}, [{expected} + 96]",
            "vorps {first}, {first}, {second}",
            "vorps {third}, {third}, {fourth}",
            "vorps {first}, {first}, {third}",
            "vptest {first}, {first}",
            "jnz 3f",
            "sub {memory}, -128",
            "sub {expected}, -128",
            "sub {left}, 128",
            "jnz 2b",
            "3:",
            "vzeroupper",
            left = inout(reg) length => left,
            memory = inout(reg) memory => _,
            expected = inout(reg) expected => _,
            first = out(ymm_reg) _,
            second = out(ymm_reg) _,
            third = out(ymm_reg) _,
            fourth = out(ymm_reg) _,
            options(nostack, readonly)
        );
    }
    left == 0
}

/// Compares any number of bytes, a copy of the memory's at a time.
///
/// # Safety
/// As [`equals`].
unsafe fn equal_rest(memory: *const u8, expected: &[u8]) -> bool {
    let mut room = [0; LOOK];
    expected.chunks(LOOK).enumerate().all(|(index, expected)| {
        let held = &mut room[..expected.len()];
        // SAFETY: a part of what the caller vouches for, into room of its own.
        unsafe { bulk_copy(held.as_mut_ptr(), memory.add(index * LOOK), held.len()) };
        held == expected
    })
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
unsafe fn bulk_equals(memory: *const u8, expected: &[u8]) -> bool {
    // SAFETY: as the caller vouches for.
    unsafe { equal_rest(memory, expected) }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
unsafe fn bulk_copy(target: *mut u8, source: *const u8, length: usize) {
    for index in 0..length {
        // SAFETY: the caller vouches for both ranges; a byte is always aligned.
        unsafe {
            let byte = AtomicU8::from_ptr(source.add(index).cast_mut()).load(Ordering::Relaxed);
            AtomicU8::from_ptr(target.add(index)).store(byte, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_beside_it() {
        let source: Vec<u8> = (0..700_usize).map(|i| (i * 7 + 1) as u8).collect();
        for length in (0..90).chain([127, 128, 129, 255, 256, 511, 512, 513, 650]) {
            for offset in 0..17 {
                let mut target = vec![0xee_u8; 720];
                // SAFETY: offset + length stays inside the vector.
                unsafe { copy_in(target.as_mut_ptr().add(offset), &source[..length]) };
                assert!(target[..offset].iter().all(|byte| *byte == 0xee));
                assert_eq!(target[offset..offset + length], source[..length]);
                assert!(target[offset + length..].iter().all(|byte| *byte == 0xee));
                let mut back = vec![0; length];
                // SAFETY: the same range.
                unsafe { copy_out(back.as_mut_ptr(), target.as_ptr().add(offset), length) };
                assert_eq!(back, source[..length]);
            }
        }
    }

    #[test]
    fn a_single_bit_that_differs_is_seen_wherever_it_is() {
        let held: Vec<u8> = (0..700_usize).map(|i| (i * 11 + 3) as u8).collect();
        for length in (0..40).chain([127, 128, 129, 255, 256, 300, 513]) {
            for offset in [0, 1, 8, 31] {
                let mut expected = held[offset..offset + length].to_vec();
                // SAFETY: offset + length stays inside the vector.
                let look = |expected: &[u8]| unsafe { equals(held.as_ptr().add(offset), expected) };
                assert!(look(&expected));
                for at in 0..length {
                    expected[at] ^= 1 << (at % 8);
                    assert!(!look(&expected), "byte {at} of {length} at {offset}");
                    expected[at] ^= 1 << (at % 8);
                }
            }
        }
    }
}
