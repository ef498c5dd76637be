//! Queue pairs that may have something to send, each once, served in turn.

use std::collections::VecDeque;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    order: VecDeque<u32>,
    listed: Vec<bool>,
}

impl ReadyList {
    /// Appends a queue pair that is not yet in the list.
    pub(crate) fn push(&mut self, slot: u32) {
        let index = slot as usize;
        if index >= self.listed.len() {
            self.listed.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.listed[index], true) {
            self.order.push_back(slot);
        }
    }

    /// Takes the first one out.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let slot = self.order.pop_front()?;
        self.listed[slot as usize] = false;
        Some(slot)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Takes out a queue pair that ends.
    pub(crate) fn remove(&mut self, slot: u32) {
        if self.listed.get(slot as usize) == Some(&true) {
            self.listed[slot as usize] = false;
            self.order.retain(|listed| *listed != slot);
        }
    }
}
