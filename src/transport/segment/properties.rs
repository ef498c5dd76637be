//! How any message is cut: what its packets carry, what they are called, and that it does not matter
//! where one begins.

use proptest::prelude::*;

use super::*;
use crate::queue::{Remote, SendOperation};
use crate::transport::requests::{class_of, message_of};
use crate::wire::{Headers, Immediate, Message, Operation, Packet, Psn, Qpn, Reth, Rkey, Service};

/// The largest message.
const MOST: u32 = 1 << 31;
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
const REMOTE: Remote = Remote { address: 0x1234_5678_9abc, key: Rkey::new(0xcafe) };

fn mtu() -> impl Strategy<Value = u32> {
    proptest::sample::select(MTUS.to_vec())
}

/// Any length, most of them around a multiple of some path MTU.
fn length() -> impl Strategy<Value = u32> {
    let around = (0u32..=(MOST / 256), mtu(), -2i64..=2).prop_map(|(count, mtu, more)| {
        let length = i64::from(count) * i64::from(mtu) + more;
        length.clamp(0, MOST.into()) as u32
    });
    prop_oneof![4 => 0u32..20_000, 4 => around, 2 => 0u32..=MOST, 1 => Just(MOST)]
}

/// A length of few enough packets to look at all of them.
fn short_length() -> impl Strategy<Value = u32> {
    let around = (0u32..12, mtu(), -2i32..=2)
        .prop_map(|(count, mtu, more)| (count * mtu).saturating_add_signed(more));
    prop_oneof![around, 0u32..60_000]
}

fn operation() -> impl Strategy<Value = SendOperation> {
    let immediate = Immediate([1, 2, 3, 4]);
    proptest::sample::select(vec![
        SendOperation::Send,
        SendOperation::SendWithImmediate(immediate),
        SendOperation::SendWithInvalidate(Rkey::new(7)),
        SendOperation::Write(REMOTE),
        SendOperation::WriteWithImmediate(REMOTE, immediate),
    ])
}

/// What the specification calls packet `index` of `count` (tables 38 and 39).
fn called(operation: &SendOperation, index: u32, count: u32) -> Operation {
    let (first, middle, last, only) = match operation {
        SendOperation::Send => {
            use Operation as O;
            (O::SendFirst, O::SendMiddle, O::SendLast, O::SendOnly)
        }
        SendOperation::SendWithImmediate(_) => {
            use Operation as O;
            (O::SendFirst, O::SendMiddle, O::SendLastWithImmediate, O::SendOnlyWithImmediate)
        }
        SendOperation::SendWithInvalidate(_) => {
            use Operation as O;
            (O::SendFirst, O::SendMiddle, O::SendLastWithInvalidate, O::SendOnlyWithInvalidate)
        }
        SendOperation::Write(_) => {
            use Operation as O;
            (O::WriteFirst, O::WriteMiddle, O::WriteLast, O::WriteOnly)
        }
        _ => {
            use Operation as O;
            (O::WriteFirst, O::WriteMiddle, O::WriteLastWithImmediate, O::WriteOnlyWithImmediate)
        }
    };
    match index {
        0 if count == 1 => only,
        0 => first,
        index if index + 1 == count => last,
        _ => middle,
    }
}

/// Where the message says that it goes in the peer's memory.
fn reth_of(message: &Message) -> Option<Reth> {
    match message {
        Message::WriteFirst(reth) | Message::WriteOnly(reth, _) => Some(*reth),
        _ => None,
    }
}

