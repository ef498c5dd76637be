//! Extended reliable connections (XRC): domains, shared receive queues that requests name, and the
//! targets that serve them. Nothing here is on the data path.
//!
//! ```text
//!   XRC domain ──┬── XRC shared receive queue 1 ── protection domain, completion queue
//!                ├── XRC shared receive queue 2 ── …
//!                └── XRC TGT queue pair ◀─────── requests of an XRC INI queue pair: "for queue 2"
//! ```

use std::collections::HashMap;

use super::{ControlError, Engine};
use crate::memory::DomainId;
use crate::queue::sync::Arc;
use crate::queue::{
    CompletionQueue, QueueCapacities, QueuePairKind, QueuePairQueues, ReceiveQueue, Sharing,
    XrcDomainId, XrcPart,
};
use crate::rng::Rng;
use crate::wire::{Qpn, Srqn};

/// The file that stands for an XRC domain: who opens the same file shares the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XrcFile {
    /// Number of its file system's device.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// How an XRC domain is opened (`ibv_open_xrcd`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XrcOpen {
    /// The file that stands for it. Without one the domain is new and nobody else can open it.
    pub file: Option<XrcFile>,
    /// A domain that does not exist yet is made (O_CREAT).
    pub create: bool,
    /// A domain that exists already is refused (O_EXCL).
    pub exclusive: bool,
}

/// What an XRC shared receive queue is made with.
#[derive(Clone)]
pub struct XrcQueueOptions {
    /// Where the keys of its receives count, and those of the requests that name it.
    pub domain: DomainId,
    /// Whose targets may reach it.
    pub xrc_domain: XrcDomainId,
    /// Where its completions go, whichever target took the receive.
    pub completions: Arc<CompletionQueue>,
    /// Receives, at least 1; rounded up to a power of two.
    pub requests: u32,
    /// Segments in a receive.
    pub segments: u32,
}

#[derive(Debug)]
struct XrcDomain {
    file: Option<XrcFile>,
    /// Openings that were not closed.
    openings: u32,
}

/// XRC domains, and who uses the targets in them.
#[derive(Debug, Default)]
pub(super) struct XrcDomains {
    domains: HashMap<XrcDomainId, XrcDomain>,
    last: u32,
    /// Openings of each target that were not closed.
    targets: HashMap<Qpn, u32>,
    last_queue: u32,
}

impl XrcDomains {
    /// Shared receive queue numbers begin at random.
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self { last_queue: rng.next_u32(), ..Self::default() }
    }

    fn check(&self, domain: XrcDomainId) -> Result<(), ControlError> {
        let known = self.domains.contains_key(&domain);
        known.then_some(()).ok_or(ControlError::NoSuchXrcDomain)
    }

    fn with_file(&self, file: XrcFile) -> Option<XrcDomainId> {
        let mut domains = self.domains.iter();
        domains.find(|(_, domain)| domain.file == Some(file)).map(|(id, _)| *id)
    }

    /// One user of a target less. Returns whether it was the last one.
    pub(super) fn release_target(&mut self, number: Qpn) -> bool {
        let Some(openings) = self.targets.get_mut(&number) else { return true };
        *openings -= 1;
        let last = *openings == 0;
        if last {
            self.targets.remove(&number);
        }
        last
    }
}

impl Engine {
    /// Opens an XRC domain. Each opening has to be closed once.
    ///
    /// # Errors
    /// The domain of the file does not exist and is not to be made, or exists and must not; or a
    /// limit of the device.
    pub fn open_xrc_domain(&mut self, open: &XrcOpen) -> Result<XrcDomainId, ControlError> {
        if let Some(id) = open.file.and_then(|file| self.xrc.with_file(file)) {
            if open.exclusive {
                return Err(ControlError::XrcDomainExists);
            }
            if let Some(domain) = self.xrc.domains.get_mut(&id) {
                domain.openings += 1;
            }
            return Ok(id);
        }
        if open.file.is_some() && !open.create {
            return Err(ControlError::NoXrcDomainOfFile);
        }
        let limit = self.options.limits.xrc_domains;
        if self.xrc.domains.len() >= limit as usize {
            return Err(ControlError::Limit { what: "XRC domains", limit });
        }
        self.xrc.last += 1;
        let id = XrcDomainId(self.xrc.last);
        self.xrc.domains.insert(id, XrcDomain { file: open.file, openings: 1 });
        Ok(id)
    }

