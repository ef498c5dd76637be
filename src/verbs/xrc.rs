//! Extended reliable connections: one connection reaches many shared receive queues.
//!
//! ```text
//!   sends                                   serves
//!   QueuePair (XRC INI) ── connection ──▶ XrcTarget (XRC TGT) ──┐ in one XrcDomain
//!     post_send_to(number, request)                             ├─▶ SharedReceiveQueue `number`
//!                                                               └─▶ SharedReceiveQueue …
//! ```
//!
//! With as many processes on each of two hosts, each process needs one connection to the other host
//! instead of one to each process there. Here all ends of a domain are those of one opened device:
//! who shares a [`Context`] shares its domains, by the same file or by a clone of [`XrcDomain`].

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::connect::{self, ConnectOptions, Endpoint};
use super::{
    CompletionQueue, Context, ProtectionDomain, QueuePair, SharedReceiveQueue, VerbsError,
};
use crate::engine::{
    self, Counters, Engine, EventSubject, History, QueuePairStatus, XrcFile, XrcOpen,
};
use crate::queue::{
    Completion, QueuePairAttributes, QueuePairKind, QueuePairQueues, QueuePairState, XrcDomainId,
};
use crate::wire::{Psn, Qpn};
use crate::words::{self, Explanation};

/// How an XRC domain is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct XrcDomainOptions<'a> {
    /// An open file that stands for the domain: who opens the same file (its inode counts, not its
    /// name) on the same context gets the same domain. Without one the domain is new and private.
    pub file: Option<BorrowedFd<'a>>,
    /// The file's domain is made if it does not exist (O_CREAT).
    pub create: bool,
    /// The file's domain must not exist yet (O_EXCL).
    pub exclusive: bool,
}

/// An XRC domain: targets reach the shared receive queues of their own domain only. Clones are the
/// same opening; it is closed with the last of them and of what was made in it.
#[derive(Clone)]
pub struct XrcDomain {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    id: XrcDomainId,
    /// The file that stands for it: another one does not get its number while this is open.
    _file: Option<File>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Everything in it holds this value. If others have opened it too, theirs stay.
        let call = || format!("close_xrcd({:?})", self.id);
        let _ = self.context.tell_control(call, |engine, _| engine.close_xrc_domain(self.id));
    }
}

/// What an XRC shared receive queue is created with.
#[derive(Clone, Copy)]
pub struct XrcQueueOptions<'a> {
    /// Whose targets may reach it.
    pub domain: &'a XrcDomain,
    /// Where completions of its receives go; they name the target that took them.
    pub completions: &'a CompletionQueue,
    /// Receives that it holds at least.
    pub requests: u32,
    /// Segments in a receive, at most.
    pub segments: u32,
}

impl Context {
    /// Opens an XRC domain.
    ///
    /// # Errors
    /// The file's domain does not exist, or exists, against what `options` ask for; the file cannot
    /// be looked at; or a limit of the device.
    pub fn open_xrc_domain(&self, options: &XrcDomainOptions<'_>) -> Result<XrcDomain, VerbsError> {
        let kept = options.file.map(keep).transpose().map_err(VerbsError::XrcFile)?;
        let (file, kept) = kept.unzip();
        let open = XrcOpen { file, create: options.create, exclusive: options.exclusive };
        let id = self.tell_control(
            || words::call::xrc_open(&open),
            |engine, _| engine.open_xrc_domain(&open),
        )?;
        Ok(XrcDomain { inner: Arc::new(Inner { context: self.clone(), id, _file: kept }) })
    }
}

/// What identifies a file, as long as what is returned with it is open.
fn keep(file: BorrowedFd<'_>) -> std::io::Result<(XrcFile, File)> {
    let file = File::from(file.try_clone_to_owned()?);
    let metadata = file.metadata()?;
    Ok((XrcFile { device: metadata.dev(), inode: metadata.ino() }, file))
}

