//! Which senders are known for IPv4 identifications that we can foresee.
//!
//! A socket does not show the identification, which the ICRC covers; any value is recovered from
//! the CRC itself (`wire::icrc`). That has a price: 2 of 2^16 damages look like another
//! identification, among them single flipped bits at fixed places. So the recovery is kept for those
//! who need it: a sender that has shown again and again what sockets of ours have is not believed to
//! have changed, and what would have to be recovered is damaged. A kernel that numbers its packets
//! passes through those identifications, too, but never through so many in a row.

use std::net::IpAddr;

use crate::wire::icrc::SOCKET_IDENTIFICATIONS;

/// Right packets in a row after which a sender is known. One that counts upwards is right
/// [`SOCKET_IDENTIFICATIONS`] times in a row by chance, and a few packets more out of order.
const KNOWN: u8 = 2 * SOCKET_IDENTIFICATIONS as u8;
/// Nothing is added beyond this: of a known sender that has changed after all (another machine has
/// its address now) so many packets less [`KNOWN`] are lost, fewer than seven retries.
const MOST: u8 = KNOWN + 3;
/// Senders remembered at a time; further ones displace earlier ones.
const PLACES: usize = 64;

/// See the module's text.
pub(super) struct KnownSenders {
    places: Box<[(Option<IpAddr>, u8)]>,
}

impl Default for KnownSenders {
    fn default() -> Self {
        Self { places: vec![(None, 0); PLACES].into() }
    }
}

impl KnownSenders {
    /// The sender's packet was right as it was.
    pub(super) fn was_right(&mut self, sender: IpAddr) {
        let trust = self.trust(sender);
        *trust = (*trust + 1).min(MOST);
    }

    /// Whether a packet may be taken that is right only with an identification that was not to be
    /// expected.
    pub(super) fn may_differ(&mut self, sender: IpAddr) -> bool {
        let trust = self.trust(sender);
        let known = *trust >= KNOWN;
        *trust = if known { *trust - 1 } else { 0 };
        !known
    }

    fn trust(&mut self, sender: IpAddr) -> &mut u8 {
        let place = match sender {
            IpAddr::V4(address) => address.to_bits() as usize,
            IpAddr::V6(address) => address.to_bits() as usize,
        };
        let place = &mut self.places[place % PLACES];
        if place.0 != Some(sender) {
            *place = (Some(sender), 0);
        }
        &mut place.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn right(senders: &mut KnownSenders, packets: usize) {
        (0..packets).for_each(|_| senders.was_right(SENDER));
    }

    #[test]
    fn who_was_right_often_may_not_differ_until_it_does_so_in_a_row() {
        let mut senders = KnownSenders::default();
        right(&mut senders, 127);
        assert!(senders.may_differ(SENDER));
        right(&mut senders, 1000);
        for _ in 0..100 {
            assert!(!senders.may_differ(SENDER), "damaged now and then");
            right(&mut senders, 1);
        }
        let refused = (0..100).filter(|_| !senders.may_differ(SENDER)).count();
        assert_eq!(refused, 4, "another machine has the address now");
    }

    /// The kernel counts upwards and wraps.
    #[test]
    fn who_numbers_its_packets_may_always_differ() {
        let mut senders = KnownSenders::default();
        for identification in (0..=u16::MAX).chain(0..=u16::MAX) {
            match identification {
                0..SOCKET_IDENTIFICATIONS => senders.was_right(SENDER),
                _ => assert!(senders.may_differ(SENDER), "{identification}"),
            }
        }
    }

    #[test]
    fn a_sender_knows_nothing_of_another_at_its_place() {
        let mut senders = KnownSenders::default();
        right(&mut senders, 1000);
        let other = IpAddr::from([10, 0, 0, 1 + PLACES as u8]);
        assert!(senders.may_differ(other));
        assert!(senders.may_differ(SENDER), "displaced");
    }
}
