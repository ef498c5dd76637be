//! What `uroce dump` does with a frame: taken apart, every ICRC judged, counted or written as JSON.
//! The frames are those of the kernel's captures with long messages, 1.15 KB each on average. Reports
//! frames a second on one core; reading the file is not in it.

#![allow(missing_docs, reason = "the group macro makes a public function")]

use std::fs::File;
use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use uroce::dissect::{Dissector, Summary, json};
use uroce::pcap::{LinkType, Reader};

const CAPTURES: [&str; 3] = ["rc-write-long", "rc-read-long", "rc-mtu4096"];

fn frames() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcap-samples/rxe");
    let mut frames = Vec::new();
    for name in CAPTURES {
        let file = File::open(folder.join(format!("{name}.pcap"))).expect("the samples are there");
        let mut reader = Reader::new(file).expect("a capture");
        while let Some(record) = reader.next() {
            frames.push(record.expect("an undamaged file").data.to_vec());
        }
    }
    frames
}

fn dump(criterion: &mut Criterion) {
    let frames = frames();
    let mut group = criterion.benchmark_group("dump");
    group.throughput(Throughput::Elements(frames.len() as u64));
    group.bench_function("summary", |bencher| {
        let mut dissector = Dissector::new();
        bencher.iter(|| {
            let mut summary = Summary::default();
            for frame in &frames {
                let length = frame.len() as u32;
                summary.count(&dissector.dissect(LinkType::ETHERNET, length, frame));
            }
            assert_eq!(summary.icrc_ok, frames.len() as u64);
            black_box(summary)
        });
    });
    group.bench_function("json", |bencher| {
        let mut dissector = Dissector::new();
        let mut out = Vec::new();
        bencher.iter(|| {
            out.clear();
            for (index, bytes) in frames.iter().enumerate() {
                let frame = dissector.dissect(LinkType::ETHERNET, bytes.len() as u32, bytes);
                let position = json::Position { frame: index as u64 + 1, ..Default::default() };
                for packet in frame.packets() {
                    json::write(&mut out, &position, &frame, Some(&packet));
                }
            }
            black_box(out.len())
        });
    });
    group.finish();
}

criterion_group!(benches, dump);
criterion_main!(benches);
