//! Which interface the default route uses, from the kernel's own listing.

use std::fs;

/// Flag of a route that is in use.
const UP: u32 = 0x0001;
/// Flag of a route that refuses.
const REJECT: u32 = 0x0200;

/// The interface of the IPv4 default route, else of the IPv6 one, in the calling thread's
/// network namespace.
pub(super) fn default_interface() -> Option<String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).ok();
    let ipv4 = read("route").and_then(|table| default_of(&table, ipv4_route));
    ipv4.or_else(|| read("ipv6_route").and_then(|table| default_of(&table, ipv6_route)))
}

/// A default route: its metric, where the smallest wins, and its interface.
type DefaultRoute<'a> = (u32, &'a str);

fn default_of(table: &str, parse: fn(&str) -> Option<DefaultRoute<'_>>) -> Option<String> {
    let best = table.lines().filter_map(parse).min_by_key(|(metric, _)| *metric);
    best.map(|(_, interface)| interface.to_owned())
}

/// Reads `Iface Destination Gateway Flags RefCnt Use Metric Mask …`.
fn ipv4_route(line: &str) -> Option<DefaultRoute<'_>> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [interface, destination, _, flags, _, _, metric, mask, ..] = fields[..] else {
        return None;
    };
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let is_default = number(destination)? == 0 && number(mask)? == 0;
    (is_default && is_usable(number(flags)?)).then_some((metric.parse().ok()?, interface))
}

/// Reads `destination length source length next-hop metric references uses flags interface`.
fn ipv6_route(line: &str) -> Option<DefaultRoute<'_>> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [destination, length, _, _, _, metric, _, _, flags, interface] = fields[..] else {
        return None;
    };
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let is_default = destination.bytes().all(|digit| digit == b'0') && number(length)? == 0;
    (is_default && is_usable(number(flags)?)).then_some((number(metric)?, interface))
}

fn is_usable(flags: u32) -> bool {
    flags & UP != 0 && flags & REJECT == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPV4: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
slow7\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
fast7\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
down7\t00000000\t010200C0\t0002\t0\t0\t0\t00000000\t0\t0\t0
fast7\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
";
    const IPV6: &str = "\
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000002 00000000 00000003     six7
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     net7
";

    #[test]
    fn the_best_usable_default_route_wins() {
        assert_eq!(default_of(IPV4, ipv4_route).as_deref(), Some("fast7"));
        assert_eq!(default_of(IPV6, ipv6_route).as_deref(), Some("six7"));
    }

    #[test]
    fn without_a_default_route_there_is_none() {
        let only_local: String = IPV4.lines().filter(|line| line.contains("000200C0")).collect();
        assert_eq!(default_of(&only_local, ipv4_route), None);
        assert_eq!(default_of("garbage\n\n0 1 2 3 4 5 6 7 8 9\n", ipv6_route), None);
    }

    proptest::proptest! {
        #[test]
        fn no_listing_makes_it_panic(text in "(([0-9a-f]{0,9}[ \\t]){0,12}\\n?){0,4}") {
            for parse in [ipv4_route as fn(&str) -> Option<DefaultRoute<'_>>, ipv6_route] {
                let _ = default_of(&text, parse);
            }
        }
    }
}
