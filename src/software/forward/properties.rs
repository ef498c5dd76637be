//! Any burst survives the message to another process, and no message does harm.

use proptest::prelude::*;

use super::*;

fn flow() -> impl Strategy<Value = Flow> {
    let v4 = any::<[[u8; 4]; 2]>().prop_map(|pair| pair.map(IpAddr::from));
    let v6 = any::<[[u8; 16]; 2]>().prop_map(|pair| pair.map(IpAddr::from));
    (prop_oneof![v4, v6], any::<u16>()).prop_map(|([source, destination], source_port)| Flow {
        source,
        destination,
        source_port,
    })
}

fn identification() -> impl Strategy<Value = Identification> {
    let seen = any::<(u16, u16)>();
    proptest::option::of(seen).prop_map(|seen| match seen {
        Some((first, flags)) => Identification::Seen { first, flags },
        None => Identification::Unseen,
    })
}

proptest! {
    #[test]
    fn any_burst_survives_the_message(
        flow in flow(),
        identification in identification(),
        traffic_class in any::<u8>(),
        bytes in proptest::collection::vec(any::<u8>(), 1..300),
        segment in any::<proptest::sample::Index>(),
    ) {
        let segment = segment.index(bytes.len()) + 1;
        let burst = ReceivedBurst { flow, traffic_class, identification, segment, bytes: &bytes };
        let message = [&burst_header(&burst)[..], &bytes].concat();
        let Arrival::Burst(found) = arrival(&message) else { panic!("no burst: {burst:?}") };
        prop_assert_eq!((found.flow, found.traffic_class), (flow, traffic_class));
        prop_assert_eq!((found.identification, found.segment), (identification, segment));
        prop_assert_eq!(found.bytes, &bytes);
        // Cut anywhere, it is a shorter burst or none.
        for length in 0..message.len() {
            fuzz(&message[..length]);
            let is_burst = matches!(arrival(&message[..length]), Arrival::Burst(_));
            prop_assert_eq!(is_burst, length >= HEADER + segment);
        }
    }

    #[test]
    fn an_answer_survives_the_message(question in any::<u32>(), index in any::<u16>(), slot in any::<u8>()) {
        let report = IndexReport { question, index, slot };
        let header = index_header(report);
        let Arrival::Index(found) = arrival(&header) else { panic!("no answer") };
        prop_assert_eq!(found, report);
        for length in 0..HEADER {
            prop_assert!(matches!(arrival(&header[..length]), Arrival::Nonsense));
        }
    }

    #[test]
    fn no_message_does_harm(
        kind in prop_oneof![2 => Just(BURST), 1 => Just(INDEX), 1 => any::<u8>()],
        family in prop_oneof![3 => Just(4u8), 3 => Just(6), 1 => any::<u8>()],
        mut message in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0)], 0..200),
    ) {
        if let [first, _, third, ..] = message.as_mut_slice() {
            (*first, *third) = (kind, family);
        }
        fuzz(&message);
    }
}
