//! Memory that someone else owns, registered in place, of any alignment.
#![allow(unsafe_code)]

use std::time::Duration;

use uroce::verbs::{
    Access, CompletionStatus, ConnectOptions, QueuePairOptions, SendOperation, VerbsError,
    connect_pair, open,
};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn foreign_memory_of_any_alignment_is_written_in_place_and_nothing_beside_it() {
    let context = open("lo").unwrap();
    let domain = context.allocate_domain().unwrap();
    let completions = context.create_completion_queue(16).unwrap();
    let pairs =
        [0, 1].map(|_| domain.create_queue_pair(&QueuePairOptions::new(&completions)).unwrap());
    connect_pair(&pairs[0], &pairs[1], &ConnectOptions::default()).unwrap();
    let source = domain.allocate(10_000, Access::NONE).unwrap();
    let pattern: Vec<u8> = (0..10_000_usize).map(|index| (index % 251) as u8).collect();
    source.write(0, &pattern).unwrap();

    let storage = Box::leak(vec![0xee_u8; 10_010].into_boxed_slice());
    let start = storage.as_mut_ptr();
    // SAFETY: the storage is leaked, so it stays mapped, and it is read through `start` only.
    let target = unsafe { domain.register_foreign(start.add(3), 10_000, Access::ALL) }.unwrap();
    pairs[0].post(1, SendOperation::Write(target.remote(0)), source.segment(0, 10_000)).unwrap();
    let done = completions.wait_one(PATIENCE).unwrap();
    assert_eq!(done.status, CompletionStatus::Success);
    // SAFETY: the transfer is over, so nothing else touches the storage now.
    let bytes = unsafe { std::slice::from_raw_parts(start, 10_010) };
    assert_eq!(bytes[3..10_003], pattern);
    assert!(bytes[..3].iter().chain(&bytes[10_003..]).all(|byte| *byte == 0xee));
}

#[test]
fn what_is_not_mapped_or_not_writable_cannot_be_registered() {
    let context = open("lo").unwrap();
    let domain = context.allocate_domain().unwrap();
    // SAFETY: refused, so nothing is registered.
    let unmapped = unsafe { domain.register_foreign(8 as *mut u8, 8, Access::NONE) };
    let error = unmapped.unwrap_err();
    assert!(matches!(error, VerbsError::Mapping(_)));
    assert_eq!(error.to_string(), "address 0x8 is not mapped in this process (EFAULT)");
    let text = "in read-only memory";
    // SAFETY: refused, so nothing is registered.
    let read_only =
        unsafe { domain.register_foreign(text.as_ptr().cast_mut(), text.len(), Access::ALL) };
    assert!(read_only.unwrap_err().to_string().contains("without the right to write"));
}