    /// Closes one opening of an XRC domain; with the last the domain ends.
    ///
    /// # Errors
    /// There is no such domain, or this is its last opening and shared receive queues or targets
    /// still lie in it.
    pub fn close_xrc_domain(&mut self, id: XrcDomainId) -> Result<(), ControlError> {
        let openings = self.xrc.domains.get(&id).map(|domain| domain.openings);
        if openings.ok_or(ControlError::NoSuchXrcDomain)? == 1 {
            let queues = self.shared_queues.count_in_xrc(id);
            let in_it = |pair: &&crate::transport::QueuePair| pair.base.xrc_domain == Some(id);
            let targets = self.live_pairs().filter(in_it).count();
            if queues + targets > 0 {
                return Err(ControlError::XrcDomainBusy { queues, targets });
            }
            self.xrc.domains.remove(&id);
        } else if let Some(domain) = self.xrc.domains.get_mut(&id) {
            domain.openings -= 1;
        }
        Ok(())
    }

    /// A new XRC shared receive queue; it has a number, by which requests name it.
    ///
    /// # Errors
    /// Unknown domains or completion queue, sizes out of range, or a limit of the device.
    pub fn create_xrc_shared_receive_queue(
        &mut self,
        options: &XrcQueueOptions,
    ) -> Result<Arc<ReceiveQueue>, ControlError> {
        self.xrc.check(options.xrc_domain)?;
        self.position_of(&options.completions)?;
        let number = self.next_shared_number();
        let sharing = Sharing {
            domain: options.domain,
            xrc: Some(XrcPart {
                number,
                domain: options.xrc_domain,
                completions: Arc::clone(&options.completions),
            }),
        };
        self.add_shared_queue(options.requests, options.segments, sharing)
    }

    /// The next unused shared receive queue number. 0 and the largest are never given.
    fn next_shared_number(&mut self) -> Srqn {
        loop {
            self.xrc.last_queue = self.xrc.last_queue.wrapping_add(1);
            let number = Srqn::new(self.xrc.last_queue);
            let reserved = matches!(number.value(), 0 | 0xff_ffff);
            if !reserved && !self.shared_queues.has_number(number) {
                return number;
            }
        }
    }

    /// A new XRC TGT queue pair, in RESET: the receiving end of a connection, with no queues of its
    /// own. It is in use once until [`Engine::destroy_queue_pair`].
    ///
    /// # Errors
    /// There is no such XRC domain, or a limit of the device.
    pub fn create_xrc_target(
        &mut self,
        domain: XrcDomainId,
    ) -> Result<Arc<QueuePairQueues>, ControlError> {
        self.xrc.check(domain)?;
        let nowhere = Arc::new(CompletionQueue::new(1));
        let queues = self.add_pair(super::control::NewPair {
            kind: QueuePairKind::XrcTarget,
            domain: DomainId::NONE,
            completions: (Arc::clone(&nowhere), nowhere),
            capacities: QueueCapacities::NONE,
            signal_all: false,
            shared: None,
            xrc_domain: Some(domain),
        })?;
        self.xrc.targets.insert(queues.number(), 1);
        Ok(queues)
    }

    /// Another use of an XRC TGT queue pair, by its number (`ibv_open_qp`): as long as one is left,
    /// [`Engine::destroy_queue_pair`] ends only a use.
    ///
    /// # Errors
    /// There is no such XRC domain, or no target of that number in it.
    pub fn open_xrc_target(
        &mut self,
        domain: XrcDomainId,
        number: Qpn,
    ) -> Result<Arc<QueuePairQueues>, ControlError> {
        self.xrc.check(domain)?;
        let missing = ControlError::NoSuchTarget(number);
        let slot = self.slot_of(number).map_err(|_| missing.clone())?;
        let pair = self.pairs[slot as usize].as_ref();
        let pair = pair.filter(|pair| pair.base.xrc_domain == Some(domain)).ok_or(missing)?;
        *self.xrc.targets.entry(number).or_insert(0) += 1;
        Ok(Arc::clone(&pair.base.queues))
    }
}
