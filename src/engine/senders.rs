//! Which senders are known for identifications that we can foresee.
//!
//! A socket does not show the IPv4 identification, which the ICRC covers; any value is recovered
//! from the CRC itself (`wire::icrc`). That has a price: 2 of 2^16 damages look like another
//! identification, among them single flipped bits at fixed places. So the recovery is kept for those
//! who need it: a sender that has shown again and again what we expect (every sender of ours does)
//! is not believed to have changed, and what would have to be recovered is damaged. A sender with
//! identifications of its own is right by chance, once in 2^16 packets, and never gets that far.

use std::net::IpAddr;

/// Packets with the expected identification after which a sender is known for it.
const KNOWN: u8 = 16;
/// Beyond this nothing is added: a sender that has changed after all is believed after so many
/// packets less [`KNOWN`].
const MOST: u8 = 64;
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
        if *trust < KNOWN {
            return true;
        }
        *trust -= 1;
        false
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

    #[test]
    fn who_was_right_often_may_not_differ_until_it_does_so_for_long() {
        let mut senders = KnownSenders::default();
        for _ in 0..15 {
            senders.was_right(SENDER);
            assert!(senders.may_differ(SENDER));
        }
        for _ in 0..1000 {
            senders.was_right(SENDER);
        }
        let refused = (0..100).filter(|_| !senders.may_differ(SENDER)).count();
        assert_eq!(refused, usize::from(MOST - KNOWN) + 1);
        assert!(senders.may_differ(SENDER), "another machine has the address now");
    }

    #[test]
    fn a_sender_knows_nothing_of_another_at_its_place() {
        let mut senders = KnownSenders::default();
        (0..100).for_each(|_| senders.was_right(SENDER));
        let other = IpAddr::from([10, 0, 0, 1 + PLACES as u8]);
        assert!(senders.may_differ(other));
        assert!(senders.may_differ(SENDER), "displaced");
    }
}
