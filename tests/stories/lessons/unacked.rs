//! Lessons about transports without acknowledgements, and about what is shared.

use std::fs;
use std::path::{Path, PathBuf};

use uroce::engine::Counter;
use uroce::queue::CompletionStatus::Success;
use uroce::queue::QueuePairState::Rts;
use uroce::queue::{AddressVector, Datagram, QueuePairKind, SendFlags, SendOperation};
use uroce::wire::{Immediate, Qpn};

use crate::harness::{PEER, QKEY, RECEIVE, SOURCE, Setup, ours, peer, send_only, theirs};

const MTU: usize = 1024;

#[test]
fn lesson_09_a_datagram_longer_than_its_receive_is_dropped_and_the_next_one_awaited() {
    let setup = Setup { kind: QueuePairKind::Ud, ..Setup::default() };
    setup.tell(|s| {
        s.post_receive(1, 40 + 8);
        for length in [9, 16, 1024] {
            s.deliver(send_only(0, &theirs(0, length)).ud(QKEY, 7));
        }
        s.expect_nothing();
        assert_eq!(s.state(), Rts);
        assert_eq!(s.count(Counter::DropFaultyRequest), 3);
        assert_eq!(s.bytes(RECEIVE, 48), ours(RECEIVE, 48));
        s.deliver(send_only(0, &theirs(0, 8)).ud(QKEY, 7));
        assert_eq!(s.expect_received(1, Success).length, 48);
    });
}

#[test]
fn lesson_10_only_reliable_connections_ask_for_acknowledgements() {
    let immediate = Immediate([1; 4]);
    // Everything that has AckReq on its last packet, and inside of a long message, on RC.
    for kind in [QueuePairKind::Rc, QueuePairKind::Uc] {
        let setup = Setup { kind, ..Setup::default() };
        let mut s = crate::harness::Story::new(setup);
        let operations = [
            SendOperation::Send,
            SendOperation::SendWithImmediate(immediate),
            SendOperation::Write(peer(0)),
            SendOperation::WriteWithImmediate(peer(0), immediate),
        ];
        let segments = [s.sge(SOURCE, 60 * MTU)];
        for (id, operation) in operations.into_iter().enumerate() {
            s.post(id as u64, operation, SendFlags::SIGNALED, &segments);
        }
        let mut asking = 0;
        while let Some(sent) = s.next_sent() {
            // The bit itself: the first of BTH byte 8.
            asking += u32::from(sent.bytes[8] >> 7);
            assert_eq!(sent.bytes[8] & 0x7f, 0);
        }
        assert_eq!(asking > 0, kind == QueuePairKind::Rc, "{kind}: {asking} packets ask");
    }
    let setup = Setup { kind: QueuePairKind::Ud, ..Setup::default() };
    setup.tell(|s| {
        let vector = AddressVector::new(0, s.setup.peer_address(0));
        let address = s.engine.create_address_handle(s.domain, &vector).unwrap();
        let to = Datagram { address, queue_pair: Qpn::new(PEER), qkey: QKEY };
        for immediate in [None, Some(immediate)] {
            let segments = [s.sge(SOURCE, 8)];
            let send = SendOperation::SendTo { to, immediate };
            s.post(1, send, SendFlags::SIGNALED, &segments);
            assert_eq!(s.next_sent().expect("the datagram").bytes[8], 0);
            s.expect_sent(1, Success);
        }
    });
}

#[test]
fn lesson_43_no_ring_is_shared_with_another_process() {
    // Rings are ordinary memory of the process whose engine reads them, so nobody on the other side
    // of a boundary can change an entry after it was checked. That stays so as long as nothing but
    // registered memory, which peers write anyway, can be another process's, too.
    let shared = ["MAP_SHARED", "memfd_create", "shm_open", "shmget", "/dev/shm"];
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = 0;
    // What is mapped there is what peers write to: data, like all registered memory.
    let payload = source.join("memory/file.rs");
    assert!(payload.exists());
    for file in rust_files(&source).into_iter().filter(|file| *file != payload) {
        let text = fs::read_to_string(&file).expect("source files are text");
        files += 1;
        for word in shared {
            assert!(!text.contains(word), "{} mentions {word}", file.display());
        }
    }
    assert!(files > 100, "{files} files were read");
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of src").map(|entry| entry.unwrap().path());
    let parts = entries.map(|path| match path.is_dir() {
        true => rust_files(&path),
        false => vec![path],
    });
    parts.flatten().filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}
