//! What memory windows grant, to whom, and until when.
//!
//! A grant begins when its binding was carried out and ends when either side has invalidated it, or
//! its connection is over. A request that succeeds through a window must have been posted before
//! that, to the right queue pair, and must keep to the grant.

use std::collections::BTreeMap;

use crate::queue::Access;

use super::{Oracle, Place, QueueId, Rule, Violation};

/// One of the windows that the oracle knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowNumber(pub usize);

/// What a posted request has to do with a window. Keys are numbers without meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowUse {
    /// It binds the window.
    Bind {
        /// Its key from then on.
        key: u32,
        /// What may be reached.
        place: Place,
        /// How.
        rights: Access,
    },
    /// It goes through the peer's window.
    Access {
        /// By this key.
        key: u32,
        /// To this place.
        place: Place,
        /// And needs this right.
        right: Access,
    },
    /// It ends what the own window grants.
    Invalidate {
        /// By this key.
        key: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    key: u32,
    /// The queue pair that bound it; its peer may use it.
    owner: QueueId,
    place: Place,
    rights: Access,
    /// When it was seen to have ended.
    ended: Option<u64>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Grants {
    /// Of each window all grants, oldest first.
    windows: Vec<Vec<Grant>>,
    /// What posted requests have to do with windows, and when they were posted.
    posted: BTreeMap<(QueueId, u64), (WindowNumber, WindowUse, u64)>,
}

impl Oracle {
    /// Watches one more window, which grants nothing.
    pub fn watch_window(&mut self) -> WindowNumber {
        self.grants.windows.push(Vec::new());
        WindowNumber(self.grants.windows.len() - 1)
    }

    /// Request `id`, which was just posted, has to do with a window.
    pub fn uses_window(&mut self, queue: QueueId, id: u64, window: WindowNumber, by: WindowUse) {
        let now = self.now;
        self.grants.posted.insert((queue, id), (window, by, now));
    }
}

impl Grants {
    /// A request of `queue`, whose peer is `peer`, has succeeded.
    pub(super) fn succeeded(
        &mut self,
        queue: QueueId,
        peer: QueueId,
        id: u64,
        now: u64,
    ) -> Result<(), Violation> {
        let Some((window, by, posted)) = self.posted.remove(&(queue, id)) else { return Ok(()) };
        let grants = &mut self.windows[window.0];
        let complain = |what: &str| {
            let text = format!("{queue}: request {id} succeeded, but {what}");
            Err(Violation::new(Rule::Grant, text))
        };
        match by {
            WindowUse::Bind { key, place, rights } => {
                if grants.last().is_some_and(|last| last.ended.is_none()) {
                    return complain("its window was bound before, and nobody has ended that");
                }
                grants.push(Grant { key, owner: queue, place, rights, ended: None });
                Ok(())
            }
            WindowUse::Invalidate { key } => match grants.last_mut() {
                Some(last) if last.ended.is_none() && last.key == key && last.owner == queue => {
                    last.ended = Some(now);
                    Ok(())
                }
                _ => complain("its window grants nothing under that key"),
            },
            WindowUse::Access { key, place, right } => {
                let lives = |grant: &&Grant| {
                    grant.key == key && grant.ended.is_none_or(|ended| ended >= posted)
                };
                match grants.iter().rev().find(lives) {
                    None => complain("its window granted nothing under that key any more"),
                    Some(grant) if grant.owner != peer => {
                        complain("the window was bound over another queue pair")
                    }
                    Some(grant) if !grant.rights.contains(right) => {
                        complain("the window does not grant that right")
                    }
                    Some(grant) if !contains(&grant.place, &place) => {
                        complain("it left the window")
                    }
                    Some(_) => Ok(()),
                }
            }
        }
    }

    /// A request was not carried out, as far as anyone knows.
    pub(super) fn failed(&mut self, queue: QueueId, id: u64) {
        self.posted.remove(&(queue, id));
    }

    /// A message has arrived at `queue` that invalidated a key.
    pub(super) fn invalidated(&mut self, queue: QueueId, key: u32, now: u64) {
        for last in self.windows.iter_mut().filter_map(|grants| grants.last_mut()) {
            if last.owner == queue && last.key == key && last.ended.is_none() {
                last.ended = Some(now);
            }
        }
    }

    /// A connection is over, and with it what was granted over it.
    pub(super) fn disconnected(&mut self, queue: QueueId, now: u64) {
        for last in self.windows.iter_mut().filter_map(|grants| grants.last_mut()) {
            if last.owner == queue {
                last.ended.get_or_insert(now);
            }
        }
    }
}

fn contains(outer: &Place, inner: &Place) -> bool {
    outer.memory == inner.memory
        && outer.offset <= inner.offset
        && inner.offset + inner.length <= outer.offset + outer.length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::oracle::MemoryId;

    const OWNER: QueueId = QueueId(0);
    const PEER: QueueId = QueueId(1);
    const STRANGER: QueueId = QueueId(2);
    const WINDOW: WindowNumber = WindowNumber(0);

    fn place(offset: usize, length: usize) -> Place {
        Place { memory: MemoryId(0), offset, length }
    }

    /// A window whose first 100 bytes may be read under key 7.
    fn bound() -> Grants {
        let mut grants = Grants { windows: vec![Vec::new()], ..Grants::default() };
        let rights = Access::REMOTE_READ;
        let bind = WindowUse::Bind { key: 7, place: place(0, 100), rights };
        grants.posted.insert((OWNER, 1), (WINDOW, bind, 1));
        assert_eq!(grants.succeeded(OWNER, PEER, 1, 2), Ok(()));
        grants
    }

    /// Whether the oracle accepts that an access succeeded that was posted at `posted`.
    fn accepts(
        grants: &mut Grants,
        (queue, peer): (QueueId, QueueId),
        key: u32,
        place: Place,
        right: Access,
        posted: u64,
    ) -> bool {
        let access = WindowUse::Access { key, place, right };
        grants.posted.insert((queue, 5), (WINDOW, access, posted));
        grants.succeeded(queue, peer, 5, 99).is_ok()
    }

    #[test]
    fn what_keeps_to_a_grant_may_succeed_and_nothing_else() {
        let mut grants = bound();
        let read = Access::REMOTE_READ;
        let peer = (PEER, OWNER);
        assert!(accepts(&mut grants, peer, 7, place(90, 10), read, 3));
        assert!(!accepts(&mut grants, peer, 7, place(91, 10), read, 3));
        assert!(!accepts(&mut grants, peer, 8, place(0, 10), read, 3));
        assert!(!accepts(&mut grants, peer, 7, place(0, 10), Access::REMOTE_WRITE, 3));
        assert!(!accepts(&mut grants, (STRANGER, QueueId(3)), 7, place(0, 10), read, 3));
    }

    #[test]
    fn a_grant_ends_for_what_is_posted_later() {
        let ends: [fn(&mut Grants); 3] = [
            |grants| grants.invalidated(OWNER, 7, 10),
            |grants| grants.disconnected(OWNER, 10),
            |grants| {
                let end = WindowUse::Invalidate { key: 7 };
                grants.posted.insert((OWNER, 2), (WINDOW, end, 9));
                assert_eq!(grants.succeeded(OWNER, PEER, 2, 10), Ok(()));
            },
        ];
        for end in ends {
            let mut grants = bound();
            let rebind = WindowUse::Bind { key: 8, place: place(0, 9), rights: Access::NONE };
            grants.posted.insert((OWNER, 3), (WINDOW, rebind, 3));
            assert!(grants.succeeded(OWNER, PEER, 3, 4).is_err(), "it is still bound");
            end(&mut grants);
            let read = Access::REMOTE_READ;
            assert!(accepts(&mut grants, (PEER, OWNER), 7, place(0, 1), read, 9));
            assert!(!accepts(&mut grants, (PEER, OWNER), 7, place(0, 1), read, 11));
            grants.posted.insert((OWNER, 4), (WINDOW, rebind, 12));
            assert_eq!(grants.succeeded(OWNER, PEER, 4, 13), Ok(()));
        }
    }
}
