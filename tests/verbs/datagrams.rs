//! Datagrams: who sent one can be answered.

use std::net::{IpAddr, Ipv6Addr};

use uroce::software::DeviceOptions;
use uroce::verbs::{
    Access, AddressVector, CompletionKind, CompletionQueue, Context, MemoryRegion,
    ProtectionDomain, Psn, QKey, QueuePair, QueuePairKind, QueuePairOptions, SendOperation,
};

use super::setup::{LONG, context, open};

const QKEY: QKey = QKey::new(0x1234_5678);
const AREA: usize = 40;
const TEXT: usize = 1000;

struct End {
    context: Context,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    pair: QueuePair,
    memory: MemoryRegion,
}

impl End {
    fn new(context: Context) -> Self {
        let domain = context.allocate_domain().unwrap();
        let completions = context.create_completion_queue(16).unwrap();
        let options =
            QueuePairOptions { kind: QueuePairKind::Ud, ..QueuePairOptions::new(&completions) };
        let pair = domain.create_queue_pair(&options).unwrap();
        pair.start_datagrams(QKEY, Psn::new(1)).unwrap();
        let memory = domain.allocate(4096, Access::LOCAL_WRITE).unwrap();
        pair.post_receive(1, &[memory.segment(0, AREA + 100)]).unwrap();
        Self { context, domain, completions, pair, memory }
    }

    /// The receive's completion: who sent it, and its text.
    fn received(&self) -> (uroce::wire::Qpn, Vec<u8>) {
        loop {
            let completion = self.completions.wait_one(LONG).unwrap();
            assert!(completion.status.is_success(), "{completion:?}");
            if completion.kind == CompletionKind::Receive {
                let length = completion.length as usize - AREA;
                return (completion.source, self.memory.to_vec(AREA, length).unwrap());
            }
        }
    }

    fn send(&self, to: uroce::verbs::Datagram, text: &[u8]) {
        self.memory.write(TEXT, text).unwrap();
        let operation = SendOperation::SendTo { to, immediate: None };
        self.pair.post(2, operation, self.memory.segment(TEXT, text.len())).unwrap();
    }
}

fn ask_and_answer(client: Context, server: Context) {
    let (client, server) = (End::new(client), End::new(server));
    let address = AddressVector {
        traffic_class: 0x48,
        ..AddressVector::new(0, server.context.gid(0).unwrap().address())
    };
    let known = client.domain.create_address_handle(&address).unwrap();
    client.send(known.datagram(server.pair.number(), QKEY), b"who am I?");
    let (source, question) = server.received();
    assert_eq!(question, b"who am I?");
    let area = server.memory.to_vec(0, AREA).unwrap();
    let area = area.first_chunk().unwrap();
    let handle = server.domain.create_address_handle_of_sender(area).unwrap();
    server.send(handle.datagram(source, QKEY), b"the client");
    let (source, answer) = client.received();
    assert_eq!((source, &answer[..]), (server.pair.number(), &b"the client"[..]));
    let back = client.memory.to_vec(0, AREA).unwrap();
    let class = |area: &[u8]| uroce::wire::NetworkArea::parse(area.first_chunk().unwrap()).unwrap();
    assert_eq!(class(&back).traffic_class & 0xfc, 0x48, "the answer has the question's class");
    assert_eq!(class(&back).source, class(area).destination);
    // A device that did not receive the question cannot answer it.
    let other = context(69).allocate_domain().unwrap();
    let error = other.create_address_handle_of_sender(area).unwrap_err().to_string();
    assert!(error.contains("is no address of this device"), "{error}");
}

#[test]
fn who_sent_a_datagram_can_be_answered() {
    ask_and_answer(context(67), context(68));
}

#[test]
fn who_sent_a_datagram_over_ipv6_can_be_answered() {
    let here = || open(&DeviceOptions::at(IpAddr::V6(Ipv6Addr::LOCALHOST)));
    ask_and_answer(here(), here());
}
