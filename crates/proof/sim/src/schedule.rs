//! The schedule of a world: what will happen, ordered by time and, at the same time, by the order of scheduling.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Schedule<T> {
    pending: BTreeMap<(u64, u64), T>,
    sequence: u64,
}

impl<T> Schedule<T> {
    pub(crate) fn new() -> Schedule<T> {
        Schedule { pending: BTreeMap::new(), sequence: 0 }
    }

    pub(crate) fn at(&mut self, world_ms: u64, what: T) {
        self.sequence += 1;
        self.pending.insert((world_ms, self.sequence), what);
    }

    /// Returns when the next thing happens.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.pending.keys().next().map(|(at, _)| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        self.pending.pop_first().map(|((at, _), what)| (at, what))
    }
}
