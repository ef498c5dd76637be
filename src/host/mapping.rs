//! Which addresses of this process are mapped: what has to be asked before foreign memory is
//! registered, since a copy to an unmapped page would kill the process.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

/// Why a range of addresses cannot be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// Nothing is mapped there.
    #[error("address {address:#x} is not mapped in this process (EFAULT)")]
    Unmapped {
        /// The first such address.
        address: usize,
    },
    /// It is mapped without the right that the registration needs.
    #[error("address {address:#x} is mapped without the right to {right} (EFAULT)")]
    Forbidden {
        /// The first such address.
        address: usize,
        /// `read` or `write`.
        right: &'static str,
    },
    /// The range wraps around.
    #[error("{length} bytes from {address:#x} on reach beyond the end of the address space")]
    Overflow {
        /// First address.
        address: usize,
        /// Bytes.
        length: usize,
    },
    /// The list of mappings cannot be read.
    #[error("/proc/self/maps cannot be read: {0}")]
    Unknown(#[from] io::Error),
}

/// Checks that every byte from `start` on is mapped and readable, and writable if `write`.
///
/// # Errors
/// The first address that is not.
pub fn check_mapped(start: usize, length: usize, write: bool) -> Result<(), MappingError> {
    check_in(BufReader::new(File::open("/proc/self/maps")?), start, length, write)
}

/// The mappings are listed by rising address.
fn check_in(
    maps: impl BufRead,
    start: usize,
    length: usize,
    write: bool,
) -> Result<(), MappingError> {
    let overflow = MappingError::Overflow { address: start, length };
    let end = start.checked_add(length).ok_or(overflow)?;
    let mut checked = start;
    for line in maps.lines() {
        let line = line?;
        let Some(mapping) = parse(&line) else { continue };
        if checked >= end {
            break;
        }
        if mapping.end <= checked {
            continue;
        }
        if mapping.start > checked {
            break;
        }
        let forbidden = |right| MappingError::Forbidden { address: checked, right };
        if !mapping.readable {
            return Err(forbidden("read"));
        }
        if write && !mapping.writable {
            return Err(forbidden("write"));
        }
        checked = mapping.end;
    }
    if checked >= end { Ok(()) } else { Err(MappingError::Unmapped { address: checked }) }
}

struct Mapping {
    start: usize,
    end: usize,
    readable: bool,
    writable: bool,
}

/// A line such as `7f10c0000000-7f10c0021000 rw-p 00000000 00:00 0`.
fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes();
    Some(Mapping {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        readable: rights.first() == Some(&b'r'),
        writable: rights.get(1) == Some(&b'w'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "1000-3000 rw-p 00000000 00:00 0\n\
                        3000-4000 r--p 00000000 00:00 0\n\
                        5000-6000 ---p 00000000 00:00 0\n";

    fn check(start: usize, length: usize, write: bool) -> Result<(), MappingError> {
        check_in(MAPS.as_bytes(), start, length, write)
    }

    #[test]
    fn a_range_may_span_mappings_that_join() {
        assert!(check(0x1000, 0x3000, false).is_ok());
        assert!(check(0x2fff, 2, false).is_ok());
        assert!(check(0x1000, 0, true).is_ok());
    }

    #[test]
    fn the_first_address_that_is_wrong_is_named() {
        let unmapped =
            |result| matches!(result, Err(MappingError::Unmapped { address }) if address == 0x4000);
        assert!(unmapped(check(0x3fff, 2, false)));
        assert!(unmapped(check(0x4000, 1, false)));
        assert!(matches!(check(0xfff, 1, false), Err(MappingError::Unmapped { address: 0xfff })));
        let forbidden = check(0x2000, 0x1001, true);
        assert!(matches!(
            forbidden,
            Err(MappingError::Forbidden { address: 0x3000, right: "write" })
        ));
        assert!(matches!(check(0x5000, 1, false), Err(MappingError::Forbidden { .. })));
        assert!(matches!(check(usize::MAX, 2, false), Err(MappingError::Overflow { .. })));
    }

    #[test]
    fn this_process_is_mapped_where_it_is() {
        let mut bytes = vec![0_u8; 100_000];
        assert!(check_mapped(bytes.as_mut_ptr() as usize, bytes.len(), true).is_ok());
        let text = "read-only text";
        assert!(check_mapped(text.as_ptr() as usize, text.len(), false).is_ok());
        assert!(matches!(check_mapped(8, 8, false), Err(MappingError::Unmapped { address: 8 })));
    }

    proptest::proptest! {
        /// Against a list that says of each page whether it is mapped, and how.
        #[test]
        fn a_range_is_mapped_if_each_of_its_bytes_is(
            pages in proptest::collection::vec(0u8..4, 1..20),
            start in 0usize..0x15_000,
            length in 0usize..0x6_000,
            write in proptest::bool::ANY,
        ) {
            let rights = |page: u8| ["---p", "r--p", "rw-p"][usize::from(page)];
            let mut maps = String::new();
            for (index, page) in pages.iter().enumerate().filter(|(_, page)| **page < 3) {
                let (from, to) = (index * 0x1000, (index + 1) * 0x1000);
                maps += &format!("{from:x}-{to:x} {} 00000000 00:00 0 [x]\n", rights(*page));
            }
            let of = |address: usize| pages.get(address / 0x1000).copied().unwrap_or(3);
            let is_wrong = |address: &usize| match of(*address) {
                2 => false,
                1 => write,
                _ => true,
            };
            let wrong = (start..start + length).find(is_wrong);
            match (check_in(maps.as_bytes(), start, length, write), wrong) {
                (Ok(()), None) => {}
                (Err(MappingError::Unmapped { address }), Some(wrong)) => {
                    proptest::prop_assert_eq!((address, of(wrong)), (wrong, 3));
                }
                (Err(MappingError::Forbidden { address, right }), Some(wrong)) => {
                    let expected = if of(wrong) == 1 { "write" } else { "read" };
                    proptest::prop_assert_eq!((address, right), (wrong, expected));
                }
                (found, wrong) => proptest::prop_assert!(false, "{found:?}, {wrong:?}"),
            }
        }

        #[test]
        fn no_list_makes_it_panic(
            maps in "([0-9a-f]{0,17}-?[0-9a-f]{0,17} ?[r-][w-]?.{0,8}\n){0,6}",
            start in proptest::num::usize::ANY,
            length in proptest::num::usize::ANY,
        ) {
            let _ = check_in(maps.as_bytes(), start, length, true);
        }
    }
}