impl ProtectionDomain {
    /// A new XRC shared receive queue. The keys of its receives count in this protection domain, and
    /// so do the remote keys of the requests that name it.
    ///
    /// # Errors
    /// Sizes out of range, a domain or completion queue of another device, or a limit of the device.
    pub fn create_xrc_shared_receive_queue(
        &self,
        options: &XrcQueueOptions<'_>,
    ) -> Result<SharedReceiveQueue, VerbsError> {
        let request = engine::XrcQueueOptions {
            domain: self.id(),
            xrc_domain: options.domain.inner.id,
            completions: Arc::clone(options.completions.shared()),
            requests: options.requests,
            segments: options.segments,
        };
        let call = || {
            let XrcQueueOptions { requests, segments, .. } = options;
            let domain = request.xrc_domain;
            format!("create_xrc_srq({domain:?}, {requests} receives of {segments} segments)")
        };
        let queue = self
            .context()
            .tell_control(call, |engine, _| engine.create_xrc_shared_receive_queue(&request))?;
        let keeps = (options.domain.clone(), options.completions.clone());
        Ok(SharedReceiveQueue::new(self.clone(), queue, Some(keeps)))
    }
}

impl XrcDomain {
    /// Creates a target (XRC TGT), in RESET.
    ///
    /// # Errors
    /// A limit of the device.
    pub fn create_target(&self) -> Result<XrcTarget, VerbsError> {
        let id = self.inner.id;
        let call = || format!("create_qp(XRC TGT in {id:?})");
        let queues =
            self.inner.context.tell_control(call, |engine, _| engine.create_xrc_target(id))?;
        Ok(XrcTarget { domain: self.clone(), queues })
    }

    /// Opens a target of this domain that somebody else has created, by its number (`ibv_open_qp`).
    /// It is the same target; it ends when all who have created or opened it have dropped theirs.
    ///
    /// # Errors
    /// This domain has no target of that number.
    pub fn open_target(&self, number: Qpn) -> Result<XrcTarget, VerbsError> {
        let id = self.inner.id;
        let call = || format!("open_qp({number} in {id:?})");
        let open = |engine: &mut Engine, _| engine.open_xrc_target(id, number);
        let queues = self.inner.context.tell_control(call, open)?;
        Ok(XrcTarget { domain: self.clone(), queues })
    }
}

impl std::fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("XrcDomain").field(&self.inner.id).finish()
    }
}

/// The receiving end of an extended reliable connection (XRC TGT). It has no queues: receives go to
/// the shared receive queues of its domain, completions where those say.
pub struct XrcTarget {
    domain: XrcDomain,
    queues: Arc<QueuePairQueues>,
}

impl XrcTarget {
    /// Its number, which a peer has to know.
    pub fn number(&self) -> Qpn {
        self.queues.number()
    }

    /// Its state at this moment.
    pub fn state(&self) -> QueuePairState {
        self.queues.state()
    }

    /// What a peer has to know to connect: our address number `gid_index` and our number. A target
    /// sends no requests; `psn` is where its peer's begin, if both ends use one, and any will do.
    ///
    /// # Errors
    /// The device has no such address.
    pub fn endpoint(&self, gid_index: u16, psn: Psn) -> Result<Endpoint, VerbsError> {
        let gid = self.domain.inner.context.gid(gid_index)?;
        Ok(Endpoint { gid, number: self.number(), psn })
    }

    /// Changes attributes, all or none.
    ///
    /// # Errors
    /// As [`QueuePair::modify`].
    pub fn modify(&self, attributes: &QueuePairAttributes) -> Result<(), VerbsError> {
        let (context, number) = (&self.domain.inner.context, self.number());
        if matches!(attributes.state, Some(QueuePairState::Reset | QueuePairState::Error)) {
            context.device().settle()?;
        }
        let call = || format!("modify_qp({number}, {})", words::call::attributes(attributes));
        context.tell_control(call, |engine, now| engine.modify_queue_pair(now, number, attributes))
    }

