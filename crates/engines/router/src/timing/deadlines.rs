//! A queue of deadlines. Callers pass the current time; nothing here waits.

use std::collections::BTreeMap;

use millrace_model::Mono;

/// Deadlines in order of time; equal times in the order they were set.
#[derive(Debug)]
pub(crate) struct Deadlines<T> {
    queue: BTreeMap<Deadline, T>,
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    pub(crate) at: Mono,
    order: u64,
}

impl<T> Default for Deadlines<T> {
    fn default() -> Self {
        Deadlines { queue: BTreeMap::new(), next: 0 }
    }
}

impl<T> Deadlines<T> {
    pub(crate) fn set(&mut self, at: Mono, what: T) -> Deadline {
        self.next += 1;
        let deadline = Deadline { at, order: self.next };
        self.queue.insert(deadline, what);
        deadline
    }

    pub(crate) fn cancel(&mut self, deadline: Deadline) -> Option<T> {
        self.queue.remove(&deadline)
    }

    pub(crate) fn first(&self) -> Option<Mono> {
        self.queue.first_key_value().map(|(deadline, _)| deadline.at)
    }

    pub(crate) fn pop_due(&mut self, now: Mono) -> Option<T> {
        if self.first()? > now {
            return None;
        }
        self.queue.pop_first().map(|(_, what)| what)
    }
}
