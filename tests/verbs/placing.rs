//! ATOMIC WRITE, FLUSH and credits over real sockets.

use std::fs::OpenOptions;

use uroce::software::DeviceOptions;
use uroce::verbs::{
    Access, CompletionKind, CompletionStatus, ConnectOptions, Context, Counter, FlushPlacement,
    FlushSelectivity, OwnedMemory, Payload, PostError, RegisterError, Remote, SendFlags,
    SendOperation, SendRequest, connect_pair,
};

use super::setup::{End, LONG, MEMORY, context, ends, open, options};

fn post(end: &End, id: u64, operation: SendOperation) -> Result<(), PostError> {
    let (flags, payload) = (SendFlags::SIGNALED, Payload::EMPTY);
    end.pair.post_send(&SendRequest { id, operation, flags, payload })
}

fn flush(remote: Remote, length: u32, placement: FlushPlacement) -> SendOperation {
    SendOperation::Flush { remote, length, placement, selectivity: FlushSelectivity::Range }
}

fn expect(end: &End, id: u64, kind: CompletionKind) {
    let completion = end.completions.wait_one(LONG).unwrap();
    assert_eq!((completion.id, completion.kind), (id, kind));
    assert_eq!(completion.status, CompletionStatus::Success);
}

#[test]
fn a_log_is_written_flushed_and_committed_in_order() {
    let (writer, log) = ends(41);
    let capabilities = context(41).placement();
    assert!(capabilities.atomic_write && capabilities.flush_global);
    for entry in 1..=200_u64 {
        let record = vec![entry as u8; 3_000];
        writer.memory.write(0, &record).unwrap();
        let target = log.memory.remote(4096);
        writer.pair.post(1, SendOperation::Write(target), writer.memory.segment(0, 3_000)).unwrap();
        post(&writer, 2, flush(target, 3_000, FlushPlacement::GlobalVisibility)).unwrap();
        let (remote, value) = (log.memory.remote(0), entry.to_ne_bytes());
        post(&writer, 3, SendOperation::AtomicWrite { remote, value }).unwrap();
        // Whoever sees the number sees the record.
        while log.memory.load_u64(0).unwrap() != entry {
            std::hint::spin_loop();
        }
        assert_eq!(log.memory.to_vec(4096, 3_000).unwrap(), record);
        expect(&writer, 1, CompletionKind::Write);
        expect(&writer, 2, CompletionKind::Flush);
        expect(&writer, 3, CompletionKind::AtomicWrite);
    }
}

#[test]
fn a_flush_for_persistence_reaches_the_file() {
    let all = Access::ALL | Access::FLUSH_PERSISTENT;
    let (one, other) = (End::new(&context(42)), End::new(&context(42)));
    let connect = ConnectOptions { access: all, ..ConnectOptions::default() };
    connect_pair(&one.pair, &other.pair, &connect).unwrap();
    let path = std::env::temp_dir().join(format!("uroce-verbs-flush-{}", std::process::id()));
    let mut open = OpenOptions::new();
    let file = open.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.set_len(MEMORY as u64).unwrap();
    let mapped = OwnedMemory::map_file(&file, MEMORY).unwrap();
    let region = other.domain.register(mapped, all).unwrap();
    one.memory.write(0, b"survives").unwrap();
    let target = region.remote(5_000);
    one.pair.post(1, SendOperation::Write(target), one.memory.segment(0, 8)).unwrap();
    post(&one, 2, flush(target, 8, FlushPlacement::VisibilityAndPersistence)).unwrap();
    expect(&one, 1, CompletionKind::Write);
    expect(&one, 2, CompletionKind::Flush);
    assert_eq!(std::fs::read(&path).unwrap()[5_000..5_008], *b"survives");
    std::fs::remove_file(&path).unwrap();
    // Memory that no file backs cannot promise it.
    let refused = other.domain.allocate(64, all).unwrap_err();
    assert!(refused.to_string().contains(&RegisterError::NotPersistent.to_string()), "{refused}");
    post(&one, 3, flush(other.memory.remote(0), 8, FlushPlacement::Persistence)).unwrap();
    let completion = one.completions.wait_one(LONG).unwrap();
    assert_eq!(completion.status, CompletionStatus::RemoteAccessError);
}

#[test]
fn what_carries_its_own_bytes_takes_no_local_data() {
    let (one, other) = ends(43);
    let operation = SendOperation::AtomicWrite { remote: other.memory.remote(0), value: [1; 8] };
    let refused = one.pair.post(1, operation, one.memory.segment(0, 8));
    assert_eq!(refused, Err(PostError::NoLocalData(8)));
}

/// The receiver tells its credits, and posts most of its receives late.
fn late_receives(last: u8) -> (Context, Context) {
    let receiving = DeviceOptions { finite_credits: true, ..options(last) };
    let (sender, receiver) = (context(last), open(&receiving));
    let (one, other) = (End::new(&sender), End::new(&receiver));
    let connect = ConnectOptions { min_rnr_timer: 1, ..ConnectOptions::default() };
    connect_pair(&one.pair, &other.pair, &connect).unwrap();
    (0..4).for_each(|id| other.receive(id));
    // Its answer tells how many receives there are.
    one.pair
        .post(100, SendOperation::Write(other.memory.remote(0)), one.memory.segment(0, 8))
        .unwrap();
    assert_eq!(one.good(), 100);
    for id in 0..32 {
        one.pair.post(id, SendOperation::Send, one.memory.segment(0, 8)).unwrap();
    }
    (0..4).for_each(|id| assert_eq!(one.good(), id));
    for id in 4..32 {
        other.receive(id);
        assert_eq!(one.good(), id);
    }
    (sender, receiver)
}

#[test]
fn told_credits_keep_messages_back_that_would_find_no_receive() {
    let (sender, _receiver) = late_receives(44);
    let counters = sender.counters().unwrap().engine;
    let count = |counter| counters.get(counter);
    let asked =
        count(Counter::ReceivedRnrNak) + count(Counter::Probe) + count(Counter::LocalAckTimeout);
    let again = count(Counter::RetransmittedPackets);
    // One packet finds out; a probe may have been early for each of the four under way.
    assert!(again <= 4 * asked, "{again} packets again for {asked} that were asked for");
}
