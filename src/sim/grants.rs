//! Memory windows of type 2B in the simulated world: each end has one, binds it over its queue pair
//! when its plan says so, and ends what it grants by itself, unless its peer does before.
//!
//! ```text
//!   Free ── bind posted ──▶ Binding ── completed ──▶ Bound ── invalidation posted ──▶ Ending ─┐
//!    ▲                                                        by the owner or the peer         │
//!    └──────────────────────── completed, or received; or the connection is over ◀─────────────┘
//! ```

use crate::memory::{WindowBind, WindowId, WindowKind};
use crate::queue::{Access, Remote, SendOperation};
use crate::rng::Rng;
use crate::wire::{Lkey, Rkey};

use super::node::{GRANT, GUARD, Node, Registered};
use super::oracle::{Defect, Place, WindowNumber, WindowUse};
use super::posting::BOGUS;
use super::scenario::{Operation, Planned};
use super::world::World;

/// Bytes of a WRITE in the place of a binding that is not needed.
const SHORT: usize = 16;

/// Where a window is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Free,
    Binding,
    Bound,
    Ending,
}

/// An end's window, and the memory that it is bound to. Without the window peers reach nothing of it.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    region: Registered,
    window: WindowId,
    number: WindowNumber,
    stage: Stage,
    /// What it was bound with last.
    bind: Option<WindowBind>,
    /// The key that ended last.
    stale: Option<Rkey>,
}

impl Grant {
    pub(super) fn new(region: Registered, key: Rkey, number: WindowNumber) -> Self {
        let window = WindowId::of_key(key);
        Self { region, window, number, stage: Stage::Free, bind: None, stale: None }
    }

    pub(super) fn window(&self) -> WindowId {
        self.window
    }

    /// What it grants, if that is sure.
    fn bound(&self) -> Option<&WindowBind> {
        self.bind.as_ref().filter(|_| self.stage == Stage::Bound)
    }

    /// A key that grants nothing any more.
    pub(super) fn stale_key(&self) -> Option<Rkey> {
        self.stale
    }

    fn ended(&mut self) {
        self.stale = self.bind.map(|bind| bind.key());
        self.stage = Stage::Free;
    }

    /// Whether this key is the window's that is being ended.
    pub(super) fn is_ending(&self, key: Rkey) -> bool {
        self.stage == Stage::Ending && self.bind.is_some_and(|bind| bind.key() == key)
    }

    /// An operation on the own window was carried out.
    pub(super) fn carried_out(&mut self, operation: Operation) {
        match operation {
            Operation::BindWindow => self.stage = Stage::Bound,
            _ => self.ended(),
        }
    }

    /// The peer's invalidation has arrived.
    pub(super) fn invalidated(&mut self) {
        self.ended();
    }

    /// The queue pair was reset or destroyed: nothing may be bound to the memory any more.
    pub(super) fn start_over(&mut self, node: &mut Node) {
        if self.stage != Stage::Free {
            self.ended();
        }
        node.engine
            .deregister(self.region.keys.local)
            .expect("the end of a queue pair ends its windows");
        self.region.keys = node.register_bindable(&self.region);
    }

    /// The window's byte number `offset`, as a peer names it.
    fn remote(&self, bind: &WindowBind, offset: i64) -> Remote {
        let base = if bind.access.contains(Access::ZERO_BASED) { 0 } else { bind.address };
        Remote { address: base.wrapping_add_signed(offset), key: bind.key() }
    }

    fn place(&self, bind: &WindowBind, offset: usize, length: usize) -> Place {
        let start = (bind.address - self.region.base) as usize;
        self.region.place(GUARD + start + offset, length)
    }

    /// A binding to any part of the memory, at first to all of it with all rights, with the next key.
    fn choose_binding(&self, rng: &mut Rng) -> WindowBind {
        let is_first = self.bind.is_none();
        let length =
            if is_first || rng.chance(1, 2) { GRANT as u64 } else { rng.between(1, GRANT as u64) };
        let address = self.region.base + rng.below(GRANT as u64 - length + 1);
        let (read, write) = (Access::REMOTE_READ, Access::REMOTE_WRITE);
        let chosen = if is_first { 0 } else { rng.below(4) as usize };
        let rights = [read | write, read | write, read, write][chosen];
        let zero_based = if rng.chance(1, 4) { Access::ZERO_BASED } else { Access::NONE };
        WindowBind {
            window: self.window,
            kind: WindowKind::Type2B,
            // It comes again only after all others: a key that has ended must stay useless.
            portion: self
                .bind
                .map_or_else(|| rng.next_u32() as u8, |last| last.portion.wrapping_add(1)),
            region: self.region.keys.local,
            address,
            length,
            access: rights | zero_based,
        }
    }
}

/// A request's operation, and what the oracle has to know of it beside the usual.
pub(super) struct OnWindow {
    pub(super) operation: SendOperation,
    pub(super) number: WindowNumber,
    pub(super) by: Option<WindowUse>,
}

impl World {
    /// What a planned request on a window comes down to now. One that is bound is ended now and then,
    /// or else is left to be used, and meanwhile we use the peer's; one that grants nothing cannot be
    /// ended.
    pub(super) fn decide(&self, end: usize, planned: &Planned) -> Planned {
        let mut decided = *planned;
        if planned.defect.is_some() {
            return decided;
        }
        match planned.operation {
            Operation::BindWindow if self.ends[end].grant.stage == Stage::Bound => {
                decided.window = true;
                if planned.overlap {
                    decided.operation = Operation::LocalInvalidate;
                } else {
                    (decided.operation, decided.length) = (Operation::Write, SHORT);
                }
            }
            Operation::SendInvalidate => {
                decided.window &= self.ends[end ^ 1].grant.bound().is_some();
            }
            _ => {}
        }
        decided
    }

