//! Lessons about queues, states and what applications are told.

use std::net::IpAddr;
use std::sync::Arc;

use uroce::engine::{ControlError, GroupError};
use uroce::queue::CompletionStatus::{Success, WorkRequestFlushed};
use uroce::queue::QueuePairState::Error;
use uroce::queue::{QueuePairAttributes, QueuePairKind};
use uroce::wire::NakCode;

use crate::harness::{SERVED, Setup, ack, nak, story, theirs, write_only};

#[test]
fn lesson_30_an_error_flushes_both_queues() {
    story(|s| {
        for id in 0..3 {
            s.post_receive(id, 8);
            s.post_write(id, 8);
        }
        while s.next_sent().is_some() {}
        s.deliver(nak(0, 0, NakCode::RemoteAccessError));
        s.expect_sent(0, uroce::queue::CompletionStatus::RemoteAccessError);
        for id in 0..3 {
            if id > 0 {
                s.expect_sent(id, WorkRequestFlushed);
            }
            s.expect_received(id, WorkRequestFlushed);
        }
        s.expect_dead();
    });
}

#[test]
fn lesson_35_what_is_in_use_cannot_be_destroyed() {
    story(|s| {
        for queue in [Arc::clone(&s.send_completions), Arc::clone(&s.receive_completions)] {
            let refused = s.engine.destroy_completion_queue(&queue);
            assert_eq!(refused, Err(ControlError::CompletionQueueBusy { users: 1 }));
        }
        s.deliver(write_only(0, s.reth(SERVED, 8), &theirs(0, 8)).asking());
        s.expect(ack(0, 1));
    });
    // Nor can a queue pair in a multicast group (C11-17, o10-2.2.3).
    let setup = Setup { kind: QueuePairKind::Ud, ..Setup::default() };
    setup.tell(|s| {
        let (number, group) = (s.number(), IpAddr::from([239, 1, 2, 3]));
        s.engine.attach_multicast(number, group).unwrap();
        let refused = s.engine.destroy_queue_pair(number);
        assert_eq!(refused, Err(GroupError::Attached { number, groups: 1 }.into()));
        s.engine.detach_multicast(number, group).unwrap();
        assert_eq!(s.engine.destroy_queue_pair(number), Ok(()));
    });
}

#[test]
fn lesson_39_a_completion_after_arming_always_notifies() {
    // The race itself is loom's; here: whatever happens before the arming does not count, and
    // whatever happens after it does, once.
    struct Count(Arc<std::sync::atomic::AtomicUsize>);
    impl uroce::queue::Notify for Count {
        fn notify(&self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
    story(|s| {
        let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        s.send_completions.set_notifier(Box::new(Count(Arc::clone(&calls))));
        for round in 0..100 {
            s.send_completions.arm(round % 2 == 1);
            s.post_write(round, 8);
            s.next_sent().expect("the WRITE");
            s.deliver(ack(round as i32, round as u32 + 1));
            s.expect_sent(round, Success);
        }
        // Armed for solicited only, a plain success leaves it armed; the next arming widens that.
        assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 50);
    });
}

#[test]
fn lesson_41_query_tells_every_attribute_and_the_present_state() {
    // The queue pair's part; the device's comes with `query_device`.
    story(|s| {
        let shown = s.engine.query_queue_pair(s.number()).unwrap().attributes;
        assert_eq!(shown.current_state, Some(s.state()));
        assert_eq!(shown.state, Some(s.state()));
        assert_eq!(shown.timeout, Some(s.setup.timeout));
        assert_eq!(shown.max_rd_atomic, Some(s.setup.max_rd_atomic));
        assert_eq!(shown.access, Some(s.setup.access));
        s.modify(&QueuePairAttributes::to_state(Error)).unwrap();
        let shown = s.engine.query_queue_pair(s.number()).unwrap().attributes;
        assert_eq!(shown.current_state, Some(Error));
    });
}
