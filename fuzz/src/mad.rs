//! Management datagrams, above all those of the connection manager, in a frame whose ICRC is right.

use std::net::{IpAddr, Ipv4Addr};

use uroce::wire::icrc::{self, DONT_FRAGMENT};
use uroce::wire::{Deth, Flow, Mad, Psn, QKey, Qpn, frame_headers};
use uroce::wire::{Headers, Message, Packet, SendTail, Service};

use super::dump;
use super::input::Input;

/// Attributes of connection management, REQ to APR, and one on each side.
const FIRST: u16 = 0x0f;
const COUNT: usize = 16;

pub fn mad(data: &[u8]) {
    let mut input = Input::new(data);
    let flow = Flow {
        source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        destination: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        source_port: 0xc001,
    };
    let (choice, queue_pair, cut) = (input.byte(), input.byte(), usize::from(input.u16()));
    let mut datagram = [0; Mad::DATAGRAM_LENGTH];
    if choice & 1 == 0 {
        // Any bytes behind a header of the connection manager's.
        let attribute = FIRST + input.below(COUNT) as u16;
        let header = Mad {
            base_version: 1,
            class: Mad::CONNECTION_MANAGEMENT,
            class_version: 2,
            method: 3,
            status: 0,
            class_specific: 0,
            transaction: 7,
            attribute,
            reserved: 0,
            modifier: 0,
        };
        let Some((front, rest)) = datagram.split_first_chunk_mut() else { return };
        header.emit(front);
        fill(rest, input.rest());
    } else {
        fill(&mut datagram, input.rest());
    }
    let length = if choice & 2 == 0 { datagram.len() } else { cut % (datagram.len() + 1) };
    let service =
        Service::Ud(Deth { qkey: QKey::new(0x8001_0000), reserved: 0, source: Qpn::new(1) });
    let message = Message::SendOnly(SendTail::Plain);
    let destination = Qpn::new(u32::from(queue_pair & 1 == 0));
    let headers = Headers::request(service, message, destination, Psn::new(5));
    let packet = Packet { headers, payload: &datagram[..length], pad: &[] };
    let mut bytes = vec![0; packet.length()];
    packet.emit(&mut bytes);
    bytes.extend(icrc::of_datagram(&flow, 0, DONT_FRAGMENT, &bytes));
    let outer = frame_headers(&flow, 0, 0, 64, bytes.len());
    let whole = [outer.as_bytes(), &bytes].concat();
    let captured = if choice & 4 == 0 { whole.len() } else { cut % (whole.len() + 1) };
    dump::frame(1, whole.len() as u32, &whole[..captured]);
}

fn fill(place: &mut [u8], bytes: &[u8]) {
    let length = bytes.len().min(place.len());
    place[..length].copy_from_slice(&bytes[..length]);
}