    /// Whether a request on the own window has to wait: until the last one is finished, and for an
    /// invalidation until nobody uses it.
    pub(super) fn must_wait_for_window(&self, end: usize, planned: &Planned) -> bool {
        let grant = &self.ends[end].grant;
        match planned.operation {
            Operation::BindWindow => grant.stage != Stage::Free,
            _ => self.ends[end ^ 1].sends.iter().any(|posted| posted.uses_grant),
        }
    }

    /// The own window is bound.
    pub(super) fn bind_window(&mut self, end: usize, planned: &Planned) -> OnWindow {
        let wrong = planned.defect.is_some();
        let node = &self.nodes[self.ends[end].plan.node];
        let grant = &mut self.ends[end].grant;
        let mut bind = grant.choose_binding(&mut self.rng);
        if wrong {
            spoil(&mut bind, grant, node, &mut self.rng);
        } else {
            grant.stage = Stage::Binding;
            grant.bind = Some(bind);
        }
        let rights = bind.access;
        let by = (!wrong).then(|| WindowUse::Bind {
            key: bind.key().value(),
            place: grant.place(&bind, 0, bind.length as usize),
            rights,
        });
        OnWindow { operation: SendOperation::BindWindow(bind), number: grant.number, by }
    }

    /// What the own window grants is ended.
    pub(super) fn end_own_grant(&mut self, end: usize) -> OnWindow {
        let grant = &mut self.ends[end].grant;
        grant.stage = Stage::Ending;
        let key = grant.bind.map_or(Rkey::new(BOGUS), |bind| bind.key());
        let by = Some(WindowUse::Invalidate { key: key.value() });
        let operation = SendOperation::LocalInvalidate(key);
        OnWindow { operation, number: grant.number, by }
    }

    /// The key of the peer's window, which a SEND will end.
    pub(super) fn end_grant_of_peer(&mut self, end: usize) -> Rkey {
        let grant = &mut self.ends[end ^ 1].grant;
        grant.stage = Stage::Ending;
        grant.bind.map_or(Rkey::new(BOGUS), |bind| bind.key())
    }

    /// A place inside of the peer's window, if that grants what the request needs.
    pub(super) fn granted(
        &mut self,
        end: usize,
        planned: &Planned,
    ) -> Option<(Remote, Place, (WindowNumber, WindowUse))> {
        let grant = &self.ends[end ^ 1].grant;
        let right = planned.operation.needs();
        let bind = *grant.bound()?;
        let room = (bind.length as usize).checked_sub(planned.length)?;
        if !bind.access.contains(right) {
            return None;
        }
        let offset = self.rng.below(room as u64 + 1) as usize;
        let place = grant.place(&bind, offset, planned.length);
        let by = WindowUse::Access { key: bind.key().value(), place, right };
        Some((grant.remote(&bind, offset as i64), place, (grant.number, by)))
    }

    /// A place that a window does not grant, if there is a window to try it on.
    pub(super) fn not_granted(
        &mut self,
        end: usize,
        planned: &Planned,
        defect: Defect,
    ) -> Option<Remote> {
        let peer = end ^ 1;
        if defect == Defect::WindowOfAnother {
            return self.window_of_another(peer, planned);
        }
        let grant = &self.ends[peer].grant;
        let bind = *grant.bound()?;
        if defect == Defect::WindowRights {
            let inside = bind.length as usize >= planned.length;
            let refused = inside && !bind.access.contains(planned.operation.needs());
            return refused.then(|| grant.remote(&bind, 0));
        }
        // Just beyond the window's end or before its start, but inside of the region where that
        // goes on.
        let length = planned.length as i64;
        let beyond = bind.length as i64 - self.rng.below(planned.length as u64) as i64;
        let before = -(1 + self.rng.below(planned.length as u64) as i64);
        let start = (bind.address - grant.region.base) as i64;
        let fits = |offset: i64| start + offset >= 0 && start + offset + length <= GRANT as i64;
        let zero_based = bind.access.contains(Access::ZERO_BASED);
        let offset = if !zero_based && fits(before) { before } else { beyond };
        Some(grant.remote(&bind, offset))
    }

    /// Another end's window on the same node: bound over a queue pair that is not this one, and
    /// otherwise fit for the request.
    pub(super) fn window_of_another(&self, end: usize, planned: &Planned) -> Option<Remote> {
        let node = self.ends[end].plan.node;
        let others = self.ends.iter().enumerate();
        let mut others = others.filter(|(other, this)| *other != end && this.plan.node == node);
        others.find_map(|(_, this)| {
            let bind = this.grant.bound()?;
            let fits = bind.access.contains(planned.operation.needs())
                && bind.length >= planned.length as u64;
            fits.then(|| this.grant.remote(bind, 0))
        })
    }
}

/// Makes a binding wrong.
fn spoil(bind: &mut WindowBind, grant: &Grant, node: &Node, rng: &mut Rng) {
    match rng.below(7) {
        // It only lacks the right to have windows bound to it.
        0 => (bind.region, bind.address) = (node.arena.keys.local, node.arena.base),
        1 => bind.region = Lkey::new(BOGUS),
        2 => bind.length = 0,
        3 => bind.address = grant.region.base + GRANT as u64 - bind.length + 1,
        4 => bind.length = u64::MAX - rng.below(bind.address),
        5 => bind.window = WindowId::of_key(Rkey::new(BOGUS)),
        _ => bind.kind = WindowKind::Type1,
    }
}
