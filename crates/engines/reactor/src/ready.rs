//! The queue of watches that have something to report: first come, first served.

use std::collections::BTreeMap;

use crate::slab::SlabKey;

/// The position of a watch in the queue. Rises with every entry; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// A reported watch enters again behind all others, so the queue rotates by itself: before its next report a watch
/// waits for every other ready watch at most once. Ordered by ticket, so that a watch can also be removed from the
/// middle.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    queue: BTreeMap<Ticket, SlabKey>,
    issued: u64,
}

impl ReadyQueue {
    pub(crate) fn push(&mut self, watch: SlabKey) -> Ticket {
        self.issued += 1;
        let ticket = Ticket(self.issued);
        self.queue.insert(ticket, watch);
        ticket
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) {
        self.queue.remove(&ticket);
    }

    pub(crate) fn pop(&mut self) -> Option<SlabKey> {
        self.queue.pop_first().map(|(_, watch)| watch)
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<SlabKey> {
        self.queue.get(&ticket).copied()
    }
}