proptest! {
    /// The packets are made and read again, as they are on the wire.
    #[test]
    fn what_the_packets_carry_is_the_message_and_their_opcodes_say_where_they_stand(
        operation in operation(),
        length in short_length(),
        mtu in mtu(),
        start in any::<u32>(),
    ) {
        let shape = Shape { class: class_of(&operation), length, mtu, chunk: 1 << 16 };
        let payload: Vec<u8> = (0..length).map(|at| ((at * 31) >> 3) as u8).collect();
        let count = if length == 0 { 1 } else { length.div_ceil(mtu) };
        prop_assert_eq!((shape.packets(), shape.messages()), (count, 1));
        let (mut joined, mut psn) = (Vec::new(), Psn::new(start));
        for index in 0..count {
            let piece = shape.piece(index);
            let message = message_of(&operation, length, &piece);
            let headers = Headers::request(Service::Rc, message, Qpn::new(9), psn);
            let part = &payload[piece.offset as usize..(piece.offset + piece.length) as usize];
            let pad = &[0; 3][..crate::wire::pad(part.len())];
            let mut bytes = vec![0; 5000];
            let written = Packet { headers, payload: part, pad }.emit(&mut bytes);
            // Where the ICRC will be.
            let read = Packet::parse(&bytes[..written + 4]).expect("a packet of ours");
            let opcode = read.headers.opcode().expect("a known one");
            let name = read.headers.message.operation();
            prop_assert_eq!(name, Some(called(&operation, index, count)), "{:#x}", opcode);
            let is_write = matches!(
                operation, SendOperation::Write(_) | SendOperation::WriteWithImmediate(..)
            );
            let reth = Reth { address: REMOTE.address, key: REMOTE.key, length };
            let expected = (is_write && index == 0).then_some(reth);
            prop_assert_eq!(reth_of(&read.headers.message), expected);
            joined.extend_from_slice(read.payload);
            psn = psn.next();
        }
        prop_assert!(joined == payload, "{} bytes joined to {}", payload.len(), joined.len());
        prop_assert_eq!(psn, Psn::new(start).add(shape.packets()));
    }

    #[test]
    fn pieces_of_any_message_meet_and_stay_inside(
        length in length(),
        mtu in mtu(),
        choice in any::<proptest::sample::Index>(),
    ) {
        let shape = Shape { class: Class::Write, length, mtu, chunk: 1 << 20 };
        let count = shape.packets();
        prop_assert_eq!(u64::from(count), u64::from(length).div_ceil(mtu.into()).max(1));
        let index = choice.index(count as usize) as u32;
        let piece = shape.piece(index);
        prop_assert_eq!(u64::from(piece.offset), u64::from(index) * u64::from(mtu));
        prop_assert!(piece.length <= mtu && (piece.length > 0 || length == 0));
        prop_assert_eq!((piece.first, piece.last), (index == 0, index + 1 == count));
        prop_assert!(piece.last || piece.length == mtu, "only the last may be shorter");
        let end = u64::from(piece.offset) + u64::from(piece.length);
        if piece.last {
            prop_assert_eq!(end, u64::from(length));
        } else {
            prop_assert_eq!(u64::from(shape.piece(index + 1).offset), end);
        }
        let (before, after) = (shape.bytes_between(0, index), shape.bytes_between(index, count));
        prop_assert_eq!(before, u64::from(piece.offset));
        prop_assert_eq!(before + after, u64::from(length));
    }

    /// A READ that goes on at any response asks for the rest of that chunk, and from there on for
    /// what it asked for the first time.
    #[test]
    fn a_read_resumed_anywhere_asks_for_the_same_rest(
        length in short_length(),
        mtu in mtu(),
        factor in 1u32..9,
        choice in any::<proptest::sample::Index>(),
    ) {
        let shape = Shape { class: Class::Read, length, mtu, chunk: mtu * factor };
        let parts = |start: u32| {
            let mut parts = Vec::new();
            let mut index = start;
            while index < shape.packets() {
                parts.push(shape.read_part(index));
                index += parts.last().expect("pushed").packets;
            }
            parts
        };
        let whole = parts(0);
        prop_assert_eq!(whole.len() as u32, shape.messages());
        prop_assert_eq!(whole.iter().map(|part| part.packets).sum::<u32>(), shape.packets());
        let start = choice.index(shape.packets() as usize) as u32;
        let rest = parts(start);
        prop_assert_eq!(rest[0].offset, start * mtu);
        let left: u32 = rest.iter().map(|part| part.length).sum();
        prop_assert_eq!(left, length - start * mtu);
        // All but the first are parts of the whole, and the first ends where one does.
        prop_assert_eq!(&rest[1..], &whole[whole.len() - (rest.len() - 1)..]);
        let ends = |part: &ReadPart| part.offset + part.length;
        prop_assert_eq!(ends(&rest[0]), ends(&whole[whole.len() - rest.len()]));
        // Each response has its place in its request.
        for part in &rest {
            let first = part.offset / mtu;
            for index in first..first + part.packets {
                prop_assert_eq!(shape.ends_chunk(index), index + 1 == first + part.packets);
            }
        }
    }

    #[test]
    fn a_part_of_any_read_stays_inside_of_its_chunk(
        length in length(),
        mtu in mtu(),
        factor in prop_oneof![1u32..100, Just(1 << 19)],
        choice in any::<proptest::sample::Index>(),
    ) {
        let shape = Shape { class: Class::Read, length, mtu, chunk: mtu * factor };
        let index = choice.index(shape.packets() as usize) as u32;
        let part = shape.read_part(index);
        let (start, size, chunk) =
            (u64::from(part.offset), u64::from(part.length), u64::from(shape.chunk));
        prop_assert_eq!(start, u64::from(index) * u64::from(mtu));
        let end = ((start / chunk + 1) * chunk).min(length.into());
        prop_assert_eq!(start + size, end.max(start));
        prop_assert_eq!(u64::from(part.packets), size.div_ceil(mtu.into()).max(1));
        prop_assert_eq!(u64::from(shape.messages()), u64::from(length).div_ceil(chunk).max(1));
    }
}

#[test]
fn what_is_no_stretch_of_bytes_takes_one_number_or_none() {
    for mtu in MTUS {
        for (class, length, packets, messages) in [
            (Class::Atomic, 8, 1, 1),
            (Class::AtomicWrite, 8, 1, 1),
            (Class::Flush, 0, 1, 1),
            (Class::Local, 0, 0, 0),
        ] {
            let shape = Shape { class, length: class.length(length), mtu, chunk: mtu };
            assert_eq!((shape.packets(), shape.messages()), (packets, messages), "{class:?}");
        }
    }
}
