//! Packets alone: the ICRC made and judged by size, headers read and written by kind. Reports bytes
//! or packets a second.

#![allow(missing_docs, reason = "the group macro makes a public function")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use uroce::wire::icrc::{self, DONT_FRAGMENT, Verdict};
use uroce::wire::{
    Aeth, AtomicEth, Credits, Deth, Flow, Headers, ICRC_LENGTH, Identification, Immediate, Message,
    Msn, Packet, Psn, QKey, Qpn, ReceivedBurst, Reth, Rkey, SendTail, Service, Syndrome,
};

/// Packets of a burst.
const BURST: usize = 16;

fn flow() -> Flow {
    let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    Flow { source: address(1), destination: address(2), source_port: 0xc123 }
}

/// UDP payload of so many bytes with a right ICRC.
fn signed(length: usize, identification: u16) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
    let end = length - ICRC_LENGTH;
    let icrc = icrc::of_datagram(&flow(), identification, DONT_FRAGMENT, &bytes[..end]);
    bytes[end..].copy_from_slice(&icrc);
    bytes
}

fn icrcs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("icrc");
    for size in [64, 256, 1024, 4096] {
        group.throughput(Throughput::Bytes(size as u64));
        let packet = signed(size, 0);
        group.bench_function(BenchmarkId::new("make", size), |bencher| {
            let bytes = &packet[..size - ICRC_LENGTH];
            bencher.iter(|| icrc::of_datagram(&flow(), 0, DONT_FRAGMENT, black_box(bytes)));
        });
        group.throughput(Throughput::Bytes((BURST * size) as u64));
        for (name, first) in [("judge burst", 0), ("judge burst, recovering", 0x8000)] {
            let packets = (0..BURST).map(|index| signed(size, first + index as u16));
            let bytes: Vec<u8> = packets.flatten().collect();
            let burst = ReceivedBurst {
                flow: flow(),
                traffic_class: 0,
                identification: Identification::Unseen,
                segment: size,
                bytes: &bytes,
            };
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| {
                    for (index, segment) in black_box(&burst).segments().enumerate() {
                        let verdict = icrc::judge(&burst, index, segment, false);
                        assert_ne!(black_box(verdict), Verdict::Wrong);
                    }
                });
            });
        }
    }
    group.finish();
}

/// A packet of each kind, with as much payload as it may have.
fn kinds() -> Vec<(&'static str, Service, Message, usize)> {
    let reth = Reth { address: 0x1000, key: Rkey::new(7), length: 1024 };
    let aeth = Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: Msn::new(5) };
    let atomic = AtomicEth { address: 0x1000, key: Rkey::new(7), swap_or_add: 1, compare: 2 };
    let deth = Deth { qkey: QKey::new(0x1111), reserved: 0, source: Qpn::new(9) };
    let immediate = SendTail::Immediate(Immediate([1, 2, 3, 4]));
    vec![
        ("send middle", Service::Rc, Message::SendMiddle, 1024),
        ("send with immediate", Service::Rc, Message::SendOnly(immediate), 1024),
        ("write", Service::Rc, Message::WriteOnly(reth, None), 1024),
        ("read request", Service::Rc, Message::ReadRequest(reth), 0),
        ("read response", Service::Rc, Message::ReadResponseOnly(aeth), 1024),
        ("acknowledge", Service::Rc, Message::Acknowledge(aeth), 0),
        ("atomic", Service::Rc, Message::CompareSwap(atomic), 0),
        ("datagram", Service::Ud(deth), Message::SendOnly(SendTail::Plain), 1024),
    ]
}

fn packets(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("packet");
    group.throughput(Throughput::Elements(1));
    for (name, service, message, length) in kinds() {
        let headers = Headers::request(service, message, Qpn::new(0x1234), Psn::new(77));
        let mut bytes = vec![0; headers.length() + length + ICRC_LENGTH];
        headers.emit(&mut bytes, length);
        assert_eq!(Packet::parse(&bytes).map(|packet| packet.headers), Ok(headers));
        group.bench_function(BenchmarkId::new("emit", name), |bencher| {
            bencher.iter(|| black_box(&headers).emit(black_box(&mut bytes), length));
        });
        group.bench_function(BenchmarkId::new("parse", name), |bencher| {
            bencher.iter(|| black_box(Packet::parse(black_box(&bytes))).is_ok());
        });
    }
    group.finish();
}

criterion_group!(benches, icrcs, packets);
criterion_main!(benches);
