//! Control messages of any values and any bytes.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn what_is_written_is_found(
        ipv6 in any::<bool>(),
        traffic_class in proptest::option::of(any::<u8>()),
        segment in proptest::option::of(any::<u16>()),
        before in any::<[u8; Control::SIZE]>(),
    ) {
        let mut control = Control { bytes: before, used: 77 };
        control.write(ipv6, traffic_class, segment);
        let used = control.used();
        let (level, kind) = traffic_class_option(ipv6);
        let class = traffic_class.map(|class| i32::from(class).to_ne_bytes());
        prop_assert_eq!(control.find(used, level, kind), class.as_ref().map(|class| &class[..]));
        prop_assert_eq!(control.read(used).traffic_class, traffic_class.unwrap_or(0));
        let (other, other_kind) = traffic_class_option(!ipv6);
        prop_assert_eq!(control.find(used, other, other_kind), None);
        let found = control.find(used, libc::SOL_UDP, libc::UDP_SEGMENT).map(<[u8]>::to_vec);
        prop_assert_eq!(found, segment.map(|segment| segment.to_ne_bytes().to_vec()));
    }

    #[test]
    fn what_the_kernel_says_is_read(
        traffic_class in any::<u8>(),
        segment in proptest::option::of(1..=i32::MAX),
        dropped in proptest::option::of(any::<u32>()),
        ipv6 in any::<bool>(),
    ) {
        let mut control = Control::new();
        if let Some(dropped) = dropped {
            control.push(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &dropped.to_ne_bytes());
        }
        if ipv6 {
            let class = i32::from(traffic_class).to_ne_bytes();
            control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
        } else {
            control.push(libc::IPPROTO_IP, libc::IP_TOS, &[traffic_class]);
        }
        if let Some(segment) = segment {
            control.push(libc::SOL_UDP, libc::UDP_GRO, &segment.to_ne_bytes());
        }
        let expected =
            Received { traffic_class, segment: segment.map(|size| size as usize), dropped };
        prop_assert_eq!(control.read(control.used()), expected);
        // Cut anywhere, nothing is made up.
        for length in 0..control.used() {
            let found = control.read(length);
            prop_assert!(found.dropped.is_none() || found.dropped == dropped);
            prop_assert!(found.segment.is_none() || found.segment == expected.segment);
            prop_assert!(found.traffic_class == 0 || found.traffic_class == traffic_class);
        }
    }

    #[test]
    fn no_bytes_do_harm(
        mut bytes in any::<[u8; Control::SIZE]>(),
        lengths in any::<[u8; 3]>(),
        length in 0usize..200,
    ) {
        // Lengths that lead somewhere.
        for (index, length) in lengths.into_iter().enumerate() {
            let place = index * 24;
            bytes[place..place + 8].copy_from_slice(&u64::from(length).to_ne_bytes());
        }
        let control = Control { bytes, used: 0 };
        let received = control.read(length);
        prop_assert!(received.segment != Some(0));
        control.find(length, libc::SOL_UDP, libc::UDP_GRO);
    }
}