    /// Attributes, state and domain.
    ///
    /// # Errors
    /// As [`QueuePair::query`].
    pub fn query(&self) -> Result<QueuePairStatus, VerbsError> {
        let (context, number) = (&self.domain.inner.context, self.number());
        let call = || format!("query_qp({number})");
        context.tell_control(call, |engine, _| engine.query_queue_pair(number))
    }

    /// What the target remembers: its last events, and the facts of its failures. RESET clears it;
    /// ERR does not.
    ///
    /// # Errors
    /// As [`QueuePair::history`].
    pub fn history(&self) -> Result<History, VerbsError> {
        let number = self.number();
        Ok(self.domain.inner.context.control(|engine, _| engine.history(number))??)
    }

    /// Why a receive of a shared receive queue that this target took completed as it did; see
    /// [`QueuePair::explain`].
    pub fn explain(&self, completion: &Completion) -> Explanation {
        Explanation::of_completion(self.history(), completion)
    }

    /// Why the target went into error, if it was not the application that took it there; see
    /// [`QueuePair::explain_error`]. A target has no queues that complete, so this is where its
    /// reasons are told.
    pub fn explain_error(&self) -> Option<Explanation> {
        words::explain_root(&self.history().ok()?)
    }

    /// What has been counted for this target, see [`Counters`].
    ///
    /// # Errors
    /// As [`QueuePair::query`].
    pub fn counters(&self) -> Result<Counters, VerbsError> {
        let number = self.number();
        let count = |engine: &mut Engine, _| engine.queue_pair_counters(number).cloned();
        Ok(self.domain.inner.context.control(count)??)
    }

    /// Takes this target from RESET or INIT to RTS, connected to the initiator `peer`.
    ///
    /// # Errors
    /// As [`QueuePair::modify`].
    pub fn connect(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), VerbsError> {
        if self.state() == QueuePairState::Reset {
            self.modify(&connect::to_init(options.access))?;
        }
        let largest = self.domain.inner.context.info().path_mtu;
        let kind = QueuePairKind::XrcTarget;
        self.modify(&connect::to_rtr(kind, peer, options, largest))?;
        self.modify(&connect::to_rts(kind, Psn::default(), options))
    }
}

impl Drop for XrcTarget {
    fn drop(&mut self) {
        let (context, number) = (&self.domain.inner.context, self.number());
        // In a forked child there is nothing to settle.
        let _ = context.device().settle();
        // It exists as long as one of its uses does.
        let call = || format!("destroy_qp({number})");
        let ended = context.tell_control(call, |engine, _| {
            engine.destroy_queue_pair(number)?;
            Ok(engine.query_queue_pair(number).is_err())
        });
        if ended.unwrap_or(false) {
            context.device().forget_events(&EventSubject::QueuePair(number));
        }
    }
}

impl std::fmt::Debug for XrcTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XrcTarget")
            .field("number", &self.number())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Connects an initiator (a queue pair of kind XRC INI) and a target of this process to each other,
/// from RESET to RTS.
///
/// # Errors
/// As [`QueuePair::modify`]; the initiator may then be connected already.
pub fn connect_xrc(
    initiator: &QueuePair,
    target: &XrcTarget,
    options: &ConnectOptions,
) -> Result<(), VerbsError> {
    // Easy to find in a capture.
    let psn = Psn::new(0x0c_0000);
    let here = initiator.context().info().path_mtu;
    let there = target.domain.inner.context.info().path_mtu;
    let path_mtu = Some(options.path_mtu.unwrap_or_else(|| here.min(there)));
    let options = ConnectOptions { path_mtu, ..*options };
    initiator.connect(&target.endpoint(options.gid_index, psn)?, psn, &options)?;
    target.connect(&initiator.endpoint(options.gid_index, psn)?, &options)
}
