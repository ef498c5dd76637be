//! Tasks that wait for something without a thread of their own.
//!
//! ```text
//!   a waiting task                      whoever brings what is waited for
//!   look: nothing there                 put it there
//!   register, fence                     fence
//!   look again ── there: done           anybody registered? then, outside all locks: wake
//!        └── nothing: pending
//! ```
//!
//! Of the two fences one comes first: either the second look finds it, or the bringer finds the
//! registration. All who wait are woken at once and register anew if they find nothing, so that a
//! task which is dropped between being woken and looking takes nothing away from the others.

use std::task::Waker;

use super::sync::{AtomicBool, Mutex, Ordering, fence, lock};

/// See the module's text.
#[derive(Default)]
pub(crate) struct Wakers {
    /// Whether anybody may have registered since this was last taken.
    registered: AtomicBool,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    waiting: Vec<(u64, Waker)>,
    next_key: u64,
}

/// Names a registration; 0 is none.
#[derive(Debug, Default)]
pub(crate) struct WakerKey(u64);

impl Wakers {
    /// The task of `waker` wants to be woken; `key` holds its registration, old and new. The caller
    /// must look once more afterwards at what it waits for.
    pub(crate) fn register(&self, key: &mut WakerKey, waker: &Waker) {
        let mut list = lock(&self.list);
        let place = list.waiting.iter_mut().find(|(other, _)| *other == key.0);
        // Wakers are foreign code: what they do when they end happens outside the lock.
        let replaced = match place {
            Some((_, known)) if known.will_wake(waker) => None,
            Some((_, known)) => Some(std::mem::replace(known, waker.clone())),
            None => {
                list.next_key += 1;
                key.0 = list.next_key;
                list.waiting.push((key.0, waker.clone()));
                None
            }
        };
        self.registered.store(true, Ordering::SeqCst);
        drop(list);
        drop(replaced);
        fence(Ordering::SeqCst);
    }

    /// The task does not wait any more.
    pub(crate) fn forget(&self, key: &mut WakerKey) {
        if key.0 == 0 {
            return;
        }
        let mut list = lock(&self.list);
        let place = list.waiting.iter().position(|(other, _)| *other == key.0);
        let removed = place.map(|place| list.waiting.swap_remove(place));
        key.0 = 0;
        drop(list);
        drop(removed);
    }

    /// After something was put where tasks look for it, and a fence: whether [`Self::wake`] has to
    /// be called. True once for all registrations so far.
    pub(crate) fn must_wake(&self) -> bool {
        self.registered.load(Ordering::SeqCst) && self.registered.swap(false, Ordering::SeqCst)
    }

    /// Wakes all who wait. Outside all locks.
    pub(crate) fn wake(&self) {
        let mut woken = std::mem::take(&mut lock(&self.list).waiting);
        for (_, waker) in woken.drain(..) {
            waker.wake();
        }
        // Keeps the storage, if nobody has begun another list.
        let mut list = lock(&self.list);
        if list.waiting.capacity() == 0 {
            list.waiting = woken;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn all_who_are_registered_are_woken_once_and_nobody_else() {
        let wakers = Wakers::default();
        assert!(!wakers.must_wake());
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
        let mut keys: Vec<WakerKey> = (0..3).map(|_| WakerKey::default()).collect();
        for (count, key) in counts.iter().zip(&mut keys) {
            let waker = Waker::from(Arc::clone(count));
            wakers.register(key, &waker);
            // Again, as a task that is polled without reason does.
            wakers.register(key, &waker);
        }
        wakers.forget(&mut keys[1]);
        assert!(wakers.must_wake());
        assert!(!wakers.must_wake(), "once");
        wakers.wake();
        wakers.wake();
        let woken: Vec<usize> = counts.iter().map(|count| count.0.load(Ordering::SeqCst)).collect();
        assert_eq!(woken, [1, 0, 1]);
        // A key that was used up is not somebody else's.
        let other = Arc::<Count>::default();
        let mut other_key = WakerKey::default();
        wakers.register(&mut other_key, &Waker::from(Arc::clone(&other)));
        wakers.forget(&mut keys[0]);
        wakers.wake();
        assert_eq!(other.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_task_that_moved_to_another_executor_is_woken_there() {
        let wakers = Wakers::default();
        let (old, new) = (Arc::<Count>::default(), Arc::<Count>::default());
        let mut key = WakerKey::default();
        wakers.register(&mut key, &Waker::from(Arc::clone(&old)));
        wakers.register(&mut key, &Waker::from(Arc::clone(&new)));
        wakers.wake();
        assert_eq!((old.0.load(Ordering::SeqCst), new.0.load(Ordering::SeqCst)), (0, 1));
    }
}
